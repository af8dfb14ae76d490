#!/usr/bin/env python3
"""Build Kueue's controller for tests, and keep the manifests of its module beside it.

    kueue.py build    compile into the cache, and print the folder with the program and the folder `config`
    kueue.py path     print that folder without building

It comes from a module of its own, with the versions of Kubernetes' libraries that Kueue asks for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from control_plane import HERE, build_or_path, built_once, cache_dir, go_build

MODULE = HERE / "kueue"
NAME = "sigs.k8s.io/kueue"


def program() -> Path:
    """Where what is built from exactly these versions is, or will be."""
    digest = hashlib.sha256(b"\0".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum")))
    return cache_dir() / "kueue" / digest.hexdigest()[:16] / "kueue"


def build() -> Path:
    """The folder, made first if the cache has none. Several callers at once make it once."""

    def make(part: Path) -> None:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        go_build("Kueue", MODULE, [], "-s -w", f"{part}/", [f"{NAME}/cmd/kueue"])
        listed = ["go", "list", "-m", "-f", "{{.Dir}}", NAME]
        folder = subprocess.run(listed, cwd=MODULE, check=True, capture_output=True, text=True).stdout.strip()
        shutil.copytree(Path(folder) / "config", part / "config", copy_function=shutil.copyfile)
        # In the module cache all is read-only, and folders keep that when they are copied.
        for copied, _, _ in os.walk(part / "config"):
            Path(copied).chmod(0o755)

    return built_once(program(), "Kueue is", make)


if __name__ == "__main__":
    sys.exit(build_or_path("kueue.py", __doc__, build, program))

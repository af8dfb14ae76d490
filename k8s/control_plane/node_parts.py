#!/usr/bin/env python3
"""Build what a node with a real kubelet runs, for tests.

    node_parts.py build    compile into the cache, and print the folder of the programs
    node_parts.py path     print that folder without building

kubelet comes from a module with the same versions as the control plane, so that what is compiled for one is there for the
other. containerd, its shim, ctr and two plugins for networks come from another, with the versions that they ask for, and
so does `pod`, which runs in the smallest pods. runc is not among them: it needs the C library of seccomp, and
distributions have it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from control_plane import HERE, PlaneError, cache_dir, linker_flags

MODULES = HERE / "node_parts"
TAGS = "no_btrfs,no_devmapper,no_zfs"
"""Kinds of file systems that no test uses, and that need C libraries."""
PACKAGES = {
    "kubelet": ("k8s.io/kubernetes/cmd/kubelet",),
    "runtime": (
        "github.com/containerd/containerd/v2/cmd/containerd",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/ctr",
        "github.com/containernetworking/plugins/plugins/ipam/host-local",
        "github.com/containernetworking/plugins/plugins/main/bridge",
        "./cmd/pod",
    ),
}
"""By module; each becomes a program with the last part of its name."""


def programs() -> Path:
    """Where the programs of exactly these sources are, or will be."""
    digest = hashlib.sha256(repr((linker_flags(), TAGS, PACKAGES)).encode())
    sources = [path for path in MODULES.rglob("*") if path.suffix in (".go", ".mod", ".sum")]
    for source in sorted(sources):
        digest.update(f"\0{source.relative_to(MODULES).as_posix()}\0".encode())
        digest.update(source.read_bytes())
    return cache_dir() / "node-parts" / digest.hexdigest()[:16] / "bin"


def build() -> Path:
    """The programs, compiled first if the cache has none. Several callers at once build them once."""
    target = programs()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        if shutil.which("go") is None:
            raise PlaneError("the parts of a node are not built yet, and Go is not installed")
        part = target.with_name("bin.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for module, packages in PACKAGES.items():
            command = ["go", "build", "-mod=readonly", "-trimpath", "-tags", TAGS, "-ldflags", linker_flags()]
            environment = {**os.environ, "GOWORK": "off"}
            done = subprocess.run(
                [*command, "-o", f"{part}/", *packages], cwd=MODULES / module, env=environment, check=False
            )
            if done.returncode:
                raise PlaneError(f"the {module} of a node cannot be built: see above")
        part.rename(target)
    return target


def main() -> int:
    """Do what the command line says; 1 and one message if that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("build", "path"))
    try:
        print(build() if parser.parse_args().verb == "build" else programs())
    except PlaneError as error:
        print(f"node_parts.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

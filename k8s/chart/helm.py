#!/usr/bin/env python3
"""Build helm into the cache, for the tests that render the chart, and print its path.

The executable is kept below $FLOWSCHED_CACHE (else ~/.cache/flowsched), in a folder named after its version. Needs Go; one
or two minutes the first time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "v4.3.1"


class HelmError(Exception):
    """There is no helm and none can be built; the text says why."""


def executable() -> Path:
    """Where helm is, or will be."""
    root = os.environ.get("FLOWSCHED_CACHE")
    cache = Path(root) if root else Path.home() / ".cache" / "flowsched"
    return cache / "helm" / VERSION / "helm"


def build() -> Path:
    """Helm, compiled first if the cache has none. Several callers at once build it once."""
    target = executable()
    if target.exists():
        return target
    if shutil.which("go") is None:
        raise HelmError("helm is not built yet, and Go is not installed")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        part = target.parent / "part"
        done = subprocess.run(
            ["go", "install", "-trimpath", "-ldflags=-s -w", f"helm.sh/helm/v4/cmd/helm@{VERSION}"],
            # A workspace around this folder is none of helm's business.
            env={**os.environ, "GOBIN": str(part), "GOWORK": "off"},
            preexec_fn=lambda: os.nice(10),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HelmError("helm cannot be built: " + (done.stderr.strip().splitlines() or ["no reason given"])[-1])
        # Renamed when it is whole, so that half of it is never run.
        (part / "helm").rename(target)
        part.rmdir()
    return target


def main() -> None:
    """Build, and print the path."""
    try:
        print(build())
    except HelmError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

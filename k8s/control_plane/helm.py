#!/usr/bin/env python3
"""Build helm into the cache, for the tests that render the chart, and print its path.

The executable is kept below $FLOWSCHED_CACHE (else ~/.cache/flowsched), in a folder named after its version. Needs Go; one
or two minutes the first time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from control_plane import PlaneError, built_once, cache_dir

VERSION = "v4.3.1"


def build() -> Path:
    """Helm, compiled first if the cache has none. Several callers at once build it once."""

    def make(part: Path) -> None:
        folder = part.with_name("part")
        done = subprocess.run(
            ["go", "install", "-trimpath", "-ldflags=-s -w", f"helm.sh/helm/v4/cmd/helm@{VERSION}"],
            # A workspace around this folder is none of helm's business.
            env={**os.environ, "GOBIN": str(folder), "GOWORK": "off"},
            preexec_fn=lambda: os.nice(10),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PlaneError("helm cannot be built: " + (done.stderr.strip().splitlines() or ["no reason given"])[-1])
        (folder / "helm").rename(part)
        folder.rmdir()

    return built_once(cache_dir() / "helm" / VERSION / "helm", "helm is", make)


def main() -> None:
    """Build, and print the path."""
    try:
        print(build())
    except PlaneError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

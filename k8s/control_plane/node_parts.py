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

import shutil
import sys
from pathlib import Path

from control_plane import HERE, build_or_path, built_once, cache_dir, digest_of, go_build, linker_flags

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
    sources = [path for path in MODULES.rglob("*") if path.suffix in (".go", ".mod", ".sum")]
    options = repr((linker_flags(), TAGS, PACKAGES))
    return cache_dir() / "node-parts" / digest_of(options, MODULES, sorted(sources)) / "bin"


def build() -> Path:
    """The programs, compiled first if the cache has none. Several callers at once build them once."""

    def make(part: Path) -> None:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for module, packages in PACKAGES.items():
            what = f"the {module} of a node"
            go_build(what, MODULES / module, ["-tags", TAGS], linker_flags(), f"{part}/", packages)

    return built_once(programs(), "the parts of a node are", make)


if __name__ == "__main__":
    sys.exit(build_or_path("node_parts.py", __doc__, build, programs))

"""Where the cgroup trees of a machine are, and in which of their groups a process or container is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from flowsched_agent.controls.refusals import GONE, ControlError, refusal
from flowsched_agent.system import System

Kind = Literal["v2", "v1", "hybrid", "none"]
CONTROLLERS = ("cpu", "cpuset", "freezer", "cpuacct")
"""That steer or count CPU time."""
_DEPTH = 8
"""Folders down to which containers are looked for: kubepods, class, pod, container, and some in between."""
_CONTAINER_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")


@dataclass(frozen=True)
class Hierarchies:
    """The trees: one of v2, one for each controller of v1, or both kinds side by side (hybrid)."""

    v2: Path | None = None
    v1: Mapping[str, Path] = field(default_factory=dict)
    """By controller. Those that are mounted together have one folder."""

    @property
    def kind(self) -> Kind:
        """What systemd calls unified, legacy, hybrid."""
        if self.v1:
            return "v1" if self.v2 is None else "hybrid"
        return "none" if self.v2 is None else "v2"

    def trees(self) -> dict[str, Path]:
        """All of them by name: controllers, and ``""`` for that of v2 as /proc calls it."""
        return {**self.v1, **({} if self.v2 is None else {"": self.v2})}


def find_hierarchies(system: System) -> Hierarchies:
    """What is mounted below the root of the cgroup trees."""
    root = system.cgroup
    if system.exists(root / "cgroup.controllers"):
        return Hierarchies(v2=root)
    try:
        names = system.names(root)
    except OSError:
        return Hierarchies()
    v1: dict[str, Path] = {}
    for name in names:
        for controller in name.split(","):
            # A group's folder is a v1 root if it has tasks; beside cpu,cpuacct there are links cpu and cpuacct.
            if controller in CONTROLLERS and system.exists(root / name / "tasks"):
                v1.setdefault(controller, root / name)
    v2 = root / "unified"
    return Hierarchies(v2 if system.exists(v2 / "cgroup.controllers") else None, v1)


def groups_of(system: System, hierarchies: Hierarchies, pid: int) -> dict[str, str]:
    """The groups of a process: path below its tree's root by the tree's name. Raises :class:`ControlError`.

    Groups that the agent cannot see, above the root of its cgroup namespace, are left out.
    """
    what = f"the groups of process {pid} were asked for"
    try:
        text = system.read(system.proc / str(pid) / "cgroup")
    except OSError as error:
        raise refusal(what, error, gone=error.errno in GONE) from None
    trees = hierarchies.trees()
    found = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in [""] if number == "0" else controllers.split(","):
            if name in trees and not path.startswith("/.."):
                found[name] = path.removesuffix(" (deleted)")
    return found


def bare_id(text: str) -> str:
    """The id of a container without its runtime: ``containerd://4f0c`` is 4f0c. Raises :class:`ControlError`."""
    found = text.rpartition("://")[2]
    if not _CONTAINER_ID.fullmatch(found):
        raise ControlError(
            f"the container '{text}' was asked for",
            "that is no id of a container; write it as 4f0c… or containerd://4f0c…",
        )
    return found


def groups_of_container(system: System, hierarchies: Hierarchies, container: str) -> dict[str, str]:
    """The groups of a container by its id, or by its first 12 characters or more. Raises :class:`ControlError`.

    Names are those of runc and crun (the id), containerd, CRI-O, Docker and Podman under systemd
    (``cri-containerd-<id>.scope`` and the like), wherever they are: below kubepods, docker, system.slice or a user's own.
    """
    wanted = bare_id(container)
    found: dict[str, str] = {}
    for name, root in hierarchies.trees().items():
        paths = [path for path in _below(system, root, PurePosixPath("/"), _DEPTH) if _is_of(path.name, wanted)]
        # A container may have groups of its own inside; the outermost is the container's.
        outer = [path for path in paths if not any(other in path.parents for other in paths)]
        if len(outer) > 1:
            raise ControlError(
                f"the container {wanted} was asked for",
                f"{len(outer)} groups have such a name, {outer[0]} and {outer[1]} among them; write more of the id",
            )
        if outer:
            found[name] = str(outer[0])
    if not found:
        raise ControlError(
            f"the container {wanted} was asked for",
            f"no cgroup below {system.cgroup} has its name; it has ended, or the host's cgroup tree is not mounted here",
            gone=True,
        )
    return found


def _is_of(name: str, wanted: str) -> bool:
    own = name.removesuffix(".scope")
    own = own.rpartition("-")[2] if own != name else own
    return own == wanted or (len(wanted) >= 12 and own.startswith(wanted))


def _below(system: System, root: Path, path: PurePosixPath, depth: int) -> Iterator[PurePosixPath]:
    if depth == 0:
        return
    try:
        names = system.folders(root / path.relative_to("/"))
    except OSError:
        return
    for name in names:
        yield path / name
        yield from _below(system, root, path / name, depth - 1)

"""The cgroups of a test node: one in every tree, in which the node believes that it has the whole machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from control_plane import PlaneError, started_at

ROOT = Path("/sys/fs/cgroup")
PREFIX = "flowsched-node"
PATIENCE_S = 20.0


def trees() -> dict[str, Path]:
    """The group that this process is in, by the name of the tree's folder. Raises ``PlaneError`` for cgroups v2 alone."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        name = "unified" if number == "0" else controllers.removeprefix("name=")
        found[name] = ROOT / name / path.lstrip("/")
    if "cpu" not in {controller for name in found for controller in name.split(",")}:
        raise PlaneError("a test node needs cgroups of version 1, as on a hybrid machine; this one has version 2 alone")
    return {name: folder for name, folder in found.items() if folder.is_dir()}


class Groups:
    """The groups of one node. Their name tells who made them, so that those of the dead can be removed."""

    def __init__(self, name: str = "") -> None:
        self.name = name or f"{PREFIX}-{os.getpid()}-{started_at(os.getpid())}"
        self.folders = {tree: folder / self.name for tree, folder in trees().items()}

    def make(self) -> None:
        """In every tree. Raises ``PlaneError`` where that is refused."""
        try:
            for tree, folder in self.folders.items():
                folder.mkdir()
                if "cpuset" in tree.split(","):
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (folder / name).write_text((folder.parent / name).read_text())
        except OSError as error:
            raise PlaneError(f"no cgroup for a node can be made: {error}") from None

    def enter(self) -> None:
        """With the process that calls this."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text("0")

    def end(self) -> None:
        """Kill what is left in them, and remove them. What is frozen must be thawed to die."""
        until = time.monotonic() + PATIENCE_S
        while any(folder.exists() for folder in self.folders.values()):
            for folder in self._all():
                with contextlib.suppress(OSError):
                    if (state := folder / "freezer.state").exists():
                        state.write_text("THAWED")
                    for pid in (folder / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                    folder.rmdir()
            if time.monotonic() > until:
                left = [str(folder) for folder in self.folders.values() if folder.exists()]
                raise PlaneError(f"could not be removed: {', '.join(left)}")
            time.sleep(0.02)

    def _all(self) -> Iterator[Path]:
        """Innermost first."""
        for top in self.folders.values():
            for folder, _, _ in os.walk(top, topdown=False):
                yield Path(folder)


def clear_dead() -> None:
    """Remove the groups of nodes whose process is gone."""
    found = {folder.name for top in trees().values() for folder in top.glob(f"{PREFIX}-*-*")}
    for name in found:
        _, _, pid, started = name.split("-")
        if str(started_at(int(pid))) != started:
            Groups(name).end()

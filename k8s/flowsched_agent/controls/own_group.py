"""A cgroup made for one plain process tree, so that its weight counts against the others that are steered.

All of them are beside one another below one parent. Processes are moved in, and back to where they were.
"""

from __future__ import annotations

import contextlib
import errno
import re
from pathlib import Path

from flowsched_agent.controls.cgroup_v1 import GroupV1
from flowsched_agent.controls.cgroup_v2 import GroupV2
from flowsched_agent.controls.control import Saved
from flowsched_agent.controls.group import UNIFIED, Group
from flowsched_agent.controls.hierarchies import Hierarchies, groups_of
from flowsched_agent.controls.refusals import GONE, ControlError, refusal
from flowsched_agent.controls.scheduling import online
from flowsched_agent.controls.threads import ROUNDS
from flowsched_agent.controls.weights import shares_of, v2_of
from flowsched_agent.sensors.process import start_time, tree
from flowsched_agent.system import System

PARENT = "flowsched"
"""Folder of all of them, below the root of each tree."""
PROBE = "flowsched.probe"
"""Beginning of the name of groups that are made to see whether one can be; after it comes the process that tries."""
REMOVE_S = 0.2
"""How long an emptied group is waited for: a process that has just ended is in it for a moment still."""
_AGAIN_S = 0.005
_TREES = ("cpu", "cpuacct")
"""Of v1. CPUs are chosen by affinity and pauses made by signals: a frozen process of v1 could not even be ended."""
_ENABLE_MEANINGS = {
    errno.EBUSY: "processes are in that group itself, which may then have no controllers for those below; "
    "run the agent at the host's root group, or move them into a group below",
    errno.EINVAL: "the controller is not in this tree, or real-time processes are in groups below the root; "
    "weights are by nice values instead",
}


class OwnGroup:
    """The group of one tree of processes."""

    def __init__(self, system: System, hierarchies: Hierarchies, name: str, pid: int) -> None:
        """Makes the group and moves the tree in. Raises :class:`ControlError`, with everything as it was."""
        self._system = system
        self._name = name
        self._hierarchies = hierarchies
        self.origins: dict[tuple[int, int], dict[str, str]] = {}
        """Groups from which processes came, by number and start; those born inside are like the first."""
        self._folders = own_folders(hierarchies, name, pid)
        try:
            for path in dict.fromkeys(self._folders.values()):
                for again in (True, False):
                    _make(system, path.parent, hierarchies)
                    try:
                        _make(system, path, hierarchies)
                        break
                    except ControlError:
                        # Another agent may have removed the parent meanwhile, as the last that was in it.
                        if not again or system.exists(path.parent):
                            raise
            self.group = _group(system, self._folders)
            if not self.group.has_weight:
                raise ControlError(
                    f"{name} was to have a group of its own", f"{self.group.where} has no cpu controller"
                )
            self.move_in(pid)
            self._before_s = self.group.cpu_s() if self.group.counts_cpu else 0.0
        except ControlError:
            with contextlib.suppress(ControlError):
                self.leave()
            raise

    @property
    def used_s(self) -> float | None:
        """CPU seconds since the tree was moved in; None: it is not counted."""
        return self.group.cpu_s() - self._before_s if self.group.counts_cpu else None

    def move_in(self, pid: int) -> None:
        """Move the tree of a process in, with those that it starts meanwhile."""
        for _ in range(ROUNDS):
            inside = set(self.group.pids())
            outside = [process for process in tree(self._system, pid) if process.pid not in inside]
            if not outside:
                return
            for process in outside:
                found = groups_of(self._system, self._hierarchies, process.pid)
                self.origins[process.pid, process.start] = {
                    # What an earlier agent left in such a group had its place elsewhere; the root is the likeliest.
                    tree: "/" if f"/{PARENT}/" in found.get(tree, "/") else found.get(tree, "/")
                    for tree in self._folders
                }
                try:
                    self.group.adopt(process.pid)
                except ControlError as error:
                    if not error.gone:
                        raise

    def saved(self) -> Saved:
        """Plain JSON: enough for :func:`leave_group` in another process."""
        return {
            "folders": self.group.saved()["folders"],
            "origins": [
                {"pid": pid, "start": start, "groups": groups} for (pid, start), groups in self.origins.items()
            ],
        }

    def leave(self) -> None:
        """Move everything back and remove the group, and the parent when it was the last. Raises :class:`ControlError`."""
        leave_group(self._system, self._name, self._folders, self.origins, self._hierarchies)


def own_folders(hierarchies: Hierarchies, name: str, pid: int) -> dict[str, Path]:
    """Where the group of a process is, or would be, by tree."""
    trees = hierarchies.trees()
    wanted = [UNIFIED] if hierarchies.kind == "v2" else [tree for tree in _TREES if tree in trees]
    folder = f"{re.sub('[^A-Za-z0-9_-]+', '-', name).strip('-')[:60] or 'task'}.{pid}"
    return {tree: trees[tree] / PARENT / folder for tree in wanted}


def leave_group(
    system: System,
    name: str,
    folders: dict[str, Path],
    origins: dict[tuple[int, int], dict[str, str]],
    hierarchies: Hierarchies,
) -> None:
    """Move all processes of a group back to where they came from, remove it. Raises the first :class:`ControlError`."""
    roots = hierarchies.trees()
    refused: ControlError | None = None
    for tree_name, folder in folders.items():
        for _ in range(ROUNDS):
            try:
                inside = [int(line) for line in system.read(folder / "cgroup.procs").split()]
            except OSError:
                break
            if not inside:
                break
            for pid in inside:
                groups = origins.get((pid, start_time(system, pid) or 0)) or next(iter(origins.values()), {})
                try:
                    _move_back(system, name, pid, roots[tree_name], groups.get(tree_name, "/"))
                except ControlError as error:
                    refused = refused or error
        for path in (folder, folder.parent):
            try:
                _remove(system, path, wait=path == folder)
            except OSError as error:
                # The parent stays as long as others are in it.
                if path == folder and error.errno not in GONE:
                    refused = refused or refusal(f"the group {folder} was to be removed", error)
    if refused is not None:
        raise refused


def remove_empty_groups(system: System, hierarchies: Hierarchies, within_s: float = 0.0) -> list[str]:
    """Remove groups without processes that an agent left which was killed, and the parent when it is empty. Never raises.

    Only groups whose process has ended, so none of a living agent. Those in which something is just ending are waited for,
    ``within_s`` seconds at most. Answers a sentence for each that was removed.
    """
    said = []
    until_s = system.now_s() + within_s
    while True:
        left = False
        for root in dict.fromkeys(hierarchies.trees().values()):
            parent = root / PARENT
            for path in [*_folders_of_ended(system, parent, ""), *_folders_of_ended(system, root, f"{PROBE}.")]:
                try:
                    system.remove_folder(path)
                    said.append(f"the empty group {path} was removed: its process has ended")
                except OSError as error:
                    left = left or (error.errno == errno.EBUSY and not _lives(system, path))
            with contextlib.suppress(OSError):
                system.remove_folder(parent)
        if not left or system.now_s() >= until_s:
            return said
        system.sleep(_AGAIN_S)


def _lives(system: System, group: Path) -> bool:
    """Whether a process in a group has not ended: such a group is in use, and no use waiting for."""
    with contextlib.suppress(OSError):
        return any(start_time(system, int(pid)) is not None for pid in system.read(group / "cgroup.procs").split())
    return False


def _folders_of_ended(system: System, above: Path, beginning: str) -> list[Path]:
    """Groups of such a name that are named after a process which is gone."""
    try:
        names = system.folders(above)
    except OSError:
        return []
    pids = {name: _pid_of(name) for name in names if name.startswith(beginning)}
    return [above / name for name, pid in pids.items() if pid is not None and start_time(system, pid) is None]


def _pid_of(name: str) -> int | None:
    """The process that a group is named after."""
    number = name.rpartition(".")[2]
    return int(number) if number.isdigit() else None


def _move_back(system: System, name: str, pid: int, root: Path, path: str) -> None:
    """To where it was, or to the root where that is gone."""
    refused: OSError | None = None
    inside = ".." not in path.split("/")  # as the kernel writes it
    for folder in dict.fromkeys((root / path.lstrip("/") if inside else root, root)):
        try:
            system.write(folder / "cgroup.procs", str(pid))
            return
        except OSError as error:
            if error.errno == errno.ESRCH:
                return
            refused = refused or error
    if refused is not None:
        raise refusal(f"process {pid} of {name} was to go back to the group {path}", refused)


def _remove(system: System, path: Path, *, wait: bool) -> None:
    until_s = system.now_s() + (REMOVE_S if wait else 0.0)
    while True:
        try:
            system.remove_folder(path)
            return
        except OSError as error:
            if error.errno != errno.EBUSY or system.now_s() >= until_s:
                raise
        system.sleep(_AGAIN_S)


def _group(system: System, folders: dict[str, Path]) -> Group:
    if UNIFIED in folders:
        return GroupV2(system, folders[UNIFIED])
    return GroupV1(system, folders)


def _make(system: System, path: Path, hierarchies: Hierarchies) -> None:
    """Make a group where there is none; the parent weighs as much as one thread on every CPU."""
    what = f"the group {path} was to be made"
    try:
        with contextlib.suppress(FileExistsError):
            system.make_folder(path)
        if path.name != PARENT:
            return
        # A group's weight is divided over the CPUs on which it runs, and a thread in the root has all of its own.
        cores = max(1, len(online(system)))
        if hierarchies.kind == "v2":
            for folder in (path.parent, path):
                if "cpu" not in system.read(folder / "cgroup.subtree_control").split():
                    what = f"the cpu controller was to be on below {folder}"
                    system.write(folder / "cgroup.subtree_control", "+cpu")
            system.write(path / "cpu.weight", str(v2_of(cores)))
        elif system.exists(path / "cpu.shares"):
            system.write(path / "cpu.shares", str(shares_of(cores)))
    except OSError as error:
        raise refusal(what, error, _ENABLE_MEANINGS) from None

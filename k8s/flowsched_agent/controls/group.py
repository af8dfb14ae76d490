"""A cgroup that is steered, whichever version it has, and the files that all of them share the handling of."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar

from flowsched_agent.controls.control import Saved
from flowsched_agent.controls.core_list import cores_of
from flowsched_agent.controls.refusals import GONE, ControlError, refusal
from flowsched_agent.controls.weights import is_lowest
from flowsched_agent.system import System
from flowsched_models.quantity import format_cores
from flowsched_models.text_table import printable

UNIFIED = ""
"""Name of the v2 tree in /proc/PID/cgroup."""
CPUS = "cpuset.cpus"
STEERED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "v1": {
        "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.idle", "cpu.shares"),
        "cpuset": (CPUS,),
        "freezer": ("freezer.state",),
        UNIFIED: ("cgroup.freeze",),
    },
    # In the order in which they are brought back: a group that is idle takes no weight.
    "v2": {UNIFIED: ("cgroup.freeze", CPUS, "cpu.max", "cpu.idle", "cpu.weight")},
}
"""Files that are changed, by version and tree; of groups below only the CPUs."""
PERIOD_US = 100_000
"""Of quotas, the kernel's default: a short period throttles a task many times where a long one never does."""
LEAST_QUOTA_US = 1_000
"""That the kernel takes."""
FREEZE_S = 0.1
"""How long a freeze is waited for: each task of the group must reach a point where it can stand still."""
_LOOK_S = 0.001


class GroupFiles:
    """Folders of one group by the name of their tree, and the values that its files had at first."""

    def __init__(self, system: System, where: str, folders: Mapping[str, Path]) -> None:
        """Raises :class:`ControlError` if a folder is not there."""
        self.system = system
        self.where = where
        self.folders = dict(folders)
        try:
            self.inodes = {tree: system.inode(folder) for tree, folder in folders.items()}
        except OSError as error:
            raise refusal(f"the group {where} was asked for", error, gone=error.errno in GONE) from None
        self.original: dict[str, str] = {}
        """By ``tree:file``; files of groups below have their path in front."""
        self.written: set[str] | None = set()
        """Those of them that we wrote to; None: not known, as an agent before us did not write it down."""
        self.announce: Callable[[], None] | None = None
        """Called before one of them is written to for the first time. Without it nothing is said of what was written."""

    def there(self, tree: str) -> bool:
        """Whether the folder is the same as at first: its inode number is not given again before a restart."""
        try:
            return self.system.inode(self.folders[tree]) == self.inodes[tree]
        except OSError:
            return False

    def has(self, tree: str, file: str) -> bool:
        """Whether there is such a file."""
        return tree in self.folders and self.system.exists(self.folders[tree] / file)

    def remember(self, tree: str, files: Iterable[str]) -> None:
        """Note the values of these files, where there are such."""
        for file in files:
            if self.has(tree, file):
                value = self.read(tree, file).strip()
                # What the kernel says on the way there is nothing that it takes.
                self.original[f"{tree}:{file}"] = "FROZEN" if value == "FREEZING" else value

    def read(self, tree: str, file: str) -> str:
        """Raises :class:`ControlError`."""
        try:
            return self.system.read(self.folders[tree] / file)
        except OSError as error:
            raise refusal(f"{file} of the group {self.where} was read", error, gone=not self.there(tree)) from None

    def write(self, tree: str, file: str, text: str, meanings: Mapping[int, str] | None = None) -> None:
        """Raises :class:`ControlError`."""
        what = f"{file} of the group {self.where} was to be {text.strip() or 'empty'}"
        if not self.there(tree):
            raise ControlError(what, "ENOENT, the group has vanished; nothing is left to steer", gone=True)
        self._first(f"{tree}:{file}")
        try:
            self.system.write(self.folders[tree] / file, text)
        except OSError as error:
            raise refusal(what, error, meanings, gone=not self.there(tree)) from None

    def _first(self, key: str) -> None:
        if self.written is None or key in self.written or key not in self.original:
            return
        self.written.add(key)
        try:
            if self.announce is not None:
                self.announce()
        except BaseException:
            self.written.discard(key)
            raise

    def allowed(self, tree: str, files: Sequence[str]) -> tuple[int, ...] | None:
        """Virtual CPUs that the group above leaves it, by the first of these files that says; None: none says."""
        for file in files:
            path = self.folders[tree].parent / file
            try:
                found = cores_of(self.system.read(path))
            except (OSError, ValueError):
                continue
            if found:
                return found
        return None

    def within(self, cores: tuple[int, ...], allowed: tuple[int, ...] | None) -> tuple[int, ...]:
        """Those that it may use. Raises :class:`ControlError` if that is none."""
        found = cores if allowed is None else tuple(core for core in cores if core in allowed)
        if not found:
            raise ControlError(
                f"the group {self.where} was to run on the CPUs {format_cores(cores) or 'of an empty list'}",
                f"the group above it has {format_cores(allowed or ()) or 'any'}; "
                "give the agent cores from these, or widen that cpuset",
            )
        return found

    def wait(self, done: Callable[[], bool]) -> bool:
        """Look until it is so, for as long as a freeze is waited for."""
        until_s = self.system.now_s() + FREEZE_S
        while not done():
            if self.system.now_s() >= until_s:
                return False
            self.system.sleep(_LOOK_S)
        return True

    def pids(self, tree: str) -> list[int]:
        """Processes of the group and of the groups below it. Raises :class:`ControlError`."""
        found: set[int] = set()
        for folder in self.all_folders(tree):
            try:
                found |= {int(line) for line in self.system.read(folder / "cgroup.procs").split()}
            except OSError as error:
                # Groups below come and go; a threaded one names its processes further up.
                if folder == self.folders[tree]:
                    raise refusal(
                        f"the processes of the group {self.where} were asked for", error, gone=not self.there(tree)
                    ) from None
        # 0 stands for processes of another namespace.
        return sorted(found - {0})

    def all_folders(self, tree: str) -> list[Path]:
        """The group's folder and all below it, from the top."""
        found = [self.folders[tree]]
        for folder in found:
            try:
                found += [folder / name for name in self.system.folders(folder)]
            except OSError:
                continue
        return found

    def saved(self, version: str) -> Saved:
        """Plain JSON."""
        written = {} if self.announce is None or self.written is None else {"written": sorted(self.written)}
        return {
            "version": version,
            "where": self.where,
            "folders": {
                tree: {"path": str(folder), "inode": self.inodes[tree]} for tree, folder in self.folders.items()
            },
            "values": dict(self.original),
            **written,
        }

    def write_back(self, order: Sequence[str], for_empty: Mapping[str, str] | None = None) -> None:
        """Write the values of the start, those of ``order`` first, where we wrote and they are others now.

        What we never wrote to, another program has changed: kubelet, when it gives a pod more.

        Again, in turn from the bottom and the top, where something is refused: a cpuset can only be widened after the
        one above it, and narrowed before it. ``for_empty``: by file, what means the same as an empty value, for where
        that is refused.
        """
        refused: dict[str, ControlError] = {}
        rank = {file: index for index, file in enumerate(order)}
        keys = sorted(
            (key for key in self.original if self.written is None or key in self.written),
            key=lambda key: (rank.get(key.rpartition("/")[2].rpartition(":")[2], -1), key.count("/"), key),
        )
        for keys_of_pass in (keys, list(reversed(keys)), keys):
            for key in keys_of_pass:
                tree, _, file = key.partition(":")
                try:
                    if self.has(tree, file) and self.read(tree, file).strip() != self.original[key]:
                        self._write_original(tree, file, self.original[key], (for_empty or {}).get(file))
                    refused.pop(key, None)
                except ControlError as error:
                    refused[key] = error
            if not refused:
                return
        raise next((error for error in refused.values() if not error.gone), next(iter(refused.values())))

    def _write_original(self, tree: str, file: str, value: str, for_empty: str | None) -> None:
        try:
            self.write(tree, file, value or "\n")
        except ControlError:
            if value or for_empty is None:
                raise
            self.write(tree, file, for_empty)


class Group(ABC):
    """A cgroup that is steered, and what both versions do alike. Methods raise :class:`ControlError`."""

    version: ClassVar[str]
    cpuset: ClassVar[str]
    """The tree of ``cpuset.cpus``."""
    cpu: ClassVar[str]
    """The tree of weights and quotas."""
    weight_file: ClassVar[str]
    used_file: ClassVar[tuple[str, str]]
    """Tree and file of the CPU time that was used."""

    def __init__(self, files: GroupFiles) -> None:
        """``files``: with the values of the start."""
        self._files = files

    @property
    def where(self) -> str:
        """Its path, for sentences."""
        return self._files.where

    @property
    def has_cores(self) -> bool:
        """Whether it has a cpuset of its own."""
        return self._files.has(self.cpuset, CPUS)

    @property
    def has_weight(self) -> bool:
        """Whether it has a weight and quota of its own."""
        return self._files.has(self.cpu, self.weight_file)

    @property
    def has_freezer(self) -> bool:
        """Whether it can be frozen: from Linux 5.2 on, unless it is a root."""
        return self._files.has(UNIFIED, "cgroup.freeze")

    @property
    def counts_cpu(self) -> bool:
        """Whether it counts CPU time."""
        return self._files.has(*self.used_file)

    @abstractmethod
    def set_cores(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Let it run on these virtual CPUs; answers those that it may really use."""

    def set_weight(self, weight: float) -> None:
        """Among the groups beside it, relative to the default. At the lowest (``cpu.idle``) those preempt it at once."""
        idle = self._files.has(self.cpu, "cpu.idle")
        if idle and self._files.read(self.cpu, "cpu.idle").strip() == "1":
            if is_lowest(weight):
                return
            self._files.write(self.cpu, "cpu.idle", "0", WEIGHT_MEANINGS)
        self._files.write(self.cpu, self.weight_file, str(self._number_of(weight)), WEIGHT_MEANINGS)
        if idle and is_lowest(weight):
            self._files.write(self.cpu, "cpu.idle", "1", WEIGHT_MEANINGS)

    @abstractmethod
    def _number_of(self, weight: float) -> int:
        """As the file of weights has it."""

    @abstractmethod
    def set_quota(self, cpus: float | None) -> None:
        """CPUs at most."""

    def freeze(self) -> bool:
        """Stop all of it; answers whether all stands still already: the state letters of its tasks do not say so."""
        self._files.write(UNIFIED, "cgroup.freeze", "1")
        return self._files.wait(self.frozen)

    def thaw(self) -> None:
        """Let it go on."""
        self._files.write(UNIFIED, "cgroup.freeze", "0")

    def frozen(self) -> bool:
        """Whether all of it stands still."""
        return "frozen 1" in self._files.read(UNIFIED, "cgroup.events").splitlines()

    @abstractmethod
    def cpu_s(self) -> float:
        """CPU seconds used by all that was in it."""

    def pids(self) -> list[int]:
        """Processes in it and in the groups below, in the first of its trees."""
        return self._files.pids(next(iter(self._files.folders)))

    def adopt(self, pid: int) -> None:
        """Move a process with all its threads into it."""
        for tree in self._files.folders:
            self._files.write(tree, "cgroup.procs", str(pid), ADOPT_MEANINGS)

    def there(self) -> bool:
        """Whether it is still the same group, in all its trees. Never raises."""
        return all(self._files.there(tree) for tree in self._files.folders)

    def saved(self) -> Saved:
        """Its settings from before the first change, and which of them were or are about to be changed."""
        return self._files.saved(self.version)

    def before_first(self, announce: Callable[[], None]) -> None:
        """See :class:`flowsched_agent.controls.control.Control`."""
        self._files.announce = announce

    @abstractmethod
    def restore(self) -> None:
        """Bring them back."""


def group_files(system: System, saved: Saved) -> tuple[GroupFiles | None, str]:
    """The group that was written down; None and why if that one is no longer there, or is none of this tree's."""
    where = str(saved["where"])
    folders = {tree: Path(entry["path"]) for tree, entry in saved["folders"].items()}
    for folder in folders.values():
        if system.cgroup not in folder.parents or ".." in folder.parts:
            return None, f"the group {where} was left alone: {folder} is not below {system.cgroup}"
    try:
        files = GroupFiles(system, where, folders)
    except ControlError as error:
        return None, f"the group {where} was left alone: it is gone" if error.gone else str(error)
    if any(files.inodes[tree] != entry["inode"] for tree, entry in saved["folders"].items()):
        return None, f"the group {where} was left alone: another of the same name has taken its place"
    files.original = {str(key): str(value) for key, value in saved["values"].items()}
    if strange := [key for key in files.original if not _is_setting(str(saved["version"]), key)]:
        return None, f"the group {where} was left alone: {printable(strange[0])!r} is no setting of a group"
    files.written = {str(key) for key in saved["written"]} if "written" in saved else None
    return files, ""


def _is_setting(version: str, key: str) -> bool:
    """Whether it is one that agents change. A state file that others wrote could name any file of the machine."""
    tree, _, file = key.partition(":")
    below, _, name = file.rpartition("/")
    path = PurePosixPath(below)
    if path.is_absolute() or ".." in path.parts:
        return False
    return name in STEERED.get(version, {}).get(tree, ()) and (not below or name == CPUS)


CPUSET_MEANINGS = {
    errno.EACCES: "the group above it does not hold these CPUs, or permission is missing; take cores from its cpuset",
    errno.EINVAL: "one of them is offline, or another group has it exclusively; take cores that are online and shared",
    errno.EBUSY: "a SCHED_DEADLINE task or a group below it needs the CPUs that would go; end its deadline first",
    errno.ENOSPC: "tasks are in the group and would be left without a CPU; move them away first",
}
QUOTA_MEANINGS = {
    errno.EINVAL: "the group above it has less, a group below it has more, or it is under 1 ms; choose between these",
}
WEIGHT_MEANINGS = {
    errno.EINVAL: "it is outside of the kernel's range, or the group is set idle; weights from 2/1024 to 100 fit",
}
ADOPT_MEANINGS = {
    errno.EINVAL: "the process has real-time scheduling and the group no real-time run time, or it is a thread of the "
    "kernel; it needs no weight while it has priority",
    errno.EBUSY: "the group has controllers for the groups below it and takes no processes; use one of those below",
    errno.ENOSPC: "the group's cpuset has no CPUs or no memory nodes yet; fill cpuset.cpus and cpuset.mems first",
}

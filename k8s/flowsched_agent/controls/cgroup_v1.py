"""A group of cgroup v1: one folder for each controller (Linux, Documentation/admin-guide/cgroup-v1).

On a hybrid machine it may have a folder in the v2 tree as well, which freezes it where v1 has no freezer for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from flowsched_agent.controls.control import ControlError, Saved
from flowsched_agent.controls.core_list import cores_of, cores_text
from flowsched_agent.controls.group import (
    ADOPT_MEANINGS,
    CPUSET_MEANINGS,
    LEAST_QUOTA_US,
    PERIOD_US,
    QUOTA_MEANINGS,
    WEIGHT_MEANINGS,
    GroupFiles,
)
from flowsched_agent.controls.weights import is_lowest, shares_of
from flowsched_agent.system import System

UNIFIED = ""
"""Name of the v2 tree in /proc/PID/cgroup."""
_CPUS = "cpuset.cpus"
_STEERED = {
    "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.idle", "cpu.shares"),
    "cpuset": (_CPUS,),
    "freezer": ("freezer.state",),
    UNIFIED: ("cgroup.freeze",),
}
_ORDER = ("freezer.state", "cgroup.freeze", _CPUS, *_STEERED["cpu"])
"""In which they are brought back: a group that is idle takes no shares."""


class GroupV1:
    """One of them, in those trees in which it is not the root: the root group belongs to all and is never changed."""

    def __init__(self, system: System, folders: Mapping[str, Path], files: GroupFiles | None = None) -> None:
        """``folders``: by the name of their tree; ``files``: with the values of an earlier start."""
        if files is None:
            first = next(iter(folders.values()))
            files = GroupFiles(system, "/" + str(first.relative_to(system.cgroup)), folders)
            for tree in folders:
                files.remember(tree, _STEERED.get(tree, ()))
            files.remember("cpuset", self._cpusets_below(files))
        self._files = files

    @staticmethod
    def _cpusets_below(files: GroupFiles) -> list[str]:
        """The ``cpuset.cpus`` of groups below, from the top: those inside a container must follow its own."""
        if "cpuset" not in files.folders:
            return []
        top = files.folders["cpuset"]
        return [str((folder / _CPUS).relative_to(top)) for folder in files.all_folders("cpuset")[1:]]

    @property
    def where(self) -> str:
        """Its path in the first of its trees."""
        return self._files.where

    @property
    def has_cores(self) -> bool:
        """Whether it has a cpuset of its own."""
        return self._files.has("cpuset", _CPUS)

    @property
    def has_weight(self) -> bool:
        """Whether it has a cpu group of its own."""
        return self._files.has("cpu", "cpu.shares")

    @property
    def has_freezer(self) -> bool:
        """In v1, or else in the v2 tree beside it."""
        return self._v1_freezer or self._files.has(UNIFIED, "cgroup.freeze")

    @property
    def _v1_freezer(self) -> bool:
        return "freezer" in self._files.folders

    @property
    def counts_cpu(self) -> bool:
        """Whether it has a cpuacct group of its own."""
        return self._files.has("cpuacct", "cpuacct.usage")

    def set_cores(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Write ``cpuset.cpus``, of the groups below too, which must never have more than this one."""
        allowed = self._files.allowed("cpuset", ("cpuset.effective_cpus", _CPUS))
        fit = self._files.within(cores, allowed)
        below = [file for file in self._cpusets_below(self._files) if self._cpus_of(file)]
        if below:
            # From the top each gets all that it has before or after, and from the bottom what it has after.
            for file in [_CPUS, *below]:
                self._write_cpus(file, (*self._cpus_of(file), *fit))
            for file in reversed(below):
                self._write_cpus(file, fit)
        self._write_cpus(_CPUS, fit)
        return fit

    def _cpus_of(self, file: str) -> tuple[int, ...]:
        return cores_of(self._files.read("cpuset", file))

    def _write_cpus(self, file: str, cores: tuple[int, ...]) -> None:
        self._files.write("cpuset", file, cores_text(cores), CPUSET_MEANINGS)

    def set_weight(self, weight: float) -> None:
        """Write ``cpu.shares``, and ``cpu.idle`` for the lowest: such a group is preempted at once by those beside it."""
        idle = self._files.has("cpu", "cpu.idle")
        if idle and self._files.read("cpu", "cpu.idle").strip() == "1":
            if is_lowest(weight):
                return
            self._files.write("cpu", "cpu.idle", "0", WEIGHT_MEANINGS)
        self._files.write("cpu", "cpu.shares", str(shares_of(weight)), WEIGHT_MEANINGS)
        if idle and is_lowest(weight):
            self._files.write("cpu", "cpu.idle", "1", WEIGHT_MEANINGS)

    def set_quota(self, cpus: float | None) -> None:
        """Write ``cpu.cfs_quota_us`` for the default period."""
        if cpus is None:
            self._files.write("cpu", "cpu.cfs_quota_us", "-1", QUOTA_MEANINGS)
            return
        limit = max(LEAST_QUOTA_US, round(cpus * PERIOD_US))
        if self._files.read("cpu", "cpu.cfs_period_us").strip() != str(PERIOD_US):
            # The kernel compares the ratio at each write; without a quota any period is right.
            self._files.write("cpu", "cpu.cfs_quota_us", "-1", QUOTA_MEANINGS)
            self._files.write("cpu", "cpu.cfs_period_us", str(PERIOD_US), QUOTA_MEANINGS)
        self._files.write("cpu", "cpu.cfs_quota_us", str(limit), QUOTA_MEANINGS)

    def freeze(self) -> bool:
        """Write ``freezer.state`` and wait until it says FROZEN: it says FREEZING until all of its tasks are."""
        if self._v1_freezer:
            self._files.write("freezer", "freezer.state", "FROZEN")
        else:
            self._files.write(UNIFIED, "cgroup.freeze", "1")
        return self._files.wait(self.frozen)

    def thaw(self) -> None:
        """Write ``freezer.state``."""
        if self._v1_freezer:
            self._files.write("freezer", "freezer.state", "THAWED")
        else:
            self._files.write(UNIFIED, "cgroup.freeze", "0")

    def frozen(self) -> bool:
        """By the freezer's own word."""
        if self._v1_freezer:
            return self._files.read("freezer", "freezer.state").strip() == "FROZEN"
        return "frozen 1" in self._files.read(UNIFIED, "cgroup.events").splitlines()

    def cpu_s(self) -> float:
        """``cpuacct.usage``, which is in nanoseconds."""
        return int(self._files.read("cpuacct", "cpuacct.usage")) * 1e-9

    def pids(self) -> list[int]:
        """Processes in it and below, in the first of its trees."""
        return self._files.pids(next(iter(self._files.folders)))

    def adopt(self, pid: int) -> None:
        """Write ``cgroup.procs`` of each tree."""
        for tree in self._files.folders:
            self._files.write(tree, "cgroup.procs", str(pid), ADOPT_MEANINGS)

    def there(self) -> bool:
        """Whether it is still the same, in all its trees."""
        return all(self._files.there(tree) for tree in self._files.folders)

    def saved(self) -> Saved:
        """Plain JSON."""
        return self._files.saved("v1")

    def before_first(self, announce: Callable[[], None]) -> None:
        """See :class:`flowsched_agent.controls.control.Control`."""
        self._files.announce = announce

    def restore(self) -> None:
        """Write everything back. Groups that were made below it meanwhile have their CPUs from ours, and get all of its."""
        had = self._cpus_of(_CPUS) if self.has_cores else ()
        self._files.write_back(_ORDER)
        if had and set(now := self._cpus_of(_CPUS)) != set(had):
            for file in self._cpusets_below(self._files):
                if f"cpuset:{file}" not in self._files.original:
                    self._free(file, had, now)

    def _free(self, file: str, had: tuple[int, ...], now: tuple[int, ...]) -> None:
        try:
            # Other values were chosen on purpose.
            if set(self._cpus_of(file)) == set(had):
                self._write_cpus(file, now)
        except ControlError:
            if self._files.has("cpuset", file):  # containers come and go
                raise

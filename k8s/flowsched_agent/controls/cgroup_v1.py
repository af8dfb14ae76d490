"""A group of cgroup v1: one folder for each controller (Linux, Documentation/admin-guide/cgroup-v1).

On a hybrid machine it may have a folder in the v2 tree as well, which freezes it where v1 has no freezer for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flowsched_agent.controls.core_list import cores_of
from flowsched_agent.controls.group import (
    CPUS,
    CPUSET_MEANINGS,
    LEAST_QUOTA_US,
    PERIOD_US,
    QUOTA_MEANINGS,
    STEERED,
    Group,
    GroupFiles,
)
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.weights import shares_of
from flowsched_agent.system import System
from flowsched_models.quantity import format_cores

_STEERED = STEERED["v1"]
_ORDER = ("freezer.state", "cgroup.freeze", CPUS, *_STEERED["cpu"])
"""In which they are brought back: a group that is idle takes no shares."""


class GroupV1(Group):
    """One of them, in those trees in which it is not the root: the root group belongs to all and is never changed."""

    version = "v1"
    cpuset, cpu = "cpuset", "cpu"
    weight_file = "cpu.shares"
    used_file = ("cpuacct", "cpuacct.usage")

    def __init__(self, system: System, folders: Mapping[str, Path], files: GroupFiles | None = None) -> None:
        """``folders``: by the name of their tree; ``files``: with the values of an earlier start."""
        if files is None:
            first = next(iter(folders.values()))
            files = GroupFiles(system, "/" + str(first.relative_to(system.cgroup)), folders)
            for tree in folders:
                files.remember(tree, _STEERED.get(tree, ()))
            files.remember("cpuset", self._cpusets_below(files))
        super().__init__(files)

    @staticmethod
    def _cpusets_below(files: GroupFiles) -> list[str]:
        """The ``cpuset.cpus`` of groups below, from the top: those inside a container must follow its own."""
        if "cpuset" not in files.folders:
            return []
        top = files.folders["cpuset"]
        return [str((folder / CPUS).relative_to(top)) for folder in files.all_folders("cpuset")[1:]]

    @property
    def has_freezer(self) -> bool:
        """In v1, or else in the v2 tree beside it."""
        return self._v1_freezer or super().has_freezer

    @property
    def _v1_freezer(self) -> bool:
        return "freezer" in self._files.folders

    def set_cores(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Write ``cpuset.cpus``, of the groups below too, which must never have more than this one."""
        allowed = self._files.allowed("cpuset", ("cpuset.effective_cpus", CPUS))
        fit = self._files.within(cores, allowed)
        below = [file for file in self._cpusets_below(self._files) if self._cpus_of(file)]
        if below:
            # From the top each gets all that it has before or after, and from the bottom what it has after.
            for file in [CPUS, *below]:
                self._write_cpus(file, (*self._cpus_of(file), *fit))
            for file in reversed(below):
                self._write_cpus(file, fit)
        self._write_cpus(CPUS, fit)
        return fit

    def _cpus_of(self, file: str) -> tuple[int, ...]:
        return cores_of(self._files.read("cpuset", file))

    def _write_cpus(self, file: str, cores: tuple[int, ...]) -> None:
        self._files.write("cpuset", file, format_cores(set(cores)), CPUSET_MEANINGS)

    def _number_of(self, weight: float) -> int:
        return shares_of(weight)

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
        if not self._v1_freezer:
            return super().freeze()
        self._files.write("freezer", "freezer.state", "FROZEN")
        return self._files.wait(self.frozen)

    def thaw(self) -> None:
        """Write ``freezer.state``."""
        if self._v1_freezer:
            self._files.write("freezer", "freezer.state", "THAWED")
        else:
            super().thaw()

    def frozen(self) -> bool:
        """By the freezer's own word."""
        if self._v1_freezer:
            return self._files.read("freezer", "freezer.state").strip() == "FROZEN"
        return super().frozen()

    def cpu_s(self) -> float:
        """``cpuacct.usage``, which is in nanoseconds."""
        return int(self._files.read("cpuacct", "cpuacct.usage")) * 1e-9

    def restore(self) -> None:
        """Write everything back. Groups that were made below it meanwhile have their CPUs from ours, and get all of its."""
        had = self._cpus_of(CPUS) if self.has_cores else ()
        self._files.write_back(_ORDER)
        if had and set(now := self._cpus_of(CPUS)) != set(had):
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

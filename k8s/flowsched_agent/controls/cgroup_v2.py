"""A group of cgroup v2: all controllers in one folder (Linux, Documentation/admin-guide/cgroup-v2.rst)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flowsched_agent.controls.control import ControlError, Saved
from flowsched_agent.controls.core_list import cores_text
from flowsched_agent.controls.group import (
    ADOPT_MEANINGS,
    CPUSET_MEANINGS,
    LEAST_QUOTA_US,
    PERIOD_US,
    QUOTA_MEANINGS,
    WEIGHT_MEANINGS,
    GroupFiles,
)
from flowsched_agent.controls.scheduling import online
from flowsched_agent.controls.weights import is_lowest, kubelet_v2_of, shares_of, v2_of
from flowsched_agent.system import System

TREE = ""
"""Its name in /proc/PID/cgroup."""
_STEERED = ("cgroup.freeze", "cpuset.cpus", "cpu.max", "cpu.idle", "cpu.weight")
"""Files that are changed, in the order in which they are brought back: a group that is idle takes no weight."""


class GroupV2:
    """One of them; never the root, which has none of these files."""

    def __init__(self, system: System, folder: Path, files: GroupFiles | None = None) -> None:
        """``files``: with the values of an earlier start."""
        self._files = files or GroupFiles(system, "/" + str(folder.relative_to(system.cgroup)), {TREE: folder})
        if files is None:
            self._files.remember(TREE, _STEERED)
        self._kubelet = any(part.startswith("kubepods") for part in folder.parts)

    @property
    def where(self) -> str:
        """Its path."""
        return self._files.where

    @property
    def has_cores(self) -> bool:
        """Whether the cpuset controller is on here."""
        return self._files.has(TREE, "cpuset.cpus")

    @property
    def has_weight(self) -> bool:
        """Whether the cpu controller is on here."""
        return self._files.has(TREE, "cpu.weight")

    @property
    def has_freezer(self) -> bool:
        """Whether the kernel is 5.2 or later and this is no root."""
        return self._files.has(TREE, "cgroup.freeze")

    @property
    def counts_cpu(self) -> bool:
        """``cpu.stat`` is there without the controller too."""
        return self._files.has(TREE, "cpu.stat")

    def set_cores(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Write ``cpuset.cpus``. The kernel takes any and uses what the group above has, or all of that: so we look."""
        fit = self._files.within(cores, self._files.allowed(TREE, ("cpuset.cpus.effective",)))
        self._files.write(TREE, "cpuset.cpus", cores_text(fit), CPUSET_MEANINGS)
        return fit

    def set_weight(self, weight: float) -> None:
        """Write ``cpu.weight``, and ``cpu.idle`` for the lowest: such a group is preempted at once by those beside it."""
        idle = self._files.has(TREE, "cpu.idle")
        if idle and self._files.read(TREE, "cpu.idle").strip() == "1":
            if is_lowest(weight):
                return
            self._files.write(TREE, "cpu.idle", "0", WEIGHT_MEANINGS)
        number = kubelet_v2_of(shares_of(weight)) if self._kubelet else v2_of(weight)
        self._files.write(TREE, "cpu.weight", str(number), WEIGHT_MEANINGS)
        if idle and is_lowest(weight):
            self._files.write(TREE, "cpu.idle", "1", WEIGHT_MEANINGS)

    def set_quota(self, cpus: float | None) -> None:
        """Write ``cpu.max``."""
        limit = "max" if cpus is None else str(max(LEAST_QUOTA_US, round(cpus * PERIOD_US)))
        self._files.write(TREE, "cpu.max", f"{limit} {PERIOD_US}", QUOTA_MEANINGS)

    def freeze(self) -> bool:
        """Write ``cgroup.freeze`` and wait until ``cgroup.events`` says so: the state letters of its tasks do not."""
        self._files.write(TREE, "cgroup.freeze", "1")
        return self._files.wait(self.frozen)

    def thaw(self) -> None:
        """Write ``cgroup.freeze``."""
        self._files.write(TREE, "cgroup.freeze", "0")

    def frozen(self) -> bool:
        """By ``cgroup.events``."""
        return "frozen 1" in self._files.read(TREE, "cgroup.events").splitlines()

    def cpu_s(self) -> float:
        """``usage_usec`` of ``cpu.stat``."""
        for line in self._files.read(TREE, "cpu.stat").splitlines():
            key, _, value = line.partition(" ")
            if key == "usage_usec":
                return int(value) * 1e-6
        raise ControlError(f"the CPU time of the group {self.where} was asked for", "its cpu.stat has no usage_usec")

    def pids(self) -> list[int]:
        """Processes in it and below."""
        return self._files.pids(TREE)

    def adopt(self, pid: int) -> None:
        """Write ``cgroup.procs``."""
        self._files.write(TREE, "cgroup.procs", str(pid), ADOPT_MEANINGS)

    def there(self) -> bool:
        """Whether it is still the same."""
        return self._files.there(TREE)

    def saved(self) -> Saved:
        """Plain JSON."""
        return self._files.saved("v2")

    def before_first(self, announce: Callable[[], None]) -> None:
        """See :class:`flowsched_agent.controls.control.Control`."""
        self._files.announce = announce

    def restore(self) -> None:
        """Write everything back. A cpuset that was empty gets all CPUs where the kernel does not let it be empty again.

        Linux 6.1 refuses that (ENOSPC) as long as processes are in the group. It uses what the group above has either way.
        """
        self._files.write_back(_STEERED, {"cpuset.cpus": cores_text(online(self._files.system))})

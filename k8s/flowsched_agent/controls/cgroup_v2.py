"""A group of cgroup v2: all controllers in one folder (Linux, Documentation/admin-guide/cgroup-v2.rst)."""

from __future__ import annotations

from pathlib import Path

from flowsched_agent.controls.group import (
    CPUSET_MEANINGS,
    LEAST_QUOTA_US,
    PERIOD_US,
    QUOTA_MEANINGS,
    STEERED,
    UNIFIED,
    Group,
    GroupFiles,
)
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.scheduling import online
from flowsched_agent.controls.weights import kubelet_v2_of, shares_of, v2_of
from flowsched_agent.system import System
from flowsched_models.quantity import format_cores

_STEERED = STEERED["v2"][UNIFIED]


class GroupV2(Group):
    """One of them; never the root, which has none of these files."""

    version = "v2"
    cpuset = cpu = UNIFIED
    weight_file = "cpu.weight"
    used_file = (UNIFIED, "cpu.stat")
    """It is there without the controller too."""

    def __init__(self, system: System, folder: Path, files: GroupFiles | None = None) -> None:
        """``files``: with the values of an earlier start."""
        if files is None:
            files = GroupFiles(system, "/" + str(folder.relative_to(system.cgroup)), {UNIFIED: folder})
            files.remember(UNIFIED, _STEERED)
        super().__init__(files)
        self._kubelet = any(part.startswith("kubepods") for part in folder.parts)

    def set_cores(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Write ``cpuset.cpus``. The kernel takes any and uses what the group above has, or all of that: so we look."""
        fit = self._files.within(cores, self._files.allowed(UNIFIED, ("cpuset.cpus.effective",)))
        self._files.write(UNIFIED, "cpuset.cpus", format_cores(fit), CPUSET_MEANINGS)
        return fit

    def _number_of(self, weight: float) -> int:
        return kubelet_v2_of(shares_of(weight)) if self._kubelet else v2_of(weight)

    def set_quota(self, cpus: float | None) -> None:
        """Write ``cpu.max``."""
        limit = "max" if cpus is None else str(max(LEAST_QUOTA_US, round(cpus * PERIOD_US)))
        self._files.write(UNIFIED, "cpu.max", f"{limit} {PERIOD_US}", QUOTA_MEANINGS)

    def cpu_s(self) -> float:
        """``usage_usec`` of ``cpu.stat``."""
        for line in self._files.read(UNIFIED, "cpu.stat").splitlines():
            key, _, value = line.partition(" ")
            if key == "usage_usec":
                return int(value) * 1e-6
        raise ControlError(f"the CPU time of the group {self.where} was asked for", "its cpu.stat has no usage_usec")

    def restore(self) -> None:
        """Write everything back. A cpuset that was empty gets all CPUs where the kernel does not let it be empty again.

        Linux 6.1 refuses that (ENOSPC) as long as processes are in the group. It uses what the group above has either way.
        """
        self._files.write_back(_STEERED, {"cpuset.cpus": format_cores(online(self._files.system))})

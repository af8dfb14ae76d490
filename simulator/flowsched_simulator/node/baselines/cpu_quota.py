"""The CPU quota of a job, counted per period as Linux does."""

from __future__ import annotations


class CpuQuota:
    """So much CPU time in every period, and none beyond it until the period ends.

    Over a long period this is not the same as a smaller speed: a job that is paused half of the time has not used up
    what it may use when it is paused, and runs at full speed while it runs.
    """

    def __init__(self, cpus: float, period_s: float) -> None:
        """``cpus`` x ``period_s`` seconds of CPU in every period; periods count from the first question."""
        self._budget_s = cpus * period_s
        self._period_s = period_s
        self._from_s: float | None = None
        self._used_before_s = 0.0

    def throttled(self, t_s: float, cpu_s: float) -> bool:
        """Whether the job, which has used ``cpu_s`` so far, must stand still until its period ends."""
        if self._from_s is None or t_s >= self._from_s + self._period_s - 1e-9:
            elapsed = 0.0 if self._from_s is None else (t_s + 1e-9 - self._from_s) // self._period_s
            self._from_s = t_s if self._from_s is None else self._from_s + elapsed * self._period_s
            self._used_before_s = cpu_s
        return cpu_s - self._used_before_s >= self._budget_s - 1e-9

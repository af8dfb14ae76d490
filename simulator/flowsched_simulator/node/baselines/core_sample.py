"""How busy virtual CPUs are, as the two-queue design reads it."""

from __future__ import annotations

from collections.abc import Sequence

HELD = 10
"""Readings for which one that was taken stays in use: one second."""


class CoreSample:
    """One reading of 100 ms out of ten.

    The published design keeps a window of readings of 100 ms each and empties it once it is full, and its decisions
    take the first of those left. So one reading is in use for a second. Its logs show that: with the shared job's
    core counted, the job makes its own limit be passed, is paused, and runs again once the next reading shows an idle
    core: runs and pauses of 0.99 to 1.02 s follow each other (half of all 102 runs and 104 pauses at intervals of 10 s).
    """

    def __init__(self, cores: tuple[int, ...]) -> None:
        """Nothing read yet."""
        self._cores = cores
        self._before: tuple[float, float] | None = None
        self._until_next = 0
        self.percent: float | None = None
        """Sum over the cores, 100 for each busy one; None: it is not counted."""

    def read(self, t_s: float, core_busy_s: Sequence[float]) -> None:
        """One reading of the counters: CPU seconds used on each virtual CPU."""
        if not self._cores or len(core_busy_s) <= max(self._cores):
            self._before = self.percent = None
            self._until_next = 0
            return
        busy_s = sum(core_busy_s[c] for c in self._cores)
        before, self._before = self._before, (t_s, busy_s)
        if before is None:
            return
        if self._until_next == 0:
            self.percent = 100.0 * (busy_s - before[1]) / (t_s - before[0])
            self._until_next = HELD
        self._until_next -= 1

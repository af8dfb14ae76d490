"""How long the runs that are still to come will take, from those that are done."""

from __future__ import annotations

from collections.abc import Iterable

from flowsched_models.measuring.run_plan import PlannedRun, Setup


class RemainingTime:
    """Learns from every run. A setup that has not run yet is judged by the time on one thread."""

    def __init__(self, rest_s: float) -> None:
        self._rest_s = rest_s
        self._seen: dict[Setup, float] = {}

    def note(self, setup: Setup, seconds: float) -> None:
        """Remember how long a run took, aggressor and all."""
        self._seen[setup] = seconds

    def left_s(self, runs: Iterable[PlannedRun]) -> float:
        """Seconds that these runs will take."""
        one = self._one_thread_s()
        return sum(self._seen.get(r.setup, r.setup.bounds[0] * one) + self._rest_s for r in runs)

    def _one_thread_s(self) -> float:
        """The time on one thread: as seen, else as if every run so far had the best speed-up that it can have."""
        seen = [s / setup.bounds[0] for setup, s in self._seen.items()]
        alone = [s for setup, s in self._seen.items() if setup.bounds == (1.0, 1.0)]
        return max(alone or seen, default=0.0)


def in_words(seconds: float) -> str:
    """A duration for people: ``40 s``, ``12 min``, ``2.5 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

"""One number for a plan, made from the parts of its machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.planner.evaluation import MachineOutcome
from flowsched.planner.robust import quantile_of

IMPOSSIBLE_S = 1e5
"""Seconds that a whole unit of violation costs: more than any schedule could win."""
_SLOPE = 0.02
"""What the mean completion counts beside a makespan: without it most moves would change nothing."""
_TAIL = 0.02
"""What the makespan counts beside the mean completion."""


class Objective:
    """Costs in seconds."""

    def __init__(self, kind: str, quantile: float | None, jobs: int) -> None:
        self._makespan = kind == "makespan"
        self._quantile = quantile
        self._jobs = max(1, jobs)

    def cost(self, parts: Sequence[MachineOutcome]) -> float:
        """What the search minimises: the objective, a slope towards the other one, and what is impossible."""
        violation = 0.0
        for part in parts:
            violation += part.violation
        if self._quantile is None:
            last = max([float(part.last_s[0]) for part in parts])
            mean = sum([float(part.total_s[0]) for part in parts]) / self._jobs
        else:
            last = self.makespan_s(parts)
            mean = self.total_s(parts) / self._jobs
        if violation > 0.0:
            last, mean = min(last, IMPOSSIBLE_S), min(mean, IMPOSSIBLE_S)
        cost = last + _SLOPE * mean if self._makespan else mean + _TAIL * last
        return cost + IMPOSSIBLE_S * violation

    @property
    def unit(self) -> int:
        """Tasks that the value is a sum over; costs are per task."""
        return 1 if self._makespan else self._jobs

    def makespan_s(self, parts: Sequence[MachineOutcome]) -> float:
        """The last end; with draws its quantile."""
        return self._pick(np.max([part.last_s for part in parts], axis=0))

    def total_s(self, parts: Sequence[MachineOutcome]) -> float:
        """The sum of completions; with draws its quantile."""
        return self._pick(np.sum([part.total_s for part in parts], axis=0))

    def value_s(self, parts: Sequence[MachineOutcome]) -> float:
        """What the user asked for."""
        return self.makespan_s(parts) if self._makespan else self.total_s(parts)

    def _pick(self, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        return float(values[0]) if self._quantile is None else quantile_of(values, self._quantile)

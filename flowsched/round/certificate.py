"""How far from optimal a round can be: the bounds of its levels, whatever their prices, added up.

A bound is found by weak duality at forecast prices (`forecast_bound.py`) or at linear ones (`linear/linear_bound.py`),
and by CP-SAT where the level is small (`exact.py`, `linear/linear_optimum.py`). Each climbs in its own way: the first has a
price for each group of machines and ever smaller steps, the second a price for each class of tasks and steps as long as what
is hoped for, which is halved where it is not found. Other steps would end at other bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from flowsched.cluster.decision import Certificate
from flowsched.support.arrays import FloatArray

_ROUNDING = 1e-12
"""Relative difference of equal sums that were added up in other ways."""


@dataclass(frozen=True, eq=False)
class LevelBound:
    """How little the tasks that are decided together can cost, beside what their plan costs."""

    primal: float
    """What the plan costs."""
    bound: float
    """No plan costs less."""
    unconstrained: float
    """What the tasks would cost if each had the cluster to itself."""
    prices: FloatArray
    """What the bound was computed with."""
    proven: bool = False
    """Whether CP-SAT proved that the bound is what an optimal plan costs, but for the rounding of its costs."""

    def with_optimum(self, bound: float, proven: bool) -> LevelBound:
        """With what CP-SAT has shown: that no plan costs less, and whether some plan costs no more."""
        return replace(self, bound=max(self.bound, bound), proven=self.proven or proven)

    @property
    def is_optimum(self) -> bool:
        """Whether the bound is what an optimal plan costs: a plan that costs no more than a bound is one."""
        reached = isfinite(self.primal) and self.primal - self.bound <= _ROUNDING * max(1.0, abs(self.primal))
        return self.proven or reached


def certify(levels: Sequence[LevelBound], prices: Mapping[str, float], machines: int | None = None) -> Certificate:
    """The certificate of levels that were decided one after the other: exact where each bound is an optimum.

    ``prices``: what the bounds were computed with, by name. ``machines``: see :class:`Certificate`.
    """
    return Certificate(
        "exact" if all(level.is_optimum for level in levels) else "lagrangian",
        sum(level.primal for level in levels),
        sum(min(level.bound, level.primal) for level in levels),
        sum(level.unconstrained for level in levels),
        prices,
        machines,
    )

"""``trivial``: a task costs the same everywhere, so the network fills what is free and nothing else matters.

After the ``TrivialCostModel`` of Firmament (I. Gog, M. Schwarzkopf, A. Gleave, R. N. M. Watson, S. Hand, "Firmament: Fast,
Centralized Cluster Scheduling at Scale", OSDI 2016), where it serves as the floor that other policies are measured against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.checks import number
from flowsched.pricing.linear.policy import ClassPrices, NoFeatures


@dataclass(frozen=True)
class TrivialPolicy(NoFeatures):
    """Any place is as good as any other, and better than none."""

    place: float = 1.0
    """Cost of any place."""
    waiting: float = 10.0
    """Cost of none; more than a place, so that nothing waits beside free room."""
    growth: float = 10.0
    """What is added to it by the due age: where room is scarce, those that have waited longer go first."""

    name: ClassVar[str] = "trivial"
    told: ClassVar[tuple[Knowledge, ...]] = ()

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a value that is none, or a place that costs as much as none."""
        number("place", self.place)
        number("waiting", self.waiting)
        number("growth", self.growth)
        if self.waiting <= self.place:
            raise ValueError(
                f"waiting is {self.waiting:g} and place {self.place:g}; waiting must cost more than a place"
            )

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """One cost for every place, a higher one for none."""
        del task_class
        nothing = np.zeros(0)
        return ClassPrices(np.full(len(kinds), self.place), nothing, nothing, self.waiting, self.growth)

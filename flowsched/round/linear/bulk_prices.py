"""The linear prices of ``flow`` in bulk rounds.

A task on machine m costs, in units of relative slow-down,

    slowness[m] + sensitivity q[m] pressure[m] + pressure q[m] sensitivity[m] + pressure slope[m] + preference[m]
        + sum over counts k of price[k] count[k, m]

with the sums over all that is on m when it comes, q the machine's bandwidth factor, and counts of the tasks that the round
has put there and that are in ``counted``. Slowness and preference are those of the class's places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.flow import FlowCostModel, linear
from flowsched.pricing.linear.policy import FORBIDDEN, ClassPrices, Feature
from flowsched.pricing.spread_prices import SPREADING


class BulkPrices:
    """The cost model of clusters that bulk rounds of ``flow`` decide on. Classes of different names are priced."""

    name = "flow"
    lasting: ClassVar = FlowCostModel().features
    """Those of what runs too. Machines are told apart by every reading until ``restricted.coarsen``."""

    def __init__(self, counts: int = 0, waiting: Mapping[str, float] | None = None) -> None:
        """With numbers of ``counts`` counts. ``waiting``: what leaving a task for a later round costs, by the name of its
        class; those that are not named take any place rather than wait.
        """
        self.waiting = dict(waiting or {})
        self.counts = counts
        self.features = (*self.lasting, *(Feature(f"count-{k}", 0.0, SPREADING, True) for k in range(counts)))

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Memory bandwidth scales what neighbours do to each other, not what a service loses."""
        return (kind.bandwidth, kind.bandwidth, 1.0, *(1.0 for _ in range(self.counts)))

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """The same on every kind, but for the factors."""
        coefficients, effects = np.zeros((2, len(self.features)))
        lasting = len(self.lasting)
        coefficients[:lasting], effects[:lasting] = linear(task_class.sensitivity, task_class.pressure)
        for number, each in task_class.counted:
            coefficients[lasting + number] = each
            effects[lasting + number] = 1.0
        waiting = self.waiting.get(task_class.name, FORBIDDEN)
        return ClassPrices(np.zeros(len(kinds)), coefficients, effects, waiting)

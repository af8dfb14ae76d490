"""``flow`` at cluster scale: run time, interference suffered and caused, a service's headroom, linear in what is measured.

The price of a placement in units of relative slow-down: how much slower the machine's type is, what the neighbours' pressure
costs the newcomer, what its own pressure costs them, and what it takes of a latency service's headroom. It is the exact
change of the machine's total for pairwise interference, so moving a task never looks better than it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.scale.policy import FORBIDDEN, ClassPrices, Feature
from flowsched.scale.task_class import MachineKind, TaskClass

PRESSURE = "pressure"
SENSITIVITY = "sensitivity"
HEADROOM = "headroom"


class FlowNetworkPolicy:
    """Interference both ways, as the profiles measure it."""

    name = "flow"

    def __init__(
        self,
        pressure_bucket: float = 0.0,
        sensitivity_bucket: float = 0.0,
        waiting: float = FORBIDDEN,
        growth: float = 0.0,
    ) -> None:
        """Bucket widths, and what waiting costs; without that any place is better than none."""
        self.features = (
            Feature(PRESSURE, pressure_bucket, "interference_suffered"),
            Feature(SENSITIVITY, sensitivity_bucket, "interference_caused"),
            Feature(HEADROOM, 0.0, "slo_headroom"),
        )
        self._waiting = waiting
        self._growth = growth

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Memory bandwidth scales what neighbours do to each other, not what a service loses."""
        return kind.bandwidth, kind.bandwidth, 1.0

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """What it suffers goes by the neighbours' pressure, what it causes by their sensitivity."""
        slowness = dict(task_class.slowness)
        base = np.array([slowness.get(kind.type, 0.0) for kind in kinds])
        s, p = task_class.sensitivity, task_class.pressure
        return ClassPrices(base, np.array([s, p, p]), np.array([p, s, 0.0]), self._waiting, self._growth)

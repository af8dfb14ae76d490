"""``flow`` at linear prices: run time, interference suffered and caused, a service's headroom, linear in what is measured.

The price of a placement in units of relative slow-down: how much slower the machine's type is, what the neighbours' pressure
costs the newcomer, what its own pressure costs them, what it takes of a latency service's headroom, and wishes that the
machine does not meet. It is the exact change of the machine's total for pairwise interference, so moving a task never looks
better than it is. Interference as a sum over pairs, both ways, and linear in pressure is the model of the bundled profiles
(docs/model.md); wishes as a cost beside it are the preferences of M. Amaral, "Improving Resource Efficiency in Virtualized
Datacenters" (PhD thesis, Universitat Politecnica de Catalunya 2019, equation 12), which multiplies where this adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.machine_arrays import HEADROOM, PRESSURE, SENSITIVITY
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.checks import number
from flowsched.pricing.linear.policy import FORBIDDEN, ClassPrices, Feature
from flowsched.support.arrays import FloatArray


@dataclass(frozen=True)
class FlowCostModel:
    """Least slow-down: interference both ways as the profiles measure it, headroom of services, wishes."""

    pressure_bucket: float = 0.0
    """Machines whose sums of pressure differ by less are one group; 0 keeps them apart unless equal."""
    sensitivity_bucket: float = 0.0
    """The same for sums of sensitivity."""
    waiting: float = FORBIDDEN
    """Cost of leaving a task that has just come; infinite if any place is better than none."""
    growth: float = 0.0
    """What is added to it by the due age."""

    name: ClassVar[str] = "flow-network"
    told: ClassVar[tuple[Knowledge, ...]] = (Knowledge.RUN_TIMES, Knowledge.INTERFERENCE)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a value that it cannot take."""
        number("pressure_bucket", self.pressure_bucket)
        number("sensitivity_bucket", self.sensitivity_bucket)
        number("waiting", self.waiting, endless=True)
        number("growth", self.growth)

    @property
    def features(self) -> tuple[Feature, ...]:
        """Sums over a machine's tasks, and the price of headroom that a service gives as its machine's reading."""
        return (
            Feature(PRESSURE, self.pressure_bucket, "interference_suffered"),
            Feature(SENSITIVITY, self.sensitivity_bucket, "interference_caused"),
            Feature(HEADROOM, 0.0, "slo_headroom"),
        )

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """Memory bandwidth scales what neighbours do to each other, not what a service loses."""
        return kind.bandwidth, kind.bandwidth, 1.0

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """What it suffers goes by the neighbours' pressure, what it causes by their sensitivity."""
        slowness = dict(task_class.slowness)
        wishes = task_class.preferences
        base = np.array([slowness.get(kind.type, 0.0) + missed(wishes, kind) for kind in kinds])
        coefficients, effects = linear(task_class.sensitivity, task_class.pressure)
        return ClassPrices(base, coefficients, effects, self.waiting, self.growth)


def linear(sensitivity: float, pressure: float) -> tuple[FloatArray, FloatArray]:
    """Coefficients and effects of a task, by feature.

    What it suffers goes by the neighbours' pressure, what it causes by their sensitivity.
    """
    return np.array([sensitivity, pressure, pressure]), np.array([pressure, sensitivity, 0.0])


def missed(wishes: Sequence[tuple[str, str, float]], kind: MachineKind) -> float:
    """The cost of all wishes that machines of a kind do not meet."""
    labels = set(kind.labels)
    return sum(cost for label, value, cost in wishes if (label, value) not in labels)

"""``shortest-job-first``: waiting costs more the shorter a job is, so where room is scarce short ones go first.

After Firmament's ``SJFCostModel`` (M. Schwarzkopf; the system is that of I. Gog et al., "Firmament: Fast, Centralized
Cluster Scheduling at Scale", OSDI 2016), which takes the average run time as the price of a task. Here the price is the
slow-down of a job, the measure that the rule keeps low: a job of run time p that waits for w seconds is slowed down by
``w / p``, with p not below a threshold (the bounded slow-down of D. G. Feitelson, "Metrics for Parallel Job Scheduling and
Their Convergence", JSSPP 2001). On a machine of a slower type it runs longer by that type's slowness, in the same unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policies.checks import above_zero, number
from flowsched.pricing.linear.policy import ClassPrices, NoFeatures


@dataclass(frozen=True)
class ShortestJobFirstPolicy(NoFeatures):
    """Least mean slow-down: short jobs before long ones, none waits beside free room."""

    wait_s: float = 60.0
    """How long a task that is left is taken to wait, in seconds."""
    shortest_s: float = 10.0
    """Run times below this count as this: the difference does not matter."""
    least: float = 2.0
    """What waiting costs a job without an end; above the slowness of any machine type, so that any place is better."""
    growth: float = 8.0
    """What is added by the due age. Above ``wait_s / shortest_s``, nothing that has just come passes a task of that age."""

    name: ClassVar[str] = "shortest-job-first"
    told: ClassVar[tuple[Knowledge, ...]] = (Knowledge.RUN_TIMES,)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a value that it cannot take."""
        above_zero("wait_s", self.wait_s)
        above_zero("shortest_s", self.shortest_s)
        number("least", self.least)
        number("growth", self.growth)

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """Slowness of a place, slow-down by waiting."""
        slowness = dict(task_class.slowness)
        base = np.array([slowness.get(kind.type, 0.0) for kind in kinds])
        waiting = self.least + self.wait_s / max(task_class.run_s, self.shortest_s)
        nothing = np.zeros(0)
        return ClassPrices(base, nothing, nothing, waiting, self.growth)

"""``trivial``: a task costs the same everywhere, so the network fills what is free and nothing else matters.

After the simplest cost model of Gog et al., "Firmament: Fast, Centralized Cluster Scheduling at Scale" (OSDI 2016), where it
serves as the floor that other policies are measured against.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.scale.policy import ClassPrices, Feature
from flowsched.scale.task_class import MachineKind, TaskClass

PLACE = 1.0
WAIT = 10.0


class TrivialPolicy:
    """Any place is as good as any other, and better than none."""

    name = "trivial"
    features: tuple[Feature, ...] = ()

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """No features."""
        del kind
        return ()

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """One cost for every place, a higher one for none."""
        del task_class
        nothing = np.zeros(0)
        return ClassPrices(np.full(len(kinds), PLACE), nothing, nothing, WAIT, WAIT)

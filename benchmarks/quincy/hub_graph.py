"""The part of a network that all tasks share: machines, aggregators and the sink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.network.network import COST_LIMIT
from flowsched.support.arrays import IntArray

UNCAPPED = 1 << 40
"""A capacity that no flow reaches."""


@dataclass(frozen=True)
class HubGraph:
    """Hubs are 0..``hubs``-1; arc i runs from ``tails[i]`` to ``heads[i]`` for ``costs[i]`` per unit. No cycles."""

    hubs: int
    sink: int
    tails: IntArray
    heads: IntArray
    capacities: IntArray
    costs: IntArray

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for arrays of unequal lengths and for hubs, capacities and costs out of range."""
        if not 0 <= self.sink < self.hubs:
            raise ValueError(f"the sink is hub {self.sink}, but hubs are 0 to {self.hubs - 1}")
        count = len(self.tails)
        for name, column in (("heads", self.heads), ("capacities", self.capacities), ("costs", self.costs)):
            if len(column) != count:
                raise ValueError(f"{len(column)} {name} for {count} tails of arcs between hubs; give one each")
        for name, column in (("tail", self.tails), ("head", self.heads)):
            wrong = np.flatnonzero((column < 0) | (column >= self.hubs))
            if len(wrong):
                raise ValueError(f"arc {wrong[0]} has {name} {column[wrong[0]]}, but hubs are 0 to {self.hubs - 1}")
        wrong = np.flatnonzero((self.capacities < 0) | (self.capacities > UNCAPPED))
        if len(wrong):
            raise ValueError(
                f"arc {wrong[0]} has capacity {self.capacities[wrong[0]]}; give a number from 0 to {UNCAPPED}"
            )
        wrong = np.flatnonzero(np.abs(self.costs) > COST_LIMIT)
        if len(wrong):
            raise ValueError(f"arc {wrong[0]} costs {self.costs[wrong[0]]}, beyond {COST_LIMIT}")
        if (self.tails == self.sink).any():
            raise ValueError(f"arc {int(np.argmax(self.tails == self.sink))} leaves the sink; nothing may")

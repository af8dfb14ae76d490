"""Paces as :meth:`Host.rates` has them, to the last bit, for compiled code."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from flowsched_models.pace import STAGES
from flowsched_models.pace_table import PaceTable
from flowsched_models.runtime import Occupant, Resident, Stage, occupant_key


class OrderedPaceTable(PaceTable):
    """Hosts and kinds of job, and a memory of paces for which sets are summed up in the order of hosts' rates."""

    def __init__(self) -> None:
        """Nothing is registered."""
        super().__init__()
        self._keys: list[tuple[Any, ...]] = []
        """[STAGES * kinds] the place of each kind in each stage in that order;"""
        self._sorted: list[tuple[Any, ...]] = []
        """the different ones of them, ascending;"""
        self._ranks: list[float] = []
        """and a number for each of these, ascending as well."""

    def kind(self, host: int, resident: Resident) -> int:
        """The number of a kind of job on a registered host, as in any such table."""
        found = super().kind(host, resident)
        first = len(self._keys)
        if STAGES * found == first:
            like = resident.threads, resident.cores, resident.weight, resident.limit, resident.gpus
            self._keys += [occupant_key(Occupant(resident.profile, stage, *like)) for stage in Stage]
            rank = self.memory.rank
            if len(self._keys) > len(rank):
                self.memory = self.memory._replace(rank=np.append(rank, np.zeros(max(STAGES, len(rank)))))
            for number in range(first, len(self._keys)):
                self.memory.rank[number] = self._rank(self._keys[number])
        return found

    def _rank(self, key: tuple[Any, ...]) -> float:
        keys, ranks = self._sorted, self._ranks
        at = bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            below = ranks[at - 1] if at else ranks[0] - 2.0 if ranks else 0.0
            above = ranks[at] if at < len(keys) else below + 2.0
            keys.insert(at, key)
            ranks.insert(at, (below + above) / 2.0)
            if not below < ranks[at] < above:
                # No number is left between the two.
                ranks[:] = map(float, range(len(ranks)))
                for number, each in enumerate(self._keys):
                    if (place := bisect_left(keys, each)) < len(keys) and keys[place] == each:
                        self.memory.rank[number] = ranks[place]
        return ranks[at]

"""A job's GPUs on one machine by dual recursive bipartition, as M. Amaral's thesis has it (UPC, 2019, section 4.1.4).

Algorithm 2, after F. Ercal, J. Ramanujam, P. Sadayappan, "Task Allocation onto a Hypercube by Recursive Mincut
Bipartitioning" (1990): the machine's devices are cut in two where they are linked least, the job's tasks (one for each GPU)
are divided between the halves, and so on within each half until it is a single device. Algorithm 3 divides the tasks: one
after the other each goes to the half with the higher utility that has a device for it. Nothing is reconsidered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from flowsched.gpu.devices import GpuJob, TaskGpus
from flowsched.gpu.topology_cost import TopologyCost
from flowsched_simulator.baselines.fiduccia_mattheyses import Halves, bisected

_AFFINITY = 1_000_000
"""Weight of an edge between devices that are 1 apart: GPUs far from each other are cut apart first."""
_DIGITS = 12
"""Sums in another order do not tell equal utilities apart."""


class MappedJob(NamedTuple):
    """Devices for a job, and its utility there."""

    devices: tuple[int, ...]
    utility: float


class _Offer(NamedTuple):
    """What a part of a machine is worth to a task, and the device that it would have; none where the part is full."""

    utility: float
    device: int


_FULL = _Offer(float("-inf"), -1)


@dataclass(frozen=True)
class RecursiveBipartition:
    """Machines with one kind of GPUs. The cuts are those of the idle machine, so that each is made once."""

    cost: TopologyCost
    _halves: dict[tuple[int, ...], Halves] = field(default_factory=dict, init=False, repr=False, compare=False)

    def mapped(self, profile: str, wanted: TaskGpus, there: Sequence[GpuJob], left: Sequence[int]) -> MappedJob | None:
        """Devices for a job beside those that are there; None where too few are ``left``."""
        able = frozenset(device for device, milli in enumerate(left) if milli >= wanted.share_milli)
        if len(able) < wanted.count:
            return None
        search = _Search(self, profile, there, left, able)
        devices = tuple(sorted(search.mapped(tuple(range(len(left))), wanted.count, ())))
        return MappedJob(devices, search.utility(devices))

    def halves(self, part: tuple[int, ...]) -> Halves:
        """``physicalGraphBiPartition``: edges weigh more the closer devices are, the shortest path counts."""
        if part not in self._halves:
            distance = self.cost.topology.distance
            near = {(u, v): round(_AFFINITY / float(distance[u, v])) for u, v in combinations(sorted(part), 2)}
            self._halves[part] = bisected(part, near)
        return self._halves[part]


@dataclass(frozen=True)
class _Search:
    """One job on one machine."""

    machine: RecursiveBipartition
    profile: str
    there: Sequence[GpuJob]
    left: Sequence[int]
    able: frozenset[int]
    """Devices with room for a task."""

    def utility(self, devices: Sequence[int]) -> float:
        """Of the job on some devices."""
        return round(self.machine.cost.terms(self.profile, devices, self.there, self.left).utility, _DIGITS)

    def mapped(self, part: tuple[int, ...], tasks: int, elsewhere: tuple[int, ...]) -> tuple[int, ...]:
        """Algorithm 2; ``elsewhere``: devices outside the part that other tasks of the job have, or are to have."""
        if not tasks:
            return ()
        if len(part) == 1:
            return part
        parts = self.machine.halves(part)
        first, second = self._divided(parts, tasks, elsewhere)
        found = self.mapped(parts[0], len(first), elsewhere + second)
        return found + self.mapped(parts[1], len(second), elsewhere + found)

    def _divided(self, parts: Halves, tasks: int, elsewhere: tuple[int, ...]) -> Halves:
        """Algorithm 3: a device for each task, by part; which of the part it is to be is decided further down.

        Line 7 decides and not the sentence about it, which has the parts the other way round.
        """
        chosen: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        for to_come in reversed(range(tasks)):
            taken = elsewhere + chosen[0] + chosen[1]
            one, other = (self._offer(part, taken, to_come, parts) for part in parts)
            if one.utility >= other.utility:
                chosen = (*chosen[0], one.device), chosen[1]
            else:
                chosen = chosen[0], (*chosen[1], other.device)
        return chosen

    def _offer(self, part: Sequence[int], taken: tuple[int, ...], to_come: int, parts: Halves) -> _Offer:
        """A part is worth to a task what the best of its devices is, with the tasks to come as close as they can be.

        Without them the first task of a job would know no distance, and go where the second cannot follow.
        """
        best = _FULL
        for device in part:
            if device in self.able and device not in taken:
                utility = self.utility(self._joined((*taken, device), to_come, (*parts[0], *parts[1])))
                best = max(best, _Offer(utility, device), key=lambda offer: offer.utility)
        return best

    def _joined(self, devices: tuple[int, ...], more: int, among: Sequence[int]) -> tuple[int, ...]:
        """Devices and the closest to them."""
        distance = self.machine.cost.topology.distance
        for _ in range(more):
            free = [d for d in among if d in self.able and d not in devices]
            devices = (*devices, min(free, key=lambda d: (sum(distance[d, e] for e in devices), d)))
        return devices

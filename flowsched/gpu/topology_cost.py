"""What a set of linked GPUs costs a job: the cost and the utility of topology-aware placement.

M. Amaral et al., "Topology-Aware GPU Scheduling for Learning Workloads in Cloud Environments", SC'17, and M. Amaral's thesis
(UPC, 2019), equations 1 to 5: distance between the job's GPUs, interference among the jobs of the machine, and what is left
free of its sockets, each over its worst case. Utility is 1 less this cost, on the scale of the thesis's minimal utilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from flowsched.gpu.devices import WHOLE_MILLI, GpuJob, MachineGpus, TaskGpus, profiles_of_worst
from flowsched.gpu.set_demand import SetDemand
from flowsched_models.catalogue import Catalogue
from flowsched_models.gpu_topology import GpuTopology

WEIGHT = 0.33
"""Of each of the three terms (section 4.3.1 of the thesis)."""
MOST_COMMUNICATION = 4.0
"""Weight of the edges of a job graph at the smallest batch."""


class SetTerms(NamedTuple):
    """The three terms of a set of devices, weighted."""

    communication: float
    interference: float
    fragmentation: float

    @property
    def cost(self) -> float:
        """Of all three."""
        return sum(self)

    @property
    def utility(self) -> float:
        """On the scale of minimal utilities."""
        return 1.0 - sum(self)


@dataclass(frozen=True)
class TopologyCost:
    """Costs of sets of devices on machines with one kind of GPUs."""

    catalogue: Catalogue
    gpus: MachineGpus
    demand: SetDemand | None = None
    """What is left free is left for: fragmentation costs what it is worth less to it. None: the free share of equation 5."""

    @cached_property
    def topology(self) -> GpuTopology:
        """The machine's; where none is known, one socket in which all devices are equally close."""
        known = self.catalogue.gpu_topologies.get(self.gpus.topology)
        return GpuTopology("", (tuple(range(self.gpus.count)),), ()) if known is None else known

    @cached_property
    def worst_interference(self) -> float:
        """``I_w - 1``: the largest mean slow-down that jobs on a machine can cause one another, by the profiles known."""
        jobs = self.catalogue.jobs
        profiles = [jobs[name].gpus.socket for name in profiles_of_worst(self.catalogue)]
        most = max((p.sensitivity for p in profiles), default=0.0) * max((p.pressure for p in profiles), default=0.0)
        sizes = [len(socket) for socket in self.topology.sockets]
        return most * max(_neighbours(sizes, spanning) for spanning in range(min(sizes) + 1))

    def terms(self, profile: str, devices: Sequence[int], there: Sequence[GpuJob], left: Sequence[int]) -> SetTerms:
        """What a set of devices costs a job beside those that are there; ``left``: of each device before it comes."""
        topology = self.topology
        known = self.catalogue.jobs[profile].gpus
        worst = topology.worst_spread(len(devices)) if topology.links and len(devices) > 1 else 0.0
        spread = known.communication / MOST_COMMUNICATION * topology.spread(devices) / worst if worst else 0.0
        slower = self.interference([*there, GpuJob(profile, tuple(devices))])
        # More jobs than devices, where they share these, may be worse off than the worst that is counted.
        interference = min(1.0, slower / self.worst_interference) if self.worst_interference else 0.0
        if self.demand is None:
            left_free = WEIGHT * self.free_share(left, devices)
        else:
            left_free = self._worth(_mask(left)) - self._worth(_mask(left, devices))
        return SetTerms(WEIGHT * spread, WEIGHT * interference, left_free)

    def interference(self, jobs: Sequence[GpuJob]) -> float:
        """``I - 1``: how much slower than alone the jobs of a machine are, in the mean."""
        if not jobs:
            return 0.0
        known = [self.catalogue.jobs[job.profile].gpus.socket for job in jobs]
        masks = [self.topology.socket_mask(job.devices) for job in jobs]
        total = sum(
            known[i].sensitivity * known[k].pressure
            for i in range(len(jobs))
            for k in range(len(jobs))
            if i != k and masks[i] & masks[k]
        )
        return total / len(jobs)

    def free_share(self, left: Sequence[int], taken: Iterable[int] = ()) -> float:
        """``omega``: mean over sockets of the share of devices that are whole and free (equation 5)."""
        gone = set(taken)
        sockets = self.topology.sockets
        shares = (
            sum(left[device] == WHOLE_MILLI and device not in gone for device in socket) / len(socket)
            for socket in sockets
        )
        return sum(shares) / len(sockets)

    def worth(self, left: Sequence[int]) -> float:
        """``V``: what the devices that are whole and free spare the expected demand in distance, if they are given away
        in the best disjoint sets.
        """
        return self._worth(_mask(left))

    def _worth(self, free: int) -> float:
        found = self._worths.get(free)
        if found is None:
            found = self._worths[free] = self._best_sets(free)
        return found

    @cached_property
    def _worths(self) -> dict[int, float]:
        return {0: 0.0}

    def _best_sets(self, free: int) -> float:
        devices = [d for d in range(self.gpus.count) if free >> d & 1]
        first, others = devices[0], devices[1:]
        best = self._worth(free & ~(1 << first))
        for count in [] if self.demand is None else [n for n, _ in self.demand.share if n <= len(devices)]:
            for more in combinations(others, count - 1):
                mask = sum(1 << d for d in (first, *more))
                best = max(best, self._spared((first, *more)) + self._worth(free & ~mask))
        return best

    def _spared(self, devices: Sequence[int]) -> float:
        """What tasks of the demand that take a set are spared beside those that take the worst one."""
        worst = self.topology.worst_spread(len(devices)) if self.topology.links else 0.0
        if not worst or self.demand is None:
            return 0.0
        weight = WEIGHT * self.demand.weight(len(devices)) / MOST_COMMUNICATION
        return weight * (1.0 - self.topology.spread(devices) / worst)

    def sets(self, wanted: TaskGpus, left: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Sets of devices that a task could take, in the order of their numbers; none where it does not fit."""
        able = [device for device, milli in enumerate(left) if milli >= wanted.share_milli]
        return combinations(able, wanted.count)


def _mask(left: Sequence[int], taken: Iterable[int] = ()) -> int:
    """Bits of the devices that are whole and free."""
    gone = set(taken)
    return sum(1 << d for d, milli in enumerate(left) if milli == WHOLE_MILLI and d not in gone)


def _neighbours(sizes: Sequence[int], spanning: int) -> float:
    """Mean number of jobs that a job shares a socket with, where ``spanning`` jobs have a device on each socket and jobs of
    one device have the rest.
    """
    single = [size - spanning for size in sizes]
    jobs = sum(single) + spanning
    pairs = sum(n * (n - 1 + spanning) for n in single) + spanning * (sum(single) + spanning - 1)
    return pairs / jobs if jobs else 0.0

"""What a set of linked GPUs costs a job: the cost and the utility of topology-aware placement.

M. Amaral et al., "Topology-Aware GPU Scheduling for Learning Workloads in Cloud Environments", SC'17, and M. Amaral's thesis
(UPC, 2019), equations 1 to 5: distance between the job's GPUs, interference among the jobs of the machine, and what is left
free of its sockets, each over its worst case. Utility is 1 less this cost, on the scale of the thesis's minimal utilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from flowsched.cluster.gpus import WHOLE_MILLI, MachineGpus, TaskGpus
from flowsched_models.catalogue import Catalogue
from flowsched_models.gpu_topology import GpuTopology

WEIGHT = 0.33
"""Of each of the three terms (section 4.3.1 of the thesis)."""
MOST_COMMUNICATION = 4.0
"""Weight of the edges of a job graph at the smallest batch."""


class GpuJob(NamedTuple):
    """A job with the devices that it has on a machine."""

    profile: str
    devices: tuple[int, ...]


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

    @cached_property
    def topology(self) -> GpuTopology:
        """The machine's; where none is known, one socket in which all devices are equally close."""
        known = self.catalogue.gpu_topologies.get(self.gpus.topology)
        return GpuTopology("", (tuple(range(self.gpus.count)),), ()) if known is None else known

    @cached_property
    def worst_interference(self) -> float:
        """``I_w - 1``: the largest mean slow-down that jobs on a machine can cause one another, by the profiles known."""
        profiles = [job.gpus.socket for job in self.catalogue.jobs.values()]
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
        interference = slower / self.worst_interference if self.worst_interference else 0.0
        return SetTerms(WEIGHT * spread, WEIGHT * interference, WEIGHT * self.free_share(left, devices))

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

    def sets(self, wanted: TaskGpus, left: Sequence[int]) -> list[tuple[int, ...]]:
        """Sets of devices that a task could take, one of each kind: equal ones are alike in links, sockets and what is left.

        Empty where it does not fit.
        """
        able = [device for device, milli in enumerate(left) if milli >= wanted.share_milli]
        found: dict[object, tuple[int, ...]] = {}
        for devices in combinations(able, wanted.count):
            found.setdefault(self._kind(devices, left), devices)
        return list(found.values())

    def _kind(self, devices: Sequence[int], left: Sequence[int]) -> object:
        topology = self.topology
        touched = tuple(sorted((s, left[device]) for device in devices for s in [topology.socket_of[device]]))
        spread = topology.spread(devices) if topology.links else 0.0
        return touched, spread, topology.slowest_class(devices) if topology.links else None


def machine_costs(catalogue: Catalogue, machines: Iterable[MachineGpus]) -> Mapping[MachineGpus, TopologyCost]:
    """The costs of each kind of GPUs."""
    return {gpus: TopologyCost(catalogue, gpus) for gpus in dict.fromkeys(machines)}


def _neighbours(sizes: Sequence[int], spanning: int) -> float:
    """Mean number of jobs that a job shares a socket with, where ``spanning`` jobs have a device on each socket and jobs of
    one device have the rest.
    """
    single = [size - spanning for size in sizes]
    jobs = sum(single) + spanning
    pairs = sum(n * (n - 1 + spanning) for n in single) + spanning * (sum(single) + spanning - 1)
    return pairs / jobs if jobs else 0.0

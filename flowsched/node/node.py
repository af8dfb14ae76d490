"""What a node controller knows of its machine before it reads anything."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flowsched.node.deadline import Deadline
from flowsched_models.catalogue import Catalogue


@dataclass(frozen=True)
class NodeService:
    """A latency service on the machine."""

    name: str
    profile: str
    threads: int
    slo_us: float
    client: str
    cores: tuple[int, ...]
    """Virtual CPUs that it may be given, in the order in which they are added: the first is always its own."""
    weight: float = 1.0
    """CPU weight relative to the default of Linux: 1 is 1024 shares, or ``cpu.weight`` 100."""
    fewest: int = 1
    """It is never left with fewer cores than this, whatever it needs: tasks that may not share keep off these."""


@dataclass(frozen=True)
class NodeTask:
    """A batch job on the machine, or a critical task with a deadline."""

    name: str
    profile: str
    threads: int
    scale: float = 1.0
    """Its work relative to the profile's."""
    deadline: Deadline | None = None
    priority: int = 0
    shares: bool = True
    """Whether it may share a core with a service: it can be given the lowest weight. One that cannot runs at the default
    weight, and only on cores that no service has."""
    run_class: str = ""
    """Tasks of one class are expected to run for as long as each other, relative to their forecasts; empty: of none."""


@dataclass(frozen=True)
class Node:
    """One machine."""

    catalogue: Catalogue = field(repr=False)
    machine_type: str
    cores: tuple[int, ...]
    """Virtual CPUs that may be allocated."""

    def highest_load(self, service: NodeService) -> float:
        """Queries per second that a service was measured at, at most, with all the cores that it may be given."""
        profile = self.catalogue.services[service.profile]
        curve = profile.curve_or_estimate(service.threads, len(service.cores))
        return profile.highest_measured_load(curve, self.machine_type)


def with_own_cores(services: tuple[NodeService, ...]) -> tuple[NodeService, ...]:
    """The services, each with a first core of its own where there are enough: the first core is always a service's."""
    taken: set[int] = set()
    found = []
    for service in services:
        free = next((c for c in service.cores if c not in taken), service.cores[0])
        rest = tuple(c for c in service.cores if c != free)
        found.append(service if free == service.cores[0] else replace(service, cores=(free, *rest)))
        taken.add(free)
    return tuple(found)

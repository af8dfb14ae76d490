"""CPU time that services need for their load."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowsched.node import NodeService
from flowsched_models.catalogue import Catalogue
from flowsched_simulator.node.wave import Wave

Need = Callable[[float], tuple[float, ...]]
"""CPU seconds that each service needs from 0 s to a time."""


def service_need(
    catalogue: Catalogue, services: Sequence[NodeService], waves: Sequence[Wave], interval_s: float
) -> Need:
    """The need under these loads: CPU per query, at most all virtual CPUs that a service may have."""
    sums = [[0.0] for _ in services]
    profiles = [catalogue.services[s.profile] for s in services]

    def cpus(k: int, interval: int) -> float:
        wanted = profiles[k].cpu_per_kqps * waves[k].qps(interval) / 1000.0
        return min(float(len(services[k].cores)), wanted)

    def need(t_s: float) -> tuple[float, ...]:
        whole = int(t_s // interval_s)
        for k, total in enumerate(sums):
            while len(total) <= whole:
                total.append(total[-1] + cpus(k, len(total) - 1) * interval_s)
        return tuple(total[whole] + cpus(k, whole) * (t_s - whole * interval_s) for k, total in enumerate(sums))

    return need

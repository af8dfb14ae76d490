"""A latency service: its p95 against load, and what neighbours do to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

OVERLOAD_WINDOW_S = 10.0
"""Beyond its capacity a service builds a backlog; p95 is what one reporting window of it comes to."""


@dataclass(frozen=True)
class LatencyCurve:
    """p95 of a service on a number of threads and cores, against its load.

    ``p95(Q) = (a + b (1 - exp(-Q/q0))) (1 - z) + psat z`` with ``z = logistic((Q - qcap)/w)``; loads in queries per
    second, latencies in microseconds. The curve holds in the measured range; beyond ``qcap`` a backlog is added.
    """

    threads: int
    cores: int
    a_us: float
    b_us: float
    q0: float
    qcap: float
    psat_us: float
    w: float
    max_measured_qps: float
    """The highest measured load that still met 1 ms."""

    def p95_us(self, qps: float, capacity: float = 1.0) -> float:
        """p95 in microseconds at ``qps``, with ``capacity`` (0, 1] of the service's cores left to it."""
        qcap = self.qcap * capacity
        z = 1.0 / (1.0 + math.exp(min(50.0, max(-50.0, -(qps - qcap) / self.w))))
        base = (self.a_us + self.b_us * (1.0 - math.exp(-qps / self.q0))) * (1.0 - z) + self.psat_us * z
        backlog_s = max(0.0, qps / qcap - 1.0) * 0.95 * OVERLOAD_WINDOW_S
        return base + backlog_s * 1e6


@dataclass(frozen=True)
class ServiceProfile:
    """The measured behaviour of one latency service."""

    name: str
    curves: tuple[LatencyCurve, ...]
    clients: Mapping[str, float] = field(default_factory=dict)
    """Factor on the whole curve by load client: what a client sees includes the client."""
    cpu_per_kqps: float = 0.0
    """Busy CPUs per thousand queries per second."""
    pressure: float = 0.0
    """Cache and memory pressure caused per busy CPU, as for jobs."""
    sensitivity: float = 0.0
    """Relative growth of p95 under one unit of cache and memory pressure."""
    sharing_slope: float = 0.0
    """Relative growth of p95 per unit of CPU weight share that others hold on its cores."""
    sharing_capacity: float = 0.0
    """Share of capacity lost per unit of CPU weight share that others hold on its cores."""

    def curve(self, threads: int, cores: int) -> LatencyCurve | None:
        """The curve measured for this many threads on this many cores, if there is one."""
        return next((c for c in self.curves if (c.threads, c.cores) == (threads, cores)), None)

    def p95_us(
        self, curve: LatencyCurve, qps: float, client: str, pressure: float = 0.0, weight_share: float = 0.0
    ) -> float:
        """p95 in microseconds beside neighbours.

        ``pressure``: sum over neighbours of pressure times busy CPUs, already scaled by the machine's bandwidth.
        ``weight_share``: share of CPU weight in [0, 1) that others hold on this service's cores.
        """
        capacity = max(0.05, 1.0 - self.sharing_capacity * weight_share)
        factor = (1.0 + self.sensitivity * pressure) * (1.0 + self.sharing_slope * weight_share)
        return self.clients[client] * factor * curve.p95_us(qps, capacity)

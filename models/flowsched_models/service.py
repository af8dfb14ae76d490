"""A latency service: its p95 against load, and what neighbours do to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flowsched_models.latency import OVERLOAD_WINDOW_S, p95_us
from flowsched_models.window_noise import WindowNoise, noise_at

SERVER_SCALING = 0.6
"""Capacity grows as (min(threads, cores)) ** 0.6 where a profile cannot say: memcached's two measured sizes give 0.57."""
_WAIT_PER_THREAD = 0.45
_CAPACITY_PER_THREAD = -0.05
"""Exponents of threads per core on the load-dependent part of p95 and on capacity: 1, 2, 8 and 16 threads per core."""
_ERROR_PER_DOUBLING = 0.2
"""Standard deviation of log p95 that a doubling of the servers away from what was measured adds."""
_ERROR_PER_CROWDING = 0.3
"""The same for threads per core: what crowding does differs most between machines."""
_WORST_ERROR = 0.7


@dataclass(frozen=True)
class OtherMachine:
    """How the curve of one size differs on a machine type that it was not measured on.

    Both factors multiply those of the service (``latency_factor``, ``capacity_factor``), which are for all sizes.
    """

    machine_type: str
    latency: float
    capacity: float
    max_measured_qps: float
    """The highest load measured there that still met 1 ms."""


@dataclass(frozen=True)
class LatencyCurve:
    """p95 of a service on a number of threads and cores, against its load.

    ``p95(Q) = (a + b (1 - exp(-Q/q0))) (1 - z) + psat z + backlog`` with ``z = logistic((Q - qcap)/w)``; loads in queries
    per second, latencies in microseconds. The curve holds in the measured range; beyond ``qcap`` a backlog is added.
    Never falling with load, for any parameters: where ``psat`` is below ``a + b``, ``a + b`` takes its place.
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
    error: float | None = None
    """Standard deviation of log(measured/predicted p95); None: that of the profile."""
    estimated: bool = False
    """Not measured with these threads and cores, but derived from other curves."""
    elsewhere: tuple[OtherMachine, ...] = ()
    """Machine types on which this size was measured, too."""

    def on(self, machine_type: str | None) -> OtherMachine | None:
        """What differs on this machine type, if this size was measured there."""
        return next((m for m in self.elsewhere if m.machine_type == machine_type), None)

    def p95_us(self, qps: float, capacity: float = 1.0) -> float:
        """p95 in microseconds at ``qps``, with ``capacity`` (more than 0) times the measured capacity left to it."""
        return p95_us(self.latency_row(qps, capacity), 0.0, 0.0)

    def measured_p95_us(self, qps: float, capacity: float = 1.0) -> float:
        """The same as a measuring client with few connections sees it: they bound the queue, so there is no backlog."""
        return p95_us(self.latency_row(qps, capacity, window_s=0.0), 0.0, 0.0)

    def latency_row(
        self,
        qps: float,
        capacity: float = 1.0,
        factor: float = 1.0,
        around: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
        window_s: float = OVERLOAD_WINDOW_S,
    ) -> tuple[float, ...]:
        """[LATENCY_COLUMNS] this curve at ``qps``, as :func:`flowsched_models.latency.p95_us` takes it.

        ``capacity`` and ``factor``: of the machine and the client, on ``qcap`` and on the whole curve. ``around``: what
        neighbours do to it, columns ``GROWTH`` to ``SHARING_US``. ``window_s``: how long a backlog grows before it is
        reported; 0 for none.
        """
        curve = (self.a_us, self.b_us, self.q0, self.qcap * capacity, self.psat_us, self.w)
        return (*curve, qps, window_s, factor, *around)

    @property
    def servers(self) -> int:
        """Threads that can run at once."""
        return min(self.threads, self.cores)

    @property
    def crowding(self) -> float:
        """Threads per core, at least 1."""
        return max(1.0, self.threads / self.cores)


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
    sharing_us: float = 0.0
    """Microseconds added to p95 per unit of that share: a wait for the others' time slices, the same for every client."""
    background_slope: float = 0.0
    """Relative growth of p95 near capacity when tasks of the lowest CPU weight run on all its cores."""
    background_at: float = 0.78
    """Load relative to capacity at which half of that growth is there."""
    background_width: float = 0.03
    """How quickly it comes, in load relative to capacity."""
    window_noise: tuple[WindowNoise, ...] = ()
    """How windows scatter around their prediction on one machine with one client, by length; empty: as usual."""
    error: float = 0.15
    """Standard deviation of log(measured/predicted p95) on a machine and client of their own."""
    capacity_error: float = 0.1
    """Standard deviation of log capacity between hosts of one machine type."""
    latency_factor: Mapping[str, float] = field(default_factory=dict)
    """Factor on the whole curve by machine type; 1 where none is named."""
    capacity_factor: Mapping[str, float] = field(default_factory=dict)
    """Factor on ``qcap`` by machine type; 1 where none is named."""
    interference: Mapping[str, float] = field(default_factory=dict)
    """Factor on p95 beside one aggressor by kind, as measured. For reports: predictions use ``sensitivity``."""

    def curve(self, threads: int, cores: int) -> LatencyCurve | None:
        """The curve measured for this many threads on this many cores, if there is one."""
        return next((c for c in self.curves if (c.threads, c.cores) == (threads, cores)), None)

    def curve_or_estimate(self, threads: int, cores: int) -> LatencyCurve:
        """The curve measured for this many threads and cores, or one derived from the nearest measured one.

        A queueing view: c = min(threads, cores) servers. Capacity grows as a power of c, fitted to the profile's own curves
        where they have several c. The part of p95 that grows with load shrinks as 1/c, as waiting in M/M/c does at equal
        utilisation. Threads beyond the cores lengthen waiting and cost some capacity; cores beyond the threads change
        nothing. p95 in saturation goes with 1/capacity, as it must for a fixed number of connections (response = N/X).
        The result says that it is ``estimated`` and has a larger ``error``. Raises ValueError for less than one of either.
        """
        if threads < 1 or cores < 1:
            raise ValueError(f"a service needs at least one thread and one core, but has {threads} and {cores}")
        known = self.curve(threads, cores)
        if known is not None:
            return known
        servers, crowding = min(threads, cores), max(1.0, threads / cores)

        def away(curve: LatencyCurve) -> tuple[float, int, int]:
            far = abs(math.log2(servers / curve.servers)) + 0.5 * abs(math.log2(crowding / curve.crowding))
            return far, curve.threads, curve.cores

        near = min(self.curves, key=away)
        crowded = crowding / near.crowding
        more = (servers / near.servers) ** self.server_scaling * crowded**_CAPACITY_PER_THREAD
        wait = near.servers / servers * crowded**_WAIT_PER_THREAD
        b_us = near.b_us * wait
        return replace(
            near,
            threads=threads,
            cores=cores,
            b_us=b_us,
            qcap=near.qcap * more,
            w=near.w * more,
            psat_us=max(near.psat_us / more, near.a_us + b_us),
            max_measured_qps=near.max_measured_qps * min(1.0, more),
            error=_further(self.error_of(near), servers / near.servers, crowded),
            estimated=True,
            elsewhere=(),
        )

    @property
    def server_scaling(self) -> float:
        """Exponent s of capacity ~ servers ** s, from the best curve of each number of servers; within 0.3 and 1."""
        best: dict[int, float] = {}
        for curve in self.curves:
            best[curve.servers] = max(best.get(curve.servers, 0.0), curve.qcap)
        if len(best) < 2:
            return SERVER_SCALING
        x = [math.log(c) for c in best]
        y = [math.log(q) for q in best.values()]
        mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
        slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
        return min(1.0, max(0.3, slope / math.fsum((a - mean_x) ** 2 for a in x)))

    def error_of(self, curve: LatencyCurve) -> float:
        """Standard deviation of log(measured/predicted p95) on this curve."""
        return self.error if curve.error is None else curve.error

    def latency_row(
        self, curve: LatencyCurve, qps: float, client: str, bandwidth: float = 1.0, machine_type: str | None = None
    ) -> tuple[float, ...]:
        """[LATENCY_COLUMNS] this service at ``qps``, as :func:`flowsched_models.latency.p95_us` takes it.

        ``bandwidth``: of the machine, where pressure is not scaled by it yet. ``machine_type``: as in :meth:`p95_us`.
        """
        capacity, factor = 1.0, self.clients[client]
        if machine_type is not None:
            capacity = self._capacity_factor(curve, machine_type)
            factor *= self.latency_factor.get(machine_type, 1.0)
            factor *= 1.0 if (there := curve.on(machine_type)) is None else there.latency
        around = (self.sensitivity * bandwidth, self.sharing_slope, self.sharing_capacity, self.sharing_us)
        return curve.latency_row(qps, capacity, factor, around)

    def background_factor(
        self, curve: LatencyCurve, qps: float, background: float, machine_type: str | None = None
    ) -> float:
        """Factor on p95 when tasks of the lowest CPU weight run on ``background``, a share in [0, 1], of its cores.

        The kernel lets the service go first, but near its capacity the way in and the caches that it comes back to count.
        """
        capacity = curve.qcap * self._capacity_factor(curve, machine_type)
        use = (qps / capacity - self.background_at) / self.background_width
        return 1.0 + self.background_slope * background / (1.0 + math.exp(min(50.0, max(-50.0, -use))))

    def p95_us(
        self,
        curve: LatencyCurve,
        qps: float,
        client: str,
        pressure: float = 0.0,
        weight_share: float = 0.0,
        machine_type: str | None = None,
        background: float = 0.0,
    ) -> float:
        """p95 in microseconds beside neighbours; never falling with load, pressure, weight share or background.

        ``pressure``: sum over neighbours of pressure times busy CPUs, already scaled by the machine's bandwidth.
        ``weight_share``: share of CPU weight in [0, 1) that others hold on this service's cores.
        ``machine_type``: where it runs; None for the type that the curves were measured on.
        ``background``: share of its cores, in [0, 1], on which tasks of the lowest CPU weight run.
        """
        p95 = p95_us(self.latency_row(curve, qps, client, machine_type=machine_type), pressure, weight_share)
        return p95 * self.background_factor(curve, qps, background, machine_type) if background > 0.0 else p95

    def highest_measured_load(self, curve: LatencyCurve, machine_type: str | None = None) -> float:
        """The highest measured load that met the goal of the measurement, on this machine type: beyond it a service counts
        as overloaded, whatever the curve says.
        """
        there = curve.on(machine_type)
        if there is not None:
            return there.max_measured_qps
        return curve.max_measured_qps * self._capacity_factor(curve, machine_type)

    def noise(self, window_s: float) -> WindowNoise:
        """How p95 of a window of ``window_s`` seconds scatters around its prediction."""
        return noise_at(self.window_noise, window_s)

    def _capacity_factor(self, curve: LatencyCurve, machine_type: str | None) -> float:
        factor = 1.0 if machine_type is None else self.capacity_factor.get(machine_type, 1.0)
        there = curve.on(machine_type)
        return factor if there is None else factor * there.capacity


def _further(error: float, servers: float, crowding: float) -> float:
    """Standard deviation of log p95 at these multiples of what was measured with ``error``; half a doubling at least."""
    far = _ERROR_PER_DOUBLING * (0.5 + abs(math.log2(servers))) + _ERROR_PER_CROWDING * abs(math.log2(crowding))
    return max(error, min(_WORST_ERROR, math.hypot(error, far)))

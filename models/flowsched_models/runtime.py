"""The run-time model: how fast everybody on one machine progresses *now*.

Progress x of a job runs from 0 to 1, with rates that are constant between events (a start, an end, a phase change)::

    dx/dt = v(machine, j) / [ W_j * ( phi/rs + (1 - phi)/rp ) * D_j * O_j ]

``v`` speed of the machine type for the job, ``W`` its single-thread seconds, ``phi`` the serial share of its present phase,
``rs`` and ``rp`` the CPU speed it gets in serial work (one thread) and parallel work (``min(threads, cores)`` threads),
``D`` the slow-down by neighbours' cache and memory pressure, ``O`` the cost of many threads. Everybody's rate changes
when anybody comes, goes or changes phase.

- *CPU share.* Threads spread over the virtual CPUs they may use by water-filling on the load of the others. On a contended
  virtual CPU the share follows the CPU request divided by the runnable threads, as Linux' fair scheduler does with cgroup
  weights: more threads than cores give no larger share. What a neighbour leaves is used.
- *SMT.* A thread whose sibling is busy runs at ``1 - (1 - g)/2``.
- *Interference.* ``D_j = 1 + s_j q sum_i P_i u_i`` over the neighbours i, services included; ``u_i`` their busy CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from flowsched_models.catalogue import Catalogue
from flowsched_models.profile import PhaseOrder
from flowsched_models.service import LatencyCurve, ServiceProfile

_SWEEPS = 3
"""Rounds of water-filling; core sets that overlap in part settle after two."""
_MIX_ITERATIONS = 2
"""Rounds of the fixed point between a mixed job's serial share of time and its share of the cores."""
_TINY = 1e-12
_MOST_RATES = 100_000
"""Sets of occupants whose rates one host remembers, at most: a scheduler runs for months."""
_MOST_HOSTS = 2048
"""Hosts that a factory remembers."""


class Stage(IntEnum):
    """What a job is doing now."""

    SERIAL = 0
    PARALLEL = 1
    MIXED = 2


class Occupant(NamedTuple):
    """A job on a machine, as its neighbours feel it. A tuple, because rates are looked up by it all the time."""

    profile: str
    stage: Stage
    threads: int
    cores: tuple[int, ...]
    """Virtual CPUs it may use."""
    weight: float
    """CPU weight, in cores requested."""
    limit: float | None = None
    """CPU limit in cores, or None."""

    @property
    def parallelism(self) -> float:
        """Threads that can run at once in parallel work."""
        n = float(min(self.threads, len(self.cores)))
        return n if self.limit is None else min(n, self.limit)


@dataclass(frozen=True)
class Resident:
    """A job that is bound to a machine."""

    profile: str
    scale: float
    """Its work relative to the profile's."""
    threads: int
    cores: tuple[int, ...]
    """Virtual CPUs it may use."""
    weight: float
    """Cores requested: capacity it holds, and its weight where cores are shared."""
    memory_mib: int = 0
    progress: float = 0.0
    """Share of its work that is done, in [0, 1]."""
    ready_s: float = 0.0
    """When its program runs, on the clock of the execution; it holds its request before and uses no CPU."""
    limit: float | None = None
    """CPU limit in cores, or None."""


Course = tuple[Occupant, Occupant, float]
"""First stage, last stage, and the progress at which the first ends (0 for a job with one stage)."""


@dataclass(frozen=True)
class ServiceLoad:
    """A latency service on a machine and the load it carries."""

    profile: str
    cores: tuple[int, ...]
    threads: int
    weight: float
    qps: float
    client: str


@dataclass(frozen=True)
class Rates:
    """What a machine does with a set of occupants."""

    progress: Mapping[Occupant, float]
    """dx/dt in 1/s for work of scale 1."""
    busy: Mapping[Occupant, float]
    """CPUs used."""
    p95_us: tuple[float, ...]
    """p95 of each service, in the order of the host's services."""


@dataclass(frozen=True, eq=False)
class Host:
    """A machine type with the services on it: maps a multiset of occupants to rates.

    Two machines with equal hosts behave alike, so rates are computed once for both. Build hosts through
    :class:`HostFactory` to share that memory.
    """

    catalogue: Catalogue
    machine_type: str
    services: tuple[ServiceLoad, ...] = ()

    @cached_property
    def _memory(self) -> dict[tuple[Occupant, ...], Rates]:
        return {}

    @cached_property
    def _courses(self) -> dict[tuple[object, ...], Course]:
        return {}

    @cached_property
    def _bandwidth(self) -> float:
        return self.catalogue.machine_types[self.machine_type].bandwidth

    @cached_property
    def _sibling(self) -> dict[int, int]:
        pairs = self.catalogue.machine_types[self.machine_type].siblings
        return dict(pairs) | {b: a for a, b in pairs}

    @cached_property
    def _service_models(self) -> tuple[tuple[ServiceProfile, LatencyCurve], ...]:
        models = []
        for load in self.services:
            profile = self.catalogue.services[load.profile]
            curve = profile.curve(load.threads, len(load.cores))
            if curve is None:
                raise ValueError(
                    f"{load.profile} was not measured with {load.threads} threads on {len(load.cores)} cores"
                )
            models.append((profile, curve))
        return tuple(models)

    def rates(self, occupants: tuple[Occupant, ...]) -> Rates:
        """Rates of all occupants together. Equal occupants progress equally; order carries no meaning."""
        found = self._memory.get(occupants)
        if found is None:
            canonical = tuple(sorted(occupants, key=_occupant_key))
            found = self._memory.get(canonical)
            if found is None:
                if len(self._memory) >= _MOST_RATES:
                    self._memory.clear()
                found = self._memory[canonical] = self._compute(canonical)
            self._memory[occupants] = found
        return found

    def stage(self, profile: str, progress: float) -> Stage:
        """What a job does at this progress."""
        job = self.catalogue.jobs[profile]
        if job.phase_order is PhaseOrder.MIXED:
            return Stage.MIXED
        return Stage.SERIAL if progress < job.serial_fraction - _TINY else Stage.PARALLEL

    def course(self, resident: Resident) -> Course:
        """The two stages of a job on this host, and the progress at which it passes from one to the other."""
        key = (resident.profile, resident.threads, resident.cores, resident.weight, resident.limit)
        found = self._courses.get(key)
        if found is None:
            first, last = (Occupant(key[0], self.stage(key[0], progress), *key[1:]) for progress in (0.0, 1.0))
            serial = self.catalogue.jobs[key[0]].serial_fraction if first.stage is Stage.SERIAL else 0.0
            found = self._courses[key] = (first, last, serial)
        return found

    def alone_s(
        self, profile: str, threads: int, cores: tuple[int, ...], scale: float = 1.0, progress: float = 0.0
    ) -> float:
        """Seconds that a job needs from ``progress`` on with these cores to itself, beside the host's services only."""
        job = self.catalogue.jobs[profile]
        total = 0.0
        position = progress
        while position < 1.0 - _TINY:
            stage = self.stage(profile, position)
            end = job.serial_fraction if stage is Stage.SERIAL else 1.0
            occupant = Occupant(profile, stage, threads, cores, 1.0)
            total += (end - position) / self.rates((occupant,)).progress[occupant]
            position = end
        return total * scale

    def _compute(self, occupants: tuple[Occupant, ...]) -> Rates:
        jobs = [self.catalogue.jobs[o.profile] for o in occupants]
        parallelism = [o.parallelism for o in occupants]
        mean_threads = [
            min(1.0, p) if o.stage is Stage.SERIAL else p for o, p in zip(occupants, parallelism, strict=True)
        ]
        mixed = [i for i, o in enumerate(occupants) if o.stage is Stage.MIXED]
        sharing = _Sharing(occupants, self.services, self._service_busy, self._sibling)
        gains = [job.smt_gain for job in jobs]

        serial_speed = [0.0] * len(occupants)
        parallel_speed = [0.0] * len(occupants)
        for _ in range(_MIX_ITERATIONS if mixed else 0):
            settled = list(mean_threads)
            for i in mixed:
                trial = list(mean_threads)
                trial[i] = min(1.0, parallelism[i])
                serial_speed[i] = sharing.shares(trial, gains).speed[i]
                trial[i] = parallelism[i]
                parallel_speed[i] = sharing.shares(trial, gains).speed[i]
                phi = jobs[i].serial_fraction
                in_serial = phi / serial_speed[i]
                in_parallel = (1.0 - phi) / parallel_speed[i]
                share = in_serial / (in_serial + in_parallel)
                settled[i] = share * min(1.0, parallelism[i]) + (1.0 - share) * parallelism[i]
            mean_threads = settled
        shares = sharing.shares(mean_threads, gains)

        caused = [job.pressure * busy for job, busy in zip(jobs, shares.busy, strict=True)]
        caused_by_services = [
            self.catalogue.services[s.profile].pressure * busy
            for s, busy in zip(self.services, shares.service_busy, strict=True)
        ]
        total_pressure = sum(caused) + sum(caused_by_services)
        progress: dict[Occupant, list[float]] = {}
        busy_by: dict[Occupant, list[float]] = {}
        for i, (occupant, job) in enumerate(zip(occupants, jobs, strict=True)):
            if occupant.stage is Stage.MIXED:
                phi = job.serial_fraction
                pace = 1.0 / (phi / serial_speed[i] + (1.0 - phi) / parallel_speed[i])
            else:
                pace = shares.speed[i]
            felt = 1.0 + job.sensitivity * self._bandwidth * (total_pressure - caused[i])
            threading = 1.0
            if occupant.threads > 4:
                threading += job.oversubscription * math.log2(occupant.threads / 4)
            speed = self.catalogue.speed(occupant.profile, self.machine_type)
            progress.setdefault(occupant, []).append(speed * pace / (job.work_s * felt * threading))
            busy_by.setdefault(occupant, []).append(shares.busy[i])
        p95 = tuple(
            profile.p95_us(
                curve,
                load.qps,
                load.client,
                self._bandwidth * (total_pressure - caused_by_services[k]),
                shares.weight_share[k],
            )
            for k, (load, (profile, curve)) in enumerate(zip(self.services, self._service_models, strict=True))
        )
        return Rates(_mean(progress), _mean(busy_by), p95)

    @cached_property
    def _service_busy(self) -> tuple[float, ...]:
        return tuple(
            min(float(len(s.cores)), self.catalogue.services[s.profile].cpu_per_kqps * s.qps / 1000.0)
            for s in self.services
        )


class HostFactory:
    """Makes hosts and hands out the same one for equal machines, so that rates are remembered once."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Keep the catalogue that every host of this factory uses."""
        self._catalogue = catalogue
        self._hosts: dict[tuple[str, tuple[ServiceLoad, ...]], Host] = {}

    def host(self, machine_type: str, services: Iterable[ServiceLoad] = ()) -> Host:
        """The host of a machine type that carries these services."""
        key = (machine_type, tuple(services))
        host = self._hosts.pop(key, None) or Host(self._catalogue, *key)
        self._hosts[key] = host
        if len(self._hosts) > _MOST_HOSTS:
            # Loads that are measured are never twice the same: the host that was asked for longest ago goes.
            del self._hosts[next(iter(self._hosts))]
        return host


def _occupant_key(o: Occupant) -> tuple[str, int, int, tuple[int, ...], float, float]:
    return (o.profile, int(o.stage), o.threads, o.cores, o.weight, -1.0 if o.limit is None else o.limit)


def _mean(values: Mapping[Occupant, Sequence[float]]) -> dict[Occupant, float]:
    return {key: sum(row) / len(row) for key, row in values.items()}


@dataclass(frozen=True)
class _Shares:
    busy: list[float]
    """CPUs used by each occupant."""
    speed: list[float]
    """The same, with what a busy sibling costs taken off."""
    service_busy: tuple[float, ...]
    weight_share: list[float]
    """For each service, the share of CPU weight that occupants hold on its cores."""


class _Sharing:
    """Splits the virtual CPUs of one machine among occupants and services.

    Virtual CPUs that the same occupants and services may use, and whose siblings are alike, behave alike: they form a
    *cell*, and the arithmetic runs over cells.
    """

    def __init__(
        self,
        occupants: Sequence[Occupant],
        services: Sequence[ServiceLoad],
        service_busy: tuple[float, ...],
        sibling: Mapping[int, int],
    ) -> None:
        self.service_busy = service_busy
        self.count_jobs = len(occupants)
        self.weights = [o.weight for o in occupants] + [s.weight for s in services]
        core_sets = [frozenset(o.cores) for o in occupants] + [frozenset(s.cores) for s in services]
        self.cores_of_services = [len(s.cores) for s in services]
        everywhere = frozenset().union(*core_sets) if core_sets else frozenset()
        users = {k: tuple(i for i, cores in enumerate(core_sets) if k in cores) for k in everywhere}
        key_of = {k: (users[k], users.get(sibling[k], ()) if k in sibling else None) for k in sorted(everywhere)}
        keys = sorted(set(key_of.values()), key=lambda key: (key[0], key[1] is not None, key[1] or ()))
        index = {key: c for c, key in enumerate(keys)}
        self.size = [0] * len(keys)
        for key in key_of.values():
            self.size[index[key]] += 1
        self.users = [key[0] for key in keys]
        self.sibling_cell = [None if key[1] is None else index.get((key[1], key[0])) for key in keys]
        self.cells_of = [[c for c, members in enumerate(self.users) if i in members] for i in range(len(core_sets))]

    def shares(self, mean_threads: Sequence[float], gains: Sequence[float]) -> _Shares:
        demand = [*mean_threads, *self.service_busy]
        spread = self._spread(demand)
        busy = [0.0] * len(demand)
        speed = [0.0] * len(demand)
        load = [0.0] * len(self.size)
        granted: list[dict[int, float]] = []
        for c, users in enumerate(self.users):
            grant = self._divide(c, users, spread, demand)
            granted.append(grant)
            load[c] = sum(grant.values())
        for c, grant in enumerate(granted):
            sibling = self.sibling_cell[c]
            overlap = 0.0
            if sibling is not None and load[c] > _TINY:
                overlap = max(0.0, load[c] + load[sibling] - 1.0) / load[c]
            for i, cpu in grant.items():
                busy[i] += cpu * self.size[c]
                loss = overlap * (1.0 - gains[i]) / 2.0 if i < self.count_jobs else 0.0
                speed[i] += cpu * self.size[c] * (1.0 - loss)
        jobs = self.count_jobs
        return _Shares(busy[:jobs], speed[:jobs], tuple(busy[jobs:]), self._weight_shares(spread, demand))

    def _spread(self, demand: Sequence[float]) -> list[dict[int, float]]:
        """Threads of each occupant per virtual CPU of each cell, by water-filling on the load of the others."""
        spread: list[dict[int, float]] = []
        for i, cells in enumerate(self.cells_of):
            cores = sum(self.size[c] for c in cells)
            spread.append({c: min(1.0, demand[i] / cores) for c in cells})
        if all(len(cells) == 1 for cells in self.cells_of):
            return spread
        load = [sum(spread[i][c] for i in users) for c, users in enumerate(self.users)]
        for _ in range(_SWEEPS):
            for i, cells in enumerate(self.cells_of):
                if len(cells) == 1:
                    continue
                own = spread[i]
                others = [load[c] - own[c] for c in cells]
                filled = _water_fill(demand[i], others, [self.size[c] for c in cells])
                for c, x, other in zip(cells, filled, others, strict=True):
                    own[c] = x
                    load[c] = other + x
        return spread

    def _thread_weight(self, i: int, c: int, spread: Sequence[Mapping[int, float]], demand: Sequence[float]) -> float:
        if i >= self.count_jobs:
            return self.weights[i] / self.cores_of_services[i - self.count_jobs]
        return self.weights[i] / max(demand[i], _TINY) * spread[i][c]

    def _divide(
        self, c: int, users: Sequence[int], spread: Sequence[Mapping[int, float]], demand: Sequence[float]
    ) -> dict[int, float]:
        """One virtual CPU of cell c among its users: weighted max-min, nobody more than they ask for."""
        wanted = {i: spread[i][c] for i in users if spread[i][c] > _TINY}
        if sum(wanted.values()) <= 1.0:
            return wanted
        weight = {i: self._thread_weight(i, c, spread, demand) for i in wanted}
        grant: dict[int, float] = {}
        capacity = 1.0
        open_ = dict(wanted)
        while open_:
            per_weight = capacity / sum(weight[i] for i in open_)
            full = [i for i, ask in open_.items() if ask <= per_weight * weight[i] + _TINY]
            if not full:
                for i in open_:
                    grant[i] = per_weight * weight[i]
                break
            for i in full:
                grant[i] = open_.pop(i)
                capacity -= grant[i]
        return grant

    def _weight_shares(self, spread: Sequence[Mapping[int, float]], demand: Sequence[float]) -> list[float]:
        result = []
        for k, cores in enumerate(self.cores_of_services):
            i = self.count_jobs + k
            mine = self.weights[i] / cores
            share = 0.0
            for c in self.cells_of[i]:
                others = sum(self._thread_weight(j, c, spread, demand) for j in self.users[c] if j < self.count_jobs)
                share += self.size[c] * others / (others + mine)
            result.append(share / cores)
        return result


def _water_fill(amount: float, loads: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """Levels x in [0, 1] per unit of each cell with ``sum size * x = amount`` and ``load + x`` as level as possible."""
    marks = sorted({*loads, *(load + 1.0 for load in loads)})
    poured = 0.0
    level = marks[0]
    for here, above in pairwise(marks):
        width = sum(
            size
            for load, size in zip(loads, sizes, strict=True)
            if load <= here + _TINY and load + 1.0 >= above - _TINY
        )
        room = width * (above - here)
        if poured + room >= amount and width > 0:
            level = here + (amount - poured) / width
            break
        poured += room
        level = above
    return [min(1.0, max(0.0, level - load)) for load in loads]

"""The run-time model: how fast all tasks on one machine progress *now*.

Progress x of a job runs from 0 to 1, with rates that are constant between events (a start, an end, a phase change)::

    dx/dt = v(machine, j) / [ W_j * ( phi/rs + (1 - phi)/rp ) * D_j * O_j ]

``v`` speed of the machine type for the job, ``W`` its single-thread seconds, ``phi`` the serial share of its present phase,
``rs`` and ``rp`` the CPU speed it gets in serial work (one thread) and parallel work (``min(threads, cores)`` threads),
``D`` the slow-down by neighbours' cache and memory pressure, ``O`` the cost of many threads. All rates change
when a task comes, goes or changes phase.

- *CPU share.* Threads spread over the virtual CPUs they may use by water-filling on the load of the others. On a contended
  virtual CPU the share follows the CPU request divided by the runnable threads, as Linux' fair scheduler does with cgroup
  weights: more threads than cores give no larger share. What a neighbour leaves is used.
- *SMT.* A thread whose sibling is busy runs at ``1 - (1 - g)/2``.
- *Given run times.* A job whose run time is given (``phi`` = 1) uses as much of one CPU as it requests, before all others.
- *Interference.* ``D_j = 1 + s_j q sum_i P_i u_i`` over the neighbours i, services included; ``u_i`` their busy CPUs.
- *GPUs.* ``W_j`` grows by the links between a job's devices and shrinks with their speed; ``v`` is divided by
  ``1 + s_j sum_i p_i`` over the jobs i that use the same sockets, the same devices, or GPUs over the machine's network, each
  kind of place with its own s and p (:mod:`flowsched_models.gpu_profile`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np

from flowsched_models.catalogue import Catalogue
from flowsched_models.cell import (
    BUSY,
    CURVE,
    JOB_COLUMNS,
    PLACES,
    PRESSURE,
    SERVERS,
    SERVICE_PRESSURE,
    SERVICE_WEIGHT,
    THREADING,
    THREADS,
    WORK,
    Bools,
    Cells,
    Floats,
    Ints,
    cells_of,
)
from flowsched_models.gpu_profile import NO_GPUS, GpuUse
from flowsched_models.latency import LATENCY_COLUMNS
from flowsched_models.pace import paces
from flowsched_models.profile import PhaseOrder
from flowsched_models.service import LatencyCurve, ServiceProfile
from flowsched_models.sharing import share

Kept = TypeVar("Kept")

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
    gpus: GpuUse = NO_GPUS

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
    gpus: GpuUse = NO_GPUS

    def at(self, scale: float, progress: float, ready_s: float) -> Resident:
        """The same with other work, other progress and another start. Quicker than ``replace``: each round has its own."""
        other = object.__new__(Resident)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(scale=scale, progress=progress, ready_s=ready_s)
        return other


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


class _Bounded(dict[Any, Any]):
    """Forgets everything where it would remember too much."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Remember a value."""
        if len(self) >= _MOST_RATES:
            self.clear()
        super().__setitem__(key, value)


@dataclass(frozen=True, eq=False)
class Host:
    """A machine type with the services on it: maps a multiset of occupants to rates.

    Two machines with equal hosts behave alike, so rates are computed once for both. Build hosts through
    :class:`HostFactory` to share that memory.
    """

    catalogue: Catalogue
    machine_type: str
    services: tuple[ServiceLoad, ...] = ()

    _memory: dict[tuple[Occupant, ...], Rates] = field(default_factory=_Bounded, init=False, repr=False)
    _alone: dict[tuple[str, int, tuple[int, ...]], float] = field(default_factory=_Bounded, init=False, repr=False)
    _own_rates: dict[Occupant, float | None] = field(default_factory=_Bounded, init=False, repr=False)
    _courses: dict[tuple[object, ...], Course] = field(default_factory=_Bounded, init=False, repr=False)
    _rows: dict[Occupant, Floats] = field(default_factory=_Bounded, init=False, repr=False)
    _masks: dict[tuple[tuple[int, ...], ...], Bools] = field(default_factory=_Bounded, init=False, repr=False)
    _cells: dict[tuple[tuple[int, ...], ...], Cells] = field(default_factory=_Bounded, init=False, repr=False)
    _siblings: dict[int, Ints] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _bandwidth(self) -> float:
        return self.catalogue.machine_types[self.machine_type].bandwidth

    def siblings(self, cpus: int) -> Ints:
        """[cpus] the other virtual CPU of the same core, -1 where none is seen to matter."""
        found = self._siblings.get(cpus)
        if found is None:
            found = self._siblings[cpus] = np.full(cpus, -1, np.int64)
            for one, other in self.catalogue.machine_types[self.machine_type].siblings:
                found[one], found[other] = other, one
        return found

    def row(self, occupant: Occupant, scale: float = 1.0) -> Floats:
        """A job as the compiled model takes it: [columns], with no progress, ready at once and without memory."""
        row = self._rows.get(occupant)
        if row is None:
            job = self.catalogue.jobs[occupant.profile]
            threads = occupant.parallelism
            if job.has_given_run_time:
                # It keeps one core busy, or the part of one that it asks for, also in the instant in which it ends.
                threads = min(1.0, threads, occupant.weight)
            row = np.array(
                [
                    job.work_s / self.catalogue.speed(occupant.profile, self.machine_type),
                    job.serial_fraction,
                    job.phase_order is PhaseOrder.SERIAL_FIRST,
                    threads,
                    occupant.weight,
                    job.smt_gain,
                    job.sensitivity * self._bandwidth,
                    job.pressure,
                    job.threading(occupant.threads),
                    0.0,
                    0.0,
                    0.0,
                    *(0.0,) * (JOB_COLUMNS - PLACES),
                ]
            )
            if occupant.gpus != NO_GPUS:
                row[WORK] *= occupant.gpus.slowdown
                row[PLACES:] = job.gpus.places(occupant.gpus)
            self._rows[occupant] = row
        if scale == 1.0:
            return row
        scaled = row.copy()
        scaled[0] *= scale
        return scaled

    @cached_property
    def service_rows(self) -> Floats:
        """[services, numbers]: the services as the compiled model takes them."""
        rows = np.zeros((len(self.services), CURVE + LATENCY_COLUMNS))
        for row, load, (profile, curve) in zip(rows, self.services, self._service_models, strict=True):
            row[BUSY] = min(float(len(load.cores)), profile.cpu_per_kqps * load.qps / 1000.0)
            row[SERVICE_WEIGHT] = load.weight
            row[SERVICE_PRESSURE] = profile.pressure
            row[SERVERS] = curve.servers
            row[CURVE:] = profile.latency_row(curve, load.qps, load.client, self._bandwidth, self.machine_type)
        return rows

    def may_use(self, cores: tuple[tuple[int, ...], ...]) -> Bools:
        """[jobs + services, C]: who may use which virtual CPU."""
        found = self._masks.get(cores)
        if found is None:
            found = self._masks[cores] = self._mask(cores)
        return found

    def _mask(self, cores: tuple[tuple[int, ...], ...]) -> Bools:
        every = [*cores, *(load.cores for load in self.services)]
        # A machine may have more virtual CPUs than its type says.
        vcpus = self.catalogue.machine_types[self.machine_type].vcpus
        found = np.zeros((len(every), max([vcpus, *(max(own) + 1 for own in every if own)])), np.bool_)
        for row, own in zip(found, every, strict=True):
            row[list(own)] = True
        return found

    def cells(self, cores: tuple[tuple[int, ...], ...]) -> Cells:
        """:func:`cells_of` of jobs on these virtual CPUs and the services; jobs with the same ones are looked at once."""
        rows = {own: row for row, own in enumerate(dict.fromkeys(cores))}
        distinct = tuple(rows)
        found = self._cells.get(distinct)
        if found is None:
            can = self._mask(distinct)
            found = self._cells[distinct] = cells_of(can, self.siblings(can.shape[1]))
        if len(distinct) == len(cores):
            return found
        at = np.array([*(rows[mine] for mine in cores), *range(len(rows), len(found.own))], np.int64)
        return found._replace(members=found.members[at], own=found.own[at])

    @cached_property
    def _service_models(self) -> tuple[tuple[ServiceProfile, LatencyCurve], ...]:
        models = []
        for load in self.services:
            profile = self.catalogue.services[load.profile]
            models.append((profile, profile.curve_or_estimate(load.threads, len(load.cores))))
        return tuple(models)

    def rates(self, occupants: tuple[Occupant, ...]) -> Rates:
        """Rates of all occupants together. Equal occupants progress equally; order carries no meaning."""
        found = self._memory.get(occupants)
        if found is None:
            canonical = tuple(sorted(occupants, key=occupant_key))
            found = self._memory.get(canonical)
            if found is None:
                found = self._memory[canonical] = self._compute(canonical)
            self._memory[occupants] = found
        return found

    def own_rate(self, occupant: Occupant) -> float | None:
        """Progress per second, for work of scale 1, of a job that has the same rate beside any others; None where neighbours
        have a say in it.
        """
        found = self._own_rates.get(occupant, 0.0)
        if found == 0.0:
            found = self._own_rates[occupant] = self._own_rate(occupant)
        return found

    def _own_rate(self, occupant: Occupant) -> float | None:
        if not self.catalogue.jobs[occupant.profile].is_undisturbed or occupant.gpus != NO_GPUS:
            return None
        row = self.row(occupant)
        return float(1.0 / (row[WORK] * row[THREADING])) if row[THREADS] > 0.0 else None

    @property
    def remembered(self) -> int:
        """Rates that are remembered."""
        return len(self._memory)

    def stage(self, profile: str, progress: float) -> Stage:
        """What a job does at this progress."""
        job = self.catalogue.jobs[profile]
        if job.phase_order is PhaseOrder.MIXED:
            return Stage.MIXED if job.serial_fraction > 0.0 else Stage.PARALLEL
        return Stage.SERIAL if progress < job.serial_fraction - _TINY else Stage.PARALLEL

    def occupant(self, resident: Resident) -> Occupant:
        """A job as its neighbours feel it, in its first stage."""
        return self.course(resident)[0]

    def course(self, resident: Resident) -> Course:
        """The two stages of a job on this host, and the progress at which it passes from one to the other."""
        key = (resident.profile, resident.threads, resident.cores, resident.weight, resident.limit, resident.gpus)
        found = self._courses.get(key)
        if found is None:
            first, last = (Occupant(key[0], self.stage(key[0], progress), *key[1:]) for progress in (0.0, 1.0))
            serial = self.catalogue.jobs[key[0]].serial_fraction if first.stage is Stage.SERIAL else 0.0
            found = self._courses[key] = (first, last, serial)
        return found

    def share_of_time(self, profile: str, threads: int, cores: tuple[int, ...], progress: float) -> float:
        """The share of its run time alone that a job of any scale takes to get so far. Progress beyond 1 is made in its last
        stage.
        """
        job = self.catalogue.jobs[profile]
        end = job.serial_fraction if self.stage(profile, 0.0) is Stage.SERIAL else 0.0
        if not _TINY < end < 1.0 - _TINY:
            return progress
        whole_s = self.alone_s(profile, threads, cores)
        later = self.alone_s(profile, threads, cores, progress=end) / whole_s
        if progress <= end:
            return (1.0 - later) * progress / end
        return 1.0 - later + later * (progress - end) / (1.0 - end)

    def alone_s(
        self, profile: str, threads: int, cores: tuple[int, ...], scale: float = 1.0, progress: float = 0.0
    ) -> float:
        """Seconds that a job needs from ``progress`` on with these cores to itself, beside the host's services only."""
        key = (profile, threads, cores)
        if progress == 0.0:
            known = self._alone.get(key)
            if known is not None:
                return known * scale
        job = self.catalogue.jobs[profile]
        total = 0.0
        position = progress
        while position < 1.0 - _TINY:
            stage = self.stage(profile, position)
            end = job.serial_fraction if stage is Stage.SERIAL else 1.0
            occupant = Occupant(profile, stage, threads, cores, 1.0)
            total += (end - position) / (self.own_rate(occupant) or self.rates((occupant,)).progress[occupant])
            position = end
        if progress == 0.0:
            self._alone[key] = total
        return total * scale

    def around(self, occupants: tuple[Occupant, ...]) -> tuple[tuple[float, float], ...]:
        """Of each service: the cache and memory pressure of its neighbours, and the share of CPU weight that jobs hold on
        its virtual CPUs. What :func:`flowsched_models.latency.p95_us` takes.
        """
        count = len(occupants)
        rows, stage = self._arrays(occupants)
        cells = self.cells(tuple([o.cores for o in occupants]))
        busy, speed = np.zeros(count + len(self.services)), np.zeros(count + len(self.services))
        held = np.zeros(len(self.services))
        services = self.service_rows
        share(np.arange(len(busy)), stage, rows, services, cells, busy, speed, held)
        caused = busy * np.concatenate([rows[:, PRESSURE], services[:, SERVICE_PRESSURE]])
        return tuple(
            (max(0.0, float(caused.sum() - caused[count + k])), float(held[k])) for k in range(len(self.services))
        )

    def _arrays(self, occupants: tuple[Occupant, ...]) -> tuple[Floats, Ints]:
        rows = np.zeros((len(occupants), JOB_COLUMNS))
        for row, occupant in zip(rows, occupants, strict=True):
            row[:] = self.row(occupant)
        return rows, np.array([int(o.stage) for o in occupants], dtype=np.int64)

    def _compute(self, occupants: tuple[Occupant, ...]) -> Rates:
        count = len(occupants)
        rows, stage = self._arrays(occupants)
        busy = np.zeros(count + len(self.services))
        pace = np.zeros(count)
        p95 = np.zeros(len(self.services))
        cells = self.cells(tuple([o.cores for o in occupants]))
        paces(np.arange(len(busy)), stage, rows, self.service_rows, cells, busy, pace, p95)
        progress: dict[Occupant, list[float]] = {}
        busy_by: dict[Occupant, list[float]] = {}
        for occupant, rate, used in zip(occupants, pace.tolist(), busy.tolist(), strict=False):
            progress.setdefault(occupant, []).append(rate)
            busy_by.setdefault(occupant, []).append(used)
        return Rates(_mean(progress), _mean(busy_by), tuple(p95.tolist()))


class HostFactory:
    """Makes hosts and hands out the same one for equal machines, so that rates are remembered once."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Keep the catalogue that every host of this factory uses."""
        self.catalogue = catalogue
        self._hosts: dict[tuple[str, tuple[ServiceLoad, ...]], Host] = {}
        self._attached: dict[type, object] = {}

    def host(self, machine_type: str, services: Iterable[ServiceLoad] = ()) -> Host:
        """The host of a machine type that carries these services."""
        key = (machine_type, tuple(services))
        host = self._hosts.pop(key, None) or Host(self.catalogue, *key)
        self._hosts[key] = host
        if len(self._hosts) > _MOST_HOSTS:
            # Loads that are measured are never twice the same: the host that was asked for longest ago goes.
            del self._hosts[next(iter(self._hosts))]
        return host

    @property
    def remembered(self) -> int:
        """Rates that all hosts remember together: 1 to 2 kB each."""
        return sum(host.remembered for host in self._hosts.values())

    def forget(self) -> None:
        """Start anew; what hosts that were handed out remember goes with them."""
        self._hosts.clear()
        self._attached.clear()

    def attached(self, kind: type[Kept]) -> Kept:
        """The one object of a kind that is kept with these hosts, made when it is first asked for."""
        found = self._attached.get(kind)
        if not isinstance(found, kind):
            found = self._attached[kind] = kind()
        return found


def occupant_key(o: Occupant) -> tuple[str, int, int, tuple[int, ...], float, float, GpuUse]:
    """An order of occupants by what they are."""
    return (o.profile, int(o.stage), o.threads, o.cores, o.weight, -1.0 if o.limit is None else o.limit, o.gpus)


def _mean(values: Mapping[Occupant, Sequence[float]]) -> dict[Occupant, float]:
    # Added up one by one: `sum` does it otherwise in later Pythons.
    return {key: reduce(add, row, 0.0) / len(row) for key, row in values.items()}

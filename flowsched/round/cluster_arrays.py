"""All machines of a snapshot as arrays, with what runs there: what candidates are drawn and ranked from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.cluster_state import service_load
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI, Running, Service, Snapshot, Task, cores_beside
from flowsched.pricing.goals import REFERENCE_RUN_S
from flowsched.pricing.sharing_kernel import RUNNING_NUMBERS
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.catalogue import Catalogue
from flowsched_models.pace_table import PaceTable
from flowsched_models.profile import PhaseOrder
from flowsched_models.runtime import Host, HostFactory, Resident


@dataclass(frozen=True)
class ProfileArrays:
    """What a price without forecasts needs of a profile on each shape of machine: [profiles, shapes] and [profiles]."""

    alone_s: FloatArray
    """Run time at scale 1 with all batch cores; infinity on a machine without any."""
    one_core_s: FloatArray
    serial: FloatArray
    """Part of the work that runs on one core before all else."""
    sensitivity: FloatArray
    pressure: FloatArray

    def rest(self, job: IntArray, shape: IntArray, left: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Seconds at scale 1 that the part of the work that is left takes alone, and those of them on one core, first."""
        alone_s, one_core_s, serial = self.alone_s[job, shape], self.one_core_s[job, shape], self.serial[job]
        parallel_s = np.where(np.isfinite(alone_s), alone_s, 0.0) - serial * one_core_s
        serial_s = np.maximum(0.0, left - (1.0 - serial)) * one_core_s
        return serial_s + np.minimum(1.0, left / (1.0 - serial)) * parallel_s, serial_s

    def demand(self, job: IntArray, shape: IntArray, left: FloatArray, seconds: FloatArray) -> FloatArray:
        """Cores that a part of the work keeps busy that takes so many seconds alone."""
        return left * self.one_core_s[job, shape] / np.maximum(seconds, 1e-9)


@dataclass(frozen=True)
class Place:
    """A shape of machine: its type and the services that run there."""

    host: Host
    cores: tuple[int, ...]
    """Batch cores."""
    slo_us: tuple[float, ...]
    """p95 goal of each service."""


@dataclass
class Room:
    """What machines have for tasks: arrays by machine, and [machines, further resources]."""

    milli: IntArray
    memory_mib: IntArray
    units: IntArray

    def copy(self) -> Room:
        """One that changes apart from this one."""
        return Room(self.milli.copy(), self.memory_mib.copy(), self.units.copy())

    def take(self, rows: IntArray, milli: IntArray, memory_mib: IntArray, units: IntArray) -> None:
        """Tasks come to machines ``rows``; negative amounts: they leave."""
        np.subtract.at(self.milli, rows, milli)
        np.subtract.at(self.memory_mib, rows, memory_mib)
        np.subtract.at(self.units, rows, units)

    def fits(self, task: Task, asked: IntArray) -> BoolArray:
        """[machines] where a task has room at its narrowest width; ``asked`` [further resources]."""
        enough = (self.milli >= task.widths_milli[0]) & (self.memory_mib >= task.memory_mib)
        found: BoolArray = enough & ((self.units >= asked) | (asked <= 0)).all(axis=1)
        return found


class ClusterArrays:
    """All machines of a snapshot in the order of their names, so that the order of its own decides nothing."""

    def __init__(self, snapshot: Snapshot, hosts: HostFactory, settings: Settings) -> None:
        """Work out what can be known without a forecast."""
        self.snapshot = snapshot
        machines = sorted(snapshot.machines, key=lambda m: m.name)
        self.names = [m.name for m in machines]
        self.number = {name: i for i, name in enumerate(self.names)}
        self.hash: IntArray = np.array([crc32(name.encode()) for name in self.names], np.uint64)
        services: dict[str, list[Service]] = {}
        for s in snapshot.services:
            services.setdefault(s.machine, []).append(s)
        shapes: dict[object, int] = {}
        self.places: list[Place] = []
        shape = []
        for m in machines:
            here = services.get(m.name, ())
            loads = tuple([service_load(s) for s in here])
            goals = tuple([s.slo_us for s in here])
            at = shapes.get((m.type, m.vcpus, loads, goals))
            if at is None:
                at = shapes[m.type, m.vcpus, loads, goals] = len(self.places)
                self.places.append(Place(hosts.host(m.type, loads), cores_beside(m, here), goals))
            shape.append(at)
        self.shape: IntArray = np.array(shape, np.int64)
        """[machines] position in ``places``."""
        self.batch_cores: FloatArray = np.array([float(len(p.cores)) for p in self.places])[self.shape]
        """[machines]"""
        self.serves: BoolArray = np.array([bool(p.slo_us) for p in self.places])[self.shape]
        """[machines] whether a latency service runs there."""
        types = snapshot.catalogue.machine_types
        self.bandwidth: FloatArray = np.array([types[p.host.machine_type].bandwidth for p in self.places])[self.shape]
        """[machines] how much pressure does there."""
        self.jobs = {name: i for i, name in enumerate(snapshot.catalogue.jobs)}
        self._table = hosts.attached(PaceTable)
        self.profiles = _profiles(snapshot.catalogue, self.places, self._table)
        self.resources = sorted({name for t in snapshot.pending for name, _ in t.resources})
        """Further resources that waiting tasks ask for."""
        self.bare = Room(
            np.array([m.cpu_milli for m in machines], np.int64),
            np.array([m.memory_mib for m in machines], np.int64),
            self._units([m.resources for m in machines]),
        )
        """Beside services only."""
        for s in snapshot.services:
            self.bare.milli[self.number[s.machine]] -= s.width_milli
            self.bare.memory_mib[self.number[s.machine]] -= s.memory_mib
        self.lasting = self.bare.copy()
        """Beside services and tasks that never end."""
        self.free = self.bare.copy()
        """Beside all that runs."""
        self._margin = settings.slo_margin
        self._welcome: dict[tuple[str, tuple[int, ...]], NDArray[np.int8]] = {}
        """By profile and allowed threads, [places]: 1 welcome, 0 not, -1 unknown."""
        self._book(snapshot.running, settings)

    def asked(self, task: Task) -> IntArray:
        """[further resources] units that a task asks for."""
        found: IntArray = self._units([task.resources])[0]
        return found

    def freed_below(self, priority: int) -> list[tuple[int, Room]]:
        """By priority below another one, ascending: the room of machines without the tasks up to it."""
        found = []
        for lower in sorted({int(p) for p in self._priority[self._priority < priority].tolist()}):
            room, gone = self.free.copy(), self._priority <= lower
            room.take(self._at[gone], -self._milli[gone], -self._memory_mib[gone], -self._task_units[gone])
            found.append((lower, room))
        return found

    def welcome(self, task: Task, rows: IntArray) -> BoolArray:
        """[rows] whether a task breaks no p95 goal on machines that run nothing else beside their services."""
        key = task.profile, task.threads
        if key not in self._welcome:
            self._welcome[key] = np.full(len(self.places), -1, np.int8)
        known, shapes = self._welcome[key], self.shape[rows]
        for at in set(shapes[known[shapes] < 0].tolist()):
            known[at] = self._keeps_goals(task, self.places[at])
        found: BoolArray = known[shapes] > 0
        return found

    def _keeps_goals(self, task: Task, place: Place) -> bool:
        if not place.slo_us:
            return True
        threads = task.threads_on(len(place.cores), self.snapshot.catalogue.jobs[task.profile])
        resident = Resident(task.profile, task.scale, threads, place.cores, 1.0, task.memory_mib)
        peaks = self._table.lone_peak_p95_us(self._table.host(place.host), resident)
        return all(peak <= self._margin * goal for peak, goal in zip(peaks, place.slo_us, strict=True))

    def _units(self, amounts: Sequence[tuple[tuple[str, int], ...]]) -> IntArray:
        """[amounts, further resources]"""
        shape = (len(amounts), len(self.resources))
        if not self.resources:
            return np.zeros(shape, np.int64)
        return np.array([[dict(a).get(name, 0) for name in self.resources] for a in amounts], np.int64).reshape(shape)

    def _book(self, running: Sequence[Running], settings: Settings) -> None:
        """What runs, as arrays [machines, most running] that are padded with zeros."""
        now = self.snapshot.now_s
        self._at: IntArray = np.fromiter((self.number[r.machine] for r in running), np.int64, len(running))
        columns = np.array(
            [
                (
                    r.width_milli,
                    r.task.memory_mib,
                    self.jobs[r.task.profile],
                    r.task.scale,
                    1.0 - r.progress,
                    -1.0 if r.task.goal_s is None else r.task.goal_s,
                    r.task.weight,
                    now - r.task.submit_s,
                    r.task.endless,
                    r.task.priority,
                )
                for r in running
            ],
            np.float64,
        ).reshape(len(running), 10)
        width, memory, number, scale, left, goal_s, weight, waited_s, stays, priority = columns.T
        self._milli, self._memory_mib = width.astype(np.int64), memory.astype(np.int64)
        self._task_units = self._units([r.task.resources for r in running])
        self._priority: IntArray = priority.astype(np.int64)
        at, shape = self._at, self.shape[self._at]
        job: IntArray = number.astype(np.int64)
        endless = stays > 0.0
        self.free.take(at, self._milli, self._memory_mib, self._task_units)
        rows = at[endless], self._milli[endless], self._memory_mib[endless], self._task_units[endless]
        self.lasting.take(*rows)
        profiles = self.profiles
        left_s, serial_s = profiles.rest(job, shape, left)
        demand = profiles.demand(job, shape, left, left_s)
        parallel = np.minimum(left, 1.0 - profiles.serial[job])
        parallel_demand = profiles.demand(job, shape, parallel, left_s - serial_s)
        left_s = np.where(endless, np.inf, left_s * scale)
        serial_s = np.where(endless, 0.0, serial_s * scale)
        best_s = np.where(endless, REFERENCE_RUN_S, profiles.alone_s.min(axis=1, initial=np.inf)[job] * scale)
        goal_s = np.where(goal_s >= 0.0, goal_s, settings.goal_factor * best_s)
        importance = weight * np.where(endless, 1.0, (best_s / REFERENCE_RUN_S) ** settings.length_weight)
        late = waited_s + np.where(endless, 0.0, left_s) > goal_s
        slope = importance * np.where(late & ~endless, settings.beta, settings.eps) / np.maximum(goal_s, 1e-9)
        pressure = profiles.pressure[job] * self.bandwidth[at]
        sensitivity = profiles.sensitivity[job] * self.bandwidth[at]
        cores = width / MILLI
        numbers = [left_s, serial_s, cores, memory, demand, parallel_demand, slope, pressure, sensitivity]
        # Equal rows alone are interchangeable: sums must not depend on the order of the snapshot.
        order = np.lexsort((*numbers[::-1], at))
        here = at[order]
        self.count: IntArray = np.bincount(at, minlength=len(self.names))
        """[machines] running tasks."""
        place = np.arange(len(running)) - (np.cumsum(self.count) - self.count)[here]
        self.running: FloatArray = np.zeros((len(self.names), int(self.count.max(initial=0)), RUNNING_NUMBERS))
        """[machines, most running, RUNNING_NUMBERS] by work left, the least first."""
        self.running[here, place] = np.stack(numbers, axis=1)[order]
        work_s = profiles.one_core_s[job, shape] * scale * left
        self.work_s = math.fsum(work_s[~endless].tolist())
        """Seconds that all running tasks with an end still need on one core each."""
        self.completes = not bool(endless.all())
        """Whether any running task will end by itself."""


def _profiles(catalogue: Catalogue, places: Sequence[Place], table: PaceTable) -> ProfileArrays:
    names = list(catalogue.jobs)
    shape = (len(names), len(places))
    alone, one = np.full(shape, np.inf), np.zeros(shape)
    for p, place in enumerate(places):
        host, cores = place.host, place.cores
        for j, name in enumerate(names):
            if cores:
                alone[j, p] = table.alone_s(host, cores, name, ())
                one[j, p] = table.alone_s(host, cores[:1], name, ())
    jobs = [catalogue.jobs[name] for name in names]
    return ProfileArrays(
        alone,
        one,
        np.array([p.serial_fraction if p.phase_order is PhaseOrder.SERIAL_FIRST else 0.0 for p in jobs]),
        np.array([p.sensitivity for p in jobs]),
        np.array([p.pressure for p in jobs]),
    )

"""All machines of a snapshot as arrays, with what runs there: what candidates are drawn and ranked from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.running_rows import RunningColumns
from flowsched.cluster.running_tasks import in_rows, lengths
from flowsched.cluster.settings import WORTH, Settings
from flowsched.cluster.snapshot import MILLI, Snapshot, Task
from flowsched.gpu.devices import TaskGpus, suits
from flowsched.gpu.shapes import GpuShape
from flowsched.gpu.tie_order import tie_ranks
from flowsched.pricing.goals import REFERENCE_RUN_S
from flowsched.pricing.gpu_prices import TIE, GpuMemory, MachineWorth, as_devices, in_whole_steps
from flowsched.pricing.sharing_kernel import add_courses, columns_with_courses, put_in_order
from flowsched.pricing.topology_prices import MachineSets, SetMemory, demand_for
from flowsched.round.candidate_kernel import with_room
from flowsched.round.cluster_layout import LayoutMemory, Place
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_models.pace_table import PaceTable
from flowsched_models.runtime import HostFactory, Resident


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
        found = np.empty(len(self.milli), np.bool_)
        with_room(self.milli, self.memory_mib, self.units, task.widths_milli[0], task.memory_mib, asked, found)
        return found


class ClusterArrays:
    """All machines of a snapshot in the order of their names, so that the order of its own decides nothing."""

    def __init__(self, snapshot: Snapshot, hosts: HostFactory, settings: Settings) -> None:
        """Work out what can be known without a forecast."""
        self.snapshot = snapshot
        self._there = in_rows(snapshot)
        layout = self._layout = hosts.attached(LayoutMemory).layout(snapshot, hosts)
        self.machines = layout.machines
        self.names, self.number, self.hash = layout.names, layout.number, layout.hash
        self.places, self.shape = layout.places, layout.shape
        self.batch_cores, self.serves, self.bandwidth = layout.batch_cores, layout.serves, layout.bandwidth
        self.jobs, self.profiles = layout.jobs, layout.profiles
        self._table = hosts.attached(PaceTable)
        self.resources = sorted({name for t in snapshot.pending for name, _ in t.resources})
        """Further resources that waiting tasks ask for."""
        units = self._units([m.resources for m in layout.machines] if self.resources else [()] * len(layout.machines))
        self.bare = Room(layout.milli.copy(), layout.memory_mib.copy(), units)
        """Beside services only."""
        self.lasting = self.bare.copy()
        """Beside services and tasks that never end."""
        self.free = self.bare.copy()
        """Beside all that runs."""
        self._margin = settings.slo_margin
        self._settings, self._hosts = settings, hosts
        self._set_costs: dict[tuple[str, TaskGpus], FloatArray] = {}
        self._gpu_memory, self._gpu_weight = hosts.attached(GpuMemory), settings.gpu_weight
        self._gpu_losses: dict[GpuShape, FloatArray] = {}
        self._factors: dict[str, FloatArray] = {}
        """By class, [shapes]."""
        self._welcome: dict[tuple[str, tuple[int, ...]], NDArray[np.int8]] = {}
        """By profile and allowed threads, [places]: 1 welcome, 0 not, -1 unknown."""
        self._book(self._there.columns, settings)

    def suits(self, task: Task) -> BoolArray:
        """[machines] that have the GPU model and the devices that a task asks for, however full they are."""
        wanted = task.gpus
        if wanted is None:
            return np.ones(len(self.names), np.bool_)
        return np.array([suits(m.gpus, wanted) for m in self._layout.machines], np.bool_)

    def has_devices(self, task: Task) -> BoolArray:
        """[machines] on which a task that asks for GPUs finds them free now; all for one that does not."""
        wanted = task.gpus
        if wanted is None:
            return np.ones(len(self.names), np.bool_)
        found: BoolArray = (self._devices_left >= wanted.share_milli).sum(axis=1) >= wanted.count
        return found

    @cached_property
    def _left(self) -> dict[str, tuple[int, ...]]:
        """What is left of each GPU, by machine."""
        return self.snapshot.devices_left()

    @cached_property
    def _devices_left(self) -> IntArray:
        """[machines, devices] thousandths; 0 where there is no device."""
        most = max((len(devices) for devices in self._left.values()), default=0)
        found: IntArray = np.zeros((len(self.names), most), np.int64)
        by_size: dict[int, list[str]] = {}
        for name, devices in self._left.items():
            by_size.setdefault(len(devices), []).append(name)
        for size, names in by_size.items():
            rows = [self.number[name] for name in names]
            found[rows, :size] = [self._left[name] for name in names]
        return found

    def gpu_costs(self, task: Task, rows: IntArray) -> FloatArray:
        """[rows] what the GPUs of some machines make a task cost there, the dearest price where it does not fit now."""
        if not self._left:
            return np.zeros(len(rows))
        if task.gpus is not None and self._sets is not None:
            key = task.profile, task.gpus
            if key not in self._set_costs:
                self._set_costs[key] = self._sets.costs(task.profile, task.gpus)
            return self._set_costs[key][rows]
        shape = task.gpu_shape
        if shape not in self._gpu_losses:
            found = in_whole_steps(self._machine_worth.losses((shape,))[0], self._gpu_memory.worth(self.snapshot))
            found = found + TIE * self._tie_ranks
            worst = np.where(np.isfinite(found), found, 0.0).max(initial=0.0)
            self._gpu_losses[shape] = self._gpu_weight * np.where(np.isfinite(found), found, worst)
        return self._gpu_losses[shape][rows]

    @property
    def has_gpus(self) -> bool:
        """Whether any machine has GPUs."""
        return bool(self._left)

    @cached_property
    def _tie_ranks(self) -> FloatArray:
        """[machines] their places in the order that says which of equal ones comes first, from 0 to below 1."""
        ranks = tie_ranks(tuple(self.names))
        return np.array([ranks[name] for name in self.names])

    @cached_property
    def _sets(self) -> MachineSets | None:
        """Sets of devices of each machine; None where these are priced by their worth."""
        if self._settings.gpu_sets == WORTH:
            return None
        memory = self._hosts.attached(SetMemory)
        memory.begin(self.snapshot.catalogue, demand_for(self.snapshot, self._settings))
        states = self.snapshot.devices_now()
        return MachineSets(memory, [states.get(name) for name in self.names])

    @cached_property
    def _machine_worth(self) -> MachineWorth:
        left, worth = self._left, self._gpu_memory.worth(self.snapshot)
        machines = as_devices(
            self.free.milli,
            self.free.memory_mib,
            [m.gpus for m in self._layout.machines],
            [left.get(name, ()) for name in self.names],
            worth.models,
        )
        return MachineWorth(worth, machines)

    def factors(self, task: Task) -> FloatArray:
        """[shapes] how many times its forecast a task is expected to run on each of ``places``; 1: nothing is learnt."""
        return self._factors_of("" if task.endless else task.run_class)

    def _factors_of(self, run_class: str) -> FloatArray:
        found = self._factors.get(run_class)
        if found is None:
            learnt = [self.snapshot.learnt_run_times.of(run_class, place.host.machine_type) for place in self.places]
            found = self._factors[run_class] = np.array([1.0 if each is None else each.factor for each in learnt])
        return found

    def _best_alone_s(self, running: RunningColumns) -> FloatArray:
        """[running tasks] the same as :meth:`best_alone_s` of each."""
        alone_s = self.profiles.alone_s
        best_s: FloatArray = alone_s.min(axis=1, initial=np.inf)[running.profile]
        if not self.snapshot.learnt_run_times.in_use:
            return best_s
        names = self._there.class_names
        kinds, kind_of = np.unique(running.run_class * len(alone_s) + running.profile, return_inverse=True)
        classes, jobs = np.divmod(kinds, len(alone_s))
        factors = np.array([self._factors_of(names[c]) for c in classes.tolist()]).reshape(len(kinds), len(self.places))
        of_kind: FloatArray = (alone_s[jobs] * factors).min(axis=1, initial=np.inf)
        return of_kind[kind_of]

    def best_alone_s(self, task: Task) -> float:
        """Seconds that a task takes alone where it is fastest, at scale 1."""
        return float((self.profiles.alone_s[self.jobs[task.profile]] * self.factors(task)).min(initial=np.inf))

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

    def _running_units(self) -> IntArray:
        """[running tasks, further resources] that they have."""
        if not self.resources:
            return np.zeros((len(self.snapshot.running), 0), np.int64)
        return self._units([r.task.resources for r in self._there.entries])

    def _book(self, running: RunningColumns, settings: Settings) -> None:
        """What runs, as arrays [machines, most running] that are padded with zeros."""
        now = self.snapshot.now_s
        self._at: IntArray = self._layout.row[running.machine]
        width, memory, scale, weight = running.width_milli, running.memory_mib, running.scale, running.weight
        goal_s, waited_s = running.goal_s, np.round(now - running.submit_s, 6)
        # What a task has left follows from its estimated length, its goal and importance from its forecast one.
        types = [place.host.machine_type for place in self.places]
        length = lengths(self.snapshot, running, self.shape[self._at], types)
        left = np.where(running.endless > 0.0, 1.0, 1.0 - running.progress / length)
        length_scale = length * scale * running.factor
        self._milli, self._memory_mib = width.astype(np.int64), memory.astype(np.int64)
        self._task_units = self._running_units()
        self._priority: IntArray = running.priority.astype(np.int64)
        at, shape = self._at, self.shape[self._at]
        job = running.profile
        endless = running.endless > 0.0
        self.free.take(at, self._milli, self._memory_mib, self._task_units)
        rows = at[endless], self._milli[endless], self._memory_mib[endless], self._task_units[endless]
        self.lasting.take(*rows)
        profiles = self.profiles
        left_s, serial_s = profiles.rest(job, shape, left)
        demand = profiles.demand(job, shape, left, left_s)
        parallel = np.minimum(left, 1.0 - profiles.serial[job])
        parallel_demand = profiles.demand(job, shape, parallel, left_s - serial_s)
        left_s = np.where(endless, np.inf, left_s * length_scale)
        serial_s = np.where(endless, 0.0, serial_s * length_scale)
        best_s = np.where(endless, REFERENCE_RUN_S, self._best_alone_s(running) * scale)
        goal_s = np.where(goal_s >= 0.0, goal_s, settings.goal_factor * best_s)
        plain = profiles.plain[job]
        exempt = plain & self.snapshot.waits_plain
        exponent = np.where(exempt, settings.length_exponent(True), settings.length_exponent(False))
        importance = weight * np.where(endless, 1.0, (best_s / REFERENCE_RUN_S) ** exponent)
        late = waited_s + np.where(endless, 0.0, left_s) > goal_s
        slope = importance * np.where(late & ~endless, settings.beta, settings.eps) / np.maximum(goal_s, 1e-9)
        pressure = profiles.pressure[job] * self.bandwidth[at]
        sensitivity = profiles.sensitivity[job] * self.bandwidth[at]
        cores = width / MILLI
        numbers = [left_s, serial_s, cores, memory, demand, parallel_demand, slope, pressure, sensitivity]
        self.first: IntArray = np.zeros(len(self.names) + 1, np.int64)
        """[machines + 1] the first task of each machine in ``running``."""
        np.cumsum(np.bincount(at, minlength=len(self.names)), out=self.first[1:])
        self.running: FloatArray = np.zeros((len(at), columns_with_courses(settings.slots)))
        """[running tasks, columns] machine by machine, by work left, the least first; with courses."""
        # Equal rows alone are interchangeable: sums must not depend on the order of the snapshot.
        put_in_order(at, np.stack(numbers, axis=1), self.first, self.running)
        add_courses(self.first, self.batch_cores, self.running)
        # A plain job holds all its cores for its run time.
        held = np.where(plain, np.maximum(1.0, cores), 1.0)
        work_s = profiles.one_core_s[job, shape] * length_scale * left * held
        self.work_s = math.fsum(work_s[~endless].tolist())
        """Core-seconds that all running tasks with an end still need."""
        self.completes = not bool(endless.all())
        """Whether any running task will end by itself."""

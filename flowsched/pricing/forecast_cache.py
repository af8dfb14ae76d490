"""What the models predict for the machines of a round: numbers for compiled forecasts, and answers to single questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from flowsched.cluster.compaction import View, long_running_resident, long_running_work, ready_s
from flowsched.cluster.resource import covers, without
from flowsched.cluster.running_tasks import lengths
from flowsched.cluster.settings import WORTH, Settings
from flowsched.cluster.snapshot import MILLI, Task
from flowsched.gpu.devices import WHOLE_MILLI, MachineGpus, use_of
from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.device_prices import DevicePrices
from flowsched.pricing.forecast_arrays import CORES as JOB_CORES
from flowsched.pricing.forecast_arrays import (
    DONE,
    JOB_NUMBERS,
    LATE_DONE,
    LATE_SCALE,
    LONG_RUNNING,
    MEMORY_MIB,
    READY_S,
    SCALE,
)
from flowsched.pricing.gpu_prices import GpuMemory, GpuPrices, concerns_devices
from flowsched.pricing.topology_prices import SetMemory, TopologyPrices
from flowsched.relations.relation import MACHINE, RelationKind
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.forecast import forecast
from flowsched_models.gpu_profile import NO_GPUS
from flowsched_models.neutral import NEUTRAL
from flowsched_models.pace_table import PaceTable
from flowsched_models.runtime import Host, HostFactory, Resident

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Forecast:
    """The future of one machine; times in seconds from now."""

    residents_s: tuple[float, ...]
    """Completion of each running task."""
    arrivals_s: tuple[float, ...]
    """Completion of each arriving task, in the order of the co-location."""
    starts_s: tuple[float, ...]
    """When each arriving task is bound; 0 for those that start now."""
    peak_p95_us: tuple[float, ...]
    """Highest p95 of each service until the last completion."""


class ForecastCache:
    """The groups and classes of a view as the compiled model takes them, and what is asked of single places.

    Arriving tasks are given the batch cores of their machine. With ``shares``, light ones may be given all cores instead
    where the snapshot lets.
    """

    def __init__(self, view: View, shares: bool, table: PaceTable, gpus: DevicePrices | None = None) -> None:
        """Register what runs; ``table`` outlives the round. ``gpus``: where machines or tasks have any."""
        self.view = view
        self.gpus = gpus
        self.table = table
        self.made = 0
        """Number of forecasts made."""
        self.shares = shares and view.snapshot.share_service_cores
        self.hosts: IntArray = np.array([table.host(g.host) for g in view.groups], np.int64)
        """[groups] number of each group's host."""
        self.first: IntArray = view.first
        """[groups + 1] the first row of each group's running tasks."""
        self.running_kinds: IntArray = self._running_kinds()
        """[running] kind of each task that runs on a group's machine, group by group."""
        self.running_jobs: FloatArray = self._running_jobs()
        """[running, JOB_NUMBERS], goals left open."""
        for g, group in enumerate(view.groups):
            if group.services:
                self._set_late_ends(g)
        self._light: dict[tuple[int, int, int], bool] = {}
        self._undisturbed: dict[tuple[int, Arrival], float] = {}
        self._bare: dict[str, Host] = {}
        self._alone_s: dict[int, list[float]] = {}
        self._resourceful = any(c.task.resources for c in view.classes)
        per_machine = (RelationKind.LIMIT, RelationKind.APART)
        self._local = tuple(r for r in view.snapshot.relations if r.key == MACHINE and r.kind in per_machine)

    def _running_kinds(self) -> IntArray:
        generation, found = self.table.generation, [np.zeros(0, np.int64)]
        for g, group in enumerate(self.view.groups):
            if group.there.rows:
                of = generation, group.host, group.machine.gpus
                found.append(group.there.kept("kinds", of, partial(self._kinds_there, g)))
        return np.concatenate(found)

    def _kinds_there(self, group: int) -> IntArray:
        here, host, catalogue = self.view.groups[group], int(self.hosts[group]), self.view.snapshot.catalogue
        found = []
        for r in here.there.tasks:
            gpus = use_of(catalogue, r.task.profile, here.machine.gpus, r.task.gpus, r.devices, r.remote)
            found.append(self.table.kind(host, r.resident if gpus is NO_GPUS else replace(r.resident, gpus=gpus)))
        return np.array(found, np.int64)

    def _running_jobs(self) -> FloatArray:
        snapshot, there = self.view.snapshot, self.view.there
        found: FloatArray = np.zeros((len(there.profile), JOB_NUMBERS))
        length, jobs = self._lengths(), [*snapshot.catalogue.jobs.values()]
        found[:, SCALE], found[:, DONE] = there.scale * there.factor * length, there.progress / length
        for row in np.flatnonzero(there.endless).tolist():
            found[row, SCALE], found[row, DONE] = long_running_work(jobs[there.profile[row]])
        for row in np.flatnonzero(there.start_s > snapshot.now_s).tolist():
            found[row, READY_S] = ready_s(float(there.start_s[row]), snapshot.now_s)
        found[:, JOB_CORES], found[:, MEMORY_MIB] = np.maximum(there.width_milli, 1.0) / MILLI, there.memory_mib
        found[:, LONG_RUNNING] = np.where(there.endless > 0.0, -1.0, 0.0)
        found[:, LATE_SCALE], found[:, LATE_DONE] = found[:, SCALE], found[:, DONE]
        return found

    def _lengths(self) -> FloatArray:
        """[running] estimated over forecast run time of each."""
        view, counts = self.view, np.diff(self.first)
        types = list(dict.fromkeys(group.machine.type for group in view.groups))
        number = {name: i for i, name in enumerate(types)}
        type_of = np.repeat(np.array([number[group.machine.type] for group in view.groups], np.int64), counts)
        return lengths(view.snapshot, view.there, type_of, types)

    def _set_late_ends(self, group: int) -> None:
        """What runs beside services, if it ends late."""
        here, now = self.view.groups[group], self.view.snapshot
        for row, running in enumerate(here.running, int(self.first[group])):
            if not running.task.endless:
                late = now.late_estimate(running, here.machine.type)
                self.running_jobs[row, LATE_SCALE], self.running_jobs[row, LATE_DONE] = late

    def kinds(self, group: int) -> IntArray:
        """Kind of each task that runs on a group's machine."""
        return self.running_kinds[self.first[group] : self.first[group + 1]]

    @cached_property
    def _shapes_key(self) -> int:
        """Stands for the shapes of machines in their order, with what never leaves them."""
        view = self.view
        shapes = []
        for g in view.shapes:
            here = view.groups[g]
            m = here.machine
            services = tuple((s.slo_us, s.width_milli, s.memory_mib) for s in here.services)
            stay = tuple((r.width_milli, r.task.memory_mib, r.task.resources, r.task.gpus) for r in here.endless)
            place = (int(self.hosts[g]), m.cpu_milli, m.memory_mib, m.vcpus, m.resources, m.gpus, here.batch_cores)
            shapes.append((*place, services, stay))
        return self.table.number(("shapes", self.shares, *shapes))

    def remembered(self, task_class: int, key: tuple[object, ...], make: Callable[[], Answer]) -> Answer:
        """What ``make`` answers for a class, from an earlier round where there was one with the same shapes.

        ``key`` says all else that the answer depends on. A class with a list of machines is asked anew in each round.
        """
        if self.view.classes[task_class].task.machines is not None:
            return make()
        return self.table.remembered((self._shapes_key, *key), make)

    def threads(self, group: int, task_class: int) -> int:
        """Threads that a class starts on a group's machines: all cores that batch may use there, as far as it may."""
        task = self.view.classes[task_class].task
        return task.threads_on(
            len(self.view.groups[group].batch_cores), self.view.snapshot.catalogue.jobs[task.profile]
        )

    def place(self, group: int, arrival: Arrival) -> tuple[tuple[int, ...], int]:
        """Virtual CPUs that an arriving task is given, and the threads that it starts on them."""
        here = self.view.groups[group]
        if arrival.shared:
            cores = tuple(range(here.machine.vcpus))
            task = self.view.classes[arrival.task_class].task
            return cores, task.threads_on(len(cores), self.view.snapshot.catalogue.jobs[task.profile])
        return here.batch_cores, self.threads(group, arrival.task_class)

    def may_share(self, group: int) -> bool:
        """Whether arriving tasks may use services' cores on a group's machines at all."""
        here = self.view.groups[group]
        return self.shares and bool(here.services) and bool(here.batch_cores)

    def light(self, group: int, task_class: int, width_milli: int) -> bool:
        """Whether a class with this width as its weight, alone on all cores of a group's machine, keeps every p95 goal.
        A job that was never measured is not light: it may press a service harder than is assumed of it.
        """
        group = self.view.shape_of[group]
        key = (group, task_class, width_milli)
        found = self._light.get(key)
        if found is None:
            task = self.view.classes[task_class].task
            shape = self.view.shapes.index(group)
            measured = task.profile != NEUTRAL
            found = self._light[key] = (
                measured
                and self.may_share(group)
                and self.remembered(
                    task_class,
                    ("light", shape, task.profile, task.threads, width_milli),
                    partial(self._keeps_goals, group, task_class, width_milli),
                )
            )
        return found

    def ways(self, group: int, task_class: int) -> tuple[tuple[int, bool], ...]:
        """Width and use of the services' cores as which a class may join a machine of a group: those without come first,
        narrow ones first.
        """
        if not self.view.groups[group].batch_cores or not self.view.allowed(
            task_class, self.view.groups[group].members[0]
        ):
            return ()
        widths = self.view.classes[task_class].task.widths_milli
        return tuple((w, s) for s in (False, True) for w in widths if not s or self.light(group, task_class, w))

    def best_alone_s(self, group: int, task_class: int) -> float:
        """Run time of a whole task with the group's batch cores to itself."""
        here, task = self.view.groups[group], self.view.classes[task_class].task
        return self.task_alone_s(here.host, here.batch_cores, task) * self.gpu_slowdown(here.machine.gpus, task)

    def gpu_slowdown(self, gpus: MachineGpus | None, task: Task) -> float:
        """How many times longer a task runs on the best GPUs of a machine than on the fastest model, alone."""
        return use_of(self.view.snapshot.catalogue, task.profile, gpus, task.gpus).slowdown

    def task_alone_s(self, host: Host, cores: tuple[int, ...], task: Task) -> float:
        """Run time of a whole task on these cores alone, in seconds, with the threads that it starts there."""
        scale = self.view.snapshot.expected_scale(task, host.machine_type)
        return self.table.alone_s(host, cores, task.profile, task.threads) * scale

    def best_left_s(self, group: int, task_class: int) -> float:
        """Run time of what is left of a task with the group's batch cores to itself; all of it, unless work was kept."""
        here, task = self.view.groups[group], self.view.classes[task_class].task
        return self.task_left_s(here.host, here.batch_cores, task) * self.gpu_slowdown(here.machine.gpus, task)

    def scales(self, task: Task) -> tuple[object, ...]:
        """A task's work relative to its profile's on every machine type: what its run times at a place are remembered by."""
        learnt = self.view.snapshot.learnt_run_times
        return task.scale, learnt.factors(task.run_class) if learnt.in_use and not task.endless else ()

    def task_left_s(self, host: Host, cores: tuple[int, ...], task: Task) -> float:
        """Run time of what is left of a task on these cores alone, in seconds."""
        if not task.done:
            return self.task_alone_s(host, cores, task)
        threads = task.threads_on(len(cores), self.view.snapshot.catalogue.jobs[task.profile])
        work = self.view.snapshot.estimate(task, task.done, host.machine_type)
        return host.alone_s(task.profile, threads, cores, *work)

    def alone_s(self, host: Host, cores: tuple[int, ...], profile: str, scale: float) -> float:
        """Run time on these cores alone, in seconds, with as many threads as the program takes there."""
        return self.table.alone_s(host, cores, profile, ()) * scale

    def undisturbed_s(self, group: int, arrival: Arrival) -> float:
        """Run time of an arriving task with the cores that it is given to itself, beside the group's services only."""
        if not arrival.shared:
            return self.best_left_s(group, arrival.task_class)
        key = (group, arrival)
        found = self._undisturbed.get(key)
        if found is None:
            alone = forecast(self.view.groups[group].host, [self.resident(group, arrival)])
            found = self._undisturbed[key] = alone.residents_s[0]
        return found

    def least_alone_s(self, group: int, task_class: int) -> float:
        """Run time that what is left of a task is never below on a group's machines.

        Where cores are shared with services, neighbours may take from a service what it does to others: it is left out.
        """
        if not self.may_share(group):
            return self.best_left_s(group, task_class)
        here, task = self.view.groups[group], self.view.classes[task_class].task
        host = self.bare_host(group)
        every = here.batch_cores, tuple(range(here.machine.vcpus))
        least = min(self.task_left_s(host, cores, task) for cores in every)
        return least * self.gpu_slowdown(here.machine.gpus, task)

    def residents_alone_s(self, group: int) -> list[float]:
        """Seconds that each running task of a group's machines has left, its cores to itself; infinity without an end."""
        found = self._alone_s.get(group)
        if found is None:
            here = self.view.groups[group]
            host = self.bare_host(group) if self.may_share(group) else here.host
            found = self._alone_s[group] = [
                math.inf if r.task.endless else host.alone_s(s.profile, s.threads, s.cores, s.scale, s.progress)
                for r, s in zip(here.running, here.residents, strict=True)
            ]
        return found

    def bare_host(self, group: int) -> Host:
        """A group's machine without services."""
        kind = self.view.groups[group].machine.type
        if kind not in self._bare:
            self._bare[kind] = Host(self.view.snapshot.catalogue, kind)
        return self._bare[kind]

    def slowdowns(self, group: int, colocation: Colocation) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """How many times slower than alone each task is while all are there: running tasks, then arriving ones.

        In the longer of their phases, and with those that start later too: nothing that is added ever lowers it.
        """
        residents = self.view.groups[group].residents
        factors = self._factors(group, residents, colocation)
        return factors[: len(residents)], factors[len(residents) :]

    def slowdowns_for_good(self, group: int, colocation: Colocation) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The same once all that has an end has ended; of running tasks only the long-running ones."""
        here = self.view.groups[group]
        stay = tuple(s for r, s in zip(here.running, here.residents, strict=True) if r.task.endless)
        factors = self._factors(group, stay, colocation)
        return factors[: len(stay)], factors[len(stay) :]

    def lone_peak_p95_us(self, group: int, arrival: Arrival) -> tuple[float, ...]:
        """Highest p95 of each service if an arriving task had a machine of the group to itself."""
        here = self.view.groups[group]
        if not here.services:
            return ()
        resident = self.resident(group, arrival)
        return self.table.lone_peak_p95_us(int(self.hosts[group]), resident)

    @cached_property
    def backlog_s(self) -> float:
        """Seconds that all remaining work needs if every core of the cluster shared in it at its best speed.

        A task's CPU-seconds are its run time on one core of its fastest group; nothing finishes everything sooner, as
        no number of threads speeds up more than linearly. A plain job, which runs as long on any number of cores, holds
        all that it asks for. Long-running tasks are no backlog.
        """
        return self.shared_by_all_s()

    def shared_by_all_s(self, without: Container[int] = ()) -> float:
        """The same without the waiting tasks of some classes."""
        view = self.view
        light = {g for g in view.shapes if self._any_light(g)}
        cores = sum(
            (group.machine.vcpus if shape in light else len(group.batch_cores)) * group.size
            for group, shape in zip(view.groups, view.shape_of, strict=True)
        )
        total = 0.0
        known: dict[tuple[object, ...], float] = {}
        for c, cls in enumerate(view.classes):
            task = cls.task
            if task.endless or c in without:
                continue
            asked = (task.widths_milli[0], task.memory_mib, task.resources, task.gpus, task.machines)
            key = (task.profile, *self.scales(task), *asked)
            if key not in known:
                known[key] = self.remembered(c, ("one core", *key), partial(self._on_one_core_s, c))
                known[key] *= self._held(task.profile, task.widths_milli[0])
            estimate = view.snapshot.estimate(task, task.done)
            whole = view.snapshot.expected_scale(task)
            total += len(cls.members) * (1.0 - estimate.done) * estimate.scale / whole * known[key]
        if view.candidates is not None:
            return (total + view.candidates.work_s) / max(1, view.candidates.batch_cores)
        for group in view.groups:
            for running, resident in zip(group.running, group.residents, strict=True):
                if running.task.endless:
                    continue
                one_core_s = self.alone_s(group.host, resident.cores[:1], resident.profile, resident.scale)
                held = self._held(resident.profile, running.width_milli)
                total += group.size * (1.0 - resident.progress) * one_core_s * held
        return total / max(1, cores)

    @cached_property
    def gpu_backlog_s(self) -> float:
        """Seconds that the waiting tasks which ask for GPUs need if all devices of the cluster shared in them, at the
        speed of the fastest.
        """
        view = self.view
        devices = sum(len(now.left) for now in view.snapshot.devices_now().values())
        total = 0.0
        for c, cls in enumerate(view.classes):
            wanted = cls.task.gpus
            if wanted is not None and not cls.task.endless:
                fitting = (g for g in view.shapes if view.could_fit(c, g, cls.task.widths_milli[0]))
                best_s = min((self.best_left_s(g, c) for g in fitting), default=0.0)
                total += len(cls.members) * best_s * wanted.milli / WHOLE_MILLI
        return total / max(1, devices)

    def _held(self, profile: str, width_milli: float) -> float:
        """Cores that a task holds for its run time on one core: of a measured job the one, of a plain job its request."""
        return max(1.0, width_milli / MILLI) if self.view.snapshot.catalogue.jobs[profile].is_plain else 1.0

    def _on_one_core_s(self, task_class: int) -> float:
        """Run time of a class on one core of its fastest shape; 0 where it fits on none."""
        view, task = self.view, self.view.classes[task_class].task
        fitting = [view.groups[g] for g in view.shapes if view.could_fit(task_class, g, task.widths_milli[0])]
        scales = ((g, view.snapshot.expected_scale(task, g.machine.type)) for g in fitting)
        return min((self.alone_s(g.host, g.batch_cores[:1], task.profile, s) for g, s in scales), default=0.0)

    def delay_s(self, task_class: int, start_after: int) -> float:
        """Seconds from binding to the program's start."""
        delay = self.view.snapshot.start_delay
        fresh = start_after == 0 and self.view.snapshot.is_new(self.view.classes[task_class].task)
        return delay.at_submission_s if fresh else delay.after_waiting_s

    def resident(self, group: int, arrival: Arrival) -> Resident:
        """An arriving task as the model sees it."""
        task = self.view.classes[arrival.task_class].task
        cores, threads = self.place(group, arrival)
        weight = arrival.width_milli / MILLI
        here = self.view.groups[group].machine
        gpus = use_of(self.view.snapshot.catalogue, task.profile, here.gpus, task.gpus)
        scale, done = self.view.snapshot.estimate(task, task.done, here.type)
        resident = Resident(task.profile, scale, threads, cores, weight, task.memory_mib, done, gpus=gpus)
        return long_running_resident(resident, self.view.snapshot) if task.endless else resident

    def possible(self, group: int, colocation: Colocation) -> bool:
        """Whether a machine of the group has the room, the resources and the relations for these arrivals."""
        here = self.view.groups[group]
        if not colocation:
            return True
        if not here.batch_cores:
            return False
        classes = self.view.classes
        now = [a for a in colocation if a.start_after == 0]
        cpu = sum(a.width_milli for a in now)
        memory = sum(classes[a.task_class].task.memory_mib for a in now)
        if cpu > here.free_milli or memory > here.free_memory_mib:
            return False
        if any(a.shared and not self.light(group, a.task_class, a.width_milli) for a in colocation):
            return False
        if self._resourceful and not self._resources_suffice(group, colocation):
            return False
        gpus = self.gpus
        if gpus is not None and any(gpus.asks(a.task_class) for a in colocation) and not gpus.fits(group, colocation):
            return False
        return not self._local or self._may_meet(group, colocation)

    def _factors(self, group: int, residents: Sequence[Resident], colocation: Colocation) -> tuple[float, ...]:
        host = self.view.groups[group].host
        joining = (self.resident(group, a) for a in colocation)
        occupants = [host.course(r)[1] for r in (*residents, *joining)]
        together = host.rates(tuple(occupants)).progress
        return tuple(host.rates((o,)).progress[o] / together[o] for o in occupants)

    def _keeps_goals(self, group: int, task_class: int, width_milli: int) -> bool:
        here = self.view.groups[group]
        peaks = self.lone_peak_p95_us(group, Arrival(task_class, 0, width_milli, True))
        return all(peak <= service.slo_us for service, peak in zip(here.services, peaks, strict=True))

    def _any_light(self, group: int) -> bool:
        return self.may_share(group) and any(
            self.light(group, c, width) for c, cls in enumerate(self.view.classes) for width in cls.task.widths_milli
        )

    def _resources_suffice(self, group: int, colocation: Colocation) -> bool:
        """Whether all that start now find their further resources free, and those that start later could find them."""
        here = self.view.groups[group]
        tasks = [self.view.classes[a.task_class].task for a in colocation]
        now = [t.resources for t, a in zip(tasks, colocation, strict=True) if a.start_after == 0 and t.resources]
        left = without(here.free_resources, *now)
        if any(left[name] < 0 for amounts in now for name, units in amounts if units > 0):
            return False
        later = (t for t, a in zip(tasks, colocation, strict=True) if a.start_after > 0 and t.resources)
        whole = dict(here.machine.resources)
        return all(covers(whole, t.resources) and self.view.supplied(t)[group] for t in later)

    def _may_meet(self, group: int, colocation: Colocation) -> bool:
        """Whether the relations whose domains are machines let these arrivals join, whenever they start."""
        for relation in self._local:
            name = relation.name
            joining = [self.view.classes[a.task_class].task for a in colocation]
            joining = [t for t in joining if name in t.holds or name in t.joins]
            if not joining:
                continue
            there = [r.task for r in self.view.groups[group].running]
            if relation.kind is RelationKind.LIMIT:
                more = sum(name in t.joins for t in joining)
                if more and more + sum(name in t.joins for t in there) > relation.most:
                    return False
            elif _meetings(name, [*there, *joining]) > _meetings(name, there):
                return False
        return True


def forecast_cache(view: View, settings: Settings, hosts: HostFactory, *, trial: bool = False) -> ForecastCache:
    """The forecasts of a round, or of a ``trial`` in it, for which GPUs are worth what they are in the round."""
    gpus: DevicePrices | None = None
    if concerns_devices(view) and settings.gpu_sets != WORTH:
        gpus = TopologyPrices(view, settings, hosts.attached(SetMemory))
    elif concerns_devices(view):
        memory = hosts.attached(GpuMemory)
        known = memory.last if trial else None
        gpus = GpuPrices(view, settings.gpu_weight, known or memory.worth(view.snapshot))
    return ForecastCache(view, settings.share_service_cores, hosts.attached(PaceTable), gpus)


def _meetings(name: str, tasks: list[Task]) -> int:
    """Pairs of one that holds a relation and another one that joins it."""
    holders = sum(name in t.holds for t in tasks)
    joiners = sum(name in t.joins for t in tasks)
    return holders * joiners - sum(name in t.holds and name in t.joins for t in tasks)

"""Machines with their services and what runs there, and how far that is estimated to be.

The progress of a task is not measured: it is estimated from its start and the models, and a start or an end on a machine
changes the estimates of all tasks there. A change takes time for its machine alone, and a look for what has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.running_rows import RunningRows
from flowsched.cluster.running_tasks import RunningTasks
from flowsched.cluster.snapshot import MILLI, Machine, Running, Service
from flowsched.gpu.devices import DevicesNow, use_of
from flowsched_models.catalogue import Catalogue
from flowsched_models.estimated_executions import EstimatedExecutions
from flowsched_models.gpu_profile import NO_GPUS
from flowsched_models.runtime import Host, HostFactory, Resident, ServiceLoad


def service_load(service: Service) -> ServiceLoad:
    """A service as the run-time model sees it."""
    return ServiceLoad(
        service.profile,
        service.cores,
        service.threads,
        service.width_milli / MILLI,
        service.qps,
        service.client,
    )


@dataclass
class OccupiedMachine:
    """A machine and what is there."""

    machine: Machine
    services: tuple[Service, ...]
    host: Host
    running: dict[str, Running] = field(default_factory=dict)
    """By name, of any progress."""
    estimated: bool = False
    """Whether it is estimated how far they are."""


class Occupancy(NamedTuple):
    """All machines at one moment, as a snapshot has them."""

    machines: tuple[Machine, ...]
    services: tuple[Service, ...]
    running: RunningTasks


class Course(NamedTuple):
    """What is estimated of a running task."""

    host: Host
    resident: Resident
    """The task as it was forecast, before its work began."""
    progress: float
    elapsed_s: float
    """For how long it is taken to have run."""


class OccupiedMachines:
    """Machines by name and running tasks by theirs; whatever is told of them happens at ``now_s``."""

    def __init__(
        self, catalogue: Catalogue, hosts: HostFactory, now_s: float = 0.0, *, estimating: bool = True
    ) -> None:
        """No machines. ``hosts`` may be shared so that rates are computed once. Not ``estimating``: every progress is 0."""
        self.now_s = now_s
        self._catalogue, self._hosts = catalogue, hosts
        self._estimating = estimating
        self._here: dict[str, OccupiedMachine] = {}
        self._running: dict[str, Running] = {}
        self._rows: dict[str, int] = {}
        """Of running tasks, in both of the next two."""
        self._table = RunningRows(catalogue)
        self._estimates = EstimatedExecutions(now_s)
        self._began_s: dict[str, float] = {}
        """When the estimate of a task began, of those on machines that are seen as a whole."""
        self._devices: dict[str, DevicesNow] = {}
        """Of machines with GPUs."""
        self._position: dict[str, int] = {}
        """Of machines in the next look."""
        self._shown: tuple[tuple[Machine, ...], tuple[Service, ...]] | None = None
        """All machines and services; None after a change, until they are asked for."""

    def __contains__(self, machine: str) -> bool:
        return machine in self._here

    def on(self, machine: str) -> OccupiedMachine:
        """A machine, to read alone. Raises ``KeyError`` for one that is not there."""
        return self._here[machine]

    def machine_of(self, task: str) -> str | None:
        """Where a task runs; None for one that does not."""
        running = self._running.get(task)
        return None if running is None else running.machine

    def advance(self, now_s: float) -> None:
        """The present is ``now_s`` from now on, if that is later."""
        self.now_s = max(self.now_s, now_s)
        self._estimates.advance(self.now_s)

    def look(self) -> Occupancy:
        """All of it as it is now; what happens later does not change it."""
        if self._shown is None:
            here = self._here.values()
            self._shown = tuple([m.machine for m in here]), tuple([s for m in here for s in m.services])
        machines, services = self._shown
        running = RunningTasks(self._table.look(), self._estimates.progress(), machines, self._devices.copy())
        return Occupancy(machines, services, running)

    def mark(self) -> LogMark[Running]:
        """All tasks that came and went until now."""
        return self._table.mark()

    @property
    def have_gpus(self) -> bool:
        """Whether any machine has GPUs."""
        return bool(self._devices)

    def devices(self, machine: str) -> DevicesNow:
        """The GPUs of a machine that has some."""
        return self._devices[machine]

    def course(self, task: str, now_s: float) -> Course | None:
        """What is estimated of a task that runs on a machine that is seen as a whole; None where nothing is. It changes
        nothing.
        """
        running = self._running.get(task)
        if running is None or not (here := self._here[running.machine]).estimated:
            return None
        now_s = max(now_s, self.now_s)
        progress = self._estimates.seen(running.machine, self._rows[task], now_s)
        return Course(here.host, _work(running), progress, now_s - self._began_s[task])

    # Machines and tasks one by one

    def add(self, machine: Machine, services: tuple[Service, ...]) -> None:
        """A machine joins, on which nothing runs but its services."""
        self._here[machine.name] = OccupiedMachine(machine, services, self._host(machine, services))
        self._position[machine.name] = len(self._position)
        self._shown = None
        if machine.gpus is not None:
            self._devices[machine.name] = DevicesNow.idle(machine.gpus)

    def remove(self, machine: str) -> tuple[str, ...]:
        """A machine leaves, and what runs there with it: the names of its tasks. Those after it move up."""
        here = self._here.pop(machine)
        if here.estimated:
            self._estimates.remove(machine)
        for name in here.running:
            self._forget(name)
        self._devices.pop(machine, None)
        self._table.close_gap(self._position[machine])
        self._position = {name: i for i, name in enumerate(self._here)}
        self._shown = None
        return tuple(here.running)

    def start(self, running: Running, progress: float) -> None:
        """A task comes, of this progress; its program starts when it says, which may lie ahead."""
        here, task = self._here[running.machine], running.task
        self._put(here, running)
        if task.gpus is not None:
            now = self._devices[running.machine]
            self._devices[running.machine] = now.with_task(task.profile, task.gpus, running.devices)
        if not self._estimating:
            return
        resident = running.resident.at(task.scale * running.factor, progress, running.start_s)
        gpus = use_of(self._catalogue, task.profile, here.machine.gpus, task.gpus, running.devices, running.remote)
        if gpus is not NO_GPUS:
            resident = replace(resident, gpus=gpus)
        if not here.estimated:
            here.estimated = True
            self._estimates.add(running.machine, here.host)
        self._estimates.start(running.machine, self._rows[task.name], resident)

    def stop(self, name: str) -> tuple[Running, float]:
        """A task leaves; with the progress that it is estimated to have. Raises ``KeyError`` for one that does not run."""
        running = self._running[name]
        here, task = self._here[running.machine], running.task
        progress = 0.0
        if here.estimated:
            progress = self._estimates.progress_of(running.machine, self._rows[name])
            self._estimates.stop(running.machine, self._rows[name])
        del here.running[name]
        self._forget(name)
        if task.gpus is not None:
            now = self._devices[running.machine]
            self._devices[running.machine] = now.without_task(task.profile, task.gpus, running.devices)
        return running, progress

    # Machines as a whole

    def see(self, machine: Machine, services: tuple[Service, ...], running: Iterable[Running]) -> None:
        """A machine, new or not, is like this from now on, with these tasks, without GPUs, and no others.

        What stays goes on from where it is, whatever else has changed. What has come begins now, and where nothing stays
        each began at its own start. Of tasks none of which ends by itself nothing is estimated.
        """
        name = machine.name
        if name not in self._here:
            self.add(machine, services)
        here = self._here[name]
        host = here.host
        if here.machine is not machine or here.services != services:
            host = self._host(machine, services)
            if (here.machine, here.services) != (machine, services):
                here.machine, here.services, self._shown = machine, services, None
        self._see(here, host, {r.task.name: r for r in running})

    def change(self, machine: str, running: dict[str, Running], gone: Iterable[str]) -> None:
        """:meth:`see` of a machine on which nothing changes but these tasks, by name, and those that are ``gone``."""
        here = self._here[machine]
        now = here.running | running
        for task in gone:
            now.pop(task, None)
        self._see(here, here.host, now)

    def _see(self, here: OccupiedMachine, host: Host, now: dict[str, Running]) -> None:
        name = here.machine.name
        for task in now:
            # It may be seen here before it is seen to be gone from elsewhere.
            if task not in here.running and task in self._running:
                self.stop(task)
        estimated = self._estimating and any(not r.task.endless for r in now.values())
        if here.estimated and estimated and not here.running.keys().isdisjoint(now):
            self._go_on(here, host, now)
            return
        now = dict(sorted(now.items(), key=_by_start))
        if here.estimated:
            self._estimates.remove(name)
        here.host, here.estimated = host, estimated
        self._occupy(here, now)
        if estimated:
            self._estimates.add(name, host, [(r.start_s, self._rows[task], _work(r)) for task, r in now.items()])
            self._began_s |= {task: r.start_s for task, r in now.items()}

    def resume(self, machine: str, progress: Mapping[str, float]) -> None:
        """Take this to be the progress of a machine's tasks from now on, however it came about; by name of all of them."""
        here = self._here[machine]
        self._estimates.remove(machine)
        self._estimates.add(machine, here.host)
        for task, running in here.running.items():
            self._estimates.start(machine, self._rows[task], replace(_work(running), progress=progress[task]))

    def resume_all(self) -> Iterator[tuple[str, Mapping[str, float]]]:
        """Let what is estimated go on from where it is now as if it had no history: each machine, by name, and the progress
        of its tasks.
        """
        progress = self._estimates.progress().by_row
        for name, here in sorted(self._here.items()):
            if here.estimated:
                done = {task: float(progress[self._rows[task]]) for task in here.running}
                self.resume(name, done)
                yield name, done

    @property
    def estimate_any(self) -> bool:
        """Whether anything is estimated of any machine."""
        return any(here.estimated for here in self._here.values())

    def _go_on(self, here: OccupiedMachine, host: Host, now: Mapping[str, Running]) -> None:
        """Tasks that are gone, new or given other cores, or a machine of another kind with the tasks that were there."""
        name, before, same = here.machine.name, here.running.copy(), host is here.host
        begin = [
            (task, r)
            for task, r in now.items()
            if not (same and (was := before.get(task)) is not None and (was is r or _work(was) == _work(r)))
        ]
        begin.sort(key=_by_start)
        done = {task: self._estimates.progress_of(name, self._rows[task]) for task, _ in begin if task in before}
        for task in before:
            if task in done or task not in now:
                self._estimates.stop(name, self._rows[task])
        if not same:
            self._estimates.remove(name)
            self._estimates.add(name, host)
            here.host = host
        self._occupy(here, now)
        for task, running in begin:
            resident = _work(running)
            began_s = self._began_s.setdefault(task, self.now_s)
            if task in done:
                progress = done[task]
                if before[task].task.profile != resident.profile:
                    # How long it runs has become known since it began: it has done what takes so long alone.
                    alone_s = host.alone_s(resident.profile, resident.threads, resident.cores, resident.scale)
                    progress = max(0.0, self.now_s - began_s) / alone_s
                resident = resident.at(resident.scale, progress, resident.ready_s)
            self._estimates.start(name, self._rows[task], resident)

    def _occupy(self, here: OccupiedMachine, now: Mapping[str, Running]) -> None:
        """These tasks are there and no others; what is estimated of them is another matter."""
        for name in [name for name in here.running if name not in now]:
            del here.running[name]
            self._forget(name)
        for name, running in now.items():
            before = here.running.get(name)
            if before is None:
                self._put(here, running)
            elif before is not running:
                self._running[name] = here.running[name] = running
                self._table.change(self._rows[name], running)

    def _put(self, here: OccupiedMachine, running: Running) -> None:
        name = running.task.name
        self._running[name] = here.running[name] = running
        self._rows[name] = self._table.put(running, self._position[running.machine])

    def _forget(self, name: str) -> None:
        del self._running[name]
        self._began_s.pop(name, None)
        self._table.drop(self._rows.pop(name))

    def _host(self, machine: Machine, services: Iterable[Service]) -> Host:
        return self._hosts.host(machine.type, (service_load(s) for s in services))


def _work(running: Running) -> Resident:
    """A task with its work as it was forecast at its start."""
    resident, factor = running.resident, running.factor
    return resident if factor == 1.0 else resident.at(resident.scale * factor, resident.progress, resident.ready_s)


def _by_start(item: tuple[str, Running]) -> tuple[float, str]:
    return item[1].start_s, item[0]

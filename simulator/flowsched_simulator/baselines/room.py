"""What each machine has left while a round hands it out, and which of its cores a task gets."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.resource import without
from flowsched.cluster.running_tasks import RunningTasks, entries_of
from flowsched.cluster.snapshot import MILLI, Machine, Running, Service, Snapshot, Task, cores_beside
from flowsched.gpu.devices import GpuJob, TaskGpus, fullest, given_back, has_devices, suits, taken, untouched
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_models.machine import MachineType
from flowsched_simulator.baselines.expectation import sibling_map

NO_CPU_MILLI = 1
"""A task that requests no CPU is placed with this much."""


@dataclass
class Room:
    """What one machine has left, while a round hands it out."""

    machine: Machine
    type: MachineType
    service_cores: frozenset[int]
    batch_cores: tuple[int, ...]
    capacity_milli: int
    """What tasks could request here with no other task around: the services' requests are subtracted."""
    capacity_memory_mib: int
    free_milli: int
    free_memory_mib: int
    busy: set[int]
    """Cores that a task may use already, where that is counted."""
    capacity_resources: Mapping[str, int] = field(default_factory=dict)
    free_resources: Mapping[str, int] = field(default_factory=dict)
    """Units of further resources that no task asked for."""
    devices: tuple[int, ...] = ()
    """What is left of each GPU, in thousandths."""
    gpu_jobs: tuple[GpuJob, ...] = ()
    """Tasks here that have GPUs, in a fixed order: equal machines with equal tasks compare equal."""
    without_cpu: int = 0
    without_memory: int = 0
    """Tasks and services here that request no CPU, or no memory; rules may count them as more than nothing."""
    given: Mapping[int, int] = field(default_factory=dict)
    """Cores that tasks with a given run time use, with the thousandths of each that these ask for, spread evenly."""
    given_milli: int = 0
    """What these tasks ask for together. No other task owns their cores, and they share them among themselves."""
    counts_owners: bool = True
    """Whether it is counted who has which core: not where all tasks share all of them."""

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.machine.name

    @property
    def unowned(self) -> tuple[int, ...]:
        """Batch cores that no task has, ascending."""
        busy = self.busy
        return tuple([c for c in self.batch_cores if c not in busy]) if busy else self.batch_cores

    @property
    def open_milli(self) -> int:
        """CPU for tasks with a given run time on cores that no other task owns."""
        return self.open_beside(len(self.unowned))

    def open_beside(self, unowned: int) -> int:
        """The same, where so many cores are unowned."""
        return (unowned + len(self.given)) * MILLI - self.given_milli


def has_gpus(room: Room, wanted: TaskGpus | None) -> bool:
    """Whether what a task asks for of GPUs is left on a machine."""
    return wanted is None or (suits(room.machine.gpus, wanted) and has_devices(room.devices, wanted))


def fullest_devices(room: Room, task: Task) -> tuple[int, ...]:
    """The devices that a task takes where its rule does not say which: the fullest that hold it."""
    return () if task.gpus is None else fullest(room.devices, task.gpus)


class Holder(NamedTuple):
    """A task on a machine, and what it has there."""

    task: Task
    width_milli: int
    cores: Collection[int]
    devices: tuple[int, ...]
    given: bool
    """Whether its run time is given."""


def occupy(room: Room, holders: Iterable[Holder]) -> None:
    """Take from a machine what tasks have there."""
    busy, given = set(room.busy), dict(room.given)
    for task, width_milli, cores, devices, has_given_run_time in holders:
        room.free_milli -= width_milli
        room.free_memory_mib -= task.memory_mib
        if task.resources:
            room.free_resources = without(room.free_resources, task.resources)
        if task.gpus is not None:
            room.devices = taken(room.devices, task.gpus, devices)
            room.gpu_jobs = tuple(sorted((*room.gpu_jobs, _gpu_job(task, devices))))
        room.without_cpu += width_milli <= NO_CPU_MILLI
        room.without_memory += not task.memory_mib
        if room.counts_owners:
            busy.update(cores)
            if has_given_run_time:
                _share_cores(given, width_milli, cores, 1)
                room.given_milli += width_milli
    room.busy, room.given = busy, given


def vacate(room: Room, running: Running, *, given: bool) -> None:
    """Give back to a machine what a task had there, but for cores of its own: others may be on them."""
    task = running.task
    room.free_milli += running.width_milli
    room.free_memory_mib += task.memory_mib
    for name, units in task.resources:
        room.free_resources = {**room.free_resources, name: room.free_resources.get(name, 0) + units}
    if task.gpus is not None:
        room.devices = given_back(room.devices, task.gpus, running.devices)
        rest = list(room.gpu_jobs)
        rest.remove(_gpu_job(task, running.devices))
        room.gpu_jobs = tuple(rest)
    room.without_cpu -= running.width_milli <= NO_CPU_MILLI
    room.without_memory -= not task.memory_mib
    if given and room.counts_owners:
        left = dict(room.given)
        _share_cores(left, running.width_milli, running.cores, -1)
        room.given = left
        room.given_milli -= running.width_milli


def _share_cores(given: dict[int, int], width_milli: int, cores: Collection[int], sign: int) -> None:
    """Count a task with a given run time on its cores, or no more."""
    each = sign * (width_milli // len(cores))
    for core in cores:
        milli = given.get(core, 0) + each
        if milli > 0:
            given[core] = milli
        else:
            given.pop(core, None)


def _gpu_job(task: Task, devices: Iterable[int]) -> GpuJob:
    return GpuJob(task.profile, tuple(sorted(devices)))


def pick_cores(room: Room, count: int) -> tuple[int, ...]:
    """Pick cores that no task has, so that hardware threads meet on a physical core as little as possible.

    Best is a core with an idle sibling, or none; then the sibling of a core picked before, which slows only
    the task itself; then that of another task's; a service's last, because its latency would pay.
    """
    sibling = sibling_map(room.type)
    free = room.unowned
    if not sibling:
        return free[:count]
    alone: dict[int, None] = {}
    beside_itself, beside_task, beside_service = [], [], []
    for core in free:
        other = sibling.get(core)
        if other in room.service_cores:
            beside_service.append(core)
        elif other in room.busy:
            beside_task.append(core)
        elif other in alone:
            beside_itself.append(core)
        else:
            alone[core] = None
    return tuple(sorted([*alone, *beside_itself, *beside_task, *beside_service][:count]))


def pick_shared_cores(room: Room, width_milli: int) -> tuple[int, ...]:
    """Cores for a task with a given run time: whole ones that no task has, and for a part of a core the fullest that has
    it left, so that others stay whole. Where no core has it left, those with most left, since such tasks may move.
    """
    whole, part = divmod(width_milli, MILLI)
    if not part and whole <= len(room.unowned):
        return pick_cores(room, whole)
    left = {c: MILLI - milli for c, milli in room.given.items()}
    holding = [c for c in left if 0 < part <= left[c]]
    count = whole + (part > 0)
    picked = pick_cores(room, min(len(room.unowned), whole if holding else count))
    rest = count - len(picked)
    if holding and rest == 1:
        shared = [min(holding, key=lambda c: (left[c], c))]
    else:
        shared = sorted(left, key=lambda c: (-left[c], c))[:rest]
    return tuple(sorted((*picked, *shared)))


class Kinds(NamedTuple):
    """Some machines by kind; K kinds."""

    rows: IntArray
    """[machines]"""
    firsts: list[int]
    """[K] the first row of each kind."""
    kind: IntArray
    """[machines] the number of each one's kind."""


class RoomLayout:
    """All machines by name with what services and running tasks leave free, kept from round to round.

    Only rooms where a task came or went, or that a round handed out of, are worked out again.
    """

    def __init__(self, snapshot: Snapshot, *, own_cores: bool) -> None:
        """Of a snapshot's machines and services, without what runs. ``own_cores``: whether tasks have cores of their own."""
        self._of = snapshot.catalogue, snapshot.machines, snapshot.services
        self._own_cores = own_cores
        self._idle = _idle_rooms(snapshot, own_cores)
        self._row = {room.name: row for row, room in enumerate(self._idle)}
        self._rooms = [copied(room) for room in self._idle]
        """With what runs there, as rounds hand them out."""
        self._here: list[dict[int, Running]] = [{} for _ in self._idle]
        """[machines] what runs there, by identity."""
        self._mark: LogMark[Running] | None = None
        """What of all that came and went ``_here`` has."""
        self._handed: set[int] = set()
        """Rows of rooms that are made again for the next round."""
        self._given_out: dict[tuple[int, str], Holder] = {}
        """By row and task, what the round gave; where that is carried out the room is as the round left it."""
        self.renewed: list[str] = []
        """Machines whose rooms are others than in the round before: a task came or went, or was to."""
        count = len(self._idle)
        self.free = np.zeros((count, 4), np.int64, "F")
        """[machines, 4] milli-CPU, MiB, batch cores that no task has, and what tasks with a given run time can still have on
        cores that no other task owns, in milli-CPU."""
        self.capacity = np.zeros((count, 4), np.int64, "F")
        """[machines, 4] the same with no task around."""
        self.has_cores: BoolArray = np.zeros(count, np.bool_)
        """[machines] whether there are batch cores."""
        self.devices = np.zeros((count, max((len(room.devices) for room in self._idle), default=0)), np.int64)
        """[machines, most GPUs of any] what is left of each GPU, in thousandths; 0 where a machine has fewer."""
        self.given_run_times = frozenset(
            name for name, job in snapshot.catalogue.jobs.items() if job.has_given_run_time
        )
        """Names of the profiles of tasks that take as long on any cores."""
        for row, room in enumerate(self._idle):
            self.has_cores[row] = bool(room.batch_cores)
        self._note(range(count))
        self.capacity[:] = self.free
        self.resources = sorted({name for m in snapshot.machines for name, _ in m.resources})
        """Further resources that any machine has."""
        self.most_devices = max((m.gpus.count for m in snapshot.machines if m.gpus is not None), default=0)
        """Most GPUs of any machine."""
        self.widest_milli: dict[tuple[object, ...], int] = {}
        """The widest request that an idle machine takes, by what else a task asks for."""
        self.fastest_s: dict[tuple[object, ...], float] = {}
        """How long tasks would last at least, by what tells; of one rule."""
        self.possible: dict[Hashable, Kinds] = {}
        """By demand, the machines where it would fit with no task around."""
        self.started_s: dict[tuple[object, ...], float] = {}
        """How long running tasks last on their cores, by what tells."""

    def serves(self, snapshot: Snapshot, *, own_cores: bool) -> bool:
        """Whether a snapshot has the same machines and services, and tasks have cores in the same way."""
        catalogue, machines, services = self._of
        if own_cores != self._own_cores:
            return False
        return snapshot.catalogue is catalogue and snapshot.machines is machines and snapshot.services is services

    def rooms(self, snapshot: Snapshot) -> Sequence[Room]:
        """The rooms of a snapshot, for one round to hand out: the next one has others in the same sequence."""
        running = snapshot.running
        mark = running.mark if isinstance(running, RunningTasks) else None
        changes = None if mark is None else mark.since(self._mark)
        if changes is None:
            for here in self._here:
                here.clear()
            self._handed.update(range(len(self._here)))
            self._given_out.clear()
            changes = [(r, True) for r in entries_of(running)]
        renewed: set[int] = set()
        went: list[Running] = []
        for r, came in changes:
            row = self._row[r.machine]
            if not came:
                del self._here[row][id(r)]
                went.append(r)
                continue
            self._here[row][id(r)] = r
            given = self._given_out.pop((row, r.task.name), None)
            if given is not None and given[1:4] == (r.width_milli, r.cores, r.devices):
                renewed.add(row)
            else:
                self._handed.add(row)
        self._handed.update(row for row, _ in self._given_out)
        self._given_out.clear()
        for row in self._handed:
            room = self._rooms[row] = copied(self._idle[row])
            occupy(room, map(self._holder, self._here[row].values()))
        for r in went:
            row = self._row[r.machine]
            if row not in self._handed:
                self._leave(row, r)
                renewed.add(row)
        self._note(self._handed)
        self._mark = mark
        self.renewed = [self._rooms[row].name for row in self._handed | renewed]
        self._handed.clear()
        return self._rooms

    def _leave(self, row: int, running: Running) -> None:
        """Give a room back what a task had that is gone, with all others there: quicker than to count them all."""
        room = self._rooms[row] = copied(self._rooms[row])
        vacate(room, running, given=running.task.profile in self.given_run_times)
        if room.counts_owners:
            room.busy = {core for other in self._here[row].values() for core in other.cores}
        self._note_left(row, room)

    def row(self, name: str) -> int:
        """The row of a machine."""
        return self._row[name]

    def give_out(self, room: Room, holder: Holder) -> None:
        """Give a task its share of a room."""
        row = self._row[room.name]
        occupy(room, (holder,))
        self._given_out[row, holder.task.name] = holder
        self._note_left(row, room)

    def handed_out(self, room: Room) -> None:
        """Take note that a round has changed a room otherwise; it is worked out again for the next one."""
        row = self._row[room.name]
        self._handed.add(row)
        self._note((row,))

    def _note(self, rows: Collection[int]) -> None:
        """Note in the columns what rooms have left."""
        for row in rows:
            self._note_left(row, self._rooms[row])

    def _note_left(self, row: int, room: Room) -> None:
        self.free[row] = _left(room)
        if room.devices:
            self.devices[row, : len(room.devices)] = room.devices

    def _holder(self, r: Running) -> Holder:
        return Holder(r.task, r.width_milli, r.cores, r.devices, r.task.profile in self.given_run_times)


def _left(room: Room) -> tuple[int, int, int, int]:
    unowned = len(room.unowned)
    return room.free_milli, room.free_memory_mib, unowned, room.open_beside(unowned)


def _idle_rooms(snapshot: Snapshot, own_cores: bool) -> list[Room]:
    """By name."""
    here: dict[str, list[Service]] = {m.name: [] for m in snapshot.machines}
    for s in snapshot.services:
        here[s.machine].append(s)
    rooms = []
    for m in sorted(snapshot.machines, key=lambda m: m.name):
        services = here[m.name]
        milli = m.cpu_milli - sum(s.width_milli for s in services)
        memory_mib = m.memory_mib - sum(s.memory_mib for s in services)
        room = Room(
            machine=m,
            type=snapshot.catalogue.machine_types[m.type],
            service_cores=frozenset(c for s in services for c in s.cores),
            batch_cores=cores_beside(m, services),
            capacity_milli=milli,
            capacity_memory_mib=memory_mib,
            free_milli=milli,
            free_memory_mib=memory_mib,
            busy=set(),
            capacity_resources=dict(m.resources),
            free_resources=dict(m.resources),
            devices=untouched(m.gpus),
            without_cpu=sum(s.width_milli <= NO_CPU_MILLI for s in services),
            without_memory=sum(not s.memory_mib for s in services),
            counts_owners=own_cores,
        )
        rooms.append(room)
    return rooms


class RoomsOfRows(Sequence[Room]):
    """Some of all machines, looked up when they are asked for: many rules look at the first one alone."""

    def __init__(self, rooms: Sequence[Room], rows: IntArray) -> None:
        """``rows``: which of them, in order."""
        self._rooms, self._rows = rooms, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Room: ...

    @overload
    def __getitem__(self, index: slice) -> RoomsOfRows: ...

    def __getitem__(self, index: int | slice) -> Room | RoomsOfRows:
        if isinstance(index, slice):
            return RoomsOfRows(self._rooms, self._rows[index])
        return self._rooms[int(self._rows[index])]

    def __iter__(self) -> Iterator[Room]:
        return map(self._rooms.__getitem__, self._rows.tolist())


def copied(room: Room) -> Room:
    """The same, to be taken from: that changes no value in place. Quicker than ``replace``."""
    other = object.__new__(Room)
    other.__dict__.update(room.__dict__)
    return other

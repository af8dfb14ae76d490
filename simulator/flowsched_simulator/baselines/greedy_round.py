"""One round of a baseline: a working copy of the cluster, what fits where, and the decisions so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowsched.cluster.decision import Decisions, LatePostponements, Placement, Postponement, Preemption
from flowsched.cluster.domain_counts import DomainCounts, demand_text
from flowsched.cluster.resource import amount_text, covers
from flowsched.cluster.running_tasks import running_on
from flowsched.cluster.snapshot import MILLI, Machine, Running, Snapshot, Task
from flowsched.gpu.devices import TaskGpus, suits
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_models.machine import MachineType
from flowsched_simulator.baselines.expectation import OVERRUN, load_s, spread, told_s
from flowsched_simulator.baselines.room import (
    NO_CPU_MILLI,
    Holder,
    Kinds,
    Room,
    RoomLayout,
    RoomsOfRows,
    copied,
    fullest_devices,
    has_gpus,
    pick_cores,
    pick_shared_cores,
    vacate,
)

MOST_KNOWN = 50_000
"""Run times that are kept; with more, all are forgotten."""

PickDevices = Callable[[Room, Task], tuple[int, ...]]


class Demand(NamedTuple):
    """What tasks share that fit on the same machines, relations aside."""

    shares_cores: bool
    """Whether they may be on cores of others: those with a given run time."""
    width_milli: int
    memory_mib: int
    resources: tuple[tuple[str, int], ...]
    machines: tuple[str, ...] | None
    gpus: TaskGpus | None


class Round:
    """A working copy of the cluster in one round, and the decisions so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        own_cores: bool,
        seed: int = 0,
        preemptive: bool = False,
        layout: RoomLayout | None = None,
    ) -> None:
        """Copy what the snapshot says is free; the snapshot itself stays as it is.

        ``preemptive``: whether running tasks may be preempted at all. ``layout``: the one of an earlier round, if it serves.
        """
        self.snapshot = snapshot
        self.own_cores = own_cores
        if layout is None or not layout.serves(snapshot, own_cores=own_cores):
            layout = RoomLayout(snapshot, own_cores=own_cores)
        self.layout = layout
        self.rooms = self.layout.rooms(snapshot)
        self.domain_counts = DomainCounts.of(snapshot)
        self.preemptive = preemptive
        self._seed = seed
        self._placements: list[Placement] = []
        self._postponements: list[Postponement] = []
        self._preemptions: list[Preemption] = []
        self._preempted: set[str] = set()
        self._residents: dict[str, list[Running]] = {}
        """What ran before the round, by name, of machines that were asked for."""
        self._told_s: dict[tuple[object, ...], float] = {}
        self._loads_s: dict[str, float] = {}
        """By machine, of those that were asked for."""
        self.nowhere: set[Demand] = set()
        """Demands that no machine has room for, whatever else is placed."""
        self.explains = True
        """Whether the words are of use in which a task is told why it waits."""
        self._shortages: dict[Demand, str] = {}
        """What is short for a demand, until something is placed."""
        self.pick_devices: PickDevices = fullest_devices
        """Which GPUs of a machine a task takes."""
        self.tight_devices: PickDevices = fullest_devices
        """Those that leave most to others."""
        self.version = 0
        """Another number whenever something on machines has changed."""
        self._before: list[tuple[dict[str, object], float | None]] | None = None
        """What placements of an attempt found, so that they can be taken back: their machine, and its load."""

    @cached_property
    def _machines(self) -> dict[str, Machine]:
        return {m.name: m for m in self.snapshot.machines}

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return {t.name: t for t in self.snapshot.pending}

    @cached_property
    def rng(self) -> np.random.Generator:
        """Chance that depends on the seed and the round alone: the same snapshot meets the same fate, whatever its clock."""
        return np.random.default_rng([self._seed, self.snapshot.round])

    def width_milli(self, task: Task, request_milli: int) -> int:
        """The request, or the widest that fits somewhere if the request fits on no machine even when idle.

        A task with a given run time has what it declares, whatever is requested for it: it would take no longer with less.
        """
        if self.has_given_run_time(task):
            return max(NO_CPU_MILLI, task.request_milli)
        widest = self._widest_milli(task)
        if widest <= 0 or request_milli <= widest:
            return max(NO_CPU_MILLI, request_milli)
        if not self.own_cores:
            return widest
        # A program that accepts only 1, 2, 4, ... threads would leave the remaining cores of its own idle.
        profile = self.snapshot.catalogue.jobs[task.profile]
        return min(widest, profile.threads_for(cores_for(widest)) * MILLI)

    def has_given_run_time(self, task: Task) -> bool:
        """Whether the task takes as long on any cores."""
        return task.profile in self.layout.given_run_times

    def demand_of(self, task: Task, width_milli: int) -> Demand:
        """The demand of a task that is granted so much CPU."""
        shares = self.own_cores and self.has_given_run_time(task)
        return Demand(shares, width_milli, task.memory_mib, task.resources, task.machines, task.gpus)

    def allowed(self, task: Task) -> Sequence[Room]:
        """Machines that the task may run on, by name."""
        return self._among(task, None)

    def possible(self, task: Task, width_milli: int, among: BoolArray | None = None) -> Sequence[Room]:
        """Machines where the task would fit if no other task were there; ``among``: [machines] only of these."""
        enough = self._enough(self.layout.capacity, task, width_milli)
        rooms = self._among(task, enough if among is None else enough & among)
        if not task.resources and task.gpus is None:
            return rooms
        return [r for r in rooms if covers(r.capacity_resources, task.resources) and _suits(r, task)]

    def kinds(self, task: Task, width_milli: int) -> Kinds:
        """The machines of :meth:`possible` by kind: those that are alike take the same time for a task alone."""
        known, demand = self.layout.possible, self.demand_of(task, width_milli)
        if demand not in known:
            rooms = self.possible(task, width_milli)
            numbers: dict[tuple[str, tuple[int, ...]], int] = {}
            kind = [numbers.setdefault((room.type.name, room.batch_cores), len(numbers)) for room in rooms]
            rows = [self.layout.row(room.name) for room in rooms]
            firsts = [rows[kind.index(number)] for number in range(len(numbers))]
            known[demand] = Kinds(np.array(rows, np.int64), firsts, np.array(kind, np.int64))
        return known[demand]

    def is_possible(self, task: Task, width_milli: int) -> bool:
        """Whether the task would fit anywhere if no other task were there."""
        return width_milli <= self._widest_milli(task)

    def candidates(self, task: Task, width_milli: int) -> Sequence[Room]:
        """Machines where the task fits now, by name."""
        demand = self.demand_of(task, width_milli)
        if demand in self.nowhere:
            return []
        enough = self._enough(self.layout.free, task, width_milli)
        if task.gpus is not None:
            enough &= (self.layout.devices >= task.gpus.share_milli).sum(axis=1) >= task.gpus.count
        found = self._among(task, enough)
        if task.resources:
            found = [r for r in found if covers(r.free_resources, task.resources)]
        if task.gpus is not None and task.gpus.models:
            found = [r for r in found if _suits(r, task)]
        if not found:
            self.nowhere.add(demand)
        if not self.domain_counts.concerns(task):
            return found
        return [r for r in found if self.domain_counts.refusal(task, r.name) is None]

    def has_room(self, task: Task, width_milli: int, room: Room) -> bool:
        """Whether the task fits on a machine now, whatever relations and its user say."""
        return (
            width_milli <= room.free_milli
            and task.memory_mib <= room.free_memory_mib
            and width_milli <= self.available_milli(room, task)
            and covers(room.free_resources, task.resources)
            and has_gpus(room, task.gpus)
        )

    def available_milli(self, room: Room, task: Task) -> int:
        """The widest request of such a task that the machine can take now, whatever its memory."""
        if not room.batch_cores:
            return 0
        if not self.own_cores:
            return room.free_milli
        on_cores = room.open_milli if self.has_given_run_time(task) else len(room.unowned) * MILLI
        return min(room.free_milli, on_cores)

    def place(self, task: Task, width_milli: int, room: Room, pick: PickDevices | None = None) -> None:
        """Give the task its share of the machine; ``pick``: instead of ``pick_devices``."""
        given = self.has_given_run_time(task)
        if not self.own_cores:
            cores = room.batch_cores
        elif given:
            cores = pick_shared_cores(room, width_milli)
        else:
            cores = pick_cores(room, cores_for(width_milli))
        threads = task.threads_on(len(cores), self.snapshot.catalogue.jobs[task.profile])
        devices = (pick or self.pick_devices)(room, task)
        if self._before is not None:
            self._before.append((dict(vars(room)), self._loads_s.get(room.name)))
        self.layout.give_out(room, Holder(task, width_milli, cores, devices, given))
        self.version += 1
        self._shortages.clear()
        if room.name in self._loads_s:
            self._loads_s[room.name] += self.added_s(task, room)
        if self.domain_counts.concerns(task):
            self.domain_counts.add(task, room.name)
        placement = Placement(task.name, room.name, width_milli, threads, cores, devices=tuple(sorted(devices)))
        self._placements.append(placement)

    def load_s(self, room: Room) -> float:
        """Work believed to be left on a machine: seconds until it, all batch cores busy, has done it."""
        if room.name not in self._loads_s:
            found = 0.0
            for r in self._there((room,))[0]:
                if room.batch_cores:
                    found += max(OVERRUN, 1.0 - r.progress) * self.added_s(r.task, room)
            for p in self._placements:
                if p.machine == room.name:
                    found += self.added_s(self._tasks[p.task], room)
            self._loads_s[room.name] = found
        return self._loads_s[room.name]

    def added_s(self, task: Task, room: Room) -> float:
        """By how much a task adds to the load of a machine."""
        return load_s(self.snapshot.catalogue, self._expected(task, room.type), room.type, room.batch_cores)

    def told_s(self, task: Task, width_milli: int, room: Room) -> float:
        """Seconds from start to end, as policies are told, of what is left of a task with so much of an idle machine."""
        task = self._expected(task, room.type)
        key = (
            task.profile,
            task.scale,
            task.done,
            task.run_s,
            task.endless,
            width_milli,
            room.type.name,
            room.batch_cores,
        )
        found = self._told_s.get(key)
        if found is None:
            cores = spread(room.type, room.batch_cores, cores_for(width_milli))
            found = self._told_s[key] = told_s(self.snapshot.catalogue, task, room.type, cores)
        return found

    def fastest_s(self, task: Task, width_milli: int) -> float:
        """The same on the fastest of all machines that could ever take the task; 0 where there is none."""
        known = self.layout.fastest_s
        factors = self.snapshot.learnt_run_times.factors(task.run_class)
        demand = self.demand_of(task, width_milli)
        key = (task.profile, task.scale, factors, task.done, task.run_s, task.endless, demand)
        if key not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            # One machine of each kind is enough; clusters have many alike.
            firsts = self.kinds(task, width_milli).firsts
            known[key] = min((self.told_s(task, width_milli, self.rooms[row]) for row in firsts), default=0.0)
        return known[key]

    def started_s(self, running: Running) -> float:
        """Seconds from start to end, as policies are told, of what a running task started with, on the cores that it has."""
        catalogue, known, machine_type = (
            self.snapshot.catalogue,
            self.layout.started_s,
            self._machines[running.machine].type,
        )
        task = self._expected(running.task, catalogue.machine_types[machine_type])
        key = (task.profile, task.scale, task.done, task.run_s, task.endless, machine_type, running.cores)
        found = known.get(key)
        if found is None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            found = known[key] = told_s(catalogue, task, catalogue.machine_types[machine_type], running.cores)
        return found

    def _expected(self, task: Task, machine_type: MachineType) -> Task:
        """A task with the work that its class is known to have on a type of machine."""
        scale = self.snapshot.expected_scale(task, machine_type.name)
        return task if scale == task.scale else replace(task, scale=scale)

    def machine(self, name: str) -> Machine:
        """A machine by its name."""
        return self._machines[name]

    @property
    def preempted(self) -> int:
        """Preemptions so far."""
        return len(self._preempted)

    def is_placed(self, task: Task) -> bool:
        """Whether the round has given the task a place."""
        return any(p.task == task.name for p in reversed(self._placements))

    def residents(self, rooms: Sequence[Room]) -> list[list[Running]]:
        """Tasks that ran on each of some machines before this round and still do, by name. To look them up costs as much for
        many machines as for one.
        """
        there = self._there(rooms)
        if not self._preempted:
            return there
        return [[r for r in residents if r.task.name not in self._preempted] for residents in there]

    def _there(self, rooms: Sequence[Room]) -> list[list[Running]]:
        """The same with those that the round has preempted. By name, so that sums do not depend on an order that carries no
        meaning.
        """
        known = self._residents
        missing = {room.name for room in rooms if room.name not in known}
        if missing:
            known.update((name, []) for name in missing)
            for r in running_on(self.snapshot, missing):
                known[r.machine].append(r)
            for name in missing:
                known[name].sort(key=lambda r: r.task.name)
        return [known[room.name] for room in rooms]

    def preempt(self, resident: Running, room_for: Task) -> None:
        """Let a running task wait again; its work is kept."""
        self._preempted.add(resident.task.name)
        self._preemptions.append(Preemption(resident.task.name, resident.machine, room_for.name, 0.0, keeps_work=True))
        room = self.rooms[self.layout.row(resident.machine)]
        vacate(room, resident, given=self.has_given_run_time(resident.task))
        room.busy = self._held(room, ())
        self.layout.handed_out(room)
        self.version += 1
        self.nowhere.clear()
        self._shortages.clear()

    def left_by(self, room: Room, gone: Sequence[Running]) -> Room:
        """A machine as it would be if some of its residents left it."""
        other = copied(room)
        other.busy = self._held(room, gone)
        for resident in gone:
            vacate(other, resident, given=self.has_given_run_time(resident.task))
        return other

    def _held(self, room: Room, gone: Sequence[Running]) -> set[int]:
        """The cores of those that stay on a machine, and of those that were placed on it, where that is counted."""
        if not self.own_cores:
            return set()
        names = {r.task.name for r in gone}
        (residents,) = self.residents((room,))
        stay = {c for r in residents if r.task.name not in names for c in r.cores}
        return stay.union(*(p.cores for p in self._placements if p.machine == room.name))

    def begin_attempt(self) -> None:
        """From here on placements can be taken back."""
        self._before = []

    def end_attempt(self) -> None:
        """What is placed stays."""
        self._before = None

    def take_back(self) -> None:
        """Undo the last placement of the attempt."""
        assert self._before, "no placement of an attempt is left"
        placement = self._placements.pop()
        room = self.rooms[self.layout.row(placement.machine)]
        found, load_s = self._before.pop()
        vars(room).update(found)
        self.layout.handed_out(room)
        self.version += 1
        task = self._tasks[placement.task]
        if self.domain_counts.concerns(task):
            self.domain_counts.remove(task, placement.machine)
        self.nowhere.clear()
        self._shortages.clear()
        self._loads_s.pop(room.name, None)
        if load_s is not None:
            self._loads_s[room.name] = load_s

    @property
    def placed(self) -> int:
        """Placements so far."""
        return len(self._placements)

    def postpone(self, task: Task, reason: str) -> None:
        """Let the task wait."""
        waited_s = max(0.0, self.snapshot.age_s(task))
        self._postponements.append(Postponement(task.name, reason, waited_s))

    def shortage(self, task: Task, width_milli: int) -> str:
        """Say why the task fits nowhere now, with numbers."""
        if self.domain_counts.concerns(task):
            return self._shortage(task, width_milli)
        demand = self.demand_of(task, width_milli)
        if demand not in self._shortages:
            self._shortages[demand] = self._shortage(task, width_milli)
        return self._shortages[demand]

    def _shortage(self, task: Task, width_milli: int) -> str:
        allowed = self.allowed(task)
        if not allowed:
            names = ", ".join(task.machines or ()) or "no machine"
            return f"may run on {names} only; none of the cluster's {len(self.rooms)} machines is among these"
        if not self.is_possible(task, width_milli):
            return self._impossibility(task, width_milli, allowed)
        cpu, memory = cores_text(width_milli), f"{task.memory_mib} MiB"
        most_cpu = max(self.available_milli(r, task) for r in allowed)
        if most_cpu < width_milli:
            return f"needs {cpu} on one machine; {_emptiest(allowed)} has {_number(most_cpu)} free"
        most_memory = max(r.free_memory_mib for r in allowed)
        if most_memory < task.memory_mib:
            return f"needs {memory} on one machine; {_emptiest(allowed)} has {most_memory} MiB free"
        wide = [r for r in allowed if self.available_milli(r, task) >= width_milli]
        both = [r for r in wide if r.free_memory_mib >= task.memory_mib]
        roomy = [r for r in both if covers(r.free_resources, task.resources)]
        if both and not roomy:
            return (
                f"needs {amount_text(task.resources)} on one machine beside {cpu} and {memory}; no machine has all free"
            )
        if roomy and task.gpus is not None and not any(has_gpus(r, task.gpus) for r in roomy):
            return f"needs {task.gpus} on one machine beside {cpu} and {memory}; {_most_left(roomy, task.gpus)}"
        if roomy:
            refusals = [r for room in roomy if (r := self.domain_counts.refusal(task, room.name)) is not None]
            return f"every machine with room is closed to it by {demand_text(refusals[0])}"
        best = max(wide, key=lambda r: r.free_memory_mib)
        return (
            f"needs {cpu} and {memory} on the same machine; {best.name} has "
            f"{_number(self.available_milli(best, task))} and only {best.free_memory_mib} MiB free"
        )

    def decisions(self, late: LatePostponements | None = None) -> Decisions:
        """The outcome of the round; ``late``: the postponements, where they are put into words only if asked for."""
        return Decisions(
            placements=tuple(self._placements),
            postponements=tuple(self._postponements) if late is None else late,
            preemptions=tuple(self._preemptions) if self.preemptive else None,
        )

    def _impossibility(self, task: Task, width_milli: int, allowed: Sequence[Room]) -> str:
        memory = max(r.capacity_memory_mib for r in allowed)
        if memory < task.memory_mib:
            return (
                f"needs {task.memory_mib} MiB on one machine; the largest of {len(allowed)} offers "
                f"{max(0, memory)} MiB even when idle"
            )
        short = [r for r in allowed if not covers(r.capacity_resources, task.resources)]
        if len(short) == len(allowed):
            return (
                f"needs {amount_text(task.resources)} on one machine; none of {len(allowed)} offers that even when idle"
            )
        if task.gpus is not None and not any(_suits(r, task) for r in allowed):
            return f"needs {task.gpus} on one machine; none of {len(allowed)} has that even when idle"
        cpu = self._widest_milli(task)
        return (
            f"needs {cores_text(width_milli)} and {task.memory_mib} MiB on one machine; with that much "
            f"memory the largest of {len(allowed)} offers {_number(max(0, cpu))} even when idle"
        )

    def _enough(self, left: IntArray, task: Task, width_milli: int) -> BoolArray:
        """[machines] whether a task fits into what is left, but for further resources."""
        enough: BoolArray = (left[:, 0] >= width_milli) & (left[:, 1] >= task.memory_mib) & self.layout.has_cores
        if not self.own_cores:
            return enough
        on_cores = left[:, 3] if self.has_given_run_time(task) else left[:, 2] * MILLI
        return enough & (on_cores >= width_milli)

    def layout_need(self, task: Task, width_milli: int) -> tuple[int, int, int, int]:
        """What a task takes of a machine, in the columns of what is left in the layout."""
        if not self.own_cores:
            return width_milli, task.memory_mib, 0, 0
        if self.has_given_run_time(task):
            return width_milli, task.memory_mib, 0, width_milli
        cores = cores_for(width_milli)
        return width_milli, task.memory_mib, cores, cores * MILLI

    def _among(self, task: Task, wanted: BoolArray | None) -> Sequence[Room]:
        """Those of the wanted machines, of all without any, that the task may run on, by name."""
        rooms = self.rooms if wanted is None else RoomsOfRows(self.rooms, wanted.nonzero()[0])
        if task.machines is None:
            return rooms
        names = set(task.machines)
        return [r for r in rooms if r.name in names]

    def _widest_milli(self, task: Task) -> int:
        """The widest request that an idle machine could take; 0 where none could."""
        asked = (task.machines, task.memory_mib, task.resources, task.gpus)
        known, key = self.layout.widest_milli, (*asked, self.own_cores)
        if key not in known:
            known[key] = max((self._capacity_milli(r) for r in self.possible(task, 0)), default=0)
        return known[key]

    def _capacity_milli(self, room: Room) -> int:
        return min(room.capacity_milli, len(room.batch_cores) * MILLI) if self.own_cores else room.capacity_milli


def _suits(room: Room, task: Task) -> bool:
    """Whether a machine has the GPUs that a task asks for, however full they are."""
    return task.gpus is None or suits(room.machine.gpus, task.gpus)


def _most_left(rooms: Sequence[Room], wanted: TaskGpus) -> str:
    """What the machine has left that comes closest to what a task asks for."""
    suited = [r for r in rooms if suits(r.machine.gpus, wanted)]
    if not suited:
        return "none with that much free has such GPUs"
    most = max(suited, key=lambda r: (sum(left >= wanted.share_milli for left in r.devices), max(r.devices)))
    return f"{most.name} has {', '.join(f'{left}m' for left in sorted(most.devices, reverse=True))} of its GPUs left"


def cores_for(width_milli: int) -> int:
    """Whole cores that hold a request."""
    return -(-width_milli // MILLI)


def cores_text(width_milli: int) -> str:
    """For example ``1 core``, ``2.5 cores``."""
    return f"{_number(width_milli)} core{'' if width_milli == MILLI else 's'}"


def _number(milli: int) -> str:
    return f"{milli / MILLI:.10g}"


def _emptiest(rooms: Collection[Room]) -> str:
    return f"the emptiest of {len(rooms)}" if len(rooms) > 1 else next(r.name for r in rooms)

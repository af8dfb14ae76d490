"""What all baselines share: what a task is granted, what machines have left, and the greedy loop itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from flowsched.cluster.decision import Decisions, Placement, Postponement
from flowsched.cluster.resource import amount_text, covers, without
from flowsched.cluster.snapshot import MILLI, Machine, Snapshot, Task
from flowsched.relations.census import Census, demand_text
from flowsched.relations.gang import Gang, gangs_of
from flowsched_models.machine import MachineType
from flowsched_simulator.baselines.expectation import load_s, sibling_map


@dataclass(frozen=True)
class Granting:
    """What a baseline, which does not choose widths itself, gives every task.

    ``request``: the CPU request, as declared by the task's user or the same number of cores for all. It
    counts against the machine's allocatable CPU, and is the task's weight where cores are shared.

    ``cores``: ``own``: as many virtual CPUs as the request, rounded up, that no other task has; ``shared``:
    all CPUs of the machine that no service owns, shared by weight among those who are there, so that none
    stays idle.

    A request that exceeds what any machine could ever give the task (its memory, its allowed machines and the
    services considered) is lowered to the widest that fits somewhere; such a task would otherwise wait for
    ever.
    """

    request: Literal["declared"] | int = "declared"
    cores: Literal["own", "shared"] = "own"

    def __post_init__(self) -> None:
        """Refuse what could not be granted."""
        if self.request != "declared" and self.request < 1:
            raise ValueError(f"request must be 'declared' or at least 1 core, not {self.request}")
        if self.cores not in ("own", "shared"):
            raise ValueError(f"cores must be 'own' or 'shared', not {self.cores!r}")

    @property
    def label(self) -> str:
        """Readable, and distinct for each granting."""
        request = "declared request" if self.request == "declared" else f"request {self.request}"
        return f"{request}, {self.cores} cores"

    def request_milli(self, task: Task) -> int:
        """The request before it is compared with what machines can give."""
        return task.request_milli if self.request == "declared" else self.request * MILLI


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
    """Cores that a task may use already."""
    load_s: float
    """Work believed to be left here: seconds until the machine, all batch cores busy, has done it."""
    capacity_resources: Mapping[str, int] = field(default_factory=dict)
    free_resources: Mapping[str, int] = field(default_factory=dict)
    """Units of further resources that nobody asked for."""

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.machine.name

    @property
    def unowned(self) -> tuple[int, ...]:
        """Batch cores that no task has, ascending."""
        return tuple(c for c in self.batch_cores if c not in self.busy)


def pick_cores(room: Room, count: int) -> tuple[int, ...]:
    """Pick cores that no task has, so that hardware threads meet on a physical core as little as possible.

    Best is a core with an idle sibling, or none; then the sibling of a core picked before, which slows only
    the task itself; then that of another task's; a service's last, because its latency would pay.
    """
    sibling = sibling_map(room.type)
    picked: list[int] = []
    free = list(room.unowned)

    def disturbance(core: int) -> tuple[int, int]:
        other = sibling.get(core)
        if other in room.service_cores:
            return 3, core
        if other in room.busy:
            return 2, core
        return int(other in picked), core

    for _ in range(count):
        best = min(free, key=disturbance)
        free.remove(best)
        picked.append(best)
    return tuple(sorted(picked))


class Round:
    """A working copy of the cluster in one round, and the decisions so far."""

    def __init__(self, snapshot: Snapshot, *, own_cores: bool, seed: int = 0) -> None:
        """Copy what the snapshot says is free; the snapshot itself stays as it is."""
        self.snapshot = snapshot
        self.own_cores = own_cores
        self.rooms = _rooms(snapshot)
        self.census = Census.of(snapshot)
        self._seed = seed
        self._placements: list[Placement] = []
        self._postponements: list[Postponement] = []

    @cached_property
    def rng(self) -> np.random.Generator:
        """Chance that depends on the seed and the round alone: the same snapshot meets the same fate."""
        return np.random.default_rng([self._seed, self.snapshot.round, max(0, round(self.snapshot.now_s * 1000))])

    def width_milli(self, task: Task, request_milli: int) -> int:
        """The request, or the widest that fits somewhere if the request fits on no machine even when idle."""
        widest = max((self._capacity_milli(r) for r in self._roomy(task)), default=0)
        if widest <= 0 or request_milli <= widest:
            return max(1, request_milli)
        if not self.own_cores:
            return widest
        # A program that accepts only 1, 2, 4, ... threads would leave the remaining cores of its own idle.
        profile = self.snapshot.catalogue.jobs[task.profile]
        return min(widest, profile.threads_for(cores_for(widest)) * MILLI)

    def allowed(self, task: Task) -> list[Room]:
        """Machines that the task may run on, by name."""
        return [r for r in self.rooms if task.machines is None or r.name in task.machines]

    def possible(self, task: Task, width_milli: int) -> list[Room]:
        """Machines where the task would fit if no other task were there."""
        return [r for r in self._roomy(task) if width_milli <= self._capacity_milli(r)]

    def candidates(self, task: Task, width_milli: int) -> list[Room]:
        """Machines where the task fits now, by name."""
        return [
            r
            for r in self.allowed(task)
            if width_milli <= self.available_milli(r)
            and task.memory_mib <= r.free_memory_mib
            and covers(r.free_resources, task.resources)
            and self.census.refusal(task, r.name) is None
        ]

    def available_milli(self, room: Room) -> int:
        """The widest request that the machine can take now, whatever its memory."""
        if not room.batch_cores:
            return 0
        return min(room.free_milli, len(room.unowned) * MILLI) if self.own_cores else room.free_milli

    def place(self, task: Task, width_milli: int, room: Room) -> None:
        """Give the task its share of the machine."""
        cores = pick_cores(room, cores_for(width_milli)) if self.own_cores else room.batch_cores
        threads = task.threads_on(len(cores), self.snapshot.catalogue.jobs[task.profile])
        room.free_milli -= width_milli
        room.free_memory_mib -= task.memory_mib
        room.free_resources = without(room.free_resources, task.resources)
        room.busy = room.busy | set(cores)
        room.load_s += load_s(self.snapshot.catalogue, task, room.type, room.batch_cores)
        self.census.add(task, room.name)
        self._placements.append(Placement(task.name, room.name, width_milli, threads, cores))

    def attempt(self) -> Callable[[], None]:
        """Remember how things are; what is returned undoes all placements since."""
        rooms = tuple(replace(r) for r in self.rooms)
        census = self.census.copy()
        placed = len(self._placements)

        def undo() -> None:
            self.rooms = rooms
            self.census = census
            del self._placements[placed:]

        return undo

    def postpone(self, task: Task, reason: str) -> None:
        """Let the task wait."""
        waited_s = max(0.0, self.snapshot.now_s - task.submit_s)
        self._postponements.append(Postponement(task.name, reason, waited_s))

    def shortage(self, task: Task, width_milli: int) -> str:
        """Say why the task fits nowhere now, with numbers."""
        allowed = self.allowed(task)
        if not allowed:
            names = ", ".join(task.machines or ()) or "no machine"
            return f"may run on {names} only; none of the cluster's {len(self.rooms)} machines is among these"
        if not self.possible(task, width_milli):
            return self._impossibility(task, width_milli, allowed)
        cpu, memory = cores_text(width_milli), f"{task.memory_mib} MiB"
        most_cpu = max(self.available_milli(r) for r in allowed)
        if most_cpu < width_milli:
            return f"needs {cpu} on one machine; {_emptiest(allowed)} has {_number(most_cpu)} free"
        most_memory = max(r.free_memory_mib for r in allowed)
        if most_memory < task.memory_mib:
            return f"needs {memory} on one machine; {_emptiest(allowed)} has {most_memory} MiB free"
        both = [r for r in allowed if self.available_milli(r) >= width_milli and r.free_memory_mib >= task.memory_mib]
        roomy = [r for r in both if covers(r.free_resources, task.resources)]
        if both and not roomy:
            return (
                f"needs {amount_text(task.resources)} on one machine beside {cpu} and {memory}; no machine has all free"
            )
        if roomy:
            refusals = [r for room in roomy if (r := self.census.refusal(task, room.name)) is not None]
            return f"every machine with room is closed to it by {demand_text(refusals[0])}"
        best = max((r for r in allowed if self.available_milli(r) >= width_milli), key=lambda r: r.free_memory_mib)
        return (
            f"needs {cpu} and {memory} on the same machine; {best.name} has "
            f"{_number(self.available_milli(best))} and only {best.free_memory_mib} MiB free"
        )

    def decisions(self) -> Decisions:
        """The outcome of the round."""
        return Decisions(placements=tuple(self._placements), postponements=tuple(self._postponements))

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
        cpu = max((self._capacity_milli(r) for r in self._roomy(task)), default=0)
        return (
            f"needs {cores_text(width_milli)} and {task.memory_mib} MiB on one machine; with that much "
            f"memory the largest of {len(allowed)} offers {_number(max(0, cpu))} even when idle"
        )

    def _roomy(self, task: Task) -> list[Room]:
        return [
            r
            for r in self.allowed(task)
            if task.memory_mib <= r.capacity_memory_mib and covers(r.capacity_resources, task.resources)
        ]

    def _capacity_milli(self, room: Room) -> int:
        if not room.batch_cores:
            return 0
        return min(room.capacity_milli, len(room.batch_cores) * MILLI) if self.own_cores else room.capacity_milli


class Baseline(ABC):
    """A greedy scheduler: it takes tasks in an order and gives each a machine where it fits now, if there is
    one.

    Subclasses are the rules: which order, which machine, and whether the first that does not fit holds up the
    rest.
    """

    name: str
    description: str
    head_blocks = False
    """Whether a task that must wait makes all behind it wait."""
    uses_granting = True
    """Whether the granting makes a difference at all."""

    def __init__(self, granting: Granting, seed: int = 0) -> None:
        """``seed`` matters to rules that leave something to chance."""
        self.granting = granting
        self.seed = seed

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round over all pending tasks."""
        this = Round(snapshot, own_cores=self.has_own_cores(), seed=self.seed)
        blocking = ""
        order = self.order(this)
        gang_of = {t: gang for gang in gangs_of(snapshot, order) for t in gang.members}
        for t, task in enumerate(order):
            if t in gang_of:
                # The whole group is placed, or waits, when its first member's turn comes.
                if t == gang_of[t].members[0]:
                    blocking = self._settle_gang(gang_of[t], [order[m] for m in gang_of[t].members], this, blocking)
                continue
            width = self.width_milli(task, this)
            rooms = [] if blocking else this.candidates(task, width)
            if rooms:
                this.place(task, width, self.choose(task, width, rooms, this))
                continue
            this.postpone(task, blocking or this.shortage(task, width))
            # A task that no machine could ever take holds up nobody; it would do so for ever.
            if self.head_blocks and not blocking and this.possible(task, width):
                needs = self._needs(task, width, this)
                blocking = f"waits behind {task.name}, which needs {needs} (first come, first served)"
        return this.decisions()

    def _settle_gang(self, gang: Gang[tuple[int, ...]], members: Sequence[Task], this: Round, blocking: str) -> str:
        """Place as many members of a task group as fit if they are enough, else nobody; who blocks the queue now."""
        undo = this.attempt()
        waiting = [] if blocking else list(members)
        placed: set[str] = set()
        progress = True
        while waiting and progress:
            left = []
            for task in waiting:
                width = self.width_milli(task, this)
                rooms = this.candidates(task, width)
                if rooms:
                    this.place(task, width, self.choose(task, width, rooms, this))
                    placed.add(task.name)
                else:
                    left.append(task)
            progress = len(left) < len(waiting)
            waiting = left
        if len(placed) >= gang.needed:
            for task in waiting:
                this.postpone(task, this.shortage(task, self.width_milli(task, this)))
            return blocking
        undo()
        reason = gang.why_all_wait(len(placed), this.snapshot.now_s)
        for task in members:
            this.postpone(task, blocking or reason)
        able = all(this.possible(t, self.width_milli(t, this)) for t in members)
        if self.head_blocks and not blocking and able and gang.complete:
            return f"waits behind task group {gang.group.name} (first come, first served)"
        return blocking

    def has_own_cores(self) -> bool:
        """Whether each task gets cores that nobody else has."""
        return self.granting.cores == "own"

    def width_milli(self, task: Task, this: Round) -> int:
        """The request that the task is placed with."""
        return this.width_milli(task, self.granting.request_milli(task))

    def order(self, this: Round) -> Sequence[Task]:
        """The queue: by priority, then by arrival."""
        return sorted(this.snapshot.pending, key=by_arrival)

    @abstractmethod
    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """Choose one of the machines (at least one, by name) where the task fits now."""

    def _needs(self, task: Task, width_milli: int, this: Round) -> str:
        cpu = cores_text(width_milli)
        # The task fits nowhere: where it would find the cores, it must be memory that is missing.
        short_of_memory = any(width_milli <= this.available_milli(r) for r in this.allowed(task))
        return f"{cpu} and {task.memory_mib} MiB" if short_of_memory else cpu


def by_arrival(task: Task) -> tuple[int, float, str]:
    """Sort key: higher priority first, then who came first, then the name."""
    return -task.priority, task.submit_s, task.name


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


def _rooms(snapshot: Snapshot) -> tuple[Room, ...]:
    milli = {m.name: m.cpu_milli for m in snapshot.machines}
    memory = {m.name: m.memory_mib for m in snapshot.machines}
    for s in snapshot.services:
        milli[s.machine] -= s.width_milli
        memory[s.machine] -= s.memory_mib
    free_milli, free_memory = snapshot.free_milli(), snapshot.free_memory_mib()
    free_resources = snapshot.free_resources()
    rooms = {
        m.name: Room(
            machine=m,
            type=snapshot.catalogue.machine_types[m.type],
            service_cores=snapshot.service_cores(m.name),
            batch_cores=snapshot.batch_cores(m),
            capacity_milli=milli[m.name],
            capacity_memory_mib=memory[m.name],
            free_milli=free_milli[m.name],
            free_memory_mib=free_memory[m.name],
            busy=set(),
            load_s=0.0,
            capacity_resources=dict(m.resources),
            free_resources=free_resources[m.name],
        )
        for m in sorted(snapshot.machines, key=lambda m: m.name)
    }
    # By name, so that sums of loads do not depend on an order that carries no meaning.
    for r in sorted(snapshot.running, key=lambda r: r.task.name):
        room = rooms[r.machine]
        room.busy.update(r.cores)
        if room.batch_cores:
            left = max(0.0, 1.0 - r.progress)
            room.load_s += left * load_s(snapshot.catalogue, r.task, room.type, room.batch_cores)
    return tuple(rooms.values())

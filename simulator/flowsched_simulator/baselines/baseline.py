"""The greedy loop that all baselines share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cache, partial
from typing import Any

from flowsched.cluster.decision import Decisions, LatePostponements, Postponement
from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.running_tasks import entries_of
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.relations.gang import Gang, gangs_of
from flowsched.relations.gang_search import GangSearch
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round, cores_text
from flowsched_simulator.baselines.room import Room, RoomLayout
from flowsched_simulator.baselines.room_places import RoomPlaces, alike
from flowsched_simulator.baselines.waiting import Waiting, keeps_queue


class Baseline(ABC):
    """A greedy scheduler: it takes tasks in an order and gives each a machine where it fits now, if there is
    one.

    Subclasses are the rules: which order, which machine, and whether the first that does not fit holds up the
    rest.
    """

    name: str
    description: str
    """One line, without a full stop."""
    told: tuple[Knowledge, ...] = ()
    """What the rule reads beside requests, memory, relations, priorities and times of arrival."""
    reads_progress = True
    """Whether the rule, or what it asks of a round, reads how far running tasks are, or tasks wait again with the work that
    they have done: else a run that neither keeps records nor learns does not estimate it. Each class says so for itself.
    """
    head_blocks = False
    """Whether a task that must wait makes all behind it wait."""
    uses_granting = True
    """Whether the granting makes a difference at all."""
    draws: bool | None = None
    """Whether the seed decides anything; None, in a baseline of another package: perhaps."""
    layout: RoomLayout | None = None
    """The one of the last round: machines and services seldom change."""

    def __init_subclass__(cls) -> None:
        """A rule derived from one that reads no progress may read it."""
        super().__init_subclass__()
        if "reads_progress" not in vars(cls):
            cls.reads_progress = True

    def __init__(self, granting: Granting, seed: int = 0) -> None:
        """``seed`` matters to rules that leave something to chance."""
        self.granting = granting
        self.seed = seed

    waiting: Waiting | None = None
    """What the last round left waiting, where that is kept."""

    def decide(self, snapshot: Snapshot) -> Decisions:
        """One round over all pending tasks."""
        this = self.round_of(snapshot)
        self.layout = this.layout
        if not self._keeps_its_queue():
            order = self.order(this)
            settled = self._give_turns(self.turns(order, this), order, this)
            if missed := sorted(t.name for t in snapshot.pending if t.name not in settled):
                raise ValueError(f"order and turns leave out {missed[0]}; they must have every task that waits, once")
            return this.decisions()
        if self.waiting is None:
            self.waiting = self.queue()
        self.waiting.catch_up(this)
        this.explains = False
        turns = self.waiting.in_turn(this, partial(self.passes, this), partial(self.most_s, this))
        self._give_turns(turns, self.waiting.grouped(snapshot.round), this)
        count = len(snapshot.pending) - this.placed
        return this.decisions(LatePostponements(count, partial(self._postponements, snapshot)))

    def queue(self) -> Waiting:
        """What is kept of what waits, from round to round; empty."""
        return Waiting(self.rank, self.width_milli, self.least_s)

    def _keeps_its_queue(self) -> bool:
        """Whether a task's place in the queue and its request are the same in each round, and only machines where it fits
        are of use to it: then a round need not look at all that waits.
        """
        return _keeps_queue(type(self))

    def _postponements(self, snapshot: Snapshot) -> Sequence[Postponement]:
        """Why each task waits: the round gone through again, which decides the same, with a turn for each task."""
        other = copy(self)
        other.layout = None
        this = other.round_of(snapshot)
        order = other.order(this)
        other._give_turns(other.turns(order, this), order, this)
        return this.decisions().postponements

    def _give_turns(self, turns: Iterable[Task], tasks: Sequence[Task], this: Round) -> set[str]:
        """Place tasks, or let them wait, one after the other; the names of these. ``tasks``: at least all members of task
        groups, in the order of the queue.
        """
        blocking = ""
        snapshot = this.snapshot
        gang_of: dict[str, Gang[tuple[int, ...]]] = {}
        if snapshot.task_groups:
            running = (r.task.group for r in entries_of(snapshot.running))
            gangs = gangs_of(snapshot.task_groups, running, [t.group for t in tasks])
            gang_of = {tasks[m].name: gang for gang in gangs for m in gang.members}
        settled: set[str] = set()
        for task in turns:
            if task.name in settled:
                continue
            if blocking and not this.explains:
                break
            if task.name in gang_of:
                # The whole group is placed, or waits, when the turn of any of its members comes.
                gang = gang_of[task.name]
                members = [tasks[m] for m in gang.members]
                settled.update(t.name for t in members)
                blocking = self._settle_gang(gang, members, this, blocking)
                continue
            settled.add(task.name)
            width = self.width_milli(task, this)
            rooms = [] if blocking else self.rooms_for(task, width, this)
            if rooms:
                this.place(task, width, self.chosen(task, width, rooms, this))
                continue
            # A task that no machine could ever take holds up no other; it would do so forever.
            holds_up = not blocking and this.is_possible(task, width)
            behind = self.held_up([task], 1, None, this) if holds_up else ""
            if this.explains:
                this.postpone(task, blocking or self.why_waits(task, width, this))
            blocking = blocking or behind
        return settled

    def _settle_gang(self, gang: Gang[tuple[int, ...]], members: Sequence[Task], this: Round, blocking: str) -> str:
        """Place as many members of a task group as fit if they are enough, else none; which task blocks the queue now."""
        search = None
        if not blocking and gang.complete:
            search = GangSearch(_Start(self, members, this), gang.needed)
            this.begin_attempt()
            found = search.fit()
            this.end_attempt()
            if found:
                for m in search.left:
                    this.postpone(members[m], this.shortage(members[m], self.width_milli(members[m], this)))
                return blocking
        able = all(this.is_possible(t, self.width_milli(t, this)) for t in members)
        holds_up = not blocking and able and gang.complete
        behind = self.held_up(members, gang.needed, gang.group.name, this) if holds_up else ""
        most, searched = (0, True) if search is None else (search.most, not search.exhausted)
        reason = gang.why_all_wait(most, this.snapshot.now_s, searched)
        for task in members:
            this.postpone(task, blocking or reason)
        return blocking or behind

    def round_of(self, snapshot: Snapshot) -> Round:
        """The working copy that a round begins with."""
        return Round(snapshot, own_cores=self.has_own_cores(), seed=self.seed, layout=self.layout)

    def has_own_cores(self) -> bool:
        """Whether each task gets cores that no other task has."""
        return self.granting.cores == "own"

    @keeps_queue
    def width_milli(self, task: Task, this: Round) -> int:
        """The request that the task is placed with."""
        return this.width_milli(task, self.request_milli(task))

    def request_milli(self, task: Task) -> int:
        """What the task is to be granted, before it is compared with what machines have; the same in each round."""
        return self.granting.request_milli(task)

    def rank(self, task: Task, this: Round) -> Any:  # noqa: ARG002
        """Sort key of a task in the queue, the same in each round: by priority, then by arrival."""
        return by_arrival(task)

    @keeps_queue
    def order(self, this: Round) -> Sequence[Task]:
        """The queue, by :meth:`rank`."""
        ranks = {t.name: self.rank(t, this) for t in this.snapshot.pending}
        return sorted(this.snapshot.pending, key=lambda t: (ranks[t.name], t.name))

    def passes(self, this: Round) -> bool:  # noqa: ARG002
        """Whether, from now on in the round, nothing depends on the turn of a task that does not fit."""
        return not self.head_blocks and type(self).held_up is Baseline.held_up

    def least_s(self, task: Task, this: Round) -> float:  # noqa: ARG002
        """How long a task would last at least, the same in each round; of use where :meth:`most_s` is finite."""
        return 0.0

    def most_s(self, this: Round, task: Task, width_milli: int) -> float:  # noqa: ARG002
        """How long a task that asks for the same as one that waits may last at most to start in the round."""
        return float("inf")

    @keeps_queue
    def turns(self, waiting: Sequence[Task], this: Round) -> Iterable[Task]:  # noqa: ARG002
        """The same tasks, each once, in the order in which they get their turn.

        A rule whose order depends on what was placed before in the round yields one after the other.
        """
        return waiting

    @keeps_queue
    def rooms_for(self, task: Task, width_milli: int, this: Round) -> Sequence[Room]:
        """Machines, by name, where a task that is no gang's member may start now."""
        return this.candidates(task, width_milli)

    def why_waits(self, task: Task, width_milli: int, this: Round) -> str:
        """Why :meth:`rooms_for` has no machine for a task."""
        return this.shortage(task, width_milli)

    @abstractmethod
    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """Choose one of the machines (at least one, by name) where the task fits now."""

    def held_up(self, tasks: Sequence[Task], needed: int, group: str | None, this: Round) -> str:
        """Why all behind wait for tasks that do not start now and could on idle machines; empty where nothing waits.

        They are a single one, or the waiting ones of the task group ``group``, of which ``needed`` have to start together.
        """
        del needed
        if not self.head_blocks:
            return ""
        if group is not None:
            return f"waits behind task group {group} (first come, first served)"
        (task,) = tasks
        needs = self._needs(task, self.width_milli(task, this), this) if this.explains else "more"
        return f"waits behind {task.name}, which needs {needs} (first come, first served)"

    def chosen(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """What :meth:`choose` says, if it is one of the machines."""
        room = self.choose(task, width_milli, rooms, this)
        if room is not rooms[0] and not any(room is one for one in rooms):
            raise ValueError(
                f"choose must return one of the machines that it is given for {task.name}, got {room!r:.80}"
            )
        return room

    def _needs(self, task: Task, width_milli: int, this: Round) -> str:
        cpu = cores_text(width_milli)
        # The task fits nowhere: where it would find the cores, it must be memory that is missing, or GPUs.
        with_cpu = [r for r in this.allowed(task) if width_milli <= this.available_milli(r, task)]
        if task.gpus is not None and any(task.memory_mib <= r.free_memory_mib for r in with_cpu):
            return f"{cpu} and {task.gpus}"
        return f"{cpu} and {task.memory_mib} MiB" if with_cpu else cpu


@cache
def _keeps_queue(rule: type[Baseline]) -> bool:
    own = ("order", "turns", "width_milli", "rooms_for")
    return all(getattr(getattr(rule, name), "keeps_queue", False) for name in own)


class _Start(RoomPlaces):
    """Where members of a gang may start now."""

    def __init__(self, rule: Baseline, members: Sequence[Task], this: Round) -> None:
        self._rule, self._this = rule, this
        self._widths = [rule.width_milli(task, this) for task in members]
        needs = [this.layout_need(task, width) for task, width in zip(members, self._widths, strict=True)]
        super().__init__(members, needs, [alike(task, this.snapshot.now_s) for task in members])

    @property
    def domain_counts(self) -> DomainCounts:
        return self._this.domain_counts

    @property
    def places(self) -> Sequence[Room]:
        return self._this.rooms

    @property
    def free(self) -> IntArray:
        return self._this.layout.free

    def options(self, member: int) -> Sequence[Room]:
        return self._this.candidates(self.tasks[member], self._widths[member])

    def put(self, member: int, options: Sequence[Room]) -> Room:
        task, width = self.tasks[member], self._widths[member]
        room = self._rule.chosen(task, width, options, self._this)
        self._this.place(task, width, room, self._this.tight_devices if self.tight else None)
        return room

    def take_back(self) -> None:
        self._this.take_back()


def by_arrival(task: Task) -> tuple[int, tuple[float, int, str, str]]:
    """Sort key: higher priority first, then what came first, then the order of its file, then the name."""
    return -task.priority, task.arrival


class MostFreeFirst(Baseline):
    """A rule that takes the machine with the most free cores."""

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """The machine with the most free cores; of equals, the fastest for this task, then the first by name."""
        free = [this.available_milli(room, task) for room in rooms]
        most = max(free)
        freest = [room for room, milli in zip(rooms, free, strict=True) if milli == most]
        if len(freest) == 1:
            return freest[0]
        return min(freest, key=lambda room: (this.told_s(task, width_milli, room), room.name))

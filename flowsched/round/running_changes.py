"""What a round changes of what runs already: preemptions for tasks without room, then moves that pay.

The rules and the order are the same at all prices. What leaving, coming and moving cost, and on which sets of tasks and
places that falls, is asked of a :class:`ChangePricer`: at forecast prices :mod:`flowsched.round.forecast_changes`, at linear
ones :mod:`flowsched.round.linear.linear_changes`.

*Preemption.* A task that waits though no machine has room starts in the place of running tasks of strictly lower
priority, which wait again. Higher priorities are served first, in each those that a machine is reserved for. Priority
decides *whether*: where leaving of lower priorities makes room on one machine, they leave. The price decides *who*, among
sets of which none could stay: first the set whose highest priority is lowest, so that no task that leaves drives out
another, then the cheapest. Tasks that the round itself was about to start may leave too; they lose their place, wait as
they did, and are served with their own priority. Those that it starts before higher priorities, since they are overdue
(``aging_crosses_priority``), stay. A task with an end is preempted at most ``preemption_limit`` times, which does not count
places that it lost before it started; one without an end at most as often as tasks of higher priority start, since only
these drive it out. Members of task groups, and tasks that relations bind or count, neither preempt nor are preempted.

*Migration*, when all that starts has its place. A task is moved if that gains more than ``migration_price``, which counts
``HYSTERESIS`` times for a task that moved less than ``QUIET_S`` ago; a round makes at most ``migration_moves``. At linear
prices two tasks may trade places too: two moves, which have to gain more than both prices together. What the round starts
stays, and so do tasks without an end, members of task groups, and tasks that relations bind or count.

No task gets a machine that is reserved for another one which waits and, where it is to be preempted for, has no lower
priority.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from flowsched.cluster.decision import Move, Placement, Postponement, Preemption
from flowsched.cluster.settings import HYSTERESIS, QUIET_S, Settings
from flowsched.cluster.snapshot import Reservation, Snapshot
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

MOST_VICTIMS = 1000
"""Of tasks that are let in together."""


@dataclass(frozen=True)
class Leaving:
    """A task that leaves its machine, to wait again."""

    task: str
    priority: int
    machine: str
    cost: float


@dataclass(frozen=True)
class Entry:
    """A task that starts in the place of others; of none, in what those for an earlier one leave over."""

    task: str
    leaving: tuple[Leaving, ...]


@dataclass(frozen=True)
class MoveStep:
    """A running task that goes on elsewhere."""

    task: str
    source: str
    machine: str
    gain: float
    price: float
    """What it had to gain."""
    devices: tuple[int, ...] = ()


@dataclass(frozen=True)
class ProposedMoves:
    """Moves, and the tasks that start in room that they made."""

    steps: Sequence[MoveStep]
    starts: Collection[str] = ()


class ChangePricer(Protocol):
    """Prices of one kind. What it decides it books on a state of its own, which all later questions are about."""

    @property
    def placed(self) -> Collection[str]:
        """Tasks that the round starts."""
        ...

    @property
    def waiting(self) -> Mapping[str, int]:
        """Tasks that the round leaves, with their priorities."""
        ...

    def turns(self, tasks: Sequence[str]) -> Sequence[Sequence[str]]:
        """Those of some tasks of one priority that may preempt, in the order in which they are let in; together those that
        are decided on together.
        """
        ...

    def lower(self, tasks: Sequence[str], barred: Collection[str], /) -> Sequence[int]:
        """Priorities below that of tasks of one turn from which others may leave for them, ascending."""
        ...

    def let_in(self, tasks: Sequence[str], highest: int, barred: Collection[str], most: int) -> Sequence[Entry]:
        """Tasks that start in the place of others of priority ``highest`` or lower, of whom at most so many leave.

        ``barred``: machines that take no task.
        """
        ...

    def move(self, barred: Collection[str], fixed: Collection[str]) -> ProposedMoves:
        """Moves that pay, each at the state that those before it leave. ``fixed``: tasks that start in this round."""
        ...


@dataclass(frozen=True)
class RunningChanges:
    """What becomes of a round's decisions, by names."""

    preemptions: tuple[Preemption, ...] = ()
    taken_back: tuple[Preemption, ...] = ()
    """Of tasks that the round was about to start, and whose place went to a higher priority."""
    let_in: frozenset[str] = frozenset()
    """Tasks that start in the place of others, or in room that moves made."""
    steps: tuple[MoveStep, ...] = ()


@dataclass(frozen=True)
class ChangedDecisions:
    """The decisions of a round with preemptions and moves in them."""

    placements: tuple[Placement, ...]
    postponements: tuple[Postponement, ...]
    reservations: tuple[Reservation, ...]
    preemptions: tuple[Preemption, ...] | None = None
    """None where the settings have none."""
    moves: tuple[Move, ...] | None = None
    """None where the settings have none."""
    let_in: frozenset[str] = frozenset()
    """Tasks that start in the place of others, or in room that moves made."""
    taken_back: tuple[Preemption, ...] = ()
    """Of tasks that the round was about to start, and whose place went to a higher priority."""
    counts: Mapping[str, int] = field(default_factory=dict)


def may_go(preemptions: IntArray, endless: BoolArray, starting: BoolArray, settings: Settings) -> BoolArray:
    """Whether tasks may still leave, by how often they were preempted, whether they have no end, and whether it is the round
    that starts them: to lose a place before it is taken is no preemption.
    """
    may: BoolArray = endless | starting | (preemptions < settings.preemption_limit)
    return may


def moving_price(moved_s: FloatArray, now_s: float, settings: Settings) -> FloatArray:
    """The price of moving tasks, by when each moved last; minus infinity: never."""
    price: FloatArray = settings.migration_price * np.where(now_s - moved_s < QUIET_S, HYSTERESIS, 1.0)
    return price


def change_running(pricer: ChangePricer, reservations: Sequence[Reservation], settings: Settings) -> RunningChanges:
    """Preemptions and moves after a round, as the settings let."""
    work = _Work(pricer, reservations)
    if settings.preempts:
        work.preempt(settings)
    proposed = pricer.move(work.held(), work.starting) if settings.migration_moves > 0 else ProposedMoves(())
    return RunningChanges(
        tuple(work.preemptions),
        tuple(by for task, by in work.taken_back.items() if task not in proposed.starts),
        frozenset(work.let_in.union(proposed.starts)),
        tuple(proposed.steps),
    )


class _Work:
    """Who waits and who starts while tasks are let in one after the other."""

    def __init__(self, pricer: ChangePricer, reservations: Sequence[Reservation]) -> None:
        self._pricer, self._reservations = pricer, reservations
        self._waiting = dict(pricer.waiting)
        self.starting = set(pricer.placed)
        self.let_in: set[str] = set()
        self.taken_back: dict[str, Preemption] = {}
        self.preemptions: list[Preemption] = []

    def held(self, priority: int | None = None, own: Collection[str] = ()) -> set[str]:
        """Machines that reservations keep from tasks of a priority (None: from all), those for its ``own`` left out."""
        waits = self._waiting
        return {
            r.machine
            for r in self._reservations
            if r.task in waits and r.task not in own and (priority is None or waits[r.task] >= priority)
        }

    def preempt(self, settings: Settings) -> None:
        """Let tasks that have no room start in the place of others."""
        holders = {r.task for r in self._reservations}
        level: int | None = max(self._waiting.values(), default=None)
        while level is not None:
            mine = [task for task, priority in self._waiting.items() if priority == level]
            reserved = [task for task in mine if task in holders]
            for some in (reserved, [task for task in mine if task not in holders]):
                for turn in self._pricer.turns(some):
                    self._let_in(turn, level, settings)
            level = max((p for p in self._waiting.values() if p < level), default=None)

    def _let_in(self, turn: Sequence[str], level: int, settings: Settings) -> None:
        barred, most = self.held(level, turn), MOST_VICTIMS
        for highest in self._pricer.lower(turn, barred):
            turn = [task for task in turn if task in self._waiting]
            if not turn or most <= 0:
                break
            for entry in self._pricer.let_in(turn, highest, barred, most):
                most -= len(entry.leaving)
                self._book(entry, settings)

    def _book(self, entry: Entry, settings: Settings) -> None:
        for gone in entry.leaving:
            preemption = Preemption(gone.task, gone.machine, entry.task, gone.cost, settings.keeps_work)
            if gone.task in self.starting:
                self.starting.remove(gone.task)
                self.let_in.discard(gone.task)
                self.taken_back[gone.task] = preemption
                self._waiting[gone.task] = gone.priority
            else:
                self.preemptions.append(preemption)
        del self._waiting[entry.task]
        self.taken_back.pop(entry.task, None)
        self.starting.add(entry.task)
        self.let_in.add(entry.task)


def as_moves(steps: Sequence[MoveStep], snapshot: Snapshot, settings: Settings) -> tuple[Move, ...]:
    """Moves of a snapshot's running tasks as they are decided."""
    if not steps:
        return ()
    running = {r.task.name: r for r in snapshot.running}
    machines = {m.name: m for m in snapshot.machines}
    return tuple(
        Move(
            s.task,
            s.source,
            s.machine,
            running[s.task].width_milli,
            running[s.task].threads,
            snapshot.batch_cores(machines[s.machine]),
            settings.migration_pause_s,
            s.gain,
            s.price,
            settings.keeps_migrated_work,
            s.devices,
        )
        for s in steps
    )


def waits_again(taken: Preemption, waited_s: float, terms: Mapping[str, float]) -> Postponement:
    """The postponement of a task that lost the place which the round had given it."""
    reason = f"{taken.room_for} has a higher priority and starts in its place on {taken.machine}"
    return Postponement(taken.task, reason, waited_s, sum(terms.values()), terms)

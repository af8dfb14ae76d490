"""Rules that stop running tasks for more urgent ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from flowsched.cluster.snapshot import Running, Snapshot, Task
from flowsched_simulator.baselines.baseline import MostFreeFirst, by_arrival
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room
from flowsched_simulator.baselines.waiting import Waiting, by_rank, keeps_queue

Urgency = tuple[float, ...]
"""What comes first is less."""
_FIRST: Urgency = (-math.inf,)
"""Of no task that runs: what has it stops for no other."""


class _LeastUrgent(NamedTuple):
    """What no task of a machine that may be stopped is less urgent than, from one moment to another, while the same run."""

    urgency: Urgency
    from_s: float
    until_s: float


class Preemptive(MostFreeFirst):
    """The most urgent tasks run; what is stopped for them keeps its work and may go on on any machine.

    A task that fits nowhere starts on the machine where the least urgent tasks make room for it, all of them less urgent
    than itself: so nothing is stopped in favour of its equal, and rounds at one instant come to an end. Tasks that a
    relation counts or binds, members of task groups, and tasks without an end stop nothing and are
    not stopped.
    """

    @abstractmethod
    def urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        """How urgent a task is beside its priority, less for more. ``running``: None where it waits."""

    def less_urgent_s(self, running: Running, this: Round) -> float:
        """The time until which a running task becomes no less urgent than it is now, for rules that know one: machines where
        no task is less urgent than one that waits need not be looked at in each round.
        """
        del running
        return this.snapshot.now_s

    _ranked: dict[str, list[tuple[Urgency, Running]]]
    """By machine, what ran there before the round and may be stopped, the most urgent first, then what came first."""
    _least: dict[str, _LeastUrgent]
    """By machine, as far as it is known from earlier rounds."""

    def round_of(self, snapshot: Snapshot) -> Round:
        """A round that may preempt."""
        self._ranked = {}
        this = Round(snapshot, own_cores=self.has_own_cores(), seed=self.seed, preemptive=True, layout=self.layout)
        if this.layout is not self.layout:
            self._least = {}
        for name in this.layout.renewed:
            self._least.pop(name, None)
        return this

    def rank(self, task: Task, this: Round) -> Any:
        """By priority, then urgency, then arrival."""
        return self._urgency(task, None, this), by_arrival(task)

    def queue(self) -> Waiting:
        """By urgency."""
        return _ByUrgency(self)

    def _keeps_its_queue(self) -> bool:
        """Where the urgency of a task that waits is the same in each round, too."""
        return super()._keeps_its_queue() and getattr(type(self).urgency, "keeps_queue", False)

    @keeps_queue
    def rooms_for(self, task: Task, width_milli: int, this: Round) -> list[Room]:
        """Machines where the task fits; if there is none, one where less urgent tasks were stopped for it."""
        found = this.candidates(task, width_milli)
        if found or not self.free_to_move(task, this):
            return found
        mine = self._urgency(task, None, this)
        best: tuple[Urgency, list[Running]] | None = None
        for room in this.possible(task, width_milli):
            if self._holds_none_behind(mine, room, this):
                continue
            # The least urgent leave first; of equals, those that came last.
            ranked = [(urgency, r) for urgency, r in self._residents(room, this) if urgency > mine]
            leaving = _leaving(task, width_milli, room, [r for _, r in ranked[::-1]], this)
            if leaving:
                most_urgent = min(urgency for urgency, r in ranked if r in leaving)
                if best is None or most_urgent > best[0]:
                    best = most_urgent, leaving
        if best is None:
            return []
        for resident in best[1]:
            self.stopped(resident, this)
            this.preempt(resident, task)
            self._ranked.pop(resident.machine, None)
            self._least.pop(resident.machine, None)
        return this.candidates(task, width_milli)

    def stopped(self, resident: Running, this: Round) -> None:
        """Take note of a task that is preempted."""

    def _urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        return (-task.priority, *self.urgency(task, running, this))

    def _holds_none_behind(self, mine: Urgency, room: Room, this: Round) -> bool:
        """Whether nothing that may be stopped on a machine is less urgent than a task that waits."""
        now_s, known = this.snapshot.now_s, self._least.get(room.name)
        if (
            known is None
            or (known.urgency > mine and known.from_s < now_s)
            or not known.from_s <= now_s < known.until_s
        ):
            ranked = self._residents(room, this)
            until_s = min((self.less_urgent_s(r, this) for _, r in ranked), default=math.inf)
            known = self._least[room.name] = _LeastUrgent(ranked[-1][0] if ranked else _FIRST, now_s, until_s)
        return known.urgency <= mine

    def _residents(self, room: Room, this: Round) -> list[tuple[Urgency, Running]]:
        """What still runs on a machine and may be stopped, the most urgent first, with its urgency."""
        ranked = self._ranked.get(room.name)
        if ranked is None:
            movable = [r for r in this.residents(room) if self.free_to_move(r.task, this)]
            ranked = [(self._urgency(r.task, r, this), r) for r in movable]
            ranked = self._ranked[room.name] = sorted(ranked, key=lambda pair: (pair[0], by_arrival(pair[1].task)))
        return ranked

    def free_to_move(self, task: Task, this: Round) -> bool:
        """Whether a task may stop others, and be stopped."""
        return not task.endless and task.group is None and not this.domain_counts.concerns(task)


class _ByUrgency(Waiting):
    """What waits, the most urgent first, for rules that make room for it."""

    def __init__(self, rule: Preemptive) -> None:
        super().__init__(rule.rank, rule.width_milli, rule.least_s)
        self._rule = rule

    def in_turn(
        self,
        this: Round,
        passes: Callable[[], bool],  # noqa: ARG002
        most_s: Callable[[Task, int], float],  # noqa: ARG002
    ) -> Iterator[Task]:
        """The tasks that may start. Where no room can be made for a task, none can for less urgent ones that ask for the
        same, until something else is stopped.
        """
        number, heads = this.snapshot.round, self._heads(None, this)
        while heads:
            rank, name, row, at = heads[0]
            alike, stopped = self._rows[row], this.preempted
            task = alike.turns[at].wait.in_round(number)
            yield task
            if this.preempted > stopped:
                heads = self._heads((rank, name), this)
                continue
            at += 1
            if alike.demand in this.nowhere and self._rule.free_to_move(task, this):
                at = len(alike.turns)
            if at < len(alike.turns):
                heapreplace(heads, (*by_rank(alike.turns[at]), row, at))
            else:
                heappop(heads)

    def _heads(self, after: tuple[Any, str] | None, this: Round) -> list[tuple[Any, str, int, int]]:  # noqa: ARG002
        """A heap of the first turns behind one, of all rows."""
        heads = []
        for alike in self._alike.values():
            at = 0 if after is None else bisect_right(alike.turns, after, key=by_rank)
            if at < len(alike.turns):
                heads.append((*by_rank(alike.turns[at]), alike.row, at))
        heapify(heads)
        return heads


def _leaving(task: Task, width_milli: int, room: Room, ranked: Sequence[Running], this: Round) -> list[Running]:
    """Who of these, taken in this order, must leave a machine so that the task fits; empty where that is not enough."""

    def fits_without(gone: Sequence[Running]) -> bool:
        # Quickly told in most cases, without a copy of the machine.
        if room.free_milli + sum([r.width_milli for r in gone]) < width_milli:
            return False
        if room.free_memory_mib + sum([r.task.memory_mib for r in gone]) < task.memory_mib:
            return False
        return this.has_room(task, width_milli, this.left_by(room, gone))

    if not fits_without(ranked):
        return []
    gone: list[Running] = []
    for resident in ranked:
        gone.append(resident)
        if fits_without(gone):
            break
    else:
        return []
    for resident in gone[::-1]:
        without = [r for r in gone if r is not resident]
        if without and fits_without(without):
            gone = without
    return gone

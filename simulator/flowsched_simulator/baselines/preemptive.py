"""Rules that stop running tasks for more urgent ones."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any

from flowsched.cluster.snapshot import Running, Snapshot, Task
from flowsched_simulator.baselines.baseline import MostFreeFirst, by_arrival
from flowsched_simulator.baselines.greedy_round import Demand, Round
from flowsched_simulator.baselines.room import Room
from flowsched_simulator.baselines.running_urgencies import Bound, RunningUrgencies, Urgency
from flowsched_simulator.baselines.waiting import Waiting, by_rank, keeps_queue


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
        """The time until which a running task becomes no less urgent than it is now, for rules that know one: until then its
        urgency need not be worked out in each round.
        """
        del running
        return this.snapshot.now_s

    steady = False
    """Whether the urgency of a running task does not change at all until then."""
    _urgencies: RunningUrgencies

    def round_of(self, snapshot: Snapshot) -> Round:
        """A round that may preempt."""
        this = Round(snapshot, own_cores=self.has_own_cores(), seed=self.seed, preemptive=True, layout=self.layout)
        if this.layout is not self.layout:
            self._urgencies = RunningUrgencies(self._bound, self.steady)
        self._urgencies.catch_up(this)
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
    def rooms_for(self, task: Task, width_milli: int, this: Round) -> Sequence[Room]:
        """Machines where the task fits; if there is none, one where less urgent tasks were stopped for it."""
        found = this.candidates(task, width_milli)
        if found or not self.free_to_move(task, this):
            return found
        mine = self._urgency(task, None, this)
        leaving = self._making_room(task, width_milli, mine, this)
        if not leaving:
            self._urgencies.tried(mine, this.demand_of(task, width_milli))
            return []
        for resident in leaving:
            self.stopped(resident, this)
            this.preempt(resident, task)
        self._urgencies.stopped(leaving)
        return this.candidates(task, width_milli)

    def _making_room(self, task: Task, width_milli: int, mine: Urgency, this: Round) -> list[Running]:
        """Who leaves so that the task fits: the least urgent that can, on the first of their machines by name."""
        best: tuple[Urgency, Room, list[Running]] | None = None
        for most, room in self._urgencies.rooms_behind(mine, task, width_milli, this):
            if best is not None and (most < best[0] or (most == best[0] and room.name > best[1].name)):
                break  # this machine is no better, nor are those that follow
            found = self._urgencies.ranked(room, this)
            # The least urgent leave first; of equals, those that came last.
            ranked = [(urgency, r) for urgency, r in found if urgency > mine]
            leaving = _leaving(task, width_milli, room, [r for _, r in ranked[::-1]], this)
            if leaving:
                gone = {r.task.name for r in leaving}
                most_urgent = min(urgency for urgency, r in ranked if r.task.name in gone)
                if best is None or most_urgent > best[0] or (most_urgent == best[0] and room.name < best[1].name):
                    best = most_urgent, room, leaving
        return [] if best is None else best[2]

    def stopped(self, resident: Running, this: Round) -> None:
        """Take note of a task that is preempted."""

    def is_in_vain(self, mine: Urgency, task: Task, demand: Demand, this: Round) -> bool:
        """Whether :meth:`rooms_for` surely has no machine for a task, nor for less urgent ones that ask for the same."""
        return self.free_to_move(task, this) and self._urgencies.is_in_vain(mine, demand, this)

    def tried(self, mine: Urgency, demand: Demand) -> None:
        """Take note of a task for which that holds, the most urgent of those that ask for the same."""
        self._urgencies.tried(mine, demand)

    def _urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        return (-task.priority, *self.urgency(task, running, this))

    def _bound(self, running: Running, this: Round) -> Bound | None:
        if not self.free_to_move(running.task, this):
            return None
        return Bound(self._urgency(running.task, running, this), self.less_urgent_s(running, this))

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

    def _heads(self, after: tuple[Any, str] | None, this: Round) -> list[tuple[Any, str, int, int]]:
        """A heap of the first turns behind one, of all rows that may have room."""
        heads = []
        for alike in self._alike.values():
            at = 0 if after is None else bisect_right(alike.turns, after, key=by_rank)
            if at == len(alike.turns):
                continue
            rank, name, wait = alike.turns[at]
            if alike.demand is None or not self._rule.is_in_vain(rank[0], wait.task, alike.demand, this):
                heads.append((rank, name, alike.row, at))
            elif not at:
                self._rule.tried(rank[0], alike.demand)
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

    milli, mib, gone = room.free_milli, room.free_memory_mib, list[Running]()
    for resident in ranked:
        gone.append(resident)
        milli, mib = milli + resident.width_milli, mib + resident.task.memory_mib
        if milli >= width_milli and mib >= task.memory_mib and fits_without(gone):
            break
    else:
        return []
    for resident in gone[::-1]:
        without = [r for r in gone if r is not resident]
        if without and fits_without(without):
            gone = without
    return gone

"""The queue of a rule, kept from round to round, so that a round looks at what may start and not at all that waits."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.pending_tasks import PendingTasks, Wait, waits_of
from flowsched.cluster.snapshot import Task
from flowsched.support.arrays import BoolArray, FloatArray
from flowsched_simulator.baselines.greedy_round import Demand, Round
from flowsched_simulator.baselines.room import RoomLayout

_NEVER = float("inf")
_Method = TypeVar("_Method", bound=Callable[..., Any])


def keeps_queue(method: _Method) -> _Method:
    """Mark a method of a rule with which a round need not look at all that waits: with it a task that fits on no machine
    does not start, and its turn changes nothing for others. A rule of which all are marked keeps its queue.
    """
    method.keeps_queue = True  # type: ignore[attr-defined]
    return method


class Turn(NamedTuple):
    """A task in the queue; the name tells those apart that a rule does not."""

    rank: Any
    name: str
    wait: Wait


class _Alike:
    """Tasks that fit on the same machines, in the order of the queue."""

    def __init__(self, demand: Demand | None, row: int) -> None:
        """``demand``: None for tasks of which each is a case of its own: members of task groups, and tasks that relations
        count or bind. ``row``: its number while it has tasks.
        """
        self.demand = demand
        self.row = row
        self.turns: list[Turn] = []
        self.lengths: list[float] = []
        """How long each would last at least, ascending."""


class Waiting:
    """Tasks in the order of a rule, and by what they ask for. Tasks that no machine could ever take are left out."""

    def __init__(
        self,
        rank: Callable[[Task, Round], Any],
        width_milli: Callable[[Task, Round], int],
        least_s: Callable[[Task, Round], float],
    ) -> None:
        """None waits. Of a task ``rank`` makes the sort key, ``width_milli`` the request, and ``least_s`` the time that it
        would last at least; none of them changes on the same machines, unless more is learnt of run times.
        """
        self._rank, self._width_milli, self._least_s = rank, width_milli, least_s
        self._layout: RoomLayout | None = None
        self._mark: LogMark[Wait] | None = None
        self._learnt: LearntRunTimes | None = None
        self._turns: dict[str, tuple[Turn, _Alike, float]] = {}
        self._order: list[Turn] = []
        self._alike: dict[Demand | None, _Alike] = {}
        self._rows: list[_Alike] = []
        """By their numbers; those without tasks may have their number given to others."""
        self._needs: FloatArray = np.zeros((0, 2))
        """[rows, 2] millicores and MiB; infinite where there are no tasks."""
        self._unused: list[int] = []
        self._grouped: set[str] = set()

    def grouped(self, number: int) -> list[Task]:
        """Members of task groups in the order of the queue, as the round with this number sees them."""
        if not self._grouped:
            return []
        return [turn.wait.in_round(number) for turn in self._alike[None].turns if turn.name in self._grouped]

    def catch_up(self, this: Round) -> None:
        """Bring the queue to what waits in a round."""
        pending = this.snapshot.pending
        mark = pending.mark if isinstance(pending, PendingTasks) else None
        learnt = this.snapshot.learnt_run_times
        known = self._layout is this.layout and (self._learnt is learnt or not learnt.in_use)
        changes = mark.since(self._mark) if mark is not None and known else None
        if changes is None:
            self._clear()
            changes = [(wait, True) for wait in waits_of(this.snapshot)]
        self._mark, self._layout, self._learnt = mark, this.layout, learnt
        for wait, came in changes:
            if came:
                self._add(wait, this)
            else:
                self._drop(wait.task)

    def in_turn(self, this: Round, passes: Callable[[], bool], most_s: Callable[[Task, int], float]) -> Iterator[Task]:
        """The tasks that may start or matter to others, each when its turn comes.

        From the moment on at which ``passes`` holds, a task that fits nowhere lets those pass that ask for the same, and
        where it could start for ``most_s`` at most, those that last longer.
        """
        number, place = this.snapshot.round, 0
        while place < len(self._order) and not passes():
            yield self._order[place].wait.in_round(number)
            place += 1
        if place == len(self._order):
            return
        heads = self._heads(by_rank(self._order[place]), this)
        while heads:
            _, _, row, at = heads[0]
            alike = self._rows[row]
            turn, before = alike.turns[at], this.placed
            if alike.demand is None:
                yield turn.wait.in_round(number)
                at += 1
            else:
                if alike.demand not in this.nowhere:
                    yield turn.wait.in_round(number)
                at = self._next(alike, at + 1, turn, this.placed > before, this, most_s)
            if at < len(alike.turns):
                heapreplace(heads, (*by_rank(alike.turns[at]), row, at))
            else:
                heappop(heads)

    def _heads(self, first: tuple[Any, str], this: Round) -> list[tuple[Any, str, int, int]]:
        """A heap of the first turns, from one on, of tasks that may fit: rank, name, row, and number in the row."""
        heads = []
        for row in np.flatnonzero(self._may_fit(this)).tolist():
            turns = self._rows[row].turns
            at = bisect_left(turns, first)
            if at < len(turns):
                heads.append((*by_rank(turns[at]), row, at))
        heapify(heads)
        return heads

    def _may_fit(self, this: Round) -> BoolArray:
        """[rows] whether there is a machine with enough of each single thing for the tasks of a row."""
        most = this.layout.free[:, :2].max(axis=0, initial=0)
        found: BoolArray = (self._needs <= most).all(axis=1)
        return found

    def _next(
        self,
        alike: _Alike,
        at: int,
        last: Turn,
        started: bool,
        this: Round,
        most_s: Callable[[Task, int], float],
    ) -> int:
        """The next of tasks that are alike to have a turn, from one on; the end where there is none."""
        assert alike.demand is not None
        if started:
            return at
        if alike.demand in this.nowhere:
            return len(alike.turns)
        longest_s = most_s(last.wait.task, alike.demand.width_milli)
        if alike.lengths[0] > longest_s:
            return len(alike.turns)
        while at < len(alike.turns) and self._turns[alike.turns[at].name][2] > longest_s:
            at += 1
        return at

    def _clear(self) -> None:
        """Nothing waits."""
        for kept in (self._turns, self._order, self._alike, self._rows, self._unused, self._grouped):
            kept.clear()
        self._needs = self._needs[:0]

    def _add(self, wait: Wait, this: Round) -> None:
        task = wait.task
        width_milli = self._width_milli(task, this)
        if task.group is not None:
            self._grouped.add(task.name)
        elif not this.is_possible(task, width_milli):
            return
        apart = task.group is not None or bool(task.holds or task.joins)
        alike = self._alike_with(None if apart else this.demand_of(task, width_milli))
        turn, least_s = Turn(self._rank(task, this), task.name, wait), self._least_s(task, this)
        self._turns[task.name] = turn, alike, least_s
        insort(self._order, turn)
        insort(alike.turns, turn)
        insort(alike.lengths, least_s)

    def _alike_with(self, demand: Demand | None) -> _Alike:
        found = self._alike.get(demand)
        if found is None:
            row = self._unused.pop() if self._unused else len(self._rows)
            found = self._alike[demand] = _Alike(demand, row)
            self._rows[row : row + 1] = [found]
            if row >= len(self._needs):
                self._needs = np.concatenate([self._needs, np.full((row + 8, 2), np.inf)])
            self._needs[row] = (0, 0) if demand is None else (demand.width_milli, demand.memory_mib)
        return found

    def _drop(self, task: Task) -> None:
        name = task.name
        self._grouped.discard(name)
        if name not in self._turns:
            return
        turn, alike, least_s = self._turns.pop(name)
        del self._order[bisect_left(self._order, by_rank(turn))]
        del alike.turns[bisect_left(alike.turns, by_rank(turn))]
        del alike.lengths[bisect_left(alike.lengths, least_s)]
        if not alike.turns:
            del self._alike[alike.demand]
            self._needs[alike.row] = np.inf
            self._unused.append(alike.row)


def by_rank(turn: Turn) -> tuple[Any, str]:
    """Sort key of a turn; a turn itself stands right behind its key."""
    return turn.rank, turn.name

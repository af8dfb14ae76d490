"""How urgent running tasks are at least, kept from round to round, so that a round works it out for few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from flowsched.cluster.change_log import LogMark
from flowsched.cluster.running_tasks import RunningTasks, entries_of
from flowsched.cluster.snapshot import Running, Task
from flowsched.relations.relation import Relation
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_simulator.baselines.baseline import by_arrival
from flowsched_simulator.baselines.greedy_round import Demand, Round
from flowsched_simulator.baselines.room import Room, RoomLayout

Urgency = tuple[float, ...]
"""What comes first is less; of a rule, all have as many numbers."""
_NEVER_BEHIND: Urgency = (-np.inf,)
"""Of a task that stops for no other."""
_FIRST = 64
_MOST_CHANGES = 10_000


class Bound(NamedTuple):
    """What a task is no less urgent than until a moment, while it runs."""

    urgency: Urgency
    until_s: float


class RunningUrgencies:
    """A bound on the urgency of each task that runs, as columns.

    A task that starts has none at first, and one that has passed is worth nothing: both are worked out for the round that
    asks. So a round costs what came, went and passed since the last one.
    """

    def __init__(self, bound_of: Callable[[Running, Round], Bound | None], steady: bool) -> None:
        """Nothing runs. ``bound_of``: None for a task that may not be stopped. ``steady``: whether the urgency is what the
        bound says until that moment.
        """
        self._bound_of, self._steady = bound_of, steady
        self._layout: RoomLayout | None = None
        self._relations: tuple[Relation, ...] = ()
        self._mark: LogMark[Running] | None = None

    def is_in_vain(self, mine: Urgency, demand: Demand, this: Round) -> bool:
        """Whether there is surely no room for a task, and none can be made: there was none for one at least as urgent that
        asks for the same, and what has changed since is not enough.
        """
        tried = self._tried.get(demand)
        if tried is None or mine < tried[0]:
            return False
        for row in set(self._changed[tried[1] :]):
            milli, mib = this.layout.free[row, :2].tolist()
            for place in self._here[row]:
                if self._bounds[place] > mine:
                    milli += self._given_back[place][0]
                    mib += self._given_back[place][1]
            if milli >= demand.width_milli and mib >= demand.memory_mib:
                return False
        return True

    def tried(self, mine: Urgency, demand: Demand) -> None:
        """Take note that there is no room for a task, and that none can be made."""
        self._tried[demand] = mine, len(self._changed)

    def rooms_behind(self, mine: Urgency, task: Task, width_milli: int, this: Round) -> list[tuple[Urgency, Room]]:
        """Machines that may have enough CPU and memory for a task once less urgent ones are gone, each with a bound on what
        is least urgent there: the least urgent first, then by name.
        """
        if self._urgencies.shape[1] != len(mine):
            return []  # nothing runs that may be stopped
        behind = self._behind(mine)
        rows, free = self._rows[behind], this.layout.free
        enough = np.zeros(len(free), np.bool_)
        enough[rows] = True
        for column, needed in enumerate((width_milli, task.memory_mib)):
            given_back = np.bincount(rows, self._amounts[behind, column], len(free))
            enough &= free[:, column] + given_back >= needed
        if not enough.any():
            return []
        found = [(self._least(this.layout.row(room.name)), room) for room in this.possible(task, width_milli, enough)]
        return sorted(found, key=lambda pair: pair[0], reverse=True)

    def ranked(self, room: Room, this: Round) -> list[tuple[Urgency, Running]]:
        """What runs on a machine and may be stopped, the most urgent first, then what came first, with its urgency in the
        round. What is found is the new bound.
        """
        if room.name not in self._ranked:
            (residents,) = this.residents((room,))
            found = []
            for r in residents:
                place = self._place[r.task.name]
                if not self._steady:
                    self._note(place, self._bound_of(r, this))
                if (urgency := self._bounds[place]) is not _NEVER_BEHIND:
                    found.append((urgency, r))
            self._ranked[room.name] = sorted(found, key=lambda pair: (pair[0], by_arrival(pair[1].task)))
        return self._ranked[room.name]

    def stopped(self, tasks: Iterable[Running]) -> None:
        """Leave tasks out for the rest of the round."""
        for running in tasks:
            self._note(self._place[running.task.name], None)
            self._stopped.append(running.task.name)
            self._ranked.pop(running.machine, None)
            self._changed.append(int(self._rows[self._place[running.task.name]]))

    def _behind(self, mine: Urgency) -> BoolArray:
        """[places] whether a task may be less urgent than this."""
        count = len(mine)
        found: BoolArray = self._urgencies[:, count - 1] > mine[-1]
        for k in range(count - 2, -1, -1):
            column = self._urgencies[:, k]
            found = (column > mine[k]) | ((column == mine[k]) & found)
        return found

    def _least(self, row: int) -> Urgency:
        found = self._leasts.get(row)
        if found is None:
            found = self._leasts[row] = max(self._bounds[place] for place in self._here[row])
        return found

    def catch_up(self, this: Round) -> None:
        """Bring the bounds to what runs in a round."""
        snapshot = this.snapshot
        running = snapshot.running
        mark = running.mark if isinstance(running, RunningTasks) else None
        kept = self._layout is this.layout and self._relations == snapshot.relations
        changes = mark.since(self._mark) if kept and mark is not None else None
        if changes is None:
            self._clear(this)
            changes = [(r, True) for r in entries_of(running)]
        self._layout, self._relations, self._mark = this.layout, snapshot.relations, mark
        for name in self._stopped:
            self._until_s[self._place[name]] = -np.inf
        self._stopped.clear()
        self._ranked.clear()
        for r, came in changes:
            if came:
                self._add(r, this)
            else:
                self._drop(r)
        passed = self._until_s <= snapshot.now_s
        rows = sorted(set(self._rows[passed].tolist()))
        if len(self._changed) > _MOST_CHANGES:
            self._changed.clear()
            self._tried.clear()
        self._changed += rows
        self._changed += [this.layout.row(name) for name in this.layout.renewed]
        for residents in this.residents([this.rooms[row] for row in rows]):
            for r in residents:
                place = self._place[r.task.name]
                if passed[place]:
                    self._note(place, self._bound_of(r, this))

    def _clear(self, this: Round) -> None:
        self._place: dict[str, int] = {}
        self._here: list[list[int]] = [[] for _ in this.rooms]
        """[machines] places."""
        self._leasts: dict[int, Urgency] = {}
        """The greatest bound on some machines, by row."""
        self._bounds: list[Urgency] = []
        self._unused: list[int] = []
        self._stopped: list[str] = []
        """Names of tasks that the last round stopped; where that was not carried out they run on."""
        self._ranked: dict[str, list[tuple[Urgency, Running]]] = {}
        """By machine, as far as the round asked."""
        self._changed: list[int] = []
        """Rows of machines, whenever there may be more room, or more that is less urgent, than before."""
        self._tried: dict[Demand, tuple[Urgency, int]] = {}
        """By demand, the most urgent task that there was no room for, and how many changes there were by then."""
        self._rows: IntArray = np.zeros(0, np.int64)
        self._amounts: IntArray = np.zeros((0, 2), np.int64)
        """[places, 2] millicores and MiB."""
        self._given_back: list[tuple[int, int]] = []
        """The same."""
        self._urgencies: FloatArray = np.zeros((0, 1))
        """[places, numbers of an urgency] the bounds again; those that are not used are behind nothing."""
        self._until_s: FloatArray = np.zeros(0)
        """[places] infinite where a place is not used."""

    def _add(self, running: Running, this: Round) -> None:
        if not self._unused:
            count = len(self._rows)
            more = max(_FIRST, count)
            self._unused.extend(range(count + more - 1, count - 1, -1))
            self._bounds.extend([_NEVER_BEHIND] * more)
            self._given_back.extend([(0, 0)] * more)
            self._rows = np.concatenate([self._rows, np.zeros(more, np.int64)])
            self._amounts = np.concatenate([self._amounts, np.zeros((more, 2), np.int64)])
            wide = np.full((more, self._urgencies.shape[1]), -np.inf)
            self._urgencies = np.concatenate([self._urgencies, wide])
            self._until_s = np.concatenate([self._until_s, np.full(more, np.inf)])
        place, row = self._unused.pop(), this.layout.row(running.machine)
        self._place[running.task.name] = place
        self._here[row].append(place)
        self._rows[place] = row
        self._amounts[place] = self._given_back[place] = running.width_milli, running.task.memory_mib
        self._until_s[place] = -np.inf
        self._leasts.pop(row, None)

    def _drop(self, running: Running) -> None:
        place = self._place.pop(running.task.name)
        self._here[self._rows[place]].remove(place)
        self._note(place, None)
        self._unused.append(place)

    def _note(self, place: int, bound: Bound | None) -> None:
        if bound is None:
            bound = Bound(_NEVER_BEHIND, np.inf)
        elif len(bound.urgency) != self._urgencies.shape[1]:
            self._urgencies = np.full((len(self._rows), len(bound.urgency)), -np.inf)
        self._leasts.pop(int(self._rows[place]), None)
        self._bounds[place], self._until_s[place] = bound
        self._urgencies[place] = bound.urgency

"""Task groups at linear prices: never between none and their minimum.

The network knows no groups. What it places is looked at afterwards: a group below its minimum gives its places back, the one
that came last first, and they are offered to the others; groups that gave way try again once all others have their places. A
group that is too small even with all who wait takes no part in a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.task_rows import RUNNING
from flowsched.relations.gang import Gang, gang_priority
from flowsched.relations.gang_search import MOST_MEMBERS, GangSearch, steps_among
from flowsched.relations.relation import TaskGroup
from flowsched.round.linear.candidate_index import CandidateIndex
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.gang_places import StartingPlaces
from flowsched.round.linear.round_state import BulkRoundState
from flowsched.round.linear.waiting import Waiting
from flowsched.support.arrays import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class QueuedGang(Gang[IntArray]):
    """A gang of tasks by row; members are in the order in which they came."""

    classes: IntArray
    """All classes of the group."""
    priority: int
    """That which all its members are served with."""
    reached: int = 0
    """How many had a place at most, where that was not enough."""

    def placed(self, state: BulkRoundState, start: int) -> int:
        """How many have a place since placement ``start``."""
        return int(np.isin(state.task_class[start:], self.classes).sum())


class GangIndex:
    """Finds the groups of a round; which classes belong to which is remembered."""

    def __init__(self, cluster: ClusterRows) -> None:
        """Nothing is known yet."""
        self._cluster = cluster
        self._structure = -1
        self._number: dict[str, int] = {}
        self._group_of: IntArray = np.zeros(0, dtype=np.int64)

    def find(self, pending: IntArray) -> tuple[QueuedGang, ...]:
        """Groups of which several tasks have to start together, in the order of their first task; nothing if there are none.

        ``pending``: in the order in which they came.
        """
        cluster = self._cluster
        if not cluster.groups:
            return ()
        self._catch_up()
        number_of = self._group_of[cluster.tasks.task_class[pending]]
        where = np.flatnonzero(number_of >= 0)
        if not len(where):
            return ()
        per_class = np.bincount(
            cluster.tasks.task_class[cluster.tasks.state == RUNNING], minlength=len(cluster.classes)
        )
        numbers, first = np.unique(number_of[where], return_index=True)
        names = list(self._number)
        priority = cluster.classes.table().priority
        found = []
        for number in numbers[np.argsort(first)].tolist():
            classes = np.flatnonzero(self._group_of == number)
            group = TaskGroup(names[number], cluster.groups.get(names[number], 1))
            running = int(per_class[classes].sum()) + cluster.members_elsewhere.get(names[number], 0)
            if group.minimum - running > 1:
                members = pending[where[number_of[where] == number]]
                served = gang_priority(priority[cluster.tasks.task_class[members]].tolist())
                found.append(QueuedGang(group, running, members, classes, served))
        return tuple(found)

    def _catch_up(self) -> None:
        classes = self._cluster.classes
        if self._structure != classes.structure:
            self._structure, self._number = classes.structure, {}
            numbers = [self._number.setdefault(c.group, len(self._number)) if c.group else -1 for c in classes]
            self._group_of = np.array(numbers, dtype=np.int64)


def all_or_none(
    gangs: Sequence[QueuedGang],
    state: BulkRoundState,
    start: int,
    waiting: Waiting,
    candidates: Callable[[], CandidateIndex],
    refill: Callable[[BoolArray], None],
) -> tuple[QueuedGang, ...]:
    """See to it that every group has its minimum or nothing; those that start with nothing.

    ``gangs``: those of the level in the order in which they came. ``candidates`` says what is open as the state stands;
    ``refill`` places the level anew with some classes only, for where others may be at their places because of a group.
    """
    active: BoolArray = np.ones(len(state.cluster.classes), dtype=np.bool_)
    dropped: list[QueuedGang] = []
    while True:
        failing = [g for g in gangs if active[g.classes].all() and g.placed(state, start) < g.needed]
        if not failing:
            break
        last = failing[-1]
        dropped.append(replace(last, reached=last.placed(state, start)))
        active[last.classes] = False
        if any(state.relations.leaned_on(c) for c in last.classes.tolist()) and last.placed(state, start):
            refill(active)
        elif _give_up(last, state, start):
            _offer(state, start, waiting, candidates(), active)
    still = []
    for gang in reversed(dropped):
        only = np.zeros(len(active), dtype=np.bool_)
        only[gang.classes] = True
        whole = [gang, *(g for g in gangs if active[g.classes].all())]
        for searched in (False, True):
            saved = state.save()
            if not searched:
                _offer(state, start, waiting, candidates(), only)
            elif _search(gang, state, waiting):
                state.give_back(start, waiting)
            if all(g.placed(state, start) >= g.needed for g in whole):
                # What a group lets in may let others in.
                active[gang.classes] = True
                if state.relations:
                    _offer(state, start, waiting, candidates(), active)
                break
            gang = replace(gang, reached=max(gang.reached, gang.placed(state, start)))
            state.restore(saved)
        else:
            still.append(gang)
    return tuple(still)


def _offer(state: BulkRoundState, start: int, waiting: Waiting, candidates: CandidateIndex, only: BoolArray) -> None:
    state.sweep(start, waiting, candidates, only)
    state.give_back(start, waiting)


def _search(gang: QueuedGang, state: BulkRoundState, waiting: Waiting) -> bool:
    """Place as many of a group as are needed, none of them dearer than leaving it; False, and nothing has changed, where no
    such places are found.
    """
    classes = state.cluster.tasks.task_class[gang.members]
    alike = (classes == classes[0]).all() and not state.relations.concerns(int(classes[0]))
    # As many as fit have been placed of one class that no relation concerns.
    if alike or len(classes) > MOST_MEMBERS:
        return False
    dearest = waiting.dearest[np.searchsorted(waiting.classes, classes)]
    places = StartingPlaces(state, classes, dearest)
    return GangSearch(places, gang.needed, steps_among(state.cluster.machines.machine_count), more=False).fit()


def _give_up(gang: QueuedGang, state: BulkRoundState, start: int) -> bool:
    gone: BoolArray = np.isin(state.task_class[start:], gang.classes)
    if gone.any():
        state.take_back(start, gone)
    return bool(gone.any())

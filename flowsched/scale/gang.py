"""Task groups at cluster scale: never between none and their minimum.

The network knows no groups. What it places is looked at afterwards: a group below its minimum gives its places back, the one
that came last first, and they are offered to the others; groups that gave way try again once all others have their places. A
group that is too small even with all who wait takes no part in a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.scale.desk import Desk
from flowsched.scale.ledger import RUNNING, Ledger
from flowsched.scale.openings import Openings
from flowsched.scale.waiting import Waiting
from flowsched.support.arrays import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Gang:
    """The part of a task group that waits, where one task alone must not start."""

    name: str
    needed: int
    """How many have to start together, beside those that run."""
    classes: IntArray
    """All classes of the group."""
    members: IntArray
    """Tasks that wait, in the order in which they came."""
    priority: int
    """The lowest of its members'; all are served with it."""
    minimum: int
    """How many of the group have to run."""
    running: int
    """How many do already."""
    reached: int = 0
    """How many had a place at most, where that was not enough."""

    @property
    def complete(self) -> bool:
        """Whether enough of them are here."""
        return len(self.members) >= self.needed

    def placed(self, desk: Desk, start: int) -> int:
        """How many have a place since placement ``start``."""
        return int(np.isin(desk.task_class[start:], self.classes).sum())


class Gangs:
    """Finds the groups of a round; which classes belong to which is remembered."""

    def __init__(self, ledger: Ledger) -> None:
        """Nothing is known yet."""
        self._ledger = ledger
        self._number: dict[str, int] = {}
        self._group_of: IntArray = np.zeros(0, dtype=np.int64)

    def find(self, pending: IntArray) -> tuple[Gang, ...]:
        """Groups of which several tasks have to start together, in the order of their first task; nothing if there are none.

        ``pending``: in the order in which they came.
        """
        ledger = self._ledger
        if not ledger.groups:
            return ()
        self._catch_up()
        group = self._group_of[ledger.task_class[pending]]
        where = np.flatnonzero(group >= 0)
        if not len(where):
            return ()
        per_class = np.bincount(ledger.task_class[ledger.state == RUNNING], minlength=len(ledger.classes))
        numbers, first = np.unique(group[where], return_index=True)
        names = list(self._number)
        priority = ledger.table().priority
        found = []
        for number in numbers[np.argsort(first)].tolist():
            classes = np.flatnonzero(self._group_of == number)
            minimum = ledger.groups.get(names[number], 1)
            running = int(per_class[classes].sum()) + ledger.members_elsewhere.get(names[number], 0)
            needed = minimum - running
            if needed > 1:
                members = pending[where[group[where] == number]]
                lowest = int(priority[ledger.task_class[members]].min())
                found.append(Gang(names[number], needed, classes, members, lowest, minimum, running))
        return tuple(found)

    def _catch_up(self) -> None:
        known, classes = len(self._group_of), self._ledger.classes
        if known < len(classes):
            more = [self._number.setdefault(c.group, len(self._number)) if c.group else -1 for c in classes[known:]]
            self._group_of = np.concatenate([self._group_of, np.array(more, dtype=np.int64)])


def all_or_none(
    gangs: Sequence[Gang],
    desk: Desk,
    start: int,
    waiting: Waiting,
    openings: Callable[[], Openings],
    refill: Callable[[BoolArray], None],
) -> tuple[Gang, ...]:
    """See to it that every group has its minimum or nothing; those that start with nothing.

    ``gangs``: those of the level in the order in which they came. ``openings`` says what is open as the desk stands;
    ``refill`` places the level anew with some classes only, for where others may be at their places because of a group.
    """
    active: BoolArray = np.ones(len(desk.ledger.classes), dtype=np.bool_)
    dropped: list[Gang] = []
    while True:
        failing = [g for g in gangs if active[g.classes].all() and g.placed(desk, start) < g.needed]
        if not failing:
            break
        last = failing[-1]
        dropped.append(replace(last, reached=last.placed(desk, start)))
        active[last.classes] = False
        if any(desk.relations.leaned_on(c) for c in last.classes.tolist()) and last.placed(desk, start):
            refill(active)
        elif _give_up(last, desk, start):
            _offer(desk, start, waiting, openings(), active)
    still = []
    for gang in reversed(dropped):
        only = np.zeros(len(active), dtype=np.bool_)
        only[gang.classes] = True
        saved = desk.save()
        _offer(desk, start, waiting, openings(), only)
        kept = [g for g in gangs if active[g.classes].all()]
        if any(g.placed(desk, start) < g.needed for g in (gang, *kept)):
            still.append(replace(gang, reached=max(gang.reached, gang.placed(desk, start))))
            desk.restore(saved)
        else:
            # What a group lets in may let others in.
            active[gang.classes] = True
            if desk.relations:
                _offer(desk, start, waiting, openings(), active)
    return tuple(still)


def _offer(desk: Desk, start: int, waiting: Waiting, open_: Openings, only: BoolArray) -> None:
    desk.sweep(start, waiting, open_, only)
    desk.give_back(start, waiting)


def _give_up(gang: Gang, desk: Desk, start: int) -> bool:
    gone: BoolArray = np.isin(desk.task_class[start:], gang.classes)
    if gone.any():
        desk.take_back(start, gone)
    return bool(gone.any())

"""Bounded waiting: the earliest overdue tasks, or gangs, start now, or get machines that are reserved for them.

A task is *overdue* once it has waited longer than its overdue age, counted from its creation, so that a restart resets
nothing. The overdue task that came first starts in this round if it fits anywhere, whatever it costs. If not, it gets a hard
reservation on the machine that drains soonest, and keeps it from round to round: nothing starts there unless it is predicted
to end before the reserved start (EASY backfill: Lifka, The ANL/IBM SP Scheduling System, 1995). Then the next one has its
turn, until there are as many reservations as a round gives. A reserved start never moves later: once it has passed nothing
joins at all. A member of a gang stands for all that have to start together.

A reservation is given up, and made again, where its machine would not take the task any more once it has drained, where
relations do not let its tasks start at their places together, and for the rest of a round in which one before it starts.
While it stands, nothing comes to its domains that relations count against them. It binds tasks of its own priority and of
lower ones, so the bound on waiting holds within a priority; or across all, where overdue tasks come before all others
(``aging_crosses_priority``).

The bound: if no task runs longer than T, a task waits at most ``overdue age + (B + k)(T + one round)``, for B tasks that had
come earlier and still waited when it came. Each of them, once it is first, waits for one machine to drain, at most T since
nothing joins it that stays, and for the next round; k is 5 where four have reservations, and 1 where one has. Where runs are
longer than predicted, a task may wait for T twice. Tasks without an end make T infinite: where they leave no machine for a
task, nothing is promised and the next one is served; or, where rounds drain machines, the one that misses least of what the
task needs takes no other task until it has room.

Rounds at forecast prices (`reservation.py`) and at linear ones (`linear/overdue.py`) find out in ways of their own where
there is room, and when there will be: forecasts know what tasks do to each other, rows only when each is predicted to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, overload

import numpy as np

from flowsched.relations.gang import Gang
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_TINY_S = 1e-6
"""Times that differ by less are equal."""
Members = TypeVar("Members", tuple[int, ...], IntArray)


@dataclass(frozen=True, eq=False)
class Owed(Generic[Members]):
    """Tasks that have to start together: an overdue one, or what is missing of a gang."""

    members: Members
    """As a round numbers them; any ``needed`` of them."""
    needed: int = 1
    gang: Gang[Members] | None = None

    @classmethod
    def of(cls, gang: Gang[Members]) -> Owed[Members]:
        """What is missing of a gang."""
        return cls(gang.members, gang.needed, gang)


class Serving(Protocol[Members]):
    """One round's answers to those that are served, each beside what those before it got."""

    def start(self, owed: Owed[Members]) -> bool:
        """Start it now if there is room, whatever it costs."""

    def keep(self, owed: Owed[Members]) -> bool:
        """Hold again what the last round held for it, if that still suits."""

    def reserve(self, owed: Owed[Members]) -> bool:
        """Hold the machines that drain soonest for it, if there are such machines."""


def in_turn(late: Iterable[int], holders: Set[int], owed: Callable[[int], Owed[Members]]) -> Sequence[Owed[Members]]:
    """Overdue tasks, and the gangs of those that are members, in the order in which they are served: those that machines are
    reserved for (``holders``) come first, then as they came. ``late``: as they came.
    """
    found: dict[int | str, Owed[Members]] = {}
    for task in late:
        one = owed(task)
        found.setdefault(task if one.gang is None else one.gang.group.name, one)
    return sorted(found.values(), key=lambda one: holders.isdisjoint(one.members))


def serve(turns: Iterable[Owed[Members]], serving: Serving[Members], most: int) -> None:
    """Serve one after the other until one starts, or ``most`` have reservations."""
    reserving = 0
    for owed in turns:
        if serving.start(owed):
            return
        reserving += serving.keep(owed) or serving.reserve(owed)
        if reserving == most:
            return


@overload
def gone_by(ends_s: float, start_s: float) -> bool: ...
@overload
def gone_by(ends_s: FloatArray, start_s: FloatArray) -> BoolArray: ...
def gone_by(ends_s: float | FloatArray, start_s: float | FloatArray) -> bool | BoolArray:
    """Whether what ends then does not delay a reserved start."""
    return ends_s <= start_s + _TINY_S


def binds(level: float, priority: float) -> bool:
    """Whether a reservation of a level, which is a priority or infinity for all, binds tasks of a priority."""
    return priority <= level


def missing(needs: IntArray, free: IntArray) -> FloatArray:
    """[...] what is missing of ``needs`` [resources] where ``free`` [..., resources] is there: the sum over resources of the
    shares of each need.
    """
    asked = np.flatnonzero(needs)
    found: FloatArray = (np.maximum(0, needs[asked] - free[..., asked]) / needs[asked]).sum(axis=-1)
    return found

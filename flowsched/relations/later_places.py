"""The set of places that is reserved for a gang: machines that drain, on which enough members could start together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from math import inf

from flowsched.relations.gang_search import GangPlaces, GangSearch

EARLIER = 16
"""So many times an earlier set is looked for."""

TimedPlace = tuple[float, int]
"""When a machine has room for a member, in seconds, and its number."""


class LaterPlaces(GangPlaces[TimedPlace]):
    """Machines that will have room for members beside those that are placed; the one that has it first is taken."""

    before_s: float = inf
    """Only machines that have room before this time."""

    @cached_property
    def placed(self) -> list[tuple[float, int, int]]:
        """When, the machine and the member, in the order in which they were placed."""
        return []

    @property
    def places(self) -> Sequence[TimedPlace]:
        """All machines, whenever they have room."""
        return [(0.0, m) for m in range(len(self.free))]

    @abstractmethod
    def when(self, member: int) -> Sequence[TimedPlace]:
        """When and where there will be room for a member and relations let it come, the earliest first."""

    @abstractmethod
    def count(self, member: int, machine: int, sign: int) -> None:
        """Count a member on a machine where it has a place, or no longer with ``sign`` -1: the one that came there last."""

    def options(self, member: int) -> Sequence[TimedPlace]:
        """Those before the time that is asked for."""
        return [place for place in self.when(member) if place[0] < self.before_s]

    def put(self, member: int, options: Sequence[TimedPlace]) -> TimedPlace:
        """Place a member on the machine that has room first."""
        self.count(member, options[0][1], 1)
        self.placed.append((*options[0], member))
        return options[0]

    def take_back(self) -> None:
        """Undo the last placement."""
        _, machine, member = self.placed.pop()
        self.count(member, machine, -1)

    def machine(self, place: TimedPlace) -> int:
        """Its number."""
        return place[1]


def earliest_set(
    places: LaterPlaces, needed: int, steps: int, tries: int = EARLIER
) -> tuple[float, list[tuple[int, int]]] | None:
    """When the last of ``needed`` members has room, and members with their machines; None where no set of places is found.

    The set that the search finds first need not be the earliest: sets before it are looked for, each before the last one.
    ``steps``: what the search may try for the first one; ``tries``: so many sets are looked for at most, at least one. No
    member is placed afterwards.
    """
    found: tuple[float, list[tuple[int, int]]] | None = None
    for _ in range(tries):
        # An earlier set is worth following the rule, and no search through all assignments.
        if not GangSearch(places, needed, steps if found is None else 0, more=False).fit():
            break
        found = max(at for at, _, _ in places.placed), [(member, m) for _, m, member in places.placed]
        places.before_s = found[0]
        while places.placed:
            places.take_back()
    places.before_s = inf
    return found

"""The search for a gang's places asks no more than it has to, and tells when no assignment is left to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from flowsched.relations.gang_search import GangPlaces, GangSearch
from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched.support.arrays import IntArray


@dataclass(frozen=True)
class Unbound:
    holds: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()


class OneOfAKind(GangPlaces[int]):
    """Machines of which each takes one member of each kind, with room for many more."""

    relations: Mapping[str, Relation] = {}

    def __init__(self, kinds: Sequence[Hashable], machines: int) -> None:
        super().__init__([Unbound()] * len(kinds), [[1]] * len(kinds), kinds)
        self.asked: Counter[Hashable] = Counter()
        self._machines = machines
        self._placed: list[tuple[Hashable, int]] = []

    @property
    def places(self) -> Sequence[int]:
        return range(self._machines)

    @property
    def free(self) -> IntArray:
        return np.full((self._machines, 1), 1000)

    def joined(self, relation: Relation) -> int:
        raise AssertionError("there is no relation")

    def domain(self, relation: Relation, place: int) -> None:
        raise AssertionError("there is no relation")

    def options(self, member: int) -> list[int]:
        kind = self.kinds[member]
        self.asked[kind] += 1
        return [m for m in self.places if (kind, m) not in self._placed]

    def put(self, member: int, options: Sequence[int]) -> int:
        self._placed.append((self.kinds[member], options[0]))
        return options[0]

    def take_back(self) -> None:
        self._placed.pop()


@pytest.mark.parametrize("members", [40, 200])
def test_a_kind_without_a_place_is_asked_for_again_only_once_another_member_has_one(members: int) -> None:
    places = OneOfAKind(["a"] * members, 3)
    search = GangSearch(places, members, most_steps=0)
    assert not search.fit()
    assert search.most == 3
    # Three that find a place, and one that finds none.
    assert places.asked["a"] == 4


def test_members_that_find_a_place_later_do_so() -> None:
    places = OneOfAKind(["a", "a", "b", "b", "a"], 2)
    search = GangSearch(places, 4)
    assert search.fit()
    assert search.left == [4]


ONE_RACK = Relation("one-rack", RelationKind.TOGETHER, "rack")
ALONE = (
    Relation("alone", RelationKind.LIMIT, MACHINE),
    Relation("alone", RelationKind.APART, MACHINE),
)
BOTH = Unbound(("one-rack", "alone"), ("one-rack", "alone"))


class InOneRack(OneOfAKind):
    """Machines, some to a rack, that take one member each; the first member decides for a rack."""

    def __init__(self, members: Sequence[Unbound], alone: Relation, racks: int, of_rack: int) -> None:
        super().__init__(range(len(members)), racks * of_rack)
        self.members = members
        self.relations = {"one-rack": ONE_RACK, "alone": alone}
        self._of_rack = of_rack

    def joined(self, relation: Relation) -> int:
        return len(self._placed)

    def domain(self, relation: Relation, place: int) -> int:
        return place // self._of_rack

    def options(self, member: int) -> list[int]:
        self.asked[member] += 1
        taken = {m for _, m in self._placed}
        return [
            m
            for m in self.places
            if m not in taken and (not taken or m // self._of_rack == min(taken) // self._of_rack)
        ]


@pytest.mark.parametrize("alone", ALONE)
def test_racks_that_are_too_small_are_not_tried_with_all_members(alone: Relation) -> None:
    places = InOneRack([BOTH] * 12, alone, racks=40, of_rack=10)
    search = GangSearch(places, 12)
    assert not search.fit()
    # All members are different, and yet no assignment is worth a try: no rack has more machines than one of them.
    assert (search.most, search.steps, search.exhausted) == (10, 0, False)
    assert max(places.asked.values()) <= 2


def test_members_that_need_no_rack_are_placed_beside_those_that_do() -> None:
    free = Unbound((), ("alone",))
    places = InOneRack([BOTH, BOTH, free, free], ALONE[0], racks=3, of_rack=4)
    assert GangSearch(places, 4).fit()

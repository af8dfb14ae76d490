"""The search for places where enough members of a gang fit together, domain by domain of the relations that bind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched.support.arrays import IntArray

MOST_STEPS = 2000
"""Placements that the search through all assignments may try for one gang in a round."""
MOST_MEMBERS = 64
"""Larger gangs are placed member by member only."""

_MOST_LOOKS = 40_000
"""Machines that this search may look at where each look is dear."""

Place = TypeVar("Place")


def steps_among(machines: int) -> int:
    """Placements that the search through all assignments may try where all machines are looked at for each."""
    return min(MOST_STEPS, _MOST_LOOKS // max(1, machines))


class BoundMember(Protocol):
    """What relations a member holds and joins, by name: a task, or a class of tasks."""

    @property
    def holds(self) -> tuple[str, ...]:
        """Those that it demands."""

    @property
    def joins(self) -> tuple[str, ...]:
        """Those that count it."""


class GangPlaces(ABC, Generic[Place]):
    """Where members may go beside those that the search has placed: now, or at a time to come. Members are numbers."""

    def __init__(
        self,
        members: Sequence[BoundMember],
        needs: Sequence[Sequence[int] | IntArray] | IntArray,
        kinds: Sequence[Hashable],
    ) -> None:
        """``needs``: [members, R] what each takes of a machine. Members of a kind are alike: they fit at the same places."""
        self.members = members
        self.needs: IntArray = np.array(needs, dtype=np.int64)
        self.kinds = kinds
        self.tight = False
        """Whether members get the GPUs that leave most to the others, whatever the rule prefers."""

    @property
    @abstractmethod
    def relations(self) -> Mapping[str, Relation]:
        """Those that are known, by name."""

    @abstractmethod
    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains, with the members that are placed."""

    @abstractmethod
    def domain(self, relation: Relation, place: Place) -> Hashable:
        """The domain of a place; None where it is in none."""

    @property
    @abstractmethod
    def places(self) -> Sequence[Place]:
        """All machines."""

    @property
    @abstractmethod
    def free(self) -> IntArray:
        """[places, R] what is free, in the units of ``needs``."""

    @abstractmethod
    def options(self, member: int) -> Sequence[Place]:
        """Machines where a member fits."""

    @abstractmethod
    def put(self, member: int, options: Sequence[Place]) -> Place:
        """Place a member on the machine that the rule likes best."""

    @abstractmethod
    def take_back(self) -> None:
        """Undo the last placement."""

    def machine(self, place: Place) -> Hashable:
        """What tells machines apart."""
        return place

    def mark(self, place: Place) -> Hashable:
        """What tells apart what members take of machines: that, and the devices."""
        return self.machine(place)


class GangSearch(Generic[Place]):
    """Finds places for at least ``needed`` members at once, and places as many as fit there; else none.

    First as the rule has it: member by member, each on the machine that the rule likes best. The first of those that a
    ``together`` relation keeps in one domain decides for all of them, so all domains are tried for it, in the order in which
    the rule likes their machines. For equal members that is exact, with one relation of another kind too. If it fails for
    others, the same is tried with the largest members first, and then all assignments within limits.
    """

    def __init__(self, places: GangPlaces[Place], needed: int, most_steps: int = MOST_STEPS, more: bool = True) -> None:
        """Nothing is placed yet. ``more``: whether members are placed beyond those that are needed."""
        self._places = places
        self._needed = needed
        self._enough = len(places.members) if more else needed
        self.most = 0
        """The largest number of members that could be placed together, as far as it is known."""
        self.exhausted = False
        """Whether a limit ended the search: then ``most`` may be too low."""
        self.left: list[int] = []
        """Members that found no place, once enough others have."""
        self._held = {name for task in places.members for name in task.holds}
        self._most_steps = most_steps
        self.steps = 0
        """Steps of the search through all assignments so far."""
        self._seen: set[Hashable] = set()

    def fit(self) -> bool:
        """Search. Whether enough are placed."""
        members = list(range(len(self._places.members)))
        if self._follow_rule(members, [], 0):
            return True
        if self._settled() or self._bound(members) <= self.most:
            return False
        self._places.tight = True
        # Large members first: those that follow fit into what they leave.
        largest = np.lexsort((members, *(-self._places.needs.T[::-1]))).tolist()
        if self._follow_rule(largest, [], 0):
            return True
        if len(members) > MOST_MEMBERS:
            if self._needed < len(members) and self._follow_rule(largest[::-1], [], 0):
                return True
            self.exhausted = self._bound(members) > self.most
            return False
        return self._try_all(largest, [])

    def _follow_rule(self, queue: list[int], passed: list[int], placed: int) -> bool:
        """Place members in order; those without a place have another turn once others have been placed."""
        places, put, progress = self._places, 0, bool(placed)
        # Kinds without a place as things stand: large gangs are of few, and each look is at all machines.
        full: set[Hashable] = set()
        while placed + put < self._enough and (queue or (progress and passed)):
            if not queue:
                queue, passed, progress = passed, [], False
            member, queue = queue[0], queue[1:]
            options = [] if places.kinds[member] in full else places.options(member)
            if not options:
                full.add(places.kinds[member])
                passed.append(member)
                continue
            opened = self._opened(member)
            if opened:
                if self._try_domains(member, opened, options, queue, passed, placed + put):
                    return True
                break
            places.put(member, options)
            full.clear()
            put, progress = put + 1, True
        else:
            self.most = max(self.most, placed + put)
            if placed + put >= self._needed:
                self.left = sorted([*queue, *passed])
                return True
        for _ in range(put):
            places.take_back()
        return False

    def _try_domains(
        self,
        member: int,
        opened: Sequence[Relation],
        options: Sequence[Place],
        queue: list[int],
        passed: list[int],
        placed: int,
    ) -> bool:
        """Place a member that decides for others in one domain after the other."""
        places = self._places
        cell = {places.machine(place): self._cell(opened, place) for place in options}
        bound = self._bound_by_cell([member, *queue, *passed], opened)
        while options := [p for p in options if placed + bound.get(cell[places.machine(p)], 0) > self.most]:
            here = cell[places.machine(places.put(member, options))]
            if self._follow_rule(list(queue), list(passed), placed + 1):
                return True
            places.take_back()
            options = [p for p in options if cell[places.machine(p)] != here]
        return False

    def _try_all(self, left: list[int], placed: list[tuple[Hashable, Hashable]]) -> bool:
        """Try every member next at every place; what was reached in another order before is passed over."""
        if len(placed) > self.most:
            self.most = len(placed)
        if len(placed) >= self._needed:
            # More can only be gained by those that are left.
            rest = GangSearch(self._places, 0)
            rest._enough = self._enough - len(placed)
            rest._follow_rule(left, [], 0)
            self.left = rest.left
            return True
        if len(placed) + len(left) <= self.most or len(placed) + self._bound(left) <= self.most:
            return False
        state = frozenset(Counter(placed).items())
        if state in self._seen:
            return False
        self._seen.add(state)
        places, tried = self._places, set()
        for at, member in enumerate(left):
            if places.kinds[member] in tried:
                continue
            tried.add(places.kinds[member])
            options = places.options(member)
            while options:
                if self.steps >= self._most_steps:
                    self.exhausted = True
                    return False
                self.steps += 1
                place = places.put(member, options)
                where, machine = (places.kinds[member], places.mark(place)), places.machine(place)
                if self._try_all(left[:at] + left[at + 1 :], [*placed, where]):
                    return True
                places.take_back()
                options = [p for p in options if places.machine(p) != machine]
        return False

    def _settled(self) -> bool:
        """Whether following the rule has shown how many can start: see the class."""
        if len(set(self._places.kinds)) > 1:
            return False
        task, known = self._places.members[0], self._places.relations
        kinds = [known[name].kind for name in {*task.holds, *task.joins} if name in known]
        return sum(kind not in (RelationKind.TOGETHER, RelationKind.COUNT) for kind in kinds) <= 1

    def _opened(self, member: int) -> list[Relation]:
        """Relations that hold members where the first task that joins is, and that this member would be the first of."""
        places, task = self._places, self._places.members[member]
        return [
            relation
            for name in dict.fromkeys(task.joins)
            if name in self._held
            and (relation := places.relations.get(name)) is not None
            and relation.kind is RelationKind.TOGETHER
            and not places.joined(relation)
        ]

    def _cell(self, opened: Sequence[Relation], place: Place) -> tuple[Hashable, ...]:
        return tuple(self._places.domain(relation, place) for relation in opened)

    def _bound_by_cell(self, members: Sequence[int], opened: Sequence[Relation]) -> dict[Hashable, int]:
        """No more of these members than this could be placed, by domain of the relations that the first of them opens."""
        cells = [self._cell(opened, place) for place in self._places.places]
        names = {relation.name for relation in opened}
        if any(not names <= set(self._places.members[m].holds) for m in members):
            return dict.fromkeys(cells, len(members))
        number: dict[Hashable, int] = {}
        of = np.array([number.setdefault(cell, len(number)) for cell in cells], dtype=np.int64)
        return dict(zip(number, self._bounds(members, of, len(number)), strict=True))

    def _bound(self, members: Sequence[int]) -> int:
        """No more of these members than this could be placed, relations to other tasks aside."""
        found = self._bounds(members, np.zeros(len(self._places.places), dtype=np.int64), 1)[0]
        opened = self._opened(members[0])
        # All of them are to be in one domain then.
        return min(found, max(self._bound_by_cell(members, opened).values(), default=0)) if opened else found

    def _bounds(self, members: Sequence[int], of: IntArray, count: int) -> list[int]:
        """The same by part of the cluster; ``of``: [machines] the part of each.

        The smallest members are taken for all of them, and what is free is added up over machines.
        """
        needs, free = self._places.needs[list(members)], np.maximum(0, self._places.free)
        least = needs.min(axis=0)
        asked = np.flatnonzero(least)
        slots = (free[:, asked] // least[asked]).min(axis=1, initial=len(members)).clip(max=self._most_on_one(members))
        found = np.bincount(of, weights=slots, minlength=count)
        for r in asked.tolist():
            total = np.bincount(of, weights=np.where(slots > 0, free[:, r], 0), minlength=count)
            found = np.minimum(found, np.searchsorted(np.sort(needs[:, r]).cumsum(), total, side="right"))
        return [int(n) for n in np.minimum(found, len(members))]

    def _most_on_one(self, members: Sequence[int]) -> int:
        """No more of these members than this could be on one machine, however large it is."""
        found, known = len(members), self._places.relations
        bound = {(tuple(task.holds), tuple(task.joins)) for task in (self._places.members[m] for m in members)}
        for name in set.intersection(*(set(joins) for _, joins in bound)):
            relation = known.get(name)
            if relation is None or relation.key != MACHINE:
                continue
            if relation.kind is RelationKind.LIMIT:
                found = min(found, relation.most)
            elif relation.kind is RelationKind.APART and all(name in holds for holds, _ in bound):
                found = 1
        return found

"""The search for places where enough members of a gang fit together, domain by domain of the relations that bind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.snapshot import Task
from flowsched.relations.relation import Relation, RelationKind
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.room import Room

MOST_STEPS = 2000
"""Placements that the search through all assignments may try for one gang in a round."""
MOST_MEMBERS = 64
"""Larger gangs are placed member by member only."""


class Places(ABC):
    """Where members may go beside those that the search has placed. Members are numbers of ``tasks``."""

    def __init__(
        self, tasks: Sequence[Task], needs: Sequence[Sequence[int] | IntArray], kinds: Sequence[Hashable]
    ) -> None:
        """``needs``: [members, R] what each takes of a machine. Members of a kind are alike: they fit at the same places."""
        self.tasks = tasks
        self.needs: IntArray = np.array(needs, dtype=np.int64)
        self.kinds = kinds
        self.tight = False
        """Whether members get the GPUs that leave most to the others, whatever the rule prefers."""

    @property
    @abstractmethod
    def domain_counts(self) -> DomainCounts:
        """Relations with the members that are placed."""

    @property
    @abstractmethod
    def rooms(self) -> Sequence[Room]:
        """All machines."""

    @property
    @abstractmethod
    def free(self) -> IntArray:
        """[machines, R] what is free, in the units of ``needs``."""

    @abstractmethod
    def options(self, member: int) -> Sequence[Room]:
        """Machines where a member fits."""

    @abstractmethod
    def put(self, member: int, options: Sequence[Room]) -> Room:
        """Place a member on the machine that the rule likes best."""

    @abstractmethod
    def take_back(self) -> None:
        """Undo the last placement."""


def alike(task: Task, now_s: float) -> Hashable:
    """Equal for tasks that fit at the same places for the same time, if they may start now or later."""
    # Content without the time of arrival: of that only matters whether the task has waited.
    return task.content[0], task.submit_s < now_s, *task.content[2:], task.run_s


class GangSearch:
    """Finds places for at least ``needed`` members at once, and places as many as fit there; else none.

    First as the rule has it: member by member, each on the machine that the rule likes best. The first of those that a
    ``together`` relation keeps in one domain decides for all of them, so all domains are tried for it, in the order in which
    the rule likes their machines. For equal members that is exact, with one relation of another kind too. If it fails for
    others, the same is tried with the largest members first, and then all assignments within limits.
    """

    def __init__(self, places: Places, needed: int, most_steps: int = MOST_STEPS) -> None:
        """Nothing is placed yet."""
        self._places = places
        self._needed = needed
        self.most = 0
        """The largest number of members that could be placed together, as far as it is known."""
        self.exhausted = False
        """Whether a limit ended the search: then ``most`` may be too low."""
        self.left: list[int] = []
        """Members that found no place, once enough others have."""
        self._held = {name for task in places.tasks for name in task.holds}
        self._most_steps = most_steps
        self.steps = 0
        """Steps of the search through all assignments so far."""
        self._seen: set[Hashable] = set()

    def fit(self) -> bool:
        """Search. Whether enough are placed."""
        members = list(range(len(self._places.tasks)))
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
            self.exhausted = self._bound(members) > self.most
            return False
        return self._try_all(largest, [])

    def _follow_rule(self, queue: list[int], passed: list[int], placed: int) -> bool:
        """Place members in order; those without a place have another turn once others have been placed."""
        places, put, progress = self._places, 0, bool(placed)
        while queue or (progress and passed):
            if not queue:
                queue, passed, progress = passed, [], False
            member, queue = queue[0], queue[1:]
            options = places.options(member)
            if not options:
                passed.append(member)
                continue
            opened = self._opened(member)
            if opened:
                if self._try_domains(member, opened, options, queue, passed, placed + put):
                    return True
                break
            places.put(member, options)
            put, progress = put + 1, True
        else:
            self.most = max(self.most, placed + put)
            if placed + put >= self._needed:
                self.left = sorted(passed)
                return True
        for _ in range(put):
            places.take_back()
        return False

    def _try_domains(
        self,
        member: int,
        opened: Sequence[Relation],
        options: Sequence[Room],
        queue: list[int],
        passed: list[int],
        placed: int,
    ) -> bool:
        """Place a member that decides for others in one domain after the other."""
        places = self._places
        cell = {room.name: self._cell(opened, room) for room in options}
        bound = self._bound_by_cell([member, *queue, *passed], opened)
        while options := [r for r in options if placed + bound.get(cell[r.name], 0) > self.most]:
            room = places.put(member, options)
            if self._follow_rule(list(queue), list(passed), placed + 1):
                return True
            places.take_back()
            options = [r for r in options if cell[r.name] != cell[room.name]]
        return False

    def _try_all(self, left: list[int], placed: list[tuple[Hashable, Hashable]]) -> bool:
        """Try every member next at every place; what was reached in another order before is passed over."""
        if len(placed) > self.most:
            self.most = len(placed)
        if len(placed) >= self._needed:
            # More can only be gained by those that are left.
            rest = GangSearch(self._places, 0)
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
                room = places.put(member, options)
                where = places.kinds[member], (room.name, room.devices)
                if self._try_all(left[:at] + left[at + 1 :], [*placed, where]):
                    return True
                places.take_back()
                options = [r for r in options if r.name != room.name]
        return False

    def _settled(self) -> bool:
        """Whether following the rule has shown how many can start: see the class."""
        if len(set(self._places.kinds)) > 1:
            return False
        task, known = self._places.tasks[0], self._places.domain_counts.relations
        kinds = [known[name].kind for name in {*task.holds, *task.joins} if name in known]
        return sum(kind not in (RelationKind.TOGETHER, RelationKind.COUNT) for kind in kinds) <= 1

    def _opened(self, member: int) -> list[Relation]:
        """Relations that hold members where the first task that joins is, and that this member would be the first of."""
        counts, task = self._places.domain_counts, self._places.tasks[member]
        return [
            relation
            for name in dict.fromkeys(task.joins)
            if name in self._held
            and (relation := counts.relations.get(name)) is not None
            and relation.kind is RelationKind.TOGETHER
            and not counts.members(relation)
        ]

    def _cell(self, opened: Sequence[Relation], room: Room) -> tuple[str | None, ...]:
        return tuple(self._places.domain_counts.domain(relation, room.name) for relation in opened)

    def _bound_by_cell(self, members: Sequence[int], opened: Sequence[Relation]) -> dict[Hashable, int]:
        """No more of these members than this could be placed, by domain of the relations that the first of them opens."""
        rooms = self._places.rooms
        cells = [self._cell(opened, room) for room in rooms]
        names = {relation.name for relation in opened}
        if any(not names <= set(self._places.tasks[m].holds) for m in members):
            return dict.fromkeys(cells, len(members))
        number: dict[Hashable, int] = {}
        of = np.array([number.setdefault(cell, len(number)) for cell in cells], dtype=np.int64)
        return dict(zip(number, self._bounds(members, of, len(number)), strict=True))

    def _bound(self, members: Sequence[int]) -> int:
        """No more of these members than this could be placed, relations aside."""
        return self._bounds(members, np.zeros(len(self._places.rooms), dtype=np.int64), 1)[0]

    def _bounds(self, members: Sequence[int], of: IntArray, count: int) -> list[int]:
        """The same by part of the cluster; ``of``: [machines] the part of each.

        The smallest members are taken for all of them, and what is free is added up over machines.
        """
        needs, free = self._places.needs[list(members)], np.maximum(0, self._places.free)
        least = needs.min(axis=0)
        asked = np.flatnonzero(least)
        slots = (free[:, asked] // least[asked]).min(axis=1, initial=len(members)).clip(max=len(members))
        found = np.bincount(of, weights=slots, minlength=count)
        for r in asked.tolist():
            total = np.bincount(of, weights=np.where(slots > 0, free[:, r], 0), minlength=count)
            found = np.minimum(found, np.searchsorted(np.sort(needs[:, r]).cumsum(), total, side="right"))
        return [int(n) for n in np.minimum(found, len(members))]

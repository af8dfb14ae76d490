"""Where one relation lets tasks of one kind go, over any fixed order of machines."""

from __future__ import annotations

import numpy as np

from flowsched.relations.entry_bounds import EntryBounds, entry_bounds, roles
from flowsched.relations.relation import RelationKind
from flowsched.relations.relation_counts import compared_domains, floor_of
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.support.arrays import BoolArray, IntArray


class TopologyFilter:
    """What one relation says to tasks of one kind, as things stand.

    ``eligible``: machines that a spread compares (None for all); what is on the others is not counted, as Kubernetes does.
    """

    def __init__(self, topology: TopologyCounts, holds: bool, joins: bool, eligible: BoolArray | None = None) -> None:
        """Count members and holders by domain."""
        self.topology = topology
        self.holds = holds
        self.joins = joins
        relation = topology.relation
        self._kind = relation.kind
        self._spread = holds and self._kind is RelationKind.SPREAD
        self._eligible = eligible if self._spread else None
        self.members = topology.by_domain(topology.members, self._eligible)
        """By domain, those that count."""
        apart = self._kind is RelationKind.APART
        self.holders = topology.by_domain(topology.holders) if apart else np.zeros(0, dtype=np.int64)
        """By domain; none where the relation is not ``apart``."""
        self.total = int(self.members.sum())
        """Members in all domains."""
        if self._spread:
            ones = np.ones(len(topology.domain), dtype=np.int64)
            self._compared = compared_domains(relation, topology.by_domain(ones, self._eligible))

    @property
    def trivial(self) -> bool:
        """Whether it never refuses anything."""
        if self._kind is RelationKind.COUNT:
            return True
        if self._kind is RelationKind.LIMIT:
            return not self.joins
        return self._kind is not RelationKind.APART and not self.holds

    @property
    def widens(self) -> bool:
        """Whether tasks that are placed later can open what is closed now."""
        return self.holds and self._kind in (RelationKind.SPREAD, RelationKind.TOGETHER)

    @property
    def minds_itself(self) -> bool:
        """Whether a task of this kind changes what the next one of the same kind may do."""
        if not self.joins:
            return False
        if self._kind is RelationKind.LIMIT:
            return True
        if self._kind is RelationKind.TOGETHER:
            return self.holds and self.total == 0
        return self.holds and self._kind in (RelationKind.APART, RelationKind.SPREAD)

    @property
    def counts(self) -> bool:
        """Whether what it says to its own kind is only a number of tasks for each machine, ``room``."""
        return not self.minds_itself or (
            self.topology.per_machine and self._kind in (RelationKind.LIMIT, RelationKind.APART)
        )

    def room(self, unlimited: int) -> IntArray:
        """How many more tasks of this kind each machine may take as things stand, where ``counts`` is true."""
        verdict = np.where(self.open_machines(), unlimited, 0)
        if self.minds_itself:
            if self._kind is RelationKind.LIMIT:
                left = np.append(np.maximum(self.topology.relation.most - self.members, 0), unlimited)
            else:
                left = np.append(np.ones(self.topology.domains, dtype=np.int64), unlimited)
            verdict = np.minimum(verdict, left[self.topology.domain])
        return verdict

    def allowance(self, slots: IntArray, count: int) -> tuple[IntArray, IntArray]:
        """How ``count`` more tasks of this kind may share the domains, where they mind each other.

        So many each at most, and so many on top once all have got theirs. ``slots``: tasks that each machine has room
        for. An estimate to plan with; only placing one by one is exact.
        """
        room = np.minimum(self.topology.by_domain(slots), count)
        if self._kind is RelationKind.LIMIT:
            left = np.maximum(self.topology.relation.most - self.members, 0)
            return np.minimum(room, left), np.zeros_like(room)
        if self._kind is RelationKind.APART:
            room[(self.members > 0) | (self.holders > 0)] = 0
            return np.minimum(room, 1), np.zeros_like(room)
        if self._kind is RelationKind.TOGETHER:
            alone = np.zeros_like(room)
            if len(room):
                alone[room.argmax()] = room.max()
            return alone, np.zeros_like(room)
        compared = self._compared
        level = 0
        if len(compared):
            ends = self.members[compared] + room[compared]
            level = min(int(ends.min()), _even_level(self.members[compared], room[compared], count))
        even = np.minimum(room, np.maximum(level - self.members, 0))
        most = np.minimum(room, np.maximum(level + self.topology.relation.skew - self.members, 0))
        return even, np.minimum(most - even, count - min(count, int(even.sum())))

    def open_machines(self) -> BoolArray:
        """Machines that the relation lets one more such task enter."""
        return self._open(self.holds, self.joins)

    def refused(self) -> list[tuple[str, BoolArray]]:
        """Machines that it refuses, by the role (``holds``, ``joins``) for which it does."""
        asked = roles(self.topology.relation, self.holds, self.joins)
        return [(role, ~self._open(holds, joins)) for role, holds, joins in asked]

    @property
    def counted(self) -> BoolArray:
        """By machine: whether members there count."""
        return np.ones(len(self.topology.domain), dtype=np.bool_) if self._eligible is None else self._eligible

    @property
    def compared(self) -> BoolArray:
        """By domain: whether the least filled of these is the floor of a spread; without one the floor is 0."""
        compared = np.zeros(self.topology.domains, dtype=np.bool_)
        if self._spread:
            compared[self._compared] = True
        return compared

    def _bounds(self, holds: bool, joins: bool) -> EntryBounds:
        relation = self.topology.relation
        floor = floor_of(self.members, self._compared) if self._spread else 0
        return entry_bounds(relation, holds, joins, self.total, floor)

    def _open(self, holds: bool, joins: bool) -> BoolArray:
        bounds = self._bounds(holds, joins)
        # Index -1, the domain of machines in none, finds the last entry.
        by_domain = np.append(bounds.open_domains(self.members, self.holders), not bounds.needs_label)
        return by_domain[self.topology.domain]


def _even_level(counts: IntArray, room: IntArray, more: int) -> int:
    """The level up to which ``more`` tasks fill domains that hold ``counts`` and have ``room``, least filled first."""
    low, high = int(counts.min()), int(counts.max()) + more
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.clip(middle - counts, 0, room).sum()) <= more:
            low = middle
        else:
            high = middle - 1
    return low

"""How a relation stands: who joins and who holds it, machine by machine, and where one more task may go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowsched.arrays import BoolArray, IntArray
from flowsched.relation import Relation, RelationKind


@dataclass
class Standing:
    """A relation with its domains and the tasks that are counted, over any fixed order of machines."""

    relation: Relation
    domain: IntArray
    """Domain of each machine, -1 for a machine that is in none."""
    domains: int
    """How many numbers of domains there may be."""
    members: IntArray
    """Tasks on each machine that join."""
    holders: IntArray
    """Tasks on each machine that hold; kept for ``apart`` only, where it binds those who come later."""

    @cached_property
    def labelled(self) -> BoolArray:
        """Machines that are in a domain."""
        return self.domain >= 0

    @cached_property
    def per_machine(self) -> bool:
        """Whether no domain has two machines, so that the relation is a matter of each machine by itself."""
        return bool(np.bincount(self.domain[self.labelled], minlength=1).max(initial=0) <= 1)

    def by_domain(self, values: IntArray, where: BoolArray | None = None) -> IntArray:
        """Sums over the machines of each domain, over those in ``where`` only."""
        chosen = self.labelled if where is None else self.labelled & where
        return np.bincount(self.domain[chosen], weights=values[chosen], minlength=self.domains).astype(np.int64)

    def members_around(self) -> IntArray:
        """Members in each machine's domain; 0 for machines in none."""
        return np.append(self.by_domain(self.members), 0)[self.domain]

    def add(self, machines: IntArray, holds: bool, joins: bool, sign: int = 1) -> None:
        """Count one task on each of ``machines`` (repeats count again), or take it out with ``sign`` -1."""
        if joins:
            np.add.at(self.members, machines, sign)
        if holds and self.relation.kind is RelationKind.APART:
            np.add.at(self.holders, machines, sign)

    def copy(self) -> Standing:
        """An independent copy; domains are shared, they never change in place."""
        return Standing(self.relation, self.domain, self.domains, self.members.copy(), self.holders.copy())


class Gate:
    """What one relation says to tasks of one kind, kept current in O(1) while such tasks are placed one after another.

    ``eligible``: machines that a spread compares (None for all); what is on the others is not counted, as Kubernetes does.
    """

    def __init__(self, standing: Standing, holds: bool, joins: bool, eligible: BoolArray | None = None) -> None:
        """Count members and holders by domain."""
        self.standing = standing
        self.holds = holds
        self.joins = joins
        relation = standing.relation
        self._kind = relation.kind
        self._spread = holds and self._kind is RelationKind.SPREAD
        self._eligible = eligible if self._spread else None
        self._members = standing.by_domain(standing.members, self._eligible)
        apart = self._kind is RelationKind.APART
        self._holders = standing.by_domain(standing.holders) if apart else np.zeros(0, dtype=np.int64)
        self._total = int(self._members.sum())
        # Index -1, the domain of machines in none, finds the last entry.
        self._missing_is_open = not (holds and self._kind in (RelationKind.SPREAD, RelationKind.TOGETHER))
        if self._spread:
            ones = np.ones(len(standing.domain), dtype=np.int64)
            self._compared = np.flatnonzero(standing.by_domain(ones, self._eligible) > 0)
            self._floor_is_zero = len(self._compared) < max(1, relation.min_domains)

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
            return self.holds and self._total == 0
        return self.holds and self._kind in (RelationKind.APART, RelationKind.SPREAD)

    @property
    def counts(self) -> bool:
        """Whether what it says to its own kind is only a number of tasks for each machine, ``room``."""
        return not self.minds_itself or (
            self.standing.per_machine and self._kind in (RelationKind.LIMIT, RelationKind.APART)
        )

    def room(self, unlimited: int) -> IntArray:
        """How many more tasks of this kind each machine may take as things stand, where ``counts`` is true."""
        verdict = np.where(self.open_machines(), unlimited, 0)
        if self.minds_itself:
            if self._kind is RelationKind.LIMIT:
                left = np.append(np.maximum(self.standing.relation.most - self._members, 0), unlimited)
            else:
                left = np.append(np.ones(self.standing.domains, dtype=np.int64), unlimited)
            verdict = np.minimum(verdict, left[self.standing.domain])
        return verdict

    def allowance(self, slots: IntArray, count: int) -> tuple[IntArray, IntArray]:
        """How ``count`` more tasks of this kind may share the domains, where they mind each other.

        So many each at most, and so many on top once all have got theirs. ``slots``: tasks that each machine has room
        for. An estimate to plan with; only placing one by one is exact.
        """
        room = np.minimum(self.standing.by_domain(slots), count)
        if self._kind is RelationKind.LIMIT:
            left = np.maximum(self.standing.relation.most - self._members, 0)
            return np.minimum(room, left), np.zeros_like(room)
        if self._kind is RelationKind.APART:
            room[(self._members > 0) | (self._holders > 0)] = 0
            return np.minimum(room, 1), np.zeros_like(room)
        if self._kind is RelationKind.TOGETHER:
            alone = np.zeros_like(room)
            if len(room):
                alone[room.argmax()] = room.max()
            return alone, np.zeros_like(room)
        compared = self._compared
        level = 0
        if not self._floor_is_zero:
            ends = self._members[compared] + room[compared]
            level = min(int(ends.min()), _even_level(self._members[compared], room[compared], count))
        even = np.minimum(room, np.maximum(level - self._members, 0))
        most = np.minimum(room, np.maximum(level + self.standing.relation.skew - self._members, 0))
        return even, np.minimum(most - even, count - min(count, int(even.sum())))

    def open_machines(self) -> BoolArray:
        """Machines that the relation lets one more such task enter."""
        return self._by_machine(self._open_to_holder() & self._open_to_member())

    def refused(self) -> list[tuple[str, BoolArray]]:
        """Machines that it refuses, by the role (``holds``, ``joins``) for which it does."""
        answers = []
        if self._kind is RelationKind.APART:
            if self.holds:
                answers.append(("holds", ~self._by_machine(self._open_to_holder())))
            if self.joins:
                answers.append(("joins", ~self._by_machine(self._open_to_member())))
        elif not self.trivial:
            answers.append(("holds" if self.holds else "joins", ~self.open_machines()))
        return answers

    def note(self, machine: int) -> None:
        """One such task has been placed on a machine."""
        domain = int(self.standing.domain[machine])
        if domain < 0:
            return
        if self.joins and (self._eligible is None or self._eligible[machine]):
            self._members[domain] += 1
            self._total += 1
        if self.holds and self._kind is RelationKind.APART:
            self._holders[domain] += 1

    def _by_machine(self, by_domain: BoolArray) -> BoolArray:
        verdict: BoolArray = np.append(by_domain, self._missing_is_open)
        return verdict[self.standing.domain]

    def _open_to_holder(self) -> BoolArray:
        everywhere = np.ones(self.standing.domains, dtype=np.bool_)
        if self.trivial or not self.holds:
            return everywhere
        if self._kind is RelationKind.APART:
            return np.equal(self._members, 0)
        if self._kind is RelationKind.TOGETHER:
            return everywhere if self._total == 0 and self.joins else np.greater(self._members, 0)
        if self._kind is RelationKind.SPREAD:
            floor = 0 if self._floor_is_zero else int(self._members[self._compared].min())
            return np.less_equal(self._members, self.standing.relation.skew + floor - int(self.joins))
        return everywhere

    def _open_to_member(self) -> BoolArray:
        if self.joins and self._kind is RelationKind.LIMIT:
            return np.less(self._members, self.standing.relation.most)
        if self.joins and self._kind is RelationKind.APART:
            return np.equal(self._holders, 0)
        return np.ones(self.standing.domains, dtype=np.bool_)


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

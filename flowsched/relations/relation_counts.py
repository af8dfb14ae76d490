"""The counts of one relation, by machine row and by domain, kept in O(1) by every event."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from flowsched.relations.relation import MACHINE, Relation
from flowsched.support.arrays import BoolArray, IntArray, moved

_RESTRICTIONS = 8
"""Sets of eligible machines that a spread keeps counts for; the least recently asked for goes first."""


class Tally:
    """Members and holders by index: a machine's row or the number of a domain. The arrays grow when an index is new."""

    def __init__(self, members: IntArray, holders: IntArray) -> None:
        """The arrays become the tally's own."""
        self.members = members
        self.holders = holders
        self.total = int(members.sum())
        """Members at all indices."""

    def add(self, index: int, members: int, holders: int) -> None:
        """Count so many more at an index, or fewer where negative."""
        if members:
            if index >= len(self.members):
                self.members = padded(self.members, max(16, 2 * index))
            self.members[index] += members
            self.total += members
        if holders:
            if index >= len(self.holders):
                self.holders = padded(self.holders, max(16, 2 * index))
            self.holders[index] += holders

    def add_all(self, indices: IntArray, members: IntArray, holders: IntArray) -> None:
        """The same at each of some indices; repeats count again."""
        end = int(indices.max(initial=-1)) + 1
        self.members = padded(self.members, max(end, len(self.members)))
        self.holders = padded(self.holders, max(end, len(self.holders)))
        np.add.at(self.members, indices, members)
        np.add.at(self.holders, indices, holders)
        self.total += int(members.sum())

    def moved(self, before: IntArray) -> Tally:
        """An independent tally with other indices. ``before``: by index, its old one, -1 for none."""
        members, holders = (padded(values, len(before)) for values in (self.members, self.holders))
        return Tally(moved(members, before), moved(holders, before))

    def at(self, index: int) -> tuple[int, int]:
        """Members and holders at an index."""
        members = int(self.members[index]) if index < len(self.members) else 0
        return members, int(self.holders[index]) if index < len(self.holders) else 0

    def copy(self) -> Tally:
        """An independent tally."""
        twin = object.__new__(Tally)
        twin.members, twin.holders, twin.total = self.members.copy(), self.holders.copy(), self.total
        return twin


@dataclass
class Restricted:
    """Counts by domain over some machines only: those that a spread compares for one kind of task."""

    eligible: BoolArray
    """By row; machines in rows beyond its end are not eligible."""
    machines: IntArray
    """Eligible machines in each domain."""
    tally: Tally

    def covers(self, row: int) -> bool:
        """Whether the machine in a row is compared."""
        return row < len(self.eligible) and bool(self.eligible[row])

    def move(self, old: int, new: int, members: int) -> None:
        """An eligible machine with so many members goes from one domain to another; -1 is none."""
        if new >= len(self.machines):
            self.machines = padded(self.machines, max(16, 2 * new))
        for domain, sign in ((old, -1), (new, 1)):
            if domain >= 0:
                self.machines[domain] += sign
                self.tally.add(domain, sign * members, 0)

    def copy(self) -> Restricted:
        """Independent counts over the same machines."""
        return Restricted(self.eligible, self.machines.copy(), self.tally.copy())


class RelationCounts:
    """Tasks that join a relation, and those that hold it where that binds later tasks (``apart``)."""

    def __init__(self, relation: Relation) -> None:
        """No task is counted yet."""
        self.relation = relation
        self.by_machine = Tally(_nothing(), _nothing())
        # The domains of single machines are their rows, so one tally serves for both.
        self.by_domain = self.by_machine if relation.key == MACHINE else Tally(_nothing(), _nothing())
        self._restricted: OrderedDict[bytes, Restricted] = OrderedDict()

    def add(self, row: int, domain: int, members: int, holders: int) -> None:
        """Tasks come to the machine of a row, or leave it where negative; ``domain`` is its domain, -1 for none."""
        self.by_machine.add(row, members, holders)
        if domain < 0:
            return
        if self.by_domain is not self.by_machine:
            self.by_domain.add(domain, members, holders)
        for restricted in self._restricted.values():
            if restricted.covers(row):
                restricted.tally.add(domain, members, 0)

    def add_all(self, rows: IntArray, domain: IntArray, members: IntArray, holders: IntArray) -> None:
        """The same for the machines of some rows; repeats count again."""
        self.by_machine.add_all(rows, members, holders)
        inside = domain >= 0
        if self.by_domain is not self.by_machine:
            self.by_domain.add_all(domain[inside], members[inside], holders[inside])
        for restricted in self._restricted.values():
            for row, at, more in zip(rows[inside], domain[inside], members[inside], strict=True):
                if restricted.covers(int(row)):
                    restricted.tally.add(int(at), int(more), 0)

    def minds(self, row: int) -> bool:
        """Whether anything counted here changes when the machine of a row changes its domain."""
        return self.by_machine.at(row) != (0, 0) or any(r.covers(row) for r in self._restricted.values())

    def move(self, row: int, old: int, new: int) -> None:
        """The machine of a row goes from one domain to another, with all its tasks; -1 is none."""
        members, holders = self.by_machine.at(row)
        if self.by_domain is not self.by_machine:
            if old >= 0:
                self.by_domain.add(old, -members, -holders)
            if new >= 0:
                self.by_domain.add(new, members, holders)
        for restricted in self._restricted.values():
            if restricted.covers(row):
                restricted.move(old, new, members)

    def restricted(self, eligible: BoolArray, domain: IntArray, domains: int) -> Restricted:
        """Counts by domain over the eligible machines; counted when such machines are asked for first, then kept.

        ``eligible`` and ``domain`` are by row, the latter -1 for machines in none of the ``domains``.
        """
        signature = eligible.tobytes()
        found = self._restricted.get(signature)
        if found is None:
            here = domain[: len(eligible)]
            chosen = (here >= 0) & eligible
            members = padded(self.by_machine.members, len(eligible))[chosen]
            machines = np.bincount(here[chosen], minlength=domains).astype(np.int64)
            by_domain = np.bincount(here[chosen], weights=members, minlength=domains).astype(np.int64)
            found = self._restricted[signature] = Restricted(eligible.copy(), machines, Tally(by_domain, _nothing()))
            if len(self._restricted) > _RESTRICTIONS:
                self._restricted.popitem(last=False)
        else:
            self._restricted.move_to_end(signature)
        return found

    def moved(self, before: IntArray) -> RelationCounts:
        """Independent counts with machines in other rows. ``before``: by row, the one where its machine was; -1 for none."""
        twin = RelationCounts(self.relation)
        twin.by_machine = self.by_machine.moved(before)
        twin.by_domain = twin.by_machine if self.by_domain is self.by_machine else self.by_domain.copy()
        return twin

    def copy(self) -> RelationCounts:
        """Independent counts in the same state."""
        twin = RelationCounts(self.relation)
        twin.by_machine = self.by_machine.copy()
        twin.by_domain = twin.by_machine if self.by_domain is self.by_machine else self.by_domain.copy()
        twin._restricted = OrderedDict((signature, r.copy()) for signature, r in self._restricted.items())
        return twin


def compared_domains(relation: Relation, machines: IntArray) -> IntArray:
    """Domains that a spread compares: those with machines; none where they are fewer than it demands.

    ``machines`` is by domain.
    """
    compared = np.flatnonzero(machines > 0)
    return compared if len(compared) >= relation.min_domains else compared[:0]


def floor_of(members: IntArray, compared: IntArray) -> int:
    """Members in the least filled of the compared domains, 0 without any. ``members`` is by domain."""
    return int(members[compared].min()) if len(compared) else 0


def padded(array: IntArray, length: int) -> IntArray:
    """The first ``length`` entries, with zeros where there are fewer; the array itself is not changed."""
    if len(array) >= length:
        return array[:length]
    return np.concatenate([array, np.zeros(length - len(array), dtype=np.int64)])


def _nothing() -> IntArray:
    return np.zeros(0, dtype=np.int64)

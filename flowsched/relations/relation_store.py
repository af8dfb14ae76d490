"""All relations of a cluster with their counts, kept by events: tasks that come and go, machines that change domains.

An event costs the relations that it concerns, and a question about one machine the relations of the task; only a spread
looks at all of its domains, for the least filled one. Copies share the counts of every relation until one side changes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from flowsched.relations.entry_bounds import EntryBounds, entry_bounds
from flowsched.relations.relation import MACHINE, Relation, RelationKind, Role
from flowsched.relations.relation_counts import RelationCounts, compared_domains, floor_of, padded
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.support.arrays import BoolArray, IntArray, moved

Footprint = tuple[int, Collection[int], Collection[int]]
"""A counted task: the row of its machine (-1 while it is not there), the relations that it holds and those that it joins.

Both by id; of those that it holds only the ones whose holders bind later tasks, see :meth:`RelationStore.binding_ids`.
"""


@dataclass
class _Key:
    """The domains of one machine label, or of single machines."""

    domain: IntArray
    """Number of each row's domain, -1 for a machine in none."""
    machines: IntArray
    """Machines in each domain."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Number of each value of the label; numbers of values that no machine has are given to others."""
    values: dict[int, str] = field(default_factory=dict)
    unused: list[int] = field(default_factory=list)
    relations: dict[int, None] = field(default_factory=dict)
    """Ids of the relations with this key."""

    def copy(self) -> _Key:
        return _Key(*(values.copy() for values in vars(self).values()))

    def moved(self, before: IntArray, single: bool) -> _Key:
        """With machines in other rows, as :meth:`RelationStore.move` has them. ``single``: domains are single machines."""
        twin = self.copy()
        if single:
            there = before >= 0
            twin.domain, twin.machines = np.where(there, np.arange(len(before)), -1), there.astype(np.int64)
        else:
            twin.domain = moved(self.domain, before, -1)
        return twin


class RelationStore:
    """See the module. Relations are declared by name; tasks name them by the id that :meth:`ids` gives.

    A relation that is retired and declared again has another id, so that tasks of its earlier life do not count.
    """

    def __init__(self) -> None:
        """No machines and no relations yet."""
        self._rows = 0
        self._labels: dict[int, Mapping[str, str]] = {}
        self._ids: dict[str, int] = {}
        self._next_id = 0
        self._counts: dict[int, RelationCounts] = {}
        self._keys: dict[str, _Key] = {}
        # What this store may change in place; all else is shared with copies.
        self._own_counts: set[int] = set()
        self._own_keys: set[str] = set()

    # Machines

    def grow(self, rows: int) -> None:
        """There are rows up to ``rows`` now."""
        more = rows - self._rows
        self._rows = rows
        for name in self._keys:
            key = self._key(name)
            key.domain = np.concatenate([key.domain, np.full(more, -1, dtype=np.int64)])
            if name == MACHINE:
                key.machines = padded(key.machines, rows)

    def put_machine(self, row: int, labels: Mapping[str, str]) -> None:
        """A machine is in a row, or has other labels now; tasks that are counted there change their domains with it."""
        self._labels[row] = dict(labels)
        for name in self._keys:
            self._place(name, row, labels)

    def remove_machine(self, row: int) -> None:
        """A row has no machine any more; what is counted there is not from now on."""
        self._labels.pop(row, None)
        for id_, counts in self._counts.items():
            members, holders = counts.by_machine.at(row)
            if members or holders:
                self._change(id_).add(row, self._domain(id_, row), -members, -holders)
        for name in self._keys:
            self._place(name, row, None)

    def labels(self, row: int) -> Mapping[str, str]:
        """Labels of the machine in a row; raises ``KeyError`` for a row without one."""
        return self._labels[row]

    def move(self, before: IntArray) -> None:
        """Machines are in other rows now. ``before``: by row, the one where its machine was; -1 for rows without one."""
        self._rows = len(before)
        self._labels = {row: self._labels[old] for row, old in enumerate(before.tolist()) if old >= 0}
        self._counts = {id_: counts.moved(before) for id_, counts in self._counts.items()}
        self._keys = {name: key.moved(before, name == MACHINE) for name, key in self._keys.items()}
        self._own_counts, self._own_keys = set(self._counts), set(self._keys)

    # Relations

    def __len__(self) -> int:
        """How many are declared."""
        return len(self._ids)

    def declare(self, relation: Relation) -> None:
        """Make a relation known; a known one is nothing to do."""
        if relation.name in self._ids:
            return
        id_ = self._next_id
        self._next_id += 1
        self._ids[relation.name] = id_
        self._counts[id_] = RelationCounts(relation)
        self._own_counts.add(id_)
        if relation.key not in self._keys:
            domains = self._rows if relation.key == MACHINE else 0
            nowhere = np.full(self._rows, -1, dtype=np.int64)
            self._keys[relation.key] = _Key(nowhere, np.zeros(domains, dtype=np.int64))
            self._own_keys.add(relation.key)
            for row, labels in self._labels.items():
                if relation.key == MACHINE or relation.key in labels:
                    self._place(relation.key, row, labels)
        self._key(relation.key).relations[id_] = None

    def retire(self, name: str) -> None:
        """Forget a relation and its counts; an unknown one is nothing to do."""
        id_ = self._ids.pop(name, None)
        if id_ is None:
            return
        key = self._counts.pop(id_).relation.key
        self._own_counts.discard(id_)
        relations = self._key(key).relations
        del relations[id_]
        if not relations:
            del self._keys[key]
            self._own_keys.discard(key)

    def relation(self, name: str) -> Relation | None:
        """A declared relation."""
        id_ = self._ids.get(name)
        return None if id_ is None else self._counts[id_].relation

    def relations(self) -> tuple[Relation, ...]:
        """All that are declared, in the order in which they were."""
        return tuple([self._counts[id_].relation for id_ in self._ids.values()])

    def names(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Names of relations by their ids; those that were retired are left out."""
        return tuple([self._counts[id_].relation.name for id_ in ids if id_ in self._counts])

    def ids(self, names: Collection[str]) -> tuple[int, ...]:
        """Ids of relations, each once. Raises ``KeyError`` for one that was not declared."""
        if not names:
            return ()
        try:
            return tuple([self._ids[name] for name in dict.fromkeys(names)])
        except KeyError as error:
            raise KeyError(f"relation {error.args[0]} was not declared") from None

    def binding_ids(self, names: Collection[str]) -> tuple[int, ...]:
        """Of the relations that a task holds those that bind later tasks, which are counted for it.

        Raises ``KeyError`` for one that was not declared.
        """
        return tuple([id_ for id_ in self.ids(names) if self._counts[id_].relation.kind is RelationKind.APART])

    # Tasks

    def count(self, task: Footprint, sign: int) -> None:
        """A task comes to the machine of its row (1), or leaves it (-1). Relations that were retired are passed over."""
        row, holds, joins = task
        if row < 0:
            return
        for id_ in holds:
            if id_ in self._counts:
                self._change(id_).add(row, self._domain(id_, row), 0, sign)
        for id_ in joins:
            if id_ in self._counts:
                self._change(id_).add(row, self._domain(id_, row), sign, 0)

    def book(self, roles: Iterable[Role], rows: IntArray, sign: int) -> None:
        """Tasks with these roles come to machines by row (repeats count again), or leave them with ``sign`` -1.

        Relations that were not declared are passed over.
        """
        for name, holds, joins in roles:
            if name in self._ids:
                self.count_all(name, rows, sign * joins, sign * holds)

    def count_all(self, name: str, rows: IntArray, members: ArrayLike, holders: ArrayLike) -> None:
        """So many more tasks join a relation on each machine (repeats count again), and hold it there; holders are counted
        only where they bind later tasks. Raises ``KeyError`` for a relation that was not declared.
        """
        (id_,) = self.ids((name,))
        relation = self._counts[id_].relation
        held = holders if relation.kind is RelationKind.APART else 0
        more = (np.broadcast_to(np.asarray(values, dtype=np.int64), rows.shape) for values in (members, held))
        self._change(id_).add_all(rows, self._keys[relation.key].domain[rows], *more)

    # Questions

    def refusing_on(
        self,
        holds: Sequence[str],
        joins: Sequence[str],
        row: int,
        eligible: BoolArray | None = None,
        without: Sequence[Footprint] = (),
    ) -> Relation | None:
        """The first relation that refuses one more such task on the machine of a row, were the tasks ``without`` gone.

        None where none does. Row -1 is a machine in no domain. ``eligible``: by row, the machines that spreads compare
        (None for all). Raises ``KeyError`` for a relation that was not declared.
        """
        names, held, joined = (*holds, *joins), set(holds), set(joins)
        for name, id_ in zip(dict.fromkeys(names), self.ids(names), strict=True):
            bounds, members, holders, domain = self._asked(id_, name in held, name in joined, row, eligible, without)
            if bounds.needs_label if domain < 0 else not bounds.admit(members, holders):
                return self._counts[id_].relation
        return None

    def open_rows(
        self, name: str, holds: bool, joins: bool, eligible: BoolArray | None = None
    ) -> tuple[BoolArray, BoolArray]:
        """Rows that a relation leaves open to one more task, and rows in a domain; rows without a machine may be either.

        Raises ``KeyError`` for a relation that was not declared.
        """
        (id_,) = self.ids((name,))
        relation, key = self._counts[id_].relation, self._keys[self._counts[id_].relation.key]
        members, machines = self._by_domain(id_, holds, eligible)
        total = self._counts[id_].by_domain.total
        spread = holds and relation.kind is RelationKind.SPREAD
        floor = floor_of(members, compared_domains(relation, machines)) if spread else 0
        bounds = entry_bounds(relation, holds, joins, total, floor)
        holders = padded(self._counts[id_].by_domain.holders, len(members))
        # Index -1, the domain of machines in none, finds the last entry.
        by_domain = np.append(bounds.open_domains(members, holders), not bounds.needs_label)
        return by_domain[key.domain], key.domain >= 0

    def refuses(self, name: str) -> bool:
        """Whether a relation may refuse a task on some machine as things stand: one that keeps tasks apart only where it
        counts some. Raises ``KeyError`` for a relation that was not declared.
        """
        (id_,) = self.ids((name,))
        counts = self._counts[id_]
        if counts.relation.kind is RelationKind.COUNT:
            return False
        apart = counts.relation.kind in (RelationKind.LIMIT, RelationKind.APART)
        return not apart or counts.by_machine.total > 0 or bool(counts.by_machine.holders.any())

    def members(self, name: str) -> int:
        """Members in all domains. Raises ``KeyError`` for a relation that was not declared."""
        (id_,) = self.ids((name,))
        return self._counts[id_].by_domain.total

    def members_around(self, name: str) -> IntArray:
        """Members in the domain of each row; 0 for rows in none. Raises ``KeyError`` for an undeclared relation."""
        (id_,) = self.ids((name,))
        key = self._keys[self._counts[id_].relation.key]
        return np.append(padded(self._counts[id_].by_domain.members, len(key.machines)), 0)[key.domain]

    def topology_counts(self, name: str, rows: IntArray | None = None) -> TopologyCounts:
        """An independent record of a relation as it is now, over all rows or the given ones in their order. Domains are
        numbered by the first machine of each.

        Raises ``KeyError`` for a relation that was not declared.
        """
        (id_,) = self.ids((name,))
        counts = self._counts[id_]
        chosen = slice(None) if rows is None else rows
        domain, domains = _by_first(self._keys[counts.relation.key].domain[chosen])
        return TopologyCounts(
            counts.relation,
            domain,
            domains,
            padded(counts.by_machine.members, self._rows)[chosen].copy(),
            padded(counts.by_machine.holders, self._rows)[chosen].copy(),
        )

    def copy(self) -> RelationStore:
        """An independent store in the same state; counts are shared until either side changes them."""
        twin = RelationStore()
        twin._rows, twin._next_id = self._rows, self._next_id
        twin._labels, twin._ids = self._labels.copy(), self._ids.copy()
        twin._counts, twin._keys = self._counts.copy(), self._keys.copy()
        self._own_counts.clear()
        self._own_keys.clear()
        return twin

    # Insides

    def _change(self, id_: int) -> RelationCounts:
        """The counts of a relation, to be changed."""
        if id_ not in self._own_counts:
            self._counts[id_] = self._counts[id_].copy()
            self._own_counts.add(id_)
        return self._counts[id_]

    def _key(self, name: str) -> _Key:
        """The domains of a key, to be changed."""
        if name not in self._own_keys:
            self._keys[name] = self._keys[name].copy()
            self._own_keys.add(name)
        return self._keys[name]

    def _domain(self, id_: int, row: int) -> int:
        return int(self._keys[self._counts[id_].relation.key].domain[row]) if row >= 0 else -1

    def _place(self, name: str, row: int, labels: Mapping[str, str] | None) -> None:
        """Put a row into the domain that its labels say; without labels into none."""
        old = int(self._keys[name].domain[row])
        value = None if labels is None or name == MACHINE else labels.get(name)
        if name == MACHINE:
            new = -1 if labels is None else row
        elif value is None:
            new = -1
        else:
            known = self._keys[name].numbers.get(value)
            new = self._new_domain(name, value) if known is None else known
        if new == old:
            return
        key = self._key(name)
        key.domain[row] = new
        if new >= 0:
            key.machines[new] += 1
        if old >= 0:
            key.machines[old] -= 1
        for id_ in key.relations:
            if self._counts[id_].minds(row):
                self._change(id_).move(row, old, new)
        if old >= 0 and name != MACHINE and not key.machines[old]:
            del key.numbers[key.values.pop(old)]
            key.unused.append(old)

    def _new_domain(self, name: str, value: str) -> int:
        key = self._key(name)
        if key.unused:
            number = key.unused.pop()
        else:
            number = len(key.machines)
            key.machines = padded(key.machines, number + 1)
        key.numbers[value] = number
        key.values[number] = value
        return number

    def _by_domain(self, id_: int, holds: bool, eligible: BoolArray | None) -> tuple[IntArray, IntArray]:
        """Members by domain, and machines by domain, as a task sees them: a spread that it holds compares eligible ones."""
        counts = self._counts[id_]
        key = self._keys[counts.relation.key]
        domains = len(key.machines)
        if eligible is None or not holds or counts.relation.kind is not RelationKind.SPREAD:
            return padded(counts.by_domain.members, domains), key.machines
        restricted = self._change(id_).restricted(eligible, key.domain, domains)
        return padded(restricted.tally.members, domains), padded(restricted.machines, domains)

    def _asked(
        self, id_: int, holds: bool, joins: bool, row: int, eligible: BoolArray | None, without: Sequence[Footprint]
    ) -> tuple[EntryBounds, int, int, int]:
        """Bounds, members, holders and domain of a row for one more task of a kind."""
        counts = self._counts[id_]
        relation = counts.relation
        domain = self._domain(id_, row)
        spread = holds and relation.kind is RelationKind.SPREAD
        gone_members, gone_holders = self._gone(id_, without, eligible if spread else None) if without else ({}, {})
        total = counts.by_domain.total - sum(gone_members.values())
        floor = 0
        if spread:
            by_domain, machines = self._by_domain(id_, holds, eligible)
            if gone_members:
                by_domain = by_domain.copy()
                for at, count in gone_members.items():
                    by_domain[at] -= count
            floor = floor_of(by_domain, compared_domains(relation, machines))
            members, holders = (int(by_domain[domain]) if domain >= 0 else 0), 0
        else:
            members, holders = counts.by_domain.at(domain) if domain >= 0 else (0, 0)
            members -= gone_members.get(domain, 0)
            holders -= gone_holders.get(domain, 0)
        return entry_bounds(relation, holds, joins, total, floor), members, holders, domain

    def _gone(
        self, id_: int, without: Sequence[Footprint], eligible: BoolArray | None
    ) -> tuple[dict[int, int], dict[int, int]]:
        """By domain, members and holders among some tasks; of members only those on eligible machines."""
        members: dict[int, int] = {}
        holders: dict[int, int] = {}
        for row, holds, joins in without:
            domain = self._domain(id_, row)
            if domain < 0:
                continue
            if id_ in joins and (eligible is None or (row < len(eligible) and eligible[row])):
                members[domain] = members.get(domain, 0) + 1
            if id_ in holds:
                holders[domain] = holders.get(domain, 0) + 1
        return members, holders


def _by_first(domain: IntArray) -> tuple[IntArray, int]:
    """Domains numbered by the first machine of each, and how many there are; -1 stays."""
    found, first = np.unique(domain[domain >= 0], return_index=True)
    # The last entry, which -1 finds, is for machines in no domain.
    number = np.full(int(found.max(initial=-1)) + 2, -1, dtype=np.int64)
    number[found[np.argsort(first)]] = np.arange(len(found))
    renumbered: IntArray = number[domain]
    return renumbered, len(found)

"""Topology counts: relations between tasks, and the tasks that run, counted machine by machine from events.

A relation's domains are machines or the values of a machine label. What a round asks of a relation is a
:class:`flowsched.relations.topology_counts.TopologyCounts` of its own, which it may change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.support.arrays import BoolArray, IntArray

Role = tuple[str, bool, bool]
"""A relation by name, whether a task holds it, and whether it joins it."""


class Topology:
    """Relations by name, with members and owners by machine row."""

    def __init__(self) -> None:
        """No relations yet."""
        self.relations: dict[str, Relation] = {}
        self._labels: dict[int, Mapping[str, str]] = {}
        self._domain: dict[str, IntArray] = {}
        """By relation, where its domains were given as numbers."""
        self._members: dict[str, IntArray] = {}
        self._holders: dict[str, IntArray] = {}

    def declare(self, relation: Relation, rows: int) -> None:
        """Make a relation known, with no task that is counted; ``rows``: of the arrays by machine."""
        self.relations[relation.name] = relation
        self._members[relation.name] = np.zeros(rows, dtype=np.int64)
        self._holders[relation.name] = np.zeros(rows, dtype=np.int64)

    def put(self, counts: TopologyCounts, rows: IntArray, total: int) -> None:
        """Take over a relation with its domains and counts, of the machines in ``rows`` of ``total``."""
        name = counts.relation.name
        self.declare(counts.relation, total)
        self._domain[name] = np.full(total, -1, dtype=np.int64)
        for mine, theirs in (
            (self._domain[name], counts.domain),
            (self._members[name], counts.members),
            (self._holders[name], counts.holders),
        ):
            mine[rows] = theirs

    def grow(self, rows: int) -> None:
        """There are so many machine rows now."""
        for arrays, missing in ((self._members, 0), (self._holders, 0), (self._domain, -1)):
            for name, values in arrays.items():
                more = np.full(rows - len(values), missing, dtype=np.int64)
                arrays[name] = np.concatenate([values, more])

    def set_labels(self, row: int, labels: Mapping[str, str] | None) -> None:
        """The labels of the machine in a row; None once there is none."""
        if labels:
            self._labels[row] = labels
        else:
            self._labels.pop(row, None)

    def resemble(self, row: int, like: int, own: Collection[str]) -> None:
        """The machine in a row is in the domains of another one, with a domain of its own for relations with a key of
        ``own``. For relations that were given with their domains.
        """
        for name, domain in self._domain.items():
            alone = self.relations[name].key in own and domain[like] >= 0
            domain[row] = domain.max() + 1 if alone else domain[like]

    def book(self, roles: Iterable[Role], machines: IntArray, sign: int) -> None:
        """Tasks with these roles come to machines (repeats count again), or leave them with ``sign`` -1."""
        for name, holds, joins in roles:
            if name in self.relations:
                if joins:
                    np.add.at(self._members[name], machines, sign)
                if holds:
                    np.add.at(self._holders[name], machines, sign)

    def count(self, name: str, row: int, members: int, holders: int) -> None:
        """So many tasks that are none of the cluster's join a relation on a machine, and hold it there."""
        self._members[name][row] += members
        self._holders[name][row] += holders

    def topology_counts(self, name: str, alive: BoolArray) -> TopologyCounts:
        """A relation as it stands, a copy. Domains are numbered by their first machine row."""
        relation = self.relations[name]
        domain = self._domains(relation, alive)
        return TopologyCounts(
            relation, domain, int(domain.max(initial=-1)) + 1, self._members[name].copy(), self._holders[name].copy()
        )

    def _domains(self, relation: Relation, alive: BoolArray) -> IntArray:
        if relation.key == MACHINE:
            return np.where(alive, np.cumsum(alive) - 1, -1)
        raw = self._domain.get(relation.name)
        if raw is None:
            numbers: dict[str, int] = {}
            labelled = np.full(len(alive), -1, dtype=np.int64)
            for row in np.flatnonzero(alive).tolist():
                value = self._labels.get(row, {}).get(relation.key)
                if value is not None:
                    labelled[row] = numbers.setdefault(value, len(numbers))
            return labelled
        raw = np.where(alive, raw, -1)
        found, first = np.unique(raw[raw >= 0], return_index=True)
        # The last entry, which -1 finds, is for machines in no domain.
        number = np.full(int(found.max(initial=-1)) + 2, -1, dtype=np.int64)
        number[found[np.argsort(first)]] = np.arange(len(found))
        renumbered: IntArray = number[raw]
        return renumbered


def roles_of(holds: tuple[str, ...], joins: tuple[str, ...]) -> tuple[Role, ...]:
    """The relations of a task, each once."""
    held, joined = set(holds), set(joins)
    return tuple((name, name in held, name in joined) for name in dict.fromkeys((*holds, *joins)))


def read_topology_counts(plain: Mapping[str, Any]) -> TopologyCounts:
    """A relation as a network part began with it."""
    members, holders, domain = (np.array(plain[k], dtype=np.int64) for k in ("members", "holders", "domain"))
    values = {f.name: plain[f.name] for f in fields(Relation)}
    relation = Relation(**{**values, "kind": RelationKind(plain["kind"])})
    return TopologyCounts(relation, domain, int(domain.max(initial=-1)) + 1, members, holders)

"""The counts of a relation over any fixed order of machines: the tasks that join it and hold it on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from flowsched.relations.relation import Relation, RelationKind
from flowsched.support.arrays import BoolArray, IntArray


@dataclass
class TopologyCounts:
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

    def copy(self) -> TopologyCounts:
        """An independent copy; domains are shared, they never change in place."""
        return TopologyCounts(self.relation, self.domain, self.domains, self.members.copy(), self.holders.copy())


def read_topology_counts(plain: Mapping[str, Any]) -> TopologyCounts:
    """A relation as a network part began with it."""
    members, holders, domain = (np.array(plain[k], dtype=np.int64) for k in ("members", "holders", "domain"))
    values = {f.name: plain[f.name] for f in fields(Relation)}
    relation = Relation(**{**values, "kind": RelationKind(plain["kind"])})
    return TopologyCounts(relation, domain, int(domain.max(initial=-1)) + 1, members, holders)

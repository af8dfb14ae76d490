"""The relations of a snapshot, asked by the names of machines: which one refuses a task on a machine, and why."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowsched.cluster.running_tasks import entries_of
from flowsched.cluster.snapshot import Machine, RelationCount, Snapshot, Task
from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched.relations.relation_store import Footprint, RelationStore
from flowsched.support.arrays import BoolArray


class DomainCounts:
    """Counts of the tasks that join and hold each relation. Names that no relation has demand nothing.

    A spread counts, and compares, only the machines of the task's ``spread_over``, as Kubernetes does.
    """

    def __init__(self, machines: Iterable[Machine], relations: Iterable[Relation]) -> None:
        """No task is counted yet."""
        self.relations = {r.name: r for r in relations}
        self._store = RelationStore()
        self._row: dict[str, int] = {}
        self._eligible: dict[tuple[str, ...], BoolArray] = {}
        if not self.relations:
            return
        known = tuple(machines)
        self._store.grow(len(known))
        for row, machine in enumerate(known):
            self._row[machine.name] = row
            self._store.put_machine(row, dict(machine.labels))
        for relation in self.relations.values():
            self._store.declare(relation)

    @classmethod
    def of(cls, snapshot: Snapshot) -> DomainCounts:
        """The running tasks of a snapshot."""
        domain_counts = cls(snapshot.machines, snapshot.relations)
        if domain_counts.relations:
            for r in entries_of(snapshot.running):
                domain_counts.add(r.task, r.machine)
            for count in snapshot.relation_counts:
                domain_counts.count(count)
        return domain_counts

    def copy(self) -> DomainCounts:
        """An independent copy."""
        other = object.__new__(DomainCounts)
        other.relations, other._row, other._eligible = self.relations, self._row, self._eligible
        other._store = self._store.copy()
        return other

    def concerns(self, task: Task) -> bool:
        """Whether any relation counts or binds a task."""
        return bool(self.relations) and any(name in self.relations for name in (*task.holds, *task.joins))

    def add(self, task: Task, machine: str) -> None:
        """Count a task on a machine."""
        self._store.count(self._footprint(task, machine), 1)

    def remove(self, task: Task, machine: str) -> None:
        """Take a task out again."""
        self._store.count(self._footprint(task, machine), -1)

    def count(self, counted: RelationCount) -> None:
        """Count tasks that only their number is known of."""
        if counted.relation in self.relations:
            row, ids = self._row.get(counted.machine, -1), self._store.ids((counted.relation,))
            self._store.count((row, (), ids), counted.members)
            self._store.count((row, ids, ()), counted.holders)

    def refusal(self, task: Task, machine: str) -> Relation | None:
        """The first relation that refuses one more task on a machine, None where it may go."""
        if not self.concerns(task):
            return None
        holds, joins = self._known(task.holds), self._known(task.joins)
        return self._store.refusing_on(holds, joins, self._row.get(machine, -1), self._eligible_of(task))

    def members(self, relation: Relation) -> int:
        """Tasks that join a relation, in all domains."""
        return self._store.members(relation.name)

    def domain(self, relation: Relation, machine: str) -> str | None:
        """The domain of a machine; None where it is in none."""
        if machine not in self._row:
            return None
        return machine if relation.key == MACHINE else self._store.labels(self._row[machine]).get(relation.key)

    def _known(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in dict.fromkeys(names) if name in self.relations)

    def _footprint(self, task: Task, machine: str) -> Footprint:
        holds, joins = self._known(task.holds), self._known(task.joins)
        return self._row.get(machine, -1), self._store.binding_ids(holds), self._store.ids(joins)

    def _eligible_of(self, task: Task) -> BoolArray | None:
        """Rows of the machines that a task's spreads compare, None for all."""
        names = task.machines if task.spread_over is None else task.spread_over
        if names is None:
            return None
        found = self._eligible.get(names)
        if found is None:
            found = np.zeros(len(self._row), dtype=np.bool_)
            found[[self._row[name] for name in names if name in self._row]] = True
            self._eligible[names] = found
        return found


def demand_text(relation: Relation) -> str:
    """What a relation demands, in words, for tasks that wait because of it."""
    where = "machine" if relation.key == MACHINE else relation.key
    match relation.kind:
        case RelationKind.LIMIT:
            return f"relation {relation.name}: at most {relation.most} of those who join it in one {where}"
        case RelationKind.APART:
            return f"relation {relation.name}: no matching task in the same {where} (anti-affinity)"
        case RelationKind.SPREAD:
            return (
                f"relation {relation.name}: no {where} more than {relation.skew} above the one with the fewest of "
                "those who join it"
            )
        case RelationKind.TOGETHER:
            return f"relation {relation.name}: needs a matching task in the same {where} (affinity)"
        case _:
            return f"relation {relation.name} demands nothing"

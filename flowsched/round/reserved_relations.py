"""What relations say to tasks that machines are reserved for: as things stand, and once what ends has ended.

A relation that refuses a task beside what runs in a domain refuses it until that has ended, if nothing else that it counts
comes there meanwhile. So who is counted is kept out of the whole domain, as narrow tasks are kept off the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from flowsched.cluster.compaction import View
from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.snapshot import Task
from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched.support.arrays import FloatArray

_COUNT_JOINING = (RelationKind.LIMIT, RelationKind.APART, RelationKind.SPREAD)
"""Relations that refuse a holder because of tasks that join."""
_Ends = dict[tuple[str, str | None], float]
"""By relation and domain, in seconds from now."""


@dataclass(frozen=True)
class _Later:
    """Once all has ended that ends."""

    counts: DomainCounts
    joining: _Ends
    holding: _Ends
    """When the last of those that join, or hold, has ended."""

    def let_end(self, task: Task, machine: str, end_s: float) -> None:
        self.counts.remove(task, machine)
        for names, last in ((task.joins, self.joining), (task.holds, self.holding)):
            for relation in _known(self.counts, names):
                key = relation.name, self.counts.domain(relation, machine)
                last[key] = max(last.get(key, 0.0), end_s)


class ReservedRelations:
    """Counts of what runs and of what higher levels have planned, with those tasks that end and without them."""

    def __init__(self, view: View, ends_s: FloatArray, planned: Iterable[tuple[int, int]]) -> None:
        """``ends_s`` [groups, most]: when what runs ends, in seconds from now; ``planned``: tasks of higher levels and the
        machine of each.
        """
        self._view = view
        self._ends_s = ends_s
        self._now = view.counted_with(planned)
        self._later: _Later | None = None
        """Worked out when it is asked for: most tasks have no relation, or one that refuses nothing."""

    def _once_ended(self) -> _Later:
        if self._later is None:
            counts = self._now.copy()
            self._later = _Later(counts, {}, {})
            for group, ends in zip(self._view.groups, self._ends_s, strict=True):
                for running, end_s in zip(group.running, ends.tolist(), strict=False):
                    if not running.task.endless and end_s < inf and counts.concerns(running.task):
                        for m in group.members:
                            self._later.let_end(running.task, self._view.machines[m].name, end_s)
        return self._later

    def open_s(self, task: Task, machine: int, settled: bool = False) -> float:
        """From when on relations let a task come to a machine, in seconds from now; infinity for never. ``settled``: those
        that are open only as things stand are not.
        """
        name = self._view.machines[machine].name
        if not self._now.concerns(task):
            return 0.0
        open_now = self._now.refusal(task, name) is None
        if open_now and not settled:
            return 0.0
        later = self._once_ended()
        if later.counts.refusal(task, name) is not None:
            return inf
        if open_now:
            return 0.0
        found = 0.0
        for relation in _known(self._now, task.holds):
            if relation.kind is RelationKind.SPREAD:
                # Where the fewest are changes with every domain.
                ends = (end_s for (other, _), end_s in later.joining.items() if other == relation.name)
                found = max(found, max(ends, default=0.0))
            elif relation.kind in _COUNT_JOINING:
                found = max(found, later.joining.get((relation.name, self._now.domain(relation, name)), 0.0))
        for relation in _known(self._now, task.joins):
            if relation.kind is RelationKind.APART:
                found = max(found, later.holding.get((relation.name, self._now.domain(relation, name)), 0.0))
        return found

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains once all has ended that ends."""
        return self._once_ended().counts.members(relation)

    def add(self, task: Task, machine: int, sign: int = 1) -> None:
        """Count a task where it has a reservation, or no longer with ``sign`` -1."""
        name = self._view.machines[machine].name
        for counts in (self._now, self._once_ended().counts) if self._now.concerns(task) else ():
            (counts.add if sign > 0 else counts.remove)(task, name)

    def admit(self, places: Sequence[tuple[Task, int]]) -> bool:
        """Whether all tasks may come to their machines, in some order, now or later."""
        if not any(self._now.concerns(task) for task, _ in places):
            return True
        named = [(task, self._view.machines[m].name) for task, m in places]
        asked = (self._now, self._once_ended().counts)
        return any(_in_some_order(counts.copy(), named) for counts in asked)


def _in_some_order(counts: DomainCounts, places: Sequence[tuple[Task, str]]) -> bool:
    left = list(places)
    while left:
        refused = []
        for task, machine in left:
            if counts.refusal(task, machine) is None:
                counts.add(task, machine)
            else:
                refused.append((task, machine))
        if len(refused) == len(left):
            return False
        left = refused
    return True


def contended(view: View, task: Task, machine: int) -> Iterator[tuple[int, frozenset[int]]]:
    """Other machines of the view where classes could come that would keep a task off its machine, and those classes."""
    counts = view.domain_counts
    here = view.machines[machine].name
    for relation in _known(counts, (*task.holds, *task.joins)):
        domain = counts.domain(relation, here)
        if relation.key == MACHINE or domain is None:
            continue
        classes = frozenset(c for c, cls in enumerate(view.classes) if _refuse(relation, task, cls.task))
        if classes:
            for m, other in enumerate(view.machines):
                if m != machine and counts.domain(relation, other.name) == domain:
                    yield m, classes


def _refuse(relation: Relation, task: Task, other: Task) -> bool:
    """Whether a relation counts another task against one in the same domain."""
    if relation.kind in _COUNT_JOINING and relation.name in task.holds and relation.name in other.joins:
        return True
    return relation.kind is RelationKind.APART and relation.name in task.joins and relation.name in other.holds


def _known(counts: DomainCounts, names: Iterable[str]) -> list[Relation]:
    return [counts.relations[name] for name in dict.fromkeys(names) if name in counts.relations]

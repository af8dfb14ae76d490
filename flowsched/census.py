"""Who is where, counted by relation and domain: which relation refuses a task on a machine, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flowsched.relation import MACHINE, Relation, RelationKind
from flowsched.snapshot import Machine, Snapshot, Task

_LABEL_NEEDED = (RelationKind.SPREAD, RelationKind.TOGETHER)
_UNLIMITED = 1 << 62


class Census:
    """Counts of those who join and hold each relation. Names that no relation has demand nothing.

    A spread counts, and compares, only the machines that the task may run on, as Kubernetes does.
    """

    def __init__(self, machines: Iterable[Machine], relations: Iterable[Relation]) -> None:
        """Nobody is counted yet."""
        self.relations = {r.name: r for r in relations}
        self._domains: dict[str, dict[str, str]] = {key: {} for key in sorted({r.key for r in self.relations.values()})}
        for machine in machines:
            labels = dict(machine.labels)
            for key, domain_of in self._domains.items():
                value = machine.name if key == MACHINE else labels.get(key)
                if value is not None:
                    domain_of[machine.name] = value
        self._everywhere = {key: frozenset(domain_of.values()) for key, domain_of in self._domains.items()}
        self._eligible: dict[tuple[str, tuple[str, ...]], tuple[frozenset[str], frozenset[str]]] = {}
        self._joined: dict[str, Counter[str]] = {name: Counter() for name in self.relations}
        self._held: dict[str, Counter[str]] = {name: Counter() for name in self.relations}
        self._joined_on: dict[str, Counter[str]] = {name: Counter() for name in self.relations}

    @classmethod
    def of(cls, snapshot: Snapshot, *, endless_only: bool = False) -> Census:
        """The running tasks of a snapshot, or only those whose end nobody waits for."""
        census = cls(snapshot.machines, snapshot.relations)
        if census.relations:
            for r in snapshot.running:
                if r.task.endless or not endless_only:
                    census.add(r.task, r.machine)
        return census

    def copy(self) -> Census:
        """An independent copy."""
        other = Census((), self.relations.values())
        other._domains = self._domains
        other._everywhere = self._everywhere
        other._eligible = self._eligible
        other._joined = {name: counts.copy() for name, counts in self._joined.items()}
        other._held = {name: counts.copy() for name, counts in self._held.items()}
        other._joined_on = {name: counts.copy() for name, counts in self._joined_on.items()}
        return other

    def concerns(self, task: Task) -> bool:
        """Whether any relation counts or binds a task."""
        return any(name in self.relations for name in (*task.holds, *task.joins))

    def add(self, task: Task, machine: str, count: int = 1) -> None:
        """Count a task on a machine; with -1 it leaves."""
        for name in set(task.joins):
            domain = self._domain(name, machine)
            if domain is not None:
                self._joined[name][domain] += count
                self._joined_on[name][machine] += count
        for name in set(task.holds):
            domain = self._domain(name, machine)
            if domain is not None:
                self._held[name][domain] += count

    def remove(self, task: Task, machine: str) -> None:
        """Take a task out again."""
        self.add(task, machine, -1)

    def refusal(self, task: Task, machine: str) -> Relation | None:
        """The first relation that refuses one more task on a machine, None where it may go."""
        for name in dict.fromkeys((*task.holds, *task.joins)):
            relation = self.relations.get(name)
            if relation is not None and not self._permits(relation, task, machine):
                return relation
        return None

    def room(self, task: Task, machine: str, *, local: bool) -> int:
        """How many tasks like this one the domain of a machine can take at most, whoever else is placed this round.

        ``local``: by the relations whose domains are machines; else by the others.
        """
        most = _UNLIMITED
        for name in dict.fromkeys((*task.holds, *task.joins)):
            relation = self.relations.get(name)
            if relation is None or (relation.key == MACHINE) != local:
                continue
            domain = self._domain(name, machine)
            if domain is None:
                if name in task.holds and relation.kind in _LABEL_NEEDED:
                    return 0
            elif relation.kind is RelationKind.LIMIT and name in task.joins:
                most = min(most, relation.most - self._joined[name][domain])
            elif relation.kind is RelationKind.APART:
                if not self._permits(relation, task, machine):
                    return 0
                if name in task.holds and name in task.joins:
                    most = min(most, 1)
        return max(0, most)

    def domain(self, relation: Relation, machine: str) -> str | None:
        """The domain of a machine; None where it is in none."""
        return self._domains[relation.key].get(machine)

    def domains(self, relation: Relation) -> tuple[str, ...]:
        """All domains of a relation, in order."""
        return tuple(sorted(self._everywhere[relation.key]))

    def _domain(self, name: str, machine: str) -> str | None:
        relation = self.relations.get(name)
        return None if relation is None else self._domains[relation.key].get(machine)

    def _permits(self, relation: Relation, task: Task, machine: str) -> bool:
        name = relation.name
        holds, joins = name in task.holds, name in task.joins
        domain = self._domain(name, machine)
        if domain is None:
            return not (holds and relation.kind in _LABEL_NEEDED)
        match relation.kind:
            case RelationKind.LIMIT:
                return not joins or self._joined[name][domain] < relation.most
            case RelationKind.APART:
                return not (holds and self._joined[name][domain]) and not (joins and self._held[name][domain])
            case RelationKind.SPREAD:
                return not holds or self._level(relation, task, domain) + joins <= relation.skew
            case RelationKind.TOGETHER:
                nobody = joins and not any(self._joined[name].values())
                return not holds or nobody or self._joined[name][domain] > 0
            case _:
                return True

    def _level(self, relation: Relation, task: Task, domain: str) -> int:
        """By how much a domain exceeds the least filled eligible one."""
        counts: Counter[str] = self._joined[relation.name]
        compared = self._everywhere[relation.key]
        if task.machines is not None:
            compared, machines = self._eligible_domains(relation.key, task.machines)
            counts = Counter()
            for machine, count in self._joined_on[relation.name].items():
                if machine in machines:
                    counts[self._domains[relation.key][machine]] += count
        least = 0
        if len(compared) >= max(1, relation.min_domains):
            filled = [count for at, count in counts.items() if count > 0 and at in compared]
            least = min(filled) if len(filled) == len(compared) else 0
        return counts[domain] - least

    def _eligible_domains(self, key: str, machines: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
        """Domains of the listed machines, and those of the machines that are in any."""
        found = self._eligible.get((key, machines))
        if found is None:
            here = self._domains[key]
            names = frozenset(m for m in machines if m in here)
            found = self._eligible[key, machines] = (frozenset(here[m] for m in names), names)
        return found


def demand_text(relation: Relation) -> str:
    """What a relation demands, in words, for those who wait because of it."""
    where = "machine" if relation.key == MACHINE else relation.key
    match relation.kind:
        case RelationKind.LIMIT:
            return f"relation {relation.name}: at most {relation.most} of those who join it in one {where}"
        case RelationKind.APART:
            return f"relation {relation.name}: nobody in one {where} with those whom it keeps apart"
        case RelationKind.SPREAD:
            return (
                f"relation {relation.name}: no {where} more than {relation.skew} above the one with the fewest of "
                "those who join it"
            )
        case RelationKind.TOGETHER:
            return f"relation {relation.name}: only in a {where} where somebody is who joins it"
        case _:
            return f"relation {relation.name} demands nothing"

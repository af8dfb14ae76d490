"""Relations as a round sees them: counts with what it has placed so far, and what they let each waiting class do.

What a relation says to a class is either a number of tasks for each machine, which packing counts down (a *gate*), or it
changes from domain to domain with every task that is placed; then tasks are placed one after the other.
"""

from __future__ import annotations

import numpy as np

from flowsched.cluster.machine_arrays import UNLIMITED
from flowsched.pricing.linear.kernels import Model
from flowsched.relations.relation import RelationKind
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.relations.topology_filter import TopologyFilter
from flowsched.round.linear import relation_kernels as kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.support.arrays import BoolArray, IntArray

_CODE = {
    RelationKind.LIMIT: kernels.LIMIT,
    RelationKind.APART: kernels.APART,
    RelationKind.TOGETHER: kernels.TOGETHER,
    RelationKind.SPREAD: kernels.SPREAD,
}
_LEANING = (RelationKind.TOGETHER, RelationKind.SPREAD)
"""Kinds under which one task's place may rest on another's."""
_KEEPING_AWAY = (RelationKind.LIMIT, RelationKind.APART)
"""Kinds under which one task refuses another, and opens nothing."""


class RoundRelations:
    """Topology counts of a round and the classes that they concern."""

    def __init__(self, cluster: ClusterRows, classes: IntArray) -> None:
        """``classes``: those that wait. Counts are copied."""
        self._cluster = cluster
        store, of = cluster.machines.relation_store, cluster.classes.roles
        present = classes.tolist() if len(store) else []
        named = dict.fromkeys(name for c in present for name, _, _ in of[c])
        known = {name: relation for name in named if (relation := store.relation(name)) is not None}
        self._roles = {c: roles for c in present if (roles := [role for role in of[c] if role[0] in known])}
        names = dict.fromkeys(name for roles in self._roles.values() for name, _, _ in roles)
        self.topology_counts: dict[str, TopologyCounts] = {name: store.topology_counts(name) for name in names}
        held = dict.fromkeys(name for roles in self._roles.values() for name, holds, _ in roles if holds)
        self._wanted = {name for name in held if known[name].kind is RelationKind.TOGETHER}
        self._leaned_on = {name for name in held if known[name].kind in _LEANING}
        joined = {name for roles in self._roles.values() for name, _, joins in roles if joins}
        self._joined = joined
        self._eligible: dict[int, BoolArray | None] = {}
        self._kept: dict[str, BoolArray] = {}
        """By a relation that spreads, machines in the domains of those that are held for tasks that hold it."""
        self._spread = {name for name in held if known[name].kind is RelationKind.SPREAD}
        self.gated = {c: i + 1 for i, c in enumerate(c for c in self._roles if self._gates(c) or self._spreads(c))}
        """Row in a model's gates of every class to which some relation says something, or may once machines are held."""

    def __bool__(self) -> bool:
        """Whether any relation concerns a class that waits."""
        return bool(self._roles)

    def concerns(self, task_class: int) -> bool:
        """Whether placing tasks of a class is counted."""
        return task_class in self._roles

    def fixed(self, task_class: int) -> bool:
        """Whether tasks of a class stay where they were placed first, since others may lean on them or they on others."""
        roles = self._roles.get(task_class, [])
        return any(name in self._leaned_on for name, _, _ in roles) or not self.counts(task_class)

    def leaned_on(self, task_class: int) -> bool:
        """Whether other tasks may be where they are because of tasks of this class."""
        return any(joins and name in self._leaned_on for name, _, joins in self._roles.get(task_class, []))

    def comes_later(self, task_class: int) -> bool:
        """Whether a class is placed after those that others want to be near."""
        roles = self._roles.get(task_class, [])
        joins = any(j and name in self._wanted for name, _, j in roles)
        return not joins or any(h and not j and name in self._wanted for name, h, j in roles)

    def counts(self, task_class: int) -> bool:
        """Whether all that relations say to a class now is a number of tasks for each machine."""
        return all(gate.counts for gate in self._gates(task_class))

    def widens(self, task_class: int) -> bool:
        """Whether tasks that are placed later can open what is closed to a class now."""
        return any(gate.widens for gate in self._gates(task_class))

    def domains(self, task_class: int) -> TopologyFilter | None:
        """The relation by whose domains a class is divided in the network; None if there is none."""
        return next((g for g in self._gates(task_class) if g.minds_itself and not g.counts), None)

    def labels(self) -> list[TopologyCounts]:
        """Topology counts, one for every label by which relations in play divide machines; not single machines."""
        return list({s.relation.key: s for s in self.topology_counts.values() if not s.per_machine}.values())

    def limited(self, task_class: int) -> bool:
        """Whether a class may have only so many tasks on a machine."""
        return any(gate.minds_itself and (gate.counts or gate.topology.per_machine) for gate in self._gates(task_class))

    def limits_machines(self) -> bool:
        """Whether some class may have only so many tasks on a machine."""
        return any(self.limited(c) for c in self._roles)

    def with_gates(self, model: Model) -> Model:
        """A model with gates for the classes that need some."""
        if not self.gated:
            return model
        gate_of = model.gate_of.copy()
        for c, row in self.gated.items():
            gate_of[c] = row
        gates = np.full((1 + len(self.gated), self._cluster.machines.rows), UNLIMITED, dtype=np.int64)
        return model._replace(gate_of=gate_of, gates=gates)

    def set_gates(self, model: Model) -> None:
        """Bring all gates up to date, none too low, whatever else this round places: for networks and bounds."""
        for c, row in self.gated.items():
            room = np.full(self._cluster.machines.rows, UNLIMITED, dtype=np.int64)
            for gate in self._gates(c):
                if gate.widens and gate.topology.relation.name in self._joined:
                    continue
                if gate.counts:
                    np.minimum(room, gate.room(UNLIMITED), out=room)
                elif not gate.widens:
                    room[~gate.open_machines()] = 0
            model.gates[row] = np.where(self._kept_from(c), 0, room)

    def set_gate(self, task_class: int, model: Model) -> None:
        """Bring the gate of a class up to date exactly; for classes that :meth:`counts`."""
        row = self.gated.get(task_class)
        if row is not None:
            room = np.full(self._cluster.machines.rows, UNLIMITED, dtype=np.int64)
            for gate in self._gates(task_class):
                np.minimum(room, gate.room(UNLIMITED), out=room)
            model.gates[row] = np.where(self._kept_from(task_class), 0, room)

    def note(self, task_class: int, machines: IntArray, sign: int = 1) -> None:
        """Tasks of a class came to machines, or were taken back with ``sign`` -1."""
        for name, holds, joins in self._roles.get(task_class, []):
            self.topology_counts[name].add(machines, holds, joins, sign)

    def keep_away(self, task_class: int, row: int) -> None:
        """Let no task come to the domains of a machine that is held for a task of a class, if it would be counted against
        that one.
        """
        for name, holds, joins in self._roles.get(task_class, []):
            counts = self.topology_counts[name]
            if counts.relation.kind in _KEEPING_AWAY:
                counts.add(np.array([row]), holds, joins)
            elif holds and counts.relation.kind is RelationKind.SPREAD and counts.domain[row] >= 0:
                # As one more there it would let others in elsewhere.
                same = counts.domain == counts.domain[row]
                self._kept[name] = self._kept[name] | same if name in self._kept else same

    def take_out(self, tasks: IntArray) -> None:
        """Leave running tasks out of the counts, as if they had ended; task rows."""
        cluster = self._cluster
        classes = cluster.tasks.task_class[tasks]
        for c in np.unique(classes).tolist():
            for name, holds, joins in cluster.classes.roles[c]:
                if name in self.topology_counts:
                    self.topology_counts[name].add(cluster.tasks.machine[tasks[classes == c]], holds, joins, -1)

    def steady(self, task_class: int) -> BoolArray:
        """Machines that no relation closes to a class whatever its own tasks do."""
        open_ = ~self._kept_from(task_class)
        for gate in self._gates(task_class):
            if not gate.minds_itself:
                open_ &= gate.open_machines()
        return open_

    def moving(self, task_class: int) -> kernels.Moving:
        """Relations of a class that its own tasks change, as compiled code takes them."""
        gates = [gate for gate in self._gates(task_class) if gate.minds_itself]
        width = max((gate.topology.domains for gate in gates), default=0)

        def padded(values: IntArray | BoolArray) -> IntArray:
            return np.concatenate([values, np.zeros(width - len(values))]).astype(np.int64)

        shape = (len(gates), self._cluster.machines.rows)
        relations = [gate.topology.relation for gate in gates]
        compared = [gate.compared for gate in gates]
        return kernels.Moving(
            np.array([_CODE[r.kind] for r in relations], dtype=np.int64),
            np.array([g.holds for g in gates], dtype=np.bool_),
            np.array([g.joins for g in gates], dtype=np.bool_),
            np.array([r.skew if r.kind is RelationKind.SPREAD else r.most for r in relations], dtype=np.int64),
            np.array([g.topology.domain for g in gates], dtype=np.int64).reshape(shape),
            np.array([padded(g.members) for g in gates], dtype=np.int64).reshape(len(gates), width),
            np.array([padded(g.holders) for g in gates], dtype=np.int64).reshape(len(gates), width),
            np.array([g.counted for g in gates], dtype=np.bool_).reshape(shape),
            np.array([padded(mask) for mask in compared], dtype=np.bool_).reshape(len(gates), width),
            np.array([mask.any() for mask in compared], dtype=np.bool_),
            np.array([g.total for g in gates], dtype=np.int64),
        )

    def refusals(self, task_class: int) -> list[tuple[str, BoolArray]]:
        """Relations, by name, with the machines that they refuse to one task of a class more."""
        found = [(g.topology.relation.name, ~g.open_machines()) for g in self._gates(task_class)]
        return found + [(name, self._kept[name]) for name in self._spreads(task_class) if name in self._kept]

    def admit(self, classes: IntArray, machines: IntArray) -> bool:
        """Whether tasks of these classes may go to these machines one after the other, in some order; they are noted."""
        left = list(zip(classes.tolist(), machines.tolist(), strict=True))
        while left:
            refused = []
            for c, row in left:
                if any(closed[row] for _, closed in self.refusals(c)):
                    refused.append((c, row))
                else:
                    self.note(c, np.array([row]))
            if len(refused) == len(left):
                return False
            left = refused
        return True

    def save(self) -> dict[str, TopologyCounts]:
        """The counts now, for :meth:`restore`."""
        return {name: counts.copy() for name, counts in self.topology_counts.items()}

    def restore(self, saved: dict[str, TopologyCounts]) -> None:
        """Go back to saved counts."""
        self.topology_counts = {name: counts.copy() for name, counts in saved.items()}

    def _spreads(self, task_class: int) -> list[str]:
        """Relations that spread other tasks, and count a class."""
        return [name for name, _, joins in self._roles.get(task_class, []) if joins and name in self._spread]

    def _kept_from(self, task_class: int) -> BoolArray:
        """Machines that take no task of a class, for the sake of those that other machines there are held for."""
        kept = np.zeros(self._cluster.machines.rows, dtype=np.bool_)
        for name in self._spreads(task_class) if self._kept else ():
            if name in self._kept:
                kept |= self._kept[name]
        return kept

    def _gates(self, task_class: int) -> list[TopologyFilter]:
        found = []
        for name, holds, joins in self._roles.get(task_class, []):
            gate = TopologyFilter(self.topology_counts[name], holds, joins, self._compared(task_class))
            if not gate.trivial:
                found.append(gate)
        return found

    def _compared(self, c: int) -> BoolArray | None:
        """Machines that spreads of a class compare: those that it may use by its filters."""
        if c not in self._eligible:
            cluster = self._cluster
            task_class = cluster.classes[c]
            eligible = cluster.classes.places.places[task_class.places].eligible
            if eligible is None and task_class.selector:
                fitting = np.array([kind.has(task_class.selector) for kind in cluster.machines.kinds], dtype=np.bool_)
                eligible = fitting[cluster.machines.kind] & cluster.machines.alive
            if eligible is not None and len(eligible) < cluster.machines.rows:
                eligible = np.concatenate([eligible, np.zeros(cluster.machines.rows - len(eligible), dtype=np.bool_)])
            self._eligible[c] = eligible
        return self._eligible[c]

"""What rounds at linear prices read: rows of machines and of tasks that events keep, and what a cost model knows of classes.

Sums are integers, so that a task that leaves takes away exactly what it brought, and a state does not depend on the order
of the events that led to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED, fixed, fixed_limit, ties
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.task_class import MachineSpec, TaskClass
from flowsched.cluster.task_rows import FREE, PENDING, RUNNING, TaskRows
from flowsched.errors import EventError
from flowsched.pricing.linear import kernels
from flowsched.pricing.linear.policy import FORBIDDEN, CostModel
from flowsched.relations.relation import Relation
from flowsched.round.linear import cluster_checks
from flowsched.round.linear.priced_classes import PricedClasses
from flowsched.support.arrays import FloatArray, IntArray

CPU = 0
"""The column of ``cpu`` in every array by resource of a round."""


@dataclass(frozen=True, eq=False)
class ClusterRows:
    """Three parts, each with its own arrays, and the events that book tasks on machines. Rounds only read."""

    machines: MachineRows
    tasks: TaskRows
    classes: PricedClasses
    groups: dict[str, int] = field(default_factory=dict)
    """Minimum of every task group that was declared."""
    members_elsewhere: dict[str, int] = field(default_factory=dict)
    """By task group: members that run and are none of these tasks."""
    memory_unit: int = 1
    """How many units of ``memory`` are one MiB, for messages."""

    @classmethod
    def of(cls, policy: CostModel, resources: Sequence[str] = ("cpu", "memory"), memory_unit: int = 1) -> ClusterRows:
        """No machines and no tasks yet. ``resources``: those that machines have; more may turn up with machines."""
        classes = PricedClasses(policy, resources)
        machines = MachineRows([feature.name for feature in classes.features], classes.resources)
        return cls(machines, TaskRows(), classes, memory_unit=memory_unit)

    def copy(self) -> ClusterRows:
        """The same machines and tasks, for work that runs beside the rounds, in O(machines + tasks) of copied memory.

        What later events do to one is not seen by the other; classes are shared, names of tasks stay behind.
        """
        return replace(self, machines=self.machines.copy(), tasks=self.tasks.copy(), groups=dict(self.groups))

    # As rounds see it: by the resources and features of the classes

    @property
    def free(self) -> IntArray:
        """[machines, resources] what is left; only to be read."""
        return self.machines.columns(self.machines.free, self.classes.resources)

    @property
    def allocatable(self) -> IntArray:
        """[machines, resources] only to be read."""
        return self.machines.columns(self.machines.allocatable, self.classes.resources)

    @property
    def readings(self) -> IntArray:
        """[machines, features] with those that only count what a round places, 0; only to be read."""
        return self._with_counts(self.machines.readings, 0)

    @property
    def own_readings(self) -> IntArray:
        """[machines, features] those of machines alone; only to be read."""
        return self._with_counts(self.machines.own_readings, 0)

    @property
    def limits(self) -> IntArray:
        """[machines, features] only to be read."""
        return self._with_counts(self.machines.limits, UNLIMITED)

    def _with_counts(self, values: IntArray, bare: int) -> IntArray:
        more = len(self.classes.features) - values.shape[1]
        return values if not more else np.hstack([values, np.full((len(values), more), bare, dtype=np.int64)])

    def predicted_end(self, tasks: IntArray, machines: IntArray, now_s: float) -> FloatArray:
        """When each of the tasks would end if it started now on its machine: what ``bind`` wants to know."""
        lasting_s = self.classes.lasting_s()
        ends: FloatArray = now_s + lasting_s[self.tasks.task_class[tasks], self.machines.kind[machines]]
        return ends

    def running_members(self) -> dict[str, int]:
        """By task group that was declared: members that run, of these tasks or elsewhere."""
        running = np.bincount(self.tasks.task_class[self.tasks.state == RUNNING], minlength=len(self.classes)).tolist()
        found = {name: self.members_elsewhere.get(name, 0) for name in self.groups}
        for task_class, count in zip(self.classes, running, strict=True):
            if task_class.group in found:
                found[task_class.group] += count
        return found

    def model(self, spread: bool = True) -> kernels.Model:
        """Prices and room as compiled code takes them; the parts' own arrays. ``spread``: ties take the emptiest machine,
        otherwise the one with least CPU left.
        """
        classes, table = self.classes, self.classes.table()
        memory = classes.resources.index("memory") if "memory" in classes.resources else CPU
        return kernels.Model(
            self.machines.kind,
            self.limits,
            table.base,
            table.coefficients,
            classes.factors,
            classes.demands,
            classes.effects,
            1.0 / FIXED,
            table.max_cost,
            np.array([c.places for c in classes], dtype=np.int64),
            classes.places.extra(self.machines.rows),
            np.zeros(len(classes), dtype=np.int64),
            np.zeros((1, 0), dtype=np.int64),
            ties(self.allocatable[:, [CPU, memory]], spread),
            memory,
            spread,
        )

    # Machines

    def row(self, name: str) -> int:
        """Row of a machine. Raises ``EventError`` while it is not there."""
        row = self.machines.row(name)
        if row is None:
            raise EventError(f"machine {name} is not there")
        return row

    def add_machines(self, specs: Sequence[MachineSpec]) -> IntArray:
        """Machines join; their rows. Others may have other rows now, so that rows are in the order of names.

        Raises ``EventError`` for a name that is there already, an unknown feature, and numbers that cannot be counted.
        """
        seen: set[str] = set()
        for spec in specs:
            if self.machines.row(spec.name) is not None or spec.name in seen:
                raise EventError(f"machine {spec.name} is there already")
            seen.add(spec.name)
            for feature in (*spec.readings, *spec.limits):
                self._number_of(spec.name, feature)
            cluster_checks.check_machine(spec)
        self.classes.price_on(list(dict.fromkeys((*self.machines.kinds, *(spec.kind for spec in specs)))))
        self.machines.add_machines(specs)
        self.classes.add_resources(self.machines.resources)
        self._settle()
        return self.machines.rows_of([spec.name for spec in specs])

    def remove_machines(self, names: Sequence[str]) -> IntArray:
        """Machines leave; what ran there waits again, as old as it was. Those tasks.

        Raises ``EventError`` for a machine that is not there.
        """
        if len(set(names)) < len(names):
            raise EventError("a machine leaves twice; name each once")
        rows = np.array([self.row(name) for name in names], dtype=np.int64)
        gone = np.zeros(self.machines.rows, dtype=np.bool_)
        gone[rows] = True
        there = np.flatnonzero((self.tasks.state == RUNNING) & gone[np.maximum(self.tasks.machine, 0)])
        self.unbind(there)
        for name in names:
            self.machines.remove_machine(name)
        self._settle()
        return there

    def read(self, machine: str, feature: str, value: float, limit: float = FORBIDDEN) -> None:
        """A machine's own reading of a feature changes, e.g. with a service's load; ``limit``: what it may reach.

        Raises ``EventError`` for a machine that is not there, an unknown feature, and numbers that cannot be counted.
        """
        row, f = self.row(machine), self._number_of(machine, feature)
        cluster_checks.check_reading(machine, feature, value, limit)
        self.machines.set_reading(row, f, fixed(value), fixed_limit(limit))

    def resize(self, machine: str, allocatable: dict[str, int]) -> None:
        """A machine's allocatable resources change; what runs there stays, even where that is more than there is.

        Raises ``EventError`` for a machine that is not there, and amounts that cannot be counted.
        """
        row = self.row(machine)
        cluster_checks.check_amounts(f"machine {machine}", allocatable)
        self.machines.set_allocatable(row, allocatable)
        self.classes.add_resources(self.machines.resources)

    # Tasks

    def intern(self, task_class: TaskClass) -> int:
        """The number of a class, as :meth:`PricedClasses.intern` gives it; machines have the resources that it asks for."""
        number = self.classes.intern(task_class)
        for resource in self.classes.resources:
            if self.machines.column(resource) < 0:
                self.machines.add_resource(resource)
        return number

    def order_classes(self, order: list[int]) -> None:
        """Number the classes anew, in this order of their numbers: where places cost the same, rounds go by them."""
        self.tasks.task_class[:] = self.classes.reorder(order)[self.tasks.task_class]

    def declare_group(self, name: str, minimum: int) -> None:
        """At least so many tasks of the classes of a group run, or none. Raises ``EventError`` for less than 1."""
        if minimum < 1:
            raise EventError(f"task group {name} has a minimum of {minimum}; it must be at least 1")
        self.groups[name] = minimum

    def declare_relation(self, relation: Relation) -> None:
        """Make a relation between tasks known. Raises ``EventError`` for another one of the same name."""
        store = self.machines.relation_store
        known = store.relation(relation.name)
        if known is not None:
            if known != relation:
                raise EventError(f"relation {relation.name} is there already, and another one")
            return
        store.declare(relation)
        running = np.flatnonzero(self.tasks.state == RUNNING)
        for c, roles in enumerate(self.classes.roles):
            mine = [role for role in roles if role[0] == relation.name]
            if mine:
                store.book(mine, self.tasks.machine[running[self.tasks.task_class[running] == c]], 1)

    def submit(self, classes: IntArray, created_s: FloatArray, names: Sequence[str] | None = None) -> IntArray:
        """Tasks come and wait; their rows.

        Raises ``EventError`` for a name that is there already, a class that was not interned, a moment that is no number.
        """
        classes, created_s = np.asarray(classes), np.asarray(created_s, dtype=np.float64)
        if classes.dtype.kind not in "iu" or classes.shape != created_s.shape or classes.ndim != 1:
            raise EventError(
                f"{classes.size} classes ({classes.dtype}) came with {created_s.size} times; "
                "expected numbers from intern(), and a time for each"
            )
        if len(classes) and not 0 <= classes.min() <= classes.max() < len(self.classes):
            raise EventError(f"tasks of a class beyond the {len(self.classes)} that are known; intern it first")
        if not np.isfinite(created_s).all():
            raise EventError(
                f"created_s must be finite numbers of seconds, got {created_s[~np.isfinite(created_s)][0]}"
            )
        return self.tasks.add(classes, created_s, names)

    def change_class(self, tasks: IntArray, task_class: int) -> None:
        """Waiting tasks are of another class from now on, as old as they are. Raises ``EventError`` if one does not wait."""
        self.tasks.check(tasks, PENDING)
        self.tasks.task_class[tasks] = task_class

    def bind(self, tasks: IntArray, machines: IntArray, end_s: FloatArray | None = None) -> None:
        """Waiting tasks start on machines. Raises ``EventError`` if one does not wait or a machine is not there."""
        self.tasks.check(tasks, PENDING)
        self._check_machines(machines)
        self.tasks.start(tasks, machines, end_s)
        self._book(tasks, 1)

    def unbind(self, tasks: IntArray) -> None:
        """Running tasks wait again, as old as they were."""
        self.tasks.check(tasks, RUNNING)
        self._book(tasks, -1)
        self.tasks.stop(tasks)

    def move(self, tasks: IntArray, machines: IntArray, end_s: FloatArray | None = None) -> None:
        """Running tasks go on elsewhere. Raises ``EventError`` if one does not run or a machine is not there."""
        self.tasks.check(tasks, RUNNING)
        self._check_machines(machines)
        self._book(tasks, -1)
        self.tasks.machine[tasks] = machines
        if end_s is not None:
            self.tasks.end_s[tasks] = end_s
        self._book(tasks, 1)

    def leave(self, tasks: IntArray) -> None:
        """Tasks end or are withdrawn. Raises ``EventError`` for one that is not there."""
        state = self.tasks.state[tasks]
        if not state.all():
            raise EventError(f"task row {int(tasks[state == FREE][0])} is empty")
        self.tasks.check_once(tasks)
        self._book(tasks[state == RUNNING], -1)
        self.tasks.remove(tasks)

    def count(self, machines: IntArray, times: IntArray, needs: Mapping[str, int], effects: IntArray) -> None:
        """So many tasks that are none of these come to each machine, or leave it, where that is below 0.

        ``needs`` by resource; those that no machine has are not counted. ``effects`` on the first features, in units of
        1/FIXED. What they are to relations goes to the store of these.
        """
        for resource, amount in needs.items():
            if (column := self.machines.column(resource)) >= 0:
                self.machines.free[machines, column] -= times * amount
        for readings in (self.machines.readings, self.machines.own_readings):
            readings[machines[:, None], np.arange(len(effects))] += times[:, None] * effects
        self.machines.touch(machines)

    def recount(self, machines: IntArray) -> None:
        """Work out what some machines read from what runs there, where events change all else."""
        tasks, readings = self.tasks, self.machines.readings
        readings[machines] = self.machines.own_readings[machines]
        here = np.zeros(self.machines.rows, dtype=np.bool_)
        here[machines] = True
        running = np.flatnonzero(tasks.state == RUNNING)
        there = running[here[tasks.machine[running]]]
        np.add.at(readings, tasks.machine[there], self.classes.effects[tasks.task_class[there]])
        self.machines.touch(machines)

    # Insides

    def _settle(self) -> None:
        before = self.machines.settle()
        self.classes.price_on(self.machines.kinds)
        if before is None:
            return
        self.tasks.follow_machines(before)
        self.classes.places.move(before)

    def _book(self, tasks: IntArray, sign: int) -> None:
        machine, task_class, classes = self.tasks.machine, self.tasks.task_class, self.classes
        load = self.machines.free, self.machines.readings
        kernels.book(tasks, machine, task_class, classes.demands, classes.effects, sign, *load)
        self.machines.touch(machine[tasks])
        store = self.machines.relation_store
        if len(store) and classes.related[task_class[tasks]].any():
            for c in np.unique(task_class[tasks]).tolist():
                if classes.roles[c]:
                    store.book(classes.roles[c], machine[tasks[task_class[tasks] == c]], sign)

    def _number_of(self, machine: str, feature: str) -> int:
        names = [known.name for known in self.classes.features]
        if feature not in names:
            known = ", ".join(names) or "none"
            raise EventError(
                f"machine {machine}: policy {self.classes.policy.name} has no feature {feature}; it has {known}"
            )
        return names.index(feature)

    def _check_machines(self, machines: IntArray) -> None:
        if len(machines) and not self.machines.alive[machines].all():
            raise EventError(f"machine row {int(machines[~self.machines.alive[machines]][0])} is empty")

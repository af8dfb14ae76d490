"""The state of a cluster as arrays, kept from events in O(changes): machines, tasks, and what tasks bring to machines.

Sums are integers, so that a task that leaves takes away exactly what it brought, and a state does not depend on the order
of the events that led to it. Rows of machines and of tasks are reused; what is new since the last round is on a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flowsched.cluster.machine_arrays import (
    FIXED,
    UNLIMITED,
    LoadedMachines,
    amounts,
    fixed,
    own_readings,
    ties,
    wider,
)
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.cluster.task_rows import FREE, PENDING, RUNNING, TaskRows
from flowsched.errors import EventError
from flowsched.pricing.linear import kernels
from flowsched.pricing.linear.policy import FORBIDDEN, ClassPrices, CostModel
from flowsched.relations.relation import Relation, Role, roles_of
from flowsched.scale import cluster_checks
from flowsched.scale.places import PlacesTable
from flowsched.scale.price_table import PriceTable, checked_prices
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

CPU = 0
"""The column of ``cpu`` in every array by resource."""


class BulkCluster(MachineRows, TaskRows):
    """Machines by row, tasks by row, classes and kinds by number."""

    def __init__(self, policy: CostModel, resources: Sequence[str] = ("cpu", "memory")) -> None:
        """No machines yet. ``resources``: those that machines have; more may turn up with machines."""
        self.features = tuple(policy.features)
        names = [feature.name for feature in self.features]
        MachineRows.__init__(self, names, ["cpu", *(r for r in resources if r != "cpu")])
        TaskRows.__init__(self)
        self.policy = policy
        self.memory_unit = 1
        """How many units of ``memory`` are one MiB, for messages."""
        width = len(self.features)

        self.factors: FloatArray = np.zeros((0, width))

        self.classes: list[TaskClass] = []
        self._class: dict[TaskClass, int] = {}
        self.prices: list[ClassPrices] = []
        self.demands: IntArray = np.zeros((0, len(self.resources)), dtype=np.int64)
        self.effects: IntArray = np.zeros((0, width), dtype=np.int64)
        self._table: tuple[int, PriceTable] | None = None
        self._lasting: tuple[int, FloatArray] | None = None
        self.groups: dict[str, int] = {}
        """Minimum of every task group that was declared."""
        self.members_elsewhere: dict[str, int] = {}
        """By task group: members that run and are no tasks of this cluster."""
        self.places = PlacesTable()
        self.roles: list[tuple[Role, ...]] = []
        """By class: what it is to relations, whether they are declared or not."""
        self._related: BoolArray = np.zeros(0, dtype=np.bool_)
        self.structure = 0
        """Goes up when classes, kinds or resources turn up: what depends on their number grows then."""

    # Machines

    def row(self, name: str) -> int:
        """Row of a machine. Raises ``EventError`` while it is not there."""
        try:
            return self._row[name]
        except KeyError:
            raise EventError(f"machine {name} is not there") from None

    def machine_name(self, row: int) -> str:
        """Name of the machine in a row."""
        return self.names[row] or ""

    def add_machines(self, specs: Sequence[MachineSpec]) -> IntArray:
        """Machines join; their rows.

        Raises ``EventError`` for a name that is there already, an unknown feature, and numbers that cannot be counted.
        """
        seen: set[str] = set()
        for spec in specs:
            if spec.name in self._row or spec.name in seen:
                raise EventError(f"machine {spec.name} is there already")
            seen.add(spec.name)
            for feature in (*spec.readings, *spec.limits):
                self._number_of(spec.name, feature)
            cluster_checks.check_machine(spec)
        self._intern_kinds(spec.kind for spec in specs)
        for resource in sorted({r for spec in specs for r in spec.allocatable} - set(self.resources)):
            self._add_resource(resource)
        rows = np.array([self._take_row(spec.name, spec.labels) for spec in specs], dtype=np.int64)
        self.kind[rows] = [self._kind[spec.kind] for spec in specs]
        self.allocatable[rows] = self.free[rows] = amounts(specs, self.resources)
        readings, self.limits[rows] = own_readings(specs, list(self._feature))
        self.own_readings[rows] = self.readings[rows] = readings
        self.touch(rows)
        return rows

    def load_machines(self, machines: LoadedMachines) -> None:
        """Many machines join at once, with what is taken of them already by tasks that are none of this cluster.

        Raises ``EventError`` unless there were none before.
        """
        if self.rows:
            raise EventError(
                f"there are {self.machine_count} machines already; machines are loaded into an empty cluster"
            )
        found, first, kind = np.unique(machines.kind, return_index=True, return_inverse=True)
        # Numbered by the first machine of each, as those of machines that join one by one.
        self._intern_kinds(machines.kinds[k] for k in found[np.argsort(first)].tolist())
        for resource in machines.resources:
            if resource not in self.resources:
                self._add_resource(resource)
        count = len(machines.names)
        self._grow(count)
        self._empty_rows = []
        self.names = list(machines.names)
        self._row = {name: row for row, name in enumerate(machines.names) if name is not None}
        self.alive[:] = True
        self.relation_store = machines.relation_store
        self.kind[:] = np.array([self._kind[machines.kinds[k]] for k in found.tolist()], dtype=np.int64)[
            kind.reshape(-1)
        ]
        columns = [self.resources.index(resource) for resource in machines.resources]
        self.allocatable[:, columns] = machines.allocatable
        self.free[:, columns] = machines.free
        self.own_readings[:] = machines.readings
        self.readings[:] = machines.readings
        self.limits[:] = machines.limits
        self.touch(np.arange(count))

    def remove_machines(self, names: Sequence[str]) -> IntArray:
        """Machines leave; what ran there waits again, as old as it was. Those tasks.

        Raises ``EventError`` for a machine that is not there.
        """
        if len(set(names)) < len(names):
            raise EventError("a machine leaves twice; name each once")
        rows = np.array([self.row(name) for name in names], dtype=np.int64)
        gone = np.zeros(self.rows, dtype=np.bool_)
        gone[rows] = True
        there = np.flatnonzero((self.state == RUNNING) & gone[np.maximum(self.machine, 0)])
        self.unbind(there)
        for name in names:
            self._leave_row(name)
        self.touch(rows)
        return there

    def read(self, machine: str, feature: str, value: float, limit: float = FORBIDDEN) -> None:
        """A machine's own reading of a feature changes, e.g. with a service's load; ``limit``: what it may reach.

        Raises ``EventError`` for a machine that is not there, an unknown feature, and numbers that cannot be counted.
        """
        row, f = self.row(machine), self._number_of(machine, feature)
        cluster_checks.check_reading(machine, feature, value, limit)
        self._set_reading(row, f, fixed(value), fixed(limit) if limit < UNLIMITED / FIXED else UNLIMITED)

    def resize(self, machine: str, allocatable: dict[str, int]) -> None:
        """A machine's allocatable resources change; what runs there stays, even where that is more than there is.

        Raises ``EventError`` for a machine that is not there, and amounts that cannot be counted.
        """
        row = self.row(machine)
        cluster_checks.check_amounts(f"machine {machine}", allocatable)
        self._set_allocatable(row, allocatable)

    # Tasks

    def intern(self, task_class: TaskClass) -> int:
        """The number of a class; the policy prices it when it turns up.

        Raises ``EventError`` for prices and demands that are none.
        """
        try:
            number = self._class.get(task_class)
        except TypeError:  # a list or a dict instead of tuples
            number = None
        if number is not None:
            return number
        cluster_checks.check_class(task_class)
        prices = checked_prices(self.policy, task_class, self.kinds)
        for resource, _ in task_class.needs:
            if resource not in self.resources:
                self._add_resource(resource)
        number = self._class[task_class] = len(self.classes)
        self.classes.append(task_class)
        self.prices.append(prices)
        demand = task_class.demand()
        self.demands = np.vstack([self.demands, [demand.get(r, 0) for r in self.resources]])
        self.effects = np.vstack([self.effects, np.rint(prices.effects * FIXED).astype(np.int64)])
        self.roles.append(roles_of(task_class.holds, task_class.joins))
        self._related = np.append(self._related, bool(self.roles[-1]))
        self.structure += 1
        return number

    def declare_group(self, name: str, minimum: int) -> None:
        """At least so many tasks of the classes of a group run, or none. Raises ``EventError`` for less than 1."""
        if minimum < 1:
            raise EventError(f"task group {name} has a minimum of {minimum}; it must be at least 1")
        self.groups[name] = minimum

    def declare_relation(self, relation: Relation) -> None:
        """Make a relation between tasks known. Raises ``EventError`` for another one of the same name."""
        known = self.relation_store.relation(relation.name)
        if known is not None:
            if known != relation:
                raise EventError(f"relation {relation.name} is there already, and another one")
            return
        self.relation_store.declare(relation)
        running = np.flatnonzero(self.state == RUNNING)
        for c, roles in enumerate(self.roles):
            mine = [role for role in roles if role[0] == relation.name]
            if mine:
                self.relation_store.book(mine, self.machine[running[self.task_class[running] == c]], 1)

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
        return self._add_tasks(classes, created_s, names)

    def change_class(self, tasks: IntArray, task_class: int) -> None:
        """Waiting tasks are of another class from now on, as old as they are. Raises ``EventError`` if one does not wait."""
        self._check(tasks, PENDING)
        self.task_class[tasks] = task_class

    def bind(self, tasks: IntArray, machines: IntArray, end_s: FloatArray | None = None) -> None:
        """Waiting tasks start on machines. Raises ``EventError`` if one does not wait or a machine is not there."""
        self._check(tasks, PENDING)
        self._check_machines(machines)
        self._start(tasks, machines, end_s)
        self._book(tasks, 1)

    def unbind(self, tasks: IntArray) -> None:
        """Running tasks wait again, as old as they were."""
        self._check(tasks, RUNNING)
        self._book(tasks, -1)
        self._stop(tasks)

    def move(self, tasks: IntArray, machines: IntArray, end_s: FloatArray | None = None) -> None:
        """Running tasks go on elsewhere. Raises ``EventError`` if one does not run or a machine is not there."""
        self._check(tasks, RUNNING)
        self._check_machines(machines)
        self._book(tasks, -1)
        self.machine[tasks] = machines
        if end_s is not None:
            self.end_s[tasks] = end_s
        self._book(tasks, 1)

    def leave(self, tasks: IntArray) -> None:
        """Tasks end or are withdrawn. Raises ``EventError`` for one that is not there."""
        state = self.state[tasks]
        if not state.all():
            raise EventError(f"task row {int(tasks[state == FREE][0])} is empty")
        self._check_once(tasks)
        self._book(tasks[state == RUNNING], -1)
        self._remove(tasks)

    def count(self, machines: IntArray, times: IntArray, needs: Mapping[str, int], effects: IntArray) -> None:
        """So many tasks that are none of the cluster's come to each machine, or leave it, where that is below 0.

        ``needs`` by resource; those that no machine has are not counted. ``effects`` on the first features, in units of
        1/FIXED. What they are to relations goes to the store of these.
        """
        for resource, amount in needs.items():
            if resource in self.resources:
                self.free[machines, self.resources.index(resource)] -= times * amount
        for readings in (self.readings, self.own_readings):
            readings[machines[:, None], np.arange(len(effects))] += times[:, None] * effects
        self.touch(machines)

    def running_members(self) -> dict[str, int]:
        """By task group that was declared: members that run, of this cluster or elsewhere."""
        running = np.bincount(self.task_class[self.state == RUNNING], minlength=len(self.classes)).tolist()
        found = {name: self.members_elsewhere.get(name, 0) for name in self.groups}
        for task_class, count in zip(self.classes, running, strict=True):
            if task_class.group in found:
                found[task_class.group] += count
        return found

    def table(self) -> PriceTable:
        """Prices of all classes; the same object until a class or a kind turns up."""
        if self._table is None or self._table[0] != self.structure:
            table = PriceTable.of(self.classes, self.prices, len(self.kinds), len(self.features))
            self._table = self.structure, table
        return self._table[1]

    def lasting_s(self) -> FloatArray:
        """Predicted run time by class and kind in seconds; infinite for tasks without an end."""
        if self._lasting is None or self._lasting[0] != self.structure:
            types = dict.fromkeys(kind.type for kind in self.kinds)
            column = {name: i for i, name in enumerate(types)}
            slowness = np.zeros((len(self.classes), len(types)))
            for number, task_class in enumerate(self.classes):
                for name, slower in task_class.slowness:
                    if name in column:
                        slowness[number, column[name]] = slower
            by_kind = slowness[:, np.array([column[kind.type] for kind in self.kinds], dtype=np.int64)]
            self._lasting = self.structure, self.table().run_s[:, None] * (1.0 + by_kind)
        return self._lasting[1]

    def age_s(self, tasks: IntArray, now_s: float) -> FloatArray:
        """Seconds since each of the tasks came, in whole microseconds, as :meth:`Snapshot.age_s` has them."""
        age_s: FloatArray = np.round(now_s - self.created_s[tasks], 6)
        return age_s

    def predicted_end(self, tasks: IntArray, machines: IntArray, now_s: float) -> FloatArray:
        """When each of the tasks would end if it started now on its machine: what ``bind`` wants to know."""
        ends: FloatArray = now_s + self.lasting_s()[self.task_class[tasks], self.kind[machines]]
        return ends

    def model(self, spread: bool = True) -> kernels.Model:
        """Prices and room as compiled code takes them; the cluster's own arrays. ``spread``: ties take the emptiest machine,
        otherwise the one with least CPU left.
        """
        table = self.table()
        memory = self.resources.index("memory") if "memory" in self.resources else CPU
        return kernels.Model(
            self.kind,
            self.limits,
            table.base,
            table.coefficients,
            self.factors,
            self.demands,
            self.effects,
            1.0 / FIXED,
            table.max_cost,
            np.array([c.places for c in self.classes], dtype=np.int64),
            self.places.extra(self.rows),
            np.zeros(len(self.classes), dtype=np.int64),
            np.zeros((1, 0), dtype=np.int64),
            ties(self.allocatable[:, [CPU, memory]], spread),
            memory,
            spread,
        )

    def touch(self, rows: IntArray) -> None:
        """Count machines as changed, though nothing about them did."""
        kernels.mark(rows, self._changed, self._changes, self._change_count)

    # Below: how

    def _intern_kinds(self, kinds: Iterable[MachineKind]) -> None:
        """Number the kinds that are new, and ask the policy about all classes once more."""
        new = [kind for kind in dict.fromkeys(kinds) if kind not in self._kind]
        if not new:
            return
        width = len(self.features)
        factors = [np.asarray(self.policy.factors(kind), dtype=np.float64) for kind in new]
        for kind, of_kind in zip(new, factors, strict=True):
            if of_kind.shape != (width,) or not (np.isfinite(of_kind) & (of_kind >= 0.0)).all():
                raise EventError(
                    f"policy {self.policy.name} has factors {of_kind.tolist()} for machines of type {kind.type}; "
                    f"expected {width} finite numbers >= 0"
                )
        prices = [checked_prices(self.policy, c, [*self.kinds, *new]) for c in self.classes]
        super()._intern_kinds(new)
        self.factors = np.vstack([self.factors, np.array(factors).reshape(len(new), width)])
        self.prices = prices
        self.structure += 1

    def _book(self, tasks: IntArray, sign: int) -> None:
        kernels.book(
            tasks,
            self.machine,
            self.task_class,
            self.demands,
            self.effects,
            sign,
            self.free,
            self.readings,
            self._changed,
            self._changes,
            self._change_count,
        )
        if len(self.relation_store) and self._related[self.task_class[tasks]].any():
            for c in np.unique(self.task_class[tasks]).tolist():
                if self.roles[c]:
                    self.relation_store.book(self.roles[c], self.machine[tasks[self.task_class[tasks] == c]], sign)

    def _number_of(self, machine: str, feature: str) -> int:
        number = self._feature.get(feature)
        if number is None:
            known = ", ".join(self._feature) or "none"
            raise EventError(f"machine {machine}: policy {self.policy.name} has no feature {feature}; it has {known}")
        return number

    def _check_machines(self, machines: IntArray) -> None:
        if len(machines) and not self.alive[machines].all():
            raise EventError(f"machine row {int(machines[~self.alive[machines]][0])} is empty")

    def _add_resource(self, resource: str) -> None:
        super()._add_resource(resource)
        self.demands = wider(self.demands)
        for number, task_class in enumerate(self.classes):
            self.demands[number, -1] = task_class.demand().get(resource, 0)
        self.structure += 1

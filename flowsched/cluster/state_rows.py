"""What is where, by row: the machines of a state with what is free and related there, and its tasks, waiting or running.

Each event books here once. What is free is counted at once, as the next event may ask; rows of tasks are written many at a
time, when a reader asks. Readers that know more of machines and tasks, such as their prices, follow the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter

import numpy as np

from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.running_tasks import entries_of
from flowsched.cluster.snapshot import (
    Machine,
    RelationCount,
    Running,
    Service,
    Snapshot,
    Task,
    by_machine,
    cores_beside,
)
from flowsched.cluster.task_class import MachineKind
from flowsched.cluster.task_rows import TaskRows
from flowsched.relations.relation import Relation, TaskGroup, roles_of
from flowsched_models.catalogue import Catalogue

_ANY = MachineKind("machine")
"""Kinds of machines depend on what prices ask for, which this does not know."""


def room_beside(machine: Machine, services: Iterable[Service]) -> dict[str, int]:
    """What a machine has for tasks beside its services, by resource; no CPU where these have all cores."""
    services = tuple(services)
    cpu = machine.cpu_milli - sum(s.width_milli for s in services) if cores_beside(machine, services) else 0
    memory = machine.memory_mib - sum(s.memory_mib for s in services)
    return {**dict(machine.resources), "cpu": cpu, "memory": memory}


class StateRows:
    """See the module. Readers call :meth:`settle` and change nothing else."""

    def __init__(
        self, catalogue: Catalogue, relations: Iterable[Relation] = (), task_groups: Iterable[TaskGroup] = ()
    ) -> None:
        """No machines and no tasks. ``relations`` and ``task_groups`` are all that tasks may name."""
        self.catalogue = catalogue
        self.relations = {r.name: r for r in relations}
        self.task_groups = {g.name: g for g in task_groups}
        """Without members that ended: those who are left need not wait for others in their place."""
        self.machines = MachineRows((), ("cpu", "memory"))
        for _, relation in sorted(self.relations.items()):
            self.machines.relation_store.declare(relation)
        self.there: dict[str, tuple[Machine, tuple[Service, ...]]] = {}
        """Machines with their services, by name; another object for one that leaves and comes again."""
        self.tasks = TaskRows()
        """Of any class, as of the last :meth:`settle`."""
        self.things: dict[str, Task | Running] = {}
        """By name, a task as it came to wait, or as it came to run."""
        self._users: Counter[str] = Counter()
        """Machines that have each further resource, and tasks that ask for it."""
        self._changed: dict[str, None] = {}
        """Names of those whose rows do not show that they came or started."""
        self._left: dict[str, None] = {}
        """Names of tasks that are gone from their rows, though another one may have the name by now."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> StateRows:
        """Those of a snapshot, whose order makes no difference."""
        found = cls(snapshot.catalogue, snapshot.relations, snapshot.task_groups)
        services = by_machine(snapshot.services)
        for machine in sorted(snapshot.machines, key=attrgetter("name")):
            found.add(machine, tuple(services[machine.name]))
        found.count(snapshot.relation_counts)
        for task in sorted(snapshot.pending, key=attrgetter("arrival")):
            found.submit(task)
        for running in sorted(entries_of(snapshot.running), key=attrgetter("task.name")):
            found.start(running)
        return found

    # Machines

    def add(self, machine: Machine, services: tuple[Service, ...]) -> None:
        """A machine joins that is not there."""
        self.there[machine.name] = machine, services
        self._users.update(dict(machine.resources).keys())
        self.machines.put_machine(machine.name, _ANY, room_beside(machine, services), dict(machine.labels))

    def remove(self, machine: str) -> None:
        """A machine leaves, on which nothing runs any more."""
        self._release(self.there.pop(machine)[0].resources)
        self.machines.remove_machine(machine)

    def count(self, counts: Iterable[RelationCount]) -> None:
        """Take note of tasks that relations count and that are none of these."""
        for each in counts:
            row = self.machines.rows_of((each.machine,))
            self.machines.relation_store.count_all(each.relation, row, each.members, each.holders)

    def free(self, machine: str, resource: str) -> int:
        """What is left of a resource on a machine; below 0 where more is used than there is."""
        column = self.machines.column(resource)
        return int(self.machines.free[self.machines.row(machine), column]) if column >= 0 else 0

    @property
    def resources(self) -> tuple[str, ...]:
        """What machines have, or tasks ask for, beside CPU and memory, sorted; rows have columns of earlier ones too."""
        return tuple(sorted(self._users))

    def _release(self, resources: Iterable[tuple[str, int]]) -> None:
        for resource in dict(resources):
            self._users[resource] -= 1
            if not self._users[resource]:
                del self._users[resource]

    # Tasks

    def submit(self, task: Task) -> None:
        """A task comes and waits."""
        for resource, _ in task.resources:
            if self.machines.column(resource) < 0:
                self.machines.add_resource(resource)
        self._users.update(dict(task.resources).keys())
        self.things[task.name] = task
        self._changed[task.name] = None

    def start(self, running: Running) -> None:
        """A task starts, which waits or is new."""
        name = running.task.name
        if name not in self.things:
            self.submit(running.task)
        self.things[name] = running
        self._changed[name] = None
        self._book(running, 1)

    def leave(self, task: str) -> None:
        """A task that waits or runs does so no longer."""
        thing = self.things.pop(task)
        if isinstance(thing, Running):
            self._book(thing, -1)
        self._release((thing.task if isinstance(thing, Running) else thing).resources)
        if task in self.tasks:
            self._left[task] = None
        self._changed.pop(task, None)

    def settle(self) -> None:
        """Bring rows up to the events: tasks have rows, and machines theirs in the order of names, as rounds go by rows."""
        tasks, things = self.tasks, self.things
        tasks.remove(tasks.rows_of(self._left))
        before = self.machines.settle()
        if before is not None:
            tasks.follow_machines(before)
        new = [name for name in self._changed if name not in tasks]
        submit_s = [
            (thing.task if isinstance(thing, Running) else thing).submit_s for thing in map(things.__getitem__, new)
        ]
        tasks.add(np.zeros(len(new), dtype=np.int64), np.array(submit_s), new)
        runs = {name: thing.machine for name in self._changed if isinstance(thing := things[name], Running)}
        tasks.start(tasks.rows_of(runs), self.machines.rows_of(runs.values()))
        self._left.clear()
        self._changed.clear()

    def _book(self, running: Running, sign: int) -> None:
        task, row = running.task, self.machines.row(running.machine)
        assert row is not None, "a task runs on a machine that is there"
        self.machines.use(row, {"cpu": running.width_milli, "memory": task.memory_mib, **dict(task.resources)}, sign)
        if task.holds or task.joins:
            self.machines.relation_store.book(roles_of(task.holds, task.joins), np.array([row]), sign)

"""Folds tasks into classes and machines into groups, so that the network grows with what is distinct.

Exact: two tasks share a class only if no cost or constraint can tell them apart; likewise machines. The order of classes
and groups comes from what they are, names last, so that neither a shuffled nor a renamed input changes a decision that its
content determines.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from flowsched.cluster import service_load
from flowsched.snapshot import MILLI, Machine, Running, Service, Snapshot, Task
from flowsched_models.runtime import Host, HostFactory, Resident


@dataclass(frozen=True)
class TaskClass:
    """Pending tasks that the network cannot tell apart."""

    task: Task
    """Any member; all that matters is equal."""
    members: tuple[int, ...]
    """Indices into the view's tasks."""


@dataclass(frozen=True)
class MachineGroup:
    """Machines that the network cannot tell apart this round."""

    machine: Machine
    """Any member."""
    members: tuple[int, ...]
    """Indices into the view's machines."""
    host: Host
    services: tuple[Service, ...]
    running: tuple[Running, ...]
    """Tasks on the representative member; the other members' differ in names only."""
    residents: tuple[Resident, ...]
    """The same tasks as the run-time model sees them, with times relative to now."""
    batch_cores: tuple[int, ...]
    free_milli: int
    free_memory_mib: int


@dataclass(frozen=True)
class View:
    """A snapshot in canonical order, with its classes and groups."""

    snapshot: Snapshot
    tasks: tuple[Task, ...]
    machines: tuple[Machine, ...]
    classes: tuple[TaskClass, ...]
    groups: tuple[MachineGroup, ...]

    @cached_property
    def class_of(self) -> tuple[int, ...]:
        """Class of each task."""
        found = {i: c for c, cls in enumerate(self.classes) for i in cls.members}
        return tuple(found[i] for i in range(len(self.tasks)))

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """Group of each machine."""
        found = {i: g for g, group in enumerate(self.groups) for i in group.members}
        return tuple(found[i] for i in range(len(self.machines)))

    @cached_property
    def _allowed(self) -> dict[tuple[int, int], bool]:
        answer = {}
        for c, cls in enumerate(self.classes):
            names = None if cls.task.machines is None else frozenset(cls.task.machines)
            for m, machine in enumerate(self.machines):
                answer[c, m] = names is None or machine.name in names
        return answer

    def allowed(self, task_class: int, machine: int) -> bool:
        """Whether a class's user lets it run on a machine. Groups never mix allowed and forbidden machines."""
        return self._allowed[task_class, machine]

    def could_fit(self, task_class: int, group: int, width_milli: int) -> bool:
        """Whether a task of a class would fit on a machine of the group with only its services there."""
        task = self.classes[task_class].task
        here = self.groups[group]
        cpu = here.machine.cpu_milli - sum(s.width_milli for s in here.services)
        memory = here.machine.memory_mib - sum(s.memory_mib for s in here.services)
        return (
            bool(here.batch_cores)
            and self.allowed(task_class, here.members[0])
            and width_milli <= cpu
            and task.memory_mib <= memory
        )


def compact(snapshot: Snapshot, hosts: HostFactory) -> View:
    """The view of a snapshot."""
    tasks = tuple(sorted(snapshot.pending, key=lambda t: (_task_order(t), t.name)))
    by_class: dict[Hashable, list[int]] = {}
    for i, task in enumerate(tasks):
        by_class.setdefault(_task_order(task), []).append(i)
    classes = tuple(TaskClass(tasks[rows[0]], tuple(rows)) for rows in by_class.values())

    running: dict[str, list[Running]] = {m.name: [] for m in snapshot.machines}
    for r in snapshot.running:
        running[r.machine].append(r)
    services: dict[str, list[Service]] = {m.name: [] for m in snapshot.machines}
    for s in snapshot.services:
        services[s.machine].append(s)
    free = snapshot.free_milli()
    free_memory = snapshot.free_memory_mib()
    named_lists = sorted({t.machines for t in tasks if t.machines is not None})

    keyed = []
    for machine in snapshot.machines:
        here = tuple(sorted(running[machine.name], key=_running_order))
        loads = tuple(service_load(s) for s in services[machine.name])
        goals = tuple((s.slo_us, s.memory_mib) for s in services[machine.name])
        key = (
            machine.type,
            machine.cpu_milli,
            machine.memory_mib,
            machine.vcpus,
            machine.labels,
            tuple((x.profile, x.cores, x.threads, x.weight, x.qps, x.client) for x in loads),
            goals,
            tuple(_running_order(r) for r in here),
            tuple(machine.name in names for names in named_lists),
        )
        keyed.append((key, machine.name, machine, here, loads))
    keyed.sort(key=lambda row: row[:2])
    by_group: dict[Hashable, list[int]] = {}
    for i, row in enumerate(keyed):
        by_group.setdefault(row[0], []).append(i)
    groups = []
    for rows in by_group.values():
        _, name, machine, here, loads = keyed[rows[0]]
        groups.append(
            MachineGroup(
                machine,
                tuple(rows),
                hosts.host(machine.type, loads),
                tuple(services[name]),
                here,
                tuple(_resident(r, snapshot.now_s) for r in here),
                snapshot.batch_cores(machine),
                free[name],
                free_memory[name],
            )
        )
    return View(snapshot, tasks, tuple(row[2] for row in keyed), classes, tuple(groups))


def _task_order(t: Task) -> tuple[object, ...]:
    goal = -1.0 if t.goal_s is None else t.goal_s
    return (
        -t.priority,
        t.submit_s,
        t.profile,
        t.scale,
        t.widths_milli,
        t.request_milli,
        t.memory_mib,
        goal,
        t.machines is not None,
        t.machines or (),
    )


def _running_order(r: Running) -> tuple[object, ...]:
    return (_task_order(r.task), r.progress, r.start_s, r.width_milli, r.threads, r.cores)


def _resident(r: Running, now_s: float) -> Resident:
    return Resident(
        r.task.profile,
        r.task.scale,
        r.threads,
        r.cores,
        r.width_milli / MILLI,
        r.task.memory_mib,
        r.progress,
        max(0.0, r.start_s - now_s),
    )

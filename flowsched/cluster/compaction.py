"""Folds tasks into classes and machines into groups, so that the network grows with what is distinct.

Exact: two tasks share a class only if no cost or constraint can tell them apart; likewise machines. The order of classes
and groups comes from what they are, names last, so that neither a shuffled nor a renamed input changes a decision that its
content determines.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter

import numpy as np

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.resource import covers, without
from flowsched.cluster.running_estimates import running_estimates
from flowsched.cluster.running_tasks import running_on
from flowsched.cluster.snapshot import Estimate, Machine, Running, Service, Snapshot, Task, by_machine, cores_beside
from flowsched.gpu.devices import MachineGpus, TaskGpus, has_devices, left_beside, suits, use_of
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_models.gpu_profile import NO_GPUS
from flowsched_models.profile import PhaseOrder
from flowsched_models.runtime import Host, HostFactory, Resident

LARGE_GROUP = 32
"""Groups with more members than this, and than there are tasks to place, are searched by as many members as there are
tasks: no plan uses more of them. Smaller ones are searched whole."""
_NO_GPUS = MachineGpus("", 0)
"""Stands for none where machines are compared, beside what says that there is none."""
ENDLESS_WORK_S = 1e10
"""Single-thread seconds that a task without an end is forecast with: beyond every other completion."""


@dataclass(frozen=True)
class PendingClass:
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
    """Indices into the view's machines: those that the search looks at."""
    host: Host
    services: tuple[Service, ...]
    running: tuple[Running, ...]
    """Tasks on the representative member; the other members' differ in names only."""
    residents: tuple[Resident, ...]
    """The same tasks as the run-time model sees them, with times relative to now."""
    batch_cores: tuple[int, ...]
    free_milli: int
    free_memory_mib: int
    free_resources: Mapping[str, int] = field(default_factory=dict)
    devices_left: tuple[int, ...] = ()
    """What is left of each GPU, in thousandths, the fullest first: members differ in the numbers of the devices."""
    spares: tuple[str, ...] = ()
    """Names of further members, which no plan of this round needs."""

    @property
    def size(self) -> int:
        """Number of machines in the group."""
        return len(self.members) + len(self.spares)

    @cached_property
    def endless(self) -> tuple[Running, ...]:
        """Long-running tasks on the representative member."""
        return tuple(r for r in self.running if r.task.endless)

    @property
    def completes(self) -> bool:
        """Whether anything here will end by itself."""
        return len(self.running) > len(self.endless)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The machines that a round of a large cluster looks at, and what it knows of all."""

    names: Sequence[str]
    """Of all machines."""
    by_kind: Mapping[Hashable, IntArray]
    """Positions in ``names`` of the candidates of each kind of task (:func:`kind_of`)."""
    batch_cores: int
    """Of all machines of the cluster."""
    work_s: float
    """Core-seconds that all running tasks with an end still need."""
    completes: bool
    """Whether any task of the cluster will end by itself."""
    free_milli: int = 0
    """CPU that nothing has, in thousandths of a core."""

    @cached_property
    def machines(self) -> frozenset[str]:
        """Names of those that are a candidate for any task."""
        any_ = np.zeros(len(self.names), np.bool_)
        for rows in self.by_kind.values():
            any_[rows] = True
        return frozenset([self.names[row] for row in np.flatnonzero(any_).tolist()])


def kind_of(task: Task) -> Hashable:
    """What tasks that draw the same candidates have in common: all that tells classes apart but when they came."""
    return (task.content[0], *task.content[2:])


@dataclass(frozen=True)
class View:
    """A snapshot in canonical order, with its classes and groups."""

    snapshot: Snapshot
    tasks: tuple[Task, ...]
    machines: tuple[Machine, ...]
    """Of a large cluster those that the round looks at only."""
    classes: tuple[PendingClass, ...]
    groups: tuple[MachineGroup, ...]
    candidates: Candidates | None = None
    """None where the round looks at all machines."""
    _candidates: dict[Hashable, BoolArray] = field(init=False, default_factory=dict, repr=False, compare=False)
    _fits: dict[tuple[int, int], list[bool]] = field(init=False, default_factory=dict, repr=False, compare=False)
    _large: dict[Hashable, BoolArray] = field(init=False, default_factory=dict, repr=False, compare=False)
    _supplied: dict[Hashable, BoolArray] = field(init=False, default_factory=dict, repr=False, compare=False)
    _roomy: dict[Hashable, BoolArray] = field(init=False, default_factory=dict, repr=False, compare=False)

    @cached_property
    def domain_counts(self) -> DomainCounts:
        """The running tasks, counted by relation. To change it, take a copy."""
        return DomainCounts.of(self.snapshot)

    def counted_with(self, placed: Iterable[tuple[int, int]]) -> DomainCounts:
        """The same with tasks, each on a machine, beside those that run."""
        domain_counts = self.domain_counts.copy()
        for task, machine in placed:
            domain_counts.add(self.tasks[task], self.machines[machine].name)
        return domain_counts

    @cached_property
    def class_of(self) -> tuple[int, ...]:
        """Class of each task."""
        found = {i: c for c, cls in enumerate(self.classes) for i in cls.members}
        return tuple([found[i] for i in range(len(self.tasks))])

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """Group of each machine."""
        found = {i: g for g, group in enumerate(self.groups) for i in group.members}
        return tuple([found[i] for i in range(len(self.machines))])

    @cached_property
    def shapes(self) -> tuple[int, ...]:
        """The first group of each shape."""
        return tuple(dict.fromkeys(self.shape_of))

    @cached_property
    def shape_of(self) -> tuple[int, ...]:
        """Of each group, the first group that differs from it at most in tasks that will end: what a class can do on empty
        machines is the same on both.
        """
        lists = [frozenset(c.task.machines) for c in self.classes if c.task.machines is not None]
        first: dict[Hashable, int] = {}
        shapes = []
        for g, group in enumerate(self.groups):
            machine = group.machine
            key = (
                id(group.host),
                machine.cpu_milli,
                machine.memory_mib,
                machine.vcpus,
                machine.resources,
                machine.gpus,
                group.batch_cores,
                tuple([(s.slo_us, s.memory_mib) for s in group.services]),
                tuple([_running_order(r, self.snapshot.now_s) for r in group.endless]),
                tuple([machine.name in names for names in lists]),
            )
            shapes.append(first.setdefault(key, g))
        return tuple(shapes)

    @cached_property
    def _allowed(self) -> tuple[frozenset[str] | None, ...]:
        """Names of the machines that each class may run on; None for all."""
        return tuple(None if c.task.machines is None else frozenset(c.task.machines) for c in self.classes)

    def allowed(self, task_class: int, machine: int) -> bool:
        """Whether a class's user lets it run on a machine. Groups never mix allowed and forbidden machines."""
        names = self._allowed[task_class]
        return names is None or self.machines[machine].name in names

    def candidates_of(self, task_class: int) -> BoolArray | None:
        """[machines] those that a class is priced on; None for all."""
        if self.candidates is None:
            return None
        kind = kind_of(self.classes[task_class].task)
        found = self._candidates.get(kind)
        if found is None:
            found = self._candidates[kind] = np.zeros(len(self.machines), np.bool_)
            rows = self._index_of[self.candidates.by_kind[kind]]
            found[rows[rows >= 0]] = True
        return found

    @cached_property
    def _index_of(self) -> IntArray:
        """[all machines] index of each in ``machines``, -1 for others: spares are not among them."""
        assert self.candidates is not None, "only of a large cluster"
        number = {m.name: i for i, m in enumerate(self.machines)}
        return np.array([number.get(name, -1) for name in self.candidates.names], np.int64)

    @cached_property
    def completes(self) -> bool:
        """Whether anything in the cluster will end by itself."""
        if self.candidates is not None:
            return self.candidates.completes
        return any(group.completes for group in self.groups)

    def could_fit(self, task_class: int, group: int, width_milli: int) -> bool:
        """Whether a task of a class would fit on a machine of the group with only its services, and the tasks that
        have no end, there.
        """
        key = task_class, width_milli
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = self.large_enough(self.classes[task_class].task, width_milli).tolist()
        return found[group]

    def large_enough(self, task: Task, width_milli: int) -> BoolArray:
        """[groups] where such a task would fit with only the services, and the tasks that have no end, there."""
        key = task.machines, width_milli, task.memory_mib, task.resources, task.gpus
        found = self._large.get(key)
        if found is None:
            cpu, memory = self._beside_lasting
            found = self.allowed_to(task) & (width_milli <= cpu) & (task.memory_mib <= memory) & self.supplied(task)
            self._large[key] = found
        return found

    def allowed_to(self, task: Task) -> BoolArray:
        """[groups] whose machines a task's user lets it run on."""
        if task.machines is None:
            return np.ones(len(self.groups), np.bool_)
        names = frozenset(task.machines)
        return np.array([group.machine.name in names for group in self.groups], np.bool_)

    @cached_property
    def _beside_lasting(self) -> tuple[IntArray, IntArray]:
        """[groups] CPU in thousandths, -1 where there are no cores for tasks, and memory beside services and long-running
        tasks.
        """
        cpu, memory = np.empty(len(self.groups), np.int64), np.empty(len(self.groups), np.int64)
        for g, here in enumerate(self.groups):
            stay = here.endless
            cpu[g] = (
                here.machine.cpu_milli - sum(s.width_milli for s in here.services) - sum(r.width_milli for r in stay)
            )
            memory[g] = here.machine.memory_mib - sum(s.memory_mib for s in here.services)
            memory[g] -= sum(r.task.memory_mib for r in stay)
            if not here.batch_cores:
                cpu[g] = -1
        return cpu, memory

    def supplied(self, task: Task) -> BoolArray:
        """[groups] whose machines ever have the further resources and the GPUs that a task asks for."""
        key = task.resources, task.gpus
        found = self._supplied.get(key)
        if found is None:
            of_shape = {g: _supplies(self.groups[g], task) for g in self.shapes}
            found = self._supplied[key] = np.array([of_shape[g] for g in self.shape_of], np.bool_)
        return found

    def roomy(self, task: Task) -> BoolArray:
        """[groups] whose machines have what a task asks for now, with no other task of this round there."""
        key = task.widths_milli[0], task.memory_mib, task.resources, task.gpus
        found = self._roomy.get(key)
        if found is None:
            found = np.array([g.free_milli >= key[0] and g.free_memory_mib >= key[1] for g in self.groups], np.bool_)
            for g in np.flatnonzero(found).tolist():
                here = self.groups[g]
                found[g] = covers(here.free_resources, task.resources) and (
                    task.gpus is None
                    or (suits(here.machine.gpus, task.gpus) and has_devices(here.devices_left, task.gpus))
                )
            self._roomy[key] = found
        return found


def _supplies(here: MachineGroup, task: Task) -> bool:
    if task.gpus is not None and not _has_gpus(here, task.gpus):
        return False
    if not task.resources:
        return True
    whole = without(dict(here.machine.resources), *(r.task.resources for r in here.endless))
    return covers(whole, task.resources)


def _has_gpus(here: MachineGroup, wanted: TaskGpus) -> bool:
    if not suits(here.machine.gpus, wanted):
        return False
    stay = [(r.task.gpus, r.devices) for r in here.endless]
    return has_devices(left_beside(here.machine.gpus, stay), wanted)


def running_in_order(running: Iterable[Running], now_s: float) -> list[tuple[tuple[object, ...], Running]]:
    """What runs on a machine in the order of a group's residents, each with what it is to the group."""
    found = [(_running_order(r, now_s), r) for r in running]
    found.sort(key=itemgetter(0))
    return found


def compact(
    snapshot: Snapshot, hosts: HostFactory, candidates: Candidates | None = None, longest_first: bool = False
) -> View:
    """The view of a snapshot: of all its machines, or of the candidates only. ``longest_first``: classes of a priority in
    descending order of work, which is the order in which machines bind arrivals of one start.
    """
    whole = snapshot
    if candidates is not None:
        snapshot = part_of(snapshot, candidates.machines)
    tasks = tuple(sorted(snapshot.pending, key=lambda t: (t.content, t.arrival)))
    if longest_first:
        jobs = snapshot.catalogue.jobs
        tasks = tuple(sorted(tasks, key=lambda t: (-t.priority, -jobs[t.profile].work_s * snapshot.expected_scale(t))))
    by_class: dict[Hashable, list[int]] = {}
    for i, task in enumerate(tasks):
        by_class.setdefault(task.content, []).append(i)
    classes = tuple(PendingClass(tasks[rows[0]], tuple(rows)) for rows in by_class.values())

    running, services = by_machine(snapshot.running), by_machine(snapshot.services)
    free = snapshot.free_milli()
    free_memory = snapshot.free_memory_mib()
    free_resources = snapshot.free_resources()
    linked = {m.name for m in snapshot.machines if m.gpus is not None and m.gpus.topology}
    # Where links tell devices apart it matters which of them are left, and who has which.
    devices_left = {
        name: left if name in linked else tuple(sorted(left)) for name, left in snapshot.devices_left().items()
    }
    lists = {names for t in tasks for names in (t.machines, t.spread_over) if names is not None}
    named_lists = [frozenset(names) for names in sorted(lists)]
    wishes = [dict(w) for w in sorted({t.wishes for t in tasks if t.wishes})]
    counted: dict[str, list[tuple[str, int, int]]] = {}
    for count in snapshot.relation_counts:
        counted.setdefault(count.machine, []).append((count.relation, count.members, count.holders))

    # A label that no relation uses, such as a host's name, would leave a large cluster without machines alike.
    keep_labels = len(snapshot.machines) <= LARGE_GROUP
    label_keys = {r.key for r in snapshot.relations}

    keyed = []
    for machine in snapshot.machines:
        in_order = running_in_order(running[machine.name], snapshot.now_s)
        here = tuple([r for _, r in in_order])
        loads = tuple([service_load(s) for s in services[machine.name]])
        key = (
            machine.type,
            machine.cpu_milli,
            machine.memory_mib,
            machine.vcpus,
            machine.labels if keep_labels else tuple([pair for pair in machine.labels if pair[0] in label_keys]),
            tuple([(x.profile, x.cores, x.threads, x.weight, x.qps, x.client) for x in loads]),
            tuple([(s.slo_us, s.memory_mib) for s in services[machine.name]]),
            tuple([order for order, _ in in_order]),
            tuple([machine.name in names for names in named_lists]),
            tuple([costs.get(machine.name, 0.0) for costs in wishes]),
            tuple(sorted(machine.resources)),
            machine.gpus is not None,
            (machine.gpus or _NO_GPUS, devices_left.get(machine.name, ())),
            tuple([r.devices for r in here]) if machine.name in linked else (),
            tuple(sorted(counted.get(machine.name, ()))),
        )
        keyed.append((key, machine.name, machine, here, loads))
    keyed.sort(key=lambda row: row[:2])
    # Equal ones are neighbours now: to compare them is cheaper than to hash all that runs there.
    by_group: list[list[int]] = []
    for i, row in enumerate(keyed):
        if i and row[0] == keyed[i - 1][0]:
            by_group[-1].append(i)
        else:
            by_group.append([i])
    named = {p.machine for p in snapshot.plan} | {r.machine for r in snapshot.reservations}
    each = [(r, keyed[rows[0]][2].type) for rows in by_group for r in keyed[rows[0]][3]]
    estimates = iter(running_estimates(snapshot, [r for r, _ in each], [type_ for _, type_ in each]))
    machines: list[Machine] = []
    groups = []
    for rows in by_group:
        _, name, machine, here, loads = keyed[rows[0]]
        searched = _searched([keyed[i][1] for i in rows], len(tasks), named)
        groups.append(
            MachineGroup(
                machine,
                tuple(range(len(machines), len(machines) + len(searched))),
                hosts.host(machine.type, loads),
                tuple(services[name]),
                here,
                tuple([_resident(r, snapshot, machine, next(estimates)) for r in here]),
                cores_beside(machine, services[name]),
                free[name],
                free_memory[name],
                free_resources[name],
                devices_left.get(name, ()),
                tuple(keyed[i][1] for i in rows if keyed[i][1] not in searched) if len(searched) < len(rows) else (),
            )
        )
        machines += (keyed[i][2] for i in rows if keyed[i][1] in searched)
    return View(whole, tasks, tuple(machines), classes, tuple(groups), candidates)


def part_of(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Some of a snapshot's machines with all that is on them."""
    return replace(
        snapshot,
        machines=tuple([m for m in snapshot.machines if m.name in names]),
        services=tuple([s for s in snapshot.services if s.machine in names]),
        running=running_on(snapshot, names),
        relation_counts=tuple([c for c in snapshot.relation_counts if c.machine in names]),
    )


def _searched(names: list[str], tasks: int, named: set[str]) -> set[str]:
    """The members of a group that the search looks at, its first one among them."""
    if len(names) <= max(LARGE_GROUP, tasks):
        return set(names)
    others = [name for name in names if name not in named]
    return {names[0], *(name for name in names if name in named), *others[: max(1, tasks)]}


def _running_order(r: Running, now_s: float) -> tuple[object, ...]:
    if r.task.endless:
        # When it came and how far it is believed to be tell machines apart that are alike from now on.
        return (r.task.timeless.content, 0.0, max(r.start_s, now_s), r.width_milli, r.threads, r.cores, r.remote)
    return (r.task.content, r.progress, r.start_s, r.width_milli, r.threads, r.cores, r.remote, r.factor)


def _resident(r: Running, snapshot: Snapshot, machine: Machine, estimate: Estimate) -> Resident:
    ready_s = max(0.0, round(r.start_s - snapshot.now_s, 6)) if r.start_s > snapshot.now_s else 0.0
    resident = r.resident.at(estimate.scale, estimate.done, ready_s)
    gpus = use_of(snapshot.catalogue, r.task.profile, machine.gpus, r.task.gpus, r.devices, r.remote)
    if gpus is not NO_GPUS:
        resident = replace(resident, gpus=gpus)
    return long_running_resident(resident, snapshot) if r.task.endless else resident


def long_running_resident(resident: Resident, snapshot: Snapshot) -> Resident:
    """A task without an end as the model sees it: in the longer of its phases, with work that outlasts all others."""
    profile = snapshot.catalogue.jobs[resident.profile]
    serial = profile.serial_fraction
    parallel = profile.phase_order is PhaseOrder.SERIAL_FIRST and serial <= 0.5
    return replace(resident, scale=ENDLESS_WORK_S / profile.work_s, progress=serial if parallel else 0.0)

"""Folds tasks into classes and machines into groups, so that the network grows with what is distinct.

Exact: two tasks share a class only if no cost or constraint can tell them apart; likewise machines. The order of classes
and groups comes from what they are, names last, so that neither a shuffled nor a renamed input changes a decision that its
content determines.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.machine_order import LARGE_GROUP, MachineOrder
from flowsched.cluster.resource import covers, without
from flowsched.cluster.running_rows import RunningColumns
from flowsched.cluster.running_tasks import in_rows, running_on, with_rows
from flowsched.cluster.served_machines import ServedMachines
from flowsched.cluster.snapshot import Machine, Running, Service, Snapshot, Task
from flowsched.cluster.tasks_there import TasksThere, order_of
from flowsched.gpu.devices import TaskGpus, has_devices, left_beside, suits, use_of
from flowsched.support.arrays import BoolArray, IntArray
from flowsched_models.gpu_profile import NO_GPUS
from flowsched_models.profile import JobProfile, PhaseOrder
from flowsched_models.runtime import Host, HostFactory, Resident

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
    there: TasksThere
    """Tasks on the representative member, of any progress; the other members' differ in names only."""
    snapshot: Snapshot = field(repr=False, compare=False)
    batch_cores: tuple[int, ...]
    free_milli: int
    free_memory_mib: int
    devices_left: tuple[int, ...] = ()
    """What is left of each GPU, in thousandths, the fullest first: members differ in the numbers of the devices."""
    spares: tuple[str, ...] = ()
    """Names of further members, which no plan of this round needs."""

    @property
    def size(self) -> int:
        """Number of machines in the group."""
        return len(self.members) + len(self.spares)

    @cached_property
    def running(self) -> tuple[Running, ...]:
        """Tasks on the representative member as they are now."""
        progress = in_rows(self.snapshot).progress_at(np.array(self.there.rows, np.int64)).tolist()
        return tuple([r.at(done) for r, done in zip(self.there.tasks, progress, strict=True)])

    @cached_property
    def residents(self) -> tuple[Resident, ...]:
        """The same tasks as the run-time model sees them, with times relative to now."""
        return tuple([_resident(r, self.snapshot, self.machine) for r in self.running])

    @cached_property
    def free_resources(self) -> Mapping[str, int]:
        """What is left of further resources."""
        return without(dict(self.machine.resources), *self.there.resources)

    @property
    def endless(self) -> tuple[Running, ...]:
        """Long-running tasks on the representative member."""
        return self.there.endless

    @property
    def completes(self) -> bool:
        """Whether anything here will end by itself."""
        return len(self.there.tasks) > len(self.endless)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The machines that a round of a large cluster looks at, and what it knows of all."""

    all_machines: Sequence[Machine]
    row_of: Mapping[str, int]
    """Position of each of them by name."""
    by_kind: Mapping[Hashable, IntArray]
    """Positions in ``all_machines`` of the candidates of each kind of task (:func:`kind_of`)."""
    batch_cores: int
    """Of all machines of the cluster."""
    work_s: float
    """Core-seconds that all running tasks with an end still need."""
    completes: bool
    """Whether any task of the cluster will end by itself."""
    free_milli: int = 0
    """CPU that nothing has, in thousandths of a core."""

    @cached_property
    def rows(self) -> IntArray:
        """Those that are a candidate for any task, ascending."""
        any_ = np.zeros(len(self.all_machines), np.bool_)
        for rows in self.by_kind.values():
            any_[rows] = True
        return np.flatnonzero(any_)

    @cached_property
    def machines(self) -> frozenset[str]:
        """Their names."""
        return frozenset([self.all_machines[row].name for row in self.rows.tolist()])


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
    def first(self) -> IntArray:
        """[groups + 1] the first of each group's running tasks in ``there``."""
        counts = [len(group.there.rows) for group in self.groups]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @cached_property
    def there(self) -> RunningColumns:
        """The numbers of what runs on the groups' machines, group by group."""
        rows = [row for group in self.groups for row in group.there.rows]
        return in_rows(self.snapshot).columns_at(np.array(rows, np.int64))

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
                tuple([order_of(r, r.progress, self.snapshot.now_s) for r in group.endless]),
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
        found: IntArray = np.full(len(self.candidates.all_machines), -1, np.int64)
        found[[self.candidates.row_of[m.name] for m in self.machines]] = np.arange(len(self.machines))
        return found

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

    @cached_property
    def _free(self) -> tuple[IntArray, IntArray]:
        """[groups] CPU in thousandths, and memory, that nothing has."""
        milli, memory_mib = [g.free_milli for g in self.groups], [g.free_memory_mib for g in self.groups]
        return np.array(milli, np.int64), np.array(memory_mib, np.int64)

    def roomy(self, task: Task) -> BoolArray:
        """[groups] whose machines have what a task asks for now, with no other task of this round there."""
        key = task.widths_milli[0], task.memory_mib, task.resources, task.gpus
        found = self._roomy.get(key)
        if found is None:
            milli, memory_mib = self._free
            found = (milli >= key[0]) & (memory_mib >= key[1])
            for g in np.flatnonzero(found).tolist() if task.resources or task.gpus is not None else ():
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


def compact(
    snapshot: Snapshot, hosts: HostFactory, candidates: Candidates | None = None, longest_first: bool = False
) -> View:
    """The view of a snapshot: of all its machines, or of the candidates only. ``longest_first``: classes of a priority in
    descending order of work, which is the order in which machines bind arrivals of one start.
    """
    snapshot = with_rows(snapshot)
    chosen = snapshot.machines
    if candidates is not None:
        chosen = tuple([candidates.all_machines[row] for row in candidates.rows.tolist()])
    tasks = tuple(sorted(snapshot.pending, key=lambda t: (t.content, t.arrival)))
    if longest_first:
        jobs = snapshot.catalogue.jobs
        tasks = tuple(sorted(tasks, key=lambda t: (-t.priority, -jobs[t.profile].work_s * snapshot.expected_scale(t))))
    by_class: dict[Hashable, list[int]] = {}
    for i, task in enumerate(tasks):
        by_class.setdefault(task.content, []).append(i)
    classes = tuple(PendingClass(tasks[rows[0]], tuple(rows)) for rows in by_class.values())

    order = MachineOrder(snapshot, chosen, hosts.attached(ServedMachines), tasks)
    named = {p.machine for p in snapshot.plan} | {r.machine for r in snapshot.reservations}
    machines: list[Machine] = []
    groups = []
    for alike in order.groups():
        served, there = order.served[alike[0]], order.in_order(alike[0])
        machine, names = served.machine, [chosen[i].name for i in alike]
        spares = _spares(names, len(tasks), named)
        members = [chosen[i] for i in alike]
        if spares:
            members = [m for m in members if m.name not in spares]
        groups.append(
            MachineGroup(
                machine,
                tuple(range(len(machines), len(machines) + len(members))),
                hosts.host(machine.type, served.loads),
                served.services,
                there,
                snapshot,
                served.batch_cores,
                served.milli - there.width_milli,
                served.memory_mib - there.memory_mib,
                order.devices_left.get(machine.name, ()),
                tuple([other for other in names if other in spares]) if spares else (),
            )
        )
        machines += members
    return View(snapshot, tasks, tuple(machines), classes, tuple(groups), candidates)


def part_of(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Some of a snapshot's machines with all that is on them."""
    return replace(
        snapshot,
        machines=tuple([m for m in snapshot.machines if m.name in names]),
        services=tuple([s for s in snapshot.services if s.machine in names]),
        running=running_on(snapshot, names),
        relation_counts=tuple([c for c in snapshot.relation_counts if c.machine in names]),
    )


def _spares(names: list[str], tasks: int, named: set[str]) -> set[str]:
    """The members of a group that the search does not look at, its first one not among them."""
    if len(names) <= max(LARGE_GROUP, tasks):
        return set()
    others = [name for name in names[1:] if name not in named]
    return set(others[max(1, tasks) - (names[0] not in named) :])


def ready_s(start_s: float, now_s: float) -> float:
    """Seconds until a task's program runs; in whole microseconds."""
    return max(0.0, round(start_s - now_s, 6)) if start_s > now_s else 0.0


def _resident(r: Running, snapshot: Snapshot, machine: Machine) -> Resident:
    estimate = snapshot.estimate(r.task, r.progress, machine.type, r.factor)
    resident = r.resident.at(estimate.scale, estimate.done, ready_s(r.start_s, snapshot.now_s))
    gpus = use_of(snapshot.catalogue, r.task.profile, machine.gpus, r.task.gpus, r.devices, r.remote)
    if gpus is not NO_GPUS:
        resident = replace(resident, gpus=gpus)
    return long_running_resident(resident, snapshot) if r.task.endless else resident


def long_running_resident(resident: Resident, snapshot: Snapshot) -> Resident:
    """A task without an end as the model sees it."""
    scale, progress = long_running_work(snapshot.catalogue.jobs[resident.profile])
    return replace(resident, scale=scale, progress=progress)


def long_running_work(profile: JobProfile) -> tuple[float, float]:
    """Scale and progress of a task without an end: in the longer of its phases, with work that outlasts all others."""
    serial = profile.serial_fraction
    parallel = profile.phase_order is PhaseOrder.SERIAL_FIRST and serial <= 0.5
    return ENDLESS_WORK_S / profile.work_s, serial if parallel else 0.0

"""An immutable view of the cluster: all that one round may know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.cluster.resource import without
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.start_errors import NO_START_ERRORS, StartErrors
from flowsched.gpu.devices import DevicesNow, MachineGpus, TaskGpus
from flowsched.gpu.shapes import GpuShape
from flowsched.relations.relation import Relation, TaskGroup
from flowsched_models.catalogue import Catalogue
from flowsched_models.core_set import cores_but
from flowsched_models.execution import INSTANT_S
from flowsched_models.profile import JobProfile
from flowsched_models.runtime import Resident
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_models.text_table import counted

SNAPSHOT_VERSION = "flowsched/v1"
MILLI = 1000
MOST_KEPT = 0.95
"""Most of its forecast work that a task which is preempted or moved has done: it has not ended."""
_NO_GPUS = TaskGpus()
"""Stands for none where tasks are compared, beside what says that there is none."""


@dataclass(frozen=True)
class Machine:
    """One machine. ``cpu_milli`` and ``memory_mib`` are what tasks may request in total (allocatable)."""

    name: str
    type: str
    cpu_milli: int
    memory_mib: int
    vcpus: int
    labels: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    """Further allocatable resources, in whole units."""
    gpus: MachineGpus | None = None
    """Its GPUs as devices."""


@dataclass(frozen=True)
class Service:
    """A latency service at its fixed place. Its cores are its own, unless the snapshot lets light tasks share them."""

    name: str
    profile: str
    machine: str
    cores: tuple[int, ...]
    threads: int
    width_milli: int
    memory_mib: int
    qps: float
    slo_us: float
    client: str


@dataclass(frozen=True)
class Task:
    """The unit that is placed on one machine."""

    name: str
    job: str
    """The job that it belongs to; in version 1 a job has one task, or tasks that are placed independently."""
    profile: str
    scale: float
    """Its work relative to the profile's."""
    request_milli: int
    """What its user asked for; 0 for nothing. Policies that do not choose widths use it."""
    widths_milli: tuple[int, ...]
    """Widths it may run at, ascending; a moldable task has several."""
    memory_mib: int
    submit_s: float
    goal_s: float | None = None
    """Completion-time goal in seconds after submission, or None for the policy's default."""
    priority: int = 0
    machines: tuple[str, ...] | None = None
    """Names of the machines it may run on, or None for all."""
    resources: tuple[tuple[str, int], ...] = ()
    """What it asks for of further resources, in whole units."""
    holds: tuple[str, ...] = ()
    """Names of the relations that it demands."""
    joins: tuple[str, ...] = ()
    """Names of the relations that count it."""
    group: str | None = None
    """The task group that it is placed with, all or none."""
    threads: tuple[int, ...] = ()
    """Thread counts that it may start with, ascending; empty for any."""
    min_utility: float | None = None
    """Below this utility it is postponed, unless it is due."""
    endless: bool = False
    """Whether it runs until it is deleted, so that no task waits for its end."""
    weight: float = 1.0
    """Importance within its priority: what its completion costs is multiplied by it (z of equation 11)."""
    spread_over: tuple[str, ...] | None = None
    """Names of the machines that its spreads count and compare, or None for those that it may run on."""
    rounds_waited: int = 0
    """Rounds that have left it waiting so far, if they were counted."""
    preemptions: int = 0
    """How often it was preempted so far."""
    done: float = 0.0
    """Part of its work that was done, and kept, before it was preempted, or moved to where it runs."""
    run_s: float | None = None
    """Its run time in seconds at its best place, if known; else it follows from profile and scale. Read by
    cost models beside ``flow``, as the next three."""
    interference_class: str = ""
    """What kind of neighbour it is, for ``coco``; empty for what its profile makes it."""
    input_mb: float = 0.0
    """Size of its input in MB."""
    locality: tuple[tuple[str, str, float], ...] = ()
    """Where that input is: machine label, value, and the share of it that machines with that label hold, 0 to 1."""
    wishes: tuple[tuple[str, float], ...] = ()
    """Machines that it would rather not have, by name, and what each of them costs more. All cost models read them."""
    counted: tuple[tuple[int, float], ...] = ()
    """Counts of what a round puts on each machine that it is in, by number, each once, with what another one that is there
    costs it. Tasks of one count should not be on one machine; for ``flow``."""
    gpus: TaskGpus | None = None
    """What it asks for of GPUs as devices."""
    gpus_for: str = ""
    """Name of the task whose program uses its GPUs, over the network where that runs on another machine; empty for a task
    that uses its own. Both are of one task group."""
    postponements: int = 0
    """Rounds that let it wait by choice, though it could have started."""
    number: int = 0
    """Its place in the file that it comes from, counted from 1; 0 for none. Of tasks that come in one instant the least is
    first."""
    run_class: str = ""
    """Tasks of one class are expected to run for as long as each other, relative to their forecasts: what is learnt from one
    holds for all. Empty: nothing is learnt."""

    @property
    def arrival(self) -> tuple[float, int, str, str]:
        """Sort key: what came first, then what stands first in its file, then the names."""
        return self.submit_s, self.number, self.job, self.name

    @cached_property
    def content(self) -> tuple[object, ...]:
        """All that tells tasks apart but their names and numbers, comparable with that of any other task."""
        goal = -1.0 if self.goal_s is None else self.goal_s
        return (
            -self.priority,
            self.submit_s,
            self.profile,
            self.scale,
            self.widths_milli,
            self.request_milli,
            self.memory_mib,
            goal,
            self.machines is not None,
            self.machines or (),
            self.spread_over is not None,
            self.spread_over or (),
            self.resources,
            self.holds,
            self.joins,
            self.group or "",
            self.threads,
            self.min_utility is not None,
            self.min_utility or 0.0,
            self.endless,
            self.weight,
            self.done,
            self.wishes,
            self.counted,
            self.gpus is not None,
            self.gpus or _NO_GPUS,
            self.gpus_for,
            *((self.run_class,) if self.run_class else ()),
        )

    @cached_property
    def gpu_shape(self) -> GpuShape:
        """The task as the demand for GPUs sees it, at its narrowest width."""
        gpus = self.gpus
        if gpus is None:
            return GpuShape(self.widths_milli[0], self.memory_mib, 0, 0)
        return GpuShape(self.widths_milli[0], self.memory_mib, gpus.count, gpus.share_milli, gpus.models)

    @cached_property
    def timeless(self) -> Task:
        """The same long-running task, whenever it came and whatever it was asked to reach."""
        return replace(
            self, submit_s=0.0, goal_s=None, machines=None, min_utility=None, group=None, wishes=(), counted=()
        )

    def waiting_for(self, rounds: int) -> Task:
        """The same after so many rounds have left it waiting. Quicker than ``replace``, and its ``content`` stays."""
        return self if rounds == self.rounds_waited else self._with(rounds_waited=rounds)

    def numbered(self, number: int) -> Task:
        """The same with this number. Quicker than ``replace``, too."""
        return self._with(number=number)

    def but(self, **changed: Any) -> Task:
        """The same but for these fields. Quicker than ``replace``, and than making one."""
        other = self._with(**changed)
        for name in ("content", "gpu_shape"):
            other.__dict__.pop(name, None)
        return other

    def _with(self, **changed: Any) -> Task:
        other = object.__new__(Task)
        known = self.__dict__ | changed
        known.pop("timeless", None)
        object.__setattr__(other, "__dict__", known)  # filling the new one's own takes twice as long
        return other

    def threads_on(self, cores: int, profile: JobProfile) -> int:
        """Threads that it starts on so many cores: of its allowed counts the largest that has a core each, else the
        smallest; then what the program accepts.
        """
        return profile.threads_for(cores, self.threads)

    def at_least(self, milli: int) -> Task:
        """The same task if it asks for so much CPU; else with a request, and widths, of so much."""
        if self.request_milli >= milli and self.widths_milli[0] >= milli:
            return self
        widths = tuple(sorted({max(milli, width) for width in self.widths_milli}))
        return replace(self, request_milli=max(milli, self.request_milli), widths_milli=widths)


NO_GOAL = -1.0
"""Stands for the goal of a task without one, in arrays."""


@dataclass(frozen=True)
class Running:
    """A task that is bound."""

    task: Task
    machine: str
    width_milli: int
    threads: int
    cores: tuple[int, ...]
    bound_s: float
    start_s: float
    """When its program starts or started (a container takes a moment); it uses no CPU before."""
    progress: float = 0.0
    """Work done, relative to all its work as it was forecast at its start. Estimated from that and the models, not measured:
    a task that takes longer than forecast goes beyond 1 (:meth:`Snapshot.estimate`)."""
    moved_s: float | None = None
    """When it was last moved here from another machine."""
    devices: tuple[int, ...] = ()
    """Numbers of the machine's GPUs that it has, or has a share of; ascending."""
    remote: bool = False
    """Whether parts of its job, its GPUs or what uses them, are on other machines."""
    factor: float = 1.0
    """All its work as it was forecast at its start, relative to what its profile says: what its class had taught by then."""

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """Width, memory in MiB, scale, goal in seconds (below 0 for none), weight, submission, whether it has no end,
        priority, factor, and start.
        """
        task = self.task
        goal_s = NO_GOAL if task.goal_s is None else task.goal_s
        size = self.width_milli, task.memory_mib, task.scale
        others = goal_s, task.weight, task.submit_s, task.endless, task.priority
        return (*size, *others, self.factor, self.start_s)

    @cached_property
    def resident(self) -> Resident:
        """It as the run-time model sees it before its work begins, without its GPUs."""
        task = self.task
        return Resident(
            task.profile, task.scale, self.threads, self.cores, cpu_weight(self.width_milli), task.memory_mib
        )

    def at(self, progress: float) -> Running:
        """The same with another progress. Quicker than ``replace``: of thousands of tasks each round has its own."""
        _ = self.numbers, self.resident  # so that the other one need not work them out
        other = object.__new__(Running)
        object.__setattr__(other, "__dict__", self.__dict__ | {"progress": progress})
        return other


@runtime_checkable
class KeepsDevices(Protocol):
    """Running tasks that know what they leave of the GPUs of their machines."""

    devices_now: Mapping[str, DevicesNow]

    def belong_to(self, snapshot: Snapshot) -> bool:
        """Whether they are those of a snapshot."""


@dataclass(frozen=True)
class RelationCount:
    """Tasks on a machine that a relation counts and that the snapshot does not list: their room is off the machine."""

    machine: str
    relation: str
    members: int = 0
    """Tasks that join the relation."""
    holders: int = 0
    """Tasks that hold it, where that binds later tasks (``apart``)."""


@dataclass(frozen=True)
class PlannedStart:
    """A task that the last round postponed *for* something: this machine, after this many completions there."""

    task: str
    machine: str
    slot: int
    width_milli: int
    start_s: float | None = None
    """When its program was forecast to start, and"""
    end_s: float | None = None
    """when to end; None where nothing was forecast."""


@dataclass(frozen=True)
class Reservation:
    """A machine that is held for a task: nothing starts there unless it is predicted to end before ``start_s``."""

    task: str
    machine: str
    width_milli: int
    start_s: float
    """When the machine was predicted, as the reservation was made, to have drained enough; infinity where no end is known
    and the machine drains all the same."""
    overdue: bool = True
    """False: its task comes next and has room nowhere. The next round asks anew who does, and where: no snapshot has it."""


@dataclass(frozen=True)
class StartDelay:
    """Seconds from binding to the first instruction."""

    at_submission_s: float = 0.0
    """For a task that is bound in the instant it is submitted."""
    after_waiting_s: float = 0.0
    """For a task that waited: a completion must be noticed and a container made."""


def cpu_weight(width_milli: int) -> float:
    """A task's weight where CPU is scarce, in cores: one that asks for nothing has the least, and never none."""
    return max(width_milli, 1) / MILLI


_There = TypeVar("_There", Running, Service)


def by_machine(there: Iterable[_There]) -> dict[str, list[_There]]:
    """Running tasks or services by their machine, in their order; an empty list for a machine without any."""
    found: defaultdict[str, list[_There]] = defaultdict(list)
    for one in there:
        found[one.machine].append(one)
    return found


def cores_beside(machine: Machine, services: Iterable[Service]) -> tuple[int, ...]:
    """Virtual CPUs of a machine, ascending, that do not belong to these services of it."""
    return cores_but(machine.vcpus, {c for s in services for c in s.cores})


INNER = 0.1, 0.9
"""Quantiles between which four of five runs end."""
LATE = 0.9
"""The quantile of its run time at which a task is taken to be gone where its end makes room beside a latency service."""
GUARDED_ERROR = 0.5
"""Before completions tell how far run times are off, services are guarded as if it were this, which counts as four of them:
what profiles state says nothing of another input."""


class Overrun(NamedTuple):
    """A run that is past its forecast. All are shares of the run time that its profile forecasts."""

    past: float
    """Beyond its forecast so far."""
    left: float
    """What is left of it, the median."""
    least: float
    """The same, of which 10 % of such runs have less."""
    most: float
    """The same, of which 10 % of such runs have more."""


class Estimate(NamedTuple):
    """What is estimated of the work of a task that has begun, given that it has not ended."""

    scale: float
    """All of it, relative to the profile's."""
    done: float
    """The share of it that is done, 0 to 1."""


@dataclass(frozen=True, repr=False)
class Snapshot(ShortRepr):
    """What one round decides on. Order carries no meaning, but that of the services of one machine."""

    now_s: float
    catalogue: Catalogue
    machines: tuple[Machine, ...]
    services: tuple[Service, ...] = ()
    running: Sequence[Running] = ()
    pending: Sequence[Task] = ()
    plan: tuple[PlannedStart, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    start_delay: StartDelay = field(default_factory=StartDelay)
    round: int = 0
    relations: tuple[Relation, ...] = ()
    task_groups: tuple[TaskGroup, ...] = ()
    relation_counts: tuple[RelationCount, ...] = ()
    """Of running tasks that are not in ``running``."""
    share_service_cores: bool = False
    """Whether tasks of little weight may be given services' cores too."""
    gpu_demand: tuple[tuple[GpuShape, int], ...] = ()
    """How many tasks of each shape came so far, or are declared to come, where machines have GPUs: what places are kept
    for. Empty: what runs and waits."""
    run_time_errors: RunTimeErrors | None = None
    """What is known of how long tasks run in truth. None: as long as was forecast, so that no progress is above 1."""
    start_errors: StartErrors = NO_START_ERRORS
    """What is known of how forecasts of starts and ends turned out."""
    learnt_run_times: LearntRunTimes = NOTHING_LEARNT
    """What completions taught of classes of tasks."""

    def overview(self) -> Overview:
        """Machines and tasks in numbers; a row per pending task."""
        words = (
            f"at {self.now_s:g} s: {counted(len(self.machines), 'machine')}, {counted(len(self.services), 'service')},"
            f" {len(self.running)} running, {len(self.pending)} pending"
        )
        rows = ((t.name, t.profile, t.request_milli / MILLI, t.submit_s, t.priority) for t in self.pending)
        return Overview(words, ("pending", "profile", "request", "submit_s", "priority"), rows, len(self.pending))

    @cached_property
    def waits_plain(self) -> bool:
        """Whether all that waits and has an end is plain: its run time is the same at every place."""
        jobs = self.catalogue.jobs
        return all(jobs[t.profile].is_plain for t in self.pending if not t.endless)

    def in_order(self) -> Snapshot:
        """The same in the order in which it is written down, which depends on its content alone: machines and all that names
        them by name, tasks as they came. Services of one machine keep their order.
        """
        return replace(
            self,
            machines=tuple(sorted(self.machines, key=attrgetter("name"))),
            services=tuple(sorted(self.services, key=attrgetter("machine"))),
            running=tuple(sorted(self.running, key=attrgetter("task.arrival"))),
            pending=tuple(sorted(self.pending, key=attrgetter("arrival"))),
            plan=tuple(sorted(self.plan, key=attrgetter("task"))),
            reservations=tuple(sorted(self.reservations, key=attrgetter("task", "machine"))),
            relations=tuple(sorted(self.relations, key=attrgetter("name"))),
            task_groups=tuple(sorted(self.task_groups, key=attrgetter("name"))),
            relation_counts=tuple(sorted(self.relation_counts, key=attrgetter("machine", "relation"))),
            gpu_demand=tuple(sorted(self.gpu_demand)),
        )

    def age_s(self, task: Task) -> float:
        """Seconds since a task was submitted; in whole microseconds, so that they are the same wherever the clock began."""
        return round(self.now_s - task.submit_s, 6)

    def is_new(self, task: Task) -> bool:
        """Whether a task was submitted in this very instant."""
        return self.age_s(task) <= INSTANT_S

    def expected_scale(self, task: Task, machine_type: str | None = None) -> float:
        """A task's work relative to its profile's before it begins, as completions of its class taught: on machines of a
        type, or of one that is not known.
        """
        learnt = None if task.endless else self.learnt_run_times.of(task.run_class, machine_type)
        return task.scale if learnt is None else task.scale * learnt.factor

    def spread(self, task: Task) -> float:
        """Standard deviation of the logarithm of a waiting task's run time around what is expected of it."""
        if task.endless:
            return 0.0
        learnt = self.learnt_run_times.of(task.run_class)
        if learnt is not None:
            return learnt.spread
        errors, stated = self.run_time_errors, self.catalogue.jobs[task.profile].error
        return 0.0 if errors is None else errors.spread(stated)

    def length(self, task: Task, done: float, machine_type: str | None = None, factor: float | None = None) -> float:
        """How many times its forecast a task is estimated to run in all, that has done so much of it and has not ended, and
        runs or is to run on machines of a type. Its forecast is ``factor`` times its profile's; None: as expected now.
        """
        if task.endless:
            return 1.0
        learnt = self.learnt_run_times.of(task.run_class, machine_type)
        if learnt is not None:
            forecast = learnt.factor if factor is None else factor
            return learnt.length(done * forecast) / forecast
        if self.run_time_errors is None or done <= 0.0:
            return 1.0
        return self.run_time_errors.length(done, self.catalogue.jobs[task.profile].error)

    def late_length(self, task: Task, done: float, machine_type: str, factor: float) -> float:
        """The :data:`LATE` quantile of that; where nothing is known of errors, its length."""
        if task.endless:
            return 1.0
        learnt = self.learnt_run_times.of(task.run_class, machine_type)
        if learnt is not None:
            return learnt.late_length(done * factor, LATE) / factor
        if self.run_time_errors is None:
            return 1.0
        error = max(GUARDED_ERROR, self.catalogue.jobs[task.profile].error)
        return self.run_time_errors.late_length(done, error, LATE)

    def past_forecast(self, running: Running, machine_type: str) -> Overrun | None:
        """How far a running task is past what is forecast of it on machines of a type, and how far it goes; None before."""
        task, done = running.task, running.progress * running.factor
        learnt = self.learnt_run_times.of(task.run_class, machine_type)
        forecast = 1.0 if learnt is None else learnt.factor
        if task.endless or done <= forecast:
            return None
        if learnt is not None:
            found = (learnt.length(done), *(learnt.late_length(done, share) for share in INNER))
        elif self.run_time_errors is not None:
            errors, error = self.run_time_errors, self.catalogue.jobs[task.profile].error
            found = (errors.length(done, error), *(errors.late_length(done, error, share) for share in INNER))
        else:
            return None
        return Overrun(done - forecast, *(length - done for length in found))

    def estimate(
        self, task: Task, done: float, machine_type: str | None = None, factor: float | None = None
    ) -> Estimate:
        """The work of a task that has done so much, relative to its forecast work, and has not ended; the rest as above."""
        length = self.length(task, done, machine_type, factor)
        scale = self.expected_scale(task, machine_type) if factor is None else task.scale * factor
        return Estimate(scale * length, done / length)

    def late_estimate(self, running: Running, machine_type: str) -> Estimate:
        """The work of a running task if it ends as late as at the :data:`LATE` quantile."""
        length = self.late_length(running.task, running.progress, machine_type, running.factor)
        return Estimate(running.task.scale * running.factor * length, running.progress / length)

    def service_cores(self, machine: str) -> frozenset[int]:
        """Virtual CPUs of a machine that belong to its services."""
        return frozenset(c for s in self.services if s.machine == machine for c in s.cores)

    def batch_cores(self, machine: Machine) -> tuple[int, ...]:
        """Virtual CPUs of a machine that batch tasks may use, ascending."""
        return cores_beside(machine, (s for s in self.services if s.machine == machine.name))

    def free_milli(self) -> dict[str, int]:
        """Unrequested CPU by machine: allocatable minus the widths of services and running tasks."""
        free = {m.name: m.cpu_milli for m in self.machines}
        for s in self.services:
            free[s.machine] -= s.width_milli
        for r in self.running:
            free[r.machine] -= r.width_milli
        return free

    def free_memory_mib(self) -> dict[str, int]:
        """Unrequested memory by machine."""
        free = {m.name: m.memory_mib for m in self.machines}
        for s in self.services:
            free[s.machine] -= s.memory_mib
        for r in self.running:
            free[r.machine] -= r.task.memory_mib
        return free

    def free_resources(self) -> dict[str, dict[str, int]]:
        """Unrequested units of further resources by machine."""
        free = {m.name: dict(m.resources) for m in self.machines}
        for r in self.running:
            if r.task.resources:
                free[r.machine] = without(free[r.machine], r.task.resources)
        return free

    def devices_left(self) -> dict[str, tuple[int, ...]]:
        """What is left of each GPU, in thousandths, by machine; of those with GPUs."""
        return {name: now.left for name, now in self.devices_now().items()}

    def devices_now(self) -> Mapping[str, DevicesNow]:
        """The GPUs of each machine that has any as they are."""
        if isinstance(self.running, KeepsDevices) and self.running.belong_to(self):
            return self.running.devices_now
        return devices_beside(self.machines, self.running)


def devices_beside(machines: Iterable[Machine], running: Iterable[Running]) -> dict[str, DevicesNow]:
    """The GPUs of each machine that has any as running tasks leave them."""
    found = {m.name: DevicesNow.idle(m.gpus) for m in machines if m.gpus is not None}
    for r in running if found else ():
        if r.task.gpus is not None:
            found[r.machine] = found[r.machine].with_task(r.task.profile, r.task.gpus, r.devices)
    return found

"""Snapshots in YAML or JSON: what one round decides on, written down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.cluster_form import (
    BoundForm,
    GpuDemandForm,
    MachineForm,
    RelationForm,
    Request,
    ServiceForm,
    TaskGroupForm,
    bound_values,
    build_gpu_demand,
    build_machines,
    build_relations,
    build_services,
    check_cores,
    check_models,
    check_room,
    plural,
    read_profiles,
    refer,
    unique,
)
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.snapshot import SNAPSHOT_VERSION, Machine, Running, Service, Snapshot, StartDelay, Task
from flowsched.cluster.snapshot_dump import (
    PLANNED,
    RELATION_COUNT,
    RESERVATION,
    RUNNING,
    TASK,
    TASK_GROUP,
)
from flowsched.cluster.start_errors import FARTHEST, StartErrors, read_error_classes
from flowsched.gpu.devices import WHOLE_MILLI, suits, taken, untouched
from flowsched_models.catalogue import Catalogue
from flowsched_models.document import Document, KeyPath, Problems
from flowsched_models.form import (
    LARGEST,
    Checked,
    CoreSet,
    Count,
    Form,
    MemoryMib,
    MilliCpu,
    Moment,
    Name,
    NotNegative,
    Positive,
    PositiveInt,
    Priority,
    check,
)
from flowsched_models.profiles import CatalogueForm, catalogue_problems
from flowsched_models.quantity import format_cores, format_memory, format_milli

_PLACEHOLDERS: Mapping[str, Any] = {"apiVersion": SNAPSHOT_VERSION, "kind": "Snapshot", "now_s": 0.0}


class LocalityForm(Form):
    """Where a part of a task's input is."""

    label: Name
    value: str
    share: Annotated[float, Field(ge=0, le=1)]


class SnapshotMachineForm(MachineForm):
    """A machine in a snapshot; its virtual CPUs may differ from those of its type."""

    vcpus: PositiveInt | None = None


class CountedForm(Form):
    """A count that a task is in."""

    count: Count
    price: Positive


class _TaskKeys(Form):
    """The keys of a task by itself."""

    name: Name
    job: Name | None = None
    profile: Name
    scale: Positive = 1.0
    request: Request
    widths: Annotated[list[Request], Field(min_length=1)] | None = None
    memory: MemoryMib | None = None
    submit_s: Moment = 0.0
    goal_s: Positive | None = None
    priority: Priority = 0
    weight: Positive = 1.0
    machines: list[Name] | None = None
    endless: bool = False
    spread_over: list[Name] | None = None
    rounds_waited: Count = 0
    preemptions: Count = 0
    done: Annotated[float, Field(ge=0, lt=1)] = 0.0
    run_s: Positive | None = None
    interference_class: Name | None = None
    input_mb: NotNegative = 0.0
    locality: list[LocalityForm] = Field(default_factory=list)
    wishes: dict[str, NotNegative] = Field(default_factory=dict)
    counted: list[CountedForm] = Field(default_factory=list)
    gpus_for: Name | None = None
    postponements: Count = 0
    number: Count = 0
    run_class: Name | None = Field(None, alias="class")


class TaskForm(BoundForm, _TaskKeys):
    """A task in a snapshot."""


class RunningForm(Form):
    """A bound task in a snapshot."""

    task: TaskForm
    machine: Name
    width: Request
    threads: PositiveInt
    cores: CoreSet
    bound_s: Moment
    start_s: Moment
    progress: NotNegative = 0.0
    moved_s: Moment | None = None
    devices: list[Count] = Field(default_factory=list)
    remote: bool = False
    factor: Positive = 1.0


class PlannedForm(Form):
    """A planned start in a snapshot."""

    task: Name
    machine: Name
    slot: Count
    width: MilliCpu
    start_s: Moment | None = None
    end_s: Moment | None = None


class ReservationForm(Form):
    """A machine that is held for a due task."""

    task: Name
    machine: Name
    width: MilliCpu
    start_s: Moment | None
    """None: the machine drains though no end is known there."""


class RelationCountForm(Form):
    """Running tasks that a relation counts and that the snapshot does not list."""

    machine: Name
    relation: Name
    members: Count = 0
    holders: Count = 0


class StartDelayForm(Form):
    """How long a program takes to start."""

    at_submission_s: NotNegative = 0.0
    after_waiting_s: NotNegative = 0.0


MOST_SQUARES = 1e4
"""A square of the logarithm of a run time over its forecast is at most this: no run takes e^100 times as long."""


class RunTimeErrorsForm(Form):
    """How far run times were from their forecasts so far."""

    ends: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    log_squares: NotNegative = 0.0


def _whole(key: object) -> object:
    """A number that is a key, which JSON can only have as text."""
    return int(key) if isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,3}", key) else key


ErrorClass = Annotated[int, BeforeValidator(_whole), Field(ge=-FARTHEST, le=FARTHEST)]
ErrorCounts = dict[ErrorClass, Annotated[int, Field(ge=1, le=LARGEST)]]


class StartErrorsForm(Form):
    """How forecasts of starts and ends turned out so far: how many errors of each class."""

    starts: ErrorCounts = Field(default_factory=dict)
    ends: ErrorCounts = Field(default_factory=dict)
    open_starts: ErrorCounts = Field(default_factory=dict)
    open_ends: ErrorCounts = Field(default_factory=dict)


class ClassRunsForm(Form):
    """The completions of a class on a machine type."""

    run_class: Name = Field(alias="class")
    machine_type: Name
    runs: PositiveInt
    log_sum: Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
    log_squares: NotNegative
    last: Count = 0


class LearntRunTimesForm(Form):
    """What completions taught of classes of tasks."""

    classes: list[ClassRunsForm] = Field(default_factory=list)
    applied: bool = True


class SnapshotForm(Form):
    """A snapshot file."""

    api_version: Literal["flowsched/v1"] = Field(alias="apiVersion")
    kind: Literal["Snapshot"]
    now_s: Moment
    round: Count = 0
    profiles: list[str] | None = None
    catalogue: CatalogueForm | None = None
    machines: list[SnapshotMachineForm]
    services: list[ServiceForm] = Field(default_factory=list)
    running: list[RunningForm] = Field(default_factory=list)
    pending: list[TaskForm] = Field(default_factory=list)
    plan: list[PlannedForm] = Field(default_factory=list)
    reservations: list[ReservationForm] = Field(default_factory=list)
    start_delay: StartDelayForm = Field(default_factory=StartDelayForm)
    relations: list[RelationForm] = Field(default_factory=list)
    task_groups: list[TaskGroupForm] = Field(default_factory=list)
    relation_counts: list[RelationCountForm] = Field(default_factory=list)
    share_service_cores: bool = False
    gpu_demand: list[GpuDemandForm] = Field(default_factory=list)
    run_time_errors: RunTimeErrorsForm | None = None
    start_errors: StartErrorsForm = Field(default_factory=StartErrorsForm)
    learnt_run_times: LearntRunTimesForm = Field(default_factory=LearntRunTimesForm)


def read_snapshot(document: Document) -> Snapshot:
    """Read a snapshot from a document, or from plain data in one."""
    problems = Problems()
    checked = check(document, SnapshotForm, placeholders=_PLACEHOLDERS)
    problems.extend(checked.problems)
    snapshot = None
    if checked.value is not None and {"profiles", "catalogue"}.isdisjoint(checked.broken):
        catalogue = _catalogue(problems, document, checked.value)
        if catalogue is not None:
            snapshot = _build(problems, document, checked, checked.value, catalogue)
    problems.raise_any()
    assert snapshot is not None, "a snapshot without problems was read"
    return snapshot


def _catalogue(problems: Problems, document: Document, form: SnapshotForm) -> Catalogue | None:
    if form.catalogue is None:
        return read_profiles(problems, document, form.profiles or ())
    if form.profiles is not None:
        problems.add(document.problem(("profiles",), "a snapshot with a catalogue of its own names no profiles"))
    # It may hold a selection of profiles, whose speeds name machine types that it left out.
    problems.extend(catalogue_problems(document, form.catalogue, ("catalogue",), None, sources_required=False))
    return form.catalogue.catalogue(document.source)


def _build(
    problems: Problems,
    document: Document,
    checked: Checked[SnapshotForm],
    form: SnapshotForm,
    catalogue: Catalogue,
) -> Snapshot:
    named_machines = list(checked.items("machines", form.machines))
    named_services = list(checked.items("services", form.services))
    named_running = list(checked.items("running", form.running))
    named_pending = list(checked.items("pending", form.pending))
    errors = _run_time_errors(problems, document, form.run_time_errors)
    unique(problems, document, (((*p, "name"), f.name) for p, f in named_machines))
    unique(problems, document, (((*p, "name"), f.name) for p, f in named_services))
    all_tasks = [((*p, "task"), f.task) for p, f in named_running] + named_pending
    unique(problems, document, (((*p, "name"), f.name) for p, f in all_tasks))

    names = document.names("machines")
    machines = build_machines(problems, document, named_machines, catalogue)
    by_name = {m.name: m for m in machines}
    services = build_services(problems, document, named_services, by_name, names, catalogue)
    check_room(problems, document, {f.name: p for p, f in named_services}, services, by_name)

    named_relations = list(checked.items("relations", form.relations))
    named_groups = list(checked.items("task_groups", form.task_groups))
    unique(problems, document, (((*p, "name"), f.name) for p, f in named_relations))
    unique(problems, document, (((*p, "name"), f.name) for p, f in named_groups))
    relations = build_relations(problems, document, named_relations)
    names_to_hold = (document.names("relations"), document.names("task_groups"))
    bound_by = {p: bound_values(problems, document, p, f, *names_to_hold) for p, f in all_tasks}
    tasks = {p: _task(problems, document, p, f, catalogue, names, bound_by[p]) for p, f in all_tasks}
    check_models(problems, document, ((p, t.gpus) for p, t in tasks.items() if t is not None), machines)
    task_names = [f.name for _, f in all_tasks]
    for path, task_form in all_tasks:
        if task_form.gpus_for is not None:
            refer(problems, document, (*path, "gpus_for"), "task", task_form.gpus_for, task_names)
    running: list[Running] = []
    places: list[KeyPath] = []
    for path, bound in named_running:
        task = tasks[(*path, "task")]
        known = refer(problems, document, (*path, "machine"), "machine", bound.machine, names)
        if errors is None and bound.progress > 1.0:
            message = f"must be at most 1, but is {bound.progress:g}"
            help = "a task runs longer than forecast only where run_time_errors says how far forecasts may be wrong"
            problems.add(document.problem((*path, "progress"), message, help))
            continue
        if known and task is not None and bound.machine in by_name:
            running.append(RUNNING.of(bound, task=task, devices=tuple(sorted(bound.devices))))
            places.append(path)
    closed = () if form.share_service_cores else services
    _check_running(problems, document, list(zip(places, running, strict=True)), services, closed, by_name)
    pending_names = document.names("pending")
    for path, planned in checked.items("plan", form.plan):
        refer(problems, document, (*path, "task"), "pending task", planned.task, pending_names)
        refer(problems, document, (*path, "machine"), "machine", planned.machine, names)
    widths = {t.name: t.widths_milli for t in tasks.values() if t is not None}
    for path, planned in checked.items("plan", form.plan):
        if planned.task in widths and planned.width not in widths[planned.task]:
            offered = ", ".join(format_milli(w) for w in widths[planned.task])
            message = f"{planned.task} does not run at {format_milli(planned.width)} cores"
            problems.add(document.problem((*path, "width"), message, f"its widths: {offered}"))
    if "now_s" not in checked.broken:
        _check_moments(problems, document, form, tasks, named_running)
    for path, held in checked.items("reservations", form.reservations):
        refer(problems, document, (*path, "task"), "pending task", held.task, pending_names)
        refer(problems, document, (*path, "machine"), "machine", held.machine, names)
    for path, counted in checked.items("relation_counts", form.relation_counts):
        refer(problems, document, (*path, "machine"), "machine", counted.machine, names)
        refer(problems, document, (*path, "relation"), "relation", counted.relation, names_to_hold[0])
    return Snapshot(
        now_s=form.now_s,
        catalogue=catalogue,
        machines=tuple(machines),
        services=tuple(services),
        running=tuple(running),
        pending=tuple(t for p, _ in named_pending if (t := tasks[p]) is not None),
        plan=tuple(map(PLANNED.of, form.plan)),
        reservations=tuple(
            RESERVATION.of(r, start_s=inf if r.start_s is None else r.start_s) for r in form.reservations
        ),
        start_delay=StartDelay(**form.start_delay.model_dump()),
        round=form.round,
        relations=relations,
        task_groups=tuple(TASK_GROUP.of(g) for _, g in named_groups),
        relation_counts=tuple(map(RELATION_COUNT.of, form.relation_counts)),
        share_service_cores=form.share_service_cores,
        gpu_demand=build_gpu_demand(problems, document, checked.items("gpu_demand", form.gpu_demand), machines),
        run_time_errors=errors,
        start_errors=StartErrors(*map(read_error_classes, form.start_errors.model_dump().values())),
        learnt_run_times=_learnt(problems, document, form.learnt_run_times),
    )


def _run_time_errors(problems: Problems, document: Document, form: RunTimeErrorsForm | None) -> RunTimeErrors | None:
    """None where a snapshot does not say how far run times were off."""
    if form is None:
        return None
    if form.log_squares > MOST_SQUARES * form.ends:
        message = f"{form.log_squares:g} is more than {plural(form.ends, 'completion')} can bring"
        help = "it is the sum of squared logarithms of run times over forecasts"
        problems.add(document.problem(("run_time_errors", "log_squares"), message, help))
    return RunTimeErrors.of(form.ends, form.log_squares)


def _learnt(problems: Problems, document: Document, form: LearntRunTimesForm) -> LearntRunTimes:
    """What was learnt, in the order of its classes, each on a machine type once."""
    entries: dict[tuple[str, str], ClassRuns] = {}
    for index, entry in enumerate(form.classes):
        key = entry.run_class, entry.machine_type
        if key in entries:
            message = f"class {entry.run_class} on {entry.machine_type} stands twice"
            problems.add(document.problem(("learnt_run_times", "classes", index), message, "leave one of them out"))
        entries[key] = ClassRuns.of(*key, entry.runs, entry.log_sum, entry.log_squares, entry.last)
    return LearntRunTimes(tuple(entries[key] for key in sorted(entries)), form.applied)


def _check_moments(
    problems: Problems,
    document: Document,
    form: SnapshotForm,
    tasks: Mapping[KeyPath, Task | None],
    named_running: Sequence[tuple[KeyPath, RunningForm]],
) -> None:
    """What has happened is not ahead of the snapshot; a program may start later, as far as the start delay says."""
    now = f"now_s is {form.now_s:g}"
    for path, task in tasks.items():
        if task is not None and task.submit_s > form.now_s:
            message = f"{task.name} was submitted at {task.submit_s:g} s, after now_s"
            problems.add(document.problem((*path, "submit_s"), message, now))
    delay_s = max(form.start_delay.at_submission_s, form.start_delay.after_waiting_s)
    for path, bound in named_running:
        if bound.bound_s > form.now_s:
            message = f"{bound.task.name} was bound at {bound.bound_s:g} s, after now_s"
            problems.add(document.problem((*path, "bound_s"), message, now))
        elif bound.moved_s is None and bound.start_s > max(form.now_s, bound.bound_s + delay_s):
            message = f"{bound.task.name} starts at {bound.start_s:g} s, after now_s"
            help = f"{now}; after it a task starts at most start_delay ({delay_s:g} s) after its bound_s"
            problems.add(document.problem((*path, "start_s"), message, help))


def _task(
    problems: Problems,
    document: Document,
    path: KeyPath,
    form: TaskForm,
    catalogue: Catalogue,
    machine_names: Iterable[str],
    bound: Mapping[str, Any],
) -> Task | None:
    names = list(machine_names)
    for key, listed in (("machines", form.machines), ("spread_over", form.spread_over)):
        for index, name in enumerate(listed or ()):
            refer(problems, document, (*path, key, index), "machine", name, names)
    for name in form.wishes:
        refer(problems, document, (*path, "wishes", name), "machine", name, names)
    widths = form.widths or [form.request]
    if len(set(widths)) < len(widths):
        problems.add(document.problem((*path, "widths"), "names a width twice"))
    counted = {each.count: each.price for each in form.counted}
    if len(counted) < len(form.counted):
        problems.add(document.problem((*path, "counted"), "names a count twice"))
    if not refer(problems, document, (*path, "profile"), "job profile", form.profile, catalogue.jobs):
        return None
    return TASK.of(
        form,
        job=form.job or form.name,
        widths_milli=tuple(sorted(set(widths))),
        memory_mib=form.memory if form.memory is not None else catalogue.jobs[form.profile].memory_mib,
        interference_class=form.interference_class or "",
        locality=tuple((place.label, place.value, place.share) for place in form.locality),
        wishes=tuple(sorted((name, cost) for name, cost in form.wishes.items() if cost)),
        counted=tuple(sorted(counted.items())),
        gpus_for=form.gpus_for or "",
        run_class=form.run_class or "",
        **bound,
    )


def _check_running(
    problems: Problems,
    document: Document,
    running: Iterable[tuple[KeyPath, Running]],
    services: Iterable[Service],
    closed: Iterable[Service],
    machines: Mapping[str, Machine],
) -> None:
    """No task uses cores that do not exist or belong to a ``closed`` service, and nothing is overcommitted."""
    cpu = {m.name: m.cpu_milli for m in machines.values()}
    memory = {m.name: m.memory_mib for m in machines.values()}
    further = {m.name: dict(m.resources) for m in machines.values()}
    devices = {m.name: untouched(m.gpus) for m in machines.values()}
    owner: dict[tuple[str, int], str] = {}
    for service in services:
        cpu[service.machine] -= service.width_milli
        memory[service.machine] -= service.memory_mib
    for service in closed:
        owner |= {(service.machine, core): service.name for core in service.cores}
    for path, bound in running:
        name = bound.machine
        check_cores(problems, document, (*path, "cores"), bound.cores, machines[name])
        taken = [c for c in bound.cores if (name, c) in owner]
        if taken:
            message = f"core {format_cores(taken)} of {name} belongs to {owner[name, taken[0]]}"
            help = "share_service_cores: true lets tasks use it"
            problems.add(document.problem((*path, "cores"), message, help))
        # Only the task that goes beyond is named, not every task after it.
        if cpu[name] >= 0:
            cpu[name] -= bound.width_milli
            if cpu[name] < 0:
                message = f"requests on {name} exceed its {format_milli(machines[name].cpu_milli)} cores"
                problems.add(document.problem((*path, "width"), f"{message} by {format_milli(-cpu[name])}"))
        if memory[name] >= 0:
            memory[name] -= bound.task.memory_mib
            if memory[name] < 0:
                message = f"requests on {name} exceed its {format_memory(machines[name].memory_mib)}"
                message += f" by {format_memory(-memory[name])}"
                problems.add(document.problem((*path, "task", "memory"), message))
        for resource, units in bound.task.resources:
            has = dict(machines[name].resources).get(resource, 0)
            before = further[name].get(resource, 0)
            further[name][resource] = before - units
            if before >= 0 and before < units:
                message = f"requests on {name} exceed its {has} {resource} by {units - before}"
                problems.add(document.problem((*path, "task", "resources", resource), message))
        devices[name] = _check_devices(problems, document, path, bound, machines[name], devices[name])


def _check_devices(
    problems: Problems, document: Document, path: KeyPath, bound: Running, machine: Machine, left: tuple[int, ...]
) -> tuple[int, ...]:
    """What is left of a machine's GPUs beside a running task too; whatever it cannot have is reported."""
    wanted, name = bound.task.gpus, bound.task.name
    if wanted is None:
        if bound.devices:
            message = f"{name} has devices of {machine.name} and asks for no GPUs"
            problems.add(document.problem((*path, "devices"), message, "say in its task which gpus it asks for"))
        return left
    if not suits(machine.gpus, wanted):
        has = "no GPUs" if machine.gpus is None else f"{machine.gpus.count} of model {machine.gpus.model}"
        message = f"{name} asks for {wanted}; {machine.name}, where it runs, has {has}"
        problems.add(document.problem((*path, "task", "gpus"), message))
        return left
    if len(set(bound.devices)) != wanted.count:
        message = f"{name} asks for {wanted} and has {plural(len(set(bound.devices)), 'device')}"
        help = f"say which of the devices 0 to {len(left) - 1} of {machine.name} it has, as devices: [0]"
        problems.add(document.problem((*path, "devices"), message, help))
        return left
    if max(bound.devices) >= len(left):
        message = f"there is no device {max(bound.devices)} on {machine.name}, which has 0 to {len(left) - 1}"
        problems.add(document.problem((*path, "devices"), message))
        return left
    rest = taken(left, wanted, bound.devices)
    over = [d for d in bound.devices if rest[d] < 0]
    if over:
        message = (
            f"tasks on {machine.name} have {format_milli(WHOLE_MILLI - rest[over[0]])} of device {over[0]} together"
        )
        problems.add(document.problem((*path, "devices"), message))
        return left
    return rest

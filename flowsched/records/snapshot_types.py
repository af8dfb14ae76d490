"""What a snapshot in a record looks like: types of plain data, as :mod:`flowsched.records.record_types` has them."""

from __future__ import annotations

from typing import Any, NotRequired

# Pydantic takes typing's own from Python 3.12 on; typing_extensions comes with it.
from typing_extensions import TypedDict

from flowsched.records.value_types import (
    Count,
    Flag,
    Number,
    Positive,
    Quantity,
    Rounds,
    Text,
    Texts,
    Threads,
    Whole,
    Wholes,
)


class RecordedPlace(TypedDict):
    """A task on a machine."""

    task: Text
    machine: Text


class RecordedHeldMachine(RecordedPlace):
    """A machine that is held for a task; of a machine that drains the end may not be known."""

    start_s: Number | None


class RecordedTaskGpus(TypedDict):
    """GPUs that a task asks for."""

    count: NotRequired[Count]
    share: NotRequired[Quantity]
    models: NotRequired[Texts]


class RecordedLocality(TypedDict):
    """Where a part of a task's input is."""

    label: Text
    value: Text
    share: Number


class RecordedCounted(TypedDict):
    """A count of what a round puts on each machine that a task is in, and what another one there costs it."""

    count: Count
    price: Number


_MaybeOfClass = TypedDict("_MaybeOfClass", {"class": NotRequired[Text]})


class RecordedTask(_MaybeOfClass):
    """A task of a snapshot."""

    name: Text
    job: Text
    profile: Text
    scale: Number
    request: Quantity
    widths: list[Quantity]
    memory: Quantity
    submit_s: Number
    priority: Whole
    goal_s: NotRequired[Number | None]
    machines: NotRequired[Texts | None]
    spread_over: NotRequired[Texts | None]
    resources: NotRequired[dict[str, Whole]]
    holds: NotRequired[Texts]
    joins: NotRequired[Texts]
    group: NotRequired[Text | None]
    threads: NotRequired[Wholes]
    min_utility: NotRequired[Number | None]
    endless: NotRequired[Flag]
    weight: NotRequired[Number]
    rounds_waited: NotRequired[Count]
    preemptions: NotRequired[Count]
    done: NotRequired[Number]
    run_s: NotRequired[Number | None]
    interference_class: NotRequired[Text]
    input_mb: NotRequired[Number]
    locality: NotRequired[list[RecordedLocality]]
    wishes: NotRequired[dict[str, Number]]
    counted: NotRequired[list[RecordedCounted]]
    gpus: NotRequired[RecordedTaskGpus]
    gpus_for: NotRequired[Text]
    postponements: NotRequired[Count]
    number: NotRequired[Count]


class RecordedMachineGpus(TypedDict):
    """GPUs of a machine."""

    model: Text
    count: Threads
    memory: NotRequired[Quantity]
    topology: NotRequired[Text]


class RecordedMachine(TypedDict):
    """A machine of a snapshot."""

    name: Text
    type: Text
    cpu: Quantity
    memory: Quantity
    vcpus: Threads
    labels: dict[str, Text]
    resources: NotRequired[dict[str, Whole]]
    gpus: NotRequired[RecordedMachineGpus]


class RecordedService(TypedDict):
    """A latency service of a snapshot."""

    name: Text
    profile: Text
    machine: Text
    cores: Text
    threads: Threads
    request: Quantity
    memory: Quantity
    qps: Number
    slo_p95: Quantity
    client: Text


class RecordedRunning(TypedDict):
    """A task that is bound."""

    task: RecordedTask
    machine: Text
    width: Quantity
    threads: Threads
    cores: Text
    bound_s: Number
    start_s: Number
    progress: Number
    moved_s: NotRequired[Number | None]
    devices: NotRequired[Wholes]
    remote: NotRequired[Flag]
    factor: NotRequired[Positive]


class RecordedPlannedStart(RecordedPlace):
    """What the last round postponed a task for."""

    slot: Rounds
    width: Quantity
    start_s: NotRequired[Number]
    end_s: NotRequired[Number]


class RecordedSnapshotReservation(RecordedHeldMachine):
    """A machine that is held for an overdue task."""

    width: Quantity


class RecordedStartDelay(TypedDict):
    """What passes before a task's program runs."""

    at_submission_s: Number
    after_waiting_s: Number


class RecordedSnapshotRelation(TypedDict):
    """A relation between tasks."""

    name: Text
    kind: Text
    key: NotRequired[Text]
    most: NotRequired[Whole]
    skew: NotRequired[Whole]
    min_domains: NotRequired[Whole]


class RecordedGroupMinimum(TypedDict):
    """A gang by its name, and how many of it start at least."""

    name: Text
    minimum: Whole


class RecordedTaskGroup(RecordedGroupMinimum):
    """A gang."""

    deadline_s: NotRequired[Number | None]


class RecordedRelationCount(TypedDict):
    """Running tasks that are not listed and that a relation counts."""

    machine: Text
    relation: Text
    members: NotRequired[Count]
    holders: NotRequired[Count]


class RecordedGpuDemand(TypedDict):
    """A shape of tasks that came, and how many of it."""

    request: Quantity
    memory: Quantity
    count: Count
    gpus: NotRequired[RecordedTaskGpus]


class RecordedRunTimeErrors(TypedDict):
    """How far run times were from their forecasts before the round."""

    ends: Whole
    log_squares: Number


class RecordedStartErrors(TypedDict):
    """How forecasts of starts and ends turned out before the round: how many errors of each class."""

    starts: NotRequired[dict[str, Count]]
    ends: NotRequired[dict[str, Count]]
    open_starts: NotRequired[dict[str, Count]]
    open_ends: NotRequired[dict[str, Count]]


_OfRunClass = TypedDict("_OfRunClass", {"class": Text})


class RecordedClassRuns(_OfRunClass):
    """The completions of a class on a machine type before the round."""

    machine_type: Text
    runs: Count
    log_sum: Number
    log_squares: Number
    last: Count


class RecordedLearntRunTimes(TypedDict):
    """What completions taught of classes of tasks before the round."""

    classes: list[RecordedClassRuns]
    applied: NotRequired[Flag]


class RecordedSnapshot(TypedDict):
    """The snapshot that a part decided on, with the profiles that it uses."""

    now_s: Number
    round: Whole
    catalogue: dict[str, Any]
    machines: list[RecordedMachine]
    services: list[RecordedService]
    running: list[RecordedRunning]
    pending: list[RecordedTask]
    plan: list[RecordedPlannedStart]
    reservations: list[RecordedSnapshotReservation]
    start_delay: RecordedStartDelay
    relations: NotRequired[list[RecordedSnapshotRelation]]
    task_groups: NotRequired[list[RecordedTaskGroup]]
    relation_counts: NotRequired[list[RecordedRelationCount]]
    share_service_cores: NotRequired[Flag]
    gpu_demand: NotRequired[list[RecordedGpuDemand]]
    run_time_errors: NotRequired[RecordedRunTimeErrors]
    start_errors: NotRequired[RecordedStartErrors]
    learnt_run_times: NotRequired[RecordedLearntRunTimes]

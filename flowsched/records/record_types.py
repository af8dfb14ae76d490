"""What a record looks like: types of plain data that pydantic checks, that give the JSON Schema, and that readers see.

Keys that are not named here may hold anything: a later version may have more of them. docs/records.md says what each is.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field

# Pydantic takes typing's own from Python 3.12 on; typing_extensions comes with it.
from typing_extensions import TypedDict

from flowsched.records.value_types import (
    Count,
    Flag,
    Flags,
    Number,
    Numbers,
    OpenNumbers,
    OpenRows,
    Positive,
    Quantity,
    Rounds,
    Setting,
    Text,
    Texts,
    Threads,
    Whole,
    WholeRows,
    Wholes,
)

NETWORK_STAGE = "network"
Stage = Literal[
    "network", "greedy", "list_scheduling", "carried", "move", "swap", "gang", "repair", "never_idle", "preemption"
]
"""What may have decided where a task is planned; :class:`flowsched.round.origin.PlanStage` says what each is."""


class RecordedPlace(TypedDict):
    """A task on a machine."""

    task: Text
    machine: Text


class RecordedHeldMachine(RecordedPlace):
    """A machine that is held for a task; of a machine that drains the end may not be known."""

    start_s: Number | None


# Snapshot


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


class _TaskGroup(TypedDict):
    name: Text
    minimum: Whole


class RecordedTaskGroup(_TaskGroup):
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


# Both kinds of parts


class RecordedNetwork(TypedDict):
    """A min-cost flow network with its flow; entries of ``tails`` and what follows are by arc."""

    nodes: Texts
    supplies: Wholes
    tails: Wholes
    heads: Wholes
    capacities: Wholes
    unit_costs: Wholes
    units: Wholes
    flow: Wholes
    terms: dict[str, Numbers]
    cost_scale: Positive
    columns: NotRequired[dict[str, Wholes]]


class RecordedCertificate(TypedDict):
    """How far from optimal a plan can be."""

    method: Text
    primal: Number
    bound: Number
    unconstrained: Number
    gap_absolute: Number
    gap_relative: Number
    machines: NotRequired[Whole | None]
    prices: NotRequired[dict[str, Number]]


class RecordedTakenBack(RecordedPlace):
    """A task that was placed, and whose place went to a higher priority."""

    room_for: Text


class RecordedPreemption(RecordedTakenBack):
    """A running task that waits again."""

    cost: Number
    keeps_work: Flag


class _Start(RecordedPlace):
    """What a task gets on a machine."""

    width_milli: Whole
    threads: Threads
    cores: Wholes
    devices: NotRequired[Wholes]


class RecordedMove(_Start):
    """A running task that goes on elsewhere."""

    source: Text
    pause_s: Number
    gain: Number
    price: Number
    keeps_work: Flag


class RecordedChanges(TypedDict):
    """What a round changed of what ran before it."""

    preemptions: NotRequired[list[RecordedPreemption]]
    taken_back: NotRequired[list[RecordedTakenBack]]
    moves: NotRequired[list[RecordedMove]]
    let_in: NotRequired[list[RecordedPlacement]]


class _Part(TypedDict):
    """What both kinds of parts have."""

    counts: dict[str, Number]
    certificate: RecordedCertificate | None
    first_network: RecordedNetwork
    priority: NotRequired[Whole | None]
    timings: NotRequired[dict[str, Number]]


# Parts that passes of min-cost flow decided


class RecordedClass(TypedDict):
    """Pending tasks that the network cannot tell apart."""

    task: Text
    members: Texts


class RecordedMachineGroup(TypedDict):
    """Machines that the network cannot tell apart."""

    machine: Text
    members: Texts
    free_milli: NotRequired[Whole]
    free_memory_mib: NotRequired[Whole]


class RecordedUndone(TypedDict):
    """A task that a pass placed and that is elsewhere, or waits, in the end."""

    task: Text
    by: Stage | None
    """What changed it; null where the plan that it was part of was not taken over for it."""


class RecordedPass(TypedDict):
    """One pass of min-cost flow."""

    number: Count
    batch: Texts
    booked: Texts
    arcs: Count
    drawn: Flag
    goal_s: NotRequired[Number | None]
    network: NotRequired[RecordedNetwork]
    """Of the one that is drawn it is the part's first network."""
    undone: list[RecordedUndone]


_PassNumber = TypedDict("_PassNumber", {"pass": NotRequired[Count]})


class RecordedDecision(RecordedPlace, _PassNumber):
    """What gave a task its place; where a pass did, which one and at what price."""

    stage: Stage
    price: NotRequired[Number]
    runner_up: NotRequired[Number | None]
    early: NotRequired[Flag]
    """It starts before its turn: nothing will complete on its machine to wait for."""


class RecordedPlan(TypedDict):
    """An option, or three times null for the unscheduled node."""

    machine: Text | None
    slot: Rounds | None
    width_milli: Whole | None


class RecordedTaskPlan(RecordedPlan):
    """The option that a task was planned for."""

    task: Text
    shared: NotRequired[Flag | None]


class RecordedPlacement(_Start):
    """A task that is bound now."""

    cost: Number
    terms: dict[str, Number]


class RecordedPostponement(TypedDict):
    """A task that waits."""

    task: Text
    reason: Text
    waited_s: Number
    cost: Number | None
    terms: dict[str, Number]
    planned: RecordedPlan | None


class RecordedReservation(RecordedHeldMachine):
    """A machine that is held for a task, and how much of it."""

    width_milli: Whole
    overdue: NotRequired[Flag]
    """False for a task that comes next and has room nowhere."""


class RecordedGangOutcome(_TaskGroup):
    """What a round decided about a gang that did not run yet."""

    running: Whole
    members: Texts
    starts: Flag


class RecordedRepair(TypedDict):
    """A task that could not start where the plan had it."""

    task: Text
    machine: Text | None
    relation: Text | None
    moved_to: Text | None


class SearchPart(_Part, RecordedChanges):
    """Decided by passes of min-cost flow and bounded improvement."""

    kind: Literal["search"]
    snapshot: RecordedSnapshot
    classes: list[RecordedClass]
    groups: list[RecordedMachineGroup]
    plan: list[RecordedTaskPlan]
    placements: list[RecordedPlacement]
    postponements: list[RecordedPostponement]
    passes: NotRequired[list[RecordedPass]]
    decided_by: NotRequired[list[RecordedDecision]]
    goal_s: NotRequired[Number | None]
    machine_costs: NotRequired[dict[str, Number]]
    reservations: NotRequired[list[RecordedReservation]]
    task_groups: NotRequired[list[RecordedGangOutcome]]
    repairs: NotRequired[list[RecordedRepair]]
    needs: NotRequired[dict[str, dict[str, Whole]]]


# Parts that one network of classes and groups of machines decided


class RecordedFeature(TypedDict):
    """What costs depend on."""

    name: Text
    bucket: Number
    term: Text
    of_round: NotRequired[bool]


class RecordedMachineKind(TypedDict):
    """Machines that a policy cannot tell apart but for their features."""

    type: Text
    labels: dict[str, Text]
    bandwidth: Number
    cores: Number
    factors: Numbers
    held_like: NotRequired[Whole]


class RecordedFleet(TypedDict):
    """Machines, and by machine what they have."""

    machines: Texts
    resources: Texts
    allocatable: WholeRows
    free: WholeRows
    kind: Wholes
    readings: WholeRows
    limits: OpenRows


class RecordedPlaces(TypedDict):
    """Masks and wishes of classes, by machine."""

    allowed: Flags | None
    eligible: Flags | None
    slowness: OpenNumbers | None
    preference: OpenNumbers | None


class RecordedRelation(TypedDict):
    """A relation as the part began."""

    name: Text
    kind: Text
    key: Text
    most: Whole
    skew: Whole
    min_domains: Whole
    domain: Wholes
    members: Wholes
    holders: Wholes


class RecordedTaskClass(TypedDict):
    """All that makes tasks one class."""

    name: Text
    width_milli: Count
    needs: list[list[Any]]
    sensitivity: Number
    pressure: Number
    run_s: Number | None
    priority: Whole
    selector: list[list[Any]]
    slowness: list[list[Any]]
    interference_class: Text
    group: Text
    max_cost: Number | None
    places: Count
    counted: NotRequired[list[list[Any]]]


_OfClass = TypedDict("_OfClass", {"class": RecordedTaskClass})


class RecordedDemand(_OfClass):
    """A class with its tasks and costs."""

    name: Text
    number: Count
    tasks: Texts
    created_s: Numbers
    leaving: Numbers
    needs: dict[str, Whole]
    amounts: Wholes
    base: OpenNumbers
    coefficients: Numbers
    effects: Wholes
    waiting: Number | None
    growth: Number
    group: Text | None
    holds: Texts
    joins: Texts
    reason: NotRequired[Text]


class RecordedKindGroup(TypedDict):
    """What makes a group of machines."""

    kind: Count
    buckets: Wholes
    signature: Count


class RecordedPlacements(TypedDict):
    """Columns of tasks that start."""

    task: Texts
    machine: Wholes
    cost: Numbers
    believed: Numbers
    terms: dict[str, Numbers]
    runner_up: Wholes
    runner_up_cost: OpenNumbers


class RecordedLeft(TypedDict):
    """Tasks that wait for one cause."""

    tasks: Texts
    cause: Text
    text: Text
    costs: Numbers


class RecordedDual(TypedDict):
    """What the bound of a network part is made of."""

    tier: Wholes
    units: Numbers
    unit_milli: Count
    largest: WholeRows
    alpha: Numbers
    crowding: Numbers
    tangent: Numbers
    constant: Numbers
    may_take: Flags


class RecordedScaleSettings(TypedDict):
    """Settings of rounds at cluster scale; their reader checks the others."""

    resolves: Rounds
    scoring: NotRequired[Text]


class RecordedGiven(TypedDict):
    """All that solving a bulk part again takes beside."""

    settings: RecordedScaleSettings
    task_groups: list[RecordedTaskGroup]
    running_members: dict[str, Count]
    cost_model: NotRequired[Text]
    now_s: NotRequired[Number]
    order: NotRequired[Texts]
    decision: NotRequired[Count]


class NetworkPart(_Part):
    """Decided by one network of classes and groups of machines: a bulk round, or a round of another cost model."""

    kind: Literal["network"]
    features: list[RecordedFeature]
    fixed: Whole
    kinds: list[RecordedMachineKind]
    fleet: RecordedFleet
    places: list[RecordedPlaces]
    relations: list[RecordedRelation]
    demands: list[RecordedDemand]
    group_of: Wholes
    groups: list[RecordedKindGroup]
    placements: RecordedPlacements
    left: list[RecordedLeft]
    reservations: list[RecordedHeldMachine]
    dual: RecordedDual
    outside: NotRequired[list[RecordedDemand]]
    given: NotRequired[RecordedGiven]


RecordPart = Annotated[SearchPart | NetworkPart, Field(discriminator="kind")]


# The record


class RecordedCostModel(TypedDict):
    """The cost model of a round beside ``flow``."""

    name: Text
    settings: dict[str, Any]


class RecordedVerdict(TypedDict):
    """What waiting pods were told."""

    tasks: Texts
    fate: Text
    message: Text
    counts: dict[str, Number]


class RecordedWait(TypedDict):
    """How long a pod waits."""

    rounds: Count
    since_s: Number
    due_age_s: Number


class RecordedRunningClass(RecordedTaskClass):
    """A class of running tasks."""

    effects: Wholes


_Class = TypedDict("_Class", {"class": Wholes})


class RecordedRunningTasks(_Class):
    """Columns of tasks that ran before, with their classes."""

    classes: list[RecordedRunningClass]
    task: Texts
    machine: Texts
    end_s: OpenNumbers
    created_s: NotRequired[Numbers]


class RecordedOutside(_OfClass):
    """A task of a group that is not complete."""

    task: Text
    created_s: Number
    coefficients: Numbers
    effects: Wholes


class RecordedRunningChanges(TypedDict):
    """What changes of running tasks depend on: settings, and columns of what happened to each before."""

    settings: dict[str, str | Number]
    task: Texts
    preemptions: Wholes
    moved_s: OpenNumbers
    stays: Flags


class RecordedFilters(TypedDict):
    """What filters that look at one node said to one kind of pod."""

    tasks: Texts
    reasons: Texts
    verdict: Wholes


class RecordedGoal(TypedDict):
    """The p95 goal of a service that waits, and what it could have alone on the machines that there are."""

    goal_us: Number
    qps: Number
    cores: Whole
    own_us: Number | None
    enough_cores: Whole | None
    lowest_us: Number | None
    lowest_cores: Whole | None


class RecordedHeldNode(RecordedPlace):
    """A node that drained for a due pod."""

    priority: Whole


class RecordedWhatIf(TypedDict):
    """What a what-if changed."""

    changes: Texts
    notes: Texts


class Record(RecordedChanges):
    """A round written down."""

    apiVersion: Literal["flowsched/v4"]
    kind: Literal["Record"]
    round: Whole
    now_s: Number
    policy: Text
    solver: Text
    settings: dict[str, Setting]
    parts: list[RecordPart]
    writer: NotRequired[Text]
    reproducible: NotRequired[Flag]
    stopped: NotRequired[Texts]
    titles: NotRequired[dict[str, Text]]
    cost_model: NotRequired[RecordedCostModel]
    held: NotRequired[list[RecordedVerdict]]
    timings: NotRequired[dict[str, Number]]
    waited: NotRequired[dict[str, RecordedWait]]
    counts: NotRequired[dict[str, Number]]
    upkeep: NotRequired[dict[str, dict[str, Count]]]
    task_groups: NotRequired[dict[str, Count]]
    members_elsewhere: NotRequired[dict[str, Count]]
    running: NotRequired[RecordedRunningTasks]
    before: NotRequired[list[RecordedHeldMachine]]
    outside: NotRequired[list[RecordedOutside]]
    order: NotRequired[Texts]
    changes: NotRequired[RecordedRunningChanges]
    machines: NotRequired[Texts]
    filters: NotRequired[list[RecordedFilters]]
    goals: NotRequired[dict[str, RecordedGoal]]
    held_node: NotRequired[RecordedHeldNode | None]
    what_if: NotRequired[RecordedWhatIf]

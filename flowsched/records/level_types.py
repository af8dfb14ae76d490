"""What a level in a record looks like, at forecast or at linear prices: types of plain data."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field

# Pydantic takes typing's own from Python 3.12 on; typing_extensions comes with it.
from typing_extensions import TypedDict

from flowsched.records.snapshot_types import (
    RecordedGroupMinimum,
    RecordedHeldMachine,
    RecordedPlace,
    RecordedSnapshot,
    RecordedTaskGroup,
)
from flowsched.records.value_types import (
    Count,
    Flag,
    Flags,
    Number,
    Numbers,
    OpenNumbers,
    OpenRows,
    Positive,
    Rounds,
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


class RecordedPlacement(_Start):
    """A task that starts."""

    cost: Number
    terms: dict[str, Number]


class RecordedPlan(TypedDict):
    """An option, or three times null for the unscheduled node."""

    machine: Text | None
    slot: Rounds | None
    width_milli: Whole | None


class RecordedClass(TypedDict):
    """Tasks that wait and that the network cannot tell apart."""

    name: Text
    tasks: Texts


class RecordedGangOutcome(RecordedGroupMinimum):
    """What a round decided about a gang that did not run yet."""

    running: Whole
    members: Texts
    starts: Flag


class RecordedReservation(RecordedHeldMachine):
    """A machine that is held for a task, and how much of it."""

    width_milli: Whole
    overdue: NotRequired[Flag]
    """False for a task that comes next and has room nowhere."""


class RecordedPlacements(TypedDict):
    """Columns of tasks that start; machines by their index."""

    task: Texts
    machine: Wholes
    width_milli: Wholes
    cost: Numbers
    terms: dict[str, Numbers]
    threads: NotRequired[Wholes]
    cores: NotRequired[WholeRows]
    devices: NotRequired[WholeRows]
    believed: NotRequired[Numbers]
    runner_up: NotRequired[Wholes]
    runner_up_cost: NotRequired[OpenNumbers]


class RecordedReason(TypedDict):
    """Why tasks wait."""

    cause: Text
    text: Text


class RecordedWaiting(TypedDict):
    """Columns of tasks that wait; reasons by their index."""

    task: Texts
    reason: Wholes
    reasons: list[RecordedReason]
    cost: OpenNumbers
    terms: dict[str, Numbers]
    waited_s: NotRequired[Numbers]
    planned: NotRequired[list[RecordedPlan | None]]


class _Level(RecordedChanges):
    """What levels have at any prices."""

    kind: Literal["level"]
    machines: Texts
    placements: RecordedPlacements
    waiting: RecordedWaiting
    reservations: list[RecordedReservation]
    first_network: RecordedNetwork
    certificate: RecordedCertificate | None
    counts: dict[str, Number]
    task_groups: NotRequired[list[RecordedGangOutcome]]
    priority: NotRequired[Whole | None]
    timings: NotRequired[dict[str, Number]]


# At forecast prices


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


class RecordedTaskPlan(RecordedPlan):
    """The option that a task was planned for."""

    task: Text
    shared: NotRequired[Flag | None]


class RecordedRepair(TypedDict):
    """A task that could not start where the plan had it."""

    task: Text
    machine: Text | None
    relation: Text | None
    moved_to: Text | None


class ForecastLevel(_Level):
    """Decided by passes of min-cost flow and bounded improvement."""

    prices: Literal["forecast"]
    snapshot: RecordedSnapshot
    classes: list[RecordedClass]
    groups: list[RecordedMachineGroup]
    plan: list[RecordedTaskPlan]
    passes: NotRequired[list[RecordedPass]]
    decided_by: NotRequired[list[RecordedDecision]]
    goal_s: NotRequired[Number | None]
    machine_costs: NotRequired[dict[str, Number]]
    repairs: NotRequired[list[RecordedRepair]]
    needs: NotRequired[dict[str, dict[str, Whole]]]


# At linear prices


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
    """By machine what it has."""

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


class RecordedPricedClass(RecordedClass, _OfClass):
    """A class with its prices."""

    number: Count
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


class RecordedKindGroup(TypedDict):
    """What makes a group of machines."""

    kind: Count
    buckets: Wholes
    signature: Count


class RecordedDual(TypedDict):
    """What the bound at linear prices is made of."""

    tier: Wholes
    units: Numbers
    unit_milli: Count
    largest: WholeRows
    alpha: Numbers
    crowding: Numbers
    tangent: Numbers
    constant: Numbers
    may_take: Flags


class RecordedRoundSettings(TypedDict):
    """Settings of rounds at linear prices; their reader checks the others."""

    resolves: Rounds
    scoring: NotRequired[Text]


class RecordedGiven(TypedDict):
    """What deciding a level takes beside what stands in it; levels of one ``decision`` were decided together, and the first
    of them has what they share.
    """

    decision: Count
    goes_first: NotRequired[Flag]
    settings: RecordedRoundSettings
    task_groups: list[RecordedTaskGroup]
    members_elsewhere: dict[str, Count]
    cost_model: NotRequired[Text]
    now_s: NotRequired[Number]
    order: NotRequired[Texts]


class LinearLevel(_Level):
    """Decided by one network of classes and groups of machines."""

    prices: Literal["linear"]
    features: list[RecordedFeature]
    fixed: Whole
    kinds: list[RecordedMachineKind]
    fleet: RecordedFleet
    places: list[RecordedPlaces]
    relations: list[RecordedRelation]
    classes: list[RecordedPricedClass]
    outside: list[RecordedPricedClass]
    group_of: Wholes
    groups: list[RecordedKindGroup]
    dual: RecordedDual
    given: RecordedGiven
    snapshot: NotRequired[RecordedSnapshot]


RecordedLevel = Annotated[ForecastLevel | LinearLevel, Field(discriminator="prices")]

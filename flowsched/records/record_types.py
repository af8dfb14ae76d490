"""What a record looks like: types of plain data that pydantic checks, that give the JSON Schema, and that readers see.

Keys that are not named here may hold anything: a later version may have more of them. docs/records.md says what each is.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

# Pydantic takes typing's own from Python 3.12 on; typing_extensions comes with it.
from typing_extensions import TypedDict

from flowsched.records.level_types import RecordedLevel
from flowsched.records.snapshot_types import RecordedPlace
from flowsched.records.value_types import Count, Flag, Number, Setting, Text, Texts, Whole, Wholes


class RecordedCostModel(TypedDict):
    """The cost model of a round beside ``flow``, with the settings of its own."""

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
    """A node that drained for an overdue pod, alone or with others of its gang."""

    priority: Whole


class RecordedWhatIf(TypedDict):
    """What a what-if changed."""

    changes: Texts
    notes: Texts


class Record(TypedDict):
    """A round written down."""

    apiVersion: Literal["flowsched/v5"]
    kind: Literal["Record"]
    round: Whole
    now_s: Number
    policy: Text
    solver: Text
    settings: dict[str, Setting]
    parts: list[RecordedLevel]
    writer: NotRequired[Text]
    reproducible: NotRequired[Flag]
    stopped: NotRequired[Texts]
    titles: NotRequired[dict[str, Text]]
    cost_model: NotRequired[RecordedCostModel]
    held: NotRequired[list[RecordedVerdict]]
    timings: NotRequired[dict[str, Number]]
    waited: NotRequired[dict[str, RecordedWait]]
    upkeep: NotRequired[dict[str, dict[str, Count]]]
    machines: NotRequired[Texts]
    filters: NotRequired[list[RecordedFilters]]
    goals: NotRequired[dict[str, RecordedGoal]]
    held_nodes: NotRequired[list[RecordedHeldNode]]
    what_if: NotRequired[RecordedWhatIf]

"""What a wide round decides, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flowsched.arrays import FloatArray, IntArray
from flowsched.decision import Certificate


@dataclass(frozen=True)
class WidePlacement:
    """A task and its machine. Placements are in an order in which every one of them is valid when it is made."""

    task: str
    machine: str
    cost: float
    """With all that was placed before it in this round."""
    terms: Mapping[str, float]
    """They add up to the cost."""
    runner_up: str | None
    """The next machine that its class would have taken."""
    runner_up_cost: float | None


@dataclass(frozen=True, eq=False)
class PlacedColumns:
    """Placements in their order, as arrays."""

    task: tuple[str, ...]
    machine: IntArray
    cost: FloatArray
    terms: Mapping[str, FloatArray]
    runner_up: IntArray
    """-1 where there was none."""
    runner_up_cost: FloatArray


class Cause(StrEnum):
    """Why a task is left over."""

    NOT_ALLOWED = "not_allowed"
    """No machine may take it."""
    CAPACITY = "capacity"
    """No machine that may take it has room."""
    SERVICE = "service"
    """Wherever there is room it would break a latency goal."""
    RELATION = "relation"
    """Relations refuse it wherever there is room."""
    COST = "cost"
    """Every place is dearer than waiting, or than it may be."""
    GROUP = "group"
    """Its task group cannot be started whole."""


@dataclass(frozen=True)
class Leftover:
    """A task that waits on."""

    task: str
    cause: Cause
    text: str
    """One sentence with numbers."""


@dataclass(frozen=True)
class WideOutcome:
    """Every task of every demand is in exactly one of placements and left."""

    placements: tuple[WidePlacement, ...]
    left: tuple[Leftover, ...]
    certificate: Certificate | None
    """None if nothing was pending. Waiting is priced at most as in ``WideNetwork.waiting``."""
    counts: Mapping[str, int]
    """Solves, classes, groups, nodes and arcs by kind of the first network."""
    record: Callable[[int | None], Mapping[str, Any]] | None = None
    """Its part of the record, made once it is asked for; the priority of its tasks, where rounds go by priority."""
    timings_ms: Mapping[str, float] = field(default_factory=dict)

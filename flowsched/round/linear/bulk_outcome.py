"""What a bulk round decides, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flowsched.cluster.decision import Certificate
from flowsched.round.wait_reasons import WaitCause


@dataclass(frozen=True)
class BulkPlacement:
    """A task and its machine. Placements are in an order in which every one of them is valid when it is made."""

    task: str
    machine: str
    cost: float
    """With all that was placed before it in this round."""
    terms: Mapping[str, float]
    """They add up to the cost."""
    runner_up: str | None
    """The other machine where one more task of its class would cost least at the end of the round."""
    runner_up_cost: float | None


@dataclass(frozen=True)
class Leftover:
    """A task that waits on."""

    task: str
    cause: WaitCause
    text: str
    """One sentence with numbers."""


@dataclass(frozen=True, eq=False)
class BulkOutcome:
    """Every task of every demand is in exactly one of placements and left."""

    placements: tuple[BulkPlacement, ...]
    left: tuple[Leftover, ...]
    counts: Mapping[str, int]
    """Solves, classes, groups, nodes and arcs by kind of the first network."""
    record: Callable[[int | None], list[dict[str, Any]]] | None
    """Its parts of the record, one for each of its levels, made when they are asked for, with the priority of its tasks
    where rounds of ``flow`` go by priority; None where no record is kept."""
    timings_ms: Mapping[str, float]
    certify: Callable[[], Certificate | None]

    @cached_property
    def certificate(self) -> Certificate | None:
        """How far from optimal it can be; None if no task takes part. Computed when it is first asked for."""
        return self.certify()

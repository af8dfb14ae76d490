"""What a re-optimisation did."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """How the optimum was reached."""

    STEPS = "steps"
    """From the last flow, one shortest path for each change."""
    SCRATCH = "scratch"
    """By a solver that starts from nothing; the reason is named."""


class Reason(StrEnum):
    """Why a flow was solved from scratch."""

    NONE = ""
    ASKED = "asked"
    SEARCHES_TOO_LONG = "searches-too-long"
    """The searches scanned more than the limit: the cluster is contended."""
    UNCAPPED_ARC_CHEAPER = "uncapped-arc-cheaper"
    """An arc without a capacity, or with room for far more than all tasks, got cheaper: it cannot be filled to make up for
    that."""
    AFTER_FAILURE = "after-failure"
    """There was no flow in the round before."""


@dataclass(frozen=True)
class Outcome:
    """One re-optimisation."""

    way: Way
    reason: Reason
    changes: int
    """Units that came, went or were moved by a change."""
    scanned: int
    """Tasks and hubs that the searches scanned."""

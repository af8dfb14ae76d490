"""What a unit of each task's progress is worth, and the shortest schedule that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched.node.arrangement import Arrangement
from flowsched.node.moment import Moment, Piece


@dataclass(frozen=True)
class Regime:
    """Loads that the services usually have, and how often."""

    share: float
    """Of time; those of all regimes add up to 1."""
    moment: Moment


@dataclass(frozen=True)
class Spell:
    """Part of a shortest schedule: an arrangement, and for how long."""

    seconds: float
    regime: int
    stages: tuple[Piece, ...]
    """At which the tasks are then, in the order of the candidates."""
    arrangement: Arrangement


@dataclass(frozen=True)
class MakespanPrices:
    """The answer for the work that is left at one moment."""

    values: Mapping[Piece, float]
    """Seconds of makespan per unit of progress."""
    makespan_s: float
    """Of what is left, over the arrangements looked at; the order of phases and switching are not counted."""
    schedule: tuple[Spell, ...]
    """Spells of one shortest schedule, longest first; their order in time is free."""
    settled: bool
    """Whether no better arrangement is expected any more."""

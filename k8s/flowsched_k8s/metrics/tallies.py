"""What the state machine counts for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flowsched.cluster.start_samples import StartOutcome


@dataclass
class Tallies:
    """What happened, counted for metrics; the adapter takes what is new."""

    attempts: list[tuple[str, float, str]] = field(default_factory=list)
    """(result, seconds in the round, scheduler name) of every attempt."""
    bound: list[tuple[float, int]] = field(default_factory=list)
    """(seconds from being added to bound, attempts) of every pod."""
    binds: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Pods that rebalancing moves, by purpose and by what came of it."""
    start_outcomes: list[StartOutcome] = field(default_factory=list)
    """Of forecasts of starts and ends of which some are known now."""
    victims: list[int] = field(default_factory=list)
    """Victims of every preemption attempt; 0 for one that found none."""

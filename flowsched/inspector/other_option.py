"""What a task could have instead of what was decided: a place on another machine, at another time or width, or waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flowsched.inspector.comparison import differences, plain_terms

STEP = 1e-9
"""Costs that are closer count as equal; then the earlier and narrower option counts."""


@dataclass(frozen=True)
class OtherOption:
    """Another option for a task, or waiting (``machine`` None), with all other tasks where the round left them."""

    machine: str | None
    slot: int | None
    """Completions that it waits for; None for waiting."""
    width_milli: int | None
    cost: float
    """Change of the total if the task came there, had it been nowhere."""
    terms: Mapping[str, float]

    def plain(self, here: float, here_terms: Mapping[str, float]) -> dict[str, Any]:
        """The same beside what the task costs now: ``more`` is the difference, ``differences`` its terms."""
        return {
            "kind": "waiting" if self.machine is None else "place",
            "machine": self.machine,
            "slot": self.slot,
            "width_milli": self.width_milli,
            "cost": self.cost,
            "more": self.cost - here,
            "terms": plain_terms(self.terms),
            "differences": differences(self.terms, here_terms),
        }


def cheapest(moves: Iterable[OtherOption]) -> OtherOption | None:
    """The cheapest move, the first of equal ones."""
    best: OtherOption | None = None
    for move in moves:
        if best is None or move.cost < best.cost - STEP:
            best = move
    return best

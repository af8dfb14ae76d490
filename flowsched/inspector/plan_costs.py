"""What the plan of a record costs, by term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flowsched.inspector.machine_forecasts import residents_cost
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.terms import POLICY

RUNNING_COST = "running"
"""What is no term of a decided task: what machines would cost with only the tasks that run there now."""


TWICE = "counted_twice"
"""What decided tasks do to each other: the terms of both have it, so it is taken off once."""


_SAME = 1e-12
"""The same as a part of the sum, where much larger numbers are taken from each other."""


@dataclass(frozen=True)
class Costs:
    """What a record's plan costs."""

    total: float
    """The certificates' primal costs: machines with all that is on them, and tasks that wait. Where there are several
    levels at forecast prices, what ran before each of them but the first is not counted again."""
    terms: Mapping[str, float]
    """Of the decided tasks by term, and the rest under ``RUNNING_COST`` and ``TWICE``: together they are the total."""


def costs_of(recorded: RecordView) -> Costs:
    """What a record says that its plan costs."""
    total, terms = 0.0, Counter[str]()
    forecast = [part for part in recorded.parts if part.by_forecasts and part.certificate is not None]
    # What runs is in the cost of each of them, and counts once.
    standing = [residents_cost(recorded, part) for part in forecast] if recorded.policy == POLICY else []
    total -= sum(standing[1:])
    for part in recorded.parts:
        costs = [p.cost for p in part.placements]
        for p in part.placements:
            terms.update(p.terms)
        for w in part.waiting:
            costs.append(w.cost or 0.0)
            terms.update(w.terms or {"waiting": w.cost or 0.0})
        if part.certificate is not None:
            total += part.certificate["primal"]
        else:
            # A baseline proves nothing: what its machines cost, and what those cost that it leaves.
            machines = part.forecast.get("machine_costs") or {}
            total += sum(machines.values()) + sum(w.cost or 0.0 for w in part.waiting) if machines else sum(costs)
    named = {name: float(value) for name, value in terms.items() if value}
    running = standing[0] if standing else 0.0
    twice = total - running - sum(named.values())
    # Sums of the same numbers in another order differ by some bits of the largest.
    twice = twice if abs(twice) > _SAME * max(1.0, abs(total), abs(running)) else 0.0
    return Costs(total, {**named, RUNNING_COST: running, TWICE: twice})

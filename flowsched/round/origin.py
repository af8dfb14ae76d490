"""Where an option of a plan comes from: the network, rule, change or earlier plan that chose it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flowsched.pricing.flow_prices import FORBIDDEN


class PlanStage(StrEnum):
    """What may give a task its place."""

    NETWORK = "network"
    """The flow of a pass."""
    GREEDY = "greedy"
    """The greedy rule that replaces the flow in ablations."""
    LIST_SCHEDULING = "list_scheduling"
    """The machine that is done soonest, the most work first: a start of the search for a makespan."""
    CARRIED = "carried"
    """The plan that the last round left."""
    MOVE = "move"
    """A move of one task, in the improvement after the passes."""
    SWAP = "swap"
    """A change of two tasks together, in the improvement."""
    GANG = "gang"
    """The places where the members of a gang were found to fit together, before the first pass."""
    REPAIR = "repair"
    """The next best place, as a relation refused the planned one at last."""
    NEVER_IDLE = "never_idle"
    """The cheapest start, as nothing runs and no task would have started."""
    PREEMPTION = "preemption"
    """The place of tasks of lower priority."""


@dataclass(frozen=True)
class Origin:
    """What chose an option, or left a task waiting that had one."""

    stage: PlanStage
    number: int | None = None
    """Of a network: the pass, by its place in :attr:`flowsched.round.passes.Deciding.passes`."""
    price: float = 0.0
    """Of a network and of the greedy rule: the price of the option as it was chosen."""
    runner_up: float = FORBIDDEN
    """And that of the cheapest option on another machine; infinity where there was none."""

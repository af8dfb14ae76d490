"""What a small round is given beside passes: exchanges, and the optimum by CP-SAT where an operator asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowsched.round.linear.candidate_index import CandidateIndex
from flowsched.round.linear.exchange import run_exchanges
from flowsched.round.linear.linear_bound import Evidence, level_bound
from flowsched.round.linear.round_state import BulkRoundState

if TYPE_CHECKING:
    from flowsched.round.linear.linear_optimum import ExactAnswer

_WORTH = 1e-6
"""What the optimum has to win; its costs are rounded to millionths."""


def improve(
    state: BulkRoundState,
    start: int,
    evidence: Evidence,
    candidates: CandidateIndex,
    nodes: int,
    exact: bool,
    counts: dict[str, int],
) -> ExactAnswer | None:
    """Better placements since ``start``, if exchanges find some within ``nodes`` nodes or CP-SAT does.

    What CP-SAT says, if it was asked (``exact``). Where it does not come to an end, the better of both plans stays.
    """
    if nodes > 0 and len(evidence.waiting.tasks) > 1:
        found = run_exchanges(evidence, candidates, state.task_class[start:], state.machine[start:], nodes)
        counts["exchange_nodes"] = counts.get("exchange_nodes", 0) + found.nodes
        if found.won > 0.0:
            counts["exchanges"] = counts.get("exchanges", 0) + state.adopt(start, found.task_class, found.machine)
    if not exact:
        return None
    from flowsched.round.linear.linear_optimum import ExactLevel  # CP-SAT takes a third of a second to import

    level = ExactLevel(evidence)
    ours = state.task_class[start:], state.machine[start:]
    answer = level.solve(*ours, prices=level_bound(evidence, level.value(*ours)).prices)
    fewer = level.stranded(ours[0]) - level.stranded(answer.task_class)
    if fewer > 0 or (fewer == 0 and answer.value < level.value(*ours) - _WORTH):
        counts["exact_moves"] = counts.get("exact_moves", 0) + state.adopt(start, answer.task_class, answer.machine)
    return answer

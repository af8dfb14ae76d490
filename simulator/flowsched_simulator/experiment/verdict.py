"""What a sweep found, in a sentence for each case."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched_simulator.experiment.metric import METRICS
from flowsched_simulator.experiment.policy_comparison import BETTER, OPEN, WORSE, PolicyComparison, amount_text
from flowsched_simulator.experiment.results import Results

_WORDS = {WORSE: "is better than", BETTER: "is worse than", OPEN: "is not decidedly better or worse than"}
"""A policy that is worse than the reference makes the reference better. The figures are those of the policy, from there."""


def verdict(results: Results) -> list[str]:
    """A sentence for each case: which policies the reference beats, and by how much."""
    found = results.comparisons()
    return [_of_case(results, case, [each for each in found if each.case == case]) for case in results.cases]


def _of_case(results: Results, case: str, found: Sequence[PolicyComparison]) -> str:
    words = METRICS[results.metric].words
    if not found:
        return f"{case}: {results.reference} is alone; there is nothing to compare it with."
    parts = []
    for outcome, said in _WORDS.items():
        own = [f"{each.policy} (at {amount_text(each)})" for each in found if each.verdict == outcome]
        if own:
            parts.append(f"{said} {', '.join(own)}")
    return f"{case}: by {words}, {results.reference} {'; '.join(parts)}."

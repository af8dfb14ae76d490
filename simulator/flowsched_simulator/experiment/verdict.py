"""What a sweep found, in a sentence for each case."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched_simulator.experiment.metric import METRICS
from flowsched_simulator.experiment.policy_comparison import (
    BETTER,
    OPEN,
    WORSE,
    PolicyComparison,
    difference_words,
    p_words,
)
from flowsched_simulator.experiment.results import Results

_WORDS = {WORSE: "{} is better than ", BETTER: "{} is worse than ", OPEN: "no significant difference from "}
"""A policy that is worse than the reference makes the reference better. The figures are those of the policy, from there."""


def verdict(results: Results) -> list[str]:
    """A sentence for each case: which policies the reference beats, by how much, and what is not significant or tested."""
    found = results.comparisons()
    return [_of_case(results, case, [each for each in found if each.case == case]) for case in results.cases]


def _of_case(results: Results, case: str, found: Sequence[PolicyComparison]) -> str:
    words = METRICS[results.metric].words
    if not found:
        return f"{case}: {results.reference} is alone; there is nothing to compare it with."
    parts = []
    for outcome, said in _WORDS.items():
        own = [
            f"{each.policy} ({each.policy}'s mean is {difference_words(each)}, {p_words(each.p_adjusted)})"
            for each in found
            if each.verdict == outcome
        ]
        if own:
            parts.append(said.format(results.reference) + ", ".join(own))
    for each in found:
        if each.verdict not in _WORDS:
            parts.append(f"{_standing(each)} ({_why(each)})")
    return f"{case}: by {words}, {'; '.join(parts)}."


def _standing(each: PolicyComparison) -> str:
    if each.difference.mean is None:
        return f"{each.policy} cannot be compared with {each.reference}"
    if not each.difference.mean:
        return f"{each.policy} and {each.reference} are equal"
    return f"{each.policy} is {difference_words(each)} than {each.reference}"


def _why(each: PolicyComparison) -> str:
    """Why there is no test."""
    found = each.difference
    if found.mean is None:
        return "no seed has a figure of both"
    if not found.drawn:
        return "nothing is drawn: one run each"
    return "one seed, which decides nothing" if found.low is None else f"alike in all {found.seeds} seeds"

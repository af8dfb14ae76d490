"""What a seed decides in a run, and the seeds on which the variants of a rule are chosen."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count, islice

from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.policies import FLOW_PLAN
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.truth import Error

SELECTION_SEEDS = 3
"""Runs by which a variant is chosen, each with a seed of its own."""
_FIRST_SELECTION_SEED = 1_000_000_001


def drawn_parts(scenario: Scenario, model_error: Error) -> tuple[str, ...]:
    """What the seed draws whichever policy runs, in words; empty where all seeds give the same jobs and machines."""
    parts = {
        "arrivals": scenario.arrivals.drawn,
        "estimates": scenario.estimate_error != 0.0,
        "model error": isinstance(model_error, str | float | int) and model_error != 0,
        "sensitivities": scenario.sensitivity_error != 0.0,
        "stragglers": scenario.stragglers is not None,
    }
    return tuple(part for part, drawn in parts.items() if drawn)


def draws(policy: str) -> bool:
    """Whether the decisions of a policy depend on the seed. A baseline of another package that does not say may."""
    if policy not in BASELINES:
        return policy == FLOW_PLAN
    stated = BASELINES[policy].draws
    return not BASELINES.is_ours(policy) if stated is None else bool(stated)


def selection_seeds(reported: Collection[int]) -> tuple[int, ...]:
    """The seeds to choose a variant by: always the same ones, and none of those whose runs are reported."""
    return tuple(islice((seed for seed in count(_FIRST_SELECTION_SEED) if seed not in reported), SELECTION_SEEDS))

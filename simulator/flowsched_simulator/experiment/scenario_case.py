"""A scenario of an experiment, with the factors by which it differs from the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from flowsched.cluster.learning import Learning
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_simulator.experiment.copies import with_copies
from flowsched_simulator.experiment.offered_load import offered_load, with_load
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.truth import MAX_SIGMA
from flowsched_simulator.world import ErrorOf

LOAD, MODEL_ERROR, ESTIMATE_ERROR, LEARNING = "load", "model_error", "estimate_error", "learning"
FactorValue = float | str | bool | None


@dataclass(frozen=True, repr=False)
class ScenarioCase(ShortRepr):
    """One scenario of an experiment. Policies are compared within a case, never across."""

    name: str
    scenario: Scenario
    model_error: float | Literal["measured"] = 0.0
    """How far the true machines are from the models, as ``simulate --model-error``."""
    error_of: ErrorOf = "job"
    """As ``simulate --error-of``."""
    learning: Learning | None = None
    """As ``simulate --learning``; None: as the scenario and the model error say."""
    factors: Mapping[str, FactorValue] = field(default_factory=dict)
    """What was asked for: ``load``, ``model_error``, ``error_of`` unless it is ``job``, ``estimate_error``,
    ``learning`` where it is given, ``machine_copies``, ``job_copies`` and changed keys by their paths."""

    def overview(self) -> Overview:
        """The name, and what the scenario is."""
        words = f"{self.name}: {self.scenario.overview().words}"
        return Overview(f"{words}, model error {self.model_error}" if self.model_error else words)

    @property
    def load(self) -> float | None:
        """Arriving work over capacity; see :func:`offered_load`."""
        return offered_load(self.scenario)


def make_case(
    scenario: Scenario,
    name: str | None = None,
    *,
    load: float | None = None,
    model_error: float | Literal["measured"] = 0.0,
    error_of: ErrorOf = "job",
    learning: Learning | None = None,
    machine_copies: int = 1,
    job_copies: int = 1,
    changes: Mapping[str, FactorValue] | None = None,
) -> ScenarioCase:
    """A case of a scenario, at another load or size. ``changes``: what was changed in it already, for the tables.

    Raises ``ValueError`` for a load where all jobs arrive at once, and for a model error that is not from 0 to 3.
    """
    if not isinstance(model_error, str) and not 0.0 <= model_error <= MAX_SIGMA:
        raise ValueError(f"model_error must be from 0 to {MAX_SIGMA:g} or measured, got {model_error}")
    if error_of not in get_args(ErrorOf):
        raise ValueError(f"error_of must be {' or '.join(get_args(ErrorOf))}, got {error_of}")
    if learning is not None and learning not in get_args(Learning):
        raise ValueError(f"learning must be {' or '.join(get_args(Learning))}, got {learning}")
    if machine_copies != 1 or job_copies != 1:
        scenario = with_copies(scenario, machine_copies, job_copies)
    if load is not None:
        scenario = with_load(scenario, load)
    factors: dict[str, FactorValue] = {**(changes or {})}
    offered = offered_load(scenario)
    if offered is not None:
        factors[LOAD] = float(f"{offered:.4g}")
    factors[MODEL_ERROR], factors[ESTIMATE_ERROR] = model_error, scenario.estimate_error
    if error_of != "job":
        factors["error_of"] = error_of
    if learning is not None:
        factors[LEARNING] = learning
    factors |= {"machine_copies": machine_copies, "job_copies": job_copies}
    return ScenarioCase(name or scenario.name, scenario, model_error, error_of, learning, factors)

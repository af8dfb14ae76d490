"""What an experiment consists of when its scenarios, policies and settings are resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flowsched_models.picked_fields import picked
from flowsched_models.short_repr import Overview, ShortRepr
from flowsched_models.text_table import counted
from flowsched_simulator.drawn import drawn_parts, draws, selection_seeds
from flowsched_simulator.experiment.contender import Contender
from flowsched_simulator.experiment.planned_run import PlannedRun, scenario_digest
from flowsched_simulator.experiment.scenario_case import ScenarioCase
from flowsched_simulator.simulation import NO_LIMIT_S


@dataclass(frozen=True, repr=False)
class Plan(ShortRepr):
    """Cases x contenders x seeds, and what decides."""

    name: str
    cases: tuple[ScenarioCase, ...]
    contenders: tuple[Contender, ...]
    seeds: tuple[int, ...]
    reference: str
    """Label of the contender that the others are compared with."""
    metric: str
    """What decides: a figure of runs of which less is better, of :data:`METRICS`."""
    max_time_s: float = NO_LIMIT_S
    description: str = ""

    def overview(self) -> Overview:
        """Cases, policies and seeds in numbers."""
        parts = (counted(len(self.cases), "scenario"), counted(len(self.contenders), "policy", "policies"))
        seeds = counted(len(self.seeds), "seed")
        every = len(self.cases) * len(self.contenders) * len(self.seeds)
        if every > len(self.runs(self.seeds)):
            seeds += "; one run where nothing is drawn"
        return Overview(f"{self.name}: {len(self.runs(self.seeds))} runs ({' x '.join((*parts, seeds))})")

    def runs(self, seeds: Iterable[int]) -> list[PlannedRun]:
        """All runs with these seeds, in the order of the tables: by case, contender and seed.

        Where nothing is drawn all seeds give the same run: there is the first one's only.
        """
        made = [
            PlannedRun(case, contender, seed, self.max_time_s, self._variant_seeds(case, contender))
            for case in self.cases
            for contender in self.contenders
            for seed in dict.fromkeys(seeds)
            if seed == self.seeds[0] or self.is_drawn(case, contender)
        ]
        return sorted(made, key=lambda run: run.key)

    def trials(self) -> list[PlannedRun]:
        """The runs by which variants are chosen, each once."""
        found = {trial.digest: trial for run in self.runs(self.seeds[:1]) for trial in run.trials()}
        return list(found.values())

    def _variant_seeds(self, case: ScenarioCase, contender: Contender) -> tuple[int, ...]:
        return (
            selection_seeds(self.seeds) if self.is_drawn(case, contender) and contender.variants(case.scenario) else ()
        )

    def is_drawn(self, case: ScenarioCase, contender: Contender) -> bool:
        """Whether runs of different seeds may differ."""
        return bool(drawn_parts(case.scenario, case.model_error)) or draws(contender.policy)

    def told(self) -> dict[str, Any]:
        """What results are read with: names, order and factors, as plain data."""
        return {
            "format": "flowsched/experiment/v1",
            **picked(self, "name", "description", "reference", "metric"),
            "cases": [
                {
                    "case": c.name,
                    "scenario": c.scenario.name,
                    "about": c.scenario.description,
                    "digest": scenario_digest(c.scenario),
                    "factors": dict(c.factors),
                    "undrawn": [each.label for each in self.contenders if not self.is_drawn(c, each)],
                    "variant_seeds": {
                        each.label: list(self._variant_seeds(c, each))
                        for each in self.contenders
                        if each.variants(c.scenario)
                    },
                }
                for c in self.cases
            ],
            "policies": [
                {"label": c.label, "policy": c.policy, "settings": list(c.settings), "variant": c.variant}
                for c in self.contenders
            ],
        }

"""Everybody who can place tasks in a simulation, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from flowsched.decision import Scheduler
from flowsched.planner import PlanRules
from flowsched.policies.flow import FlowPolicy
from flowsched.round import FlowScheduler
from flowsched.settings import Settings
from flowsched.solvers import make_solver
from flowsched_models.document import InputError, Problem, name_help
from flowsched_models.runtime import HostFactory
from flowsched_simulator.baseline_record import RecordedBaseline
from flowsched_simulator.baselines import BASELINES, DESCRIPTIONS, variants_of
from flowsched_simulator.planned_policy import PlannedScheduler
from flowsched_simulator.scenario import Scenario

FLOW = "flow"
FLOW_PLAN = PlannedScheduler.name
POLICIES: dict[str, str] = {
    FLOW: "flowsched: min-cost flow priced by completion goals, interference and SLO headroom",
    **DESCRIPTIONS,
}
"""Those that are compared unless somebody says which."""
ON_REQUEST: dict[str, str] = {
    FLOW_PLAN: "flow, and a searched plan of everything that waits on top: cores, threads, widths, start order",
}
"""Those that take seconds where the others take milliseconds."""


@dataclass(frozen=True)
class EngineOptions:
    """How the engine runs where it is one of the policies."""

    settings: Settings = field(default_factory=Settings)
    """The scenario's objective replaces the one of these settings."""
    solver: str = "ortools"
    plan: PlanRules = field(default_factory=PlanRules)
    """What ``flow+plan`` searches; objective and seed are those of the run."""
    keep_records: bool = False
    """Whether decisions come with recipes for records, those of baselines too; ``flow+plan`` has none."""


def check_policies(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without repetition; raises :class:`InputError` for those that there are not."""
    problems = [
        Problem("--policy", None, name, "there is no such policy", name_help(name, {**POLICIES, **ON_REQUEST}))
        for name in names
        if name not in POLICIES and name not in ON_REQUEST
    ]
    if problems:
        raise InputError(problems)
    return tuple(dict.fromkeys(names))


def schedulers(
    name: str, scenario: Scenario, seed: int, engine: EngineOptions, hosts: HostFactory
) -> Iterator[tuple[str, Scheduler]]:
    """Every variant of a policy, with the text that tells it from the others. Each scheduler serves one run."""
    settings = replace(engine.settings, objective=scenario.objective.value)
    if name in (FLOW, FLOW_PLAN):
        keep = engine.keep_records and name == FLOW
        flow = FlowScheduler(FlowPolicy(settings), make_solver(engine.solver), settings, hosts=hosts, keep_records=keep)
        if name == FLOW:
            yield "", flow
            return
        margin = min(engine.plan.slo_margin, settings.slo_margin)
        rules = replace(engine.plan, objective=settings.objective, slo_margin=margin, seed=seed)
        yield "", PlannedScheduler(flow, rules, hosts)
        return
    variants = variants_of(name)
    for granting in variants:
        label = granting.label if len(variants) > 1 else ""
        baseline = BASELINES[name](granting, seed)
        yield label, RecordedBaseline(baseline, label, settings) if engine.keep_records else baseline

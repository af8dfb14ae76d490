"""Everybody who can place tasks in a simulation, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flowsched.decision import Scheduler
from flowsched.planner import PlanRules
from flowsched.policies.flow import FlowPolicy
from flowsched.round import FlowScheduler
from flowsched.scale import choice
from flowsched.scale.round import RoundSettings
from flowsched.scale.scheduler import NetworkScheduler
from flowsched.settings import Settings
from flowsched.solvers import make_solver
from flowsched.solvers.limited import limited
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


def network_policies() -> dict[str, str]:
    """Policies for clusters of any size, with a line about each: one network of classes and groups; ours and plug-ins'."""
    taken = {**POLICIES, **ON_REQUEST}
    return {name: text for name, text in choice.described().items() if name not in taken}


def is_network(name: str) -> bool:
    """Whether a policy is one of those; nothing is loaded."""
    return name not in POLICIES and name not in ON_REQUEST and name in choice.names()


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
    time_limit_s: float | None = None
    """Of each solve; None: as long as it takes."""
    network_settings: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """Settings of network policies as texts, by policy."""


def check_policies(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without repetition; raises :class:`InputError` for those that there are not."""
    known = dict.fromkeys((*POLICIES, *ON_REQUEST, *choice.names()))
    problems = [
        Problem("--policy", None, name, "there is no such policy", name_help(name, known))
        for name in names
        if name not in known
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
        solver = limited(make_solver(engine.solver), engine.time_limit_s)
        flow = FlowScheduler(FlowPolicy(settings), solver, settings, hosts=hosts, keep_records=keep)
        if name == FLOW:
            yield "", flow
            return
        margin = min(engine.plan.slo_margin, settings.slo_margin)
        rules = replace(engine.plan, objective=settings.objective, slo_margin=margin, seed=seed)
        yield "", PlannedScheduler(flow, rules, hosts)
        return
    if is_network(name):
        yield "", network_scheduler(name, settings, engine, hosts)
        return
    variants = variants_of(name)
    for granting in variants:
        label = granting.label if len(variants) > 1 else ""
        baseline = BASELINES[name](granting, seed)
        yield label, RecordedBaseline(baseline, label, settings) if engine.keep_records else baseline


def network_scheduler(name: str, settings: Settings, engine: EngineOptions, hosts: HostFactory) -> NetworkScheduler:
    """A network policy as a scheduler. Raises :class:`InputError` for one that is broken, or does not take its settings."""
    return NetworkScheduler(
        choice.chosen(name, engine.network_settings.get(name, ())),
        limited(make_solver(engine.solver), engine.time_limit_s),
        RoundSettings(due_age_s=settings.due_age_s),
        hosts=hosts,
        keep_records=engine.keep_records,
        headroom_weight=settings.headroom_weight,
        slo_margin=settings.slo_margin,
    )

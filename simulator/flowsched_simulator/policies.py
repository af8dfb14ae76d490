"""All policies that can place tasks in a simulation, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flowsched.cluster.decision import Scheduler
from flowsched.cluster.knowledge import Knowledge, knowledge_of
from flowsched.cluster.settings import TOPOLOGY, TOPOLOGY_WORTH, Settings
from flowsched.cluster.settings_form import (
    CHANGE_SETTINGS,
    KUBERNETES_SETTINGS,
    SETTING_NAMES,
    Readers,
    apply_settings,
)
from flowsched.cluster.snapshot import Task
from flowsched.disaggregation.registry import (
    DISAGGREGATION_POLICIES,
    chosen_settings,
    make_disaggregation,
    own_settings,
)
from flowsched.disaggregation.scheduler import DisaggregationScheduler, forbid_unknown
from flowsched.planner.rules import PlanRules
from flowsched.pricing.linear.policies import COST_MODELS, describe_cost_model
from flowsched.round.linear import choice
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.network_scheduler import NetworkScheduler
from flowsched.round.linear.priced_rows import forbid_devices
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver
from flowsched.solvers.limited import limited
from flowsched_models.document import InputError, Problem, name_help
from flowsched_models.picked_fields import picked
from flowsched_models.runtime import HostFactory
from flowsched_simulator.baseline_record import RecordedBaseline
from flowsched_simulator.baselines.registry import BASELINES, COMPARED, make_baseline, variants_of
from flowsched_simulator.plan_rules_form import PLAN_NAMES, apart, apply_plan_rules
from flowsched_simulator.planned_policy import PlannedScheduler
from flowsched_simulator.scenario import Scenario

FLOW = "flow"
OUR_PACKAGE = "flowsched"
FLOW_PLAN = PlannedScheduler.name
POLICIES: dict[str, str] = {
    FLOW: "flowsched: min-cost flow priced by completion goals, interference and SLO headroom",
    **{name: BASELINES[name].description for name in COMPARED},
}
"""Those that are compared by default."""
ON_REQUEST: dict[str, str] = {
    FLOW_PLAN: "flow, and a searched plan of everything that waits on top: cores, threads, widths, start order",
    **{name: policy.summary for name, policy in DISAGGREGATION_POLICIES.items()},
}
"""Those that take seconds where the others take milliseconds, or are for jobs of a kind."""


TOPOLOGY_POLICIES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "topo-aware": (
        "flow priced by how a task's GPUs are linked, the interference at their sockets, and what is left free of these",
        {"gpu_sets": TOPOLOGY},
    ),
    "topo-aware-p": (
        "topo-aware, and a task waits while every set of GPUs is of less utility than it demands",
        {"gpu_sets": TOPOLOGY, "gpu_postpones": True},
    ),
    "topo-worth-p": (
        "topo-aware-p, with what is left free priced by what it spares the tasks that are expected",
        {"gpu_sets": TOPOLOGY_WORTH, "gpu_postpones": True},
    ),
}
"""Policies that are flow with some settings: those of M. Amaral's thesis (UPC, 2019, chapter 4), and one with prices from
demand. Completions have no price, and nothing is planned for later."""
_ONLY_PLACES: Mapping[str, Any] = {
    "objective": "completion",
    "eps": 0.0,
    "beta": 0.0,
    "slots": 1,
    "waiting_weight": 0.01,
    "improved_tasks": 0,
    "pass_share": 0.1,
}
UTILITY = "utility"
"""The policy at the literal prices of the thesis, for jobs of any kind."""
LITERAL_PRICES: Mapping[str, Any] = {
    "objective": "completion",
    "eps": 1.0,
    "beta": 1.0,
    "length_weight": 0.0,
    "headroom_weight": 0.0,
    "slots": 1,
    "improved_tasks": 0,
    "waiting_bounded": False,
    "wishes_multiply": True,
}
"""Its settings: equations 11 to 13 of M. Amaral's thesis with z = 1, one slope before and beyond the goal; nothing is
planned for later, and only networks decide."""
ON_REQUEST.update({name: text for name, (text, _) in TOPOLOGY_POLICIES.items()})
ON_REQUEST[UTILITY] = (
    "flow at the literal prices of Amaral's thesis: (1 - U) P for a place, 1 - U + W for waiting, z = 1"
)
PRESETS: Mapping[str, Mapping[str, Any]] = {
    **{name: {**_ONLY_PLACES, **settings} for name, (_, settings) in TOPOLOGY_POLICIES.items()},
    UTILITY: LITERAL_PRICES,
}
"""Policies that are flow with some settings, which ``--set`` does not change."""


def is_flow(name: str) -> bool:
    """Whether a policy is flow, with whatever settings."""
    return name == FLOW or name in PRESETS


def is_cost_model(name: str) -> bool:
    """Whether a policy is for clusters of any size: one network of classes and groups; nothing is loaded."""
    return name not in POLICIES and name not in ON_REQUEST and name not in BASELINES and name in choice.names()


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
    """Settings of policies that have their own, as texts, by policy."""


@dataclass(frozen=True)
class Description:
    """What there is to know about a policy before it runs."""

    name: str
    kind: str
    """``search``, ``baseline``, ``network`` or ``disaggregation``."""
    summary: str
    """A line; of one that cannot be loaded, why."""
    on_request: bool
    """Whether it takes part only if it is asked for."""
    package: str
    """The distribution that it comes from; of another package that is not known, empty."""
    place: str
    """Its code: ``module:Class``."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Names as ``--set`` takes them, with their defaults; ``inspect.Parameter.empty`` where one must be given."""
    told: tuple[Knowledge, ...] | None = None
    """What it is told about tasks and machines; None where it does not say."""


def describe(name: str) -> Description:
    """A policy by the name that users know. Raises :class:`InputError` if there is none."""
    (name,) = known_names((name,), _names(), "NAME")
    if is_cost_model(name):
        return _describe_network(name)
    if name in BASELINES:
        return _describe_baseline(name)
    code: type
    if name in DISAGGREGATION_POLICIES:
        code, kind = DisaggregationScheduler, "disaggregation"
        settings = tuple((f"{name}.{setting}", default) for setting, default in own_settings())
    else:
        code, kind = FlowScheduler if is_flow(name) else PlannedScheduler, "search"
        settings = () if name in PRESETS else _search_settings(name)
    return Description(
        name,
        kind,
        {**POLICIES, **ON_REQUEST}[name],
        name in ON_REQUEST,
        OUR_PACKAGE,
        f"{code.__module__}:{code.__name__}",
        settings,
        knowledge_of(code),
    )


def all_policies() -> tuple[Description, ...]:
    """All of them, in the order of lists."""
    return tuple(describe(name) for name in _names())


def _describe_baseline(name: str) -> Description:
    place, package = BASELINES.place(name), OUR_PACKAGE if BASELINES.is_ours(name) else BASELINES.package(name)
    try:
        code = BASELINES[name]
    except InputError as error:
        return Description(name, "baseline", error.problems[0].message, True, package, place)
    summary = code.description
    return Description(name, "baseline", summary, name not in POLICIES, package, place, told=knowledge_of(code))


def _describe_network(name: str) -> Description:
    place = COST_MODELS.place(name)
    package = COST_MODELS.package(name) or (OUR_PACKAGE if COST_MODELS.is_ours(name) else "")
    try:
        notes = describe_cost_model(name)
    except InputError as error:
        return Description(name, "network", error.problems[0].message, True, package, place)
    settings = tuple((f"{name}.{setting.name}", setting.default) for setting in notes.settings)
    return Description(name, "network", notes.summary.rstrip("."), True, package, place, settings, notes.told)


def _search_settings(name: str) -> tuple[tuple[str, Any], ...]:
    usual, rules = Settings(), PlanRules()
    unread = ("objective", *KUBERNETES_SETTINGS)
    plain = tuple((setting, getattr(usual, setting)) for setting in SETTING_NAMES if setting not in unread)
    if name == FLOW:
        return plain
    plain = tuple(pair for pair in plain if pair[0] not in CHANGE_SETTINGS)
    plan = {"cores": "shared" if rules.share_cores else "exclusive", "evaluations": rules.evaluations}
    of_plan = ((typed, typed.removeprefix("plan.")) for typed in PLAN_NAMES)
    return (*plain, *((typed, plan[key] if key in plan else getattr(rules, key)) for typed, key in of_plan))


def has_own_settings(name: str) -> bool:
    """Whether a policy takes settings with its name and a dot; nothing is loaded."""
    return name in DISAGGREGATION_POLICIES or is_cost_model(name)


def check_policies(names: tuple[str, ...], source: str = "--policy") -> tuple[str, ...]:
    """The names without repetition; raises :class:`InputError` for those that there are not, and for broken baselines."""
    names = known_names(names, _names(), source)
    for name in names:
        if name in BASELINES:
            try:
                BASELINES[name]
            except InputError as error:
                raise InputError([Problem(source, None, "", p.message, p.help) for p in error.problems]) from error
    return names


def check_devices(names: Sequence[str], tasks: Iterable[Task]) -> None:
    """Raise :class:`InputError` before any policy runs where one does not know the GPUs that tasks ask for, or what binds
    tasks beside them.
    """
    tasks = tuple(tasks)
    for name in names:
        if is_cost_model(name):
            forbid_devices(name, tasks)
        if name in DISAGGREGATION_POLICIES:
            forbid_unknown(name, tasks)


def _names() -> list[str]:
    """Of all policies, ours and plug-ins'; nothing is loaded."""
    return list(dict.fromkeys((*POLICIES, *ON_REQUEST, *BASELINES, *choice.names())))


def known_names(
    names: Sequence[str], known: Iterable[str], source: str, message: str = "there is no such policy"
) -> tuple[str, ...]:
    """The names without repetition. Raises :class:`InputError` with the message for those that are not among the known."""
    known = tuple(known)
    InputError.raise_any(Problem(source, None, n, message, name_help(n, known)) for n in names if n not in known)
    return tuple(dict.fromkeys(names))


def readers(names: Sequence[str], network_settings: Mapping[str, Sequence[tuple[str, str]]]) -> Readers:
    """Who of a comparison reads which plain settings. Raises :class:`InputError` for a cost model that is broken, or
    does not take its settings: before the first run.
    """
    networks = {
        name: choice.from_options(name, network_settings.get(name, ())) for name in names if is_cost_model(name)
    }
    own = [typed for name in networks for typed in choice.own_settings(name)]
    for name in names:
        if name in DISAGGREGATION_POLICIES:
            chosen_settings(name, network_settings.get(name, ()))
            own += [f"{name}.{setting}" for setting, _ in own_settings()]
    if FLOW_PLAN in names:
        own += PLAN_NAMES
    if FLOW_PLAN in names or any(is_flow(name) for name in names):
        unread = {"objective", *KUBERNETES_SETTINGS}
        if not any(is_flow(name) for name in names) and not networks:
            unread.update(CHANGE_SETTINGS)
        if FLOW not in names and FLOW_PLAN not in names:
            # What every preset that takes part sets; topologies also leave the worth of GPUs aside.
            mine = [PRESETS[name].keys() for name in names if name in PRESETS]
            unread.update(set.intersection(*map(set, mine)))
            if UTILITY not in names:
                unread.update(("gpu_sets", "gpu_postpones", "gpu_weight"))
        return Readers(tuple(names), tuple(name for name in SETTING_NAMES if name not in unread), tuple(own))
    plain = dict.fromkeys(setting for policy in networks.values() for setting in choice.plain_settings(policy.features))
    return Readers(tuple(names), tuple(plain), tuple(own), f"settings of {FLOW} need --policy {FLOW}")


def engine_of(names: Sequence[str], assignments: Sequence[str], source: str = "--set") -> EngineOptions:
    """Options by the ``KEY=VALUE`` texts of a user. Raises :class:`InputError` for what none of the policies reads."""
    rest, network = choice.apart(assignments, [name for name in names if has_own_settings(name)])
    own, plan = apart(rest)
    return EngineOptions(
        apply_settings(Settings(), own, source, readers=readers(names, network)),
        plan=apply_plan_rules(PlanRules(), plan, source),
        network_settings=network,
    )


def schedulers(
    name: str, scenario: Scenario, seed: int, engine: EngineOptions, hosts: HostFactory
) -> Iterator[tuple[str, Scheduler]]:
    """Every variant of a policy, with the text that tells it from the others. Each scheduler serves one run."""
    settings = replace(engine.settings, objective=scenario.objective.value)
    yield from schedulers_with(name, settings, seed, engine, hosts, given=scenario.given_run_times)


def schedulers_with(
    name: str,
    settings: Settings,
    seed: int,
    engine: EngineOptions,
    hosts: HostFactory | None,
    *,
    given: bool = False,
) -> Iterator[tuple[str, Scheduler]]:
    """The same with settings of their own, which replace those of ``engine``. ``hosts``: None but for ``flow+plan`` makes
    each scheduler compute its own. ``given``: whether the run time of every task is given.
    """
    if name == FLOW_PLAN:
        # A plan is for all that waits: what runs stays.
        settings = replace(settings, preemption=Settings().preemption, migration_moves=0)
    if is_flow(name) or name == FLOW_PLAN:
        keep = engine.keep_records and is_flow(name)
        solver = limited(make_solver(engine.solver), engine.time_limit_s)
        if name in PRESETS:
            settings = replace(settings, **PRESETS[name])
        label = name if is_flow(name) else FLOW
        flow = FlowScheduler(solver, settings, hosts=hosts, keep_records=keep, name=label)
        if is_flow(name):
            yield "", flow
            return
        margin = min(engine.plan.slo_margin, settings.slo_margin)
        rules = replace(engine.plan, objective=settings.objective, slo_margin=margin, seed=seed)
        assert hosts is not None, "a plan needs the rates of the scenario's machines"
        yield "", PlannedScheduler(flow, rules, hosts)
        return
    if is_cost_model(name):
        yield "", network_scheduler(name, settings, engine, hosts)
        return
    if name in DISAGGREGATION_POLICIES:
        mine = chosen_settings(name, engine.network_settings.get(name, ()))
        solver = limited(make_solver(engine.solver), engine.time_limit_s)
        yield "", make_disaggregation(name, solver, mine, hosts, engine.keep_records)
        return
    variants = variants_of(name, given)
    for granting in variants:
        label = granting.label if len(variants) > 1 else ""
        baseline = make_baseline(name, granting, seed)
        yield label, RecordedBaseline(baseline, label, settings) if engine.keep_records else baseline


def network_scheduler(
    name: str, settings: Settings, engine: EngineOptions, hosts: HostFactory | None
) -> NetworkScheduler:
    """A cost model as a scheduler. Raises :class:`InputError` for one that is broken, or does not take its settings."""
    return NetworkScheduler(
        choice.chosen(name, engine.network_settings.get(name, ())),
        limited(make_solver(engine.solver), engine.time_limit_s),
        RoundSettings(**picked(settings, "due_age_s", "scoring", "drain", "aging_crosses_priority")),
        hosts=hosts,
        keep_records=engine.keep_records,
        headroom_weight=settings.headroom_weight,
        slo_margin=settings.slo_margin,
        changes=settings,
    )

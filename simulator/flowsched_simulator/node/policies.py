"""Every controller that can run one machine, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from flowsched.node import NodeController, NodeLearner
from flowsched.node.flow_node import FlowNode
from flowsched.node.settings import NodeSettings
from flowsched.round.linear.choice import value_of
from flowsched_models.document import InputError, Problem, nearest
from flowsched_simulator.node.baselines.low_weight import LowWeight, LowWeightAll
from flowsched_simulator.node.baselines.static import Static
from flowsched_simulator.node.baselines.two_queue import TwoQueue
from flowsched_simulator.node.scenario import NodeScenario
from flowsched_simulator.policies import OUR_PACKAGE, Description, known_names

FLOW_NODE = "flow-node"
TWO_QUEUE = "two-queue"
QUEUED = (TWO_QUEUE,)
"""The policies that take queues from a scenario."""
_LEAST = {"period_s": 0.001}
"""What a setting may be at least, where that is not 0."""
_MOST = 1e9


@dataclass(frozen=True)
class NodePolicy:
    """One of them."""

    summary: str
    place: str
    """Its code: ``module:Class``."""
    make: Callable[[NodeScenario, NodeSettings | None, NodeLearner | None], NodeController]
    """From a scenario, its settings where it has any, and what learns run times; baselines use none."""


def make_controller(
    name: str, scenario: NodeScenario, settings: NodeSettings | None = None, learner: NodeLearner | None = None
) -> NodeController:
    """A controller for one run. ``settings``: of ``flow-node``, as :func:`flow_node_settings` makes them; None: defaults.

    ``learner``: for ``flow-node``; None: run times are as forecast.
    """
    return NODE_POLICIES[name].make(scenario, settings, learner)


def check_node_policies(names: Sequence[str]) -> tuple[str, ...]:
    """The names without repetition; raises :class:`InputError` for those that there are not on one machine."""
    return known_names(names, NODE_POLICIES, "--policy", "there is no such policy for one machine")


def flow_node_settings(assignments: Sequence[str], names: Sequence[str], source: str = "--set") -> NodeSettings:
    """Settings of ``flow-node`` from ``flow-node.KEY=VALUE``, of the same key the last.

    ``names``: the policies that run. Raises :class:`InputError` with every mistake among the assignments.
    """
    settings = NodeSettings()
    kinds = {f.name: type(getattr(settings, f.name)).__name__ for f in fields(settings)}
    known = [f"{FLOW_NODE}.{key}" for key in kinds]
    changes: dict[str, Any] = {}
    problems = []
    for text in assignments:
        typed, equals, value = (part.strip() for part in text.partition("="))
        policy, _, key = typed.rpartition(".")
        key = key.replace("-", "_")
        if not equals:
            hint = f"such as --set {known[0]}=VALUE"
            problems.append(Problem(source, None, text, f"is not of the form {FLOW_NODE}.KEY=VALUE", hint))
        elif policy != FLOW_NODE or key not in kinds:
            close = nearest(f"{FLOW_NODE}.{key}", known)
            meant = f"did you mean '{close}={value}'? " if close else ""
            hint = f"{meant}(known: {', '.join(known)})"
            problems.append(Problem(source, None, text, f"there is no setting '{typed}' on one machine", hint))
        else:
            try:
                changes[key] = _parsed(value, kinds[key], _LEAST.get(key, 0.0))
            except ValueError as error:
                problems.append(Problem(source, None, "", f"{FLOW_NODE}.{key} {error}"))
    if not problems:
        try:
            settings = replace(settings, **changes)
        except ValueError as error:  # what settings say of themselves
            problems.append(Problem(source, None, FLOW_NODE, str(error)))
    if assignments and not problems and FLOW_NODE not in names:
        problems.append(Problem(source, None, assignments[0], f"is for {FLOW_NODE}", f"add --policy {FLOW_NODE}"))
    InputError.raise_any(problems)
    return settings


def describe_node_policy(name: str) -> Description:
    """What there is to know about one of them before it runs."""
    policy = NODE_POLICIES[name]
    settings: tuple[tuple[str, Any], ...] = ()
    if name == FLOW_NODE:
        usual = NodeSettings()
        settings = tuple((f"{FLOW_NODE}.{f.name}", getattr(usual, f.name)) for f in fields(usual))
    return Description(name, "controller", policy.summary, False, OUR_PACKAGE, policy.place, settings)


def _parsed(text: str, kind: str, least: float) -> Any:
    """Raises ``ValueError``, a sentence without its subject."""
    value = value_of(text, kind)
    if kind in ("int", "float") and not least <= value <= _MOST:
        raise ValueError(f"is {text}; give a number from {least:g} to {_MOST:g}")
    return value


_BASELINES = "flowsched_simulator.node.baselines"

NODE_POLICIES: Mapping[str, NodePolicy] = MappingProxyType(
    {
        FLOW_NODE: NodePolicy(
            "flowsched: the services' cores by SLO cost at the predicted load, jobs by marginal progress, pauses priced",
            "flowsched.node.flow_node:FlowNode",
            lambda scenario, settings, learner: FlowNode(scenario.node, settings or NodeSettings(), learner=learner),
        ),
        TWO_QUEUE: NodePolicy(
            "a queue on two cores, and one that shares a core with the service while its load is low and steady",
            f"{_BASELINES}.two_queue:TwoQueue",
            lambda scenario, *_: TwoQueue(scenario.node, **dict(scenario.hint(TWO_QUEUE).queues or ())),
        ),
        "low-weight": NodePolicy(
            "all jobs at the lowest CPU weight, the service's cores included, in a published order; never paused",
            f"{_BASELINES}.low_weight:LowWeight",
            lambda scenario, *_: LowWeight(scenario.node),
        ),
        "low-weight-all": NodePolicy(
            "all jobs at once on all cores at the lowest CPU weight, never paused",
            f"{_BASELINES}.low_weight:LowWeightAll",
            lambda scenario, *_: LowWeightAll(scenario.node),
        ),
        "static-2": NodePolicy(
            "two cores for each service at any load, the others for the jobs",
            f"{_BASELINES}.static:Static",
            lambda scenario, *_: Static(scenario.node, 2),
        ),
        "static-1": NodePolicy(
            "one core for each service at any load, the others for the jobs",
            f"{_BASELINES}.static:Static",
            lambda scenario, *_: Static(scenario.node, 1),
        ),
    }
)

"""Cost models by name: ours, and those that other packages announce."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flowsched.cluster.knowledge import Knowledge, knowledge_of
from flowsched.errors import PolicyError
from flowsched.pricing.linear.policy import CostModel, Feature
from flowsched.support.registry import Registry
from flowsched_models.document import Problem, name_help

GROUP = "flowsched.policies"
"""Entry points of this group are policies of other packages: ``name = "module:Class"``."""
_BUILT_IN = {
    "flow-network": "flowsched.pricing.linear.policies.flow:FlowCostModel",
    "quincy": "flowsched.pricing.linear.policies.quincy:QuincyPolicy",
    "load-spreading": "flowsched.pricing.linear.policies.load_spreading:LoadSpreadingPolicy",
    "coco": "flowsched.pricing.linear.policies.coco:CocoPolicy",
    "shortest-job-first": "flowsched.pricing.linear.policies.shortest_job_first:ShortestJobFirstPolicy",
    "trivial": "flowsched.pricing.linear.policies.trivial:TrivialPolicy",
}
ALIASES = {"flow": "flow-network"}
"""Names that are understood beside the listed ones; to users of the command line ``flow`` is the search."""
_MEMBERS = ("name", "features", "factors", "price")

PolicyFactory = Callable[..., CostModel]
"""A class, or a function, that makes a policy of its settings, all of them keywords with a default."""


@dataclass(frozen=True)
class Setting:
    """A keyword that a policy takes."""

    name: str
    default: Any
    """``inspect.Parameter.empty`` where one must be given."""
    kind: str = ""
    """What it is annotated with, as text; of one that is not annotated the type of its default; empty for anything."""


@dataclass(frozen=True)
class PolicyNotes:
    """What a policy says about itself."""

    name: str
    summary: str
    """The first line of its docstring."""
    settings: tuple[Setting, ...]
    package: str
    """The distribution that it comes from; empty for ours."""
    place: str = ""
    """Its code: ``module:Class``."""
    told: tuple[Knowledge, ...] | None = None
    """What it is told about tasks and machines; None where it does not say."""


def make_cost_model(name: str, **settings: Any) -> CostModel:
    """A policy by its name, or by an older one of ``ALIASES``, with settings as it documents them.

    Raises :class:`PolicyError`, a ``KeyError``, if it is unknown or cannot be loaded, does not take a setting or its value,
    or makes something that is no policy.
    """
    name = ALIASES.get(name, name)
    factory: PolicyFactory = COST_MODELS[name]
    known = settings_taken(factory)
    names = [setting.name for setting in known]
    for given in settings:
        if given not in names:
            raise _error(f"the policy '{name}' has no setting '{given}'", name_help(given, names))
    for setting in known:
        if setting.default is inspect.Parameter.empty and setting.name not in settings:
            raise _error(f"the policy '{name}' needs the setting '{setting.name}'", "it has no default")
    try:
        policy = factory(**settings)
    except ValueError as error:  # what a policy says of a value
        raise _error(f"the policy '{name}': {error}", "") from error
    except Exception as error:  # other people's code
        message = f"the policy '{name}' cannot be made ({type(error).__name__}: {error})"
        raise _error(message, f"its settings are {', '.join(names) or 'none'}") from error
    _check(name, policy)
    return policy


def describe_cost_model(name: str) -> PolicyNotes:
    """What a policy says about itself; raises :class:`PolicyError` as looking it up does."""
    name = ALIASES.get(name, name)
    factory: PolicyFactory = COST_MODELS[name]
    summary = (inspect.getdoc(factory) or "").partition("\n")[0].strip()
    package, place = COST_MODELS.package(name), COST_MODELS.place(name)
    return PolicyNotes(name, summary, settings_taken(factory), package, place, knowledge_of(factory))


def settings_taken(factory: PolicyFactory) -> tuple[Setting, ...]:
    """What it takes, as its signature has it."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # built in C, and silent about what it takes
        return ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(Setting(p.name, p.default, _kind(p)) for p in parameters if p.kind in named)


def _kind(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return type(parameter.default).__name__ if isinstance(parameter.default, bool | int | float) else ""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _check(name: str, policy: object) -> None:
    """Whether it looks like a policy; what it prices is checked where it is asked."""
    missing = [member for member in _MEMBERS if not hasattr(policy, member)]
    if missing:
        raise _error(
            f"the policy '{name}' makes a {type(policy).__name__} without {' and '.join(missing)}",
            f"a policy has {', '.join(_MEMBERS)}",
        )
    features = policy.features  # type: ignore[attr-defined]
    if not isinstance(features, tuple) or not all(isinstance(f, Feature) for f in features):
        raise _error(f"the policy '{name}' has features {features!r}", "give a tuple of Feature, empty for none")
    names = [f.name for f in features]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise _error(f"the policy '{name}' has the feature '{twice[0]}' twice", "features have names of their own")
    for feature in features:
        if not math.isfinite(feature.bucket) or feature.bucket < 0.0:
            raise _error(
                f"the policy '{name}' has a bucket of {feature.bucket} for '{feature.name}'",
                "give a width from 0 up; 0 is exact",
            )


def _error(message: str, help: str) -> PolicyError:
    return PolicyError([Problem("policies", None, "", message, help)])


def _check_factory(name: str, loaded: object, package: str) -> None:
    if not callable(loaded):
        raise _error(
            f"the policy '{name}' of {package} is {loaded!r}, which cannot be called",
            "its entry point should name a class or a function that makes a policy",
        )


COST_MODELS = Registry("policy", GROUP, _BUILT_IN, _check_factory, _error, ALIASES.keys())

"""The parts of the configuration file that the engine knows more about: its settings, and the cost model with its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pydantic.alias_generators import to_camel

from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHANGE_SETTINGS, apply_settings
from flowsched.scale import choice
from flowsched.scale.policy import Feature
from flowsched_k8s.configuration import FLOW, CostModelChoice
from flowsched_models.document import Document, InputError, Problem, name_help
from flowsched_models.quantity import shown

NOT_HERE = ("drain", *CHANGE_SETTINGS)
"""Settings that rounds on Kubernetes do not read: pods are preempted as by kube-scheduler, with their disruption budgets."""


def read_engine(document: Document, given: Mapping[str, Any]) -> tuple[Settings, list[Problem]]:
    """The engine's settings; its own form knows what a value may be."""
    settings = Settings()
    names = {to_camel(f.name): f.name for f in fields(Settings) if f.name not in NOT_HERE}
    problems = []
    for key, value in given.items():
        place = ("engine", key)
        if key not in names:
            problems.append(document.problem(place, f"there is no key '{key}' here", name_help(key, names)))
            continue
        kind = type(getattr(settings, names[key]))
        what = {bool: "true or false", str: "text"}.get(kind, "a number")
        fits = isinstance(value, kind) if kind in (bool, str) else isinstance(value, (int, float))
        if not fits or (isinstance(value, bool) and kind is not bool):
            problems.append(document.problem(place, f"must be {what}, but is {shown(value)}"))
            continue
        text = ("true" if value else "false") if kind is bool else str(value)
        try:
            settings = apply_settings(settings, [f"{names[key]}={text}"])
        except InputError as error:
            problems += [document.problem(place, p.message, p.help) for p in error.problems]
    return settings, problems


_ALWAYS_READ = ("due_age_s", "aging_crosses_priority", "slo_margin")
"""Settings of the engine that rounds of every cost model read: whom a node drains for, and which p95 goals are kept."""


def _read_with(features: Sequence[Feature]) -> set[str]:
    """The engine's settings that rounds of a cost model with these features read."""
    return {*_ALWAYS_READ, *choice.plain_settings(features)} - set(NOT_HERE)


def engine_settings(cost_model: CostModelChoice) -> list[str]:
    """The engine's settings that rounds read; all of them with ``flow``."""
    here = [f.name for f in fields(Settings) if f.name not in NOT_HERE]
    if cost_model.is_flow:
        return here
    read = _read_with(choice.configured(cost_model.name, cost_model.settings).features)
    return [name for name in here if name in read]


def read_cost_model(
    document: Document, given: str | Mapping[str, Any], engine: Mapping[str, Any], resize: bool
) -> tuple[CostModelChoice, list[Problem]]:
    """The cost model, and what of the engine's settings and of the features it has no use for; with all that is wrong."""
    settings = {} if isinstance(given, str) else {key: value for key, value in given.items() if key != "name"}
    name = given if isinstance(given, str) else given.get("name")
    place = ("costModel",) if isinstance(given, str) else ("costModel", "name")
    known = (FLOW, *choice.names())
    if not isinstance(name, str):
        message = "is missing" if name is None else f"must be text, but is {shown(name)}"
        return CostModelChoice(), [document.problem(place, message, f"one of {', '.join(known)}")]
    if name not in known:
        return CostModelChoice(), [document.problem(place, f"there is no cost model '{name}'", name_help(name, known))]
    if name == FLOW:
        problems = [
            document.problem(
                ("costModel", key), "is no setting of the cost model flow", "flow's settings are under engine"
            )
            for key in settings
        ]
        return CostModelChoice(), problems
    found = CostModelChoice(name, {key.replace("-", "_"): value for key, value in settings.items()})
    problems = []
    features: tuple[Feature, ...] = ()
    try:
        features = choice.configured(name, found.settings).features
    except InputError as error:
        typed = {key.replace("-", "_"): key for key in settings}
        problems = [
            document.problem(("costModel", typed[p.key]) if p.key in typed else ("costModel",), p.message, p.help)
            for p in error.problems
        ]
    read = _read_with(features)
    keys = ", ".join(to_camel(f.name) for f in fields(Settings) if f.name in read)
    names = {to_camel(f.name): f.name for f in fields(Settings) if f.name not in NOT_HERE}
    problems += [
        document.problem(
            ("engine", key), f"has no effect with the cost model {name}", f"remove it; {name} reads {keys}"
        )
        for key in engine
        if key in names and names[key] not in read
    ]
    if resize:
        message = f"has no effect with the cost model {name}: only flow chooses widths"
        problems.append(document.problem(("features", "resize"), message, "remove it, or costModel"))
    return found, problems

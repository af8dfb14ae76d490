"""The parts of the configuration file that the engine knows more about: its settings, and the cost model with its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from pydantic.alias_generators import to_camel

from flowsched.cluster.machine_arrays import PRESSURE
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHANGE_SETTINGS, KUBERNETES_SETTINGS, WORDS, apply_settings
from flowsched.pricing.linear.policy import Feature
from flowsched.round.linear import choice
from flowsched_k8s.names import FLOW
from flowsched_models.document import Document, InputError, KeyPath, Problem, name_help
from flowsched_models.form import refused
from flowsched_models.quantity import QuantityError, misfit, shown

NOT_HERE = ("drain", *CHANGE_SETTINGS)
"""Settings that rounds on Kubernetes do not read: pods are preempted as by kube-scheduler, with their disruption budgets."""
ENGINE_DEFAULTS = Settings(due_runs=0.0)
"""Run times of pods are estimates of profiles: until a cluster shows a gain, a pod is overdue after the due age alone."""
_KEYS = {to_camel(f.name): f.name for f in fields(Settings) if f.name not in NOT_HERE}
"""What the file may have under ``engine``, with its name in the engine."""


def read_engine(given: Mapping[str, Any]) -> Settings:
    """The engine's settings; its own form knows what a value may be. Raises :class:`pydantic.ValidationError`."""
    settings = ENGINE_DEFAULTS
    mistakes: list[tuple[KeyPath, QuantityError]] = []
    for key, value in given.items():
        if key not in _KEYS:
            mistakes.append(((key,), QuantityError(f"there is no key '{key}' here", name_help(key, _KEYS))))
            continue
        kind: type = type(getattr(ENGINE_DEFAULTS, _KEYS[key]))
        if _KEYS[key] in WORDS and not isinstance(value, str):
            kind = float
        if (wrong := misfit(value, kind)) is not None:
            mistakes.append(((key,), QuantityError(wrong)))
            continue
        text = ("true" if value else "false") if kind is bool else str(value)
        try:
            settings = apply_settings(settings, [f"{_KEYS[key]}={text}"])
        except InputError as error:
            mistakes += [((key,), QuantityError(p.message, p.help)) for p in error.problems]
    if mistakes:
        raise refused(mistakes)
    return settings


_ALWAYS_READ = ("due_age_s", "aging_crosses_priority", "slo_margin")
"""Settings of the engine that rounds of every cost model read: whom a node drains for, and which p95 goals are kept."""


def _read_with(features: Sequence[Feature]) -> list[str]:
    """The engine's settings that rounds of a cost model with these features read."""
    read = {*_ALWAYS_READ, *choice.plain_settings(features)}
    if any(feature.name == PRESSURE for feature in features):
        # Others break goals of services that are there.
        read |= {*KUBERNETES_SETTINGS}
    return [name for name in _KEYS.values() if name in read]


def engine_settings(name: str, settings: Mapping[str, Any]) -> list[str]:
    """The engine's settings that rounds with a cost model read; all of them with ``flow``."""
    return list(_KEYS.values()) if name == FLOW else _read_with(choice.configured(name, settings).features)


def read_cost_model(given: Any) -> tuple[str, dict[str, Any]]:
    """The name of the cost model and its settings. Raises :class:`pydantic.ValidationError`."""
    if not isinstance(given, (str, dict)):
        help = "write it as costModel: coco or costModel: {name: coco, waiting: 500}"
        raise QuantityError(
            f"must be the name of a cost model, or a mapping with its name, but is {shown(given)}", help
        )
    typed, place = ({"name": given}, ()) if isinstance(given, str) else (given, ("name",))
    name, known = typed.get("name"), (FLOW, *choice.names())
    if not isinstance(name, str):
        message = "is missing" if name is None else f"must be text, but is {shown(name)}"
        raise refused([(place, QuantityError(message, f"one of {', '.join(known)}"))])
    if name not in known:
        raise refused([(place, QuantityError(f"there is no cost model '{name}'", name_help(name, known)))])
    keys = {key.replace("-", "_"): key for key in typed if key != "name"}
    if name == FLOW and keys:
        mistake = QuantityError("is no setting of the cost model flow", "flow's settings are under engine")
        raise refused([((key,), mistake) for key in keys.values()])
    settings = {setting: typed[key] for setting, key in keys.items()}
    try:
        if name != FLOW:
            choice.configured(name, settings)
    except InputError as error:
        places: list[KeyPath] = [(keys[p.key],) if p.key in keys else () for p in error.problems]
        raise refused(
            (place, QuantityError(p.message, p.help)) for place, p in zip(places, error.problems, strict=True)
        ) from None
    return name, settings


_TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def engine_schema() -> dict[str, Any]:
    """The JSON Schema of ``engine``."""
    properties: dict[str, Any] = {
        key: {"type": ["number", "string"] if name in WORDS else _TYPES[type(getattr(ENGINE_DEFAULTS, name))]}
        for key, name in _KEYS.items()
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def cost_model_schema() -> dict[str, Any]:
    """The JSON Schema of ``costModel``: a name, or a mapping with it and the settings that this cost model has.

    What cost models of other packages take is not known here.
    """
    settings: dict[str, tuple[str, ...]] = {FLOW: (), **choice.settings_of_ours()}
    cases = []
    for name, keys in settings.items():
        named = {"properties": {"name": {"const": name}}, "required": ["name"], "type": "object"}
        written: dict[str, Any] = {key: {} for setting in keys for key in (setting, setting.replace("_", "-"))}
        cases.append({"if": named, "then": {"properties": {"name": {}, **written}, "additionalProperties": False}})
    form = {"type": ["string", "object"], "minLength": 1, "required": ["name"]}
    return {**form, "properties": {"name": {"type": "string", "minLength": 1}}, "allOf": cases}


def cost_model_conflicts(
    document: Document, understood: str, settings: Mapping[str, Any], resize: bool
) -> Iterator[Problem]:
    """What of the engine's settings and of the features the file's cost model has no use for.

    ``understood`` and ``settings`` are what was read of it; another name than the file's if it has mistakes.
    """
    given = document.data.get("costModel")
    name = given.get("name") if isinstance(given, dict) else given
    if name not in choice.names():
        return
    read = _read_with(choice.configured(name, settings).features if name == understood else ())
    keys = ", ".join(to_camel(setting) for setting in read)
    engine = document.data.get("engine")
    for key in engine if isinstance(engine, dict) else ():
        if key in _KEYS and _KEYS[key] not in read:
            message = f"has no effect with the cost model {name}"
            yield document.problem(("engine", key), message, f"remove it; {name} reads {keys}")
    if resize:
        message = f"has no effect with the cost model {name}: only flow chooses widths"
        yield document.problem(("features", "resize"), message, "remove it, or costModel")

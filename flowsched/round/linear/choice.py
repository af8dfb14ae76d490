"""Cost models as users choose them: by name, with what each says about itself, and settings as they are typed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from flowsched.cluster.settings_form import CHANGE_SETTINGS, SETTING_NAMES, TRUE
from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.errors import PolicyError
from flowsched.pricing.linear.policies import ALIASES, COST_MODELS, describe_cost_model, make_cost_model, settings_taken
from flowsched.pricing.linear.policy import ClassPrices, CostModel, Feature, labels_of
from flowsched_models.document import InputError, Problem, name_help, nearest

_BY_FEATURE = {"headroom": "headroom_weight", "pressure": "slo_margin"}
"""The engine's settings that are about latency services, by the feature that a policy has if it asks about them."""
_OF_ROUNDS = ("due_age_s", "aging_crosses_priority", "drain", *CHANGE_SETTINGS, "scoring")
"""The engine's settings that the rounds of all policies read."""
_NO_SETTING = object()
_JSON = ("tuple", "list", "dict", "Sequence", "Mapping")
"""What may be typed as JSON."""


class GuardedCostModel:
    """A policy, perhaps from another package: its errors are reported in one sentence."""

    def __init__(self, inner: CostModel) -> None:
        """Ask ``inner``."""
        self._inner = inner
        self.name = inner.name
        self.features = inner.features
        self.labels = labels_of(inner)

    def factors(self, kind: MachineKind) -> Sequence[float]:
        """What it says. Raises :class:`InputError` where it fails."""
        with self._told(f"machines of type {kind.type}"):
            return self._inner.factors(kind)

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        """What it says. Raises :class:`InputError` where it fails."""
        with self._told(f"class {task_class.name}"):
            return self._inner.price(task_class, kinds)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except ValueError as error:  # what a policy says of what it is asked about
            raise InputError.one("--policy", str(error), key=user_name(self.name)) from error
        except Exception as error:  # other people's code: anything may go wrong
            message = f"fails to price {what} ({type(error).__name__}: {error})"
            raise InputError.one("--policy", message, key=user_name(self.name)) from error


def user_name(policy: str) -> str:
    """The name by which users choose a cost model: an older one is replaced."""
    return ALIASES.get(policy, policy)


def names() -> tuple[str, ...]:
    """All of them, ours first; nothing is loaded."""
    return tuple(COST_MODELS)


def settings_of_ours() -> dict[str, tuple[str, ...]]:
    """Names of the settings of each cost model of ours; those of other packages are not loaded."""
    ours = (name for name in COST_MODELS if not COST_MODELS.package(name))
    return {name: tuple(setting.name for setting in describe_cost_model(name).settings) for name in ours}


def chosen(name: str, assignments: Sequence[tuple[str, str]] = ()) -> CostModel:
    """A policy by the name that users know, with settings as ``(key, value)`` texts of ``--set``; of the same key the last.

    Raises :class:`PolicyError` for one that there is not or that is broken, and :class:`InputError`, which names the
    option, for settings that it does not take.
    """
    notes = describe_cost_model(name)
    kinds = {setting.name: setting.kind for setting in notes.settings}
    given: dict[str, Any] = {}
    problems = []
    for typed, text in assignments:
        key = typed.replace("-", "_")
        if key not in kinds:
            message = f"the policy '{notes.name}' has no setting '{typed}'"
            close, known = nearest(key, kinds), ", ".join(f"{notes.name}.{known}" for known in kinds) or "none"
            hint = f"did you mean '{notes.name}.{close}={text}'? (known: {known})" if close else f"known: {known}"
            problems.append(Problem("--set", None, f"{notes.name}.{typed}={text}", message, hint))
            continue
        try:
            given[key] = value_of(text, kinds[key])
        except ValueError as error:
            problems.append(Problem("--set", None, "", f"{notes.name}.{key} {error}"))
    if problems:
        raise InputError(problems)
    try:
        return make_cost_model(name, **given)
    except PolicyError as error:
        said = str(error.__cause__)
        if not given or not isinstance(error.__cause__, ValueError):
            raise
        named = said.partition(" ")[0] in kinds  # the policy's sentence begins with the setting that it is about
        raise InputError.one("--set", f"{notes.name}{'.' if named else ': '}{said}") from error


def configured(name: str, settings: Mapping[str, Any]) -> CostModel:
    """A policy by its name with settings as a file has them; raises as :func:`chosen` does, each problem at its key."""
    notes = describe_cost_model(name)
    kinds = {setting.name: setting.kind for setting in notes.settings}
    given: dict[str, Any] = {}
    problems = []
    for key, value in settings.items():
        if key not in kinds:
            message = f"the cost model '{notes.name}' has no setting '{key}'"
            problems.append(Problem("costModel", None, key, message, name_help(key, kinds)))
            continue
        try:
            given[key] = value_of(value, kinds[key]) if isinstance(value, str) else _of_kind(value, kinds[key])
        except ValueError as error:
            problems.append(Problem("costModel", None, key, str(error)))
    if problems:
        raise InputError(problems)
    try:
        return make_cost_model(name, **given)
    except PolicyError as error:
        if not given or not isinstance(error.__cause__, ValueError):
            raise
        # The sentence begins with the setting that it is about.
        key, _, said = str(error.__cause__).partition(" ")
        if key not in kinds:
            key, said = "", str(error.__cause__)
        raise InputError.one("costModel", said, key=key) from error


def _of_kind(value: Any, kind: str) -> Any:
    """A value of a file that is no text, by a setting's annotation. Raises ``ValueError`` as :func:`value_of` does."""
    kinds = [part.strip() for part in kind.split("|")]
    wanted = [what for name, what in _WANTED.items() if name in kinds]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "bool": isinstance(value, bool),
        "int": number and float(value).is_integer(),
        "float": number,
    }
    if wanted and not any(fits[name] for name in _WANTED if name in kinds) and not ("None" in kinds and value is None):
        raise ValueError(f"is {value!r}; give {' or '.join(wanted)}")
    if number and "float" in kinds:
        return float(value)
    return value


def settings_of(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a policy as JSON has them: those that are given, the others at their defaults; infinity as text."""
    notes = describe_cost_model(name).settings
    values = {setting.name: settings.get(setting.name, setting.default) for setting in notes}
    return {key: plain_setting(value) for key, value in values.items()}


def shown_settings(policy: CostModel) -> dict[str, Any]:
    """The settings of a policy that it has as attributes of the same names, as JSON has them; ours have all of theirs."""
    found = {s.name: plain_setting(getattr(policy, s.name, _NO_SETTING)) for s in settings_taken(type(policy))}
    return {name: value for name, value in found.items() if isinstance(value, str | int | float | list | dict | None)}


def plain_setting(value: Any) -> Any:
    """A setting as JSON has it; infinity as text, which is read back."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return [plain_setting(inner) for inner in value] if isinstance(value, tuple | list) else value


def from_options(name: str, assignments: Sequence[tuple[str, str]] = ()) -> CostModel:
    """The policy that ``--policy`` asks for; raises :class:`InputError`, which names the option that is wrong."""
    try:
        return chosen(name, assignments)
    except PolicyError as error:
        raise InputError([Problem("--policy", None, "", p.message, p.help) for p in error.problems]) from error


def plain_settings(features: Sequence[Feature]) -> tuple[str, ...]:
    """The engine's settings that rounds of a policy with these features read; of exact rounds ``exact_tasks`` as well."""
    names = {feature.name for feature in features}
    return (*_OF_ROUNDS, *(setting for feature, setting in _BY_FEATURE.items() if feature in names))


def own_settings(name: str) -> tuple[str, ...]:
    """A policy's own settings as they are typed, such as ``coco.bucket``. Raises :class:`PolicyError` if it is broken."""
    return tuple(f"{name}.{setting.name}" for setting in describe_cost_model(name).settings)


def apart(
    assignments: Sequence[str], policies: Sequence[str], hint: str = "add --policy {}"
) -> tuple[list[str], Mapping[str, list[tuple[str, str]]]]:
    """Settings that name one of the cost models ``policies`` before a dot, such as ``coco.growth=1``, by policy; and
    all others as they are. Raises :class:`InputError` for those of a policy that is not among them, with ``hint``, in which
    braces stand for its name.
    """
    own: list[str] = []
    theirs: dict[str, list[tuple[str, str]]] = {}
    for text in assignments:
        key, equals, value = (part.strip() for part in text.partition("="))
        policy, dot, setting = key.rpartition(".")
        if not equals or not dot:
            own.append(text)
        elif policy in policies:
            theirs.setdefault(policy, []).append((setting, value))
        elif policy in names():
            raise InputError.one("--set", f"is for {policy}", hint.format(policy), key=key)
        elif policy in ALIASES and (meant := _without_alias(policy, setting)):
            missing = "" if meant == setting or ALIASES[policy] in policies else f", with --policy {ALIASES[policy]}"
            hint = f"did you mean '{meant}={value}'{missing}?"
            raise InputError.one("--set", f"there is no setting '{key}'", hint, key=text)
        else:
            own.append(text)
    return own, theirs


def _without_alias(policy: str, setting: str) -> str | None:
    """Help for a setting with ``flow.`` before it: it may be meant for the engine, or for ``flow-network``."""
    setting = setting.replace("-", "_")
    if setting in SETTING_NAMES:
        return setting
    name = f"{ALIASES[policy]}.{setting}"
    return name if name in own_settings(ALIASES[policy]) else None


def value_of(text: str, kind: str) -> Any:
    """What was typed, by a setting's annotation: a number, yes or no, a list or mapping as JSON; whatever else is text.

    Raises ``ValueError``, a sentence without its subject, for a text that is none of what is annotated.
    """
    kinds = [part.strip() for part in kind.split("|")]
    if "None" in kinds and text.lower() == "none":
        return None
    if "bool" in kinds and text.lower() in TRUE:
        return TRUE[text.lower()]
    for name, parse in (("int", int), ("float", float)):
        if name in kinds:
            try:
                return parse(text)
            except ValueError:
                continue
    wanted = [what for name, what in _WANTED.items() if name in kinds]
    if wanted and "str" not in kinds:
        raise ValueError(f"is {text!r}; give {' or '.join(wanted)}")
    if kind.partition("[")[0].rpartition(".")[2] in _JSON:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


_WANTED = {"bool": "true or false", "int": "a whole number", "float": "a number"}

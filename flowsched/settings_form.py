"""Settings as a user gives them: ``KEY=VALUE``, checked all together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from flowsched.settings import Settings
from flowsched_models.document import InputError, Problem, name_help

_TRUE = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_AT_LEAST_ONE = frozenset({"slots", "starts", "pricings"})
_ABOVE_ZERO = frozenset({"beta", "goal_factor", "goal_step", "slo_margin"})


def apply_settings(settings: Settings, assignments: Iterable[str], source: str = "--set") -> Settings:
    """Settings with ``KEY=VALUE`` assignments applied; raises :class:`InputError` with every mistake among them."""
    known = {f.name: type(getattr(settings, f.name)) for f in fields(settings)}
    changes: dict[str, object] = {}
    problems = []
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in known:
            problems.append(
                Problem(
                    source,
                    None,
                    text,
                    f"there is no setting '{key}'" if equals else "give KEY=VALUE",
                    name_help(key, known),
                )
            )
            continue
        try:
            changes[key] = _parse(key, value.strip(), known[key])
        except ValueError as e:
            problems.append(Problem(source, None, key, str(e), ""))
    if "objective" in changes and changes["objective"] not in ("makespan", "completion"):
        problems.append(
            Problem(
                source, None, "objective", f"there is no objective '{changes['objective']}'", "makespan or completion"
            )
        )
    if problems:
        raise InputError(problems)
    return replace(settings, **changes)  # type: ignore[arg-type]


def _parse(key: str, text: str, kind: type) -> object:
    if kind is bool:
        if text.lower() not in _TRUE:
            raise ValueError(f"'{text}' is neither true nor false")
        return _TRUE[text.lower()]
    if kind is str:
        return text
    what = "a whole number" if kind is int else "a number"
    least = 1 if key in _AT_LEAST_ONE else 0
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"'{text}' is not {what}") from None
    if key in _ABOVE_ZERO and not number > 0:
        raise ValueError(f"{text} is not above 0")
    if not least <= number < float("inf"):
        raise ValueError(f"{text} is not {what} from {least} up")
    return number

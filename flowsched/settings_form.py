"""Settings as a user gives them: ``KEY=VALUE``, checked all together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from flowsched.settings import Settings
from flowsched_models.document import InputError, Problem, nearest

_TRUE = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
RANGES: dict[str, tuple[float, float]] = {
    "eps": (0.0, 1e6),
    "beta": (1e-6, 1e6),
    "goal_factor": (1e-3, 1e6),
    "length_weight": (0.0, 10.0),
    "headroom_weight": (0.0, 1e6),
    "slo_margin": (1e-3, 1e3),
    "slots": (1, 16),
    "passes": (0, 1000),
    "exchanges": (0, 1000),
    "goal_steps": (0, 100),
    "goal_step": (1e-6, 0.5),
    "starts": (1, 100),
    "waiting_weight": (0.0, 1e6),
    "due_age_s": (0.0, 1e9),
    "round_period_s": (0.0, 1e9),
    "resolves": (0, 100),
    "exact_limit": (0, 10_000_000),
    "exact_tasks": (0, 100),
    "pricings": (1, 1_000_000_000),
}
"""What a number may be: wide enough for any experiment, narrow enough that a round ends and costs stay in range."""


def apply_settings(settings: Settings, assignments: Iterable[str], source: str = "--set") -> Settings:
    """Settings with ``KEY=VALUE`` assignments applied; raises :class:`InputError` with every mistake among them."""
    known = {f.name: type(getattr(settings, f.name)) for f in fields(settings)}
    changes: dict[str, object] = {}
    problems = []
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in known:
            message = f"there is no setting '{key}'" if equals else "is not of the form KEY=VALUE"
            close = key if key in known else nearest(key, known)
            hint = f"did you mean '{close}={value or '...'}'? " if close else ""
            problems.append(Problem(source, None, text, message, f"{hint}(known: {', '.join(known)})"))
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
    least, most = RANGES[key]
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"'{text}' is not {what}") from None
    if not least <= number <= most:
        raise ValueError(f"{text} is not {what} from {least:g} to {most:g}")
    return number

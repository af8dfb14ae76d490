"""What ``flow+plan`` may do, as a user gives it: ``plan.KEY=VALUE`` among the settings, checked all together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowsched.planner.rules import PlanRules
from flowsched_models.document import InputError, Problem, nearest

PREFIX = "plan."
_WORDS: dict[str, tuple[str, ...]] = {"weights": ("equal", "widths", "free"), "cores": ("shared", "exclusive")}
_NUMBERS: dict[str, tuple[float, float]] = {"evaluations": (0, 100_000_000), "slo_margin": (1e-3, 1e3)}
PLAN_NAMES = tuple(f"{PREFIX}{name}" for name in (*_WORDS, *_NUMBERS))


def apart(assignments: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Assignments of the engine's settings, and those of plans."""
    every = tuple(assignments)
    plan = tuple(text for text in every if text.strip().startswith(PREFIX))
    return tuple(text for text in every if text not in plan), plan


def apply_plan_rules(rules: PlanRules, assignments: Iterable[str], source: str = "--set") -> PlanRules:
    """Rules with ``plan.KEY=VALUE`` assignments applied; raises :class:`InputError` with every mistake among them."""
    known = (*_WORDS, *_NUMBERS)
    changes: dict[str, object] = {}
    problems = []
    for text in assignments:
        key, equals, value = (part.strip() for part in text.partition("="))
        key = key.removeprefix(PREFIX).replace("-", "_")
        if not equals or key not in known:
            message = f"there is no setting '{PREFIX}{key}'" if equals else "is not of the form KEY=VALUE"
            close = key if key in known else nearest(key, known)
            listed = f"known: {', '.join(PLAN_NAMES)}"
            help = f"did you mean '{PREFIX}{close}={value or '...'}'? ({listed})" if close else listed
            problems.append(Problem(source, None, text, message, help))
        elif key in _WORDS and value not in _WORDS[key]:
            message = f"'{value}' is none of {', '.join(_WORDS[key])}"
            problems.append(Problem(source, None, f"{PREFIX}{key}", message, ""))
        elif key == "cores":
            changes["share_cores"] = value == "shared"
        elif key in _WORDS:
            changes[key] = value
        else:
            number = _number(key, value)
            if number is None:
                what = "a whole number" if key == "evaluations" else "a number"
                message = "'{}' is not {} from {:g} to {:g}".format(value, what, *_NUMBERS[key])
                problems.append(Problem(source, None, f"{PREFIX}{key}", message, ""))
            else:
                changes[key] = number
    InputError.raise_any(problems)
    return replace(rules, **changes)  # type: ignore[arg-type]


def _number(key: str, text: str) -> float | int | None:
    least, most = _NUMBERS[key]
    try:
        number = int(text) if key == "evaluations" else float(text)
    except ValueError:
        return None
    return number if least <= number <= most else None

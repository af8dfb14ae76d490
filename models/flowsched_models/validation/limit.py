"""Limits on errors, for a site's own tests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flowsched_models.document import InputError, Problem
from flowsched_models.quantity import number_or_nan
from flowsched_models.validation.score import Quantity
from flowsched_models.validation.validation import Validation

LIMITS = {
    "--limit-median": (Quantity.DURATION, "median", "duration error, median"),
    "--limit-p90": (Quantity.DURATION, "p90", "duration error, p90"),
    "--limit-makespan": (Quantity.MAKESPAN, "median", "makespan error, median"),
    "--limit-p95": (Quantity.P95, "median", "p95 error, median"),
}
"""By option: what it limits, and in words."""


@dataclass(frozen=True)
class Limit:
    """A limit on an error, and how it came out; in per cent."""

    option: str
    limit: float
    value: float

    @property
    def exceeded(self) -> bool:
        """Whether the error is more than the limit."""
        return self.value > self.limit

    def __str__(self) -> str:
        """One line."""
        outcome = "exceeds" if self.exceeded else "is within"
        return f"{LIMITS[self.option][2]}: {self.value:.2f} % {outcome} {self.limit:g} % ({self.option})"


LEAST_PLAIN = 0.5
"""A smaller number without a percent sign is a fraction, as a rule: 0.06 for 6 %."""


def read_percent(option: str, text: str) -> float:
    """``6``, ``6%`` or ``6 %`` as 6.0. Raises :class:`InputError`, also for a small number without a percent sign."""
    value = number_or_nan(text.strip().removesuffix("%").strip())
    if not (math.isfinite(value) and value >= 0.0):
        raise InputError.one(option, f"'{text}' is not a limit in per cent", f"{option} 6%")
    if 0.0 < value < LEAST_PLAIN and "%" not in text:
        message = f"limits are in per cent, and {text.strip()} is probably meant as a fraction"
        help = f"write {100 * value:g}%, or {text.strip()}% if that is meant"
        raise InputError.one(option, message, help)
    return value


def check_limits(validation: Validation, asked: dict[str, float], source: str) -> tuple[Limit, ...]:
    """How the limits came out. Raises :class:`InputError` for those that there is nothing to check against."""
    found, problems = [], []
    for option, limit in asked.items():
        quantity, figure, words = LIMITS[option]
        errors = validation.errors(quantity)
        if errors is None:
            problems.append(Problem(source, None, "", f"nothing here can be scored for {option} ({words})"))
        else:
            found.append(Limit(option, limit, getattr(errors, figure)))
    InputError.raise_any(problems)
    return tuple(found)

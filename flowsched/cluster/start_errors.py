"""How far starts and ends of waiting tasks were from what rounds had planned, and the intervals that follow from that.

A round plans a waiting task for one of the next completions of a machine, so it forecasts its start and its end. It knows
neither the tasks that come later nor what later rounds plan. So the errors are counted as they turn out: of a start that was
forecast in f seconds and came after a seconds, ``ln((a + 10) / (f + 10))``, in classes of a tenth. The interval from the
10 % to the 90 % quantile of these errors holds four of five starts, whatever their distribution, while that stays what it is
(conformal prediction: V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in a Random World", 2005, chapter 2; with
quantiles of held-out errors: J. Lei and others, "Distribution-Free Predictive Inference for Regression", JASA 113, 2018,
section 2.2). Old errors fade, so that it may change.

The expected moment is the plan where that lies in the shortest interval that holds half of the errors, and else the plan
corrected by the middle of this interval (P. J. Rousseeuw, "Least Median of Squares Regression", JASA 79, 1984, section 1).
Where many tasks wait, those that come later start first, and most plans are too early; where few wait, most are right, and
to correct them was measured to tell seconds less well.

The longest waits are the last to be known. So a forecast whose task still waits counts too, as an error that is known to be
larger than what has passed so far: quantiles are of the product-limit estimate (E. L. Kaplan, P. Meier, "Nonparametric
Estimation from Incomplete Observations", JASA 53, 1958). It ends where only such forecasts are left. So while more than half
of them are open, the plan is corrected by what is known of the others at most; the interval reaches to the latest that any
is already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowsched.support.arrays import FloatArray

_CLASS = 0.1
_FLOOR_S = 10.0
"""Added to both sides of a quotient: that a start comes in a second and not at once makes no wait many times as long."""
FARTHEST = 80
"""Errors count in classes from minus this to this."""
MOST_ERRORS = 4096
"""Once so many errors are counted, each class counts half."""
SHARE = 0.8
"""Of starts and ends that an interval is to hold."""
_USUAL_STARTS = (-8, -5, -4, -3, -2, -2, -1, 0, 2, 6)
_USUAL_ENDS = (-2, -1, -1, -1, 0, 0, 0, 1, 2, 3)
"""Classes that count once each beside what is seen: the middles of the tenths of `benchmarks.start_forecasts`, on seeds that
it does not report."""

_STEPS = 20
_SHARES = tuple(k / _STEPS for k in range(1, _STEPS))
"""Of which quantiles of errors are looked at."""
_LEAST = round(_STEPS * (1.0 - SHARE) / 2.0) - 1
"""Which of them an interval begins with."""

ErrorClasses = tuple[tuple[int, int], ...]
"""Classes of errors, ascending, with how many there are of each."""
Factors = tuple[float, float, float]
"""How many times its forecast something takes: at least in nine of ten cases, in the middle, and at most in nine of ten."""


class Interval(NamedTuple):
    """A moment that lies ahead, in seconds of the clock that its forecast is told in."""

    earliest_s: float
    """Before it lies a tenth."""
    expected_s: float
    """The plan, corrected by the middle of errors where most plans are wrong, if that is in between."""
    latest_s: float
    """After it lies a tenth."""


@dataclass(frozen=True)
class StartErrors:
    """Errors of the forecasts of starts, and of ends, so far."""

    starts: ErrorClasses = ()
    ends: ErrorClasses = ()
    open_starts: ErrorClasses = ()
    """Of forecasts whose tasks still wait: how late they are already."""
    open_ends: ErrorClasses = ()
    """Of forecasts whose tasks wait or run."""

    def with_starts(self, errors: ErrorClasses) -> StartErrors:
        """After these errors of starts."""
        return replace(self, starts=_faded(_sum((*self.starts, *errors))))

    def with_ends(self, errors: ErrorClasses) -> StartErrors:
        """After these errors of ends."""
        return replace(self, ends=_faded(_sum((*self.ends, *errors))))

    def with_open(self, starts: ErrorClasses, ends: ErrorClasses) -> StartErrors:
        """With these of forecasts that nothing is known of yet; equal errors are the same object."""
        if (starts, ends) == (self.open_starts, self.open_ends):
            return self
        return replace(self, open_starts=starts, open_ends=ends)

    def start(self, planned_s: float, now_s: float) -> Interval:
        """When a task starts that is planned for a moment, both of one clock."""
        return _interval(planned_s, now_s, self._of_starts)

    def end(self, planned_s: float, now_s: float) -> Interval:
        """When a task ends that is planned to end at a moment."""
        return _interval(planned_s, now_s, self._of_ends)

    def starts_in(self, planned_s: FloatArray) -> FloatArray:
        """[tasks, 3] the three moments of starts that are planned in so many seconds, in seconds from now."""
        return _spans(planned_s, self._of_starts)

    def ends_in(self, planned_s: FloatArray) -> FloatArray:
        """The same of ends."""
        return _spans(planned_s, self._of_ends)

    @cached_property
    def _of_starts(self) -> Factors:
        """How many times its forecast a start takes; asked for by every task that waits."""
        return _factors(self.starts, self.open_starts, _USUAL_STARTS)

    @cached_property
    def _of_ends(self) -> Factors:
        """The same of an end."""
        return _factors(self.ends, self.open_ends, _USUAL_ENDS)


NO_START_ERRORS = StartErrors()
"""Nothing was seen yet."""


def error_classes(forecast_s: FloatArray, actual_s: FloatArray, weight: FloatArray) -> ErrorClasses:
    """Of forecasts and what came, [errors] seconds from when each was made, each of which stands for ``weight`` of them."""
    errors = np.log((np.maximum(0.0, actual_s) + _FLOOR_S) / (np.maximum(0.0, forecast_s) + _FLOOR_S))
    classes = np.clip(np.floor(errors / _CLASS), -FARTHEST, FARTHEST).astype(np.int64)
    counts = np.bincount(classes + FARTHEST, weight).astype(np.int64)
    there = np.flatnonzero(counts)
    return tuple(zip((there - FARTHEST).tolist(), counts[there].tolist(), strict=True))


def read_error_classes(counts: Mapping[int, int]) -> ErrorClasses:
    """From counts by class, as they stand in files."""
    return _sum(counts.items())


def _sum(errors: Iterable[tuple[int, int]]) -> ErrorClasses:
    found: dict[int, int] = {}
    for at, count in errors:
        found[at] = found.get(at, 0) + count
    return tuple(sorted((at, count) for at, count in found.items() if count > 0))


def _faded(errors: ErrorClasses) -> ErrorClasses:
    while sum(count for _, count in errors) > MOST_ERRORS:
        errors = tuple((at, count // 2) for at, count in errors if count > 1)
    return errors


def _factors(errors: ErrorClasses, still_open: ErrorClasses, usual: tuple[int, ...]) -> Factors:
    known, end = _quantiles(_SHARES, _sum((*errors, *((at, 1) for at in usual))), dict(still_open))
    half = _STEPS // 2
    least = known[min(_LEAST, len(known) - 1)] if known else 0.0
    last = len(_SHARES) - 1 - _LEAST
    most = known[last] if last < len(known) else max(least, end)
    if len(known) > half:
        width, low = min((known[k + half] - known[k], k) for k in range(len(known) - half))
        # Errors of a class are spread over it: one of nothing may count as a class.
        right = not errors or known[low] - _CLASS <= 0.0 <= known[low] + width + _CLASS
        middle = 0.0 if right else known[low] + width / 2.0
    else:
        # Nothing is known yet of most of them, but that they are at least as late as these.
        middle = max(known, default=0.0)
    return math.exp(least), math.exp(min(most, max(least, middle))), math.exp(most)


def _interval(planned_s: float, now_s: float, factors: Factors) -> Interval:
    known = max(0.0, planned_s - now_s) + _FLOOR_S
    return Interval(*(round(now_s + max(0.0, known * factor - _FLOOR_S), 6) for factor in factors))


def _spans(planned_s: FloatArray, factors: Factors) -> FloatArray:
    known = np.maximum(0.0, planned_s) + _FLOOR_S
    found: FloatArray = np.maximum(0.0, known[:, None] * np.array(factors) - _FLOOR_S)
    return found


def _quantiles(
    shares: Iterable[float], errors: ErrorClasses, still_open: Mapping[int, int]
) -> tuple[list[float], float]:
    """The errors that shares of all, ascending, are below, as far as that is known; and the end of the classes that are in
    use. Errors of a class are spread evenly over it, and open ones lie at its end.
    """
    seen = dict(errors)
    at_risk = sum(seen.values()) + sum(still_open.values())
    left, found = list(reversed([*shares])), []
    beyond, at = 1.0, 0
    for at in sorted({*seen, *still_open}):
        gone = beyond * seen.get(at, 0) / at_risk
        # Where none is known the sum stays, and may reach a share by rounding only.
        while gone and left and 1.0 - beyond + gone >= left[-1]:
            found.append(_CLASS * (at + (left.pop() - 1.0 + beyond) / gone))
        beyond -= gone
        at_risk -= seen.get(at, 0) + still_open.get(at, 0)
    return found, _CLASS * (at + 1)

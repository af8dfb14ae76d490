"""A load that grows or falls evenly: the line through the latest readings, where they lie on one."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_FEWEST = 6
"""Readings that a line needs."""
SCATTER_OF = 30
"""Readings that tell how much counts scatter."""
_MEDIAN_CHI2 = 0.455
"""Median of the square of a standard normal number."""
_BEGINS = 16.0
"""A line must explain so many variances more than the best single jump does: a jump is none, nor are two small ones."""
_STAYS = 9.0
"""A line that was there stays while its slope is so many variances from 0, and no jump explains as many more."""
_JUMP = 10.0
"""Readings before a jump are forgotten where it explains so many variances more than the line."""
_BEND = 9.0
"""The eldest readings are forgotten where a parabola explains so many variances more than the line."""
_FORGOTTEN = 6
"""One reading of so many is forgotten at a bend."""

Span = tuple[float, float, int]
"""A reading: its middle and its length in seconds, and the queries counted in it."""


@dataclass(frozen=True)
class Line:
    """Queries per second over time, with how sure that is."""

    middle_s: float
    rate: float
    """Queries per second in the middle of the readings."""
    slope: float
    """Queries per second, per second."""
    rate_variance: float
    slope_variance: float

    def rate_at(self, t_s: float) -> float:
        """Queries per second at a time."""
        return self.rate + self.slope * (t_s - self.middle_s)

    def error_at(self, t_s: float) -> float:
        """Standard deviation of that."""
        return math.sqrt(self.rate_variance + self.slope_variance * (t_s - self.middle_s) ** 2)


def dispersion_of(squares: Collection[float]) -> float:
    """Variance of a count over its mean, at least 1. ``squares``: of differences, over those of independent arrivals."""
    return 1.0 if len(squares) < 3 else max(1.0, statistics.median(squares) / _MEDIAN_CHI2)


class Ramp:
    """Looks for a line in the readings of the last ``kept_s`` seconds; 0: there is never one.

    A line must explain the readings much better than one level does, and better than two levels: after a jump there is no
    line. Readings from before a jump or a bend are forgotten, so that a curve is followed by its last, straight part.
    """

    def __init__(self, kept_s: float) -> None:
        """Nothing is known yet."""
        self.line: Line | None = None
        """Through the latest readings; None where they do not lie on one."""
        self._kept_s = kept_s
        self._spans: deque[Span] = deque()
        self._bends: deque[float] = deque(maxlen=SCATTER_OF)
        """Squares of second differences of neighbouring rates, over what independent arrivals would have."""

    def forget(self) -> None:
        """What was counted says nothing about what comes."""
        self._spans.clear()
        self.line = None

    @property
    def dispersion(self) -> float:
        """Variance of a count over its mean, at least 1. A ramp does not change it: second differences do not see it."""
        return dispersion_of(self._bends)

    def add(self, t_s: float, step_s: float, queries: int) -> None:
        """Queries that were counted in the ``step_s`` seconds before ``t_s``."""
        spans = self._spans
        self._learn(step_s, queries)
        spans.append((t_s - 0.5 * step_s, step_s, queries))
        while spans and spans[0][0] < t_s - self._kept_s:
            spans.popleft()
        followed, self.line = self.line is not None, None
        while len(spans) >= _FEWEST:
            forgotten = self._fit(followed)
            if not forgotten:
                return
            for _ in range(forgotten):
                spans.popleft()

    def _learn(self, step_s: float, queries: int) -> None:
        if len(self._spans) < 2:
            return
        (_, s1, q1), (_, s2, q2) = self._spans[-2], self._spans[-1]
        rates = (q1 / s1, q2 / s2, queries / step_s)
        expected = rates[0] / s1 + 4.0 * rates[1] / s2 + rates[2] / step_s
        if expected > 0.0:
            self._bends.append((rates[0] - 2.0 * rates[1] + rates[2]) ** 2 / expected)

    def _fit(self, followed: bool) -> int:
        """Look for a line. Returns how many of the eldest readings are to be forgotten before another look."""
        spans = self._spans
        seconds = sum(s for _, s, _ in spans)
        mean = sum(q for _, _, q in spans) / seconds
        if mean <= 0.0:
            return 0
        middle_s = sum(x * s for x, s, _ in spans) / seconds
        spread = sum(s * (x - middle_s) ** 2 for x, s, _ in spans)
        slope = sum((x - middle_s) * (q - mean * s) for x, s, q in spans) / spread
        # All in variances of what was counted: how much better a line, a jump, a parabola explain it than one level does.
        scatter = self.dispersion
        by_line = slope * slope * spread / mean
        if by_line <= _STAYS * scatter:
            return 0
        by_jump, place = _best_jump(spans, mean, seconds)
        if by_jump - by_line > _JUMP * scatter:
            return place
        if _bend(spans, mean, middle_s, spread / seconds) > _BEND * scatter:
            return max(1, len(spans) // _FORGOTTEN)
        rest = sum((q - s * (mean + slope * (x - middle_s))) ** 2 / s for x, s, q in spans) / mean
        scatter = max(scatter, rest / (len(spans) - 2))
        if by_line > _STAYS * scatter and by_line - by_jump > (-_STAYS if followed else _BEGINS) * scatter:
            self.line = Line(middle_s, mean, slope, scatter * mean / seconds, scatter * mean / spread)
        return 0


def _best_jump(spans: Iterable[Span], mean: float, seconds: float) -> tuple[float, int]:
    """What the best single jump explains, and the reading that begins after it."""
    best, place = 0.0, 0
    before_s = before = 0.0
    for k, (_, step_s, queries) in enumerate(spans):
        if k:
            more = before - mean * before_s
            explained = more * more * seconds / (before_s * (seconds - before_s) * mean)
            if explained > best:
                best, place = explained, k
        before_s += step_s
        before += queries
    return best, place


def _bend(spans: Iterable[Span], mean: float, middle_s: float, variance: float) -> float:
    """What a parabola explains beyond a line. ``variance``: of the readings' times."""
    skew = sum(s * (x - middle_s) ** 3 for x, s, _ in spans) / (variance * sum(s for _, s, _ in spans))
    explained = length = 0.0
    for x, step_s, queries in spans:
        curve = (x - middle_s) ** 2 - skew * (x - middle_s) - variance
        explained += curve * (queries - mean * step_s)
        length += step_s * curve * curve
    return explained * explained / (length * mean)

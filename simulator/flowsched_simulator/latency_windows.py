"""The p95 of a service over windows of ten seconds, from the stretches of time in which it did not change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW_S = 10.0
"""Length of the windows over which p95 is reported."""
_TINY_S = 1e-9


class LatencySpan(NamedTuple):
    """A time in which a service's p95 stays the same: from ``begin_s`` to ``end_s``."""

    begin_s: float
    end_s: float
    p95_us: float


class LatencySpans(list[LatencySpan]):
    """All of a service's stretches, in order and without gaps; equal neighbours are one."""

    def add(self, begin_s: float, end_s: float, p95_us: float) -> None:
        """Append one; times in seconds, ``p95_us`` in microseconds."""
        if self and self[-1].p95_us == p95_us:
            begin_s = self.pop().begin_s
        self.append(LatencySpan(begin_s, end_s, p95_us))


class EqualWindows(NamedTuple):
    """So many windows of equal p95, one after the other; the very last may be shorter than ten seconds."""

    begin_s: float
    end_s: float
    p95_us: float
    windows: int


def windows_of(stretches: Sequence[LatencySpan], first_s: float, last_s: float) -> Iterator[EqualWindows]:
    """The time-weighted p95 from ``first_s`` to ``last_s``, neighbours of equal p95 as one.

    There are never more of them than twice the stretches, however long these are.
    """
    for p95_us, equal in groupby(_windows(stretches, first_s, last_s), key=lambda each: each.p95_us):
        each = list(equal)
        yield EqualWindows(each[0].begin_s, each[-1].end_s, p95_us, sum(one.windows for one in each))


def _windows(stretches: Sequence[LatencySpan], first_s: float, last_s: float) -> Iterator[EqualWindows]:
    total = max(0, math.ceil((last_s - first_s - _TINY_S) / WINDOW_S))
    window = at = 0
    while window < total:
        begin, end = first_s + window * WINDOW_S, min(first_s + (window + 1) * WINDOW_S, last_s)
        while at + 1 < len(stretches) and stretches[at].end_s <= begin:
            at += 1
        if stretches[at].end_s >= end:
            inside = total if stretches[at].end_s >= last_s else math.floor((stretches[at].end_s - first_s) / WINDOW_S)
            count = max(1, inside - window)
            end = min(first_s + (window + count) * WINDOW_S, last_s)
            yield EqualWindows(begin, end, stretches[at].p95_us, count)
            window += count
            continue
        weighted, other = 0.0, at
        while other < len(stretches) and stretches[other].begin_s < end:
            stretch = stretches[other]
            weighted += max(0.0, min(stretch.end_s, end) - max(stretch.begin_s, begin)) * stretch.p95_us
            other += 1
        yield EqualWindows(begin, end, weighted / (end - begin), 1)
        window += 1


def median(values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """The median of values that stand so many times each."""
    order = np.argsort(values, kind="stable")
    until = np.cumsum(counts[order])
    middle = np.searchsorted(until, [(until[-1] - 1) // 2, until[-1] // 2], side="right")
    return float(values[order][middle].mean())

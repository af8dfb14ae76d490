"""Mean, median and p95 of a figure over seeds, each with its 95 % interval.

The interval of a mean is Student's over seeds, which are independent; jobs of one run are not. Intervals of quantiles are
bootstrap percentiles (Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13): seeds are drawn, each with
all its jobs, by a generator with a fixed seed, so that the same runs give the same interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched_simulator.experiment.paired import LEVEL, half_width

RESAMPLES = 2000
_RANDOM_SEED = 20_000
_MOST_VALUES = 1000
"""Of a run with more jobs, so many of its quantiles stand for them."""


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval; ``low`` and ``high`` are None for fewer than two seeds."""

    value: float
    low: float | None
    high: float | None


def mean_of(values: Sequence[float]) -> Interval:
    """Mean over seeds of one value each, with Student's interval."""
    found = np.asarray(values, dtype=np.float64)
    mean, count = float(found.mean()), len(found)
    if count < 2:
        return Interval(mean, None, None)
    half = half_width(found)
    return Interval(mean, mean - half, mean + half)


def quantile_of(groups: Sequence[Sequence[float] | NDArray[np.float64]], q: float) -> Interval:
    """A quantile (``q``: 0 to 1) of all values of all seeds, with its bootstrap interval; a group for each seed."""
    thinned = [_thinned(np.asarray(group, dtype=np.float64)) for group in groups if len(group)]
    if not thinned:
        raise ValueError("there are no values")
    values = np.concatenate(thinned)
    owner = np.repeat(np.arange(len(thinned)), [len(group) for group in thinned])
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    # Every value counts by the share of its run that it stands for.
    weight = np.array([len(group) for group in groups if len(group)]) / np.array([len(group) for group in thinned])
    value = _weighted(values, weight[owner], q)
    if len(thinned) < 2:
        return Interval(value, None, None)
    rng = np.random.default_rng(_RANDOM_SEED)
    drawn = rng.multinomial(len(thinned), np.full(len(thinned), 1.0 / len(thinned)), size=RESAMPLES)
    found = [_weighted(values, (weight * times)[owner], q) for times in drawn]
    low, high = np.quantile(found, [LEVEL / 2.0, 1.0 - LEVEL / 2.0])
    return Interval(value, float(low), float(high))


def _thinned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(values) <= _MOST_VALUES:
        return values
    return np.quantile(values, (np.arange(_MOST_VALUES) + 0.5) / _MOST_VALUES)


def _weighted(values: NDArray[np.float64], weights: NDArray[np.float64], q: float) -> float:
    """The least value that so much of the weight is at or below; ``values`` ascend."""
    until = np.cumsum(weights)
    place = int(np.searchsorted(until, q * until[-1] * (1.0 - 1e-12)))
    return float(values[min(place, len(values) - 1)])

"""The arithmetic of learnt run times: what completions tell of the shares of variances, and what follows for a class.

Compiled, since it runs after each completion; :mod:`flowsched.cluster.learnt_run_times` says what is computed and has the
sources. What classes tell is rounded to whole numbers, so that their sum is the same in any order, also where one class at
a time is taken out and put in again.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from flowsched_models.cell import Floats, Ints
from flowsched_models.compiled import compiler

compiled = compiler([Path(__file__)])

DETERMINANT, SQUARES, RUNS = range(3)
"""What a class tells of each point of the grid: the logarithm of the determinant of its covariance over the variance of
runs, the squares that are weighed by the inverse of that, both in ``PRECISION``, and its completions."""
PRECISION = 2.0**20
_MOST = 2.0**48
"""Of one class: sums of classes stay whole numbers."""


@compiled
def add_class(runs: Floats, logs: Floats, squares: Floats, ratios: Floats, sign: int, told: Ints) -> None:
    """Add to ``told`` [3, points], times ``sign``, what one class tells of each point.

    ``runs``, ``logs``, ``squares`` [types]: completions on each type, sum of logarithms and of their squares; ``ratios``
    [points, 2]: variances of types within a class and of classes over that of runs.
    """
    for point in range(len(ratios)):
        of_type, of_class = ratios[point]
        determinant = weighed = precision = centre = 0.0
        for t in range(len(runs)):
            mean, variance = logs[t] / runs[t], of_type + 1.0 / runs[t]
            determinant += math.log(variance * runs[t])
            weighed += max(0.0, squares[t] - logs[t] * mean) + mean * mean / variance
            precision += 1.0 / variance
            centre += mean / variance
        wider = 1.0 + of_class * precision
        determinant += math.log(wider)
        weighed -= of_class * centre * centre / wider
        told[DETERMINANT, point] += sign * int(np.rint(PRECISION * determinant))
        told[SQUARES, point] += sign * int(np.rint(min(PRECISION * max(0.0, weighed), _MOST)))
        told[RUNS, point] += sign * int(runs.sum())


@compiled
def weigh(told: Ints, prior: Floats, variance: float, count: float, weights: Floats, found: Floats) -> None:
    """Into ``weights`` [points] the probability of each point, and into ``found`` [points] the variance of runs there.

    ``prior`` [points] is the logarithm of the probability before; the variance of runs is ``variance`` before, which counts
    for ``count`` completions.
    """
    most = -np.inf
    for point in range(len(prior)):
        squares, ends = count * variance + told[SQUARES, point] / PRECISION, count + told[RUNS, point]
        found[point] = squares / ends
        weights[point] = prior[point] - 0.5 * (told[DETERMINANT, point] / PRECISION + ends * math.log(squares))
        most = max(most, weights[point])
    total = 0.0
    for point in range(len(prior)):
        weights[point] = math.exp(weights[point] - most)
        total += weights[point]
    weights /= total


@compiled
def expect(
    runs: Floats,
    logs: Floats,
    ratios: Floats,
    weights: Floats,
    variances: Floats,
    few: float,
    bounded: Floats,
    steps: float,
    found: Floats,
) -> None:
    """Into ``found`` [1 + types, 2] factor and spread of the next run of a class on a type that it did not run on, then on
    each of its types, in ``steps`` of the logarithm; ``runs`` and ``logs`` [types] as above.

    ``bounded`` [2, 2 n + 1]: factors of -n to n steps within their bounds, and within those of classes with fewer
    completions than ``few``. What a bound leaves out is spread, so that no quantile on its side comes too early.
    """
    types = len(runs)
    found[:] = 0.0
    for point in range(len(ratios)):
        if weights[point] == 0.0:
            continue
        of_type, of_class = ratios[point]
        precision = centre = 0.0
        for t in range(types):
            own = 1.0 / (of_type + 1.0 / runs[t])
            precision += own
            centre += own * (logs[t] / runs[t])
        left = of_class / (1.0 + of_class * precision)
        log = left * centre
        for row in range(types + 1):
            here, variance = log, left + of_type
            if row > 0:
                # The share of what the type's own runs are off by that is taken to be chance.
                chance = 1.0 / (of_type * runs[row - 1] + 1.0)
                here += (1.0 - chance) * (logs[row - 1] / runs[row - 1] - log)
                variance = of_type * chance + chance * chance * left
            found[row, 0] += weights[point] * here
            found[row, 1] += weights[point] * ((variance + 1.0) * variances[point] + here * here)
    farthest, within = bounded.shape[1] // 2, bounded[1 if runs.sum() < few else 0]
    for row in range(types + 1):
        mean = found[row, 0]
        spread = math.sqrt(max(0.0, found[row, 1] - mean * mean))
        step = int(min(max(np.rint(steps * mean), -farthest), farthest))
        found[row, 0] = within[step + farthest]
        found[row, 1] = np.rint(steps * (spread + abs(mean - math.log(found[row, 0])))) / steps

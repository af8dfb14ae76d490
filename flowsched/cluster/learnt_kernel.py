"""The arithmetic of learnt run times: variances from sums, and what is expected of each class and machine type.

Compiled, since it runs after each completion; :mod:`flowsched.cluster.learnt_run_times` says what is computed and has the
sources. Additions are in the order of entries, so that results are the same on every processor.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from flowsched_models.cell import Floats, Ints
from flowsched_models.compiled import compiler

compiled = compiler([Path(__file__)])

RUN, TYPE, CLASS = range(3)
"""The variances: of runs within a class and type, of types within a class, of classes."""
_TINY = 1e-12


@compiled
def learn_variances(
    class_of: Ints, classes: int, runs: Floats, logs: Floats, squares: Floats, priors: Floats, found: Floats
) -> None:
    """Into ``found`` [3] the variances that entries tell of, each of a class on a type.

    ``class_of``, ``runs``, ``logs``, ``squares`` [entries]: number of the class, completions, sum of logarithms and of their
    squares; ``priors`` [3, 2]: variance, and how many degrees of freedom it counts for.
    """
    within = freedom = 0.0
    types, centre, inverse = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    for e in range(len(runs)):
        mean = logs[e] / runs[e]
        within += max(0.0, squares[e] - logs[e] * mean)
        freedom += runs[e] - 1.0
        types[class_of[e]] += 1.0
        centre[class_of[e]] += mean
        inverse[class_of[e]] += 1.0 / runs[e]
    run = (priors[RUN, 1] * priors[RUN, 0] + within) / (priors[RUN, 1] + freedom)
    excess = freedom = 0.0
    for c in range(classes):
        centre[c] /= types[c]
        excess -= (1.0 - 1.0 / types[c]) * run * inverse[c]
        freedom += types[c] - 1.0
    for e in range(len(runs)):
        off = logs[e] / runs[e] - centre[class_of[e]]
        excess += off * off
    of_type = (priors[TYPE, 1] * priors[TYPE, 0] + max(0.0, excess)) / (priors[TYPE, 1] + freedom)
    excess = 0.0
    for c in range(classes):
        excess += centre[c] * centre[c] - of_type / types[c] - run * inverse[c] / (types[c] * types[c])
    of_class = (priors[CLASS, 1] * priors[CLASS, 0] + max(0.0, excess)) / (priors[CLASS, 1] + classes)
    found[RUN], found[TYPE], found[CLASS] = max(run, _TINY), max(of_type, _TINY), max(of_class, _TINY)


@compiled
def expect(
    class_of: Ints,
    classes: int,
    runs: Floats,
    logs: Floats,
    variances: Floats,
    few: float,
    bounded: Floats,
    steps: float,
    found: Floats,
) -> None:
    """Into ``found`` [3, entries + classes] what is expected of the next run of each entry, and of each class on a type that
    it did not run on: factor and spread, in ``steps`` of the logarithm, and the completions behind them.

    ``bounded`` [2, 2 n + 1]: factors of -n to n steps within their bounds, and within those of classes with fewer
    completions than ``few``.
    """
    run, of_type, entries = variances[RUN], variances[TYPE], len(runs)
    log, precision, total = np.zeros(classes), np.zeros(classes), np.zeros(classes)
    for e in range(entries):
        own = 1.0 / (of_type + run / runs[e])
        precision[class_of[e]] += own
        log[class_of[e]] += own * (logs[e] / runs[e])
        total[class_of[e]] += runs[e]
    for c in range(classes):
        precision[c] += 1.0 / variances[CLASS]
        log[c] /= precision[c]
    farthest = bounded.shape[1] // 2
    for row in range(entries + classes):
        c = class_of[row] if row < entries else row - entries
        here, variance, count = log[c], 1.0 / precision[c] + of_type, total[c]
        if row < entries:
            count = runs[row]
            left = 1.0 - of_type / (of_type + run / count)
            here += (1.0 - left) * (logs[row] / count - log[c])
            variance = of_type * left + left * left / precision[c]
        step = int(min(max(np.rint(steps * here), -farthest), farthest))
        found[0, row] = bounded[1 if total[c] < few else 0, step + farthest]
        found[1, row] = np.rint(steps * math.sqrt(variance + run)) / steps
        found[2, row] = count

"""How long tasks of a class run relative to their forecasts, learnt from completions, for each class and machine type.

The logarithm of a run time over its forecast *for exactly the neighbours, machine and cores of that run* is taken to be
``a + b + e``: a of the class, b of the class on the machine type, e of the run, each normal around 0 with a variance of
its own (a nested random-effects model: S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components", 1992, chapters 3
and 5). The variances are learnt over all classes: from the spread of runs around their class and type, of types around
their class, and of classes around their forecasts, each by its unbiased moment and with a prior that counts as a few of
them. Then a and b are the best linear predictors of that model (empirical Bayes: B. Efron, C. Morris, "Data Analysis
Using Stein's Estimator and its Generalizations", JASA 70(350), 1975): one completion is enough where classes differ by
more than their runs do, and where runs are as scattered as classes no factor moves away from 1.

Events add to sums of whole numbers, so that the order of completions makes no difference; all else follows from the sums.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowsched.cluster.still_running import run_length
from flowsched.support.arrays import FloatArray, IntArray

LEARNT_FACTORS = (1.0 / 8.0, 8.0)
"""The least and the largest factor that is learnt."""
FEW_RUNS = 3
"""A class with fewer completions has its factor within ``EARLY_FACTORS``."""
EARLY_FACTORS = (1.0 / 2.0, 2.0)
RUN_VARIANCE, RUN_COUNT = 0.2**2, 4.0
"""Prior of the variance of runs within a class and type, and how many degrees of freedom it counts for."""
TYPE_VARIANCE, TYPE_COUNT = 0.15**2, 4.0
"""The same of types within a class."""
CLASS_VARIANCE, CLASS_COUNT = 0.3**2, 2.0
"""The same of classes."""
_MICRO, _NANO = 10**6, 10**9
_DIGITS = 2
"""Decimals of the logarithm of a factor, and of a spread: in steps of 1 % a round finds what an earlier one worked out."""
_TINY = 1e-12


class ClassRuns(NamedTuple):
    """The completions of a class on a machine type."""

    run_class: str
    machine_type: str
    runs: int
    micro_logs: int
    """Sum of the logarithms of run times over forecasts, in millionths."""
    nano_squares: int
    """Sum of their squares, in billionths."""

    @classmethod
    def of(cls, run_class: str, machine_type: str, runs: int, log_sum: float, log_squares: float) -> ClassRuns:
        """From the numbers as they stand in files."""
        return cls(run_class, machine_type, runs, round(log_sum * _MICRO), round(log_squares * _NANO))

    @property
    def log_sum(self) -> float:
        """Sum of the logarithms of run times over forecasts."""
        return self.micro_logs / _MICRO

    @property
    def log_squares(self) -> float:
        """Sum of their squares."""
        return self.nano_squares / _NANO

    def with_end(self, done: float) -> ClassRuns:
        """After one more completion, of a task that ran for ``done`` (above 0) times its forecast."""
        micro = round(math.log(done) * _MICRO)
        squares = self.nano_squares + round(micro * micro * _NANO / _MICRO**2)
        return self._replace(runs=self.runs + 1, micro_logs=self.micro_logs + micro, nano_squares=squares)


class LearntRunTime(NamedTuple):
    """What is expected of the next run of a class."""

    factor: float
    """Its run time over its forecast, the median."""
    spread: float
    """Standard deviation of the logarithm of its run time around that."""
    runs: int
    """Completions that it was learnt from: those of the class on the machine type, or where there are none, on all types."""

    def length(self, done: float) -> float:
        """How many times its forecast a run is estimated to take in all, that has run for ``done`` times it already."""
        if done <= 0.0:
            return self.factor
        squares = self.runs * self.spread**2
        return self.factor * float(run_length(done / self.factor, self.spread, float(self.runs), squares))


class Variances(NamedTuple):
    """Of the logarithm of run times over forecasts."""

    run: float
    """Of runs around the mean of their class and type."""
    type: float
    """Of the means of types around that of their class."""
    run_class: float
    """Of the means of classes around 0."""


@dataclass(frozen=True)
class LearntRunTimes:
    """The completions of all classes, by class and machine type, and what follows from them."""

    classes: tuple[ClassRuns, ...] = ()
    """In the order of class and machine type, each pair once."""
    applied: bool = True
    """Whether forecasts use the factors; else they are only shown."""

    def with_end(self, run_class: str, machine_type: str, done: float) -> LearntRunTimes:
        """After one more completion, of a task of a class that ran for ``done`` (above 0) times its forecast."""
        at = bisect_left(self.classes, (run_class, machine_type))
        known = self.classes[at : at + 1]
        if known and known[0][:2] == (run_class, machine_type):
            return replace(self, classes=(*self.classes[:at], known[0].with_end(done), *self.classes[at + 1 :]))
        new = ClassRuns(run_class, machine_type, 0, 0, 0).with_end(done)
        return replace(self, classes=(*self.classes[:at], new, *self.classes[at:]))

    def of(self, run_class: str, machine_type: str | None = None) -> LearntRunTime | None:
        """What is expected of a class on a machine type, or on one that is not known; None for a class without completions,
        and where factors are not applied.
        """
        return self.shown(run_class, machine_type) if self.applied and run_class else None

    def shown(self, run_class: str, machine_type: str | None = None) -> LearntRunTime | None:
        """The same whether or not forecasts use it."""
        rows = self._rows.get(run_class)
        if rows is None:
            return None
        key = run_class, machine_type if machine_type in rows.types else None
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._estimate(rows, key[1])
        return found

    def factors(self, run_class: str) -> tuple[tuple[str, float], ...]:
        """The factors of a class: on types that it did not run on (""), and on each that it ran on; empty where there is
        none. Forecasts that are worked out from these can be remembered by them.
        """
        rows = self._rows.get(run_class) if self.applied and run_class else None
        if rows is None:
            return ()
        types = (("", None), *((name, name) for name in rows.types))
        return tuple((name, found.factor) for name, key in types if (found := self.of(run_class, key)) is not None)

    @property
    def in_use(self) -> bool:
        """Whether any forecast may differ from that of its profile."""
        return self.applied and bool(self.classes)

    @cached_property
    def variances(self) -> Variances:
        """The three of the model, learnt over all completions."""
        return self._components[0]

    @cached_property
    def _rows(self) -> dict[str, _ClassRows]:
        """By class, where its entries are."""
        found: dict[str, _ClassRows] = {}
        for row, entry in enumerate(self.classes):
            known = found.setdefault(entry.run_class, _ClassRows(len(found), {}))
            known.types[entry.machine_type] = row
        return found

    @cached_property
    def _found(self) -> dict[tuple[str, str | None], LearntRunTime]:
        """What was asked for."""
        return {}

    @cached_property
    def _components(self) -> tuple[Variances, FloatArray, FloatArray]:
        """The variances; [classes] the predictors of classes, and how uncertain these are (variances)."""
        classes = np.repeat(np.arange(len(self._rows)), [len(rows.types) for rows in self._rows.values()])
        runs, logs, squares = self._sums
        variances = _variances(classes, runs, logs, squares)
        precision = 1.0 / (variances.type + variances.run / runs)
        count = len(self._rows)
        total = 1.0 / variances.run_class + np.bincount(classes, precision, count)
        predictors = np.bincount(classes, precision * logs / runs, count) / total
        return variances, predictors.astype(np.float64), (1.0 / total).astype(np.float64)

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """[entries] completions, sums of logarithms, and of squares."""
        numbers = np.array([entry[2:] for entry in self.classes], np.float64).reshape(-1, 3).T
        return numbers[0], numbers[1] / _MICRO, numbers[2] / _NANO

    def _estimate(self, rows: _ClassRows, machine_type: str | None) -> LearntRunTime:
        variances, predictors, uncertainties = self._components
        runs, logs, _ = self._sums
        log, variance = float(predictors[rows.number]), float(uncertainties[rows.number])
        whole = sum(int(runs[row]) for row in rows.types.values())
        if machine_type is None:
            count, variance = whole, variance + variances.type
        else:
            row = rows.types[machine_type]
            count = int(runs[row])
            shrunk = variances.type / (variances.type + variances.run / count)
            log += shrunk * (float(logs[row]) / count - log)
            variance = variances.type * (1.0 - shrunk) + (1.0 - shrunk) ** 2 * variance
        least, most = EARLY_FACTORS if whole < FEW_RUNS else LEARNT_FACTORS
        factor = min(most, max(least, math.exp(round(log, _DIGITS))))
        return LearntRunTime(factor, round(math.sqrt(variance + variances.run), _DIGITS), count)


NOTHING_LEARNT = LearntRunTimes()
"""Before the first completion."""


class _ClassRows(NamedTuple):
    """Where the entries of a class are."""

    number: int
    """Of the class, counted from 0."""
    types: dict[str, int]
    """Rows by machine type."""


def _variances(classes: IntArray, runs: FloatArray, logs: FloatArray, squares: FloatArray) -> Variances:
    """The variances that entries tell of, each of a class ([entries] numbers of classes, completions and sums)."""
    count = int(classes.max(initial=-1)) + 1
    means = logs / runs
    # Sums of many numbers by fsum: the order in which numpy adds depends on the processor.
    within = math.fsum(np.maximum(0.0, squares - logs * means).tolist())
    freedom = math.fsum((runs - 1.0).tolist())
    run = (RUN_COUNT * RUN_VARIANCE + within) / (RUN_COUNT + freedom)
    types = np.bincount(classes, minlength=count).astype(np.float64)
    noise = np.bincount(classes, run / runs, count)
    centre = np.bincount(classes, means, count) / types
    between = np.bincount(classes, (means - centre[classes]) ** 2, count) - (1.0 - 1.0 / types) * noise
    excess = max(0.0, math.fsum(between.tolist()))
    of_type = (TYPE_COUNT * TYPE_VARIANCE + excess) / (TYPE_COUNT + math.fsum((types - 1.0).tolist()))
    excess = max(0.0, math.fsum((centre**2 - of_type / types - noise / types**2).tolist()))
    of_class = (CLASS_COUNT * CLASS_VARIANCE + excess) / (CLASS_COUNT + count)
    return Variances(max(run, _TINY), max(of_type, _TINY), max(of_class, _TINY))

"""How long tasks of a class run relative to their forecasts, learnt from completions, for each class and machine type.

The logarithm of a run time over its forecast *for exactly the neighbours, machine and cores of that run* is taken to be
``a + b + e``: a of the class, b of the class on the machine type, e of the run, each normal around 0 with a variance of
its own (a nested random-effects model: S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components", 1992, chapters 3
and 5). The variances are learnt over all classes: from the spread of runs around their class and type, of types around
their class, and of classes around their forecasts, each by its unbiased moment and with a prior that counts as a few of
them. Then a and b are the best linear predictors of that model (empirical Bayes: B. Efron, C. Morris, "Data Analysis
Using Stein's Estimator and its Generalizations", JASA 70(350), 1975): one completion is enough where classes differ by
more than their runs do, and where runs are as scattered as classes no factor moves away from 1.

Events add to sums of whole numbers, and all else follows from the sums. Old runs fade: once ``MOST_RUNS`` are counted of a
class on a type, all of them count half. Until then the order of completions makes no difference.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.learnt_kernel import expect, learn_variances
from flowsched.cluster.still_running import late_length, run_length, spread_of
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
MOST_ENTRIES = 4096
"""Classes and types that are known; of more, those seen least recently are forgotten."""
_STEPS = 100
"""Steps of the logarithm of a factor, and of a spread: of 1 %, so that a round finds what an earlier one worked out."""


class LearntRunTime(NamedTuple):
    """What is expected of the next run of a class."""

    factor: float
    """Its run time over its forecast, the median."""
    spread: float
    """Standard deviation of the logarithm of its run time around that."""
    runs: int
    """Completions that it was learnt from: those of the class on the machine type, or where there are none, on all types."""

    @property
    def squares(self) -> float:
        """Sum of the squared logarithms of that many run times of this spread."""
        return self.runs * self.spread**2

    def length(self, done: float) -> float:
        """How many times its forecast a run is estimated to take in all, that has run for ``done`` times it already."""
        if done <= 0.0:
            return self.factor
        return self.factor * float(run_length(done / self.factor, self.spread, float(self.runs), self.squares))

    def late_length(self, done: float, share: float) -> float:
        """The quantile of that."""
        relative = done / self.factor
        spread = spread_of(relative, self.spread, float(self.runs), self.squares)
        return self.factor * late_length(relative, spread, share)


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
        at, last = bisect_left(self.classes, (run_class, machine_type)), self._last + 1
        known = self.classes[at : at + 1]
        if known and known[0][:2] == (run_class, machine_type):
            entry = known[0].with_end(done, last)
            found = replace(self, classes=(*self.classes[:at], entry, *self.classes[at + 1 :]))
            # All but the sums of this entry stays: completions between two rounds cost no more than that.
            sums = self._sums.copy()
            sums[:, at] = _sums_of(entry)
            found.__dict__.update(_last=last, _index=self._index, _sums=sums)
            return found
        new = ClassRuns(run_class, machine_type, 0, 0, 0).with_end(done, last)
        kept = self.classes
        if len(kept) >= MOST_ENTRIES:
            oldest = min(range(len(kept)), key=lambda row: kept[row].last)
            kept, at = (*kept[:oldest], *kept[oldest + 1 :]), at - (oldest < at)
        found = replace(self, classes=(*kept[:at], new, *kept[at:]))
        found.__dict__["_last"] = last
        return found

    def of(self, run_class: str, machine_type: str | None = None) -> LearntRunTime | None:
        """What is expected of a class on a machine type, or on one that is not known; None for a class without completions,
        and where factors are not applied.
        """
        if not (self.applied and run_class):
            return None
        known = self._found.get((run_class, machine_type))
        return self.shown(run_class, machine_type) if known is None else known

    def shown(self, run_class: str, machine_type: str | None = None) -> LearntRunTime | None:
        """The same whether or not forecasts use it."""
        key = run_class, machine_type
        try:
            return self._found[key]
        except KeyError:
            found = self._found[key] = self._estimate(run_class, machine_type)
            return found

    def factors(self, run_class: str) -> tuple[tuple[str, float], ...]:
        """The factors of a class: on types that it did not run on (""), and on each that it ran on; empty where there is
        none. Forecasts that are worked out from these can be remembered by them.
        """
        if not (self.applied and run_class):
            return ()
        found = self._factors_found.get(run_class)
        if found is None:
            found = self._factors_found[run_class] = self._factors_of(run_class)
        return found

    def _factors_of(self, run_class: str) -> tuple[tuple[str, float], ...]:
        rows = self._index.of_class.get(run_class)
        if rows is None:
            return ()
        of_entry, of_class = self._estimates
        here = ((name, float(of_entry.factor[row])) for name, row in rows.types.items())
        return (("", float(of_class.factor[rows.number])), *here)

    def _estimate(self, run_class: str, machine_type: str | None) -> LearntRunTime | None:
        rows = self._index.of_class.get(run_class)
        if rows is None:
            return None
        row = None if machine_type is None else rows.types.get(machine_type)
        of_entry, of_class = self._estimates
        return of_class.row(rows.number) if row is None else of_entry.row(row)

    @property
    def in_use(self) -> bool:
        """Whether any forecast may differ from that of its profile."""
        return self.applied and bool(self.classes)

    @cached_property
    def variances(self) -> Variances:
        """The three of the model, learnt over all completions."""
        found = np.empty(len(_PRIORS))
        runs, logs, squares = self._sums
        learn_variances(self._index.class_of, len(self._index.of_class), runs, logs, squares, _PRIORS, found)
        return Variances(*found.tolist())

    @cached_property
    def _found(self) -> dict[tuple[str, str | None], LearntRunTime | None]:
        """What was asked for: a round asks for each running task, and they are of few classes."""
        return {}

    @cached_property
    def _factors_found(self) -> dict[str, tuple[tuple[str, float], ...]]:
        """The factors that were asked for, by class."""
        return {}

    @cached_property
    def _last(self) -> int:
        """Number of the last completion."""
        return max((entry.last for entry in self.classes), default=0)

    @cached_property
    def _index(self) -> _Index:
        found: dict[str, _ClassRows] = {}
        for row, entry in enumerate(self.classes):
            known = found.setdefault(entry.run_class, _ClassRows(len(found), {}))
            known.types[entry.machine_type] = row
        counts = [len(rows.types) for rows in found.values()]
        return _Index(found, np.repeat(np.arange(len(found)), counts))

    @cached_property
    def _sums(self) -> FloatArray:
        """[completions, sum of logarithms, of their squares; entries]"""
        rows = np.array([_sums_of(entry) for entry in self.classes], np.float64).reshape(-1, 3)
        # Compiled code is made for arrays in this order.
        return np.ascontiguousarray(rows.T)

    @cached_property
    def _estimates(self) -> tuple[_Estimates, _Estimates]:
        """Of each entry, and of each class on types that it did not run on."""
        class_of, classes, entries = self._index.class_of, len(self._index.of_class), len(self.classes)
        found = np.empty((3, entries + classes))
        runs, logs, _ = self._sums
        expect(class_of, classes, runs, logs, np.array(self.variances), FEW_RUNS, _BOUNDED, _STEPS, found)
        return _Estimates(*found[:, :entries]), _Estimates(*found[:, entries:])


NOTHING_LEARNT = LearntRunTimes()
"""Before the first completion."""


class _ClassRows(NamedTuple):
    """Where the entries of a class are."""

    number: int
    """Of the class, counted from 0."""
    types: dict[str, int]
    """Rows by machine type."""


class _Index(NamedTuple):
    """Where entries are; it stays while none comes or goes."""

    of_class: Mapping[str, _ClassRows]
    class_of: IntArray
    """[entries] numbers of their classes."""


class _Estimates(NamedTuple):
    """What is expected of the next runs, [entries or classes] each."""

    factor: FloatArray
    spread: FloatArray
    runs: FloatArray

    def row(self, at: int) -> LearntRunTime:
        """One of them."""
        return LearntRunTime(float(self.factor[at]), float(self.spread[at]), int(self.runs[at]))


def _sums_of(entry: ClassRuns) -> tuple[int, float, float]:
    return entry.runs, entry.log_sum, entry.log_squares


_FARTHEST = math.ceil(_STEPS * math.log(LEARNT_FACTORS[1]))
_FACTORS = np.array([math.exp(step / _STEPS) for step in range(-_FARTHEST, _FARTHEST + 1)])
"""By step. Not by numpy's exp, whose last bit depends on the processor, and a run on the last bit."""
_BOUNDED = np.array([np.clip(_FACTORS, *LEARNT_FACTORS), np.clip(_FACTORS, *EARLY_FACTORS)])
"""[whether completions are few, steps] the same within bounds."""
_PRIORS = np.array([(RUN_VARIANCE, RUN_COUNT), (TYPE_VARIANCE, TYPE_COUNT), (CLASS_VARIANCE, CLASS_COUNT)])

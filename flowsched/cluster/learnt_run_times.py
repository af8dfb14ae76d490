"""How long tasks of a class run relative to their forecasts, learnt from completions, for each class and machine type.

The logarithm of a run time over its forecast *for exactly the neighbours, machine and cores of that run* is taken to be
``a + b + e``: a of the class, b of the class on the machine type, e of the run, each normal around 0 with a variance of
its own (a nested random-effects model: S. R. Searle, G. Casella, C. E. McCulloch, "Variance Components", 1992, chapters 7
and 9). The share of classes in the total variance, and that of types in the rest, are not known, and where classes have few
runs an estimate of them follows single runs. So each pair of shares on a grid has a probability: at first half of it
says that nothing is shared, and completions change it by their likelihood, in which the total variance is integrated out
under a scaled inverse chi-squared prior (G. C. Tiao, W. Y. Tan, "Bayesian analysis of random-effect models in the analysis
of variance. I. Posterior distribution of variance-components", Biometrika 52(1/2), 1965; A. Gelman et al., "Bayesian Data
Analysis", 3rd edition, 2013, section 5.4). At a point of the grid a and b are the best linear predictors of the model, and
what is expected is their mean over the grid, not that at one estimate of the shares as in empirical Bayes (B. Efron, C.
Morris, "Data Analysis Using Stein's Estimator and its Generalizations", JASA 70(350), 1975). One completion is enough where
classes were seen to differ by more than their runs do, and where runs are as scattered as classes no factor moves away
from 1.

Events add to sums of whole numbers, and all else follows from the sums. Old runs fade: once ``MOST_RUNS`` are counted of a
class on a type, all of them count half. Until then the order of completions makes no difference.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.learnt_kernel import RUNS, add_class, expect, weigh
from flowsched.cluster.still_running import late_length, run_length, spread_of
from flowsched.support.arrays import FloatArray, IntArray

LEARNT_FACTORS = (1.0 / 8.0, 8.0)
"""The least and the largest factor that is learnt."""
FEW_RUNS = 3
"""A class with fewer completions has its factor within ``EARLY_FACTORS``."""
EARLY_FACTORS = (1.0 / 2.0, 2.0)
MOST_SPREAD = 10.0
"""The largest spread that is learnt: beyond it quantiles leave the range of numbers, and no run is that far off."""
RUN_VARIANCE, RUN_COUNT = 0.4**2, 1.0
"""The variance of runs before any completion, and how many completions that counts for."""
CLASS_SHARES = (0.0, 0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.88, 0.96, 0.99)
"""Points of the grid: the share of classes in the total variance."""
TYPE_SHARES = (0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.97)
"""The share of machine types in the rest of it."""
NOTHING_SHARED = 0.5
"""Probability of the first point of either before any completion; the others are as probable as each other."""
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
    """Completions of the class on the machine type, or where there are none, on all types."""
    ends: int
    """Completions of all classes: the spread was learnt from these."""

    @property
    def squares(self) -> float:
        """Sum of the squared logarithms of that many run times of this spread."""
        return self.ends * self.spread**2

    def length(self, done: float) -> float:
        """How many times its forecast a run is estimated to take in all, that has run for ``done`` times it already."""
        if done <= 0.0:
            return self.factor
        return self.factor * float(run_length(done / self.factor, self.spread, float(self.ends), self.squares))

    def late_length(self, done: float, share: float) -> float:
        """The quantile of that."""
        relative = done / self.factor
        spread = spread_of(relative, self.spread, float(self.ends), self.squares)
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
        kept, last, changed = self.classes, self._last + 1, {run_class}
        at = bisect_left(kept, (run_class, machine_type))
        known = kept[at : at + 1]
        if known and known[0][:2] == (run_class, machine_type):
            kept = (*kept[:at], *kept[at + 1 :])
        else:
            known = (ClassRuns(run_class, machine_type, 0, 0, 0),)
            if len(kept) >= MOST_ENTRIES:
                oldest = min(range(len(kept)), key=lambda row: kept[row].last)
                changed.add(kept[oldest].run_class)
                kept, at = (*kept[:oldest], *kept[oldest + 1 :]), at - (oldest < at)
        found = replace(self, classes=(*kept[:at], known[0].with_end(done, last), *kept[at:]))
        found.__dict__["_last"] = last
        if "_told" in self.__dict__:
            # What other classes tell stays: a completion costs the same however many there are.
            told = found.__dict__["_told"] = self._told.copy()
            for name in changed:
                _add(self._entries(name), -1, told)
                _add(found._entries(name), 1, told)
        return found

    def of(self, run_class: str, machine_type: str | None = None) -> LearntRunTime | None:
        """What is expected of a class on a machine type, or on one that is not known; None for a class without completions,
        and where factors are not applied.
        """
        return self.shown(run_class, machine_type) if self.applied and run_class else None

    def shown(self, run_class: str, machine_type: str | None = None) -> LearntRunTime | None:
        """The same whether or not forecasts use it."""
        of_type = self._of_class(run_class).of_type
        known = of_type.get(machine_type)
        return of_type.get(None) if known is None else known

    def factors(self, run_class: str) -> tuple[tuple[str, float], ...]:
        """The factors of a class: on types that it did not run on (""), and on each that it ran on; empty where there is
        none. Forecasts that are worked out from these can be remembered by them.
        """
        return self._of_class(run_class).factors if self.applied and run_class else ()

    @property
    def in_use(self) -> bool:
        """Whether any forecast may differ from that of its profile."""
        return self.applied and bool(self.classes)

    @cached_property
    def variances(self) -> Variances:
        """The three of the model, means over the grid."""
        weights, of_runs = self._weights
        of_type, of_class = (weights * of_runs) @ _RATIOS
        return Variances(float(weights @ of_runs), float(of_type), float(of_class))

    def _of_class(self, run_class: str) -> _Expected:
        known = self._found.get(run_class)
        if known is None:
            known = self._found[run_class] = self._expected(run_class)
        return known

    def _expected(self, run_class: str) -> _Expected:
        entries = self._entries(run_class)
        if not entries:
            return _Expected({}, ())
        (runs, logs, _), (weights, of_runs) = _sums(entries), self._weights
        numbers = np.empty((len(entries) + 1, 2))
        expect(runs, logs, _RATIOS, weights, of_runs, FEW_RUNS, _BOUNDED, _STEPS, numbers)
        ends = int(self._told[RUNS, 0])
        counts: list[tuple[str | None, int]] = [(None, sum(entry.runs for entry in entries))]
        counts += [(entry.machine_type, entry.runs) for entry in entries]
        found: dict[str | None, LearntRunTime] = {
            machine_type: LearntRunTime(factor, min(spread, MOST_SPREAD), count, ends)
            for (factor, spread), (machine_type, count) in zip(numbers.tolist(), counts, strict=True)
        }
        return _Expected(found, tuple((machine_type or "", each.factor) for machine_type, each in found.items()))

    def _entries(self, run_class: str) -> Sequence[ClassRuns]:
        """Those of a class."""
        at = end = bisect_left(self.classes, (run_class,))
        while end < len(self.classes) and self.classes[end].run_class == run_class:
            end += 1
        return self.classes[at:end]

    @cached_property
    def _found(self) -> dict[str, _Expected]:
        """What was asked for, by class: a round asks for each running task, and they are of few classes."""
        return {}

    @cached_property
    def _last(self) -> int:
        """Number of the last completion."""
        return max((entry.last for entry in self.classes), default=0)

    @cached_property
    def _told(self) -> IntArray:
        """[3, points of the grid] what all classes tell of them."""
        told = np.zeros((3, len(_RATIOS)), np.int64)
        for _, entries in groupby(self.classes, lambda entry: entry.run_class):
            _add(list(entries), 1, told)
        return told

    @cached_property
    def _weights(self) -> tuple[FloatArray, FloatArray]:
        """[points] the probability of each point of the grid, and the variance of runs there."""
        weights, of_runs = np.empty((2, len(_RATIOS)))
        weigh(self._told, _PRIOR, RUN_VARIANCE, RUN_COUNT, weights, of_runs)
        return weights, of_runs


NOTHING_LEARNT = LearntRunTimes()
"""Before the first completion."""


class _Expected(NamedTuple):
    """What is expected of the next runs of a class."""

    of_type: Mapping[str | None, LearntRunTime]
    """On each machine type that it ran on, and on others (None); empty without completions."""
    factors: tuple[tuple[str, float], ...]


def _add(entries: Sequence[ClassRuns], sign: int, told: IntArray) -> None:
    """Add to ``told``, times ``sign``, what the entries of one class tell of the points of the grid."""
    if entries:
        runs, logs, squares = _sums(entries)
        add_class(runs, logs, squares, _RATIOS, sign, told)


def _sums(entries: Sequence[ClassRuns]) -> FloatArray:
    """[completions, sum of logarithms, of their squares; entries]"""
    return np.array([[e.runs for e in entries], [e.log_sum for e in entries], [e.log_squares for e in entries]], float)


def _before(points: int) -> FloatArray:
    """[points] probabilities before any completion."""
    return np.array([NOTHING_SHARED, *[(1.0 - NOTHING_SHARED) / (points - 1)] * (points - 1)])


_FARTHEST = math.ceil(_STEPS * math.log(LEARNT_FACTORS[1]))
_FACTORS = np.array([math.exp(step / _STEPS) for step in range(-_FARTHEST, _FARTHEST + 1)])
"""By step. Not by numpy's exp, whose last bit depends on the processor, and a run on the last bit."""
_BOUNDED = np.array([np.clip(_FACTORS, *LEARNT_FACTORS), np.clip(_FACTORS, *EARLY_FACTORS)])
"""[whether completions are few, steps] the same within bounds."""
_RATIOS = np.array([(t / (1 - t), c / (1 - c) / (1 - t)) for c in CLASS_SHARES for t in TYPE_SHARES])
"""[points of the grid, 2] the variances of types and of classes over that of runs."""
_PRIOR = np.log(np.outer(_before(len(CLASS_SHARES)), _before(len(TYPE_SHARES)))).ravel()
"""[points] the logarithm of their probability before any completion."""

"""The difference between two policies over the same seeds, which give both the same jobs at the same times.

Common random numbers: the variance that comes from the workload cancels (Law, Simulation Modeling and Analysis, 5th edition,
sections 10.2 and 11.2). The interval of the mean is Student's (1908, Biometrika 6), the test is the paired t-test, beside it
Wilcoxon's signed-rank test (1945, Biometrics Bulletin 1), which does not ask for normal differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
LEVEL = 1.0 - CONFIDENCE
_ROUNDING = 1e-12
"""Differences that are closer to each other, relative to the figures, are equal."""
_MOST_EXACT = 50
"""Of more differences the distribution of the signed ranks is taken as normal."""


@dataclass(frozen=True)
class PairedDifference:
    """Figures of one policy minus those of another, seed by seed."""

    seeds: int
    """Pairs that both have a figure."""
    lost: int
    """Seeds where one of both has none: a job never ended."""
    mean: float | None
    low: float | None
    high: float | None
    """The 95 % interval of the mean difference; None for fewer than two pairs."""
    reference_mean: float | None
    """Of the policy that is subtracted, over the same pairs."""
    p: float | None
    """Of the paired t-test; None for fewer than two pairs."""
    p_wilcoxon: float | None

    @property
    def relative(self) -> float | None:
        """The mean difference over the reference's mean; None where that is 0."""
        return self._relative(self.mean)

    @property
    def relative_low(self) -> float | None:
        """Lower end of the interval, over the reference's mean."""
        return self._relative(self.low)

    @property
    def relative_high(self) -> float | None:
        """Upper end of the interval, over the reference's mean."""
        return self._relative(self.high)

    @property
    def relative_half_width(self) -> float | None:
        """Half of the interval over the reference's mean: how closely the difference is known. None: not at all."""
        if self.low is None or self.high is None:
            return None
        half = (self.high - self.low) / 2.0
        if half == 0.0:
            return 0.0
        return half / abs(self.reference_mean) if self.reference_mean else math.inf

    def _relative(self, value: float | None) -> float | None:
        return value / abs(self.reference_mean) if value is not None and self.reference_mean else None


def paired_difference(values: Mapping[int, float | None], reference: Mapping[int, float | None]) -> PairedDifference:
    """``values`` minus ``reference``, by seed. None is a figure that a run does not have."""
    shared = sorted(values.keys() & reference.keys())
    pairs = [(a, b) for seed in shared if (a := values[seed]) is not None and (b := reference[seed]) is not None]
    lost, count = len(shared) - len(pairs), len(pairs)
    if not pairs:
        return PairedDifference(0, lost, None, None, None, None, None, None)
    own, other = np.array(pairs).T
    differences = own - other
    mean, base = float(differences.mean()), float(other.mean())
    if count < 2:
        return PairedDifference(count, lost, mean, None, None, base, None, None)
    if np.ptp(differences) <= _ROUNDING * np.abs(pairs).max():
        # Equal differences leave nothing to chance.
        sure = 1.0 if abs(mean) <= _ROUNDING * np.abs(pairs).max() else 0.0
        return PairedDifference(count, lost, mean, mean, mean, base, sure, sure)
    half = half_width(differences)
    return PairedDifference(count, lost, mean, mean - half, mean + half, base, *_p_values(differences))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The p values adjusted for their number (Holm 1979, Scandinavian Journal of Statistics 6); None stays None."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        adjusted[place] = highest
    return adjusted


def half_width(values: NDArray[np.float64]) -> float:
    """Half of the 95 % interval of the mean of two values or more, by Student's t."""
    from scipy import stats

    spread = float(values.std(ddof=1))
    return float(stats.t.ppf(1.0 - LEVEL / 2.0, len(values) - 1)) * spread / math.sqrt(len(values))


def _p_values(differences: NDArray[np.float64]) -> tuple[float, float]:
    """Of both tests."""
    from scipy import stats

    sizes = np.abs(differences)
    distinct = len(np.unique(sizes)) == len(sizes) <= _MOST_EXACT and sizes.min() > 0.0
    method = "exact" if distinct else "approx"
    return (
        float(stats.ttest_1samp(differences, 0.0).pvalue),
        float(stats.wilcoxon(differences, zero_method="zsplit", method=method).pvalue),
    )

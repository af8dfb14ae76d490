"""The difference between two policies over the same seeds, which give both the same jobs at the same times.

Common random numbers: the variance that comes from the workload cancels (Law, Simulation Modeling and Analysis, 5th edition,
sections 10.2 and 11.2). The interval of the mean is Student's (1908, Biometrika 6), the test is the paired t-test, beside it
Wilcoxon's signed-rank test (1945, Biometrics Bulletin 1), which does not ask for normal differences. A test that cannot have
the stated level is not made: nothing is tested where nothing is drawn, or where the difference never varies.
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
_LEAST_RANKED = math.ceil(math.log2(2.0 / LEVEL))
"""Of fewer differences other than zero no signed ranks are improbable enough: the least p of n is 2 / 2^n."""


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
    """Of the paired t-test; None where nothing varies from pair to pair."""
    p_wilcoxon: float | None
    """None where there are too few differences to ever be below the level."""
    drawn: bool = True
    """Whether the seed decides anything; False: one run of each policy says all that there is to say."""

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


def paired_difference(
    values: Mapping[int, float | None], reference: Mapping[int, float | None], drawn: bool = True
) -> PairedDifference:
    """``values`` minus ``reference``, by seed. None is a figure that a run does not have."""
    shared = sorted(values.keys() & reference.keys())
    pairs = [(a, b) for seed in shared if (a := values[seed]) is not None and (b := reference[seed]) is not None]
    lost, count = len(shared) - len(pairs), len(pairs)
    if not pairs:
        return PairedDifference(0, lost, None, None, None, None, None, None, drawn)
    own, other = np.array(pairs).T
    differences = own - other
    mean, base = float(differences.mean()), float(other.mean())
    if count < 2 or not drawn:
        return PairedDifference(count, lost, mean, None, None, base, None, None, drawn)
    rounding = _ROUNDING * float(np.abs(pairs).max())
    if np.ptp(differences) <= rounding:
        mean = mean if abs(mean) > rounding else 0.0
        return PairedDifference(count, lost, mean, mean, mean, base, None, _p_wilcoxon(np.full(count, mean), rounding))
    half = half_width(differences)
    ranked = _p_wilcoxon(differences, rounding)
    return PairedDifference(count, lost, mean, mean - half, mean + half, base, _p_student(differences), ranked)


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


def _p_student(differences: NDArray[np.float64]) -> float:
    from scipy import stats

    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _p_wilcoxon(differences: NDArray[np.float64], rounding: float) -> float | None:
    """Of the signed ranks without zeros, exact with ties, whose ranks are means; None where it cannot reach the level."""
    from scipy import stats

    differences = differences[np.abs(differences) > rounding]
    if len(differences) < _LEAST_RANKED:
        return None
    # Sizes that are equal but for rounding have the same rank.
    sizes = np.round(np.abs(differences) / max(rounding, np.finfo(float).tiny)) if rounding else np.abs(differences)
    twice = np.rint(2.0 * stats.rankdata(sizes)).astype(np.int64)
    positive, total = int(twice[differences > 0.0].sum()), int(twice.sum())
    if len(twice) > _MOST_EXACT:
        spread = math.sqrt(float((twice**2).sum()))
        return float(2.0 * stats.norm.sf(abs(2 * positive - total) / spread))
    # How many of all 2^n signs give each sum of positive ranks, as shares.
    shares = np.ones(1)
    for rank in twice:
        shares = np.convolve(shares, np.bincount([0, rank], minlength=rank + 1) / 2.0)
    least = min(positive, total - positive)
    return min(1.0, 2.0 * float(shares[: least + 1].sum()))

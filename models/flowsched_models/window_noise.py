"""How p95 of a reporting window scatters around its prediction: log-normal, and now and then a stall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_SEARCH_STEPS = 200
_FAR = 20.0
"""Where erfc(z) is five terms of its asymptotic series to one part in 10^11: a step would not be monotone."""
_LEAST_STALL = 1e-6
"""A stall of this share of the standard deviation is nothing."""


@dataclass(frozen=True)
class WindowNoise:
    """Scatter of log(measured/predicted p95) between windows of one length under one load: its middle is 0.

    A part ``stalls`` of the windows holds something that the load does not explain (the host, a time slice of others, the
    client) and adds an exponentially distributed amount. The shorter the window, the more requests of it one stall meets.
    """

    window_s: float
    error: float
    """Standard deviation of log p95."""
    stalls: float = 0.0
    """Share of windows with a stall, in [0, 1]."""
    stall: float = 0.0
    """Mean growth of log p95 by a stall."""

    @property
    def deviation(self) -> float:
        """Standard deviation of log p95, stalls included."""
        return math.sqrt(self.error**2 + self.stalls * (2.0 - self.stalls) * self.stall**2)

    def draw(self, rng: np.random.Generator) -> float:
        """A factor on p95 for one window. Takes three numbers from ``rng``, whatever they turn out to be."""
        normal, chance, growth = rng.standard_normal(), rng.random(), rng.standard_exponential()
        return math.exp(self.error * float(normal) + (self.stall * float(growth) if chance < self.stalls else 0.0))

    def share_above(self, factor: float) -> float:
        """Share of windows whose p95 is more than ``factor`` (above 0) times its prediction."""
        x = math.log(factor)
        plain = _normal_above(x, self.error)
        if self.stalls <= 0.0 or self.stall <= 0.0:
            return plain
        return (1.0 - self.stalls) * plain + self.stalls * _stalled_above(x, self.error, self.stall)

    def quantile(self, share: float) -> float:
        """The factor on p95 that a ``share`` (above 0, below 1) of the windows stays within."""
        high = 1.0
        while self.share_above(high) > 1.0 - share:
            high *= 2.0
        low = min(1.0, 0.5 * high)
        while self.share_above(low) <= 1.0 - share and low > 1e-9:
            low *= 0.5
        for _ in range(_SEARCH_STEPS):
            middle = math.sqrt(low * high)
            if not low < middle < high:
                break
            low, high = (middle, high) if self.share_above(middle) > 1.0 - share else (low, middle)
        return high


USUAL = WindowNoise(10.0, 0.06)
"""Where a profile says nothing: what windows of 10 s of memcached do, stalls included."""


def noise_at(known: Sequence[WindowNoise], window_s: float) -> WindowNoise:
    """The noise of windows of any length: between two known lengths in proportion to the logarithm, beyond them the nearest.

    ``USUAL`` where nothing is known.
    """
    if not known:
        return USUAL
    ordered = sorted(known, key=lambda n: n.window_s)
    if window_s <= ordered[0].window_s:
        return ordered[0]
    for shorter, longer in pairwise(ordered):
        if window_s <= longer.window_s:
            way = math.log(window_s / shorter.window_s) / math.log(longer.window_s / shorter.window_s)
            error, stalls, stall = (
                (1.0 - way) * a + way * b
                for a, b in (
                    (shorter.error, longer.error),
                    (shorter.stalls, longer.stalls),
                    (shorter.stall, longer.stall),
                )
            )
            return WindowNoise(window_s, error, stalls, stall)
    return ordered[-1]


def _normal_above(x: float, sd: float) -> float:
    if sd <= 0.0:
        return 1.0 if x < 0.0 else 0.0
    return 0.5 * math.erfc(x / sd / math.sqrt(2.0))


def _stalled_above(x: float, sd: float, mean: float) -> float:
    """P(normal + exponential > x), the exponentially modified Gaussian."""
    if sd <= 0.0:
        return 1.0 if x < 0.0 else math.exp(-x / mean)
    if mean < _LEAST_STALL * sd:
        return _normal_above(x, sd)
    # exp(-x/m + s^2/2m^2) * P(normal > s/m - x/s); the two factors are huge and tiny where the stall is short.
    z = (sd / mean - x / sd) / math.sqrt(2.0)
    if z > _FAR:
        # Products, because ** raises OverflowError where the scatter is next to nothing; a product is infinite there.
        u = 0.5 / (z * z)
        series = 1.0 - u * (1.0 - 3.0 * u * (1.0 - 5.0 * u * (1.0 - 7.0 * u)))
        tail = math.exp(-0.5 * (x / sd) * (x / sd)) * series / (2.0 * z * math.sqrt(math.pi))
    else:
        tail = 0.5 * math.exp(-x / mean + 0.5 * (sd / mean) ** 2) * math.erfc(z)
    return min(1.0, _normal_above(x, sd) + tail)

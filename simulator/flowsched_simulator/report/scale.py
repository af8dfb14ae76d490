"""Scales: where a time or a value lies in a drawing."""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDTH = 1000.0
"""Width of every drawing, in user units."""
LEFT = 46.0
"""Left margin of every drawing, for the labels of the y axis."""
RIGHT = 14.0
"""Right margin of every drawing."""


@dataclass(frozen=True)
class TimeScale:
    """The x axis that all figures of a report share."""

    end_s: float
    """The last second shown, at the right margin."""
    margin: float = RIGHT
    """Room at the right, in user units: more where an axis of its own stands there."""

    @property
    def right(self) -> float:
        """The x coordinate of the right margin, in user units."""
        return WIDTH - self.margin

    def x(self, time_s: float) -> float:
        """Return the x coordinate of a time in seconds, in user units."""
        share = min(max(time_s / self.end_s, 0.0), 1.0)
        return round(LEFT + share * (self.right - LEFT), 2)

    def ticks(self) -> list[float]:
        """Return the times in seconds to label."""
        return even_ticks(self.end_s, 12)


def even_ticks(high: float, count: int) -> list[float]:
    """Return at most about ``count`` round values from 0 to ``high``."""
    step = round_step(high / count)
    return [index * step for index in range(math.floor(high / step + 1e-9) + 1)]


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50... (or their tenths) that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    for factor in (1, 2, 5):
        if factor * power >= least * (1 - 1e-9):
            return factor * power
    return 10 * power

"""The load of a service over time: a step at every interval, given as numbers or drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_CHUNK = 4096
"""Steps that are drawn at once."""


@dataclass(frozen=True)
class GivenWave:
    """A wave that is known step by step; after its last step it begins anew."""

    values: tuple[float, ...]

    def qps(self, interval: int) -> float:
        """The load in one interval."""
        return self.values[interval % len(self.values)]


@dataclass(frozen=True)
class LoadRange:
    """What a load may be drawn from: whole queries per second from ``least`` to ``most``, all equally likely."""

    least: float
    most: float


class DrawnWave:
    """A wave drawn with a seed. Services draw from generators of their own, whatever the interval's length."""

    def __init__(self, span: LoadRange, seed: int, service: int) -> None:
        """``service``: its place in the scenario."""
        self._span = span
        self._random = np.random.default_rng([seed, service, 11])
        self._values: list[int] = []

    def qps(self, interval: int) -> float:
        """The load in one interval."""
        while interval >= len(self._values):
            low, high = round(self._span.least), round(self._span.most)
            self._values += self._random.integers(low, high, size=_CHUNK, endpoint=True).tolist()
        return float(self._values[interval])


Wave = GivenWave | DrawnWave
"""Queries per second, by interval: how long an interval is, is not its business."""

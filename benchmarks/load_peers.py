"""Other ways to tell a load from a counter, for :mod:`benchmarks.load_ramps`.

All but the published one hold what they said for as long as flow-node does, and add as many standard deviations.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

from flowsched.node.load import LoadTracker
from flowsched.node.settings import NodeSettings
from flowsched_simulator.node.baselines.query_rate import LONG, SHORT, QueryRate

_SETTINGS = NodeSettings()


class Predictor(Protocol):
    """Reads a counter."""

    def read(self, t_s: float, queries: int) -> None:
        """A reading."""
        ...

    @property
    def qps(self) -> float:
        """Queries per second to be ready for."""
        ...


class _Held:
    """Holds the highest of what was said in the last calm while."""

    def __init__(self) -> None:
        self._said: deque[tuple[float, float]] = deque()
        self._last: tuple[float, int] | None = None

    def read(self, t_s: float, queries: int) -> None:
        if self._last is not None:
            step_s = t_s - self._last[0]
            self._said.append((t_s, max(0.0, self._say(t_s, step_s, (queries - self._last[1]) / step_s))))
        self._last = (t_s, queries)
        while self._said and self._said[0][0] < t_s - _SETTINGS.calm_s - 1e-9:
            self._said.popleft()

    @property
    def qps(self) -> float:
        return max((q for _, q in self._said), default=0.0)

    def _say(self, t_s: float, step_s: float, rate: float) -> float:
        """What a reading says: queries per second up to the next one."""
        raise NotImplementedError


class HighestReading(_Held):
    """The highest single reading: as fast as can be, and never calm."""

    def _say(self, t_s: float, step_s: float, rate: float) -> float:  # noqa: ARG002
        return rate + _SETTINGS.load_margin * math.sqrt(rate / step_s)


class Holt(_Held):
    """Level and trend, each smoothed: C. C. Holt, 1957. Ready for the end of the next reading."""

    LEVEL, TREND = 0.4, 0.1

    def __init__(self) -> None:
        super().__init__()
        self._level: float | None = None
        self._slope = 0.0
        self._variance = 0.0

    def _say(self, t_s: float, step_s: float, rate: float) -> float:  # noqa: ARG002
        if self._level is None:
            self._level = rate
        expected = self._level + self._slope * step_s
        self._variance += 0.1 * ((rate - expected) ** 2 - self._variance)
        level = expected + self.LEVEL * (rate - expected)
        self._slope += self.TREND * ((level - self._level) / step_s - self._slope)
        self._level = level
        # A rate is of the middle of its reading.
        return level + 1.5 * self._slope * step_s + _SETTINGS.load_margin * math.sqrt(self.LEVEL * self._variance)


class Regression(_Held):
    """The line through the readings of the last second, whatever they look like."""

    READINGS = 10

    def __init__(self) -> None:
        super().__init__()
        self._rates: deque[tuple[float, float]] = deque(maxlen=self.READINGS)

    def _say(self, t_s: float, step_s: float, rate: float) -> float:
        self._rates.append((t_s - 0.5 * step_s, rate))
        n = len(self._rates)
        middle_s = sum(x for x, _ in self._rates) / n
        mean = sum(y for _, y in self._rates) / n
        spread = sum((x - middle_s) ** 2 for x, _ in self._rates)
        if n < 3:
            return rate
        slope = sum((x - middle_s) * (y - mean) for x, y in self._rates) / spread
        rest = sum((y - mean - slope * (x - middle_s)) ** 2 for x, y in self._rates) / (n - 2)
        ahead_s = t_s + step_s - middle_s
        return mean + slope * ahead_s + _SETTINGS.load_margin * math.sqrt(rest * (1.0 / n + ahead_s**2 / spread))


class TwoQueueRates:
    """The larger of the rates over 400 ms and over a second, as the two-queue design counts them."""

    def __init__(self) -> None:
        self._rate = QueryRate()

    def read(self, t_s: float, queries: int) -> None:
        self._rate.read(t_s, queries)

    @property
    def qps(self) -> float:
        return max(self._rate.over(SHORT), self._rate.over(LONG))


def trackers() -> dict[str, Predictor]:
    """Fresh ones, by name."""
    calm_s, margin = _SETTINGS.calm_s, _SETTINGS.load_margin
    return {
        "flow-node": LoadTracker(calm_s, margin),
        "jumps only": LoadTracker(calm_s, margin, ramp_s=0.0),
        "two-queue": TwoQueueRates(),
        "highest": HighestReading(),
        "holt": Holt(),
        "regression": Regression(),
    }

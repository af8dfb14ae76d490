"""Loads over time for :mod:`benchmarks.load_ramps`: ramps, waves, jumps, bursts, and loads that stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flowsched_simulator.node.wave import DrawnWave, LoadRange

LOW, HIGH = 5_000.0, 100_000.0
"""Queries per second: the span of the published loads."""
_STEADY_S = 8.0
"""Before and after a ramp."""
_LONG_S = 300.0

Rate = Callable[[float], float]
"""Queries per second at a time in seconds."""


@dataclass(frozen=True)
class Shape:
    """A load, and the part of it that is judged."""

    name: str
    rate: Rate
    from_s: float
    until_s: float


def shapes() -> list[Shape]:
    """All of them. A share per second is one of the load as it is, of the highest load in those that change evenly."""
    grows = [_exponential(f"grows {share:.0%}/s", share, LOW, HIGH) for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)]
    falls = [_exponential(f"falls {share:.0%}/s", share, HIGH, LOW) for share in (0.01, 0.05, 0.2, 0.5)]
    even = [_even(f"even, {share:+.0%}/s", share) for share in (0.01, 0.05, 0.2, 0.5, -0.01, -0.05, -0.2, -0.5)]
    waves = [_sinusoid(period_s) for period_s in (10.0, 30.0, 60.0, 120.0)]
    steps = [_steps(interval_s) for interval_s in (10.0, 4.0, 1.75, 1.0)]
    slow = grows[2]
    inside = [
        Shape("grows 5%/s, +40% at 30 s", lambda t: slow.rate(t) * (1.0 if t > 30.0 else 1.0 / 1.4), 8.0, slow.until_s),
        Shape("grows 5%/s, -30% at 30 s", lambda t: slow.rate(t) * (0.7 if t > 30.0 else 1.0), 8.0, slow.until_s),
    ]
    bursts = [
        Shape("bursts of one reading", lambda t: 90_000.0 if round(t * 1e3) % 3700 < 100 else 30_000.0, 1.0, 200.0)
    ]
    steady = [_steady(qps) for qps in (5_000.0, 20_000.0, 50_000.0, 100_000.0)]
    return [*grows, *falls, *even, *waves, *inside, *steps, *bursts, *steady]


def _exponential(name: str, share: float, start: float, end: float) -> Shape:
    length_s = abs(math.log(end / start)) / math.log1p(share)

    def rate(t_s: float) -> float:
        done = min(1.0, max(0.0, (t_s - _STEADY_S) / length_s))
        return start * float((end / start) ** done)

    return Shape(name, rate, _STEADY_S, _STEADY_S + length_s)


def _even(name: str, share: float) -> Shape:
    start, end = (LOW, HIGH) if share > 0.0 else (HIGH, LOW)
    length_s = (HIGH - LOW) / (abs(share) * HIGH)

    def rate(t_s: float) -> float:
        return start + (end - start) * min(1.0, max(0.0, (t_s - _STEADY_S) / length_s))

    return Shape(name, rate, _STEADY_S, _STEADY_S + length_s)


def _sinusoid(period_s: float) -> Shape:
    middle, swing = (LOW + HIGH) / 2.0, (HIGH - LOW) / 2.0

    def rate(t_s: float) -> float:
        return middle - swing * math.cos(2.0 * math.pi * t_s / period_s)

    return Shape(f"sinusoid of {period_s:g} s", rate, 1.0, max(60.0, 3.0 * period_s))


def _steps(interval_s: float) -> Shape:
    wave = DrawnWave(LoadRange(LOW, HIGH), 1, 0)
    return Shape(f"steps every {interval_s:g} s", lambda t: wave.qps(int((t + 1e-9) / interval_s)), 1.0, _LONG_S)


def _steady(qps: float) -> Shape:
    return Shape(f"steady {qps / 1000.0:g}K", lambda _: qps, 1.0, _LONG_S)

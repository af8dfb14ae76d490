"""When jobs are submitted: random processes, steady, by time of day, or in bursts, drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Times = np.ndarray[Any, np.dtype[np.float64]]

ALL_AT_ONCE = "all-at-once"
DAY_S = 86_400.0
_BLOCK = 1024
"""Arrivals drawn at once, however many: more arrivals begin with the same ones."""


@dataclass(frozen=True)
class DailyCycle:
    """A rate that swings as a sinusoid about its mean: ``1 + amplitude cos(2 pi (t - peak_s) / period_s)`` times it.

    The daily cycle of logs of parallel machines (Lublin and Feitelson, The workload on parallel supercomputers, JPDC 63(11),
    2003, section 6) in its simplest form.
    """

    amplitude: float
    """From 0, a steady rate, to 1, at which nothing comes at the lowest point."""
    period_s: float = DAY_S
    peak_s: float = 0.5 * DAY_S
    """When the rate is highest, in seconds after the start of the period; time 0 starts one."""

    @property
    def highest(self) -> float:
        """The highest rate over the mean."""
        return 1.0 + self.amplitude

    def relative(self, at_s: Times) -> Times:
        """The rate over its mean."""
        return np.asarray(1.0 + self.amplitude * np.cos(2.0 * np.pi * (at_s - self.peak_s) / self.period_s))


@dataclass(frozen=True)
class RateTable:
    """A rate that is constant in equal parts of a period, such as the hours of a day."""

    levels: tuple[float, ...]
    """One for each part, relative to one another; their mean is the mean rate."""
    period_s: float = DAY_S

    @property
    def highest(self) -> float:
        """The highest rate over the mean."""
        return max(self.levels) * len(self.levels) / sum(self.levels)

    def relative(self, at_s: Times) -> Times:
        """The rate over its mean."""
        part = np.floor(np.mod(at_s, self.period_s) / self.period_s * len(self.levels)).astype(np.int64)
        levels = np.asarray(self.levels, dtype=np.float64)
        return np.asarray(levels[np.minimum(part, len(levels) - 1)] * (len(levels) / levels.sum()))


@dataclass(frozen=True)
class Bursts:
    """A rate that jumps between two values: a Markov-modulated Poisson process of two states.

    Bursts and calms last exponentially distributed times, and arrivals are Poisson in each (Fischer and Meier-Hellstern, The
    Markov-modulated Poisson process (MMPP) cookbook, Performance Evaluation 18(2), 1993). With ``share`` 1 nothing comes in
    a calm: Kuczura's interrupted Poisson process (Bell System Technical Journal 52(3), 1973).
    """

    burst_s: float
    """Mean length of a burst."""
    calm_s: float
    """Mean length of a calm."""
    share: float = 0.9
    """Share of the arrivals that come in bursts, above 0."""


@dataclass(frozen=True)
class Arrivals:
    """When jobs are submitted, and which."""

    kind: str = ALL_AT_ONCE
    """``all-at-once`` (each at its own ``submit_s``), ``poisson``, ``diurnal`` or ``bursty``."""
    rate_per_minute: float = 0.0
    """Mean arrivals per minute of all kinds but ``all-at-once``."""
    pattern: DailyCycle | RateTable | Bursts | None = None
    """How the rate of ``diurnal`` and ``bursty`` arrivals moves about its mean."""
    jobs: int | None = None
    """So many jobs are drawn from those listed; None: each comes once, in the order listed."""
    mix: Mapping[str, float] = field(default_factory=dict)
    """Where jobs are drawn: the weight of a job, by name, where it is not 1."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for what no process has."""
        patterns = {
            ALL_AT_ONCE: (type(None),),
            "poisson": (type(None),),
            "diurnal": (DailyCycle, RateTable),
            "bursty": (Bursts,),
        }
        if self.kind not in patterns:
            raise ValueError(f"arrivals are of kind {', '.join(patterns)}, got {self.kind!r}")
        if not isinstance(self.pattern, patterns[self.kind]):
            wanted = " or ".join("no pattern" if p is type(None) else p.__name__ for p in patterns[self.kind])
            raise ValueError(f"{self.kind} arrivals: expected {wanted}, got {self.pattern!r}")
        if self.drawn and not self.rate_per_minute > 0.0:
            raise ValueError(f"rate_per_minute of {self.kind} arrivals must be more than 0, got {self.rate_per_minute}")

    @property
    def drawn(self) -> bool:
        """Whether times are drawn."""
        return self.kind != ALL_AT_ONCE


def arrival_times(arrivals: Arrivals, count: int, seed: int) -> Times:
    """Times of the first so many arrivals in seconds, ascending, of a process that starts at time 0."""
    rng = np.random.default_rng([seed, 1])
    rate = arrivals.rate_per_minute / 60.0
    if isinstance(arrivals.pattern, DailyCycle | RateTable):
        return _thinned(arrivals.pattern, rate, count, rng)
    if isinstance(arrivals.pattern, Bursts):
        return _modulated(arrivals.pattern, rate, count, rng)
    return np.cumsum(rng.exponential(60.0 / arrivals.rate_per_minute, size=count))


def drawn_from(weights: Sequence[float], count: int, seed: int) -> list[int]:
    """So many draws of one of several things, independent and by their weights."""
    share = np.asarray(weights, dtype=np.float64)
    return [int(i) for i in np.random.default_rng([seed, 2]).choice(len(share), size=count, p=share / share.sum())]


def _thinned(pattern: DailyCycle | RateTable, rate: float, count: int, rng: np.random.Generator) -> Times:
    """Arrivals at the highest rate, each kept with the probability that the rate has of it then.

    Lewis and Shedler, Simulation of nonhomogeneous Poisson processes by thinning, Naval Research Logistics Quarterly 26(3),
    1979, algorithm 1.
    """
    kept: list[Times] = []
    found, now = 0, 0.0
    while found < count:
        times = now + np.cumsum(rng.exponential(1.0 / (rate * pattern.highest), size=_BLOCK))
        now = float(times[-1])
        kept.append(times[rng.random(_BLOCK) * pattern.highest < pattern.relative(times)])
        found += len(kept[-1])
    return np.concatenate(kept)[:count] if kept else np.empty(0)


def _modulated(pattern: Bursts, rate: float, count: int, rng: np.random.Generator) -> Times:
    """Bursts and calms in turn, the first one as in the long run; within each, arrivals are uniform given their number."""
    whole_s = pattern.burst_s + pattern.calm_s
    rates = (
        rate * (1.0 - pattern.share) * whole_s / pattern.calm_s,
        rate * pattern.share * whole_s / pattern.burst_s,
    )
    burst = int(rng.random() < pattern.burst_s / whole_s)
    kept: list[Times] = []
    found, now = 0, 0.0
    while found < count:
        length_s = float(rng.exponential(pattern.burst_s if burst else pattern.calm_s))
        kept.append(now + np.sort(rng.random(int(rng.poisson(rates[burst] * length_s)))) * length_s)
        found, now, burst = found + len(kept[-1]), now + length_s, 1 - burst
    return np.concatenate(kept)[:count] if kept else np.empty(0)

"""What a measurement found, and how runs are summed up."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


class BenchError(Exception):
    """A measurement could not be made; one sentence says why."""


@dataclass(frozen=True)
class Measured:
    """One run under one setting. Bandwidth in per cent of one core, delays in milliseconds beyond the runtime needed."""

    setting: str
    mean: float
    deviation: float
    mean_delay_ms: float
    p95_delay_ms: float
    max_delay_ms: float
    jobs: int
    late_jobs: int
    """Done after the end of their period."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


FIGURES = ("mean", "deviation", "mean_delay_ms", "p95_delay_ms", "max_delay_ms")


def measured(
    setting: str, response_ns: Sequence[int], used_ns: Sequence[int], runtime_us: int, period_us: int, window_us: int
) -> Measured:
    """From what the worker says: the response time of every job, and its CPU time in every whole window."""
    bandwidth = [used / (window_us * 1000.0) * 100.0 for used in used_ns]
    delays = sorted((response - runtime_us * 1000) / 1e6 for response in response_ns)
    return Measured(
        setting,
        statistics.fmean(bandwidth) if bandwidth else float("nan"),
        statistics.stdev(bandwidth) if len(bandwidth) > 1 else float("nan"),
        statistics.fmean(delays),
        delays[min(len(delays) - 1, int(0.95 * len(delays)))],
        delays[-1],
        len(delays),
        sum(response > period_us * 1000 for response in response_ns),
    )


def median_of(runs: Sequence[Measured]) -> Measured:
    """The median of each figure over the repetitions of one setting; jobs are added up."""
    figures = {name: statistics.median(getattr(run, name) for run in runs) for name in FIGURES}
    return Measured(
        runs[0].setting, **figures, jobs=sum(run.jobs for run in runs), late_jobs=sum(run.late_jobs for run in runs)
    )

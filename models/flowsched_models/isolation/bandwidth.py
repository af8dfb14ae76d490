"""What is said of a run: how steady the bandwidth of a task is, and how late its jobs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flowsched_models.isolation.simulation import Motion


@dataclass(frozen=True)
class Steadiness:
    """CPU bandwidth over windows, in per cent of one core.

    Within an interval the need is constant, so what varies there is what the scheduler did, not the need.
    """

    mean: float
    deviation: float
    """Root mean square of the standard deviations of the intervals."""
    intervals: tuple[float, ...]
    """Standard deviation within each interval."""


@dataclass(frozen=True)
class Delays:
    """From the release of a job to its end, beyond the CPU time that it needs, in milliseconds; NaN without jobs."""

    jobs: int
    """Released and done."""
    open: int
    """Released and not done at the end."""
    mean_ms: float
    p95_ms: float
    max_ms: float
    late: int
    """Done after the end of their period, or not done then."""


def steadiness(motion: Motion, threads: Sequence[int] | npt.NDArray[np.int64]) -> Steadiness:
    """Of the threads together, over the windows in which all of them are at work from begin to end."""
    demand = motion.demand
    rows = np.asarray(threads, dtype=np.int64)
    used = motion.used_s[rows].sum(axis=0) / motion.window_s * 100.0
    starts = np.arange(len(used)) * motion.window_s
    begin, end = float(demand.phase_s[rows].max()), float(demand.duration_s[rows].min())
    interval = np.floor((starts + 1e-9) / demand.loop.interval_s).astype(np.int64)
    whole = (starts >= begin) & (starts + motion.window_s <= end + 1e-9)
    # A window across the border of two needs says nothing of either; jobs of the last one may reach into the first.
    inside = starts - interval * demand.loop.interval_s >= demand.loop.period_s
    inside &= starts + motion.window_s <= (interval + 1) * demand.loop.interval_s + 1e-9
    groups = [used[whole & inside & (interval == k)] for k in np.unique(interval[whole])]
    deviations = [float(part.std(ddof=1)) for part in groups if len(part) > 1]
    mean = float(used[whole].mean()) if whole.any() else float("nan")
    pooled = float(np.sqrt(np.mean(np.square(deviations)))) if deviations else float("nan")
    return Steadiness(mean, pooled, tuple(deviations))


def delays(motion: Motion, threads: Sequence[int] | npt.NDArray[np.int64]) -> Delays:
    """Of the jobs of the threads together."""
    rows = np.asarray(threads, dtype=np.int64)
    release, end = motion.release_s[rows], motion.end_s[rows]
    period = motion.demand.loop.period_s
    done = ~np.isnan(end)
    unfinished = ~np.isnan(release) & ~done
    ms = motion.delay_s[rows][done] * 1000.0
    late = int(np.sum(end[done] - release[done] > period + 1e-9))
    late += int(np.sum(motion.demand.end_s - release[unfinished] > period + 1e-9))
    if not len(ms):
        return Delays(0, int(unfinished.sum()), float("nan"), float("nan"), float("nan"), late)
    return Delays(len(ms), int(unfinished.sum()), float(ms.mean()), float(np.percentile(ms, 95)), float(ms.max()), late)

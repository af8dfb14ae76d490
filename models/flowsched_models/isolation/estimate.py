"""The runtime to reserve for a task, from a trace of what it used.

The runtime must exceed the need: a reservation of exactly the need makes every job late, because each job waits for the
next period with what little it is over. So it is the mean and a margin: a multiple of the observed deviation, and
never less than a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched_models.isolation.admission import Bandwidth, objection

LEAST_MARGIN = 0.10
DEVIATIONS = 2.0
MOST_CPUS = 0.95
"""A reservation is for one thread: it is never more than this share of a core."""


@dataclass(frozen=True)
class EstimateError:
    """How far the forecast was off where it was not fitted: A the usage seen, F the forecast, over n samples.

    ``mape`` is M = 1/n sum |A - F| / A, over the samples in which something was used; ``standard_error`` is the root of
    1/n sum (A - F)^2. Both as in M. Thiyyakat, S. Kalambur, D. Sitaram, "Improving Resource Isolation of Critical Tasks in
    a Workload", JSSPP 2020, Table 3, where M is 1.2 to 5.3 % and the standard error 0.030 to 0.052 cores.
    """

    mape: float | None
    """A fraction; None where nothing was used in any sample."""
    standard_error: float
    """Core-seconds per second."""
    over: float
    """Share of the samples that used more than what is reserved: in these the task is late."""


@dataclass(frozen=True)
class RuntimeEstimate:
    """What to reserve."""

    bandwidth: Bandwidth
    mean_cpus: float


def estimate(usage: Sequence[float], period_us: float, *, least_margin: float = LEAST_MARGIN) -> RuntimeEstimate:
    """What to reserve for one thread that used ``usage`` core-seconds per second in successive samples.

    The mean and a margin: :data:`DEVIATIONS` times the deviation of the usage, and not less than ``least_margin`` of the
    mean; together at most :data:`MOST_CPUS`. Raises ValueError on traces that say nothing.

    Args:
        usage: one number of CPUs per sample, all samples equally long and not shorter than the period.
        period_us: of the reservation.
        least_margin: relative to the mean; less than a tenth is refused.
    """
    samples = np.asarray(usage, dtype=float)
    if samples.ndim != 1 or len(samples) < 1 or not np.isfinite(samples).all() or (samples < 0.0).any():
        raise ValueError("a usage trace is a list of numbers of CPUs, none of them negative")
    if samples.max() <= 0.0:
        raise ValueError("the task used nothing in the whole trace")
    if not LEAST_MARGIN <= least_margin < math.inf:
        raise ValueError(f"a margin of {least_margin:g} makes jobs late: at least {LEAST_MARGIN:g} of the need")
    mean = float(samples.mean())
    deviation = float(samples.std(ddof=1)) if len(samples) > 1 else 0.0
    cpus = min(MOST_CPUS, mean + max(least_margin * mean, DEVIATIONS * deviation))
    bandwidth = Bandwidth(cpus * period_us, period_us)
    if reason := objection(bandwidth):
        raise ValueError(reason)
    return RuntimeEstimate(bandwidth, mean)


def forecast_error(seen: Sequence[float] | np.ndarray, forecast: float, reserved: float) -> EstimateError:
    """The errors of one forecast for all samples ``seen``, in CPUs."""
    values = np.asarray(seen, dtype=float)
    used = values[values > 0.0]
    mape = float(np.mean(np.abs(used - forecast) / used)) if len(used) else None
    standard = math.sqrt(float(np.mean((values - forecast) ** 2)))
    return EstimateError(mape, standard, float(np.mean(values > reserved)))

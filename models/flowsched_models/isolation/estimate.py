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
HELD_OUT = 0.25
LEAST_SAMPLES = 4
MOST_CPUS = 0.95
"""A reservation is for one thread: it is never more than this share of a core."""


@dataclass(frozen=True)
class EstimateError:
    """How far the forecast was off where it was not fitted: A the usage seen, F the forecast, over n samples.

    ``mape`` is M = 1/n sum |A - F| / A, over the samples in which something was used; ``standard_error`` is the root of
    1/n sum (A - F)^2. Both as in M. Thiyyakat, S. Kalambur, D. Sitaram, "Improving Resource Isolation of Critical Tasks in
    a Workload", JSSPP 2020, Table 3, where M is 1.2 to 5.3 % and the standard error 0.030 to 0.052 cores.
    """

    samples: int
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
    deviation_cpus: float
    margin: float
    """What is reserved beyond the mean, relative to the mean."""
    error: EstimateError | None
    """None where the trace was too short to hold anything back."""
    reason: str


def estimate(
    usage: Sequence[float],
    period_us: float,
    *,
    least_margin: float = LEAST_MARGIN,
    deviations: float = DEVIATIONS,
    held_out: float = HELD_OUT,
) -> RuntimeEstimate:
    """What to reserve for one thread that used ``usage`` core-seconds per second in successive samples.

    The forecast is fitted to the earlier samples, the error reported on the last ``held_out`` of them; what is
    recommended then rests on all samples. Raises ValueError on traces that say nothing.

    Args:
        usage: one number of CPUs per sample, all samples equally long and not shorter than the period.
        period_us: of the reservation.
        least_margin: relative to the mean; less than a tenth is refused.
        deviations: of the usage, that are kept on top of the mean.
        held_out: share of the samples.
    """
    samples = np.asarray(usage, dtype=float)
    if samples.ndim != 1 or len(samples) < 1 or not np.isfinite(samples).all() or (samples < 0.0).any():
        raise ValueError("a usage trace is a list of numbers of CPUs, none of them negative")
    if samples.max() <= 0.0:
        raise ValueError("the task used nothing in the whole trace")
    if not LEAST_MARGIN <= least_margin < math.inf:
        raise ValueError(f"a margin of {least_margin:g} makes jobs late: at least {LEAST_MARGIN:g} of the need")
    if not 0.0 <= held_out < 1.0 or not deviations >= 0.0:
        raise ValueError("held_out is a share below 1 and deviations are not negative")
    kept = math.ceil(len(samples) * held_out)
    error = None
    if kept and len(samples) - kept >= LEAST_SAMPLES and samples[:-kept].max() > 0.0:
        fitted, seen = samples[:-kept], samples[-kept:]
        error = forecast_error(seen, float(fitted.mean()), reserved_cpus(fitted, least_margin, deviations))
    mean, deviation = float(samples.mean()), _deviation(samples)
    cpus = reserved_cpus(samples, least_margin, deviations)
    bandwidth = Bandwidth(cpus * period_us, period_us)
    if reason := objection(bandwidth):
        raise ValueError(reason)
    capped = cpus < mean + _margin(mean, deviation, least_margin, deviations)
    reason = f"mean {mean:.3f} CPUs and {100 * (cpus / mean - 1):.0f} %"
    if capped:
        reason += f", cut to {MOST_CPUS:g} of a core: one reservation cannot hold more"
    elif deviations * deviation > least_margin * mean:
        reason += f", which is {deviations:g} times the deviation of {deviation:.3f}"
    else:
        reason += ", the least margin"
    return RuntimeEstimate(bandwidth, mean, deviation, cpus / mean - 1.0, error, reason)


def reserved_cpus(samples: Sequence[float] | np.ndarray, least_margin: float, deviations: float) -> float:
    """Mean and margin, at most ``MOST_CPUS``."""
    values = np.asarray(samples, dtype=float)
    mean = float(values.mean())
    return min(MOST_CPUS, mean + _margin(mean, _deviation(values), least_margin, deviations))


def forecast_error(seen: Sequence[float] | np.ndarray, forecast: float, reserved: float) -> EstimateError:
    """The errors of one forecast for all samples ``seen``, in CPUs."""
    values = np.asarray(seen, dtype=float)
    used = values[values > 0.0]
    mape = float(np.mean(np.abs(used - forecast) / used)) if len(used) else None
    standard = math.sqrt(float(np.mean((values - forecast) ** 2)))
    return EstimateError(len(values), mape, standard, float(np.mean(values > reserved)))


def _margin(mean: float, deviation: float, least_margin: float, deviations: float) -> float:
    return max(least_margin * mean, deviations * deviation)


def _deviation(samples: np.ndarray) -> float:
    """Of the population the samples are drawn from; 0 of a single one."""
    return float(samples.std(ddof=1)) if len(samples) > 1 else 0.0

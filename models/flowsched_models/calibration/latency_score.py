"""How well latency curves predict groups that they have not seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.calibration.latency_curves import CurveFit, Reading, Size
from flowsched_models.calibration.latency_factors import RUNS_CLIENT, Ratio, clients_and_machines, core_count, crowd
from flowsched_models.measurements.measurements import LatencyWindow, Placed, Run
from flowsched_models.service import ServiceProfile

CALIBRATION_QPS = 30_000.0
"""Load of the one short measurement that fits a group's own factor, or the measured load nearest to it."""
_BELOW_KNEE = 0.9
"""Share of capacity up to which a curve says something about p95 and not about where the knee is."""


@dataclass(frozen=True)
class LatencyScore:
    """One measured p95 beside two predictions."""

    part: str
    """``sweep``, ``run``, ``interval`` (of a run under a changing load), or ``behind`` (the same with tasks of the lowest
    weight on the service's cores)."""
    group: str
    size: Size
    load: float
    measured_us: float
    predicted_us: float
    """Without any knowledge of the group."""
    calibrated_us: float
    """The same times one factor of the group, from one short measurement; that one is not scored."""
    below_knee: bool
    """Whether the load is below 0.9 of the capacity that the model believes in."""

    @property
    def log_error(self) -> float:
        """log(measured/predicted), without knowledge of the group."""
        return math.log(self.measured_us / self.predicted_us)


@dataclass(frozen=True)
class LatencyErrors:
    """Absolute errors of predictions in per cent of what was measured."""

    count: int
    median: float
    p90: float
    calibrated_median: float
    calibrated_p90: float


def errors(scores: Iterable[LatencyScore]) -> LatencyErrors:
    """Median and 90th percentile of |predicted / measured - 1| in per cent. NaN where there is nothing."""
    rows = list(scores)
    if not rows:
        return LatencyErrors(0, *[math.nan] * 4)
    values = []
    for choose in ("predicted_us", "calibrated_us"):
        off = [abs(getattr(s, choose) / s.measured_us - 1.0) * 100.0 for s in rows]
        values += [float(v) for v in np.percentile(off, (50, 90))]
    return LatencyErrors(len(rows), *values)


def knee_spread(scores: Iterable[LatencyScore]) -> float:
    """Standard deviation of log(measured/predicted) below the knee; beyond it the question is where the knee is."""
    logs = [s.log_error for s in scores if s.below_knee]
    return float(np.sqrt(np.mean(np.square(logs)))) if logs else 0.0


def group_spread(scores: Iterable[LatencyScore]) -> float:
    """Root mean square over groups of the median log(measured/predicted) in their runs; 0 without runs."""
    by_group: dict[str, list[float]] = {}
    for s in scores:
        if s.part == "run" and s.below_knee:
            by_group.setdefault(s.group, []).append(s.log_error)
    return float(np.sqrt(np.mean([np.median(v) ** 2 for v in by_group.values()]))) if by_group else 0.0


def score_sweeps(
    fits: Mapping[str, CurveFit], data: Sequence[Reading], cohort_of: Mapping[str, str]
) -> tuple[LatencyScore, ...]:
    """Every reading of each group in ``fits``, predicted by that fit; sizes that the fit does not know are left out.

    Compared is what the sweep's client sees, also in saturation. The group's one factor comes from the load nearest to 30K
    of its smallest size.
    """
    result = []
    for group, fit in sorted(fits.items()):
        cohort = cohort_of.get(group, "")
        own = [r for r in data if r.group == group and r.size in fit.sizes]
        if not own:
            continue
        short = min(own, key=lambda r: (r.size, abs(r.load - CALIBRATION_QPS), r.load))
        factor = short.p95_us / fit.p95_us(short.size, short.load, cohort)
        for r in own:
            if r is short and len(own) > 1:
                continue
            predicted = fit.p95_us(r.size, r.load, cohort)
            knee = fit.curves[r.size].qcap * fit.factors(cohort)[1]
            below = r.load < _BELOW_KNEE * knee
            result.append(LatencyScore("sweep", group, r.size, r.load, r.p95_us, predicted, factor * predicted, below))
    return tuple(result)


def score_windows(
    placed: Sequence[tuple[LatencyWindow, Run, Placed]],
    profile: ServiceProfile,
    ratios: Sequence[Ratio],
    without: Mapping[str, CurveFit],
    measured_on: Iterable[str],
    vcpus: Mapping[str, int] | None,
) -> tuple[LatencyScore, ...]:
    """Every window of runs, predicted from curves, client and machine factors that have not seen its group.

    The group's one factor comes from the first window of its first run on each machine type and size.
    """
    types = tuple(measured_on)
    result = []
    for group in sorted({w.group for w, _, _ in placed}):
        factors_of_others = clients_and_machines([r for r in ratios if r.group != group], types)
        known = factors_of_others.clients.get(RUNS_CLIENT)
        machines = {name: e.value for name, e in factors_of_others.machines.items()}
        curves = profile.curves
        if group in without:
            fit = without[group]
            curves = tuple(
                replace(fit.curves[size], error=c.error)
                for c in profile.curves
                if (size := (c.threads, c.cores)) in fit.sizes
            )
        blind = replace(
            profile, curves=curves, clients={RUNS_CLIENT: known.value if known else 1.0}, latency_factor=machines
        )
        own = sorted((p for p in placed if p[0].group == group), key=lambda p: (p[1].name, p[0].t_start_s))
        factors: dict[tuple[str, int, int], float] = {}
        for w, run, where in own:
            size = (where.threads, core_count(where))
            curve = blind.curve_or_estimate(*size)
            share = crowd(w, run, where, vcpus)
            predicted = blind.p95_us(curve, w.qps, RUNS_CLIENT, 0.0, share, where.machine_type)
            key = (where.machine_type, *size)
            if key not in factors:
                factors[key] = w.p95_us / predicted
                continue
            below = w.qps < _BELOW_KNEE * curve.qcap * blind.capacity_factor.get(where.machine_type, 1.0)
            result.append(LatencyScore("run", group, size, w.qps, w.p95_us, predicted, factors[key] * predicted, below))
    return tuple(result)

"""Fits the profile of a latency service: curves, interference, sharing, machines and clients, with errors.

Which numbers come from where, and how well they predict groups that were left out, is in ``docs/latency.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.calibration.latency_curves import NAMES, CurveFit, Reading, Size, fit_curves, readings
from flowsched_models.calibration.latency_factors import (
    SWEEP_CLIENT,
    AggressorFactors,
    Estimate,
    aggressors,
    clients_and_machines,
    placed_windows,
    sharing,
    sweep_ratios,
    sweeps,
    window_ratios,
)
from flowsched_models.calibration.latency_notes import (
    DEFAULT_CAPACITY_ERROR,
    DEFAULT_ERROR,
    DEFAULT_PRESSURE,
    Notes,
    Parameter,
    note_capacity_factors,
    note_cpu,
    note_sensitivity,
    note_sharing,
)
from flowsched_models.calibration.latency_score import (
    LatencyScore,
    group_spread,
    knee_spread,
    score_sweeps,
    score_windows,
)
from flowsched_models.calibration.noise_fit import FittedNoise
from flowsched_models.measurements.measurements import LatencyInterference, LatencyPoint, LatencyWindow, Run
from flowsched_models.service import LatencyCurve, ServiceProfile

_FEWEST_LOADS = 6
"""A curve has six parameters."""
_WIDE = 1.0
"""Half-width of the 95 % interval of a logarithm from which on a parameter counts as not identified."""


_SLO_US = 1000.0
"""A curve's highest measured load is the one up to which p95 is within this."""


@dataclass(frozen=True)
class FittedLatency:
    """Everything that measurements say about one latency service."""

    service: str
    profile: ServiceProfile
    parameters: tuple[Parameter, ...]
    cohorts: Mapping[str, tuple[float, float]]
    """Factors on latency and capacity of each cohort beside the reference one."""
    reference: str
    """The cohort that the curves describe."""
    aggressors: tuple[AggressorFactors, ...]
    scores: tuple[LatencyScore, ...]
    """Every reading and window, predicted by a fit that had not seen its group; empty with one group."""
    fitted: tuple[LatencyScore, ...]
    """Every reading against the fit of all groups: the residuals."""
    warnings: tuple[str, ...]
    """Parameters that the data does not identify, one sentence each."""
    defaults: tuple[str, ...]
    """What was assumed because nothing measured it, one sentence each."""
    interval_scores: tuple[LatencyScore, ...] = ()
    """Long intervals of runs under a changing load, each predicted with the client of the other groups."""
    noise: tuple[FittedNoise, ...] = ()
    """How windows of such runs scatter, by length; the profile's, and what they were fitted to."""


def fit_latency(
    points: Sequence[LatencyPoint],
    interference: Sequence[LatencyInterference] = (),
    windows: Sequence[LatencyWindow] = (),
    runs: Sequence[Run] = (),
    *,
    service: str = "memcached",
    cohort_of: Mapping[str, str] | None = None,
    bandwidth: Mapping[str, float] | None = None,
    vcpus: Mapping[str, int] | None = None,
    fewest_groups: int = 1,
    leave_out: bool = True,
) -> FittedLatency:
    """Fit a service to its sweeps, and what there is of interference sweeps and windows of runs.

    ``cohort_of`` names the cohort of a group (such as its year): cohorts share the shape of the curves and differ by one
    factor on latency and one on capacity; the largest cohort is the reference, among equals the last by name.
    ``bandwidth`` of machine types turns a measured slow-down into ``sensitivity``, and :func:`crowd` says with ``vcpus``
    what neighbours took in a window. Sizes that fewer than ``fewest_groups`` measured get no curve. ``leave_out=False``
    skips the fits without one group each, and with them the errors and the part of the intervals that is between groups.

    What is not measured becomes a stated default. Deterministic. Raises ValueError where no sweep of the service is given.
    """
    points = [p for p in points if p.service == service]
    measured_by: dict[Size, set[str]] = {}
    for p in points:
        measured_by.setdefault((p.threads, p.cores), set()).add(p.group)
    data = tuple(r for r in readings(points) if len(measured_by[r.size]) >= fewest_groups)
    if not data:
        raise ValueError(f"there is no latency sweep of {service}: its curves need p95 at several loads")
    cohorts = dict(cohort_of or {})
    reference = _reference(data, cohorts)
    whole = fit_curves(data, cohorts, reference)
    groups = sorted({r.group for r in data})
    without: dict[str, CurveFit] = {}
    if leave_out and len(groups) > 1:
        rest = {g: [r for r in data if r.group != g] for g in groups}
        without = {g: fit_curves(rest[g], cohorts, reference, near=whole) for g in groups}

    said = Notes()
    curves = _curves(whole, without, data, cohorts, reference, said)
    found = sweeps(p for p in interference if p.service == service)
    effects = aggressors(found)
    sensitivity, factors = note_sensitivity(effects, bandwidth, said)
    shared = note_sharing(sharing(found), said)
    single = whole.curves.get((1, 1)) or min(curves, key=lambda c: (c.servers, c.threads))
    placed = placed_windows(windows, runs, service)
    ratios = window_ratios(placed, curves, vcpus) + sweep_ratios(found, single)
    types = {p.machine_type for p in points}
    factors_of = clients_and_machines(ratios, types)
    source = "windows of runs, sweeps without interference"
    by_client = {n: said.add(f"factor of client {n}", e.value, e, source) for n, e in factors_of.clients.items()}
    by_machine = {n: said.add(f"factor of {n}", e.value, e, source) for n, e in factors_of.machines.items()}

    fitted_scores = score_sweeps(dict.fromkeys(groups, whole), data, cohorts)
    scores = score_sweeps(without, data, cohorts)
    error, capacity_error = DEFAULT_ERROR, DEFAULT_CAPACITY_ERROR
    if without:
        error = knee_spread(scores)
        capacity_error = said.add(
            "capacity_error", _capacity_spread(data, whole, cohorts, said), None, "sweeps in saturation"
        )
    else:
        said.default("error", error, "one group cannot be left out of itself")
        said.default("capacity_error", capacity_error, "one group says nothing about others")
    profile = ServiceProfile(
        name=service,
        curves=curves,
        clients={SWEEP_CLIENT: 1.0, **by_client},
        cpu_per_kqps=note_cpu(points, whole, said),
        pressure=said.default("pressure", DEFAULT_PRESSURE, "what a service does to jobs is not fitted here"),
        sensitivity=sensitivity,
        sharing_slope=shared.slope,
        sharing_capacity=shared.capacity.value,
        sharing_us=shared.added_us.value,
        error=error,
        capacity_error=capacity_error,
        latency_factor=by_machine,
        capacity_factor=note_capacity_factors(found, single, said),
        interference=factors,
    )
    if placed and without:
        scores += score_windows(placed, profile, ratios, without, types, vcpus)
    if without:
        # Whose client and hosts are not known is as far off as the groups are from each other: in runs more than in sweeps.
        error = said.add("error", max(error, group_spread(scores)), None, "groups that were left out, below the knee")
    profile = replace(profile, error=error, curves=tuple(_with_error(c, scores, error, len(groups)) for c in curves))
    return FittedLatency(
        service=service,
        profile=profile,
        parameters=tuple(said.parameters),
        cohorts={c: whole.factors(c) for c in whole.cohorts},
        reference=reference,
        aggressors=effects,
        scores=scores,
        fitted=fitted_scores,
        warnings=tuple(said.warnings),
        defaults=tuple(said.defaults),
    )


def _reference(data: Iterable[Reading], cohort_of: Mapping[str, str]) -> str:
    groups: dict[str, set[str]] = {}
    for r in data:
        groups.setdefault(cohort_of.get(r.group, ""), set()).add(r.group)
    return max(groups, key=lambda c: (len(groups[c]), c))


def _curves(
    whole: CurveFit,
    without: Mapping[str, CurveFit],
    data: Sequence[Reading],
    cohort_of: Mapping[str, str],
    reference: str,
    said: Notes,
) -> tuple[LatencyCurve, ...]:
    """Curves with their highest load that met the goal, and the intervals of their parameters noted."""
    result = []
    for k, size in enumerate(whole.sizes):
        own = [r for r in data if r.size == size]
        label = f"{size[0]} threads on {size[1]} cores"
        if len({r.load for r in own}) < _FEWEST_LOADS:
            said.warnings.append(f"{label}: fewer than {_FEWEST_LOADS} loads; the shape is mostly the usual one")
        if not any(r.saturated for r in own):
            said.warnings.append(
                f"{label}: never saturated; qcap is an extrapolation beyond {max(r.load for r in own):g} queries per second"
            )
        for j in range(len(NAMES)):
            _note_curve_parameter(whole, without, k, j, label, said)
        here = [r for r in own if cohort_of.get(r.group, reference) == reference] or own
        result.append(replace(whole.curves[size], max_measured_qps=highest_within(here, _SLO_US)))
    for k, cohort in enumerate(whole.cohorts):
        for j, name in enumerate(("latency", "capacity")):
            index = 6 * len(whole.sizes) + 2 * k + j
            value, error = float(whole.logs[index]), float(whole.standard_errors[index])
            spread = [f.factors(cohort)[j] for f in without.values() if cohort in f.cohorts]
            half = _half_width(error, [math.log(v) for v in spread])
            estimate = Estimate(math.exp(value), math.exp(value - half), math.exp(value + half), len(spread))
            said.add(f"{name} factor of cohort {cohort}", estimate.value, estimate, "latency sweeps")
    return tuple(result)


def _note_curve_parameter(
    whole: CurveFit, without: Mapping[str, CurveFit], k: int, j: int, label: str, said: Notes
) -> None:
    index, size, name = 6 * k + j, whole.sizes[k], NAMES[j]
    value = getattr(whole.curves[size], name)
    spread = [float(f.logs[6 * f.sizes.index(size) + j]) for f in without.values() if size in f.sizes]
    half = _half_width(float(whole.standard_errors[index]), spread)
    # psat is fitted as what it has beyond a + b, and only that part has an interval of its own.
    part = math.exp(float(whole.logs[index]))
    low, high = (value - part + part * math.exp(sign * min(half, 50.0)) for sign in (-1.0, 1.0))
    identified = half < _WIDE or high < 1.5 * value
    said.parameters.append(Parameter(f"{name}, {label}", value, low, high, identified, "latency sweeps"))
    if not identified:
        said.warnings.append(f"{name}, {label}: not identified ({value:.4g}, 95 % interval {low:.3g} to {high:.3g})")


def _half_width(standard_error: float, left_out: Sequence[float]) -> float:
    """Half a 95 % interval of a logarithm: the larger of curvature's and that of the delete-a-group jackknife."""
    from scipy.stats import t  # Only calibration needs it.

    half = 1.96 * standard_error
    n = len(left_out)
    if n > 2:
        values = np.array(left_out)
        jackknife = math.sqrt((n - 1) / n * float(np.sum((values - values.mean()) ** 2)))
        half = max(half, float(t.ppf(0.975, n - 1)) * jackknife)
    return half


def highest_within(own: Sequence[Reading], slo_us: float) -> float:
    """The highest load up to which every group met the goal; the lowest load where one group never did."""
    reached = []
    for group in sorted({r.group for r in own}):
        within = [r for r in sorted(own, key=lambda r: r.load) if r.group == group]
        broken = next((i for i, r in enumerate(within) if r.p95_us > slo_us or r.saturated), len(within))
        reached.append(within[max(0, broken - 1)].load)
    return min(reached)


def _capacity_spread(data: Sequence[Reading], whole: CurveFit, cohort_of: Mapping[str, str], said: Notes) -> float:
    """Standard deviation between groups of log(capacity/curve)."""
    logs: dict[tuple[str, Size], list[float]] = {}
    for r in data:
        if r.saturated:
            qcap = whole.curves[r.size].qcap * whole.factors(cohort_of.get(r.group, ""))[1]
            logs.setdefault((r.group, r.size), []).append(math.log(r.achieved / qcap))
    medians = [float(np.median(v)) for v in logs.values()]
    if len(medians) < 3:
        said.defaults.append(
            f"capacity_error is assumed to be {DEFAULT_CAPACITY_ERROR:g}: too few sweeps were saturated"
        )
        return DEFAULT_CAPACITY_ERROR
    return float(np.std(medians, ddof=1))


def _with_error(curve: LatencyCurve, scores: Sequence[LatencyScore], whole: float, groups: int) -> LatencyCurve:
    """The curve with an error of its own where it is worse than the rest, or where one group of several measured it."""
    own = [s for s in scores if s.part == "sweep" and s.size == (curve.threads, curve.cores)]
    error = knee_spread(own) if own or groups == 1 else 2.0 * whole
    return replace(curve, error=error) if error > whole else curve

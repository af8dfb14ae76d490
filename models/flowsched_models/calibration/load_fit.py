"""What runs under a changing load add to a service's profile: its client, tasks of the lowest weight, and noise.

The curves are those of the sweeps, which are not fitted again here. Every number is a ratio to them. Which groups it comes
from is in ``docs/latency.md``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.calibration.latency_curves import Reading, Size, readings
from flowsched_models.calibration.latency_factors import Estimate, over_groups
from flowsched_models.calibration.latency_fit import FittedLatency, highest_within
from flowsched_models.calibration.latency_notes import Notes
from flowsched_models.calibration.latency_score import LatencyScore
from flowsched_models.calibration.noise_fit import BEHIND, CALM, FEWEST, LOAD_CLASS, NO_BACKGROUND, fit_noise
from flowsched_models.cell import Floats
from flowsched_models.measurements.measurements import LatencyPoint, LoadInterval
from flowsched_models.service import LatencyCurve, OtherMachine, ServiceProfile
from flowsched_models.text_table import counted

CLIENT = "mcperf-dynamic"
"""The client of runs under a changing load."""
LONG_S = 8.0
"""Factors come from intervals of at least this length: what a core or two does in a moment is averaged out."""
_UNDISTURBED = 0.03
"""Share of an interval in which others may have been on the service's cores."""
_BELOW_KNEE = 0.9
"""Client factors come from loads up to this share of the capacity."""
_BELOW_OTHER_KNEE = 0.8
"""The same for factors of machine types, of the smaller of both capacities."""
_STEADY = 0.05
"""Log residuals beyond it count linearly."""
_BACKGROUND_PRIOR = ((math.log(0.3), 1.0), (0.8, 0.1), (math.log(0.03), 0.7))
"""Middle and standard deviation of log slope, position and log width, worth one interval each: no load reached capacity."""


def with_loads(
    fitted: FittedLatency,
    intervals: Sequence[LoadInterval],
    elsewhere: Sequence[LatencyPoint] = (),
    elsewhere_intervals: Sequence[LoadInterval] = (),
    cohort_of: Mapping[str, str] | None = None,
) -> FittedLatency:
    """The same service with what intervals of runs tell, and sweeps and intervals ``elsewhere``: on other machine types.

    The client's factor comes from groups of the cohort that the curves describe. The result is ``fitted`` itself where
    there is nothing. Deterministic.
    """
    service, said = fitted.service, Notes()
    own = [i for i in intervals if i.service == service and i.shared <= _UNDISTURBED and i.cores is not None]
    cohorts = cohort_of or {}
    profile = fitted.profile
    points = [p for p in elsewhere if p.service == service]
    others = [i for i in elsewhere_intervals if i.service == service]
    for name, there in machine_factors(points, profile, others).items():
        source = "latency sweeps of other years"
        slow = said.add(f"factor of {name}", there.latency.value, there.latency, source)
        profile = replace(profile, latency_factor={**profile.latency_factor, name: slow})
        if there.capacity is not None:
            able = said.add(f"capacity factor of {name}", there.capacity.value, there.capacity, source)
            profile = replace(profile, capacity_factor={**profile.capacity_factor, name: able})
        for size, other in there.sizes.items():
            label = f"{size[0]} threads on {size[1]} cores of {name}"
            said.add(f"further factor, {label}", other.latency, None, source)
            said.add(f"further capacity factor, {label}", other.capacity, None, source)
        profile = replace(profile, curves=tuple(_also_on(c, there) for c in profile.curves))
    alike = [i for i in own if cohorts.get(i.group, fitted.reference) == fitted.reference]
    client = client_factor(alike, profile)
    if client is not None:
        factor = said.add(f"factor of client {CLIENT}", client.value, client, "intervals of runs under a changing load")
        profile = replace(profile, clients={**profile.clients, CLIENT: factor})
    background = background_of(alike, profile)
    if background is not None:
        source = "intervals with jobs of the lowest weight"
        for key, value in zip(("background_slope", "background_at", "background_width"), background, strict=True):
            said.add(key, value, None, source)
        slope, at, width = background
        profile = replace(profile, background_slope=slope, background_at=at, background_width=width)
    noise = fit_noise(own, profile)
    profile = replace(profile, window_noise=tuple(n.noise for n in noise))
    for one in noise:
        source = f"scatter of {counted(one.windows, 'interval')} of {counted(one.groups, 'group')}"
        for key in ("error", "stalls", "stall"):
            said.add(f"{key} of windows of {one.noise.window_s:g} s", getattr(one.noise, key), None, source)
    return replace(
        fitted,
        profile=profile,
        interval_scores=score_intervals(alike, profile),
        noise=noise,
        parameters=(*fitted.parameters, *said.parameters),
        warnings=(*fitted.warnings, *said.warnings),
    )


def _also_on(curve: LatencyCurve, there: OnMachineType) -> LatencyCurve:
    other = there.sizes.get((curve.threads, curve.cores))
    return curve if other is None else replace(curve, elsewhere=(*curve.elsewhere, other))


def client_factor(intervals: Iterable[LoadInterval], profile: ServiceProfile) -> Estimate | None:
    """The client of the runs against that of the curves, from long intervals with no job on the service's cores.

    Sizes that were measured, several cores, below the knee. None where there are no such intervals.
    """
    logs: dict[str, list[float]] = defaultdict(list)
    for i in intervals:
        if i.length_s >= LONG_S and i.background <= NO_BACKGROUND and (i.cores or 0) > 1:
            log = _log_ratio(i, profile, _BELOW_KNEE)
            if log is not None:
                logs[i.group].append(log)
    return over_groups([float(np.median(v)) for v in logs.values()]) if logs else None


def _log_ratio(i: LoadInterval, profile: ServiceProfile, below: float) -> float | None:
    """Log of measured p95 to the curve on a machine type that the curves describe; None beyond ``below`` its capacity."""
    curve = profile.curve(i.threads, i.cores or 0)
    if curve is None or i.machine_type in profile.latency_factor or i.qps > below * curve.qcap:
        return None
    return math.log(i.p95_us / curve.measured_p95_us(i.qps))


def _class_of(i: LoadInterval) -> tuple[int, int]:
    """Number of cores and class of load."""
    return i.cores or 0, int(i.qps / LOAD_CLASS)


def _usual(intervals: Iterable[LoadInterval], profile: ServiceProfile) -> dict[tuple[int, int], float]:
    """Log of measured p95 to the curve with no job on the service's cores, by size and class of load; median over groups."""
    logs: dict[tuple[int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for i in intervals:
        log = _log_ratio(i, profile, math.inf)
        if log is not None and i.background <= NO_BACKGROUND:
            logs[_class_of(i)][i.group].append(log)
    return {key: float(np.median([np.median(v) for v in groups.values()])) for key, groups in logs.items()}


def background_of(intervals: Iterable[LoadInterval], profile: ServiceProfile) -> tuple[float, float, float] | None:
    """Slope, position and width of what tasks of the lowest weight on the service's cores add to p95 near its capacity.

    Compared is with groups that had no job on those cores, by class of load: the client's own deviation from the curve is
    in both. A group's level is that of its loads below half the capacity, where such tasks are taken to change nothing; so
    only growth counts. None where no group ran such tasks.
    """
    from scipy.optimize import least_squares  # Only calibration needs it.

    own = [i for i in intervals if i.length_s >= LONG_S]
    usual = _usual(own, profile)
    rows: list[tuple[str, float, float, float]] = []
    for i in own:
        curve = profile.curve(i.threads, i.cores or 0)
        log, without = _log_ratio(i, profile, math.inf), usual.get(_class_of(i))
        if log is not None and without is not None and curve is not None and i.background >= BEHIND:
            rows.append((i.group, i.qps / curve.qcap, i.background, log - without))
    if not rows:
        return None
    levels = {}
    for group in {r[0] for r in rows}:
        calm = [log for g, use, _, log in rows if g == group and use < CALM]
        if calm:
            levels[group] = float(np.median(calm))
    rows = [r for r in rows if r[0] in levels and r[1] >= CALM]
    if not rows:
        return None
    use, share = (np.array([r[k] for r in rows]) for k in (1, 2))
    grown = np.array([log - levels[group] for group, _, _, log in rows])

    def residuals(x: Floats) -> Floats:
        slope, width = math.exp(x[0]), math.exp(x[2])
        said = np.log1p(slope * share / (1.0 + np.exp(-np.clip((use - x[1]) / width, -50.0, 50.0))))
        prior = [(x[k] - middle) / sd for k, (middle, sd) in enumerate(_BACKGROUND_PRIOR)]
        return np.concatenate([(grown - said) / _STEADY, prior])

    found = least_squares(residuals, [middle for middle, _ in _BACKGROUND_PRIOR], loss="soft_l1").x
    return math.exp(found[0]), float(found[1]), math.exp(found[2])


@dataclass(frozen=True)
class OnMachineType:
    """What one machine type does to a service, from sweeps of the load on it."""

    latency: Estimate
    """Factor on p95 below both knees: for all sizes, the median over the sizes of a group, then over the groups."""
    capacity: Estimate | None
    """The same for capacity; None where no client was ever held up."""
    sizes: Mapping[Size, OtherMachine]
    """By size, relative to both."""


def machine_factors(
    points: Sequence[LatencyPoint],
    profile: ServiceProfile,
    intervals: Sequence[LoadInterval] = (),
    slo_us: float = 1000.0,
) -> dict[str, OnMachineType]:
    """Factors of the machine types of some sweeps, relative to the curves of the profile.

    ``intervals``: of runs there; they count for the highest load within ``slo_us`` alone.
    """
    result = {}
    for name in sorted({p.machine_type for p in points}):
        of_type = readings([p for p in points if p.machine_type == name])
        found = _on_machine_type(name, of_type, [i for i in intervals if i.machine_type == name], profile, slo_us)
        if found is not None:
            result[name] = found
    return result


def _on_machine_type(
    name: str, of_type: Sequence[Reading], intervals: Sequence[LoadInterval], profile: ServiceProfile, slo_us: float
) -> OnMachineType | None:
    slow: dict[str, dict[Size, float]] = defaultdict(dict)
    able: dict[str, dict[Size, float]] = defaultdict(dict)
    for group, size in sorted({(r.group, r.size) for r in of_type}):
        curve = profile.curve(*size)
        own = [r for r in of_type if (r.group, r.size) == (group, size)]
        if curve is None:
            continue
        held_up = [r.achieved for r in own if r.saturated]
        knee = float(np.median(held_up)) if held_up else max(r.load for r in own)
        limit = _BELOW_OTHER_KNEE * min(knee, curve.qcap)
        logs = [math.log(r.p95_us / curve.measured_p95_us(r.load)) for r in own if r.load <= limit]
        if logs:
            slow[group][size] = float(np.median(logs))
        if held_up:
            able[group][size] = math.log(knee / curve.qcap)
    if not slow:
        return None
    latency = over_groups([float(np.median(list(v.values()))) for v in slow.values()])
    capacity = over_groups([float(np.median(list(v.values()))) for v in able.values()]) if able else None
    sizes = {}
    for size in sorted({s for v in slow.values() for s in v}):
        here = [v[size] for v in slow.values() if size in v]
        room = [v[size] for v in able.values() if size in v]
        sizes[size] = OtherMachine(
            name,
            math.exp(float(np.median(here))) / latency.value,
            math.exp(float(np.median(room))) / capacity.value if room and capacity is not None else 1.0,
            min(
                max(
                    highest_within([r for r in of_type if (r.group, r.size) == (group, size)], slo_us),
                    _highest_in_runs([i for i in intervals if (i.group, i.threads, i.cores) == (group, *size)], slo_us),
                )
                for group in {r.group for r in of_type if r.size == size}
            ),
        )
    return OnMachineType(latency, capacity, sizes)


def _highest_in_runs(intervals: Sequence[LoadInterval], slo_us: float) -> float:
    """The highest load that a group's runs met the goal with, class by class of load; 0 where they tell nothing."""
    classes: dict[int, list[LoadInterval]] = defaultdict(list)
    for i in intervals:
        if i.length_s >= LONG_S and i.shared <= _UNDISTURBED:
            classes[_class_of(i)[1]].append(i)
    highest = 0.0
    for _, own in sorted(classes.items()):
        if len(own) >= FEWEST:
            if float(np.median([i.p95_us for i in own])) > slo_us:
                break
            highest = max(i.qps for i in own)
    return highest


def score_intervals(intervals: Iterable[LoadInterval], profile: ServiceProfile) -> tuple[LatencyScore, ...]:
    """Long intervals below the knee, each predicted with the client factor of the other groups.

    What tasks of the lowest weight add comes from all groups. The group's one factor is that of its first interval of each
    size, which is not scored.
    """
    own = [i for i in intervals if i.length_s >= LONG_S and _log_ratio(i, profile, _BELOW_KNEE) is not None]
    result = []
    for group in sorted({i.group for i in own}):
        client = client_factor([i for i in own if i.group != group], profile)
        factors: dict[Size, float] = {}
        for i in sorted((i for i in own if i.group == group), key=lambda i: (i.run, i.t_start_s)):
            curve = profile.curve(i.threads, i.cores or 0)
            if client is None or curve is None:
                continue
            size = curve.threads, curve.cores
            predicted = client.value * curve.measured_p95_us(i.qps)
            predicted *= profile.background_factor(curve, i.qps, i.background)
            if size not in factors:
                factors[size] = i.p95_us / predicted
                continue
            calibrated = factors[size] * predicted
            part = "behind" if i.background >= BEHIND else "interval"
            result.append(LatencyScore(part, group, size, i.qps, i.p95_us, predicted, calibrated, True))
    return tuple(result)

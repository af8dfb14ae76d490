"""What moves a latency curve: aggressors, others on the same cores, machine types and load clients.

Everything here is a ratio to the same service without the influence, taken per group first: a group measures on one machine
with one client, so its points are not independent, and intervals are those of the mean over groups (Student's t on
logarithms).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flowsched_models.calibration.latency_curves import SATURATED
from flowsched_models.measurements.measurements import (
    REFERENCE,
    LatencyInterference,
    LatencyPoint,
    LatencyWindow,
    Placed,
    Run,
)
from flowsched_models.service import LatencyCurve, ServiceProfile

SWEEP_CLIENT, RUNS_CLIENT, INTERFERENCE_CLIENT = "mcperf-sweep", "mcperf-30k", "mcperf-interference"
"""What the load clients of the three kinds of measurement are called in the profile."""
CACHE = "llc"
"""The aggressor whose pressure is one unit."""
SAME_CORE = ("cpu", "l1i")
"""Aggressors that run on the service's own cores and want all of them."""
SAME_CORE_SHARE = 0.5
"""Weight share of such an aggressor: one container of equal weight on the same core."""
_BELOW_KNEE = 0.8
"""Ratios of p95 are taken up to this share of the smaller of the two capacities."""
_FLOOR_SD = 0.02
"""Standard deviation of a log ratio that no number of groups goes below: repeats differ by that."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float
    groups: int
    """Groups it comes from."""


def over_groups(logs: Sequence[float]) -> Estimate:
    """Median over groups of a ratio given by its logarithms, with Student's interval of their mean around it."""
    from scipy.stats import t  # Only calibration needs it.

    values = np.array(sorted(logs))
    centre = float(np.median(values))
    if len(values) < 2:
        return Estimate(math.exp(centre), 0.0, math.inf, len(values))
    spread = max(float(np.std(values, ddof=1)), _FLOOR_SD)
    half = float(t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return Estimate(math.exp(centre), math.exp(centre - half), math.exp(centre + half), len(values))


@dataclass(frozen=True)
class InterferenceSweep:
    """One aggressor in one group: p95 by load, and the capacity if the service was saturated."""

    p95_us: Mapping[float, float]
    capacity: float | None

    @property
    def knee(self) -> float:
        """Capacity, or the highest load where the service followed."""
        return max(self.p95_us) if self.capacity is None else self.capacity


Key = tuple[str, str, str]
"""Machine type, group, kind of interference."""


def sweeps(points: Iterable[LatencyInterference]) -> dict[Key, InterferenceSweep]:
    """Medians over repetitions by load asked for; loads are kept to two digits, so that runs without targets match."""
    rows: dict[Key, list[tuple[float, float, float]]] = defaultdict(list)
    for p in points:
        load = p.qps if p.target_qps is None else p.target_qps
        rows[(p.machine_type, p.group, p.interference)].append((_two_digits(load), p.qps, p.p95_us))
    found = {}
    for key, values in sorted(rows.items()):
        by_load: dict[float, list[tuple[float, float]]] = defaultdict(list)
        for load, achieved, p95 in values:
            by_load[load].append((achieved, p95))
        medians = {load: np.median(np.array(v), axis=0) for load, v in sorted(by_load.items())}
        held_up = [float(v[0]) for load, v in medians.items() if v[0] < SATURATED * load]
        found[key] = InterferenceSweep(
            {k: float(v[1]) for k, v in medians.items()}, float(np.median(held_up)) if held_up else None
        )
    return found


def _two_digits(load: float) -> float:
    return float(f"{load:.1e}") if load > 0.0 else 0.0


@dataclass(frozen=True)
class AggressorFactors:
    """What one kind of interference does on one machine type."""

    machine_type: str
    kind: str
    p95: Estimate
    """Factor on p95 below both knees."""
    capacity: Estimate | None
    """Factor on capacity; None where the service was never saturated."""


def aggressors(found: Mapping[Key, InterferenceSweep]) -> tuple[AggressorFactors, ...]:
    """The effect of every kind on every machine type, medians over groups."""
    p95: dict[tuple[str, str], list[float]] = defaultdict(list)
    capacity: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (machine_type, _, kind), alone, beside in _beside_alone(found):
        pairs = _common(alone, beside)
        if pairs:
            p95[(machine_type, kind)].append(float(np.median([math.log(b / a) for a, b in pairs])))
        if alone.capacity is not None and beside.capacity is not None:
            capacity[(machine_type, kind)].append(math.log(beside.capacity / alone.capacity))
    return tuple(
        AggressorFactors(*key, over_groups(logs), over_groups(capacity[key]) if key in capacity else None)
        for key, logs in sorted(p95.items())
    )


def _beside_alone(
    found: Mapping[Key, InterferenceSweep],
) -> Iterator[tuple[Key, InterferenceSweep, InterferenceSweep]]:
    """Every sweep beside an aggressor whose group has one without: its key, that without, and itself."""
    for key, beside in found.items():
        alone = found.get((*key[:2], REFERENCE))
        if key[2] != REFERENCE and alone is not None:
            yield key, alone, beside


def _common(alone: InterferenceSweep, beside: InterferenceSweep) -> list[tuple[float, float]]:
    """Pairs of p95, without and with, at loads that both sweeps have and both can follow."""
    limit = _BELOW_KNEE * min(alone.knee, beside.knee)
    return [(p, beside.p95_us[load]) for load, p in alone.p95_us.items() if load <= limit and load in beside.p95_us]


@dataclass(frozen=True)
class SharingFactors:
    """What others on the service's cores do, per unit of the CPU weight share that they hold."""

    slope: float
    """Relative growth of p95."""
    added_us: Estimate
    """Microseconds added to p95: a wait for a time slice of the others."""
    capacity: Estimate
    """Share of capacity lost."""


def sharing(found: Mapping[Key, InterferenceSweep]) -> SharingFactors | None:
    """Fitted to the aggressors on the service's own cores; None where there are none.

    A growth in proportion to p95 and a time added are fitted together; the first at least 0.
    """
    from scipy.optimize import nnls  # Only calibration needs it.

    pairs: list[tuple[float, float]] = []
    added: dict[str, list[float]] = defaultdict(list)
    lost: dict[str, list[float]] = defaultdict(list)
    for (_, group, kind), alone, beside in _beside_alone(found):
        if kind not in SAME_CORE:
            continue
        common = _common(alone, beside)
        pairs += common
        added[group] += [b - a for a, b in common]
        if alone.capacity is not None and beside.capacity is not None:
            lost[group].append(math.log(beside.capacity / alone.capacity))
    if not pairs:
        return None
    # Relative residuals: each row is divided by what was measured.
    rows = np.array([[SAME_CORE_SHARE * a / b, SAME_CORE_SHARE / b] for a, b in pairs])
    (slope, _), _ = nnls(rows, np.array([(b - a) / b for a, b in pairs]))
    level = [math.log(max(1.0, float(np.median(v)) / SAME_CORE_SHARE)) for v in added.values() if v]
    rest = float(np.median([a for a, _ in pairs])) * float(slope)
    time = over_groups(level)
    time = Estimate(max(0.0, time.value - rest), max(0.0, time.low - rest), max(0.0, time.high - rest), time.groups)
    left = over_groups([float(np.median(v)) for v in lost.values()]) if lost else Estimate(SAME_CORE_SHARE, 0.0, 1.0, 0)
    lose = [max(0.0, (1.0 - v) / SAME_CORE_SHARE) for v in (left.value, left.high, left.low)]
    return SharingFactors(float(slope), time, Estimate(lose[0], lose[1], lose[2], left.groups))


def cpu_per_kqps(points: Iterable[LatencyPoint], curves: Mapping[tuple[int, int], LatencyCurve]) -> Estimate | None:
    """Busy CPUs per thousand queries per second, from loads of at least half the capacity; None where none was logged.

    Below that, some ways of logging do not see the time spent in interrupts.
    """
    by_group: dict[str, list[float]] = defaultdict(list)
    for p in points:
        curve = curves.get((p.threads, p.cores))
        if p.cpu_percent and curve is not None and p.qps >= 0.5 * curve.qcap:
            by_group[p.group].append(math.log(p.cpu_percent / 100.0 / (p.qps / 1000.0)))
    return over_groups([float(np.median(v)) for v in by_group.values()]) if by_group else None


@dataclass(frozen=True)
class Ratio:
    """Median of log(measured p95 / curve) of one group, one client, one machine type."""

    group: str
    client: str
    machine_type: str
    log: float


def placed_windows(
    windows: Iterable[LatencyWindow], runs: Iterable[Run], service: str
) -> list[tuple[LatencyWindow, Run, Placed]]:
    """Windows with the placement of the service in their run; without those whose run is not known."""
    by_name = {(r.group, r.schedule, r.run): r for r in runs}
    found = []
    for w in windows:
        run = by_name.get((w.group, w.schedule, w.run))
        placed = next((s for s in run.services if s.profile == service), None) if run is not None else None
        if run is not None and placed is not None and w.service in ("", service):
            found.append((w, run, placed))
    return found


def core_count(placed: Placed) -> int:
    """Cores that the service can use. Where it is not pinned, one more than its threads: more change nothing."""
    return len(placed.cores) or placed.threads + 1


def window_ratios(
    placed: Iterable[tuple[LatencyWindow, Run, Placed]],
    curves: tuple[LatencyCurve, ...],
    vcpus: Mapping[str, int] | None,
) -> list[Ratio]:
    """Ratios of windows of runs to the curves, per group and machine type, neighbours taken off."""
    logs: dict[tuple[str, str], list[float]] = defaultdict(list)
    plain = ServiceProfile("", curves, {RUNS_CLIENT: 1.0})
    for w, run, where in placed:
        curve = plain.curve_or_estimate(where.threads, core_count(where))
        if crowd(w, run, where, vcpus) > 0.0:
            continue  # What sharing adds is not a matter of the client.
        expected = plain.p95_us(curve, w.qps, RUNS_CLIENT)
        logs[(w.group, where.machine_type)].append(math.log(w.p95_us / expected))
    return [Ratio(group, RUNS_CLIENT, kind, float(np.median(v))) for (group, kind), v in sorted(logs.items())]


def sweep_ratios(found: Mapping[Key, InterferenceSweep], curve: LatencyCurve) -> list[Ratio]:
    """Ratios of sweeps without interference to a curve, below both knees."""
    result = []
    for (machine_type, group, kind), own in sorted(found.items()):
        if kind != REFERENCE:
            continue
        limit = _BELOW_KNEE * min(own.knee, curve.qcap)
        logs = [math.log(p / curve.p95_us(load)) for load, p in own.p95_us.items() if load <= limit]
        if logs:
            result.append(Ratio(group, INTERFERENCE_CLIENT, machine_type, float(np.median(logs))))
    return result


def crowd(window: LatencyWindow, run: Run, placed: Placed, vcpus: Mapping[str, int] | None) -> float:
    """The weight share that a service feels in a window of a run: that of jobs that find no other core.

    Jobs that may run elsewhere do so as long as the node has idle cores. Weights are spread evenly over the cores that a
    job may use; without a request two containers weigh the same. ``vcpus`` by machine type; where they are not given, only
    pinned jobs are counted.
    """
    length = max(window.t_end_s - window.t_start_s, 1e-9)
    others = [
        e
        for e in run.executions
        if e.node == placed.node and min(e.end_s, window.t_end_s) - max(e.start_s, window.t_start_s) > 0.5 * length
    ]
    count = (vcpus or {}).get(placed.machine_type, 0)
    if not count:  # The number of CPUs is unknown: jobs that are not pinned found some.
        others = [e for e in others if e.cores]
        count = max([c + 1 for e in others for c in e.cores] + [c + 1 for c in placed.cores], default=1)
    own = set(placed.cores or range(count))
    near = [e for e in others if own & set(e.cores or range(count))]
    running = sum(min(e.threads, len(e.cores) or count) for e in others)
    if not near or running <= count - min(placed.threads, len(own)):
        return 0.0
    mine = (placed.request or 1.0) / len(own)
    theirs = sum((e.request or 1.0) / (len(e.cores) or count) for e in near)
    return theirs / (theirs + mine)


@dataclass(frozen=True)
class Factors:
    """Factors of load clients and machine types on a curve."""

    clients: Mapping[str, Estimate]
    machines: Mapping[str, Estimate]


def clients_and_machines(ratios: Sequence[Ratio], measured_on: Iterable[str]) -> Factors:
    """Factors by client and by machine type so that their product meets the ratios.

    A machine type of the curves has factor 1. Where no other measurement was made on one, clients and machines cannot be
    told apart by an overall factor; then the machine type with the most groups has factor 1.
    """
    from scipy.optimize import least_squares  # Only calibration needs it.

    types = sorted({r.machine_type for r in ratios})
    fixed = sorted(set(types) & set(measured_on))
    if not fixed and types:
        groups = {t: len({r.group for r in ratios if r.machine_type == t}) for t in types}
        fixed = [max(types, key=lambda t: (groups[t], t))]
    free = [t for t in types if t not in fixed]
    clients = sorted({r.client for r in ratios})
    if not clients:
        return Factors({}, {})
    design = np.zeros((len(ratios), len(clients) + len(free)))
    for i, r in enumerate(ratios):
        design[i, clients.index(r.client)] = 1.0
        if r.machine_type in free:
            design[i, len(clients) + free.index(r.machine_type)] = 1.0
    logs = np.array([r.log for r in ratios])
    start = np.linalg.lstsq(design, logs, rcond=None)[0]
    solution = least_squares(lambda x: (design @ x - logs) / 0.1, start, loss="soft_l1").x
    left = logs - design @ solution
    estimates = [
        _around(float(solution[k]), [float(v) for v in left[design[:, k] > 0.0]]) for k in range(len(solution))
    ]
    return Factors(dict(zip(clients, estimates, strict=False)), dict(zip(free, estimates[len(clients) :], strict=True)))


def _around(log: float, left_over: Sequence[float]) -> Estimate:
    """The interval of :func:`over_groups` around a value that was fitted jointly with others."""
    spread = over_groups(left_over)
    value = math.exp(log)
    return Estimate(value, value * spread.low / spread.value, value * spread.high / spread.value, spread.groups)

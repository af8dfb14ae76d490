"""Fits the run-time model: least squares on log durations, with starts as measured and ends simulated."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from flowsched_models.calibration.observation import Observations, Played, ThreadSweep
from flowsched_models.calibration.parameter import PER_JOB, Parameters, Values
from flowsched_models.cell import (
    GAIN,
    JOB_COLUMNS,
    PHI,
    PRESSURE,
    READY,
    SENSITIVITY,
    SERIAL_FIRST,
    THREADING,
    THREADS,
    WEIGHT,
    WORK,
    Bools,
    Floats,
    Ints,
)
from flowsched_models.kernel import run_draws
from flowsched_models.profile import PhaseOrder

DURATION_DEVIATION = 0.07
"""Of the logarithm of a duration: repeats of one schedule on other hosts differ by about that much."""
CLOCK_DEVIATION_S = 0.5
"""Of a measured start or end: most tables count whole seconds."""
SWEEP_DEVIATION = 0.08
"""Of the logarithm of a median over groups in a thread sweep."""
SLOWDOWN_DEVIATION = 0.03
"""Of the logarithm of a median slow-down beside an aggressor."""

_LEAST_NOISE = 0.2
"""Weighted residuals smaller than this are luck: intervals do not shrink further."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """Parameters fitted to observations, and how well they are known."""

    parameters: Parameters
    vector: Floats
    phase_order: tuple[PhaseOrder, ...]
    cost: float
    """Half the sum of squares, assumptions included."""
    deviation: Floats
    """[parameters] standard deviation of each on the fit's scale."""

    @cached_property
    def values(self) -> Values:
        """The parameters as the model takes them."""
        return self.parameters.values(self.vector)

    def interval(self, at: int) -> tuple[float, float, float]:
        """Value and 95 % interval of one number, on the profile's scale."""
        middle, wide = self.vector[at], 1.96 * self.deviation[at]
        ends = np.array([middle, max(middle - wide, self.parameters.lower[at]), middle + wide])
        value, low, high = self.parameters.names()[at][2].plain(ends).tolist()
        return value, low, high

    def identified(self, at: int) -> bool:
        """Whether the measurements say more of a number than was assumed of it beforehand."""
        return bool(self.deviation[at] < 0.7 * self.parameters.deviation[at])


def durations(played: Played, values: Values, serial_first: Bools) -> Floats:
    """[n] run times of all jobs on one machine of a run, with the starts as they were."""
    rows = job_rows(values, serial_first, played.jobs, played.kind, played.threads, played.parallel, played.weight)
    rows[:, READY] = played.ready_s
    return _run(rows, played.services, played.can, played.sibling) - played.ready_s


def sweep_duration(sweep: ThreadSweep, values: Values, serial_first: Bools, observed: Observations) -> float:
    """Run time of a job alone."""
    machine = observed.machine_types[sweep.kind]
    threads = np.array([float(sweep.threads)])
    parallel = np.minimum(threads, len(sweep.cores))
    rows = job_rows(values, serial_first, np.array([sweep.job]), sweep.kind, threads, parallel, np.ones(1))
    can = np.zeros((1, machine.vcpus), np.bool_)
    can[0, list(sweep.cores)] = True
    sibling = np.full(machine.vcpus, -1, np.int64)
    for one, other in machine.siblings:
        sibling[one], sibling[other] = other, one
    return float(_run(rows, np.zeros((0, 1)), can, sibling)[0])


def job_rows(
    values: Values,
    serial_first: Bools,
    jobs: Floats | Ints,
    kind: int,
    threads: Floats,
    parallel: Floats,
    weight: Floats,
) -> Floats:
    """[n, columns] as the compiled model takes jobs; ready at once, without progress."""
    rows = np.zeros((len(threads), JOB_COLUMNS))
    at = np.asarray(jobs, dtype=np.int64)
    rows[:, WORK] = values.work_s[at] / values.speed[kind, at]
    rows[:, PHI] = values.serial_fraction[at]
    rows[:, SERIAL_FIRST] = serial_first[at]
    rows[:, THREADS] = parallel
    rows[:, WEIGHT] = weight
    rows[:, GAIN] = values.smt_gain[at]
    rows[:, SENSITIVITY] = values.sensitivity[at] * values.bandwidth[kind]
    rows[:, PRESSURE] = values.pressure[at]
    rows[:, THREADING] = 1.0 + values.oversubscription[at] * np.maximum(0.0, np.log2(threads / 4.0))
    return rows


def _run(rows: Floats, services: Floats, can: Bools, sibling: Ints) -> Floats:
    n = len(rows)
    ends, bound = np.empty((1, n)), np.empty((1, n))
    peak = np.zeros((1, len(services)))
    start = np.zeros(n, np.int64)
    none = np.full(n, -1, np.int64)
    run_draws(rows, start, none, np.ones((1, n)), services, can, sibling, 1e9, 1e9, 0.0, ends, bound, peak)
    result: Floats = ends[0]
    return result


def fit_runtime(
    observed: Observations,
    parameters: Parameters,
    phase_order: tuple[PhaseOrder, ...] | None = None,
    *,
    without: Collection[str] = (),
    start: Floats | None = None,
    most: int = 60,
    progress: Progress = lambda _: None,
) -> Fitted:
    """The parameters that explain the observations best.

    ``phase_order`` None: chosen by the fit, job by job. ``without``: groups that are left out. ``most`` evaluations of the
    Jacobian. Deterministic.
    """
    if phase_order is None:
        return _choose_phases(observed, parameters, without, most, progress)
    from scipy.optimize import least_squares  # the extra `calibrate`; nothing else needs it

    problem = _Problem(observed, parameters, phase_order, frozenset(without))
    begin = parameters.start() if start is None else np.maximum(start, parameters.lower + 1e-9)
    solution = least_squares(
        problem.residuals,
        begin,
        jac=problem.jacobian,
        bounds=(parameters.lower, np.inf),
        x_scale="jac",
        max_nfev=most,
        ftol=1e-6,
        xtol=1e-6,
    )
    deviation = _spread(np.asarray(solution.jac), np.asarray(solution.fun), parameters.count)
    return Fitted(parameters, np.asarray(solution.x), phase_order, float(solution.cost), deviation)


def _choose_phases(
    observed: Observations, parameters: Parameters, without: Collection[str], most: int, tell: Progress
) -> Fitted:
    """Serial parts come first where that explains the runs better; mixed in where nothing tells."""
    tell("fitting with every serial part mixed in")
    best = fit_runtime(
        observed, parameters, (PhaseOrder.MIXED,) * len(observed.jobs), without=without, most=min(20, most)
    )
    if observed.played:
        for j, job in enumerate(observed.jobs):
            tell(f"is {job}'s serial part first?")
            order = (*best.phase_order[:j], PhaseOrder.SERIAL_FIRST, *best.phase_order[j + 1 :])
            trial = fit_runtime(observed, parameters, order, without=without, start=best.vector, most=8)
            if trial.cost < best.cost - 1.0:
                best = trial
    tell("fitting all parameters")
    return fit_runtime(observed, parameters, best.phase_order, without=without, start=best.vector, most=most)


def _spread(jacobian: Floats, residuals: Floats, count: int) -> Floats:
    """Standard deviations of the parameters."""
    measured = len(residuals) - count
    seen, assumed = jacobian[:measured], jacobian[measured:]
    covariance = np.linalg.pinv(jacobian.T @ jacobian)
    leverage = float(np.sum((seen @ covariance) * seen))
    # Standard deviation of the weighted residuals of the measurements: 1 where the assumed deviations are right.
    noise = float(np.sqrt(np.sum(residuals[:measured] ** 2) / max(1.0, measured - leverage))) if measured else 1.0
    # What was assumed beforehand is no more certain because the measurements agree with each other.
    weight = 1.0 / max(noise, _LEAST_NOISE) ** 2
    covariance = np.linalg.pinv(weight * (seen.T @ seen) + assumed.T @ assumed)
    return np.sqrt(np.maximum(0.0, np.diag(covariance)))


@dataclass(frozen=True)
class _Problem:
    observed: Observations
    parameters: Parameters
    phase_order: tuple[PhaseOrder, ...]
    without: frozenset[str]

    @cached_property
    def serial_first(self) -> Bools:
        return np.array([o is PhaseOrder.SERIAL_FIRST for o in self.phase_order])

    @cached_property
    def _played(self) -> list[tuple[Played, Floats]]:
        kept = [p for p in self.observed.played if p.group not in self.without]
        return [
            (
                p,
                np.sqrt(DURATION_DEVIATION**2 + 2 * (CLOCK_DEVIATION_S / p.duration_s) ** 2) * np.sqrt(p.repeats),
            )
            for p in kept
        ]

    @cached_property
    def _sweeps(self) -> list[tuple[ThreadSweep, float]]:
        return [(s, m) for s in self.observed.sweeps if (m := s.median_s(self.without)) is not None]

    @cached_property
    def _slowdowns(self) -> list[tuple[int, float]]:
        found = [(s.job, m) for s in self.observed.slowdowns if (m := s.median(self.without)) is not None]
        return [(job, max(0.02, m - 1.0)) for job, m in found]

    @cached_property
    def _places(self) -> list[slice]:
        """Where the residuals of each machine of a run stand."""
        ends = np.cumsum([0, *(len(p.jobs) for p, _ in self._played)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    @cached_property
    def _present(self) -> Bools:
        """[machines of runs, jobs]"""
        found = np.zeros((len(self._played), len(self.observed.jobs)), np.bool_)
        for row, (played, _) in zip(found, self._played, strict=True):
            row[played.jobs] = True
        return found

    @cached_property
    def _kinds(self) -> Ints:
        return np.array([p.kind for p, _ in self._played], dtype=np.int64)

    def residuals(self, vector: Floats) -> Floats:
        """Of all measurements, then of the assumptions; softened."""
        return self._whole(_soften(self._raw(vector)), vector)

    def jacobian(self, vector: Floats) -> Floats:
        """Derivatives by differences; only the machines that a parameter can change are run again."""
        base_values = self.parameters.values(vector)
        base = self._raw(vector)
        softened = _soften(base)
        found = np.zeros((len(base) + self.parameters.count, self.parameters.count))
        for at in range(self.parameters.count):
            step = 1e-5 * max(1.0, abs(float(vector[at])))
            moved = vector.copy()
            moved[at] += step
            values = self.parameters.values(moved)
            changed = _soften(self._raw(moved, base, self._touched(base_values, values)))
            found[: len(base), at] = (changed - softened) / step
            found[len(base) + at, at] = 1.0 / self.parameters.deviation[at]
        return found

    def _touched(self, one: Values, other: Values) -> Bools:
        jobs = np.zeros(len(self.observed.jobs), np.bool_)
        for name in PER_JOB:
            jobs |= getattr(one, name) != getattr(other, name)
        touched: Bools = (one.speed != other.speed) | jobs | (one.bandwidth != other.bandwidth)[:, None]
        return touched

    def _raw(self, vector: Floats, base: Floats | None = None, touched: Bools | None = None) -> Floats:
        """Weighted log errors; where ``touched`` [types, jobs] is false for all of a machine, those of ``base``."""
        values = self.parameters.values(vector)
        first = self.serial_first
        count = len(self._played)
        machines = self._places[-1].stop if count else 0
        result = np.zeros(machines + len(self._sweeps) + len(self._slowdowns)) if base is None else base.copy()
        again = np.ones(count, np.bool_)
        if touched is not None and count:
            again = np.any(self._present & touched[self._kinds], axis=1)
        for i in np.flatnonzero(again).tolist():
            played, deviation = self._played[i]
            result[self._places[i]] = np.log(durations(played, values, first) / played.duration_s) / deviation
        for i, (sweep, median) in enumerate(self._sweeps):
            if touched is None or touched[sweep.kind, sweep.job]:
                time_s = sweep_duration(sweep, values, first, self.observed)
                result[machines + i] = np.log(time_s / median) / SWEEP_DEVIATION
        at = machines + len(self._sweeps)
        for i, (job, slower) in enumerate(self._slowdowns):
            result[at + i] = np.log((1.0 + values.sensitivity[job]) / (1.0 + slower)) / SLOWDOWN_DEVIATION
        return result

    def _whole(self, measured: Floats, vector: Floats) -> Floats:
        return np.concatenate([measured, (vector - self.parameters.mean) / self.parameters.deviation])


def _soften(z: Floats) -> Floats:
    """Soft L1: beyond one deviation a residual counts in proportion to its size, so that odd runs do not rule."""
    result: Floats = np.sign(z) * np.sqrt(2.0 * (np.sqrt(1.0 + z * z) - 1.0))
    return result

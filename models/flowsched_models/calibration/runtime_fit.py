"""Fits the run-time model: least squares on log durations, with starts as measured and ends simulated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress, pairwise, starmap
from typing import Any

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
from flowsched_models.kernel import RunResult, StartingJobs, StartLimits, run_draws
from flowsched_models.profile import PhaseOrder

DURATION_DEVIATION = 0.07
"""Of the logarithm of a duration: repeats of one schedule on other hosts differ by about that much."""
CLOCK_DEVIATION_S = 0.5
"""Of a measured start or end: most tables count whole seconds."""
SWEEP_DEVIATION = 0.08
"""Of the logarithm of a median over groups in a thread sweep."""
SLOWDOWN_DEVIATION = 0.03
"""Of the logarithm of a median slow-down beside an aggressor."""

_NO_LIMITS = StartLimits(1e9, 1e9, 0.0)
"""Every job that is measured is there from the start."""
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


_Jobs = tuple[Ints, Ints, Floats, Floats, Floats, Floats]
"""[n] of jobs: their indices, those of their machines' types, threads, how many run at once, weights, starts."""
_Machine = tuple[_Jobs, tuple[Floats, Bools, Ints]]
"""The jobs on it; its services, who may use which virtual CPU, and their siblings."""


def _of_run(p: Played) -> _Machine:
    jobs = p.jobs, np.full(len(p.jobs), p.kind), p.threads, p.parallel, p.weight, p.ready_s
    return jobs, (p.services, p.can, p.sibling)


def _alone(sweep: ThreadSweep, observed: Observations) -> _Machine:
    machine = observed.machine_types[sweep.kind]
    threads = np.array([float(sweep.threads)])
    can = np.zeros((1, machine.vcpus), np.bool_)
    can[0, list(sweep.cores)] = True
    sibling = np.full(machine.vcpus, -1, np.int64)
    for one, other in machine.siblings:
        sibling[one], sibling[other] = other, one
    parallel = np.minimum(threads, len(sweep.cores))
    jobs = np.array([sweep.job]), np.array([sweep.kind]), threads, parallel, np.ones(1), np.zeros(1)
    return jobs, (np.zeros((0, 1)), can, sibling)


def sweep_duration(sweep: ThreadSweep, values: Values, serial_first: Bools, observed: Observations) -> float:
    """Run time of a job alone."""
    machine = _alone(sweep, observed)
    return float(_ends(_job_rows(values, serial_first, machine[0]), [(slice(0, 1), machine)])[0])


def _job_rows(values: Values, serial_first: Bools, jobs: _Jobs) -> Floats:
    """[n, columns] as the compiled model takes jobs, without progress."""
    at, kind, threads, parallel, weight, ready_s = jobs
    rows = np.zeros((len(at), JOB_COLUMNS))
    rows[:, WORK] = values.work_s[at] / values.speed[kind, at]
    rows[:, PHI] = values.serial_fraction[at]
    rows[:, SERIAL_FIRST] = serial_first[at]
    rows[:, THREADS] = parallel
    rows[:, WEIGHT] = weight
    rows[:, GAIN] = values.smt_gain[at]
    rows[:, SENSITIVITY] = values.sensitivity[at] * values.bandwidth[kind]
    rows[:, PRESSURE] = values.pressure[at]
    rows[:, THREADING] = 1.0 + values.oversubscription[at] * np.maximum(0.0, np.log2(threads / 4.0))
    rows[:, READY] = ready_s
    return rows


def _ends(rows: Floats, machines: Iterable[tuple[slice, _Machine]]) -> Floats:
    """[n] when the jobs of some machines end; slices say which rows are theirs."""
    n = len(rows)
    start, none = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    factors, ends, bound = np.ones((3, 1, n))
    for at, (_, on) in machines:
        into = RunResult(ends[:, at], bound[:, at], np.zeros((1, len(on[0]))))
        run_draws(StartingJobs(rows[at], start[at], start[at], none[at]), factors[:, at], *on, _NO_LIMITS, into)
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
    def _slowdowns(self) -> tuple[Ints, Floats]:
        """Jobs, and by how much an aggressor slows each of them down."""
        found = [(s.job, m) for s in self.observed.slowdowns if (m := s.median(self.without)) is not None]
        return np.array([j for j, _ in found], np.int64), np.array([max(0.02, m - 1.0) for _, m in found])

    @cached_property
    def _measured(self) -> tuple[list[tuple[slice, _Machine]], Floats, Floats]:
        """Machines of runs, then of sweeps, and where their jobs stand; [jobs] seconds, deviations of their logs."""
        runs = [p for p in self.observed.played if p.group not in self.without]
        sweeps = [(s, m) for s in self.observed.sweeps if (m := s.median_s(self.without)) is not None]
        machines = [*map(_of_run, runs), *(_alone(s, self.observed) for s, _ in sweeps)]
        ends = np.cumsum([0, *(len(jobs[0]) for jobs, _ in machines)]).tolist()
        spread = [
            np.sqrt(DURATION_DEVIATION**2 + 2 * (CLOCK_DEVIATION_S / p.duration_s) ** 2) * np.sqrt(p.repeats)
            for p in runs
        ]
        return (
            list(zip(starmap(slice, pairwise(ends)), machines, strict=True)),
            np.array([*chain(*(p.duration_s for p in runs)), *(m for _, m in sweeps)]),
            np.array([*chain(*spread), *([SWEEP_DEVIATION] * len(sweeps))]),
        )

    @cached_property
    def _jobs(self) -> Any:
        """Of all machines, one behind the other."""
        return [np.concatenate([np.zeros(0, int), *(m[0][c] for _, m in self._measured[0])]) for c in range(6)]

    @cached_property
    def _machine_of(self) -> Ints:
        """[jobs]"""
        return np.repeat(np.arange(len(self._measured[0])), [at.stop - at.start for at, _ in self._measured[0]])

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
        jobs, kinds, *_, ready_s = self._jobs
        machines, measured_s, deviation = self._measured
        pressed, slower = self._slowdowns
        result = np.zeros(len(jobs) + len(pressed)) if base is None else base.copy()
        again = np.ones(len(machines), np.bool_)
        if touched is not None:
            again = np.bincount(self._machine_of, touched[kinds, jobs], len(machines)) > 0
        ends = _ends(_job_rows(values, self.serial_first, self._jobs), compress(machines, again))
        at = np.flatnonzero(again[self._machine_of])
        result[at] = np.log((ends[at] - ready_s[at]) / measured_s[at]) / deviation[at]
        result[len(jobs) :] = np.log((1.0 + values.sensitivity[pressed]) / (1.0 + slower)) / SLOWDOWN_DEVIATION
        return result

    def _whole(self, measured: Floats, vector: Floats) -> Floats:
        return np.concatenate([measured, (vector - self.parameters.mean) / self.parameters.deviation])


def _soften(z: Floats) -> Floats:
    """Soft L1: beyond one deviation a residual counts in proportion to its size, so that odd runs do not rule."""
    result: Floats = np.sign(z) * np.sqrt(2.0 * (np.sqrt(1.0 + z * z) - 1.0))
    return result

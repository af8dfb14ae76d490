"""Speeds of jobs that a controller runs in containers, beside a service whose load changes: a machine type of its own.

There jobs take other times than the same type shows on Kubernetes: both hardware threads of a core are busy for long, and
hosts differ. All but the speeds is kept from the fit to runs and sweeps. A speed is right where the model's progress over
what the log says a job had, from its start to its end, is 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.calibration.assembly import rounded
from flowsched_models.calibration.controlled_progress import progress
from flowsched_models.calibration.uncertainty import errors_of
from flowsched_models.catalogue import Catalogue
from flowsched_models.cell import Floats
from flowsched_models.machine import MachineType
from flowsched_models.measurements.controlled_run import ControlledRun
from flowsched_models.runtime import HostFactory
from flowsched_models.validation.score import Errors, Quantity, Score, errors

SUFFIX = "-docker"
"""What the name of the machine type adds to that of the machine."""
LEAST_INTERVAL_S = 10.0
"""Runs whose load changes more often are not used: cores then change faster than clocks of load and controller agree."""
FEWEST_GROUPS = 2
"""Groups that must have run all jobs on a machine before it gets a type of its own."""
DEVIATION = 0.1
"""Of the logarithm of what a job took: hosts and repeats differ by about that much."""
PRIOR_DEVIATION = 0.3
"""Of the logarithm of a speed around that on the same machine outside of containers."""


@dataclass(frozen=True)
class ControlledFit:
    """A machine type for jobs under a controller."""

    machine: MachineType
    of: str
    """The type without containers, whose memory and bandwidth it has."""
    speed: Mapping[str, float]
    """By job."""
    year: str
    """Whose runs were fitted; empty where none is known."""
    runs: tuple[ControlledRun, ...]
    scores: tuple[Score, ...]
    """Times of the fitted runs by this fit."""
    left_out: tuple[Score, ...]
    """The same by fits that had not seen their group."""
    elsewhere: tuple[Score, ...]
    """Times in other years, which were not fitted."""
    variants: Mapping[bool, Errors]
    """What groups left out came to without and with siblings that slow each other down; empty where none was left out."""

    @property
    def source(self) -> str:
        """What a profile says of its numbers."""
        groups = len({run.group for run in self.runs})
        text = (
            f"{self.machine.vcpus} vCPU, jobs in containers beside a service whose load changes (Part 4 of the course):"
            f" fitted to {len(self.scores)} executions in {len(self.runs)} runs of {groups} groups"
        )
        text += f" of {self.year}" if self.year else ""
        found = errors(self.left_out)
        return text + (f"; groups left out {found.median:.1f} % in the median." if found else ".")


def fit_controlled(
    runs: Sequence[ControlledRun], catalogue: Catalogue, *, leave_out: bool = True, smt: bool | None = None
) -> tuple[ControlledFit, ...]:
    """A machine type for each machine on which enough groups had their jobs under a controller.

    The year with most groups is fitted, the last one of equals, as images, kernels and hosts differ between years. Whether
    siblings slow each other down is what predicts groups left out better, if ``smt`` does not say it.
    """
    known = [
        run
        for run in runs
        if run.interval_s >= LEAST_INTERVAL_S
        and run.machine_type in catalogue.machine_types
        and set(run.executions) <= set(catalogue.jobs)
    ]
    found = []
    for name in sorted({run.machine_type for run in known}):
        here = [run for run in known if run.machine_type == name]
        groups = Counter(year for _, year in {(run.group, run.year) for run in here})
        year = max(groups, key=lambda y: (groups[y], y))
        if groups[year] >= FEWEST_GROUPS:
            found.append(_fit_type(name, year, here, catalogue, leave_out, (False, True) if smt is None else (smt,)))
    return tuple(found)


def with_controlled(catalogue: Catalogue, fits: Collection[ControlledFit]) -> Catalogue:
    """The catalogue with the machine types of these fits."""
    jobs = dict(catalogue.jobs)
    for fit in fits:
        for job, speed in fit.speed.items():
            own = {**jobs[job].speed, fit.machine.name: speed}
            jobs[job] = replace(jobs[job], speed={name: own[name] for name in sorted(own)})
    types = {**catalogue.machine_types, **{fit.machine.name: fit.machine for fit in fits}}
    return replace(catalogue, jobs=jobs, machine_types=types)


def without_controlled(catalogue: Catalogue) -> Catalogue:
    """The catalogue without machine types that such a fit gave: they are no sisters of their machine."""
    dropped = {
        n for n in catalogue.machine_types if n.endswith(SUFFIX) and n[: -len(SUFFIX)] in catalogue.machine_types
    }
    jobs = {
        name: replace(job, speed={t: s for t, s in job.speed.items() if t not in dropped})
        for name, job in catalogue.jobs.items()
    }
    return replace(
        catalogue, jobs=jobs, machine_types={n: m for n, m in catalogue.machine_types.items() if n not in dropped}
    )


def telling(run: ControlledRun) -> tuple[str, ...]:
    """The jobs of a run whose times tell their speed."""
    return tuple(job for job in run.executions if job not in run.throttled)


def _fit_type(
    name: str,
    year: str,
    here: Sequence[ControlledRun],
    catalogue: Catalogue,
    leave_out: bool,
    choices: Sequence[bool],
) -> ControlledFit:
    runs = tuple(run for run in here if run.year == year)
    groups = sorted({run.group for run in runs})
    unseen: dict[bool, tuple[Score, ...]] = {}
    costs: dict[bool, float] = {}
    fitted: dict[bool, dict[str, float]] = {}
    for smt in choices:
        fitted[smt], costs[smt] = _fit_speeds(runs, catalogue, name, smt)
        if leave_out:
            parts = []
            for group in groups:
                others = [run for run in runs if run.group != group]
                speed, _ = _fit_speeds(others, catalogue, name, smt)
                parts += _scores([run for run in runs if run.group == group], _typed(catalogue, name, smt, speed), name)
            unseen[smt] = tuple(parts)
    variants = {smt: e for smt, part in unseen.items() if (e := errors(part)) is not None}
    smt = min(choices, key=lambda s: (variants[s].median if variants else costs[s], s))
    typed = _typed(catalogue, name, smt, {job: rounded(v) for job, v in fitted[smt].items()})
    machine = typed.machine_types[name + SUFFIX]
    scores, left_out = tuple(_scores(runs, typed, name)), unseen.get(smt, ())
    error = errors_of(left_out or scores).hosts[machine.name]
    return ControlledFit(
        replace(machine, error=rounded(error, 2)),
        name,
        {job: typed.jobs[job].speed[machine.name] for job in fitted[smt]},
        year,
        runs,
        scores,
        left_out,
        tuple(_scores([run for run in here if run.year != year], typed, name)),
        variants,
    )


def _fit_speeds(
    runs: Sequence[ControlledRun], catalogue: Catalogue, name: str, smt: bool
) -> tuple[dict[str, float], float]:
    """Speeds by job and the cost. Repeats by one group count little more than one run of it."""
    from scipy.optimize import least_squares

    jobs = sorted({job for run in runs for job in run.executions})
    at = {job: j for j, job in enumerate(jobs)}
    before = np.array([catalogue.speed(job, name) for job in jobs])
    repeats = Counter(run.group for run in runs)
    rows = [(at[job], 1.0 / (DEVIATION * math.sqrt(repeats[run.group]))) for run in runs for job in telling(run)]
    # A job's own rate is in proportion to its speed, and the speeds of others change it by their phases only.
    slope = np.zeros((len(rows) + len(jobs), len(jobs)))
    for row, (j, weight) in enumerate(rows):
        slope[row, j] = weight
    slope[len(rows) :] = np.eye(len(jobs)) / PRIOR_DEVIATION
    weights = np.array([weight for _, weight in rows])

    def speeds(logs: Floats) -> dict[str, float]:
        return dict(zip(jobs, (before * np.exp(logs)).tolist(), strict=True))

    def residuals(logs: Floats) -> Floats:
        typed = _typed(catalogue, name, smt, speeds(logs))
        hosts = HostFactory(typed)
        far = []
        for run in runs:
            done = progress(run, typed, hosts, name + SUFFIX)
            far += [math.log(done[job]) for job in telling(run)]
        result: Floats = np.concatenate([np.array(far) * weights, logs / PRIOR_DEVIATION])
        return result

    solved = least_squares(residuals, np.zeros(len(jobs)), jac=lambda _: slope, loss="soft_l1", xtol=1e-5, ftol=1e-6)
    return speeds(solved.x), float(solved.cost)


def _typed(catalogue: Catalogue, name: str, smt: bool, speed: Mapping[str, float]) -> Catalogue:
    """The catalogue with the type that these speeds make. A job that was not measured is as much faster as the others."""
    of = catalogue.machine_types[name]
    ratio = math.exp(sum(math.log(v / catalogue.speed(job, name)) for job, v in speed.items()) / len(speed))
    machine = replace(of, name=name + SUFFIX, speed=rounded(of.speed * ratio), smt=smt)
    jobs = {
        job: replace(profile, speed={**profile.speed, machine.name: speed[job]}) if job in speed else profile
        for job, profile in catalogue.jobs.items()
    }
    return replace(catalogue, jobs=jobs, machine_types={**catalogue.machine_types, machine.name: machine})


def _scores(runs: Sequence[ControlledRun], catalogue: Catalogue, name: str) -> list[Score]:
    """Active seconds of jobs. Where the model's progress is p at the measured end, it needs about 1/p of the time."""
    hosts = HostFactory(catalogue)
    found = []
    for run in runs:
        done, active_s = progress(run, catalogue, hosts, name + SUFFIX), run.active_s
        for job in telling(run):
            start_s, _ = run.executions[job]
            found.append(
                Score(
                    Quantity.DURATION,
                    run.group,
                    run.schedule,
                    run.run,
                    run.year,
                    active_s[job],
                    active_s[job] / done[job],
                    job,
                    machine_type=name + SUFFIX,
                    start_s=start_s,
                )
            )
    return found

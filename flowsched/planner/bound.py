"""What no plan can beat, in the model: a lower bound on the makespan and on the sum of completions.

**Claim.** Let job j be assigned to machine m with P physical cores and C hardware threads that tasks may use. In the
run-time model

1. its run time there is at least ``a(j, m) = W scale O(n) / v (phi + (1 - phi)/S(n))`` for its best number of threads n,
   with ``S(n) = min(n, P) + g max(0, min(n, C) - P)``;
2. it takes at least ``c(j, m) = (1 - progress) W scale / (v (1 + g))`` physical-core-seconds of the machine, with g = 0
   where siblings do not slow each other down.

**Proof.** (1) Neighbours, services included, only take CPU away and add pressure (``D >= 1``). Serial work runs on one
thread, at a speed of 1 at most. Parallel work on x running threads has the speed ``x - (1 - g) o``, o its overlap summed
over physical cores; a physical core bears 1 plus its overlap, so ``o >= x - P`` and the speed is at most S(n). (2) The work
of a job is the integral of its CPU speed times ``v / (D O)``, with ``D, O >= 1``, so the integral of its CPU speed is at
least ``W scale / v``. Consider a physical core with hardware threads loaded by ``l1, l2 <= 1``, overlap ``o = max(0, l1 +
l2 - 1)``. A job that has x of thread c runs at ``x (1 - r (1 - g)/2)``, ``r = o/l_c <= 1``. Its speed over (1 + g) falls
with g, since the derivative of ``(1 - r (1 - g)/2)/(1 + g)`` has the sign of ``r - 1 <= 0``; so it is at most
``x (1 - r/2)``, its value at g = 0. Summed over all on both threads that is at most ``l1 + l2 - o <= 1``. So all speeds,
each over its (1 + g), add up to at most the physical cores. A job of the ``mixed`` phase order has the mean over its serial
and parallel moments of such speeds, but at most the speed of the CPU that it is granted, to which the same sum applies; so
(2) covers it. Its parallel speed beside mixed neighbours is a mean over their moments, and at most that with no other
task there, as (1) needs. Where a core has one thread left beside a service that is busy u on the other, the same sum at
``l_c = 1`` leaves ``1 - u/2`` of it.

Hence a makespan T with job j on m needs ``T >= r(j) + a(j, m)``, r the earliest start of its program, and for every moment
t the work of those who start no earlier fits: ``sum of c(j, m) over j on m with r(j) >= t  <=  P(m) (T - t)``. The least T
over all assignments is found by CP-SAT (needs rounded down, rooms up, to a millisecond); if it runs out of its
deterministic time its own bound is used. Memory only limits which machines are allowed.

**Sum of completions.** Let T(k) be the least T at which some k jobs can have ended. The k-th completion of any plan is at
least T(k), so the sum of all T(k), less the times of submission, is a bound. (On one machine this is the SPT rule.)

**Quantiles.** For every draw the bound holds with that draw's factors on a and c; the q-quantile of plans is at least the
q-quantile of the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowsched.cluster.snapshot import cpu_weight
from flowsched.planner.problem import Job, Problem, Site
from flowsched.planner.robust import Draws, quantile_of
from flowsched.support.arrays import FloatArray
from flowsched_models.profile import PhaseOrder

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_UNIT_S = 1e-3
_WORK = 0.5
"""Deterministic time of one question to CP-SAT."""
_WORK_IN_ALL = 8.0
_QUESTIONS = 24
"""Most numbers of jobs k for which T(k) is asked; in between the one before holds too."""


@dataclass(frozen=True)
class Bound:
    """A lower bound in seconds on the objective, and whether the relaxed question was solved to its end."""

    value_s: float
    solved: bool


def lower_bound(problem: Problem, draws: Draws | None = None) -> Bound:
    """The bound for the objective of the problem's rules; with draws for its quantile.

    Raises ValueError if some job has no machine at all.
    """
    for j, sites in enumerate(problem.sites_of):
        if not sites:
            raise ValueError(f"no machine takes {problem.jobs[j].task.name}")
    if not problem.jobs:
        return Bound(0.0, True)
    relaxed = _Relaxed(problem)
    if draws is None:
        return relaxed.bound(None, _WORK)
    assert problem.rules.quantile is not None, "draws come with a quantile"
    every = range(len(problem.jobs))
    factors = np.stack([draws.factors(s, every) for s in range(len(problem.sites))], axis=-1)
    bounds = [relaxed.bound(factors[r], _WORK_IN_ALL / draws.count) for r in range(draws.count)]
    values = np.array([b.value_s for b in bounds])
    return Bound(quantile_of(values, problem.rules.quantile), all(b.solved for b in bounds))


class _Relaxed:
    """Jobs as two numbers per machine."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        jobs, sites = problem.jobs, problem.sites
        self._alone = np.full((len(jobs), len(sites)), np.inf)
        self._need = np.full((len(jobs), len(sites)), np.inf)
        for j, job in enumerate(jobs):
            for s in problem.sites_of[j]:
                self._alone[j, s] = alone_s(problem, j, s)
                self._need[j, s] = core_seconds(sites[s], job)
        self._rooms = [physical_cores(site) for site in sites]
        delay = problem.start_delay.after_waiting_s
        self._ready = np.array(
            [job.ready_s if job.site is not None else min(job.ready_s, job.bound_s + delay) for job in jobs]
        )

    def bound(self, factors: FloatArray | None, work: float) -> Bound:
        """The bound for given factors [jobs, sites]."""
        alone, need = self._alone, self._need
        if factors is not None:
            alone, need = alone * factors, need * factors
        count = len(self._ready)
        if self._problem.rules.objective == "makespan":
            return self._least(count, alone, need, work)
        submitted = sum(job.submit_s for job in self._problem.jobs)
        soonest = np.sort(self._ready + alone.min(axis=1))
        stride = math.ceil(count / _QUESTIONS)
        total, solved, before = 0.0, True, 0.0
        for k in range(1, count + 1):
            if k % stride == 0 or k == count:
                least = self._least(k, alone, need, max(0.02, work / min(count, _QUESTIONS)))
                before = max(before, least.value_s)
                solved = solved and least.solved
            total += max(before, float(soonest[k - 1]))
        return Bound(total - submitted, solved)

    def _least(self, count: int, alone: FloatArray, need: FloatArray, work: float) -> Bound:
        """The least time at which ``count`` jobs can have ended."""
        from ortools.sat.python import cp_model  # takes most of a second

        model = cp_model.CpModel()
        problem = self._problem
        longest = np.where(np.isfinite(alone), alone, 0.0).max() + self._ready.max()
        horizon = math.ceil((longest + np.where(np.isfinite(need), need, 0.0).max(axis=1).sum()) / _UNIT_S) + 1
        end = model.new_int_var(0, horizon, "T")
        on = {(j, s): model.new_bool_var(f"{j}@{s}") for j, sites in enumerate(problem.sites_of) for s in sites}
        for j, sites in enumerate(problem.sites_of):
            if count == len(problem.jobs):
                model.add_exactly_one(on[j, s] for s in sites)
            else:
                model.add_at_most_one(on[j, s] for s in sites)
            for s in sites:
                model.add(end >= _down(self._ready[j] + alone[j, s])).only_enforce_if(on[j, s])
        if count < len(problem.jobs):
            model.add(sum(on.values()) >= count)
        for s, room in enumerate(self._rooms):
            here = [j for j, sites in enumerate(problem.sites_of) if s in sites]
            for since in sorted({float(self._ready[j]) for j in here}):
                late = [j for j in here if self._ready[j] >= since]
                # Room is counted in thousandths of a core, so that all coefficients are whole.
                left = sum(_down(need[j, s]) * 1000 * on[j, s] for j in late)
                fits = model.add(left <= math.ceil(room * 1000) * (end - _down(since)))
                if since > self._ready.min():
                    # If no task starts that late, nothing must fit.
                    some = model.new_bool_var("")
                    model.add_max_equality(some, [on[j, s] for j in late])
                    fits.only_enforce_if(some)
        self._break_symmetry(model, on, alone, need)
        model.minimize(end)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = work
        status = solver.solve(model)
        solved = status == cp_model.OPTIMAL
        # A tick less: rounding down twice may have gained nothing, but must not gain anything.
        return Bound(max(0.0, (solver.best_objective_bound - 1.0) * _UNIT_S), solved)

    def _break_symmetry(
        self, model: cp_model.CpModel, on: dict[tuple[int, int], cp_model.IntVar], alone: FloatArray, need: FloatArray
    ) -> None:
        """Of equal machines the later one never has more jobs."""
        for s in range(1, len(self._rooms)):
            same = (
                np.array_equal(alone[:, s - 1], alone[:, s])
                and np.array_equal(need[:, s - 1], need[:, s])
                and self._rooms[s - 1] == self._rooms[s]
            )
            if same:
                model.add(
                    sum(v for (_, at), v in on.items() if at == s - 1) >= sum(v for (_, at), v in on.items() if at == s)
                )


def alone_s(problem: Problem, j: int, s: int) -> float:
    """Less than any run time of what is left of a job on a machine, over core sets and numbers of threads."""
    job, site = problem.jobs[j], problem.sites[s]
    cores = site.cores if job.seat is None else job.seat.cores
    counts = problem.thread_counts(j, len(cores)) if job.seat is None else (job.seat.threads,)
    pair_of = {c: pair for pair in site.siblings for c in pair}
    physical = len({pair_of.get(c, (c,)) for c in cores})
    profile, phi = job.profile, job.profile.serial_fraction
    work = profile.work_s * job.task.scale / site.host.catalogue.speed(job.task.profile, site.machine.type)
    if profile.phase_order is PhaseOrder.MIXED:
        serial, parallel = phi * (1.0 - job.progress), (1.0 - phi) * (1.0 - job.progress)
    else:
        serial, parallel = max(0.0, phi - job.progress), 1.0 - max(phi, job.progress)
    best = math.inf
    for threads in counts:
        running = min(threads, len(cores))
        speed = min(running, physical) + profile.smt_gain * max(0, running - physical)
        best = min(best, work * profile.threading(threads) * (serial + parallel / speed))
    return best


def core_seconds(site: Site, job: Job) -> float:
    """Physical-core-seconds that what is left of a job takes of a machine at least."""
    gain = job.profile.smt_gain if site.siblings else 0.0
    speed = site.host.catalogue.speed(job.task.profile, site.machine.type)
    # A given run time is that on the part of a core that it asks for.
    part = min(1.0, cpu_weight(job.task.widths_milli[0])) if job.profile.has_given_run_time else 1.0
    return part * (1.0 - job.progress) * job.profile.work_s * job.task.scale / (speed * (1.0 + gain))


def physical_cores(site: Site) -> float:
    """Physical cores that tasks can use, less what services use of siblings that tasks may not."""
    usable = set(site.cores)
    paired: set[int] = set()
    room = 0.0
    busy = {
        c: float(row[0]) / len(service.cores)
        for service, row in zip(site.services, site.host.service_rows, strict=True)
        for c in service.cores
    }
    for pair in site.siblings:
        paired |= set(pair)
        mine = [c for c in pair if c in usable]
        if len(mine) == 2:
            room += 1.0
        elif mine:
            (other,) = set(pair) - set(mine)
            room += 1.0 - busy.get(other, 0.0) / 2.0
    return room + sum(1.0 for c in usable if c not in paired)


def _down(seconds: float) -> int:
    return math.floor(float(seconds) / _UNIT_S + 1e-9)

"""Reads a plan off a draft, with what the models predict of it and how sure they are."""

from __future__ import annotations

import numpy as np

from flowsched.planner.draft import Draft
from flowsched.planner.evaluation import Evaluator, MachineOutcome
from flowsched.planner.plan import LEVEL, Plan, PlannedTask, Spread
from flowsched.planner.problem import Problem
from flowsched.planner.robust import Draws, quantile_of
from flowsched.support.arrays import FloatArray

_LOW, _HIGH = (1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0


def read_plan(problem: Problem, draft: Draft, *, draws: Draws | None = None, quantile_s: float | None = None) -> Plan:
    """The plan of a draft, on the clock of the snapshot; intervals where there are draws."""
    exact = Evaluator(problem)
    parts = [exact.part(s, seats) for s, seats in enumerate(draft.seats)]
    spread: list[MachineOutcome] | None = None
    if draws is not None:
        drawn = Evaluator(problem, draws)
        spread = [drawn.part(s, seats) for s, seats in enumerate(draft.seats)]
    now = problem.now_s
    tasks: list[tuple[int, PlannedTask]] = []
    for s, (seats, part) in enumerate(zip(draft.seats, parts, strict=True)):
        for i, seat in enumerate(seats):
            job = problem.jobs[seat.job]
            after = part.after[i]
            bound = float(part.bound_s[0, i])
            ready = bound + problem.start_delay.after_waiting_s if after >= 0 else job.ready_s
            planned = PlannedTask(
                task=job.task.name,
                machine=problem.sites[s].machine.name,
                cores=seat.cores,
                threads=seat.threads,
                width_milli=seat.width_milli,
                after=None if after < 0 else problem.jobs[seats[after].job].task.name,
                bound_s=now + bound,
                start_s=now + ready,
                end_s=now + float(part.ends_s[0, i]),
                end_range_s=None if spread is None else _spread(spread[s].ends_s[:, i], now),
                runs=job.site is not None,
            )
            tasks.append((seat.job, planned))
    p95 = tuple(
        (service.name, float(part.peak_p95_us[0, k]), service.slo_us)
        for site, part in zip(problem.sites, parts, strict=True)
        for k, service in enumerate(site.services)
    )
    span = completion = None
    if spread is not None:
        span = _spread(np.max([part.last_s for part in spread], axis=0), 0.0)
        completion = _spread(np.sum([part.total_s for part in spread], axis=0), 0.0)
    return Plan(
        tasks=tuple(task for _, task in sorted(tasks, key=lambda item: item[0])),
        makespan_s=max((float(part.last_s[0]) for part in parts), default=0.0),
        completion_s=sum(float(part.total_s[0]) for part in parts),
        p95_us=p95,
        makespan_range_s=span,
        completion_range_s=completion,
        quantile_s=quantile_s,
        feasible=all(part.violation == 0.0 for part in parts),
    )


def _spread(values: FloatArray, offset: float) -> Spread:
    median, low, high = (quantile_of(values, q) + offset for q in (0.5, _LOW, _HIGH))
    return Spread(median, low, high)

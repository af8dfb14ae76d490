"""Reads a plan off a draft, with what the models predict of it and how sure they are."""

from __future__ import annotations

import numpy as np

from flowsched.arrays import FloatArray
from flowsched.planner.draft import Draft
from flowsched.planner.evaluation import Evaluator, Part
from flowsched.planner.plan import Plan, PlannedTask
from flowsched.planner.problem import Problem
from flowsched.planner.robust import Draws, quantile_of

_LOW, _HIGH = 0.1, 0.9


def read_plan(problem: Problem, draft: Draft, *, draws: Draws | None = None, quantile_s: float | None = None) -> Plan:
    """The plan of a draft, on the clock of the snapshot; intervals where there are draws."""
    exact = Evaluator(problem)
    parts = [exact.part(s, seats) for s, seats in enumerate(draft.seats)]
    spread: list[Part] | None = None
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
            low = high = None
            if spread is not None:
                low, high = _interval(spread[s].ends_s[:, i], now)
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
                low_s=low,
                high_s=high,
                runs=job.site is not None,
            )
            tasks.append((seat.job, planned))
    p95 = tuple(
        (service.name, float(part.peak_p95_us[0, k]), service.slo_us)
        for site, part in zip(problem.sites, parts, strict=True)
        for k, service in enumerate(site.services)
    )
    span: tuple[float | None, float | None] = (None, None)
    completion = span
    if spread is not None:
        span = _interval(np.max([part.last_s for part in spread], axis=0), 0.0)
        completion = _interval(np.sum([part.total_s for part in spread], axis=0), 0.0)
    return Plan(
        tasks=tuple(task for _, task in sorted(tasks, key=lambda item: item[0])),
        makespan_s=max((float(part.last_s[0]) for part in parts), default=0.0),
        completion_s=sum(float(part.total_s[0]) for part in parts),
        p95_us=p95,
        makespan_low_s=span[0],
        makespan_high_s=span[1],
        completion_low_s=completion[0],
        completion_high_s=completion[1],
        quantile_s=quantile_s,
        feasible=all(part.violation == 0.0 for part in parts),
    )


def _interval(values: FloatArray, offset: float) -> tuple[float | None, float | None]:
    return quantile_of(values, _LOW) + offset, quantile_of(values, _HIGH) + offset

"""Starts for the search: tasks one after the other, each priced beside those before.

Each step is the min-cost flow of one task, which is its cheapest arc. The orders differ in what they get right: the longest
first by cost; the longest first by the machine that is done soonest (Graham's list scheduling, with predicted ends instead
of loads); and seeded random orders, which find what needs several coordinated changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowsched.assignment import Assignment, Column, Newcomer, joined
from flowsched.policies.policy import FORBIDDEN
from flowsched.search import Search


def chains(search: Search, count: int) -> Iterator[Assignment]:
    """Up to ``count`` plans, always the same ones."""
    order = _longest_first(search)
    if count > 0:
        yield cheapest_chain(search, order)
    if count > 1:
        yield soonest_chain(search, order)
    rng = np.random.default_rng(len(order))
    for _ in range(count - 2):
        shuffled = [order[i] for i in rng.permutation(len(order)).tolist()]
        yield cheapest_chain(search, sorted(shuffled, key=lambda t: t not in search.must_start))


def cheapest_chain(search: Search, order: Sequence[int]) -> Assignment:
    """Every task in its cheapest column, or waiting where that is cheaper."""
    plan = _nobody(search)
    for task in order:
        price, column = FORBIDDEN if task in search.must_start else search.waiting(task), None
        for machine in range(len(search.view.machines)):
            offer, at = search.best_column(plan, task, machine)
            if offer < price - 1e-12:
                price, column = offer, at
        plan.move(task, column)
    return plan


def soonest_chain(search: Search, order: Sequence[int]) -> Assignment:
    """Every task starts now, on the machine that is then predicted to be done soonest, if it has room anywhere."""
    view = search.view
    plan = _nobody(search)
    for task in order:
        best: tuple[float, Column | None] = (FORBIDDEN, None)
        for machine in range(len(view.machines)):
            if search.refused(plan, task, machine):
                continue
            for column in search.columns(task, machine)[:1]:
                newcomer = Newcomer(view.class_of[task], column.slot, column.width_milli)
                company = joined(plan.company(machine), newcomer)
                if search.machine_cost(machine, company) == FORBIDDEN:
                    continue
                end = search.prices.makespan_s(view.group_of[machine], company)
                if end < best[0] - 1e-9:
                    best = (end, column)
        plan.move(task, best[1])
    return plan


def _longest_first(search: Search) -> list[int]:
    view = search.view
    jobs = view.snapshot.catalogue.jobs

    def work(task: int) -> float:
        t = view.tasks[task]
        return jobs[t.profile].work_s * t.scale

    return sorted(
        range(len(view.tasks)), key=lambda t: (t not in search.must_start, -view.tasks[t].priority, -work(t), t)
    )


def _nobody(search: Search) -> Assignment:
    return Assignment([None] * len(search.view.tasks), search.view.class_of, len(search.view.machines))

"""A start for the search: tasks one after the other, longest remaining work first, each priced beside those before."""

from __future__ import annotations

from flowsched.assignment import Assignment
from flowsched.search import Search


def chain(search: Search) -> Assignment:
    """Every task in its cheapest column, or waiting where that is cheaper.

    Each step is the min-cost flow of one task, which is its cheapest arc.
    """
    view = search.view
    plan = Assignment([None] * len(view.tasks), view.class_of, len(view.machines))
    jobs = view.snapshot.catalogue.jobs

    def work(task: int) -> float:
        t = view.tasks[task]
        return jobs[t.profile].work_s * t.scale

    order = sorted(
        range(len(view.tasks)),
        key=lambda t: (t not in search.must_start, -view.tasks[t].priority, -work(t), t),
    )
    for task in order:
        price, column = float("inf") if task in search.must_start else search.waiting(task), None
        for machine in range(len(view.machines)):
            offer, at = search.best_column(plan, task, machine)
            if offer < price - 1e-12:
                price, column = offer, at
        plan.move(task, column)
    return plan

"""Exchanges, for when no single move pays: a min-cost circulation over places, every place at most once.

Arc i -> k: task i takes the place of task k on another machine; i -> m: i comes and nobody leaves; m -> k: k leaves and
nobody comes; m -> n: what began at n ends at m. Negative cycles are swaps, rotations and chains. As every node has one way
in and one way out (itself, at cost 0), the circulation is an assignment and solves as a bipartite flow.
"""

from __future__ import annotations

from flowsched.assignment import Assignment, Column
from flowsched.best_columns import best_columns, best_successors
from flowsched.network import NetworkBuilder
from flowsched.policies.policy import FORBIDDEN
from flowsched.search import Search

_UNSCHEDULED = None
"""The place of those who wait: any number of them, each at its own cost."""


def run_exchanges(search: Search, plan: Assignment, most: int) -> Assignment:
    """The plan after up to ``most`` exchanges that pay."""
    total = search.total(plan)
    for _ in range(most):
        if search.exhausted():
            break
        key = tuple(plan.columns)
        if key not in search.exchanged:
            search.exchanged[key] = _exchange(search, plan, total)
        better = search.exchanged[key]
        if better is None:
            break
        plan = better
        total = search.total(plan)
    return plan


def _exchange(search: Search, plan: Assignment, total: float) -> Assignment | None:
    tasks = len(plan.columns)
    places: list[int | None] = [*range(len(search.view.machines)), _UNSCHEDULED]
    builder = NetworkBuilder()
    sink = builder.node("sink")
    outs = [builder.node(f"out:{i}", 1) for i in range(tasks + len(places))]
    ins = [builder.node(f"in:{i}") for i in range(tasks + len(places))]
    move_of: dict[int, tuple[int, int, Column | None]] = {}
    cost_of: dict[int, float] = {}

    def arc(i: int, k: int, cost: float, column: Column | None) -> None:
        if cost < FORBIDDEN:
            a = builder.arc(outs[i], ins[k], 1, cost)
            move_of[a] = (i, k, column)
            cost_of[a] = cost

    for i in range(tasks + len(places)):
        builder.arc(outs[i], ins[i], 1)
        builder.arc(ins[i], sink, 1)
    home = [None if column is None else column.machine for column in plan.columns]
    leaving = [search.leaving(plan, k) for k in range(tasks)]
    class_of = search.view.class_of
    columns = best_columns(search, plan)
    successors = best_successors(search, plan)
    for i in range(tasks):
        for p, place in enumerate(places):
            if place != home[i]:
                price, column = columns[i][place] if place is not _UNSCHEDULED else (_waiting(search, i), None)
                arc(i, tasks + p, price, column)
        for k in range(tasks):
            if k != i and home[k] != home[i] and class_of[k] != class_of[i]:
                price, column = successors[k][i] if home[k] is not _UNSCHEDULED else (_waiting(search, i), None)
                arc(i, k, price - leaving[k], column)
    for p, place in enumerate(places):
        for q in range(len(places)):
            if q != p:
                arc(tasks + p, tasks + q, 0.0, None)
        for k in range(tasks):
            if home[k] == place:
                arc(tasks + p, k, -leaving[k], None)
    solution = search.solver.solve(builder.build(sink))
    search.tally.solves += 1
    if not solution.status.has_flow or solution.cost >= 0:
        return None
    successor = {i: (k, column, cost_of[a]) for a, (i, k, column) in move_of.items() if solution.flow[a]}
    cycles = _cycles(successor)
    together = [step for cycle in cycles for step in cycle]
    alone = min(cycles, key=lambda cycle: sum(successor[i][2] for i in cycle))
    for steps in (together, alone):
        changed = plan.copy()
        for i in steps:
            if i < tasks:
                changed.move(i, successor[i][1])
        if search.total(changed) < total - 1e-9:
            return changed
    return None


def _waiting(search: Search, task: int) -> float:
    return FORBIDDEN if task in search.must_start else search.waiting(task)


def _cycles(successor: dict[int, tuple[int, Column | None, float]]) -> list[list[int]]:
    cycles = []
    seen: set[int] = set()
    for start in sorted(successor):
        cycle = []
        at = start
        while at in successor and at not in seen:
            seen.add(at)
            cycle.append(at)
            at = successor[at][0]
        if cycle:
            cycles.append(cycle)
    return cycles

"""Passes: prices around the current plan, one arrival per machine and pass, solved as a network until nobody moves.

    task -> stay, cost 0
    task -> arrive at m, cost (its price there) - (its price here);  arrive at m -> sink, capacity 1

Newcomers that do not see each other all take the same machine, and re-priced all at once they alternate between two bad
plans for ever. One arrival per machine and pass makes each price the exact change of that machine's total, with the total
as a potential.
"""

from __future__ import annotations

import math

import numpy as np

from flowsched.assignment import Assignment, Column, Newcomer, joined
from flowsched.best_columns import best_columns
from flowsched.network import IntArray, Network, NetworkBuilder
from flowsched.policies.policy import FORBIDDEN
from flowsched.search import Search

LEFT = "place_left"
"""Term of a move: what the task costs where it is, with the sign of a gain. With it the terms add up to the arc's cost."""


class PassNetwork:
    """The network of one pass, and the moves that its arcs stand for."""

    def __init__(self, search: Search, plan: Assignment, explain: bool = False) -> None:
        """Price every column of every task around ``plan``.

        ``explain`` keeps the terms of each arc, and has an arc for every column that is possible rather than for the best
        one of each machine: the optimum is the same.
        """
        view = search.view
        builder = NetworkBuilder()
        sink = builder.node("sink")
        stay = builder.node("stay")
        arrive = [builder.node(f"arrive:{m.name}") for m in view.machines]
        self.moves: dict[int, tuple[int, Column | None]] = {}
        self._stays: list[tuple[int, int]] = []
        best = [] if explain else best_columns(search, plan)
        for task, here in enumerate(plan.columns):
            node = builder.node(f"task:{view.tasks[task].name}", 1)
            leaving = search.leaving(plan, task)
            self._stays.append((builder.arc(node, stay, 1), 1))
            # Somebody counts on it, or the last moves together were too many for its machine: no price means anything.
            if not math.isfinite(leaving):
                continue
            if here is not None and task not in search.must_start:
                gain = search.waiting(task) - leaving
                terms = {**search.prices.waiting_terms(view.class_of[task]), LEFT: -leaving} if explain else None
                self.moves[builder.arc(node, stay, 1, gain, terms=terms)] = (task, None)
            for machine in range(len(view.machines)):
                offers = search.offers(plan, task, machine) if explain else (best[task][machine],)
                for price, column in offers:
                    if column is None or column == here or price == FORBIDDEN:
                        continue
                    terms = {**_terms(search, plan, task, column), LEFT: -leaving} if explain else None
                    self.moves[builder.arc(node, arrive[machine], 1, price - leaving, terms=terms)] = (task, column)
        self._stays.append((builder.arc(stay, sink, len(plan.columns)), len(plan.columns)))
        for node in arrive:
            builder.arc(node, sink, 1)
        self.network: Network = builder.build(sink)

    def resting_flow(self) -> IntArray:
        """The flow of a plan that nobody leaves."""
        flow = np.zeros(self.network.arc_count, dtype=np.int64)
        for arc, units in self._stays:
            flow[arc] = units
        return flow

    def columns(self) -> dict[str, IntArray]:
        """Slot and width of the column that each arc leads to, -1 where it leads to none."""
        slots = np.full(self.network.arc_count, -1, dtype=np.int64)
        widths = slots.copy()
        for arc, (_, column) in self.moves.items():
            if column is not None:
                slots[arc], widths[arc] = column.slot, column.width_milli
        return {"slot": slots, "width_milli": widths}

    def chosen(self, flow: IntArray) -> list[tuple[int, Column | None]]:
        """Moves that carry flow."""
        return [move for arc, move in self.moves.items() if flow[arc]]


def run_passes(search: Search, plan: Assignment, most: int) -> Assignment:
    """The best plan seen within ``most`` passes, never worse than the one given."""
    best, best_total = plan, search.total(plan)
    current = plan
    for _ in range(most):
        if search.exhausted():
            break
        moves = _moves(search, current)
        if not moves:
            break
        current = current.copy()
        for task, column in moves:
            # Each move was priced as if nobody else moved: together they may be too many for a relation.
            if column is None or not search.refused(current, task, column.machine):
                current.move(task, column)
        total = search.total(current)
        if total < best_total - 1e-9:
            best, best_total = current, total
    return best


def _moves(search: Search, plan: Assignment) -> list[tuple[int, Column | None]]:
    """The moves of one pass; none where nothing pays."""
    key = tuple(plan.columns)
    moves = search.passed.get(key)
    if moves is None:
        pass_network = PassNetwork(search, plan)
        solution = search.solver.solve(pass_network.network)
        search.tally.solves += 1
        pays = solution.status.has_flow and solution.cost < 0
        moves = search.passed[key] = pass_network.chosen(solution.flow) if pays else []
    return moves


def _terms(search: Search, plan: Assignment, task: int, column: Column) -> dict[str, float]:
    group = search.view.group_of[column.machine]
    here = plan.columns[task]
    without = task if here is not None and here.machine == column.machine else None
    c = search.view.class_of[task]
    newcomer = Newcomer(c, column.slot, column.width_milli)
    company = joined(plan.company(column.machine, without=without), newcomer)
    member = company.index(newcomer)
    return dict(search.prices.machine_terms(group, company, member))

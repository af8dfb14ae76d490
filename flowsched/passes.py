"""Passes: prices around the current plan, one arrival per machine and pass, solved as a network until nobody moves.

    task -> stay, cost 0
    task -> arrive at m, cost (its price there) - (its price here);  arrive at m -> sink, capacity 1

Newcomers that do not see each other all take the same machine, and re-priced all at once they alternate between two bad
plans for ever. One arrival per machine and pass makes each price the exact change of that machine's total, with the total
as a potential.
"""

from __future__ import annotations

from flowsched.assignment import Assignment, Column, Newcomer, joined
from flowsched.network import IntArray, Network, NetworkBuilder
from flowsched.policies.policy import FORBIDDEN
from flowsched.search import Search
from flowsched.solvers import Status

LEFT = "place_left"
"""Term of a move: what the task costs where it is, with the sign of a gain. With it the terms add up to the arc's cost."""


class PassNetwork:
    """The network of one pass, and the moves that its arcs stand for."""

    def __init__(self, search: Search, plan: Assignment, explain: bool = False) -> None:
        """Price every column of every task around ``plan``; ``explain`` keeps the terms of each arc."""
        view = search.view
        builder = NetworkBuilder()
        sink = builder.node("sink")
        stay = builder.node("stay")
        arrive = [builder.node(f"arrive:{m.name}") for m in view.machines]
        self.moves: dict[int, tuple[int, Column | None]] = {}
        for task, here in enumerate(plan.columns):
            node = builder.node(f"task:{view.tasks[task].name}", 1)
            leaving = search.leaving(plan, task)
            builder.arc(node, stay, 1)
            if leaving == -FORBIDDEN:
                continue
            if here is not None and task not in search.must_start:
                gain = search.waiting(task) - leaving
                terms = {**search.prices.waiting_terms(view.class_of[task]), LEFT: -leaving} if explain else None
                self.moves[builder.arc(node, stay, 1, gain, terms=terms)] = (task, None)
            for machine in range(len(view.machines)):
                price, column = search.best_column(plan, task, machine)
                if column is None or column == here or price == FORBIDDEN:
                    continue
                arc = builder.arc(
                    node,
                    arrive[machine],
                    1,
                    price - leaving,
                    terms={**_terms(search, plan, task, column), LEFT: -leaving} if explain else None,
                )
                self.moves[arc] = (task, column)
        builder.arc(stay, sink, len(plan.columns))
        for node in arrive:
            builder.arc(node, sink, 1)
        self.network: Network = builder.build(sink)

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
        pass_network = PassNetwork(search, current)
        solution = search.solver.solve(pass_network.network)
        search.tally.solves += 1
        if solution.status is not Status.OPTIMAL or solution.cost >= 0:
            break
        current = current.copy()
        for task, column in pass_network.chosen(solution.flow):
            # Each move was priced as if nobody else moved: together they may be too many for a relation.
            if column is None or not search.refused(current, task, column.machine):
                current.move(task, column)
        total = search.total(current)
        if total < best_total - 1e-9:
            best, best_total = current, total
    return best


def _terms(search: Search, plan: Assignment, task: int, column: Column) -> dict[str, float]:
    group = search.view.group_of[column.machine]
    here = plan.columns[task]
    without = task if here is not None and here.machine == column.machine else None
    c = search.view.class_of[task]
    newcomer = Newcomer(c, column.slot, column.width_milli)
    company = joined(plan.company(column.machine, without=without), newcomer)
    member = company.index(newcomer)
    return dict(search.prices.machine_terms(group, company, member))

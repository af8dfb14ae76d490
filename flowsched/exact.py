"""The exact optimum of small rounds, by CP-SAT on the same objective as the primal.

Every company that may join a machine of a group is priced, as the search prices it, same-round terms included; of the slots
that a set of tasks can take on a machine only the cheapest distribution can be part of an optimum. CP-SAT then gives every
machine one company so that each task is in one or waits. The widths are those that the round chose. Relations whose domains
are labels are left out, which only lowers the bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from math import comb, prod

from ortools.sat.python import cp_model

from flowsched.assignment import Assignment, Company, Newcomer
from flowsched.policies.policy import FORBIDDEN
from flowsched.search import Search

_SCALE = 1_000_000
_LARGEST = 2.0**52
"""A plan that costs more is not worth being in CP-SAT's model; sums of it would leave 64 bits."""
_DETERMINISTIC_LIMIT = 20.0
"""CP-SAT's own measure of work, so that the answer does not depend on the speed of the machine."""

Kind = tuple[int, int]
"""A class and the width that the round chose for it."""


def company_count(search: Search, plan: Assignment) -> int:
    """How many companies would have to be priced at most."""
    kinds = _kinds(search, plan)
    return sum(
        prod(comb(kinds[k] + search.slots, search.slots) for k in _kinds_for(search, g, kinds))
        for g in range(len(search.view.groups))
    )


def exact_bound(search: Search, plan: Assignment) -> float | None:
    """The least cost of any plan at the chosen widths; None where CP-SAT does not prove it within its limits."""
    if search.total(plan) * _SCALE > _LARGEST:
        return None
    kinds = _kinds(search, plan)
    model = cp_model.CpModel()
    uses: dict[Kind, list[cp_model.LinearExpr]] = {k: [] for k in kinds}
    objective: list[cp_model.LinearExpr] = []
    for machine, group in enumerate(search.view.group_of):
        cheapest = _cheapest_companies(search, machine, group, kinds)
        chosen = []
        for i, (counts, cost) in enumerate(cheapest.items()):
            x = model.new_bool_var(f"m{machine}_{i}")
            chosen.append(x)
            objective.append(round(cost * _SCALE) * x)
            for kind, n in counts:
                uses[kind].append(n * x)
        model.add_exactly_one(chosen)
    for kind, n in kinds.items():
        forced = sum(
            1 for t in search.must_start if search.view.class_of[t] == kind[0] and _width(search, plan, t) == kind[1]
        )
        waiting_cost = search.prices.waiting_cost(kind[0])
        most = n - forced if waiting_cost * _SCALE <= _LARGEST else 0
        wait = model.new_int_var(0, most, f"wait_{kind}")
        model.add(sum(uses[kind]) + wait == n)
        objective.append(round(min(waiting_cost * _SCALE, _LARGEST)) * wait)
    model.minimize(sum(objective))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _DETERMINISTIC_LIMIT
    status = solver.solve(model)
    if status != cp_model.OPTIMAL:
        return None
    summands = len(search.view.machines) + len(search.view.tasks)
    # Each summand was rounded once.
    return solver.best_objective_bound / _SCALE - summands * 0.5 / _SCALE + search.spare_cost()


def _width(search: Search, plan: Assignment, task: int) -> int:
    column = plan.columns[task]
    return column.width_milli if column is not None else search.view.tasks[task].widths_milli[0]


def _kinds(search: Search, plan: Assignment) -> Counter[Kind]:
    return Counter((search.view.class_of[t], _width(search, plan, t)) for t in range(len(plan.columns)))


def _kinds_for(search: Search, group: int, kinds: Counter[Kind]) -> list[Kind]:
    """Kinds that can ever run on a group's machines."""
    barred = {search.view.class_of[t] for t in search.barred}
    return [(c, w) for c, w in sorted(kinds) if c not in barred and search.view.could_fit(c, group, w)]


def _cheapest_companies(
    search: Search, machine: int, group: int, kinds: Counter[Kind]
) -> dict[tuple[tuple[Kind, int], ...], float]:
    """For every number of tasks of each kind that a machine can take, the least cost over their slots."""
    best: dict[tuple[tuple[Kind, int], ...], float] = {}
    companies = list(_companies(search, group, kinds))
    search.prices.machine_costs(group, companies)
    for company in companies:
        cost = search.machine_cost(machine, company)
        if cost * _SCALE > _LARGEST:
            continue  # forbidden, or dearer than any plan worth having: it can be in no optimum
        counts = tuple(sorted(Counter((n.task_class, n.width_milli) for n in company).items()))
        if cost < best.get(counts, FORBIDDEN):
            best[counts] = cost
    return best


def _companies(search: Search, group: int, kinds: Counter[Kind]) -> Iterator[Company]:
    options: list[list[list[Newcomer]]] = []
    for c, w in _kinds_for(search, group, kinds):
        ways: list[list[Newcomer]] = []
        for n in range(kinds[c, w] + 1):
            for slots in combinations_with_replacement(range(search.slots), n):
                ways.append([Newcomer(c, slot, w) for slot in slots])
        options.append(ways)
    for choice in product(*options):
        yield tuple(sorted(n for part in choice for n in part))

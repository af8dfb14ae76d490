"""The exact optimum of small rounds, by CP-SAT on the same objective as the primal.

Every co-location that may join a machine of a group is priced, as the model prices it, same-round terms included: every
start, every width, with services' cores and without. Of the ways in which a set of tasks can be on a machine only the
cheapest can be part of an optimum. CP-SAT then gives every machine one co-location so that each task is in one or waits.
Relations whose domains are labels are left out, which only lowers the bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from math import comb
from typing import TYPE_CHECKING

from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment
from flowsched.round.round_model import RoundModel

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_SCALE = 1_000_000
_LARGEST = 2.0**52
"""A plan that costs more is not worth being in CP-SAT's model; sums of it would leave 64 bits."""
_DETERMINISTIC_LIMIT = 20.0
"""CP-SAT's own measure of work, so that the answer does not depend on the speed of the machine."""


def few_colocations(model: RoundModel, most: int) -> bool:
    """Whether no more than ``most`` co-locations would have to be priced; to count them all would take longer than to price
    a round.
    """
    counts = _counts(model)
    total = 0
    for g in range(len(model.view.groups)):
        here = 1
        for c, ways in _ways(model, g):
            here *= comb(counts[c] + len(ways), len(ways))
            if total + here > most:
                return False
        total += here
    return total <= most


def exact_bound(model: RoundModel, plan: Assignment) -> float | None:
    """The least cost of any plan; None where CP-SAT does not prove it within its limits, or ``plan`` costs too much for
    its whole numbers.
    """
    from ortools.sat.python import cp_model  # takes most of a second

    if model.total(plan) * _SCALE > _LARGEST:
        return None
    counts = _counts(model)
    program = cp_model.CpModel()
    uses: dict[int, list[cp_model.LinearExpr]] = {c: [] for c in counts}
    objective: list[cp_model.LinearExpr] = []
    by_group: dict[int, dict[tuple[tuple[int, int], ...], float]] = {}
    for machine, group in enumerate(model.view.group_of):
        cheapest = None if machine in model.holds else by_group.get(group)
        if cheapest is None:
            cheapest = _cheapest_colocations(model, machine, group, counts)
            if machine not in model.holds:
                by_group[group] = cheapest
        chosen = []
        for i, (present, cost) in enumerate(cheapest.items()):
            x = program.new_bool_var(f"m{machine}_{i}")
            chosen.append(x)
            objective.append(round(cost * _SCALE) * x)
            for c, n in present:
                uses[c].append(n * x)
        program.add_exactly_one(chosen)
    forced = Counter(model.view.class_of[t] for t in model.must_start)
    for c, n in counts.items():
        waiting_cost = model.prices.waiting_cost(c)
        most = n - forced[c] if waiting_cost * _SCALE <= _LARGEST else 0
        wait = program.new_int_var(0, most, f"wait_{c}")
        program.add(sum(uses[c]) + wait == n)
        objective.append(round(min(waiting_cost * _SCALE, _LARGEST)) * wait)
    program.minimize(sum(objective))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _DETERMINISTIC_LIMIT
    status = solver.solve(program)
    if status != cp_model.OPTIMAL:
        return None
    summands = len(model.view.machines) + len(model.view.tasks)
    # Each summand was rounded once.
    return solver.best_objective_bound / _SCALE - summands * 0.5 / _SCALE + model.spare_cost()


def _counts(model: RoundModel) -> Counter[int]:
    """Tasks of each class."""
    return Counter(model.view.class_of)


def _ways(model: RoundModel, group: int) -> Iterator[tuple[int, list[Arrival]]]:
    """Class by class, every way in which one of its tasks may join a group's machines."""
    view = model.view
    barred = {view.class_of[t] for t in model.barred}
    for c in range(len(view.classes)):
        if c not in barred:
            ways = [way for way in model.forecasts.ways(group, c) if view.could_fit(c, group, way[0])]
            yield c, [Arrival(c, start_after, *way) for start_after in range(model.starts) for way in ways]


def _cheapest_colocations(
    model: RoundModel, machine: int, group: int, counts: Counter[int]
) -> dict[tuple[tuple[int, int], ...], float]:
    """For every number of tasks of each class that a machine can take, the least cost over their ways to be there."""
    best: dict[tuple[int, ...], float] = {}
    colocations = list(_colocations(model, group, counts))
    costs = model.prices.machine_costs(group, colocations)
    if machine in model.holds:
        costs = [model.machine_cost(machine, colocation) for colocation in colocations]
    for colocation, cost in zip(colocations, costs, strict=True):
        if cost * _SCALE > _LARGEST:
            continue  # forbidden, or dearer than any plan worth having: it can be in no optimum
        present = tuple([a.task_class for a in colocation])
        if cost < best.get(present, FORBIDDEN):
            best[present] = cost
    return {tuple(Counter(present).items()): cost for present, cost in best.items()}


def _colocations(model: RoundModel, group: int, counts: Counter[int]) -> Iterator[Colocation]:
    sets = [
        [chosen for n in range(counts[c] + 1) for chosen in combinations_with_replacement(ways, n)]
        for c, ways in _ways(model, group)
    ]
    for choice in product(*sets):
        yield tuple(sorted(a for part in choice for a in part))

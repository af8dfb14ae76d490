"""The exact optimum of small rounds, by CP-SAT on the same objective as the primal.

Every co-location that may join a machine of a group is priced, as the model prices it, same-round terms included: every
start, every width, with services' cores and without. Of the ways in which a set of tasks can be on a machine only the
cheapest can be part of an optimum. Relations whose domains are labels are left out, which only lowers the bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from math import comb

import numpy as np

from flowsched.pricing.arrival import Arrival, Colocation
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment
from flowsched.round.round_model import RoundModel
from flowsched.solvers.colocation_program import SCALE, Colocations, WaitingPrice, cheapest_plan

_LARGEST = 2.0**52
"""A plan that costs more is not worth being in CP-SAT's model; sums of it would leave 64 bits."""


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
    if model.total(plan) * SCALE > _LARGEST:
        return None
    counts = _counts(model)
    forced = Counter(model.view.class_of[t] for t in model.must_start)
    waits = []
    for c, n in counts.items():
        cost = min(model.prices.waiting_cost(c), _LARGEST / SCALE)
        waits.append([WaitingPrice(cost, n - forced[c] if cost * SCALE < _LARGEST else 0)])
    found = cheapest_plan(_alike(model, counts), list(counts.values()), waits)
    return found.bound + model.spare_cost() if found is not None and found.proven else None


def _alike(model: RoundModel, counts: Counter[int]) -> list[Colocations]:
    """The co-locations of all machines: those of a group are alike, but for machines that are held."""
    by_group: dict[int, list[int]] = {}
    held: list[tuple[int, list[int]]] = []
    for machine, group in enumerate(model.view.group_of):
        if machine in model.holds:
            held.append((group, [machine]))
        else:
            by_group.setdefault(group, []).append(machine)
    position = {c: i for i, c in enumerate(counts)}
    found = []
    for group, machines in (*by_group.items(), *held):
        cheapest = _cheapest_colocations(model, machines[0], group, counts)
        tasks = np.zeros((len(cheapest), len(counts)), dtype=np.int64)
        for row, present in enumerate(cheapest):
            for c, n in present:
                tasks[row, position[c]] = n
        found.append(Colocations(np.array(machines), tasks, np.array(list(cheapest.values()), dtype=np.float64)))
    return found


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
        if cost * SCALE > _LARGEST:
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

"""The cheapest plan of small rounds against all plans tried."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.solvers.colocation_program import ColocationPlan, Colocations, WaitingPrice, cheapest_plan

COSTS = st.integers(0, 40).map(lambda quarters: quarters / 4.0)
Round = tuple[list[Colocations], list[int], list[list[WaitingPrice]]]


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    """Up to two classes on up to three machines of two makes; some tasks must not wait."""
    tasks = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    alike = []
    for first, members in ((0, draw(st.integers(1, 2))), (2, 1)):
        counts = [counts for counts in product(*(range(n + 1) for n in tasks)) if sum(counts) <= 2]
        cost = [0.0, *draw(st.lists(COSTS, min_size=len(counts) - 1, max_size=len(counts) - 1))]
        alike.append(Colocations(np.arange(first, first + members), np.array(counts), np.array(cost)))
    waits = []
    for n in tasks:
        cheap = WaitingPrice(draw(COSTS), draw(st.integers(0, n)))
        waits.append([cheap, WaitingPrice(cheap.cost + draw(COSTS), draw(st.integers(0, n)))])
    return alike, tasks, waits


def plans(case: Round) -> Iterator[float]:
    """What every plan costs."""
    alike, tasks, waits = case
    machines = [colocations for colocations in alike for _ in colocations.machines]
    for chosen in product(*(range(len(colocations.cost)) for colocations in machines)):
        left = np.array(tasks) - sum(c.counts[i] for c, i in zip(machines, chosen, strict=True))
        if (left < 0).any() or any(n > sum(p.tasks for p in w) for n, w in zip(left, waits, strict=True)):
            continue
        cost = sum(float(c.cost[i]) for c, i in zip(machines, chosen, strict=True))
        for n, (cheap, dear) in zip(left.tolist(), waits, strict=True):
            first = min(n, cheap.tasks)
            cost += first * cheap.cost + (n - first) * dear.cost
        yield cost


def cost_of(case: Round, plan: ColocationPlan) -> float:
    alike, _, waits = case
    cost = sum(float(c.cost @ many) for c, many in zip(alike, plan.chosen, strict=True))
    return cost + sum(
        p.cost * n for w, many in zip(waits, plan.waits, strict=True) for p, n in zip(w, many, strict=True)
    )


@given(rounds())
def test_no_plan_is_cheaper(case: Round) -> None:
    alike, tasks, waits = case
    plan = cheapest_plan(alike, tasks, waits)
    best = min(plans(case), default=None)
    if best is None:
        assert plan is None
        return
    assert plan is not None
    assert plan.proven
    assert cost_of(case, plan) == pytest.approx(best, abs=1e-5)
    assert best - 1e-4 <= plan.bound <= best
    placed = sum(many @ c.counts for c, many in zip(alike, plan.chosen, strict=True))
    assert (placed + [sum(many) for many in plan.waits]).tolist() == tasks
    assert [int(many.sum()) for many in plan.chosen] == [len(c.machines) for c in alike]


@given(rounds())
def test_a_plan_that_is_known_changes_nothing_but_the_way_there(case: Round) -> None:
    alike, tasks, waits = case
    plan = cheapest_plan(alike, tasks, waits)
    if plan is not None:
        again = cheapest_plan(alike, tasks, waits, hint=plan.chosen)
        assert again is not None
        assert (again.proven, again.bound) == (plan.proven, plan.bound)


def test_a_plan_is_counted_by_what_each_machine_has() -> None:
    colocations = Colocations(np.array([4, 7, 9]), np.array([[0, 0], [1, 0], [1, 1]]), np.zeros(3))
    counted = colocations.counted(np.array([0, 1, 0, 1, 1]), np.array([7, 7, 9, 3, 3]))
    assert counted.tolist() == [1, 1, 1]

"""What every solver must do with the same networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.network import COST_LIMIT, IntArray, Network, NetworkBuilder, potentials
from flowsched.solvers import SOLVERS, Solver, Status, make_solver

Arc = tuple[int, int, int, int]
"""Tail, head, capacity, unit cost."""


def network(arcs: list[Arc], supplies: list[int]) -> Network:
    columns = np.array(arcs, dtype=np.int64).reshape(-1, 4).T
    return Network(*columns, np.array(supplies, dtype=np.int64), 1.0)


def balance(net: Network, flow: IntArray) -> list[int]:
    out = np.zeros(len(net.supplies), dtype=np.int64)
    np.add.at(out, net.tails, flow)
    np.subtract.at(out, net.heads, flow)
    return [int(x) for x in out]


@pytest.fixture(params=sorted(SOLVERS))
def solver(request: pytest.FixtureRequest) -> Solver:
    return make_solver(request.param)


@pytest.mark.parametrize(
    ("arcs", "supplies", "cost", "flow"),
    [
        pytest.param([(0, 1, 5, 3)], [5, -5], 15, [5], id="one arc"),
        pytest.param([(0, 1, 3, 1), (0, 1, 9, 4)], [5, -5], 11, [3, 2], id="parallel arcs, cheapest first"),
        pytest.param([(0, 1, 4, 2), (1, 2, 4, 2), (0, 2, 1, 9)], [5, 0, -5], 25, [4, 4, 1], id="a way round"),
        pytest.param([(0, 1, 4, 2)], [0, 0], 0, [0], id="zero supplies"),
        pytest.param([(0, 1, 9, -4), (0, 1, 9, 0)], [5, -5], -20, [5, 0], id="negative cost"),
        pytest.param([(0, 1, 2, -3), (1, 0, 2, 1)], [0, 0], -4, [2, 2], id="negative cycle"),
        pytest.param([(0, 1, 0, -3), (0, 1, 2, 5)], [1, -1], 5, [0, 1], id="capacity zero"),
        pytest.param([], [], 0, [], id="nothing at all"),
        pytest.param([], [0, 0], 0, [], id="no arcs"),
        pytest.param([(0, 1, 1, 7)], [1, -1, 0, 0], 7, [1], id="nodes without arcs"),
    ],
)
def test_known_instances(solver: Solver, arcs: list[Arc], supplies: list[int], cost: int, flow: list[int]) -> None:
    solution = solver.solve(network(arcs, supplies))

    assert (solution.status, solution.cost, solution.flow.tolist()) == (Status.OPTIMAL, cost, flow)


@pytest.mark.parametrize(
    ("arcs", "supplies"),
    [
        pytest.param([(0, 1, 3, 1)], [5, -5], id="too little capacity"),
        pytest.param([(0, 1, 9, 1)], [5, 0, -5], id="no way"),
        pytest.param([], [1, -1], id="no arcs"),
        pytest.param([(0, 1, 9, 1)], [5, -4], id="unbalanced"),
    ],
)
def test_infeasible_is_an_answer(solver: Solver, arcs: list[Arc], supplies: list[int]) -> None:
    solution = solver.solve(network(arcs, supplies))

    assert solution.status is Status.INFEASIBLE
    assert not solution.flow.any()


def test_the_same_network_gives_the_same_flow(solver: Solver) -> None:
    tied = network([(0, 1, 5, 1), (0, 2, 5, 1), (1, 3, 5, 1), (2, 3, 5, 1)], [5, 0, 0, -5])

    assert solver.solve(tied).flow.tolist() == solver.solve(tied).flow.tolist()


def test_a_cost_beyond_range_is_refused_by_ortools_not_raised() -> None:
    for cost in (COST_LIMIT + 1, -COST_LIMIT - 1, 1 << 61):
        assert make_solver("ortools").solve(network([(0, 1, 1, cost)], [1, -1])).status is Status.REFUSED
    assert make_solver("ortools").solve(network([(0, 1, 1, COST_LIMIT)], [1, -1])).cost == COST_LIMIT


@st.composite
def networks(draw: st.DrawFn) -> Network:
    nodes = draw(st.integers(2, 7))
    node = st.integers(0, nodes - 1)
    arc = st.tuples(node, node, st.integers(0, 9), st.integers(-20, 50)).filter(lambda a: a[0] != a[1])
    arcs = draw(st.lists(arc, min_size=1, max_size=20))
    supplies = [0] * nodes
    for tail, head, amount in draw(st.lists(st.tuples(node, node, st.integers(0, 5)), max_size=3)):
        supplies[tail] += amount
        supplies[head] -= amount
    return network(arcs, supplies)


@given(networks())
def test_solvers_agree_and_potentials_prove_the_optimum(net: Network) -> None:
    answers = {name: make_solver(name).solve(net) for name in SOLVERS}

    assert len({(a.status, a.cost) for a in answers.values()}) == 1
    for answer in answers.values():
        if answer.status is not Status.OPTIMAL:
            continue
        flow = answer.flow
        assert (flow >= 0).all()
        assert (flow <= net.capacities).all()
        assert balance(net, flow) == net.supplies.tolist()
        assert answer.cost == net.cost_of(flow)
        pi = potentials(net, flow)
        reduced = net.unit_costs + pi[net.tails] - pi[net.heads]
        assert (flow[reduced > 0] == 0).all()
        assert (flow[reduced < 0] == net.capacities[reduced < 0]).all()


def test_potentials_refuse_a_flow_that_is_not_optimal() -> None:
    net = network([(0, 1, 5, 1), (0, 1, 5, 4)], [5, -5])

    with pytest.raises(ValueError, match="not optimal"):
        potentials(net, [0, 5])


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.sampled_from((1, 2, 3, 7, 8, 100, 1500, 4001))), min_size=1, max_size=8)
)
def test_scaled_costs_stay_in_range_and_close_to_the_true_ones(arcs: list[tuple[float, int]]) -> None:
    builder = NetworkBuilder()
    source, sink = builder.node("source", 1), builder.node("sink")
    for cost, units in arcs:
        builder.arc(source, sink, 1, cost, units)

    net = builder.build(sink)

    assert net.supplies.sum() == 0
    assert np.abs(net.unit_costs).max() <= COST_LIMIT
    largest = max(abs(cost / units) for cost, units in arcs)
    for (cost, units), scaled in zip(arcs, net.unit_costs.tolist(), strict=True):
        assert abs(scaled / net.cost_scale - cost / units) <= max(1e-8 * largest, 1e-8)

"""The exam that every solver passes, as far as it says it can: published instances, certificates, odd networks, limits.

Optima are proven here, not believed: potentials make each one optimal by complementary slackness, in whole numbers.
"""

from __future__ import annotations

import re
import subprocess
import time
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.network.dimacs_file import read_dimacs, render_network
from flowsched.network.network import IntArray, Network, potentials
from flowsched.solvers import SOLVERS, Solution, Solver, Status, make_solver
from requirements_on_machine import give_up, needs

Arc = tuple[int, int, int, int]
"""Tail, head, capacity, unit cost."""
FILES = sorted((Path(__file__).parent / "data").glob("*.dimacs"))


def network(arcs: list[Arc], supplies: list[int]) -> Network:
    columns = np.array(arcs, dtype=np.int64).reshape(-1, 4).T
    return Network(*columns, np.array(supplies, dtype=np.int64), 1.0)


def assert_feasible(net: Network, flow: IntArray) -> None:
    assert flow.dtype == np.int64
    assert (flow >= 0).all()
    assert (flow <= net.capacities).all()
    out = [0] * len(net.supplies)
    for tail, head, amount in zip(net.tails.tolist(), net.heads.tolist(), flow.tolist(), strict=True):
        out[tail] += amount
        out[head] -= amount
    assert out == net.supplies.tolist()


def assert_proof(net: Network, flow: IntArray, pi: IntArray) -> None:
    """Complementary slackness, in Python's integers."""
    columns = (net.tails, net.heads, net.capacities, net.unit_costs, flow)
    values = pi.tolist()
    for tail, head, capacity, cost, amount in zip(*(c.tolist() for c in columns), strict=True):
        reduced = cost + values[tail] - values[head]
        assert not (reduced > 0 and amount > 0)
        assert not (reduced < 0 and amount < capacity)


def assert_optimal(net: Network, solution: Solution, solver: Solver) -> None:
    assert solution.status is Status.OPTIMAL, solution
    assert_feasible(net, solution.flow)
    costs = zip(net.unit_costs.tolist(), solution.flow.tolist(), strict=True)
    assert solution.cost == sum(c * f for c, f in costs)
    if solver.capabilities.potentials and (np.abs(net.unit_costs) <= solver.capabilities.largest_cost).all():
        assert solution.potentials is not None
    if solution.potentials is not None:
        assert_proof(net, solution.flow, solution.potentials)
    if net.arc_count and np.abs(net.unit_costs).max() < 1 << 40:
        assert_proof(net, solution.flow, potentials(net, solution.flow))


def made(name: str) -> Solver:
    """A solver that can run here; else the test is skipped, and fails in CI."""
    if missing := SOLVERS[name].capabilities.missing:
        give_up(f"the solver {name} {missing}")
    return make_solver(name)


@cache
def usable() -> dict[str, Solver]:
    """Kept, so that compiled code and processes are."""
    return {name: make_solver(name) for name in SOLVERS if not SOLVERS[name].capabilities.missing}


@pytest.fixture(params=sorted(SOLVERS))
def solver(request: pytest.FixtureRequest) -> Solver:
    """One whose process may have answered other tests; a new one where it goes on from its last flow."""
    new = made(request.param)
    return new if new.capabilities.warm_start else usable()[request.param]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_published_instances(solver: Solver, path: Path) -> None:
    net = read_dimacs(path)
    claimed = re.search(r"^c optimum (\w+)$", path.read_text(), re.M)
    assert claimed is not None

    solution = solver.solve(net)

    if claimed[1] == "none":
        assert solution.status is Status.INFEASIBLE
    else:
        assert_optimal(net, solution, solver)
        assert solution.cost == int(claimed[1])


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_lemon_finds_the_same_optimum(path: Path) -> None:
    assert lemon(read_dimacs(path)) == usable()["ortools"].solve(read_dimacs(path)).cost or path.stem == "infeasible"


def lemon(net: Network) -> int | None:
    """The optimum by LEMON's network simplex, which is no solver of rounds: its program does not tell the flow."""
    program = needs("dimacs-solver", "to check optima with LEMON (Debian package liblemon-utils)")
    text = render_network(net)
    done = subprocess.run([program, "-long"], input=text, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"Min flow cost: (-?\d+)", done.stdout + done.stderr)
    return int(found[1]) if found else None


KNOWN = [
    pytest.param([(0, 1, 5, 3)], [5, -5], 15, [5], id="one arc"),
    pytest.param([(0, 1, 3, 1), (0, 1, 9, 4)], [5, -5], 11, [3, 2], id="parallel arcs, cheapest first"),
    pytest.param([(0, 1, 9, 4), (0, 1, 3, 1), (0, 1, 3, 2)], [5, -5], 7, [0, 3, 2], id="parallel arcs, dearest first"),
    pytest.param([(0, 1, 4, 2), (1, 2, 4, 2), (0, 2, 1, 9)], [5, 0, -5], 25, [4, 4, 1], id="a way round"),
    pytest.param([(0, 1, 4, 2)], [0, 0], 0, [0], id="zero supplies"),
    pytest.param([(0, 1, 0, 1), (0, 1, 2, 5)], [1, -1], 5, [0, 1], id="capacity zero"),
    pytest.param([(0, 0, 4, 3), (0, 1, 4, 1), (1, 1, 4, 0)], [2, -2], 2, None, id="loops"),
    pytest.param([(0, 1, 9, 0), (1, 2, 9, 0)], [3, 0, -3], 0, [3, 3], id="nothing costs anything"),
    pytest.param([], [], 0, [], id="nothing at all"),
    pytest.param([], [0, 0], 0, [], id="no arcs"),
    pytest.param([(0, 1, 1, 7)], [1, -1, 0, 0], 7, [1], id="nodes without arcs"),
    pytest.param([(0, 1, 1, 7), (2, 3, 2, 1)], [1, -1, 2, -2], 9, [1, 2], id="two networks in one"),
    pytest.param([(1, 0, 9, 1), (0, 1, 9, 1)], [-4, 4], 4, [4, 0], id="the demand comes first"),
]  # fmt: skip
NEGATIVE = [
    pytest.param([(0, 1, 9, -4), (0, 1, 9, 0)], [5, -5], -20, [5, 0], id="negative cost"),
    pytest.param([(0, 1, 2, -3), (1, 0, 2, 1)], [0, 0], -4, [2, 2], id="negative cycle"),
    pytest.param([(0, 0, 5, -3), (0, 1, 5, 1)], [2, -2], -13, [5, 2], id="negative loop"),
    pytest.param([(0, 1, 0, -3), (0, 1, 2, 5)], [1, -1], 5, [0, 1], id="negative cost without capacity"),
    pytest.param([(0, 1, 3, -1), (1, 2, 3, -1), (2, 0, 3, -1), (2, 3, 1, 0)], [1, 0, 0, -1], -8, [3, 3, 2, 1],
                 id="a cycle that is left early"),
]  # fmt: skip


@pytest.mark.parametrize(("arcs", "supplies", "cost", "flow"), [*KNOWN, *NEGATIVE])
def test_small_instances(
    solver: Solver, arcs: list[Arc], supplies: list[int], cost: int, flow: list[int] | None
) -> None:
    net = network(arcs, supplies)
    if min((a[3] for a in arcs), default=0) < 0 and not solver.capabilities.negative_costs:
        assert solver.solve(net).status is Status.REFUSED
        return

    solution = solver.solve(net)

    assert_optimal(net, solution, solver)
    assert solution.cost == cost
    assert flow is None or solution.flow.tolist() == flow


@pytest.mark.parametrize("time_limit_s", [None, 0.0, 60.0])
@pytest.mark.parametrize(
    ("arcs", "supplies"),
    [
        pytest.param([(0, 1, 3, 1)], [5, -5], id="too little capacity"),
        pytest.param([(0, 1, 9, 1)], [5, 0, -5], id="no way"),
        pytest.param([(0, 1, 9, 1), (2, 1, 9, 1)], [0, 3, -3], id="only against the arcs"),
        pytest.param([(0, 1, 9, -5), (1, 0, 9, 1)], [1, 0, -1], id="no way, and a cycle that pays"),
        pytest.param([], [1, -1], id="no arcs"),
        pytest.param([(0, 1, 9, 1)], [5, -4], id="more supply than demand"),
        pytest.param([(0, 1, 9, 1)], [4, -5], id="more demand than supply"),
    ],
)
def test_infeasible_is_an_answer(
    solver: Solver, arcs: list[Arc], supplies: list[int], time_limit_s: float | None
) -> None:
    solution = solver.solve(network(arcs, supplies), time_limit_s=time_limit_s)

    assert solution.status is Status.INFEASIBLE
    assert solution.flow.tolist() == [0] * len(arcs)
    assert solution.report


@pytest.mark.parametrize(
    "net",
    [
        pytest.param(network([(0, 5, 1, 1)], [1, -1]), id="an end that is no node"),
        pytest.param(network([(0, -1, 1, 1)], [1, -1]), id="a negative node"),
        pytest.param(network([(0, 1, -1, 1)], [1, -1]), id="a negative capacity"),
        pytest.param(network([(0, 1, 1, 1)], [(1 << 63) - 1, -(1 << 63) + 1]), id="supplies that cannot be doubled"),
        pytest.param(
            Network(*(np.arange(n, dtype=np.int64) for n in (2, 2, 1, 2)), np.zeros(2, dtype=np.int64), 1.0),
            id="columns of different length",
        ),
    ],
)
def test_what_is_no_network_is_refused_with_a_sentence(solver: Solver, net: Network) -> None:
    solution = solver.solve(net)

    assert solution.status is Status.REFUSED
    assert solution.report
    assert len(solution.flow) == net.arc_count


def test_the_same_network_gives_the_same_flow(solver: Solver) -> None:
    if not solver.capabilities.repeatable or solver.capabilities.warm_start:
        pytest.skip(f"{solver.name} does not promise it")
    tied = assignment(12, lambda i, k: (i * k) % 3)

    flows = [solver.solve(tied).flow.tolist(), make_solver(solver.name).solve(tied).flow.tolist()]
    flows.append(solver.solve(tied, time_limit_s=60.0).flow.tolist())

    assert flows[0] == flows[1] == flows[2]


def assignment(n: int, cost: object) -> Network:
    """n people and n jobs: degenerate, since every flow is 0 or 1 and most trees have flow nowhere."""
    arcs = [(i, n + k, 1, cost(i, k)) for i in range(n) for k in range(n)]  # type: ignore[operator]
    return network(arcs, [1] * n + [-1] * n)


@pytest.mark.parametrize(
    ("net", "cost"),
    [
        pytest.param(assignment(9, lambda i, k: 0), 0, id="all alike"),
        pytest.param(assignment(9, lambda i, k: abs(i - k)), 0, id="the diagonal"),
        # By the rearrangement inequality the cheapest pairs largest with smallest: the sum of i * (8 - i).
        pytest.param(assignment(9, lambda i, k: i * k), sum(i * (8 - i) for i in range(9)), id="products"),
    ],
)
def test_degenerate_assignments(solver: Solver, net: Network, cost: int) -> None:
    solution = solver.solve(net)

    assert_optimal(net, solution, solver)
    assert solution.cost == cost


def test_a_convex_ladder_is_filled_from_below(solver: Solver) -> None:
    """Machines with slots of rising cost: n tasks take the n cheapest slots of all."""
    slots = [(1 + m, 1 + 6, 1, (s + 1) * (m + 2)) for m in range(6) for s in range(8)]
    net = network([(0, 1 + m, 20, 0) for m in range(6)] + slots, [20, *[0] * 6, -20])

    solution = solver.solve(net)

    assert_optimal(net, solution, solver)
    assert solution.cost == sum(sorted(cost for *_, cost in slots)[:20])


# Large numbers


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("sign", [1, -1])
def test_costs_at_the_limit_that_is_promised(solver: Solver, share: float, sign: int) -> None:
    most = solver.capabilities.largest_cost if share == 1.0 else solver.capabilities.largest_cost // 2
    if sign < 0 and not solver.capabilities.negative_costs:
        pytest.skip(f"{solver.name} takes no negative costs")
    # A path over fifty nodes, each step one dearer than the other way, which has room for one only.
    nodes = 50
    arcs = [(i, i + 1, c, sign * (most - x)) for i in range(nodes - 1) for c, x in ((1, 1), (2, 0), (3, 3))]
    net = network(arcs, [4, *[0] * (nodes - 2), -4])

    solution = solver.solve(net)

    assert_optimal(net, solution, solver)
    take = [3, 1, 0] if sign > 0 else [2, 1, 1]
    per_step = take[0] * (most - 3) + take[1] * (most - 1) if sign > 0 else -(2 * most + (most - 1) + (most - 3))
    assert solution.cost == per_step * (nodes - 1)


@pytest.mark.parametrize(
    "large", [(1 << 38) + 1, (1 << 52) + 1, (1 << 58) + 1, (1 << 62) - 1, (1 << 63) - 1, -(1 << 63)]
)
def test_beyond_every_limit_an_answer_is_right_or_refused(solver: Solver, large: int) -> None:
    """Never raised, never wrong."""
    net = network([(0, 1, 2, large), (0, 1, 2, large // 3), (0, 2, 3, 7), (2, 1, 3, large // 2)], [4, -4, 0])

    solution = solver.solve(net)

    if solution.status is Status.REFUSED:
        assert re.search(r"\d", solution.report), "the sentence says how large"
        assert abs(large) > solver.capabilities.largest_cost
    else:
        assert_optimal(net, solution, solver)
        assert solution.cost == usable()["networkx"].solve(net).cost


def test_unlimited_capacities_do_not_add_up_beyond_64_bits(solver: Solver) -> None:
    endless = (1 << 63) - 1
    arcs = [(0, 1, endless, 1), (0, 1, endless, 2), (1, 2, endless, 1), (0, 2, endless, 3), (0, 2, endless, 4)]
    net = network(arcs, [1000, 0, -1000])

    solution = solver.solve(net)

    assert_optimal(net, solution, solver)
    assert solution.cost == 2000


# Agreement


@st.composite
def networks(draw: st.DrawFn, least_cost: int = -20, scale: int = 1) -> Network:
    nodes = draw(st.integers(2, 7))
    node = st.integers(0, nodes - 1)
    arcs = draw(
        st.lists(st.tuples(node, node, st.integers(0, 9), st.integers(least_cost, 50)), min_size=1, max_size=20)
    )
    supplies = [0] * nodes
    for tail, head, amount in draw(st.lists(st.tuples(node, node, st.integers(0, 5)), max_size=3)):
        supplies[tail] += amount
        supplies[head] -= amount
    return network([(t, h, u, c * scale) for t, h, u, c in arcs], supplies)


@given(networks())
def test_all_agree(net: Network) -> None:
    answers = {name: solver.solve(net) for name, solver in usable().items() if solver.capabilities.negative_costs}

    assert len({(a.status, a.cost) for a in answers.values()}) == 1, answers
    for name, answer in answers.items():
        if answer.status is Status.OPTIMAL:
            assert_optimal(net, answer, usable()[name])


@settings(max_examples=40)
@given(networks(least_cost=0, scale=(1 << 30) - 1))
def test_all_agree_where_costs_are_large(net: Network) -> None:
    answers = {name: solver.solve(net) for name, solver in usable().items()}

    assert len({(a.status, a.cost) for a in answers.values()}) == 1, answers
    for name, answer in answers.items():
        if answer.status is Status.OPTIMAL:
            assert_optimal(net, answer, usable()[name])


def scheduling(machines: int, classes: int, load: float) -> Network:
    """Classes, machines with two slots, a way to wait: what rounds are made of."""
    rng = np.random.default_rng([machines, classes])
    count = int(machines * 2 * load / classes)
    sink, waiting = classes + machines + 1, classes + machines
    arcs = [(c, classes + m, 2, int(rng.integers(0, 1 << 30))) for c in range(classes) for m in range(machines)]
    arcs += [(c, waiting, count, 1 << 30) for c in range(classes)]
    arcs += [(classes + m, sink, 2, 0) for m in range(machines)] + [(waiting, sink, count * classes, 0)]
    return network(arcs, [count] * classes + [0] * (machines + 1) + [-count * classes])


@pytest.mark.parametrize("load", [0.5, 1.0, 1.3])
def test_all_agree_on_scheduling_networks_and_with_lemon(load: float) -> None:
    net = scheduling(60, 6, load)
    answers = {name: solver.solve(net) for name, solver in usable().items()}

    assert len({(a.status, a.cost) for a in answers.values()}) == 1, answers
    for name, answer in answers.items():
        assert_optimal(net, answer, usable()[name])
    assert answers["ortools"].cost == lemon(net)


def test_a_changed_network_is_solved_anew(solver: Solver) -> None:
    """Whatever a solver remembers of one network must not show in the next."""
    sequence = [scheduling(20, 3, load) for load in (0.5, 1.0, 0.9)]
    sequence.append(network([(0, 1, 5, 3)], [5, -5]))
    sequence.append(network([(0, 1, 3, 1)], [5, -5]))
    sequence.append(scheduling(20, 3, 0.5))

    answers = [solver.solve(net) for net in sequence]

    reference = [make_solver("ortools").solve(net) for net in sequence]
    assert [(a.status, a.cost) for a in answers] == [(r.status, r.cost) for r in reference]


# Time limits


def assert_bracketed(net: Network, solution: Solution, optimum: int) -> None:
    assert_feasible(net, solution.flow)
    assert solution.cost == net.cost_of(solution.flow) >= optimum
    assert solution.bound is not None
    assert solution.bound <= optimum


@pytest.mark.parametrize("time_limit_s", [0.0, 1e-9])
def test_a_limit_that_strikes_gives_a_feasible_flow_that_says_so(solver: Solver, time_limit_s: float) -> None:
    net = scheduling(60, 6, 1.0)
    if not solver.capabilities.time_limit:
        assert_optimal(net, solver.solve(net, time_limit_s=time_limit_s), solver)
        return
    optimum = usable()["ortools"].solve(net).cost

    solution = solver.solve(net, time_limit_s=time_limit_s)

    if solution.status is Status.OPTIMAL and time_limit_s > 0.0:  # it was faster than the clock
        assert solution.cost == optimum
        return
    assert solution.status is Status.FEASIBLE
    assert_bracketed(net, solution, optimum)
    assert " was stopped after " in solution.report
    assert "lower bound" in solution.report


def test_a_limit_that_does_not_strike_changes_nothing(solver: Solver) -> None:
    net = scheduling(20, 3, 1.0)

    solution = solver.solve(net, time_limit_s=600.0)

    assert_optimal(net, solution, solver)
    assert solver.capabilities.warm_start or solution.report == solver.solve(net).report


def test_after_a_limit_struck_the_next_answer_is_whole_again(solver: Solver) -> None:
    net = scheduling(60, 6, 1.3)
    for limit in (1e-9, 600.0, 1e-9, None):
        solution = solver.solve(net, time_limit_s=limit)
        assert_feasible(net, solution.flow)

    assert_optimal(net, solution, solver)


def test_a_long_solve_ends_soon_after_its_limit() -> None:
    """networkx needs a minute for this; the time is only looked at roughly, so that a slow machine does not matter."""
    n = 60
    hard = assignment(n, lambda i, k: (i * 7919 + k * 104729) % 1009)
    big = network([*zip(*(x.tolist() for x in (hard.tails, hard.heads, hard.capacities, hard.unit_costs)), strict=True)]
                  + [(i, j, 1, 2000 + i) for i, j in pairwise(range(n))], hard.supplies.tolist())  # fmt: skip
    solver = made("networkx")
    assert_feasible(big, solver.solve(big, time_limit_s=1e-3).flow)
    began = time.monotonic()

    solution = solver.solve(big, time_limit_s=0.05)

    assert_feasible(big, solution.flow)
    assert time.monotonic() - began < 30.0

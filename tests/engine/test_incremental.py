"""An incremental flow is, after every change, what a solver finds that starts from nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.quincy import incremental_kernel as kernel
from benchmarks.quincy.hub_graph import UNCAPPED, HubGraph
from benchmarks.quincy.incremental_certificate import certify
from benchmarks.quincy.incremental_flow import IncrementalFlow, InfeasibleError
from benchmarks.quincy.incremental_outcome import Reason, Way
from flowsched.network.network import Network
from flowsched.solvers.incremental import IncrementalSolver, Rebuild
from flowsched.solvers.ortools import OrtoolsSolver
from flowsched.solvers.solver import Status
from flowsched.support.arrays import IntArray

MACHINES, RACKS = 4, 2
CLUSTER, SINK, LATER = MACHINES + RACKS, MACHINES + RACKS + 1, MACHINES + RACKS + 2
"""Hubs: machines, racks, cluster, sink, and an aggregator for waiting whose arc to the sink has no capacity."""


def small_graph(slots: list[int], rack_cost: int = 0) -> HubGraph:
    columns = [(m, SINK, slots[m], 0) for m in range(MACHINES)]
    columns += [(MACHINES + m // 2, m, slots[m], rack_cost) for m in range(MACHINES)]
    columns += [(CLUSTER, MACHINES + r, slots[2 * r] + slots[2 * r + 1], 0) for r in range(RACKS)]
    columns += [(LATER, SINK, UNCAPPED, 3)]
    tails, heads, capacities, costs = np.array(columns, dtype=np.int64).T
    return HubGraph(LATER + 1, SINK, tails, heads, capacities, costs)


def scratch_cost(flow: IncrementalFlow) -> int:
    solution = OrtoolsSolver().solve(flow.network())
    assert solution.status is Status.OPTIMAL
    return solution.cost


def check(flow: IncrementalFlow) -> None:
    assert flow.certificate().proves
    assert flow.cost() == flow.network().cost_of(flow.network_flow()) == scratch_cost(flow)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    hubs = draw(st.lists(st.integers(0, CLUSTER), unique=True, max_size=5))
    hubs.insert(draw(st.integers(0, len(hubs))), draw(st.sampled_from((SINK, LATER))))
    costs = [draw(st.integers(-3, 12)) + (10 if h > CLUSTER else 0) for h in hubs]
    return hubs, costs


def as_arrays(tasks: list[tuple[list[int], list[int]]]) -> tuple[IntArray, IntArray]:
    hubs = np.full((len(tasks), 7), -1, dtype=np.int64)
    costs = np.zeros((len(tasks), 7), dtype=np.int64)
    for i, (named, paid) in enumerate(tasks):
        hubs[i, : len(named)] = named
        costs[i, : len(paid)] = paid
    return hubs, costs


EVENTS = st.one_of(
    st.tuples(st.just("add"), st.lists(rows(), min_size=1, max_size=6)),
    st.tuples(st.just("remove"), st.lists(st.integers(0, 99), min_size=1, max_size=3)),
    st.tuples(st.just("slots"), st.tuples(st.integers(0, MACHINES - 1), st.integers(0, 4))),
    st.tuples(st.just("reprice"), st.tuples(st.integers(0, 99), st.lists(st.integers(-3, 20), min_size=7, max_size=7))),
    st.tuples(st.just("change"), st.tuples(st.integers(0, 99), rows())),
    st.tuples(st.just("arc"), st.tuples(st.integers(MACHINES, 2 * MACHINES + RACKS - 1), st.integers(-4, 6))),
    st.tuples(st.just("machine"), st.tuples(st.integers(0, RACKS - 1), st.integers(1, 3))),
)


def apply(flow: IncrementalFlow, event: tuple[str, object]) -> None:
    kind, what = event
    known = flow.tasks()
    if kind == "add":
        flow.add(*as_arrays(what))  # type: ignore[arg-type]
    elif kind == "remove" and len(known):
        flow.remove(np.unique(known[np.array(what) % len(known)]))
    elif kind == "slots":
        machine, slots = what  # type: ignore[misc]
        flow.change_arcs(np.array([machine]), capacities=np.array([slots]))
    elif kind == "reprice" and len(known):
        number, costs = what  # type: ignore[misc]
        flow.reprice(known[[number % len(known)]], np.array([costs]))
    elif kind == "change" and len(known):
        number, row = what  # type: ignore[misc]
        flow.change(known[[number % len(known)]], *as_arrays([row]))
    elif kind == "arc":
        arc, cost = what  # type: ignore[misc]
        flow.change_arcs(np.array([arc]), costs=np.array([cost]))
    elif kind == "machine":
        rack, slots = what  # type: ignore[misc]
        new = flow.graph.hubs
        flow.add_hubs(
            1, np.array([new, MACHINES + rack]), np.array([SINK, new]), np.array([slots, slots]), np.array([0, 0])
        )


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=MACHINES, max_size=MACHINES), st.lists(EVENTS, max_size=12))
def test_after_every_event_it_is_the_optimum_from_scratch(slots: list[int], events: list[tuple[str, object]]) -> None:
    flow = IncrementalFlow(small_graph(slots), width=7, room=2)
    for event in events:
        apply(flow, event)
        outcome = flow.reoptimise()
        check(flow)
        assert outcome.way is Way.STEPS


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=MACHINES, max_size=MACHINES),
    st.lists(st.lists(EVENTS, max_size=6), max_size=4),
)
def test_many_events_at_once_and_the_same_again(slots: list[int], rounds: list[list[tuple[str, object]]]) -> None:
    first, second = (IncrementalFlow(small_graph(slots), width=7, room=2) for _ in range(2))
    for events in rounds:
        for flow in (first, second):
            for event in events:
                apply(flow, event)
            flow.reoptimise()
        check(first)
        assert first.network_flow().tolist() == second.network_flow().tolist()
        assert first.prices().tolist() == second.prices().tolist()


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=8))
def test_plain_python_does_the_same(events: list[tuple[str, object]]) -> None:
    names = [name for name in dir(kernel) if hasattr(getattr(kernel, name), "py_func")]
    fast = IncrementalFlow(small_graph([1, 2, 0, 3]), width=7, room=2)
    with pytest.MonkeyPatch.context() as patch:
        for event in events:
            apply(fast, event)
            fast.reoptimise()
        for name in names:
            patch.setattr(kernel, name, getattr(kernel, name).py_func)
        plain = IncrementalFlow(small_graph([1, 2, 0, 3]), width=7, room=2)
        for event in events:
            apply(plain, event)
            plain.reoptimise()
    assert plain.network_flow().tolist() == fast.network_flow().tolist()
    assert plain.prices().tolist() == fast.prices().tolist()


def crowd(flow: IncrementalFlow, count: int, seed: int = 0) -> IntArray:
    random = np.random.default_rng(seed)
    hubs = np.stack([np.full(count, SINK), random.integers(0, MACHINES, count), np.full(count, CLUSTER)], axis=1)
    costs = np.stack([random.integers(50, 99, count), random.integers(0, 9, count), np.full(count, 9)], axis=1)
    return flow.add(hubs, costs)


def test_searches_that_take_too_long_are_left_to_ortools_and_counted() -> None:
    flow = IncrementalFlow(small_graph([2, 2, 2, 2]), width=7, scanned_per_arc=0.0)
    crowd(flow, 12)

    outcome = flow.reoptimise()

    assert (outcome.way, outcome.reason) == (Way.SCRATCH, Reason.SEARCHES_TOO_LONG)
    assert flow.reasons == {"searches-too-long": 1}
    check(flow)


def test_it_goes_on_from_a_flow_of_ortools() -> None:
    flow = IncrementalFlow(small_graph([2, 2, 2, 2]), width=7)
    tasks = crowd(flow, 12)
    assert flow.restart().reason is Reason.ASKED
    check(flow)

    flow.remove(tasks[::3])
    crowd(flow, 3, seed=1)

    assert flow.reoptimise().way is Way.STEPS
    check(flow)


def test_an_arc_without_a_capacity_that_gets_cheaper_is_a_reason() -> None:
    flow = IncrementalFlow(small_graph([1, 0, 0, 0]), width=7)
    flow.add(*as_arrays([([0, LATER], [1, 9])] * 3))
    flow.reoptimise()
    flow.change_arcs(np.array([2 * MACHINES + RACKS]), costs=np.array([-30]))

    assert flow.reoptimise().reason is Reason.UNCAPPED_ARC_CHEAPER
    check(flow)


def test_an_arc_with_room_for_far_more_than_all_tasks_that_gets_cheaper_is_a_reason() -> None:
    """Its units were listed one by one: more than memory holds."""
    columns = np.array([(0, 3, 1, 0), (1, 2, 1 << 35, 5), (2, 3, 1 << 35, 0)], dtype=np.int64).T
    flow = IncrementalFlow(HubGraph(4, 3, *columns), width=2)
    flow.add(np.array([[0, 1]] * 3), np.array([[1, 1]] * 3))
    flow.reoptimise()
    flow.change_arcs(np.array([1]), costs=np.array([-5]))

    assert flow.reoptimise().reason is Reason.UNCAPPED_ARC_CHEAPER
    check(flow)


def test_no_way_is_an_error_that_is_got_over() -> None:
    flow = IncrementalFlow(small_graph([1, 0, 0, 0]), width=7)
    tasks = flow.add(*as_arrays([([0], [1]), ([0, CLUSTER], [1, 2])]))
    with pytest.raises(InfeasibleError, match="never full"):
        flow.reoptimise()
    with pytest.raises(InfeasibleError, match="2 tasks"):
        flow.reoptimise()

    flow.remove(tasks[:1])

    assert flow.reoptimise().reason is Reason.AFTER_FAILURE
    check(flow)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda f: f.remove(np.array([5])), "no task has the number 5", id="unknown"),
        pytest.param(lambda f: f.remove(np.array([0, 0])), "twice", id="twice"),
        pytest.param(lambda f: f.remove(np.array([1 << 30])), "numbers end earlier", id="far"),
        pytest.param(lambda f: f.add(np.array([[99]]), np.array([[1]])), "hub 99", id="hub"),
        pytest.param(lambda f: f.add(np.array([[-1, 2]]), np.array([[1, 1]])), "no hub", id="gap"),
        pytest.param(lambda f: f.add(np.array([[1]]), np.array([[1 << 50]])), "beyond", id="cost"),
        pytest.param(lambda f: f.add(np.array([[1]]), np.array([[1, 2]])), "shape", id="shape"),
        pytest.param(lambda f: f.change_arcs(np.array([0]), capacities=np.array([-1])), "capacity -1", id="arc"),
        pytest.param(lambda f: f.change_arcs(np.array([0, 0]), costs=np.array([1, 1])), "twice", id="arc twice"),
        pytest.param(lambda f: f.change_arcs(np.array([99]), costs=np.array([1])), "arcs 99 to 99", id="no arc"),
        pytest.param(lambda f: f.change_arcs(np.array([-1]), costs=np.array([1])), "arcs -1 to -1", id="arc below 0"),
        pytest.param(
            lambda f: f.change_arcs(np.ones(15, dtype=bool), costs=np.array([1])), "by bool", id="arcs by mask"
        ),
        pytest.param(lambda f: f.reprice(np.array([0]), np.array([[1], [2]])), "shape", id="reprice"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    flow = IncrementalFlow(small_graph([1, 1, 1, 1]), width=7)
    flow.add(*as_arrays([([0, SINK], [1, 9])]))
    flow.reoptimise()

    with pytest.raises(ValueError, match=message):
        call(flow)  # type: ignore[operator]
    check(flow)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    nodes = draw(st.integers(2, 6))
    ends = st.integers(0, nodes - 1)
    arcs = draw(st.lists(st.tuples(ends, ends).filter(lambda e: e[0] != e[1]), min_size=1, max_size=14))
    tails, heads = np.array(arcs, dtype=np.int64).T
    return values(draw, Network(tails, heads, tails, heads, np.zeros(nodes, dtype=np.int64), 1.0))


def values(draw: st.DrawFn, network: Network) -> Network:
    """Other capacities, costs and supplies."""
    count, nodes = network.arc_count, len(network.supplies)
    capacities = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    costs = draw(st.lists(st.integers(-9, 30), min_size=count, max_size=count))
    supplies = np.zeros(nodes, dtype=np.int64)
    for tail, head, amount in draw(
        st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2, st.integers(0, 3)), max_size=2)
    ):
        supplies[tail] += amount
        supplies[head] -= amount
    return replace(network, capacities=np.array(capacities), unit_costs=np.array(costs), supplies=supplies)


others = st.composite(values)
"""Made once: Hypothesis reads the source of what it is made of each time."""


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_solver_repairs_any_network_to_the_optimum(data: st.DataObject) -> None:
    solver = IncrementalSolver()
    network = data.draw(networks())
    for _ in range(4):
        expected = OrtoolsSolver().solve(network)
        answer = solver.solve(network)
        assert (answer.status, answer.cost) == (expected.status, expected.cost)
        if answer.status is Status.OPTIMAL:
            assert answer.potentials is not None
            assert certify(network, answer.flow, -answer.potentials).proves
        network = data.draw(others(network))


def test_the_solver_says_why_it_starts_from_scratch() -> None:
    arcs = (np.array([0, 0, 1]), np.array([1, 2, 2]))
    network = Network(*arcs, np.array([3, 3, 3]), np.array([1, 5, 1]), np.array([2, 0, -2]), 1.0)
    solver = IncrementalSolver()

    assert solver.solve(network).report == "solved from scratch: first"
    assert solver.solve(replace(network, unit_costs=np.array([9, 5, 1]))).report == "repaired from the last flow"
    assert solver.solve(replace(network, heads=np.array([2, 1, 2]))).report == "solved from scratch: arcs-changed"
    more = replace(network, supplies=np.array([2, 0, -2, 0]))
    assert solver.solve(more).report == "solved from scratch: nodes-changed"
    assert solver.rebuilds == {Rebuild.FIRST: 1, Rebuild.ARCS_CHANGED: 1, Rebuild.NODES_CHANGED: 1}
    assert solver.repairs == 1


def test_named_nodes_are_recognised_in_other_places() -> None:
    names = ("task:a", "machine:m", "sink:")
    network = Network(
        np.array([0, 0, 1]),
        np.array([1, 2, 2]),
        np.array([1, 1, 4]),
        np.array([1, 5, 1]),
        np.array([1, 0, -1]),
        1.0,
        names,
    )
    other = Network(
        np.array([3, 1, 1, 3, 2]),
        np.array([2, 2, 0, 0, 0]),
        np.array([1, 1, 1, 1, 4]),
        np.array([2, 1, 5, 3, 1]),
        np.array([-2, 1, 0, 1]),
        1.0,
        ("sink:", "task:a", "machine:m", "task:b"),
    )
    solver = IncrementalSolver()
    solver.solve(network)

    answer = solver.solve(other)

    assert (answer.report, answer.cost) == ("repaired from the last flow", OrtoolsSolver().solve(other).cost)

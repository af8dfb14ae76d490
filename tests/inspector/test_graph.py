"""Opened networks: the prices prove the flow, and what is wrong is found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import bound_rounds, rounds
from flowsched.cluster.settings import Settings
from flowsched.inspector.graph import Graph, read_graph
from flowsched.inspector.record_view import RecordView
from flowsched.network.network import NetworkBuilder
from flowsched.records.record_file import record_json
from flowsched.round.scheduler import solve
from flowsched.solvers import make_solver


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Classes to machines with room, or to the unscheduled node, solved."""
    builder = NetworkBuilder()
    sink = builder.node("sink")
    machines = [builder.node(f"tier:m{m}/1000m") for m in range(draw(st.integers(1, 4)))]
    unscheduled = builder.node("unscheduled:all")
    cost = st.floats(0, 5, allow_nan=False)
    for m in machines:
        builder.arc(m, sink, draw(st.integers(0, 6)))
    for c in range(draw(st.integers(1, 4))):
        units = draw(st.integers(1, 3))
        count = draw(st.integers(0, 4))
        node = builder.node(f"class:c{c}", count * units)
        for m in machines:
            if draw(st.booleans()):
                price = draw(cost)
                terms = {"run_time": price / 4, "waiting": price * 3 / 4}
                builder.arc(node, m, draw(st.integers(0, 4)) * units, price, units, terms)
        waiting = draw(cost)
        builder.arc(node, unscheduled, count * units, waiting, units, {"waiting": waiting})
    builder.arc(unscheduled, sink, 1000)
    network = builder.build(sink)
    return read_graph(network.to_plain(make_solver("ortools").solve(network).flow))


@settings(max_examples=150)
@given(graphs())
def test_potentials_prove_the_flow_optimal(graph: Graph) -> None:
    assert list(graph.faults()) == []
    assert graph.potentials.dtype == graph.reduced_costs.dtype == np.int64
    # Strong duality, exact in solver units: supplies at their prices, minus what full arcs earn.
    dual = int(graph.potentials @ -graph.supplies) + int((graph.capacities * np.minimum(graph.reduced_costs, 0)).sum())
    assert dual == graph.optimum


@settings(max_examples=60)
@given(graphs(), st.data())
def test_what_is_wrong_with_a_flow_is_found(graph: Graph, data: st.DataObject) -> None:
    arc = data.draw(st.integers(0, graph.arc_count - 1))
    more = graph.flow.copy()
    more[arc] += 1
    assert list(replace(graph, flow=more).faults())
    dearer = {**graph.terms, "run_time": graph.terms.get("run_time", np.zeros(graph.arc_count)) + 2.0}
    assert any("add up" in fault for fault in replace(graph, terms=dearer).faults())


def test_a_flow_that_is_not_the_cheapest_is_found() -> None:
    builder = NetworkBuilder()
    sink = builder.node("sink")
    node = builder.node("class:c", 1)
    near, far = builder.node("tier:near/1000m"), builder.node("tier:far/1000m")
    for machine, price in ((near, 1.0), (far, 2.0)):
        builder.arc(node, machine, 1, price, terms={"run_time": price})
        builder.arc(machine, sink, 1)
    network = builder.build(sink)
    graph = read_graph(network.to_plain(np.array([0, 0, 1, 1])))
    assert list(graph.faults()) == ["the flow is not optimal: a residual cycle has negative cost"]
    with pytest.raises(ValueError, match="not optimal"):
        graph.reduced_costs  # noqa: B018


@settings(max_examples=25)
@given(rounds(), st.sampled_from(["completion", "makespan"]), st.sampled_from(["ortools", "networkx"]))
def test_every_round_can_be_read_along_its_flow(now: Any, objective: str, solver: str) -> None:
    record = solve(now, settings=Settings(objective=objective, exact_limit=0), solver=solver).record
    assert record is not None
    recorded = RecordView(record)
    (part,) = recorded.parts
    for graph in part.graphs.values():
        assert list(graph.faults()) == []
        assert sum(graph.arcs_by_kind().values()) == graph.arc_count
        for node in np.flatnonzero(graph.supplies > 0).tolist():
            path = graph.path(node)
            assert [int(graph.heads[k]) for k in path[:-1]] == [int(graph.tails[k]) for k in path[1:]]
            assert graph.kinds[int(graph.heads[path[-1]])] == "sink"
    decided = {p.task for p in part.placements} | {w.task for w in part.waiting}
    assert decided == set(part.tasks) == {t.name for t in now.pending}
    assert len(part.placements) + len(part.waiting) == len(now.pending)
    for task in part.tasks:
        assert recorded.find_task(task) == (part, task)
    assert {m for group in part.groups for m in group.members} == set(part.machines)


@settings(max_examples=40)
@given(bound_rounds(), st.sampled_from(["completion", "makespan"]), st.integers(1, 3))
def test_every_number_of_a_record_is_finite(now: Any, objective: str, slots: int) -> None:
    """Also where a task waits for the end of one that starts now: without that one, the waiting task could not come."""
    record = solve(now, settings=Settings(objective=objective, exact_limit=0, slots=slots)).record
    assert record is not None
    assert json.loads(record_json(record)).keys() == record.keys()
    for placed in RecordView(dict(record)).parts[0].placements:
        assert sum(placed.terms.values()) == pytest.approx(placed.cost)

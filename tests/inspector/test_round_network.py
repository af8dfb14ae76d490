"""The network of a round: what was decided is an optimal flow, at the stated distance, and its reduced costs are exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_snapshots import SNAPSHOTS, crowd, recorded, solved
from test_running_changes import crowded, rigid

from builders import SERIAL, bound_rounds, machine, machines, rounds, running, snapshot, snapshots, task
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Snapshot
from flowsched.inspector.graph import Graph
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.restored_round import restore
from flowsched.inspector.round_network import RoundNetwork, round_network
from flowsched.inspector.round_options import MACHINES, RoundOptions
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.relations.relation import Relation, RelationKind
from flowsched.solvers import make_solver

SOLVERS = ("ortools", "networkx", "highs")


def of(view: RecordView) -> tuple[Part, RoundNetwork]:
    (part,) = view.parts
    return part, round_network(view, part)


def cheaper(graph: Graph, arc: int, by: int) -> int:
    """The optimum when an arc costs less by some solver units."""
    costs = graph.unit_costs.copy()
    costs[arc] -= by
    found = make_solver("ortools").solve(replace(graph, unit_costs=costs)).cost
    assert found is not None
    return found


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_decision_is_the_optimum_of_any_solver(name: str) -> None:
    _, network = of(recorded(name))
    graph = network.graph
    assert list(graph.faults()) == []
    assert network.distance == 0 and not network.gaining and not network.left_out
    for solver in SOLVERS:
        assert make_solver(solver).solve(graph).cost == graph.cost_of(graph.flow)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_an_arc_that_is_cheaper_by_more_than_its_reduced_cost_changes_the_optimum(name: str) -> None:
    _, network = of(recorded(name))
    graph = network.graph
    idle = [k for k in range(graph.arc_count) if graph.kinds[graph.tails[k]] == "task" and not graph.flow[k]]
    for arc in np.random.default_rng(7).permutation(idle)[:12].tolist():
        reduced = int(graph.reduced_costs[arc])
        (own,) = (k for k in graph.leaving(int(graph.tails[arc])).tolist() if graph.flow[k])
        assert reduced == graph.unit_costs[arc] - graph.unit_costs[own]
        assert cheaper(graph, arc, reduced + 1) < graph.optimum
        assert cheaper(graph, arc, reduced) == graph.optimum


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_each_task_has_an_arc_to_every_machine_that_could_take_it(name: str) -> None:
    part, network = of(recorded(name))
    graph, opened = network.graph, restore(recorded(name), part)
    model = opened.model
    for t, own in enumerate(model.view.tasks):
        node = graph.node("task", own.name)
        assert node is not None
        here = opened.decided.options[t]
        own_machine = None if here is None else model.view.machines[here.machine].name
        found = {
            (m, int(graph.columns["slot"][k]))
            for k in graph.leaving(node).tolist()
            if graph.columns["slot"][k] >= 0
            for m in graph.machines_of(k, own_machine)
        }
        could = {
            (machine.name, option.start_after)
            for m, machine in enumerate(model.view.machines)
            for price, option in model.offers(opened.decided, t, m)
            if price < FORBIDDEN
        }
        assert found == could and could
        assert {graph.kinds[graph.heads[k]] for k in graph.leaving(node)} >= {"later", "unscheduled"}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_flow_is_what_was_decided_at_what_it_costs(name: str) -> None:
    part, network = of(recorded(name))
    graph = network.graph
    for placed in part.placements:
        node = graph.node("task", placed.task)
        (arc,) = (k for k in graph.leaving(node or 0).tolist() if graph.flow[k])
        assert graph.kinds[graph.heads[arc]] == "cores" and placed.machine in graph.machines_of(arc, placed.machine)
        assert graph.columns["width_milli"][arc] == placed.width_milli
        assert graph.terms_of(arc) == {name: value for name, value in placed.terms.items() if value}
    for waits in part.waiting:
        node = graph.node("task", waits.task)
        (arc,) = (k for k in graph.leaving(node or 0).tolist() if graph.flow[k])
        assert graph.kinds[graph.heads[arc]] == ("unscheduled" if waits.planned is None else "later")
        assert graph.cost(arc) == pytest.approx(waits.cost)
    runs = {r["task"]["name"]: r["machine"] for r in part.forecast["snapshot"]["running"]}
    for name, where in runs.items():
        node = graph.node("running", name)
        (arc,) = graph.leaving(node or 0).tolist()
        assert graph.heads[arc] == graph.node("machine", where)


@st.composite
def any_rounds(draw: st.DrawFn) -> Snapshot:
    """Rounds with relations and equal tasks and machines among them; one machine may be reserved."""
    now = draw(rounds(max_machines=3, max_pending=3) | bound_rounds(max_machines=3, max_pending=3))
    twins = [replace(t, name=f"{t.name}-{i}") for t in now.pending for i in range(draw(st.integers(1, 2)))]
    now = replace(now, pending=tuple(twins))
    if twins and draw(st.booleans()):
        first = twins[0]
        now = replace(
            now, reservations=(Reservation(first.name, now.machines[0].name, first.widths_milli[0], now.now_s),)
        )
    return now


@settings(max_examples=25)
@given(any_rounds(), st.sampled_from(["completion", "makespan"]), st.sampled_from([0, 400]))
def test_the_distance_is_what_single_moves_gain(now: Snapshot, objective: str, forecasts: int) -> None:
    """With an improvement and without one, of any round."""
    view = solved(now, Settings(objective=objective, exact_limit=0, improvement_forecasts=forecasts))
    part, network = of(view)
    graph = network.graph
    assert list(graph.faults()) == []
    assert make_solver("networkx").solve(graph).cost == graph.optimum
    assert (network.distance > 0.0) == bool(network.gaining)
    assert network.distance >= 0.0
    assert ("distance 0:" in network.sentences()[0]) == (not network.gaining)
    model, plan = restore(view, part).model, restore(view, part).decided
    one_level = len({own.priority for own in model.view.tasks}) == 1  # of several, lower ones leave some machines alone
    for t, own in enumerate(model.view.tasks if one_level else ()):
        if own.name in network.gaining or not np.isfinite(model.leaving(plan, t)):
            continue
        offers = (price for m in range(len(model.view.machines)) for price, _ in model.offers(plan, t, m))
        assert model.related(t) or min(offers, default=FORBIDDEN) >= model.leaving(plan, t) - 2e-9


def test_what_an_unfinished_improvement_leaves_is_stated() -> None:
    view = solved(
        crowd(8, 16, 5, 3), Settings(objective="completion", exact_limit=0, improvement_forecasts=0, pricings=200)
    )
    _, network = of(view)
    assert network.gaining and network.cut_short
    first, why, tried, second = network.sentences()
    assert network.untried and tried.startswith(f"forecasts left out: {network.untried:,} moves and swaps")
    assert first.startswith(f"distance {network.distance:.6g}: the decision costs")
    assert why.startswith("the improvement ended before it had tried all moves")
    assert second == f"forecasts left out: the round's budget ended {network.cut_short} pricings of a class"
    assert network.distance == pytest.approx(
        network.graph.in_cost(network.graph.cost_of(network.graph.flow) - network.graph.optimum)
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_distance_is_0_wherever_the_improvement_ended_by_itself(seed: int) -> None:
    machines = (3, 5, 8)[seed % 3]
    now = crowd(machines, machines + 4, machines // 2, 100 + seed)
    budget = 400 if seed % 2 else 10**6
    _, network = of(solved(now, Settings(objective="completion", exact_limit=0, improvement_forecasts=budget)))
    assert seed % 2 or not network.untried
    assert network.untried or network.distance == 0


def test_the_room_of_a_machine_is_in_the_network() -> None:
    """Five tasks of two widths on one machine of four cores: no more flow enters than fits."""
    pending = [task(f"t{k}", SERIAL, widths_milli=(1000 + 1000 * (k % 2),), memory_mib=10) for k in range(5)]
    _, network = of(solved(snapshot(pending, machines(1)), Settings(objective="completion", exact_limit=0)))
    graph = network.graph
    rooms = {
        graph.names[i]: int(graph.capacities[graph.leaving(i)].sum())
        for i in range(graph.node_count)
        if graph.kinds[i] == "cores"
    }
    assert rooms == {"m1/1000m": 4, "m1/2000m": 2}


def test_machines_beyond_sixty_share_nodes_and_what_is_left_out_is_counted() -> None:
    view = solved(crowd(130, 10, 130, 6), Settings(objective="completion", exact_limit=0, candidates=0))
    part, network = of(view)
    graph = network.graph
    assert list(graph.faults()) == []
    assert len(RoundOptions(part, restore(view, part)).places) > MACHINES
    tasks = [i for i in range(graph.node_count) if graph.kinds[i] == "task"]
    reached = {
        i: {graph.members_of(int(h)) for h in graph.heads[graph.leaving(i)] if graph.kinds[h] in ("cores", "later")}
        for i in tasks
    }
    assert max(map(len, reached.values())) <= MACHINES + 1
    assert network.left_out > 0
    assert any(sentence.startswith(f"arcs left out: {network.left_out:,}") for sentence in network.sentences())


def test_equal_tasks_and_machines_share_nodes_in_a_large_cluster() -> None:
    sizes = []
    for many in (70, 140):
        pending = [task(f"t{i:03}", SERIAL, widths_milli=(1000,), memory_mib=100) for i in range(2 * many)]
        _, network = of(solved(snapshot(pending, machines(many)), Settings(candidates=0)))
        graph = network.graph
        assert list(graph.faults()) == []
        assert sum(len(graph.members_of(i)) for i in range(graph.node_count) if graph.kinds[i] == "machine") == many
        assert sum(len(graph.members_of(i)) for i in range(graph.node_count) if graph.kinds[i] == "task") == 2 * many
        sizes.append(graph.arc_count)
    assert sizes[1] <= 2 * sizes[0] < 400


def test_machines_that_the_round_did_not_need_have_arcs_too() -> None:
    pending = [task(f"t{i}", SERIAL, widths_milli=(2000, 4000), memory_mib=100) for i in range(3)]
    _, network = of(solved(snapshot(pending, machines(50)), Settings(objective="completion")))
    graph = network.graph
    assert network.distance == 0 and list(graph.faults()) == []
    for i in range(graph.node_count):
        if graph.kinds[i] == "task":
            heads = graph.heads[graph.leaving(i)].tolist()
            assert len({graph.members_of(h)[0] for h in heads if graph.kinds[h] in ("cores", "later")}) == 50


def test_tasks_that_are_kept_apart_have_arcs_only_where_relations_let_them() -> None:
    apart = Relation("apart", RelationKind.APART, key="rack")
    pending = [
        task(f"t{i}", SERIAL, widths_milli=(1000,), memory_mib=100, holds=("apart",), joins=("apart",))
        for i in range(2)
    ]
    where = [machine(f"m{i}", labels=(("rack", "a" if i < 2 else "b"),)) for i in range(4)]
    part, network = of(solved(snapshot(pending, where, relations=(apart,)), Settings(objective="completion", slots=1)))
    graph = network.graph
    at = {p.task: p.machine for p in part.placements}
    assert len(at) == 2
    for i in range(graph.node_count):
        if graph.kinds[i] != "task":
            continue
        (own,) = graph.members_of(i)
        (other,) = (m for name, m in at.items() if name != own)
        rack = {"m0", "m1"} if other in ("m0", "m1") else {"m2", "m3"}
        heads = graph.heads[graph.leaving(i)].tolist()
        assert {graph.members_of(h)[0] for h in heads if graph.kinds[h] == "cores"} == {"m0", "m1", "m2", "m3"} - rack


CHANGES = Settings(preemption="lower-priority", migration_moves=2, exact_limit=0, pricings=2000)


def flows_to(graph: Graph, kind: str, name: str) -> set[str]:
    """Labels of the nodes to which flow of a task leads at once."""
    node = graph.node(kind, name)
    assert node is not None
    return {graph.label(int(graph.heads[k])) for k in graph.leaving(node).tolist() if graph.flow[k]}


@settings(max_examples=25)
@given(found=snapshots(max_pending=6, max_running=6), levels=st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_what_was_preempted_moved_and_let_in_flows_where_it_went(found: Snapshot, levels: list[int]) -> None:
    raised = tuple(replace(t, priority=p) for t, p in zip(found.pending, levels, strict=False))
    check_flow(solved(replace(found, pending=raised), CHANGES))


def test_a_round_that_preempts_moves_and_lets_in_is_one_network() -> None:
    part = check_flow(solved(crowded(), CHANGES))
    assert part.forecast["moves"] and part.forecast["preemptions"]
    pending = [rigid("wide", 4, priority=3), rigid("narrow", 2, priority=1)]
    there = [running(rigid("low", 2), "m1", (0, 1, 2, 3))]
    part = check_flow(solved(snapshot(pending, running=there), replace(CHANGES, slots=1, migration_moves=0)))
    assert part.forecast["taken_back"]


def check_flow(view: RecordView) -> Part:
    """The flow against what the record says of each task."""
    part, network = of(view)
    graph = network.graph
    assert list(graph.faults()) == []
    for placed in part.placements:
        (head,) = flows_to(graph, "task", placed.task)
        assert head == f"cores:{placed.machine}/{placed.width_milli}m"
    for waits in part.waiting:
        (head,) = flows_to(graph, "task", waits.task)
        planned = waits.planned
        assert head == ("unscheduled" if planned is None else f"later:{planned['machine']}/{planned['slot']}")
    moved = {change["task"]: change["machine"] for change in part.forecast.get("moves", ())}
    gone = {change["task"] for change in part.forecast["preemptions"]}
    for runs in part.forecast["snapshot"]["running"]:
        name = runs["task"]["name"]
        expected = "unscheduled" if name in gone else f"machine:{moved.get(name, runs['machine'])}"
        assert flows_to(graph, "running", name) == {expected}
    return part

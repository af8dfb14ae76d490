"""The last network of a record: moves of equal tasks to equal machines share arcs, and all are there at their prices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_parts import deciding_on

from builders import SERIAL, bound_rounds, flow_scheduler, machine, machines, rounds, running, snapshot, task
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Snapshot
from flowsched.errors import ShapeError
from flowsched.inspector.explanation import explain
from flowsched.inspector.graph import Graph, read_graph
from flowsched.inspector.record_view import RecordView
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.records.record_shape import check_shape
from flowsched.relations.relation import Relation, RelationKind
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.hold import Hold
from flowsched.round.move_network import LEFT, MoveNetwork
from flowsched.round.passes import run_passes
from flowsched.round.round_model import RoundModel


@st.composite
def rounds_of_equals(draw: st.DrawFn) -> Snapshot:
    """Rounds in which some machines and tasks are equal, but for their names; one machine may be reserved."""
    now = draw(rounds(max_machines=2, max_pending=2) | bound_rounds(max_machines=2, max_pending=2))
    more = draw(st.integers(1, 2))
    spare = [replace(m, name=f"{m.name}-{i}") for m in now.machines for i in range(more)]
    twins = [replace(t, name=f"{t.name}-{i}") for t in now.pending for i in range(more)]
    now = replace(now, machines=(*now.machines, *spare), pending=(*now.pending, *twins))
    if now.pending and draw(st.booleans()):
        first = now.pending[0]
        now = replace(now, reservations=(Reservation(first.name, spare[0].name, first.widths_milli[0], now.now_s),))
    return now


def recorded(moves: MoveNetwork) -> Graph:
    return read_graph(moves.to_plain(moves.resting_flow()))  # type: ignore[arg-type]


@settings(max_examples=40)
@given(rounds_of_equals())
def test_the_arcs_of_a_task_are_the_offers_of_every_machine_looked_at_one_by_one(now: Snapshot) -> None:
    round_ = deciding_on(now, Settings(slots=2))
    run_passes(round_, range(len(now.pending)), 0.5)
    model, plan = round_.model, round_.plan
    check_offers(model, plan)


@pytest.mark.parametrize("held", [False, True])
def test_a_reserved_machine_and_domains_of_relations_keep_their_own_offers(held: bool) -> None:
    apart = Relation("apart", RelationKind.APART, key="rack")
    bound = {} if held else {"holds": ("apart",), "joins": ("apart",)}
    pending = [task(f"t{i}", SERIAL, widths_milli=(1000,), memory_mib=100, **bound) for i in range(3)]
    where = [machine(f"m{i}", labels=(("rack", "a" if i < 2 else "b"),)) for i in range(4)]
    model = deciding_on(snapshot(pending, where, relations=(apart,)), Settings(slots=2)).model
    if held:
        model = replace(model, holds={2: Hold(1000, 100, FORBIDDEN)})
    offered = check_offers(model, Assignment([PlacementOption(0, 0, 1000), None, None], model.view.class_of, 4))
    assert offered[2] == 0 < offered[1] if held else offered[1] < offered[2]


def check_offers(model: RoundModel, plan: Assignment) -> list[int]:
    """The arcs of every task against its offers; how many offers each machine has."""
    moves = MoveNetwork(model, plan)
    graph, names = recorded(moves), [m.name for m in model.view.machines]
    offered = dict.fromkeys(names, 0)
    assert graph.supplies[graph.supplies > 0].sum() == len(plan.options)
    for t, here in enumerate(plan.options):
        node = graph.node("task", model.view.tasks[t].name)
        assert node is not None
        own = None if here is None else names[here.machine]
        found = [
            (machine, int(graph.columns["slot"][arc]), int(graph.columns["width_milli"][arc]), graph.cost(arc))
            for arc in graph.leaving(node).tolist()
            if graph.kinds[graph.heads[arc]] == "arrive"
            for machine in graph.machines_of(arc, own)
        ]
        leaving = model.leaving(plan, t)
        expected = [
            (names[m], option.start_after, option.width_milli, price - leaving)
            for m in range(len(names))
            for price, option in model.offers(plan, t, m)
            if np.isfinite(leaving) and option != here and price != FORBIDDEN
        ]
        for name, *_ in expected:
            offered[name] += 1
        assert [f[:3] for f in sorted(found)] == [e[:3] for e in sorted(expected)]
        assert [f[3] for f in sorted(found)] == pytest.approx([e[3] for e in sorted(expected)])
    return list(offered.values())


def test_its_size_does_not_grow_with_equal_tasks_and_machines() -> None:
    sizes = []
    for many in (20, 80):
        pending = [task(f"t{i:03}", SERIAL, widths_milli=(1000,), memory_mib=100) for i in range(10 * many)]
        record = flow_scheduler().decide(snapshot(pending, machines(many))).record
        assert record is not None
        last = read_graph(record["parts"][0]["last_network"])
        assert last.supplies.max() > 1
        assert sum(len(last.members_of(i)) for i in range(last.node_count) if last.kinds[i] == "arrive") == many
        sizes.append(last.arc_count)
    assert sizes[1] <= sizes[0] < 100


def test_every_equal_task_is_explained_with_its_own_machine_left_out() -> None:
    pending = [task(f"t{i}", SERIAL, widths_milli=(1000,), memory_mib=100) for i in range(6)]
    record = flow_scheduler().decide(snapshot(pending, machines(3))).record
    assert record is not None
    view = RecordView(record)  # type: ignore[arg-type]
    (part,) = view.parts
    assert part.last is not None and part.last.members
    for placed in part.placements:
        plain = explain(view, placed.task).facts
        (node,) = [n for n in [part.last.node("task", placed.task)] if n is not None]
        assert placed.task in part.last.members_of(node)
        told = {a["machine"] for a in [plain["runner_up"], *plain["alternatives"]] if a is not None}
        assert told and placed.machine not in told


def test_members_stand_for_nodes_that_are_there_and_have_the_one_that_names_them() -> None:
    pending = [task(f"t{i}", SERIAL, widths_milli=(1000,), memory_mib=100) for i in range(4)]
    there = [running(task("r", SERIAL), "m1")]
    record = flow_scheduler().decide(snapshot(pending, machines(3), running=there)).record
    assert record is not None
    check_shape(record)
    last = record["parts"][0]["last_network"]
    label, names = next(iter(last["members"].items()))
    assert LEFT in last["terms"]
    for members, message in (
        ({"arrive:gone": ["gone"]}, "members has 'arrive:gone', and no node is called so"),
        ({label: names[1:]}, f"members.{label} lacks the member that the node is called by"),
    ):
        last["members"] = members
        with pytest.raises(ShapeError, match=message):
            check_shape(record)

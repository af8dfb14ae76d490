"""Replay: what a round decided follows from its record, whatever made it and however it was written; lies are found."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_records import bulk_record, chained_record, reread, search_record

from builders import bound_rounds, machines, rounds, running, service, snapshot, task
from engine.bulk_world import Kind, World, worlds
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.snapshot_dump import dump_snapshot, read_plain_snapshot, used_profiles
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import differences, replay
from flowsched.records.record_file import record_json
from flowsched_models.document import InputError

CHOSEN = st.sampled_from(
    [
        Settings(),
        Settings(objective="makespan"),
        Settings(slots=1, exact_limit=0),
        Settings(due_age_s=20.0, exact_limit=0),
        Settings(pass_share=0.3, improved_tasks=0, slots=2),
    ]
)


def busy() -> Snapshot:
    """Three tasks for two machines, one of which is taken."""
    return snapshot(
        [task("a"), task("b", cores=1), task("c", cores=4)],
        machines(2),
        services=[service()],
        running=[running(task("r"), "m2")],
    )


def altered(recorded: RecordView, change: Any) -> RecordView:
    """A record that was edited."""
    plain = copy.deepcopy(json.loads(record_json(recorded.plain)))
    change(plain)
    return RecordView(plain, "edited.json")


@settings(max_examples=25)
@given(bound_rounds(), CHOSEN, st.booleans())
def test_searches_with_relations_and_groups_come_out_the_same(
    cluster: Snapshot, chosen: Settings, packed: bool
) -> None:
    recorded = reread(search_record(cluster, chosen).plain, packed)
    outcome = replay(recorded)
    assert outcome.same, outcome.lines()
    assert outcome.notes == ()


@settings(max_examples=25)
@given(rounds(), CHOSEN)
def test_searches_come_out_the_same(cluster: Snapshot, chosen: Settings) -> None:
    outcome = replay(search_record(cluster, chosen))
    assert outcome.same, outcome.lines()


@settings(max_examples=60)
@given(worlds(), st.booleans())
def test_bulk_rounds_with_relations_and_groups_come_out_the_same(world: World, packed: bool) -> None:
    outcome = replay(reread(bulk_record(world).plain, packed))
    assert outcome.same, outcome.lines()


@settings(max_examples=40)
@given(worlds())
def test_rounds_that_go_by_priority_come_out_the_same(world: World) -> None:
    recorded = chained_record(world)
    if not recorded.parts:
        return
    outcome = replay(recorded)
    assert outcome.same, outcome.lines()
    assert len(outcome.parts) == len(recorded.parts)


@settings(max_examples=50)
@given(bound_rounds())
def test_a_snapshot_is_read_back_as_it_was(cluster: Snapshot) -> None:
    again = read_plain_snapshot(json.loads(json.dumps(dump_snapshot(cluster))))
    assert again == replace(cluster.in_order(), catalogue=used_profiles(cluster))


def test_a_machine_without_a_core_left_is_no_mistake_in_a_record() -> None:
    cluster = snapshot([task("a")], [*machines(1), replace(machines(2)[1], cpu_milli=0, memory_mib=0)])
    outcome = replay(search_record(cluster))
    assert outcome.same, outcome.lines()


def test_the_outcome_counts_what_is_the_same() -> None:
    recorded = search_record(busy())
    (part,) = replay(recorded).parts
    assert (part.placed, part.waiting) == (len(recorded.parts[0].placements), len(recorded.parts[0].waiting))
    assert part.optimum == recorded.parts[0].first.optimum
    assert replay(recorded).lines()[-1] == "same"
    assert replay(recorded).plain()["same"] is True


def test_a_placement_on_another_machine_is_found() -> None:
    def move(record: Any) -> None:
        machine = record["parts"][0]["placements"]["machine"]
        machine[0] = 1 - machine[0]

    outcome = replay(altered(search_record(busy()), move))
    assert not outcome.same
    (only,) = outcome.parts[0].mismatches
    assert only.where == "placements.machine[0]"
    assert {json.loads(only.recorded), json.loads(only.now)} == {0, 1}
    assert any("placements.machine[0]: recorded" in line for line in outcome.lines())


def test_a_cost_that_differs_in_the_last_bit_is_found() -> None:
    def nudge(record: Any) -> None:
        cost = record["parts"][0]["placements"]["cost"]
        cost[0] = float.fromhex(float(cost[0]).hex()) * (1 + 2**-52)

    assert [m.where for m in replay(altered(search_record(busy()), nudge)).parts[0].mismatches] == [
        "placements.cost[0]"
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("certificate", None),
        ("plan", []),
        ("waiting", {"task": [], "reason": [], "reasons": [], "cost": [], "terms": {}}),
        ("reservations", [{"task": "a"}]),
        ("passes", []),
        ("decided_by", []),
    ],
)
def test_whatever_was_decided_is_compared(key: str, value: Any) -> None:
    recorded = search_record(busy())
    edited = altered(recorded, lambda record: record["parts"][0].update({key: value}))
    wrong = replay(edited).parts[0]
    assert not wrong.same
    assert all(m.where.startswith(key) for m in wrong.mismatches)


def test_another_optimum_of_the_first_network_is_told_as_such() -> None:
    def cheaper(record: Any) -> None:
        network = record["parts"][0]["first_network"]
        arc = next(k for k, flow in enumerate(network["flow"]) if flow and network["unit_costs"][k])
        network["unit_costs"][arc] -= 1

    found = [m.where for m in replay(altered(search_record(busy()), cheaper)).parts[0].mismatches]
    assert found[0] == "first_network.optimum"
    assert found[1].startswith("first_network.unit_costs[")


def world() -> World:
    return World((), (), (), (Kind("k", 2, {"cpu": 1}),))


def test_a_bulk_placement_and_a_cause_that_were_changed_are_found() -> None:
    recorded = bulk_record(world())

    def lie(record: Any) -> None:
        record["parts"][0]["waiting"]["reasons"][0]["cause"] = "relation"

    assert [m.where for m in replay(altered(recorded, lie)).parts[0].mismatches] == ["waiting.reasons[0].cause"]


def test_a_snapshot_that_was_changed_gives_other_decisions() -> None:
    def grow(record: Any) -> None:
        record["parts"][0]["snapshot"]["pending"][0]["scale"] = 7.0

    outcome = replay(altered(search_record(busy()), grow))
    assert not outcome.same
    assert outcome.parts[0].differing >= len(outcome.parts[0].mismatches) > 1


def test_another_version_is_blamed_only_where_something_differs() -> None:
    def older(record: Any) -> None:
        record["writer"] = "flowsched 0.0.1"

    same = replay(altered(search_record(busy()), older))
    assert same.same
    assert same.notes == ()

    def older_and_wrong(record: Any) -> None:
        older(record)
        record["parts"][0]["goal_s"] = 1.0

    (note,) = replay(altered(search_record(busy()), older_and_wrong)).notes
    assert "written by flowsched 0.0.1" in note


def test_what_has_to_be_assumed_is_said() -> None:
    def strange(record: Any) -> None:
        record["settings"]["from_the_future"] = 1
        del record["settings"]["slots"]

    outcome = replay(altered(search_record(busy()), strange))
    assert outcome.same
    assert [note.split(":")[0] for note in outcome.notes] == [
        "settings that this flowsched does not have are left out",
        "settings that the record does not have are at their defaults",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(policy="fcfs"), "decided by fcfs"),
        (lambda r: r.update(solver="ortool"), "did you mean 'ortools'"),
        (lambda r: r.update(parts=[]), "has no parts"),
        (lambda r: r["parts"][0]["snapshot"]["machines"][0].pop("type"), "cannot be read: it names 'type'"),
        (lambda r: r["parts"][0]["snapshot"]["pending"][0].update(request="much"), "cannot be read: "),
        (lambda r: r["parts"][0]["snapshot"]["running"][0].update(machine="nowhere"), "cannot be solved again: "),
        (lambda r: r["settings"].update(slots="three"), "settings.slots: is damaged: it must be a whole number"),
    ],
)
def test_a_record_that_cannot_be_solved_again_says_why(change: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        replay(altered(search_record(busy()), change))
    (problem,) = caught.value.problems
    assert message in str(problem)
    assert str(problem).startswith("edited.json")
    assert "\n" not in str(problem)


def test_differences_are_leaves_in_order() -> None:
    a = {"x": [1, 2.0, {"y": "z"}], "only": 1}
    b = {"x": [1, 2, {"y": "w"}, None]}
    assert [(m.where, m.recorded, m.now) for m in differences(a, b)] == [
        ("x[1]", "2.0", "2"),
        ("x[2].y", '"z"', '"w"'),
        ("x[3]", "nothing", "null"),
        ("only", "1", "nothing"),
    ]

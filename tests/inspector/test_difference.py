"""What differs between two records: who moved, who waits, what it costs, matched by name or title."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from round_records import bulk_record, search_record

from builders import bound_rounds, machines, rounds, running, service, snapshot, task
from engine.bulk_world import Box, Kind, World, worlds
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.inspector.change import parse_changes
from flowsched.inspector.difference import TWICE, difference
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.whatif import what_if


@settings(max_examples=25)
@given(rounds(), bound_rounds())
def test_every_task_of_either_record_is_told_once_or_unchanged(first: Snapshot, second: Snapshot) -> None:
    a, b = (search_record(s, Settings(exact_limit=0)) for s in (first, second))
    told = difference(a, b)
    changed = [change.task for changes in told.changes.values() for change in changes]
    assert len(changed) == len(set(changed))
    tasks = [{t.name for t in s.pending} | {r.task.name for r in s.running} for s in (first, second)]
    assert {c.task for c in told.changes["came"]} == tasks[1] - tasks[0]
    assert {c.task for c in told.changes["gone"]} == tasks[0] - tasks[1]
    assert told.lines()
    json.dumps(told.plain(), allow_nan=False)


@settings(max_examples=25)
@given(bound_rounds())
def test_terms_and_the_rest_add_up_to_what_the_search_cost(cluster: Snapshot) -> None:
    recorded = search_record(cluster, Settings(exact_limit=0))
    costs = difference(recorded, recorded).before
    assert sum(costs.terms.values()) == pytest.approx(costs.total, abs=1e-9)
    certificate = recorded.parts[0].certificate
    if certificate is not None:
        assert costs.total == certificate["primal"]


@settings(max_examples=60)
@given(worlds())
def test_terms_add_up_without_a_rest_in_a_bulk_round(world: World) -> None:
    recorded = bulk_record(world)
    costs = difference(recorded, recorded).before
    assert costs.terms[TWICE] == pytest.approx(0.0, abs=1e-6)
    certificate = recorded.parts[0].certificate
    if certificate is not None:
        assert costs.total == pytest.approx(certificate["primal"], abs=1e-9)


def test_predicted_latency_is_that_of_the_plan() -> None:
    cluster = snapshot([task("a")], machines(2), services=[service()])
    recorded = search_record(cluster)
    alone = difference(recorded, what_if(recorded, parse_changes(recorded, drain=["m2"])))
    (change,) = alone.services
    assert change.what == "cache-1"
    assert change.before is not None
    assert change.after is not None
    assert change.after.peak_p95_us > change.before.peak_p95_us
    assert change.after.goal_us == 1000.0
    assert any(line.lstrip().startswith("cache-1: p95") for line in alone.lines())


def test_other_cores_on_the_same_machine_are_a_change() -> None:
    light = task("light", widths_milli=(100,), request_milli=100)
    cluster = snapshot([light], services=[service()], share_service_cores=True)
    recorded = search_record(cluster)
    told = difference(recorded, what_if(recorded, parse_changes(recorded, settings=["share_service_cores=False"])))
    (change,) = told.changes["moved"]
    assert change.before is not None
    assert change.after is not None
    assert (change.before.cores, change.after.cores) == ((0, 1, 2, 3), (1, 2, 3))
    assert any("m1, 0.1 cores on cores 0-3 -> m1, 0.1 cores on cores 1-3" in line for line in told.lines())
    assert json.loads(json.dumps(told.plain()))["moved"][0]["after"]["cores"] == [1, 2, 3]


def test_who_waits_now_is_told_with_the_reason() -> None:
    cluster = snapshot([task("a", cores=4, widths_milli=(4000,))], machines(2), running=[running(task("r"), "m1")])
    recorded = search_record(cluster)
    told = difference(recorded, what_if(recorded, parse_changes(recorded, drain=["m2"])))
    (change,) = told.changes["unplaced"]
    assert (change.before.machine, change.after.machine) == ("m2", None)
    assert change.after.reason
    assert any(change.after.reason in line and "it was on m2" in line for line in told.lines())


def test_tasks_with_titles_are_matched_by_them() -> None:
    """A pod that was made anew has another uid and the same name."""
    first = search_record(snapshot([task("uid-1")], machines(2)))
    second = search_record(snapshot([task("uid-2")], machines(2)))
    named = [RecordView({**a.plain, "titles": {uid: "ns/web"}}) for a, uid in ((first, "uid-1"), (second, "uid-2"))]
    assert difference(*named).same
    assert {c.task for c in difference(first, second).changes["came"]} == {"uid-2"}


def test_two_tasks_with_one_title_are_kept_apart() -> None:
    recorded = search_record(snapshot([task("u1"), task("u2")], machines(2)))
    twice = RecordView({**recorded.plain, "titles": {"u1": "ns/web", "u2": "ns/web"}})
    assert difference(twice, twice).same


def test_waiting_in_a_bulk_round_costs_what_the_network_said() -> None:
    kind = Kind("k", 2, {"cpu": 5}, waiting_cost=0.75)
    recorded = bulk_record(World((Box("a", {"cpu": 8}, {}),), kinds=(kind,)))
    fewer = what_if(recorded, parse_changes(recorded, without=["k-0"]))
    told = difference(recorded, fewer)
    assert told.before.terms["waiting"] == 0.75
    assert told.after.terms.get("waiting", 0.0) == 0.0
    assert [c.task for c in told.changes["placed"]] == ["k-1"]
    assert [c.task for c in told.changes["gone"]] == ["k-0"]


def test_rounds_one_after_the_other_are_compared_by_where_tasks_are() -> None:
    """Who was placed and runs now has not moved."""
    first = search_record(snapshot([task("a"), task("b")], machines(2)))
    placed = {p.task: p for p in first.parts[0].placements}
    a = placed["a"]
    later = snapshot(
        [task("c")],
        machines(2),
        running=[running(task("a"), a.machine, a.cores, width_milli=a.width_milli, threads=a.threads)],
        now_s=20.0,
        round=1,
    )
    told = difference(first, search_record(later))
    assert [c.task for c in told.changes["gone"]] == ["b"]
    assert [c.task for c in told.changes["came"]] == ["c"]
    assert told.changes["moved"] == ()
    assert {c.what for c in told.conditions} == {"round", "now_s"}


def test_long_lists_are_cut_short_and_counted() -> None:
    tasks = [task(f"t{i}", widths_milli=(1000,)) for i in range(3)]
    recorded = search_record(snapshot(tasks, machines(3)))
    told = difference(recorded, what_if(recorded, parse_changes(recorded, without=[t.name for t in tasks])))
    assert "  and 2 more" in told.lines(most=1)
    assert len([line for line in told.lines(most=None) if ": it was on" in line]) == 3


def test_a_damaged_plan_gets_no_latency_rather_than_a_fault() -> None:
    cluster = snapshot([task("a", cores=4)], machines(1), services=[service()])
    recorded = search_record(cluster)
    plan = [{**p, "machine": "m1", "slot": 0, "width_milli": 4000} for p in recorded.parts[0].plain["plan"]]
    broken = RecordView({**recorded.plain, "parts": [{**recorded.parts[0].plain, "plan": plan}]})
    told = difference(recorded, broken)
    (change,) = told.services
    assert change.after is not None
    assert change.after.peak_p95_us is None
    assert any("no answer" in line for line in told.lines())


def test_machines_that_only_one_has_are_named() -> None:
    recorded = search_record(snapshot([task("a")], machines(2)))
    other = search_record(snapshot([task("a")], (machines(2)[0], replace(machines(1)[0], name="new"))))
    told = difference(recorded, other)
    assert [(c.what, c.before, c.after) for c in told.machines] == [("m2", "m2", None), ("new", None, "new")]
    assert told.lines()[:2] == ["machines that are gone: m2", "machines that are new: new"]


def test_tasks_of_a_class_that_trade_places_are_counted_and_not_told() -> None:
    recorded = search_record(snapshot([task("a"), task("b")], machines(2)))
    part = recorded.parts[0].plain
    placements = part["placements"]
    assert sorted(placements["machine"]) == [0, 1]
    swapped = {**placements, "machine": list(placements["machine"])[::-1]}
    told = difference(recorded, RecordView({**recorded.plain, "parts": [{**part, "placements": swapped}]}))
    assert told.traded == 2
    assert told.changes["moved"] == ()
    assert not told.same
    assert any(line.startswith("only trading places with tasks of their class: 2 tasks;") for line in told.lines())


@settings(max_examples=60)
@given(worlds(), st.data())
def test_what_is_told_of_a_class_is_how_many_left_and_came(world: World, data: st.DataObject) -> None:
    """By class and machine, placements before and moves told give placements after."""
    assume(world.boxes and world.kinds)
    recorded = bulk_record(world)
    again = what_if(recorded, parse_changes(recorded, drain=[data.draw(st.sampled_from(world.boxes)).name]))
    told = difference(recorded, again)
    class_of = recorded.parts[0].class_of
    before = Counter((class_of[p.task], p.machine) for p in recorded.parts[0].placements)
    after = Counter((class_of[p.task], p.machine) for p in again.parts[0].placements)
    for c in (*told.changes["moved"], *told.changes["placed"], *told.changes["unplaced"]):
        before[class_of[c.task], c.before.machine] -= 1
        before[class_of[c.task], c.after.machine] += 1
    assert {k: n for k, n in before.items() if n and k[1]} == {k: n for k, n in after.items() if n}
    moves = sum((Counter((class_of[p.task], p.machine) for p in recorded.parts[0].placements) - after).values())
    assert len(told.changes["moved"]) + len(told.changes["unplaced"]) == moves

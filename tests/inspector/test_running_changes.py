"""What records and explanations say about tasks that were preempted, moved, or let in, in rounds of flow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import HUNGRY, SCALING, machine, running, snapshot, snapshots, task
from flowsched.cli import flowsched
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.cluster.snapshot_dump import dump_snapshot
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.inspector.summary import render_summary
from flowsched.records.record_file import read_record, record_json, write_record
from flowsched.round.scheduler import solve
from flowsched_models.document import InputError

ON = Settings(preemption="lower-priority", migration_moves=2, exact_limit=0, pricings=2000)


def rigid(name: str, cores: float = 2, **changes: object) -> Task:
    return task(name, cores=cores, widths_milli=(round(1000 * cores),), **changes)


def crowded(priority: int = 2) -> Snapshot:
    there = [
        running(rigid("low"), "m2", (0, 1, 2, 3)),
        running(rigid("low-2"), "m2", (0, 1, 2, 3)),
        running(rigid("middle", 4, priority=1), "m1", (0, 1, 2, 3)),
        *(running(task(name, HUNGRY), "m3", (0, 1, 2, 3)) for name in ("a", "b")),
    ]
    cluster = (machine("m1"), machine("m2"), machine("m3"), machine("m4", cpu_milli=2000))
    high = rigid("high", 4, priority=priority, submit_s=50.0, machines=("m1", "m2"))
    return snapshot([high], cluster, running=there, now_s=50.0)


def account_of(found: Snapshot, on: Settings = ON) -> RecordView:
    record = solve(found, settings=on).record
    assert record is not None
    return RecordView(read_record(record_json(record).encode(), "a record"), "a record")


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(found=snapshots(max_pending=6, max_running=6), levels=st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_any_round_with_changes_is_replayed_and_explained(found: Snapshot, levels: list[int]) -> None:
    raised = tuple(replace(t, priority=p) for t, p in zip(found.pending, levels, strict=False))
    found = replace(found, pending=raised)
    decisions = solve(found, settings=ON)
    record = decisions.record
    assert record is not None
    recorded = RecordView(read_record(record_json(record).encode(), "a record"), "a record")
    assert replay(recorded).same, replay(recorded).lines()
    (part,) = record["parts"]
    assert [c["task"] for c in part["preemptions"]] == [p.task for p in decisions.preemptions or ()]
    for t in (*found.pending, *(r.task for r in found.running)):
        assert explain(recorded, t.name).lines()
    render_summary(recorded, everything=True)


def test_explanations_name_both_sides_and_the_cost() -> None:
    recorded = account_of(crowded())
    low = "\n".join(explain(recorded, "low").lines())
    assert "low was preempted on m2: high has a higher priority, and no machine had room for it." in low
    assert "starts anew later: its work is lost" in low
    high = "\n".join(explain(recorded, "high").lines())
    assert "lower priorities make room there" in high
    assert "low (cost" in high
    assert "low-2 (cost" in high
    (moved,) = recorded.parts[0].plain["moves"]
    assert f"moves from m3 to {moved['machine']}" in explain(recorded, moved["task"]).lines()[0]
    kept = account_of(crowded(), replace(ON, preempted_work="kept"))
    assert "goes on later where it stopped" in "\n".join(explain(kept, "low").lines())
    facts = explain(recorded, "high").plain()
    assert [v["task"] for v in facts["victims"]] == ["low", "low-2"]
    text = render_summary(recorded)
    assert "preempted: 2" in text
    assert "moved: 1" in text


@pytest.mark.parametrize("policy", ["flow", "load-spreading"])
def test_a_place_that_a_higher_priority_takes_is_told(policy: str) -> None:
    """The round fills what is free with a lower priority; the higher one takes that and the place of what runs."""
    pending = [rigid("wide", 4, priority=3), rigid("narrow", 2, priority=1)]
    found = snapshot(pending, running=[running(rigid("low", 2), "m1", (0, 1, 2, 3))])
    decisions = solve(found, settings=replace(ON, slots=1, migration_moves=0), policy=policy)
    assert [p.task for p in decisions.placements] == ["wide"]
    assert [p.task for p in decisions.preemptions or ()] == ["low"]
    (left,) = decisions.postponements
    assert left.reason == "wide has a higher priority and starts in its place on m1"
    recorded = RecordView(read_record(record_json(decisions.record or {}).encode(), "a record"), "a record")
    assert replay(recorded).same
    assert explain(recorded, "narrow").lines()[0] == (
        "narrow waits: wide has a higher priority and starts in its place on m1."
    )
    wide = "\n".join(explain(recorded, "wide").lines())
    assert "low (cost" in wide
    assert "narrow (which was about to start)" in wide
    assert "start" in render_summary(recorded)


@pytest.mark.parametrize("policy", ["flow", "coco"])
def test_solve_prints_and_records_both(policy: str, tmp_path: Path) -> None:
    source = tmp_path / "snapshot.json"
    source.write_text(json.dumps(dump_snapshot(crowded())))
    on = ["--set", "preemption=lower-priority", "--set", "migration_moves=1", "--policy", policy]
    done = CliRunner().invoke(flowsched, ["solve", str(source), *on, "--record", str(tmp_path / "round.json")])
    assert done.exit_code == 0, done.output
    assert "preempt   low on m2 for high" in done.output
    plain = CliRunner().invoke(flowsched, ["solve", str(source), *on, "--json"])
    assert [p["room_for"] for p in json.loads(plain.stdout)["preemptions"]] == ["high", "high"]
    off = json.loads(CliRunner().invoke(flowsched, ["solve", str(source), "--policy", policy, "--json"]).stdout)
    assert off.keys().isdisjoint({"preemptions", "moves"})
    again = CliRunner().invoke(flowsched, ["replay", str(tmp_path / "round.json")])
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (0, "same")


@pytest.mark.parametrize("policy", ["flow", "coco"])
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("preemption=always", "there is no preemption 'always'"),
        ("preempted_work=half", "there is no preempted_work 'half'"),
        ("migration_moves=-1", "-1 is not a whole number from 0 to 1e+06"),
        ("drain=maybe", "'maybe' is neither true nor false"),
    ],
)
def test_what_a_setting_cannot_be_is_one_sentence(policy: str, setting: str, said: str, tmp_path: Path) -> None:
    source = tmp_path / "snapshot.json"
    source.write_text(json.dumps(dump_snapshot(crowded())))
    done = CliRunner().invoke(flowsched, ["solve", str(source), "--policy", policy, "--set", setting])
    assert isinstance(done.exception, InputError)
    assert said in done.exception.problems[0].message


@pytest.mark.parametrize("policy", ["flow", "load-spreading"])
def test_a_machine_drains_where_no_end_is_known(policy: str) -> None:
    there = [running(rigid(f"s{i}", 2, endless=True), f"m{1 + i // 2}", (0, 1, 2, 3)) for i in range(3)]
    pending = [rigid("wide", 4), rigid("narrow", 1, submit_s=999.0)]
    found = snapshot(pending, (machine("m1"), machine("m2")), running=there, now_s=1000.0)
    without, drained = (solve(found, settings=Settings(drain=on, due_runs=0.0), policy=policy) for on in (False, True))
    assert [p.task for p in without.placements] == ["narrow"]
    assert without.reservations == ()
    assert drained.placements == (), "m2 has room, and drains"
    assert [(r.task, r.machine, r.start_s) for r in drained.reservations] == [("wide", "m2", float("inf"))]
    assert "drains for it: no end is known there" in next(p for p in drained.postponements if p.task == "wide").reason
    again = solve(
        replace(found, reservations=drained.reservations), settings=Settings(drain=True, due_runs=0.0), policy=policy
    )
    assert again.reservations == drained.reservations, "it is kept"
    gone = replace(found, running=tuple(there[:2]), reservations=drained.reservations)
    assert "wide" in [
        p.task for p in solve(gone, settings=Settings(drain=True, due_runs=0.0), policy=policy).placements
    ]
    recorded = RecordView(read_record(record_json(drained.record or {}).encode(), "a record"), "a record")
    assert replay(recorded).same
    assert any("drains" in line for line in explain(recorded, "wide").lines())
    render_summary(recorded)


def test_a_snapshot_with_all_of_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    there = [replace(running(replace(rigid("moved"), done=0.25), "m1"), moved_s=40.0, progress=0.5)]
    again = replace(rigid("again"), preemptions=2, done=0.5)
    found = snapshot([again], (machine("m1"), machine("m2")), running=there, now_s=50.0)
    record = solve(found, settings=ON).record
    assert record is not None
    write_record(record, tmp_path / "round.json")
    recorded = RecordView(read_record((tmp_path / "round.json").read_bytes(), "a record"), "a record")
    assert replay(recorded).same
    assert SCALING.name in recorded.parts[0].plain["snapshot"]["pending"][0]["profile"]

"""Records of rounds at linear prices: sound, replayed byte for byte, and with a bound that can be recomputed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import HUNGRY, SCALING, machines, running, service, snapshot, snapshots, task
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot
from flowsched.errors import ShapeError
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.replay import replay
from flowsched.records.record_file import pack_record, read_record, record_json
from flowsched.records.record_shape import check_shape
from flowsched.relations.relation import TaskGroup
from flowsched.round.linear.choice import chosen
from flowsched.round.linear.network_scheduler import solve_network_round
from flowsched.round.linear.places import read_places
from flowsched.round.scheduler import FlowScheduler
from flowsched.solvers import make_solver

QUICK = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
POLICIES = ("flow-network", "load-spreading", "coco", "shortest-job-first")


def record_of(found: Snapshot, policy: str = "flow-network", **further: Any) -> dict[str, Any]:
    record = solve_network_round(found, chosen(policy), **further).record
    assert record is not None
    return dict(record)


def reread(record: Mapping[str, Any]) -> dict[str, Any]:
    return read_record(record_json(record).encode(), "a record")


def recomputed_bound(part: Mapping[str, Any]) -> float:
    """The formula of the certificate, from a part as JSON has it."""
    fleet, dual = part["fleet"], {k: np.array(v) for k, v in part["dual"].items()}
    machines, features = len(part["machines"]), len(part["features"])
    kind = np.array(fleet["kind"], dtype=int)
    factors = np.array([k["factors"] for k in part["kinds"]]).reshape(len(part["kinds"]), features)[kind]
    readings = np.array(fleet["readings"]).reshape(machines, features)
    limits = np.array(fleet["limits"], dtype=float).reshape(machines, features)
    total, highest = 0.0, {}
    for d in part["classes"]:
        pi = part["certificate"]["prices"][d["name"]]
        total += np.minimum(pi, d["leaving"]).sum()
        i = part["classes"].index(d)
        price = (
            np.array(d["base"], dtype=float)[kind]
            + (np.array(d["coefficients"]) * factors * readings).sum(1) / part["fixed"]
            + read_places(part["places"][d["class"]["places"]]).extra(machines)
        )
        room = ((np.array(d["amounts"]) == 0) | (np.array(fleet["free"]) >= d["amounts"])).all(1)
        room &= ~((readings + d["effects"] > limits) & (np.array(d["effects"]) > 0)).any(1)
        theta, alpha = dual["tangent"], dual["alpha"][i]
        crowd = dual["crowding"] / 2 * (2 * theta * alpha - alpha**2) * (theta > 0)
        gain = pi - price
        useful = room & dual["may_take"] & (gain > 0.0)
        gain = np.where(useful, np.fmax(gain - crowd, 0.0), 0.0) / dual["units"][i]
        t = int(dual["tier"][i])
        highest[t] = np.maximum(highest.get(t, 0.0), gain)
    largest = dual["largest"].astype(float)
    cpu = np.maximum(0, np.array(fleet["free"])[:, 0]) // int(dual["unit_milli"])
    rent = dual["constant"].astype(float)
    best = np.zeros(machines)
    for t in reversed(range(len(largest))):
        best = np.maximum(best, highest.get(t, 0.0))
        rent = rent + best * (largest[t, cpu] - (largest[t - 1, cpu] if t else 0.0))
    return float(min(total - rent.sum(), part["certificate"]["primal"]))


def sound(record: dict[str, Any]) -> None:
    again = reread(record)
    assert json.loads(record_json(again)) == json.loads(record_json(record))
    packed = read_record(pack_record(record), "an archive")
    assert json.loads(record_json(packed)) == json.loads(record_json(record))
    trace = RecordView(again, "a record")
    for part in trace.parts:
        assert not list(part.first.faults())
        if part.certificate is not None and not record["settings"]["exact_tasks"]:
            bound = recomputed_bound(part.plain)
            assert bound == pytest.approx(part.certificate["bound"], rel=1e-9, abs=1e-9)
    found = replay(trace)
    assert found.same, found.lines()


@pytest.mark.parametrize("policy", POLICIES)
@given(found=snapshots())
@QUICK
def test_any_round_is_replayed_byte_for_byte_and_its_bound_recomputed(policy: str, found: Snapshot) -> None:
    sound(record_of(found, policy))


@pytest.mark.parametrize("policy", POLICIES)
@given(found=snapshots(max_pending=8, max_running=6), moves=st.sampled_from([0, 3]), seed=st.integers(0, 20))
@QUICK
def test_what_is_preempted_and_moved_is_replayed_too(policy: str, found: Snapshot, moves: int, seed: int) -> None:
    rng = random.Random(seed)
    raised = tuple(replace(t, priority=rng.randrange(4)) for t in found.pending)
    on = Settings(preemption="lower-priority", migration_moves=moves)
    decisions = solve_network_round(replace(found, pending=raised), chosen(policy), settings=on)
    record = decisions.record
    assert record is not None
    sound(dict(record))
    level = record["parts"][0]
    # Where nothing could be changed the record says nothing about it.
    assert [p["task"] for p in level.get("preemptions", ())] == [p.task for p in decisions.preemptions or ()]
    assert [m["task"] for m in level.get("moves", ())] == [m.task for m in decisions.moves or ()]
    trace = RecordView(reread(dict(record)), "a record")
    for change in level.get("preemptions", ()):
        assert "was preempted" in explain(trace, change["task"]).lines()[0]
        assert "make room there" in " ".join(explain(trace, change["room_for"]).lines())
    for change in level.get("moves", ()):
        assert f"from {change['source']} to {change['machine']}" in explain(trace, change["task"]).lines()[0]


@given(count=st.integers(2, 9), seed=st.integers(0, 50))
@QUICK
def test_the_same_where_tasks_crowd_each_other(count: int, seed: int) -> None:
    pending = [
        task(f"t{k}", (HUNGRY, SCALING)[k * seed % 2], widths_milli=((1000, 2000)[(k + seed) % 2],), memory_mib=100)
        for k in range(count)
    ]
    found = snapshot(pending, machines(2), services=[service()])
    record = record_of(found, "flow-network")
    sound(record)


@given(found=snapshots())
@QUICK
def test_levels_look_alike_at_both_prices(found: Snapshot) -> None:
    """Which tasks start where, and which wait, is read in the same way."""
    forecast = FlowScheduler(make_solver("ortools"), keep_records=True).decide(found).record
    assert forecast is not None
    for record in (dict(forecast), record_of(found)):
        placed, left = set(), set()
        for level in reread(record)["parts"]:
            assert level["kind"] == "level"
            tasks = {task for cls in (*level["classes"], *level.get("outside", ())) for task in cls["tasks"]}
            starts, waits = level["placements"], level["waiting"]
            assert set(starts["task"]) | set(waits["task"]) == tasks
            for columns in (starts, waits):
                for i, cost in enumerate(columns["cost"]):
                    assert cost is None or sum(v[i] for v in columns["terms"].values()) == pytest.approx(cost, abs=1e-9)
            widths = {t.name: t.widths_milli for t in found.pending}
            for name, machine, width in zip(starts["task"], starts["machine"], starts["width_milli"], strict=True):
                assert level["machines"][machine] in {m.name for m in found.machines}
                assert width in (*widths[name], next(t.request_milli for t in found.pending if t.name == name))
            assert all(waits["reasons"][reason]["text"] for reason in waits["reason"])
            assert all(r["width_milli"] > 0 for r in level["reservations"])
            placed |= set(starts["task"])
            left |= set(waits["task"])
        assert (placed | left, placed & left) == ({t.name for t in found.pending}, set())


def test_crowding_is_in_the_bound() -> None:
    pending = [task(f"t{k}", HUNGRY, widths_milli=(1000,), memory_mib=100) for k in range(8)]
    (part,) = record_of(snapshot(pending, machines(2)))["parts"]
    assert (np.array(part["dual"]["tangent"]) > 0.0).any()


def test_buckets_make_groups_and_are_replayed() -> None:
    busy = [running(task(f"r{k}", HUNGRY, cores=1, memory_mib=100), f"m{k + 1}", (0,)) for k in range(3)]
    found = snapshot([task(f"t{k}", widths_milli=(1000,)) for k in range(4)], machines(6), running=busy)
    policy = chosen("flow-network", [("pressure_bucket", "4"), ("sensitivity_bucket", "4")])
    record = solve_network_round(found, policy).record
    assert record is not None
    (part,) = record["parts"]
    assert len(part["groups"]) == 1
    sound(dict(record))


def late() -> Snapshot:
    busy = [running(task(f"r{k}", widths_milli=(2000,)), f"m{k + 1}", (0, 1)) for k in range(2)]
    pending = [task("wide", widths_milli=(4000,), submit_s=-1000.0)]
    pending += [task(f"t{k}", widths_milli=(1000,), scale=(0.1, 50.0)[k % 2]) for k in range(6)]
    return snapshot(pending, machines(2), running=busy)


@pytest.mark.parametrize("policy", POLICIES)
def test_rounds_with_reservations_are_replayed(policy: str) -> None:
    first = late()
    decided = solve_network_round(first, chosen(policy))
    assert decided.reservations
    sound(dict(decided.record or {}))
    held = replace(first, reservations=decided.reservations, now_s=3.0)
    record = record_of(held, policy)
    assert record["parts"][0]["snapshot"]["reservations"]
    sound(record)


def test_due_tasks_that_start_are_a_part_of_their_own() -> None:
    found = replace(late(), running=())
    record = record_of(found)
    assert len(record["parts"]) == 2
    assert list(record["parts"][0]["placements"]["task"]) == ["wide"]
    sound(record)


def test_rounds_with_groups_and_priorities_are_replayed() -> None:
    groups = (TaskGroup("g", 3), TaskGroup("lacking", 4))
    pending = [task(f"g{k}", widths_milli=(3000,), group="g", priority=2) for k in range(3)]
    pending += [task(f"l{k}", widths_milli=(1000,), group="lacking") for k in range(2)]
    pending += [task(f"t{k}", widths_milli=(1000,), priority=k % 3) for k in range(6)]
    busy = [running(task("g9", widths_milli=(1000,), group="g"), "m1", (0,))]
    record = record_of(snapshot(pending, machines(3), task_groups=groups, running=busy))
    first = record["parts"][0]
    assert {g["name"]: g["minimum"] for g in first["given"]["task_groups"]} == {"g": 3, "lacking": 4}
    assert [c["tasks"] for c in first["outside"]] == [["l0", "l1"]]
    told = {g["name"]: g for g in first["task_groups"]}
    assert (told["g"]["running"], told["g"]["members"], told["g"]["starts"]) == (1, ["g0", "g1", "g2"], True)
    assert (told["lacking"]["running"], told["lacking"]["starts"]) == (0, False)
    assert set(first["waiting"]["task"]) >= {"l0", "l1"}
    assert [part["priority"] for part in record["parts"]] == sorted({0, 1, 2}, reverse=True)
    sound(record)


def test_exact_rounds_are_replayed() -> None:
    pending = [task(f"t{k}", HUNGRY, widths_milli=(1000,), memory_mib=100) for k in range(5)]
    record = record_of(snapshot(pending, machines(2)), exact=True)
    assert record["parts"][0]["certificate"]["method"] == "exact"
    sound(record)


def test_what_was_different_is_counted() -> None:
    record = record_of(snapshot([task()]))
    assert record["upkeep"]["rebuilt"]["first_round"] == 1
    assert record["parts"][0]["counts"]["solves"] >= 1


def test_the_record_does_not_change_with_the_cluster() -> None:
    """It may be made long after the round, while others go on."""
    from flowsched.round.linear.network_scheduler import NetworkScheduler

    kept = NetworkScheduler(chosen("flow-network"), make_solver("ortools"), keep_records=True)
    first = snapshot([task(f"t{k}", HUNGRY, memory_mib=100) for k in range(3)], machines(4))
    decided = kept.decide(first)
    at_once = record_of(first)
    kept.decide(snapshot([task("u", priority=3), task("v", machines=("m1",))], machines(9), services=[service()]))
    late_record = dict(decided.record or {})
    for record in (at_once, late_record):
        record["parts"] = [{**part, "timings": {}} for part in record["parts"]]
    assert record_json(late_record) == record_json(at_once)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("fleet", "kind"), [7]),
        (("fleet", "free"), [[1]]),
        (("fleet", "limits"), [["x", None, None]]),
        (("group_of",), [3]),
        (("groups", 0, "buckets"), [0]),
        (("kinds", 0, "factors"), []),
        (("classes", 0, "base"), []),
        (("classes", 0, "tasks"), []),
        (("classes", 0, "class"), {}),
        (("classes", 0, "leaving"), [None]),
        (("placements", "machine"), [5]),
        (("placements", "believed"), []),
        (("placements", "task"), ["who"]),
        (("dual", "alpha"), []),
        (("dual", "largest"), [[0, 1], [0]]),
        (("certificate",), 3),
    ],
)
def test_damaged_parts_are_told(path: tuple[str | int, ...], value: Any) -> None:
    record = json.loads(record_json(record_of(snapshot([task()]))))
    check_shape(record)
    at: Any = record["parts"][0]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(ShapeError):
        check_shape(record)

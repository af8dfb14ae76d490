"""Explanations: every number can be recomputed from the record, and every sentence says what the data says."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import HUNGRY, LARGE, SCALING, SERIAL, bound_rounds, machine, running, service, snapshot, task
from engine.bulk_world import Kind, Naive, World, offered, worlds
from flowsched import load_snapshot
from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.compaction import compact
from flowsched.cluster.machine_arrays import FIXED
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Snapshot, Task
from flowsched.commands.explain import explain as explain_command
from flowsched.inspector import forecast_refusals
from flowsched.inspector.explanation import Explanation, explain
from flowsched.inspector.re_solve import snapshot_of
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.round_network import round_network
from flowsched.inspector.sentences import sentences
from flowsched.inspector.source import LiveRecord
from flowsched.inspector.task_sentences import stage_sentences
from flowsched.records.record import record_head
from flowsched.records.record_file import check_record, record_json, write_record
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched.round.linear.bulk_round import decide
from flowsched.round.origin import PlanStage
from flowsched.round.scheduler import solve
from flowsched.solvers import make_solver
from flowsched_models.document import InputError
from flowsched_models.forecast import forecast
from flowsched_models.runtime import HostFactory, Resident

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "turns.yaml"


def opened(record: Mapping[str, Any]) -> RecordView:
    """A record as a reader gets it from a file."""
    return RecordView(check_record(json.loads(record_json(record)), "record"), "record")


def searched(snap: Snapshot, **changes: Any) -> RecordView:
    """A round of the search."""
    record = solve(snap, settings=Settings(**changes)).record
    assert record is not None
    return opened(record)


@cache
def example(objective: str) -> RecordView:
    return searched(load_snapshot(EXAMPLE), objective=objective)


def bulk(fleet: BookedTasks, kinds: Sequence[Kind], groups: Iterable[TaskGroup] = (), **further: Any) -> RecordView:
    """A bulk round."""
    outcome = decide(offered(fleet, kinds, groups), solver=make_solver("ortools"), keep_record=True)
    assert outcome.record is not None
    head = record_head(7, 1000.0, "flow", "ortools", Settings())
    return opened({**head, "parts": outcome.record(0), **further})


def fleet_of(*sizes: int, relations: Iterable[Relation] = (), zones: Iterable[str | None] = ()) -> BookedTasks:
    """Machines ``m0``, ``m1``, ... with so many cores."""
    fleet = BookedTasks()
    for relation in relations:
        fleet.machines.relation_store.declare(relation)
    labels = list(zones) or [None] * len(sizes)
    for i, (cores, zone) in enumerate(zip(sizes, labels, strict=True)):
        found = {} if zone is None else {"zone": zone}
        fleet.put_machine(f"m{i}", {"cpu": cores * 1000, "memory": cores << 30, "pods": 10}, found)
    return fleet


def needs(cores: float, **more: int) -> dict[str, int]:
    return {"cpu": round(cores * 1000), "memory": 1 << 28, "pods": 1, **more}


# Words and data


def numbers_in(value: Any) -> list[float]:
    """All numbers of some data, and how long its lists are."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, Mapping):
        return [n for v in value.values() for n in numbers_in(v)]
    return [float(len(value)), *(n for v in value for n in numbers_in(v))]


def texts_in(value: Any) -> set[str]:
    """All texts of some data: names, and what others said."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return {t for v in value.values() for t in texts_in(v)}
    return set() if not isinstance(value, list) else {t for v in value for t in texts_in(v)}


def strangers(explanation: Explanation) -> list[str]:
    """Numbers of the sentences that are not in the data, however they are rounded and in whatever unit."""
    plain = json.loads(json.dumps(explanation.plain(), allow_nan=False))
    known = [abs(n) / unit for n in numbers_in(plain) for unit in (1, 1000, 1 << 20, 1 << 30)]
    texts = {t for t in texts_in(plain) if any(c.isdigit() for c in t)}
    texts |= {t[:1].upper() + t[1:] for t in texts}
    found = []
    for line in explanation.lines():
        for text in sorted(texts, key=len, reverse=True):
            line = line.replace(text, "")
        for number in re.findall(r"\d+(?:\.\d+)?", line.replace("p95", "")):
            decimals = len(number.partition(".")[2])
            half = 0.5 * 10.0**-decimals
            if not any(abs(float(number) - n) <= half * (1 + 1e-9) + 1e-12 for n in known):
                found.append(f"{number} in: {line}")
    return found


def check_shape(explanation: Explanation) -> dict[str, Any]:
    """What holds for every explanation; its data as JSON has it."""
    assert strangers(explanation) == []
    plain: dict[str, Any] = json.loads(json.dumps(explanation.plain(), allow_nan=False))
    assert explanation.lines()[0].startswith(plain["title"])
    assert all((line == line.rstrip() and line.endswith((".", ":"))) or plain["told"] for line in explanation.lines())
    for rival in rivals_in(plain):
        assert sum(t["cost"] for t in rival["terms"]) == pytest.approx(rival["cost"], abs=1e-6)
        if rival["differences"]:
            assert sum(d["more"] for d in rival["differences"]) == pytest.approx(rival["more"], abs=1e-6)
            sizes = [abs(d["more"]) for d in rival["differences"]]
            assert sizes == sorted(sizes, reverse=True)
    if plain.get("place", {}).get("terms"):
        assert sum(t["cost"] for t in plain["place"]["terms"]) == pytest.approx(plain["place"]["cost"], abs=1e-6)
    table = plain.get("refusals")
    if table is not None:
        assert table["available"] + sum(row["count"] for row in table["rows"]) == table["machines"]
        assert all(len(row["names"]) + row["more"] == row["count"] for row in table["rows"])
        assert all(len(row["also_names"]) + row["also_more"] == row["also"] for row in table["rows"])
        assert re.fullmatch(r"\d+/\d+ nodes are available(: .+)?\.", table["message"])
    return plain


def rivals_in(plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Everything that is compared with what was decided."""
    single = [plain.get(k) for k in ("runner_up", "waiting", "closest")]
    return [r for r in [*single, *plain.get("alternatives", ()), *plain.get("same_machine", ())] if r is not None]


# Searches


def arcs_of(recorded: RecordView, name: str) -> list[dict[str, Any]]:
    """Every arc of a task in the network of the round but the one that was decided, with what it costs more than that."""
    graph = round_network(recorded, recorded.parts[0]).graph
    arcs = graph.leaving(graph.node("task", name) or 0).tolist()
    (own,) = (k for k in arcs if graph.flow[k])
    waits = graph.kinds[graph.heads[own]] == "unscheduled"
    machine = None if waits else next(e["machine"] for e in recorded.parts[0].plain["decided_by"] if e["task"] == name)
    return [
        {
            "head": head,
            "more": graph.true_cost(k) - graph.true_cost(own),
            "terms": graph.terms_of(k),
            "slot": graph.columns["slot"][k],
            "width_milli": graph.columns["width_milli"][k],
        }
        for k in arcs
        if k != own
        for head in (
            ["stay"]
            if graph.kinds[graph.heads[k]] == "unscheduled"
            else [f"arrive:{m}" for m in graph.machines_of(k, machine)]
        )
    ]


def starts_at_once(
    part: Mapping[str, Any], decided: Mapping[str, tuple[Any, Any, Any]], name: str, arc: Mapping[str, Any]
) -> bool:
    """Whether an arc leads to a later slot that is none: no task on its machine would complete before."""
    machine = arc["head"].removeprefix("arrive:")
    endless = {t["name"] for t in part["snapshot"]["pending"] if t.get("endless")}
    here = [r for r in part["snapshot"]["running"] if r["machine"] == machine and not r["task"].get("endless")]
    before = [
        t
        for t, (there, slot, _) in decided.items()
        if t not in (name, *endless) and there == machine and slot < arc["slot"]
    ]
    return arc["slot"] > 0 and not here and not before


def check_searched(recorded: RecordView, name: str) -> dict[str, Any]:
    """Explain a task of a search, and compare what is said with the arrays of the record."""
    plain = check_shape(explain(recorded, name))
    opened, part = recorded.parts[0], recorded.parts[0].plain
    decided = {p.task: (p.machine, 0, p.width_milli) for p in opened.placements}
    for w in opened.waiting:
        planned = w.planned or {"machine": None, "slot": None, "width_milli": None}
        decided[w.task] = planned["machine"], planned["slot"], planned["width_milli"]
    as_planned = all(decided[e["task"]] == (e["machine"], e["slot"], e["width_milli"]) for e in part["plan"])
    moves = [a for a in arcs_of(recorded, name) if a["head"].startswith("arrive:")]
    # Costs of arcs are whole numbers: where waiting is dearer than any place, a unit of theirs is more than a millionth.
    step = max(1e-6, 1.0 / round_network(recorded, recorded.parts[0]).graph.cost_scale)
    if plain["fate"] == "placed":
        entry = next(p for p in opened.placements if p.task == name)
        assert plain["place"]["machine"] == entry.machine
        assert plain["place"]["width_milli"] == entry.width_milli
        assert plain["place"]["cost"] == pytest.approx(entry.cost)
        assert {t["term"]: t["cost"] for t in plain["place"]["terms"]} == pytest.approx(
            {k: v for k, v in entry.terms.items() if abs(v) > 1e-9}
        )
        if as_planned:
            moves = [a for a in moves if not starts_at_once(part, decided, name, a)]
            # One that may use services' cores has an arc to its own place without them.
            own = f"arrive:{entry.machine}", 0, entry.width_milli
            moves = [a for a in moves if (a["head"], a["slot"], a["width_milli"]) != own]
            rivals = [a["more"] for a in moves] + ([] if plain["waiting"] is None else [plain["waiting"]["more"]])
            stays = [a["more"] for a in arcs_of(recorded, name) if a["head"] == "stay" and a["terms"]]
            assert not stays or [plain["waiting"]["more"]] == pytest.approx(stays, abs=step)
            if plain["why_now"] in ("due", "group"):
                # It has no arcs to later slots, which its explanation prices too.
                assert plain["runner_up"]["more"] <= min(rivals) + step
            else:
                assert (plain["runner_up"] is None) == (not rivals)
                assert not rivals or plain["runner_up"]["more"] == pytest.approx(min(rivals), abs=step)
    else:
        waits = next(w for w in opened.waiting if w.task == name)
        assert (plain["cost"], plain["waited_s"], plain["reason"]) == (waits.cost, waits.waited_s, waits.reason)
        now = [a["more"] for a in moves if a["slot"] == 0]
        if as_planned and now:
            assert plain["closest"]["more"] == pytest.approx(min(now), abs=step)
            assert plain["closest"]["cost"] == pytest.approx(waits.cost + min(now), abs=step)
        if plain["cause"] == "cost":
            assert plain["closest"] is not None
        task_of = {t["name"]: t for t in part["snapshot"]["pending"]}
        assert plain["rounds_waited"] == task_of[name].get("rounds_waited", 0) + 1
    return plain


@pytest.mark.parametrize("objective", ["completion", "makespan"])
def test_every_task_of_the_example_is_explained_by_its_arcs(objective: str) -> None:
    recorded = example(objective)
    for name in recorded.parts[0].tasks:
        check_searched(recorded, name)


@settings(max_examples=60)
@given(bound_rounds(), st.sampled_from(["completion", "makespan"]), st.booleans())
def test_whatever_a_round_decides_is_explained_by_its_arcs(snap: Snapshot, objective: str, due: bool) -> None:
    recorded = searched(snap, objective=objective, slots=2, due_age_s=5.0 if due else 600.0, exact_limit=0)
    for name in recorded.parts[0].tasks:
        plain = check_searched(recorded, name)
        assert plain["models"], plain["models_missing"]
        assert plain["cause"] not in ("unknown", "fault")


@settings(max_examples=40)
@given(bound_rounds(), st.sampled_from(["completion", "makespan"]))
def test_the_stage_that_decided_is_told_for_every_place(snap: Snapshot, objective: str) -> None:
    recorded = searched(snap, objective=objective, slots=2, exact_limit=0)
    (part,) = recorded.parts
    passes = {p["number"]: p for p in part.plain["passes"]}
    assert list(passes) == list(range(1, part.counts["passes"] + 1))
    assert [p["drawn"] for p in passes.values()].count(True) == (1 if passes else 0)
    stages = [part.decided_by[p.task]["stage"] for p in part.placements]
    for stage in PlanStage:
        assert stages.count(stage) == part.counts.get(f"decided_by_{stage}", 0)
    for name in part.tasks:
        by = check_shape(explain(recorded, name))["decided_by"]
        planned = name in part.decided_by
        assert (by is not None) == planned
        if not planned:
            continue
        entry = part.decided_by[name]
        assert by["stage"] == entry["stage"]
        text = "\n".join(explain(recorded, name).lines())
        if by["stage"] != "network":
            assert by["pass"] is None
            (sentence,) = stage_sentences({"decided_by": by})
            assert sentence in text
            continue
        assert name in passes[by["pass"]]["booked"]
        assert len(passes[by["pass"]]["batch"]) == by["batch"]
        assert (by["price"], by["runner_up"]) == (entry["price"], entry["runner_up"])
        assert f"The network of pass {by['pass']} of {len(passes)} decided it" in text


def test_the_drawn_network_is_a_pass_and_its_flow_is_what_was_booked() -> None:
    pending = [task(f"t{i}", SCALING, goal_s=300.0 + i, widths_milli=(1000,)) for i in range(4)]
    (part,) = searched(snapshot(pending, [machine(f"m{i}") for i in range(12)])).parts
    (drawn,) = (p for p in part.plain["passes"] if p["drawn"])
    graph = part.first
    assert set(graph.kinds) == {"sink", "unscheduled", "class", "machine"}
    assert len(drawn["booked"]) == max(len(p["booked"]) for p in part.plain["passes"])
    taken = {
        (graph.names[graph.tails[k]], graph.names[graph.heads[k]]): graph.terms["price"][k]
        for k in np.flatnonzero(graph.flow).tolist()
        if graph.kinds[graph.heads[k]] == "machine"
    }
    assert len(taken) == len(drawn["booked"])
    for name in drawn["booked"]:
        entry = part.decided_by[name]
        if entry["stage"] == "network":
            assert entry["pass"] == drawn["number"]
            assert taken[part.class_of[name], entry["machine"]] == entry["price"]


def test_neighbours_end_when_the_model_of_their_machine_says_with_the_task_and_without_it() -> None:
    plain = check_searched(example("completion"), "canneal")
    snap = load_snapshot(EXAMPLE)
    here = next(m for m in snap.machines if m.name == plain["place"]["machine"])
    host = HostFactory(snap.catalogue).host(here.type, ())
    entries = {p.task: p for p in example("completion").parts[0].placements}
    of = {t.name: t for t in snap.pending}

    def resident(name: str) -> Resident:
        p, t = entries[name], of[name]
        delay = snap.start_delay
        ready = delay.at_submission_s if t.submit_s >= snap.now_s else delay.after_waiting_s
        return Resident(t.profile, t.scale, p.threads, p.cores, p.width_milli / 1000, t.memory_mib, 0.0, ready)

    together = forecast(host, [resident("blackscholes"), resident("canneal")]).residents_s
    alone = forecast(host, [resident("blackscholes")]).residents_s
    (neighbour,) = plain["neighbours"]
    assert neighbour["task"] == "blackscholes"
    assert neighbour["status"] == "starts"
    assert neighbour["end_s"] == pytest.approx(together[0])
    assert neighbour["end_without_s"] == pytest.approx(alone[0])
    assert neighbour["later_s"] == pytest.approx(together[0] - alone[0])


def test_explaining_tasks_of_one_class_looks_at_every_machine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, look = [], forecast_refusals._fill

    def counted(*args: Any) -> None:
        looked.append(args)
        look(*args)

    monkeypatch.setattr(forecast_refusals, "_fill", counted)
    now = snapshot([task(f"t{i:02d}", cores=4) for i in range(30)], [machine(f"m{i}") for i in range(6)])
    recorded = searched(now, exact_limit=0)
    (part,) = recorded.parts
    assert len(part.waiting) > 20
    facts = [explain(recorded, waits.task).facts for waits in part.waiting]
    assert all(found["refusals"]["machines"] == 6 for found in facts)
    # Besides, where a task is planned for later it is not beside itself.
    assert len(looked) <= 6 + len(facts)


def test_a_task_that_waits_for_a_completion_says_when_that_is() -> None:
    recorded = example("completion")
    plain = check_searched(recorded, "ferret")
    assert plain["cause"] == "planned"
    assert plain["planned"]["machine"] == "node-c-8core"
    runs = check_shape(explain(recorded, "freqmine"))
    assert runs["fate"] == "runs"
    assert plain["planned"]["start_s"] == pytest.approx(runs["place"]["end_s"])
    assert "waits for the next completion on node-c-8core" in explain(recorded, "ferret").lines()[0]


@pytest.mark.parametrize(
    ("further", "why"),
    [
        ({}, "passes and bounded improvement found no plan in which it helps"),
        ({"makespan": True}, "for a makespan, plans are judged by"),
        ({"search_ended_early": True}, "the round had used up its forecasts"),
    ],
)
def test_a_task_that_waits_although_a_place_is_cheaper_says_why(further: dict[str, bool], why: str) -> None:
    facts = explain(example("completion"), "ferret").facts
    assert (facts["makespan"], facts["search_ended_early"]) == (False, False)
    cheaper = {**facts["closest"], "more": -0.1}
    assert any(
        line.startswith(f"Why that was left: {why}") for line in sentences({**facts, "closest": cheaper, **further})
    )


def shares(**changes: Any) -> RecordView:
    """A light task on a machine of which a service has core 0."""
    light = task("light", SCALING, widths_milli=(100,), request_milli=100)
    return searched(snapshot([light], services=[service()], share_service_cores=True, **changes))


def test_a_task_that_may_use_a_services_cores_is_told_with_what_that_does_to_its_p95() -> None:
    recorded = shares()
    plain = check_searched(recorded, "light")
    assert plain["place"]["cores"] == [0, 1, 2, 3]
    (found,) = plain["shared"]
    (beside,) = recorded.parts[0].plain["snapshot"]["services"]
    snap = snapshot_of(recorded, recorded.parts[0])
    host = compact(snap, HostFactory(snap.catalogue)).groups[0].host

    def p95_ms(cores: tuple[int, ...]) -> float:
        me = Resident("scaling", 1.0, len(cores), cores, 0.1, SCALING.memory_mib)
        return forecast(host, [me]).peak_p95_us[0] / 1e3

    assert (found["service"], found["cores"]) == (beside["name"], [0])
    assert found["p95_ms"] == pytest.approx(p95_ms((0, 1, 2, 3)))
    assert found["p95_unshared_ms"] == pytest.approx(p95_ms((1, 2, 3)))
    assert found["p95_ms"] > found["p95_unshared_ms"]
    for which in ("", "_unshared"):
        left = 100 * (1 - found[f"p95{which}_ms"] / found["goal_ms"])
        assert found[f"headroom{which}_percent"] == pytest.approx(left)
    (line,) = [line for line in explain(recorded, "light").lines() if "core 0 of service cache-1" in line]
    assert line.startswith("It may use core 0 of service cache-1 too")
    assert f"predicted peak p95 {found['p95_ms']:.3f} ms of 1.00 ms, {found['headroom_percent']:.1f} % headroom" in line
    assert f"with arriving tasks off core 0 {found['p95_unshared_ms']:.3f} ms" in line


def test_who_keeps_off_a_services_cores_is_not_said_to_use_them() -> None:
    recorded = shares()
    apart = searched(replace(snapshot_of(recorded, recorded.parts[0]), share_service_cores=False))
    plain = check_searched(apart, "light")
    assert plain["place"]["cores"] == [1, 2, 3]
    assert plain["shared"] == []
    assert "service cache-1 too" not in text_of_lines(explain(apart, "light"))


def test_a_task_that_waits_for_or_runs_on_a_services_cores_says_so() -> None:
    light = task("light", SCALING, widths_milli=(100,), request_milli=100, memory_mib=10_000)
    there = running(replace(light, name="there"), cores=(0, 1, 2, 3), width_milli=100, progress=0.5)
    recorded = searched(snapshot([light], services=[service()], running=[there], share_service_cores=True))
    waits = check_searched(recorded, "light")
    assert waits["cause"] == "planned"
    assert [(s["service"], s["cores"]) for s in waits["shared"]] == [("cache-1", [0])]
    assert "Where it is planned it may use core 0 of service cache-1 too" in text_of_lines(explain(recorded, "light"))
    runs = check_shape(explain(recorded, "there"))
    assert [(s["service"], s["cores"]) for s in runs["shared"]] == [("cache-1", [0])]
    text = text_of_lines(explain(recorded, "there"))
    assert "It may use core 0 of service cache-1 too" in text
    assert "arriving tasks" not in text


def text_of_lines(explanation: Explanation) -> str:
    return "\n".join(explanation.lines())


def test_a_latency_service_is_named_with_its_p95_and_what_is_left_of_its_goal() -> None:
    snap, name = snapshot([task("beside", SCALING)], services=[service()]), "beside"
    recorded = searched(snap)
    (found,) = check_searched(recorded, name)["services"]
    (cache_,) = snap.services
    assert found["service"] == cache_.name
    assert found["goal_ms"] == cache_.slo_us / 1000
    assert found["headroom_percent"] == pytest.approx(100 * (1 - found["p95_ms"] / found["goal_ms"]))
    weight = recorded.settings["headroom_weight"]
    used, before = found["p95_ms"] / found["goal_ms"], found["p95_without_ms"] / found["goal_ms"]
    terms = {t["term"]: t["cost"] for t in check_searched(recorded, name)["place"]["terms"]}
    price = weight * (used / (1 - used) - before / (1 - before))
    assert terms.get("slo_headroom", 0.0) == pytest.approx(price)


OLD = task("old", SCALING, cores=4, widths_milli=(4000,), rounds_waited=12)
FULL = running(task("full", SCALING, cores=3, widths_milli=(3000,)), cores=(0, 1, 2), bound_s=690.0, start_s=690.0)


def test_a_due_task_without_room_says_what_is_reserved_for_it_and_others_that_it_is_in_their_way() -> None:
    young = task("young", SERIAL, widths_milli=(1000,), submit_s=690.0)
    recorded = searched(snapshot([OLD, young], running=[FULL], now_s=700.0), slots=1)
    plain = check_searched(recorded, "old")
    assert plain["cause"] == "reserved"
    assert plain["rounds_waited"] == 13
    (held,) = recorded.parts[0].plain["reservations"]
    assert plain["reservation"] == held | {"in_s": held["start_s"] - 700.0}
    assert plain["reason"].endswith(f"predicted to be free in about {held['start_s'] - 700.0:.0f} s")
    assert plain["shortage"]["emptiest"]["resources"][0] == {
        "resource": "cpu",
        "asks": 4000,
        "free": 1000,
        "short": 3000,
    }
    assert plain["bound"]["ahead"] == []
    lines = "\n".join(explain(recorded, "old").lines())
    assert "3 cores short" in lines
    assert "13 rounds, this one included" in lines
    assert "m1 is reserved for it (4 cores)" in lines
    behind = check_searched(recorded, "young")
    if behind["fate"] == "waits":
        assert behind["bound"]["ahead"] == ["old"]


def test_who_may_not_start_on_a_reserved_machine_hears_for_whom_it_is() -> None:
    long = task("long", SERIAL, widths_milli=(1000,), submit_s=690.0, scale=3.0)
    recorded = searched(snapshot([OLD, long], running=[FULL], now_s=700.0), slots=1)
    plain = check_searched(recorded, "long")
    assert plain["cause"] == "held"
    assert [r["task"] for r in plain["other_reservations"]] == ["old"]
    assert any("m1 is reserved for old" in line for line in explain(recorded, "long").lines())


def test_a_due_task_with_room_starts_because_it_is_due() -> None:
    due = replace(OLD, name="due", widths_milli=(1000,), request_milli=1000)
    recorded = searched(snapshot([due], running=[FULL], now_s=700.0))
    plain = check_searched(recorded, "due")
    assert (plain["fate"], plain["why_now"], plain["waited_s"]) == ("placed", "due", 700.0)
    assert "It is overdue (it has waited 700 s, and is overdue after 600 s)" in "\n".join(
        explain(recorded, "due").lines()
    )


def test_the_bound_counts_who_is_ahead_and_the_longest_run() -> None:
    submitted = [(f"t{i}", float(i), 5 if i == 3 else 0) for i in range(5)]
    pending = [
        task(n, SERIAL, submit_s=s, priority=p, widths_milli=(4000,), cores=4, rounds_waited=2) for n, s, p in submitted
    ]
    recorded = searched(snapshot(pending, running=[FULL], now_s=700.0), slots=1, due_age_s=1000.0)
    assert recorded.parts[0].placements == ()
    runs = check_shape(explain(recorded, "full"))
    for name, submit_s, priority in submitted:
        bound = check_searched(recorded, name)["bound"]
        ahead = [n for n, s, p in submitted if (p, -s) > (priority, -submit_s)]
        assert sorted(bound["ahead"]) == sorted(ahead)
        # Half of SERIAL's 60 s are serial; on four cores the other half takes a quarter.
        longest = max(runs["place"]["end_s"], 30.0 + 30.0 / 4)
        assert bound["longest_run_s"] == pytest.approx(longest)
        assert bound["most_s"] == pytest.approx(1000.0 + (len(ahead) + 5) * (longest + 1.0))
        assert bound["left_s"] == pytest.approx(bound["most_s"] - (700.0 - submit_s))


WHOLE = replace(FULL, task=replace(FULL.task, widths_milli=(4000,)), width_milli=4000, cores=(0, 1, 2, 3), threads=4)


def test_the_longest_run_is_one_beside_all_who_may_join_it() -> None:
    small: dict[str, Any] = {"widths_milli": (1000,), "request_milli": 1000, "memory_mib": 100}
    hungry = [task(f"h{i}", HUNGRY, submit_s=float(i), **small) for i in range(4)]
    me = task("me", SCALING, cores=4, widths_milli=(4000,), submit_s=9.0)
    before = searched(snapshot([*hungry, me], running=[WHOLE], now_s=700.0), slots=1, due_age_s=1000.0)
    bound = check_searched(before, "me")["bound"]
    assert bound["ahead"] == [t.name for t in hungry]
    snap = snapshot(hungry, now_s=750.0)
    ready = snap.start_delay.after_waiting_s
    host = HostFactory(snap.catalogue).host(snap.machines[0].type, ())
    four = [Resident(HUNGRY.name, 1.0, 4, (0, 1, 2, 3), 1.0, 100, 0.0, ready)] * 4
    assert bound["longest_run_s"] == pytest.approx(max(forecast(host, four).residents_s))
    after = searched(snap, slots=1, due_age_s=0.0)
    assert after.parts[0].placements
    ends = [n["end_s"] for t in hungry for n in check_searched(after, t.name).get("neighbours", ())]
    assert 0.0 < max(ends) <= bound["longest_run_s"]
    text = "\n".join(explain(before, "me").lines())
    assert f"if no run takes longer than {bound['longest_run_s']:.0f} s" in text
    assert "an estimate from predicted run times, not a promise" in text
    assert "tasks of higher priority, and longer runs that arrive before it is due" in text


def test_a_task_that_starts_with_it_or_can_never_start_is_not_ahead() -> None:
    small: dict[str, Any] = {"widths_milli": (1000,), "request_milli": 1000, "memory_mib": 100}
    groups = (TaskGroup("team", 2), TaskGroup("crowd", 5), TaskGroup("late", 2, deadline_s=600.0), TaskGroup("few", 2))
    pending = [
        task("huge", cores=64, widths_milli=(64_000,), submit_s=1.0),
        *(task(f"c{i}", SERIAL, group="crowd", submit_s=2.0, **small) for i in range(5)),
        *(task(f"l{i}", SERIAL, group="late", submit_s=3.0, **small) for i in range(2)),
        task("f0", SERIAL, group="few", submit_s=4.0, **small),
        *(task(f"t{i}", SERIAL, group="team", submit_s=5.0 + i, **small) for i in range(2)),
        task("me", SERIAL, submit_s=9.0, **small),
    ]
    recorded = searched(snapshot(pending, running=[WHOLE], task_groups=groups, now_s=700.0), slots=1, due_age_s=1000.0)
    assert recorded.parts[0].placements == ()
    assert check_searched(recorded, "me")["bound"]["ahead"] == ["f0", "t0", "t1"]
    for name in ("t0", "t1"):
        bound = check_searched(recorded, name)["bound"]
        assert (bound["bounded"], bound["group"], bound["ahead"]) == (True, "team", ["f0"])
        assert "task group team starts at most about" in "\n".join(explain(recorded, name).lines())
    assert check_searched(recorded, "c4")["bound"]["why_not"] == "group_never"
    assert check_searched(recorded, "l1")["bound"]["why_not"] == "group_expired"
    assert check_searched(recorded, "f0")["bound"]["why_not"] == "group_incomplete"


@pytest.mark.parametrize("now_s", [42.0, 100_000.0])
def test_a_task_group_larger_than_the_cluster_is_promised_nothing(now_s: float) -> None:
    group = TaskGroup("team", 5)
    pending = [task(f"g{i}", SERIAL, cores=2, widths_milli=(2000,), group="team") for i in range(5)]
    stays = replace(FULL, task=replace(FULL.task, endless=True))
    for machines, there, room in (
        ([machine("m1"), machine("m2")], [], 4),
        ([machine("m1"), machine("m2")], [WHOLE], 4),
        ([machine("m1"), machine("m2"), machine("m3")], [stays], 4),
        ([machine("m1")], [stays], None),
    ):
        recorded = searched(snapshot(pending, machines, running=there, task_groups=(group,), now_s=now_s), slots=1)
        assert recorded.parts[0].placements == ()
        plain = check_searched(recorded, "g0")
        assert (plain["cause"], plain["bound"]["bounded"], plain["bound"]["longest_run_s"]) == ("group", False, None)
        text = "\n".join(explain(recorded, "g0").lines())
        assert "at most" not in text
        if room is None:
            assert plain["bound"]["why_not"] == "infeasible"
            continue
        assert (plain["bound"]["why_not"], plain["bound"]["group_room"]) == ("group_never", room)
        assert f"the group needs 5 places and the cluster has {room} when everything that ends has ended." in text


def test_people_hear_how_long_ago_or_ahead_something_is_not_what_a_clock_shows() -> None:
    epoch = 1.9e9
    there = replace(WHOLE, bound_s=epoch - 50.0, start_s=epoch - 50.0)
    mine = replace(OLD, submit_s=epoch - 700.0)
    small = task("small", SERIAL, widths_milli=(1000,), memory_mib=100, submit_s=epoch - 10.0)
    first = searched(snapshot([mine, small], running=[there], now_s=epoch), slots=1)
    (held,) = first.parts[0].reservations
    in_s = check_searched(first, "old")["reservation"]["in_s"]
    assert 0.0 < in_s == held["start_s"] - epoch
    assert f"predicted to be free in {in_s:g} s; of the tasks that come after it only" in "\n".join(
        explain(first, "old").lines()
    )
    assert "bound 50 s ago. This round" in explain(first, "full").lines()[0]
    assert check_shape(explain(first, "full"))["place"]["bound_s"] == epoch - 50.0
    kept = (Reservation("old", "m1", 4000, epoch - 20.0),)
    second = searched(replace(snapshot([mine, small], running=[there], now_s=epoch), reservations=kept), slots=1)
    assert check_searched(second, "old")["reservation"]["in_s"] == -20.0
    text = "\n".join(explain(second, "old").lines())
    assert "predicted to be free 20 s ago; of the tasks that come after it none may start there" in text
    assert second.parts[0].waiting[0].reason.endswith("predicted to be free 20 s ago")
    for recorded, name in itertools.product((first, second), ("old", "small", "full")):
        assert not re.search(r"\d{10}", "\n".join(explain(recorded, name).lines()))


def test_beside_tasks_without_an_end_there_is_no_bound() -> None:
    held = replace(FULL, task=replace(FULL.task, endless=True))
    recorded = searched(snapshot([replace(OLD, machines=("m1",))], running=[held], now_s=800.0))
    plain = check_searched(recorded, "old")
    assert plain["cause"] == "never"
    assert plain["bound"]["why_not"] == "infeasible"
    small = task("small", SERIAL, widths_milli=(1000,), memory_mib=100)
    other = task("other", SERIAL, widths_milli=(1000,), memory_mib=15_000)
    recorded = searched(snapshot([small, other], running=[held], now_s=0.0), slots=1)
    placed = [p.task for p in recorded.parts[0].placements]
    for name in ("small", "other"):
        plain = check_searched(recorded, name)
        if name in placed:
            (neighbour, *_) = [n for n in plain["neighbours"] if n["task"] == "full"]
            assert neighbour["slowdown"] >= neighbour["slowdown_without"] >= 1.0
            assert neighbour["end_s"] is None
        else:
            assert plain["bound"]["why_not"] == "endless"
            assert "there is no bound on its waiting" in "\n".join(explain(recorded, name).lines())


def test_a_task_too_large_for_every_machine_hears_how_large_the_largest_is() -> None:
    fat = task("fat", cores=12, widths_milli=(12_000,))
    recorded = searched(snapshot([fat], machines=[machine("m1"), machine("m2", LARGE)]))
    plain = check_searched(recorded, "fat")
    assert plain["cause"] == "never"
    assert plain["refusals"]["message"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert plain["shortage"]["largest"][0] == {
        "resource": "cpu", "asks": 12_000, "most": 8000, "size": 8000, "machine": "m2", "suffices": False,
    }  # fmt: skip
    lines = explain(recorded, "fat").lines()
    assert lines[0] == "fat waits: no machine that may take it would have room even if it were empty."
    assert any("m2 has the most cpu, 8 cores, and it asks for 12 cores" in line for line in lines)


def test_relations_refuse_in_the_words_of_kubernetes() -> None:
    apart = Relation("apart", RelationKind.APART, MACHINE)
    spread = Relation("spread", RelationKind.SPREAD, "zone")
    near = Relation("near", RelationKind.TOGETHER, "zone")
    limit = Relation("few", RelationKind.LIMIT, MACHINE, most=1)
    machines = [machine("m1", labels=(("zone", "a"),)), machine("m2", labels=(("zone", "b"),)), machine("m3")]
    there = [
        running(task("r1", SERIAL, joins=("apart", "few", "spread")), "m1", cores=(0,)),
        running(task("r2", SERIAL, holds=("apart",), joins=("few",)), "m2", cores=(0,)),
        running(task("r3", SERIAL, holds=("apart",), joins=("apart", "few")), "m3", cores=(0,)),
    ]
    small: dict[str, Any] = {"widths_milli": (1000,), "cores": 1}
    pending = [
        task("away", SERIAL, holds=("apart",), joins=("apart",), **small),
        task("capped", SERIAL, holds=("few",), joins=("few",), **small),
        task("even", SERIAL, holds=("spread",), joins=("spread",), machines=("m1", "m3"), **small),
        task("close", SERIAL, holds=("near",), **small),
    ]
    snap = snapshot(pending, machines, running=there, relations=(apart, spread, near, limit))
    recorded = searched(snap, slots=1)

    def told(name: str) -> dict[str, int]:
        plain = check_searched(recorded, name)
        return {row["reason"]: row["count"] for row in plain["refusals"]["rows"] if row["count"]}

    assert told("away") == {
        "node(s) didn't match pod anti-affinity rules": 2,
        "node(s) didn't satisfy existing pods anti-affinity rules": 1,
    }
    assert told("capped") == {"node(s) had as many as relation few allows (1 for each machine)": 3}
    assert told("close") == {"node(s) didn't match pod affinity rules": 3}
    assert check_searched(recorded, "close")["bound"]["why_not"] == "relation"
    even = check_searched(recorded, "even")
    if even["fate"] == "waits":
        rows = {row["reason"]: row["count"] for row in even["refusals"]["rows"]}
        assert rows["node(s) didn't match pod topology spread constraints (missing required label)"] == 1


def test_a_task_group_says_who_is_missing() -> None:
    group = TaskGroup("team", 3)

    def members(count: int, **changes: Any) -> list[Task]:
        return [task(f"g{i}", HUNGRY, group="team", widths_milli=(1000,), **changes) for i in range(count)]

    few = searched(snapshot(members(2), task_groups=(group,)))
    plain = check_searched(few, "g0")
    assert (plain["cause"], plain["group"]["missing"]) == ("group", 1)
    assert plain["bound"]["why_not"] == "group_incomplete"
    assert "1 more must come first" in "\n".join(explain(few, "g0").lines())
    full = searched(snapshot(members(3), task_groups=(group,)))
    plain = check_searched(full, "g0")
    assert (plain["cause"], plain["group"]["missing"]) == ("group", 0)
    assert plain["closest"] is not None, "by itself it could start"
    assert "2 of 3 could be placed. With it wait: g1, g2." in "\n".join(explain(full, "g0").lines())
    fits = searched(snapshot(members(3, memory_mib=100), task_groups=(group,)))
    plain = check_searched(fits, "g1")
    assert (plain["fate"], plain["why_now"]) == ("placed", "group")
    assert plain["group"]["starting"] == ["g0", "g1", "g2"]


def test_a_latency_goal_in_the_way_is_said_with_the_p95_that_would_come() -> None:
    loaded = service(qps=46_500.0, slo_us=900.0)
    recorded = searched(snapshot([task("w", HUNGRY)], services=[loaded]))
    plain = check_searched(recorded, "w")
    assert plain["cause"] == "service"
    (worst,) = plain["latency"]
    assert (worst["service"], worst["goal_ms"]) == ("cache-1", 0.9)
    assert worst["p95_ms"] > 0.9
    assert plain["bound"]["why_not"] == "infeasible"


def test_a_task_that_waits_on_purpose_hears_what_would_change_its_mind() -> None:
    pending = [
        task("w", HUNGRY, goal_s=150.0, memory_mib=10),
        task("v", HUNGRY, goal_s=150.0, memory_mib=10, scale=0.5),
    ]
    there = running(task("r", HUNGRY, cores=1, widths_milli=(1000,)), cores=(0, 1, 2, 3), progress=0.95)
    recorded = searched(snapshot(pending, running=[there], now_s=10.0), slots=1)
    plain = check_searched(recorded, "v")
    assert plain["cause"] == "cost"
    needed = plain["needed_waiting"]
    assert needed["more"] == pytest.approx(plain["closest"]["cost"] - plain["cost"])
    weight, due = recorded.settings["waiting_weight"], recorded.settings["due_age_s"]
    assert needed["w"] == pytest.approx(weight * plain["waited_s"] / due)
    # At that age the waiting term alone has grown by what was missing.
    assert weight * needed["reached_at_age_s"] / due - needed["w"] == pytest.approx(needed["more"])
    start, wait = plain["closest"]["cost"], plain["cost"]
    assert (
        explain(recorded, "v").lines()[0] == f"v waits: starting now costs {start:.2f} on m1, waiting costs {wait:.2f}."
    )


def test_a_repair_is_told() -> None:
    recorded = searched(snapshot([task("w", SERIAL, widths_milli=(1000,))], machines=[machine("m1"), machine("m2")]))
    plain = copy.deepcopy(dict(recorded.plain))
    plain["parts"][0]["repairs"] = [{"task": "w", "machine": "m2", "relation": "apart", "moved_to": "m1"}]
    plain["parts"][0]["task_groups"] = []
    found = explain(RecordView(plain, "record"), "w")
    assert check_shape(found)["why_now"] == "repaired"
    assert any("The plan had it on m2; relation apart refused it there" in line for line in found.lines())


def test_prices_of_cores_are_those_of_the_certificate() -> None:
    pending = [task(f"t{i}", SCALING, widths_milli=(4000,), cores=4) for i in range(4)]
    recorded = searched(snapshot(pending, [machine("m1"), machine("m2")]), slots=1, exact_limit=0)
    (part,) = recorded.parts
    prices = part.certificate["prices"]  # type: ignore[index]
    assert prices
    told = 0
    for waits in part.waiting:
        price = check_searched(recorded, waits.task)["core_price"]
        if price is not None:
            told += 1
            assert price["per_task"] == pytest.approx(4000 * prices[part.group_of[price["machine"]]])
            assert price["per_core"] == pytest.approx(price["per_task"] / 4)
            assert "the certificate's bound prices them at" in "\n".join(explain(recorded, waits.task).lines())
    assert told


def test_prices_of_cores_in_a_network_of_groups_are_the_dual_prices_of_the_tiers() -> None:
    assert check_core_price(pods(), check_shape(explain(pods(), "uid-3")), 3000)


def check_core_price(recorded: RecordView, plain: Mapping[str, Any], width_milli: int) -> bool:
    """Add up what full tiers earn, from the arrays; whether there is a price."""
    price = plain.get("core_price")
    if price is None:
        return False
    graph = recorded.parts[plain["part"]["index"]].first
    per_unit = 0
    units = 0
    for k in range(graph.arc_count):
        tail, head = int(graph.tails[k]), int(graph.heads[k])
        group, _, width = graph.names[tail].rpartition("/")
        if graph.kinds[tail] == "tier" and group == price["group"] and int(width[:-1]) <= width_milli:
            per_unit += max(0, -int(graph.unit_costs[k] + graph.potentials[tail] - graph.potentials[head]))
        if graph.kinds[tail] == "class" and graph.names[tail] == recorded.parts[0].class_of[plain["task"]]:
            units = max(units, int(graph.units[k]))
    assert price["per_task"] == pytest.approx(per_unit * units / graph.cost_scale)
    assert price["per_core"] == pytest.approx(price["per_task"] * 1000 / width_milli)
    return True


# Bulk rounds


def check_bulk(recorded: RecordView, world: World | None = None) -> dict[str, dict[str, Any]]:
    """Explain every task of a bulk round; beside a naive record of the cluster after the round, if there is one."""
    part = recorded.parts[0]
    found = {}
    kind_of = {} if world is None else {t: k for k in world.kinds for t in k.tasks}
    for name in part.tasks:
        plain = found[name] = check_shape(explain(recorded, name))
        placed = {p.task: p for p in part.placements}
        if world is not None:
            naive = Naive(world)
            for other in part.placements:
                if other.task != name:
                    naive.add(kind_of[other.task], other.machine)
            check_against(plain, naive, kind_of[name])
        if name in placed:
            then = plain["when_placed"]
            assert then["cost"] == pytest.approx(placed[name].cost)
            assert plain["neighbours"] == [
                {"task": p.task, "status": "starts"}
                for p in part.placements
                if p.machine == placed[name].machine and p.task != name
            ]
        graph = part.first
        cls = graph.node("class", part.class_of[name])
        if plain["class"] is not None:
            supply = int(graph.supplies[cls] if cls is not None else 0)
            sent = plain["class"]["sent"] + plain["class"]["waiting"]
            units = max(int(graph.units[k]) for k in range(graph.arc_count) if graph.tails[k] == cls)
            assert sent == pytest.approx(supply / units)
    return found


def check_against(plain: Mapping[str, Any], naive: Naive, kind: Kind) -> None:
    """Prices, places and refusals by the formulas, one machine after the other in plain Python."""
    open_ = {m: naive.price(kind, m) for m in naive.boxes if naive.valid(kind, m)}
    if plain["fate"] == "placed":
        here = plain["place"]["machine"]
        cost = naive.price(kind, here)
        assert plain["place"]["cost"] == pytest.approx(cost, abs=1e-6)
        others = {m: price for m, price in open_.items() if m != here}
        assert plain["open_machines"] == len(others)
        rivals = [*others.values(), *([kind.waiting_cost] if np.isfinite(kind.waiting_cost) else [])]
        assert (plain["runner_up"] is None) == (not rivals)
        if rivals:
            assert plain["runner_up"]["cost"] == pytest.approx(min(rivals), abs=1e-6)
            assert plain["runner_up"]["more"] == pytest.approx(min(rivals) - cost, abs=1e-6)
        for rival in plain["alternatives"]:
            assert rival["cost"] == pytest.approx(others[rival["machine"]], abs=1e-6)
        return
    assert (plain["closest"] is None) == (not open_)
    if open_:
        assert plain["closest"]["cost"] == pytest.approx(min(open_.values()), abs=1e-6)
        assert open_[plain["closest"]["machine"]] == pytest.approx(plain["closest"]["cost"], abs=1e-6)
    table = plain["refusals"]
    limit = min(kind.waiting_cost, kind.max_cost)
    assert table["available"] == sum(price <= limit for price in open_.values())
    if len(naive.boxes) <= 5:
        named = {row["reason"]: {*row["names"], *row["also_names"]} for row in table["rows"]}
        for resource, amount in kind.needs.items():
            lacking = {
                m
                for m, box in naive.boxes.items()
                if amount > 0
                and amount > box.allocatable.get(resource, 0) - sum(k.needs.get(resource, 0) for k in naive.on[m])
            }
            assert named.get(f"Insufficient {resource}", set()) == lacking


@settings(max_examples=150)
@given(worlds())
def test_bulk_rounds_are_explained_as_the_formulas_say(world: World) -> None:
    outcome = decide(world.cluster(), solver=make_solver("ortools"), keep_record=True)
    assert outcome.record is not None
    head = record_head(0, 0.0, "flow", "ortools", Settings())
    # Tasks that may not fit an upper price by a rounding error are no matter of explanations.
    check_bulk(opened({**head, "parts": outcome.record(None)}), world)


def test_a_class_too_wide_for_every_machine() -> None:
    recorded = bulk(fleet_of(4, 16, 8), [Kind("huge", 2, needs(32)), Kind("ok", 1, needs(1))])
    plain = check_bulk(recorded)["huge-0"]
    assert plain["cause"] == "never"
    assert plain["refusals"]["message"] == "0/3 nodes are available: 3 Insufficient cpu."
    assert plain["shortage"]["largest"][0]["machine"] == "m1"
    assert "m1 has the most cpu, 16 cores, and it asks for 32 cores" in "\n".join(explain(recorded, "huge-0").lines())


def test_a_bulk_class_without_room_hears_what_is_short_and_who_came() -> None:
    kinds = [Kind("first", 2, needs(3)), Kind("second", 1, needs(2), names=["c"])]
    recorded = bulk(fleet_of(4, 4), kinds)
    plain = check_bulk(recorded)["c"]
    assert (plain["fate"], plain["cause"]) == ("waits", "capacity")
    (cpu,) = [r for r in plain["shortage"]["emptiest"]["resources"] if r["resource"] == "cpu"]
    assert cpu == {"resource": "cpu", "asks": 2000, "free": 1000, "short": 1000}
    assert len(plain["shortage"]["started_there"]) == 1


def test_a_bulk_task_that_is_not_worth_any_place_hears_the_price_and_the_limit() -> None:
    fleet = fleet_of(4, 4)
    slow = {"m0": 0.5, "m1": 0.9}
    recorded = bulk(fleet, [Kind("picky", 1, needs(1), slowness=slow, waiting_cost=0.25, names=["p"])])
    plain = check_bulk(recorded)["p"]
    assert (plain["cause"], plain["closest"]["cost"], plain["limit"]["cost"]) == ("cost", 0.5, 0.25)
    assert plain["closest"]["more"] == pytest.approx(0.25)
    assert explain(recorded, "p").lines()[0] == "p waits: starting now costs 0.50 on m0, waiting costs 0.25."


def test_a_bulk_service_and_a_relation_in_the_way() -> None:
    apart = Relation("apart", RelationKind.APART)
    fleet = fleet_of(4, 4, relations=[apart])
    fleet.machines.set_service("m0", 0.25, 0.5)
    both: dict[str, Any] = {"holds": ("apart",), "joins": ("apart",)}
    recorded = bulk(fleet, [Kind("loud", 3, needs(1), pressure=0.2, **both)])
    found = check_bulk(recorded)
    (left,) = [p for p in found.values() if p["fate"] == "waits"]
    assert left["cause"] == "relation"
    assert left["refusals"]["message"] == "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    (near,) = [p for p in found.values() if p["fate"] == "placed" and p["place"]["machine"] == "m0"]
    assert near["pressure"] == {
        "with_it": pytest.approx(0.2, abs=2 / FIXED), "without_it": 0.0, "cap": 0.25, "slope": 0.5,
        "cost": pytest.approx(0.1),
    }  # fmt: skip


def test_a_bulk_group_says_who_is_missing() -> None:
    recorded = bulk(fleet_of(4), [Kind("g", 3, needs(2), group="team")], [TaskGroup("team", 4)])
    plain = check_bulk(recorded)["g-0"]
    assert (plain["cause"], plain["group"]["missing"]) == ("group", 1)
    recorded = bulk(fleet_of(4), [Kind("g", 3, needs(2), group="team")], [TaskGroup("team", 3)])
    plain = check_bulk(recorded)["g-0"]
    assert (plain["cause"], plain["group"]["missing"]) == ("group", 0)
    assert "2 of 3 could be placed" in "\n".join(explain(recorded, "g-0").lines())


# Kubernetes


def pods() -> RecordView:
    """A record as a running scheduler makes it: names by uid, and what waiting pods were told."""
    fleet = fleet_of(4, 4, 4)
    kinds = [
        Kind("web", 3, needs(3), frozenset({"m2"}), names=["uid-1", "uid-2", "uid-3"]),
        Kind("odd", 1, needs(1), names=["uid-4"]),
    ]
    message = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
    counts = {"node(s) had untolerated taint(s)": 1, "Insufficient cpu": 2}
    held = [
        {"tasks": ["uid-3"], "fate": "unschedulable", "message": message, "counts": counts},
        {"tasks": ["uid-5"], "fate": "error", "message": "it could not be planned: ValueError: no", "counts": {}},
    ]
    return bulk(
        fleet,
        kinds,
        titles={f"uid-{i}": f"shop/cart-{i}" for i in range(1, 6)},
        held=held,
        machines=["m0", "m1", "m2"],
        filters=[{"tasks": ["uid-1", "uid-2", "uid-3"], "reasons": ["", next(iter(counts))], "verdict": [0, 0, 1]}],
        waited={
            "uid-3": {"rounds": 4, "since_s": 640.0, "due_age_s": 300.0},
            "uid-5": {"rounds": 0, "since_s": 990.0, "due_age_s": 300.0},
        },
    )  # fmt: skip


def test_a_pod_hears_first_what_it_was_told_and_then_which_nodes() -> None:
    recorded = pods()
    for name in ("uid-3", "shop/cart-3", "pod/shop/cart-3"):
        found = explain(recorded, name)
        plain = check_shape(found)
        assert (plain["task"], plain["title"]) == ("uid-3", "shop/cart-3")
        lines = found.lines()
        assert lines[0] == f"shop/cart-3: {plain['told']['message']}"
        assert "  node(s) had untolerated taint(s): m2." in lines
        assert "  Insufficient cpu: m0, m1." in lines
        assert {r["reason"]: r["count"] for r in plain["refusals"]["rows"]} == plain["told"]["counts"]
        assert (plain["waited_s"], plain["rounds_waited"], plain["bound"]["due"]) == (360.0, 5, True)
        assert any("It has waited 360 s, through 5 rounds" in line for line in lines)
        assert not any("uid-" in line for line in lines)


def test_a_pod_that_is_placed_is_named_with_its_neighbours_as_people_do() -> None:
    recorded = pods()
    placed = next(p for p in recorded.parts[0].placements if p.task in ("uid-1", "uid-2"))
    found = explain(recorded, recorded.title(placed.task))
    assert found.lines()[0].startswith(f"{recorded.title(placed.task)} starts on {placed.machine}")
    assert check_shape(found)["told"] is None


def test_a_pod_that_no_part_knows_says_what_it_was_told() -> None:
    found = explain(pods(), "shop/cart-5")
    assert check_shape(found)["cause"] == "fault"
    assert found.lines() == ["shop/cart-5: it could not be planned: ValueError: no"]


def test_a_node_that_drains_for_another_pod_is_no_fault_of_the_filters() -> None:
    fleet = fleet_of(4, 4)
    kind = Kind("web", 2, needs(3), frozenset({"m1"}), names=["u1", "u2"])
    recorded = bulk(
        fleet,
        [kind],
        titles={"u1": "a/b", "u2": "a/c", "u9": "a/z"},
        machines=["m0", "m1"],
        filters=[{"tasks": ["u1", "u2"], "reasons": [""], "verdict": [0, 0]}],
        held_nodes=[{"task": "u9", "machine": "m1", "priority": 0}],
    )
    (left,) = [p for p in check_bulk(recorded).values() if p["fate"] == "waits"]
    counts = {r["reason"]: r["count"] for r in left["refusals"]["rows"]}
    assert counts == {"Insufficient cpu": 1, "node(s) were reserved for a task that comes before it": 1}


def test_a_record_whose_numbers_this_version_cannot_reproduce_says_less() -> None:
    plain = json.loads(record_json(example("completion").plain))
    placements = plain["parts"][0]["placements"]
    placements["cost"] = [cost + 1.0 for cost in placements["cost"]]
    recorded = opened(plain)
    found = explain(recorded, "canneal")
    data = json.loads(json.dumps(found.plain()))
    assert data["models"] is False
    assert data["neighbours"] == []
    assert "predict other costs" in found.lines()[-1]
    waits = check_shape(explain(recorded, "ferret"))
    assert (waits["refusals"], waits["bound"], waits["closest"]) == (None, None, None)


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_record_is_one_sentence(data: st.DataObject) -> None:
    of_search = data.draw(st.booleans())
    plain = json.loads(record_json((example("completion") if of_search else pods()).plain))
    names = ("canneal", "ferret", "freqmine") if of_search else ("uid-1", "uid-3")
    at: Any = plain["parts"][0]
    while True:
        steps = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        step = data.draw(st.sampled_from(steps))
        if not (isinstance(at[step], dict | list) and at[step] and data.draw(st.booleans())):
            break
        at = at[step]
    if isinstance(at, dict) and data.draw(st.booleans()):
        del at[step]
    else:
        at[step] = data.draw(st.sampled_from([None, -7, 1e9, "nothing", [], {}]))
    try:
        recorded = opened(plain)
        for name in names:
            explain(recorded, name).plain()
    except InputError as error:
        assert len(str(error).splitlines()) == 1


# Names and the command


def test_unknown_names_and_machines_are_said_in_one_sentence() -> None:
    recorded = example("completion")
    with pytest.raises(InputError, match=r"there is no task 'caneal' in round 3; did you mean 'canneal'\?") as error:
        explain(recorded, "caneal")
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(InputError, match="'node-b-4core' is a machine; explain wants a task; this round placed"):
        explain(recorded, "node-b-4core")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(explain_command, list(arguments))


def test_the_command_prints_sentences_or_the_same_as_data(tmp_path: Path) -> None:
    recorded = example("completion")
    for name in ("round.json", "round.npz"):
        file = tmp_path / name
        write_record(recorded.plain, file)
        text = run(str(file), "ferret")
        assert text.exit_code == 0
        assert text.output.splitlines() == explain(recorded, "ferret").lines()
        data = run(str(file), "ferret", "--json")
        assert json.loads(data.output) == json.loads(json.dumps(explain(recorded, "ferret").plain()))
        assert run(str(file), "ferret", "--json").output == data.output


def test_the_command_refuses_what_does_not_go_together() -> None:
    for arguments, message in (
        ((), "RECORD and TASK are needed"),
        (("round.json",), "RECORD and TASK are needed"),
        (("round.json", "x", "--save", "y.json"), "belong to --live"),
        (("round.json", "--live", "pod/a/b"), "--live takes the place of RECORD and TASK"),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, InputError)
        assert message in str(result.exception)


def test_the_running_scheduler_is_asked_and_its_record_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = pods()
    asked: list[Any] = []

    def fetch(target: str | None, kubeconfig: Path | None, config: Path | None) -> LiveRecord:
        asked.append((target, kubeconfig, config))
        return LiveRecord(recorded.plain, "the scheduler", "uid-3")

    class Entry:
        def load(self) -> Callable[..., LiveRecord]:
            return fetch

    monkeypatch.setattr("flowsched.inspector.source.entry_points", lambda group: [Entry()])
    kept = tmp_path / "kept" / "round.npz"
    result = run("--live", "pod/shop/cart-3", "--kubeconfig", "k", "--config", "c", "--save", str(kept))
    assert result.exit_code == 0, result.exception
    assert asked == [("pod/shop/cart-3", Path("k"), Path("c"))]
    lines = [line for line in result.output.splitlines() if not line.startswith("record: ")]
    assert lines == explain(recorded, "uid-3").lines()
    assert run(str(kept), "shop/cart-3").output.splitlines() == lines


def test_settings_that_are_not_known_any_more_do_not_matter() -> None:
    plain = json.loads(json.dumps(dict(example("completion").plain)))
    plain["settings"]["from_elsewhere"] = 3
    assert check_shape(explain(opened(plain), "canneal"))["models"]

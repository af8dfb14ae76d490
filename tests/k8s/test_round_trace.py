"""The record of a round on Kubernetes: parts by priority, filters by node, waits, and nothing that changes afterwards."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import objects_builders as b
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.records.record_file import check_record, pack_record, read_record, record_json
from flowsched.records.record_maker import RecordMaker
from flowsched.solvers import make_solver
from flowsched_k8s import names
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.notices.recorder import histogram
from flowsched_k8s.objects import Node, Pod
from flowsched_k8s.records.round_trace import GOAL_MISSED, KubernetesTrace
from flowsched_k8s.rounds.planning import plan_apart, plan_round
from flowsched_k8s.rounds.round_input import RoundInput, RoundResult
from flowsched_k8s.state import SchedulerState
from flowsched_models.profiles import load_catalogue

CATALOGUE = load_catalogue()
SOLVER = make_solver("ortools")
MEASURED = {names.PROFILE: "canneal", names.WIDTHS: "1,2"}
SERVICE = {names.PROFILE: "memcached", names.WORKLOAD_CLASS: "latency-sensitive", names.SLO: "p95=1ms@30000qps"}
NOW_S = 1767225610.0
"""Ten seconds after all pods came: none is overdue."""


def scheduler(*things: Node | Pod, configuration: Configuration | None = None) -> SchedulerState:
    state = SchedulerState(configuration or Configuration(), CATALOGUE)
    state.observe([Seen(thing) for thing in things], NOW_S)
    state.activate()
    return state


def begin(state: SchedulerState, now: float = NOW_S) -> RoundInput:
    given, _ = state.begin_round(now)
    assert given is not None
    return given


def round_of(state: SchedulerState, now: float = NOW_S) -> tuple[RoundResult, KubernetesTrace]:
    result = plan_round(begin(state, now), SOLVER)
    state.end_round(result, now)
    assert result.trace is not None
    return result, result.trace


def uid(name: str) -> str:
    return f"uid-default-{name}"


def filters_of(record: Mapping[str, Any], task: str) -> dict[str, str]:
    """What the filters said of every node to a pod; nodes that they let pass are left out."""
    (found,) = (f for f in record["filters"] if task in f["tasks"])
    said = dict(zip(record["machines"], (found["reasons"][i] for i in found["verdict"].tolist()), strict=True))
    return {machine: reason for machine, reason in said.items() if reason}


def test_priorities_are_parts_and_every_pod_is_in_one() -> None:
    pods = [
        b.pod("urgent", cpu="3", priority=100),
        b.pod("urgent-job", cpu="1", annotations=MEASURED, priority=100),
        b.pod("large", cpu="9", priority=100),
        b.pod("plain", cpu="3"),
        b.pod("job", cpu="1", annotations=MEASURED),
    ]
    state = scheduler(b.node("n1"), b.node("n2"), *pods, b.pod("neighbour", cpu="1", annotations=MEASURED, node="n1"))
    result, made = round_of(state)
    record = made.record()
    trace = RecordView(record, "test")
    assert [(p.prices, p.priority) for p in trace.parts] == [
        ("forecast", 100), ("linear", 100), ("forecast", 0), ("linear", 0)
    ]  # fmt: skip
    assert sorted(t for part in trace.parts for t in part.tasks) == sorted(uid(p.metadata.name) for p in pods)
    placed = {p.task: (p.machine, p.cost) for part in trace.parts for p in part.placements}
    assert placed == {c.uid: (c.node, pytest.approx(c.cost)) for c in result.chosen}
    assert [g.faults() for part in trace.parts for g in part.graphs.values() if list(g.faults())] == []
    assert (trace.policy, trace.solver) == ("flow", "ortools")
    # Who only stands beside them has a name, and was not decided on.
    assert trace.title(uid("neighbour")) == "default/neighbour"
    assert made.pods == {f"default/{p.metadata.name}" for p in pods}
    assert trace.find_task("pod/default/large") == (trace.parts[1], uid("large"))


def test_files_hold_the_same() -> None:
    state = scheduler(
        b.node("n1"), b.pod("plain", cpu="1"), b.pod("large", cpu="9"), b.pod("job", annotations=MEASURED)
    )
    record = round_of(state)[1].record()
    plain = record_json(record)
    assert record_json(read_record(pack_record(record), "packed")) == plain
    assert record_json(read_record(plain.encode(), "plain")) == plain


def test_filters_name_the_nodes_that_the_message_counts() -> None:
    state = scheduler(
        b.node("cordoned", cordoned=True),
        b.node("tainted", taints=[b.taint("k", "v")]),
        b.node("small", cpu="1"),
        b.pod("waits", cpu="2"),
        b.pod("selects", cpu="100m", nodeSelector={"disk": "ssd"}),
        b.pod("fits", cpu="100m"),
    )
    result, made = round_of(state)
    record = made.record()
    assert record["machines"] == ["cordoned", "small", "tainted"]
    taken_out = {"cordoned": names.CORDONED, "tainted": names.TAINTS}
    assert filters_of(record, uid("waits")) == filters_of(record, uid("fits")) == taken_out
    # The first filter that refuses a node is the one that is told.
    assert filters_of(record, uid("selects")) == {
        "cordoned": names.CORDONED, "small": names.NODE_AFFINITY, "tainted": names.NODE_AFFINITY
    }  # fmt: skip
    # Pods to which the filters say the same stand together.
    assert len(record["filters"]) == 2
    held = {task: h for h in record["held"] for task in h["tasks"]}
    assert held[uid("waits")]["counts"] == {names.CORDONED: 1, names.TAINTS: 1, "Insufficient cpu": 1}
    assert {h.uids[0]: h.message for h in result.held} == {task: h["message"] for task, h in held.items()}


LABELS = st.sampled_from([{}, {"disk": "ssd"}, {"disk": "hdd"}])
NODES = st.lists(st.tuples(LABELS, st.booleans(), st.booleans(), st.sampled_from(["1", "4"])), min_size=1, max_size=8)


@given(NODES, st.sampled_from([None, {"disk": "ssd"}]), st.sampled_from(["100m", "2", "8"]))
def test_counts_are_the_message_and_the_filters(
    nodes: list[tuple[dict[str, str], bool, bool, str]], selector: dict[str, str] | None, cpu: str
) -> None:
    """Of the reasons that are filters' there are as many as nodes that they take out, and the message says them all."""
    more = {} if selector is None else {"nodeSelector": selector}
    state = scheduler(
        *(
            b.node(f"n{i}", cpu=size, labels=labels, cordoned=cordoned, taints=[b.taint("k")] if tainted else None)
            for i, (labels, cordoned, tainted, size) in enumerate(nodes)
        ),
        b.pod("p", cpu=cpu, **more),
    )
    record = round_of(state)[1].record()
    taken_out = list(filters_of(record, uid("p")).values())
    for held in record["held"]:
        assert held["message"] == histogram(len(nodes), held["counts"])
        by_filters = {reason: n for reason, n in held["counts"].items() if not reason.startswith("Insufficient")}
        assert by_filters == {reason: taken_out.count(reason) for reason in taken_out}
    (part,) = RecordView(record, "test").parts
    assert bool(part.placements) == (not record["held"])


def test_nodes_that_would_miss_a_goal_are_named() -> None:
    first = b.granted("taken", width_milli=4000, cores=(0, 1, 2, 3))
    state = scheduler(
        b.node("narrow", cpu="1", labels={names.MACHINE_TYPE: "n2d-highcpu-2"}),
        b.node("taken", cpu="4", labels={names.MACHINE_TYPE: "n2d-highmem-4"}),
        b.pod("first", cpu="4", annotations=SERVICE, node="taken", status=first),
        b.pod("cache", cpu="1500m", annotations={**SERVICE, names.SLO: "p95=1us@900000qps"}),
    )
    record = round_of(state)[1].record()
    said = filters_of(record, uid("cache"))
    assert said
    assert set(said.values()) == {GOAL_MISSED}
    (part,) = RecordView(record, "test").parts
    allowed = dict(
        zip(
            part.machines,
            part.plain["places"][part.plain["classes"][0]["class"]["places"]]["allowed"].tolist(),
            strict=True,
        )
    )
    assert said.keys() == {machine for machine, may in allowed.items() if not may}


@pytest.mark.parametrize(
    ("cpu", "slo", "sentence"),
    [
        (
            "1",
            "p95=0.2ms@30000qps",
            r"Alone with 1 core it would have 0\.\d\d ms at best\. No measured number of cores",
        ),
        (
            "1",
            "p95=0.65ms@30000qps",
            r"Alone with 1 core it would have 0\.\d\d ms at best\. It could be met with 2 cores\.",
        ),
        (
            "7",
            "p95=0.65ms@30000qps",
            r"It was not measured with 7 cores, or no machine here has so many\. It could be met",
        ),
    ],
)
def test_a_service_that_would_miss_its_goal_is_told_what_it_could_have(cpu: str, slo: str, sentence: str) -> None:
    state = scheduler(
        b.node("small", cpu="2", labels={names.MACHINE_TYPE: "n2d-highcpu-2"}),
        b.node("large", cpu="8", labels={names.MACHINE_TYPE: "e2-standard-8"}),
        *(
            b.pod(f"{node}-{i}", cpu="500m", annotations=SERVICE, node=node, status=b.granted(node, cores=(i,)))
            for node in ("large", "small")
            for i in (0, 1)
        ),
        b.pod("cache", cpu=cpu, annotations={**SERVICE, names.SLO: slo}),
    )
    recorded = RecordView(check_record(dict(round_of(state)[1].record()), "record"), "record")

    found = explain(recorded, uid("cache"))
    text = "\n".join(found.lines())
    assert found.plain()["goal"]["qps"] == 30_000.0
    assert "It waits: on every machine that it may run on it would miss its own p95 goal" in text
    assert re.search(rf"Its goal is a p95 of 0\.\d\d ms at 30,000 queries a second\. .*{sentence}", text), text
    assert "refused by the pod's own constraints" not in text


def test_rounds_that_left_a_pod_waiting_are_counted() -> None:
    hours = 3600.0
    state = scheduler(b.node("n1", cpu="1"), b.pod("plain", cpu="2"), b.pod("job", cpu="2", annotations=MEASURED))
    for number in range(3):
        record = round_of(state, NOW_S + number * hours)[1].record()
        search, _ = RecordView(record, "test").parts
        (pending,) = search.plain["snapshot"]["pending"]
        assert pending.get("rounds_waited", 0) == number
        assert record["waited"].keys() == {uid("plain"), uid("job")}
        for waited in record["waited"].values():
            assert waited["rounds"] == number
            assert waited["due_age_s"] == state.configuration.engine.due_age_s
        assert record["waited"][uid("job")]["since_s"] == pending["submit_s"]


def test_nothing_that_happens_later_changes_a_record() -> None:
    """A record is made long after its round, in another thread: it must not look at anything that lives on."""
    spread = b.spread(names.ZONE, b.selector(app="web"))
    web = {"labels": {"app": "web"}, "topologySpreadConstraints": [spread]}
    state = scheduler(
        *(b.node(f"n{i}", zone=f"z{i % 2}") for i in range(4)),
        *(b.pod(f"web-{i}", cpu="500m", **web) for i in range(3)),
        b.pod("large", cpu="9"),
        b.pod("job", cpu="1", annotations=MEASURED),
        b.pod("urgent", cpu="1", priority=5),
        b.pod("there", cpu="1", annotations=MEASURED, node="n0"),
    )
    result, trace = round_of(state)
    before = pack_record(trace.record())
    state.observe(
        [
            Seen(b.node("n0", cpu="2", zone="z1", taints=[b.taint("k")])),
            Gone(b.node("n1", zone="z1")),
            Seen(b.node("a-new-one", cpu="64", zone="z9", resources={"example.com/gpu": "4"})),
            Gone(b.pod("there", node="n0")),
            *(Seen(b.pod(f"more-{i}", cpu="500m", **web)) for i in range(3)),
            *(Gone(b.pod(f"web-{i}", **web)) for i in range(2)),
        ],
        NOW_S + 1,
    )
    state.use_catalogue(CATALOGUE, NOW_S + 1)
    after, _ = round_of(state, NOW_S + 3600)
    assert after.chosen
    state.tidy()
    assert pack_record(trace.record()) == before
    assert len(result.chosen) == 5


def test_another_process_can_make_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that it is made of is bound to this one."""
    caplog.set_level(logging.DEBUG, "flowsched.records.record_maker")
    state = scheduler(
        b.node("n1", zone="a"), b.pod("plain", cpu="1"), b.pod("large", cpu="9"), b.pod("job", annotations=MEASURED)
    )
    trace = round_of(state)[1]
    maker = RecordMaker()
    try:
        assert maker.make(trace.record) == pack_record(trace.record())
    finally:
        maker.close()
    assert "stays in its process" not in caplog.text


def test_a_round_that_was_planned_apart_has_one_record() -> None:
    state = scheduler(b.node("n1"), *(b.pod(f"p{i}", cpu=f"{1 + i}") for i in range(3)), b.pod("bad", cpu="1500m"))
    given = begin(state)
    classes = tuple(replace(c, holds=("unknown",)) if c.name == "default/bad" else c for c in given.classes)
    result = plan_apart(replace(given, classes=classes), SOLVER)
    assert result.trace is not None
    assert result.trace.pods == {"default/p0", "default/p1", "default/p2", "default/bad"}
    record = result.trace.record()
    trace = RecordView(record, "test")
    assert sorted(t for part in trace.parts for t in part.tasks) == [uid(f"p{i}") for i in range(3)]
    held = {task: h["fate"] for h in record["held"] for task in h["tasks"]}
    assert held == {uid("bad"): "error", uid("p2"): "unschedulable"}
    assert record["waited"].keys() == held.keys()
    # Each piece saw what the ones before it had taken.
    free = [
        int(np.asarray(p.plain["fleet"]["free"])[0, p.plain["fleet"]["resources"].index("cpu")]) for p in trace.parts
    ]
    assert free == [4000, 3000, 1000]


def test_without_records_nothing_is_kept() -> None:
    state = scheduler(b.node("n1"), b.pod("p", cpu="1"))
    given, _ = state.begin_round(NOW_S, keep_record=False)
    assert given is not None
    assert plan_round(given, SOLVER).trace is None


def test_the_estimate_grows_with_what_is_held() -> None:
    def size(nodes: int, pods: int) -> int:
        things = [*(b.node(f"n{i}") for i in range(nodes)), *(b.pod(f"p{i}", cpu=f"{i + 1}m") for i in range(pods))]
        return round_of(scheduler(*things))[1].size_bytes

    small = size(5, 2)
    assert small < size(50, 2)
    assert small < size(5, 20)

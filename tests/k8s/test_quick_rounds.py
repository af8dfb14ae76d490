"""Rounds that are shorter than the way to a thread: a single pod without a forecast, among few nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from test_review import scheduler

from flowsched.records.record_file import record_json
from flowsched.solvers import make_solver
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.objects import Pod
from flowsched_k8s.rounds import planning, round_input
from flowsched_k8s.rounds.planning import make_engine, plan_any_round
from flowsched_k8s.rounds.round_input import RoundInput, RoundResult


def given_of(*pods: Pod) -> RoundInput:
    running = scheduler(b.node("n1"), b.node("n2"))
    running.create(*pods)
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    return given


def test_a_single_plain_pod_is_decided_at_once() -> None:
    assert given_of(b.pod("p", cpu="1")).is_quick


def test_all_else_is_decided_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not given_of(b.pod("p", cpu="1"), b.pod("q", cpu="1")).is_quick
    assert not given_of(b.pod("p", cpu="1"), b.pod("q", cpu="2")).is_quick
    assert not given_of(b.pod("p", cpu="4", annotations={"flowsched.io/profile": "vips"})).is_quick
    plain = given_of(b.pod("p", cpu="1"))
    monkeypatch.setattr(round_input, "QUICK_NODES", 1)
    assert not replace(plain).is_quick
    assert replace(plain, booked=type(plain.booked)()).is_quick


def test_a_fault_in_a_round_of_one_pod_leaves_the_cluster_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    faults = [RuntimeError("once")]
    plain = planning.plan_round

    def faulty(*arguments: Any) -> RoundResult:
        if faults:
            raise faults.pop()
        return plain(*arguments)

    monkeypatch.setattr(planning, "plan_round", faulty)
    solver = make_solver("ortools")
    result = plan_any_round(given, solver, make_engine(given.settings, solver))
    assert [c.node for c in result.chosen] == ["n1"] and result.fallbacks == ("fault",)
    assert len(running.state.cache.booked) == 0


def test_the_record_of_a_pod_that_was_alone_is_of_its_round_whatever_comes_later() -> None:
    """Its round reads the cluster's own machines, and its record is made when it is asked for."""
    running = scheduler(b.node("n1"), b.node("n2"))
    running.create(b.pod("p", cpu="1"))
    state, now = running.state, running.now
    given, _ = state.begin_round(now)
    assert given is not None and given.machines is state.cache.machines
    solver = make_solver("ortools")
    result = plan_any_round(given, solver, make_engine(given.settings, solver))
    assert result.trace is not None
    record = record_json(result.trace.record())
    state.end_round(result, now)
    state.observe([Gone(b.node("n1")), Seen(b.node("n0")), Seen(b.node("n2", cpu="2"))], now)
    state.observe([Seen(b.pod("q", cpu="1", node="n2"))], now)
    assert record_json(result.trace.record()) == record


def test_nodes_beyond_those_that_were_asked_about_take_rows_between_them() -> None:
    """Two nodes more than the arrays of verdicts are long, one of which comes before all others by name."""
    server = ModelServer()
    for i in range(64):
        server.put(b.node(f"m{i:03}", "4"))
    running = ModelScheduler(server, Configuration())
    running.create(b.pod("p1", cpu="1"))
    running.round()
    running.answer_all()
    running.create(b.node("z00", "4"), b.node("a00", "4"))
    running.deliver()
    running.create(b.pod("p2", cpu="1"))
    assert len(running.round()) == 1

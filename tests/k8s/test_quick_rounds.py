"""Rounds that are shorter than the way to a thread: a single pod without a forecast, among few nodes."""

from __future__ import annotations

from dataclasses import replace

import objects_builders as b
import pytest
from test_review import scheduler

from flowsched_k8s import planning
from flowsched_k8s.objects import Pod
from flowsched_k8s.planning import is_quick
from flowsched_k8s.round_input import RoundInput


def given_of(*pods: Pod) -> RoundInput:
    running = scheduler(b.node("n1"), b.node("n2"))
    running.create(*pods)
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    return given


def test_a_single_plain_pod_is_decided_at_once() -> None:
    assert is_quick(given_of(b.pod("p", cpu="1")))


def test_all_else_is_decided_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_quick(given_of(b.pod("p", cpu="1"), b.pod("q", cpu="1")))
    assert not is_quick(given_of(b.pod("p", cpu="1"), b.pod("q", cpu="2")))
    assert not is_quick(given_of(b.pod("p", cpu="4", annotations={"flowsched.io/profile": "vips"})))
    plain = given_of(b.pod("p", cpu="1"))
    monkeypatch.setattr(planning, "QUICK_NODES", 1)
    assert not is_quick(plain)
    assert is_quick(replace(plain, fleet=type(plain.fleet)()))

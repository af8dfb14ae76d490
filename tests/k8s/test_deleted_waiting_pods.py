"""Pods that are deleted before they are on a node and that a finalizer keeps: nothing is held for them."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from test_state_preemption import asked, scheduler, there
from test_state_volumes import tell
from test_unsent_victims import GANG, low, made, place, waiting

from flowsched.cluster.settings import Settings
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.objects import Pod


def delete(running: ModelScheduler, *pods: str) -> None:
    """The pod stays: its finalizer is never removed."""
    for name in pods:
        running.server.terminate(running.server.pods["default", name], 0)
    running.deliver()


def test_the_place_of_a_pod_that_waits_for_its_volume_is_free_at_once() -> None:
    running = waiting(low())
    assert place(running, "low") == "n0"
    running.create(b.pod("next", cpu="2"))
    running.settle(within=5.0)
    assert "next" not in running.where()
    delete(running, "low")
    assert place(running, "low") == ""
    running.settle(within=5.0)
    assert running.where() == {"next": "n0"}
    # Its volume comes, and is of no use to it.
    made(running)
    running._carry_out(running.state.bindings.claims_settled(running.now))
    running.settle(within=5.0)
    assert running.where() == {"next": "n0"}


def test_so_is_the_volume_that_it_was_to_get() -> None:
    running = waiting(low(), nodes=2, local=True)
    tell(running, b.claim("next-data", storage_class="made"))
    running.create(low("next"))
    running.settle(within=5.0)
    assert place(running, "next") == ""
    delete(running, "low")
    running.settle(within=5.0)
    assert place(running, "next") != ""


def test_a_place_that_was_not_sent_yet_is_free_at_once() -> None:
    running = scheduler(b.node("n1", "2"))
    running.create(b.pod("p", cpu="2"))
    assert running.round()
    delete(running, "p")
    running.create(b.pod("next", cpu="2"))
    assert [bind.pod.name for bind in running.round()] == ["next"]
    running.settle(within=5.0)
    assert running.where() == {"next": "n1"}


def test_a_binding_that_was_sent_keeps_its_place_until_it_is_answered() -> None:
    running = scheduler(b.node("n1", "2"))
    running.create(b.pod("p", cpu="2"))
    running.round()
    running.send()
    delete(running, "p")
    running.create(b.pod("next", cpu="2"))
    assert running.round() == []
    running.settle(within=5.0)
    assert running.where() == {"p": "n1"}


def test_no_other_member_starts_without_one_that_is_deleted() -> None:
    running = waiting(low("a", labels=GANG), low("b", labels=GANG), nodes=2)
    delete(running, "a")
    made(running, "b")
    running._carry_out(running.state.bindings.claims_settled(running.now))
    running.settle(within=5.0)
    assert running.where() == {}
    tell(running, b.claim("c-data", volume="pv-c"), b.volume("pv-c", claim=("default", "c-data")))
    running.create(low("c", labels=GANG))
    running.settle(within=30.0)
    assert running.where().keys() == {"b", "c"}


@pytest.mark.parametrize("theirs", [False, True], ids=["ours", "another scheduler's"])
def test_room_that_is_made_for_it_is_for_all(theirs: bool) -> None:
    fields: dict[str, Any] = {"cpu": "2", "priority": 10}
    if theirs:
        running = scheduler(b.node("n1", "2"))
        running.put(b.pod("high", scheduler="other", status={"nominatedNodeName": "n1"}, **fields))
    else:
        running = scheduler(b.node("n1", "2"), there("victim", "n1", cpu="2"))
        running.create(b.pod("high", **fields))
        running.settle(within=1.0)
        running.evict()
        assert running.server.pods["default", "high"].status.nominated_node_name == "n1"
    running.create(b.pod("next", cpu="2"))
    running.settle(within=1.0)
    if not theirs:
        running.server.remove(running.server.pods["default", "victim"])
        delete(running, "high")
    running.settle(within=0.0)
    if theirs:
        assert running.where() == {}
        delete(running, "high")
    running.settle(within=20.0)
    assert running.where() == {"next": "n1"}


def test_no_pod_is_evicted_for_one_that_was_deleted_while_the_round_ran() -> None:
    running = scheduler(b.node("n1", "2"), there("victim", "n1", cpu="2"))
    running.create(b.pod("high", cpu="2", priority=10))
    assert running.begin()
    running.plan()
    delete(running, "high")
    running.end()
    assert asked(running) == []
    assert running.conditions("high") == []


def test_no_node_drains_for_it() -> None:
    server = ModelServer()
    running = ModelScheduler(server, Configuration(engine=Settings(due_age_s=10.0)))
    running.put(b.node("n1", "4"), b.pod("runs", node="n1", cpu="2", restartPolicy="Never"))
    running.create(b.pod("large", cpu="4"))
    running.settle(within=1.0)
    server.now += 20.0
    running.settle(within=300.0)
    assert running.state.node_holds.held is not None
    waits: Pod = b.pod("small", cpu="2")
    running.create(waits)
    running.settle(within=5.0)
    assert "small" not in running.where()
    delete(running, "large")
    assert running.state.node_holds.held is None
    running.settle(within=30.0)
    assert running.where()["small"] == "n1"

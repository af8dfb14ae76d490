"""Pods that are being deleted: whose room counts as coming, and until when."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from test_state_preemption import asked, gang, scheduler, there, with_port

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, Features, RebalancingSettings

LATE_S = 10.0
"""Longer than a kubelet is given after the grace period."""


def terminate(running: ModelScheduler, *pods: str, grace_s: int = 3600) -> None:
    for name in pods:
        running.server.terminate(running.server.pods["default", name], grace_s)
    running.deliver()


def remove(running: ModelScheduler, name: str) -> None:
    running.server.remove(running.server.pods["default", name])
    running.deliver()


def evict_all(running: ModelScheduler, grace_s: int = 30) -> None:
    victims = asked(running)
    running.victims.clear()
    terminate(running, *victims, grace_s=grace_s)


def nominated(running: ModelScheduler, name: str = "high") -> str:
    return running.server.pods["default", name].status.nominated_node_name


def two_nodes(**z: Any) -> ModelScheduler:
    """On n1 a pod of priority 1 and z, with half of the node each; on n2 one of priority 5."""
    return scheduler(
        b.node("n1", "2"),
        b.node("n2", "2"),
        there("low", "n1", cpu="1", priority=1),
        there("z", "n1", **{"cpu": "1", "priority": 100, **z}),
        there("mid", "n2", cpu="2", priority=5),
    )


@pytest.mark.parametrize("priority", [10, 100], ids=["equal", "higher"])
def test_a_terminating_pod_that_is_no_less_important_is_not_waited_for(priority: int) -> None:
    running = two_nodes(priority=priority)
    terminate(running, "z")
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=5.0)
    assert asked(running) == ["mid"]
    assert nominated(running) == "n2"


def test_a_less_important_one_is_waited_for_and_costs_no_victim() -> None:
    running = two_nodes(priority=0)
    terminate(running, "z", "low")
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=5.0)
    assert (asked(running), nominated(running)) == ([], "n1")
    remove(running, "z")
    remove(running, "low")
    running.settle(within=5.0)
    assert running.where()["high"] == "n1"


def test_a_port_or_a_claim_of_a_more_important_one_is_not_waited_for_either() -> None:
    running = scheduler(
        b.node("n1"),
        b.node("n2"),
        there("z", "n1", priority=100, **with_port()),
        there("mid", "n2", priority=5, **with_port()),
    )
    terminate(running, "z")
    running.create(b.pod("high", priority=10, **with_port()))
    running.settle(within=5.0)
    assert asked(running) == ["mid"]


def test_a_pod_that_should_be_gone_and_is_not_is_given_up() -> None:
    """Its kubelet is dead, or a finalizer keeps it: nothing tells of it but the time."""
    running = two_nodes(priority=0)
    terminate(running, "z", "low", grace_s=30)
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=25.0)
    assert (asked(running), nominated(running)) == ([], "n1")
    began = running.now
    running.settle(within=30.0 + LATE_S)
    assert running.now - began <= 30.0 + LATE_S
    assert asked(running) == ["mid"]
    assert nominated(running) == "n2"
    evict_all(running)
    remove(running, "mid")
    running.settle(within=5.0)
    assert running.where()["high"] == "n2"


def test_a_victim_that_does_not_go_is_given_up_with_its_node() -> None:
    running = two_nodes(priority=0)
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=5.0)
    assert asked(running) == ["low", "z"]
    evict_all(running)
    remove(running, "low")
    running.settle(within=20.0)
    assert nominated(running) == "n1"
    running.settle(within=30.0 + LATE_S)
    assert asked(running) == ["mid"]
    assert nominated(running) == "n2"


def test_the_room_of_a_node_that_is_given_up_is_for_all() -> None:
    running = scheduler(
        b.node("n1", "2"), there("stuck", "n1", cpu="1", priority=1), there("other", "n1", cpu="1", priority=1)
    )
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=5.0)
    evict_all(running)
    remove(running, "other")
    running.create(b.pod("small", cpu="1"))
    running.settle(within=20.0)
    assert "small" not in running.where(), "it is held for the preemptor"
    running.settle(within=30.0 + LATE_S)
    assert running.where()["small"] == "n1"
    assert nominated(running) == ""
    assert running.conditions("high")[-1].message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    # It comes back once there is room after all.
    remove(running, "stuck")
    remove(running, "small")
    running.settle(within=15.0)
    assert running.where()["high"] == "n1"


@pytest.mark.parametrize("grace_s", [0, 3600], ids=["late", "in time"])
def test_a_scheduler_that_starts_later_goes_by_the_deletion_time(grace_s: int) -> None:
    running = two_nodes(priority=0)
    terminate(running, "z", "low", grace_s=grace_s)
    running.create(b.pod("high", cpu="2", priority=10))
    running.server.now += 60.0
    second = ModelScheduler(running.server, Configuration(features=Features(preemption=True)))
    second.settle(within=5.0)
    assert asked(second) == (["mid"] if grace_s == 0 else [])


def test_the_grace_period_counts_from_when_the_deletion_is_seen() -> None:
    """The API server's clock may be another one: two hours behind ours, the pod would be late at once."""
    running = two_nodes(priority=0)
    running.server.now += 7200.0
    for name in ("z", "low"):
        pod = running.server.pods["default", name]
        running.server.now -= 7200.0
        running.server.terminate(pod, 30)
        running.server.now += 7200.0
    running.deliver()
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=20.0)
    assert (asked(running), nominated(running)) == ([], "n1")


def test_a_second_deletion_with_less_grace_counts() -> None:
    running = two_nodes(priority=0)
    terminate(running, "z", "low", grace_s=3600)
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=5.0)
    terminate(running, "z", "low", grace_s=1)
    running.settle(within=1.0 + LATE_S)
    assert asked(running) == ["mid"]


def test_a_group_is_given_room_elsewhere_when_one_of_its_victims_stays() -> None:
    running = scheduler(
        *(b.node(f"n{i}", "2") for i in range(3)),
        *(there(f"low-{i}", f"n{i}", cpu="2", priority=i) for i in range(3)),
    )
    running.create(*gang(2))
    running.settle(within=5.0)
    assert asked(running) == ["low-0", "low-1"]
    evict_all(running)
    remove(running, "low-0")
    running.settle(within=30.0 + LATE_S)
    assert asked(running) == ["low-2"]
    evict_all(running)
    remove(running, "low-2")
    running.settle(within=15.0)
    assert {name: node for name, node in running.where().items() if name in ("g0", "g1")}.keys() == {"g0", "g1"}


def test_rebalancing_does_not_count_on_a_pod_that_stays_either() -> None:
    """Two pods are in the way of the large one; the one that is late makes no room, so no other is moved for it."""
    settings = RebalancingSettings(interval_s=5.0, cool_down_s=1.0)
    features = Features(rebalancing=True)
    running = ModelScheduler(ModelServer(), Configuration(features=features, rebalancing=settings))
    owner = ("ReplicaSet", "rs")
    moved = b.pod("moved", node="n1", cpu="1", owner=owner)
    running.put(b.node("n1", "2"), b.node("n2", "1"), moved, there("stuck", "n1", cpu="1"))
    terminate(running, "stuck", grace_s=1)
    running.create(b.pod("large", cpu="2"))
    running.server.now += 60.0
    running.settle(within=10.0)
    assert running.look() is None
    assert running.moves == []
    assert names.insufficient("cpu") in running.conditions("large")[-1].message

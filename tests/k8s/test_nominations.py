"""A nomination ends when its node will not take the pod, even once its victims are gone; whatever the filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from msgspec.structs import replace
from test_state_preemption import apart, asked, gang, one_pod_claim, scheduler, there, with_claim, with_port
from test_terminating_pods import evict_all, nominated, remove

from flowsched_k8s import names
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.objects import Taint

HIGH: dict[str, Any] = {"cpu": "2", "priority": 10}


def preempting(*things: Any, **high: Any) -> ModelScheduler:
    """``high`` is nominated to n1, where ``low`` takes an hour to leave; ``mid`` on n2 costs more."""
    running = scheduler(
        b.node("n1", "2", labels={"disk": "ssd"}, zone="a"),
        b.node("n2", "2", labels={"disk": "ssd"}, zone="b"),
        there("low", "n1", cpu="2", priority=1),
        there("mid", "n2", cpu="2", priority=5),
        *things,
    )
    running.create(b.pod("high", **{**HIGH, **high}))
    running.settle(within=5.0)
    assert (asked(running), nominated(running)) == (["low"], "n1")
    evict_all(running, grace_s=3600)
    running.settle(within=5.0)
    assert nominated(running) == "n1"
    return running


def tainted(running: ModelScheduler) -> None:
    node = running.server.nodes["n1"]
    taints = [b.decoded(Taint, b.taint("node.kubernetes.io/not-ready"))]
    running.put(replace(node, spec=replace(node.spec, taints=taints)))


def cordoned(running: ModelScheduler) -> None:
    running.server.cordon("n1")


def relabelled(running: ModelScheduler) -> None:
    node = running.server.nodes["n1"]
    running.server.relabel(node, {**(node.metadata.labels or {}), "disk": "hdd"})


def smaller(running: ModelScheduler) -> None:
    running.server.allocate("n1", cpu="1")


def pod_limit(running: ModelScheduler) -> None:
    running.server.allocate("n1", pods="0")


def filled_by_another_scheduler(running: ModelScheduler) -> None:
    running.server.put(there("thief", "n1", cpu="1", priority=50))


def kept_out_by_a_neighbour(running: ModelScheduler) -> None:
    running.server.put(there("web", "n1", cpu="0", labels={"app": "web"}, priority=50))


def kept_out_by_its_zone(running: ModelScheduler) -> None:
    running.put(b.node("n3", "1", zone="a"))
    running.server.put(there("web", "n3", labels={"app": "web"}))


def deserted(running: ModelScheduler) -> None:
    remove(running, "cache")


CASES: dict[str, tuple[Callable[[ModelScheduler], None], dict[str, Any], tuple[Any, ...]]] = {
    "taint": (tainted, {}, ()),
    "cordon": (cordoned, {}, ()),
    "labels": (relabelled, {"nodeSelector": {"disk": "ssd"}}, ()),
    "less CPU": (smaller, {}, ()),
    "fewer pods": (pod_limit, {}, ()),
    "another scheduler's pod": (filled_by_another_scheduler, {}, ()),
    "anti-affinity": (kept_out_by_a_neighbour, apart(), ()),
    "anti-affinity by zone": (kept_out_by_its_zone, apart(names.ZONE), ()),
    "affinity": (
        deserted,
        {"affinity": b.affinity(near=[b.pod_term(names.HOSTNAME, b.selector(app="cache"))])},
        (
            there("cache", "n1", cpu="0", labels={"app": "cache"}, priority=50),
            there("cache-2", "n2", cpu="0", labels={"app": "cache"}, priority=50),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_that_no_longer_passes_is_given_up_at_once(case: str) -> None:
    change, high, things = CASES[case]
    running = preempting(*things, **high)
    change(running)
    running.settle(within=12.0)
    assert asked(running) == ["mid"]
    assert nominated(running) == "n2"
    evict_all(running)
    remove(running, "mid")
    running.settle(within=5.0)
    assert running.where()["high"] == "n2"


def unrelated_label(running: ModelScheduler) -> None:
    node = running.server.nodes["n1"]
    running.server.relabel(node, {**(node.metadata.labels or {}), "rack": "7"})


def more_cpu(running: ModelScheduler) -> None:
    running.server.allocate("n1", cpu="3")


def small_neighbour(running: ModelScheduler) -> None:
    running.server.put(there("small", "n1", cpu="0", priority=-5))


@pytest.mark.parametrize("change", [unrelated_label, more_cpu, small_neighbour])
def test_a_node_that_still_passes_is_kept(change: Callable[[ModelScheduler], None]) -> None:
    running = preempting(nodeSelector={"disk": "ssd"})
    change(running)
    running.settle(within=20.0)
    assert (asked(running), nominated(running)) == ([], "n1")
    remove(running, "low")
    running.settle(within=5.0)
    assert running.where()["high"] == "n1"


def test_without_another_node_the_nomination_ends_and_says_why() -> None:
    running = scheduler(b.node("n1", "2"), there("low", "n1", cpu="1"), there("low-2", "n1", cpu="1"))
    running.create(b.pod("high", **HIGH))
    running.settle(within=5.0)
    evict_all(running, grace_s=3600)
    running.server.cordon("n1")
    running.settle(within=12.0)
    assert nominated(running) == ""
    assert running.conditions("high")[-1].message.startswith(f"0/1 nodes are available: 1 {names.CORDONED}.")
    # What leaves is for all from now on.
    running.server.cordon("n1", False)
    running.settle(within=12.0)
    assert nominated(running) == "n1", "the node is as it was"


def test_a_preemptor_whose_room_a_more_important_one_needs_takes_another_node() -> None:
    running = preempting()
    running.create(b.pod("higher", cpu="2", priority=100, nodeSelector={names.HOSTNAME: "n1"}))
    running.settle(within=12.0)
    assert nominated(running, "higher") == "n1"
    assert (asked(running), nominated(running)) == (["mid"], "n2")


def test_a_volume_that_the_node_cannot_reach_any_more_ends_the_nomination() -> None:
    claim, volume = b.claim("data", volume="pv-data"), b.volume("pv-data", claim=("default", "data"))
    running = preempting(claim, volume, **with_claim("data"))
    elsewhere = b.volume(
        "pv-data", claim=("default", "data"), nodes=b.node_terms([b.requirement(names.HOSTNAME, "In", "n2")])
    )
    running.observe([Seen(elsewhere)])
    running.settle(within=12.0)
    assert (asked(running), nominated(running)) == (["mid"], "n2")


def test_a_pod_that_no_node_takes_any_more_holds_no_room() -> None:
    """Its claim is gone: until there is another one, what leaves is for others."""
    claim, volume = b.claim("data", volume="pv-data"), b.volume("pv-data", claim=("default", "data"))
    running = preempting(claim, volume, **with_claim("data"))
    running.observe([Gone(claim)])
    running.settle(within=12.0)
    assert nominated(running) == ""
    running.create(b.pod("small", cpu="1"))
    remove(running, "low")
    running.settle(within=12.0)
    assert running.where()["small"] == "n1"


def test_a_claim_that_another_pod_uses_by_now_ends_the_nomination() -> None:
    running = preempting(*one_pod_claim(), **with_claim("data"))
    running.server.put(there("user", "n2", cpu="0", priority=50, **with_claim("data")))
    running.settle(within=12.0)
    assert nominated(running) == ""


def test_a_group_loses_all_its_room_with_one_node() -> None:
    """Its victims on the other node have begun to go and cost nothing more."""
    running = scheduler(
        *(b.node(f"n{i}", "2") for i in range(3)),
        *(there(f"low-{i}", f"n{i}", cpu="2", priority=i) for i in range(3)),
    )
    running.create(*gang(2))
    running.settle(within=5.0)
    assert asked(running) == ["low-0", "low-1"]
    evict_all(running, grace_s=3600)
    running.settle(within=5.0)
    running.server.cordon("n0")
    running.settle(within=12.0)
    assert asked(running) == ["low-2"]
    assert {nominated(running, f"g{i}") for i in range(2)} == {"n1", "n2"}
    evict_all(running)
    remove(running, "low-1")
    remove(running, "low-2")
    running.settle(within=12.0)
    assert {running.where()[f"g{i}"] for i in range(2)} == {"n1", "n2"}


def test_a_scheduler_that_starts_later_gives_the_node_up_as_well() -> None:
    running = preempting()
    running.server.cordon("n1")
    second = ModelScheduler(running.server, Configuration(features=Features(preemption=True)))
    second.settle(within=5.0)
    assert (asked(second), nominated(second)) == (["mid"], "n2")


def test_a_port_that_another_pod_has_by_now_ends_the_nomination() -> None:
    running = preempting(containers=[b.container("main", "2", ports=[b.host_port(80)])])
    running.server.put(there("thief", "n1", priority=50, **with_port(80, cpu="0")))
    running.settle(within=12.0)
    assert (asked(running), nominated(running)) == (["mid"], "n2")

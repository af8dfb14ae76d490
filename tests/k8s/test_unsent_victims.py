"""Victims that have a place and are not bound yet: they give it back, and are not deleted."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from test_state_preemption import asked, scheduler
from test_state_volumes import tell

from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.instructions import PatchClaim
from flowsched_k8s.objects import Pod

GANG = {NAME_LABEL: "g", MINIMUM_LABEL: "2"}


def low(name: str = "low", **fields: Any) -> Pod:
    return b.pod(name, **{"cpu": "2", "volumes": [b.claim_volume(f"{name}-data")], **fields})


def waiting(*pods: Pod, nodes: int = 1, local: bool = False) -> ModelScheduler:
    """Pods that have a place each, where their volumes are being made."""
    running = scheduler(*(b.node(f"n{i}", "2") for i in range(nodes)))
    tell(running, b.storage_class("made", provisioner="kubernetes.io/no-provisioner" if local else "csi.example.com"))
    for pod in pods:
        if pod.spec.volumes:
            tell(running, b.claim(f"{pod.metadata.name}-data", storage_class="made"))
    if local:
        tell(running, b.volume("disk", storage_class="made"))
    running.create(*pods)
    running.settle(within=1.0)
    return running


def place(running: ModelScheduler, name: str) -> str:
    return running.state.cache.pods[running.server.pods["default", name].metadata.uid].place


def made(running: ModelScheduler, name: str = "low") -> None:
    """The volume is there: it can be used everywhere."""
    volume = f"pv-{name}"
    tell(running, b.claim(f"{name}-data", volume=volume), b.volume(volume, claim=("default", f"{name}-data")))


def test_a_victim_that_waits_for_its_volume_is_not_deleted() -> None:
    running = waiting(low())
    assert place(running, "low") == "n0"
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=5.0)
    assert asked(running) == []
    assert running.where() == {"high": "n0"}
    assert place(running, "low") == ""
    # It is as any other pod that waits: with room and its volume it starts.
    made(running)
    running.put(b.node("n1", "2"))
    running.settle(within=30.0)
    assert running.where() == {"high": "n0", "low": "n1"}


def test_what_is_not_done_for_the_victim_any_more() -> None:
    """In one round: the claim of the less important pod is not written to."""
    running = waiting()
    tell(running, b.claim("low-data", storage_class="made"))
    running.create(low())
    assert running.begin()
    running.plan()
    running.create(b.pod("high", cpu="2", priority=10))
    running.end()
    running.round()
    assert asked(running) == []
    assert place(running, "low") == ""
    running.settle(within=5.0)
    made(running)
    assert running.state.bindings.claims_settled(running.now) == []


def test_the_volume_that_was_promised_to_the_victim_is_free_for_others() -> None:
    running = waiting(low(), local=True)
    assert [told.patch.volume_name for told in running.told if isinstance(told, PatchClaim)] == ["disk"]
    tell(running, b.claim("high-data", storage_class="made"))
    high = b.pod("high", cpu="2", priority=10, nodeSelector={"kubernetes.io/hostname": "n0"})
    running.create(high)
    running.settle(within=5.0)
    running.put(b.node("n1", "2"))
    running.create(b.pod("other", cpu="2", priority=5, volumes=[b.claim_volume("high-data")]))
    running.round()
    assert place(running, "other") == "n1"
    patched = [(t.patch.name, t.patch.volume_name) for t in running.told if isinstance(t, PatchClaim)]
    assert patched[-1] == ("high-data", "disk")


def test_a_victim_whose_binding_of_a_former_round_is_not_sent_is_not_deleted() -> None:
    running = scheduler(b.node("n0", "2"))
    running.create(b.pod("low", cpu="2"))
    assert [bind.pod.name for bind in running.round()] == ["low"]
    running.create(b.pod("high", cpu="2", priority=10))
    running.round()
    assert asked(running) == []
    assert running.send() is None, "its place was given back"
    running.settle(within=5.0)
    assert running.where() == {"high": "n0"}


def test_a_victim_whose_binding_was_sent_is_deleted() -> None:
    """The API server may have bound it already."""
    running = scheduler(b.node("n0", "2"))
    running.create(b.pod("low", cpu="2"))
    running.round()
    running.send()
    running.create(b.pod("high", cpu="2", priority=10))
    running.round()
    assert asked(running) == ["low"]


@pytest.mark.parametrize("volumes", [1, 2], ids=["one waits", "both wait"])
def test_a_group_gives_its_places_back_together(volumes: int) -> None:
    members = [low(f"m{i}", labels=GANG) for i in range(volumes)]
    running = waiting(*members, nodes=2)
    if volumes == 1:
        running.create(b.pod("m1", cpu="2", labels=GANG))
        assert running.begin()
        running.plan()
        running.end()
    running.create(b.pod("high", cpu="2", priority=10))
    running.round()
    assert asked(running) == []
    assert {place(running, f"m{i}") for i in range(2)} == {""}
    running.settle(within=5.0)
    assert running.where().keys() == {"high"}


def test_of_two_victims_the_one_that_is_bound_is_deleted() -> None:
    running = waiting(low(cpu="1"))
    running.server.put(b.pod("runs", node="n0", cpu="1", scheduler="other"))
    running.deliver()
    running.create(b.pod("high", cpu="2", priority=10))
    running.settle(within=5.0)
    assert asked(running) == ["runs"]
    assert place(running, "low") == ""
    assert running.server.pods["default", "high"].status.nominated_node_name == "n0"

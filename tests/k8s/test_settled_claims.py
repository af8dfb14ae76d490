"""What may have changed by the time that the volumes of a chosen node are there: filters are asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from msgspec.structs import replace
from test_nominations import smaller
from test_state_preemption import scheduler
from test_state_volumes import tell, user
from test_unsettled_claims import tick

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.objects import Taint
from flowsched_k8s.volumes.storage_objects import Claim, PersistentVolume

GANG = {NAME_LABEL: "g", MINIMUM_LABEL: "2"}


def place(running: ModelScheduler, pod: str = "p") -> str:
    return running.state.cache.pods[running.server.pods["default", pod].metadata.uid].assumed


def said(running: ModelScheduler, pod: str = "p") -> str:
    return running.conditions(pod)[-1].message


def asking(name: str = "data", selected: str | None = None, **fields: Any) -> Claim:
    notes = {"volume.kubernetes.io/selected-node": selected} if selected else None
    return b.claim(name, storage_class="made", annotations=notes, **fields)


def disk(claim: str = "data", *nodes: str) -> PersistentVolume:
    """The volume of a claim, which these nodes can use; without any, all."""
    terms = b.node_terms([b.requirement(names.HOSTNAME, "In", *nodes)]) if nodes else None
    return b.volume(f"pv-{claim}", storage_class="made", claim=("default", claim), nodes=terms)


def made(running: ModelScheduler, claim: str = "data", *nodes: str, selected: str = "n1") -> None:
    """A volume is there, and the claim is bound to it."""
    tell(running, disk(claim, *nodes), asking(claim, selected, volume=f"pv-{claim}"))


def selecting(*claims: str, **fields: Any) -> ModelScheduler:
    """The pod is to be on n1, where its volumes are being made; n2 does as well by now."""
    running = scheduler(
        b.node("n1", "2", labels={"disk": "ssd"}), b.node("n2", "2", labels={"disk": "ssd"}, cordoned=True)
    )
    claims = claims or ("data",)
    tell(running, b.storage_class("made"), *(asking(name) for name in claims))
    volumes = [b.claim_volume(name, name) for name in claims]
    running.create(b.pod("p", **{"cpu": "2", "volumes": volumes, **fields}))
    running.settle(within=1.0)
    assert place(running) == "n1"
    tell(running, *(asking(name, "n1") for name in claims))
    running.server.cordon("n2", False)
    running.deliver()
    return running


def test_a_volume_that_only_another_node_can_use_takes_the_pod_there() -> None:
    running = selecting()
    made(running, "data", "n2")
    tick(running)
    assert running.where() == {"p": "n2"}
    named = 'persistentvolumeclaim "data" has the volume "pv-data", which cannot be used there'
    assert said(running) == f"its volumes were not made for n1: {named}"


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2"), ()])
def test_a_volume_that_the_node_can_use_keeps_the_pod_there(nodes: tuple[str, ...]) -> None:
    running = selecting()
    made(running, "data", *nodes)
    tick(running)
    assert running.where() == {"p": "n1"}
    assert running.conditions("p") == []


def test_a_pod_is_not_bound_before_its_volume_is_known() -> None:
    """Claims and volumes are watched apart: the claim may be bound to what no watch has shown."""
    running = selecting()
    tell(running, asking(selected="n1", volume="pv-data"))
    tick(running, 5.0)
    assert (running.where(), place(running)) == ({}, "n1")
    assert 'persistentvolumeclaim "data"' in said(running)
    tell(running, disk("data", "n2"))
    tick(running)
    assert running.where() == {"p": "n2"}


def test_a_pod_that_is_decided_again_says_what_it_waits_for_in_the_end() -> None:
    """A condition of a moment ago is not replaced at once, least of all where only numbers differ: it is said later."""
    running = selecting()
    tick(running, 2.0)
    assert said(running).startswith("waits until its volumes are made for n1: ")
    running.server.cordon("n1")
    running.deliver()
    tell(running, asking())
    tick(running)
    assert place(running) == "n2"
    tell(running, asking(selected="n2"))
    for _ in range(15):
        tick(running, 5.0)
        notices, bindings = running.state.notices, running.state.bindings
        running._carry_out(notices.again(running.state.waiting.postponed, running.now, bindings.unsettled))
    assert said(running).startswith("waits until its volumes are made for n2: ")
    assert place(running) == "n2"


def tainted(running: ModelScheduler) -> None:
    node = running.server.nodes["n1"]
    running.put(replace(node, spec=replace(node.spec, taints=[b.decoded(Taint, b.taint("maintenance"))])))


def cordoned(running: ModelScheduler) -> None:
    running.server.cordon("n1")


def relabelled(running: ModelScheduler) -> None:
    node = running.server.nodes["n1"]
    running.server.relabel(node, {**(node.metadata.labels or {}), "disk": "hdd"})


def enemy_came(running: ModelScheduler) -> None:
    term = b.pod_term(names.HOSTNAME, b.selector(app="p"))
    running.create(b.pod("enemy", node="n1", scheduler="other", affinity=b.affinity(apart=[term])))


def filled(running: ModelScheduler) -> None:
    running.create(b.pod("foreign", cpu="1", node="n1", scheduler="other"))


CHANGES = {
    tainted: names.TAINTS,
    cordoned: names.CORDONED,
    relabelled: names.NODE_AFFINITY,
    enemy_came: "pods that are there by now keep it out",
    # Room is asked for right before the binding is sent, and its condition stays as it is.
    filled: "",
    smaller: "",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_node_that_does_not_take_the_pod_any_more_is_left(change: Callable[[ModelScheduler], None]) -> None:
    running = selecting(labels={"app": "p"}, nodeSelector={"disk": "ssd"})
    change(running)
    running.deliver()
    made(running)
    tick(running)
    assert running.where()["p"] == "n2"
    if CHANGES[change]:
        assert said(running) == f"its volumes are there, and n1 does not take it any more: {CHANGES[change]}"


def test_a_volume_that_only_a_cordoned_node_can_use_is_waited_for() -> None:
    running = selecting()
    running.server.cordon("n1")
    running.deliver()
    made(running, "data", "n1")
    tick(running)
    tick(running)
    assert running.where() == {}
    entry = running.state.cache.pods[running.server.pods["default", "p"].metadata.uid]
    assert entry.message.startswith(f"0/2 nodes are available: 1 {names.VOLUME_AFFINITY}, 1 {names.CORDONED}.")
    running.server.cordon("n1", False)
    running.settle()
    assert running.where() == {"p": "n1"}


def test_one_of_several_volumes_decides_before_the_others_are_made() -> None:
    running = selecting("data", "logs")
    made(running, "data", "n2")
    tick(running)
    assert place(running) == "", "the other volume is still to be made for n1"
    tell(running, asking("logs"))
    tick(running)
    assert place(running) == "n2"
    made(running, "logs", "n2", selected="n2")
    tick(running)
    assert running.where() == {"p": "n2"}


def members(*others: Any) -> ModelScheduler:
    """A group that needs two; the volumes of p are being made for n1."""
    running = scheduler(b.node("n1", "4"), b.node("n2", "4", cordoned=True))
    tell(running, b.storage_class("made"), asking("data"), asking("more"))
    running.create(user("p", labels=GANG), *others)
    running.settle(within=1.0)
    assert place(running) == "n1"
    tell(running, asking("data", "n1"))
    running.server.cordon("n2", False)
    running.deliver()
    return running


def test_a_group_gives_its_places_up_together_while_none_is_bound() -> None:
    running = members(user("q", claim="more", labels=GANG))
    tell(running, asking("more", "n1"))
    made(running, "data", "n2")
    running._carry_out(running.state.bindings.claims_settled(running.now))
    assert (place(running), place(running, "q")) == ("", "")
    running.settle(within=0.5)
    assert running.where() == {}, "the volumes of two are needed"
    assert (place(running), place(running, "q")) == ("n2", "n1")
    made(running, "more", "n1")
    tick(running)
    assert running.where() == {"p": "n2", "q": "n1"}


def test_a_group_keeps_the_places_that_are_bound() -> None:
    running = members(*(b.pod(name, cpu="1", labels=GANG) for name in ("q", "r")))
    assert running.where() == {"q": "n1", "r": "n1"}
    made(running, "data", "n2")
    tick(running)
    assert running.where() == {"p": "n2", "q": "n1", "r": "n1"}

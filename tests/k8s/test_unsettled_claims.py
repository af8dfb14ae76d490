"""What may happen while a volume is being made for a node that was chosen: the pod is decided again at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import key_of
from test_state_preemption import scheduler
from test_state_volumes import tell, user

from flowsched_k8s import names
from flowsched_k8s.changes import Gone
from flowsched_k8s.instructions import PatchClaim
from flowsched_k8s.volumes.storage_objects import Claim

SOON_S = 2.0


def claim(uid: str = "u1", selected: str | None = None, **fields: Any) -> Claim:
    notes = {"volume.kubernetes.io/selected-node": selected} if selected else None
    return b.claim("data", storage_class="made", uid=uid, annotations=notes, **fields)


def tick(running: ModelScheduler, seconds: float = 1.0) -> None:
    """The process looks every second; rounds follow when the queue calls for them."""
    running.server.now += seconds
    running._carry_out(running.state.bindings.claims_settled(running.now))
    running.settle(within=0.5)


def place(running: ModelScheduler) -> str:
    return running.state.cache.pods[running.server.pods["default", "p"].metadata.uid].assumed


def selecting(shown: bool = True) -> ModelScheduler:
    """The pod is to be on na, where its volume is being made; only nb would do as well."""
    running = scheduler(b.node("na"), b.node("nb", cordoned=True))
    tell(running, b.storage_class("made"), claim())
    running.create(user("p"))
    running.settle(within=1.0)
    assert place(running) == "na"
    (asked,) = [told.patch for told in running.told if isinstance(told, PatchClaim)]
    assert asked.selected_node == "na"
    if shown:
        tell(running, claim(selected="na"))
    running.server.cordon("nb", False)
    running.deliver()
    tick(running)
    assert place(running) == "na", "nothing has happened"
    return running


def taken_away(running: ModelScheduler) -> None:
    running.server.cordon("na")
    running.deliver()
    tell(running, claim())


def told_another_node(running: ModelScheduler) -> None:
    running.server.cordon("na")
    running.deliver()
    tell(running, claim(selected="nb"))


def node_gone(running: ModelScheduler) -> None:
    running.server.remove(running.server.nodes["na"])
    running.deliver()
    tell(running, claim())


def made_anew(running: ModelScheduler) -> None:
    running.server.cordon("na")
    running.deliver()
    running.observe([Gone(claim(selected="na"))])
    tell(running, claim(uid="u2"))


def made_anew_and_only_the_new_one_seen(running: ModelScheduler) -> None:
    running.server.cordon("na")
    running.deliver()
    tell(running, claim(uid="u2"))


CHANGES = [taken_away, told_another_node, node_gone, made_anew, made_anew_and_only_the_new_one_seen]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_pod_goes_to_another_node_within_two_seconds(change: Callable[[ModelScheduler], None]) -> None:
    running = selecting()
    change(running)
    began = running.now
    while place(running) != "nb" and running.now - began < SOON_S:
        tick(running, 0.5)
    assert place(running) == "nb"
    told = [c.message for c in running.conditions("p")]
    assert told[-1].startswith("its volumes were not made for na: ")


@pytest.mark.parametrize("how", ["deleted", "being deleted", "lost"])
def test_a_claim_that_will_not_be_bound_is_waited_for_without_a_place(how: str) -> None:
    running = selecting()
    if how == "deleted":
        running.observe([Gone(claim(selected="na"))])
    elif how == "being deleted":
        tell(running, claim(selected="na", deleting=True))
    else:
        tell(running, claim(selected="na", volume="pv", phase="Lost"))
    tick(running)
    assert place(running) == ""
    entry = running.state.cache.pods[key_of(running.server.pods["default", "p"]).uid]
    assert 'persistentvolumeclaim "data"' in entry.message
    tell(running, claim(uid="u2"))
    tick(running)
    tick(running)
    assert place(running) in ("na", "nb")


def test_a_patch_that_no_watch_has_shown_is_not_taken_for_one_that_was_taken_away() -> None:
    running = selecting(shown=False)
    tell(running, claim())
    for _ in range(20):
        tick(running)
    assert place(running) == "na"


def test_the_second_time_waits_for_its_backoff() -> None:
    """A provisioner that refuses every node is not asked without end."""
    running = selecting()
    decisions = 0
    for _ in range(60):
        if place(running):
            decisions += 1
            tell(running, claim(selected=place(running)))
            tell(running, claim())
        tick(running, 0.5)
    assert 3 <= decisions <= 12


def test_a_pod_that_waits_for_its_volume_says_so_once() -> None:
    running = selecting()
    for _ in range(10):
        tick(running)
    told = running.conditions("p")
    assert [(t.reason, t.message) for t in told] == [
        (names.UNSCHEDULABLE, 'waits until its volumes are made for na: persistentvolumeclaim "data"')
    ]
    tell(running, claim(selected="na", volume="pv"), b.volume("pv", claim=("default", "data")))
    tick(running)
    assert running.where() == {"p": "na"}


def test_a_volume_that_comes_soon_is_nothing_to_say() -> None:
    running = selecting()
    tell(running, claim(selected="na", volume="pv"), b.volume("pv", claim=("default", "data")))
    tick(running)
    assert running.where() == {"p": "na"}
    assert running.conditions("p") == []


def test_a_refusal_of_an_older_patch_harms_no_later_place() -> None:
    running = selecting()
    old = next(told for told in running.told if isinstance(told, PatchClaim))
    taken_away(running)
    tick(running)
    assert place(running) == "nb"
    bindings = running.state.bindings
    assert bindings.claim_failed(old.pod, "could not be prepared: for the test", running.now, old.patch) == []
    assert place(running) == "nb"
    new = [told for told in running.told if isinstance(told, PatchClaim)][-1]
    bindings.claim_failed(new.pod, "could not be prepared: for the test", running.now, new.patch)
    assert place(running) == ""

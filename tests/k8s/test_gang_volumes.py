"""Gangs of which some members wait for their volumes: no member starts before as many can as have to start together."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from test_group_members import ANY_FORM, SIZE, member
from test_incomplete_gangs import scheduler
from test_state_volumes import tell

from flowsched_k8s.changes import Gone
from flowsched_k8s.groups.pod_groups import IN_TREE, LABELS, PLUGINS
from flowsched_k8s.instructions import Bind, PatchClaim
from flowsched_k8s.objects import Pod


def with_volume(pod: str) -> dict[str, Any]:
    return {"volumes": [b.claim_volume(f"{pod}-data")]}


def waiting(
    form: str = LABELS, volumes: int = 1, minimum: int = SIZE, server: ModelServer | None = None, **fields: Any
) -> ModelScheduler:
    """A gang that has its places; the volumes of its first members are being made there."""
    running = scheduler(form, server, minimum=minimum)
    tell(running, b.storage_class("made"))
    tell(running, *(b.claim(f"m-{i}-data", storage_class="made", uid="u1") for i in range(volumes)))
    pods: list[Pod] = []
    for i in range(SIZE):
        more = with_volume(f"m-{i}") if i < volumes else {}
        pods.append(member(form, f"m-{i}", **{"minimum": minimum, **more, **fields}))
    if server is None:
        running.create(*pods)
    running.settle(within=1.0)
    return running


def made(running: ModelScheduler, *pods: str) -> None:
    for name in pods:
        claim = b.claim(f"{name}-data", volume=f"pv-{name}", uid="u1")
        tell(running, claim, b.volume(f"pv-{name}", claim=("default", f"{name}-data")))
    running.tick()


def said(running: ModelScheduler, name: str) -> str:
    return running.state.cache.pods[running.server.pods["default", name].metadata.uid].message


@ANY_FORM
@pytest.mark.parametrize("volumes", [1, 2, SIZE])
def test_no_member_starts_before_all_volumes_are_made(form: str, volumes: int) -> None:
    running = waiting(form, volumes)
    assert sum(isinstance(told, PatchClaim) for told in running.told) == volumes
    for _ in range(20):
        running.tick()
    assert running.where() == {}
    for i in range(volumes):
        assert running.where() == {}
        made(running, f"m-{i}")
    assert len(running.where()) == SIZE
    assert not [i for i in running.told if isinstance(i, Bind)]


def test_members_say_for_whose_volumes_they_wait() -> None:
    running = waiting()
    running.tick()
    assert running.conditions("m-1") == []
    for _ in range(5):
        running.tick()
    text = "waits until the volumes of 1 other pod(s) of pod group g are made: m-0"
    assert [c.message for c in running.conditions("m-1")] == [text]
    assert "waits until its volumes are made" in said(running, "m-0")


def test_as_many_as_have_to_start_do_not_wait_for_others() -> None:
    running = waiting(minimum=2)
    assert running.where().keys() == {"m-1", "m-2"}
    made(running, "m-0")
    assert len(running.where()) == SIZE


def test_when_a_volume_is_never_made_all_wait_without_places() -> None:
    running = waiting()
    tell(running, b.claim("m-0-data", storage_class="made", uid="u1", volume="pv", phase="Lost"))
    running.tick()
    running.tick()
    assert running.where() == {}
    assert not any(e.place for e in running.state.cache.pods.values()), "their room is free for others"
    running.create(b.pod("other", cpu="2"))
    running.tick()
    assert running.where().keys() == {"other"}


def test_when_the_claim_is_made_anew_all_are_decided_again() -> None:
    running = waiting()
    running.observe([Gone(b.claim("m-0-data", storage_class="made", uid="u1"))])
    running.tick()
    running.tick()
    assert not any(e.place for e in running.state.cache.pods.values())
    tell(running, b.claim("m-0-data", storage_class="made", uid="u2"))
    for _ in range(5):
        running.tick()
    claim = b.claim("m-0-data", volume="pv", uid="u2")
    tell(running, claim, b.volume("pv", claim=("default", "m-0-data")))
    for _ in range(5):
        running.tick()
    assert len(running.where()) == SIZE


@pytest.mark.parametrize("whose", ["m-0", "m-1"], ids=["whose volume is made", "that waits for it"])
@pytest.mark.parametrize("what", ["its node goes", "it is deleted"])
def test_none_starts_without_one(what: str, whose: str) -> None:
    running = waiting()
    pod = running.server.pods["default", whose]
    if what == "it is deleted":
        running.server.terminate(pod, 0)
    else:
        running.server.remove(running.server.nodes[running.state.cache.pods[pod.metadata.uid].place])
    running.deliver()
    made(running, "m-0")
    for _ in range(20):
        running.tick()
    assert running.where() == {}
    # With another one, or another node, they all start.
    running.put(b.node("new", "2"))
    running.create(member(LABELS, "another"))
    for _ in range(20):
        running.tick()
    assert len(running.where()) == SIZE


def test_none_starts_where_a_claim_is_deleted_while_other_volumes_are_made() -> None:
    running = waiting(volumes=2)
    made(running, "m-0")
    running.observe([Gone(b.claim("m-0-data", volume="pv-m-0", uid="u1"))])
    made(running, "m-1")
    for _ in range(5):
        running.tick()
    assert running.where() == {}


def test_a_more_important_pod_takes_the_places_of_all() -> None:
    running = waiting()
    running.create(b.pod("high", cpu="2", priority=10))
    running.tick()
    running.tick()
    assert running.where().keys() == {"high"}
    assert running.victims == [], "nothing was deleted"
    assert not any(e.place for e in running.state.cache.pods.values() if e.key.name != "high")


def test_the_next_leader_begins_again() -> None:
    running = waiting()
    running = waiting(server=running.server)
    assert running.where() == {}
    made(running, "m-0")
    assert len(running.where()) == SIZE


@pytest.mark.parametrize("form", [LABELS, PLUGINS, IN_TREE])
def test_a_member_that_joins_a_gang_that_runs_waits_for_its_own_volume_only(form: str) -> None:
    running = waiting(form, volumes=0)
    assert len(running.where()) == SIZE
    running.put(b.node("more", "4"))
    tell(running, b.claim("late-data", storage_class="made", uid="u1"))
    running.create(member(form, "late", **with_volume("late")), member(form, "later"))
    running.settle(within=1.0)
    assert "later" in running.where()
    assert "late" not in running.where()
    made(running, "late")
    assert "late" in running.where()

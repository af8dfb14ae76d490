"""Gangs that were bound in part only: the next leader completes them, or takes them back; gangs that ran are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import objects_builders as b
import pytest
import test_group_members as group_members
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer, key_of
from msgspec.structs import replace
from test_group_members import ANY_FORM, SIZE, member

from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.changes import Seen
from flowsched_k8s.groups.gang_start import GangStart, digest, gang_starts, read_start
from flowsched_k8s.groups.pod_groups import LABELS, TIMEOUT_S
from flowsched_k8s.objects import Pod

OWNER = ("ReplicaSet", "rs")


def scheduler(form: str, server: ModelServer | None = None, minimum: int = SIZE, **features: Any) -> ModelScheduler:
    """With three nodes for one member each."""
    return group_members.scheduler(form, SIZE, server, minimum, **features)


def half_bound(form: str = LABELS, sent: int = 1, **fields: Any) -> ModelScheduler:
    """The scheduler ends after the first bindings; what the others were to have goes."""
    minimum = fields.get("minimum", SIZE)
    running = scheduler(form, minimum=minimum)
    running.create(*(member(form, f"m-{i}", **{"owner": OWNER, **fields}) for i in range(SIZE)))
    running.round()
    for _ in range(sent):
        running.send()
    server = running.server
    assert len(running.where()) == sent
    for name in sorted(server.nodes.keys() - set(running.where().values())):
        server.remove(server.nodes[name])
    return scheduler(form, server)


def wait(running: ModelScheduler, seconds: float, step: float = 10.0) -> None:
    for _ in range(int(seconds / step)):
        running.tick(step)


def asked(running: ModelScheduler) -> list[str]:
    return sorted(key.name for key in (*running.victims, *running.moves))


def again(running: ModelScheduler) -> None:
    """Pods that were asked to go are gone, and their controller has made others."""
    victims = dict.fromkeys(running.victims)
    running.victims.clear()
    for victim in victims:
        pod = running.server.read(victim)
        assert pod is not None
        running.server.remove(pod)
        notes = {k: v for k, v in (pod.metadata.annotations or {}).items() if not k.startswith(names.PREFIX)}
        meta = replace(pod.metadata, name=f"{pod.metadata.name}-again", annotations=notes)
        running.create(replace(pod, metadata=meta, spec=replace(pod.spec, node_name="")))


# Finished or undone


@ANY_FORM
def test_a_gang_that_was_never_whole_is_undone_after_its_timeout(form: str) -> None:
    running = half_bound(form)
    wait(running, TIMEOUT_S - 20.0)
    assert asked(running) == []
    wait(running, 40.0)
    assert asked(running) == list(running.where())
    (event,) = running.events(asked(running)[0])
    assert (event.reason, event.type) == (names.GROUP_UNDONE, "Warning")
    assert "never had the 3 pods on nodes that it starts with: 1 are" in event.note
    again(running)
    running.settle(within=30.0)
    assert running.where() == {}, "all wait again"
    running.put(*(b.node(f"new-{i}", "2") for i in range(2)))
    running.settle(within=60.0)
    assert len(running.where()) == SIZE


@ANY_FORM
@pytest.mark.parametrize("sent", [1, 2])
def test_a_gang_is_completed_where_there_is_room(form: str, sent: int) -> None:
    running = half_bound(form, sent)
    running.settle(within=5.0)
    assert len(running.where()) == sent
    running.put(*(b.node(f"new-{i}", "2") for i in range(SIZE - sent)))
    running.settle(within=60.0)
    assert len(running.where()) == SIZE
    wait(running, 2 * TIMEOUT_S)
    assert asked(running) == []


def test_it_is_undone_where_the_node_of_a_bound_member_is_gone() -> None:
    """Three nodes: one binding is sent to a node that goes, and its pod with it, one to a node that stays."""
    running = half_bound(sent=2)
    lost = running.server.pods["default", min(running.where())]
    running.server.remove(running.server.nodes[lost.spec.node_name])
    running.deliver()
    running.server.remove(lost)
    running.create(member(LABELS, "replacement", owner=OWNER))
    wait(running, TIMEOUT_S + 20.0)
    assert asked(running) == list(running.where())


def test_it_is_undone_where_a_binding_is_refused_again_and_again() -> None:
    running = scheduler(LABELS)
    running.create(*(member(LABELS, f"m-{i}", owner=OWNER) for i in range(SIZE)))
    running.round()
    running.send()
    running.send()
    running.fail(BindOutcome.REFUSED)
    for _ in range(40):
        running.server.now += 10.0
        while running.binds:
            running.fail(BindOutcome.REFUSED)
        running._carry_out(running.state.incomplete_gangs.look(running.now))
        running.deliver()
        running.round()
    assert set(asked(running)) == running.where().keys()
    assert len(running.where()) == 2


def test_without_a_right_to_evict_nothing_is_undone() -> None:
    running = half_bound()
    running = scheduler(LABELS, running.server, preemption=False)
    wait(running, 2 * TIMEOUT_S)
    assert asked(running) == []


def test_with_rebalancing_alone_the_api_server_is_asked() -> None:
    running = half_bound()
    running = scheduler(LABELS, running.server, preemption=False, rebalancing=True)
    wait(running, TIMEOUT_S + 20.0)
    assert (len(running.moves), running.victims) == (1, [])
    # It refuses: a minute later it is asked again.
    running.move(refused="it would break a budget")
    wait(running, 40.0)
    assert running.moves == []
    wait(running, 40.0)
    assert len(running.moves) == 1
    running.move()
    wait(running, 100.0)
    assert running.moves == []


def test_disruption_budgets_are_kept() -> None:
    labels = {"labels": member(LABELS, "x").metadata.labels | {"app": "g"}}  # type: ignore[operator]
    running = half_bound(sent=2, **labels)
    running.observe([Seen(b.budget("keep", b.selector(app="g"), allowed=1))])
    wait(running, TIMEOUT_S + 20.0)
    assert len(asked(running)) == 1
    running.victims.clear()
    running.observe([Seen(b.budget("keep", b.selector(app="g"), allowed=0))])
    wait(running, 120.0)
    assert asked(running) == []
    running.state.budgets.unreadable = "forbidden"
    running.observe([Seen(b.budget("keep", b.selector(app="g"), allowed=2))])
    wait(running, 120.0)
    assert asked(running) == []
    running.state.budgets.unreadable = ""
    wait(running, 120.0)
    assert len(set(asked(running))) == 2


def test_room_that_is_being_made_for_the_others_is_waited_for() -> None:
    running = half_bound(sent=2, priority=10)
    running.put(b.node("full", "2"), b.pod("low", node="full", cpu="2", scheduler="other"))
    wait(running, 20.0)
    assert asked(running) == ["low"]
    pod = running.server.pods["default", "low"]
    running.server.terminate(pod, 3600)
    wait(running, TIMEOUT_S + 60.0)
    assert asked(running) == ["low"]
    running.server.remove(pod)
    wait(running, TIMEOUT_S)
    assert len(running.where()) == SIZE


# Gangs that ran


def ran(form: str = LABELS, count: int = SIZE, **fields: Any) -> ModelScheduler:
    """A whole gang."""
    running = scheduler(form, minimum=fields.get("minimum", SIZE))
    running.create(*(member(form, f"m-{i}", **{"owner": OWNER, **fields}) for i in range(count)))
    running.settle(within=5.0)
    assert len(running.where()) == min(count, SIZE)
    return running


def failed(running: ModelScheduler) -> None:
    """Its replacement has no room."""
    running.server.finish(running.server.pods["default", "m-0"], "Failed")
    running.server.cordon("n0")
    running.server.cordon("n1")
    running.server.cordon("n2")
    running.create(member(LABELS, "replacement", owner=OWNER))


def deleted(running: ModelScheduler) -> None:
    running.server.remove(running.server.pods["default", "m-0"])


def node_gone(running: ModelScheduler) -> None:
    lost = running.server.pods["default", "m-0"]
    running.server.remove(running.server.nodes[lost.spec.node_name])
    running.deliver()
    running.server.remove(lost)
    running.create(member(LABELS, "replacement", owner=OWNER))


def two_gone_at_once(running: ModelScheduler) -> None:
    for name in ("m-0", "m-1"):
        lost = running.server.pods["default", name]
        running.server.remove(running.server.nodes[lost.spec.node_name])
        running.deliver()
        running.server.remove(lost)
        running.create(member(LABELS, f"{name}-again", owner=OWNER))


def succeeded(running: ModelScheduler) -> None:
    running.server.finish(running.server.pods["default", "m-1"], "Succeeded")
    failed(running)


def needs_more(running: ModelScheduler) -> None:
    """A pod that waits raises the minimum."""
    running.create(*(member(LABELS, f"more-{i}", minimum=5, owner=OWNER) for i in range(2)))


ENDS = [failed, succeeded, deleted, node_gone, two_gone_at_once, needs_more]


@pytest.mark.parametrize("restarted", [False, True], ids=["same leader", "next leader"])
@pytest.mark.parametrize("what", ENDS, ids=lambda what: what.__name__)
def test_a_gang_that_ran_is_left_alone(what: Callable[[ModelScheduler], None], restarted: bool) -> None:
    running = ran()
    what(running)
    if restarted:
        running = scheduler(LABELS, running.server)
    wait(running, 3 * TIMEOUT_S)
    assert asked(running) == []


@pytest.mark.parametrize("restarted", [False, True], ids=["same leader", "next leader"])
def test_members_beyond_the_minimum_that_never_started_undo_nothing(restarted: bool) -> None:
    """Four pods, three of them run, which is enough; then one fails, and its replacement waits beside the fourth."""
    running = ran(count=SIZE + 1)
    failed(running)
    if restarted:
        running = scheduler(LABELS, running.server)
    wait(running, 3 * TIMEOUT_S)
    assert asked(running) == []


def test_a_start_of_more_than_the_minimum_counts_what_never_ran() -> None:
    """Of three that start together two would do: with one on a node it was never enough, with two it was."""
    running = half_bound(minimum=2)
    wait(running, TIMEOUT_S + 20.0)
    assert len(asked(running)) == 1
    running = half_bound(sent=2, minimum=2)
    wait(running, 2 * TIMEOUT_S)
    assert asked(running) == []
    # One of the two goes: they were enough together.
    running.server.remove(running.server.pods["default", min(running.where())])
    for name in running.server.nodes:
        running.server.cordon(name)
    running = scheduler(LABELS, running.server)
    wait(running, 2 * TIMEOUT_S)
    assert asked(running) == []


@pytest.mark.parametrize("how", ["by hand", "another scheduler", "without a note", "another note"])
def test_members_that_flowsched_did_not_start_keep_all(how: str) -> None:
    running = scheduler(LABELS)
    pods = [member(LABELS, f"m-{i}", owner=OWNER) for i in range(SIZE)]
    running.create(*pods)
    running.round()
    running.send()
    running.binds.clear()
    server = running.server
    other = server.pods["default", next(p for p in ("m-0", "m-1") if p not in running.where())]
    notes = {"another note": {names.PLACEMENT: '{"node":"n1","round":"x"}'}, "by hand": {"a": "b"}}.get(how, {})
    if how == "another scheduler":
        server.put(replace(other, spec=replace(other.spec, scheduler_name="other")))
    server.bind(key_of(other), "n1", notes, ours=False)
    for name in sorted(server.nodes):
        server.cordon(name)
    running = scheduler(LABELS, server)
    wait(running, 2 * TIMEOUT_S)
    assert asked(running) == []


# What a pod carries


def test_of_a_start_that_did_not_end_some_pod_on_a_node_names_one_that_waits() -> None:
    uids = [f"uid-{i}" for i in range(30)]
    starts = gang_starts(uids, 30, 30)
    for bound in ({"uid-3"}, set(uids) - {"uid-7"}, set(uids[::2])):
        named = {other for uid in bound for other in starts[uid].others}
        assert named & {digest(uid) for uid in set(uids) - bound}
    assert gang_starts(["only"], 3, 3) == {"only": GangStart(3, 3)}


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"round":1}', '{"round":1,"start":{"pods":"x"}}', '{"start":{"pods":1,"minimum":1}}', "[]", "\ud800"],
)
def test_a_note_that_was_changed_says_nothing(text: str) -> None:
    pod: Pod = b.pod(annotations={names.PLACEMENT: "x"})
    notes = {names.PLACEMENT: text}
    assert read_start(replace(pod, metadata=replace(pod.metadata, annotations=notes))) is None
    assert read_start(b.pod()) is None


def test_only_members_of_groups_carry_it() -> None:
    running = scheduler(LABELS)
    running.create(b.pod("alone", cpu="1"), *(member(LABELS, f"m-{i}", minimum=2, cpu="1") for i in range(2)))
    running.settle(within=5.0)
    starts = {name: read_start(pod) for (_, name), pod in running.server.pods.items()}
    assert starts["alone"] is None
    first, second = (key_of(running.server.pods["default", f"m-{i}"]).uid for i in range(2))
    assert starts["m-0"] == (1, GangStart(2, 2, (digest(second),)))
    assert starts["m-1"] == (1, GangStart(2, 2, (digest(first),)))


# Whatever happens

HAPPENINGS = ("killed", "killed", "restart", "fail", "delete", "succeed", "node", "wait", "wait")
STEPS = st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 5)), min_size=3, max_size=10)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, minimum=st.integers(2, 3), count=st.integers(2, 4))
def test_only_gangs_that_never_ran_whole_are_undone(steps: list[tuple[str, int]], minimum: int, count: int) -> None:
    running = scheduler(LABELS)
    server = running.server
    running.create(*(member(LABELS, f"m-{i}", minimum=minimum, owner=OWNER) for i in range(count)))
    most, made = 0, count
    for step, pick in steps:
        there = sorted(name for _, name in server.pods if server.pods["default", name].status.phase == "Pending")
        nodes = sorted(server.nodes)
        match step:
            case "killed":
                running.round()
                for _ in range(min(pick // 2, len(running.binds))):
                    running.send()
                for name in nodes:
                    server.cordon(name)
                running = scheduler(LABELS, server)
            case "restart":
                running = scheduler(LABELS, server)
            case "fail" | "succeed" | "delete" if there:
                pod = server.pods["default", there[pick % len(there)]]
                if step == "delete" or not pod.spec.node_name:
                    server.remove(pod)
                else:
                    server.finish(pod, "Failed" if step == "fail" else "Succeeded")
                if step != "succeed":
                    running.create(member(LABELS, f"m-{made}", minimum=minimum, owner=OWNER))
                    made += 1
            case "node":
                running.put(b.node(f"n{pick}", "2"))
            case "wait":
                wait(running, TIMEOUT_S + 120.0, 60.0)
        running.deliver()
        bound = [p for p in server.pods.values() if p.spec.node_name and p.status.phase == "Pending"]
        most = max(most, len(bound))
        assert not running.victims or most < minimum
        again(running)

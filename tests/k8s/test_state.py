"""The state machine, one situation at a time. What happens at random is in test_state_machine.py."""

from __future__ import annotations

import json
from dataclasses import replace as changed
from typing import Any

import objects_builders as b
import pytest
from consistency import check_state
from hypothesis import given
from hypothesis import strategies as st
from model_scheduler import CATALOGUE, ModelScheduler
from model_server import ModelServer, key_of
from msgspec.structs import replace

from flowsched.cluster.settings import Settings
from flowsched.solvers import make_solver
from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.causes import Wake
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice, Features, Rounds
from flowsched_k8s.groups.pod_groups import KUEUE_LABEL, KUEUE_TOTAL, MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.instructions import Evict, PatchCondition, PostEvent, Resize
from flowsched_k8s.notices.explanation import placement_note
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.readings import seconds
from flowsched_k8s.preemption import evictions
from flowsched_k8s.records.state_dump import dump, whole
from flowsched_k8s.rounds.planning import make_engine, plan_any_round
from flowsched_k8s.rounds.round_input import Chosen


def scheduler(*nodes: Any, **features: Any) -> ModelScheduler:
    """A scheduler that knows these nodes."""
    server = ModelServer()
    for node in nodes:
        server.put(node)
    return ModelScheduler(server, Configuration(features=Features(**features)))


def gang(name: str, minimum: int, **labels: str) -> dict[str, str]:
    return {NAME_LABEL: name, MINIMUM_LABEL: str(minimum), **labels}


def decided(running: ModelScheduler) -> dict[str, str]:
    """Nodes of the pods that this round binds, by name."""
    return {bind.pod.name: bind.node for bind in running.round()}


# From a decision to a bound pod


def test_a_place_is_taken_from_the_decision_on_and_confirmed_by_the_watch() -> None:
    running = scheduler(b.node("n1", "2"))
    (first,) = running.create(b.pod("first", cpu="1500m"))
    assert decided(running) == {"first": "n1"}
    entry = running.state.cache.pods[first.metadata.uid]
    assert (entry.assumed, entry.node) == ("n1", "")
    running.create(b.pod("second", cpu="1"))
    assert decided(running) == {}, "the room is spoken for although nothing is bound yet"
    assert running.send() is BindOutcome.BOUND
    running.reply()
    assert [e.note for e in running.events("first")] == ["Successfully assigned default/first to n1"]
    running.deliver()
    assert (entry.assumed, entry.node) == ("", "n1")
    assert whole(dump(running.state, running.now))["assumed"] == {}


def test_the_watch_may_be_faster_than_the_reply() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    running.round()
    running.send()
    running.deliver()
    running.reply()
    assert [e.reason for e in running.events("p")] == [names.SCHEDULED]
    running.server.now += 100.0
    running.overdue()
    assert not running.reads


def test_a_pod_that_another_scheduler_bound_first_is_left_alone() -> None:
    running = scheduler(b.node("n1"), b.node("n2"))
    (pod,) = running.create(b.pod("p", cpu="1"))
    ((bind),) = running.round()
    other = "n2" if bind.node == "n1" else "n1"
    running.server.bind(key_of(pod), other, ours=False)
    assert running.send() is BindOutcome.CONFLICT
    running.reply()
    assert running.state.cache.machines.fits_on({"cpu": 4000}, bind.node), "the place is free again"
    running.settle()
    assert running.where() == {"p": other}
    assert not running.server.bound


def test_a_single_pod_is_decided_at_once_and_several_are_gathered() -> None:
    running = scheduler(b.node("n1", "8"))
    window = running.state.configuration.rounds.batch_window_s
    running.create(b.pod("one", cpu="1"))
    assert running.state.next_round_s(running.now) == running.now
    running.create(b.pod("two", cpu="1"))
    assert running.state.next_round_s(running.now) == running.now + window
    running.settle()
    running.create(b.pod("measured", cpu="1", annotations={names.PROFILE: "radix"}))
    assert running.state.next_round_s(running.now) == running.now + window, "forecasts see those who come together"


@pytest.mark.parametrize(("took", "pause"), [(0.01, 0.0), (0.05, 0.2), (10.0, 0.25)])
def test_after_a_long_round_a_single_pod_waits_too(took: float, pause: float) -> None:
    """Watches and bindings need the processor meanwhile."""
    running = scheduler(b.node("n1", "8"))
    running.create(b.pod("one", cpu="1"))
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    result = plan_any_round(given, make_solver("ortools"), make_engine(given.settings, make_solver("ortools")))
    running.state.end_round(result, running.now, took)
    running.create(b.pod("two", cpu="1"))
    assert running.state.next_round_s(running.now) == pytest.approx(running.now + pause)


def test_a_conflict_is_tried_again_when_the_pod_waits_still() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    running.round()
    running.fail(BindOutcome.CONFLICT)
    assert decided(running) == {}, "not before its backoff is over"
    running.settle()
    assert running.where() == {"p": "n1"}


def test_a_pod_deleted_before_its_binding_is_forgotten() -> None:
    running = scheduler(b.node("n1", "1"))
    (pod,) = running.create(b.pod("p", cpu="1"))
    running.round()
    running.server.remove(pod)
    assert running.send() is BindOutcome.GONE
    running.reply()
    running.create(b.pod("next", cpu="1"))
    running.settle()
    assert running.where() == {"next": "n1"}
    assert not whole(dump(running.state, running.now))["waiting"]


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_reply_is_resolved_by_reading(arrived: bool) -> None:
    running = scheduler(b.node("n1"))
    (pod,) = running.create(b.pod("p", cpu="1"))
    running.round()
    if arrived:
        running.send()
        running.reply(lost=True)
    else:
        running.fail(BindOutcome.LOST)
    assert [asked.pod for asked in running.reads] == [key_of(pod)]
    assert decided(running) == {}, "no guess is made"
    running.read()
    assert len(running.server.bound) == arrived
    assert [e.reason for e in running.events("p")] == ([names.SCHEDULED] if arrived else [])
    running.settle()
    assert running.server.bound == [(pod.metadata.uid, "n1")]


def test_a_lost_reply_that_cannot_be_read_either_is_asked_for_again() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    running.round()
    running.fail(BindOutcome.LOST)
    running.reads.clear()
    running.server.now += 60.0
    running.overdue()
    assert len(running.reads) == 1
    running.settle()
    assert running.where() == {"p": "n1"}


def test_a_binding_that_no_watch_confirms_is_read() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    running.round()
    running.send()
    running.reply()
    running.overdue()
    assert not running.reads
    running.server.now += 60.0
    running.overdue()
    running.read()
    assert whole(dump(running.state, running.now))["assumed"] == {}


def test_a_refused_binding_says_so_and_is_tried_again() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    running.round()
    running.fail(BindOutcome.REFUSED, message="admission webhook said no")
    (condition,) = running.conditions("p")
    assert condition.reason == names.SCHEDULER_ERROR
    assert "admission webhook said no" in condition.message
    running.settle()
    assert running.where() == {"p": "n1"}


def test_a_pod_made_anew_under_its_name_is_another_pod() -> None:
    running = scheduler(b.node("n1", "1"), b.node("n2", "4"))
    (old,) = running.create(b.pod("p", cpu="1", nodeSelector={names.HOSTNAME: "n1"}))
    running.round()
    running.server.remove(old)
    new = running.server.put(b.pod("p", cpu="1", nodeSelector={names.HOSTNAME: "n2"}))
    assert running.send() is BindOutcome.CONFLICT, "the binding carries the uid"
    running.reply()
    running.settle()
    assert running.server.bound == [(new.metadata.uid, "n2")]
    running.create(b.pod("last", cpu="1", nodeSelector={names.HOSTNAME: "n1"}))
    running.settle()
    assert running.where()["last"] == "n1", "the old pod's place is free"


# While a round runs


def test_a_node_cordoned_while_a_round_runs_gets_no_pod() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    assert running.begin()
    running.plan()
    running.server.cordon("n1")
    running.deliver()
    assert running.end() == []
    running.put(b.node("n2"))
    running.settle()
    assert running.where() == {"p": "n2"}


def test_what_was_seen_while_a_round_ran_is_not_overcommitted() -> None:
    running = scheduler(b.node("n1", "2"), b.node("n2", "1"))
    running.create(b.pod("p", cpu="2"), b.pod("q", cpu="1", nodeSelector={names.HOSTNAME: "n2"}))
    assert running.begin()
    running.plan()
    running.create(b.pod("foreign", cpu="500m", node="n1", scheduler="other"))
    running.server.allocate("n2", cpu="500m")
    running.deliver()
    assert running.end() == []
    running.server.remove(running.server.pods["default", "foreign"])
    running.server.allocate("n2", cpu="1")
    running.settle()
    assert running.where() == {"p": "n1", "q": "n2"}


def test_all_of_a_group_is_taken_back_when_one_place_is_gone() -> None:
    running = scheduler(b.node("n1", "1"), b.node("n2", "1"))
    running.create(*(b.pod(f"m{i}", cpu="1", labels=gang("g", 2)) for i in range(2)))
    assert running.begin()
    running.plan()
    running.server.cordon("n2")
    running.deliver()
    assert running.end() == []
    assert running.state.cache.machines.fits_on({"cpu": 1000}, "n1")
    running.server.cordon("n2", False)
    running.settle()
    assert running.where().keys() == {"m0", "m1"}


def test_a_node_that_goes_before_the_binding_is_sent_is_not_bound_to() -> None:
    """The API server would bind to a node that does not exist."""
    running = scheduler(b.node("n1"), b.node("n2"))
    running.create(b.pod("p", cpu="1"))
    (bind,) = running.round()
    assert running.state.bindings.outdated(bind) is None
    running.server.remove(running.server.nodes[bind.node])
    running.deliver()
    assert "is gone" in (running.state.bindings.outdated(bind) or "")
    assert running.send() is None
    running.settle()
    assert running.where() == {"p": "n2" if bind.node == "n1" else "n1"}


def test_a_pod_that_is_deleted_or_bound_before_the_binding_is_sent_needs_none() -> None:
    running = scheduler(b.node("n1"), b.node("n2"))
    deleted, bound = running.create(b.pod("deleted", cpu="1"), b.pod("bound", cpu="1"))
    binds = {bind.pod.name: bind for bind in running.round()}
    running.server.terminate(deleted)
    running.server.bind(key_of(bound), "n1", ours=False)
    running.deliver()
    assert "deleted" in (running.state.bindings.outdated(binds["deleted"]) or "")
    assert "n1" in (running.state.bindings.outdated(binds["bound"]) or "")


@pytest.mark.parametrize(
    ("wanted", "other", "why"),
    [
        ({"cpu": "2"}, {"cpu": "500m"}, "Insufficient cpu"),
        ({"memory": "10Gi"}, {"memory": "8Gi"}, "Insufficient memory"),
        ({"containers": [b.container("main", ports=[{"containerPort": 80, "hostPort": 80}])]}, {}, names.PORTS),
        ({}, {"cpu": "1m"}, names.TOO_MANY_PODS),
    ],
)
def test_a_pod_whose_room_others_took_before_its_binding_is_sent_is_decided_anew_at_once(
    wanted: dict[str, Any], other: dict[str, Any], why: str
) -> None:
    most = "1" if why == names.TOO_MANY_PODS else "110"
    running = scheduler(*(b.node(name, "2", pods=most) for name in ("n1", "n2")))
    running.create(b.pod("p", **wanted))
    (bind,) = running.round()
    taken = {"containers": wanted["containers"]} if why == names.PORTS else other
    running.create(b.pod("foreign", node=bind.node, scheduler="other", **taken))
    assert running.state.bindings.outdated(bind) is None
    assert running.state.bindings.withheld(bind, running.now) == f"{bind.node} would refuse it by now: {why}"
    assert running.binds.pop() is bind
    assert running.state.next_round_s(running.now) == running.now, "it has not failed, so it does not back off"
    (again,) = running.round()
    assert again.node != bind.node
    running.settle()
    assert running.where() == {"foreign": bind.node, "p": again.node}
    assert running.state.tallies.binds == {"withdrawn": 1, "bound": 1}


def test_a_node_that_shrinks_before_the_binding_is_sent_gets_no_pod_that_it_has_no_room_for() -> None:
    running = scheduler(b.node("n1", "2"))
    running.create(b.pod("p", cpu="2"))
    running.round()
    running.server.allocate("n1", cpu="1")
    running.settle()
    assert running.where() == {}
    assert "Insufficient cpu" in running.conditions("p")[-1].message


def test_no_more_bindings_are_withheld_than_make_room() -> None:
    running = scheduler(b.node("n1", "4"))
    running.create(*(b.pod(f"p{i}", cpu="1") for i in range(4)))
    assert len(running.round()) == 4
    running.create(b.pod("foreign", cpu="1", node="n1", scheduler="other"))
    assert [running.send() for _ in range(4)] == [None, *[BindOutcome.BOUND] * 3]
    running.settle()
    assert len(running.where()) == 4


def test_a_pod_goes_where_others_took_only_what_it_does_not_need() -> None:
    running = scheduler(b.node("n1", "2", "1Gi"))
    running.create(b.pod("p", cpu="1"))
    running.round()
    running.create(b.pod("foreign", memory="2Gi", node="n1", scheduler="other"))
    assert running.send() is BindOutcome.BOUND


def test_a_pod_that_loses_its_room_again_and_again_backs_off() -> None:
    running = scheduler(*(b.node(f"n{i}", "1") for i in range(4)))
    running.create(b.pod("p", cpu="1"))
    waits = []
    for number in range(3):
        (bind,) = running.round()
        running.create(b.pod(f"foreign{number}", cpu="1", node=bind.node, scheduler="other"))
        assert running.send() is None
        at = running.state.next_round_s(running.now)
        assert at is not None
        waits.append(at - running.now)
        running.server.now = at
    assert waits == [0.0, 1.0, 2.0]
    running.settle()
    assert len(running.where()) == 4


def test_a_group_of_which_nothing_is_sent_is_decided_anew_as_a_whole() -> None:
    running = scheduler(*(b.node(f"n{i}", "1") for i in range(3)))
    running.create(*(b.pod(f"m{i}", cpu="1", labels=gang("g", 2)) for i in range(2)))
    first, second = running.round()
    running.create(b.pod("foreign", cpu="1", node=second.node, scheduler="other"))
    assert running.send(1) is None
    cache = running.state.cache
    assert all(cache.machines.fits_on({"cpu": 1000}, f"n{i}") == (f"n{i}" != second.node) for i in range(3))
    decided = running.round()
    assert len(decided) == 2
    # One of them is decided for the node of its first binding; that one must not count as the second.
    assert running.binds[0] is first
    assert running.send() is None
    running.settle()
    assert len(set(running.where().values())) == 3
    assert len(running.server.bound) == 2


def test_a_group_that_has_no_place_any_more_takes_none() -> None:
    running = scheduler(b.node("n1", "1"), b.node("n2", "1"))
    running.create(*(b.pod(f"m{i}", cpu="1", labels=gang("g", 2)) for i in range(2)))
    running.round()
    running.create(b.pod("foreign", cpu="1", node="n1", scheduler="other"))
    index = next(i for i, bind in enumerate(running.binds) if bind.node == "n1")
    assert running.send(index) is None
    running.settle()
    assert running.where() == {"foreign": "n1"}
    assert running.state.cache.machines.fits_on({"cpu": 1000}, "n2")


def test_a_group_keeps_its_places_once_one_of_it_is_sent() -> None:
    running = scheduler(*(b.node(f"n{i}", "1") for i in range(4)))
    running.create(*(b.pod(f"m{i}", cpu="1", labels=gang("g", 3)) for i in range(3)))
    sent, lost, kept = running.round()
    running.send()
    running.create(b.pod("foreign", cpu="1", node=lost.node, scheduler="other"))
    assert running.send() is None
    assert running.binds == [kept]
    assert running.state.bindings.withheld(kept, running.now) is None
    (again,) = running.round()
    assert again.pod == lost.pod
    assert again.node not in (sent.node, lost.node, kept.node)
    running.settle()
    assert len(set(running.where().values())) == 4


def test_new_profiles_may_come_while_a_round_runs() -> None:
    running = scheduler(b.node("n1"), b.node("n2"))
    notes = {names.PROFILE: "canneal"}
    running.create(b.pod("a", cpu="1", annotations=notes))
    running.settle()
    running.create(b.pod("b", cpu="1", annotations=notes), b.pod("c", cpu="1"))
    assert running.begin()
    running.plan()
    jobs = dict(CATALOGUE.jobs)
    del jobs["canneal"]
    running.state.use_catalogue(changed(CATALOGUE, jobs=jobs), running.now)
    running.end()
    running.settle()
    assert running.where().keys() == {"a", "b", "c"}
    check_state(running.state)


def test_a_scheduler_that_starts_in_the_middle_goes_on() -> None:
    running = scheduler(b.node("n1", "2"))
    running.create(b.pod("sent", cpu="1"), b.pod("unsent", cpu="1"))
    running.round()
    running.send()
    again = ModelScheduler(running.server)
    assert len(decided(again)) == 1
    again.settle()
    assert again.where() == {"sent": "n1", "unsent": "n1"}
    assert len(again.server.bound) == 2


# Order


def test_higher_priority_goes_first_within_a_round_and_when_room_appears() -> None:
    running = scheduler(b.node("n1", "1"))
    running.create(b.pod("low", cpu="1"), b.pod("high", cpu="1", priority=10), b.pod("middle", cpu="1", priority=5))
    for name in ("high", "middle", "low"):
        running.settle()
        assert running.where() == {name: "n1"}
        running.server.remove(running.server.pods["default", name])


def test_of_equals_the_older_goes_first() -> None:
    running = scheduler(b.node("n1", "1"))
    running.create(b.pod("z-older", cpu="1"))
    running.server.now += 2.0
    running.create(b.pod("a-younger", cpu="1"))
    running.settle()
    assert running.where() == {"z-older": "n1"}


def impatient(aging_crosses_priority: bool = False) -> Configuration:
    """Pods are due, and looked at again, ten times as soon as usual: a flood has to last that long."""
    engine = Settings(due_age_s=60.0, aging_crosses_priority=aging_crosses_priority)
    return Configuration(rounds=Rounds(unschedulable_retry_s=30.0), engine=engine)


def test_a_flood_of_small_pods_cannot_starve_a_large_one() -> None:
    """The adversary never lets the nodes empty at the same time, and fills every gap at once."""
    server = ModelServer()
    for name in ("n1", "n2"):
        server.put(b.node(name, "2"))
    running = ModelScheduler(server, impatient())
    small = 0
    running.create(*(b.pod(f"s{i}", cpu="1") for i in range(4)))
    running.settle()
    (large,) = running.create(b.pod("large", cpu="2"))
    for number in range(200):
        server.now += 1.0
        here = [p for p in server.pods.values() if p.spec.node_name and p.metadata.name != "large"]
        if here and number % 2:
            server.remove(min(here, key=lambda p: int(p.metadata.resource_version)))
        waiting = sum(p.metadata.name != "large" for p in server.waiting())
        for _ in range(3 - waiting):
            small += 1
            server.put(b.pod(f"t{small}", cpu="1"))
        running.deliver()
        at = running.state.next_round_s(server.now)
        if at is not None and at <= server.now + 0.5:
            running.round()
            running.answer_all()
        if server.pods["default", "large"].spec.node_name:
            break
    assert server.pods["default", "large"].spec.node_name
    assert server.now - seconds(large.metadata.creation_timestamp) < 120.0
    for _ in range(20):
        server.now += 1.0
        running.deliver()
        running.round()
        running.answer_all()
    full = len([p for p in server.pods.values() if p.spec.node_name])
    assert full == 3, "the other node is used as before"


@pytest.mark.parametrize("crosses", [False, True])
def test_a_flood_of_higher_priority_keeps_a_pod_out_unless_aging_crosses_priorities(crosses: bool) -> None:
    server = ModelServer()
    server.put(b.node("n1", "2"))
    running = ModelScheduler(server, impatient(aging_crosses_priority=crosses))
    running.create(*(b.pod(f"s{i}", cpu="1", priority=10) for i in range(2)))
    running.settle()
    running.create(b.pod("large", cpu="2"))
    for number in range(100):
        server.now += 1.0
        here = [p for p in server.pods.values() if p.spec.node_name and p.metadata.name != "large"]
        if here and number % 2:
            server.remove(min(here, key=lambda p: int(p.metadata.resource_version)))
        if not any(p.metadata.name != "large" for p in server.waiting()):
            server.put(b.pod(f"t{number}", cpu="1", priority=10))
        running.deliver()
        at = running.state.next_round_s(server.now)
        if at is not None and at <= server.now + 0.5:
            running.round()
            running.answer_all()
        if server.pods["default", "large"].spec.node_name:
            break
    assert bool(server.pods["default", "large"].spec.node_name) is crosses


def test_a_due_pod_is_given_another_node_when_its_own_will_not_take_it_any_more() -> None:
    running = scheduler(b.node("n1", "2"), b.node("n2", "2"))
    server = running.server
    running.create(*(b.pod(f"s{i}", cpu="1") for i in range(4)))
    running.settle()
    running.create(b.pod("large", cpu="2"))
    for _ in range(3):
        server.now += 310.0
        running.settle()
    held = whole(dump(running.state, running.now))["held_nodes"]
    assert held is not None
    (node,) = held["pods"].values()
    server.cordon(node)
    server.now += 310.0
    running.settle()
    other = whole(dump(running.state, running.now))["held_nodes"]
    assert other is not None and node not in other["pods"].values()


def test_when_a_due_pod_goes_its_node_is_open_to_others_at_once() -> None:
    running = scheduler(b.node("n1", "2"))
    server = running.server
    running.create(b.pod("s1", cpu="1"), b.pod("s2", cpu="1"))
    running.settle()
    (large,) = running.create(b.pod("large", cpu="2"))
    for _ in range(3):
        server.now += 310.0
        running.settle()
    server.remove(server.pods["default", "s1"])
    running.create(b.pod("small", cpu="1"))
    running.settle()
    assert "small" not in running.where()
    server.remove(large)
    running.settle()
    assert running.where() == {"s2": "n1", "small": "n1"}


# Waking


def test_a_pod_apart_in_its_zone_is_woken_though_the_node_itself_is_full() -> None:
    running = scheduler(b.node("n1", "1", zone="z"), b.node("n2", "2", zone="z"))
    apart = b.affinity(apart=[b.pod_term(names.ZONE, b.selector(app="a"))])
    running.create(b.pod("a", cpu="500m", labels={"app": "a"}, nodeSelector={names.HOSTNAME: "n1"}))
    running.settle()
    running.create(b.pod("holder", cpu="2", affinity=apart))
    running.settle()
    assert "holder" not in running.where()
    running.server.remove(running.server.pods["default", "a"])
    running.settle()
    assert running.where() == {"holder": "n2"}


def test_room_of_a_pod_that_went_while_its_round_ran_goes_to_who_was_refused_it() -> None:
    running = scheduler(b.node("n1", "1"))
    (first,) = running.create(b.pod("first", cpu="1", priority=1))
    running.create(b.pod("second", cpu="1"))
    assert running.begin()
    running.plan()
    running.server.remove(first)
    running.deliver()
    assert running.end() == []
    running.settle()
    assert running.where() == {"second": "n1"}


def test_a_group_is_woken_by_a_member_that_another_scheduler_placed() -> None:
    running = scheduler(b.node("n1", "2"))
    running.create(b.pod("theirs", cpu="2", labels=gang("g", 2), scheduler="other"))
    running.create(b.pod("ours", cpu="1", labels=gang("g", 2)))
    running.settle()
    assert running.where() == {}
    running.put(b.node("n2", "2"))
    running.settle()
    running.server.bind(key_of(running.server.pods["default", "theirs"]), "n1", ours=False)
    running.settle()
    assert running.where().keys() == {"ours", "theirs"}


def queued(name: str, total: int = 3, **more: Any) -> Pod:
    """A pod of a group of Kueue's."""
    return b.pod(name, cpu="1", labels={KUEUE_LABEL: "g"}, annotations={KUEUE_TOTAL: str(total)}, **more)


def said(running: ModelScheduler, name: str) -> str:
    """Why a pod waits; its condition says so at once, or some seconds after it last said something else."""
    return running.state.cache.pods[running.server.pods["default", name].metadata.uid].message


def test_a_group_of_kueue_starts_when_the_last_gate_is_gone() -> None:
    running = scheduler(b.node("n1", "3"))
    pods = running.create(*(queued(f"m{i}", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]) for i in range(3)))
    for left in (2, 1):
        running.server.ungate(pods[left])
        running.settle()
        assert running.where() == {}
        told = f"waiting for pod group g: scheduling gates on {left} of its 3 pods"
        assert said(running, "m2") == f"0/1 nodes are available. {told}"
    assert running.told == [], "a group that is let go pod by pod would be told of each"
    running.server.now += 11.0
    late = running.state.notices.again(running.state.waiting.postponed, running.now)
    assert {t.pod.name for t in late if isinstance(t, PatchCondition)} == {"m1", "m2"}
    running.server.ungate(pods[0])
    running.settle()
    assert running.where() == {f"m{i}": "n1" for i in range(3)}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_failed_pod_of_kueue_is_replaced_when_others_have_succeeded(restarted: bool) -> None:
    running = scheduler(b.node("n1", "3"))
    pods = running.create(*(queued(f"m{i}") for i in range(3)))
    running.settle()
    running.server.finish(pods[0])
    running.server.finish(pods[1])
    running.server.finish(pods[2], "Failed")
    running.deliver("pods")
    if restarted:
        running = ModelScheduler(running.server)
    running.create(queued("again"))
    if not restarted:
        assert running.round() == [], "what the other watch tells is not known yet"
    running.settle()
    assert running.where()["again"] == "n1"


def test_failed_pods_of_kueue_are_replaced_together() -> None:
    running = scheduler(b.node("n1", "3"))
    pods = running.create(*(queued(f"m{i}") for i in range(3)))
    running.settle()
    for pod in pods[1:]:
        running.server.finish(pod, "Failed")
    running.create(queued("again"))
    running.settle()
    assert said(running, "again").endswith("waiting for pod group g: 2 of 3 pods are there")
    running.server.finish(pods[0])
    running.settle()
    assert said(running, "again").endswith("2 of 3 pods are there, 1 succeeded")
    running.create(queued("and-again"))
    running.settle()
    assert {"again", "and-again"} <= running.where().keys()


def test_a_pod_that_is_deleted_before_it_had_a_place_is_not_there() -> None:
    running = scheduler(b.node("n1", "2"))
    pods = running.create(*(queued(f"m{i}") for i in range(3)))
    running.settle()
    running.server.terminate(pods[0])
    running.put(b.node("n2", "2"))
    running.settle()
    assert running.where() == {}
    assert said(running, "m1").endswith("waiting for pod group g: 2 of 3 pods are there")
    running.create(queued("again"))
    running.settle()
    assert running.where().keys() == {"m1", "m2", "again"}


@pytest.mark.parametrize("at_once", [True, False])
def test_the_others_of_a_group_say_that_a_member_has_gone(at_once: bool) -> None:
    running = scheduler(b.node("n1", "3"))
    pods = running.create(*(queued(f"m{i}") for i in range(2)))
    running.settle()
    assert said(running, "m1").endswith("waiting for pod group g: 2 of 3 pods are there")
    if at_once:
        running.server.remove(pods[0])
    else:
        running.server.terminate(pods[0])
    running.settle()
    assert said(running, "m1").endswith("waiting for pod group g: 1 of 3 pods are there")


def test_a_gang_past_its_deadline_is_tried_when_a_node_comes() -> None:
    running = scheduler(b.node("n1", "1"))
    running.put(b.plugins_group("train", minMember=2, scheduleTimeoutSeconds=10))
    labels = {"scheduling.x-k8s.io/pod-group": "train"}
    running.create(*(b.pod(f"m{i}", cpu="1", labels=labels) for i in range(2)))
    running.settle()
    running.server.now += 20.0
    running.put(b.node("n2", "500m"))
    running.settle()
    assert running.where() == {}
    running.server.now += 20.0
    running.create(b.pod("wakes", cpu="1", labels=labels))
    running.settle(within=5.0)
    assert "found no place for 2 pods within 10 s" in running.conditions("m0")[-1].message
    running.server.now += 20.0
    running.put(b.node("n3", "2"))
    running.settle(within=15.0)
    assert running.where().keys() == {"m0", "m1", "wakes"}


def test_a_gang_past_its_deadline_is_tried_when_a_node_grows() -> None:
    running = scheduler(b.node("n1", "1"))
    running.create(*(b.pod(f"m{i}", cpu="1", labels=gang("g", 2)) for i in range(2)))
    running.settle()
    running.server.now += 400.0
    running.server.allocate("n1", cpu="2")
    running.settle(within=15.0)
    assert running.where() == {"m0": "n1", "m1": "n1"}


def test_memory_that_a_resize_gives_back_wakes_those_who_wait_for_it() -> None:
    running = scheduler(b.node("n1", "4", "4Gi"))
    running.create(b.pod("large", cpu="1", memory="3Gi"))
    running.settle()
    running.create(b.pod("waits", cpu="1", memory="2Gi"))
    running.settle()
    bound = running.server.pods["default", "large"]
    smaller = b.pod("x", cpu="1", memory="1Gi").spec.containers
    running.server.put(replace(bound, spec=replace(bound.spec, containers=smaller)))
    running.settle()
    assert running.where() == {"large": "n1", "waits": "n1"}


def running_with(cpu: str) -> dict[str, Any]:
    """Status of a pod whose container has got so much CPU; no condition tells of a resize."""
    status = {"name": "main", "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
    return {"phase": "Running", "containerStatuses": [status]}


def test_a_resize_down_frees_its_room_when_the_kubelet_has_done_it() -> None:
    running = scheduler(b.node("n1", "4"))
    running.create(b.pod("large", cpu="3", node="n1", status=running_with("3")))
    running.create(b.pod("waits", cpu="2"))
    running.settle()
    running.put(b.pod("large", cpu="1", node="n1", status=running_with("3")))
    running.settle()
    assert running.where() == {"large": "n1"}, "the kubelet still grants what it had"
    running.put(b.pod("large", cpu="1", node="n1", status=running_with("1")))
    running.settle()
    assert running.where() == {"large": "n1", "waits": "n1"}


def test_a_resize_down_of_a_whole_pods_request_frees_its_room() -> None:
    running = scheduler(b.node("n1", "4"))

    def sized(desired: str, granted: str) -> Pod:
        status = {"phase": "Running", "resources": {"requests": {"cpu": granted}}}
        return b.pod("large", node="n1", resources={"requests": {"cpu": desired}}, status=status)

    running.create(sized("3", "3"))
    running.create(b.pod("waits", cpu="2"))
    running.settle()
    running.put(sized("1", "3"))
    running.put(sized("1", "1"))
    running.settle()
    assert running.where() == {"large": "n1", "waits": "n1"}


# Groups and relations in one round


def test_a_group_spread_over_zones_starts_at_once() -> None:
    running = scheduler(*(b.node(f"n{i}", "4", zone=f"z{i}") for i in range(2)))
    spread = [b.spread(names.ZONE, b.selector(app="a"))]
    pods = [b.pod(f"m{i}", cpu="1", labels=gang("g", 6, app="a"), topologySpreadConstraints=spread) for i in range(6)]
    running.create(*pods)
    places = decided(running)
    assert sorted(places.values()) == ["n0"] * 3 + ["n1"] * 3


def racks(*sizes: str, blocks: str = "") -> ModelScheduler:
    """A node with so many CPUs each, in racks r0, r1 ... (a letter for each node) of blocks."""
    nodes = []
    for i, size in enumerate(sizes):
        rack, cpu = size[0], size[1:]
        labels = {"rack": rack} | ({"block": blocks[i]} if blocks else {})
        nodes.append(b.node(f"{rack}-{i}", cpu, labels=labels))
    return scheduler(*nodes)


def near(name: str, count: int, keys: str, minimum: int | None = None, **fields: Any) -> list[Pod]:
    notes = {names.GROUP_TOPOLOGY: keys, **fields.pop("annotations", {})}
    labels = gang(name, minimum or count)
    return [b.pod(f"{name}-{i}", cpu="1", labels=labels, annotations=notes, **fields) for i in range(count)]


@pytest.mark.parametrize("said", [{}, {names.PROFILE: "canneal"}], ids=["plain", "measured"])
def test_all_of_a_group_go_to_the_rack_that_they_fill_most(said: dict[str, str]) -> None:
    """Not to the emptiest, which stays whole for a larger group; and one that comes later goes there too."""
    running = racks("a2", "a1", "b2", "b2", "b1", "c9")
    running.create(*near("g", 4, "rack", annotations=said))
    running.settle()
    assert {node[0] for node in running.where().values()} == {"b"}
    later = b.pod("g-late", cpu="1", labels=gang("g", 4), annotations={names.GROUP_TOPOLOGY: "rack", **said})
    running.create(later)
    running.settle()
    assert running.where()["g-late"][0] == "b"
    running.create(replace(later, metadata=replace(later.metadata, name="g-last", uid="last")))
    running.settle()
    assert "g-last" not in running.where()
    assert f"3 Insufficient cpu, 3 {names.GROUP_DOMAIN}." in running.conditions("g-last")[-1].message


def test_a_group_without_a_rack_that_has_room_goes_to_one_block() -> None:
    running = racks("a2", "b2", "c3", "d1", blocks="xxyy")
    running.create(*near("g", 4, "rack,block"))
    running.settle()
    assert len(set(running.where().values())) == 2
    assert {node[0] for node in running.where().values()} in ({"a", "b"}, {"c", "d"})


def test_a_group_waits_for_one_rack_though_the_cluster_has_room() -> None:
    running = racks("a2", "b2")
    running.create(*near("g", 3, "rack"))
    running.settle()
    assert running.where() == {}
    running.put(b.node("b-9", "1", labels={"rack": "b"}))
    running.settle()
    assert {node[0] for node in running.where().values()} == {"b"}


def test_where_no_rack_has_room_for_all_the_minimum_is_one_rack_too() -> None:
    running = racks("a2", "b3", "c1")
    running.create(*near("g", 5, "rack", minimum=3))
    running.settle()
    assert sorted(node[0] for node in running.where().values()) == ["b", "b", "b"]


def test_two_groups_of_one_round_do_not_count_on_the_same_rack() -> None:
    running = racks("a4", "b5")
    running.create(*near("g", 4, "rack"), *near("h", 4, "rack"))
    assert running.round()
    running.settle()
    where = running.where()
    assert {where[f"g-{i}"][0] for i in range(4)} == {"a"} and {where[f"h-{i}"][0] for i in range(4)} == {"b"}


def test_nodes_without_the_label_are_in_no_rack() -> None:
    running = scheduler(b.node("n0", "9"))
    running.create(*near("g", 2, "rack"))
    running.settle()
    assert running.where() == {}
    assert f"0/1 nodes are available: 1 {names.GROUP_DOMAIN}." in running.conditions("g-0")[-1].message


def test_of_two_gangs_of_one_second_the_older_wins() -> None:
    running = scheduler(b.node("n1", "2"))
    running.server.now += 0.2
    for name in ("zeta", "alpha"):
        running.server.now += 0.1
        running.create(*(b.pod(f"{name}-{i}", cpu="1", labels=gang(name, 2)) for i in range(2)))
    assert decided(running).keys() == {"zeta-0", "zeta-1"}


def test_of_two_gangs_that_the_watch_shows_at_once_the_first_wins() -> None:
    running = scheduler(b.node("n1", "2"))
    names_of = [f"{name}-{i}" for name in ("zeta", "alpha") for i in range(2)]
    running.create(*(b.pod(name, cpu="1", labels=gang(name.split("-")[0], 2)) for name in names_of))
    assert decided(running).keys() == {"zeta-0", "zeta-1"}


def test_of_two_measured_gangs_of_one_second_the_older_wins() -> None:
    running = scheduler(b.node("n1", "2"))
    notes = {names.PROFILE: "canneal"}
    for name in ("zeta", "alpha"):
        running.server.now += 0.1
        running.create(*(b.pod(f"{name}-{i}", cpu="1", labels=gang(name, 2), annotations=notes) for i in range(2)))
    assert decided(running).keys() == {"zeta-0", "zeta-1"}


def test_a_pod_may_come_with_the_one_that_it_wants_to_be_near() -> None:
    running = scheduler(b.node("n1"), b.node("n2"))
    near = b.affinity(near=[b.pod_term(names.HOSTNAME, b.selector(app="cache"))])
    running.create(b.pod("a-web", cpu="1", affinity=near), b.pod("z-cache", cpu="1", labels={"app": "cache"}))
    running.settle(within=5.0)
    assert len(set(running.where().values())) == 1 and len(running.where()) == 2


# Preemption


def preempting() -> tuple[ModelScheduler, Pod, Pod]:
    """A node that two small pods fill; a large one of higher priority has just asked them to go."""
    running = scheduler(b.node("n1", "2"), preemption=True)
    victims = running.create(b.pod("v1", cpu="1"), b.pod("v2", cpu="1"))
    running.settle()
    running.create(b.pod("large", cpu="2", priority=10))
    running.round()
    evicted = [i.pod.name for i in running.told if isinstance(i, Evict)]
    assert sorted(evicted) == ["v1", "v2"]
    assert running.conditions("large")[-1].nominated_node == "n1"
    return running, victims[0], victims[1]


def test_room_that_victims_leave_is_held_for_whom_they_left_it() -> None:
    running, v1, v2 = preempting()
    server = running.server
    server.remove(server.pods["default", v1.metadata.name])
    server.terminate(v2)
    running.create(b.pod("small", cpu="1"), b.pod("equal", cpu="1", priority=5))
    running.settle(within=30.0)
    assert running.where() == {"v2": "n1"}, "half of the room is there, and no other pod gets it"
    server.remove(server.pods["default", v2.metadata.name])
    running.settle()
    assert running.where() == {"large": "n1"}


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("model", ["flow", "coco", "load-spreading"])
def test_half_of_the_room_is_held_in_a_round_that_its_pod_takes_part_in(model: str, measured: bool) -> None:
    server = ModelServer()
    server.put(b.node("n1", "3"))
    running = ModelScheduler(
        server, Configuration(cost_model=CostModelChoice(model), features=Features(preemption=True))
    )
    said = {names.PROFILE: "canneal"} if measured else {}
    running.create(*(b.pod(f"v{i}", cpu="1", node="n1", scheduler="other") for i in range(3)))
    running.create(b.pod("large", cpu="3", priority=10, annotations=said))
    running.round()
    assert sorted(key.name for key in running.victims) == ["v0", "v1", "v2"]
    server.remove(server.pods["default", "v0"])
    running.deliver()
    running.create(b.pod("higher", cpu="500m", priority=20), *(b.pod(f"small-{i}", cpu="500m") for i in range(2)))
    server.now += 30.0
    running.state.queue.wake(Wake.ANY, running.now)
    assert running.begin()
    assert running.given is not None
    assert {c.name for c in running.given.classes} >= {"default/large", "default/higher", "default/small-0"}
    running.plan()
    assert [bind.pod.name for bind in running.end()] == ["higher"], "a lower priority takes none of it"
    running.answer_all()
    for pod in list(server.on("n1")):
        server.remove(pod)
    running.settle(within=60.0)
    assert running.where() == {"large": "n1"}


def test_room_on_a_node_that_goes_is_made_elsewhere() -> None:
    running, *_ = preempting()
    server = running.server
    for pod in list(server.on("n1")):
        server.remove(pod)
    server.remove(server.nodes["n1"])
    server.put(b.node("n2", "2"))
    running.settle()
    assert running.where() == {"large": "n2"}


def nomination(running: ModelScheduler, name: str) -> str:
    """As the API server has it."""
    return running.server.pods["default", name].status.nominated_node_name


def test_a_nomination_ends_with_its_node() -> None:
    running, *_ = preempting()
    assert nomination(running, "large") == "n1"
    running.server.remove(running.server.nodes["n1"])
    running.settle(within=5.0)
    assert nomination(running, "large") == ""
    assert running.state.cache.nominated == {}
    running.put(b.node("n2", "2"), b.pod("v3", cpu="1", node="n2"))
    running.settle(within=20.0)
    assert nomination(running, "large") == "n2", "room is made on another node at once"


def test_a_node_that_went_without_a_leader_ends_the_nomination() -> None:
    running, *_ = preempting()
    server = running.server
    server.remove(server.nodes["n1"])
    after = ModelScheduler(server, running.state.configuration)
    after.settle(within=5.0)
    assert nomination(after, "large") == ""


def test_a_higher_one_that_takes_the_room_leaves_the_preemptor_another_try() -> None:
    running, *_ = preempting()
    server = running.server
    for pod in list(server.on("n1")):
        server.remove(pod)
    running.create(b.pod("higher", cpu="2", priority=20))
    running.settle()
    assert running.where() == {"higher": "n1"}
    running.put(b.node("n2", "1"), b.pod("v3", cpu="1", node="n2"), b.node("n3", "2"))
    running.settle()
    assert running.where()["large"] == "n3"


def test_a_victim_that_could_not_be_evicted_is_asked_again_later() -> None:
    running, *_ = preempting()
    victims, running.victims = running.victims, []
    for victim in victims:
        running.state.evictions.failed(victim, "may not", running.now)
    running.settle()
    assert not running.victims, "not at once: a scheduler without the right to evict would keep asking"
    running.server.now += 310.0
    running.settle()
    assert sorted(running.victims) == sorted(victims)


def test_room_that_is_held_no_longer_is_open_to_others_at_once() -> None:
    running, *_ = preempting()
    server = running.server
    server.cordon("n1")
    server.put(b.node("n2", "2"))
    running.settle()
    assert running.where()["large"] == "n2"
    server.cordon("n1", False)
    server.remove(server.pods["default", "v1"])
    running.create(b.pod("small", cpu="1"))
    running.settle()
    assert running.where()["small"] == "n1"


def test_a_pod_placed_by_the_same_round_gives_its_place_back_and_is_not_deleted() -> None:
    running = scheduler(b.node("n1", "2"), preemption=True)
    running.create(b.pod("old", cpu="1"))
    running.settle()
    running.create(b.pod("large", cpu="2", priority=10), b.pod("small", cpu="1", priority=5))
    assert running.round() == []
    assert [victim.name for victim in running.victims] == ["old"]
    running.server.remove(running.server.pods["default", "old"])
    running.settle()
    assert running.where() == {"large": "n1"}


def until_all_have_room(running: ModelScheduler, count: int) -> float:
    """Seconds until all preemptors are bound, where victims go at once."""
    began = running.now
    for _ in range(200):
        while running.victims:
            pod = running.server.read(running.victims.pop())
            assert pod is not None, "no pod is evicted twice"
            running.server.remove(pod)
        running.deliver()
        if sum(name.startswith("high") for name in running.where()) == count:
            return running.now - began
        at = running.state.next_round_s(running.now)
        if at is not None:
            running.server.now = max(running.now, at)
        running.round()
        running.answer_all()
    raise AssertionError(f"only {running.where()} have room")


@pytest.mark.parametrize("work", [evictions.MOST_WORK, evictions.MOST_WORK // 10])
def test_pods_of_one_class_preempt_together(work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictions, "MOST_WORK", work)
    running = scheduler(*(b.node(f"n{i}", "2") for i in range(5)), preemption=True)
    running.create(*(b.pod(f"low{i}", cpu="1", node=f"n{i % 5}") for i in range(10)))
    running.create(*(b.pod(f"high{i}", cpu="1", priority=10) for i in range(10)))
    assert until_all_have_room(running, 10) < 2.0
    evicted = [i.pod.name for i in running.told if isinstance(i, Evict)]
    assert sorted(evicted) == sorted(f"low{i}" for i in range(10))


def test_one_victim_makes_room_for_several_of_a_class() -> None:
    running = scheduler(b.node("n1", "4"), b.node("n2", "4"), preemption=True)
    running.create(*(b.pod(f"low{i}", cpu="4", node=f"n{i}") for i in (1, 2)))
    running.create(*(b.pod(f"high{i}", cpu="1", priority=10) for i in range(4)))
    running.round()
    assert len(running.victims) == 1
    victim = running.server.read(running.victims[0])
    assert victim is not None
    assert {running.conditions(f"high{i}")[-1].nominated_node for i in range(4)} == {victim.spec.node_name}
    assert until_all_have_room(running, 4) < 2.0
    assert len([i for i in running.told if isinstance(i, Evict)]) == 1


def test_a_pod_whose_victims_take_long_does_not_back_off_longer() -> None:
    running = scheduler(b.node("n1", "2"), preemption=True)
    running.create(*(b.pod(f"low{i}", cpu="1", node="n1") for i in range(2)))
    running.create(*(b.pod(f"high{i}", cpu="1", priority=10) for i in range(2)))
    running.round()
    first, second = running.victims
    running.victims.clear()
    for key in (first, second):
        pod = running.server.read(key)
        assert pod is not None
        running.server.terminate(pod)
    for _ in range(20):
        # Every change of the pool wakes them, and they wait on.
        running.server.now += 1.5
        running.put(b.node("n2", "100m"))
        running.server.remove(running.server.nodes["n2"])
        running.settle(within=1.5)
    assert not running.victims
    for key in (first, second):
        running.server.remove(running.server.pods[key[:2]])
    assert until_all_have_room(running, 2) < 2.0


# Telling


def test_a_postponed_pod_hears_of_it_at_once_and_is_not_unschedulable() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1", annotations={names.MIN_UTILITY: "1"}))
    running.round()
    assert not running.conditions("p")
    (event,) = running.events("p")
    assert (event.reason, event.type) == (names.POSTPONED, "Normal")
    assert any(letter.isdigit() for letter in event.note)
    running.server.now += 700.0
    running.settle()
    assert running.where() == {"p": "n1"}, "once it is due it runs anyway"
    assert not running.conditions("p")


def test_a_pod_that_fits_nowhere_is_told_once_why() -> None:
    running = scheduler(b.node("n1", "1"), b.node("n2", cordoned=True))
    running.create(b.pod("p", cpu="2"))
    for _ in range(5):
        running.settle()
        running.server.now += 10.0
        running.put(b.node("n3", "500m"))
        running.server.remove(running.server.nodes["n3"])
    (condition, *later) = running.conditions("p")
    assert condition.reason == names.UNSCHEDULABLE
    assert condition.message == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    assert len(running.events("p")) <= 2
    assert len(later) <= 2


def test_nothing_is_decided_before_it_leads() -> None:
    running = scheduler(b.node("n1"))
    running.state.active = False
    running.create(b.pod("p", cpu="1"))
    assert running.state.next_round_s(running.now) is None
    running.state.activate()
    assert running.state.next_round_s(running.now) is not None


def test_a_fault_in_a_round_costs_a_backoff_and_nothing_else() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1"))
    assert running.begin()
    assert running.given is not None
    told = running.state.round_failed(running.given, "ZeroDivisionError: for the test", running.now)
    running.given = None
    assert [t.reason for t in told if isinstance(t, PatchCondition)] == [names.SCHEDULER_ERROR]
    assert [t.reason for t in told if isinstance(t, PostEvent)] == [names.FAILED_SCHEDULING]
    running.settle()
    assert running.where() == {"p": "n1"}


@given(
    st.text(min_size=1, max_size=253),
    st.dictionaries(st.text(max_size=300), st.floats(allow_nan=False, allow_infinity=False), max_size=40),
    st.one_of(st.none(), st.text(min_size=1, max_size=253)),
)
def test_a_placement_is_explained_in_less_than_a_kibibyte(
    node: str, terms: dict[str, float], other: str | None
) -> None:
    chosen = Chosen("uid", node, 1.5, terms, other, 2.5 if other is not None else None)
    note = placement_note(chosen, 10**9)
    assert len(note.encode()) < 1024
    assert json.loads(note)["node"] == node


def test_a_bound_pod_carries_its_threads_width_and_explanation() -> None:
    running = scheduler(b.node("n1", "4"))
    running.create(b.pod("p", cpu="2"))
    (bind,) = running.round()
    assert bind.annotations[names.THREADS] == "2"
    assert bind.annotations[names.WIDTH] == "2000m"
    assert bind.annotations[names.CORES] == "0-3"
    assert json.loads(bind.annotations[names.PLACEMENT])["node"] == "n1"


# In-place resize


def test_a_width_counts_once_the_api_server_agrees() -> None:
    running = scheduler(b.node("n1", "4"), resize=True)
    running.create(b.pod("busy", cpu="1", annotations={names.PROFILE: "blackscholes", names.WIDTHS: "4"}))
    running.settle()
    assert not [i for i in running.told if isinstance(i, Resize)], "alone, a wider share is worth nothing"
    (pod,) = running.create(b.pod("p", cpu="1", annotations={names.PROFILE: "blackscholes", names.WIDTHS: "3"}))
    running.settle()
    (asked,) = [i for i in running.told if isinstance(i, Resize)]
    assert asked.cpu_milli == {"main": 3000}
    entry = running.state.cache.pods[pod.metadata.uid]
    assert entry.width_milli == 3000, "both are held while it is under way"
    started = b.pod("p", cpu="1", status=running_with("1")).status
    running.put(replace(running.server.pods["default", "p"], status=started))
    assert entry.width_milli == 3000, "also when the kubelet tells what it has granted so far"
    running.state.resizes.done(entry.key, False, "no", running.now)
    assert entry.width_milli == 1000
    assert running.state.cache.machines.fits_on({"cpu": 2000}, "n1")


def test_tidying_up_knows_no_relation_that_the_machines_do_not() -> None:
    """What a gated pod wants is not worked out yet; a pod that it matches is bound by another scheduler."""
    running = scheduler(b.node("n1"))
    apart = b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(app="web"))])
    running.create(b.pod("gated", labels={"app": "web"}, affinity=apart, schedulingGates=[{"name": "wait"}]))
    running.state.tidy()
    running.create(b.pod("theirs", labels={"app": "web"}, node="n1", scheduler="other"))
    (gated,) = [p for p in running.server.pods.values() if p.metadata.name == "gated"]
    running.server.ungate(gated)
    running.deliver()
    assert decided(running) == {}
    assert running.conditions("gated")[-1].message == f"0/1 nodes are available: 1 {names.POD_ANTI_AFFINITY}."

"""Histories that are made up, each of which breaks one rule or just does not: a checker that cannot fail shows nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import objects_builders as b
import pytest
from audit import Write
from binding_checker import GANG_S, GRACE_S, RECOVERY_S, BindingChecker, Disturbance
from cluster_watch import Change

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.objects import Node, Pod

ONE, OTHER, ADMIN = "one", "other", "admin"
T = 1000.0
"""When histories begin to be interesting; what there was before is known to all."""


class History:
    """What happened, in seconds since ``T``, for a checker. The replica ``one`` has the lease from the beginning."""

    def __init__(self) -> None:
        self.checker = BindingChecker([ONE, OTHER], ["flowsched"])
        self._changes: list[Change] = []
        self._writes: list[Write] = []
        self._pods: dict[str, Pod] = {}
        self.lease(-100.0, ONE)

    def node(self, at: float = -100.0, **more: Any) -> None:
        self._change(at, b.node(**more))

    def node_gone(self, at: float, **more: Any) -> None:
        self._change(at, b.node(**more), gone=True)

    def pod(self, at: float, name: str, *, cpu: str = "1", **more: Any) -> None:
        self._pods[name] = b.pod(name, cpu=cpu, **more)
        self._change(at, self._pods[name])

    def deleted(self, at: float, name: str) -> None:
        self._change(at, self._pods.pop(name), gone=True)

    def changed(self, at: float, name: str, deleting: bool = False, **spec: Any) -> None:
        pod = self._pods[name]
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None)
        spec_ = msgspec.structs.replace(pod.spec, **spec)
        self._pods[name] = msgspec.structs.replace(pod, metadata=meta, spec=spec_)
        self._change(at, self._pods[name])

    def bind(self, at: float, name: str, node: str = "n1", by: str = ONE, code: int = 201, seen: bool = True) -> None:
        uid = f"uid-default-{name}"
        self._writes.append(Write(by, T + at - 0.01, T + at + 0.01, code, "bind", f"default/{name}", uid, node))
        if seen:
            self.changed(at, name, node_name=node)

    def write(self, at: float, does: str, name: str, by: str = ONE, code: int = 200) -> None:
        self._writes.append(Write(by, T + at, T + at, code, does, f"default/{name}", f"uid-default-{name}"))

    def lease(self, at: float, by: str, holder: bool = True, took: float = 0.0) -> None:
        held = f"{by}-process" if holder else ""
        self._writes.append(Write(by, T + at, T + at + took, 200, "lease", "home/flowsched", holder=held))

    def disturbed(self, begin: float, end: float) -> None:
        self.checker.disturbances.append(Disturbance(T + begin, T + end))

    def _change(self, at: float, thing: Pod | Node, gone: bool = False) -> None:
        self._changes.append(Change(len(self._changes), T + at, thing, gone))

    def violations(self, until: float = 5.0) -> list[str]:
        self._changes.sort(key=lambda change: change.at)
        self._writes.sort(key=lambda write: write.answered)
        self.checker.feed(self._changes, self._writes, T + until)
        self._changes, self._writes = [], []
        return self.checker.violations


@pytest.fixture
def history() -> History:
    made = History()
    made.node(name="n1", cpu="4", zone="a", resources={"example.com/card": "1"})
    made.node(name="n2", cpu="4", zone="b")
    return made


def one(found: list[str], *words: str) -> None:
    """There is one violation, and it has these words."""
    assert len(found) == 1, found
    assert [word for word in words if word not in found[0]] == [], found


def test_a_history_without_violations(history: History) -> None:
    for number in range(4):
        history.pod(-50.0, f"p{number}")
        history.bind(0.1 * number, f"p{number}")
    assert history.violations() == []
    assert history.checker.counts["bindings"] == history.checker.counts["writes"] == 4


# Bound once


def test_two_bindings_of_a_pod(history: History) -> None:
    history.pod(-50.0, "p")
    history.bind(0.0, "p", "n1")
    history.bind(0.5, "p", "n2", seen=False)
    one(history.violations(), "default/p was bound twice: to n1 and n2")


def test_a_pod_that_changes_its_node(history: History) -> None:
    history.pod(-50.0, "p")
    history.bind(0.0, "p", "n1")
    history.changed(1.0, "p", node_name="n2")
    one(history.violations(), "default/p went from n1 to n2")


def test_a_second_binding_that_is_refused_is_none(history: History) -> None:
    history.pod(-50.0, "p")
    history.bind(0.0, "p", "n1")
    history.bind(0.5, "p", "n2", code=409, seen=False)
    assert history.violations() == []


# Room


def test_more_cpu_than_there_is(history: History) -> None:
    for number in range(5):
        history.pod(-50.0, f"p{number}")
        history.bind(0.1 * number, f"p{number}")
    one(history.violations(), "default/p4 was bound to n1 by one", "too little cpu")


@pytest.mark.parametrize(
    ("more", "resource"),
    [
        ({"containers": [b.container("main", example__com="1")]}, ""),
        ({"containers": [b.container("main", memory="9Gi")]}, "memory"),
    ],
)
def test_more_of_other_resources_than_there_is(history: History, more: dict[str, Any], resource: str) -> None:
    if not resource:
        card = b.container("main")
        card["resources"] = {"requests": {"example.com/card": "1"}}
        more, resource = {"containers": [card]}, "example.com/card"
    for name in ("p", "q"):
        history.pod(-50.0, name, **more)
        history.bind(0.0, name)
    one(history.violations(), f"too little {resource}")


def test_more_pods_than_a_node_takes() -> None:
    history = History()
    history.node(name="n1", pods="1")
    for name in ("p", "q"):
        history.pod(-50.0, name)
        history.bind(0.0, name)
    one(history.violations(), "too little pods")


def test_room_of_a_pod_that_was_deleted_or_has_ended_is_free(history: History) -> None:
    history.pod(-50.0, "old", cpu="4", node="n1")
    history.pod(-50.0, "p", cpu="4")
    history.pod(-50.0, "q", cpu="4", node="n2", status={"phase": "Succeeded"})
    history.pod(-50.0, "r", cpu="4")
    history.deleted(-0.1, "old")
    history.bind(0.0, "p")
    history.bind(0.0, "r", "n2")
    assert history.violations() == []


def test_room_that_another_scheduler_takes(history: History) -> None:
    """It counts once it could be known, and at once if a replica took it."""
    for name in ("p", "q"):
        history.pod(-50.0, name, cpu="4")
    history.pod(-GRACE_S + 0.2, "foreign", node="n1", scheduler="another")
    history.bind(0.0, "p")
    history.pod(1.0, "foreign-too", node="n2", scheduler="another")
    history.bind(1.0 + GRACE_S + 0.2, "q", "n2")
    one(history.violations(), "default/q", "too little cpu")


def test_room_that_is_taken_while_replicas_are_cut_off(history: History) -> None:
    for name in ("p", "q"):
        history.pod(-50.0, name, cpu="4")
    history.disturbed(-20.0, -1.0)
    history.pod(-15.0, "foreign", node="n1", scheduler="another")
    history.bind(0.0, "p")
    history.pod(1.0, "foreign-too", node="n2", scheduler="another")
    history.bind(RECOVERY_S, "q", "n2")
    one(history.violations(until=20.0), "default/q", "too little cpu")


def test_a_node_that_becomes_smaller(history: History) -> None:
    for name in ("p", "q"):
        history.pod(-50.0, name, cpu="4")
    history.node(-0.2, name="n1", cpu="3", zone="a")
    history.bind(0.0, "p")
    history.node(-5.0, name="n2", cpu="3", zone="b")
    history.bind(0.0, "q", "n2")
    one(history.violations(), "default/q", "too little cpu")


def test_a_port_that_is_taken(history: History) -> None:
    for name in ("p", "q"):
        history.pod(-50.0, name, containers=[b.container(ports=[b.host_port(80)])])
        history.bind(0.0, name)
    one(history.violations(), "ports")


# Nodes


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"cordoned": True}, "cordoned"),
        ({"taints": [b.taint("dedicated", "x")]}, "taint"),
        ({"labels": {"disk": "slow"}}, "node selector"),
    ],
)
def test_a_node_that_keeps_pods_away(history: History, node: dict[str, Any], why: str) -> None:
    history.node(-50.0, name="n1", labels={"disk": "fast"})
    history.node(0.0, name="n1", **node)
    for name in ("early", "late"):
        history.pod(-50.0, name, nodeSelector={"disk": "fast"} if why == "node selector" else None)
    history.bind(GRACE_S - 0.1, "early")
    history.bind(GRACE_S + 0.1, "late")
    one(history.violations(), "default/late", why)


def test_a_node_that_is_gone(history: History) -> None:
    history.node_gone(0.0, name="n1")
    for name in ("early", "late"):
        history.pod(-50.0, name)
    history.bind(GRACE_S - 0.1, "early")
    history.bind(GRACE_S + 0.5, "late")
    one(history.violations(), "default/late", "which is not there")


# Relations


APART = b.affinity(apart=[b.pod_term("kubernetes.io/hostname", b.selector(app="web"))])
NEAR = b.affinity(near=[b.pod_term("topology.kubernetes.io/zone", b.selector(app="web"))])
SPREAD = [b.spread("topology.kubernetes.io/zone", b.selector(app="web"))]


def test_pods_that_must_be_apart(history: History) -> None:
    for name in ("p", "q"):
        history.pod(-50.0, name, labels={"app": "web"}, affinity=APART)
        history.bind(0.0, name)
    one(history.violations(), "anti-affinity")


def test_a_pod_that_must_be_near_another_one(history: History) -> None:
    history.pod(-50.0, "web", labels={"app": "web"}, node="n2")
    history.pod(-50.0, "p", affinity=NEAR)
    history.bind(0.0, "p", "n1")
    one(history.violations(), "default/p", "affinity")


@pytest.mark.parametrize("when", [-0.2, 0.2])
def test_a_pod_whose_company_is_deleted_or_bound_at_the_same_time(history: History, when: float) -> None:
    history.pod(-50.0, "p", affinity=NEAR)
    if when < 0:
        history.pod(-50.0, "web", labels={"app": "web"}, node="n1")
        history.deleted(when, "web")
    else:
        history.pod(-50.0, "web", labels={"app": "web"})
        history.bind(when, "web", "n1")
    history.bind(0.0, "p", "n1")
    assert history.violations() == []


def test_pods_that_must_be_spread(history: History) -> None:
    for number in range(3):
        history.pod(-50.0, f"p{number}", labels={"app": "web"}, topologySpreadConstraints=SPREAD)
        history.bind(3.0 * number, f"p{number}")
    found = history.violations(20.0)
    assert len(found) == 2 and all("spread" in violation for violation in found)


def test_pods_that_are_spread_in_any_order(history: History) -> None:
    """The bindings of a round arrive as they like."""
    for number, node in enumerate(("n1", "n1", "n2", "n2")):
        history.pod(-50.0, f"p{number}", labels={"app": "web"}, topologySpreadConstraints=SPREAD)
        history.bind(0.1 * number, f"p{number}", node)
    assert history.violations() == []


def test_what_pods_are_spread_among_is_not_judged_while_bindings_fail(history: History) -> None:
    history.disturbed(-3.0, -1.0)
    for number in range(3):
        history.pod(-50.0, f"p{number}", labels={"app": "web"}, topologySpreadConstraints=SPREAD)
        history.bind(3.0 * number, f"p{number}")
    assert history.violations(20.0) == []
    assert history.checker.counts["relations not judged while bindings fail"] == 2


# The lease


@pytest.mark.parametrize("does", ["bind", "delete", "change"])
def test_writes_without_the_lease(history: History, does: str) -> None:
    history.pod(-50.0, "p")
    history.pod(-50.0, "urgent", priority=5)
    if does == "bind":
        history.bind(0.0, "p", by=OTHER)
    else:
        history.write(0.0, does, "p", by=OTHER)
    one(history.violations(), "other wrote without the lease (one had it)", does)


def test_a_leader_that_sleeps_and_does_not_notice(history: History) -> None:
    for name in ("p", "q", "r"):
        history.pod(-50.0, name)
    history.lease(0.0, OTHER, took=0.2)
    history.bind(0.3, "p", by=ONE)  # was on its way
    history.bind(1.0, "q", by=OTHER)
    history.bind(2.0, "r", by=ONE)
    one(history.violations(), "one wrote without the lease (other had it): bind default/r")


def test_a_lease_that_was_given_up(history: History) -> None:
    history.pod(-50.0, "p")
    history.lease(-3.0, ONE, holder=False)
    history.bind(0.0, "p")
    one(history.violations(), "no replica had it")


def test_other_clients_need_no_lease(history: History) -> None:
    """And have leases of their own."""
    history.pod(-50.0, "p")
    history.pod(-50.0, "q")
    history.lease(-1.0, "kubelet")
    history.bind(1.0, "q")
    history.bind(0.0, "p", by=ADMIN)
    assert history.violations() == []


# Victims


def test_a_victim_of_equal_priority(history: History) -> None:
    history.pod(-50.0, "victim", node="n1", priority=5)
    history.pod(-50.0, "urgent", priority=5)
    history.write(0.0, "delete", "victim")
    one(history.violations(), "default/victim (priority 5) was a victim", "was 5")


def test_a_victim_of_lower_priority(history: History) -> None:
    history.pod(-50.0, "victim", node="n1", priority=4)
    history.pod(-50.0, "urgent", priority=5)
    history.write(0.0, "delete", "victim")
    history.changed(0.1, "victim", deleting=True)
    history.write(4.0, "delete", "victim")  # the same again
    assert history.violations() == []
    assert history.checker.counts["victims"] == 2


def test_a_victim_counts_for_the_pod_that_is_nominated_to_its_node(history: History) -> None:
    history.pod(-50.0, "victim", node="n1", priority=4)
    history.pod(-50.0, "urgent", priority=5)
    history.pod(-50.0, "low", priority=3, status={"phase": "Pending", "nominatedNodeName": "n1"})
    history.write(0.0, "delete", "victim")
    one(history.violations(), "was 3")


def test_a_victim_that_was_being_deleted(history: History) -> None:
    history.pod(-50.0, "victim", node="n1")
    history.changed(-GRACE_S - 0.5, "victim", deleting=True)
    history.pod(-50.0, "urgent", priority=5)
    history.write(0.0, "delete", "victim")
    one(history.violations(), "although it was being deleted already")


# Gangs


def member(history: History, number: int, at: float = -50.0) -> str:
    labels = {NAME_LABEL: "gang", MINIMUM_LABEL: "3"}
    history.pod(at, f"m{number}", labels=labels)
    return f"m{number}"


def test_a_gang_that_is_torn(history: History) -> None:
    members = [member(history, number) for number in range(3)]
    for name in members[:2]:
        history.bind(0.0, name)
    assert history.violations(GANG_S - 1.0) == []
    assert history.checker.torn() == ["gang"]
    history.checker.feed([], [], T + GANG_S + 1.0)
    one(history.checker.violations, "gang default/gang: 2 of at least 3 members were bound")


def test_a_gang_that_loses_members(history: History) -> None:
    """Those that were bound count also when they are gone, and one that is deleted in that moment tears no gang."""
    members = [member(history, number) for number in range(3)]
    for name in members:
        history.bind(0.0, name)
    history.deleted(1.0, members[0])
    assert history.violations(60.0) == []
    torn = History()
    torn.node(name="n1")
    members = [member(torn, number) for number in range(3)]
    torn.deleted(-0.2, members[2])
    for name in members[:2]:
        torn.bind(0.0, name)
    assert torn.violations(60.0) == []


def test_a_gang_that_was_too_small_when_it_was_bound(history: History) -> None:
    members = [member(history, number) for number in range(3)]
    history.deleted(-10.0, members[2])
    for name in members[:2]:
        history.bind(0.0, name)
    one(history.violations(60.0), "2 of at least 3")


@pytest.mark.parametrize(("deleted", "torn"), [(-3.0, True), (1.0, False)])
def test_a_gang_that_loses_a_member_while_its_bindings_are_on_their_way(
    history: History, deleted: float, torn: bool
) -> None:
    members = [member(history, number) for number in range(3)]
    for name in members[:2]:
        history.bind(0.0, name, seen=False)
        history.changed(5.0, name, node_name="n1")
    history.deleted(deleted, members[2])
    assert bool(history.violations(60.0)) is torn


def test_a_gang_that_loses_a_member_while_replicas_cannot_know(history: History) -> None:
    members = [member(history, number) for number in range(3)]
    history.disturbed(-20.0, -1.0)
    history.deleted(-5.0, members[2])
    for name in members[:2]:
        history.bind(0.0, name)
    assert history.violations(60.0) == []


def test_a_gang_may_be_whole_some_time_after_a_disturbance(history: History) -> None:
    members = [member(history, number) for number in range(3)]
    for name in members[:2]:
        history.bind(0.0, name)
    history.disturbed(0.1, 20.0)
    assert history.violations(20.0 + GANG_S) == []
    history.bind(20.0 + GANG_S + 1.0, members[2])
    assert history.violations(100.0) == []


# Pods that wait


def test_pods_that_wait_although_a_node_would_do(history: History) -> None:
    history.pod(-50.0, "old", cpu="4", node="n2")
    history.pod(-50.0, "fits")
    history.pod(-50.0, "large", cpu="5")
    history.pod(-50.0, "measured", annotations={names.PROFILE: "ferret"})
    history.pod(-1.0, "young")
    history.violations()
    assert history.checker.fitting(T - 10.0) == ["default/fits"]
    assert history.checker.fitting(T) == ["default/fits", "default/young"]


def test_a_nominated_pod_holds_its_room(history: History) -> None:
    history.pod(-50.0, "old", cpu="4", node="n2")
    history.pod(-50.0, "urgent", cpu="3500m", status={"phase": "Pending", "nominatedNodeName": "n1"})
    history.pod(-50.0, "p")
    history.violations()
    assert history.checker.fitting(T) == ["default/urgent"]


@pytest.mark.parametrize("fits", [True, False])
def test_a_gang_waits_unless_it_fits_as_a_whole(history: History, fits: bool) -> None:
    history.pod(-50.0, "old", cpu="4", node="n2")
    history.pod(-50.0, "other", cpu="1" if fits else "2", node="n1")
    for number in range(3):
        member(history, number)
    history.violations()
    assert history.checker.fitting(T) == (["default/m0", "default/m1", "default/m2"] if fits else [])


# The audit log


def test_what_a_line_of_the_audit_log_says() -> None:
    line: dict[str, Any] = {
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/soak/pods/p/binding",
        "verb": "create",
        "user": {"username": ONE},
        "objectRef": {"resource": "pods", "namespace": "soak", "name": "p", "subresource": "binding"},
        "responseStatus": {"code": 201},
        "requestObject": {"metadata": {"name": "p", "uid": "u"}, "target": {"kind": "Node", "name": "n1"}},
        "requestReceivedTimestamp": "1970-01-01T00:00:01.500000Z",
        "stageTimestamp": "1970-01-01T00:00:02.000000Z",
    }
    assert Write.of(line) == Write(ONE, 1.5, 2.0, 201, "bind", "soak/p", uid="u", node="n1")
    about = {"resource": "pods", "namespace": "soak", "name": "p"}
    victim = line | {"verb": "delete", "objectRef": about, "requestObject": {"preconditions": {"uid": "u"}}}
    assert Write.of(victim) == Write(ONE, 1.5, 2.0, 201, "delete", "soak/p", uid="u")
    assert Write.of(victim | {"requestObject": {"dryRun": ["All"]}}) is None
    assert Write.of(json.loads(json.dumps(line | {"verb": "get", "objectRef": about}))) is None

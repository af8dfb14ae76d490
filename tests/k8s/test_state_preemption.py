"""Preemption for whatever keeps a pod out, not for resources alone: as kube-scheduler's DefaultPreemption decides."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer
from naive_checker import Cluster, static

from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.groups.pod_groups import KUEUE_LABEL, KUEUE_TOTAL, MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.objects import Pod
from flowsched_k8s.preemption import evictions

WEB = b.selector(app="web")


def scheduler(*things: Any) -> ModelScheduler:
    """With preemption; volumes and the like are told directly, as the model of the API server does not have them."""
    server = ModelServer()
    running = ModelScheduler(server, Configuration(features=Features(preemption=True)))
    for thing in things:
        if isinstance(thing, Pod) or type(thing).__name__ == "Node":
            server.put(thing)
        else:
            running.observe([Seen(thing)])
    running.deliver()
    return running


def there(name: str, node: str, *, priority: int = 0, **fields: Any) -> Pod:
    """A pod that runs, of another scheduler."""
    return b.pod(name, node=node, scheduler="other", priority=priority, **{"cpu": "100m", **fields})


def with_port(number: int = 80, cpu: str = "100m") -> dict[str, Any]:
    return {"containers": [b.container("main", cpu, ports=[b.host_port(number)])]}


def apart(key: str = names.HOSTNAME) -> dict[str, Any]:
    return {"affinity": b.affinity(apart=[b.pod_term(key, WEB)])}


def with_claim(claim: str) -> dict[str, Any]:
    return {"volumes": [b.claim_volume(claim)]}


def one_pod_claim(name: str = "data") -> tuple[Any, ...]:
    modes = ("ReadWriteOncePod",)
    return b.claim(name, volume=f"pv-{name}", modes=modes), b.volume(f"pv-{name}", claim=("default", name), modes=modes)


def asked(running: ModelScheduler) -> list[str]:
    """Names of the victims so far."""
    return sorted(key.name for key in running.victims)


def disk(name: str) -> tuple[Any, ...]:
    return b.claim(name, volume=f"pv-{name}"), b.volume(f"pv-{name}", claim=("default", name), driver="ebs.csi")


CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "a host port": ((there("victim", "n1", **with_port()),), with_port()),
    "its anti-affinity": ((there("victim", "n1", labels={"app": "web"}),), apart()),
    "another pod's anti-affinity": ((there("victim", "n1", **apart()),), {"labels": {"app": "web"}}),
    "a topology spread": (
        (
            b.node("n2", labels={"tainted": "no"}, taints=[b.taint("dedicated")]),
            there("victim", "n1", labels={"app": "web"}),
        ),
        {"labels": {"app": "web"}, "topologySpreadConstraints": [b.spread(names.HOSTNAME, WEB)]},
    ),
    "the limit of a CSI driver": (
        (*disk("a"), *disk("b"), b.csi_node("n1", ebs_csi=1), there("victim", "n1", **with_claim("a"))),
        with_claim("b"),
    ),
    "a claim for one pod at a time": (
        (*one_pod_claim(), there("victim", "n1", **with_claim("data"))),
        with_claim("data"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_pod_in_the_way_and_no_other_is_evicted(case: str) -> None:
    things, wanted = CASES[case]
    running = scheduler(b.node("n1"), *things, there("bystander", "n1"))
    running.create(b.pod("critical", priority=10, **{"cpu": "100m", **wanted}))
    running.round()
    assert asked(running) == ["victim"]
    (told,) = running.conditions("critical")
    assert told.nominated_node == "n1"
    assert told.message.endswith(" preemption: 1 pod(s) on n1 make room.")
    running.evict()
    running.server.remove(running.server.pods["default", "victim"])
    running.settle()
    assert running.where()["critical"] == "n1"
    assert running.victims == []


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("why", ["equal priority", "higher priority", "policy"])
def test_pods_that_may_not_be_evicted_stay(case: str, why: str) -> None:
    things, wanted = CASES[case]
    priority, policy = {"equal priority": (0, None), "higher priority": (-1, None), "policy": (10, "Never")}[why]
    running = scheduler(b.node("n1"), *things)
    running.create(b.pod("critical", priority=priority, preemptionPolicy=policy, **{"cpu": "100m", **wanted}))
    running.round()
    assert asked(running) == []
    (told,) = running.conditions("critical")
    assert not told.nominated_node
    assert "preemption: " in told.message


@pytest.mark.parametrize(
    "closed",
    [
        b.node("n1", cordoned=True),
        b.node("n1", taints=[b.taint("dedicated")]),
        b.node("n1", labels={"disk": "hdd"}),
    ],
    ids=["cordoned", "tainted", "not selected"],
)
def test_nodes_that_no_eviction_opens_are_no_candidates(closed: Any) -> None:
    running = scheduler(closed, there("port", "n1", **with_port()))
    running.create(b.pod("critical", priority=10, nodeSelector={"disk": "ssd"}, **with_port()))
    running.round()
    assert asked(running) == []
    (told,) = running.conditions("critical")
    assert told.message.endswith("preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")


@pytest.mark.parametrize(
    ("there_fields", "wanted"),
    [(with_port(), with_port()), ({"labels": {"app": "web"}}, apart())],
    ids=["port", "apart"],
)
def test_the_least_important_of_those_in_the_way_is_evicted(
    there_fields: dict[str, Any], wanted: dict[str, Any]
) -> None:
    ranks = {"n1": 5, "n2": 1, "n3": 3}
    running = scheduler(*map(b.node, ranks), *(there(n, n, priority=r, **there_fields) for n, r in ranks.items()))
    running.create(b.pod("critical", priority=10, **{"cpu": "100m", **wanted}))
    running.round()
    assert asked(running) == ["n2"]


def test_nodes_that_a_spread_does_not_compare_cost_no_victim() -> None:
    """The empty node is not one of the pod's: compared with the other one, only one of two has to go."""
    running = scheduler(
        b.node("n1", labels={"disk": "ssd"}),
        b.node("n2", "1", labels={"disk": "ssd"}),
        b.node("n3"),
        there("full", "n2", priority=20, cpu="1", labels={"app": "web"}),
        *(there(f"web-{i}", "n1", labels={"app": "web"}) for i in range(2)),
    )
    spread = [b.spread(names.HOSTNAME, WEB)]
    running.create(
        b.pod(
            "critical",
            cpu="100m",
            priority=10,
            labels={"app": "web"},
            nodeSelector={"disk": "ssd"},
            topologySpreadConstraints=spread,
        )
    )
    running.round()
    assert len(asked(running)) == 1


def test_pods_of_several_nodes_are_never_evicted_for_one() -> None:
    """A zone with a pod in the way on each of its nodes stays closed, as with kube-scheduler."""
    nodes = [b.node(name, zone="a") for name in ("n1", "n2")]
    running = scheduler(*nodes, *(there(f"web-{n}", n, labels={"app": "web"}) for n in ("n1", "n2")))
    running.create(b.pod("critical", cpu="100m", priority=10, **apart(names.ZONE)))
    running.round()
    assert asked(running) == []


def test_a_claim_whose_user_is_elsewhere_is_freed_only_on_its_node() -> None:
    running = scheduler(b.node("n1"), b.node("n2"), *one_pod_claim(), there("victim", "n2", **with_claim("data")))
    running.create(b.pod("critical", cpu="100m", priority=10, **with_claim("data")))
    running.round()
    assert asked(running) == ["victim"]
    assert running.conditions("critical")[-1].nominated_node == "n2"


def test_a_claim_whose_user_is_outside_of_the_pool_is_not_freed() -> None:
    running = scheduler(b.node("n1"), *one_pod_claim(), there("victim", "elsewhere", **with_claim("data")))
    running.create(b.pod("critical", cpu="100m", priority=10, **with_claim("data")))
    running.round()
    assert asked(running) == []
    (told,) = running.conditions("critical")
    assert told.message.startswith(f"0/1 nodes are available: 1 {names.CLAIM_IN_USE}. preemption: 0/1 ")


def test_equal_pods_are_planned_in_one_round_each_on_a_node_of_its_own() -> None:
    nodes = [f"n{i}" for i in range(4)]
    running = scheduler(*map(b.node, nodes), *(there(f"low-{n}", n, **with_port()) for n in nodes))
    running.create(*(b.pod(f"critical-{i}", priority=10, **with_port()) for i in range(3)))
    running.round()
    nominated = {running.conditions(f"critical-{i}")[-1].nominated_node for i in range(3)}
    assert len(nominated) == 3
    assert asked(running) == sorted(f"low-{n}" for n in nominated)


def test_a_preemptor_takes_its_room_as_soon_as_it_is_there() -> None:
    running = scheduler(b.node("n1"), there("victim", "n1", **with_port()))
    running.create(b.pod("critical", priority=10, **with_port()))
    running.round()
    running.evict()
    running.server.remove(running.server.pods["default", "victim"])
    running.deliver()
    # It has not failed: its backoff of a second would be waiting for nothing.
    running.settle(within=0.1)
    assert running.where() == {"critical": "n1"}


def gang(count: int, *, minimum: int | None = None, name: str = "g", cpu: str = "2", **fields: Any) -> list[Pod]:
    labels = {NAME_LABEL: name, MINIMUM_LABEL: str(minimum or count)}
    if KUEUE_TOTAL in fields.get("annotations", {}):
        labels = {KUEUE_LABEL: name}
    return [b.pod(f"{name}{i}", cpu=cpu, priority=10, labels=labels, **fields) for i in range(count)]


def full(*sizes: str) -> ModelScheduler:
    """Nodes of 2 CPUs, n0, n1 ..., each with a pod of such a size that may be evicted."""
    return scheduler(
        *(b.node(f"n{i}", "2") for i in range(len(sizes))),
        *(there(f"low-{i}", f"n{i}", cpu=size) for i, size in enumerate(sizes) if size),
    )


@pytest.mark.parametrize(
    "said", [{}, {names.PROFILE: "canneal"}, {KUEUE_TOTAL: "3"}], ids=["plain", "measured", "kueue"]
)
def test_room_is_made_for_all_of_a_group(said: dict[str, str]) -> None:
    running = full("2", "", "1", "2")
    running.create(*gang(3, annotations=said))
    running.round()
    # One node has room for one of them already: no pod has to go there.
    assert len(asked(running)) == 2
    nominated = {running.conditions(f"g{i}")[-1].nominated_node for i in range(3)}
    assert len(nominated) == 3 and "n1" in nominated
    first, second = asked(running)
    # What is free is held for the group, and so is what the first victim leaves.
    running.create(b.pod("small", cpu="1"))
    running.settle(within=3.0)
    leave(running, first)
    running.settle(within=60.0)
    assert running.where().keys() & {"g0", "g1", "g2", "small"} == set()
    leave(running, second)
    running.settle(within=60.0)
    where = running.where()
    assert {where[f"g{i}"] for i in range(3)} == nominated
    assert asked(running) == [], "no other pod has to go"


def leave(running: ModelScheduler, *names_of: str) -> None:
    """Victims go, and take their grace period for it."""
    for name in names_of:
        running.evict([key.name for key in running.victims].index(name))
    for name in names_of:
        running.server.remove(running.server.pods["default", name])
    running.deliver()


def test_no_pod_goes_for_a_group_that_could_not_start_all_the_same() -> None:
    running = full("2", "2", "")
    running.server.put(there("high", "n2", cpu="2", priority=20))
    running.deliver()
    running.create(*gang(3))
    running.settle(within=5.0)
    assert asked(running) == []
    told = running.conditions("g0")[-1]
    assert "preemption: room can be made for 2 of 3 pods only: " in told.message
    assert not running.state.cache.nominated


def test_room_is_made_for_the_minimum_first_and_then_for_the_others() -> None:
    running = full("2", "2", "2")
    running.create(*gang(3, minimum=2))
    running.round()
    assert len(asked(running)) == 2
    leave(running, *asked(running))
    running.settle(within=60.0)
    assert sum(name.startswith("g") for name in running.where()) == 2
    assert len(asked(running)) == 1


def test_room_for_a_group_in_one_rack_is_made_where_the_fewest_leave() -> None:
    """Two pods in rack a leave, or three in rack b; one of each would do if the racks did not matter."""
    nodes = [b.node(f"{rack}{i}", "2", labels={"rack": rack}) for rack in "ab" for i in range(2)]
    low = [there(f"low-{n}", n, cpu="2") for n in ("a0", "a1")]
    low += [there(f"low-b0-{i}", "b0", cpu="1") for i in range(2)] + [there("low-b1", "b1", cpu="2")]
    running = scheduler(*nodes, *low)
    running.create(*gang(2, annotations={names.GROUP_TOPOLOGY: "rack"}))
    running.settle(within=5.0)
    assert asked(running) == ["low-a0", "low-a1"]
    leave(running, *asked(running))
    running.settle(within=60.0)
    assert {running.where()[f"g{i}"] for i in range(2)} == {"a0", "a1"}


def test_room_for_a_group_is_made_beside_those_that_run_already() -> None:
    nodes = [b.node(f"{rack}{i}", "2", labels={"rack": rack}) for rack in "ab" for i in range(2)]
    labels = {NAME_LABEL: "g", MINIMUM_LABEL: "2"}
    first = b.pod("g-runs", node="b0", cpu="2", labels=labels, annotations={names.GROUP_TOPOLOGY: "rack"}, priority=10)
    running = scheduler(*nodes, first, *(there(f"low-{n}", n, cpu="2") for n in ("a0", "a1", "b1")))
    more = b.pod("g-more", cpu="2", labels=labels, annotations={names.GROUP_TOPOLOGY: "rack"}, priority=10)
    running.create(more)
    running.settle(within=5.0)
    assert asked(running) == ["low-b1"]


def test_where_no_rack_can_take_the_group_no_pod_leaves() -> None:
    running = full("2", "2")
    running.create(*gang(2, annotations={names.GROUP_TOPOLOGY: names.HOSTNAME}))
    running.settle(within=5.0)
    assert asked(running) == []
    assert (
        "preemption: in no topology domain: room can be made for 1 of 2 pods only"
        in running.conditions("g0")[-1].message
    )


def test_what_a_round_has_no_time_for_the_next_ones_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictions, "MOST_WORK", 1)
    nodes = [f"n{i}" for i in range(4)]
    running = scheduler(*map(b.node, nodes), *(there(f"low-{n}", n, **with_port()) for n in nodes))
    running.create(*(b.pod(f"critical-{i}", priority=10, **with_port()) for i in range(4)))
    running.round()
    assert len(running.victims) == 1
    running.settle(within=5.0)
    assert asked(running) == sorted(f"low-{n}" for n in nodes)


@pytest.mark.parametrize("what", ["ports", "claims"])
def test_what_one_of_two_victims_leaves_is_held_until_the_other_is_gone(what: str) -> None:
    if what == "ports":
        things: tuple[Any, ...] = ()
        first, second = with_port(80), with_port(81)
        both = {"containers": [b.container("main", "100m", ports=[b.host_port(80), b.host_port(81)])]}
    else:
        things = (*one_pod_claim("one"), *one_pod_claim("two"))
        first, second = with_claim("one"), with_claim("two")
        both = {"volumes": [b.claim_volume("one", "a"), b.claim_volume("two", "b")]}
    running = scheduler(b.node("n1"), *things, there("v1", "n1", **first), there("v2", "n1", **second))
    running.create(b.pod("critical", priority=10, **{"cpu": "100m", **both}))
    running.round()
    assert asked(running) == ["v1", "v2"]
    running.evict()
    running.evict()
    running.server.remove(running.server.pods["default", "v1"])
    running.deliver()
    running.create(b.pod("other", **{"cpu": "100m", **first}))
    running.settle(within=30.0)
    running.state.queue.wake(Wake.ANY, running.now)
    running.settle(within=30.0)
    assert "other" not in running.where()
    running.server.remove(running.server.pods["default", "v2"])
    running.settle()
    assert running.where() == {"critical": "n1"}


def test_a_pod_does_not_follow_one_that_only_room_is_made_for() -> None:
    running = scheduler(b.node("n1"), b.node("n2"), there("v", "n1", labels={"app": "cache"}, **with_port()))
    running.create(
        b.pod("critical", priority=10, labels={"app": "web"}, nodeSelector={names.HOSTNAME: "n1"}, **with_port())
    )
    running.round()
    assert asked(running) == ["v"]
    running.evict()
    near = {"affinity": b.affinity(near=[b.pod_term(names.HOSTNAME, WEB)])}
    running.create(b.pod("follower", cpu="100m", **near))
    running.settle(within=20.0)
    assert "follower" not in running.where()
    assert running.conditions("follower")[-1].message.startswith(f"0/2 nodes are available: 2 {names.POD_AFFINITY}.")
    running.server.remove(running.server.pods["default", "v"])
    running.settle()
    assert running.where() == {"critical": "n1", "follower": "n1"}


def test_what_changed_since_the_last_plan_is_seen_by_the_next() -> None:
    """Who is where is kept between rounds: pods that move, end, change and nodes that come and go."""
    running = scheduler(b.node("n1", "2"), there("old", "n1", cpu="2"))
    running.create(
        b.pod("first", cpu="2", priority=10, nodeSelector={"no": "such"}), b.pod("second", cpu="2", priority=-1)
    )
    running.round()
    assert asked(running) == []
    server = running.server
    server.remove(server.pods["default", "old"])
    server.remove(server.nodes["n1"])
    running.deliver()
    running.put(b.node("n1", "2"), b.node("n2", "2"), there("a", "n1", cpu="2", priority=5), there("b", "n2", cpu="2"))
    running.create(b.pod("critical", cpu="2", priority=10))
    running.round()
    assert asked(running) == ["b"]


def test_a_budget_that_comes_to_count_a_pod_is_heeded_by_the_next_plan() -> None:
    running = scheduler(b.node("n1", "2"), b.node("n2", "2"))
    running.create(*(there(f"low-{n}", n, cpu="2", labels={"on": n}) for n in ("n1", "n2")))
    running.create(b.pod("hopeless", cpu="2", priority=-1))
    running.round()
    running.observe([Seen(b.budget("guard", b.selector(on="n1"), allowed=0))])
    running.create(b.pod("critical", cpu="2", priority=10))
    running.round()
    assert asked(running) == ["low-n2"]


@pytest.mark.parametrize("selector", [None, {"no": "such"}], ids=["no victims", "no nodes"])
def test_pods_that_no_eviction_can_help_are_all_answered_at_once(
    selector: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no pod could be evicted, and for nodes that none would open, nothing is worked out."""
    monkeypatch.setattr(evictions, "MOST_WORK", 1)
    running = scheduler(b.node("n1", "1"), there("there", "n1", cpu="1", priority=-1 if selector else 10))
    pods = [b.pod(f"p{i}", cpu=f"{100 + i}m", nodeSelector=selector) for i in range(20)]
    running.create(*pods)
    running.round()
    assert [len(running.conditions(pod.metadata.name)) for pod in pods] == [1] * 20
    assert all("preemption: " in running.conditions(pod.metadata.name)[0].message for pod in pods)
    assert running.state.queue.sizes()["unschedulable"] == 20


# Against DefaultPreemption, worked out the slow and obvious way

KEYS = st.sampled_from((names.HOSTNAME, names.ZONE))
APPS = st.sampled_from(("web", "db"))


@st.composite
def demands(draw: st.DrawFn) -> dict[str, Any]:
    """What a pod takes of its node and demands of others."""
    app = draw(APPS)
    fields: dict[str, Any] = {"labels": {"app": app}}
    match draw(st.integers(0, 5)):
        case 0:
            fields["affinity"] = b.affinity(apart=[b.pod_term(draw(KEYS), b.selector(app=draw(APPS)))])
        case 1:
            spread = b.spread(draw(KEYS), b.selector(app=app), skew=draw(st.integers(1, 2)))
            fields["topologySpreadConstraints"] = [spread]
        case 2:
            fields["affinity"] = b.affinity(near=[b.pod_term(draw(KEYS), b.selector(app=draw(APPS)))])
        case _:
            pass
    ports = [b.host_port(draw(st.sampled_from((80, 81))))] if draw(st.booleans()) else None
    fields["containers"] = [b.container("main", draw(st.sampled_from(("100m", "1", "2"))), ports=ports)]
    return fields


Rank = tuple[int, int, int]


def default_preemption(cluster: Cluster, pod: Pod) -> list[tuple[Rank, set[str]]]:
    """By candidate node, the rank of its victims and their names."""
    found = []
    for name, node in sorted(cluster.nodes.items()):
        if static(pod, node):
            continue
        lower = [p for p in cluster.on(name) if (p.spec.priority or 0) < (pod.spec.priority or 0)]
        left = cluster
        for victim in lower:
            left = left.without(victim)
        if left.refuses(pod, name):
            continue
        victims = []
        for victim in sorted(lower, key=lambda p: (-(p.spec.priority or 0), p.metadata.name)):
            if left.plus(victim, name).refuses(pod, name):
                victims.append(victim)
            else:
                left = left.plus(victim, name)
        ranks = [p.spec.priority or 0 for p in victims]
        rank = (max(ranks, default=-1), sum(r + 2**31 for r in ranks), len(victims))
        found.append((rank, {p.metadata.name for p in victims}))
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), demands()), max_size=9),
    st.integers(1, 4),
    demands(),
    st.integers(1, 3),
)
def test_victims_are_those_of_default_preemption(
    running_pods: list[tuple[int, int, dict[str, Any]]], nodes: int, wanted: dict[str, Any], priority: int
) -> None:
    made = [b.node(f"n{i}", "4", zone=f"z{i % 2}") for i in range(nodes)]
    placed = [
        there(f"p{i}", f"n{at % nodes}", priority=rank, **fields) for i, (at, rank, fields) in enumerate(running_pods)
    ]
    running = scheduler(*made, *placed)
    pod = b.pod("critical", priority=priority, **wanted)
    cluster = Cluster({n.metadata.name: n for n in made}, [(p, p.spec.node_name) for p in placed])
    running.create(pod)
    bound = running.round()
    candidates = default_preemption(cluster, pod)
    if not all(cluster.refuses(pod, name) for name in cluster.nodes):
        assert [bind.pod.name for bind in bound] == ["critical"]
        return
    assert bound == []
    if not candidates:
        assert asked(running) == []
        return
    best = min(rank for rank, _ in candidates)
    assert set(asked(running)) in [victims for rank, victims in candidates if rank == best]

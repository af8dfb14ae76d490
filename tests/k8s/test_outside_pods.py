"""Pods on nodes outside of the pool: every relation counts them in the domains of their nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import objects_builders as b
import pytest
from events_recorded import Recorded, differences, played_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer
from naive_checker import Cluster

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.objects import Node, Pod

POOL = {names.POOL: "true"}
IS_X, IS_WEB = b.selector(app="x"), b.selector(app="web")
X, WEB = {"app": "x"}, {"app": "web"}
SPREAD = [b.spread(names.ZONE, IS_X)]


def pool_node(name: str, zone: str | None, **fields: Any) -> Node:
    return b.node(name, zone=zone, labels=POOL | fields.pop("labels", {}), **fields)


def scheduler(*things: Node | Pod) -> ModelScheduler:
    server = ModelServer()
    for thing in things:
        server.put(thing)
    return ModelScheduler(server, Configuration(node_selector=POOL))


def apart(key: str = names.ZONE, **fields: Any) -> dict[str, Any]:
    return b.affinity(apart=[b.pod_term(key, IS_X, **fields)])


def near(key: str = names.ZONE) -> dict[str, Any]:
    return b.affinity(near=[b.pod_term(key, IS_X)])


def placed(running: ModelScheduler, name: str = "p") -> str | None:
    running.settle()
    return running.where().get(name)


def outside(pod: Pod | None = None, zone: str | None = "a") -> tuple[Node, Pod]:
    return b.node("out", zone=zone), pod or b.pod("x", labels=X, node="out")


def test_anti_affinity_keeps_out_of_the_zone_of_a_pod_outside() -> None:
    running = scheduler(*outside(), pool_node("in", "a"))
    running.create(b.pod("p", cpu="1", affinity=apart()))
    assert placed(running) is None
    running.put(pool_node("free", "b"))
    assert placed(running) == "free"


def test_anti_affinity_of_a_pod_outside_keeps_others_out() -> None:
    running = scheduler(*outside(b.pod("lonely", node="out", affinity=apart())), pool_node("in", "a"))
    running.create(b.pod("p", cpu="1", labels=X))
    assert placed(running) is None
    running.server.remove(running.server.pods["default", "lonely"])
    assert placed(running) == "in"


@pytest.mark.parametrize("profile", [None, "canneal"])
def test_affinity_is_met_by_a_pod_outside(profile: str | None) -> None:
    notes = {names.PROFILE: profile} if profile else None
    running = scheduler(*outside(), pool_node("in", "a"), pool_node("far", "b"))
    running.create(*(b.pod(f"p{i}", cpu="1", annotations=notes, affinity=near()) for i in range(3)))
    running.settle()
    assert [running.where().get(f"p{i}") for i in range(3)] == ["in"] * 3


def test_the_first_of_its_kind_is_not_first_where_one_is_outside() -> None:
    """Its affinity is met in a zone that the pool has no node in, so it may go nowhere until the other one is gone."""
    running = scheduler(*outside(), pool_node("in", "b"))
    running.create(b.pod("p", cpu="1", labels=X, affinity=near()))
    assert placed(running) is None
    running.put(pool_node("beside", "a"))
    assert placed(running) == "beside"
    running = scheduler(*outside(), pool_node("in", "b"))
    running.create(b.pod("p", cpu="1", labels=X, affinity=near()))
    assert placed(running) is None
    running.server.remove(running.server.pods["default", "x"])
    assert placed(running) == "in"


def test_spread_counts_pods_outside() -> None:
    running = scheduler(*outside(), b.pod("y", labels=X, node="out"), pool_node("a1", "a"), pool_node("b1", "b"))
    running.create(*(b.pod(f"p{i}", cpu="1", labels=X, topologySpreadConstraints=SPREAD) for i in range(3)))
    running.settle()
    assert sorted(node for name, node in running.where().items() if name[0] == "p") == ["a1", "b1", "b1"]


@pytest.mark.parametrize(
    ("selects", "taints", "expected"), [(POOL, "Ignore", "a1"), ({}, "Ignore", "b1"), ({}, "Honor", "a1")]
)
def test_spread_counts_only_nodes_that_it_compares(selects: dict[str, str], taints: str, expected: str) -> None:
    """The zone with the pod outside is full, but for pods that are not spread over that node."""
    spreads = [b.spread(names.ZONE, IS_X, nodeTaintsPolicy=taints)]
    out = b.node("out", zone="a", taints=[b.taint("dedicated")])
    running = scheduler(out, b.pod("x", labels=X, node="out"), pool_node("a1", "a"), pool_node("b1", "b", cpu="2"))
    running.create(b.pod("fill", cpu="1500m", node="b1"))
    running.create(b.pod("p", cpu="100m", labels=X, topologySpreadConstraints=spreads, nodeSelector=selects))
    assert placed(running) == expected


def test_a_zone_without_a_node_of_the_pool_is_no_floor() -> None:
    running = scheduler(b.node("out", zone="c"), pool_node("a1", "a"), pool_node("b1", "b"))
    running.create(*(b.pod(f"p{i}", cpu="1", labels=X, topologySpreadConstraints=SPREAD) for i in range(4)))
    running.settle()
    assert sorted(running.where().values()) == ["a1", "a1", "b1", "b1"]


def test_namespaces_count_outside_too() -> None:
    other = b.pod("x", "other", labels=X, node="out")
    running = scheduler(*outside(other), pool_node("in", "a"))
    running.create(b.pod("own", cpu="1", affinity=apart()))
    running.create(b.pod("p", cpu="1", affinity=apart(namespaces=["other"])))
    assert placed(running) is None
    assert running.where()["own"] == "in"


def test_what_changes_outside_wakes_pods() -> None:
    running = scheduler(*outside(), pool_node("in", "a"))
    running.create(b.pod("p", cpu="1", affinity=apart()), b.pod("q", cpu="1", affinity=near()))
    assert placed(running) is None
    assert running.where()["q"] == "in"
    running.put(b.node("out", zone="b"))
    assert placed(running) == "in"


def test_a_node_enters_and_leaves_the_pool_with_its_pods() -> None:
    running = scheduler(*outside(), pool_node("in", "a"))
    counted = running.state.cache.outside.counted_on
    running.create(b.pod("p", cpu="1", affinity=apart()))
    assert placed(running) is None
    assert len(counted("in")) == 1
    running.put(pool_node("out", "a"))
    assert placed(running) is None
    assert counted("in") == []
    running.put(b.node("out", zone="a"), pool_node("first", "a"))
    assert placed(running) is None
    assert (len(counted("first")), counted("in")) == (1, []), "the first by name, whatever came when"
    running.server.remove(running.server.nodes["first"])
    assert placed(running) is None
    running.server.remove(running.server.nodes["out"])
    assert placed(running) == "in"


def test_a_relation_that_is_declared_again_counts_them_again() -> None:
    running = scheduler(*outside(), pool_node("in", "a"))
    for name in ("p", "q"):
        (pod,) = running.create(b.pod(name, cpu="1", affinity=apart()))
        assert placed(running, name) is None
        running.server.remove(pod)
        running.deliver()
        running.state.cache.forget_relations()
        assert running.state.cache.outside.counted_on("in") == []


def test_events_that_are_played_count_pods_outside(tmp_path: Path) -> None:
    running = scheduler(*outside(), pool_node("in", "a"), pool_node("far", "b"))
    recorded = Recorded(running, tmp_path / "events.jsonl")
    running.create(b.pod("p", cpu="1", affinity=near()), b.pod("q", cpu="1", affinity=apart()))
    assert placed(running) == "in"
    running.put(b.node("out", zone="b"))
    running.create(b.pod("r", cpu="1", affinity=near()))
    assert placed(running, "r") == "far"
    running.server.remove(running.server.pods["default", "x"])
    running.create(b.pod("s", cpu="1", affinity=near()))
    assert placed(running, "s") is None
    assert differences(played_inputs(recorded.done()), recorded.inputs) == []


KEYS = st.sampled_from((names.HOSTNAME, names.ZONE))
APPS = st.sampled_from(("x", "web"))


@st.composite
def demands(draw: st.DrawFn) -> dict[str, Any]:
    selects = b.selector(app=draw(APPS))
    kind = draw(st.sampled_from(("apart", "near", "spread", "both", "none")))
    if kind in ("apart", "near"):
        return {"affinity": b.affinity(**{kind: [b.pod_term(draw(KEYS), selects)]})}
    if kind == "none":
        return {}
    policy = st.sampled_from(("Honor", "Ignore"))
    keys = (names.ZONE, names.HOSTNAME) if kind == "both" else (draw(KEYS),)
    spreads = [b.spread(k, selects, nodeAffinityPolicy=draw(policy), nodeTaintsPolicy=draw(policy)) for k in keys]
    return {"topologySpreadConstraints": spreads, "nodeSelector": draw(st.sampled_from(({}, {"disk": "ssd"})))}


@st.composite
def machines(draw: st.DrawFn, name: str) -> Node:
    labels = draw(st.sampled_from(({}, {"disk": "ssd"})))
    taints = draw(st.sampled_from((None, [b.taint("dedicated")])))
    zone = draw(st.sampled_from(("a", "b", None)))
    make = b.node if name.startswith("out") else pool_node
    return make(name, zone=zone, labels=labels, taints=taints)


@settings(max_examples=40)
@given(st.data())
def test_each_node_of_the_pool_is_open_as_for_one_who_counts_all(data: st.DataObject) -> None:
    nodes = [data.draw(machines(name)) for name in ("in0", "in1", "in2", "out0", "out1")]
    bound = [
        b.pod(f"b{i}", labels={"app": data.draw(APPS)}, node=data.draw(st.sampled_from(nodes)).metadata.name, **demand)
        for i, demand in enumerate(data.draw(st.lists(demands(), max_size=5)))
    ]
    running = scheduler(*nodes, *bound)
    asks = b.pod("p", labels={"app": data.draw(APPS)}, **data.draw(demands()))
    (pod,) = running.create(asks)
    if data.draw(st.booleans()):
        moved = data.draw(machines(data.draw(st.sampled_from(("out0", "out1", "in1")))))
        nodes = [moved if n.metadata.name == moved.metadata.name else n for n in nodes]
        running.put(moved)
    cache = running.state.cache
    wants = cache.wants(cache.pods[pod.metadata.uid])
    eligible = running.state.inputs.verdicts(wants).eligible[: cache.machines.rows]
    by_name = {n.metadata.name: n for n in nodes}
    known = Cluster(by_name, [(p, p.spec.node_name) for p in bound], frozenset(n for n in by_name if n[0] == "o"))
    for name, node in by_name.items():
        if name not in known.outside and wants.filter.verdict(node) is None:
            refused = known.related(pod, name)
            assert cache.booked.permits_on(wants.holds, wants.joins, name, eligible) == (refused is None), refused
    running.settle()
    chosen = running.where().get("p")
    if chosen is None:
        assert all(known.refuses(pod, name) for name in by_name if name not in known.outside)
    else:
        assert known.refuses(pod, chosen) is None

"""When running pods are moved, for whom, at what price, and what happens if that is refused; without a server."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration, Features, RebalancingSettings
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.objects import Pod
from flowsched_k8s.rebalancing.move_plan import Purpose
from flowsched_k8s.rebalancing.stays import (
    BARE,
    EXCLUSIVE_CLAIM,
    LATENCY_SERVICE,
    LOCAL,
    NOT_MOVABLE,
    OTHERS,
    UNKNOWN_WORK,
    YOUNG,
)

OWNED = ("ReplicaSet", "rs")
DUE_S = 100.0


def scheduler(*things: Any, preemption: bool = False, **settings: Any) -> ModelScheduler:
    """With rebalancing, long after everything started."""
    server = ModelServer()
    chosen = RebalancingSettings(**{"cool_down_s": 10.0, **settings})
    features = Features(rebalancing=True, preemption=preemption)
    running = ModelScheduler(
        server, Configuration(features=features, rebalancing=chosen, engine=Settings(due_age_s=DUE_S))
    )
    for thing in things:
        if isinstance(thing, Pod) or type(thing).__name__ == "Node":
            server.put(thing)
        else:
            running.observe([Seen(thing)])
    running.deliver()
    server.now += 1000.0
    return running


def small(name: str, node: str, **fields: Any) -> Pod:
    return b.pod(name, node=node, **{"cpu": "2", "owner": OWNED, **fields})


def fragmented(**fields: Any) -> list[Any]:
    """Two nodes with a half of each in use."""
    return [b.node("n1", "4"), b.node("n2", "4"), *(small(f"small-{i}", f"n{i}", **fields) for i in (1, 2))]


def wait_for_room(running: ModelScheduler, seconds: float, **fields: Any) -> None:
    """A pod that no node has room for."""
    running.create(b.pod("wide", **{"cpu": "4", **fields}))
    running.round()
    assert running.conditions("wide")
    running.server.now += seconds


def told(running: ModelScheduler) -> list[str]:
    last = running.state.rebalancing.last
    return [] if last is None else last.told


def asked(running: ModelScheduler) -> list[str]:
    return sorted(key.name for key in running.moves)


# Room


def test_a_pod_that_waits_gets_room_once_its_waiting_costs_more_than_the_move() -> None:
    running = scheduler(*fragmented(), price=0.5)
    wait_for_room(running, 0.49 * DUE_S)
    assert running.look() is None
    assert told(running) == ["room for default/wide: it gains 0.49, and 1 moves cost 0.50"]
    running.server.now += 0.02 * DUE_S
    plan = running.look()
    assert plan is not None and plan.question.purpose is Purpose.ROOM
    (move,) = plan.moves
    assert {move.source, move.target} == {"n1", "n2"}
    assert (len(running.moves), move.price) == (1, 0.5)
    assert running.conditions("wide")[-1].nominated_node == move.source
    assert running.conditions("wide")[-1].message.endswith(f"rebalancing: 1 pod(s) leave {move.source}.")
    leaves = running.moves[0].name
    assert not running.events(leaves), "nothing is said before the API server has taken it"
    # Its place is kept until the pod has left, and pods that come in the meantime go elsewhere.
    running.move()
    (event,) = running.events(leaves)
    assert (event.reason, event.type) == (names.REBALANCED, "Normal")
    running.deliver()
    running.create(b.pod("again", cpu="2", owner=OWNED))
    running.settle()
    assert running.where()["again"] == move.target
    for pod in [p for p in running.server.pods.values() if p.metadata.deletion_timestamp is not None]:
        running.server.remove(pod)
    running.settle()
    assert running.where()["wide"] == move.source


def test_where_there_is_no_other_place_no_pod_moves() -> None:
    running = scheduler(b.node("n1", "4"), b.node("n2", "3"), small("one", "n1"), small("two", "n2"))
    wait_for_room(running, DUE_S)
    assert running.look() is None
    assert told(running) == ["room for default/wide: there is no other place for default/one"]
    assert not running.moves


def test_a_more_important_pod_is_not_moved_for_a_less_important_one() -> None:
    running = scheduler(*fragmented(priority=10))
    wait_for_room(running, DUE_S, priority=9)
    assert running.look() is None
    running.create(b.pod("equal", cpu="4", priority=10))
    running.round()
    running.server.now += DUE_S
    assert running.look() is not None


def test_lost_work_of_a_measured_pod_counts() -> None:
    notes = {names.PROFILE: "blackscholes"}
    running = scheduler(*fragmented(annotations=notes), price=0.1)
    wait_for_room(running, DUE_S)
    plan = running.look()
    prices = [] if plan is None else [m.price for m in plan.moves]
    refused = [t for t in told(running) if t.startswith("room for")]
    assert refused or all(0.1 <= price <= 1.1 for price in prices)
    questions = running.state.rebalancing.questions(running.now)
    (room,) = (q for q in questions if q.purpose is Purpose.ROOM)
    (price,) = room.price.values()
    assert price > 0.1, "a part of its run is over"


# Who stays


SERVICE = {names.PROFILE: "memcached", names.WORKLOAD_CLASS: "latency-sensitive", names.SLO: "p95=1ms@10000qps"}
STAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "another scheduler's": (OTHERS, {"scheduler": "other"}),
    "bare": (BARE, {"owner": None}),
    "a DaemonSet's": (NOT_MOVABLE, {"owner": ("DaemonSet", "ds")}),
    "needed by the system": (NOT_MOVABLE, {"priority": 2_000_000_000}),
    "annotated for Karpenter": (NOT_MOVABLE, {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}),
    "with a scratch folder": (LOCAL, {"volumes": [{"name": "scratch", "emptyDir": {}}]}),
    "with a folder of the node": (LOCAL, {"volumes": [{"name": "host", "hostPath": {"path": "/data"}}]}),
    "a Job's without a profile": (UNKNOWN_WORK, {"owner": ("Job", "job")}),
    "a latency service": (LATENCY_SERVICE, {"annotations": SERVICE}),
}


@pytest.mark.parametrize("what", STAYS)
def test_it_stays(what: str) -> None:
    reason, fields = STAYS[what]
    running = scheduler(*fragmented(**fields))
    wait_for_room(running, DUE_S, priority=2_000_000_000)
    assert running.look() is None
    assert running.state.rebalancing.last is not None
    assert running.state.rebalancing.last.stays[reason] == 2
    assert not running.moves


def test_a_pod_with_a_claim_for_one_pod_stays() -> None:
    modes = ("ReadWriteOncePod",)
    claim = b.claim("data", volume="pv", modes=modes), b.volume("pv", claim=("default", "data"), modes=modes)
    running = scheduler(
        *claim, b.node("n1", "4"), b.node("n2", "4"), small("one", "n1", volumes=[b.claim_volume("data")])
    )
    running.look()
    assert running.state.rebalancing.last is not None
    assert running.state.rebalancing.last.stays == {EXCLUSIVE_CLAIM: 1}


def test_files_that_may_be_lost_keep_no_pod() -> None:
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    running = scheduler(*fragmented(volumes=[{"name": "scratch", "emptyDir": {}}], annotations=safe))
    wait_for_room(running, DUE_S)
    assert running.look() is not None


def test_a_pod_that_has_just_started_stays_for_the_cool_down() -> None:
    running = scheduler(*fragmented(), cool_down_s=2000.0)
    wait_for_room(running, 900.0)
    assert running.look() is None
    assert running.state.rebalancing.last is not None
    assert running.state.rebalancing.last.stays == {YOUNG: 2}
    running.server.now += 200.0
    assert running.look() is not None


# Limits


def test_budgets_are_kept_for_all_moves_together() -> None:
    nodes = [b.node(f"n{i}", "4") for i in range(4)]
    pods = [small(f"small-{i}", f"n{i}", labels={"app": "small"}) for i in range(4)]
    one = b.budget("keep", b.selector(app="small"), allowed=1)
    running = scheduler(*nodes, *pods, one)
    gang = {NAME_LABEL: "wide", MINIMUM_LABEL: "2"}
    running.create(*(b.pod(f"wide-{i}", cpu="4", labels=gang) for i in range(2)))
    running.round()
    running.server.now += DUE_S
    assert running.look() is None
    assert told(running) == ["room for pod group default/wide: disruption budget default/keep does not allow it"]
    running.observe([Seen(b.budget("keep", b.selector(app="small"), allowed=2))])
    running.look()
    running.move()
    running.move()
    assert len([p for p in running.server.pods.values() if p.metadata.deletion_timestamp is not None]) == 2


def test_no_pod_is_moved_while_budgets_cannot_be_read() -> None:
    running = scheduler(*fragmented())
    running.state.budgets.unreadable = "forbidden"
    wait_for_room(running, DUE_S)
    assert running.look() is None
    assert told(running) == ["no pod is moved while PodDisruptionBudgets cannot be read: forbidden"]


def test_a_plan_of_more_moves_than_are_allowed_is_not_begun() -> None:
    nodes = [b.node(f"n{i}", "4") for i in range(4)]
    running = scheduler(*nodes, *(small(f"small-{i}", f"n{i}") for i in range(4)), max_moves=1)
    gang = {NAME_LABEL: "wide", MINIMUM_LABEL: "2"}
    running.create(*(b.pod(f"wide-{i}", cpu="4", labels=gang) for i in range(2)))
    running.round()
    running.server.now += DUE_S
    assert running.look() is None
    assert told(running) == ["room for pod group default/wide: it takes 2 moves, and maxMoves is 1"]


def test_looks_come_at_their_interval_and_wait_for_those_who_move() -> None:
    running = scheduler(*fragmented(), interval_s=60.0)
    rebalancing = running.state.rebalancing
    wait_for_room(running, DUE_S)
    running.server.now += 30.0
    assert rebalancing.due(running.now)
    running.look()
    assert not rebalancing.due(running.now)
    running.server.now += 61.0
    assert not rebalancing.due(running.now), "a pod is still to leave"
    running.move()
    for pod in [p for p in running.server.pods.values() if p.metadata.deletion_timestamp is not None]:
        running.server.remove(pod)
    running.deliver()
    assert not rebalancing.due(running.now), "there is room now, and a pod that waits for it"
    running.settle()
    assert rebalancing.due(running.now)


def test_a_dry_run_says_what_would_move() -> None:
    running = scheduler(*fragmented(), dry_run=True)
    wait_for_room(running, DUE_S)
    assert running.look() is not None
    assert not running.moves
    (move,) = running.state.rebalancing.dump(running.now)["moves"]  # type: ignore[misc]
    assert move["dry_run"] and move["record"] == "rebalancing-1"
    assert running.conditions("wide")[-1].nominated_node is None
    assert running.state.tallies.moves == {("room", "dry"): 1}


def test_what_is_refused_ends_the_plan() -> None:
    nodes = [b.node(f"n{i}", "4") for i in range(4)]
    running = scheduler(*nodes, *(small(f"small-{i}", f"n{i}") for i in range(4)))
    gang = {NAME_LABEL: "wide", MINIMUM_LABEL: "2"}
    running.create(*(b.pod(f"wide-{i}", cpu="4", labels=gang) for i in range(2)))
    running.round()
    running.server.now += DUE_S
    running.look()
    (refused,) = running.moves
    running.move(refused="it would break a budget")
    assert not running.moves, "the next one is not asked for"
    assert not any(p.metadata.deletion_timestamp for p in running.server.pods.values()), "no pod leaves for half a plan"
    assert told(running)[-1] == f"{refused} could not be evicted: it would break a budget"
    assert not running.state.cache.nominated, "no room is held for what does not come"
    assert not running.events(refused.name)
    assert running.state.rebalancing.dump(running.now)["moves"] == []
    assert running.conditions("wide-0")[-1].nominated_node == ""
    running.server.now += 100.0
    assert running.state.rebalancing.due(running.now)


def test_no_pod_is_moved_against_another_evicting_client() -> None:
    running = scheduler(*fragmented(), b.node("n3", "1"), small("other", "n3", cpu="1"), cool_down_s=300.0)
    evicted = {"type": names.DISRUPTION_TARGET, "status": "True", "reason": names.EVICTION_BY_API}
    gone = small(
        "other", "n3", cpu="1", deleting=True, uid="other-4", status={"phase": "Running", "conditions": [evicted]}
    )
    running.observe([Seen(gone)])
    wait_for_room(running, DUE_S)
    running.server.now += 20.0
    assert not running.state.rebalancing.due(running.now)
    running.server.now += 200.0
    running.settle()
    assert running.state.rebalancing.due(running.now)


# Empty nodes


def test_a_node_is_emptied_only_once_it_is_marked() -> None:
    pods = [small(f"small-{i}", f"n{i}", cpu="1") for i in (1, 2)]
    running = scheduler(b.node("n1", "4"), b.node("n2", "4"), *pods, empty_node_gain=1.0)
    emptied = b.node("n3", "4", taints=[b.taint(names.EMPTIED, str(int(running.now)), names.AVOIDED)])
    running.put(emptied)
    plan = running.look()
    assert plan is not None and plan.question.purpose is Purpose.EMPTY_NODE
    assert [(m.source, m.target) for m in plan.moves] == [("n1", "n2")], "an emptied node is no place for them"
    assert not running.moves
    running.marked(accepted=False)
    assert not running.moves
    assert told(running)[-1] == "n1 without pods: it could not be marked: for the test"
    running.look()
    (mark,) = running.marks
    assert (mark.node, [t.key for t in mark.taints], mark.taints[0].effect) == (
        "n1",
        [names.EMPTIED],
        "PreferNoSchedule",
    )
    running.marked()
    assert asked(running) == ["small-1"]


@pytest.mark.parametrize(("gain", "moves"), [(0.05, False), (0.15, True), (0.0, False)])
def test_a_node_is_emptied_for_what_it_is_worth(gain: float, moves: bool) -> None:
    pods = [small(f"small-{i}", f"n{i}", cpu="1") for i in (1, 2)]
    running = scheduler(b.node("n1", "4"), b.node("n2", "4"), *pods, empty_node_gain=gain)
    assert (running.look() is not None) == moves


def test_a_node_in_use_is_not_emptied() -> None:
    running = scheduler(
        b.node("n1", "4"), b.node("n2", "8"), small("one", "n1"), small("two", "n2", cpu="5"), empty_node_gain=1.0
    )
    assert running.look() is None


def test_the_mark_goes_when_a_pod_is_there_or_the_node_need_not_go() -> None:
    mark = b.taint(names.EMPTIED, "1000", names.AVOIDED)
    kept = b.taint("kept", effect="NoSchedule")
    nodes = [b.node("used", taints=[kept, mark]), b.node("free", taints=[mark])]
    running = scheduler(*nodes, small("one", "used"))
    running.server.now = 1100.0
    running.look()
    assert [(m.node, [t.key for t in m.taints]) for m in running.marks] == [("used", ["kept"])]
    running.marks.clear()
    running.server.now = 1000.0 + 1801.0
    running.look()
    assert [m.node for m in running.marks] == ["free", "used"]


def test_room_that_comes_while_a_round_runs_stays_held() -> None:
    """That round has not seen it: its refusal does not mean that the room is of no use."""
    running = scheduler(*fragmented())
    wait_for_room(running, DUE_S)
    running.look()
    running.move()
    running.deliver()
    (leaving,) = [p for p in running.server.pods.values() if p.metadata.deletion_timestamp is not None]
    # A round with the pod that waits, in which the other one goes.
    running.put(b.node("n3", "1"))
    running.server.now += 20.0
    assert running.begin()
    running.server.remove(leaving)
    running.deliver()
    running.plan()
    running.end()
    assert list(running.state.cache.nominated.values()) == [leaving.spec.node_name]
    running.create(b.pod("again", cpu="2", owner=OWNED))
    running.settle()
    assert running.where()["wide"] == leaving.spec.node_name
    assert running.where()["again"] != leaving.spec.node_name


def test_held_room_is_not_for_others_of_the_same_priority_in_the_same_round() -> None:
    running = scheduler(*fragmented())
    wait_for_room(running, DUE_S)
    plan = running.look()
    assert plan is not None
    (move,) = plan.moves
    running.move()
    # The pod that waits is tried again beside two that would fit into the half that is free already.
    running.put(b.node("n3", "1"))
    running.create(*(b.pod(f"again-{i}", cpu="2", owner=OWNED) for i in range(2)))
    running.server.now += 20.0
    assert running.begin()
    assert running.given is not None and len(running.given.classes) == 2
    running.plan()
    assert [bind.node for bind in running.end()] == [move.target]


def test_a_pod_that_is_tried_again_and_again_gets_room_as_well() -> None:
    """Where pods come and go, every end wakes those that wait: they are nearly always about to be tried again."""
    running = scheduler(*fragmented())
    wait_for_room(running, DUE_S)
    running.put(b.node("n3", "1"))
    running.server.now += 20.0
    running.round()
    running.put(b.node("n4", "1"))
    assert running.state.queue.sizes()["backoff"] == 1
    assert running.state.rebalancing.due(running.now)
    assert running.look() is not None


def test_a_group_gets_room_in_one_rack() -> None:
    nodes = [b.node(f"{rack}{i}", "4", labels={"rack": rack}) for rack in "ab" for i in range(2)]
    running = scheduler(*nodes, *(small(f"small-{n}", n) for n in ("a0", "a1", "b1")), b.node("c0", "4"))
    gang = {NAME_LABEL: "wide", MINIMUM_LABEL: "2"}
    rack = {names.GROUP_TOPOLOGY: "rack"}
    running.create(*(b.pod(f"wide-{i}", cpu="4", labels=gang, annotations=rack) for i in range(2)))
    running.round()
    running.server.now += DUE_S
    plan = running.look()
    assert plan is not None
    assert [(m.source, m.target) for m in plan.moves] == [("b1", "c0")], "rack b has one node free already"
    assert set(running.state.cache.nominated.values()) == {"b0", "b1"}


def test_a_look_leaves_nodes_that_came_out_of_turn_where_they_are_known_to_be() -> None:
    """No round has begun since a node came whose name is before those of the others."""
    pods = [small(f"small-{i}", f"n{i}", cpu="1") for i in (1, 2)]
    running = scheduler(b.node("n1", "4"), b.node("n2", "4"), *pods, empty_node_gain=1.0)
    running.create(b.node("a0", "4", cordoned=True))
    running.deliver()
    running.look()
    cache = running.state.cache
    known = {n: int(cache.columns.versions[i]) for i, n in enumerate(cache.machines.names) if n is not None}
    assert known == {name: node.version for name, node in cache.nodes.items()}
    running.create(*[b.pod(f"t{i}", cpu="1", owner=OWNED) for i in range(6)])
    running.deliver()
    assert sorted(bound.node for bound in running.round()) == ["n1"] * 3 + ["n2"] * 3

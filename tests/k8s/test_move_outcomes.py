"""Pods that rebalancing would move, and that come back: plans are judged by the next round, and no workload is moved in vain
again and again. Without a server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from msgspec.structs import replace
from test_rebalancing import OWNED, scheduler, small, told, wait_for_room

from flowsched_k8s import names
from flowsched_k8s.instructions import MovePod
from flowsched_k8s.objects import Pod

COOL_DOWN_S = 2.0


def emptying(*things: Any, **settings: Any) -> ModelScheduler:
    """A scheduler that would empty nodes for whatever it costs."""
    return scheduler(*things, **{"empty_node_gain": 10.0, "interval_s": 1.0, "cool_down_s": COOL_DOWN_S, **settings})


def liking(node: str, weight: int = 100) -> dict[str, Any]:
    """A wish to be on a node."""
    return b.affinity(prefers=[(weight, [b.requirement("kubernetes.io/hostname", "In", node)])])


def mark(running: ModelScheduler) -> None:
    """The API server takes all changes of taints."""
    while running.marks:
        told = running.marks[0]
        node = running.server.nodes.get(told.node)
        if node is not None:
            running.server.put(replace(node, spec=replace(node.spec, taints=list(told.taints))))
        running.marks.reverse()
        running.marked()
        running.marks.reverse()
        running.deliver()


def live(
    running: ModelScheduler,
    seconds: int,
    made: Callable[[str, Pod], Pod],
    meanwhile: Callable[[Pod], None] = lambda _: None,
) -> int:
    """Let the process look for so long; controllers replace at once what is moved, and a kubelet takes a second to end it.

    How many pods were moved. ``meanwhile``: what happens before the new pod is there.
    """
    moved = 0
    for _ in range(seconds):
        running.server.now += 1.0
        running.settle(within=0.5)
        for pod in list(running.server.pods.values()):
            if pod.metadata.deletion_timestamp is not None:
                running.server.remove(pod)
        running.settle(within=0.5)
        if running.state.rebalancing.due(running.now):
            running.look()
            mark(running)
        while running.moves:
            old = running.server.read(running.moves[0])
            assert old is not None
            running.move()
            running.deliver()
            meanwhile(old)
            running.create(made(f"again-{moved}", old))
            moved += 1
            running.settle(within=0.5)
    return moved


def same(name: str, old: Pod) -> Pod:
    """A pod of the same template."""
    meta = replace(old.metadata, name=name, uid="", deletion_timestamp=None, deletion_grace_period_seconds=None)
    notes = {k: v for k, v in (meta.annotations or {}).items() if k != names.PLACEMENT} or None
    spec = replace(old.spec, node_name="", scheduler_name="flowsched")
    return replace(old, metadata=replace(meta, annotations=notes), spec=spec)


def used(*nodes: str, cpu: str = "3") -> list[Any]:
    """Nodes with a pod on each that makes them no candidates."""
    made = [b.node(name, "8", labels={"rack": name[0]}) for name in nodes]
    return [*made, *(b.pod(f"on-{name}", node=name, cpu=cpu, owner=("ReplicaSet", "other")) for name in nodes)]


# Plans are judged by the next round


def wish_for_the_node() -> list[Any]:
    return [*used("n1", cpu="0"), *used("n2", cpu="5"), small("p", "n1", affinity=liking("n1"))]


def two_wishes_that_together_weigh_more_than_the_mark() -> list[Any]:
    node = b.node("n1", "8", images={"app": 900_000_000})
    wish = liking("n1", 45)
    return [
        node,
        *used("n2", cpu="5"),
        b.pod(
            "p",
            node="n1",
            owner=OWNED,
            affinity=wish,
            containers=[{**b.container("main", "2"), "image": "app"}],
        ),
    ]


def spread_that_may_be_broken() -> list[Any]:
    """Without it the zone would be empty; while it is there, another pod would be one too many."""
    spread = b.spread("rack", b.selector(app="p"), hard=False)
    also = {"labels": {"app": "p"}, "topologySpreadConstraints": [spread]}
    return [*used("a1", cpu="0"), *used("b1", cpu="4"), small("p", "a1", **also), small("q", "b1", cpu="1", **also)]


def spread_that_must_hold() -> list[Any]:
    spread = b.spread("rack", b.selector(app="p"))
    also = {"labels": {"app": "p"}, "topologySpreadConstraints": [spread], "owner": OWNED}
    rest = [small(f"q{i}", "b1", cpu="1", **also) for i in range(2)]
    return [*used("a1", cpu="0"), *used("b1", cpu="3"), small("p", "a1", **also), *rest]


def wish_to_be_near_a_pod_that_stays() -> list[Any]:
    near = b.affinity(likes=[(100, b.pod_term("kubernetes.io/hostname", b.selector(app="cache")))])
    cache = b.pod("cache", node="n1", cpu="100m", labels={"app": "cache"}, owner=("DaemonSet", "d"))
    return [b.node("n1", "8"), cache, *used("n2", cpu="5"), small("p", "n1", affinity=near)]


def wish_to_be_near_its_own_kind() -> list[Any]:
    """The pod that leaves is there still when the new one comes."""
    near = b.affinity(likes=[(100, b.pod_term("kubernetes.io/hostname", b.selector(app="p")))])
    return [b.node("n1", "8"), *used("n2", cpu="5"), small("p", "n1", labels={"app": "p"}, affinity=near)]


def empty_node_beside() -> list[Any]:
    """A new pod goes where fewest are."""
    return [b.node("n0", "8"), b.node("n1", "8"), *used("n2", cpu="5"), small("p", "n1")]


KEPT = [
    wish_for_the_node,
    two_wishes_that_together_weigh_more_than_the_mark,
    spread_that_may_be_broken,
    spread_that_must_hold,
    wish_to_be_near_a_pod_that_stays,
    wish_to_be_near_its_own_kind,
    empty_node_beside,
]


@pytest.mark.parametrize("what", KEPT, ids=lambda what: what.__name__)
def test_no_pod_is_moved_that_the_next_round_would_place_there_again(what: Callable[[], list[Any]]) -> None:
    running = emptying(*what())
    assert live(running, 12, same) == 0
    assert any("the next round would place" in text or "no other place" in text for text in told(running))


def test_without_a_wish_the_node_is_emptied() -> None:
    """The same as above but for the wish: what keeps the pod is that, and nothing else."""
    running = emptying(*used("n1", cpu="0"), *used("n2", cpu="5"), small("p", "n1"))
    running.server.remove(running.server.pods["default", "on-n1"])
    running.deliver()
    assert live(running, 12, same) == 1
    assert running.where()["again-0"] == "n2"


def test_no_node_is_emptied_for_a_pod_that_waits() -> None:
    running = emptying(b.node("n1", "8"), *used("n2", cpu="5"), small("p", "n1", cpu="1"))
    wait_for_room(running, 1.0, cpu="7500m")
    assert live(running, 6, same) == 0
    assert "n1 without pods: the next round would place default/wide there" in told(running)


def test_room_that_drains_for_another_pod_is_no_place() -> None:
    """A pod that waits too long has the only other node."""
    job = b.pod("on-n2", node="n2", cpu="5", owner=("Job", "other"), restartPolicy="Never")
    running = emptying(b.node("n1", "8"), b.node("n2", "8", labels={"rack": "n"}), job, small("p", "n1"))
    wait_for_room(running, 200.0, cpu="8", priority=1, preemptionPolicy="Never", nodeSelector={"rack": "n"})
    running.server.now += 400.0
    running.settle(within=20.0)
    held = running.state.node_holds.held
    assert held is not None and held.nodes == ("n2",)
    assert live(running, 3, same) == 0


def test_room_is_not_made_that_a_more_important_pod_takes() -> None:
    """The more important one has not waited for long enough to be worth a move itself."""
    nodes = [b.node("n1", "4"), b.node("n2", "4")]
    running = scheduler(*nodes, *(small(f"small-{i}", f"n{i}") for i in (1, 2)))
    wait_for_room(running, 100.0)
    running.create(b.pod("more", cpu="4", priority=5))
    running.round()
    running.server.now += 1.0
    assert running.look() is None
    assert any("pods of higher priority would take the room on" in text for text in told(running))


# A workload that came back


def returned(**settings: Any) -> ModelScheduler:
    """Another pod takes the place while the new one is made, and it comes back."""
    running = emptying(b.node("n1", "8"), *used("n2", cpu="5"), small("p", "n1"), **settings)

    def taken(_: Pod) -> None:
        running.create(b.pod("taker", cpu="2", nodeSelector={"rack": "n"}))
        running.settle(within=0.5)

    assert live(running, 6, same, taken) == 1
    assert running.where() == {"on-n2": "n2", "taker": "n2", "again-0": "n1"}
    running.server.remove(running.server.pods["default", "taker"])
    running.deliver()
    return running


def test_a_workload_that_came_back_is_not_moved_for_that_again() -> None:
    running = returned()
    assert live(running, 40, same) == 0
    last = running.state.rebalancing.last
    assert last is not None
    assert last.stays["moving its workload has gained nothing (empty-node)"] == 1


@pytest.mark.parametrize("which", ["n1", "n2"])
def test_it_is_moved_once_a_node_is_another_one(which: str) -> None:
    running = returned()
    node = running.server.nodes[which]
    running.server.relabel(node, {**(node.metadata.labels or {}), "new": "yes"})
    running.deliver()
    assert live(running, 12, same) == (1 if which == "n1" else 0), "only the nodes that the pod left and came to count"


def test_it_is_moved_once_its_pods_are_others() -> None:
    running = returned()
    old = running.server.pods["default", "again-0"]
    running.server.remove(old)
    running.create(replace(same("other", old), spec=replace(same("other", old).spec, priority=1)))
    running.server.cordon("n2")
    running.settle(within=1.0)
    assert running.where()["other"] == "n1"
    running.server.cordon("n2", False)
    assert live(running, 12, same) == 1


def test_new_pods_that_are_not_like_the_old_ones_are_moved_once() -> None:
    """A webhook gives each new pod a wish that no plan can know of."""
    running = emptying(b.node("n1", "8"), *used("n2", cpu="5"), small("p", "n1"))

    def wishing(name: str, old: Pod) -> Pod:
        wished = b.pod("w", affinity=liking("n1")).spec.affinity
        return replace(same(name, old), spec=replace(same(name, old).spec, affinity=wished))

    assert live(running, 45, wishing) == 1


def test_pods_that_go_from_one_empty_node_to_the_next_are_moved_once() -> None:
    running = emptying(*(b.node(f"n{i}", "8") for i in range(1, 3)), *used("n9", cpu="5"), small("p", "n1"))
    running.server.cordon("n2")
    running.deliver()

    def opened(_: Pod) -> None:
        running.server.cordon("n2", False)
        running.deliver()

    assert live(running, 45, same, opened) == 1
    assert running.where()["again-0"] == "n2"


@pytest.mark.parametrize("taken", [True, False], ids=["given up", "used"])
def test_room_that_came_to_nothing_is_not_made_by_the_same_workload_again(taken: bool) -> None:
    nodes = [b.node("n1", "4"), b.node("n2", "4"), b.node("n3", "2"), b.node("n4", "2")]
    running = scheduler(*nodes, small("a", "n1"), small("c", "n2"), cool_down_s=2.0, interval_s=1.0)
    wait_for_room(running, 100.0)

    def tainted(old: Pod) -> None:
        node = running.server.nodes[old.spec.node_name]
        taints = b.node(taints=[b.taint("x")]).spec.taints
        if taken:
            running.put(replace(node, spec=replace(node.spec, taints=taints)))

    assert live(running, 8, same, tainted) == 1
    assert ("wide" in running.where()) == (not taken)


def test_a_pod_that_is_gone_before_its_eviction_is_answered_does_not_end_the_plan() -> None:
    running = emptying(b.node("n1", "8"), *used("n2", cpu="4"), *(small(f"p-{i}", "n1", cpu="1") for i in range(2)))
    running.look()
    mark(running)
    (first,) = running.moves
    running.moves.clear()
    running.server.remove(running.server.pods[first[:2]])
    running.deliver()
    running._carry_out(running.state.rebalancing.answered(MovePod(first), True, "", running.now))
    assert [key.name for key in running.moves] == ["p-1" if first.name == "p-0" else "p-0"]


# Interference

JOB = {names.PROFILE: "radix", names.SCALE: "50", names.GOAL: "12h"}


KIND = {names.MACHINE_TYPE: "n2d-highmem-4"}


def job(name: str, node: str, **fields: Any) -> Pod:
    return b.pod(name, node=node, cpu="2", annotations=JOB, owner=OWNED, **fields)


def crowded(**fields: Any) -> ModelScheduler:
    """Two jobs that have just begun beside each other, with an empty node for one of them."""
    nodes = [b.node(name, "4", labels=KIND) for name in ("n1", "n2")]
    running = emptying(*nodes, empty_node_gain=0.0, price=0.01)
    running.put(*(job(f"job-{i}", "n1", **fields) for i in range(2)))
    return running


def test_interference_is_relieved_where_the_next_round_agrees() -> None:
    running = crowded()
    assert live(running, 8, same) == 1
    assert running.where()["again-0"] == "n2"
    running = crowded(affinity=liking("n1"))
    assert live(running, 8, same) == 0
    assert any(text.startswith("less interference: the next round would place default/job-") for text in told(running))


@pytest.mark.parametrize("planned", [True, False], ids=["as planned", "elsewhere"])
def test_a_job_that_is_not_where_the_gain_was_is_not_moved_for_it_again(planned: bool) -> None:
    running = crowded()

    def changed(_: Pod) -> None:
        running.put(b.node("n3", "4", labels=KIND))
        running.server.cordon("n3" if planned else "n2")
        running.deliver()

    assert live(running, 6, same, changed) == 1
    there = "n2" if planned else "n3"
    assert running.where()["again-0"] == there
    running.put(job("beside", there))
    running.server.cordon("n2", False)
    running.server.cordon("n3", False)
    running.deliver()
    assert live(running, 8, lambda _, old: same("once-more", old)) == planned

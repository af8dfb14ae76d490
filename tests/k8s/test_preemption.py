"""Who makes room for whom: against trying every set of victims on every node."""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flowsched_k8s.instructions import PodKey
from flowsched_k8s.objects import Meta, OwnerReference, Pod, PodSpec
from flowsched_k8s.preemption.preemption import (
    Occupant,
    Occupants,
    PreemptionPlan,
    Preemptor,
    is_movable,
    plan_preemption,
)

RESOURCES = ("cpu", "memory")


def key(name: str) -> PodKey:
    return PodKey("default", name, f"uid-{name}")


def pod(
    name: str, priority: int, cpu: int, *, started: float = 0.0, budgets: tuple[str, ...] = (), **flags: bool
) -> Occupant:
    return Occupant(key(name), priority, {"cpu": cpu, "pods": 1}, started, budgets, **flags)


def plan(
    nodes: Mapping[str, list[Occupant]],
    needs: Mapping[str, int],
    *,
    priority: int = 10,
    free: Mapping[str, int] | None = None,
    allowed: Mapping[str, int] | None = None,
    policy: str = "",
    total: int | None = None,
) -> PreemptionPlan | str:
    """A plan where all nodes have the same little room."""
    occupants = Occupants()
    for node, pods in nodes.items():
        for occupant in pods:
            occupants.put(occupant, node)
    room = {r: np.full(len(nodes), (free or {}).get(r, 0), dtype=np.int64) for r in needs}
    return plan_preemption(
        Preemptor(needs, priority, policy), list(nodes), room, occupants, allowed or {}, total=total or len(nodes)
    )


def victims(found: PreemptionPlan | str) -> tuple[str, list[str]]:
    assert isinstance(found, PreemptionPlan), found
    return found.node, [victim.name for victim in found.victims]


# Which node


def test_a_plan_that_breaks_no_budget_is_better_than_any_that_does() -> None:
    nodes = {"a": [pod("a1", 1, 4, budgets=("web",))], "b": [pod("b1", 9, 2), pod("b2", 9, 2)]}

    assert victims(plan(nodes, {"cpu": 4}, allowed={"web": 0})) == ("b", ["b1", "b2"])
    assert victims(plan(nodes, {"cpu": 4}, allowed={"web": 1})) == ("a", ["a1"])
    found = plan({"a": nodes["a"]}, {"cpu": 4}, allowed={"web": 0})
    assert isinstance(found, PreemptionPlan)
    assert found.violations == 1


def test_then_the_most_important_victim_matters_least() -> None:
    nodes = {"a": [pod("a1", 5, 4)], "b": [pod("b1", 4, 2), pod("b2", 4, 2)]}

    assert victims(plan(nodes, {"cpu": 4})) == ("b", ["b1", "b2"])


def test_then_the_sum_of_priorities_even_where_they_are_negative() -> None:
    nodes = {"a": [pod("a1", -1, 2), pod("a2", -5, 2)], "b": [pod("b1", -1, 4)]}

    assert victims(plan(nodes, {"cpu": 4})) == ("b", ["b1"])


def test_then_those_that_started_last() -> None:
    nodes = {"a": [pod("a1", 1, 4, started=10.0)], "b": [pod("b1", 1, 4, started=20.0)], "c": [pod("c1", 1, 4)]}

    assert victims(plan(nodes, {"cpu": 4})) == ("b", ["b1"])


# On a node


def test_as_many_as_possible_stay_the_most_important_first() -> None:
    nodes = {"a": [pod("low", 1, 2), pod("middle", 2, 2), pod("high", 3, 2)]}

    assert victims(plan(nodes, {"cpu": 2})) == ("a", ["low"])
    assert victims(plan(nodes, {"cpu": 3})) == ("a", ["middle", "low"])
    # With the two others gone, even one that is in the way but small may stay.
    assert victims(plan({"a": [*nodes["a"], pod("small", 1, 1)]}, {"cpu": 4})) == ("a", ["middle", "low"])


def test_the_older_of_equals_stays() -> None:
    nodes = {"a": [pod("young", 1, 2, started=9.0), pod("old", 1, 2, started=1.0)]}

    assert victims(plan(nodes, {"cpu": 2})) == ("a", ["young"])


def test_a_budget_is_spent_on_the_least_important() -> None:
    nodes = {"a": [pod(f"p{number}", number, 1, budgets=("web",)) for number in range(4)]}

    found = plan(nodes, {"cpu": 2}, allowed={"web": 2})
    assert victims(found) == ("a", ["p1", "p0"])
    assert isinstance(found, PreemptionPlan)
    assert found.violations == 0


def test_those_whose_budget_is_spent_stay_before_more_important_ones() -> None:
    nodes = {"a": [pod("free", 5, 2), pod("guarded", 1, 2, budgets=("web",))]}

    assert victims(plan(nodes, {"cpu": 2}, allowed={"web": 0})) == ("a", ["free"])
    assert victims(plan(nodes, {"cpu": 2}, allowed={"web": 1})) == ("a", ["guarded"])


def test_room_of_a_leaving_pod_is_used_before_any_pod_is_evicted() -> None:
    nodes = {"a": [pod("a1", 1, 4)], "b": [pod("leaving", 9, 4, leaving=True), pod("b2", 1, 4)]}

    assert victims(plan(nodes, {"cpu": 4})) == ("b", [])
    assert victims(plan({"b": nodes["b"]}, {"cpu": 8})) == ("b", ["b2"])


@pytest.mark.parametrize("priority", [10, 99], ids=["equal", "higher"])
def test_room_of_a_leaving_pod_that_is_no_less_important_is_not_waited_for(priority: int) -> None:
    nodes = {"a": [pod("a1", 1, 4)], "b": [pod("leaving", priority, 4, leaving=True), pod("b2", 1, 2)]}

    assert victims(plan(nodes, {"cpu": 4})) == ("a", ["a1"])
    assert isinstance(plan({"b": nodes["b"]}, {"cpu": 4}), str)


# Why not


def test_a_pod_that_never_preempts_says_so() -> None:
    assert plan({"a": [pod("a1", 1, 4)]}, {"cpu": 4}, policy="Never") == "not eligible due to preemptionPolicy=Never."


def test_equal_or_higher_or_unmovable_pods_are_no_victims() -> None:
    nodes = {"a": [pod("a1", 10, 4)], "b": [pod("b1", 11, 4)], "c": [pod("c1", 1, 4, movable=False)]}

    assert plan(nodes, {"cpu": 4}, total=5) == (
        "0/5 nodes are available: 2 Preemption is not helpful for scheduling, "
        "3 No preemption victims found for incoming pod."
    )


def test_victims_that_are_not_enough_are_told_by_resource() -> None:
    nodes = {"a": [pod("a1", 1, 2)], "b": []}

    assert plan(nodes, {"cpu": 4, "nvidia.com/gpu": 1, "pods": 1}) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu, "
        "1 No preemption victims found for incoming pod."
    )


def test_what_no_eviction_changes_is_not_helpful() -> None:
    occupants = Occupants()
    occupants.put(pod("a1", 1, 4), "a")
    found = plan_preemption(
        Preemptor({"cpu": 4}, 10), ["a"], {"cpu": np.zeros(1, dtype=np.int64)}, occupants, {}, total=1, fits=never
    )
    assert found == "0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def never(node: str, gone: Set[PodKey]) -> bool:
    return False


def test_a_port_is_freed_by_the_pod_that_holds_it() -> None:
    occupants = Occupants()
    for name, priority in (("holder", 5), ("bystander", 1)):
        occupants.put(pod(name, priority, 4), "a")
    room = {"cpu": np.full(1, 8, dtype=np.int64)}

    found = plan_preemption(
        Preemptor({"cpu": 4}, 10),
        ["a"],
        room,
        occupants,
        {},
        total=1,
        fits=lambda _, gone: key("holder") in gone,
    )
    assert victims(found) == ("a", ["holder"])


# Against brute force


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, list[Occupant]], dict[str, NDArray[np.int64]], dict[str, int]]:
    nodes: dict[str, list[Occupant]] = {}
    for node in range(draw(st.integers(1, 4))):
        nodes[f"n{node}"] = [
            Occupant(
                key(f"n{node}-{number}"),
                draw(st.integers(-2, 4)),
                {"cpu": draw(st.integers(0, 4)), "memory": draw(st.integers(0, 4))},
                float(draw(st.integers(0, 3))),
                draw(st.sampled_from([(), ("web",), ("db",), ("db", "web")])),
                movable=draw(st.sampled_from([True, True, True, False])),
                leaving=draw(st.sampled_from([False, False, False, True])),
            )
            for number in range(draw(st.integers(0, 5)))
        ]
    free = {r: np.array([draw(st.integers(-2, 3)) for _ in nodes], dtype=np.int64) for r in RESOURCES}
    return nodes, free, {"web": draw(st.integers(0, 2)), "db": draw(st.integers(0, 2))}


def suffices(
    gone: list[Occupant], pods: list[Occupant], free: Mapping[str, int], needs: Mapping[str, int], priority: int
) -> bool:
    away = [*gone, *(p for p in pods if p.leaving and p.priority < priority)]
    return all(free[r] + sum(p.requests[r] for p in away) >= needs[r] for r in needs)


def highest(chosen: list[Occupant]) -> int:
    return max((p.priority for p in chosen), default=-99)


@given(clusters(), st.integers(1, 8), st.integers(0, 8), st.integers(-1, 5))
def test_plans_are_what_trying_everything_finds(
    cluster: tuple[dict[str, list[Occupant]], dict[str, NDArray[np.int64]], dict[str, int]],
    cpu: int,
    memory: int,
    priority: int,
) -> None:
    nodes, free, allowed = cluster
    needs = {"cpu": cpu, "memory": memory}
    occupants = Occupants()
    for node, pods in nodes.items():
        for occupant in pods:
            occupants.put(occupant, node)
    found = plan_preemption(Preemptor(needs, priority), list(nodes), free, occupants, allowed, total=len(nodes))

    possible: list[tuple[str, list[Occupant]]] = []
    for place, (node, pods) in enumerate(nodes.items()):
        room = {r: int(free[r][place]) for r in RESOURCES}
        lower = [p for p in pods if p.movable and not p.leaving and p.priority < priority]
        sets = chain.from_iterable(combinations(lower, size) for size in range(len(lower) + 1))
        possible += [(node, list(chosen)) for chosen in sets if suffices(list(chosen), pods, room, needs, priority)]
    if isinstance(found, str):
        assert not possible
        return
    by_key = {p.pod: p for pods in nodes.values() for p in pods}
    chosen = [by_key[victim] for victim in found.victims]
    members = {frozenset(p.pod for p in gone) for node, gone in possible if node == found.node}
    assert frozenset(found.victims) in members
    # No pod leaves in vain.
    assert not any(frozenset(found.victims) - {victim} in members for victim in found.victims)
    spent = {budget: sum(budget in p.budgets for p in chosen) for budget in allowed}
    if any(not gone for _, gone in possible):
        assert not chosen
    if found.violations == 0:
        assert all(spent[budget] <= allowed[budget] for budget in spent)
    untouched = [gone for _, gone in possible if all(not p.budgets for p in gone)]
    if untouched:
        assert found.violations == 0
    if all(not p.budgets for p in by_key.values()):
        assert highest(chosen) == min(highest(gone) for _, gone in possible)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=400))
def test_occupants_are_who_was_put_last_and_not_removed(steps: list[tuple[int, int, int, bool]]) -> None:
    occupants = Occupants()
    truth: dict[PodKey, tuple[str, Occupant]] = {}
    for name, node, cpu, put in steps:
        occupant = pod(str(name), cpu, cpu, budgets=("web",) * (cpu % 2))
        if put:
            occupants.put(occupant, f"n{node}")
            truth[occupant.pod] = (f"n{node}", occupant)
        else:
            occupants.remove(occupant.pod)
            truth.pop(occupant.pod, None)
    nodes = ["n4", "n0", "nowhere", "n5"]
    crowd = occupants.select(nodes, ["cpu", "gpu"])
    seen = {
        crowd.pods[row].pod: (nodes[at], tuple(requests), priority, budget)
        for row, at, requests, priority, budget in zip(
            crowd.rows, crowd.at, crowd.requests.tolist(), crowd.priority, crowd.has_budget, strict=True
        )
    }
    assert len(occupants) == len(truth)
    assert seen == {
        k: (node, (o.requests["cpu"], 0), o.priority, bool(o.budgets))
        for k, (node, o) in truth.items()
        if node in nodes
    }


def test_nodes_that_are_gone_leave_nothing_behind() -> None:
    occupants = Occupants()
    for number in range(1000):
        occupants.put(pod("stays", 1, 1), f"n{number}")
        occupants.put(pod("goes", 1, 1), f"n{number}")
        occupants.remove(key("goes"))
    assert len(occupants) == 1
    assert len(occupants._names) <= 2


def test_thousands_of_nodes_are_screened_together_and_few_are_planned() -> None:
    occupants = Occupants()
    nodes = [f"n{number}" for number in range(5000)]
    for number, node in enumerate(nodes):
        for index in range(10):
            occupants.put(pod(f"{node}-{index}", (number + index) % 50, 1), node)
    asked: set[str] = set()

    def fits(node: str, gone: Set[PodKey]) -> bool:
        asked.add(node)
        return True

    room = {"cpu": np.zeros(len(nodes), dtype=np.int64)}
    found = plan_preemption(Preemptor({"cpu": 2}, 60), nodes, room, occupants, {}, total=5000, fits=fits)
    assert isinstance(found, PreemptionPlan)
    assert [int(victim.name.split("-")[1]) for victim in found.victims] == [1, 0]
    assert len(asked) <= 100


# Who may be moved


@pytest.mark.parametrize(
    ("movable", "found"),
    [
        (True, Pod()),
        (True, Pod(metadata=Meta(owner_references=[OwnerReference("ReplicaSet", "r", "u", controller=True)]))),
        (True, Pod(metadata=Meta(owner_references=[OwnerReference("DaemonSet", "d", "u", controller=False)]))),
        (False, Pod(metadata=Meta(owner_references=[OwnerReference("DaemonSet", "d", "u", controller=True)]))),
        (False, Pod(metadata=Meta(owner_references=[OwnerReference("Node", "n", "u", controller=True)]))),
        (False, Pod(metadata=Meta(annotations={"kubernetes.io/config.mirror": "x"}))),
        (False, Pod(metadata=Meta(annotations={"karpenter.sh/do-not-disrupt": "true"}))),
        (True, Pod(metadata=Meta(annotations={"karpenter.sh/do-not-disrupt": "false"}))),
        (False, Pod(metadata=Meta(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}))),
        (True, Pod(metadata=Meta(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}))),
        (True, Pod(spec=PodSpec(priority=1_000_000_000))),
        (False, Pod(spec=PodSpec(priority=2_000_000_000))),
        (False, Pod(spec=PodSpec(priority=2_000_001_000))),
    ],
)
def test_who_is_never_moved(movable: bool, found: Pod) -> None:
    assert is_movable(found) == movable

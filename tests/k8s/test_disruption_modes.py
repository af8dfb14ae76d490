"""Groups that are evicted whole or not at all, in forms without a field for that: preemption and rebalancing."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from msgspec.structs import replace
from test_group_members import SIZE, member, said, scheduler
from test_rebalancing import scheduler as moving
from test_rebalancing import wait_for_room

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import IN_TREE, KUEUE, KUEUE_TOTAL, LABELS, SOURCES

FORMS = [form for form in SOURCES if form != IN_TREE]


def notes(form: str, mode: str | None) -> dict[str, str]:
    own = {KUEUE_TOTAL: str(SIZE)} if form == KUEUE else {}
    return own if mode is None else {**own, names.DISRUPTION_MODE: mode}


def running_group(form: str, mode: str | None, annotated: int = SIZE) -> ModelScheduler:
    """A group on all nodes, of which so many pods say how it may be evicted."""
    running = scheduler(form, SIZE)
    modes = [mode if i < annotated else None for i in range(SIZE)]
    running.create(*(member(form, f"g-{i}", annotations=notes(form, m)) for i, m in enumerate(modes)))
    running.settle(within=5.0)
    assert len(running.where()) == SIZE
    return running


def preempted(running: ModelScheduler, name: str = "high") -> list[str]:
    """Victims of a pod of higher priority."""
    running.create(b.pod(name, cpu="2", priority=10))
    running.settle(within=5.0)
    return [key.name for key in running.victims]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", [None, "single", "all"])
def test_one_pod_of_a_group_is_evicted_unless_it_is_whole_or_nothing(form: str, mode: str | None) -> None:
    running = running_group(form, mode)
    assert len(preempted(running)) == (0 if mode == "all" else 1)
    if mode == "all":
        assert names.NO_VICTIMS in said(running, "high")


@pytest.mark.parametrize("form", FORMS)
def test_what_one_pod_says_is_for_all(form: str) -> None:
    assert preempted(running_group(form, "all", annotated=1)) == []


def test_other_pods_are_evicted_instead() -> None:
    running = running_group(LABELS, "all")
    running.put(b.node("more", "2"), b.pod("low", node="more", cpu="2", scheduler="other"))
    assert preempted(running) == ["low"]


def test_a_restart_changes_nothing() -> None:
    running = running_group(LABELS, "all", annotated=1)
    running = scheduler(LABELS, 0, running.server)
    assert preempted(running) == []


def test_it_counts_from_when_it_is_said_until_it_is_not() -> None:
    running = running_group(LABELS, None)
    # Occupants are known before the mode is.
    assert preempted(running)
    running.server.remove(running.server.pods["default", "high"])
    running.victims.clear()
    running.deliver()
    pod = running.server.pods["default", "g-0"]
    placement = pod.metadata.annotations or {}
    for mode, victims in (("all", 0), ("single", 1)):
        meta = replace(pod.metadata, annotations={**placement, names.DISRUPTION_MODE: mode})
        running.server.put(replace(pod, metadata=meta))
        running.deliver()
        assert len(preempted(running, mode)) == victims
        running.server.remove(running.server.pods["default", mode])
        running.deliver()


@pytest.mark.parametrize("form", FORMS)
def test_another_word_is_refused(form: str) -> None:
    running = scheduler(form, SIZE)
    running.create(*(member(form, f"g-{i}", annotations=notes(form, "whole")) for i in range(SIZE)))
    running.settle(within=5.0)
    assert running.where() == {}
    text = "annotation flowsched.io/disruption-mode of group g is 'whole'; write 'single' or 'all'"
    assert text in said(running, "g-0")


@pytest.mark.parametrize("mode", ["single", "all"])
def test_rebalancing_moves_no_pod_of_a_group(mode: str) -> None:
    fields: dict[str, Any] = {"owner": ("ReplicaSet", "rs"), "annotations": notes(LABELS, mode)}
    pods = [replace_node(member(LABELS, f"g-{i}", minimum=2, **fields), f"n{i}") for i in range(2)]
    running = moving(b.node("n0", "4"), b.node("n1", "4"), *pods)
    wait_for_room(running, 100.0)
    assert running.look() is None
    last = running.state.rebalancing.last
    assert last is not None
    assert last.stays == {"it is in a pod group": 2}


def replace_node(pod: Any, node: str) -> Any:
    return replace(pod, spec=replace(pod.spec, node_name=node))

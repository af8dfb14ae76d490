"""Which pods count for a group's minimum, in every form in which a group is declared."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from consistency import check_state
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.groups.pod_groups import (
    IN_TREE,
    KUEUE,
    KUEUE_LABEL,
    KUEUE_TOTAL,
    LABELS,
    MINIMUM_LABEL,
    NAME_LABEL,
    PLUGINS,
    PLUGINS_LABEL,
    SOURCES,
)
from flowsched_k8s.objects import Pod
from flowsched_k8s.watched import watched

SIZE = 3
ANY_FORM = pytest.mark.parametrize("form", SOURCES)


def member(form: str, name: str, minimum: int = SIZE, **fields: Any) -> Pod:
    said: dict[str, dict[str, Any]] = {
        LABELS: {"labels": {NAME_LABEL: "g", MINIMUM_LABEL: str(minimum)}},
        PLUGINS: {"labels": {PLUGINS_LABEL: "g"}},
        KUEUE: {"labels": {KUEUE_LABEL: "g"}, "annotations": {KUEUE_TOTAL: str(minimum)}},
        IN_TREE: {"schedulingGroup": {"podGroupName": "g"}},
    }
    return b.pod(name, **{"cpu": "2", **said[form], **fields})


def scheduler(
    form: str, nodes: int, server: ModelServer | None = None, minimum: int = SIZE, **features: Any
) -> ModelScheduler:
    """With nodes for one member each, and the group's object where the form has one."""
    chosen = Features(pod_groups=(form,), **{"preemption": True, **features})
    running = ModelScheduler(server or ModelServer(), Configuration(features=chosen))
    if server is None:
        running.put(*(b.node(f"n{i}", "2") for i in range(nodes)))
        if form == PLUGINS:
            running.put(b.plugins_group("g", minMember=minimum))
        elif form == IN_TREE:
            running.put(b.in_tree_group("g", minimum=minimum))
    return running


def said(running: ModelScheduler, name: str) -> str:
    return running.state.cache.pods[running.server.pods["default", name].metadata.uid].message


def terminate(running: ModelScheduler, *pods: str) -> None:
    for name in pods:
        running.server.terminate(running.server.pods["default", name], 3600)
    running.deliver()


def end(running: ModelScheduler, how: str, *pods: str) -> None:
    for name in pods:
        running.server.finish(running.server.pods["default", name], how)
    running.deliver()


def started(form: str, nodes: int = SIZE, **fields: Any) -> ModelScheduler:
    """``old-0``, ``old-1`` ... run."""
    running = scheduler(form, nodes)
    running.create(*(member(form, f"old-{i}", **fields) for i in range(SIZE)))
    running.settle(within=5.0)
    assert len(running.where()) == SIZE
    return running


# Pods that are being deleted


@ANY_FORM
def test_terminating_members_do_not_count_and_no_new_one_starts_alone(form: str) -> None:
    running = started(form)
    terminate(running, "old-0", "old-1", "old-2")
    running.put(b.node("free", "2"))
    running.create(*(member(form, f"new-{i}") for i in range(SIZE)))
    running.settle(within=20.0)
    assert not {f"new-{i}" for i in range(SIZE)} & running.where().keys()
    for i in range(SIZE):
        running.server.remove(running.server.pods["default", f"old-{i}"])
    running.settle(within=60.0)
    assert {f"new-{i}" for i in range(SIZE)} <= running.where().keys()


@ANY_FORM
def test_what_is_there_says_how_many_are_not_being_deleted(form: str) -> None:
    running = started(form)
    terminate(running, "old-0", "old-1")
    running.put(b.node("free", "2"))
    running.create(member(form, "new"))
    running.settle(within=20.0)
    assert said(running, "new").endswith("waiting for pod group g: 2 of 3 pods are there")
    running.create(member(form, "newer"))
    running.put(b.node("free-too", "2"))
    running.settle(within=20.0)
    assert {"new", "newer"} <= running.where().keys(), "with the one that stays the group is complete"


@ANY_FORM
def test_no_binding_is_sent_once_a_member_is_gone_that_the_group_needs(form: str) -> None:
    """Deleted without a grace period it is not even seen to leave."""
    running = scheduler(form, nodes=SIZE)
    running.create(*(member(form, f"new-{i}") for i in range(SIZE)))
    assert len(running.round()) == SIZE
    running.server.remove(running.server.pods["default", "new-1"])
    running.deliver()
    for _ in range(SIZE):
        assert running.send() is None
    running.settle(within=20.0)
    assert not running.where()
    running.create(member(form, "new-3"))
    running.settle(within=20.0)
    assert running.where().keys() == {"new-0", "new-2", "new-3"}


@ANY_FORM
def test_a_binding_that_has_not_been_sent_waits_when_the_others_are_deleted(form: str) -> None:
    running = started(form, nodes=SIZE + 1)
    running.create(member(form, "fourth"))
    assert [bind.pod.name for bind in running.round()] == ["fourth"]
    terminate(running, "old-0", "old-1", "old-2")
    assert running.send() is None
    running.settle(within=20.0)
    assert "fourth" not in running.where()


@ANY_FORM
def test_a_round_that_was_under_way_starts_no_member_alone(form: str) -> None:
    running = started(form, nodes=SIZE + 1)
    running.create(member(form, "fourth"))
    assert running.begin()
    running.plan()
    terminate(running, "old-0", "old-1", "old-2")
    assert running.end() == []


@ANY_FORM
def test_room_is_made_for_as_many_as_are_missing_without_those_that_leave(form: str) -> None:
    """Two of three are replaced: one victim alone would let none of them start."""
    running = started(form, priority=10)
    terminate(running, "old-0", "old-1")
    low = [b.pod(f"low-{i}", node=f"m{i}", cpu="2", scheduler="other") for i in range(2)]
    running.put(b.node("m0", "2"), b.node("m1", "2"), *low)
    running.create(*(member(form, f"new-{i}", priority=20) for i in range(2)))
    running.round()
    # What leaves is used first: no pod has to go for it.
    assert len(running.victims) == 0
    nodes = {running.server.pods["default", f"new-{i}"].status.nominated_node_name for i in range(2)}
    assert nodes == {running.where()["old-0"], running.where()["old-1"]}


def test_a_smaller_minimum_holds_once_the_pods_with_the_larger_one_are_deleted() -> None:
    running = started(LABELS)
    terminate(running, "old-0", "old-1", "old-2")
    running.put(b.node("free", "4"))
    running.create(*(member(LABELS, f"new-{i}", minimum=2) for i in range(2)))
    running.settle(within=20.0)
    assert {"new-0", "new-1"} <= running.where().keys()


def test_a_total_of_kueue_that_is_another_one_by_now_is_not_compared_with_that_of_pods_that_go() -> None:
    running = started(KUEUE)
    terminate(running, "old-0", "old-1", "old-2")
    running.put(b.node("free", "4"))
    running.create(*(member(KUEUE, f"new-{i}", minimum=2) for i in range(2)))
    running.settle(within=20.0)
    assert {"new-0", "new-1"} <= running.where().keys()


def test_new_members_do_not_follow_those_that_leave_into_their_rack() -> None:
    note = {names.GROUP_TOPOLOGY: "rack"}
    running = scheduler(LABELS, 0)
    running.put(*(b.node(f"a{i}", "2", labels={"rack": "a"}) for i in range(SIZE)))
    running.create(*(member(LABELS, f"old-{i}", annotations=note) for i in range(SIZE)))
    running.settle(within=5.0)
    terminate(running, "old-0", "old-1", "old-2")
    running.put(*(b.node(f"b{i}", "2", labels={"rack": "b"}) for i in range(SIZE)))
    running.create(*(member(LABELS, f"new-{i}", annotations=note) for i in range(SIZE)))
    running.settle(within=20.0)
    assert {running.where().get(f"new-{i}") for i in range(SIZE)} == {f"b{i}" for i in range(SIZE)}


# Pods that have succeeded


@ANY_FORM
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_a_failed_member_is_replaced_once_others_have_succeeded(form: str, restarted: bool) -> None:
    running = started(form, owner=("Job", "job-1"))
    end(running, "Succeeded", "old-0", "old-1")
    end(running, "Failed", "old-2")
    if restarted:
        running = scheduler(form, 0, running.server)
    running.create(member(form, "again", owner=("Job", "job-1")))
    running.settle(within=20.0)
    assert "again" in running.where()


@ANY_FORM
def test_those_that_are_missing_start_together(form: str) -> None:
    running = started(form)
    end(running, "Failed", "old-1", "old-2")
    running.create(member(form, "again"))
    running.settle(within=20.0)
    assert said(running, "again").endswith("waiting for pod group g: 2 of 3 pods are there")
    end(running, "Succeeded", "old-0")
    running.settle(within=20.0)
    assert "again" not in running.where()
    assert said(running, "again").endswith("2 of 3 pods are there, 1 succeeded")
    running.create(member(form, "too"))
    running.settle(within=20.0)
    assert {"again", "too"} <= running.where().keys()


@ANY_FORM
@pytest.mark.parametrize("order", ["in one batch", "one by one", "listed again"])
def test_a_member_whose_name_another_pod_takes_before_its_end_is_told_is_gone(form: str, order: str) -> None:
    running = started(form)
    server = running.server
    for i in range(SIZE):
        server.replace(server.pods["default", f"old-{i}"], member(form, f"old-{i}"))
    if order == "listed again":
        running.observe(server.relist("pods"))
    for _ in range(0 if order == "in one batch" else server.lag("pods")):
        running.observe(server.deliver("pods", 1))
        check_state(running.state)
    running.settle(within=20.0)
    check_state(running.state)
    assert running.where().keys() == {f"old-{i}" for i in range(SIZE)}


@ANY_FORM
def test_pods_that_succeeded_count_as_long_as_they_are_there(form: str) -> None:
    running = started(form)
    end(running, "Succeeded", "old-0", "old-1")
    end(running, "Failed", "old-2")
    running.server.remove(running.server.pods["default", "old-0"])
    running.create(member(form, "again"))
    running.settle(within=20.0)
    assert "again" not in running.where()
    assert said(running, "again").endswith("waiting for pod group g: 2 of 3 pods are there, 1 succeeded")


@pytest.mark.parametrize("form", [LABELS, PLUGINS, IN_TREE])
def test_a_pod_that_ran_without_its_group_does_not_count(form: str) -> None:
    """Put on its node by hand, it has ended before there were as many as have to start together."""
    running = scheduler(form, SIZE)
    running.create(member(form, "early", node="n0"))
    end(running, "Succeeded", "early")
    running.create(*(member(form, f"rest-{i}") for i in range(SIZE - 1)))
    running.settle(within=20.0)
    assert running.where().keys() == {"early"}
    assert said(running, "rest-0").endswith("waiting for pod group g: 2 of 3 pods are there")


OWN_MINIMUM = pytest.mark.parametrize("form", [LABELS, PLUGINS, IN_TREE])
"""Kueue's total is that of one run; these are minimums, and the next run may have a group of the same name."""


@OWN_MINIMUM
def test_the_run_before_does_not_count_for_the_next_one(form: str) -> None:
    """A CronJob keeps the pods of its last runs: with them, every pod would be enough."""
    running = started(form, nodes=SIZE - 1 + SIZE, owner=("Job", "monday"))
    end(running, "Succeeded", "old-0", "old-1", "old-2")
    running.server.now += 60.0
    running.create(*(member(form, f"new-{i}", owner=("Job", "tuesday")) for i in range(SIZE - 1)))
    running.settle(within=20.0)
    assert not {"new-0", "new-1"} & running.where().keys()
    assert said(running, "new-0").endswith("waiting for pod group g: 2 of 3 pods are there")


@OWN_MINIMUM
def test_a_member_of_another_owner_counts_that_ran_beside_one_that_is_there(form: str) -> None:
    """A JobSet has a Job for each of its workers."""
    running = scheduler(form, SIZE)
    running.create(*(member(form, f"old-{i}", owner=("Job", f"job-{i}")) for i in range(SIZE)))
    running.settle(within=5.0)
    running.server.now += 60.0
    end(running, "Succeeded", "old-0")
    end(running, "Failed", "old-2")
    running.create(member(form, "again", owner=("Job", "job-2")))
    running.settle(within=20.0)
    assert "again" in running.where()


@OWN_MINIMUM
def test_members_beyond_the_minimum_still_start_all_or_none(form: str) -> None:
    """With as many pods there as have to start together, no pod that succeeded before makes the minimum smaller."""
    running = started(form)
    end(running, "Succeeded", "old-0", "old-1", "old-2")
    running.put(b.node("full", "2"), b.pod("full", node="n0", cpu="2", scheduler="other"))
    for name in ("n1", "n2", "full"):
        running.server.cordon(name)
    running.put(b.node("one", "2"))
    running.create(*(member(form, f"new-{i}") for i in range(SIZE)))
    running.settle(within=20.0)
    assert not {f"new-{i}" for i in range(SIZE)} & running.where().keys()


@pytest.mark.parametrize("form", SOURCES)
def test_pods_that_succeeded_are_read_for_the_forms_that_are_on(form: str) -> None:
    kinds = {w.name: w.selectors for w in watched(Configuration(features=Features(pod_groups=(form,))))}
    (selectors,) = (found for name, found in kinds.items() if name.startswith(f"{form}/") and "succeeded" in name)
    assert selectors["fieldSelector"].startswith("status.phase=Succeeded")
    assert ("labelSelector" in selectors) == (form != IN_TREE)
    assert ("spec.schedulerName=flowsched" in selectors["fieldSelector"]) == (form == IN_TREE)

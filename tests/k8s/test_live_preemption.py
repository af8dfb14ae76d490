"""Preemption on a real API server: who must go, what is said about it, and that the room is kept for whom it was made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from live_volumes import bound_claim, limit, mounts
from plane import Object, Plane, Space, wait_for
from running import STANDARD, Running, Site, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
PRIORITIES = {"low": (100, "PreemptLowerPriority"), "high": (200, "PreemptLowerPriority"), "never": (200, "Never")}


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scheduler")
    with running_scheduler(plane, folder, features=(*STANDARD, "preemption")) as started:
        for name, (value, policy) in PRIORITIES.items():
            made = {"metadata": {"name": f"{started.name}-{name}"}, "value": value, "preemptionPolicy": policy}
            plane.admin.post(CLASSES, made)
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def pod(site: Site, name: str, priority: str, **more: object) -> Object:
    return site.pod(name, **{"cpu": "1", "priorityClassName": f"{site.scheduler.name}-{priority}", **more})


def is_leaving(site: Site, name: str) -> bool:
    return "deletionTimestamp" in site.space.pod(name)["metadata"]


def test_lower_priority_makes_room(site: Site) -> None:
    # Nothing ends pods on this node, so that each step can be seen.
    node = site.node(cpu="1", kwok=False)
    victim = pod(site, "victim", "low")
    site.bound("victim")
    preemptor = pod(site, "preemptor", "high")
    wait_for(lambda: is_leaving(site, "victim"), "the victim to be deleted")
    assert site.space.pod("victim")["metadata"]["deletionGracePeriodSeconds"] == 30
    target = site.condition("victim", names.DISRUPTION_TARGET)
    assert target is not None
    assert (target["status"], target["reason"]) == ("True", names.PREEMPTION_BY_SCHEDULER)
    event = site.event("victim", names.PREEMPTED)
    assert (event["type"], event["action"]) == ("Normal", "Preempting")
    assert event["regarding"]["uid"] == victim["metadata"]["uid"]
    assert preemptor["metadata"]["uid"] in event["note"] and node in event["note"]
    nominated = wait_for(lambda: site.space.pod("preemptor")["status"].get("nominatedNodeName"), "the nomination")
    assert nominated == node
    said = site.refused("preemptor")
    assert said.startswith("0/1 nodes are available: 1 Insufficient cpu. preemption: ")
    # The room is kept: a pod of lower priority waits on, also once the victim is gone.
    pod(site, "other", "low")
    site.refused("other")
    site.space.delete_pod("victim")
    assert site.bound("preemptor") == node
    assert not site.space.pod("other")["spec"].get("nodeName")
    assert site.waits("other")


def test_room_is_made_for_a_whole_group_or_for_none_of_it(site: Site) -> None:
    nodes = site.nodes(3, cpu="2")
    for node in nodes[:2]:
        pod(site, f"low-{node}", "low", cpu="2", nodeSelector={names.HOSTNAME: node})
        site.bound(f"low-{node}")
    high = {"cpu": "2", "priorityClassName": f"{site.scheduler.name}-high"}
    for i in range(4):
        site.pod(f"large-{i}", labels={NAME_LABEL: "large", MINIMUM_LABEL: "4"}, **high)
    site.waits_with("large-0", "preemption: room can be made for 3 of 4 pods only")
    assert not any(is_leaving(site, f"low-{node}") for node in nodes[:2])
    for i in range(4):
        site.space.delete_pod(f"large-{i}")
    for i in range(3):
        site.pod(f"fits-{i}", labels={NAME_LABEL: "fits", MINIMUM_LABEL: "3"}, **high)
    assert {site.bound(f"fits-{i}") for i in range(3)} == set(nodes)
    assert [p["metadata"]["name"] for p in site.space.pods()] == ["fits-0", "fits-1", "fits-2"]


WEB = {"matchLabels": {"app": "web"}}
TERM = {"labelSelector": WEB, "topologyKey": names.HOSTNAME}
APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}
SPREAD = {"maxSkew": 1, "topologyKey": names.HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
PORT: dict[str, Any] = {
    "containers": [{"name": "main", "image": "test", "ports": [{"containerPort": 80, "hostPort": 80}]}]
}
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "host port": (PORT, PORT),
    "its anti-affinity": ({"labels": {"app": "web"}}, APART),
    "another pod's anti-affinity": (APART, {"labels": {"app": "web"}}),
    "topology spread": ({"labels": {"app": "web"}}, {"labels": {"app": "web"}, "topologySpreadConstraints": [SPREAD]}),
    "claim for one pod": ({"volumes": mounts("shared")}, {"volumes": mounts("shared")}),
    "volume limit": ({"volumes": mounts("one")}, {"volumes": mounts("two")}),
}
"""What keeps a pod out, as fields of the pod that runs and of the one that waits."""


@pytest.mark.parametrize("way", WAYS)
def test_whatever_an_eviction_can_cure_is_cured(site: Site, way: str) -> None:
    """Resources suffice: one pod is in the way, and another one that is none the more important stays."""
    node = site.node(cpu="4", kwok=False)
    # Spread compares with it, and no pod tolerates it.
    site.node("closed", taints=[{"key": "closed", "effect": "NoSchedule"}])
    bound_claim(site, "shared", "ReadWriteOncePod")
    driver = f"{site.name}.example.com"
    for name in ("one", "two"):
        bound_claim(site, name, hostPath=None, csi={"driver": driver, "volumeHandle": name})
    limit(site, node, driver, 1)
    there, comes = WAYS[way]
    pod(site, "bystander", "low")
    pod(site, "victim", "low", **there)
    assert set(site.all_bound(2).values()) == {node}
    before = site.scheduler.metric("scheduler_preemption_victims_sum")
    pod(site, "critical", "high", **comes)
    wait_for(lambda: is_leaving(site, "victim"), "the victim to be deleted")
    site.event("victim", names.PREEMPTED)
    nominated = wait_for(lambda: site.space.pod("critical")["status"].get("nominatedNodeName"), "the nomination")
    assert nominated == node
    site.space.delete_pod("victim")
    assert site.bound("critical") == node
    assert not is_leaving(site, "bystander")
    assert site.scheduler.metric("scheduler_preemption_victims_sum") == before + 1
    site.admin.delete(f"/apis/storage.k8s.io/v1/csinodes/{node}")


def test_a_nomination_ends_with_its_node(site: Site) -> None:
    node = site.node(cpu="1", kwok=False)
    pod(site, "victim", "low")
    site.bound("victim")
    pod(site, "critical", "high")
    wait_for(lambda: site.space.pod("critical")["status"].get("nominatedNodeName") == node, "the nomination")
    site.admin.delete(f"/api/v1/nodes/{node}")
    wait_for(lambda: not site.space.pod("critical")["status"].get("nominatedNodeName"), "the nomination to end")
    other = site.node("other", cpu="1")
    assert site.bound("critical") == other


def test_equal_priority_is_not_evicted(site: Site) -> None:
    site.node(cpu="1")
    pod(site, "first", "high")
    site.bound("first")
    before = site.scheduler.metric("scheduler_preemption_attempts_total")
    pod(site, "second", "high")
    expected = "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    site.waits_with("second", f"preemption: {expected}")
    assert not is_leaving(site, "first")
    site.scheduler.metric_becomes(before + 1, "scheduler_preemption_attempts_total")
    assert site.events("first", names.PREEMPTED) == []


def test_a_policy_of_never_evicts_no_pod(site: Site) -> None:
    node = site.node(cpu="1", kwok=False)
    pod(site, "first", "low")
    site.bound("first")
    pod(site, "polite", "never")
    said = site.waits_with("polite", "preemption: ")
    assert said.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    assert not is_leaving(site, "first")
    assert not site.space.pod("polite")["status"].get("nominatedNodeName")
    # It is first in line all the same.
    pod(site, "later", "low")
    site.refused("later")
    site.space.delete_pod("first")
    assert site.bound("polite") == node


def test_where_no_eviction_helps(site: Site) -> None:
    site.node(cpu="1")
    pod(site, "small", "low")
    site.bound("small")
    pod(site, "large", "high", cpu="2")
    site.waits_with("large", "preemption: 0/1 nodes are available: 1 ")
    pod(site, "elsewhere", "high", nodeSelector={"no": "such"})
    expected = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    assert site.refused("elsewhere").startswith(expected)
    assert not is_leaving(site, "small")


def test_disruption_budgets_are_kept_where_possible(site: Site) -> None:
    guarded, free = site.node("guarded", cpu="1", kwok=False), site.node("free", cpu="1", kwok=False)
    hosts = {"guarded": guarded, "free": free}
    for name, node in hosts.items():
        pod(site, name, "low", labels={"app": name}, nodeSelector={names.HOSTNAME: node})
        site.bound(name)
    path = BUDGETS.format(site.name)
    selector = {"matchLabels": {"app": "guarded"}}
    site.admin.post(path, {"metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": selector}})
    status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    site.admin.patch(f"{path}/budget/status", {"status": status})
    pod(site, "preemptor", "high")
    wait_for(lambda: is_leaving(site, "free") or is_leaving(site, "guarded"), "a pod to make room")
    assert is_leaving(site, "free") and not is_leaving(site, "guarded")
    site.space.delete_pod("free")
    assert site.bound("preemptor") == free


def test_many_of_one_class_preempt_together(site: Site) -> None:
    node = site.node(cpu="10", kwok=False)
    lows, highs = [f"low{i}" for i in range(10)], [f"high{i}" for i in range(10)]
    for name in lows:
        pod(site, name, "low")
    site.all_bound(10)
    before = site.scheduler.metric("scheduler_preemption_attempts_total")
    for name in highs:
        pod(site, name, "high")
    for name in lows:
        wait_for(lambda name=name: is_leaving(site, name), f"{name} to leave")  # type: ignore[misc]
    for name in highs:
        assert wait_for(lambda n=name: site.space.pod(n)["status"].get("nominatedNodeName"), name) == node  # type: ignore[misc]
    # One after the other, each behind the others' backoff, they took 25 s.
    attempts = {name: site.waits(name)["attempts"] for name in highs}
    assert max(attempts.values()) <= 3, attempts
    for name in lows:
        site.space.delete_pod(name)
    assert set(site.all_bound(10).values()) == {node}
    assert site.scheduler.metric("scheduler_preemption_attempts_total") == before + 10, "room is made for each once"


def test_no_more_victims_than_needed(site: Site) -> None:
    """Several preemptors at once: each gets room, and every pod that need not go stays."""
    site.node(cpu="4", kwok=False)
    victims = {f"v{number}" for number in range(4)}
    for name in victims:
        pod(site, name, "low")
    site.all_bound(4)
    for name in ("p0", "p1"):
        pod(site, name, "high")

    def places() -> dict[str, str]:
        """A victim that leaves is taken away at once."""
        found = {}
        for each in site.space.pods():
            if "deletionTimestamp" in each["metadata"]:
                site.space.delete_pod(each["metadata"]["name"])
            else:
                found[each["metadata"]["name"]] = each["spec"].get("nodeName", "")
        return found

    wait_for(lambda: (found := places()).get("p0") and found.get("p1"), "both to be bound")
    assert len(victims & places().keys()) == 2
    for name in victims - places().keys():
        site.event(name, names.PREEMPTED)

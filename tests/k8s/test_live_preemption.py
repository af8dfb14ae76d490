"""Preemption on a real API server: who must go, what is said about it, and that the room is kept for whom it was made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plane import Object, Plane, Space, wait_for
from running import STANDARD, Running, Site, running_scheduler, site_of

from flowsched_k8s import names

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
    # Nobody ends pods on this node, so that each step can be seen.
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
    # The room is kept: somebody of lower priority waits on, also once the victim is gone.
    pod(site, "other", "low")
    site.refused("other")
    site.space.delete_pod("victim")
    assert site.bound("preemptor") == node
    assert not site.space.pod("other")["spec"].get("nodeName")
    assert site.waits("other")


def test_equal_priority_is_not_evicted(site: Site) -> None:
    site.node(cpu="1")
    pod(site, "first", "high")
    site.bound("first")
    before = site.scheduler.metric("scheduler_preemption_attempts_total")
    pod(site, "second", "high")
    expected = "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    site.waits_with("second", f"preemption: {expected}")
    assert not is_leaving(site, "first")
    wait_for(
        lambda: site.scheduler.metric("scheduler_preemption_attempts_total") == before + 1, "the attempt to be counted"
    )
    assert site.events("first", names.PREEMPTED) == []


def test_a_policy_of_never_evicts_nobody(site: Site) -> None:
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
    wait_for(lambda: is_leaving(site, "free") or is_leaving(site, "guarded"), "somebody to make room")
    assert is_leaving(site, "free") and not is_leaving(site, "guarded")
    site.space.delete_pod("free")
    assert site.bound("preemptor") == free


def test_no_more_victims_than_needed(site: Site) -> None:
    """Several preemptors at once: each gets room, and everybody who need not go stays."""
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

"""Groups of pods on a real API server: all or none, whichever comes first, with a deadline.

What no server can be held for is shown at the end, on the state machine itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from msgspec.structs import replace
from plane import Object, Plane, Space, running_plane, wait_for
from running import Running, Site, install_pod_groups, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL, PLUGINS_LABEL

GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1"
RETRY_S = 2.0


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    install_pod_groups(plane)
    rounds = {"unschedulableRetry": f"{RETRY_S:g}s"}
    with running_scheduler(plane, tmp_path_factory.mktemp("scheduler"), rounds=rounds) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def make_group(site: Site, name: str, minimum: int, timeout_s: int = 300) -> None:
    spec = {"minMember": minimum, "scheduleTimeoutSeconds": timeout_s}
    made = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    site.admin.post(f"{GROUPS}/namespaces/{site.name}/podgroups", made)


def member(site: Site, name: str, group: str, **more: object) -> Object:
    return site.pod(name, **{"labels": {PLUGINS_LABEL: group}, "cpu": "1", **more})


def labelled(group: str, minimum: int) -> dict[str, str]:
    return {NAME_LABEL: group, MINIMUM_LABEL: str(minimum)}


def bound_now(site: Site) -> list[str]:
    return sorted(p["metadata"]["name"] for p in site.space.pods() if p["spec"].get("nodeName"))


def test_members_by_labels_wait_for_each_other(site: Site) -> None:
    site.nodes(2)
    for name in ("a", "b"):
        site.pod(name, labels=labelled("team", 3))
        site.refused(name)
    expected = "0/2 nodes are available. waiting for pod group team: 2 of 3 pods are there"
    for name in ("a", "b"):
        assert site.waits_with(name, "2 of 3") == expected
    site.pod("alone")
    site.bound("alone")
    assert bound_now(site) == ["alone"]
    site.pod("c", labels=labelled("team", 3))
    assert len(site.all_bound(4)) == 4
    site.event("a", names.SCHEDULED)
    assert [e["reason"] for e in site.events("a")] == [names.FAILED_SCHEDULING, names.SCHEDULED]


def test_pods_before_their_group(site: Site) -> None:
    site.nodes(1)
    for name in ("a", "b"):
        member(site, name, "late")
    expected = f'0/1 nodes are available. PodGroup "late" not found in namespace {site.name}'
    for name in ("a", "b"):
        assert site.refused(name) == expected
    make_group(site, "late", 2)
    site.all_bound(2)


def test_group_before_its_pods(site: Site) -> None:
    site.nodes(1)
    make_group(site, "early", 2)
    member(site, "a", "early")
    site.refused("a", "waiting for pod group early: 1 of 2 pods are there")
    assert bound_now(site) == []
    member(site, "b", "early")
    site.all_bound(2)


def test_members_may_differ(site: Site) -> None:
    """One group, two kinds of pods, and one of them has only one place to be."""
    small, large = site.node("small", cpu="1"), site.node("large", cpu="4", labels={"disk": "fast"})
    make_group(site, "mixed", 3)
    member(site, "head", "mixed", cpu="4", nodeSelector={"disk": "fast"})
    for name in ("w0", "w1"):
        member(site, name, "mixed", cpu="500m")
    assert site.all_bound(3) == {"head": large, "w0": small, "w1": small}


def test_none_is_bound_without_room_for_all(site: Site) -> None:
    first = site.node("first", cpu="2")
    make_group(site, "three", 3)
    for name in ("a", "b", "c"):
        member(site, name, "three")
    for name in ("a", "b", "c"):
        expected = f"0/1 nodes are available. group {site.name}/three: 2 of 3 could be placed"
        assert site.waits_with(name, "of 3 could be placed") == expected
    # The group holds nothing that others could use.
    site.pod("alone", cpu="1")
    assert site.bound("alone") == first
    assert bound_now(site) == ["alone"]
    site.node("second", cpu="500m")
    site.waits_with("b", "0/2 nodes are available: 1 Insufficient cpu. group")
    assert bound_now(site) == ["alone"]
    site.node("third", cpu="2")
    site.all_bound(4)


def test_more_members_than_the_minimum(site: Site) -> None:
    site.node(cpu="2")
    make_group(site, "elastic", 2)
    for name in ("a", "b", "c"):
        member(site, name, "elastic")
    wait_for(lambda: len(bound_now(site)) == 2, "the minimum to be bound")
    (left,) = {"a", "b", "c"} - set(bound_now(site))
    site.refused(left)
    site.node("more", cpu="1")
    site.all_bound(3)


def test_a_replacement_joins_those_who_run(site: Site) -> None:
    site.node(cpu="2")
    make_group(site, "pair", 2)
    for name in ("a", "b"):
        member(site, name, "pair")
    site.all_bound(2)
    site.space.delete_pod("a")
    member(site, "again", "pair")
    site.all_bound(2)


def test_a_gated_member_holds_the_others(site: Site) -> None:
    site.node()
    make_group(site, "gates", 2)
    member(site, "gated", "gates", schedulingGates=[{"name": "example.com/later"}])
    member(site, "ready", "gates")
    site.refused("ready")
    assert bound_now(site) == []
    site.change_pod("gated", {"spec": {"schedulingGates": None}}, "merge-patch")
    site.all_bound(2)


def test_a_group_gives_up_for_a_while(site: Site) -> None:
    site.node(cpu="1")
    make_group(site, "short", 2, timeout_s=1)
    for name in ("a", "b"):
        member(site, name, "short")
    expected = (
        "0/1 nodes are available. pod group short found no place for 2 pods within 1 s; "
        f"it is tried again {RETRY_S:g} s later, or when the nodes change"
    )
    assert site.waits_with("a", "found no place") == expected
    site.node("more", cpu="1")
    site.all_bound(2)


def test_of_two_groups_completed_within_one_second_the_older_is_served(site: Site) -> None:
    """The API server tells whole seconds, and neither names nor identifiers say which group came first."""
    for attempt in range(10):
        old, new = f"z{attempt}", f"a{attempt}"
        for group in (old, new):
            make_group(site, group, 2)
        members = [member(site, f"{group}-{i}", group)["metadata"] for i in range(2) for group in (old, new)]
        if len({made["creationTimestamp"] for made in members}) == 1:
            break
        for made in members:
            site.space.delete_pod(made["name"])
    else:
        raise AssertionError("no four pods were made within one second")
    for made in members:
        site.refused(made["name"])
    site.node(cpu="2")
    for i in range(2):
        site.bound(f"{old}-{i}")
    assert bound_now(site) == [f"{old}-{i}" for i in range(2)]


def test_the_metric_counts_groups_that_wait(site: Site) -> None:
    site.node(cpu="1")
    make_group(site, "waits", 2)
    member(site, "a", "waits")
    site.refused("a")
    site.scheduler.metric_becomes(1, "flowsched_gang_waiting")
    site.scheduler.metric_becomes(1, "scheduler_unschedulable_pods", plugin="GangScheduling")
    site.space.delete_pod("a")
    site.scheduler.metric_becomes(0, "flowsched_gang_waiting")


def test_in_tree_groups(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The API server's own groups, behind its version and feature gate."""
    version = "scheduling.k8s.io/v1alpha2"
    gates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
    options = ("--parts", "kwok", "--feature-gates", gates, "--runtime-config", f"{version}=true")
    folder = tmp_path_factory.mktemp("scheduler")
    with (
        running_plane(*options) as plane,
        running_scheduler(plane, folder, features=("podGroupsInTree",)) as scheduler,
        plane.space("in-tree") as space,
        site_of(scheduler, space) as site,
    ):
        site.node(cpu="2")
        for name in ("a", "b"):
            site.pod(name, cpu="1", schedulingGroup={"podGroupName": "gang"})
        assert site.refused("a") == f'0/1 nodes are available. PodGroup "gang" not found in namespace {site.name}'
        gang = {
            "apiVersion": version,
            "kind": "PodGroup",
            "metadata": {"name": "gang"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
        }
        path = f"/apis/{version}/namespaces/{site.name}/podgroups"
        plane.admin.post(path, gang)
        site.waits_with("a", "waiting for pod group gang: 2 of 3 pods are there")
        site.pod("c", cpu="1", schedulingGroup={"podGroupName": "gang"})
        site.waits_with("a", "2 of 3 could be placed")
        assert bound_now(site) == []
        site.node("more", cpu="1")
        site.all_bound(3)

        def scheduled() -> bool:
            conditions = plane.admin.get(f"{path}/gang").get("status", {}).get("conditions", [])
            return any(c["type"] == "PodGroupScheduled" and c["status"] == "True" for c in conditions)

        wait_for(scheduled, "the group to say that it is scheduled")

        rack = [site.node(f"rack-{i}", cpu="2", labels={"rack": "r"}) for i in range(2)]
        site.node("lone", cpu="3", labels={"rack": "s"})
        near = {"schedulingPolicy": {"gang": {"minCount": 4}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}}
        plane.admin.post(path, {**gang, "metadata": {"name": "near"}, "spec": near})
        for i in range(4):
            site.pod(f"near-{i}", cpu="1", schedulingGroup={"podGroupName": "near"})
        assert {site.bound(f"near-{i}") for i in range(4)} == set(rack)


def test_a_group_stays_one_when_its_pods_change_within_a_round() -> None:
    """What was worked out about a member is out of date then; that it belongs to the others is not."""
    server = ModelServer()
    for name in ("n1", "n2"):
        server.put(b.node(name, "1"))
    running = ModelScheduler(server, Configuration())
    members = running.create(*(b.pod(f"m{i}", cpu="1", labels=labelled("g", 2)) for i in range(2)))
    assert running.begin()
    running.plan()
    for pod in members:
        server.put(replace(pod, metadata=replace(pod.metadata, annotations={"said": "something"})))
    server.cordon("n2")
    running.deliver()
    assert running.end() == []
    server.cordon("n2", False)
    running.settle()
    assert running.where().keys() == {"m0", "m1"}


def test_what_is_written_to_a_member_wakes_no_other() -> None:
    """The condition of each refused member comes back as a change of it, and must not start the next attempt."""
    server = ModelServer()
    server.put(b.node("n1", "1"))
    running = ModelScheduler(server, Configuration())
    running.create(*(b.pod(f"{group}{i}", labels=labelled(group, 3)) for group in ("g", "h") for i in range(2)))
    for _ in range(10):
        running.round()
        running.deliver()
        server.now += 1.0
    assert {running.state.queue.attempts(e.key) for e in running.state.cache.pods.values()} == {1}
    # A third member of one group concerns that group only.
    running.create(b.pod("g2", labels=labelled("g", 3)))
    running.settle()
    assert running.where().keys() == {"g0", "g1", "g2"}
    waiting = [e for e in running.state.cache.pods.values() if not e.place]
    assert {running.state.queue.attempts(e.key) for e in waiting} == {1}

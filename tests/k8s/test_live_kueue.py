"""Groups of plain pods on a real API server with the real Kueue: it gates and admits them, flowsched binds all or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plane import Admin, Object, running_plane, wait_for
from real_kueue import QUEUE_LABEL, VERSION, require_kueue, running_kueue
from running import Running, Site, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import (
    KUEUE_FAST,
    KUEUE_LABEL,
    KUEUE_SERVING,
    KUEUE_TOTAL,
    MINIMUM_LABEL,
    NAME_LABEL,
)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Beside a plane of its own: Kueue looks at every pod that is made."""
    found, folder = require_kueue(), tmp_path_factory.mktemp("scheduler")
    with running_plane("--parts", "kwok,kube-controller-manager") as plane, running_kueue(plane, found):
        make(plane.admin, "ResourceFlavor", "any", {})
        with running_scheduler(plane, folder, features=()) as started:
            yield started


@pytest.fixture
def site(scheduler: Running, request: pytest.FixtureRequest) -> Iterator[Site]:
    name = request.node.name.removeprefix("test_")
    with scheduler.plane.space(name) as space, site_of(scheduler, space) as made:
        account = f"/api/v1/namespaces/{space.name}/serviceaccounts/default"
        wait_for(lambda: made.admin.find(account), "the account that pods run as")
        yield made


def make(admin: Admin, kind: str, name: str, spec: Object, namespace: str = "") -> None:
    """An object of Kueue's."""
    made = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    admin.apply([made], namespace)


def queue(site: Site, cpu: int) -> None:
    """A queue ``main`` in the test's namespace, with so much CPU to give away."""
    amounts = {"cpu": str(cpu), "memory": "1Ti"}
    quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
    group = {"coveredResources": [*amounts], "flavors": [{"name": "any", "resources": quotas}]}
    make(site.admin, "ClusterQueue", site.name, {"namespaceSelector": {}, "resourceGroups": [group]})
    make(site.admin, "LocalQueue", "main", {"clusterQueue": site.name}, site.name)


def member(site: Site, name: str, group: str = "train", **notes: str) -> Object:
    """One of three pods."""
    labels = {QUEUE_LABEL: "main", KUEUE_LABEL: group}
    return site.pod(name, cpu="1", labels=labels, annotations={KUEUE_TOTAL: "3", **notes})


def members(site: Site, group: str) -> list[str]:
    made = [f"{group}-{i}" for i in range(3)]
    for name in made:
        member(site, name, group)
    return made


def ends(site: Site, name: str, code: int = 0) -> None:
    """Let a pod that runs succeed or fail."""
    notes = {"flowsched.test/run-for": "1ms", "flowsched.test/exit-code": str(code)}
    site.change_pod(name, {"metadata": {"annotations": notes}})
    phase = "Failed" if code else "Succeeded"
    wait_for(lambda: site.space.pod(name)["status"]["phase"] == phase, f"{name} to be {phase}")


def bound_now(site: Site) -> set[str]:
    return {p["metadata"]["name"] for p in site.space.pods() if p["spec"].get("nodeName")}


def gates(site: Site, *pods: str) -> int:
    """How many of these pods are gated."""
    return sum(bool(site.space.pod(name)["spec"].get("schedulingGates")) for name in pods)


def test_a_group_is_gated_until_it_is_complete_and_then_bound(site: Site) -> None:
    site.nodes(2, cpu="2")
    queue(site, 3)
    for name in ("a", "b"):
        assert member(site, name)["spec"]["schedulingGates"]
    site.pod("alone", cpu="1")
    site.bound("alone")
    assert gates(site, "a", "b") == 2
    member(site, "c")
    site.all_bound(4)
    assert gates(site, "a", "b", "c") == 0


def test_a_group_that_is_admitted_and_finds_no_room_waits_whole(site: Site) -> None:
    site.node("first", cpu="2")
    queue(site, 6)
    pods = members(site, "train")
    wait_for(lambda: gates(site, *pods) == 0, "Kueue to admit the group")
    expected = f"0/1 nodes are available. group {site.name}/train: 2 of 3 could be placed"
    for name in pods:
        assert site.refused(name, "could be placed") == expected
    assert bound_now(site) == set()
    site.node("second", cpu="1")
    site.all_bound(3)


def test_a_group_beyond_the_quota_stays_gated_until_another_one_ends(site: Site) -> None:
    site.nodes(2, cpu="4")
    queue(site, 4)
    first = members(site, "first")
    site.all_bound(3)
    second = members(site, "second")
    path = f"/apis/{VERSION}/namespaces/{site.name}/workloads/second"

    def refused() -> bool:
        conditions = (site.admin.find(path) or {}).get("status", {}).get("conditions", ())
        return any(c["type"] == "QuotaReserved" and c["status"] == "False" for c in conditions)

    wait_for(refused, "Kueue to say that there is no quota")
    assert gates(site, *second) == 3
    assert bound_now(site) == set(first)
    for name in second:
        conditions = {c["type"]: c["reason"] for c in site.space.pod(name)["status"]["conditions"]}
        assert conditions[names.POD_SCHEDULED] == "SchedulingGated"
    for name in first:
        ends(site, name)
    for name in second:
        site.bound(name)


def test_failed_pods_are_replaced_although_others_have_ended(site: Site) -> None:
    """Also by a scheduler that was not there when they ended."""
    site.nodes(2, cpu="2")
    queue(site, 3)
    pods = members(site, "train")
    site.all_bound(3)
    ends(site, pods[0])
    for name in pods[1:]:
        ends(site, name, code=1)
    site.scheduler.stop()
    site.scheduler.start()
    member(site, "again")
    wait_for(lambda: gates(site, "again") == 0, "Kueue to admit the replacement")
    site.refused("again", "waiting for pod group train: 2 of 3 pods are there, 1 succeeded")
    member(site, "and-again")
    for name in ("again", "and-again"):
        site.bound(name)


def test_pods_that_are_made_one_after_the_other_do_not_wait(site: Site) -> None:
    site.node(cpu="2")
    queue(site, 3)
    for name in ("web-0", "web-1"):
        member(site, name, **{KUEUE_FAST: "true", KUEUE_SERVING: "true"})
        site.bound(name)


@pytest.mark.parametrize("labelled", [True, False])
def test_pods_of_a_job_are_a_group_if_its_template_says_so(site: Site, labelled: bool) -> None:
    """Kueue writes the number of pods into its own object and not on the pods, and often they need no others."""
    site.node("first", cpu="2")
    queue(site, 3)
    container = {"name": "main", "image": "test", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    spec = {"schedulerName": site.scheduler.name, "restartPolicy": "Never", "containers": [container]}
    labels = {NAME_LABEL: "train", MINIMUM_LABEL: "3"} if labelled else {}
    job = {"parallelism": 3, "completions": 3, "template": {"metadata": {"labels": labels}, "spec": spec}}
    made = {"metadata": {"name": "train", "labels": {QUEUE_LABEL: "main"}}, "spec": job}
    site.admin.post(f"/apis/batch/v1/namespaces/{site.name}/jobs", made)
    wait_for(lambda: len(site.space.pods()) == 3, "Kueue to admit the Job")
    if labelled:
        for pod in site.space.pods():
            site.refused(pod["metadata"]["name"], f"group {site.name}/train: 2 of 3 could be placed")
        assert bound_now(site) == set()
        site.node("second", cpu="1")
        site.all_bound(3)
    else:
        wait_for(lambda: len(bound_now(site)) == 2, "two pods to be bound")

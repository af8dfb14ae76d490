"""What goes wrong between the scheduler and the API server, at the moment when it hurts: pods are bound once, or wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plane import Fault, Object, Plane, RefusedError, Space, wait_for
from running import HoldingWire, Running, Site, install_pod_groups, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import PLUGINS_LABEL

HOST = names.HOSTNAME


@pytest.fixture(scope="module")
def wire(plane: Plane) -> Iterator[HoldingWire]:
    with HoldingWire(plane.server) as made:
        yield made


@pytest.fixture(scope="module")
def scheduler(plane: Plane, wire: HoldingWire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scheduler")
    with running_scheduler(plane, folder, server=wire.address) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, wire: HoldingWire, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made
        wire.fault, wire.holding = Fault.NONE, False


@contextlib.contextmanager
def held_bind(site: Site, wire: HoldingWire, name: str, **more: Any) -> Iterator[Object]:
    """A pod whose place is decided, with the binding on its way and not there yet; it goes on afterwards."""
    wire.holding = True
    made = site.pod(name, **more)
    wait_for(lambda: made["metadata"]["uid"] in site.scheduler.state()["binding"], "the decision")
    assert not site.space.pod(name)["spec"].get("nodeName")
    yield made
    wire.holding = False


def settled(site: Site) -> None:
    """Nothing is under way any more, and the scheduler knows of every pod where it is."""

    def same() -> bool:
        state = site.scheduler.state()
        if state["binding"] or state["assumed"]:
            return False
        known = {pod: node for node, about in state["nodes"].items() for pod in about["pods"]}
        actual = {
            f"{site.name}/{p['metadata']['name']}": p["spec"]["nodeName"]
            for p in site.space.pods()
            if p["spec"].get("nodeName")
        }
        return known == actual

    wait_for(same, "the scheduler to know the present")


# Between decision and binding


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLIES, Fault.LOSE_REQUESTS])
def test_a_binding_of_unknown_outcome(site: Site, wire: HoldingWire, fault: Fault) -> None:
    """The request arrives and the answer is lost, or neither: in both cases the pod is bound, once."""
    node = site.node()
    lost = wire.lost
    with held_bind(site, wire, "pod"):
        wire.fault = fault
    wait_for(lambda: wire.lost > lost, "the fault")
    wire.fault = Fault.NONE
    assert site.bound("pod") == node
    settled(site)
    assert site.event("pod", names.SCHEDULED)
    site.pod("next")
    assert site.bound("next") == node


def test_a_pod_made_anew_under_the_same_name(site: Site, wire: HoldingWire) -> None:
    """The binding was for the old one: it must not bind the new one, which belongs elsewhere."""
    first, second = site.nodes(2)
    with held_bind(site, wire, "pod", nodeSelector={HOST: first}) as old:
        site.space.delete_pod("pod")
        new = site.pod("pod", nodeSelector={HOST: second})
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert site.bound("pod") == second
    settled(site)
    assert site.space.pod("pod")["metadata"]["uid"] == new["metadata"]["uid"]


def test_a_pod_that_is_gone(site: Site, wire: HoldingWire) -> None:
    node = site.node(cpu="1")
    with held_bind(site, wire, "pod", cpu="1"):
        site.space.delete_pod("pod")
    settled(site)
    # What was booked for it is free again.
    site.pod("next", cpu="1")
    assert site.bound("next") == node


def test_a_pod_that_another_client_binds(site: Site, wire: HoldingWire) -> None:
    ours, theirs = site.node("ours", cpu="1"), site.node("theirs", cpu="1", labels={"their": "s"})
    with held_bind(site, wire, "pod", cpu="1", nodeSelector={HOST: ours}):
        target = {"kind": "Node", "name": theirs}
        body = {"metadata": {"name": "pod"}, "target": target}
        site.admin.post(f"{site.space.pods_path}/pod/binding", body)
    settled(site)
    assert site.bound("pod") == theirs
    assert site.events("pod", names.SCHEDULED) == []
    site.pod("next", cpu="1")
    assert site.bound("next") == ours


def test_a_node_that_is_cordoned_after_the_decision(site: Site, wire: HoldingWire) -> None:
    """What is on its way arrives; whatever is decided later goes elsewhere."""
    first = site.node("first")
    with held_bind(site, wire, "pod"):
        site.change_node(first, {"spec": {"unschedulable": True}})
        second = site.node("second")
        site.pod("next")
    assert site.bound("pod") == first
    assert site.bound("next") == second
    settled(site)


def test_a_foreign_pod_takes_the_space(site: Site, wire: HoldingWire) -> None:
    """It comes while the decision is on its way: both are there then, and no pod is put on top of them."""
    node = site.node(cpu="2")
    with held_bind(site, wire, "pod", cpu="1500m"):
        site.foreign("foreign", node, cpu="1500m")
        site.pod("next", cpu="100m")
    settled(site)
    assert site.refused("next") == "0/1 nodes are available: 1 Insufficient cpu."
    site.space.delete_pod("foreign")
    assert site.bound("next") == node


# Whole failures


@pytest.fixture
def lonely(plane: Plane, wire: HoldingWire, space: Space, tmp_path: Path) -> Iterator[Site]:
    """A scheduler that has seen no failure yet, so that it does not wait long between its attempts."""
    with (
        running_scheduler(plane, tmp_path, server=wire.address) as started,
        site_of(started, space) as made,
    ):
        yield made
        wire.fault = Fault.NONE


def test_the_watch_expires(lonely: Site, wire: HoldingWire, plane: Plane) -> None:
    """The scheduler is cut off, the world goes on, and the API server has forgotten what happened meanwhile."""
    site = lonely
    node, other = site.node("stays", cpu="1"), site.node("goes", cpu="8")
    site.pod("full", cpu="1", nodeSelector={HOST: node})
    site.bound("full")
    site.pod("waits", cpu="9")
    site.refused("waits")
    wire.fault = Fault.REFUSE
    wire.cut()
    site.space.delete_pod("full")
    site.space.delete_pod("waits")
    site.admin.delete(f"/api/v1/nodes/{other}")
    site.pod("comes", cpu="1")
    plane.stop("kube-apiserver")
    plane.compact()
    plane.start("kube-apiserver")
    wire.fault = Fault.NONE
    assert site.bound("comes") == node
    settled(site)
    state = site.scheduler.state()
    assert list(state["nodes"]) == [node]
    assert state["waiting"] == []
    assert any("too old" in line["msg"] for line in site.scheduler.log())
    site.pod("next", cpu="1")
    assert site.refused("next") == "0/1 nodes are available: 1 Insufficient cpu."
    site.space.delete_pod("comes")
    assert site.bound("next") == node


def test_the_api_server_is_restarted(lonely: Site, plane: Plane) -> None:
    site = lonely
    node = site.node(cpu="1")
    site.pod("before", cpu="1")
    site.bound("before")
    site.pod("waits", cpu="1")
    site.refused("waits")
    pid = site.scheduler.pid
    plane.stop("kube-apiserver")
    wait_for(lambda: any("does not answer" in line["msg"] for line in site.scheduler.log()), "the scheduler to notice")
    assert site.scheduler.answer("/livez") == b"ok"
    plane.start("kube-apiserver")
    site.space.delete_pod("before")
    assert site.bound("waits") == node
    settled(site)
    assert site.scheduler.pid == pid


# What it may not do


def without(*resources: str) -> Any:
    """Rules from which some resources are taken out."""

    def change(rules: list[Object]) -> list[Object]:
        kept = [{**rule, "resources": [r for r in rule["resources"] if r not in resources]} for rule in rules]
        return [rule for rule in kept if rule["resources"]]

    return change


def test_optional_apis_that_it_may_not_read(plane: Plane, space: Space, tmp_path: Path) -> None:
    """Pods that need none of them are placed; those that do wait, and are never placed by guess."""
    install_pod_groups(plane)
    missing = ("podgroups", "persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes", "namespaces")
    with running_scheduler(plane, tmp_path, rules=without(*missing)) as scheduler, site_of(scheduler, space) as site:
        node = site.node()
        site.pod("plain", labels={"app": "x"})
        assert site.bound("plain") == node
        said = [line["msg"] for line in scheduler.log() if line["level"] == "warning"]
        for path in ("podgroups", "persistentvolumeclaims", "namespaces"):
            assert any(path in text and "unavailable" in text for text in said), said
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        site.pod("volume", volumes=volumes)
        site.pod("member", labels={PLUGINS_LABEL: "group"})
        term = {
            "labelSelector": {"matchLabels": {"app": "x"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.name}},
            "topologyKey": HOST,
        }
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        site.pod("apart", affinity=apart)
        for name, expected in {
            "volume": "spec.volumes[0].persistentVolumeClaim cannot be honoured: 403 Forbidden",
            "member": 'PodGroup "group" not found',
            "apart": "[0].namespaceSelector cannot be honoured: 403 Forbidden",
        }.items():
            site.refused(name, expected)
        site.pod("still")
        assert site.bound("still") == node


def test_events_that_it_may_not_write(plane: Plane, space: Space, tmp_path: Path) -> None:
    """Without the right to write events, pods are bound all the same."""
    with (
        running_scheduler(plane, tmp_path, rules=without("events")) as scheduler,
        site_of(scheduler, space) as site,
    ):
        node = site.node()
        site.pod("pod")
        assert site.bound("pod") == node
        site.pod("not", cpu="100")
        site.refused("not")
        assert site.space.events() == []


# Dry run


def test_a_dry_run_writes_nothing(plane: Plane, space: Space, tmp_path: Path) -> None:
    """Pods of every kind are decided, and nothing in the cluster changes."""

    def everything() -> dict[str, str]:
        paths = ("pods", "events", "persistentvolumeclaims")
        found = [
            item
            for path in paths
            for namespace in (space.name, scheduler.name)
            for item in plane.admin.items(f"/api/v1/namespaces/{namespace}/{path}")
        ]
        leases = plane.admin.items(f"/apis/coordination.k8s.io/v1/namespaces/{scheduler.name}/leases")
        nodes = [n for n in plane.admin.items("/api/v1/nodes") if n["metadata"]["name"].startswith(space.name)]
        return {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for o in (*found, *leases, *nodes)}

    with running_scheduler(
        plane, tmp_path, features=("volumes", "podGroups", "namespaceSelector", "preemption"), start=False
    ) as scheduler:
        site = Site(scheduler, space)
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        plane.admin.post(classes, {"metadata": {"name": space.name}, "value": 100})
        storage = {"provisioner": "example.com/made", "volumeBindingMode": "WaitForFirstConsumer"}
        plane.admin.post("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": space.name}, **storage})
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": space.name,
            },
        }
        plane.admin.post(site.volumes_path(), claim)
        (node,) = space.make_nodes(1, cpu="2", labels=scheduler.pool, kwok=False)
        (full,) = space.make_nodes(1, prefix="full", cpu="1", labels={**scheduler.pool, "full": "yes"}, kwok=False)
        site.pod("fits", cpu="1")
        site.pod("not", cpu="100")
        site.pod("volume", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        site.pod("choosy", annotations={names.MIN_UTILITY: "1"})
        space.make_pod("victim", scheduler="another-scheduler", nodeName=full, cpu="1")
        site.pod("preemptor", cpu="1", priorityClassName=space.name, nodeSelector={"full": "yes"})
        before = everything()
        scheduler.start("--dry-run")
        wait_for(lambda: scheduler.state()["assumed"].get(f"{space.name}/fits") == node, "the decision")
        wait_for(lambda: site.waits("not").get("message"), "the refusal")
        wait_for(lambda: any("bind" in line["msg"] and "dry run" in line["msg"] for line in scheduler.log()), "the log")
        wait_for(lambda: scheduler.log("dry run: claim " + f"{space.name}/data of {space.name}/volume"), "the claim")
        assert scheduler.stop() == 0
        assert everything() == before
        with pytest.raises(RefusedError):
            plane.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{scheduler.name}/leases/flowsched")

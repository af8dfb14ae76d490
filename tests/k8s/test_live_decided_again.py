"""On a real API server: what takes time between a decision and its end, and what lies outside of the pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from live_volumes import bind_claim, claim, mounts
from plane import Object, Plane, Space, wait_for
from running import Site, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.volumes.volumes import SELECTED_NODE

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SOON_S = 60.0
"""Without another decision it would be ten minutes."""
GANG = {NAME_LABEL: "g", MINIMUM_LABEL: "2"}


@pytest.fixture
def site(plane: Plane, space: Space, tmp_path: Any) -> Iterator[Site]:
    with running_scheduler(plane, tmp_path) as scheduler, site_of(scheduler, space) as made:
        yield made


def pinned(case: str) -> Object:
    return {"nodeSelector": {"case": case}}


def selected(site: Site, name: str, nodes: set[str]) -> str:
    """The node that a volume is to be made for, once it is one of these."""

    def node() -> str:
        notes = site.admin.get(site.volumes_path(name))["metadata"].get("annotations", {})
        return str(notes.get(SELECTED_NODE, ""))

    return wait_for(lambda: found if (found := node()) in nodes else "", f"a node of {nodes} for {name}", SOON_S)


def volume_on(site: Site, name: str, node: str) -> str:
    """A volume that one node can use."""
    term = {"matchExpressions": [{"key": names.HOSTNAME, "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": site.name,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    made = site.admin.post("/api/v1/persistentvolumes", {"metadata": {"name": f"{site.name}-{name}"}, "spec": spec})
    return str(made["metadata"]["name"])


def term(app: str) -> list[Object]:
    return [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": names.ZONE}]


def apart(app: str) -> Object:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(app)}}}


def near(app: str) -> Object:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term(app)}}}


def test_pods_are_decided_again_and_see_what_is_outside(site: Site) -> None:
    made = {
        "metadata": {"name": site.name},
        "provisioner": "example.com/made",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    site.admin.post(CLASSES, made)
    # Conditions that differ in numbers alone are written a minute later.
    disks = {
        case: {site.node(f"{case}-{side}", labels={"case": case}) for side in "ab"} for case in ("elsewhere", "refused")
    }
    # A pod that is being deleted stays: no kubelet ends it.
    site.nodes(2, prefix="gang", labels={"case": "gang"}, cpu="1", kwok=False)
    inside = site.node("inside", labels={"case": "outside", names.ZONE: "a"})
    (outside,) = site.space.make_nodes(1, prefix="outside", labels={names.ZONE: "a"})
    site.space.make_pod("x", nodeName=outside, labels={"app": "x"}, scheduler="another-scheduler")
    site.space.make_pod("lonely", nodeName=outside, scheduler="another-scheduler", **apart("web"))
    for case in disks:
        claim(site, case, storageClassName=site.name)
        site.pod(case, volumes=mounts(case), **pinned(case))
    old = ["old-0", "old-1"]
    for name in old:
        site.pod(name, cpu="1", labels=GANG, terminationGracePeriodSeconds=3600, **pinned("gang"))
    site.pod("apart", **pinned("outside"), **apart("x"))
    site.pod("web", labels={"app": "web"}, **pinned("outside"))
    site.pod("near", **pinned("outside"), **near("x"))

    # The volume that was made is usable on the other node only.
    first = selected(site, "elsewhere", disks["elsewhere"])
    (other,) = disks["elsewhere"] - {first}
    bind_claim(site, "elsewhere", volume_on(site, "elsewhere", other))
    # The provisioner takes its node away, which is cordoned.
    refused = selected(site, "refused", disks["refused"])
    (spare,) = disks["refused"] - {refused}
    site.change_node(refused, {"spec": {"unschedulable": True}})
    site.pod("probe", cpu="100", nodeSelector={names.HOSTNAME: refused})
    site.waits_with("probe", names.CORDONED)
    site.admin.patch(site.volumes_path("refused"), {"metadata": {"annotations": {SELECTED_NODE: None}}})
    # Members that leave count for no minimum: one new member waits although a node has room for it.
    places = {name: site.bound(name) for name in old}
    for name in old:
        site.space.delete_pod(name, grace=None)
        wait_for(lambda name=name: "deletionTimestamp" in site.space.pod(name)["metadata"], f"{name} to leave")
    extra = site.node("extra", labels={"case": "gang"}, cpu="1")
    site.pod("new-0", cpu="1", labels=GANG, **pinned("gang"))
    site.waits_with("new-0", "1 of 2 pods are there")

    assert site.bound("elsewhere") == other
    assert selected(site, "refused", {spare}) == spare
    site.refused("refused", f"made for {spare}")
    bind_claim(site, "refused", volume_on(site, "refused", spare))
    assert site.bound("refused") == spare
    assert site.bound("near") == inside
    site.refused("apart", names.POD_ANTI_AFFINITY)
    site.refused("web", names.EXISTING_ANTI_AFFINITY)
    site.pod("new-1", cpu="1", labels=GANG, **pinned("gang"))
    site.waits_with("new-1", "could be placed")
    assert not site.space.pod("new-0")["spec"].get("nodeName")
    site.space.delete_pod("old-0")
    assert {site.bound("new-0"), site.bound("new-1")} == {extra, places["old-0"]}
    site.admin.delete(f"{CLASSES}/{site.name}")

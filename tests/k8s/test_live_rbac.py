"""The roles in the manifests are what flowsched needs: the API server's audit log shows every right in use, and no other.

Everything that flowsched does is there to be done in every run: pods that cannot fit, a volume to be made, a group, a pod
of high priority on a full node, one that could be wider, one that could be elsewhere, an answer that is lost. What differs
is which features are on.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from audit import AuditLog, Grant, account, grants_of
from plane import Fault, Plane, Space, running_plane, wait_for
from running import ROLES, HoldingWire, Running, Site, install_pod_groups, rules_of, running_scheduler

from flowsched_k8s import names

IN_TREE = "scheduling.k8s.io"
IN_TREE_VERSION = f"{IN_TREE}/v1alpha2"
PLUGINS = "scheduling.x-k8s.io"
SELECTED_NODE = "volume.kubernetes.io/selected-node"

FEATURES = tuple(ROLES)
LEASE = "leaderElection"
"""Switched on by itself, like a feature."""


def granted(*features: str) -> set[Grant]:
    """What the roles of these features give, and that of every flowsched."""
    everywhere, lease = rules_of(*(f for f in features if f != LEASE))
    return grants_of(everywhere) | (grants_of(lease) if LEASE in features else set())


def settings_of(*features: str) -> dict[str, Any]:
    """For ``running_scheduler``."""
    return {
        "features": [f for f in features if f != LEASE],
        LEASE: {"leaderElect": LEASE in features},
        # A full comparison must not ask for more than the watches do.
        "rounds": {"reconcileEvery": "1s"},
        # Its rights are all used within minutes alone: its own tests show that they suffice.
        "learning": "off",
        "rebalancing": {"interval": "1s", "coolDown": "1s", "emptyNodeGain": 1.0},
    }


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """One that writes down who asks for what, with both kinds of pod groups."""
    gate = ("--feature-gates", "GenericWorkload=true", "--runtime-config", f"{IN_TREE_VERSION}=true")
    with running_plane("--parts", "kwok", "--audit-log", *gate) as started:
        install_pod_groups(started)
        yield started


@pytest.fixture(scope="module")
def audit(plane: Plane) -> AuditLog:
    return AuditLog(plane)


def user_of(scheduler: Running) -> str:
    """The ServiceAccount that ``running_scheduler`` has made."""
    return account(scheduler.home.name, "account-0")


# What there is to do


def ask_for_a_volume(site: Site) -> None:
    made = {
        "metadata": {"name": site.name},
        "provisioner": "example.com/made",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    site.admin.post("/apis/storage.k8s.io/v1/storageclasses", made)
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": site.name,
    }
    site.admin.post(site.volumes_path(), {"metadata": {"name": "data"}, "spec": spec})
    site.pod("stored", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


def ask_for_groups(site: Site) -> None:
    group = {"apiVersion": f"{PLUGINS}/v1alpha1", "kind": "PodGroup", "metadata": {"name": "plugins"}}
    site.admin.apply([{**group, "spec": {"minMember": 2}}], site.name)
    in_tree = {"metadata": {"name": "in-tree"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    site.admin.post(f"/apis/{IN_TREE_VERSION}/namespaces/{site.name}/podgroups", in_tree)
    for number in range(2):
        site.pod(f"plugins-{number}", labels={f"{PLUGINS}/pod-group": "plugins"})
        site.pod(f"in-tree-{number}", schedulingGroup={"podGroupName": "in-tree"})


def ask_for_a_neighbour(site: Site) -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "neighbour"}},
        "namespaceSelector": {},
        "topologyKey": names.HOSTNAME,
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    site.pod("neighbour", labels={"app": "neighbour"}, affinity={"podAffinity": required})


def ask_for_room(site: Site) -> None:
    """One that matters more than what is on the only node that it may use."""
    made = {"metadata": {"name": site.name}, "value": 1000}
    site.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", made)
    node = site.node("full", cpu="2")
    site.foreign("victim", node, cpu="2")
    site.pod("important", cpu="2", priorityClassName=site.name, nodeSelector={names.HOSTNAME: node})


def ask_for_width(site: Site) -> None:
    """What a leader leaves behind that has bound a pod and is gone before it could be resized."""
    node = site.node("roomy")
    widths = {names.WIDTHS: "1,2", names.WIDTH: "2000m"}
    site.pod("wide", cpu="1", labels={names.PROFILE: "blackscholes"}, annotations=widths, nodeName=node)


def ask_for_better(site: Site) -> None:
    """A pod that would be made again elsewhere, alone on its node."""
    node = site.node("spare", cpu="4", taints=[{"key": "spare", "effect": "NoSchedule"}])
    site.pod("alone", nodeName=node, owner=("ReplicaSet", site.name))


def lose_an_answer(site: Site, wire: HoldingWire, audit: AuditLog) -> None:
    """A binding arrives, and the reply is lost: the pod has to be read."""
    scheduler = site.scheduler
    unanswered = {"method": "POST", "code": "<error>"}
    tries = itertools.count()

    def lost() -> bool:
        name = f"lost-{next(tries)}"
        before = scheduler.metric("rest_client_requests_total", **unanswered)
        wire.holding = True
        site.pod(name)
        wait_for(lambda: scheduler.state()["binding"], "the binding to be under way")
        wire.fault = Fault.LOSE_REPLIES
        wire.holding = False
        wait_for(
            lambda: scheduler.metric("rest_client_requests_total", **unanswered) > before,
            "the answer to be lost",
        )
        wire.fault = Fault.NONE
        site.event(name, names.SCHEDULED)
        return ("", "pods", "get") in audit.used(user_of(scheduler))

    # A binding on a new connection is not sent at all: the connection is not made. The next one finds one that is open.
    wait_for(lost, "a lost answer to be made good")


def selected(site: Site) -> bool:
    annotations = site.admin.get(site.volumes_path("data"))["metadata"].get("annotations", {})
    return SELECTED_NODE in annotations


def resized(site: Site) -> bool:
    (container,) = site.space.pod("wide")["spec"]["containers"]
    return str(container["resources"]["requests"]["cpu"]) == "2"


def group_told(site: Site) -> bool:
    group = site.admin.get(f"/apis/{IN_TREE_VERSION}/namespaces/{site.name}/podgroups/in-tree")
    return any(c["status"] == "True" for c in group.get("status", {}).get("conditions", ()))


def placed(*pods: str) -> Callable[[Site], bool]:
    return lambda site: all(site.space.pod(pod)["spec"].get("nodeName") for pod in pods)


def gone(site: Site) -> bool:
    pod = site.admin.find(f"{site.space.pods_path}/alone")
    return pod is None or "deletionTimestamp" in pod["metadata"]


DONE: dict[str, Callable[[Site], bool]] = {
    "volumes": selected,
    "podGroups": placed("plugins-0", "plugins-1"),
    "podGroupsInTree": group_told,
    "namespaceSelector": placed("neighbour"),
    "preemption": placed("important"),
    "rebalancing": gone,
    "resize": resized,
}
"""How one sees that a feature has done its work."""


REQUESTS = (ask_for_a_volume, ask_for_groups, ask_for_a_neighbour, ask_for_room, ask_for_width, ask_for_better)


# The proof


@pytest.mark.parametrize(
    "features", [(), (LEASE,), *((f,) for f in FEATURES), (LEASE, *FEATURES)],
    ids=["core", "lease", *FEATURES, "everything"],
)  # fmt: skip
def test_a_feature_uses_its_role_and_nothing_else(
    plane: Plane, audit: AuditLog, space: Space, tmp_path: Path, features: tuple[str, ...]
) -> None:
    with (
        HoldingWire(plane.server) as wire,
        running_scheduler(plane, tmp_path, server=wire.address, **settings_of(*features)) as scheduler,
    ):
        user = user_of(scheduler)
        site = Site(scheduler, space)
        site.nodes(2)
        lose_an_answer(site, wire, audit)
        site.pod("huge", cpu="1000")
        for ask in REQUESTS:
            ask(site)
        site.refused("huge")
        for feature in set(features) - {LEASE}:
            wait_for(lambda f=feature: DONE[f](site), f"{feature} to do its work")  # type: ignore[misc]
        # A token that is known, of one who may not read metrics.
        assert scheduler.scrape(scheduler.token)[0] == 403
        # Whatever has not been served by now had its chance.
        site.pod("last")
        site.event("last", names.SCHEDULED)
        with contextlib.suppress(AssertionError):
            # What is missing is told below.
            wait_for(lambda: audit.used(user) >= granted(*features), "every right to be used", 60.0)
    # It has stopped, so that this is all that it ever asked for.
    assert audit.used(user) == granted(*features)
    assert audit.refused(user) == set()
    leases = [r["objectRef"] for r in audit.requests(user) if r["objectRef"]["resource"] == "leases"]
    assert {lease.get("name", names.COMPONENT) for lease in leases} <= {names.COMPONENT}


def test_without_the_roles_of_its_features_the_rest_goes_on(
    plane: Plane, audit: AuditLog, space: Space, tmp_path: Path
) -> None:
    only_core, _ = rules_of()
    with running_scheduler(plane, tmp_path, rules=lambda _: only_core, **settings_of(LEASE, *FEATURES)) as scheduler:
        user = user_of(scheduler)
        site = Site(scheduler, space)
        nodes = site.nodes(2)
        for ask in REQUESTS:
            ask(site)
        site.pod("plain")
        assert site.bound("plain") in nodes
        site.event("plain", names.SCHEDULED)
        missing = granted(*FEATURES) - granted()
        # No pod is evicted whose budget cannot be read, so that right is not even tried.
        asked = {g for g in missing if g[2] == "list"} | {("", "pods/resize", "patch")}
        wait_for(lambda: audit.refused(user) >= asked, "everything to be refused")
        assert "spec.volumes[0].persistentVolumeClaim cannot be honoured" in site.refused("stored", "forbidden")
        unavailable = scheduler.state()["unavailable"]
        assert unavailable.keys() >= {resource for _, resource, verb in missing if verb == "list"}
        assert all("403" in reason for reason in unavailable.values())
        assert site.space.pod("victim")["spec"]["nodeName"]
    assert audit.refused(user) <= missing
    assert audit.used(user) <= granted(LEASE)

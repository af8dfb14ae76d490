"""The policies for clusters with several tenants, applied as they are: what they refuse and let pass, by dry runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from plane import Admin, Plane, RefusedError, wait_for
from test_manifests import EXAMPLES, HOUSE, MANIFESTS, NAMESPACE, Object, kustomized, only, parsed

POLICIES = list(kustomized(MANIFESTS / "tenants"))
TENANT = list(kustomized(EXAMPLES / "tenant"))
BATCH, SERVICES, STRANGERS = "shop", "shop-services", "strangers"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(**spec: Any) -> Object:
    """One that a batch tenant may create."""
    container = {"name": "main", "image": "x", "securityContext": RESTRICTED, **spec.pop("container", {})}
    toleration = {"key": "flowsched.io/pool", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    metadata = {
        "name": "p",
        "labels": {"flowsched.io/profile": "canneal", **spec.pop("labels", {})},
        "annotations": {"flowsched.io/goal": "5m", **spec.pop("annotations", {})},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "flowsched", "tolerations": [toleration], "containers": [container], **spec},
    }


class Tenants:
    """A namespace of each sort."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def refused(self, namespace: str, wanted: Object) -> str:
        """Why a pod is not created; empty where it would be."""
        try:
            self.admin.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", wanted)
        except RefusedError as error:
            return str(error)
        return ""


@pytest.fixture(scope="module")
def tenants(plane: Plane) -> Iterator[Tenants]:
    admin, made = plane.admin, Tenants(plane.admin)
    admin.apply(POLICIES)
    namespaces = []
    for name, services in ((BATCH, False), (SERVICES, True)):
        for o in copy.deepcopy(TENANT):
            where = o["metadata"]
            where["name" if o["kind"] == "Namespace" else "namespace"] = name
            if o["kind"] == "Namespace" and services:
                where["labels"]["flowsched.io/services"] = "true"
            admin.apply([o], name)
            if o["kind"] == "ResourceQuota":
                # As the controller writes it, which does not run here.
                status = {"hard": o["spec"]["hard"], "used": dict.fromkeys(o["spec"]["hard"], "0")}
                path = f"/api/v1/namespaces/{name}/resourcequotas/{where['name']}/status"
                admin.patch(path, {"status": status})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        admin.apply([account], name)
        namespaces.append(name)
    admin.post("/api/v1/namespaces", {"metadata": {"name": STRANGERS}})
    admin.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}], STRANGERS)
    namespaces.append(STRANGERS)
    # The API server follows policies and quotas some time after they were written.
    wait_for(lambda: made.refused(STRANGERS, pod()), "the policy of the pool")
    wait_for(lambda: made.refused(BATCH, pod(nodeName="n")), "the limits")
    wait_for(lambda: made.refused(BATCH, pod(annotations={"flowsched.io/cores": "0"})), "the policy of annotations")
    wait_for(lambda: made.refused(BATCH, pod(priorityClassName="system-node-critical")), "the quotas")
    yield made
    for o in POLICIES:
        plural = "policies" if o["kind"].endswith("Policy") else "policybindings"
        admin.delete(f"/apis/admissionregistration.k8s.io/v1/validatingadmission{plural}/{o['metadata']['name']}")
    wait_for(lambda: not made.refused(STRANGERS, pod()), "the policies to go")
    for name in namespaces:
        admin.delete(f"/api/v1/namespaces/{name}")


def apart(**term: Any) -> Object:
    wanted = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}, **term}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}}


GOAL = {"flowsched.io/slo": "p95=1ms@30Kqps"}
REFUSED: Mapping[str, tuple[Object, str]] = {
    "a goal": (pod(annotations=GOAL), "flowsched.io/services"),
    "a goal as a label": (pod(labels={"flowsched.io/slo": "x"}), "flowsched.io/services"),
    "a load": (pod(annotations={"flowsched.io/load": "1000000000"}), "flowsched.io/services"),
    "a class": (pod(labels={"flowsched.io/workload-class": "latency-sensitive"}), "flowsched.io/services"),
    "a profile": (pod(annotations={"flowsched.io/profile": "memcached"}), "flowsched.io/services"),
    "a group that cannot be preempted": (pod(labels={"flowsched.io/disruption-mode": "all"}), "flowsched.io/services"),
    "cores": (pod(annotations={"flowsched.io/cores": "0-7"}), "written by flowsched alone"),
    "a placement": (pod(annotations={"flowsched.io/placement": "{}"}), "written by flowsched alone"),
    "a node": (pod(nodeName="n0"), "names no node itself"),
    "another namespace": (pod(affinity=apart(namespaces=["lab"])), "no-affinity-to-other-namespaces"),
    "all namespaces": (pod(affinity=apart(namespaceSelector={})), "no-affinity-to-other-namespaces"),
    "a critical class": (pod(priorityClassName="system-cluster-critical"), "no-critical-priority"),
    "too much": (pod(container={"resources": {"requests": {"cpu": "65"}}}), "exceeded quota: amounts"),
    "a host port": (pod(container={"ports": [{"containerPort": 1, "hostPort": 1}]}), "hostPort"),
    "a host path": (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "hostPath"),
    "many terms": (
        pod(
            affinity={
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": 17
                    * apart()["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                }
            }
        ),
        "16 terms of pod affinity and anti-affinity here, but has 17",
    ),
    "many tolerations": (
        pod(tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(33)]),
        "32 tolerations",
    ),
    "many ports": (pod(container={"ports": [{"containerPort": i} for i in range(1, 34)]}), "32 ports"),
    "many annotations": (pod(annotations={f"x/a{i}": "" for i in range(64)}), "64 annotations"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_tenant_may_not(tenants: Tenants, what: str) -> None:
    wanted, why = REFUSED[what]
    assert why in tenants.refused(BATCH, wanted)


def test_a_tenant_may_run_batch_and_one_with_services_may_have_goals(tenants: Tenants) -> None:
    usual = [
        pod(),
        pod(affinity=apart()),
        pod(schedulerName="default-scheduler"),
        pod(labels={"flowsched.io/workload-class": "batch", "flowsched.io/disruption-mode": "single"}),
    ]
    service = pod(annotations={**GOAL, "flowsched.io/profile": "memcached", "flowsched.io/load": "5K"})
    for namespace in (BATCH, SERVICES):
        assert [tenants.refused(namespace, wanted) for wanted in usual] == [""] * len(usual)
    assert tenants.refused(SERVICES, service) == ""
    assert "written by flowsched alone" in tenants.refused(SERVICES, pod(annotations={"flowsched.io/cores": "0-7"}))


def test_others_may_not_use_flowsched_and_its_nodes(tenants: Tenants) -> None:
    assert "flowsched places pods of namespaces" in tenants.refused(STRANGERS, pod())
    assert "the nodes of flowsched" in tenants.refused(STRANGERS, pod(schedulerName="default-scheduler"))
    assert tenants.refused(STRANGERS, pod(schedulerName="default-scheduler", tolerations=[])) == ""
    for daemon in ({"operator": "Exists"}, {"key": "other", "operator": "Exists"}):
        assert tenants.refused(STRANGERS, pod(schedulerName="default-scheduler", tolerations=[daemon])) == ""


def test_another_value_of_the_label_makes_no_tenant(tenants: Tenants) -> None:
    path = f"/api/v1/namespaces/{STRANGERS}"
    for value in ("false", "True", "", None):
        tenants.admin.patch(path, {"metadata": {"labels": {"flowsched.io/tenant": value}}})
        services = pod(annotations=GOAL)
        wait_for(lambda wanted=services: "flowsched places pods" in tenants.refused(STRANGERS, wanted), "to be refused")


def test_the_example_of_a_pod_may_be_created(tenants: Tenants) -> None:
    (example,) = parsed(EXAMPLES / "tenant-pod.yaml")
    assert tenants.refused(BATCH, example) == ""
    (service, *_) = (o for o in parsed(EXAMPLES / "memcached.yaml") if o["kind"] == "Pod")
    assert tenants.refused(BATCH, service)


def test_what_a_bound_pod_says_does_not_change_but_by_flowsched_and_the_agent(tenants: Tenants, plane: Plane) -> None:
    admin, path = tenants.admin, f"/api/v1/namespaces/{SERVICES}/pods"
    admin.post(path, pod(annotations=GOAL))
    loads = {"metadata": {"annotations": {"flowsched.io/load": "1"}}}
    admin.patch(f"{path}/p", loads)
    written = {"flowsched.io/cores": "0", "flowsched.io/placement": "{}"}
    node = {"kind": "Node", "name": "elsewhere"}
    admin.post(f"{path}/p/binding", {"metadata": {"name": "p", "annotations": written}, "target": node})
    assert admin.get(f"{path}/p")["metadata"]["annotations"].items() >= written.items()
    for change in ({"flowsched.io/load": "1000000000"}, {"flowsched.io/slo": None}, {"flowsched.io/cores": "0-7"}):
        with pytest.raises(RefusedError, match=r"once it is bound|written by flowsched alone"):
            admin.patch(f"{path}/p", {"metadata": {"annotations": change}})
    admin.patch(f"{path}/p", {"metadata": {"annotations": {"theirs/x": "y"}, "labels": {"a": "b"}}})
    # So the agent reports.
    admin.patch(f"{path}/p/status", {"metadata": {"annotations": {"flowsched.io/load": "5000"}}})
    admin.delete(f"{path}/p")


def test_flowsched_itself_and_the_cluster_are_no_tenants() -> None:
    (binding,) = (o for o in POLICIES if o["kind"].endswith("Binding") and o["metadata"]["name"] == "flowsched-pool")
    expressions = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    left_out = {name for e in expressions if e["operator"] == "NotIn" for name in e["values"]}
    agent = only(list(kustomized(MANIFESTS / "agent")), "Namespace")["metadata"]["name"]
    assert left_out >= {"kube-system", NAMESPACE, agent}


def test_the_page_names_every_policy_and_quota() -> None:
    page = (HOUSE / "docs" / "kubernetes-tenants.md").read_text(encoding="utf-8")
    named = {o["metadata"]["name"] for o in POLICIES}
    assert {name for name in named if f"`{name}`" not in page} == set()
    scopes = {
        e["scopeName"]
        for o in parsed(EXAMPLES / "tenant" / "quota.yaml")
        for e in o["spec"].get("scopeSelector", {}).get("matchExpressions", ())
    }
    assert {scope for scope in scopes if f"`{scope}`" not in page} == set()

"""The agent against a real API server, with the rights and the policy of the manifests: its pods, and its reports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from plane import Plane, RefusedError, Space, wait_for
from running import running_scheduler, site_of
from test_manifests import MANIFESTS, kustomized

from flowsched_agent.configuration import Configuration, Kubernetes, ServiceSpec, TaskSpec
from flowsched_agent.kubernetes.cluster import Cluster
from flowsched_agent.kubernetes.reporting import Reporter
from flowsched_agent.status import ServiceStatus, Status
from flowsched_k8s import names
from flowsched_k8s.api.access import Access, find_access
from flowsched_k8s.api.client import MERGE, STRATEGIC_MERGE, ApiError, Connection
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.objects import Meta, Pod
from flowsched_k8s.pods.intent import read_intent
from flowsched_k8s.services.loads import AnnotationSource, Load, Loads, ServicePod
from flowsched_models.profiles import load_catalogue

NAMESPACE = "flowsched-agent"
INSTALLED = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
SERVICE = {names.PROFILE: "memcached", names.SLO: "p95=1ms@30Kqps", names.THREADS: "1", names.CORES: "0"}


@pytest.fixture
def installed(plane: Plane) -> None:
    for o in kustomized(MANIFESTS / "agent"):
        if o["kind"] in INSTALLED:
            plane.admin.apply([o], NAMESPACE)


def kubeconfig_of(plane: Plane, node: str, namespace: str = NAMESPACE) -> Path:
    """A kubeconfig with a token of the agent's account that says on which node its pod runs."""
    uid = plane.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/flowsched-agent/token"
    token = plane.admin.post(path, {"spec": spec})["status"]["token"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "users": [{"name": "it", "user": {"token": token}}],
        "clusters": [
            {
                "name": "it",
                "cluster": {"server": plane.server, "certificate-authority": str(plane.folder / "pki" / "ca.crt")},
            }
        ],
    }
    file = plane.folder / f"{namespace}-{node}.kubeconfig"
    file.write_text(json.dumps(config))
    return file


def patch(access: Access, path: str, body: Any, kind: str = MERGE) -> None:
    """A patch. Raises :class:`ApiError`."""

    async def send() -> None:
        async with Connection(access) as connection:
            reply = await connection.request("PATCH", path, body=body, content_type=kind)
        if not reply.ok:
            raise ApiError.of(reply)

    asyncio.run(send())


class Site:
    """Two nodes; the agent is on the first."""

    def __init__(self, plane: Plane, space: Space) -> None:
        self.space = space
        self.here, self.there = space.make_nodes(2)
        self.kubeconfig = kubeconfig_of(plane, self.here)
        # The policy is read by the API server some time after it was written.
        self.access = find_access(self.kubeconfig)
        wait_for(lambda: self.refused(f"/api/v1/nodes/{self.there}/status", {names.SERVICE_LOAD: "x"}), "the policy")

    def refused(self, path: str, annotations: dict[str, str | None], **more: Any) -> str:
        try:
            patch(self.access, path, {"metadata": {"annotations": annotations}, **more})
        except ApiError as error:
            return str(error)
        return ""

    def refused_metadata(self, path: str, metadata: dict[str, Any]) -> str:
        try:
            patch(self.access, f"{path}/status", {"metadata": metadata})
        except ApiError as error:
            return str(error)
        return ""

    def pod(self, name: str, node: str, annotations: dict[str, str]) -> str:
        self.space.make_pod(name, annotations=annotations)
        bound = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.space.admin.post(f"{self.space.pods_path}/{name}/binding", bound)
        running = {
            "status": {
                "phase": "Running",
                "podIP": "10.1.2.3",
                "containerStatuses": [
                    {
                        "name": "main",
                        "image": "x",
                        "imageID": "x",
                        "ready": True,
                        "restartCount": 0,
                        "resources": self.space.pod(name)["spec"]["containers"][0]["resources"],
                        "containerID": f"containerd://{name.encode().hex():0<64}",
                        "state": {"running": {}},
                    }
                ],
            }
        }
        # The kubelet of these nodes writes no ids of containers, and writes anew what lacks the resources.
        wait_for(lambda: self.space.pod(name)["status"].get("phase") == "Running", "the pod to run")
        self.space.admin.patch(f"{self.space.pods_path}/{name}/status", running, "strategic-merge-patch")
        return f"{self.space.name}/{name}"


@pytest.fixture
def site(plane: Plane, space: Space, installed: None) -> Site:
    return Site(plane, space)


@pytest.fixture
def cluster(site: Site) -> Iterator[Cluster]:
    settings = Kubernetes(enabled=True, node_name=site.here, kubeconfig=site.kubeconfig, report_s=0.01)
    made = Cluster(Configuration(kubernetes=settings), None)  # type: ignore[arg-type]
    made.start()
    yield made
    made.stop()


def test_the_pods_of_the_node_become_services_and_tasks_and_no_others(site: Site, cluster: Cluster) -> None:
    service = site.pod("mc", site.here, SERVICE)
    batch = site.pod("canneal", site.here, {names.PROFILE: "canneal", names.CORES: "1", names.THREADS: "2"})
    site.pod("elsewhere", site.there, SERVICE)
    site.pod("says-nothing", site.here, {})
    wait_for(lambda: set(cluster.present()) == {service, batch}, "both pods")
    made = cluster.present()
    assert isinstance(made[service].spec, ServiceSpec) and isinstance(made[batch].spec, TaskSpec)
    assert (made[batch].allowed, made[batch].spec.threads) == ((1,), 2)
    site.space.delete_pod("canneal")
    wait_for(lambda: set(cluster.present()) == {service}, "the deleted pod to go")


def test_the_load_is_on_the_pod_as_the_cluster_scheduler_reads_it(
    site: Site, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    service = site.pod("mc", site.here, SERVICE)
    wait_for(lambda: service in cluster.present(), "the pod")
    one = ServiceStatus(service, True, (0, 1), 1000.0, 23_456.7, 600.0)
    cluster.report(Status(time.monotonic(), {service: one}))
    wait_for(lambda: names.LOAD in site.space.pod("mc")["metadata"]["annotations"], "the load on the pod")
    annotations = site.space.pod("mc")["metadata"]["annotations"]
    intent = read_intent(Pod(metadata=Meta(annotations=annotations)), load_catalogue())
    assert (intent.load_qps, intent.problems) == (23_457.0, ())
    assert intent.slo is not None
    pod = ServicePod(PodKey(site.space.name, "mc", "uid"), site.here, intent.slo.qps, intent.load_qps)
    loads = Loads(30.0, AnnotationSource.measured)
    loads.update(asyncio.run(AnnotationSource(lambda: [pod]).read(1.0)))
    assert loads.load(pod.key, pod.stated_qps, 2.0) == Load(23_457.0, stale=False)
    node = site.space.admin.get(f"/api/v1/nodes/{site.here}")["metadata"]["annotations"]
    assert node[names.SERVICE_LOAD] == f"{service}=23457"
    assert node[names.SERVICE_HEADROOM] == f"{service}=0.4"
    assert node[names.SERVICE_CORES] == f"{service}=0-1"
    assert not [record.getMessage() for record in caplog.records if "report" in record.getMessage()]


def test_the_cluster_scheduler_places_by_the_load_that_the_agent_reports(
    plane: Plane, space: Space, installed: None, tmp_path: Path
) -> None:
    """A job goes beside a service only while the service, at the load that the agent measured, keeps its goal beside it."""
    settings = {"engine": {"dueAgeS": 3600.0}, "loadSource": {"ceiling": {"*": 100}}}
    with running_scheduler(plane, tmp_path, **settings) as scheduler, site_of(scheduler, space) as site:
        (node,) = site.nodes(1, labels={names.MACHINE_TYPE: "n2d-highmem-4"})
        wishes = {names.PROFILE: "memcached", names.SLO: "p95=1ms@30Kqps", names.CLIENT: "mcperf-sweep"}
        site.pod("mc", cpu="1", annotations=wishes)
        assert site.bound("mc") == node
        access = find_access(kubeconfig_of(plane, node))

        def report(qps: float) -> None:
            key = f"{site.name}/mc"
            status = Status(0.0, {key: ServiceStatus(key, True, (0,), 1000.0, qps)})
            said = Reporter(0.0, 0.1).due(status, {key: ""})
            assert said is not None
            patch(access, f"{space.pods_path}/mc/status", {"metadata": {"annotations": dict(said.pods[key])}})

        report(500_000.0)
        site.pod("early", cpu="1", annotations={names.PROFILE: "canneal"})
        assert site.event("early", names.POSTPONED)["type"] == "Normal"
        assert site.waits("early")["postponed"]
        report(5_000.0)
        assert site.bound("early") == node


def test_an_agent_can_write_nothing_else(site: Site) -> None:
    site.pod("mine", site.here, SERVICE)
    site.pod("theirs", site.there, SERVICE)
    node, pods = f"/api/v1/nodes/{site.here}", site.space.pods_path
    ours: dict[str, str | None] = {names.LOAD: "5"}
    assert site.refused(f"{pods}/mine/status", ours) == ""
    assert site.refused(f"{node}/status", {names.SERVICE_LOAD: "a=5"}) == ""
    for path, notes, more, why in (
        (f"{pods}/theirs/status", ours, {}, "its own node"),
        (f"/api/v1/nodes/{site.there}/status", ours, {}, "its own node"),
        (f"{pods}/mine/status", ours, {"status": {"phase": "Failed"}}, "not status"),
        (f"{node}/status", ours, {"status": {"capacity": {"cpu": "99"}}}, "not status"),
        (f"{node}/status", {"kwok.x-k8s.io/node": None}, {}, "annotations of flowsched.io only"),
        (f"{pods}/mine/status", {"other.io/x": "y"}, {}, "annotations of flowsched.io only"),
        (f"{pods}/mine/status", {"other.io/x": ""}, {}, "annotations of flowsched.io only"),
        (f"{pods}/mine", ours, {}, "forbidden"),
        (node, ours, {}, "forbidden"),
    ):
        assert why in site.refused(path, notes, **more), path


def test_an_agent_of_named_namespaces_needs_no_right_to_read_others(plane: Plane, site: Site, space: Space) -> None:
    """With an account of its own here, as another test may need the rights of the usual one."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "flowsched-agent"}}
    plane.admin.apply([account], space.name)
    for o in yaml.safe_load_all((MANIFESTS.parent / "examples" / "agent-namespaces.yaml").read_text()):
        if o["metadata"].get("namespace") == "lab":
            continue
        if o["kind"] == "RoleBinding":
            o["metadata"]["namespace"] = space.name
        elif o["kind"] == "ClusterRoleBinding":
            o["metadata"]["name"] += f"-{space.name}"
        for subject in o.get("subjects", ()):
            subject["namespace"] = space.name
        plane.admin.apply([o], space.name)
    mine = site.pod("mc", site.here, SERVICE)
    kubeconfig = kubeconfig_of(plane, site.here, space.name)
    settings = Kubernetes(enabled=True, node_name=site.here, kubeconfig=kubeconfig, namespaces=(space.name,))
    made = Cluster(Configuration(kubernetes=settings), None)  # type: ignore[arg-type]
    made.start()
    wait_for(lambda: set(made.present()) == {mine}, "the pod")
    made.stop()
    access = find_access(kubeconfig)
    for path in ("/api/v1/pods", "/api/v1/namespaces/default/pods", f"/api/v1/namespaces/{space.name}/secrets"):
        assert "forbidden" in listed(access, path)
    patch(access, f"{space.pods_path}/mc/status", {"metadata": {"annotations": {names.LOAD: "5"}}})
    patch(access, f"/api/v1/nodes/{site.here}/status", {"metadata": {"annotations": {names.SERVICE_LOAD: "x"}}})


def listed(access: Access, path: str) -> str:
    """Why a list is refused; empty where it is not."""

    async def ask() -> str:
        async with Connection(access) as connection:
            reply = await connection.request("GET", path)
        return "" if reply.ok else str(ApiError.of(reply))

    return asyncio.run(ask())


KINDS = {"merge": MERGE, "strategic": STRATEGIC_MERGE, "json": "application/json-patch+json"}
OWNER = {"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "0"}
METADATA: Mapping[str, Any] = {
    "labels": {"a": "b"},
    "annotations": {"other.io/x": "y"},
    "annotations that are empty": {"other.io/x": ""},
    "annotations that are there": {"theirs.io/kept": "z"},
    "annotations that are empty now": {"theirs.io/kept": ""},
    "annotations that are gone": {"theirs.io/kept": None},
    "annotations that look alike": {"flowsched.io.evil/x": "y"},
    "finalizers": ["other.io/x"],
    "finalizers that are gone": None,
    "ownerReferences": [OWNER],
    "ownerReferences that are gone": None,
    "generateName": "x-",
    "name": "another",
    "namespace": "default",
    "uid": "6a6c1b1e-2b0c-4d9f-8a39-1f0f3fba8f6d",
    "selfLink": "/x",
    "creationTimestamp": "2020-01-01T00:00:00Z",
    "deletionTimestamp": "2020-01-01T00:00:00Z",
    "deletionGracePeriodSeconds": 1,
    "generation": 77,
    "resourceVersion": None,
    "managedFields": [{}],
}
"""Changes of each field that the API has in metadata, some of them in several ways, by merge patch."""
ITS_OWN = ("generation", "resourceVersion", "managedFields")
"""What the API server writes itself, whatever is sent."""


def test_no_kind_of_change_of_metadata_passes_by_way_of_the_status(site: Site) -> None:
    """All that the API server would take from an administrator is refused, and nothing of it is changed."""
    admin, uid = site.space.admin, site.space.admin.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    known = set(admin.get("/openapi/v3/api/v1")["components"]["schemas"][META]["properties"])
    assert known == {name.split(" ")[0] for name in METADATA}, "every field that there is"
    site.pod("mine", site.here, {"theirs.io/kept": "x"})
    paths = {"node": f"/api/v1/nodes/{site.here}", "pod": f"{site.space.pods_path}/mine"}
    theirs = {"annotations": {"theirs.io/kept": "x"}, "ownerReferences": [{**OWNER, "uid": uid}]}
    admin.patch(paths["node"], {"metadata": {**theirs, "finalizers": ["theirs.io/kept"]}})
    admin.patch(paths["pod"], {"metadata": {**theirs, "finalizers": ["theirs.io/kept"]}})
    taken: dict[str, set[str]] = {what: set() for what in paths}
    for what, path in paths.items():
        for change, value in METADATA.items():
            field = change.split(" ")[0]
            value = [{**OWNER, "uid": uid, "controller": True}] if value == [OWNER] else value
            before = kept_of(admin.get(path))
            why = site.refused_metadata(path, {field: value})
            assert kept_of(admin.get(path)) == before, f"{what}: {change}"
            try:
                admin.patch(f"{path}/status", {"metadata": {field: value}})
            except RefusedError:
                continue
            if kept_of(admin.get(path)) != before:
                taken[what].add(change)
                assert "an agent writes annotations" in why, f"{what}: {change}: {why!r}"
                admin.patch(path, {"metadata": {**before, field: before.get(field)}})
    assert {"labels", "finalizers", "ownerReferences", "annotations that are empty"} <= taken["node"]
    assert {"labels", "finalizers", "finalizers that are gone", "annotations that are empty now"} <= taken["pod"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_patch_may_write_annotations_and_nothing_else(site: Site, kind: str) -> None:
    path = f"/api/v1/nodes/{site.here}/status"

    def send(metadata: dict[str, Any]) -> None:
        (field, value), *_ = metadata.items()
        body: Any = {"metadata": metadata}
        if kind == "json":
            body = [{"op": "add", "path": f"/metadata/{field}", "value": value}]
        patch(site.access, path, body, KINDS[kind])

    notes = site.space.admin.get(f"/api/v1/nodes/{site.here}")["metadata"]["annotations"]
    send({"annotations": {**notes, names.BATCH_TASKS: "running=1,paused=0"}})
    with pytest.raises(ApiError, match="no labels, finalizers, owners"):
        send({"finalizers": ["other.io/x"]})
    with pytest.raises(ApiError, match=r"annotations of flowsched\.io only"):
        send({"annotations": {**notes, "other.io/x": ""}})


def test_an_agent_still_reports_about_a_pod_that_is_being_deleted(plane: Plane, site: Site) -> None:
    (node,) = site.space.make_nodes(1, prefix="bare", kwok=False)
    site.space.make_pod("mine", annotations=SERVICE)
    path = f"{site.space.pods_path}/mine"
    bound = {"metadata": {"name": "mine"}, "target": {"kind": "Node", "name": node}}
    site.space.admin.post(f"{path}/binding", bound)
    site.space.delete_pod("mine", grace=600)
    assert site.space.pod("mine")["metadata"]["deletionTimestamp"]
    access = find_access(kubeconfig_of(plane, node))
    patch(access, f"{path}/status", {"metadata": {"annotations": {names.LOAD: "5"}}})
    assert site.space.pod("mine")["metadata"]["annotations"][names.LOAD] == "5"
    site.space.delete_pod("mine")


META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def kept_of(object: dict[str, Any]) -> dict[str, Any]:
    """Its metadata without what the API server writes itself."""
    return {name: value for name, value in object["metadata"].items() if name not in ITS_OWN}

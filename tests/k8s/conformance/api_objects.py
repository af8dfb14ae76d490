"""A scenario in objects that an API server takes: names of its own, and what upstream's cases leave out filled in.

Nothing that a case says is changed but names: of nodes, namespaces, claims, volumes and storage classes, consistently.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.scenario import Scenario, has_ephemeral
from conformance.upstream import Object

LARGE = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "512Gi"}
"""What a node has of a resource that the case does not mention."""
PROBE = "conformance.flowsched.test"
"""Domain of the resources by which one node of a case is asked about."""
FINALIZER = f"{PROBE}/keep"
"""Keeps a pod that is being deleted."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SCHEDULERS_OF_OTHERS = "another-scheduler"
VOLUME_DETAILS: Mapping[str, Object] = {
    "configMap": {"name": "any"},
    "secret": {"secretName": "any"},
    "rbd": {"monitors": ["any"], "image": "any"},
    "iscsi": {"targetPortal": "127.0.0.1:3260", "iqn": "iqn.2000-01.test:any", "lun": 0},
    "ephemeral": {
        "volumeClaimTemplate": {
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    },
}
"""What the API server demands of a volume in a pod."""


def dns(name: str) -> str:
    """A name that the API server takes."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "x"


def label(name: str) -> str:
    """The same without dots, as namespaces and volumes need it."""
    return dns(name).replace(".", "-")


@dataclass(frozen=True)
class Creation:
    """One object to create, and the status that it has then."""

    collection: str
    body: Object
    status: Object | None = None

    @property
    def path(self) -> str:
        """Where the object is."""
        return f"{self.collection}/{self.body['metadata']['name']}"


@dataclass
class Translation:
    """A scenario under names that begin with ``prefix``, for pods of one scheduler."""

    scenario: Scenario
    prefix: str
    scheduler: str
    node_labels: Mapping[str, str]
    creations: list[Creation] = field(default_factory=list)
    pods: list[Creation] = field(default_factory=list)
    leaving: list[Creation] = field(default_factory=list)
    """Pods among those that are being deleted."""
    owned: dict[str, list[Creation]] = field(default_factory=dict)
    """Claims that a pod of this name owns: they need its uid."""

    def __post_init__(self) -> None:
        """Translate everything but the pod that is to be scheduled."""
        scenario = self.scenario
        self.nodes = {name: self._node_name(name) for name in scenario.nodes}
        self._bound = {
            (c["spec"]["volumeName"]): c
            for c in scenario.others
            if c["kind"] == "PersistentVolumeClaim" and self._is_bound(c)
        }
        self.creations += self._namespaces()
        self.creations += self._classes()
        by_kind: dict[str, list[Object]] = {}
        for obj in scenario.others:
            by_kind.setdefault(obj["kind"], []).append(obj)
        for kind in ("StorageClass", "CSIDriver", "LimitRange", "Service", "ReplicaSet", "PodGroup"):
            self.creations += map(self._other, by_kind.get(kind, ()))
        self.creations += [self._node(name, node, number) for number, (name, node) in enumerate(scenario.nodes.items())]
        for kind in ("CSINode", "PersistentVolume", "PersistentVolumeClaim", "CSIStorageCapacity", "VolumeAttachment"):
            for obj in by_kind.get(kind, ()):
                owner = next(
                    (o["name"] for o in obj["metadata"].get("ownerReferences") or () if o["kind"] == "Pod"), ""
                )
                (self.owned.setdefault(dns(owner), []) if owner else self.creations).append(self._other(obj))
        for number, pod in enumerate(scenario.pods):
            named = has_ephemeral(pod) or scenario.steps
            name = pod["metadata"].get("name", "") if named else f"there-{number}"
            made = self._pod(pod, name, SCHEDULERS_OF_OTHERS)
            self.pods.append(made)
            if pod["metadata"].get("deletionTimestamp"):
                made.body["metadata"]["finalizers"] = [FINALIZER]
                self.leaving.append(made)
        self.creations += self.pods
        self.creations += map(self._other, by_kind.get("PodDisruptionBudget", ()))
        names = [pod["metadata"]["name"] for pod in scenario.waiting]
        self.waiting = {n: self._pod(pod, n, self.scheduler) for n, pod in zip(names, scenario.waiting, strict=True)}
        self._postpone()

    def _postpone(self) -> None:
        """Take out what a step adds later."""
        made = {**self.by_name, **self.waiting}
        self.later = {name: made[name] for name in sorted(self.scenario.later)}
        self.creations = [c for c in self.creations if c not in self.later.values()]
        self.pods = [c for c in self.pods if c not in self.later.values()]

    @property
    def by_name(self) -> dict[str, Creation]:
        """What is created before a scheduler is asked, by the names of the scenario: nodes, pods and others."""
        return {c.body["metadata"]["name"].removeprefix(f"{self.prefix}-"): c for c in self.creations}

    @property
    def claims(self) -> list[Creation]:
        """The claims among the objects."""
        owned = [claim for claims in self.owned.values() for claim in claims]
        return owned + [c for c in self.creations if c.body["kind"] == "PersistentVolumeClaim"]

    def incoming(self, name: str, resource: str = "") -> Creation:
        """The pod that is to be scheduled; with a resource it also requests one of that."""
        pod = copy.deepcopy(self.scenario.pod)
        if has_ephemeral(pod):
            name = pod["metadata"].get("name", name)
        made = self._pod(pod, name, self.scheduler)
        if resource:
            _request(made.body["spec"]["containers"][0], resource)
        return made

    def resource(self, number: int) -> str:
        """Of which only the node of this number has any."""
        return f"{PROBE}/node-{number}"

    # Names

    def namespace(self, name: str | None) -> str:
        """A namespace; ``default`` and none are the same."""
        return self.prefix if name in (None, "", "default") else f"{self.prefix}-{label(str(name))}"

    def _node_name(self, name: str) -> str:
        return f"{self.prefix}-{dns(name)}"

    def _global(self, name: str) -> str:
        """The name of an object without a namespace."""
        return f"{self.prefix}-{dns(name)}"

    # Objects

    def _namespaces(self) -> Iterator[Creation]:
        labels = {self.namespace(None): {}}
        for obj in self.scenario.others:
            if obj["kind"] == "Namespace":
                labels[self.namespace(obj["metadata"]["name"])] = obj["metadata"].get("labels") or {}
            elif "namespace" in obj["metadata"]:
                labels.setdefault(self.namespace(obj["metadata"]["namespace"]), {})
        for pod in self.scenario.all_pods:
            labels.setdefault(self.namespace(pod["metadata"].get("namespace")), {})
        for name, given in labels.items():
            yield Creation("/api/v1/namespaces", _object("v1", "Namespace", {"name": name, "labels": given}))

    def _classes(self) -> Iterator[Creation]:
        """Priority classes for priorities, and a runtime class for the overhead of pods."""
        pods = self.scenario.all_pods
        group = "scheduling.k8s.io/v1"
        made = {(p["spec"]["priority"], p["spec"].get("preemptionPolicy")) for p in pods if "priority" in p["spec"]}
        for value, policy in sorted(made, key=str):
            body = _object(group, "PriorityClass", {"name": self._priority_class(value, policy)})
            body |= {"value": value} | ({"preemptionPolicy": policy} if policy else {})
            yield Creation(f"/apis/{group}/priorityclasses", body)
        for pod in pods:
            if pod["spec"].get("overhead"):
                name = self._runtime_class(pod)
                body = _object("node.k8s.io/v1", "RuntimeClass", {"name": name})
                body |= {"handler": "test", "overhead": {"podFixed": pod["spec"]["overhead"]}}
                yield Creation("/apis/node.k8s.io/v1/runtimeclasses", body)

    def _priority_class(self, value: int, policy: str | None) -> str:
        return self._global(f"{'minus' if value < 0 else 'plus'}-{abs(value)}-{policy or 'default'}")

    def _runtime_class(self, pod: Object) -> str:
        return self._global("-".join(f"{k}-{v}" for k, v in sorted(pod["spec"]["overhead"].items())))

    def _node(self, name: str, node: Object, number: int) -> Creation:
        given = node.get("status", {}).get("allocatable") or node.get("status", {}).get("capacity") or {}
        room = {**LARGE, **given, self.resource(number): "1"}
        if not self.scenario.fits.get(name, True):
            room[f"{PROBE}/unfit"] = "1"
        labels = {**(node["metadata"].get("labels") or {}), **self.node_labels}
        labels.setdefault("kubernetes.io/hostname", dns(name))
        annotations = {"kwok.x-k8s.io/node": "fake"} if self.scenario.preempts else {}
        body = _object("v1", "Node", {"name": self.nodes[name], "labels": labels, "annotations": annotations})
        spec = node.get("spec") or {}
        body["spec"] = {key: spec[key] for key in ("taints", "unschedulable") if spec.get(key)}
        ready = {"type": "Ready", "status": "True", "reason": "Test"}
        images = node.get("status", {}).get("images") or []
        body["status"] = {"allocatable": room, "capacity": room, "conditions": [ready], "images": images}
        return Creation("/api/v1/nodes", body)

    def _other(self, obj: Object) -> Creation:
        """An object that is neither node nor pod."""
        obj = copy.deepcopy(obj)
        metadata = {k: v for k, v in obj["metadata"].items() if k in ("name", "labels", "annotations", "namespace")}
        obj["metadata"] = metadata
        status = obj.pop("status", None)
        resource = RESOURCES[obj["kind"]]
        if obj["kind"] in NAMESPACED:
            metadata["namespace"] = self.namespace(metadata.get("namespace"))
            metadata["name"] = dns(metadata["name"])
            place = f"/namespaces/{metadata['namespace']}"
        else:
            place = ""
            if obj["kind"] != "CSIDriver":
                metadata["name"] = self._global(metadata["name"])
        prefix = "/api" if "/" not in obj["apiVersion"] else "/apis"
        if complete := getattr(self, f"_complete_{obj['kind']}", None):
            status = complete(obj, status)
        return Creation(f"{prefix}/{obj['apiVersion']}{place}/{resource}", obj, status)

    def _complete_StorageClass(self, obj: Object, status: Object | None) -> None:  # noqa: N802
        # To the plugin that binds volumes, a class without a provisioner makes none. To others, a class is one that does.
        none = "kubernetes.io/no-provisioner" if self.scenario.case.plugin == "volumebinding" else f"{PROBE}/any"
        obj["provisioner"] = obj.get("provisioner") or none

    def _complete_CSIDriver(self, obj: Object, status: Object | None) -> None:  # noqa: N802
        obj.setdefault("spec", {})

    def _complete_CSINode(self, obj: Object, status: Object | None) -> None:  # noqa: N802
        # Upstream's helper also lists in-tree plugins as drivers, whose names the API server does not take.
        drivers = (obj.get("spec") or {}).get("drivers") or []
        obj["spec"] = {"drivers": [driver for driver in drivers if "/" not in driver["name"]]}
        for driver in obj["spec"]["drivers"]:
            driver["nodeID"] = driver.get("nodeID") or "node"

    def _complete_VolumeAttachment(self, obj: Object, status: Object | None) -> None:  # noqa: N802
        spec = obj["spec"]
        spec["nodeName"] = self._node_name(spec["nodeName"])
        spec["source"]["persistentVolumeName"] = self._global(spec["source"]["persistentVolumeName"])

    def _complete_CSIStorageCapacity(self, obj: Object, status: Object | None) -> None:  # noqa: N802
        obj["storageClassName"] = self._global(obj["storageClassName"])

    def _complete_PodDisruptionBudget(self, obj: Object, status: Object | None) -> Object | None:  # noqa: N802
        obj.setdefault("spec", {})["minAvailable"] = 0
        allowed = (status or {}).get("disruptionsAllowed", 0)
        return {"disruptionsAllowed": allowed, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def _complete_PersistentVolume(self, obj: Object, status: Object | None) -> Object:  # noqa: N802
        name = next(p["metadata"]["name"] for p in self.scenario.others if self._is(p, obj))
        spec = obj["spec"] = obj.get("spec") or {}
        spec.setdefault("capacity", {"storage": "1Gi"})
        spec.setdefault("accessModes", ["ReadWriteOnce"])
        if not any(
            source in spec for source in ("csi", "awsElasticBlockStore", "gcePersistentDisk", "hostPath", "local")
        ):
            spec["hostPath"] = {"path": "/tmp"}
        if spec.get("storageClassName"):
            spec["storageClassName"] = self._global(spec["storageClassName"])
        if claim := self._bound.get(name):
            spec["claimRef"] = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": self.namespace(claim["metadata"].get("namespace")),
                "name": dns(claim["metadata"]["name"]),
            }
            return {"phase": "Bound"}
        if "claimRef" in spec:
            reference = spec["claimRef"]
            spec["claimRef"] = {
                "namespace": self.namespace(reference.get("namespace")),
                "name": dns(reference.get("name", "")),
            }
        return {"phase": (status or {}).get("phase") or "Available"}

    def _is(self, original: Object, translated: Object) -> bool:
        return (
            original["kind"] == translated["kind"]
            and self._global(original["metadata"]["name"]) == translated["metadata"]["name"]
        )

    def _complete_PersistentVolumeClaim(self, obj: Object, status: Object | None) -> Object | None:  # noqa: N802
        bound = self._is_bound(obj)
        spec = obj["spec"]
        spec.setdefault("accessModes", ["ReadWriteOnce"])
        spec["resources"] = spec.get("resources") or {}
        spec["resources"].setdefault("requests", {"storage": "1Gi"})
        if spec.get("storageClassName"):
            spec["storageClassName"] = self._global(spec["storageClassName"])
        if spec.get("volumeName"):
            spec["volumeName"] = self._global(spec["volumeName"])
        if bound:
            obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), BIND_COMPLETED: "yes"}
        phase = (status or {}).get("phase") or ("Bound" if bound else "Pending")
        return {"phase": phase}

    def _is_bound(self, claim: Object) -> bool:
        """A claim that names its volume is bound, unless the plugin is the one that looks at the mark of that."""
        if not claim["spec"].get("volumeName"):
            return False
        marked = BIND_COMPLETED in (claim["metadata"].get("annotations") or {})
        return marked or self.scenario.case.plugin != "volumebinding"

    # Pods

    def _pod(self, pod: Object, name: str, scheduler: str) -> Creation:
        metadata = {k: v for k, v in pod["metadata"].items() if k in ("labels", "annotations")}
        namespace = self.namespace(pod["metadata"].get("namespace"))
        metadata |= {"name": dns(name), "namespace": namespace}
        spec = copy.deepcopy(pod["spec"])
        spec["schedulerName"] = scheduler
        if spec.get("nodeName"):
            spec["nodeName"] = self._node_name(spec["nodeName"])
        if spec.get("overhead"):
            spec["runtimeClassName"] = self._runtime_class(pod)
            del spec["overhead"]
        if "priority" in spec:
            spec["priorityClassName"] = self._priority_class(spec.pop("priority"), spec.pop("preemptionPolicy", None))
        if spec.get("resources"):
            _complete_resources(spec["resources"])
        spec["containers"] = spec.get("containers") or [{}]
        for number, container in enumerate(spec["containers"]):
            _complete_container(container, f"c{number}")
        for number, container in enumerate(spec.get("initContainers") or ()):
            _complete_container(container, f"i{number}")
        for number, volume in enumerate(spec.get("volumes") or ()):
            _complete_volume(volume, number)
        self._rename_in_affinity(spec.get("affinity") or {})
        body = _object("v1", "Pod", metadata) | {"spec": spec}
        return Creation(f"/api/v1/namespaces/{namespace}/pods", body)

    def _rename_in_affinity(self, affinity: Object) -> None:
        for kind in ("podAffinity", "podAntiAffinity"):
            for wish in (affinity.get(kind) or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ():
                self._rename_in_term(wish["podAffinityTerm"])
            for term in (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ():
                self._rename_in_term(term)
        nodes = affinity.get("nodeAffinity") or {}
        terms = list((nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ())
        terms += [w["preference"] for w in nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()]
        for term in terms:
            for match in (term or {}).get("matchFields") or ():
                match["values"] = [self._node_name(value) for value in match.get("values") or ()]

    def _rename_in_term(self, term: Object) -> None:
        if term.get("namespaces"):
            term["namespaces"] = [self.namespace(name) for name in term["namespaces"]]
        term["topologyKey"] = term.get("topologyKey") or "kubernetes.io/hostname"


RESOURCES = {
    "StorageClass": "storageclasses",
    "CSIDriver": "csidrivers",
    "CSINode": "csinodes",
    "CSIStorageCapacity": "csistoragecapacities",
    "VolumeAttachment": "volumeattachments",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Namespace": "namespaces",
    "LimitRange": "limitranges",
    "Service": "services",
    "ReplicaSet": "replicasets",
    "PodGroup": "podgroups",
}
NAMESPACED = (
    "PersistentVolumeClaim",
    "CSIStorageCapacity",
    "PodDisruptionBudget",
    "LimitRange",
    "Service",
    "ReplicaSet",
    "PodGroup",
)


def _object(version: str, kind: str, metadata: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _complete_container(container: Object, name: str) -> None:
    container["name"], container["image"] = name, container.get("image") or "test"
    for port in container.get("ports") or ():
        port["containerPort"] = port.get("containerPort") or port.get("hostPort") or 1
        if not port.get("protocol"):
            port.pop("protocol", None)
    _complete_resources(container.setdefault("resources", {}))


def _complete_resources(resources: Object) -> None:
    for key in ("requests", "limits"):
        # The number of pods is no resource of containers; upstream's helper writes a zero of it.
        resources[key] = {n: v for n, v in (resources.get(key) or {}).items() if n != "pods"}
    for resource, amount in list(resources["requests"].items()):
        if "/" in resource or resource.startswith("hugepages-"):
            # Not overcommitted: the limit has to be the request, and huge pages are not alone.
            resources["limits"].setdefault(resource, amount)
            resources["requests"].setdefault("cpu", "0")


def _complete_volume(volume: Object, number: int) -> None:
    volume["name"] = label(volume.get("name") or f"v{number}")
    for source, details in VOLUME_DETAILS.items():
        if source in volume:
            volume[source] = {**details, **{k: v for k, v in (volume[source] or {}).items() if v not in (None, "")}}
    if claim := volume.get("persistentVolumeClaim"):
        claim["claimName"] = dns(claim["claimName"])


def _request(container: Object, resource: str) -> None:
    for key in ("requests", "limits"):
        container["resources"][key][resource] = "1"

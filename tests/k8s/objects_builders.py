"""Kubernetes objects in the domain's words, as the API server would send them, and random ones for properties.

Everything goes through JSON and the decoder that the scheduler uses, so a builder cannot make what never arrives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from flowsched_k8s import names, objects
from flowsched_k8s.services.grant import Grant, written
from flowsched_k8s.services.latency import ServiceWish
from flowsched_k8s.volumes import storage_objects

T = TypeVar("T")
Json = dict[str, Any]


def decoded(type: type[T], data: Json) -> T:
    """An object as it arrives from the API server."""
    return msgspec.json.decode(json.dumps(data), type=type)


def _given(**fields: Any) -> Json:
    """Only what was given."""
    return {name: value for name, value in fields.items() if value is not None}


def metadata(
    name: str,
    namespace: str | None = None,
    *,
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    deleting: bool = False,
    owner: tuple[str, str] | None = None,
) -> Json:
    """``owner``: (kind, uid) of the controller; the uid is made from the names where it does not matter."""
    return _given(
        name=name,
        namespace=namespace,
        uid=uid or (f"uid-{namespace}-{name}" if namespace else f"uid-{name}"),
        resourceVersion="1",
        creationTimestamp="2026-01-01T00:00:00Z",
        labels=labels,
        annotations=annotations,
        deletionTimestamp="2026-01-01T00:10:00Z" if deleting else None,
        ownerReferences=[{"kind": owner[0], "name": owner[0].lower(), "uid": owner[1], "controller": True}]
        if owner
        else None,
    )


# Selectors


def selector(*expressions: Json, **labels: str) -> Json:
    """A label selector: ``selector(app="web")``, ``selector(requirement("tier", "Exists"))``."""
    return _given(matchLabels=labels or None, matchExpressions=list(expressions) or None)


def requirement(key: str, operator: str, *values: str) -> Json:
    """One expression of a selector, of labels or of nodes."""
    return _given(key=key, operator=operator, values=list(values) or None)


def node_terms(*terms: Sequence[Json]) -> Json:
    """A node selector: any of the terms, each a list of requirements."""
    return {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}


def pod_term(
    key: str,
    selects: Json | None,
    *,
    namespaces: Sequence[str] | None = None,
    namespace_selector: Json | None = None,
    match: Sequence[str] | None = None,
    mismatch: Sequence[str] | None = None,
) -> Json:
    """A term of pod affinity or anti-affinity."""
    return _given(
        topologyKey=key,
        labelSelector=selects,
        namespaces=namespaces,
        namespaceSelector=namespace_selector,
        matchLabelKeys=match,
        mismatchLabelKeys=mismatch,
    )


def affinity(
    *,
    nodes: Json | None = None,
    prefers: Sequence[tuple[int, Sequence[Json]]] = (),
    near: Sequence[Json] = (),
    apart: Sequence[Json] = (),
    likes: Sequence[tuple[int, Json]] = (),
    dislikes: Sequence[tuple[int, Json]] = (),
) -> Json:
    """spec.affinity: required ``nodes``, ``near``, ``apart``; with weights ``prefers``, ``likes``, ``dislikes``."""
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )

    def wishes(terms: Sequence[tuple[int, Json]]) -> list[Json]:
        return [{"weight": weight, "podAffinityTerm": term} for weight, term in terms]

    by_node = _given(**{required: nodes})
    if prefers:
        by_node[preferred] = [{"weight": w, "preference": {"matchExpressions": list(t)}} for w, t in prefers]
    by_pod = {required: list(near), preferred: wishes(likes)} if near or likes else None
    against = {required: list(apart), preferred: wishes(dislikes)} if apart or dislikes else None
    return _given(nodeAffinity=by_node or None, podAffinity=by_pod, podAntiAffinity=against)


def spread(key: str, selects: Json | None, *, skew: int = 1, hard: bool = True, **fields: Any) -> Json:
    """A topology spread constraint; further fields as Kubernetes names them."""
    when = "DoNotSchedule" if hard else "ScheduleAnyway"
    return _given(maxSkew=skew, topologyKey=key, whenUnsatisfiable=when, labelSelector=selects, **fields)


# Pods and nodes


def container(
    name: str = "main",
    cpu: str | None = None,
    memory: str | None = None,
    *,
    ports: Sequence[Json] | None = None,
    restartable: bool = False,
    **more: str,
) -> Json:
    """A container and what it requests; ``more`` by resource, ``__`` standing for a slash."""
    requests = _given(cpu=cpu, memory=memory) | {k.replace("__", "/"): v for k, v in more.items()}
    return _given(
        name=name,
        resources={"requests": requests} if requests else None,
        ports=ports,
        restartPolicy="Always" if restartable else None,
    )


def host_port(number: int, ip: str | None = None, protocol: str | None = None) -> Json:
    """A port of the node that a container takes."""
    return _given(containerPort=number, hostPort=number, hostIP=ip, protocol=protocol)


def toleration(key: str = "", operator: str | None = None, value: str | None = None, effect: str | None = None) -> Json:
    return _given(key=key or None, operator=operator, value=value, effect=effect)


def claim_volume(claim: str, name: str = "data") -> Json:
    """A volume of a pod from a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def pod(
    name: str = "p1",
    namespace: str = "default",
    *,
    cpu: str | None = None,
    memory: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    uid: str | None = None,
    node: str | None = None,
    scheduler: str = "flowsched",
    containers: Sequence[Json] | None = None,
    deleting: bool = False,
    owner: tuple[str, str] | None = None,
    status: Json | None = None,
    **spec: Any,
) -> objects.Pod:
    """A pod with one container, unless told otherwise; further fields of its spec as Kubernetes names them."""
    fields = {
        "schedulerName": scheduler,
        "containers": list(containers) if containers is not None else [container("main", cpu, memory)],
        **_given(nodeName=node, **spec),
    }
    meta = metadata(name, namespace, uid=uid, labels=labels, annotations=annotations, deleting=deleting, owner=owner)
    return decoded(objects.Pod, {"metadata": meta, "spec": fields, "status": status or {"phase": "Pending"}})


def granted(
    node: str,
    *,
    profile: str = "memcached",
    p95_us: float = 1000.0,
    qps: float = 30_000.0,
    client: str = "mcperf-dynamic",
    width_milli: int = 1000,
    threads: int = 1,
    cores: tuple[int, ...] = (0,),
) -> Json:
    """The status of a service that flowsched has bound: a pod without it was granted nothing."""
    grant = Grant(node, ServiceWish(profile, p95_us, qps, client, width_milli), threads, cores)
    condition = {"type": names.GRANTED, "status": "True", "reason": names.BOUND, "message": written(grant)}
    return {"phase": "Pending", "conditions": [condition]}


def taint(key: str, value: str | None = None, effect: str = "NoSchedule") -> Json:
    return _given(key=key, value=value, effect=effect)


def node(
    name: str = "n1",
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] | None = None,
    cordoned: bool = False,
    resources: Mapping[str, str] | None = None,
    zone: str | None = None,
    images: Mapping[str, int] | None = None,
) -> objects.Node:
    """A ready node; it always has its hostname label."""
    own = {"kubernetes.io/hostname": name} | ({"topology.kubernetes.io/zone": zone} if zone else {})
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    return decoded(
        objects.Node,
        {
            "metadata": metadata(name, labels=own | dict(labels or {})),
            "spec": _given(unschedulable=cordoned or None, taints=taints),
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": [name], "sizeBytes": size} for name, size in (images or {}).items()],
            },
        },
    )


# Volumes


def claim(
    name: str = "data",
    namespace: str = "default",
    *,
    storage_class: str | None = "standard",
    size: str = "1Gi",
    volume: str | None = None,
    bound: bool | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    annotations: Mapping[str, str] | None = None,
    phase: str | None = None,
    deleting: bool = False,
    owner: tuple[str, str] | None = None,
    uid: str | None = None,
    **spec: Any,
) -> storage_objects.Claim:
    """A claim; with a volume it is bound to it unless told otherwise."""
    is_bound = volume is not None if bound is None else bound
    notes = dict(annotations or {}) | ({"pv.kubernetes.io/bind-completed": "yes"} if is_bound else {})
    return decoded(
        storage_objects.Claim,
        {
            "metadata": metadata(name, namespace, annotations=notes, deleting=deleting, owner=owner, uid=uid),
            "spec": _given(
                storageClassName=storage_class,
                volumeName=volume,
                accessModes=list(modes),
                resources={"requests": {"storage": size}},
                **spec,
            ),
            "status": {"phase": phase or ("Bound" if is_bound else "Pending")},
        },
    )


def volume(
    name: str = "pv1",
    *,
    storage_class: str = "standard",
    size: str = "1Gi",
    nodes: Json | None = None,
    labels: Mapping[str, str] | None = None,
    claim: tuple[str, str] | None = None,
    claim_uid: str | None = None,
    driver: str | None = None,
    handle: str | None = None,
    phase: str | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    deleting: bool = False,
    **spec: Any,
) -> storage_objects.PersistentVolume:
    """A persistent volume; with a claim it is bound to it unless told otherwise."""
    reference = _given(namespace=claim[0], name=claim[1], uid=claim_uid) if claim else None
    return decoded(
        storage_objects.PersistentVolume,
        {
            "metadata": metadata(name, labels=labels, deleting=deleting),
            "spec": _given(
                capacity={"storage": size},
                accessModes=list(modes),
                storageClassName=storage_class,
                nodeAffinity={"required": nodes} if nodes else None,
                claimRef=reference,
                csi={"driver": driver, "volumeHandle": handle or name} if driver else None,
                **spec,
            ),
            "status": {"phase": phase or ("Bound" if claim else "Available")},
        },
    )


def storage_class(
    name: str = "standard",
    *,
    provisioner: str = "csi.example.com",
    waits: bool = True,
    topologies: Sequence[Mapping[str, Sequence[str]]] | None = None,
) -> storage_objects.StorageClass:
    """A class that waits for the first consumer, unless told otherwise."""
    terms = [
        {"matchLabelExpressions": [{"key": k, "values": list(v)} for k, v in term.items()]} for term in topologies or ()
    ]
    return decoded(
        storage_objects.StorageClass,
        {
            "metadata": metadata(name),
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
            **_given(allowedTopologies=terms or None),
        },
    )


def csi_driver(name: str = "csi.example.com", *, tells: bool = True) -> storage_objects.CsiDriver:
    """A CSI driver that tells where it has room, or does not."""
    return decoded(storage_objects.CsiDriver, {"metadata": metadata(name), "spec": {"storageCapacity": tells}})


def storage_capacity(
    name: str, topology: Json | None, capacity: str | None = None, most: str | None = None, class_: str = "standard"
) -> storage_objects.CsiStorageCapacity:
    """So much room for a class on the nodes that the selector ``topology`` means, and the largest volume of it."""
    fields = _given(nodeTopology=topology, capacity=capacity, maximumVolumeSize=most)
    return decoded(
        storage_objects.CsiStorageCapacity, {"metadata": metadata(name), "storageClassName": class_, **fields}
    )


def csi_node(name: str = "n1", *, migrated: str | None = None, **limits: int | None) -> storage_objects.CsiNode:
    """Volumes that each driver takes on a node; ``_`` stands for a dot, None for no limit. ``migrated``: in-tree plugins."""
    notes = None if migrated is None else {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    drivers = [
        {"name": driver.replace("_", "."), **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in limits.items()
    ]
    return decoded(
        storage_objects.CsiNode, {"metadata": metadata(name, annotations=notes), "spec": {"drivers": drivers or None}}
    )


def volume_attachment(
    name: str = "va1", *, node: str = "n1", driver: str, volume: str
) -> storage_objects.VolumeAttachment:
    """A volume that a driver has attached to a node."""
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return decoded(storage_objects.VolumeAttachment, {"metadata": metadata(name), "spec": spec})


# Budgets and groups


def budget(name: str, selects: Json, *, namespace: str = "default", allowed: int = 0) -> objects.Budget:
    """A PodDisruptionBudget that allows so many more disruptions."""
    return decoded(
        objects.Budget,
        {
            "metadata": metadata(name, namespace),
            "spec": {"selector": selects},
            "status": {"disruptionsAllowed": allowed},
        },
    )


def plugins_group(name: str = "train", namespace: str = "default", **spec: Any) -> objects.PodGroup:
    """A pod group of scheduler-plugins."""
    data = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    return decoded(objects.PodGroup, {**data, "metadata": metadata(name, namespace), "spec": spec})


def in_tree_group(
    name: str = "train",
    namespace: str = "default",
    *,
    minimum: int | None = None,
    version: str = "v1alpha2",
    **spec: Any,
) -> objects.PodGroup:
    """A pod group of Kubernetes itself; without a minimum its pods need not start together."""
    policy = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    data = {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup"}
    return decoded(
        objects.PodGroup,
        {**data, "metadata": metadata(name, namespace), "spec": {"schedulingPolicy": policy, **spec}},
    )


# Random ones

KEYS = ("app", "tier", "zone", "size")
VALUES = ("a", "b", "1", "5", "-3", "")


def label_sets() -> st.SearchStrategy[dict[str, str]]:
    """Few keys and values, so that selectors often meet them."""
    return st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)


def requirements(operators: Sequence[str]) -> st.SearchStrategy[Json]:
    """Requirements, also ones that the API server would refuse."""
    return st.builds(
        lambda key, operator, values: requirement(key, operator, *values),
        st.sampled_from(KEYS),
        st.sampled_from(operators),
        st.lists(st.sampled_from(VALUES), max_size=3),
    )


def label_selectors() -> st.SearchStrategy[Json]:
    """Label selectors of the forms that Kubernetes knows, and some that it refuses."""
    operators = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Nonsense")
    return st.builds(
        lambda labels, expressions: selector(*expressions, **labels),
        st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
        st.lists(requirements(operators), max_size=2),
    )

"""Pods that say much in one of the lists or mappings of the API that the scheduler decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import objects_builders as b

from flowsched_k8s import names, objects

Field = tuple[str, str]
"""A type of the API, and a list or mapping of it."""
Said = dict[str, Any]


def many(count: int) -> range:
    return range(count)


def labels(count: int) -> dict[str, str]:
    return {f"label-{i}": "x" for i in many(count)}


def terms(count: int) -> list[Any]:
    return [b.pod_term(names.HOSTNAME, b.selector(app=f"w{i}")) for i in many(count)]


def about(selects: Any, **more: Any) -> Said:
    return {"affinity": b.affinity(apart=[b.pod_term(names.HOSTNAME, selects, **more)])}


def on(required: Any) -> Said:
    return {"affinity": b.affinity(nodes=required)}


def requests(count: int) -> dict[str, str]:
    return {f"example.com/r{i}": "1" for i in many(count)}


def status(**fields: Any) -> Said:
    return {"status": {"phase": "Pending", **fields}}


def one_container(**fields: Any) -> Said:
    return {"containers": [{"name": "main", **fields}]}


def statuses(count: int) -> list[Any]:
    return [{"name": f"c{i}", "allocatedResources": {"cpu": "1m"}} for i in many(count)]


ROWS: dict[Field, list[Callable[[int], Said]]] = {
    ("Meta", "labels"): [lambda n: {"labels": labels(n)}],
    ("Meta", "annotations"): [lambda n: {"annotations": {f"flowsched.io/a{i}": "x" for i in many(n)}}],
    ("Meta", "owner_references"): [
        lambda n: {"owners": [{"kind": "ReplicaSet", "name": f"o{i}", "uid": f"o{i}"} for i in many(n)]}
    ],
    ("LabelSelector", "match_labels"): [lambda n: about(b.selector(**labels(n)))],
    ("LabelSelector", "match_expressions"): [
        lambda n: about(b.selector(*(b.requirement(f"l{i}", "Exists") for i in many(n)))),
        lambda n: about(b.selector(*(b.requirement(f"l{i}", "DoesNotExist") for i in many(n)))),
    ],
    ("Requirement", "values"): [
        lambda n: about(b.selector(b.requirement("app", "In", *(f"v{i}" for i in many(n))))),
        lambda n: about(b.selector(b.requirement("app", "NotIn", *(f"v{i}" for i in many(n))))),
        lambda n: on(b.node_terms([b.requirement("disk", "NotIn", *(f"v{i}" for i in many(n)))])),
    ],
    ("NodeSelectorTerm", "match_expressions"): [
        lambda n: on(b.node_terms([b.requirement(f"l{i}", "DoesNotExist") for i in many(n)]))
    ],
    ("NodeSelectorTerm", "match_fields"): [
        lambda n: on(
            {
                "nodeSelectorTerms": [
                    {"matchFields": [b.requirement("metadata.name", "NotIn", f"x{i}") for i in many(n)]}
                ]
            }
        )
    ],
    ("NodeSelector", "node_selector_terms"): [
        lambda n: on(b.node_terms(*([b.requirement("disk", "In", f"v{i}")] for i in many(n))))
    ],
    ("NodeAffinity", "preferred"): [
        lambda n: {"affinity": b.affinity(prefers=[(1, [b.requirement("disk", "In", f"v{i}")]) for i in many(n)])}
    ],
    ("PodAffinityTerm", "namespaces"): [lambda n: about(b.selector(app="x"), namespaces=[f"n{i}" for i in many(n)])],
    ("PodAffinityTerm", "match_label_keys"): [
        lambda n: {"labels": labels(n), **about(b.selector(app="x"), match=list(labels(n)))}
    ],
    ("PodAffinityTerm", "mismatch_label_keys"): [
        lambda n: {"labels": labels(n), **about(b.selector(app="x"), mismatch=list(labels(n)))}
    ],
    ("PodAffinity", "required"): [
        lambda n: {"affinity": b.affinity(apart=terms(n))},
        lambda n: {"affinity": b.affinity(near=terms(n))},
        # Each term means the pod itself.
        lambda n: {
            "labels": labels(n),
            "affinity": b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(**{k: "x"})) for k in labels(n)]),
        },
    ],
    ("PodAffinity", "preferred"): [
        lambda n: {"affinity": b.affinity(likes=[(1, term) for term in terms(n)])},
        lambda n: {"affinity": b.affinity(dislikes=[(1, term) for term in terms(n)])},
    ],
    ("TopologySpreadConstraint", "match_label_keys"): [
        lambda n: {
            "labels": labels(n),
            "topologySpreadConstraints": [b.spread(names.ZONE, b.selector(app="x"), matchLabelKeys=list(labels(n)))],
        }
    ],
    ("PodSpec", "node_selector"): [lambda n: {"nodeSelector": labels(n)}],
    ("PodSpec", "tolerations"): [lambda n: {"tolerations": [b.toleration(f"t{i}", "Exists") for i in many(n)]}],
    ("PodSpec", "containers"): [lambda n: {"containers": [b.container(f"c{i}", "1m") for i in many(n)]}],
    ("PodSpec", "init_containers"): [lambda n: {"initContainers": [b.container(f"c{i}", "1m") for i in many(n)]}],
    ("PodSpec", "overhead"): [lambda n: {"overhead": requests(n)}],
    ("PodSpec", "scheduling_gates"): [lambda n: {"schedulingGates": [{"name": f"g{i}"} for i in many(n)]}],
    ("PodSpec", "topology_spread_constraints"): [
        lambda n: {
            "topologySpreadConstraints": [
                b.spread(f"key-{i}", b.selector(app="x"), hard=hard) for i in many(n // 4) for hard in (True, False)
            ]
        }
    ],
    ("PodSpec", "volumes"): [
        lambda n: {"volumes": [b.claim_volume(f"c{i}", f"v{i}") for i in many(n)]},
        lambda n: {"volumes": [{"name": f"v{i}", "gcePersistentDisk": {"pdName": f"d{i}"}} for i in many(n)]},
        lambda n: {"volumes": [{"name": f"v{i}", "image": {"reference": f"i{i}"}} for i in many(n)]},
    ],
    ("PodSpec", "resource_claims"): [lambda n: {"resourceClaims": [{"name": f"r{i}"} for i in many(n)]}],
    ("Container", "ports"): [lambda n: one_container(ports=[b.host_port(1 + i) for i in many(n)])],
    ("Resources", "requests"): [lambda n: one_container(resources={"requests": requests(n)})],
    ("Resources", "limits"): [lambda n: one_container(resources={"limits": requests(n)})],
    ("Resources", "claims"): [lambda n: one_container(resources={"claims": [{"name": f"r{i}"} for i in many(n)]})],
    ("DiskSource", "monitors"): [
        lambda n: {"volumes": [{"name": "v", "rbd": {"monitors": [f"m{i}" for i in many(n)], "image": "i"}}]}
    ],
    ("PodStatus", "conditions"): [lambda n: status(conditions=[{"type": f"c{i}"} for i in many(n)])],
    ("PodStatus", "container_statuses"): [
        lambda n: {
            "containers": [b.container(f"c{i}", "1m") for i in many(n)],
            **status(containerStatuses=statuses(n)),
        }
    ],
    ("PodStatus", "init_container_statuses"): [
        lambda n: {
            "initContainers": [b.container(f"c{i}", "1m", restartable=True) for i in many(n)],
            **status(initContainerStatuses=statuses(n)),
        }
    ],
    ("PodStatus", "allocated_resources"): [lambda n: status(allocatedResources=requests(n))],
    ("ContainerStatus", "allocated_resources"): [
        lambda n: status(containerStatuses=[{"name": "main", "allocatedResources": requests(n)}])
    ],
}
"""A pod that says much in each list or mapping that the scheduler decodes."""


def wordy(said: Said, name: str = "wordy") -> objects.Pod:
    owners = said.pop("owners", None)
    found = b.pod(name, "tenant", **{"cpu": "1m", "memory": "1Mi", **said})
    if owners:
        references = b.decoded(list[objects.OwnerReference], owners)  # type: ignore[arg-type]
        meta = msgspec.structs.replace(found.metadata, owner_references=references)
        found = msgspec.structs.replace(found, metadata=meta)
    return found

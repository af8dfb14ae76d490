"""The kinds of objects of the API server that are followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.groups.pod_groups import (
    IN_TREE,
    KUEUE,
    KUEUE_LABEL,
    LABELS,
    NAME_LABEL,
    PLUGINS,
    PLUGINS_LABEL,
)
from flowsched_k8s.objects import Budget, FinishedPod, Namespace, Node, Pod, PodGroup, SucceededPod
from flowsched_k8s.volumes.storage_objects import (
    Claim,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    StorageClass,
    VolumeAttachment,
)

NEEDED = ("nodes", "pods")
"""Without these nothing can be decided."""
IN_TREE_VERSIONS = ("v1beta1", "v1alpha2")
"""Of the in-tree pod groups; an API server has one of them, or none."""
_NOT_SUCCEEDED = "status.phase!=Succeeded"
"""Failed ones are followed: a watch without them tells a pod's end with its state before, and so no kubelet's refusal."""


@dataclass(frozen=True)
class Watched:
    """One kind of object that is followed."""

    name: str
    path: str
    type: type
    selectors: dict[str, str]


_GROUP_LABELS = {PLUGINS: PLUGINS_LABEL, LABELS: NAME_LABEL, KUEUE: KUEUE_LABEL}


def _succeeded(configuration: Configuration) -> dict[str, dict[str, str]]:
    """Selectors of the members of groups that the watch of pods leaves out, and of no more pods than is needed."""
    sources, phase = configuration.features.pod_groups, "status.phase=Succeeded"
    found: dict[str, dict[str, str]] = {
        source: {"labelSelector": label, "fieldSelector": phase}
        for source, label in _GROUP_LABELS.items()
        if source in sources
    }
    if IN_TREE in sources:
        # The API server selects pods neither by their group nor by one of several schedulers.
        for name in configuration.scheduler_names:
            found[f"{IN_TREE}/{name}"] = {"fieldSelector": f"{phase},spec.schedulerName={name}"}
    return found


def watched(configuration: Configuration) -> list[Watched]:
    """What the features that are switched on need to read. The permissions in the manifests are these."""
    features = configuration.features
    found = [
        Watched("nodes", "/api/v1/nodes", Node, {}),
        Watched("pods", "/api/v1/pods", Pod, {"fieldSelector": _NOT_SUCCEEDED}),
    ]
    if features.namespace_selector:
        found.append(Watched("namespaces", "/api/v1/namespaces", Namespace, {}))
    if features.volumes:
        storage = "/apis/storage.k8s.io/v1"
        found += [
            Watched("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", Claim, {}),
            Watched("persistentvolumes", "/api/v1/persistentvolumes", PersistentVolume, {}),
            Watched("storageclasses", f"{storage}/storageclasses", StorageClass, {}),
            Watched("csinodes", f"{storage}/csinodes", CsiNode, {}),
            Watched("csidrivers", f"{storage}/csidrivers", CsiDriver, {}),
            Watched("volumeattachments", f"{storage}/volumeattachments", VolumeAttachment, {}),
            Watched("csistoragecapacities", f"{storage}/csistoragecapacities", CsiStorageCapacity, {}),
        ]
    if "scheduling.x-k8s.io" in features.pod_groups:
        found.append(Watched("podgroups", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", PodGroup, {}))
    if IN_TREE in features.pod_groups:
        found += [
            Watched(f"{IN_TREE}/{version}", f"/apis/{IN_TREE}/{version}/podgroups", PodGroup, {})
            for version in IN_TREE_VERSIONS
        ]
    found += [
        Watched(f"{name}/succeeded", "/api/v1/pods", SucceededPod, selectors)
        for name, selectors in _succeeded(configuration).items()
    ]
    if features.preemption or features.rebalancing:
        found.append(Watched("poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets", Budget, {}))
    return found


def finished(configuration: Configuration) -> list[Watched]:
    """Pods of ours that have ended well, from which run times are learnt. No decision needs them.

    They are apart from the watch of pods: of finished pods, of which tens of thousands may be there, that would keep all
    that decisions need of a pod, and it would list them again with every comparison.
    """
    if configuration.learning == "off":
        return []
    return [
        Watched(
            f"finished/{name}",
            "/api/v1/pods",
            FinishedPod,
            {"fieldSelector": f"status.phase=Succeeded,spec.schedulerName={name}"},
        )
        for name in configuration.scheduler_names
    ]


def unread_groups(failing: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Of lists that fail, by name with the reason: those of pod groups, and those of pods that have succeeded; by source."""
    groups: dict[str, str] = {}
    succeeded: dict[str, str] = {}
    for name, why in failing.items():
        source, _, rest = name.partition("/")
        if name == "podgroups":
            groups[PLUGINS] = why
        elif rest in IN_TREE_VERSIONS:
            groups[source] = why
        elif rest.endswith("succeeded"):
            succeeded[source] = why
    return groups, succeeded

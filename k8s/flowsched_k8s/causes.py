"""What stops a pod, and which changes of the cluster may help it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from flowsched_k8s import names


class Cause(StrEnum):
    """What stopped a pod: ``plugin`` of ``scheduler_unschedulable_pods``, the in-tree plugin's name where there is one."""

    RESOURCES = "NodeResourcesFit"
    NODE_AFFINITY = "NodeAffinity"
    TAINTS = "TaintToleration"
    CORDON = "NodeUnschedulable"
    PORTS = "NodePorts"
    POD_AFFINITY = "InterPodAffinity"
    SPREAD = "PodTopologySpread"
    VOLUMES = "VolumeBinding"
    VOLUME_IN_USE = "VolumeRestrictions"
    VOLUME_LIMITS = "NodeVolumeLimits"
    GROUP = "GangScheduling"
    GATES = "SchedulingGates"
    """Of others of its group; its own keep it out of rounds."""
    PROFILE = "PerformanceProfile"
    BINDING = "DefaultBinder"
    """Bindings of its namespace have no outcome."""
    UNSUPPORTED = "UnsupportedField"
    """Only a change of the pod itself helps."""
    OTHER = "Other"
    """Not known, so everything may help."""


class Wake(StrEnum):
    """A change in the cluster, by the in-tree scheduler's event label where there is one."""

    NODE_ADDED = "NodeAdd"
    NODE_REMOVED = "NodeDelete"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_LABELS = "NodeUpdateNodeLabel"
    NODE_TAINTS = "NodeUpdateNodeTaint"
    """Cordon included."""
    POD_PLACED = "AssignedPodAdd"
    POD_CHANGED = "AssignedPodUpdate"
    """Labels of a placed pod, or requests that shrank."""
    POD_GONE = "AssignedPodDelete"
    """Deleted, finished, or an assumption taken back."""
    VOLUME = "PersistentVolumeUpdate"
    CLAIM = "PersistentVolumeClaimUpdate"
    STORAGE_CLASS = "storage.k8s.io/StorageClassUpdate"
    CSI_NODE = "storage.k8s.io/CSINodeUpdate"
    CSI_DRIVER = "storage.k8s.io/CSIDriverUpdate"
    STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacityUpdate"
    GROUP = "scheduling.k8s.io/PodGroupUpdate"
    """A pod group, or how many of its pods there are."""
    BINDING = "BindingAnswered"
    NAMESPACE = "NamespaceUpdate"
    PROFILES = "ProfilesUpdate"
    ANY = "ForceActivate"
    """What changed is unknown, as after a relist."""


_STORAGE = {Wake.VOLUME, Wake.CLAIM, Wake.STORAGE_CLASS, Wake.CSI_NODE, Wake.CSI_DRIVER, Wake.STORAGE_CAPACITY}
_RELATED = {Wake.NODE_ADDED, Wake.NODE_LABELS, Wake.POD_PLACED, Wake.POD_CHANGED, Wake.POD_GONE, Wake.NAMESPACE}
HELPS: Mapping[Cause, frozenset[Wake]] = {
    cause: frozenset({*wakes, Wake.ANY})
    for cause, wakes in {
        Cause.RESOURCES: {Wake.NODE_ADDED, Wake.NODE_ALLOCATABLE, Wake.POD_GONE, Wake.POD_CHANGED},
        Cause.NODE_AFFINITY: {Wake.NODE_ADDED, Wake.NODE_LABELS},
        Cause.TAINTS: {Wake.NODE_ADDED, Wake.NODE_TAINTS},
        Cause.CORDON: {Wake.NODE_ADDED, Wake.NODE_TAINTS},
        Cause.PORTS: {Wake.NODE_ADDED, Wake.POD_GONE},
        Cause.POD_AFFINITY: _RELATED,
        # Fewer nodes can mean fewer domains, and so a fuller least filled one.
        Cause.SPREAD: {*_RELATED, Wake.NODE_REMOVED, Wake.NODE_TAINTS},
        Cause.VOLUMES: {*_STORAGE, Wake.NODE_ADDED, Wake.NODE_LABELS, Wake.POD_GONE},
        Cause.VOLUME_IN_USE: {Wake.CLAIM, Wake.NODE_ADDED, Wake.POD_GONE},
        Cause.VOLUME_LIMITS: {*_STORAGE, Wake.NODE_ADDED, Wake.POD_GONE},
        Cause.GROUP: {Wake.GROUP},
        Cause.GATES: {Wake.GROUP},
        Cause.PROFILE: {Wake.PROFILES},
        Cause.BINDING: {Wake.BINDING},
        Cause.UNSUPPORTED: set[Wake](),
        Cause.OTHER: set(Wake),
    }.items()
}
"""Which changes may help a pod that a cause stopped."""

HELPED: Mapping[Wake, tuple[Cause, ...]] = {
    wake: tuple(cause for cause in Cause if wake in HELPS[cause]) for wake in Wake
}
"""The causes that a change may help."""

_CAUSES = {
    names.TOO_MANY_PODS: Cause.RESOURCES,
    names.NODE_AFFINITY: Cause.NODE_AFFINITY,
    names.GROUP_DOMAIN: Cause.NODE_AFFINITY,
    names.TAINTS: Cause.TAINTS,
    names.CORDONED: Cause.CORDON,
    names.PORTS: Cause.PORTS,
    names.POD_AFFINITY: Cause.POD_AFFINITY,
    names.POD_ANTI_AFFINITY: Cause.POD_AFFINITY,
    names.EXISTING_ANTI_AFFINITY: Cause.POD_AFFINITY,
    names.SPREAD: Cause.SPREAD,
    names.SPREAD_NO_LABEL: Cause.SPREAD,
    names.VOLUME_AFFINITY: Cause.VOLUMES,
    names.NO_VOLUMES: Cause.VOLUMES,
    names.NO_STORAGE: Cause.VOLUMES,
    names.UNBOUND_CLAIMS: Cause.VOLUMES,
    names.TOO_MANY_VOLUMES: Cause.VOLUME_LIMITS,
    names.CLAIM_IN_USE: Cause.VOLUME_IN_USE,
    names.DISK_CONFLICT: Cause.VOLUME_IN_USE,
}


def causes_of(reasons: Iterable[str]) -> frozenset[Cause]:
    """The causes behind the filters' reason texts; an unknown text is :attr:`Cause.OTHER`."""
    insufficient = names.insufficient("")
    return frozenset(
        Cause.RESOURCES if reason.startswith(insufficient) else _CAUSES.get(reason, Cause.OTHER) for reason in reasons
    )

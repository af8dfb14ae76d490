"""Why a running pod is not moved to another node, where rebalancing may move pods at all."""

from __future__ import annotations

from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.preemption.preemption import is_movable

_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""With the value true, files on the node keep no pod there; so the cluster autoscaler reads it."""

OTHERS = "it belongs to another scheduler"
NOT_MOVABLE = "a DaemonSet, a node, the system or an annotation keeps it"
BARE = "no controller would make another one"
LOCAL = "it has files on its node"
GROUPED = "it is in a pod group"
LATENCY_SERVICE = "it is a latency service"
EXCLUSIVE_CLAIM = "it has a claim for one pod at a time"
UNKNOWN_WORK = "it belongs to a Job and has no profile, so what it would lose is unknown"
LEAVING = "it is being deleted"
RETURNED = "moving its workload has gained nothing"
YOUNG = "it has not run for the cool-down"


def why_always_stays(entry: PodEntry) -> str:
    """Why a pod as it is now is never moved; empty if it may be. Nothing but the pod itself counts."""
    pod, intent = entry.pod, entry.intent
    owner = next((owner for owner in pod.metadata.owner_references or () if owner.controller), None)
    checks = (
        (LEAVING, pod.metadata.deletion_timestamp is not None),
        (OTHERS, not entry.ours),
        (NOT_MOVABLE, not is_movable(pod)),
        (BARE, owner is None),
        (LOCAL, _has_local_files(pod)),
        (LATENCY_SERVICE, intent.service is not None or entry.grant is not None),
        (UNKNOWN_WORK, intent.profile is None and owner is not None and owner.kind == "Job"),
    )
    return next((reason for reason, holds in checks if holds), "")


def why_stays(entry: PodEntry, cache: Cache, gangs: Gangs, now: float, cool_down_s: float) -> str:
    """Why a placed pod that may be moved at other times stays now; empty if it may be moved."""
    if not entry.node or now - max(entry.started_s, entry.created_s, entry.placed_s) < cool_down_s:
        return YOUNG
    if gangs.ref(entry) is not None:
        return GROUPED
    return EXCLUSIVE_CLAIM if entry.pod.spec.volumes and cache.volumes.exclusive(entry.pod) else ""


def _has_local_files(pod: Pod) -> bool:
    if (pod.metadata.annotations or {}).get(_SAFE) == "true":
        return False
    return any(v.empty_dir is not None or v.host_path is not None for v in pod.spec.volumes or ())

"""How long a pod ran that has ended well, and why some ends say nothing of that."""

from __future__ import annotations

from enum import StrEnum
from sys import intern
from typing import NamedTuple

from flowsched_k8s.learning.pod_classes import run_class_of
from flowsched_k8s.names import CORES, DISRUPTION_TARGET, THREADS
from flowsched_k8s.objects import FinishedPod, Pod
from flowsched_k8s.pods.intent import Intent, read_intent
from flowsched_k8s.pods.readings import core_set, seconds, small_number
from flowsched_k8s.pods.requests import pod_requests
from flowsched_models.catalogue import Catalogue

SHORTEST_S = 5.0
"""A kubelet tells whole seconds: a shorter run is mostly its own start."""
_MILLI = 1000


class LeftOut(StrEnum):
    """Why nothing is learnt from the end of a pod that ends by itself."""

    SHORT = "short"
    """It ran for less than 5 s."""
    RESTARTED = "restarted"
    """A container was restarted: its earlier runs are not told."""
    DISRUPTED = "disrupted"
    """It was being deleted or evicted as it ended, and may have been cut short."""
    UNCLEAR = "unclear"
    """Its status does not say when its containers began and ended, or where it ran is not known."""


class FinishedRun(NamedTuple):
    """A run from the start of the first container, after images were pulled, to the end of the last one."""

    uid: str
    run_class: str
    node: str
    profile: str | None
    scale: float
    declared_s: float | None
    """Its run time as its user expected it."""
    threads: int
    cores: tuple[int, ...]
    """Virtual CPUs that it was given; empty for all."""
    run_s: float
    ended_s: float


class SeenPod(NamedTuple):
    """What was known of a pod while it ran: nothing that was changed meanwhile makes it another one."""

    run_class: str
    threads: int
    intent: Intent


def finished_run(pod: FinishedPod, catalogue: Catalogue, seen: SeenPod | None = None) -> FinishedRun | LeftOut | None:
    """What a pod that has ended well says; None for one that a controller keeps running. ``seen``: None if it is not known
    how the pod was while it ran; then all follows from how it is now.
    """
    if seen is None:
        try:
            seen = _seen_now(pod.pod, catalogue)
        except ValueError:
            return LeftOut.UNCLEAR
    if not seen.run_class:
        return None
    containers = pod.status.container_statuses or []
    ends = [c.state.terminated for c in containers]
    began = [seconds(end.started_at) for end in ends if end is not None and not end.exit_code]
    ended = [seconds(end.finished_at) for end in ends if end is not None and not end.exit_code]
    if not began or len(began) < len(containers) or not (all(began) and all(ended)) or not pod.spec.node_name:
        return LeftOut.UNCLEAR
    if any(c.restart_count for c in containers):
        return LeftOut.RESTARTED
    run_s, ended_s = max(ended) - min(began), max(ended)
    if _is_disrupted(pod, ended_s):
        return LeftOut.DISRUPTED
    if run_s < SHORTEST_S:
        return LeftOut.SHORT
    intent, cores = seen.intent, core_set((pod.metadata.annotations or {}).get(CORES, ""))
    # Tens of thousands of runs may be kept, of few classes and nodes.
    place = intern(pod.spec.node_name), intent.profile, intent.scale, intent.run_s, seen.threads, cores
    return FinishedRun(pod.metadata.uid, intern(seen.run_class), *place, run_s, ended_s)


def _seen_now(pod: Pod, catalogue: Catalogue) -> SeenPod:
    needs = pod_requests(pod)
    threads = small_number((pod.metadata.annotations or {}).get(THREADS, ""), max(1, -(-needs.get("cpu", 0) // _MILLI)))
    return SeenPod(run_class_of(pod, needs), threads, read_intent(pod, catalogue))


def _is_disrupted(pod: FinishedPod, ended_s: float) -> bool:
    if any(c.type == DISRUPTION_TARGET and c.status == "True" for c in pod.status.conditions or ()):
        return True
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return False
    # It is when the grace period is over.
    return ended_s >= seconds(meta.deletion_timestamp) - (meta.deletion_grace_period_seconds or 0)

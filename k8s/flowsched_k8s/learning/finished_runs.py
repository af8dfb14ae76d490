"""How long a pod ran that has ended well, and why some ends say nothing of that."""

from __future__ import annotations

from enum import StrEnum
from sys import intern
from typing import NamedTuple

from flowsched_k8s.learning.pod_classes import run_class_of
from flowsched_k8s.names import CORES, DISRUPTION_TARGET, THREADS
from flowsched_k8s.objects import FinishedPod
from flowsched_k8s.pods.intent import read_intent
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


def finished_run(pod: FinishedPod, catalogue: Catalogue, run_class: str = "") -> FinishedRun | LeftOut | None:
    """What a pod that has ended well says; None for one that a controller keeps running.

    ``run_class``: its class as it was while it ran. Empty: it is not known, and follows from the pod.
    """
    created, notes = pod.pod, pod.metadata.annotations or {}
    threads = small_number(notes.get(THREADS, ""), 0)
    if not run_class or not threads:
        try:
            needs = pod_requests(created)
        except ValueError:
            return LeftOut.UNCLEAR
        threads = threads or max(1, -(-needs.get("cpu", 0) // _MILLI))
        run_class = run_class or run_class_of(created, needs)
        if not run_class:
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
    intent = read_intent(created, catalogue)
    cores = core_set(notes.get(CORES, ""))
    # Tens of thousands of runs may be kept, of few classes and nodes.
    place = intern(pod.spec.node_name), intent.profile, intent.scale, intent.run_s, threads, cores
    return FinishedRun(pod.metadata.uid, intern(run_class), *place, run_s, ended_s)


def _is_disrupted(pod: FinishedPod, ended_s: float) -> bool:
    if any(c.type == DISRUPTION_TARGET and c.status == "True" for c in pod.status.conditions or ()):
        return True
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return False
    # It is when the grace period is over.
    return ended_s >= seconds(meta.deletion_timestamp) - (meta.deletion_grace_period_seconds or 0)

"""What bound pods were given of their nodes: width, threads and cores."""

from __future__ import annotations

from flowsched.cluster.snapshot import MILLI
from flowsched_k8s.names import CORES, THREADS
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.readings import core_set, seconds, small_number
from flowsched_k8s.services.grant import read_grant


def read_share(entry: PodEntry) -> None:
    """Note what a bound pod was given: from its annotations, or what its request suggests."""
    notes = entry.pod.metadata.annotations or {}
    entry.width_milli = max(entry.asked_milli, entry.request_milli)
    entry.threads = small_number(notes.get(THREADS, ""), max(1, -(-entry.request_milli // MILLI)))
    entry.cores = core_set(notes.get(CORES, ""))
    if entry.grant is None:
        entry.grant = read_grant(entry.pod)
    if entry.grant is not None:
        entry.threads, entry.cores = entry.grant.threads, entry.grant.cores
    started = entry.pod.status.start_time
    if started:
        entry.started_s = seconds(started)
    elif not entry.started_s:
        entry.started_s = entry.created_s

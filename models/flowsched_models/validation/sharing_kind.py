"""How jobs and services that were measured together shared their machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from flowsched_models.measurements.measurements import MeasuredExecution, Placed

OVERLAP = 0.05
"""Share of its time that another job must be there to count as a neighbour."""


class Sharing(StrEnum):
    """What a job shared with other jobs, or a service with jobs."""

    ALONE = "alone on its machine"
    OWN_CORES = "others on its machine, own cores"
    SHARED_CORES = "shares cores"


class ServiceSharing(StrEnum):
    """What a job shared with a latency service."""

    NONE = "no service on its machine"
    OWN_CORES = "service on its machine, other cores"
    SHARED_CORES = "service on its cores"


def overlap_s(start_s: float, end_s: float, other: MeasuredExecution) -> float:
    """Seconds of a span in which a job ran."""
    return max(0.0, min(end_s, other.end_s) - max(start_s, other.start_s))


def sharing_of(
    cores: Sequence[int], start_s: float, end_s: float, jobs: Iterable[MeasuredExecution], vcpus: int
) -> Sharing:
    """What a job on ``cores`` shared with ``jobs`` of the same machine during a span; no cores are all of them."""
    least = OVERLAP * (end_s - start_s)
    neighbours = [job for job in jobs if overlap_s(start_s, end_s, job) > least]
    if not neighbours:
        return Sharing.ALONE
    own = _all_of(cores, vcpus)
    shared = any(own & _all_of(job.cores, vcpus) for job in neighbours)
    return Sharing.SHARED_CORES if shared else Sharing.OWN_CORES


def service_sharing_of(execution: MeasuredExecution, services: Sequence[Placed], vcpus: int) -> ServiceSharing:
    """What a job shared with the services on its machine; they are there all the time."""
    if not services:
        return ServiceSharing.NONE
    own = _all_of(execution.cores, vcpus)
    shared = any(own & _all_of(service.cores, vcpus) for service in services)
    return ServiceSharing.SHARED_CORES if shared else ServiceSharing.OWN_CORES


def _all_of(cores: Sequence[int], vcpus: int) -> frozenset[int]:
    return frozenset(cores or range(vcpus))

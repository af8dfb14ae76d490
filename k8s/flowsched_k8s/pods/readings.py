"""What the cache reads from single objects: moments, capacities, annotations."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from flowsched_k8s.names import ESTIMATED_START
from flowsched_k8s.objects import Meta, Node, Pod, SucceededPod
from flowsched_k8s.pods.quantity import cpu_milli
from flowsched_models.document import InputError
from flowsched_models.quantity import parse_cores

_LATEST_S = 60.0
"""A watch that is later than that is no watch; so far apart are clocks."""
_LATE_S = 5.0
"""A kubelet ends what still runs when the grace period is over, and takes a few seconds to say that the pod is gone."""

_ENDING = ("Never", "OnFailure")
"""Restart policies of pods that end; those of Jobs have one of them."""


def seconds(moment: str | None) -> float:
    """Seconds since 1970 of a moment as the API server writes it; 0 for none."""
    if not moment:
        return 0.0
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def same_annotations(one: Meta, other: Meta) -> bool:
    """Whether annotations say the same to the scheduler; what it tells waiting pods itself says nothing to it."""
    if one.annotations == other.annotations:
        return True
    first, second = ({k: v for k, v in (m.annotations or {}).items() if k != ESTIMATED_START} for m in (one, other))
    return first == second


def controller_of(pod: Pod | SucceededPod) -> str | None:
    """Uid of the object that makes another pod where this one ends; None for a pod without any."""
    return next((o.uid for o in pod.metadata.owner_references or () if o.controller), None)


def ends_by_itself(pod: Pod) -> bool:
    """Whether its work ends; other pods run until they are deleted, and a controller restarts what ends of them."""
    return pod.spec.restart_policy in _ENDING


def created_s(second: float, seen_s: float, live: bool) -> float:
    """When a pod was created, of which the API server tells the whole second, and that was seen first at ``seen_s``.

    With the second alone, latencies would be half a second too long on average. A watch may be a little late, so what it
    shows just after the second was created at its end; what it shows later was there before we looked. ``live``: it was
    not, as all pods had been listed before. A difference that no watch can have is then one of two clocks.
    """
    if second - seen_s > _LATEST_S or (live and seen_s - second > _LATEST_S):
        return seen_s
    return min(seen_s, second + 1.0) if second <= seen_s < second + 2.0 else second


def leaves_s(meta: Meta, now: float, seen_before: bool) -> float:
    """By when a pod that is deleted should be gone, as it is first seen so at ``now``; infinite for any other pod.

    ``seen_before``: the deletion is news, so it began just now, whatever the API server's clock says.
    """
    if meta.deletion_timestamp is None:
        return float("inf")
    left_s = seconds(meta.deletion_timestamp) - now
    if seen_before and meta.deletion_grace_period_seconds is not None:
        left_s = meta.deletion_grace_period_seconds
    return now + max(0.0, left_s) + _LATE_S


def cpu_capacity(node: Node) -> int:
    """CPU capacity in milli-CPU: virtual CPUs come from what the node has, not from what it lets out."""
    text = (node.status.capacity or {}).get("cpu")
    return cpu_milli(text) if text else 0


def static_facts(node: Node) -> tuple[object, ...]:
    """All of a node that static filters may ask about, and its CPU capacity."""
    return (node.metadata.labels, node.spec.unschedulable, node.spec.taints, (node.status.capacity or {}).get("cpu"))


def small_number(text: str, otherwise: int) -> int:
    """A number above 0 of an annotation. Any user may write those: a number of thousands of digits is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 and int(text) > 0 else otherwise


@lru_cache(maxsize=4096)
def core_set(text: str) -> tuple[int, ...]:
    """The virtual CPUs that an annotation lists; none if it is no list."""
    try:
        return parse_cores(text) if text else ()
    except (ValueError, InputError):
        return ()

"""The annotation that tells when a pod that waits starts and ends: at most two writes a second, first in the queue first.

It is written where the expected start or end moved by a tenth of the time until then, and taken back where nothing is
planned any more. A pod that is placed keeps what it was told last. What was told is read from the pods, so that a new leader
goes on from there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any

import msgspec

from flowsched.cluster.start_errors import Interval
from flowsched_k8s import names
from flowsched_k8s.cache import Cache
from flowsched_k8s.instructions import PatchEstimate, PodKey
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.rounds.start_forecasts import StartEstimate, StartForecasts

EVERY_S = 1.0
MOST_WRITES = 2
"""In that time."""
_MOVED = 0.1
"""Share of the time until a moment by which it has moved where it is told again."""
_LEAST_S = 10.0
"""Nearer moments count as if they were so far away: nothing is written for less than a second."""
_NOTHING: tuple[float, ...] = ()


class StartNotices:
    """Which pods are told, and what."""

    def __init__(self, cache: Cache, starts: StartForecasts, enabled: bool) -> None:
        """Nothing was written by this process."""
        self._cache = cache
        self._starts = starts
        self._enabled = enabled
        self._told: dict[str, tuple[float, ...]] = {}
        """By uid the expected moments that were told; none where there is no annotation."""
        self._next_s = 0.0
        self._revision = -1
        """Of the forecasts when all that is to be written had been written."""

    def look(self, now: float) -> list[PatchEstimate]:
        """What is to be written now; for a timer."""
        if not self._enabled or now < self._next_s or self._revision == self._starts.revision:
            return []
        pods = self._cache.pods
        for uid in [uid for uid in self._told if uid not in pods or pods[uid].place]:
            del self._told[uid]
        due = [pods[uid] for uid in {*self._starts, *self._told} if uid in pods and self._is_due(pods[uid], now)]
        if len(due) <= MOST_WRITES:
            self._revision = self._starts.revision
        self._next_s = now + EVERY_S if due else now
        return [self._tell(entry) for entry in nsmallest(MOST_WRITES, due, key=lambda e: (-e.priority, *e.order))]

    def seen(self, entry: PodEntry) -> None:
        """The watch has shown a pod that waits: an earlier leader may have told it something."""
        if self._enabled and entry.key.uid not in self._told and (told := _read(entry.pod)):
            self._told[entry.key.uid] = told
            self._revision = -1

    def failed(self, pod: PodKey) -> None:
        """It could not be written."""
        self._told.pop(pod.uid, None)
        self._revision = -1

    def _is_due(self, entry: PodEntry, now: float) -> bool:
        if entry.place or entry.is_leaving:
            return False
        told, wanted = self._told.get(entry.key.uid), _expected(self._starts.of(entry.key.uid))
        if told is None:
            told = _read(entry.pod)
        if len(told) != len(wanted):
            return True
        return any(abs(w - t) >= _MOVED * max(_LEAST_S, w - now) for w, t in zip(wanted, told, strict=True))

    def _tell(self, entry: PodEntry) -> PatchEstimate:
        estimate = self._starts.of(entry.key.uid)
        self._told[entry.key.uid] = _expected(estimate)
        return PatchEstimate(entry.key, None if estimate is None else _written(estimate))


def _expected(estimate: StartEstimate | None) -> tuple[float, ...]:
    if estimate is None:
        return _NOTHING
    return tuple(i.expected_s for i in (estimate.start, estimate.end) if i is not None)


def _written(estimate: StartEstimate) -> str:
    """The annotation's text: moments as the API server writes them."""
    spans = {"start": estimate.start, "end": estimate.end}
    return msgspec.json.encode({name: _moments(i) for name, i in spans.items() if i is not None}).decode()


def _moments(interval: Interval) -> dict[str, str]:
    return {
        name.removesuffix("_s"): datetime.fromtimestamp(round(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name, at_s in interval._asdict().items()
    }


def _read(pod: Pod) -> tuple[float, ...]:
    """Expected moments that an annotation tells; a text that is not of this form counts as moments long past."""
    text = (pod.metadata.annotations or {}).get(names.ESTIMATED_START)
    if text is None:
        return _NOTHING
    try:
        told: dict[str, Any] = msgspec.json.decode(text)
        moments = [told[name]["expected"] for name in ("start", "end") if name in told]
        return tuple(datetime.fromisoformat(moment).timestamp() for moment in moments)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return (0.0,)

"""What pods are told, and how often: events and conditions only when there is something new to say.

* An event about a pod is written at most once in 300 s with the same reason and text, where numbers in the text do not
  count as new text: "0/7 nodes" and "0/8 nodes" say the same.
* Whatever the text, a pod gets at most one event of a reason in 10 s, so that texts that take turns are no way around.
* All events together keep a token bucket, except *Scheduled*: there is one for each bind, and binds are limited themselves.
  What is not written for lack of a token is counted, and may be written by the next attempt.
* A condition is patched when its reason or message differs from what the pod has; at most once in 60 s if only numbers
  differ, and once in 10 s if the text does.

Pure: the caller says what time it is, in seconds, and carries the instructions out.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from flowsched_k8s import names
from flowsched_k8s.instructions import PatchCondition, PodKey, PostEvent
from flowsched_k8s.objects import Condition

NOTE_BYTES = 1024
"""The longest note that the API server takes."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@lru_cache(maxsize=256)
def _without_numbers(text: str) -> str:
    """What the text says apart from its numbers. Pods that are alike share their texts, so it pays to remember."""
    return _NUMBER.sub("#", text)


def histogram(total: int, reasons: Mapping[str, int], *, whole: str = "", more: str = "") -> str:
    """Why none of ``total`` nodes takes a pod: "0/5 nodes are available: 2 Insufficient cpu, 3 ...", as in-tree.

    ``whole`` is a reason that holds for the pod and not for single nodes; it replaces them. ``more``, in plain words,
    follows at the end.
    """
    # In-tree sorts the finished strings, counts and all.
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
    said = whole or counted
    text = f"0/{total} nodes are available: {said}." if said else f"0/{total} nodes are available."
    return f"{text} {more}" if more else text


def cut(text: str, most: int, ellipsis: str = "…") -> str:
    """The text in at most ``most`` bytes of UTF-8, with an ellipsis where it was cut between characters."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - len(ellipsis.encode())].decode(errors="ignore") + ellipsis


@dataclass(slots=True)
class _Told:
    """What a pod was told last, and when."""

    events: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)
    reasons: dict[str, float] = field(default_factory=dict)
    condition: tuple[str, str] | None = None
    nominated_node: str | None = None
    patched_s: float = 0.0


@dataclass(eq=False, kw_only=True)
class Recorder:
    """Remembers what each pod was told, for as many pods as it has room for."""

    TEXTS: ClassVar[int] = 8
    """How many different texts are remembered for a pod."""

    repeat_s: float = 300.0
    floor_s: float = 10.0
    numbers_s: float = 60.0
    events_per_s: float = 50.0
    burst: float = 500.0
    pods: int = 20_000
    """How many are remembered; the one that was told something longest ago is forgotten first."""
    _refilled_s: float | None = None
    _told: OrderedDict[PodKey, _Told] = field(default_factory=OrderedDict)
    written: Counter[str] = field(default_factory=Counter)
    """Events by reason."""
    suppressed: Counter[str] = field(default_factory=Counter)
    """Events that were not written: ``repeated`` if said before, ``rate`` for lack of a token."""

    def __post_init__(self) -> None:
        """The bucket is full."""
        self._tokens = self.burst

    def __len__(self) -> int:
        """Pods that are remembered."""
        return len(self._told)

    def forget(self, pod: PodKey) -> None:
        """The pod is gone."""
        self._told.pop(pod, None)

    def scheduled(self, pod: PodKey, node: str) -> PostEvent:
        """The event of a bind. Nothing about the pod has to be remembered any more."""
        self.forget(pod)
        self.written[names.SCHEDULED] += 1
        note = cut(f"Successfully assigned {pod} to {node}", NOTE_BYTES, "...")
        return PostEvent(pod, names.SCHEDULED, "Normal", "Binding", note)

    def failed(self, pod: PodKey, message: str, now: float) -> PostEvent | None:
        """The event of an attempt that found no place, or went wrong."""
        return self.event(pod, names.FAILED_SCHEDULING, "Warning", "Scheduling", message, now)

    def postponed(self, pod: PodKey, message: str, now: float) -> PostEvent | None:
        """The event of a pod that waits because that costs less."""
        return self.event(pod, names.POSTPONED, "Normal", "Scheduling", message, now)

    def preempted(self, victim: PodKey, message: str, now: float) -> PostEvent | None:
        """The event of a pod that makes room for one of higher priority."""
        return self.event(victim, names.PREEMPTED, "Normal", "Preempting", message, now)

    def rebalanced(self, pod: PodKey, message: str, now: float) -> PostEvent | None:
        """The event of a pod that is moved for a better whole."""
        return self.event(pod, names.REBALANCED, "Normal", "Rebalancing", message, now)

    def event(self, regarding: PodKey, reason: str, type_: str, action: str, note: str, now: float) -> PostEvent | None:
        """An event, or ``None`` if the pod has heard it lately or there have been too many."""
        told = self._recall(regarding)
        said = (reason, _without_numbers(note))
        last = told.events.get(said)
        last_of_reason = told.reasons.get(reason)
        if (last is not None and now - last < self.repeat_s) or (
            last_of_reason is not None and now - last_of_reason < self.floor_s
        ):
            self.suppressed["repeated"] += 1
            return None
        if not self._take_token(now):
            self.suppressed["rate"] += 1
            return None
        told.events[said] = told.reasons[reason] = now
        told.events.move_to_end(said)
        if len(told.events) > self.TEXTS:
            told.events.popitem(last=False)
        self.written[reason] += 1
        return PostEvent(regarding, reason, type_, action, cut(note, NOTE_BYTES, "..."))

    def condition(
        self,
        pod: PodKey,
        reason: str,
        message: str,
        now: float,
        *,
        current: Condition | None = None,
        generation: int | None = None,
        nominated_node: str | None = None,
        current_node: str = "",
    ) -> PatchCondition | None:
        """A patch of PodScheduled=False, or ``None`` if the pod says so already, or nearly so and lately.

        ``current`` is the pod's condition and ``current_node`` its nominated node, as the cache has them; the cache may be
        behind, so for a moment what was sent last is assumed instead. Another nominated node or reason is written at once.
        """
        told = self._recall(pod)
        has = (current.reason, current.message) if current is not None and current.status == "False" else None
        node = current_node
        # An old patch that the cache does not show has failed, or another program has written since.
        recent = told.condition is not None and now - told.patched_s < self.floor_s
        if recent:
            has = told.condition
            node = current_node if told.nominated_node is None else told.nominated_node
        renominated = nominated_node is not None and nominated_node != node
        if not renominated:
            if has == (reason, message):
                return None
            if has is not None and has[0] == reason and told.condition is not None:
                same = _without_numbers(has[1]) == _without_numbers(message)
                if now - told.patched_s < (self.numbers_s if same else self.floor_s):
                    return None
        told.condition = (reason, message)
        told.patched_s = now
        if nominated_node is not None:
            told.nominated_node = nominated_node
        return PatchCondition(pod, reason, message, generation, nominated_node if renominated else None)

    def _recall(self, pod: PodKey) -> _Told:
        told = self._told.get(pod)
        if told is None:
            told = self._told[pod] = _Told()
            if len(self._told) > self.pods:
                self._told.popitem(last=False)
        else:
            self._told.move_to_end(pod)
        return told

    def _take_token(self, now: float) -> bool:
        if self._refilled_s is not None:
            self._tokens = min(self.burst, self._tokens + max(now - self._refilled_s, 0.0) * self.events_per_s)
        self._refilled_s = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

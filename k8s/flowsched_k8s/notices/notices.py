"""What waiting pods are told, and again where the API server did not hear it."""

from __future__ import annotations

from collections.abc import Container

from flowsched_k8s import names
from flowsched_k8s.cache import Cache
from flowsched_k8s.instructions import Instruction, PatchCondition, PodKey
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.pods.entries import PodEntry

LONGEST = 1000
"""Characters of what one pod is told: an event takes no more."""
_AGAIN_S = 10.0
"""As long as the recorder keeps quiet about a pod whose message changes."""


class Notices:
    """Conditions and events of pods that were not placed, as far as they say something new."""

    def __init__(self, cache: Cache, recorder: Recorder) -> None:
        """No pod was told anything yet."""
        self._cache = cache
        self._recorder = recorder
        self._untold: dict[str, tuple[float, str]] = {}
        """uid -> since when its condition has been out of date, and the reason that it should have."""

    def tell(
        self, entry: PodEntry, reason: str, message: str, now: float, nominated_node: str | None = None
    ) -> list[Instruction]:
        """Condition and event of an attempt that failed."""
        pod = entry.pod
        entry.message = message = _short(message)
        current = next((c for c in pod.status.conditions or () if c.type == names.POD_SCHEDULED), None)
        patch = self._recorder.condition(
            entry.key,
            reason,
            message,
            now,
            current=current,
            generation=pod.metadata.generation,
            nominated_node=nominated_node,
            current_node=pod.status.nominated_node_name,
        )
        if patch is None and (current is None or (current.reason, current.message) != (reason, message)):
            since = self._untold.get(entry.key.uid, (now, ""))[0]
            self._untold[entry.key.uid] = since, reason
        event = self._recorder.failed(entry.key, message, now)
        return [told for told in (patch, event) if told is not None]

    def put_off(self, entry: PodEntry, reason: str, message: str, now: float) -> None:
        """Tell a pod some seconds later, if it still waits then."""
        entry.message = _short(message)
        self._untold.setdefault(entry.key.uid, (now, reason))

    def failed(self, patch: PatchCondition, now: float) -> None:
        """A condition could not be written; it is tried again, as autoscalers go by it."""
        self._untold.setdefault(patch.pod.uid, (now, patch.reason))

    def again(self, postponed: Container[str], now: float, unsettled: Container[str] = ()) -> list[Instruction]:
        """Tell waiting pods what they were not told when it was new, because something else had just been said.

        ``postponed``: uids of pods whose last attempt has no condition. ``unsettled``: of those that have a place, and wait
        there for their volumes.
        """
        out: list[Instruction] = []
        for uid, (since, reason) in list(self._untold.items()):
            entry = self._cache.pods.get(uid)
            if entry is None or (entry.place and uid not in unsettled) or uid in postponed:
                del self._untold[uid]
            elif now - since >= _AGAIN_S:
                del self._untold[uid]
                out += self.tell(entry, reason, entry.message, now)
        return out

    def advise(self, key: PodKey, message: str, now: float) -> list[Instruction]:
        """An event about something that a pod says and that cannot be used; it is scheduled all the same."""
        event = self._recorder.failed(key, message, now)
        return [event] if event is not None else []

    def advise_of(self, entry: PodEntry, now: float) -> list[Instruction]:
        """What of a waiting pod's annotations cannot be used, once."""
        problems = entry.intent.problems
        if problems == entry.advised:
            return []
        entry.advised = problems
        return self.advise(entry.key, "; ".join(problems), now) if problems else []


def _short(message: str) -> str:
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"

"""In-place resizes of CPU requests to the width that a pod was granted."""

from __future__ import annotations

from flowsched_k8s import names
from flowsched_k8s.cache import Cache
from flowsched_k8s.instructions import Instruction, PodKey, Resize
from flowsched_k8s.notices.notices import Notices
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.wakeups import Wakeups


class Resizes:
    """Resizes that are under way; until the API server agrees, both widths are held."""

    def __init__(self, cache: Cache, wakeups: Wakeups, notices: Notices) -> None:
        """None yet."""
        self._cache = cache
        self._wakeups = wakeups
        self._notices = notices
        self._wanted: dict[str, int] = {}
        """uid -> milli-CPU asked for by a resize whose end is not seen yet."""

    def start(self, entry: PodEntry) -> list[Instruction]:
        """Ask for the chosen width once the pod is on its node."""
        if not (self._cache.configuration.features.resize and entry.ours and entry.intent.widths_milli):
            return []
        wanted = _width(entry.pod)
        if wanted is None or wanted == entry.request_milli or len(entry.pod.spec.containers) != 1:
            return []
        uid = entry.key.uid
        if uid in self._wanted:
            return []
        self._wanted[uid] = wanted
        self._cache.hold_width(entry, wanted)
        return [Resize(entry.key, {entry.pod.spec.containers[0].name: wanted})]

    def seen(self, entry: PodEntry) -> None:
        """A pod has changed: its resize is over if its request is the width."""
        if self._wanted.get(entry.key.uid) == entry.request_milli:
            del self._wanted[entry.key.uid]
            self._cache.hold_width(entry, 0)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._wanted.pop(uid, None)

    def done(self, key: PodKey, accepted: bool, message: str, now: float) -> list[Instruction]:
        """The API server answered a resize. A refused one leaves the pod at its request."""
        entry = self._cache.pods.get(key.uid)
        if entry is None or accepted:
            return []
        self.forget(key.uid)
        self._cache.hold_width(entry, 0)
        self._wakeups.room_on(entry.place, now)
        return self._notices.advise(key, f"its CPU request was not resized: {message}", now)


def _width(pod: Pod) -> int | None:
    text = (pod.metadata.annotations or {}).get(names.WIDTH, "")
    digits = text.removesuffix("m")
    # Any client may write annotations.
    return int(digits) if text != digits and digits.isascii() and digits.isdigit() and len(digits) <= 9 else None

"""What bound latency services are told that claim more than they were granted, or something else."""

from __future__ import annotations

from flowsched_k8s import names
from flowsched_k8s.cache import Cache
from flowsched_k8s.instructions import Instruction
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.services.grant import CLIENT, CORES, GOAL, LOAD, PROFILE, Grant
from flowsched_models.quantity import format_cores, format_duration_us

_AGAIN_S = 10.0
"""An event for which there was no token is tried again after so long."""
_ANNOTATIONS = {GOAL: names.SLO, PROFILE: names.PROFILE, CLIENT: names.CLIENT, CORES: names.CORES}


class GrantNotices:
    """Events of services that count as granted, once for each thing that they claim."""

    def __init__(self, cache: Cache, recorder: Recorder) -> None:
        """No pod was told anything yet."""
        self._cache = cache
        self._recorder = recorder
        self._told: dict[str, tuple[str, ...]] = {}
        """By uid, the claims that a pod was told of."""
        self._again_s: dict[str, float] = {}
        """By uid, when a pod is told that could not be told before."""

    def look(self, now: float) -> list[Instruction]:
        """Tell all services that have something new to hear; for a timer, as measured loads change without any event."""
        beyond, pods = self._cache.services.beyond, self._cache.pods
        for uid in self._told.keys() - beyond.keys():
            del self._told[uid]
            self._again_s.pop(uid, None)
        return [told for uid in beyond if uid in pods for told in self.of(pods[uid], now)]

    def of(self, entry: PodEntry, now: float) -> list[Instruction]:
        """The same of one pod."""
        uid, grant = entry.key.uid, entry.grant
        claims = self._cache.services.beyond.get(uid, ())
        if grant is None or not claims or self._told.get(uid) == claims or now < self._again_s.get(uid, now):
            return []
        note = _note(grant, claims)
        event = self._recorder.event(entry.key, names.COUNTS_AS_GRANTED, "Warning", "Scheduling", note, now)
        if event is None:
            self._again_s[uid] = now + _AGAIN_S
            return []
        self._told[uid] = claims
        return [event]


def _note(grant: Grant, claims: tuple[str, ...]) -> str:
    wish = grant.wish
    goal = f"p95={format_duration_us(wish.slo_us)}@{wish.qps:g}qps"
    cores = f", cores {format_cores(grant.cores)}" if grant.cores else ""
    reasons = [
        f"its load is above {wish.qps:g} qps" if claim == LOAD else f"{_ANNOTATIONS[claim]} is not what it was then"
        for claim in claims
    ]
    return (
        f"counts as it was granted when it was bound ({wish.profile}, {goal}, client {wish.client}{cores}): "
        f"{'; '.join(reasons)}. To be granted something else, make the pod anew"
    )

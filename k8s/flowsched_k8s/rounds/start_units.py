"""What starts at once: one waiting pod, or as many pods of its gang as are missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.pods.entries import PodEntry

UnitKey = GroupRef | str
"""The gang, or the uid of a pod that starts by itself."""


@dataclass(frozen=True, eq=False)
class StartUnit:
    """Waiting pods of which any ``needed`` start together."""

    key: UnitKey
    members: tuple[PodEntry, ...]
    """In the order in which they are served."""
    needed: int
    priority: int
    since_s: float
    """Since when so many of them wait."""


class StartUnits:
    """Finds the unit of a pod, as things stand."""

    def __init__(self, cache: Cache, gangs: Gangs) -> None:
        """Of one scheduler; they change with it."""
        self._cache = cache
        self._gangs = gangs

    def keys_of(self, entries: Iterable[PodEntry]) -> dict[str, UnitKey]:
        """By uid what each waiting pod starts with: its gang, if more than one pod is missing there."""
        gangs: dict[GroupRef, bool] = {}
        found: dict[str, UnitKey] = {}
        for entry in entries:
            uid, ref = entry.key.uid, self._gangs.ref(entry)
            if ref is not None and ref not in gangs:
                gangs[ref] = self._gangs.missing(uid) > 1
            found[uid] = ref if ref is not None and gangs[ref] else uid
        return found

    def alone(self, entries: Iterable[PodEntry]) -> list[StartUnit]:
        """Units of pods that start by themselves."""
        entries = list(entries)
        served = self._gangs.priorities(entries)
        return [StartUnit(uid := e.key.uid, (e,), 1, served[uid], e.waits_since_s) for e in entries]

    def of(self, key: UnitKey) -> StartUnit | None:
        """A unit; None where its pod waits no more, or of its gang too few pods wait and could start."""
        if isinstance(key, str):
            entry = self._cache.pods.get(key)
            if entry is None or entry.place:
                return None
            return self.alone([entry])[0]
        waiting = self._gangs.waiting(key)
        members = [e for e in waiting if not e.pod.spec.scheduling_gates and self._cache.wants(e).problem is None]
        needed = self._gangs.missing(members[0].key.uid) if members else 0
        if needed < 2 or len(members) < needed:
            return None
        since_s = sorted(e.waits_since_s for e in members)[needed - 1]
        return StartUnit(key, tuple(members), needed, self.priority(members), since_s)

    def priority(self, members: Iterable[PodEntry]) -> int:
        """What pods that start together are served with."""
        return max(self._gangs.priorities(members).values())

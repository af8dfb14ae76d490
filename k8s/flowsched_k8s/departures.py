"""What leaves a node by itself, and what stays whatever is kept away from it: the room that keeping a node can make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from flowsched_k8s.cache import Cache
from flowsched_k8s.names import PLACEMENT
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.readings import ends_by_itself
from flowsched_k8s.preemption.preemption import is_part_of_node


class Departure(StrEnum):
    """How a pod leaves its node."""

    BY_ITSELF = "by itself"
    """Its work ends, or it is being deleted."""
    DELETED = "deleted"
    """It runs until it is deleted, as the pods of a Deployment do; this scheduler has placed it."""
    NEVER = "never"
    """Keeping the node moves nothing: it is part of the node, or was placed by other means and runs until it is deleted."""


def departure(entry: PodEntry) -> Departure:
    """How a pod leaves its node, unless it is being deleted."""
    pod = entry.pod
    if is_part_of_node(pod):
        return Departure.NEVER
    owners = pod.metadata.owner_references or ()
    ends = ends_by_itself(pod) or any(o.controller and o.kind == "Job" for o in owners)
    if ends or entry.intent.profile is not None or entry.intent.run_s is not None:
        return Departure.BY_ITSELF
    ours = entry.ours and (bool(entry.assumed) or PLACEMENT in (pod.metadata.annotations or {}))
    return Departure.DELETED if ours else Departure.NEVER


@dataclass(frozen=True)
class _Occupation:
    """What is on a node and may stay. Needs by resource."""

    revision: int
    never: Mapping[str, int]
    deleted: tuple[tuple[int, Mapping[str, int]], ...]
    """By priority the needs of all pods that run until they are deleted."""
    leaving: tuple[tuple[float, Mapping[str, int]], ...]
    """By when it should be gone, and needs, of each pod that is being deleted."""


class Departures:
    """What the pods of each node leave of it; looked at again where something has happened."""

    def __init__(self, cache: Cache) -> None:
        """No node was looked at."""
        self._cache = cache
        self._known: dict[str, _Occupation] = {}

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._known.pop(node, None)

    def leave_room(
        self, node: str, needs: Iterable[tuple[str, int]], priority: int, now: float, deletions: bool
    ) -> bool:
        """Whether a node has room for so much once all has left that leaves while it is kept for a pod of a priority.

        ``deletions``: pods that run until they are deleted leave, unless their priority is higher. Pods that should be gone
        by now, and are not, stay.
        """
        asked = dict(needs)
        room = self.room(node, asked, priority, now, deletions)
        return all(room[r] >= amount for r, amount in asked.items())

    def room(self, node: str, resources: Iterable[str], priority: int, now: float, deletions: bool) -> dict[str, int]:
        """What a node has of some resources then; below 0 where what stays takes more than there is."""
        there, offered = self._occupation(node), self._cache.nodes[node].allocatable
        stay = [there.never]
        stay += [took for own, took in there.deleted if own > priority or not deletions]
        stay += [took for by_s, took in there.leaving if by_s <= now]
        return {r: offered.get(r, 0) - sum(took.get(r, 0) for took in stay) for r in resources}

    def going(self, node: str, priority: int, now: float, deletions: bool) -> set[str]:
        """Uids of the pods that give their room back."""
        found = set()
        for uid in self._cache.nodes[node].pods:
            entry = self._cache.pods[uid]
            if entry.is_leaving:
                goes = not entry.is_late(now)
            else:
                how = departure(entry)
                deleted = how is Departure.DELETED and deletions and entry.priority <= priority
                goes = how is Departure.BY_ITSELF or deleted
            found |= {uid} if goes else set()
        return found

    def _occupation(self, node: str) -> _Occupation:
        revision = self._cache.revisions.of(node)
        known = self._known.get(node)
        if known is not None and known.revision == revision:
            return known
        never: dict[str, int] = {}
        deleted: dict[int, dict[str, int]] = {}
        leaving = []
        for uid in self._cache.nodes[node].pods:
            entry, needs = self._cache.pods[uid], self._cache.booked.needs_of(uid)
            how = departure(entry)
            if entry.is_leaving:
                leaving.append((entry.leaves_s, needs))
            elif how is Departure.DELETED:
                _add(deleted.setdefault(entry.priority, {}), needs)
            elif how is Departure.NEVER:
                _add(never, needs)
        found = self._known[node] = _Occupation(revision, never, tuple(deleted.items()), tuple(leaving))
        return found


def _add(total: dict[str, int], needs: Mapping[str, int]) -> None:
    for resource, amount in needs.items():
        total[resource] = total.get(resource, 0) + amount

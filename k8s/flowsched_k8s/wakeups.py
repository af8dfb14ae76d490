"""Which waiting pods are tried again because something has left a node or has changed."""

from __future__ import annotations

from collections.abc import Hashable

from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Wake
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.preemption.node_room import NodeRoom
from flowsched_k8s.preemption.preemption import NEVER, is_movable
from flowsched_k8s.queue import PodQueue
from flowsched_k8s.volumes.volumes import ClaimKey, claim_keys
from flowsched_k8s.waiting_kinds import WaitingKind, WaitingKinds

_SPARE = 256
"""So many kinds of which no pod waits any more do not matter."""


class Wakeups:
    """Wakes pods of a queue; it asks the cache which of them something may help."""

    def __init__(self, cache: Cache, queue: PodQueue, gangs: Gangs) -> None:
        """Of one scheduler; they change with it."""
        self._cache = cache
        self._queue = queue
        self._gangs = gangs
        self._kinds = WaitingKinds()

    def kind_of(self, entry: PodEntry) -> Hashable:
        """What pods have in common that a change helps alike. A pod that has found no room is remembered by it."""
        wants, policy = self._cache.wants(entry), entry.pod.spec.preemption_policy
        name = wants.class_key, policy
        if name in self._kinds:
            return name
        if len(self._kinds) > 2 * len(self._queue) + _SPARE:
            self._kinds = self._kinds.only(self._queue.kinds())
        kind = WaitingKind(
            entry.needs,
            entry.priority,
            self._cache.configuration.features.preemption and policy != NEVER,
            wants.filter,
            frozenset((*wants.holds, *wants.joins)),
            frozenset(claim_keys(entry.pod)),
        )
        self._kinds.put(name, kind)
        return name

    def left(self, entry: PodEntry, node: str, now: float) -> None:
        """A pod has left a node, or gives up its place there."""
        claims = self._cache.volumes.exclusive(entry.pod)
        self.room_on(node, now, self._cache.declared.of(entry), claims)

    def room_on(
        self,
        node: str,
        now: float,
        relations: frozenset[str] = frozenset(),
        claims: frozenset[ClaimKey] = frozenset(),
    ) -> None:
        """Wake the pods that may fit on a node now, or anywhere because a pod with these relations or claims has left it.

        A pod that may have others evicted fits where there is room once all pods of lower priority are gone. Of pods that
        are alike only so many are woken as there is room for: another one would fare no better than these.
        """
        cache = self._cache
        there, room = cache.nodes.get(node), self._room_of(node)
        related = self._kinds.related_to((*relations, *claims))
        helped: dict[Hashable, int] = {}
        if there is not None and room is not None:
            helped = self._kinds.helped_by(room, lambda static: static.verdict(there.node) is None)

        def fits(key: PodKey) -> int | bool:
            waiting = cache.pods.get(key.uid)
            if waiting is None:
                return True
            wants, policy = cache.wants(waiting), waiting.pod.spec.preemption_policy
            name = wants.class_key, policy
            if name in related or not relations.isdisjoint((*wants.holds, *wants.joins)):
                return True
            if name in helped:
                return helped[name]
            if claims and not claims.isdisjoint(claim_keys(waiting.pod)):
                return True
            if room is None or there is None or wants.filter.verdict(there.node) is not None:
                return False
            preempts = cache.configuration.features.preemption and policy != NEVER
            return room.places(waiting.needs, waiting.priority if preempts else None)

        self._queue.wake(Wake.POD_GONE, now, fits, among=related | helped.keys())

    def _room_of(self, node: str) -> NodeRoom | None:
        """What a node of the pool has for pods that wait, at this moment."""
        cache, machines = self._cache, self._cache.machines
        there, row = cache.nodes.get(node), machines.row(node)
        if there is None or row is None:
            return None
        leavers = []
        if cache.configuration.features.preemption:
            for uid in there.pods:
                pod = cache.pods[uid]
                if pod.is_leaving or (is_movable(pod.pod) and self._gangs.breaks_apart(pod)):
                    frees = cache.booked.needs_of(uid)
                    if pod.pod.spec.volumes:
                        frees = {**frees, **cache.volumes.freed_by(pod.pod)}
                    leavers.append((pod.priority, frees))
        return NodeRoom.of(tuple(machines.resources), machines.free[row].copy(), leavers)

    def gang(self, ref: GroupRef, now: float) -> None:
        """Members of a gang that wait are decided again, whatever stopped them."""
        for entry in self._gangs.waiting(ref):
            self._queue.touch(entry.key, now, Wake.POD_GONE)

    def group_changed(self, group: GroupRef | None, now: float) -> None:
        """Members that wait are looked at anew: others have come, are gone, or have succeeded."""

        def is_member(key: PodKey) -> bool:
            entry = self._cache.pods.get(key.uid)
            return entry is not None and self._gangs.ref(entry) == group

        if group is not None and self._gangs.waiting(group):
            self._queue.wake(Wake.GROUP, now, is_member)

    def turn_over(self, now: float) -> None:
        """A node is kept no longer for a pod: all that wait for room are decided again, as another one may be kept now."""
        self._queue.wake(Wake.NODE_ALLOCATABLE, now)

    def volumes_changed(self, wake: Wake, now: float) -> None:
        """What is known of claims, volumes or their classes has changed, or what is promised of them."""
        self._cache.pod_wants.invalidate(lambda e: bool(e.pod.spec.volumes))
        self._queue.wake(wake, now)

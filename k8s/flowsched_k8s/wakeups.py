"""Which waiting pods are tried again because something has left a node or has changed."""

from __future__ import annotations

from flowsched_k8s.cache import Cache
from flowsched_k8s.entries import PodEntry
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.queue import PodQueue, Wake
from flowsched_k8s.volumes import ClaimKey, claim_keys


class Wakeups:
    """Wakes pods of a queue; it asks the cache which of them something may help."""

    def __init__(self, cache: Cache, queue: PodQueue) -> None:
        """Of one scheduler; they change with it."""
        self._cache = cache
        self._queue = queue

    def left(self, entry: PodEntry, node: str, now: float) -> None:
        """A pod has left a node, or gives up its place there."""
        claims = self._cache.volumes.exclusive(entry.pod)
        self.room_on(node, now, self._cache.relations_of(entry), claims)

    def room_on(
        self,
        node: str,
        now: float,
        relations: frozenset[str] = frozenset(),
        claims: frozenset[ClaimKey] = frozenset(),
    ) -> None:
        """Wake the pods that may fit on a node now, or anywhere because a pod with these relations or claims has left it."""
        cache = self._cache
        row = cache.fleet.row(node)

        def fits(key: PodKey) -> bool:
            waiting = cache.pods.get(key.uid)
            if waiting is None or row is None:
                return True
            if relations and not relations.isdisjoint((*(wants := cache.wants(waiting)).holds, *wants.joins)):
                return True
            if claims and not claims.isdisjoint(claim_keys(waiting.pod)):
                return True
            return cache.fleet.fits_on(waiting.needs, node) or cache.configuration.features.preemption

        self._queue.wake(Wake.POD_GONE, now, fits)

    def turn_over(self, now: float) -> None:
        """A node is kept no longer for a pod: all that wait for room are decided again, as another one may be kept now."""
        self._queue.wake(Wake.NODE_ALLOCATABLE, now)

    def volumes_changed(self, wake: Wake, now: float) -> None:
        """What is known of claims, volumes or their classes has changed, or what is promised of them."""
        self._cache.invalidate_wants(lambda e: bool(e.pod.spec.volumes))
        self._queue.wake(wake, now)

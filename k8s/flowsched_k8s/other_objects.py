"""What watches tell of objects that are neither pods nor nodes, and which of their lists cannot be read."""

from __future__ import annotations

from collections.abc import Mapping

from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Wake
from flowsched_k8s.groups.pod_groups import is_whole, ref_of
from flowsched_k8s.objects import Budget, Namespace, PodGroup, SucceededPod
from flowsched_k8s.preemption.budgets import Budgets
from flowsched_k8s.preemption.evictions import Evictions
from flowsched_k8s.preemption.victims import Victims
from flowsched_k8s.queue import PodQueue
from flowsched_k8s.volumes.storage_objects import (
    Claim,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    StorageClass,
    VolumeAttachment,
)
from flowsched_k8s.volumes.volumes import ClaimKey
from flowsched_k8s.wakeups import Wakeups
from flowsched_k8s.watched import unread_groups

_CLAIM_LISTS = ("persistentvolumeclaims", "persistentvolumes", "storageclasses")
"""What a pod with a claim cannot be placed without."""
_DRIVER_LISTS = ("csinodes", "csidrivers", "volumeattachments", "csistoragecapacities")
"""What else limits where it may go, in clusters that have it."""


class OtherObjects:
    """Takes them into the cache, and wakes the pods that a change may help."""

    def __init__(
        self,
        cache: Cache,
        queue: PodQueue,
        victims: Victims,
        budgets: Budgets,
        evictions: Evictions,
        wakeups: Wakeups,
    ) -> None:
        """Of one scheduler; they change with it."""
        self._cache = cache
        self._queue = queue
        self._victims = victims
        self._budgets = budgets
        self._evictions = evictions
        self._wakeups = wakeups

    def see(self, thing: object, gone: bool, now: float) -> None:
        """One is there, changed, or is gone."""
        cache = self._cache
        volumes = cache.volumes
        if isinstance(thing, Namespace):
            cache.remove_namespace(thing.metadata.name) if gone else cache.put_namespace(thing.metadata)
            self._queue.wake(Wake.NAMESPACE, now)
            self._evictions.reconsider(now, Wake.NAMESPACE, lambda entry, _: entry.pod.spec.affinity is not None)
        elif isinstance(thing, PodGroup):
            before = cache.groups.get(ref_of(thing))
            cache.groups.remove(thing) if gone else cache.groups.put(thing)
            if is_whole(thing) or (before is not None and is_whole(before)):
                self._victims.read_again()
            self._queue.wake(Wake.GROUP, now)
        elif isinstance(thing, SucceededPod):
            group = cache.groups.remove_succeeded(thing) if gone else cache.groups.put_succeeded(thing)
            self._wakeups.group_changed(group, now)
        elif isinstance(thing, Budget):
            self._budgets.remove(thing) if gone else self._budgets.put(thing)
        elif isinstance(thing, Claim):
            if gone:
                volumes.remove_claim(thing.metadata.namespace, thing.metadata.name)
            else:
                volumes.put_claim(thing)
                cache.recount_volumes((ClaimKey(thing.metadata.namespace, thing.metadata.name),))
            self._volumes_changed(Wake.CLAIM, now)
        elif isinstance(thing, PersistentVolume):
            volumes.remove_volume(thing.metadata.name) if gone else volumes.put_volume(thing)
            cache.recount_volumes(volumes.claims_of(thing.metadata.name))
            for node in volumes.attached.attaching(thing.metadata.name):
                cache.refresh_volume_limits(node)
            self._volumes_changed(Wake.VOLUME, now)
        elif isinstance(thing, StorageClass):
            volumes.remove_class(thing.metadata.name) if gone else volumes.put_class(thing)
            self._volumes_changed(Wake.STORAGE_CLASS, now)
        elif isinstance(thing, CsiDriver):
            volumes.capacities.remove_driver(thing) if gone else volumes.capacities.put_driver(thing)
            self._volumes_changed(Wake.CSI_DRIVER, now)
        elif isinstance(thing, CsiStorageCapacity):
            volumes.capacities.remove(thing) if gone else volumes.capacities.put(thing)
            self._volumes_changed(Wake.STORAGE_CAPACITY, now)
        elif isinstance(thing, CsiNode):
            limits = volumes.limits
            counted = limits.counted()
            limits.remove(thing.metadata.name) if gone else limits.put(thing)
            if limits.counted() != counted:
                cache.refresh_all_volume_limits()
            else:
                cache.refresh_volume_limits(thing.metadata.name)
            self._queue.wake(Wake.CSI_NODE, now)
            self._evictions.reconsider(now, Wake.CSI_NODE, lambda _, node: node == thing.metadata.name)
        elif isinstance(thing, VolumeAttachment):
            volumes.attached.remove(thing) if gone else volumes.attached.put(thing)
            cache.refresh_volume_limits(thing.spec.node_name)
            self._evictions.reconsider(now, Wake.CSI_NODE, lambda _, node: node == thing.spec.node_name)
            if gone:
                self._queue.wake(Wake.CSI_NODE, now)

    def lists_unreadable(self, refused: Mapping[str, str], failing: Mapping[str, str], now: float) -> None:
        """Which lists cannot be read, by name with the reason: pods that need one say so, instead of being placed by guess.

        ``refused``: the server has no such API, or does not let us read it; where a cluster may do without it, it counts as
        empty. ``failing``: what there is will be known.
        """
        failing = {name: f"{name} cannot be listed: {why}" for name, why in failing.items()}
        either = {**refused, **failing}
        volumes = [either[n] for n in _CLAIM_LISTS if n in either] + [failing[n] for n in _DRIVER_LISTS if n in failing]
        if (why := next(iter(volumes), "")) != self._cache.volumes.unreadable:
            self._cache.volumes.unreadable = why
            self._volumes_changed(Wake.CLAIM, now)
        if (why := either.get("namespaces", "")) != self._cache.declared.namespaces_unreadable:
            self._cache.declared.namespaces_unreadable = why
            self._cache.pod_wants.invalidate(lambda e: e.pod.spec.affinity is not None)
            self._queue.wake(Wake.ANY, now)
        self._budgets.unreadable = either.get("poddisruptionbudgets", "")
        groups, succeeded = unread_groups(failing)
        if (groups, succeeded) != (self._cache.groups.unread, self._cache.groups.succeeded_unread):
            self._cache.groups.unread, self._cache.groups.succeeded_unread = groups, succeeded
            self._victims.read_again()
            self._queue.wake(Wake.GROUP, now)

    def _volumes_changed(self, wake: Wake, now: float) -> None:
        self._wakeups.volumes_changed(wake, now)
        self._evictions.reconsider(now, wake, lambda entry, _: bool(entry.pod.spec.volumes))

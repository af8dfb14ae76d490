"""Checks a round's placements against the cluster as it is when the round ends, and books those that still hold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from flowsched.support.arrays import BoolArray
from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gang_start import GangStart, gang_starts
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.pod_groups import GroupRef, GroupSpec
from flowsched_k8s.names import CLAIM_IN_USE
from flowsched_k8s.pods.entries import NodeEntry, PodEntry
from flowsched_k8s.queue import PodQueue
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.round_input import Chosen
from flowsched_k8s.volumes.volumes import ClaimPatch


@dataclass(frozen=True)
class Booking:
    """A placement that holds: its pod is assumed to be there."""

    chosen: Chosen
    patches: tuple[ClaimPatch, ...] = ()
    """What to write to the pod's claims before it is bound."""
    start: GangStart | None = None
    """Of a pod of a group: with which others it starts."""
    waits_for_others: bool = False
    """Whether its group has too few pods until volumes of some of them have been made."""


class Bookings:
    """Books the placements of a round that has ended."""

    def __init__(self, cache: Cache, gangs: Gangs, queue: PodQueue, inputs: InputBuilder) -> None:
        """Of one scheduler; they change with it."""
        self._cache = cache
        self._gangs = gangs
        self._queue = queue
        self._inputs = inputs

    def book(self, chosen: Sequence[Chosen], now: float) -> tuple[list[Booking], dict[str, str]]:
        """(placements that still hold, by uid why the others do not: a reason that no node changes, or "").

        All of a gang or none: when too few of a gang's placements hold, the others are released as well.
        """
        sound: list[Booking] = []
        broken: dict[str, str] = {}
        units: dict[GroupRef | str, list[Chosen]] = {}
        # Nodes that topology spread compares, by key of the static filter.
        eligible: dict[Hashable, BoolArray] = {}
        for c in chosen:
            entry = self._cache.pods.get(c.uid)
            if entry is not None:
                units.setdefault(self._gangs.ref(entry) or c.uid, []).append(c)
        # Gangs first.
        for unit, members in sorted(units.items(), key=lambda item: isinstance(item[0], str)):
            missing = self._gangs.missing(members[0].uid) if isinstance(unit, GroupRef) else 0
            tried = {c.uid: self._book(c, eligible, now) for c in members}
            booked = [b for b in tried.values() if isinstance(b, Booking)]
            if isinstance(unit, GroupRef) and len(booked) < missing:
                for booking in booked:
                    self._release(booking)
                self._inputs.did_not_hold(unit)
                reason = next((b for b in tried.values() if isinstance(b, str) and b), "")
                broken.update(dict.fromkeys(tried, reason))
            else:
                if isinstance(unit, GroupRef):
                    booked = self._together(unit, booked)
                sound += booked
                broken.update({uid: b for uid, b in tried.items() if isinstance(b, str)})
        return sound, broken

    def why_not(self, entry: PodEntry) -> str | None:
        """Why filters keep a pod from the node where it is assumed by now, or None. Room and ports are not asked for."""
        node = self._cache.nodes.get(entry.assumed)
        if node is None:
            return f"node {entry.assumed} is gone"
        return self._never(entry) or self._refused(entry, node, {}, (entry.key.uid,))

    def _never(self, entry: PodEntry) -> str | None:
        """Why a pod can be nowhere, whatever the nodes are like."""
        problem = self._cache.wants(entry).problem
        return CLAIM_IN_USE if problem is None and self._cache.pod_wants.claim_users(entry) else problem

    def _refused(
        self, entry: PodEntry, node: NodeEntry, eligible: dict[Hashable, BoolArray], without: tuple[str, ...] = ()
    ) -> str | None:
        """Why a node does not take a pod beside what is booked but for these uids, whatever room it has. May add to
        ``eligible``.
        """
        cache = self._cache
        wants = cache.wants(entry)
        verdict = wants.filter.verdict(node.node)
        if verdict is not None or not (wants.holds or wants.joins):
            return verdict
        key = wants.filter.key
        if key not in eligible:
            eligible[key] = self._inputs.verdicts(wants).eligible[: cache.machines.rows]
        name = node.node.metadata.name
        if cache.booked.permits_on(wants.holds, wants.joins, name, eligible[key], without):
            return None
        return "pods that are there by now keep it out"

    def _together(self, group: GroupRef, booked: Sequence[Booking]) -> list[Booking]:
        """Members of a group that start together."""
        spec = self._gangs.spec(group)
        if not isinstance(spec, GroupSpec):
            return list(booked)
        placed = [self._cache.pods[uid].pod for uid in self._gangs.placed(group)]
        pods = len(placed) + spec.succeeded
        starts = gang_starts([b.chosen.uid for b in booked], pods, spec.minimum + spec.succeeded)
        settled = sum(not pod.spec.volumes or self._cache.volumes.settled(pod) for pod in placed)
        waits = settled < spec.minimum
        return [replace(b, start=starts[b.chosen.uid], waits_for_others=waits) for b in booked]

    def _book(self, c: Chosen, eligible: dict[Hashable, BoolArray], now: float) -> Booking | str:
        """Assume a pod where it was placed, with its room, claims and volumes; or why that does not hold."""
        cache = self._cache
        entry = cache.pods[c.uid]
        node = cache.nodes.get(c.node)
        pod = entry.pod
        if (
            node is None
            or entry.place
            or pod.metadata.deletion_timestamp is not None
            or pod.spec.scheduling_gates
            or entry.key not in self._queue
        ):
            return ""
        if pod.spec.volumes:
            # A pod that was booked before this one may have taken its volume.
            entry.wants = None
        if (never := self._never(entry)) is not None:
            return never
        width = c.width_milli or entry.request_milli
        needs = {**entry.needs, "cpu": max(width, entry.request_milli)}
        if pod.spec.volumes:
            needs |= cache.volumes.needs_on(pod, c.node)
        if self._refused(entry, node, eligible) is not None or not cache.machines.fits_on(needs, c.node):
            return ""
        patches: tuple[ClaimPatch, ...] = ()
        if pod.spec.volumes and not cache.volumes.settled(pod):
            found = cache.volumes.selected_node_patches(pod, node.node)
            if isinstance(found, str):
                return ""
            patches = found
        cache.volumes.assume(patches)
        cache.assume(entry, c.node, width, *self._share(entry, c, now), now)
        return Booking(c, patches)

    def _release(self, booking: Booking) -> None:
        self._cache.forget(self._cache.pods[booking.chosen.uid])
        self._cache.volumes.forget(booking.patches)

    def _share(self, entry: PodEntry, c: Chosen, now: float) -> tuple[int, tuple[int, ...]]:
        """Threads and cores of a placement: what the forecasts said, a service's own cores, or all that are open."""
        if c.threads is not None and c.cores is not None:
            return c.threads, c.cores
        cache = self._cache
        open_cores = cache.services.free_cores(c.node)
        wish = cache.services.wish_of(entry)
        if wish is not None:
            if len(open_cores) < wish.core_count:
                open_cores = cache.services.free_cores(c.node, cache.services.claim(entry, now))
            return self._inputs.service_threads(wish, entry), open_cores[: wish.core_count]
        count = max(1, len(open_cores))
        allowed = [t for t in entry.intent.threads if t <= count]
        if entry.intent.threads:
            return (max(allowed) if allowed else min(entry.intent.threads)), open_cores
        if entry.intent.profile is not None:
            return cache.catalogue.jobs[entry.intent.profile].threads_for(count), open_cores
        return max(1, -(-entry.request_milli // 1000)), open_cores

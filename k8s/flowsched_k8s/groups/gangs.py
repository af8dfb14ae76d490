"""Pod groups: who belongs to which, how many of them are there and placed, and when a group gives up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from flowsched.relations.gang import gang_priority
from flowsched.relations.relation import TaskGroup
from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.pod_groups import IN_TREE, GroupRef, GroupSpec, group_ref, mode_of
from flowsched_k8s.instructions import GroupStatus
from flowsched_k8s.names import UNSCHEDULABLE
from flowsched_k8s.pods.entries import PodEntry


@dataclass
class _Try:
    since_s: float
    """When the group was first complete and waited for room."""
    timeout_s: float
    """How long it may wait."""


class Gangs:
    """The groups of the cache's pods. Group and pods may come in either order."""

    def __init__(
        self,
        cache: Cache,
        mode_changed: Callable[[Collection[str]], None] = lambda _: None,
        has_nodes: Callable[[GroupRef], bool] = lambda _: False,
    ) -> None:
        """No groups yet. ``mode_changed``: told the nodes of a group that may be evicted in another way from now on.
        ``has_nodes``: whether nodes are kept for a group, which gives up no earlier than these are.
        """
        self._cache = cache
        self._mode_changed = mode_changed
        self._has_nodes = has_nodes
        self._modes: dict[GroupRef, Counter[str]] = {}
        """What pods of a group say of how it may be evicted, and how many do."""
        self._mode: dict[str, str] = {}
        """What each of them says, by uid."""
        self._members: dict[GroupRef, set[str]] = {}
        self._ref: dict[str, GroupRef] = {}
        self._tries: dict[GroupRef, _Try] = {}
        self._told: dict[GroupRef, tuple[bool, str]] = {}

    def see(self, entry: PodEntry) -> None:
        """A pod is there; others' pods count as well, whatever scheduled them."""
        ref = group_ref(entry.pod, self._cache.configuration.features.pod_groups)
        old = self._ref.get(entry.key.uid)
        if ref != old:
            self.forget(entry)
            if ref is not None:
                self._ref[entry.key.uid] = ref
                self._members.setdefault(ref, set()).add(entry.key.uid)
        if ref is not None:
            self._note_mode(ref, entry.key.uid, mode_of(entry.pod))

    def _note_mode(self, ref: GroupRef, uid: str, mode: str | None) -> None:
        """A pod of a group says this of how it may be evicted, or (None) nothing any more."""
        before = self._mode.pop(uid, None)
        if mode is not None:
            self._mode[uid] = mode
        if mode == before:
            return
        said = self._modes.setdefault(ref, Counter())
        known = len(said)
        if before is not None:
            said[before] -= 1
        if mode is not None:
            said[mode] += 1
        said += Counter()
        if len(said) != known or (mode is not None and said[mode] == 1):
            self._mode_changed({self._cache.pods[member].place for member in self._members.get(ref, ())})
        if not said:
            del self._modes[ref]

    def breaks_apart(self, entry: PodEntry) -> bool:
        """Whether a pod may be evicted without the others of its group."""
        ref = self._ref.get(entry.key.uid)
        return ref is None or self._cache.groups.breaks_apart(ref, self._modes.get(ref, ()))

    def forget(self, entry: PodEntry) -> None:
        """A pod is gone."""
        ref = self._ref.pop(entry.key.uid, None)
        if ref is not None:
            members = self._members[ref]
            members.discard(entry.key.uid)
            self._note_mode(ref, entry.key.uid, None)
            if not members:
                del self._members[ref]
                self._tries.pop(ref, None)
                self._told.pop(ref, None)

    def spec(self, ref: GroupRef) -> GroupSpec | str:
        """The group's minimum and timeout, or why they are unknown."""
        there = self._there(ref) or [self._cache.pods[uid] for uid in self._members.get(ref, ())]
        return self._cache.groups.resolve(ref, [e.pod for e in sorted(there, key=lambda e: e.key.uid)])

    def _there(self, ref: GroupRef) -> list[PodEntry]:
        """Members that count: one that is being deleted is replaced, if it is needed, by another pod."""
        members = (self._cache.pods[uid] for uid in self._members.get(ref, ()))
        return [e for e in members if not e.is_leaving]

    def placed(self, ref: GroupRef) -> list[str]:
        """Uids of the members that are on a node or assumed to be, and are to stay."""
        return sorted(e.key.uid for e in self._there(ref) if e.place)

    def waiting(self, ref: GroupRef) -> list[PodEntry]:
        """Members of ours that wait, in the order in which they are served."""
        return sorted((e for e in self._there(ref) if e.ours and not e.place), key=lambda e: e.order)

    def any_waits(self, ref: GroupRef) -> bool:
        """Whether there are any of them."""
        return any(e.ours and not e.place for e in self._there(ref))

    def missing(self, uid: str) -> int:
        """How many of a pod's group must be placed together now, at least."""
        ref = self._ref.get(uid)
        if ref is None:
            return 0
        spec = self.spec(ref)
        return 1 << 30 if isinstance(spec, str) else max(0, spec.minimum - len(self.placed(ref)))

    def has_lost_members(self, uid: str) -> bool:
        """Whether a pod's group has too few members with a place while some of them are being deleted, or are gone."""
        ref = self._ref.get(uid)
        if ref is None or not self.missing(uid):
            return False
        members = [self._cache.pods[member] for member in self._members[ref]]
        spec = self.spec(ref)
        # One that is gone is no member any more: only their number tells.
        return any(e.is_leaving for e in members) or (not isinstance(spec, str) and len(members) < spec.minimum)

    def ref(self, entry: PodEntry) -> GroupRef | None:
        """The group that a pod belongs to."""
        return self._ref.get(entry.key.uid)

    def priorities(self, entries: Iterable[PodEntry]) -> dict[str, int]:
        """By uid, the priority that each pod is served with: that of its group if it has one, as the group itself or those
        of its pods that wait have it.
        """
        entries = list(entries)
        by_group: dict[GroupRef, list[PodEntry]] = {}
        for entry in entries:
            if (ref := self.ref(entry)) is not None:
                by_group.setdefault(ref, []).append(entry)
        served = {ref: self._served_with(ref, mine) for ref, mine in by_group.items()}
        return {e.key.uid: e.priority if (ref := self.ref(e)) is None else served[ref] for e in entries}

    def _served_with(self, ref: GroupRef, mine: Iterable[PodEntry]) -> int:
        spec = self.spec(ref)
        own = spec.priority if isinstance(spec, GroupSpec) else None
        waiting = (e for e in self.waiting(ref) if not _gated(e))
        return gang_priority((e.priority for e in (*mine, *waiting)), own)

    def blocked(self, ref: GroupRef, now: float, retry_s: float) -> str | None:
        """Why a group takes no part in this round; None if it does.

        A group that found no place within its timeout gives up: it is left alone for ``retry_s``, or until the nodes change
        (:meth:`try_anew`), and tried anew.
        """
        spec = self.spec(ref)
        if isinstance(spec, str):
            return spec
        if (why := self._incomplete(ref, spec)) is not None:
            self._tries.pop(ref, None)
            return why
        attempt = self._tries.setdefault(ref, _Try(now, spec.timeout_s))
        attempt.timeout_s = spec.timeout_s
        if len(self.placed(ref)) >= spec.minimum or self._has_nodes(ref):
            attempt.since_s = now
        waited = now - attempt.since_s
        if waited <= spec.timeout_s:
            return None
        if waited > spec.timeout_s + retry_s:
            attempt.since_s = now
            return None
        return (
            f"pod group {ref.name} found no place for {spec.minimum} pods within {spec.timeout_s:g} s; "
            f"it is tried again {retry_s:g} s later, or when the nodes change"
        )

    def gated(self, ref: GroupRef) -> bool:
        """Whether some of its pods must not be placed yet."""
        return any(map(_gated, self._there(ref)))

    def _incomplete(self, ref: GroupRef, spec: GroupSpec) -> str | None:
        """What of its pods a group waits for; None if enough are there and may be placed."""
        there = self._there(ref)
        if len(there) < spec.minimum:
            counted, total = len(there) + spec.succeeded, spec.minimum + spec.succeeded
            done = f", {spec.succeeded} succeeded" if spec.succeeded else ""
            return f"waiting for pod group {ref.name}: {counted} of {total} pods are there{done}"
        gated = sum(map(_gated, there))
        if len(there) - gated < spec.minimum:
            return f"waiting for pod group {ref.name}: scheduling gates on {gated} of its {len(there)} pods"
        return None

    def try_anew(self, now: float) -> list[PodEntry]:
        """The nodes changed: groups past their timeout get another one. Their waiting members."""
        found: list[PodEntry] = []
        for ref, attempt in self._tries.items():
            if now - attempt.since_s > attempt.timeout_s:
                attempt.since_s = now
                found += self.waiting(ref)
        return found

    def status(self, ref: GroupRef, message: str) -> GroupStatus | None:
        """What to write to an in-tree group: whether it has been scheduled, and why not. None if that is written already."""
        group = self._cache.groups.get(ref)
        if ref.source != IN_TREE or group is None:
            return None
        spec = self.spec(ref)
        scheduled = not isinstance(spec, str) and len(self.placed(ref)) >= spec.minimum
        before = self._told.get(ref)
        if (before is not None and before[0]) or before == (scheduled, message):
            # Once it was scheduled it stays initially scheduled, whatever becomes of its pods.
            return None
        self._told[ref] = scheduled, message
        reason = "Scheduled" if scheduled else UNSCHEDULABLE
        return GroupStatus(ref.namespace, ref.name, group.api_version, scheduled, reason, "" if scheduled else message)

    def statuses(self, messages: Mapping[str, str]) -> list[GroupStatus]:
        """In-tree groups hear whether they have been scheduled; a few words for each, when they change. ``messages``: what
        pods of a round are told, by uid; empty for those that it has placed.
        """
        found: dict[GroupRef, str] = {}
        for uid, message in messages.items():
            entry = self._cache.pods.get(uid)
            ref = None if entry is None else self.ref(entry)
            if ref is not None:
                found[ref] = found.get(ref) or message
        told = (self.status(ref, message) for ref, message in found.items())
        return [status for status in told if status is not None]

    def task_group(self, ref: GroupRef) -> TaskGroup:
        """The engine's group."""
        spec = self.spec(ref)
        minimum = spec.minimum if isinstance(spec, GroupSpec) else 1 << 30
        return TaskGroup(group_name(ref), minimum)

    def count(self) -> int:
        """Groups that wait for members or for room."""
        return sum(
            1
            for ref in self._members
            if self.waiting(ref) and (isinstance(s := self.spec(ref), str) or len(self.placed(ref)) < s.minimum)
        )


def _gated(entry: PodEntry) -> bool:
    return not entry.place and bool(entry.pod.spec.scheduling_gates)


def group_name(ref: GroupRef) -> str:
    """A group's name in the engine."""
    return f"{ref.namespace}/{ref.name}"

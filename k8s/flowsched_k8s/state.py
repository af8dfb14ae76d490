"""The scheduler as a state machine: changes of the cluster in, instructions for the API server out.

No input or output happens here and no clock is read, so that every situation can be tested without a server. The adapter
(:mod:`flowsched_k8s.process`) feeds it, runs rounds in a thread and carries out what it says.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.snapshot import PlannedStart, Reservation
from flowsched_k8s import names
from flowsched_k8s.cache import Cache, PodEntry
from flowsched_k8s.changes import Change, Gone
from flowsched_k8s.configuration import Configuration
from flowsched_k8s.explanation import placement_note
from flowsched_k8s.gangs import Gangs
from flowsched_k8s.inputs import InputBuilder
from flowsched_k8s.instructions import Bind, Evict, Instruction, PatchClaim, PatchCondition, PodKey, Resize
from flowsched_k8s.objects import (
    Budget,
    Claim,
    CsiNode,
    Namespace,
    Node,
    PersistentVolume,
    Pod,
    PodGroup,
    StorageClass,
)
from flowsched_k8s.pod_groups import GroupRef
from flowsched_k8s.queue import Cause, Outcome, Place, PodQueue, Wake
from flowsched_k8s.recorder import Recorder
from flowsched_k8s.round_input import Chosen, Fate, Held, RoundInput, RoundResult
from flowsched_k8s.victims import Victims
from flowsched_k8s.volumes import ClaimPatch
from flowsched_models.catalogue import Catalogue
from flowsched_models.quantity import format_cores

_IDLE_SHARE = 4.0
"""The window for pods that come together is at least so many times as long as the last round took,"""
_LONGEST_WINDOW_S = 0.25
"""and at most so long for that reason."""
_NOBODY_HIGHER = 1 << 31
"""Above every priority that a pod may have."""
_CONFIRM_S = 30.0
"""A binding that the API server accepted and that no watch has shown after so long is read."""


class BindOutcome(StrEnum):
    """How a binding ended."""

    BOUND = "bound"
    CONFLICT = "conflict"
    """409: on a node already, another pod of the same name, or gated again."""
    GONE = "gone"
    """404"""
    REFUSED = "refused"
    """The API server does not want it; the message says why."""
    RETRY = "retry"
    """Certainly not bound: never sent, too many requests, or a server error."""
    LOST = "lost"
    """Nobody knows: the reply was lost. The pod has to be read."""
    DRY = "dry"
    """A dry run: nothing was sent."""


@dataclass(frozen=True)
class ReadPod:
    """GET a pod whose binding nobody knows the end of; :meth:`SchedulerState.pod_read` takes the answer."""

    pod: PodKey


@dataclass
class Tallies:
    """What happened, counted for metrics; the adapter takes what is new."""

    attempts: list[tuple[str, float, str]] = field(default_factory=list)
    """(result, seconds in the round, scheduler name) of every attempt."""
    bound: list[tuple[float, int]] = field(default_factory=list)
    """(seconds from being added to bound, attempts) of every pod."""
    binds: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    victims: list[int] = field(default_factory=list)
    """Victims of every preemption attempt; 0 for one that found none."""


class SchedulerState:
    """See the module. Methods return instructions; the caller carries all of them out, in order."""

    def __init__(self, configuration: Configuration, catalogue: Catalogue) -> None:
        """An empty cluster; nothing is decided before :meth:`activate`."""
        self.configuration = configuration
        self.cache = Cache(configuration, catalogue)
        rounds = configuration.rounds
        self.queue = PodQueue(
            initial_backoff_s=configuration.pod_initial_backoff_s,
            max_backoff_s=configuration.pod_max_backoff_s,
            unschedulable_retry_s=rounds.unschedulable_retry_s,
            postpone_s=rounds.max_period_s,
        )
        self.recorder = Recorder()
        self.gangs = Gangs(self.cache)
        self.victims = Victims(self.cache)
        self.inputs = InputBuilder(self.cache, self.gangs)
        self.tallies = Tallies()
        self.active = False
        self.rounds = 0
        self.round_running = False
        self.postponed: set[str] = set()
        """uids of pods that the last round they were in postponed."""
        self._plan: dict[str, PlannedStart] = {}
        self._reservations: tuple[Reservation, ...] = ()
        self._held_node: tuple[str, str, int] | None = None
        self._first_active_s: float | None = None
        self._round_took_s = 0.0
        self._last_round_s = 0.0
        self._unconfirmed: deque[tuple[float, PodKey]] = deque()
        self._binding: set[str] = set()
        self._resizing: dict[str, int] = {}
        """uid -> milli-CPU asked for by a resize whose end is not seen yet."""
        self._victims: dict[str, set[str]] = {}
        """uid of a preemptor -> uids of the pods that make room for it."""
        self._untold: dict[str, tuple[float, str]] = {}
        """uid -> since when its condition has been out of date, and the reason that it should have."""
        self._claims: dict[str, tuple[Chosen, tuple[ClaimPatch, ...]]] = {}
        """Pods whose place is chosen and whose volumes are being made there."""

    # Changes

    def observe(self, changes: Iterable[Change], now: float) -> list[Instruction | ReadPod]:
        """Take note of what the watches told."""
        out: list[Instruction | ReadPod] = []
        for change in changes:
            thing = change.object
            gone = isinstance(change, Gone)
            if isinstance(thing, Pod):
                out += self._pod_gone(thing, now) if gone else self._pod_seen(thing, now)
            elif isinstance(thing, Node):
                self._node(thing, gone, now)
            else:
                self._other(thing, gone, now)
        return out

    def _pod_seen(self, pod: Pod, now: float) -> list[Instruction | ReadPod]:
        uid = pod.metadata.uid
        old = self.cache.pods.get(uid)
        was = (old.node, old.assumed, old.pod) if old is not None else ("", "", None)
        before = dict(old.needs, cpu=old.width_milli) if old is not None else {}
        entry = self.cache.put_pod(pod)
        if entry is None:
            if old is not None:
                self._removed(old, pod, now)
            return []
        self.gangs.see(entry)
        out: list[Instruction | ReadPod] = []
        if entry.node:
            if not was[0]:
                self.queue.remove(entry.key)
                self._binding.discard(uid)
                self._claims.pop(uid, None)
                self.postponed.discard(uid)
                self._held_node_free(uid, now)
                if was[1] and was[1] != entry.node:
                    self.tallies.binds["elsewhere"] += 1
                self.queue.wake(Wake.POD_PLACED, now)
                self.recorder.forget(entry.key)
                out += self._start_resize(entry)
            elif (was[2] is not None and was[2].metadata.labels != pod.metadata.labels) or any(
                held > (entry.width_milli if r == "cpu" else entry.needs.get(r, 0)) for r, held in before.items()
            ):
                self.queue.wake(Wake.POD_CHANGED, now)
            self._finish_resize(entry)
            return out
        if not entry.ours:
            return out
        if pod.metadata.deletion_timestamp is not None:
            self.queue.remove(entry.key)
            return out
        gated = bool(pod.spec.scheduling_gates)
        known = entry.key in self.queue
        if not known and not entry.assumed:
            self.queue.add(entry.key, now, priority=entry.priority, created_s=entry.created_s, gated=gated)
        elif known:
            if gated:
                self.queue.gate(entry.key)
            else:
                if self.queue.place(entry.key) is Place.GATED:
                    entry.ungated_s = now
                self.queue.ungate(entry.key, now)
            if was[2] is not None and (
                was[2].spec != pod.spec
                or was[2].metadata.labels != pod.metadata.labels
                or was[2].metadata.annotations != pod.metadata.annotations
            ):
                entry.wants = None
                self.queue.touch(entry.key, now)
        out += self._advise_of(entry, now)
        fresh = was[2] is None or was[2].spec != pod.spec or was[2].metadata.labels != pod.metadata.labels
        if fresh and (group := self.gangs.ref(entry)) is not None:
            self.queue.wake(Wake.GROUP, now, lambda key: self._is_in(key, group))
        return out

    def _is_in(self, key: PodKey, group: GroupRef) -> bool:
        entry = self.cache.pods.get(key.uid)
        return entry is not None and self.gangs.ref(entry) == group

    def _pod_gone(self, pod: Pod, now: float) -> list[Instruction | ReadPod]:
        entry = self.cache.pods.get(pod.metadata.uid)
        if entry is not None:
            self.cache.remove_pod(entry.key.uid)
            self._removed(entry, pod, now)
        return []

    def _removed(self, entry: PodEntry, last: Pod, now: float) -> None:
        uid = entry.key.uid
        self.queue.remove(entry.key)
        self.recorder.forget(entry.key)
        self.gangs.forget(entry)
        self._binding.discard(uid)
        self._resizing.pop(uid, None)
        self._claims.pop(uid, None)
        self._victims.pop(uid, None)
        self._plan.pop(uid, None)
        self.postponed.discard(uid)
        self._held_node_free(uid, now)
        reason = last.status.reason
        if entry.ours and last.status.phase == "Failed" and (reason in _REJECTIONS or reason.startswith("OutOf")):
            self.tallies.rejections[reason] += 1
        if entry.place or entry.nominated:
            self._room_on(entry.place or entry.nominated, now, self.cache.relations_of(entry))

    def _room_on(self, node: str, now: float, relations: frozenset[str] = frozenset()) -> None:
        """Wake the pods that may fit on a node now, or anywhere because a pod in these relations has left it."""
        cache = self.cache
        row = cache.fleet.row(node)

        def fits(key: PodKey) -> bool:
            waiting = cache.pods.get(key.uid)
            if waiting is None or row is None:
                return True
            if relations and not relations.isdisjoint((*(wants := cache.wants(waiting)).holds, *wants.joins)):
                return True
            return cache.fits_on(waiting.needs, node) or self.configuration.features.preemption

        self.queue.wake(Wake.POD_GONE, now, fits)

    def _node(self, node: Node, gone: bool, now: float) -> None:
        event = self.cache.remove_node(node.metadata.name) if gone else self.cache.put_node(node)
        if event == "NodeAdd":
            self.queue.wake(Wake.NODE_ADDED, now)
        elif event == "NodeRemove":
            self.inputs.worlds.forget(node.metadata.name)
            if self._held_node is not None and self._held_node[1] == node.metadata.name:
                self._held_node = None
            self.queue.wake(Wake.NODE_REMOVED, now)
        elif event == "NodeUpdate":
            for wake in (Wake.NODE_ALLOCATABLE, Wake.NODE_LABELS, Wake.NODE_TAINTS):
                self.queue.wake(wake, now)

    def _other(self, thing: object, gone: bool, now: float) -> None:
        cache = self.cache
        volumes = cache.volumes
        if isinstance(thing, Namespace):
            if gone:
                cache.remove_namespace(thing.metadata.name)
            else:
                cache.put_namespace(thing.metadata)
            self.queue.wake(Wake.NAMESPACE, now)
        elif isinstance(thing, PodGroup):
            self.gangs.remove_group(thing) if gone else self.gangs.put_group(thing)
            self.queue.wake(Wake.GROUP, now)
        elif isinstance(thing, Budget):
            self.victims.remove_budget(thing) if gone else self.victims.put_budget(thing)
        elif isinstance(thing, Claim):
            if gone:
                volumes.remove_claim(thing.metadata.namespace, thing.metadata.name)
            else:
                volumes.put_claim(thing)
            self._volumes_changed(Wake.CLAIM, now)
        elif isinstance(thing, PersistentVolume):
            volumes.remove_volume(thing.metadata.name) if gone else volumes.put_volume(thing)
            self._volumes_changed(Wake.VOLUME, now)
        elif isinstance(thing, StorageClass):
            volumes.remove_class(thing.metadata.name) if gone else volumes.put_class(thing)
            self._volumes_changed(Wake.STORAGE_CLASS, now)
        elif isinstance(thing, CsiNode):
            drivers = volumes.limited_drivers()
            volumes.remove_csi_node(thing.metadata.name) if gone else volumes.put_csi_node(thing)
            if volumes.limited_drivers() != drivers:
                cache.refresh_all_volume_limits()
            else:
                cache.refresh_volume_limits(thing.metadata.name)
            self.queue.wake(Wake.CSI_NODE, now)

    def volumes_unreadable(self, reason: str, now: float) -> None:
        """Claims cannot be read, or ("") can be again: pods with claims say so instead of missing them."""
        if reason != self.cache.volumes.unreadable:
            self.cache.volumes.unreadable = reason
            self._volumes_changed(Wake.CLAIM, now)

    def namespaces_unreadable(self, reason: str, now: float) -> None:
        """The same for namespaces and the selectors of them in pod affinity."""
        if reason != self.cache.namespaces_unreadable:
            self.cache.namespaces_unreadable = reason
            self.cache.invalidate_wants(lambda e: e.pod.spec.affinity is not None)
            self.queue.wake(Wake.ANY, now)

    def _volumes_changed(self, wake: Wake, now: float) -> None:
        self.cache.invalidate_wants(lambda e: bool(e.pod.spec.volumes))
        self.queue.wake(wake, now)

    def use_catalogue(self, catalogue: Catalogue, now: float) -> None:
        """New profiles."""
        self.cache.use_catalogue(catalogue)
        self.inputs.worlds.use_catalogue(self.cache.catalogue)
        self.queue.wake(Wake.PROFILES, now)
        self.queue.wake(Wake.ANY, now)

    # Rounds

    def activate(self) -> list[Instruction | ReadPod]:
        """All caches are synced and we lead: rounds may be decided from now on.

        What the leader before us had bound and not resized yet is resized now.
        """
        self.active = True
        out: list[Instruction | ReadPod] = []
        for entry in self.cache.pods.values():
            if entry.node:
                out += self._start_resize(entry)
        return out

    def next_round_s(self, now: float) -> float | None:
        """When the next round should begin, or None while nothing calls for one.

        A short window lets pods that are created together be decided together.
        """
        if not self.active or self.round_running:
            return None
        wake = self.queue.next_wake(now)
        if wake is None:
            self._first_active_s = None
            return None
        if wake > now:
            self._first_active_s = None
            return wake
        if self._first_active_s is None:
            self._first_active_s = now
        rounds = self.configuration.rounds
        if self.queue.sizes()["active"] >= rounds.batch_limit:
            return now
        # Rounds that take long come seldom, so that they leave most of the time to watches and bindings.
        window = max(rounds.batch_window_s, min(_IDLE_SHARE * self._round_took_s, _LONGEST_WINDOW_S))
        return max(now, self._first_active_s + window)

    def begin_round(self, now: float, keep_record: bool = True) -> tuple[RoundInput | None, list[Instruction]]:
        """Take the waiting pods out of the queue and write down all that the round may know.

        Pods that no node could take, whatever is free, are answered here. None if no pod is left for a round.
        """
        self._first_active_s = None
        taken = [e for key in self.queue.take(now) if (e := self.cache.pods.get(key.uid)) is not None and e.key == key]
        taken = [e for e in taken if not e.place]
        self.rounds += 1
        out: list[Instruction] = [told for entry in taken for told in self._advise_of(entry, now)]
        fit, blocked = self.inputs.sort(taken, self.queue, now)
        for entry, message, causes in blocked:
            self._attempted(entry, "unschedulable", 0.0)
            out += self._hold(entry, Fate.UNSCHEDULABLE, message, causes, now)
        fit, late = self.inputs.affordable(fit)
        for entry in late:
            self.queue.put_back(entry.key)
        if not fit:
            return None, out
        self.round_running = True
        given = self.round_input(fit, now, keep_record)
        return given, out

    def round_input(self, entries: Sequence[PodEntry], now: float, keep_record: bool = False) -> RoundInput:
        """All that a round may know that decides on some pods; nothing changes."""
        return self.inputs.build(
            entries,
            now,
            number=self.rounds,
            plan=tuple(self._plan.values()),
            reservations=self._reservations,
            held_node=self._held_node,
            keep_record=keep_record,
            rounds_waited={e.key.uid: e.attempts + self._rounds_before(e.key) for e in entries},
        )

    def _rounds_before(self, key: PodKey) -> int:
        """Rounds that have taken a waiting pod, without the one that has it now."""
        return self.queue.attempts(key) - (self.queue.place(key) is Place.IN_FLIGHT)

    def end_round(self, result: RoundResult, now: float, seconds_taken: float = 0.0) -> list[Instruction]:
        """Check every placement against the cluster as it is now, assume it, and say what to do."""
        self.round_running = False
        self._round_took_s = seconds_taken
        self._plan = {p.task: p for p in result.plan}
        self._reservations = result.reservations
        out: list[Instruction] = []
        sound, broken = self._still_sound(result.chosen)
        for chosen in sound:
            entry = self.cache.pods[chosen.uid]
            self._attempted(entry, "scheduled", seconds_taken)
            out += self._commit(entry, chosen, result.number, now)
        for uid in broken:
            late = self.cache.pods.get(uid)
            if late is not None:
                self._attempted(late, "error", seconds_taken)
                self.queue.requeue(late.key, now, Outcome.RETRY)
        evictions: list[Instruction] = []
        told: dict[str, tuple[str, str | None]] = {}
        if self.configuration.features.preemption:
            evictions, told = self._preempt(result.held, {i.pod.uid for i in out if isinstance(i, Bind)}, now)
            out = [i for i in out if not (isinstance(i, Bind) and self.outdated(i))]
        for held in result.held:
            for uid in held.uids:
                waiting = self.cache.pods.get(uid)
                if waiting is None or waiting.place:
                    continue
                ended = "error" if held.fate is Fate.ERROR else "unschedulable"
                self._attempted(waiting, ended, seconds_taken)
                message, nominated_node = told.get(uid, (held.message, None))
                out += self._hold(waiting, held.fate, message, held.causes, now, nominated_node)
        # Room that the round had given to pods that did not take it was refused to those who are held.
        placed = {chosen.uid for chosen in sound}
        for chosen in result.chosen:
            if chosen.uid not in placed:
                self._room_on(chosen.node, now, frozenset((*chosen.holds, *chosen.joins)))
        out += self._group_statuses(result)
        out += evictions
        self._hold_node_for_due(result.held, now)
        return out

    def round_failed(self, given: RoundInput, message: str, now: float) -> list[Instruction]:
        """A fault of ours: the round's pods are tried again after a backoff, and say so."""
        self.round_running = False
        out: list[Instruction] = []
        for c in given.classes:
            for uid in c.uids:
                entry = self.cache.pods.get(uid)
                if entry is not None and not entry.place:
                    self._attempted(entry, "error", 0.0)
                    out += self._tell(entry, names.SCHEDULER_ERROR, message, now)
                    self.queue.requeue(entry.key, now, Outcome.ERROR)
        return out

    def _still_sound(self, chosen: Sequence[Chosen]) -> tuple[list[Chosen], list[str]]:
        """Placements that still hold, after whatever happened while the round was running.

        All of a group or none: when too few of a group's placements hold, the others are taken back as well.
        """
        sound: list[Chosen] = []
        broken: list[str] = []
        by_group: dict[object, list[Chosen]] = {}
        order: list[Chosen] = []
        eligible: dict[Hashable, NDArray[np.bool_]] = {}
        for c in chosen:
            entry = self.cache.pods.get(c.uid)
            if entry is None:
                continue
            group = self.gangs.ref(entry)
            if group is None:
                order.append(c)
            else:
                by_group.setdefault(group, []).append(c)
        for members in by_group.values():
            booked = [c for c in members if self._book(c, eligible)]
            minimum = self.gangs.missing(members[0].uid)
            if len(booked) < minimum:
                for c in booked:
                    self.cache.fleet.release(c.uid)
                broken += [c.uid for c in members]
            else:
                sound += booked
                kept = {c.uid for c in booked}
                broken += [c.uid for c in members if c.uid not in kept]
        for c in order:
            if self._book(c, eligible):
                sound.append(c)
            else:
                broken.append(c.uid)
        return sound, broken

    def _book(self, c: Chosen, eligible: dict[Hashable, NDArray[np.bool_]]) -> bool:
        """Book a placement in the fleet if it still holds; :meth:`_commit` makes it whole.

        ``eligible``: nodes that spreads compare by key of the static filter, kept for all placements of a round.
        """
        cache = self.cache
        entry = cache.pods[c.uid]
        node = cache.nodes.get(c.node)
        pod = entry.pod
        if (
            node is None
            or entry.place
            or pod.metadata.deletion_timestamp is not None
            or pod.spec.scheduling_gates
            or entry.key not in self.queue
        ):
            return False
        if pod.spec.volumes:
            # Another pod of this round may have taken a claim that admits one pod at a time.
            entry.wants = None
        wants = cache.wants(entry)
        if wants.problem is not None or wants.filter.verdict(node.node) is not None:
            return False
        needs = {**entry.needs, "cpu": max(c.width_milli or 0, entry.request_milli)}
        if not cache.fits_on(needs, c.node):
            return False
        if wants.holds or wants.joins:
            key = wants.filter.key
            if key not in eligible:
                eligible[key] = self.inputs.eligible(wants)
            if not cache.fleet.permits_on(wants.holds, wants.joins, c.node, eligible[key]):
                return False
        cache.fleet.book(c.uid, c.node, needs, holds=wants.holds, joins=wants.joins)
        return True

    def _commit(self, entry: PodEntry, c: Chosen, number: int, now: float) -> list[Instruction]:
        cache = self.cache
        width = c.width_milli or entry.request_milli
        threads, cores = self._share(entry, c)
        entry.attempts += self.queue.attempts(entry.key)
        self.queue.done(entry.key)
        self.postponed.discard(c.uid)
        cache.assume(entry, c.node, width, threads, cores, now)
        self._held_node_free(c.uid, now)
        nominated = cache.nominated.get(c.uid, c.node)
        if nominated != c.node:
            self._room_on(nominated, now)
        if entry.pod.spec.volumes and not cache.volumes.settled(entry.pod):
            patches = cache.volumes.selected_node_patches(entry.pod, cache.nodes[c.node].node)
            if isinstance(patches, str):
                cache.forget(entry)
                self._room_on(c.node, now, cache.relations_of(entry))
                self._requeue(entry, now)
                return self._tell(entry, names.UNSCHEDULABLE, patches, now)
            cache.volumes.assume(patches)
            self._claims[c.uid] = (c, patches)
            return [PatchClaim(entry.key, patch) for patch in patches]
        return [self._bind(entry, c, number, width, threads, cores)]

    def _bind(self, entry: PodEntry, c: Chosen, number: int, width: int, threads: int, cores: tuple[int, ...]) -> Bind:
        self._binding.add(c.uid)
        notes = {
            names.PLACEMENT: placement_note(c, number),
            names.THREADS: str(threads),
            names.WIDTH: f"{width}m",
        }
        if cores:
            notes[names.CORES] = format_cores(cores)
        return Bind(entry.key, c.node, notes)

    def _share(self, entry: PodEntry, c: Chosen) -> tuple[int, tuple[int, ...]]:
        """Threads and cores of a placement: what the search said, a service's own cores, or all that are open."""
        if c.threads is not None and c.cores is not None:
            return c.threads, c.cores
        cache = self.cache
        open_cores = cache.free_cores(c.node)
        wish = cache.service_wish(entry)
        if wish is not None:
            return self.inputs.service_threads(wish, entry), open_cores[: wish.core_count]
        count = max(1, len(open_cores))
        allowed = [t for t in entry.intent.threads if t <= count]
        if entry.intent.threads:
            return (max(allowed) if allowed else min(entry.intent.threads)), open_cores
        if entry.intent.profile is not None:
            return cache.catalogue.jobs[entry.intent.profile].threads_for(count), open_cores
        return max(1, -(-entry.request_milli // 1000)), open_cores

    # Those who wait

    def _attempted(self, entry: PodEntry, result: str, seconds_taken: float) -> None:
        self.tallies.attempts.append((result, seconds_taken, entry.pod.spec.scheduler_name))

    def _hold(
        self,
        entry: PodEntry,
        fate: Fate,
        message: str,
        causes: frozenset[Cause],
        now: float,
        nominated_node: str | None = None,
    ) -> list[Instruction]:
        like = entry.wants.class_key if entry.wants is not None else None
        if fate is Fate.POSTPONED:
            self.postponed.add(entry.key.uid)
            self.queue.requeue(entry.key, now, Outcome.POSTPONED, causes=causes, like=like)
            event = self.recorder.postponed(entry.key, message, now)
            return [event] if event is not None else []
        self.postponed.discard(entry.key.uid)
        if fate is Fate.ERROR:
            self.queue.requeue(entry.key, now, Outcome.ERROR)
            return self._tell(entry, names.SCHEDULER_ERROR, message, now)
        self.queue.requeue(entry.key, now, Outcome.UNSCHEDULABLE, causes=causes, like=like)
        return self._tell(entry, names.UNSCHEDULABLE, message, now, nominated_node=nominated_node)

    def _tell(
        self, entry: PodEntry, reason: str, message: str, now: float, nominated_node: str | None = None
    ) -> list[Instruction]:
        """Condition and event of an attempt that failed, as far as they say something new."""
        pod = entry.pod
        entry.message = message
        current = next((c for c in pod.status.conditions or () if c.type == names.POD_SCHEDULED), None)
        patch = self.recorder.condition(
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
        event = self.recorder.failed(entry.key, message, now)
        return [told for told in (patch, event) if told is not None]

    def condition_failed(self, patch: PatchCondition, now: float) -> None:
        """A condition could not be written; it is tried again, as autoscalers go by it."""
        self._untold.setdefault(patch.pod.uid, (now, patch.reason))

    def retell(self, now: float) -> list[Instruction]:
        """Tell waiting pods what they were not told when it was new, because something else had just been said."""
        out: list[Instruction] = []
        for uid, (since, reason) in list(self._untold.items()):
            entry = self.cache.pods.get(uid)
            if entry is None or entry.place or uid in self.postponed:
                del self._untold[uid]
            elif now - since >= _RETELL_S:
                del self._untold[uid]
                out += self._tell(entry, reason, entry.message, now)
        return out

    def _advise_of(self, entry: PodEntry, now: float) -> list[Instruction]:
        """What of a waiting pod's annotations cannot be used, once; what a standby saw is said when it leads."""
        problems = entry.intent.problems
        if not self.active or problems == entry.advised:
            return []
        entry.advised = problems
        return self._advise(entry.key, "; ".join(problems), now) if problems else []

    def _advise(self, key: PodKey, message: str, now: float) -> list[Instruction]:
        """An event about something that a pod says and that cannot be used; it is scheduled all the same."""
        event = self.recorder.event(key, names.FAILED_SCHEDULING, "Warning", "Scheduling", message, now)
        return [event] if event is not None else []

    def _preempt(
        self, held: Sequence[Held], unsent: set[str], now: float
    ) -> tuple[list[Instruction], dict[str, tuple[str, str | None]]]:
        """Evictions; and by uid of a preemptor what it is told, once for the whole attempt, and its nomination.

        ``unsent``: pods that this round has just placed. They give their place back instead of being deleted.
        """
        out: list[Instruction] = []
        told: dict[str, tuple[str, str | None]] = {}
        going: set[str] = set()
        self.victims.look()
        for h in held:
            if h.fate is not Fate.UNSCHEDULABLE or Cause.RESOURCES not in h.causes or Cause.GROUP in h.causes:
                continue
            # One of a class at a time: what its victims leave shows whether the next one needs any.
            for uid in h.uids[:1]:
                entry = self.cache.pods.get(uid)
                if entry is None or entry.place or self._room_is_coming(uid, now):
                    continue
                plan = self.victims.plan(entry, self.inputs.verdicts_of(entry), going)
                if isinstance(plan, str):
                    self.tallies.victims.append(0)
                    message = f"{h.message} preemption: {plan}".strip()
                    # A nomination that came to nothing holds room from others no longer.
                    told[uid] = message, "" if entry.nominated else None
                    continue
                if not plan.victims:
                    # Room has come while the round ran, and wakes it.
                    continue
                self.tallies.victims.append(len(plan.victims))
                evicted = [victim for victim in plan.victims if victim.uid not in unsent]
                for victim in plan.victims:
                    if victim.uid in unsent:
                        self._withdraw(victim.uid, unsent, now)
                self._victims[uid] = {victim.uid for victim in evicted}
                going |= self._victims[uid]
                for victim in evicted:
                    text = f"Preempted by pod {entry.key.uid} ({entry.key}) on node {plan.node}"
                    out.append(Evict(victim, text))
                    event = self.recorder.preempted(victim, text, now)
                    out += [event] if event is not None else []
                message = f"{h.message} preemption: {len(plan.victims)} pod(s) on {plan.node} make room.".strip()
                told[uid] = message, plan.node
                self.inputs.nominate(entry, plan.node)
        return out, told

    def _withdraw(self, uid: str, unsent: set[str], now: float) -> None:
        """Take back a place that nobody outside has heard of, and those of all of its group."""
        group = self.gangs.ref(self.cache.pods[uid])
        for other in (
            [uid] if group is None else sorted(u for u in unsent if self.gangs.ref(self.cache.pods[u]) == group)
        ):
            entry = self.cache.pods[other]
            node = entry.assumed
            if node:
                self._binding.discard(other)
                self.cache.forget(entry)
                self._room_on(node, now, self.cache.relations_of(entry))
                self._requeue(entry, now)

    def _room_is_coming(self, uid: str, now: float) -> bool:
        """Whether a preemption is still making room for a pod. Once its victims are gone and it does not fit, it is over."""
        node = self.cache.nodes.get(self.cache.nominated.get(uid, ""))
        victims = self._victims.get(uid, set()) & self.cache.pods.keys()
        leaving = [] if node is None else [self.cache.pods[p].pod.metadata.deletion_timestamp for p in node.pods]
        if node is not None and (victims or any(leaving)):
            return True
        self._victims.pop(uid, None)
        nominated = self.cache.nominated.pop(uid, None)
        if nominated is not None:
            self._room_on(nominated, now)
        return False

    def _held_node_free(self, uid: str, now: float) -> None:
        """The pod that a node drained for needs it no longer: what is free there is for everybody."""
        if self._held_node is not None and self._held_node[0] == uid:
            node = self._held_node[1]
            self._held_node = None
            self._room_on(node, now)

    def _hold_node_for_due(self, held: Sequence[Held], now: float) -> None:
        """The earliest pod that has waited longer than the due age for room gets a node that drains for it."""
        if self._held_node is not None:
            entry = self.cache.pods.get(self._held_node[0])
            if entry is not None and not entry.place and self.inputs.drains_for(entry, self._held_node[1]):
                return
            self._held_node = None
        for reservation in self._reservations:
            waiting = self.cache.pods.get(reservation.task)
            if reservation.machine in self.cache.nodes and waiting is not None:
                self._held_node = (reservation.task, reservation.machine, self._holding_priority(waiting.priority))
                return
        due = self.configuration.engine.due_age_s
        candidates = [
            e
            for h in held
            if h.fate is Fate.UNSCHEDULABLE and Cause.RESOURCES in h.causes and Cause.GROUP not in h.causes
            for uid in h.uids
            if (e := self.cache.pods.get(uid)) is not None and not e.place and now - e.waits_since_s > due
        ]
        crosses = self.configuration.engine.aging_crosses_priority
        for entry in sorted(candidates, key=lambda e: (0 if crosses else -e.priority, e.waits_since_s, e.key)):
            node = self.inputs.drain_candidate(entry)
            if node is not None:
                self._held_node = (entry.key.uid, node, self._holding_priority(entry.priority))
                return

    def _holding_priority(self, priority: int) -> int:
        """Pods of a higher priority than this may use a node that is held for a due pod."""
        return _NOBODY_HIGHER if self.configuration.engine.aging_crosses_priority else priority

    def _group_statuses(self, result: RoundResult) -> list[Instruction]:
        """In-tree groups hear whether they have been scheduled; a few words for each, when they change."""
        messages = {uid: held.message for held in result.held for uid in held.uids}
        messages.update({chosen.uid: "" for chosen in result.chosen})
        found: dict[GroupRef, str] = {}
        for uid, message in messages.items():
            entry = self.cache.pods.get(uid)
            ref = None if entry is None else self.gangs.ref(entry)
            if ref is not None:
                found[ref] = found.get(ref) or message
        told = (self.gangs.status(ref, message) for ref, message in found.items())
        return [status for status in told if status is not None]

    # Bindings

    def outdated(self, bind: Bind) -> str | None:
        """Why a binding that was decided must not be sent any more, by what is known by now; None if it may.

        The API server binds to a node that does not exist as well.
        """
        entry = self.cache.pods.get(bind.pod.uid)
        if entry is None or entry.pod.metadata.deletion_timestamp is not None:
            return "the pod is deleted"
        if entry.node or entry.assumed != bind.node:
            return f"the pod is on {entry.node}" if entry.node else "its place was given back"
        if bind.node not in self.cache.nodes:
            return f"node {bind.node} is gone"
        return None

    def bind_done(self, key: PodKey, outcome: BindOutcome, message: str, now: float) -> list[Instruction | ReadPod]:
        """A binding ended."""
        self.tallies.binds[outcome.value] += 1
        entry = self.cache.pods.get(key.uid)
        if entry is None:
            return []
        if outcome is BindOutcome.DRY:
            self._bound(entry, now)
            return []
        if outcome is BindOutcome.BOUND:
            if not entry.node:
                self._unconfirmed.append((now + _CONFIRM_S, key))
            return list(self._bound(entry, now))
        if outcome is BindOutcome.LOST:
            # Should reading fail as well, it is read again later.
            self._unconfirmed.append((now + _CONFIRM_S, key))
            return [ReadPod(key)]
        self._binding.discard(key.uid)
        if entry.node:
            return []
        node = entry.assumed
        self.cache.forget(entry)
        self._room_on(node, now, self.cache.relations_of(entry))
        if outcome is BindOutcome.GONE:
            # The watch will say so as well; until then nobody else takes it for a pod.
            return []
        self._requeue(entry, now)
        if outcome is BindOutcome.REFUSED:
            text = f"binding to {node} was refused: {message}"
            return list(self._tell(entry, names.SCHEDULER_ERROR, text, now))
        return []

    def pod_read(self, key: PodKey, pod: Pod | None, now: float) -> list[Instruction | ReadPod]:
        """The answer to a :class:`ReadPod`; None for a pod that is not there any more (or another one of its name)."""
        entry = self.cache.pods.get(key.uid)
        if entry is None:
            return []
        if pod is None or pod.metadata.uid != key.uid:
            self.cache.remove_pod(key.uid)
            self._removed(entry, entry.pod, now)
            return []
        if pod.spec.node_name:
            first = not entry.node
            ours = entry.assumed == pod.spec.node_name
            out = self._pod_seen(pod, now)
            return [*out, *(self._bound(entry, now) if first and ours else ())]
        self._binding.discard(key.uid)
        if entry.assumed:
            self.cache.forget(entry)
            self._requeue(entry, now)
        return []

    def overdue(self, now: float) -> list[ReadPod]:
        """Bindings that no watch has confirmed for too long."""
        found = []
        while self._unconfirmed and self._unconfirmed[0][0] <= now:
            _, key = self._unconfirmed.popleft()
            entry = self.cache.pods.get(key.uid)
            if entry is not None and entry.assumed and not entry.node:
                found.append(ReadPod(key))
                self._unconfirmed.append((now + _CONFIRM_S, key))
        return found

    def _bound(self, entry: PodEntry, now: float) -> list[Instruction]:
        self._binding.discard(entry.key.uid)
        self.tallies.bound.append((max(0.0, now - entry.waits_since_s), max(1, entry.attempts)))
        place = entry.place
        return [self.recorder.scheduled(entry.key, place)] if place else []

    def _requeue(self, entry: PodEntry, now: float) -> None:
        """A pod that had left the queue is back, behind a backoff."""
        if entry.pod.metadata.deletion_timestamp is not None:
            return
        self.queue.restore(entry.key, now, priority=entry.priority, created_s=entry.created_s, failures=entry.attempts)

    def eviction_failed(self, key: PodKey, message: str, now: float) -> list[Instruction]:
        """A victim stays: nobody waits for its room any more, and who did hears why."""
        out: list[Instruction] = []
        for uid, victims in self._victims.items():
            entry = self.cache.pods.get(uid)
            if key.uid in victims and entry is not None and not entry.place:
                text = f"{entry.message} {key} could not be evicted: {message}"
                out += self._tell(entry, names.UNSCHEDULABLE, text, now)
            victims.discard(key.uid)
        return out

    # Volumes that are made for a pod

    def claims_settled(self, now: float) -> list[Instruction]:
        """Bind the pods whose volumes are there by now; take back those whose volumes never came."""
        out: list[Instruction] = []
        for uid, (c, _) in list(self._claims.items()):
            entry = self.cache.pods.get(uid)
            if entry is None or entry.node:
                del self._claims[uid]
            elif self.cache.volumes.settled(entry.pod):
                del self._claims[uid]
                out.append(self._bind(entry, c, self.rounds, entry.width_milli, entry.threads, entry.cores))
            elif now - entry.assumed_s > _VOLUMES_S:
                out += self.claim_failed(entry.key, f"were not made for {c.node} within {_VOLUMES_S:.0f} s", now)
        return out

    def claim_failed(self, key: PodKey, message: str, now: float) -> list[Instruction]:
        """A claim of a pod could not be prepared: its place is given back and the pod tried again."""
        found = self._claims.pop(key.uid, None)
        entry = self.cache.pods.get(key.uid)
        if found is None or entry is None or entry.node:
            return []
        self.cache.volumes.forget(found[1])
        self.cache.forget(entry)
        self._room_on(found[0].node, now, self.cache.relations_of(entry))
        self._requeue(entry, now)
        return self._tell(entry, names.UNSCHEDULABLE, f"its volumes {message}", now)

    # In-place resize

    def _start_resize(self, entry: PodEntry) -> list[Instruction]:
        """Ask for the chosen width once the pod is on its node; until the API server agrees, both are held."""
        if not (self.active and self.configuration.features.resize and entry.ours and entry.intent.widths_milli):
            return []
        wanted = _width(entry.pod)
        request = entry.request_milli
        if wanted is None or wanted == request or len(entry.pod.spec.containers) != 1:
            return []
        uid = entry.key.uid
        if uid in self._resizing:
            return []
        self._resizing[uid] = wanted
        self.cache.hold_width(entry, max(wanted, request))
        return [Resize(entry.key, {entry.pod.spec.containers[0].name: wanted})]

    def _finish_resize(self, entry: PodEntry) -> None:
        wanted = self._resizing.get(entry.key.uid)
        if wanted is not None and entry.request_milli == wanted:
            del self._resizing[entry.key.uid]
            self.cache.hold_width(entry, wanted)

    def resize_done(self, key: PodKey, accepted: bool, message: str, now: float) -> list[Instruction]:
        """The API server answered a resize. A refused one leaves the pod at its request."""
        entry = self.cache.pods.get(key.uid)
        if entry is None or accepted:
            return []
        self._resizing.pop(key.uid, None)
        self.cache.hold_width(entry, entry.request_milli)
        self._room_on(entry.place, now)
        return self._advise(key, f"its CPU request was not resized: {message}", now)

    def tidy(self) -> None:
        """Let go of what nobody needs any more; for a slow timer, between rounds."""
        if not self.round_running:
            self.cache.forget_relations()

    # For people

    def dump(self, now: float) -> dict[str, Any]:
        """The state as plain data, for SIGUSR2 and ``/debug/state``."""
        cache = self.cache
        return {
            "active": self.active,
            "rounds": self.rounds,
            "round_running": self.round_running,
            "nodes": {
                name: {
                    "type": node.type.name,
                    "allocatable": node.allocatable,
                    "pods": sorted(str(cache.pods[uid].key) for uid in node.pods),
                }
                for name, node in sorted(cache.nodes.items())
            },
            "nodes_outside": sorted(cache.others),
            "queue": self.queue.sizes(),
            "waiting": [
                {
                    "pod": str(e.key),
                    "uid": e.key.uid,
                    "queue": str(self.queue.place(e.key)),
                    "attempts": self.queue.attempts(e.key),
                    "age_s": round(now - e.created_s, 3),
                    "postponed": e.key.uid in self.postponed,
                    "message": e.message,
                }
                for e in sorted(cache.pods.values(), key=lambda e: e.key)
                if e.key in self.queue
            ],
            "assumed": {str(e.key): e.assumed for e in cache.pods.values() if e.assumed and not e.node},
            "binding": sorted(self._binding),
            "held_node": self._held_node,
            "plan": [replace(p).__dict__ for p in self._plan.values()],
        }

    def check(self) -> None:
        """Raise ``AssertionError`` if something that must always hold does not."""
        self.cache.check()
        fleet = self.cache.fleet
        for entry in self.cache.pods.values():
            if entry.place:
                assert entry.key not in self.queue, f"{entry.key} is on {entry.place} and waits"
        for name in self.cache.nodes:
            row = fleet.row(name)
            assert row is not None, f"{name} is not in the fleet"


_VOLUMES_S = 600.0
_RETELL_S = 10.0
"""As long as the recorder keeps quiet about a pod whose message changes."""
_REJECTIONS = ("NodeAffinity", "NodePorts", "UnexpectedAdmissionError")
"""Reasons of kubelets that refuse a pod, besides those that begin with OutOf and name a resource."""


def _width(pod: Pod) -> int | None:
    text = (pod.metadata.annotations or {}).get(names.WIDTH, "")
    digits = text.removesuffix("m")
    # Anybody may write annotations.
    return int(digits) if text != digits and digits.isascii() and digits.isdigit() and len(digits) <= 9 else None

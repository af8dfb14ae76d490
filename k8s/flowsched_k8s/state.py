"""The scheduler as a state machine: changes of the cluster in, instructions for the API server out.

No input or output happens here and no clock is read, so that every situation can be tested without a server. The adapter
(:mod:`flowsched_k8s.process`) feeds it, runs rounds in a thread and carries out what it says.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from flowsched.cluster.snapshot import PlannedStart
from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import Bindings, ReadPod
from flowsched_k8s.bindings.resizes import Resizes
from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Cause, Wake
from flowsched_k8s.changes import Change, Gone
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.events.event_recorder import EventRecorder
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.incomplete_gangs import IncompleteGangs
from flowsched_k8s.groups.pod_groups import GroupRef, is_whole, ref_of
from flowsched_k8s.instructions import Bind, Instruction, PatchClaim, PodKey
from flowsched_k8s.learning.learner import Learner
from flowsched_k8s.metrics.tallies import Tallies
from flowsched_k8s.notices.grant_notices import GrantNotices
from flowsched_k8s.notices.notices import Notices
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.notices.start_notices import StartNotices
from flowsched_k8s.objects import Budget, Namespace, Node, Pod, PodGroup, SucceededPod
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.readings import controller_of, same_annotations
from flowsched_k8s.pods.run_times import forecast_run_s
from flowsched_k8s.preemption.budgets import Budgets
from flowsched_k8s.preemption.evictions import Evictions
from flowsched_k8s.preemption.victims import Victims
from flowsched_k8s.queue import AttemptOutcome, Place, PodQueue
from flowsched_k8s.rebalancing.rebalancing import Rebalancing
from flowsched_k8s.rounds.bookings import Booking, Bookings
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.node_holds import NodeHolds
from flowsched_k8s.rounds.participants import Participants
from flowsched_k8s.rounds.round_input import Fate, RoundInput, RoundResult
from flowsched_k8s.rounds.start_forecasts import StartForecasts, job_text
from flowsched_k8s.rounds.suspects import Suspects
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
from flowsched_models.catalogue import Catalogue

_IDLE_SHARE = 4.0
"""The time between two rounds is at least so many times as long as the former took,"""
_LONGEST_PAUSE_S = 0.25
"""and at most so long for that reason."""
MOST_PODS = 5_000
"""Of a round; with a tenth of a millisecond for each before and after it on the event loop."""
MOST_LATER = 500
"""Of them those that found no room and are tried again with all others of which that is true, such as after five minutes,
and those that come and are like pods that wait: tens of thousands may wait for nodes that will never come, and others are
decided between them.
"""
MOST_LATER_KINDS = 32
"""And so many kinds: each costs a millisecond, and several where pods may be evicted for it; for more of them a round would
not plan (:data:`flowsched_k8s.preemption.victims.MOST_WORK`).
"""
_JUST_AFTER_S = 1e-3
_CLAIM_LISTS = ("persistentvolumeclaims", "persistentvolumes", "storageclasses")
"""What a pod with a claim cannot be placed without."""
_DRIVER_LISTS = ("csinodes", "csidrivers", "volumeattachments", "csistoragecapacities")
"""What else limits where it may go, in clusters that have it."""
_REJECTIONS = ("NodeAffinity", "NodePorts", "UnexpectedAdmissionError")
"""Reasons of kubelets that refuse a pod, besides those that begin with OutOf and name a resource."""


class SchedulerState:
    """See the module. Methods return instructions; the caller carries all of them out, in order."""

    def __init__(self, configuration: Configuration, catalogue: Catalogue, rng: random.Random | None = None) -> None:
        """An empty cluster; nothing is decided before :meth:`activate`. ``rng``: draws how long backoffs are."""
        self.configuration = configuration
        self.cache = Cache(configuration, catalogue)
        rounds = configuration.rounds
        self.queue = PodQueue(
            initial_backoff_s=configuration.pod_initial_backoff_s,
            max_backoff_s=configuration.pod_max_backoff_s,
            unschedulable_retry_s=rounds.unschedulable_retry_s,
            postpone_s=rounds.max_period_s,
            rng=rng,
        )
        self.recorder = Recorder()
        self.gangs = Gangs(
            self.cache,
            lambda nodes: self.victims.read_again(nodes),
            lambda ref: self.node_holds.are_for(ref),
        )
        self.inputs = InputBuilder(self.cache, self.gangs)
        learning = configuration.learning
        self.learner: Learner | None = None
        """None where nothing is learnt."""
        if learning != "off":
            self.learner = Learner(self.cache, self.inputs.occupied.course, applied=learning == "on")
        self.participants = Participants(self.cache, self.gangs, self.inputs)
        self.suspects = Suspects(self.cache, self.gangs)
        self.budgets = Budgets()
        self.victims = Victims(self.cache, self.inputs, self.gangs, self.budgets)
        self.bookings = Bookings(self.cache, self.gangs, self.queue, self.inputs)
        self.tallies = Tallies()
        self.wakeups = Wakeups(self.cache, self.queue, self.gangs)
        self.notices = Notices(self.cache, self.recorder)
        self.grant_notices = GrantNotices(self.cache, self.recorder)
        self.starts = StartForecasts(self.cache, self.gangs, self.tallies)
        self.start_notices = StartNotices(self.cache, self.starts, configuration.annotate_estimated_starts)
        self.node_holds = NodeHolds(self.cache, self.gangs, self.inputs, self.wakeups)
        self.resizes = Resizes(self.cache, self.wakeups, self.notices)
        self.bindings = Bindings(
            self.cache,
            self.queue,
            self.gangs,
            self.recorder,
            self.tallies,
            self.wakeups,
            self.notices,
            self.bookings,
        )
        self.evictions = Evictions(
            self.cache,
            self.queue,
            self.victims,
            self.recorder,
            self.tallies,
            self.wakeups,
            self.notices,
            self.bindings,
            self.gangs,
        )
        self.rebalancing = Rebalancing(
            self.cache,
            self.queue,
            self.gangs,
            self.inputs,
            self.budgets,
            self.evictions,
            self.recorder,
            self.tallies,
            self.round_input,
        )
        self.incomplete_gangs = IncompleteGangs(self.cache, self.gangs, self.queue, self.budgets, self.recorder)
        self.events: EventRecorder | None = None
        """Where it is told what happens, if it is recorded."""
        self.active = False
        self.rounds = 0
        self.round_running = False
        self.postponed: set[str] = set()
        """uids of pods that the last round they were in postponed."""
        self.plan: dict[str, PlannedStart] = {}
        """By uid, starts that the last round planned for later."""
        self._first_active_s: float | None = None
        self._long_round = False
        """Whether the last round took longer than a batch is gathered."""
        self._pause_until_s = 0.0
        """Rounds that take long come seldom, so that they leave most of the time to watches and bindings."""

    # Changes

    def observe(self, changes: Iterable[Change], now: float) -> list[Instruction | ReadPod]:
        """Take note of what the watches told."""
        out: list[Instruction | ReadPod] = []
        for change in changes:
            thing = change.object
            gone = isinstance(change, Gone)
            if isinstance(thing, Pod) and gone:
                self._pod_gone(thing, now)
            elif isinstance(thing, Pod):
                out += self._pod_seen(thing, now)
            elif isinstance(thing, Node):
                out += self._node(thing, gone, now)
            else:
                self._other(thing, gone, now)
        return out

    def _pod_seen(self, pod: Pod, now: float) -> list[Instruction | ReadPod]:
        uid = pod.metadata.uid
        old = self.cache.pods.get(uid)
        was = (old.node, old.assumed, old.pod) if old is not None else ("", "", None)
        before = dict(old.needs, cpu=old.width_milli) if old is not None else {}
        wanted = old.needs if old is not None else {}
        nominated = self.cache.nominated.get(uid)
        entry = self.cache.put_pod(pod, now)
        if entry is None:
            if old is not None:
                self._removed(old, pod, now)
            return []
        self.gangs.see(entry)
        if old is None and self.learner is not None:
            self.learner.came(entry, now)
        out: list[Instruction | ReadPod] = []
        if entry.node:
            if not was[0]:
                self.queue.remove(entry.key)
                self.suspects.forget(uid)
                self.bindings.forget(uid)
                self.postponed.discard(uid)
                self.node_holds.let_go(uid, now)
                if was[1] and was[1] != entry.node:
                    self.tallies.binds["elsewhere"] += 1
                self.queue.wake(Wake.POD_PLACED, now)
                self.evictions.joined_by(entry, now)
                self.recorder.forget(entry.key)
                if self.active:
                    out += self.resizes.start(entry)
            elif (was[2] is not None and was[2].metadata.labels != pod.metadata.labels) or any(
                held > (entry.width_milli if r == "cpu" else entry.needs.get(r, 0)) for r, held in before.items()
            ):
                self.queue.wake(Wake.POD_CHANGED, now)
                self.evictions.joined_by(entry, now)
            elif entry.needs != wanted:
                self.evictions.joined_by(entry, now)
            self.starts.seen(entry, was[2], now)
            if self.active:
                out += self.grant_notices.of(entry, now)
            self.resizes.seen(entry)
            self.rebalancing.seen(entry, now)
            if was[2] is None or was[2].metadata.deletion_timestamp != pod.metadata.deletion_timestamp:
                self.evictions.leaves(entry, now)
                self._group_changed(self.gangs.ref(entry), now)
            return out
        if nominated is not None and uid not in self.cache.nominated:
            self.wakeups.room_on(nominated, now)
        if not entry.ours:
            return out
        group = self.gangs.ref(entry)
        if pod.metadata.deletion_timestamp is not None:
            self.queue.remove(entry.key)
            if was[2] is None or was[2].metadata.deletion_timestamp is None:
                # A finalizer may keep it for long: nothing is held for it.
                self.bindings.give_back(entry, now)
                self.evictions.forget(uid)
                self.node_holds.let_go(uid, now)
                self.plan.pop(uid, None)
                self.starts.waits_no_longer(uid)
                self.postponed.discard(uid)
                self._group_changed(group, now)
            return out
        gated = bool(pod.spec.scheduling_gates)
        known = entry.key in self.queue
        if not known and not entry.assumed:
            self.queue.add(entry.key, priority=entry.priority, created_s=entry.created_s, gated=gated)
        elif known:
            if gated:
                self.queue.gate(entry.key)
            else:
                if self.queue.place(entry.key) is Place.GATED:
                    entry.ungated_s = now
                self.queue.ungate(entry.key)
            if was[2] is not None and (
                was[2].spec != pod.spec
                or was[2].metadata.labels != pod.metadata.labels
                or not same_annotations(was[2].metadata, pod.metadata)
            ):
                entry.wants = None
                self.queue.touch(entry.key, now)
        self.start_notices.seen(entry)
        if self.active:
            # What a standby sees is said when it leads.
            out += self.notices.advise_of(entry, now)
        fresh = was[2] is None or was[2].spec != pod.spec or was[2].metadata.labels != pod.metadata.labels
        if fresh:
            self._group_changed(group, now)
        return out

    def _group_changed(self, group: GroupRef | None, now: float) -> None:
        """Members that wait are looked at anew: others have come, are gone, or have succeeded."""

        def is_member(key: PodKey) -> bool:
            entry = self.cache.pods.get(key.uid)
            return entry is not None and self.gangs.ref(entry) == group

        if group is not None and self.gangs.waiting(group):
            self.queue.wake(Wake.GROUP, now, is_member)

    def _pod_gone(self, pod: Pod, now: float) -> None:
        entry = self.cache.pods.get(pod.metadata.uid)
        if entry is not None:
            self.cache.remove_pod(entry.key.uid)
            self._removed(entry, pod, now)

    def _removed(self, entry: PodEntry, last: Pod, now: float) -> None:
        uid = entry.key.uid
        if self.events is not None:
            self.events.task_gone(uid, now)
        if self.learner is not None:
            self.learner.gone(entry, now)
        self.queue.remove(entry.key)
        self.suspects.forget(uid)
        self.recorder.forget(entry.key)
        group = self.gangs.ref(entry)
        self.gangs.forget(entry)
        self._group_changed(group, now)
        self.bindings.forget(uid)
        self.resizes.forget(uid)
        self.evictions.forget(uid)
        self.rebalancing.forget(uid)
        self.plan.pop(uid, None)
        self.starts.gone(entry, last, now)
        self.postponed.discard(uid)
        self.node_holds.let_go(uid, now)
        reason = last.status.reason
        if entry.ours and last.status.phase == "Failed" and (reason in _REJECTIONS or reason.startswith("OutOf")):
            self.tallies.rejections[reason] += 1
        if entry.place or entry.nominated:
            self.wakeups.left(entry, entry.place or entry.nominated, now)

    def _node(self, node: Node, gone: bool, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        name = node.metadata.name
        before = self.cache.nodes.get(name)
        was = (before.version, before.allocatable) if before is not None else None
        event = self.cache.remove_node(name) if gone else self.cache.put_node(node)
        if event == "NodeAdd":
            self.queue.wake(Wake.NODE_ADDED, now)
        elif event == "NodeRemove":
            self.inputs.occupied.forget(name)
            if self.events is not None:
                self.events.machine_gone(name, now)
            self.node_holds.node_gone(name, now)
            self.queue.wake(Wake.NODE_REMOVED, now)
            out += self.evictions.node_gone(name, now)
        elif event == "NodeUpdate":
            for wake in (Wake.NODE_ALLOCATABLE, Wake.NODE_LABELS, Wake.NODE_TAINTS):
                self.queue.wake(wake, now)
        after = self.cache.nodes.get(name)
        if was is not None and after is not None and was != (after.version, after.allocatable):
            # Less room than before, or a taint, helps no pod that waits, but may end what is promised to one.
            self.evictions.reconsider(now, "NodeUpdate", lambda _, nominated: nominated == name)
        if event in ("NodeAdd", "NodeUpdate"):
            for member in self.gangs.try_anew(now):
                self.queue.touch(member.key, now, event)
        return out

    def _other(self, thing: object, gone: bool, now: float) -> None:
        cache = self.cache
        volumes = cache.volumes
        if isinstance(thing, Namespace):
            cache.remove_namespace(thing.metadata.name) if gone else cache.put_namespace(thing.metadata)
            self.queue.wake(Wake.NAMESPACE, now)
            self.evictions.reconsider(now, Wake.NAMESPACE, lambda entry, _: entry.pod.spec.affinity is not None)
        elif isinstance(thing, PodGroup):
            before = cache.groups.get(ref_of(thing))
            cache.groups.remove(thing) if gone else cache.groups.put(thing)
            if is_whole(thing) or (before is not None and is_whole(before)):
                self.victims.read_again()
            self.queue.wake(Wake.GROUP, now)
        elif isinstance(thing, SucceededPod):
            group = cache.groups.remove_succeeded(thing) if gone else cache.groups.put_succeeded(thing)
            self._group_changed(group, now)
        elif isinstance(thing, Budget):
            self.budgets.remove(thing) if gone else self.budgets.put(thing)
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
            self.queue.wake(Wake.CSI_NODE, now)
            self.evictions.reconsider(now, Wake.CSI_NODE, lambda _, node: node == thing.metadata.name)
        elif isinstance(thing, VolumeAttachment):
            volumes.attached.remove(thing) if gone else volumes.attached.put(thing)
            cache.refresh_volume_limits(thing.spec.node_name)
            self.evictions.reconsider(now, Wake.CSI_NODE, lambda _, node: node == thing.spec.node_name)
            if gone:
                self.queue.wake(Wake.CSI_NODE, now)

    def _volumes_changed(self, wake: Wake, now: float) -> None:
        self.wakeups.volumes_changed(wake, now)
        self.evictions.reconsider(now, wake, lambda entry, _: bool(entry.pod.spec.volumes))

    def lists_unreadable(self, refused: Mapping[str, str], failing: Mapping[str, str], now: float) -> None:
        """Which lists cannot be read, by name with the reason: pods that need one say so, instead of being placed by guess.

        ``refused``: the server has no such API, or does not let us read it; where a cluster may do without it, it counts as
        empty. ``failing``: what there is will be known.
        """
        failing = {name: f"{name} cannot be listed: {why}" for name, why in failing.items()}
        either = {**refused, **failing}
        volumes = [either[n] for n in _CLAIM_LISTS if n in either] + [failing[n] for n in _DRIVER_LISTS if n in failing]
        if (why := next(iter(volumes), "")) != self.cache.volumes.unreadable:
            self.cache.volumes.unreadable = why
            self._volumes_changed(Wake.CLAIM, now)
        if (why := either.get("namespaces", "")) != self.cache.namespaces_unreadable:
            self.cache.namespaces_unreadable = why
            self.cache.invalidate_wants(lambda e: e.pod.spec.affinity is not None)
            self.queue.wake(Wake.ANY, now)
        self.budgets.unreadable = either.get("poddisruptionbudgets", "")
        groups, succeeded = unread_groups(failing)
        if (groups, succeeded) != (self.cache.groups.unread, self.cache.groups.succeeded_unread):
            self.cache.groups.unread, self.cache.groups.succeeded_unread = groups, succeeded
            self.victims.read_again()
            self.queue.wake(Wake.GROUP, now)

    def use_catalogue(self, catalogue: Catalogue, now: float) -> None:
        """New profiles."""
        self.cache.use_catalogue(catalogue)
        self.inputs.occupied.use_catalogue()
        if self.events is not None:
            self.events.profiles_changed(self.cache.catalogue, now)
        self.queue.wake(Wake.PROFILES, now)
        self.queue.wake(Wake.ANY, now)

    # Rounds

    def activate(self) -> list[Instruction | ReadPod]:
        """All caches are synced and we lead: rounds may be decided from now on.

        What the leader before us had bound and not resized yet is resized now.
        """
        self.active = self.cache.live = True
        if self.configuration.features.preemption:
            # The first look is at every pod: half a second for 50,000, which no round should have to wait for.
            self.victims.look(0.0)
        out: list[Instruction | ReadPod] = []
        for entry in self.cache.pods.values():
            if entry.node:
                out += self.resizes.start(entry)
        return out

    def next_round_s(self, now: float) -> float | None:
        """When the next round should begin, or None while nothing calls for one.

        A short window lets pods that are created together be decided together. A single pod of which no forecast is made has
        nothing to win by that: where nothing else is going on, it is decided at once.
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
        if self.queue.prompt() >= rounds.batch_limit:
            return now
        alone = self.queue.alone()
        entry = None if alone is None else self.cache.pods.get(alone.uid)
        forecast = entry is None or entry.intent.profile is not None or forecast_run_s(entry) is not None
        if entry is not None and not forecast and entry.intent.service is None:
            return max(now, self._pause_until_s) if self._long_round else now
        return max(now, self._first_active_s + rounds.batch_window_s, self._pause_until_s)

    def begin_round(self, now: float, keep_record: bool = True) -> tuple[RoundInput | None, list[Instruction]]:
        """Take the waiting pods out of the queue and write down all that the round may know.

        Pods that no node could take, whatever is free, are answered here. None if no pod is left for a round.
        """
        self._first_active_s = None
        keys = self.queue.take(now, MOST_PODS, later=MOST_LATER, kinds=MOST_LATER_KINDS)
        taken = [e for key in keys if (e := self.cache.pods.get(key.uid)) is not None and e.key == key]
        taken, told = self._held_back([e for e in taken if not e.place], now)
        taken, last = self.suspects.turn(taken, now)
        taken, late = self.participants.turn(taken, self.queue)
        taken, unnamed = self.suspects.named(taken)
        self.suspects.begin(taken)
        taken, unready = self.participants.prepared(taken)
        for entry in (*last, *late, *unnamed, *unready):
            self.queue.put_back(entry.key)
        taken = self._slice(taken)
        self.rounds += 1
        out: list[Instruction] = [*told, *(said for entry in taken for said in self.notices.advise_of(entry, now))]
        fit, blocked = self.participants.sort(taken, self.queue, now)
        self.suspects.begin([*fit, *(entry for entry, _, _ in blocked)])
        for entry, message, causes in blocked:
            self._attempted(entry, "unschedulable", 0.0)
            # Whatever leaves for it, no node takes it now. A group only waits for other members.
            over = self.cache.wants(entry).problem is not None and self.evictions.give_up(entry.key.uid, now)
            out += self._hold(entry, Fate.UNSCHEDULABLE, message, causes, now, "" if over else None)
        fit, late = self.participants.affordable(fit)
        for entry in late:
            self.queue.put_back(entry.key)
        if not fit:
            self.suspects.end()
            return None, out
        self.round_running = True
        self.evictions.round_begins(now)
        given = self.round_input(fit, now, keep_record, at_once=True)
        if self.events is not None:
            self.events.begun(given)
        return given, out

    def _slice(self, taken: list[PodEntry]) -> list[PodEntry]:
        """Those of pods that a round looks at. New ones, where others of their kind wait in vain, have no better chance than
        those: many are looked at in slices as well.
        """
        if len(taken) <= MOST_LATER:
            return taken
        now: list[PodEntry] = []
        alike = 0
        for entry in taken:
            if self.queue.attempts(entry.key) == 1 and self.queue.stops(like := self.wakeups.kind_of(entry)):
                alike += 1
                if alike > MOST_LATER:
                    self.queue.put_back(entry.key, later=True, like=like)
                    continue
            now.append(entry)
        return now

    def _held_back(self, taken: list[PodEntry], now: float) -> tuple[list[PodEntry], list[Instruction]]:
        """Those of pods that a round may decide on, and what the others are told whose bindings would not be sent."""
        free: list[PodEntry] = []
        out: list[Instruction] = []
        for entry in taken:
            why = self.bindings.why_stuck(entry)
            if not why:
                free.append(entry)
                continue
            self._attempted(entry, "error", 0.0)
            out += self.notices.tell(entry, names.SCHEDULER_ERROR, why, now)
            waits, like = AttemptOutcome.UNSCHEDULABLE, (Cause.BINDING, entry.key.namespace)
            self.queue.requeue(entry.key, now, waits, causes={Cause.BINDING}, like=like, failed=False)
        return free, out

    def round_input(
        self, entries: Sequence[PodEntry], now: float, keep_record: bool = False, at_once: bool = False
    ) -> RoundInput:
        """All that a round may know that decides on some pods; nothing changes. As :meth:`InputBuilder.build` has it."""
        return self.inputs.build(
            entries,
            now,
            number=self.rounds,
            plan=tuple(self.plan.values()),
            reservations=self.node_holds.reservations,
            held_nodes=self.node_holds.held,
            passed_over=self.node_holds.passed_over(entries, now),
            start_errors=self.starts.errors(now),
            keep_record=keep_record,
            at_once=at_once,
            rounds_waited={e.key.uid: e.attempts + self._rounds_before(e.key) for e in entries},
        )

    def _rounds_before(self, key: PodKey) -> int:
        """Rounds that have taken a waiting pod, without the one that has it now."""
        return self.queue.attempts(key) - (self.queue.place(key) is Place.IN_FLIGHT)

    def end_round(self, result: RoundResult, now: float, seconds_taken: float = 0.0) -> list[Instruction]:
        """Assume every placement that holds in the cluster as it is now, and say what to do."""
        self.round_running = False
        self._long_round = seconds_taken > self.configuration.rounds.batch_window_s
        self._pause_until_s = now + min(_IDLE_SHARE * seconds_taken, _LONGEST_PAUSE_S)
        self.plan = {p.task: p for p in result.plan}
        self.starts.decided(result, now)
        job_ends = self.starts.job_ends()
        if self.events is not None:
            self.events.decided(result, now)
        out: list[Instruction] = []
        bookings, broken = self.bookings.book(result.chosen, now)
        for booking in bookings:
            entry = self.cache.pods[booking.chosen.uid]
            self._attempted(entry, "scheduled", seconds_taken)
            out += self._commit(entry, booking, result.number, now)
        for uid, why in broken.items():
            late = self.cache.pods[uid]
            if why and late.key in self.queue:
                self._attempted(late, "unschedulable", seconds_taken)
                out += self._hold(late, Fate.UNSCHEDULABLE, *self.participants.blocked(why), now)
            else:
                self._attempted(late, "error", seconds_taken)
                self.queue.requeue(late.key, now, AttemptOutcome.RETRY)
        preempted = self.evictions.plan(result.held, self.bindings.unsent(), now)
        out = [i for i in out if not self._was_taken_back(i)]
        self.node_holds.choose(result, now)
        for held in result.held:
            for uid in held.uids:
                waiting = self.cache.pods.get(uid)
                if waiting is None or waiting.place or waiting.is_leaving:
                    continue
                message, nominated_node = preempted.told.get(uid, (held.message, None))
                message += self.node_holds.said(uid)
                if held.fate is Fate.POSTPONED and (estimate := self.starts.of(uid)) is not None:
                    job_end = job_ends.get(controller_of(waiting.pod) or "")
                    message += estimate.text(now) + ("" if job_end is None else job_text(job_end, now))
                if uid in preempted.later:
                    out += self.notices.tell(waiting, names.UNSCHEDULABLE, message, now)
                    self.queue.put_back(waiting.key, later=True, like=self.wakeups.kind_of(waiting))
                    continue
                ended = "error" if held.fate is Fate.ERROR else "unschedulable"
                self._attempted(waiting, ended, seconds_taken)
                failed = uid not in preempted.coming
                behind = held.behind_services and held.behind_services + self.node_holds.said(uid)
                out += self._hold(waiting, held.fate, message, held.causes, now, nominated_node, behind, failed=failed)
        # Room that the round had given to pods that did not take it was refused to those who are held.
        placed = {booking.chosen.uid for booking in bookings}
        for chosen in result.chosen:
            if chosen.uid not in placed:
                self.wakeups.room_on(chosen.node, now, frozenset((*chosen.holds, *chosen.joins)))
        out += self._group_statuses(result)
        out += preempted.instructions
        self.suspects.end()
        return out

    def _was_taken_back(self, decided: Instruction) -> bool:
        """Whether a place that the round gave to a pod was given to another one by a preemption."""
        if isinstance(decided, Bind):
            return self.bindings.outdated(decided) is not None
        return isinstance(decided, PatchClaim) and not self.cache.pods[decided.pod.uid].assumed

    def round_failed(self, given: RoundInput, message: str, now: float) -> list[Instruction]:
        """A fault of ours: the round's pods are tried again after a backoff, and say so."""
        self.round_running = False
        self.suspects.end()
        if self.events is not None:
            self.events.failed(given.number, message, now)
        out: list[Instruction] = []
        for c in given.classes:
            for uid in c.uids:
                entry = self.cache.pods.get(uid)
                if entry is not None and not entry.place:
                    self._attempted(entry, "error", 0.0)
                    out += self.notices.tell(entry, names.SCHEDULER_ERROR, message, now)
                    self.queue.requeue(entry.key, now, AttemptOutcome.ERROR)
        return out

    def _commit(self, entry: PodEntry, booking: Booking, number: int, now: float) -> list[Instruction]:
        c = booking.chosen
        entry.attempts += self.queue.attempts(entry.key)
        self.queue.remove(entry.key)
        self.postponed.discard(c.uid)
        self.node_holds.let_go(c.uid, now)
        nominated = self.cache.nominated.get(c.uid, c.node)
        if nominated != c.node:
            self.wakeups.room_on(nominated, now)
        return self.bindings.begin(entry, booking, number)

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
        behind_services: str = "",
        failed: bool = True,
    ) -> list[Instruction]:
        """An attempt has ended without a place. ``behind_services``: what its condition says once it is overdue, where
        services keep it off. ``failed``: whether the next one is to be put off for longer.
        """
        overdue_s = entry.waits_since_s + self.configuration.engine.due_age_s + _JUST_AFTER_S
        # Then services yield to it.
        yield_s = overdue_s if behind_services and now < overdue_s else float("inf")
        by_s = min(yield_s, self.evictions.late_s(entry.key.uid, now))
        if fate is Fate.POSTPONED:
            self.postponed.add(entry.key.uid)
            self.queue.requeue(entry.key, now, AttemptOutcome.POSTPONED, causes=causes, by_s=yield_s)
            if behind_services and now >= overdue_s:
                return self.notices.tell(entry, names.UNSCHEDULABLE, behind_services, now)
            event = self.recorder.postponed(entry.key, message, now)
            return [event] if event is not None else []
        self.postponed.discard(entry.key.uid)
        if fate is Fate.ERROR:
            self.queue.requeue(entry.key, now, AttemptOutcome.ERROR)
            return self.notices.tell(entry, names.SCHEDULER_ERROR, message, now)
        waits, like = AttemptOutcome.UNSCHEDULABLE, self.wakeups.kind_of(entry)
        self.queue.requeue(entry.key, now, waits, causes=causes, like=like, failed=failed, by_s=by_s)
        if Cause.GATES in causes and not entry.nominated:
            # Who lets a group go does so pod by pod: the others mostly follow at once.
            self.notices.put_off(entry, names.UNSCHEDULABLE, message, now)
            return []
        known = entry.nominated in self.cache.nodes or entry.nominated in self.cache.others
        if nominated_node is None and entry.nominated and not known:
            # Its node went while no replica led.
            nominated_node = ""
        return self.notices.tell(entry, names.UNSCHEDULABLE, message, now, nominated_node=nominated_node)

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
            return [*out, *(self.bindings.bound(entry, now) if first and ours else ())]
        self.bindings.never_arrived(entry, now)
        return []

    def tidy(self) -> None:
        """Let go of what is not needed any more; for a slow timer, between rounds."""
        self.starts.tidy()
        if not self.round_running:
            self.cache.forget_relations()

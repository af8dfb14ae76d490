"""The scheduler as a state machine: changes of the cluster in, instructions for the API server out.

No input or output happens here and no clock is read, so that every situation can be tested without a server. The adapter
(:mod:`flowsched_k8s.process`) feeds it, runs rounds in a thread and carries out what it says.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

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
from flowsched_k8s.instructions import Bind, Instruction, PatchClaim, PodKey
from flowsched_k8s.learning.learner import Learner
from flowsched_k8s.metrics.tallies import Tallies
from flowsched_k8s.notices.grant_notices import GrantNotices
from flowsched_k8s.notices.notices import Notices
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.notices.start_notices import StartNotices
from flowsched_k8s.objects import Node, Pod
from flowsched_k8s.other_objects import OtherObjects
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
from flowsched_k8s.rounds.waiting_pods import WaitingPods
from flowsched_k8s.wakeups import Wakeups
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
        self.other_objects = OtherObjects(
            self.cache, self.queue, self.victims, self.budgets, self.evictions, self.wakeups
        )
        self.waiting = WaitingPods(
            self.cache, self.queue, self.evictions, self.wakeups, self.notices, self.recorder, self.tallies
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
                self.other_objects.see(thing, gone, now)
        return out

    def _pod_seen(self, pod: Pod, now: float) -> list[Instruction | ReadPod]:
        uid = pod.metadata.uid
        if (replaced := self.cache.replaced(pod)) is not None:
            self._pod_gone(replaced.pod, now)
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
                self.waiting.postponed.discard(uid)
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
                self.wakeups.group_changed(self.gangs.ref(entry), now)
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
                self.waiting.postponed.discard(uid)
                self.wakeups.group_changed(group, now)
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
            self.wakeups.group_changed(group, now)
        return out

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
        self.wakeups.group_changed(group, now)
        self.bindings.forget(uid)
        self.resizes.forget(uid)
        self.evictions.forget(uid)
        self.rebalancing.forget(uid)
        self.plan.pop(uid, None)
        self.starts.gone(entry, last, now)
        self.waiting.postponed.discard(uid)
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
            self.waiting.attempted(entry, "unschedulable", 0.0)
            # Whatever leaves for it, no node takes it now. A group only waits for other members.
            over = self.cache.wants(entry).problem is not None and self.evictions.give_up(entry.key.uid, now)
            out += self.waiting.hold(entry, Fate.UNSCHEDULABLE, message, causes, now, "" if over else None)
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
            self.waiting.attempted(entry, "error", 0.0)
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
            self.waiting.attempted(entry, "scheduled", seconds_taken)
            out += self._commit(entry, booking, result.number, now)
        for uid, why in broken.items():
            late = self.cache.pods[uid]
            if why and late.key in self.queue:
                self.waiting.attempted(late, "unschedulable", seconds_taken)
                out += self.waiting.hold(late, Fate.UNSCHEDULABLE, *self.participants.blocked(why), now)
            else:
                self.waiting.attempted(late, "error", seconds_taken)
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
                self.waiting.attempted(waiting, ended, seconds_taken)
                failed = uid not in preempted.coming
                behind = held.behind_services and held.behind_services + self.node_holds.said(uid)
                out += self.waiting.hold(
                    waiting, held.fate, message, held.causes, now, nominated_node, behind, failed=failed
                )
        # Room that the round had given to pods that did not take it was refused to those who are held.
        placed = {booking.chosen.uid for booking in bookings}
        for chosen in result.chosen:
            if chosen.uid not in placed:
                self.wakeups.room_on(chosen.node, now, frozenset((*chosen.holds, *chosen.joins)))
        messages = {uid: held.message for held in result.held for uid in held.uids}
        out += self.gangs.statuses({**messages, **{chosen.uid: "" for chosen in result.chosen}})
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
                    self.waiting.attempted(entry, "error", 0.0)
                    out += self.notices.tell(entry, names.SCHEDULER_ERROR, message, now)
                    self.queue.requeue(entry.key, now, AttemptOutcome.ERROR)
        return out

    def _commit(self, entry: PodEntry, booking: Booking, number: int, now: float) -> list[Instruction]:
        c = booking.chosen
        entry.attempts += self.queue.attempts(entry.key)
        self.queue.remove(entry.key)
        self.waiting.postponed.discard(c.uid)
        self.node_holds.let_go(c.uid, now)
        nominated = self.cache.nominated.get(c.uid, c.node)
        if nominated != c.node:
            self.wakeups.room_on(nominated, now)
        return self.bindings.begin(entry, booking, number)

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

"""Bindings that are decided: sent, answered, confirmed by the watch, or taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from flowsched_k8s import names
from flowsched_k8s.bindings.turns import Turn, Turns
from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Wake
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.pod_groups import GroupRef, GroupSpec
from flowsched_k8s.instructions import Bind, Instruction, PatchClaim, PatchCondition, PodKey
from flowsched_k8s.metrics.tallies import Tallies
from flowsched_k8s.notices.explanation import placement_note
from flowsched_k8s.notices.notices import Notices
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.pods.exclusions import PORT, exclusions
from flowsched_k8s.queue import PodQueue
from flowsched_k8s.rounds.bookings import Booking, Bookings
from flowsched_k8s.services.grant import to_write
from flowsched_k8s.volumes.volumes import ClaimKey, ClaimPatch
from flowsched_k8s.wakeups import Wakeups
from flowsched_models.quantity import format_cores

BINDERS = 32
"""Bindings under way at a time that are answered; more do not make an API server faster."""
_CONFIRM_S = 30.0
"""A binding that the API server accepted and that no watch has shown after so long is read."""
_VOLUMES_S = 600.0
"""A pod whose volumes were not made after so long gives its place back."""
_NAMED = 3
"""Pods that a message names."""
_SILENT_S = 2.0
"""Most volumes are made within so long: a pod that still waits for some says so then."""
_TOLD_EVERY_S = 10.0
"""So often a pod whose binding has no outcome is told so, should its condition not say it."""

_BINDING_TO = "binding to"
_NO_ANSWER = "no answer from the API server yet, as when a webhook for pods/binding hangs"


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
    """Unknown: the reply was lost. The pod has to be read."""
    DRY = "dry"
    """A dry run: nothing was sent."""


@dataclass(frozen=True)
class ReadPod:
    """GET a pod whose binding has an unknown end; ``SchedulerState.pod_read`` takes the answer."""

    pod: PodKey


@dataclass(frozen=True)
class _Unsettled:
    """A pod whose place is chosen and whose volumes are being made there."""

    booking: Booking
    number: int
    """Of the round that chose the place."""
    claims: Mapping[ClaimKey, str]
    """uids of its claims then."""


@dataclass(eq=False)
class Bindings:
    """From a booked placement to a bound pod. Of one scheduler: its parts change with it.

    Methods return instructions, as those of the state do.
    """

    _cache: Cache
    _queue: PodQueue
    _gangs: Gangs
    _recorder: Recorder
    _tallies: Tallies
    _wakeups: Wakeups
    _notices: Notices
    _bookings: Bookings
    turns: Turns[Bind] = field(default_factory=lambda: Turns(BINDERS))
    """Of the bindings that are decided; the adapter sends them."""
    _stuck: set[str] = field(default_factory=set)
    """Namespaces whose pods are not decided, because bindings of them have no outcome."""
    under_way: dict[str, Bind] = field(default_factory=dict)
    """Bindings that are decided and have no end yet, by the pod's uid."""
    _sent: set[str] = field(default_factory=set)
    """uids of those that the API server may know of."""
    _unconfirmed: deque[tuple[float, PodKey]] = field(default_factory=deque)
    _claims: dict[str, _Unsettled] = field(default_factory=dict)
    """By uid."""
    _together: dict[str, _Unsettled] = field(default_factory=dict)
    """By uid, pods whose own volumes are there, and whose group has too few without those of others."""

    def begin(self, entry: PodEntry, booking: Booking, number: int) -> list[Instruction]:
        """Bind a pod that has its place, once its volumes are there, and those of as many as its group starts with.

        ``number``: of the round that chose the place.
        """
        if entry.pod.spec.volumes and not self._cache.volumes.settled(entry.pod):
            uids = self._cache.volumes.uids(entry.pod)
            self._claims[entry.key.uid] = _Unsettled(booking, number, uids)
            return [PatchClaim(entry.key, patch) for patch in booking.patches]
        return self._start(entry, booking, number)

    def forget(self, uid: str) -> None:
        """A pod is on its node, as the watch tells, or gone."""
        self._over(uid)
        self._claims.pop(uid, None)
        self._together.pop(uid, None)

    @property
    def unsettled(self) -> Set[str]:
        """Uids of pods that have a place, and wait there for their volumes."""
        return self._claims.keys()

    def unsent(self) -> set[str]:
        """Uids of pods that have a place of which the API server does not know yet: it can be taken back."""
        decided = (self.under_way.keys() - self._sent) | self._claims.keys() | self._together.keys()
        return {u for u in decided if (e := self._cache.pods.get(u)) is not None and e.assumed and not e.node}

    def outdated(self, bind: Bind) -> str | None:
        """Why a binding that was decided must not be sent any more, by what is known by now; None if it may.

        The API server binds to a node that does not exist as well.
        """
        entry = self._cache.pods.get(bind.pod.uid)
        if entry is None or entry.pod.metadata.deletion_timestamp is not None:
            return "the pod is deleted"
        if entry.node or entry.assumed != bind.node:
            return f"the pod is on {entry.node}" if entry.node else "its place was given back"
        if bind.node not in self._cache.nodes:
            return f"node {bind.node} is gone"
        return None

    def withheld(self, bind: Bind, now: float) -> str | None:
        """Why a binding is not sent, asked right before that; its pod is decided anew then. None: it counts as sent.

        A pod whose room others have taken meanwhile has not failed: the first time it is back in the queue at once.
        """
        uid = bind.pod.uid
        why = self.outdated(bind)
        if self.under_way.get(uid) is not bind:
            return why or "it was decided anew"
        if why is not None:
            self.done(bind.pod, BindOutcome.RETRY, why, now)
            return why
        entry = self._cache.pods[uid]
        why = self._taken(entry)
        if why is None and self._gangs.has_lost_members(uid):
            why = "too many pods of its group are gone or being deleted"
        if why is None:
            self._sent.add(uid)
            return None
        self._tallies.binds["withdrawn"] += self._give_up(entry, now)
        return why

    def _give_up(self, entry: PodEntry, now: float) -> int:
        """Take back a place that was not sent yet, and try the pod again at once, unless that has happened to it before.

        With it go the others of its group as long as none of them is bound or sent; after that the group keeps its other
        places. Returns how many have gone.
        """
        group, unsent, uid = self._gangs.ref(entry), self.unsent(), entry.key.uid
        whole = group is not None and unsent.issuperset(self._gangs.placed(group))
        return self.withdraw(uid, unsent if whole else {uid}, now, failed=False)

    def _taken(self, entry: PodEntry) -> str | None:
        """What a kubelet would refuse a booked pod for: too little room on its node, or a host port that is in use.

        Only the node is looked at: every binding passes here.
        """
        booked, uid = self._cache.booked, entry.key.uid
        reasons = [names.insufficient(resource) for resource in booked.overbooked(uid)]
        alone = exclusions(entry.pod)
        holds, joins = ([name for name in of if name.startswith(PORT)] for of in (alone.holds, alone.joins))
        if joins and not booked.permits_on(holds, joins, entry.place, without=(uid,)):
            reasons.append(names.PORTS)
        return f"{entry.place} would refuse it by now: {', '.join(sorted(set(reasons)))}" if reasons else None

    def done(
        self, key: PodKey, outcome: BindOutcome, message: str, now: float, retry_after: float = 0.0
    ) -> list[Instruction | ReadPod]:
        """A binding ended. ``retry_after``: seconds for which the API server wants no other one of the pod."""
        self._tallies.binds[outcome.value] += 1
        entry = self._cache.pods.get(key.uid)
        if entry is None:
            return []
        if outcome is BindOutcome.DRY:
            self.bound(entry, now)
            return []
        if outcome is BindOutcome.BOUND:
            if not entry.node:
                self._unconfirmed.append((now + _CONFIRM_S, key))
            return list(self.bound(entry, now))
        if outcome is BindOutcome.LOST:
            # Should reading fail as well, it is read again later.
            self._unconfirmed.append((now + _CONFIRM_S, key))
            return [ReadPod(key)]
        self._over(key.uid)
        if entry.node:
            return []
        node = entry.assumed
        self._cache.forget(entry)
        self._wakeups.left(entry, node, now)
        if outcome is BindOutcome.GONE:
            # The watch will say so as well; until then it counts as no pod.
            return []
        self._requeue(entry, now, not_before_s=now + retry_after)
        if outcome is BindOutcome.REFUSED:
            text = f"binding to {node} was refused: {message}"
            return list(self._notices.tell(entry, names.SCHEDULER_ERROR, text, now))
        return []

    def tell_fault(self, bind: Bind, fault: str, now: float) -> list[Instruction]:
        """A fault of ours in a binding is told to its pod, if that is not on its node by now."""
        return self._tell_of(Turn(bind.pod.namespace, bind, now, error=f"a fault of the scheduler: {fault}"), now)

    def bound(self, entry: PodEntry, now: float) -> list[Instruction]:
        """A pod is bound where we wanted it."""
        self._over(entry.key.uid)
        self._tallies.bound.append((max(0.0, now - entry.latency_since_s), max(1, entry.attempts)))
        place = entry.place
        return [self._recorder.scheduled(entry.key, place)] if place else []

    def without_outcome(self, now: float) -> list[Instruction]:
        """Say of bindings that have had no outcome for a while; for a slow timer.

        Places of pods that wait behind them in a namespace that is stuck are given back, and no round decides on its pods
        until its bindings are answered.
        """
        out: list[Instruction] = []
        stuck = self.turns.stuck(now)
        for namespace in sorted(self._stuck - stuck):
            self._queue.wake(Wake.BINDING, now, lambda key, of=namespace: key.namespace == of)  # type: ignore[misc]
        self._stuck = stuck
        for turn in self.turns.apart():
            if now - turn.began_s >= _SILENT_S and (turn.told_s is None or now - turn.told_s >= _TOLD_EVERY_S):
                turn.told_s = now
                out += self._tell_of(turn, now)
        for namespace in sorted(stuck):
            out += self._give_back(namespace, now)
        return out

    @property
    def stuck(self) -> list[str]:
        """Namespaces whose pods are not decided, because bindings of them have no outcome."""
        return sorted(self._stuck)

    def why_stuck(self, entry: PodEntry) -> str:
        """Why no round decides on a pod, as bindings of its namespace have no outcome; empty if it is decided on."""
        namespace = entry.key.namespace
        apart = self.turns.apart(namespace) if namespace in self._stuck else []
        if not apart:
            return ""
        if entry.message.startswith(_BINDING_TO):
            # It has said so of its own binding; a thousand pods that say it in other words are a thousand writes.
            return entry.message
        return f"waits for {len(apart)} binding(s) of namespace {namespace} without an outcome: {_failed(apart)}"

    def _tell_of(self, turn: Turn[Bind], now: float) -> list[Instruction]:
        entry = self._cache.pods.get(turn.item.pod.uid)
        if entry is None or entry.node or self.under_way.get(entry.key.uid) is not turn.item:
            return []
        told = self._notices.tell(entry, names.SCHEDULER_ERROR, _failed([turn]), now)
        # The binding may be carried out at any moment: a pod that is bound must not be told that it is not.
        version = entry.pod.metadata.resource_version
        return [replace(i, version=version) if isinstance(i, PatchCondition) else i for i in told]

    def _give_back(self, namespace: str, now: float) -> list[Instruction]:
        """Take back the places of a namespace's pods whose bindings wait for others."""
        waiting, why = self.turns.take_back(namespace), _reason(self.turns.apart(namespace))
        unsent = self.unsent() if waiting else set()
        out: list[Instruction] = []
        for bind in waiting:
            entry = self._cache.pods.get(bind.pod.uid)
            if entry is None or self.under_way.get(bind.pod.uid) is not bind:
                continue
            self._tallies.binds["withdrawn"] += self.withdraw(bind.pod.uid, unsent, now)
            text = (
                f"{_BINDING_TO} {bind.node} failed: not sent, as others of namespace {namespace} have no outcome: {why}"
            )
            out += self._notices.tell(entry, names.SCHEDULER_ERROR, text, now)
        return out

    def never_arrived(self, entry: PodEntry, now: float) -> None:
        """A pod was read and is on no node."""
        self._over(entry.key.uid)
        if entry.assumed:
            self._cache.forget(entry)
            self._requeue(entry, now)

    def overdue(self, now: float) -> list[ReadPod]:
        """Bindings that no watch has confirmed for too long."""
        found = []
        while self._unconfirmed and self._unconfirmed[0][0] <= now:
            _, key = self._unconfirmed.popleft()
            entry = self._cache.pods.get(key.uid)
            if entry is not None and entry.assumed and not entry.node:
                found.append(ReadPod(key))
                self._unconfirmed.append((now + _CONFIRM_S, key))
        return found

    def withdraw(self, uid: str, unsent: set[str], now: float, *, failed: bool = True) -> int:
        """Take back a place that was not sent yet, and those of all of its group. ``unsent``: all such pods.

        Without ``failed`` they are tried again at once, unless that has happened to them before. Returns how many they are.
        """
        group = self._gangs.ref(self._cache.pods[uid])
        count = 0
        for other in (
            [uid] if group is None else sorted(u for u in unsent if self._gangs.ref(self._cache.pods[u]) == group)
        ):
            entry = self._cache.pods[other]
            node = entry.assumed
            if node:
                self._over(other)
                self._take_back(entry, now)
                count += 1
                if failed:
                    self._requeue(entry, now)
                    continue
                self._requeue(entry, now, failures=entry.withdrawn)
                entry.withdrawn += 1
        return count

    def give_back(self, entry: PodEntry, now: float) -> None:
        """A pod is being deleted: a place of which the API server does not know yet is free from now on."""
        uid = entry.key.uid
        if entry.assumed and not entry.node and uid not in self._sent:
            self._over(uid)
            self._take_back(entry, now)

    def claims_settled(self, now: float) -> list[Instruction]:
        """Bind the pods whose volumes are there by now; take back those whose volumes never came, or never will.

        Volumes take time, and may be usable elsewhere only: filters are asked again before a pod is bound. The others say
        what they wait for.
        """
        out: list[Instruction] = []
        volumes = self._cache.volumes
        for uid, unsettled in list(self._claims.items()):
            c = unsettled.booking.chosen
            entry = self._cache.pods.get(uid)
            if entry is None or entry.node or uid not in self._claims:
                # Another member of its group has taken it along.
                self._claims.pop(uid, None)
            elif (node := self._cache.nodes.get(c.node)) is None:
                out += self.claim_failed(entry.key, f"were not made for {c.node}: the node is gone", now)
            elif (why := volumes.why_never(entry.pod, node.node, unsettled.claims)) is not None:
                out += self.claim_failed(entry.key, f"were not made for {c.node}: {why}", now)
            elif volumes.settled(entry.pod):
                if (why := self._bookings.why_not(entry)) is not None:
                    text = f"are there, and {c.node} does not take it any more: {why}"
                    out += self.claim_failed(entry.key, text, now)
                    continue
                del self._claims[uid]
                out += self._start(entry, unsettled.booking, unsettled.number)
            elif now - entry.assumed_s > _VOLUMES_S:
                out += self.claim_failed(entry.key, f"were not made for {c.node} within {_VOLUMES_S:.0f} s", now)
            elif now - entry.assumed_s >= _SILENT_S:
                claims = ", ".join(f'"{name}"' for name in volumes.unbound(entry.pod))
                text = f"waits until its volumes are made for {c.node}: persistentvolumeclaim {claims}"
                out += [] if entry.message == text else self._notices.tell(entry, names.UNSCHEDULABLE, text, now)
        return out + self._groups_settled(now)

    def _start(self, entry: PodEntry, booking: Booking, number: int) -> list[Instruction]:
        """Bind a pod whose volumes are there, unless its group waits for those of others."""
        if booking.waits_for_others:
            self._together[entry.key.uid] = _Unsettled(booking, number, {})
            return []
        return [self._bind(entry, booking, number)]

    def _groups_settled(self, now: float) -> list[Instruction]:
        """Bind the groups that have enough pods by now; take back those that have not even as many places any more."""
        groups: dict[GroupRef | None, list[PodEntry]] = {}
        for uid in list(self._together):
            entry = self._cache.pods.get(uid)
            if entry is None or not entry.assumed:
                del self._together[uid]
            else:
                groups.setdefault(self._gangs.ref(entry), []).append(entry)
        out: list[Instruction] = []
        for group, entries in groups.items():
            first = entries[0]
            placed = [] if group is None else self._gangs.placed(group)
            unmade = [uid for uid in placed if uid in self._claims]
            spec = None if group is None else self._gangs.spec(group)
            gone = [e for e in entries if e.assumed not in self._cache.nodes or not self._cache.volumes.settled(e.pod)]
            if group is not None and (gone or self._gangs.missing(first.key.uid)):
                self.withdraw(first.key.uid, self.unsent(), now, failed=False)
            elif group is None or not isinstance(spec, GroupSpec) or len(placed) - len(unmade) >= spec.minimum:
                for entry in entries:
                    waited = self._together.pop(entry.key.uid)
                    out.append(self._bind(entry, waited.booking, waited.number))
            else:
                others = ", ".join(sorted(self._cache.pods[uid].key.name for uid in unmade)[:_NAMED])
                text = f"waits until the volumes of {len(unmade)} other pod(s) of pod group {group.name} are made: {others}"
                for entry in entries:
                    if now - entry.assumed_s >= _SILENT_S and entry.message != text:
                        out += self._notices.tell(entry, names.UNSCHEDULABLE, text, now)
        return out

    def claim_failed(self, key: PodKey, message: str, now: float, patch: ClaimPatch | None = None) -> list[Instruction]:
        """A claim of a pod will not be as it needs it: its place is given back, as that of :meth:`withheld` is.

        ``patch``: that was refused; one of a place that the pod has given back already means nothing.
        """
        entry, unsettled = self._cache.pods.get(key.uid), self._claims.get(key.uid)
        if entry is None or unsettled is None or entry.node:
            self._claims.pop(key.uid, None)
            return []
        if patch is not None and patch not in unsettled.booking.patches:
            return []
        self._give_up(entry, now)
        return self._notices.tell(entry, names.UNSCHEDULABLE, f"its volumes {message}", now)

    def _take_back(self, entry: PodEntry, now: float) -> None:
        """A pod gives up the place that it was to get, and with it the volumes that were to be made there."""
        node = entry.assumed
        self._together.pop(entry.key.uid, None)
        unsettled = self._claims.pop(entry.key.uid, None)
        if unsettled is not None:
            self._cache.volumes.forget(unsettled.booking.patches)
        self._cache.forget(entry)
        self._wakeups.left(entry, node, now)
        if unsettled is not None:
            # Others may have been refused the volumes that were promised to it.
            self._wakeups.volumes_changed(Wake.CLAIM, now)

    def _bind(self, entry: PodEntry, booking: Booking, number: int) -> Bind:
        c = booking.chosen
        notes = {
            names.PLACEMENT: placement_note(c, number, booking.start),
            names.THREADS: str(entry.threads),
            names.WIDTH: f"{c.width_milli or entry.request_milli}m",
        }
        if entry.cores:
            notes[names.CORES] = format_cores(entry.cores)
        bind = self.under_way[c.uid] = Bind(entry.key, c.node, notes, to_write(entry.grant, entry.pod))
        return bind

    def _over(self, uid: str) -> None:
        self.under_way.pop(uid, None)
        self._sent.discard(uid)

    def _requeue(
        self, entry: PodEntry, now: float, failures: int | None = None, not_before_s: float = float("-inf")
    ) -> None:
        """A pod that had left the queue is back, behind the backoff of so many failures; None: of all its attempts."""
        if entry.pod.metadata.deletion_timestamp is not None:
            return
        failures = max(1, entry.attempts) if failures is None else failures
        self._queue.restore(
            entry.key,
            now,
            priority=entry.priority,
            created_s=entry.created_s,
            failures=failures,
            not_before_s=not_before_s,
        )


def _reason(apart: list[Turn[Bind]]) -> str:
    """What is known of why bindings have no outcome, from one of them."""
    return next((turn.error for turn in apart if turn.error), _NO_ANSWER)


def _failed(apart: list[Turn[Bind]]) -> str:
    one = next((turn for turn in apart if turn.error), apart[0])
    return f"{_BINDING_TO} {one.item.node} failed: {_reason([one])}"

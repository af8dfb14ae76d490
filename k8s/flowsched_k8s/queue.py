"""Which pods are waiting, for what, and when they are looked at again.

A pod is in exactly one place: *active* (the next round takes it), *backoff* (not before a time), *unschedulable* (until
something changes that may help it, at the latest after five minutes), *gated* (until its gates are gone), or in flight
between :meth:`PodQueue.take` and :meth:`PodQueue.done` or :meth:`PodQueue.requeue`. Times are seconds on the caller's clock.

Once something has come that may let a pod in which found no place, or was postponed, its backoff keeps it out of no round
that is held for others, and no longer than the first backoff out of one of its own. A backoff after an error or a lost race
is kept.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nsmallest
from itertools import islice
from typing import ClassVar

from flowsched_k8s.causes import HELPED, Cause, Wake
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.ordered_pods import OrderedPods

POD_ADDED = "UnschedulablePodAdd"
"""Labels of ``scheduler_queue_incoming_pods_total``, as the in-tree scheduler writes them."""
POD_UPDATED = "UnschedulablePodUpdate"
GATES_GONE = "UnschedulablePodUpdatePodSchedulingGatesEliminated"
GATED = "SchedulingGated"
ATTEMPT_FAILED = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
TIMED_OUT = "UnschedulableTimeout"
POSTPONED = "Postponed"
JOINED = "PopFromBackoffQ"


LONGEST = 1.25
"""A backoff is at most so many times as long as without chance."""


class Place(StrEnum):
    """Where a pod is. All but the last are the metrics' ``queue``."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in-flight"


class AttemptOutcome(StrEnum):
    """How an attempt ended that did not bind the pod."""

    ERROR = "error"
    """Our fault or the API server's."""
    RETRY = "retry"
    """Another writer was faster: the space was gone, or the object had changed."""
    UNSCHEDULABLE = "unschedulable"
    """No place in the cluster as it is."""
    POSTPONED = "postponed"
    """There is a place, but waiting costs less."""


MOST_JOINING = 64
"""So many pods in backoff may join a round, and so many may have one of their own before their backoff ends."""


@dataclass(slots=True, eq=False)
class _QueuedPod:
    key: PodKey
    priority: int
    created_s: float
    place: Place = Place.ACTIVE
    gated: bool = False
    attempts: int = 0
    failures: int = 0
    failed_s: float = float("-inf")
    tried_s: float = float("-inf")
    """When its last attempt ended."""
    longer: float = 1.0
    """How many times as long as usual the backoff of the last failure is."""
    causes: frozenset[Cause] = frozenset()
    like: Hashable = None
    taken_at_wake: int = 0
    touched: bool = False
    watched: bool = False
    """Whether a change that may let it in is waited for: it is unschedulable, or in a backoff after no error."""
    later: bool = False
    """Whether its next turn may be put off: nothing says that this pod, of all that wait, has a better chance now."""

    @property
    def turn(self) -> tuple[int, float]:
        """Its rank among active pods."""
        return -self.priority, self.created_s


Match = Callable[[PodKey], int | bool]
"""Whether something helps pods that are like one; a number: so many of them."""


@dataclass
class _Question:
    """A change with a condition that came while pods were in flight, and how many more of each kind it helps."""

    number: int
    causes: tuple[Cause, ...]
    match: Match
    left: dict[Hashable, int | bool] = field(default_factory=dict)

    def concerns(self, causes: frozenset[Cause], like: Hashable, key: PodKey) -> bool:
        if causes.isdisjoint(self.causes):
            return False
        left = self.left.get(like)
        if left is None:
            left = self.match(key)
        helped = bool(left)
        self.left[like] = left if isinstance(left, bool) else max(0, left - 1)
        return helped


@dataclass(eq=False, kw_only=True)
class PodQueue:
    """All pods that are ours and on no node yet. Unknown keys are ignored: their pod was deleted meanwhile."""

    QUESTIONS: ClassVar[int] = 256
    """How many conditions are kept for pods in flight. Older changes count as if they had none: one look too many."""

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    unschedulable_retry_s: float = 300.0
    postpone_s: float = 1.0
    """How long a postponed pod waits."""
    rng: random.Random | None = None
    """With it the backoff after an error or a lost race is up to a quarter longer: pods that failed together are not all
    back in one moment, in which another scheduler on the same nodes tries its own again.
    """
    _entries: dict[PodKey, _QueuedPod] = field(default_factory=dict)
    _sizes: Counter[Place] = field(default_factory=Counter)
    _stopped: Counter[Cause] = field(default_factory=Counter)
    _wakes: int = 0
    _last_wake: dict[Cause, int] = field(default_factory=dict)
    _questions: list[_Question] = field(default_factory=list)
    incoming: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a pod entered a queue, by (queue, event)."""

    def __post_init__(self) -> None:
        """No pod waits, in any place or for any cause."""
        self._ordered = {place: OrderedPods() for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE)}
        self._later = OrderedPods()
        """Active pods whose turn may be put off."""
        self._waiting: dict[Cause, dict[Hashable, dict[PodKey, None]]] = {cause: {} for cause in Cause}
        """Those that are watched, by what stopped them and what they are alike in."""
        self._early = 0
        """Pods whose backoff was cut short since pods were taken last."""
        self._helped: dict[PodKey, None] = {}
        """Pods in a backoff that something has come for."""

    def __len__(self) -> int:
        """Pods in all places."""
        return len(self._entries)

    def __iter__(self) -> Iterator[PodKey]:
        """All of them, in the order in which they came."""
        return iter(self._entries)

    def __contains__(self, key: PodKey) -> bool:
        """Whether the pod is here, in flight included."""
        return key in self._entries

    def add(self, key: PodKey, *, priority: int = 0, created_s: float = 0.0, gated: bool = False) -> None:
        """Take in a pod: higher ``priority`` goes first, then older. A known one only has its gates looked at."""
        if key in self._entries:
            if gated:
                self.gate(key)
            else:
                self.ungate(key)
            return
        entry = self._entries[key] = _QueuedPod(key, priority, created_s, gated=gated)
        if gated:
            self._enter(entry, Place.GATED, POD_ADDED)
        else:
            self._activate(entry, POD_ADDED)

    def remove(self, key: PodKey) -> bool:
        """Forget a pod, wherever it is; whether it was here."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._pass_on(entry)
        self._leave(entry)
        return True

    def gate(self, key: PodKey) -> None:
        """Hold a pod until it is ungated; one in flight is held once it comes back."""
        entry = self._entries.get(key)
        if entry is None or entry.gated:
            return
        entry.gated = True
        if entry.place is not Place.IN_FLIGHT:
            self._pass_on(entry)
            self._leave(entry)
            self._enter(entry, Place.GATED, GATED)

    def ungate(self, key: PodKey) -> None:
        """Let a gated pod take part."""
        entry = self._entries.get(key)
        if entry is None or not entry.gated:
            return
        entry.gated = False
        if entry.place is Place.GATED:
            self._leave(entry)
            self._activate(entry, GATES_GONE)

    def touch(self, key: PodKey, now: float, event: str = POD_UPDATED) -> None:
        """Let a pod have another chance, whatever stopped it: an unschedulable one is looked at again after its backoff."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.place is Place.IN_FLIGHT:
            entry.touched = True
        elif entry.place is Place.UNSCHEDULABLE:
            self._retry(entry, now, event)

    def take(
        self, now: float, limit: int | None = None, *, later: int | None = None, kinds: int | None = None
    ) -> list[PodKey]:
        """The pods of a round, in order: they are in flight until removed or requeued.

        Pods that have found no place and are tried again although nothing is known to help them in particular are the
        ``later`` ones: no more than so many are taken, of no more than so many ``kinds``. What is left is for the next
        rounds, and keeps no other pod waiting. Pods in a backoff that something has come for are taken with others, up to
        ``MOST_JOINING``: what waits behind a full cluster does not make each round longer than the last.
        """
        self._advance(now, later)
        self._early = 0
        if self._sizes[Place.ACTIVE]:
            helped = map(self._entries.__getitem__, self._helped)
            for entry in nsmallest(MOST_JOINING, helped, key=lambda e: (e.turn, e.key)):
                self._leave(entry)
                self._activate(entry, JOINED)
        active, slow = self._ordered[Place.ACTIVE], self._later
        taken: list[PodKey] = []
        alike: set[Hashable] = set()
        late = 0
        behind = slow.first()
        while limit is None or len(taken) < limit:
            head = active.first()
            if behind is not None and (head is None or behind < head):
                like = self._like(behind[1])
                if (later is None or late < later) and (kinds is None or like in alike or len(alike) < kinds):
                    head = behind
                    late += 1
                    alike.add(like)
            if head is None:
                break
            entry = self._entries[head[1]]
            self._launch(entry)
            taken.append(entry.key)
            if head is behind:
                behind = slow.first()
        return taken

    def _like(self, key: PodKey) -> Hashable:
        like = self._entries[key].like
        return key if like is None else like

    def prompt(self) -> int:
        """Active pods whose turn is not put off."""
        return len(self._ordered[Place.ACTIVE])

    def stops(self, like: Hashable) -> bool:
        """Whether pods that are alike in this, unschedulable or postponed, wait for a change."""
        return any(like in waiting for waiting in self._waiting.values() if waiting)

    def kinds(self) -> set[Hashable]:
        """What the pods are alike in that wait for a change."""
        return {like for alike in self._waiting.values() for like in alike}

    def claim(self, key: PodKey) -> bool:
        """Take one pod into the round although it is not its turn: others of its group are taken. Whether it could be."""
        entry = self._entries.get(key)
        if entry is None or entry.gated or entry.place is Place.IN_FLIGHT:
            return False
        self._launch(entry)
        return True

    def put_back(self, key: PodKey, *, later: bool = False, like: Hashable = None) -> None:
        """A pod that was taken and not looked at is the next round's, as if it had not been taken.

        ``later``: that nothing is free for it was found, and only the rest was left for another round.
        """
        entry = self._entries.get(key)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return
        self._leave(entry)
        entry.attempts -= 1
        if entry.gated:
            self._enter(entry, Place.GATED, GATED)
            return
        if like is not None:
            entry.like = like
        entry.later = later
        self._lane(entry).put(key, (-entry.priority, entry.created_s))
        entry.place = Place.ACTIVE
        self._sizes[Place.ACTIVE] += 1

    def restore(
        self,
        key: PodKey,
        now: float,
        *,
        priority: int,
        created_s: float,
        failures: int,
        not_before_s: float = float("-inf"),
    ) -> None:
        """Take back a pod whose binding failed after it had left: it is behind a backoff, as after an error.

        With no ``failures`` it is active at once: its binding was not sent.
        """
        if key in self._entries:
            return
        entry = self._entries[key] = _QueuedPod(key, priority, created_s)
        entry.failures, entry.failed_s, entry.longer = failures, now, self._draw()
        self._delay(entry, now, max(self._backoff_end(entry) if failures else now, not_before_s), ATTEMPT_FAILED)

    def requeue(
        self,
        key: PodKey,
        now: float,
        outcome: AttemptOutcome,
        *,
        causes: Collection[Cause] = (),
        like: Hashable = None,
        failed: bool = True,
        by_s: float = float("inf"),
    ) -> None:
        """Put a pod in flight back.

        ``causes`` say which changes will wake an unschedulable pod (none: every change); pods with equal ``like`` are asked
        for once when a change has a condition. Without ``failed`` there is no other backoff than it had: room is being made
        for the pod, which takes it as soon as it is there. ``by_s``: when it is tried again at the latest.
        """
        entry = self._entries.get(key)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return
        entry.causes = frozenset(causes) or frozenset({Cause.OTHER})
        entry.like = key if like is None else like
        entry.tried_s = now
        helped, missed, entry.later = self._missed(entry)
        self._leave(entry)
        if outcome is not AttemptOutcome.POSTPONED:
            if failed:
                entry.failures += 1
                entry.failed_s = now
            # Those that found no room wait for a change, and are best decided together when it comes.
            entry.longer = 1.0 if outcome is AttemptOutcome.UNSCHEDULABLE else self._draw()
        if entry.gated:
            self._enter(entry, Place.GATED, GATED)
        elif outcome is AttemptOutcome.POSTPONED:
            self._delay(entry, now, min(by_s, now + self.postpone_s), POSTPONED, watched=True)
        elif outcome is AttemptOutcome.UNSCHEDULABLE and not (helped or missed):
            self._ordered[Place.UNSCHEDULABLE].put(key, min(by_s, now + self.unschedulable_retry_s))
            self._stopped.update(entry.causes)
            self._enter(entry, Place.UNSCHEDULABLE, ATTEMPT_FAILED)
            self._watch(entry)
        else:
            watched = outcome is AttemptOutcome.UNSCHEDULABLE
            self._delay(entry, now, self._backoff_end(entry), ATTEMPT_FAILED, watched)
        if helped and entry.watched:
            self._help(entry, now, ATTEMPT_FAILED)

    def wake(
        self, event: Wake, now: float, match: Match | None = None, *, among: Collection[Hashable] | None = None
    ) -> int:
        """Something changed: move the unschedulable pods that it may help to where they are tried again; how many.

        With ``match``, only those it says yes to, and those of them that are in a backoff after no error as well: it is
        asked once for all pods that are alike, and may say how many of them it helps, of whom those that have waited
        longest since their last attempt are woken. ``among``: pods of other kinds are not asked for. Pods that other causes
        stopped cost nothing. Pods in flight are asked for when they come back unschedulable or postponed.
        """
        helped = HELPED[event]
        if self._sizes[Place.IN_FLIGHT]:
            self._remember(helped, match)
        left: dict[Hashable, int | bool] = {}
        moved = 0
        for cause in helped:
            waiting = self._waiting[cause]
            for like in list(waiting) if among is None else [like for like in among if like in waiting]:
                keys: Collection[PodKey] = waiting[like]
                if match is not None:
                    if like not in left:
                        left[like] = match(next(iter(keys)))
                    many = left[like]
                    if not isinstance(many, bool):
                        keys = list(islice(keys, many))
                        left[like] = many - len(keys)
                    elif not many:
                        continue
                for key in list(keys):
                    entry = self._entries[key]
                    moved += entry.place is Place.UNSCHEDULABLE
                    if match is not None:
                        self._help(entry, now, event)
                    elif entry.place is Place.UNSCHEDULABLE:
                        self._retry(entry, now, event, later=True)
        return moved

    def retry_by(self, key: PodKey, by_s: float) -> None:
        """Try an unschedulable pod again at a moment, if it would not be before."""
        entry = self._entries.get(key)
        if entry is not None and entry.place is Place.UNSCHEDULABLE:
            self._ordered[Place.UNSCHEDULABLE].bring_forward(key, by_s)

    def next_wake(self, now: float) -> float | None:
        """When :meth:`take` has something to return, were nothing to change; ``None`` for never."""
        if self._sizes[Place.ACTIVE]:
            return now
        heads = [self._ordered[place].first() for place in (Place.BACKOFF, Place.UNSCHEDULABLE)]
        times = [head[0] for head in heads if head is not None]
        return max(now, min(times)) if times else None

    def alone(self) -> PodKey | None:
        """The pod that :meth:`take` would return, if it is the only one that waits for no time and no event."""
        if self._sizes[Place.ACTIVE] != 1 or self._helped:
            return None
        first = self._ordered[Place.ACTIVE].first() or self._later.first()
        return None if first is None else first[1]

    def sizes(self) -> dict[str, int]:
        """Pods by queue; those in flight are in none."""
        return {place.value: self._sizes[place] for place in Place if place is not Place.IN_FLIGHT}

    def unschedulable(self) -> dict[str, int]:
        """Unschedulable pods by what stopped them; a pod counts once for each."""
        return {cause.value: self._stopped[cause] for cause in Cause if self._stopped[cause]}

    def in_flight(self) -> int:
        """Pods that are taken and neither removed nor requeued."""
        return self._sizes[Place.IN_FLIGHT]

    def place(self, key: PodKey) -> Place | None:
        """Where a pod is."""
        entry = self._entries.get(key)
        return entry.place if entry else None

    def attempts(self, key: PodKey) -> int:
        """How often the pod was taken."""
        entry = self._entries.get(key)
        return entry.attempts if entry else 0

    # Places

    def _enter(self, entry: _QueuedPod, place: Place, event: str) -> None:
        entry.place = place
        self._sizes[place] += 1
        self.incoming[place.value, event] += 1

    def _leave(self, entry: _QueuedPod, watched: bool = False) -> None:
        """Take a pod out of its place, and out of all that is kept about it there. Still ``watched``: it keeps its turn
        among those that are alike.
        """
        place = entry.place
        self._sizes[place] -= 1
        if place is Place.ACTIVE:
            self._lane(entry).discard(entry.key)
        elif place in self._ordered:
            self._ordered[place].discard(entry.key)
        self._helped.pop(entry.key, None)
        if entry.watched and not watched:
            entry.watched = False
            for cause in entry.causes:
                alike = self._waiting[cause][entry.like]
                del alike[entry.key]
                if not alike:
                    del self._waiting[cause][entry.like]
        if place is Place.UNSCHEDULABLE:
            self._stopped.subtract(entry.causes)
        elif place is Place.IN_FLIGHT and not self._sizes[place]:
            # No pod is left that could have missed anything.
            self._last_wake.clear()
            self._questions.clear()

    def _launch(self, entry: _QueuedPod) -> None:
        self._leave(entry)
        entry.attempts += 1
        entry.touched = False
        entry.taken_at_wake = self._wakes
        entry.place = Place.IN_FLIGHT
        self._sizes[Place.IN_FLIGHT] += 1

    def _lane(self, entry: _QueuedPod) -> OrderedPods:
        """Where an active pod is."""
        return self._later if entry.later else self._ordered[Place.ACTIVE]

    def _activate(self, entry: _QueuedPod, event: str) -> None:
        self._lane(entry).put(entry.key, entry.turn)
        self._enter(entry, Place.ACTIVE, event)

    def _delay(self, entry: _QueuedPod, now: float, until_s: float, event: str, watched: bool = False) -> None:
        if until_s <= now:
            self._activate(entry, event)
        else:
            self._ordered[Place.BACKOFF].put(entry.key, until_s)
            self._enter(entry, Place.BACKOFF, event)
            if watched:
                self._watch(entry)

    def _watch(self, entry: _QueuedPod) -> None:
        """Let what may help a pod be known to do so."""
        entry.watched = True
        for cause in entry.causes:
            self._waiting[cause].setdefault(entry.like, {})[entry.key] = None

    def _retry(self, entry: _QueuedPod, now: float, event: str, later: bool = False) -> None:
        """An unschedulable pod has a chance again; not before its backoff is over."""
        until_s = self._backoff_end(entry)
        self._leave(entry, watched=until_s > now)
        entry.later = later
        self._delay(entry, now, until_s, event, watched=True)

    def _help(self, entry: _QueuedPod, now: float, event: str) -> None:
        """Something has come that may let in a pod that is watched: it takes part in rounds from now on, and those of its
        own are no closer than the first backoff: what has come may not do, again and again.
        """
        head = self._ordered[Place.BACKOFF].rank(entry.key)
        until_s = self._backoff_end(entry) if head is None else head
        self._leave(entry)
        entry.later = False
        if self._early < MOST_JOINING:
            self._early += 1
            until_s = min(until_s, entry.tried_s + self.initial_backoff_s)
        self._delay(entry, now, until_s, event)
        if entry.place is Place.BACKOFF:
            self._helped[entry.key] = None

    def _pass_on(self, entry: _QueuedPod) -> None:
        """A pod that was to try again will not: another one of its kind does, as perhaps no more were woken than there is
        room for.
        """
        if entry.place not in (Place.ACTIVE, Place.BACKOFF) or entry.watched:
            return
        for cause in sorted(entry.causes):
            if alike := self._waiting[cause].get(entry.like):
                other = self._entries[next(iter(alike))]
                self._leave(other)
                other.later = entry.later
                self._activate(other, POD_UPDATED)
                return

    def _advance(self, now: float, later: int | None) -> None:
        """What is due becomes active; of unschedulable pods no more than are taken, as tens of thousands may be due."""
        for place, event in ((Place.BACKOFF, BACKOFF_COMPLETE), (Place.UNSCHEDULABLE, TIMED_OUT)):
            while (head := self._ordered[place].first()) is not None and head[0] <= now:
                if place is Place.UNSCHEDULABLE and later is not None and len(self._later) >= later:
                    break
                entry = self._entries[head[1]]
                self._leave(entry)
                entry.later = entry.later or place is Place.UNSCHEDULABLE
                self._activate(entry, event)

    def _backoff_end(self, entry: _QueuedPod) -> float:
        # The exponent is capped: no float holds two to the power of a stubborn pod's failures.
        doublings = min(max(entry.failures - 1, 0), 63)
        return entry.failed_s + entry.longer * min(self.initial_backoff_s * 2.0**doublings, self.max_backoff_s)

    def _draw(self) -> float:
        return 1.0 if self.rng is None else self.rng.uniform(1.0, LONGEST)

    # Changes while pods are in flight

    def _remember(self, helped: tuple[Cause, ...], match: Match | None) -> None:
        self._wakes += 1
        if match is None:
            self._last_wake.update(dict.fromkeys(helped, self._wakes))
            return
        self._questions.append(_Question(self._wakes, helped, match))
        if len(self._questions) > self.QUESTIONS:
            oldest = self._questions.pop(0)
            for cause in oldest.causes:
                self._last_wake[cause] = max(self._last_wake.get(cause, 0), oldest.number)

    def _missed(self, entry: _QueuedPod) -> tuple[bool, bool, bool]:
        """What came while a pod was in flight: whether something that helps it in particular, whether another change that
        may help it, and whether that helps all that wait alike.
        """
        since = entry.taken_at_wake
        for question in self._questions:
            if question.number > since and question.concerns(entry.causes, entry.like, entry.key):
                return True, False, False
        blanket = any(self._last_wake.get(cause, 0) > since for cause in entry.causes)
        return False, entry.touched or blanket, blanket and not entry.touched

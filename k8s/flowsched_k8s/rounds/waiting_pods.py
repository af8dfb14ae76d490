"""What becomes of pods that an attempt has left without a place: where they wait, until when, and what they are told."""

from __future__ import annotations

from flowsched_k8s import names
from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Cause
from flowsched_k8s.instructions import Instruction
from flowsched_k8s.metrics.tallies import Tallies
from flowsched_k8s.notices.notices import Notices
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.preemption.evictions import Evictions
from flowsched_k8s.queue import AttemptOutcome, PodQueue
from flowsched_k8s.rounds.round_input import Fate
from flowsched_k8s.wakeups import Wakeups

_JUST_AFTER_S = 1e-3


class WaitingPods:
    """Puts them back into the queue."""

    def __init__(
        self,
        cache: Cache,
        queue: PodQueue,
        evictions: Evictions,
        wakeups: Wakeups,
        notices: Notices,
        recorder: Recorder,
        tallies: Tallies,
    ) -> None:
        """Of one scheduler; they change with it. None was postponed."""
        self._cache = cache
        self._queue = queue
        self._evictions = evictions
        self._wakeups = wakeups
        self._notices = notices
        self._recorder = recorder
        self._tallies = tallies
        self.postponed: set[str] = set()
        """uids of pods that the last round they were in postponed."""

    def attempted(self, entry: PodEntry, result: str, seconds_taken: float) -> None:
        """An attempt has ended, as metrics name it: the tallies have it."""
        self._tallies.attempts.append((result, seconds_taken, entry.pod.spec.scheduler_name))

    def hold(
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
        overdue_s = entry.waits_since_s + self._cache.configuration.engine.due_age_s + _JUST_AFTER_S
        # Then services yield to it.
        yield_s = overdue_s if behind_services and now < overdue_s else float("inf")
        by_s = min(yield_s, self._evictions.late_s(entry.key.uid, now))
        if fate is Fate.POSTPONED:
            self.postponed.add(entry.key.uid)
            # A place that another pod leaves may cost less than those that there were.
            waits, like = AttemptOutcome.POSTPONED, self._wakeups.kind_of(entry)
            room = causes | {Cause.RESOURCES}
            self._queue.requeue(entry.key, now, waits, causes=room, like=like, by_s=yield_s)
            if behind_services and now >= overdue_s:
                return self._notices.tell(entry, names.UNSCHEDULABLE, behind_services, now)
            event = self._recorder.postponed(entry.key, message, now)
            return [event] if event is not None else []
        self.postponed.discard(entry.key.uid)
        if fate is Fate.ERROR:
            self._queue.requeue(entry.key, now, AttemptOutcome.ERROR)
            return self._notices.tell(entry, names.SCHEDULER_ERROR, message, now)
        waits, like = AttemptOutcome.UNSCHEDULABLE, self._wakeups.kind_of(entry)
        self._queue.requeue(entry.key, now, waits, causes=causes, like=like, failed=failed, by_s=by_s)
        if Cause.GATES in causes and not entry.nominated:
            # Who lets a group go does so pod by pod: the others mostly follow at once.
            self._notices.put_off(entry, names.UNSCHEDULABLE, message, now)
            return []
        known = entry.nominated in self._cache.nodes or entry.nominated in self._cache.others
        if nominated_node is None and entry.nominated and not known:
            # Its node went while no replica led.
            nominated_node = ""
        return self._notices.tell(entry, names.UNSCHEDULABLE, message, now, nominated_node=nominated_node)

"""Which of the pods that wait take part in a round, and which are a later one's, so that none holds up all others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Cause, causes_of
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.names import CLAIM_IN_USE
from flowsched_k8s.notices.recorder import histogram
from flowsched_k8s.pods.entries import PodEntry, Wants
from flowsched_k8s.pods.verdicts import REMEMBERED
from flowsched_k8s.queue import PodQueue
from flowsched_k8s.rounds.inputs import InputBuilder

Blocked = tuple[PodEntry, str, frozenset[Cause]]
MOST_QUESTIONS = 200_000
"""Of a pod's static filters to a node, in one round; about a second's work. Terms beyond the first few are questions too."""
MOST_IN_PARTS = REMEMBERED // 2
"""Filters of pods that are decided together and asked in several rounds: what was answered is remembered until then."""
MOST_KINDS = 1_000
"""Of pods in one round: each costs about a millisecond."""
LONG = 256
"""Entries of all lists of a pod: one with more says much. The usual pod has some twenty."""
MOST_LENGTH = 8_192
"""Entries of the pods of a round that say much: some 0.3 s of preparation."""


class Participants:
    """Chooses the pods of a round."""

    def __init__(self, cache: Cache, gangs: Gangs, inputs: InputBuilder) -> None:
        """Pods that say little are first."""
        self._cache = cache
        self._gangs = gangs
        self._inputs = inputs
        self._long_turn = False
        """Whether the next round is that of pods that say much, where others wait as well."""

    def sort(self, entries: Iterable[PodEntry], queue: PodQueue, now: float) -> tuple[list[PodEntry], list[Blocked]]:
        """Pods that take part in a round, and those that no node could take, with the reason.

        A group takes part whole: its members that waited elsewhere in the queue are fetched.
        """
        fit: list[PodEntry] = []
        blocked: list[Blocked] = []
        by_group: dict[GroupRef, list[PodEntry]] = {}
        entries = list(entries)
        again = 0
        for entry in entries:
            if entry.wants is not None and entry.wants.costs and again < MOST_LENGTH:
                again += entry.length
                self._cache.pod_wants.ask_again(entry)
            # A pod may declare a relation that counts one before it: all declare before any is read.
            self._cache.wants(entry)
        for entry in entries:
            wants = self._cache.wants(entry)
            if wants.problem is not None:
                blocked.append((entry, *self.blocked(wants.problem)))
            elif wants.group is not None:
                by_group.setdefault(wants.group, []).append(entry)
            else:
                fit.append(entry)
        retry_s = self._cache.configuration.rounds.unschedulable_retry_s
        for ref, members in by_group.items():
            included = {e.key.uid: e for e in members}
            for other in self._gangs.waiting(ref):
                if other.key.uid not in included and queue.claim(other.key):
                    included[other.key.uid] = other
                    self._cache.wants(other)
            sound = []
            for entry in included.values():
                wants = self._cache.wants(entry)
                if wants.problem is not None:
                    blocked.append((entry, *self.blocked(wants.problem)))
                else:
                    sound.append(entry)
            why = self._gangs.blocked(ref, now, retry_s)
            if why is None:
                fit += sound
            else:
                # A gang that is not complete is no fault of the nodes.
                message = histogram(len(self._cache.nodes), {}, more=why)
                cause = Cause.GATES if self._gangs.gated(ref) else Cause.GROUP
                blocked += [(e, message, frozenset({cause})) for e in sound]
        served = self._gangs.priorities(fit)
        fit.sort(key=lambda e: (-served[e.key.uid], e.order))
        return fit, blocked

    def turn(self, entries: Sequence[PodEntry], queue: PodQueue) -> tuple[list[PodEntry], list[PodEntry]]:
        """Pods of a round, and those whose turn is later. Those that say much, or are in a group with one that does, have
        rounds of their own between the others; of such a group all members are fetched.
        """
        groups: dict[GroupRef, bool] = {}
        short: list[PodEntry] = []
        long: list[PodEntry] = []
        for entry in entries:
            ref = self._gangs.ref(entry)
            if ref is not None and ref not in groups:
                groups[ref] = any(e.length > LONG for e in self._gangs.waiting(ref))
            (long if entry.length > LONG or (ref is not None and groups[ref]) else short).append(entry)
        if not long:
            return short, []
        if short and not self._long_turn:
            self._long_turn = True
            return short, long
        self._long_turn = False
        for ref in (ref for ref, says_much in groups.items() if says_much):
            long += [other for other in self._gangs.waiting(ref) if queue.claim(other.key)]
        return long, short

    def prepared(self, entries: Sequence[PodEntry]) -> tuple[list[PodEntry], list[PodEntry]]:
        """Those that are prepared, and those whose turn is later, as many say much: groups stay whole."""
        if all(entry.length <= LONG for entry in entries):
            return list(entries), []
        spent = 0
        unready: set[GroupRef | None] = set()
        late: set[str] = set()
        for entry in entries:
            ref, wants = self._gangs.ref(entry), entry.wants
            # Members that were refused for what they cost stay so here, as a group with one of them waits in any case.
            costly = ref is None and wants is not None and wants.costs
            if entry.length > LONG and (costly or not self._cache.pod_wants.is_prepared(entry)):
                if spent and spent + entry.length > MOST_LENGTH:
                    spent = MOST_LENGTH
                    unready.add(ref)
                else:
                    self._cache.wants(entry)
                    spent += entry.length
            if ref is None and None in unready:
                late.add(entry.key.uid)
        late |= {e.key.uid for e in entries if (ref := self._gangs.ref(e)) is not None and ref in unready}
        return [e for e in entries if e.key.uid not in late], [e for e in entries if e.key.uid in late]

    def blocked(self, problem: str) -> tuple[str, frozenset[Cause]]:
        """Message and causes of a pod that no node can take."""
        causes, total = causes_of((problem,)), len(self._cache.nodes)
        if problem == CLAIM_IN_USE:
            return histogram(total, {problem: total}), causes
        if Cause.OTHER in causes:
            causes = (causes - {Cause.OTHER}) | {Cause.UNSUPPORTED, Cause.VOLUMES}
        return histogram(total, {}, whole=problem), causes

    def affordable(self, entries: Sequence[PodEntry]) -> tuple[list[PodEntry], list[PodEntry]]:
        """Those that can be decided on at once, and those whose turn is later. Groups stay whole.

        Asking their static filters holds up the event loop, and with it watches and bindings. The order in which pods are
        served is kept.
        """
        if len(entries) == 1 and entries[0].length <= LONG:
            return list(entries), []
        cache = self._cache
        asked: set[Hashable] = set()
        kinds: set[Hashable] = set()
        last: Wants | None = None
        left = MOST_QUESTIONS
        cut, in_parts = len(entries), False
        for i, entry in enumerate(entries):
            wants = cache.wants(entry)
            if wants is last:  # mostly pods of one template come together
                continue
            last, static = wants, wants.filter
            kinds.add(wants.class_key)
            if len(kinds) > MOST_KINDS:
                cut = i
                break
            if static.key not in asked:
                asked.add(static.key)
                unasked = self._inputs.unasked(wants)
                # What has been answered is remembered, so in the end the first one has all of its answers.
                now = min(unasked, max(not i, left // static.questions))
                left -= now * static.questions
                if now:
                    self._inputs.verdicts(wants, now)
                if now < unasked:
                    cut, in_parts = i, len(asked) <= MOST_IN_PARTS
                    break
        if cut == len(entries):
            return list(entries), []
        late = {g for e in entries[cut:] if (g := cache.wants(e).group) is not None}
        if not in_parts:
            late -= {cache.wants(e).group for e in entries[:cut]}
        turn = [(i < cut, cache.wants(e).group) for i, e in enumerate(entries)]
        taken = [ref not in late if ref is not None else first for first, ref in turn]
        return (
            [e for e, now in zip(entries, taken, strict=True) if now],
            [e for e, now in zip(entries, taken, strict=True) if not now],
        )

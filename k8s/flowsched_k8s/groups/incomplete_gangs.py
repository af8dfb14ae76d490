"""Groups that never ran whole and cannot be completed: what of them is on nodes is evicted, so that all wait again.

That happens where a scheduler ended in the middle of their bindings and the room for the others is gone, or where the API
server refused one of them. What is bound holds room and waits for pods that do not come. A group is left alone as long as it
may have run whole: only what flowsched bound together itself tells that it did not (:mod:`flowsched_k8s.groups.gang_start`).
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gang_start import digest, read_start
from flowsched_k8s.groups.gangs import Gangs, group_name
from flowsched_k8s.groups.pod_groups import GroupRef, GroupSpec
from flowsched_k8s.instructions import Evict, Instruction, MovePod
from flowsched_k8s.names import GROUP_UNDONE
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.preemption.budgets import Budgets
from flowsched_k8s.queue import PodQueue

LOG = logging.getLogger(__name__)

_EVERY_S = 5.0
"""Time between two looks."""
_AGAIN_S = 60.0
"""A pod that was to go and is not being deleted after so long is asked to go again."""


@dataclass(eq=False)
class IncompleteGangs:
    """Finds them and undoes them. Of one scheduler; needs a feature that gives the right to evict."""

    _cache: Cache
    _gangs: Gangs
    _queue: PodQueue
    _budgets: Budgets
    _recorder: Recorder
    _next_s: float = 0.0
    _since_s: dict[GroupRef, float] = field(default_factory=dict)
    """Since when a group that never ran whole has been seen incomplete."""
    _whole: set[GroupRef] = field(default_factory=set)
    """Groups with waiting pods that have been seen whole."""
    _asked_s: dict[str, float] = field(default_factory=dict)
    """By uid, when a pod was asked to go."""

    def look(self, now: float) -> list[Instruction]:
        """Evictions, with their events, of groups that have been incomplete for longer than their timeout."""
        features = self._cache.configuration.features
        if now < self._next_s or not (features.preemption or features.rebalancing) or self._budgets.unreadable:
            return []
        self._next_s = now + _EVERY_S
        pods = self._cache.pods
        waiting = (pods.get(key.uid) for key in self._queue)
        since = {ref: at for ref, at in self._since_s.items() if self._gangs.placed(ref)}
        refs = {ref for e in waiting if e is not None and (ref := self._gangs.ref(e)) is not None} | since.keys()
        self._whole &= refs
        self._asked_s = {uid: at for uid, at in self._asked_s.items() if uid in pods and now - at < _AGAIN_S}
        self._since_s = {}
        out: list[Instruction] = []
        left = Counter(self._budgets.allowed())
        for ref in sorted(refs):
            spec = self._gangs.spec(ref)
            if not isinstance(spec, GroupSpec) or not self._never_ran(ref, spec):
                continue
            first = self._since_s[ref] = since.get(ref, now)
            if now - first > spec.timeout_s and not self._may_be_completed(ref):
                out += self._undo(ref, spec, left, now)
        return out

    def _never_ran(self, ref: GroupRef, spec: GroupSpec) -> bool:
        """Whether pods of a group are on nodes, and so many as have to run together never were."""
        placed = [self._cache.pods[uid] for uid in self._gangs.placed(ref)]
        bound = [e for e in placed if e.node]
        if len(bound) >= spec.minimum:
            self._whole.add(ref)
        if not bound or ref in self._whole or spec.succeeded:
            return False
        missing = {digest(e.key.uid) for e in (*self._gangs.waiting(ref), *placed) if not e.node}
        starts: dict[tuple[int, int, int], set[str]] = {}
        for entry in bound:
            found = read_start(entry.pod) if entry.ours else None
            if found is None:
                return False
            number, start = found
            kind = number, start.pods, start.minimum
            starts.setdefault(kind, set()).update(missing.intersection(start.others))
        return all(pods - len(never) < minimum for (_, pods, minimum), never in starts.items())

    def _may_be_completed(self, ref: GroupRef) -> bool:
        """Whether a place has been found for some of the others, or room is being made."""
        pods = self._cache.pods
        chosen = any(not pods[uid].node for uid in self._gangs.placed(ref))
        return chosen or any(e.key.uid in self._cache.nominated for e in self._gangs.waiting(ref))

    def _undo(self, ref: GroupRef, spec: GroupSpec, left: Counter[str], now: float) -> list[Instruction]:
        """Evict its pods as far as disruption budgets allow; the others go when these allow it."""
        out: list[Instruction] = []
        bound = [self._cache.pods[uid] for uid in self._gangs.placed(ref)]
        text = (
            f"Pod group {group_name(ref)} never had the {spec.minimum} pods on nodes that it starts with: "
            f"{len(bound)} are, and the others found no place within {spec.timeout_s:g} s"
        )
        for entry in bound:
            budgets = self._budgets.counting(entry.pod)
            if entry.key.uid in self._asked_s or any(left[budget] <= 0 for budget in budgets):
                continue
            left.subtract(budgets)
            self._asked_s[entry.key.uid] = now
            LOG.info("undone", extra={"pod": entry.key, "why": text})
            by_api = not self._cache.configuration.features.preemption
            out.append(MovePod(entry.key) if by_api else Evict(entry.key, text))
            event = self._recorder.event(entry.key, GROUP_UNDONE, "Warning", "Evicting", text, now)
            out += [] if event is None else [event]
        return out

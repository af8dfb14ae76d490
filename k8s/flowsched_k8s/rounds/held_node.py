"""The nodes that are kept for pods that have waited too long for room, and how long they are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from flowsched.cluster.snapshot import Reservation
from flowsched_k8s.cache import Cache
from flowsched_k8s.departures import Departures
from flowsched_k8s.groups.gangs import Gangs
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.queue import Cause
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.round_input import Fate, Held, RoundResult
from flowsched_k8s.wakeups import Wakeups

_ABOVE_ALL = 1 << 31
"""Above every priority that a pod may have."""
_LEAST_PATIENCE_S = 10.0
_MOST_PATIENCE_S = 86_400.0
_ASKED_AGAIN_S = 15.0
"""A kind of pod for which no node can be kept is not asked about again for so long."""
_MOST_ASKED = 10_000
"""Nodes of which a round asks whether they can be kept, about a tenth of a second's work; other kinds of pods are next."""
_MOST_REMEMBERED = 1024
_TINY = 1e-9


@dataclass
class _Kept:
    """A node that is kept for a pod."""

    node: str
    reserved: bool
    """Whether the engine has reserved it for a measured pod, by forecasts; else it drains."""
    ends: bool
    """Whether all the room that is missing comes from pods that end; else some of them have to be deleted."""
    since_s: float
    start_s: float
    """When the room was forecast to be there; else when the node began to drain."""
    progress_s: float
    """When something last left that was in the way."""
    least: float
    """The least that has been missing; see :meth:`HeldNode._missing`."""


@dataclass
class _Turns:
    """What became of the nodes that were kept for a pod in vain."""

    in_vain: int = 0
    """How many of them were, of those that only waited for pods that end."""
    rests_until_s: float = 0.0
    """Other overdue pods come first until then."""
    nodes: dict[str, tuple[float, float]] = field(default_factory=dict)
    """What was missing on each in the end, and until when it is not kept again unless less is missing."""


class HeldNode:
    """One node at a time that drains, and the pod that it is held for; and what the engine has reserved for measured pods.

    A node that nothing leaves any more is given up: after ``due_age_s`` since the last pod left that was in the way, or
    since the room was forecast to be there. Each time in vain the pod's next node is kept twice as long, so that work of
    any length ends while one is kept; not so where pods would have to be deleted. The node is not kept for that pod again
    before something has left it, or, where pods end, before the same time has passed again.
    """

    def __init__(self, cache: Cache, gangs: Gangs, inputs: InputBuilder, wakeups: Wakeups) -> None:
        """None is held."""
        self._cache = cache
        self._gangs = gangs
        self._inputs = inputs
        self._wakeups = wakeups
        self._departures = Departures(cache)
        self.reservations: tuple[Reservation, ...] = ()
        """Of the engine, for pods that still wait."""
        self._kept: dict[str, _Kept] = {}
        """By uid."""
        self._first = ""
        """uid of the pod whose node all other pods leave alone; empty if there is none."""
        self._turns: dict[str, _Turns] = {}
        """By uid."""
        self._hopeless: dict[Hashable, float] = {}
        """By kind of pod for which no node could be kept, until when that is not asked again."""

    @property
    def held(self) -> tuple[str, str, int] | None:
        """(uid, node, priority): pods of a higher priority may use it; None if no node drains."""
        entry = self._cache.pods.get(self._first)
        return None if entry is None else (self._first, self._kept[self._first].node, self._priority(entry.priority))

    def let_go(self, uid: str, now: float) -> None:
        """A pod needs no node any more: what is free on one that drained for it is for all."""
        self._turns.pop(uid, None)
        self.reservations = tuple(r for r in self.reservations if r.task != uid)
        self._end(uid, now)

    def node_gone(self, node: str) -> None:
        """A node is gone."""
        self._departures.forget(node)
        self.reservations = tuple(r for r in self.reservations if r.machine != node)
        for uid in [uid for uid, kept in self._kept.items() if kept.node == node]:
            self._drop(uid)
        for turns in self._turns.values():
            turns.nodes.pop(node, None)

    def said(self, uid: str) -> str:
        """What a waiting pod is told of the node that is kept for it; empty if none is."""
        kept = self._kept.get(uid)
        if kept is None:
            return ""
        since = datetime.fromtimestamp(kept.since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f" {kept.node} {'is reserved' if kept.reserved else 'drains'} for it since {since}."

    def passed_over(self, entries: Sequence[PodEntry], now: float) -> dict[str, frozenset[str]]:
        """By uid, nodes that are not to be kept for a waiting pod now: they were in vain, for it or for its group.

        None of them has room for it.
        """
        if not self._turns:
            return {}
        groups: dict[GroupRef | str, set[str]] = {}
        for uid, turns in self._turns.items():
            if turns.nodes and uid in self._cache.pods:
                groups.setdefault(self._gangs.ref(self._cache.pods[uid]) or uid, set()).add(uid)
        found = {}
        for entry in entries:
            ends = groups.get(self._gangs.ref(entry) or entry.key.uid, ())
            over = {
                node
                for uid in ends
                for node, end in self._turns[uid].nodes.items()
                if self._over(entry, node, *end, now)
            }
            if over:
                found[entry.key.uid] = frozenset(over)
        return found

    def _over(self, entry: PodEntry, node: str, missing: float, until_s: float, now: float) -> bool:
        here = self._missing(entry, node)
        return now < until_s and here > 0.0 and here >= missing - _TINY

    def choose(self, result: RoundResult, now: float) -> None:
        """Take over what a round has reserved. Where no node is held, the earliest overdue pod for which one can be made
        free gets that.
        """
        cache = self._cache
        decided = {uid for h in result.held for uid in h.uids} | {c.uid for c in result.chosen}
        # A reserved start never moves later: a pod that the round did not have keeps what it has.
        others = (r for r in self.reservations if r.task not in decided)
        found = [
            (r, e)
            for r in (*result.reservations, *others)
            if r.machine in cache.nodes and (e := cache.pods.get(r.task)) is not None and not e.place
        ]
        # One may have been given up while the round ran.
        over = self.passed_over([e for _, e in found], now)
        self.reservations = tuple(r for r, _ in found if r.machine not in over.get(r.task, ()))
        reserved = {r.task: r for r in self.reservations}
        for uid, kept in list(self._kept.items()):
            if kept.reserved and uid not in reserved:
                self._end(uid, now)
        for uid, reservation in reserved.items():
            known = self._kept.get(uid)
            if known is not None and known.reserved and known.node == reservation.machine:
                continue
            # The engine counts on pods that end alone.
            self._keep(uid, reservation.machine, now, ends=True, start_s=reservation.start_s, reserved=True)
            if known is not None and uid == self._first and known.node != reservation.machine:
                self._wakeups.room_on(known.node, now)
        self.look(now)
        if not self._first:
            self._first = self._begin(result.held, now) or next((r.task for r in self.reservations), "")

    def look(self, now: float) -> None:
        """End what is kept in vain; for a timer, and after rounds."""
        cache = self._cache
        for uid, kept in list(self._kept.items()):
            entry = cache.pods.get(uid)
            if entry is None or entry.place:
                self._end(uid, now)
                continue
            missing = self._missing(entry, kept.node)
            if not self._could_take(entry, kept.node, now, deletions=not kept.ends):
                if kept.reserved:
                    # By forecasts it may still look as if it could.
                    self._turns.setdefault(uid, _Turns()).nodes[kept.node] = missing, float("inf")
                self.reservations = tuple(r for r in self.reservations if r.task != uid)
                self._end(uid, now)
                continue
            if missing < kept.least - _TINY:
                kept.least, kept.progress_s = missing, now
            patience_s = self._patience_s(uid, kept.ends)
            if now - max(kept.progress_s, kept.start_s) > patience_s:
                self._give_up(uid, missing, patience_s, now)

    def _patience_s(self, uid: str, ends: bool) -> float:
        """How long a node is kept for a pod that nothing leaves."""
        once = max(_LEAST_PATIENCE_S, self._cache.configuration.engine.due_age_s)
        turns = self._turns.get(uid)
        times = 2.0 ** min(turns.in_vain, 64) if ends and turns is not None else 1.0
        return max(once, min(once * times, _MOST_PATIENCE_S))

    def _give_up(self, uid: str, missing: float, patience_s: float, now: float) -> None:
        kept, turns = self._kept[uid], self._turns.setdefault(uid, _Turns())
        turns.in_vain += kept.ends
        turns.rests_until_s = now + patience_s
        turns.nodes[kept.node] = missing, now + patience_s if kept.ends else float("inf")
        self.reservations = tuple(r for r in self.reservations if r.task != uid)
        self._end(uid, now)
        # Whose turn it is is decided among the pods of a round.
        self._wakeups.turn_over(now)

    def _keep(
        self, uid: str, node: str, now: float, *, ends: bool, start_s: float | None = None, reserved: bool = False
    ) -> None:
        missing = self._missing(self._cache.pods[uid], node)
        start_s = now if start_s is None else start_s
        self._kept[uid] = _Kept(node, reserved, ends, now, start_s, now, missing)

    def _end(self, uid: str, now: float) -> None:
        """A node is kept for a pod no longer: others may fit there."""
        first = self._first == uid
        node = self._drop(uid)
        if first and node:
            self._wakeups.room_on(node, now)

    def _drop(self, uid: str) -> str:
        kept = self._kept.pop(uid, None)
        if self._first == uid:
            self._first = ""
        return "" if kept is None else kept.node

    def _begin(self, held: Iterable[Held], now: float) -> str:
        """The earliest overdue pod for which a node is reserved, or can be made free and drains from now on; its uid."""
        cache, engine = self._cache, self._cache.configuration.engine
        reserved = [r.task for r in self.reservations if r.overdue]
        candidates = [e for uid in reserved if (e := cache.pods.get(uid)) is not None] + [
            e
            for h in held
            if h.fate is Fate.UNSCHEDULABLE and Cause.RESOURCES in h.causes and Cause.GROUP not in h.causes
            for uid in h.uids
            if (e := cache.pods.get(uid)) is not None and not e.place and now - e.waits_since_s > engine.due_age_s
        ]
        crosses = engine.aging_crosses_priority

        def turn(entry: PodEntry) -> tuple[bool, int, float, object]:
            turns = self._turns.get(entry.key.uid)
            rests = turns is not None and now < turns.rests_until_s
            return rests, 0 if crosses else -entry.priority, entry.waits_since_s, entry.key

        passed_over, left = self.passed_over(candidates, now), _MOST_ASKED
        for entry in sorted(candidates, key=turn):
            if entry.key.uid in reserved:
                return entry.key.uid
            kind, over = cache.wants(entry).class_key, passed_over.get(entry.key.uid, frozenset())
            if not over and self._hopeless.get(kind, 0.0) > now:
                continue
            if left <= 0:
                break
            left -= len(cache.nodes)
            found = self._candidate(entry, over, now)
            if found is not None:
                self._keep(entry.key.uid, found[0], now, ends=found[1])
                return entry.key.uid
            if not over:
                if len(self._hopeless) >= _MOST_REMEMBERED:
                    self._hopeless.clear()
                self._hopeless[kind] = now + _ASKED_AGAIN_S
        return ""

    def _priority(self, priority: int) -> int:
        return _ABOVE_ALL if self._cache.configuration.engine.aging_crosses_priority else priority

    def _candidate(self, entry: PodEntry, over: frozenset[str], now: float) -> tuple[str, bool] | None:
        """The node that a pod fits on once all has left that leaves, and that misses least of what it needs now.

        And whether that all ends by itself: only where no such node is there, pods may have to be deleted.
        """
        machines = self._cache.machines
        verdicts = self._inputs.verdicts(self._cache.wants(entry))
        able = verdicts.passes[: machines.rows] & machines.alive
        asked = [(amount, column) for amount, column in self._columns(entry.needs) if column is not None]
        if len(asked) < len(_asked(entry.needs)):
            # No node has had such a resource.
            return None
        for amount, column in asked:
            able = able & (machines.allocatable[:, column] >= amount)
        rows = np.flatnonzero(able)
        free, missing = machines.free[rows], np.zeros(len(rows))
        for amount, column in asked:
            missing += np.maximum(0, amount - free[:, column]) / amount
        names = (str(machines.names[r]) for r in rows.tolist())
        best = sorted((short, name) for short, name in zip(missing.tolist(), names, strict=True) if name not in over)
        first = ""
        for _, name in best:
            if not self._may_take(entry, name, now, deletions=True):
                continue
            if self._may_take(entry, name, now, deletions=False):
                return name, True
            first = first or name
        return (first, False) if first else None

    def _could_take(self, entry: PodEntry, node: str, now: float, deletions: bool) -> bool:
        """Whether a node would take a pod once all has left that leaves."""
        there, wants = self._cache.nodes.get(node), self._cache.wants(entry)
        if there is None or wants.problem is not None or wants.filter.verdict(there.node) is not None:
            return False
        return self._may_take(entry, node, now, deletions)

    def _may_take(self, entry: PodEntry, node: str, now: float, deletions: bool) -> bool:
        """The same of a node that static filters let the pod to."""
        machines, wants = self._cache.machines, self._cache.wants(entry)
        priority = self._priority(entry.priority)
        if not self._departures.leave_room(node, _asked(entry.needs), priority, now, deletions):
            return False
        if not (wants.holds or wants.joins):
            return True
        # A pod that leaves may be one that keeps it out, or one that lets it in.
        eligible = self._inputs.verdicts(wants).eligible[: machines.rows]
        going = self._departures.going(node, priority, now, deletions)
        return any(
            self._cache.booked.permits_on(wants.holds, wants.joins, node, eligible, gone) for gone in ((), going)
        )

    def _missing(self, entry: PodEntry, node: str) -> float:
        """What a node misses now of what a pod needs, summed over resources as shares of the need."""
        machines = self._cache.machines
        row = machines.row(node)
        if row is None:
            return float("inf")
        free = machines.free[row]
        asked = ((amount, 0 if c is None else int(free[c])) for amount, c in self._columns(entry.needs))
        return sum(max(0, amount - there) / amount for amount, there in asked)

    def _columns(self, needs: Mapping[str, int]) -> list[tuple[int, int | None]]:
        """What is needed of each resource, and the column that has it."""
        columns = {r: i for i, r in enumerate(self._cache.machines.resources)}
        return [(amount, columns.get(resource)) for resource, amount in _asked(needs)]


def _asked(needs: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(resource, amount) for resource, amount in needs.items() if amount > 0]

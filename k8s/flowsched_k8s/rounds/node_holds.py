"""The nodes that are kept for pods and gangs that have waited too long for room, and how long they are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flowsched.cluster.snapshot import Reservation
from flowsched_k8s.cache import Cache
from flowsched_k8s.causes import Cause
from flowsched_k8s.groups.gangs import Gangs, group_name
from flowsched_k8s.groups.pod_groups import GroupRef
from flowsched_k8s.pods.entries import PodEntry
from flowsched_k8s.rounds.drained_nodes import DrainedNodes, total_needs
from flowsched_k8s.rounds.held_nodes import HeldNodes
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.round_input import Fate, Held, RoundResult
from flowsched_k8s.rounds.start_units import StartUnit, StartUnits, UnitKey
from flowsched_k8s.wakeups import Wakeups

_ABOVE_ALL = 1 << 31
"""Above every priority that a pod may have."""
_LEAST_PATIENCE_S = 10.0
_MOST_PATIENCE_S = 86_400.0
_ASKED_AGAIN_S = 15.0
"""A kind of pod, or a gang, for which no node can be kept is not asked about again for so long."""
_MOST_ASKED = 10_000
"""Nodes of which a round asks whether they can be kept, about a tenth of a second's work; other kinds of pods are next."""
_MOST_REMEMBERED = 1024
_TINY = 1e-9


@dataclass
class _Progress:
    """How a node drains."""

    least: float
    """The least share of what it is kept for that has been missing."""
    since_s: float
    """When something last left that was in the way."""


@dataclass
class _Hold:
    """Nodes that are kept for a unit."""

    places: Mapping[str, str]
    """Nodes by uid of the pods that they are kept for."""
    since_s: Mapping[str, float]
    """By uid, since when its node is kept."""
    reserved: bool
    """Whether the engine has reserved them, by forecasts; else they drain."""
    ends: bool
    """Whether all the room that is missing comes from pods that end; else some of them have to be deleted."""
    priority: int
    start_s: float
    """When the room was forecast to be there; else when the nodes began to drain."""
    progress: dict[str, _Progress]
    """By node."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.places.values()))


@dataclass(frozen=True)
class _GivenUp:
    """A node that was kept in vain."""

    needs: Mapping[str, int]
    """What it was kept for."""
    missing: float
    """The share that was missing in the end."""
    until_s: float
    """Until when it is not kept again unless less is missing."""


@dataclass
class _Turns:
    """What became of the nodes that were kept for a unit in vain."""

    in_vain: int = 0
    """How many times they were, where they only waited for pods that end."""
    refused: int = 0
    """How many times a gang did not start although all nodes had room: some relation, or goal, refuses it there."""
    rests_until_s: float = 0.0
    """Other overdue units come first until then."""
    nodes: dict[str, _GivenUp] = field(default_factory=dict)


class NodeHolds:
    """The nodes that drain for one unit at a time, a pod or a gang, and what the engine has reserved for measured pods.

    All nodes of a unit are given up once nothing leaves one of them any more: ``due_age_s`` after the last pod left that was
    in the way, or after the room was forecast to be there. Each time in vain the unit's next nodes are kept twice as long,
    so that work of any length ends while they are kept; not so where pods would have to be deleted. A node is not kept for
    that unit again before something has left it, or, where pods end, before the same time has passed again.
    """

    def __init__(self, cache: Cache, gangs: Gangs, inputs: InputBuilder, wakeups: Wakeups) -> None:
        """No node is held."""
        self._cache = cache
        self._gangs = gangs
        self._units = StartUnits(cache, gangs)
        self._drained = DrainedNodes(cache, inputs)
        self._wakeups = wakeups
        self.reservations: tuple[Reservation, ...] = ()
        """Of the engine, for pods that still wait."""
        self._holds: dict[UnitKey, _Hold] = {}
        self._first: UnitKey | None = None
        """The unit whose nodes all other pods leave alone; None if there is none."""
        self._turns: dict[UnitKey, _Turns] = {}
        self._gangs_seen: dict[GroupRef, float] = {}
        """Gangs that a round left without room, and since when each was seen to wait. One may sit out rounds, and still has
        its turn.
        """
        self._hopeless: dict[Hashable, float] = {}
        """By kind of pod, or gang, for which no node could be kept, until when that is not asked again."""

    @property
    def held(self) -> HeldNodes | None:
        """The nodes that all other pods leave alone but those of a higher priority; None if there are none."""
        if self._first is None:
            return None
        hold = self._holds[self._first]
        if not hold.places.keys() <= self._cache.pods.keys():
            # Another pod of its name has come, and the end of the first is not told yet.
            return None
        group = group_name(self._first) if isinstance(self._first, GroupRef) else None
        has_room = hold.reserved or all(
            self._drained.missing(needs, node) <= 0.0 for node, needs in self._needs(hold).items()
        )
        return HeldNodes(tuple(hold.places.items()), self._priority(hold.priority), group, has_room)

    def are_for(self, ref: GroupRef) -> bool:
        """Whether nodes are kept for a gang."""
        return ref in self._holds

    def let_go(self, uid: str, now: float) -> None:
        """A pod needs no node any more: what is free on those that drained for it, and for its gang, is for all."""
        self._turns.pop(uid, None)
        key = next((key for key, hold in self._holds.items() if uid in hold.places), None)
        self._release({uid} if key is None else self._holds[key].places.keys())
        if key is not None:
            self._end(key, now)

    def node_gone(self, node: str, now: float) -> None:
        """A node is gone."""
        self._drained.forget(node)
        self.reservations = tuple(r for r in self.reservations if r.machine != node)
        for key in [key for key, hold in self._holds.items() if node in hold.places.values()]:
            self._end(key, now)
        for turns in self._turns.values():
            turns.nodes.pop(node, None)

    def said(self, uid: str) -> str:
        """What a waiting pod is told of the node that is kept for it; empty if none is."""
        hold = next((hold for hold in self._holds.values() if uid in hold.places), None)
        if hold is None:
            return ""
        since = datetime.fromtimestamp(hold.since_s[uid], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f" {hold.places[uid]} {'is reserved' if hold.reserved else 'drains'} for it since {since}."

    def passed_over(self, entries: Sequence[PodEntry], now: float) -> dict[str, frozenset[str]]:
        """By uid, nodes that are not to be kept for a waiting pod now: they were in vain, for it or for its gang.

        None of them has room for it.
        """
        if not self._turns:
            return {}
        over = {key: self._given_up(key, now) for key in self._turns}
        keys = self._units.keys_of(entries)
        found = {}
        for entry in entries:
            nodes = over.get(keys[entry.key.uid], ())
            mine = frozenset(node for node in nodes if self._drained.missing(entry.needs, node) > 0.0)
            if mine:
                found[entry.key.uid] = mine
        return found

    def _given_up(self, key: UnitKey, now: float) -> frozenset[str]:
        turns = self._turns.get(key)
        if turns is None:
            return frozenset()
        return frozenset(
            node
            for node, known in turns.nodes.items()
            if now < known.until_s
            and (here := self._drained.missing(known.needs, node)) > 0.0
            and here >= known.missing - _TINY
        )

    def choose(self, result: RoundResult, now: float) -> None:
        """Take over what a round has reserved. Where no node is held, the earliest overdue unit for which nodes can be made
        free gets them.
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
        keys = self._units.keys_of([e for _, e in found])
        reserved: dict[UnitKey, list[Reservation]] = {}
        for reservation in self.reservations:
            reserved.setdefault(keys[reservation.task], []).append(reservation)
        for key, hold in list(self._holds.items()):
            if hold.reserved and key not in reserved:
                self._end(key, now)
        for key, mine in reserved.items():
            self._reserve(key, mine, now)
        self.look(now)
        if self._first is None:
            overdue = {keys[r.task] for r in self.reservations if r.overdue} & self._holds.keys()
            self._first = self._begin(result.held, overdue, now)
            if self._first is None:
                self._first = next((key for key, hold in self._holds.items() if hold.reserved), None)

    def _reserve(self, key: UnitKey, mine: Sequence[Reservation], now: float) -> None:
        """Nodes are kept that the engine has reserved for a unit."""
        places = {r.task: r.machine for r in mine}
        known = self._holds.get(key)
        if known is not None and known.reserved and known.places == places:
            return
        # The engine counts on pods that end alone.
        self._keep(key, places, now, ends=True, start_s=max(r.start_s for r in mine), reserved=True)
        if known is not None and key == self._first:
            for node in known.nodes:
                if node not in places.values():
                    self._wakeups.room_on(node, now)

    def look(self, now: float) -> None:
        """End what is kept in vain, and forget gangs that are gone; for a timer, and after rounds."""
        known = {key for key in (*self._turns, *self._hopeless) if isinstance(key, GroupRef)}
        for ref in [ref for ref in {*self._gangs_seen, *known} if not self._gangs.any_waits(ref)]:
            # Another one of its name may come.
            for forgotten in (self._gangs_seen, self._turns, self._hopeless):
                forgotten.pop(ref, None)
        for key, hold in list(self._holds.items()):
            if not self._waits(key, hold):
                self._end(key, now)
                continue
            needs = self._needs(hold)
            missing = {node: self._drained.missing(asked, node) for node, asked in needs.items()}
            vain = [node for node in needs if not self._could_take(key, hold, node, now)]
            if vain:
                if hold.reserved:
                    # By forecasts it may still look as if it could.
                    turns = self._turns.setdefault(key, _Turns())
                    turns.nodes.update({n: _GivenUp(needs[n], missing[n], float("inf")) for n in vain})
                self._release(hold.places.keys())
                self._end(key, now)
                continue
            for node, share in missing.items():
                if share < hold.progress[node].least - _TINY:
                    hold.progress[node] = _Progress(share, now)
                    if not any(missing.values()) and isinstance(key, GroupRef):
                        # It may sit out rounds, or wait for more than room on the node that a pod has left.
                        self._wakeups.gang(key, now)
            patience_s = self._patience_s(key, hold.ends)
            late = [n for n, p in hold.progress.items() if now - max(p.since_s, hold.start_s) > patience_s]
            short = {n: _GivenUp(needs[n], missing[n], now + patience_s) for n in late if missing[n] > 0.0}
            if short or (len(late) == len(missing) and not any(missing.values())):
                self._give_up(key, hold, short, patience_s, now)

    def _waits(self, key: UnitKey, hold: _Hold) -> bool:
        """Whether the pods still wait that nodes are kept for, and are as many as have to start together."""
        entries = [self._cache.pods.get(uid) for uid in hold.places]
        if any(entry is None or entry.place for entry in entries):
            return False
        if hold.reserved or isinstance(key, str):
            return True
        unit = self._units.of(key)
        return unit is not None and unit.needed <= len(entries)

    def _could_take(self, key: UnitKey, hold: _Hold, node: str, now: float) -> bool:
        """Whether a node would take the pods that it is kept for once all has left that leaves."""
        members = [self._cache.pods[uid] for uid, place in hold.places.items() if place == node]
        priority, alone = self._priority(hold.priority), isinstance(key, str)
        return self._drained.could_take(members, node, priority, now, deletions=not hold.ends, alone=alone)

    def _needs(self, hold: _Hold) -> dict[str, dict[str, int]]:
        """What each node is kept for."""
        on: dict[str, list[PodEntry]] = {}
        for uid, node in hold.places.items():
            on.setdefault(node, []).append(self._cache.pods[uid])
        return {node: total_needs(entries) for node, entries in on.items()}

    def _patience_s(self, key: UnitKey, ends: bool) -> float:
        """How long nodes are kept for a unit while nothing leaves them."""
        once = max(_LEAST_PATIENCE_S, self._cache.configuration.engine.due_age_s)
        turns = self._turns.get(key)
        times = 2.0 ** min(turns.in_vain, 64) if ends and turns is not None else 1.0
        return max(once, min(once * times, _MOST_PATIENCE_S))

    def _give_up(self, key: UnitKey, hold: _Hold, nodes: Mapping[str, _GivenUp], patience_s: float, now: float) -> None:
        """``nodes``: those that miss something, and that nothing leaves."""
        turns = self._turns.setdefault(key, _Turns())
        turns.rests_until_s = now + patience_s
        if nodes or isinstance(key, str):
            turns.in_vain += hold.ends
        else:
            # No longer patience would help.
            turns.refused += 1
            self._hopeless[key] = now + min(patience_s * 2.0 ** min(turns.refused, 64), _MOST_PATIENCE_S)
        for node, known in nodes.items():
            turns.nodes[node] = known if hold.ends else _GivenUp(known.needs, known.missing, float("inf"))
        self._release(hold.places.keys())
        self._end(key, now)
        # Whose turn it is is decided among the pods of a round.
        self._wakeups.turn_over(now)

    def _release(self, uids: Iterable[str]) -> None:
        gone = set(uids)
        self.reservations = tuple(r for r in self.reservations if r.task not in gone)

    def _keep(
        self,
        key: UnitKey,
        places: Mapping[str, str],
        now: float,
        *,
        ends: bool,
        start_s: float | None = None,
        reserved: bool = False,
    ) -> None:
        known = self._holds.get(key)
        same = {} if known is None or known.reserved != reserved else known.places
        since_s = {
            uid: known.since_s[uid] if known is not None and same.get(uid) == node else now
            for uid, node in places.items()
        }
        priority = self._units.priority([self._cache.pods[uid] for uid in places])
        hold = _Hold(places, since_s, reserved, ends, priority, now if start_s is None else start_s, {})
        for node, needs in self._needs(hold).items():
            hold.progress[node] = _Progress(self._drained.missing(needs, node), now)
        self._holds[key] = hold

    def _end(self, key: UnitKey, now: float) -> None:
        """Nodes are kept for a unit no longer: others may fit there."""
        hold, first = self._holds.pop(key, None), self._first == key
        if first:
            self._first = None
        for node in hold.nodes if first and hold is not None else ():
            self._wakeups.room_on(node, now)

    def _begin(self, held: Iterable[Held], reserved: Iterable[UnitKey], now: float) -> UnitKey | None:
        """The earliest overdue unit for which nodes are reserved, or can be made free and drain from now on.

        ``reserved``: those for which overdue pods have reservations.
        """
        cache, engine = self._cache, self._cache.configuration.engine
        kept, units = dict.fromkeys(reserved), self._waiting(held, now)
        units |= {key: unit for key in kept if key not in units and (unit := self._units.of(key)) is not None}
        due = [u for u in units.values() if u.key in kept or now - u.since_s > engine.due_age_s]
        crosses = engine.aging_crosses_priority

        def turn(unit: StartUnit) -> tuple[bool, int, float, float, object]:
            turns = self._turns.get(unit.key)
            rests = turns is not None and now < turns.rests_until_s
            # Those that were asked for in vain come after those that were not, as not all are asked for in a round.
            asked = max(self._hopeless.get(key, 0.0) for key in (unit.key, kind_of(unit)))
            return rests, 0 if crosses else -unit.priority, asked, unit.since_s, unit.members[0].key

        def kind_of(unit: StartUnit) -> Hashable:
            return cache.wants(unit.members[0]).class_key if isinstance(unit.key, str) else unit.key

        left = _MOST_ASKED
        for unit in sorted(due, key=turn):
            if unit.key in kept:
                return unit.key
            alone, over = isinstance(unit.key, str), self._given_up(unit.key, now)
            # A pod that others of its kind do not stand for is noted by itself.
            kind = unit.key if over else kind_of(unit)
            if not (alone and over) and self._hopeless.get(kind, 0.0) > now:
                continue
            if left <= 0:
                break
            left -= len(cache.nodes) * len({cache.wants(entry).class_key for entry in unit.members})
            turns = self._turns.get(unit.key, _Turns())
            priority, again = self._priority(unit.priority), bool(turns.refused % 2)
            found = self._drained.find(unit, priority, over, now, as_they_stand=again)
            if found is not None:
                self._keep(unit.key, found[0], now, ends=found[1])
                if isinstance(unit.key, GroupRef):
                    self._wakeups.gang(unit.key, now)
                return unit.key
            if len(self._hopeless) >= _MOST_REMEMBERED:
                self._hopeless.clear()
            self._hopeless[kind] = now + _ASKED_AGAIN_S
        return None

    def _waiting(self, held: Iterable[Held], now: float) -> dict[UnitKey, StartUnit]:
        """Units without room that may be overdue: pods that a round left waiting for that, and gangs that one did and that
        still wait.
        """
        entries = [
            (entry, h.causes)
            for h in held
            if h.fate is Fate.UNSCHEDULABLE and not h.causes.isdisjoint({Cause.RESOURCES, Cause.GROUP})
            for uid in h.uids
            if (entry := self._cache.pods.get(uid)) is not None and not entry.place
        ]
        keys = self._units.keys_of([entry for entry, _ in entries])
        gangs = {key for key in keys.values() if isinstance(key, GroupRef)}
        alone = [e for e, causes in entries if isinstance(keys[e.key.uid], str) and Cause.RESOURCES in causes]
        found: dict[UnitKey, StartUnit] = {unit.key: unit for unit in self._units.alone(alone)}
        due_age_s = self._cache.configuration.engine.due_age_s
        for ref in sorted({*self._gangs_seen, *gangs}):
            since_s = self._gangs_seen.get(ref, now)
            # All of its pods are looked at: not for those that cannot have their turn.
            late = now - since_s > due_age_s and self._hopeless.get(ref, 0.0) <= now
            if ref not in gangs and not late:
                continue
            unit = self._units.of(ref)
            if unit is None:
                self._gangs_seen.pop(ref, None)
                self._turns.pop(ref, None)
            else:
                self._gangs_seen[ref] = unit.since_s
                found[ref] = unit
        return found

    def _priority(self, priority: int) -> int:
        return _ABOVE_ALL if self._cache.configuration.engine.aging_crosses_priority else priority

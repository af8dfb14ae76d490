"""Running pods that are moved to other nodes: when that is looked at, whom it is about, and what becomes of the moves.

A moved pod is evicted through the Eviction API, so disruption budgets hold; its controller makes another one, and the next
round places that. All moves of a plan are made or, from the first that is refused on, none any more. The next look comes
when the pods have left and those in their place have nodes.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from flowsched_k8s.cache import Cache
from flowsched_k8s.groups.gangs import Gangs, group_name
from flowsched_k8s.groups.pod_groups import GroupSpec
from flowsched_k8s.instructions import Instruction, MovePod, PodKey, TaintNode
from flowsched_k8s.metrics.tallies import Tallies
from flowsched_k8s.names import AVOIDED, EMPTIED, EVICTION_BY_API
from flowsched_k8s.notices.recorder import Recorder
from flowsched_k8s.objects import Pod, Taint
from flowsched_k8s.pods.entries import NodeEntry, PodEntry
from flowsched_k8s.preemption.budgets import Budgets
from flowsched_k8s.preemption.evictions import Evictions
from flowsched_k8s.preemption.preemption import Occupant, PreemptionPlan, is_part_of_node
from flowsched_k8s.preemption.victims import MOST_WORK, Victims
from flowsched_k8s.queue import Place, PodQueue
from flowsched_k8s.rebalancing.move_outcomes import MoveOutcomes
from flowsched_k8s.rebalancing.move_plan import MovePlan, MoveQuestion, PlannedMove, Purpose
from flowsched_k8s.rebalancing.stays import NOT_MOVABLE, RETURNED, why_always_stays, why_stays
from flowsched_k8s.rounds.inputs import InputBuilder
from flowsched_k8s.rounds.round_input import ClassInput, Nominee, RoundInput

LOG = logging.getLogger(__name__)

_WAITING = 3
"""Pods or groups that wait and that room is looked for, in one look."""
_BESIDE = 200
"""Pods that wait and may get a place that becomes free, in one question."""
_NODES = 4
"""Nodes that are tried for being emptied, in one look."""
_TASKS = 64
"""Tasks whose interference is looked at, in one look: a half on the nodes with most pressure, the others in turn."""
_TARGETS = 32
"""Nodes that each of them may go to: the emptiest that would take it."""
_HALF = 0.5
"""A node is worth emptying if its pods ask for less of its CPU and memory; so the cluster autoscaler has it."""
_EMPTIED_S = 1800.0
"""An autoscaler has so long to remove a node that was emptied; after that it is a node like others again."""
_MOVED = 50
"""Moves that are remembered for people."""
_PATIENCE_S = 300.0
"""A pod that was evicted and is still there after so long is not waited for any more."""


@dataclass
class Look:
    """What came of a look, for people."""

    at_s: float
    told: list[str] = field(default_factory=list)
    """Why nothing is moved, purpose by purpose."""
    stays: Counter[str] = field(default_factory=Counter)
    """Pods that may not be moved, by reason."""


@dataclass(frozen=True)
class _Step:
    """One eviction of a plan."""

    move: PlannedMove
    pod: PodKey
    what: str
    record: str


@dataclass(eq=False)
class Rebalancing:
    """Says when to look, asks, and carries out what was planned. Of one scheduler: its parts change with it."""

    _cache: Cache
    _queue: PodQueue
    _gangs: Gangs
    _inputs: InputBuilder
    _budgets: Budgets
    _evictions: Evictions
    _recorder: Recorder
    _tallies: Tallies
    _round_input: Callable[[Sequence[PodEntry], float], RoundInput]
    """What a round that decides on some pods would know."""
    _stays: dict[str, str] = field(default_factory=dict)
    """By uid of a placed pod why it may not be moved, as of this look; empty for those that may."""
    _always: dict[str, tuple[Pod, str]] = field(default_factory=dict)
    """The same as far as it follows from the pod alone, with the pod that it was read from."""
    _next_s: float = 0.0
    _quiet_until_s: float = 0.0
    _moving: dict[str, float] = field(default_factory=dict)
    """By uid, pods that are to leave, and until when that is waited for."""
    _sent: set[str] = field(default_factory=set)
    _purpose: str = ""
    """Of the moves that are under way."""
    _turn: int = 0
    looks: int = 0
    last: Look | None = None
    _steps: deque[_Step] = field(default_factory=deque)
    """Evictions of the plan that are not asked for yet, one after the other."""
    _moves: deque[dict[str, object]] = field(default_factory=lambda: deque(maxlen=_MOVED))
    _emptied: dict[str, float] = field(default_factory=dict)
    """Nodes that are marked as emptied, and since when, as of this look."""
    _purposeless: dict[str, frozenset[Purpose]] = field(default_factory=dict)
    """By uid of a placed pod, what its workload is not moved for, as of this look; empty sets are left out."""

    def __post_init__(self) -> None:
        """Its plans of who could leave are its own."""
        self._settings = self._cache.configuration.rebalancing
        self._planner = Victims(self._cache, self._inputs, self._gangs, self._budgets, self._as_occupant)
        self._outcomes = MoveOutcomes(self._cache)

    # When

    def due(self, now: float) -> bool:
        """Whether it is time to look: no pod has just been moved, and none is about to be placed.

        Pods that have failed and are tried again soon do not prevent it: in a busy cluster there are always some.
        """
        if not self._cache.configuration.features.rebalancing or now < max(self._next_s, self._quiet_until_s):
            return False
        self._moving = {uid: until for uid, until in self._moving.items() if until > now}
        pods = self._cache.pods
        awaited = any(pods[uid].ours and not pods[uid].place for uid in self._cache.nominated)
        return not self._moving and not awaited and not self._queue.sizes()[Place.ACTIVE]

    def seen(self, entry: PodEntry, now: float) -> None:
        """A pod is told of: one that another program evicts keeps this from moving others against them."""
        uid = entry.key.uid
        self._outcomes.arrived(entry)
        if entry.pod.metadata.deletion_timestamp is None or uid in self._sent or not entry.node:
            return
        if any(c.reason == EVICTION_BY_API and c.status == "True" for c in entry.pod.status.conditions or ()):
            self._quiet_until_s = max(self._quiet_until_s, now + self._settings.cool_down_s)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._moving.pop(uid, None)
        self._sent.discard(uid)

    def restore(self, now: float) -> list[Instruction]:
        """Marks that are taken off nodes: the node need not go any more, or pods needed it after all."""
        # A moment that is still to come was written by another clock: such a mark counts from when it was seen.
        self._emptied = {
            name: min(since, self._emptied.get(name, now))
            for name, node in self._cache.nodes.items()
            if (since := _emptied_s(node)) is not None
        }
        over = [
            name
            for name, since in sorted(self._emptied.items())
            if now - since > _EMPTIED_S or self._residents(self._cache.nodes[name])
        ]
        return [self._mark(name, None) for name in over]

    def _mark(self, name: str, emptied_s: float | None) -> TaintNode:
        """The node with the mark, or without it."""
        node = self._cache.nodes[name].node
        taints = [t for t in node.spec.taints or () if t.key != EMPTIED]
        if emptied_s is not None:
            taints.append(Taint(key=EMPTIED, value=str(int(emptied_s)), effect=AVOIDED))
        return TaintNode(name, node.metadata.resource_version, tuple(taints))

    # What is asked

    def questions(self, now: float) -> list[MoveQuestion]:
        """All that is asked in this look; it is counted as begun."""
        self.looks += 1
        self._next_s = now + self._settings.interval_s
        self.last = look = Look(now)
        if self._budgets.unreadable:
            look.told.append(f"no pod is moved while PodDisruptionBudgets cannot be read: {self._budgets.unreadable}")
            return []
        self._see_who_stays(now)
        look.stays = Counter(reason for reason in self._stays.values() if reason)
        look.stays.update(
            f"{RETURNED} ({p})" for uid, of in self._purposeless.items() if not self._stays[uid] for p in of
        )
        return [*self._room(now, look), *self._interference(now), *self._empty_nodes(now)]

    def _see_who_stays(self, now: float) -> None:
        """In time with the pods, of which there may be very many."""
        cache, known = self._cache, self._always
        stays: dict[str, str] = {}
        purposeless: dict[str, frozenset[Purpose]] = {}
        self._outcomes.review(now)
        always: dict[str, tuple[Pod, str]] = {}
        for uid, entry in cache.pods.items():
            if entry.place in cache.nodes:
                seen = known.get(uid)
                if seen is None or seen[0] is not entry.pod:
                    seen = entry.pod, why_always_stays(entry)
                always[uid] = seen
                stays[uid] = seen[1] or why_stays(entry, cache, self._gangs, now, self._settings.cool_down_s)
                if self._outcomes.any and (for_none := self._outcomes.gained_nothing(entry)):
                    purposeless[uid] = for_none
        changed = {
            cache.pods[uid].place
            for uid, why in stays.items()
            if self._stays.get(uid) != why or self._purposeless.get(uid) != purposeless.get(uid)
        }
        self._planner.read_again(changed)
        self._stays, self._always, self._purposeless = stays, always, purposeless

    def _may_move(self, uid: str, purpose: Purpose) -> bool:
        """Whether a placed pod may be moved for a purpose, as of this look."""
        return not self._stays.get(uid, NOT_MOVABLE) and purpose not in self._purposeless.get(uid, ())

    def _room(self, now: float, look: Look) -> Iterator[MoveQuestion]:
        """Room for pods and groups that wait, those that wait longest first."""
        waiting = self._waiting()
        if not waiting:
            return
        planner = self._planner
        planner.look(now)
        most = planner.work + MOST_WORK
        for what, needed, entries in waiting[:_WAITING]:
            if planner.work >= most:
                return
            ref = self._gangs.ref(entries[0])
            plans, why = planner.plan_together(entries, 1) if ref is None else planner.plan_group(ref, entries, needed)
            victims = {v.uid: v for plan in plans.values() for v in plan.victims}
            if not plans or not victims:
                look.told.append(f"{what}: {why or 'there is room'}")
                continue
            if broken := self._too_many(victims):
                look.told.append(f"{what}: {broken}")
                continue
            by_uid = {e.key.uid: e for e in entries}
            nominees = [self._inputs.nominee(by_uid[uid], plan.node) for uid, plan in plans.items()]
            engine = self._cache.configuration.engine
            gain = sum(
                engine.waiting_weight
                * min(1.0, max(0.0, now - by_uid[uid].waits_since_s) / max(engine.due_age_s, 1e-9))
                for uid in plans
            )
            leaving = [self._cache.pods[uid] for uid in victims]
            if (problem := self._problem(leaving)) is not None:
                look.told.append(f"{what}: {problem}")
                continue
            beside = [e for _, _, others in waiting if others is not entries for e in others]
            yield self._elsewhere(
                Purpose.ROOM, what, leaving, now, gain, nominees=nominees, beside=beside, room_for=plans
            )

    def _waiting(self) -> list[tuple[str, int, list[PodEntry]]]:
        """(what is asked, pods needed together, pods) of those that found no room, those that wait longest first."""
        units: dict[object, list[PodEntry]] = {}
        for entry in self._cache.pods.values():
            if (
                entry.ours
                and not entry.place
                and entry.message
                and self._queue.place(entry.key) in (Place.UNSCHEDULABLE, Place.BACKOFF)
                and entry.key.uid not in self._cache.nominated
            ):
                units.setdefault(self._gangs.ref(entry) or entry.key.uid, []).append(entry)
        found = []
        for entries in units.values():
            entries.sort(key=lambda e: e.order)
            first = entries[0]
            ref, needed, what = self._gangs.ref(first), 1, f"room for {first.key}"
            if ref is not None:
                spec = self._gangs.spec(ref)
                needed, what = max(1, self._gangs.missing(first.key.uid)), f"room for pod group {group_name(ref)}"
                if not isinstance(spec, GroupSpec) or needed > len(entries):
                    continue
            served = self._gangs.priorities([first])[first.key.uid]
            found.append((-served, first.waits_since_s, what, needed, entries))
        return [(what, needed, entries) for *_, what, needed, entries in sorted(found, key=lambda f: f[:3])]

    def _interference(self, now: float) -> Iterator[MoveQuestion]:
        """Pods with a profile, so many at a time."""
        cache = self._cache
        if not cache.configuration.cost_model.is_flow:
            return
        able = [
            e
            for uid in self._stays
            if (e := cache.pods[uid]).intent.profile is not None and self._may_move(uid, Purpose.INTERFERENCE)
        ]
        if not able:
            return
        some = [e for e in self._some(able) if self._is_task(e)]
        targets = {e.key.uid: self._takers(e) for e in some}
        given = self._inputs.build((), now, number=self.looks, everything=True)
        self._inputs.occupied.between_rounds(now)
        sources = {e.key.uid: e.place for e in some if targets[e.key.uid]}
        if sources:
            yield MoveQuestion(
                Purpose.INTERFERENCE,
                "less interference",
                replace(given, titles={**given.titles, **{e.key.uid: str(e.key) for e in some}}),
                sources,
                targets=targets,
            )

    def _some(self, able: Sequence[PodEntry]) -> list[PodEntry]:
        """Those to look at this time."""
        able = sorted(able, key=lambda e: e.key)
        if len(able) <= _TASKS:
            return able
        machines, half = self._cache.machines, _TASKS // 2
        rows = [row if (row := machines.row(e.place)) is not None else 0 for e in able]
        most = np.argsort(-machines.pressure()[rows], kind="stable")[:half].tolist()
        start, self._turn = self._turn % len(able), self._turn + half
        found = dict.fromkeys([*most, *((start + i) % len(able) for i in range(half))])
        return [able[i] for i in found]

    def _problem(self, entries: Iterable[PodEntry]) -> str | None:
        """Why one of these pods could not be placed again; None if there is no reason but room."""
        for entry in entries:
            problem = self._cache.wants(entry).problem
            if problem is not None:
                return f"{entry.key} could not be placed again: {problem}"
        return None

    def _is_task(self, entry: PodEntry) -> bool:
        wants = self._cache.wants(entry)
        return entry.request_milli > 0 and wants.problem is None and not (wants.holds or wants.joins)

    def _takers(self, entry: PodEntry) -> tuple[str, ...]:
        """Other nodes that would take a pod now, the emptiest first."""
        machines = self._cache.machines
        verdicts = self._inputs.verdicts(self._cache.wants(entry))
        able = verdicts.passes[: machines.rows] & machines.alive & machines.fits(entry.needs)
        if (full := self._inputs.too_many_volumes(entry)) is not None:
            able &= ~full
        for name in (entry.place, *self._emptied):
            row = machines.row(name)
            if row is not None:
                able[row] = False
        order = machines.order()
        rows = order[able[order]]
        cpu = machines.free[rows, machines.resources.index("cpu")]
        return tuple(str(machines.names[r]) for r in rows[np.argsort(-cpu, kind="stable")[:_TARGETS]])

    def _empty_nodes(self, now: float) -> Iterator[MoveQuestion]:
        """Nodes that little is asked of, with the fewest pods first; their pods may go to nodes that stay in use."""
        gain = self._settings.empty_node_gain
        if gain <= 0.0:
            return
        on = {name: self._residents(node) for name, node in self._cache.nodes.items() if name not in self._emptied}
        in_use = {name for name, pods in on.items() if pods}
        order = sorted((len(pods), name) for name, pods in on.items() if pods)
        able = [
            name
            for count, name in order
            if count <= self._settings.max_moves
            and name not in self._cache.nominated.values()
            and all(self._may_move(e.key.uid, Purpose.EMPTY_NODE) for e in on[name])
            and self._is_little_used(name)
            and not self._too_many({e.key.uid: e.key for e in on[name]})
            and self._problem(on[name]) is None
        ]
        beside = [e for _, _, others in self._waiting() for e in others] if able else []
        for name in able[:_NODES]:
            what, kept = f"{name} without pods", frozenset(in_use - {name})
            yield self._elsewhere(
                Purpose.EMPTY_NODE, what, on[name], now, gain, beside=beside, in_use=kept, marked=name
            )

    def _residents(self, node: NodeEntry) -> list[PodEntry]:
        """Pods that keep a node in use: those of DaemonSets and of the node itself do not."""
        pods = [self._cache.pods[uid] for uid in sorted(node.pods)]
        return [e for e in pods if not is_part_of_node(e.pod)]

    def _is_little_used(self, name: str) -> bool:
        machines = self._cache.machines
        row = machines.row(name)
        if row is None:
            return False
        columns = [machines.resources.index(r) for r in ("cpu", "memory") if r in machines.resources]
        offered, used = (
            machines.allocatable[row, columns],
            machines.allocatable[row, columns] - machines.free[row, columns],
        )
        return bool(np.all(used < _HALF * offered))

    def _elsewhere(
        self,
        purpose: Purpose,
        what: str,
        entries: Sequence[PodEntry],
        now: float,
        gain: float,
        *,
        nominees: Sequence[Nominee] = (),
        beside: Sequence[PodEntry] = (),
        room_for: Mapping[str, PreemptionPlan] | None = None,
        in_use: frozenset[str] | None = None,
        marked: str = "",
    ) -> MoveQuestion:
        """The question where the next round has other places for some pods, their room free.

        ``beside``: pods that wait, the first in line first. ``marked``: the node that will be marked as emptied.
        """
        uids = {e.key.uid for e in entries}
        wanting = [e for e in beside[:_BESIDE] if self._cache.wants(e).problem is None]
        served = self._gangs.priorities([*entries, *wanting])
        asked = sorted([*entries, *wanting], key=lambda e: (-served[e.key.uid], e.order))
        for entry in asked:
            # All declare their relations before any is counted; so do those that room is held for.
            self._cache.wants(entry)
        self._inputs.nominees()
        # Not only in the copy of what is booked that is looked at meanwhile.
        self._inputs.settle()
        with self._cache.without(entries):
            given = self._round_input(asked, now)
        cluster, done = given.cluster, dict[str, float]()
        if cluster.machines:
            # Without tasks of profiles or known run times the last look is that of a round.
            self._inputs.occupied.between_rounds(now)
            there, progress = given.running.entries, given.running.progress.tolist()
            leaving = [(r, share) for r, share in zip(there, progress, strict=True) if r.task.name in uids]
            done = {r.task.name: share for r, share in leaving if not r.task.endless}
            left = given.running.beside(cluster.machines, {}, without=[r for r, _ in leaving])
            cluster = replace(cluster, running=left)
        for uid in uids:
            given.booked.release(uid)
        return MoveQuestion(
            purpose,
            what,
            replace(
                given,
                number=self.looks,
                classes=tuple(self._as_new(c, uids, now, marked) for c in given.classes),
                cluster=cluster,
                nominated=(*given.nominated, *nominees),
                keep_record=True,
            ),
            {e.key.uid: e.place for e in entries},
            gain,
            {uid: self._settings.price + done.get(uid, 0.0) for uid in uids},
            room_for=room_for or {},
            in_use=in_use,
        )

    def _as_new(self, c: ClassInput, uids: Collection[str], now: float, marked: str) -> ClassInput:
        """A class with some pods as those that their controllers make instead: they have not waited."""
        since = tuple(now if uid in uids else since for uid, since in zip(c.uids, c.since_s, strict=True))
        row = self._cache.machines.row(marked)
        if row is None:
            return replace(c, since_s=since)
        node, wants = self._cache.nodes[marked].node, self._cache.wants(self._cache.pods[c.uids[0]])
        with_mark = msgspec.structs.replace(
            node, spec=msgspec.structs.replace(node.spec, taints=list(self._mark(marked, now).taints))
        )
        preference = c.preference.copy()
        preference[row] += wants.filter.preference(with_mark) - wants.filter.preference(node)
        return replace(c, since_s=since, preference=preference)

    def _as_occupant(self, found: Occupant) -> Occupant:
        """Equal priorities make room too: who leaves has a place elsewhere."""
        may = self._may_move(found.pod.uid, Purpose.ROOM)
        return replace(found, movable=may, priority=found.priority - 1)

    def _too_many(self, pods: Mapping[str, PodKey]) -> str:
        """Why so many pods cannot be moved at a time; empty if they can."""
        most = self._settings.max_moves
        if len(pods) > most:
            return f"it takes {len(pods)} moves, and maxMoves is {most}"
        allowed = self._budgets.allowed()
        counted = Counter(b for uid in pods for b in self._budgets.counting(self._cache.pods[uid].pod))
        broken = sorted(budget for budget, count in counted.items() if count > allowed.get(budget, 0))
        return f"disruption budget {broken[0]} does not allow it" if broken else ""

    def check(self, plan: MovePlan, now: float) -> MoveQuestion | None:
        """What has to be asked about a plan before it is carried out; None if it is judged by a whole round already."""
        if plan.question.purpose is not Purpose.INTERFERENCE:
            return None
        pods = self._cache.pods
        entries = [e for m in plan.moves if (e := pods.get(m.uid)) is not None and e.node == m.source]
        beside = [e for _, _, others in self._waiting() for e in others]
        return self._elsewhere(plan.question.purpose, plan.question.what, entries, now, 0.0, beside=beside)

    # What is done

    def carry_out(self, plan: MovePlan | None, refused: Sequence[str], record: str, now: float) -> list[Instruction]:
        """Evictions for a plan, with their events; those that wait for the room are told. Nothing in a dry run."""
        look = self.last
        assert look is not None, "questions were asked"
        look.told += refused
        if plan is None:
            return []
        pods = self._cache.pods
        moves = [m for m in plan.moves if (e := pods.get(m.uid)) is not None and e.node == m.source]
        leaving = {m.uid: pods[m.uid].key for m in moves}
        if len(moves) < len(plan.moves) or any(pods[uid].pod.metadata.deletion_timestamp for uid in leaving):
            look.told.append(f"{plan.question.what}: a pod has left meanwhile")
            return []
        if plan.question.purpose is Purpose.INTERFERENCE:
            # Each move pays by itself: budgets take the first ones.
            while moves and self._too_many(leaving):
                leaving.pop(moves.pop().uid)
            if not moves:
                look.told.append(f"{plan.question.what}: disruption budgets do not allow it")
                return []
        elif broken := self._too_many(leaving):
            look.told.append(f"{plan.question.what}: {broken}")
            return []
        self._purpose = str(plan.question.purpose)
        steps = [_Step(m, leaving[m.uid], plan.question.what, record) for m in moves]
        if self._settings.dry_run or self._cache.configuration.dry_run:
            for step in steps:
                self._note(step, "would move", now)
            return []
        self._steps.extend(steps)
        self._outcomes.begin(plan.question, moves, now)
        self._moving = {m.uid: now + _PATIENCE_S for m in moves}
        self._sent |= self._moving.keys()
        if plan.question.purpose is Purpose.EMPTY_NODE:
            # The pods leave once the node is marked: before, those in their place would come back to it.
            return [self._mark(moves[0].source, now)]
        held = self._evictions.make_room(plan.question.room_for, now)
        return [*held, *self._next()]

    def _next(self) -> list[Instruction]:
        """The next eviction; pods that have gone meanwhile need none."""
        while self._steps and self._steps[0].pod.uid not in self._moving:
            self._outcomes.cancel([self._steps.popleft().pod.uid])
        return [MovePod(self._steps[0].pod)] if self._steps else []

    def _note(self, step: _Step, said: str, now: float) -> str:
        """Take down a move that is made, or would be; the sentence about it."""
        move, dry = step.move, said != "moves"
        text = (
            f"{step.what}: {step.pod} leaves {move.source}, {move.target} is the place for it "
            f"(gain {move.gain:.2f}, price {move.price:.2f}, record {step.record})"
        )
        LOG.info(said, extra={"pod": step.pod, "why": text})
        about = {"at_s": now, "purpose": self._purpose, "pod": str(step.pod), "from": move.source, "to": move.target}
        self._moves.append({**about, "gain": move.gain, "price": move.price, "record": step.record, "dry_run": dry})
        self._tallies.moves[self._purpose, "dry" if dry else "sent"] += 1
        return text

    def marked(self, mark: TaintNode, accepted: bool, message: str) -> list[Instruction]:
        """A node is marked as emptied, or is not: the pods leave it now, or stay."""
        if not any(t.key == EMPTIED for t in mark.taints):
            return []
        if accepted:
            return self._next()
        self._outcomes.cancel(step.pod.uid for step in self._steps)
        self._steps.clear()
        self._moving.clear()
        self._tallies.moves[self._purpose, "refused"] += 1
        if self.last is not None:
            self.last.told.append(f"{mark.node} without pods: it could not be marked: {message}")
        return []

    def answered(self, move: MovePod, accepted: bool, message: str, now: float) -> list[Instruction]:
        """What the API server says to an eviction. A refusal ends the plan: the pod that waits for the room hears of it."""
        pod = move.pod
        step = self._steps.popleft() if self._steps and self._steps[0].pod == pod else None
        if step is None and pod.uid not in self._sent:
            # It was not moved, but belongs to a group that was undone.
            return []
        if accepted:
            event = None if step is None else self._recorder.rebalanced(pod, self._note(step, "moves", now), now)
            return [*([] if event is None else [event]), *self._next()]
        stay = {pod.uid, *(left.pod.uid for left in self._steps)}
        self._outcomes.cancel(stay)
        self._steps.clear()
        self._moving = {uid: until for uid, until in self._moving.items() if uid not in stay}
        out = self._evictions.failed(pod, message, now, stay)
        self._tallies.moves[self._purpose, "refused"] += 1
        if self.last is not None:
            self.last.told.append(f"{pod} could not be evicted: {message}")
        return out

    def dump(self, now: float) -> dict[str, object]:
        """The last look, for ``/debug/state``."""
        look = self.last
        if look is None:
            return {"looks": 0}
        return {
            "looks": self.looks,
            "age_s": round(now - look.at_s, 3),
            "moves": list(self._moves),
            "told": look.told,
            "stays": dict(sorted(look.stays.items())),
            "leaving": sorted(str(e.key) for uid in self._moving if (e := self._cache.pods.get(uid)) is not None),
            "quiet_for_s": max(0.0, round(self._quiet_until_s - now, 3)),
        }


def _emptied_s(node: NodeEntry) -> float | None:
    """When a node was emptied; None for one that is not marked so."""
    value = next((t.value for t in node.node.spec.taints or () if t.key == EMPTIED), None)
    if value is None:
        return None
    return float(value) if value.isdigit() else 0.0

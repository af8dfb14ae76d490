"""Bounded waiting at linear prices (:mod:`flowsched.round.bounded_waiting`): where overdue tasks have room, and when there
will be.

Each queue has reservations for one task or task group at a time: all of a class have the same answer. Where nothing can be
promised, the round's outcome says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.task_rows import RUNNING
from flowsched.relations.gang_search import GangSearch, steps_among
from flowsched.relations.later_places import earliest_set
from flowsched.round.bounded_waiting import Owed, in_turn, missing, serve
from flowsched.round.linear.gang_places import DrainingPlaces, StartingPlaces
from flowsched.round.linear.linear_bound import Evidence
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.machine_reservation import Drain, Lasting, MachineReservation, open_to
from flowsched.round.linear.queue import Queue
from flowsched.round.linear.round_relations import RoundRelations
from flowsched.round.linear.round_state import BulkRoundState
from flowsched.round.linear.waiting import Waiting, survey
from flowsched.support.arrays import BoolArray, IntArray, ranks


@dataclass(frozen=True)
class Unbounded:
    """An overdue task that nothing can be promised."""

    task: int
    """Its row; the earliest of its class."""
    why: str


@dataclass(frozen=True, eq=False)
class Started:
    """Overdue tasks that the state has placed: a level of their own, before the others."""

    waiting: Waiting
    evidence: Evidence
    primal: float


class OverdueTasks:
    """What a round owes to overdue tasks, queue by queue: a queue is a priority, or all tasks."""

    def __init__(
        self,
        state: BulkRoundState,
        compaction: Compaction,
        before: Sequence[MachineReservation],
        changed: IntArray,
        now_s: float,
        *,
        due_age_s: float,
        drain: bool,
    ) -> None:
        """``before``: what the last round held; ``changed``: machines since then; ``drain``: whether a machine is kept free
        of new tasks where no end is known.
        """
        self._state = state
        self._cluster = state.cluster
        self._compaction = compaction
        self._due_age_s, self._drain = due_age_s, drain
        self._changed = changed
        self._now_s = now_s
        self._before = tuple(now for r in before if (now := r.now(self._cluster)) is not None)
        self._mine: tuple[MachineReservation, ...] = ()
        """Of those before, the ones for tasks of the queue that is served."""
        self._started: Started | None = None
        self.started: IntArray = np.zeros(0, dtype=np.int64)
        """Overdue tasks that it has placed in this round, of all queues."""
        self._lasting: Lasting | None = None
        self.reservations: tuple[MachineReservation, ...] = ()
        """What is held from this round on."""
        self.unbounded: tuple[Unbounded, ...] = ()
        """Overdue tasks of this round that nothing can be promised."""

    def settle(self, queue: Queue) -> Started | None:
        """Start the first overdue task of a queue, or hold a machine for it; those that started.

        Queues are settled in the order of their rank: what one holds binds those after it.
        """
        tasks, pending = self._cluster.tasks, queue.tasks
        late = pending[tasks.age_s(pending, self._now_s) > self._due_age_s]
        if not len(late):
            return None
        late = tasks.in_order(late)
        self._mine = tuple(r for r in self._before if (pending == r.task).any())
        holders = {r.task for r in self._mine}
        _, first = np.unique(tasks.task_class[late], return_index=True)
        asked = np.union1d(first, np.flatnonzero(np.isin(late, list(holders))))
        gang_of = {c: gang for gang in queue.gangs for c in gang.classes.tolist()}

        def owed(task: int) -> Owed[IntArray]:
            gang = gang_of.get(int(tasks.task_class[task]))
            return Owed(np.array([task])) if gang is None else Owed.of(gang)

        self._started = None
        serve(in_turn(late[asked].tolist(), holders, owed), self, most=1)
        return self._started

    def start(self, owed: Owed[IntArray]) -> bool:
        """Place those who are owed, at whatever cost; False, and nothing has changed, if there is no room."""
        cluster, state = self._cluster, self._state
        start = state.count
        classes = cluster.tasks.task_class[owed.members]
        # The bound is about what was there before.
        state.relations.set_gates(state.model)
        free, readings, gates = state.free.copy(), state.readings.copy(), state.model.gates.copy()
        if not self._place(owed):
            return False
        placed = state.task_class[start:]
        # Where tasks lean on others, those that were placed first stand without the rest.
        tasks = _as_they_came(owed.members, classes, placed[: owed.needed] if state.relations else placed, owed.needed)
        extra = _beyond(state.task_class[start:], cluster.tasks.task_class[tasks])
        if extra.any():
            state.take_back(start, extra)
        waiting = survey(cluster, cluster.tasks.in_order(tasks), self._now_s, self._due_age_s)
        waiting = replace(
            waiting, cost=np.full(len(waiting.cost), np.inf), dearest=np.full(len(waiting.dearest), np.inf)
        )
        open_ = state.model._replace(ceiling=np.full(len(cluster.classes), np.inf), gates=gates)
        evidence = Evidence.of(cluster, self._compaction, waiting, free, readings, state.barred, open_)
        self._started = Started(waiting, evidence, state.close(start, waiting, evidence))
        self.started = np.concatenate([self.started, waiting.tasks])
        return True

    def keep(self, owed: Owed[IntArray]) -> bool:
        """Hold the machines of the last round again if they still suit, all of them or none; others, where only relations
        keep the tasks from starting there and none would elsewhere.
        """
        mine = self._held_for(owed)
        if not self._still_suit(mine):
            return False
        others = self._reserved(owed, (False,)) if self._is_refused(mine) else ()
        return self._hold(others or mine)

    def reserve(self, owed: Owed[IntArray]) -> bool:
        """Hold machines that drain soonest and on which all could start together, until the last of them has room."""
        found = self._reserved(owed, (True, False))
        if not found and self._drain and owed.needed == 1:
            found = self._drained(int(owed.members[0]))
        if not found:
            classes = np.unique(self._cluster.tasks.task_class[owed.members]).tolist()
            self.unbounded += (Unbounded(int(owed.members[0]), self._why_never(owed, classes)),)
        return self._hold(found)

    # Below: how

    def _held_for(self, owed: Owed[IntArray]) -> tuple[MachineReservation, ...]:
        members = set(owed.members.tolist())
        # A round of another kind, or with other settings, may have left more in the queue than one task or gang has.
        mine = tuple(r for r in self._mine if r.task in members)
        return mine if len(mine) == owed.needed else ()

    def _hold(self, found: tuple[MachineReservation, ...]) -> bool:
        if not found:
            return False
        state, now_s = self._state, self._now_s
        self.reservations += found
        rows = np.unique([r.machine for r in found])
        start_s = max(r.start_s for r in found)
        state.hold(rows, np.full(len(rows), start_s - now_s if np.isfinite(start_s) else -np.inf))
        for r in found:
            state.relations.keep_away(int(self._cluster.tasks.task_class[r.task]), r.machine)
        return True

    def _place(self, owed: Owed[IntArray]) -> bool:
        """Place as many as are needed, or more; False, and nothing has changed, where too few find a place."""
        cluster, state, mine = self._cluster, self._state, self._held_for(owed)
        start = state.count
        classes = cluster.tasks.task_class[owed.members]
        wanted = np.bincount(classes, minlength=len(cluster.classes))
        held = np.isin(np.arange(cluster.machines.rows), [r.machine for r in mine])
        for within in (None, held) if owed.needed > 1 and mine else (None,):
            placed = state.force(wanted, within)
            if placed >= owed.needed:
                return True
            if placed:
                state.take_back(start, np.ones(placed, dtype=np.bool_))
        # As many as fit are placed of one class that no relation concerns.
        alike = (classes == classes[0]).all() and not state.relations.concerns(int(classes[0]))
        if owed.needed == 1 or alike:
            return False
        first = self._widest_first(owed)
        places = StartingPlaces(state, cluster.tasks.task_class[first], np.full(len(first), np.inf))
        return GangSearch(places, owed.needed, steps_among(cluster.machines.machine_count), more=False).fit()

    def _widest_first(self, owed: Owed[IntArray]) -> IntArray:
        widths = [-self._cluster.classes[c].width_milli for c in self._cluster.tasks.task_class[owed.members].tolist()]
        widest: IntArray = owed.members[np.argsort(widths, kind="stable")]
        return widest

    def _is_refused(self, mine: Sequence[MachineReservation]) -> bool:
        """Whether all that a reservation waits for is there, and only relations keep its tasks from starting."""
        cluster, state = self._cluster, self._state
        rows = np.array([r.machine for r in mine], dtype=np.int64)
        classes = cluster.tasks.task_class[[r.task for r in mine]]
        if not any(cluster.classes.roles[c] for c in classes.tolist()):
            return False
        free, readings = state.free.copy(), state.readings.copy()
        np.subtract.at(free, rows, cluster.classes.demands[classes])
        np.add.at(readings, rows, cluster.classes.effects[classes])
        return bool((free[rows] >= 0).all() and (readings[rows] <= cluster.limits[rows]).all())

    def _still_suit(self, held: Sequence[MachineReservation]) -> bool:
        cluster, state = self._cluster, self._state
        rows = [r.machine for r in held]
        if state.barred[rows].any() or np.isin(rows, state.held).any():
            return False
        for row in np.intersect1d(rows, self._changed).tolist():
            draining = [r for r in held if r.machine == row and np.isinf(r.start_s)]
            if draining and self._for_good.large(int(cluster.tasks.task_class[draining[0].task]))[row]:
                continue
            if not self._for_good.take(row, cluster.tasks.task_class[[r.task for r in held if r.machine == row]]):
                return False
        classes = cluster.tasks.task_class[[r.task for r in held]]
        draining_only = any(np.isinf(r.start_s) for r in held)
        if draining_only or not any(cluster.classes.roles[c] for c in np.unique(classes).tolist()):
            return True
        return any(self._relations(classes, d).admit(classes, np.array(rows)) for d in (True, False))

    def _relations(self, classes: IntArray, drained: bool) -> RoundRelations:
        """Relations beside all that runs and was placed; ``drained``: once all of it that has an end has ended."""
        cluster = self._cluster
        placed, machine = self._state.task_class, self._state.machine
        stays = np.ones(len(placed), dtype=np.bool_)
        relations = RoundRelations(cluster, np.union1d(classes, placed))
        if relations and drained:
            relations.take_out(np.flatnonzero((cluster.tasks.state == RUNNING) & np.isfinite(cluster.tasks.end_s)))
            stays = np.isinf(cluster.classes.lasting_s()[placed, cluster.machines.kind[machine]])
        for c in np.unique(placed[stays]).tolist():
            relations.note(c, machine[stays & (placed == c)])
        return relations

    @property
    def _for_good(self) -> Lasting:
        """What machines have left for good; looked up once in a round, if at all."""
        if self._lasting is None:
            self._lasting = Lasting(self._cluster)
        return self._lasting

    def _reserved(self, owed: Owed[IntArray], drained: Sequence[bool]) -> tuple[MachineReservation, ...]:
        """None where there are no such machines. ``drained``: relations beside what is left once all that has an end has
        ended, or as things stand; the first that gives places counts.
        """
        cluster, state = self._cluster, self._state
        classes = np.unique(cluster.tasks.task_class[owed.members]).tolist()
        fits = {c: self._for_good.fits(c) & ~state.barred for c in classes}
        for c in classes:
            fits[c][state.held] = False
        if sum(self._for_good.most(c, fits[c]) for c in classes) < owed.needed:
            return ()
        members = self._widest_first(owed)
        of = cluster.tasks.task_class[members]
        drain = Drain(state, np.flatnonzero(np.logical_or.reduce([*fits.values()])), self._now_s)
        for ended in drained:
            relations = self._relations(np.array(classes), ended)
            places = DrainingPlaces(cluster, of, relations, drain, fits, self._for_good.free)
            found = earliest_set(places, owed.needed, steps_among(cluster.machines.machine_count))
            if found is not None:
                start_s, chosen = found
                return tuple(MachineReservation.of(cluster, int(members[i]), row, start_s) for i, row in chosen)
            if not relations:
                break
        return ()

    def _drained(self, task: int) -> tuple[MachineReservation, ...]:
        """The machine that a task fits on once it is empty, and that misses least of what it needs now."""
        cluster, state = self._cluster, self._state
        task_class = int(cluster.tasks.task_class[task])
        able = self._for_good.large(task_class) & ~state.barred
        able[state.held] = False
        rows = np.flatnonzero(able)
        if not len(rows):
            return ()
        row = int(rows[np.argmin(missing(cluster.classes.demands[task_class], state.free[rows]))])
        return (MachineReservation.of(cluster, task, row, np.inf),)

    def _why_never(self, owed: Owed[IntArray], classes: list[int]) -> str:
        for c in classes:
            if not self._for_good.large(c).any():
                name = self._cluster.classes[c].name
                if (self._cluster.machines.alive & open_to(self._cluster, c)).any():
                    return f"no machine that it may use is large enough for {name}"
                return f"{name} may use no machine that is there: its selector or the policy forbids them all"
        if owed.gang is not None:
            many = f"{owed.needed} tasks of {owed.gang.group.name}"
            return f"no machines have room for {many} together once all that have an end are gone"
        if any(self._cluster.classes.roles[c] for c in classes):
            return "on every machine that is large enough, tasks without an end leave too little room or relations refuse it"
        return "on every machine that is large enough, tasks without an end leave too little room"


def _as_they_came(members: IntArray, classes: IntArray, placed: IntArray, needed: int) -> IntArray:
    """The first ``needed`` of the members that have a place, given the classes of those that were placed."""
    quota = np.bincount(placed, minlength=int(classes.max()) + 1)
    chosen: IntArray = members[ranks(classes) < quota[classes]][:needed]
    return chosen


def _beyond(placed: IntArray, wanted: IntArray) -> BoolArray:
    """Which placements are more than their class needs; the last ones."""
    quota = np.bincount(wanted, minlength=int(placed.max(initial=-1)) + 1)
    beyond: BoolArray = ranks(placed) >= quota[placed]
    return beyond

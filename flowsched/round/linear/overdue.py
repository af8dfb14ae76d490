"""Bounded waiting in rounds at linear prices: the earliest overdue task starts now, or a machine is held for it.

A task is *overdue* once it has waited longer than the due age, counted from its creation, so that a restart resets nothing.
The overdue task that came first starts before all others if there is room anywhere, whatever it costs. If not, it gets a
hard reservation on the machine that drains soonest (`machine_reservation.py`) and keeps it from round to round.

The bound: if no running task lasts longer than T, a task waits at most ``due age + (B + 1)(T + one round)``, B tasks that
had come earlier and still waited when it came. It is overdue at the due age, and so is all that came before it. Each of
them, once it is first, waits for one machine to drain, at most T since nothing joins it that stays, and for the next round.
That holds within a priority, or for all tasks with ``aging_crosses_priority``. Where runs are longer than predicted, nothing
joins once the reserved start has passed, so a task may wait for T twice. A reservation is given up, and made again, where
relations do not let its tasks start at its places together; while it stands, nothing comes to its domains that relations
count against them. Tasks without an end make T infinite: where they leave no machine for a task, nothing is held for it, the
next one is served, and the round's outcome says so; or, where rounds drain machines, the one that misses least of what the
task needs takes no other task until it has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.task_rows import RUNNING
from flowsched.relations.gang_search import GangSearch, steps_among
from flowsched.relations.later_places import earliest_set
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.gang_places import DrainingPlaces, StartingPlaces
from flowsched.round.linear.gang_queue import QueuedGang
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


@dataclass(frozen=True)
class _Owed:
    """Who has to start together: one task, or what is missing of a task group."""

    members: IntArray
    """In the order in which they came; any ``needed`` of them."""
    needed: int
    key: int | str
    """Class or group: what all with the same answer share."""


class OverdueTasks:
    """What is owed to overdue tasks, kept from round to round: by queue, which is a priority, or all tasks as one."""

    def __init__(self, cluster: ClusterRows, compaction: Compaction, due_age_s: float, drain: bool = False) -> None:
        """Nothing is owed yet. ``drain``: whether a machine is kept free of new tasks where no end is known."""
        self._cluster = cluster
        self._compaction = compaction
        self._due_age_s = due_age_s
        self._drain = drain
        self.reservations: tuple[MachineReservation, ...] = ()
        """What is held as things stand."""
        self._before: tuple[MachineReservation, ...] = ()
        self._unbounded: list[Unbounded] = []
        self._lasting: Lasting | None = None
        self._changed: IntArray = np.zeros(0, dtype=np.int64)

    @property
    def unbounded(self) -> tuple[Unbounded, ...]:
        """Overdue tasks of this round that nothing can be promised."""
        return tuple(self._unbounded)

    def resume(self, held: Sequence[MachineReservation]) -> None:
        """Hold this and nothing else, as if the last round had."""
        self.reservations = tuple(held)

    def begin(self, changed: IntArray) -> None:
        """A round begins. ``changed``: machines since the last one."""
        self._changed = changed
        self._unbounded = []
        self._lasting = None
        self._before = tuple(now for r in self.reservations if (now := r.now(self._cluster)) is not None)
        self.reservations = ()

    def settle(self, queue: Queue, state: BulkRoundState, now_s: float) -> Started | None:
        """Start the first overdue task of a queue, or hold a machine for it; those that started.

        Queues are settled in the order of their rank: what one holds binds those after it.
        """
        cluster, pending = self._cluster, queue.tasks
        late = pending[cluster.tasks.age_s(pending, now_s) > self._due_age_s]
        if not len(late):
            return None
        late = cluster.tasks.in_order(late)
        held = tuple(r for r in self._before if (pending == r.task).any())
        for owed in self._in_turn(late, held, queue.gangs):
            members = set(owed.members.tolist())
            mine = held if len(held) == owed.needed and all(r.task in members for r in held) else ()
            started = self._start(owed, mine, state, now_s)
            if started is not None:
                return started
            refused = self._refused(mine, state)
            kept = () if refused else self._kept(mine, state)
            found = kept or self._reserve(owed, state, now_s, refused)
            if found:
                self.reservations += found
                rows = np.unique([r.machine for r in found])
                start_s = max(r.start_s for r in found)
                state.hold(rows, np.full(len(rows), start_s - now_s if np.isfinite(start_s) else -np.inf))
                for r in found:
                    state.relations.keep_away(int(cluster.tasks.task_class[r.task]), r.machine)
                return None
        return None

    # Below: how

    def _in_turn(self, late: IntArray, held: Sequence[MachineReservation], gangs: Sequence[QueuedGang]) -> list[_Owed]:
        """Who is served first, one of each class or group: the holder of a reservation, then as they came."""
        task_class = self._cluster.tasks.task_class[late]
        _, first = np.unique(task_class, return_index=True)
        group = {c: gang for gang in gangs for c in gang.classes.tolist()}
        holders = {r.task for r in held}
        turns: dict[int | str, _Owed] = {}
        for i in np.sort(first).tolist():
            gang = group.get(int(task_class[i]))
            if gang is None:
                turns[int(task_class[i])] = _Owed(late[i : i + 1], 1, int(task_class[i]))
            elif gang.group.name not in turns:
                turns[gang.group.name] = _Owed(gang.members, gang.needed, gang.group.name)
        order = list(turns.values())
        if holders:
            holding = [o for o in order if isinstance(o.key, str) and holders <= set(o.members.tolist())]
            if not holding and len(held) == 1:
                holding = [_Owed(np.array([held[0].task]), 1, int(self._cluster.tasks.task_class[held[0].task]))]
            order = holding + order
        return order

    def _start(
        self, owed: _Owed, mine: Sequence[MachineReservation], state: BulkRoundState, now_s: float
    ) -> Started | None:
        """Place those who are owed, at whatever cost; None, and nothing has changed, if there is no room."""
        cluster = self._cluster
        start = state.count
        classes = cluster.tasks.task_class[owed.members]
        free, readings = state.free.copy(), state.readings.copy()
        if not self._place(owed, mine, state):
            return None
        placed = state.task_class[start:]
        # Where tasks lean on others, those that were placed first stand without the rest.
        tasks = _as_they_came(owed.members, classes, placed[: owed.needed] if state.relations else placed, owed.needed)
        extra = _beyond(state.task_class[start:], cluster.tasks.task_class[tasks])
        if extra.any():
            state.take_back(start, extra)
        waiting = survey(cluster, cluster.tasks.in_order(tasks), now_s, self._due_age_s)
        waiting = replace(
            waiting, cost=np.full(len(waiting.cost), np.inf), dearest=np.full(len(waiting.dearest), np.inf)
        )
        open_ = state.model._replace(ceiling=np.full(len(cluster.classes), np.inf))
        evidence = Evidence.of(cluster, self._compaction, waiting, free, readings, state.barred, open_)
        return Started(waiting, evidence, state.close(start, waiting, evidence))

    def _place(self, owed: _Owed, mine: Sequence[MachineReservation], state: BulkRoundState) -> bool:
        """Place as many as are needed, or more; False, and nothing has changed, where too few find a place."""
        cluster, start = self._cluster, state.count
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

    def _widest_first(self, owed: _Owed) -> IntArray:
        widths = [-self._cluster.classes[c].width_milli for c in self._cluster.tasks.task_class[owed.members].tolist()]
        widest: IntArray = owed.members[np.argsort(widths, kind="stable")]
        return widest

    def _refused(self, mine: Sequence[MachineReservation], state: BulkRoundState) -> bool:
        """Whether all that a reservation waits for is there, and only relations keep its tasks from starting."""
        cluster = self._cluster
        rows = np.array([r.machine for r in mine], dtype=np.int64)
        classes = cluster.tasks.task_class[[r.task for r in mine]]
        if not any(cluster.classes.roles[c] for c in classes.tolist()):
            return False
        free, readings = state.free.copy(), state.readings.copy()
        np.subtract.at(free, rows, cluster.classes.demands[classes])
        np.add.at(readings, rows, cluster.classes.effects[classes])
        return bool((free[rows] >= 0).all() and (readings[rows] <= cluster.limits[rows]).all())

    def _kept(self, held: tuple[MachineReservation, ...], state: BulkRoundState) -> tuple[MachineReservation, ...]:
        """The reservations of the last round if they still suit, all of them or none."""
        cluster = self._cluster
        rows = [r.machine for r in held]
        if state.barred[rows].any() or np.isin(rows, state.held).any():
            return ()
        for row in np.intersect1d(rows, self._changed).tolist():
            draining = [r for r in held if r.machine == row and np.isinf(r.start_s)]
            if draining and self._for_good.large(int(cluster.tasks.task_class[draining[0].task]))[row]:
                continue
            if not self._for_good.take(row, cluster.tasks.task_class[[r.task for r in held if r.machine == row]]):
                return ()
        classes = cluster.tasks.task_class[[r.task for r in held]]
        draining_only = any(np.isinf(r.start_s) for r in held)
        if draining_only or not any(cluster.classes.roles[c] for c in np.unique(classes).tolist()):
            return held
        admitted = any(self._relations(classes, state, d).admit(classes, np.array(rows)) for d in (True, False))
        return held if admitted else ()

    def _relations(self, classes: IntArray, state: BulkRoundState, drained: bool) -> RoundRelations:
        """Relations beside all that runs and was placed; ``drained``: once all of it that has an end has ended."""
        cluster = self._cluster
        placed, machine = state.task_class, state.machine
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

    def _reserve(
        self, owed: _Owed, state: BulkRoundState, now_s: float, refused: bool
    ) -> tuple[MachineReservation, ...]:
        """Machines that drain soonest and on which all could start together, all held until the last of them has room; none
        where there are no such machines.

        ``refused``: relations with what runs kept the tasks from starting where they had room, so they count as things
        stand if there are such places.
        """
        cluster = self._cluster
        classes = np.unique(cluster.tasks.task_class[owed.members]).tolist()
        fits = {c: self._for_good.fits(c) & ~state.barred for c in classes}
        for c in classes:
            fits[c][state.held] = False
        if sum(self._for_good.most(c, fits[c]) for c in classes) >= owed.needed:
            members = self._widest_first(owed)
            of = cluster.tasks.task_class[members]
            drain = Drain(state, np.flatnonzero(np.logical_or.reduce([*fits.values()])), now_s)
            for drained in (False, True) if refused else (True, False):
                relations = self._relations(np.array(classes), state, drained)
                places = DrainingPlaces(cluster, of, relations, drain, fits, self._for_good.free)
                found = earliest_set(places, owed.needed, steps_among(cluster.machines.machine_count))
                if found is not None:
                    start_s, chosen = found
                    return tuple(MachineReservation.of(cluster, int(members[i]), row, start_s) for i, row in chosen)
                if not relations:
                    break
        if self._drain and owed.needed == 1 and (drained_one := self._drained(int(owed.members[0]), state)):
            return drained_one
        self._unbounded.append(Unbounded(int(owed.members[0]), self._why_never(owed, classes)))
        return ()

    def _drained(self, task: int, state: BulkRoundState) -> tuple[MachineReservation, ...]:
        """The machine that a task fits on once it is empty, and that misses least of what it needs now."""
        cluster = self._cluster
        task_class = int(cluster.tasks.task_class[task])
        able = self._for_good.large(task_class) & ~state.barred
        able[state.held] = False
        rows = np.flatnonzero(able)
        if not len(rows):
            return ()
        demand = cluster.classes.demands[task_class]
        asked = np.flatnonzero(demand)
        missing = (np.maximum(0, demand[asked] - state.free[rows][:, asked]) / demand[asked]).sum(axis=1)
        row = int(rows[np.argmin(missing)])
        return (MachineReservation.of(cluster, task, row, np.inf),)

    def _why_never(self, owed: _Owed, classes: list[int]) -> str:
        for c in classes:
            if not self._for_good.large(c).any():
                name = self._cluster.classes[c].name
                if (self._cluster.machines.alive & open_to(self._cluster, c)).any():
                    return f"no machine that it may use is large enough for {name}"
                return f"{name} may use no machine that is there: its selector or the policy forbids them all"
        if owed.needed > 1:
            return f"no machines have room for {owed.needed} tasks of {owed.key} together once all that have an end are gone"
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

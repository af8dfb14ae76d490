"""Bounded waiting at forecast prices (:mod:`flowsched.round.bounded_waiting`): where overdue tasks have room, and when there
will be.

Each priority has reservations for up to four tasks, or task groups. Relations to tasks that end count as ended at the
reserved start, and what they count against the task is kept out of the domain until then.

A plain task that comes next and has room nowhere (:func:`flowsched.round.order.next_in_turn`) gets a machine in the same
way, after those that are overdue and for one round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowsched.cluster.compaction import View
from flowsched.cluster.resource import covers, without
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Task
from flowsched.gpu.devices import TaskGpus, suits
from flowsched.pricing.arrival import Arrival, Colocation, joined
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.round.assignment import Assignment
from flowsched.round.bounded_waiting import Owed, in_turn, missing, serve
from flowsched.round.drained_places import soonest_together
from flowsched.round.gang import RoundGang, fit_now, ordered_gangs
from flowsched.round.hold import Hold, drained_s
from flowsched.round.reserved_relations import ReservedRelations, contended
from flowsched.round.round_model import RoundModel
from flowsched.support.arrays import FloatArray

_TINY = 1e-6
MOST_RESERVING = 4
"""So many overdue tasks of a level, or task groups, have reservations at a time."""


@dataclass(frozen=True)
class OverdueDemands:
    """What overdue tasks, and the one that comes next, ask of a round."""

    must_start: frozenset[int] = frozenset()
    """Tasks (indices of the view) that start now, whatever it costs."""
    holds: Mapping[int, Hold] = field(default_factory=dict)
    """Reserved machines."""
    reservations: tuple[Reservation, ...] = ()
    """What to remember for the next round."""
    seed: Assignment | None = field(default=None, repr=False)
    """Where an overdue task group fits; None for a single task."""


@dataclass(frozen=True)
class Above:
    """What higher levels leave to a level."""

    plan: Assignment
    """What they have planned."""
    closed: frozenset[int]
    """Machines on which they have planned later starts."""
    classes: frozenset[int]
    """Their classes, which no reservation of this level binds."""


def settle_overdue(model: RoundModel, settings: Settings, due: Collection[int], above: Above) -> OverdueDemands:
    """Find the earliest of a level's overdue tasks, ``due``, and start it or reserve for it."""
    view = model.view
    gang_of = {t: gang for gang in ordered_gangs(view) for t in gang.members}
    serving = _Serving(model, settings.drain, above, due, gang_of)
    now_s = view.snapshot.now_s
    waiting = (t for t in due if (g := gang_of.get(t)) is None or (g.complete and not g.expired(now_s)))
    late = sorted(waiting, key=lambda t: (view.tasks[t].submit_s, t))
    holders = {t for t, task in enumerate(view.tasks) if task.name in serving.held}
    serve(
        in_turn(late, holders, lambda t: Owed.of(gang_of[t]) if t in gang_of else Owed((t,))), serving, MOST_RESERVING
    )
    return serving.found


class _Serving:
    """What those that were served so far ask of the round; what is reserved for them is not for those that come later."""

    def __init__(
        self, model: RoundModel, drain: bool, above: Above, due: Collection[int], gang_of: Mapping[int, RoundGang]
    ) -> None:
        view = model.view
        mine = {view.tasks[m].name for t in due for m in (gang_of[t].members if t in gang_of else (t,))}
        grouped = {view.tasks[t].name for t in gang_of}
        self.found = OverdueDemands()
        self._beside, self._drain, self._above, self._relations = model, drain, above, _relations(model, above)
        self.held = {
            r.task: r
            for r in view.snapshot.reservations
            if r.task in mine and _still_suits(model, above, self._relations, r, r.task in grouped)
        }
        """What was reserved in the last round and still suits, by task."""

    def start(self, owed: Owed[tuple[int, ...]]) -> bool:
        seed: Assignment | None = None
        if owed.gang is not None:
            starts, seed = fit_now(self._beside, owed.gang, self._above.plan, self._above.closed)
        else:
            starts = frozenset(t for t in owed.members if _fits_now(self._beside, self._above, t))
        if starts:
            self.found = replace(self.found, must_start=starts, seed=seed)
        return bool(starts)

    def keep(self, owed: Owed[tuple[int, ...]]) -> bool:
        view = self._beside.view
        mine = [r for t in owed.members if (r := self.held.get(view.tasks[t].name)) is not None]
        if len(mine) < owed.needed or any(_is_held(self._beside, r) for r in mine):
            return False
        if owed.gang is not None and not self._relations.admit(_placed(view, mine)):
            return False
        return self._hold(mine)

    def reserve(self, owed: Owed[tuple[int, ...]]) -> bool:
        if owed.gang is not None:
            return self._hold(_reserve_together(self._beside, self._above, self._relations, owed.gang))
        one = _reserve(self._beside, self._above, self._relations, owed.members[0], self._drain)
        return self._hold(() if one is None else (one,))

    def _hold(self, reservations: Sequence[Reservation]) -> bool:
        if not reservations:
            return False
        found, holds = self.found, _holds(self._beside.view, self._above, reservations)
        self.found = replace(found, holds={**found.holds, **holds}, reservations=(*found.reservations, *reservations))
        self._beside = replace(self._beside, holds={**self._beside.holds, **holds})
        return True


def reserve_next(model: RoundModel, above: Above, task: int) -> OverdueDemands | None:
    """Hold the machine that drains soonest for a task that is not overdue but comes next; None where none will."""
    found = _reserve(model, above, _relations(model, above), task, drain=False)
    if found is None:
        return None
    reservation = replace(found, overdue=False)
    return OverdueDemands(holds=_holds(model.view, above, (reservation,)), reservations=(reservation,))


def _is_held(model: RoundModel, reservation: Reservation) -> bool:
    return any(model.view.machines[m].name == reservation.machine for m in model.holds)


def _fits_now(model: RoundModel, above: Above, task: int) -> bool:
    """Whether a task could start somewhere beside what runs and what higher levels have planned."""
    view, plan = model.view, above.plan
    c = view.class_of[task]
    arrival = Arrival(c, 0, view.tasks[task].widths_milli[0])
    known: dict[tuple[int, Colocation], bool] = {}
    for m, g in enumerate(view.group_of):
        if m in above.closed or not view.allowed(c, m):
            continue
        colocation = joined(plan.colocation(m), arrival)
        fits = known.get((g, colocation))
        if fits is None or m in model.holds:
            fits = known[g, colocation] = model.machine_cost(m, colocation) < FORBIDDEN
        if fits and not model.refused(plan, task, m):
            return True
    return False


def _placed(view: View, reservations: Sequence[Reservation]) -> list[tuple[Task, int]]:
    """Tasks with the machines that are reserved for them."""
    number = {m.name: i for i, m in enumerate(view.machines)}
    tasks = {t.name: t for t in view.tasks}
    return [(tasks[r.task], number[r.machine]) for r in reservations]


def _holds(view: View, above: Above, reservations: Sequence[Reservation]) -> dict[int, Hold]:
    """What is held on each machine: several members of a group may have reserved the same one."""
    number = {m.name: i for i, m in enumerate(view.machines)}
    tasks = {t.name: t for t in view.tasks}
    holds: dict[int, Hold] = {}
    around: dict[int, Hold] = {}
    every = frozenset(range(len(view.classes)))
    for r in reservations:
        start_s = r.start_s - view.snapshot.now_s
        machine = number[r.machine]
        holds[machine] = _and_also(holds.get(machine), tasks[r.task], r.width_milli, start_s, above.classes)
        for m, classes in contended(view, tasks[r.task], machine):
            # Nothing of the machine is held, but those that relations count against the task.
            before = around.get(m, Hold(0, 0, 0.0, above=every))
            free = before.above & ((every - classes) | above.classes)
            around[m] = Hold(0, 0, max(start_s, before.start_s), above=free)
    return {**around, **holds}


def _and_also(
    hold: Hold | None, task: Task, width_milli: int, start_s: float, above: frozenset[int] = frozenset()
) -> Hold:
    """A hold that is large enough for one more task, and does not bind the classes ``above``."""
    if hold is None:
        return Hold(width_milli, task.memory_mib, start_s, dict(task.resources), _asked(task), above)
    more = without(hold.resources, tuple((name, -units) for name, units in task.resources))
    memory = hold.memory_mib + task.memory_mib
    start_s = max(hold.start_s, start_s)
    return Hold(hold.width_milli + width_milli, memory, start_s, more, (*hold.gpus, *_asked(task)), hold.above)


def _asked(task: Task) -> tuple[TaskGpus, ...]:
    return () if task.gpus is None else (task.gpus,)


def _still_suits(
    model: RoundModel, above: Above, relations: ReservedRelations, reservation: Reservation, grouped: bool
) -> bool:
    """Whether the reserved machine would take the task once it has drained: its long-running tasks may have changed.

    What relations say to a task of a gang depends on where the others are, and is asked of all of them at once.
    """
    view = model.view
    machine = next((i for i, m in enumerate(view.machines) if m.name == reservation.machine), None)
    task = next((i for i, t in enumerate(view.tasks) if t.name == reservation.task), None)
    if machine is None or task is None or not _free_to_hold(model, above, machine):
        return False
    if not grouped and relations.open_s(view.tasks[task], machine) == FORBIDDEN:
        return False
    return model.prices.welcome(view.group_of[machine], view.class_of[task])


def _free_to_hold(model: RoundModel, above: Above, machine: int) -> bool:
    """Whether no higher level holds a machine, and a hold would bind no task that comes there before it."""
    return machine not in model.holds and all(n.task_class in above.classes for n in above.plan.colocation(machine))


def _reserve(
    model: RoundModel, above: Above, relations: ReservedRelations, task: int, drain: bool
) -> Reservation | None:
    """The machine that drains soonest for a task; None where it can never run.

    ``drain``: where no end is known, the machine that misses least of what the task needs.
    """
    view = model.view
    found = _soonest(model, above, task, relations)
    wanted = view.tasks[task]
    if found is not None:
        at, machine, hold = found
        return Reservation(wanted.name, view.machines[machine].name, hold.width_milli, view.snapshot.now_s + at)
    width = wanted.widths_milli[0]
    able = [m for m in range(len(view.machines)) if drain and _could_take(model, above, relations, task, m)]
    if not able:
        return None
    least = min(able, key=lambda m: (_missing(view, wanted, m), m))
    return Reservation(wanted.name, view.machines[least].name, width, FORBIDDEN)


def _could_take(model: RoundModel, above: Above, relations: ReservedRelations, task: int, machine: int) -> bool:
    """Whether a task may run on a machine and fits there beside nothing but its services."""
    view = model.view
    c, g, wanted = view.class_of[task], view.group_of[machine], view.tasks[task]
    here = view.groups[g]
    cpu = here.machine.cpu_milli - sum(s.width_milli for s in here.services)
    memory = here.machine.memory_mib - sum(s.memory_mib for s in here.services)
    fits = cpu >= wanted.widths_milli[0] and memory >= wanted.memory_mib
    allowed = view.allowed(c, machine) and bool(here.batch_cores) and model.prices.welcome(g, c)
    enough = not wanted.resources or covers(dict(here.machine.resources), wanted.resources)
    enough &= wanted.gpus is None or suits(here.machine.gpus, wanted.gpus)
    allowed &= _free_to_hold(model, above, machine)
    return fits and allowed and enough and relations.open_s(wanted, machine) < FORBIDDEN


def _missing(view: View, wanted: Task, machine: int) -> float:
    """What a machine misses now of what a task needs."""
    here = view.groups[view.group_of[machine]]
    needs = [wanted.widths_milli[0], wanted.memory_mib, *(units for _, units in wanted.resources)]
    free = [here.free_milli, here.free_memory_mib, *(here.free_resources.get(name, 0) for name, _ in wanted.resources)]
    return float(missing(np.array(needs, np.int64), np.array(free, np.int64)))


def _reserve_together(
    model: RoundModel, above: Above, relations: ReservedRelations, gang: RoundGang
) -> list[Reservation]:
    """A place for each that has to start, all at the time when the last of them is free; none where they are not found."""
    view = model.view

    def draining(task: int, machine: int, hold: Hold | None) -> tuple[float, Hold] | None:
        return _drained(model, above, task, machine, hold)

    def least_s(task: int) -> FloatArray:
        return _cpu_free_s(model, view.tasks[task].widths_milli[0])[np.array(view.group_of, np.int64)]

    found = soonest_together(view, relations, gang, draining, least_s)
    if found is None:
        return []
    start_s = view.snapshot.now_s + found[0]
    return [
        Reservation(view.tasks[t].name, view.machines[m].name, view.tasks[t].widths_milli[0], start_s)
        for t, m in found[1]
    ]


def _relations(model: RoundModel, above: Above) -> ReservedRelations:
    """What relations say beside what runs and what higher levels have planned."""
    planned = ((t, o.machine) for t, o in enumerate(above.plan.options) if o is not None)
    return ReservedRelations(model.view, model.prices.base.ends_s, planned)


def _soonest(
    model: RoundModel, above: Above, task: int, relations: ReservedRelations
) -> tuple[float, int, Hold] | None:
    """The machine that is soonest drained enough for a task: when, which, and the hold."""
    view = model.view
    wanted = view.tasks[task]
    best: tuple[float, int, Hold] | None = None
    at_least = _cpu_free_s(model, wanted.widths_milli[0])
    of = np.array(view.group_of, np.int64)
    for m in np.argsort(at_least[of], kind="stable").tolist():
        g = view.group_of[m]
        if at_least[g] == FORBIDDEN or (best is not None and at_least[g] > best[0] + _TINY):
            break
        open_s = relations.open_s(wanted, m) if view.allowed(view.class_of[task], m) else FORBIDDEN
        found = _drained(model, above, task, m, None) if open_s < FORBIDDEN else None
        if found is not None and (best is None or (max(open_s, found[0]), m) < best[:2]):
            best = (max(open_s, found[0]), m, found[1])
    return best


def _drained(model: RoundModel, above: Above, task: int, machine: int, hold: Hold | None) -> tuple[float, Hold] | None:
    """When a machine is drained enough for a task beside what is held there, in seconds from now, and the hold for both;
    None where it never is, or may not be held. Relations aside.
    """
    view = model.view
    g, c, wanted = view.group_of[machine], view.class_of[task], view.tasks[task]
    if not view.allowed(c, machine) or not view.groups[g].batch_cores or not model.prices.welcome(g, c):
        return None
    if not _free_to_hold(model, above, machine):
        return None
    both = _and_also(hold, wanted, wanted.widths_milli[0], 0.0)
    at = drained_s(view, model.prices, g, above.plan.colocation(machine), both)
    return (at, both) if at < FORBIDDEN else None


def _cpu_free_s(model: RoundModel, width_milli: int) -> FloatArray:
    """[groups] when so many cores are free at the earliest, in seconds from now, with nothing that starts now; infinity for
    never. Memory, devices and what is held come on top: those machines that could be soonest are looked at first.
    """
    groups, ends_s = model.view.groups, model.prices.base.ends_s
    most = ends_s.shape[1]
    widths = np.zeros((len(groups), most), np.int64)
    for g, here in enumerate(groups):
        widths[g, : len(here.running)] = [0 if r.task.endless else r.width_milli for r in here.running]
    order = np.argsort(ends_s, axis=1, kind="stable")
    free = np.array([g.free_milli for g in groups], np.int64)
    freed = np.concatenate([free[:, None], free[:, None] + np.cumsum(np.take_along_axis(widths, order, 1), 1)], axis=1)
    ends = np.concatenate([np.zeros((len(groups), 1)), np.take_along_axis(ends_s, order, 1)], axis=1)
    enough = freed >= width_milli
    at = np.take_along_axis(ends, np.argmax(enough, axis=1)[:, None], 1)[:, 0]
    return np.where(enough.any(axis=1), at, FORBIDDEN)

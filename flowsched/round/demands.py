"""What overdue tasks, gangs and the task that comes next ask of a round, level by level: each level sees what the higher
ones have planned.

A reservation binds the tasks of its own level and of lower ones; to higher levels its room is free. With
``aging_crosses_priority`` overdue tasks come before all levels, and bind them all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from flowsched.cluster.compaction import View
from flowsched.cluster.settings import Settings
from flowsched.round.assignment import Assignment
from flowsched.round.bounded_waiting import binds
from flowsched.round.gang import Gangs, RoundGang, ordered_gangs, priority_of, settle_gangs
from flowsched.round.order import next_in_turn
from flowsched.round.reservation import Above, OverdueDemands, reserve_next, settle_overdue
from flowsched.round.round_model import RoundModel


@dataclass(frozen=True)
class Demands:
    """What the levels so far ask of a round."""

    overdue: OverdueDemands = field(default_factory=OverdueDemands)
    gangs: Gangs = field(default_factory=Gangs)

    def on(self, model: RoundModel) -> RoundModel:
        """A model that meets them."""
        must_start = self.overdue.must_start | self.gangs.must_start
        return replace(model, holds=self.overdue.holds, must_start=must_start, barred=self.gangs.barred)


class Levels:
    """The levels of a round, the highest first, and who of each is overdue or has to start together."""

    def __init__(self, model: RoundModel, settings: Settings) -> None:
        """``model``: at the tasks' own goals, without demands."""
        self.model = model
        self._settings = settings
        view = model.view
        self.gangs = ordered_gangs(view)
        """All of them, the most important and oldest first."""
        self._gang_of = {t: gang for gang in self.gangs for t in gang.members}
        # Who has machines reserved keeps them, also where its run time is now estimated to be longer.
        reserved = {r.task for r in view.snapshot.reservations}
        due = [
            t
            for t, task in enumerate(view.tasks)
            if (age := view.snapshot.age_s(task)) > self.overdue_age_s(t)
            or (task.name in reserved and age > settings.due_age_s)
        ]
        self._due: dict[float, list[int]] = {}
        for t in due:
            level = inf if settings.aging_crosses_priority else self._level_of(view, t)
            self._due.setdefault(level, []).append(t)
        jobs = view.snapshot.catalogue.jobs
        self._keeps_for_the_next = (
            settings.prices_completions
            and settings.objective != "makespan"
            and settings.assign != "none"
            and any(jobs[cls.task.profile].is_plain for cls in view.classes)
        )
        self._settled: dict[float, Demands] = {}
        self.order: tuple[float, ...] = tuple(sorted({*self._due, *(t.priority for t in view.tasks)}, reverse=True))
        """Priorities, the highest first; before them infinity, where overdue tasks come before all."""

    def overdue_age_s(self, task: int) -> float:
        """After how many seconds of waiting a task is overdue: of a task group, when all of its members would be."""
        gang = self._gang_of.get(task)
        goals, class_of = self.model.prices.goals, self.model.view.class_of
        members = (task,) if gang is None else gang.members
        return max(self._settings.overdue_age_s(goals.known_run_s(class_of[t])) for t in members)

    def nothing(self) -> Demands:
        """What is asked before the first level."""
        return Demands(gangs=Gangs(self.gangs))

    def settle(self, level: float, plan: Assignment, before: Demands) -> Demands:
        """What the levels down to this one ask, beside the ``plan`` of those above it, which asked what was ``before``."""
        due = self._due.get(level, [])
        gangs = [g for g in self.gangs if priority_of(self.model.view, g) == level]
        if not due and not gangs and not self._keeps_for_the_next:
            return before
        # Under another goal for all the same is asked again.
        alone = not any(plan.options)
        if not alone or level not in self._settled:
            found = self._settle(level, due, gangs, plan, before)
            if not alone:
                return found
            self._settled[level] = found
        return self._settled[level]

    def settled(self, plan: Assignment) -> Demands:
        """What all levels ask of a round that ended with a plan."""
        view, demands = self.model.view, self.nothing()
        for level in self.order:
            above = [o if self._level_of(view, t) > level else None for t, o in enumerate(plan.options)]
            demands = self.settle(level, Assignment(above, plan.class_of, plan.machines), demands)
        return demands

    def level_of(self, task: int) -> float:
        """The level at which a task comes."""
        return inf if task in self._due.get(inf, ()) else self._level_of(self.model.view, task)

    def _level_of(self, view: View, task: int) -> float:
        gang = self._gang_of.get(task)
        return view.tasks[task].priority if gang is None else priority_of(view, gang)

    def _settle(
        self, level: float, due: Collection[int], gangs: Sequence[RoundGang], plan: Assignment, before: Demands
    ) -> Demands:
        view = self.model.view
        # A reservation of this level does not bind classes of higher ones.
        above = frozenset(c for c, cls in enumerate(view.classes) if not binds(level, cls.task.priority))
        closed = closed_by(plan)
        model = before.on(self.model)
        overdue, asked = before.overdue, before.gangs
        seed = plan
        if due:
            found = settle_overdue(model, self._settings, due, Above(plan, closed, above))
            seed = plan if found.seed is None else found.seed
            overdue = OverdueDemands(
                overdue.must_start | found.must_start,
                {**overdue.holds, **found.holds},
                (*overdue.reservations, *found.reservations),
            )
        rest = [g for g in gangs if overdue.must_start.isdisjoint(g.members)]
        more = settle_gangs(model, rest, overdue.must_start & set(due), overdue.holds, seed, closed)
        reasons: Mapping[int, str] = {**asked.reasons, **more.reasons}
        demands = Demands(
            overdue,
            Gangs(asked.all, asked.must_start | more.must_start, asked.barred | more.barred, reasons, more.seed),
        )
        if self._keeps_for_the_next and not (overdue.must_start or demands.gangs.must_start):
            return self._kept_for_the_next(level, demands, Above(plan, closed, above))
        return demands

    def _kept_for_the_next(self, level: float, demands: Demands, above: Above) -> Demands:
        """With a machine for the task of a level that comes next and has room nowhere."""
        overdue, tasks = demands.overdue, self.model.view.tasks
        mine = [t for t, task in enumerate(tasks) if task.priority == level]
        model = demands.on(self.model)
        first = next_in_turn(model, above.plan, mine, {r.task for r in overdue.reservations})
        found = None if first is None else reserve_next(model, above, first)
        if found is None:
            return demands
        return replace(
            demands,
            overdue=replace(
                overdue,
                holds={**overdue.holds, **found.holds},
                reservations=(*overdue.reservations, *found.reservations),
            ),
        )


def closed_by(plan: Assignment) -> frozenset[int]:
    """Machines on which a plan has later starts: lower levels leave them alone."""
    return frozenset(o.machine for o in plan.options if o is not None and o.start_after > 0)

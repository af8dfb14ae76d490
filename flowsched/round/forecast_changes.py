"""What a round at forecast prices changes of what runs: whose leaving lets a task in, one task after the other.

With cost(m) as in the passes, a task t on machine m in the place of a set E costs

    cost(m with t, without E) - cost(m) + sum over E of the price of waiting

so a victim costs what its own completion is delayed by, less what its leaving brings the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from flowsched.cluster.compaction import part_of
from flowsched.cluster.decision import Placement, Postponement
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MOST_KEPT, Running, Snapshot, Task, by_machine
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.pricing.trial_machines import Trial, TrialMachines
from flowsched.round.forecast_moves import moves_that_pay, single
from flowsched.round.reservation import OverdueDemands
from flowsched.round.room import MachineRoom
from flowsched.round.round_model import RoundModel
from flowsched.round.running_changes import (
    ChangedDecisions,
    Entry,
    Leaving,
    ProposedMoves,
    as_moves,
    change_running,
    may_go,
    waits_again,
)
from flowsched_models.runtime import HostFactory

_PRICED = 16
"""Sets that are priced together; more only where none of them is possible."""

_Choice = tuple[int, float, str, tuple[str, ...], tuple[Running, ...]]
"""Highest priority that leaves, what leaving costs each alone, machine, names, and who leaves."""


def changed_decisions(
    model: RoundModel,
    bound: tuple[Placement, ...],
    left: tuple[Postponement, ...],
    overdue: OverdueDemands,
    hosts: HostFactory,
    settings: Settings,
    goal_s: float | None,
) -> ChangedDecisions:
    """Preemptions and moves after a round that decided ``bound`` and ``left``."""
    if not settings.changes_running:
        return ChangedDecisions(bound, left, overdue.reservations)
    view = model.view
    seen = view.snapshot if view.candidates is None else part_of(view.snapshot, view.candidates.machines)
    protected = {view.tasks[t].name for t in overdue.must_start} if settings.aging_crosses_priority else set()
    pricer = ForecastChanges(seen, bound, protected, hosts, settings, goal_s)
    changes = change_running(pricer, overdue.reservations, settings)
    number = {task.name: t for t, task in enumerate(view.tasks)}
    back = [
        waits_again(
            taken,
            view.snapshot.age_s(view.tasks[number[taken.task]]),
            model.prices.waiting_terms(view.class_of[number[taken.task]]),
        )
        for taken in changes.taken_back
    ]
    counts: dict[str, int] = {}
    if settings.preempts:
        counts |= {"preempted": len(changes.preemptions), "decided_by_preemption": len(changes.let_in)}
    if settings.migration_moves:
        counts["moved"] = len(changes.steps)
    return ChangedDecisions(
        tuple(pricer.placements.values()),
        (*(p for p in left if p.task not in pricer.placements), *back),
        tuple(r for r in overdue.reservations if r.task not in pricer.placements),
        changes.preemptions if settings.preempts else None,
        as_moves(changes.steps, seen, settings) if settings.migration_moves else None,
        changes.let_in,
        changes.taken_back,
        counts,
    )


class ForecastChanges:
    """Room and forecasts of a round that is carried out, and then of what is changed of it."""

    def __init__(
        self,
        snapshot: Snapshot,
        bound: Iterable[Placement],
        protected: Collection[str],
        hosts: HostFactory,
        settings: Settings,
        goal_s: float | None,
    ) -> None:
        """``protected``: tasks of the round that start before higher priorities, since they are overdue."""
        self._tasks = {t.name: t for t in snapshot.pending}
        self.placements = {p.task: p for p in bound}
        """By task, in the order of the round."""
        self._settings = settings
        self._price = partial(TrialMachines, hosts=hosts, settings=settings, goal_s=goal_s)
        running = tuple(started(snapshot, self._tasks[p.task], p) for p in self.placements.values())
        pending = tuple(t for t in snapshot.pending if t.name not in self.placements)
        self._snapshot = replace(snapshot, running=(*snapshot.running, *running), pending=pending)
        self.placed = frozenset(self.placements)
        """Tasks that the round starts."""
        self.waiting = {t.name: t.priority for t in pending}
        """Tasks that the round leaves, with their priorities."""
        self._room = MachineRoom(self._snapshot)
        able = self._able(protected) if settings.preempts else []
        self._victims = {r.task.name: r for r in able}
        self._lowest = min((r.task.priority for r in able), default=1 << 62)
        self._leaving: dict[str, float] | None = None
        self._waiting_cost: dict[str, float] = {}
        self._known: TrialMachines | None = None

    def turns(self, tasks: Sequence[str]) -> Sequence[Sequence[str]]:
        """One after the other, as they came."""
        alone = [task for name in tasks if single(task := self._tasks[name])]
        return [(task.name,) for task in sorted(alone, key=attrgetter("arrival"))]

    def lower(self, tasks: Sequence[str], barred: Collection[str]) -> Sequence[int]:
        """Priorities of those that may leave; none where there is room: then it waits on purpose, or for a p95 goal."""
        (task,) = (self._tasks[name] for name in tasks)
        if task.priority <= self._lowest:
            return ()
        lower = {v.task.priority for v in self._victims.values() if v.task.priority < task.priority}
        if not lower or (self._room.fitting(task) & self._room.others(barred)).any():
            return ()
        return sorted(lower)

    def let_in(self, tasks: Sequence[str], highest: int, barred: Collection[str], most: int) -> Sequence[Entry]:
        """Make room for a task that has none."""
        (task,) = (self._tasks[name] for name in tasks)
        some = [v for v in self._victims.values() if v.task.priority <= highest]
        able = self._room.fitting(task, some) & self._room.others(barred)
        if not able.any():
            return ()
        choices = self._choices(task, some, {self._room.names[m] for m in np.flatnonzero(able)})
        choices = sorted(choice for choice in choices if choice[0] == highest and len(choice[4]) <= most)
        for first in range(0, len(choices), _PRICED):
            found = self._cheapest(task, choices[first : first + _PRICED])
            if found is not None:
                return (self._carry_out(task, *found),)
        return ()

    def move(self, barred: Collection[str], fixed: Collection[str]) -> ProposedMoves:
        """Moves, the best one first."""
        return ProposedMoves(moves_that_pay(self._snapshot, barred, fixed, self._settings, self._price))

    def _able(self, protected: Collection[str]) -> list[Running]:
        """Who may be preempted."""
        running = self._snapshot.running
        tasks = [r.task for r in running]
        times = np.array([t.preemptions for t in tasks], dtype=np.int64)
        endless, starting = (
            np.array(of, dtype=np.bool_) for of in ([t.endless for t in tasks], [t.name in self.placed for t in tasks])
        )
        may = may_go(times, endless, starting, self._settings).tolist()
        return [
            r for r, able in zip(running, may, strict=True) if able and single(r.task) and r.task.name not in protected
        ]

    def _choices(self, task: Task, lower: Sequence[Running], machines: Collection[str]) -> list[_Choice]:
        leaving = self._leaving_costs()
        here: dict[str, list[Running]] = {}
        for victim in lower:
            if victim.machine in machines:
                here.setdefault(victim.machine, []).append(victim)
        found: list[_Choice] = []
        for machine, victims in here.items():
            victims.sort(key=lambda v: (v.task.priority, leaving[v.task.name], v.task.name))
            for members in self._room.least_sets(task, victims):
                gone = tuple(victims[i] for i in members)
                names = tuple(sorted(v.task.name for v in gone))
                highest = max(v.task.priority for v in gone)
                found.append((highest, sum(leaving[name] for name in names), machine, names, gone))
        return found

    def _leaving_costs(self) -> dict[str, float]:
        """What the leaving of each victim alone would cost at the state that the round ends its passes with."""
        if self._leaving is None:
            here = by_machine(self._snapshot.running)
            trials = [
                Trial(v.machine, tuple(r for r in here[v.machine] if r.task.name != v.task.name))
                for v in self._victims.values()
            ]
            pending = [self._again(v) for v in self._victims.values()]
            priced = self._price(self._snapshot, trials, pending)
            self._known = priced
            found = {
                name: priced.trial_cost(i) - priced.cost(v.machine) for i, (name, v) in enumerate(self._victims.items())
            }
            self._waiting_cost = {name: priced.waiting_cost(name) for name in found}
            self._leaving = {name: cost + self._waiting_cost[name] for name, cost in found.items()}
        return self._leaving

    def _again(self, victim: Running) -> Task:
        """A victim as it would wait."""
        kept = self._settings.keeps_work and not victim.task.endless
        progress = min(victim.progress, MOST_KEPT)
        done = progress if kept else victim.task.done if victim.task.name in self.placements else 0.0
        return replace(victim.task, done=done)

    def _cheapest(self, task: Task, choices: Sequence[_Choice]) -> tuple[_Choice, TrialMachines, int] | None:
        """The choice with the lowest price; None if none is possible."""
        here = by_machine(self._snapshot.running)
        trials = [
            Trial(machine, tuple(r for r in here[machine] if r.task.name not in names))
            for _, _, machine, names, _ in choices
        ]
        assert self._known is not None, "leaving was priced"
        only = self._known.representatives(task)
        priced = self._price(self._snapshot, trials, [task], only=only)
        best: tuple[float, int] | None = None
        for i, choice in enumerate(choices):
            cost, _ = priced.cheapest_arrival(i, task.name)
            if cost == FORBIDDEN:
                continue
            price = cost - priced.cost(choice[2]) + sum(self._waiting_cost[name] for name in choice[3])
            if best is None or (price, i) < best:
                best = price, i
        return None if best is None else (choices[best[1]], priced, best[1])

    def _carry_out(self, task: Task, choice: _Choice, priced: TrialMachines, trial: int) -> Entry:
        snapshot = self._snapshot
        _, arrival = priced.cheapest_arrival(trial, task.name)
        assert arrival is not None, "it was chosen for its price"
        g = priced.trial_group(trial)
        cores, threads = priced.prices.forecasts.place(g, arrival)
        terms = priced.prices.machine_terms(g, (arrival,), 0)
        leaving = []
        for victim in choice[4]:
            name, costs = victim.task.name, self._leaving_costs()
            leaving.append(Leaving(name, victim.task.priority, victim.machine, costs[name]))
            del self._victims[name]
            self._room.take(victim, -1)
            self.placements.pop(name, None)
        cost = sum(terms.values())
        devices = self._room.devices_for(task, choice[2])
        placement = Placement(task.name, choice[2], arrival.width_milli, threads, cores, cost, terms, devices)
        running = started(snapshot, task, placement)
        self.placements[task.name] = placement
        gone = {v.task.name for v in choice[4]}
        stay = (r for r in snapshot.running if r.task.name not in gone)
        self._snapshot = replace(snapshot, running=(*stay, running))
        self._room.take(running)
        return Entry(task.name, tuple(leaving))


def started(snapshot: Snapshot, task: Task, placement: Placement) -> Running:
    """A task that is bound in a round."""
    delay = snapshot.start_delay
    wait = delay.at_submission_s if snapshot.is_new(task) else delay.after_waiting_s
    now = snapshot.now_s
    place = placement.machine, placement.width_milli, placement.threads, placement.cores
    return Running(task, *place, now, now + wait, task.done, devices=placement.devices)

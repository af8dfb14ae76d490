"""Preemption: a task that has no room starts in the place of running tasks of strictly lower priority, which wait again.

Asked after the passes, for tasks that wait though no machine has room for them, higher priorities first. Priority decides
*whether*: where leaving of lower priorities makes room on one machine, they leave. The price decides *who*, among sets of
which none could stay: first the set whose highest priority is lowest, so that no task that leaves drives out another,
then the cheapest. With cost(m) as in the passes, a task t on machine m in the place of a set E costs

    cost(m with t, without E) - cost(m) + sum over E of the price of waiting

so a victim costs what its own completion is delayed by, less what its leaving brings the others. Tasks that the round itself
was about to start may be in E too; they lose their place, and wait as they did.

A task with an end is preempted at most ``preemption_limit`` times; one without an end at most as often as tasks of higher
priority start, since only these drive it out. Members of task groups, and tasks that relations bind or count, neither
preempt nor are preempted.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowsched.cluster.decision import Placement, Preemption
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MOST_KEPT, Reservation, Running, Snapshot, Task, by_machine
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.pricing.trial_machines import Trial, TrialMachines
from flowsched.round.room import MachineRoom
from flowsched_models.runtime import HostFactory

_PRICED = 16
"""Sets that are priced together; more only where none of them is possible."""

_Choice = tuple[int, float, str, tuple[str, ...], tuple[Running, ...]]
"""Highest priority that leaves, what leaving costs each alone, machine, names, and who leaves."""


@dataclass
class RoundState:
    """Who runs where once a round is carried out, in the making."""

    snapshot: Snapshot
    """With all that the round starts as running tasks."""
    placements: dict[str, Placement]
    """By task, in the order of the round."""
    taken_back: dict[str, Preemption] = field(default_factory=dict)
    """Placements of the round that another task took, by task."""
    preemptions: list[Preemption] = field(default_factory=list)

    def change(self, gone: Collection[str], come: Sequence[Running] = ()) -> None:
        """Tasks leave their machines, others come."""
        running = tuple(r for r in self.snapshot.running if r.task.name not in gone)
        self.snapshot = replace(self.snapshot, running=(*running, *come))


def carried_out(snapshot: Snapshot, placements: Iterable[Placement]) -> RoundState:
    """A snapshot once placements are bound."""
    tasks = {t.name: t for t in snapshot.pending}
    bound = {p.task: p for p in placements}
    running = tuple(started(snapshot, tasks[p.task], p) for p in bound.values())
    pending = tuple(t for t in snapshot.pending if t.name not in bound)
    return RoundState(replace(snapshot, running=(*snapshot.running, *running), pending=pending), bound)


def started(snapshot: Snapshot, task: Task, placement: Placement) -> Running:
    """A task that is bound in a round."""
    delay = snapshot.start_delay
    wait = delay.at_submission_s if snapshot.is_new(task) else delay.after_waiting_s
    now = snapshot.now_s
    place = placement.machine, placement.width_milli, placement.threads, placement.cores
    return Running(task, *place, now, now + wait, task.done, devices=placement.devices)


def single(task: Task) -> bool:
    """Whether a task depends on no other: it is in no group, and no relation binds or counts it."""
    return not (task.group or task.holds or task.joins)


def preempt(
    state: RoundState,
    reservations: Sequence[Reservation],
    protected: Collection[str],
    hosts: HostFactory,
    settings: Settings,
    goal_s: float | None,
) -> None:
    """Let tasks that have no room start in the place of others; ``state`` changes.

    ``protected``: tasks of the round that start before higher priorities, since they are overdue.
    """
    tasks = {t.name: t for t in state.snapshot.pending}
    holders = {r.task for r in reservations}
    queue = [_rank(t, holders) for t in tasks.values() if single(t)]
    if not queue:
        return
    heapq.heapify(queue)
    work = _Work(state, protected, hosts, settings, goal_s)
    while queue:
        task = tasks[heapq.heappop(queue)[-1]]
        if task.priority <= work.lowest:
            return  # nor can any that follow preempt: they come in the order of priorities
        held = {r.machine for r in reservations if r.task != task.name and _stands(r, task, state, tasks)}
        for name in work.let_in(task, held):
            tasks[name] = next(t for t in work.before if t.name == name)
            heapq.heappush(queue, _rank(tasks[name], holders))


def _rank(task: Task, holders: Collection[str]) -> tuple[int, bool, float, int, str, str]:
    """Higher priorities first, then those that a machine is reserved for, then as they came."""
    return -task.priority, task.name not in holders, *task.arrival


def _stands(reservation: Reservation, task: Task, state: RoundState, tasks: Mapping[str, Task]) -> bool:
    """Whether a reservation keeps a task off its machine: its own task waits still, and has no lower priority."""
    holder = tasks.get(reservation.task)
    return holder is not None and holder.name not in state.placements and holder.priority >= task.priority


class _Work:
    """Room and prices while tasks are let in one after the other."""

    def __init__(
        self,
        state: RoundState,
        protected: Collection[str],
        hosts: HostFactory,
        settings: Settings,
        goal_s: float | None,
    ) -> None:
        self._state, self._hosts, self._settings, self._goal_s = state, hosts, settings, goal_s
        self.before = tuple(r.task for r in state.snapshot.running if r.task.name in state.placements)
        """Tasks that the round was about to start."""
        self._room = MachineRoom(state.snapshot)
        self._victims = {r.task.name: r for r in state.snapshot.running if self._may_go(r, protected)}
        self.lowest = min((r.task.priority for r in self._victims.values()), default=1 << 62)
        self._leaving: dict[str, float] | None = None
        self._waiting: dict[str, float] = {}
        self._known: TrialMachines | None = None

    def _may_go(self, running: Running, protected: Collection[str]) -> bool:
        task = running.task
        if not single(task) or task.name in protected:
            return False
        return task.endless or task.name in self._state.placements or task.preemptions < self._settings.preemption_limit

    def let_in(self, task: Task, held: Collection[str]) -> list[str]:
        """Make room for a task that has none; the names of tasks of the round that lose their place to it."""
        open_ = ~np.isin(self._room.names, sorted(held))
        lower = [v for v in self._victims.values() if v.task.priority < task.priority]
        if not lower or (self._room.fitting(task) & open_).any():
            return []  # with room somewhere, it waits on purpose, or for a p95 goal
        for highest in sorted({v.task.priority for v in lower}):
            some = [v for v in lower if v.task.priority <= highest]
            able = self._room.fitting(task, some) & open_
            if not able.any():
                continue
            choices = self._choices(task, some, {self._room.names[m] for m in np.flatnonzero(able)})
            choices = sorted(choice for choice in choices if choice[0] == highest)
            for first in range(0, len(choices), _PRICED):
                found = self._cheapest(task, choices[first : first + _PRICED])
                if found is not None:
                    return self._carry_out(task, *found)
        return []

    def _choices(self, task: Task, lower: Sequence[Running], machines: Collection[str]) -> list[_Choice]:
        leaving = self._leaving_costs()
        by_machine: dict[str, list[Running]] = {}
        for victim in lower:
            if victim.machine in machines:
                by_machine.setdefault(victim.machine, []).append(victim)
        found: list[_Choice] = []
        for machine, victims in by_machine.items():
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
            state = self._state
            here = by_machine(state.snapshot.running)
            trials = [
                Trial(v.machine, tuple(r for r in here[v.machine] if r.task.name != v.task.name))
                for v in self._victims.values()
            ]
            pending = [self._again(v) for v in self._victims.values()]
            priced = TrialMachines(state.snapshot, trials, pending, self._hosts, self._settings, self._goal_s)
            self._known = priced
            found = {
                name: priced.trial_cost(i) - priced.cost(v.machine) for i, (name, v) in enumerate(self._victims.items())
            }
            self._waiting = {name: priced.waiting_cost(name) for name in found}
            self._leaving = {name: cost + self._waiting[name] for name, cost in found.items()}
        return self._leaving

    def _again(self, victim: Running) -> Task:
        """A victim as it would wait."""
        kept = self._settings.keeps_work and not victim.task.endless
        progress = min(victim.progress, MOST_KEPT)
        done = progress if kept else victim.task.done if victim.task.name in self._state.placements else 0.0
        return replace(victim.task, done=done)

    def _cheapest(self, task: Task, choices: Sequence[_Choice]) -> tuple[_Choice, TrialMachines, int] | None:
        """The choice with the lowest priority that leaves, then the lowest price; None if none is possible."""
        snapshot = self._state.snapshot
        here = by_machine(snapshot.running)
        trials = [
            Trial(machine, tuple(r for r in here[machine] if r.task.name not in names))
            for _, _, machine, names, _ in choices
        ]
        assert self._known is not None, "leaving was priced"
        only = self._known.representatives(task)
        priced = TrialMachines(snapshot, trials, [task], self._hosts, self._settings, self._goal_s, only)
        best: tuple[tuple[int, float, int], _Choice] | None = None
        for i, choice in enumerate(choices):
            cost, _ = priced.cheapest_arrival(i, task.name)
            if cost == FORBIDDEN:
                continue
            price = cost - priced.cost(choice[2]) + sum(self._waiting[name] for name in choice[3])
            key = choice[0], price, i
            if best is None or key < best[0]:
                best = key, choice
        return None if best is None else (best[1], priced, best[0][2])

    def _carry_out(self, task: Task, choice: _Choice, priced: TrialMachines, trial: int) -> list[str]:
        state = self._state
        _, arrival = priced.cheapest_arrival(trial, task.name)
        assert arrival is not None, "it was chosen for its price"
        g = priced.trial_group(trial)
        cores, threads = priced.prices.forecasts.place(g, arrival)
        terms = priced.prices.machine_terms(g, (arrival,), 0)
        lost = []
        for victim in choice[4]:
            name = victim.task.name
            preemption = Preemption(
                name, victim.machine, task.name, self._leaving_costs()[name], self._settings.keeps_work
            )
            del self._victims[name]
            self._room.take(victim, -1)
            if name in state.placements:
                del state.placements[name]
                state.taken_back[name] = preemption
                lost.append(name)
            else:
                state.preemptions.append(preemption)
        cost = sum(terms.values())
        devices = self._room.devices_for(task, choice[2])
        placement = Placement(task.name, choice[2], arrival.width_milli, threads, cores, cost, terms, devices)
        running = started(state.snapshot, task, placement)
        state.placements[task.name] = placement
        state.taken_back.pop(task.name, None)
        state.change({v.task.name for v in choice[4]}, (running,))
        self._room.take(running)
        return lost

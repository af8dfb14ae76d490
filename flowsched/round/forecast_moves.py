"""Moves of running tasks where the forecasts say that it pays, one after the other.

A move of a task from machine m to machine n gains

    cost(m) + cost(n) - cost(m without it) - cost(n with it)

in the unit of all costs, with its program standing still for ``migration_pause_s`` first. It goes on with the work that it
has done, or without it (``migrated_work: lost``): then what it loses counts against the move. Each move is priced at the
state that those before it leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import MILLI, Running, Snapshot, Task, by_machine
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.pricing.trial_machines import Trial, TrialMachines
from flowsched.round.room import MachineRoom
from flowsched.round.running_changes import MoveStep, moving_price

_LOOKED_AT = 16
"""Tasks whose leaving brings most, for which targets are priced."""
_TARGETS = 12
"""Machines that are priced for each of them: the emptiest that differ."""
_TINY = 1e-9

_Change = tuple[Running, Running, MoveStep]
"""A task as it runs, as it would, and the step."""


def single(task: Task) -> bool:
    """Whether a task depends on no other: it is in no group, and no relation binds or counts it."""
    return not (task.group or task.holds or task.joins)


def moves_that_pay(
    snapshot: Snapshot,
    barred: Collection[str],
    fixed: Collection[str],
    settings: Settings,
    price: Callable[[Snapshot, Sequence[Trial], Sequence[Task]], TrialMachines],
) -> list[MoveStep]:
    """The moves of a round in which all that starts has its place, the best one first. ``barred``: machines that take no
    task; ``fixed``: tasks that stay.
    """
    steps: list[MoveStep] = []
    stay = set(fixed)
    while len(steps) < settings.migration_moves:
        found = _MoveSearch(snapshot, barred, stay, settings, price).best_move()
        if found is None:
            break
        running, to, step = found
        others = (r for r in snapshot.running if r is not running)
        snapshot = replace(snapshot, running=(*others, to))
        stay.add(step.task)
        steps.append(step)
    return steps


@dataclass
class _MoveSearch:
    """Machines and tasks between two steps."""

    snapshot: Snapshot
    barred: Collection[str]
    stay: Collection[str]
    settings: Settings
    price: Callable[[Snapshot, Sequence[Trial], Sequence[Task]], TrialMachines]

    def __post_init__(self) -> None:
        """Nothing is priced yet."""
        self._room = MachineRoom(self.snapshot)
        self._here = by_machine(self.snapshot.running)
        running = self.snapshot.running
        self._movable = [r for r in running if single(r.task) and not r.task.endless and r.task.name not in self.stay]
        self._cores = {m.name: self.snapshot.batch_cores(m) for m in self.snapshot.machines}

    def best_move(self) -> _Change | None:
        """The move that gains most above its price; None if none pays."""
        targets = {r.task.name: self._targets(r) for r in self._movable}
        movable = sorted((r for r in self._movable if targets[r.task.name]), key=lambda r: r.task.name)
        if not movable:
            return None
        without = [Trial(r.machine, tuple(o for o in self._here[r.machine] if o is not r)) for r in movable]
        priced = self.price(self.snapshot, without, ())
        relief = [priced.cost(r.machine) - priced.trial_cost(i) for i, r in enumerate(movable)]
        order = sorted(range(len(movable)), key=lambda i: (-relief[i], movable[i].task.name))[:_LOOKED_AT]
        pairs = [(i, n) for i in order for n in _different(priced, targets[movable[i].task.name])]
        moved = [self._moved(movable[i], n) for i, n in pairs]
        joined = self.price(self.snapshot, [Trial(r.machine, (*self._here[r.machine], r)) for r in moved], ())
        best: tuple[tuple[float, str, str], _Change] | None = None
        for trial, ((i, n), to) in enumerate(zip(pairs, moved, strict=True)):
            cost = joined.trial_cost(trial)
            if cost == FORBIDDEN or not joined.keeps_goals(trial, n):
                continue
            gain = relief[i] + joined.cost(n) - cost
            price = self._price(movable[i])
            key = price - gain, to.task.name, n
            if gain > price + _TINY and (best is None or key < best[0]):
                step = MoveStep(to.task.name, movable[i].machine, n, gain, price, to.devices)
                best = key, (movable[i], to, step)
        return None if best is None else best[1]

    def _moved(self, running: Running, machine: str) -> Running:
        """A task as it would go on on another machine."""
        return replace(
            running,
            machine=machine,
            cores=self._cores[machine],
            start_s=self.snapshot.now_s + self.settings.migration_pause_s,
            moved_s=self.snapshot.now_s,
            devices=self._room.devices_for(running.task, machine),
            progress=running.progress if self.settings.keeps_migrated_work else 0.0,
        )

    def _price(self, running: Running) -> float:
        moved_s = np.array(-np.inf if running.moved_s is None else running.moved_s)
        return float(moving_price(moved_s, self.snapshot.now_s, self.settings))

    def _targets(self, running: Running) -> list[str]:
        """Machines that have room for a running task, the emptiest first."""
        task = replace(running.task, widths_milli=(running.width_milli,))
        fits = self._room.fitting(task) & self._room.others((*self.barred, running.machine))
        cpu = {m.name: max(1, m.cpu_milli) for m in self.snapshot.machines}
        names = [self._room.names[m] for m in np.flatnonzero(fits)]
        free = self._room.free
        return sorted(names, key=lambda name: (-int(free[self._room.row(name)][0]) * MILLI // cpu[name], name))


def _different(priced: TrialMachines, names: Sequence[str]) -> list[str]:
    """The first of machines that are alike."""
    first: dict[int, str] = {}
    for name in names:
        first.setdefault(priced.group[name], name)
    return list(first.values())[:_TARGETS]

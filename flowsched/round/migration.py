"""Migration: running tasks go on on other machines where the forecasts say that it pays, one after the other.

Asked last in a round, when all that starts has its place. A move of a task from machine m to machine n gains

    cost(m) + cost(n) - cost(m without it) - cost(n with it)

in the unit of all costs, with its program standing still for ``migration_pause_s`` first. It goes on with the work that it
has done, or without it (``migrated_work: lost``): then what it loses counts against the move. A move is made if it gains
more than ``migration_price``, which counts twice for a task that moved a short while ago. Each move is priced at the state
that those before it leave; a round makes at most ``migration_moves``. Tasks without an end, members of task groups, and
tasks that relations bind or count stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.decision import Move
from flowsched.cluster.settings import HYSTERESIS, QUIET_S, Settings
from flowsched.cluster.snapshot import MILLI, Reservation, Running, by_machine
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.pricing.trial_machines import Trial, TrialMachines
from flowsched.round.preemption import RoundState, single
from flowsched.round.room import MachineRoom
from flowsched_models.runtime import HostFactory

_LOOKED_AT = 16
"""Tasks whose leaving brings most, for which targets are priced."""
_TARGETS = 12
"""Machines that are priced for each of them: the emptiest that differ."""
_TINY = 1e-9


@dataclass(frozen=True)
class _Found:
    """A move that pays."""

    running: Running
    moved: Running
    gain: float
    price: float


def migrate(
    state: RoundState,
    reservations: Sequence[Reservation],
    hosts: HostFactory,
    settings: Settings,
    goal_s: float | None,
) -> tuple[Move, ...]:
    """The moves of a round; ``state`` changes with them."""
    held = {r.machine for r in reservations if r.task not in state.placements}
    moves: list[Move] = []
    gone: set[str] = set()
    while len(moves) < settings.migration_moves:
        found = _best_move(state, held, gone, hosts, settings, goal_s)
        if found is None:
            break
        to = found.moved
        moves.append(
            Move(
                to.task.name,
                found.running.machine,
                to.machine,
                to.width_milli,
                to.threads,
                to.cores,
                settings.migration_pause_s,
                found.gain,
                found.price,
                settings.keeps_migrated_work,
                to.devices,
            )
        )
        gone.add(to.task.name)
        state.change({to.task.name}, (to,))
    return tuple(moves)


def _best_move(
    state: RoundState,
    held: Collection[str],
    gone: Collection[str],
    hosts: HostFactory,
    settings: Settings,
    goal_s: float | None,
) -> _Found | None:
    """The move that gains most above its price; ``gone``: tasks that moved in this round already."""
    snapshot = state.snapshot
    movable = [
        r
        for r in snapshot.running
        if single(r.task) and not r.task.endless and r.task.name not in state.placements and r.task.name not in gone
    ]
    room = MachineRoom(snapshot)
    targets = {r.task.name: _targets(state, room, r, held) for r in movable}
    movable = sorted((r for r in movable if targets[r.task.name]), key=lambda r: r.task.name)
    if not movable:
        return None
    here = by_machine(snapshot.running)
    without = [Trial(r.machine, tuple(o for o in here[r.machine] if o is not r)) for r in movable]
    priced = TrialMachines(snapshot, without, (), hosts, settings, goal_s)
    relief = [priced.cost(r.machine) - priced.trial_cost(i) for i, r in enumerate(movable)]
    order = sorted(range(len(movable)), key=lambda i: (-relief[i], movable[i].task.name))[:_LOOKED_AT]
    pairs = [(i, n) for i in order for n in _different(priced, targets[movable[i].task.name])]
    cores = {m.name: snapshot.batch_cores(m) for m in snapshot.machines}
    ready_s = snapshot.now_s + settings.migration_pause_s
    moved = [
        replace(
            movable[i],
            machine=n,
            cores=cores[n],
            start_s=ready_s,
            moved_s=snapshot.now_s,
            devices=room.devices_for(movable[i].task, n),
            progress=movable[i].progress if settings.keeps_migrated_work else 0.0,
        )
        for i, n in pairs
    ]
    trials = [Trial(r.machine, (*here[r.machine], r)) for r in moved]
    joined = TrialMachines(snapshot, trials, (), hosts, settings, goal_s)
    best: tuple[tuple[float, str, str], _Found] | None = None
    for trial, ((i, n), to) in enumerate(zip(pairs, moved, strict=True)):
        cost = joined.trial_cost(trial)
        if cost == FORBIDDEN or not joined.keeps_goals(trial, n):
            continue
        gain = relief[i] + joined.cost(n) - cost
        price = _price(movable[i], snapshot.now_s, settings)
        key = price - gain, to.task.name, n
        if gain > price + _TINY and (best is None or key < best[0]):
            best = key, _Found(movable[i], to, gain, price)
    return None if best is None else best[1]


def _price(running: Running, now_s: float, settings: Settings) -> float:
    recent = running.moved_s is not None and now_s - running.moved_s < QUIET_S
    return settings.migration_price * (HYSTERESIS if recent else 1.0)


def _targets(state: RoundState, room: MachineRoom, running: Running, held: Collection[str]) -> list[str]:
    """Machines that have room for a running task, the emptiest first."""
    task = replace(running.task, widths_milli=(running.width_milli,))
    fits = room.fitting(task)
    cpu = {m.name: max(1, m.cpu_milli) for m in state.snapshot.machines}
    names = [
        room.names[m] for m in np.flatnonzero(fits) if room.names[m] not in held and room.names[m] != running.machine
    ]
    return sorted(names, key=lambda name: (-int(room.free[room.row(name)][0]) * MILLI // cpu[name], name))


def _different(priced: TrialMachines, names: Sequence[str]) -> list[str]:
    """The first of machines that are alike."""
    first: dict[int, str] = {}
    for name in names:
        first.setdefault(priced.group[name], name)
    return list(first.values())[:_TARGETS]

"""Bounded waiting at linear prices: against an adversary that sees the state and feeds tasks to keep others out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from waiting_world import DUE_S, PERIOD_S, SETTINGS, ByWidth, World, of_width, spec

from flowsched.cluster.task_class import TaskClass
from flowsched.cluster.task_rows import RUNNING
from flowsched.round.linear.linear_round import RoundSettings

CORES = 4
RUN_S = 4.0
MACHINES = 3
NARROW = [of_width(1, float(run)) for run in range(1, int(RUN_S) + 1)]
WIDE = of_width(CORES, RUN_S)
SETTINGS = replace(SETTINGS, scoring="pack")
"""The feeders fill machine after machine."""
QUICK = replace(SETTINGS, resolves=0, settle_looks=0)
"""Without what polishes a round: it decides nothing about who waits."""
OFF = replace(QUICK, reservations=False)

Feed = Callable[[World], None]


def staggered_feeder(victim: TaskClass = WIDE) -> Feed:
    """Fills whatever is free with narrow tasks that never leave a machine at the same time, so that no wide one fits.

    It sees the state: on every machine it looks for the ends that are missing there, and feeds tasks that end then. The next
    victim comes once all machines are as it wants them.
    """

    def feed(world: World) -> None:
        cluster = world.cluster
        pending = [cluster.classes[c] for c in _pending(world)]
        there = np.flatnonzero(cluster.tasks.state == RUNNING)
        ends: dict[int, list[int]] = {row: [] for row in np.flatnonzero(cluster.machines.alive).tolist()}
        for m, left in zip(
            cluster.tasks.machine[there].tolist(), (cluster.tasks.end_s[there] - world.now_s).tolist(), strict=True
        ):
            ends[m].append(int(left))
        wanted = [0] * len(NARROW)
        for row, left in ends.items():
            missing = [run for run in range(len(NARROW), 0, -1) if run not in left]
            for run in missing[: int(cluster.machines.free[row, 0]) // 1000]:
                wanted[run - 1] += 1
        owed = sum(c.width_milli == 1000 for c in pending)
        if victim not in pending and all(len(set(left)) > 2 for left in ends.values()):
            world.submit(victim)
        for run in range(len(NARROW) - 1, -1, -1):
            many = max(0, wanted[run] - owed)
            owed = max(0, owed - wanted[run])
            world.submit(NARROW[run], many)

    return feed


def narrow_feeder(extra: int, victim: TaskClass = WIDE) -> Feed:
    """Offers narrow tasks for all that is free, and in every other phase more: many are worth more than one that is wide."""

    def feed(world: World) -> None:
        cluster = world.cluster
        pending = [cluster.classes[c] for c in _pending(world)]
        if victim not in pending:
            world.submit(victim)
        free = int(cluster.machines.free[cluster.machines.alive, 0].sum()) // 1000
        world.submit(NARROW[-1], max(0, free + above(world, extra) - sum(c == NARROW[-1] for c in pending)))

    return feed


def wide_feeder(extra: int, victim: TaskClass = NARROW[-1]) -> Feed:
    """Offers a wide task, which is worth more, for every machine that is free, so that a narrow one never gets in.

    In every other phase it offers more than that. The next victim comes once no machine has a part free.
    """

    def feed(world: World) -> None:
        cluster = world.cluster
        pending = [cluster.classes[c] for c in _pending(world)]
        if victim not in pending and not (cluster.machines.free[cluster.machines.alive, 0] % (1000 * CORES)).any():
            world.submit(victim)
        free = int((cluster.machines.free[cluster.machines.alive, 0] // 1000 // CORES).sum())
        world.submit(WIDE, max(0, free + above(world, extra) - sum(c == WIDE for c in pending)))

    return feed


def above(world: World, extra: int) -> int:
    return extra * (int(world.now_s) // PHASE % 2)


def _pending(world: World) -> list[int]:
    cluster = world.cluster
    return cluster.tasks.task_class[cluster.tasks._pending[: int(cluster.tasks._pending_count[0])]].tolist()


def full_of_narrow(world: World) -> None:
    """On every machine one task ends in each round to come."""
    for m in range(MACHINES):
        for run in range(1, CORES + 1):
            world.run(NARROW[0], f"m{m}", float(run))


def full_of_wide(world: World) -> None:
    for m in range(MACHINES):
        world.run(WIDE, f"m{m}", float(m + 1))


BY_CORE, BY_TASK = ByWidth(), ByWidth(by_core=False)
SCENES = {
    "narrow": (BY_TASK, full_of_narrow, narrow_feeder(5), WIDE),
    "staggered": (BY_CORE, full_of_narrow, staggered_feeder(), WIDE),
    "wide": (BY_CORE, full_of_wide, wide_feeder(2), NARROW[-1]),
}
ROUNDS = 500
"""Many times those after which all is as it was before, ages and ends too: 24, 31 and 76."""
PHASE = 125
"""Rounds at capacity, and then as many above it."""


def scene_of(name: str, settings: RoundSettings = SETTINGS) -> tuple[World, Feed, TaskClass]:
    policy, fill, feed, victim = SCENES[name]
    world = World([spec(f"m{m}", CORES) for m in range(MACHINES)], settings, policy)
    fill(world)
    return world, feed, victim


@pytest.mark.parametrize("scene", SCENES)
def test_no_task_waits_beyond_the_bound(scene):
    world, feed, victim = scene_of(scene, QUICK)
    for _ in range(ROUNDS):
        world.step(feed)
    waits, bounds = world.waits(), world.bounds()
    assert (waits <= bounds).all(), waits - bounds
    of_victim = world.of(lambda c: c == victim)
    assert np.isfinite(np.array(world.started)[of_victim]).sum() > ROUNDS // 50
    # They were kept out until they were due, so the bound was put to the test.
    assert (waits[of_victim] > DUE_S).sum() > ROUNDS // 50
    assert max(world.before) < 20


@pytest.mark.parametrize("scene", SCENES)
def test_without_reservations_the_same_feeder_keeps_the_victim_out(scene):
    world, feed, victim = scene_of(scene, OFF)
    for _ in range(600):
        world.step(feed)
    (number,) = world.of(lambda c: c == victim)[-1:]
    assert world.waits()[number] > 500 > 2 * world.bounds()[number]
    assert world.ended > 400


@pytest.mark.parametrize("scene", ["narrow", "wide"])
def test_a_lower_priority_waits_for_higher_ones_unless_age_crosses(scene):
    within, _, victim = scene_of(scene)
    across, _, _ = scene_of(scene, replace(SETTINGS, aging_crosses_priority=True))
    low = replace(victim, priority=-1)
    feed = narrow_feeder(2, low) if victim == WIDE else wide_feeder(2, low)
    for world in (within, across):
        for _ in range(400):
            world.step(feed)
    (number,) = within.of(lambda c: c == low)
    assert np.isinf(within.started[number])
    above = within.of(lambda c: c.priority == 0)
    assert (within.waits()[above] <= within.bounds()[above]).all()
    # Across priorities every earlier arrival counts, whatever its priority; here few ever wait at the same time.
    assert (across.waits() <= across.bounds(across=True)).all()
    served = across.of(lambda c: c == low)
    assert len(served) > 10
    assert np.median(across.waits()[served]) > DUE_S


def test_a_restart_resets_no_age():
    world, feed, victim = scene_of("narrow")
    for i in range(1, 700):
        world.step(feed)
        if i % 7 == 0:
            world.restart()
    assert (world.waits() <= world.bounds()).all()
    assert np.isfinite(np.array(world.started)[world.of(lambda c: c == victim)]).sum() > 20


def test_the_bound_holds_where_machines_come_and_go_below_it():
    """What ran on a machine that leaves waits again, as old as it was."""
    world, feed, _ = scene_of("narrow")
    gone = set()
    for i in range(1, 450):
        world.step(feed)
        if i % 40 == 0 and world.cluster.machines.row("guest") is not None:
            back = world.cluster.remove_machines(["guest"])
            gone |= {world.number_of(int(r)) for r in back}
        elif i % 40 == 20:
            world.cluster.add_machines([spec("guest", CORES)])
    # A task that is thrown out comes back before those that came after it: each time it may be one more to wait for.
    slack = CORES * (world.longest_run_s + PERIOD_S)
    waits = world.waits()
    kept = np.array([i for i in range(len(waits)) if i not in gone])
    assert (waits[kept] <= world.bounds()[kept] + slack).all()

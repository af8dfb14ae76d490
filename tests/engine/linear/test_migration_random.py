"""Whatever the cluster: moves overcommit nothing, each is worth its price, and the total falls by what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moving_world import FREE_MOVES, Mover, overcommitted, total_cost
from scale_world import Draw, World, draw_world, worlds

from flowsched.cluster.settings import HYSTERESIS
from flowsched.cluster.task_rows import RUNNING
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.moves import Moves, carry_out

WORLDS = st.one_of(worlds(use=0.4), worlds(use=0.9, priorities=2), worlds(use=1.0))
PRICES = st.sampled_from((0.0, 0.02, 0.1, 0.3))
OFTEN = settings(max_examples=60, deadline=None)


def crowd(world: World) -> ClusterRows:
    """The world with several tasks for each that its draw has running, so that there is something to move."""
    cluster = world.cluster()
    rng = np.random.default_rng(len(world.running))
    numbers = [cluster.intern(c) for c in world.classes]
    for row in np.flatnonzero(cluster.machines.alive).tolist():
        for _ in range(4):
            c = int(rng.choice(numbers))
            demand = cluster.classes.demands[c]
            base = cluster.classes.table().base[c, cluster.machines.kind[row]]
            room = (cluster.machines.limits[row] - cluster.machines.readings[row] >= cluster.classes.effects[c]) | (
                cluster.classes.effects[c] == 0
            )
            if (
                np.isfinite(base)
                and (cluster.machines.free[row][demand > 0] >= demand[demand > 0]).all()
                and room.all()
            ):
                cluster.bind(cluster.submit(np.array([c]), np.zeros(1)), np.array([row]))
    return cluster


def mover(cluster: ClusterRows, price: float) -> Mover:
    return Mover(cluster, replace(FREE_MOVES, migration_price=price))


def net_by_plan(moves: Moves) -> np.ndarray:
    _, plan = np.unique(moves.plan, return_inverse=True)
    return np.bincount(plan, weights=moves.gain - moves.least_gain)


def rounding(cost: float) -> float:
    """Effects are kept to 2^-24, here they are not."""
    return 1e-6 * max(1.0, cost)


def where(wrong: list[str]) -> set[str]:
    """The machines of which something is said."""
    return {text.partition(":")[0] for text in wrong}


def waiting_of(cluster: ClusterRows, tasks: np.ndarray, now_s: float) -> float:
    """What leaving tasks costs, from the policy's own numbers."""
    total = 0.0
    for task in tasks.tolist():
        prices = cluster.classes.prices[cluster.tasks.task_class[task]]
        age = min(1.0, max(0.0, (now_s - cluster.tasks.created_s[task]) / 600.0))
        total += prices.waiting + prices.growth * age
    return total


def check(moves: Moves, cluster: ClusterRows, now_s: float, barred: np.ndarray) -> None:
    """Carry steps out and see whether what they say is true."""
    assert len(set(moves.tasks.tolist())) == len(moves)
    assert not barred[moves.target].any()
    assert (net_by_plan(moves) > 0.0).all()
    plans, size = np.unique(moves.plan, return_counts=True)
    alone = np.isin(moves.plan, plans[size == 1])
    assert (moves.gain > moves.least_gain)[alone].all()
    starts = moves.tasks[moves.starts]
    before = total_cost(cluster) + waiting_of(cluster, starts, now_s)
    carry_out(moves, cluster)
    after = total_cost(cluster)
    assert before - after == pytest.approx(moves.gain.sum(), abs=rounding(before))
    assert not overcommitted(cluster, moves.target.tolist())
    for task, row in zip(moves.tasks.tolist(), moves.target.tolist(), strict=True):
        task_class = cluster.classes[cluster.tasks.task_class[task]]
        assert cluster.machines.kinds[cluster.machines.kind[row]].has(task_class.selector)


@OFTEN
@given(WORLDS, PRICES)
def test_moves_do_what_they_say(world: World, price: float):
    cluster = crowd(world)
    barred = world.barred_rows(cluster)
    moves = mover(cluster, price).propose(world.now_s, barred)
    check(moves, cluster, world.now_s, barred)


@OFTEN
@given(WORLDS, PRICES)
def test_rounds_end_and_what_is_paid_is_less_than_what_is_won(world: World, price: float):
    cluster = crowd(world)
    cluster.leave(cluster.tasks.waiting())
    rounds = mover(cluster, price)
    start, paid, moved = total_cost(cluster), 0.0, 0
    for _ in range(40):
        moves = rounds.turn(world.now_s)
        if not len(moves):
            break
        paid += float(moves.least_gain.sum())
        moved += len(moves)
    assert not len(moves)
    assert not moved or total_cost(cluster) + paid < start


@OFTEN
@given(WORLDS)
def test_at_an_infinite_price_no_task_moves(world: World):
    assert not len(mover(crowd(world), np.inf).propose(world.now_s))


@settings(max_examples=20, deadline=None)
@given(WORLDS, PRICES)
def test_the_same_state_gives_the_same_bytes(world: World, price: float):
    first = mover(crowd(world), price).propose(world.now_s)
    cluster = crowd(world)
    rounds = mover(cluster, price)
    rounds.propose(world.now_s)
    second = rounds.propose(world.now_s)
    assert all(v.tobytes() == vars(second)[k].tobytes() for k, v in vars(first).items())


@OFTEN
@given(WORLDS)
def test_tasks_that_moved_cost_more_to_move_again(world: World):
    cluster = crowd(world)
    rounds = mover(cluster, 0.05)
    first = rounds.turn(world.now_s)
    rng = np.random.default_rng(0)
    for row in np.flatnonzero(cluster.machines.alive).tolist():
        cluster.read(cluster.machines.name(row), "headroom", float(rng.uniform(0.0, 3.0)))
    second = rounds.propose(world.now_s + 50.0)
    again = np.isin(second.tasks, first.tasks[~first.starts])
    runs = ~second.starts
    assert second.least_gain[runs & again] == pytest.approx(0.05 * HYSTERESIS)
    assert second.least_gain[runs & ~again] == pytest.approx(0.05)


def test_running_tasks_are_those_that_move():
    """A world in which something moves, so that the properties above are about something."""
    moved = started = 0
    for seed in range(10):
        world = draw_world(seed, replace(Draw(), machines=6, use=0.9))
        cluster = crowd(world)
        moves = mover(cluster, 0.0).propose(world.now_s)
        moved += int((~moves.starts).sum())
        started += int(moves.starts.sum())
        assert (cluster.tasks.state[moves.tasks[~moves.starts]] == RUNNING).all()
    assert moved > 20
    assert started > 5

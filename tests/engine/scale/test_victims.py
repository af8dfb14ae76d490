"""Tasks of lower priority make room, as few as needed, and only where a task of higher priority gets in."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moving_world import a_class, cluster, overcommitted, run, spec, wait
from scale_world import Draw, World, draw_world, worlds
from test_migration_random import crowd

from flowsched.cluster.settings import Settings
from flowsched.scale.ledger import PENDING, RUNNING, UNLIMITED, Ledger
from flowsched.scale.machine_arrays import FIXED
from flowsched.scale.preemption import PreemptionPlanner, Preemptions, carry_out
from flowsched.scale.round import Rounds, RoundSettings
from flowsched.solvers import make_solver

ON = Settings(preemption="lower-priority")
LOW = a_class("low", 1, 0.0, 0.0)
HIGH = a_class("high", 2, 0.0, 0.0, priority=5)
OFTEN = settings(max_examples=60, deadline=None)


def planner(ledger: Ledger, how: Settings = ON, times: dict[int, int] | None = None, **rest: int) -> PreemptionPlanner:
    known = np.zeros(len(ledger.state), dtype=np.int64)
    known[list(times or ())] = list((times or {}).values())
    return PreemptionPlanner(ledger, make_solver("ortools"), how, known, **rest)


def preempt(
    ledger: Ledger, how: Settings = ON, now_s: float = 0.0, times: dict[int, int] | None = None, **rest: int
) -> Preemptions:
    """Plan for all that wait, and carry it out; ``times``: how often each was preempted, which changes."""
    plan = planner(ledger, how, times, **rest).plan(ledger.view().pending, now_s)
    if times is not None:
        times.update({task: times.get(task, 0) + 1 for task in plan.victims.tolist()})
    carry_out(plan, ledger)
    return plan


def test_lower_priorities_make_room():
    ledger = cluster([spec("a", 2)])
    low = run(ledger, LOW, "a", 2)
    high = wait(ledger, HIGH)
    plan = preempt(ledger)
    assert sorted(plan.victims.tolist()) == low.tolist()
    assert plan.tasks.tolist() == high.tolist()
    assert plan.room_for.tolist() == [0, 0]
    assert ledger.state[high[0]] == RUNNING
    assert (ledger.state[low] == PENDING).all()
    assert not overcommitted(ledger)


@pytest.mark.parametrize("priority", [5, 6])
def test_equal_and_higher_priorities_stay(priority: int):
    ledger = cluster([spec("a", 2)])
    run(ledger, replace(LOW, priority=priority), "a", 2)
    wait(ledger, HIGH)
    assert not len(preempt(ledger).victims)


def test_victims_are_as_old_as_they_were():
    ledger = cluster([spec("a", 2)])
    low = run(ledger, LOW, "a", 2)
    created, sequence = ledger.created_s[low].copy(), ledger.sequence[low].copy()
    wait(ledger, HIGH, created_s=50.0)
    preempt(ledger, now_s=50.0)
    assert ledger.created_s[low].tolist() == created.tolist()
    assert ledger.sequence[low].tolist() == sequence.tolist()


def test_no_task_is_evicted_where_that_lets_none_in():
    ledger = cluster([spec("a", 2), spec("b", 2)])
    run(ledger, LOW, "a", 2)
    run(ledger, LOW, "b", 2)
    wait(ledger, replace(HIGH, width_milli=3000))
    assert not len(preempt(ledger).victims)


def test_the_one_task_that_is_enough_goes_not_two():
    ledger = cluster([spec("a", 4), spec("b", 4)])
    run(ledger, LOW, "a", 4)
    run(ledger, replace(LOW, name="low2", width_milli=2000), "b", 2)
    wait(ledger, HIGH)
    plan = preempt(ledger)
    assert len(plan) == 1
    assert ledger.machine[plan.tasks[0]] == ledger.row("b")


def test_who_has_done_less_and_who_came_later_goes():
    ledger = cluster([spec("a", 2), spec("b", 2)])
    wide = replace(LOW, width_milli=2000)
    run(ledger, wide, "a", end_s=120.0)
    late = run(ledger, wide, "b", end_s=190.0)
    wait(ledger, HIGH)
    assert preempt(ledger, now_s=100.0).victims.tolist() == late.tolist()

    ledger = cluster([spec("a", 2), spec("b", 2)])
    ledger.bind(wait(ledger, wide, created_s=0.0), np.array([ledger.row("a")]), np.array([1000.0]))
    young = wait(ledger, wide, created_s=500.0)
    ledger.bind(young, np.array([ledger.row("b")]), np.array([1000.0]))
    wait(ledger, HIGH, created_s=600.0)
    assert preempt(ledger, now_s=600.0).victims.tolist() == young.tolist()


def test_what_may_not_be_moved_and_members_of_task_groups_are_no_victims():
    for kept in (replace(LOW, movable=False), replace(LOW, group="gang")):
        ledger = cluster([spec("a", 2)])
        run(ledger, kept, "a", 2)
        wait(ledger, HIGH)
        assert not len(preempt(ledger).victims)


def test_a_task_is_not_preempted_again_and_again():
    """Each time it costs more, so another one goes; after some times it runs to its end."""
    ledger = cluster([spec("a", 2)])
    low = run(ledger, replace(LOW, width_milli=2000), "a")
    times: dict[int, int] = {}
    for _ in range(10):
        high = wait(ledger, HIGH)
        preempt(ledger, replace(ON, preemption_limit=3), times=times)
        if ledger.state[high[0]] != RUNNING:
            break
        ledger.leave(high)
        ledger.bind(low, np.array([ledger.row("a")]))
    assert times == {int(low[0]): 3}


def test_victims_take_turns():
    wide = replace(LOW, width_milli=2000)
    ledger = cluster([spec("a", 2), spec("b", 2)])
    tasks = np.concatenate([run(ledger, wide, "a"), run(ledger, wide, "b")])
    times: dict[int, int] = {}
    for _ in range(4):
        high = wait(ledger, HIGH)
        victims = preempt(ledger, times=times).victims
        row = ledger.machine[high]
        ledger.leave(high)
        ledger.bind(victims, row)
    assert times == dict.fromkeys(tasks.tolist(), 2)


def test_tasks_without_an_end_only_become_dearer():
    ledger = cluster([spec("a", 2)])
    service = run(ledger, replace(LOW, width_milli=2000, run_s=np.inf), "a")
    times: dict[int, int] = {}
    prices = []
    for _ in range(3):
        high = wait(ledger, HIGH)
        prices += preempt(ledger, replace(ON, preemption_limit=1), times=times).price.tolist()
        ledger.leave(high)
        ledger.bind(service, np.array([ledger.row("a")]))
    assert np.diff(prices).tolist() == [1.0, 2.0]


def test_no_more_victims_than_allowed():
    ledger = cluster([spec(f"m{i}", 2) for i in range(6)])
    for i in range(6):
        run(ledger, LOW, f"m{i}", 2)
    wait(ledger, HIGH, 6)
    plan = preempt(ledger, most_victims=5)
    assert len(plan) == 4
    assert len(plan.tasks) == 2
    assert not overcommitted(ledger)


def test_higher_priorities_first_and_each_only_over_lower_ones():
    ledger = cluster([spec("a", 2)])
    run(ledger, LOW, "a", 2)
    middle = wait(ledger, replace(HIGH, priority=3))
    top = wait(ledger, replace(HIGH, priority=9))
    plan = preempt(ledger)
    assert plan.tasks.tolist() == top.tolist()
    assert ledger.state[middle[0]] == PENDING
    assert not len(preempt(ledger).victims)


def test_a_place_that_is_dearer_than_waiting_is_not_made_free():
    ledger = cluster([spec("a", 2, headroom=10.0)], waiting=4.0, growth=0.0)
    run(ledger, LOW, "a", 2)
    wait(ledger, replace(HIGH, pressure=1.0))
    assert not len(preempt(ledger).victims)


def test_barred_machines_are_left_alone():
    ledger = cluster([spec("a", 2), spec("b", 2)])
    run(ledger, LOW, "a", 2)
    run(ledger, LOW, "b", 2)
    wait(ledger, HIGH, 2)
    barred = np.zeros(ledger.rows, dtype=np.bool_)
    barred[ledger.row("a")] = True
    plan = planner(ledger).plan(ledger.view().pending, 0.0, barred)
    assert plan.machines.tolist() == [ledger.row("b")]


# Whatever the cluster

WORLDS = st.one_of(worlds(use=0.9, priorities=3), worlds(use=1.0, priorities=2, growth=4.0))


def after_a_round(world: World) -> Ledger:
    """A crowded world after the round that found no room for the rest."""
    ledger = crowd(world)
    rounds = Rounds(ledger, make_solver("ortools"), RoundSettings(reservations=False))
    outcome = rounds.decide(world.now_s)
    ledger.bind(outcome.tasks, outcome.machines)
    return ledger


def lets_in(ledger: Ledger, row: int, newcomer: int, gone: tuple[int, ...]) -> bool:
    """Whether a machine has room for one task of a class once some of its tasks are gone."""
    free, readings = ledger.free[row].copy(), ledger.readings[row].copy()
    for task in gone:
        free += ledger.demands[ledger.task_class[task]]
        readings -= ledger.effects[ledger.task_class[task]]
    demand, effect = ledger.demands[newcomer], ledger.effects[newcomer]
    fits = (free >= demand) | (demand == 0)
    below = (readings + effect <= ledger.limits[row]) | (effect == 0) | (ledger.limits[row] >= UNLIMITED)
    return bool(fits.all() and below.all())


@OFTEN
@given(WORLDS)
def test_victims_are_lower_and_needed_and_the_newcomers_get_in(world: World):
    ledger = after_a_round(world)
    waits = ledger.view().pending
    by = planner(ledger)
    plan = by.plan(waits, world.now_s)
    priority = ledger.table().priority[ledger.task_class]
    assert set(plan.tasks.tolist()) <= set(waits.tolist())
    assert len(set(plan.tasks.tolist())) == len(plan.tasks)
    assert len(set(plan.victims.tolist())) == len(plan)
    assert (ledger.state[plan.victims] == RUNNING).all()
    assert (priority[plan.victims] < priority[plan.tasks[plan.room_for]]).all()
    assert (ledger.machine[plan.victims] == plan.machines[plan.room_for]).all()
    costs = ledger.table()
    for i, task in enumerate(plan.tasks.tolist()):
        victims = tuple(plan.victims[plan.room_for == i].tolist())
        row, newcomer = int(plan.machines[i]), int(ledger.task_class[task])
        assert np.isfinite(costs.base[newcomer, ledger.kind[row]])
        assert ledger.free[row, 0] < 1 << 40
        assert lets_in(ledger, row, newcomer, victims)
        for fewer in itertools.combinations(victims, max(0, len(victims) - 1)):
            assert not victims or not lets_in(ledger, row, newcomer, fewer), "one of them could have stayed"
        ledger.unbind(np.array(victims, dtype=np.int64))
        ledger.bind(np.array([task]), np.array([row]))
        assert not overcommitted(ledger, [row])


def test_there_are_victims_in_such_worlds():
    """So that the properties here are about something."""
    sizes: list[int] = []
    for seed in range(10):
        world = draw_world(seed, Draw(machines=4, use=0.9, priorities=3, tasks=12))
        ledger = after_a_round(world)
        plan = planner(ledger).plan(ledger.view().pending, world.now_s)
        sizes += np.bincount(plan.room_for, minlength=len(plan.tasks)).tolist()
    assert sizes.count(1) > 3
    assert sum(n > 1 for n in sizes) > 1


@OFTEN
@given(WORLDS)
def test_the_cheapest_set_goes(world: World):
    """On the machine that was chosen, no other set of tasks of these priorities or lower ones is cheaper: all subsets tried,
    for the first newcomer.
    """
    ledger = after_a_round(world)
    by = planner(ledger)
    plan = by.plan(ledger.view().pending, world.now_s)
    if not len(plan.tasks):
        return
    row, newcomer = int(plan.machines[0]), int(ledger.task_class[plan.tasks[0]])
    priority = ledger.table().priority[ledger.task_class]
    highest = priority[plan.victims[plan.room_for == 0]].max(initial=-1)
    there = ledger.running_on(row)
    lower = there[priority[there] <= highest]
    price = dict(zip(lower.tolist(), by.prices(lower, ledger, world.now_s).tolist(), strict=True))
    if len(lower) > 12:
        return
    least = min(
        sum(price[t] for t in some)
        for n in range(len(lower) + 1)
        for some in itertools.combinations(lower.tolist(), n)
        if lets_in(ledger, row, newcomer, some)
    )
    assert plan.price[plan.room_for == 0].sum() == pytest.approx(least)


@OFTEN
@given(WORLDS)
def test_no_task_waits_that_could_have_got_in(world: World):
    """After preemption no task of higher priority waits for a place at no cost that lower ones alone take."""
    ledger = after_a_round(world)
    by = planner(ledger)
    carry_out(by.plan(ledger.view().pending, world.now_s), ledger)
    table = ledger.table()
    for task in np.flatnonzero(ledger.state == PENDING).tolist():
        c = int(ledger.task_class[task])
        for row in np.flatnonzero(ledger.alive).tolist():
            there = ledger.running_on(row)
            lower = there[table.priority[ledger.task_class[there]] < table.priority[c]]
            kind = ledger.kind[row]
            price = table.base[c, kind] + float(
                table.coefficients[c] @ (ledger.factors[kind] * ledger.readings[row] / FIXED)
            )
            if price < 1.0 and len(lower):
                assert not lets_in(ledger, row, c, tuple(lower.tolist()))


@settings(max_examples=20, deadline=None)
@given(WORLDS)
def test_the_same_state_gives_the_same_plan(world: World):
    ledger = after_a_round(world)
    before = {k: v.tobytes() for k, v in vars(ledger).items() if isinstance(v, np.ndarray)}
    waits = np.flatnonzero(ledger.state == PENDING)
    first, second = (planner(ledger).plan(waits, world.now_s) for _ in range(2))
    assert all(v.tobytes() == vars(second)[k].tobytes() for k, v in vars(first).items())
    assert {k: v.tobytes() for k, v in vars(ledger).items() if isinstance(v, np.ndarray)} == before

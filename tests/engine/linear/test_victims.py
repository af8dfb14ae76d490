"""Tasks of lower priority make room, as few as needed, and only where a task of higher priority gets in."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moving_world import a_class, cluster_of, overcommitted, run, spec, wait
from scale_world import Draw, World, draw_world, worlds
from test_migration_random import crowd

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.cluster.settings import Settings
from flowsched.cluster.task_rows import PENDING, RUNNING
from flowsched.round import running_changes
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_changes import LinearChanges
from flowsched.round.linear.linear_round import Rounds, RoundSettings
from flowsched.round.running_changes import Entry, change_running
from flowsched.solvers import make_solver

ON = Settings(preemption="lower-priority")
LOW = a_class("low", 1, 0.0, 0.0)
HIGH = a_class("high", 2, 0.0, 0.0, priority=5)
NONE = np.zeros(0, dtype=np.int64)
OFTEN = settings(max_examples=60, deadline=None)


@dataclass
class Preemptions:
    """Rows of those that go and of those that come, in turn."""

    victims: np.ndarray
    price: np.ndarray
    room_for: np.ndarray
    """Position in ``tasks`` of the one that each goes for."""
    tasks: np.ndarray
    machines: np.ndarray

    def __len__(self) -> int:
        return len(self.victims)


class Watched(LinearChanges):
    """Keeps what it lets in."""

    def let_in(self, tasks: Sequence[str], highest: int, barred: Collection[str], most: int) -> Sequence[Entry]:
        found = super().let_in(tasks, highest, barred, most)
        self.entries = [*self.entries, *found]
        return found

    entries: Sequence[Entry] = ()

    def found(self) -> Preemptions:
        leaving = [(gone, k) for k, entry in enumerate(self.entries) for gone in entry.leaving]
        tasks = self.rows([entry.task for entry in self.entries])
        return Preemptions(
            self.rows([gone.task for gone, _ in leaving]),
            np.array([gone.cost for gone, _ in leaving]),
            np.array([k for _, k in leaving], dtype=np.int64),
            tasks,
            self.cluster.tasks.machine[tasks],
        )


def pricer(
    cluster: ClusterRows, how: Settings = ON, now_s: float = 0.0, times: dict[int, int] | None = None
) -> Watched:
    history = {cluster.tasks.name(row): (count, None, False) for row, count in (times or {}).items()}
    return Watched(cluster, NONE, NONE, cluster.tasks.waiting(), make_solver("ortools"), how, now_s, history)


def planned(cluster: ClusterRows, *rest: Any) -> Preemptions:
    """For all that wait."""
    by = pricer(cluster, *rest)
    change_running(by, (), by.settings)
    return by.found()


def preempt(
    cluster: ClusterRows, how: Settings = ON, now_s: float = 0.0, times: dict[int, int] | None = None
) -> Preemptions:
    """The same, carried out; ``times``: how often each was preempted, which changes."""
    plan = planned(cluster, how, now_s, times)
    if times is not None:
        times.update({task: times.get(task, 0) + 1 for task in plan.victims.tolist()})
    cluster.unbind(plan.victims)
    cluster.bind(plan.tasks, plan.machines)
    return plan


def test_lower_priorities_make_room():
    cluster = cluster_of([spec("a", 2)])
    low = run(cluster, LOW, "a", 2)
    high = wait(cluster, HIGH)
    plan = preempt(cluster)
    assert sorted(plan.victims.tolist()) == low.tolist()
    assert plan.tasks.tolist() == high.tolist()
    assert plan.room_for.tolist() == [0, 0]
    assert cluster.tasks.state[high[0]] == RUNNING
    assert (cluster.tasks.state[low] == PENDING).all()
    assert not overcommitted(cluster)


@pytest.mark.parametrize("priority", [5, 6])
def test_equal_and_higher_priorities_stay(priority: int):
    cluster = cluster_of([spec("a", 2)])
    run(cluster, replace(LOW, priority=priority), "a", 2)
    wait(cluster, HIGH)
    assert not len(preempt(cluster).victims)


def test_victims_are_as_old_as_they_were():
    cluster = cluster_of([spec("a", 2)])
    low = run(cluster, LOW, "a", 2)
    created, sequence = cluster.tasks.created_s[low].copy(), cluster.tasks.sequence[low].copy()
    wait(cluster, HIGH, created_s=50.0)
    preempt(cluster, now_s=50.0)
    assert cluster.tasks.created_s[low].tolist() == created.tolist()
    assert cluster.tasks.sequence[low].tolist() == sequence.tolist()


def test_no_task_is_evicted_where_that_lets_none_in():
    cluster = cluster_of([spec("a", 2), spec("b", 2)])
    run(cluster, LOW, "a", 2)
    run(cluster, LOW, "b", 2)
    wait(cluster, replace(HIGH, width_milli=3000))
    assert not len(preempt(cluster).victims)


def test_the_one_task_that_is_enough_goes_not_two():
    cluster = cluster_of([spec("a", 4), spec("b", 4)])
    run(cluster, LOW, "a", 4)
    run(cluster, replace(LOW, name="low2", width_milli=2000), "b", 2)
    wait(cluster, HIGH)
    plan = preempt(cluster)
    assert len(plan) == 1
    assert cluster.tasks.machine[plan.tasks[0]] == cluster.row("b")


def test_who_has_done_less_and_who_came_later_goes():
    cluster = cluster_of([spec("a", 2), spec("b", 2)])
    wide = replace(LOW, width_milli=2000)
    run(cluster, wide, "a", end_s=120.0)
    late = run(cluster, wide, "b", end_s=190.0)
    wait(cluster, HIGH)
    assert preempt(cluster, now_s=100.0).victims.tolist() == late.tolist()

    cluster = cluster_of([spec("a", 2), spec("b", 2)])
    cluster.bind(wait(cluster, wide, created_s=0.0), np.array([cluster.row("a")]), np.array([1000.0]))
    young = wait(cluster, wide, created_s=500.0)
    cluster.bind(young, np.array([cluster.row("b")]), np.array([1000.0]))
    wait(cluster, HIGH, created_s=600.0)
    assert preempt(cluster, now_s=600.0).victims.tolist() == young.tolist()


def test_what_may_not_be_moved_and_members_of_task_groups_are_no_victims():
    for kept in (replace(LOW, movable=False), replace(LOW, group="gang")):
        cluster = cluster_of([spec("a", 2)])
        run(cluster, kept, "a", 2)
        wait(cluster, HIGH)
        assert not len(preempt(cluster).victims)


def test_a_task_is_not_preempted_again_and_again():
    """Each time it costs more, so another one goes; after some times it runs to its end."""
    cluster = cluster_of([spec("a", 2)])
    low = run(cluster, replace(LOW, width_milli=2000), "a")
    times: dict[int, int] = {}
    for _ in range(10):
        high = wait(cluster, HIGH)
        preempt(cluster, replace(ON, preemption_limit=3), times=times)
        if cluster.tasks.state[high[0]] != RUNNING:
            break
        cluster.leave(high)
        cluster.bind(low, np.array([cluster.row("a")]))
    assert times == {int(low[0]): 3}


def test_victims_take_turns():
    wide = replace(LOW, width_milli=2000)
    cluster = cluster_of([spec("a", 2), spec("b", 2)])
    tasks = np.concatenate([run(cluster, wide, "a"), run(cluster, wide, "b")])
    times: dict[int, int] = {}
    for _ in range(4):
        high = wait(cluster, HIGH)
        victims = preempt(cluster, times=times).victims
        row = cluster.tasks.machine[high]
        cluster.leave(high)
        cluster.bind(victims, row)
    assert times == dict.fromkeys(tasks.tolist(), 2)


def test_tasks_without_an_end_only_become_dearer():
    cluster = cluster_of([spec("a", 2)])
    service = run(cluster, replace(LOW, width_milli=2000, run_s=np.inf), "a")
    times: dict[int, int] = {}
    prices = []
    for _ in range(3):
        high = wait(cluster, HIGH)
        prices += preempt(cluster, replace(ON, preemption_limit=1), times=times).price.tolist()
        cluster.leave(high)
        cluster.bind(service, np.array([cluster.row("a")]))
    assert np.diff(prices).tolist() == [1.0, 2.0]


def test_no_more_victims_than_allowed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(running_changes, "MOST_VICTIMS", 5)
    cluster = cluster_of([spec(f"m{i}", 2) for i in range(6)])
    for i in range(6):
        run(cluster, LOW, f"m{i}", 2)
    wait(cluster, HIGH, 6)
    plan = preempt(cluster)
    assert len(plan) == 4
    assert len(plan.tasks) == 2
    assert not overcommitted(cluster)


def test_higher_priorities_first_and_each_only_over_lower_ones():
    cluster = cluster_of([spec("a", 2)])
    run(cluster, LOW, "a", 2)
    middle = wait(cluster, replace(HIGH, priority=3))
    top = wait(cluster, replace(HIGH, priority=9))
    plan = preempt(cluster)
    assert plan.tasks.tolist() == top.tolist()
    assert cluster.tasks.state[middle[0]] == PENDING
    assert not len(preempt(cluster).victims)


def test_a_place_that_is_dearer_than_waiting_is_not_made_free():
    cluster = cluster_of([spec("a", 2, headroom=10.0)], waiting=4.0, growth=0.0)
    run(cluster, LOW, "a", 2)
    wait(cluster, replace(HIGH, pressure=1.0))
    assert not len(preempt(cluster).victims)


def test_barred_machines_are_left_alone():
    cluster = cluster_of([spec("a", 2), spec("b", 2)])
    run(cluster, LOW, "a", 2)
    run(cluster, LOW, "b", 2)
    wait(cluster, HIGH, 2)
    by = pricer(cluster)
    by.let_in(list(by.waiting), LOW.priority, {"a"}, 100)
    assert by.found().machines.tolist() == [cluster.row("b")]


# Whatever the cluster

WORLDS = st.one_of(worlds(use=0.9, priorities=3), worlds(use=1.0, priorities=2, growth=4.0))


def after_a_round(world: World) -> ClusterRows:
    """A crowded world after the round that found no room for the rest."""
    cluster = crowd(world)
    rounds = Rounds(cluster, make_solver("ortools"), RoundSettings(reservations=False))
    outcome = rounds.decide(world.now_s)
    cluster.bind(outcome.tasks, outcome.machines)
    return cluster


def lets_in(cluster: ClusterRows, row: int, newcomer: int, gone: tuple[int, ...]) -> bool:
    """Whether a machine has room for one task of a class once some of its tasks are gone."""
    free, readings = cluster.machines.free[row].copy(), cluster.machines.readings[row].copy()
    for task in gone:
        free += cluster.classes.demands[cluster.tasks.task_class[task]]
        readings -= cluster.classes.effects[cluster.tasks.task_class[task]]
    demand, effect = cluster.classes.demands[newcomer], cluster.classes.effects[newcomer]
    fits = (free >= demand) | (demand == 0)
    below = (
        (readings + effect <= cluster.machines.limits[row])
        | (effect == 0)
        | (cluster.machines.limits[row] >= UNLIMITED)
    )
    return bool(fits.all() and below.all())


@OFTEN
@given(WORLDS)
def test_victims_are_lower_and_needed_and_the_newcomers_get_in(world: World):
    cluster = after_a_round(world)
    waits = cluster.tasks.waiting()
    plan = planned(cluster, ON, world.now_s)
    priority = cluster.classes.table().priority[cluster.tasks.task_class]
    assert set(plan.tasks.tolist()) <= set(waits.tolist())
    assert len(set(plan.tasks.tolist())) == len(plan.tasks)
    assert len(set(plan.victims.tolist())) == len(plan)
    assert (cluster.tasks.state[plan.victims] == RUNNING).all()
    assert (priority[plan.victims] < priority[plan.tasks[plan.room_for]]).all()
    assert (cluster.tasks.machine[plan.victims] == plan.machines[plan.room_for]).all()
    costs = cluster.classes.table()
    for i, task in enumerate(plan.tasks.tolist()):
        victims = tuple(plan.victims[plan.room_for == i].tolist())
        row, newcomer = int(plan.machines[i]), int(cluster.tasks.task_class[task])
        assert np.isfinite(costs.base[newcomer, cluster.machines.kind[row]])
        assert cluster.machines.free[row, 0] < 1 << 40
        assert lets_in(cluster, row, newcomer, victims)
        for fewer in itertools.combinations(victims, max(0, len(victims) - 1)):
            assert not victims or not lets_in(cluster, row, newcomer, fewer), "one of them could have stayed"
        cluster.unbind(np.array(victims, dtype=np.int64))
        cluster.bind(np.array([task]), np.array([row]))
        assert not overcommitted(cluster, [row])


def test_there_are_victims_in_such_worlds():
    """So that the properties here are about something."""
    sizes: list[int] = []
    for seed in range(10):
        world = draw_world(seed, Draw(machines=4, use=0.9, priorities=3, tasks=12))
        cluster = after_a_round(world)
        plan = planned(cluster, ON, world.now_s)
        sizes += np.bincount(plan.room_for, minlength=len(plan.tasks)).tolist()
    assert sizes.count(1) > 3
    assert sum(n > 1 for n in sizes) > 1


@OFTEN
@given(WORLDS)
def test_the_cheapest_set_goes(world: World):
    """On the machine that was chosen, no other set of tasks of these priorities or lower ones is cheaper: all subsets tried,
    for the first newcomer.
    """
    cluster = after_a_round(world)
    plan = planned(cluster, ON, world.now_s)
    if not len(plan.tasks):
        return
    row, newcomer = int(plan.machines[0]), int(cluster.tasks.task_class[plan.tasks[0]])
    priority = cluster.classes.table().priority[cluster.tasks.task_class]
    highest = priority[plan.victims[plan.room_for == 0]].max(initial=-1)
    there = cluster.tasks.running_on(row)
    lower = there[priority[there] <= highest]
    prices = pricer(cluster, ON, world.now_s).leaving_prices(lower)
    price = dict(zip(lower.tolist(), prices.tolist(), strict=True))
    if len(lower) > 12:
        return
    least = min(
        sum(price[t] for t in some)
        for n in range(len(lower) + 1)
        for some in itertools.combinations(lower.tolist(), n)
        if lets_in(cluster, row, newcomer, some)
    )
    assert plan.price[plan.room_for == 0].sum() == pytest.approx(least)


@OFTEN
@given(WORLDS)
def test_no_task_waits_that_could_have_got_in(world: World):
    """After preemption no task of higher priority waits for a place at no cost that lower ones alone take."""
    cluster = after_a_round(world)
    preempt(cluster, ON, world.now_s)
    table = cluster.classes.table()
    for task in np.flatnonzero(cluster.tasks.state == PENDING).tolist():
        c = int(cluster.tasks.task_class[task])
        for row in np.flatnonzero(cluster.machines.alive).tolist():
            there = cluster.tasks.running_on(row)
            lower = there[table.priority[cluster.tasks.task_class[there]] < table.priority[c]]
            kind = cluster.machines.kind[row]
            price = table.base[c, kind] + float(
                table.coefficients[c] @ (cluster.classes.factors[kind] * cluster.machines.readings[row] / FIXED)
            )
            if price < 1.0 and len(lower):
                assert not lets_in(cluster, row, c, tuple(lower.tolist()))


@settings(max_examples=20, deadline=None)
@given(WORLDS)
def test_the_same_state_gives_the_same_plan(world: World):
    cluster = after_a_round(world)
    before = {k: v.tobytes() for k, v in vars(cluster).items() if isinstance(v, np.ndarray)}
    first, second = (planned(cluster, ON, world.now_s) for _ in range(2))
    assert all(v.tobytes() == vars(second)[k].tobytes() for k, v in vars(first).items())
    assert {k: v.tobytes() for k, v in vars(cluster).items() if isinstance(v, np.ndarray)} == before

"""Task groups at linear prices: all or none, and waiting is bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting_world import DUE_S, PERIOD_S, SETTINGS, ByWidth, World, of_width, spec

from flowsched.cluster.task_rows import RUNNING
from flowsched.errors import EventError

MEMBER = of_width(2, 10.0, group="ring")


def running(world: World, group: str) -> int:
    cluster = world.cluster
    members = [i for i, c in enumerate(cluster.classes) if c.group == group]
    return int(np.isin(cluster.tasks.task_class[cluster.tasks.state == RUNNING], members).sum())


def make_due(world: World, numbers: list[int]) -> None:
    for number in numbers:
        world.cluster.tasks.created_s[world.row_of(number)] = -DUE_S - 1.0


def test_a_minimum_must_be_at_least_one():
    with pytest.raises(EventError, match="task group ring has a minimum of 0"):
        World([spec("m0", 4)]).cluster.declare_group("ring", 0)


def test_a_group_starts_whole_or_not_at_all():
    world = World([spec("m0", 4), spec("m1", 3)])
    world.cluster.declare_group("ring", 4)
    world.submit(MEMBER, 4)
    outcome = world.round()
    assert running(world, "ring") == 0
    assert [g.group.name for g in outcome.incomplete] == ["ring"]
    world.cluster.add_machines([spec("m2", 2)])
    world.step()
    assert running(world, "ring") == 4


def test_an_incomplete_gang_keeps_no_task_out():
    world = World([spec("m0", 4)], policy=ByWidth())
    world.cluster.declare_group("ring", 2)
    world.submit(MEMBER, 1)
    (single,) = world.submit(of_width(4, 5.0))
    outcome = world.round()
    assert world.started[single] == 0.0
    assert [(g.group.name, g.complete) for g in outcome.incomplete] == [("ring", False)]


def test_places_of_a_group_that_fails_are_offered_to_others():
    # Members are worth more, so the network gives them the room; one too few has a place.
    world = World([spec("m0", 4)])
    world.cluster.declare_group("ring", 3)
    world.submit(MEMBER, 3)
    narrow = world.submit(of_width(1, 5.0), 4)
    world.round()
    assert running(world, "ring") == 0
    assert all(world.started[n] == 0.0 for n in narrow)


def test_of_two_groups_one_starts_whole():
    world = World([spec("m0", 6)])
    other = of_width(2, 10.0, group="star")
    world.cluster.declare_group("ring", 3)
    world.cluster.declare_group("star", 3)
    world.submit(other, 3)
    world.submit(MEMBER, 3)
    outcome = world.round()
    assert sorted((running(world, "star"), running(world, "ring"))) == [0, 3]
    assert len(outcome.incomplete) == 1


def test_a_group_that_gave_way_starts_after_all_if_another_gives_way_too():
    world = World([spec("m0", 6)])
    world.cluster.declare_group("star", 4)
    world.cluster.declare_group("ring", 3)
    world.submit(of_width(2, 10.0, group="star"), 4)
    world.submit(MEMBER, 3)
    world.round()
    assert (running(world, "star"), running(world, "ring")) == (0, 3)


def test_running_members_count():
    world = World([spec("m0", 8)])
    world.cluster.declare_group("ring", 3)
    world.submit(MEMBER, 3)
    world.round()
    world.run(of_width(2, 99.0), "m0", 50.0)
    world.cluster.leave(world.cluster.tasks.running_on(world.cluster.row("m0"))[:1])
    assert running(world, "ring") == 2
    world.submit(MEMBER, 1)
    world.step()
    assert running(world, "ring") == 3


def test_members_of_several_priorities_are_served_with_the_highest():
    world = World([spec("m0", 4)])
    world.cluster.declare_group("ring", 2)
    world.submit(replace(MEMBER, priority=5))
    world.submit(replace(MEMBER, priority=1))
    (between,) = world.submit(of_width(4, 5.0, priority=3))
    world.round()
    assert running(world, "ring") == 2
    assert between not in world.started


def test_a_due_group_has_machines_held_for_all_it_needs():
    world = World([spec("m0", 4), spec("m1", 4), spec("m2", 4)])
    world.cluster.declare_group("ring", 4)
    for m, ends in enumerate(((5.0, 30.0), (8.0, 12.0), (7.0, 40.0))):
        for end in ends:
            world.run(of_width(2, 40.0), f"m{m}", end)
    members = world.submit(MEMBER, 5)
    make_due(world, members)
    outcome = world.round()
    # Room for two on m1 at 12 and one each on m0 at 5 and m2 at 7: all of it is held until 12.
    assert sorted(r.machine_name for r in outcome.reservations) == ["m0", "m1", "m1", "m2"]
    assert {r.start_s for r in outcome.reservations} == {12.0}
    narrow = of_width(2, 6.0)
    seen = set()
    while running(world, "ring") == 0:
        outcome = world.step(lambda w: w.submit(narrow, 2))
        seen |= {(r.machine_name, r.start_s) for r in outcome.reservations}
        assert world.now_s <= 12.0
    assert len(seen) == 3
    assert world.now_s == 12.0
    assert running(world, "ring") >= 4


def test_what_a_group_holds_stays_though_only_one_of_it_is_due():
    world = World([spec("m0", 4), spec("m1", 4)])
    world.cluster.declare_group("ring", 2)
    for m, end in enumerate((15.0, 12.0)):
        world.run(of_width(3, 40.0), f"m{m}", end)
    members = world.submit(MEMBER, 3)
    make_due(world, members[:1])
    seen = set()
    for _ in range(11):
        seen |= {(r.task, r.machine_name, r.start_s) for r in world.step().reservations}
    assert len(seen) == 2
    assert {start for _, _, start in seen} == {12.0}
    world.step()
    assert running(world, "ring") >= 2


def test_a_due_group_starts_before_others_and_takes_no_more_than_it_needs():
    world = World([spec("m0", 8)], policy=ByWidth(by_core=False))
    world.cluster.declare_group("ring", 2)
    members = world.submit(MEMBER, 4)
    narrow = world.submit(of_width(1, 5.0), 4)
    make_due(world, members + narrow)
    world.round()
    # Two members are owed; narrow tasks are worth more than the other two.
    assert [np.isfinite(world.started[m]) for m in members] == [True, True, False, False]
    assert all(np.isfinite(world.started[n]) for n in narrow)


def test_a_due_group_that_never_fits_blocks_no_other():
    world = World([spec("m0", 4)])
    world.cluster.declare_group("ring", 3)
    world.run(of_width(4, 9.0), "m0", 5.0)
    make_due(world, world.submit(MEMBER, 3))
    (other,) = world.submit(of_width(4, 5.0))
    make_due(world, [other])
    outcome = world.round()
    assert [world.number_of(r.task) for r in outcome.reservations] == [other]
    (unbounded,) = outcome.unbounded
    assert "3 tasks of ring" in unbounded.why


def test_feeding_narrow_tasks_does_not_keep_a_group_out():
    for held in (True, False):
        world = World([spec(f"m{i}", 4) for i in range(3)], replace(SETTINGS, reservations=held))
        world.cluster.declare_group("ring", 5)
        for m in range(3):
            for run in range(1, 5):
                world.run(of_width(1, 4.0), f"m{m}", float(run))
        members = world.submit(MEMBER, 5)

        def feed(w: World) -> None:
            free = int(w.cluster.machines.free[w.cluster.machines.alive, 0].sum()) // 1000
            w.submit(of_width(1, 4.0), max(0, free - (w.waiting() - 5)))

        for _ in range(120):
            world.step(feed)
            assert running(world, "ring") in (0, 5)
            if np.isfinite(world.started[members[0]]):
                break
        if held:
            # One task: due, and one machine drained; a group as many as it needs, all at once.
            assert world.waits()[members].max() <= DUE_S + world.longest_run_s + 2 * PERIOD_S
        else:
            assert np.isinf(world.started[members[0]])


@st.composite
def scenes(draw):
    machines = [draw(st.integers(1, 6)) for _ in range(draw(st.integers(1, 4)))]
    groups = {name: draw(st.integers(1, 5)) for name in ("", "a", "b", "c")}
    classes = [
        of_width(
            draw(st.integers(1, 4)),
            draw(st.sampled_from((2.0, 5.0, 9.0))),
            group=name,
            priority=draw(st.integers(0, 1)),
        )
        for name in groups
        for _ in range(2)
    ]
    arrivals = draw(st.lists(st.lists(st.integers(0, 7), max_size=4), min_size=5, max_size=30))
    return machines, groups, classes, arrivals, draw(st.booleans()), draw(st.integers(0, 40))


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_no_group_starts_with_less_than_its_minimum(scene):
    machines, groups, classes, arrivals, crosses, leaves = scene
    world = World(
        [spec(f"m{i}", cores) for i, cores in enumerate(machines)],
        replace(SETTINGS, due_age_s=4.0, aging_crosses_priority=crosses),
    )
    for name, minimum in groups.items():
        if name:
            world.cluster.declare_group(name, minimum)
    for turn, come in enumerate(arrivals):
        world.now_s += PERIOD_S
        world.end_tasks()
        if turn == leaves and len(machines) > 1:
            world.cluster.remove_machines(["m0"])
        for c in come:
            world.submit(classes[c])
        before = {name: running(world, name) for name in groups if name}
        world.round()
        for name, count in before.items():
            after = running(world, name)
            assert after == count or after >= groups[name]

"""Machines that are held for due tasks: which, until when, who may still join, and what a round says about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting_world import DUE_S, KIND, PERIOD_S, SETTINGS, ByWidth, World, of_width, spec

from flowsched.cluster.task_class import MachineKind, MachineSpec
from flowsched.round.linear.linear_bound import level_bound

NARROW = of_width(1, 30.0)
WIDE = of_width(4, 10.0)
ENDLESS = of_width(1, float("inf"))


def crowded(ends=((5, 50, 60, 70), (10, 20, 30, 40), (50, 51, 52, 53)), cores=4, **more) -> World:
    """Machines full of narrow tasks that end at the given times, and a wide one that is due from the start."""
    world = World([spec(f"m{m}", cores) for m in range(len(ends))], replace(SETTINGS, **more))
    for m, of_machine in enumerate(ends):
        for end in of_machine:
            world.run(NARROW, f"m{m}", float(end))
    return world


def due(world: World, task_class=WIDE) -> int:
    """A task that came before the due age."""
    (number,) = world.submit(task_class)
    world.cluster.tasks.created_s[world.row_of(number)] = -DUE_S - 1.0
    world.created[number] = -DUE_S - 1.0
    return number


def test_the_machine_that_drains_soonest_is_held():
    world = crowded()
    number = due(world)
    (reservation,) = world.round().reservations
    assert reservation.machine_name == "m1"
    assert reservation.start_s == 40.0
    assert world.number_of(reservation.task) == number


def test_room_counts_in_every_resource_and_selector_and_limit():
    ssd = MachineKind("plain", (("disk", "ssd"),))
    world = World([spec("small", 4, 4), spec("plain", 4), spec("ssd", 4, kind=ssd), spec("late", 4, kind=ssd)])
    for name, end in (("small", 5.0), ("plain", 10.0), ("ssd", 20.0), ("late", 30.0)):
        world.run(of_width(4, 99.0), name, end)
    due(world, of_width(4, 10.0, needs=(("memory", 8),)))
    assert world.round().reservations[0].machine_name == "plain"
    other = World([spec("small", 4, 4), spec("plain", 4), spec("ssd", 4, kind=ssd), spec("late", 4, kind=ssd)])
    for name, end in (("small", 5.0), ("plain", 10.0), ("ssd", 20.0), ("late", 30.0)):
        other.run(of_width(4, 99.0, needs=(("memory", 2),)), name, end)
    due(other, of_width(4, 10.0, selector=(("disk", "ssd"),)))
    assert other.round().reservations[0].machine_name == "ssd"


def test_a_reservation_stays_and_its_start_never_moves_later():
    world = crowded()
    number = due(world)
    seen = set()
    feed = of_width(1, 3.0)
    while not np.isfinite(world.started[number]):
        outcome = world.step(lambda w: w.submit(feed, 2))
        seen |= {(r.machine_name, r.start_s) for r in outcome.reservations}
    assert seen == {("m1", 40.0)}
    assert world.started[number] == 40.0


def test_short_tasks_run_on_the_held_machine_and_do_not_delay_it():
    world = crowded()
    number = due(world)
    short, long_ = of_width(1, 4.0), of_width(1, 25.0)
    joined = {short: 0, long_: 0}
    while not np.isfinite(world.started[number]):
        outcome = world.step(lambda w: (w.submit(short), w.submit(long_)))
        held = world.cluster.row("m1")
        for task, machine in zip(outcome.tasks.tolist(), outcome.machines.tolist(), strict=True):
            if machine == held and world.number_of(task) != number:
                joined[world.classes[world.number_of(task)]] += 1
                assert world.cluster.tasks.end_s[task] <= 40.0
    assert joined[short] > 5
    assert world.started[number] == 40.0


def test_it_starts_elsewhere_as_soon_as_there_is_room():
    world = crowded()
    number = due(world)
    world.round()
    world.cluster.add_machines([spec("new", 4)])
    outcome = world.step()
    assert world.where(number) == "new"
    assert outcome.reservations == ()
    # Nothing is held any more: arriving tasks may go wherever there is room.
    world.now_s = 30.0
    world.end_tasks()
    (other,) = world.submit(NARROW)
    world.round()
    assert world.started[other] == 30.0


def test_a_due_task_goes_first_though_others_are_worth_more():
    # Four narrow tasks fill the only free machine and are worth four times as much.
    world = World([spec("m0", 4)], policy=ByWidth(by_core=False))
    number = due(world)
    world.submit(NARROW, 4)
    outcome = world.round()
    assert world.started[number] == 0.0
    assert len(outcome.waits) == 4
    assert [len(level.waiting.tasks) for level in outcome.levels] == [1, 4]
    certificate = outcome.certificate
    assert certificate.bound == pytest.approx(certificate.primal)


def test_another_machine_is_held_when_the_first_leaves():
    world = crowded()
    number = due(world)
    world.round()
    world.now_s = 20.0
    world.end_tasks()
    world.cluster.remove_machines(["m1"])
    outcome = world.round()
    assert [(r.machine_name, r.start_s) for r in outcome.reservations] == [("m2", 53.0)]
    # A machine of another name in the same row is not the one that was held.
    world.cluster.remove_machines(["m2"])
    world.cluster.add_machines([spec("tiny", 2)])
    outcome = world.step()
    assert [r.machine_name for r in outcome.reservations] == ["m0"]
    assert np.isinf(world.started[number])


def test_another_machine_is_held_when_the_first_suits_no_more():
    world = crowded()
    due(world)
    world.round()
    world.cluster.resize("m1", {"cpu": 3000, "memory": 64})
    assert [r.machine_name for r in world.step().reservations] == ["m2"]


def test_reservations_that_are_kept_elsewhere_can_be_handed_back():
    world = crowded()
    due(world)
    first = world.round().reservations
    world.rounds.reservations = (replace(first[0], machine=world.cluster.row("m2"), machine_name="m2", start_s=90.0),)
    assert [(r.machine_name, r.start_s) for r in world.step().reservations] == [("m2", 90.0)]
    world.rounds.reservations = ()
    assert [(r.machine_name, r.start_s) for r in world.step().reservations] == [("m1", 40.0)]


def test_a_task_that_is_withdrawn_holds_nothing():
    world = crowded()
    number = due(world)
    world.round()
    world.cluster.leave(np.array([world.row_of(number)]))
    world.submit(NARROW)  # takes the same row
    outcome = world.step()
    assert outcome.reservations == ()


def test_barred_machines_are_not_held():
    world = crowded()
    due(world)
    barred = np.zeros(world.cluster.machines.rows, dtype=np.bool_)
    barred[world.cluster.row("m1")] = True
    assert [r.machine_name for r in world.round(barred).reservations] == ["m2"]


def test_tasks_without_an_end_are_never_counted_on():
    world = World([spec("m0", 4), spec("m1", 4)])
    for m in range(2):
        world.run(ENDLESS, f"m{m}", float("inf"))
        world.run(of_width(3, 50.0), f"m{m}", 5.0 + m)
    number = due(world)
    outcome = world.round()
    assert outcome.reservations == ()
    ((row, why),) = [(u.task, u.why) for u in outcome.unbounded]
    assert world.number_of(row) == number
    assert "without an end" in why
    # The next one is served, and a task for which there is no machine at all says so.
    due(world, of_width(9, 5.0))
    second = due(world, of_width(3, 5.0))
    outcome = world.round()
    assert [world.number_of(r.task) for r in outcome.reservations] == [second]
    assert sorted(u.why for u in outcome.unbounded) == [
        "no machine that it may use is large enough for w9-5",
        "on every machine that is large enough, tasks without an end leave too little room",
    ]
    # Once a service has gone it starts like any other.
    world.now_s = 6.0
    world.end_tasks()
    world.cluster.leave(world.cluster.tasks.running_on(world.cluster.row("m1"))[:1])
    for _ in range(40):
        world.step()
    assert np.isfinite(world.started[number])


def test_a_reservation_takes_its_machine_out_of_the_certificate():
    # The only room is on the held machine; those who would stay too long wait, and no plan is better.
    world = crowded(((5, 20, 20, 20),))
    due(world)
    world.round()
    world.now_s = 5.0
    world.end_tasks()
    world.submit(NARROW)
    outcome = world.round()
    assert len(outcome.tasks) == 0
    (level,) = outcome.levels
    assert level_bound(level.evidence, level.primal).bound == pytest.approx(level.primal)
    # A task that is gone in time may go there, in the plan and in the bound.
    world.submit(of_width(1, 2.0))
    outcome = world.round()
    assert len(outcome.tasks) == 1
    (level,) = outcome.levels
    assert level_bound(level.evidence, level.primal).bound == pytest.approx(level.primal)


def test_a_higher_priority_is_not_bound_by_what_lower_ones_hold():
    world = crowded()
    due(world, replace(WIDE, priority=-1))
    world.round()
    world.now_s = 10.0
    world.end_tasks()
    world.submit(replace(NARROW, priority=3), 2)
    world.submit(NARROW)
    world.submit(replace(NARROW, priority=-1), 3)
    outcome = world.round()
    # Free are one core on each of m0 and m1, which is held.
    assert sorted(world.classes[world.number_of(t)].priority for t in outcome.tasks.tolist()) == [3, 3]
    (reservation,) = outcome.reservations
    assert reservation.start_s == 40.0


def test_what_a_higher_priority_holds_binds_lower_ones():
    world = crowded()
    due(world, replace(WIDE, priority=3))
    low = due(world)
    outcome = world.round()
    assert sorted((r.machine_name, r.start_s) for r in outcome.reservations) == [("m1", 40.0), ("m2", 53.0)]
    world.now_s = 10.0
    world.end_tasks()
    (narrow,) = world.submit(replace(NARROW, priority=-2))
    world.round()
    assert world.where(narrow) == "m0"
    assert np.isinf(world.started[low])


def test_run_times_by_machine_type_count():
    slow = MachineKind("slow")
    world = World([spec("m0", 4, kind=slow)])
    task_class = of_width(1, 10.0, slowness=(("slow", 0.5),))
    (number,) = world.submit(task_class)
    rows = np.array([world.row_of(number)])
    assert world.cluster.predicted_end(rows, np.array([world.cluster.row("m0")]), 100.0).tolist() == [115.0]
    endless = world.cluster.intern(ENDLESS)
    assert np.isinf(world.cluster.classes.lasting_s()[endless]).all()
    # Twelve seconds are too few for it here, though enough on the best type.
    world.run(of_width(3, 99.0), "m0", 12.0)
    due(world)
    world.round()
    assert np.isinf(world.started[number])


@st.composite
def scenes(draw):
    """Small clusters with a life of their own: classes, and who comes and leaves in each round."""
    kinds = [KIND, MachineKind("slow"), MachineKind("plain", (("disk", "ssd"),))]
    machines = [
        MachineSpec(
            f"m{i}",
            kinds[draw(st.integers(0, 2))],
            {"cpu": 1000 * draw(st.integers(1, 6)), "memory": draw(st.integers(4, 24))},
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    classes = [
        of_width(
            draw(st.integers(1, 5)),
            draw(st.sampled_from((1.0, 2.0, 5.0, 9.0, 9.0, float("inf")))),
            needs=(("memory", draw(st.integers(1, 8))),),
            slowness=(("slow", 0.4),),
            priority=draw(st.integers(0, 1)),
            selector=draw(st.sampled_from(((), (), (("disk", "ssd"),)))),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    arrivals = draw(st.lists(st.lists(st.integers(0, len(classes) - 1), max_size=4), min_size=10, max_size=45))
    leaves = draw(st.dictionaries(st.integers(5, 40), st.integers(0, 3), max_size=2))
    return machines, classes, arrivals, leaves, draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_whatever_happens_nothing_is_promised_twice(scene):
    machines, classes, arrivals, leaves, crosses = scene
    world = World(machines, replace(SETTINGS, due_age_s=4.0, aging_crosses_priority=crosses))
    before = {}
    for turn, come in enumerate(arrivals):
        world.now_s += PERIOD_S
        world.end_tasks()
        for c in come:
            world.submit(classes[c])
        name = f"m{leaves.get(turn)}"
        if turn in leaves and world.cluster.machines.row(name) is not None:
            world.cluster.remove_machines([name])
        outcome = world.round()  # checks that nothing is overcommitted
        held = {r.machine: r for r in outcome.reservations}
        assert len(held) == len(outcome.reservations)
        for r in outcome.reservations:
            assert world.now_s - world.cluster.tasks.created_s[r.task] > 4.0
            assert r.task in outcome.waits
            # Kept from round to round, start and all, while the task waits and the machine is there.
            if r.task_sequence in before and before[r.task_sequence].machine_name == r.machine_name:
                assert r.start_s == before[r.task_sequence].start_s
        for task, machine in zip(outcome.tasks.tolist(), outcome.machines.tolist(), strict=True):
            r = held.get(machine)
            assert world.cluster.machines.kinds[world.cluster.machines.kind[machine]].has(
                world.cluster.classes[world.cluster.tasks.task_class[task]].selector
            )
            if r is not None:
                mine = world.cluster.classes[world.cluster.tasks.task_class[task]].priority
                theirs = world.cluster.classes[world.cluster.tasks.task_class[r.task]].priority
                if crosses or mine <= theirs:
                    assert world.cluster.tasks.end_s[task] <= max(r.start_s, world.now_s) + 1e-6
        for level in outcome.levels:
            assert level_bound(level.evidence, level.primal).bound <= level.primal + 1e-6
        before = {r.task_sequence: r for r in outcome.reservations}


def test_where_no_end_is_known_a_machine_drains_for_it():
    """A task without an end leaves a core sooner or later; until then nothing joins the machine that misses least."""
    world = World([spec("m0", 4), spec("m1", 4)], replace(SETTINGS, drain=True))
    for name, many in (("m0", 3), ("m1", 2)):
        for _ in range(many):
            world.run(ENDLESS, name, float("inf"))
    number = due(world)
    (reservation,) = world.round().reservations
    assert (reservation.machine_name, reservation.start_s) == ("m1", np.inf)
    (short,) = world.submit(of_width(1, 1.0))
    (late,) = world.submit(of_width(1, 1.0))
    (kept,) = world.round().reservations
    assert kept.machine_name == "m1"
    assert np.isfinite(world.started[short]) != np.isfinite(world.started[late])
    gone = np.flatnonzero(world.cluster.tasks.machine == world.cluster.row("m1"))
    world.cluster.leave(gone)
    world.round()
    assert np.isfinite(world.started[number])


def test_without_draining_it_is_said_that_nothing_is_promised():
    world = World([spec("m0", 4)])
    world.run(ENDLESS, "m0", float("inf"))
    due(world)
    outcome = world.round()
    assert not outcome.reservations
    assert "tasks without an end" in outcome.unbounded[0].why

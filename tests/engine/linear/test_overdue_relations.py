"""Overdue tasks that relations bind: what is reserved can start together, or is given up and made again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting_world import DUE_S, KIND, SETTINGS, ByWidth, World, of_width

from flowsched.cluster.task_class import MachineSpec
from flowsched.cluster.task_rows import RUNNING
from flowsched.relations.relation import MACHINE, Relation, RelationKind

ONE_SWITCH = Relation("one-switch", RelationKind.TOGETHER, "sw")
BOTH = ("one-switch",)


def switched(*switches: str, cores: int = 4) -> list[MachineSpec]:
    """Machines m0, m1, ... of some switches."""
    return [
        MachineSpec(f"m{i}", KIND, {"cpu": 1000 * cores, "memory": 64}, labels={"sw": switch})
        for i, switch in enumerate(switches)
    ]


def bound(world: World, *relations: Relation) -> World:
    for relation in relations:
        world.cluster.declare_relation(relation)
    return world


def members(world: World) -> int:
    cluster = world.cluster
    ring = [i for i, c in enumerate(cluster.classes) if c.group == "ring"]
    return int(np.isin(cluster.tasks.task_class[cluster.tasks.state == RUNNING], ring).sum())


def make_due(world: World, numbers: list[int]) -> None:
    for number in numbers:
        world.cluster.tasks.created_s[world.row_of(number)] = -DUE_S - 1.0


def until(world: World, now_s: float) -> None:
    world.now_s = now_s
    world.end_tasks()


def overdue_pair(world: World) -> list[int]:
    """A gang of two whole machines under one switch."""
    world.cluster.declare_group("ring", 2)
    numbers = world.submit(of_width(4, 10.0, group="ring", holds=BOTH, joins=BOTH), 2)
    make_due(world, numbers)
    return numbers


def test_what_is_reserved_for_a_gang_lets_it_start_together():
    # m0 and m3, of two switches, are free first; a switch of one machine is free before all.
    world = bound(World(switched("lone", "a", "a", "b")), ONE_SWITCH)
    for machine, end in (("m0", 2.0), ("m1", 3.0), ("m2", 20.0), ("m3", 4.0)):
        world.run(of_width(4, 99.0), machine, end)
    overdue_pair(world)
    assert sorted((r.machine_name, r.start_s) for r in world.round().reservations) == [("m1", 20.0), ("m2", 20.0)]
    until(world, 20.0)
    world.round()
    assert members(world) == 2


def test_a_reservation_whose_machines_part_is_made_again():
    world = bound(World(switched("a", "a", "b", "b")), ONE_SWITCH)
    for m, end in enumerate((20.0, 21.0, 30.0, 31.0)):
        world.run(of_width(4, 99.0), f"m{m}", end)
    overdue_pair(world)
    assert {r.machine_name for r in world.round().reservations} == {"m0", "m1"}
    world.cluster.machines.relation_store.put_machine(world.cluster.row("m1"), {"sw": "elsewhere"})
    assert {r.machine_name for r in world.step().reservations} == {"m2", "m3"}
    until(world, 31.0)
    world.round()
    assert members(world) == 2


def test_a_reservation_that_a_task_elsewhere_closes_is_made_again():
    # What comes to m1 has no end, and no machine of its switch takes the overdue task beside it.
    alone = Relation("alone", RelationKind.APART, "sw")
    world = bound(World(switched("a", "a", "b")), alone)
    for machine, end in (("m0", 20.0), ("m2", 30.0)):
        world.run(of_width(4, 99.0), machine, end)
    numbers = world.submit(of_width(4, 10.0, holds=("alone",)))
    world.run(of_width(1, 99.0), "m1", 40.0)
    make_due(world, numbers)
    assert [r.machine_name for r in world.round().reservations] == ["m0"]
    world.run(of_width(1, float("inf"), joins=("alone",)), "m1", float("inf"))
    assert [r.machine_name for r in world.step().reservations] == ["m2"]


def test_room_that_only_relations_close_is_not_kept():
    # m0 is free at 5 s; beside it, in its switch, one task that keeps the overdue one out follows the other.
    alone = Relation("alone", RelationKind.APART, "sw")
    world = bound(World(switched("a", "a", "b")), alone)
    world.run(of_width(4, 99.0), "m0", 5.0)
    world.run(of_width(4, 99.0, joins=("alone",)), "m1", 90.0)
    world.run(of_width(4, 99.0), "m2", 30.0)
    numbers = world.submit(of_width(4, 10.0, holds=("alone",)))
    make_due(world, numbers)
    assert [r.machine_name for r in world.round().reservations] == ["m0"]
    until(world, 6.0)
    assert [(r.machine_name, r.start_s) for r in world.round().reservations] == [("m2", 30.0)]
    until(world, 30.0)
    world.round()
    assert world.where(numbers[0]) == "m2"


def test_what_an_overdue_task_closes_to_others_is_open_in_the_bound_on_its_own_cost():
    world = bound(World(switched("a")), Relation("apart", RelationKind.APART, MACHINE))
    make_due(world, world.submit(of_width(2, 10.0, holds=("apart",), joins=("apart",)), 1))
    outcome = world.round()
    (level,) = outcome.bounds
    assert len(outcome.tasks) == 1 and np.isfinite(level.primal)
    assert level.unconstrained <= level.bound <= level.primal


def test_classes_that_find_no_room_choose_first_the_next_time():
    # Two members of two cores fit, or one of four.
    world = World(switched("a"))
    world.cluster.declare_group("ring", 2)
    make_due(world, [*world.submit(of_width(4, 10.0, group="ring")), *world.submit(of_width(2, 10.0, group="ring"), 2)])
    world.round()
    assert members(world) == 2


@st.composite
def scenes(draw):
    """Small clusters of switches, a gang of one or two classes with relations, and what runs and comes.

    Members are of one width: whether several widths fit together is a packing problem, which rounds only try to solve.
    """
    switches = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
    kinds = draw(st.lists(st.sampled_from([k for k in RelationKind if k is not RelationKind.COUNT]), max_size=2))
    relations = [
        Relation(f"r{i}", kind, draw(st.sampled_from(("sw", "sw", MACHINE))), most=draw(st.integers(1, 2)))
        for i, kind in enumerate(kinds)
    ]
    names = [r.name for r in relations]
    roles = st.lists(st.sampled_from(names), unique=True).map(tuple) if names else st.just(())
    whole = draw(st.booleans())  # all members are bound by all relations, as `relations:` of a job does
    width = draw(st.integers(1, 4))
    classes = [
        of_width(
            width,
            run_s,
            group="ring",
            holds=tuple(names) if whole else draw(roles),
            joins=tuple(names) if whole else draw(roles),
        )
        for run_s in (5.0, 6.0)[: draw(st.integers(1, 2))]
    ]
    counts = [draw(st.integers(1, 4)) for _ in classes]
    other = of_width(draw(st.integers(1, 4)), 4.0, holds=draw(roles), joins=draw(roles))
    running = draw(st.lists(st.integers(1, 40), min_size=len(switches), max_size=len(switches)))
    feed = draw(st.lists(st.integers(0, 2), max_size=25))
    # Which members of several classes make up a minimum is a choice of its own.
    needed = sum(counts) if len(classes) > 1 else draw(st.integers(2, 4))
    return switches, relations, classes, counts, needed, other, running, feed


def could_start(machines, relations, classes, counts, needed) -> bool:
    """Whether so many members can come to the empty machines one after the other: all orders and places are looked at."""
    domains = {r.name: [labels[r.key] if r.key != MACHINE else name for name, labels, _ in machines] for r in relations}
    failed = set()

    def open_(c, m, there) -> bool:
        for r in relations:
            domain, holds, joins = domains[r.name], r.name in classes[c].holds, r.name in classes[c].joins
            joined = Counter(domain[at] for k, at in there if r.name in classes[k].joins)
            held = Counter(domain[at] for k, at in there if r.name in classes[k].holds)
            here = joined[domain[m]]
            refused = {
                RelationKind.LIMIT: joins and here >= r.most,
                RelationKind.APART: (holds and here > 0) or (joins and held[domain[m]] > 0),
                RelationKind.TOGETHER: holds and not here and not (joins and not joined),
                RelationKind.SPREAD: holds and here + joins > r.skew + min(joined[d] for d in domain),
            }
            if refused[r.kind]:
                return False
        return True

    def search(there) -> bool:
        if len(there) == needed:
            return True
        key = tuple(sorted(there))
        if key in failed:
            return False
        for c, count in enumerate(counts):
            if sum(k == c for k, _ in there) == count:
                continue
            for m, (_, _, cores) in enumerate(machines):
                taken = sum(classes[k].width_milli for k, at in there if at == m)
                if taken + classes[c].width_milli <= 1000 * cores and open_(c, m, there) and search((*there, (c, m))):
                    return True
        failed.add(key)
        return False

    return search(())


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_an_empty_cluster_starts_every_overdue_gang_that_fits(scene):
    switches, relations, classes, counts, needed, other, running, feed = scene
    world = bound(World(switched(*switches), replace(SETTINGS, due_age_s=4.0), ByWidth()), *relations)
    world.cluster.declare_group("ring", needed)
    for m, end in enumerate(running):
        world.run(of_width(3, 99.0), f"m{m}", float(end))
    numbers = [n for c, count in zip(classes, counts, strict=True) for n in world.submit(c, count)]
    assert len(numbers) == sum(counts)
    for count in feed:
        world.step(lambda w, n=count: w.submit(other, n))
    waits = [r for r, n in world._number.items() if not n < len(running) + len(numbers) and np.isinf(world.started[n])]
    world.cluster.leave(np.array(waits, dtype=np.int64))
    for r in waits:
        del world._number[r]
    until(world, world.now_s + 100.0)
    started = any(np.isfinite(world.started[n]) for n in numbers)
    world.step()
    world.step()
    started |= members(world) > 0
    machines = [(f"m{i}", {"sw": switch}, 4) for i, switch in enumerate(switches)]
    assert started == (sum(counts) >= needed and could_start(machines, relations, classes, counts, needed))

"""The fleet against a naive record, through any order of events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bulk_world import NAMES, RELATIONS, Box, Kind, Naive, World, boxes, kinds, put, worlds
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.relations.relation import MACHINE, Relation, RelationKind


def by_name(fleet: BookedTasks, values: np.ndarray) -> dict[str, object]:
    return {name: values[row].tolist() for row, name in enumerate(fleet.machines.names) if name is not None}


def view(fleet: BookedTasks) -> dict[str, object]:
    """All that a fleet says, with no word about rows."""
    state: dict[str, object] = {
        name: (fleet.machines.bandwidth(name), *fleet.machines.service(name)) for name in fleet.machines.ordered_names
    }
    state["sums"] = by_name(fleet, fleet.machines.readings)
    columns = sorted((r, k) for k, r in enumerate(fleet.machines.resources))
    state["free"] = {
        name: {r: int(fleet.machines.free[row, k]) for r, k in columns if fleet.machines.free[row, k]}
        for row, name in enumerate(fleet.machines.names)
        if name is not None
    }
    state["order"] = [fleet.machines.names[row] for row in fleet.machines.order().tolist()]
    return state


def same(one: BookedTasks, other: BookedTasks) -> bool:
    """Whether two have the same in the same rows."""
    mine, theirs = one.machines, other.machines
    arrays = ("alive", "allocatable", "free", "readings", "own_readings", "limits", "kind")
    around = [
        [m.relation_store.members_around(r.name) for r in theirs.relation_store.relations()] for m in (mine, theirs)
    ]
    return (
        len(one) == len(other)
        and (mine.names, mine.resources, mine.kinds) == (theirs.names, theirs.resources, theirs.kinds)
        and all(np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in arrays)
        and all(np.array_equal(*pair) for pair in zip(*around, strict=True))
        and view(one) == view(other)
    )


@settings(deadline=None, max_examples=60)
@given(worlds(), st.data())
def test_fits_and_refusals_are_what_the_definitions_say(world: World, data: st.DataObject) -> None:
    fleet = world.fleet()
    naive = Naive(world)
    kind = data.draw(kinds("new", tuple(r.name for r in world.relations), ()))
    eligible = np.array([name not in kind.ineligible for name in fleet.machines.names], dtype=np.bool_)

    fits = fleet.machines.fits(kind.needs)
    lacking = fleet.machines.lacking(kind.needs)
    permits = fleet.machines.permits(kind.holds, kind.joins, eligible)
    refusals = fleet.machines.refusals(kind.holds, kind.joins, eligible)

    assert fits[~fleet.machines.alive].any() is np.False_ and permits[~fleet.machines.alive].any() is np.False_
    for name in naive.on:
        row = fleet.machines.row(name)
        assert fits[row] == naive.fits(kind, name) == (not any(lacks[row] for lacks in lacking.values()))
        said = {r.relation.name for r in refusals if r.refused[row]}
        assert said == set(naive.refusals(kind, name))
        assert permits[row] == (not said)
        for refusal in refusals:
            label = refusal.relation.key
            assert refusal.missing_label[row] == (
                bool(refusal.refused[row]) and label != MACHINE and label not in naive.boxes[name].labels
            )
    for relation in world.relations:
        around = fleet.machines.relation_store.members_around(relation.name)
        for name in naive.on:
            domain = naive._domain(relation, name)
            same = [m for m in naive.on if domain is not None and naive._domain(relation, m) == domain]
            assert around[fleet.machines.row(name)] == sum(relation.name in k.joins for m in same for k in naive.on[m])


@settings(deadline=None, max_examples=60)
@given(worlds(), st.data())
def test_relations_without_tasks_are_those_of_a_cluster_that_never_had_them(world: World, data: st.DataObject) -> None:
    fleet, left = world.fleet(), world.fleet()
    before = view(fleet)
    gone = [f"running-{i}" for i in range(len(world.running)) if data.draw(st.booleans())]
    for task in gone:
        left.release(task)
    without, expected = fleet.relations_without([*gone, "missing"]), left.machines.relation_store
    for relation in world.relations:
        found, kept = without.topology_counts(relation.name), expected.topology_counts(relation.name)
        assert (found.members.tolist(), found.holders.tolist()) == (kept.members.tolist(), kept.holders.tolist())
    assert view(fleet) == before


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 4)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
        st.tuples(st.just("book"), st.integers(0, 5), st.sampled_from(NAMES)),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("copy")),
        st.tuples(st.just("catch up"), st.integers(0, 5), st.sampled_from(NAMES)),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(boxes(), RELATIONS, EVENTS, st.data())
def test_any_history_ends_in_the_same_state_as_the_straight_way(
    machines: tuple[Box, ...], relations: tuple[Relation, ...], events: list[tuple], data: st.DataObject
) -> None:
    names = tuple(r.name for r in relations)
    tasks = [replace(data.draw(kinds(f"t{i}", names, ())), count=1) for i in range(6)]
    fleet = BookedTasks()
    for relation in relations:
        fleet.machines.relation_store.declare(relation)
    there: dict[str, Box] = {}
    booked: dict[int, str] = {}
    for i in range(80):
        fleet.book(f"elsewhere-{i}", "elsewhere", {})  # so many that the others are few
    mirror = BookedTasks()
    for event in events:
        match event:
            case ("put", i) if i < len(machines):
                put(fleet, machines[i])
                there[machines[i].name] = machines[i]
            case ("remove", name):
                fleet.machines.remove_machine(name)
                there.pop(name, None)
            case ("book", i, name):
                kind = tasks[i]
                fleet.book(
                    kind.name,
                    name,
                    kind.needs,
                    sensitivity=kind.sensitivity,
                    pressure=kind.pressure,
                    holds=kind.holds,
                    joins=kind.joins,
                )
                booked[i] = name
            case ("release", i):
                fleet.release(tasks[i].name)
                booked.pop(i, None)
            case ("copy",):
                old, fleet = fleet, fleet.copy()
                old.put_machine("gone", {"cpu": 1}, {"zone": "gone"})
                for task in tasks:
                    old.release(task.name)
                mirror = fleet.copy()
            case ("catch up", i, name):
                mirror.catch_up(fleet)
                assert same(mirror, fleet)
                # Whatever is done to it can be taken back, and is gone the next time.
                for take_back in (True, False):
                    mirror.release(tasks[i].name)
                    for cpu in (1, 2):
                        passing = {"cpu": cpu, "passing": 1}
                        mirror.book("passing", name, passing, pressure=0.5, joins=[r.name for r in relations])
                        mirror.book("elsewhere-1", name, passing)
                    if take_back:
                        mirror.undo()
                        assert same(mirror, fleet)
    mirror.catch_up(fleet)
    assert same(mirror, fleet) and same(mirror.copy(), fleet)

    straight = World(
        tuple(there.values()), relations, tuple((tasks[i], name) for i, name in sorted(booked.items()))
    ).fleet()
    assert view(fleet) == view(straight)
    assert [fleet.booking(task.name) for task in tasks] == [mirror.booking(task.name) for task in tasks]
    for relation in relations:
        assert by_name(fleet, fleet.machines.relation_store.members_around(relation.name)) == by_name(
            straight, straight.machines.relation_store.members_around(relation.name)
        )
        kind = Kind("x", 1, {}, holds=(relation.name,), joins=(relation.name,))
        assert by_name(fleet, fleet.machines.permits(kind.holds, kind.joins)) == by_name(
            straight, straight.machines.permits(kind.holds, kind.joins)
        )


def test_bookings_wait_for_a_machine_that_is_not_there() -> None:
    fleet = BookedTasks()
    fleet.book("t", "n1", {"cpu": 300}, pressure=0.5)
    assert (booked := fleet.booking("t")) is not None and booked.machine == "n1"

    row = fleet.put_machine("n1", {"cpu": 1000}, {})
    assert fleet.machines.fits({"cpu": 700})[row] and not fleet.machines.fits({"cpu": 701})[row]
    fleet.machines.remove_machine("n1")
    assert fleet.machines.row("n1") is None and not fleet.machines.fits({}).any()
    row = fleet.put_machine("n1", {"cpu": 1000}, {})
    assert fleet.machines.pressure()[row] == 0.5 and not fleet.machines.fits({"cpu": 701})[row]


def test_an_update_keeps_bookings_and_services() -> None:
    fleet = BookedTasks()
    row = fleet.put_machine("n1", {"cpu": 1000, "gpu": 2}, {"zone": "a"})
    fleet.machines.set_service("n1", 0.5, 2.0)
    fleet.book("t", "n1", {"cpu": 300})

    assert fleet.put_machine("n1", {"cpu": 500}, {"zone": "b"}) == row
    assert fleet.machines.fits({"cpu": 200})[row] and not fleet.machines.fits({"cpu": 201})[row]
    assert not fleet.machines.fits({"gpu": 1})[row]
    assert fleet.machines.service("n1") == (0.5, 2.0)


def test_a_need_of_nothing_fits_even_where_too_much_is_booked() -> None:
    fleet = BookedTasks()
    row = fleet.put_machine("n1", {"cpu": 100}, {})
    fleet.book("t", "n1", {"cpu": 300})

    assert fleet.machines.free[row, 0] == -200
    assert fleet.machines.fits({"cpu": 0, "gpu": 0})[row] and not fleet.machines.fits({"cpu": 1})[row]
    assert fleet.machines.lacking({"cpu": 1, "gpu": 0})["cpu"][row]


def test_tasks_may_join_a_relation_that_is_declared_after_them() -> None:
    fleet = BookedTasks()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        fleet.put_machine(name, {}, {"zone": zone})
    fleet.book("t", "n1", {})
    apart = Relation("apart", RelationKind.APART, "zone")
    fleet.machines.relation_store.declare(apart)
    fleet.machines.relation_store.declare(apart)
    fleet.enrol("apart", ["t", "missing"])

    assert by_name(fleet, fleet.machines.relation_store.members_around("apart")) == {"n1": 1, "n2": 1, "n3": 0}
    assert by_name(fleet, fleet.machines.permits(["apart"], [])) == {"n1": False, "n2": False, "n3": True}
    fleet.book("t", "n3", {})
    fleet.enrol("apart", ["t"])
    fleet.release("t")
    assert not fleet.machines.relation_store.members_around("apart").any()


def test_a_retired_relation_is_forgotten_even_by_those_who_joined() -> None:
    fleet = BookedTasks()
    fleet.put_machine("n1", {}, {})
    fleet.machines.relation_store.declare(Relation("one", RelationKind.LIMIT))
    fleet.book("t", "n1", {}, holds=["one"], joins=["one"])
    fleet.machines.relation_store.retire("one")
    fleet.machines.relation_store.retire("one")
    assert fleet.machines.relation_store.relation("one") is None

    fleet.machines.relation_store.declare(Relation("one", RelationKind.LIMIT))
    assert not fleet.machines.relation_store.members_around("one").any()
    fleet.enrol("one", ["t"])
    assert fleet.machines.relation_store.members_around("one").sum() == 1
    fleet.release("t")
    assert fleet.machines.permits(["one"], ["one"]).sum() == 1


def test_what_was_not_declared_is_an_error_and_changes_nothing() -> None:
    fleet = BookedTasks()
    fleet.put_machine("n1", {"cpu": 1}, {})
    fleet.book("t", "n1", {"cpu": 1})

    with pytest.raises(KeyError, match="missing was not declared"):
        fleet.book("t", "n1", {"cpu": 0}, holds=["missing"])
    with pytest.raises(ValueError, match="at least 0"):
        fleet.book("t", "n1", {"cpu": 0}, pressure=float("nan"))
    assert not fleet.machines.fits({"cpu": 1}).any()
    with pytest.raises(KeyError):
        fleet.machines.permits(["missing"], [])
    with pytest.raises(KeyError):
        fleet.machines.set_service("n2", 1.0, 0.0)


def test_both_sides_of_apart_are_told_apart() -> None:
    fleet = BookedTasks()
    fleet.put_machine("n1", {}, {})
    fleet.put_machine("n2", {}, {})
    fleet.machines.relation_store.declare(Relation("no-db", RelationKind.APART))
    fleet.book("db", "n1", {}, joins=["no-db"])
    fleet.book("web", "n2", {}, holds=["no-db"])

    refusals = fleet.machines.refusals(["no-db"], ["no-db"])

    assert [(r.role, by_name(fleet, r.refused)) for r in refusals] == [
        ("holds", {"n1": True, "n2": False}),
        ("joins", {"n1": False, "n2": True}),
    ]


def test_labels_that_come_and_go_leave_nothing_behind() -> None:
    fleet = BookedTasks()
    fleet.machines.relation_store.declare(Relation("r", RelationKind.LIMIT, "host"))
    for i in range(1000):
        fleet.put_machine(f"n{i}", {"cpu": 1}, {"host": f"n{i}"})
        fleet.book("t", f"n{i}", {}, joins=["r"])
        if i >= 3:
            fleet.machines.remove_machine(f"n{i - 3}")

    assert fleet.machines.machine_count == 3 and fleet.machines.rows == 16
    assert fleet.machines.relation_store.topology_counts("r").domains < 100
    assert by_name(fleet, fleet.machines.relation_store.members_around("r")) == {"n997": 0, "n998": 0, "n999": 1}

"""A lone task gets the place, at the price and with the runner-up, that an ordinary round gives it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import MethodType

import numpy as np
import pytest
from bulk_world import NAMES, Box, Kind, World, places, task_class, worlds
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.booked_tasks import BookedTasks
from flowsched.cluster.settings import PACK, SPREAD, Settings
from flowsched.records.record_file import record_json
from flowsched.round.linear.bulk_outcome import BulkOutcome
from flowsched.round.linear.bulk_round import decide
from flowsched.round.linear.bulk_settings import bulk_settings
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.lone_task import decide_lone
from flowsched.solvers import make_solver

SOLVER = make_solver("ortools")


def both(world: World, scoring: str = SPREAD, keep_record: bool = False) -> tuple[BulkOutcome | None, BulkOutcome]:
    """What is decided of a lone task, and what a round decides."""
    fleet = world.fleet()
    how = replace(bulk_settings(Settings()), scoring=scoring)
    whole = decide(world.cluster(fleet), how, solver=SOLVER, keep_record=keep_record)
    return alone(fleet, world.kinds[0], how, keep_record), whole


def alone(fleet: BookedTasks, kind: Kind, how: RoundSettings, keep_record: bool) -> BulkOutcome | None:
    """What is decided of one task of a kind."""
    where = places(kind, fleet)
    return decide_lone(
        fleet.machines, task_class(kind), where, kind.tasks[0], how, solver=SOLVER, keep_record=keep_record
    )


def willing(kind: Kind) -> Kind:
    """One task that takes any place, as pods without a profile do."""
    any_place = float("inf")
    return replace(kind, count=1, waiting_cost=any_place, max_cost=any_place, holds=(), joins=(), group=None)


@st.composite
def lone_worlds(draw: st.DrawFn) -> World:
    """A random world in which one task waits."""
    world = draw(worlds(groups=False).filter(lambda w: w.kinds and w.boxes))
    boxes = world.boxes
    if draw(st.booleans()):
        # Equal machines: ties decide.
        alike = replace(boxes[0], bandwidth=1.0)
        boxes = tuple(replace(alike, name=name) for name in NAMES[: draw(st.integers(1, 7))])
        world = replace(world, running=tuple((k, m) for k, m in world.running if k.needs["cpu"] == 0))
    return replace(world, boxes=boxes, kinds=(willing(world.kinds[0]),))


@given(lone_worlds(), st.sampled_from((SPREAD, PACK)))
@settings(max_examples=300, deadline=None)
def test_a_lone_task_is_placed_as_a_round_places_it(world: World, scoring: str) -> None:
    lone, whole = both(world, scoring)
    if lone is None:
        return
    assert lone.placements == whole.placements
    assert not lone.left and not whole.left
    assert list(lone.placements[0].terms) == list(whole.placements[0].terms)


def cluster(count: int, rng: np.random.Generator) -> World:
    """Machines that are partly full, of three sizes."""
    sizes = [{"cpu": 1000 * n, "memory": 4 * n << 30, "pods": 110} for n in (2, 4, 8)]
    boxes = tuple(Box(f"n{i:03d}", sizes[i % 3], {}) for i in range(count))
    running = tuple(
        (
            Kind(
                f"r{i}",
                1,
                sensitivity=0.0898,
                pressure=0.0033 * int(rng.integers(1, 4)),
                needs={"cpu": int(rng.integers(1, 8)) * 100, "memory": int(rng.integers(1, 9)) << 27},
            ),
            box.name,
        )
        for i, box in enumerate(boxes)
        for _ in range(int(rng.integers(0, 4)))
    )
    return World(
        boxes,
        (),
        running,
        (Kind("k", 1, {"cpu": 100, "memory": 100 << 20, "pods": 1}, sensitivity=0.0898, pressure=0.003257),),
    )


@pytest.mark.parametrize("scoring", [SPREAD, PACK])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 100])
def test_in_clusters_of_plain_machines_it_is_always_taken(count: int, scoring: str) -> None:
    for seed in range(10):
        lone, whole = both(cluster(count, np.random.default_rng(seed)), scoring)
        assert lone is not None
        assert lone.placements == whole.placements


def test_its_record_is_the_one_of_the_round_and_can_be_made_elsewhere() -> None:
    lone, whole = both(cluster(10, np.random.default_rng(1)), keep_record=True)
    assert lone is not None and lone.record is not None and whole.record is not None
    (part,) = pickle.loads(pickle.dumps(lone.record))(0)
    (of_round,) = whole.record(0)
    assert record_json({**part, "timings": {}}) == record_json({**of_round, "timings": {}})
    assert lone.certificate == whole.certificate


def test_its_record_is_of_the_machines_as_they_were() -> None:
    world = cluster(10, np.random.default_rng(1))
    fleet = world.fleet()
    lone = alone(fleet, world.kinds[0], bulk_settings(Settings()), keep_record=True)
    assert lone is not None and lone.record is not None
    before = record_json(lone.record(0))
    for name in list(fleet.machines.ordered_names):
        fleet.book(f"later on {name}", name, {"cpu": 300, "other": 1}, sensitivity=0.5, pressure=0.5)
    fleet.machines.remove_machine("n000")
    fleet.put_machine("another", {"cpu": 8000}, {})
    assert record_json(lone.record(0)) == before


def test_a_record_that_contradicts_the_decision_is_not_made() -> None:
    lone, whole = both(cluster(3, np.random.default_rng(1)), keep_record=True)
    assert lone is not None and isinstance(lone.record, MethodType)
    other = replace(whole.placements[0], machine="n000" if whole.placements[0].machine != "n000" else "n001")
    with pytest.raises(RuntimeError, match="was decided for a lone task"):
        replace(lone.record.__self__, placement=other).parts(0)


@pytest.mark.parametrize(
    "kind",
    [
        Kind("k", 1, {"cpu": 1}, max_cost=0.5),
        Kind("k", 1, {"cpu": 9}),
        Kind("k", 1, {"cpu": 1}, slowness={"a": 0.25, "b": 0.25 + 1e-9}),
    ],
    ids=["limited", "no room", "almost equal"],
)
def test_what_is_not_plain_is_left_to_the_round(kind: Kind) -> None:
    boxes = tuple(Box(name, {"cpu": 8}, {}) for name in "ab")
    assert both(World(boxes, kinds=(kind,)))[0] is None


def test_machines_of_different_kinds_at_one_price_are_left_to_the_round() -> None:
    boxes = Box("a", {"cpu": 8}, {}), Box("b", {"cpu": 8}, {}, bandwidth=0.5)
    assert both(World(boxes, kinds=(Kind("k", 1, {"cpu": 1}),)))[0] is None

"""Tiers: exact for widths that divide, never violated by what packs, and what packing promises."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale_world import Draw, World, breaches, compacted, decide, draw_world, worlds

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.pricing.linear.policies.trivial import TrivialPolicy
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundSettings
from flowsched.round.linear.machine_groups import MAX_TIERS, Compaction, largest_sums, tier_widths

SOME = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
WIDTHS = st.lists(st.integers(1, 60).map(lambda n: 50 * n), min_size=1, max_size=14, unique=True)
ROOMS = st.lists(st.integers(0, 8000), min_size=1, max_size=5)


def stand(widths: list[int], rooms: list[int]) -> Compaction:
    """One kind of machines with these rooms, a task of every width waiting."""
    cluster = ClusterRows.of(TrivialPolicy())
    cluster.add_machines([MachineSpec(f"m{i}", MachineKind("one"), {"cpu": room}) for i, room in enumerate(rooms)])
    classes = np.array([cluster.intern(TaskClass(f"w{w}", w)) for w in widths])
    cluster.submit(classes, np.zeros(len(widths)))
    return compacted(cluster, 0.0).compaction


@SOME
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True), st.integers(1, 7), st.integers(0, 300))
def test_for_widths_that_divide_a_tier_is_whole_tasks(powers: list[int], unit: int, top: int) -> None:
    widths = tuple(sorted((unit * 2**p for p in powers), reverse=True))
    table = largest_sums(widths, widths, 1, top)
    room = np.arange(top + 1)
    for tier, width in enumerate(widths):
        # The widest tier is floor(f/w) w; a narrower one may hold wider tasks too, which changes nothing.
        assert (table[tier] == room // width * width).all()


@SOME
@given(WIDTHS, st.integers(0, 120))
def test_for_any_widths_a_tier_is_the_largest_sum(widths: list[int], room: int) -> None:
    ordered = tuple(sorted({w // 50 for w in widths}, reverse=True))
    table = largest_sums(ordered, ordered, 1, room)
    reachable = {0}
    for tier, width in enumerate(ordered):
        for _ in range(room // width):
            reachable |= {s + width for s in reachable if s + width <= room}
        # Sums of wider ones were closed before; with this width they are closed again.
        assert table[tier, room] == max(reachable)
        assert all(a <= b for a, b in pairwise(table[:, room].tolist()))


@SOME
@given(WIDTHS, ROOMS, st.randoms(use_true_random=False))
def test_nothing_that_packs_violates_a_tier(widths: list[int], rooms: list[int], rng: object) -> None:
    compaction = stand(widths, rooms)
    assert len(compaction.tier_widths) <= MAX_TIERS
    placed = []
    for room in rooms:
        left = room
        for _ in range(200):
            width = rng.choice(widths)  # type: ignore[attr-defined]
            if width <= left and rng.random() < 0.9:  # type: ignore[attr-defined]
                left -= width
                placed.append(width)
    for tier, width in enumerate(compaction.tier_widths):
        asked = sum(w for w in placed if w >= width)
        assert asked <= compaction.tiers[:, tier].sum() * compaction.unit


@SOME
@given(st.lists(st.integers(0, 12000), min_size=1, max_size=5), st.data())
def test_where_widths_divide_all_that_tiers_allow_packs(rooms: list[int], data: st.DataObject) -> None:
    widths = [8000, 4000, 2000, 1000]
    compaction = stand(widths, rooms)
    capacity = compaction.tiers.sum(axis=0) * compaction.unit
    counts, taken = [], 0
    for tier, width in enumerate(widths):
        most = min(int(c) - taken for c in capacity[tier:]) // width
        counts.append(data.draw(st.integers(0, max(0, most))))
        taken += counts[-1] * width
    free = list(rooms)
    for width, count in zip(widths, counts, strict=True):
        for _ in range(count):
            fitting = [i for i, room in enumerate(free) if room >= width]
            assert fitting, "the tiers allow what does not pack"
            free[fitting[0]] -= width


@pytest.mark.parametrize("count", [1, MAX_TIERS, MAX_TIERS + 1, 40])
def test_many_widths_share_tiers_and_the_narrowest_has_one(count: int) -> None:
    widths = tuple(range(count, 0, -1))
    tiers = tier_widths(widths)
    assert len(tiers) == min(count, MAX_TIERS)
    assert tiers[-1] == 1
    assert list(tiers) == sorted(set(tiers), reverse=True)


@SOME
@given(worlds(oldest_s=900.0, priorities=2))
def test_no_round_overcommits_anything(world: World) -> None:
    for chosen in (RoundSettings(), RoundSettings(exchange_tasks=0), RoundSettings(exact_tasks=14)):
        cluster, outcome = decide(world, chosen)
        assert breaches(world, cluster, outcome) == []
        # Bound for real, no capacity is below 0 that was not before.
        before = cluster.machines.free.copy()
        cluster.bind(outcome.tasks, outcome.machines)
        touched = np.unique(outcome.machines)
        asked = cluster.classes.demands[cluster.tasks.task_class[outcome.tasks]].sum(axis=0) > 0
        assert (cluster.machines.free[touched][:, asked] >= np.minimum(before[touched][:, asked], 0)).all()


@pytest.mark.parametrize("seed", range(6))
def test_large_rounds_overcommit_nothing_either(seed: int) -> None:
    world = draw_world(seed, Draw(machines=60, classes=12, tasks=400, use=0.6, priorities=2))
    cluster, outcome = decide(world)
    assert breaches(world, cluster, outcome) == []
    assert len(outcome.tasks) > 100


@SOME
@given(worlds())
def test_requests_are_never_above_allocatable(world: World) -> None:
    """A task that is wider than every machine waits, and has no way into the network but that."""
    cluster = world.cluster()
    number = cluster.intern(TaskClass("giant", 1 + int(cluster.machines.allocatable[:, 0].max())))
    cluster.submit(np.array([number]), np.zeros(1))
    built = compacted(cluster, world.now_s).built
    assert number in built.classes
    assert number not in built.classes[built.arc_class]

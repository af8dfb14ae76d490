"""Compaction beside the network without it: equal optima where that is claimed, never above, and the formula for buckets."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from scale_world import DIVIDING, Draw, Stand, World, compacted, draw_world, draws, flow_policy, worlds

sys.path.append(str(Path(__file__).parents[3]))  # benchmarks are no part of what is installed

from benchmarks.uncompacted import build_uncompacted, exact_prices, room_by_class
from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.network.network import Network
from flowsched.pricing.linear.policies.trivial import TrivialPolicy
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.solvers import Status, make_solver

FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def optimum(network: Network, solver: str = "ortools") -> float:
    solution = make_solver(solver).solve(network)
    assert solution.status is Status.OPTIMAL
    return solution.cost / network.cost_scale


def rounding(*networks: Network) -> float:
    """Costs are rounded to integers, unit by unit, on each of the arcs of a task's way."""
    return 1e-9 + sum(4.0 * float(n.supplies[1:].sum()) / n.cost_scale for n in networks)


def both(world: World, stand: Stand | None = None) -> tuple[Network, Network]:
    stand = stand or compacted(world.cluster(), world.now_s)
    plain = build_uncompacted(stand.cluster, stand.compaction, stand.waiting)
    return stand.built.network, plain.network


@FEW
@given(worlds(same_rooms=True, bucket=0.0))
def test_equal_machines_fold_without_loss(world: World) -> None:
    small, large = both(world)
    assert optimum(small) == pytest.approx(optimum(large), abs=rounding(small, large))


@settings(FEW, max_examples=15)
@given(worlds(same_rooms=True, bucket=0.0, machines=4, tasks=6))
def test_networkx_says_so_too(world: World) -> None:
    small, large = both(world)
    assert optimum(small, "networkx") == pytest.approx(optimum(large, "networkx"), abs=rounding(small, large))


@FEW
@given(worlds(widths=DIVIDING, memory=False, gpus=False, services=False, interference=False, bucket=0.0))
def test_machines_of_any_room_fold_without_loss_where_widths_divide(world: World) -> None:
    small, large = both(world)
    assert optimum(small) == pytest.approx(optimum(large), abs=rounding(small, large))


@FEW
@given(worlds(widths=DIVIDING, memory=False, gpus=False, services=False))
def test_a_policy_without_features_folds_without_loss(world: World) -> None:
    small, large = both(world, compacted(world.cluster(TrivialPolicy()), world.now_s))
    assert optimum(small) == pytest.approx(optimum(large), abs=rounding(small, large))


@FEW
@given(worlds(bucket=0.0))
def test_folding_never_makes_anything_dearer(world: World) -> None:
    small, large = both(world)
    assert optimum(small) <= optimum(large) + rounding(small, large)


@FEW
@given(worlds(same_rooms=True, growth=0.0))
def test_buckets_cost_no_more_than_stated(world: World) -> None:
    stand = compacted(world.cluster(), world.now_s)
    small, large = both(world, stand)
    tasks = np.zeros(len(stand.cluster.classes), dtype=np.int64)
    tasks[stand.waiting.classes] = stand.waiting.counts
    error = stand.compaction.bucket_error(tasks)
    assert abs(optimum(small) - optimum(large)) <= error + rounding(small, large)


@FEW
@given(worlds(growth=0.0))
def test_a_price_is_never_further_off_than_half_a_bucket(world: World) -> None:
    stand = compacted(world.cluster(), world.now_s)
    compaction, cluster = stand.compaction, stand.cluster
    rows = np.flatnonzero(compaction.group_of >= 0)
    classes = stand.waiting.classes
    exact = exact_prices(cluster, classes, rows)
    price = compaction.cost[classes][:, compaction.group_of[rows]]
    for i, c in enumerate(classes.tolist()):
        one = np.zeros(len(cluster.classes), dtype=np.int64)
        one[c] = 1
        allowed = np.isfinite(exact[i])
        assert (np.isfinite(price[i]) == allowed).all()
        assert (np.abs(price[i][allowed] - exact[i][allowed]) <= compaction.bucket_error(one) + 1e-9).all()


def test_a_plan_that_is_optimal_for_buckets_is_within_twice_the_formula() -> None:
    world_of = Draw(machines=6, classes=4, tasks=12, same_rooms=True, growth=0.0, bucket=0.5)
    for seed in range(20):
        world = draw_world(seed, world_of)
        stand = compacted(world.cluster(), world.now_s)
        exact = compacted(world.cluster(flow_policy(0.0)), world.now_s)
        plain = build_uncompacted(stand.cluster, exact.compaction, stand.waiting)
        tasks = np.zeros(len(stand.cluster.classes), dtype=np.int64)
        tasks[stand.waiting.classes] = stand.waiting.counts
        error = stand.compaction.bucket_error(tasks)
        # The plan for the middles, at exact prices: what it promises is off by the formula at most, the optimum too.
        promised = optimum(stand.built.network)
        assert promised + error <= optimum(plain.network) + 2.0 * error + rounding(plain.network, stand.built.network)


def test_two_machines_that_lack_different_things_look_like_one_that_lacks_nothing() -> None:
    """Why equal room is asked for: the sum of two machines has CPU and memory, none of the two has both."""
    kind = MachineKind("one")
    policy = TrivialPolicy(growth=0.0)
    cluster = ClusterRows.of(policy)
    cluster.add_machines(
        [MachineSpec("cpu", kind, {"cpu": 8000, "memory": 1}), MachineSpec("both", kind, {"cpu": 1000, "memory": 8})]
    )
    classes = [cluster.intern(TaskClass(name, 1000, (("memory", 1),))) for name in ("one", "other")]
    cluster.submit(np.array(classes * 2), np.zeros(4))
    stand = compacted(cluster, 0.0)
    plain = build_uncompacted(stand.cluster, stand.compaction, stand.waiting)
    assert optimum(stand.built.network) == pytest.approx(4 * policy.place)
    assert optimum(plain.network) == pytest.approx(3 * policy.place + policy.waiting)


@FEW
@given(draws())
def test_the_network_without_compaction_counts_every_task_once(draw: Draw) -> None:
    world = draw_world(3, replace(draw, tasks=9))
    stand = compacted(world.cluster(), world.now_s)
    plain = build_uncompacted(stand.cluster, stand.compaction, stand.waiting)
    network = plain.network
    assert len(plain.tasks) == 9
    assert network.supplies.sum() == 0
    assert (network.supplies[10:] == 0).all()
    assert (network.capacities >= 0).all()
    room = room_by_class(stand.cluster, stand.waiting.classes, plain.rows)
    assert (room.max(axis=0, initial=0) > 0).all() or not len(plain.rows)
    barred = np.ones(stand.cluster.machines.rows, dtype=np.bool_)
    assert not len(build_uncompacted(stand.cluster, stand.compaction, stand.waiting, barred).arc_task)

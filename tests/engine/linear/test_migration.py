"""Running tasks move when that is worth its price, and not back and forth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from moving_world import (
    FREE_MOVES,
    Mover,
    a_class,
    cluster_of,
    least_cost,
    overcommitted,
    run,
    spec,
    tiny,
    total_cost,
    wait,
)

from flowsched.cluster.settings import QUIET_S, Settings
from flowsched.cluster.task_rows import PENDING, RUNNING
from flowsched.round.linear import full_network
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.full_network import build_full_network
from flowsched.round.linear.moves import carry_out

NOISY = a_class("noisy")
"""Two of them cost each other 0.5."""
PRICED = replace(FREE_MOVES, migration_price=0.3)


def crowded() -> tuple[ClusterRows, np.ndarray]:
    """Two tasks that disturb each other beside an empty machine: a move brings 0.5."""
    cluster = cluster_of([spec("a", 4), spec("b", 4)])
    return cluster, run(cluster, NOISY, "a", 2)


def test_a_task_moves_to_where_it_costs_less():
    cluster, tasks = crowded()
    before = total_cost(cluster)
    moves = Mover(cluster).turn()
    assert len(moves) == 1
    assert moves.tasks[0] in tasks
    assert moves.gain[0] == pytest.approx(0.5, abs=1e-6)
    assert total_cost(cluster) == pytest.approx(before - 0.5, abs=1e-6)
    assert sorted(cluster.tasks.machine[tasks].tolist()) == sorted([cluster.row("a"), cluster.row("b")])


@pytest.mark.parametrize(("price", "moved"), [(0.49, 1), (0.51, 0), (np.inf, 0)])
def test_it_moves_only_if_the_gain_is_above_the_price(price: float, moved: int):
    cluster, _ = crowded()
    assert len(Mover(cluster, replace(FREE_MOVES, migration_price=price)).turn()) == moved


@pytest.mark.parametrize("counts", [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (2, 1)])
def test_equal_machines_never_exchange_their_tasks(counts: tuple[int, int]):
    cluster = cluster_of([spec("a", 4), spec("b", 4)])
    for machine, count in zip("ab", counts, strict=True):
        run(cluster, NOISY, machine, count)
    rounds = Mover(cluster)
    assert [len(rounds.turn(float(t))) for t in range(5)] == [0] * 5


def test_after_the_moves_of_one_round_the_next_has_none_to_take_back():
    cluster = cluster_of([spec(f"m{i}", 4) for i in range(4)])
    kinds = [a_class("loud", pressure=0.9, sensitivity=0.1), a_class("shy", pressure=0.1, sensitivity=0.9), NOISY]
    for machine, task_class in zip(("m0", "m0", "m1"), kinds, strict=True):
        run(cluster, task_class, machine, 2)
    rounds = Mover(cluster)
    cost = total_cost(cluster)
    for t in range(6):
        moves = rounds.turn(float(t))
        after = total_cost(cluster)
        assert after < cost if len(moves) else after == cost
        cost = after
    assert not len(moves)


def alternating(swing: float, settings: Settings, rounds_s: float, count: int = 20) -> list[int]:
    """Moves by round while one of two machines is dearer than the other in turn, by ``swing`` for a noisy task."""
    cluster = cluster_of([spec("a", 4), spec("b", 4)])
    run(cluster, NOISY, "a")
    rounds = Mover(cluster, settings)
    found = []
    for n in range(count):
        dear, cheap = ("a", "b") if n % 2 == 0 else ("b", "a")
        cluster.read(dear, "headroom", swing / NOISY.pressure)
        cluster.read(cheap, "headroom", 0.0)
        found.append(len(rounds.turn(n * rounds_s)))
    return found


def test_changes_below_the_price_move_nothing():
    assert sum(alternating(0.29, PRICED, 10.0)) == 0


def test_changes_below_the_hysteresis_move_a_task_once_and_not_back():
    assert alternating(0.5, PRICED, 10.0, 9) == [1] + [0] * 8


def test_a_task_that_moved_moves_again_for_more_than_the_hysteresis_or_after_a_while():
    assert alternating(0.7, PRICED, 10.0, 4) == [1, 1, 1, 1]
    assert alternating(0.5, PRICED, QUIET_S + 1.0, 4) == [1, 1, 1, 1]


def test_what_may_not_move_stays():
    for fixed in (a_class("fixed", movable=False), a_class("service", run_s=np.inf)):
        cluster = cluster_of([spec("a", 4), spec("b", 4)])
        run(cluster, fixed, "a", 2)
        assert not len(Mover(cluster).turn())


def test_no_task_moves_to_a_barred_machine():
    cluster, _ = crowded()
    barred = np.zeros(cluster.machines.rows, dtype=np.bool_)
    barred[cluster.row("b")] = True
    assert not len(Mover(cluster).propose(0.0, barred))
    assert len(Mover(cluster).propose(0.0)) == 1


def test_a_gain_lasts_as_long_as_the_task():
    """Of a run of 100 s, half is over: the gain of 0.5 is worth half."""
    for price, moved in ((0.24, 1), (0.26, 0)):
        cluster = cluster_of([spec("a", 4), spec("b", 4)])
        run(cluster, NOISY, "a", 2, end_s=150.0)
        assert len(Mover(cluster, replace(FREE_MOVES, migration_price=price)).turn(100.0)) == moved, price


def test_a_task_whose_predicted_end_has_passed_stays():
    cluster = cluster_of([spec("a", 4), spec("b", 4)])
    run(cluster, NOISY, "a", 2, end_s=90.0)
    assert not len(Mover(cluster).turn(100.0))


def fragmented(move_price: float = 0.0, waiting: float = 4.0) -> tuple[ClusterRows, np.ndarray]:
    cluster = cluster_of([spec("a", 2), spec("b", 2)], waiting)
    for machine in "ab":
        run(cluster, a_class("calm", 1, 0.0, 0.0), machine)
    return cluster, wait(cluster, a_class("wide", 2, 0.0, 0.0))


def test_others_move_so_that_a_wide_task_gets_in():
    cluster, wide = fragmented()
    rounds = Mover(cluster, replace(FREE_MOVES, migration_price=1.0))
    moves = rounds.turn()
    assert moves.starts.tolist() == [False, True]
    assert moves.plan[0] == moves.plan[1]
    assert moves.source[0] == moves.target[1], "the one makes room for the other"
    assert cluster.tasks.state[wide[0]] == RUNNING
    assert not overcommitted(cluster)


def test_no_task_makes_room_for_what_can_wait():
    cluster, _ = fragmented(waiting=0.9)
    assert not len(Mover(cluster, replace(FREE_MOVES, migration_price=1.0)).turn())


def test_full_machines_trade_tasks():
    """Two loud and two shy tasks on two full machines: like goes to like, in one plan, since none can go first."""
    loud, shy = a_class("loud", 1, 1.0, 0.0), a_class("shy", 1, 0.0, 1.0)
    cluster = cluster_of([spec("a", 2), spec("b", 2)])
    for machine in "ab":
        run(cluster, loud, machine)
        run(cluster, shy, machine)
    moves = Mover(cluster).turn()
    assert len(moves) == 2
    assert moves.plan[0] == moves.plan[1]
    assert total_cost(cluster) == 0.0
    assert not overcommitted(cluster)


def test_no_more_steps_than_allowed():
    cluster = cluster_of([spec(f"m{i}", 8) for i in range(8)])
    run(cluster, NOISY, "m0", 8)
    assert len(Mover(cluster).turn()) == 7
    cluster = cluster_of([spec(f"m{i}", 8) for i in range(8)])
    run(cluster, NOISY, "m0", 8)
    assert len(Mover(cluster, replace(FREE_MOVES, migration_moves=3)).turn()) == 3


def test_without_tasks_or_machines_there_is_nothing_to_do():
    assert not len(Mover(cluster_of([])).turn())
    cluster = cluster_of([spec("a", 4)])
    wait(cluster, NOISY)
    assert not len(Mover(cluster).propose(0.0))


def test_the_cluster_does_not_change():
    cluster, _ = crowded()
    wait(cluster, a_class("wide", 8))
    before = {k: v.tobytes() for k, v in vars(cluster).items() if isinstance(v, np.ndarray)}
    assert len(Mover(cluster).propose())
    assert {k: v.tobytes() for k, v in vars(cluster).items() if isinstance(v, np.ndarray)} == before
    assert cluster.tasks.waiting().tolist() == np.flatnonzero(cluster.tasks.state == PENDING).tolist()


def test_the_network_grows_with_classes_times_groups(monkeypatch: pytest.MonkeyPatch):
    sizes = []

    def measured(cluster, compaction, residents, waiting, readings):
        built = build_full_network(cluster, compaction, residents, waiting, readings)
        classes = len(np.union1d(residents.task_class, waiting.classes))
        sizes.append((built.network.arc_count, classes, int(np.count_nonzero(compaction.members))))
        return built

    monkeypatch.setattr(full_network, "build_full_network", measured)
    cluster = cluster_of([spec(f"m{i}", 16, headroom=0.1 * (i % 7)) for i in range(70)])
    for i in range(70):
        for c in range(i % 5):
            run(cluster, a_class(f"c{c}", 1 + c % 2, 0.1), f"m{i}")
    Mover(cluster).propose()
    ((arcs, classes, groups),) = sizes
    assert arcs <= 4 * classes * groups + 20 * groups


def test_tiny_clusters_come_near_the_best_assignment():
    """Measured: 0.3 % above the best of all assignments in sum at 70 % use; 5.5 % where machines are full, since a wide task
    does not change places with several narrow ones.
    """
    for use, most in ((0.7, 1.02), (1.0, 1.08)):
        reached = best = 0.0
        for seed in range(25):
            cluster = tiny(seed, use)
            best += least_cost(cluster)
            rounds = Mover(cluster)
            while len(rounds.turn()):
                pass
            reached += total_cost(cluster)
        assert best - 1e-6 <= reached <= most * best


def test_ends_are_booked_with_moves():
    cluster, _ = crowded()
    moves = Mover(cluster).propose()
    carry_out(moves, cluster, np.array([77.0]))
    assert cluster.tasks.end_s[moves.tasks[0]] == 77.0

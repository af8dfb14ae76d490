"""Rounds between their stages: what the compaction sees, what settling leaves, and what a failure leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale_world import ODD, REAL_SIZES, Draw, decide, draw_world

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.network.network import Network
from flowsched.pricing.linear import kernels
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import Rounds, RoundSettings
from flowsched.round.linear.machine_groups import MAX_TIERS
from flowsched.round.linear.machine_reservation import MachineReservation
from flowsched.round.linear.round_state import BulkRoundState
from flowsched.solvers import Solution, make_solver

SOME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**20)


def crowded(seed: int, **more: object) -> Draw:
    """Machines of odd sizes and tasks of odd widths, so that rounding leaves some over and networks are solved again."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, object] = {"widths": ODD, "sizes": REAL_SIZES, "classes": 8, "use": 0.4, **more}
    return Draw(machines=int(rng.integers(5, 25)), tasks=int(rng.integers(20, 120)), **drawn)  # type: ignore[arg-type]


class Watched(Rounds):
    """Rounds that count anew what the compaction saw, whenever it was shown a state."""

    shown = 0

    def see(self, state: BulkRoundState) -> None:
        super().see(state)
        self.shown += 1
        seen, cluster, free = self.compaction, self.cluster, state.visible_free()
        for m in np.flatnonzero(cluster.machines.alive).tolist():
            room = [
                kernels.fit(m, s, free, state.readings, cluster.machines.limits, seen._shape_demand, seen._shape_effect)
                for s in range(len(seen._shape_demand))
            ]
            assert seen.seen_fit[m].tolist() == room
            buckets = state.readings[m] // np.maximum(1, seen._buckets)
            assert seen.keys[seen.group_of[m]] == (cluster.machines.kind[m], *buckets.tolist(), seen.signature[m])


@SOME
@given(SEEDS, st.sampled_from((0.0, 0.125)))
def test_what_is_shown_to_the_compaction_is_what_is_there(seed: int, bucket: float) -> None:
    """Machines that settling or a trade emptied have room for the next priority."""
    world = draw_world(seed, crowded(seed, priorities=3, bucket=bucket))
    cluster = world.cluster()
    rounds = Watched(cluster, make_solver("ortools"), RoundSettings(worth_a_solve=0.0))
    rounds.decide(world.now_s, world.barred_rows(cluster))
    assert rounds.shown


@SOME
@given(SEEDS)
def test_no_move_of_a_single_task_pays_once_a_round_has_settled(seed: int) -> None:
    """Nor where networks were solved again, which is when machines are full that others could still trade for."""
    world = draw_world(seed, crowded(seed, waiting=1e6, growth=0.0))
    chosen = RoundSettings(exchange_tasks=0, worth_a_solve=0.0, settle_looks=10**9)
    cluster, outcome = decide(world, chosen)
    model, barred = cluster.model(), world.barred_rows(cluster)
    cluster.bind(outcome.tasks, outcome.machines)
    free, readings = cluster.machines.free, cluster.machines.readings
    for c, m in set(zip(cluster.tasks.task_class[outcome.tasks].tolist(), outcome.machines.tolist(), strict=True)):
        now = kernels.cost_beside(m, c, model, readings)
        for other in np.flatnonzero(cluster.machines.alive & ~barred).tolist():
            if other != m and kernels.takes(other, c, free, readings, model.limits, model.demands, model.effects):
                assert kernels.place_cost(other, c, model, readings) >= now - 1e-6


class Refusing:
    """A solver that refuses every network after the first so many."""

    name = "refusing"

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self._solver = make_solver("ortools")

    def solve(self, network: Network, time_limit_s: float | None = None) -> Solution:
        del time_limit_s
        self.answers -= 1
        if self.answers < 0:
            raise RuntimeError("refused")
        return self._solver.solve(network)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_round_that_fails_leaves_no_trace(answers: int) -> None:
    world = draw_world(3, crowded(3, priorities=3))
    cluster = world.cluster()
    solver = Refusing(answers)
    rounds = Rounds(cluster, solver, RoundSettings(worth_a_solve=0.0))  # type: ignore[arg-type]
    waiting = int(cluster.tasks.waiting()[0])
    cluster.machines.touch(np.flatnonzero(cluster.machines.alive))
    held = MachineReservation.of(cluster, waiting, 0, 1e9)
    rounds.reservations = (held,)
    with pytest.raises(RuntimeError, match="refused"):
        rounds.decide(world.now_s)
    assert rounds.reservations == (held,)
    rounds.reservations = ()
    solver.answers = 10**9
    after = rounds.decide(world.now_s)
    fresh = Rounds(world.cluster(), make_solver("ortools"), RoundSettings(worth_a_solve=0.0)).decide(world.now_s)
    assert after.tasks.tolist() == fresh.tasks.tolist()
    assert after.machines.tolist() == fresh.machines.tolist()


def test_rounds_without_changes_rebuild_nothing_whatever_the_size_of_machines() -> None:
    """The largest machine is no whole number of units."""
    cluster = ClusterRows.of(FlowCostModel(waiting=4.0))
    cluster.add_machines([MachineSpec(f"m{i}", MachineKind("one"), {"cpu": 3920}) for i in range(3)])
    classes = [cluster.intern(TaskClass("narrow", 1000)), cluster.intern(TaskClass("giant", 64000))]
    cluster.submit(np.array(classes), np.zeros(2))
    rounds = Rounds(cluster, make_solver("ortools"))
    rounds.decide(0.0)
    for _ in range(3):
        assert rounds.decide(0.0).upkeep["rebuilt"] == {}


def test_widths_that_no_task_waits_with_any_more_take_no_tier_from_those_that_wait() -> None:
    cluster = ClusterRows.of(FlowCostModel(waiting=4.0))
    cluster.add_machines([MachineSpec("m", MachineKind("one"), {"cpu": 96000})])
    rounds = Rounds(cluster, make_solver("ortools"))
    for width in [125 * 2**i for i in range(10)]:
        task = cluster.submit(np.array([cluster.intern(TaskClass(f"w{width}", width))]), np.zeros(1))
        rounds.decide(0.0)
        assert width in rounds.compaction.tier_widths
        assert len(rounds.compaction.widths) <= MAX_TIERS
        cluster.leave(task)


@pytest.mark.parametrize("name", ["due_age_s", "resolves", "worth_a_solve", "settle_looks", "exact_tasks"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_settings_that_are_none_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be >= 0, got "):
        RoundSettings(**{name: value})  # type: ignore[arg-type]


@SOME
@given(SEEDS, st.integers(0, 400))
def test_where_the_work_limit_ends_trades_what_is_estimated_is_still_what_it_costs(seed: int, looks: int) -> None:
    world = draw_world(seed, crowded(seed, waiting=1e6, growth=0.0))
    outcome = decide(world, RoundSettings(exchange_tasks=0, settle_looks=1 + looks))[1]
    assert outcome.estimate == pytest.approx(outcome.cost, abs=1e-6)


def test_what_waits_no_more_is_not_counted_any_longer() -> None:
    cluster = ClusterRows.of(FlowCostModel())
    cluster.add_machines([MachineSpec("m", MachineKind("small"), {"cpu": 4000, "memory": 10**6})])
    rounds = Rounds(cluster, make_solver("ortools"))
    reasons: set[str] = set()
    for i in range(300):
        number = cluster.intern(TaskClass(f"c{i}", 1000, (("memory", 100 + i),)))
        task = cluster.submit(np.array([number]), np.array([float(i)]))
        outcome = rounds.decide(float(i))
        assert len(outcome.tasks) == 1
        reasons |= set(outcome.upkeep["rebuilt"])
        cluster.leave(task)
    assert rounds.compaction.seen_fit.shape[1] <= 65
    assert reasons == {"shapes", "widths"}
    first = cluster.submit(np.array([0]), np.array([300.0]))
    assert rounds.decide(300.0).tasks.tolist() == first.tolist()

"""The bound beside the true optimum, and what can be recomputed from a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale_world import Draw, World, decide, draw_world, varied, worlds

from flowsched.cluster.task_class import MachineKind, TaskClass
from flowsched.pricing.linear.policy import ClassPrices, Feature
from flowsched.round.certificate import LevelBound, certify
from flowsched.round.linear.linear_optimum import ExactLevel
from flowsched.round.linear.linear_round import RoundOutcome, Rounds, RoundSettings
from flowsched.solvers import make_solver

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
ROUGH = RoundSettings(exchange_tasks=0)
"""Without exchanges, so that rounds are not optimal anyway."""


class LopsidedPolicy:
    """What a task suffers and what it brings have nothing to do with each other."""

    name = "lopsided"
    features = (Feature("noise"), Feature("heat"))

    def factors(self, kind: MachineKind) -> Sequence[float]:
        return kind.bandwidth, 2.0 - kind.bandwidth

    def price(self, task_class: TaskClass, kinds: Sequence[MachineKind]) -> ClassPrices:
        slow = dict(task_class.slowness)
        s, p = task_class.sensitivity, task_class.pressure
        return ClassPrices(
            np.array([slow.get(k.type, 0.0) for k in kinds]), np.array([s, 0.3]), np.array([p, s * s]), 5.0, 1.0
        )


def optimum(outcome: RoundOutcome) -> float:
    """Level after level, each as the one before left the cluster."""
    total = 0.0
    none = np.zeros(0, dtype=np.int64)
    for level in outcome.levels:
        answer = ExactLevel(level.evidence).solve(none, none)
        assert answer.proven
        total += answer.value
    return total


def check(outcome: RoundOutcome) -> None:
    certificate = outcome.certificate
    assert certificate is not None
    assert certificate.bound <= certificate.primal + 1e-9
    best = optimum(outcome)
    assert certificate.bound <= best + 1e-5
    assert best <= certificate.primal + 1e-5
    assert certificate.unconstrained <= certificate.bound + 1e-9
    recomputed = 0.0
    for level, one in zip(outcome.levels, outcome.bounds, strict=True):
        recomputed += min(level.evidence.bound(one.prices)[0], one.primal)
    assert recomputed == pytest.approx(certificate.bound, abs=1e-9)


@SOME
@given(worlds(oldest_s=570.0))
def test_the_bound_is_never_above_the_optimum_and_comes_again_from_its_prices(world: World) -> None:
    check(decide(world, ROUGH)[1])


@SOME
@given(worlds(oldest_s=570.0, priorities=3))
def test_so_it_is_with_priorities(world: World) -> None:
    check(decide(world, ROUGH)[1])


@SOME
@given(worlds(oldest_s=570.0, services=True, machines=5), st.floats(3.0, 30.0))
def test_so_it_is_where_tasks_crowd(world: World, more: float) -> None:
    classes = [replace(c, pressure=c.pressure * more) for c in world.classes]
    check(decide(replace(world, classes=classes), ROUGH)[1])


@SOME
@given(worlds(oldest_s=570.0, services=False))
def test_so_it_is_where_one_suffers_and_another_causes(world: World) -> None:
    cluster = world.cluster(LopsidedPolicy())
    rounds = Rounds(cluster, make_solver("ortools"), ROUGH)
    check(rounds.decide(world.now_s, world.barred_rows(cluster)))


@SOME
@given(worlds(oldest_s=570.0, growth=0.0, waiting=float("inf"), tasks=8))
def test_so_it_is_where_any_place_is_better_than_none(world: World) -> None:
    outcome = decide(world, ROUGH)[1]
    certificate = outcome.certificate
    assert certificate is not None
    assert certificate.bound <= optimum(outcome) + 1e-5


@SOME
@given(worlds(oldest_s=570.0))
def test_an_exact_round_is_optimal_and_says_so(world: World) -> None:
    outcome = decide(world, RoundSettings(exact_tasks=20, exchange_tasks=0))[1]
    certificate = outcome.certificate
    assert certificate is not None
    assert certificate.method == "exact"
    assert certificate.gap_absolute <= 1e-4
    assert certificate.primal == pytest.approx(optimum(outcome), abs=1e-5)
    for level in outcome.levels:
        assert level.exact is not None
        assert level.exact.proven


def test_where_the_work_limit_strikes_nothing_is_proven() -> None:
    world = draw_world(3, Draw(machines=8, tasks=20, classes=5))
    outcome = decide(world, ROUGH)[1]
    level = outcome.levels[0]
    none = np.zeros(0, dtype=np.int64)
    few = ExactLevel(level.evidence, most=20).solve(none, none)
    assert not few.proven
    assert few.value == np.inf
    short = ExactLevel(level.evidence).solve(none, none, limit=1e-9)
    assert not short.proven
    assert short.bound <= optimum(outcome) + 1e-6


def test_a_round_that_is_too_large_for_cp_sat_keeps_its_plan_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    world = draw_world(3, Draw(machines=8, tasks=20, classes=5))
    plain = decide(world)[1]
    monkeypatch.setattr("flowsched.round.linear.linear_optimum.MOST_COLOCATIONS", 20)
    outcome = decide(world, RoundSettings(exact_tasks=20))[1]
    assert outcome.certificate is not None
    assert plain.certificate is not None
    assert outcome.certificate.method == "lagrangian"
    assert outcome.certificate.bound == plain.certificate.bound
    assert outcome.machines.tolist() == plain.machines.tolist()


def test_the_optimum_is_that_of_trying_everything() -> None:
    """Three machines and five tasks: every way to place them, priced task by task as they come."""
    for seed in range(12):
        drawn = Draw(machines=3, tasks=5, classes=3, services=seed % 2 == 0, gpus=False)
        world = draw_world(seed, drawn)
        policy = LopsidedPolicy() if seed % 3 == 0 and not drawn.services else None
        cluster = world.cluster(policy)
        outcome = Rounds(cluster, make_solver("ortools"), ROUGH).decide(world.now_s)
        level = outcome.levels[0]
        e, model = level.evidence, level.evidence.model
        least = np.inf
        # Classes come one after the other, and in a class the dearest to leave first.
        for choice in product([-1, *e.rows.tolist()], repeat=len(level.waiting.tasks)):
            free, readings = e.free.copy(), e.readings.copy()
            total = 0.0
            for i, m in enumerate(choice):
                c = int(e.task_class[i])
                if m < 0:
                    total += float(level.waiting.cost[i])
                    continue
                felt = model.factors[model.kind[m]] * readings[m] * model.scale
                total += float(model.base[c, model.kind[m]] + model.coefficients[c] @ felt)
                free[m] -= model.demands[c]
                readings[m] += model.effects[c]
                acts = model.effects[c] > 0
                if ((free[m] < 0) & (model.demands[c] > 0)).any() or (readings[m] > model.limits[m])[acts].any():
                    total = np.inf
                if total >= least:
                    break
            least = min(least, total)
        assert optimum(outcome) == pytest.approx(least, abs=1e-5)


def test_the_primal_is_what_placements_cost_as_they_come_and_waiting() -> None:
    for seed in range(30):
        world = varied(seed)
        cluster, outcome = decide(world)
        level = outcome.levels[0]
        value = ExactLevel(level.evidence).value(cluster.tasks.task_class[outcome.tasks], outcome.machines)
        assert value == pytest.approx(level.primal, abs=1e-6)


@pytest.mark.parametrize(("primal", "bound", "optimum"), [(3.0, 3.0, True), (3.0, 2.9, False), (np.inf, 2.9, False)])
def test_only_a_plan_that_costs_no_more_than_the_bound_is_an_optimum(
    primal: float, bound: float, optimum: bool
) -> None:
    level = LevelBound(primal, bound, 0.0, np.zeros(0))
    assert level.is_optimum is optimum
    assert certify([level], {}).method == ("exact" if optimum else "lagrangian")
    assert level.with_optimum(bound, proven=True).is_optimum

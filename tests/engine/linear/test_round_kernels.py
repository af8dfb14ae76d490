"""Kernels of rounds that look at prices of many tasks or machines at once, against the definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from flowsched.cluster.machine_arrays import UNLIMITED
from flowsched.pricing.linear import kernels
from flowsched.round.linear import trade_kernels
from flowsched.support.arrays import FloatArray, IntArray

MACHINES, CLASSES, FEATURES = 6, 4, 3


def make_model(seed: int) -> tuple[kernels.Model, IntArray, IntArray]:
    """A model of whole numbers, so that prices tie and sums are exact, free resources and readings."""
    draw = np.random.default_rng(seed)
    masks = draw.integers(0, 3, (3, MACHINES)).astype(float)
    masks[2, draw.integers(MACHINES)] = np.inf
    masks[0] = 0.0
    place_of = draw.integers(0, 3, CLASSES)
    place_of[0] = 0
    model = kernels.Model(
        kind=draw.integers(0, 2, MACHINES),
        limits=np.full((MACHINES, FEATURES), 9),
        base=draw.integers(0, 2, (CLASSES, 2)).astype(float),
        coefficients=draw.integers(0, 3, (CLASSES, FEATURES)).astype(float),
        factors=draw.integers(1, 3, (2, FEATURES)).astype(float),
        demands=draw.integers(0, 3, (CLASSES, 2)),
        effects=draw.integers(0, 3, (CLASSES, FEATURES)),
        scale=1.0,
        ceiling=np.full(CLASSES, np.inf),
        place_of=place_of,
        extra=masks,
        gate_of=np.zeros(CLASSES, dtype=np.int64),
        gates=np.zeros((1, 0), dtype=np.int64),
        tie=draw.integers(0, 2, (MACHINES, 3)).astype(float),
        memory=1,
        spread=True,
    )
    return model, draw.integers(0, 6, (MACHINES, 2)), draw.integers(0, 8, (MACHINES, FEATURES))


def price(model: kernels.Model, readings: IntArray, m: int, c: int) -> float:
    felt = model.factors[model.kind[m]] * readings[m]
    place: float = model.extra[model.place_of[c], m] if model.place_of[c] else 0.0
    return float(model.base[c, model.kind[m]] + model.coefficients[c] @ felt + place)


@pytest.mark.parametrize("seed", range(10))
def test_differences_say_exactly_what_a_trade_gains(seed: int) -> None:
    model, _, _ = make_model(seed)
    machine = np.arange(MACHINES)
    task_class = np.random.default_rng(seed).integers(0, CLASSES, MACHINES)
    task_class[np.isinf(model.extra[model.place_of[task_class], machine])] = 0  # a task is only where it may be
    readings = model.effects[task_class].copy()
    for a, b in product(range(CLASSES), repeat=2):
        mine, theirs = np.flatnonzero(task_class == a), np.flatnonzero(task_class == b)
        here, there = np.empty(len(mine)), np.empty(len(theirs))
        trade_kernels.differences(mine, a, a, b, machine, model, readings, here)
        trade_kernels.differences(theirs, b, a, b, machine, model, readings, there)
        for (i, m), (j, k) in product(enumerate(mine.tolist()), enumerate(theirs.tolist())):
            if m == k:
                continue
            alone = readings.copy()
            alone[m] -= model.effects[a]
            alone[k] -= model.effects[b]
            before = price(model, alone, m, a) + price(model, alone, k, b)
            after = price(model, alone, k, a) + price(model, alone, m, b)
            assert there[j] - here[i] == before - after


@pytest.mark.parametrize("seed", range(10))
def test_the_two_cheapest_machines_have_room_and_come_first_in_their_order(seed: int) -> None:
    model, free, readings = make_model(seed)
    closed = np.random.default_rng(seed).random(MACHINES) < 0.2
    classes = np.arange(CLASSES)

    nearest, costs = kernels.two_cheapest(classes, closed, model, free, readings)

    rank: FloatArray = model.tie[:, 0] + model.tie[:, 1] * free[:, 0] + model.tie[:, 2] * free[:, 1]
    for c in classes.tolist():
        room = (model.demands[c] == 0) | (free >= model.demands[c])
        below = (model.effects[c] == 0) | (readings + model.effects[c] <= model.limits)
        open_ = room.all(axis=1) & below.all(axis=1) & ~closed
        found = sorted(
            (cost, rank[m], m)
            for m in np.flatnonzero(open_).tolist()
            if np.isfinite(cost := price(model, readings, m, c))
        )[:2]
        assert nearest[c].tolist() == [*(m for _, _, m in found), -1, -1][:2]
        assert costs[c].tolist() == [*(cost for cost, _, _ in found), np.inf, np.inf][:2]


def test_full_machines_are_looked_through_once_where_their_tasks_can_go_nowhere() -> None:
    """Two narrow tasks share a machine that they should not share; a wide one fills each of the others."""
    machines = 40
    model, _, _ = make_model(0)
    model = model._replace(
        kind=np.zeros(machines, dtype=np.int64),
        limits=np.full((machines, 1), UNLIMITED),
        base=np.zeros((2, 1)),
        coefficients=np.array([[1.0], [0.0]]),
        factors=np.ones((1, 1)),
        demands=np.array([[1], [2]]),
        effects=np.array([[1], [0]]),
        ceiling=np.full(2, np.inf),
        place_of=np.zeros(2, dtype=np.int64),
    )
    machine = np.array([0, 0, *range(1, machines)])
    free = np.zeros((machines, 1), dtype=np.int64)
    readings = np.zeros((machines, 1), dtype=np.int64)
    readings[0] = 2

    made, looked = trade_kernels.displace(
        trade_kernels.PlacementsByClass(
            np.array([0, 2, len(machine)]),
            np.arange(len(machine)),
            np.arange(2),
            machine,
            np.zeros(len(machine)),
        ),
        np.array([1.0, 0.0]),
        np.arange(machines),
        model,
        kernels.MachineLoad(free, readings),
        10_000,
    )

    assert made == 0
    assert machine.tolist() == [0, 0, *range(1, machines)] and not free.any()
    # The tasks, the machines that they would go to, and those that wide tasks would go to.
    assert looked == 2 + machines + machines

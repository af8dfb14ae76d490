"""Trades: two tasks of different classes take each other's machines, where both moves together pay and neither alone does.

For classes a and b let ``d(m)`` be what b costs on machine m more than a, beside all but the task that would leave m. A task
of a on m and one of b on k gain ``d(k) - d(m)`` by trading, so the best partners are found by sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.pricing.linear.kernels import (
    LEAST_GAIN,
    MANY,
    MachineLoad,
    Model,
    cost_beside,
    place_cost,
    prices_at,
    put,
    takes,
)
from flowsched.round.linear.compiled import borrowing, compiled
from flowsched.support.arrays import FloatArray, IntArray

TRIES = 16
"""Places without room that are looked at for a task that should go elsewhere."""


class PlacementsByClass(NamedTuple):
    """Placements that may change: ``order[first[i]:first[i + 1]]`` are those of ``classes[i]``."""

    first: IntArray
    """[classes + 1]"""
    order: IntArray
    """Positions in the arrays of placements."""
    classes: IntArray
    """[classes] number of each in the model."""
    machine: IntArray
    """[placements] row: changed in place."""
    cost: FloatArray
    """[placements] becomes what each pays beside all others."""


@borrowing
def differences(
    placements: IntArray,
    own: int,
    a: int,
    b: int,
    machine: IntArray,
    model: Model,
    readings: IntArray,
    found: FloatArray,
) -> None:
    """What a task of class b would cost more than one of class a in the place of each of some tasks of class ``own``."""
    # As in prices_at: the model's arrays are looked up once.
    kind, base, coefficients, factors, scale = model.kind, model.base, model.coefficients, model.factors, model.scale
    effects, place_a, place_b, extra = model.effects, model.place_of[a], model.place_of[b], model.extra
    for i in range(len(placements)):
        m = machine[placements[i]]
        k = kind[m]
        total = float(base[b, k] - base[a, k])
        for f in range(coefficients.shape[1]):
            felt = coefficients[b, f] - coefficients[a, f]
            if felt != 0.0:
                total += felt * factors[k, f] * (readings[m, f] - effects[own, f]) * scale
        if place_b > 0:
            total += extra[place_b, m]
        if place_a > 0:
            total -= extra[place_a, m]
        found[i] = total


@compiled
def trade(placements: PlacementsByClass, model: Model, load: MachineLoad, budget: int) -> tuple[int, int]:
    """Go through all pairs of classes once; trades made and places looked at, about ``budget`` at most."""
    first, order, classes, machine, cost = placements
    free, readings = load.free, load.readings
    trades = 0
    looked = 0
    of_here, of_there = np.empty(len(order)), np.empty(len(order))
    for i in range(len(classes)):
        if looked > budget:
            break
        for j in range(i + 1, len(classes)):
            a, b = classes[i], classes[j]
            here, there = order[first[i] : first[i + 1]], order[first[j] : first[j + 1]]
            looked += len(here) + len(there)
            if looked > budget:
                break
            gain_here, gain_there = of_here[: len(here)], of_there[: len(there)]
            differences(here, a, a, b, machine, model, readings, gain_here)
            differences(there, b, a, b, machine, model, readings, gain_there)
            # a leaves where it is dear compared with b, and goes where b is dear compared with a.
            if gain_there.max() - gain_here.min() <= LEAST_GAIN:
                continue
            from_here, from_there = np.argsort(gain_here, kind="mergesort"), np.argsort(-gain_there, kind="mergesort")
            for n in range(min(len(here), len(there))):
                x, y = here[from_here[n]], there[from_there[n]]
                if gain_there[from_there[n]] - gain_here[from_here[n]] <= LEAST_GAIN:
                    break
                m, k = machine[x], machine[y]
                if m == k:
                    continue
                put(m, a, -1, model, free, readings)
                put(k, b, -1, model, free, readings)
                before = place_cost(m, a, model, readings) + place_cost(k, b, model, readings)
                if takes(k, a, free, readings, model.limits, model.demands, model.effects) and takes(
                    m, b, free, readings, model.limits, model.demands, model.effects
                ):
                    after = place_cost(k, a, model, readings) + place_cost(m, b, model, readings)
                    if after < before - LEAST_GAIN:
                        machine[x], machine[y] = k, m
                        trades += 1
                        put(k, a, 1, model, free, readings)
                        put(m, b, 1, model, free, readings)
                        continue
                put(m, a, 1, model, free, readings)
                put(k, b, 1, model, free, readings)
    for i in range(len(classes)):
        for n in range(first[i], first[i + 1]):
            cost[order[n]] = cost_beside(machine[order[n]], classes[i], model, readings)
    return trades, looked


@borrowing
def leaving(m: int, a: int, b: int, free: IntArray, model: Model) -> int:
    """Tasks of class b that have to leave machine m so that one of class a has its resources; ``MANY`` if none would do."""
    most = 0
    for r in range(model.demands.shape[1]):
        missing = model.demands[a, r] - free[m, r]
        if model.demands[a, r] > 0 and missing > 0:
            each = model.demands[b, r]
            if each <= 0:
                return MANY
            most = max(most, (missing + each - 1) // each)
    return most


@borrowing
def move_one(placements: IntArray, machine: IntArray, here: int, there: int) -> None:
    """The first of some placements on machine ``here`` is on machine ``there`` from now on."""
    for p in placements:
        if machine[p] == here:
            machine[p] = there
            return


@borrowing
def cheapest(rows: IntArray, c: int, model: Model, free: IntArray, readings: IntArray, price: FloatArray) -> int:
    """The position of the cheapest of ``rows`` that take one task of class c; -1 if none does. ``price`` gets all prices."""
    prices_at(rows, c, model, readings, price)
    best = -1
    for n in range(len(rows)):
        if (best < 0 or price[n] < price[best]) and takes(
            rows[n], c, free, readings, model.limits, model.demands, model.effects
        ):
            best = n
    return best


@compiled
def displace(
    placements: PlacementsByClass,
    spread: FloatArray,
    rows: IntArray,
    model: Model,
    load: MachineLoad,
    budget: int,
) -> tuple[int, int]:
    """Let tasks that should not be on one machine go to one that is full, from which tasks of one other class move away.

    As many of these as make room go where each costs least; the dearest place of a class is looked at, again and again, and
    the ``TRIES`` cheapest places that it has no room on. ``spread`` by class: what one more of the same round costs the next
    one of the class, 0 for those that may share a machine; ``rows``: machines that take tasks. Other arguments as for
    ``trade``. Returns tasks that found room and machines looked at.
    """
    first, order, classes, machine, cost = placements
    free, readings = load.free, load.readings
    made = 0
    looked = 0
    there = np.zeros((len(classes), len(free)), dtype=np.int64)
    for j in range(len(classes)):
        for n in range(first[j], first[j + 1]):
            there[j, machine[order[n]]] += 1
    price = np.empty(len(rows))
    other = np.empty(len(rows))
    least = np.empty(len(classes))  # what one task of each costs anywhere, once one of class a has left its place
    away = np.empty(len(order), dtype=np.int64)
    for i in range(len(classes)):
        a = classes[i]
        step = spread[a]
        while step > 0.0 and looked <= budget:
            here = -1
            dearest = 0.0
            for n in range(first[i], first[i + 1]):
                m = machine[order[n]]
                paid = cost_beside(m, a, model, readings)
                if here < 0 or paid > dearest:
                    here = m
                    dearest = paid
            looked += first[i + 1] - first[i] + len(rows)
            prices_at(rows, a, model, readings, price)
            least[:] = np.nan
            found = False
            for near in np.argsort(price, kind="mergesort")[:TRIES]:
                k = rows[near]
                if found or dearest - price[near] <= 0.5 * step:
                    break
                if k == here or takes(k, a, free, readings, model.limits, model.demands, model.effects):
                    continue
                for j in range(len(classes)):
                    many = leaving(k, a, classes[j], free, model)
                    if j == i or many == 0 or many > there[j, k]:
                        continue
                    b = classes[j]
                    put(here, a, -1, model, free, readings)
                    if np.isnan(least[j]):
                        looked += len(rows)
                        best = cheapest(rows, b, model, free, readings, other)
                        least[j] = other[best] if best >= 0 else np.inf
                    before = dearest
                    for _ in range(many):
                        put(k, b, -1, model, free, readings)
                        before += place_cost(k, b, model, readings)
                    after = np.inf
                    if takes(k, a, free, readings, model.limits, model.demands, model.effects):
                        after = place_cost(k, a, model, readings)
                    gone = 0
                    # Machine k has no room for them again, and no other machine has changed, so none of them pays less.
                    if after <= model.ceiling[a] and after + many * least[j] < before - LEAST_GAIN:
                        put(k, a, 1, model, free, readings)
                        while gone < many and after < before - LEAST_GAIN:
                            looked += len(rows)
                            best = cheapest(rows, b, model, free, readings, other)
                            if best < 0 or other[best] > model.ceiling[b]:
                                break
                            after += other[best]
                            away[gone] = rows[best]
                            put(away[gone], b, 1, model, free, readings)
                            gone += 1
                        if gone == many and after < before - LEAST_GAIN:
                            found = True
                        else:
                            put(k, a, -1, model, free, readings)
                    if not found:
                        for n in range(gone):
                            put(away[n], b, -1, model, free, readings)
                        for _ in range(many):
                            put(k, b, 1, model, free, readings)
                        put(here, a, 1, model, free, readings)
                        continue
                    made += 1
                    move_one(order[first[i] : first[i + 1]], machine, here, k)
                    there[i, here] -= 1
                    there[i, k] += 1
                    for n in range(many):
                        move_one(order[first[j] : first[j + 1]], machine, k, away[n])
                        there[j, k] -= 1
                        there[j, away[n]] += 1
                    break
            if not found:
                break
    for i in range(len(classes)):
        for n in range(first[i], first[i + 1]):
            cost[order[n]] = cost_beside(machine[order[n]], classes[i], model, readings)
    return made, looked

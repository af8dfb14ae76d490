"""Trades: two tasks of different classes take each other's machines, where both moves together pay and neither alone does.

For classes a and b let ``d(m)`` be what a costs on machine m more than b. A task of a on m and one of b on k gain
``d(m) - d(k)`` by trading, up to what they do to each other, so the best partners are found by sorting.
"""

from __future__ import annotations

import numpy as np

from flowsched.scale.compiled import compiled
from flowsched.scale.kernels import LEAST_GAIN, Model, cost_beside, place_cost, prices_at, put, takes
from flowsched.support.arrays import FloatArray, IntArray


@compiled
def differences(rows: IntArray, a: int, b: int, model: Model, readings: IntArray) -> FloatArray:
    """What one task of class b costs on each of ``rows`` more than one of class a."""
    cost_a, cost_b = np.empty(len(rows)), np.empty(len(rows))
    prices_at(rows, a, model, readings, cost_a)
    prices_at(rows, b, model, readings, cost_b)
    return cost_b - cost_a


@compiled
def trade(
    first: IntArray,
    order: IntArray,
    classes: IntArray,
    machine: IntArray,
    cost: FloatArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    budget: int,
) -> tuple[int, int]:
    """Go through all pairs of classes once; trades made and places looked at.

    ``order[first[i]:first[i + 1]]`` are the placements of ``classes[i]``. ``cost`` becomes what each pays beside all others.
    """
    trades = 0
    looked = 0
    for i in range(len(classes)):
        if looked > budget:
            break
        for j in range(i + 1, len(classes)):
            a, b = classes[i], classes[j]
            here, there = order[first[i] : first[i + 1]], order[first[j] : first[j + 1]]
            looked += len(here) + len(there)
            if looked > budget:
                break
            gain_here = differences(machine[here], a, b, model, readings)
            gain_there = differences(machine[there], a, b, model, readings)
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

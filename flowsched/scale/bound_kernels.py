"""Compiled inner loops of the certificate: what machines could earn at given prices of tasks."""

from __future__ import annotations

import numpy as np

from flowsched.pricing.linear.kernels import Model, fit, prices_at, takes, takes_at
from flowsched.scale.compiled import borrowing, compiled
from flowsched.support.arrays import FloatArray, IntArray


@compiled
def best_alone(
    tasks: IntArray, rows: IntArray, model: Model, free: IntArray, readings: IntArray, least: FloatArray
) -> None:
    """The least that one task of each class costs on any of the machines that take it."""
    cost = np.empty(len(rows))
    good = np.empty(len(rows), dtype=np.bool_)
    for c in range(len(tasks)):
        if tasks[c] == 0:
            continue
        prices_at(rows, c, model, readings, cost)
        takes_at(rows, c, model.gate_of[c], model, free, readings, good)
        ceiling = model.ceiling[c]
        for i in range(len(rows)):
            if good[i] and cost[i] <= ceiling and cost[i] < least[c]:
                least[c] = cost[i]


_MOST_CHARGES = 16
"""Charges that are tried on a machine where equal tasks crowd each other."""


@compiled
def rent_of(
    theta: float,
    constant: float,
    gains: FloatArray,
    fits: IntArray,
    alpha: FloatArray,
    crowding: float,
    tasks: IntArray,
    tier_of: IntArray,
    largest: IntArray,
    u: int,
    widths: FloatArray,
    take: FloatArray,
) -> float:
    """The most that a machine can earn if tasks gain ``gains`` and crowd each other by at least their ``alpha``s' products.

    Tasks i and j cost each other at least ``crowding * alpha_i * alpha_j``, so with A the sum of alphas the tasks there cost
    at least ``crowding / 2 * (A^2 - sum alpha^2)``, and that is at least its tangent at A = theta, which is a price for each
    task less ``constant``. ``take``: tasks of each class in a plan that earns this much.
    """
    tiers = largest.shape[0]
    rent = np.zeros(tiers)
    who = np.full(tiers, -1, dtype=np.int64)
    half = crowding / 2.0
    total = constant
    take[:] = 0.0
    for c in range(len(gains)):
        gain = gains[c] - half * (2.0 * theta * alpha[c] - alpha[c] * alpha[c]) if theta > 0.0 else gains[c]
        if fits[c] == 0 or gain <= 0.0:
            continue
        t = tier_of[c]
        if t < 0:
            n = min(fits[c], tasks[c])
            total += gain * n
            take[c] += n
            continue
        gain /= widths[c]
        if gain > rent[t]:
            rent[t] = gain
            who[t] = c
    highest = 0.0
    holder = -1
    for back in range(tiers):
        t = tiers - 1 - back
        if rent[t] > highest:
            highest = rent[t]
            holder = who[t]
        if holder >= 0:
            wider = largest[t - 1, u] if t > 0 else 0
            units = largest[t, u] - wider
            total += highest * units
            take[holder] += units / widths[holder]
    return total


@borrowing
def whole_constant(charge: float, pair: float, most: int) -> float:
    """The most by which charges exceed what equal tasks cost each other: j of them, a whole number, cost pair j (j - 1)."""
    j = min(np.floor(charge / (2.0 * pair)) + 1.0, float(most))
    return float(j * charge - pair * j * (j - 1.0))


@compiled
def dual_value(
    pi: FloatArray,
    tasks: IntArray,
    rows: IntArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    tier_of: IntArray,
    largest: IntArray,
    unit: int,
    widths: FloatArray,
    alpha: FloatArray,
    equal: float,
    crowding: FloatArray,
    tangents: FloatArray,
    want: FloatArray,
    shown: FloatArray,
) -> float:
    """What machines can earn at task prices ``pi``: the sum of their rents, and in ``want`` the tasks that earn them.

    ``crowding[k]``: that of machines of kind k. Any tangent bounds a machine's rent, so the least over ``tangents``, which
    ascend, counts; 0 is the one without crowding. ``equal``: the alpha that all classes have that have one, else 0; then
    any charge for each task bounds it with a constant for whole tasks, and what a class gains alone is the one to try.
    ``shown`` gets the tangent and the constant of each of ``rows``, if it has a row for each.
    """
    classes = len(pi)
    total = 0.0
    top = largest.shape[1] - 1
    gains = np.zeros(classes)
    fits = np.zeros(classes, dtype=np.int64)
    take = np.zeros(classes)
    best_take = np.zeros(classes)
    # The model's arrays are looked up once: each look-up counts references.
    kind, base, coefficients, factors, scale = model.kind, model.base, model.coefficients, model.factors, model.scale
    place_of, extra, ceiling, gate_of, gates = model.place_of, model.extra, model.ceiling, model.gate_of, model.gates
    limits, demands, effects = model.limits, model.demands, model.effects
    for i in range(len(rows)):
        m = rows[i]
        k = kind[m]
        some = False
        most = 0
        crowd = 0
        for c in range(classes):
            fits[c] = 0
            if tasks[c] == 0 or base[c, k] >= pi[c]:
                continue
            # As in place_cost.
            price = float(base[c, k])
            for f in range(coefficients.shape[1]):
                if coefficients[c, f] > 0.0:
                    price += coefficients[c, f] * factors[k, f] * readings[m, f] * scale
            if place_of[c] > 0:
                price += extra[place_of[c], m]
            gain = pi[c] - price
            if gain <= 0.0 or price > ceiling[c] or (gate_of[c] > 0 and gates[gate_of[c], m] <= 0):
                continue
            if takes(m, c, free, readings, limits, demands, effects):
                fits[c] = 1
                if tier_of[c] < 0 or (equal > 0.0 and alpha[c] > 0.0):
                    fits[c] = fit(m, c, free, readings, limits, demands, effects)
                    if alpha[c] > 0.0:
                        most += min(tasks[c], fits[c])
                        crowd += 1
            gains[c] = gain
            some = some or fits[c] > 0
        if not some:
            continue
        u = min(top, max(0, free[m, 0]) // unit)
        best = rent_of(0.0, 0.0, gains, fits, alpha, 0.0, tasks, tier_of, largest, u, widths, best_take)
        theta = 0.0
        constant = 0.0
        if crowding[k] > 0.0 and best_take.sum() > 1.0:
            last = np.inf
            half = crowding[k] / 2.0
            for j in range(len(tangents)):
                at = half * tangents[j] * tangents[j]
                value = rent_of(
                    tangents[j], at, gains, fits, alpha, crowding[k], tasks, tier_of, largest, u, widths, take
                )
                if value < best:
                    best = value
                    best_take[:] = take
                    theta = tangents[j]
                    constant = at
                # Convex in where the tangent touches, so what rises does not fall again.
                if value > last:
                    break
                last = value
            if equal > 0.0 and 0 < crowd <= _MOST_CHARGES:
                pair = half * equal * equal
                for c in range(classes):
                    if fits[c] == 0 or alpha[c] == 0.0:
                        continue
                    at = whole_constant(gains[c], pair, most)
                    # The tangent that charges a task so much.
                    touch = (gains[c] / (half * equal) + equal) / 2.0
                    value = rent_of(
                        touch, at, gains, fits, alpha, crowding[k], tasks, tier_of, largest, u, widths, take
                    )
                    if value < best:
                        best = value
                        best_take[:] = take
                        best_take[c] += min(np.floor(gains[c] / (2.0 * pair)) + 1.0, float(most))
                        theta = touch
                        constant = at
        if len(shown) == len(rows):
            shown[i, 0] = theta
            shown[i, 1] = constant
        total += best
        want += best_take
    return total

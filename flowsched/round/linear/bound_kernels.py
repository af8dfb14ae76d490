"""Compiled inner loops of the certificate: what machines could earn at given prices of tasks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.pricing.linear.kernels import MachineLoad, Model, fit, prices_at, takes, takes_at
from flowsched.round.linear.compiled import borrowing, compiled
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


class BoundTasks(NamedTuple):
    """The tasks that wait, by class, and the units of CPU that their widths take."""

    counts: IntArray
    """[classes] tasks that wait."""
    tier_of: IntArray
    """[classes] tier of the width, 0 the widest; -1 for tasks that ask for no CPU."""
    units: FloatArray
    """[classes] units of one task; at least 1."""
    largest: IntArray
    """[tiers, units + 1] the most that widths of tier t and wider take of u free units."""
    unit: int
    """Milli-CPU of one unit."""


class Crowding(NamedTuple):
    """What tasks that wait cost each other at least where they come together."""

    alpha: FloatArray
    """[classes] tasks i and j cost each other at least ``factor * alpha_i * alpha_j``."""
    factor: FloatArray
    """[kinds] of machine."""
    tangents: FloatArray
    """Sums of alphas at which that is made linear, ascending."""
    equal: float
    """The alpha that all classes have that have one; else 0."""


class Tangent(NamedTuple):
    """A bound of what tasks on one machine cost each other, linear in them."""

    theta: float
    """Sum of alphas where it touches; 0: crowding is left out."""
    constant: float
    """What it adds to the rent, whatever tasks come."""
    factor: float
    """That of the machine's kind."""


@compiled
def rent_of(
    tangent: Tangent,
    gains: FloatArray,
    fits: IntArray,
    alpha: FloatArray,
    tasks: BoundTasks,
    u: int,
    take: FloatArray,
) -> float:
    """The most that a machine with u free units can earn if tasks gain ``gains`` and crowd each other by at least their
    ``alpha``s' products; by class, ``fits`` tasks at most.

    Tasks i and j cost each other at least ``factor * alpha_i * alpha_j``, so with A the sum of alphas the tasks there cost
    at least ``factor / 2 * (A^2 - sum alpha^2)``, and that is at least its tangent at A = theta, which is a price for each
    task less ``constant``. ``take``: tasks of each class in a plan that earns this much.
    """
    theta, counts, tier_of, widths, largest = tangent.theta, tasks.counts, tasks.tier_of, tasks.units, tasks.largest
    tiers = largest.shape[0]
    rent = np.zeros(tiers)
    who = np.full(tiers, -1, dtype=np.int64)
    half = tangent.factor / 2.0
    total = tangent.constant
    take[:] = 0.0
    for c in range(len(gains)):
        gain = gains[c] - half * (2.0 * theta * alpha[c] - alpha[c] * alpha[c]) if theta > 0.0 else gains[c]
        if fits[c] == 0 or gain <= 0.0:
            continue
        t = tier_of[c]
        if t < 0:
            n = min(fits[c], counts[c])
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
    tasks: BoundTasks,
    rows: IntArray,
    model: Model,
    load: MachineLoad,
    crowding: Crowding,
    want: FloatArray,
    shown: FloatArray,
) -> float:
    """What machines ``rows`` can earn at prices ``pi`` [classes] of tasks: the sum of their rents, and in ``want`` [classes]
    the tasks that earn them.

    Any tangent bounds a machine's rent, so the least over the tangents of ``crowding`` counts; 0 is the one without. Where
    all alphas are equal any charge for each task bounds it with a constant for whole tasks, and what a class gains alone is
    the one to try. ``shown`` [rows, 2] gets the tangent and the constant of each machine, if it has a row for each.

    Three phases for each machine: what each class gains there and how many of its tasks fit; the rent without crowding; and
    the tangents and charges, of which the least rent counts.
    """
    counts, tier_of, largest = tasks.counts, tasks.tier_of, tasks.largest
    alpha, factors_of_kind, tangents, equal = crowding.alpha, crowding.factor, crowding.tangents, crowding.equal
    free, readings = load.free, load.readings
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
        # What each class gains here, and how many of its tasks fit.
        m = rows[i]
        k = kind[m]
        some = False
        most = 0
        crowd = 0
        for c in range(classes):
            fits[c] = 0
            if counts[c] == 0 or base[c, k] >= pi[c]:
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
                        most += min(counts[c], fits[c])
                        crowd += 1
            gains[c] = gain
            some = some or fits[c] > 0
        if not some:
            continue
        # The rent without crowding.
        u = min(top, max(0, free[m, 0]) // tasks.unit)
        best = rent_of(Tangent(0.0, 0.0, 0.0), gains, fits, alpha, tasks, u, best_take)
        theta = 0.0
        constant = 0.0
        # The least that any tangent or charge leaves of it.
        factor = factors_of_kind[k]
        if factor > 0.0 and best_take.sum() > 1.0:
            last = np.inf
            half = factor / 2.0
            for j in range(len(tangents)):
                at = half * tangents[j] * tangents[j]
                value = rent_of(Tangent(tangents[j], at, factor), gains, fits, alpha, tasks, u, take)
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
                    value = rent_of(Tangent(touch, at, factor), gains, fits, alpha, tasks, u, take)
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

"""Compiled choice of a lone task's machine: two looks at all machines, in one call."""

from __future__ import annotations

import numpy as np

from flowsched.scale.compiled import compiled
from flowsched.scale.machine_arrays import FIXED
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

NEAR = 1e-6
"""A round tells prices apart that differ by less than this, but not in all of its steps."""
DEAREST = 1e6
"""Larger prices may be too large for a network, which says so."""


@compiled
def price_on(
    m: int,
    free: IntArray,
    readings: IntArray,
    limits: IntArray,
    factors: FloatArray,
    needs: IntArray,
    coefficients: FloatArray,
    effects: IntArray,
    allowed: BoolArray,
    slowness: FloatArray,
    preference: FloatArray,
) -> float:
    """What the task pays on machine m; infinite where it has no room or may not run.

    Summed in the order in which a round sums, so that both say the same to the last bit. Arrays by machine may be empty:
    no difference.
    """
    if len(allowed) and not allowed[m]:
        return np.inf
    for r in range(len(needs)):
        if needs[r] > 0 and free[m, r] < needs[r]:
            return np.inf
    for f in range(len(effects)):
        if effects[f] != 0 and readings[m, f] + effects[f] > limits[m, f]:
            return np.inf
    price = 0.0
    for f in range(len(coefficients)):
        if coefficients[f] != 0.0:
            price += coefficients[f] * factors[f] * float(readings[m, f]) * (1.0 / FIXED)
    extra = 0.0
    if len(slowness):
        extra += slowness[m]
    if len(preference):
        extra += preference[m]
    return float(price + extra) if np.isfinite(extra) else np.inf


@compiled
def share_in_use(m: int, cpu: int, memory: int, allocatable: IntArray, free: IntArray) -> float:
    """Rank of machine m among those with its price, weighed as :func:`~flowsched.scale.machine_arrays.ties` does."""
    known, shares = 0.0, np.zeros(2)
    for i, r in enumerate((cpu, memory)):
        if allocatable[m, r] > 0:
            known += 1.0
            shares[i] = -0.5 / allocatable[m, r] * float(free[m, r])
    return float(0.5 * known + shares[0] + shares[1])


@compiled
def lone_place(
    spread: bool,
    cpu: int,
    memory: int,
    allocatable: IntArray,
    free: IntArray,
    kind: IntArray,
    readings: IntArray,
    limits: IntArray,
    factors: FloatArray,
    needs: IntArray,
    coefficients: FloatArray,
    effects: IntArray,
    allowed: BoolArray,
    slowness: FloatArray,
    preference: FloatArray,
) -> tuple[int, int, float]:
    """The task's machine, the other one where one more such task would cost least, and that cost; -1 for none.

    No machine either where the cheapest is dearer than ``DEAREST``, or where machines whose prices differ by at most
    ``NEAR`` differ in kind, readings, slowness or preference. ``factors`` by kind and feature.
    """
    count, least = len(kind), np.inf
    price = np.empty(count)
    for m in range(count):
        price[m] = price_on(
            m, free, readings, limits, factors[kind[m]], needs, coefficients, effects, allowed, slowness, preference
        )
        least = min(least, price[m])
    if not least <= DEAREST:
        return -1, -1, np.inf
    first, best, lowest = -1, -1, np.inf
    for m in range(count):
        if price[m] > least + NEAR:
            continue
        if first < 0:
            first = m
        alike = kind[m] == kind[first]
        for f in range(readings.shape[1]):
            alike &= readings[m, f] == readings[first, f]
        if len(slowness):
            alike &= slowness[m] == slowness[first]
        if len(preference):
            alike &= preference[m] == preference[first]
        if not alike:
            return -1, -1, np.inf
        rank = share_in_use(m, cpu, memory, allocatable, free) if spread else float(free[m, cpu])
        if best < 0 or rank < lowest:
            best, lowest = m, rank
    rival, cost, lowest = -1, np.inf, np.inf
    for m in range(count):
        if m == best or price[m] > cost:
            continue
        rank = share_in_use(m, cpu, memory, allocatable, free)
        if rival < 0 or price[m] < cost or rank < lowest:
            rival, cost, lowest = m, price[m], rank
    return best, rival, cost

"""Compiled choice of a lone task's machine: two looks at all machines, in one call.

Arrays are by machine row. ``order``: the rows of its machines in the order of their names. ``columns``: the column
of each resource that the task needs, -1 for one that no machine has, and ``needs`` how much. ``suffers`` and ``causes`` are
the task's sensitivity and pressure. ``allowed``, ``slowness`` and ``preference`` may be empty: no difference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.round.linear.compiled import borrowing, compiled
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

NEAR = 1e-6
"""A round tells prices apart that differ by less than this, but not in all of its steps."""
DEAREST = 1e6
"""Larger prices may be too large for a network, which says so."""


class LoneMachines(NamedTuple):
    """What is read of machines, by row, as compiled code takes it."""

    allocatable: IntArray
    free: IntArray
    readings: IntArray
    """Pressure, sensitivity and the slope of headroom, in units of 1/FIXED."""
    limits: IntArray
    """Of the same."""
    kind: IntArray
    bandwidth: FloatArray
    """By kind."""


@borrowing
def price_on(
    row: int,
    columns: IntArray,
    needs: IntArray,
    machines: LoneMachines,
    suffers: float,
    causes: float,
    allowed: BoolArray,
    slowness: FloatArray,
    preference: FloatArray,
) -> float:
    """What the task pays on a machine; infinite where it has no room or may not run.

    Summed in the order in which a round sums, so that both say the same to the last bit.
    """
    if len(allowed) and not allowed[row]:
        return np.inf
    for r in range(len(needs)):
        if needs[r] > 0 and free_on(row, columns[r], machines) < needs[r]:
            return np.inf
    added = int(np.rint(causes * FIXED))
    pressure, sensitivity, slope = machines.readings[row, 0], machines.readings[row, 1], machines.readings[row, 2]
    if added != 0 and pressure + added > machines.limits[row, 0]:
        return np.inf
    bandwidth, price = machines.bandwidth[machines.kind[row]], 0.0
    if suffers != 0.0:
        price += suffers * bandwidth * float(pressure) * (1.0 / FIXED)
    if causes != 0.0:
        price += causes * bandwidth * float(sensitivity) * (1.0 / FIXED)
        price += causes * float(slope) * (1.0 / FIXED)
    extra = 0.0
    if len(slowness):
        extra += slowness[row]
    if len(preference):
        extra += preference[row]
    return float(price + extra) if np.isfinite(extra) else np.inf


@borrowing
def free_on(row: int, column: int, machines: LoneMachines) -> int:
    """What is left of a resource on a machine; below 0 where more is booked than allocatable."""
    return int(machines.free[row, column]) if column >= 0 else 0


@compiled
def share_in_use(row: int, cpu: int, memory: int, machines: LoneMachines) -> float:
    """Rank of a machine among those with its price, weighed as :func:`~flowsched.cluster.machine_arrays.ties` does."""
    known, shares = 0.0, np.zeros(2)
    for i, column in enumerate((cpu, memory)):
        if column >= 0 and machines.allocatable[row, column] > 0:
            known += 1.0
            shares[i] = -0.5 / machines.allocatable[row, column] * float(free_on(row, column, machines))
    return float(0.5 * known + shares[0] + shares[1])


@compiled
def lone_place(
    spread: bool,
    cpu: int,
    memory: int,
    order: IntArray,
    columns: IntArray,
    needs: IntArray,
    allocatable: IntArray,
    free: IntArray,
    readings: IntArray,
    limits: IntArray,
    kind: IntArray,
    bandwidth: FloatArray,
    suffers: float,
    causes: float,
    allowed: BoolArray,
    slowness: FloatArray,
    preference: FloatArray,
) -> tuple[int, int, float]:
    """(the task's row, that of the other machine where one more such task would cost least, that cost); -1 for none.

    No machine either where the cheapest is dearer than ``DEAREST``, or where machines whose prices differ by at most
    ``NEAR`` differ in bandwidth, in what runs there, slowness or preference. ``cpu``, ``memory``: their columns.
    """
    # Taken apart, as numba looks at such a tuple for a while.
    machines = LoneMachines(allocatable, free, readings, limits, kind, bandwidth)
    count, least = len(order), np.inf
    price = np.empty(count)
    for m in range(count):
        price[m] = price_on(order[m], columns, needs, machines, suffers, causes, allowed, slowness, preference)
        least = min(least, price[m])
    if not least <= DEAREST:
        return -1, -1, np.inf
    first, best, lowest = -1, -1, np.inf
    for m in range(count):
        if price[m] > least + NEAR:
            continue
        row = order[m]
        if first < 0:
            first = row
        alike = machines.kind[row] == machines.kind[first]
        for f in range(3):
            alike &= machines.readings[row, f] == machines.readings[first, f]
        if len(slowness):
            alike &= slowness[row] == slowness[first]
        if len(preference):
            alike &= preference[row] == preference[first]
        if not alike:
            return -1, -1, np.inf
        rank = _rank(spread, row, cpu, memory, machines)
        if best < 0 or rank < lowest:
            best, lowest = m, rank
    rival, cost, lowest = -1, np.inf, np.inf
    for m in range(count):
        if m == best or price[m] > cost:
            continue
        rank = share_in_use(order[m], cpu, memory, machines)
        if rival < 0 or price[m] < cost or rank < lowest:
            rival, cost, lowest = m, price[m], rank
    return order[best], order[rival] if rival >= 0 else -1, cost


@compiled
def _rank(spread: bool, row: int, cpu: int, memory: int, machines: LoneMachines) -> float:
    if spread:
        return float(share_in_use(row, cpu, memory, machines))
    return float(free_on(row, cpu, machines))

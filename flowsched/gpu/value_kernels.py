"""Compiled inner loops of what a machine is worth to the expected demand, and of what a task takes from that.

The value of a machine is the least, over prices of a core and of a GiB, of what its CPU and memory cost and of what its
devices hold beside them: the Lagrangian of the machine's own knapsack. C columns: samples of the demand times pairs of such
prices, all pairs of a sample side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowsched.gpu.compiled import borrowing, compiled
from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.fit_kernels import fits, free_devices, take
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.support.arrays import FloatArray, IntArray

SmallArray = NDArray[np.int32]

CELL = 10
"""Milli of a cell of a device, as in :mod:`flowsched.gpu.device_patterns`."""
LANES = 8
"""Columns that are looked at together; a sample has a multiple of them."""
DEAREST = 1 << 30
"""Steps that no price reaches."""
AT_LEAST = -2
"""In place of a device: the price is not known, but not below what stands there."""


class ValueTables(NamedTuple):
    """What devices are worth, for K models and S shapes. All prices in devices."""

    core: FloatArray
    """[C] price of a core."""
    gib: FloatArray
    """[C] price of a GiB."""
    taken: FloatArray
    """[S, C] what a shape's CPU and memory cost."""
    partial: FloatArray
    """[kinds of models, cells + 1, C] by kind and cells left on a device that is used."""
    whole: FloatArray
    """[kinds of models, D + 1, C] by kind and number of free devices."""
    first: IntArray
    """[samples + 1] the first column of each sample, and the number of columns."""
    least: SmallArray
    """[S] steps below which no price of a shape is."""
    at_least: FloatArray
    """[S, samples + 1] what a place costs a shape at least: the sum over samples from one on. The last is 0."""
    kind: IntArray
    """[K] which of ``partial`` and ``whole`` is a model's: models that the same shapes may run on share theirs."""
    samples: int
    step: float
    """Prices that differ by less are equal."""


class ValueState(NamedTuple):
    """What is kept of M machines between decisions.

    R: rows, one for each machine and one for each of the E kinds of which there are several at first, in this order.
    """

    row: IntArray
    """[M] its row: that of its kind until something changes on it, or its own."""
    base: FloatArray
    """[R, C] cost of what is left on a machine."""
    value: FloatArray
    """[R, samples]"""
    price: SmallArray
    """[S, M] in steps; ``DEAREST`` where a shape does not fit."""
    device: SmallArray
    """[S, M] the device of that price; -1 for whole ones; ``AT_LEAST`` where the price may be higher."""
    kind_price: SmallArray
    """[S, E] in steps, of a machine that is as it was at first; -1 where it was not asked for."""
    kind_device: SmallArray
    """[S, E] the device of that price."""


@borrowing
def revalue(m: int, row: int, machines: DeviceArrays, tables: ValueTables, state: ValueState) -> None:
    """Work out the value of machine m anew, in a row."""
    base, columns, model = state.base[row], len(tables.core), machines.model[m]
    cores, gib = machines.cpu[m] / 1000.0, machines.memory[m] / 1024.0
    for c in range(columns):
        base[c] = tables.core[c] * cores + tables.gib[c] * gib
    if model >= 0:
        devices, kind = machines.devices[m], tables.kind[model]
        for d in range(len(devices)):
            if CELL <= devices[d] < WHOLE_MILLI:
                held = tables.partial[kind, devices[d] // CELL]
                for c in range(columns):
                    base[c] += held[c]
        unused = tables.whole[kind, free_devices(devices)]
        for c in range(columns):
            base[c] += unused[c]
    for j in range(tables.samples):
        least = np.inf
        for c in range(tables.first[j], tables.first[j + 1]):
            least = min(least, base[c])
        state.value[row, j] = least


@borrowing
def revalue_rows(some: IntArray, machines: DeviceArrays, tables: ValueTables, state: ValueState) -> None:
    """Work out the values of the rows that some machines have."""
    for m in some:
        revalue(m, state.row[m], machines, tables, state)


@borrowing
def forget_prices(m: int, tables: ValueTables, state: ValueState) -> None:
    """No price of machine m is known any more."""
    for s in range(len(tables.least)):
        state.price[s, m] = tables.least[s]
        state.device[s, m] = AT_LEAST


@borrowing
def refresh(m: int, machines: DeviceArrays, tables: ValueTables, state: ValueState) -> None:
    """Machine m has changed."""
    state.row[m] = m
    revalue(m, m, machines, tables, state)
    forget_prices(m, tables, state)


@borrowing
def value_left(
    base: FloatArray, taken: FloatArray, gone: FloatArray, left: FloatArray, also: FloatArray, first: int, last: int
) -> float:
    """The least over some columns when CPU and memory are taken, a device's worth is gone and others are left."""
    # Side by side, so that a processor takes several at once.
    a = b = c = d = e = f = g = h = np.inf
    for i in range(first, last, LANES):
        a = min(a, base[i] - taken[i] - gone[i] + left[i] + also[i])
        b = min(b, base[i + 1] - taken[i + 1] - gone[i + 1] + left[i + 1] + also[i + 1])
        c = min(c, base[i + 2] - taken[i + 2] - gone[i + 2] + left[i + 2] + also[i + 2])
        d = min(d, base[i + 3] - taken[i + 3] - gone[i + 3] + left[i + 3] + also[i + 3])
        e = min(e, base[i + 4] - taken[i + 4] - gone[i + 4] + left[i + 4] + also[i + 4])
        f = min(f, base[i + 5] - taken[i + 5] - gone[i + 5] + left[i + 5] + also[i + 5])
        g = min(g, base[i + 6] - taken[i + 6] - gone[i + 6] + left[i + 6] + also[i + 6])
        h = min(h, base[i + 7] - taken[i + 7] - gone[i + 7] + left[i + 7] + also[i + 7])
    return min(min(min(a, b), min(c, d)), min(min(e, f), min(g, h)))


@compiled
def price_on(
    m: int,
    s: int,
    device: int,
    limit: float,
    machines: DeviceArrays,
    shapes: ShapeArrays,
    tables: ValueTables,
    state: ValueState,
) -> float:
    """What machine m loses in value to a task of shape s, the mean over the samples; infinity if it is ``limit`` or more.

    A share is taken from ``device``, whole devices from the free ones.
    """
    row, kind, count, share = state.row[m], tables.kind[max(machines.model[m], 0)], shapes.count[s], shapes.share[s]
    nothing = tables.partial[kind, 0]
    gone, left, also = nothing, nothing, nothing
    if count > 0:
        devices = machines.devices[m]
        if device >= 0 and devices[device] < WHOLE_MILLI:
            gone = tables.partial[kind, devices[device] // CELL]
            left = tables.partial[kind, (devices[device] - share) // CELL]
        else:
            free = free_devices(devices)
            gone, left = tables.whole[kind, free], tables.whole[kind, free - count]
            if share < WHOLE_MILLI:
                also = tables.partial[kind, (WHOLE_MILLI - share) // CELL]
    base, taken, total = state.base[row], tables.taken[s], 0.0
    for j in range(tables.samples):
        first, last = tables.first[j], tables.first[j + 1]
        total += state.value[row, j] - value_left(base, taken, gone, left, also, first, last)
        # Most machines are not the cheapest one, and a few samples tell.
        if total + tables.at_least[s, j + 1] >= limit * tables.samples:
            return np.inf
    return total / tables.samples


@borrowing
def best_device(
    m: int,
    s: int,
    limit: float,
    machines: DeviceArrays,
    shapes: ShapeArrays,
    tables: ValueTables,
    state: ValueState,
) -> tuple[float, int]:
    """What machine m, which takes a task of shape s, loses in value where it loses least, and the device of that.

    The device is -1 for whole ones. Infinity if every loss is ``limit`` or more.
    """
    if shapes.count[s] != 1 or shapes.share[s] == WHOLE_MILLI:
        return price_on(m, s, -1, limit, machines, shapes, tables, state), -1
    best, chosen = np.inf, -1
    devices = machines.devices[m]
    for d in range(len(devices)):
        known = devices[d] < shapes.share[s]
        for e in range(d):
            known = known or devices[e] == devices[d]
        if not known:
            price = price_on(m, s, d, min(limit, best), machines, shapes, tables, state)
            if price < best:
                best, chosen = price, d
    return best, chosen


@borrowing
def price_everywhere(
    machines: DeviceArrays, shapes: ShapeArrays, tables: ValueTables, state: ValueState, prices: FloatArray
) -> None:
    """Into ``prices`` [S, M] what each machine loses to a task of each shape; infinity where it does not fit."""
    for s in range(len(shapes.cpu)):
        for m in range(len(machines.cpu)):
            prices[s, m] = np.inf
            if fits(m, s, machines, shapes):
                prices[s, m] = best_device(m, s, np.inf, machines, shapes, tables, state)[0]


@borrowing
def place_together(
    m: int,
    arrivals: IntArray,
    machines: DeviceArrays,
    shapes: ShapeArrays,
    tables: ValueTables,
    state: ValueState,
    device: IntArray,
) -> float:
    """Book tasks of some shapes on machine m one after the other; what it loses, infinity if one does not fit.

    Of ``arrivals`` [N], shapes, ``device`` [N] becomes the device that a share was taken from, -1 for whole ones.
    """
    total = 0.0
    for n in range(len(arrivals)):
        if not fits(m, arrivals[n], machines, shapes):
            return np.inf
        price, device[n] = best_device(m, arrivals[n], np.inf, machines, shapes, tables, state)
        take(m, arrivals[n], device[n], machines, shapes)
        refresh(m, machines, tables, state)
        total += price
    return total

"""Compiled inner loops of moving one task aside for another that fits nowhere, at the same prices.

Only tasks with a share of a GPU or without one are moved: those of whole GPUs are few, and moving them is dear.
"""

from __future__ import annotations

import numpy as np

from benchmarks.openb_place_kernels import place
from flowsched.gpu.compiled import borrowing, compiled
from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.fit_kernels import fits, model_fits, take
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.gpu.value_kernels import ValueState, ValueTables, best_device, refresh, revalue
from flowsched.support.arrays import IntArray


@borrowing
def give_back(m: int, s: int, device: int, machines: DeviceArrays, shapes: ShapeArrays) -> None:
    """Undo ``take`` for a task with a share or without a GPU."""
    machines.cpu[m] += shapes.cpu[s]
    machines.memory[m] += shapes.memory[s]
    if shapes.count[s] > 0:
        machines.devices[m, device] += shapes.share[s]


@borrowing
def fits_without(m: int, s: int, other: int, device: int, machines: DeviceArrays, shapes: ShapeArrays) -> bool:
    """Whether machine m takes a task of shape s once one of another shape is gone from a device."""
    if (
        machines.cpu[m] + shapes.cpu[other] < shapes.cpu[s]
        or machines.memory[m] + shapes.memory[other] < shapes.memory[s]
    ):
        return False
    if not model_fits(m, s, machines, shapes):
        return False
    give_back(m, other, device, machines, shapes)
    found = fits(m, s, machines, shapes)
    take(m, other, device, machines, shapes)
    return bool(found)


@borrowing
def two_cheapest(
    s: int, machines: DeviceArrays, shapes: ShapeArrays, tables: ValueTables, state: ValueState, found: IntArray
) -> None:
    """Into ``found`` [4] the cheapest machine for a task of shape s and its device, and the second; -1 for none."""
    found[:] = -1
    best, second = np.inf, np.inf
    for m in range(len(machines.cpu)):
        if fits(m, s, machines, shapes):
            price, device = best_device(m, s, second, machines, shapes, tables, state)
            if price < best:
                second, found[2], found[3] = best, found[0], found[1]
                best, found[0], found[1] = price, m, device
            elif price < second:
                second, found[2], found[3] = price, m, device


@borrowing
def mean_value(row: int, state: ValueState) -> float:
    """Of a machine, over the samples."""
    total = 0.0
    for value in state.value[row]:
        total += value
    return float(total / state.value.shape[1])


@compiled
def best_move(
    s: int,
    shape_of: IntArray,
    at: IntArray,
    on: IntArray,
    machines: DeviceArrays,
    shapes: ShapeArrays,
    tables: ValueTables,
    state: ValueState,
) -> tuple[int, int, int]:
    """Which task to move, and to which machine and device, so that one of shape s fits where it was; -1 for none.

    The machines lose least by it, both together. Of the tasks [N], ``at`` is the machine, -1 for none, ``on`` the device.
    """
    elsewhere = np.full((len(shapes.cpu), 4), -2, dtype=np.int64)
    best, moved, target, device = np.inf, -1, -1, -1
    for n in range(len(shape_of)):
        m, t = at[n], shape_of[n]
        if m < 0 or shapes.share[t] == WHOLE_MILLI or not fits_without(m, s, t, on[n], machines, shapes):
            continue
        if elsewhere[t, 0] == -2:
            two_cheapest(t, machines, shapes, tables, state, elsewhere[t])
        choice = 2 if elsewhere[t, 0] == m else 0
        to = elsewhere[t, choice]
        if to < 0:
            continue
        price = best_device(to, t, np.inf, machines, shapes, tables, state)[0]
        row = state.row[m]
        price += mean_value(row, state)
        give_back(m, t, on[n], machines, shapes)
        revalue(m, row, machines, tables, state)
        price += best_device(m, s, np.inf, machines, shapes, tables, state)[0] - mean_value(row, state)
        take(m, t, on[n], machines, shapes)
        revalue(m, row, machines, tables, state)
        if price < best:
            best, moved, target, device = price, n, to, elsewhere[t, choice + 1]
    return moved, target, device


@compiled
def place_all(
    first: int,
    last: int,
    arrivals: IntArray,
    machines: DeviceArrays,
    shapes: ShapeArrays,
    tables: ValueTables,
    state: ValueState,
    where: IntArray,
    device: IntArray,
    at: IntArray,
    on: IntArray,
    moves: IntArray,
    made: int,
) -> int:
    """Place the arrivals from ``first`` to ``last`` one after the other, with at most one move for each that fits nowhere.

    Of ``arrivals`` [N], shapes, ``where`` [N] becomes the machine, -1 for none, and ``device`` [N] the device that a share
    was taken from, -1 for whole ones. ``at`` and ``on`` [N] are where tasks are by now. A row of ``moves`` [most, 4]
    becomes: for which arrival, the task that is moved, its machine and device then; ``made`` of them are there already.
    Returns how many are there in the end.
    """
    for n in range(first, last):
        s = arrivals[n]
        where[n], device[n] = place(s, machines, shapes, tables, state)
        if where[n] < 0 and made < len(moves):
            moved, target, new = best_move(s, arrivals[:n], at[:n], on[:n], machines, shapes, tables, state)
            if moved >= 0:
                m, t = at[moved], arrivals[moved]
                give_back(m, t, on[moved], machines, shapes)
                refresh(m, machines, tables, state)
                chosen = best_device(m, s, np.inf, machines, shapes, tables, state)[1]
                take(m, s, chosen, machines, shapes)
                refresh(m, machines, tables, state)
                take(target, t, new, machines, shapes)
                refresh(target, machines, tables, state)
                at[moved], on[moved] = target, new
                moves[made, 0], moves[made, 1], moves[made, 2], moves[made, 3] = n, moved, target, new
                made += 1
                where[n], device[n] = m, chosen
        at[n], on[n] = where[n], device[n]
    return made

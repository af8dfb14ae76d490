"""Prices of places for tasks with GPUs: the value that a machine loses for the demand that is expected."""

from __future__ import annotations

import numpy as np

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.device_patterns import CELLS, cells_of
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.gpu.value_kernels import ValueState, ValueTables, refresh
from flowsched.support.arrays import FloatArray

CORE_PRICES = (0.0, 0.004, 0.008, 0.015, 0.025, 0.035, 0.05, 0.065, 0.085, 0.11, 0.15, 0.2, 0.3, 0.5)
"""Prices of a core that are tried, in devices."""
GIB_PRICES = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06)
"""Prices of a GiB that are tried, in devices."""
STEP = 0.04
"""Prices that differ by less are equal: as fine as FGD's score, one per cent of its sigmoid."""
FORBIDDEN_PRICE = 1e6
"""Of a GiB, where a pair of prices is not allowed."""
_HIGH = 1 << 40


def value_tables(prices: FloatArray, shapes: ShapeArrays, most_devices: int, step: float = STEP) -> ValueTables:
    """Tables for some sets of prices of the shapes, [samples, S]: each is an equally likely future.

    With :func:`for_shapes` they serve other shapes than those of the demand.
    """
    core, gib = (grid.reshape(-1) for grid in np.meshgrid(CORE_PRICES, GIB_PRICES, indexing="ij"))
    cores, gibs = shapes.cpu / 1000.0, shapes.memory / 1024.0
    taken = core[:, None] * cores + gib[:, None] * gibs  # [grid, S]
    without = shapes.count == 0
    allowed = np.stack([(taken[:, without] >= row[without] - 1e-9).all(axis=1) for row in prices])
    net = prices[:, None, :] - taken  # [samples, grid, S]
    columns = net.transpose(2, 0, 1).reshape(len(cores), len(prices) * len(core))  # [S, C]
    models = shapes.allowed.shape[1]
    width = columns.shape[1]
    partial = np.zeros((models, CELLS + 1, width))
    whole = np.zeros((models, most_devices + 1, width))
    shared = (shapes.count == 1) & (shapes.share < WHOLE_MILLI)
    cells = cells_of(shapes.share)
    for model in range(models):
        sizes = {
            int(size): columns[shared & (cells == size) & shapes.allowed[:, model]].max(axis=0, initial=0.0)
            for size in np.unique(cells[shared & shapes.allowed[:, model]])
        }
        for cell in range(1, CELLS + 1):
            best = partial[model, cell]
            best[:] = partial[model, cell - 1]
            for size, gain in sizes.items():
                if size <= cell:
                    np.maximum(best, gain + partial[model, cell - size], out=best)
        sets = {
            count: columns[(shapes.count == count) & ~shared & shapes.allowed[:, model]].max(axis=0, initial=0.0)
            for count in range(1, most_devices + 1)
        }
        for free in range(1, most_devices + 1):
            best = whole[model, free]
            best[:] = whole[model, free - 1] + partial[model, CELLS]
            for count in range(1, free + 1):
                np.maximum(best, whole[model, free - count] + sets[count], out=best)
    mean = prices.mean(axis=0)
    return ValueTables(
        np.tile(core, len(prices)),
        np.where(allowed, gib, FORBIDDEN_PRICE).reshape(-1),
        np.tile(taken.T, (1, len(prices))),
        partial,
        whole,
        np.floor(mean / step + 0.5).astype(np.int64),
        len(prices),
        step,
    )


def for_shapes(tables: ValueTables, shapes: ShapeArrays) -> ValueTables:
    """The same values of machines, with what tasks of other shapes take."""
    cost = np.outer(shapes.cpu / 1000.0, tables.core) + np.outer(shapes.memory / 1024.0, np.minimum(tables.gib, 1.0))
    return tables._replace(taken=cost, least=np.full(len(shapes.cpu), -_HIGH, dtype=np.int64))


def value_state(machines: DeviceArrays, tables: ValueTables) -> ValueState:
    """The values of machines as they are now; no place is priced yet."""
    count, shapes = len(machines.cpu), len(tables.least)
    kinds = np.concatenate(
        [np.stack([machines.model, machines.cpu, machines.memory], axis=1), machines.devices], axis=1
    )
    _, first, kind = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    rows = count + len(first)
    state = ValueState(
        count + kind.reshape(-1),
        np.zeros((rows, len(tables.core))),
        np.zeros((rows, tables.samples)),
        np.zeros(rows, dtype=np.int64),
        np.full((shapes, rows), -1, dtype=np.int64),
        np.zeros((shapes, rows), dtype=np.int64),
        np.full((shapes, rows), -1, dtype=np.int64),
    )
    for number, m in enumerate(first):
        refresh(int(m), count + number, machines, tables, state)
    return state

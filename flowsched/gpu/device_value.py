"""Prices of places for tasks with GPUs: the value that a machine loses for the demand that is expected."""

from __future__ import annotations

import numpy as np

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.device_patterns import CELLS, cells_of
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.gpu.value_kernels import AT_LEAST, CELL, LANES, ValueState, ValueTables, revalue_rows
from flowsched.support.arrays import FloatArray

CORE_PRICES = (0.0, 0.004, 0.008, 0.015, 0.025, 0.035, 0.05, 0.065, 0.085, 0.11, 0.15, 0.2, 0.3, 0.5)
"""Prices of a core that are tried, in devices."""
GIB_PRICES = (0.0, 0.002, 0.008, 0.03)
"""Prices of a GiB that are tried, in devices."""
STEP = 0.04
"""Prices that differ by less are equal: as fine as FGD's score, one per cent of its sigmoid."""
_ROUNDING = 1e-9


def value_tables(prices: FloatArray, shapes: ShapeArrays, most_devices: int, step: float = STEP) -> ValueTables:
    """Tables for some sets of prices of the shapes, [samples, S]: each is an equally likely future.

    With :func:`for_shapes` they serve other shapes than those of the demand.
    """
    grids = [_grid(row, shapes) for row in prices]
    core, gib = (np.concatenate([grid[i] for grid in grids]) for i in (0, 1))
    widths = [len(grid[0]) for grid in grids]
    taken = _taken(core, gib, shapes)
    columns = np.repeat(prices, widths, axis=0).T - taken  # [S, C]
    allowed, kind = np.unique(shapes.allowed, axis=1, return_inverse=True)
    kinds = allowed.shape[1]
    partial = np.zeros((kinds, CELLS + 1, len(core)))
    whole = np.zeros((kinds, most_devices + 1, len(core)))
    shared = (shapes.count == 1) & (shapes.share < WHOLE_MILLI)
    cells = cells_of(shapes.share)
    for k in range(kinds):
        sizes = {
            int(size): columns[shared & (cells == size) & allowed[:, k]].max(axis=0, initial=0.0)
            for size in np.unique(cells[shared & allowed[:, k]])
        }
        for cell in range(1, CELLS + 1):
            best = partial[k, cell]
            best[:] = partial[k, cell - 1]
            for size, gain in sizes.items():
                if size <= cell:
                    np.maximum(best, gain + partial[k, cell - size], out=best)
        sets = {
            count: columns[(shapes.count == count) & ~shared & allowed[:, k]].max(axis=0, initial=0.0)
            for count in range(1, most_devices + 1)
        }
        for free in range(1, most_devices + 1):
            best = whole[k, free]
            best[:] = whole[k, free - 1] + partial[k, CELLS]
            for count in range(1, free + 1):
                np.maximum(best, whole[k, free - count] + sets[count], out=best)
    # A place may cost less than the price of a share that is no multiple of a cell: it may take a cell that was cut already.
    certain = np.where(shapes.share % CELL == 0, prices, 0.0)
    return ValueTables(
        core=core,
        gib=gib,
        taken=taken,
        partial=partial,
        whole=whole,
        first=np.concatenate([[0], np.cumsum(widths)]).astype(np.int64),
        least=np.floor(certain.mean(axis=0) / step + 0.5 - _ROUNDING).astype(np.int32),
        at_least=_sums_from(certain),
        kind=kind.reshape(-1).astype(np.int64),
        samples=len(prices),
        step=step,
    )


def _grid(prices: FloatArray, shapes: ShapeArrays) -> tuple[FloatArray, FloatArray]:
    """Pairs of prices, of a core and of a GiB, at which no task without a GPU gains; a multiple of ``LANES``.

    The dearest pair is made dearer where not even that one would do.
    """
    core, gib = (grid.reshape(-1).copy() for grid in np.meshgrid(CORE_PRICES, GIB_PRICES, indexing="ij"))
    without = (shapes.count == 0) & ((shapes.cpu > 0) | (shapes.memory > 0))
    taken, worth = _taken(core, gib, shapes)[without], prices[without]
    dearer = max(1.0, float((worth / taken[:, -1]).max(initial=0.0)))
    core[-1] *= dearer
    gib[-1] *= dearer
    taken[:, -1] *= dearer
    kept = np.flatnonzero((taken >= worth[:, None] - _ROUNDING).all(axis=0))
    kept = np.concatenate([kept, np.repeat(kept[-1:], -len(kept) % LANES)])
    return core[kept], gib[kept]


def _taken(core: FloatArray, gib: FloatArray, shapes: ShapeArrays) -> FloatArray:
    """[S, C] what the CPU and memory of each shape cost."""
    cost: FloatArray = np.outer(shapes.cpu / 1000.0, core) + np.outer(shapes.memory / 1024.0, gib)
    return cost


def _sums_from(prices: FloatArray) -> FloatArray:
    """[S, samples + 1] of prices [samples, S]: their sums from each sample on."""
    sums = np.zeros((prices.shape[1], len(prices) + 1))
    sums[:, :-1] = np.cumsum(prices[::-1], axis=0)[::-1].T
    return sums


def for_shapes(tables: ValueTables, shapes: ShapeArrays) -> ValueTables:
    """The same values of machines, with what tasks of other shapes take."""
    count = len(shapes.cpu)
    return tables._replace(
        taken=_taken(tables.core, tables.gib, shapes),
        least=np.zeros(count, dtype=np.int32),
        at_least=np.zeros((count, tables.samples + 1)),
    )


def value_state(machines: DeviceArrays, tables: ValueTables) -> ValueState:
    """The values of machines as they are now; no place is priced yet."""
    count, shapes = len(machines.cpu), len(tables.taken)
    kinds = np.concatenate(
        [np.stack([machines.model, machines.cpu, machines.memory], axis=1), machines.devices], axis=1
    )
    _, first, kind, alike = np.unique(kinds, axis=0, return_index=True, return_inverse=True, return_counts=True)
    several = alike > 1
    # A machine that is like no other has its own row from the beginning.
    number = np.where(several, count + np.cumsum(several) - 1, first)[kind.reshape(-1)]
    shared = first[several]
    rows, small = count + len(shared), np.int32
    state = ValueState(
        row=number,
        base=np.zeros((rows, len(tables.core))),
        value=np.zeros((rows, tables.samples)),
        price=np.repeat(tables.least[:, None], count, axis=1),
        device=np.full((shapes, count), AT_LEAST, dtype=small),
        kind_price=np.full((shapes, len(shared)), -1, dtype=small),
        kind_device=np.full((shapes, len(shared)), -1, dtype=small),
    )
    revalue_rows(np.concatenate([first[~several], shared]), machines, tables, state)
    return state

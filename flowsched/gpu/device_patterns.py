"""Ways to cut one device into shares: the best one at given prices, by a knapsack over cells of ten milli."""

from __future__ import annotations

import numpy as np

from flowsched.support.arrays import FloatArray, IntArray

CELL_MILLI = 10
CELLS = 1000 // CELL_MILLI
"""Cells of a device."""


def cells_of(share_milli: IntArray) -> IntArray:
    """Shares in whole cells, rounded up."""
    return -(-share_milli // CELL_MILLI)


def best_pattern(sizes: IntArray, prices: FloatArray) -> tuple[float, IntArray]:
    """The dearest set of shares that one device holds: its value, and how many of each size.

    Args:
        sizes: cells of each size, from 1 to ``CELLS``.
        prices: of each size, at least 0.
    """
    # Few sizes, and fewer that are worth something: numpy's calls would take longer than the arithmetic.
    every = zip(range(len(sizes)), sizes.tolist(), prices.tolist(), strict=True)
    worth = [(n, cells, price) for n, cells, price in every if price > 0.0]
    best, taken = [0.0] * (CELLS + 1), [-1] * (CELLS + 1)
    for cell in range(1, CELLS + 1):
        most, chosen = best[cell - 1], -1
        for n, cells, price in worth:
            if cells <= cell and price + best[cell - cells] > most:
                most, chosen = price + best[cell - cells], n
        best[cell], taken[cell] = most, chosen
    counts = np.zeros(len(sizes), dtype=np.int64)
    cell = CELLS
    while cell > 0:
        if taken[cell] < 0:
            cell -= 1
        else:
            counts[taken[cell]] += 1
            cell -= int(sizes[taken[cell]])
    return best[CELLS], counts

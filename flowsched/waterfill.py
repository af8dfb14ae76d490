"""Equal tasks onto machines whose price rises with every one of them, cheapest places first, many segments at once."""

from __future__ import annotations

import numpy as np

from flowsched.arrays import FloatArray, IntArray

_HALVINGS = 40


def waterfill(base: FloatArray, step: FloatArray, slots: IntArray, segment: IntArray, wanted: IntArray) -> IntArray:
    """How many tasks each machine takes so that every segment places what it wants, or all that it has slots for.

    The j-th task on machine m costs ``base[m] + (j - 1) * step[m]`` with ``step >= 0``, so the cheapest places are found by
    a price for each segment below which all places are taken. Ties go to the machine that comes first.
    """
    slots = np.minimum(np.maximum(slots, 0), wanted[segment])
    there = np.bincount(segment, weights=slots, minlength=len(wanted)).astype(np.int64)
    scarce = (there > wanted)[segment]
    take = np.where(scarce, 0, slots)
    rows = np.flatnonzero(scarce & (slots > 0))
    if len(wanted) == 1 and len(rows) > wanted[0]:
        rows = _first_choices(base, rows, int(wanted[0]))
    if len(rows):
        take[rows] = _cheapest(base[rows], step[rows], slots[rows], segment[rows], np.where(there > wanted, wanted, 0))
    return take


def _first_choices(base: FloatArray, rows: IntArray, wanted: int) -> IntArray:
    """The machines where a first task is cheapest, as many as there are tasks: no other machine gets one."""
    price = base[rows]
    limit = np.partition(price, wanted - 1)[wanted - 1]
    below = price < limit
    level = np.flatnonzero(price == limit)[: wanted - int(below.sum())]
    below[level] = True
    chosen: IntArray = rows[below]
    return chosen


def _cheapest(base: FloatArray, step: FloatArray, slots: IntArray, segment: IntArray, wanted: IntArray) -> IntArray:
    rising = step > 0.0
    divisor = np.where(rising, step, 1.0)
    low = np.full(len(wanted), np.inf)
    np.minimum.at(low, segment, base)
    high = np.full(len(wanted), -np.inf)
    np.maximum.at(high, segment, base + step * slots)
    absent = ~np.isfinite(low)
    low[absent] = high[absent] = 0.0
    low -= 1.0
    take = np.zeros(len(base), dtype=np.int64)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        above = middle[segment] - base
        count = np.where(rising, np.floor(above / divisor) + 1.0, np.inf)
        count = np.where(above >= 0.0, np.minimum(count, slots), 0.0)
        there = np.bincount(segment, weights=count, minlength=len(wanted))
        if np.array_equal(there, wanted):
            return count.astype(np.int64)
        enough = there >= wanted
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle)
        take = np.where(enough[segment], take, count.astype(np.int64))
    while True:
        left = wanted - np.bincount(segment, weights=take, minlength=len(wanted)).astype(np.int64)
        open_ = np.flatnonzero((take < slots) & (left > 0)[segment])
        if not len(open_):
            return take
        price = base[open_] + take[open_] * step[open_]
        # Nobody comes before the second task of a machine where that would be cheaper.
        second = np.full(len(wanted), np.inf)
        again = take[open_] + 1 < slots[open_]
        np.minimum.at(second, segment[open_[again]], (price + step[open_])[again])
        due = price <= second[segment[open_]]
        open_, price = open_[due], price[due]
        order = open_[np.lexsort((open_, price, segment[open_]))]
        first = np.concatenate([[True], segment[order][1:] != segment[order][:-1]])
        start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        chosen = order[np.arange(len(order)) - start < left[segment[order]]]
        take[chosen] += 1

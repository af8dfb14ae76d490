"""The order of options, compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowsched.support.arrays import FloatArray, IntArray
from flowsched_models.compiled import compiler

compiled, borrowing = compiler([Path(__file__)]), compiler([Path(__file__)], borrows=True)


@borrowing
def _comes_before(keys: FloatArray, one: int, other: int) -> bool:
    for k in range(keys.shape[1]):
        if keys[one, k] != keys[other, k]:
            return bool(keys[one, k] < keys[other, k])
    return False


@compiled
def rank_in_parts(first: IntArray, keys: FloatArray, rank: IntArray) -> None:
    """Into ``rank`` [rows], from 1, where each row of ``keys`` [rows, keys] stands in its part, by the first key that
    differs. ``first`` [parts + 1]: where each part begins.
    """
    order, merged = np.arange(len(keys)), np.empty(len(keys), np.int64)
    for part in range(len(first) - 1):
        begin, end = first[part], first[part + 1]
        size = 1
        while size < end - begin:
            for left in range(begin, end, 2 * size):
                middle, right = min(left + size, end), min(left + 2 * size, end)
                i, j = left, middle
                for to in range(left, right):
                    if j >= right or (i < middle and not _comes_before(keys, order[j], order[i])):
                        merged[to] = order[i]
                        i += 1
                    else:
                        merged[to] = order[j]
                        j += 1
            order[begin:end] = merged[begin:end]
            size *= 2
        for at in range(begin, end):
            rank[order[at]] = at - begin + 1

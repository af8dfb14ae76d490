"""Names for the arrays that vectorised code passes around, and what numpy lacks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

__all__ = ["BoolArray", "FloatArray", "IntArray", "moved", "ranks", "rows_of"]


def moved(values: NDArray[Any], before: IntArray, bare: float = 0) -> NDArray[Any]:
    """Values in another order: at each place those of the place ``before``, ``bare`` where that is -1."""
    found = np.full((len(before), *values.shape[1:]), bare, dtype=values.dtype)
    there = before >= 0
    found[there] = values[before[there]]
    return found


def ranks(values: IntArray) -> IntArray:
    """Of each value, how many equal ones stand before it."""
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(values[order], values[order])
    return found


def rows_of(*columns: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """Equally long columns row by row, in Python's own numbers."""
    return zip(*(column.tolist() for column in columns), strict=True)

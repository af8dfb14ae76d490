"""Names for the arrays that vectorised code passes around, and what numpy lacks for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

__all__ = ["BoolArray", "FloatArray", "IntArray", "ranks"]


def ranks(values: IntArray) -> IntArray:
    """Of each value, how many equal ones stand before it."""
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(values[order], values[order])
    return found

"""Machines as arrays: the units that they count in, and how arrays by row grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowsched.support.arrays import FloatArray, IntArray

FIXED = 1 << 24
"""Features are summed in units of 1/FIXED."""
UNLIMITED = 1 << 60
"""A limit that no reading reaches."""

PRESSURE, SENSITIVITY, HEADROOM = "pressure", "sensitivity", "headroom"
"""Names of what is read of machines where prices are those of ``flow``: sums over what is there, and the price of a unit of
pressure."""


def ties(allocatable: IntArray, spread: bool) -> FloatArray:
    """By machine: a constant, and weights of free CPU and memory, whose sum ranks machines with the same price."""
    ties = np.zeros((len(allocatable), 3))
    if not spread:
        ties[:, 1] = 1.0
        return ties
    ties[:, 1:] = np.where(allocatable > 0, -0.5 / np.maximum(1, allocatable), 0.0)
    # The share in use: nothing of what a machine does not have.
    ties[:, 0] = 0.5 * (allocatable > 0).sum(axis=1)
    return ties


def fixed(value: float) -> int:
    """A reading in units of 1/FIXED."""
    return round(value * FIXED)


def fixed_limit(value: float) -> int:
    """The most that a reading may be, in units of 1/FIXED; ``UNLIMITED`` for one that no reading reaches."""
    return fixed(value) if value < UNLIMITED / FIXED else UNLIMITED


def limit_of(most: float) -> int:
    """The most that a reading may be, in units of 1/FIXED, rounded down; ``UNLIMITED`` for an infinite one."""
    scaled = np.floor(most * FIXED)
    return int(max(scaled, -float(UNLIMITED))) if scaled < UNLIMITED else UNLIMITED


def longer(array: NDArray[np.generic], more: int, bare: float = 0):  # type: ignore[no-untyped-def]
    """An array by row with so many rows more, all of one value."""
    return np.concatenate([array, np.full((more, *array.shape[1:]), bare, dtype=array.dtype)])


def wider(array: IntArray) -> IntArray:
    """An array by resource with one column more, all 0."""
    return np.hstack([array, np.zeros((len(array), 1), dtype=np.int64)])

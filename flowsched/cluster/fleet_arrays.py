"""A fleet's machines as the tuple of arrays that kernels take."""

from __future__ import annotations

from typing import NamedTuple

from flowsched.support.arrays import FloatArray, IntArray


class FleetArrays(NamedTuple):
    """What a round at linear prices reads of a fleet's machines, by row, as kernels take it."""

    allocatable: IntArray
    used: IntArray
    pressure: IntArray
    """Sums over what is booked, in units of 1/FIXED: exact."""
    sensitivity: IntArray
    slope: FloatArray
    cap: FloatArray
    bandwidth: FloatArray

"""Compiled gathering of a fleet's machines: their arrays in the order of a round, in one call instead of some twenty."""

from __future__ import annotations

import numpy as np

from flowsched.cluster.fleet_arrays import FleetArrays
from flowsched.cluster.machine_rows import FIXED, UNLIMITED
from flowsched.scale.compiled import borrowing, compiled
from flowsched.support.arrays import IntArray


@borrowing
def slope_reading(slope: float) -> int:
    """The slope of headroom in units of 1/FIXED."""
    return int(np.rint(slope * FIXED))


@borrowing
def pressure_limit(cap: float) -> int:
    """Most pressure in the same units, rounded down."""
    most = np.floor(cap * FIXED)
    return int(max(most, -float(UNLIMITED))) if most < UNLIMITED else UNLIMITED


@compiled
def machine_arrays(
    rows: IntArray,
    columns: IntArray,
    machines: FleetArrays,
) -> tuple[IntArray, IntArray, IntArray, IntArray, bool]:
    """What is allocatable and free, by machine and resource; readings and limits, by machine and feature; whether there are
    machines, all of one bandwidth.

    ``rows``: the fleet's row of each machine. ``columns``: the fleet's column of each resource, -1 for one that no machine
    has. Readings are pressure, sensitivity and the slope of headroom; they and the limits are in units of 1/FIXED.
    """
    count, alike = len(rows), len(rows) > 0
    has = np.zeros((count, len(columns)), dtype=np.int64)
    free = np.zeros((count, len(columns)), dtype=np.int64)
    readings = np.empty((count, 3), dtype=np.int64)
    limits = np.full((count, 3), UNLIMITED, dtype=np.int64)
    for m in range(count):
        row = rows[m]
        for k in range(len(columns)):
            if columns[k] >= 0:
                has[m, k] = machines.allocatable[row, columns[k]]
                free[m, k] = has[m, k] - machines.used[row, columns[k]]
        alike &= machines.bandwidth[row] == machines.bandwidth[rows[0]]
        readings[m, 0] = machines.pressure[row]
        readings[m, 1] = machines.sensitivity[row]
        readings[m, 2] = slope_reading(machines.slope[row])
        limits[m, 0] = pressure_limit(machines.cap[row])
    return has, free, readings, limits, alike

"""GpuPacking: used devices before free ones, and free ones of used machines before idle machines.

Source: a policy of the comparison in Weng et al., "Beware of Fragmentation", USENIX ATC 2023, with the integer scores of its
artifact.
"""

from __future__ import annotations

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.fit_kernels import free_devices, fullest_device
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched_simulator.baselines.gpu.compiled import borrowing

_IDLE_MACHINE, _FREE_DEVICE, _USED_DEVICE = 33, 50, 100
"""Highest scores of the three cases; each ends where the one before begins."""


@borrowing
def score_packing(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays, state: int) -> int:  # noqa: ARG001
    """By how many free devices must be used, and how full the used one is that takes a share. 0 without GPUs asked for."""
    if shapes.count[s] == 0:
        return 0
    row = machines.devices[m]
    gpus = 0
    for d in range(len(row)):
        if row[d] >= 0:
            gpus += 1
    free = free_devices(row)
    if free == gpus:
        return int(max(_IDLE_MACHINE - free, free))
    if shapes.share[s] == WHOLE_MILLI:
        return int(max(_FREE_DEVICE - shapes.count[s], _IDLE_MACHINE))
    left = row[fullest_device(row, shapes.share[s])]
    if left == WHOLE_MILLI:
        return _FREE_DEVICE - 1
    return int(max(_USED_DEVICE - left * 100 // WHOLE_MILLI // 10, _FREE_DEVICE))

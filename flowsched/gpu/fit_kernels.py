"""Compiled inner loops of what fits where, and of booking it.

Fit is not additive over devices: 460 and 380 milli left on two devices do not take a share of 810.
So devices are kept apart.
"""

from __future__ import annotations

from flowsched.gpu.compiled import borrowing
from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import WHOLE_MILLI, ShapeArrays
from flowsched.support.arrays import IntArray


@borrowing
def free_devices(row: IntArray) -> int:
    """How many devices of a machine are unused. ``row`` [D]: milli left on each."""
    free = 0
    for d in range(len(row)):
        if row[d] == WHOLE_MILLI:
            free += 1
    return free


@borrowing
def fullest_device(row: IntArray, share: int) -> int:
    """The device with the least left among those that have ``share`` milli; the first of equals, -1 for none."""
    best = -1
    for d in range(len(row)):
        if row[d] >= share and (best < 0 or row[d] < row[best]):
            best = d
    return best


@borrowing
def fits(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays) -> bool:
    """Whether machine m takes a task of shape s now: CPU, memory, GPU model, and devices."""
    if machines.cpu[m] < shapes.cpu[s] or machines.memory[m] < shapes.memory[s]:
        return False
    return model_fits(m, s, machines, shapes) and devices_fit(m, shapes.count[s], shapes.share[s], machines)


@borrowing
def model_fits(m: int, s: int, machines: DeviceArrays, shapes: ShapeArrays) -> bool:
    """Whether machine m has GPUs that shape s may run on, however full; true for a shape without GPUs."""
    if shapes.count[s] == 0:
        return True
    return bool(machines.model[m] >= 0 and shapes.allowed[s, machines.model[m]])


@borrowing
def devices_fit(m: int, count: int, share: int, machines: DeviceArrays) -> bool:
    """Whether machine m has ``share`` milli left on each of ``count`` devices. A whole share fits a free device only."""
    if count == 0:
        return True
    devices = machines.devices
    found = 0
    # No slice of a row: this is asked most of all.
    for d in range(devices.shape[1]):
        if devices[m, d] >= share:
            found += 1
            if found >= count:
                return True
    return False


@borrowing
def take(m: int, s: int, device: int, machines: DeviceArrays, shapes: ShapeArrays) -> None:
    """Book a task of shape s on machine m, where it must fit.

    A share comes from ``device``; whole GPUs are the first free ones, whatever ``device`` says.
    """
    machines.cpu[m] -= shapes.cpu[s]
    machines.memory[m] -= shapes.memory[s]
    open_ = shapes.count[s]
    if open_ == 0:
        return
    row = machines.devices[m]
    if shapes.share[s] < WHOLE_MILLI:
        row[device] -= shapes.share[s]
        return
    for d in range(len(row)):
        if open_ > 0 and row[d] == WHOLE_MILLI:
            row[d] = 0
            open_ -= 1

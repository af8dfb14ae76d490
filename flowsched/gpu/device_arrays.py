"""Machines with GPUs as arrays: what is left on each machine and on each of its devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flowsched.gpu.shapes import WHOLE_MILLI
from flowsched.support.arrays import IntArray

NO_MODEL = -1
"""Of a machine without GPUs."""
NO_DEVICE = -1
"""Left on a device that does not exist; no share is as small."""


class DeviceArrays(NamedTuple):
    """What is left on M machines, as compiled code takes it. D: most devices of any machine.

    The arrays are booked in place; :meth:`copy` first what must stay.
    """

    cpu: IntArray
    """[M] milli."""
    memory: IntArray
    """[M] MiB."""
    model: IntArray
    """[M] index of the GPU model; ``NO_MODEL`` without GPUs."""
    devices: IntArray
    """[M, D] milli left on each device; ``NO_DEVICE`` where there is none. A machine's devices come first."""

    def copy(self) -> DeviceArrays:
        """The same state in arrays of its own."""
        return DeviceArrays(self.cpu.copy(), self.memory.copy(), self.model.copy(), self.devices.copy())

    def permuted(self, order: IntArray) -> DeviceArrays:
        """The machines in another order: row i is the machine ``order[i]``."""
        return DeviceArrays(self.cpu[order], self.memory[order], self.model[order], self.devices[order])

    def gpus(self) -> IntArray:
        """[M] devices of each machine."""
        count: IntArray = (self.devices != NO_DEVICE).sum(axis=1).astype(np.int64)
        return count

    def gpu_capacity_milli(self) -> int:
        """Of all devices, whatever is left of them."""
        return int(self.gpus().sum()) * WHOLE_MILLI


def device_arrays(
    cpu_milli: Sequence[int] | IntArray,
    memory_mib: Sequence[int] | IntArray,
    gpus: Sequence[int] | IntArray,
    model: Sequence[int] | IntArray,
) -> DeviceArrays:
    """Empty machines. Each array [M]; the model counts only where a machine has a GPU."""
    count = np.asarray(gpus, dtype=np.int64)
    most = int(count.max(initial=0))
    devices = np.where(np.arange(most) < count[:, None], WHOLE_MILLI, NO_DEVICE).astype(np.int64)
    return DeviceArrays(
        np.array(cpu_milli, dtype=np.int64),
        np.array(memory_mib, dtype=np.int64),
        np.where(count > 0, np.asarray(model, dtype=np.int64), NO_MODEL),
        devices,
    )

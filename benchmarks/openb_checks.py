"""Placements on shared GPUs, checked by arithmetic of their own: nothing overcommitted, and nothing dropped that fitted.

Shares nothing with the compiled functions that placed them, so that a mistake there is not repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import GpuShape
from flowsched.support.arrays import BoolArray, IntArray


def faults(
    machines: DeviceArrays,
    models: Sequence[str],
    shapes: Sequence[GpuShape],
    arrivals: IntArray,
    machine_of: IntArray,
    device_of: IntArray,
    moves: IntArray | None = None,
) -> list[str]:
    """What is wrong in the placements of N arrivals on machines that are empty at first; all arrays [N].

    ``machine_of`` is -1 for what was dropped, ``device_of`` counts for shares only: whole GPUs are the first free devices.
    ``moves``: rows of an arrival, another one that was moved aside for it, and the machine and device of that from then on.
    """
    cpu, memory, devices = machines.cpu.copy(), machines.memory.copy(), machines.devices.copy()
    names = np.array([models[k] if k >= 0 else "" for k in machines.model])
    right_model = [_right_model(names, shape) for shape in shapes]
    found, now = [], dict[int, tuple[int, int]]()
    aside = {} if moves is None else {int(row[0]): row[1:].tolist() for row in moves}
    if moves is not None and len(aside) < len(moves):
        found.append("more than one task was moved for one arrival")
    for i, (s, m, device) in enumerate(zip(arrivals.tolist(), machine_of.tolist(), device_of.tolist(), strict=True)):
        shape = shapes[s]
        if i in aside:
            moved, target, new = aside[i]
            other, (old, was) = shapes[arrivals[moved]], now[moved]
            if other.share_milli == 1000:
                found.append(f"arrival {moved} was moved, though it has whole GPUs")
            for there, slot, sign in ((old, was, 1), (target, new, -1)):
                cpu[there] += sign * other.cpu_milli
                memory[there] += sign * other.memory_mib
                if other.count:
                    devices[there, slot] += sign * other.share_milli
            here = devices[target, new] if other.count else 0
            if min(cpu[target], memory[target], here) < 0 or not right_model[arrivals[moved]][target]:
                found.append(f"arrival {moved} was moved to machine {target}, which does not take it")
            now[moved] = (target, new)
        now[i] = (m, device)
        if m < 0:
            fitting = np.flatnonzero(right_model[s] & (cpu >= shape.cpu_milli) & (memory >= shape.memory_mib))
            if shape.count:
                fitting = fitting[(devices[fitting] >= shape.share_milli).sum(axis=1) >= shape.count]
            if len(fitting):
                found.append(f"arrival {i} was dropped though it fits on {len(fitting)} machines, first {fitting[0]}")
            continue
        cpu[m] -= shape.cpu_milli
        memory[m] -= shape.memory_mib
        if not right_model[s][m]:
            found.append(f"arrival {i} is on machine {m}, whose GPUs it may not use")
        if cpu[m] < 0 or memory[m] < 0:
            found.append(f"arrival {i} is on machine {m}, which lacks CPU or memory: {cpu[m]} milli, {memory[m]} MiB")
        if shape.count == 0:
            continue
        if shape.share_milli < 1000:
            used = [device]
        else:
            used = np.flatnonzero(devices[m] == 1000)[: shape.count].tolist()
        if len(used) < shape.count or min(used) < 0 or any(devices[m, d] < shape.share_milli for d in used):
            found.append(f"arrival {i} is on machine {m}, whose devices {devices[m].tolist()} do not take it")
        devices[m, used] -= shape.share_milli
    return found


def _right_model(names: NDArray[np.str_], shape: GpuShape) -> BoolArray:
    """[M] whether a machine has GPUs that the shape may use; all true for a shape without GPUs."""
    if not shape.count:
        return np.ones(len(names), dtype=np.bool_)
    return np.isin(names, shape.models) if shape.models else names != ""

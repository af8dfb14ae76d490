"""Empty machines pooled for the price program: by model where tasks ask for one, and by CPU per GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.shapes import GpuShape, ShapeArrays
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

CORES_PER_GPU = (3.1, 4.1, 6.1, 8.1, 9.9, 11.2, 12.1, 14.0, 20.0)
"""Edges between pools, in CPU cores per GPU: within a pool, machines run out of CPU or of GPUs at the same mix of tasks."""
SLOTS = (2, 4, 8)
"""Sets of whole GPUs that large tasks need on one machine."""


@dataclass(frozen=True, eq=False)
class DevicePools:
    """What the machines of each pool have together; arrays of length pools."""

    cores: FloatArray
    memory_gib: FloatArray
    gpus: IntArray
    slots: IntArray
    """Pools by ``SLOTS``: how many disjoint sets of 2, 4, 8 GPUs there are on one machine each."""
    takes: BoolArray
    """Shapes by pools: whether some machine of the pool holds a task of the shape when it is empty."""


def pooled(machines: DeviceArrays, shapes: ShapeArrays, by_model: bool) -> DevicePools:
    """Pool machines as they are when empty; those without a GPU are left out."""
    counts = (machines.devices >= 0).sum(axis=1)
    kinds, numbers = np.unique(
        np.stack([machines.model, machines.cpu, machines.memory, counts], axis=1)[counts > 0],
        axis=0,
        return_counts=True,
    )
    model, cpu, memory, count = kinds.T
    edge = np.searchsorted(np.array(CORES_PER_GPU), cpu / 1000.0 / count, side="right")
    keys = np.stack([model if by_model else np.zeros_like(model), edge], axis=1)
    _, pool = np.unique(keys, axis=0, return_inverse=True)
    pool = pool.reshape(-1)
    pools = int(pool.max()) + 1 if len(pool) else 0

    def total(values: IntArray | FloatArray) -> FloatArray:
        found: FloatArray = np.bincount(pool, weights=values * numbers, minlength=pools).astype(np.float64)
        return found

    holds = (
        (shapes.cpu[:, None] <= cpu)
        & (shapes.memory[:, None] <= memory)
        & (shapes.count[:, None] <= count)
        & shapes.allowed[:, model]
    )
    takes = np.zeros((len(shapes.cpu), pools), dtype=bool)
    for kind, where in enumerate(pool):
        takes[:, where] |= holds[:, kind]
    return DevicePools(
        cores=total(cpu / 1000.0),
        memory_gib=total(memory / 1024.0),
        gpus=total(count).astype(np.int64),
        slots=np.stack([total(count // size) for size in SLOTS], axis=1).astype(np.int64),
        takes=takes,
    )


def asks_for_models(shapes: Sequence[GpuShape]) -> bool:
    """Whether any task cares which model it gets."""
    return any(shape.models for shape in shapes)

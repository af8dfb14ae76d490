"""Arrays by machine row: how they grow, the units that they count in, and many machines given as arrays at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.task_class import MachineKind, MachineSpec
from flowsched.relations.relation_store import RelationStore
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

FIXED = 1 << 24
"""Features are summed in units of 1/FIXED."""
UNLIMITED = 1 << 60
"""A limit that no reading reaches."""


@dataclass(eq=False)
class LoadedMachines:
    """Machines as arrays, in the order of their rows."""

    names: list[str]
    resources: list[str]
    allocatable: IntArray
    """By machine and resource."""
    free: IntArray
    kinds: list[MachineKind]
    kind: IntArray
    """By machine: its position in ``kinds``."""
    readings: IntArray
    """By machine and feature, in units of 1/FIXED: with all that runs there."""
    limits: IntArray
    """In the same units; ``UNLIMITED`` where there is none."""
    relations: RelationStore
    """With the same machines."""


class MachineRows:
    """Machines by name in the rows of arrays that grow; who leaves gives its row to another."""

    _BARE: ClassVar[Mapping[str, float]]
    """The arrays by row, and what each has where there is no machine."""

    def __init__(self) -> None:
        """No machines yet."""
        self.names: list[str | None] = []
        """Name of the machine in each row."""
        self.alive: BoolArray = np.zeros(0, dtype=np.bool_)
        """Rows that hold a machine."""
        self._row: dict[str, int] = {}
        self._empty_rows: list[int] = []
        self.relation_store = RelationStore()
        """Relations between tasks, and those that are counted on each machine."""

    @property
    def rows(self) -> int:
        """Length of every array by row."""
        return len(self.alive)

    @property
    def machine_count(self) -> int:
        """Machines that are there."""
        return len(self._row)

    def _take_row(self, name: str, labels: Mapping[str, str]) -> int:
        if not self._empty_rows:
            self._grow(max(16, self.rows))
        row = self._empty_rows.pop()
        self._row[name] = row
        self.names[row] = name
        self.alive[row] = True
        self.relation_store.put_machine(row, labels)
        return row

    def _leave_row(self, name: str) -> int:
        row = self._row.pop(name)
        self.names[row] = None
        for array, bare in self._BARE.items():
            getattr(self, array)[row] = bare
        self._empty_rows.append(row)
        self.relation_store.remove_machine(row)
        return row

    def _grow(self, more: int) -> None:
        before = self.rows
        self.names += [None] * more
        for array, bare in self._BARE.items():
            setattr(self, array, longer(getattr(self, array), more, bare))
        self._empty_rows += range(before + more - 1, before - 1, -1)
        self.relation_store.grow(self.rows)


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


def amounts(specs: Sequence[MachineSpec], resources: Sequence[str]) -> IntArray:
    """What machines have, by machine and resource."""
    found = [[spec.allocatable.get(resource, 0) for resource in resources] for spec in specs]
    return np.array(found, dtype=np.int64).reshape(len(specs), len(resources))


def own_readings(specs: Sequence[MachineSpec], features: Sequence[str]) -> tuple[IntArray, IntArray]:
    """What machines read by themselves, and what they may read at most, by machine and feature."""
    position = {feature: f for f, feature in enumerate(features)}
    readings = np.zeros((len(specs), len(position)), dtype=np.int64)
    limits = np.full(readings.shape, UNLIMITED, dtype=np.int64)
    for i, spec in enumerate(specs):
        for feature, value in spec.readings.items():
            readings[i, position[feature]] = fixed(value)
        for feature, value in spec.limits.items():
            if value < UNLIMITED / FIXED:
                limits[i, position[feature]] = fixed(value)
    return readings, limits


def fixed(value: float) -> int:
    """A reading in units of 1/FIXED."""
    return round(value * FIXED)


def longer(array: NDArray[np.generic], more: int, bare: float = 0):  # type: ignore[no-untyped-def]
    """An array by row with so many rows more, all of one value."""
    return np.concatenate([array, np.full((more, *array.shape[1:]), bare, dtype=array.dtype)])


def wider(array: IntArray) -> IntArray:
    """An array by resource with one column more, all 0."""
    return np.hstack([array, np.zeros((len(array), 1), dtype=np.int64)])

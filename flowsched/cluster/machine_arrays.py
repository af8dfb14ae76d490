"""Machines as arrays: the units that they count in, and many machines given at once."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowsched.cluster.task_class import MachineKind, MachineSpec
from flowsched.relations.relation_store import RelationStore
from flowsched.support.arrays import FloatArray, IntArray

FIXED = 1 << 24
"""Features are summed in units of 1/FIXED."""
UNLIMITED = 1 << 60
"""A limit that no reading reaches."""

PRESSURE, SENSITIVITY, HEADROOM = "pressure", "sensitivity", "headroom"
"""Names of what is read of machines where prices are those of ``flow``: sums over what is there, and the price of a unit of
pressure."""


@dataclass(eq=False)
class LoadedMachines:
    """Machines as arrays, in the order of their rows."""

    names: Sequence[str | None]
    """None in rows without a machine."""
    resources: Sequence[str]
    allocatable: IntArray
    """By machine and resource."""
    free: IntArray
    kinds: Sequence[MachineKind]
    kind: IntArray
    """By machine: its position in ``kinds``."""
    readings: IntArray
    """By machine and feature, in units of 1/FIXED: with all that runs there."""
    limits: IntArray
    """In the same units; ``UNLIMITED`` where there is none."""
    relation_store: RelationStore
    """With the same machines."""
    order: IntArray
    """Rows of all machines, in the order of their names."""

    def in_order(self, resources: Sequence[str], relations: Iterable[str] = ()) -> LoadedMachines:
        """All machines in the order of their names, in arrays of their own; with these resources, known or not, and these
        relations.

        Raises ``KeyError`` for a relation that was not declared.
        """
        rows = self.order
        known = {resource: i for i, resource in enumerate(self.resources)}
        columns = np.array([known.get(resource, -1) for resource in resources], dtype=np.int64)
        allocatable, free = (values.take(rows, 0).take(columns, 1) for values in (self.allocatable, self.free))
        for values in (allocatable, free):
            values[:, columns < 0] = 0
        return LoadedMachines(
            list(map(self.names.__getitem__, rows.tolist())),
            resources,
            allocatable,
            free,
            self.kinds,
            self.kind.take(rows),
            self.readings.take(rows, 0),
            self.limits.take(rows, 0),
            self.relation_store.over(rows, relations),
            np.arange(len(rows)),
        )

    def as_they_are(self) -> LoadedMachines:
        """In arrays of their own, without relations."""
        own = {name: copy.copy(value) for name, value in vars(self).items() if name != "relation_store"}
        return LoadedMachines(**own, relation_store=RelationStore())


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

"""Arrays by machine row: how they grow, the units that they count in, and many machines given as arrays at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    relations: RelationStore
    """With the same machines."""

    def over(self, rows: IntArray, resources: Sequence[str], relations: Iterable[str] = ()) -> LoadedMachines:
        """The machines of some rows, in their order, which are all that there are, in arrays of their own; with these
        resources, known or not, and these relations.

        Raises ``KeyError`` for a relation that was not declared.
        """
        known = {resource: i for i, resource in enumerate(self.resources)}
        columns = np.array([known.get(resource, -1) for resource in resources], dtype=np.int64)
        allocatable, free = (values.take(rows, 0).take(columns, 1) for values in (self.allocatable, self.free))
        for values in (allocatable, free):
            values[:, columns < 0] = 0
        return LoadedMachines(
            [self.names[row] for row in rows.tolist()],
            resources,
            allocatable,
            free,
            self.kinds,
            self.kind.take(rows),
            self.readings.take(rows, 0),
            self.limits.take(rows, 0),
            self.relations.over(rows, relations),
        )

    def as_they_are(self) -> LoadedMachines:
        """In arrays of their own, without relations."""
        return LoadedMachines(
            list(self.names),
            list(self.resources),
            self.allocatable.copy(),
            self.free.copy(),
            list(self.kinds),
            self.kind.copy(),
            self.readings.copy(),
            self.limits.copy(),
            RelationStore(),
        )


class MachineRows:
    """Machines by name in the rows of arrays that grow; who leaves gives its row to another."""

    _BARE: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(("alive", "kind", "allocatable", "free", "readings", "own_readings"), 0),
        "limits": UNLIMITED,
    }
    """The arrays by row, and what each has where there is no machine."""

    def __init__(self, features: Sequence[str], resources: Sequence[str] = ()) -> None:
        """No machines yet. ``features``: names of what is read of machines; more ``resources`` may turn up with machines."""
        self.names: list[str | None] = []
        """Name of the machine in each row."""
        self.alive: BoolArray = np.zeros(0, dtype=np.bool_)
        """Rows that hold a machine."""
        self._row: dict[str, int] = {}
        self._empty_rows: list[int] = []
        self.resources = list(resources)
        """Resource of each column."""
        self.allocatable: IntArray = np.zeros((0, len(resources)), dtype=np.int64)
        """What tasks may use in total, by row and resource."""
        self.free: IntArray = np.zeros((0, len(resources)), dtype=np.int64)
        """What is left; below 0 where more is used than allocatable."""
        self.kinds: list[MachineKind] = []
        self._kind: dict[MachineKind, int] = {}
        self.kind: IntArray = np.zeros(0, dtype=np.int64)
        self._feature = {name: i for i, name in enumerate(features)}
        self.readings: IntArray = np.zeros((0, len(features)), dtype=np.int64)
        """By row and feature: sums over what is there, in units of 1/FIXED."""
        self.own_readings: IntArray = np.zeros((0, len(features)), dtype=np.int64)
        """What machines read when no task is there, in units of 1/FIXED."""
        self.limits: IntArray = np.zeros((0, len(features)), dtype=np.int64)
        """What readings may reach, in the same units; ``UNLIMITED`` where there is none."""
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

    def loaded(self) -> LoadedMachines:
        """All of it as values; the arrays are its own."""
        return LoadedMachines(
            self.names,
            self.resources,
            self.allocatable,
            self.free,
            self.kinds,
            self.kind,
            self.readings,
            self.limits,
            self.relation_store,
        )

    def _set_allocatable(self, row: int, allocatable: Mapping[str, int]) -> None:
        """What a machine has changes; what is used of it stays."""
        for resource in sorted(allocatable.keys() - set(self.resources)):
            self._add_resource(resource)
        change = np.array([allocatable.get(resource, 0) for resource in self.resources], dtype=np.int64)
        change -= self.allocatable[row]
        self.allocatable[row] += change
        self.free[row] += change

    def _set_reading(self, row: int, feature: int, own: int, limit: int) -> None:
        """What a machine reads by itself, and what it may reach, in units of 1/FIXED."""
        self.readings[row, feature] += own - self.own_readings[row, feature]
        self.own_readings[row, feature] = own
        self.limits[row, feature] = limit

    def _intern_kinds(self, kinds: Iterable[MachineKind]) -> None:
        """Number the kinds that are new."""
        new = [kind for kind in dict.fromkeys(kinds) if kind not in self._kind]
        self._kind.update(zip(new, range(len(self.kinds), len(self.kinds) + len(new)), strict=True))
        self.kinds += new

    def _add_resource(self, resource: str) -> None:
        self.resources.append(resource)
        self.allocatable = wider(self.allocatable)
        self.free = wider(self.free)

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

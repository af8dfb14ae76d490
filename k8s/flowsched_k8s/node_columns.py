"""What nodes of the pool are like beside what their machines have and take, as arrays by machine row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowsched.support.arrays import moved
from flowsched_models.machine import MachineType


class NodeColumns:
    """Rows are those of the machines."""

    def __init__(self) -> None:
        """No nodes yet."""
        self.version = 0
        """Another one after every change of ``versions``."""
        self.versions: NDArray[np.int64] = np.full(0, -1, np.int64)
        """Version of the node in each row; -1 for none."""
        self.types: NDArray[np.int64] = np.zeros(0, np.int64)
        """Index into ``type_list`` of each row's machine type."""
        self.zones: NDArray[np.int64] = np.zeros(0, np.int64)
        """Number of each row's zone; 0 for nodes without the label."""
        self._zone_numbers = {"": 0}
        self.type_list: list[MachineType] = []
        self._type_ids: dict[MachineType, int] = {}

    def changed(self) -> int:
        """A node is another one for filters from now on; its new version."""
        self.version += 1
        return self.version

    def put(self, row: int, version: int, kind: MachineType, zone: str) -> None:
        """What the node in a row is like."""
        if row >= len(self.versions):
            more = max(64, 2 * row) - len(self.versions)
            self.versions = np.concatenate([self.versions, np.full(more, -1, np.int64)])
            self.types = np.concatenate([self.types, np.zeros(more, np.int64)])
            self.zones = np.concatenate([self.zones, np.zeros(more, np.int64)])
        self.versions[row] = version
        if kind not in self._type_ids:
            self._type_ids[kind] = len(self.type_list)
            self.type_list.append(kind)
        self.types[row] = self._type_ids[kind]
        self.zones[row] = self._zone_numbers.setdefault(zone, len(self._zone_numbers))

    def move(self, before: NDArray[np.int64]) -> None:
        """Rows of machines are others now; ``before``: where each was, as :meth:`MachineRows.settle` gives it."""
        self.versions = moved(self.versions, before, -1)
        self.types, self.zones = moved(self.types, before), moved(self.zones, before)

    def drop(self, row: int) -> None:
        """The node in a row is gone."""
        self.version += 1
        self.versions[row] = -1

"""Room on the machines of a snapshot, resource by resource, and who would have to leave for one more task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowsched.cluster.snapshot import Running, Snapshot, Task
from flowsched.support.arrays import BoolArray, IntArray

_EXACT = 10
"""Of so many tasks all sets are looked at; of more, those that a greedy choice leaves."""


class MachineRoom:
    """What is free on each machine. Changes as tasks come and go."""

    def __init__(self, snapshot: Snapshot) -> None:
        """As in the snapshot."""
        self.names = tuple(m.name for m in snapshot.machines)
        self._row = {name: i for i, name in enumerate(self.names)}
        further = {name for m in snapshot.machines for name, _ in m.resources}
        further |= {name for r in snapshot.running for name, _ in r.task.resources}
        further |= {name for t in snapshot.pending for name, _ in t.resources}
        self._resources = tuple(sorted(further))
        cpu, memory, units = snapshot.free_milli(), snapshot.free_memory_mib(), snapshot.free_resources()
        rows = [[cpu[n], memory[n], *(units[n].get(r, 0) for r in self._resources)] for n in self.names]
        self.free: IntArray = np.array(rows, np.int64).reshape(len(self.names), 2 + len(self._resources))
        """[machines, resources] CPU in thousandths, MiB, further units."""
        self._demands: dict[str, IntArray] = {}
        self._batch = np.array([bool(snapshot.batch_cores(m)) for m in snapshot.machines], np.bool_)

    def demand(self, task: Task, width_milli: int) -> IntArray:
        """[resources] what a task asks for at a width."""
        units = dict(task.resources)
        return np.array([width_milli, task.memory_mib, *(units.get(r, 0) for r in self._resources)], np.int64)

    def taken_by(self, running: Running) -> IntArray:
        """[resources] what a running task has."""
        found = self._demands.get(running.task.name)
        if found is None:
            found = self._demands[running.task.name] = self.demand(running.task, running.width_milli)
        return found

    def row(self, machine: str) -> int:
        """The row of a machine."""
        return self._row[machine]

    def take(self, running: Running, sign: int = 1) -> None:
        """A task comes to its machine (1), or leaves it (-1)."""
        self.free[self._row[running.machine]] -= sign * self.taken_by(running)

    def fitting(self, task: Task, freed: IntArray | None = None) -> BoolArray:
        """[machines] where a task fits at its narrowest width, with ``freed`` [machines, resources] free too."""
        need = self.demand(task, task.widths_milli[0])
        free = self.free if freed is None else self.free + freed
        # What a task does not ask for may be short.
        fits: BoolArray = ((free >= need) | (need == 0)).all(axis=1) & self._batch
        if task.machines is not None:
            fits &= np.isin(self.names, task.machines)
        return fits

    def freed_by(self, running: Sequence[Running]) -> IntArray:
        """[machines, resources] what these tasks would leave free."""
        freed = np.zeros_like(self.free)
        if running:
            rows = np.array([self._row[r.machine] for r in running], np.int64)
            np.add.at(freed, rows, np.array([self.taken_by(r) for r in running]))
        return freed

    def least_sets(self, task: Task, victims: Sequence[Running]) -> list[tuple[int, ...]]:
        """Sets of a machine's tasks, given in the order in which they are to go, whose going lets a task in.

        Only sets of which none could stay; of many tasks not all such sets.
        """
        if not victims:
            return []
        need = self.demand(task, task.widths_milli[0])
        short = np.where(need > 0, np.maximum(0, need - self.free[self._row[victims[0].machine]]), 0)
        brings = np.array([self.taken_by(v) for v in victims], np.int64)
        chosen = list(range(len(victims)))
        if len(victims) > _EXACT:
            enough = (np.cumsum(brings, axis=0) >= short).all(axis=1)
            if not enough.any():
                return []
            chosen = _needed(brings, short, int(enough.argmax()) + 1)
            if len(chosen) > _EXACT:
                return [tuple(chosen)]
            chosen += [i for i in range(len(victims)) if i not in chosen][: _EXACT - len(chosen)]
            chosen.sort()
        count = len(chosen)
        members = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
        suffices: BoolArray = np.all(members @ brings[chosen] >= short, axis=1)
        least: BoolArray = suffices.copy()
        for bit in range(count):
            has = np.flatnonzero(members[:, bit] == 1)
            least[has] &= ~suffices[has ^ (1 << bit)]
        return [tuple(chosen[b] for b in np.flatnonzero(row).tolist()) for row in members[least]]


def _needed(brings: IntArray, short: IntArray, count: int) -> list[int]:
    """The first ``count`` tasks without those that may stay, the last ones first."""
    left = brings[:count].sum(axis=0)
    kept = []
    for i in reversed(range(count)):
        if (left - brings[i] >= short).all():
            left = left - brings[i]
        else:
            kept.append(i)
    return kept[::-1]

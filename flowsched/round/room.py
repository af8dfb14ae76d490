"""Room on the machines of a snapshot, resource by resource, and who would have to leave for one more task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from flowsched.cluster.snapshot import Running, Snapshot, Task, by_machine
from flowsched.gpu.devices import TaskGpus, fullest, given_back, has_devices, suits, taken
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
        self._gpus = {m.name: m.gpus for m in snapshot.machines}
        self._left = snapshot.devices_left()
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

    def others(self, barred: Collection[str]) -> BoolArray:
        """[machines] all but some."""
        found: BoolArray = ~np.isin(self.names, sorted(barred))
        return found

    def take(self, running: Running, sign: int = 1) -> None:
        """A task comes to its machine (1), or leaves it (-1)."""
        self.free[self._row[running.machine]] -= sign * self.taken_by(running)
        gpus, name = running.task.gpus, running.machine
        if gpus is not None:
            changed = taken if sign > 0 else given_back
            self._left[name] = changed(self._left[name], gpus, running.devices)

    def devices_for(self, task: Task, machine: str) -> tuple[int, ...]:
        """The GPUs that a task takes on a machine where it fits: the fullest that hold it."""
        return () if task.gpus is None else tuple(sorted(fullest(self._left[machine], task.gpus)))

    def fitting(self, task: Task, gone: Sequence[Running] = ()) -> BoolArray:
        """[machines] where a task fits at its narrowest width, once some running tasks are gone."""
        need = self.demand(task, task.widths_milli[0])
        free = self.free + self.freed_by(gone) if gone else self.free
        # What a task does not ask for may be short.
        fits: BoolArray = ((free >= need) | (need == 0)).all(axis=1) & self._batch
        if task.machines is not None:
            fits &= np.isin(self.names, task.machines)
        if task.gpus is not None:
            here, names = by_machine(gone), self.names
            able = [
                m for m in np.flatnonzero(fits).tolist() if self._finds_devices(task.gpus, names[m], here[names[m]])
            ]
            fits = np.isin(np.arange(len(names)), able)
        return fits

    def _finds_devices(self, wanted: TaskGpus, machine: str, gone: Iterable[Running]) -> bool:
        """Whether a machine has the GPUs that a task asks for, once some of its tasks are gone."""
        if not suits(self._gpus[machine], wanted):
            return False
        left = self._left[machine]
        for running in gone:
            if running.task.gpus is not None:
                left = given_back(left, running.task.gpus, running.devices)
        return has_devices(left, wanted)

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
            enough: BoolArray = np.array((np.cumsum(brings, axis=0) >= short).all(axis=1), np.bool_)
            for n in np.flatnonzero(enough).tolist() if task.gpus is not None else ():
                enough[n] = self._enough_devices(task, victims[: n + 1])
            if not enough.any():
                return []
            chosen = self._needed(task, victims[: int(enough.argmax()) + 1], brings, short)
            if len(chosen) > _EXACT:
                return [tuple(chosen)]
            chosen += [i for i in range(len(victims)) if i not in chosen][: _EXACT - len(chosen)]
            chosen.sort()
        count = len(chosen)
        members = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
        suffices: BoolArray = np.array((members @ brings[chosen] >= short).all(axis=1), np.bool_)
        if task.gpus is not None:
            sets = [[victims[chosen[b]] for b in np.flatnonzero(row)] for row in members]
            suffices &= np.array([self._enough_devices(task, gone) for gone in sets], np.bool_)
        least = suffices.copy()
        for bit in range(count):
            has = np.flatnonzero(members[:, bit] == 1)
            least[has] &= ~suffices[has ^ (1 << bit)]
        return [tuple(chosen[b] for b in np.flatnonzero(row).tolist()) for row in members[least]]

    def _enough_devices(self, task: Task, gone: Sequence[Running]) -> bool:
        return task.gpus is None or (bool(gone) and self._finds_devices(task.gpus, gone[0].machine, gone))

    def _needed(self, task: Task, victims: Sequence[Running], brings: IntArray, short: IntArray) -> list[int]:
        """Those of some tasks of a machine that must go, without those that may stay, the last ones first."""
        left = brings[: len(victims)].sum(axis=0)
        gone = dict(enumerate(victims))
        for i in reversed(range(len(victims))):
            rest = [v for n, v in gone.items() if n != i]
            if (left - brings[i] >= short).all() and self._enough_devices(task, rest):
                left = left - brings[i]
                del gone[i]
        return sorted(gone)

"""Machines that are held for due tasks: which one drains soonest.

A reservation is hard: nothing starts on its machine unless it is predicted to end before the reserved start (EASY backfill:
Lifka, The ANL/IBM SP Scheduling System, 1995), so whatever joins is gone when the room is needed. The reserved start never
moves later; once it has passed nothing joins at all. Tasks without a predicted end are never counted on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.task_rows import RUNNING
from flowsched.pricing.linear import kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.drain_kernels import by_end, drained_at
from flowsched.round.linear.round_state import BulkRoundState
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class MachineReservation:
    """A machine that is held for a task from one round to the next."""

    task: int
    """Its row."""
    machine: int
    """Its row."""
    start_s: float
    """When its room is predicted to be there. Same clock as the rounds. Infinite while the machine only drains: nothing
    joins it, and no end is known of what runs there."""
    task_sequence: int
    """Rows are used again; a task is known by its order of arrival, a machine by its name."""
    machine_name: str

    @classmethod
    def of(cls, cluster: ClusterRows, task: int, machine: int, start_s: float) -> MachineReservation:
        """That of a task and a machine by row."""
        return cls(task, machine, start_s, int(cluster.tasks.sequence[task]), cluster.machines.name(machine))

    def now(self, cluster: ClusterRows) -> MachineReservation | None:
        """The same with the row that its machine has by now; None once the task or the machine is gone."""
        row = cluster.machines.row(self.machine_name)
        if row is None or self.task_sequence != int(cluster.tasks.sequence[self.task]):
            return None
        return replace(self, machine=row)


class Drain:
    """Who runs where until when, machine by machine in the order of ends, as a round stands: O(running tasks) once."""

    def __init__(self, state: BulkRoundState, rows: IntArray, now_s: float) -> None:
        """``rows``: the machines to look at. What the round has placed so far runs, too."""
        cluster = state.cluster
        looked_at = np.zeros(cluster.machines.rows, dtype=np.bool_)
        looked_at[rows] = True
        running = np.flatnonzero(cluster.tasks.state == RUNNING)
        running = running[looked_at[cluster.tasks.machine[running]]]
        machine = np.concatenate([cluster.tasks.machine[running], state.machine])
        self._class = np.concatenate([cluster.tasks.task_class[running], state.task_class])
        placed_end = now_s + cluster.classes.lasting_s()[state.task_class, cluster.machines.kind[state.machine]]
        self._end = np.concatenate([cluster.tasks.end_s[running], placed_end])
        self._first, self._order = by_end(machine, self._end, cluster.machines.rows)
        self._cluster = cluster
        self._now_s = now_s
        self._free = state.free.copy()
        self._readings = state.readings.copy()

    def when(self, task_class: int, rows: IntArray) -> FloatArray:
        """When each of these machines has room for one task of a class, on the rounds' clock; infinite for never."""
        return drained_at(
            task_class,
            rows,
            self._first,
            self._order,
            self._class,
            self._end,
            self._cluster.model(),
            self._free,
            self._readings,
            self._now_s,
        )

    def reserve(self, task_class: int, row: int, sign: int = 1) -> None:
        """Count room on a machine as taken, for what is asked after this, or as free again with ``sign`` -1."""
        self._free[row] -= sign * self._cluster.classes.demands[task_class]
        self._readings[row] += sign * self._cluster.classes.effects[task_class]


class Lasting:
    """What machines have left for good: beside tasks without an end, once all others are gone."""

    def __init__(self, cluster: ClusterRows) -> None:
        """As the cluster stands: O(tasks), and no more than a look at most of them."""
        self._cluster = cluster
        endless = np.flatnonzero((cluster.tasks.state == RUNNING) & np.isinf(cluster.tasks.end_s))
        self.free = cluster.allocatable.copy()
        """[machines, resources]"""
        self._readings = cluster.own_readings.copy()
        kernels.book(
            endless,
            cluster.tasks.machine,
            cluster.tasks.task_class,
            cluster.classes.demands,
            cluster.classes.effects,
            1,
            self.free,
            self._readings,
        )

    def large(self, task_class: int) -> BoolArray:
        """Machines that a task of a class may use and that are large enough when nothing else is there."""
        cluster = self._cluster
        demand = cluster.classes.demands[task_class]
        large: BoolArray = cluster.machines.alive & open_to(cluster, task_class)
        for r in np.flatnonzero(demand).tolist():
            large &= cluster.allocatable[:, r] >= demand[r]
        return large

    def fits(self, task_class: int) -> BoolArray:
        """Machines that have room for a task of a class some time."""
        cluster = self._cluster
        demand, effect = cluster.classes.demands[task_class], cluster.classes.effects[task_class]
        fits = self.large(task_class)
        for r in np.flatnonzero(demand).tolist():
            fits &= self.free[:, r] >= demand[r]
        for f in np.flatnonzero(effect).tolist():
            fits &= self._readings[:, f] + effect[f] <= cluster.limits[:, f]
        return fits

    def take(self, row: int, classes: IntArray) -> bool:
        """Whether a machine has room for tasks of these classes together some time."""
        cluster = self._cluster
        if not all(open_to(cluster, c)[row] for c in np.unique(classes).tolist()):
            return False
        wanted, added = cluster.classes.demands[classes].sum(axis=0), cluster.classes.effects[classes].sum(axis=0)
        room = (wanted == 0) | (wanted <= self.free[row])
        below = (added == 0) | (self._readings[row] + added <= cluster.limits[row])
        return bool(room.all() and below.all())

    def most(self, task_class: int, rows: BoolArray) -> int:
        """How many tasks of a class these machines take at most, all together."""
        return int(slots(self.free[rows], self._cluster.classes.demands[[task_class]])[0].sum())


def slots(free: IntArray, demands: IntArray) -> IntArray:
    """[classes, machines] how many tasks of each class the room takes; very many of a class that asks for nothing.

    ``free``: [machines, resources]; ``demands``: [classes, resources].
    """
    found = np.full((len(demands), len(free)), kernels.MANY, dtype=np.int64)
    for mine, demand in zip(found, demands, strict=True):
        for r in np.flatnonzero(demand).tolist():
            np.minimum(mine, (free[:, r] // demand[r]).clip(min=0), out=mine)
    return found


def open_to(cluster: ClusterRows, task_class: int) -> BoolArray:
    """Machines that a class may use by its selector, its mask and the policy, whatever is there."""
    open_: BoolArray = np.isfinite(cluster.classes.table().base[task_class, cluster.machines.kind])
    place = cluster.classes[task_class].places
    return open_ & np.isfinite(cluster.classes.places.places[place].extra(cluster.machines.rows)) if place else open_

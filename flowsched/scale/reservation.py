"""Machines that are held for due tasks: which one drains soonest.

A reservation is hard: nothing starts on its machine unless it is predicted to end before the reserved start (EASY backfill:
Lifka, The ANL/IBM SP Scheduling System, 1995), so whatever joins is gone when the room is needed. The reserved start never
moves later; once it has passed nothing joins at all. Tasks without a predicted end are never counted on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.scale import kernels
from flowsched.scale.drain_kernels import by_end, soonest
from flowsched.scale.ledger import RUNNING, Ledger
from flowsched.scale.round_relations import RoundRelations
from flowsched.scale.round_state import BulkRoundState
from flowsched.support.arrays import BoolArray, IntArray


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
    def of(cls, ledger: Ledger, task: int, machine: int, start_s: float) -> MachineReservation:
        """That of a task and a machine by row."""
        return cls(task, machine, start_s, int(ledger.sequence[task]), ledger.machine_name(machine))

    def stands(self, ledger: Ledger) -> bool:
        """Whether both are still there: the task waits, the machine is the same."""
        return (
            self.task_sequence == int(ledger.sequence[self.task])
            and ledger.names[self.machine] == self.machine_name
            and bool(ledger.alive[self.machine])
        )


class Drain:
    """Who runs where until when, machine by machine in the order of ends, as a round stands: O(running tasks) once."""

    def __init__(self, state: BulkRoundState, rows: IntArray, now_s: float) -> None:
        """``rows``: the machines to look at. What the round has placed so far runs, too."""
        ledger = state.ledger
        looked_at = np.zeros(ledger.rows, dtype=np.bool_)
        looked_at[rows] = True
        running = np.flatnonzero(ledger.state == RUNNING)
        running = running[looked_at[ledger.machine[running]]]
        machine = np.concatenate([ledger.machine[running], state.machine])
        self._class = np.concatenate([ledger.task_class[running], state.task_class])
        placed_end = now_s + ledger.lasting_s()[state.task_class, ledger.kind[state.machine]]
        self._end = np.concatenate([ledger.end_s[running], placed_end])
        self._first, self._order = by_end(machine, self._end, ledger.rows)
        self._state = state
        self._ledger = ledger
        self._rows = rows
        self._now_s = now_s
        self._free = state.free.copy()
        self._readings = state.readings.copy()

    def soonest(self, task_class: int, fits: BoolArray) -> tuple[int, float]:
        """The machine among ``fits`` that has room for one task of a class first, and when; -1 where none ever has."""
        model = self._ledger.model()
        row, at = soonest(
            task_class,
            self._rows[fits[self._rows]],
            self._first,
            self._order,
            self._class,
            self._end,
            model,
            self._free,
            self._readings,
            self._now_s,
        )
        return int(row), float(at)

    def reserve(self, task_class: int, row: int) -> None:
        """Count room on a machine as taken, for what is asked after this."""
        self._free[row] -= self._ledger.demands[task_class]
        self._readings[row] += self._ledger.effects[task_class]


class Lasting:
    """What machines have left for good: beside tasks without an end, once all others are gone."""

    def __init__(self, ledger: Ledger) -> None:
        """As the ledger stands: O(tasks), and no more than a look at most of them."""
        self._ledger = ledger
        endless = np.flatnonzero((ledger.state == RUNNING) & np.isinf(ledger.end_s))
        self._free = ledger.allocatable.copy()
        self._readings = ledger.own_readings.copy()
        nowhere = (np.zeros(ledger.rows, dtype=np.bool_), np.zeros(ledger.rows, dtype=np.int64), np.zeros(1, np.int64))
        kernels.book(
            endless,
            ledger.machine,
            ledger.task_class,
            ledger.demands,
            ledger.effects,
            1,
            self._free,
            self._readings,
            *nowhere,
        )

    def large(self, task_class: int) -> BoolArray:
        """Machines that a task of a class may use and that are large enough when nothing else is there."""
        ledger = self._ledger
        demand = ledger.demands[task_class]
        large: BoolArray = ledger.alive & open_to(ledger, task_class)
        for r in np.flatnonzero(demand).tolist():
            large &= ledger.allocatable[:, r] >= demand[r]
        return large

    def fits(self, task_class: int) -> BoolArray:
        """Machines that have room for a task of a class some time."""
        ledger = self._ledger
        demand, effect = ledger.demands[task_class], ledger.effects[task_class]
        fits = self.large(task_class)
        for r in np.flatnonzero(demand).tolist():
            fits &= self._free[:, r] >= demand[r]
        for f in np.flatnonzero(effect).tolist():
            fits &= self._readings[:, f] + effect[f] <= ledger.limits[:, f]
        return fits & ~self._refused(task_class)

    def _refused(self, task_class: int) -> BoolArray:
        """Machines that relations with tasks without an end close to a class."""
        ledger = self._ledger
        refused = np.zeros(ledger.rows, dtype=np.bool_)
        if ledger.topology.relations and ledger.roles[task_class]:
            relations = RoundRelations(ledger, np.array([task_class]))
            going = np.flatnonzero((ledger.state == RUNNING) & np.isfinite(ledger.end_s))
            relations.take_out(going)
            for _, closed in relations.refusals(task_class):
                refused |= closed
        return refused

    def take(self, row: int, classes: IntArray) -> bool:
        """Whether a machine has room for tasks of these classes together some time."""
        ledger = self._ledger
        if not all(open_to(ledger, c)[row] for c in np.unique(classes).tolist()):
            return False
        if any(self._refused(c)[row] for c in np.unique(classes).tolist()):
            return False
        wanted, added = ledger.demands[classes].sum(axis=0), ledger.effects[classes].sum(axis=0)
        room = (wanted == 0) | (wanted <= self._free[row])
        below = (added == 0) | (self._readings[row] + added <= ledger.limits[row])
        return bool(room.all() and below.all())

    def most(self, task_class: int, rows: BoolArray) -> int:
        """How many tasks of a class these machines take at most, all together."""
        demand = self._ledger.demands[task_class]
        if not demand.any():
            return kernels.MANY
        asked = np.flatnonzero(demand)
        return int((self._free[rows][:, asked] // demand[asked]).min(axis=1).clip(min=0).sum())


def open_to(ledger: Ledger, task_class: int) -> BoolArray:
    """Machines that a class may use by its selector, its mask and the policy, whatever is there."""
    open_: BoolArray = np.isfinite(ledger.table().base[task_class, ledger.kind])
    place = ledger.classes[task_class].places
    return open_ & np.isfinite(ledger.places.places[place].extra(ledger.rows)) if place else open_

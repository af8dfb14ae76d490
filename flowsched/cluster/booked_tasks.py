"""Tasks that are known by name, with what they take of their machines: kept from events in O(changes).

Nothing here depends on the order of the events that led to a state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowsched.cluster.machine_arrays import FIXED, HEADROOM, PRESSURE, SENSITIVITY
from flowsched.cluster.machine_rows import MachineRows
from flowsched.cluster.task_class import MachineKind
from flowsched.relations.relation_store import Footprint, RelationStore
from flowsched.support.arrays import BoolArray

_LARGEST = 1e4
"""Largest sensitivity or pressure of one task: sums stay far inside 64 bits."""
_MOST_CHANGED = 1024
"""So many more tasks than there are may have changed before they are no longer told apart: maybe no copy asks."""
_SHARE = 8
"""All bookings are copied where one in so many has changed."""
_PRESSURE, _SENSITIVITY = range(2)


@dataclass(frozen=True)
class _Booking:
    machine: str
    needs: Mapping[str, int]
    sensitivity: int
    pressure: int
    holds: tuple[int, ...]
    """Ids, in the store, of relations whose holders bind later tasks."""
    joins: tuple[int, ...]


@dataclass(frozen=True)
class BookedTask:
    """What a booked task takes of its machine, and which relations count it; :meth:`BookedTasks.book` takes the same."""

    machine: str
    needs: Mapping[str, int]
    sensitivity: float
    pressure: float
    holds: tuple[str, ...]
    """Relations that it holds where that binds later tasks."""
    joins: tuple[str, ...]


class BookedTasks:
    """Tasks by name, and their machines, of which some may not be there yet or any more."""

    def __init__(self, machines: MachineRows | None = None) -> None:
        """No task is booked. ``machines``: with the readings of ``flow``; none yet where it is None."""
        self.machines = machines or MachineRows((PRESSURE, SENSITIVITY, HEADROOM))
        self._bookings: dict[str, _Booking] = {}
        self._booked_on: dict[str, dict[str, None]] | None = {}
        self._changed: set[str] | None = set()
        """Tasks that were booked or released since a copy caught up; None where they are too many to tell."""
        self._before: dict[str, _Booking | None] | None = None
        """Of a copy: what those were booked with that it has changed itself."""

    def __len__(self) -> int:
        """Tasks that are booked, on machines known or not."""
        return len(self._bookings)

    def put_machine(
        self, name: str, allocatable: Mapping[str, int], labels: Mapping[str, str], *, bandwidth: float = 1.0
    ) -> int:
        """Add or update a machine; bookings on it stay, services on it too. Its row."""
        machines = self.machines
        new, known = machines.row(name) is None, len(machines.resources)
        row = machines.put_machine(name, MachineKind("machine", bandwidth=bandwidth), allocatable, labels)
        if new:
            for task in self._tasks_on(name):
                self._count(self._bookings[task], row, 1)
        # Tasks may name any number of resources: what no machine had was not counted.
        for column, resource in enumerate(machines.resources[known:], known):
            for booking in self._bookings.values():
                there = machines.row(booking.machine) if resource in booking.needs else None
                if there is not None and not (new and there == row):
                    machines.free[there, column] -= booking.needs[resource]
                    machines.touch(there)
        return row

    def book(
        self,
        task: str,
        machine: str,
        needs: Mapping[str, int],
        *,
        sensitivity: float = 0.0,
        pressure: float = 0.0,
        holds: Sequence[str] = (),
        joins: Sequence[str] = (),
    ) -> None:
        """Count a task on a machine, known or not; a task that is booked already moves.

        Raises ``KeyError`` for a relation that was not declared and ``ValueError`` for a sensitivity or pressure that is
        below 0 or not finite; then nothing has changed.
        """
        store = self.machines.relation_store
        booking = _Booking(
            machine, dict(needs), fixed(sensitivity), fixed(pressure), store.binding_ids(holds), store.ids(joins)
        )
        old = self._bookings.get(task)
        if old is None or old.machine != machine:
            self._put(task, booking)
            return
        self._note(task)
        self._bookings[task] = booking
        self._recount(old, booking)

    def release(self, task: str) -> None:
        """Take a task out; an unknown one is nothing to do."""
        booking = self._bookings.get(task)
        if booking is None:
            return
        self._note(task)
        del self._bookings[task]
        if self._booked_on is not None:
            here = self._booked_on[booking.machine]
            del here[task]
            if not here:
                del self._booked_on[booking.machine]
        row = self.machines.row(booking.machine)
        if row is not None:
            self._count(booking, row, -1)

    def needs_of(self, task: str) -> Mapping[str, int]:
        """What a booked task takes of its machine; raises ``KeyError`` for one that is not booked."""
        return self._bookings[task].needs

    def booking(self, task: str) -> BookedTask | None:
        """What a task is booked with; None if it is not."""
        found = self._bookings.get(task)
        if found is None:
            return None
        names = self.machines.relation_store.names
        sums = found.sensitivity / FIXED, found.pressure / FIXED
        return BookedTask(found.machine, found.needs, *sums, names(found.holds), names(found.joins))

    def enrol(self, relation: str, tasks: Iterable[str]) -> None:
        """Let tasks that are booked already join a relation that was declared later; unknown tasks are left out.

        Raises ``KeyError`` for a relation that was not declared.
        """
        store = self.machines.relation_store
        joined = store.ids((relation,))
        for task in tasks:
            booking = self._bookings.get(task)
            if booking is None or joined[0] in booking.joins:
                continue
            self._note(task)
            self._bookings[task] = replace(booking, joins=(*booking.joins, *joined))
            row = self.machines.row(booking.machine)
            if row is not None:
                store.count((row, (), joined), 1)

    def overbooked(self, task: str) -> tuple[str, ...]:
        """Resources of which a task is booked with some, and its machine with more than there is."""
        booking, machines = self._bookings.get(task), self.machines
        row = None if booking is None else machines.row(booking.machine)
        if booking is None or row is None:
            return ()
        asked = [(resource, machines.column(resource)) for resource, amount in booking.needs.items() if amount > 0]
        return tuple(resource for resource, column in asked if column < 0 or machines.free[row, column] < 0)

    def permits_on(
        self,
        holds: Sequence[str],
        joins: Sequence[str],
        machine: str,
        eligible: BoolArray | None = None,
        without: Iterable[str] = (),
    ) -> bool:
        """What :meth:`MachineRows.permits` says of one machine, were the tasks ``without`` gone; False if it is not there.

        It costs the relations of the task (and a spread's domains), not the machines and not the tasks that are booked.
        """
        row = self.machines.row(machine)
        if row is None:
            return False
        store = self.machines.relation_store
        return store.refusing_on(holds, joins, row, eligible, self._footprints(without)) is None

    def relations_of(self, task: str, among: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of some relations, those that a booked task holds where that binds later tasks, and those that it joins.

        None for a task that is not booked. Raises ``KeyError`` for a relation that was not declared.
        """
        booking = self._bookings.get(task)
        if booking is None or not among:
            return (), ()
        ids = list(zip(among, self.machines.relation_store.ids(among), strict=True))
        holds, joins = set(booking.holds), set(booking.joins)
        return tuple(n for n, i in ids if i in holds), tuple(n for n, i in ids if i in joins)

    def relations_without(self, tasks: Iterable[str]) -> RelationStore:
        """All relations as they would be counted, were these tasks gone; independent of those here."""
        store = self.machines.relation_store.copy()
        for footprint in self._footprints(tasks):
            store.count(footprint, -1)
        return store

    def copy(self) -> BookedTasks:
        """The same tasks on machines of their own in the same state, for a round in another thread."""
        twin = BookedTasks(self.machines.copy())
        twin._bookings = self._bookings.copy()
        twin._booked_on, twin._before = None, {}
        return twin

    def undo(self) -> None:
        """Be as other tasks were when these were copied from them, or caught up. Machines must not have changed since."""
        for task, booking in list((self._before or {}).items()):
            self._put(task, booking)

    def catch_up(self, other: BookedTasks) -> None:
        """Become the same as other tasks with their machines, always the same ones and none that others catch up with: only
        what has happened to either since the last time is looked at.
        """
        self.machines.catch_up(other.machines)
        changed = None if self._changed is None or other._changed is None else self._changed | other._changed
        if changed is None or _SHARE * len(changed) > len(other._bookings):
            self._bookings = other._bookings.copy()
        else:
            for task in changed:
                booking = other._bookings.get(task)
                if booking is None:
                    self._bookings.pop(task, None)
                else:
                    self._bookings[task] = booking
        self._booked_on, self._changed, other._changed, self._before = None, set(), set(), {}

    def _put(self, task: str, booking: _Booking | None) -> None:
        """Book a task anew, or not at all."""
        self.release(task)
        if booking is None:
            return
        self._note(task)
        self._bookings[task] = booking
        if self._booked_on is not None:
            self._booked_on.setdefault(booking.machine, {})[task] = None
        row = self.machines.row(booking.machine)
        if row is not None:
            self._count(booking, row, 1)

    def _note(self, task: str) -> None:
        """A task is about to be booked or released."""
        if self._before is not None and task not in self._before:
            self._before[task] = self._bookings.get(task)
        if self._changed is not None:
            self._changed.add(task)
            if len(self._changed) > _MOST_CHANGED + len(self._bookings):
                self._changed = None

    def _footprints(self, tasks: Iterable[str]) -> list[Footprint]:
        booked = (self._bookings[task] for task in dict.fromkeys(tasks) if task in self._bookings)
        rows = ((b, self.machines.row(b.machine)) for b in booked)
        return [(-1 if row is None else row, frozenset(b.holds), frozenset(b.joins)) for b, row in rows]

    def _tasks_on(self, machine: str) -> Iterable[str]:
        if self._booked_on is None:
            self._booked_on = {}
            for task, booking in self._bookings.items():
                self._booked_on.setdefault(booking.machine, {})[task] = None
        return self._booked_on.get(machine, {})

    def _count(self, booking: _Booking, row: int, sign: int) -> None:
        machines = self.machines
        machines.use(row, booking.needs, sign)
        machines.readings[row, _PRESSURE] += sign * booking.pressure
        machines.readings[row, _SENSITIVITY] += sign * booking.sensitivity
        machines.relation_store.count((row, booking.holds, booking.joins), sign)

    def _recount(self, old: _Booking, new: _Booking) -> None:
        """A task on a machine is another one now: only what differs changes."""
        machines = self.machines
        row = machines.row(new.machine)
        if row is None:
            return
        if old.needs != new.needs:
            machines.use(row, old.needs, -1)
            machines.use(row, new.needs, 1)
        machines.readings[row, _PRESSURE] += new.pressure - old.pressure
        machines.readings[row, _SENSITIVITY] += new.sensitivity - old.sensitivity
        machines.touch(row)
        if (old.holds, old.joins) != (new.holds, new.joins):
            machines.relation_store.count((row, old.holds, old.joins), -1)
            machines.relation_store.count((row, new.holds, new.joins), 1)


def fixed(amount: float) -> int:
    """A sensitivity or pressure in units of 1/FIXED. Raises ``ValueError`` for one below 0 or not finite."""
    if not (math.isfinite(amount) and amount >= 0.0):
        raise ValueError(f"sensitivity and pressure must be finite and at least 0, not {amount}")
    return round(min(amount, _LARGEST) * FIXED)

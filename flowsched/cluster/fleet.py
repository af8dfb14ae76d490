"""The machines of a cluster as arrays, kept from events in O(changes), with what is booked on them.

Every machine has a *row*; rows are reused, so their numbers say nothing but where to look. Nothing here depends on the
order of the events that led to a state: sums are kept in integers, and rounds read machines in the order of their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.machine_rows import FIXED, HEADROOM, PRESSURE, SENSITIVITY, UNLIMITED, MachineRows, limit_of
from flowsched.cluster.task_class import MachineKind
from flowsched.relations.entry_bounds import roles
from flowsched.relations.relation import Relation
from flowsched.relations.relation_store import Footprint
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_PRESSURE, _SENSITIVITY, _SLOPE = range(3)
_LARGEST = 1e4
"""Largest sensitivity or pressure of one task: sums stay far inside 64 bits."""
_UNKNOWN = 5
"""Resources that no machine has had, of one task, of which anything is said."""


@dataclass(frozen=True)
class Refusal:
    """What one relation says against one more task, machine by machine."""

    relation: Relation
    role: str
    """``holds`` or ``joins``: as which of the two the task is refused."""
    refused: BoolArray
    """Alive machines that take no such task, by row."""
    missing_label: BoolArray
    """Those of them that have no label of the relation's key."""


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
    """What a booked task takes of its machine, and which relations count it; :meth:`Fleet.book` takes the same."""

    machine: str
    needs: Mapping[str, int]
    sensitivity: float
    pressure: float
    holds: tuple[str, ...]
    """Relations that it holds where that binds later tasks."""
    joins: tuple[str, ...]


class Fleet(MachineRows):
    """Machines by row, bookings, and the relations between them."""

    def __init__(self) -> None:
        """No machines yet."""
        super().__init__((PRESSURE, SENSITIVITY, HEADROOM))
        self._bookings: dict[str, _Booking] = {}
        self._booked_on: dict[str, dict[str, None]] | None = {}
        self._order: IntArray | None = None
        self._ordered_names: tuple[str, ...] = ()

    @property
    def task_count(self) -> int:
        """Tasks that are booked, on machines known or not."""
        return len(self._bookings)

    def column(self, resource: str) -> int:
        """Column of a resource; -1 for one that no machine has had."""
        return self.resources.index(resource) if resource in self.resources else -1

    def row(self, name: str) -> int | None:
        """Row of a machine, or None while it is not there."""
        return self._row.get(name)

    def labels(self, name: str) -> Mapping[str, str]:
        """Labels of a machine; raises ``KeyError`` while it is not there."""
        return self.relation_store.labels(self._row[name])

    @property
    def ordered_names(self) -> tuple[str, ...]:
        """Names of all machines, sorted."""
        self.order()
        return self._ordered_names

    def order(self) -> IntArray:
        """Rows of all machines, in the order of their names."""
        if self._order is None:
            self._ordered_names = tuple(sorted(self._row))
            self._order = np.array([self._row[name] for name in self._ordered_names], dtype=np.int64)
        return self._order

    def rows_of(self, names: Iterable[str]) -> IntArray:
        """Rows of some machines; raises ``KeyError`` while one is not there."""
        return np.array([self._row[name] for name in names], dtype=np.int64)

    def put_machine(
        self, name: str, allocatable: Mapping[str, int], labels: Mapping[str, str], *, bandwidth: float = 1.0
    ) -> int:
        """Add or update a machine; bookings on it stay, services on it too. Its row."""
        row = self._row.get(name)
        new = row is None
        if row is None:
            row = self._take_row(name, labels)
            self._order = None
        else:
            self.relation_store.put_machine(row, labels)
        if new:
            for task in self._tasks_on(name):
                self._count(self._bookings[task], row, 1)
        self._set_allocatable(row, allocatable)
        kind = MachineKind("machine", bandwidth=bandwidth)
        self._intern_kinds((kind,))
        self.kind[row] = self._kind[kind]
        return row

    def remove_machine(self, name: str) -> None:
        """Take a machine away; bookings on it count again if it comes back. An unknown machine is nothing to do."""
        if name not in self._row:
            return
        self._leave_row(name)
        self._order = None

    def set_service(self, machine: str, pressure_cap: float, headroom_slope: float) -> None:
        """Latency services of a machine: the pressure they bear before a p95 goal breaks, and its price per unit.

        The pressure is that of all bookings there; ``(inf, 0)`` means none. Raises ``KeyError`` for an unknown machine.
        """
        row = self._row[machine]
        self._set_reading(row, _PRESSURE, 0, limit_of(pressure_cap))
        self._set_reading(row, _SLOPE, round(headroom_slope * FIXED), UNLIMITED)

    def service(self, machine: str) -> tuple[float, float]:
        """What :meth:`set_service` said of a machine, in whole units of 1/FIXED; raises ``KeyError`` for an unknown one."""
        row = self._row[machine]
        most = int(self.limits[row, _PRESSURE])
        return most / FIXED if most < UNLIMITED else math.inf, int(self.own_readings[row, _SLOPE]) / FIXED

    def bandwidth(self, machine: str) -> float:
        """Factor on what neighbours do to each other on a machine; raises ``KeyError`` for an unknown one."""
        return self.kinds[int(self.kind[self._row[machine]])].bandwidth

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
        store = self.relation_store
        booking = _Booking(
            machine,
            dict(needs),
            fixed(sensitivity),
            fixed(pressure),
            store.binding_ids(holds),
            store.ids(joins),
        )
        old = self._bookings.get(task)
        if old is not None and old.machine == machine:
            self._bookings[task] = booking
            self._recount(old, booking)
            return
        self.release(task)
        self._bookings[task] = booking
        if self._booked_on is not None:
            self._booked_on.setdefault(machine, {})[task] = None
        row = self._row.get(machine)
        if row is not None:
            self._count(booking, row, 1)

    def release(self, task: str) -> None:
        """Take a task out; an unknown one is nothing to do."""
        booking = self._bookings.pop(task, None)
        if booking is None:
            return
        if self._booked_on is not None:
            here = self._booked_on[booking.machine]
            del here[task]
            if not here:
                del self._booked_on[booking.machine]
        row = self._row.get(booking.machine)
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
        names = self.relation_store.names
        sums = found.sensitivity / FIXED, found.pressure / FIXED
        return BookedTask(found.machine, found.needs, *sums, names(found.holds), names(found.joins))

    def relations(self) -> tuple[Relation, ...]:
        """All declared relations."""
        return self.relation_store.relations()

    def refuses(self, relation: str) -> bool:
        """Whether a relation may refuse a task as things stand. Raises ``KeyError`` for one that was not declared."""
        return self.relation_store.refuses(relation)

    def declare(self, relation: Relation) -> None:
        """Make a relation known; again is nothing to do."""
        self.relation_store.declare(relation)

    def relation(self, name: str) -> Relation | None:
        """A declared relation."""
        return self.relation_store.relation(name)

    def enrol(self, relation: str, tasks: Iterable[str]) -> None:
        """Let tasks that are booked already join a relation that was declared later; unknown tasks are left out.

        Raises ``KeyError`` for a relation that was not declared.
        """
        joined = self.relation_store.ids((relation,))
        for task in tasks:
            booking = self._bookings.get(task)
            if booking is None or joined[0] in booking.joins:
                continue
            self._bookings[task] = replace(booking, joins=(*booking.joins, *joined))
            row = self._row.get(booking.machine)
            if row is not None:
                self.relation_store.count((row, (), joined), 1)

    def retire(self, relation: str) -> None:
        """Forget a relation; no task joins or holds it any more. An unknown one is nothing to do."""
        self.relation_store.retire(relation)

    def pressure(self) -> FloatArray:
        """Sum of the pressures of what is booked on each machine."""
        found: FloatArray = self.readings[:, _PRESSURE] / FIXED
        return found

    def decisive(self, needs: Mapping[str, int]) -> Mapping[str, int]:
        """Needs that fit exactly where all of these do: of resources that no machine has had, a few say that."""
        unknown = sorted(r for r, amount in needs.items() if amount > 0 and r not in self.resources)
        if len(unknown) <= _UNKNOWN:
            return needs
        left_out = set(unknown[_UNKNOWN:])
        return {r: amount for r, amount in needs.items() if r not in left_out}

    def fits(self, needs: Mapping[str, int]) -> BoolArray:
        """Alive machines that have room for all needs; a need of 0 asks for nothing."""
        fitting = self.alive.copy()
        for resource, amount in needs.items():
            if amount > 0:
                fitting &= self._free_of(resource) >= amount
        return fitting

    def places(self, needs: Mapping[str, int], most: int) -> IntArray:
        """[rows] how many tasks with such needs each alive machine has room for, at most ``most``."""
        found = np.where(self.alive, most, 0)
        for resource, amount in needs.items():
            if amount > 0:
                found = np.minimum(found, np.maximum(0, self._free_of(resource)) // amount)
        return found

    def fits_on(self, needs: Mapping[str, int], machine: str, freed: Mapping[str, int] | None = None) -> bool:
        """Whether one machine is there and has room for all needs, were so much more free there."""
        row = self._row.get(machine)
        if row is None:
            return False
        free = self.free[row]
        for resource, amount in needs.items():
            if amount <= 0:
                continue
            column = self.column(resource)
            if column < 0 or free[column] + (freed or {}).get(resource, 0) < amount:
                return False
        return True

    def overbooked(self, task: str) -> tuple[str, ...]:
        """Resources of which a task is booked with some, and its machine with more than there is."""
        booking = self._bookings.get(task)
        row = None if booking is None else self._row.get(booking.machine)
        if booking is None or row is None:
            return ()
        return tuple(
            r for r, n in booking.needs.items() if n > 0 and ((c := self.column(r)) < 0 or self.free[row, c] < 0)
        )

    def lacking(self, needs: Mapping[str, int]) -> dict[str, BoolArray]:
        """By resource, the alive machines that have too little of it."""
        return {
            resource: self.alive & (self._free_of(resource) < amount)
            for resource, amount in needs.items()
            if amount > 0
        }

    def refusals(self, holds: Sequence[str], joins: Sequence[str], eligible: BoolArray | None = None) -> list[Refusal]:
        """What each relation of a task says against one more such task; in the order of ``holds``, then ``joins``.

        Relations that refuse no machine are left out. Raises ``KeyError`` for a relation that was not declared.
        """
        answers = []
        held_names, joined_names = set(holds), set(joins)
        for name in dict.fromkeys((*holds, *joins)):
            relation = self.relation_store.relation(name)
            if relation is None:
                raise KeyError(f"relation {name} was not declared")
            for role, held, joined in roles(relation, name in held_names, name in joined_names):
                open_, labelled = self.relation_store.open_rows(name, held, joined, eligible)
                here = self.alive & ~open_
                if here.any():
                    answers.append(Refusal(relation, role, here, here & ~labelled))
        return answers

    def permits(self, holds: Sequence[str], joins: Sequence[str], eligible: BoolArray | None = None) -> BoolArray:
        """Alive machines that no relation refuses to one more such task."""
        open_ = self.alive.copy()
        held, joined = set(holds), set(joins)
        for name in dict.fromkeys((*holds, *joins)):
            open_ &= self.relation_store.open_rows(name, name in held, name in joined, eligible)[0]
        return open_

    def permits_on(
        self,
        holds: Sequence[str],
        joins: Sequence[str],
        machine: str,
        eligible: BoolArray | None = None,
        without: Iterable[str] = (),
    ) -> bool:
        """What :meth:`permits` says of one machine, were the tasks ``without`` gone; False while it is not there.

        It costs the relations of the task (and a spread's domains), not the machines and not the tasks that are booked.
        """
        row = self._row.get(machine)
        if row is None:
            return False
        return self.relation_store.refusing_on(holds, joins, row, eligible, self._footprints(without)) is None

    def relations_of(self, task: str, among: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of some relations, those that a booked task holds where that binds later tasks, and those that it joins.

        None for a task that is not booked. Raises ``KeyError`` for a relation that was not declared.
        """
        booking = self._bookings.get(task)
        if booking is None or not among:
            return (), ()
        ids = list(zip(among, self.relation_store.ids(among), strict=True))
        holds, joins = set(booking.holds), set(booking.joins)
        return tuple(n for n, i in ids if i in holds), tuple(n for n, i in ids if i in joins)

    def members(self, relation: str) -> IntArray:
        """Tasks that join a relation in each machine's domain, by row; 0 for machines without the label."""
        return self.relation_store.members_around(relation)

    def topology_counts(self, relation: str, rows: IntArray | None = None) -> TopologyCounts:
        """A relation as it stands now, over all rows or the given ones in their order.

        Raises ``KeyError`` for a relation that was not declared.
        """
        return self.relation_store.topology_counts(relation, rows)

    def copy(self) -> Fleet:
        """An independent fleet in the same state, for a round in another thread."""
        twin = Fleet()
        twin.names = self.names.copy()
        for name in self._BARE:
            setattr(twin, name, getattr(self, name).copy())
        twin.resources, twin.kinds, twin._kind = self.resources.copy(), self.kinds.copy(), self._kind.copy()
        twin._row = self._row.copy()
        twin._empty_rows = self._empty_rows.copy()
        twin._bookings = self._bookings.copy()
        twin._booked_on = None
        twin.relation_store = self.relation_store.copy()
        twin._order, twin._ordered_names = self._order, self._ordered_names
        return twin

    def _footprints(self, tasks: Iterable[str]) -> list[Footprint]:
        booked = (self._bookings[task] for task in dict.fromkeys(tasks) if task in self._bookings)
        return [(self._row.get(b.machine, -1), frozenset(b.holds), frozenset(b.joins)) for b in booked]

    def _tasks_on(self, machine: str) -> Iterable[str]:
        if self._booked_on is None:
            self._booked_on = {}
            for task, booking in self._bookings.items():
                self._booked_on.setdefault(booking.machine, {})[task] = None
        return self._booked_on.get(machine, {})

    def _free_of(self, resource: str) -> IntArray:
        column = self.column(resource)
        return np.zeros(self.rows, dtype=np.int64) if column < 0 else self.free[:, column]

    def _count(self, booking: _Booking, row: int, sign: int) -> None:
        self._use(booking.needs, row, sign)
        self.readings[row, _PRESSURE] += sign * booking.pressure
        self.readings[row, _SENSITIVITY] += sign * booking.sensitivity
        self.relation_store.count((row, booking.holds, booking.joins), sign)

    def _recount(self, old: _Booking, new: _Booking) -> None:
        """A task on a machine is another one now: only what differs changes."""
        row = self._row.get(new.machine)
        if row is None:
            return
        if old.needs != new.needs:
            self._use(old.needs, row, -1)
            self._use(new.needs, row, 1)
        self.readings[row, _PRESSURE] += new.pressure - old.pressure
        self.readings[row, _SENSITIVITY] += new.sensitivity - old.sensitivity
        if (old.holds, old.joins) != (new.holds, new.joins):
            self.relation_store.count((row, old.holds, old.joins), -1)
            self.relation_store.count((row, new.holds, new.joins), 1)

    def _use(self, needs: Mapping[str, int], row: int, sign: int) -> None:
        for resource, amount in needs.items():
            column = self.column(resource)
            if column >= 0:
                self.free[row, column] -= sign * amount

    def _add_resource(self, resource: str) -> None:
        super()._add_resource(resource)
        # Tasks may name any number of resources: what no machine had was not counted.
        for booking in self._bookings.values():
            row = self._row.get(booking.machine) if resource in booking.needs else None
            if row is not None:
                self.free[row, -1] -= booking.needs[resource]


def fixed(amount: float) -> int:
    """A sensitivity or pressure in units of 1/FIXED. Raises ``ValueError`` for one below 0 or not finite."""
    if not (math.isfinite(amount) and amount >= 0.0):
        raise ValueError(f"sensitivity and pressure must be finite and at least 0, not {amount}")
    return round(min(amount, _LARGEST) * FIXED)

"""The machines of a cluster as arrays by row, kept from events in O(changes), and what is asked of them.

Nothing here depends on the order of the events that led to a state: sums are kept in integers, and rounds read machines in
the order of their names. A machine that joins gets an empty row between those of its neighbours by name, if there is one; if
not, :meth:`MachineRows.settle` moves rows before the next round. So rounds may go by rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowsched.cluster.machine_arrays import (
    FIXED,
    HEADROOM,
    PRESSURE,
    UNLIMITED,
    fixed,
    fixed_limit,
    limit_of,
    longer,
    wider,
)
from flowsched.cluster.task_class import MachineKind, MachineSpec
from flowsched.relations.entry_bounds import roles
from flowsched.relations.relation import Relation
from flowsched.relations.relation_store import RelationStore
from flowsched.support.arrays import BoolArray, FloatArray, IntArray, moved

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


class MachineRows:
    """Machines by name in the rows of arrays that grow; who leaves gives its row to another."""

    _BARE: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(("alive", "kind", "allocatable", "free", "readings", "own_readings", "revision"), 0),
        "limits": UNLIMITED,
    }
    """The arrays by row, and what each has where there is no machine."""
    _PRICED = ("kind", "readings", "own_readings", "limits", "revision")
    """Those that machines which follow others have of their own."""
    _SHARED = (
        *("alive", "allocatable", "free", "names", "resources", "relation_store"),
        *("_row", "_sorted", "_order", "_in_order", "_columns"),
    )
    """What they have in common."""

    def __init__(self, features: Sequence[str], resources: Sequence[str] = ()) -> None:
        """No machines yet. ``features``: names of what is read of machines; more ``resources`` may turn up with machines."""
        self.names: list[str | None] = []
        """Name of the machine in each row."""
        self.alive: BoolArray = np.zeros(0, dtype=np.bool_)
        """Rows that hold a machine."""
        self._row: dict[str, int] = {}
        self._sorted: list[str] = []
        """Names of the machines that are there, in order."""
        self._order: IntArray | None = None
        self._layout = object()
        """Another one after each change of which machines, resources and kinds there are."""
        self.revision: IntArray = np.zeros(0, dtype=np.int64)
        """By row: the number of reads, by any reader, before its last change; see :meth:`changed_since`."""
        self._reads = 1
        self._caught_up = 0, 0
        self._followed: object = None
        self._seen_names: list[str | None] = []
        """Name of the machine in each row when another one was followed last."""
        self._in_order = True
        """Whether rows are in the order of names."""
        self._settled = self._layout
        self.moves = 0
        """How often machines or kinds changed their rows or numbers."""
        self.resources = list(resources)
        """Resource of each column."""
        self._columns = {resource: i for i, resource in enumerate(resources)}
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

    # Machines

    def add_machines(self, specs: Sequence[MachineSpec]) -> None:
        """Machines join that are not there yet, with features that are read here; resources and kinds may be new."""
        for resource in sorted({r for spec in specs for r in spec.allocatable} - self._columns.keys()):
            self.add_resource(resource)
        for spec in specs:
            self.describe(self.put_machine(spec.name, spec.kind, spec.allocatable, spec.labels), spec)

    def put_machine(
        self, name: str, kind: MachineKind, allocatable: Mapping[str, int], labels: Mapping[str, str]
    ) -> int:
        """Add or update a machine; what is counted there stays, services on it too. Its row."""
        row = self._row.get(name)
        if row is None:
            row = self._take_row(name, labels)
        else:
            self.relation_store.put_machine(row, labels)
        self.set_allocatable(row, allocatable)
        self._set_kind(row, kind)
        return row

    def describe(self, row: int, spec: MachineSpec) -> None:
        """Kind of the machine in a row, and what it reads by itself."""
        self._set_kind(row, spec.kind)
        for name, feature in self._feature.items():
            own, most = fixed(spec.readings.get(name, 0.0)), fixed_limit(spec.limits.get(name, math.inf))
            self.set_reading(row, feature, own, most)

    def remove_machine(self, name: str) -> None:
        """Take a machine away, with all that is counted there. An unknown machine is nothing to do."""
        if name in self._row:
            self._leave_row(name)

    def set_service(self, machine: str, pressure_cap: float, headroom_slope: float) -> None:
        """Latency services of a machine: the pressure they bear before a p95 goal breaks, and its price per unit.

        The pressure is that of all that is there; ``(inf, 0)`` means none. Raises ``KeyError`` for an unknown machine.
        """
        row = self._row[machine]
        self.set_reading(row, self._feature[PRESSURE], 0, limit_of(pressure_cap))
        self.set_reading(row, self._feature[HEADROOM], round(headroom_slope * FIXED), UNLIMITED)

    def set_allocatable(self, row: int, allocatable: Mapping[str, int]) -> None:
        """What a machine has changes; what is used of it stays."""
        for resource in sorted(allocatable.keys() - set(self.resources)):
            self.add_resource(resource)
        change = np.array([allocatable.get(resource, 0) for resource in self.resources], dtype=np.int64)
        change -= self.allocatable[row]
        self.allocatable[row] += change
        self.free[row] += change
        self.touch(row)

    def set_reading(self, row: int, feature: int, own: int, limit: int) -> None:
        """What a machine reads by itself, and what it may reach, in units of 1/FIXED."""
        self.readings[row, feature] += own - self.own_readings[row, feature]
        self.own_readings[row, feature] = own
        self.limits[row, feature] = limit
        self.touch(row)

    def add_resource(self, resource: str) -> None:
        """A further resource, of which no machine has any yet."""
        self._layout = object()
        self._columns[resource] = len(self.resources)
        self.resources.append(resource)
        self.allocatable = wider(self.allocatable)
        self.free = wider(self.free)

    def use(self, row: int, needs: Mapping[str, int], sign: int) -> None:
        """So much is taken on the machine of a row, or given back with ``sign`` -1; of resources that machines have had."""
        for resource, amount in needs.items():
            column = self.column(resource)
            if column >= 0:
                self.free[row, column] -= sign * amount
        self.touch(row)

    # Changes and copies

    def touch(self, rows: IntArray | int) -> None:
        """Count machines as changed."""
        self.revision[rows] = self._reads

    def changed_since(self, read: int) -> tuple[IntArray, int]:
        """Rows that have changed since an earlier read, ascending, and the number of this one; 0 was before all."""
        self._reads += 1
        return np.flatnonzero(self.revision > read), self._reads - 1

    def settle(self) -> IntArray | None:
        """Bring machines into the order of their names, and kinds into that of their first machines, without those that no
        machine is of, for readers that go by rows; without machines there are no rows.

        By row the one where its machine was before, -1 for rows without a machine; None where no machine moved.
        """
        if self._settled is self._layout:
            return None
        rows, before = self.order(), None
        if not self._in_order or len(rows) == 0 < self.rows:
            before = np.full(self.rows if len(rows) else 0, -1, dtype=np.int64)
            before[: len(rows)] = rows
            for name, bare in self._BARE.items():
                setattr(self, name, moved(getattr(self, name), before, bare))
            self.names = [*self._sorted, *[None] * (len(before) - len(rows))]
            self._row = {name: row for row, name in enumerate(self._sorted)}
            self.relation_store.move(before)
            self._in_order, rows = True, np.arange(len(rows))
        found, first = np.unique(self.kind[rows], return_index=True)
        kinds = found[np.argsort(first)]
        renumbered = not np.array_equal(kinds, np.arange(len(self.kinds)))
        if renumbered:
            number = np.zeros(len(self.kinds), dtype=np.int64)
            number[kinds] = np.arange(len(kinds))
            self.kind[rows] = number[self.kind[rows]]
            self.kinds = [self.kinds[k] for k in kinds.tolist()]
            self._kind = {kind: k for k, kind in enumerate(self.kinds)}
        if renumbered or before is not None:
            self.touch(np.arange(self.rows))
            self._order, self._layout = None, object()
            self.moves += 1
        self._settled = self._layout
        return before

    def copy(self, relations: bool = True) -> MachineRows:
        """Independent machines in the same state. ``relations``: whether with what is counted of these."""
        twin = object.__new__(MachineRows)
        vars(twin).update(vars(self))
        if not relations:
            twin.relation_store = RelationStore()
        twin._take_over(twin)
        return twin

    def catch_up(self, other: MachineRows) -> None:
        """Become the same as other machines, always the same ones: only what has happened to either since the last time is
        looked at, unless machines, resources or kinds came or went.
        """
        ours, theirs = self.changed_since(self._caught_up[0]), other.changed_since(self._caught_up[1])
        self._caught_up = ours[1], theirs[1]
        if self._layout is not other._layout:
            self._take_over(other)
            return
        rows = np.concatenate([ours[0], theirs[0]])
        for name in self._BARE.keys() - {"revision"}:
            getattr(self, name)[rows] = getattr(other, name)[rows]
        self.revision[rows] = ours[1]
        self.relation_store = other.relation_store.copy()

    def follow(self, other: MachineRows) -> IntArray:
        """Have another's machines, with what is free and related there, as they are whenever this is called again; kinds and
        readings are this one's own. ``other`` is settled, and always the same one. Rows that have changed there.
        """
        changed, read = other.changed_since(self._caught_up[1])
        self._caught_up = 0, read
        if self._followed is not other._layout:
            was = {name: row for row, name in enumerate(self._seen_names) if name is not None}
            rows = [-1 if name is None else was.get(name, -1) for name in other.names]
            before = np.array(rows, dtype=np.int64)
            for name in self._PRICED:
                setattr(self, name, moved(getattr(self, name), before, self._BARE[name]))
            self._followed, self._seen_names, self._layout = other._layout, other.names.copy(), object()
            if (there := before[before >= 0]).size and (there != np.flatnonzero(before >= 0)).any():
                changed = np.arange(other.rows)
                self.moves += 1
        for name in self._SHARED:
            setattr(self, name, getattr(other, name))
        self.touch(changed)
        return changed

    def _take_over(self, other: MachineRows) -> None:
        lists = ("names", "resources", "_columns", "kinds", "_kind", "_row", "_sorted", "relation_store")
        for name in (*self._BARE, *lists):
            setattr(self, name, getattr(other, name).copy())
        self.revision[:] = self._reads - 1
        self._order, self._layout = other._order, other._layout
        self._in_order, self._settled, self.moves = other._in_order, other._settled, other.moves

    # Questions

    def column(self, resource: str) -> int:
        """Column of a resource; -1 for one that no machine has had."""
        return self._columns.get(resource, -1)

    def row(self, name: str) -> int | None:
        """Row of a machine, or None while it is not there."""
        return self._row.get(name)

    def name(self, row: int) -> str:
        """Name of the machine in a row; empty where there is none."""
        return self.names[row] or ""

    def columns(self, values: IntArray, resources: Sequence[str]) -> IntArray:
        """Columns of an array by resource, only to be read; 0 of those that no machine has had."""
        if resources == self.resources:
            return values
        at = np.array([self.column(resource) for resource in resources], dtype=np.int64)
        found = values.take(np.maximum(at, 0), 1) if values.size else np.zeros((len(values), len(at)), dtype=np.int64)
        found[:, at < 0] = 0
        return found

    def labels(self, name: str) -> Mapping[str, str]:
        """Labels of a machine; raises ``KeyError`` while it is not there."""
        return self.relation_store.labels(self._row[name])

    @property
    def ordered_names(self) -> tuple[str, ...]:
        """Names of all machines, sorted."""
        return tuple(self._sorted)

    def order(self) -> IntArray:
        """Rows of all machines, in the order of their names."""
        if self._order is None:
            self._order = np.array([self._row[name] for name in self._sorted], dtype=np.int64)
        return self._order

    def rows_of(self, names: Iterable[str]) -> IntArray:
        """Rows of some machines; raises ``KeyError`` while one is not there."""
        return np.array([self._row[name] for name in names], dtype=np.int64)

    def service(self, machine: str) -> tuple[float, float]:
        """What :meth:`set_service` said of a machine, in whole units of 1/FIXED; raises ``KeyError`` for an unknown one."""
        row = self._row[machine]
        most = int(self.limits[row, self._feature[PRESSURE]])
        return most / FIXED if most < UNLIMITED else math.inf, int(
            self.own_readings[row, self._feature[HEADROOM]]
        ) / FIXED

    def bandwidth(self, machine: str) -> float:
        """Factor on what neighbours do to each other on a machine; raises ``KeyError`` for an unknown one."""
        return self.kinds[int(self.kind[self._row[machine]])].bandwidth

    def pressure(self) -> FloatArray:
        """Sum of the pressures of what is on each machine."""
        found: FloatArray = self.readings[:, self._feature[PRESSURE]] / FIXED
        return found

    def decisive(self, needs: Mapping[str, int]) -> Mapping[str, int]:
        """Needs that fit exactly where all of these do: of resources that no machine has had, a few say that."""
        unknown = sorted(r for r, amount in needs.items() if amount > 0 and r not in self.resources)
        if len(unknown) <= _UNKNOWN:
            return needs
        left_out = set(unknown[_UNKNOWN:])
        return {r: amount for r, amount in needs.items() if r not in left_out}

    def fits(self, needs: Mapping[str, int]) -> BoolArray:
        """Alive machines that have room for all needs; a need of 0 counts as none."""
        fitting = self.alive.copy()
        for resource, amount in needs.items():
            if amount > 0:
                fitting &= self._free_of(resource) >= amount
        return fitting

    def room_for(self, needs: Mapping[str, int], most: int) -> IntArray:
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

    # Insides

    def _set_kind(self, row: int, kind: MachineKind) -> None:
        number = self._kind.setdefault(kind, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(kind)
            self._layout = object()
        if self.kind[row] != number:
            self.kind[row], self._layout = number, object()

    def _take_row(self, name: str, labels: Mapping[str, str]) -> int:
        at, rows = bisect_left(self._sorted, name), self.rows
        last = at == len(self._sorted)
        row = self._row[self._sorted[at - 1]] + 1 if at else 0
        if not self._in_order or row >= (rows if last else self._row[self._sorted[at]]):
            row = int(np.argmin(self.alive)) if self.machine_count < rows else rows
            if row == rows:
                self._grow(max(16, rows))
            self._in_order &= last and row == rows
        self._sorted.insert(at, name)
        self._row[name] = row
        self._order, self._layout = None, object()
        self.names[row] = name
        self.alive[row] = True
        self.relation_store.put_machine(row, labels)
        return row

    def _leave_row(self, name: str) -> int:
        row = self._row.pop(name)
        del self._sorted[bisect_left(self._sorted, name)]
        self._order, self._layout = None, object()
        self.names[row] = None
        for array, bare in self._BARE.items():
            getattr(self, array)[row] = bare
        self.relation_store.remove_machine(row)
        self.touch(row)
        return row

    def _grow(self, more: int) -> None:
        self.names += [None] * more
        for array, bare in self._BARE.items():
            setattr(self, array, longer(getattr(self, array), more, bare))
        self.relation_store.grow(self.rows)

    def _free_of(self, resource: str) -> IntArray:
        column = self.column(resource)
        return np.zeros(self.rows, dtype=np.int64) if column < 0 else self.free[:, column]

"""The state that a wide round works on: machines in the order of their names, classes, room, prices, relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.demand import Demand
from flowsched.fleet import FIXED, Fleet, fixed
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.relations.topology_filter import TopologyFilter

CPU = "cpu"
MEMORY = "memory"
UNLIMITED = 1 << 40
TIE = 1e-6
"""Price of a machine that is full, over one that is empty: what decides between machines that cost the same."""


STATE = (
    "allocatable",
    "free",
    "bandwidth",
    "pressure_cap",
    "headroom_slope",
    "sensitivity",
    "pressure",
)
"""The arrays by machine that a board is made of; the first two are by resource too."""


@dataclass(frozen=True, eq=False)
class WideClass:
    """A demand with its arrays in the order of the board's machines."""

    index: int
    demand: Demand
    width: int
    """Milli-CPU of one task; 0 for tasks that ask for none."""
    columns: IntArray
    """Resources that it needs, as columns of the board."""
    amounts: IntArray
    allowed: BoolArray
    eligible: BoolArray | None
    slowness: FloatArray
    preference: FloatArray
    base: FloatArray
    """Slowness plus preference."""
    sensitivity: int
    pressure: int
    load: FloatArray
    """What one task adds to a machine's load."""
    limit: float
    """No place dearer than this is taken."""

    @property
    def relations(self) -> tuple[str, ...]:
        """Relations that it holds or joins."""
        return tuple(dict.fromkeys((*self.demand.holds, *self.demand.joins)))

    @property
    def self_price(self) -> float:
        """What two of its tasks do to each other, with a bandwidth factor of 1."""
        return 2.0 * (self.sensitivity / FIXED) * (self.pressure / FIXED)


class Board:
    """Everything that changes while a round places tasks, and what it needs to know to place them."""

    def __init__(self, fleet: Fleet, demands: Sequence[Demand]) -> None:
        """Read the fleet. Raises ``KeyError`` for a relation that was not declared."""
        rows = fleet.order()
        needed = {r for d in demands for r, amount in d.needs.items() if amount > 0}
        resources = sorted(needed | {CPU, MEMORY})
        known = {resource: i for i, resource in enumerate(fleet.resources)}
        allocatable = np.zeros((len(rows), len(resources)), dtype=np.int64)
        used = np.zeros((len(rows), len(resources)), dtype=np.int64)
        for k, resource in enumerate(resources):
            column = known.get(resource)
            if column is not None:
                allocatable[:, k] = fleet.allocatable()[rows, column]
                used[:, k] = fleet.used()[rows, column]
        self.rows = rows
        self.names = [str(fleet.names[row]) for row in rows.tolist()]
        self.resources = resources
        self.allocatable = allocatable
        self.free = allocatable - used
        self.bandwidth = fleet.bandwidth[rows]
        self.pressure_cap = np.minimum(fleet.pressure_cap[rows] * FIXED, 2.0**62).astype(np.int64)
        self.headroom_slope = fleet.headroom_slope[rows]
        self.sensitivity, self.pressure = fleet.fixed_sums(rows)
        relations = dict.fromkeys(r for d in demands for r in (*d.holds, *d.joins))
        self._open(demands, {name: fleet.topology_counts(name, rows) for name in relations})

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        resources: Sequence[str],
        arrays: Mapping[str, Any],
        standings: Mapping[str, TopologyCounts],
        demands: Sequence[Demand],
    ) -> Board:
        """A board from its own arrays, machines in the order of their names; the demands' arrays are in that order too."""
        board = object.__new__(cls)
        board.rows = np.arange(len(names), dtype=np.int64)
        board.names = list(names)
        board.resources = list(resources)
        for name in STATE:
            setattr(board, name, arrays[name])
        board._open(demands, standings)
        return board

    def _open(self, demands: Sequence[Demand], standings: Mapping[str, TopologyCounts]) -> None:
        loaded = [self.resources.index(r) for r in (CPU, MEMORY)]
        with np.errstate(divide="ignore", invalid="ignore"):
            self._load_per_unit = np.where(self.allocatable > 0, 0.5 / self.allocatable, 0.0)
        self._loaded = loaded
        used = self.allocatable - self.free
        self.load: FloatArray = (used[:, loaded] * self._load_per_unit[:, loaded]).sum(axis=1)
        self.everywhere = np.ones(len(self.names), dtype=np.bool_)
        self.nothing = np.zeros(len(self.names))
        self.classes = [self._read(i, demand) for i, demand in enumerate(demands)]
        self.standings = {name: standings[name] for cls in self.classes for name in cls.relations}

    @property
    def machine_count(self) -> int:
        """Machines on the board."""
        return len(self.names)

    def price(self, cls: WideClass) -> FloatArray:
        """What the next task of a class would cost on every machine."""
        s, p = cls.sensitivity / FIXED, cls.pressure / FIXED
        price = cls.base
        if s:
            price = price + self.bandwidth * (self.pressure * (s / FIXED))
        if p:
            price = price + self.bandwidth * (self.sensitivity * (p / FIXED)) + p * self.headroom_slope
        return price

    def terms(self, cls: WideClass) -> dict[str, FloatArray]:
        """What the price is made of."""
        s, p = cls.sensitivity / FIXED, cls.pressure / FIXED
        return {
            "run_time": cls.slowness,
            "interference_suffered": self.bandwidth * (self.pressure * (s / FIXED)),
            "interference_caused": self.bandwidth * (self.sensitivity * (p / FIXED)),
            "slo_headroom": p * self.headroom_slope,
            "preference": cls.preference,
        }

    def step(self, cls: WideClass) -> FloatArray:
        """By how much every task of a class raises the price of the next one on the same machine."""
        return cls.self_price * self.bandwidth

    def room(self, cls: WideClass) -> IntArray:
        """Whole tasks of a class that every machine has room for, in every resource."""
        slots = np.where(cls.allowed, UNLIMITED, 0)
        for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True):
            np.minimum(slots, self.free[:, column] // amount, out=slots)
        return np.maximum(slots, 0, out=slots)

    def bearable(self, cls: WideClass) -> IntArray:
        """Whole tasks of a class that every machine's services bear."""
        if not cls.pressure:
            return np.full(self.machine_count, UNLIMITED)
        return np.maximum((self.pressure_cap - self.pressure) // cls.pressure, 0)  # type: ignore[no-any-return]

    def affordable(self, cls: WideClass, price: FloatArray, step: FloatArray) -> IntArray:
        """Whole tasks of a class until the next one is dearer than its limit."""
        if cls.limit == np.inf:
            return np.full(self.machine_count, UNLIMITED)
        with np.errstate(divide="ignore", invalid="ignore"):
            more = np.where(step > 0.0, np.floor((cls.limit - price) / step) + 1.0, float(UNLIMITED))
        return np.where(price <= cls.limit, np.clip(more, 1.0, float(UNLIMITED)), 0.0).astype(np.int64)

    def gates(self, cls: WideClass) -> list[TopologyFilter]:
        """What its relations say as things stand; without those that never refuse."""
        found = []
        for name in cls.relations:
            demand = cls.demand
            gate = TopologyFilter(self.standings[name], name in demand.holds, name in demand.joins, cls.eligible)
            if not gate.trivial:
                found.append(gate)
        return found

    def commit(self, cls: WideClass, machines: IntArray, sign: int = 1) -> None:
        """Put one task of a class on each of ``machines`` (repeats count again), or take it back with ``sign`` -1."""
        if not len(machines):
            return
        count = sign * np.bincount(machines, minlength=self.machine_count)
        for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True):
            self.free[:, column] -= count * amount
        self.sensitivity += count * cls.sensitivity
        self.pressure += count * cls.pressure
        self.load += count * cls.load
        for name in cls.relations:
            demand = cls.demand
            self.standings[name].add(machines, name in demand.holds, name in demand.joins, sign)

    def copy(self) -> Board:
        """The same state, to be changed without changing this one."""
        twin = object.__new__(Board)
        twin.__dict__.update(self.__dict__)
        for name in ("free", "sensitivity", "pressure", "load"):
            setattr(twin, name, getattr(self, name).copy())
        twin.standings = {name: standing.copy() for name, standing in self.standings.items()}
        return twin

    def _read(self, index: int, demand: Demand) -> WideClass:
        needs = {self.resources.index(r): amount for r, amount in sorted(demand.needs.items()) if amount > 0}
        columns = np.array(list(needs), dtype=np.int64)
        amounts = np.array(list(needs.values()), dtype=np.int64)
        slowness = self.nothing if demand.slowness is None else demand.slowness[self.rows]
        preference = self.nothing if demand.preference is None else demand.preference[self.rows]
        same = demand.slowness is None and demand.preference is None
        base = self.nothing if same else slowness + preference
        allowed = self.everywhere if demand.allowed is None else demand.allowed[self.rows]
        if not np.isfinite(base).all():
            allowed = allowed & np.isfinite(base)
        load = self.nothing
        for column in self._loaded:
            if column in needs:
                load = load + needs[column] * self._load_per_unit[:, column]
        return WideClass(
            index,
            demand,
            demand.needs.get(CPU, 0),
            columns,
            amounts,
            allowed,
            None if demand.eligible is None else demand.eligible[self.rows],
            slowness,
            preference,
            base,
            fixed(demand.sensitivity),
            fixed(demand.pressure),
            load,
            min(demand.max_cost, demand.waiting_cost),
        )

"""What a task of each shape is worth to a cluster that fills up: dual prices of a linear program over the demand.

The program packs the expected arrivals into pools of empty machines. Each shape's gain is concave, so that all shapes get
their part before one gets all of it (capped proportional fairness), and every bottleneck has a price, not the tightest
alone. Shares are cut from devices by patterns, found by column generation (P. C. Gilmore, R. E. Gomory, "A Linear
Programming Approach to the Cutting-Stock Problem", Operations Research 9, 1961). The dual of a shape's row is its price.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from flowsched.gpu.demand import GpuDemand, gpus_of
from flowsched.gpu.device_arrays import DeviceArrays
from flowsched.gpu.device_patterns import CELL_MILLI, CELLS, best_pattern, cells_of
from flowsched.gpu.device_pools import SLOTS, asks_for_models, pooled
from flowsched.gpu.shapes import GpuShape, shape_arrays
from flowsched.support.arrays import FloatArray, IntArray

LEVELS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 1.0)
"""Parts of a shape's arrivals at which the gain of more of them falls: up to the first by 1 / 0.5, the last by 1 / 1."""
CPU_TASK_WORTH = 0.3
"""What a task without GPUs counts, in GPUs."""
LOAD = 1.2
"""Expected arrivals, as a part of what the machines hold: above 1, so that whatever becomes scarce has a price."""
SAMPLES = 8
"""Futures over which prices are averaged."""
NEXT_ARRIVALS = 150
"""A shape counts in a future if one of this many arrivals has it: what hardly comes fills no hole."""
_MOST_ROUNDS = 100
"""Of column generation; some ten are needed."""
_EPSILON = 1e-7
_WAYS = (
    "use_dual_simplex: false use_preprocessing: true",
    "use_dual_simplex: true use_preprocessing: true",
    "use_dual_simplex: false use_preprocessing: false",
)
"""Of the solver, the usual one first. All say the same things, since what one does not say stays as it was."""


class PriceProgram:
    """The linear program for some shapes and machines; solved for one demand after the other, patterns are kept.

    GPUs are counted in devices, CPU in cores, memory in GiB.
    """

    def __init__(self, machines: DeviceArrays, models: Sequence[str], shapes: Sequence[GpuShape]) -> None:
        """Build it. ``models`` are the names behind the machines' indices."""
        self._shapes = tuple(shapes)
        self.arrays = shape_arrays(shapes, models)
        self.pools = pooled(machines, self.arrays, asks_for_models(shapes))
        self.worth = np.where(self.arrays.count > 0, gpus_of(shapes), CPU_TASK_WORTH)
        self.capacity = int(self.pools.gpus.sum())
        # Imported late: it takes a while, and is needed with GPUs only.
        linear_solver = importlib.import_module("ortools.linear_solver.pywraplp")
        self._solver: Any = linear_solver.Solver.CreateSolver("GLOP")
        parameters = linear_solver.MPSolverParameters
        self._onwards, self._anew = parameters(), parameters()
        self._anew.SetIntegerParam(parameters.INCREMENTALITY, parameters.INCREMENTALITY_OFF)
        shared = (self.arrays.count == 1) & (self.arrays.share < CELLS * CELL_MILLI)
        cells = cells_of(self.arrays.share)
        self._sizes = np.unique(cells[shared])
        self._size_of = np.where(shared, np.searchsorted(self._sizes, cells), -1)
        self._known: set[tuple[int, tuple[int, ...]]] = set()
        self._build()

    def _build(self) -> None:
        solver, arrays, pools = self._solver, self.arrays, self.pools
        endless = solver.infinity()
        count = len(self._shapes)
        objective = solver.Objective()
        objective.SetMaximization()
        self._rows = [solver.Constraint(-endless, 0.0) for _ in range(count)]
        self._parts: list[list[Any]] = []
        for t, row in enumerate(self._rows):
            parts = []
            for level in LEVELS:
                part = solver.NumVar(0.0, 0.0, "")
                row.SetCoefficient(part, 1.0)
                objective.SetCoefficient(part, float(self.worth[t]) / level)
                parts.append(part)
            self._parts.append(parts)
        self._device_rows, self._size_rows = [], []
        for pool in range(len(pools.gpus)):
            cpu = solver.Constraint(-endless, float(pools.cores[pool]))
            memory = solver.Constraint(-endless, float(pools.memory_gib[pool]))
            devices = solver.Constraint(-endless, float(pools.gpus[pool]))
            slots = [solver.Constraint(-endless, float(n)) for n in pools.slots[pool]]
            sizes = [solver.Constraint(-endless, 0.0) for _ in self._sizes]
            self._device_rows.append(devices)
            self._size_rows.append(sizes)
            for t in np.flatnonzero(pools.takes[:, pool]).tolist():
                placed = solver.NumVar(0.0, endless, "")
                self._rows[t].SetCoefficient(placed, -1.0)
                cpu.SetCoefficient(placed, float(arrays.cpu[t]) / 1000.0)
                memory.SetCoefficient(placed, float(arrays.memory[t]) / 1024.0)
                asked = int(arrays.count[t])
                if self._size_of[t] >= 0:
                    sizes[self._size_of[t]].SetCoefficient(placed, 1.0)
                elif asked:
                    devices.SetCoefficient(placed, float(asked))
                    for size, row in zip(SLOTS, slots, strict=True):
                        if asked >= size:
                            row.SetCoefficient(placed, float(asked // size))
            for size, cells in enumerate(self._sizes):
                alone = np.zeros(len(self._sizes), dtype=np.int64)
                alone[size] = CELLS // cells
                self._add_pattern(pool, alone)

    def _add_pattern(self, pool: int, counts: np.ndarray[Any, Any]) -> bool:
        key = (pool, tuple(int(n) for n in counts))
        if key in self._known:
            return False
        self._known.add(key)
        cut = self._solver.NumVar(0.0, self._solver.infinity(), "")
        self._device_rows[pool].SetCoefficient(cut, 1.0)
        for size in np.flatnonzero(counts):
            self._size_rows[pool][size].SetCoefficient(cut, -float(counts[size]))
        return True

    def expected_prices(self, demand: GpuDemand, seen: int | None, rng: np.random.Generator) -> FloatArray:
        """[SAMPLES, shapes] prices in equally likely futures.

        The value of a machine takes each shape that has a price for one of which there are enough. So in each future only
        shapes have one that come soon, drawn by their shares: then a hole that rare tasks alone would fill is worth what
        they are on average, and not as much as one that many fill.

        Args:
            demand: what is expected.
            seen: arrivals that this is known from; None if it is known for sure.
            rng: draws the futures.
        """
        arrivals = seen or max(1, round(self.capacity / max(demand.mean_gpus, _EPSILON)))
        futures = [demand.sampled(arrivals, rng) for _ in range(SAMPLES)]
        come = rng.multinomial(NEXT_ARRIVALS, demand.shares, size=SAMPLES) > 0
        return np.stack([self.prices(future) for future in futures]) * come

    def prices(self, demand: GpuDemand, load: float = LOAD) -> FloatArray:
        """Price of each shape, in devices, scaled so that the demand is worth on average what it asks for.

        Raises ``RuntimeError`` where the solver fails, which it has no reason to.
        """
        # What can never run is no demand: nothing is to be kept for it, and nothing of the load is it.
        runs = self.pools.takes.any(axis=1)
        shares = np.where(runs, demand.shares, 0.0)
        self._expect(shares, load)
        self._solve()
        found = np.array([max(0.0, row.dual_value()) for row in self._rows])
        found[~runs] = 0.0
        total = float(shares @ found)
        return found * (float(shares @ self.worth) / total) if total > 0.0 else self.worth * runs

    def bound(self, counts: FloatArray | IntArray) -> float:
        """Most GPUs that can be allocated if of each shape that many tasks come and any may be left out.

        Raises ``ValueError`` for shares that are no multiples of 10 milli: patterns count them as if they were.
        """
        if (self.arrays.share % CELL_MILLI).any():
            raise ValueError(f"a bound needs shares in multiples of {CELL_MILLI} milli")
        for parts, many in zip(self._parts, counts, strict=True):
            for part in parts[:-1]:
                part.SetUb(0.0)
            parts[-1].SetUb(float(many))
        worth, objective = gpus_of(self._shapes), self._solver.Objective()
        for parts, gpus in zip(self._parts, worth, strict=True):
            objective.SetCoefficient(parts[-1], float(gpus))
        if not self._solve():
            raise RuntimeError(f"the bound is not known after {_MOST_ROUNDS} rounds of column generation")
        found = float(objective.Value())
        for parts, usual in zip(self._parts, self.worth, strict=True):
            objective.SetCoefficient(parts[-1], float(usual) / LEVELS[-1])
        return found

    def _expect(self, shares: FloatArray, load: float) -> None:
        arrivals = load * self.capacity / max(float(shares @ gpus_of(self._shapes)), _EPSILON)
        for parts, share in zip(self._parts, shares, strict=True):
            below = 0.0
            for part, level in zip(parts, LEVELS, strict=True):
                part.SetUb(arrivals * float(share) * (level - below))
                below = level

    def _solve(self) -> bool:
        """Solve it, and add patterns until none that is missing would help. False if that took too many rounds."""
        for _ in range(_MOST_ROUNDS):
            self._solve_once()
            if not len(self._sizes) or not self._improved():
                return True
        return False

    def _solve_once(self) -> None:
        """Solve it as it is. Now and then the simplex method loses its way, and another one of it does not."""
        for way in _WAYS:
            self._solver.SetSolverSpecificParametersAsString(way)
            status = self._solver.Solve(self._onwards if way == _WAYS[0] else self._anew)
            if status == self._solver.OPTIMAL:
                return
        raise RuntimeError(f"the price program has no optimum (status {status})")

    def _improved(self) -> bool:
        # Duals are read before anything is added: a program that changed has none until it is solved again.
        devices = [row.dual_value() for row in self._device_rows]
        sizes = [np.array([max(0.0, row.dual_value()) for row in rows]) for rows in self._size_rows]
        added = False
        for pool, (device, prices) in enumerate(zip(devices, sizes, strict=True)):
            value, counts = best_pattern(self._sizes, prices)
            if value > device + _EPSILON:
                added |= self._add_pattern(pool, counts)
        return added

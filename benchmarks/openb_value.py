"""Our own policy on the openb trace: each task goes where a machine loses least of its value to the expected demand."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.openb_move_kernels import place_all
from benchmarks.openb_playing import GpuPlacements
from flowsched.gpu.demand import GpuDemand
from flowsched.gpu.demand_prices import PriceProgram
from flowsched.gpu.device_value import value_state, value_tables
from flowsched.gpu.shapes import ShapeArrays, shape_arrays
from flowsched.gpu.tie_order import tie_order
from flowsched.gpu.value_kernels import ValueTables
from flowsched.support.arrays import FloatArray, IntArray
from flowsched_simulator.baselines.gpu.rule import GpuOutlook

FIRST_PRICES = 100
"""Arrivals after which there are prices, where nothing is known beforehand; then whenever there are twice as many."""
TIES = ("hash", "given")


@dataclass(frozen=True)
class ValuePolicy:
    """Places by the value that a machine loses; prices come from a linear program over the demand."""

    told: bool
    """Whether the shares of the list are known beforehand, as they are to FGD; otherwise they are learnt from arrivals."""
    ties: str = "hash"
    """Of equally good machines the first: by a hash of their names, or as they are given."""
    moves: bool = False
    """Whether one task may be moved aside for each that fits nowhere."""

    def play(self, outlook: GpuOutlook, arrivals: IntArray, order: IntArray) -> GpuPlacements:
        """Play ``arrivals`` [N], positions in ``outlook.shapes``; ``order``: how the machines are listed, positions."""
        if self.ties == "hash":
            order = order[tie_order([outlook.names[m] for m in order])]
        game = _Game(
            replace(outlook, machines=outlook.machines.permuted(order)), arrivals, len(arrivals) if self.moves else 0
        )
        rng = np.random.default_rng([outlook.seed, 2])
        if self.told:
            game.play(game.prices(outlook.frequency, None, rng), len(arrivals))
        else:
            # Without prices all places cost the same, so that the first one is taken.
            prices, until = np.zeros((1, len(outlook.shapes))), FIRST_PRICES
            while game.played < len(arrivals):
                game.play(prices, until)
                if game.played < len(arrivals):
                    counts = np.bincount(arrivals[: game.played], minlength=len(outlook.shapes))
                    prices, until = game.prices(counts, game.played, rng), 2 * until
        machine, moves = np.where(game.machine >= 0, order[game.machine], -1), game.moves[: game.made]
        moves[:, 2] = order[moves[:, 2]]
        return GpuPlacements(machine, game.device, game.cpu_s, game.prices_s, game.price_sets, moves)


class _Game:
    """One run, as far as it has come."""

    def __init__(self, outlook: GpuOutlook, arrivals: IntArray, most_moves: int) -> None:
        self._outlook, self._arrivals = outlook, arrivals
        self._empty, self._machines = outlook.machines, outlook.machines.copy()
        self._shapes: ShapeArrays = shape_arrays(outlook.shapes, outlook.models)
        self.machine, self.device, self._at, self._on = np.full((4, len(arrivals)), -1, dtype=np.int64)
        self.moves, self.made = np.zeros((most_moves, 4), dtype=np.int64), 0
        self.played, self.cpu_s, self.prices_s, self.price_sets = 0, 0.0, 0.0, 0

    def prices(self, counts: IntArray, seen: int | None, rng: np.random.Generator) -> FloatArray:
        """[samples, S] prices where so many of each shape are known; 0 for shapes of which none is."""
        began = time.process_time()
        known = np.flatnonzero(counts)
        shapes = [self._outlook.shapes[s] for s in known]
        program = PriceProgram(self._empty, self._outlook.models, shapes)
        found = program.expected_prices(GpuDemand(tuple(shapes), counts[known] / counts.sum()), seen, rng)
        prices = np.zeros((len(found), len(counts)))
        prices[:, known] = found
        self.prices_s += time.process_time() - began
        self.price_sets += 1
        return prices

    def play(self, prices: FloatArray, until: int) -> None:
        """Place the next arrivals at these prices, up to a number of arrivals."""
        tables = value_tables(prices, self._shapes, self._machines.devices.shape[1])
        self._step(tables, self.played, self.played)  # compiles, or reads what is kept
        began = time.process_time()
        self._step(tables, self.played, until)
        self.cpu_s += time.process_time() - began
        self.played = min(until, len(self._arrivals))

    def _step(self, tables: ValueTables, first: int, last: int) -> None:
        state = value_state(self._machines, tables)
        self.made = place_all(
            first,
            min(last, len(self._arrivals)),
            self._arrivals,
            self._machines,
            self._shapes,
            tables,
            state,
            self.machine,
            self.device,
            self._at,
            self._on,
            self.moves,
            self.made,
        )

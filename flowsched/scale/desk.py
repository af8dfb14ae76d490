"""The state that a round works on: copies of what it changes, and the placements so far."""

from __future__ import annotations

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.scale import kernels
from flowsched.scale.certificate import Evidence
from flowsched.scale.ledger import Ledger
from flowsched.scale.openings import Openings
from flowsched.scale.waiting import Waiting


class Desk:
    """The state that a round works on: copies of what it changes, and the placements so far."""

    def __init__(self, ledger: Ledger, barred: BoolArray | None) -> None:
        """Copy what changes. ``barred``: machine rows that take nobody."""
        self.ledger = ledger
        self.free = ledger.free.copy()
        self.readings = ledger.readings.copy()
        self.barred = np.zeros(ledger.rows, dtype=np.bool_) if barred is None else barred
        self.seen = np.zeros(ledger.rows, dtype=np.bool_)
        """Machines that the compaction saw as they are here."""
        self._new = np.zeros(ledger.rows, dtype=np.bool_)
        self.count = 0
        self.machine: IntArray = np.zeros(0, dtype=np.int64)
        self.task_class: IntArray = np.zeros(0, dtype=np.int64)
        self.believed: FloatArray = np.zeros(0)
        self.tasks: IntArray = np.zeros(0, dtype=np.int64)
        self._model = ledger.model()
        widths = np.array([c.width_milli for c in ledger.classes], dtype=np.int64)
        self._order = np.lexsort((np.arange(len(widths)), -ledger.demands.sum(axis=1), -widths))

    def pack(self, wanted: IntArray, waiting: Waiting, open_: Openings) -> int:
        """Place whole tasks along a flow; how many found room."""
        limit = np.full(len(wanted), -np.inf)
        limit[waiting.classes] = waiting.dearest
        some: BoolArray = np.any(wanted > 0, axis=1)
        order = self._order[some[self._order]]
        return self._take(order, wanted, limit, open_.first, open_.rows)

    def sweep(self, start: int, waiting: Waiting, open_: Openings) -> int:
        """Place whoever finds a place that is cheaper than waiting, wherever it is."""
        left = waiting.counts - self.placed_of(start, waiting.classes)
        if not left.any() or not len(open_.rows):
            return 0
        total = len(self.ledger.classes)
        wanted = np.zeros((total, 1), dtype=np.int64)
        wanted[waiting.classes, 0] = left
        limit = np.full(total, -np.inf)
        limit[waiting.classes] = waiting.dearest
        order = self._order[wanted[self._order, 0] > 0]
        ends = np.array([0, len(open_.rows)], dtype=np.int64)
        return self._take(order, wanted, limit, ends, open_.rows)

    def settle(self, start: int, waiting: Waiting, open_: Openings) -> tuple[int, int]:
        """One pass in which every class of a level is placed anew beside all others; moves and machines looked at."""
        if self.count == start:
            return 0, 0
        machine = self.machine[start:]
        before = machine.copy()
        moves, looked = kernels.settle(
            np.argsort(self.task_class[start:], kind="stable"),
            self.task_class[start:],
            machine,
            self.believed[start:],
            *open_.cheap(waiting.classes, len(self.ledger.classes)),
            open_.first,
            open_.rows,
            self.barred,
            self._model,
            self.free,
            self.readings,
            1e-9,
        )
        self._touch(machine[machine != before])
        return moves, looked

    def give_back(self, start: int, waiting: Waiting) -> None:
        """Take back places that cost more than leaving the task: the dearest place meets the one that is left cheapest."""
        position = np.searchsorted(waiting.classes, self.task_class[start:])
        order = np.lexsort((self.believed[start:], position))
        rank = np.arange(len(order)) - np.searchsorted(position[order], position[order])
        # The tasks that are dearest to leave are placed; of them the k-th goes with the k-th cheapest place.
        leaving = waiting.cost[waiting.first[position[order]] + rank]
        over: BoolArray = np.zeros(len(order), dtype=np.bool_)
        over[order] = self.believed[start:][order] > leaving
        if not over.any():
            return
        for i in (start + np.flatnonzero(over)).tolist():
            kernels.put(self.machine[i], self.task_class[i], -1, self._model, self.free, self.readings)
        kept = np.concatenate([np.ones(start, dtype=np.bool_), ~over])
        self._keep(kept)

    def close(self, start: int, waiting: Waiting, evidence: Evidence) -> float:
        """Give the level's places to its tasks, the dearest to leave first; what the level costs in all."""
        position = np.searchsorted(waiting.classes, self.task_class[start:])
        order = np.argsort(position, kind="stable")
        self.machine[start:] = self.machine[start:][order]
        self.task_class[start:] = self.task_class[start:][order]
        self.believed[start:] = self.believed[start:][order]
        placed = np.bincount(position, minlength=len(waiting.classes))
        rank = np.arange(len(waiting.tasks)) - np.repeat(waiting.first[:-1], waiting.counts)
        served = rank < np.repeat(placed, waiting.counts)
        self.tasks = np.concatenate([self.tasks, waiting.tasks[served]])
        in_turn = np.empty(self.count - start)
        kernels.in_turn(
            self.task_class[start:],
            self.machine[start:],
            self._model,
            evidence.free.copy(),
            evidence.readings.copy(),
            in_turn,
        )
        left = np.minimum(waiting.cost[~served], evidence.most)
        return float(in_turn.sum() + left.sum())

    def result(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """Tasks, machines, what was believed, what it costs beside all others."""
        cost = np.empty(self.count)
        kernels.reprice(self.task_class, self.machine, self._model, self.readings, cost)
        return self.tasks, self.machine, self.believed, cost

    def placed_of(self, start: int, classes: IntArray) -> IntArray:
        """Tasks placed of each class since placement ``start``."""
        count = np.bincount(self.task_class[start:], minlength=len(self.ledger.classes))
        placed: IntArray = count[classes]
        return placed

    def newly_touched(self) -> IntArray:
        """Machine rows that changed since this was asked last."""
        rows = np.flatnonzero(self._new)
        self._new[:] = False
        return rows

    def _take(self, order: IntArray, wanted: IntArray, limit: FloatArray, first: IntArray, rows: IntArray) -> int:
        most = int(wanted.sum())
        chosen = np.empty(most, dtype=np.int64)
        costs = np.empty(most)
        classes = np.empty(most, dtype=np.int64)
        placed = kernels.pack(
            order,
            wanted,
            limit,
            first,
            rows,
            self.barred,
            self._model,
            self.free,
            self.readings,
            chosen,
            costs,
            classes,
        )
        self.machine = np.concatenate([self.machine, chosen[:placed]])
        self.task_class = np.concatenate([self.task_class, classes[:placed]])
        self.believed = np.concatenate([self.believed, costs[:placed]])
        self.count += placed
        self._touch(chosen[:placed])
        return placed

    def _touch(self, rows: IntArray) -> None:
        self._new[rows] = True

    def _keep(self, kept: BoolArray) -> None:
        self.machine = self.machine[kept]
        self.task_class = self.task_class[kept]
        self.believed = self.believed[kept]
        self.count = len(self.machine)

"""The state that a round works on: copies of what it changes, and the placements so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.pricing.linear import kernels
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.round.bounded_waiting import gone_by
from flowsched.round.linear import packing_kernels, relation_kernels, trade_kernels
from flowsched.round.linear.candidate_index import CandidateIndex
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_bound import Evidence
from flowsched.round.linear.round_relations import RoundRelations
from flowsched.round.linear.waiting import Waiting
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_SAVED = ("free", "readings", "machine", "task_class", "estimate")
"""Arrays of a state that placing changes, by their names in :class:`SavedRoundState` too."""


@dataclass(frozen=True, eq=False)
class SavedRoundState:
    """What placing tasks changes."""

    free: IntArray
    readings: IntArray
    machine: IntArray
    task_class: IntArray
    estimate: FloatArray
    topology_counts: dict[str, TopologyCounts]


class BulkRoundState:
    """The state that a round works on: copies of what it changes, and the placements so far."""

    def __init__(self, cluster: ClusterRows, barred: BoolArray | None, present: IntArray, spread: bool = True) -> None:
        """Copy what changes. ``barred``: machine rows that take no task; ``present``: classes that wait; ``spread``: whether
        ties take the emptiest machine.
        """
        self.cluster = cluster
        self.free = cluster.free.copy()
        self.readings = cluster.readings.copy()
        self.barred = np.zeros(cluster.machines.rows, dtype=np.bool_) if barred is None else barred
        self.seen = np.zeros(cluster.machines.rows, dtype=np.bool_)
        """Machines that the compaction saw as they are here."""
        self._new = np.zeros(cluster.machines.rows, dtype=np.bool_)
        self.count = 0
        self.machine: IntArray = np.zeros(0, dtype=np.int64)
        self.task_class: IntArray = np.zeros(0, dtype=np.int64)
        self.estimate: FloatArray = np.zeros(0)
        self.tasks: IntArray = np.zeros(0, dtype=np.int64)
        self.held: IntArray = np.zeros(0, dtype=np.int64)
        """Machines that are reserved: in ``model`` each is of a kind of its own, which forbids who would stay too long."""
        self.relations = RoundRelations(cluster, present)
        self.model = self.relations.with_gates(cluster.model(spread))
        widths = np.array([c.width_milli for c in cluster.classes], dtype=np.int64)
        later = np.zeros(len(widths), dtype=np.bool_)
        if self.relations:
            later[:] = [self.relations.comes_later(c) for c in range(len(widths))]
        self.order: IntArray = np.lexsort(
            (np.arange(len(widths)), -cluster.classes.demands.sum(axis=1), -widths, later)
        )
        """Classes in the order in which they choose."""

    def rank(self, spread: bool) -> None:
        """Let ties spread tasks, or pack them."""
        model = self.cluster.model(spread)
        self.model = self.model._replace(tie=model.tie, spread=spread)

    def serve_first(self, first: BoolArray) -> None:
        """Let some classes choose before all others. ``first``: by class."""
        self.order = np.concatenate([self.order[first[self.order]], self.order[~first[self.order]]])

    def ties(self) -> FloatArray:
        """By machine, its rank among those with the same price."""
        tie = self.model.tie
        ranks: FloatArray = tie[:, 0] + tie[:, 1] * self.free[:, 0] + tie[:, 2] * self.free[:, self.model.memory]
        return ranks

    def pack(self, wanted: IntArray, waiting: Waiting, candidates: CandidateIndex) -> int:
        """Place whole tasks along a flow; how many found room."""
        limit = np.full(len(wanted), -np.inf)
        limit[waiting.classes] = waiting.dearest
        some: BoolArray = np.any(wanted > 0, axis=1)
        order = self.order[some[self.order]]
        return self._take(order, wanted, limit, candidates.first, candidates.rows)

    def sweep(self, start: int, waiting: Waiting, candidates: CandidateIndex, only: BoolArray | None = None) -> int:
        """Place every task that finds a place cheaper than waiting, wherever it is, held machines too.

        ``only``: by class, who is asked.
        """
        left = waiting.counts - self.placed_of(start, waiting.classes)
        if only is not None:
            left = np.where(only[waiting.classes], left, 0)
        rows = (
            np.concatenate([candidates.rows, np.setdiff1d(self.held, candidates.rows)])
            if len(self.held)
            else candidates.rows
        )
        if not left.any() or not len(rows):
            return 0
        total = len(self.cluster.classes)
        wanted = np.zeros((total, 1), dtype=np.int64)
        wanted[waiting.classes, 0] = left
        limit = np.full(total, -np.inf)
        limit[waiting.classes] = waiting.dearest
        ends = np.array([0, len(rows)], dtype=np.int64)
        return self._take_widening(self.order, wanted, limit, ends, rows)

    def force(self, wanted: IntArray, within: BoolArray | None = None) -> int:
        """Place tasks, so many of each class, at whatever cost, wherever there is room; how many found some.

        ``within``: machines that may be chosen.
        """
        order = self.order[wanted[self.order] > 0]
        least = self.cluster.classes.demands[wanted > 0].min(axis=0)
        room = self.cluster.machines.alive & ~self.barred
        if within is not None:
            room &= within
        for r in np.flatnonzero(least).tolist():
            room &= self.free[:, r] >= least[r]
        rows = np.flatnonzero(room)
        limit = np.full(len(wanted), np.inf)
        ends = np.array([0, len(rows)], dtype=np.int64)
        return self._take_widening(order, wanted[:, None].copy(), limit, ends, rows)

    def put(self, task_class: int, row: int) -> None:
        """Place one task of a class on a machine, whatever it costs."""
        cost = kernels.place_cost(row, task_class, self.model, self.readings)
        kernels.put(row, task_class, 1, self.model, self.free, self.readings)
        if self.relations:
            self.relations.note(task_class, np.array([row]))
        self._add(np.array([task_class]), np.array([row]), np.array([cost]))

    def _take_widening(
        self, order: IntArray, wanted: IntArray, limit: FloatArray, first: IntArray, rows: IntArray
    ) -> int:
        """:meth:`_take`, over and over while tasks that were placed may have let in others; changes ``wanted``."""
        found = 0
        while wanted.any():
            before = self.count
            more = self._take(order[wanted[order, 0] > 0], wanted, limit, first, rows)
            if not more:
                break
            found += more
            wanted[:, 0] -= np.bincount(self.task_class[before:], minlength=len(wanted))
            # Only classes that what was placed after them may have let in.
            wanted[[c for c in np.flatnonzero(wanted).tolist() if not self.relations.widens(c)]] = 0
        return found

    def hold(self, rows: IntArray, until_s: FloatArray) -> None:
        """Reserve machines: from here on only those join who are predicted to be gone within so many seconds."""
        cluster = self.cluster
        kind = cluster.machines.kind[rows]
        base = np.where(gone_by(cluster.classes.lasting_s()[:, kind], until_s), self.model.base[:, kind], np.inf)
        kinds = self.model.kind.copy()
        kinds[rows] = self.model.base.shape[1] + np.arange(len(rows))
        self.model = self.model._replace(
            kind=kinds,
            base=np.hstack([self.model.base, base]),
            factors=np.vstack([self.model.factors, self.model.factors[kind]]),
        )
        self.held = np.union1d(self.held, rows)
        self._touch(rows)

    def visible_free(self) -> IntArray:
        """What is free for the network: on held machines nothing; who may join them finds them when it is swept."""
        if not len(self.held):
            return self.free
        free = self.free.copy()
        free[self.held] = 0
        return free

    def settle(self, start: int, waiting: Waiting, candidates: CandidateIndex) -> tuple[int, int]:
        """One pass in which every class of a level is placed anew beside all others; moves and machines looked at."""
        order = np.argsort(self.task_class[start:], kind="stable")
        if not self.relations:
            return self._settle(start, waiting, candidates, order)
        classes = self.task_class[start:]
        bound = [c for c in np.unique(classes).tolist() if self.relations.concerns(c)]
        moves, looked = self._settle(start, waiting, candidates, order[~np.isin(classes[order], bound)])
        for c in bound:
            if self.relations.fixed(c):
                continue
            mine = order[classes[order] == c]
            before = self.machine[start:][mine].copy()
            self.relations.note(c, before, -1)
            self.relations.set_gate(c, self.model)
            more, looks = self._settle(start, waiting, candidates, mine)
            self.relations.note(c, self.machine[start:][mine])
            moves, looked = moves + more, looked + looks
        return moves, looked

    def _settle(self, start: int, waiting: Waiting, candidates: CandidateIndex, order: IntArray) -> tuple[int, int]:
        """The same for the placements ``order``, class by class."""
        if not len(order):
            return 0, 0
        machine = self.machine[start:]
        before = machine.copy()
        moves, looked = packing_kernels.settle(
            order,
            packing_kernels.Placements(self.task_class[start:], machine, self.estimate[start:]),
            packing_kernels.CheapGroups(*candidates.cheap(waiting.classes, len(self.cluster.classes), self.model)),
            packing_kernels.GroupMachines(candidates.first, candidates.rows, self.barred),
            self.model,
            self._load(),
        )
        self._touch_moved(before, machine)
        return int(moves), int(looked)

    def trade(self, start: int, budget: int) -> tuple[int, int]:
        """Tasks of different classes take each other's machines where that pays; trades and places looked at."""
        movable = self._movable_by_class(start)
        if len(movable.classes) < 2:
            return 0, 0
        before = movable.machine.copy()
        trades, looked = trade_kernels.trade(movable, self.model, self._load(), budget)
        self._touch_moved(before, movable.machine)
        return int(trades), int(looked)

    def _load(self) -> kernels.MachineLoad:
        return kernels.MachineLoad(self.free, self.readings)

    def _movable_by_class(self, start: int) -> trade_kernels.PlacementsByClass:
        """The tasks from ``start`` on that may move; their machines and costs are those of this state."""
        of = self.task_class[start:]
        order = np.argsort(of, kind="stable")
        if self.relations:
            # What a relation counts stays where packing put it.
            bound = [c for c in np.unique(of).tolist() if self.relations.concerns(c)]
            order = order[~np.isin(of[order], bound)]
        classes, first = np.unique(of[order], return_index=True)
        return trade_kernels.PlacementsByClass(
            np.append(first, len(order)), order, classes, self.machine[start:], self.estimate[start:]
        )

    def displace(self, start: int, candidates: CandidateIndex, budget: int) -> tuple[int, int]:
        """Tasks that should not be on one machine go to full ones, from which others move; how many found room, and places
        looked at.
        """
        model = self.model
        of_round = np.array([feature.of_round for feature in self.cluster.classes.features], dtype=np.bool_)
        spread = (model.coefficients * model.effects)[:, of_round].sum(axis=1) * model.scale
        movable = self._movable_by_class(start)
        classes = movable.classes
        if not spread[classes].any() or len(classes) < 2 or len(classes) * len(self.free) > budget:
            return 0, 0
        before = movable.machine.copy()
        open_rows = candidates.rows[~self.barred[candidates.rows]]
        made, looked = trade_kernels.displace(movable, spread, open_rows, model, self._load(), budget)
        self._touch_moved(before, movable.machine)
        return int(made), int(looked)

    def give_back(self, start: int, waiting: Waiting) -> None:
        """Take back places that cost more, beside all others, than leaving the task or than its class may pay: the dearest
        place meets the one that is left cheapest.
        """
        self.estimate[start:] = kernels.reprice(
            self.task_class[start:], self.machine[start:], self.model, self.readings
        )
        position = np.searchsorted(waiting.classes, self.task_class[start:])
        order = np.lexsort((self.estimate[start:], position))
        rank = np.arange(len(order)) - np.searchsorted(position[order], position[order])
        # The tasks that are dearest to leave are placed; of them the k-th goes with the k-th cheapest place.
        leaving = waiting.cost[waiting.first[position[order]] + rank]
        over: BoolArray = np.zeros(len(order), dtype=np.bool_)
        over[order] = self.estimate[start:][order] > leaving
        over |= self.estimate[start:] > self.model.ceiling[self.task_class[start:]]
        if self.relations:
            over &= ~np.array([self.relations.leaned_on(c) for c in self.task_class[start:].tolist()], dtype=np.bool_)
        if over.any():
            self.take_back(start, over)

    def take_back(self, start: int, gone: BoolArray) -> None:
        """Undo some of the placements since ``start``."""
        rows = start + np.flatnonzero(gone)
        for i in rows.tolist():
            kernels.put(self.machine[i], self.task_class[i], -1, self.model, self.free, self.readings)
        if self.relations:
            self._note(self.task_class[rows], self.machine[rows], -1)
        self._touch(self.machine[rows])
        self._keep(np.concatenate([np.ones(start, dtype=np.bool_), ~gone]))

    def adopt(self, start: int, task_class: IntArray, machine: IntArray) -> int:
        """Take other placements instead of those since ``start``; how many tasks came to a machine, out of none or another.

        Only what is on machines that changed is estimated anew. One task at a time: for small rounds.
        """
        ours = np.stack([self.machine[start:], self.task_class[start:]], axis=1)
        theirs = np.stack([machine, task_class], axis=1)
        keys, number = np.unique(np.concatenate([ours, theirs]), axis=0, return_inverse=True)
        more = np.bincount(number.reshape(-1)[len(ours) :], minlength=len(keys))
        more -= np.bincount(number.reshape(-1)[: len(ours)], minlength=len(keys))
        for (m, c), n in zip(keys.tolist(), more.tolist(), strict=True):
            kernels.put(m, c, n, self.model, self.free, self.readings)
        rows = np.unique(keys[more != 0, 0])
        self._keep(np.concatenate([np.ones(start, dtype=np.bool_), ~np.isin(ours[:, 0], rows)]))
        anew = theirs[np.isin(theirs[:, 0], rows)]
        cost = kernels.reprice(anew[:, 1].copy(), anew[:, 0].copy(), self.model, self.readings)
        self._add(anew[:, 1], anew[:, 0], cost)
        self._touch(rows)
        return int(np.maximum(more, 0).sum())

    def close(self, start: int, waiting: Waiting, evidence: Evidence) -> float:
        """Give the level's places to its tasks, the dearest to leave first; what the level costs in all.

        Placements go class by class, or where relations count some of them in the order in which each was valid.
        """
        position = np.searchsorted(waiting.classes, self.task_class[start:])
        by_class = np.argsort(position, kind="stable")
        order = np.arange(len(position)) if self.relations else by_class
        self.machine[start:] = self.machine[start:][order]
        self.task_class[start:] = self.task_class[start:][order]
        self.estimate[start:] = self.estimate[start:][order]
        placed = np.bincount(position, minlength=len(waiting.classes))
        served = waiting.first_of(placed)
        tasks = np.empty(len(order), dtype=np.int64)
        tasks[by_class if self.relations else order] = waiting.tasks[served]
        self.tasks = np.concatenate([self.tasks, tasks if self.relations else waiting.tasks[served]])
        free, readings = evidence.free.copy(), evidence.readings.copy()
        in_turn = kernels.in_turn(self.task_class[start:], self.machine[start:], self.model, free, readings)
        left = np.minimum(waiting.cost[~served], evidence.most)
        return float(in_turn.sum() + left.sum())

    def result(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """Tasks, machines, what was estimated, what it costs beside all others."""
        # At the cluster's prices: a machine that was reserved after a task came there takes no other task at any price.
        cost = kernels.reprice(self.task_class, self.machine, self.cluster.model(), self.readings)
        return self.tasks, self.machine, self.estimate, cost

    def placed_of(self, start: int, classes: IntArray) -> IntArray:
        """Tasks placed of each class since placement ``start``."""
        count = np.bincount(self.task_class[start:], minlength=len(self.cluster.classes))
        placed: IntArray = count[classes]
        return placed

    def newly_touched(self) -> IntArray:
        """Machine rows that changed since this was asked last."""
        rows = np.flatnonzero(self._new)
        self._new[:] = False
        return rows

    def paid(self, start: int, waiting: Waiting) -> FloatArray:
        """By class, the most that one of its tasks pays beside all others; of one that waits whole what leaving it costs."""
        cost = kernels.reprice(self.task_class[start:], self.machine[start:], self.model, self.readings)
        paid = np.zeros(len(self.cluster.classes))
        np.maximum.at(paid, self.task_class[start:], cost)
        waits = waiting.counts > self.placed_of(start, waiting.classes)
        paid[waiting.classes[waits]] = np.inf
        return paid

    def left(self, start: int, waiting: Waiting, most: float) -> float:
        """What the tasks that have no place yet cost, each at most ``most``."""
        placed = self.placed_of(start, waiting.classes)
        return float(np.minimum(waiting.cost[~waiting.first_of(placed)], most).sum())

    def save(self) -> SavedRoundState:
        """What placing changes, for :meth:`restore`."""
        copies = {name: getattr(self, name).copy() for name in _SAVED}
        return SavedRoundState(**copies, topology_counts=self.relations.save())

    def restore(self, saved: SavedRoundState) -> None:
        """Go back to a saved state."""
        self._new |= (self.free != saved.free).any(axis=1) | (self.readings != saved.readings).any(axis=1)
        for name in _SAVED:
            setattr(self, name, getattr(saved, name).copy())
        self.count = len(self.machine)
        self.relations.restore(saved.topology_counts)

    def _take(self, order: IntArray, wanted: IntArray, limit: FloatArray, first: IntArray, rows: IntArray) -> int:
        """Place so many tasks ``wanted`` by class and group, classes in ``order``."""
        if not self.relations:
            return self._pack(order, wanted, limit, first, rows)
        found = 0
        together: list[int] = []
        for c in order.tolist():
            if not self.relations.concerns(c):
                together.append(c)
                continue
            found += self._pack(np.array(together, dtype=np.int64), wanted, limit, first, rows)
            together = []
            start = self.count
            if self.relations.counts(c):
                self.relations.set_gate(c, self.model)
                self._pack(np.array([c]), wanted, limit, first, rows)
            else:
                self._in_turn(c, wanted[c], float(limit[c]), first, rows)
            self.relations.note(c, self.machine[start:])
            found += self.count - start
        return found + self._pack(np.array(together, dtype=np.int64), wanted, limit, first, rows)

    def _in_turn(self, c: int, wanted: IntArray, limit: float, first: IntArray, rows: IntArray) -> None:
        """Place tasks of a class one after the other, in the groups that the flow chose for it."""
        group = np.repeat(np.arange(len(wanted)), np.diff(first))
        here = wanted[group] > 0
        chosen, costs = relation_kernels.place_in_turn(
            c,
            int(wanted.sum()),
            limit,
            rows[here],
            group[here],
            wanted.copy(),
            self.relations.steady(c) & ~self.barred,
            self.model,
            self.free,
            self.readings,
            self.relations.moving(c),
        )
        self._add(np.full(len(chosen), c, dtype=np.int64), chosen, costs)

    def _pack(self, order: IntArray, wanted: IntArray, limit: FloatArray, first: IntArray, rows: IntArray) -> int:
        most = int(wanted[order].sum())
        if not most:
            return 0
        placed = packing_kernels.pack(
            order,
            wanted,
            limit,
            packing_kernels.GroupMachines(first, rows, self.barred),
            self.model,
            self._load(),
            most,
        )
        self._add(*placed)
        return len(placed[0])

    def _add(self, classes: IntArray, machines: IntArray, costs: FloatArray) -> None:
        self.machine = np.concatenate([self.machine, machines])
        self.task_class = np.concatenate([self.task_class, classes])
        self.estimate = np.concatenate([self.estimate, costs])
        self.count += len(machines)
        self._touch(machines)

    def _note(self, classes: IntArray, machines: IntArray, sign: int) -> None:
        for c in np.unique(classes).tolist():
            self.relations.note(c, machines[classes == c], sign)

    def _touch(self, rows: IntArray) -> None:
        self._new[rows] = True

    def _touch_moved(self, before: IntArray, after: IntArray) -> None:
        """Machines that placements left have changed as well as those that they came to."""
        moved = before != after
        self._touch(before[moved])
        self._touch(after[moved])

    def _keep(self, kept: BoolArray) -> None:
        self.machine = self.machine[kept]
        self.task_class = self.task_class[kept]
        self.estimate = self.estimate[kept]
        self.count = len(self.machine)

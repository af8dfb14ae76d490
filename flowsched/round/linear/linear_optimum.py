"""The true optimum of a small round, by CP-SAT on the same objective as the primal.

A machine may take any co-location whose tasks fit together in every resource and below every limit. It costs what its tasks
cost as the round begins, plus what they cost each other: of two tasks, the one that is served later pays for the other, and
a round serves its classes in the order of their numbers (``kernels.in_turn``), so the pair costs
``sum over f of coefficient[later, f] * factor[kind, f] * effect[earlier, f]``. Where a policy charges what a task suffers
and what it causes, as ``flow`` does, the order makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from flowsched.cluster.machine_arrays import UNLIMITED
from flowsched.round.linear.linear_bound import Evidence
from flowsched.round.linear.pairs import pair_costs
from flowsched.solvers.colocation_program import DETERMINISTIC_LIMIT, SCALE, Colocations, WaitingPrice, cheapest_plan
from flowsched.support.arrays import BoolArray, FloatArray, IntArray, rows_of

MOST_COLOCATIONS = 60_000
"""A round with more of them is not tried."""
_LARGEST = 2.0**50


@dataclass(frozen=True, eq=False)
class ExactAnswer:
    """What CP-SAT says about a level of a round."""

    task_class: IntArray
    """Class of each placement; without a plan both arrays are empty and ``value`` is infinite."""
    machine: IntArray
    """Machine row of each."""
    value: float
    """What that plan costs, waiting included, as ``Level.primal`` counts."""
    bound: float
    """No plan costs less; minus infinity where nothing was shown."""
    proven: bool
    """Whether the plan is optimal, but for the rounding of its costs to a millionth."""


class ExactLevel:
    """The optimisation problem of one level."""

    def __init__(self, evidence: Evidence, most: int | None = None) -> None:
        """The level as its evidence describes it; ``most``: co-locations to look at, else ``MOST_COLOCATIONS``."""
        self._evidence = evidence
        self._most = MOST_COLOCATIONS if most is None else most
        self.classes = evidence.waiting.classes
        self._pairs = pair_costs(evidence.model, self.classes)
        self._single = evidence.model.effects[self.classes]

    @cached_property
    def makes(self) -> list[Colocations] | None:
        """The co-locations of all machines; None if there are too many."""
        e = self._evidence
        code = e.place_code[e.rows, None]
        key = np.hstack([e.model.kind[e.rows, None], e.free[e.rows], e.readings[e.rows], e.model.limits[e.rows], code])
        _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
        found = []
        left = self._most
        for i in np.argsort(first, kind="stable").tolist():
            colocations = self._colocations(e.rows[inverse.reshape(-1) == i], left)
            if colocations is None:
                return None
            left -= len(colocations.cost)
            found.append(colocations)
        return found

    def solve(
        self,
        task_class: IntArray,
        machine: IntArray,
        limit: float = DETERMINISTIC_LIMIT,
        prices: FloatArray | None = None,
    ) -> ExactAnswer:
        """The optimum, starting from a plan: the class and machine row of its placements.

        ``prices``: by class, those of a certificate. They show of most co-locations that no plan with them is better
        than the one that is there, which saves most of the work.
        """
        none = np.zeros(0, dtype=np.int64)
        makes = self.makes
        ours = np.inf
        if makes is None:
            return ExactAnswer(none, none, np.inf, -np.inf, False)
        e = self._evidence
        if prices is not None and np.isfinite(e.waiting.cost).all():
            ours = self.value(task_class, machine)
            makes = self._promising(makes, prices, ours)
        finite = float(e.waiting.cost[np.isfinite(e.waiting.cost)].sum())
        highest = finite + sum(float(m.cost.max()) * len(m.machines) for m in makes)
        # A task that must not wait if any place is free costs more than all else together.
        forced = highest + 1.0
        scale = min(SCALE, _LARGEST / (forced * max(1, len(e.waiting.tasks))))
        rank = np.full(len(e.counts), -1, dtype=np.int64)
        rank[self.classes] = np.arange(len(self.classes))
        leaving = [e.waiting.cost[first:last] for first, last in pairwise(e.waiting.first.tolist())]
        distinct = [list(rows_of(*np.unique(costs, return_counts=True))) for costs in leaving]
        waits = [[WaitingPrice(min(cost, forced), many) for cost, many in of_class] for of_class in distinct]
        found = cheapest_plan(
            makes,
            list(map(len, leaving)),
            waits,
            scale=scale,
            limit=limit,
            hint=[make.counted(rank[task_class], machine) for make in makes],
        )
        if found is None:
            return ExactAnswer(none, none, np.inf, -np.inf, False)
        classes, machines, value = self._read(makes, found.chosen)
        stranded = 0
        for of_class, waiting in zip(distinct, found.waits, strict=True):
            for (cost, _), many in zip(of_class, waiting, strict=True):
                value += min(cost, e.most) * many if many else 0.0
                stranded += many if cost == np.inf else 0
        bound = found.bound - stranded * (forced - e.most)
        if stranded and not found.proven:
            bound = -np.inf  # it is one of the plans that leave as few as this one
        return ExactAnswer(classes, machines, value, min(bound, value, ours), found.proven)

    def stranded(self, task_class: IntArray) -> int:
        """Tasks that a plan leaves though any place is better than none for them."""
        waiting = self._evidence.waiting
        placed = np.bincount(np.searchsorted(self.classes, task_class), minlength=len(self.classes))
        return int(np.isinf(waiting.cost[~waiting.first_of(placed)]).sum())

    def value(self, task_class: IntArray, machine: IntArray) -> float:
        """What a plan costs, worked out from the pairs; for tests of what the round says."""
        e = self._evidence
        rank = np.searchsorted(self.classes, task_class)
        total = 0.0
        for m in np.unique(machine).tolist():
            counts = np.bincount(rank[machine == m], minlength=len(self.classes))[None, :]
            total += float(self._cost(counts, m)[0])
        placed = np.bincount(rank, minlength=len(self.classes))
        for c in range(len(self.classes)):
            costs = e.waiting.cost[e.waiting.first[c] + placed[c] : e.waiting.first[c + 1]]
            total += float(np.minimum(costs, e.most).sum())
        return total

    # Below: how

    def _promising(self, makes: list[Colocations], prices: FloatArray, ours: float) -> list[Colocations]:
        """Co-locations that may be in a plan that costs less than ``ours``.

        If machines are paid ``prices`` for every task, a plan costs at least what the tasks pay, waiting where that is
        cheaper, less the most that each machine can earn. With a co-location that earns less than the most, it costs the
        difference more.
        """
        e = self._evidence
        pi = prices[self.classes]
        earned = [m.counts @ pi - m.cost for m in makes]
        paid = float(np.minimum(e.waiting.cost, np.repeat(pi, e.waiting.counts)).sum())
        bound = paid - sum(float(x.max()) * len(m.machines) for x, m in zip(earned, makes, strict=True))
        kept = []
        for gain, make in zip(earned, makes, strict=True):
            good = bound + float(gain.max()) - gain <= ours + 1e-6 * max(1.0, ours)
            good[0] = True
            kept.append(Colocations(make.machines, make.counts[good], make.cost[good]))
        return kept

    def _alone(self, m: int) -> FloatArray:
        """What one task of each class costs on a machine as the level begins."""
        e, model = self._evidence, self._evidence.model
        k = model.kind[m]
        felt = model.factors[k] * e.readings[m] * model.scale
        alone: FloatArray = model.base[self.classes, k] + model.coefficients[self.classes] @ felt
        if model.extra.size:
            alone += model.extra[model.place_of[self.classes], m]
        return alone

    def _cost(self, counts: IntArray, m: int) -> FloatArray:
        """Cost of co-locations, a row of counts each."""
        pairs = self._pairs[self._evidence.model.kind[m]]
        alone = self._alone(m)
        own = np.diag(pairs)
        some = np.where(np.isfinite(alone), alone, 0.0)
        half = np.einsum("ic,cd,id->i", counts, pairs, counts) / 2.0
        cost: FloatArray = counts @ some + half - counts @ own / 2.0
        cost[(counts[:, ~np.isfinite(alone)] > 0).any(axis=1)] = np.inf
        return cost

    def _fits(self, counts: IntArray, m: int) -> BoolArray:
        """Which co-locations have room."""
        e, model = self._evidence, self._evidence.model
        asked = counts @ model.demands[self.classes]
        good: BoolArray = ((asked == 0) | (asked <= e.free[m])).all(axis=1)
        added = counts @ self._single
        limited = model.limits[m] < UNLIMITED
        good &= (~limited | (added == 0) | (e.readings[m] + added <= model.limits[m])).all(axis=1)
        return good

    def _colocations(self, rows: IntArray, most: int) -> Colocations | None:
        """The co-locations of machines that are alike; None if there are more than ``most``."""
        e = self._evidence
        m = int(rows[0])
        alone = self._alone(m)
        pairs = self._pairs[e.model.kind[m]]
        dearest = e.waiting.dearest
        counts = np.zeros((1, len(self.classes)), dtype=np.int64)
        for c in range(len(self.classes)):
            if not alone[c] <= dearest[c] or alone[c] == np.inf:
                continue
            newest = counts
            for _ in range(int(e.waiting.counts[c])):
                newest = newest.copy()
                # What the newest pays beside the others only grows with more of them: too dear now, too dear with more.
                marginal = alone[c] + newest @ pairs[c]
                newest[:, c] += 1
                newest = newest[(marginal <= dearest[c]) & self._fits(newest, m)]
                if not len(newest):
                    break
                counts = np.vstack([counts, newest])
                if len(counts) > most:
                    return None
        return Colocations(rows, counts, self._cost(counts, m))

    def _read(self, makes: Sequence[Colocations], chosen: Sequence[IntArray]) -> tuple[IntArray, IntArray, float]:
        """Class and machine row of every placement, by class, and what they cost."""
        classes: list[IntArray] = []
        machines: list[IntArray] = []
        total = 0.0
        for make, many in zip(makes, chosen, strict=True):
            total += float(make.cost[many > 0] @ many[many > 0])
            which = np.repeat(np.arange(len(many)), many)
            for m, i in zip(make.machines.tolist(), which.tolist(), strict=True):
                there = np.repeat(self.classes, make.counts[i])
                classes.append(there)
                machines.append(np.full(len(there), m, dtype=np.int64))
        if not classes:
            none = np.zeros(0, dtype=np.int64)
            return none, none, 0.0
        task_class, machine = np.concatenate(classes), np.concatenate(machines)
        order = np.lexsort((machine, task_class))
        return task_class[order], machine[order], total

"""The lower bound of a level at linear prices: weak duality on what was there before it, by machine, at exact prices.

For any price ``pi[c] >= 0`` per task of a class,

    LB(pi) = sum over tasks t of min(waiting cost of t, pi[c(t)]) - sum over machines m of rent_m(pi)

is at most the cost of any plan. A machine's rent is what it could earn if it were paid ``pi[c]`` for every task and had to
bear what the task costs there as the round begins: ``sum over tiers t of L_t (S_t - S_wider(t))``, where ``S_t`` is the
most that widths of tier t or wider can take of its free CPU, and ``L_t`` the largest gain per unit among classes of tier t
or narrower that fit. It is the bound of the tiers' Lagrangian with every machine a group of its own and the best tier prices
for given ``pi``, so buckets cost it nothing.

Tasks of the same round that meet on a machine cost more. Two of them cost at least ``alpha_i alpha_j`` times the machine's
factor, where ``alpha^2`` is at most what two tasks of one class cost each other, lowered for all classes alike until it is
true for every pair that may meet. With ``A`` the sum of alphas on a machine that is a convex function of A, and every
tangent of it is a price per task that keeps the bound one. The prices start from the first network's duals and climb.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.network.network import potentials
from flowsched.pricing.linear import kernels
from flowsched.round.certificate import LevelBound
from flowsched.round.linear import bound_kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.network import ScaleNetwork
from flowsched.round.linear.waiting import Waiting
from flowsched.solvers import Solution
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

BOUND_STEPS = 100
"""How often the prices climb."""
PATIENCE = 4
"""Steps without a better bound after which less is hoped for."""
TANGENTS = tuple(0.3 * 1.25**i for i in range(16))
"""Where crowding is made linear, in mean alphas."""
_BEYOND = 2.0


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the bound of one level is made of: nothing in it changes after the round."""

    waiting: Waiting
    model: kernels.Model
    readings: IntArray
    free: IntArray
    open: BoolArray
    """Machines that are there and not barred."""
    counts: IntArray
    """Tasks of each class that wait; arrays by class have all classes of the cluster."""
    task_class: IntArray
    """Class of each task in ``waiting``."""
    tier_of: IntArray
    """Tier of each class, 0 the widest; -1 for tasks that ask for no CPU."""
    units: FloatArray
    """Units of one task of each class."""
    largest: IntArray
    unit: int
    most: float
    """Most that leaving a task counts for: the dearest finite cost, else more than any place as the level begins."""
    of_round: BoolArray
    """By feature, whether it counts only what the round places."""
    network: ScaleNetwork | None = None
    solution: Solution | None = None

    @classmethod
    def of(
        cls,
        cluster: ClusterRows,
        compaction: Compaction,
        waiting: Waiting,
        free: IntArray,
        readings: IntArray,
        barred: BoolArray,
        model: kernels.Model | None = None,
    ) -> Evidence:
        """Before a level is placed, at this state; what changes later is copied.

        ``model``: the round's, where it differs from the cluster's: who may not join a held machine has no price there, so
        reserved capacity is taken out of the bound as it is taken out of the round.
        """
        table = cluster.classes.table()
        model = cluster.model() if model is None else model
        widths = np.array([c.width_milli for c in cluster.classes], dtype=np.int64)
        tiers = np.array(compaction.tier_widths, dtype=np.int64)
        tier_of = np.minimum(np.searchsorted(-tiers, -widths), len(tiers) - 1)
        counts = np.zeros(len(cluster.classes), dtype=np.int64)
        counts[waiting.classes] = waiting.counts
        dearest = float(waiting.cost[np.isfinite(waiting.cost)].max(initial=0.0))
        if not np.isfinite(waiting.cost).all():
            # A price for waiting that is infinite is as good as one that no place reaches.
            base = table.base[waiting.classes]
            extra = model.extra[model.place_of[waiting.classes]] if model.extra.size else np.zeros((1, 1))
            highest = cluster.classes.factors.max(axis=0, initial=0.0) * readings.max(axis=0, initial=0) / FIXED
            place = float(base[np.isfinite(base)].max(initial=0.0)) + float(extra[np.isfinite(extra)].max(initial=0.0))
            place += float((table.coefficients[waiting.classes] @ highest).max(initial=0.0))
            dearest = max(dearest, _BEYOND * place + 1.0)
        return cls(
            waiting,
            model._replace(
                kind=model.kind.copy(), limits=model.limits.copy(), gates=model.gates.copy(), tie=model.tie.copy()
            ),
            readings.copy(),
            free.copy(),
            cluster.machines.alive & ~barred,
            counts,
            np.repeat(waiting.classes, waiting.counts),
            np.where(widths > 0, tier_of, -1),
            np.maximum(1, widths // compaction.unit).astype(np.float64),
            compaction.largest,
            compaction.unit,
            dearest,
            np.array([feature.of_round for feature in cluster.classes.features], dtype=np.bool_),
        )

    @cached_property
    def rows(self) -> IntArray:
        """Machines with room for the CPU and the memory of the smallest task that waits."""
        if not len(self.waiting.classes):
            return np.zeros(0, dtype=np.int64)
        least = self.model.demands[self.waiting.classes].min(axis=0)
        return np.flatnonzero(self.open & ((self.free >= least) | (least == 0)).all(axis=1))

    def bound(self, pi: FloatArray) -> tuple[float, FloatArray]:
        """LB at some prices, and in which direction it grows."""
        rent, want = self.rent(pi, self.rows, np.zeros((0, 2)))
        leaving = np.minimum(self.waiting.cost, self.most)
        paid = np.minimum(leaving, pi[self.task_class])
        wish = np.bincount(self.task_class, weights=leaving > pi[self.task_class], minlength=len(pi))
        return float(paid.sum()) - rent, wish - want

    def rent(self, pi: FloatArray, rows: IntArray, shown: FloatArray) -> tuple[float, FloatArray]:
        """What some machines could earn at prices ``pi`` in all, and how many tasks of each class they would take for that.

        ``shown``, if it has a row for each machine, becomes where crowding is made linear there, 0 where it is left out, and
        what that adds to the rent, whatever tasks come.
        """
        want = np.zeros(len(pi))
        tasks = bound_kernels.BoundTasks(self.counts, self.tier_of, self.units, self.largest, self.unit)
        load = kernels.MachineLoad(self.free, self.readings)
        total = bound_kernels.dual_value(pi, tasks, rows, self.model, load, self.crowding, want, shown)
        return total, want

    @cached_property
    def crowding(self) -> bound_kernels.Crowding:
        """What the tasks that wait cost each other at least."""
        model = self.model
        present = np.flatnonzero(self.counts)
        alpha = np.zeros(len(self.counts))
        factor = np.zeros(len(model.factors))
        effects = model.effects[present].astype(np.float64) * model.scale
        coefficients = model.coefficients[present]
        acting: BoolArray = np.any(coefficients > 0.0, axis=0) & np.any(effects > 0.0, axis=0)
        if not acting.any() or not len(factor):
            return bound_kernels.Crowding(alpha, factor, np.zeros(0), 0.0)
        # Tasks that no count has together meet at the price of the others alone, so all counts together may bound less than
        # one of them, or than none. What is left out only makes a plan look cheaper.
        counts = np.flatnonzero(acting & self.of_round)
        kept = [
            acting,
            *((acting & ~self.of_round, *(np.arange(len(acting)) == f for f in counts)) if len(counts) else ()),
        ]
        tasks = self.counts[present]
        found = [_alphas(coefficients[:, some], effects[:, some]) for some in kept]
        best = max(range(len(kept)), key=lambda i: (float(found[i] @ tasks), -i))
        acting, alpha[present] = kept[best], found[best]
        # Of those that wait only: a sum over all classes would depend on how many others there are, in its last digit.
        mean = float(alpha[present] @ tasks) / max(1, int(self.counts.sum()))
        if not mean:
            return bound_kernels.Crowding(alpha, factor, np.zeros(0), 0.0)
        # Where factors differ between features the least one bounds them all.
        different = np.unique(alpha[alpha > 0.0])
        equal = float(different[0]) if len(different) == 1 else 0.0
        return bound_kernels.Crowding(alpha, model.factors[:, acting].min(axis=1), mean * np.array(TANGENTS), equal)

    @cached_property
    def place_code(self) -> IntArray:
        """By machine: a number that those share where the masks and wishes of all who wait say the same."""
        places = np.unique(self.model.place_of[self.waiting.classes])
        places = places[places > 0]
        if not len(places):
            return np.zeros(len(self.open), dtype=np.int64)
        return np.unique(self.model.extra[places], axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def best_alone(self) -> FloatArray:
        """The least that one task of each class costs anywhere before the round; infinite where nothing fits."""
        least = np.full(len(self.counts), np.inf)
        bound_kernels.best_alone(self.counts, self.rows, self.model, self.free, self.readings, least)
        return least


def _alphas(coefficients: FloatArray, effects: FloatArray) -> FloatArray:
    """Alpha by class, of classes with these coefficients and effects, by feature."""
    if not coefficients.size:
        return np.zeros(len(coefficients))
    # Classes that are alike in these bound nothing more than one of them.
    rows, number = np.unique(np.hstack([coefficients, effects]), axis=0, return_inverse=True)
    width = coefficients.shape[1]
    pair = rows[:, :width] @ rows[:, width:].T
    own = np.sqrt(np.diag(pair))
    product = np.outer(own, own)
    some = product > 0.0
    if not some.any():
        return np.zeros(len(coefficients))
    # Whichever of two comes first, and whatever the profiles: what is left is true for every pair.
    lowest = min(1.0, float((np.minimum(pair, pair.T)[some] / product[some]).min())) * (1.0 - 1e-12)
    alphas: FloatArray = (own * np.sqrt(max(0.0, lowest)))[number.reshape(-1)]
    return alphas


def level_bound(
    evidence: Evidence, primal: float, paid: FloatArray | None = None, steps: int = BOUND_STEPS
) -> LevelBound:
    """The bound of a level that costs ``primal``; prices are by class. ``paid``: by class, the most that one of its tasks
    pays in the plan. ``steps``: how often the prices climb.

    The climb starts from those prices if they bound the level better than the network's: with equal tasks they prove a plan
    that is optimal.
    """
    alone = evidence.best_alone()
    leaving = np.minimum(evidence.waiting.cost, evidence.most)
    unconstrained = float(np.minimum(leaving, alone[evidence.task_class]).sum())
    # At these prices nothing gains anywhere: the bound is what tasks cost if each had the cluster to itself.
    best, prices = unconstrained, np.where(np.isfinite(alone), alone, evidence.most)
    pi = _first_prices(evidence, alone)
    scale = np.maximum(1.0, evidence.counts.astype(np.float64))
    hope = max(primal - best, 0.0)
    idle = 0
    # Paid more than leaving its dearest task costs, a class only raises the rents.
    most = np.zeros(len(evidence.counts))
    np.maximum.at(most, evidence.task_class, leaving)
    pi = np.minimum(pi, most)
    if paid is not None:
        theirs = np.minimum(paid, most)
        if evidence.bound(theirs)[0] > evidence.bound(pi)[0]:
            pi = theirs
    for step in range(steps):
        value, slope = evidence.bound(pi)
        if value > best:
            idle = 0 if step and value > best + 0.05 * hope else idle + 1
            if not step:
                hope = max(primal - value, 0.0) / 2.0
            best, prices = value, pi.copy()
        else:
            idle += 1
        if idle >= PATIENCE:
            hope, idle = hope / 2.0, 0
            pi = prices.copy()
            value, slope = evidence.bound(pi)
        length = float((slope * slope / scale).sum())
        if length <= 0.0 or hope <= 1e-7 * max(1.0, abs(primal)):
            break
        pi = np.clip(pi + (best + hope - value) * (slope / scale) / length, 0.0, most)
    return LevelBound(primal, best, unconstrained, prices)


def _first_prices(evidence: Evidence, alone: FloatArray) -> FloatArray:
    """What one more task of each class would cost in the first network: its node's potential over the sink's.

    Where all who wait do so because nothing fits, one more could not even wait there, and its potential says too much.
    """
    if evidence.network is None or evidence.solution is None:
        return np.where(np.isfinite(alone), alone, evidence.most)
    network = evidence.network
    pi = potentials(network.network, evidence.solution.flow)
    unit = (pi[0] - pi[1 : 1 + len(network.classes)]) / network.network.cost_scale
    prices = np.zeros(len(evidence.counts))
    prices[network.classes] = np.maximum(0.0, unit * network.units)
    return prices

"""How far from optimal a wide round can be: a lower bound by weak duality on its first network.

For prices lambda >= 0 on tiers and nu >= 0 on what a class may place on a group,

    LB = sum_c n_c min( u_c, min over machines m of [ k_cm + crowd_cm + units_c * sum of lambda over its tiers + nu_cg ] )
         - sum lambda S - sum nu cap - sum_m const_m

is at most the cost of any plan. ``k_cm`` is the price before the round; what tasks of the round do to each other comes on
top and is at least 0. Two of them, i and j, cost ``q (s_i P_j + s_j P_i) >= 2 q a_i a_j`` with ``a = sqrt(s P)``, so a
machine with ``A = sum a`` costs at least ``q (A^2 - sum a^2)``. Any linear function below that is a price per task
(``crowd``) and a constant, and gives a bound. Dropped constraints only loosen it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.arrays import FloatArray
from flowsched.decision import Certificate
from flowsched.network import potentials
from flowsched.solvers import Solution, Status
from flowsched.wide_board import Board, WideClass
from flowsched.wide_network import WideNetwork, whole_slots


@dataclass(frozen=True, eq=False)
class _Prices:
    """Duals of the first network, in true cost."""

    tiers: FloatArray
    """By group and tier, for a unit of flow."""
    places: FloatArray
    """By class and group, for a task."""
    classes: FloatArray
    """Of one more task of each class."""


def certify(board: Board, after: Board, network: WideNetwork, solution: Solution, primal: float) -> Certificate:
    """The certificate of a plan that costs ``primal``, from the board before the round and after it.

    The board after the round only says at which prices the bound is looked for; it is valid for any.
    """
    classes = [cls for cls in board.classes if cls.demand.tasks]
    joined = frozenset(r for cls in classes for r in cls.demand.joins)
    least = np.full((len(classes), board.machine_count), np.inf)
    crowd = np.zeros(board.machine_count)
    final = np.zeros(len(classes))
    for i, cls in enumerate(classes):
        price = board.price(cls)
        places = whole_slots(board, cls, joined)
        open_ = (places > 0) & (price <= cls.limit)
        least[i, open_] = price[open_]
        crowd += _own(cls) * np.minimum(places, len(cls.demand.tasks))
        final[i] = after.price(cls)[places > 0].min(initial=np.inf)
    tasks = np.array([len(cls.demand.tasks) for cls in classes])
    index = np.array([cls.index for cls in classes])
    waiting = network.waiting[index]
    unconstrained = float((tasks * np.minimum(waiting, least.min(axis=1, initial=np.inf))).sum())
    prices = _duals(network, solution)
    paid = float((prices.tiers * _tier_capacities(network)).sum())
    paid += float((prices.places * _place_capacities(network)).sum())
    bound = unconstrained
    for constant, shadow in ((paid, prices.classes[index]), (0.0, final)):
        tolls = [_tolls(network, prices, c) if constant else np.zeros(network.groups) for c in index.tolist()]
        crowding = _Crowding(board, classes, crowd)
        for i, toll in enumerate(tolls):
            crowding.aim(i, np.minimum(waiting[i], shadow[i]) - least[i] - toll[network.group_of])
        nearest = [
            (least[i] + toll[network.group_of] + crowding.charge(i)).min(initial=np.inf) for i, toll in enumerate(tolls)
        ]
        total = float((tasks * np.minimum(waiting, nearest)).sum()) - constant - crowding.constant()
        bound = max(bound, total)
    names = _first_names(board, network)
    named = {
        f"{names[g]}/{network.widths[t]}m": float(prices.tiers[g, t]) / network.unit
        for g, t in zip(*(x.tolist() for x in np.nonzero(prices.tiers)), strict=True)
    }
    return Certificate("lagrangian", primal, min(bound, primal), unconstrained, named)


def _own(cls: WideClass) -> float:
    """The a of a class: two of its tasks cost each other ``2 a^2``."""
    return math.sqrt(cls.self_price / 2.0)


def _duals(network: WideNetwork, solution: Solution) -> _Prices:
    net = network.network
    tiers = len(network.widths)
    shape = (network.groups, tiers)
    places = np.zeros((len(network.counts), network.groups))
    if not net.arc_count or solution.status is not Status.OPTIMAL:
        return _Prices(np.zeros(shape), places, np.zeros(len(network.counts)))
    pi = potentials(net, solution.flow)
    reduced = (net.unit_costs + pi[net.tails] - pi[net.heads]) / net.cost_scale
    rent = np.maximum(0.0, -reduced)
    arcs = network.class_arcs
    places[network.arc_class, network.arc_group] = rent[:arcs] * network.units[network.arc_class]
    by_tier = rent[arcs : arcs + network.groups * tiers].reshape(shape)
    present = np.flatnonzero(network.counts)
    classes = np.zeros(len(network.counts))
    classes[present] = (pi[0] - pi[1 : 1 + len(present)]) / net.cost_scale * network.units[present]
    return _Prices(by_tier, places, classes)


def _tier_capacities(network: WideNetwork) -> FloatArray:
    tiers = len(network.widths)
    first = network.class_arcs
    capacities = network.network.capacities[first : first + network.groups * tiers]
    return capacities.reshape(network.groups, tiers).astype(np.float64)


def _place_capacities(network: WideNetwork) -> FloatArray:
    tasks = np.zeros((len(network.counts), network.groups))
    arcs = network.class_arcs
    tasks[network.arc_class, network.arc_group] = network.network.capacities[:arcs] // network.units[network.arc_class]
    return tasks


def _tolls(network: WideNetwork, prices: _Prices, c: int) -> FloatArray:
    """What a task of a class pays on each group: for the tiers that it passes and for its place."""
    width = network.task_widths[c]
    passed = [t for t, least in enumerate(network.widths) if width and least <= width]
    toll: FloatArray = prices.tiers[:, passed].sum(axis=1) * float(network.units[c]) + prices.places[c]
    return toll


class _Crowding:
    """What each class is charged for crowding on each machine, and the constant that makes it a bound.

    It is aimed so that nobody gains by moving: prices plus charges come up to what a task costs everywhere at least.
    """

    def __init__(self, board: Board, classes: Sequence[WideClass], most: FloatArray) -> None:
        """``most``: the largest sum of a that a machine can get."""
        self._q = board.bandwidth
        self._own = [_own(cls) for cls in classes]
        self._most = most
        different = {a for a in self._own if a}
        self._equal = different.pop() if len(different) == 1 else None
        self._level = np.zeros(board.machine_count)
        """Charge of a task where all are equal, otherwise the tangent point."""

    def aim(self, i: int, gain: FloatArray) -> None:
        """Charge so much that a class has no ``gain`` on any machine."""
        a = self._own[i]
        if not a:
            return
        if self._equal is None:
            gain = np.where(gain > 0.0, gain / np.maximum(2.0 * self._q * a, 1e-300) + a / 2.0, 0.0)
        self._level = np.maximum(self._level, gain)

    def charge(self, i: int) -> FloatArray:
        """What a task of a class pays on each machine."""
        a = self._own[i]
        if not a:
            return np.zeros(len(self._q))
        if self._equal is not None:
            return self._level
        return np.maximum(0.0, self._q * a * (2.0 * self._level - a))

    def constant(self) -> float:
        """At most what charges exceed true crowding by, over all machines and whoever comes."""
        if self._equal is None:
            reached = np.minimum(self._most, self._level)
            return float((self._q * (2.0 * self._level * reached - reached**2)).sum())
        # Equal tasks: j of them cost q a^2 j (j - 1) exactly, and j is whole.
        pair = np.maximum(self._q * self._equal**2, 1e-300)
        j = np.minimum(np.floor(self._level / (2.0 * pair)) + 1.0, np.rint(self._most / self._equal))
        j = np.where(self._level > 0.0, j, 0.0)
        return float((j * self._level - pair * j * (j - 1.0)).sum())


def _first_names(board: Board, network: WideNetwork) -> list[str]:
    """The first machine of each group."""
    first = np.zeros(network.groups, dtype=np.int64)
    first[network.group_of[::-1]] = np.arange(board.machine_count)[::-1]
    return [board.names[m] for m in first.tolist()]

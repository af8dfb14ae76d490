"""Why tasks wait on after a round at linear prices: a sentence with numbers for each class, from the state it ended with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.cluster.task_rows import PENDING
from flowsched.pricing.linear import kernels
from flowsched.round import wait_reasons
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundOutcome
from flowsched.round.linear.round_relations import RoundRelations
from flowsched.round.wait_reasons import Reason, WaitCause
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

PLACE = "place"
"""The term of what a place costs whatever else runs there."""


@dataclass(frozen=True, eq=False)
class Closing:
    """Free resources and readings with all that runs and all that the round placed."""

    cluster: ClusterRows
    free: IntArray
    readings: IntArray
    model: kernels.Model
    relations: RoundRelations

    @classmethod
    def of(cls, cluster: ClusterRows, tasks: IntArray, machines: IntArray) -> Closing:
        """The cluster's state with placements in it."""
        free, readings = cluster.free.copy(), cluster.readings.copy()
        classes = cluster.tasks.task_class[tasks]
        np.subtract.at(free, machines, cluster.classes.demands[classes])
        np.add.at(readings, machines, cluster.classes.effects[classes])
        pending = cluster.tasks.task_class[cluster.tasks.state == PENDING]
        relations = RoundRelations(cluster, np.unique(pending))
        if relations:
            for c in np.unique(classes).tolist():
                relations.note(c, machines[classes == c])
        return cls(cluster, free, readings, cluster.model(), relations)

    def in_turn(self, classes: IntArray, machines: IntArray) -> dict[str, FloatArray]:
        """What tasks of the round paid, by term, if they came one after the other in this order."""
        order = np.argsort(machines, kind="stable")
        added = self.cluster.classes.effects[classes][order]
        ahead = np.concatenate([np.zeros((1, added.shape[1]), dtype=np.int64), np.cumsum(added, axis=0)[:-1]])[
            : len(order)
        ]
        first = np.searchsorted(machines[order], machines[order])
        found = np.empty_like(added)
        found[order] = ahead - ahead[first]
        return self._terms(classes, machines, self.cluster.readings[machines] + found)

    def terms(self, classes: IntArray, machines: IntArray) -> dict[str, FloatArray]:
        """What tasks pay beside all others where they are, by term: what the place costs, and each feature."""
        return self._terms(classes, machines, self.readings[machines] - self.cluster.classes.effects[classes])

    def _terms(self, classes: IntArray, machines: IntArray, readings: IntArray) -> dict[str, FloatArray]:
        cluster = self.cluster
        table = cluster.classes.table()
        kinds = cluster.machines.kind[machines]
        felt = readings / FIXED * cluster.classes.factors[kinds]
        paid = table.coefficients[classes] * felt
        terms: dict[str, FloatArray] = {PLACE: table.base[classes, kinds]}
        for c in np.unique(classes).tolist():
            mine = np.flatnonzero(classes == c)
            for name, values in cluster.classes.places.places[cluster.classes[c].places].terms(machines[mine]).items():
                terms.setdefault(name, np.zeros(len(classes)))[mine] += values
        for f, feature in enumerate(cluster.classes.features):
            name = feature.term or feature.name
            terms[name] = terms.get(name, 0.0) + paid[:, f]
        return terms

    def prices(self, task_class: int) -> FloatArray:
        """What one task of a class more would cost on every machine; infinite where it must not run."""
        cluster = self.cluster
        prices = np.empty(cluster.machines.rows)
        kernels.class_prices(task_class, self.model, self.readings, prices)
        return np.where(cluster.machines.alive, prices, np.inf)


def why_all(now_s: float, cluster: ClusterRows, outcome: RoundOutcome, closing: Closing) -> dict[int, Reason]:
    """Why each task waits, by its row."""
    cost = leaving(cluster, outcome)
    held = np.unique([r.machine for r in outcome.reservations]).astype(np.int64)
    special: dict[int, Reason] = {}
    for r in outcome.reservations:
        special[r.task] = wait_reasons.reserved(r.machine_name, r.start_s - now_s)
    for one in outcome.unbounded:
        special.setdefault(one.task, wait_reasons.unbounded(one.why))
    for gang in outcome.incomplete:
        reason = Reason(WaitCause.GROUP, gang.why_all_wait(gang.reached, now_s))
        for row in gang.members.tolist():
            special.setdefault(row, reason)
    usual: dict[int, Reason] = {}
    reasons: dict[int, Reason] = {}
    # The dearest of a class comes first, so what is said of waiting is true of the others too.
    for row in sorted(outcome.waits.tolist(), key=lambda row: -float(cost[row])):
        c = int(cluster.tasks.task_class[row])
        if c not in usual and row not in special:
            usual[c] = why_waiting(closing, c, float(cost[row]), held)
        reasons[row] = special.get(row) or usual[c]
    return reasons


def leaving(cluster: ClusterRows, outcome: RoundOutcome) -> FloatArray:
    """What leaving each waiting task costs, by task row; as the round's cost counts it."""
    cost = np.zeros(len(cluster.tasks.state))
    for level in outcome.levels:
        cost[level.waiting.tasks] = np.minimum(level.waiting.cost, level.evidence.most)
    return cost


def why_waiting(closing: Closing, task_class: int, waiting_cost: float, held: IntArray) -> Reason:
    """Why a task of a class is left; ``waiting_cost``: what leaving the dearest of those that are left costs; ``held``:
    machine rows that are kept for others.
    """
    cluster = closing.cluster
    prices = closing.prices(task_class)
    allowed = np.isfinite(prices)
    if not allowed.any():
        return wait_reasons.not_allowed(cluster.machines.machine_count)
    demand = cluster.classes.demands[task_class]
    room = allowed & ((demand == 0) | (closing.free >= demand)).all(axis=1)
    if not room.any():
        return _no_room(closing, demand, allowed)
    refusals = [(name, room & refused) for name, refused in closing.relations.refusals(task_class)]
    for _, refused in refusals:
        room &= ~refused
    if not room.any():
        known = closing.relations.topology_counts
        return wait_reasons.closed_by(known[name].relation for name, refused in refusals if refused.any())
    effect = cluster.classes.effects[task_class]
    bears = (effect == 0) | (cluster.limits >= UNLIMITED) | (closing.readings + effect <= cluster.limits)
    open_ = room & bears.all(axis=1)
    if not open_.any():
        return wait_reasons.breaks_a_goal()
    kept = open_.copy()
    open_[held] = False
    if not open_.any():
        return wait_reasons.kept_for_others([cluster.machines.name(row) for row in np.flatnonzero(kept).tolist()])
    best = int(np.argmin(np.where(open_, prices, np.inf)))
    most, price = float(cluster.classes.table().max_cost[task_class]), float(prices[best])
    others_had_it = price <= min(most, waiting_cost)
    return wait_reasons.too_dear(waiting_cost, price, cluster.machines.name(best), most, others_had_it)


def _no_room(closing: Closing, demand: IntArray, allowed: BoolArray) -> Reason:
    """Whether any of the allowed machines is large enough, and what is free on the emptiest of these."""
    cluster = closing.cluster
    asked = np.flatnonzero(demand).tolist()
    large = (demand == 0) | (cluster.allocatable >= demand)
    able = allowed & large.all(axis=1)
    if not able.any():
        short = [k for k in asked if not large[allowed, k].any()]
        most = _amounts(cluster, cluster.allocatable[allowed].max(axis=0), short)
        return wait_reasons.too_large(_amounts(cluster, demand, short or asked), most=most)
    emptiest = int(np.argmax(np.where(able, closing.free[:, 0], np.iinfo(np.int64).min)))
    free = _amounts(cluster, np.maximum(0, closing.free[emptiest]), asked)
    return wait_reasons.no_room(_amounts(cluster, demand, asked), cluster.machines.name(emptiest), free)


def _amounts(cluster: ClusterRows, values: IntArray, columns: list[int]) -> str:
    names = [cluster.classes.resources[k] for k in columns]
    shown = (
        values[k] / (cluster.memory_unit if name == "memory" else 1) for k, name in zip(columns, names, strict=True)
    )
    return wait_reasons.amounts(zip(names, shown, strict=True))

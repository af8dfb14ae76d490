"""Why tasks wait on after a round at linear prices: a sentence with numbers for each class, from the state it ended with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.cluster.snapshot import MILLI
from flowsched.cluster.task_rows import PENDING
from flowsched.pricing.linear import kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundOutcome
from flowsched.round.linear.round_relations import RoundRelations
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

PLACE = "place"
"""The term of what a place costs whatever else runs there."""


class Cause(StrEnum):
    """Why a task is left over."""

    NOT_ALLOWED = "not_allowed"
    """No machine may take it."""
    CAPACITY = "capacity"
    """No machine that may take it has room."""
    SERVICE = "service"
    """Wherever there is room it would break a latency goal."""
    RELATION = "relation"
    """Relations refuse it wherever there is room."""
    COST = "cost"
    """Every place is dearer than waiting, or than it may be."""
    GROUP = "group"
    """Its task group cannot be started whole."""


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


@dataclass(frozen=True)
class Reason:
    """Why tasks wait."""

    cause: str
    """A value of :class:`Cause`, or ``never``, ``held`` (machines are kept for others) or
    ``reserved`` (one is kept for it).
    """
    text: str


def why_all(now_s: float, cluster: ClusterRows, outcome: RoundOutcome, closing: Closing) -> dict[int, Reason]:
    """Why each task waits, by its row."""
    cost = leaving(cluster, outcome)
    held = np.unique([r.machine for r in outcome.reservations]).astype(np.int64)
    special: dict[int, Reason] = {}
    for r in outcome.reservations:
        if np.isinf(r.start_s):
            special[r.task] = Reason(
                "reserved", f"it is due, and {r.machine_name} drains for it: no end is known there"
            )
            continue
        when = f"in {r.start_s - now_s:.0f} s" if r.start_s > now_s else "since it should have been free"
        special[r.task] = Reason("reserved", f"it is due, and {r.machine_name} is kept for it, {when}")
    for unbounded in outcome.unbounded:
        text = f"it is due, and nothing is kept for it: {unbounded.why}"
        special.setdefault(unbounded.task, Reason(Cause.CAPACITY, text))
    for gang in outcome.incomplete:
        if gang.complete:
            text = f"group {gang.group.name}: {gang.running + gang.reached} of {gang.group.minimum} could be placed"
        else:
            text = f"group {gang.group.name}: {gang.running + len(gang.members)} of {gang.group.minimum} are here"
        for row in gang.members.tolist():
            special.setdefault(row, Reason(Cause.GROUP, text))
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
    count = int(allowed.sum())
    if not count:
        return Reason(Cause.NOT_ALLOWED, f"none of the {_machines(cluster.machines.machine_count)} may take it")
    demand = cluster.classes.demands[task_class]
    enough = (demand == 0) | (closing.free >= demand)
    room = allowed & enough.all(axis=1)
    if not room.any():
        return _no_room(closing, task_class, allowed, enough)
    refusals = [(name, room & refused) for name, refused in closing.relations.refusals(task_class)]
    count_with_room = int(room.sum())
    for _, refused in refusals:
        room &= ~refused
    if not room.any():
        said = ", ".join(f"{name} refuses {int(refused.sum())}" for name, refused in refusals if refused.any())
        return Reason(Cause.RELATION, f"of {_machines(count_with_room)} with room {said}")
    effect = cluster.classes.effects[task_class]
    bears = (effect == 0) | (cluster.limits >= UNLIMITED) | (closing.readings + effect <= cluster.limits)
    open_ = room & bears.all(axis=1)
    if not open_.any():
        return Reason(Cause.SERVICE, f"on all of {int(room.sum())} machines with room it would break a latency goal")
    kept = open_.copy()
    open_[held] = False
    if not open_.any():
        names = [cluster.machines.name(row) for row in np.flatnonzero(kept).tolist()]
        who = (
            f"{names[0]}, the only machine with room for it, is"
            if len(names) == 1
            else f"all {len(names)} with room are"
        )
        return Reason("held", f"{who} kept for a task that has waited longer")
    best = int(np.argmin(np.where(open_, prices, np.inf)))
    limit, what = waiting_cost, "waiting costs"
    most = float(cluster.classes.table().max_cost[task_class])
    if most < waiting_cost:
        limit, what = most, "it may cost"
    text = f"{what} {limit:.4g}, the cheapest machine with room, {cluster.machines.name(best)}, {prices[best]:.4g}"
    if prices[best] <= limit:
        text += "; others had it when this one was looked at"
    return Reason(Cause.COST, text)


def _no_room(closing: Closing, task_class: int, allowed: BoolArray, enough: BoolArray) -> Reason:
    """Which resource is short, and how much of it there is."""
    cluster = closing.cluster
    demand = cluster.classes.demands[task_class]
    large = (demand == 0) | (cluster.allocatable >= demand)
    if not (allowed & large.all(axis=1)).any():
        short = [k for k in np.flatnonzero(demand).tolist() if not large[allowed, k].any()]
        asks = _amounts(cluster, demand, short or np.flatnonzero(demand).tolist())
        most = _amounts(cluster, cluster.allocatable[allowed].max(axis=0), short or np.flatnonzero(demand).tolist())
        return Reason(
            "never", f"it asks for {asks}, and the largest machine that may take it has {most}: it never starts"
        )
    short = [k for k in np.flatnonzero(demand).tolist() if not enough[allowed, k].any()]
    asks = _amounts(cluster, demand, np.flatnonzero(demand).tolist())
    count = int(allowed.sum())
    if not short:
        none = f"none of the {count} machines that may take it has all of that free together"
        return Reason(Cause.CAPACITY, f"no room: it asks for {asks}, and {none}")
    most = _amounts(cluster, np.maximum(0, closing.free[allowed].max(axis=0)), short)
    if count == 1:
        return Reason(Cause.CAPACITY, f"no room: it asks for {asks}, and the machine that may take it has {most} free")
    of_them = f"of the {count} machines that may take it none has more than {most} free"
    return Reason(Cause.CAPACITY, f"no room: it asks for {asks}, and {of_them}")


def _amounts(cluster: ClusterRows, values: IntArray, columns: list[int]) -> str:
    return " and ".join(_amount(cluster, cluster.classes.resources[k], int(values[k])) for k in columns)


def _amount(cluster: ClusterRows, resource: str, value: int) -> str:
    if resource == "cpu":
        return f"{value / MILLI:g} core{'' if value == MILLI else 's'}"
    if resource == "memory":
        return f"{value / cluster.memory_unit:.12g} MiB of memory"
    return f"{value} of {resource}"


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"

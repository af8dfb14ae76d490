"""Exchanges, for rounds so small that a single task in the wrong place shows.

``settle`` places one class at a time beside all others, so it cannot push a task elsewhere so that one that waits takes its
place, take two narrow tasks out for a wide one, or rotate three. Here the tasks on two, three or four machines, together
with those that wait, are divided anew in the best way there is, set after set of machines until nothing is won. It is a
large neighbourhood search (P. Shaw, "Using constraint programming and local search methods to solve vehicle routing
problems", CP 1998) with branch and bound inside; the work is limited by the nodes that it looks at, never by the clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.machine_arrays import UNLIMITED
from flowsched.round.linear import exchange_kernels as kernels
from flowsched.round.linear.candidate_index import CandidateIndex
from flowsched.round.linear.linear_bound import Evidence
from flowsched.round.linear.pairs import pair_costs
from flowsched.support.arrays import BoolArray, FloatArray, IntArray, ranks

MOST_MACHINES = 32
_NEAR = 6
"""Machines that hold no task of the round, for each class, that tasks may move to."""
_LOOKED_AT = 64
_ALIKE = 2
"""Machines that hold no task and are alike, to choose from."""
_ENOUGH = 1e-3
"""Machines that can win at most this share of the round's cost are left as they are."""


@dataclass(frozen=True, eq=False)
class Exchanged:
    """Placements of a level after the exchanges."""

    task_class: IntArray
    machine: IntArray
    won: float
    """How much less the level costs."""
    nodes: int


def run_exchanges(
    evidence: Evidence, candidates: CandidateIndex, task_class: IntArray, machine: IntArray, most: int
) -> Exchanged:
    """Exchange until nothing is won, or ``most`` nodes were looked at. ``task_class`` and ``machine``: the placements."""
    classes = evidence.waiting.classes
    rows = _candidates(evidence, candidates, machine)
    if len(rows) > MOST_MACHINES or not len(rows):
        return Exchanged(task_class, machine, 0.0, 0)
    small, room = _small(evidence, rows)
    count = np.zeros((len(rows), len(classes)), dtype=np.int64)
    np.add.at(count, (np.searchsorted(rows, machine), np.searchsorted(classes, task_class)), 1)
    room -= count @ small.demand
    served = count.sum(axis=0)
    least = np.repeat(small.alone.min(axis=0), evidence.waiting.counts)
    enough = _ENOUGH * float(np.minimum(least, small.leave).sum()) + 1e-9
    won, nodes = kernels.exchange(small, room, count, served, most, enough)
    if won <= 0.0:
        return Exchanged(task_class, machine, 0.0, nodes)
    which_class, which_row = np.nonzero(count.T)
    times = count[which_row, which_class]
    return Exchanged(np.repeat(classes[which_class], times), np.repeat(rows[which_row], times), won, nodes)


def _candidates(evidence: Evidence, candidates: CandidateIndex, machine: IntArray) -> IntArray:
    """Machines that hold a task of the round, and for each class the cheapest others. Ascending."""
    held = np.unique(machine)
    if len(evidence.rows) <= MOST_MACHINES // 2:
        return np.union1d(held, _different(evidence, np.setdiff1d(evidence.rows, held)))
    if len(held) > MOST_MACHINES:
        return held
    classes = evidence.waiting.classes
    first, groups, _ = candidates.cheap(classes, len(evidence.counts))
    empty = np.zeros(len(evidence.open), dtype=np.bool_)
    empty[evidence.rows] = True
    empty[held] = False
    some = [held]
    for c in classes.tolist():
        near = [np.zeros(0, dtype=np.int64)]
        seen = 0
        for g in groups[first[c] : min(first[c + 1], first[c] + _LOOKED_AT)].tolist():
            members = candidates.rows[candidates.first[g] : candidates.first[g + 1]]
            members = members[empty[members]][: _LOOKED_AT - seen]
            near.append(members)
            seen += len(members)
            if seen >= _LOOKED_AT:
                break
        found = np.concatenate(near)
        price = _alone(evidence, found, np.array([c], dtype=np.int64))[:, 0]
        some.append(_different(evidence, found[np.lexsort((found, price))])[:_NEAR])
    for short in range(_NEAR, 0, -1):
        rows = np.unique(np.concatenate([held, *(s[:short] for s in some[1:])]))
        if len(rows) <= MOST_MACHINES:
            return rows
    return held


def _different(evidence: Evidence, rows: IntArray) -> IntArray:
    """At most two of every make of machine, in the order given: more make no difference."""
    model = evidence.model
    code = evidence.place_code[rows, None]
    key = np.hstack([model.kind[rows, None], evidence.free[rows], evidence.readings[rows], model.limits[rows], code])
    _, make = np.unique(key, axis=0, return_inverse=True)
    return rows[ranks(make.reshape(-1)) < _ALIKE]


def _alone(evidence: Evidence, rows: IntArray, classes: IntArray) -> FloatArray:
    """By machine and class: what one task costs as the level begins."""
    model = evidence.model
    kind = model.kind[rows]
    price: FloatArray = model.base[classes][:, kind].T.copy()
    for f in range(model.coefficients.shape[1]):
        felt = model.factors[kind, f] * evidence.readings[rows, f] * model.scale
        price += felt[:, None] * model.coefficients[classes, f][None, :]
    for i, place in enumerate(model.place_of[classes].tolist()):
        if place:
            price[:, i] += model.extra[place, rows]
    price[price > model.ceiling[classes][None, :]] = np.inf
    return price


def _small(evidence: Evidence, rows: IntArray) -> tuple[kernels.Small, IntArray]:
    """The round on these machines, and their room as the level begins."""
    model, waiting = evidence.model, evidence.waiting
    classes = waiting.classes
    alone = _alone(evidence, rows, classes)
    limited: BoolArray = np.any(model.limits[rows] < UNLIMITED, axis=0)
    demand = np.hstack([model.demands[classes], model.effects[classes][:, limited]])
    room = kernels.room_of(evidence.free, evidence.readings, model.limits, limited, UNLIMITED, rows)
    leave = waiting.cost.copy()
    if not np.isfinite(leave).all():
        # More than all else together, so that as few as possible of these are left.
        dear = float(alone[np.isfinite(alone)].max(initial=0.0)) + float(leave[np.isfinite(leave)].max(initial=0.0))
        pairs_of_tasks = len(leave) * (len(leave) + 1)
        worst = float(pair_costs(model, classes).max(initial=0.0))
        leave[~np.isfinite(leave)] = dear * len(leave) + worst * pairs_of_tasks + 1.0
    dearest = leave[waiting.first[:-1]]
    weight = demand[:, 0] * np.maximum(1e-9, dearest)
    order = np.lexsort((np.arange(len(classes)), -weight, -demand[:, 0]))
    kinds, kind = np.unique(model.kind[rows], return_inverse=True)
    pairs = pair_costs(model._replace(factors=model.factors[kinds]), classes)
    return kernels.Small(alone, pairs, kind.reshape(-1), demand, leave, waiting.first, order), room

"""Compiled placing of tasks one after the other, for classes whose every task changes where the next one may go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.pricing.linear.kernels import Model, place_cost, prices_at, put, takes, takes_at, tie_of
from flowsched.round.linear.compiled import borrowing, compiled
from flowsched.round.linear.packing_kernels import STEP
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

LIMIT, APART, TOGETHER, SPREAD = 0, 1, 2, 3
"""Kinds of relations, as compiled code takes them."""


class Moving(NamedTuple):
    """Relations of one class that its own tasks change, by position."""

    kind: IntArray
    holds: BoolArray
    joins: BoolArray
    bound: IntArray
    """The most of a limit, the skew of a spread."""
    domain: IntArray
    """By relation and machine; -1 for machines in none."""
    members: IntArray
    """By relation and domain."""
    holders: IntArray
    counted: BoolArray
    """By relation and machine: whether a task there counts as a member; not on machines that a spread leaves out."""
    compared: BoolArray
    """By relation and domain: those whose least filled one is the floor of a spread."""
    floored: BoolArray
    """By relation: whether a spread has a floor above 0."""
    total: IntArray
    """Members in all domains."""


@borrowing
def open_domains(k: int, moving: Moving, verdict: BoolArray) -> None:
    """Which domains take one task more; the last entry of ``verdict`` is for machines in none."""
    kind = moving.kind[k]
    holds = moving.holds[k]
    joins = moving.joins[k]
    domains = len(verdict) - 1
    floor = 0
    if kind == SPREAD and moving.floored[k]:
        floor = 1 << 60
        for d in range(domains):
            if moving.compared[k, d]:
                floor = min(floor, moving.members[k, d])
    for d in range(domains):
        there = moving.members[k, d]
        good = True
        if kind == LIMIT:
            good = not joins or there < moving.bound[k]
        elif kind == APART:
            good = (not holds or there == 0) and (not joins or moving.holders[k, d] == 0)
        elif kind == TOGETHER:
            good = not holds or there > 0 or (joins and moving.total[k] == 0)
        elif kind == SPREAD:
            good = not holds or there + (1 if joins else 0) <= moving.bound[k] + floor
        verdict[d] = good
    verdict[domains] = not (holds and kind >= TOGETHER)


@compiled
def place_in_turn(
    c: int,
    count: int,
    limit: float,
    rows: IntArray,
    group: IntArray,
    quota: IntArray,
    open_: BoolArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    moving: Moving,
) -> tuple[IntArray, FloatArray]:
    """Place up to ``count`` tasks of class c on ``rows``, each where it costs least then; machines and costs.

    At most ``quota[group[i]]`` come to machines of a group. ``open_``: by machine, what is closed whatever the class's own
    tasks do. Ties go as they do in ``pour``.
    """
    chosen = np.empty(count, dtype=np.int64)
    costs = np.empty(count)
    size = len(rows)
    price = np.empty(size)
    tie = np.empty(size)
    good = np.zeros(size, dtype=np.bool_)
    relations = len(moving.kind)
    domains = moving.members.shape[1]
    verdict = np.zeros((relations, domains + 1), dtype=np.bool_)
    ties, memory = model.tie, model.memory
    prices_at(rows, c, model, readings, price)
    takes_at(rows, c, 0, model, free, readings, good)
    for i in range(size):
        m = rows[i]
        if open_[m] and good[i]:
            tie[i] = ties[m, 0] + ties[m, 1] * free[m, 0] + ties[m, 2] * free[m, memory]
            good[i] = price[i] <= limit and price[i] < np.inf
        else:
            good[i] = False
    for k in range(relations):
        open_domains(k, moving, verdict[k])
    placed = 0
    while placed < count:
        best = -1
        for i in range(size):
            if not good[i]:
                continue
            if best >= 0:
                if price[i] > price[best]:
                    continue
                if price[i] == price[best] and (tie[i] > tie[best] or (tie[i] == tie[best] and rows[i] > rows[best])):
                    continue
            if quota[group[i]] <= 0:
                continue
            may = True
            for k in range(relations):
                if not verdict[k, moving.domain[k, rows[i]]]:
                    may = False
                    break
            if may:
                best = i
        if best < 0:
            break
        m = rows[best]
        chosen[placed] = m
        costs[placed] = price[best]
        placed += 1
        quota[group[best]] -= 1
        put(m, c, 1, model, free, readings)
        good[best] = takes(m, c, free, readings, model.limits, model.demands, model.effects)
        price[best] = place_cost(m, c, model, readings)
        tie[best] = max(tie[best] + STEP, tie_of(m, model, free)) if model.spread else tie_of(m, model, free)
        good[best] = good[best] and price[best] <= limit
        for k in range(relations):
            d = moving.domain[k, m]
            if d < 0:
                continue
            if moving.joins[k] and moving.counted[k, m]:
                moving.members[k, d] += 1
                moving.total[k] += 1
            if moving.holds[k] and moving.kind[k] == APART:
                moving.holders[k, d] += 1
            open_domains(k, moving, verdict[k])
    return chosen[:placed], costs[:placed]

"""Compiled packing: tasks of a class onto the machines where they cost least, and classes placed anew beside all others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.pricing.linear.kernels import (
    LEAST_GAIN,
    MachineLoad,
    Model,
    cost_beside,
    gated,
    place_cost,
    prices_at,
    put,
    takes,
    takes_at,
    tie_of,
)
from flowsched.round.linear.compiled import borrowing, compiled
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

STEP = 1e-9
"""What one more task of a class adds to the rank of a machine among equal ones, where ties spread."""


class GroupMachines(NamedTuple):
    """The machines of groups: ``rows[first[g]:first[g + 1]]`` are those of group g."""

    first: IntArray
    """[groups + 1]"""
    rows: IntArray
    """[machines of groups] row of each."""
    barred: BoolArray
    """[machines] rows that take no task."""


class CheapGroups(NamedTuple):
    """For each class the groups that take it: ``groups[first[c]:first[c + 1]]``, those where it can cost least first."""

    first: IntArray
    """[classes + 1]"""
    groups: IntArray
    cost: FloatArray
    """[as groups] the least that it can cost there."""


class Placements(NamedTuple):
    """Tasks of a round, each on a machine."""

    task_class: IntArray
    """[tasks]"""
    machine: IntArray
    """[tasks] row: changed in place."""
    cost: FloatArray
    """[tasks] what each pays: changed in place."""


class PriceHeap(NamedTuple):
    """Room for a heap of machines; the least (key, tie, row) is on top."""

    keys: FloatArray
    """[machines] price of the next task."""
    ties: FloatArray
    """[machines] rank among those with the same price."""
    rows: IntArray
    """[machines]"""


class ChosenMachines(NamedTuple):
    """Where the machines of tasks of one class are written."""

    rows: IntArray
    """[tasks]"""
    costs: FloatArray
    """[tasks] what each pays as it comes."""


@borrowing
def sift(keys: FloatArray, ties: FloatArray, rows: IntArray, start: int, count: int) -> None:
    """Let one entry of a heap sink to its place; the smallest (key, tie, row) is on top."""
    i = start
    while True:
        child = 2 * i + 1
        if child >= count:
            return
        other = child + 1
        if other < count and before(keys, ties, rows, other, child):
            child = other
        if not before(keys, ties, rows, child, i):
            return
        keys[i], keys[child] = keys[child], keys[i]
        ties[i], ties[child] = ties[child], ties[i]
        rows[i], rows[child] = rows[child], rows[i]
        i = child


@borrowing
def before(keys: FloatArray, ties: FloatArray, rows: IntArray, a: int, b: int) -> bool:
    """Whether entry a of a heap comes before entry b."""
    if keys[a] != keys[b]:
        return bool(keys[a] < keys[b])
    if ties[a] != ties[b]:
        return bool(ties[a] < ties[b])
    return bool(rows[a] < rows[b])


@compiled
def pour(
    c: int,
    wanted: int,
    limit: float,
    near: IntArray,
    barred: BoolArray,
    model: Model,
    load: MachineLoad,
    prices: PriceHeap,
    into: ChosenMachines,
) -> int:
    """Place up to ``wanted`` tasks of class c on the machines ``near``, each where it costs least then.

    Nothing dearer than ``limit`` is taken. Ties go by ``tie_of``, then to the lower row. Where ties spread, a machine that
    took a task ranks a little behind those that were equal, also where the task asks for nothing that ``tie_of`` counts.
    ``barred`` [machines] take no task. How many were placed.
    """
    count = 0
    gate, tie, memory = model.gate_of[c], model.tie, model.memory
    free, readings, chosen, costs = load.free, load.readings, into.rows, into.costs
    keys, ties, heap = prices.keys, prices.ties, prices.rows
    # What is kept moves forward in the same array.
    prices_at(near, c, model, readings, keys)
    good = np.empty(len(near), dtype=np.bool_)
    takes_at(near, c, gate, model, free, readings, good)
    for i in range(len(near)):
        m = near[i]
        cost = keys[i]
        if barred[m] or cost > limit or cost >= np.inf or not good[i]:
            continue
        keys[count] = cost
        ties[count] = tie[m, 0] + tie[m, 1] * free[m, 0] + tie[m, 2] * free[m, memory]
        heap[count] = m
        count += 1
    for i in range(count // 2 - 1, -1, -1):
        sift(keys, ties, heap, i, count)
    placed = 0
    while placed < wanted and count > 0:
        m = heap[0]
        chosen[placed] = m
        costs[placed] = keys[0]
        placed += 1
        put(m, c, 1, model, free, readings)
        if gate > 0:
            model.gates[gate, m] -= 1
        keep = not gated(m, c, model) and takes(m, c, free, readings, model.limits, model.demands, model.effects)
        if keep:
            keys[0] = place_cost(m, c, model, readings)
            ties[0] = max(ties[0] + STEP, tie_of(m, model, free)) if model.spread else tie_of(m, model, free)
            keep = keys[0] <= limit
        if not keep:
            count -= 1
            keys[0] = keys[count]
            ties[0] = ties[count]
            heap[0] = heap[count]
        sift(keys, ties, heap, 0, count)
    return placed


@compiled
def pack(
    order: IntArray,
    wanted: IntArray,
    limit: FloatArray,
    machines: GroupMachines,
    model: Model,
    load: MachineLoad,
    most: int,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Whole tasks along a flow: class by class in ``order`` (widest first), group by group. Classes, machines and costs.

    ``wanted[c, g]``: tasks of class c for group g, ``most`` in all. ``limit[c]``: no place dearer than this.
    """
    placed_class = np.empty(most, dtype=np.int64)
    chosen = np.empty(most, dtype=np.int64)
    costs = np.empty(most, dtype=np.float64)
    first, rows = machines.first, machines.rows
    largest = len(rows)
    heap = PriceHeap(
        np.empty(largest, dtype=np.float64), np.empty(largest, dtype=np.float64), np.empty(largest, dtype=np.int64)
    )
    at = 0
    for c in order:
        for g in range(wanted.shape[1]):
            if wanted[c, g] == 0:
                continue
            near, into = rows[first[g] : first[g + 1]], ChosenMachines(chosen[at:], costs[at:])
            placed = pour(c, wanted[c, g], limit[c], near, machines.barred, model, load, heap, into)
            for i in range(at, at + placed):
                placed_class[i] = c
            at += placed
    return placed_class[:at], chosen[:at], costs[:at]


@compiled
def settle(
    order: IntArray,
    placements: Placements,
    cheap: CheapGroups,
    machines: GroupMachines,
    model: Model,
    load: MachineLoad,
) -> tuple[int, int]:
    """Place every class of the round anew, beside all others: its tasks find the cheapest places there are.

    ``order`` sorts the placements by class. A class's tasks are alike, and each raises what the next one pays, so taking
    the cheapest place again and again is the best that the class can do; the round's total only falls. The
    cost of a placement becomes what it pays beside all others once its class is placed. Returns moves, and machines that
    were looked at.

    Three phases for each class: all its tasks leave their machines; they are poured onto the machines of the groups that can
    cost no more than the dearest paid; and where they would not pay less in all, they go back to where they were.
    """
    task_class, machine, cost = placements.task_class, placements.machine, placements.cost
    free, readings, first, rows = load.free, load.readings, machines.first, machines.rows
    cheap_first, cheap_groups, cheap_cost = cheap.first, cheap.groups, cheap.cost
    moves = 0
    looked = 0
    size = len(rows)
    heap = PriceHeap(np.empty(size, dtype=np.float64), np.empty(size, dtype=np.float64), np.empty(size, dtype=np.int64))
    near = np.empty(size, dtype=np.int64)
    chosen = np.empty(len(order), dtype=np.int64)
    paid = np.empty(len(order), dtype=np.float64)
    into = ChosenMachines(chosen, paid)
    tally = np.zeros(len(model.kind), dtype=np.int64)
    start = 0
    while start < len(order):
        # All tasks of the class leave.
        c = task_class[order[start]]
        end = start
        dearest = 0.0
        before_sum = 0.0
        while end < len(order) and task_class[order[end]] == c:
            i = order[end]
            m = machine[i]
            put(m, c, -1, model, free, readings)
            now = place_cost(m, c, model, readings)
            # With fellows gone from its machine too, which is what the last one to leave sees.
            dearest = max(dearest, cost[i], now)
            before_sum += now
            end += 1
        # They find the cheapest places there are now.
        count = 0
        need = model.demands[c, 0]
        for j in range(cheap_first[c], cheap_first[c + 1]):
            if cheap_cost[j] > dearest + LEAST_GAIN:
                break
            g = cheap_groups[j]
            for k in range(first[g], first[g + 1]):
                if free[rows[k], 0] >= need:
                    near[count] = rows[k]
                    count += 1
        looked += count
        limit = min(dearest + LEAST_GAIN, model.ceiling[c])
        placed = pour(c, end - start, limit, near[:count], machines.barred, model, load, heap, into)
        # They stay there if that pays.
        after_sum = 0.0
        for n in range(placed):
            after_sum += paid[n]
        if placed < end - start or after_sum >= before_sum - LEAST_GAIN:
            for n in range(placed):
                put(chosen[n], c, -1, model, free, readings)
            for n in range(start, end):
                put(machine[order[n]], c, 1, model, free, readings)
        else:
            for n in range(placed):
                tally[machine[order[start + n]]] -= 1
                tally[chosen[n]] += 1
            for n in range(placed):
                moves += max(0, tally[chosen[n]])
                tally[chosen[n]] = 0
            for n in range(placed):
                tally[machine[order[start + n]]] = 0
                machine[order[start + n]] = chosen[n]
        for n in range(start, end):
            m = machine[order[n]]
            cost[order[n]] = cost_beside(m, c, model, readings)
        start = end
    return moves, looked

"""Compiled inner loops of a round: booking, counting what fits, pricing.

Arrays by machine have a row for each; amounts are integers in the cluster's units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.cluster.machine_arrays import UNLIMITED
from flowsched.pricing.linear.compiled import borrowing, compiled
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

MANY = 1 << 30
"""More tasks than any machine takes."""
LEAST_GAIN = 1e-9
"""Moves of a round's tasks that gain less are not made."""


class Model(NamedTuple):
    """What prices and room depend on and no placement changes, as compiled code takes it."""

    kind: IntArray
    """Of each machine."""
    limits: IntArray
    """By machine and feature."""
    base: FloatArray
    """By class and kind."""
    coefficients: FloatArray
    """By class and feature."""
    factors: FloatArray
    """By kind and feature."""
    demands: IntArray
    """By class and resource."""
    effects: IntArray
    """By class and feature."""
    scale: float
    """What a unit of a reading is."""
    ceiling: FloatArray
    """By class: places that cost more are not taken."""
    place_of: IntArray
    """By class: its row in ``extra``; 0 where a class has the same price on all machines of a kind."""
    extra: FloatArray
    """By places and machine: what a task pays there beside its other prices; infinite where it must not run."""
    gate_of: IntArray
    """By class: its row in ``gates``; 0 where no relation says how many of it a machine may take."""
    gates: IntArray
    """By gate and machine: how many more tasks may come. Packing counts it down."""
    tie: FloatArray
    """By machine: a constant, and weights of its free CPU and memory. Of equal prices the least sum comes first."""
    memory: int
    """Column of memory in arrays by resource."""
    spread: bool
    """Whether ties spread tasks: then each further task on a machine ranks behind equal machines without one."""


class MachineLoad(NamedTuple):
    """What placements change on machines, counted in place."""

    free: IntArray
    """[machines, resources] what is left, in the cluster's units; below 0 where more is booked than there is."""
    readings: IntArray
    """[machines, features] sums over the tasks there, in the model's units of readings."""


class ShapeTable(NamedTuple):
    """What tasks that wait ask for: one row for all classes that ask for the same."""

    demand: IntArray
    """[shapes, resources]"""
    effect: IntArray
    """[shapes, features] what limits are kept by."""


class WidthTable(NamedTuple):
    """Widths of tasks that wait, by tier, the widest first."""

    unit: int
    """Milli-CPU of one unit."""
    largest: IntArray
    """[tiers, units + 1] the most units that widths of tier t and wider take of u free ones."""
    usual: int
    """Units of the usual width."""


class SeenMachines(NamedTuple):
    """Machines as they were counted last."""

    group_of: IntArray
    """[machines] group; -1: in none."""
    fit: IntArray
    """[machines, shapes] whole tasks of each shape that it had room for."""
    units: IntArray
    """[machines] free units of CPU."""


class GroupCounts(NamedTuple):
    """Machines of groups, counted."""

    members: IntArray
    """[groups] machines."""
    open_members: IntArray
    """[groups] machines with room for a task of any shape."""
    slots: IntArray
    """[shapes, groups] whole tasks of each shape that fit."""
    tiers: IntArray
    """[groups, tiers] units that widths of tier t and wider take."""
    rungs: IntArray
    """[groups, steps] machines with room for more than j tasks of the usual width."""


@borrowing
def book(
    tasks: IntArray,
    machine: IntArray,
    task_class: IntArray,
    demands: IntArray,
    effects: IntArray,
    sign: int,
    free: IntArray,
    readings: IntArray,
) -> None:
    """Count running tasks on their machines, or take them off with ``sign`` -1."""
    for task in tasks:
        row = machine[task]
        c = task_class[task]
        for r in range(demands.shape[1]):
            free[row, r] -= sign * demands[c, r]
        for f in range(effects.shape[1]):
            readings[row, f] += sign * effects[c, f]


@borrowing
def fit(
    m: int, c: int, free: IntArray, readings: IntArray, limits: IntArray, demands: IntArray, effects: IntArray
) -> int:
    """Whole tasks of class (or shape) c that machine m has room for, in every resource and below every limit."""
    most = MANY
    for r in range(demands.shape[1]):
        if demands[c, r] > 0:
            most = min(most, free[m, r] // demands[c, r] if free[m, r] > 0 else 0)
            if most == 0:
                return 0
    for f in range(effects.shape[1]):
        if effects[c, f] > 0 and limits[m, f] < UNLIMITED:
            room = limits[m, f] - readings[m, f]
            most = min(most, room // effects[c, f] if room > 0 else 0)
            if most == 0:
                return 0
    return most


@borrowing
def takes(
    m: int, c: int, free: IntArray, readings: IntArray, limits: IntArray, demands: IntArray, effects: IntArray
) -> bool:
    """Whether machine m has room for one task of class c: what ``fit`` says, without its divisions."""
    for r in range(demands.shape[1]):
        if demands[c, r] > 0 and free[m, r] < demands[c, r]:
            return False
    room = True
    for f in range(effects.shape[1]):
        room = room and (effects[c, f] == 0 or readings[m, f] + effects[c, f] <= limits[m, f])
    return room


@borrowing
def recount(
    rows: IntArray,
    new_group: IntArray,
    load: MachineLoad,
    limits: IntArray,
    shapes: ShapeTable,
    widths: WidthTable,
    seen: SeenMachines,
    counts: GroupCounts,
) -> None:
    """Take machines ``rows`` out of the ``counts`` of their groups as they were ``seen`` last; count them as they are now.

    ``new_group`` [rows]: -1 leaves a machine out. ``limits`` [machines, features] of readings.
    """
    free, demand, effect = load.free, shapes.demand, shapes.effect
    group_of, seen_fit, seen_units, largest = seen.group_of, seen.fit, seen.units, widths.largest
    members, open_members, slots, tiers, rungs = (
        counts.members,
        counts.open_members,
        counts.slots,
        counts.tiers,
        counts.rungs,
    )
    shape_count = len(demand)
    top = largest.shape[1] - 1
    steps = rungs.shape[1]
    for i in range(len(rows)):
        m = rows[i]
        g = group_of[m]
        if g >= 0:
            members[g] -= 1
            busy = False
            for s in range(shape_count):
                n = seen_fit[m, s]
                slots[s, g] -= n
                busy = busy or n > 0
            if busy:
                open_members[g] -= 1
            u = seen_units[m]
            for t in range(tiers.shape[1]):
                tiers[g, t] -= largest[t, u]
            many = u // widths.usual
            for j in range(min(many, steps)):
                rungs[g, j] -= 1
        # As it is now, if it is in a group.
        g = new_group[i]
        group_of[m] = g
        if g < 0:
            continue
        members[g] += 1
        some = False
        for s in range(shape_count):
            n = fit(m, s, free, load.readings, limits, demand, effect)
            seen_fit[m, s] = n
            slots[s, g] += n
            some = some or n > 0
        u = 0
        if some:
            open_members[g] += 1
            u = min(top, max(0, free[m, 0]) // widths.unit)
        seen_units[m] = u
        for t in range(tiers.shape[1]):
            tiers[g, t] += largest[t, u]
        many = u // widths.usual
        for j in range(min(many, steps)):
            rungs[g, j] += 1


@compiled
def members_by_group(
    group_of: IntArray, seen_fit: IntArray, groups: int, wanted: BoolArray
) -> tuple[IntArray, IntArray]:
    """Machines of every wanted group that take a task of some shape, group by group: first positions, and rows."""
    first = np.zeros(groups + 1, dtype=np.int64)
    shapes = seen_fit.shape[1]
    for m in range(len(group_of)):
        g = group_of[m]
        if g >= 0 and wanted[g]:
            for s in range(shapes):
                if seen_fit[m, s] > 0:
                    first[g + 1] += 1
                    break
    for g in range(groups):
        first[g + 1] += first[g]
    rows = np.zeros(first[groups], dtype=np.int64)
    at = first[:groups].copy()
    for m in range(len(group_of)):
        g = group_of[m]
        if g >= 0 and wanted[g]:
            for s in range(shapes):
                if seen_fit[m, s] > 0:
                    rows[at[g]] = m
                    at[g] += 1
                    break
    return first, rows


@borrowing
def least_readings(first: IntArray, rows: IntArray, readings: IntArray, least: IntArray) -> None:
    """The least reading of each feature among the machines of each group."""
    for g in range(len(first) - 1):
        for f in range(readings.shape[1]):
            if first[g] < first[g + 1]:
                low = readings[rows[first[g]], f]
                for i in range(first[g] + 1, first[g + 1]):
                    low = min(low, readings[rows[i], f])
                least[g, f] = low


@compiled
def same_group(rows: IntArray, columns: IntArray, group_of: IntArray, keys: IntArray) -> BoolArray:
    """Machines whose key (``columns``, a row for each) is still that of their group."""
    same = np.zeros(len(rows), dtype=np.bool_)
    for i in range(len(rows)):
        g = group_of[rows[i]]
        if g >= 0:
            equal = True
            for f in range(columns.shape[1]):
                if columns[i, f] != keys[g, f]:
                    equal = False
                    break
            same[i] = equal
    return same


@borrowing
def place_cost(
    m: int,
    c: int,
    model: Model,
    readings: IntArray,
) -> float:
    """What one task of class c costs on machine m as it is."""
    k = model.kind[m]
    total = float(model.base[c, k])
    for f in range(model.coefficients.shape[1]):
        # Most classes feel few features, and 0 more changes no sum.
        if model.coefficients[c, f] > 0.0:
            total += model.coefficients[c, f] * model.factors[k, f] * readings[m, f] * model.scale
    if model.place_of[c] > 0:
        total += model.extra[model.place_of[c], m]
    return total


@borrowing
def cost_beside(
    m: int,
    c: int,
    model: Model,
    readings: IntArray,
) -> float:
    """What one task of class c, which is on machine m, costs beside all others there."""
    k = model.kind[m]
    total = float(model.base[c, k])
    for f in range(model.coefficients.shape[1]):
        if model.coefficients[c, f] > 0.0:
            felt = readings[m, f] - model.effects[c, f]
            total += model.coefficients[c, f] * model.factors[k, f] * felt * model.scale
    if model.place_of[c] > 0:
        total += model.extra[model.place_of[c], m]
    return total


@compiled
def above_zero(values: FloatArray | IntArray) -> IntArray:
    """Positions of values above 0: most classes feel few features, and bring something to few."""
    found = np.empty(len(values), dtype=np.int64)
    count = 0
    for f in range(len(values)):
        if values[f] > 0:
            found[count] = f
            count += 1
    return found[:count]


@borrowing
def gated(m: int, c: int, model: Model) -> bool:
    """Whether relations let no task of class c more come to machine m."""
    return bool(model.gate_of[c] > 0 and model.gates[model.gate_of[c], m] <= 0)


@borrowing
def tie_of(m: int, model: Model, free: IntArray) -> float:
    """What ranks machine m among those with the same price; the least comes first."""
    return float(model.tie[m, 0] + model.tie[m, 1] * free[m, 0] + model.tie[m, 2] * free[m, model.memory])


@borrowing
def prices_at(rows: IntArray, c: int, model: Model, readings: IntArray, cost: FloatArray) -> None:
    """What one task of class c costs on each of ``rows`` as it is: ``place_cost`` for many, in a fiftieth of its time.

    The model's arrays are looked up once, as each look-up counts references. Terms are added in the same order.
    """
    kind, base, coefficients, factors, scale = model.kind, model.base, model.coefficients, model.factors, model.scale
    place, extra = model.place_of[c], model.extra
    felt = above_zero(coefficients[c])
    for i in range(len(rows)):
        m = rows[i]
        k = kind[m]
        total = float(base[c, k])
        for f in felt:
            total += coefficients[c, f] * factors[k, f] * readings[m, f] * scale
        if place > 0:
            total += extra[place, m]
        cost[i] = total


@borrowing
def takes_at(
    rows: IntArray, c: int, gate: int, model: Model, free: IntArray, readings: IntArray, good: BoolArray
) -> None:
    """Which of ``rows`` have room for one task of class c: ``takes`` for many machines.

    ``gate``: the row of the model's gates that has to be open too; 0 for none.
    """
    demands, effects, limits, gates = model.demands, model.effects, model.limits, model.gates
    asked, brought = above_zero(demands[c]), above_zero(effects[c])
    for i in range(len(rows)):
        m = rows[i]
        room = gate == 0 or gates[gate, m] > 0
        for r in asked:
            room = room and free[m, r] >= demands[c, r]
        for f in brought:
            room = room and readings[m, f] + effects[c, f] <= limits[m, f]
        good[i] = room


@compiled
def class_prices(c: int, model: Model, readings: IntArray, cost: FloatArray) -> None:
    """What one task of class c costs on every machine as it is."""
    prices_at(np.arange(len(cost)), c, model, readings, cost)


@compiled
def two_cheapest(
    classes: IntArray, closed: BoolArray, model: Model, free: IntArray, readings: IntArray
) -> tuple[IntArray, FloatArray]:
    """By class, the two machines where one task more costs least, and what it costs there; -1 where there are not as many.

    Of equal prices the machine that ``tie_of`` ranks first comes first, then the lower row. ``closed``: machines that take
    no task.
    """
    nearest = np.full((len(classes), 2), -1, dtype=np.int64)
    price = np.full((len(classes), 2), np.inf)
    rows = np.arange(len(closed))
    cost = np.empty(len(rows))
    good = np.empty(len(rows), dtype=np.bool_)
    rank = np.empty(len(rows))
    for m in range(len(rows)):
        rank[m] = tie_of(m, model, free)
    for i in range(len(classes)):
        prices_at(rows, classes[i], model, readings, cost)
        takes_at(rows, classes[i], 0, model, free, readings, good)
        for m in range(len(rows)):
            if closed[m] or not good[m] or cost[m] == np.inf:
                continue
            first, second = nearest[i]
            if first < 0 or cost[m] < cost[first] or (cost[m] == cost[first] and rank[m] < rank[first]):
                nearest[i, 0], nearest[i, 1] = m, first
            elif second < 0 or cost[m] < cost[second] or (cost[m] == cost[second] and rank[m] < rank[second]):
                nearest[i, 1] = m
        for n in range(2):
            if nearest[i, n] >= 0:
                price[i, n] = cost[nearest[i, n]]
    return nearest, price


@borrowing
def least_extra(p: int, first: IntArray, rows: IntArray, model: Model, least: FloatArray) -> None:
    """The least extra of some places among the machines of each group."""
    for g in range(len(first) - 1):
        low = np.inf
        for i in range(first[g], first[g + 1]):
            low = min(low, model.extra[p, rows[i]])
        if first[g] < first[g + 1]:
            least[g] = low


@borrowing
def put(m: int, c: int, sign: int, model: Model, free: IntArray, readings: IntArray) -> None:
    """One task of class c comes to machine m, or leaves it."""
    for r in range(model.demands.shape[1]):
        free[m, r] -= sign * model.demands[c, r]
    for f in range(model.effects.shape[1]):
        readings[m, f] += sign * model.effects[c, f]


@compiled
def reprice(task_class: IntArray, machine: IntArray, model: Model, readings: IntArray) -> FloatArray:
    """What every task costs beside all others at the end of the round, itself left out."""
    cost = np.empty(len(task_class))
    for i in range(len(task_class)):
        cost[i] = cost_beside(machine[i], task_class[i], model, readings)
    return cost


@compiled
def in_turn(task_class: IntArray, machine: IntArray, model: Model, free: IntArray, readings: IntArray) -> FloatArray:
    """What every task adds to the total if they come one after the other, onto machines as they were before the round."""
    cost = np.empty(len(task_class))
    for i in range(len(task_class)):
        c = task_class[i]
        m = machine[i]
        cost[i] = place_cost(m, c, model, readings)
        put(m, c, 1, model, free, readings)
    return cost

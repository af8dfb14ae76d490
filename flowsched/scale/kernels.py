"""Compiled inner loops of a round: booking, counting what fits, packing, settling.

They stand in one file because compiled code is kept file by file and these call each other. Arrays by machine have a row for
each; amounts are integers in the ledger's units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.scale.compiled import compiled

UNLIMITED = 1 << 60
"""A limit that no reading reaches."""
MANY = 1 << 30
"""More tasks than any machine takes."""


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


@compiled
def mark(rows: IntArray, changed: BoolArray, changes: IntArray, count: IntArray) -> None:
    """Put machines on the list of changes, once each."""
    for row in rows:
        if not changed[row]:
            changed[row] = True
            changes[count[0]] = row
            count[0] += 1


@compiled
def enlist(tasks: IntArray, pending: IntArray, position: IntArray, count: IntArray) -> None:
    """Append tasks to the list of those that wait."""
    for task in tasks:
        pending[count[0]] = task
        position[task] = count[0]
        count[0] += 1


@compiled
def delist(tasks: IntArray, pending: IntArray, position: IntArray, count: IntArray) -> None:
    """Take tasks off that list; the last one takes the free place."""
    for task in tasks:
        count[0] -= 1
        last = pending[count[0]]
        place = position[task]
        pending[place] = last
        position[last] = place


@compiled
def book(
    tasks: IntArray,
    machine: IntArray,
    task_class: IntArray,
    demands: IntArray,
    effects: IntArray,
    sign: int,
    free: IntArray,
    readings: IntArray,
    changed: BoolArray,
    changes: IntArray,
    count: IntArray,
) -> None:
    """Count running tasks on their machines, or take them off with ``sign`` -1."""
    for task in tasks:
        row = machine[task]
        c = task_class[task]
        for r in range(demands.shape[1]):
            free[row, r] -= sign * demands[c, r]
        for f in range(effects.shape[1]):
            readings[row, f] += sign * effects[c, f]
        if not changed[row]:
            changed[row] = True
            changes[count[0]] = row
            count[0] += 1


@compiled
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


@compiled
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


@compiled
def recount(
    rows: IntArray,
    new_group: IntArray,
    free: IntArray,
    readings: IntArray,
    limits: IntArray,
    shape_demand: IntArray,
    shape_effect: IntArray,
    unit: int,
    largest: IntArray,
    ladder_unit: int,
    group_of: IntArray,
    seen_fit: IntArray,
    seen_units: IntArray,
    members: IntArray,
    open_members: IntArray,
    slots: IntArray,
    tiers: IntArray,
    rungs: IntArray,
) -> None:
    """Take machines out of the counts of their groups as they were seen last, and count them as they are now.

    ``largest[t, u]``: the most that widths of tier t and wider take of u free units. ``rungs[g, j]``: machines of group g
    with room for more than j tasks of the usual width. A new group of -1 leaves a machine out.
    """
    shapes = len(shape_demand)
    top = largest.shape[1] - 1
    steps = rungs.shape[1]
    for i in range(len(rows)):
        m = rows[i]
        g = group_of[m]
        if g >= 0:
            members[g] -= 1
            busy = False
            for s in range(shapes):
                n = seen_fit[m, s]
                slots[s, g] -= n
                busy = busy or n > 0
            if busy:
                open_members[g] -= 1
            u = seen_units[m]
            for t in range(tiers.shape[1]):
                tiers[g, t] -= largest[t, u]
            many = u // ladder_unit
            for j in range(min(many, steps)):
                rungs[g, j] -= 1
        g = new_group[i]
        group_of[m] = g
        if g < 0:
            continue
        members[g] += 1
        some = False
        for s in range(shapes):
            n = fit(m, s, free, readings, limits, shape_demand, shape_effect)
            seen_fit[m, s] = n
            slots[s, g] += n
            some = some or n > 0
        u = 0
        if some:
            open_members[g] += 1
            u = min(top, max(0, free[m, 0]) // unit)
        seen_units[m] = u
        for t in range(tiers.shape[1]):
            tiers[g, t] += largest[t, u]
        many = u // ladder_unit
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


@compiled
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


@compiled
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
        total += model.coefficients[c, f] * model.factors[k, f] * readings[m, f] * model.scale
    return total


@compiled
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
        total += model.coefficients[c, f] * model.factors[k, f] * (readings[m, f] - model.effects[c, f]) * model.scale
    return total


@compiled
def sift(keys: FloatArray, ties: IntArray, rows: IntArray, start: int, count: int) -> None:
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


@compiled
def before(keys: FloatArray, ties: IntArray, rows: IntArray, a: int, b: int) -> bool:
    """Whether entry a of a heap comes before entry b."""
    if keys[a] != keys[b]:
        return bool(keys[a] < keys[b])
    if ties[a] != ties[b]:
        return bool(ties[a] < ties[b])
    return bool(rows[a] < rows[b])


@compiled
def put(m: int, c: int, sign: int, model: Model, free: IntArray, readings: IntArray) -> None:
    """One task of class c comes to machine m, or leaves it."""
    for r in range(model.demands.shape[1]):
        free[m, r] -= sign * model.demands[c, r]
    for f in range(model.effects.shape[1]):
        readings[m, f] += sign * model.effects[c, f]


@compiled
def pour(
    c: int,
    wanted: int,
    limit: float,
    first: int,
    last: int,
    rows: IntArray,
    barred: BoolArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    keys: FloatArray,
    ties: IntArray,
    heap: IntArray,
    chosen: IntArray,
    costs: FloatArray,
    at: int,
) -> int:
    """Place up to ``wanted`` tasks of class c on the machines ``rows[first:last]``, each where it costs least then.

    Nothing dearer than ``limit`` is taken. Ties go to the machine with least CPU left, so that others stay whole, then to
    the lower row. Writes machines and costs from position ``at`` on; how many were placed.
    """
    count = 0
    for i in range(first, last):
        m = rows[i]
        if barred[m]:
            continue
        cost = place_cost(m, c, model, readings)
        if (
            cost > limit
            or cost >= np.inf
            or not takes(m, c, free, readings, model.limits, model.demands, model.effects)
        ):
            continue
        keys[count] = cost
        ties[count] = free[m, 0]
        heap[count] = m
        count += 1
    for i in range(count // 2 - 1, -1, -1):
        sift(keys, ties, heap, i, count)
    placed = 0
    while placed < wanted and count > 0:
        m = heap[0]
        chosen[at + placed] = m
        costs[at + placed] = keys[0]
        placed += 1
        put(m, c, 1, model, free, readings)
        keep = takes(m, c, free, readings, model.limits, model.demands, model.effects)
        if keep:
            keys[0] = place_cost(m, c, model, readings)
            ties[0] = free[m, 0]
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
    first: IntArray,
    rows: IntArray,
    barred: BoolArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    chosen: IntArray,
    costs: FloatArray,
    placed_class: IntArray,
) -> int:
    """Whole tasks along a flow: class by class in ``order`` (widest first), group by group. How many were placed.

    ``wanted[c, g]``: tasks of class c for group g. ``limit[c]``: no place dearer than this.
    """
    largest = len(rows)
    keys = np.empty(largest, dtype=np.float64)
    ties = np.empty(largest, dtype=np.int64)
    heap = np.empty(largest, dtype=np.int64)
    at = 0
    for c in order:
        for g in range(wanted.shape[1]):
            if wanted[c, g] == 0:
                continue
            placed = pour(
                c,
                wanted[c, g],
                limit[c],
                first[g],
                first[g + 1],
                rows,
                barred,
                model,
                free,
                readings,
                keys,
                ties,
                heap,
                chosen,
                costs,
                at,
            )
            for i in range(at, at + placed):
                placed_class[i] = c
            at += placed
    return at


@compiled
def settle(
    order: IntArray,
    task_class: IntArray,
    machine: IntArray,
    cost: FloatArray,
    cheap_first: IntArray,
    cheap_groups: IntArray,
    cheap_cost: FloatArray,
    first: IntArray,
    rows: IntArray,
    barred: BoolArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    least_gain: float,
) -> tuple[int, int]:
    """Place every class of the round anew, beside all others: its tasks find the cheapest places there are.

    ``order`` sorts the placements by class. A class's tasks are alike, and each raises what the next one pays, so taking
    the cheapest place again and again is the best that the class can do; the round's total only falls. For each class,
    ``cheap_groups[cheap_first[c]:cheap_first[c + 1]]`` are groups in the order of the least that it can cost there
    (``cheap_cost``). ``cost`` becomes what each pays beside all others once its class is placed. Returns moves and
    machines looked at.
    """
    moves = 0
    looked = 0
    size = len(rows)
    keys = np.empty(size, dtype=np.float64)
    ties = np.empty(size, dtype=np.int64)
    heap = np.empty(size, dtype=np.int64)
    near = np.empty(size, dtype=np.int64)
    chosen = np.empty(len(order), dtype=np.int64)
    paid = np.empty(len(order), dtype=np.float64)
    tally = np.zeros(len(model.kind), dtype=np.int64)
    start = 0
    while start < len(order):
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
        count = 0
        for j in range(cheap_first[c], cheap_first[c + 1]):
            if cheap_cost[j] > dearest + least_gain:
                break
            g = cheap_groups[j]
            for k in range(first[g], first[g + 1]):
                if free[rows[k], 0] >= model.demands[c, 0]:
                    near[count] = rows[k]
                    count += 1
        looked += count
        placed = pour(
            c,
            end - start,
            dearest + least_gain,
            0,
            count,
            near,
            barred,
            model,
            free,
            readings,
            keys,
            ties,
            heap,
            chosen,
            paid,
            0,
        )
        after_sum = 0.0
        for n in range(placed):
            after_sum += paid[n]
        if placed < end - start or after_sum >= before_sum - least_gain:
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


@compiled
def reprice(
    task_class: IntArray,
    machine: IntArray,
    model: Model,
    readings: IntArray,
    cost: FloatArray,
) -> None:
    """What every task costs beside all others at the end of the round, itself left out."""
    for i in range(len(task_class)):
        c = task_class[i]
        m = machine[i]
        cost[i] = cost_beside(m, c, model, readings)


@compiled
def in_turn(
    task_class: IntArray,
    machine: IntArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    cost: FloatArray,
) -> None:
    """What every task adds to the total if they come one after the other, onto machines as they were before the round."""
    for i in range(len(task_class)):
        c = task_class[i]
        m = machine[i]
        cost[i] = place_cost(m, c, model, readings)
        put(m, c, 1, model, free, readings)


@compiled
def best_alone(
    tasks: IntArray, rows: IntArray, model: Model, free: IntArray, readings: IntArray, least: FloatArray
) -> None:
    """The least that one task of each class costs on any of the machines that take it."""
    for m in rows:
        for c in range(len(tasks)):
            if tasks[c] > 0:
                cost = place_cost(m, c, model, readings)
                if cost < least[c] and takes(m, c, free, readings, model.limits, model.demands, model.effects):
                    least[c] = cost


@compiled
def rent_of(
    theta: float,
    gains: FloatArray,
    fits: IntArray,
    alpha: FloatArray,
    crowding: float,
    tasks: IntArray,
    tier_of: IntArray,
    largest: IntArray,
    u: int,
    widths: FloatArray,
    take: FloatArray,
) -> float:
    """The most that a machine can earn if tasks gain ``gains`` and crowd each other by at least their ``alpha``s' products.

    Tasks i and j cost each other at least ``crowding * alpha_i * alpha_j``, so with A the sum of alphas the tasks there cost
    at least ``crowding / 2 * (A^2 - sum alpha^2)``, and that is at least its tangent at A = theta. ``take``: tasks of each
    class in a plan that earns this much.
    """
    tiers = largest.shape[0]
    rent = np.zeros(tiers)
    who = np.full(tiers, -1, dtype=np.int64)
    half = crowding / 2.0
    total = half * theta * theta
    take[:] = 0.0
    for c in range(len(gains)):
        gain = gains[c] - half * (2.0 * theta * alpha[c] - alpha[c] * alpha[c]) if theta > 0.0 else gains[c]
        if fits[c] == 0 or gain <= 0.0:
            continue
        t = tier_of[c]
        if t < 0:
            n = min(fits[c], tasks[c])
            total += gain * n
            take[c] += n
            continue
        gain /= widths[c]
        if gain > rent[t]:
            rent[t] = gain
            who[t] = c
    highest = 0.0
    holder = -1
    for back in range(tiers):
        t = tiers - 1 - back
        if rent[t] > highest:
            highest = rent[t]
            holder = who[t]
        if holder >= 0:
            wider = largest[t - 1, u] if t > 0 else 0
            units = largest[t, u] - wider
            total += highest * units
            take[holder] += units / widths[holder]
    return total


@compiled
def dual_value(
    pi: FloatArray,
    tasks: IntArray,
    rows: IntArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    tier_of: IntArray,
    largest: IntArray,
    unit: int,
    widths: FloatArray,
    alpha: FloatArray,
    crowding: FloatArray,
    tangents: FloatArray,
    want: FloatArray,
) -> float:
    """What machines can earn at task prices ``pi``: the sum of their rents, and in ``want`` the tasks that earn them.

    ``crowding[k]``: that of machines of kind k. Any tangent bounds a machine's rent, so the least over ``tangents``, which
    ascend, counts; 0 is the one without crowding.
    """
    classes = len(pi)
    total = 0.0
    top = largest.shape[1] - 1
    gains = np.zeros(classes)
    fits = np.zeros(classes, dtype=np.int64)
    take = np.zeros(classes)
    best_take = np.zeros(classes)
    for i in range(len(rows)):
        m = rows[i]
        k = model.kind[m]
        some = False
        for c in range(classes):
            fits[c] = 0
            if tasks[c] == 0 or model.base[c, k] >= pi[c]:
                continue
            gain = pi[c] - place_cost(m, c, model, readings)
            if gain <= 0.0:
                continue
            if takes(m, c, free, readings, model.limits, model.demands, model.effects):
                fits[c] = 1
                if tier_of[c] < 0:
                    fits[c] = fit(m, c, free, readings, model.limits, model.demands, model.effects)
            gains[c] = gain
            some = some or fits[c] > 0
        if not some:
            continue
        u = min(top, max(0, free[m, 0]) // unit)
        best = rent_of(0.0, gains, fits, alpha, 0.0, tasks, tier_of, largest, u, widths, best_take)
        if crowding[k] > 0.0 and best_take.sum() > 1.0:
            last = np.inf
            for j in range(len(tangents)):
                value = rent_of(tangents[j], gains, fits, alpha, crowding[k], tasks, tier_of, largest, u, widths, take)
                if value < best:
                    best = value
                    best_take[:] = take
                # Convex in where the tangent touches, so what rises does not fall again.
                if value > last:
                    break
                last = value
        total += best
        want += best_take
    return total

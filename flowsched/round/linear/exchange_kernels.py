"""Compiled search over a few machines at a time: their tasks, and those that wait, divided anew in the best way.

It stands alone: nothing here calls compiled functions of other files, since compiled code is kept file by file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.round.linear.compiled import borrowing, compiled
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_GAIN = 1e-9
"""Less is no improvement."""
WIDEST = 4
"""Most machines that are divided anew together."""
ONCE = 4000
"""Nodes for one set of machines."""


class Small(NamedTuple):
    """A round so small that every machine that matters has a number of its own. Machines and classes by position."""

    alone: FloatArray
    """By machine and class: what one task costs as the level begins; infinite where it must not run."""
    pairs: FloatArray
    """By kind and two classes: what two tasks cost each other."""
    kind: IntArray
    """Of each machine."""
    demand: IntArray
    """By class and resource; a limited feature counts as a resource."""
    leave: FloatArray
    """What leaving each waiting task costs, class by class, within a class the dearest first. Finite."""
    first: IntArray
    """Position of each class's first task in ``leave``, with one more at the end."""
    order: IntArray
    """Classes in the order in which they are divided."""


@borrowing
def fits(small: Small, room: IntArray, c: int) -> bool:
    """Whether a machine with this room takes one task of class c."""
    good = True
    for r in range(small.demand.shape[1]):
        good = good and (small.demand[c, r] == 0 or room[r] >= small.demand[c, r])
    return good


@borrowing
def least_rest(
    small: Small,
    at: int,
    taken: int,
    quantity: IntArray,
    out: IntArray,
    rooms: IntArray,
    marginal: FloatArray,
    size: int,
) -> float:
    """At least so much all tasks cost that are not divided yet: prices only rise, room only shrinks.

    ``at``: position in the order of the class that is being divided, of which ``taken`` tasks have a place.
    """
    total = 0.0
    for i in range(at, len(small.order)):
        c = small.order[i]
        many = quantity[c]
        if many == 0:
            continue
        done = taken if i == at else 0
        cheapest = np.inf
        places = 0
        for s in range(size):
            if marginal[s, c] < np.inf and fits(small, rooms[s], c):
                cheapest = min(cheapest, marginal[s, c])
                places += rooms[s, 0] // small.demand[c, 0] if small.demand[c, 0] > 0 else many
        begin = small.first[c] + out[c]
        for k in range(done, many):
            left = small.leave[begin + k]
            if places > 0 and cheapest < left:
                total += cheapest
                places -= 1
            else:
                total += left
    return total


@compiled
def divide(
    chosen: IntArray,
    size: int,
    small: Small,
    room: IntArray,
    count: IntArray,
    served: IntArray,
    allowance: int,
) -> tuple[float, int]:
    """Divide what is on ``chosen[:size]`` and what waits anew among them: branch and bound, class by class.

    ``count[p, c]`` tasks of class c are on machine p, ``served[c]`` in all; ``room[p]`` is what is left. All three are
    changed if that pays. Returns what was won, and the nodes that were looked at, at most about ``allowance``.
    """
    classes = len(small.order)
    resources = small.demand.shape[1]
    rooms = np.empty((size, resources), dtype=np.int64)
    marginal = np.empty((size, classes))
    quantity = np.zeros(classes, dtype=np.int64)
    out = np.empty(classes, dtype=np.int64)
    now = 0.0
    depth = 1 + len(small.order)
    for s in range(size):
        rooms[s] = room[chosen[s]]
        marginal[s] = small.alone[chosen[s]]
    for s in range(size):
        p = chosen[s]
        for c in range(classes):
            for _ in range(count[p, c]):
                now += marginal[s, c]
                for d in range(classes):
                    marginal[s, d] += small.pairs[small.kind[p], c, d]
            for r in range(resources):
                rooms[s, r] += count[p, c] * small.demand[c, r]
    for c in range(classes):
        here = 0
        able = False
        for s in range(size):
            here += count[chosen[s], c]
            marginal[s, c] = small.alone[chosen[s], c]
            able = able or (marginal[s, c] < np.inf and fits(small, rooms[s], c))
        out[c] = served[c] - here
        if able:
            quantity[c] = small.first[c + 1] - small.first[c] - out[c]
            depth += quantity[c]
            for k in range(served[c], small.first[c + 1] - small.first[c]):
                now += small.leave[small.first[c] + k]
    best = now
    found = np.zeros((size, classes), dtype=np.int64)
    trial = np.zeros((size, classes), dtype=np.int64)
    prefer = np.zeros((classes, size), dtype=np.int64)
    # One frame for each decision: the class, tasks of it that have a place, the next option, the cost so far, and the
    # machine that the frame's last decision chose (-1 for leaving the rest of the class, -2 for none yet).
    at = np.zeros(depth + 1, dtype=np.int64)
    taken = np.zeros(depth + 1, dtype=np.int64)
    option = np.zeros(depth + 1, dtype=np.int64)
    cost = np.zeros(depth + 1)
    did = np.full(depth + 1, -2, dtype=np.int64)
    top = 0
    nodes = 0
    fresh = True
    while top >= 0:
        if fresh:
            nodes += 1
            fresh = False
            option[top] = 0
            did[top] = -2
            if at[top] == classes:
                if cost[top] < best - _GAIN:
                    best = cost[top]
                    found[:] = trial
                top -= 1
                continue
            if nodes > allowance:
                break
            if cost[top] + least_rest(small, at[top], taken[top], quantity, out, rooms, marginal, size) >= best - _GAIN:
                top -= 1
                continue
            c = small.order[at[top]]
            if taken[top] == 0:
                for s in range(size):
                    j = s
                    while j > 0 and marginal[prefer[at[top], j - 1], c] > marginal[s, c]:
                        prefer[at[top], j] = prefer[at[top], j - 1]
                        j -= 1
                    prefer[at[top], j] = s
            else:
                # Tasks of a class are alike: the next one goes where the last one went, or to a later option.
                option[top] = option[top - 1]
        c = small.order[at[top]]
        if did[top] >= 0:
            s = did[top]
            p = chosen[s]
            trial[s, c] -= 1
            for r in range(resources):
                rooms[s, r] += small.demand[c, r]
            for d in range(classes):
                marginal[s, d] -= small.pairs[small.kind[p], c, d]
            option[top] += 1
        elif did[top] == -1:
            top -= 1
            continue
        placed = False
        while taken[top] < quantity[c] and option[top] < size:
            s = prefer[at[top], option[top]]
            if marginal[s, c] < np.inf and fits(small, rooms[s], c):
                p = chosen[s]
                did[top] = s
                trial[s, c] += 1
                cost[top + 1] = cost[top] + marginal[s, c]
                at[top + 1] = at[top]
                taken[top + 1] = taken[top] + 1
                for r in range(resources):
                    rooms[s, r] -= small.demand[c, r]
                for d in range(classes):
                    marginal[s, d] += small.pairs[small.kind[p], c, d]
                placed = True
                break
            option[top] += 1
        if not placed:
            did[top] = -1
            rest = 0.0
            for k in range(taken[top], quantity[c]):
                rest += small.leave[small.first[c] + out[c] + k]
            cost[top + 1] = cost[top] + rest
            at[top + 1] = at[top] + 1
            taken[top + 1] = 0
        top += 1
        fresh = True
    if best < now - _GAIN:
        for c in range(classes):
            if quantity[c] > 0:
                served[c] = out[c]
        for s in range(size):
            p = chosen[s]
            for c in range(classes):
                more = found[s, c] - count[p, c]
                count[p, c] = found[s, c]
                served[c] += found[s, c]
                for r in range(resources):
                    room[p, r] -= more * small.demand[c, r]
    return now - best, nodes


@compiled
def regrets(small: Small, count: IntArray, served: IntArray, regret: FloatArray) -> None:
    """How much more tasks cost than each at its cheapest place by itself: by machine, and last those that wait."""
    machines, classes = count.shape
    least = np.full(classes, np.inf)
    for p in range(machines):
        for c in range(classes):
            least[c] = min(least[c], small.alone[p, c])
    for p in range(machines):
        regret[p] = 0.0
        for c in range(classes):
            if count[p, c] > 0:
                beside = 0.0
                for d in range(classes):
                    beside += small.pairs[small.kind[p], c, d] * (count[p, d] - (1 if c == d else 0))
                regret[p] += count[p, c] * (small.alone[p, c] + beside / 2.0 - least[c])
    regret[machines] = 0.0
    for c in range(classes):
        for k in range(small.first[c] + served[c], small.first[c + 1]):
            regret[machines] += max(0.0, small.leave[k] - least[c])


@borrowing
def hope(chosen: IntArray, size: int, regret: FloatArray) -> float:
    """The most that a set of machines can win."""
    total = float(regret[len(regret) - 1])
    for i in range(size):
        total += regret[chosen[i]]
    return total


@compiled
def exchange(
    small: Small,
    room: IntArray,
    count: IntArray,
    served: IntArray,
    allowance: int,
    enough: float,
) -> tuple[float, int]:
    """Divide pairs of machines anew, then triples and so on up to ``WIDEST``, until no set of them wins anything.

    Stops after about ``allowance`` nodes, ``ONCE`` of them for one set; sets that cannot win more than ``enough`` are left
    out. Returns what was won, and nodes.
    """
    machines = len(small.kind)
    won = 0.0
    nodes = 0
    chosen = np.zeros(WIDEST, dtype=np.int64)
    regret = np.zeros(machines + 1)
    regrets(small, count, served, regret)
    size = min(2, machines)
    while size <= min(WIDEST, machines) and nodes < allowance:
        better = False
        for i in range(size):
            chosen[i] = i
        while nodes < allowance:
            held = 0
            for i in range(size):
                if count[chosen[i]].any():
                    held += 1
            # Machines that hold no task are there for others to come to; more than one of them is rarely of use.
            if held >= size - 1 and hope(chosen, size, regret) > enough:
                gain, looked = divide(chosen, size, small, room, count, served, min(ONCE, allowance - nodes))
                nodes += looked
                if gain > 0.0:
                    won += gain
                    better = True
                    regrets(small, count, served, regret)
            i = size - 1
            while i >= 0 and chosen[i] == machines - size + i:
                i -= 1
            if i < 0:
                break
            chosen[i] += 1
            for j in range(i + 1, size):
                chosen[j] = chosen[j - 1] + 1
        size = min(2, machines) if better else size + 1
    return won, nodes


@compiled
def room_of(
    free: IntArray, readings: IntArray, limits: IntArray, limited: BoolArray, unlimited: int, rows: IntArray
) -> IntArray:
    """Room by machine in ``rows``: free amounts, then what is left below the limits of the limited features."""
    resources = free.shape[1]
    some = 0
    for f in range(len(limited)):
        some += 1 if limited[f] else 0
    room = np.empty((len(rows), resources + some), dtype=np.int64)
    for i in range(len(rows)):
        m = rows[i]
        for r in range(resources):
            room[i, r] = free[m, r]
        at = resources
        for f in range(len(limited)):
            if limited[f]:
                room[i, at] = limits[m, f] - readings[m, f] if limits[m, f] < unlimited else unlimited
                at += 1
    return room

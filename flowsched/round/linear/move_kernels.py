"""Compiled inner loops of moving running tasks: the best moves one after the other, and trades."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.pricing.linear.kernels import MachineLoad, Model, cost_beside, place_cost, put, takes
from flowsched.round.linear.compiled import borrowing, compiled
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

LEAST_NET = 1e-9
"""A move must bring this much more than its price, so that rounding never makes one."""
TRIES = 8
"""Partners that are looked at for a trade where the best one is too large."""


class MovableTasks(NamedTuple):
    """Running tasks that may move, each at most once: sorted by class, machine and what a move must bring."""

    task_class: IntArray
    """[tasks]"""
    machine: IntArray
    """[tasks] row of the machine where each runs."""
    least_gain: FloatArray
    """[tasks] a move must bring more than this."""
    gone: BoolArray
    """[tasks] whether it has moved: set as steps are made."""


class MoveLimits(NamedTuple):
    """How many tasks leave and enter the machines of groups; arrays of no groups set no limits."""

    group_of: IntArray
    """[machines] -1: no task leaves or enters."""
    leave: IntArray
    """[classes, groups] most tasks that leave: counted down."""
    enter: IntArray
    """[classes, groups] most tasks that enter: counted down."""


class StepArrays(NamedTuple):
    """Where the steps of a proposal are written, one after the other."""

    who: IntArray
    """[most] position of the task that moves."""
    target: IntArray
    """[most] row of its machine then."""
    gain: FloatArray
    """[most] what the step brings."""
    plan: IntArray
    """[most] number of the plan: the steps of one plan are made together."""


@borrowing
def lift(tree: FloatArray, leaf: int, value: float) -> None:
    """Set a leaf of a tree of minima; its root is at 1, leaves are in the second half."""
    i = len(tree) // 2 + leaf
    tree[i] = value
    i //= 2
    while i >= 1:
        low = min(tree[2 * i], tree[2 * i + 1])
        if tree[i] == low:
            return
        tree[i] = low
        i //= 2


@borrowing
def lowest(tree: FloatArray) -> int:
    """The first leaf with the least value."""
    half = len(tree) // 2
    i = 1
    while i < half:
        i = 2 * i if tree[2 * i] == tree[i] else 2 * i + 1
    return i - half


@borrowing
def target_key(m: int, c: int, open_: BoolArray, model: Model, free: IntArray, readings: IntArray) -> float:
    """What a task of class c would cost on machine m; infinite where it cannot go."""
    if not open_[m] or not takes(m, c, free, readings, model.limits, model.demands, model.effects):
        return np.inf
    return place_cost(m, c, model, readings)


@borrowing
def source_key(m: int, c: int, head: int, least_gain: FloatArray, model: Model, readings: IntArray) -> float:
    """Minus what taking the next task of class c off machine m brings, its price paid; infinite where there is none."""
    if head < 0:
        return np.inf
    gain = cost_beside(m, c, model, readings)
    return least_gain[head] - gain if gain < np.inf else np.inf


@borrowing
def next_head(p: int, task_class: IntArray, machine: IntArray, gone: BoolArray) -> int:
    """The task after p of the same class on the same machine that has not moved; -1 if there is none."""
    i = p + 1
    while i < len(machine) and machine[i] == machine[p] and task_class[i] == task_class[p]:
        if not gone[i]:
            return i
        i += 1
    return -1


@compiled
def best_moves(
    classes: IntArray,
    tasks: MovableTasks,
    limits: MoveLimits,
    open_: BoolArray,
    model: Model,
    load: MachineLoad,
    steps: StepArrays,
    at: int,
) -> int:
    """Move one task after the other, always the one that brings most beyond its price, until none brings anything.

    ``classes``: those whose tasks move; the rows of ``limits`` are theirs. ``open_`` [machines]: which may take a task.
    Writes ``steps`` from ``at`` on, without numbers of plans; where it ended.

    Two phases: for each class two trees over all machines, of what a task costs there and of what the next one to leave
    brings; then the best step again and again, after which the two machines are priced once more for every class.
    """
    task_class, machine, least_gain, gone = tasks.task_class, tasks.machine, tasks.least_gain, tasks.gone
    group_of, leave, enter = limits.group_of, limits.leave, limits.enter
    free, readings = load.free, load.readings
    moved, target, gains = steps.who, steps.target, steps.gain
    most = len(moved)
    rows = len(free)
    count = len(classes)
    half = 1
    while half < rows:
        half *= 2
    local = np.full(len(model.base), -1, dtype=np.int64)
    for i in range(count):
        local[classes[i]] = i
    head = np.full((count, rows), -1, dtype=np.int64)
    for p in range(len(machine) - 1, -1, -1):
        i = local[task_class[p]]
        if i >= 0 and not gone[p]:
            head[i, machine[p]] = p
    quotas = leave.shape[1] > 0
    # The trees.
    targets = np.full((count, 2 * half), np.inf)
    sources = np.full((count, 2 * half), np.inf)
    for i in range(count):
        c = classes[i]
        for m in range(rows):
            targets[i, half + m] = target_key(m, c, open_, model, free, readings)
            sources[i, half + m] = source_key(m, c, head[i, m], least_gain, model, readings)
        for j in range(half - 1, 0, -1):
            targets[i, j] = min(targets[i, 2 * j], targets[i, 2 * j + 1])
            sources[i, j] = min(sources[i, 2 * j], sources[i, 2 * j + 1])
    # The best step, as long as it brings anything.
    end = at
    while end < most:
        best = LEAST_NET
        who = -1
        for i in range(count):
            if targets[i, 1] < np.inf and -sources[i, 1] - targets[i, 1] > best:
                best = -sources[i, 1] - targets[i, 1]
                who = i
        if who < 0:
            break
        c = classes[who]
        a = lowest(sources[who])
        b = lowest(targets[who])
        if quotas and (group_of[a] < 0 or leave[who, group_of[a]] <= 0):
            lift(sources[who], a, np.inf)
            continue
        if quotas and (group_of[b] < 0 or enter[who, group_of[b]] <= 0):
            lift(targets[who], b, np.inf)
            continue
        p = head[who, a]
        moved[end] = p
        target[end] = b
        gains[end] = cost_beside(a, c, model, readings) - place_cost(b, c, model, readings)
        end += 1
        gone[p] = True
        put(a, c, -1, model, free, readings)
        put(b, c, 1, model, free, readings)
        if quotas:
            leave[who, group_of[a]] -= 1
            enter[who, group_of[b]] -= 1
        head[who, a] = next_head(p, task_class, machine, gone)
        for i in range(count):
            d = classes[i]
            for side in range(2):
                m = a if side == 0 else b
                lift(targets[i], m, target_key(m, d, open_, model, free, readings))
                lift(sources[i], m, source_key(m, d, head[i, m], least_gain, model, readings))
    return end


@borrowing
def trade_value(m: int, goes: int, comes: int, model: Model, readings: IntArray) -> float:
    """What is won on machine m if a task of class ``goes`` leaves it and one of class ``comes`` takes its place."""
    k = model.kind[m]
    won = place_cost(m, goes, model, readings) - place_cost(m, comes, model, readings)
    for f in range(model.coefficients.shape[1]):
        apart = (model.coefficients[comes, f] - model.coefficients[goes, f]) * model.effects[goes, f]
        won += apart * model.factors[k, f] * model.scale
    return won


@compiled
def trades(
    classes: IntArray,
    tasks: MovableTasks,
    open_: BoolArray,
    model: Model,
    load: MachineLoad,
    steps: StepArrays,
    at: int,
    number: int,
) -> int:
    """Let tasks of two classes take each other's machines where that pays for both prices together; where it ended.

    What a trade brings is a sum of what is won on either machine, so the best partners are found by sorting: pair of
    classes by pair, best first, with up to ``TRIES`` partners looked at where sizes differ. Both steps of a trade have
    the number of one plan, from ``number`` on. Other arguments as for ``best_moves``.
    """
    task_class, machine, least_gain, gone = tasks.task_class, tasks.machine, tasks.least_gain, tasks.gone
    free, readings = load.free, load.readings
    who, target, gains, plan = steps.who, steps.target, steps.gain, steps.plan
    most = len(who)
    rows = len(free)
    count = len(classes)
    local = np.full(len(model.base), -1, dtype=np.int64)
    for i in range(count):
        local[classes[i]] = i
    head = np.full((count, rows), -1, dtype=np.int64)
    for p in range(len(machine) - 1, -1, -1):
        i = local[task_class[p]]
        if i >= 0 and not gone[p] and open_[machine[p]]:
            head[i, machine[p]] = p
    used = np.full(rows, -1, dtype=np.int64)
    here = np.empty(rows, dtype=np.int64)
    there = np.empty(rows, dtype=np.int64)
    won_here = np.empty(rows)
    won_there = np.empty(rows)
    end = at
    turn = 0
    for i in range(count):
        for j in range(i + 1, count):
            a = classes[i]
            b = classes[j]
            turn += 1
            # What the first task of each class to leave each machine would win there.
            n = 0
            k = 0
            best_here = -np.inf
            best_there = -np.inf
            for m in range(rows):
                p = head[i, m]
                if p >= 0:
                    value = trade_value(m, a, b, model, readings) - least_gain[p]
                    if value == value and value < np.inf:
                        here[n] = m
                        won_here[n] = -value
                        best_here = max(best_here, value)
                        n += 1
                p = head[j, m]
                if p >= 0:
                    value = trade_value(m, b, a, model, readings) - least_gain[p]
                    if value == value and value < np.inf:
                        there[k] = m
                        won_there[k] = -value
                        best_there = max(best_there, value)
                        k += 1
            if n == 0 or k == 0 or best_here + best_there <= LEAST_NET:
                continue
            # Partners, the best first.
            from_here = np.argsort(won_here[:n], kind="mergesort")
            from_there = np.argsort(won_there[:k], kind="mergesort")
            start = 0
            for x in range(n):
                m = here[from_here[x]]
                while start < k and used[there[from_there[start]]] == turn:
                    start += 1
                if start >= k or -won_here[from_here[x]] - won_there[from_there[start]] <= LEAST_NET:
                    break
                looked = 0
                for y in range(start, k):
                    o = there[from_there[y]]
                    if -won_here[from_here[x]] - won_there[from_there[y]] <= LEAST_NET or looked >= TRIES:
                        break
                    if o == m or used[o] == turn or used[m] == turn:
                        continue
                    looked += 1
                    if end + 1 >= most:
                        return end
                    gain_a = cost_beside(m, a, model, readings)
                    gain_b = cost_beside(o, b, model, readings)
                    put(m, a, -1, model, free, readings)
                    put(o, b, -1, model, free, readings)
                    gain_a -= place_cost(o, a, model, readings)
                    gain_b -= place_cost(m, b, model, readings)
                    p = head[i, m]
                    q = head[j, o]
                    if (
                        gain_a + gain_b - least_gain[p] - least_gain[q] > LEAST_NET
                        and takes(o, a, free, readings, model.limits, model.demands, model.effects)
                        and takes(m, b, free, readings, model.limits, model.demands, model.effects)
                    ):
                        put(o, a, 1, model, free, readings)
                        put(m, b, 1, model, free, readings)
                        who[end] = p
                        target[end] = o
                        gains[end] = gain_a
                        plan[end] = number
                        who[end + 1] = q
                        target[end + 1] = m
                        gains[end + 1] = gain_b
                        plan[end + 1] = number
                        number += 1
                        end += 2
                        gone[p] = True
                        gone[q] = True
                        head[i, m] = next_head(p, task_class, machine, gone)
                        head[j, o] = next_head(q, task_class, machine, gone)
                        used[m] = turn
                        used[o] = turn
                        break
                    put(m, a, 1, model, free, readings)
                    put(o, b, 1, model, free, readings)
    return end

"""Compiled inner loops of making room: the cheapest tasks whose going lets one in, machine by machine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched.pricing.linear.kernels import MachineLoad, Model, cost_beside, place_cost, put, takes
from flowsched.round.linear.compiled import borrowing, compiled
from flowsched.round.linear.move_kernels import LEAST_NET
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

NODES = 64
"""Nodes of the search for who makes room on a machine; up to some ten candidates that is the optimum."""
MISSES = 16
"""Plans for a class that turn out not to pay, after which no further one is tried."""


class LeavingTasks(NamedTuple):
    """Running tasks that may go, by machine: ``first[m]`` to ``first[m + 1]`` are on machine m."""

    first: IntArray
    """[machines + 1]"""
    task_class: IntArray
    """[tasks]"""
    least_gain: FloatArray
    """[tasks] what a move must bring."""
    weight: FloatArray
    """[tasks] what its going costs; infinity: it stays."""
    gone: BoolArray
    """[tasks] whether it has gone: set as steps are made."""


class RoomPlaces(NamedTuple):
    """Where tasks of one class may come."""

    rows: IntArray
    """Machines that are looked at."""
    open: BoolArray
    """[machines] which take a task."""
    quota: IntArray
    """[groups] most tasks that come to the machines of each: counted down; an array of no groups sets no limits."""
    group_of: IntArray
    """[machines] -1: none comes. Not read where there are no limits."""


@borrowing
def brings(c: int, j: int, model: Model) -> int:
    """What the going of a task of class c frees in dimension j: first resources, then features."""
    resources = model.demands.shape[1]
    if j < resources:
        return int(model.demands[c, j])
    return int(model.effects[c, j - resources])


@compiled
def shortage(m: int, c: int, model: Model, free: IntArray, readings: IntArray) -> IntArray:
    """What machine m is short of for one task of class c, by dimension; 0 where it is not."""
    resources = model.demands.shape[1]
    features = model.effects.shape[1]
    need = np.zeros(resources + features, dtype=np.int64)
    for r in range(resources):
        if model.demands[c, r] > 0:
            need[r] = max(0, model.demands[c, r] - free[m, r])
    for f in range(features):
        if model.effects[c, f] > 0:
            need[resources + f] = max(0, readings[m, f] + model.effects[c, f] - model.limits[m, f])
    return need


@compiled
def least_set(
    c: int,
    m: int,
    tasks: LeavingTasks,
    model: Model,
    load: MachineLoad,
    pick: BoolArray,
) -> float:
    """The cheapest tasks of machine m whose going lets one task of class c in; what they weigh, infinite if none do.

    ``pick`` [tasks] says which of them go: none that could stay. Branch and bound over tasks in the order of weight by use,
    from a greedy start; best of what ``NODES`` nodes find, which is the optimum unless they run out.
    """
    first, last = tasks.first[m], tasks.first[m + 1]
    task_class, weight, gone = tasks.task_class, tasks.weight, tasks.gone
    pick[first:last] = False
    need = shortage(m, c, model, load.free, load.readings)
    dims = len(need)
    short = 0
    for j in range(dims):
        if need[j] > 0:
            short += 1
    if short == 0:
        return 0.0
    # Tasks that free anything of what is short, in the order of weight by use.
    order = np.empty(last - first, dtype=np.int64)
    ratio = np.empty(last - first)
    n = 0
    for p in range(first, last):
        if gone[p] or weight[p] == np.inf:
            continue
        use = 0.0
        for j in range(dims):
            if need[j] > 0:
                use += min(brings(task_class[p], j, model), need[j]) / need[j]
        if use <= 0.0:
            continue
        value = weight[p] / use
        i = n
        while i > 0 and ratio[i - 1] > value:
            ratio[i] = ratio[i - 1]
            order[i] = order[i - 1]
            i -= 1
        ratio[i] = value
        order[i] = p
        n += 1
    # A greedy start: every task that is still of use, less those that turn out not to be needed.
    left = need.copy()
    best = 0.0
    for i in range(n):
        useful = False
        for j in range(dims):
            useful = useful or (left[j] > 0 and brings(task_class[order[i]], j, model) > 0)
        if useful:
            pick[order[i]] = True
            best += weight[order[i]]
            for j in range(dims):
                if need[j] > 0:
                    left[j] -= brings(task_class[order[i]], j, model)
    for j in range(dims):
        if left[j] > 0:
            pick[first:last] = False
            return np.inf
    best = prune(order, n, task_class, weight, model, need, left, pick)
    # Branch and bound: with the i-th task or without it.
    choice = np.zeros(n, dtype=np.int64)
    left = need.copy()
    spent = 0.0
    steps = 0
    i = 0
    while i >= 0:
        steps += 1
        missing = 0.0
        for j in range(dims):
            if left[j] > 0:
                missing += left[j] / need[j]
        if missing == 0.0:
            if spent < best - 1e-12:
                best = spent
                pick[first:last] = False
                for a in range(i):
                    if choice[a] == 1:
                        pick[order[a]] = True
        elif i < n and steps <= NODES and spent + missing * ratio[i] < best - 1e-12:
            choice[i] = 1
            spent += weight[order[i]]
            for j in range(dims):
                if need[j] > 0:
                    left[j] -= brings(task_class[order[i]], j, model)
            i += 1
            continue
        i -= 1
        while i >= 0 and choice[i] == 0:
            i -= 1
        if i >= 0:
            choice[i] = 0
            spent -= weight[order[i]]
            for j in range(dims):
                if need[j] > 0:
                    left[j] += brings(task_class[order[i]], j, model)
            i += 1
    left = need.copy()
    for i in range(n):
        if pick[order[i]]:
            for j in range(dims):
                if need[j] > 0:
                    left[j] -= brings(task_class[order[i]], j, model)
    return prune(order, n, task_class, weight, model, need, left, pick)


@borrowing
def prune(
    order: IntArray,
    n: int,
    task_class: IntArray,
    weight: FloatArray,
    model: Model,
    need: IntArray,
    left: IntArray,
    pick: BoolArray,
) -> float:
    """Let stay every task that need not go, the last of ``order`` first; what the others weigh."""
    total = 0.0
    for back in range(n):
        p = order[n - 1 - back]
        if not pick[p]:
            continue
        stays = True
        for j in range(len(need)):
            if need[j] > 0 and left[j] + brings(task_class[p], j, model) > 0:
                stays = False
        if stays:
            pick[p] = False
            for j in range(len(need)):
                if need[j] > 0:
                    left[j] += brings(task_class[p], j, model)
        else:
            total += weight[p]
    return total


@borrowing
def cheapest_target(m: int, c: int, open_: BoolArray, model: Model, free: IntArray, readings: IntArray) -> int:
    """The machine where a task of class c that leaves machine m costs least; -1 if none has room."""
    best = np.inf
    where = -1
    for t in range(len(free)):
        if t != m and open_[t] and takes(t, c, free, readings, model.limits, model.demands, model.effects):
            cost = place_cost(t, c, model, readings)
            if cost < best:
                best = cost
                where = t
    return where


@compiled
def make_room(
    c: int,
    worth: FloatArray,
    places: RoomPlaces,
    tasks: LeavingTasks,
    evict: bool,
    model: Model,
    load: MachineLoad,
    most: int,
) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    """Let tasks of class c in, one after the other, each where that costs least, in ``most`` steps at most.

    ``worth[k]``: what leaving the k-th one costs. Tasks that go wait again (``evict``), or find the cheapest other place,
    one after the other. A plan that does not pay is not carried out, and after ``MISSES`` of them no further one is tried.
    Returns by step: position of the task that goes with its target (-1: it waits again), then -1 - k for the task that
    comes; what each brings; and k for all of them.

    Three phases for each task that comes: the machine where it costs least with all that goes for it; those tasks go, one
    after the other; and the plan stands if it pays, or is undone.
    """
    rows, open_, quota, group_of = places.rows, places.open, places.quota, places.group_of
    first, task_class, least_gain, weight, gone = tasks
    free, readings = load.free, load.readings
    who, target, plan = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    gains = np.empty(most)
    limited = len(quota) > 0
    pick = np.zeros(len(task_class), dtype=np.bool_)
    scores = np.full(len(rows), np.inf)
    index = np.full(len(free), -1, dtype=np.int64)
    for i in range(len(rows)):
        m = rows[i]
        index[m] = i
        if open_[m]:
            scores[i] = place_cost(m, c, model, readings) + least_set(c, m, tasks, model, load, pick)
    end = 0
    k = 0
    missed = 0
    while k < len(worth) and len(rows) > 0 and missed <= MISSES:
        i = int(np.argmin(scores))
        if scores[i] == np.inf:
            break
        m = rows[i]
        if limited and (group_of[m] < 0 or quota[group_of[m]] <= 0):
            scores[i] = np.inf
            continue
        least_set(c, m, tasks, model, load, pick)
        # The tasks that make room go.
        step = end
        paid = 0.0
        good = True
        for p in range(first[m], first[m + 1]):
            if not pick[p] or not good:
                continue
            if step + 1 >= len(who):
                good = False
                break
            v = task_class[p]
            before = cost_beside(m, v, model, readings)
            put(m, v, -1, model, free, readings)
            who[step] = p
            target[step] = -1
            gains[step] = -weight[p]
            if not evict:
                t = cheapest_target(m, v, open_, model, free, readings)
                target[step] = t
                if t < 0:
                    put(m, v, 1, model, free, readings)
                    good = False
                    break
                gains[step] = before - place_cost(t, v, model, readings)
                paid += least_gain[p] - gains[step]
                put(t, v, 1, model, free, readings)
            step += 1
        # The plan stands if it pays.
        cost = place_cost(m, c, model, readings)
        good = good and step < len(who) and takes(m, c, free, readings, model.limits, model.demands, model.effects)
        good = good and (cost <= worth[k] if evict else worth[k] - cost - paid > LEAST_NET)
        if not good:
            missed += 0 if evict else 1  # whether a place is worth its price is known only once it is free
            for j in range(end, step):
                v = task_class[who[j]]
                put(m, v, 1, model, free, readings)
                if target[j] >= 0:
                    put(target[j], v, -1, model, free, readings)
            scores[i] = np.inf
            continue
        put(m, c, 1, model, free, readings)
        who[step] = -1 - k
        target[step] = m
        gains[step] = worth[k] - cost
        if limited:
            quota[group_of[m]] -= 1
        for j in range(end, step + 1):
            plan[j] = k
            if who[j] >= 0:
                gone[who[j]] = True
            t = target[j]
            if t >= 0 and index[t] >= 0 and open_[t]:
                scores[index[t]] = place_cost(t, c, model, readings) + least_set(c, t, tasks, model, load, pick)
        end = step + 1
        k += 1
    return who[:end], target[:end], gains[:end], plan[:end]

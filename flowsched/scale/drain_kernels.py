"""Compiled inner loops that find out which machine has room first, from the predicted ends of what runs."""

from __future__ import annotations

import numpy as np

from flowsched.pricing.linear.kernels import Model
from flowsched.scale.compiled import compiled
from flowsched.support.arrays import FloatArray, IntArray


@compiled
def by_end(machine: IntArray, end_s: FloatArray, rows: int) -> tuple[IntArray, IntArray]:
    """Tasks machine by machine, in the order of their ends: first positions, and tasks; ties in the order given."""
    first = np.zeros(rows + 1, dtype=np.int64)
    for i in range(len(machine)):
        first[machine[i] + 1] += 1
    for m in range(rows):
        first[m + 1] += first[m]
    order = np.zeros(len(machine), dtype=np.int64)
    filled = first[:rows].copy()
    for i in range(len(machine)):
        m = machine[i]
        at = filled[m]
        filled[m] += 1
        while at > first[m] and end_s[order[at - 1]] > end_s[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    return first, order


@compiled
def soonest(
    c: int,
    rows: IntArray,
    first: IntArray,
    order: IntArray,
    task_class: IntArray,
    end_s: FloatArray,
    model: Model,
    free: IntArray,
    readings: IntArray,
    now_s: float,
) -> tuple[int, float]:
    """The machine of ``rows`` that has room for one task of class c first, and when; (-1, inf) where none ever has.

    Ties go to the machine that comes first in ``rows``. A machine is left as soon as it cannot be the best any more.
    """
    best = -1
    best_at = np.inf
    room = np.zeros(free.shape[1], dtype=np.int64)
    load = np.zeros(readings.shape[1], dtype=np.int64)
    for m in rows:
        if model.base[c, model.kind[m]] >= np.inf:
            continue
        for r in range(len(room)):
            room[r] = free[m, r]
        for f in range(len(load)):
            load[f] = readings[m, f]
        at = now_s
        i = first[m]
        while at < best_at:
            enough = True
            for r in range(len(room)):
                if model.demands[c, r] > 0 and room[r] < model.demands[c, r]:
                    enough = False
            for f in range(len(load)):
                if model.effects[c, f] > 0 and load[f] + model.effects[c, f] > model.limits[m, f]:
                    enough = False
            if enough:
                best = m
                best_at = at
                break
            if i >= first[m + 1]:
                break
            t = order[i]
            i += 1
            at = max(at, end_s[t])
            for r in range(len(room)):
                room[r] += model.demands[task_class[t], r]
            for f in range(len(load)):
                load[f] -= model.effects[task_class[t], f]
    return best, best_at

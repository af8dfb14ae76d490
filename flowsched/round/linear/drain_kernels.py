"""Compiled inner loops that find out when machines have room, from the predicted ends of what runs."""

from __future__ import annotations

import numpy as np

from flowsched.pricing.linear.kernels import Model
from flowsched.round.linear.compiled import compiled
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
def drained_at(
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
) -> FloatArray:
    """When each machine of ``rows`` has room for one task of class c; infinite where it never has."""
    found = np.full(len(rows), np.inf)
    room = np.zeros(free.shape[1], dtype=np.int64)
    load = np.zeros(readings.shape[1], dtype=np.int64)
    for k in range(len(rows)):
        m = rows[k]
        if model.base[c, model.kind[m]] >= np.inf:
            continue
        for r in range(len(room)):
            room[r] = free[m, r]
        for f in range(len(load)):
            load[f] = readings[m, f]
        at = now_s
        i = first[m]
        while at < np.inf:
            enough = True
            for r in range(len(room)):
                if model.demands[c, r] > 0 and room[r] < model.demands[c, r]:
                    enough = False
            for f in range(len(load)):
                if model.effects[c, f] > 0 and load[f] + model.effects[c, f] > model.limits[m, f]:
                    enough = False
            if enough:
                found[k] = at
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
    return found

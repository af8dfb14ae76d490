"""How the virtual CPUs of one machine are shared: the compiled part of the run-time model that knows no time.

By cells, see :mod:`flowsched_models.cell`.
"""

from __future__ import annotations

import numpy as np

from flowsched_models.cell import (
    BUSY,
    GAIN,
    MIXED,
    PARALLEL,
    PHI,
    PRESSURE,
    SERIAL,
    SERVICE_WEIGHT,
    THREADS,
    TINY,
    WEIGHT,
    Bools,
    Cells,
    Floats,
    Ints,
    granted,
    sibling_loss,
    water_fill,
)
from flowsched_models.compiled import borrowing, compiled
from flowsched_models.held_share import held_share
from flowsched_models.moment import Grants, mean_threads, speed_beside_mixed, speed_in_moment

SWEEPS = 16
"""Most rounds of water-filling; core sets that overlap in part settle long before."""
SETTLED = 1e-7
"""Threads per virtual CPU: a sweep that moves no thread by more is the last."""
GIVEN_FIRST = 1e9
"""Weight of jobs whose run time is given, times their own: they have what they ask for, others share what that leaves."""
MIX_STEPS = 3
"""Steps of the fixed point between a mixed job's serial share of time and the CPU that it gets."""


@borrowing
def compare(i: int, j: int, stage: Ints, jobs: Floats, members: Bools) -> int:
    """-1, 0 or 1: an order of jobs by what they do to CPUs, whatever they are called and however long they run."""
    if stage[i] != stage[j]:
        return -1 if stage[i] < stage[j] else 1
    for column in range(PHI, PRESSURE + 1):
        if jobs[i, column] != jobs[j, column]:
            return -1 if jobs[i, column] < jobs[j, column] else 1
    for c in range(members.shape[1]):
        if members[i, c] != members[j, c]:
            return -1 if members[i, c] else 1
    return 0


@compiled
def in_order(users: Ints, stage: Ints, jobs: Floats, members: Bools) -> Ints:
    """The users in one order for equal sets: jobs by what they are, then services. Sweeps depend on the order."""
    order = users.copy()
    for a in range(1, order.shape[0]):
        b = a
        while b > 0 and order[b] < jobs.shape[0] and compare(order[b], order[b - 1], stage, jobs, members) < 0:
            order[b], order[b - 1] = order[b - 1], order[b]
            b -= 1
    return order


@borrowing
def level_equals(order: Ints, stage: Ints, jobs: Floats, members: Bools, values: Floats) -> None:
    """Equal jobs get equal ``values`` [n]: sweeps that stop early may leave them a little apart."""
    a = 0
    while a < order.shape[0] and order[a] < jobs.shape[0]:
        b = a + 1
        total = values[order[a]]
        while (
            b < order.shape[0] and order[b] < jobs.shape[0] and compare(order[a], order[b], stage, jobs, members) == 0
        ):
            total += values[order[b]]
            b += 1
        for c in range(a, b):
            values[order[c]] = total / (b - a)
        a = b


@compiled
def share(
    users: Ints,
    stage: Ints,
    jobs: Floats,
    services: Floats,
    cells: Cells,
    busy: Floats,
    speed: Floats,
    weight_share: Floats,
) -> None:
    """CPU of all occupants that are there: ``users``, indices of occupants, ascending.

    Into ``busy`` [n] CPUs used, ``speed`` [n] the same less what busy siblings cost (for a mixed job its mean over work),
    ``weight_share`` [services] the share of CPU weight that jobs hold on the cores that each service's threads run on.
    """
    count = jobs.shape[0]
    members, size, own = cells.members, cells.size, cells.own
    n = own.shape[0]
    cell_count = size.shape[0]
    demand = np.zeros(n)
    steps = 1
    simple = True
    for i in users:
        cells_used = 0
        for c in range(cell_count):
            if members[i, c]:
                cells_used += 1
        simple = simple and cells_used <= 1
        if i >= count:
            demand[i] = services[i - count, BUSY]
        elif stage[i] == SERIAL:
            demand[i] = min(1.0, jobs[i, THREADS])
        elif stage[i] == PARALLEL:
            demand[i] = jobs[i, THREADS]
        else:
            steps = MIX_STEPS
            demand[i] = mean_threads(jobs[i, PHI], jobs[i, THREADS], min(1.0, jobs[i, THREADS]), jobs[i, THREADS])
    if not simple:
        users = in_order(users, stage, jobs, members)
    wanted = np.zeros((n, cell_count))
    thread_weight = np.zeros((n, cell_count))
    got = np.zeros((n, cell_count))
    grants = Grants(wanted, thread_weight, got)
    load = np.zeros(cell_count)
    others = np.zeros(cell_count)
    trial = np.zeros(cell_count)
    room = np.zeros((7, cell_count))
    for step in range(steps):
        load[:] = 0.0
        for i in users:
            for c in range(cell_count):
                wanted[i, c] = min(1.0, demand[i] / own[i]) if members[i, c] else 0.0
                load[c] += wanted[i, c]
        for _ in range(0 if simple else SWEEPS):
            moved = 0.0
            for i in users:
                for c in range(cell_count):
                    others[c] = load[c] - wanted[i, c]
                water_fill(demand[i], others, size, members[i], trial)
                for c in range(cell_count):
                    if members[i, c]:
                        moved = max(moved, abs(trial[c] - wanted[i, c]))
                        wanted[i, c] = trial[c]
                        load[c] = others[c] + trial[c]
            if moved < SETTLED:
                break
        for i in users:
            for c in range(cell_count):
                if not members[i, c]:
                    continue
                if i >= count:
                    thread_weight[i, c] = services[i - count, SERVICE_WEIGHT] / own[i]
                else:
                    first = GIVEN_FIRST if jobs[i, PHI] >= 1.0 else 1.0
                    thread_weight[i, c] = first * jobs[i, WEIGHT] / max(demand[i], TINY) * wanted[i, c]
        load[:] = 0.0
        for i in users:
            for c in range(cell_count):
                got[i, c] = granted(i, c, users, wanted, thread_weight) if wanted[i, c] > TINY else 0.0
                load[c] += got[i, c]
        if steps == 1:
            break
        # What a mixed job does in its moments is measured against the others' means; then its own mean follows.
        settled = demand.copy()
        for i in users:
            if i >= count or stage[i] != MIXED:
                continue
            threads = jobs[i, THREADS]
            in_serial = speed_in_moment(i, min(1.0, threads), users, jobs, cells, grants, room)
            in_parallel = speed_beside_mixed(i, users, stage, demand, jobs, cells, grants, room)
            phi = jobs[i, PHI]
            settled[i] = mean_threads(phi, threads, in_serial, in_parallel)
            speed[i] = 1.0 / (phi / in_serial + (1.0 - phi) / in_parallel)
        if step < steps - 1:
            demand[:] = settled
    for i in users:
        used = 0.0
        pace = 0.0
        for c in range(cell_count):
            grant = got[i, c]
            if grant <= 0.0:
                continue
            used += grant * size[c]
            gain = jobs[i, GAIN] if i < count else 1.0
            pace += grant * size[c] * (1.0 - sibling_loss(load, c, cells.sibling, gain))
        busy[i] = used
        # The moments of several mixed jobs are taken as independent: together they must not have more than the cores give.
        speed[i] = min(speed[i], pace) if i < count and stage[i] == MIXED else pace
    if not simple:
        level_equals(users, stage, jobs, members, busy)
        level_equals(users, stage, jobs, members, speed)
    for k in range(n - count):
        weight_share[k] = held_share(k, users, jobs, services, cells, wanted)

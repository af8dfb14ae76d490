"""How the virtual CPUs of one machine are shared: the compiled part of the run-time model that knows no time.

Occupants are jobs first, then latency services: n in all, C virtual CPUs. Virtual CPUs that the same occupants may use, and
whose siblings are alike, behave alike: they form a *cell*, and all arithmetic runs over cells. The equations stand in
:mod:`flowsched_models.runtime`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowsched_models.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TINY = 1e-12
SWEEPS = 16
"""Most rounds of water-filling; core sets that overlap in part settle long before."""
SETTLED = 1e-7
"""Threads per virtual CPU: a sweep that moves nobody by more is the last."""
MIX_STEPS = 3
"""Steps of the fixed point between a mixed job's serial share of time and the CPU that it gets."""

SERIAL, PARALLEL, MIXED = 0, 1, 2
"""Stages of a job, as :class:`flowsched_models.runtime.Stage` has them."""

# Columns of a job's row.
WORK, PHI, SERIAL_FIRST, THREADS, WEIGHT, GAIN, SENSITIVITY, PRESSURE, THREADING, PROGRESS, READY, MEMORY = range(12)
JOB_COLUMNS = 12
# Columns of a service's row; from CURVE on the parameters of its latency.
BUSY, SERVICE_WEIGHT, SERVICE_PRESSURE, SERVERS, CURVE = range(5)


@compiled
def cells_of(can: Bools, sibling: Ints) -> tuple[Bools, Floats, Ints, Floats]:
    """Members [n, cells], size [cells], sibling cell [cells] (-1: none), virtual CPUs of each occupant [n].

    ``can`` [n, C]: who may use which virtual CPU; ``sibling`` [C]: the other virtual CPU of the same core, or -1.
    """
    n, cpus = can.shape
    cell = np.full(cpus, -1, np.int64)
    first = np.zeros(cpus, np.int64)
    cells = 0
    for k in range(cpus):
        used = False
        for i in range(n):
            used = used or can[i, k]
        if not used:
            continue
        found = -1
        for c in range(cells):
            r = first[c]
            one, other = sibling[k], sibling[r]
            same = (one < 0) == (other < 0)
            for i in range(n):
                if not same:
                    break
                same = can[i, k] == can[i, r] and (one < 0 or can[i, one] == can[i, other])
            if same:
                found = c
                break
        if found < 0:
            found = cells
            first[cells] = k
            cells += 1
        cell[k] = found
    size = np.zeros(cells)
    sibling_cell = np.full(cells, -1, np.int64)
    members = np.zeros((n, cells), np.bool_)
    own = np.zeros(n)
    for k in range(cpus):
        c = cell[k]
        if c < 0:
            continue
        size[c] += 1.0
        if sibling[k] >= 0:
            sibling_cell[c] = cell[sibling[k]]
        for i in range(n):
            if can[i, k]:
                members[i, c] = True
                own[i] += 1.0
    return members, size, sibling_cell, own


@compiled
def water_fill(amount: float, load: Floats, size: Floats, member: Bools, level_of: Floats) -> None:
    """Into ``level_of`` [cells]: x in [0, 1] with ``sum size * x = amount`` and ``load + x`` as level as possible."""
    cells = size.shape[0]
    level = np.inf
    for c in range(cells):
        if member[c]:
            level = min(level, load[c])
    poured = 0.0
    while True:
        above = np.inf
        width = 0.0
        for c in range(cells):
            if not member[c]:
                continue
            floor = load[c]
            if level + TINY < floor < above:
                above = floor
            if level + TINY < floor + 1.0 < above:
                above = floor + 1.0
            if floor <= level + TINY < floor + 1.0:
                width += size[c]
        if above == np.inf:
            break
        room = width * (above - level)
        if width > 0.0 and poured + room >= amount:
            level += (amount - poured) / width
            break
        poured += room
        level = above
    for c in range(cells):
        level_of[c] = min(1.0, max(0.0, level - load[c])) if member[c] else 0.0


@compiled
def granted(who: int, c: int, users: Ints, wanted: Floats, weight: Floats) -> float:
    """CPU that ``who`` gets of one virtual CPU of cell ``c``: weighted max-min, nobody more than they want."""
    ask_all = 0.0
    heavy = 0.0
    for i in users:
        ask_all += wanted[i, c]
        if wanted[i, c] > TINY:
            heavy += weight[i, c]
    mine: float = wanted[who, c]
    if ask_all <= 1.0 or heavy <= 0.0:
        return mine
    per_weight = 1.0 / heavy
    for _ in range(users.shape[0]):
        left = 1.0
        heavier = 0.0
        for i in users:
            ask = wanted[i, c]
            if ask <= TINY:
                continue
            if ask <= per_weight * weight[i, c] + TINY:
                left -= ask
            else:
                heavier += weight[i, c]
        if heavier <= 0.0:
            return mine
        new = left / heavier
        if new <= per_weight + TINY:
            break
        per_weight = new
    share: float = min(mine, per_weight * weight[who, c])
    return share


@compiled
def sibling_loss(used: Floats, c: int, sibling_cell: Ints, gain: float) -> float:
    """Share of its speed that a thread in cell ``c`` loses to the busy siblings of that cell."""
    s = sibling_cell[c]
    if s < 0 or used[c] <= TINY:
        return 0.0
    overlap: float = max(0.0, used[c] + used[s] - 1.0) / used[c]
    return overlap * (1.0 - gain) / 2.0


@compiled
def speed_in_moment(
    i: int,
    threads: float,
    users: Ints,
    jobs: Floats,
    members: Bools,
    size: Floats,
    sibling_cell: Ints,
    wanted: Floats,
    thread_weight: Floats,
    grants: Floats,
) -> float:
    """CPU speed of job i in a moment in which it runs so many threads, the others as ``wanted`` has them."""
    cells = size.shape[0]
    others = np.zeros(cells)
    given = np.zeros(cells)
    for j in users:
        if j != i:
            for c in range(cells):
                others[c] += wanted[j, c]
                given[c] += grants[j, c]
    mine = np.zeros(cells)
    water_fill(threads, others, size, members[i], mine)
    kept_wanted = wanted[i].copy()
    kept_weight = thread_weight[i].copy()
    got = np.zeros(cells)
    for c in range(cells):
        wanted[i, c] = mine[c]
        thread_weight[i, c] = jobs[i, WEIGHT] / threads * mine[c]
        if mine[c] > TINY:
            got[c] = granted(i, c, users, wanted, thread_weight)
        given[c] = min(1.0, given[c] + got[c])  # the others give way to what i takes
    speed = 0.0
    for c in range(cells):
        if got[c] > 0.0:
            speed += got[c] * size[c] * (1.0 - sibling_loss(given, c, sibling_cell, jobs[i, GAIN]))
    for c in range(cells):
        wanted[i, c] = kept_wanted[c]
        thread_weight[i, c] = kept_weight[c]
    return speed


@compiled
def speed_beside_mixed(
    i: int,
    users: Ints,
    stage: Ints,
    demand: Floats,
    jobs: Floats,
    members: Bools,
    size: Floats,
    sibling_cell: Ints,
    wanted: Floats,
    thread_weight: Floats,
    grants: Floats,
) -> float:
    """Speed of mixed job i in its parallel moments, averaged over the moments of its mixed neighbours, one at a time.

    A neighbour that is serial just then leaves more than it does on average than it takes away when it is parallel: the
    speed is convex in what the others want. The neighbours' moments are taken as independent of each other and of i's.
    """
    count = jobs.shape[0]
    threads = jobs[i, THREADS]
    base = speed_in_moment(i, threads, users, jobs, members, size, sibling_cell, wanted, thread_weight, grants)
    total = base
    for j in users:
        if j == i or j >= count or stage[j] != MIXED or jobs[j, THREADS] <= 1.0:
            continue
        meets = False
        for c in range(size.shape[0]):
            meets = meets or (members[i, c] and members[j, c])
        if not meets:
            continue
        kept = wanted[j].copy()
        serial = (jobs[j, THREADS] - demand[j]) / (jobs[j, THREADS] - 1.0)
        for moment in range(2):
            times = (1.0 if moment == 0 else jobs[j, THREADS]) / demand[j]
            for c in range(size.shape[0]):
                wanted[j, c] = min(1.0, kept[c] * times)
            speed = speed_in_moment(i, threads, users, jobs, members, size, sibling_cell, wanted, thread_weight, grants)
            total += (serial if moment == 0 else 1.0 - serial) * (speed - base)
        for c in range(size.shape[0]):
            wanted[j, c] = kept[c]
    if total <= base:
        return base
    # One at a time, several neighbours could seem to leave more than there is.
    nobody = np.full(1, i)
    alone = speed_in_moment(i, threads, nobody, jobs, members, size, sibling_cell, wanted, thread_weight, grants)
    return min(total, alone)


@compiled
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


@compiled
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
    members: Bools,
    size: Floats,
    sibling_cell: Ints,
    own: Floats,
    busy: Floats,
    speed: Floats,
    weight_share: Floats,
) -> None:
    """CPU of everybody who is there: ``users``, indices of occupants, ascending.

    Into ``busy`` [n] CPUs used, ``speed`` [n] the same less what busy siblings cost (for a mixed job its mean over work),
    ``weight_share`` [services] the share of CPU weight that jobs hold on the cores that each service's threads run on.
    """
    count = jobs.shape[0]
    n = own.shape[0]
    cells = size.shape[0]
    demand = np.zeros(n)
    steps = 1
    simple = True
    for i in users:
        cells_used = 0
        for c in range(cells):
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
    wanted = np.zeros((n, cells))
    thread_weight = np.zeros((n, cells))
    grants = np.zeros((n, cells))
    load = np.zeros(cells)
    others = np.zeros(cells)
    trial = np.zeros(cells)
    for step in range(steps):
        load[:] = 0.0
        for i in users:
            for c in range(cells):
                wanted[i, c] = min(1.0, demand[i] / own[i]) if members[i, c] else 0.0
                load[c] += wanted[i, c]
        for _ in range(0 if simple else SWEEPS):
            moved = 0.0
            for i in users:
                for c in range(cells):
                    others[c] = load[c] - wanted[i, c]
                water_fill(demand[i], others, size, members[i], trial)
                for c in range(cells):
                    if members[i, c]:
                        moved = max(moved, abs(trial[c] - wanted[i, c]))
                        wanted[i, c] = trial[c]
                        load[c] = others[c] + trial[c]
            if moved < SETTLED:
                break
        for i in users:
            for c in range(cells):
                if not members[i, c]:
                    continue
                if i >= count:
                    thread_weight[i, c] = services[i - count, SERVICE_WEIGHT] / own[i]
                else:
                    thread_weight[i, c] = jobs[i, WEIGHT] / max(demand[i], TINY) * wanted[i, c]
        load[:] = 0.0
        for i in users:
            for c in range(cells):
                grants[i, c] = granted(i, c, users, wanted, thread_weight) if wanted[i, c] > TINY else 0.0
                load[c] += grants[i, c]
        if steps == 1:
            break
        # What a mixed job does in its moments is measured against the others' means; then its own mean follows.
        settled = demand.copy()
        for i in users:
            if i >= count or stage[i] != MIXED:
                continue
            threads = jobs[i, THREADS]
            in_serial = speed_in_moment(
                i, min(1.0, threads), users, jobs, members, size, sibling_cell, wanted, thread_weight, grants
            )
            in_parallel = speed_beside_mixed(
                i, users, stage, demand, jobs, members, size, sibling_cell, wanted, thread_weight, grants
            )
            phi = jobs[i, PHI]
            settled[i] = mean_threads(phi, threads, in_serial, in_parallel)
            speed[i] = 1.0 / (phi / in_serial + (1.0 - phi) / in_parallel)
        if step < steps - 1:
            demand[:] = settled
    for i in users:
        used = 0.0
        pace = 0.0
        for c in range(cells):
            grant = grants[i, c]
            if grant <= 0.0:
                continue
            used += grant * size[c]
            gain = jobs[i, GAIN] if i < count else 1.0
            pace += grant * size[c] * (1.0 - sibling_loss(load, c, sibling_cell, gain))
        busy[i] = used
        # The moments of several mixed jobs are taken as independent: together they must not have more than the cores give.
        speed[i] = min(speed[i], pace) if i < count and stage[i] == MIXED else pace
    if not simple:
        level_equals(users, stage, jobs, members, busy)
        level_equals(users, stage, jobs, members, speed)
    for k in range(n - count):
        weight_share[k] = held_share(k, users, jobs, services, members, size, own, wanted)


@compiled
def held_share(
    k: int, users: Ints, jobs: Floats, services: Floats, members: Bools, size: Floats, own: Floats, wanted: Floats
) -> float:
    """Share of CPU weight, in [0, 1), that jobs hold on the virtual CPUs that the threads of service k run on.

    Threads are whole: as long as others find a virtual CPU without one, the kernel leaves the service's threads alone, and
    moves them off crowded CPUs. Only threads that are too many for all other places share with it. Who has nowhere else to
    go shares whatever others could do: every set of jobs that may go no further than one of them is looked at, and the
    worst counts. So nobody who comes ever lowers the share.
    """
    count = jobs.shape[0]
    i = count + k
    cells = size.shape[0]
    servers = services[k, SERVERS]
    reaches = np.zeros(own.shape[0], np.bool_)
    free = np.zeros(cells)
    for c in range(cells):
        free[c] = 0.0 if members[i, c] else size[c]
    for j in users:
        if j >= count:
            continue
        for c in range(cells):
            reaches[j] = reaches[j] or (members[j, c] and members[i, c])
        if not reaches[j]:
            for c in range(cells):
                free[c] = max(0.0, free[c] - wanted[j, c] * size[c])
    worst = 0.0
    for far in users:
        if far >= count or not reaches[far]:
            continue
        places = own[i] - servers
        for c in range(cells):
            if members[far, c]:
                places += free[c]
        threads = 0.0
        weight = 0.0
        for j in users:
            if j >= count or not reaches[j]:
                continue
            within = True
            for c in range(cells):
                within = within and (members[i, c] or members[far, c] or not members[j, c])
            if within:
                weight += jobs[j, WEIGHT]
                for c in range(cells):
                    threads += wanted[j, c] * size[c]
        if threads > places:
            theirs = weight * (1.0 - places / threads) / servers
            worst = max(worst, theirs / (theirs + services[k, SERVICE_WEIGHT] / servers))
    return worst


@compiled
def mean_threads(phi: float, threads: float, in_serial: float, in_parallel: float) -> float:
    """Threads that a mixed job runs on average over time, at these speeds in its serial and parallel moments."""
    serial_time = phi / in_serial
    parallel_time = (1.0 - phi) / in_parallel
    part = serial_time / (serial_time + parallel_time)
    return part * min(1.0, threads) + (1.0 - part) * threads

"""What mixed jobs do in their serial and parallel moments, compiled: a part of :mod:`flowsched_models.sharing`."""

from __future__ import annotations

from typing import NamedTuple

from flowsched_models.cell import (
    GAIN,
    MIXED,
    THREADS,
    TINY,
    WEIGHT,
    Cells,
    Floats,
    Ints,
    granted,
    sibling_loss,
    water_fill,
)
from flowsched_models.compiled import borrowing


class Grants(NamedTuple):
    """What the n occupants of one machine ask of the virtual CPUs of its cells, and what they get."""

    wanted: Floats
    """[n, cells] CPU that an occupant wants of one virtual CPU of a cell."""
    weight: Floats
    """[n, cells] CPU weight of its threads there."""
    granted: Floats
    """[n, cells] CPU that it gets of one."""


@borrowing
def mean_threads(phi: float, threads: float, in_serial: float, in_parallel: float) -> float:
    """Threads that a mixed job runs on average over time, at these speeds in its serial and parallel moments."""
    serial_time = phi / in_serial
    parallel_time = (1.0 - phi) / in_parallel
    part = serial_time / (serial_time + parallel_time)
    return part * min(1.0, threads) + (1.0 - part) * threads


@borrowing
def speed_in_moment(
    i: int,
    threads: float,
    users: Ints,
    jobs: Floats,
    cells: Cells,
    grants: Grants,
    room: Floats,
) -> float:
    """CPU speed of job i in a moment in which it runs so many threads, the others as ``grants.wanted`` has them.

    ``room`` [7, cells]: to work in. ``grants`` are as they were once this returns.
    """
    size, wanted, weight = cells.size, grants.wanted, grants.weight
    count = size.shape[0]
    others, given, mine, got, kept_wanted, kept_weight = room[0], room[1], room[2], room[3], room[4], room[5]
    for c in range(count):
        others[c], given[c], got[c] = 0.0, 0.0, 0.0
        kept_wanted[c], kept_weight[c] = wanted[i, c], weight[i, c]
    for j in users:
        if j != i:
            for c in range(count):
                others[c] += wanted[j, c]
                given[c] += grants.granted[j, c]
    water_fill(threads, others, size, cells.members[i], mine)
    for c in range(count):
        wanted[i, c] = mine[c]
        weight[i, c] = jobs[i, WEIGHT] / threads * mine[c]
        if mine[c] > TINY:
            got[c] = granted(i, c, users, wanted, weight)
        given[c] = min(1.0, given[c] + got[c])  # the others give way to what i takes
    speed = 0.0
    for c in range(count):
        if got[c] > 0.0:
            speed += got[c] * size[c] * (1.0 - sibling_loss(given, c, cells.sibling, jobs[i, GAIN]))
    for c in range(count):
        wanted[i, c] = kept_wanted[c]
        weight[i, c] = kept_weight[c]
    return speed


@borrowing
def speed_beside_mixed(
    i: int,
    users: Ints,
    stage: Ints,
    demand: Floats,
    jobs: Floats,
    cells: Cells,
    grants: Grants,
    room: Floats,
) -> float:
    """Speed of mixed job i in its parallel moments, averaged over the moments of its mixed neighbours, one at a time.

    A neighbour that is serial just then leaves more than it does on average than it takes away when it is parallel: the
    speed is convex in what the others want. The neighbours' moments are taken as independent of each other and of i's.
    """
    members, wanted = cells.members, grants.wanted
    count, cell_count = jobs.shape[0], cells.size.shape[0]
    threads = jobs[i, THREADS]
    base = speed_in_moment(i, threads, users, jobs, cells, grants, room)
    total = base
    at = 0
    for k in range(users.shape[0]):
        j = users[k]
        if j == i:
            at = k
        if j == i or j >= count or stage[j] != MIXED or jobs[j, THREADS] <= 1.0:
            continue
        meets = False
        for c in range(cell_count):
            meets = meets or (members[i, c] and members[j, c])
        if not meets:
            continue
        kept = room[6]
        for c in range(cell_count):
            kept[c] = wanted[j, c]
        serial = (jobs[j, THREADS] - demand[j]) / (jobs[j, THREADS] - 1.0)
        for moment in range(2):
            times = (1.0 if moment == 0 else jobs[j, THREADS]) / demand[j]
            for c in range(cell_count):
                wanted[j, c] = min(1.0, kept[c] * times)
            speed = speed_in_moment(i, threads, users, jobs, cells, grants, room)
            total += (serial if moment == 0 else 1.0 - serial) * (speed - base)
        for c in range(cell_count):
            wanted[j, c] = kept[c]
    if total <= base:
        return base
    # One at a time, several neighbours could seem to leave more than there is.
    alone = speed_in_moment(i, threads, users[at : at + 1], jobs, cells, grants, room)
    return min(total, alone)

"""Who takes CPU from a latency service, compiled: a part of :mod:`flowsched_models.sharing`."""

from __future__ import annotations

import numpy as np

from flowsched_models.cell import SERVERS, SERVICE_WEIGHT, WEIGHT, Cells, Floats, Ints
from flowsched_models.compiled import compiled


@compiled
def held_share(k: int, users: Ints, jobs: Floats, services: Floats, cells: Cells, wanted: Floats) -> float:
    """Share of CPU weight, in [0, 1), that jobs hold on the virtual CPUs that the threads of service k run on.

    Threads are whole: as long as others find a virtual CPU without one, the kernel leaves the service's threads alone, and
    moves them off crowded CPUs. Only threads that are too many for all other places share with it. A job with no other
    place shares whatever others could do: every set of jobs that may go no further than one of them is looked at, and the
    worst counts. So an arriving job never lowers the share. ``wanted`` [n, cells]: threads on one virtual CPU of a cell.
    """
    members, size, own = cells.members, cells.size, cells.own
    count = jobs.shape[0]
    i = count + k
    cell_count = size.shape[0]
    servers = services[k, SERVERS]
    reaches = np.zeros(own.shape[0], np.bool_)
    free = np.zeros(cell_count)
    for c in range(cell_count):
        free[c] = 0.0 if members[i, c] else size[c]
    for j in users:
        if j >= count:
            continue
        for c in range(cell_count):
            reaches[j] = reaches[j] or (members[j, c] and members[i, c])
        if not reaches[j]:
            for c in range(cell_count):
                free[c] = max(0.0, free[c] - wanted[j, c] * size[c])
    worst = 0.0
    for far in users:
        if far >= count or not reaches[far]:
            continue
        places = own[i] - servers
        for c in range(cell_count):
            if members[far, c]:
                places += free[c]
        threads = 0.0
        weight = 0.0
        for j in users:
            if j >= count or not reaches[j]:
                continue
            within = True
            for c in range(cell_count):
                within = within and (members[i, c] or members[far, c] or not members[j, c])
            if within:
                weight += jobs[j, WEIGHT]
                for c in range(cell_count):
                    threads += wanted[j, c] * size[c]
        if threads > places:
            theirs = weight * (1.0 - places / threads) / servers
            worst = max(worst, theirs / (theirs + services[k, SERVICE_WEIGHT] / servers))
    return worst

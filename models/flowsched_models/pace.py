"""How fast all jobs on one machine progress now, compiled, and a memory in which such answers are looked up again.

The same few sets of jobs, in the same stages, meet in thousands of forecasts: the model is evaluated once for each set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched_models.cell import (
    CURVE,
    JOB_COLUMNS,
    PHI,
    PLACE_COLUMNS,
    PLACES,
    PRESSURE,
    SENSITIVITY,
    SERVICE_PRESSURE,
    THREADING,
    WORK,
    Bools,
    Cells,
    Floats,
    Ints,
    cells_of,
)
from flowsched_models.compiled import borrowing, compiled
from flowsched_models.latency import p95_us
from flowsched_models.sharing import share

STAGES = 3
"""A kind in a stage is the number of the kind times so many, and the stage."""

_p95_us = compiled(p95_us)


class PaceMemory(NamedTuple):
    """Paces of the sets of jobs that met on hosts. A job is known by its *kind*: its host and all that the model knows of
    it but its scale and progress. A memory without ``heads`` keeps nothing.
    """

    rows: Floats
    """[kinds, JOB_COLUMNS] a job of each kind, of scale 1."""
    cores: Ints
    """[kinds] which virtual CPUs a job of each kind may use: a row of ``can``."""
    can: Bools
    """[sets, C] sets of virtual CPUs; all that run on a machine may have the same one."""
    service_count: Ints
    """[hosts] latency services of each host."""
    services: Floats
    """[hosts, S, numbers] the services of each host."""
    service_can: Bools
    """[hosts, S, C] which virtual CPUs each service may use."""
    sibling: Ints
    """[hosts, C] the other virtual CPU of the same core, or -1."""
    rank: Floats
    """[STAGES * kinds] what a kind in a stage goes by where sets are summed up as in :meth:`Host.rates`, to the last bit;
    empty where they go by what they are."""
    heads: Ints
    """Where to look for a set: its entry, or -1."""
    used: Ints
    """[1] entries in use."""
    hosts: Ints
    """[entries] host of each set."""
    counts: Ints
    """[entries] members of each set."""
    items: Ints
    """[entries, most members] kind and stage of each member, ascending."""
    paces: Floats
    """[entries, most members] progress per second of each, for work of scale 1."""
    p95: Floats
    """[entries, S] microseconds."""


@compiled
def _felt_at(i: int, place: int, users: Ints, jobs: Floats) -> float:
    """How many times slower a job is for those that use GPUs at the same places, of one kind of place."""
    pressure = 0.0
    for k in users:
        if k < jobs.shape[0] and k != i and int(jobs[i, place + 2]) & int(jobs[k, place + 2]):
            pressure += jobs[k, place + 1]
    felt: float = 1.0 + jobs[i, place] * pressure
    return felt


@compiled
def paces(
    users: Ints,
    stage: Ints,
    jobs: Floats,
    services: Floats,
    cells: Cells,
    busy: Floats,
    pace: Floats,
    p95: Floats,
) -> None:
    """Into ``pace`` [jobs] progress per second, ``busy`` [n] CPUs used, ``p95`` [services] microseconds."""
    count = jobs.shape[0]
    speed = np.zeros(cells.own.shape[0])
    weight_share = np.zeros(services.shape[0])
    share(users, stage, jobs, services, cells, busy, speed, weight_share)
    pressure = 0.0
    for i in users:
        pressure += (jobs[i, PRESSURE] if i < count else services[i - count, SERVICE_PRESSURE]) * busy[i]
    for i in users:
        if i < count:
            if jobs[i, PHI] >= 1.0 and busy[i] > 0.0:
                # The run time is given: exactly that on any part of the CPUs, but for what busy siblings cost.
                speed[i] /= busy[i]
            felt = 1.0 + jobs[i, SENSITIVITY] * max(0.0, pressure - jobs[i, PRESSURE] * busy[i])
            pace[i] = speed[i] / (jobs[i, WORK] * felt * jobs[i, THREADING])
            for place in range(PLACES, JOB_COLUMNS, PLACE_COLUMNS):
                if jobs[i, place + 2] > 0.0:
                    pace[i] /= _felt_at(i, place, users, jobs)
    for k in range(services.shape[0]):
        others = max(0.0, pressure - services[k, SERVICE_PRESSURE] * busy[count + k])
        p95[k] = _p95_us(services[k, CURVE:], others, weight_share[k])


@compiled
def _precedes(memory: PaceMemory, item: int, other: int) -> bool:
    """Whether a kind in a stage comes before another by what it is.

    Numbers of kinds say when each was seen first: sums in their order would depend, in the last digit, on what was
    forecast before.
    """
    if memory.rank.shape[0] > 0:
        return bool(memory.rank[item] < memory.rank[other])
    a, b = item // STAGES, other // STAGES
    for k in range(memory.rows.shape[1]):
        if memory.rows[a, k] != memory.rows[b, k]:
            return bool(memory.rows[a, k] < memory.rows[b, k])
    one, two = memory.cores[a], memory.cores[b]
    if one != two:
        for c in range(memory.can.shape[1]):
            if memory.can[one, c] != memory.can[two, c]:
                return bool(memory.can[one, c])
    return item % STAGES < other % STAGES


@compiled
def _take_means(items: Ints, order: Ints, pace: Floats) -> None:
    """Equal ones have the mean of theirs."""
    a = 0
    while a < order.shape[0]:
        b, total = a, 0.0
        while b < order.shape[0] and items[order[b]] == items[order[a]]:
            total += pace[b]
            b += 1
        pace[a:b] = total / (b - a)
        a = b


@borrowing
def put_items(kinds: Ints, stage: Ints, users: Ints, count: int, items: Ints) -> None:
    """Into ``items`` the kind and stage of each of the first ``count`` users, ascending; the users in the same order."""
    for a in range(count):
        who = users[a]
        item = kinds[who] * STAGES + stage[who]
        b = a
        while b > 0 and items[b - 1] > item:
            items[b] = items[b - 1]
            users[b] = users[b - 1]
            b -= 1
        items[b] = item
        users[b] = who


@borrowing
def _place_of(heads: Ints, hosts: Ints, counts: Ints, known: Ints, host: int, count: int, items: Ints) -> int:
    """Where in ``heads`` a set is, or would be."""
    places = heads.shape[0]
    mixed = 7 + host
    for a in range(count):
        mixed = (mixed * 8191 + items[a] + 1) & 0xFFFFFFFFFFF
    place: int = (mixed ^ (mixed >> 17)) % places
    while heads[place] >= 0:
        entry = heads[place]
        same = counts[entry] == count and hosts[entry] == host
        a = 0
        while same and a < count:
            same = known[entry, a] == items[a]
            a += 1
        if same:
            break
        place = (place + 1) % places
    return place


@borrowing
def look_up(
    heads: Ints,
    hosts: Ints,
    counts: Ints,
    known: Ints,
    known_paces: Floats,
    known_p95: Floats,
    host: int,
    services: int,
    users: Ints,
    count: int,
    items: Ints,
    pace: Floats,
    p95: Floats,
) -> bool:
    """What :func:`recall` answers, if a memory has it; whether it has. The first six are its arrays, one by one, since an
    array that is passed takes as long as the rest.
    """
    if count > known.shape[1]:
        return False
    entry = heads[_place_of(heads, hosts, counts, known, host, count, items)]
    if entry < 0:
        return False
    for a in range(count):
        pace[users[a]] = known_paces[entry, a]
    for k in range(services):
        p95[k] = known_p95[entry, k]
    return True


@compiled
def recall(
    memory: PaceMemory, host: int, kinds: Ints, stage: Ints, active: Ints, items: Ints, pace: Floats, p95: Floats
) -> None:
    """Into ``pace`` [jobs] and ``p95`` [services] what the ``active`` jobs, and the services of a host, do together.

    ``items`` [jobs] is room to work in; ``active`` comes back sorted by kind and stage, so that the answer is one of the
    set, in whatever order it was asked for.
    """
    count = active.shape[0]
    put_items(kinds, stage, active, count, items)
    here = memory.service_count[host]
    heads, hosts, counts, sets_known = memory.heads, memory.hosts, memory.counts, memory.items
    keeps = heads.shape[0] > 0
    if keeps and look_up(
        heads, hosts, counts, sets_known, memory.paces, memory.p95, host, here, active, count, items, pace, p95
    ):
        return
    order = np.arange(count)
    for a in range(1, count):
        b = a
        while b > 0 and _precedes(memory, items[a], items[order[b - 1]]):
            order[b] = order[b - 1]
            b -= 1
        order[b] = a
    jobs = np.empty((count, memory.rows.shape[1]))
    stages = np.empty(count, np.int64)
    # A set of virtual CPUs is looked at once, however many jobs have it.
    row = np.empty(count + here, np.int64)
    sets = np.empty(count, np.int64)
    different = 0
    for a in range(count):
        item = items[order[a]]
        jobs[a] = memory.rows[item // STAGES]
        stages[a] = item % STAGES
        row[a] = 0
        while row[a] < different and sets[row[a]] != memory.cores[item // STAGES]:
            row[a] += 1
        if row[a] == different:
            sets[different] = memory.cores[item // STAGES]
            different += 1
    can = np.empty((different + here, memory.can.shape[1]), np.bool_)
    for d in range(different):
        can[d] = memory.can[sets[d]]
    for k in range(here):
        can[different + k] = memory.service_can[host, k]
        row[count + k] = different + k
    of_set = cells_of(can, memory.sibling[host])
    members = np.empty((count + here, of_set.size.shape[0]), np.bool_)
    own = np.empty(count + here)
    for a in range(count + here):
        members[a] = of_set.members[row[a]]
        own[a] = of_set.own[row[a]]
    busy = np.zeros(count + here)
    ordered = np.zeros(count)
    users = np.arange(count + here)
    cells = Cells(members, of_set.size, of_set.sibling, own)
    paces(users, stages, jobs, memory.services[host, :here], cells, busy, ordered, p95)
    if memory.rank.shape[0] > 0:
        _take_means(items, order, ordered)
    found = np.zeros(count)
    for a in range(count):
        found[order[a]] = ordered[a]
        pace[active[order[a]]] = ordered[a]
    entry = memory.used[0]
    if keeps and count <= sets_known.shape[1] and entry < counts.shape[0]:
        place = _place_of(heads, hosts, counts, sets_known, host, count, items)
        memory.used[0] = entry + 1
        memory.heads[place] = entry
        memory.hosts[entry] = host
        memory.counts[entry] = count
        for a in range(count):
            memory.items[entry, a] = items[a]
            memory.paces[entry, a] = found[a]
        for k in range(here):
            memory.p95[entry, k] = p95[k]


@compiled
def no_memory() -> PaceMemory:
    """A memory that keeps nothing, for runs that evaluate the model each time."""
    return PaceMemory(
        np.zeros((0, JOB_COLUMNS)),
        np.zeros(0, np.int64),
        np.zeros((0, 0), np.bool_),
        np.zeros(0, np.int64),
        np.zeros((0, 0, 0)),
        np.zeros((0, 0, 0), np.bool_),
        np.zeros((0, 0), np.int64),
        np.zeros(0),
        np.zeros(0, np.int64),
        np.zeros(1, np.int64),
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
        np.zeros((0, 0), np.int64),
        np.zeros((0, 0)),
        np.zeros((0, 0)),
    )

"""How fast everybody on one machine progresses now, compiled, and a book in which such answers are looked up again.

The same few sets of jobs, in the same stages, meet in thousands of forecasts of one machine: there is one evaluation of
the model for each set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowsched_models.cell import (
    CURVE,
    PRESSURE,
    SENSITIVITY,
    SERVICE_PRESSURE,
    THREADING,
    WORK,
    Bools,
    Floats,
    Ints,
    cells_of,
)
from flowsched_models.compiled import compiled
from flowsched_models.latency import p95_us
from flowsched_models.sharing import share

_STAGES = 3

_p95_us = compiled(p95_us)


class Book(NamedTuple):
    """Paces of the sets that were met on one machine. Jobs are known by their *kind*: all that the model knows of them
    but their progress. A book without ``heads`` keeps nothing.
    """

    rows: Floats
    """[kinds, numbers] a job of each kind."""
    can: Bools
    """[kinds, C] which virtual CPUs a job of each kind may use."""
    service_can: Bools
    """[services, C] the same for services."""
    sibling: Ints
    """[C] the other virtual CPU of the same core, or -1."""
    heads: Ints
    """Where to look for a set: its entry, or -1."""
    used: Ints
    """[1] entries in use."""
    counts: Ints
    """[entries] members of each set."""
    items: Ints
    """[entries, most members] kind and stage of each member, ascending."""
    paces: Floats
    """[entries, most members] progress per second of each."""
    p95: Floats
    """[entries, services] microseconds."""


@compiled
def empty_book(rows: Floats, can: Bools, service_can: Bools, sibling: Ints, entries: int, members: int) -> Book:
    """A book that knows nothing yet, with room for so many ``entries``; 0: it keeps nothing."""
    return Book(
        rows,
        can,
        service_can,
        sibling,
        np.full(2 * entries, -1, np.int64),
        np.zeros(1, np.int64),
        np.empty(entries, np.int64),
        np.empty((entries, members), np.int64),
        np.empty((entries, members)),
        np.empty((entries, service_can.shape[0])),
    )


@compiled
def paces(
    users: Ints,
    stage: Ints,
    jobs: Floats,
    services: Floats,
    members: Bools,
    size: Floats,
    sibling_cell: Ints,
    own: Floats,
    busy: Floats,
    pace: Floats,
    p95: Floats,
) -> None:
    """Into ``pace`` [jobs] progress per second, ``busy`` [n] CPUs used, ``p95`` [services] microseconds."""
    count = jobs.shape[0]
    speed = np.zeros(own.shape[0])
    weight_share = np.zeros(services.shape[0])
    share(users, stage, jobs, services, members, size, sibling_cell, own, busy, speed, weight_share)
    pressure = 0.0
    for i in users:
        pressure += (jobs[i, PRESSURE] if i < count else services[i - count, SERVICE_PRESSURE]) * busy[i]
    for i in users:
        if i < count:
            felt = 1.0 + jobs[i, SENSITIVITY] * max(0.0, pressure - jobs[i, PRESSURE] * busy[i])
            pace[i] = speed[i] / (jobs[i, WORK] * felt * jobs[i, THREADING])
    for k in range(services.shape[0]):
        others = max(0.0, pressure - services[k, SERVICE_PRESSURE] * busy[count + k])
        p95[k] = _p95_us(services[k, CURVE:], others, weight_share[k])


@compiled
def rates_now(
    stage: Ints, jobs: Floats, services: Floats, can: Bools, sibling: Ints, busy: Floats, pace: Floats, p95: Floats
) -> None:
    """:func:`paces` of everybody on a machine."""
    members, size, sibling_cell, own = cells_of(can, sibling)
    users = np.arange(can.shape[0])
    paces(users, stage, jobs, services, members, size, sibling_cell, own, busy, pace, p95)


@compiled
def recall(
    book: Book, kinds: Ints, stage: Ints, active: Ints, services: Floats, items: Ints, pace: Floats, p95: Floats
) -> None:
    """Into ``pace`` [jobs] and ``p95`` [services] what the ``active`` jobs, and the services, do together.

    ``items`` [jobs] is room to work in; ``active`` comes back sorted by kind and stage, so that the answer is one of the
    set, whoever asked first and in whatever order.
    """
    count = active.shape[0]
    for a in range(count):
        who = active[a]
        item = kinds[who] * _STAGES + stage[who]
        b = a
        while b > 0 and items[b - 1] > item:
            items[b] = items[b - 1]
            active[b] = active[b - 1]
            b -= 1
        items[b] = item
        active[b] = who
    places = book.heads.shape[0]
    keeps = count <= book.items.shape[1]
    place = 0
    if keeps:
        mixed = 7
        for a in range(count):
            mixed = (mixed * 8191 + items[a] + 1) & 0xFFFFFFFFFFF
        place = (mixed ^ (mixed >> 17)) % places
        while book.heads[place] >= 0:
            entry = book.heads[place]
            same = book.counts[entry] == count
            a = 0
            while same and a < count:
                same = book.items[entry, a] == items[a]
                a += 1
            if same:
                for a in range(count):
                    pace[active[a]] = book.paces[entry, a]
                for k in range(services.shape[0]):
                    p95[k] = book.p95[entry, k]
                return
            place = (place + 1) % places
    jobs = np.empty((count, book.rows.shape[1]))
    can = np.empty((count + services.shape[0], book.can.shape[1]), np.bool_)
    stages = np.empty(count, np.int64)
    for a in range(count):
        jobs[a] = book.rows[items[a] // _STAGES]
        can[a] = book.can[items[a] // _STAGES]
        stages[a] = items[a] % _STAGES
    for k in range(services.shape[0]):
        can[count + k] = book.service_can[k]
    busy = np.zeros(count + services.shape[0])
    found = np.zeros(count)
    rates_now(stages, jobs, services, can, book.sibling, busy, found, p95)
    for a in range(count):
        pace[active[a]] = found[a]
    entry = book.used[0]
    if keeps and entry < book.counts.shape[0]:
        book.used[0] = entry + 1
        book.heads[place] = entry
        book.counts[entry] = count
        for a in range(count):
            book.items[entry, a] = items[a]
            book.paces[entry, a] = found[a]
        for k in range(services.shape[0]):
            book.p95[entry, k] = p95[k]

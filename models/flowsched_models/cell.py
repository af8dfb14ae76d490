"""How one virtual CPU is shared, compiled: the parts of the run-time model that know neither a moment nor a stage.

Occupants are jobs first, then latency services: n in all, C virtual CPUs. Virtual CPUs that the same occupants may use, and
whose siblings are alike, behave alike: they form a *cell*, and all arithmetic runs over cells. The equations stand in
:mod:`flowsched_models.runtime`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowsched_models.compiled import borrowing, compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Cells(NamedTuple):
    """The virtual CPUs of one machine by cell, as :func:`cells_of` finds them. n occupants: jobs first, then services."""

    members: Bools
    """[n, cells] whether an occupant may use the virtual CPUs of a cell."""
    size: Floats
    """[cells] virtual CPUs of each."""
    sibling: Ints
    """[cells] the cell of its virtual CPUs' siblings; -1: they have none."""
    own: Floats
    """[n] virtual CPUs that each occupant may use."""


TINY = 1e-12

SERIAL, PARALLEL, MIXED = 0, 1, 2
"""Stages of a job, as :class:`flowsched_models.runtime.Stage` has them."""

# Columns of a job's row.
WORK, PHI, SERIAL_FIRST, THREADS, WEIGHT, GAIN, SENSITIVITY, PRESSURE, THREADING, PROGRESS, READY, MEMORY = range(12)
PLACES, PLACE_COLUMNS = 12, 3
"""From here on, for each kind of place at which jobs that use GPUs disturb each other: a job's sensitivity, its pressure,
and the bits of the places where it is (as a number; 0: it uses none). Kinds: sockets, devices, the machine's network."""
PLACE_KINDS = 3
JOB_COLUMNS = PLACES + PLACE_KINDS * PLACE_COLUMNS
# Columns of a service's row; from CURVE on the parameters of its latency.
BUSY, SERVICE_WEIGHT, SERVICE_PRESSURE, SERVERS, CURVE = range(5)


@compiled
def cells_of(can: Bools, sibling: Ints) -> Cells:
    """The cells of a machine with C virtual CPUs.

    ``can`` [n, C]: which occupant may use which virtual CPU; ``sibling`` [C]: the other virtual CPU of the same core, or -1.
    """
    n, cpus = can.shape
    cell = np.full(cpus, -1, np.int64)
    first = np.zeros(cpus, np.int64)
    cells = 0
    used = np.zeros(cpus, np.bool_)
    differs = np.zeros(cpus, np.bool_)
    # Virtual CPUs of wide machines are mostly like the one before: these are not compared with cells.
    for i in range(n):
        for k in range(cpus):
            used[k] |= can[i, k]
        for k in range(1, cpus):
            differs[k] |= can[i, k] != can[i, k - 1]
    for k in range(1, cpus):
        one, other = sibling[k], sibling[k - 1]
        if (one < 0) != (other < 0):
            differs[k] = True
        elif one >= 0:
            for i in range(n):
                differs[k] |= can[i, one] != can[i, other]
    for k in range(cpus):
        if not used[k]:
            continue
        if k > 0 and not differs[k]:
            cell[k] = cell[k - 1]
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
        for c in range(cells):
            if can[i, first[c]]:
                members[i, c] = True
                own[i] += size[c]
    return Cells(members, size, sibling_cell, own)


@borrowing
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


@borrowing
def granted(who: int, c: int, users: Ints, wanted: Floats, weight: Floats) -> float:
    """CPU that ``who`` gets of one virtual CPU of cell ``c``: weighted max-min, none more than it wants."""
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


@borrowing
def sibling_loss(used: Floats, c: int, sibling_cell: Ints, gain: float) -> float:
    """Share of its speed that a thread in cell ``c`` loses to the busy siblings of that cell."""
    s = sibling_cell[c]
    if s < 0 or used[c] <= TINY:
        return 0.0
    overlap: float = max(0.0, used[c] + used[s] - 1.0) / used[c]
    return overlap * (1.0 - gain) / 2.0

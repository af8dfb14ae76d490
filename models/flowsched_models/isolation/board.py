"""What the inner loops share: where every thread stands, and what runs on every core. Times in seconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

ASLEEP, READY, THROTTLED, DONE = 0, 1, 2, 3
"""States of a thread. READY: runs, or would if it had a core. THROTTLED: has used up its bandwidth."""
NONE = -1
"""On a core: it is idle. As a group: the thread stands in the root group."""


class Board(NamedTuple):
    """The machine at one moment. First index: thread, core or group."""

    state: Indices
    core: Indices
    """Where it runs, waits, or ran last."""
    left: Numbers
    """CPU time that its job still needs."""
    # The fair class.
    queue: Indices
    """The core in whose queue it stands, running or waiting; NONE: in none."""
    group: Indices
    weight: Numbers
    """Within its group; 1024 is the default."""
    virtual: Numbers
    """Virtual run time in its group on its core."""
    share: Numbers
    """Of a group, over all cores."""
    group_virtual: Numbers
    """[group, core]: virtual run time of the group among the root's members on a core."""
    group_load: Numbers
    """[group, core]: weight of its threads that are ready there."""
    group_total: Numbers
    """[group]: the same over all cores."""
    least_virtual: Numbers
    """[core]: only grows; where those who come stand."""
    least_group_virtual: Numbers
    """[group, core]"""
    # The deadline class.
    reserved: Indices
    """1: the thread has a reservation."""
    budget: Numbers
    deadline: Numbers
    # Cores.
    running: Indices
    ran: Numbers
    """How long the fair thread that runs has been running."""
    taken: Numbers
    """Share of the core that deadlines took lately."""


def new_board(
    cores: int, group: npt.ArrayLike, share: npt.ArrayLike, weight: npt.ArrayLike, reserved: npt.ArrayLike
) -> Board:
    """All threads asleep, spread over the cores in turn."""
    groups = np.array(group, dtype=np.int64)
    shares = np.array(share, dtype=float)
    count, nests = len(groups), max(1, len(shares))
    return Board(
        state=np.full(count, ASLEEP, dtype=np.int64),
        core=np.arange(count, dtype=np.int64) % cores,
        left=np.zeros(count),
        queue=np.full(count, NONE, dtype=np.int64),
        group=groups,
        weight=np.array(weight, dtype=float),
        virtual=np.zeros(count),
        share=shares if len(shares) else np.zeros(1),
        group_virtual=np.zeros((nests, cores)),
        group_load=np.zeros((nests, cores)),
        group_total=np.zeros(nests),
        least_virtual=np.zeros(cores),
        least_group_virtual=np.zeros((nests, cores)),
        reserved=np.array(reserved, dtype=np.int64),
        budget=np.zeros(count),
        deadline=np.full(count, -1.0),
        running=np.full(cores, NONE, dtype=np.int64),
        ran=np.zeros(cores),
        taken=np.zeros(cores),
    )

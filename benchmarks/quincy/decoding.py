"""From a flow to machines: flow through racks and the cluster is anonymous, so any share-out of it is as good."""

from __future__ import annotations

import numpy as np

from benchmarks.quincy.machines import Machines
from flowsched.support.arrays import IntArray
from flowsched_models.compiled import compiled


def place_tasks(
    machines: Machines, hubs: IntArray, rack_flow: IntArray, cluster_flow: IntArray, previous: IntArray | None = None
) -> IntArray:
    """The machine of each task, -1 for those that wait.

    ``hubs``: the hub of each task's unit (machines, racks from M, then the cluster; -1 or beyond: it waits).
    ``rack_flow``: units from its rack to each of M machines; ``cluster_flow``: from the cluster to each rack.
    Tasks that went through a rack or the cluster stay on their ``previous`` machine where the flow allows it; the
    others take what is left in order of tasks, racks and machines.

    Raises ``ValueError`` if the flow does not carry what the tasks send.
    """
    m, r = machines.count, machines.rack_count
    starts = np.zeros(r + 1, dtype=np.int64)
    np.cumsum(np.bincount(machines.racks, minlength=r), out=starts[1:])
    members = np.argsort(machines.racks, kind="stable").astype(np.int64)
    before = np.full(len(hubs), -1, dtype=np.int64) if previous is None else previous
    placed = np.full(len(hubs), -1, dtype=np.int64)
    by_machine, by_rack = rack_flow.astype(np.int64), cluster_flow.astype(np.int64)
    if _place(machines.racks, starts, members, hubs, before, by_machine, by_rack, placed) < 0 or m == 0:
        raise ValueError("the flow out of racks and the cluster is less than what tasks send there")
    return placed


@compiled
def _place(
    racks: IntArray,
    starts: IntArray,
    members: IntArray,
    hubs: IntArray,
    before: IntArray,
    by_machine: IntArray,
    by_rack: IntArray,
    placed: IntArray,
) -> int:
    """Fill ``placed``, using up the flow; -1 if there is too little of it."""
    machines, cluster = len(racks), len(racks) + len(by_rack)
    for t in range(len(hubs)):
        h = hubs[t]
        m = before[t]
        if 0 <= h < machines:
            placed[t] = h
        elif machines <= h <= cluster and 0 <= m < machines and by_machine[m] > 0:
            if h == machines + racks[m]:
                by_machine[m] -= 1
                placed[t] = m
            elif h == cluster and by_rack[racks[m]] > 0:
                by_machine[m] -= 1
                by_rack[racks[m]] -= 1
                placed[t] = m
    places = starts[:-1].copy()
    rack = 0
    for t in range(len(hubs)):
        h = hubs[t]
        if placed[t] >= 0 or h < machines or h > cluster:
            continue
        if h == cluster:
            while rack < len(by_rack) and by_rack[rack] == 0:
                rack += 1
            if rack == len(by_rack):
                return -1
            by_rack[rack] -= 1
            r = rack
        else:
            r = h - machines
        while places[r] < starts[r + 1] and by_machine[members[places[r]]] == 0:
            places[r] += 1
        if places[r] == starts[r + 1]:
            return -1
        by_machine[members[places[r]]] -= 1
        placed[t] = members[places[r]]
    return 0

"""The network of data locality as any solver takes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.quincy.choices import Choices
from benchmarks.quincy.decoding import place_tasks
from benchmarks.quincy.machines import Machines
from flowsched.network.network import Network
from flowsched.support.arrays import IntArray


@dataclass(frozen=True)
class LocalityNetwork:
    """Tasks -> machines, racks, cluster, own job's unscheduled node; cluster -> racks -> machines -> sink.

    Nodes: N tasks, M machines, R racks, the cluster, the sink, J unscheduled nodes. Arcs: the tasks' choices row by row,
    the tasks' waiting, machines to sink, racks to machines, cluster to racks, unscheduled nodes to sink (never full).
    """

    network: Network
    machines: Machines
    choices: Choices
    choice_count: int
    """Arcs that are tasks' choices; they come first."""

    def decode(self, flow: IntArray, previous: IntArray | None = None) -> IntArray:
        """The machine of each task, -1 for those that wait; ``previous``: where to leave tasks if the flow allows it."""
        count = len(self.choices.waiting)
        hub = np.full(count, -1, dtype=np.int64)
        chosen = np.flatnonzero(flow[: self.choice_count])
        hub[self.network.tails[chosen]] = self.network.heads[chosen] - count
        behind = self.choice_count + count + self.machines.count
        return place_tasks(
            self.machines,
            hub,
            flow[behind : behind + self.machines.count],
            flow[behind + self.machines.count : behind + self.machines.count + self.machines.rack_count],
            previous,
        )


def build_network(machines: Machines, choices: Choices, jobs: IntArray, cost_scale: float = 1.0) -> LocalityNetwork:
    """The network of all tasks; ``jobs`` is the job of each."""
    count, m, r = len(choices.waiting), machines.count, machines.rack_count
    named = choices.hubs >= 0
    hubs = choices.hubs[named]
    per_task = np.count_nonzero(named, axis=1)
    tasks = np.arange(count)
    job_count = int(jobs.max(initial=-1)) + 1
    machine, rack = count + np.arange(m), count + m + np.arange(r)
    cluster, sink, unscheduled = count + m + r, count + m + r + 1, count + m + r + 2
    rack_slots = np.bincount(machines.racks, weights=machines.slots, minlength=r).astype(np.int64)
    supplies = np.zeros(unscheduled + job_count, dtype=np.int64)
    supplies[:count] = 1
    supplies[sink] = -count
    tails = np.concatenate(
        [
            np.repeat(tasks, per_task),
            tasks,
            machine,
            rack[machines.racks],
            np.full(r, cluster),
            unscheduled + np.arange(job_count),
        ]
    )
    heads = np.concatenate(
        [count + hubs, unscheduled + jobs, np.full(m, sink), machine, rack, np.full(job_count, sink)]
    )
    capacities = np.concatenate(
        [
            np.ones(len(hubs) + count, dtype=np.int64),
            machines.slots,
            machines.slots,
            rack_slots,
            np.full(job_count, max(count, 1), dtype=np.int64),
        ]
    )
    free = np.zeros(2 * m + r + job_count, dtype=np.int64)
    costs = np.concatenate([choices.costs[named], choices.waiting, free])
    network = Network(tails, heads, capacities, costs, supplies, cost_scale)
    return LocalityNetwork(network, machines, choices, len(hubs))

"""Where each task may go and what it would cost: the preferred sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.quincy.machines import Machines
from benchmarks.quincy.tasks import DataTasks
from flowsched.pricing.linear.policies.locality_prices import LocalityPrices
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Choices:
    """For each of N tasks up to W hubs: machines 0 to M-1, racks from M, then the cluster. -1 behind the last."""

    hubs: IntArray
    """N x W. The first is always the cluster."""
    costs: IntArray
    """N x W, scaled."""
    waiting: IntArray
    """N: the scaled cost of leaving each task unscheduled."""


@dataclass(frozen=True)
class _Held:
    """MB of a task's input that a place holds, by ascending key ``task * places + place``."""

    keys: IntArray
    mb: FloatArray
    places: int

    def of(self, tasks: IntArray, places: IntArray) -> FloatArray:
        """MB for pairs of task and place, 0 where nothing is held."""
        if len(self.keys) == 0:
            return np.zeros(len(tasks))
        wanted = tasks * self.places + places
        found = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[found] == wanted, self.mb[found], 0.0)


def choose(machines: Machines, tasks: DataTasks, prices: LocalityPrices) -> Choices:
    """The choices of tasks.

    Preferred is what holds at least a share of the input. A rack costs what its worst machine would, the cluster what
    the worst of all would, both at most: Quincy's upper bounds, so that no task gets less than it was promised. A running
    task may stay where it is, preferred or not, for a cost that falls with the time it has run.

    Raises ``ValueError`` if a replica or a running task is on a machine that there is not.
    """
    for name, column in (("replica", tasks.replicas), ("running task", tasks.running_on)):
        if len(column) and int(column.max()) >= machines.count:
            raise ValueError(f"a {name} is on machine {int(column.max())}, but machines are 0 to {machines.count - 1}")
    if len(tasks.replicas) and int(tasks.replicas.min()) < 0:
        raise ValueError(f"a replica is on machine {int(tasks.replicas.min())}; machines are numbered from 0")
    blocks = np.repeat(np.arange(len(tasks.block_mb)), np.diff(tasks.replica_starts))
    owner = np.repeat(np.arange(tasks.count), np.diff(tasks.block_starts))
    total: FloatArray = np.bincount(owner, weights=tasks.block_mb, minlength=tasks.count).astype(np.float64)
    on_machine = _held(tasks, owner, blocks, tasks.replicas, machines.count)
    in_rack = _held(tasks, owner, blocks, machines.racks[tasks.replicas], machines.rack_count)

    def transfer(rows: IntArray, at: IntArray) -> FloatArray:
        local = on_machine.of(rows, at)
        near = np.maximum(in_rack.of(rows, machines.racks[at]), local)
        return prices.within_rack * (near - local) + prices.across_racks * (total[rows] - near)

    task, machine = _preferred(on_machine, total, prices.preferred_share, prices.preferred_machines)
    cost = transfer(task, machine)
    runs = np.flatnonzero(tasks.running_on >= 0)
    stay = transfer(runs, tasks.running_on[runs]) - prices.running_per_s * tasks.running_s[runs]
    elsewhere = tasks.running_on[task] != machine
    task = np.concatenate([task[elsewhere], runs])
    machine = np.concatenate([machine[elsewhere], tasks.running_on[runs]])
    cost = np.concatenate([cost[elsewhere], stay])
    rack_task, rack = _preferred(in_rack, total, prices.preferred_share, prices.preferred_racks)
    near = in_rack.of(rack_task, rack)
    rack_cost = prices.within_rack * near + prices.across_racks * (total[rack_task] - near)
    everyone = np.arange(tasks.count)
    hubs, costs = _rows(
        tasks.count,
        np.concatenate([everyone, task, rack_task]),
        np.concatenate([np.full(tasks.count, machines.count + machines.rack_count), machine, machines.count + rack]),
        np.concatenate([prices.across_racks * total, cost, rack_cost]) * prices.cost_scale,
    )
    waiting = (prices.waiting + prices.waiting_per_s * tasks.age_s) * prices.cost_scale
    return Choices(hubs, costs, np.rint(waiting).astype(np.int64))


def _held(tasks: DataTasks, owner: IntArray, blocks: IntArray, places: IntArray, count: int) -> _Held:
    """Each block counts once for a place, however many replicas it has there."""
    pairs = np.sort(blocks * count + places)
    pairs = pairs[_firsts(pairs)]
    block = pairs // count
    keys = owner[block] * count + pairs % count
    order = np.argsort(keys, kind="stable")
    keys, block = keys[order], block[order]
    begins = np.flatnonzero(_firsts(keys))
    if len(begins) == 0:
        return _Held(keys, np.empty(0), count)
    return _Held(keys[begins], np.add.reduceat(tasks.block_mb[block], begins), count)


def _firsts(ascending: IntArray) -> BoolArray:
    """Which values differ from the one before."""
    first = np.ones(len(ascending), dtype=np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return first


def _preferred(held: _Held, total: FloatArray, share: float, most: int) -> tuple[IntArray, IntArray]:
    """Pairs of task and place that hold at least a share, by task, those that hold most first."""
    task = held.keys // held.places
    enough: BoolArray = (held.mb > 0.0) & (held.mb >= share * total[task])
    task, place, mb = task[enough], held.keys[enough] % held.places, held.mb[enough]
    order = np.lexsort((-mb, task))  # stable: places stay in order
    task, place = task[order], place[order]
    first = np.searchsorted(task, task)
    kept = np.arange(len(task)) - first < most
    return task[kept], place[kept]


def _rows(count: int, tasks: IntArray, hubs: IntArray, costs: FloatArray) -> tuple[IntArray, IntArray]:
    """Triples as rows, in the order in which they came."""
    order = np.argsort(tasks, kind="stable")
    tasks = tasks[order]
    per_task = np.bincount(tasks, minlength=count)
    columns = np.arange(len(tasks)) - np.repeat(np.cumsum(per_task) - per_task, per_task)
    width = int(per_task.max(initial=1))
    rows = np.full((count, width), -1, dtype=np.int64)
    values = np.zeros((count, width), dtype=np.int64)
    rows[tasks, columns] = hubs[order]
    values[tasks, columns] = np.rint(costs[order]).astype(np.int64)
    return rows, values

"""The network of a round without compaction, for tests and benchmarks: a node for every task, tiers for every machine.

    task --price--> (place) -> (machine, tier of its width) -> ... -> machine --ladder--> sink
    task --waiting--> unscheduled -> sink

Prices are exact: readings are no buckets. Where fewer tasks of a class fit on a machine than wait, its tasks go by way of a
*place*, a node of that class and machine, whose capacity is what fits in every resource.

How its optimum relates to the compacted one at bucket width 0, rounding of costs to integers aside:

- It is never below: machines' capacities add up to their group's, so any of its flows is a flow of the compacted network.
- It is equal if machines of a group have equal room. Tasks of a class and machines of a group can change roles then, so the
  mean of an optimal flow over all such changes is optimal too, and every capacity of the compacted network is that of one
  machine times their number: it splits evenly (and flows of integer networks need no fractions to be optimal).
- It is equal for machines of different room, too, if CPU alone limits, widths divide each other, and tasks of the round do
  not act on each other. A machine's tiers are a chain of nested limits, so what it can take is a polymatroid with the rank
  S(narrowest tier asked for), and a sum of polymatroids is the polymatroid of the sums (J. Edmonds, "Submodular functions,
  matroids, and certain polyhedra", 1970, theorem on sums): every flow of the group splits.
- Otherwise the compacted optimum may be lower: a group of a machine with memory and one with CPU seems to have both. What
  does not exist is found when tasks are packed, and never in the bound, which looks at machines one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.network.network import Network
from flowsched.pricing.linear.kernels import MANY
from flowsched.round.linear.cluster_rows import CPU, ClusterRows
from flowsched.round.linear.machine_groups import RUNGS, Compaction
from flowsched.round.linear.network import cost_scale
from flowsched.round.linear.waiting import Waiting
from flowsched.support.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class UncompactedNetwork:
    """The network, with what is needed to read a flow back."""

    network: Network
    tasks: IntArray
    """Task rows; their nodes are 1, 2, ... in that order, and 0 is the sink."""
    rows: IntArray
    """Machine rows that have nodes."""
    arc_task: IntArray
    """Position in ``tasks`` of each of the first arcs, which run from tasks to machines."""
    arc_row: IntArray
    """Machine row of each of them."""


def build_uncompacted(
    cluster: ClusterRows, compaction: Compaction, waiting: Waiting, barred: BoolArray | None = None
) -> UncompactedNetwork:
    """The network of the tasks in ``waiting`` at the cluster's state, with the compaction's widths and tiers.

    ``barred``: machine rows that take nobody. The arrays have one entry for each task and machine that it may run on.
    """
    classes = waiting.classes
    there = np.flatnonzero(cluster.machines.alive if barred is None else cluster.machines.alive & ~barred)
    fit = room_by_class(cluster, classes, there)
    open_ = fit.any(axis=0)
    rows, fit = there[open_], fit[:, open_]
    price = exact_prices(cluster, classes, rows)
    widths = np.array([cluster.classes[c].width_milli for c in classes.tolist()], dtype=np.int64)
    units = np.maximum(1, widths // compaction.unit)
    counts = waiting.counts
    tasks, machines, tiers = len(waiting.tasks), len(rows), len(compaction.tier_widths)
    class_of = np.repeat(np.arange(len(classes)), counts)
    total = int((counts * units).sum())

    pair_class, pair_machine = np.nonzero((fit > 0) & (price <= waiting.dearest[:, None]) & np.isfinite(price))
    narrow = fit[pair_class, pair_machine] < counts[pair_class]
    tier_node = 1 + tasks + np.arange(machines * tiers).reshape(machines, tiers)
    gate_node = 1 + tasks + machines * tiers + np.arange(machines)
    idle_node = 1 + tasks + machines * (tiers + 1)
    place_node = idle_node + np.cumsum(narrow)
    nodes = idle_node + 1 + int(narrow.sum())

    entry = gate_node[pair_machine]
    if tiers:
        tier_of = np.searchsorted(-np.array(compaction.tier_widths, dtype=np.int64), -widths)
        inside = tier_node[pair_machine, np.minimum(tier_of[pair_class], tiers - 1)]
        entry = np.where(widths[pair_class] > 0, inside, entry)
    target = np.where(narrow, place_node, entry)
    # Every task of a pair's class has an arc to the pair's machine.
    many = counts[pair_class]
    arc_pair = np.repeat(np.arange(len(pair_class)), many)
    within = np.arange(len(arc_pair)) - np.repeat(np.cumsum(many) - many, many)
    arc_task = waiting.first[pair_class[arc_pair]] + within
    arc_units = units[pair_class[arc_pair]]

    free_units = np.minimum(
        np.maximum(cluster.machines.free[rows, CPU], 0) // compaction.unit, compaction.largest.shape[1] - 1
    )
    tier_capacity = compaction.largest[:, free_units].T
    ladder_capacity, ladder_cost = _ladder(cluster, compaction, waiting, units, rows, free_units, total)
    chain = np.hstack([tier_node[:, 1:], gate_node[:, None]]) if tiers else np.zeros((machines, 0), dtype=np.int64)
    prices = price[pair_class, pair_machine]
    leaving = _leaving(waiting)
    worst = float(prices.max(initial=0.0)) + float(ladder_cost.max(initial=0.0)) * float(units.max(initial=1))
    finite = np.isfinite(leaving)
    # An infinite cost of waiting need only be above any place, and above the finite ones.
    leaving[~finite] = 2.0 * worst + 1.0 + float(leaving[finite].max(initial=0.0)) * float(units.max(initial=1))
    task_units = units[class_of]
    costs = np.concatenate(
        [
            (prices / units[pair_class])[arc_pair],
            np.zeros(int(narrow.sum()) + machines * tiers),
            ladder_cost.reshape(-1),
            leaving / task_units,
            np.zeros(1),
        ]
    )
    supplies = np.zeros(nodes, dtype=np.int64)
    supplies[1 : 1 + tasks] = task_units
    supplies[0] = -total
    scale = cost_scale(float(costs.max(initial=0.0)), total, nodes)
    network = Network(
        np.concatenate(
            [
                1 + arc_task,
                place_node[narrow],
                tier_node.reshape(-1),
                np.repeat(gate_node, RUNGS),
                1 + np.arange(tasks),
                [idle_node],
            ]
        ),
        np.concatenate(
            [
                target[arc_pair],
                entry[narrow],
                chain.reshape(-1),
                np.zeros(machines * RUNGS, dtype=np.int64),
                np.full(tasks, idle_node),
                [0],
            ]
        ),
        np.concatenate(
            [
                arc_units,
                (fit[pair_class, pair_machine] * units[pair_class])[narrow],
                np.minimum(tier_capacity.reshape(-1), total),
                ladder_capacity.reshape(-1),
                task_units,
                [total],
            ]
        ),
        np.rint(costs * scale).astype(np.int64),
        supplies,
        scale,
    )
    return UncompactedNetwork(network, waiting.tasks, rows, arc_task, rows[pair_machine[arc_pair]])


def exact_prices(cluster: ClusterRows, classes: IntArray, rows: IntArray) -> FloatArray:
    """By class and machine row: what one task costs as things stand; infinite where it must not run."""
    table = cluster.classes.table()
    kind = cluster.machines.kind[rows]
    price: FloatArray = table.base[classes][:, kind].copy()
    for f in range(table.coefficients.shape[1]):
        felt = cluster.classes.factors[kind, f] * cluster.machines.readings[rows, f] / FIXED
        price += table.coefficients[classes, f][:, None] * felt[None, :]
    return price


def room_by_class(cluster: ClusterRows, classes: IntArray, rows: IntArray) -> IntArray:
    """By class and machine row: whole tasks that fit in every resource and below every limit."""
    fit = np.full((len(classes), len(rows)), MANY, dtype=np.int64)
    for amount, demand in (
        *(
            (cluster.machines.free[rows, r], cluster.classes.demands[classes, r])
            for r in range(len(cluster.classes.resources))
        ),
        *(
            (
                np.where(
                    cluster.machines.limits[rows, f] < UNLIMITED,
                    cluster.machines.limits[rows, f] - cluster.machines.readings[rows, f],
                    UNLIMITED,
                ),
                cluster.classes.effects[classes, f],
            )
            for f in range(len(cluster.classes.features))
        ),
    ):
        asks = demand > 0
        fit[asks] = np.minimum(fit[asks], np.maximum(amount, 0)[None, :] // demand[asks][:, None])
    return fit


def _leaving(waiting: Waiting) -> FloatArray:
    """What the network says that leaving each of ``waiting.tasks`` costs: that of its step of age."""
    level_class, level_count, level_cost = waiting.levels
    order = np.lexsort((-level_cost, level_class))
    leaving: FloatArray = np.repeat(level_cost[order], level_count[order])
    return leaving


def _ladder(
    cluster: ClusterRows,
    compaction: Compaction,
    waiting: Waiting,
    units: IntArray,
    rows: IntArray,
    free_units: IntArray,
    total: int,
) -> tuple[IntArray, FloatArray]:
    """Capacities and unit costs of every machine's steps, as those of groups are made."""
    table = cluster.classes.table()
    tasks = waiting.counts.astype(np.float64)
    flow = float((tasks * units).sum())
    mean_coefficient = tasks @ table.coefficients[waiting.classes]
    mean_effect = tasks @ (cluster.classes.effects[waiting.classes] / FIXED)
    pair = mean_coefficient * mean_effect / (flow * flow) if flow else mean_effect
    per_unit = cluster.classes.factors[cluster.machines.kind[rows]] @ pair if len(pair) else np.zeros(len(rows))
    usual = max(1, compaction.usual_milli // compaction.unit)
    steps = np.arange(RUNGS)
    cost = per_unit[:, None] * (steps * usual)[None, :]
    capacity = np.where(steps[None, :] < (free_units // usual)[:, None], min(usual, total), 0)
    capacity[:, -1] = total
    capacity = np.where(per_unit[:, None] > 0.0, capacity, np.where(steps == 0, total, 0)[None, :])
    return capacity, cost

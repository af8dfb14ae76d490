"""The network of the full problem: running tasks stay in it, beside those that wait.

    (class, group it runs in) --what it costs there--> (group, tier of its width)
    (class, group it runs in) --price of a move, in steps--> class --price there--> (group, tier of its width)
    (class, group it runs in) --price of a preemption--> sink
    class that waits --> class;  class that waits --waiting, by age--> sink
    (group, tier) -> (group, next narrower tier) -> ... -> group --ladder--> sink

So there are a few times classes x groups arcs, never classes x groups x groups: moves go through their class. Prices
are those at the state in which all tasks run, which are the gradient of the total; the ladder is its second order, on
average over the tasks in the network: a unit beyond a group's present load costs more, one below it less. Capacities count
the room that there is with all tasks of the network taken out, machine by machine. The flow proposes; no task moves by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.network.network import Network
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.machine_groups import Compaction, tier_of
from flowsched.round.linear.moves import emptied_of
from flowsched.round.linear.network import cost_scale, crowding_per_unit
from flowsched.round.linear.waiting import Waiting, survey
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

RUNGS = 8
"""Steps of a group's ladder below its present load, and as many above."""


@dataclass(frozen=True, eq=False)
class Residents:
    """Running tasks that take part, by class and the group they run in; arrays by pair of these."""

    task_class: IntArray
    group: IntArray
    count: IntArray
    stay: FloatArray
    """Mean of what they cost where they are, beside the others."""
    evict: FloatArray
    """Price of making one wait again; infinite where that is not allowed."""
    step_pair: IntArray
    """Steps of the arcs that leave: position of the pair."""
    step_count: IntArray
    step_price: FloatArray
    """Least price of a move among the tasks of a step."""


@dataclass(frozen=True, eq=False)
class Quotas:
    """How many tasks the flow moves: by class and group, rounded up."""

    leave: IntArray
    enter: IntArray


@dataclass(frozen=True, eq=False)
class FullNetwork:
    """The network, with what is needed to read a flow back."""

    network: Network
    arc_class: IntArray
    """Class of each of the first arcs, which run from classes to groups."""
    arc_group: IntArray
    arc_units: IntArray
    leave_class: IntArray
    """Class of each of the arcs that follow them, over which running tasks leave."""
    leave_group: IntArray
    leave_units: IntArray

    def quotas(self, flow: IntArray, classes: int, groups: int) -> Quotas:
        """What a flow says, of so many classes and groups."""
        enter = np.zeros((classes, groups), dtype=np.int64)
        leave = np.zeros((classes, groups), dtype=np.int64)
        arcs = len(self.arc_class)
        np.add.at(enter, (self.arc_class, self.arc_group), -(-flow[:arcs] // self.arc_units))
        gone = flow[arcs : arcs + len(self.leave_class)]
        np.add.at(leave, (self.leave_class, self.leave_group), -(-gone // self.leave_units))
        return Quotas(leave, enter)


def solve_full_network(
    cluster: ClusterRows,
    solver: Solver,
    running: IntArray,
    waits: IntArray,
    prices: tuple[FloatArray, FloatArray, FloatArray],
    now_s: float,
    due_age_s: float,
    called: str,
) -> tuple[Quotas, IntArray]:
    """What the optimal flow of some running tasks and of those that wait proposes by class and group; group of each machine.

    ``prices``: what each running task costs where it is, what its move must bring, and what its going costs. Raises
    ``ValueError`` as :func:`build_full_network` does, and ``RuntimeError`` if the solver refuses the network, ``called`` so.
    """
    emptied = emptied_of(cluster, running)
    waiting = survey(cluster, cluster.tasks.in_order(waits), now_s, due_age_s)
    classes, machine = cluster.tasks.task_class[running], cluster.tasks.machine[running]
    compaction = Compaction(emptied)
    compaction.catch_up(np.flatnonzero(cluster.machines.alive), np.union1d(classes, waiting.classes))
    residents = gather(classes, compaction.group_of[machine], *prices, compaction.groups)
    network = build_full_network(emptied, compaction, residents, waiting, mean_readings(compaction, cluster.readings))
    solution = solver.solve(network.network)
    if not solution.status.has_flow:
        raise RuntimeError(f"{solver.name} answers {solution.status} to {called}: {solution.report}")
    return network.quotas(solution.flow, len(cluster.classes), compaction.groups), compaction.group_of


def gather(
    task_class: IntArray,
    group: IntArray,
    stay: FloatArray,
    least_gain: FloatArray,
    evict: FloatArray,
    groups: int,
) -> Residents:
    """Fold running tasks into pairs of class and group, and prices of moves into steps of powers of two.

    Arrays by task. An infinite ``least_gain`` is a task that does not move; ``evict`` is folded to its mean over the tasks
    that may be evicted where all of a pair may, else to infinity.
    """
    pair, inverse, count = np.unique(task_class * groups + group, return_inverse=True, return_counts=True)
    mean = np.bincount(inverse, weights=stay, minlength=len(pair)) / count
    price = np.bincount(inverse, weights=evict, minlength=len(pair)) / count
    some = np.isfinite(least_gain)
    level = np.where(least_gain[some] > 0.0, np.floor(np.log2(np.maximum(least_gain[some], 1e-12))), -64.0)
    code, of_code = np.unique(inverse[some] * 256 + (level.astype(np.int64) + 128).clip(0, 255), return_inverse=True)
    least = np.full(len(code), np.inf)
    np.minimum.at(least, of_code, least_gain[some])
    return Residents(
        pair // groups,
        pair % groups,
        count,
        mean,
        price,
        code // 256,
        np.bincount(of_code, minlength=len(code)),
        least,
    )


def build_full_network(
    cluster: ClusterRows, compaction: Compaction, residents: Residents, waiting: Waiting, readings: FloatArray
) -> FullNetwork:
    """The network of residents and waiting tasks at the compaction's state; ``readings``: the mean by group.

    The compaction counts the room that there is without the residents. Raises ``ValueError`` if prices are so far apart
    that integers cannot hold them.
    """
    classes = np.union1d(residents.task_class, waiting.classes)
    groups = np.flatnonzero(compaction.members)
    at_class = np.searchsorted(classes, residents.task_class)
    at_group = np.searchsorted(groups, residents.group)
    at_waiting = np.searchsorted(classes, waiting.classes)
    widths = np.array([cluster.classes[c].width_milli for c in classes.tolist()], dtype=np.int64)
    units = np.maximum(1, widths // compaction.unit)
    tasks = np.bincount(at_class, weights=residents.count, minlength=len(classes)).astype(np.int64)
    leaving = np.bincount(at_class[residents.step_pair], weights=residents.step_count, minlength=len(classes)).astype(
        np.int64
    )
    leaving[at_waiting] += waiting.counts
    tasks[at_waiting] += waiting.counts
    total = int((tasks * units).sum())

    # Nodes: the sink, classes, classes as they wait, classes in groups, tiers, gates.
    pairs, tiers = len(residents.count), len(compaction.tier_widths)
    hub = 1 + np.arange(len(classes))
    waits = 1 + len(classes) + np.arange(len(waiting.classes))
    runs = 1 + len(classes) + len(waits) + np.arange(pairs)
    chains = 1 + len(classes) + len(waits) + pairs
    tier_node = chains + np.arange(len(groups) * tiers).reshape(len(groups), tiers)
    gate_node = chains + len(groups) * tiers + np.arange(len(groups))
    nodes = chains + len(groups) * (tiers + 1)

    # By group: where classes of each tier enter, and those that ask for no CPU.
    entry = np.hstack([tier_node, gate_node[:, None]])
    level = tier_of(widths, compaction.tier_widths)

    prices = compaction.prices_at(classes, groups, readings[groups])
    slots = compaction.slots[compaction.shape_of[classes]][:, groups]
    to_class, to_group = np.nonzero((slots > 0) & np.isfinite(prices) & (leaving > 0)[:, None])
    place = prices[to_class, to_group]
    room = np.minimum(slots[to_class, to_group], leaving[to_class])

    load = np.zeros((len(groups), tiers + 1))
    per_pair = (residents.count * units[at_class]).astype(np.float64)
    np.add.at(load, (at_group, level[at_class]), per_pair)
    load_to = np.cumsum(load, axis=1).astype(np.int64)
    # A running task can stay, also where a machine has become smaller than what runs there.
    tier_capacity = np.maximum(compaction.tiers[groups], load_to[:, :tiers])

    ladder_capacity, ladder_cost = _ladder(cluster, compaction, classes, tasks, units, groups, load_to[:, -1], total)
    step_class = at_class[residents.step_pair]
    level_class, level_count, level_cost = waiting.levels
    level_at = at_waiting[level_class]
    finite_stay = np.where(np.isfinite(residents.stay), residents.stay, 0.0)
    worst = float(place.max(initial=0.0)) + float(finite_stay.max(initial=0.0))
    worst += float(np.abs(ladder_cost).max(initial=0.0)) * float(units.max(initial=1))
    # Finite costs of waiting say who waits; an infinite one need only be above them, and above any place.
    finite = np.isfinite(level_cost)
    beyond = 2.0 * worst + 1.0 + float(level_cost[finite].max(initial=0.0)) * float(units.max(initial=1))
    level_cost = np.where(finite, level_cost, beyond)
    may_evict = np.flatnonzero(np.isfinite(residents.evict))

    steps = 2 * RUNGS
    parts: list[tuple[IntArray, IntArray, IntArray, FloatArray]] = [
        (hub[to_class], entry[to_group, level[to_class]], room * units[to_class], place / units[to_class]),
        (
            runs[residents.step_pair],
            hub[step_class],
            residents.step_count * units[step_class],
            residents.step_price / units[step_class],
        ),
        (runs, entry[at_group, level[at_class]], residents.count * units[at_class], finite_stay / units[at_class]),
        (
            runs[may_evict],
            np.zeros(len(may_evict), dtype=np.int64),
            (residents.count * units[at_class])[may_evict],
            residents.evict[may_evict] / units[at_class][may_evict],
        ),
        (waits, hub[at_waiting], waiting.counts * units[at_waiting], np.zeros(len(waits))),
        (
            waits[level_class],
            np.zeros(len(level_class), dtype=np.int64),
            level_count * units[level_at],
            level_cost / units[level_at],
        ),
        (
            tier_node.reshape(-1),
            entry[:, 1:].reshape(-1),
            np.minimum(tier_capacity.reshape(-1), total),
            np.zeros(tier_node.size),
        ),
        (
            np.repeat(gate_node, steps),
            np.zeros(len(groups) * steps, dtype=np.int64),
            ladder_capacity.reshape(-1),
            ladder_cost.reshape(-1),
        ),
    ]
    tails, heads, capacities, costs = (np.concatenate(column) for column in zip(*parts, strict=True))
    supplies = np.zeros(nodes, dtype=np.int64)
    supplies[runs] = residents.count * units[at_class]
    supplies[waits] = waiting.counts * units[at_waiting]
    supplies[0] = -int(supplies.sum())
    scale = cost_scale(float(np.abs(costs).max(initial=0.0)), total, nodes)
    network = Network(tails, heads, capacities, np.rint(costs * scale).astype(np.int64), supplies, scale)
    return FullNetwork(
        network,
        classes[to_class],
        groups[to_group],
        units[to_class],
        classes[step_class],
        residents.group[residents.step_pair],
        units[step_class],
    )


def mean_readings(compaction: Compaction, readings: IntArray) -> FloatArray:
    """Mean of each reading over the machines of each group."""
    there: BoolArray = compaction.group_of >= 0
    groups = compaction.group_of[there]
    count = np.maximum(1, np.bincount(groups, minlength=compaction.groups))
    columns = [
        np.bincount(groups, weights=readings[there, f] / FIXED, minlength=compaction.groups) / count
        for f in range(readings.shape[1])
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((compaction.groups, 0))


def _ladder(
    cluster: ClusterRows,
    compaction: Compaction,
    classes: IntArray,
    tasks: IntArray,
    units: IntArray,
    groups: IntArray,
    load: IntArray,
    total: int,
) -> tuple[IntArray, FloatArray]:
    """Capacities and unit costs of every group's steps, below and above its present load."""
    per_unit = crowding_per_unit(cluster, compaction, classes, tasks, units, groups)
    members = np.maximum(1, compaction.members[groups])
    edges = (np.arange(RUNGS + 1) * load[:, None]) // RUNGS
    below = np.diff(edges, axis=1)
    most = compaction.tiers[groups][:, -1] if compaction.tiers.shape[1] else np.zeros(len(groups), dtype=np.int64)
    above = np.broadcast_to((np.maximum(0, most - load) // RUNGS + 1)[:, None], below.shape)
    capacity = np.hstack([below, above])
    middle = np.cumsum(capacity, axis=1) - capacity / 2.0 - load[:, None]
    cost = per_unit[:, None] * middle / members[:, None]
    capacity = np.minimum(capacity, total)
    capacity[:, -1] = total
    return capacity, cost

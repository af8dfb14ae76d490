"""The network of a round at linear prices.

    class --price--> (group, tier of its width) -> (group, next narrower tier) -> ... -> group --ladder--> sink
    class --waiting, by age--> unscheduled -> sink

Flow is counted in units of CPU, the greatest common divisor of the widths; a task that asks for no CPU is one unit. What
tasks of the same round do to each other stands once on the machine side, as a ladder whose steps rise, never once per class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.machine_arrays import FIXED
from flowsched.network.network import Network
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.machine_groups import RUNGS, Compaction, tier_of
from flowsched.round.linear.restricted import RestrictedClasses
from flowsched.round.linear.waiting import Waiting
from flowsched.support.arrays import FloatArray, IntArray

_COST_BITS = 34
_TOTAL_BITS = 60
TIE = 1e-6
"""What a machine that is full costs over one that is empty, where ties spread tasks: it decides between equal prices."""


@dataclass(frozen=True, eq=False)
class ScaleNetwork:
    """The network of some classes, with what is needed to read a flow back."""

    network: Network
    classes: IntArray
    """Class of each class node, ascending; their nodes are 1, 2, ... in that order, and 0 is the sink."""
    groups: IntArray
    """Groups that have nodes."""
    arc_class: IntArray
    """Position in ``classes`` of each of the first arcs, which run from classes to groups."""
    arc_group: IntArray
    """Group of each of them."""
    units: IntArray
    """Units of one task of each class in ``classes``."""
    tier_widths: tuple[int, ...]
    ladder_from: int
    """The first arc of the ladders; those of waiting follow them."""
    waiting_from: int
    waiting_to: int
    """One beyond the last of them; then each class has one from its unscheduled node to the sink."""
    domain_class: IntArray
    """Position in ``classes`` of the class of each domain node; these are the last nodes. The last arcs run from their
    classes to them: one for what each may take in all, and one for what it may take on top."""
    domain: IntArray
    """Domain of each of them, as the class's relation numbers them."""

    def whole_tasks(self, flow: IntArray, classes: int, groups: int) -> IntArray:
        """Tasks by class and group, of so many of each: the flow floored, and parts of tasks made whole.

        A class's parts go where the largest ones were; packing puts back what has no room there.
        """
        wanted = np.zeros((classes, groups), dtype=np.int64)
        arcs = len(self.arc_class)
        if not arcs:
            return wanted
        units = self.units[self.arc_class]
        tasks = flow[:arcs] // units
        part = flow[:arcs] - tasks * units
        if part.any():
            whole = (
                np.bincount(self.arc_class, weights=part, minlength=len(self.classes)).astype(np.int64) // self.units
            )
            order = np.lexsort((-part, self.arc_class))
            first = np.searchsorted(self.arc_class, self.arc_class)
            rank = np.empty(arcs, dtype=np.int64)
            rank[order] = np.arange(arcs) - first[order]
            tasks = tasks + ((rank < whole[self.arc_class]) & (part > 0))
        wanted[self.classes[self.arc_class], self.arc_group] = tasks
        return wanted

    def kinds(self) -> dict[str, int]:
        """Nodes and arcs by what they stand for."""
        classes, groups, domains = len(self.classes), len(self.groups), len(self.domain_class)
        tiers = groups * len(self.tier_widths)
        return {
            "nodes_sink": 1,
            "nodes_class": classes,
            "nodes_unscheduled": classes,
            "nodes_tier": tiers,
            "nodes_group": groups,
            "nodes_domain": domains,
            "arcs_class": len(self.arc_class),
            "arcs_tier": tiers,
            "arcs_crowding": self.waiting_from - self.ladder_from,
            "arcs_unscheduled": self.waiting_to - self.waiting_from + classes,
            "arcs_domain": 2 * domains,
        }

    def sizes(self) -> dict[str, int]:
        """Nodes and arcs, classes and groups."""
        return {
            "classes": len(self.classes),
            "groups": len(self.groups),
            "tiers": len(self.groups) * len(self.tier_widths),
            "domains": len(self.domain_class),
            "nodes": len(self.network.supplies),
            "arcs": self.network.arc_count,
        }


def build_network(
    cluster: ClusterRows,
    compaction: Compaction,
    waiting: Waiting,
    restricted: RestrictedClasses | None = None,
    tie: FloatArray | None = None,
) -> ScaleNetwork:
    """The network of the classes in ``waiting``, at the compaction's state.

    ``restricted``: what masks, wishes and relations change for some of them. ``tie``: by machine, the rank among equal ones
    if ties spread tasks.

    Raises ``ValueError`` if prices are so far apart that integers cannot hold them.
    """
    classes = waiting.classes
    widths = np.array([cluster.classes[c].width_milli for c in classes.tolist()], dtype=np.int64)
    units = np.maximum(1, widths // compaction.unit)
    counts = waiting.counts
    groups = compaction.active()
    slots = compaction.slots[compaction.shape_of[classes]][:, groups]
    cost = compaction.cost[classes][:, groups]
    if restricted is not None:
        slots[restricted.position] = restricted.slots[:, groups]
        cost[restricted.position] += restricted.extra[:, groups]
    dear = waiting.dearest[:, None]
    arc_class, column = np.nonzero((slots > 0) & (cost <= dear) & np.isfinite(cost))
    arc_group = groups[column]
    places = np.minimum(slots[arc_class, column], counts[arc_class])
    prices = cost[arc_class, column]

    tiers = len(compaction.tier_widths)
    class_node = 1 + np.arange(len(classes))
    idle_node = class_node + len(classes)
    tier_node = 1 + 2 * len(classes) + np.arange(len(groups) * tiers).reshape(len(groups), tiers)
    gate_node = 1 + 2 * len(classes) + len(groups) * tiers + np.arange(len(groups))
    domains_from = 1 + 2 * len(classes) + len(groups) * (tiers + 1)
    divided = _divided(restricted, groups, len(classes))
    nodes = domains_from + len(divided.task_class)

    # Tiers are ordered widest first; a class enters at the widest tier that is not wider than itself.
    chain = np.hstack([tier_node, gate_node[:, None]])
    entry = chain[column, tier_of(widths, compaction.tier_widths)[arc_class]]
    per_task = units[arc_class]
    total = int((counts * units).sum())

    ladder_capacity, crowding = _ladder(cluster, compaction, classes, counts, units, groups, total)
    ladder_cost = crowding
    if tie is not None:
        ladder_capacity, ladder_cost = _with_ties(compaction, groups, tie, units, counts, total, crowding)
    level_class, level_count, level_cost = waiting.levels
    # A tie between a place and waiting goes to the place, however full it is. Without that a class whose waiting costs as
    # much as its places would enter no domain, and packing would take the first machine for a gang that fits in another.
    same = np.isin(prices, level_cost)
    if same.any():
        pairs = set(zip(arc_class[same].tolist(), prices[same].tolist(), strict=True))
        tied = [pair in pairs for pair in zip(level_class.tolist(), level_cost.tolist(), strict=True)]
        per_unit = 2.0 * (TIE + float((ladder_cost - crowding).max(initial=0.0)))
        level_cost = level_cost + np.where(tied, per_unit * units[level_class], 0.0)
    worst = float(prices.max(initial=0.0)) + float(ladder_cost.max(initial=0.0)) * float(units.max(initial=1))
    # Finite costs of waiting say who waits; an infinite one need only be above them, and above any place.
    finite = np.isfinite(level_cost)
    beyond = 2.0 * worst + 1.0 + float(level_cost[finite].max(initial=0.0)) * float(units.max(initial=1))
    level_cost = np.where(finite, level_cost, beyond)

    through = divided.node_of[arc_class, column]
    dearest = np.full(len(classes), worst)
    np.maximum.at(dearest, level_class, level_cost)
    # Dearer than any difference between places, so that no domain gets more than its share before all have theirs.
    patience = np.minimum(dearest / 2.0, 2.0 * (worst + 0.125))[divided.task_class] / units[divided.task_class]
    domain_node = domains_from + np.arange(len(divided.task_class))
    tails = [
        np.where(through >= 0, domains_from + through, class_node[arc_class]),
        tier_node.reshape(-1),
        np.repeat(gate_node, RUNGS),
        class_node[level_class],
        idle_node,
        class_node[divided.task_class],
        class_node[divided.task_class],
    ]
    heads = [
        entry,
        chain[:, 1:].reshape(-1),
        np.zeros(len(groups) * RUNGS, dtype=np.int64),
        idle_node[level_class],
        np.zeros(len(classes), dtype=np.int64),
        domain_node,
        domain_node,
    ]
    capacities = [
        places * per_task,
        np.minimum(compaction.tiers[groups].reshape(-1), total),
        ladder_capacity.reshape(-1),
        level_count * units[level_class],
        np.full(len(classes), total, dtype=np.int64),
        divided.places * units[divided.task_class],
        divided.later * units[divided.task_class],
    ]
    costs = np.concatenate(
        [
            prices / per_task,
            np.zeros(len(groups) * tiers),
            ladder_cost.reshape(-1),
            level_cost / units[level_class],
            np.zeros(len(classes)),
            np.zeros(len(patience)),
            patience,
        ]
    )
    supplies = np.zeros(nodes, dtype=np.int64)
    supplies[class_node] = counts * units
    supplies[0] = -total
    scale = cost_scale(float(costs.max(initial=0.0)), total, nodes)
    tail, head, capacity = (np.concatenate(column) for column in (tails, heads, capacities))
    network = Network(tail, head, capacity, np.rint(costs * scale).astype(np.int64), supplies, scale)
    ladder_from = len(arc_class) + tier_node.size
    return ScaleNetwork(
        network,
        classes,
        groups,
        arc_class,
        arc_group,
        units,
        compaction.tier_widths,
        ladder_from,
        ladder_from + len(groups) * RUNGS,
        ladder_from + len(groups) * RUNGS + len(level_class),
        divided.task_class,
        divided.domain,
    )


@dataclass(frozen=True, eq=False)
class _Divided:
    """Domain nodes of all classes that are divided among domains."""

    task_class: IntArray
    """By node: position of its class."""
    domain: IntArray
    places: IntArray
    later: IntArray
    node_of: IntArray
    """By position of a class and of a group: the node that the class passes on its way there; -1 for none."""


def _divided(restricted: RestrictedClasses | None, groups: IntArray, classes: int) -> _Divided:
    none = np.zeros(0, dtype=np.int64)
    parts = [(none, none, none, none)]
    node_of = np.full((classes, len(groups)), -1, dtype=np.int64)
    count = 0
    if restricted is not None:
        for position, domains in zip(restricted.position.tolist(), restricted.domains, strict=True):
            if domains is None:
                continue
            here = domains.of_group[groups]
            node_of[position] = np.where(here >= 0, count + here, -1)
            many = len(domains.places)
            parts.append((np.full(many, position), np.arange(many), domains.places, domains.later))
            count += many
    columns = [np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)]
    return _Divided(columns[0], columns[1], columns[2], columns[3], node_of)


def _with_ties(
    compaction: Compaction,
    groups: IntArray,
    tie: FloatArray,
    units: IntArray,
    counts: IntArray,
    total: int,
    cost: FloatArray,
) -> tuple[IntArray, FloatArray]:
    """The ladder with the rank of groups among equal ones: emptier groups first, and evenly as tasks come."""
    there = np.flatnonzero(compaction.group_of >= 0)
    size = np.maximum(1, np.bincount(compaction.group_of[there], minlength=compaction.groups))
    load = np.bincount(compaction.group_of[there], weights=tie[there], minlength=compaction.groups) / size
    usual = max(1, compaction.usual_milli // compaction.unit)
    task = max(1.0, float((units * counts).sum()) / max(1, int(counts.sum())))
    steps = np.arange(RUNGS)
    stepped = np.minimum(compaction.rungs[groups] * usual, total)
    stepped[:, -1] = total
    return stepped, cost + TIE * (load[groups][:, None] + steps[None, :] / RUNGS) / task


def cost_scale(largest: float, total: int, nodes: int) -> float:
    """A power of two that keeps costs, and their sum over a whole flow, in the range that solvers take."""
    if largest <= 0.0:
        return 1.0
    bits = min(_COST_BITS, _TOTAL_BITS - int(max(total, nodes)).bit_length())
    power = bits - int(np.ceil(np.log2(largest))) - 1
    if power < -20:
        raise ValueError(f"a price of {largest:g} is beyond what a network can hold; prices should be below 1e9")
    return float(2.0 ** min(power, 40))


def crowding_per_unit(
    cluster: ClusterRows,
    compaction: Compaction,
    classes: IntArray,
    tasks: IntArray | FloatArray,
    units: IntArray,
    groups: IntArray,
) -> FloatArray:
    """By group: what a unit of flow costs more for each that is there, on average over so many ``tasks`` of each class."""
    flow = max(1.0, float((tasks * units).sum()))
    coefficients = cluster.classes.table().coefficients[classes]
    effects = cluster.classes.effects[classes] / FIXED
    pair = (tasks @ coefficients) * (tasks @ effects) / (flow * flow)
    return cluster.classes.factors[compaction.kind[groups]] @ pair if pair.size else np.zeros(len(groups))


def _ladder(
    cluster: ClusterRows,
    compaction: Compaction,
    classes: IntArray,
    counts: IntArray,
    units: IntArray,
    groups: IntArray,
    total: int,
) -> tuple[IntArray, FloatArray]:
    """Capacities and unit costs of every group's steps.

    A unit that comes to a machine costs more by what the units that came before it in the same round do to it: on average
    over the tasks that wait, since which of them meet is not known yet. Where all cost alike per unit, as with convex
    machine costs, that is exact.
    """
    per_unit = crowding_per_unit(cluster, compaction, classes, counts.astype(np.float64), units, groups)
    usual = max(1, compaction.usual_milli // compaction.unit)
    steps = np.arange(RUNGS)
    cost = per_unit[:, None] * (steps * usual)[None, :]
    capacity = np.minimum(compaction.rungs[groups] * usual, total)
    capacity[:, -1] = total
    capacity = np.where(per_unit[:, None] > 0.0, capacity, np.where(steps == 0, total, 0)[None, :])
    return capacity, cost

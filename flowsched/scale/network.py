"""The network of a round at cluster scale.

    class --price--> (group, tier of its width) -> (group, next narrower tier) -> ... -> group --ladder--> sink
    class --waiting, by age--> unscheduled -> sink

Flow is counted in units of CPU, the greatest common divisor of the widths; a task that asks for no CPU is one unit. What
tasks of the same round do to each other stands once on the machine side, as a ladder whose steps rise, never once per class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.arrays import FloatArray, IntArray
from flowsched.network import Network
from flowsched.scale.compaction import RUNGS, Compaction
from flowsched.scale.ledger import FIXED, Ledger
from flowsched.scale.waiting import Waiting

_COST_BITS = 34
_TOTAL_BITS = 60
_BEYOND = 1 << 40


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

    def sizes(self) -> dict[str, int]:
        """Nodes and arcs, classes and groups."""
        return {
            "classes": len(self.classes),
            "groups": len(self.groups),
            "tiers": len(self.groups) * len(self.tier_widths),
            "nodes": len(self.network.supplies),
            "arcs": self.network.arc_count,
        }


def build_network(ledger: Ledger, compaction: Compaction, waiting: Waiting) -> ScaleNetwork:
    """The network of the classes in ``waiting``, at the compaction's state.

    Raises ``ValueError`` if prices are so far apart that integers cannot hold them.
    """
    classes = waiting.classes
    widths = np.array([ledger.classes[c].width_milli for c in classes.tolist()], dtype=np.int64)
    units = np.maximum(1, widths // compaction.unit)
    counts = waiting.counts
    groups = compaction.active()
    slots = compaction.slots[compaction.shape_of[classes]][:, groups]
    cost = compaction.cost[classes][:, groups]
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
    nodes = 1 + 2 * len(classes) + len(groups) * (tiers + 1)

    # Tiers are ordered widest first; a class enters at the widest tier that is not wider than itself.
    tier_of = np.searchsorted(-np.array(compaction.tier_widths, dtype=np.int64), -widths)
    entry = gate_node[column]
    if tiers:
        inside = np.minimum(tier_of[arc_class], tiers - 1)
        entry = np.where(widths[arc_class] > 0, tier_node[column, inside], entry)
    per_task = units[arc_class]
    total = int((counts * units).sum())

    chain = np.hstack([tier_node[:, 1:], gate_node[:, None]]) if tiers else np.zeros((len(groups), 0), dtype=np.int64)
    ladder_capacity, ladder_cost = _ladder(ledger, compaction, classes, counts, units, groups, total)
    level_class, level_count, level_cost = waiting.levels
    worst = float(prices.max(initial=0.0)) + float(ladder_cost.max(initial=0.0)) * float(units.max(initial=1))
    # Finite costs of waiting say who waits; an infinite one need only be above them, and above any place.
    finite = np.isfinite(level_cost)
    beyond = 2.0 * worst + 1.0 + float(level_cost[finite].max(initial=0.0)) * float(units.max(initial=1))
    level_cost = np.where(finite, level_cost, beyond)

    tails = [
        class_node[arc_class],
        tier_node.reshape(-1),
        np.repeat(gate_node, RUNGS),
        class_node[level_class],
        idle_node,
    ]
    heads = [
        entry,
        chain.reshape(-1),
        np.zeros(len(groups) * RUNGS, dtype=np.int64),
        idle_node[level_class],
        np.zeros(len(classes), dtype=np.int64),
    ]
    capacities = [
        places * per_task,
        np.minimum(compaction.tiers[groups].reshape(-1), total),
        ladder_capacity.reshape(-1),
        level_count * units[level_class],
        np.full(len(classes), total, dtype=np.int64),
    ]
    costs = np.concatenate(
        [
            prices / per_task,
            np.zeros(len(groups) * tiers),
            ladder_cost.reshape(-1),
            level_cost / units[level_class],
            np.zeros(len(classes)),
        ]
    )
    supplies = np.zeros(nodes, dtype=np.int64)
    supplies[class_node] = counts * units
    supplies[0] = -total
    scale = cost_scale(float(costs.max(initial=0.0)), total, nodes)
    network = Network(
        np.concatenate(tails),
        np.concatenate(heads),
        np.concatenate(capacities),
        np.rint(costs * scale).astype(np.int64),
        supplies,
        scale,
    )
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
    )


def cost_scale(largest: float, total: int, nodes: int) -> float:
    """A power of two that keeps costs, and their sum over a whole flow, in the range that solvers take."""
    if largest <= 0.0:
        return 1.0
    bits = min(_COST_BITS, _TOTAL_BITS - int(max(total, nodes)).bit_length())
    power = bits - int(np.ceil(np.log2(largest))) - 1
    if power < -20:
        raise ValueError(f"a price of {largest:g} is beyond what a network can hold; prices should be below 1e9")
    return float(2.0 ** min(power, 40))


def _ladder(
    ledger: Ledger,
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
    tasks = counts.astype(np.float64)
    flow = float((tasks * units).sum())
    coefficients = ledger.table().coefficients[classes]
    effects = ledger.effects[classes] / FIXED
    pair = (tasks @ coefficients) * (tasks @ effects) / (flow * flow)
    per_unit = ledger.factors[compaction.kind[groups]] @ pair if pair.size else np.zeros(len(groups))
    usual = max(1, compaction.usual_milli // compaction.unit)
    steps = np.arange(RUNGS)
    cost = per_unit[:, None] * (steps * usual)[None, :]
    capacity = np.minimum(compaction.rungs[groups] * usual, total)
    capacity[:, -1] = total
    capacity = np.where(per_unit[:, None] > 0.0, capacity, np.where(steps == 0, total, 0)[None, :])
    return capacity, cost

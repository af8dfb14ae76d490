"""A network by what its nodes and arcs stand for, whatever their numbers: for comparison with one that was built anew."""

from __future__ import annotations

from collections.abc import Hashable

from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.machine_groups import RUNGS, Compaction
from flowsched.round.linear.network import ScaleNetwork
from flowsched.round.linear.waiting import Waiting

Key = tuple[Hashable, ...]


def canonical_network(
    cluster: ClusterRows, compaction: Compaction, waiting: Waiting, built: ScaleNetwork
) -> dict[str, list[tuple[object, ...]]]:
    """Sorted nodes as (key, supply) and arcs as (tail, head, capacity, unit cost), and the scale of costs.

    A class is known by all that is in it, a group by its kind of machines and its buckets, a tier by its narrowest width:
    equal networks give equal lists, however their classes, groups and machines are numbered.
    """
    key = _node_keys(cluster, compaction, built)
    network = built.network
    level_count = len(waiting.levels[0])
    steps: list[int] = [0] * network.arc_count
    for arc in range(built.ladder_from, built.waiting_from):
        steps[arc] = (arc - built.ladder_from) % RUNGS
    for i, arc in enumerate(range(built.waiting_from, built.waiting_from + level_count)):
        steps[arc] = i - int((waiting.levels[0] < waiting.levels[0][i]).sum())
    nodes = [(key[n], supply) for n, supply in enumerate(network.supplies.tolist())]
    columns = (network.tails, network.heads, network.capacities, network.unit_costs)
    arcs = [
        (key[tail], key[head], steps[i], capacity, cost)
        for i, (tail, head, capacity, cost) in enumerate(zip(*(c.tolist() for c in columns), strict=True))
    ]
    return {"nodes": sorted(nodes, key=repr), "arcs": sorted(arcs, key=repr), "scale": [(network.cost_scale,)]}


def _node_keys(cluster: ClusterRows, compaction: Compaction, built: ScaleNetwork) -> list[Key]:
    """What every node stands for, by its number."""
    keys: list[Key] = [("sink",)]
    classes = [cluster.classes[c] for c in built.classes.tolist()]
    keys += [("class", c) for c in classes]
    keys += [("unscheduled", c) for c in classes]
    groups: list[Key] = []
    for g in built.groups.tolist():
        kind, *buckets = compaction.keys[g]
        groups.append((cluster.machines.kinds[kind], *buckets))
    keys += [("tier", *group, width) for group in groups for width in built.tier_widths]
    keys += [("gate", *group) for group in groups]
    return keys

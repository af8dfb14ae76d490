"""What the network of groups says about a class: where it was sent, and what the cores of a group are worth there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.graph import Graph
from flowsched.inspector.record_view import Part


def class_facts(part: Part, task_class: str, tasks: int) -> dict[str, Any] | None:
    """What became of a class; None where it is not in the network.

    ``class``, ``tasks``, ``placed`` (how many of them the round placed in the end), ``sent`` (tasks that the first network
    sent to machines; it may spread one), ``groups`` (how many groups got some), ``waiting`` (tasks that it left: later
    networks and packing may have placed them), and ``closest``: the unused arc that missed by least, with its ``group``,
    ``cost`` and ``reduced_cost``, per task.
    """
    graph = part.first
    node = graph.node("class", task_class)
    if node is None:
        return None
    sent, waiting, groups = 0.0, 0.0, set()
    closest: tuple[float, int] | None = None
    for arc in _offers(graph, node):
        carried = float(graph.flow[arc] / max(1, int(graph.units[arc])))
        if graph.kinds[graph.heads[arc]] == "unscheduled":
            waiting += carried
            continue
        sent += carried
        if carried:
            groups.add(group_name(graph, int(graph.heads[arc])))
        elif (missed := _reduced(graph, arc)) is not None and (closest is None or missed < closest[0]):
            closest = missed, arc
    return {
        "class": task_class,
        "tasks": tasks,
        "placed": sum(part.class_of.get(p.task) == task_class for p in part.placements),
        "sent": sent,
        "groups": len(groups),
        "waiting": waiting,
        "closest": None
        if closest is None
        else {
            "group": group_name(graph, int(graph.heads[closest[1]])),
            "cost": graph.cost(closest[1]),
            "reduced_cost": closest[0],
        },
    }


def dual_price(part: Part, task_class: str, machine: str, width_milli: int) -> dict[str, Any] | None:
    """Price of a machine's cores for a class in the first network: ``per_core`` and ``per_task``, in units of cost.

    It is the sum of the dual prices of all tiers that a task of the class passes. None where they have none.
    """
    graph = part.first
    node = graph.node("class", task_class)
    group = part.group_of.get(machine)
    if node is None or group is None or not width_milli:
        return None
    try:
        reduced = graph.reduced_costs
    except ValueError:
        return None
    entry = next(
        (arc for arc in _offers(graph, node) if group_name(graph, int(graph.heads[arc])) == group),
        None,
    )
    if entry is None:
        return None
    price, at = 0, int(graph.heads[entry])
    while graph.kinds[at] == "tier":
        onward = int(graph.leaving(at)[0])
        price += max(0, -int(reduced[onward]))
        at = int(graph.heads[onward])
    if not price:
        return None
    per_task = graph.in_cost(price * int(graph.units[entry]))
    return {"machine": machine, "group": group, "per_core": per_task * MILLI / width_milli, "per_task": per_task}


def group_facts(part: Part, task: str) -> dict[str, Any] | None:
    """What there is to say about the task group of a task; None for one without, or whose group runs already."""
    group = part.task_group(task)
    if group is None:
        return None
    members, placed = list(group["members"]), {p.task for p in part.placements}
    return {
        "name": group["name"],
        "minimum": group["minimum"],
        "running": group["running"],
        "pending": len(members),
        "members": members,
        "starting": [m for m in members if m in placed],
        "missing": max(0, group["minimum"] - group["running"] - len(members)),
        "starts": group["starts"],
    }


def group_name(graph: Graph, node: int) -> str:
    """The group that a node of kind tier or group belongs to."""
    return graph.names[node].rsplit("/", 1)[0] if graph.kinds[node] == "tier" else graph.names[node]


def _offers(graph: Graph, node: int) -> Iterator[int]:
    """Arcs of a class to groups and to its unscheduled node, also those that pass a domain."""
    domains = set()
    for arc in graph.leaving(node).tolist():
        head = int(graph.heads[arc])
        if graph.kinds[head] != "domain":
            yield arc
        elif head not in domains:
            domains.add(head)
            yield from graph.leaving(head).tolist()


def _reduced(graph: Graph, arc: int) -> float | None:
    try:
        return graph.in_cost(int(graph.reduced_costs[arc]) * int(graph.units[arc]))
    except ValueError:
        return None

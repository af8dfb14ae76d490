"""A network of a record, and columns of placements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from flowsched.errors import ShapeError
from flowsched.records.record_shape.values import (
    NUMBERS,
    TEXTS,
    WHOLES,
    check_length,
    indices,
    is_number,
    object_with,
    shown,
    values_of,
)


def check_networks(part: Mapping[str, Any], where: str) -> None:
    """The networks that a part has, with their flows."""
    for name in ("first_network", "last_network"):
        network = part.get(name)
        if network is not None:
            _check_network(network, f"{where}.{name}")


def _check_network(network: Mapping[str, Any], where: str) -> None:
    _NETWORK(network, where)
    nodes, arcs = len(network["nodes"]), len(network["tails"])
    if len(network["supplies"]) != nodes:
        raise ShapeError(f"{where} has {nodes} nodes and {len(network['supplies'])} supplies")
    columns = {key: network[key] for key in ("heads", "capacities", "unit_costs", "units", "flow")}
    columns |= {f"terms.{term}": values for term, values in network["terms"].items()}
    columns |= network.get("columns", {})
    for key, values in columns.items():
        if len(values) != arcs:
            raise ShapeError(f"{where} has {arcs} arcs and {len(values)} values of {key}")
    for key in ("tails", "heads"):
        ends = np.asarray(network[key], dtype=np.int64)
        if arcs and not (int(ends.min()) >= 0 and int(ends.max()) < nodes):
            raise ShapeError(f"{where} has an arc to a node that is not there")
    if not network["cost_scale"] > 0:
        raise ShapeError(f"{where}.cost_scale must be more than 0")


def check_columns(part: Mapping[str, Any], where: str, machines: int, tasks: Collection[str]) -> None:
    """The columns of placements, and that every task that is named is in a demand."""
    placements = part["placements"]
    count = len(placements["task"])
    columns = {key: placements[key] for key in ("machine", "cost", "runner_up", "runner_up_cost")}
    columns |= {key: placements[key] for key in ("believed",) if key in placements}
    columns |= {f"terms.{term}": values for term, values in placements["terms"].items()}
    for key, values in columns.items():
        check_length(values, count, f"{where}.placements.{key}", "task")
    indices(placements["machine"], f"{where}.placements.machine", machines)
    indices(placements["runner_up"], f"{where}.placements.runner_up", machines, -1)
    named = [(f"placements.task[{i}]", task) for i, task in enumerate(placements["task"])]
    named += [(f"left[{i}].tasks", task) for i, entry in enumerate(part["left"]) for task in entry["tasks"]]
    for there, task in named:
        if task not in tasks:
            raise ShapeError(f"{where}.{there} is {shown(task)}, which is in none of the demands")


_NETWORK = object_with(
    {
        "nodes": TEXTS,
        "supplies": WHOLES,
        "tails": WHOLES,
        "heads": WHOLES,
        "capacities": WHOLES,
        "unit_costs": WHOLES,
        "units": WHOLES,
        "flow": WHOLES,
        "terms": values_of(NUMBERS),
        "cost_scale": is_number,
    },
    {"columns": values_of(WHOLES)},
)

"""The part of a record that a wide round is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from flowsched.record_shape.network import check_columns, check_networks
from flowsched.record_shape.values import (
    COMMON,
    COMMON_OPTIONAL,
    FLAGS,
    LISTS,
    MOST_DOMAINS,
    MOST_ROUNDS,
    NUMBERS,
    OPEN_NUMBERS,
    TEXTS,
    WHOLES,
    ShapeError,
    at_most,
    check_length,
    check_once,
    indices,
    is_count,
    is_number,
    is_text,
    is_whole,
    list_of,
    object_with,
    or_null,
    shown,
    values_of,
)
from flowsched.wide_board import STATE


def check_wide_part(part: Mapping[str, Any], where: str) -> None:
    """A part of kind ``wide``. Raises :class:`ShapeError`."""
    _WIDE_PART(part, where)
    check_networks(part, where)
    fleet, demands = part["fleet"], part["demands"]
    machines = len(fleet["machines"])
    group_of = indices(part["group_of"], f"{where}.group_of", machines)
    check_length(part["group_of"], machines, f"{where}.group_of", "machine")
    if machines and len(np.unique(group_of)) != int(group_of.max()) + 1:
        raise ShapeError(f"{where}.group_of leaves out a number: every group has a machine")
    if "resources" in fleet:
        _FLEET(fleet, f"{where}.fleet")
        _check_fleet(fleet, f"{where}.fleet")
        known = {r["name"] for r in fleet["relations"]}
        groups = {g["name"] for g in part.get("task_groups", ())}
        for i, demand in enumerate(demands):
            _check_demand(demand, f"{where}.demands[{i}]", machines, known, groups)
    check_once([demand["tasks"] for demand in demands], f"{where}.demands")
    check_columns(part, where, machines, {task for demand in demands for task in demand["tasks"]})
    if "waiting_costs" in part:
        check_length(part["waiting_costs"], len(demands), f"{where}.waiting_costs", "demand")


def _check_fleet(fleet: Mapping[str, Any], where: str) -> None:
    machines, resources = len(fleet["machines"]), len(fleet["resources"])
    if len(set(fleet["machines"])) != machines:
        raise ShapeError(f"{where}.machines has a name twice")
    for name in STATE:
        values = fleet[name]
        check_length(values, machines, f"{where}.{name}", "machine")
        if name in ("allocatable", "free"):
            for i, row in enumerate(values):
                WHOLES(row, f"{where}.{name}[{i}]")
                check_length(row, resources, f"{where}.{name}[{i}]", "resource")
    for i, relation in enumerate(fleet["relations"]):
        there = f"{where}.relations[{i}]"
        for key in ("domain", "members", "holders"):
            check_length(relation[key], machines, f"{there}.{key}", "machine")
        indices(relation["domain"], f"{there}.domain", relation["domains"], -1)


def _check_demand(
    demand: Mapping[str, Any], where: str, machines: int, relations: Collection[str], groups: Collection[str]
) -> None:
    _DEMAND(demand, where)
    for key in ("allowed", "eligible", "preference", "slowness"):
        if demand[key] is not None:
            check_length(demand[key], machines, f"{where}.{key}", "machine")
    for key in ("holds", "joins"):
        for name in demand[key]:
            if name not in relations:
                raise ShapeError(f"{where}.{key} has {shown(name)}, which is none of the fleet's relations")
    if demand["group"] is not None and demand["group"] not in groups:
        raise ShapeError(f"{where}.group is {shown(demand['group'])}, which is none of the task groups")


_WIDE_PART = object_with(
    {
        **COMMON,
        "fleet": object_with({"machines": TEXTS}),
        "demands": list_of(object_with({"name": is_text, "tasks": TEXTS})),
        "group_of": WHOLES,
        "first_network": object_with({"nodes": TEXTS}),
        "placements": object_with(
            {
                "task": TEXTS,
                "machine": WHOLES,
                "cost": NUMBERS,
                "terms": values_of(NUMBERS),
                "runner_up": WHOLES,
                "runner_up_cost": OPEN_NUMBERS,
            }
        ),
        "left": list_of(object_with({"tasks": TEXTS, "cause": is_text, "text": is_text})),
    },
    {
        **COMMON_OPTIONAL,
        "task_groups": list_of(object_with({"name": is_text, "minimum": is_whole, "deadline_s": or_null(is_number)})),
        "running_members": values_of(is_count),
        "resolves": at_most(MOST_ROUNDS),
        "waiting_costs": OPEN_NUMBERS,
    },
)

_FLEET = object_with(
    {
        "machines": TEXTS,
        "resources": TEXTS,
        "allocatable": LISTS,
        "free": LISTS,
        "bandwidth": NUMBERS,
        "pressure_cap": WHOLES,
        "headroom_slope": NUMBERS,
        "sensitivity": WHOLES,
        "pressure": WHOLES,
        "fixed": is_whole,
        "relations": list_of(
            object_with(
                {
                    "name": is_text,
                    "kind": is_text,
                    "key": is_text,
                    "most": is_whole,
                    "skew": is_whole,
                    "min_domains": is_whole,
                    "domains": at_most(MOST_DOMAINS),
                    "domain": WHOLES,
                    "members": WHOLES,
                    "holders": WHOLES,
                }
            )
        ),
    }
)

_DEMAND = object_with(
    {
        "needs": values_of(is_whole),
        "allowed": or_null(FLAGS),
        "eligible": or_null(FLAGS),
        "preference": or_null(OPEN_NUMBERS),
        "slowness": or_null(OPEN_NUMBERS),
        "sensitivity": is_number,
        "pressure": is_number,
        "holds": TEXTS,
        "joins": TEXTS,
        "group": or_null(is_text),
        "waiting_cost": or_null(is_number),
        "max_cost": or_null(is_number),
    }
)

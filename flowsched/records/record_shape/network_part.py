"""The part of a record that one network of classes and groups decided: a bulk round, or a round of another cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flowsched.errors import ShapeError
from flowsched.records.record_shape.network import check_columns, check_networks
from flowsched.records.record_shape.values import (
    COMMON,
    COMMON_OPTIONAL,
    FLAGS,
    LISTS,
    MOST_ROUNDS,
    NUMBERS,
    OPEN_NUMBERS,
    TEXTS,
    WHOLES,
    Check,
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
    require,
    shown,
    values_of,
)
from flowsched.relations.relation import RelationKind


def check_network_part(part: Mapping[str, Any], where: str) -> None:
    """A part of kind ``network``. Raises :class:`ShapeError`."""
    _NETWORK_PART(part, where)
    if "given" in part:
        _BULK(part, where)
    check_networks(part, where)
    fleet, kinds, features = part["fleet"], len(part["kinds"]), len(part["features"])
    machines, resources = len(fleet["machines"]), len(fleet["resources"])
    if len(set(fleet["machines"])) != machines:
        raise ShapeError(f"{where}.fleet.machines has a name twice")
    for name, wide, check in (
        ("allocatable", resources, WHOLES),
        ("free", resources, WHOLES),
        ("readings", features, WHOLES),
        ("limits", features, OPEN_NUMBERS),
    ):
        _check_rows(fleet[name], f"{where}.fleet.{name}", machines, wide, check)
    check_length(fleet["kind"], machines, f"{where}.fleet.kind", "machine")
    indices(fleet["kind"], f"{where}.fleet.kind", kinds)
    check_length(part["group_of"], machines, f"{where}.group_of", "machine")
    group_of = indices(part["group_of"], f"{where}.group_of", len(part["groups"]))
    if len(np.unique(group_of)) != len(part["groups"]):
        raise ShapeError(f"{where}.group_of leaves out a number: every group has a machine")
    for i, kind in enumerate(part["kinds"]):
        check_length(kind["factors"], features, f"{where}.kinds[{i}].factors", "feature")
    for i, group in enumerate(part["groups"]):
        check_length(group["buckets"], features, f"{where}.groups[{i}].buckets", "feature")
    demands = [(f"{where}.demands[{i}]", demand) for i, demand in enumerate(part["demands"])]
    demands += [(f"{where}.outside[{i}]", demand) for i, demand in enumerate(part.get("outside", ()))]
    for there, demand in demands:
        if not len(demand["tasks"]):
            raise ShapeError(f"{there}.tasks is empty: a class has a task")
        for key, wanted, of in (
            ("created_s", len(demand["tasks"]), "task"),
            ("leaving", len(demand["tasks"]), "task"),
            ("amounts", resources, "resource"),
            ("base", kinds, "kind"),
            ("coefficients", features, "feature"),
            ("effects", features, "feature"),
        ):
            check_length(demand[key], wanted, f"{there}.{key}", of)
    _check_restrictions(part, demands, where, machines)
    check_once([demand["tasks"] for _, demand in demands], f"{where}.demands")
    check_columns(part, where, machines, {task for demand in part["demands"] for task in demand["tasks"]})
    for i, entry in enumerate(part["left"]):
        check_length(entry["costs"], len(entry["tasks"]), f"{where}.left[{i}].costs", "task")
    dual, classes = part["dual"], len(part["demands"])
    for name, wanted, of in (
        ("tier", classes, "demand"),
        ("units", classes, "demand"),
        ("alpha", classes, "demand"),
        ("crowding", machines, "machine"),
        ("tangent", machines, "machine"),
        ("constant", machines, "machine"),
        ("may_take", machines, "machine"),
    ):
        check_length(dual[name], wanted, f"{where}.dual.{name}", of)
    widths = {len(row) for row in dual["largest"]}
    if len(widths) > 1:
        raise ShapeError(f"{where}.dual.largest has rows of different lengths")
    for i, row in enumerate(dual["largest"]):
        WHOLES(row, f"{where}.dual.largest[{i}]")


def _check_restrictions(
    part: Mapping[str, Any], demands: Sequence[tuple[str, Mapping[str, Any]]], where: str, machines: int
) -> None:
    """Masks, wishes and relations, and the numbers of places in classes."""
    for i, places in enumerate(part["places"]):
        for key, values in places.items():
            if values is not None:
                check_length(values, machines, f"{where}.places[{i}].{key}", "machine")
    for i, relation in enumerate(part["relations"]):
        there = f"{where}.relations[{i}]"
        for key in ("domain", "members", "holders"):
            check_length(relation[key], machines, f"{there}.{key}", "machine")
        indices(relation["domain"], f"{there}.domain", machines, -1)
        if relation["kind"] not in set(RelationKind):
            raise ShapeError(f"{there}.kind is {shown(relation['kind'])}, which is no kind of relation")
    for there, demand in demands:
        if demand["class"]["places"] >= max(1, len(part["places"])):
            raise ShapeError(f"{there}.class.places is beyond the {len(part['places'])} places")


def _check_rows(values: Any, where: str, rows: int, wide: int, check: Check) -> None:
    require(isinstance(values, list | np.ndarray), where, "must be a list", values)
    check_length(values, rows, where, "machine")
    if isinstance(values, np.ndarray) and values.ndim == 2:
        check(values.reshape(-1), where)
        if rows:
            check_length(values[0], wide, f"{where}[0]", "column")
        return
    for i, row in enumerate(values):
        check(row, f"{where}[{i}]")
        check_length(row, wide, f"{where}[{i}]", "column")


TASK_CLASS = object_with(
    {
        "name": is_text,
        "width_milli": is_count,
        "needs": list_of(LISTS),
        "sensitivity": is_number,
        "pressure": is_number,
        "run_s": or_null(is_number),
        "priority": is_whole,
        "selector": list_of(LISTS),
        "slowness": list_of(LISTS),
        "interference_class": is_text,
        "group": is_text,
        "max_cost": or_null(is_number),
        "places": is_count,
    }
)

_DEMAND: Mapping[str, Check] = {
    "name": is_text,
    "number": is_count,
    "tasks": TEXTS,
    "created_s": NUMBERS,
    "leaving": NUMBERS,
    "needs": values_of(is_whole),
    "amounts": WHOLES,
    "class": TASK_CLASS,
    "base": OPEN_NUMBERS,
    "coefficients": NUMBERS,
    "effects": WHOLES,
    "waiting": or_null(is_number),
    "growth": is_number,
    "group": or_null(is_text),
    "holds": TEXTS,
    "joins": TEXTS,
}

_NETWORK_PART = object_with(
    {
        **COMMON,
        "features": list_of(object_with({"name": is_text, "bucket": is_number, "term": is_text})),
        "fixed": is_whole,
        "kinds": list_of(
            object_with(
                {
                    "type": is_text,
                    "labels": values_of(is_text),
                    "bandwidth": is_number,
                    "cores": is_number,
                    "factors": NUMBERS,
                }
            )
        ),
        "fleet": object_with(
            {
                "machines": TEXTS,
                "resources": TEXTS,
                "allocatable": LISTS,
                "free": LISTS,
                "kind": WHOLES,
                "readings": LISTS,
                "limits": LISTS,
            }
        ),
        "places": list_of(
            object_with(
                {
                    "allowed": or_null(FLAGS),
                    "eligible": or_null(FLAGS),
                    "slowness": or_null(OPEN_NUMBERS),
                    "preference": or_null(OPEN_NUMBERS),
                }
            )
        ),
        "relations": list_of(
            object_with(
                {
                    "name": is_text,
                    "kind": is_text,
                    "key": is_text,
                    "most": is_whole,
                    "skew": is_whole,
                    "min_domains": is_whole,
                    "domain": WHOLES,
                    "members": WHOLES,
                    "holders": WHOLES,
                }
            )
        ),
        "demands": list_of(object_with(_DEMAND)),
        "group_of": WHOLES,
        "groups": list_of(object_with({"kind": is_count, "buckets": WHOLES, "signature": is_count})),
        "first_network": object_with({"nodes": TEXTS}),
        "placements": object_with(
            {
                "task": TEXTS,
                "machine": WHOLES,
                "cost": NUMBERS,
                "believed": NUMBERS,
                "terms": values_of(NUMBERS),
                "runner_up": WHOLES,
                "runner_up_cost": OPEN_NUMBERS,
            }
        ),
        "left": list_of(object_with({"tasks": TEXTS, "cause": is_text, "text": is_text, "costs": NUMBERS})),
        "reservations": list_of(object_with({"task": is_text, "machine": is_text, "start_s": or_null(is_number)})),
        "dual": object_with(
            {
                "tier": WHOLES,
                "units": NUMBERS,
                "unit_milli": is_count,
                "largest": list_of(LISTS),
                "alpha": NUMBERS,
                "crowding": NUMBERS,
                "tangent": NUMBERS,
                "constant": NUMBERS,
                "may_take": FLAGS,
            }
        ),
    },
    {
        **COMMON_OPTIONAL,
        "outside": list_of(object_with({**_DEMAND, "reason": is_text})),
    },
)

_BULK = object_with(
    {
        "outside": list_of(object_with({})),
        "given": object_with(
            {
                "settings": object_with({"resolves": at_most(MOST_ROUNDS)}),
                "task_groups": list_of(
                    object_with({"name": is_text, "minimum": is_whole, "deadline_s": or_null(is_number)})
                ),
                "running_members": values_of(is_count),
            },
            {"cost_model": is_text, "now_s": is_number, "order": TEXTS, "decision": is_count},
        ),
    }
)
"""What a bulk part has beside: all that solving it again takes."""

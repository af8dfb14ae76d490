"""What a record must look like: kinds of values, lengths of columns, and indices and names that stand for something.

Files may have been edited by hand. Whatever reads a record after this may rely on all of it. Keys that are not named here
may hold anything: a later version may have more of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from flowsched.arrays import IntArray
from flowsched.wide_board import STATE

Check = Callable[[Any, str], None]
"""Looks at a value; the text says where it stands. Raises :class:`ShapeError`."""
_LEAST, _MOST = -(2**63), 2**63 - 1
_MOST_ROUNDS, _MOST_DOMAINS, _MOST_THREADS = 1000, 1 << 24, 1 << 16
_KINDS = ("search", "wide", "network")


class ShapeError(ValueError):
    """A value that is not what it must be; the message says which one and what it must be."""


def check_shape(record: Mapping[str, Any]) -> None:
    """Look at a whole record of version 2. Raises :class:`ShapeError`."""
    _HEAD(record, "")
    for i, part in enumerate(record["parts"]):
        where = f"parts[{i}]"
        _check(isinstance(part, Mapping), where, "must be an object", part)
        _has(part, "kind", where)
        if part["kind"] not in _KINDS:
            raise ShapeError(f"{where} is of kind {part['kind']}, which is none of {', '.join(_KINDS)}")
        {"search": _check_search, "wide": _check_wide, "network": _check_network_part}[part["kind"]](part, where)


def _check_search(part: Mapping[str, Any], where: str) -> None:
    _SEARCH(part, where)
    _check_networks(part, where)
    snapshot = part["snapshot"]
    machines = {m["name"] for m in snapshot["machines"]}
    tasks = {task for cls in part["classes"] for task in cls["members"]}
    for key in ("plan", "placements", "postponements", "reservations"):
        for i, entry in enumerate(part.get(key, ())):
            there = f"{where}.{key}[{i}]"
            if key != "reservations" and entry["task"] not in tasks:
                raise ShapeError(f"{there}.task is {_shown(entry['task'])}, which is in none of the classes")
            machine = entry.get("machine")
            if machine is not None and machine not in machines:
                raise ShapeError(f"{there}.machine is {_shown(machine)}, which is none of the snapshot's machines")
            if key == "plan":
                gaps = [entry[k] is None for k in ("machine", "slot", "width_milli")]
                if any(gaps) != all(gaps):
                    raise ShapeError(f"{there} has a machine, a slot or a width without the others")
    for i, group in enumerate(part["groups"]):
        for name in (group["machine"], *group["members"]):
            if name not in machines:
                raise ShapeError(f"{where}.groups[{i}] has {_shown(name)}, which is none of the snapshot's machines")
    for i, cls in enumerate(part["classes"]):
        if not len(cls["members"]):
            raise ShapeError(f"{where}.classes[{i}].members is empty: a class has a task")
    _check_once([cls["members"] for cls in part["classes"]], f"{where}.classes")


def _check_wide(part: Mapping[str, Any], where: str) -> None:
    _WIDE(part, where)
    _check_networks(part, where)
    fleet, demands = part["fleet"], part["demands"]
    machines = len(fleet["machines"])
    group_of = _indices(part["group_of"], f"{where}.group_of", machines)
    _length(part["group_of"], machines, f"{where}.group_of", "machine")
    if machines and len(np.unique(group_of)) != int(group_of.max()) + 1:
        raise ShapeError(f"{where}.group_of leaves out a number: every group has a machine")
    if "resources" in fleet:
        _FLEET(fleet, f"{where}.fleet")
        _check_fleet(fleet, f"{where}.fleet")
        known = {r["name"] for r in fleet["relations"]}
        groups = {g["name"] for g in part.get("task_groups", ())}
        for i, demand in enumerate(demands):
            _check_demand(demand, f"{where}.demands[{i}]", machines, known, groups)
    _check_once([demand["tasks"] for demand in demands], f"{where}.demands")
    _check_columns(part, where, machines, {task for demand in demands for task in demand["tasks"]})
    if "waiting_costs" in part:
        _length(part["waiting_costs"], len(demands), f"{where}.waiting_costs", "demand")


def _check_network_part(part: Mapping[str, Any], where: str) -> None:
    _NETWORK_PART(part, where)
    _check_networks(part, where)
    fleet, kinds, features = part["fleet"], len(part["kinds"]), len(part["features"])
    machines, resources = len(fleet["machines"]), len(fleet["resources"])
    if len(set(fleet["machines"])) != machines:
        raise ShapeError(f"{where}.fleet.machines has a name twice")
    for name, wide, check in (
        ("allocatable", resources, _WHOLES),
        ("free", resources, _WHOLES),
        ("readings", features, _WHOLES),
        ("limits", features, _OPEN_NUMBERS),
    ):
        _check_rows(fleet[name], f"{where}.fleet.{name}", machines, wide, check)
    _length(fleet["kind"], machines, f"{where}.fleet.kind", "machine")
    _indices(fleet["kind"], f"{where}.fleet.kind", kinds)
    _length(part["group_of"], machines, f"{where}.group_of", "machine")
    _indices(part["group_of"], f"{where}.group_of", len(part["groups"]))
    for i, kind in enumerate(part["kinds"]):
        _length(kind["factors"], features, f"{where}.kinds[{i}].factors", "feature")
    for i, group in enumerate(part["groups"]):
        _length(group["buckets"], features, f"{where}.groups[{i}].buckets", "feature")
    for i, demand in enumerate(part["demands"]):
        there = f"{where}.demands[{i}]"
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
            _length(demand[key], wanted, f"{there}.{key}", of)
    _check_once([demand["tasks"] for demand in part["demands"]], f"{where}.demands")
    _check_columns(part, where, machines, {task for demand in part["demands"] for task in demand["tasks"]})
    for i, entry in enumerate(part["left"]):
        _length(entry["costs"], len(entry["tasks"]), f"{where}.left[{i}].costs", "task")
    dual, classes = part["dual"], len(part["demands"])
    for name, wanted, of in (
        ("tier", classes, "demand"),
        ("units", classes, "demand"),
        ("alpha", classes, "demand"),
        ("crowding", machines, "machine"),
        ("tangent", machines, "machine"),
        ("may_take", machines, "machine"),
    ):
        _length(dual[name], wanted, f"{where}.dual.{name}", of)
    widths = {len(row) for row in dual["largest"]}
    if len(widths) > 1:
        raise ShapeError(f"{where}.dual.largest has rows of different lengths")
    for i, row in enumerate(dual["largest"]):
        _WHOLES(row, f"{where}.dual.largest[{i}]")


def _check_rows(values: Any, where: str, rows: int, wide: int, check: Check) -> None:
    _check(isinstance(values, list | np.ndarray), where, "must be a list", values)
    _length(values, rows, where, "machine")
    if isinstance(values, np.ndarray) and values.ndim == 2:
        check(values.reshape(-1), where)
        if rows:
            _length(values[0], wide, f"{where}[0]", "column")
        return
    for i, row in enumerate(values):
        check(row, f"{where}[{i}]")
        _length(row, wide, f"{where}[{i}]", "column")


def _check_columns(part: Mapping[str, Any], where: str, machines: int, tasks: Collection[str]) -> None:
    """The columns of placements, and that everybody who is named is there."""
    placements = part["placements"]
    count = len(placements["task"])
    columns = {key: placements[key] for key in ("machine", "cost", "runner_up", "runner_up_cost")}
    columns |= {key: placements[key] for key in ("believed",) if key in placements}
    columns |= {f"terms.{term}": values for term, values in placements["terms"].items()}
    for key, values in columns.items():
        _length(values, count, f"{where}.placements.{key}", "task")
    _indices(placements["machine"], f"{where}.placements.machine", machines)
    _indices(placements["runner_up"], f"{where}.placements.runner_up", machines, -1)
    named = [(f"placements.task[{i}]", task) for i, task in enumerate(placements["task"])]
    named += [(f"left[{i}].tasks", task) for i, entry in enumerate(part["left"]) for task in entry["tasks"]]
    for there, task in named:
        if task not in tasks:
            raise ShapeError(f"{where}.{there} is {_shown(task)}, which is in none of the demands")


def _check_once(members: Sequence[Collection[str]], where: str) -> None:
    if len({task for tasks in members for task in tasks}) != sum(map(len, members)):
        raise ShapeError(f"{where} have a task twice")


def _check_fleet(fleet: Mapping[str, Any], where: str) -> None:
    machines, resources = len(fleet["machines"]), len(fleet["resources"])
    if len(set(fleet["machines"])) != machines:
        raise ShapeError(f"{where}.machines has a name twice")
    for name in STATE:
        values = fleet[name]
        _length(values, machines, f"{where}.{name}", "machine")
        if name in ("allocatable", "free"):
            for i, row in enumerate(values):
                _WHOLES(row, f"{where}.{name}[{i}]")
                _length(row, resources, f"{where}.{name}[{i}]", "resource")
    for i, relation in enumerate(fleet["relations"]):
        there = f"{where}.relations[{i}]"
        for key in ("domain", "members", "holders"):
            _length(relation[key], machines, f"{there}.{key}", "machine")
        _indices(relation["domain"], f"{there}.domain", relation["domains"], -1)


def _check_demand(
    demand: Mapping[str, Any], where: str, machines: int, relations: Collection[str], groups: Collection[str]
) -> None:
    _DEMAND(demand, where)
    for key in ("allowed", "eligible", "preference", "slowness"):
        if demand[key] is not None:
            _length(demand[key], machines, f"{where}.{key}", "machine")
    for key in ("holds", "joins"):
        for name in demand[key]:
            if name not in relations:
                raise ShapeError(f"{where}.{key} has {_shown(name)}, which is none of the fleet's relations")
    if demand["group"] is not None and demand["group"] not in groups:
        raise ShapeError(f"{where}.group is {_shown(demand['group'])}, which is none of the task groups")


def _check_networks(part: Mapping[str, Any], where: str) -> None:
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


# Kinds of values


def _check(good: bool, where: str, must: str, value: Any) -> None:
    if not good:
        raise ShapeError(f"{where} {must}, not {_shown(value)}")


def _shown(value: Any) -> str:
    """A value in a message, as JSON would have it, short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple | np.ndarray):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:36]} …"


def _has(value: Mapping[str, Any], key: str, where: str) -> None:
    if key not in value:
        raise ShapeError(f"key '{key}' is missing" + (f" in {where}" if where else ""))


def _text(value: Any, where: str) -> None:
    _check(isinstance(value, str), where, "must be text", value)


def _flag(value: Any, where: str) -> None:
    _check(isinstance(value, bool), where, "must be true or false", value)


def _whole(value: Any, where: str) -> None:
    good = isinstance(value, int) and not isinstance(value, bool) and _LEAST <= value <= _MOST
    _check(good, where, "must be a whole number", value)


def _number(value: Any, where: str) -> None:
    _check(_finite(value), where, "must be a finite number", value)


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _quantity(value: Any, where: str) -> None:
    _check(isinstance(value, str | int | float) and not isinstance(value, bool), where, "must be a quantity", value)


def _count(value: Any, where: str) -> None:
    _whole(value, where)
    _check(value >= 0, where, "must not be negative", value)


def _up_to(most: int) -> Check:
    """A count that is worked through, or has an array: no more than anybody could mean."""

    def checked(value: Any, where: str) -> None:
        _count(value, where)
        _check(value <= most, where, f"must be at most {most}", value)

    return checked


def _or_null(check: Check) -> Check:
    def optional(value: Any, where: str) -> None:
        if value is not None:
            check(value, where)

    return optional


def _each(check: Check) -> Check:
    def checked(value: Any, where: str) -> None:
        _check(isinstance(value, list | tuple | np.ndarray), where, "must be a list", value)
        for i, item in enumerate(value):
            check(item, f"{where}[{i}]")

    return checked


def _values(check: Check) -> Check:
    def checked(value: Any, where: str) -> None:
        _check(isinstance(value, Mapping), where, "must be an object", value)
        for key, item in value.items():
            check(item, f"{where}.{key}")

    return checked


def _fields(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with keys, and others that it may have; what else it has does not matter."""
    more = optional or {}

    def checked(value: Any, where: str) -> None:
        _check(isinstance(value, Mapping), where, "must be an object", value)
        start = f"{where}." if where else ""
        for key, check in needed.items():
            _has(value, key, where)
            check(value[key], start + key)
        for key, check in more.items():
            if key in value:
                check(value[key], start + key)

    return checked


def _column(kinds: str, fits: Callable[[Any], bool], must: str) -> Check:
    """Many values at once: an array of some kinds, or a list."""

    def checked(value: Any, where: str) -> None:
        if isinstance(value, np.ndarray):
            if value.ndim != 1 or value.dtype.kind not in kinds:
                raise ShapeError(f"{where} must be a list in which each value {must}")
            value = () if value.dtype.kind in "biU" or np.isfinite(value).all() else value.tolist()
        _check(isinstance(value, list | tuple), where, "must be a list", value)
        for i, item in enumerate(value):
            if not fits(item):
                raise ShapeError(f"{where}[{i}] {must}, not {_shown(item)}")

    return checked


def _fits_whole(value: Any) -> bool:
    return type(value) is int and _LEAST <= value <= _MOST


def _fits_infinite(value: Any) -> bool:
    return value is None or _finite(value) or (isinstance(value, float) and not value < 0)


def _length(values: Any, wanted: int, where: str, of: str) -> None:
    if len(values) != wanted:
        raise ShapeError(f"{where} has {len(values)} values, and there are {wanted} of what it has one for: {of}s")


def _indices(values: Any, where: str, below: int, least: int = 0) -> IntArray:
    found: IntArray = np.asarray(values, dtype=np.int64)
    wrong = np.flatnonzero((found < least) | (found >= below))
    if len(wrong):
        first = int(wrong[0])
        raise ShapeError(f"{where}[{first}] is {int(found[first])}, which is beyond the {below} that there are")
    return found


def _task_class(value: Any, where: str) -> None:
    _CLASS(value, where)


def _running_class(value: Any, where: str) -> None:
    _CLASS(value, where)
    _fields({"effects": _WHOLES})(value, where)


_TEXTS = _column("U", lambda value: isinstance(value, str), "must be text")
_WHOLES = _column("i", _fits_whole, "must be a whole number")
_NUMBERS = _column("fi", _finite, "must be a finite number")
_OPEN_NUMBERS = _column("fi", _fits_infinite, "must be a number or null")
_FLAGS = _column("b", lambda value: isinstance(value, bool), "must be true or false")
_TERMS = _values(_number)

_HEAD = _fields(
    {
        "round": _whole,
        "now_s": _number,
        "policy": _text,
        "solver": _text,
        "settings": _values(lambda value, where: None if isinstance(value, str | bool) else _number(value, where)),
        "parts": _each(_fields({"kind": _text})),
    },
    {
        "writer": _text,
        "titles": _values(_text),
        "held": _each(_fields({"tasks": _TEXTS, "fate": _text, "message": _text, "counts": _values(_number)})),
        "timings": _values(_number),
        "waited": _values(_fields({"rounds": _count, "since_s": _number, "due_age_s": _number})),
        "counts": _values(_number),
        "upkeep": _values(_values(_count)),
        "task_groups": _values(_count),
        "running": _fields(
            {
                "classes": _each(_running_class),
                "task": _TEXTS,
                "machine": _TEXTS,
                "class": _WHOLES,
                "end_s": _OPEN_NUMBERS,
            }
        ),
        "before": _each(_fields({"task": _text, "machine": _text, "start_s": _number})),
        "outside": _each(_fields({"task": _text, "created_s": _number, "class": _task_class})),
        "machines": _TEXTS,
        "filters": _each(_fields({"tasks": _TEXTS, "reasons": _TEXTS, "verdict": _WHOLES})),
        "held_node": _or_null(_fields({"task": _text, "machine": _text, "priority": _whole})),
        "what_if": _fields({"changes": _TEXTS, "notes": _TEXTS}),
    },
)

_NETWORK = _fields(
    {
        "nodes": _TEXTS,
        "supplies": _WHOLES,
        "tails": _WHOLES,
        "heads": _WHOLES,
        "capacities": _WHOLES,
        "unit_costs": _WHOLES,
        "units": _WHOLES,
        "flow": _WHOLES,
        "terms": _values(_NUMBERS),
        "cost_scale": _number,
    },
    {"columns": _values(_WHOLES)},
)

_CERTIFICATE = _fields(
    {
        "method": _text,
        "primal": _number,
        "bound": _number,
        "unconstrained": _number,
        "gap_absolute": _number,
        "gap_relative": _number,
    },
    {"prices": _values(_number)},
)

_TASK = _fields(
    {
        "name": _text,
        "job": _text,
        "profile": _text,
        "scale": _number,
        "request": _quantity,
        "widths": _each(_quantity),
        "memory": _quantity,
        "submit_s": _number,
        "priority": _whole,
    },
    {
        "goal_s": _or_null(_number),
        "machines": _or_null(_TEXTS),
        "resources": _values(_whole),
        "holds": _TEXTS,
        "joins": _TEXTS,
        "group": _or_null(_text),
        "threads": _WHOLES,
        "min_utility": _or_null(_number),
        "endless": _flag,
        "rounds_waited": _count,
    },
)

_SNAPSHOT = _fields(
    {
        "now_s": _number,
        "round": _whole,
        "catalogue": _values(lambda value, where: None),  # noqa: ARG005 - its reader checks it
        "machines": _each(
            _fields(
                {
                    "name": _text,
                    "type": _text,
                    "cpu": _quantity,
                    "memory": _quantity,
                    "vcpus": _up_to(_MOST_THREADS),
                    "labels": _values(_text),
                },
                {"resources": _values(_whole)},
            )
        ),
        "services": _each(
            _fields(
                {
                    "name": _text,
                    "profile": _text,
                    "machine": _text,
                    "cores": _text,
                    "threads": _up_to(_MOST_THREADS),
                    "request": _quantity,
                    "memory": _quantity,
                    "qps": _number,
                    "slo_p95": _quantity,
                    "client": _text,
                }
            )
        ),
        "running": _each(
            _fields(
                {
                    "task": _TASK,
                    "machine": _text,
                    "width": _quantity,
                    "threads": _up_to(_MOST_THREADS),
                    "cores": _text,
                    "bound_s": _number,
                    "start_s": _number,
                    "progress": _number,
                }
            )
        ),
        "pending": _each(_TASK),
        "plan": _each(_fields({"task": _text, "machine": _text, "slot": _up_to(_MOST_ROUNDS), "width": _quantity})),
        "reservations": _each(_fields({"task": _text, "machine": _text, "width": _quantity, "start_s": _number})),
        "start_delay": _fields({"at_submission_s": _number, "after_waiting_s": _number}),
    },
    {
        "relations": _each(
            _fields(
                {"name": _text, "kind": _text},
                {"key": _text, "most": _whole, "skew": _whole, "min_domains": _whole},
            )
        ),
        "task_groups": _each(_fields({"name": _text, "minimum": _whole}, {"deadline_s": _or_null(_number)})),
        "share_service_cores": _flag,
    },
)

_COMMON: Mapping[str, Check] = {"counts": _values(_number), "certificate": _or_null(_CERTIFICATE)}
_COMMON_OPTIONAL: Mapping[str, Check] = {"priority": _or_null(_whole), "timings": _values(_number)}
_PLANNED = {"machine": _or_null(_text), "slot": _or_null(_up_to(_MOST_ROUNDS)), "width_milli": _or_null(_whole)}

_SEARCH = _fields(
    {
        **_COMMON,
        "snapshot": _SNAPSHOT,
        "classes": _each(_fields({"task": _text, "members": _TEXTS})),
        "groups": _each(
            _fields({"machine": _text, "members": _TEXTS}, {"free_milli": _whole, "free_memory_mib": _whole})
        ),
        "first_network": _fields({"nodes": _TEXTS}),
        "plan": _each(_fields({"task": _text, **_PLANNED})),
        "placements": _each(
            _fields(
                {
                    "task": _text,
                    "machine": _text,
                    "width_milli": _whole,
                    "threads": _up_to(_MOST_THREADS),
                    "cores": _WHOLES,
                    "cost": _number,
                    "terms": _TERMS,
                }
            )
        ),
        "postponements": _each(
            _fields(
                {
                    "task": _text,
                    "reason": _text,
                    "waited_s": _number,
                    "cost": _or_null(_number),
                    "terms": _TERMS,
                    "planned": _or_null(_fields(_PLANNED)),
                }
            )
        ),
    },
    {
        **_COMMON_OPTIONAL,
        "goal_s": _or_null(_number),
        "widths": _flag,
        "shares": _flag,
        "machine_costs": _values(_number),
        "reservations": _each(
            _fields({"task": _text, "machine": _text, "width_milli": _whole, "start_s": _number}),
        ),
        "task_groups": _each(
            _fields({"name": _text, "minimum": _whole, "running": _whole, "members": _TEXTS, "starts": _flag})
        ),
        "repairs": _each(
            _fields(
                {
                    "task": _text,
                    "machine": _or_null(_text),
                    "relation": _or_null(_text),
                    "moved_to": _or_null(_text),
                }
            )
        ),
        "needs": _values(_values(_whole)),
    },
)

_WIDE = _fields(
    {
        **_COMMON,
        "fleet": _fields({"machines": _TEXTS}),
        "demands": _each(_fields({"name": _text, "tasks": _TEXTS})),
        "group_of": _WHOLES,
        "first_network": _fields({"nodes": _TEXTS}),
        "placements": _fields(
            {
                "task": _TEXTS,
                "machine": _WHOLES,
                "cost": _NUMBERS,
                "terms": _values(_NUMBERS),
                "runner_up": _WHOLES,
                "runner_up_cost": _OPEN_NUMBERS,
            }
        ),
        "left": _each(_fields({"tasks": _TEXTS, "cause": _text, "text": _text})),
    },
    {
        **_COMMON_OPTIONAL,
        "task_groups": _each(_fields({"name": _text, "minimum": _whole, "deadline_s": _or_null(_number)})),
        "running_members": _values(_count),
        "resolves": _up_to(_MOST_ROUNDS),
        "waiting_costs": _OPEN_NUMBERS,
    },
)

_LISTS = lambda value, where: _check(isinstance(value, list | np.ndarray), where, "must be a list", value)  # noqa: E731

_CLASS = _fields(
    {
        "name": _text,
        "width_milli": _count,
        "needs": _each(_LISTS),
        "sensitivity": _number,
        "pressure": _number,
        "run_s": _or_null(_number),
        "priority": _whole,
        "selector": _each(_LISTS),
        "slowness": _each(_LISTS),
        "interference_class": _text,
        "group": _text,
    }
)

_NETWORK_PART = _fields(
    {
        **_COMMON,
        "features": _each(_fields({"name": _text, "bucket": _number, "term": _text})),
        "fixed": _whole,
        "kinds": _each(
            _fields(
                {"type": _text, "labels": _values(_text), "bandwidth": _number, "cores": _number, "factors": _NUMBERS}
            )
        ),
        "fleet": _fields(
            {
                "machines": _TEXTS,
                "resources": _TEXTS,
                "allocatable": _LISTS,
                "free": _LISTS,
                "kind": _WHOLES,
                "readings": _LISTS,
                "limits": _LISTS,
            }
        ),
        "demands": _each(
            _fields(
                {
                    "name": _text,
                    "tasks": _TEXTS,
                    "created_s": _NUMBERS,
                    "leaving": _NUMBERS,
                    "needs": _values(_whole),
                    "amounts": _WHOLES,
                    "class": _CLASS,
                    "base": _OPEN_NUMBERS,
                    "coefficients": _NUMBERS,
                    "effects": _WHOLES,
                    "waiting": _or_null(_number),
                    "growth": _number,
                }
            )
        ),
        "group_of": _WHOLES,
        "groups": _each(_fields({"kind": _count, "buckets": _WHOLES})),
        "first_network": _fields({"nodes": _TEXTS}),
        "placements": _fields(
            {
                "task": _TEXTS,
                "machine": _WHOLES,
                "cost": _NUMBERS,
                "believed": _NUMBERS,
                "terms": _values(_NUMBERS),
                "runner_up": _WHOLES,
                "runner_up_cost": _OPEN_NUMBERS,
            }
        ),
        "left": _each(_fields({"tasks": _TEXTS, "cause": _text, "text": _text, "costs": _NUMBERS})),
        "reservations": _each(_fields({"task": _text, "machine": _text, "start_s": _number})),
        "dual": _fields(
            {
                "tier": _WHOLES,
                "units": _NUMBERS,
                "unit_milli": _count,
                "largest": _each(_LISTS),
                "alpha": _NUMBERS,
                "crowding": _NUMBERS,
                "tangent": _NUMBERS,
                "may_take": _FLAGS,
            }
        ),
    },
    _COMMON_OPTIONAL,
)

_FLEET = _fields(
    {
        "machines": _TEXTS,
        "resources": _TEXTS,
        "allocatable": _LISTS,
        "free": _LISTS,
        "bandwidth": _NUMBERS,
        "pressure_cap": _WHOLES,
        "headroom_slope": _NUMBERS,
        "sensitivity": _WHOLES,
        "pressure": _WHOLES,
        "fixed": _whole,
        "relations": _each(
            _fields(
                {
                    "name": _text,
                    "kind": _text,
                    "key": _text,
                    "most": _whole,
                    "skew": _whole,
                    "min_domains": _whole,
                    "domains": _up_to(_MOST_DOMAINS),
                    "domain": _WHOLES,
                    "members": _WHOLES,
                    "holders": _WHOLES,
                }
            )
        ),
    }
)

_DEMAND = _fields(
    {
        "needs": _values(_whole),
        "allowed": _or_null(_FLAGS),
        "eligible": _or_null(_FLAGS),
        "preference": _or_null(_OPEN_NUMBERS),
        "slowness": _or_null(_OPEN_NUMBERS),
        "sensitivity": _number,
        "pressure": _number,
        "holds": _TEXTS,
        "joins": _TEXTS,
        "group": _or_null(_text),
        "waiting_cost": _or_null(_number),
        "max_cost": _or_null(_number),
    }
)

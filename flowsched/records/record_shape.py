"""What a record must look like: what its types say, lengths of columns, and indices and names that stand for something.

Files may have been edited by hand. Whatever reads a record after this may rely on all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from functools import cache
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from flowsched.errors import ShapeError
from flowsched.records.level_types import NETWORK_STAGE, ForecastLevel, LinearLevel, RecordedNetwork
from flowsched.records.record_types import Record
from flowsched.relations.relation import RelationKind
from flowsched.support.arrays import IntArray

_COLUMNS = frozenset(
    (
        "machine", "width_milli", "cost", "threads", "cores", "devices", "believed", "runner_up", "runner_up_cost",
        "reason", "waited_s", "planned",
    )
)  # fmt: skip
"""Of tasks that start, or wait, beside their names and terms."""


def check_shape(record: Any) -> Record:
    """Look at a whole record of version 5, which comes back as it is. Raises :class:`ShapeError`."""
    try:
        _adapter().validate_python(record, strict=True)
    except ValidationError as error:
        raise ShapeError(_words(error.errors(include_url=False)[0])) from None
    found: Record = record
    for i, part in enumerate(found["parts"]):
        where = f"parts[{i}]"
        _check_network(part["first_network"], f"{where}.first_network")
        _check_decisions(part, where)
        if part["prices"] == "forecast":
            _check_forecast_level(part, where)
        else:
            _check_linear_level(part, where)
    return found


@cache
def _adapter() -> TypeAdapter[Record]:
    # Made when it is needed: that takes longer than to check a record.
    return TypeAdapter(Record)


# Words


def _words(error: Mapping[str, Any]) -> str:
    """What pydantic found, with its place."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    path = list(error["loc"])
    if path[:1] == ["parts"] and len(path) > 2:
        del path[2]  # which of the prices it has
    if kind == "missing":
        return _missing(str(path[-1]), _place(path[:-1]))
    where = _place(path)
    match kind:
        case "union_tag_not_found":
            return _missing("prices", where)
        case "union_tag_invalid":
            return f"{where} has the prices {context['tag']}, not one of {_unquoted(context['expected_tags'])}"
        case "literal_error":
            return f"{where} is {shown(value)}, not one of {_unquoted(context['expected'])}"
        case "list_type":
            must = "must be a list"
        case "dict_type" | "model_attributes_type":
            must = "must be an object"
        case _:
            must = str(error["msg"])
    return f"{where} {must}, not {shown(value)}"


def _missing(key: str, where: str) -> str:
    return f"key '{key}' is missing" + (f" in {where}" if where else "")


def _place(path: Sequence[str | int]) -> str:
    """Such as ``parts[0].plan[3].task``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def _unquoted(names: str) -> str:
    return names.replace("'", "").replace(" or ", ", ")


def shown(value: Any) -> str:
    """A value in a message, as JSON would have it, short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple | np.ndarray):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:36]} …"


# Networks


def _check_network(network: RecordedNetwork, where: str) -> None:
    nodes, arcs = len(network["nodes"]), len(network["tails"])
    if len(network["supplies"]) != nodes:
        raise ShapeError(f"{where} has {nodes} nodes and {len(network['supplies'])} supplies")
    columns: dict[str, Sized] = {
        "heads": network["heads"],
        "capacities": network["capacities"],
        "unit_costs": network["unit_costs"],
        "units": network["units"],
        "flow": network["flow"],
        **{f"terms.{term}": values for term, values in network["terms"].items()},
        **network.get("columns", {}),
    }
    for key, values in columns.items():
        if len(values) != arcs:
            raise ShapeError(f"{where} has {arcs} arcs and {len(values)} values of {key}")
    for column in (network["tails"], network["heads"]):
        ends = np.asarray(column, dtype=np.int64)
        if arcs and not (int(ends.min()) >= 0 and int(ends.max()) < nodes):
            raise ShapeError(f"{where} has an arc to a node that is not there")


# Levels


def _check_decisions(part: ForecastLevel | LinearLevel, where: str) -> None:
    """What levels have at any prices: classes, and columns of tasks that start and that wait."""
    machines = len(part["machines"])
    if len(set(part["machines"])) != machines:
        raise ShapeError(f"{where}.machines has a name twice")
    classes = [(f"{where}.classes[{i}]", list(cls["tasks"])) for i, cls in enumerate(part["classes"])]
    if part["prices"] == "linear":
        classes += [(f"{where}.outside[{i}]", list(cls["tasks"])) for i, cls in enumerate(part["outside"])]
    for there, of_class in classes:
        if not of_class:
            raise ShapeError(f"{there}.tasks is empty: a class has a task")
    tasks = {task for _, of_class in classes for task in of_class}
    if len(tasks) != sum(len(of_class) for _, of_class in classes):
        raise ShapeError(f"{where}.classes have a task twice")
    placed: Mapping[str, Any] = part["placements"]
    waiting: Mapping[str, Any] = part["waiting"]
    for key, plain in (("placements", placed), ("waiting", waiting)):
        there, count = f"{where}.{key}", len(plain["task"])
        _check_lengths(plain, there, count, "task", sorted(_COLUMNS & plain.keys()))
        _check_lengths(plain["terms"], f"{there}.terms", count, "task", plain["terms"])
        for i, task in enumerate(plain["task"]):
            if task not in tasks:
                raise ShapeError(f"{there}.task[{i}] is {shown(task)}, which is in none of the classes")
    _check_indices(placed["machine"], f"{where}.placements.machine", machines)
    _check_indices(placed.get("runner_up", ()), f"{where}.placements.runner_up", machines, -1)
    _check_indices(waiting["reason"], f"{where}.waiting.reason", len(waiting["reasons"]))
    for i, plan in enumerate(waiting.get("planned", ())):
        if plan is not None:
            _check_whole(plan, f"{where}.waiting.planned[{i}]")


def _check_whole(plan: Mapping[str, Any], there: str) -> None:
    gaps = [plan["machine"] is None, plan["slot"] is None, plan["width_milli"] is None]
    if any(gaps) != all(gaps):
        raise ShapeError(f"{there} has a machine, a slot or a width without the others")


# At forecast prices


def _check_forecast_level(part: ForecastLevel, where: str) -> None:
    machines = {machine["name"] for machine in part["snapshot"]["machines"]}
    tasks = {task for cls in part["classes"] for task in cls["tasks"]}

    def check_task(name: str, there: str) -> None:
        if name not in tasks:
            raise ShapeError(f"{there} {shown(name)}, which is in none of the classes")

    def check_machine(name: str | None, there: str) -> None:
        if name is not None and name not in machines:
            raise ShapeError(f"{there} {shown(name)}, not one of the snapshot's machines")

    for i, name in enumerate(part["machines"]):
        check_machine(name, f"{where}.machines[{i}] is")
    if len(part["machines"]) != len(machines):
        raise ShapeError(f"{where}.machines are {len(part['machines'])}, and the snapshot has {len(machines)}")
    for i, planned in enumerate(part["plan"]):
        there = f"{where}.plan[{i}]"
        check_task(planned["task"], f"{there}.task is")
        check_machine(planned["machine"], f"{there}.machine is")
        _check_whole(planned, there)
    for i, reservation in enumerate(part["reservations"]):
        check_machine(reservation["machine"], f"{where}.reservations[{i}].machine is")
    for i, group in enumerate(part["groups"]):
        for name in (group["machine"], *group["members"]):
            check_machine(name, f"{where}.groups[{i}] has")
    passes = part.get("passes", [])
    for i, one in enumerate(passes):
        for task in one["batch"]:
            check_task(task, f"{where}.passes[{i}].batch has")
        if ("network" in one) == one["drawn"]:
            raise ShapeError(f"{where}.passes[{i}]: a network is in each pass that is not drawn")
        if "network" in one:
            _check_network(one["network"], f"{where}.passes[{i}].network")
        for task in one["booked"]:
            check_task(task, f"{where}.passes[{i}].booked has")
        for undone in one["undone"]:
            check_task(undone["task"], f"{where}.passes[{i}].undone has")
    for i, decided in enumerate(part.get("decided_by", ())):
        there = f"{where}.decided_by[{i}]"
        check_task(decided["task"], f"{there}.task is")
        check_machine(decided["machine"], f"{there}.machine is")
        if decided["stage"] == NETWORK_STAGE:
            for key in ("pass", "price", "runner_up"):
                if key not in decided:
                    raise ShapeError(_missing(key, there))
            if not 1 <= decided["pass"] <= len(passes):
                raise ShapeError(f"{there}.pass is {decided['pass']}, and there are {len(passes)} passes")


# At linear prices


def _check_linear_level(part: LinearLevel, where: str) -> None:
    fleet, kinds, features = part["fleet"], len(part["kinds"]), len(part["features"])
    machines, resources = len(part["machines"]), len(fleet["resources"])
    _check_rows(fleet["allocatable"], f"{where}.fleet.allocatable", machines, resources)
    _check_rows(fleet["free"], f"{where}.fleet.free", machines, resources)
    _check_rows(fleet["readings"], f"{where}.fleet.readings", machines, features)
    _check_rows(fleet["limits"], f"{where}.fleet.limits", machines, features)
    _check_lengths(fleet, f"{where}.fleet", machines, "machine", ("kind",))
    _check_indices(fleet["kind"], f"{where}.fleet.kind", kinds)
    _check_lengths(part, where, machines, "machine", ("group_of",))
    group_of = _check_indices(part["group_of"], f"{where}.group_of", len(part["groups"]))
    if len(np.unique(group_of)) != len(part["groups"]):
        raise ShapeError(f"{where}.group_of leaves out a number: every group has a machine")
    for i, kind in enumerate(part["kinds"]):
        _check_lengths(kind, f"{where}.kinds[{i}]", features, "feature", ("factors",))
    for i, group in enumerate(part["groups"]):
        _check_lengths(group, f"{where}.groups[{i}]", features, "feature", ("buckets",))
    _check_restrictions(part, where, machines)
    classes = [(f"{where}.classes[{i}]", cls) for i, cls in enumerate(part["classes"])]
    classes += [(f"{where}.outside[{i}]", cls) for i, cls in enumerate(part["outside"])]
    for there, cls in classes:
        _check_lengths(cls, there, len(cls["tasks"]), "task", ("created_s", "leaving"))
        _check_lengths(cls, there, resources, "resource", ("amounts",))
        _check_lengths(cls, there, kinds, "kind", ("base",))
        _check_lengths(cls, there, features, "feature", ("coefficients", "effects"))
        if cls["class"]["places"] >= max(1, len(part["places"])):
            raise ShapeError(f"{there}.class.places is beyond the {len(part['places'])} places")
    for key in ("believed", "runner_up", "runner_up_cost"):
        if key not in part["placements"]:
            raise ShapeError(_missing(key, f"{where}.placements"))
    dual = part["dual"]
    _check_lengths(dual, f"{where}.dual", len(part["classes"]), "class", ("tier", "units", "alpha"))
    _check_lengths(dual, f"{where}.dual", machines, "machine", ("crowding", "tangent", "constant", "may_take"))
    if len({len(row) for row in dual["largest"]}) > 1:
        raise ShapeError(f"{where}.dual.largest has rows of different lengths")


def _check_restrictions(part: LinearLevel, where: str, machines: int) -> None:
    """Masks, wishes and relations."""
    for i, places in enumerate(part["places"]):
        given = [key for key, values in places.items() if values is not None]
        _check_lengths(places, f"{where}.places[{i}]", machines, "machine", given)
    for i, relation in enumerate(part["relations"]):
        there = f"{where}.relations[{i}]"
        _check_lengths(relation, there, machines, "machine", ("domain", "members", "holders"))
        _check_indices(relation["domain"], f"{there}.domain", machines, -1)
        if relation["kind"] not in set(RelationKind):
            raise ShapeError(f"{there}.kind is {shown(relation['kind'])}, which is no kind of relation")


def _check_rows(rows: Any, where: str, count: int, width: int) -> None:
    """A row for each machine, all of one width."""
    _check_length(rows, where, count, "machine")
    # Rows of an array are equally long.
    for i, row in enumerate(rows[:1] if isinstance(rows, np.ndarray) else rows):
        _check_length(row, f"{where}[{i}]", width, "column")


def _check_lengths(holder: Mapping[str, Any], where: str, wanted: int, of: str, keys: Iterable[str]) -> None:
    """One value for each of something in columns of an object."""
    for key in keys:
        _check_length(holder[key], f"{where}.{key}", wanted, of)


def _check_length(values: Sized, where: str, wanted: int, of: str) -> None:
    if len(values) != wanted:
        raise ShapeError(f"{where}: expected {wanted} values, one for each {of}, got {len(values)}")


def _check_indices(values: Any, where: str, below: int, least: int = 0) -> IntArray:
    """Numbers from ``least`` up to, and without, ``below``."""
    found: IntArray = np.asarray(values, dtype=np.int64)
    wrong = np.flatnonzero((found < least) | (found >= below))
    if len(wrong):
        first = int(wrong[0])
        raise ShapeError(f"{where}[{first}] is {int(found[first])}, which is beyond the {below} that there are")
    return found

"""What a record must look like: kinds of values, lengths of columns, and indices and names that stand for something.

Files may have been edited by hand. Whatever reads a record after this may rely on all of it. Keys that are not named here
may hold anything: a later version may have more of them. There is a module for each kind of part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowsched.errors import ShapeError
from flowsched.records.record_shape.flow_part import check_flow_part
from flowsched.records.record_shape.network_part import TASK_CLASS, check_network_part
from flowsched.records.record_shape.values import (
    CHANGES,
    FLAGS,
    LET_IN,
    NUMBERS,
    OPEN_NUMBERS,
    TEXTS,
    WHOLES,
    Check,
    has_key,
    is_count,
    is_number,
    is_text,
    is_whole,
    list_of,
    object_with,
    or_null,
    require,
    values_of,
)

_PARTS: Mapping[str, Check] = {"search": check_flow_part, "network": check_network_part}


def check_shape(record: Mapping[str, Any]) -> None:
    """Look at a whole record of version 3. Raises :class:`ShapeError`."""
    _HEAD(record, "")
    for i, part in enumerate(record["parts"]):
        where = f"parts[{i}]"
        require(isinstance(part, Mapping), where, "must be an object", part)
        has_key(part, "kind", where)
        if part["kind"] not in _PARTS:
            raise ShapeError(f"{where} is of kind {part['kind']}, not one of {', '.join(_PARTS)}")
        _PARTS[part["kind"]](part, where)


def _task_class(value: Any, where: str) -> None:
    TASK_CLASS(value, where)


def _running_class(value: Any, where: str) -> None:
    TASK_CLASS(value, where)
    object_with({"effects": WHOLES})(value, where)


_HEAD = object_with(
    {
        "round": is_whole,
        "now_s": is_number,
        "policy": is_text,
        "solver": is_text,
        "settings": values_of(lambda value, where: None if isinstance(value, str | bool) else is_number(value, where)),
        "parts": list_of(object_with({"kind": is_text})),
    },
    {
        "writer": is_text,
        "titles": values_of(is_text),
        "cost_model": object_with({"name": is_text, "settings": object_with({})}),
        "held": list_of(
            object_with({"tasks": TEXTS, "fate": is_text, "message": is_text, "counts": values_of(is_number)})
        ),
        "timings": values_of(is_number),
        "waited": values_of(object_with({"rounds": is_count, "since_s": is_number, "due_age_s": is_number})),
        "counts": values_of(is_number),
        "upkeep": values_of(values_of(is_count)),
        "task_groups": values_of(is_count),
        "members_elsewhere": values_of(is_count),
        "running": object_with(
            {
                "classes": list_of(_running_class),
                "task": TEXTS,
                "machine": TEXTS,
                "class": WHOLES,
                "end_s": OPEN_NUMBERS,
            },
            {"created_s": NUMBERS},
        ),
        "before": list_of(object_with({"task": is_text, "machine": is_text, "start_s": or_null(is_number)})),
        "outside": list_of(
            object_with(
                {
                    "task": is_text,
                    "created_s": is_number,
                    "class": _task_class,
                    "coefficients": NUMBERS,
                    "effects": WHOLES,
                }
            )
        ),
        "changes": object_with(
            {
                "settings": values_of(lambda value, where: None if isinstance(value, str) else is_number(value, where)),
                "task": TEXTS,
                "preemptions": WHOLES,
                "moved_s": OPEN_NUMBERS,
                "stays": FLAGS,
            }
        ),
        **CHANGES,
        "let_in": LET_IN,
        "machines": TEXTS,
        "filters": list_of(object_with({"tasks": TEXTS, "reasons": TEXTS, "verdict": WHOLES})),
        "held_node": or_null(object_with({"task": is_text, "machine": is_text, "priority": is_whole})),
        "what_if": object_with({"changes": TEXTS, "notes": TEXTS}),
    },
)

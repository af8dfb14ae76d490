"""The part of a record that a round of passes is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from flowsched.errors import ShapeError
from flowsched.records.record_shape.network import check_networks
from flowsched.records.record_shape.values import (
    CHANGES,
    COMMON,
    COMMON_OPTIONAL,
    MOST_ROUNDS,
    MOST_THREADS,
    TERMS,
    TEXTS,
    WHOLES,
    at_most,
    check_once,
    is_count,
    is_flag,
    is_number,
    is_quantity,
    is_text,
    is_whole,
    list_of,
    object_with,
    or_null,
    shown,
    values_of,
)


def check_flow_part(part: Mapping[str, Any], where: str) -> None:
    """A part of kind ``search``. Raises :class:`ShapeError`."""
    _FLOW_PART(part, where)
    check_networks(part, where)
    snapshot = part["snapshot"]
    machines = {m["name"] for m in snapshot["machines"]}
    tasks = {task for cls in part["classes"] for task in cls["members"]}
    for key in ("plan", "placements", "postponements", "reservations"):
        for i, entry in enumerate(part.get(key, ())):
            there = f"{where}.{key}[{i}]"
            if key != "reservations" and entry["task"] not in tasks:
                raise ShapeError(f"{there}.task is {shown(entry['task'])}, which is in none of the classes")
            machine = entry.get("machine")
            if machine is not None and machine not in machines:
                raise ShapeError(f"{there}.machine is {shown(machine)}, not one of the snapshot's machines")
            if key == "plan":
                gaps = [entry[k] is None for k in ("machine", "slot", "width_milli")]
                if any(gaps) != all(gaps):
                    raise ShapeError(f"{there} has a machine, a slot or a width without the others")
    for i, group in enumerate(part["groups"]):
        for name in (group["machine"], *group["members"]):
            if name not in machines:
                raise ShapeError(f"{where}.groups[{i}] has {shown(name)}, not one of the snapshot's machines")
    for i, cls in enumerate(part["classes"]):
        if not len(cls["members"]):
            raise ShapeError(f"{where}.classes[{i}].members is empty: a class has a task")
    check_once([cls["members"] for cls in part["classes"]], f"{where}.classes")
    _check_stages(part, where, tasks, machines)


def _check_stages(part: Mapping[str, Any], where: str, tasks: Collection[str], machines: Collection[str]) -> None:
    """The passes, and which of them decided what."""
    passes = part.get("passes", ())
    for i, one in enumerate(passes):
        for key in ("batch", "booked"):
            for task in one[key]:
                if task not in tasks:
                    raise ShapeError(f"{where}.passes[{i}].{key} has {shown(task)}, which is in none of the classes")
    for i, entry in enumerate(part.get("decided_by", ())):
        there = f"{where}.decided_by[{i}]"
        if entry["task"] not in tasks:
            raise ShapeError(f"{there}.task is {shown(entry['task'])}, which is in none of the classes")
        if entry["machine"] not in machines:
            raise ShapeError(f"{there}.machine is {shown(entry['machine'])}, not one of the snapshot's machines")
        if entry["stage"] not in STAGES:
            raise ShapeError(f"{there}.stage is {shown(entry['stage'])}, not one of {', '.join(STAGES)}")
        if entry["stage"] == NETWORK_STAGE:
            _DECIDED_BY_NETWORK(entry, there)
            if not 1 <= entry["pass"] <= len(passes):
                raise ShapeError(f"{there}.pass is {entry['pass']}, and there are {len(passes)} passes")


_TASK_GPUS = object_with({}, {"count": is_count, "share": is_quantity, "models": TEXTS})

_TASK = object_with(
    {
        "name": is_text,
        "job": is_text,
        "profile": is_text,
        "scale": is_number,
        "request": is_quantity,
        "widths": list_of(is_quantity),
        "memory": is_quantity,
        "submit_s": is_number,
        "priority": is_whole,
    },
    {
        "goal_s": or_null(is_number),
        "machines": or_null(TEXTS),
        "spread_over": or_null(TEXTS),
        "resources": values_of(is_whole),
        "holds": TEXTS,
        "joins": TEXTS,
        "group": or_null(is_text),
        "threads": WHOLES,
        "min_utility": or_null(is_number),
        "endless": is_flag,
        "weight": is_number,
        "rounds_waited": is_count,
        "preemptions": is_count,
        "done": is_number,
        "gpus": _TASK_GPUS,
        "gpus_for": is_text,
        "postponements": is_count,
    },
)

_SNAPSHOT = object_with(
    {
        "now_s": is_number,
        "round": is_whole,
        "catalogue": values_of(lambda value, where: None),  # noqa: ARG005 - its reader checks it
        "machines": list_of(
            object_with(
                {
                    "name": is_text,
                    "type": is_text,
                    "cpu": is_quantity,
                    "memory": is_quantity,
                    "vcpus": at_most(MOST_THREADS),
                    "labels": values_of(is_text),
                },
                {
                    "resources": values_of(is_whole),
                    "gpus": object_with({"model": is_text, "count": at_most(MOST_THREADS)}, {"memory": is_quantity}),
                },
            )
        ),
        "services": list_of(
            object_with(
                {
                    "name": is_text,
                    "profile": is_text,
                    "machine": is_text,
                    "cores": is_text,
                    "threads": at_most(MOST_THREADS),
                    "request": is_quantity,
                    "memory": is_quantity,
                    "qps": is_number,
                    "slo_p95": is_quantity,
                    "client": is_text,
                }
            )
        ),
        "running": list_of(
            object_with(
                {
                    "task": _TASK,
                    "machine": is_text,
                    "width": is_quantity,
                    "threads": at_most(MOST_THREADS),
                    "cores": is_text,
                    "bound_s": is_number,
                    "start_s": is_number,
                    "progress": is_number,
                },
                {"moved_s": or_null(is_number), "devices": WHOLES, "remote": is_flag},
            )
        ),
        "pending": list_of(_TASK),
        "plan": list_of(
            object_with({"task": is_text, "machine": is_text, "slot": at_most(MOST_ROUNDS), "width": is_quantity})
        ),
        "reservations": list_of(
            object_with({"task": is_text, "machine": is_text, "width": is_quantity, "start_s": or_null(is_number)})
        ),
        "start_delay": object_with({"at_submission_s": is_number, "after_waiting_s": is_number}),
    },
    {
        "relations": list_of(
            object_with(
                {"name": is_text, "kind": is_text},
                {"key": is_text, "most": is_whole, "skew": is_whole, "min_domains": is_whole},
            )
        ),
        "task_groups": list_of(object_with({"name": is_text, "minimum": is_whole}, {"deadline_s": or_null(is_number)})),
        "relation_counts": list_of(
            object_with({"machine": is_text, "relation": is_text}, {"members": is_count, "holders": is_count})
        ),
        "share_service_cores": is_flag,
        "gpu_demand": list_of(
            object_with({"request": is_quantity, "memory": is_quantity, "count": is_count}, {"gpus": _TASK_GPUS})
        ),
    },
)

_PLANNED = {"machine": or_null(is_text), "slot": or_null(at_most(MOST_ROUNDS)), "width_milli": or_null(is_whole)}

NETWORK_STAGE = "network"
STAGES = (NETWORK_STAGE, "improvement", "gang", "greedy", "preemption")
"""What may have decided where a task is planned."""
_DECIDED_BY_NETWORK = object_with({"pass": is_count, "price": is_number, "runner_up": or_null(is_number)})

_FLOW_PART = object_with(
    {
        **COMMON,
        "snapshot": _SNAPSHOT,
        "classes": list_of(object_with({"task": is_text, "members": TEXTS})),
        "groups": list_of(
            object_with({"machine": is_text, "members": TEXTS}, {"free_milli": is_whole, "free_memory_mib": is_whole})
        ),
        "first_network": object_with({"nodes": TEXTS}),
        "plan": list_of(object_with({"task": is_text, **_PLANNED}, {"shared": or_null(is_flag)})),
        "placements": list_of(
            object_with(
                {
                    "task": is_text,
                    "machine": is_text,
                    "width_milli": is_whole,
                    "threads": at_most(MOST_THREADS),
                    "cores": WHOLES,
                    "cost": is_number,
                    "terms": TERMS,
                },
                {"devices": WHOLES},
            )
        ),
        "postponements": list_of(
            object_with(
                {
                    "task": is_text,
                    "reason": is_text,
                    "waited_s": is_number,
                    "cost": or_null(is_number),
                    "terms": TERMS,
                    "planned": or_null(object_with(_PLANNED)),
                }
            )
        ),
    },
    {
        **COMMON_OPTIONAL,
        "passes": list_of(
            object_with({"number": is_count, "batch": TEXTS, "booked": TEXTS, "arcs": is_count, "drawn": is_flag})
        ),
        "decided_by": list_of(object_with({"task": is_text, "machine": is_text, "stage": is_text})),
        "goal_s": or_null(is_number),
        "machine_costs": values_of(is_number),
        "reservations": list_of(
            object_with({"task": is_text, "machine": is_text, "width_milli": is_whole, "start_s": or_null(is_number)}),
        ),
        "task_groups": list_of(
            object_with(
                {"name": is_text, "minimum": is_whole, "running": is_whole, "members": TEXTS, "starts": is_flag}
            )
        ),
        "repairs": list_of(
            object_with(
                {
                    "task": is_text,
                    "machine": or_null(is_text),
                    "relation": or_null(is_text),
                    "moved_to": or_null(is_text),
                }
            )
        ),
        "needs": values_of(values_of(is_whole)),
        **CHANGES,
    },
)

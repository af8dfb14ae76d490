"""All facts about one task of a round of flow: every number is in the record or follows from its snapshot."""

from __future__ import annotations

from typing import Any

from flowsched.inspector.class_facts import group_facts
from flowsched.inspector.flow_task import FlowTask, find_task
from flowsched.inspector.placed_facts import placed_facts
from flowsched.inspector.record_view import Part, RecordView
from flowsched.inspector.waiting_facts import waiting_facts


def flow_facts(recorded: RecordView, part: Part, name: str) -> dict[str, Any]:
    """All about a task of a part that flow decided, or a baseline; keys as in :mod:`flowsched.inspector.explanation`."""
    task = find_task(recorded, part, name)
    return {
        "models": task.opened is not None,
        "models_missing": task.closed_because,
        "asks": _asks(task),
        "repairs": [dict(r) for r in part.forecast.get("repairs", ()) if r["task"] == name],
        "group": group_facts(part, name),
        "decided_by": _decided_by(task),
        **(placed_facts(task) if task.placed is not None else waiting_facts(task)),
    }


def _decided_by(task: FlowTask) -> dict[str, Any] | None:
    """The stage that decided where it starts or is planned; None where it has no place, and for baselines."""
    entry = task.part.decided_by.get(task.name)
    if entry is None:
        return None
    network, passes = entry["stage"] == "network", task.part.passes
    return {
        "stage": entry["stage"],
        "pass": entry["pass"] if network else None,
        "passes": len(passes),
        "price": entry.get("price"),
        "runner_up": entry.get("runner_up"),
        "batch": len(passes[entry["pass"] - 1]["batch"]) if network else None,
        "early": bool(entry.get("early")),
    }


def _asks(task: FlowTask) -> dict[str, Any] | None:
    if task.opened is None:
        return None
    own = task.opened.task(task.name)
    return {
        "widths_milli": list(own.widths_milli),
        "request_milli": own.request_milli,
        "memory_mib": own.memory_mib,
        "resources": {name: units for name, units in own.resources if units},
        "machines": None if own.machines is None else len(own.machines),
        "priority": own.priority,
        "submit_s": own.submit_s,
        "endless": own.endless,
        "holds": list(own.holds),
        "joins": list(own.joins),
    }

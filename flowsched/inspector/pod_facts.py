"""What the records of a running scheduler say about a pod beside what the engine decided, and who waits with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flowsched.inspector.record_view import RecordView
from flowsched.inspector.wait_cause import WaitCause
from flowsched.records.record_types import RecordedGoal, RecordedHeldNode, RecordedWait


def told(recorded: RecordView, task: str) -> dict[str, Any] | None:
    """What a waiting pod was told: ``fate``, ``message``, ``counts``."""
    for held in recorded.held:
        if task in held["tasks"]:
            return {"fate": held["fate"], "message": held["message"], "counts": dict(held.get("counts", {}))}
    return None


def filtered(recorded: RecordView, task: str) -> Mapping[str, str] | None:
    """By machine, the first filter that refuses a pod, of those that look at one machine; None where it was not recorded."""
    entry = next((f for f in recorded.plain.get("filters", ()) if task in f["tasks"]), None)
    if entry is None:
        return None
    verdict = np.asarray(entry["verdict"], dtype=np.int64).tolist()
    reasons = entry["reasons"]
    return {m: reasons[v] for m, v in zip(recorded.plain["machines"], verdict, strict=True) if v}


def goal(recorded: RecordView, task: str) -> RecordedGoal | None:
    """The p95 goal of a service that some nodes would miss it on, and what it could have; None for others."""
    return recorded.plain.get("goals", {}).get(task)


def all_machines(recorded: RecordView) -> tuple[str, ...]:
    """Every machine that the scheduler knows, by name; empty where it was not recorded."""
    return tuple(recorded.plain.get("machines", ()))


def drained_for(recorded: RecordView, task: str) -> str | None:
    """The machine that is kept for a pod that is overdue; None if none is."""
    return next((held["machine"] for held in _held_nodes(recorded) if held["task"] == task), None)


def drained_for_others(recorded: RecordView, task: str) -> list[str]:
    """The machines that are kept for pods that one does not start with."""
    held = _held_nodes(recorded)
    return [] if any(h["task"] == task for h in held) else list(dict.fromkeys(h["machine"] for h in held))


def _held_nodes(recorded: RecordView) -> Sequence[RecordedHeldNode]:
    return recorded.plain.get("held_nodes", ())


def waited(recorded: RecordView, task: str) -> RecordedWait | None:
    """How long a pod waits."""
    return recorded.plain.get("waited", {}).get(task)


def came_s(recorded: RecordView) -> dict[str, float]:
    """When the tasks came that still wait, as far as that is known."""
    waited = recorded.plain.get("waited", {})
    if waited:
        there = {t for part in recorded.parts for t in part.tasks}
        return {t: float(w["since_s"]) for t, w in waited.items() if t in there}
    waits = (w for part in recorded.parts for w in part.waiting)
    return {w.task: recorded.now_s - w.waited_s for w in waits if w.waited_s is not None}


def tasks_ahead(recorded: RecordView, came_s: Mapping[str, float], task: str) -> list[str]:
    """Tasks that still wait and are served before one: of higher priority, or of its own and earlier; without those that
    never start.
    """
    priority = {t: part.priority or 0 for part in recorded.parts for t in part.tasks}
    never = {w.task for part in recorded.parts for w in part.waiting if w.cause == WaitCause.NEVER}

    def turn(t: str) -> tuple[int, float, str]:
        return -priority[t], came_s[t], t

    return sorted((t for t in came_s if t not in never and turn(t) < turn(task)), key=turn)

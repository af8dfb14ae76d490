"""What completions of a task's class taught, and what of that its forecast uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowsched.cluster.snapshot_dump import plain_learnt_run_times
from flowsched.inspector.record_view import Part
from flowsched.inspector.wording import Facts, count_text


def learnt_facts(part: Part | None, name: str, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """``profile``, ``class``, ``machine_type`` (of the machine where it runs, starts or is planned; null without one, and
    where the class has not run on it), ``factor``, ``spread_percent``, ``runs``, ``applied``; None: nothing was learnt.
    """
    if part is None or part.snapshot is None:
        return None
    snapshot = part.snapshot
    tasks = [*(r["task"] for r in snapshot["running"]), *snapshot["pending"]]
    task = next((t for t in tasks if t["name"] == name), None)
    if task is None or "class" not in task or task.get("endless"):
        return None
    learnt = plain_learnt_run_times(snapshot)
    place = facts.get("place") or facts.get("planned") or {}
    types = {m["name"]: m["type"] for m in snapshot["machines"]}
    machine_type = types.get(str(place.get("machine")))
    known = any(e.run_class == task["class"] and e.machine_type == machine_type for e in learnt.classes)
    found = learnt.shown(task["class"], machine_type)
    if found is None:
        return None
    return {
        "profile": task["profile"],
        "class": task["class"],
        "machine_type": machine_type if known else None,
        "factor": found.factor,
        "spread_percent": 100.0 * found.spread,
        "runs": found.runs,
        "applied": learnt.applied,
    }


def learnt_sentences(facts: Facts) -> list[str]:
    """By what factor its class is off, from how many runs that is known, and whether this run is past its forecast."""
    found, late = facts.get("learnt"), _late(facts.get("overrun"))
    if found is None:
        return [f"{late[0].upper()}{late[1:]}."] if late else []
    where = "" if found["machine_type"] is None else f" on {found['machine_type']}"
    runs = count_text(found["runs"]) + (" run" if found["runs"] == 1 else " runs")
    beside = "" if found["applied"] else "; forecasts do without"
    return [
        f"{found['profile']} of class {found['class']}: {found['factor']:.2g}x its profile{where}, learnt from {runs} "
        f"(spread {found['spread_percent']:.0f} %){beside}{late and '; '}{late}."
    ]


def _late(overrun: Facts | None) -> str:
    """Such as ``this run is past its forecast by 40 s, 25 s [5, 80] are expected``; empty for one that is not."""
    if overrun is None:
        return ""
    past_s, left_s, least_s, most_s = (overrun[key] for key in ("past_s", "left_s", "least_s", "most_s"))
    return f"this run is past its forecast by {past_s:.0f} s, {left_s:.0f} s [{least_s:.0f}, {most_s:.0f}] are expected"

"""Facts about the place of a task at forecast prices: why it starts there, its neighbours, and services."""

from __future__ import annotations

from typing import Any

from flowsched.cluster.snapshot import Task
from flowsched.inspector.flow_task import FlowTask
from flowsched.inspector.record_view import Part
from flowsched.inspector.restored_round import RestoredRound


def why_now(part: Part, opened: RestoredRound | None, name: str, machine: str) -> str | None:
    """Why a task starts on a machine, where a comparison of costs does not say it all."""
    planned = part.planned.get(name)
    if opened is not None:
        if opened.task_number[name] in opened.overdue.must_start:
            return "due"
        if opened.task_number[name] in opened.gangs.must_start:
            return "group"
    if any(r["moved_to"] is not None for r in part.forecast.get("repairs", ()) if r["task"] == name):
        return "repaired"
    if planned is not None and planned[0] != machine:
        return "nothing_runs"
    if planned is not None and planned[1] > 0:
        return "idle_machine"
    return None


def neighbours_of(task: FlowTask, machine: str) -> list[dict[str, Any]]:
    """All other tasks on a machine: when they end with the task and without it, in seconds from now.

    Of those without an end: how many times slower than alone they are.
    """
    opened = task.opened
    if opened is None:
        return []
    model = opened.model
    m, g = opened.machine_number[machine], opened.group_number[machine]
    colocation, without = opened.decided.colocation(m), task.others_on(m)
    after, before = model.prices.forecast(g, colocation), model.prices.forecast(g, without)
    if after is None or before is None:
        return []
    slow_after, slow_before = model.forecasts.slowdowns(g, colocation), model.forecasts.slowdowns(g, without)
    found = []
    for i, r in enumerate(opened.residents(machine)):
        ends = after.residents_s[i], before.residents_s[i]
        found.append(_neighbour(r.task, "runs", ends, (slow_after[0][i], slow_before[0][i])))
    names = opened.arrivals(m)
    others = [pair for pair in names if pair[1] != task.name]
    for i, (arrival, name) in enumerate(others):
        k = names.index((arrival, name))
        ends = after.arrivals_s[k], before.arrivals_s[i]
        slow = slow_after[1][k], slow_before[1][i]
        found.append(_neighbour(opened.task(name), "planned" if arrival.start_after else "starts", ends, slow))
    return sorted(found, key=lambda n: (-abs(n["later_s"] or 0.0), n["task"]))


def _neighbour(task: Task, status: str, ends: tuple[float, float], slow: tuple[float, float]) -> dict[str, Any]:
    later = None if task.endless else ends[0] - ends[1]
    return {
        "task": task.name,
        "status": status,
        "end_s": None if task.endless else ends[0],
        "end_without_s": None if task.endless else ends[1],
        "later_s": later,
        "slowdown": slow[0] if task.endless else None,
        "slowdown_without": slow[1] if task.endless else None,
    }


def services_of(task: FlowTask, machine: str) -> list[dict[str, Any]]:
    """Latency services of a machine: predicted peak p95 with the task and without it, and the goal, in ms."""
    opened = task.opened
    if opened is None:
        return []
    m, g = opened.machine_number[machine], opened.group_number[machine]
    prices = opened.model.prices
    after, before = prices.forecast(g, opened.decided.colocation(m)), prices.forecast(g, task.others_on(m))
    if after is None or before is None:
        return []
    services = [s for s in opened.model.view.snapshot.services if s.machine == machine]
    return [
        {
            "service": service.name,
            "p95_ms": with_it / 1e3,
            "p95_without_ms": without / 1e3,
            "goal_ms": service.slo_us / 1e3,
            "headroom_percent": 100.0 * (1.0 - with_it / service.slo_us),
        }
        for service, with_it, without in zip(services, after.peak_p95_us, before.peak_p95_us, strict=True)
    ]

"""Runs a scenario under several policies, and says what came out as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flowsched_models.document import InputError
from flowsched_models.isolation.admission import room_of
from flowsched_models.isolation.bandwidth import delays, steadiness
from flowsched_models.isolation.estimate import LEAST_MARGIN, estimate, forecast_error
from flowsched_models.isolation.fair_share import fair_rules
from flowsched_models.isolation.simulation import (
    Background,
    Motion,
    Reservations,
    Shares,
    admission_of,
    reserve,
    simulate,
)
from flowsched_models.isolation.workload import Demand, draw, draw_usage
from flowsched_models.picked_fields import picked
from flowsched_simulator.isolation.policies import DEADLINE, EQUAL, check_isolation_policies, share_of
from flowsched_simulator.isolation.scenario_form import IsolationForm

_HISTORY_INTERVALS = 40
"""Intervals of the earlier run that a reservation is estimated from."""
_HISTORY_SEED = 1 << 40
"""Apart from every seed that a user gives."""


def run(
    scenario: IsolationForm,
    policies: Sequence[str] = (),
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Simulate the same drawn workload under each policy; none named: :data:`POLICIES`.

    The object is what ``--json`` prints: bandwidth in per cent of one core, delays in milliseconds. Raises
    :class:`InputError` for unknown policies, and for reservations that the kernel would not admit.
    """
    names = check_isolation_policies(policies)
    tasks = [task.task(scenario.duration_s) for task in scenario.tasks]
    demand = draw(tasks, scenario.loop.loop(), seed, scenario.duration_s)
    reservations, estimates = _reservations(scenario, demand, seed)
    room = room_of(scenario.cores, scenario.kernel)
    admission = admission_of(reservations, room)
    if DEADLINE in names and not admission.admitted:
        help = "fewer critical tasks, a smaller margin, or more cores"
        raise InputError.one(scenario.source, f"not admitted: {admission.reason}", help, key="tasks")
    rules = fair_rules(scenario.cores, scenario.fair.tick * 1e-6)
    runs = []
    for name in names:
        if report is not None:
            report(f"{name}: {demand.end_s:g} s")
        isolation: Shares | Reservations = reservations
        if name == EQUAL:
            isolation = Shares(None)
        elif name != DEADLINE:
            background = Background(scenario.fair.background)
            isolation = Shares(share_of(name), background, scenario.fair.groups == "per-task")
        runs.append(_run(name, demand, simulate(demand, scenario.cores, isolation, scenario.window_s, rules), scenario))
    base = next((r for r in runs if r["policy"] == DEADLINE), None)
    for each in runs:
        each["deviation_ratio"] = _ratio(each, base, "deviation")
        each["delay_ratio"] = _ratio(each, base, "mean_delay_ms")
    return {
        "version": "flowsched/v1",
        "kind": "isolation",
        "scenario": scenario.name,
        "description": scenario.about,
        "seed": seed,
        "cores": scenario.cores,
        "duration_s": demand.end_s,
        "interval_s": scenario.loop.interval_s,
        "window_s": scenario.window_s,
        "sleep": scenario.loop.sleep,
        "asked_cpus": [round(float(x), 6) for x in demand.usage_cpus.sum(axis=0)],
        "admission": picked(admission, "admitted", "asked_cpus", "room_cpus", "reason"),
        "reservations": estimates,
        "table": [{k: v for k, v in each.items() if k not in ("bandwidth", "tasks")} for each in runs],
        "runs": runs,
    }


def _reservations(scenario: IsolationForm, demand: Demand, seed: int) -> tuple[Reservations, list[dict[str, Any]]]:
    """Of every critical thread, and how well each was estimated: by task."""
    period_us = demand.loop.period_s * 1e6
    critical = np.flatnonzero(demand.critical)
    past: npt.NDArray[np.float64] = np.zeros((len(demand.task_of), 1))
    rows: dict[str, dict[str, Any]] = {}
    for thread in critical:
        index = int(demand.task_of[thread])
        task = demand.tasks[index]
        history = draw_usage(task, index, seed + _HISTORY_SEED, _HISTORY_INTERVALS)
        found = estimate(
            [float(x) for x in history], period_us, least_margin=max(LEAST_MARGIN, scenario.deadline.margin)
        )
        past[thread] = found.bandwidth.cpus
        error = forecast_error(demand.usage_cpus[thread], found.mean_cpus, found.bandwidth.cpus)
        rows.setdefault(
            task.name,
            {
                "task": task.name,
                "threads": task.threads,
                "history_mean_cpus": found.mean_cpus,
                "history_reserved_cpus": found.bandwidth.cpus,
                "mape": error.mape,
                "standard_error_cpus": error.standard_error,
                "intervals_over": error.over,
            },
        )
    if scenario.deadline.reserved == "history":
        cpus = reserve(demand, 0.0, past)
    else:
        cpus = reserve(demand, scenario.deadline.margin)
    return Reservations(cpus, demand.loop.period_s), list(rows.values())


def _run(name: str, demand: Demand, motion: Motion, scenario: IsolationForm) -> dict[str, Any]:
    critical = np.flatnonzero(demand.critical)
    # All that are at work together: a task that ends early would end the windows of the others.
    longest = max(float(demand.duration_s[k]) for k in critical)
    lasting = critical[demand.duration_s[critical] >= 0.5 * longest]
    whole = steadiness(motion, lasting)
    tasks: list[dict[str, Any]] = []
    for index, task in enumerate(demand.tasks):
        rows = np.flatnonzero(demand.task_of == index)
        steady = steadiness(motion, rows)
        tasks.append(
            {
                "task": task.name,
                "critical": task.critical,
                "bandwidth_mean": _number(steady.mean),
                "bandwidth_deviation": _number(steady.deviation),
                **_lateness(motion, rows),
            }
        )
    steady_of = [t["bandwidth_deviation"] for t in tasks if t["critical"]]
    own = [x for x in steady_of if x is not None]
    return {
        "policy": name,
        "bandwidth_mean": _number(whole.mean),
        "deviation": _number(whole.deviation),
        "deviation_of_machine": _number(whole.deviation / scenario.cores),
        "interval_deviations": [_number(x) for x in whole.intervals],
        "mean_task_deviation": _number(float(np.mean(own))) if own else None,
        **_lateness(motion, critical),
        "used_cpus": _number(float(motion.used_s.sum()) / demand.end_s),
        "switches": motion.switches,
        "moves": motion.pulls,
        "tasks": tasks,
        "bandwidth": [_number(x) for x in motion.used_s[critical].sum(axis=0) / motion.window_s * 100.0],
    }


def _lateness(motion: Motion, threads: npt.NDArray[np.intp]) -> dict[str, Any]:
    found = delays(motion, threads)
    return {
        "mean_delay_ms": _number(found.mean_ms),
        "p95_delay_ms": _number(found.p95_ms),
        "max_delay_ms": _number(found.max_ms),
        "jobs": found.jobs,
        "open_jobs": found.open,
        "late_jobs": found.late,
    }


def _ratio(each: dict[str, Any], base: dict[str, Any] | None, key: str) -> float | None:
    if base is None or not base[key] or each[key] is None:
        return None
    return _number(each[key] / base[key])


def _number(value: float) -> float | None:
    """Six digits are more than a model knows, and the same on every machine."""
    return None if not math.isfinite(value) else float(f"{value:.6g}")

"""The page: the verdict, the comparison, and the runs that its scripts draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from flowsched_simulator.report.colour import profile_colours
from flowsched_simulator.report.drawn_data import (
    DrawnMachine,
    drawn_data,
    in_script,
    is_placed,
    machines_of,
    profile_of,
    task_name,
)
from flowsched_simulator.report.number import compact, counted, fixed
from flowsched_simulator.report.script import FIGURES, script, style, template
from flowsched_simulator.report.table import OWN_POLICY, table_columns, table_groups, table_rows
from flowsched_simulator.report.verdict import ranking, verdict
from flowsched_simulator.table import variants_line

NAMED = 20
"""So many jobs that never started are named under a run."""
SHOWN = 2
"""Runs that are drawn when the page opens: more are a click away."""


def render_report(result: Mapping[str, Any]) -> str:
    """Return the report of a simulation as one HTML document, which asks for nothing beside itself.

    ``result`` is the object that ``flowsched simulate --json`` prints: times in seconds, latencies in
    microseconds, the time of a round in milliseconds, CPU requests in cores. The same result gives the same
    bytes.
    """
    table, cluster = result.get("table", ()), result.get("cluster") or {}
    runs = _in_order(table, result.get("runs", ()))
    limits = _limits(cluster, runs)
    machines = machines_of(cluster, runs)
    jobs = [job for run in runs for job in run.get("jobs", ())]
    data = drawn_data(cluster, machines, runs, limits)
    data["shown"] = _shown(table, runs, result.get("objective") or "")
    for run, drawn in zip(runs, data["runs"], strict=True):
        drawn["facts"], drawn["notes"] = _facts(run), _notes(run, limits)
    return template("report.html.j2").render(
        scenario=result.get("scenario") or "",
        description=result.get("description") or "",
        objective=result.get("objective") or "",
        extent=_extent(machines, runs, len(limits)),
        verdict=verdict(table, result.get("objective") or ""),
        groups=table_groups(table_columns(table)),
        columns=_columns(table),
        rows=table_rows(table),
        chosen=variants_line(table),
        legend=profile_colours(profile_of(job) for job in jobs),
        has_runs=bool(runs),
        has_services=bool(limits),
        has_gpus=any(run.get("gpus") for run in runs),
        has_unfinished=any(is_placed(job) and job.get("end_s") is None for job in jobs),
        data=Markup(in_script(data)),
        css=style("figures.css"),
        js=script(FIGURES if runs else ("sortable.js",)),
    )


def _in_order(table: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs in the order of the table, then any that it does not have; seeds in their order."""
    order: dict[tuple[str, str], int] = {}
    for row in [*table, *runs]:
        order.setdefault((row["policy"], row.get("variant") or ""), len(order))
    return sorted(runs, key=lambda run: (order[run["policy"], run.get("variant") or ""], run.get("seed") or 0))


def _limits(cluster: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the SLO of each service in microseconds, or None for one that only a run knows."""
    limits = {service["name"]: service.get("slo_us") for service in cluster.get("services", ())}
    for run in runs:
        for window in run.get("latency", ()):
            limits.setdefault(window["service"], None)
    return limits


def _shown(table: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], objective: str) -> list[int]:
    """Return the runs to open with: flow and the best of the others, or the two best."""
    best = [policy for policy in ranking(table, objective) if policy != OWN_POLICY]
    policies = [run["policy"] for run in runs]
    wanted = [policy for policy in [OWN_POLICY, *best, *policies] if policy in policies]
    return sorted({policies.index(policy) for policy in list(dict.fromkeys(wanted))[:SHOWN]})


def _extent(machines: Sequence[DrawnMachine], runs: Sequence[Mapping[str, Any]], services: int) -> str:
    jobs = {job["job"] for run in runs for job in run.get("jobs", ())}
    cores = sum(machine.cores for machine in machines)
    parts = [
        counted(len(jobs), "job"),
        f"{counted(len(machines), 'machine')} with {counted(cores, 'core')}",
        counted(services, "latency service"),
    ]
    if gpus := sum(machine.gpus for machine in machines):
        parts[1] += f" and {counted(gpus, 'GPU')}"
    return ", ".join(parts)


def _columns(table: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return the lower headings, each with whether its column begins a group."""
    columns = table_columns(table)
    return [(column.heading, n == 0 or columns[n - 1].group != column.group) for n, column in enumerate(columns)]


def _facts(run: Mapping[str, Any]) -> str:
    """Return the figures of a run that stand under its heading."""
    makespan = run.get("makespan_s")
    facts = [] if makespan is None else [f"makespan {fixed(makespan, 1)} s"]
    late = sum(job.get("end_s") is None for job in run.get("jobs", ()))
    if late:
        facts.append(f"{counted(late, 'job')} did not finish")
    if run.get("latency") and run.get("slo_violation_ratio") is not None:
        facts.append(f"over SLO {compact(run['slo_violation_ratio'] * 100, 1)} %")
    gpus = run.get("gpus") or {}
    if gpus.get("mean_gpu_allocation") is not None:
        facts.append(
            f"GPUs {compact(100 * gpus['mean_gpu_allocation'], 1)} % allocated, "
            f"{compact(100 * gpus['mean_gpu_fragmentation'], 1)} % fragmented"
        )
    if run.get("rounds") is not None:
        facts.append(counted(run["rounds"], "round"))
    facts.append(f"seed {run.get('seed', 0)}")
    return " · ".join(facts)


def _notes(run: Mapping[str, Any], limits: Mapping[str, float | None]) -> list[str]:
    """Return what the figures of a run do not show."""
    notes = []
    heard = {window["service"] for window in run.get("latency", ()) if window.get("p95_us") is not None}
    silent = [name for name in limits if name not in heard]
    if not limits:
        notes.append("This run has no latency service, so there is no latency to show.")
    elif silent:
        notes.append(f"No latency was recorded for {_some(silent)} in this run.")
    waiting = [task_name(job) for job in run.get("jobs", ()) if not is_placed(job)]
    if waiting:
        notes.append(f"Never started: {_some(waiting)}.")
    return notes


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more

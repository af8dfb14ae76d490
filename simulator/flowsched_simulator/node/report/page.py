"""The page: heading, the two tables, and one section per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowsched_simulator.node.report.cores import draw_cores
from flowsched_simulator.node.report.jobs import draw_jobs
from flowsched_simulator.node.report.latency import HEAD, PLOT, LatencyScale, draw_latency, latency_scale, service_rows
from flowsched_simulator.node.report.load import MARGIN, LoadScale, draw_load, load_scale
from flowsched_simulator.node.table import is_noisy, noise_words
from flowsched_simulator.report import svg
from flowsched_simulator.report.colour import Colour, job_colours
from flowsched_simulator.report.number import NOTHING, counted, fixed
from flowsched_simulator.report.scale import TimeScale
from flowsched_simulator.report.script import MARKS, script, style, template
from flowsched_simulator.report.table import Cell, Column, column_cells
from flowsched_simulator.report.verdict import verdict

OWN_POLICY = "flow-node"
"""The policy whose row is emphasised."""
_CUT = 2.0
"""p95 is cut at this many times the SLO: what matters here is how near to it a controller keeps."""

COLUMNS = (
    Column("makespan_s", "Makespan,\u00a0s", "all jobs", lambda v: fixed(v, 1)),
    Column("mean_completion_s", "Completion,\u00a0s", "mean", lambda v: fixed(v, 1)),
    Column("slo_violation_ratio", "Points over SLO", "%", lambda v: fixed(100 * v, 2)),
    Column("worst_p95_us", "Worst p95,\u00a0ms", "measured", lambda v: fixed(v / 1000, 2)),
    Column("worst_model_p95_us", "Worst p95,\u00a0ms", "no noise", lambda v: fixed(v / 1000, 2)),
    Column("pauses", "Pauses", "all jobs", lambda v: fixed(v, 0)),
    Column("service_core_changes", "Core changes", "services", lambda v: fixed(v, 0)),
    Column("job_core_changes", "Core changes", "jobs", lambda v: fixed(v, 0)),
)


@dataclass(frozen=True)
class RunFrame:
    """What all drawings of a report share, so that they can be compared."""

    result: Mapping[str, Any]
    time: TimeScale
    load: LoadScale
    latencies: Mapping[str, LatencyScale]
    colours: Mapping[str, Colour]


def render_node_report(result: Mapping[str, Any]) -> str:
    """Return the report of a simulation of one machine as one HTML document, which asks for nothing beside itself.

    ``result`` is the object that ``flowsched simulate --json`` prints for a node scenario: times in seconds, latencies in
    microseconds. The same result gives the same bytes.
    """
    runs = result["runs"]
    several = len({run["qps_interval_s"] for run in runs}) > 1
    frame = RunFrame(
        result,
        TimeScale(max((float(run["end_s"]) for run in runs), default=1.0) * 1.01, MARGIN),
        load_scale(runs),
        {s["name"]: latency_scale(s["name"], s["slo_us"], runs, _CUT) for s in result["services"]},
        job_colours((job["job"], job["profile"]) for run in runs for job in run["jobs"]),
    )
    columns = [column_cells(column, [run[column.key] for run in runs]) for column in COLUMNS]
    return template("node.html.j2").render(
        scenario=result["scenario"],
        description=result["description"],
        extent=_extent(result),
        # Of several lengths of the load's steps each has its own comparison.
        verdict="" if several else verdict(runs, "makespan", OWN_POLICY, "points"),
        columns=COLUMNS,
        jobs=[job["job"] for job in runs[0]["jobs"]] if runs else [],
        noise=_noise(runs),
        sections=[_section(n, run, frame, several, [own[n] for own in columns]) for n, run in enumerate(runs)],
        css=style("node.css"),
        js=script(MARKS),
    )


def _extent(result: Mapping[str, Any]) -> str:
    machine, runs = result["machine"], result["runs"]
    jobs = len(runs[0]["jobs"]) if runs else 0
    services = counted(len(result["services"]), "latency service")
    return f"{counted(jobs, 'job')}, {services}, {machine['type']} with {counted(machine['vcpus'], 'core')}"


def _active(job: Mapping[str, Any]) -> Cell:
    text = fixed(job["active_s"], 1) + ("" if job["end_s"] is not None else " +")
    return Cell(text if job["stretches"] else NOTHING, repr(float(job["active_s"])), False)


def _noise(runs: Sequence[Mapping[str, Any]]) -> str:
    """A sentence about what p95 is here."""
    if not any(is_noisy(run) for run in runs):
        return "p95 is what the models say, without the noise of a measurement"
    return f"p95 carries {noise_words(runs)}, with the same draws for every policy"


def _section(
    number: int, run: Mapping[str, Any], frame: RunFrame, several: bool, cells: Sequence[Cell]
) -> dict[str, Any]:
    """What the page says of one run; ``cells`` is its row of the comparison."""
    drawings = [draw_jobs(f"jobs-{number}", run, frame.result["machine"]["vcpus"], frame.time, frame.colours)]
    for place, service in enumerate(frame.result["services"]):
        windows = service_rows(run, service["name"])
        latency = draw_latency(f"latency-{number}-{place}", run, frame.latencies[service["name"]], frame.time)
        draw_load(latency, windows, frame.load, frame.time, HEAD, PLOT)
        drawings.append(latency)
        drawings.append(draw_cores(f"cores-{number}-{place}", run, service, windows, frame.load, frame.time))
    return {
        "policy": run["policy"],
        "variant": f"load changes every {run['qps_interval_s']:g} s" if several else "",
        "own": run["policy"] == OWN_POLICY,
        "cells": cells,
        "active": [_active(job) for job in run["jobs"]],
        "facts": _facts(run),
        "drawings": [svg.markup(drawing) for drawing in drawings],
        "waiting": [job["job"] for job in run["jobs"] if not job["stretches"]],
    }


def _facts(run: Mapping[str, Any]) -> str:
    facts = [] if run["makespan_s"] is None else [f"makespan {fixed(run['makespan_s'], 1)} s"]
    late = sum(job["end_s"] is None for job in run["jobs"])
    if late:
        facts.append(f"{counted(late, 'job')} did not finish")
    facts.append(f"{run['violations']} of {counted(run['points'], 'point')} over SLO")
    facts.append(counted(run["pauses"], "pause"))
    facts.append(f"{counted(run['service_core_changes'] + run['job_core_changes'], 'core change')}")
    facts.append(f"seed {run['seed']}" + ("" if run["load_seed"] is None else f", load seed {run['load_seed']}"))
    return " · ".join(facts)

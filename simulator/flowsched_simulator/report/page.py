"""The page: heading, comparison, and one section per policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from flowsched_simulator.report import svg
from flowsched_simulator.report.colour import Colour, job_colours, profile_colours
from flowsched_simulator.report.gantt import Rack, draw_gantt, is_placed, racks, row_heights, run_bars
from flowsched_simulator.report.latency import LatencyScale, draw_latency, latency_scale, service_rows
from flowsched_simulator.report.number import compact, core_list, counted, fixed
from flowsched_simulator.report.scale import TimeScale
from flowsched_simulator.report.table import OWN_POLICY, table_columns, table_groups, table_rows


@dataclass(frozen=True)
class Figure:
    """The drawings of one run."""

    heading: str
    facts: str
    gantt: Markup
    latencies: tuple[Markup, ...]
    silent: tuple[str, ...]
    """Services of which the run has no latency."""
    waiting: tuple[str, ...]
    """Jobs that never started."""
    jobs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A policy: the figure of its first seed, and those of the others."""

    policy: str
    variant: str
    own: bool
    first: Figure
    others: tuple[Figure, ...]


@dataclass(frozen=True)
class Frame:
    """What all figures of a report share, so that they can be compared."""

    cluster: Mapping[str, Any]
    machines: Sequence[Rack]
    colours: Mapping[str, Colour]
    time: TimeScale
    latencies: Sequence[LatencyScale]
    rows: Mapping[str, float]
    """Height of a core's row on each machine, in user units."""


def render_report(result: Mapping[str, Any]) -> str:
    """Return the report of a simulation as one HTML document, which asks for nothing beside itself.

    ``result`` is the object that ``flowsched simulate --json`` prints: times in seconds, latencies in
    microseconds, the time of a round in milliseconds, CPU requests in cores. The same result gives the same
    bytes.
    """
    runs = result.get("runs", ())
    frame = _frame(result.get("cluster") or {}, runs)
    profiles = {_profile(job) for run in runs for job in run.get("jobs", ())}
    return _template().render(
        scenario=result.get("scenario") or "",
        description=result.get("description") or "",
        objective=result.get("objective") or "",
        extent=_extent(frame, runs),
        groups=table_groups(table_columns(result.get("table", ()))),
        columns=_columns(result.get("table", ())),
        rows=table_rows(result.get("table", ())),
        legend=profile_colours(profiles),
        has_services=bool(frame.latencies),
        has_unfinished=any(is_placed(j) and j.get("end_s") is None for run in runs for j in run.get("jobs", ())),
        sections=_sections(result.get("table", ()), runs, frame),
        css=Markup(_text("report.css")),
        js=Markup(_text("report.js")),
    )


def _frame(cluster: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Frame:
    machines = racks(cluster, runs)
    colours = job_colours((job["job"], _profile(job)) for run in runs for job in run.get("jobs", ()))
    limits = {service["name"]: service.get("slo_us") for service in cluster.get("services", ())}
    for run in runs:
        for window in run.get("latency", ()):
            limits.setdefault(window["service"], None)
    bars = [run_bars(cluster, run, _run_end(run), colours) for run in runs]
    return Frame(
        cluster=cluster,
        machines=machines,
        colours=colours,
        time=TimeScale(max((_run_end(run) for run in runs), default=1.0) * 1.01),
        latencies=[latency_scale(name, slo_us, runs) for name, slo_us in limits.items()],
        rows=row_heights(machines, bars),
    )


def _run_end(run: Mapping[str, Any]) -> float:
    """Return the last second of which a run tells anything."""
    times = [run.get("makespan_s"), *(window["end_s"] for window in run.get("latency", ()))]
    for job in run.get("jobs", ()):
        times += [job.get("start_s"), job.get("end_s")]
    return max((float(time) for time in times if time is not None), default=0.0) or 1.0


def _profile(job: Mapping[str, Any]) -> str:
    return str(job.get("profile") or job["job"])


def _extent(frame: Frame, runs: Sequence[Mapping[str, Any]]) -> str:
    jobs = {job["job"] for run in runs for job in run.get("jobs", ())}
    cores = sum(machine.cores for machine in frame.machines)
    parts = [
        counted(len(jobs), "job"),
        f"{counted(len(frame.machines), 'machine')} with {counted(cores, 'core')}",
        counted(len(frame.latencies), "latency service"),
    ]
    return ", ".join(parts)


def _columns(table: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return the lower headings, each with whether its column begins a group."""
    columns = table_columns(table)
    return [(column.heading, n == 0 or columns[n - 1].group != column.group) for n, column in enumerate(columns)]


def _sections(table: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], frame: Frame) -> list[Section]:
    """Return one section per policy and variant, in the order of the table, then any that only runs name."""
    members: dict[tuple[str, str], list[Figure]] = {(r["policy"], r.get("variant") or ""): [] for r in table}
    numbered = sorted(enumerate(runs), key=lambda pair: pair[1].get("seed") or 0)
    for number, run in numbered:
        key = (run["policy"], run.get("variant") or "")
        members.setdefault(key, []).append(_figure(number, run, frame))
    return [
        Section(policy, variant, policy == OWN_POLICY, figures[0], tuple(figures[1:]))
        for (policy, variant), figures in members.items()
        if figures
    ]


def _figure(number: int, run: Mapping[str, Any], frame: Frame) -> Figure:
    bars = run_bars(frame.cluster, run, _run_end(run), frame.colours)
    heard = [axis for axis in frame.latencies if service_rows(run, axis.service)]
    return Figure(
        heading=f"Seed {run.get('seed', 0)}",
        facts=_facts(run),
        gantt=svg.markup(draw_gantt(f"gantt-{number}", run, frame.machines, bars, frame.time, frame.rows)),
        latencies=tuple(
            svg.markup(draw_latency(f"latency-{number}-{place}", run, axis, frame.time))
            for place, axis in enumerate(heard)
        ),
        silent=tuple(axis.service for axis in frame.latencies if axis not in heard),
        waiting=tuple(job["job"] for job in run.get("jobs", ()) if not is_placed(job)),
        jobs=tuple(_job_row(job) for job in run.get("jobs", ())),
    )


def _facts(run: Mapping[str, Any]) -> str:
    """Return the figures of a run that stand under its heading."""
    makespan = run.get("makespan_s")
    facts = [] if makespan is None else [f"makespan {fixed(makespan, 1)} s"]
    late = sum(job.get("end_s") is None for job in run.get("jobs", ()))
    if late:
        facts.append(f"{counted(late, 'job')} did not finish")
    if run.get("latency") and run.get("slo_violation_ratio") is not None:
        facts.append(f"over SLO {compact(run['slo_violation_ratio'] * 100, 1)} %")
    if run.get("rounds") is not None:
        facts.append(counted(run["rounds"], "round"))
    facts.append(f"seed {run.get('seed', 0)}")
    return " · ".join(facts)


def _job_row(job: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        job["job"],
        job.get("machine") or "–",
        core_list(tuple(sorted(set(job.get("cores") or ())))) or "–",
        compact(job.get("request")),
        compact(job.get("threads")),
        fixed(job.get("submit_s"), 1),
        fixed(job.get("start_s"), 1),
        fixed(job.get("end_s"), 1),
        fixed(job.get("alone_s"), 1),
        fixed(job.get("slowdown"), 2),
    )


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False
    )
    return environment.from_string(_text("report.html.j2"))


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")

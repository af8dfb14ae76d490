"""The page: heading, the comparison, and the bandwidth of the critical tasks over time under each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowsched_simulator.isolation.table import COLUMNS, about, late_jobs
from flowsched_simulator.report import svg
from flowsched_simulator.report.axis import FOOT, draw_time_axis
from flowsched_simulator.report.number import compact, counted, fixed
from flowsched_simulator.report.scale import LEFT, WIDTH, TimeScale, even_ticks
from flowsched_simulator.report.script import style, template

_HEAD, _PLOT = 20.0, 110.0


def render_report(outcome: Mapping[str, Any]) -> str:
    """One HTML document that asks for nothing beside itself. ``outcome``: what ``flowsched simulate --json`` prints."""
    runs = outcome["runs"]
    high = max((x for each in runs for x in each["bandwidth"]), default=1.0) * 1.08 or 1.0
    scale = TimeScale(float(outcome["duration_s"]) * 1.01)
    tasks = [task["task"] for task in runs[0]["tasks"] if task["critical"]]
    return template("isolation.html.j2").render(
        scenario=outcome["scenario"],
        description=outcome["description"],
        extent=f"{counted(len(runs[0]['tasks']), 'task')}, {len(tasks)} of them critical, on "
        f"{counted(outcome['cores'], 'core')} for {outcome['duration_s']:g} s",
        about=". ".join(about(dict(outcome))[:2]),
        admission=outcome["admission"]["reason"],
        heads=[column.head for column in COLUMNS],
        rows=[(row["policy"], [fixed(row[c.key], c.digits) for c in COLUMNS], late_jobs(row)) for row in runs],
        tasks=tasks,
        deviations=[(row["policy"], _deviations(row, tasks)) for row in runs],
        drawings=[(row["policy"], svg.markup(_draw(n, row, outcome, scale, high))) for n, row in enumerate(runs)],
        css=style(),
    )


def _deviations(row: Mapping[str, Any], tasks: Sequence[str]) -> list[str]:
    own = {task["task"]: task["bandwidth_deviation"] for task in row["tasks"]}
    return [fixed(own[task], 3) for task in tasks]


def _draw(number: int, row: Mapping[str, Any], outcome: Mapping[str, Any], scale: TimeScale, high: float) -> Any:
    """The bandwidth in every window as a line of steps."""
    base = _HEAD + _PLOT
    title = f"CPU bandwidth of the critical tasks under {row['policy']}"
    root = svg.picture(f"bandwidth-{number}", "latency", WIDTH, base + FOOT, title, "per cent of one core, by window")
    draw_time_axis(root, scale, _HEAD, base)
    svg.add(root, "text", "% of a core", klass="tick", x=LEFT, y=_HEAD - 8)
    for tick in even_ticks(high, 4):
        y = base - _PLOT * tick / high
        svg.add(root, "line", klass="grid", x1=LEFT, x2=scale.right, y1=y, y2=y)
        svg.add(root, "text", compact(tick), klass="tick", x=LEFT - 6, y=y + 4, text_anchor="end")
    parts: list[str] = []
    for window, value in enumerate(row["bandwidth"]):
        y = base - _PLOT * value / high
        start = "V" if parts else f"M{svg.length(scale.x(0.0))} "
        parts.append(f"{start}{svg.length(y)}H{svg.length(scale.x((window + 1) * outcome['window_s']))}")
    svg.add(root, "path", klass="bandwidth", d="".join(parts))
    return root

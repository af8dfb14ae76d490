"""How many cores a service has over time, under its load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as Tree

from flowsched_simulator.node.report.jobs import pieces
from flowsched_simulator.node.report.load import LoadScale, draw_load
from flowsched_simulator.report import svg
from flowsched_simulator.report.axis import FOOT, draw_makespan, draw_time_axis, finish_s
from flowsched_simulator.report.number import counted
from flowsched_simulator.report.scale import LEFT, WIDTH, TimeScale

HEAD = 24.0
"""Height of the strip on top, which holds the name of the service."""
PLOT = 72.0
"""Height of the steps' room, in user units."""


def core_steps(run: Mapping[str, Any], service: str) -> list[tuple[float, float, int]]:
    """Start, end and number of cores of the times in which a service had as many."""
    rows = [row for row in run["service_cores"] if row["service"] == service]
    times = [*(float(row["t_s"]) for row in rows), float(run["end_s"])]
    return pieces((*span, row["cores"]) for row, span in zip(rows, pairwise(times), strict=True) if span[1] > span[0])


def draw_cores(
    ident: str,
    run: Mapping[str, Any],
    service: Mapping[str, Any],
    windows: Sequence[Mapping[str, Any]],
    load: LoadScale,
    scale: TimeScale,
) -> Tree.Element:
    """Draw the cores of one service. ``windows``: of its latency, which tell the load; ``ident`` is unique in the page."""
    steps = core_steps(run, service["name"])
    most = len(service["cores"])
    base = HEAD + PLOT
    unit = PLOT / (1.08 * most)
    root = svg.picture(ident, "node-cores", WIDTH, base + FOOT, *_words(run, service, steps))
    title = svg.add(root, "text", service["name"], klass="machine", x=LEFT, y=13)
    svg.add(title, "tspan", "cores", klass="kind", dx=8)
    svg.add(root, "rect", klass="ground", x=LEFT, y=HEAD, width=scale.right - LEFT, height=PLOT)
    draw_time_axis(root, scale, HEAD, base)
    for count in range(most + 1):
        y = base - count * unit
        svg.add(root, "line", klass="grid", x1=LEFT, x2=scale.right, y1=y, y2=y)
        svg.add(root, "text", str(count), klass="tick", x=LEFT - 8, y=y + 4, text_anchor="end")
    for start_s, end_s, count in steps:
        left, right = scale.x(start_s), scale.x(end_s)
        group = svg.add(root, "g", klass="mark")
        words = f"{service['name']}: {counted(count, 'core')}\n{start_s:.1f}–{end_s:.1f} s"
        svg.add(group, "title", words)
        width, high = max(right - left, 0.2), count * unit
        svg.add(group, "rect", klass="cores", x=left, y=base - high, width=width, height=high)
    draw_load(root, windows, load, scale, HEAD, PLOT)
    draw_makespan(root, finish_s(run), scale, 0, base)
    return root


def _words(
    run: Mapping[str, Any], service: Mapping[str, Any], steps: Sequence[tuple[float, float, int]]
) -> tuple[str, str]:
    spent = [f"{counted(n, 'core')} for {_total(steps, n):.1f} s" for n in sorted({n for _, _, n in steps})]
    what = f"{counted(max(len(steps) - 1, 0), 'change')} of the number of cores; {', '.join(spent)}."
    return f"Cores of {service['name']} under {run['policy']}", what


def _total(steps: Sequence[tuple[float, float, int]], count: int) -> float:
    return sum(end_s - start_s for start_s, end_s, n in steps if n == count)

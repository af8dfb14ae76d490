"""The p95 latency of a service over time, as bars as wide as their window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as Tree

from flowsched_simulator.report import svg
from flowsched_simulator.report.axis import FOOT, draw_makespan, draw_time_axis, finish_s
from flowsched_simulator.report.number import compact, counted, fixed
from flowsched_simulator.report.scale import LEFT, WIDTH, TimeScale, even_ticks

HEAD = 24.0
"""Height of the strip on top, which holds the name of the service."""
PLOT = 96.0
"""Height of the bars' room, in user units."""
CUT = 4.0
"""Bars are cut at this many times the SLO, so that one bad window does not flatten all others."""


@dataclass(frozen=True)
class LatencyScale:
    """The y axis that a service has in all figures of a report, in milliseconds."""

    service: str
    slo_ms: float | None
    high_ms: float
    """The value at the top."""

    def height(self, value_ms: float) -> float:
        """Return the height of a bar in user units."""
        return round(PLOT * min(value_ms / self.high_ms, 1.0), 2)


def latency_scale(
    service: str, slo_us: float | None, runs: Sequence[Mapping[str, Any]], cut: float = CUT
) -> LatencyScale:
    """Return the y axis that suits all runs. ``slo_us`` is in microseconds; bars are cut at ``cut`` times as much."""
    values = [row["p95_us"] / 1000 for run in runs for row in service_rows(run, service)]
    highest = max(values, default=0.0)
    if not slo_us:
        return LatencyScale(service, None, 1.08 * highest or 1.0)
    slo_ms = slo_us / 1000
    return LatencyScale(service, slo_ms, 1.08 * min(max(highest, 1.2 * slo_ms), cut * slo_ms))


def service_rows(run: Mapping[str, Any], service: str) -> list[Mapping[str, Any]]:
    """Return a run's windows of one service that have a latency, in order of time."""
    rows = [row for row in run.get("latency", ()) if row["service"] == service and row.get("p95_us") is not None]
    return sorted(rows, key=lambda row: (row["t_s"], row["end_s"]))


def draw_latency(ident: str, run: Mapping[str, Any], axis: LatencyScale, scale: TimeScale) -> Tree.Element:
    """Draw the windows of one service. ``ident`` is unique in the page."""
    rows = service_rows(run, axis.service)
    height = HEAD + PLOT + FOOT
    base = HEAD + PLOT
    root = svg.picture(ident, "latency", WIDTH, height, *_words(run, axis, rows))
    over_fill = svg.hatch(root, f"{ident}-over")
    title = svg.add(root, "text", axis.service, klass="machine", x=LEFT, y=13)
    svg.add(title, "tspan", "p95 latency", klass="kind", dx=8)
    svg.add(root, "text", "ms", klass="tick", x=LEFT - 8, y=13, text_anchor="end")
    svg.add(root, "rect", klass="ground", x=LEFT, y=HEAD, width=scale.right - LEFT, height=PLOT)
    draw_time_axis(root, scale, HEAD, base)
    for tick in even_ticks(axis.high_ms, 4):
        y = base - axis.height(tick)
        svg.add(root, "line", klass="grid", x1=LEFT, x2=scale.right, y1=y, y2=y)
        svg.add(root, "text", compact(tick, 3), klass="tick", x=LEFT - 8, y=y + 4, text_anchor="end")
    for row in rows:
        _draw_window(root, row, axis, scale, over_fill)
    draw_makespan(root, finish_s(run), scale, 0, base)
    _draw_slo(root, axis, scale, _slo_end(run, scale))
    return root


def is_over(row: Mapping[str, Any], axis: LatencyScale) -> bool:
    """Tell whether a window is over the SLO."""
    return axis.slo_ms is not None and row["p95_us"] / 1000 > axis.slo_ms


def _draw_window(
    root: Tree.Element, row: Mapping[str, Any], axis: LatencyScale, scale: TimeScale, over_fill: str
) -> None:
    left, right = scale.x(row["t_s"]), scale.x(row["end_s"])
    gap = 1.0 if right - left > 3 else 0.0
    value_ms, over = row["p95_us"] / 1000, is_over(row, axis)
    top, height = HEAD + PLOT - axis.height(value_ms), axis.height(value_ms)
    group = svg.add(root, "g", klass="mark window over" if over else "mark window")
    svg.add(group, "title", _hover(row, axis))
    place: dict[str, Any] = {"x": left, "y": top, "width": max(right - left - gap, 0.2), "height": height}
    svg.add(group, "rect", klass="bar", **place)
    if over:
        svg.add(group, "rect", klass="overlay", fill=over_fill, **place)
    if value_ms > axis.high_ms:
        _draw_cut(group, left, right - gap, f"{compact(value_ms, 1)}")


def _draw_cut(group: Tree.Element, left: float, right: float, words: str) -> None:
    """Draw a slanted gap near the top of a bar that is higher than the axis, and its value where it fits."""
    y = HEAD + 8
    svg.add(group, "path", klass="cut", d=f"M{left:g} {y + 3:g}L{right:g} {y - 3:g}")
    if right - left > 7 * len(words):
        middle = (left + right) / 2
        svg.add(group, "text", words, klass="cut-label", x=middle, y=HEAD - 4, text_anchor="middle")


def _slo_end(run: Mapping[str, Any], scale: TimeScale) -> float:
    """Return where the SLO's label ends: at the right, or left of a makespan line in its way."""
    right = scale.right - 4
    makespan_x = scale.x(run.get("makespan_s") or 0.0)
    return makespan_x - 6 if makespan_x > right - 90 else right


def _draw_slo(root: Tree.Element, axis: LatencyScale, scale: TimeScale, end: float) -> None:
    if axis.slo_ms is None:
        return
    y = HEAD + PLOT - axis.height(axis.slo_ms)
    svg.add(root, "line", klass="slo", x1=LEFT, x2=scale.right, y1=y, y2=y)
    words = f"SLO {compact(axis.slo_ms)} ms"
    svg.add(root, "text", words, klass="slo-label", x=end, y=y - 5, text_anchor="end")


def _hover(row: Mapping[str, Any], axis: LatencyScale) -> str:
    lines = [
        f"{row['service']}, {compact(row['t_s'], 1)}–{compact(row['end_s'], 1)} s",
        f"p95 {fixed(row['p95_us'] / 1000, 2)} ms" + (", over the SLO" if is_over(row, axis) else ""),
    ]
    if row.get("qps") is not None:
        lines.append(f"{compact(row['qps'], 0)} requests per second")
    return "\n".join(lines)


def _words(run: Mapping[str, Any], axis: LatencyScale, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    highest = max((row["p95_us"] / 1000 for row in rows), default=None)
    over = sum(row.get("windows", 1) for row in rows if is_over(row, axis))
    windows = sum(row.get("windows", 1) for row in rows)
    limit = f"; {over} over the SLO of {compact(axis.slo_ms)} ms" if axis.slo_ms is not None else ""
    what = f"{counted(windows, 'window')}, highest p95 {fixed(highest, 2)} ms{limit}."
    return f"p95 latency of {axis.service} under {run['policy']}", what

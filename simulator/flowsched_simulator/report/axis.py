"""What the drawings of one run share: the time axis and the line at the makespan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as Tree

from flowsched_simulator.report import svg
from flowsched_simulator.report.number import compact, fixed
from flowsched_simulator.report.scale import WIDTH, TimeScale

FOOT = 20.0
"""Height of the strip below a drawing, which holds the labels of the time axis."""


def draw_time_axis(root: Tree.Element, scale: TimeScale, top: float, bottom: float) -> None:
    """Draw the upright grid lines and, below them, their times in seconds."""
    for tick in scale.ticks():
        x = scale.x(tick)
        svg.add(root, "line", klass="grid", x1=x, x2=x, y1=top, y2=bottom)
        words = compact(tick) if tick else "0 s"
        svg.add(root, "text", words, klass="tick", x=x, y=bottom + 15, text_anchor="middle")


def finish_s(run: Mapping[str, Any]) -> float | None:
    """When the last job ends on the run's clock: the makespan counts from the first submission, the axis from 0."""
    makespan = run.get("makespan_s")
    if makespan is None:
        return None
    first: float = min((job.get("submit_s") or 0.0 for job in run["jobs"]), default=0.0)
    return first + float(makespan)


def draw_makespan(root: Tree.Element, at_s: float | None, scale: TimeScale, top: float, bottom: float) -> None:
    """Draw the line that marks where the makespan ends."""
    if _is_shown(at_s, scale):
        x = scale.x(at_s or 0.0)
        svg.add(root, "line", klass="makespan", x1=x, x2=x, y1=top, y2=bottom)


def draw_makespan_label(root: Tree.Element, run: Mapping[str, Any], scale: TimeScale, baseline: float) -> None:
    """Write the makespan beside its line, on the side that has room."""
    at_s = finish_s(run)
    if _is_shown(at_s, scale):
        x = scale.x(at_s or 0.0)
        late = x > WIDTH / 2
        place: dict[str, Any] = {
            "x": x - 6 if late else x + 6,
            "y": baseline,
            "text_anchor": "end" if late else "start",
        }
        svg.add(root, "text", f"makespan {fixed(run['makespan_s'], 1)} s", klass="makespan-label", **place)


def _is_shown(at_s: float | None, scale: TimeScale) -> bool:
    return at_s is not None and 0 <= at_s <= scale.end_s

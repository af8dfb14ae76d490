"""What the drawings of one run share: the time axis and the line at the makespan."""

from __future__ import annotations

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


def draw_makespan(root: Tree.Element, makespan_s: float | None, scale: TimeScale, top: float, bottom: float) -> None:
    """Draw the line that marks the makespan."""
    if _is_shown(makespan_s, scale):
        x = scale.x(makespan_s or 0.0)
        svg.add(root, "line", klass="makespan", x1=x, x2=x, y1=top, y2=bottom)


def draw_makespan_label(root: Tree.Element, makespan_s: float | None, scale: TimeScale, baseline: float) -> None:
    """Write the makespan beside its line, on the side that has room."""
    if _is_shown(makespan_s, scale):
        x = scale.x(makespan_s or 0.0)
        late = x > WIDTH / 2
        place: dict[str, Any] = {
            "x": x - 6 if late else x + 6,
            "y": baseline,
            "text_anchor": "end" if late else "start",
        }
        svg.add(root, "text", f"makespan {fixed(makespan_s, 1)} s", klass="makespan-label", **place)


def _is_shown(makespan_s: float | None, scale: TimeScale) -> bool:
    return makespan_s is not None and 0 <= makespan_s <= scale.end_s

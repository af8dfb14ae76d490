"""The load of a service as a line of steps over a drawing, with its axis at the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as Tree

from flowsched_simulator.report import svg
from flowsched_simulator.report.number import compact
from flowsched_simulator.report.scale import TimeScale, even_ticks

MARGIN = 46.0
"""Room for the axis at the right, in user units."""


@dataclass(frozen=True)
class LoadScale:
    """The y axis that the loads of all services have in all drawings of a report."""

    high_qps: float
    """The value at the top."""

    def height(self, qps: float, plot: float) -> float:
        """Return how high a load lies in a plot of this height, in user units."""
        return round(plot * min(qps / self.high_qps, 1.0), 2)


def load_scale(runs: Sequence[Mapping[str, Any]]) -> LoadScale:
    """Return the axis that suits all runs."""
    highest = max((float(row["qps"]) for run in runs for row in run["latency"]), default=0.0)
    return LoadScale(1.08 * highest or 1.0)


def draw_load(
    root: Tree.Element,
    rows: Sequence[Mapping[str, Any]],
    axis: LoadScale,
    scale: TimeScale,
    top: float,
    plot: float,
) -> None:
    """Draw the load of one service's windows over a plot from ``top`` down, and its axis right of it."""
    base = top + plot
    svg.add(root, "text", "K QPS", klass="tick load-label", x=scale.right + 8, y=top - 11)
    for tick in even_ticks(axis.high_qps, 4):
        y = base - axis.height(tick, plot)
        svg.add(root, "text", compact(tick / 1000), klass="tick load-label", x=scale.right + 8, y=y + 4)
    parts: list[str] = []
    end_x: float | None = None
    for row in rows:
        left, right = scale.x(row["t_s"]), scale.x(row["end_s"])
        y = base - axis.height(row["qps"], plot)
        joined = end_x is not None and abs(left - end_x) < 0.02
        parts.append(f"V{svg.length(y)}" if joined else f"M{svg.length(left)} {svg.length(y)}")
        parts.append(f"H{svg.length(right)}")
        end_x = right
    if parts:
        svg.add(root, "path", klass="load", d="".join(parts))

"""A drawing of a solved network for papers, as SVG or PNG: layers from left to right, as wide a line as there is flow.

Needs matplotlib (the extra ``plots``). Same record, same bytes; readable in black and white.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from flowsched.inspector.condensed_graph import condense, shortened
from flowsched.inspector.graph import Graph
from flowsched.inspector.layout import LINE, NOTE, TEXT, Curve, Layout, Rect, lay_out
from flowsched.inspector.record_view import Part, RecordView
from flowsched_models.document import InputError
from flowsched_models.extras import install_extra
from flowsched_models.text_table import when

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#1d3244"
_WAIT = "#a34a16"
_FAINT = "#8d8d8d"
_FILLS = {"class": "#ffffff", "task": "#ffffff", "sink": "#e6e6e6", "unscheduled": "#fbeee4", "domain": "#f3f3f3"}
_BOX = "#e8eff5"
_FOOT = 0.22
"""Inches below the network for the line that explains it."""
_DPI = 200
_LARGEST_DOTS = 12_000
"""Dots along the longer side of a PNG at most."""


def render_drawing(
    recorded: RecordView, part: Part, graph: Graph, which: str, form: Literal["svg", "png"], all_arcs: bool = False
) -> bytes:
    """The drawing, in SVG with its text as paths: the same everywhere; ``which``: the network's title.

    Raises :class:`InputError` without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        message = "drawing needs matplotlib, which is not installed"
        raise InputError.one(f"--{form}", message, install_extra("plots")) from None
    with matplotlib.rc_context():
        # Neither the user's own style nor a random salt may change the bytes.
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "flowsched"
        matplotlib.rcParams["svg.fonttype"] = "path"
        # Names are plain text: between two dollars they would be mathematics.
        matplotlib.rcParams["text.parse_math"] = False
        layout = draw_up(recorded, part, graph, all_arcs)
        explained = _explained(recorded, graph, which, layout)
        wide = max(layout.width, _text_width(explained, NOTE) + 0.3)
        figure = Figure(figsize=(wide, layout.height + _FOOT))
        _draw(figure, layout, wide, explained)
        out = io.BytesIO()
        if form == "svg":
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "flowsched"})
        else:
            dpi = min(_DPI, int(_LARGEST_DOTS / max(wide, layout.height + _FOOT)))
            figure.savefig(out, format="png", dpi=dpi, metadata={"Software": "flowsched"})
        return out.getvalue()


def draw_up(recorded: RecordView, part: Part, graph: Graph, all_arcs: bool = False) -> Layout:
    """Where everything goes. Needs matplotlib for the widths of texts."""
    sizes = {g.name: len(g.members) for g in part.groups}
    titles = {name: shortened(name) + (f" · {size:,} machines" if size > 1 else "") for name, size in sizes.items()}
    return lay_out(condense(recorded, part, graph, all_arcs), _text_width, titles)


def _explained(recorded: RecordView, graph: Graph, which: str, layout: Layout) -> str:
    optimum = graph.optimum / graph.cost_scale
    said = [
        f"round {recorded.round} at {when(recorded.now_s)}, {which}: {graph.node_count:,} nodes, "
        f"{graph.arc_count:,} arcs, cost {optimum:.3f}"
    ]
    said += layout.condensed.left_out
    if any(c.label for c in layout.curves):
        said.append("on arcs: flow/capacity · cost of one task")
    return "; ".join(said)


def _draw(figure: Figure, layout: Layout, wide: float, explained: str) -> None:
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    shift = (wide - layout.width) / 2
    axes.set_xlim(-shift, wide - shift)
    axes.set_ylim(-_FOOT, layout.height)
    axes.set_axis_off()
    for frame in layout.frames:
        _rounded(axes, frame.rect, facecolor="#f6f6f6", edgecolor="#b5b5b5", linewidth=0.6, zorder=1)
        x, y = frame.rect.x + frame.rect.width / 2, frame.rect.top - 0.03
        axes.text(x, y, frame.title, ha="center", va="top", fontsize=NOTE + 0.5, color="#333333", zorder=6)
    # The thinnest last: no line hides under a wider one.
    for rank, curve in enumerate(sorted(layout.curves, key=lambda c: (c.bundle.flow > 0, -c.bundle.flow))):
        _line(axes, layout, curve, 2.0 + rank / (len(layout.curves) + 1))
    for cell, rect in zip(layout.condensed.cells, layout.boxes, strict=True):
        idle = cell.flow == 0
        _rounded(
            axes,
            rect,
            facecolor="#ffffff" if idle else _FILLS.get(cell.kind, _BOX),
            edgecolor=_FAINT if idle else (_WAIT if cell.kind == "unscheduled" else _INK),
            linewidth=0.6 if idle else 0.9,
            linestyle=(0, (3, 2)) if cell.kind == "unscheduled" else "solid",
            zorder=4,
        )
        colour = "#6f6f6f" if idle else "#111111"
        x, y = rect.x + rect.width / 2, rect.y + rect.height / 2
        lift = NOTE * LINE / 144.0 if cell.note else 0.0
        text: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 5}
        axes.text(x, y + lift, cell.label, fontsize=TEXT, color=colour, **text)
        if cell.note:
            axes.text(x, y - TEXT * LINE / 144.0, cell.note, fontsize=NOTE, color="#5a5a5a", **text)
    axes.text(-shift + wide / 2, -_FOOT / 2, explained, ha="center", va="center", fontsize=NOTE, color="#5a5a5a")


def _line(axes: Axes, layout: Layout, curve: Curve, order: float) -> None:
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path

    flow = curve.bundle.flow
    waits = "unscheduled" in (
        layout.condensed.cells[curve.bundle.head].kind,
        layout.condensed.cells[curve.bundle.tail].kind,
    )
    colour = _FAINT if not flow else (_WAIT if waits else _INK)
    width = curve.width
    long, broad = 0.055 + 0.011 * width, 0.028 + 0.011 * width
    start, first, second, (x, y) = curve.points
    if curve.upright:
        base, corners = (x, y + long), [(x, y), (x - broad, y + long), (x + broad, y + long)]
        second = (second[0], max(second[1], base[1]))
    else:
        base, corners = (x - long, y), [(x, y), (x - long, y - broad), (x - long, y + broad)]
    path = Path([start, first, second, base], [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    casing: dict[str, Any] = {"facecolor": "none", "capstyle": "butt"}
    if flow:
        axes.add_patch(PathPatch(path, edgecolor="#ffffff", linewidth=width + 1.0, zorder=order, **casing))
    style: Any = "solid" if flow else (0, (4, 2.5))
    axes.add_patch(PathPatch(path, edgecolor=colour, linewidth=width, linestyle=style, zorder=order, **casing))
    axes.add_patch(Polygon(corners, closed=True, facecolor=colour, edgecolor="none", zorder=order))
    if curve.label:
        ground = "none" if curve.upright else "#ffffff"
        box = {"boxstyle": "square,pad=0.12", "facecolor": ground, "edgecolor": "none"}
        ink = "#111111" if flow else "#6f6f6f"
        place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": NOTE, "zorder": 3.5}
        axes.text(*curve.at, curve.label, color=ink, bbox=box, **place)


def _rounded(axes: Axes, rect: Rect, **style: Any) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = "round,pad=0,rounding_size=0.04"
    axes.add_patch(FancyBboxPatch((rect.x, rect.y), rect.width, rect.height, boxstyle=shape, **style))


@lru_cache(maxsize=10_000)
def _text_width(text: str, size: float) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    return float(TextPath((0, 0), text, prop=FontProperties(size=size)).get_extents().width) / 72.0

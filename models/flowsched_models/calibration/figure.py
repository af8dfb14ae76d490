"""Drawings of a fit as SVG: same numbers, same bytes, whatever the user's own style; readable in black and white.

Needs matplotlib, which comes with the extra ``calibrate``.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

from flowsched_models.text_table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b1e23"
SOFT = "#6b727c"
FAINT = "#c4c9cf"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#444444")
"""Told apart under the common kinds of colour blindness (after Okabe and Ito); markers and dashes differ as well."""
DASHES = ("-", "--", ":", "-.")
PANEL_IN = (2.9, 2.3)
"""Width and height of one panel of several, in inches."""

_LONG_NUMBER = re.compile(rb'(?<=[\s"])(-?\d+\.\d\d)\d+(?=[\s"])')
"""Coordinates; not the scales in brackets. A hundredth of a point is a third of the size less."""

_STYLE: dict[str, object] = {
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelsize": 8.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "grid.color": "#e6e8eb",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "flowsched",
    "text.parse_math": False,
    "xtick.color": SOFT,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8,
}
"""Texts as paths: the same everywhere. Without mathematics: a ``$`` in a job's name is a ``$``."""


def svg(draw: Callable[[Figure], None], width_in: float, height_in: float) -> bytes:
    """What ``draw`` draws on a figure of this size."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A name in a script that the font lacks becomes boxes; the tables have it.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)  # type: ignore[arg-type]
        engine = ConstrainedLayoutEngine()
        figure = Figure(figsize=(width_in, height_in), layout=engine)
        draw(figure)
        # Arranged here: savefig would draw everything once more for it.
        FigureCanvasSVG(figure)
        engine.execute(figure)
        figure.set_layout_engine(None)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _LONG_NUMBER.sub(rb"\1", out.getvalue())


def styles(count: int) -> Iterator[tuple[str, str, str]]:
    """Marker, dash and colour of so many series: the first twelve differ in the marker alone."""
    return islice(zip(cycle(MARKERS), cycle(DASHES), cycle(COLOURS), strict=False), count)


def label(name: str, longest: int = 44) -> str:
    """A name as text of a drawing; one that begins with ``_`` would be kept out of legends."""
    text = printable(name)
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return f" {text}" if text.startswith("_") else text


def panels(figure: Figure, count: int, columns: int) -> list[Axes]:
    """So many panels, row by row."""
    rows = -(-count // columns)
    grid = figure.add_gridspec(rows, columns)
    return [figure.add_subplot(grid[i // columns, i % columns]) for i in range(count)]


def plain_log_axis(axes: Axes, which: str, ticks: Sequence[float] | None = None) -> None:
    """A logarithmic axis with numbers written out; with its own ticks if there are any."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = sorted(axes.get_xlim() if which == "x" else axes.get_ylim())
    if ticks is None:
        fine = high / max(low, 1e-300) < 30.0
        steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high / low < 5.0 else (1.0, 2.0, 5.0) if fine else (1.0,)
        axis.set_major_locator(LogLocator(subs=steps))
    else:
        axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high] or list(ticks)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float) -> str:
    """A number for people: no exponent, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"

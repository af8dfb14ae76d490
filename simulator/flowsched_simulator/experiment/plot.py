"""A drawing that can be saved, shown in a notebook and put on a page; the same data give the same bytes."""

from __future__ import annotations

import io
import math
import re
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched_models.document import InputError
from flowsched_models.output import make_folder, write_whole_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

INK, GRID = "#1b1e23", "#e3e6ea"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a8f98")
"""Told apart under the common kinds of colour blindness (after Okabe and Ito)."""
_DASHES = ("-", "--", ":", "-.")
_SIZE_IN = (5.2, 3.2)
"""Without the legend."""
_KEY_IN, _LETTER_IN, _ROW_IN = 0.6, 0.07, 0.17
"""Of the legend: a line with what is around it, a letter of its label, a row."""
_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
_ACROSS, _UP, _ENTRY = 56, 34, 64
"""Letters that have room in a line of the title and the x axis, of the y axis, and of the legend."""
STYLE: Any = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "flowsched",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def _folded(text: str, letters: int) -> str:
    """A text in lines that are not cut. Names are plain text: between two dollars they would be mathematics."""
    return "\n".join(textwrap.wrap(text, letters)).replace("$", r"\$")


def _line(handle: Any) -> Any:
    """The line of what a legend shows, which may have bars beside it."""
    return handle if hasattr(handle, "get_xydata") else handle[0]


def _points(handle: Any) -> bytes:
    """What is drawn, the ends of bars too."""
    bars = () if handle is _line(handle) else (segment for each in handle[2] for segment in each.get_segments())
    return b"".join(np.ascontiguousarray(points).tobytes() for points in (_line(handle).get_xydata(), *bars))


class Plot:
    """One drawing with one pair of axes. ``figure`` is matplotlib's, to change what is not as it should be."""

    def __init__(self, name: str, title: str, x: str, y: str) -> None:
        """``name`` is the one of its files."""
        import matplotlib as mpl
        from matplotlib.figure import Figure

        self.name = name
        self.title = title
        with mpl.rc_context(STYLE):
            self.figure: Drawing = Figure(figsize=_SIZE_IN, layout="constrained")
            self.axes: Axes = self.figure.add_subplot()
            self.axes.set(title=_folded(title, _ACROSS), xlabel=_folded(x, _ACROSS), ylabel=_folded(y, _UP))

    def line_style(self, number: int, own: bool = False) -> dict[str, Any]:
        """How the n-th line is drawn; the reference is wider and on top."""
        dash = _DASHES[number // len(COLOURS) % len(_DASHES)]
        return {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": dash,
            "linewidth": 2.4 if own else 1.4,
            "zorder": 4 if own else 3,
        }

    def finish(self) -> Plot:
        """Add the legend when all lines are there: below the axes, where it hides none of them.

        Lines that hide behind each other are one entry, ``easy = conservative``.
        """
        import matplotlib as mpl

        alike: dict[bytes, list[tuple[Any, str]]] = {}
        for handle, label in zip(*self.axes.get_legend_handles_labels(), strict=True):
            alike.setdefault(_points(handle), []).append((handle, label))
        # The one that is drawn above the others is seen.
        handles = [max(same, key=lambda each: _line(each[0]).get_zorder())[0] for same in alike.values()]
        labels = [_folded(" = ".join(label for _, label in same), _ENTRY) for same in alike.values()]
        if labels:
            width, height = _SIZE_IN
            longest = max(len(line) for label in labels for line in label.splitlines())
            columns = max(1, int(width / (_KEY_IN + _LETTER_IN * longest)))
            rows = math.ceil(len(labels) / columns) * max(label.count("\n") + 1 for label in labels)
            self.figure.set_size_inches(width, height + _ROW_IN * (rows + self.axes.get_title(loc="left").count("\n")))
            with mpl.rc_context(STYLE):
                self.figure.legend(handles, labels, loc="outside lower left", ncols=columns)
        return self

    def to_bytes(self, kind: str) -> bytes:
        """As a file: ``svg``, ``pdf`` or ``png``."""
        import matplotlib as mpl

        sink = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.figure.savefig(sink, format=kind, metadata=_METADATA[kind], transparent=kind == "svg", dpi=150)
        return sink.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write it as the suffix says: .svg, .pdf or .png."""
        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in _METADATA:
            help = f"end it in .{', .'.join(_METADATA)}"
            raise InputError.one(path, f"'{path.suffix}' is not a kind of drawing", help)
        make_folder(path.parent)
        write_whole_bytes(path, self.to_bytes(kind))
        return path

    def markup(self, svg: bytes | None = None) -> str:
        """As an element of a page, in the colours of the page; its ids are its own. ``svg``: the file, where it is made."""
        text = (self.to_bytes("svg") if svg is None else svg).decode()
        text = text[text.index("<svg") :].replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", text)
        text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
        return text.replace("<svg", f'<svg role="img" aria-label="{escape(self.title)}"', 1)

    def __repr__(self) -> str:
        return f"<Plot {self.name}: {self.title}>"

    def _repr_svg_(self) -> str:
        return self.to_bytes("svg").decode()

"""Tables, means with their spread, and bars of `benchmarks.engine`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from flowsched_models.text_table import text_table


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, the first to the left."""
    return "\n".join(text_table(lines, indent=""))


def number(value: float | None, digits: int = 1) -> str:
    """A figure, or ``-`` where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def ratio(value: float | None, base: float | None) -> float | None:
    """One figure over another; None where either is missing."""
    return None if value is None or not base else value / base


def spread(values: Iterable[float | None], digits: int = 1) -> str:
    """Mean [least, most] of the figures that are there."""
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    if len(known) == 1:
        return number(known[0], digits)
    return f"{np.mean(known):.{digits}f} [{min(known):.{digits}f}, {max(known):.{digits}f}]"


def mean(values: Iterable[float | None]) -> float | None:
    """The mean; None where a figure is missing, or all are."""
    found = list(values)
    return float(np.mean([v for v in found if v is not None])) if found and None not in found else None


def bar(what: str, measured: float | None, limit: float, *, least: bool = False) -> dict[str, Any]:
    """A figure beside what it has to keep to: at most ``limit``, or at least."""
    met = None if measured is None else bool(measured >= limit if least else measured <= limit)
    return {"what": what, "measured": measured, "limit": limit, "least": least, "met": met}


def bar_lines(bars: Sequence[dict[str, Any]]) -> str:
    """One line for each."""
    answer = {True: "met", False: "MISSED", None: "not measured"}
    lines = [["bar", "limit", "measured", ""]]
    for b in bars:
        side = ">=" if b["least"] else "<="
        lines.append([b["what"], f"{side} {b['limit']:g}", number(b["measured"], 3), answer[b["met"]]])
    return aligned(lines)

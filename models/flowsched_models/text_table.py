"""Tables and words for people: in a terminal, and in what is written for other tools."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

INDENT = "  "
_FIRST_DATE_S, _LAST_DATE_S = 1e9, 1e11
"""No simulation lasts thirty years."""


def text_table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,), indent: str = INDENT) -> list[str]:
    """Rows as lines with aligned columns; ``left``: columns that are text, the others are numbers and stand to the right.

    The first row is the head. ``indent`` begins every line.
    """
    if not rows:
        return []
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = [
            (text if c == last else text.ljust(widths[c])) if c in left else text.rjust(widths[c])
            for c, text in enumerate(row)
        ]
        lines.append((indent + INDENT.join(cells)).rstrip())
    return lines


def ruled_table(rows: Sequence[Sequence[str]], heads: int = 1, left: Sequence[int] = (0,)) -> list[str]:
    """The same without an indent, and with a line of dashes below the first ``heads`` rows."""
    rule = INDENT.join("-" * max(map(len, column)) for column in zip(*rows, strict=True))
    lines = text_table(rows, left, indent="")
    return [*lines[:heads], rule, *lines[heads:]]


def printable(text: str) -> str:
    """A text without control characters: names come from files, and a terminal obeys what it is sent."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def csv_table(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV. Cells that a spreadsheet would take for a formula are in quotes."""
    out = io.StringIO()
    plain, quoting = csv.writer(out, lineterminator="\n"), csv.writer(out, csv.unix_dialect)
    for row in rows:
        looks_so = any(isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) for cell in row)
        (quoting if looks_so else plain).writerow(row)
    return out.getvalue()


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 task``, ``1,200 tasks``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def spelt(values: Iterable[int]) -> str:
    """Seeds as a file has them: ``1..30`` where they follow each other."""
    found = list(values)
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}..{found[-1]}"
    return ", ".join(map(str, found))


def when(time_s: float) -> str:
    """A time of a record: seconds of a simulation, or a date where they count from 1970."""
    if not _FIRST_DATE_S <= time_s < _LAST_DATE_S:
        return f"{time_s:.1f} s"
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"

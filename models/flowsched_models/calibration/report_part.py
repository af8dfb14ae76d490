"""What a report is made of: sentences, tables and drawings under a heading."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReportTable:
    """Rows of text under a head; the first cell of a row names it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = (0,)
    """Columns that are text; the others are numbers and stand to the right."""


@dataclass(frozen=True)
class Picture:
    """A drawing, and what it shows for those who do not see it."""

    name: str
    svg: bytes
    alt: str
    caption: str

    @property
    def source(self) -> str:
        """The drawing as an address, so that a page needs no other file."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode("ascii")


@dataclass(frozen=True)
class ReportPart:
    """A section."""

    anchor: str
    heading: str
    said: tuple[str, ...] = ()
    """Sentences on top; the only content where something was not measured."""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    items: tuple[str, ...] = ()


def percent(value: float | None, digits: int = 1) -> str:
    """Per cent, or a dash."""
    if value is None:
        return "–"
    return f"{value:.{digits}f}" if abs(value) < 1000.0 else ">1000"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"

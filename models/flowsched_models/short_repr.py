"""What an object with thousands of values shows of itself: a line in a terminal, a table in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import NamedTuple

_ROWS = 20
"""Rows of a table that a notebook shows."""


class Overview(NamedTuple):
    """A few words, and a table of what is inside."""

    words: str
    heads: Sequence[str] = ()
    rows: Iterable[Sequence[object]] = ()
    total: int = 0
    """How many rows there are; more than a notebook shows are counted only."""


class ShortRepr(ABC):
    """For dataclasses with ``repr=False``: ``__repr__`` in one line, ``_repr_html_`` for notebooks."""

    @abstractmethod
    def overview(self) -> Overview:
        """What is shown."""

    def __repr__(self) -> str:
        """One line."""
        return f"<{type(self).__name__} {self.overview().words}>"

    def _repr_html_(self) -> str:
        shown = self.overview()
        caption = f"<p><b>{type(self).__name__}</b> {escape(shown.words)}</p>"
        if not shown.total:
            return caption
        head = "".join(f"<th>{escape(each)}</th>" for each in shown.heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(each))}</td>" for each in row) + "</tr>"
            for row in islice(shown.rows, _ROWS)
        )
        more = f"<p>and {shown.total - _ROWS:,} more</p>" if shown.total > _ROWS else ""
        return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

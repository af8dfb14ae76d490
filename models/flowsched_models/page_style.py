"""Styles that all our pages share, whichever package they are of."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def scroll_style() -> str:
    """The shade of what scrolls sideways, such as a wide table: it needs the colour ``--page`` of the page's own styles."""
    return files(__package__).joinpath("scroll.css").read_text(encoding="utf-8")

"""The scripts and styles of a page, from the files of this package."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Template
from markupsafe import Markup

from flowsched_models.page_style import page_template, page_text, scroll_style

FIGURES = (
    "format.js",
    "tip.js",
    "sortable.js",
    "course.js",
    "time_view.js",
    "picture.js",
    "gestures.js",
    "run_view.js",
    "line_chart.js",
    "latency_chart.js",
    "schedule.js",
    "job_table.js",
    "report.js",
)
"""What draws the runs of a cluster on canvases, in the order in which the files need each other."""
MARKS = ("tip.js", "sortable.js", "marks.js")
"""What a page with drawings in SVG needs: tips, and tables that can be sorted."""


def script(names: Sequence[str]) -> Markup:
    """Return files of ``scripts`` as one script with names of its own."""
    return Markup("".join(['"use strict";\n(() => {\n', *(_text(f"scripts/{name}") for name in names), "})();\n"]))


def style(*names: str) -> Markup:
    """Return the styles of a page: those of all our pages, those of all reports, and files that are its own."""
    return Markup("".join([scroll_style(), _text("report.css"), *map(_text, names)]))


def template(name: str) -> Template:
    """Return a page's template of this package."""
    return page_template(__package__, name)


def _text(name: str) -> str:
    return page_text(__package__, name)

"""What all our pages share, whichever package they are of."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from flowsched_models.text_table import printable


@cache
def scroll_style() -> str:
    """The shade of what scrolls sideways, such as a wide table: it needs the colour ``--page`` of the page's own styles."""
    return page_text(__package__, "scroll.css")


@cache
def page_text(package: str, name: str) -> str:
    """A file beside the modules of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def page_template(package: str, name: str) -> Template:
    """A template of a package: values are escaped, and one that is not given is an error.

    The filter ``printable`` takes control characters out: names come from files.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False
    )
    environment.filters["printable"] = printable
    return environment.from_string(page_text(package, name))

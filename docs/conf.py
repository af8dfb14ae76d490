"""The documentation site: ``make docs`` builds it into out/docs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

from flowsched.support.configuration import reference_table
from flowsched_agent import configuration as agent_configuration
from flowsched_agent import metrics as agent_metrics
from flowsched_k8s.configuration import configuration as scheduler_configuration
from flowsched_k8s.metrics import metrics as scheduler_metrics

HOUSE = Path(__file__).parent.parent
PAGES = {f"{page.upper()}.md": page for page in ("readme", "contributing", "changelog", "architecture")}
"""Documents at the root of the project, by their page of the site."""

project = "flowsched"
version = release = installed_version("flowsched")
html_title = f"flowsched {release}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "sphinx_copybutton"]
exclude_patterns = ["notebooks/*"]
smartquotes = False  # Options are shown with two hyphens.
html_theme = "furo"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_inherit_docstrings = False
nitpicky = False

TABLES: dict[str, Callable[[], str]] = {
    "scheduler configuration": lambda: reference_table(scheduler_configuration.Configuration),
    "agent configuration": lambda: reference_table(agent_configuration.Configuration),
    "scheduler metrics": lambda: metrics_table(scheduler_metrics.FAMILIES),
    "agent metrics": lambda: metrics_table(agent_metrics.FAMILIES),
}
"""Tables that are made from the code, where a page has `<!-- table: NAME -->`."""

_TABLE = re.compile(r"^<!-- table: (.+) -->\n", re.MULTILINE)
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def metrics_table(families: Iterable[scheduler_metrics.Family | agent_metrics.Family]) -> str:
    """Metrics in Markdown, as the pages about them have them."""
    rows = []
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        kind = f"{family.kind}: {labels}" if labels else family.kind
        rows.append(f"| `{family.name}` | {kind} | {family.help} |")
    return "\n".join(["| Metric | Type: labels | Meaning |", "|---|---|---|", *rows]) + "\n"


def with_tables(text: str) -> str:
    """A page's text with the tables that it names."""
    return _TABLE.sub(lambda found: TABLES[found[1]](), text)


def links(text: str, page: str) -> str:
    """A page's links as the site has them: to its own pages; a file that is no page is named instead."""
    folder = HOUSE if page in PAGES.values() else (HOUSE / "docs" / page).parent

    def link(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return found[0]
        file = (folder / path).resolve()
        if not file.is_relative_to(HOUSE):
            return found[0]
        name = file.relative_to(HOUSE).as_posix()
        if name in PAGES:
            return f"[{words}](/project/{PAGES[name]}.md{hash_}{anchor})"
        if file.is_relative_to(HOUSE / "docs") and file.is_file():
            return f"[{words}](/{file.relative_to(HOUSE / 'docs').as_posix()}{hash_}{anchor})"
        return words if words.strip("`") == name else f"{words} (`{name}`)"

    # Code is shown as it is.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def _read(app: Sphinx, name: str, content: list[str]) -> None:  # noqa: ARG001
    page = name.removeprefix("project/")
    if name.startswith("reference/"):
        return
    if page in PAGES.values():
        source = next(file for file, known in PAGES.items() if known == page)
        content[0] = (HOUSE / source).read_text(encoding="utf-8")
    content[0] = links(with_tables(content[0]), page)


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.connect("source-read", _read)

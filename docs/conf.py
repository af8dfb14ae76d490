"""The documentation site: ``make docs`` builds it into out/docs."""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

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

_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


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
    content[0] = links(content[0], page)


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.connect("source-read", _read)

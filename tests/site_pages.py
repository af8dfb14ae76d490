"""Pages as the documentation site has them: with the tables that docs/conf.py makes from the code."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent.parent / "docs"


@cache
def site() -> ModuleType:
    """docs/conf.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("documentation_site", DOCS / "conf.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site_page(name: str) -> str:
    """A page's Markdown with its tables."""
    text: str = site().with_tables((DOCS / name).read_text(encoding="utf-8"))
    return text

"""The notebooks of the documents run from top to bottom and print what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))


def shown(notebook: Any) -> list[tuple[str, list[str], list[str]]]:
    """Of every code cell: its source, what it printed or is, and the kinds of its pictures and tables."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = [o["text"] if "text" in o else o["data"]["text/plain"] for o in cell.outputs]
            kinds = sorted(kind for o in cell.outputs for kind in o.get("data", ()))
            found.append((cell.source, texts, kinds))
    return found


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    stored: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    fresh: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None

    NotebookClient(fresh, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()

    assert shown(fresh) == shown(stored)
    assert not list(tmp_path.iterdir()), "a notebook leaves its files in a folder of its own"

"""The course's raw measurements, where somebody has them: they do not belong to the tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_HOUSE = Path(__file__).resolve().parent.parent


def cca_folder() -> Path | None:
    """The folder with one folder per group: ``FLOWSCHED_CCA``, else a ``data/cca`` in a folder beside the checkout."""
    named = os.environ.get("FLOWSCHED_CCA")
    folders = [Path(named)] if named else sorted(_HOUSE.parent.glob("*/data/cca"))
    return next((folder for folder in folders if folder.is_dir()), None)


def cca_data() -> Path:
    """The same folder; skips the test that asks if there is none."""
    folder = cca_folder()
    if folder is None:
        pytest.skip("the course's measurements are not here; FLOWSCHED_CCA may name their folder")
    return folder

"""Compiled functions are kept, and read from a folder that nobody may write to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

FILLS = """
import json, os, sys
asked = os.access
if sys.argv[1] == "read only":
    os.access = lambda path, mode, **more: mode & os.W_OK == 0 and asked(path, mode, **more)
import numpy as np
from flowsched_models.sharing import water_fill
level = np.zeros(2)
for kind in sys.argv[2:]:
    amount = 1 if kind == "int" else 1.0
    water_fill(amount, np.zeros(2), np.ones(2), np.ones(2, np.bool_), level)
stats = water_fill.stats
print(json.dumps([level.tolist(), len(stats.cache_hits), len(stats.cache_misses)]))
"""


def fill(cache: Path, access: str, *kinds: str) -> tuple[list[float], int, int]:
    """What comes out, how many kinds of call were found compiled, and how many were compiled."""
    done = subprocess.run(
        [sys.executable, "-c", FILLS, access, *kinds],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    level, found, made = json.loads(done.stdout)
    return level, found, made


def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    assert fill(tmp_path, "all", "float") == ([0.5, 0.5], 0, 1)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert sum(path.is_file() for path in kept) > 0

    assert fill(tmp_path, "read only", "float") == ([0.5, 0.5], 1, 0)
    # What is missing there is compiled and not kept.
    assert fill(tmp_path, "read only", "float", "int") == ([0.5, 0.5], 1, 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == kept


def test_where_nothing_can_be_kept_it_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert fill(tmp_path / "file", "all", "float") == ([0.5, 0.5], 0, 1)

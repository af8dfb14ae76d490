"""Compiled functions are kept, and read from a read-only folder."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flowsched_models import compiled
from flowsched_models.compiled import SOURCES, remove_unused

pytest.importorskip("numba")

FILLS = """
import json, os, sys
asked = os.access
if sys.argv[1] == "read only":
    os.access = lambda path, mode, **more: mode & os.W_OK == 0 and asked(path, mode, **more)
import numpy as np
from flowsched_models.cell import water_fill
level = np.zeros(2)
for kind in sys.argv[2:]:
    amount = 1 if kind == "int" else 1.0
    water_fill(amount, np.zeros(2), np.ones(2), np.ones(2, np.bool_), level)
stats = water_fill.stats
print(json.dumps([level.tolist(), len(stats.cache_hits), len(stats.cache_misses)]))
"""


NUMBERS = {"int", "float", "bool", "None", "tuple"}


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


def test_what_is_kept_is_known_by_all_that_it_was_compiled_from() -> None:
    folder = Path(compiled.__file__).parent
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    uses = {name: set(re.findall(r"from flowsched_models\.(\w+) import", text)) for name, text in texts.items()}

    assert {"compiled.py", *(name for name, used in uses.items() if "compiled" in used)} <= set(SOURCES)
    assert {f"{used}.py" for name in SOURCES for used in uses[name]} <= set(SOURCES)


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


def old(folder: Path, days: float) -> Path:
    """A folder with something in it that was last used so many days ago."""
    folder.mkdir(parents=True)
    (folder / "kept.nbi").write_text("")
    then = time.time() - days * 86400
    os.utime(folder, (then, then))
    return folder


def test_what_older_versions_left_goes_when_unused_for_a_month(tmp_path: Path) -> None:
    kept = tmp_path / "flowsched" / "compiled"
    unused, used, foreign = (old(kept / name, days) for name, days in (("0" * 16, 31), ("1" * 16, 29), ("notes", 99)))
    (kept / ("2" * 16)).symlink_to(old(tmp_path / "elsewhere", 99))

    assert fill(tmp_path, "all", "float") == ([0.5, 0.5], 0, 1)

    assert not unused.exists()
    assert used.exists() and foreign.exists() and (kept / ("2" * 16) / "kept.nbi").exists()


def test_a_version_in_use_stays_fresh_and_removes_nothing(tmp_path: Path) -> None:
    fill(tmp_path, "all", "float")
    (own,) = (tmp_path / "flowsched" / "compiled").iterdir()
    os.utime(own, (0, 0))
    unused = old(own.parent / ("0" * 16), 31)

    assert fill(tmp_path, "all", "float") == ([0.5, 0.5], 1, 0)

    assert own.stat().st_mtime > time.time() - 3600
    assert unused.exists(), "only a version that comes new looks around"


def test_what_cannot_be_removed_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unused = old(tmp_path / ("0" * 16), 31)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "rmdir", refuse)
    monkeypatch.setattr(os, "unlink", refuse)
    remove_unused(tmp_path, time.time())
    remove_unused(tmp_path / "nowhere", time.time())

    assert unused.exists()


def test_what_borrows_arrays_returns_none() -> None:
    """An array that came back uncounted would be freed while it is in use."""
    root = Path(__file__).parent.parent.parent
    folders = ("models", "flowsched", "simulator", "k8s", "benchmarks")
    files = [file for name in folders for file in (root / name).rglob("*.py")]
    found = {}
    for file in files:
        if "@borrowing" in (text := file.read_text(encoding="utf-8")):
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef) and "borrowing" in map(ast.unparse, node.decorator_list):
                    found[f"{file.stem}.{node.name}"] = ast.unparse(node.returns) if node.returns else ""
    assert len(found) > 50
    wrong = {name: what for name, what in found.items() if set(re.findall(r"\w+", what)) - NUMBERS or not what}
    assert not wrong

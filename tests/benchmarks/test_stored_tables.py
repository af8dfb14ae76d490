"""The tables beside stored results are what the benchmarks make of them: none is edited, and no change of one is lost."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from flowsched_models.text_table import text_table

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
OF_ROWS = (
    "batch_log",
    "declared_run_times",
    "inspector_page",
    "kept_state",
    "learning_cpu",
    "played_learning",
    "played_learning",
    "pod_start_forecasts",
    "records",
    "solvers",
)
OF_ALL = ("plain_traces", "round_scaling")


@pytest.mark.parametrize("name", (*OF_ROWS, *OF_ALL))
def test_the_table_of_a_stored_result_is_the_stored_one(name: str) -> None:
    benchmark = importlib.import_module(f"benchmarks.{name}")
    result = json.loads((RESULTS / f"{name}.json").read_text())
    table = benchmark.table(result["rows"] if name in OF_ROWS else result)
    assert table in (RESULTS / f"{name}.txt").read_text()


def test_text_stands_to_the_left_and_numbers_to_the_right() -> None:
    rows = [["name", "s", "about"], ["a", "1.50", "short"], ["longer", "12.25", ""]]
    assert text_table(rows, left=(0, 2)) == [
        "  name        s  about",
        "  a        1.50  short",
        "  longer  12.25",
    ]
    assert text_table(rows, left=(), indent="") == [
        "  name      s  about",
        "     a   1.50  short",
        "longer  12.25",
    ]

"""Two trees beside each other, from what `benchmarks.policies` wrote of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.policies import against_table, bars, main


def row(seed: int, error: float, **figures: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "load": 0.8,
        "model_error": error,
        "figures": {
            name: {"mean_completion_s": mean, "p95_completion_s": 2 * mean, "makespan_s": 100.0}
            for name, mean in figures.items()
        },
    }


def test_policies_are_compared_on_the_same_scenarios_alone() -> None:
    before = [row(1, 0.0, flow=10.0), row(2, 0.0, flow=10.0), row(1, 0.4, flow=20.0, fcfs=30.0)]
    now = [row(1, 0.0, flow=9.0), row(2, 0.0, flow=10.0), row(3, 0.0, flow=1.0), row(1, 0.4, flow=22.0)]

    lines = [line.split("  ") for line in against_table(now, before).splitlines()[3:]]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]

    assert cells == [
        ["0", "flow", "2", "0.950 [0.900, 1.000]", "0.950 [0.900, 1.000]", "1.000 [1.000, 1.000]"],
        ["0.4", "flow", "1", "1.100 [1.100, 1.100]", "1.100 [1.100, 1.100]", "1.000 [1.000, 1.000]"],
    ]


def test_without_an_error_a_hundredth_is_lost_and_with_one_nothing() -> None:
    before = [row(1, 0.0, flow=100.0), row(1, 0.4, flow=100.0)]
    now = [row(1, 0.0, flow=101.0), row(1, 0.4, flow=101.0)]

    assert [line.rpartition(": ")[2] for line in bars(now, before).splitlines()] == ["held", "held", "missed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "flow"], "--policies with fewer needs --no-keep"),
        (["--learning", "on"], "those without --learning"),
        (["--policies", "flwo", "--no-keep"], "did you mean 'flow'"),
    ],
)
def test_a_part_of_the_policies_is_not_kept_and_none_is_guessed(options: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["--preset", "random", *options])

    assert done.exit_code != 0 and message in f"{done.output} {done.exception}"


def test_rows_with_errors_of_another_kind_are_not_compared(tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps({"error_of": "job-and-machine", "rows": []}), encoding="utf-8")

    done = CliRunner().invoke(main, ["--preset", "random", "--against", str(before)])

    assert done.exit_code == 2 and "--error-of job-and-machine, and this run has job" in done.output

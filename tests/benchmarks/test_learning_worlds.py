"""The benchmark of learning on small clusters: where copies are alike it pays, and right forecasts lose nothing by it."""

from __future__ import annotations

import math

import pytest
from click.testing import CliRunner

from benchmarks.learning import WORLDS, World, figures, main, scenario_of, table
from flowsched_simulator.run_classes import with_classes


def ratios(name: str) -> list[float]:
    """Mean completion with learning over without, of four runs."""
    rows = [figures(World(name, load, seed, 12, 80, "flow")) for seed in range(2) for load in (0.74, 1.19)]
    assert all(row["on"]["slo_violation_percent"] <= row["off"]["slo_violation_percent"] for row in rows)
    return [math.log(row["on"]["mean_completion_s"] / row["off"]["mean_completion_s"]) for row in rows]


def test_where_copies_are_alike_completions_are_sooner() -> None:
    found = ratios("kind-0.8")
    assert sum(found) / len(found) < -0.02


def test_right_forecasts_lose_nothing() -> None:
    found = ratios("exact")
    assert sum(found) / len(found) == pytest.approx(0.0, abs=0.02)


def test_jobs_are_copies_of_kinds_and_seeds_draw_others() -> None:
    first, other = (scenario_of(World("exact", 0.8, seed, 12, 80, "flow")) for seed in (0, 1))
    of_class: dict[str, set[tuple[str, float, int]]] = {}
    for t in with_classes(first, "on").tasks:
        of_class.setdefault(t.run_class, set()).add((t.profile, t.scale, t.request_milli))
    assert 2 < len(of_class) <= 8 and all(len(kinds) == 1 for kinds in of_class.values())
    assert [t.name for t in first.tasks] != [t.name for t in other.tasks]


def test_the_table_has_a_line_for_each_world_and_the_command_knows_them() -> None:
    row = {"off": {"mean_completion_s": 2.0, "p95_completion_s": 4.0, "makespan_s": 8.0, "slo_violation_percent": 1.0}}
    row["on"] = {**row["off"], "mean_completion_s": 1.0}
    text = table([{"world": name, "policy": "flow", **row} for name in WORLDS])
    assert all(f"{name} " in text for name in WORLDS) and text.count("0.500 [0.500, 0.500]") == len(WORLDS)
    refused = CliRunner().invoke(main, ["--worlds", "nowhere"])
    assert refused.exit_code == 2 and "kind-0.8" in refused.output

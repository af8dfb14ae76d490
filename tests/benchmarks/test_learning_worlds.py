"""The benchmark of learning on small clusters: where copies are alike it pays, and right forecasts lose nothing by it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.learning import (
    DEFAULT,
    INFORMED,
    METRICS,
    MODES,
    WORLDS,
    Cell,
    TrueRunTimes,
    closed,
    main,
    merged,
    options_of,
    row_of,
    run_of,
    scenario_of,
    table,
)
from benchmarks.policies import ENGINE
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT
from flowsched.cluster.snapshot import Snapshot
from flowsched_models.neutral import NEUTRAL
from flowsched_models.runtime import HostFactory
from flowsched_simulator import Options, simulate
from flowsched_simulator.policies import schedulers
from flowsched_simulator.simulation import Simulation

SEEDS, LOADS = (1000, 1001, 1002), (0.74, 1.19)


def ratios(world: str, mode: str) -> list[float]:
    """Logarithms of the mean completion with learning over that of a mode, in six runs on 12 machines."""
    found = []
    for cell in [Cell(world, load, seed, 12) for seed in SEEDS for load in LOADS]:
        learning, other = (run_of(cell, name)["mean_completion_s"] for name in ("learning", mode))
        found.append(math.log(learning / other))
    return found


def test_where_copies_are_alike_completions_are_sooner() -> None:
    found = ratios("type-0.4", "none")
    assert sum(found) / len(found) < -0.05


def test_right_forecasts_lose_nothing() -> None:
    found = ratios("exact", "none")
    assert sum(found) / len(found) == pytest.approx(0.0, abs=0.02)


def test_where_the_truth_is_told_nothing_is_left_to_learn() -> None:
    """With right forecasts an oracle knows what the models say, so that only roundings of progress differ."""
    found = ratios("exact", "oracle")
    assert sum(found) / len(found) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("world", ["kind-0.8", "type-0.4"])
def test_an_oracle_knows_factors_of_classes_before_they_run(world: str) -> None:
    found = ratios(world, "oracle")
    assert sum(found) / len(found) > 0.02


@pytest.mark.parametrize("world", ["kind-0.8", "type-0.4", "neutral"])
def test_what_is_informed_knows_the_true_factors_of_classes_that_have_completed(world: str) -> None:
    truth, now = told(world)
    known = truth.informed(now).learnt_run_times
    completed = {entry.run_class for entry in now.learnt_run_times.classes}
    assert completed == {"kind-1"}
    for machine, run_class in product(now.machines, {t.run_class for t in now.pending}):
        assert known.of(run_class, machine.type) == (
            truth.before.of(run_class, machine.type) if run_class in completed else None
        )


def test_where_factors_follow_from_no_class_it_knows_their_spread() -> None:
    truth, now = told("iid-0.4")
    found = truth.informed(now)
    assert found.learnt_run_times is now.learnt_run_times and not found.learnt_run_times.in_use
    assert found.run_time_errors is not None and found.run_time_errors.spread(0.0) == pytest.approx(0.4, abs=1e-6)


def told(world: str) -> tuple[TrueRunTimes, Snapshot]:
    """The truth of a small cluster, and a snapshot in which all wait and one of the first class has completed."""
    cell = Cell(world, 1.19, 1000, 3)
    scenario = scenario_of(cell)
    ((_, scheduler),) = schedulers("flow", scenario, cell.seed, ENGINE, HostFactory(scenario.catalogue))
    truth = TrueRunTimes(cell, scenario, Simulation(scenario, scheduler, options_of(cell, cell.seed, INFORMED)).world)
    seen = replace(NOTHING_LEARNT, applied=False).with_end("kind-1", scenario.machines[0].type, 1.5)
    now = Snapshot(0.0, scenario.catalogue, tuple(scenario.machines), pending=scenario.tasks, learnt_run_times=seen)
    return truth, now


def test_parts_are_merged_by_seed_and_no_cell_counts_twice(tmp_path: Path) -> None:
    cells = [Cell("exact", load, seed, 12) for seed in (3, 1) for load in LOADS]
    parts = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for part, half in zip(parts, (cells[:2], cells[2:]), strict=True):
        part.write_text("".join(json.dumps(cell._asdict()) + "\n" for cell in half))
    assert [Cell(**row) for row in merged(parts)] == [*cells[2:], *cells[:2]]
    with pytest.raises(ValueError, match="twice"):
        merged((parts[0], parts[0]))


def test_jobs_are_copies_of_kinds_and_seeds_draw_others() -> None:
    first, other = (scenario_of(Cell("exact", 0.8, seed, 12)) for seed in (0, 1))
    of_class: dict[str, set[tuple[str, float, int]]] = {}
    for t in first.tasks:
        of_class.setdefault(t.run_class, set()).add((t.profile, t.scale, t.request_milli))
    assert len(first.tasks) == 80 and len(of_class) == 8 and all(len(kinds) == 1 for kinds in of_class.values())
    assert [t.scale for t in first.tasks] != [t.scale for t in other.tasks]


def test_where_no_profile_is_known_all_jobs_are_told_alike_and_take_as_long_as_before() -> None:
    told, exact = (scenario_of(Cell(world, 0.8, 0, 3)) for world in ("neutral", "exact"))
    assert {(t.profile, t.scale) for t in told.tasks} == {(NEUTRAL, 1.0)}
    assert [t.run_class for t in told.tasks] == [t.run_class for t in exact.tasks]
    options = Options(learning="off")
    runs = [simulate(s, "fcfs", options=options, variant="1-own") for s in (told, exact)]
    ends = [{job.job: job.end_s for job in run.jobs} for run in runs]
    assert ends[0] == pytest.approx(ends[1])


def test_the_table_has_lines_for_each_world_and_counts_what_is_closed() -> None:
    row: dict[str, Any] = {"load": 0.8, "seed": 0, "machines": 3, "world": "iid-0.4"}
    values = {"none": 4.0, "learning": 2.0, "oracle": 1.0, "greedy": 4.0}
    for mode, value in values.items():
        row[mode] = {**dict.fromkeys(METRICS, value), "slo_violation_percent": value}
    same = {**row, "oracle": row["none"]}
    assert closed([row, same]) == (0.5, 1) and closed([same]) is None
    text = table([{**row, "world": world} for world in WORLDS])
    assert all(f"{world} " in text for world in WORLDS) and text.count("50% (1)") == 2 * len(WORLDS)
    assert "informed" not in text and table([{**row, INFORMED: row["oracle"]}]).count("100% (1)") == 2
    refused = CliRunner().invoke(main, ["--worlds", "nowhere"])
    assert refused.exit_code == 2 and all(world in refused.output for world in DEFAULT)


def test_a_row_has_all_modes_and_a_greedy_rule_chosen_on_other_seeds() -> None:
    found = row_of((Cell("iid-0.4", 1.19, 3, 3), (3,), MODES))
    assert set(found) >= {*MODES, "greedy", "world", "load", "seed"} and found["greedy"]["variant"]
    assert all(found[mode]["mean_completion_s"] > 0.0 and found[mode]["rounds"] > 0 for mode in MODES)

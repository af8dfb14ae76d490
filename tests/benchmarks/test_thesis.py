"""The thesis beside ours: what a cell is, what the command says and returns, and chapter 3's values."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks import disaggregation, thesis, thesis_chapter5, thesis_table7
from benchmarks.disaggregation_cells import EIGHTH, CellRun, run_cell
from benchmarks.disaggregation_cells import Cell as DisaggregationCell
from benchmarks.thesis import CHAPTERS, TABLES, main
from benchmarks.thesis_cell import Cell, Computed, Kind, ThesisTable, plain, verdict
from benchmarks.thesis_chapter3 import NVLINK, PCIE, breakdown, computation_s, interleaved, run_s
from benchmarks.thesis_chapter4 import QUEUE, SCENARIO_1, SCENARIO_2, violations
from benchmarks.thesis_page import PAGE, kept, page
from flowsched_models.profiles import load_catalogue

LONG = (SCENARIO_1, SCENARIO_2, QUEUE)
"""Tables that take minutes."""
CELL = Cell("t", "a job", "a machine", 1.2, 1.2, 1.25, Kind.PREDICTED, 0.05)


@pytest.fixture(scope="module")
def computed() -> list[Computed]:
    """Of chapter 5's experiment on 128 machines the makespans are those kept of it: runs of an eighth of it are repeated."""
    makespans_s = {row["cell"]: row["makespan_s"] for row in kept_runs()["cells"]["rows"]}

    def run(cell: DisaggregationCell, *more: Any) -> CellRun | SimpleNamespace:
        return SimpleNamespace(makespan_s=makespans_s[cell.key]) if cell.experiment == "4b" else run_cell(cell, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thesis_chapter5, "run_cell", run)
        patch.setattr(thesis_chapter5, "_made", {})
        return [Computed.of(table) for name, table in TABLES.items() if name not in LONG]


def kept_runs() -> Any:
    return json.loads(disaggregation.RESULTS.read_text(encoding="utf-8"))


def table_of(cells: Iterable[Cell], name: str = "t") -> ThesisTable:
    found = tuple(cells)
    return ThesisTable(name, "values", lambda: found)


def test_only_a_prediction_can_be_outside_its_band() -> None:
    assert not CELL.outside
    assert replace(CELL, ours=1.26).outside
    assert replace(CELL, ours=1.14).outside
    assert replace(CELL, ours=float("nan")).outside
    assert not replace(CELL, low=1.2, high=1.3, ours=1.34).outside
    assert not any(replace(CELL, ours=9.0, kind=kind).outside for kind in (Kind.INPUT, Kind.FITTED))


def test_a_value_outside_its_band_is_named_and_the_exit_code_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"t": table_of([CELL]), "u": table_of([replace(CELL, table="u", ours=1.5)], "u")}
    monkeypatch.setattr(thesis, "TABLES", tables)
    whole = CliRunner().invoke(main, [])
    assert whole.exit_code == 1
    sentence = "Outside their bands, 1 of 2 predicted values: u, a job, a machine: 1.50, published 1.20 ± 0.05.\n"
    assert whole.stderr == sentence
    assert "1.20  1.50  ± 0.05  predicted, OUTSIDE ITS BAND" in whole.stdout
    assert verdict([Computed.of(tables["t"])]) == "Predicted values: 1, all inside their bands."


def test_json_has_the_cells_and_reads_back() -> None:
    done = CliRunner().invoke(main, ["--table", "co-location", "--json"])
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    (table,) = (Computed.read(one) for one in data["tables"])
    assert (table.name, data["outside"]) == ("co-location", [])
    assert json.loads(json.dumps(plain([table]))) == {key: data[key] for key in ("tables", "outside")}
    assert data["machine"]["cores"] >= 1
    assert {cell.column for cell in table.cells} == {"beside tiny", "beside big"}


def test_names_of_tables_are_unique_and_cells_know_theirs(computed: list[Computed]) -> None:
    assert len(TABLES) == sum(len(chapter.TABLES) for chapter in CHAPTERS)
    assert all(cell.table == table.name for table in computed for cell in table.cells)


def test_what_went_in_comes_out(computed: list[Computed]) -> None:
    inputs = [cell for table in computed for cell in table.cells if cell.kind is Kind.INPUT]
    assert len(inputs) == 8 + 4 + 7
    for cell in inputs:
        assert cell.ours == pytest.approx(cell.low, rel=2e-3, abs=1e-3), cell


def test_the_kept_values_are_those_of_a_run(computed: list[Computed]) -> None:
    assert [table.name for table in kept()] == list(TABLES)
    quick = [table for table in kept() if table.name not in LONG]
    for stored, ours in zip(quick, computed, strict=True):
        assert [replace(c, ours=0.0) for c in stored.cells] == [replace(c, ours=0.0) for c in ours.cells]
        assert [c.ours for c in stored.cells] == pytest.approx([c.ours for c in ours.cells], rel=1e-6, abs=1e-9)


def test_an_eighth_of_the_experiment_on_128_machines_takes_as_long_as_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_of_it = kept_runs()
    row = kept_of_it[f"sweep {EIGHTH}"][0]
    monkeypatch.setattr(disaggregation, "SWEPT", {name: (row[name],) for name in disaggregation.SWEPT})
    (found,) = disaggregation.swept(
        lambda asks: {ask: ask.run() for ask in asks}, *disaggregation.chosen(kept_of_it), (EIGHTH,)
    )
    assert found["makespans_s"] == pytest.approx(row["makespans_s"], rel=1e-6)


def test_what_was_kept_outside_its_band_is_what_the_page_explains() -> None:
    """The policy's effect with local GPUs, and its gain on 128 machines: docs/disaggregation.md has sweeps about these."""
    outside = [(cell.table, cell.row) for table in kept() for cell in table.cells if cell.outside]
    assert outside == [
        ("disaggregation", "experiment 4b, without disaggregation"),
        ("disaggregation-ratios", "gain by the policy, 4 machines, local"),
        ("disaggregation-ratios", "gain by the policy, 128 machines, local"),
        ("disaggregation-ratios", "gain by the policy, 128 machines, remote"),
    ]


def test_the_fitted_profiles_are_those_that_the_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = thesis_table7.BUNDLED.with_name(f"{thesis_table7.NAME}.yaml").read_text(encoding="utf-8")
    monkeypatch.setattr(thesis_table7, "BUNDLED", tmp_path / "profiles.yaml")
    thesis_table7.write(thesis_table7.bundled_values())
    assert (tmp_path / f"{thesis_table7.NAME}.yaml").read_text(encoding="utf-8") == bundled


def test_a_fit_is_no_worse_than_a_step_away_from_it() -> None:
    free = thesis_table7.bundled_values()
    least = thesis_table7.loss(free)
    for name, value in free.values().items():
        for factor in (0.97, 1.03):
            assert thesis_table7.loss(thesis_table7.Free.of({**free.values(), name: factor * value})) >= least


def test_jobs_below_their_minimal_utility_are_counted_from_the_run() -> None:
    scenario = thesis_table7.scenario()
    patient, plain_one = (thesis_table7.outcomes(None, [name])[name] for name in ("topo-aware-p", "topo-aware"))
    assert violations(scenario, patient.jobs) == 0
    assert violations(scenario, plain_one.jobs) == 3, "jobs 3 to 5, on GPUs of two sockets beside others"


def test_the_page_is_what_its_command_makes_of_the_kept_values() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_spread_is_across_sockets_and_packed_is_within_one() -> None:
    topologies = load_catalogue().gpu_topologies
    for name in ("minsky", "pcie-2socket"):
        spread = interleaved(topologies[name])
        assert spread.sockets == ((0, 2), (1, 3))
        assert (spread.slowest_class((0, 1)), spread.distance[0, 1]) == ("bus", 42.0)
        assert spread.slowest_class((0, 2)) == topologies[name].slowest_class((0, 1)) != "bus"


def test_runs_take_as_long_as_the_breakdown_of_40_iterations_says() -> None:
    assert run_s(NVLINK, ["alexnet-tiny"], spread=False) == pytest.approx(100 * (computation_s(1) + 2), rel=1e-3)
    assert run_s(NVLINK, ["alexnet-big"], spread=False) == pytest.approx(100 * (66 + 2), rel=1e-2)
    assert [breakdown(b) for b in (1, 2, 4, 8, 64)] == sorted((breakdown(b) for b in (1, 2, 4, 8, 64)), reverse=True)


def test_packed_jobs_on_sockets_of_their_own_leave_each_other_alone() -> None:
    alone, both = (run_s(PCIE, ["alexnet-tiny"] * count, spread=False) for count in (1, 2))
    assert both == pytest.approx(alone)

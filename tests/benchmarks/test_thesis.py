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

from benchmarks import disaggregation, thesis, thesis_chapter4, thesis_chapter5, thesis_table7
from benchmarks.disaggregation_cells import EIGHTH, CellRun, run_cell
from benchmarks.disaggregation_cells import Cell as DisaggregationCell
from benchmarks.thesis import CHAPTERS, TABLES, main
from benchmarks.thesis_cell import Cell, Computed, Kind, ThesisTable, Verdict, plain, verdict
from benchmarks.thesis_chapter3 import NVLINK, PCIE, breakdown, computation_s, interleaved, run_s
from benchmarks.thesis_chapter4 import (
    IN_ORDER,
    QUEUE,
    SCENARIO_1,
    SCENARIO_2,
    TABLE_7,
    TITLES,
    Outcome,
    violations,
)
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


def test_every_published_value_is_judged_whatever_its_kind() -> None:
    published = [kind for kind in Kind if kind is not Kind.OURS]
    for cell in (replace(CELL, kind=kind) for kind in published):
        assert cell.verdict is Verdict.INSIDE
        assert replace(cell, low=1.2, high=1.3, ours=1.34).verdict is Verdict.INSIDE
        for ours in (1.26, 1.14, float("nan")):
            assert replace(cell, ours=ours).verdict is Verdict.OUTSIDE
        with pytest.raises(ValueError, match="t, a job, a machine: a value has a published one"):
            replace(cell, low=None, high=None)
    assert replace(CELL, low=None, high=None, kind=Kind.OURS).verdict is Verdict.NOT_PUBLISHED
    with pytest.raises(ValueError, match="unless it is 'ours'"):
        replace(CELL, kind=Kind.OURS)


def test_a_value_outside_its_band_is_named_and_the_exit_code_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"t": table_of([CELL]), "u": table_of([replace(CELL, table="u", ours=1.5, kind=Kind.FITTED)], "u")}
    monkeypatch.setattr(thesis, "TABLES", tables)
    whole = CliRunner().invoke(main, [])
    assert whole.exit_code == 1
    head = "Outside their bands: 1 of 2 published values (1 of 1 fitted, 0 of 1 predicted).\n"
    assert whole.stderr == head + "- u, a job, a machine (fitted): 1.50, published 1.20 ± 0.05\n"
    assert "1.20  1.50  ± 0.05  fitted  OUTSIDE" in whole.stdout
    assert verdict([Computed.of(tables["t"])]) == "Published values: 1, all inside their bands."


def test_a_predicted_value_is_none_that_was_fitted(computed: list[Computed]) -> None:
    """Neither is the published number one that a parameter was fitted to, nor does ours repeat a value of the same row."""
    for table in [*computed, *(one for one in kept() if one.name in LONG)]:
        for cell in table.cells:
            others = [
                one for one in table.cells if one.row == cell.row and one is not cell and one.kind is not Kind.INPUT
            ]
            fitted = [one for one in others if one.kind is Kind.FITTED]
            if cell.kind is Kind.PREDICTED:
                assert cell.ours not in {one.ours for one in fitted}, cell
                assert (cell.low, cell.high) not in {(one.low, one.high) for one in fitted}, cell
    (seconds,) = ([c for c in one.cells if c.row.endswith(", s")] for one in computed if one.name == TABLE_7)
    targets = thesis_table7.TARGETS.values()
    for cell in seconds:
        if any(cell.low <= target <= cell.high for target in targets if cell.low is not None and cell.high is not None):
            assert cell.kind in {Kind.FITTED, Kind.DERIVED}, cell
    assert sum(cell.kind is Kind.FITTED for cell in seconds) == len(targets)
    assert all(c.kind is Kind.DERIVED for one in computed if one.name == "disaggregation-ratios" for c in one.cells)


def kept_outcomes(name: str, more: str = "") -> dict[str, Outcome]:
    """What the kept figures of a table of chapter 4 say of each policy."""
    (table,) = (one for one in kept() if one.name == name)
    by_name = {(cell.row, cell.column): cell.ours for cell in table.cells}

    def outcome(title: str) -> Outcome:
        of = {row.removesuffix(more): value for (row, column), value in by_name.items() if column == title}
        slowdown, violations = 1.0 + of["mean slow-down, %"] / 100.0, of.get("jobs below their minimal utility, %", 0.0)
        figures = of["mean waiting, s"], slowdown, of["jobs slowed, %"], violations, of["makespan, s"]
        return Outcome(*figures, of.get("decision, ms", 1.0))

    return {policy: outcome(title) for policy, title in TITLES.items() if (f"mean waiting, s{more}", title) in by_name}


def test_long_tables_judge_the_figures_that_were_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thesis_chapter4, "scenario_1", lambda: kept_outcomes(SCENARIO_1))
    monkeypatch.setattr(thesis_chapter4, "scenario_2", lambda rate: kept_outcomes(SCENARIO_2, f", {rate:g} a minute"))
    monkeypatch.setattr(thesis_chapter4, "scenario_2_queue", lambda: kept_outcomes(QUEUE))
    stored = {table.name: table for table in kept()}
    for name in LONG:
        ours = {(c.row, c.column, c.kind, c.low, c.high, c.band): c.ours for c in Computed.of(TABLES[name]).cells}
        wanted = {(c.row, c.column, c.kind, c.low, c.high, c.band): c.ours for c in stored[name].cells}
        assert ours == pytest.approx(wanted, rel=1e-9)


def test_where_nothing_waits_waiting_is_not_less(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kept_outcomes(SCENARIO_2, ", 10 a minute")
    waits = {policy: replace(one, wait_s=1e-10 * n) for n, (policy, one) in enumerate(found.items())}
    monkeypatch.setattr(thesis_chapter4, "scenario_2", lambda _: waits)
    rows = [cell for cell in Computed.of(TABLES[SCENARIO_2]).cells if cell.row.startswith("waiting over that of")]
    assert rows
    assert {(cell.ours, cell.verdict) for cell in rows} == {(1.0, Verdict.OUTSIDE)}


def test_topo_aware_in_strict_order_waits_longer_than_postponing_as_published() -> None:
    found = kept_outcomes(SCENARIO_1)
    patient, strict, passing = (found[policy] for policy in ("topo-aware-p", IN_ORDER, "topo-aware"))
    assert patient.wait_s < strict.wait_s
    assert patient.slowdown < strict.slowdown
    assert patient.same_runs(passing)


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


def test_what_was_kept_outside_its_band_is_what_the_page_lists() -> None:
    outside = [miss for table in kept() for miss in table.misses()]
    assert outside
    assert [line[2:] for line in PAGE.read_text(encoding="utf-8").splitlines() if line[2:] in outside] == outside


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

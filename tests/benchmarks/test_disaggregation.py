"""The experiments of the thesis's chapter 5: what is input, how a cell is run, and that stored tables are the program's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import disaggregation, disaggregation_page
from benchmarks.disaggregation_cells import (
    CELLS,
    EXPERIMENTS,
    FITTED,
    FOOTPRINTS,
    GPUS,
    PUBLISHED_S,
    Assumptions,
    Cell,
    catalogue,
    run_cell,
    scenario_of,
)
from benchmarks.thesis_cell import Kind


def test_slowdowns_follow_from_figure_14() -> None:
    """Whole-job slow-downs if the network's part alone grows: (1 - f0) / (1 - f1)."""
    slowdowns = {
        "b+tree": 1.008, "needleman-wunsch": 1.627, "back-propagation": 1.011, "gaussian": 1.088,
        "lavamd": 1.010, "pathfinder": 1.101, "srad": 1.054,
    }  # fmt: skip
    jobs = catalogue(Assumptions()).jobs
    for name, slowdown in slowdowns.items():
        assert 1.0 + jobs[name].gpus.network.sensitivity == pytest.approx(slowdown, abs=6e-4)
    assert jobs["needleman-wunsch"].gpus.remote == pytest.approx(1.2048, abs=1e-4)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_warm_up_leaves_what_it_says(experiment: str) -> None:
    cell = Cell(experiment, False)
    of = scenario_of(cell, Assumptions(), FOOTPRINTS, 0)
    size = EXPERIMENTS[experiment]
    assert len(of.machines) == size.machines and len({t.job for t in of.tasks if t.job.startswith("j")}) == size.jobs
    blocked = {t.machines[0]: t.widths_milli[0] for t in of.tasks if t.machines}
    job = next(t for t in of.tasks if not t.machines)
    left = [(m.cpu_milli - blocked.get(m.name, 0)) // job.widths_milli[0] for m in of.machines]
    assert tuple(left[:4]) == FOOTPRINTS[experiment]
    if experiment == "1":
        assert sum(min(GPUS, n) for n in left) == 6


def test_the_same_jobs_come_in_all_cells_of_an_experiment() -> None:
    local, remote = (scenario_of(Cell("4a", d), Assumptions(), FOOTPRINTS, 3) for d in (False, True))
    lengths = [{t.job: (t.profile, t.scale, t.submit_s) for t in s.tasks if not t.gpus_for} for s in (local, remote)]
    assert lengths[0] == lengths[1]


def test_disaggregation_shortens_the_small_experiment_and_runs_are_the_same_again() -> None:
    assumed = replace(Assumptions(), mean_s=6.0, interval_s=1.0)
    local, remote, again = (run_cell(Cell("4a", d), assumed) for d in (False, True, True))
    assert remote.makespan_s < local.makespan_s and local.remote_share == 0.0 < remote.remote_share
    assert remote.makespan_s == again.makespan_s and remote.gpus == again.gpus
    assert max(n for _, n in remote.gpus) == 16 and max(n for _, n in local.gpus) == 10


def test_errors_are_of_ratios() -> None:
    assert disaggregation.error_of({cell: PUBLISHED_S[cell] for cell in FITTED}) == 0.0
    assert disaggregation.error_of({cell: 1.1 * PUBLISHED_S[cell] for cell in FITTED}) == pytest.approx(
        0.0953, abs=1e-4
    )


def test_a_makespan_that_the_policy_does_not_change_is_not_predicted() -> None:
    rows = json.loads(disaggregation.RESULTS.read_text())["cells"]["rows"]
    by_key = {row["cell"]: row["makespan_s"] for row in rows}
    makespans_s = {cell: by_key[cell.key] for cell in CELLS}
    kinds = {cell: disaggregation.kind_of(cell, makespans_s) for cell in CELLS}
    assert {cell for cell, kind in kinds.items() if kind is Kind.OURS} == set(CELLS) - set(PUBLISHED_S)
    assert [c.key for c, kind in kinds.items() if kind is Kind.DERIVED] == ["4a local policy", "4b local policy"]
    assert [c.key for c, kind in kinds.items() if kind is Kind.PREDICTED] == ["4a remote policy", "4b remote policy"]
    changed = {cell: s + cell.aware for cell, s in makespans_s.items()}
    assert disaggregation.kind_of(Cell("4a", False, True), changed) is Kind.PREDICTED


def test_tables_and_page_are_made_of_the_stored_result() -> None:
    kept = json.loads(disaggregation.RESULTS.read_text())
    assert disaggregation.RESULTS.with_suffix(".txt").read_text() == disaggregation.table(kept) + "\n"
    assert disaggregation_page.PAGE.read_text(encoding="utf-8") == disaggregation_page.page(kept)
    assert set(kept) >= {"fit", "cells", "joint", "machine"}

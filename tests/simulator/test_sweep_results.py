"""Results of a sweep: tables, plots, the page, and comparisons on the command line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from flowsched.cli import flowsched
from flowsched_models.document import InputError, parse_document
from flowsched_simulator import Scenario, simulate
from flowsched_simulator.experiment import Experiment, Results, load_results, make_case
from flowsched_simulator.experiment.comparison_text import interval_text
from flowsched_simulator.experiment.job_curves import QUEUE, UTILISATION, curve
from flowsched_simulator.experiment.seed_statistics import Interval
from flowsched_simulator.experiment.sweep_report import write_report
from flowsched_simulator.scenario_file import read_scenario
from flowsched_simulator.simulation import Options

SHOP = """
apiVersion: flowsched/v1
kind: Scenario
name: shop
machines:
  - {name: m1, type: n2d-highmem-4}
  - {name: m2, type: n2d-highcpu-2}
services:
  - {name: cache, profile: memcached, machine: m1, cores: "0", threads: 1, request: 1, memory: 512Mi, qps: 30K,
     slo_p95: 1ms, client: mcperf-30k}
jobs:
  - {name: radix, profile: radix, request: 1, widths: [1, 2], copies: 4}
  - {name: fixed, runtime_s: 20, request: 1, copies: 2}
arrivals: {poisson: {rate_per_minute: 6}}
"""


def shop() -> Scenario:
    return read_scenario(parse_document(SHOP, "shop.yaml"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two loads and two model errors, three policies, three seeds."""
    cases = [
        make_case(shop(), "base", load=0.6),
        make_case(shop(), "busy", load=1.2),
        make_case(shop(), "wrong", load=0.6, model_error=0.3),
    ]
    experiment = Experiment(cases, ["flow", "fcfs", "lpt"], range(1, 4), name="shops", variant="declared-own")
    return experiment.run(tmp_path_factory.mktemp("shops") / "out", jobs=1)


@pytest.fixture(scope="module")
def page(results: Results) -> Path:
    return write_report(results)


def test_the_tables_are_those_of_single_runs(results: Results) -> None:
    case = make_case(shop(), load=0.6, model_error=0.3)
    run = simulate(case.scenario, "flow", options=Options(seed=2, model_error=0.3))
    for table, frame in (
        ("jobs", run.to_frame()),
        ("windows", run.to_frame("windows")),
        ("rounds", run.to_frame("rounds")),
    ):
        whole = results.to_frame(table)
        assert list(whole.columns[:3]) == ["case", "policy", "seed"]
        own = whole[(whole["case"] == "wrong") & (whole["policy"] == "flow") & (whole["seed"] == 2)]
        own = own.drop(columns=["case", "policy", "seed"]).reset_index(drop=True)
        pd.testing.assert_frame_equal(own, frame.drop(columns="solve_ms", errors="ignore"))
    row = results.to_frame().set_index(["case", "policy", "seed"]).loc[("wrong", "flow", 2)]
    assert row["makespan_s"] == run.makespan_s and row["model_error"] == 0.3 and row["load"] == pytest.approx(0.6)


def test_rows_are_sorted_by_key_and_timings_stand_apart(results: Results) -> None:
    for table in ("runs", "jobs", "windows", "rounds"):
        keys = list(results.to_frame(table)[["case", "policy", "seed"]].itertuples(index=False, name=None))
        assert keys == sorted(keys)
        assert not {"wall_s", "solve_ms", "host"} & set(results.to_frame(table).columns)
    assert {"wall_s", "cpu_s", "host", "python", "flowsched", "code"} <= set(results.timings().columns)
    assert (results.timings("rounds")["solve_ms"] >= 0.0).all()


def test_a_run_writes_the_frames_that_it_has(tmp_path: Path) -> None:
    run = simulate(shop(), "flow")
    paths = run.to_parquet(tmp_path / "run")
    again = run.to_parquet(tmp_path / "again")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert [path.name for path in paths] == ["jobs.parquet", "windows.parquet", "rounds.parquet"]
    pd.testing.assert_frame_equal(pq.read_table(paths[0]).to_pandas(), run.to_frame())
    with pytest.raises(InputError, match="there is no such table; did you mean 'jobs'"):
        run.to_frame("job")


def test_plots_are_the_same_bytes_each_time(results: Results, page: Path) -> None:
    files = {path.name: path.read_bytes() for path in (page.parent / "plots").iterdir()}
    assert {"cdf-slowdown-base.svg", "cdf-waiting-busy.pdf", "queue-wrong.svg", "utilisation-base.svg"} <= files.keys()
    assert {"load-mean-completion-s.svg", "gain-model-error-mean-completion-s.pdf"} <= files.keys()
    assert results.to_frame()["slo_violation_ratio"].max() == 0.0
    assert "load-slo-violation-ratio.svg" not in files, "there would be nothing to see"
    again = load_results(results.folder)
    for plot in (again.plot_cdf("slowdown", "base"), again.plot_gain("model_error")):
        assert all(plot.to_bytes(kind) == files[f"{plot.name}.{kind}"] for kind in ("svg", "pdf"))


def test_the_legend_of_a_plot_lies_beside_its_lines_and_labels(results: Results) -> None:
    for plot in (results.plot_cdf("slowdown", "base"), results.plot_against_load(), results.plot_gain("model_error")):
        plot.figure.draw_without_rendering()
        (legend,) = plot.figure.legends
        box = legend.get_window_extent()
        drawn = plot.axes.get_tightbbox()
        assert drawn is not None and plot.axes.get_legend() is None
        assert box.y1 <= drawn.y0 and box.y0 >= 0.0 and box.x1 <= plot.figure.bbox.x1
        # Lines that hide behind each other are one entry.
        entries = [name for text in legend.get_texts() for name in text.get_text().split(" = ")]
        assert len(entries) == (2 if plot.name.startswith("gain") else 3)


def test_the_page_leads_with_the_verdict_and_asks_for_nothing_beside_itself(page: Path) -> None:
    text = page.read_text()
    assert text.index("What was found") < text.index("<table")
    assert "base: by mean completion time, flow " in text
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)|url\((?!#)|@import""", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert '#1b1e23"' not in text.split("</style>")[1]


def test_intervals_are_written_without_exponents() -> None:
    assert interval_text(Interval(1906.4, 200.0, 3612.0), "makespan_s") == "1906 ± 1700"
    assert interval_text(Interval(12345.6, None, None), "makespan_s") == "12350"
    assert interval_text(Interval(0.01234, 0.01, 0.0147), "slo_violation_ratio") == "1.234 ± 0.24"


def test_statistics_are_those_of_the_values(results: Results) -> None:
    values = list(results.values("base", "fcfs", "mean_slowdown").values())
    assert results.mean("base", "fcfs", "mean_slowdown").value == pytest.approx(np.mean(values))  # type: ignore[arg-type,union-attr]
    jobs = results.to_frame("jobs")
    own = jobs[(jobs["case"] == "base") & (jobs["policy"] == "fcfs")]["slowdown"]
    assert results.quantile("base", "fcfs", 0.95, "mean_slowdown").value in set(own)  # type: ignore[union-attr]
    summary = results.summary(["mean_slowdown"])
    assert len(summary) == 9 and {"mean_low", "median", "p95_high"} <= set(summary.columns)
    assert len(results.compare()) == 6


def test_what_is_not_there_is_said(results: Results, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this folder has no results of a sweep"):
        load_results(tmp_path)
    with pytest.raises(InputError, match="shops has no such metric; did you mean 'mean_slowdown'"):
        results.mean("base", "flow", "mean_slowdon")
    with pytest.raises(InputError, match="shops has no such case"):
        results.plot_queue("bas")
    with pytest.raises(InputError, match="no two scenarios of this experiment differ in it alone"):
        results.plot_gain("machine_copies")
    with pytest.raises(InputError, match=r"'.txt' is not a kind of drawing; end it in .svg, .pdf, .png"):
        results.plot_cdf().save(tmp_path / "x.txt")


def test_curves_count_cores_and_waiting_jobs() -> None:
    jobs = pd.DataFrame(
        {
            "submit_s": [10.0, 12.0, 13.0],
            "start_s": [11.0, 15.0, np.nan],
            "end_s": [15.0, 20.0, np.nan],
            "request": [2.0, 1.0, 1.0],
            # The second ran from 13 to 14 and was preempted.
            "earlier": [None, json.dumps([{"start_s": 13.0, "left_s": 14.0, "width_milli": 500}]), None],
        }
    )
    times = np.array([0.0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 11.0])
    assert curve(jobs, UTILISATION, times).tolist() == [0, 0, 2, 2, 2.5, 2, 1, 0]
    assert curve(jobs, QUEUE, times).tolist() == [1, 1, 0, 1, 1, 2, 1, 1]


def compare(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(flowsched, ["compare", *map(str, args)])
    return done.exit_code, done.stdout if done.exception is None else str(done.exception)


def test_compare_tells_policies_of_one_sweep_and_two_sweeps(results: Results, tmp_path: Path) -> None:
    code, text = compare(results.folder, "--policy", "lpt", "--policy", "fcfs", "--metric", "makespan_s")
    assert code == 0 and text.count("lpt") == 6 and "flow" not in text
    copied = tmp_path / "copied"
    shutil.copytree(results.folder, copied)
    code, text = compare(copied, results.folder)
    assert code == 0 and "base, flow: copied and out are equal by mean completion time in all 3 seeds." in text
    code, text = compare(results.folder, "--json")
    told = json.loads(text)["comparisons"]
    assert code == 0 and {each["metric"] for each in told} >= {"mean_completion_s", "makespan_s"}
    assert all(each["reference"] == "flow" and each["sentence"] for each in told)


def test_compare_refuses_what_makes_no_sense(results: Results, tmp_path: Path) -> None:
    assert "is alone; add the one to compare it with" in compare(results.folder, "--policy", "fcfs")[1]
    assert "has no such policy" in compare(results.folder, "--policy", "fcfs", "--policy", "easy")[1]
    assert "there is no such folder" in compare(results.folder, tmp_path / "nowhere")[1]
    assert "compares one or two sweeps, got 3" in compare(*[results.folder] * 3)[1]
    other = Experiment([make_case(shop(), "elsewhere")], ["fcfs"], [1], variant="declared-own").run(
        tmp_path / "o", jobs=1
    )
    assert "shares no scenario and policy" in compare(results.folder, other.folder)[1]

"""How long a sweep takes, and what it says of plots and loads that would mislead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from flowsched.cli import flowsched
from flowsched_models.document import parse_document
from flowsched_simulator import Scenario
from flowsched_simulator.experiment import Experiment, Results, make_case
from flowsched_simulator.experiment.comparison_text import results_text
from flowsched_simulator.experiment.contender import Contender
from flowsched_simulator.experiment.estimate import Estimate, TimeLeft
from flowsched_simulator.experiment.offered_load import load_note
from flowsched_simulator.experiment.planned_run import PlannedRun
from flowsched_simulator.experiment.plot import Plot
from flowsched_simulator.experiment.sweep import Sweep
from flowsched_simulator.experiment.sweep_report import render_sweep_report
from flowsched_simulator.scenario_file import read_scenario

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: s\nmachines: [{name: m, type: n2d-highcpu-2}]\n"
QUEUE = HEAD + "jobs:\n  - {name: a, request: 1, runtime_s: 60, copies: 4}\narrivals: {poisson: {rate_per_minute: 4}}\n"


def read(text: str) -> Scenario:
    return read_scenario(parse_document(text, "s.yaml"))


# --- the time that is left ----------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 20), st.integers(1, 3), st.integers(1, 5), st.integers(1, 16))
def test_after_a_tenth_of_the_runs_it_is_within_a_factor_of_two(
    seed: int, seeds: int, cases: int, policies: int, cores: int
) -> None:
    """However far off each kind was expected to be: by up to a thousand, and kinds differ by as much."""
    rng = np.random.default_rng(seed)
    scenario = read(QUEUE)
    made = [make_case(replace(scenario, name=f"case {i}")) for i in range(cases)]
    contenders = [Contender(f"fcfs {i}", "fcfs", (f"a={i}",), "declared request, own cores") for i in range(policies)]
    plan = Experiment(made, ["flow"], range(seeds)).plan
    runs = Sweep(replace(plan, contenders=tuple(contenders)), Path("unused")).mine(range(seeds))
    kinds = {run.key[:2]: float(10.0 ** rng.uniform(-2.0, 1.0)) for run in runs}
    took = {run.digest: kinds[run.key[:2]] * rng.uniform(0.8, 1.25) for run in runs}
    expected = Estimate({run.key: kinds[run.key[:2]] * 10.0 ** rng.uniform(-3.0, 3.0) for run in runs}, "chance")
    left = TimeLeft(runs, expected, cores)
    assert left.seconds() is None
    for count, run in enumerate(runs, start=1):
        left.done(run.digest, took[run.digest])
        found = left.seconds()
        assert found is not None
        if count in (-(-len(runs) // 10), len(runs) // 2, len(runs)):
            rest = runs[count:]
            true = sum(took[each.digest] for each in rest) / max(1, min(cores, len(rest)))
            assert true / 2 <= found <= true * 2


def test_kinds_that_have_not_run_are_corrected_by_the_same_policy() -> None:
    cases = [make_case(replace(read(QUEUE), name=name)) for name in ("one", "two")]
    slow, quick = (Contender(name, "fcfs", (name,), "declared request, own cores") for name in ("slow", "quick"))
    runs = [PlannedRun(case, each, 1) for case in cases for each in (slow, quick)]
    expected = Estimate({run.key: 1.0 if run.case is cases[0] else 3.0 for run in runs}, "a quick run")
    left = TimeLeft(runs, expected, 1)
    left.done(runs[0].digest, 10.0)
    assert left.seconds() == pytest.approx(10.0 + 30.0 + 30.0), "all by the only run that is done"
    left.done(runs[1].digest, 2.0)
    assert left.seconds() == pytest.approx(30.0 + 6.0), "each by its own policy"


def test_the_progress_shows_the_corrected_time(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float | None]] = []
    plan = Experiment([make_case(read(QUEUE))], ["fcfs"], range(1, 5), variant="declared-own").plan
    sweep = Sweep(plan, tmp_path, jobs=1, report=lambda *state: seen.append(state))
    assert sweep.run(Estimate({run.key: 1e6 for run in sweep.mine(plan.seeds)}, "a wrong guess")) == []
    assert seen[0] == (0, 4, None) and seen[-1] == (4, 4, 0.0)
    assert all(left is not None and left < 1e4 for _, _, left in seen[1:]), "one run corrects a million seconds"


# --- equal runs, and labels ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """One machine and equal jobs in a queue: fcfs and easy cannot differ; las preempts."""
    experiment = Experiment(
        [make_case(read(QUEUE), "c")], ["easy", "fcfs", "las"], [1, 2], variant="declared-own", reference="fcfs"
    )
    return experiment.run(tmp_path_factory.mktemp("alike"), jobs=1)


def labels(plot: Plot) -> list[str]:
    (legend,) = plot.figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_equal_runs_are_named_in_text_legend_and_page(alike: Results) -> None:
    assert alike.equal_runs("c")[0][:2] == ("easy", "fcfs")
    assert "equal runs: easy = fcfs" in results_text(alike)
    for plot in (alike.plot_cdf("waiting_s"), alike.plot_queue(), alike.plot_utilisation()):
        assert labels(plot)[0].startswith("easy = fcfs")
    (legend,) = alike.plot_cdf("waiting_s").figure.legends
    assert legend.get_lines()[0].get_linewidth() == 2.4, "the reference's line is the one that is seen"
    assert "equal runs: easy = fcfs" in render_sweep_report(alike, {"c": []}, [], {})


def test_lines_that_differ_stay_apart_and_bars_count() -> None:
    plot = Plot("p", "t", "x", "y")
    for number, (name, half) in enumerate((("a", 1.0), ("b", 1.0), ("c", 2.0))):
        plot.axes.errorbar([1.0, 2.0], [3.0, 4.0], [half, half], label=name, **plot.line_style(number))
    assert labels(plot.finish()) == ["a = b", "c"]


@pytest.mark.parametrize(("letters", "lines", "title"), [(1, 1, 1), (20, 6, 60), (60, 6, 130), (150, 3, 100)])
def test_no_label_is_cut(letters: int, lines: int, title: int) -> None:
    def words(count: int) -> str:
        return ("policy with a name " * 20)[:count].strip() or "x"

    plot = Plot("p", words(title), words(title), words(min(title, 70)))
    for number in range(lines):
        plot.axes.plot([0.0, 1.0], [0.0, number], label=f"{number} {words(letters)}", **plot.line_style(number))
    plot.finish()
    figure: Any = plot.figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = figure.bbox.width, figure.bbox.height
    texts = [plot.axes.xaxis.label, plot.axes.yaxis.label, plot.axes._left_title, *plot.figure.legends[0].get_texts()]
    for text in texts:
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= -1.0 and box.x1 <= width + 1.0, text.get_text()
        assert box.y0 >= -1.0 and box.y1 <= height + 1.0, text.get_text()


# --- one job that is most of the load -----------------------------------------------------------------------

SKEWED = HEAD + (
    "jobs:\n  - {name: huge, request: 2, runtime_s: 9000, submit_s: 0}\n"
    "  - {name: a, request: 1, runtime_s: 10, submit_s: 10, copies: 5}\n"
    "  - {name: b, request: 1, runtime_s: 10, submit_s: 20, copies: 5}\n"
)


def test_a_job_that_is_most_of_the_load_is_named(tmp_path: Path) -> None:
    told = load_note(read(SKEWED))
    assert told.startswith("job 'huge' is 99% of the work; without it the load would be ")
    assert load_note(read(SKEWED.replace("9000", "40"))) == ""
    assert load_note(read(SKEWED.replace("submit_s: 10", "submit_s: 0").replace("submit_s: 20", "submit_s: 0"))) == ""
    assert load_note(read(QUEUE.replace("copies: 4", "copies: 2"))) == "", "of few jobs one is easily half"
    (tmp_path / "s.yaml").write_text(SKEWED)
    (tmp_path / "e.yaml").write_text(
        "apiVersion: flowsched/v1\nkind: Experiment\nname: e\nscenarios: [{scenario: s.yaml, load: 0.9}]\n"
        "policies: [fcfs]\nvariant: declared-own\nseeds: 1\n"
    )
    done = CliRunner().invoke(flowsched, ["sweep", str(tmp_path / "e.yaml"), "--dry-run", "--out", str(tmp_path / "o")])
    assert "note: s: job 'huge' is 99% of the work; without it the load would be 0.005, not 0.9" in done.stderr
    assert "; runs correct it" in done.stderr

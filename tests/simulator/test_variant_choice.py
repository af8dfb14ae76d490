"""Which variant of a rule is reported: never one that was chosen by the very draw whose figures are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.page import best_elsewhere
from flowsched.cli import flowsched
from flowsched_models.document import parse_document
from flowsched_simulator import Options, Run, Scenario, simulate
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.comparison import best_variant, simulate_variants
from flowsched_simulator.drawn import drawn_parts, draws, selection_seeds
from flowsched_simulator.experiment import Experiment, Results, make_case
from flowsched_simulator.experiment.comparison_text import results_text
from flowsched_simulator.experiment.policy_comparison import UNTESTED
from flowsched_simulator.experiment.sweep import Sweep
from flowsched_simulator.scenario import Objective
from flowsched_simulator.scenario_file import read_scenario

BENCH = """
apiVersion: flowsched/v1
kind: Scenario
name: bench
machines:
  - {name: m1, type: e2-standard-8}
  - {name: m2, type: n2d-highmem-4}
jobs:
  - {name: radix, profile: radix, request: 2, copies: 2}
  - {name: vips, profile: vips, request: 4, copies: 2}
"""
ARRIVING = "arrivals: {poisson: {rate_per_minute: 20}}\n"


def bench(arrivals: str = "") -> Scenario:
    return read_scenario(parse_document(BENCH + arrivals, "bench.yaml"))


def by_variant(scenario: Scenario, policy: str, options: Options) -> dict[str, Run]:
    return {run.variant: run for run in simulate_variants(scenario, policy, options=options)}


def mean_s(run: Run) -> float:
    value = run.summary()["mean_completion_s"]
    assert value is not None
    return float(value)


@pytest.mark.parametrize(("arrivals", "error"), [("", 0.5), (ARRIVING, 0.0)])
def test_where_something_is_drawn_the_variant_is_the_best_of_other_seeds(arrivals: str, error: float) -> None:
    scenario = bench(arrivals)
    tried = [
        by_variant(scenario, "easy", Options(seed=s, model_error=error, error_of="job-and-machine"))
        for s in selection_seeds({1})
    ]
    means = {variant: np.mean([mean_s(runs[variant]) for runs in tried]) for variant in tried[0]}
    lucky = []
    for seed in (1, 2):
        options = Options(seed=seed, model_error=error, error_of="job-and-machine")
        run, every = simulate(scenario, "easy", options=options), by_variant(scenario, "easy", options)
        assert means[run.variant] == min(means.values())
        assert run.jobs == every[run.variant].jobs and run.variant_seeds == selection_seeds({seed})
        lucky.append(mean_s(run) > min(map(mean_s, every.values())))
    assert any(lucky) or not error, "with hindsight another variant would have been reported for some seed"


def test_where_nothing_is_drawn_it_is_the_best_of_the_scenario_for_all_seeds() -> None:
    scenario = bench()
    first, other = (simulate(scenario, "easy", options=Options(seed=seed)) for seed in (0, 9))
    every = by_variant(scenario, "easy", Options())
    assert mean_s(first) == min(map(mean_s, every.values())) and first.variant_seeds == ()
    assert (first.variant, first.jobs) == (other.variant, other.jobs)
    assert simulate(scenario, "easy", variant="2-own").variant_seeds is None
    assert simulate(scenario, "all-at-once").variant_seeds is None
    assert simulate(scenario, "random").variant_seeds == selection_seeds({0}), "its choices are drawn"


@given(st.sets(st.integers(0, 2**63) | st.integers(1_000_000_000, 1_000_000_009), max_size=12))
def test_no_seed_chooses_and_is_reported(reported: set[int]) -> None:
    found = selection_seeds(reported)
    assert len(set(found)) == 3 and not reported & set(found)


def test_what_a_seed_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn_parts(bench(), 0.0) == ()
    assert drawn_parts(bench(ARRIVING), "measured") == ("arrivals", "model error")
    seeded = {name for name in BASELINES if draws(name)}
    assert seeded == {"random", *(name for name in BASELINES if name.startswith("gpu-"))}
    assert draws("flow+plan") and not draws("flow") and not draws("load-spreading")
    monkeypatch.setattr(BASELINES, "is_ours", lambda name: name != "fcfs")
    assert draws("fcfs"), "a baseline of another package that does not say may draw"
    monkeypatch.setattr(Baseline, "draws", False)
    assert not draws("fcfs")


_FIGURES = st.fixed_dictionaries(
    {
        "slo_violation_ratio": st.sampled_from([0.0, 0.0, 0.25]),
        "makespan_s": st.none() | st.integers(1, 5).map(float),
        "mean_completion_s": st.none() | st.integers(1, 5).map(float),
    }
)


@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(_FIGURES, min_size=n, max_size=n), min_size=1, max_size=5)),
    st.sampled_from(Objective),
)
def test_violations_count_first_then_the_objective_and_what_never_ends_last(
    rows: list[list[dict[str, Any]]], objective: Objective
) -> None:
    figures: Mapping[str, list[dict[str, Any]]] = {f"v{i}": each for i, each in enumerate(rows)}
    key = "makespan_s" if objective is Objective.MAKESPAN else "mean_completion_s"
    chosen = best_variant(figures, objective)

    def sums(variant: str) -> tuple[float, bool, float]:
        mine = figures[variant]
        ended = [row[key] for row in mine if row[key] is not None]
        return sum(row["slo_violation_ratio"] for row in mine), len(ended) < len(mine), sum(ended)

    for variant in figures:
        over, never, total = sums(variant)
        best_over, best_never, best_total = sums(chosen)
        assert best_over <= over
        if best_over == over:
            assert best_never <= never
            assert best_never or never or best_total <= total


def test_the_table_says_how_it_was_chosen(tmp_path: Path) -> None:
    (tmp_path / "bench.yaml").write_text(BENCH)

    def told(*args: str) -> str:
        command = ["simulate", str(tmp_path / "bench.yaml"), "--out", str(tmp_path / "out"), *args]
        return CliRunner().invoke(flowsched, command).stdout

    plain = told("--policy", "fcfs", "--policy", "all-at-once").splitlines()
    assert plain[0] == "variants: the best of this scenario, where nothing is drawn" and " best " in plain[1]
    line = "variants: chosen by runs with seeds 1000000001..1000000003, not by the reported ones"
    assert told("--policy", "fcfs", "--model-error", "0.2").startswith(line)
    assert line[1:] in (tmp_path / "out" / "report.html").read_text()
    mixed = told("--policy", "fcfs", "--policy", "random").splitlines()[0]
    assert "of fcfs the best of this scenario" in mixed and "of random chosen by runs with seeds" in mixed
    assert not told("--policy", "fcfs", "--variant", "4-own").startswith("variants")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Results:
    cases = [make_case(bench(ARRIVING), "drawn"), make_case(bench(), "fixed")]
    return Experiment(cases, ["easy", "all-at-once"], [1, 2], name="e").run(tmp_path_factory.mktemp("e"), jobs=1)


def test_a_sweep_reports_what_simulate_reports(swept: Results) -> None:
    runs = swept.to_frame()
    for seed in (1, 2):
        run = simulate(bench(ARRIVING), "easy", options=Options(seed=seed))
        row = runs[(runs["case"] == "drawn") & (runs["policy"] == "easy") & (runs["seed"] == seed)].iloc[0]
        assert (row["variant"], row["mean_completion_s"]) == (run.variant, mean_s(run))
    assert swept.variants_line("drawn").startswith("variants: chosen by runs with seeds 1000000001..1000000003")
    assert swept.variants_line("fixed") == "variants: the best of this scenario, where nothing is drawn"


def test_where_nothing_is_drawn_there_is_one_run_and_no_p(swept: Results) -> None:
    runs = swept.to_frame()
    assert runs.groupby(["case", "policy"]).size().tolist() == [2, 2, 1, 1]
    drawn, fixed = swept.comparisons()
    assert drawn.difference.seeds == 2 and drawn.difference.p is not None
    assert fixed.difference.seeds == 1 and (fixed.difference.p, fixed.verdict) == (None, UNTESTED)
    text = results_text(swept)
    assert "fixed: nothing is drawn: one run of each; less is better" in text
    assert "than easy (nothing is drawn: one run each)." in text and "±" not in text.partition("fixed:")[2]


def test_one_run_stands_beside_all_seeds_of_a_policy_that_draws(tmp_path: Path) -> None:
    experiment = Experiment([make_case(bench())], ["easy", "random"], [1, 2, 3], name="e", variant="declared-own")
    assert "(1 scenario x 2 policies x 3 seeds; one run where nothing is drawn)" in str(experiment)
    results = experiment.run(tmp_path, jobs=1)
    (found,) = results.comparisons("easy")
    assert found.difference.seeds == 3 and found.difference.p is not None
    (easy,) = results.values("bench", "easy", found.metric).values()
    random = results.values("bench", "random", found.metric).values()
    assert found.difference.mean == pytest.approx(np.mean([value - easy for value in random if value and easy]))
    assert "and one run of easy, where nothing is drawn" in results_text(results)
    sweep = Sweep(experiment.plan, tmp_path, jobs=1)
    assert [each.seeds for each in sweep.differences([1, 2, 3])] == [3], "a sweep that adds seeds sees them too"


def test_a_sweep_chooses_once_before_its_runs_and_keeps_that(swept: Results, tmp_path: Path) -> None:
    plan = Experiment([make_case(bench(ARRIVING))], ["easy", "all-at-once"], [1, 2], name="e").plan
    counts: list[tuple[int, int]] = []
    sweep = Sweep(plan, tmp_path, jobs=1, report=lambda done, of, _: counts.append((done, of)))
    assert sweep.run() == [] and counts[-1] == (8 * 3 + 4, 8 * 3 + 4)
    assert sweep.foreign(plan.seeds) == 0
    more = Sweep(replace(plan, seeds=(1, 2, 3)), tmp_path, jobs=1, report=lambda done, of, _: counts.append((done, of)))
    assert more.run() == [] and counts[-1] == (2, 2), "two policies with the new seed, and no trial again"


def test_the_best_rule_of_a_table_is_chosen_on_its_other_scenarios() -> None:
    # Of two rules each is the best of one scenario, and the first one of the others.
    values = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 3.0]])
    assert best_elsewhere(values).tolist() == [1.0, 2.0, 1.0]
    assert best_elsewhere(values[1:2]).tolist() == [1.0], "a single scenario has no other"


def test_seeds_that_are_added_are_never_those_that_choose() -> None:
    plan = Experiment([make_case(bench(ARRIVING))], ["flow"], [1_000_000_000], name="e").plan
    sweep = Sweep(plan, Path("unused"), jobs=1)
    assert sweep.first_seeds() == [1_000_000_000, *range(1_000_000_004, 1_000_000_008)]

"""``flowsched workload generate``: a file that gives the run of the scenario that it was drawn from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowsched.cli import flowsched
from flowsched_models.document import InputError
from flowsched_simulator import Options, load_scenario, simulate

HEAD = """apiVersion: flowsched/v1
kind: Scenario
name: drawn
description: "A scenario: with words that YAML reads, such as no"
machines:
  - {name: m, type: e2-standard-8, copies: 2, labels: {disk: ssd}, resources: {nvidia.com/gpu: 2}}
relations: [{name: few, kind: limit, most: 8}]
task_groups: [{name: train, minimum: 1}]
"""
JOBS = """jobs:
  - {name: a, profile: vips, request: 500m, widths: [1, 500m], scale: 0.1, threads: [1, 2], machine_labels: {disk: ssd}MIX}
  - {name: b, request: 2, runtime_s: 30, estimate_s: 20, tasks: 3, barrier: true, deadline_s: 60, memory: 1GiMORE}
  - {name: "1", request: 1, runtime_s: 12.5, resources: {nvidia.com/gpu: 1}, relations: [few], machines: [m-2], group: train}
"""
ARRIVALS = {
    "all-at-once": "",
    "poisson": "arrivals: {poisson: {rate_per_minute: 20}}\n",
    "mix": "arrivals: {poisson: {rate_per_minute: 20, jobs: 12}}\n",
    "diurnal": "arrivals: {diurnal: {rate_per_minute: 20, amplitude: 1, period_s: 60, jobs: 9}}\n",
    "bursty": "arrivals: {bursty: {rate_per_minute: 20, burst_s: 9, calm_s: 30, jobs: 9}}\n",
}


def called(*arguments: str) -> Result:
    return CliRunner().invoke(flowsched, ["workload", "generate", *arguments])


def scenario_text(arrivals: str) -> str:
    if "jobs" in ARRIVALS[arrivals]:
        return HEAD + JOBS.replace("MIX", ", mix: 2").replace("MORE", "") + ARRIVALS[arrivals]
    return HEAD + JOBS.replace("MIX", ", copies: 3").replace("MORE", ", after: [a]") + ARRIVALS[arrivals]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@given(arrivals=st.sampled_from(sorted(ARRIVALS)), seed=st.integers(0, 99))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_file_gives_the_same_run(tmp_path: Path, ending: str, arrivals: str, seed: int) -> None:
    (tmp_path / "s.yaml").write_text(scenario_text(arrivals))
    out, again = tmp_path / f"a.{ending}", tmp_path / "again.yaml"
    done = called(str(tmp_path / "s.yaml"), "--seed", str(seed), "--out", str(out), "--scenario", str(again))
    assert done.exit_code == 0, done.output

    original, read = load_scenario(tmp_path / "s.yaml"), load_scenario(again)
    options = Options(seed=seed, model_error=0.1)
    # Of a file with times of its own, other seeds draw no others to choose a variant by.
    first, second = (simulate(each, "fcfs", options=options, variant="declared-shared") for each in (original, read))
    assert first.to_json()["jobs"] == second.to_json()["jobs"]
    assert [replace(r, solve_ms=0.0) for r in first.rounds] == [replace(r, solve_ms=0.0) for r in second.rounds]


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "a.parquet", "b.parquet"):
        assert called("parsec-poisson", "--seed", "3", "--out", str(tmp_path / name)).exit_code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert called("parsec-poisson", "--seed", "3").output == (tmp_path / "a.csv").read_text()
    assert called("parsec-poisson", "--seed", "4").output != (tmp_path / "a.csv").read_text()


def test_mistakes_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        HEAD + "jobs: [{name: a, profile: vips, request: 1, machine_labels: {x: 'y z'}}]\n"
    )
    own = str(tmp_path / "s.yaml")
    for arguments, words in (
        (("parsec-poison",), "did you mean 'parsec-poisson'?"),
        (("shop", "--out", "x.csv"), "there is no bundled scenario"),
        (("parsec-poisson", "--scenario", str(tmp_path / "t.yaml")), "add --out FILE"),
        ((own, "--out", str(tmp_path / "x.csv"), "--scenario", own), "would replace"),
        ((own, "--out", str(tmp_path / "x.csv")), "no machine has the labels x=y z"),
        (("parsec-poisson", "--out", str(tmp_path / "none" / "x.csv")), "cannot be written"),
    ):
        done = called(*arguments)
        assert isinstance(done.exception, InputError | SystemExit)
        text = str(done.exception) if isinstance(done.exception, InputError) else done.output
        assert words in text
    assert [p.name for p in tmp_path.iterdir()] == ["s.yaml"]


def test_a_word_that_no_cell_can_hold_is_refused(tmp_path: Path) -> None:
    labels = HEAD.replace("disk: ssd", "disk: 'very fast'")
    (tmp_path / "s.yaml").write_text(
        labels + "jobs: [{name: a, profile: vips, request: 1, machine_labels: {disk: 'very fast'}, group: train}]\n"
    )
    done = called(str(tmp_path / "s.yaml"))
    assert "'disk=very fast' cannot be a word in a cell" in str(done.exception)

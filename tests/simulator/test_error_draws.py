"""Errors of run times: what is drawn for each job, and what only the policies are told wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from builders import CATALOGUE, machine, task
from flowsched.cli import flowsched
from flowsched_models.document import InputError, parse_document
from flowsched_models.uncertainty import normals
from flowsched_simulator import Options, Run, Scenario, load_scenario, simulate
from flowsched_simulator.experiment import load_experiment
from flowsched_simulator.scenario_file import read_scenario
from flowsched_simulator.workload import drawn_workload
from flowsched_simulator.world import ModelError

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: errors\n"
MANY = (
    HEAD
    + """machines: [{type: n2d-highcpu-2, name: m, copies: 40}]
jobs:
  - {name: short, request: 2, runtime_s: 10, copies: 20}
  - {name: long, request: 2, runtime_s: 60, copies: 20}
"""
)
QUEUE = (
    HEAD
    + """machines: [{type: n2d-highcpu-2, name: m}]
estimate_error: 1.0
jobs:
  - {name: first, request: 2, runtime_s: 10}
  - {name: stated, request: 2, runtime_s: 20, estimate_s: 40}
  - {name: shaped, profile: blackscholes, request: 2}
"""
)


def read(text: str) -> Scenario:
    return read_scenario(parse_document(text, "errors.yaml"))


def lengths(run: Run) -> dict[str, float]:
    return {j.job: j.end_s - j.start_s for j in run.jobs if j.end_s is not None and j.start_s is not None}


@pytest.mark.parametrize("error_of", ["job", "job-and-machine"])
def test_without_any_waiting_nothing_is_slowed_down_by_what_is_drawn(error_of: str) -> None:
    """Forty equal machines, a job on each: relative to the luckiest of them the mean slowdown was above 3."""
    options = Options(seed=3, model_error=0.5, error_of=error_of)  # type: ignore[arg-type]
    run = simulate(read(MANY), "fcfs", variant="declared-own", options=options)
    assert [j.slowdown for j in run.jobs] == pytest.approx([1.0] * 40)
    factor = ModelError(0.5, 3, options.error_of).factor
    for job in run.jobs:
        assert job.machine is not None
        expected = (10.0 if job.job.startswith("short") else 60.0) * factor(job.job, job.machine)
        assert lengths(run)[job.job] == pytest.approx(expected)
    there = {factor("long-1", f"m-{k}") for k in range(1, 41)}
    assert len(there) == (1 if error_of == "job" else 40), "by job, equal machines are equal"


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "easy", "flow"])
def test_estimates_are_off_and_run_times_stay(policy: str) -> None:
    exact = simulate(read(QUEUE.replace("1.0", "0")), policy, variant="declared-own")
    orders = set()
    for seed in range(4):
        run = simulate(read(QUEUE), policy, variant="declared-own", options=Options(seed=seed))
        assert lengths(run) == pytest.approx(lengths(exact))
        assert [j.alone_s for j in run.jobs] == pytest.approx([j.alone_s for j in exact.jobs])
        orders.add(
            tuple(sorted(lengths(run), key=lambda name: next(j.start_s or 0.0 for j in run.jobs if j.job == name)))
        )
    assert len(orders) > 1 or policy in ("fcfs", "easy"), "what goes by estimates is misled by some seed"


@given(
    st.lists(st.tuples(st.floats(0.1, 1e6), st.none() | st.floats(0.1, 10.0)), min_size=1, max_size=6),
    st.floats(0.01, 3.0),
    st.integers(0, 2**32),
)
def test_what_is_told_times_what_it_is_off_by_is_the_truth(
    jobs: list[tuple[float, float | None]], sigma: float, seed: int
) -> None:
    tasks = tuple(task(f"t{i}", scale=scale) for i, (scale, _) in enumerate(jobs))
    stated = {f"t{i}": factor for i, (_, factor) in enumerate(jobs) if factor is not None}
    before = Scenario("s", "", CATALOGUE, (machine(),), (), tasks, run_time_factors=stated, estimate_error=sigma)
    drawn = drawn_workload(before, seed)
    for old, new in zip(before.tasks, drawn.tasks, strict=True):
        off = math.exp(sigma * float(normals(seed, "estimate", old.name, 1)[0]))
        assert new.scale == pytest.approx(old.scale * off)
        true = old.scale * stated.get(old.name, 1.0)
        assert new.scale * drawn.run_time_factors[new.name] == pytest.approx(true)
    assert drawn_workload(drawn, seed) == drawn == drawn_workload(before, seed), "what is drawn stays"


def test_a_workload_that_is_written_runs_as_it_did(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(QUEUE)
    args = ["workload", "generate", str(tmp_path / "queue.yaml"), "--seed", "5", "--out", str(tmp_path / "a.csv")]
    done = CliRunner().invoke(flowsched, [*args, "--scenario", str(tmp_path / "again.yaml")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    again, first = (
        simulate(load_scenario(tmp_path / name), "sjf", options=Options(seed=5))
        for name in ("again.yaml", "queue.yaml")
    )
    assert again.jobs == first.jobs


def test_what_has_no_meaning_is_refused(tmp_path: Path) -> None:
    def told(*args: str) -> str:
        done = CliRunner().invoke(flowsched, ["simulate", "parsec-memcached-2024", "--error-of", *args])
        assert isinstance(done.exception, InputError) or done.exit_code == 2
        return str(done.exception) if isinstance(done.exception, InputError) else done.output

    help = "write --model-error 0.2, or leave it out"
    assert told("job") == f"--error-of: has no meaning with --model-error 0; {help}"
    assert told("job-and-machine", "--model-error", "measured").endswith(f"measured; {help}")
    assert "'machine' is not one of 'job', 'job-and-machine', 'class', 'class-and-machine-type'" in told("machine")
    with pytest.raises(InputError, match=r"errors.yaml:4: estimate_error: .*3"):
        read(HEAD + "estimate_error: 4\nmachines: [{type: e2-standard-8}]\njobs: [{name: a, runtime_s: 1}]\n")


def test_experiments_vary_them(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(QUEUE)
    head = "apiVersion: flowsched/v1\nkind: Experiment\nname: e\npolicies: [flow]\nscenarios:\n"
    path = tmp_path / "e.yaml"
    path.write_text(
        head
        + "  - {scenario: queue.yaml, name: a, estimate_error: [0, 0.5]}\n"
        + "  - {scenario: queue.yaml, name: b, model_error: 0.4, error_of: job-and-machine}\n"
    )
    cases = load_experiment(path).plan.cases
    assert [case.name for case in cases] == ["a estimate_error=0", "a estimate_error=0.5", "b"]
    assert [case.scenario.estimate_error for case in cases] == [0.0, 0.5, 1.0]
    assert [case.factors["estimate_error"] for case in cases] == [0.0, 0.5, 1.0]
    assert [case.error_of for case in cases] == ["job", "job", "job-and-machine"]
    assert cases[2].factors["error_of"] == "job-and-machine"
    path.write_text(
        head + "  - {scenario: queue.yaml, error_of: job}\n  - {scenario: queue.yaml, estimate_error: -1}\n"
    )
    with pytest.raises(InputError) as refused:
        load_experiment(path)
    first, second = (str(problem) for problem in refused.value.problems)
    assert "error_of: has no meaning without a model error by number; add model_error: 0.2" in first + second
    assert "estimate_error" in second + first and len(refused.value.problems) == 2

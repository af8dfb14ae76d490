"""Sweeps that are killed, resumed, changed, shared out and distributed: the same bytes, and nothing lost or run twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowsched.cli import flowsched
from flowsched_models.document import InputError
from flowsched_simulator.experiment import load_experiment, load_results
from flowsched_simulator.experiment.run_store import SUFFIX
from flowsched_simulator.experiment.sweep import Sweep

TINY = """
apiVersion: flowsched/v1
kind: Scenario
name: tiny
machines:
  - {name: m1, type: n2d-highmem-4}
  - {name: m2, type: n2d-highcpu-2}
jobs:
  - {name: wide, runtime_s: 60, request: 2}
  - {name: narrow, runtime_s: 10, request: 1, copies: 3}
arrivals: {poisson: {rate_per_minute: 12}}
"""
EXPERIMENT = """
apiVersion: flowsched/v1
kind: Experiment
name: four-policies
scenarios: [tiny.yaml]
policies: [flow, fcfs, best-fit, lpt]
seeds: 1..30
variant: declared-own
"""
RUNS = 4 * 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiment, run without disturbance by one process in ``plain``."""
    made = tmp_path_factory.mktemp("sweep")
    (made / "tiny.yaml").write_text(TINY)
    (made / "experiment.yaml").write_text(EXPERIMENT)
    assert Sweep(load_experiment(made / "experiment.yaml").plan, made / "plain", jobs=1).run() == []
    return made


def result_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "results").iterdir())}


def finished(folder: Path) -> int:
    return len(list((folder / "runs").glob(f"*{SUFFIX}")))


def killed_after(folder: Path, out: Path, runs: int) -> None:
    """A sweep by two processes, which SIGKILL ends when so many runs are done."""
    command = [sys.executable, "-m", "flowsched.cli", "sweep", "experiment.yaml", "--out", str(out), "--jobs", "2"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while finished(out) < runs:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (out / "results").exists()


def test_a_sweep_killed_twice_and_resumed_gives_the_bytes_of_an_undisturbed_one(folder: Path) -> None:
    out = folder / "killed"
    killed_after(folder, out, 10)
    first = finished(out)
    killed_after(folder, out, first + 20)
    second = finished(out)
    assert first < second < RUNS
    kept = {path: path.stat().st_mtime_ns for path in (out / "runs").glob(f"*{SUFFIX}")}

    told: list[tuple[int, int]] = []
    plan = load_experiment(folder / "experiment.yaml").plan
    failures = Sweep(plan, out, jobs=2, report=lambda done, total, _: told.append((done, total))).run()

    assert failures == [] and told[-1] == (RUNS - second, RUNS - second)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert finished(out) == RUNS and not list((out / "runs").glob("*.part"))
    assert result_bytes(out) == result_bytes(folder / "plain")


def children_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_workers_end_when_the_sweep_is_killed(folder: Path) -> None:
    command = [sys.executable, "-m", "flowsched.cli", "sweep", "experiment.yaml", "--out", "orphans", "--jobs", "2"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        while finished(folder / "orphans") < 1:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        workers = children_of(process.pid)
        assert len(workers) >= 2
        process.kill()
    until = time.monotonic() + 60.0
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


GANGS = """
apiVersion: flowsched/v1
kind: Scenario
name: gangs
machines: [{type: e2-standard-8, copies: 2}]
jobs:
  - {name: gang, runtime_s: 20, request: 2, tasks: 4, barrier: true, mix: 1}
  - {name: single, runtime_s: 10, request: 1, mix: 2}
arrivals: {bursty: {rate_per_minute: 20, burst_s: 30, calm_s: 60, jobs: 40}}
"""


def test_a_quick_run_of_drawn_jobs_with_barriers_tells_how_long_the_sweep_takes(tmp_path: Path) -> None:
    (tmp_path / "gangs.yaml").write_text(GANGS)
    cases = "[gangs.yaml, {scenario: gangs.yaml, name: twice, job_copies: 2}]"
    text = EXPERIMENT.replace("[tiny.yaml]", cases).replace("1..30", "1..2")
    (tmp_path / "gangs-experiment.yaml").write_text(text)

    done = CliRunner().invoke(flowsched, ["sweep", str(tmp_path / "gangs-experiment.yaml"), "--dry-run"])

    assert done.exit_code == 0, done.output
    assert "with 20 jobs" in done.output


def test_a_dask_cluster_gives_the_same_bytes(folder: Path) -> None:
    distributed = pytest.importorskip("distributed")
    plan = load_experiment(folder / "experiment.yaml").plan
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        assert Sweep(plan, folder / "dask", backend="dask", address=address).run() == []
    assert result_bytes(folder / "dask") == result_bytes(folder / "plain")


def test_shares_make_the_whole_and_the_last_gathers(folder: Path) -> None:
    plan, out = load_experiment(folder / "experiment.yaml").plan, folder / "shares"
    for index in (2, 0, 1):
        assert not (out / "results").exists()
        sweep = Sweep(plan, out, jobs=1, share=(index, 3))
        assert len(sweep.mine(plan.seeds)) == RUNS // 3
        assert sweep.run() == []
    assert sweep.lacking() == 0
    assert result_bytes(out) == result_bytes(folder / "plain")


def test_a_changed_experiment_runs_what_is_new_and_sets_the_rest_apart(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT.replace("1..30", "1..2"))
    out = tmp_path / "out"
    assert Sweep(load_experiment(path).plan, out, jobs=1).run() == []
    assert finished(out) == 8

    # A policy under another name and a further seed: six of the nine runs are there.
    path.write_text(
        EXPERIMENT.replace("1..30", "1..3").replace(
            "[flow, fcfs, best-fit, lpt]", "[flow, fcfs, {policy: lpt, name: longest}]"
        )
    )
    renamed = Sweep(load_experiment(path).plan, out, jobs=1)
    assert len(renamed.pending(renamed.plan.seeds)) == 3
    assert renamed.foreign(renamed.plan.seeds) == 2
    assert renamed.run() == []
    assert set(load_results(out).to_frame()["policy"]) == {"flow", "fcfs", "longest"}

    # Another scenario of the same name: nothing is.
    (tmp_path / "tiny.yaml").write_text(TINY.replace("runtime_s: 60", "runtime_s: 61"))
    changed = Sweep(load_experiment(path).plan, out, jobs=1)
    assert len(changed.pending(changed.plan.seeds)) == 9


def test_two_sweeps_do_not_write_to_one_folder(folder: Path) -> None:
    plan = load_experiment(folder / "experiment.yaml").plan
    sweep = Sweep(plan, folder / "plain", jobs=1)
    with sweep.store.locked(), pytest.raises(InputError, match="another sweep writes to this folder"):
        sweep.run()


def test_a_damaged_run_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT.replace("1..30", "1"))
    sweep = Sweep(load_experiment(tmp_path / "experiment.yaml").plan, tmp_path / "out", jobs=1)
    sweep.run()
    path = sorted((tmp_path / "out" / "runs").glob(f"*{SUFFIX}"))[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"is damaged.*delete the file; the run is done again"):
        sweep.run()


def test_until_adds_seeds_until_the_difference_is_known_well_enough(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT.replace("1..30", "1..2").replace("best-fit, lpt", "lpt"))
    plan = load_experiment(tmp_path / "experiment.yaml").plan
    assert Sweep(plan, tmp_path / "out", jobs=1).run_until(0.2, 40) == []
    seeds = load_results(tmp_path / "out").seeds
    widths = [d.relative_half_width for d in Sweep(plan, tmp_path / "out").differences(seeds)]
    assert len(seeds) == 40 or all(width is not None and width <= 0.2 for width in widths)
    assert len(seeds) >= 5 and seeds == tuple(range(1, len(seeds) + 1))


def test_until_takes_no_limit_that_its_first_seeds_break(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT.replace("1..30", "1..2"))
    experiment = load_experiment(tmp_path / "experiment.yaml")
    words = "--max-seeds: allows 4 seeds, but intervals of fewer than 5 do not tell when to stop; write --max-seeds 5"
    with pytest.raises(InputError, match=words):
        Sweep(experiment.plan, tmp_path / "out", jobs=1).run_until(0.2, 4)
    with pytest.raises(InputError, match="has no meaning without --until"):
        experiment.run(tmp_path / "out", jobs=1, most_seeds=40)
    assert not (tmp_path / "out").exists()


def test_runs_with_seeds_that_until_added_are_told_from_those_of_other_configurations(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    path = tmp_path / "experiment.yaml"
    text = EXPERIMENT.replace("1..30", "1..2").replace("[flow, fcfs, best-fit, lpt]", "[fcfs, lpt]")
    path.write_text(text)
    assert Sweep(load_experiment(path).plan, tmp_path / "out", jobs=1).run_until(0.9, 5) == []

    def told(*args: str) -> str:
        command = ["sweep", str(path), "--out", str(tmp_path / "out"), "--no-report", *args]
        done = CliRunner().invoke(flowsched, command)
        assert done.exit_code == 0, done.output
        return done.stderr

    assert "4 runs (1 scenario x 2 policies x 2 seeds) -> " in told()
    assert "note: 6 finished runs in " in told() and "that the experiment does not name (3..5)" in told()
    assert "they stay, and only --until uses them" in told() and "configuration" not in told()
    assert load_results(tmp_path / "out").seeds == (1, 2)
    until = told("--until", "90%")
    assert "10 runs (1 scenario x 2 policies x 5 seeds), and more seeds until intervals are within 90 % -> " in until
    assert "all 10 runs are done" in until and "note:" not in until
    assert load_results(tmp_path / "out").seeds == (1, 2, 3, 4, 5)

    # Another scenario, and a gap between the seeds: whose runs those are cannot be told.
    (tmp_path / "tiny.yaml").write_text(TINY.replace("runtime_s: 60", "runtime_s: 61"))
    changed = told("--dry-run")
    assert "note: 10 finished runs in " in changed and "are of other seeds, configurations or versions" in changed
    assert "--until" not in changed
    (tmp_path / "tiny.yaml").write_text(TINY)
    path.write_text(text.replace("1..2", "3"))
    assert "note: 4 finished runs in " in told("--dry-run") and "(4, 5)" in told("--dry-run")


def test_the_command_says_what_it_does_and_takes_no_step_on_a_dry_run(folder: Path, tmp_path: Path) -> None:
    def run(*args: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(flowsched, ["sweep", str(folder / "experiment.yaml"), *args])
        return done.exit_code, done.stdout, done.stderr

    out = tmp_path / "out"
    code, text, told = run("--out", str(out), "--dry-run", "--jobs", "1")
    assert (code, text) == (0, "") and not out.exists()
    assert "four-policies: 120 runs (1 scenario x 4 policies x 30 seeds)" in told
    assert "on 1 core, by a quick run of each policy with 4 jobs; runs correct it" in told
    code, text, told = run("--out", str(folder / "plain"), "--no-report")
    assert code == 0 and "all 120 runs are done" in told
    assert "tiny: " in text and "30 seeds" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--backend", "dask"], "needs the address of its scheduler; add --address"),
        (["--backend", "slurm"], "there is no such backend; one of local, dask"),
        (["--address", "tcp://x:1"], "is for --backend dask"),
        (["--share", "0/2", "--until", "2%"], "has no meaning with --until"),
        (["--share", "2/2"], "of two shares"),
        (["--until", "2"], "write 2%"),
        (["--max-seeds", "40"], "--max-seeds: has no meaning without --until; add --until 2%, or leave it out"),
        (
            ["--until", "2%", "--max-seeds", "29"],
            "--max-seeds: allows 29 seeds, but the experiment has 30; write --max-seeds 30 or more, or name fewer seeds",
        ),
    ],
)
def test_wrong_options_are_refused(folder: Path, args: list[str], words: str) -> None:
    done = CliRunner().invoke(flowsched, ["sweep", str(folder / "experiment.yaml"), *args])
    assert done.exit_code != 0
    assert words.replace("of two shares", "is not a share") in f"{done.exception}{done.stderr}"

"""Whether what was learnt is used: in a round on a file, and in the scenarios of an experiment."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builders import machines, running, snapshot, task
from flowsched.cli import flowsched
from flowsched.cluster.learning import Learning, with_learning
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched_models.document import InputError
from flowsched_simulator.experiment import load_experiment, make_case
from flowsched_simulator.experiment.finished_run import FinishedRun
from flowsched_simulator.experiment.planned_run import PlannedRun, execute
from flowsched_simulator.run_classes import chosen_learning

TURNS = Path(__file__).parents[2] / "docs" / "examples" / "turns.yaml"
CLASSES = """\
apiVersion: flowsched/v1
kind: Scenario
name: classes
machines: [{type: e2-standard-8, copies: 2}]
arrivals: {poisson: {rate_per_minute: 30}}
jobs:
  - {name: encode, profile: vips, request: 2, copies: 12}
  - {name: index, profile: dedup, request: 2, copies: 8, scale: 2}
"""
HEAD = "apiVersion: flowsched/v1\nkind: Experiment\nname: e\npolicies: [flow]\nseeds: 3\nscenarios:\n"


def solved(file: Path, *args: str) -> dict[str, Any]:
    done = CliRunner().invoke(flowsched, ["solve", str(file), "--json", *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    del found["timings"]
    return found


def test_solve_uses_what_its_snapshot_has_learnt_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    text = TURNS.read_text()
    plain, on, observed = (tmp_path / f"{name}.yaml" for name in ("plain", "on", "observed"))
    plain.write_text(text)
    classed = re.sub(r"(\{name: \w+), profile", r"\1, class: night, profile", text)
    entry = "{class: night, machine_type: e2-standard-8, runs: 9, log_sum: 8, log_squares: 7.2}"
    learnt = f"learnt_run_times: {{classes: [{entry}]"
    on.write_text(f"{classed}\n{learnt}}}\n")
    observed.write_text(f"{classed}\n{learnt}, applied: false}}\n")

    used, unused, without = solved(on), solved(observed), solved(plain)
    assert used != unused
    assert used == solved(on, "--learning", "on") == solved(observed, "--learning", "on")
    assert unused == solved(on, "--learning", "observe") == solved(observed, "--learning", "observe")
    for file in (plain, on, observed):
        assert solved(file, "--learning", "off") == without
    assert solved(plain, "--learning", "on") == without


@pytest.mark.parametrize("learning", [None, "off", "observe", "on"])
def test_only_what_was_learnt_changes(learning: Learning | None) -> None:
    known = LearntRunTimes().with_end("night", "small", 2.0)
    runs = running(task("r", run_class="night"), "m1", (0,), progress=0.4, factor=1.5)
    given = snapshot([task("w", run_class="night"), task("x")], machines(1), running=[runs], learnt_run_times=known)
    found = with_learning(given, learning)

    assert found.learnt_run_times.in_use is (learning in (None, "on"))
    assert [t.run_class for t in found.pending] == (["", ""] if learning == "off" else ["night", ""])
    (still,) = found.running
    assert (still.progress, still.factor) == (0.4, 1.5), "how far it is was counted on its forecast"
    same = replace(found, learnt_run_times=given.learnt_run_times, pending=given.pending, running=given.running)
    assert same == given


def test_an_experiment_compares_with_learning_and_without(tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text(CLASSES)
    path = tmp_path / "e.yaml"
    error = "model_error: 0.7, error_of: class"
    path.write_text(
        f"{HEAD}  - {{scenario: classes.yaml, name: a, {error}, learning: [off, on]}}\n"
        f"  - {{scenario: classes.yaml, name: b, {error}}}\n"
        f"  - {{scenario: classes.yaml, name: c, {error}, learning: observe}}\n"
    )
    plan = load_experiment(path).plan
    assert [case.name for case in plan.cases] == ["a learning=off", "a learning=on", "b", "c"]
    assert [case.learning for case in plan.cases] == ["off", "on", None, "observe"]
    assert [case.factors.get("learning") for case in plan.cases] == ["off", "on", None, "observe"]

    planned = {run.case.name: run for run in plan.runs((3,))}
    digests = {name: run.digest for name, run in planned.items()}
    assert len(set(digests.values())) == 4
    jobs = {name: _jobs(run) for name, run in planned.items()}
    assert chosen_learning(plan.cases[2].scenario, 0.7) == "on"
    assert jobs["a learning=on"] == jobs["b"]
    assert jobs["a learning=off"] == jobs["c"] != jobs["b"]


def _jobs(planned: PlannedRun) -> Any:
    done = execute(planned)
    assert isinstance(done, FinishedRun), done
    return done.tables["jobs"]


def test_another_word_is_refused(tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text(CLASSES)
    path = tmp_path / "e.yaml"
    path.write_text(f"{HEAD}  - {{scenario: classes.yaml, learning: often}}\n")
    with pytest.raises(InputError, match=r"learning.*often"):
        load_experiment(path)
    path.write_text(f"{HEAD}  - classes.yaml\n")
    scenario = load_experiment(path).plan.cases[0].scenario
    with pytest.raises(ValueError, match="learning must be off or observe or on, got often"):
        make_case(scenario, learning="often")  # type: ignore[arg-type]
    done = CliRunner().invoke(flowsched, ["solve", str(TURNS), "--learning", "often"])
    assert done.exit_code == 2 and "'often' is not one of 'off', 'observe', 'on'" in done.output

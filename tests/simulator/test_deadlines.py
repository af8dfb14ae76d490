"""Deadlines of jobs: which were missed, where results say so, and what policies are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowsched_simulator import Options, Scenario, load_scenario, simulate
from flowsched_simulator.comparison import result
from flowsched_simulator.report.page import render_report
from flowsched_simulator.run import Run
from flowsched_simulator.table import render_table

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: late\nmachines: [{name: m, type: e2-standard-8, cpu: 1}]\n"
JOBS = """jobs:
  - {name: first, request: 1, runtime_s: 60, deadline_s: 60}
  - {name: second, request: 1, runtime_s: 60, deadline_s: 119, submit_s: 0.5}
  - {name: third, request: 1, runtime_s: 60, submit_s: 1}
  - {name: fourth, request: 1, runtime_s: 60, submit_s: 2, deadline_s: 1000, goal_s: 70}
"""


def loaded(tmp_path: Path, jobs: str) -> Scenario:
    path = tmp_path / "late.yaml"
    path.write_text(HEAD + jobs)
    return load_scenario(path)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return simulate(loaded(tmp_path, JOBS), "fcfs")


def test_a_job_misses_its_deadline_when_it_ends_later(run: Run) -> None:
    assert {j.job: j.missed for j in run.jobs} == {"first": False, "second": True, "third": None, "fourth": False}
    assert run.summary()["missed"] == 1


def test_a_job_that_never_ends_misses_its_deadline(tmp_path: Path) -> None:
    run = simulate(loaded(tmp_path, JOBS), "fcfs", options=Options(max_time_s=100.0))
    assert {j.job: j.missed for j in run.jobs} == {"first": False, "second": True, "third": None, "fourth": True}


def test_results_tell_of_deadlines_only_where_there_are_any(tmp_path: Path, run: Run) -> None:
    without = loaded(tmp_path, "jobs: [{name: only, request: 1, runtime_s: 60}]\n")
    told = result(without, [simulate(without, "fcfs")])
    for text in (render_table(told["table"]), render_report(told), str(told)):
        assert "missed" not in text and "eadline" not in text
    found = result(loaded(tmp_path, JOBS), [run])
    assert "missed" in render_table(found["table"])
    assert "Deadlines" in render_report(found)
    assert [job.get("missed") for job in found["runs"][0]["jobs"]] == [False, True, None, False]


def test_policies_are_told_the_deadline_as_a_goal_unless_there_is_one(tmp_path: Path) -> None:
    goals = {t.name: t.goal_s for t in loaded(tmp_path, JOBS).tasks}
    assert goals == {"first": 60.0, "second": 119.0, "third": None, "fourth": 70.0}

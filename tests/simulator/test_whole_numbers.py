"""Whole numbers that the arrays of rounds cannot hold are refused where they are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowsched.cluster.snapshot_file import TaskForm
from flowsched.records.snapshot_source import load_snapshot
from flowsched_models.document import InputError
from flowsched_models.form import LARGEST_COUNT
from flowsched_simulator import load_scenario, simulate
from flowsched_simulator.job_form import JobForm

HIGHEST = (1 << 63) - 1
RANGE = f"must be from {-HIGHEST} to {HIGHEST}, which 64 bits hold"
SCENARIO = """\
apiVersion: flowsched/v1
kind: Scenario
name: whole
machines: [{name: m, type: e2-standard-4}]
"""
SNAPSHOT = """\
apiVersion: flowsched/v1
kind: Snapshot
now_s: 0
machines: [{name: m, type: e2-standard-4}]
"""


def scenario(folder: Path, job: str, more: str = "") -> Path:
    path = folder / "scenario.yaml"
    job = f"jobs:\n  - {{name: a, request: 4, runtime_s: 10}}\n  - {{name: b, request: 1, runtime_s: 10, {job}}}\n"
    path.write_text(f"{SCENARIO}{more}{job}", encoding="utf-8")
    return path


def arrivals(folder: Path, job: str) -> Path:
    key, value = job.split(": ")
    (folder / "jobs.csv").write_text(f"name,request,runtime_s,submit_s,{key}\nb,1,10,0,{value}\n", encoding="utf-8")
    path = folder / "scenario.yaml"
    path.write_text(f"{SCENARIO}arrivals: {{file: jobs.csv}}\n", encoding="utf-8")
    return path


def snapshot(folder: Path, job: str) -> Path:
    path = folder / "snapshot.yaml"
    path.write_text(f"{SNAPSHOT}pending:\n  - {{name: b, profile: vips, request: 1, {job}}}\n", encoding="utf-8")
    return path


def refusal(load: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


@pytest.mark.parametrize("number", [HIGHEST + 1, -HIGHEST - 1, 10**40])
@pytest.mark.parametrize(
    ("write", "load"), [(scenario, load_scenario), (arrivals, load_scenario), (snapshot, load_snapshot)]
)
def test_a_priority_beyond_64_bits_is_refused_with_the_range(
    write: Callable[..., Path], load: Callable[[Path], Any], number: int, tmp_path: Path
) -> None:
    text = refusal(load, write(tmp_path, f"priority: {number}"))
    assert "priority" in text and f": {RANGE}, but is {number}" in text
    assert text.count("\n") == 0


@pytest.mark.parametrize("policy", ["flow", "coco", "sjf"])
@pytest.mark.parametrize(("number", "first"), [(HIGHEST, "b"), (-HIGHEST, "a")])
def test_the_highest_and_the_lowest_are_served_in_their_order(
    policy: str, number: int, first: str, tmp_path: Path
) -> None:
    run = simulate(load_scenario(scenario(tmp_path, f"priority: {number}")), policy, variant="declared-own")
    starts = {j.name: j.start_s for j in run.jobs}
    assert min(starts, key=lambda name: (starts[name], name)) == first
    assert sorted(starts.values()) == pytest.approx([0.0, 10.0])


@pytest.mark.parametrize(("write", "load"), [(scenario, load_scenario), (snapshot, load_snapshot)])
@pytest.mark.parametrize("job", ["resources: {x: %d}", "gpus: {count: %d}", "threads: [%d]"])
def test_counts_whose_sums_64_bits_could_not_hold_are_refused(
    write: Callable[..., Path], load: Callable[[Path], Any], job: str, tmp_path: Path
) -> None:
    text = refusal(load, write(tmp_path, job % 10**30))
    assert f"must be at most {LARGEST_COUNT}, but is {10**30}" in text


def test_a_group_does_not_give_up_before_the_clock_begins(tmp_path: Path) -> None:
    for deadline, bad in (("-1", True), ("0", False), ("5", False)):
        groups = f"task_groups: [{{name: g, minimum: 1, deadline_s: {deadline}}}]\n"
        path = scenario(tmp_path, "group: g", groups)
        if bad:
            assert "task_groups[0].deadline_s: must be at least 0, but is -1" in refusal(load_scenario, path)
        else:
            load_scenario(path)


def test_the_page_lists_the_keys_of_a_job_that_a_task_has_not() -> None:
    text = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
    found = re.search(r"A task has the keys of a scenario's job.*?except (.*?)\. It has", text, re.DOTALL)
    assert found is not None
    outside = re.sub(r"\(.*?\)", "", found[1], flags=re.DOTALL)
    assert set(re.findall(r"`(\w+)`", outside)) == JobForm.model_fields.keys() - TaskForm.model_fields.keys()

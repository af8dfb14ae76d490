"""Jobs without length: they start like others, and end in the instant in which they start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.snapshot import StartDelay
from flowsched_models.document import InputError
from flowsched_simulator import load_scenario, simulate
from flowsched_simulator.policies import all_policies
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import Options

JOBS: list[dict[str, Any]] = [
    {"name": "a", "request": 1, "runtime_s": 0},
    {"name": "b", "request": 1, "runtime_s": 1},
    {"name": "wide", "request": 8, "runtime_s": 0, "after": ["a"], "copies": 3},
    {"name": "gang", "request": 4, "runtime_s": 0, "after": ["wide"], "tasks": 3, "barrier": True, "deadline_s": 9},
    {"name": "longer", "request": 4, "runtime_s": 7, "estimate_s": 0, "submit_s": 0.25},
    {"name": "felt", "request": 4, "runtime_s": 0, "estimate_s": 5, "profile": "vips"},
    {"name": "feels", "request": 4, "runtime_s": 5, "profile": "vips"},
]
POLICIES = [each.name for each in all_policies() if not each.name.startswith("drmaestro")]
"""Those for jobs that need no GPU."""


def loaded(folder: Path, jobs: list[dict[str, Any]], copies: int = 2) -> Scenario:
    path = folder / "zero.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "flowsched/v1",
                "kind": "Scenario",
                "name": "zero",
                "machines": [{"name": "m", "type": "e2-standard-8", "copies": copies}],
                "jobs": jobs,
            }
        )
    )
    return load_scenario(path)


def check(run: Run, delay_s: float = 0.0) -> None:
    """All ended, those without length as they began, each after what it comes after."""
    jobs = {job.name: job for job in run.jobs}
    assert all(job.end_s is not None for job in run.jobs), run.policy
    for job in run.jobs:
        if job.alone_s == 0.0:
            assert job.end_s == job.start_s and job.slowdown is None, run.policy
    longer = jobs["longer"]
    assert longer.end_s == pytest.approx((longer.start_s or 0.0) + 7.0, abs=1e-6)
    starts = [jobs[name].start_s or 0.0 for name in ("gang/1", "gang/2", "gang/3")]
    assert starts[0] >= (jobs["wide-3"].end_s or 0.0) >= (jobs["a"].end_s or 0.0) >= delay_s
    known = [job.slowdown for job in run.outcomes if job.alone_s > 0.0]
    assert run.summary()["mean_slowdown"] == pytest.approx(sum(s for s in known if s) / len(known))
    json.dumps(run.to_json(), allow_nan=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_they_end_as_they_start_under_every_policy(tmp_path: Path, policy: str) -> None:
    check(simulate(loaded(tmp_path, JOBS), policy))


@pytest.mark.parametrize("policy", ["flow", "easy"])
def test_they_end_as_they_start_with_delays_intervals_and_errors(tmp_path: Path, policy: str) -> None:
    scenario = replace(loaded(tmp_path, JOBS), start_delay=StartDelay(1.5, 2.5), estimate_error=0.5)

    check(simulate(scenario, policy, options=Options(round_interval_s=0.5)), 1.5)


def test_a_chain_of_them_takes_no_time(tmp_path: Path) -> None:
    chain = [{"name": f"j{k}", "request": 8, "runtime_s": 0, "after": [f"j{k - 1}"] if k else []} for k in range(9)]

    run = simulate(loaded(tmp_path, [{**job, "submit_s": 3} for job in chain], copies=1), "fcfs")

    assert {(job.start_s, job.end_s) for job in run.jobs} == {(3.0, 3.0)}
    assert run.makespan_s == 0.0 and run.summary()["mean_slowdown"] is None and len(run.rounds) == 9


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from([1, 4, 8])), min_size=1, max_size=12))
def test_one_machine_in_turn_is_a_loop_in_integers(tmp_path_factory: Any, drawn: list[tuple[int, int, int]]) -> None:
    """FCFS on one machine: each starts once those before it have started and there is room."""
    jobs: list[dict[str, Any]] = [
        {"name": f"j{k:02}", "request": cores, "runtime_s": lasting, "submit_s": at}
        for k, (lasting, at, cores) in enumerate(drawn)
    ]
    expected: dict[str, tuple[int, int]] = {}
    taken: list[tuple[int, int]] = []
    now = 0
    for job in sorted(jobs, key=lambda job: (job["submit_s"], job["name"])):
        now = max(now, job["submit_s"])
        while sum(cores for end, cores in taken if end > now) + job["request"] > 8:
            now += 1
        expected[job["name"]] = now, now + job["runtime_s"]
        taken.append((now + job["runtime_s"], job["request"]))

    folder = tmp_path_factory.mktemp("loop")
    run = simulate(loaded(folder, jobs, copies=1), "fcfs", variant="declared-own")

    assert {job.name: (job.start_s, job.end_s) for job in run.jobs} == expected


def test_less_than_nothing_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"jobs\[0\]\.runtime_s: must be at least 0, but is -1"):
        loaded(tmp_path, [{"name": "a", "request": 1, "runtime_s": -1}])


def test_a_time_in_microseconds_is_refused_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"submit_s: must be at most 1e\+12, but is 1664575200000000; it is in seconds"
    ):
        loaded(tmp_path, [{"name": "a", "request": 1, "runtime_s": 1, "submit_s": 1_664_575_200_000_000}])

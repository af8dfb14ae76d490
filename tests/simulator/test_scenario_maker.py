"""Scenarios from Python: the same as from a file, from mappings and from data frames, with the same messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowsched_models.document import InputError
from flowsched_simulator import load_scenario, make_scenario

MACHINES = [{"type": "e2-standard-8", "copies": 2, "labels": {"disk": "ssd"}}]
JOBS: list[dict[str, Any]] = [
    {"name": "a", "request": 2, "runtime_s": 60, "submit_s": 0, "deadline_s": 90},
    {"name": "b", "request": "500m", "runtime_s": 30, "submit_s": 5, "machine_labels": {"disk": "ssd"}},
]


def test_mappings_make_what_a_file_makes(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: mine\n"
        "machines: [{type: e2-standard-8, copies: 2, labels: {disk: ssd}}]\n"
        "jobs:\n  - {name: a, request: 2, runtime_s: 60, deadline_s: 90}\n"
        "  - {name: b, request: 500m, runtime_s: 30, submit_s: 5, machine_labels: {disk: ssd}}\n"
        "start_delay: {after_waiting_s: 3}\n"
    )
    of_file = load_scenario(tmp_path / "s.yaml")
    made = make_scenario(MACHINES, JOBS, "mine", start_delay={"after_waiting_s": 3})
    for field in ("name", "machines", "tasks", "job_terms", "start_delay", "arrivals"):
        assert getattr(made, field) == getattr(of_file, field)


def test_values_of_numpy_and_tuples_are_taken() -> None:
    times = np.cumsum([1.5, 2.5])
    jobs = (
        {"name": f"j{k}", "request": 1, "widths": (1, 2), "runtime_s": np.int64(9), "submit_s": t}
        for k, t in enumerate(times)
    )
    assert [(t.submit_s, t.widths_milli) for t in make_scenario(tuple(MACHINES), jobs).tasks] == [
        (1.5, (1000, 2000)),
        (4.0, (1000, 2000)),
    ]


def test_a_data_frame_is_a_table_of_jobs() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(JOBS)
    assert make_scenario(MACHINES, frame).tasks == make_scenario(MACHINES, JOBS).tasks
    frame["submit_s"] = pandas.to_datetime(["2024-01-01", None])
    with pytest.raises(InputError) as caught:
        make_scenario(MACHINES, frame.assign(request=[99, 1]))
    assert [str(p).partition("; ")[0] for p in caught.value.problems] == [
        "jobs: row 1, column 'submit_s': must be a number, but is 2024-01-01 00:00:00",
        "jobs: row 2, column 'submit_s': must be a number, but is empty",
    ]


def test_mistakes_name_their_place() -> None:
    with pytest.raises(InputError) as caught:
        make_scenario([{"type": "e2-standard"}], [{**JOBS[0], "request": 99}, {"nam": "x"}], arrival="poisson")
    assert [str(p).partition("; ")[0] for p in caught.value.problems] == [
        "make_scenario: jobs[1].request: is missing",
        "make_scenario: jobs[1].nam: there is no key 'nam' here",
        "make_scenario: arrival: there is no key 'arrival' here",
        "make_scenario: machines[0].type: there is no machine type 'e2-standard'",
    ]

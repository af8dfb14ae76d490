"""Arrivals files: every key of a job is a column, in CSV and in Parquet, and mistakes name their place."""

from __future__ import annotations

import builtins
import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flowsched_models.document import InputError
from flowsched_models.extras import install_extra
from flowsched_simulator import Scenario, load_scenario
from flowsched_simulator.job_form import JobForm

HEAD = """apiVersion: flowsched/v1
kind: Scenario
name: columns
machines:
  - name: m1
    type: e2-standard-8
    labels: {disk: ssd}
    resources: {nvidia.com/gpu: 2, fpga: 1}
    gpus: {model: V100, count: 2}
  - {name: m2, type: e2-standard-8, gpus: {model: P100, count: 2}}
relations: [{name: few, kind: limit, most: 3}, {name: far, kind: apart}]
task_groups: [{name: train, minimum: 3}]
"""
FULL: dict[str, Any] = {
    "submit_s": 12.5,
    "after": ["b"],
    "machine_labels": {"disk": "ssd"},
    "name": "a",
    "profile": "vips",
    "request": "1500m",
    "widths": [2, "1500m"],
    "scale": 0.5,
    "goal_s": 90,
    "deadline_s": 120.5,
    "priority": -3,
    "weight": 2.5,
    "memory": "2Gi",
    "machines": ["m1", "m2"],
    "copies": 3,
    "resources": {"nvidia.com/gpu": 1, "fpga": 1},
    "gpus": {"count": 2, "models": ["P100", "V100"]},
    "relations": ["few"],
    "holds": ["far"],
    "joins": ["far", "few"],
    "group": "train",
    "threads": [1, 2],
    "min_utility": 0.25,
    "class": "night",
}
GIVEN: dict[str, Any] = {
    "submit_s": 0,
    "name": "b",
    "request": 2,
    "runtime_s": 60,
    "estimate_s": 45.5,
    "walltime_s": 50.5,
    "tasks": 3,
    "barrier": True,
}
OTHER: dict[str, Any] = {"submit_s": 3, "name": "c", "profile": "vips", "request": 1, "true_profile": "canneal"}
JOBS = (FULL, GIVEN, OTHER)


def cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={'|'.join(v) if isinstance(v, list) else v}" for key, v in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def csv_of(*jobs: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(name for job in jobs for name in job))
    lines = [",".join(names), *(",".join(cell(job.get(name, "")) for name in names) for job in jobs)]
    return "\n".join(lines) + "\n"


def with_arrivals(tmp_path: Path, name: str, text: str = HEAD) -> Scenario:
    path = tmp_path / "s.yaml"
    path.write_text(text + f"arrivals: {{file: {name}}}\n")
    return load_scenario(path)


def problems(tmp_path: Path, name: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        with_arrivals(tmp_path, name)
    return [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]


@pytest.fixture
def listed(tmp_path: Path) -> Scenario:
    """The same jobs in the scenario itself."""
    keys = {field.alias or name for name, field in JobForm.model_fields.items()}
    assert {*FULL, *GIVEN, *OTHER, "mix"} == keys, "every key is tried"
    path = tmp_path / "yaml.yaml"
    path.write_text(HEAD + f"jobs: {json.dumps(JOBS)}\n")
    return load_scenario(path)


def same_jobs(one: Scenario, other: Scenario) -> bool:
    fields = ("tasks", "run_time_factors", "true_profiles", "job_terms", "task_groups", "barriers")
    return all(getattr(one, field) == getattr(other, field) for field in fields)


def test_every_key_of_a_job_is_a_column_of_csv(tmp_path: Path, listed: Scenario) -> None:
    (tmp_path / "a.csv").write_text(csv_of(*JOBS))
    assert same_jobs(with_arrivals(tmp_path, "a.csv"), listed)


def test_every_key_of_a_job_is_a_column_of_parquet(tmp_path: Path, listed: Scenario) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: [job.get(name) for job in JOBS] for name in {**FULL, **GIVEN, **OTHER}}
    for name in ("request", "memory"):
        columns[name] = [None if value is None else str(value) for value in columns[name]]
    columns["widths"] = [["2", "1500m"], None, None]
    parquet.write_table(pa.table(columns), tmp_path / "native.parquet")
    assert same_jobs(with_arrivals(tmp_path, "native.parquet"), listed)

    texts = {name: [cell(job[name]) if name in job else None for job in JOBS] for name in {**FULL, **GIVEN, **OTHER}}
    parquet.write_table(pa.table(texts), tmp_path / "texts.parquet")
    assert same_jobs(with_arrivals(tmp_path, "texts.parquet"), listed)


def test_columns_as_pandas_writes_them(tmp_path: Path) -> None:
    """Whole numbers with a gap become floats there, names may be numbers, and what is missing is NaN."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "submit_s": [0, 1, 2],
            "name": [7, 8, 9],
            "request": [1, 2, 1],
            "runtime_s": [5, 6, 7],
            "copies": [2, None, None],
        }
    )
    frame.to_parquet(tmp_path / "p.parquet")
    given = with_arrivals(tmp_path, "p.parquet", HEAD.replace("task_groups: [{name: train, minimum: 3}]", ""))
    assert [(t.name, t.submit_s, t.request_milli) for t in given.tasks] == [
        ("7-1", 0.0, 1000),
        ("7-2", 0.0, 1000),
        ("8", 1.0, 2000),
        ("9", 2.0, 1000),
    ]


def test_mistakes_in_parquet_name_row_and_column(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    stamps = [datetime.datetime(2024, 5, 1, 12), datetime.datetime(2024, 5, 1, 13)]
    table = {"submit_s": stamps, "name": ["a", "b"], "request": [1, -1], "profile": ["vips", "vips"]}
    parquet.write_table(pa.table(table), tmp_path / "p.parquet")
    first, request, second = problems(tmp_path, "p.parquet")
    assert first.startswith(
        "p.parquet: row 1, column 'submit_s': must be a number, but is 2024-05-01 12:00:00; use seconds"
    )
    assert second.startswith("p.parquet: row 2, column 'submit_s'")
    assert request == "p.parquet: row 2, column 'request': must be more than 0 cores, but is -1"

    parquet.write_table(pa.table({"submit": [0]}), tmp_path / "h.parquet")
    assert problems(tmp_path, "h.parquet")[0].startswith(
        "h.parquet: there is no column 'submit'; did you mean 'submit_s'?"
    )
    (tmp_path / "x.parquet").write_text("submit_s,name\n")
    (broken,) = problems(tmp_path, "x.parquet")
    assert broken.startswith("x.parquet: not a valid Parquet file: ")


def test_parquet_without_pyarrow_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **named)

    (tmp_path / "p.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(builtins, "__import__", refuse)
    (sentence,) = problems(tmp_path, "p.parquet")
    assert sentence == f"p.parquet: reading Parquet needs pyarrow, which is not installed; {install_extra('sweep')}"


@pytest.mark.parametrize("stamp", ["2024-05-01", "2024-05-01T12:30:00Z", "1/5/2024 12:30", "01:30:00", "12:30"])
def test_a_time_stamp_gets_told_how_to_convert_it(tmp_path: Path, stamp: str) -> None:
    (tmp_path / "a.csv").write_text(f"submit_s,name,request,runtime_s\n{stamp},a,1,60\n")
    (problem,) = problems(tmp_path, "a.csv")
    assert problem.startswith(
        f"a.csv:2: column 'submit_s': must be a number, but is '{stamp}'; use seconds, counted from one moment"
    )
    assert "dt.total_seconds()" in problem


def test_the_conversion_that_is_told_is_right(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    t = pandas.to_datetime(pandas.Series(["2024-05-01T12:00:00Z", "2024-05-01T12:01:30Z"]))
    assert (t - t.min()).dt.total_seconds().tolist() == [0.0, 90.0]


def test_mistakes_of_all_columns_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "submit_s,name,request,runtime_s,machines,resources,priority,relations,copies,deadline_s\n"
        "0,a,1,60,m1 m3,gpu,1.5,few,0,-1\n"
        "0,b,1,60,,gpu=x,,fewer,1,\n"
        "0,c,1,60,m1 m3,fpga=1,,fewer,,\n"
    )
    assert problems(tmp_path, "a.csv") == [
        "a.csv:2: column 'deadline_s': must be more than 0, but is -1.0",
        "a.csv:2: column 'priority': must be a whole number, but is '1.5'",
        "a.csv:2: column 'copies': must be more than 0, but is 0",
        "a.csv:2: column 'resources': must be a mapping of 'key: value' pairs, but is 'gpu'; write name=value, with a "
        "space between two of them",
        "a.csv:3: column 'resources': must be a whole number, but is 'x'",
        "a.csv:4: column 'machines': there is no machine 'm3'; known: m1, m2",
        "a.csv:4: column 'relations': there is no relation 'fewer'; did you mean 'few'? (known: few, far)",
    ]

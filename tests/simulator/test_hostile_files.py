"""Files of a stranger: each is refused with one sentence, in little time and memory, and quotes no other file."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowsched.records import record_file
from flowsched.records.record import RECORD_VERSION
from flowsched.records.record_file import load_record
from flowsched_models.document import MOST_TOLD, InputError, Problem, parse_document
from flowsched_models.form import Form, check
from flowsched_models.profiles import load_catalogue
from flowsched_models.text_table import csv_table
from flowsched_simulator import load_scenario
from flowsched_simulator.experiment import finished_run, make_case
from flowsched_simulator.experiment.finished_run import read_finished
from flowsched_simulator.experiment.plot import Plot
from flowsched_simulator.scenario_size import VARIABLE

SCENARIO = "apiVersion: flowsched/v1\nkind: Scenario\nname: s\ndescription: d\n"


def refused(ask: Any, *given: Any) -> str:
    """The one sentence with which something is refused."""
    with pytest.raises(InputError) as caught:
        ask(*given)
    assert len(caught.value.problems) == 1
    return str(caught.value)


# Records


def archive(path: Path, record: dict[str, Any], **arrays: np.ndarray[Any, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("record.json", json.dumps({"apiVersion": RECORD_VERSION, "kind": "Record", **record}))
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            file.writestr(f"{name}.npy", content.getvalue())
    return path


def test_a_record_that_names_one_array_many_times(tmp_path: Path) -> None:
    many = [{"$array": "zeros.npy"}] * 300
    path = archive(tmp_path / "r.npz", {"parts": many}, zeros=np.zeros(1_000_000))
    assert "would take more than" in refused(load_record, path)


def test_a_record_whose_array_is_much_larger_than_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_LEAST_LIMIT", 1 << 20)
    path = archive(tmp_path / "r.npz", {}, zeros=np.zeros(200_000))
    assert path.stat().st_size < 10_000
    assert "would take more than" in refused(load_record, path)


def test_a_record_with_a_huge_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_LARGEST_JSON", 1 << 20)
    path = archive(tmp_path / "r.npz", {"parts": ["x" * (1 << 20)]})
    assert "record.json: would take more than 1 MiB" in refused(load_record, path)


def test_arrays_of_another_version_are_not_read(tmp_path: Path) -> None:
    path = archive(tmp_path / "r.npz", {"apiVersion": "x", "l": {"$array": "there-is-none.npy"}})
    assert "version x" in refused(load_record, path)


# Finished runs


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[]", "not a finished run"),
        (b"7", "not a finished run"),
        (b'{"format": "flowsched/run/v1"}', "a part of it is missing"),
        (b"[" * 100_000, "damaged"),
        (b" " * (2 << 20), "unpacks to more than 1 MiB"),
    ],
)
def test_what_is_no_finished_run(content: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_run, "_LEAST_LIMIT", 1 << 20)
    with pytest.raises(ValueError, match=why):
        read_finished(gzip.compress(content, 1))


def test_a_finished_run_that_is_cut_off() -> None:
    with pytest.raises(ValueError, match="ends too soon"):
        read_finished(gzip.compress(b"{}")[:-4])


# Scenarios


def large(tmp_path: Path, machines: int, jobs: int, tasks: int = 1) -> Path:
    path = tmp_path / "s.yaml"
    machine = [f"  - {{name: m{k}, cores: 4, memory: 8Gi, copies: 100000}}\n" for k in range(machines)]
    job = [f"  - {{name: j{k}, request: 1, runtime_s: 1, copies: 1000, tasks: {tasks}}}\n" for k in range(jobs)]
    path.write_text(f"{SCENARIO}machines:\n{''.join(machine)}jobs:\n{''.join(job)}", encoding="utf-8")
    return path


def test_more_machines_and_tasks_than_there_is_memory_for(tmp_path: Path) -> None:
    said = refused(load_scenario, large(tmp_path, 20, 1))
    assert "2,000,000 machines and 1,000 tasks, more than 2,000,000 together" in said
    assert VARIABLE in said
    assert "100,000 machines and 100,000,000 tasks" in refused(load_scenario, large(tmp_path, 1, 1, tasks=100_000))


def test_the_operator_sets_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path, 0, 1)
    path.write_text(
        f"{SCENARIO}machines:\n  - {{cores: 4, memory: 8Gi}}\njobs:\n  - {{name: j, request: 1, runtime_s: 1}}\n"
    )
    monkeypatch.setenv(VARIABLE, "1")
    assert "1 machines and 1 tasks, more than 1 together" in refused(load_scenario, path)
    monkeypatch.setenv(VARIABLE, "many")
    assert f"{VARIABLE}: must be a whole number" in refused(load_scenario, path)
    monkeypatch.setenv(VARIABLE, "2")
    small = load_scenario(path)
    assert "2 machines and 1 tasks" in refused(lambda: make_case(small, machine_copies=2))


def test_a_problem_of_each_line_is_told_for_the_first_hundred() -> None:
    class Two(Form):
        here: int = 0

    keys = 3_000
    checked = check(parse_document("".join(f"k{i}: 1\n" for i in range(keys)), "f.yaml"), Two)
    assert len(checked.problems) == keys
    lines = str(InputError(checked.problems)).splitlines()
    assert len(lines) == MOST_TOLD + 1
    assert lines[0].startswith("f.yaml:1: k0: there is no key 'k0' here; ")
    assert lines[-1] == f"... and {keys - MOST_TOLD:,} more"


@pytest.mark.parametrize("number", ["0x" + "f" * 200_000, "9" * 5000, "1" * 1001])
def test_a_number_of_very_many_digits(number: str) -> None:
    assert "digits is too long" in refused(parse_document, f"a: 1\nb: {number}\n", "f.yaml")


def test_a_long_number_is_not_quoted() -> None:
    class One(Form):
        here: str

    checked = check(parse_document(f"here: {'9' * 900}\n", "f.yaml"), One)
    assert len(str(checked.problems[0])) < 150


# What other files hold, and what a terminal obeys


SECRET = "daemon:*:20228:0:99999:7:::\npassword: hunter2\n"


def test_profiles_that_are_another_file(tmp_path: Path) -> None:
    other = tmp_path / "secret"
    for text in (
        SECRET,
        f"{SECRET}kind: Profiles\n",
        f"apiVersion kind\n{SECRET}",
        f"{SECRET}kind: x\napiVersion: y\n",
    ):
        other.write_text(text, encoding="utf-8")
        with pytest.raises(InputError) as caught:
            load_catalogue(extra=[other])
        said = str(caught.value)
        assert str(other) in said
        assert "hunter2" not in said
        assert "daemon" not in said
        assert "password" not in said


def test_arrivals_that_are_another_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET, encoding="utf-8")
    path = tmp_path / "s.yaml"
    path.write_text(
        f"{SCENARIO}machines:\n  - {{cores: 4, memory: 8Gi}}\narrivals: {{file: secret}}\n", encoding="utf-8"
    )
    said = refused(load_scenario, path)
    assert "is no table of jobs" in said
    assert "daemon" not in said


def test_messages_are_lines_without_control_characters() -> None:
    problem = Problem("f\n.yaml", 1, "a\x1b[31m", "is \x1b]0;title\x07\nFAKE: all is well", "try\rthis")
    assert str(problem).isprintable()


# Names in tables and plots


def test_cells_that_look_like_formulas_are_in_quotes() -> None:
    assert csv_table([["a", "b"], ["=1+1", "2"], ["x", -1], ["@x", "+y"]]) == 'a,b\n"=1+1","2"\nx,-1\n"@x","+y"\n'


def test_names_in_plots_are_plain_text() -> None:
    plot = Plot("p", '"><script>$\\undefined{$', "x $", "$y$")
    plot.axes.plot([0, 1], [0, 1], label="$\\undefined{$")
    drawn = plot.finish().markup()
    assert "$\\undefined{$" in drawn
    assert "<script>" not in drawn

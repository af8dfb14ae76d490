"""Where commands write: places are looked at before the work, and what was computed is printed before it is written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flowsched.cli import flowsched
from flowsched_models import output
from flowsched_models.commands.calibrate import _keep
from flowsched_models.document import InputError
from flowsched_models.output import check_file, check_folder, make_folder
from flowsched_simulator.commands.sweep import _warnings_as_notes
from flowsched_simulator.experiment.sweep import Sweep

DOCS = Path(__file__).parent.parent.parent / "docs" / "examples"
SCENARIO = "apiVersion: flowsched/v1\nkind: Scenario\nname: s\nmachines: [{name: m, type: e2-standard-8}]\n"
EXPERIMENT = "apiVersion: flowsched/v1\nkind: Experiment\nname: e\nscenarios: [s.yaml]\npolicies: [fcfs]\nseeds: 1\n"
COMMANDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "simulate": (("simulate", "s.yaml", "--policy", "fcfs", "--out", "out"), "out/report.html", "makespan"),
    "simulate, default": (("simulate", "s.yaml", "--policy", "fcfs"), "out/s/report.html", "makespan"),
    "simulate, JSON": (
        ("simulate", "s.yaml", "--policy", "fcfs", "--json", "--out", "out"),
        "out/result.json",
        '"runs"',
    ),
    "plan": (("plan", "s.yaml", "--evaluations", "5", "--out", "out/p.yaml"), "out/p.yaml", "lower bound"),
    "solve": (("solve", str(DOCS / "snapshot.yaml"), "--record", "out/r.json"), "out/r.json", "canneal"),
    "sweep": (("sweep", "e.yaml", "--out", "out", "--jobs", "1"), "out/report.html", "fcfs"),
}
"""A command, a file that it writes, and a word of what it prints."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s.yaml").write_text(SCENARIO + "jobs: [{name: a, request: 1, runtime_s: 60}]\n")
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(flowsched, args)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_takes_nothing_is_refused_before_the_work(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def work(*_: object, **__: object) -> Any:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(output.tempfile, "NamedTemporaryFile", full)
    monkeypatch.setattr("flowsched_simulator.commands.simulate.compare", work)
    monkeypatch.setattr("flowsched_simulator.commands.plan.make_plan", work)
    monkeypatch.setattr("flowsched.commands.solve.solve_round", work)
    monkeypatch.setattr(Sweep, "estimate", work)
    done = run(*COMMANDS[command][0])
    assert isinstance(done.exception, InputError)
    assert "cannot be written: no space left on device; name another place" in str(done.exception)
    assert done.stdout == "" and not Path(COMMANDS[command][1]).exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_computed_is_printed_where_it_cannot_be_written(command: str, folder: Path) -> None:
    args, file, word = COMMANDS[command]
    (folder / f"{file}.part" / "in the way").mkdir(parents=True)
    done = run(*args)
    assert isinstance(done.exception, InputError)
    assert f"{file}: cannot be written: " in str(done.exception) and "\n" not in str(done.exception)
    assert word in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("calibrate", "data", "--out", "p.yaml"),
        ("calibrate", "data", "--out", "p.yaml", "--report", "report.html"),
        ("validate", "data", "--csv", "scores.csv"),
    ],
)
def test_places_come_before_the_data_that_are_read(args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(place: Path, **_: object) -> None:
        raise InputError.one(place, "is tried first")

    monkeypatch.setattr(f"flowsched_models.commands.{args[0]}.check_file", refused)
    assert str(run(*args).exception).endswith("is tried first")


def test_profiles_that_cannot_be_written_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="cannot be written: is a directory"):
        _keep(folder, "jobs: {}\n")
    assert capsys.readouterr().out == "jobs: {}\n"


def test_a_sweep_whose_tables_cannot_be_written_keeps_its_runs(folder: Path) -> None:
    (folder / "out" / "results" / "jobs.parquet.part").mkdir(parents=True)
    done = run("sweep", "e.yaml", "--out", "out", "--jobs", "1")
    assert isinstance(done.exception, InputError)
    assert str(done.exception).endswith("all runs are kept: make room, and the same command writes them")
    (folder / "out" / "results" / "jobs.parquet.part").rmdir()
    again = run("sweep", "e.yaml", "--out", "out", "--jobs", "1")
    assert again.exit_code == 0 and "all 1 run are done" in again.stderr.replace("is done", "are done")


def test_places_are_checked_without_a_trace(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    check_folder(folder / "not" / "there" / "yet")
    check_file(folder / "new" / "x.csv")
    check_file(folder / "s.yaml")
    assert sorted(folder.rglob("*")) == before
    for check, place, reason in (
        (check_folder, folder / "s.yaml", "not a directory"),
        (check_folder, folder / "s.yaml" / "below", "not a directory"),
        (make_folder, folder / "s.yaml" / "below", "not a directory"),
        (check_file, folder, "is a directory"),
        (lambda path: check_file(path, makes_folder=False), folder / "none" / "x", "no such file or directory"),
    ):
        with pytest.raises(InputError, match=f"{place}: cannot be written: {reason}"):
            check(place)


def test_what_cannot_be_read_is_not_called_unwritable(folder: Path) -> None:
    code = (
        "import errno, sys; from flowsched import cli; import click\n"
        "@click.command()\n"
        "@click.argument('name', required=False)\n"
        "def fail(name):\n    raise OSError(errno.EACCES, 'Permission denied', *[name] * bool(name))\n"
        "cli.main(fail, 'fail')\n"
    )
    named, unnamed = (
        subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
        for args in (["data/locked"], [])
    )
    assert named.returncode == 2
    assert named.stderr == (
        "data/locked: permission denied; see that this user may read and write it, or name another place\n"
    )
    assert (unnamed.returncode, unnamed.stderr) == (1, "cannot write: permission denied\n")


def test_warnings_of_a_sweep_are_sentences_without_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    with _warnings_as_notes():
        warnings.warn("[Errno 28] No space left on device.\n joblib will operate in serial mode", stacklevel=1)
    assert capsys.readouterr().err == "note: [Errno 28] No space left on device. joblib will operate in serial mode\n"


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("kind", ["arrivals", "loads"])
def test_another_separator_is_one_sentence(separator: str, kind: str, folder: Path) -> None:
    if kind == "arrivals":
        (folder / "t.csv").write_text(separator.join(("submit_s", "name", "runtime_s")) + "\n")
        (folder / "s.yaml").write_text(SCENARIO + "arrivals: {file: t.csv}\n")
        done = run("simulate", "s.yaml")
        assert isinstance(done.exception, InputError)
        (told,) = map(str, done.exception.problems)
    else:
        from flowsched_models.document import Problems
        from flowsched_models.wave_file import read_wave

        (folder / "t.csv").write_text(separator.join(("t_s", "qps")) + "\n1\n")
        problems = Problems()
        read_wave(problems, folder / "t.csv")
        (told,) = map(str, problems.found)
    assert "t.csv:1: the columns are not separated by commas, but by " in told


def test_compare_suggests_another_policy() -> None:
    assert run("sweep", "e.yaml", "--out", "out", "--jobs", "1", "--no-report").exit_code == 0
    alone = run("compare", "out", "--policy", "fcfs")
    assert str(alone.exception) == "--policy: fcfs: is alone; this sweep has no other"
    Path("e.yaml").write_text(EXPERIMENT.replace("[fcfs]", "[easy, fcfs]"))
    assert run("sweep", "e.yaml", "--out", "out", "--jobs", "1", "--no-report").exit_code == 0
    for given, other in (("fcfs", "easy"), ("easy", "fcfs")):
        told = str(run("compare", "out", "--policy", given).exception)
        assert told == f"--policy: {given}: is alone; add the one to compare it with, such as --policy {other}"

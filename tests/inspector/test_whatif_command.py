"""``whatif`` and ``replay`` as a user types them: output, exit codes, files, and every mistake at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from round_records import bulk_record, search_record

from builders import machines, running, service, snapshot, task
from engine.bulk_world import Box, Kind, World
from flowsched.cli import main
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.source import open_record
from flowsched.records.record_file import load_record, record_json, write_record

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flowsched", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return left.value.code, out, err  # type: ignore[return-value]

    return run


@pytest.fixture
def search(tmp_path: Path) -> Path:
    cluster = snapshot(
        [task("a"), task("b", cores=1), task("c", cores=4)],
        machines(2),
        services=[service()],
        running=[running(task("r"), "m2")],
    )
    return written(search_record(cluster), tmp_path / "round.json")


@pytest.fixture
def bulk(tmp_path: Path) -> Path:
    boxes = (Box("n1", {"cpu": 8}, {}), Box("n2", {"cpu": 4}, {}))
    return written(bulk_record(World(boxes, kinds=(Kind("k", 3, {"cpu": 2}),))), tmp_path / "bulk.npz")


def written(recorded: RecordView, path: Path) -> Path:
    write_record(recorded.plain, path)
    return path


def test_replay_says_same(run: Run, search: Path, bulk: Path) -> None:
    for record in (search, bulk):
        code, out, err = run("replay", record)
        assert (code, out.splitlines()[-1], err) == (0, "same", "")
    code, out, _ = run("replay", search, "--json")
    assert (code, json.loads(out)["same"]) == (0, True)


@pytest.mark.tampers
def test_replay_says_what_is_different(run: Run, search: Path) -> None:
    record = json.loads(search.read_text())
    machine = record["parts"][0]["placements"]["machine"]
    there = machine[0]
    other = machine[0] = 1 - there
    search.write_text(json.dumps(record))
    code, out, err = run("replay", search)
    assert (code, err) == (4, "")
    assert f"placements.machine[0]: recorded {other}, now {there}" in out
    assert out.splitlines()[-1] == "different"
    code, out, _ = run("replay", search, "--json")
    (mismatch,) = json.loads(out)["parts"][0]["mismatches"]
    assert (code, mismatch["where"], mismatch["recorded"]) == (4, "placements.machine[0]", other)


def test_bad_records_are_one_sentence_and_exit_code_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "not.json").write_text("[]")
    for command in ("replay", "whatif"):
        for name in ("not.json", "missing.json"):
            code, out, err = run(command, tmp_path / name)
            assert (code, out, len(err.splitlines())) == (2, "", 1)
            assert name in err


def test_nothing_changed_is_no_difference(run: Run, search: Path, bulk: Path) -> None:
    for record in (search, bulk):
        code, out, err = run("whatif", record)
        lines = out.splitlines()
        assert (code, err) == (0, "")
        assert (lines[0], lines[-1]) == ("what if: nothing is changed", "no difference")


def test_all_changes_together(run: Run, search: Path) -> None:
    code, out, err = run(
        "whatif", search, "--drain", "m2", "--add-machine", "m2:spare", "--add-machine", "small", "--without", "b",
        "--width", "c=2", "--set", "slots=1", "--set", "exact_limit=0", "--solver", "networkx",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.splitlines()[:8] == [
        "what if: machine spare is added, like m2",
        "what if: machine small-new-1 is added, like small",
        "what if: machine m2 is drained",
        "what if: task b is not there",
        "what if: task c has 2 cores",
        "what if: setting slots=1",
        "what if: setting exact_limit=0",
        "what if: solver networkx",
    ]
    assert "total cost: " in out


def test_json_is_one_object(run: Run, search: Path) -> None:
    code, out, _ = run("whatif", search, "--drain", "m2", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["changes"] == ["machine m2 is drained"]
    assert told["notes"] == ["what ran on drained machines waits as if submitted now, from its beginning: r"]
    difference = told["difference"]
    cost = difference["cost"]
    assert cost["delta"] == cost["after"] - cost["before"]
    assert sum(term["after"] for term in cost["terms"]) == pytest.approx(cost["after"])
    assert [machine["what"] for machine in difference["machines"]] == ["m2"]
    assert not difference["same"]


@pytest.mark.parametrize("name", ["new.json", "sub/new.npz"])
def test_the_new_record_is_written_on_demand(run: Run, search: Path, tmp_path: Path, name: str) -> None:
    before = search.read_bytes()
    code, _, err = run("whatif", search, "--without", "a", "--record", tmp_path / name)
    assert (code, err) == (0, f"record: {tmp_path / name}\n")
    assert search.read_bytes() == before
    new = load_record(tmp_path / name)
    assert new["what_if"]["changes"] == ["task a is not there"]
    assert run("replay", tmp_path / name)[0] == 0
    code, out, _ = run("whatif", tmp_path / name)
    assert (code, out.splitlines()[-1]) == (0, "no difference")


def test_the_same_changes_are_the_same_bytes(run: Run, bulk: Path, tmp_path: Path) -> None:
    def untimed(path: Path) -> str:
        record = load_record(path)
        for part in record["parts"]:
            del part["timings"]
        return record_json(record)

    for name in ("x.npz", "y.npz"):
        run("whatif", bulk, "--add-machine", "n1", "--record", tmp_path / name)
    assert untimed(tmp_path / "x.npz") == untimed(tmp_path / "y.npz")


def test_both_side_by_side(run: Run, search: Path, tmp_path: Path) -> None:
    code, _, err = run("whatif", search, "--drain", "m2", "--html", tmp_path / "both.html")
    assert (code, err) == (0, f"page: {tmp_path / 'both.html'}\n")
    assert (tmp_path / "both.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_every_mistake_is_said_at_once_and_nothing_is_written(run: Run, search: Path, tmp_path: Path) -> None:
    code, out, err = run(
        "whatif", search, "--drain", "m3", "--add-machine", "smal", "--add-machine", "small:m1", "--add-machine", ":x",
        "--without", "aa", "--width", "r=2", "--width", "a", "--width", "c=much", "--width", "b=1", "--without", "b",
        "--width", "zz=1", "--set", "slot=1", "--set", "eps=x", "--solver", "ortool", "--record", tmp_path / "new.json",
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert sorted(err.splitlines()) == sorted(
        [
            "--drain: there is no machine 'm3'; known: m1, m2",
            "--add-machine: there is neither a machine type nor a machine 'smal'; " + _of(err, "'smal'"),
            "--add-machine: there is a machine 'm1' already; name it otherwise",
            "--add-machine: ':x' is not of the form TYPE or TYPE:NAME",
            "--without: there is no task 'aa' that waits or runs; did you mean 'a'? (known: a, b, c, r)",
            "--width: 'r' runs already; only a task that waits can be given another width",
            "--width: 'a' is not of the form TASK=CORES; for instance web=2",
            "--width: c: 'much' is not a number of cores; write cores as 2 or 0.9, or thousandths of a core as 900m",
            "--width: b has no width: --without takes it away",
            "--width: there is no task 'zz' that waits or runs; known: a, b, c",
            *(line for line in err.splitlines() if line.startswith("--set: ")),
            "--solver: there is no solver 'ortool'; did you mean 'ortools'? "
            "(known: ortools, incremental, simplex, relay, highs, networkx)",
        ]
    )
    assert len([line for line in err.splitlines() if line.startswith("--set: ")]) == 2
    assert not (tmp_path / "new.json").exists()


def _of(text: str, part: str) -> str:
    """What a line says after its first semicolon."""
    (line,) = [line for line in text.splitlines() if part in line]
    return line.partition("; ")[2]


def test_a_bulk_round_knows_no_types_and_no_running_tasks(run: Run, bulk: Path) -> None:
    _, _, err = run("whatif", bulk, "--add-machine", "e2-standard-8", "--without", "r")
    assert err.splitlines() == [
        "--add-machine: there is no machine 'e2-standard-8' to copy; a bulk round knows no types; known: n1, n2",
        "--without: there is no task 'r' that waits or runs; known: k-0, k-1, k-2; what runs is known to a bulk round as "
        "sums only",
    ]


def test_tasks_may_be_named_by_title(run: Run, search: Path) -> None:
    recorded = open_record(search)
    write_record({**recorded.plain, "titles": {"a": "ns/web", "b": "ns/db", "c": "ns/db"}}, search)
    for name in ("ns/web", "pod/ns/web", "a"):
        code, out, _ = run("whatif", search, "--without", name)
        assert (code, out.splitlines()[0]) == (0, "what if: task ns/web is not there")
    code, _, err = run("whatif", search, "--without", "ns/db")
    assert (code, err) == (2, "--without: 2 tasks are called 'ns/db'; name one as the record does: b, c\n")


def test_the_record_that_is_asked_about_is_not_overwritten(run: Run, search: Path) -> None:
    before = search.read_bytes()
    code, _, err = run("whatif", search, "--record", search, "--html", search)
    assert code == 2
    assert len(err.splitlines()) == 2
    assert search.read_bytes() == before


def test_every_task_is_told_on_demand(run: Run, tmp_path: Path) -> None:
    boxes = (Box("n1", {"cpu": 60}, {}), Box("n2", {"cpu": 60}, {}))
    record = written(bulk_record(World(boxes, kinds=(Kind("k", 50, {"cpu": 1}),))), tmp_path / "w.json")
    _, few, _ = run("whatif", record, "--drain", "n1")
    _, all_of_them, _ = run("whatif", record, "--drain", "n1", "--all")
    assert "more" in few
    assert "more" not in all_of_them

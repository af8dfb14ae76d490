"""``flowsched inspect`` as a user types it: what it prints and writes, and what it says to bad input."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from inspected import EXAMPLE, bulk, flowsched_says, on_kubernetes, searched

import flowsched.commands.inspect
from flowsched.commands.status_line import StepLine
from flowsched.inspector.record_view import RecordView
from flowsched.inspector.round_network import round_network
from flowsched.records.record_file import load_record, record_json, write_record

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Say:
    """Run ``flowsched inspect`` in a folder with records of all shapes."""
    monkeypatch.chdir(tmp_path)
    write_record(searched(), Path("one.json"))
    write_record(searched("makespan"), Path("other.json"))
    write_record(bulk(), Path("bulk.npz"))
    write_record(on_kubernetes(), Path("pods.json"))
    for name in ("one.json", "other.json"):
        Path("run").mkdir(exist_ok=True)
        shutil.copy(name, f"run/{name}")
    return lambda *args: flowsched_says(monkeypatch, capsys, "inspect", *args)


@pytest.mark.parametrize("name", ["one.json", "bulk.npz", "pods.json", "run"])
def test_it_prints_a_summary(say: Say, name: str) -> None:
    code, out, err = say(name)
    assert (code, err) == (0, "")
    assert ("flowsched inspect run/one.json" if name == "run" else "certificate") in out


def test_what_takes_long_is_told_on_stderr(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def line(state: str) -> StepLine:
        told.append(state)
        return StepLine(state, terminal=True)

    monkeypatch.setattr(flowsched.commands.inspect, "StepLine", line)
    for options in (("--html", "page.html"), ("--dot", "net.dot"), ("--dimacs", "-"), ("--json",)):
        code, out, _ = say("one.json", *options)
        assert code == 0 and "writing" not in out
    assert told == ["writing the page", "writing the export", "writing the export", "writing the record"]


def test_all_lists_everything(say: Say) -> None:
    assert len(say("bulk.npz", "--all")[1].splitlines()) > len(say("bulk.npz")[1].splitlines()) + 20


def test_json_is_the_whole_record_and_can_be_read_back(say: Say) -> None:
    for name in ("one.json", "bulk.npz", "pods.json"):
        code, out, err = say(name, "--json")
        assert (code, err) == (0, "")
        Path("back.json").write_text(out)
        assert json.loads(record_json(load_record("back.json"))) == json.loads(record_json(load_record(name)))


def test_every_export_is_written_and_named(say: Say) -> None:
    kinds = ["dot", "graphml", "dimacs", "svg", "png"]
    code, out, err = say("one.json", *(x for kind in kinds for x in (f"--{kind}", f"new/place/x.{kind}")))
    assert (code, out) == (0, "")
    assert err.splitlines() == [f"{kind}: new/place/x.{kind}" for kind in kinds]
    assert sorted(p.name for p in Path("new/place").iterdir()) == sorted(f"x.{kind}" for kind in kinds)
    assert Path("new/place/x.dimacs").read_text() == say("one.json", "--dimacs", "-")[1]


def test_the_network_and_the_part_can_be_chosen(say: Say) -> None:
    recorded = RecordView(load_record("pods.json"))
    for options, graph in (
        ((), round_network(recorded, recorded.parts[0]).graph),
        (("--network", "round"), round_network(recorded, recorded.parts[0]).graph),
        (("--network", "first"), recorded.parts[0].first),
        (("--part", "1", "--network", "first"), recorded.parts[1].first),
    ):
        net = nx.parse_graphml(say("pods.json", "--graphml", "-", *options)[1], force_multigraph=True)
        assert graph is not None
        assert (len(net), net.size(), net.graph["optimum"]) == (graph.node_count, graph.arc_count, graph.optimum)


def test_all_arcs_are_drawn_on_demand(say: Say) -> None:
    few, many = (say("one.json", "--dot", "-", *options)[1].count(" -> ") for options in ((), ("--all-arcs",)))
    recorded = RecordView(load_record("one.json"))
    graph = round_network(recorded, recorded.parts[0]).graph
    assert (few, many) == (int((graph.flow > 0).sum()), graph.arc_count)


def test_two_records_are_compared(say: Say) -> None:
    code, out, _ = say("one.json", "--against", "other.json")
    assert code == 0
    assert out.startswith("from one.json\n  to other.json\n")
    assert "settings.objective: completion -> makespan" in out
    assert "ferret" in out


def test_a_page_gets_all_records_and_those_to_compare_with(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def page(records: list[RecordView], others: list[RecordView]) -> str:
        asked.append(([a.source for a in records], [a.source for a in others]))
        return "<!doctype html>"

    monkeypatch.setattr(flowsched.commands.inspect, "page_of", page)
    code, out, err = say("run", "--html", "out/run.html", "--against", "bulk.npz")
    assert (code, out, err) == (0, "", "html: out/run.html\n")
    assert asked == [(["run/one.json", "run/other.json"], ["bulk.npz"])]
    assert Path("out/run.html").read_text() == "<!doctype html>"


def test_the_running_scheduler_is_asked_for_its_latest_record(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def live(*args: object) -> tuple[RecordView, None]:
        asked.append(args)
        return RecordView(on_kubernetes(), "round 12 of scheduler-0"), None

    monkeypatch.setattr(flowsched.commands.inspect, "open_live", live)
    code, out, _ = say("--live", "--kubeconfig", "here", "--config", "there.yaml")
    assert code == 0
    assert asked == [(None, Path("here"), Path("there.yaml"))]
    assert "round 12 of scheduler-0" in out


# Bad input


def damaged(name: str) -> list[object]:
    """Arguments that open a file with something wrong with it."""
    path = Path("bad.json")
    match name:
        case "empty":
            path.write_bytes(b"")
        case "truncated JSON":
            path.write_bytes(Path("one.json").read_bytes()[:10_000])
        case "truncated archive":
            path = Path("bad.npz")
            path.write_bytes(Path("bulk.npz").read_bytes()[:9000])
        case "another archive":
            path = Path("bad.npz")
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("a.txt", "hello")
        case "foreign JSON":
            path.write_text('{"name": "x", "version": 3}')
        case "a list":
            path.write_text("[1, 2]")
        case "binary":
            path.write_bytes(bytes(range(256)))
        case "a snapshot":
            path.write_text(json.dumps({"apiVersion": "flowsched/v1", "kind": "Snapshot", "machines": []}))
        case "a YAML snapshot":
            path = Path("bad.yaml")
            shutil.copy(EXAMPLE, path)
        case "a scenario":
            path.write_text(json.dumps({"apiVersion": "flowsched/v1", "kind": "Scenario"}))
        case "a later version":
            path.write_text(json.dumps({**json.loads(Path("one.json").read_text()), "apiVersion": "flowsched/v6"}))
        case "a missing key":
            record = json.loads(Path("one.json").read_text())
            del record["parts"][0]["placements"]["terms"]
            path.write_text(json.dumps(record))
        case "arcs to nowhere":
            record = json.loads(Path("one.json").read_text())
            record["parts"][0]["first_network"]["heads"][0] = 99
            path.write_text(json.dumps(record))
    return [path]


@pytest.mark.tampers
@pytest.mark.parametrize(
    ("name", "said"),
    {
        "empty": "is empty",
        "truncated JSON": "is damaged or truncated",
        "truncated archive": "is damaged or truncated",
        "another archive": "is a zip archive without record.json",
        "foreign JSON": "is no record of a round",
        "a list": "is neither JSON nor an archive|is no record",
        "binary": "is neither JSON nor an archive",
        "a snapshot": "is a snapshot, not a record; flowsched solve",
        "a YAML snapshot": "is neither JSON nor an archive|is a snapshot",
        "a scenario": "is a Scenario, not a Record",
        "a later version": "is a record of version flowsched/v6, which flowsched 0",
        "a missing key": "is damaged: key 'terms' is missing",
        "arcs to nowhere": "has an arc to a node that is not there",
    }.items(),
)
def test_a_file_that_is_no_sound_record_gets_one_sentence(say: Say, name: str, said: str) -> None:
    (path,) = damaged(name)
    code, out, err = say(path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.match(rf"{path}: .*({said})", err), err


@pytest.mark.tampers
def test_a_flow_that_is_not_optimal_is_not_exported(say: Say) -> None:
    record = json.loads(Path("one.json").read_text())
    network = record["parts"][0]["first_network"]
    network["unit_costs"][int(np.flatnonzero(network["flow"])[0])] += 10**12
    Path("bad.json").write_text(json.dumps(record))
    code, _, err = say("bad.json", "--dimacs", "x.dimacs", "--svg", "x.svg", "--network", "first")
    assert code == 2
    assert "is damaged: the flow of the first network of part 0" in err
    assert not list(Path().glob("x.*"))


BAD: dict[str, tuple[tuple[object, ...], str]] = {
    "no such file": (("none.json",), "none.json: there is no such file"),
    "an empty folder": (("nothing",), "nothing: holds no records"),
    "no record": ((), "RECORD: is missing; name a record"),
    "a record and --live": (("one.json", "--live"), "--live: is instead of a record"),
    "--config without --live": (("one.json", "--config", "x"), "--config: is for --live only"),
    "no such network": (
        ("bulk.npz", "--dot", "x", "--network", "last"),
        "--network: 'last' is not round, first, pass:N or of:TASK",
    ),
    "no such part": (
        ("pods.json", "--dot", "x.dot", "--part", "2"), "--part: there is no part 2; pods.json has parts 0 to 1",
    ),
    "no such part of one": (("one.json", "--dot", "x.dot", "--part", "1"), "has only part 0"),
    "a part for nothing": (("one.json", "--part", "0"), "--part: is for --dot, --graphml"),
    "all arcs for nothing": (("one.json", "--all-arcs", "--graphml", "x"), "--all-arcs: is for --dot, --svg or --png"),
    "an export of a folder": (
        ("run", "--dot", "x.dot"), "--dot: is for one record; run holds 2; name one of them, such as run/one.json",
    ),
    "JSON of a folder": (("run", "--json"), "--json: is for one record"),
    "folders compared in a terminal": (("run", "--against", "one.json"), "or add --html"),
    "a picture in a terminal": (("one.json", "--png", "-"), "--png: is not text"),
    "two outputs at once": (
        ("one.json", "--dot", "-", "--json"),
        "--json: only one option can write to standard output; --dot already does",
    ),
    "two files in one": (("one.json", "--dot", "x", "--svg", "./x"), "--svg: --dot goes to x"),
    "over the record": (("one.json", "--svg", "run/../one.json"), "is the record already"),
    "a place that cannot be": (("one.json", "--dot", "one.json/x.dot"), "cannot be written"),
    "a comparison with an export": (
        ("one.json", "--against", "other.json", "--dot", "x"), "--against: does not go with --dot",
    ),
    "a file to compare with that is missing": (("one.json", "--against", "none.json"), "none.json: there is no such file"),
}  # fmt: skip


@pytest.mark.parametrize(("args", "said"), BAD.values(), ids=BAD)
def test_bad_input_gets_a_sentence_and_nothing_is_written(say: Say, args: tuple[object, ...], said: str) -> None:
    Path("nothing").mkdir()
    before = {p: p.read_bytes() for p in sorted(Path().rglob("*")) if p.is_file()}
    code, out, err = say(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert {p: p.read_bytes() for p in sorted(Path().rglob("*")) if p.is_file()} == before


def test_a_round_that_solved_nothing_has_nothing_to_export(say: Say) -> None:
    write_record({**searched(), "parts": []}, Path("idle.json"))
    assert say("idle.json")[0] == 0
    code, _, err = say("idle.json", "--dot", "x")
    assert (code, err) == (2, "idle.json: has no network: nothing was pending in this round\n")

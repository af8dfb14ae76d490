"""Files of events: what is written is read back, a crash leaves a prefix, and what is wrong is one sentence."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import pytest
from click.testing import CliRunner
from events_recorded import Recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from objects_builders import node, pod
from test_snapshot_decisions import job
from test_state import scheduler

from flowsched.cli import flowsched
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation
from flowsched.gpu.devices import TaskGpus
from flowsched.gpu.shapes import GpuShape
from flowsched_k8s.events import event_file
from flowsched_k8s.events.event_file import EventFile, EventReader, numbered
from flowsched_k8s.events.event_player import play
from flowsched_k8s.events.live_events import (
    EVENTS,
    EventsHeader,
    LineError,
    LiveEvent,
    MachineAdded,
    Removed,
    RoundDecided,
    TaskSubmitted,
    event_line,
    header_line,
    numbers_of,
    read_event,
    read_header,
    runs,
)
from flowsched_models.document import InputError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(-(1 << 60), 1 << 60), st.none(), st.booleans()), max_size=3)
LEFT = {"tasks": [[1, 999_999_999]], "fate": "unschedulable", "why": "x"}
HEADER = EventsHeader("flowsched tests", 0.0, "ortools", Settings(), {})


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that events are made of."""
    known: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(1 << 60), 1 << 60), float: NUMBERS, str: TEXT, bool: st.booleans(), NoneType: st.none(),
    }  # fmt: skip
    if kind in known:
        return known[kind]
    inner = get_args(kind)
    if isinstance(kind, UnionType):
        return st.one_of([values(k) for k in inner])
    if get_origin(kind) is tuple:
        return (
            st.lists(values(inner[0]), max_size=3).map(tuple)
            if inner[-1] is Ellipsis
            else st.tuples(*map(values, inner))
        )
    if get_origin(kind) in (dict, Mapping):
        return PLAIN if inner[1] is Any else st.dictionaries(TEXT, values(inner[1]), max_size=3)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    if kind in (TaskGpus, GpuShape):
        # What no task can ask for has no value.
        asked = [{"count": st.integers(1, 64), "share_milli": st.just(1000)}]
        asked.append({"count": st.just(1), "share_milli": st.integers(1, 1000)})
        more = {"models": values(tuple[str, ...])}
        if kind is GpuShape:
            more |= {"cpu_milli": st.integers(0, 1 << 40), "memory_mib": st.integers(0, 1 << 40)}
        return st.one_of([st.builds(kind, **each, **more) for each in asked])
    assert is_dataclass(kind), kind
    hints = {k: v for k, v in get_type_hints(kind).items() if get_origin(v) is not ClassVar}
    return st.builds(kind, **{f.name: values(hints[f.name]) for f in fields(kind)})


ANY_EVENT: st.SearchStrategy[LiveEvent] = st.one_of([values(kind) for kind in EVENTS])


@given(t=NUMBERS, event=ANY_EVENT)
def test_every_event_is_read_back_as_it_was(t: float, event: LiveEvent) -> None:
    line = event_line(t, event)
    assert "\n" not in line
    assert read_event(line) == (t, event)


def test_a_reservation_without_a_known_end_is_read_back() -> None:
    event = RoundDecided(1, reservations=(Reservation("uid", "n1", 1000, math.inf), Reservation("uid", "n2", 500, 2.5)))
    line = event_line(1.0, event)
    json.loads(line, parse_constant=pytest.fail)
    assert read_event(line) == (1.0, event)


@given(header=values(EventsHeader))
def test_the_header_is_read_back_as_it_was(header: EventsHeader) -> None:
    assert read_header(header_line(header)) == header


@given(numbers=st.lists(st.integers(1, 50), max_size=30))
def test_runs_are_read_back_in_their_order(numbers: list[int]) -> None:
    assert numbers_of(runs(numbers), 50) == numbers


@pytest.mark.parametrize("run", [(0, 1), (2, 1), (51, 51), (1, 999_999_999_999), (-3, -3)])
def test_other_numbers_are_no_runs(run: tuple[int, int]) -> None:
    with pytest.raises(LineError):
        numbers_of((run,), 50)


def written(path: Path, batches: list[list[tuple[float, LiveEvent]]]) -> Path:
    file = EventFile(path)
    file.add(batches[0], HEADER)
    for batch in batches[1:]:
        file.add(batch)
    assert file.close(60.0)
    assert not file.failed
    return path


BATCHES: list[list[tuple[float, LiveEvent]]] = [
    [(float(i), TaskSubmitted(3 * i + k, f"uid-{i}-{k}", f"default/é{i}-{k}")) for k in range(3)] for i in range(8)
]


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
def test_a_file_is_read_back_whole(name: str, tmp_path: Path) -> None:
    reader = EventReader(written(tmp_path / name, BATCHES))
    assert list(reader) == [pair for batch in BATCHES for pair in batch]
    assert (reader.header, reader.cut, reader.line) == (HEADER, "", 25)


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
@settings(max_examples=60)
@given(share=st.floats(0, 1))
def test_whatever_is_cut_off_leaves_a_prefix(name: str, share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cut")
    content = written(folder / name, BATCHES).read_bytes()
    cut = folder / f"cut-{name}"
    cut.write_bytes(content[: int(share * len(content))])
    try:
        reader = EventReader(cut)
    except InputError as error:
        (problem,) = error.problems
        assert "it is empty" in problem.message or "is cut off" in problem.message
        return
    found = list(reader)
    assert found == [pair for batch in BATCHES for pair in batch][: len(found)]
    assert reader.cut in ("", f"line {len(found) + 2} is cut off: the file ends within it")


def test_every_batch_is_in_the_file_before_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.gz"
    file = EventFile(path)
    file.add(BATCHES[0], HEADER)
    assert file.flush(60.0)
    assert len(list(EventReader(path))) == 3
    file.add(BATCHES[1])
    assert file.flush(60.0)
    assert len(list(EventReader(path))) == 6
    assert file.size == path.stat().st_size
    file.close()


def test_earlier_files_are_kept_under_other_names(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for run in range(5):
        file = EventFile(path, keep=3)
        file.add([(float(run), Removed("TaskBound", run))], HEADER)
        file.close(60.0)
    found = {p.name: [e for _, e in EventReader(p)] for p in tmp_path.iterdir()}
    assert found == {
        "events.jsonl": [Removed("TaskBound", 4)],
        "events.1.jsonl": [Removed("TaskBound", 3)],
        "events.2.jsonl": [Removed("TaskBound", 2)],
    }


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be written: is a directory; name another place"):
        EventFile(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: cannot be written: "):
        EventFile(tmp_path / "file" / "events.jsonl")


def test_a_disk_that_fails_ends_the_recording_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = scheduler(node("n1", "4"))
    recorded = Recorded(running, tmp_path / "gone" / "events.jsonl")
    (tmp_path / "gone").rmdir()
    running.create(pod("a", cpu="1"))
    assert [b.node for b in running.round()] == ["n1"]
    assert "gone" in recorded.file.failed
    running.create(pod("b", cpu="1"))
    assert [b.node for b in running.round()] == ["n1"]
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == ["events are not recorded any more"]


def test_a_fault_of_the_recording_does_not_stop_the_scheduling(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = scheduler(node("n1", "4"))
    recorded = Recorded(running, tmp_path / "events.jsonl")
    running.create(pod("a", cpu="1"))
    running.round()
    (first,) = running.server.pods.values()
    monkeypatch.setattr(recorded.recorder, "_state", 1)
    running.server.remove(first)
    running.deliver()
    assert recorded.recorder.broken
    running.create(pod("b", cpu="4"))
    assert [b.node for b in running.round()] == ["n1"]
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == ["events are not recorded any more"]


def test_a_disk_that_is_too_slow_begins_another_file_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    running = scheduler(node("n1", "8"))
    recorded = Recorded(running, path)
    running.create(pod("a", cpu="1"))
    running.round()
    monkeypatch.setattr(event_file, "MOST_WAITING", 0)
    running.create(job("b"))
    running.round()
    monkeypatch.undo()
    running.create(pod("c", cpu="1"))
    running.round()
    recorded.done()
    rounds = {p.name: play(p).rounds for p in (path, numbered(path, 1))}
    assert rounds == {"events.jsonl": 1, "events.1.jsonl": 1}
    assert play(path).same


def test_the_page_names_every_event_with_its_keys() -> None:
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    keys = {name: set(re.findall("`(.*?)`", row[2])) for row in rows for name in re.findall("`(.*?)`", row[1])}
    for kind in EVENTS:
        assert {f.name for f in fields(kind)} <= keys[kind.__name__]
    for f in fields(EventsHeader):
        assert f"`{f.name}`" in page


# What is wrong


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A recording of two rounds."""
    running = scheduler(node("n1", "2"), node("n2", "2"))
    recorded = Recorded(running, tmp_path_factory.mktemp("recorded") / "events.jsonl")
    running.create(job("measured", cpu="1"), pod("plain", cpu="1"))
    running.round()
    running.create(pod("large", cpu="4"))
    running.round()
    return recorded.done().read_text().splitlines()


def simulated(tmp_path: Path, lines: list[str], *options: str) -> tuple[int, str]:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    outcome = CliRunner().invoke(flowsched, ["simulate", str(path), *options])
    if isinstance(outcome.exception, InputError):
        return 2, str(outcome.exception).removeprefix(str(path))
    assert outcome.exception is None or isinstance(outcome.exception, SystemExit), outcome.exception
    return outcome.exit_code, outcome.output.strip()


def index(lines: list[str], event: str, number: int = 0) -> int:
    return [i for i, line in enumerate(lines) if f'"event":"{event}"' in line][number]


def test_a_recording_is_played(lines: list[str], tmp_path: Path) -> None:
    assert simulated(tmp_path, lines) == (0, "2 rounds, 2 placements: the same decisions as recorded")


def test_a_decision_that_differs_is_named(lines: list[str], tmp_path: Path) -> None:
    at, begun = index(lines, "RoundDecided"), index(lines, "RoundBegun")
    changed = json.loads(lines[at])
    (plain,) = [p for p in changed["placed"] if "threads" not in p]
    there = plain["machine"]
    plain["machine"] = other = "n1" if there == "n2" else "n2"
    lines = [*lines[:at], json.dumps(changed), *lines[at + 1 :]]
    code, text = simulated(tmp_path, lines)
    assert code == 4
    assert text == (
        "2 rounds, 2 placements: 1 round decided differently; the first: round 1 "
        f"(line {begun + 1}), default/plain: recorded {other} (cost 0.0), now {there} (cost 0.0)"
    )
    code, text = simulated(tmp_path, lines, "--json")
    assert (code, json.loads(text)["first"]["task"]) == (4, "default/plain")


def test_a_pod_that_waits_for_another_reason_differs(lines: list[str], tmp_path: Path) -> None:
    at = index(lines, "RoundDecided", 1)
    lines = [*lines[:at], lines[at].replace("2 Insufficient cpu", "1 Insufficient cpu"), *lines[at + 1 :]]
    code, text = simulated(tmp_path, lines)
    assert code == 4
    assert "default/large: recorded unschedulable: 0/2 nodes are available: 1 Insufficient cpu." in text


def test_a_last_line_that_is_cut_is_told_and_the_rest_is_played(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(lines)[:-20])
    outcome = CliRunner().invoke(flowsched, ["simulate", str(path)])
    assert outcome.exit_code == 0
    assert outcome.stdout == "1 round, 2 placements: the same decisions as recorded\n"
    assert outcome.stderr.splitlines() == [
        f"note: {path}: line {len(lines)} is cut off: the file ends within it; what stands before it was played",
        "note: a round that had begun was not decided before the file ends, or another one begins",
    ]


def at_event(event: str, change: Callable[[dict[str, Any]], object]) -> Callable[[list[str]], list[str]]:
    def changed(lines: list[str]) -> list[str]:
        at = index(lines, event)
        data = json.loads(lines[at])
        change(data)
        return [*lines[:at], json.dumps(data), *lines[at + 1 :]]

    return changed


def in_header(change: Callable[[dict[str, Any]], object]) -> Callable[[list[str]], list[str]]:
    def changed(lines: list[str]) -> list[str]:
        data = json.loads(lines[0])
        change(data)
        return [json.dumps(data, separators=(",", ":")), *lines[1:]]

    return changed


def removed(lines: list[str], event: str) -> str:
    return json.dumps({"t": json.loads(lines[0])["t"], "event": "Removed", "of": event, "key": 1})


def model_is(**cost_model: Any) -> Callable[[list[str]], list[str]]:
    return in_header(lambda d: d.update(cost_model=cost_model))


BEYOND = f"must be from {1 - 2**63} to {2**63 - 1}, which 64 bits hold, but is "


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (in_header(lambda d: d.update(apiVersion="flowsched/v9")), ':1: apiVersion is "flowsched/v9"; this flowsched reads'),
        (in_header(lambda d: d.update(solver="no")), ":1: there is no solver 'no'; known: "),
        (in_header(lambda d: d.pop("writer")), ":1: the header: writer: field required"),
        (in_header(lambda d: d["settings"].update(new=1)), ":1: the header: settings.new: unexpected keyword"),
        (in_header(lambda d: d["settings"].update(eps="x")), ":1: the header: settings.eps: input should be a valid number"),
        (in_header(lambda d: d["catalogue"].update(jobs=1)), ":1: its catalogue is damaged: jobs: "),
        (model_is(name="cocoa"), ":1: there is no cost model 'cocoa'; did you mean 'coco'?"),
        (model_is(name=1), ":1: the header: cost_model.name: input should be a valid string"),
        (model_is(name="coco", kind=1), ":1: the header: cost_model.kind: unexpected keyword argument"),
        (model_is(name="coco", settings={"wait": 1}), ":1: its cost model coco cannot be used: wait: the cost model 'coco'"),
        (model_is(name="coco", settings={"waiting": -1}), ":1: its cost model coco cannot be used: waiting: is -1; give a"),
        (model_is(settings={"eps": 1}), ":1: the cost model flow has no setting 'eps'; its settings are the engine's"),
        (lambda found: [*found[:3], "{", *found[3:]], ":4: is not JSON: "),
        (lambda found: [*found[:3], "[]", *found[3:]], ":4: is not a JSON object"),
        (lambda found: [*found[:3], '{"event":"RoundFailed","round":1}', *found[3:]], ":4: has no time: "),
        (lambda found: [*found[:3], '{"t":1e99,"event":"Oops"}', *found[3:]], ':4: there is no event "Oops"'),
        (lambda found: [*found[:3], f'{{"t":{10**400}}}', *found[3:]], ":4: has no time: 't' must be a finite number"),
        (lambda found: [*found[:3], '{"t":NaN}', *found[3:]], ":4: has no time: 't' must be a finite number of seconds"),
        (at_event("MachineAdded", lambda d: d.update(vcpus=2**63)), f":2: MachineAdded: vcpus: {BEYOND}{2**63}"),
        (
            at_event("MachineAdded", lambda d: d["allocatable"].update(cpu=-(2**63))),
            f":2: MachineAdded: allocatable.cpu: {BEYOND}{-(2**63)}",
        ),
        (at_event("RoundBegun", lambda d: d.update(round=10**30)), f"RoundBegun: round: {BEYOND}{10**30}"),
        (at_event("RoundBegun", lambda d: d["takes"][0].update(waited=[[2**64, 1]])), "takes.0.waited.0.0: must be from"),
        (at_event("KindAdded", lambda d: d["like"].update(priority=2**63)), f"KindAdded: like.priority: {BEYOND}{2**63}"),
        (in_header(lambda d: d.update(part=2**63)), f":1: the header: part: {BEYOND}{2**63}"),
        (lambda found: [*found, '{"t":1,"event":"RoundFailed","round":1,"why":""}'], ": its time, 1.0, is before that of"),
        (at_event("MachineAdded", lambda d: d.pop("name")), ":2: MachineAdded: name: field required"),
        (at_event("MachineAdded", lambda d: d.update(vcpus="4")), ":2: MachineAdded: vcpus: input should be a valid int"),
        (at_event("MachineAdded", lambda d: d.update(x=4)), ":2: MachineAdded: x: unexpected keyword argument"),
        (at_event("MachineAdded", lambda d: d.update(type="x")), "MachineAdded: there is no machine type x among the"),
        (at_event("RoundBegun", lambda d: d["takes"][0].update(tasks=[[99, 99]])), "RoundBegun: [99,99] is not among the 2"),
        (at_event("RoundBegun", lambda d: d["takes"][0].update(tasks=[])), "RoundBegun: no task of kind "),
        (at_event("RoundBegun", lambda d: d["takes"][0].update(kind=99)), "RoundBegun: there is no kind 99"),
        (at_event("RoundBegun", lambda d: d["takes"][0].update(waited=[[0, 9]])), "RoundBegun: the tasks are 1, and the"),
        (at_event("RoundBegun", lambda d: d.update(groups=["g"])), "RoundBegun: groups.0: input should be an object"),
        (at_event("RoundDecided", lambda d: d.update(round=9)), "RoundDecided: round 9 was decided and had not begun"),
        (
            at_event("RoundDecided", lambda d: d["placed"][0].update(task=9)),
            "RoundDecided: round 1 has not begun with task 9",
        ),
        (at_event("RoundDecided", lambda d: d.update(left=[LEFT])), "RoundDecided: [1,999999999] is not among the 2 that"),
        (at_event("TaskSubmitted", lambda d: d.update(task=7)), "TaskSubmitted: task 7 does not follow task 0"),
        (at_event("TaskSubmitted", lambda d: d.pop("since_s")), "RoundBegun: default/measured does not wait"),
        (at_event("TaskBound", lambda d: d["booked"].update(machine="n7")), "TaskBound: there is no machine n7 at"),
        (at_event("TaskBound", lambda d: d["booked"].update(joins=["r"])), "TaskBound contradicts what stands before it: "),
        (at_event("TaskBound", lambda d: d["booked"].update(pressure=-1)), "TaskBound contradicts what stands before it: "),
        (at_event("KindAdded", lambda d: d["values"].update(allowed=99)), "has no values for allowed"),
        (at_event("KindAdded", lambda d: d["values"].pop("verdict")), "has no values for verdict"),
        (at_event("ValuesAdded", lambda d: d.update(runs=[[True, 10**15]])), "values 1 are 2, and the file has 1000"),
        (lambda found: [*found[:3], removed(found, "TaskBound"), *found[3:]], ":4: Removed: TaskBound 1 is not known at"),
        (lambda found: [*found[:3], removed(found, "Oops"), *found[3:]], ":4: Removed: Oops 1 is not known at"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_its_line(
    change: Callable[[list[str]], list[str]], expected: str, lines: list[str], tmp_path: Path
) -> None:
    code, text = simulated(tmp_path, change(lines))
    assert code == 2
    assert expected in text
    assert "\n" not in text


def test_a_file_that_cannot_be_unpacked_is_said_to_be_damaged(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.gz"
    content = bytearray(gzip.compress("\n".join(lines).encode()))
    content[200:220] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"events.jsonl.gz: is damaged: |is not JSON|UTF-8"):
        play(path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--out", "x"], "--out: has no meaning for events that were recorded"),
        (["--schedule", "x"], "--schedule: has no meaning for events that were recorded"),
        (["--set", "eps=2"], "--set: is for other policies"),
        (["--policy", "nope"], "there is no such policy"),
        (["--policy", "flow+plan"], "flow+plan: plans a whole run, and events have rounds that are decided one by one"),
        (["--policy", "flow-node"], "flow-node: runs one machine, and events are of a cluster"),
        (["--policy", "flow", "--set", "esp=2"], "there is no setting 'esp'; did you mean 'eps=2'?"),
    ],
)
def test_options_that_have_no_meaning_are_refused(
    options: list[str], expected: str, lines: list[str], tmp_path: Path
) -> None:
    code, text = simulated(tmp_path, lines, *options)
    assert code == 2
    assert expected in text


def test_other_policies_are_compared_round_by_round(lines: list[str], tmp_path: Path) -> None:
    code, text = simulated(tmp_path, lines, "--policy", "load-spreading", "--policy", "fcfs", "--json")
    assert code == 0
    policies = {p["policy"]: p for p in json.loads(text)["policies"]}
    spreading = policies["load-spreading"]
    assert (spreading["rounds"], spreading["recorded"], spreading["placed"]) == (2, 2, 2)
    for p in policies.values():
        assert p["same"] + p["elsewhere"] + p["only_recorded"] == p["recorded"]
        assert p["same"] + p["elsewhere"] + p["only_policy"] == p["placed"]
    code, text = simulated(tmp_path, lines, "--policy", "load-spreading", "--set", "scoring=pack")
    assert code == 0
    assert text.splitlines()[1].split()[:3] == ["load-spreading", "2", str(spreading["rounds_differing"])]


def test_a_machine_is_the_same_with_and_without_its_defaults() -> None:
    bare = '{"t":1,"event":"MachineAdded","name":"n","type":"t","vcpus":2,"bandwidth":1,"allocatable":{}}'
    assert read_event(bare) == (1.0, MachineAdded("n", "t", 2, 1.0, {}))

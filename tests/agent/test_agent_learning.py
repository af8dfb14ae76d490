"""What completions of commands teach the agent, what it keeps of that, and what it shows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from agent_fakes import ALLOWED, SERVICE, Bench, allocation, bench
from prometheus_client.parser import text_string_to_metric_families
from test_agent_restores import wait_for

from flowsched.cluster.class_runs import ClassRuns
from flowsched.cluster.learnt_run_times import NOTHING_LEARNT, LearntRunTimes
from flowsched.node import NodeLearner, TaskGrant
from flowsched.node.flow_node import FlowNode
from flowsched_agent.catalogue import node_of
from flowsched_agent.configuration import Command, Configuration, TaskSpec
from flowsched_agent.metrics import exposition
from flowsched_agent.original_groups import restore
from flowsched_agent.restoring import restore_file
from flowsched_agent.state_file import State, StateFile, boot_id, start_time

RUN = TaskGrant(True, (1,))
CLASSES = NOTHING_LEARNT.with_end("encode", "m", 2.0).with_end("index", "m", 0.5).with_end("encode", "m", 1.9).classes


def state(learnt: tuple[ClassRuns, ...], boot: str | None = None) -> State:
    pid = os.getpid()
    return State(boot_id() if boot is None else boot, pid, start_time(pid) or 0, learnt=learnt)


@pytest.mark.parametrize(("script", "told"), [("exit 0", ["encode-1"]), ("exit 3", []), ("exit 127", [])])
def test_only_what_has_ended_well_has_completed(script: str, told: list[str]) -> None:
    spec = TaskSpec(name="encode-1", command=Command(argv=("/bin/sh", "-c", script)))
    b = bench(allocation((0,), **{"encode-1": RUN}), tasks=(spec,))
    b.ticks(1)
    control = b.actuator.controls["encode-1"]
    pid = control.pid

    def dead() -> bool:
        return start_time(pid) is None

    wait_for(dead, "the command to end")
    # While something of it is still there, it has not completed.
    b.ticks(3)
    assert [reading.ended for reading in b.controller.readings if reading.ended] == []
    control.there = False
    b.ticks(30)
    assert b.agent.status.tasks["encode-1"].state == "done"
    assert [task.name for reading in b.controller.readings for task in reading.ended] == told


def test_what_is_found_and_goes_has_not_completed() -> None:
    b = bench(allocation((0,), batch=RUN))
    b.ticks(3)
    b.actuator.controls["batch"].there = False
    b.ticks(30)
    assert [reading.ended for reading in b.controller.readings if reading.ended] == []


@pytest.mark.parametrize(("given", "run_class"), [(None, "encode"), ("nightly", "nightly")])
def test_the_class_of_a_task(given: str | None, run_class: str) -> None:
    spec = TaskSpec(name="encode-12", command=Command(argv=("true",)), run_class=given)
    b = bench(allocation((0,)), tasks=(spec,))
    b.ticks(1)
    assert [entry.task.run_class for entry in b.controller.readings[-1].tasks] == [run_class]


def learning_bench(file: StateFile, learner: NodeLearner, name: str = "encode-1") -> Bench:
    spec = TaskSpec(name=name, profile="vips", threads=2, command=Command(argv=("/bin/sleep", "0")))
    return bench(
        tasks=(spec,),
        state_file=file,
        learner=learner,
        make=lambda node: FlowNode(node, learner=learner),
        service=SERVICE,
    )


def completed(b: Bench, seconds: int) -> None:
    """The command runs for so many seconds of the bench's clock, and ends."""
    b.ticks(seconds * 10)
    (name,) = b.agent.status.tasks
    pid = b.actuator.controls[name].pid
    wait_for(lambda: start_time(pid) is None, "the command to end")
    b.actuator.controls[name].there = False
    b.ticks(20)


def test_what_a_command_taught_is_kept_and_shown(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    assert file.acquire()
    node = node_of(Configuration(services=(SERVICE,)), ALLOWED)
    learner = NodeLearner(node.machine_type)
    b = learning_bench(file, learner)
    completed(b, 30)
    (entry,) = learner.learnt.classes
    assert (entry.run_class, entry.runs) == ("encode", 1)

    found = file.read()
    assert found is not None and found.learnt == learner.learnt.classes
    text = exposition(b.agent.status, "1")[0].decode()
    shown = {
        s.name: (s.labels, s.value)
        for f in text_string_to_metric_families(text)
        for s in f.samples
        if "learnt" in s.name
    }
    factor, spread = (shown[f"flowsched_agent_learnt_{what}"] for what in ("factor", "spread"))
    learnt = learner.learnt.shown("encode", node.machine_type)
    assert learnt is not None
    assert (factor, spread) == (({"class": "encode"}, learnt.factor), ({"class": "encode"}, learnt.spread))

    # It outlives this agent, also where nothing else is left to be known of.
    assert b.agent.finish()
    found = file.read()
    assert found is not None and (found.saved, found.commands, found.learnt) == ({}, (), learner.learnt.classes)


def test_where_nothing_was_learnt_no_file_stays(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    assert file.acquire()
    b = learning_bench(file, NodeLearner("m"))
    completed(b, 1)  # too short to tell anything
    assert b.agent.finish()
    assert file.read() is None


@pytest.mark.parametrize("boot", [None, "another start of the machine"])
def test_restoring_keeps_what_was_learnt_and_says_nothing(tmp_path: Path, boot: str | None) -> None:
    file = StateFile(tmp_path / "state.json")
    file.write(state(CLASSES, boot))
    assert restore_file(file, restore) == []
    found = file.read()
    assert found is not None and found.learnt == CLASSES
    assert LearntRunTimes(found.learnt).of("encode", "m") == LearntRunTimes(CLASSES).of("encode", "m")


GOOD = ["encode", "m", 2, 1335000, 900000000, 3]


@pytest.mark.parametrize(
    "learnt",
    [
        None,
        "text",
        [1, None, "x", {}],
        [["encode", "m", 1]],
        [["encode", "m", 0, 0, 0, 0]],
        [["", "m", 1, 0, 0, 0]],
        [["encode", "m", 1, 0.5, 0, 0]],
        [["encode", "m", True, 0, 0, 0]],
        [["encode", "m", 10**20, 0, 0, 0]],
        [["encode", 7, 1, 0, 0, 0]],
    ],
)
def test_what_cannot_be_read_of_it_keeps_nothing_from_being_undone(tmp_path: Path, learnt: object) -> None:
    file = StateFile(tmp_path / "state.json")
    file.write(State(boot_id(), 1, 1, {"a": {"n": 1}}))
    plain = json.loads(file.path.read_text())
    plain["learnt"] = learnt if not isinstance(learnt, list) else [*learnt, GOOD]
    file.path.write_text(json.dumps(plain))
    undone: list[object] = []

    def undo(saved: dict[str, object]) -> list[str]:
        undone.append(saved)
        return []

    restore_file(file, undo)
    assert undone == [{"n": 1}]
    found = file.read()
    assert (() if found is None else found.learnt) == ((ClassRuns(*GOOD),) if isinstance(learnt, list) else ())


def test_a_file_of_before_has_learnt_nothing(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    file.write(state(()))
    plain = json.loads(file.path.read_text())
    del plain["learnt"]
    file.path.write_text(json.dumps(plain))
    found = file.read()
    assert found == state(())

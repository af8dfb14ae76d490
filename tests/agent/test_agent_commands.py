"""Commands that the agent starts: those that cannot be started are said, counted and not tried again."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import pytest
from agent_fakes import Bench, allocation, bench
from test_agent_restores import wait_for

from flowsched.node import TaskGrant
from flowsched_agent.configuration import Command, TaskSpec
from flowsched_agent.state_file import StateFile

RUN = TaskGrant(True, (1,))


def told_to_start(command: Command, allow: int = 1) -> Bench:
    return bench(*[allocation((0,), batch=RUN)] * allow, tasks=(TaskSpec(name="batch", command=command),))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("argv", "directory", "why"),
    [
        (("/nowhere/program",), None, "there is no program /nowhere/program"),
        (("no-such-program-anywhere",), None, "there is no program no-such-program-anywhere in PATH"),
        (("true",), "nowhere", "there is no folder"),
        (("./text",), ".", "./text may not be run"),
        (("./folder",), ".", "./folder may not be run"),
    ],
)
def test_a_command_that_cannot_be_started_is_said_counted_and_not_tried_again(
    argv: tuple[str, ...], directory: str | None, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "folder").mkdir()
    b = told_to_start(Command(argv=argv, directory=None if directory is None else tmp_path / directory), allow=30)
    b.ticks(30)
    (said,) = warnings(caplog)
    assert said.startswith("batch is given up: batch cannot be started: ")
    assert why in said
    assert b.agent.status.errors == {"start": 1}
    assert b.agent.status.tasks["batch"].state == "done"
    assert b.controller.readings[-1].tasks == ()


@pytest.mark.parametrize(
    ("script", "words", "errors"),
    [
        (
            "#!/nowhere/interpreter\n",
            "batch is given up: it cannot be started: it, or what runs it, was not",
            {"start": 1},
        ),
        (
            "#!/bin/sh\nexit 126\n",
            "batch is given up: it cannot be started: it, or what runs it, may not",
            {"start": 1},
        ),
        ("#!/bin/sh\nexit 3\n", "the command ended with code 3", {}),
    ],
)
def test_how_a_command_ended_is_said_once(
    script: str, words: str, errors: dict[str, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program"
    program.write_text(script)
    program.chmod(0o755)
    b = told_to_start(Command(argv=(str(program),)))

    def ended() -> bool:
        b.ticks(1)
        return bool(warnings(caplog))

    wait_for(ended, "the end of the command")
    b.ticks(5)
    (said,) = warnings(caplog)
    assert said.startswith(words)
    assert b.agent.status.errors == errors


def test_a_command_that_could_not_be_written_down_is_tried_again_each_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full may have room again; until then it is not forked at every tick."""
    file = StateFile(tmp_path / "folder" / "state.json")
    task = TaskSpec(name="batch", command=Command(argv=("sleep", "60")))
    b = bench(*[allocation((0,), batch=RUN)] * 60, tasks=(task,), state_file=file)
    b.ticks(20)
    assert b.agent.status.tasks["batch"].state == "queued"
    assert b.agent.status.errors["start"] == 2
    assert [said for said in warnings(caplog) if said.startswith("batch is not started yet: ")] == [
        f"batch is not started yet: the state file {file.path} cannot be written: No such file or directory"
    ]
    file.path.parent.mkdir()
    b.ticks(11)
    state = file.read()
    assert state is not None
    (command,) = state.commands
    try:
        assert b.agent.status.tasks["batch"].state == "running"
        assert b.agent.status.errors["start"] == 2
    finally:
        os.kill(command.pid, signal.SIGKILL)


def test_a_command_that_runs_is_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    b = told_to_start(Command(argv=("sleep", "60")))
    b.ticks(3)
    (pid,) = [getattr(r, "pid", 0) for r in caplog.records if r.getMessage() == "started"] or [0]
    try:
        assert warnings(caplog) == []
        assert b.agent.status.tasks["batch"].state == "running"
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _everything_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

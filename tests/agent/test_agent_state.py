"""The state file: whole or not at all, understood or set aside, and nothing restored twice or for another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowsched_agent.controls.group import group_files
from flowsched_agent.original_groups import restore
from flowsched_agent.process import restore_machine
from flowsched_agent.rates import Rate
from flowsched_agent.restoring import restore_file, stop_commands
from flowsched_agent.state_file import (
    MARK,
    ForeignStateError,
    Started,
    State,
    StateError,
    StateFile,
    boot_id,
    start_time,
)
from flowsched_agent.system import System
from flowsched_agent.watchdog import BYE, watch
from flowsched_models.document import InputError


def state(**changes: Any) -> State:
    made = State(boot_id(), os.getpid(), start_time(os.getpid()) or 0, {"a": {"n": 1}, "b": {"n": 2}})
    return replace(made, **changes)


class Undo:
    """Notes what it is to restore."""

    def __init__(self, fails: int | None = None) -> None:
        self.seen: list[int] = []
        self._fails = fails

    def __call__(self, saved: dict[str, Any]) -> list[str]:
        if saved["n"] == self._fails:
            raise RuntimeError("surprise")
        self.seen.append(saved["n"])
        return [f"{saved['n']} is back"]


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    made = StateFile(tmp_path / "run" / "state.json")
    assert made.acquire()
    return made


def test_what_is_written_is_read(file: StateFile) -> None:
    written = state(commands=(Started("c", 5, 6),), on_exit="stop")
    file.write(written)
    assert file.read() == written
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_the_latest_change_is_undone_first_and_the_file_is_gone_then(file: StateFile) -> None:
    file.write(state())
    undo = Undo()
    assert restore_file(file, undo) == ["2 is back", "1 is back"]
    assert restore_file(file, undo) == []
    assert undo.seen == [2, 1]


def test_one_that_cannot_be_restored_keeps_no_other_from_it(file: StateFile) -> None:
    file.write(state())
    undo = Undo(fails=2)
    assert restore_file(file, undo) == ["b could not be restored: RuntimeError: surprise", "1 is back"]


def test_nothing_is_restored_after_another_start_of_the_machine(file: StateFile) -> None:
    file.write(state(boot_id="another"))
    undo = Undo()
    assert "started anew" in restore_file(file, undo)[0]
    assert undo.seen == [] and not file.path.exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00\x01\x02",
        '{"version": 0}',
        '{"version": 2, "saved": {}}',
        '{"version": 1}',
        '{"version": 1, "bootId": "x", "agent": {"pid": "y", "started": 1}, "saved": {}, "commands": [], "onExit": ""}',
        '{"version": 1, "bootId": "x", "agent": {"pid": 1, "started": 1}, "saved": [1], "commands": [], "onExit": ""}',
        "[" * 100_000,
    ],
)
def test_what_cannot_be_understood_is_set_aside_and_said_so(content: str, file: StateFile) -> None:
    file.path.write_text(content)
    with pytest.raises(StateError, match="cannot be understood"):
        file.read()
    undo = Undo()
    (sentence,) = restore_file(file, undo)
    assert "cannot be understood" in sentence and "agent" not in sentence
    assert undo.seen == []
    assert (file.path.parent / "state.json.unreadable").read_text() == content
    assert restore_file(file, undo) == []


def test_a_file_torn_at_any_byte_is_never_taken_for_a_whole_one(file: StateFile) -> None:
    file.write(state())
    whole = file.path.read_text()
    for length in range(len(whole)):
        file.path.write_text(whole[:length])
        with pytest.raises(StateError):
            file.read()


def test_a_part_that_was_never_renamed_does_no_harm(file: StateFile) -> None:
    file.write(state())
    (file.path.parent / ".state.json.part").write_text("{ torn")
    assert file.read() == state()
    file.write(state(on_exit="stop"))
    read = file.read()
    assert read is not None and read.on_exit == "stop"


def test_what_says_the_same_is_not_written_again(file: StateFile) -> None:
    file.write(state())
    before = file.path.stat().st_ino
    file.write(state())
    assert file.path.stat().st_ino == before
    file.write(state(on_exit="stop"))
    assert file.path.stat().st_ino != before


def test_the_lock_is_held_once(file: StateFile) -> None:
    other = StateFile(file.path)
    assert not other.acquire()
    file.release()
    assert other.acquire()


def test_saved_settings_of_another_version_are_left_alone() -> None:
    saved = {"kind": "hologram", "name": "x", "boot": boot_id(), "pid": os.getpid()}
    (sentence,) = restore(saved)
    assert "left alone" in sentence


def test_an_origin_of_a_recycled_pid_is_not_used() -> None:
    here = {"kind": "origin", "name": "x", "boot": boot_id(), "pid": os.getpid(), "groups": {"cpu": "/nowhere"}}
    assert restore({**here, "start": 1}) == []
    assert restore({**here, "start": start_time(os.getpid()), "boot": "another"}) == []
    assert "damaged" in restore({**here, "start": "?"})[0]


# The watchdog


def watched(file: StateFile, says: bytes, agent: int) -> tuple[list[str], list[int]]:
    reading, writing = os.pipe()
    os.write(writing, says)
    os.close(writing)
    undo = Undo()
    try:
        return watch(file.path, reading, undo, agent), undo.seen
    finally:
        os.close(reading)


def test_the_watchdog_restores_unless_the_agent_said_goodbye(file: StateFile) -> None:
    file.write(state())
    file.release()
    assert watched(file, BYE, os.getpid()) == ([], [])
    assert watched(file, b"", os.getpid())[1] == [2, 1]
    assert watched(file, b"", os.getpid()) == ([], [])


def test_the_watchdog_leaves_the_state_of_another_agent_alone(file: StateFile) -> None:
    file.write(state())
    file.release()
    assert watched(file, b"", os.getpid() + 1) == (["another agent has taken over already"], [])
    assert file.path.exists()


# Commands


def test_a_recycled_pid_is_not_stopped() -> None:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True, env={**os.environ, MARK: "x"})
    try:
        assert stop_commands([Started("x", process.pid, 1)]) == []
        (sentence,) = stop_commands([Started("y", process.pid, start_time(process.pid) or 0)])
        assert sentence == f"process {process.pid} goes on: it does not bear the mark of the command y"
        assert process.poll() is None
        assert stop_commands([Started("x", process.pid, start_time(process.pid) or 0)]) == []
        assert process.poll() is not None
    finally:
        process.kill()
        process.wait()


def test_a_state_that_others_may_have_written_is_not_undone(file: StateFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write(state())
    file.path.chmod(0o660)
    with pytest.raises(ForeignStateError, match=r"may be written by others \(mode 0660\)"):
        file.read(own=True)
    with pytest.raises(InputError, match="nothing of it is done"):
        restore_machine(file.path)
    assert file.read() is not None  # others' may be looked at
    file.path.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    undo = Undo()
    (sentence,) = restore_file(file, undo)
    assert "belongs to another user" in sentence
    assert undo.seen == []


@pytest.mark.parametrize(
    "key",
    [
        "cpu:../victim.conf",
        "cpu:cpu.shares/../../../victim.conf",
        "cpuset:/etc/cpuset.cpus",
        "cpuset:../other/cpuset.cpus",
        "cpu:below/cpu.shares",
        "cpu:cgroup.procs",
        "memory:memory.limit_in_bytes",
    ],
)
def test_only_settings_of_the_group_itself_are_brought_back(key: str, tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    folder = cgroup / "cpu" / "job"
    folder.mkdir(parents=True)
    (tmp_path / "cgroup" / "cpu" / "victim.conf").write_text("old")
    trees = {tree: {"path": str(folder), "inode": folder.stat().st_ino} for tree in ("cpu", "cpuset", "memory")}
    saved = {"version": "v1", "where": "/job", "folders": trees, "values": {key: "OWNED"}}
    files, why = group_files(System(cgroup=cgroup), saved)
    assert files is None
    assert why == f"the group /job was left alone: {key!r} is no setting of a group"
    saved["values"] = {"cpu:cpu.shares": "512", "cpuset:a/b/cpuset.cpus": "0"}
    assert group_files(System(cgroup=cgroup), saved)[0] is not None


def test_who_does_not_end_in_time_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE, env={**os.environ, MARK: "x"}
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        (sentence,) = stop_commands([Started("x", process.pid, start_time(process.pid) or 0)], within_s=0.1)
        assert "was killed" in sentence
        process.wait(timeout=30)
    finally:
        process.kill()
        process.stdout and process.stdout.close()


# Rates


def test_a_rate_is_over_the_latest_second() -> None:
    rate = Rate(window_s=1.0)
    for n in range(31):
        rate.update(n * 0.1, 0 if n <= 10 else (n - 10) * 100)
    assert rate.per_second == pytest.approx(1000.0)


def test_a_rate_knows_nothing_after_silence() -> None:
    rate = Rate()
    rate.update(0.0, 10)
    rate.update(0.1, 20)
    rate.update(0.2, None)
    assert rate.per_second is None
    rate.update(0.3, 40)
    assert rate.per_second is None
    rate.update(0.4, 50, pid=None)
    assert rate.per_second == pytest.approx(100.0)


def test_the_file_is_one_object_for_people_too(file: StateFile) -> None:
    file.write(state(commands=(Started("c", 5, 6),)))
    plain = json.loads(file.path.read_text())
    assert plain["version"] == 1
    assert plain["commands"] == [{"name": "c", "pid": 5, "started": 6}]

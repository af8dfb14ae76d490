"""Two agents on one machine: neither steers what the other does, also while the other's changes are not undone yet."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_agent_restores import (
    DOZER,
    Fire,
    assert_as_before,
    configuration,
    is_changed,
    settings_of,
    wait_for,
    watchdogs_of,
)

from flowsched_agent.claims import Claims, Target, target_of, usual_folders
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.state_file import State, StateFile, boot_id, start_time
from flowsched_agent.system import System
from requirements_on_machine import PLAIN_PYTHON

PARENT = f"""
import subprocess
child = subprocess.Popen([*{PLAIN_PYTHON!r}, {DOZER!r}])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def task() -> Iterator[int]:
    process = subprocess.Popen([*PLAIN_PYTHON, DOZER], start_new_session=True)
    wait_for(lambda: settings_of(process.pid).threads == 3, "the threads of the task")
    yield process.pid
    process.kill()
    process.wait()


@contextlib.contextmanager
def agents(folder: Path, *pids: int) -> Iterator[list[Fire]]:
    """Starters of agents, each with a state file of its own and one task."""
    with contextlib.ExitStack() as stack:
        made = []
        for number, pid in enumerate(pids):
            own = folder / f"agent-{number}"
            own.mkdir()
            made.append(Fire(configuration(own, [pid])))
            stack.callback(made[-1].close)
        yield made


def end(fire: Fire, agent: int, how: signal.Signals = signal.SIGTERM) -> None:
    os.kill(agent, how)
    fire.ended()
    wait_for(lambda: not watchdogs_of(fire.state), "the watchdog to be done")


def test_the_second_agent_leaves_alone_what_the_first_steers_until_that_ends(tmp_path: Path, task: int) -> None:
    before = [settings_of(task)]
    with agents(tmp_path, task, task) as (one, two):
        first = one.agent()
        wait_for(lambda: is_changed([task], before), "a change")
        second = two.agent()
        holder = f"another agent, process {first} with the state file {one.state}, steers it as task-0; stop that agent"
        wait_for(lambda: holder in two.said(), "the sentence")
        wait_for(lambda: two.state.exists(), "the second to go on")
        assert two.said().count(holder) == 1
        assert json.loads(two.state.read_text())["saved"] == {}
        end(one, first)
        # What it found are the original settings, not those of the first.
        wait_for(lambda: json.loads(two.state.read_text())["saved"], "the second to take over")
        end(two, second)
    assert_as_before([task], before, "after both")


def test_a_child_of_what_another_agent_steers_is_that_agent_s(tmp_path: Path) -> None:
    parent = subprocess.Popen([*PLAIN_PYTHON, PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        with agents(tmp_path, child, parent.pid) as (one, two):
            first = one.agent()
            wait_for(lambda: "task-0" in one.state.read_text() if one.state.exists() else False, "the first to take it")
            second = two.agent()
            wait_for(lambda: f"process {first} with the state file" in two.said(), "the sentence")
            end(two, second)
            end(one, first)
    finally:
        for pid in (child, parent.pid):
            os.kill(pid, signal.SIGKILL)
        parent.wait()


def test_agents_with_targets_of_their_own_do_not_meet(tmp_path: Path, task: int) -> None:
    other = subprocess.Popen([*PLAIN_PYTHON, DOZER], start_new_session=True)
    try:
        wait_for(lambda: settings_of(other.pid).threads == 3, "the threads of the other task")
        before = [settings_of(task), settings_of(other.pid)]
        with agents(tmp_path, task, other.pid) as (one, two):
            started = one.agent(), two.agent()
            for pid, settings in zip((task, other.pid), before, strict=True):
                wait_for(lambda pid=pid, settings=settings: is_changed([pid], [settings]), "a change")
            for fire, agent in zip((one, two), started, strict=True):
                end(fire, agent)
                assert "another agent" not in fire.said()
        assert_as_before([task, other.pid], before, "after both")
    finally:
        other.kill()
        other.wait()


def test_what_a_killed_agent_steered_is_taken_over_only_when_it_is_put_back(tmp_path: Path, task: int) -> None:
    before = [settings_of(task)]
    with agents(tmp_path, task, task) as (one, two):
        for _ in range(5):
            first = one.agent()
            wait_for(lambda: is_changed([task], before), "a change")
            second = two.agent()
            wait_for(lambda: two.state.exists(), "the second to look")
            os.kill(first, signal.SIGKILL)
            one.ended()
            wait_for(lambda: json.loads(two.state.read_text())["saved"], "the second to take over")
            assert not one.state.exists()
            end(two, second)
            assert_as_before([task], before, two.said())


def test_an_agent_killed_with_its_watchdog_keeps_others_off_until_it_is_restored(tmp_path: Path, task: int) -> None:
    """Then only a person, or its next start, brings back what it changed."""
    claims = Claims(tmp_path / "mine.json", System(), (tmp_path,))
    mine = Target(task, start_time(task))
    left = StateFile(tmp_path / "left.json")
    child = os.fork()
    if child == 0:
        pid = os.getpid()
        Claims(left.path, System(), (tmp_path,)).take("job", mine)
        left.write(State(boot_id(), pid, start_time(pid) or 0, {"job": {"kind": "process"}}))
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(
        ControlError, match=f"process {child}, was killed .* 'flowsched agent restore --state {left.path}'"
    ):
        claims.take("batch", mine)
    left.remove()
    claims.take("batch", mine)
    assert [path.name for path in tmp_path.glob("*.json")] == [f"{os.getpid()}.{start_time(os.getpid())}.json"]
    claims.close()
    assert list(tmp_path.glob("*.json")) == []


# Control groups


def group(root: Path, path: str, *pids: int) -> Path:
    folder = root / path
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return folder


@contextlib.contextmanager
def another(folder: Path, target: Target, pid: int = 77) -> Iterator[None]:
    """The claim of an agent that lives."""
    text = json.dumps(
        {
            "pid": pid,
            "started": 1,
            "stateFile": "/elsewhere.json",
            "targets": {"theirs": {"pid": target.pid, "started": target.started, "groups": dict(target.groups)}},
        }
    )
    path = folder / f"{pid}.1.json"
    path.write_text(text)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def of_group(folder: Path) -> Target:
    return Target(groups={str(folder): folder.stat().st_ino})


def test_groups_are_the_same_by_inode_or_by_their_processes(tmp_path: Path, task: int) -> None:
    claims = Claims(tmp_path / "mine.json", System(cgroup=tmp_path / "cgroup"), (tmp_path,))
    pod, within, empty = (tmp_path / "cgroup" / path for path in ("pods/a", "pods/a/container", "pods/b"))
    for folder, pids in ((pod, ()), (within, (task,)), (empty, ())):
        group(tmp_path / "cgroup", str(folder.relative_to(tmp_path / "cgroup")), *pids)
    process = Target(task, start_time(task))
    for theirs, mine in ((pod, within), (within, pod), (empty, empty)):
        with another(tmp_path, of_group(theirs)), pytest.raises(ControlError, match="another agent, process 77"):
            claims.take("mine", of_group(mine))
    with another(tmp_path, process), pytest.raises(ControlError, match="steers it as theirs"):
        claims.take("mine", of_group(pod))
    with another(tmp_path, of_group(pod)), pytest.raises(ControlError):
        claims.take("mine", process)
    # Of another group nothing is known, and what took a number or a name later is another.
    strangers = (of_group(empty), Target(task, 1), Target(groups={str(pod): 1}))
    for stranger in strangers:
        with another(tmp_path, stranger):
            claims.take("mine", of_group(pod))
            claims.drop("mine")
    claims.close()


def test_groups_within_each_other_meet_while_they_are_empty(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "mine.json", System(cgroup=tmp_path / "cgroup"), (tmp_path,))
    pod, within, beside = (group(tmp_path / "cgroup", path) for path in ("pods/a", "pods/a/container", "pods/ab"))
    for theirs, mine in ((pod, within), (within, pod)):
        with another(tmp_path, of_group(theirs)), pytest.raises(ControlError, match="another agent, process 77"):
            claims.take("mine", of_group(mine))
    with another(tmp_path, of_group(pod)):
        claims.take("mine", of_group(beside))
    claims.close()


# Files


def test_what_is_no_claim_is_no_hindrance_and_what_is_no_agent_s_stays(tmp_path: Path, task: int) -> None:
    claims = Claims(tmp_path / "mine.json", System(), (tmp_path,))
    (tmp_path / "1.1.json").write_text("{")
    (tmp_path / "2.1.json").write_text('{"targets": []}')
    (tmp_path / "3.1.json").write_text("[" * 100_000)
    (tmp_path / "notes.json").write_text("{")
    claims.take("mine", Target(task, start_time(task)))
    claims.take("mine", Target(task, start_time(task)))
    left = {path.name for path in tmp_path.glob("*.json")}
    assert left == {"notes.json", claims_of_this_process(tmp_path).name}
    claims.close()


def claims_of_this_process(folder: Path) -> Path:
    return folder / f"{os.getpid()}.{start_time(os.getpid())}.json"


def test_who_lives_and_cannot_be_understood_may_steer_anything(tmp_path: Path, task: int) -> None:
    claims = Claims(tmp_path / "mine.json", System(), (tmp_path,))
    mine = Target(task, start_time(task))
    with another(tmp_path, Target(groups={"/elsewhere": 1})):
        theirs = tmp_path / "77.1.json"
        text = theirs.read_text()
        theirs.write_text(text[:-5])
        with pytest.raises(ControlError, match=r"77\.1\.json, of an agent that lives, cannot be understood"):
            claims.take("batch", mine)
        # The end of a longer text that is being replaced.
        theirs.write_text(text + "}}")
        claims.take("batch", mine)
    claims.close()


def test_a_claim_that_cannot_be_written_is_none(tmp_path: Path, task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for us, who try again, nor for others; claims from before stand."""
    parent = Target(os.getpid(), start_time(os.getpid()))
    mine = Target(task, start_time(task))
    write = os.pwrite

    def full(descriptor: int, content: bytes, offset: int) -> int:
        return (
            write(descriptor, content[: len(content) // 2], offset)
            if b"batch" in content
            else write(descriptor, content, offset)
        )

    monkeypatch.setattr(os, "pwrite", full)
    first, second = (Claims(tmp_path / f"{n}.json", System(), (tmp_path,)) for n in "ab")
    for _ in range(2):
        with pytest.raises(ControlError, match="No space left on device"):
            first.take("batch", mine)
        assert list(tmp_path.glob("*.json")) == []
    first.take("first", mine)
    before = claims_of_this_process(tmp_path).read_bytes()
    for _ in range(2):
        with pytest.raises(ControlError, match="No space left on device"):
            first.take("batch", parent)
        assert claims_of_this_process(tmp_path).read_bytes() == before
    monkeypatch.undo()
    first.take("batch", parent)
    assert set(json.loads(claims_of_this_process(tmp_path).read_text())["targets"]) == {"first", "batch"}
    first.close()
    second.close()


def test_no_other_user_can_hold_the_lock_of_the_folder(tmp_path: Path, task: int) -> None:
    claims = Claims(tmp_path / "mine.json", System(), (tmp_path / "claims",))
    before = os.umask(0o077)
    try:
        claims.take("mine", Target(task, start_time(task)))
    finally:
        os.umask(before)
    assert (tmp_path / "claims" / "lock").stat().st_mode & 0o777 == 0o600
    assert claims_of_this_process(tmp_path / "claims").stat().st_mode & 0o777 == 0o644
    claims.close()


def test_a_folder_of_another_user_is_not_trusted(tmp_path: Path, task: int) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "claims").symlink_to(real)
    with pytest.raises(ControlError, match="not this user's alone"):
        Claims(tmp_path / "mine.json", System(), (tmp_path / "claims",)).take("m", Target(task, start_time(task)))
    assert list(real.iterdir()) == []


def test_all_processes_are_read_once_however_many_others_there_are(tmp_path: Path, task: int) -> None:
    class Counting(System):
        looks = 0

        def names(self, path: Path) -> list[str]:
            self.looks += path == self.proc
            return super().names(path)

    system = Counting()
    claims = Claims(tmp_path / "mine.json", system, (tmp_path,))
    with contextlib.ExitStack() as stack:
        for pid in range(70, 80):
            target = Target(os.getpid(), start_time(os.getpid()))
            stack.enter_context(another(tmp_path, target if pid == 79 else Target(1, 1), pid))
        with pytest.raises(ControlError, match="process 79"):
            claims.take("mine", Target(task, start_time(task)))
    assert system.looks == 1
    claims.close()


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path, task: int) -> None:
    folder = tmp_path / "claims"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ControlError, match="not this user's alone"):
        Claims(tmp_path / "mine.json", System(), (folder,)).take("mine", Target(task, start_time(task)))


def test_who_may_not_write_the_usual_folder_has_one_of_its_own_and_reads_that() -> None:
    assert len(usual_folders(0)) == 1
    assert usual_folders(54321)[0] == usual_folders(0)[0]
    assert "54321" in str(usual_folders(54321)[-1])


def test_targets_are_told_by_what_is_written_down() -> None:
    assert target_of({"kind": "process", "pid": 5, "start": 6}) == Target(5, 6)
    assert target_of({"kind": "group", "group": {"folders": {"cpu": {"path": "/a", "inode": 7}}}}) == Target(
        groups={"/a": 7}
    )
    assert target_of({"kind": "fake"}) is None

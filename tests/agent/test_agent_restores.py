"""Whatever ends the agent, and whenever: nothing stays stopped, pinned or weighed. With real processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from agent_under_fire import ready_to_fork

from flowsched.cluster.learnt_run_times import NOTHING_LEARNT
from flowsched_agent.process import restore_machine
from flowsched_agent.state_file import State, StateFile, start_time
from requirements_on_machine import PLAIN_PYTHON, cgroups, give_up, patience

KILLS = 30 if patience() == 1.0 else 4
WITHIN_S = 30.0 * patience()
"""Only ends a test that has failed anyway."""
DOZER = """
import threading, time
def doze():
    while True:
        time.sleep(0.02)
for _ in range(2):
    threading.Thread(target=doze, daemon=True).start()
doze()
"""
"""Three threads, most of the time asleep: spinning ones would take the machine from other tests."""


def wait_for(predicate: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WITHIN_S
    while not predicate():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01 * patience())  # an emulated machine takes a while to look once


@dataclass(frozen=True)
class Settings:
    """What a process looks like from outside, as far as an agent could change it."""

    stopped: bool
    threads: int
    affinity: frozenset[tuple[int, ...]]
    classes: frozenset[tuple[int, int]]
    """(policy, nice) of its threads."""
    cgroups: str


def settings_of(pid: int) -> Settings:
    tids = [int(p.name) for p in Path(f"/proc/{pid}/task").iterdir()]
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return Settings(
        stat[0] in "Tt",
        len(tids),
        frozenset(tuple(sorted(os.sched_getaffinity(tid))) for tid in tids),
        frozenset((os.sched_getscheduler(tid), os.getpriority(os.PRIO_PROCESS, tid)) for tid in tids),
        Path(f"/proc/{pid}/cgroup").read_text(),
    )


@pytest.fixture
def tasks() -> Iterator[list[int]]:
    """Two processes with three threads each."""
    started = [subprocess.Popen([*PLAIN_PYTHON, DOZER], start_new_session=True) for _ in range(2)]
    try:
        wait_for(lambda: all(settings_of(p.pid).threads == 3 for p in started), "the threads of the tasks")
        yield [p.pid for p in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def configuration(folder: Path, pids: list[int], **more: object) -> Path:
    path = folder / "agent.yaml"
    content = {
        "apiVersion": "agent.flowsched.io/v1alpha1",
        "kind": "NodeAgent",
        "period": "10ms",
        "statsTimeout": "5ms",
        "server": "",
        "stateFile": str(folder / "state" / "agent.json"),
        "tasks": [{"name": f"task-{n}", "find": {"pid": pid}} for n, pid in enumerate(pids)],
        **more,
    }
    path.write_text(json.dumps(content))
    return path


class Fire:
    """Starts agents, and says when they are gone."""

    def __init__(self, path: Path) -> None:
        self.state = path.parent / "state" / "agent.json"
        self._errors = (path.parent / "errors.txt").open("w+")
        asked, self._asks = os.pipe()
        answers, answered = os.pipe()
        socket.send_fds(ready_to_fork(), [str(path).encode()], [asked, answered, self._errors.fileno()])
        os.close(asked)
        os.close(answered)
        self._answers = os.fdopen(answers)
        self._pid = int(self._answers.readline())

    def agent(self, controller: str = "restless") -> int:
        """Start one; its process id."""
        os.write(self._asks, f"{controller}\n".encode())
        return int(self._answers.readline())

    def ended(self) -> int:
        """The exit code of the last one, negative for a signal."""
        word, code = self._answers.readline().split()
        assert word == "ended"
        return int(code)

    def said(self) -> str:
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        wait_for(lambda: start_time(self._pid) is None, "the process that forks agents to end")
        os.close(self._asks)
        self._answers.close()
        self._errors.close()


@pytest.fixture
def fire(tmp_path: Path, tasks: list[int]) -> Iterator[Fire]:
    made = Fire(configuration(tmp_path, tasks))
    yield made
    made.close()


def watchdogs_of(state: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_text().split("\0")
                if "flowsched_agent.watchdog" in words and str(state) in words:
                    found.append(int(entry.name))
    return [pid for pid in found if start_time(pid) is not None]


def is_changed(pids: list[int], before: list[Settings]) -> bool:
    return [settings_of(pid) for pid in pids] != before


def assert_as_before(pids: list[int], before: list[Settings], when: str) -> None:
    for pid, settings in zip(pids, before, strict=True):
        assert settings_of(pid) == settings, when


def groups_of(pids: list[int]) -> list[Path]:
    """Groups that agents have made for these processes."""
    return [path for pid in pids for path in cgroups(f"flowsched/*.{pid}")]


def test_an_agent_that_is_killed_at_any_moment_leaves_nothing_behind(fire: Fire, tasks: list[int]) -> None:
    before = [settings_of(pid) for pid in tasks]
    rng = random.Random(0)
    for kill in range(KILLS):
        agent = fire.agent()
        # From before it has a watchdog; every second time, however busy the machine is, in the midst of its work.
        if kill % 2:
            wait_for(lambda: is_changed(tasks, before), "a change")
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(agent, signal.SIGKILL)
        assert fire.ended() == -signal.SIGKILL
        wait_for(lambda: not watchdogs_of(fire.state), "the watchdog to be done")
        assert_as_before(tasks, before, f"after kill {kill}\n{fire.said()}")
        assert not fire.state.exists(), f"after kill {kill}"
        assert groups_of(tasks) == [], f"after kill {kill}\n{fire.said()}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_agent_that_is_asked_to_end_puts_everything_back(
    number: signal.Signals, fire: Fire, tasks: list[int]
) -> None:
    before = [settings_of(pid) for pid in tasks]
    agent = fire.agent()
    wait_for(lambda: is_changed(tasks, before), "a change")
    os.kill(agent, number)
    assert fire.ended() == 0, fire.said()
    assert_as_before(tasks, before, fire.said())
    assert not fire.state.exists() and not watchdogs_of(fire.state)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_earlier_agents_learnt_outlives_this_one(number: signal.Signals, fire: Fire, tasks: list[int]) -> None:
    before = [settings_of(pid) for pid in tasks]
    learnt = NOTHING_LEARNT.with_end("encode", "some-machine", 2.0).classes
    fire.state.parent.mkdir()
    StateFile(fire.state).write(State("an earlier start of the machine", 1, 1, learnt=learnt))
    agent = fire.agent()
    wait_for(lambda: is_changed(tasks, before), "a change")
    os.kill(agent, number)
    fire.ended()
    wait_for(lambda: not watchdogs_of(fire.state), "the watchdog to be done")
    assert_as_before(tasks, before, fire.said())
    left = StateFile(fire.state).read()
    assert left is not None and (left.saved, left.learnt) == ({}, learnt)


def test_the_next_start_puts_back_what_an_agent_left_that_died_with_its_watchdog(fire: Fire, tasks: list[int]) -> None:
    before = [settings_of(pid) for pid in tasks]
    kill_both(fire, tasks, before)
    agent = fire.agent()
    wait_for(lambda: "left behind by an earlier agent" in fire.said(), "the next agent to say what it found")
    os.kill(agent, signal.SIGTERM)
    assert fire.ended() == 0, fire.said()
    assert_as_before(tasks, before, fire.said())


def test_restore_puts_back_what_an_agent_left_that_died_with_its_watchdog(fire: Fire, tasks: list[int]) -> None:
    before = [settings_of(pid) for pid in tasks]
    kill_both(fire, tasks, before)
    said = restore_machine(fire.state)
    assert said
    assert_as_before(tasks, before, "\n".join(said))
    assert not fire.state.exists()
    assert groups_of(tasks) == []


def kill_both(fire: Fire, tasks: list[int], before: list[Settings]) -> None:
    """Until something is left behind; a kill may fall on a moment at which both tasks are as they were."""
    for _ in range(20):
        agent = fire.agent()
        wait_for(lambda: is_changed(tasks, before) and watchdogs_of(fire.state), "a change")
        os.kill(agent, signal.SIGSTOP)
        for pid in watchdogs_of(fire.state):
            os.kill(pid, signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
        assert fire.ended() == -signal.SIGKILL
        if is_changed(tasks, before):
            return
    raise AssertionError("nothing was ever left behind")


def test_a_dead_watchdog_is_replaced(fire: Fire, tasks: list[int]) -> None:
    before = [settings_of(pid) for pid in tasks]
    agent = fire.agent()
    wait_for(lambda: is_changed(tasks, before), "a change")
    (first,) = watchdogs_of(fire.state)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: watchdogs_of(fire.state) not in ([], [first]), "another watchdog")
    os.kill(agent, signal.SIGKILL)
    assert fire.ended() == -signal.SIGKILL
    wait_for(lambda: not watchdogs_of(fire.state), "the watchdog to be done")
    assert_as_before(tasks, before, fire.said())


def test_two_agents_with_one_state_file_are_refused(fire: Fire, tasks: list[int]) -> None:
    before = [settings_of(pid) for pid in tasks]
    agent = fire.agent()
    wait_for(lambda: is_changed(tasks, before), "a change")
    done = subprocess.run(
        [sys.executable, "-m", "flowsched_agent", "restore", "--state", str(fire.state)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, "another agent holds the state file" in done.stderr) == (2, True)
    os.kill(agent, signal.SIGTERM)
    assert fire.ended() == 0


# Commands


def running(pid: int) -> bool:
    return start_time(pid) is not None


def started_pid(folder: Path) -> int:
    wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip(), "the command")
    return int((folder / "pid").read_text())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("on_exit", ["leave", "stop"])
def test_started_commands_go_on_or_are_stopped(how: signal.Signals, on_exit: str, tmp_path: Path) -> None:
    command = {"argv": ["sh", "-c", "echo $$ > pid; exec sleep 300"], "directory": str(tmp_path)}
    fire = Fire(configuration(tmp_path, [], tasks=[{"name": "started", "command": command}], onExit=on_exit))
    pid = 0
    try:
        agent = fire.agent()
        pid = started_pid(tmp_path)
        usual = settings_of(os.getpid())
        os.kill(agent, how)
        fire.ended()
        wait_for(lambda: not watchdogs_of(fire.state), "the watchdog to be done")
        assert running(pid) == (on_exit == "leave"), fire.said()
        if on_exit == "leave":
            left = settings_of(pid)
            assert (left.stopped, left.affinity, left.classes) == (False, usual.affinity, usual.classes)
            # The next agent goes on with it instead of starting it again.
            (tmp_path / "pid").unlink()
            agent = fire.agent()
            wait_for(lambda: "goes on" in fire.said(), "the next agent to take it over")
            os.kill(agent, signal.SIGTERM)
            fire.ended()
            assert not (tmp_path / "pid").exists()
    finally:
        fire.close()
        if pid and running(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_command_that_cannot_be_started_is_given_up_and_said_so(tmp_path: Path) -> None:
    task = {"name": "broken", "command": {"argv": ["true"], "directory": str(tmp_path / "nowhere")}}
    fire = Fire(configuration(tmp_path, [], tasks=[task]))
    try:
        agent = fire.agent()
        wait_for(lambda: "broken is given up" in fire.said(), "the sentence")
        os.kill(agent, signal.SIGTERM)
        assert fire.ended() == 0
    finally:
        fire.close()


def test_nothing_that_is_started_inherits_a_real_time_class() -> None:
    code = (
        "import os, subprocess, sys\n"
        "try:\n    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n"
        "except PermissionError:\n    sys.exit(3)\n"
        "from flowsched_agent.process import reset_on_fork\n"
        "reset_on_fork()\n"
        "child = 'import os; print(os.sched_getscheduler(0))'\n"
        "print(os.sched_getscheduler(0) & os.SCHED_FIFO)\n"
        "sys.stdout.flush()\n"
        "subprocess.run([sys.executable, '-c', child])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    if done.returncode == 3:
        give_up("SCHED_FIFO is refused here; it is needed to see that no process inherits it")
    assert done.stdout.split() == [str(os.SCHED_FIFO), str(os.SCHED_OTHER)], done.stderr


def test_of_a_task_that_ends_no_group_is_left(tmp_path: Path) -> None:
    process = subprocess.Popen([*PLAIN_PYTHON, DOZER], start_new_session=True)
    fire = Fire(configuration(tmp_path, [process.pid]))
    try:
        wait_for(lambda: settings_of(process.pid).threads == 3, "the threads of the task")
        before = [settings_of(process.pid)]
        agent = fire.agent()
        wait_for(lambda: "found target=task-0" in fire.said() and is_changed([process.pid], before), "a change")
        process.kill()
        process.wait()
        wait_for(lambda: "gone: " in fire.said(), "the agent to see it")
        # It says so and then removes them, long before its own end would.
        wait_for(lambda: not cgroups(f"flowsched/task-0.{process.pid}"), "its groups to be removed")
        os.kill(agent, signal.SIGTERM)
        assert fire.ended() == 0, fire.said()
    finally:
        fire.close()
        process.kill()
        process.wait()


# Dry run


def test_a_dry_run_of_the_real_thing_changes_nothing(tmp_path: Path, tasks: list[int]) -> None:
    before = [settings_of(pid) for pid in tasks]
    path = configuration(tmp_path, tasks)
    record = tmp_path / "record.csv"
    groups = Path("/sys/fs/cgroup/cpu")
    seen = {p.name for p in groups.iterdir() if p.is_dir()} if groups.is_dir() else set()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "flowsched_agent",
            "--config",
            str(path),
            "--dry-run",
            "--once",
            "--record",
            str(record),
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "task task-0: " in done.stdout
    assert_as_before(tasks, before, done.stderr)
    assert not (tmp_path / "state").exists()
    # Agents of other tests have groups for a while; what a dry run left would stay.
    wait_for(
        lambda: not groups.is_dir() or {p.name for p in groups.iterdir() if p.is_dir()} <= seen, "no group is left"
    )
    assert len(record.read_text().splitlines()) == 5


def test_cores_that_may_not_be_used_are_said(tmp_path: Path) -> None:
    """A mask of one CPU stands for a cpuset that is smaller than what was asked for."""
    mine = os.sched_getaffinity(0)
    allowed, beyond = min(mine), max(mine) + 1
    path = tmp_path / "agent.yaml"
    service = "{name: memcached, port: 1, slo: {p95: 1ms}, capacity: {1: 25K}}"
    head = 'apiVersion: agent.flowsched.io/v1alpha1\nkind: NodeAgent\nserver: ""\n'
    path.write_text(f'{head}cores: "{allowed},{beyond}"\ncontroller: {{name: observe}}\nservices: [{service}]\n')
    code = (
        f"import os, runpy; os.sched_setaffinity(0, [{allowed}]); "
        "runpy.run_module('flowsched_agent', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--config", str(path), "--once"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert f"left_out={beyond} allowed={allowed}" in done.stderr

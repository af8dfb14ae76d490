"""The agent on cgroup version 2: memcached and a batch job as services of systemd, another job as a plain process.

Run inside the emulated machine by ``guest_start.py``. What the controller decides there is of no interest; that it reaches
the kernel is, and that nothing of it stays.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from guest_controls import ROOT, Groups, same, settings, used_us
from test_agent_restores import Fire

from flowsched_agent.state_file import start_time
from requirements_on_machine import patience

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.live_node import Memcached

PATIENCE_S = 30.0 * patience()
KEYS = 200
"""Of one request; memcached counts keys."""
CAPACITY = {"1": 300, "2": 1500}
"""So that a few requests per second are more than one core carries, and more than two do."""


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups()
    yield made
    made.end()
    assert not (ROOT / "flowsched").exists()


def until(so: Callable[[], bool], what: str, said: Callable[[], str]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < end, f"waited in vain for {what}\n{said()}"
        time.sleep(0.05)


@contextmanager
def offered(port: int) -> Iterator[None]:
    """About 2,000 queries per second, in requests of many keys that memcached does not have."""
    over = threading.Event()
    request = b"get " + b" ".join(b"key-%d" % number for number in range(KEYS)) + b"\r\n"

    def ask() -> None:
        while not over.is_set():
            # A memcached that gets no CPU for seconds is asked again.
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=30.0) as connection:
                while not over.wait(0.1):
                    connection.sendall(request)
                    connection.recv(1 << 16)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def write_configuration(folder: Path, **more: object) -> Path:
    path = folder / "agent.yaml"
    usual = {
        "apiVersion": "agent.flowsched.io/v1alpha1",
        "kind": "NodeAgent",
        "server": "",
        "stateFile": str(folder / "state/agent.json"),
    }
    path.write_text(json.dumps({**usual, **more}))
    return path


def test_decisions_reach_the_kernel_and_go_with_a_killed_agent(groups: Groups, tmp_path: Path) -> None:
    home, web, batch = (groups.make(f"system.slice/{name}.service") for name in ("home", "memcached", "batch"))
    plain = groups.steady(home)
    groups.steady(batch)
    with Memcached() as memcached:
        (web / "cgroup.procs").write_text(str(memcached.pid))
        try:
            steer(groups, memcached, (home, web, batch), plain, tmp_path)
        finally:
            (home / "cgroup.procs").write_text(str(memcached.pid))


def steer(groups: Groups, memcached: Memcached, folders: tuple[Path, Path, Path], plain: int, tmp_path: Path) -> None:
    home, web, batch = folders
    before = [settings(web), settings(batch)]
    path = write_configuration(
        tmp_path,
        period="1s",
        statsTimeout="900ms",
        cores=[0, 1],
        services=[
            {
                "name": "memcached",
                "profile": "memcached",
                "port": memcached.port,
                "find": {"cgroup": "system.slice/memcached.service"},
                "threads": 2,
                "slo": {"p95": "1ms"},
                "capacity": CAPACITY,
            }
        ],
        tasks=[
            {"name": "batch", "find": {"cgroup": "system.slice/batch.service"}},
            {"name": "plain", "find": {"pid": plain}},
        ],
    )
    own = ROOT / "flowsched" / f"plain.{plain}"
    with closing(Fire(path)) as fire:
        agent = fire.agent("configured")

        def so_far(so: Callable[[], bool]) -> Callable[[], bool]:
            def so_or_over() -> bool:
                assert start_time(agent) is not None, fire.said()
                return so()

            return so_or_over

        # Without load one core is enough for memcached, and batch has what is left.
        until(so_far(lambda: settings(web)["cpuset.cpus"] in ("0", "1")), "memcached on one core", fire.said)
        until(so_far(own.exists), "a group of the plain process's own", fire.said)
        assert "cgroups are of version 2." in fire.said()
        with offered(memcached.port):
            # More than both cores carry: all others are stopped.
            until(so_far(lambda: settings(web)["cpuset.cpus"] == "0-1"), "memcached on both cores", fire.said)
            until(so_far(lambda: settings(batch)["cgroup.freeze"] == "1"), "batch to be frozen", fire.said)
            until(so_far(lambda: stopped(plain)), "the plain process to be stopped", fire.said)
        # One core is free, which one of both gets.
        until(so_far(lambda: settings(batch)["cgroup.freeze"] == "0" or not stopped(plain)), "one to go on", fire.said)
        with offered(memcached.port):
            until(so_far(lambda: settings(batch)["cgroup.freeze"] == "1" and stopped(plain)), "both to stop", fire.said)
            os.kill(agent, signal.SIGKILL)
            assert fire.ended() == -signal.SIGKILL
            until(
                lambda: all(same(settings(folder), was) for folder, was in zip((web, batch), before, strict=True)),
                "the watchdog to put the groups back",
                fire.said,
            )
        until(lambda: not own.exists(), "the watchdog to put the plain process back", fire.said)
        until(lambda: not stopped(plain), "the plain process to go on", fire.said)
        assert (home / "cgroup.procs").read_text().split() == [str(plain)]
        used = used_us(batch)
        until(lambda: used_us(batch) > used, "work of the batch job", fire.said)
        until(lambda: not fire.state.exists(), "the watchdog to be done", fire.said)


def stopped(pid: int) -> bool:
    """Whether a signal has stopped it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_groups_are_put_back_when_an_agent_ends(end: signal.Signals, groups: Groups, tmp_path: Path) -> None:
    """An agent that pauses, weighs and moves at random every 10 ms; killed, its watchdog does it."""
    folders = [groups.make(f"system.slice/batch-{number}.service") for number in range(2)]
    for number, folder in enumerate(folders):
        groups.steady(folder)
        (folder / "cpu.weight").write_text(str(150 + number))
    before = [settings(folder) for folder in folders]
    tasks = [{"name": folder.stem, "find": {"cgroup": f"system.slice/{folder.name}"}} for folder in folders]
    with closing(Fire(write_configuration(tmp_path, period="10ms", statsTimeout="5ms", tasks=tasks))) as fire:
        agent = fire.agent()
        until(
            lambda: all(settings(folder) != was for folder, was in zip(folders, before, strict=True)),
            "changes",
            fire.said,
        )
        os.kill(agent, end)
        assert fire.ended() == (0 if end is signal.SIGTERM else -signal.SIGKILL), fire.said()
        until(
            lambda: all(same(settings(folder), was) for folder, was in zip(folders, before, strict=True)),
            "the groups to be as before",
            fire.said,
        )
        until(lambda: not fire.state.exists(), "the state file to go", fire.said)

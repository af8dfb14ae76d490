"""Who is who in /proc: trees, names that look like anything, ports."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from flowsched_agent.sensors.process import (
    pid_of_port,
    processes,
    read_process,
    start_time,
    threads,
    tree,
)
from flowsched_agent.system import System

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def test_a_process_and_its_threads(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100, (101,), parent=7, group=90, session=80, start=4242)
    found = read_process(machine, 100)
    assert found is not None
    assert (found.pid, found.parent, found.group, found.session, found.start) == (100, 7, 90, 80, 4242)
    assert threads(machine, 100) == [100, 101]
    assert start_time(machine, 100) == 4242


def test_what_is_gone_is_none(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    assert read_process(machine, 100) is None
    assert start_time(machine, 100) is None
    assert threads(machine, 100) == []


def test_a_zombie_has_ended(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100)
    machine.state(100, "Z")
    assert start_time(machine, 100) is None
    assert 100 not in [process.pid for process in processes(machine)]


@pytest.mark.parametrize("name", ["a) S 1 2 3", "(sd-pam)", "tmux: server", "", ") R ("])
def test_names_may_hold_anything(tmp_path: Path, name: str) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100, name=name, parent=5)
    found = read_process(machine, 100)
    assert found is not None
    assert (found.name, found.parent, found.start) == (name, 5, 1000)


def test_a_tree_has_descendants_and_those_that_were_left_behind(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100)
    machine.spawn(110, parent=100, group=100, session=100)
    machine.spawn(111, parent=110, group=111, session=100)
    machine.spawn(120, parent=1, group=100, session=100)
    machine.spawn(121, parent=120, group=121, session=121)
    machine.spawn(130, parent=1)
    assert sorted(process.pid for process in tree(machine, 100)) == [100, 110, 111, 120, 121]
    assert tree(machine, 100)[0].pid == 100
    assert [process.pid for process in tree(machine, 110)] == [110, 111]
    machine.end(100)
    assert sorted(process.pid for process in tree(machine, 100)) == [110, 111, 120, 121]


def test_a_member_of_a_shared_session_does_not_take_all_of_it(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(90)
    machine.spawn(100, parent=90, group=90, session=90)
    machine.spawn(101, parent=90, group=90, session=90)
    assert [process.pid for process in tree(machine, 100)] == [100]


def test_by_port(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100, start=500)
    machine.spawn(90, start=900)
    rest = "00000000:00000000 00:00000000 00000000     0        0"
    listens = f"   0: 0100007F:2BCB 00000000:0000 0A {rest} 777 1 00 100 0 0 10 0\n"
    talks = f"   1: 0100007F:2BCC 0100007F:2BCB 01 {rest} 778 1 00 100 0 0 10 0\n"
    six = listens.replace("0100007F:", "0" * 32 + ":").replace("2BCB", "2BCD").replace("777", "779")
    (machine.proc / "net").mkdir()
    (machine.proc / "net/tcp").write_text(HEAD + listens + talks)
    (machine.proc / "net/tcp6").write_text(HEAD + six)
    for pid, inode in ((100, 777), (90, 777), (100, 778), (90, 779)):
        (machine.proc / str(pid) / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")
    assert pid_of_port(machine, 11211) == 100
    assert pid_of_port(machine, 11212) is None
    assert pid_of_port(machine, 11213) == 90
    assert pid_of_port(machine, 1) is None


def test_a_real_port_is_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert pid_of_port(System(), server.getsockname()[1]) == os.getpid()


def test_this_process_is_found() -> None:
    system = System()
    found = read_process(system, os.getpid())
    assert found is not None
    assert found.parent == os.getppid()
    assert found.session == os.getsid(0)
    assert os.getpid() in threads(system, os.getpid())
    assert os.getpid() in [process.pid for process in processes(system)]

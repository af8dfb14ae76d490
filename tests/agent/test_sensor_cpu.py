"""CPU times: made-up ones exactly, real ones as far as no timing decides."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from flowsched_agent.sensors.cpu import CoreTimes, UsedCpu, process_cpu_s
from flowsched_agent.sensors.process import read_process
from flowsched_agent.system import System


def test_the_sum_of_all_threads(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100, (101, 102))
    assert process_cpu_s(machine, 100) == pytest.approx(303_000e-9, rel=1e-12)
    assert process_cpu_s(machine, 999) is None


def test_what_has_ended_stays_counted_and_a_recycled_number_counts_anew(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100, (101,))
    machine.spawn(110)
    used = UsedCpu(machine)
    members = [process for pid in (100, 110) if (process := read_process(machine, pid)) is not None]
    assert used.read(members) == pytest.approx(311_000e-9)
    machine.end(110)
    assert used.read(members) == pytest.approx(311_000e-9)
    machine.spawn(110, start=99999)
    (machine.proc / "110/task/110/schedstat").write_text("5000000 0 1\n")
    assert used.read(members) == pytest.approx(311_000e-9)
    later = read_process(machine, 110)
    assert later is not None
    assert used.read([later]) == pytest.approx(311_000e-9 + 5e-3)


def test_busy_time_of_cores_leaves_idle_and_guest_out(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none", cores="0,2")
    ticks = os.sysconf("SC_CLK_TCK")
    cores = CoreTimes(machine)
    # user 10, system 5, irq 1, softirq 1, steal 2; guest 3 is in user.
    assert cores.read() == (19 / ticks, 0.0, 19 / ticks)
    (machine.proc / "stat").write_text("cpu  1 2 3\ncpu0 11 0 5 500 9 1 1 2 3 0\nintr 5\n")
    assert cores.read() == (20 / ticks, 0.0, 19 / ticks)


def test_busy_time_never_shrinks(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none", cores="0")
    cores = CoreTimes(machine)
    before = cores.read()
    (machine.proc / "stat").write_text("cpu0 1 0 1 500 9 1 1 2 3 0\n")
    assert cores.read() == before


def test_a_real_process_that_works_and_one_that_sleeps() -> None:
    system = System()
    worker = "import sys\nx = sum(i * i for i in range(300000))\nprint('done', flush=True)\nsys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        first = int((system.proc / str(process.pid) / "schedstat").read_text().split()[0]) * 1e-9
        used = process_cpu_s(system, process.pid)
        assert used is not None
        assert used >= first > 0.005
    finally:
        process.kill()
        process.wait()
    assert process_cpu_s(system, process.pid) is None


def test_threads_that_have_ended_count_for_a_real_process() -> None:
    system = System()
    before = process_cpu_s(system, os.getpid())
    assert before is not None

    def work() -> None:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    after = process_cpu_s(system, os.getpid())
    assert after is not None
    assert after - before >= 0.05


def test_real_cores_are_all_there() -> None:
    found = CoreTimes(System()).read()
    assert len(found) >= len(os.sched_getaffinity(0))
    assert sum(found) > 0

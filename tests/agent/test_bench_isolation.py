"""The measurement on the machine at hand: what it prints, what it leaves, and how the classes compare where allowed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import native
from benchmarks.bench_isolation import REFUSED, bench_isolation
from benchmarks.isolation_bench.bench import measure, objection, remove_left_over
from benchmarks.isolation_bench.measured import BenchError, Measured, measured, median_of
from benchmarks.isolation_bench.setting import SETTINGS, CriticalTask
from benchmarks.isolation_bench.workers import Program, Worker, find_program
from flowsched_agent.controls.detected import Ability, Detected, detect
from flowsched_agent.controls.own_group import PARENT
from flowsched_agent.system import System
from flowsched_models.document import InputError
from requirements_on_machine import cgroups, give_up

SCHED_DEADLINE = 6
"""`sched(7)`; Python has no name for it."""


@pytest.fixture(scope="module")
def detected() -> Detected:
    return detect()


def python_program() -> Program:
    source = Path(sys.modules["benchmarks.isolation_bench.workers"].__file__ or "").with_name("slow_worker.py")
    return Program((sys.executable, "-I", "-S", "-c", source.read_text("utf-8")))


def programs() -> Iterator[Program]:
    yield python_program()
    if native.compiler() is not None:
        yield find_program()


def our_groups() -> list[Path]:
    return cgroups(f"{PARENT}/isolation-*")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Figures


def test_figures_of_a_run_by_hand() -> None:
    """Jobs of 4 ms in 10 ms; windows of 100 ms."""
    response = [4_000_000] * 18 + [5_000_000, 12_000_000]
    found = measured("any", response, [40_000_000, 42_000_000, 38_000_000], 4_000, 10_000, 100_000)
    assert found.mean == pytest.approx(40.0)
    assert found.deviation == pytest.approx(2.0)
    assert found.mean_delay_ms == pytest.approx(9.0 / 20)
    assert (found.p95_delay_ms, found.max_delay_ms) == (pytest.approx(8.0), pytest.approx(8.0))
    assert (found.jobs, found.late_jobs) == (20, 1)


def test_repetitions_are_summed_up_by_medians() -> None:
    one = Measured("s", 40.0, 1.0, 0.1, 0.2, 0.3, 100, 0)
    runs = [one, replace(one, deviation=9.0, late_jobs=5), replace(one, deviation=2.0, mean_delay_ms=0.5)]
    found = median_of(runs)
    assert (found.deviation, found.mean_delay_ms) == (2.0, 0.1)
    assert (found.jobs, found.late_jobs) == (300, 5)


# Workers


@pytest.mark.parametrize("program", tuple(programs()), ids=lambda p: Path(p.command[0]).name[:6])
def test_a_worker_uses_the_cpu_time_that_it_is_told_to(program: Program) -> None:
    with Worker(program, ["critical", "2000000", "10000000", "30", "100000000", "0"]) as worker:
        worker.begin()
        response, used = worker.numbers("jobs", 60.0), worker.numbers("windows", 60.0)
    assert (len(response), len(used)) == (30, 3)
    assert min(response) >= 2_000_000
    # Late jobs shift work to later windows, and after the last.
    assert sum(used) <= 30 * 2_000_000 * 1.5


def test_a_worker_ends_with_its_parent() -> None:
    program = next(iter(programs()))
    code = (
        "import os, sys, time\n"
        "from benchmarks.isolation_bench.workers import Program, Worker\n"
        "w = Worker(Program(tuple(sys.argv[1:])), ['hog'])\n"
        "w.begin()\n"
        "print(w.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, *program.command], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert alive(worker)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 20
    while alive(worker) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(worker)


def test_a_worker_that_cannot_start_is_said() -> None:
    with pytest.raises(BenchError, match="could not be started"):
        Worker(Program(("/no/such/program",)), ["hog"])
    with pytest.raises(BenchError, match="did not get ready"):
        Worker(Program(("/bin/true",)), ["hog"])


# Refusals


def test_every_refusal_has_its_reason(detected: Detected) -> None:
    nothing = replace(
        detected,
        online=(0, 1),
        controllers={**detected.controllers, "cpu": Ability(False, "it is not mounted")},
        fifo=Ability(False, "EPERM"),
        deadline=Ability(False, "EPERM"),
    )
    assert "it is not mounted" in (objection(SETTINGS["equal"], nothing) or "")
    assert "SCHED_DEADLINE is refused" in (objection(SETTINGS["deadline"], nothing) or "")
    assert "SCHED_FIFO is refused" in (objection(SETTINGS["fifo"], nothing) or "")
    assert "one core only" in (objection(SETTINGS["fifo"], replace(nothing, online=(0,))) or "")
    everything = replace(nothing, deadline=Ability(True))
    assert objection(SETTINGS["deadline"], everything) is None


def test_a_machine_that_allows_nothing_ends_with_sentences(detected: Detected, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = replace(
        detected,
        controllers={**detected.controllers, "cpu": Ability(False, "no")},
        fifo=Ability(False, "EPERM"),
        deadline=Ability(False, "EPERM"),
    )
    monkeypatch.setattr("benchmarks.bench_isolation.detect", lambda *_: nothing)
    monkeypatch.setattr("benchmarks.bench_isolation.find_program", python_program)
    found = CliRunner().invoke(bench_isolation, ["--setting", "deadline", "--setting", "equal", "--json"])
    assert found.exit_code == REFUSED
    outcome = json.loads(found.stdout)
    assert set(outcome["refused"]) == {"deadline", "equal"}
    assert outcome["table"] == []
    assert "refused: deadline: " in found.stderr


def test_bad_options_are_said_at_once() -> None:
    found = CliRunner().invoke(bench_isolation, ["--runtime", "9.5ms", "--setting", "dedline", "--setting", "x"])
    assert isinstance(found.exception, InputError)
    assert len(found.exception.problems) == 3
    assert "did you mean 'deadline'" in str(found.exception)


def test_empty_groups_of_a_killed_measurement_are_removed(tmp_path: Path, detected: Detected) -> None:
    """Beside them: one that holds a process, one of the agent's own, and a file."""
    root = tmp_path / "cpu"
    for name, inside in (("isolation-critical.12", ""), ("isolation-background.13", "77\n"), ("job.5", "")):
        folder = root / PARENT / name
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(inside, encoding="utf-8")

    class Tree(System):
        def remove_folder(self, path: Path) -> None:
            """The files of a cgroup vanish with it."""
            if path.name != PARENT:
                (path / "cgroup.procs").unlink()
            path.rmdir()

    said: list[str] = []
    found = replace(detected, hierarchies=replace(detected.hierarchies, v2=None, v1={"cpu": root}))
    remove_left_over(Tree(), found, said.append)
    assert sorted(path.name for path in (root / PARENT).iterdir()) == ["isolation-background.13", "job.5"]
    assert len(said) == 1


# On this machine


def test_a_measurement_leaves_nothing_behind_when_it_is_ended(detected: Detected) -> None:
    """SIGTERM in the middle of a run."""
    if reason := objection(SETTINGS["equal"], detected):
        give_up(reason)
    code = "from benchmarks.bench_isolation import bench_isolation\nbench_isolation()"
    arguments = ["--setting", "equal", "--seconds", "60", "--repeat", "1"]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not our_groups() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        groups = our_groups()
        assert groups
        time.sleep(0.5)
        inside = [
            int(pid)
            for group in groups
            for pid in (group / "cgroup.procs").read_text(encoding="utf-8").split()
            if group.exists()
        ]
        os.kill(process.pid, signal.SIGTERM)
        process.wait(30)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
    assert not [pid for pid in inside if alive(pid)]
    assert not [group for group in groups if group.exists()]


def children() -> set[int]:
    """Child processes of ours."""
    path = Path("/proc/self/task").joinpath(str(os.getpid()), "children")
    return set(map(int, path.read_text(encoding="utf-8").split()))


class Watching(System):
    """Notes, while everything runs, the scheduling class of each process of the measurement, and the groups made."""

    def __init__(self) -> None:
        super().__init__()
        self.policies: list[int] = []
        self.groups: list[str] = []
        self.before = children()
        """Processes of other tests that this one goes on having."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        workers = children() - self.before
        self.policies = [os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK for pid in workers if alive(pid)]
        self.groups = sorted(group.name.partition(".")[0] for group in our_groups())


@pytest.mark.parametrize(
    ("setting", "reserved", "groups"),
    [("equal", 0, {"isolation-background", "isolation-critical"}), ("deadline", 1, {"isolation-background"})],
)
def test_what_is_measured_is_the_setting_that_was_asked_for(
    setting: str, reserved: int, groups: set[str], detected: Detected
) -> None:
    """What delay either leaves depends on what else the host runs: the command tells it, no test."""
    if reason := objection(SETTINGS[setting], detected):
        give_up(reason)
    program = find_program()
    if program.note:
        give_up(program.note)
    task = CriticalTask(seconds=1.0)
    watching = Watching()
    run = measure(watching, detected, program, SETTINGS[setting], task)
    assert len(watching.policies) == 1 + 2 * len(detected.online)
    assert watching.policies.count(SCHED_DEADLINE) == reserved
    assert set(watching.policies) <= {os.SCHED_OTHER, SCHED_DEADLINE}
    if detected.own_groups:
        assert groups <= {re.sub(r"-\d+$", "", name) for name in watching.groups}
    assert (run.setting, run.jobs) == (setting, task.jobs)
    assert run.mean_delay_ms <= run.max_delay_ms
    assert our_groups() == []

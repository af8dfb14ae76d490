"""Measuring one's own job with programs of this machine: their times, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_machines import rows

from flowsched_models.commands.measure import measure
from flowsched_models.document import InputError
from flowsched_models.measuring import process_runner
from flowsched_models.measuring.aggressor import AGGRESSORS
from flowsched_models.measuring.clock import MachineClock
from flowsched_models.measuring.process_runner import ProcessRunner
from flowsched_models.measuring.runner import Disturbance, Program
from flowsched_models.profiles import load_catalogue
from requirements_on_machine import needs

SPIN = "import time\nend = time.process_time() + {cpu_s}\nwhile time.process_time() < end: pass"


def spin(cpu_s: float) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", SPIN.format(cpu_s=cpu_s))


@pytest.fixture
def runner(tmp_path: Path) -> ProcessRunner:
    return ProcessRunner(MachineClock(), None, tmp_path)


@pytest.fixture
def core() -> int:
    return min(os.sched_getaffinity(0))


def processes(mark: str) -> list[int]:
    """Processes with a text in their command line, this one apart."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(int(entry.name))
    return found


def processes_in(folder: Path) -> list[int]:
    """Processes that were started in a folder, this one apart. Workers of stress-ng change their names."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid() and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return found


def await_that(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true within 30 s")


def test_a_program_is_pinned_timed_and_weighed(runner: ProcessRunner, core: int) -> None:
    code = f"import os; assert os.sched_getaffinity(0) == {{{core}}}; x = bytearray(80 << 20)\n" + SPIN.format(
        cpu_s=0.3
    )
    ballast = bytearray(b"x") * (150 << 20)
    outcome = runner.run([Program((sys.executable, "-S", "-c", code), (core,))], None, 60)
    (ended,) = outcome.programs
    assert ended.exit_code == 0, ended.said
    assert ended.user_s + ended.sys_s >= 0.3
    assert ended.real_s >= 0.99 * (ended.user_s + ended.sys_s)
    assert 80 <= ended.max_rss_mib < 130, "the memory of this process does not count"
    assert len(ballast) == 150 << 20


def test_a_program_that_fails_says_its_last_words(runner: ProcessRunner, core: int) -> None:
    code = "import sys; print('first', file=sys.stderr); sys.exit('out of luck')"
    (ended,) = runner.run([Program((sys.executable, "-c", code), (core,))], None, 60).programs
    assert (ended.exit_code, ended.said) == (1, "out of luck")
    killed = "import os; os.kill(os.getpid(), 9)"
    assert runner.run([Program((sys.executable, "-c", killed), (core,))], None, 60).programs[0].exit_code == -9
    missing = runner.run([Program(("/no/such/program",), (core,))], None, 60)
    assert missing.trouble == "it cannot be started: No such file or directory"


LEAVE = """
import os, subprocess, sys, time
sleeper = [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]]
subprocess.Popen(sleeper)
subprocess.Popen(sleeper, process_group=0)
open(sys.argv[1], "w").close()
time.sleep(float(sys.argv[2]))
"""


def test_nothing_outlives_its_run(runner: ProcessRunner, core: int, tmp_path: Path) -> None:
    mark = str(tmp_path / "started")

    def leaving(seconds: float) -> Program:
        return Program((sys.executable, "-c", LEAVE, mark, str(seconds)), (core,))

    assert runner.run([leaving(0)], None, 60).programs[0].exit_code == 0
    assert processes(mark) == []
    outcome = runner.run([leaving(1000), leaving(0)], None, 2)
    assert (outcome.trouble, outcome.too_long) == ("it took longer than 2 s and was ended", True)
    assert processes(mark) == []


MAIN = "import sys; from flowsched.cli import main; sys.argv[0] = 'flowsched'; main()"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_outlives_measure(tmp_path: Path, number: signal.Signals) -> None:
    mark, data = tmp_path / "started", tmp_path / "data"
    options = ["--job", "j", "--out", str(data), "--no-interference", "--no-sharing", "--threads", "1", "--rest", "0"]
    waits = f"import os, sys\nif os.path.exists({str(data / 'threads.csv')!r}):\n " + LEAVE.replace("\n", "\n ")
    program = ["--", sys.executable, "-c", waits, str(mark), "1000"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", MAIN, "measure", *options, *program], stderr=subprocess.PIPE, text=True
    ) as process:
        # The warm-up and the first run end at once; the second run starts others and waits.
        await_that(mark.exists)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    await_that(lambda: processes(str(mark)) == [])
    assert [r["run"] for r in rows(data, "threads")] == ["1"]
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert f"1 of 3 runs are in {data}; the same command with --resume goes on behind them" in said
        assert (data / "machine.yaml").exists()


def test_the_command_measures_and_goes_on_only_when_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ["--job", "spin", "--out", str(data), "--no-interference", "--threads", "1", "--rest", "0"]

    def call(*more: str, cpu_s: float = 0.05) -> tuple[int, str]:
        try:
            done = CliRunner().invoke(measure, [*options, *more, "--", *spin(cpu_s)], standalone_mode=False)
        except InputError as error:  # pragma: no cover
            return 2, str(error)
        if isinstance(done.exception, InputError):
            return 2, str(done.exception)
        assert done.exception is None, done.exception
        return int(done.return_value), done.output

    code, said = call("--dry-run")
    assert code == 0
    assert "then 6 runs, 3 of each" in said
    assert not data.exists()
    code, said = call("--runs", "1", "--machine-type", "lab")
    assert code == 0
    assert "2 of 2 runs are in" in said
    assert [r["schedule"] for r in rows(data, "executions")] == ["spin-shared-on-lab"] * 2
    assert rows(data, "machines")[0]["machine_type"] == "lab"
    assert load_catalogue(extra=[data / "machine.yaml"]).machine_types["lab"].vcpus >= 1
    before = (data / "threads.csv").read_bytes()
    code, said = call("--runs", "2", "--machine-type", "lab")
    assert (code, "2 of these runs of job 'spin' on 'lab' are here already; go on behind them: --resume" in said) == (
        2,
        True,
    )
    code, said = call("--runs", "2", "--machine-type", "lab", "--resume", cpu_s=0.06)
    assert (code, "was measured as another program" in said) == (2, True)
    assert call("--runs", "2", "--machine-type", "lab", "--resume", "--dry-run", cpu_s=0.06) == (code, said)
    assert (data / "threads.csv").read_bytes() == before
    assert call("--runs", "2", "--machine-type", "lab", "--resume")[0] == 0
    assert [r["run"] for r in rows(data, "threads")] == ["1", "2"]
    assert (data / "threads.csv").read_bytes().startswith(before)


def test_a_program_that_fails_at_once_is_the_users_to_mend(tmp_path: Path) -> None:
    options = ["--job", "j", "--out", str(tmp_path / "d"), "--no-interference", "--threads", "1"]
    done = CliRunner().invoke(measure, [*options, "--", sys.executable, "-c", "raise SystemExit('no input')"])
    assert isinstance(done.exception, InputError)
    assert "exit code 1 (no input)" in done.output
    assert not (tmp_path / "d" / "machine.yaml").exists()


LOOK_BESIDE = """
import os, time
here = os.getcwd()
end = time.monotonic() + 30
seen = set()
works = False
while not works and time.monotonic() < end:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            aggressor = open(f"/proc/{pid}/comm").read().strip()
            if aggressor.startswith("stress-ng") and os.readlink(f"/proc/{pid}/cwd") == here:
                times = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[11:13]
                if aggressor == "stress-ng" or sum(map(int, times)) * 10 >= os.sysconf("SC_CLK_TCK"):
                    works = works or aggressor != "stress-ng"
                    seen.add(tuple(sorted(os.sched_getaffinity(int(pid)))))
        except OSError:
            continue
    time.sleep(0.01)
with open("seen", "w") as file:
    file.write(repr((tuple(sorted(os.sched_getaffinity(0))), sorted(seen))))
"""
"""Writes down its own CPUs, and those of the aggressor that runs in the same folder once its worker has had a tenth of a
second of CPU: a worker may choose its CPUs itself.
"""


@pytest.mark.parametrize("kind", AGGRESSORS)
def test_aggressors_run_beside_the_program_and_end_with_it(
    kind: str, tmp_path: Path, core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process_runner, "LEAD_S", 0.0)  # the program waits for the aggressor itself
    runner = ProcessRunner(MachineClock(), needs("stress-ng", "to disturb a program on purpose"), tmp_path)
    place = core if AGGRESSORS[kind].same_core else max(os.sched_getaffinity(0))
    program = Program((sys.executable, "-S", "-c", LOOK_BESIDE), (core,))
    outcome = runner.run([program], Disturbance(AGGRESSORS[kind], place), 60)
    assert outcome.trouble == ""
    (ended,) = outcome.programs
    assert ended.exit_code == 0
    assert Path("seen").read_text() == repr(((core,), [(place,)]))
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_aggressor_outlives_measure(tmp_path: Path, number: signal.Signals) -> None:
    needs("stress-ng", "to disturb a program on purpose")
    options = ["--job", "j", "--out", "data", "--interference", "cpu", "--no-sharing", "--threads", "1", "--rest", "0"]
    # The warm-up, the thread sweep and the reference end at once; the run beside the aggressor waits.
    waits = "import os, time\nif os.path.exists('data/interference.csv'): open('started', 'w'); time.sleep(1000)"
    command = [sys.executable, "-P", "-c", MAIN, "measure", *options, "--", sys.executable, "-c", waits]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        await_that((tmp_path / "started").exists)
        assert len(processes_in(tmp_path)) >= 6, "measure, two starters, the program, stress-ng and its worker"
        process.send_signal(number)
        process.wait(timeout=60)
    await_that(lambda: processes_in(tmp_path) == [])
    assert [r["interference"] for r in rows(tmp_path / "data", "interference")] == ["none"]


def test_an_aggressor_that_cannot_run_is_told(tmp_path: Path, core: int) -> None:
    stress_ng = needs("stress-ng", "to disturb a program on purpose")
    unknown = replace(AGGRESSORS["cpu"], stressor=("--no-such-stressor", "1"))
    outcome = ProcessRunner(MachineClock(), stress_ng, tmp_path).run(
        [Program(spin(0.1), (core,))], Disturbance(unknown, core), 60
    )
    assert outcome.programs == ()
    assert outcome.trouble.startswith("stress-ng ended before the program did: ")

"""Measuring one's own job: which runs, what stands in the tables, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowsched_models.commands.measure import measure
from flowsched_models.document import InputError
from flowsched_models.measurements.load import load_measurements
from flowsched_models.measuring.aggressor import AGGRESSORS
from flowsched_models.measuring.clock import MachineClock
from flowsched_models.measuring.machine_entry import earlier_types, write_machine
from flowsched_models.measuring.measured_row import Subject
from flowsched_models.measuring.measurement import Account, Measurement
from flowsched_models.measuring.process_runner import ProcessRunner
from flowsched_models.measuring.remaining_time import in_words
from flowsched_models.measuring.request import check_request
from flowsched_models.measuring.run_plan import RunPlan, Table, default_threads, plan_runs
from flowsched_models.measuring.runner import Disturbance, Ended, Outcome, Program
from flowsched_models.measuring.tables import COLUMNS, Tables
from flowsched_models.measuring.topology import Topology, read_topology
from flowsched_models.output import write_whole_bytes
from flowsched_models.profiles import load_catalogue
from requirements_on_machine import needs

FOUR = Topology(cores=(0, 1, 2, 3), siblings=((0,), (1,), (2,), (3,)), caches=((0, 1, 2, 3),), memory_mib=8000)
SMT = replace(FOUR, siblings=((0, 2), (1, 3)))
SUBJECT = Subject("sort", "lab-4")
GOOD = Ended(100.0, 110.0, 0, 9.5, 0.25, 33.3)


def machine(root: Path, siblings: Sequence[str], caches: Sequence[str], governor: str = "") -> Path:
    """The files in which Linux describes a machine; one entry per CPU."""
    cpus = root / "sys/devices/system/cpu"
    files = {cpus / "online": f"0-{len(siblings) - 1}", root / "proc/meminfo": "MemTotal:        8388608 kB\nX: 1 kB"}
    for k, (shared, cache) in enumerate(zip(siblings, caches, strict=True)):
        files[cpus / f"cpu{k}/topology/thread_siblings_list"] = shared
        files[cpus / f"cpu{k}/cache/index0/level"] = "1"
        files[cpus / f"cpu{k}/cache/index0/shared_cpu_list"] = shared
        files[cpus / f"cpu{k}/cache/index3/level"] = "3"
        files[cpus / f"cpu{k}/cache/index3/shared_cpu_list"] = cache
        if governor:
            files[cpus / f"cpu{k}/cpufreq/scaling_governor"] = governor
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_one_thread_of_every_physical_core_comes_first(tmp_path: Path) -> None:
    halves = machine(tmp_path / "a", ["0,4", "1,5", "2,6", "3,7"] * 2, ["0-7"] * 8)
    pairs = machine(tmp_path / "b", ["0-1", "0-1", "2-3", "2-3"], ["0-3"] * 4)
    assert read_topology(halves, range(8)).physical_first() == (0, 1, 2, 3, 4, 5, 6, 7)
    topology = read_topology(pairs, range(4))
    assert topology.physical_first() == (0, 2, 1, 3)
    assert (topology.vcpus, topology.smt, topology.halves, topology.memory_mib) == (4, True, False, 8192)
    assert read_topology(pairs, [1, 2, 3]).physical_first() == (1, 2, 3)


def test_the_other_core_shares_the_cache_and_not_the_physical_core(tmp_path: Path) -> None:
    sockets = machine(tmp_path / "a", ["0,4", "1,5", "2,6", "3,7"] * 2, ["0,2,4,6", "1,3,5,7"] * 4)
    assert read_topology(sockets, range(8)).other(0) == 2
    assert read_topology(sockets, [0, 1, 4]).other(0) == 1, "another cache is better than the same physical core"
    assert read_topology(sockets, [0, 4]).other(0) == 4
    assert read_topology(sockets, [0]).other(0) is None


def test_a_machine_that_tells_nothing_is_taken_as_simple(tmp_path: Path) -> None:
    topology = read_topology(tmp_path, [0, 1])
    assert (topology.siblings, topology.caches) == (((0,), (1,)), ((0, 1),))
    assert list(topology.warnings()) == []


def test_what_makes_times_unsteady_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path, ["0-1", "0-1", "2-3", "2-3"], ["0-3"] * 4, governor="powersave")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text("150000 100000\n")
    said = " ".join(read_topology(root, range(4)).warnings())
    assert "'powersave'" in said
    assert "the time of 1.5 CPUs" in said
    assert "not numbered k and k + vcpus/2" in said


def test_the_sweep_has_as_many_cores_as_threads() -> None:
    plan = plan_runs(SMT, [1, 2, 4, 8], [], runs=1, sharing=False)
    assert [str(r.setup) for r in plan.runs] == [
        "1 thread on core 0",
        "2 threads on cores 0-1",
        "4 threads on cores 0-3",
        "8 threads on cores 0-3",
    ]
    assert default_threads(FOUR) == (1, 2, 4)
    assert default_threads(replace(FOUR, cores=(0, 1, 2))) == (1, 2, 3)


def test_aggressors_on_the_core_and_beside_it() -> None:
    plan = plan_runs(FOUR, [1], list(AGGRESSORS), runs=1)
    places = {r.setup.interference: r.setup.aggressor_core for r in plan.runs if r.setup.table is Table.INTERFERENCE}
    assert places == {"none": None, "cpu": 0, "l1d": 0, "l1i": 0, "l2": 0, "llc": 1, "membw": 1}
    assert plan.notes == ("two copies beside each other are left out: they need two cores",)


def test_what_a_machine_cannot_show_is_said() -> None:
    one = plan_runs(replace(FOUR, cores=(0,)), [1], ["cpu", "llc"], runs=1, sharing=False)
    assert [r.setup.interference for r in one.runs[1:]] == ["none", "cpu"]
    assert one.notes == ("llc is left out: it needs a second core, and there is only core 0 to use",)
    (note,) = plan_runs(replace(SMT, cores=(0, 2)), [1], ["llc"], runs=1, sharing=False).notes
    assert note.startswith("llc runs on core 2, a hardware thread of the program's core")


def test_two_copies_on_the_same_cores_and_apart_on_whole_physical_cores() -> None:
    pairs = [r.setup for r in plan_runs(SMT, [4], [], runs=1).runs if r.setup.table is Table.EXECUTIONS]
    assert [[(c.threads, c.cores) for c in s.copies] for s in pairs] == [
        [(4, (0, 1, 2, 3)), (4, (0, 1, 2, 3))],
        [(2, (0, 2)), (2, (1, 3))],
    ]
    assert [s.bounds for s in pairs] == [(0.5, 2.0), (0.5, 1.0)]


def test_rounds_go_over_all_setups() -> None:
    plan = plan_runs(FOUR, [1, 2], ["llc"], runs=3)
    assert [r.number for r in plan.runs] == [1] * 6 + [2] * 6 + [3] * 6
    assert len({(r.setup, r.number) for r in plan.runs}) == 18
    low, high, rest_s = plan.bounds(2.0)
    assert 0 < low < high
    assert rest_s == 36


class FakeClock:
    """Time passes only by waiting and by runs."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


class FakeRunner:
    """Programs that take 100 s on one thread, half as much on two, and 3 s more in every later run."""

    def __init__(self, clock: FakeClock, event: Callable[[int], Outcome | None] = lambda _: None) -> None:
        self.clock = clock
        self.event = event
        self.calls: list[tuple[Sequence[Program], Disturbance | None]] = []

    def run(self, programs: Sequence[Program], disturbance: Disturbance | None, limit_s: float) -> Outcome:
        self.calls.append((programs, disturbance))
        if (special := self.event(len(self.calls))) is not None:
            return special
        start_s = self.clock.now()
        took = [100.0 / len(p.cores) * (2 if disturbance else 1) * (1 + k / 10) for k, p in enumerate(programs)]
        self.clock.sleep(max(took))
        ends = (Ended(start_s, start_s + t, 0, t * 0.9, 0.125, 64.0) for t in took)
        return Outcome(tuple(ends), other_cpus=0.004)


def measured(
    folder: Path,
    plan: RunPlan | None = None,
    event: Callable[[int], Outcome | None] = lambda _: None,
    said: list[str] | None = None,
    redo: bool = False,
) -> tuple[Account, FakeRunner]:
    clock = FakeClock()
    runner = FakeRunner(clock, event)
    measurement = Measurement(
        plan or plan_runs(FOUR, [1, 2], ["llc"], runs=2),
        SUBJECT,
        ["sort", "-j{threads}", "{x}", "out-{copy}"],
        Tables(folder),
        runner,
        clock,
        rest_s=2.0,
        limit_s=500.0,
        say=(said if said is not None else []).append,
        redo=redo,
    )
    return measurement.run(), runner


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_run_ends_in_its_table(tmp_path: Path) -> None:
    account, runner = measured(tmp_path)
    assert (account.done, account.planned, account.failures, account.noisy) == (12, 12, [], 0)
    assert len(runner.calls) == 13, "one warm-up"
    assert rows(tmp_path, "threads")[0] == {
        "job": "sort",
        "machine_type": "lab-4",
        "threads": "1",
        "cores": "1",
        "run": "1",
        "real_s": "100.000",
        "user_s": "90.000",
        "sys_s": "0.125",
        "max_rss_mib": "64.0",
        "other_cpus": "0.00",
    }
    assert [(r["interference"], r["run"], r["real_s"]) for r in rows(tmp_path, "interference")] == [
        ("none", "1", "100.000"),
        ("llc", "1", "200.000"),
        ("none", "2", "100.000"),
        ("llc", "2", "200.000"),
    ]
    executions = [(r["schedule"], r["run"], r["cores"], r["start_s"], r["end_s"]) for r in rows(tmp_path, "executions")]
    assert executions[:4] == [
        ("sort-shared-on-lab-4", "1", "0-1", "0.000", "50.000"),
        ("sort-shared-on-lab-4", "1", "0-1", "0.000", "55.000"),
        ("sort-beside-on-lab-4", "1", "0", "0.000", "100.000"),
        ("sort-beside-on-lab-4", "1", "1", "0.000", "110.000"),
    ]


def test_calibrate_reads_what_measure_writes(tmp_path: Path) -> None:
    measured(tmp_path)
    read = load_measurements(tmp_path)
    assert [(t.job, t.machine_type, t.threads, t.cores, t.real_s) for t in read.thread_times[:2]] == [
        ("sort", "lab-4", 1, 1, 100.0),
        ("sort", "lab-4", 2, 2, 50.0),
    ]
    assert {t.interference for t in read.interference_times} == {"none", "llc"}
    assert [len(run.executions) for run in read.runs] == [2, 2, 2, 2]


def test_the_program_is_told_its_threads_and_copy(tmp_path: Path) -> None:
    _, runner = measured(tmp_path)
    commands = [p for programs, _ in runner.calls for p in programs]
    assert commands[0].command == ("sort", "-j2", "{x}", "out-1")
    assert commands[0].environment == {"OMP_NUM_THREADS": "2", "FLOWSCHED_THREADS": "2", "FLOWSCHED_COPY": "1"}
    assert {p.environment["FLOWSCHED_COPY"] for p in commands} == {"1", "2"}
    assert all(p.environment["FLOWSCHED_COPY"] == p.command[3][-1] for p in commands)


def test_a_failed_run_is_named_and_has_no_row(tmp_path: Path) -> None:
    killed = replace(GOOD, exit_code=-9)
    broken = replace(GOOD, exit_code=3, said="no space left")
    events = {
        2: Outcome((broken,)),
        6: Outcome((GOOD, killed)),
        8: Outcome((), "stress-ng ended before the program did"),
    }
    account, _ = measured(tmp_path, event=events.get)
    assert account.failures == [
        "1 thread on core 0, run 1: exit code 3 (no space left)",
        "two copies: 2 threads on cores 0-1 and 2 threads on cores 0-1, run 1: it was ended by signal 9",
        "1 thread on core 0, run 2: stress-ng ended before the program did",
    ]
    assert account.done == 9
    assert [(r["threads"], r["run"]) for r in rows(tmp_path, "threads")] == [("2", "1"), ("2", "2")]
    assert [(r["schedule"], r["run"]) for r in rows(tmp_path, "executions") if "shared" in r["schedule"]] == [
        ("sort-shared-on-lab-4", "2")
    ] * 2


def test_what_takes_too_long_is_not_tried_again(tmp_path: Path) -> None:
    late = Outcome((), "it took longer than 500 s and was ended", too_long=True)
    account, runner = measured(tmp_path, event={5: late}.get)
    assert len(runner.calls) == 12
    assert [f.partition(": ")[2] for f in account.failures] == [
        "it took longer than 500 s and was ended",
        "not tried, because an earlier one took too long",
    ]


def test_nothing_is_measured_after_a_warm_up_that_failed(tmp_path: Path) -> None:
    account, runner = measured(tmp_path, event={1: Outcome((replace(GOOD, exit_code=1, said="bad option"),))}.get)
    assert (account.warmed_up, account.done, len(runner.calls)) == (False, 0, 1)
    assert account.failures == ["warm-up (2 threads on cores 0-1): exit code 1 (bad option)"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("interrupted", range(2, 14))
def test_an_interrupt_keeps_finished_runs_and_the_rest_follows(tmp_path: Path, interrupted: int) -> None:
    def interrupt(call: int) -> None:
        if call == interrupted:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path / "a", event=interrupt)
    done = len(Tables(tmp_path / "a").rows("threads")) + len(Tables(tmp_path / "a").rows("interference"))
    assert done + len({(r["schedule"], r["run"]) for r in Tables(tmp_path / "a").rows("executions")}) == interrupted - 2
    account, runner = measured(tmp_path / "a")
    assert account.done == 12
    assert len(runner.calls) == 12 - (interrupted - 2) + 1
    measured(tmp_path / "b")
    for table in ("threads", "interference", "executions"):
        names = [path / f"{table}.csv" for path in (tmp_path / "a", tmp_path / "b")]
        assert names[0].read_bytes() == names[1].read_bytes()


def test_the_remaining_time_comes_from_the_runs_so_far(tmp_path: Path) -> None:
    said: list[str] = []
    measured(tmp_path, event=lambda _: None, said=said)
    # Per round: 100 + 50 + 100 + 200 + 55 + 110 s, and 2 s of rest each.
    assert said[0] == "warm-up, 2 threads on cores 0-1: 50.00 s"
    assert said[6].startswith(
        "[6/12] two copies: 1 thread on core 0 and 1 thread on core 1, run 1: 100.00 s and 110.00 s"
    )
    assert said[6].endswith("about 10 min left")
    assert said[12].endswith("100.00 s and 110.00 s")
    assert [in_words(s) for s in (7.2, 99.4, 100, 5399, 5400)] == ["7 s", "99 s", "2 min", "90 min", "1.5 h"]


def test_times_that_no_profile_should_be_made_from_are_told(tmp_path: Path) -> None:
    quick = Outcome((Ended(0.0, 2.0, 0, 1.9, 0.1, 9.0),), other_cpus=0.05)
    account, _ = measured(tmp_path, plan_runs(FOUR, [1, 2], [], runs=1, sharing=False), event=lambda _: quick)
    assert account.noisy == 0
    assert [a.partition(";")[0].partition(":")[0] for a in account.advice] == [
        "the shortest run took 2.00 s",
        "on 2 threads the program never used more than one CPU",
    ]


def test_runs_that_others_disturbed_are_counted_and_say_nothing_of_threads(tmp_path: Path) -> None:
    disturbed = Outcome((Ended(0.0, 20.0, 0, 10.0, 0.1, 9.0),), other_cpus=1.0)
    account, _ = measured(tmp_path, plan_runs(FOUR, [1, 2], [], runs=2, sharing=False), event=lambda _: disturbed)
    assert (account.noisy, account.advice) == (4, [])


def test_disturbed_runs_are_made_again_and_the_quieter_ones_stay(tmp_path: Path) -> None:
    plan = plan_runs(FOUR, [1, 2], [], runs=2, sharing=False)

    def events(*others: float) -> Callable[[int], Outcome]:
        return lambda call: Outcome((replace(GOOD, end_s=110 + call),), other_cpus=others[call - 1])

    measured(tmp_path, plan, events(0.0, 0.9, 0.0, 0.5, 0.05))
    account, runner = measured(tmp_path, plan)
    assert (account.done, len(runner.calls)) == (4, 0)
    account, runner = measured(tmp_path, plan, events(0.0, 0.3, 0.6), redo=True)
    assert (account.done, len(runner.calls), account.noisy) == (4, 3, 2)
    kept = {(r["threads"], r["run"]): (r["other_cpus"], r["real_s"]) for r in rows(tmp_path, "threads")}
    assert kept == {
        ("1", "1"): ("0.30", "12.000"),
        ("2", "1"): ("0.00", "13.000"),
        ("1", "2"): ("0.50", "14.000"),
        ("2", "2"): ("0.05", "15.000"),
    }


def test_a_table_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "threads.csv"
    write_whole_bytes(path, b"old\n", sync=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_whole_bytes(path, b"new\n", sync=True)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("threads.csv", "old\n")]


def test_rows_and_columns_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "threads.csv").write_text('threads,job,real_s,note\n1,other,5,"a, b"\n')
    measured(tmp_path)
    first, own, *_ = rows(tmp_path, "threads")
    assert first == dict.fromkeys(first, "") | {"threads": "1", "job": "other", "real_s": "5", "note": "a, b"}
    assert own["job"] == "sort"
    (tmp_path / "threads.csv").write_text("threads,job\n1\n")
    (tmp_path / "machines.csv").write_text("node,node\n")
    with pytest.raises(InputError) as error:
        Tables(tmp_path)
    assert [p.line for p in error.value.problems] == [2, 1]


def test_the_machine_type_is_a_profile_that_loads(tmp_path: Path) -> None:
    write_machine(tmp_path, {}, "lab-4", replace(SMT, model="Fast: 1"))
    path = write_machine(tmp_path, earlier_types(tmp_path), "lab-8", FOUR)
    catalogue = load_catalogue(extra=[path])
    assert (catalogue.machine_types["lab-4"].smt, catalogue.machine_types["lab-8"].smt) == (True, False)
    assert catalogue.machine_types["lab-4"].vcpus == 4
    assert catalogue.machine_types["lab-4"].memory_mib == 8000
    path.write_text("apiVersion: flowsched/v1\nkind: Profiles\nmachine_types: [a]\n")
    with pytest.raises(InputError):
        earlier_types(tmp_path)


def test_all_mistakes_of_a_request_are_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError) as error:
        check_request(
            FOUR,
            job="my job",
            machine_type="a/b",
            threads="1,x,0",
            cores="2-5",
            interference="llc,memory",
            program=["no-such-program"],
        )
    said = str(error.value)
    assert len(error.value.problems) == 8
    for part in (
        "--job: 'my job' is not a name",
        "--machine-type: 'a/b' is not a name",
        "--threads: 'x' is not a number of threads",
        "--threads: '0' is not a number of threads",
        "--cores: core 4-5 cannot be used on this machine",
        "--interference: there is no interference 'memory'",
        "PROGRAM: there is no program 'no-such-program'",
        "stress-ng makes the interference and is not installed; install it (Debian, Ubuntu: apt-get install stress-ng",
    ):
        assert part in said


def cells(text: str, head: str) -> list[list[str]]:
    """The cells of the table under a heading line of a document."""
    lines = text[text.index(head) :].splitlines()[2:]
    end = next(i for i, line in enumerate(lines) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


def test_the_page_names_every_aggressor_and_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text(encoding="utf-8")
    assert cells(page, "| Aggressor | Core | stress-ng |") == [
        [f"`{a.kind}`", "same" if a.same_core else "other", f"`{' '.join(a.stressor)}`"] for a in AGGRESSORS.values()
    ]
    assert cells(page, "| File | Columns |") == [
        [f"`{table}.csv`", ", ".join(f"`{c}`" for c in columns)] for table, columns in COLUMNS.items()
    ]


# From here on, programs of this machine run.

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


@pytest.mark.parametrize("kind", AGGRESSORS)
def test_aggressors_run_beside_the_program_and_end_with_it(
    kind: str, tmp_path: Path, core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = ProcessRunner(MachineClock(), needs("stress-ng", "to disturb a program on purpose"), tmp_path)
    place = core if AGGRESSORS[kind].same_core else max(os.sched_getaffinity(0))
    outcome = runner.run([Program(spin(0.5), (core,))], Disturbance(AGGRESSORS[kind], place), 60)
    assert outcome.trouble == ""
    (ended,) = outcome.programs
    assert ended.exit_code == 0
    if AGGRESSORS[kind].same_core:
        assert ended.user_s + ended.sys_s < 0.9 * ended.real_s, "it shares its core with the aggressor"
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

"""Measuring one's own job: what is asked for, and what stands in the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from small_machines import FOUR, SMT, rows

from flowsched_models.document import InputError
from flowsched_models.measurements.load import load_measurements
from flowsched_models.measuring.aggressor import AGGRESSORS
from flowsched_models.measuring.machine_entry import earlier_types, write_machine
from flowsched_models.measuring.measured_row import Subject
from flowsched_models.measuring.measurement import Measurement, MeasurementSummary
from flowsched_models.measuring.remaining_time import in_words
from flowsched_models.measuring.request import check_request
from flowsched_models.measuring.run_plan import RunPlan, plan_runs
from flowsched_models.measuring.runner import Disturbance, Ended, Outcome, Program
from flowsched_models.measuring.tables import COLUMNS, Tables
from flowsched_models.output import write_whole_bytes
from flowsched_models.profiles import load_catalogue

SUBJECT = Subject("sort", "lab-4")
GOOD = Ended(100.0, 110.0, 0, 9.5, 0.25, 33.3)


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
) -> tuple[MeasurementSummary, FakeRunner]:
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


def test_every_run_ends_in_its_table(tmp_path: Path) -> None:
    summary, runner = measured(tmp_path)
    assert (summary.done, summary.planned, summary.failures, summary.noisy) == (12, 12, [], 0)
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
    summary, _ = measured(tmp_path, event=events.get)
    assert summary.failures == [
        "1 thread on core 0, run 1: exit code 3 (no space left)",
        "two copies: 2 threads on cores 0-1 and 2 threads on cores 0-1, run 1: it was ended by signal 9",
        "1 thread on core 0, run 2: stress-ng ended before the program did",
    ]
    assert summary.done == 9
    assert [(r["threads"], r["run"]) for r in rows(tmp_path, "threads")] == [("2", "1"), ("2", "2")]
    assert [(r["schedule"], r["run"]) for r in rows(tmp_path, "executions") if "shared" in r["schedule"]] == [
        ("sort-shared-on-lab-4", "2")
    ] * 2


def test_what_takes_too_long_is_not_tried_again(tmp_path: Path) -> None:
    late = Outcome((), "it took longer than 500 s and was ended", too_long=True)
    summary, runner = measured(tmp_path, event={5: late}.get)
    assert len(runner.calls) == 12
    assert [f.partition(": ")[2] for f in summary.failures] == [
        "it took longer than 500 s and was ended",
        "not tried, because an earlier one took too long",
    ]


def test_nothing_is_measured_after_a_warm_up_that_failed(tmp_path: Path) -> None:
    summary, runner = measured(tmp_path, event={1: Outcome((replace(GOOD, exit_code=1, said="bad option"),))}.get)
    assert (summary.warmed_up, summary.done, len(runner.calls)) == (False, 0, 1)
    assert summary.failures == ["warm-up (2 threads on cores 0-1): exit code 1 (bad option)"]
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
    summary, runner = measured(tmp_path / "a")
    assert summary.done == 12
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
    summary, _ = measured(tmp_path, plan_runs(FOUR, [1, 2], [], runs=1, sharing=False), event=lambda _: quick)
    assert summary.noisy == 0
    assert [a.partition(";")[0].partition(":")[0] for a in summary.advice] == [
        "the shortest run took 2.00 s",
        "on 2 threads the program never used more than one CPU",
    ]


def test_runs_that_others_disturbed_are_counted_and_say_nothing_of_threads(tmp_path: Path) -> None:
    disturbed = Outcome((Ended(0.0, 20.0, 0, 10.0, 0.1, 9.0),), other_cpus=1.0)
    summary, _ = measured(tmp_path, plan_runs(FOUR, [1, 2], [], runs=2, sharing=False), event=lambda _: disturbed)
    assert (summary.noisy, summary.advice) == (4, [])


def test_disturbed_runs_are_made_again_and_the_quieter_ones_stay(tmp_path: Path) -> None:
    plan = plan_runs(FOUR, [1, 2], [], runs=2, sharing=False)

    def events(*others: float) -> Callable[[int], Outcome]:
        return lambda call: Outcome((replace(GOOD, end_s=110 + call),), other_cpus=others[call - 1])

    measured(tmp_path, plan, events(0.0, 0.9, 0.0, 0.5, 0.05))
    summary, runner = measured(tmp_path, plan)
    assert (summary.done, len(runner.calls)) == (4, 0)
    summary, runner = measured(tmp_path, plan, events(0.0, 0.3, 0.6), redo=True)
    assert (summary.done, len(runner.calls), summary.noisy) == (4, 3, 2)
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

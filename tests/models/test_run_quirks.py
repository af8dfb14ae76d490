"""Measured runs: what is left out, with a reason."""

from __future__ import annotations

from pathlib import Path

from measured_tables import RUNS, THREADS, findings, refused, run_of, sweep, write

from flowsched_models.measurements import load_measurements

JOBS_OF_A_RUN = {"sort": (0.0, 33.0), "index": (2.0, 62.0), "join": (3.0, 90.0)}


def plan(**changes: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return {**JOBS_OF_A_RUN, **changes}


def test_a_job_that_was_killed_takes_its_run_with_it(tmp_path: Path) -> None:
    text = RUNS + run_of("1", plan()) + run_of("2", plan(join=(3, 91))) + run_of("3", plan(join=(3, 92)))
    text = text.replace("sort,lab-8,,4,0.0,33.0,0\nplan,2,index", "sort,lab-8,,4,0.0,33.0,137\nplan,2,index")
    text += "plan,4,sort,lab-8,,4,0,33,0\nplan,4,index,lab-8,,4,1,,\n"
    measured = load_measurements(write(tmp_path, executions=text, latency_runs=WINDOWS))
    assert [r.run for r in measured.runs] == ["1", "3"]
    assert {w.run for w in measured.latency_windows} == {"1"}
    assert findings(measured) == [
        "executions.csv:5:exit_code: run '2' of schedule 'plan': sort ended with exit code 137 (killed, as a rule for want "
        "of memory) (left out)",
        "executions.csv:12:end_s: run '4' of schedule 'plan': index has no end (left out)",
    ]


WINDOWS = (
    "schedule,run,t_start_s,t_end_s,qps,p95_us,in_window\n"
    "plan,1,0,9,30000,400,1\nplan,1,9,18,3,9,0\nplan,2,0,9,3e4,400,1\n"
)


def test_a_job_that_is_missing_takes_its_run_with_it(tmp_path: Path) -> None:
    lost = {k: v for k, v in plan(sort=(0, 35)).items() if k != "index"}
    text = RUNS + run_of("1", plan()) + run_of("2", lost) + run_of("3", plan(join=(3, 92)))
    text += run_of("1", {"sort": (0, 30)}, "alone") + run_of("2", {"index": (0, 50)}, "alone")
    measured = load_measurements(write(tmp_path, executions=text))
    assert [r.name.split("/", 1)[1] for r in measured.runs] == ["plan/1", "plan/3", "alone/1", "alone/2"]
    (finding,) = measured.findings
    assert (finding.where.row, finding.where.column) == (5, "job") and "index is missing" in finding.text


def test_an_aborted_run_is_found_by_the_thread_table(tmp_path: Path) -> None:
    text = RUNS + run_of("1", plan(sort=(0, 4))) + run_of("2", plan())
    times = THREADS + sweep([(1, 81.6), (2, 43.1), (4, 24.7), (8, 17.9)])
    measured = load_measurements(write(tmp_path, executions=text, threads=times))
    assert [r.run for r in measured.runs] == ["2"]
    assert "sort takes 4 s where 18 s or more are usual: aborted, or a small input" in findings(measured)[0]
    assert measured.findings[0].where.row == 2


def test_more_threads_than_in_the_table_may_be_faster(tmp_path: Path) -> None:
    text = RUNS + "p,1,sort,lab-64,,32,0,4,0\np,2,sort,lab-64,,32,0,4.1,0\n"
    measured = load_measurements(write(tmp_path, executions=text, threads=THREADS + sweep([(1, 81.6), (2, 43.1)])))
    assert len(measured.runs) == 2


def test_an_aborted_run_is_found_by_the_others_of_its_schedule(tmp_path: Path) -> None:
    text = RUNS + run_of("1", plan()) + run_of("2", plan(index=(2, 5))) + run_of("3", plan(sort=(0, 34)))
    measured = load_measurements(write(tmp_path, executions=text))
    assert [r.run for r in measured.runs] == ["1", "3"]
    assert "run '2' of schedule 'plan': index takes 3 s where 60 s or more are usual" in findings(measured)[0]


def test_a_job_that_takes_no_time_did_not_run(tmp_path: Path) -> None:
    measured = load_measurements(write(tmp_path, executions=RUNS + run_of("1", {"sort": (5, 5)}) + run_of("2", plan())))
    assert [r.run for r in measured.runs] == ["2"] and "sort takes 0 s: aborted" in findings(measured)[0]


def test_copies_of_runs_and_rows(tmp_path: Path) -> None:
    text = RUNS + run_of("1", plan()) + run_of("9", plan(), "again") + run_of("2", plan(sort=(0, 34)))
    text += run_of("2", plan(sort=(0, 34))).splitlines(keepends=True)[0]
    measured = load_measurements(write(tmp_path, executions=text))
    assert [r.run for r in measured.runs] == ["1", "2"]
    assert "run '9' of schedule 'again': all its times equal those of run" in findings(measured)[0]
    assert "the row repeats row 8" in findings(measured)[1] and len(measured.runs[1].executions) == 3


def test_runs_marked_by_their_owner(tmp_path: Path) -> None:
    head = "run,job,machine_type,threads,start_s,end_s,valid\n"
    measured = load_measurements(
        write(tmp_path, executions=head + "1,sort,lab,4,0,9,0\n2,sort,lab,4,0,9,yes\n3,sort,lab,4,0,9,\n")
    )
    assert [r.run for r in measured.runs] == ["2", "3"]
    assert findings(measured) == ["executions.csv:2:valid: run '1': sort is marked as not valid (left out)"]


def test_cores_beyond_the_machine(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        executions=RUNS.replace("machine_type", "node") + "p,1,sort,n,0-8,4,0,9,0\np,2,sort,n,0-3,4,0,9.2,0\n",
        machines="node,machine_type,vcpus\nn,lab-8,8\n",
    )
    measured = load_measurements(folder)
    assert measured.runs[0].executions[0].cores == tuple(range(8))
    assert [f.consequence for f in measured.findings] == ["corrected"]
    (folder / "executions.csv").write_text(RUNS.replace("machine_type", "node") + "p,1,sort,n,8-9,4,0,9,0\n")
    assert "executions.csv:2: cores: lab-8 has 8 cores, and none of 8-9" in refused(folder)


def test_one_run_only_is_named(tmp_path: Path) -> None:
    measured = load_measurements(
        write(tmp_path, executions=RUNS + run_of("1", plan()), threads=THREADS + sweep([(4, 9.0)]))
    )
    assert [(f.where.file, f.consequence) for f in measured.findings] == [
        ("executions.csv", "kept"),
        ("threads.csv", "kept"),
    ]
    assert len(measured.runs) == len(measured.thread_times) == 1

"""Measured tables: what is read, what is refused, and what is left out with a reason."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowsched_models.document import InputError, Problems
from flowsched_models.measurements import Measurements, load_measurements
from flowsched_models.measurements.course import JOBS, YEARS
from flowsched_models.measurements.disturbance import DISTURBED_CPUS
from flowsched_models.measurements.load import TABLES
from flowsched_models.measurements.table import SHOWN, Row, Table, read_table
from flowsched_models.measuring.measurement import NOISE_CPUS
from flowsched_models.quantity import format_cores
from measured_data import cca_data

DOC = Path(__file__).resolve().parents[2] / "docs" / "measurements.md"
THREADS = "job,threads,run,real_s,machine_type\n"
RUNS = "schedule,run,job,machine_type,cores,threads,start_s,end_s,exit_code\n"


def write(folder: Path, **tables: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def sweep(times: Iterable[tuple[int, float]], job: str = "sort", run: int = 1, kind: str = "lab-8") -> str:
    return "".join(f"{job},{n},{run},{s},{kind}\n" for n, s in times)


def run_of(run: str, times: dict[str, tuple[float, float]], schedule: str = "plan") -> str:
    return "".join(f"{schedule},{run},{job},lab-8,,4,{a},{b},0\n" for job, (a, b) in times.items())


def findings(measured: Measurements) -> list[str]:
    return [str(f) for f in measured.findings]


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_measurements(path, **options)
    return str(caught.value)


def doc_folder(folder: Path) -> Path:
    """The tables of the documentation, as files."""
    text = DOC.read_text(encoding="utf-8")
    for name, content in re.findall(r"^`(lab/\w+\.csv)`:\n\n```csv\n(.*?)```", text, re.MULTILINE | re.DOTALL):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


# What is read


def test_the_documented_tables_are_read(tmp_path: Path) -> None:
    measured = load_measurements(doc_folder(tmp_path))
    assert measured.groups == ("lab",) and measured.findings == ()
    assert [(t.threads, t.real_s, t.machine_type) for t in measured.thread_times][2:] == [
        (2, 43.9, "lab-8"),
        (4, 24.71, "lab-8"),
    ]
    assert {t.interference for t in measured.interference_times} == {"none", "llc", "membw"}
    first, second = measured.runs
    assert (first.name, first.year, second.makespan_s) == ("lab/pair/1", "", 62.5)
    sort, index = first.executions
    assert (sort.cores, sort.request, index.cores, index.request) == ((1, 2, 3), 3.5, (4, 5, 6, 7), None)
    assert str(index.where) == "lab/executions.csv:4:end_s" and index.duration_s == pytest.approx(59.8)
    (service,) = first.services
    assert (service.profile, service.machine_type, service.cores, service.threads) == ("memcached", "lab-8", (0,), 1)
    assert service.request == 0.9 and service.qps == pytest.approx(30016)
    assert second.services[0].qps is None
    assert [p.qps for p in measured.latency_points] == [9988.4, 20011.9, 39950.0]
    assert [p.target_qps for p in measured.latency_points] == [10e3, 20e3, 40e3]
    assert len(measured.latency_interference) == len(measured.latency_windows) == 2


def test_the_documented_columns_are_those_that_are_asked_for() -> None:
    text = DOC.read_text(encoding="utf-8")
    assert [name for name in TABLES if f"`{name}`" not in text] == []
    assert [alias for alias, _ in TABLES.values() if f"`{alias}`" not in text] == []


def test_one_group_alone_reads_like_one_of_many(tmp_path: Path) -> None:
    many = load_measurements(doc_folder(tmp_path))
    alone = load_measurements(tmp_path / "lab")
    assert alone.groups == many.groups
    assert [t.real_s for t in alone.thread_times] == [t.real_s for t in many.thread_times]
    assert alone.thread_times[0].where.file == "threads.csv"


def test_groups_can_be_taken_and_left(tmp_path: Path) -> None:
    for group in ("a", "b", "c"):
        write(tmp_path / group, threads=THREADS + sweep([(1, 10.0), (2, 5.5)]))
    measured = load_measurements(tmp_path)
    assert measured.without("b").groups == ("a", "c")
    assert measured.only("b").groups == ("b",)
    assert measured.only("b").thread_times == measured.without("a", "c").thread_times


@pytest.mark.parametrize(
    ("cores", "expected"),
    [("0-3", (0, 1, 2, 3)), ("0,2-5", (0, 2, 3, 4, 5)), ("0 1", (0, 1)), ("1, 3", (1, 3)), ("", ())],
)
def test_core_lists(cores: str, expected: tuple[int, ...]) -> None:
    assert one_row(cores=cores).cores("cores") == expected


@pytest.mark.parametrize(("cpu", "cores"), [("900m", 0.9), ("3500m", 3.5), ("4", 4.0), ("", None), ("0", None)])
def test_cpu_amounts(cpu: str, cores: float | None) -> None:
    assert one_row(cpu=cpu).cpu("cpu") == cores


@given(st.sets(st.integers(0, 200), min_size=1), st.sampled_from([",", " ", ", "]))
def test_every_core_set_is_read_back(cores: set[int], separator: str) -> None:
    row = one_row(cores=format_cores(cores).replace(",", separator))
    assert row.cores("cores") == tuple(sorted(cores)) and row.sound


@given(st.text(max_size=12))
def test_any_text_is_a_value_or_one_mistake(text: str) -> None:
    for ask in (Row.number, Row.count, Row.cpu, Row.cores, Row.load, Row.name, Row.optional_number):
        row = one_row(x=text.strip())
        value = ask(row, "x")
        assert row.sound or len(row.table.problems()) == 1
        assert not row.sound or value is None or value == () or isinstance(value, (str, int, float, tuple))


@given(st.floats(0, 1e9, allow_nan=False))
def test_numbers_are_read_as_written(value: float) -> None:
    assert one_row(x=repr(value)).number("x", 0) == value


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6), min_size=2, max_size=3),
        max_size=5,
    )
)
def test_no_table_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("any") / "threads.csv"
    out = io.StringIO()
    csv.writer(out).writerows([["job", "threads"], *cells])
    path.write_bytes(out.getvalue().encode("utf-8"))
    problems = Problems()
    table = read_table(path, "threads.csv", problems)
    assert (table is None) == bool(problems.found)
    if table is not None:
        good = [[c.strip() for c in row] for row in cells if len(row) == 2 or not row[2].strip()]
        assert [[r.text("job"), r.text("threads")] for r in table] == [row[:2] for row in good if any(row)]


def one_row(**values: str) -> Row:
    return Row(Table("t.csv", "t.csv", tuple(values)), 2, values)


# What is refused


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    write(
        tmp_path / "a",
        threads="job,threads,real_s,machine_type\nsort,two,9.5,lab\nsort,2,-4,lab\nsort,4,5 s,lab\n,1,9,lab\n",
        interference="job,real_s,machine_type\nsort,9.1,lab\n",
        executions=RUNS + "p,1,sort,lab,0-,1,331,33.1,0\np,1,index,lab,3-1,0,0,7,0\n",
    )
    write(tmp_path / "b", threads="job,threads,real_s,node\nsort,1,9,n1\nsort,2,5,n1\n", latency_sweep="")
    (tmp_path / "b" / "latency_runs.csv").write_bytes(b"run,qps\n\xff\xfe")
    assert refused(tmp_path).replace(f"{tmp_path}/", "").splitlines() == [
        "a/threads.csv:2: threads: 'two' is not a number",
        "a/threads.csv:3: real_s: the value must not be negative, but is -4",
        "a/threads.csv:4: real_s: '5 s' is not a number; "
        "write the number without its unit: the unit is in the column's name",
        "a/threads.csv:5: job: the value is missing; write a name",
        "a/interference.csv:1: the column 'interference' is missing; columns: job, real_s, machine_type",
        "a/executions.csv:2: cores: '0-' is not a core set; "
        'write a list of cores as "0-3", "0,2-5" or "0 1"; empty for all cores',
        "a/executions.csv:2: end_s: sort ends at 33.1 s, before it starts at 331 s",
        "a/executions.csv:3: threads: the value must be a whole number of at least 1, but is 0",
        "a/executions.csv:3: cores: the range '3-1' is reversed; "
        'write a list of cores as "0-3", "0,2-5" or "0 1"; empty for all cores',
        "b/latency_sweep.csv: the file is empty; the first row names the columns",
        "b/latency_runs.csv: the file is not UTF-8 text (byte 8)",
        "b/threads.csv:2: node: the machine type of node 'n1' is not known (and in 1 more row); "
        "add a column machine_type, or a machines.csv beside the table",
    ]


def test_folders_that_hold_nothing_to_read(tmp_path: Path) -> None:
    assert "there is no such folder" in refused(tmp_path / "nowhere")
    assert "there is no table of measurements" in refused(write(tmp_path / "empty"))
    near = refused(write(tmp_path / "near", thread="job\n"))
    assert "a table is named threads.csv" in near and "(found: thread.csv)" in near
    assert "this is a file" in refused(write(tmp_path / "file", threads=THREADS) / "threads.csv")
    assert "no rows under its header" in refused(tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job,threads,real_s,job\nsort,1,2,3\n", "threads.csv:1: job: the column stands twice in the header"),
        ("job;threads;real_s\nsort;1;2\n", "the columns are not separated by commas"),
        ("job,threads,real_s\nsort,1,1,5\n", "threads.csv:2: the row has 4 values, but the header names 3 columns"),
        ("job,threads,real_s\nsort,1\n", "threads.csv:2: the row has only 2 values"),
        ("job,thread,real_s\nsort,1,2\n", "the column 'threads' is missing; did you mean 'thread'?"),
        ('job,threads,real_s\n"sort,1,2\n', "not valid CSV"),
        ("job,threads,real_s\nsort,1,9\n", "machine_type: the machine type is not known"),
        ("job,threads,real_s\nsort,5000,9\n", "threads: the value must be at most 4096, but is 5000"),
        ("job,threads,real_s\nsort,1,nan1\n", "real_s: 'nan1' is not a number"),
        ("job,threads,real_s\nsort,1,1e99\n", "real_s: '1e99' is not a number"),
        ("job,threads,real_s\nsort,1,'1,5'\n", "the row has 4 values"),
        ("job,threads,real_s\nsort\0,1,2\n", "zero bytes"),
    ],
)
def test_mistakes_in_a_table(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(write(tmp_path, threads=text))


def test_a_table_of_another_kind_does_not_bury_the_rest(tmp_path: Path) -> None:
    rows = "".join(f"sort,x{i},y,lab\n" for i in range(100))
    told = refused(write(tmp_path, threads="job,threads,real_s,machine_type\n" + rows)).splitlines()
    assert len(told) == SHOWN + 1 and "81 more mistakes in this table" in told[-1]


def test_mistakes_of_machines(tmp_path: Path) -> None:
    folder = write(tmp_path, threads="job,threads,real_s,node\nsort,1,9,n2\n")
    write(folder, machines="node,machine_type,vcpus,role\nn1,lab,8,\nn1,other,8,\n,lab,4,thread\n")
    told = refused(folder)
    assert "machines.csv:3: node: node 'n1' has two machine types, lab and other" in told
    assert "machines.csv:4: role: 'thread' is not a kind of table; did you mean 'threads'?" in told
    assert "machines.csv:4: vcpus: machine type 'lab' has 8 and 4 virtual CPUs" in told
    assert "threads.csv:2: node: the machine type of node 'n2' is not known; known: n1" in told


def test_two_names_of_one_table(tmp_path: Path) -> None:
    folder = write(tmp_path, threads=THREADS + "sort,1,1,9,lab\n", parsec_threads=THREADS + "sort,1,1,9,lab\n")
    assert "the same table under two names" in refused(folder)


# What is left out: runs

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


# What is left out: sweeps

NORMAL = ((1, 100.0), (2, 51.0), (4, 27.0), (8, 18.0))


def groups_of(tmp_path: Path, odd: Sequence[tuple[int, float]], others: int = 3) -> Measurements:
    write(tmp_path / "odd", threads=THREADS + sweep(odd))
    for i in range(others):
        write(tmp_path / f"other-{i}", threads=THREADS + sweep((n, s * (1 + 0.02 * i)) for n, s in NORMAL))
    return load_measurements(tmp_path)


def left(measured: Measurements, group: str = "odd") -> list[int]:
    return [t.threads for t in measured.thread_times if t.group == group]


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        (NORMAL, [1, 2, 4, 8]),
        ([(1, 101.0), (2, 52.0), (4, 52.5), (8, 53.0)], [1, 2]),
        ([(1, 51.5), (2, 51.0), (4, 27.0), (8, 18.0)], [2, 4, 8]),
        ([(1, 100.0), (2, 51.0), (4, 3.0), (8, 18.0)], [1, 2, 8]),
        ([(1, 6.0), (2, 51.0), (4, 27.0), (8, 18.0)], [2, 4, 8]),
        ([(1, 100.0), (2, 51.0), (4, 27.0), (8, 60.0)], [1, 2, 4]),
        # Slow, but real: hosts and neighbours do that.
        ([(1, 100.0), (2, 77.0), (4, 27.0), (8, 18.0)], [1, 2, 4, 8]),
        ([(1, 170.0), (2, 87.0), (4, 46.0), (8, 30.0)], [1, 2, 4, 8]),
    ],
)
def test_thread_times_beside_other_groups(tmp_path: Path, odd: Sequence[tuple[int, float]], kept: list[int]) -> None:
    measured = groups_of(tmp_path, odd)
    assert left(measured) == kept
    assert all(left(measured, f"other-{i}") == [1, 2, 4, 8] for i in range(3))
    assert {f.where.column for f in measured.findings} <= {"real_s"} and len(measured.findings) == 4 - len(kept)


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        (NORMAL, [1, 2, 4, 8]),
        ([(1, 503.7), (2, 254.1), (4, 255.7), (8, 262.7)], [1, 2]),
        ([(1, 7.77), (2, 7.54), (4, 5.2), (8, 4.87)], [4, 8]),
        ([(1, 126.8), (2, 50.8), (4, 30.0), (8, 19.9)], [2, 4, 8]),
        ([(1, 321.0), (2, 163.0), (4, 21.0), (8, 80.0)], [1, 2, 8]),
        ([(1, 21.0), (2, 163.0), (4, 94.0), (8, 80.0)], [2, 4, 8]),
        # Jobs that stop scaling where the hardware threads begin, or for want of parallel work.
        ([(1, 104.3), (2, 52.5), (4, 28.0), (8, 30.7)], [1, 2, 4, 8]),
        ([(1, 20.2), (2, 12.3), (4, 9.8), (8, 18.5)], [1, 2, 4, 8]),
        ([(1, 51.0), (3, 21.7), (6, 23.5), (12, 37.4)], [1, 3, 6, 12]),
        ([(1, 100.0), (2, 98.0), (4, 99.0)], [1, 2, 4]),
    ],
)
def test_thread_times_of_one_group_alone(tmp_path: Path, odd: Sequence[tuple[int, float]], kept: list[int]) -> None:
    assert left(groups_of(tmp_path, odd, others=0)) == kept


def test_a_stop_at_the_cores_that_it_had_is_no_wrong_label(tmp_path: Path) -> None:
    text = "job,threads,real_s,machine_type,cores\n" + "".join(
        f"sort,{n},{s},lab-8,2\n" for n, s in ((1, 99), (2, 50), (4, 50), (8, 51))
    )
    assert len(load_measurements(write(tmp_path, threads=text)).thread_times) == 4


@given(
    st.floats(1, 1000),
    st.floats(0, 1),
    st.lists(st.floats(-0.02, 0.02), min_size=4, max_size=4),
)
def test_no_sweep_that_follows_amdahl_is_touched(
    tmp_path_factory: pytest.TempPathFactory, work_s: float, serial: float, noise: list[float]
) -> None:
    times = [(n, work_s * (serial + (1 - serial) / n) * (1 + e)) for n, e in zip((1, 2, 4, 8), noise, strict=True)]
    folder = write(tmp_path_factory.mktemp("amdahl"), threads=THREADS + sweep(times))
    assert load_measurements(folder).findings == ()


def test_a_repeat_that_was_cut_off(tmp_path: Path) -> None:
    rows = (
        sweep([(1, 319.9)], run=1)
        + sweep([(1, 21.2)], run=2)
        + sweep([(1, 322.3)], run=3)
        + sweep([(2, 163.0), (4, 94.0)])
    )
    measured = load_measurements(write(tmp_path, threads=THREADS + rows))
    assert [t.real_s for t in measured.thread_times] == [319.9, 322.3, 163.0, 94.0]
    assert "threads.csv:3:real_s: sort takes 21.2 s on 1 thread, but 321.1 s in the median" in findings(measured)[0]


QUIETER = [
    # Of repeats of one setting, others' CPUs and seconds; the seconds that are kept; how many findings of each kind.
    ([(0.04, 5.266), (1.06, 12.205), (1.19, 15.092)], [5.266], 2, 0),
    ([(0.01, 11.189), (1.35, 18.138), (1.03, 17.53)], [11.189], 2, 0),
    ([(0.02, 11.2), (0.09, 11.3), (0.1, 11.8)], [11.2, 11.3], 1, 0),
    ([(1.06, 12.2), (1.19, 15.1), (1.1, 12.4)], [12.2, 12.4], 1, 1),
    ([("", 11.2), (0.3, 13.1)], [11.2], 1, 0),
    ([(0.5, 13.1)], [13.1], 0, 1),
]


@pytest.mark.parametrize(("repeats", "kept", "left_out", "all_disturbed"), QUIETER)
def test_disturbed_repeats_give_way_to_quieter_ones(
    tmp_path: Path, repeats: Sequence[tuple[Any, float]], kept: list[float], left_out: int, all_disturbed: int
) -> None:
    """And none that is quiet is taken for cut off because its repeats were held up."""
    threads = "job,threads,cores,run,real_s,machine_type,other_cpus\nsort,2,2,1,6.1,lab-8,0.02\n"
    beside = "job,interference,run,real_s,machine_type,other_cpus\nsort,none,1,9.9,lab-8,0\n"
    for run, (others, seconds) in enumerate(repeats):
        threads += f"sort,1,1,{run},{seconds},lab-8,{others}\n"
        beside += f"sort,llc,{run},{seconds},lab-8,{others}\n"
    measured = load_measurements(write(tmp_path, threads=threads, interference=beside))
    assert [t.real_s for t in measured.thread_times] == [6.1, *kept]
    assert [t.real_s for t in measured.interference_times] == [9.9, *kept]
    disturbed = [f for f in measured.findings if f.where.column == "other_cpus"]
    assert [f.consequence for f in disturbed].count("left out") == 2 * left_out
    assert [f.consequence for f in disturbed].count("kept") == 2 * all_disturbed


def test_what_is_said_of_disturbed_repeats(tmp_path: Path) -> None:
    head = "job,threads,cores,run,real_s,machine_type,other_cpus\n"
    rows = "sort,1,1,1,18.138,lab-8,1.35\nsort,1,1,2,11.189,lab-8,0.01\nsort,2,2,1,9.1,lab-8,0.7\n"
    measured = load_measurements(write(tmp_path, threads=head + rows))
    assert [f for f in findings(measured) if "other_cpus" in f] == [
        "threads.csv:2:other_cpus: the time of sort on 1 thread of lab-8 (cores: 1) was disturbed: others used 1.35 CPUs, "
        "and 0.01 in a quieter repeat (left out)",
        "threads.csv:4:other_cpus: the time of sort on 2 threads of lab-8 (cores: 2) was disturbed: others used 0.7 CPUs, "
        "and there is no quiet repeat: measure it again (kept)",
    ]
    assert "threads.csv:2: other_cpus: 'many' is not a number" in refused(
        write(tmp_path, threads=head + "sort,1,1,1,18.138,lab-8,many\n")
    )


def test_measure_and_the_reader_call_the_same_runs_disturbed() -> None:
    assert DISTURBED_CPUS == NOISE_CPUS


def test_copied_repeats(tmp_path: Path) -> None:
    head = "job,threads,run,real_s,user_s,machine_type\n"
    rows = "sort,1,1,125.102,124.113,lab\nsort,1,2,125.102,124.113,lab\nsort,1,3,125.102,124.114,lab\n"
    rows += "sort,2,1,70,130,lab\nsort,2,2,70,130,lab\n"
    measured = load_measurements(write(tmp_path, threads=head + rows))
    assert len(measured.thread_times) == 4
    assert findings(measured)[0].startswith("threads.csv:3:real_s: the row repeats row 2 to the last digit")


def test_values_that_were_not_measured(tmp_path: Path) -> None:
    rows = "job,threads,real_s,machine_type,suspect\n"
    rows += "sort,1,,lab,\nsort,1,0,lab,\nsort,1,9,lab,1\nsort,2,5,lab,0\nsort,4,3,lab,0\n"
    measured = load_measurements(write(tmp_path, threads=rows))
    assert [t.threads for t in measured.thread_times] == [2, 4]
    assert [(f.where.row, f.where.column) for f in measured.findings] == [(2, "real_s"), (3, "real_s"), (4, "suspect")]


def curve(threads: int, cores: int, p95: Sequence[float], cpu: Sequence[float] | None = None) -> str:
    return "".join(
        f"{threads},{cores},{5000 * (i + 1)},{value},lab,{cpu[i] if cpu else ''}\n" for i, value in enumerate(p95)
    )


SWEEP = "threads,cores,qps,p95_us,machine_type,cpu_util_pct\n"
FLAT = (500, 510, 530, 540, 560, 590, 600, 640)
STEEP = (500, 550, 600, 700, 900, 1200, 1500, 1900)


def test_pinning_that_had_no_effect(tmp_path: Path) -> None:
    same = [p * (1 + 0.01 * (-1) ** i) for i, p in enumerate(FLAT)]
    text = SWEEP + curve(2, 1, same) + curve(2, 2, FLAT) + curve(1, 1, FLAT) + curve(1, 2, FLAT)
    measured = load_measurements(write(tmp_path, latency_sweep=text))
    assert {(p.threads, p.cores) for p in measured.latency_points} == {(2, 2), (1, 1), (1, 2)}
    assert "2 threads on 1 core (8 rows) equals the one on 2 cores" in findings(measured)[0]
    told = load_measurements(write(tmp_path, latency_sweep=SWEEP + curve(2, 1, STEEP) + curve(2, 2, FLAT)))
    assert told.findings == ()


def test_cpu_that_was_not_counted(tmp_path: Path) -> None:
    text = SWEEP + curve(2, 1, FLAT, [1, 1, 1, 2, 20, 40, 50, 60]) + curve(2, 2, STEEP, [9, 17, 24, 33, 41, 50, 57, 66])
    measured = load_measurements(write(tmp_path, latency_sweep=text))
    assert [p.cpu_percent is None for p in measured.latency_points] == [True] * 8 + [False] * 8
    assert [f.where.column for f in measured.findings] == ["cpu_util_pct"]


# The course's folders


def course_jobs(year: str, node: dict[str, str] | None = None) -> str:
    head = "schedule,run,job,node,cores,threads,cpu_request,start_s,end_s,exit_code,start_utc\n"
    nodes = sorted(YEARS[year].nodes)
    rows = f"final,1,memcached,{nodes[0]},0,1,100m,-9,,,{year}-05-06T11:27:54Z\n"
    for i, job in enumerate(sorted(JOBS[year])):
        place = (node or {}).get(job, nodes[i % len(nodes)])
        rows += f"final,1,{job},{place},,2,100m,{i},{90 + i},0,{year}-05-06T11:28:24Z\n"
    return head + rows + rows.replace("final,1,", "final,2,").replace(",90,0,", ",99,0,")


@pytest.mark.parametrize("year", sorted(YEARS))
def test_the_year_of_a_hidden_group_follows_from_its_dates(tmp_path: Path, year: str) -> None:
    threads = "job,threads,run,real_s\ncanneal,1,0,250.1\ncanneal,2,0,155.0\n"
    folder = write(tmp_path / "hidden", part3_jobs=course_jobs(year), parsec_threads=threads)
    for path in (tmp_path, folder):
        measured = load_measurements(path)
        assert measured.years == {"hidden": year} and len(measured.runs) == 2
        assert {t.machine_type for t in measured.thread_times} == {YEARS[year].roles["threads"]}
        assert {e.machine_type for e in measured.executions} == set(YEARS[year].nodes.values())
        assert measured.runs[0].services[0].qps == 30_000
    assert load_measurements(tmp_path, years=(year, "1999")).groups == ("hidden",)
    assert f"no group of 1999 is here; years: {year}" in refused(tmp_path, years=("1999",))


def test_a_group_without_dates_needs_its_year(tmp_path: Path) -> None:
    folder = write(tmp_path / "hidden", parsec_threads="job,threads,run,real_s\ncanneal,1,0,250.1\ncanneal,2,0,155\n")
    told = refused(tmp_path)
    assert "parsec_threads.csv:2: machine_type" in told and "--year 2024" in told
    assert "the machines of 1999 are not known (known: 2021" in refused(tmp_path, year="1999")
    assert load_measurements(tmp_path, year="2024").thread_times[0].machine_type == "e2-standard-8"
    (folder.parent / "repos.csv").write_text("owner,year\nhidden,2025\n")
    for path in (tmp_path, folder):
        assert load_measurements(path).thread_times[0].machine_type == "n2-standard-8"


@pytest.mark.parametrize("table", ["", None, b"\xff\xfe"])
def test_rows_are_not_to_blame_for_a_year_that_cannot_be_read(tmp_path: Path, table: str | bytes | None) -> None:
    folder = write(tmp_path / "hidden", parsec_threads="job,threads,run,real_s\ncanneal,1,0,250.1\ncanneal,-2,0,155\n")
    path = folder / "part3_jobs.csv"
    if table is None:
        path.mkdir()
    else:
        path.write_bytes(table if isinstance(table, bytes) else table.encode())
    told = refused(tmp_path)
    assert "part3_jobs.csv: " in told and "parsec_threads.csv:3: threads" in told
    assert "machine type" not in told


def test_tables_over_all_groups_say_what_not_to_use(tmp_path: Path) -> None:
    write(
        tmp_path,
        repos="owner,year\ng,2024\n",
        years="year,part1_memcached_node,part2a_node,part2b_node,part3_nodes,part4_node,part3_load_qps\n"
        "2024,x-2,x-2,x-8,node-a-2core x-2; node-b-4core x-4; node-c-8core x-8,x-4,20K\n",
        runs_summary="owner,year,part,experiment,run,valid,note\ng,2024,3,final,2,0,the clock was wrong\n",
        threads_by_group="owner,year,job,threads,suspect\ng,2024,canneal,2,1\n",
    )
    threads = "job,threads,run,real_s\ncanneal,1,0,250.1\ncanneal,2,0,155\ncanneal,4,0,100\nx264,1,0,99\nx264,2,0,50\n"
    write(tmp_path / "g", part3_jobs=course_jobs("2024"), parsec_threads=threads)
    measured = load_measurements(tmp_path)
    assert [t.threads for t in measured.thread_times] == [1, 4]
    assert {e.machine_type for e in measured.executions} == {"x-2", "x-4", "x-8"}
    assert [r.services[0].qps for r in measured.runs] == [20_000]
    texts = [f.text for f in measured.findings if f.consequence == "left out"]
    assert texts == [
        "the time of canneal on 2 threads is marked as suspect in threads_by_group.csv",
        "x264 was dropped from the list of jobs, so all its rows are",
        "run '2' of schedule 'final': the clock was wrong",
    ]


def test_a_job_of_the_year_that_is_missing_or_twice(tmp_path: Path) -> None:
    rows = course_jobs("2024").splitlines(keepends=True)
    text = "".join(r for r in rows if "final,2,radix" not in r)
    measured = load_measurements(write(tmp_path, part3_jobs=text))
    assert len(measured.runs) == 1 and "radix is missing" in findings(measured)[1]
    again = next(r for r in rows if "final,1,vips" in r).replace(",96,", ",97,")
    measured = load_measurements(write(tmp_path, part3_jobs="".join(rows) + again))
    assert len(measured.runs) == 1 and "vips is there twice" in " ".join(findings(measured))


def test_a_node_of_another_year(tmp_path: Path) -> None:
    folder = write(tmp_path, part3_jobs=course_jobs("2024", {"vips": "node-d-4core"}))
    assert "node: the machine type of node 'node-d-4core' is not known (and in 1 more row); did you mean" in refused(
        folder
    )


def test_folders_beside_the_groups_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a", threads=THREADS + sweep(NORMAL))
    write(tmp_path / "b", thread=THREADS + sweep(NORMAL))
    (tmp_path / "notes").mkdir()
    assert findings(load_measurements(tmp_path)) == [
        "b: the folder holds tables, but none of the kinds that are read (left out)"
    ]


# The course's measurements, where they are


def test_the_published_measurements() -> None:
    measured = load_measurements(cca_data())
    fitted = measured.of_years("2023", "2024")
    groups = {run.group for run in fitted.runs}
    assert (len(fitted.runs), len(fitted.executions), len(groups)) == (63, 441, 13)
    assert fitted == load_measurements(cca_data(), years=("2023", "2024"))
    assert len(fitted.jobs) == 7
    assert {(s.profile, s.qps) for r in measured.runs for s in r.services} == {("memcached", 30_000.0)}
    assert all(len(r.services) == 1 for r in measured.runs)


def named(measured: Measurements) -> set[tuple[str, int]]:
    return {(f.where.file, f.where.row) for f in measured.findings if f.consequence == "left out"}


QUIRKS = {
    *(("NixoN2/part3_jobs.csv", row) for row in (3, 11, 19, 27, 35, 43, 51, 59, 67)),
    ("NixoN2/part4_sweep.csv", 27),
    ("FFGGSSJJ/parsec_threads.csv", 20),
    ("FFGGSSJJ/parsec_threads.csv", 21),
    ("josflesan/parsec_threads.csv", 2),
    ("oscarpitcho/parsec_threads.csv", 42),
    ("JoelBucher/part3_jobs.csv", 32),
    ("twakonig/parsec_threads.csv", 30),
    ("czanoli/part4_sweep.csv", 402),
}
"""What the notes on the published measurements say is wrong, by file and row."""


def test_known_quirks_are_found_without_being_told(tmp_path: Path) -> None:
    source = cca_data()
    for folder in sorted(p for p in source.iterdir() if (p / "part3_jobs.csv").is_file()):
        target = tmp_path / folder.name
        target.mkdir()
        for alias, _ in TABLES.values():
            if (folder / alias).is_file():
                shutil.copyfile(folder / alias, target / alias)
    bare, told = load_measurements(tmp_path), load_measurements(source)
    assert named(bare) >= QUIRKS and named(told) >= QUIRKS
    assert bare.of_years("2023", "2024").runs == told.of_years("2023", "2024").runs
    for group in told.of_years("2023", "2024", "2025", "2026").groups:
        if (tmp_path / group).is_dir():
            alone = load_measurements(tmp_path / group)
            assert [r.name for r in alone.runs] == [r.name for r in told.only(group).runs]

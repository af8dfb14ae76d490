"""Measured tables: what is read, and what is refused."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_tables import RUNS, THREADS, refused, sweep, write

from flowsched_models.document import Problems
from flowsched_models.measurements import load_measurements
from flowsched_models.measurements.load import TABLES
from flowsched_models.measurements.table import SHOWN, Row, Table, read_table
from flowsched_models.quantity import format_cores

DOC = Path(__file__).resolve().parents[2] / "docs" / "measurements.md"


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
    assert measured.only("a", "c").groups == ("a", "c")
    assert measured.only("b").groups == ("b",)
    assert {time.group for time in measured.only("b").thread_times} == {"b"}


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

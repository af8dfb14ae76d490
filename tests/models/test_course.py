"""The folders of a course's groups: their years and machines, and the measurements that they published."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from measured_tables import NORMAL, THREADS, findings, refused, sweep, write

from flowsched_models.measurements import Measurements, load_measurements
from flowsched_models.measurements.course import JOBS, YEARS
from flowsched_models.measurements.load import TABLES
from measured_data import cca_data, cca_measurements


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
    measured = cca_measurements()
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
    bare, told = load_measurements(tmp_path), cca_measurements()
    assert named(bare) >= QUIRKS and named(told) >= QUIRKS
    assert bare.of_years("2023", "2024").runs == told.of_years("2023", "2024").runs
    for group in told.of_years("2023", "2024", "2025", "2026").groups:
        if (tmp_path / group).is_dir():
            alone = load_measurements(tmp_path / group)
            assert [r.name for r in alone.runs] == [r.name for r in told.only(group).runs]

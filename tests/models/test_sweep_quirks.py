"""Measured sweeps: what is left out, with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_tables import NORMAL, THREADS, findings, refused, sweep, write

from flowsched_models.measurements import Measurements, load_measurements
from flowsched_models.measurements.disturbance import DISTURBED_CPUS
from flowsched_models.measuring.measurement import NOISE_CPUS


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

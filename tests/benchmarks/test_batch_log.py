"""Logs of parallel machines: FCFS and EASY start every job when an independent simulation of one resource does."""

from __future__ import annotations

import gzip
import heapq
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent.parent.parent))  # benchmarks are no part of what is installed

from benchmarks.batch_log import VARIANT, BatchJob, bounded_slowdowns, main, read_log, scenario_of
from flowsched_models.document import InputError
from flowsched_simulator import simulate
from measured_data import batch_log


def starts_of(jobs: Sequence[BatchJob], processors: int, easy: bool) -> list[float]:
    """When each job starts on a pool of processors: strict order of arrival, or with EASY backfilling, exact estimates."""
    starts = [0.0] * len(jobs)
    running: list[tuple[float, int]] = []
    waiting: list[int] = []
    free, arrived = processors, 0
    while arrived < len(jobs) or waiting:
        arrival = jobs[arrived].submit_s if arrived < len(jobs) else np.inf
        now = min(arrival, running[0][0] if running else np.inf)
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[1]
        while arrived < len(jobs) and jobs[arrived].submit_s <= now:
            waiting.append(arrived)
            arrived += 1
        reserved_s, spare, blocked = np.inf, processors, False
        for j in list(waiting):
            need, run_s = jobs[j].processors, jobs[j].run_s
            if need <= free and (not blocked or (easy and (now + run_s <= reserved_s or need <= spare))):
                spare -= need if blocked and now + run_s > reserved_s else 0
                starts[j], free = now, free - need
                heapq.heappush(running, (now + run_s, need))
                waiting.remove(j)
            elif not blocked:
                blocked, later = True, free
                for end_s, width in sorted(running):
                    later += width if later < need or end_s == reserved_s else 0
                    reserved_s = end_s if later >= need and reserved_s == np.inf else reserved_s
                spare = later - need
    return starts


def slowdown(jobs: Sequence[BatchJob], starts: Sequence[float]) -> float:
    waits = (start - job.submit_s for job, start in zip(jobs, starts, strict=True))
    return float(np.mean([max(1.0, (w + j.run_s) / max(j.run_s, 10.0)) for w, j in zip(waits, jobs, strict=True)]))


def compressed(jobs: Sequence[BatchJob], by: float) -> list[BatchJob]:
    return [BatchJob(j.number, j.submit_s / by, j.run_s, j.processors) for j in jobs]


@st.composite
def job_lists(draw: st.DrawFn) -> list[BatchJob]:
    at, found = 0.0, []
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from((0, 0, 1, 7)))
        found.append(BatchJob(number, at, float(draw(st.integers(1, 20))), draw(st.integers(1, 8))))
    return found


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
@settings(max_examples=60, deadline=None)
@given(jobs=job_lists())
def test_every_job_starts_when_an_independent_simulation_starts_it(policy: str, jobs: list[BatchJob]) -> None:
    run = simulate(scenario_of("drawn", 8, jobs), policy, variant=VARIANT)

    assert [j.start_s for j in run.jobs] == pytest.approx(starts_of(jobs, 8, policy == "easy"), abs=1e-6)


def test_the_published_slowdowns_of_the_nasa_log() -> None:
    """Over the whole log, by the independent simulation; ``python -m benchmarks.batch_log`` shows them of ours."""
    processors, jobs = read_log(batch_log())
    assert (processors, len(jobs)) == (128, 18_239)

    dense = compressed(jobs, 1.3)
    assert slowdown(dense, starts_of(dense, 128, easy=False)) == pytest.approx(44.0, rel=0.05)
    assert slowdown(dense, starts_of(dense, 128, easy=True)) == pytest.approx(11.0, rel=0.05)
    assert slowdown(jobs, starts_of(jobs, 128, easy=False)) < 1.05
    assert slowdown(jobs, starts_of(jobs, 128, easy=True)) < 1.05


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_the_first_jobs_of_the_nasa_log_start_as_they_do_there(policy: str) -> None:
    processors, jobs = read_log(batch_log())
    jobs = jobs[:800]
    run = simulate(scenario_of("log", processors, jobs, 1.3), policy, variant=VARIANT)

    dense = compressed(jobs, 1.3)
    expected = starts_of(dense, processors, policy == "easy")
    # Jobs of 0 s take a millisecond on the machine.
    assert [j.start_s for j in run.jobs] == pytest.approx(expected, abs=0.01)
    assert bounded_slowdowns(run, [j.run_s for j in jobs]).mean() == pytest.approx(slowdown(dense, expected), rel=1e-3)


LINE = "{} {} -1 {} {} " + "-1 " * 13


def test_a_log_is_read_with_what_it_lacks(tmp_path: Path) -> None:
    lines = ["; MaxProcs: 16", LINE.format(2, 5, 3, 4), LINE.format(1, 5, 0, 8), LINE.format(3, 1, -1, 8)]
    log = tmp_path / "small.swf.gz"
    log.write_bytes(gzip.compress("\n".join(lines).encode()))

    assert read_log(log) == (16, [BatchJob(1, 5.0, 0.0, 8), BatchJob(2, 5.0, 3.0, 4)])

    done = CliRunner().invoke(main, [str(log), "--no-keep", "--compress", "1"])
    assert done.exit_code == 0, done.output
    assert [line.split()[3:5] for line in done.stdout.splitlines() if "x 1" in line] == [
        ["fcfs", "1.000"],
        ["easy", "1.000"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n", ":1: is no line of the Standard Workload Format: 18 numbers, got 3 words"),
        (LINE.format(1, 0, "long", 4), "is no line of the Standard Workload Format"),
        ("; MaxProcs: 4\n", "has no job with a run time and processors"),
    ],
)
def test_what_is_no_log_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    log = tmp_path / "wrong.swf"
    log.write_text(text)

    with pytest.raises(InputError) as caught:
        read_log(log)
    assert message in str(caught.value)

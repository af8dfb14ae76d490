"""Random arrivals: rates and shapes of the processes, what is drawn by weight, and what forms refuse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched_models.document import InputError
from flowsched_simulator import Scenario, load_scenario
from flowsched_simulator.arrivals import Arrivals, Bursts, DailyCycle, RateTable, arrival_times
from flowsched_simulator.workload import drawn_workload

PROCESSES = (
    Arrivals("poisson", 30.0),
    Arrivals("diurnal", 30.0, DailyCycle(0.8, 600.0, 100.0)),
    Arrivals("diurnal", 30.0, RateTable((0.0, 1.0, 5.0, 2.0), 600.0)),
    Arrivals("bursty", 30.0, Bursts(20.0, 60.0, 0.9)),
    Arrivals("bursty", 30.0, Bursts(20.0, 60.0, 1.0)),
)
COUNT = 40_000


@pytest.mark.parametrize("arrivals", PROCESSES, ids=lambda a: f"{a.kind} {type(a.pattern).__name__}")
def test_the_rate_is_the_mean_of_every_process(arrivals: Arrivals) -> None:
    times = arrival_times(arrivals, 10 * COUNT, seed=1)
    assert np.all(np.diff(times) >= 0.0) and times[0] >= 0.0
    assert 10 * COUNT / times[-1] == pytest.approx(0.5, rel=0.04), "four standard deviations of the burstiest"


@given(st.sampled_from(PROCESSES), st.integers(0, 2**32), st.integers(0, 3000), st.integers(0, 3000))
@settings(max_examples=25, deadline=None)
def test_more_arrivals_begin_with_the_same_ones(arrivals: Arrivals, seed: int, few: int, more: int) -> None:
    first, longer = (arrival_times(arrivals, n, seed) for n in (few, few + more))
    assert np.array_equal(first, longer[:few]) and len(longer) == few + more


@pytest.mark.parametrize("arrivals", PROCESSES[1:3], ids=["sinusoid", "table"])
def test_daily_rates_follow_their_curve(arrivals: Arrivals) -> None:
    """Counts by quarter of the period against the integral of the rate; four standard deviations of a Poisson count."""
    assert isinstance(arrivals.pattern, DailyCycle | RateTable)
    times = arrival_times(arrivals, COUNT, seed=2)
    fine = np.linspace(0.0, 600.0, 4001)[:-1] + 600.0 / 8000
    wanted = arrivals.pattern.relative(fine).reshape(4, -1).mean(axis=1) / 4 * COUNT
    found = np.bincount((times % 600.0 / 150.0).astype(int), minlength=4)
    assert np.abs(found - wanted) == pytest.approx(np.zeros(4), abs=4 * np.sqrt(wanted.max()))
    assert wanted.max() > 1.5 * COUNT / 4


def test_bursts_without_arrivals_in_calms_are_kuczuras_process() -> None:
    """Squared coefficient of variation of its gaps: 1 + 2 a c / (c + w)^2 for bursts that end at rate c, calms at rate w,
    and arrivals at rate a within bursts.
    """
    bursts = Bursts(burst_s=20.0, calm_s=60.0, share=1.0)
    gaps = np.diff(arrival_times(Arrivals("bursty", 30.0, bursts), 400_000, seed=3))
    a, c, w = 0.5 * 80.0 / 20.0, 1 / 20.0, 1 / 60.0
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1 + 2 * a * c / (c + w) ** 2, rel=0.05)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(arrival_times(PROCESSES[0], COUNT, seed=4))
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Arrivals("poisson"),
        lambda: Arrivals("weekly", 1.0),
        lambda: Arrivals("bursty", 1.0),
        lambda: Arrivals("poisson", 1.0, Bursts(1.0, 1.0)),
    ],
)
def test_a_process_that_is_none_cannot_be_made(make: object) -> None:
    with pytest.raises(ValueError, match=r"arrivals"):
        make()  # type: ignore[operator]


# --- in scenarios -----------------------------------------------------------------------------------------

HEAD = "apiVersion: flowsched/v1\nkind: Scenario\nname: mix\nmachines: [{type: e2-standard-8, copies: 2}]\n"
JOBS = (
    "jobs:\n  - {name: small, request: 1, runtime_s: 3, mix: 3}\n"
    "  - {name: gang, request: 1, runtime_s: 9, estimate_s: 3, tasks: 2, barrier: true, deadline_s: 60}\n"
)


def loaded(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + text)
    return load_scenario(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, text)
    return [str(p).replace(f"{tmp_path}/", "") for p in caught.value.problems]


def test_jobs_are_drawn_by_weight_and_keep_what_is_theirs(tmp_path: Path) -> None:
    of = loaded(tmp_path, JOBS + "arrivals: {poisson: {rate_per_minute: 60, jobs: 2000}}\n")
    drawn = drawn_workload(of, 5)
    jobs = Counter(name.rpartition("-")[0] for name in {t.job for t in drawn.tasks})
    assert jobs.total() == 2000 and jobs["small"] == pytest.approx(1500, abs=4 * np.sqrt(2000 * 0.75 * 0.25))
    gangs = [t for t in drawn.tasks if t.job.startswith("gang-")]
    assert len(gangs) == 2 * jobs["gang"]
    assert {t.group for t in gangs} == drawn.barriers == {g.name for g in drawn.task_groups} == {t.job for t in gangs}
    assert (
        {t.name for t in gangs}
        == drawn.run_time_factors.keys()
        == {f"{job}/{k}" for job in drawn.barriers for k in (1, 2)}
    )
    assert drawn.job_terms.keys() == drawn.barriers and drawn.terms_of("gang-1").deadline_s == 60.0
    for job in drawn.barriers:
        assert len({t.submit_s for t in gangs if t.job == job}) == 1
    assert drawn == drawn_workload(of, 5) != drawn_workload(of, 6)
    assert drawn_workload(drawn, 7) == drawn, "what is drawn stays"


@pytest.mark.parametrize(
    ("arrivals", "pattern"),
    [
        ("{diurnal: {rate_per_minute: 6, amplitude: 0.5}}", DailyCycle(0.5, 86_400.0, 43_200.0)),
        ("{diurnal: {rate_per_minute: 6, amplitude: 0, peak_s: 0, period_s: 60}}", DailyCycle(0.0, 60.0, 0.0)),
        ("{diurnal: {rate_per_minute: 6, levels: [1, 2.5]}}", RateTable((1.0, 2.5))),
        ("{bursty: {rate_per_minute: 6, burst_s: 10, calm_s: 50}}", Bursts(10.0, 50.0, 0.9)),
    ],
)
def test_forms_of_arrivals(tmp_path: Path, arrivals: str, pattern: object) -> None:
    found = loaded(tmp_path, JOBS.replace(", mix: 3", "") + f"arrivals: {arrivals}\n").arrivals
    assert (found.rate_per_minute, found.pattern, found.jobs, found.mix) == (6.0, pattern, None, {})


def test_mistakes_of_random_arrivals(tmp_path: Path) -> None:
    text = "jobs:\n  - {name: a, request: 1, runtime_s: 3, copies: 2, submit_s: 4}\n"
    text += "  - {name: b, request: 1, runtime_s: 3, after: [a]}\n"
    assert problems(
        tmp_path, text + "arrivals: {diurnal: {rate_per_minute: 6, jobs: 5, levels: [0, 0], peak_s: 3}}\n"
    ) == [
        "s.yaml:6: jobs[0].submit_s: has no meaning where arrivals are drawn at random; leave it out",
        "s.yaml:6: jobs[0].copies: has no meaning where jobs are drawn by weight; leave it out, or write mix: 2",
        "s.yaml:7: jobs[1].after: has no meaning where jobs are drawn by weight; leave it out",
        "s.yaml:8: arrivals.diurnal.peak_s: is for a sinusoid; leave it out, or order the levels",
        "s.yaml:8: arrivals.diurnal.levels: must not be 0 throughout; nothing would ever arrive",
    ]
    for both in ("", ", amplitude: 0.5, levels: [1]"):
        (problem,) = problems(tmp_path, f"{JOBS}arrivals: {{diurnal: {{rate_per_minute: 6, jobs: 5{both}}}}}\n")
        assert problem.startswith("s.yaml:8: arrivals.diurnal: must have either amplitude, for a sinusoid, or levels")
    assert problems(tmp_path, JOBS) == [
        "s.yaml:6: jobs[0].mix: is for random arrivals that draw jobs by weight; give the number of jobs to draw: "
        "arrivals: {poisson: {jobs: ...}}"
    ]
    assert problems(
        tmp_path, JOBS + "arrivals: {bursty: {rate_per_minute: 6, burst_s: 1, calm_s: 2, share: 2, jobs: 1}}\n"
    ) == ["s.yaml:8: arrivals.bursty.share: must be at most 1, but is 2"]

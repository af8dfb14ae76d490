"""What happens in one instant is seen by one round, and given run times end when they say."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.exact_runs import CORES, round_jobs, scenario_of, started, trace_jobs
from benchmarks.integer_loop import Job, starts_of
from flowsched.cluster.decision import Decisions, Placement
from flowsched.cluster.snapshot import Snapshot
from flowsched.pricing.linear.policies import COST_MODELS
from flowsched_models.execution import INSTANT_S
from flowsched_simulator import EngineOptions, Options, Run, Scenario, make_scenario, simulate
from flowsched_simulator.baselines.availability import Availability, Ends
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.simulation import Simulation

OWN = "declared-own"
BOX = {"type": "e2-standard-8"}
GPU_RULES = ("gpu-", "topo-")


def scenario(jobs: Sequence[Mapping[str, Any]], machines: int = 1, **keys: Any) -> Scenario:
    named = [{"name": f"j{i:04d}", **job} for i, job in enumerate(jobs)]
    return make_scenario([{**BOX, "name": f"m{k}"} for k in range(machines)], named, **keys)


def run_by(given: Scenario, policy: str, seed: int = 0) -> Run:
    granted = policy in BASELINES and BASELINES[policy].uses_granting
    return simulate(given, policy, options=Options(seed=seed), variant=OWN if granted else None)


def ends(run: Run) -> list[float | None]:
    return [job.end_s for job in run.jobs]


# --- integers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs_of", "count"), [(round_jobs, 3000), (trace_jobs, 1000)])
@pytest.mark.parametrize(("rule", "load"), [("fcfs", 0.45), ("sjf", 0.6), ("easy", 0.6)])
def test_rules_agree_with_an_event_loop_in_integers(rule: str, load: float, jobs_of: Any, count: int) -> None:
    jobs = jobs_of(7, count, load, 32)

    run = simulate(scenario_of(jobs, 4), rule, variant=OWN)

    right = starts_of([CORES] * 4, jobs, rule)
    assert started(run) == right
    assert ends(run) == [start + job.run for (start, _), job in zip(right, jobs, strict=True)]
    assert sum(start > job.submit for (start, _), job in zip(right, jobs, strict=True)) > count / 10


@pytest.mark.parametrize("rule", ["fcfs", "sjf", "easy", "conservative"])
@pytest.mark.parametrize("seed", [0, 1])
def test_rules_agree_where_all_queue_for_one_machine(rule: str, seed: int) -> None:
    rng = random.Random(seed)
    jobs = [Job(60 * (i // 4), rng.choice((600, 3600, 7200)), rng.choice((1, 1, 2, 3, 4, 5, 8))) for i in range(60)]

    assert started(simulate(scenario_of(jobs, 1), rule, variant=OWN)) == starts_of([CORES], jobs, rule)


# --- what else happens beside ----------------------------------------------------------------------------


EVERY_RULE = [
    "flow",
    *(name for name in (*BASELINES, *COST_MODELS) if not name.startswith(GPU_RULES)),
]


def mixed_jobs(seed: int, count: int = 14) -> list[dict[str, Any]]:
    """Mixed widths, jobs after others, estimates that are wrong."""
    rng = random.Random(seed)
    found: list[dict[str, Any]] = []
    for i in range(count):
        run = rng.choice((60, 120, 600))
        job: dict[str, Any] = {"request": rng.choice((1, 1, 2, 3, 5, 8)), "runtime_s": run, "submit_s": 30 * (i // 3)}
        if rng.random() < 0.3:
            job["estimate_s"] = run * rng.choice((0.5, 3))
        if i > 5 and rng.random() < 0.2:
            job["after"] = [f"j{i - 5:04d}"]
        found.append(job)
    return found


@pytest.mark.parametrize("policy", EVERY_RULE)
def test_whole_seconds_stay_whole_and_move_with_the_clock(policy: str) -> None:
    """Beside each other, after a delay, preempted and resumed, at wrong estimates, and at times as of 1970."""
    delay = {"at_submission_s": 1, "after_waiting_s": 2}
    runs: list[list[object]] = []
    for shift_s in (0, 1_000_003, 1_700_000_000):
        jobs = [{**job, "submit_s": job["submit_s"] + shift_s} for job in mixed_jobs(3)]
        run = run_by(scenario(jobs, 2, start_delay=delay), policy, seed=5)
        runs.append([])
        for job, asked in zip(run.jobs, jobs, strict=True):
            assert job.start_s is not None and job.end_s is not None and job.end_s.is_integer()
            pieces = [(stay.start_s, stay.left_s) for stay in job.earlier] + [(job.start_s, job.end_s)]
            assert sum(max(0.0, end - start) for start, end in pieces) == asked["runtime_s"]
            runs[-1].append((job.machine, job.start_s - shift_s, job.end_s - shift_s))

    assert runs[0] == runs[1] == runs[2]


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 900), st.integers(1, 8)), min_size=2, max_size=12),
    st.integers(1, 10**6),
    st.sampled_from(("fcfs", "easy", "conservative", "sjf", "lpt", "srpt", "las", "tetris", "wfs", "random")),
)
def test_thousandths_of_seconds_move_with_the_clock(
    jobs: list[tuple[int, int, int]], shift_s: int, policy: str
) -> None:
    """Their sums are rounded, and ends that coincide with arrivals do so on any clock."""
    found = []
    for by_s in (0, shift_s):
        asked = [
            {"request": cores, "runtime_s": run / 1000, "submit_s": submit / 1000 + by_s} for submit, run, cores in jobs
        ]
        run = run_by(scenario(asked), policy)
        found.append([job.start_s - by_s for job in run.jobs if job.start_s is not None])

    assert found[1] == pytest.approx(found[0], abs=1e-6)


def test_an_arrival_in_the_second_of_an_end_is_seen_by_the_same_round() -> None:
    jobs = [(8, 10, 0), (8, 1000, 1), (8, 5, 10)]
    asked = [{"request": cores, "runtime_s": run, "submit_s": submit} for cores, run, submit in jobs]

    for policy in ("sjf", "flow", "shortest-job-first"):
        assert [job.start_s for job in run_by(scenario(asked), policy).jobs] == [0.0, 15.0, 10.0]


class Watch:
    """Starts everything at once, and keeps the times of rounds and what each saw."""

    name = "watch"
    told = ()

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[str]]] = []

    def decide(self, snapshot: Snapshot) -> Decisions:
        self.seen.append((snapshot.now_s, [t.name for t in snapshot.pending]))
        return Decisions(tuple(Placement(t.name, "m0", 1000, 1, (0,)) for t in snapshot.pending), ())


def test_an_instant_takes_in_what_follows_its_first_event_and_is_not_prolonged() -> None:
    begin = 100.0
    times = [begin, begin + 0.4 * INSTANT_S, begin + 0.9 * INSTANT_S, begin + 1.3 * INSTANT_S, begin + 1.8 * INSTANT_S]
    watch = Watch()

    run = Simulation(scenario([{"request": 1, "runtime_s": 5, "submit_s": t} for t in times]), watch).run()

    assert watch.seen == [(times[2], ["j0000", "j0001", "j0002"]), (times[4], ["j0003", "j0004"])]
    assert all(job.start_s >= job.submit_s for job in run.jobs if job.start_s is not None)
    assert ends(run) == [t + 5.0 for t in (times[2],) * 3 + (times[4],) * 2]


def test_ends_and_those_that_come_after_them_are_one_instant() -> None:
    """0.1 + 0.2 is not 0.3."""
    jobs: list[dict[str, Any]] = [
        {"request": 4, "runtime_s": 0.2, "submit_s": 0.1},
        {"request": 4, "runtime_s": 0.3},
        {"request": 8, "runtime_s": 1, "submit_s": 0.3},
        {"request": 8, "runtime_s": 0.5, "after": ["j0000"]},
    ]

    run = run_by(scenario(jobs), "sjf")

    begun = {job.job: job.start_s for job in run.jobs}
    assert begun == pytest.approx({"j0000": 0.1, "j0001": 0.0, "j0002": 0.8, "j0003": 0.3}, abs=1e-9)
    assert len(run.rounds) == 4


# --- what rules are told -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["sjf", "tetris", "lpt", "shortest-job-first"])
def test_equal_run_times_tie_by_arrival_at_any_width(policy: str) -> None:
    jobs = [(8, 100, 0), (2, 285, 1), (8, 285, 2)]
    asked = [{"request": cores, "runtime_s": run, "submit_s": submit} for cores, run, submit in jobs]

    assert [job.start_s for job in run_by(scenario(asked), policy).jobs] == [0.0, 100.0, 385.0]


def test_a_backfill_beside_a_reservation_needs_no_room_between_two_ends_of_one_instant() -> None:
    jobs = [(4, 3600, 0), (1, 3600, 0), (1, 18000, 0), (5, 3600, 1), (2, 10800, 2)]
    asked = [{"request": cores, "runtime_s": run, "submit_s": submit} for cores, run, submit in jobs]

    for policy in ("easy", "conservative"):
        assert [job.start_s for job in run_by(scenario(asked), policy).jobs] == [0.0, 0.0, 0.0, 3600.0, 2.0]


def test_moments_of_one_instant_are_one_for_reservations() -> None:
    held = [(0, np.array([1]), 10.0 + k * 0.6 * INSTANT_S) for k in range(4)]

    known = Availability(0.0, np.array([[0]]), Ends.of(held, 1))

    assert known.times.tolist() == [0.0, held[0][2], held[2][2]]
    assert known.free[:, 0, 0].tolist() == [0, 2, 4]


def test_what_is_shared_of_a_core_does_not_stretch_a_given_run_time() -> None:
    asked = [{"request": "500m", "runtime_s": 100} for _ in range(16)]

    run = simulate(scenario(asked), "fcfs", variant="declared-shared")

    assert ends(run) == [100.0] * 16


def learnt_and_started(shift_s: int) -> tuple[list[dict[str, Any]], list[float]]:
    """What ``flow`` knew of run times in each round, and when the jobs started, on a clock that is so much ahead."""
    jobs = [
        {**job, "submit_s": job["submit_s"] + shift_s, "runtime_s": job["runtime_s"] + i / 7}
        for i, job in enumerate(mixed_jobs(4))
    ]
    learnt: list[dict[str, Any]] = []
    options = Options(
        record_sink=lambda policy, number, recipe: learnt.extend(
            part["snapshot"]["run_time_errors"] for part in recipe()["parts"]
        )
    )
    run = simulate(scenario(jobs, 2), "flow", options=options, engine=EngineOptions(keep_records=True))
    return learnt, [job.start_s - shift_s for job in run.jobs if job.start_s is not None]


def test_what_flow_learns_from_ends_is_the_same_on_any_clock() -> None:
    """Also where a float holds a time to a quarter of a microsecond."""
    learnt, starts = learnt_and_started(0)

    assert learnt[-1]["log_squares"] > 1.0
    for shift_s in (1_000_003, 1_700_000_000):
        again, later = learnt_and_started(shift_s)
        assert again == learnt and later == pytest.approx(starts, abs=1e-5)

"""Jobs with a given run time have what they declare, under every policy and whatever a rule grants others."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowsched.cluster.decision import Decisions
from flowsched.cluster.snapshot import Snapshot
from flowsched.planner.problem import problem_of
from flowsched.planner.rules import PlanRules
from flowsched_models.given_run_time import fixed_profile
from flowsched_models.profiles import load_catalogue
from flowsched_models.runtime import HostFactory, Occupant, Stage
from flowsched_simulator import make_scenario
from flowsched_simulator.baselines.granting import VARIANTS, Granting
from flowsched_simulator.baselines.registry import BASELINES, make_baseline
from flowsched_simulator.comparison import simulate, simulate_variants
from flowsched_simulator.grant_check import check_time
from flowsched_simulator.policies import EngineOptions, all_policies
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import Simulation
from flowsched_simulator.world import World

EIGHT = {"name": "m", "type": "e2-standard-8"}
OTHERS = sorted(policy.name for policy in all_policies() if policy.name not in BASELINES)
SHORT = EngineOptions(plan=PlanRules(evaluations=300))
"""A search that begins, and ends soon."""


def under(scenario: Scenario, name: str, granting: Granting) -> Run:
    return Simulation(scenario, make_baseline(name, granting, 0), hosts=HostFactory(scenario.catalogue)).run()


def starts(run: Run) -> dict[str, float | None]:
    return {job.name: job.start_s for job in run.jobs}


WIDE = make_scenario([EIGHT | {"copies": 2}], [{"name": "a", "request": 8, "runtime_s": 100, "copies": 8}])
HALVES = make_scenario([EIGHT], [{"name": "a", "request": "500m", "runtime_s": 100, "copies": 16}])


@pytest.mark.parametrize("policy", OTHERS)
def test_every_policy_grants_what_is_declared(policy: str) -> None:
    assert simulate(WIDE, policy, engine=SHORT).makespan_s == 400.0
    assert simulate(HALVES, policy, engine=SHORT).makespan_s == 100.0


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_every_rule_does_so_in_every_variant(name: str) -> None:
    for granting in (Granting(1, "own"), Granting(4, "shared")):
        assert under(WIDE, name, granting).makespan_s == 400.0
        assert under(HALVES, name, granting).makespan_s == 100.0


def test_where_all_run_times_are_given_there_is_nothing_to_choose() -> None:
    (run,) = simulate_variants(WIDE, "fcfs")
    assert run.variant == "" and simulate(WIDE, "fcfs", variant="1-shared").makespan_s == run.makespan_s
    mixed = make_scenario(
        [EIGHT], [{"name": "a", "request": 1, "runtime_s": 1}, {"name": "b", "profile": "vips", "request": 1}]
    )
    assert len(simulate_variants(mixed, "fcfs")) == len(VARIANTS)


@pytest.mark.parametrize(
    ("milli", "jobs"),
    [
        (4500, [1500] * 3),
        (1000, [300, 700]),
        (3000, [300] * 10),
        (3000, [750] * 4),
        (8000, [7500, 500]),
        (2500, [1300, 1200]),
    ],
)
def test_parts_of_cores_fill_a_machine_to_the_last_thousandth(milli: int, jobs: list[int]) -> None:
    scenario = make_scenario(
        [EIGHT | {"cpu": f"{milli}m"}],
        [{"name": f"j{k}", "request": f"{request}m", "runtime_s": 100} for k, request in enumerate(jobs)],
    )
    for policy in ("fcfs", "easy", "best-fit", "flow", "trivial"):
        assert simulate(scenario, policy).makespan_s == 100.0, policy


def first_come(jobs: list[tuple[int, int, int]], milli: int) -> list[int]:
    """Starts of jobs (submission, request, run time) on one machine in order of arrival: an event loop in whole numbers."""
    running: list[tuple[int, int]] = []
    found, free, clock = [], milli, 0
    for submitted, request, lasts in jobs:
        clock = max(clock, submitted)
        while running and (running[0][0] <= clock or free < request):
            end, back = heappop(running)
            clock, free = max(clock, end), free + back
        free -= request
        heappush(running, (clock + lasts, request))
        found.append(clock)
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=25),
    st.sampled_from(VARIANTS),
)
def test_first_come_first_served_is_that_of_whole_numbers(jobs: list[tuple[int, int, int]], granting: Granting) -> None:
    jobs = sorted((submitted, 100 * tenths, lasts) for submitted, tenths, lasts in jobs)
    scenario = make_scenario(
        [EIGHT | {"cpu": 4}],
        [
            {"name": f"j{k:02}", "submit_s": submitted, "request": f"{request}m", "runtime_s": lasts}
            for k, (submitted, request, lasts) in enumerate(jobs)
        ],
    )
    run = under(scenario, "fcfs", granting)
    assert [job.start_s for job in run.jobs] == pytest.approx(first_come(jobs, 4000), abs=1e-5)
    assert [job.end_s - job.start_s for job in run.jobs if job.end_s and job.start_s is not None] == pytest.approx(
        [lasts for *_, lasts in jobs], abs=1e-5
    )


job_entries = st.fixed_dictionaries(
    {
        "request": st.sampled_from(["200m", "500m", 1, "1500m", 2, 3]),
        "submit_s": st.integers(0, 20),
        "runtime_s": st.integers(1, 40),
        "memory": st.just("256Mi"),
    },
    optional={"profile": st.sampled_from(["vips", "canneal"])},
)


@settings(max_examples=20, deadline=None)
@given(st.lists(job_entries, min_size=1, max_size=14), st.lists(st.booleans(), min_size=14, max_size=14), st.data())
def test_own_cores_of_measured_jobs_stay_their_own(
    entries: list[dict[str, object]], measured: list[bool], data: st.DataObject
) -> None:
    jobs = [{"name": f"j{k}", **entry} for k, entry in enumerate(entries)]
    for job, by_profile in zip(jobs, measured, strict=False):
        if by_profile:
            job.update(profile="vips", scale=0.05)
            del job["runtime_s"]
    scenario = make_scenario([EIGHT, {"name": "n", "type": "n2d-highcpu-2"}], jobs)
    name = data.draw(st.sampled_from(["fcfs", "easy", "conservative", "srpt", "best-fit", "tetris", "all-at-once"]))
    granting = data.draw(st.sampled_from(VARIANTS))
    run = under(scenario, name, granting)
    asked = {t.name: t.request_milli for t in scenario.tasks if scenario.catalogue.jobs[t.profile].has_given_run_time}
    assert all(job.end_s is not None for job in run.jobs)
    assert all(job.width_milli == asked.get(job.name, job.width_milli) for job in run.jobs)
    if granting.cores == "own" and name != "all-at-once":
        for one, other in product(run.jobs, run.jobs):
            apart = one.machine != other.machine or one.end_s <= other.start_s or other.end_s <= one.start_s  # type: ignore[operator]
            if one is not other and not apart and one.name not in asked and not one.earlier and not other.earlier:
                assert set(one.cores).isdisjoint(other.cores), (one, other)


def test_flow_gives_no_less_where_narrower_widths_are_named() -> None:
    scenario = make_scenario(
        [EIGHT | {"copies": 2}], [{"name": "a", "request": 8, "widths": [1, 8], "runtime_s": 100, "copies": 8}]
    )
    for policy in ("flow", "flow+plan"):
        assert simulate(scenario, policy, engine=SHORT).makespan_s == 400.0


def test_a_plan_with_free_weights_leaves_given_jobs_their_request() -> None:
    scenario = make_scenario(
        [EIGHT], [{"name": "a", "request": 2, "runtime_s": 9}, {"name": "b", "profile": "vips", "request": 2}]
    )
    snapshot = Snapshot(0.0, scenario.catalogue, scenario.machines, pending=scenario.tasks)
    widths = problem_of(snapshot, PlanRules(weights="free")).widths_of
    assert widths[0] == (2000,) and len(widths[1]) > 1


class Stingy:
    """Grants half of what is asked for."""

    name = "stingy"

    def decide(self, snapshot: Snapshot) -> Decisions:
        whole = make_baseline("fcfs", Granting(), 0).decide(snapshot)
        return replace(whole, placements=tuple(replace(p, width_milli=p.width_milli // 2) for p in whole.placements))


def test_a_policy_that_gives_less_is_told_in_every_run() -> None:
    with pytest.raises(RuntimeError, match="stingy gives a-1 4 cores, and it asks for 8 cores"):
        Simulation(WIDE, Stingy()).run()


@pytest.mark.parametrize("end_s", [99.9, 100.1])
def test_a_run_time_that_is_not_the_given_one_is_told(end_s: float) -> None:
    run = simulate(HALVES, "fcfs")
    world = World(HALVES.machines, (), HostFactory(HALVES.catalogue))
    check_time(zip(HALVES.tasks, run.jobs, strict=True), world, "fcfs")
    wrong = [replace(job, end_s=end_s) for job in run.jobs]
    with pytest.raises(RuntimeError, match="of its given run time when it ended"):
        check_time(zip(HALVES.tasks, wrong, strict=True), world, "fcfs")


@pytest.mark.parametrize("weight", [0.25, 0.5, 1.0, 4.0])
def test_a_given_job_uses_what_it_asks_for_and_others_share_the_rest(weight: float) -> None:
    """Two cores, a job of two threads on both and a given one: no CPU comes from nowhere."""
    catalogue = load_catalogue()
    fixed = fixed_profile(catalogue, None)
    host = HostFactory(replace(catalogue, jobs={**catalogue.jobs, fixed.name: fixed})).host("n2d-highcpu-2")
    given_job = Occupant(fixed.name, Stage.SERIAL, 1, (0, 1), weight)
    other = Occupant("vips", Stage.PARALLEL, 2, (0, 1), 2.0)
    found = host.rates((given_job, other))
    assert found.progress[given_job] == 1.0
    assert found.busy[given_job] == pytest.approx(min(1.0, weight), abs=1e-6)
    assert found.busy[other] == pytest.approx(2.0 - min(1.0, weight), abs=1e-6)

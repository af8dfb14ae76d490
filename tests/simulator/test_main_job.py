"""The bundled scenario: a published plan replayed, and `flow` against it and against every baseline."""

from dataclasses import replace

import pytest

from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.settings import Settings
from flowsched_models.runtime import HostFactory, Occupant, Stage
from flowsched_simulator import (
    POLICIES,
    EngineOptions,
    Scenario,
    load_scenario,
    load_schedule,
    replay,
    simulate,
)
from flowsched_simulator.replay import caveats

ENGINE = EngineOptions(Settings(exact_limit=0))

# "Cloud Computing Architecture", semester project report, group 048, ETH Zurich, May 2024, Part 3: means of three runs.
MEASURED_S = {
    "blackscholes": 114.33,
    "canneal": 139.33,
    "dedup": 10.33,
    "ferret": 94.33,
    "freqmine": 140.67,
    "radix": 10.00,
    "vips": 29.33,
}
MEASURED_MAKESPAN_S = 153.67


@pytest.fixture(scope="module")
def published_makespan_s() -> float:
    return replay(load_scenario("parsec-memcached-2024"), load_schedule("group-048")).makespan_s


def test_the_published_plan_takes_as_long_as_it_was_measured() -> None:
    run = replay(load_scenario("parsec-memcached-2024"), load_schedule("group-048"))

    assert run.makespan_s == pytest.approx(MEASURED_MAKESPAN_S, rel=0.02)
    assert run.slo_violation_ratio == 0.0
    simulated = {j.job: j.end_s - j.start_s for j in run.jobs if j.end_s is not None and j.start_s is not None}
    assert simulated == pytest.approx(MEASURED_S, rel=0.15)


@pytest.mark.parametrize(("name", "share"), [("parsec-memcached-2024", 0.95), ("parsec-memcached-2024-c", 0.91)])
def test_flow_beats_the_published_plan_and_every_baseline(name: str, share: float, published_makespan_s: float) -> None:
    scenario = load_scenario(name)
    spans = {policy: simulate(scenario, policy, engine=ENGINE) for policy in POLICIES}

    ours = spans.pop("flow")
    assert ours.slo_violation_ratio == 0.0
    assert ours.makespan_s <= share * published_makespan_s
    assert ours.makespan_s < min(run.makespan_s for run in spans.values())


def shuffled(scenario: Scenario) -> Scenario:
    return replace(scenario, tasks=scenario.tasks[::-1])


def renamed(scenario: Scenario) -> Scenario:
    names = ["z", "y", "x", "w", "v", "u", "t"]
    tasks = (replace(t, name=n, job=n) for t, n in zip(scenario.tasks, names, strict=True))
    return replace(scenario, tasks=tuple(tasks))


@pytest.mark.parametrize("change", [shuffled, renamed])
def test_names_and_order_of_jobs_decide_nothing(change: object) -> None:
    assert callable(change)
    scenario = load_scenario("parsec-memcached-2024")

    def placed(s: Scenario) -> dict[tuple[object, ...], tuple[object, ...]]:
        run = simulate(s, "flow", engine=ENGINE)
        return {(j.profile,): (j.machine, j.width_milli, j.start_s, j.end_s) for j in run.jobs}

    assert placed(change(scenario)) == placed(scenario)


def test_a_job_that_waits_on_purpose_says_what_for() -> None:
    scenario = load_scenario("parsec-memcached-2024")
    from flowsched_simulator.simulation import Options

    run = simulate(
        scenario,
        "flow",
        options=Options(keep_records=True),
        engine=EngineOptions(Settings(exact_limit=0), keep_records=True),
    )
    reasons = [r["text"] for record in run.records for part in record["parts"] for r in part["waiting"]["reasons"]]
    assert reasons
    assert all("completion" in reason and "node-" in reason for reason in reasons)


def test_no_task_waits_for_a_machine_that_will_never_take_it() -> None:
    """The large machine's cache has no headroom for the job; the small one is idle."""
    base = load_scenario("parsec-memcached-2024-c")
    small, _, large = base.machines
    (cache,) = base.services
    job = replace(next(t for t in base.tasks if t.name == "canneal"), submit_s=0.0)
    host = HostFactory(base.catalogue).host(large.type, [service_load(cache)])
    others = tuple(c for c in range(large.vcpus) if c not in cache.cores)
    gentle = Occupant(job.profile, Stage.SERIAL, 1, others, 1.0)
    (alone_us,), (beside_us,) = (host.rates(those).p95_us for those in ((), (gentle,)))
    cache = replace(cache, slo_us=(alone_us + beside_us) / 2 / ENGINE.settings.slo_margin)
    scenario = replace(base, services=(cache,), tasks=(job,), machines=(small, large))

    run = simulate(scenario, "flow", engine=ENGINE)

    assert cache.machine == large.name
    assert alone_us < beside_us
    assert [(j.machine, j.bound_s) for j in run.jobs] == [(small.name, 0.0)]
    assert run.slo_violation_ratio == 0.0


def test_a_replay_keeps_the_times_of_submission() -> None:
    base = load_scenario("parsec-memcached-2024")
    late = replace(base, tasks=tuple(replace(t, submit_s=5.0) for t in base.tasks))
    schedule = load_schedule("group-048")

    assert {j.submit_s for j in replay(late, schedule).jobs} == {5.0}
    assert any("is submitted only at 5 s" in note for note in caveats(late, schedule))
    assert caveats(base, schedule) == ()

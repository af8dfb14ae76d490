"""What a simulated run must hold to under every policy."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count, pairwise
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, HUNGRY, SERIAL, flow_scheduler, machine, machines, profiles, service, task
from flowsched.cluster.decision import Decisions, Placement, Scheduler
from flowsched.cluster.occupied_machines import service_load
from flowsched.cluster.snapshot import Machine, Service, Snapshot, StartDelay, Task
from flowsched_models.runtime import HostFactory, Resident
from flowsched_simulator import make_scenario
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.easy import EasyBackfilling
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.latency_windows import LatencySpan, LatencySpans, median, windows_of
from flowsched_simulator.run import JobRun, LatencyWindow, RoundSummary, Run
from flowsched_simulator.scenario import Arrivals, Scenario
from flowsched_simulator.simulation import IDLE_ROUNDS, Options, Simulation
from flowsched_simulator.workload import workload
from flowsched_simulator.world import ErrorOf, ModelError, World

ALL = (0, 1, 2, 3)


def scenario(
    tasks: list[Task],
    cluster: tuple[Machine, ...] | None = None,
    services: tuple[Service, ...] = (),
    **changes: Any,
) -> Scenario:
    return Scenario("hand-made", "", CATALOGUE, cluster or (machine(),), services, tuple(tasks), **changes)


def flow(**changes: Any) -> Scheduler:
    return flow_scheduler(**({"pricings": 1500, "exact_limit": 0} | changes))


class AtOnce:
    """Starts everything that waits on the first machine, with all of its cores, and says how long that took."""

    name = "at-once"
    reads_progress = True

    def __init__(self, width_milli: int = 1000, decide_ms: float | None = None) -> None:
        self.seen: list[Snapshot] = []
        self._width, self._decide_ms = width_milli, decide_ms

    def decide(self, snapshot: Snapshot) -> Decisions:
        self.seen.append(snapshot)
        m = snapshot.machines[0]
        cores = snapshot.batch_cores(m)
        placements = tuple(Placement(t.name, m.name, self._width, len(cores), cores) for t in snapshot.pending)
        timings = {} if self._decide_ms is None else {"decide": self._decide_ms}
        return Decisions(placements, (), timings_ms=timings)


def simulate(of: Scenario, scheduler: Scheduler | None = None, **options: Any) -> Run:
    return Simulation(of, scheduler or AtOnce(), Options(**options)).run()


def plain(run: Run) -> str:
    values = run.to_json()
    del values["timings"]
    return json.dumps(values, allow_nan=False)


@st.composite
def workloads(draw: st.DrawFn) -> Scenario:
    tasks = [
        task(
            f"job-{k}",
            draw(profiles()),
            scale=draw(st.sampled_from((0.02, 0.5, 1.0))),
            cores=draw(st.sampled_from((1, 2, 4))),
            submit_s=draw(st.sampled_from((0.0, 0.0, 7.0, 40.0))),
        )
        for k in range(draw(st.integers(1, 6)))
    ]
    services = (service(),) if draw(st.booleans()) else ()
    tasks = [replace(t, request_milli=min(t.request_milli, 3000)) for t in tasks]
    return scenario(
        tasks,
        machines(draw(st.integers(1, 2))),
        services,
        start_delay=draw(st.sampled_from((StartDelay(), StartDelay(1.0, 3.0)))),
        arrivals=draw(st.sampled_from((Arrivals(), Arrivals("poisson", 6.0)))),
    )


SCHEDULERS = st.sampled_from(("flow", "fcfs", "lpt", "kube-default"))


def make(name: str) -> Scheduler:
    return flow() if name == "flow" else BASELINES[name](Granting("declared", "shared"), 0)


# --- every run --------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(workloads(), SCHEDULERS, st.sampled_from((0.0, 0.3)))
def test_every_job_runs_once_after_it_was_submitted(of: Scenario, name: str, error: float) -> None:
    run = simulate(of, make(name), model_error=error, seed=3)

    assert sorted(j.job for j in run.jobs) == sorted(t.name for t in of.tasks)
    assert sum(r.placed for r in run.rounds) == len(of.tasks)
    delays = (of.start_delay.at_submission_s, of.start_delay.after_waiting_s)
    batch = of.batch_cores()
    for j in run.jobs:
        assert j.bound_s is not None
        assert j.start_s is not None
        assert j.end_s is not None
        assert j.machine is not None
        assert j.submit_s <= j.bound_s <= j.start_s < j.end_s
        assert min(abs(j.start_s - j.bound_s - d) for d in delays) < 1e-9
        assert set(j.cores) <= set(batch[j.machine])
        assert j.slowdown is not None
        assert j.slowdown >= 1.0 - 1e-6
    for m in of.machines:
        held = sum(s.width_milli for s in of.services if s.machine == m.name)
        for at in (j.bound_s for j in run.jobs if j.machine == m.name and j.bound_s is not None):
            here = [j for j in run.jobs if j.machine == m.name and (j.bound_s or 0.0) <= at < (j.end_s or 0.0)]
            assert held + sum(j.width_milli for j in here) <= m.cpu_milli


@settings(max_examples=40)
@given(workloads(), SCHEDULERS, st.sampled_from((0.0, 0.3)))
def test_the_same_seed_gives_the_same_run(of: Scenario, name: str, error: float) -> None:
    first, again = (simulate(of, make(name), model_error=error, seed=5) for _ in range(2))

    assert plain(first) == plain(again)


BLIND = sorted(name for name in BASELINES if not getattr(BASELINES[name], "reads_progress", True))


@pytest.mark.parametrize("cores", ["shared", "own"])
@pytest.mark.parametrize("name", BLIND)
def test_rules_that_read_no_progress_decide_the_same_where_it_is_estimated(
    name: str, cores: Literal["shared", "own"]
) -> None:
    rng = np.random.default_rng(7)
    scales, widths = rng.choice((0.02, 0.1, 0.3), 60).tolist(), rng.choice((1, 2), 60).tolist()
    tasks = [
        task(f"job-{k:02d}", HUNGRY if k % 3 else SERIAL, scale=scale, cores=width, submit_s=2.0 * k)
        for k, (scale, width) in enumerate(zip(scales, widths, strict=True))
    ]
    rule, told = (BASELINES[name](Granting("declared", cores), 0) for _ in range(2))
    told.reads_progress = True
    of = scenario(tasks, machines(4), (service(),))

    assert plain(simulate(of, rule)) == plain(simulate(of, told))


def test_rules_without_estimates_are_those_that_say_so_themselves() -> None:
    assert (
        sorted(["best-fit", "conservative", "easy", "fcfs", "kube-default", "lpt", "most-allocated", "random", "sjf"])
        == BLIND
    )

    class ByLoad(EasyBackfilling):
        """A rule as another package may have it."""

        def __init__(self) -> None:
            super().__init__(Granting("declared", "shared"))
            self.seen: list[Snapshot] = []

        def decide(self, snapshot: Snapshot) -> Decisions:
            self.seen.append(snapshot)
            return super().decide(snapshot)

    rule = ByLoad()
    simulate(scenario([task("a", SERIAL), task("b", SERIAL, submit_s=7.0)]), rule)
    assert rule.seen[1].running[0].progress > 0.0


@pytest.mark.parametrize("reads", [True, False])
def test_progress_is_estimated_for_those_that_read_it(reads: bool) -> None:
    scheduler = AtOnce()
    scheduler.reads_progress = reads
    simulate(scenario([task("a", SERIAL), task("b", SERIAL, submit_s=7.0)]), scheduler)

    assert [r.progress > 0.0 for r in scheduler.seen[1].running] == [reads]


def test_memory_of_rates_may_be_shared_by_runs() -> None:
    of = scenario([task(f"job-{k}", SERIAL, submit_s=3.0 * k) for k in range(4)])
    hosts = HostFactory(CATALOGUE)
    runs = [Simulation(of, flow(), hosts=h).run() for h in (hosts, hosts, None)]

    assert len({plain(r) for r in runs}) == 1


# --- truth and belief -------------------------------------------------------------------------------------


def test_model_error_changes_the_truth_and_not_what_is_believed() -> None:
    of = scenario([task("a"), task("b", submit_s=5.0)])
    exact, wrong = AtOnce(), AtOnce()
    run, other = simulate(of, exact), simulate(of, wrong, model_error=0.5, seed=1)

    assert [j.end_s for j in run.jobs] != [j.end_s for j in other.jobs]
    # the second round, at 5 s, believes the same of "a" in both
    assert [s.now_s for s in exact.seen] == [s.now_s for s in wrong.seen] == [0.0, 5.0]
    assert exact.seen[1].running == wrong.seen[1].running
    assert exact.seen[1].running[0].progress == pytest.approx(0.2)


@pytest.mark.parametrize("of", get_args(ErrorOf))
def test_the_error_of_a_job_on_a_machine_depends_on_nothing_else(of: ErrorOf) -> None:
    error = ModelError(0.3, 7, of)

    assert error.factor("a", "m1") == ModelError(0.3, 7, of).factor("a", "m1")
    assert error.factor("a", "m1") not in (error.factor("b", "m1"), ModelError(0.3, 8, of).factor("a", "m1"))
    assert (error.factor("a", "m1") == error.factor("a", "m2")) is (of in ("job", "class"))
    assert ModelError().factor("a", "m1") == 1.0


def test_a_job_alone_takes_its_factor_longer() -> None:
    of = scenario([task("a")])
    (job,) = simulate(of, model_error=0.3, seed=7).jobs
    factor = ModelError(0.3, 7).factor("a", "m1")

    assert job.end_s == pytest.approx(25.0 * factor)
    assert job.alone_s == pytest.approx(25.0 * factor)


def test_an_end_that_nearly_coincides_with_a_start_is_not_lost() -> None:
    world = World([machine()], [], HostFactory(CATALOGUE))
    job = Resident("scaling", 10.0, 1, ALL, 1.0)
    world.start("a", "m1", job, 0.0)
    just_before = world.next_event_s() - 5e-7
    assert world.advance(just_before) == []

    world.start("b", "m1", job, just_before)

    ended = []
    for _ in range(4):
        if world.next_event_s() < float("inf"):
            ended += world.advance(world.next_event_s())
    assert [end.task for end in ended] == ["a", "b"]


# --- arrivals and time ------------------------------------------------------------------------------------


def test_poisson_arrivals_come_from_the_seed_in_the_order_listed() -> None:
    of = scenario([task(f"job-{k}") for k in range(400)], arrivals=Arrivals("poisson", 30.0))
    first = workload(of, 1)
    times = [t.submit_s for t in first]

    assert first == workload(of, 1) != workload(of, 2)
    assert [t.name for t in first] == [t.name for t in of.tasks]
    assert times == sorted(times)
    assert times[0] > 0.0
    assert times[-1] / 400 == pytest.approx(2.0, rel=0.2)


def test_given_times_are_kept_whatever_the_seed() -> None:
    of = scenario([task("late", submit_s=9.0), task("early"), task("twin", submit_s=9.0)])

    assert [t.name for t in workload(of, 1)] == ["early", "late", "twin"]
    assert workload(of, 1) == workload(of, 2)


def test_scheduling_time_is_charged_only_when_asked() -> None:
    of = scenario([task("a")])
    clock = count(step=2.0).__next__

    free = simulate(of, AtOnce(decide_ms=2000.0)).jobs[0]
    stated = simulate(of, AtOnce(decide_ms=2000.0), charge_scheduling_time=True).jobs[0]
    measured = simulate(of, AtOnce(), charge_scheduling_time=True, clock=clock).jobs[0]

    assert free.start_s == 0.0
    assert stated.start_s == measured.start_s == pytest.approx(2.0)
    assert stated.end_s == pytest.approx(27.0)


def test_the_flow_policy_pays_for_its_own_clock() -> None:
    ticks = count()
    scheduler = flow_scheduler(clock=lambda: next(ticks) * 0.5)

    (job,) = simulate(scenario([task("a")]), scheduler, charge_scheduling_time=True).jobs

    assert job.start_s is not None
    assert job.start_s > 1.0
    assert job.start_s % 0.5 == pytest.approx(0.0)


def test_what_arrives_while_a_round_is_charged_waits_for_the_next_one() -> None:
    scheduler = AtOnce(decide_ms=2000.0)
    run = simulate(scenario([task("a"), task("b", submit_s=1.0)]), scheduler, charge_scheduling_time=True)

    assert [s.now_s for s in scheduler.seen] == pytest.approx([0.0, 2.0])
    assert [j.start_s for j in run.jobs] == pytest.approx([2.0, 4.0])


def test_a_container_takes_longer_for_those_who_waited() -> None:
    """Of two that need the whole machine, one starts at once and one at the first one's end."""
    of = scenario(
        [task("a", cores=4), task("b", cores=4)], start_delay=StartDelay(at_submission_s=1.0, after_waiting_s=3.0)
    )
    first, second = sorted(simulate(of, make("fcfs")).jobs, key=lambda j: j.start_s or 0.0)

    assert (first.bound_s, first.start_s, first.end_s) == pytest.approx((0.0, 1.0, 26.0))
    assert (second.bound_s, second.start_s, second.end_s) == pytest.approx((26.0, 29.0, 54.0))


def test_a_scheduler_that_never_places_ends_the_run() -> None:
    run = simulate(scenario([task("giant", memory_mib=99_999), task("a")]), flow())

    giant, a = run.jobs
    assert a.end_s is not None
    assert (giant.machine, giant.start_s, giant.end_s, giant.slowdown) == (None, None, None, None)
    assert run.makespan_s == float("inf")
    assert run.to_json()["makespan_s"] is None
    assert plain(run)
    assert json.dumps(run.summary(), allow_nan=False)


def test_a_run_without_jobs_has_figures_too() -> None:
    run = simulate(scenario([]))

    assert (run.makespan_s, run.jobs, run.latency, run.rounds) == (0.0, (), (), ())
    assert json.dumps(run.summary(), allow_nan=False)
    assert plain(run)


# --- latency windows --------------------------------------------------------------------------------------


def test_windows_begin_with_the_first_start_and_the_last_may_be_short() -> None:
    world = World([machine()], [service()], HostFactory(CATALOGUE))
    world.settle(30.0)

    windows = world.latency(2.0, 27.0)

    idle = HostFactory(CATALOGUE).host("small", [service_load(service())]).rates(()).p95_us[0]
    assert windows == (LatencyWindow(service().name, 2.0, 27.0, service().qps, idle, 1000.0, 3),)


WINDOWED = st.lists(st.tuples(st.floats(0.01, 60.0), st.sampled_from((200.0, 300.0, 700.0))), min_size=1, max_size=12)


@given(WINDOWED, st.floats(0.0, 30.0))
def test_merged_windows_are_windows_of_ten_seconds(parts: list[tuple[float, float]], first_s: float) -> None:
    stretches, now_s = LatencySpans(), 0.0
    for length_s, p95 in parts:
        stretches.add(now_s, now_s + length_s, p95)
        now_s += length_s

    found = list(windows_of(stretches, first_s, now_s))

    plain, at = [], first_s
    while at < now_s - 1e-9:
        end = min(at + 10.0, now_s)
        parts_of = [max(0.0, min(s.end_s, end) - max(s.begin_s, at)) * s.p95_us for s in stretches]
        plain.append(sum(parts_of) / (end - at))
        at = end
    assert [w.p95_us for w in found for _ in range(w.windows)] == pytest.approx(plain)
    assert len(found) <= 2 * len(stretches)
    assert all(one.p95_us != other.p95_us for one, other in pairwise(found))
    assert [w.end_s for w in found[:-1]] == [w.begin_s for w in found[1:]]
    if found:
        values, counts = np.array([w.p95_us for w in found]), np.array([w.windows for w in found])
        assert median(values, counts) == pytest.approx(np.median(plain))


def test_a_long_calm_is_one_window() -> None:
    stretches = LatencySpans([LatencySpan(0.0, 1e13, 200.0)])

    assert list(windows_of(stretches, 0.0, 1e13)) == [(0.0, 1e13, 200.0, 10**12)]


def test_a_window_half_loud_and_half_idle_is_in_the_middle() -> None:
    hosts = HostFactory(CATALOGUE)
    world = World([machine()], [service()], hosts)
    load = Resident("hungry", 1.0, 2, (1, 2, 3), 1.0)
    world.start("probe", "m1", load, 0.0)
    end = world.next_event_s()
    scaled = replace(load, scale=15.0 / end)

    world = World([machine()], [service()], hosts)
    world.start("loud", "m1", scaled, 0.0)
    assert world.next_event_s() == pytest.approx(15.0)
    assert world.advance(world.next_event_s()) == [("loud", pytest.approx(15.0), False)]
    world.settle(24.0)
    first, second, third = world.latency(0.0, 24.0)

    assert third.end_s - third.t_s == pytest.approx(4.0)
    assert first.p95_us > third.p95_us
    assert second.p95_us == pytest.approx((first.p95_us + third.p95_us) / 2)


def test_violations_count_windows() -> None:
    def window(k: int, p95: float) -> LatencyWindow:
        return LatencyWindow("cache", 10.0 * k, 10.0 * k + 10.0, 1.0, p95, 1000.0)

    run = Run("s", "p", "", 0, (), (window(0, 999.0), window(1, 1000.0), window(2, 1001.0), window(3, 500.0)), ())

    assert run.slo_violation_ratio == 0.25
    merged = replace(window(2, 1001.0), windows=5)
    assert replace(run, latency=(window(0, 999.0), merged)).slo_violation_ratio == 5 / 6
    assert run.worst_p95_us == 1001.0


# --- figures ----------------------------------------------------------------------------------------------


def job(name: str, submit: float, start: float | None, end: float | None, alone: float = 10.0) -> JobRun:
    return JobRun(name, "scaling", "m1" if end else None, ALL, 1000, 4, submit, start, start, end, alone)


def test_figures_of_a_run_by_hand() -> None:
    jobs = (job("a", 2.0, 3.0, 12.0), job("b", 4.0, 10.0, 34.0))
    rounds = (RoundSummary(0.0, 1, 1, 4.0, None), RoundSummary(4.0, 1, 1, 8.0, None))
    run = Run("s", "p", "v", 0, jobs, (), rounds)
    summary = run.summary()

    assert run.makespan_s == 32.0
    assert [j.slowdown for j in jobs] == [1.0, 3.0]
    assert [j.waiting_s for j in jobs] == [1.0, 6.0]
    assert summary["mean_slowdown"] == 2.0
    assert summary["mean_completion_s"] == 20.0
    assert summary["p95_completion_s"] == 30.0
    assert summary["mean_waiting_s"] == 3.5
    assert summary["timings"]["round_ms"]["p50"] == 6.0
    assert (summary["slo_violation_ratio"], summary["worst_p95_us"]) == (0.0, None)
    assert (summary["gap_absolute_max"], summary["certificate"]) == (None, None)


def test_a_job_that_never_ended_makes_its_figures_null() -> None:
    run = Run("s", "p", "", 0, (job("a", 0.0, 0.0, 10.0), job("b", 0.0, None, None)), (), ())
    values, summary = run.to_json(), run.summary()

    assert values["makespan_s"] is None
    assert (values["jobs"][1]["end_s"], values["jobs"][1]["slowdown"]) == (None, None)
    keys = ("makespan_s", "mean_completion_s", "p95_completion_s", "mean_waiting_s", "mean_slowdown")
    assert [summary[k] for k in keys] == [None] * 5
    assert json.dumps([values, summary], allow_nan=False)


# --- simulated time ---------------------------------------------------------------------------------------


def test_simulated_time_has_no_end_where_nothing_is_wrong() -> None:
    tasks = [task("short", SERIAL, scale=0.01), task("endless", SERIAL, scale=1e12), task("late", submit_s=5e8)]
    cluster = machines(3)
    told: list[float] = []

    run = Simulation(
        scenario(tasks, cluster, (service(),)), flow(), progress=lambda t, ended, count: told.append(t)
    ).run()

    by_name = {j.job: j for j in run.jobs}
    assert all(j.end_s is not None for j in run.jobs) and (by_name["late"].start_s or 0.0) >= 5e8
    assert max(told) == run.makespan_s > 1e11
    assert len(run.latency) < 30, "equal windows are one, however long"


@pytest.mark.parametrize("submit_s", [0.0, 5000.5])
def test_rounds_at_an_interval_beside_a_job_of_years_are_bounded(submit_s: float) -> None:
    """A scale mistyped: nothing else can start before that job ends, and rounds do not go on asking every second."""
    tasks = [task("years", scale=1e9, cores=4), task("waits", cores=4, submit_s=submit_s)]

    run = Simulation(scenario(tasks), make("fcfs"), Options(round_interval_s=1.0)).run()

    years, waits = run.jobs
    assert years.end_s is not None and years.end_s > 1e9
    assert waits.start_s is not None and years.end_s <= waits.start_s <= years.end_s + 1.0
    assert len(run.rounds) <= IDLE_ROUNDS + 4


def test_time_may_end_earlier() -> None:
    tasks = [task("a", SERIAL), task("b", submit_s=30.0)]

    run = Simulation(scenario(tasks), flow(), Options(max_time_s=7.0)).run()

    assert [j.end_s for j in run.jobs] == [None, None]
    assert all("ended after 7 s" in j.reason for j in run.jobs)


def test_progress_counts_from_the_first_submission_as_the_makespan_does() -> None:
    told: list[tuple[float, int]] = []
    tasks = [task("a", submit_s=100.0), task("b", submit_s=130.0)]

    run = Simulation(scenario(tasks), flow(), progress=lambda t, ended, _: told.append((t, ended))).run()

    assert told[0] == (0.0, 0)
    assert told[-1] == (pytest.approx(run.makespan_s), 2)


@pytest.mark.parametrize("machines", [1, 2, 3])
def test_a_makespan_of_jobs_with_given_run_times_is_the_ideal_one(machines: int) -> None:
    """Three kinds of jobs whose requests and run times fill every machine for 480 s without a gap."""
    kinds = ((4.8, 240.0, 2), (2.4, 60.0, 8), (0.8, 20.0, 24))
    batch = make_scenario(
        machines=[{"type": "e2-standard-8", "copies": machines}],
        jobs=[
            {"name": f"job-{run_s:.0f}", "request": cores, "runtime_s": run_s, "copies": count * machines}
            for cores, run_s, count in kinds
        ],
        objective="makespan",
    )
    run = simulate(batch, flow_scheduler(objective="makespan", exact_limit=0))
    assert run.makespan_s == pytest.approx(480.0, abs=1e-6)

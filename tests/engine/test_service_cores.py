"""Light tasks on the cores of latency services: who may, what it costs, and that the machines then do what was believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_parts import deciding_on

from builders import CATALOGUE, LARGE, SMALL, any_of, flow_scheduler, machine, rounds, service, snapshot, task
from flowsched.cluster.compaction import compact
from flowsched.cluster.decision import Decisions
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot, StartDelay
from flowsched.inspector.replay import replay
from flowsched.inspector.source import open_record
from flowsched.pricing.arrival import Arrival
from flowsched.pricing.flow_prices import FORBIDDEN, FlowPrices
from flowsched.pricing.forecast_cache import ForecastCache
from flowsched.records.record_file import write_record
from flowsched.round.improvement import share_cores
from flowsched.round.passes import run_passes
from flowsched_models.forecast import forecast
from flowsched_models.neutral import NEUTRAL, with_neutral_job
from flowsched_models.pace_table import PaceTable
from flowsched_models.profile import JobProfile
from flowsched_models.runtime import HostFactory, Resident
from flowsched_simulator.scenario import Objective, Scenario
from flowsched_simulator.simulation import Options, Simulation

NARROW = st.sampled_from(((100, 1000), (250, 1000, 4000), (500,), (2000,)))


@st.composite
def shared_rounds(draw: st.DrawFn) -> Snapshot:
    """Rounds in which tasks may be light and services may share."""
    drawn = draw(rounds(max_machines=2, max_pending=4, max_running=1))
    pending = tuple(replace(t, widths_milli=draw(NARROW), memory_mib=min(t.memory_mib, 3000)) for t in drawn.pending)
    return replace(drawn, pending=pending, share_service_cores=True)


def residents(now: Snapshot, decisions: Decisions, name: str) -> list[Resident]:
    tasks = {t.name: t for t in now.pending}
    return [
        Resident(
            tasks[p.task].profile,
            tasks[p.task].scale,
            p.threads,
            p.cores,
            p.width_milli / 1000,
            tasks[p.task].memory_mib,
        )
        for p in decisions.placements
        if p.machine == name
    ]


@settings(max_examples=60)
@given(shared_rounds(), st.sampled_from(("completion", "makespan")), st.sampled_from((1, 3)))
def test_arriving_tasks_have_batch_cores_or_all_and_no_goal_is_broken(
    now: Snapshot, objective: str, slots: int
) -> None:
    decisions = flow_scheduler(objective=objective, slots=slots, exact_limit=300, pricings=2000).decide(now)

    assert decisions.record is not None
    view = compact(now, HostFactory(now.catalogue))
    on = {m.name: (m, view.groups[view.group_of[i]]) for i, m in enumerate(view.machines)}
    for p in decisions.placements:
        where, group = on[p.machine]
        assert p.cores in (now.batch_cores(where), tuple(range(where.vcpus)))
    for name, (_, group) in on.items():
        joined = residents(now, decisions, name)
        before = forecast(group.host, group.residents).peak_p95_us
        after = forecast(group.host, [*group.residents, *joined]).peak_p95_us
        alone = forecast(group.host, joined).peak_p95_us
        for s, quiet, peak, own in zip(group.services, before, after, alone, strict=True):
            # Running tasks may break a goal; then only arriving ones that make it no worse join.
            assert not joined or peak <= max(s.slo_us, quiet) + 1e-6 or own <= s.slo_us
    if decisions.certificate is not None:
        slack = 1e-6 * max(1.0, abs(decisions.certificate.primal))
        assert decisions.certificate.unconstrained <= decisions.certificate.bound + slack
        assert decisions.certificate.bound <= decisions.certificate.primal + slack


@settings(max_examples=60)
@given(shared_rounds(), st.sampled_from((1, 3)))
def test_sharing_is_for_all_light_tasks_of_a_machine_and_only_where_it_pays(now: Snapshot, slots: int) -> None:
    deciding = deciding_on(now, Settings(slots=slots))
    model, all_tasks = deciding.model, list(range(len(now.pending)))
    run_passes(deciding, all_tasks, 0.0)
    before, apart = model.total(deciding.plan), deciding.plan.copy()

    count = share_cores(deciding, all_tasks)

    assert model.total(deciding.plan) <= before
    assert (count == 0) == (deciding.plan.options == apart.options)
    assert count == 0 or model.total(deciding.plan) < before or before == FORBIDDEN
    for m in range(len(now.machines)):
        g = model.view.group_of[m]
        here = [(t, o) for t in deciding.plan.on(m) if (o := deciding.plan.options[t]) is not None]
        light = [o for t, o in here if model.forecasts.light(g, model.view.class_of[t], o.width_milli)]
        assert len({o.shared for o in light}) <= 1
        assert sum(o.shared for _, o in here) in (0, len(light))


@st.composite
def batches(draw: st.DrawFn) -> Scenario:
    """Jobs that are all submitted at once to machines with services."""
    count = draw(st.integers(1, 4))
    profiles = st.sampled_from(tuple(CATALOGUE.jobs.values()))
    tasks = [
        task(
            f"job-{k}",
            draw(profiles),
            scale=draw(any_of(0.1, 0.7, 1.0)),
            widths_milli=draw(NARROW),
            memory_mib=draw(any_of(100, 2000)),
        )
        for k in range(count)
    ]
    found = (machine("m1"), machine("m2", draw(any_of(SMALL, LARGE))))
    services = tuple(
        service(f"cache-{k}", f"m{k}", (draw(st.integers(0, 2)),), qps=draw(any_of(5_000.0, 30_000.0)))
        for k in range(1, draw(st.integers(1, 2)) + 1)
    )
    return Scenario(
        "hand-made",
        "",
        CATALOGUE,
        found,
        services,
        tuple(tasks),
        objective=draw(st.sampled_from(Objective)),
        start_delay=draw(any_of(StartDelay(), StartDelay(1.0, 3.0))),
        share_service_cores=True,
    )


@settings(max_examples=50)
@given(batches())
def test_the_simulator_does_what_the_round_believed(of: Scenario) -> None:
    scheduler = flow_scheduler(objective=of.objective.value, slots=1, exact_limit=0, pricings=2000)
    seen: list[tuple[Snapshot, Decisions]] = []

    class Watched:
        name = scheduler.name

        def decide(self, now: Snapshot) -> Decisions:
            seen.append((now, scheduler.decide(now)))
            return seen[-1][1]

    run = Simulation(of, Watched(), Options()).run()

    now, decisions = seen[0]
    if decisions.postponements:
        return  # who comes later changes what was believed
    ends = {j.job: j.end_s for j in run.jobs}
    view = compact(now, HostFactory(now.catalogue))
    prices = FlowPrices(ForecastCache(view, True, PaceTable()), Settings())
    class_of = {t.name: view.class_of[i] for i, t in enumerate(view.tasks)}
    for i, m in enumerate(view.machines):
        here = [p for p in decisions.placements if p.machine == m.name]
        all_cores = bool(now.service_cores(m.name))
        colocation = tuple(
            sorted(Arrival(class_of[p.task], 0, p.width_milli, all_cores and len(p.cores) == m.vcpus) for p in here)
        )
        believed = prices.forecast(view.group_of[i], colocation)
        assert believed is not None
        assert sorted(believed.arrivals_s) == pytest.approx(sorted(ends[p.task] for p in here), abs=1e-6)
        # Equal machines are one group: its services have the names of one of them.
        names = [s.name for s in of.services if s.machine == m.name]
        for name, peak in zip(names, believed.peak_p95_us, strict=True):
            assert all(w.p95_us <= peak + 1e-6 for w in run.latency if w.service == name)


def test_a_light_task_shares_and_a_heavy_one_does_not() -> None:
    cluster = [machine()]
    calm = service(qps=5_000.0)
    light = task("light", widths_milli=(100,))
    heavy = task("heavy", widths_milli=(3000,))

    def cores(now: Snapshot, **changes: object) -> tuple[int, ...]:
        (placed,) = flow_scheduler(**changes).decide(now).placements
        return placed.cores

    allowed = {"services": [calm], "share_service_cores": True}
    assert cores(snapshot([light], cluster, **allowed)) == (0, 1, 2, 3)
    assert cores(snapshot([light], cluster, services=[calm])) == (1, 2, 3)
    assert cores(snapshot([light], cluster, **allowed), share_service_cores=False) == (1, 2, 3)
    # Three cores of weight on a quarter of the machine each: its service would come close to nothing.
    tight = replace(calm, slo_us=350.0)
    assert cores(snapshot([heavy], cluster, services=[tight], share_service_cores=True)) == (1, 2, 3)


def test_replay_decides_the_same_again(tmp_path: Path) -> None:
    now = snapshot(
        [task(f"t{k}", widths_milli=(250, 1000), memory_mib=100) for k in range(3)],
        [machine("m1"), machine("m2")],
        services=[service(qps=5_000.0)],
        share_service_cores=True,
    )
    decisions = flow_scheduler().decide(now)
    assert decisions.record is not None
    assert any(p.cores == (0, 1, 2, 3) and p.machine == "m1" for p in decisions.placements)
    path = tmp_path / "round.json"
    write_record(decisions.record, path)
    assert replay(open_record(path)).same


@settings(max_examples=30)
@given(st.floats(0.3, 3.0), NARROW, st.floats(1_000.0, 20_000.0))
def test_a_job_that_was_never_measured_takes_no_core_of_a_service(
    scale: float, widths_milli: tuple[int, ...], qps: float
) -> None:
    """The same job under another name may."""
    jobs = with_neutral_job(CATALOGUE).jobs
    guess = replace(jobs[NEUTRAL], name="guess", error=0.0)
    cluster = replace(CATALOGUE, jobs={**jobs, "guess": guess})

    def shares(profile: JobProfile) -> set[bool]:
        waits = task("t", profile, scale=scale, widths_milli=widths_milli)
        now = snapshot([waits], [machine()], services=[service(qps=qps, slo_us=1e6)], share_service_cores=True)
        view = compact(replace(now, catalogue=cluster), HostFactory(cluster))
        return {shared for _, shared in ForecastCache(view, True, PaceTable()).ways(0, 0)}

    assert shares(jobs[NEUTRAL]) == {False} and shares(guess) == {False, True}

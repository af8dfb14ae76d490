"""What every round must hold to, whatever the cluster looks like."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    CATALOGUE,
    SINGLE,
    catalogue,
    flow_scheduler,
    machine,
    machines,
    rounds,
    running,
    service,
    snapshot,
    state_of,
    task,
)
from flowsched.assignment import Assignment, Column
from flowsched.certificate import certify
from flowsched.compaction import compact
from flowsched.decision import Decisions
from flowsched.events import TaskBound
from flowsched.first_network import FirstSolution, solve_first
from flowsched.improvement import settle
from flowsched.outlook import Outlook
from flowsched.policies.flow import FlowPolicy
from flowsched.record_file import record_json
from flowsched.reservation import settle_dues
from flowsched.search import Search
from flowsched.settings import Settings
from flowsched.snapshot import Reservation, Snapshot, StartDelay, Task
from flowsched.solvers import make_solver
from flowsched_models.forecast import forecast
from flowsched_models.runtime import HostFactory, Resident

VARIANTS = st.fixed_dictionaries(
    {
        "objective": st.sampled_from(("completion", "makespan")),
        "slots": st.sampled_from((1, 3)),
        "pricings": st.just(2000),
        "exact_limit": st.sampled_from((0, 300)),
    }
)


def where(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.machine for p in decisions.placements}


def plain(record: Any) -> str:
    parts = [{k: v for k, v in part.items() if k != "timings"} for part in record["parts"]]
    return record_json({**record, "parts": parts})


def machinery(view_of: Snapshot, chosen: Settings, solver: str = "ortools") -> tuple[Search, FirstSolution]:
    """What a round has in hand before it improves its starts."""
    view = compact(view_of, HostFactory(view_of.catalogue))
    outlook = Outlook(view)
    prices = FlowPolicy(chosen).price(outlook)
    dues = settle_dues(view, prices, chosen)
    search = Search(
        view,
        outlook,
        prices,
        make_solver(solver),
        chosen.slots,
        chosen.pricings,
        dues.holds,
        dues.must_start,
    )
    return search, solve_first(view, prices, search.solver, chosen.resolves, frozenset(dues.holds))


def optimum(search: Search) -> float:
    """The least cost of any plan, by trying all of them."""
    view = search.view
    options: list[list[Column | None]] = []
    for t in range(len(view.tasks)):
        columns: list[Column | None] = [] if t in search.must_start else [None]
        for m in range(len(view.machines)):
            columns += search.columns(t, m)
        options.append(columns)
    return min(
        search.total(Assignment(list(choice), view.class_of, len(view.machines))) for choice in product(*options)
    )


# --- every round ------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(rounds(), VARIANTS)
def test_every_pending_task_is_placed_or_postponed_and_the_machines_can_take_it(
    now: Snapshot, variant: dict[str, Any]
) -> None:
    decisions = flow_scheduler(**variant).decide(now)

    named = sorted([p.task for p in decisions.placements] + [p.task for p in decisions.postponements])
    assert named == sorted(t.name for t in now.pending)
    tasks = {t.name: t for t in now.pending}
    on = {m.name: m for m in now.machines}
    state = state_of(now)
    for p in decisions.placements:
        allowed = tasks[p.task].machines
        assert allowed is None or p.machine in allowed
        assert p.width_milli in tasks[p.task].widths_milli
        assert p.cores and set(p.cores) <= set(now.batch_cores(on[p.machine]))
        # raises if a machine were overcommitted
        state.apply(TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, now.now_s), now.now_s)
    assert all(p.reason and p.waited_s >= 0.0 for p in decisions.postponements)


@settings(max_examples=25)
@given(rounds(), VARIANTS, st.data())
def test_order_carries_no_meaning_and_the_same_snapshot_gives_the_same_record(
    now: Snapshot, variant: dict[str, Any], data: st.DataObject
) -> None:
    scheduler = flow_scheduler(**variant)
    shuffled = replace(
        now,
        machines=tuple(data.draw(st.permutations(now.machines))),
        pending=tuple(data.draw(st.permutations(now.pending))),
        running=tuple(data.draw(st.permutations(now.running))),
    )

    first, again, other = scheduler.decide(now), flow_scheduler(**variant).decide(now), scheduler.decide(shuffled)

    assert first.record is not None
    assert again.record is not None
    assert plain(first.record) == plain(again.record)
    assert sorted(first.placements, key=lambda p: p.task) == sorted(other.placements, key=lambda p: p.task)
    assert sorted(first.postponements, key=lambda p: p.task) == sorted(other.postponements, key=lambda p: p.task)
    assert first.reservations == other.reservations
    assert first.certificate == other.certificate


@settings(max_examples=40)
@given(rounds(), VARIANTS)
def test_the_certificate_bounds_what_was_decided(now: Snapshot, variant: dict[str, Any]) -> None:
    certificate = flow_scheduler(**variant).decide(now).certificate

    if not now.pending:
        assert certificate is None
        return
    assert certificate is not None
    slack = 1e-6 * max(1.0, abs(certificate.primal))
    assert np.isfinite(certificate.primal)
    assert certificate.bound <= certificate.primal + slack
    assert certificate.unconstrained <= certificate.bound + slack


@settings(max_examples=40)
@given(rounds(max_machines=2, max_pending=3, max_running=1), st.sampled_from((1, 2)))
def test_bounds_against_every_possible_plan(now: Snapshot, slots: int) -> None:
    chosen = Settings(slots=slots, refine_widths=False)
    search, first = machinery(now, chosen)
    if not now.pending:
        return
    best = optimum(search)
    search, plan = settle(
        search, [Assignment([None] * len(now.pending), search.view.class_of, len(now.machines))], chosen
    )

    lagrangian = certify(search, plan, first, replace(chosen, exact_limit=0))
    exact = certify(search, plan, first, chosen)

    slack = 1e-6 * max(1.0, abs(best))
    assert lagrangian.method == "lagrangian"
    assert lagrangian.bound <= best + slack
    if exact.method == "exact":
        assert exact.bound <= best + slack
        if not search.must_start:
            assert exact.bound == pytest.approx(best, rel=1e-6, abs=1e-4)


@settings(max_examples=40)
@given(rounds(), st.sampled_from((1, 3)))
def test_the_first_network_is_a_flow_and_packs_whole_tasks(now: Snapshot, slots: int) -> None:
    chosen = Settings(slots=slots)
    search, first = machinery(now, chosen)
    _, reference = machinery(now, chosen, "networkx")
    network, flow = first.first.network, first.solution.flow

    assert first.solution.cost == network.cost_of(flow) == reference.solution.cost
    assert (flow >= 0).all()
    assert (flow <= network.capacities).all()
    balance = np.zeros(len(network.supplies), dtype=np.int64)
    np.add.at(balance, network.tails, flow)
    np.subtract.at(balance, network.heads, flow)
    assert (balance == network.supplies).all()
    for m in range(len(search.view.machines)):
        group = search.view.groups[search.view.group_of[m]]
        here = first.assignment.on(m)
        columns = [c for t in here if (c := first.assignment.columns[t]) is not None]
        assert all(c.slot == 0 for c in columns)
        assert sum(c.width_milli for c in columns) <= group.free_milli
        assert sum(search.view.tasks[t].memory_mib for t in here) <= group.free_memory_mib


@settings(max_examples=60)
@given(rounds(), VARIANTS)
def test_no_placement_is_predicted_to_break_a_latency_goal(now: Snapshot, variant: dict[str, Any]) -> None:
    decisions = flow_scheduler(**variant).decide(now)

    view = compact(now, HostFactory(now.catalogue))
    tasks = {t.name: t for t in now.pending}
    for g, m in zip(view.group_of, view.machines, strict=True):
        joined = [
            Resident(
                tasks[p.task].profile,
                tasks[p.task].scale,
                p.threads,
                p.cores,
                p.width_milli / 1000,
                tasks[p.task].memory_mib,
            )
            for p in decisions.placements
            if p.machine == m.name
        ]
        if not joined:
            continue
        group = view.groups[g]
        before = forecast(group.host, group.residents).peak_p95_us
        after = forecast(group.host, [*group.residents, *joined]).peak_p95_us
        for s, quiet, peak in zip(group.services, before, after, strict=True):
            assert peak <= max(s.slo_us, quiet) + 1e-6


@settings(max_examples=40)
@given(rounds(max_pending=5), VARIANTS)
def test_the_earliest_due_task_that_fits_anywhere_starts(now: Snapshot, variant: dict[str, Any]) -> None:
    search, _ = machinery(now, Settings(**variant))
    placed = where(flow_scheduler(**variant).decide(now))

    assert {search.view.tasks[t].name for t in search.must_start} <= set(placed)


# --- one case each ----------------------------------------------------------------------------------------


def test_a_due_task_starts_though_four_others_would_be_cheaper() -> None:
    wide = task("wide", widths_milli=(4000,))
    narrow = [task(f"n{k}", scale=0.05, widths_milli=(1000,), submit_s=400.0) for k in range(4)]

    for objective, slots in product(("completion", "makespan"), (1, 3)):
        decisions = flow_scheduler(objective=objective, slots=slots).decide(snapshot([wide, *narrow], now_s=1000.0))
        assert where(decisions) == {"wide": "m1"}, (objective, slots)


def test_a_task_that_no_machine_suits_is_no_class_of_one_that_all_suit() -> None:
    decisions = flow_scheduler().decide(snapshot([task("a"), task("b", machines=())]))

    assert where(decisions) == {"a": "m1"}
    (postponed,) = decisions.postponements
    assert postponed.planned is None


def test_nothing_pending_and_no_machine_are_rounds_too() -> None:
    assert flow_scheduler().decide(snapshot()).placements == ()
    assert flow_scheduler().decide(snapshot((), ())).placements == ()
    (postponed,) = flow_scheduler().decide(snapshot([task("a")], ())).postponements
    assert postponed.task == "a"
    for solver in ("ortools", "networkx"):
        assert flow_scheduler(solver).decide(snapshot()).postponements == ()


def test_one_machine_that_promised_more_than_it_has_does_not_stop_the_others() -> None:
    too_much = running(task("r"), "m1", width_milli=5000)

    decisions = flow_scheduler().decide(snapshot([task("a")], machines(2), running=[too_much]))

    assert where(decisions) == {"a": "m2"}


def test_an_impossible_task_does_not_end_the_search_for_a_short_makespan() -> None:
    """With it the makespan is infinite whatever the plan: the others' is still worth something."""
    kinds = [("serial", 3.0), ("hungry", 1.0), ("serial", 1.0), ("scaling", 2.0), ("hungry", 0.5), ("serial", 2.0)]
    jobs = [task(f"job-{k}", CATALOGUE.jobs[p], scale=s) for k, (p, s) in enumerate(kinds)]
    giant = task("giant", memory_mib=99_999)

    def last_s(pending: list[Task]) -> float:
        record = flow_scheduler(objective="makespan", exact_limit=0).decide(snapshot(pending, machines(2))).record
        assert record is not None
        search, _ = machinery(snapshot(jobs, machines(2)), Settings())
        number = {m.name: i for i, m in enumerate(search.view.machines)}
        column = {
            p["task"]: None if p["machine"] is None else Column(number[p["machine"]], p["slot"], p["width_milli"])
            for p in record["parts"][0]["plan"]
        }
        columns = [column[t.name] for t in search.view.tasks]
        return search.finish(Assignment(columns, search.view.class_of, 2))[1]

    assert last_s([*jobs, giant]) <= 1.01 * last_s(jobs)


def test_the_bound_holds_where_waiting_starts_sooner_than_submission() -> None:
    fresh = snapshot([task("a", widths_milli=(1000,))], start_delay=StartDelay(100.0, 0.0))

    certificate = flow_scheduler(exact_limit=0).decide(fresh).certificate

    assert certificate is not None
    assert certificate.bound <= certificate.primal + 1e-6


def test_the_bound_holds_where_a_reserved_machine_is_filled_up_to_its_reservation() -> None:
    """The first network leaves the reserved machine out; the plan may use it for those who are gone in time."""
    busy = [running(task(f"r{k}", SINGLE, scale=15.0), f"m{k}", (0,), width_milli=3000, threads=1) for k in (1, 2)]
    narrow = [
        task(f"n{k}", SINGLE, scale=3 + 0.03 * k, widths_milli=(1000,), submit_s=990.0, goal_s=80.0) for k in (0, 1)
    ]
    now = snapshot(
        [task("wide", SINGLE, scale=3.0, widths_milli=(4000,)), *narrow],
        machines(2),
        running=busy,
        now_s=1000.0,
        catalogue=catalogue((SINGLE,)),
        reservations=(Reservation("wide", "m1", 4000, 1500.0),),
    )

    decisions = flow_scheduler(slots=1, exact_limit=0, refine_widths=False).decide(now)

    assert set(where(decisions).values()) == {"m1", "m2"}
    assert decisions.certificate is not None
    assert decisions.certificate.bound <= decisions.certificate.primal + 1e-6


def test_the_bound_sees_that_a_machine_is_full() -> None:
    """Two equal tasks, room for one: without a price on the room the bound would have both of them start."""
    two = [task(f"t{k}", SINGLE, widths_milli=(1000,)) for k in (1, 2)]
    full = snapshot(two, [machine(cpu_milli=1000)], catalogue=catalogue((SINGLE,)))

    certificate = flow_scheduler(slots=1, exact_limit=0, refine_widths=False).decide(full).certificate

    assert certificate is not None
    assert certificate.bound > certificate.unconstrained + 1e-3
    assert certificate.gap_absolute < 1e-3


def test_a_newcomer_that_starts_once_the_noise_is_gone_answers_for_its_own() -> None:
    """What breaks the goal now ends before the newcomer's container runs; it must not hide behind that."""
    loud = running(task("loud", CATALOGUE.jobs["hungry"]), "m1", (1, 2, 3), progress=0.999)
    service_1 = service(qps=47_000.0)
    newcomer = task("new", CATALOGUE.jobs["hungry"], memory_mib=100, widths_milli=(1000,))
    now = snapshot([newcomer], services=[service_1], running=[loud], now_s=10.0, start_delay=StartDelay(3.0, 3.0))

    assert where(flow_scheduler(slots=1).decide(now)) == {}


def test_the_terms_of_every_arc_add_up_to_its_cost() -> None:
    jobs = [
        task(f"j{k}", CATALOGUE.jobs[p], scale=s) for k, (p, s) in enumerate([("serial", 2.0), ("scaling", 1.0)] * 3)
    ]
    cluster = snapshot(jobs, machines(2), running=[running(task("r"), "m1", progress=0.25)])
    record = flow_scheduler(exact_limit=0).decide(cluster).record
    assert record is not None
    for name in ("first_network", "last_network"):
        network = record["parts"][0][name]
        assert network["terms"]
        total = np.sum(list(network["terms"].values()), axis=0)
        assert total == pytest.approx(network["unit_costs"] * network["units"] / network["cost_scale"], abs=1e-5)


@pytest.mark.parametrize("moldable", [False, True])
def test_recorded_costs_are_those_of_the_recorded_goal(moldable: bool) -> None:
    kinds = [("serial", 2.0), ("scaling", 1.0), ("serial", 1.0), ("scaling", 3.0)]
    jobs = [task(f"j{k}", CATALOGUE.jobs[p], scale=s) for k, (p, s) in enumerate(kinds)]
    cluster = snapshot(jobs, machines(2), running=[running(task("r"), "m1", progress=0.25)])
    record = flow_scheduler(objective="makespan", exact_limit=0, refine_widths=moldable).decide(cluster).record
    assert record is not None
    (part,) = record["parts"]
    search, _ = machinery(cluster, Settings())
    search = replace(search, prices=search.prices.with_goal(part["goal_s"]))
    number = {m.name: i for i, m in enumerate(search.view.machines)}
    at = {
        p["task"]: None if p["machine"] is None else Column(number[p["machine"]], p["slot"], p["width_milli"])
        for p in part["plan"]
    }
    plan = Assignment([at[t.name] for t in search.view.tasks], search.view.class_of, 2)
    for name, cost in part["machine_costs"].items():
        assert search.cost(plan, number[name]) == pytest.approx(cost, abs=1e-9)
    assert search.total(plan) == pytest.approx(part["certificate"]["primal"], abs=1e-9)

"""What every round must hold to, whatever the cluster looks like."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from round_parts import begun, deciding_on, optimum, recorded_plan, ways

from builders import (
    CATALOGUE,
    HUNGRY,
    LARGE,
    SCALING,
    SINGLE,
    catalogue,
    flow_scheduler,
    in_another_order,
    machine,
    machines,
    profiles,
    rounds,
    running,
    service,
    snapshot,
    task,
)
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.compaction import compact
from flowsched.cluster.decision import Decisions
from flowsched.cluster.events import TaskBound
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Reservation, Snapshot, StartDelay, Task
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.records.record_file import record_json
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched.round.forecast_bound import certify_plan
from flowsched.round.improvement import improve
from flowsched.round.makespan import bound_s, is_unsure, more_expected
from flowsched.round.passes import batch_size, run_passes
from flowsched.round.scheduler import FlowScheduler, make_plan
from flowsched.solvers import make_solver
from flowsched_models.forecast import forecast
from flowsched_models.runtime import HostFactory, Resident
from flowsched_simulator import load_scenario
from flowsched_simulator.simulation import Simulation

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


def one_level(now: Snapshot) -> Snapshot:
    """The same round with all tasks of one priority."""
    return replace(now, pending=tuple(replace(t, priority=0) for t in now.pending))


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
    state = ClusterState.of(now)
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
    mixed = in_another_order(now, data.draw(st.randoms()))

    first, again, other = scheduler.decide(now), flow_scheduler(**variant).decide(now), scheduler.decide(mixed)

    assert first.record is not None
    assert again.record is not None
    assert other.record is not None
    assert plain(first.record) == plain(again.record) == plain(other.record)
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


@settings(max_examples=80)
@given(rounds(max_machines=2, max_pending=3, max_running=1), st.sampled_from((1, 2)), st.booleans())
def test_bounds_against_every_possible_plan(now: Snapshot, slots: int, shares: bool) -> None:
    now = replace(one_level(now), share_service_cores=shares)
    chosen = Settings(slots=slots)
    deciding, _ = make_plan(begun(now, chosen), make_solver("ortools"), chosen)
    model = deciding.model
    if not now.pending or ways(model) > 6000:
        return
    best = optimum(model)

    lagrangian = certify_plan(model, deciding.plan, deciding.plan, replace(chosen, exact_limit=0))
    exact = certify_plan(model, deciding.plan, deciding.plan, chosen)

    slack = 1e-6 * max(1.0, abs(best))
    # Without a search it says so too where the plan costs no more than its bound.
    assert lagrangian.method == "lagrangian" or lagrangian.primal <= lagrangian.bound + slack
    assert lagrangian.bound <= best + slack
    if exact.method == "exact":
        assert exact.bound <= best + slack
        if not model.must_start and not shares:
            assert exact.bound == pytest.approx(best, rel=1e-6, abs=1e-4)


def test_passes_and_improvement_come_near_the_optimum() -> None:
    """With all plans tried: in the mean over some hundred rounds of up to three tasks on up to two machines."""
    above: list[float] = []

    @settings(max_examples=200)
    @given(rounds(max_machines=2, max_pending=3, max_running=1), st.sampled_from((1, 2)))
    def measure(now: Snapshot, slots: int) -> None:
        deciding = deciding_on(one_level(now), Settings(slots=slots))
        model, all_tasks = deciding.model, range(len(now.pending))
        if model.must_start or not now.pending or ways(model) > 6000:
            return
        run_passes(deciding, all_tasks, 0.0)
        improve(deciding, all_tasks, 1 << 40)
        best, total = optimum(model), model.total(deciding.plan)
        assert total >= best - 1e-9
        above.append(total / best - 1.0)
        # No single move pays any more.
        for t in all_tasks if len(now.pending) > 1 else ():
            here = model.leaving(deciding.plan, t)
            offers = [model.best_option(deciding.plan, t, m)[0] for m in range(len(now.machines))]
            assert min([model.waiting(t), *offers]) >= here - 1e-6

    measure()
    assert len(above) > 100
    assert np.mean(above) < 0.03
    assert np.quantile(above, 0.9) < 0.05


# --- passes -----------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(rounds(max_machines=4, max_pending=6), st.sampled_from((1, 3)), st.sampled_from((0.0, 0.3, 1.0)))
def test_every_pass_is_an_optimal_flow_of_single_arrivals(now: Snapshot, slots: int, share: float) -> None:
    deciding = deciding_on(now, Settings(slots=slots))
    model = deciding.model

    run_passes(deciding, range(len(now.pending)), share)

    planned: set[int] = set()
    for one in deciding.passes:
        network, flow = one.network.network, one.solution.flow
        assert one.solution.cost == network.cost_of(flow) == make_solver("networkx").solve(network).cost
        assert (flow >= 0).all()
        assert (flow <= network.capacities).all()
        balance = np.zeros(len(network.supplies), dtype=np.int64)
        np.add.at(balance, network.tails, flow)
        np.subtract.at(balance, network.heads, flow)
        assert (balance == network.supplies).all()
        booked = [t for t, _ in one.booked]
        joined = [option.machine for _, option in one.booked]
        assert len(set(joined)) == len(joined)
        assert set(booked) <= set(one.batch)
        assert not planned & set(one.batch)
        planned |= set(booked)
        assert len(one.batch) <= batch_size(len(now.pending), len(now.machines), share)
    assert {t for t, option in enumerate(deciding.plan.options) if option is not None} == planned
    for t in planned:
        origin = deciding.origins[t]
        assert origin.number is not None
        number, price, runner_up = origin.number, origin.price, origin.runner_up
        # Nothing else came to the machine between pricing and booking, so a price is what the booking changed.
        assert deciding.changes[t] == pytest.approx(price, rel=1e-9, abs=1e-9)
        assert t in dict(deciding.passes[number].booked)
        assert price <= runner_up or any(o is not None for o in deciding.plan.options)
        assert t in model.must_start or price < model.waiting(t)


@settings(max_examples=60)
@given(rounds(max_machines=4, max_pending=6), st.sampled_from((1, 3)))
def test_what_passes_leave_waiting_has_no_option_that_pays(now: Snapshot, slots: int) -> None:
    deciding = deciding_on(now, Settings(slots=slots))
    model = deciding.model

    run_passes(deciding, range(len(now.pending)), 0.0)

    for t, option in enumerate(deciding.plan.options):
        if option is None:
            cheapest = min(model.best_option(deciding.plan, t, m)[0] for m in range(len(now.machines)))
            assert cheapest >= (FORBIDDEN if t in model.must_start else model.waiting(t)) - 1e-9


def test_a_pass_takes_a_share_of_the_machines() -> None:
    assert [batch_size(5, m, 0.0) for m in (1, 2, 3, 8, 9, 12, 60)] == [1, 2, 2, 5, 5, 6, 30]
    assert [batch_size(100, m, 0.0) for m in (1, 2, 3, 8, 9, 12, 60)] == [1, 2, 2, 5, 3, 3, 15]
    assert [batch_size(9, m, 0.25) for m in (1, 4, 9)] == [1, 1, 3]
    assert batch_size(9, 9, 1.0) == 9


@settings(max_examples=25)
@given(rounds(max_machines=3, max_pending=5), st.sampled_from(("greedy", "none")))
def test_ablations_solve_no_network_and_plan_at_the_same_prices(now: Snapshot, assign: str) -> None:
    for decisions in (flow_scheduler(assign=assign).decide(now), flow_scheduler().decide(now)):
        assert decisions.certificate is None or decisions.certificate.bound <= decisions.certificate.primal + 1e-6
        counted = decisions.counts
        decided = sum(n for name, n in counted.items() if name.startswith("decided_by_"))
        assert decided == len(decisions.placements)
    counted = flow_scheduler(assign=assign).decide(now).counts
    assert (counted["passes"], counted["solves"], counted["decided_by_network"]) == (0, 0, 0)


@settings(max_examples=25)
@given(rounds(max_machines=3, max_pending=4))
def test_with_one_arrival_a_pass_the_greedy_rule_and_the_flow_agree(now: Snapshot) -> None:
    """The network is then the choice of the cheapest option."""
    greedy, flow = (flow_scheduler(assign=assign, pass_share=0.01).decide(now) for assign in ("greedy", "flow"))

    assert greedy.placements == flow.placements
    assert greedy.postponements == flow.postponements


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_on_few_machines_tasks_compete_in_a_network(count: int) -> None:
    now = snapshot([task(f"t{k}", SCALING, widths_milli=(1000,)) for k in range(2 * count)], machines(count))
    deciding = deciding_on(now, Settings())

    run_passes(deciding, range(len(now.pending)), 0.0)

    first = deciding.passes[0]
    assert first.network.network.supplies.max() == len(first.batch) == -(-3 * count // 5)
    assert len(first.booked) == len(first.batch)
    assert deciding.contested >= 3 / 4 * (deciding.solves - deciding.lone)


def test_the_networks_of_the_bundled_scenario_are_contested() -> None:
    scenario = load_scenario("parsec-memcached-2024")
    found = {"solves": 0, "lone": 0, "contested": 0}

    class Watched(FlowScheduler):
        def decide(self, snapshot: Snapshot) -> Decisions:
            decisions = super().decide(snapshot)
            assert decisions.counts is not None
            for name in found:
                found[name] += decisions.counts[name]
            return decisions

    scheduler = Watched(make_solver("ortools"), Settings(objective=scenario.objective.value, exact_limit=0))
    run = Simulation(scenario, scheduler, hosts=HostFactory(scenario.catalogue)).run()

    assert run.makespan_s == pytest.approx(138.8, abs=0.05)
    assert found["contested"] >= 3 / 4 * (found["solves"] - found["lone"]) > 0


# --- priority, weight and goals ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(st.tuples(profiles(), st.sampled_from((0.1, 1.0, 5.0)), st.sampled_from((None, 5.0, 1e5))), min_size=2),
    st.sampled_from(("completion", "makespan")),
    st.sampled_from((1, 3)),
    st.permutations(range(8)),
    st.sampled_from((1.0, 100.0)),
)
def test_the_highest_priority_has_the_only_place_whatever_the_goals(
    kinds: list[Any], objective: str, slots: int, levels: list[int], weight: float
) -> None:
    jobs = [
        task(f"t{k}", p, scale=s, goal_s=g, priority=level, widths_milli=(4000,), weight=weight if level < 4 else 1.0)
        for k, ((p, s, g), level) in enumerate(zip(kinds, levels, strict=False))
    ]

    placed = where(flow_scheduler(objective=objective, slots=slots).decide(snapshot(jobs, now_s=1.0)))

    assert placed == {max(jobs, key=lambda t: t.priority).name: "m1"}


def test_a_later_start_of_a_higher_priority_is_not_delayed() -> None:
    busy = running(task("busy", SINGLE), "m1", (0,), width_milli=3000, threads=1)
    urgent = task("urgent", SINGLE, widths_milli=(4000,), priority=1)
    minor = task("minor", SINGLE, scale=50.0, widths_milli=(1000,))
    now = snapshot([urgent, minor], running=[busy], catalogue=catalogue((SINGLE,)))

    decisions = flow_scheduler().decide(now)

    assert where(decisions) == {}
    assert where(flow_scheduler().decide(replace(now, pending=(minor,)))) == {"minor": "m1"}


@pytest.mark.parametrize(("objective", "planned"), [("completion", 1), ("makespan", 5)])
def test_a_machine_with_many_tasks_has_one_later_start_unless_a_makespan_needs_all(
    objective: str, planned: int
) -> None:
    large = machine("m1", LARGE)
    here = [running(task(f"r{k}", SINGLE, scale=1.0 + k), "m1", (k,), width_milli=1000, threads=1) for k in range(8)]
    left = [task(f"t{k}", SINGLE, widths_milli=(1000,)) for k in range(5)]
    now = snapshot(left, [large], running=here, catalogue=catalogue((SINGLE,)))

    decisions = flow_scheduler(objective=objective).decide(now)

    assert not decisions.placements
    assert sum(w.planned is not None for w in decisions.postponements) == planned
    assert all(w.reason for w in decisions.postponements)


def test_weight_decides_between_equals_and_loses_against_priority() -> None:
    equals = [task(f"t{k}", widths_milli=(4000,), weight=w) for k, w in enumerate((1.0, 3.0, 2.0))]
    for objective in ("completion", "makespan"):
        assert where(flow_scheduler(objective=objective, slots=1).decide(snapshot(equals))) == {"t1": "m1"}
    ranked = [replace(equals[1], weight=100.0), replace(equals[0], priority=1)]
    assert where(flow_scheduler(slots=1).decide(snapshot(ranked))) == {"t0": "m1"}


@settings(max_examples=60)
@given(rounds(max_machines=3, max_pending=5), st.sampled_from((1, 3)))
def test_under_a_makespan_goal_whatever_has_a_place_is_planned(now: Snapshot, slots: int) -> None:
    chosen = Settings(objective="makespan", slots=slots)
    pending = tuple(replace(t, submit_s=0.0) for t in now.pending)
    there = tuple(replace(r, task=replace(r.task, submit_s=0.0)) for r in now.running)
    together = replace(one_level(replace(now, pending=pending)), running=there)
    assume(not more_expected(together))
    deciding, _ = make_plan(begun(together, chosen), make_solver("ortools"), chosen)
    model, plan = deciding.model, deciding.plan

    for t, option in enumerate(plan.options):
        if option is None and t not in model.must_start:
            assert all(model.best_option(plan, t, m)[1] is None for m in range(len(now.machines)))


@given(st.lists(st.tuples(st.sampled_from((500, 1000, 2000, 4000)), st.integers(10, 300)), min_size=1, max_size=12))
@settings(max_examples=40)
def test_where_estimates_tell_little_a_makespan_leaves_no_room_idle_that_a_task_fits(
    jobs: list[tuple[int, int]],
) -> None:
    plain = replace(SINGLE, name="plain", work_s=1.0, serial_fraction=1.0)
    waiting = [task(f"t{k}", plain, widths_milli=(width,), scale=float(run_s)) for k, (width, run_s) in enumerate(jobs)]
    now = snapshot(waiting, machines(2), catalogue=catalogue((plain,)))
    unsure = replace(now, run_time_errors=RunTimeErrors.of(20, 20 * 0.25))
    assert is_unsure(unsure) and not is_unsure(now)
    assume(not more_expected(unsure))
    decisions = flow_scheduler(objective="makespan").decide(unsure)

    started = {p.task: p for p in decisions.placements}
    free = {
        m.name: m.cpu_milli - sum(p.width_milli for p in started.values() if p.machine == m.name) for m in now.machines
    }
    left = [t.widths_milli[0] for t in waiting if t.name not in started]
    assert started and all(width > max(free.values()) for width in left)


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
    """Of every priority, beside what higher ones have planned."""
    chosen = Settings(**variant)
    deciding, _ = make_plan(begun(now, chosen), make_solver("ortools"), chosen)
    placed = where(flow_scheduler(**variant).decide(now))

    assert {deciding.model.view.tasks[t].name for t in deciding.model.must_start} <= placed.keys()


@settings(max_examples=25)
@given(rounds(), VARIANTS)
def test_names_decide_nothing_but_ties(now: Snapshot, variant: dict[str, Any]) -> None:
    """With other names in the same order the decisions are the same."""

    def machine_name(name: str) -> str:
        return f"node-{name}.example"

    def renamed(t: Task) -> Task:
        allowed = None if t.machines is None else tuple(map(machine_name, t.machines))
        wishes = tuple((machine_name(m), cost) for m, cost in t.wishes)
        return replace(t, name=f"job of {t.name}", job=f"job of {t.name}", machines=allowed, wishes=wishes)

    other = replace(
        now,
        machines=tuple(replace(m, name=machine_name(m.name)) for m in now.machines),
        services=tuple(replace(s, machine=machine_name(s.machine)) for s in now.services),
        running=tuple(replace(r, machine=machine_name(r.machine), task=renamed(r.task)) for r in now.running),
        pending=tuple(map(renamed, now.pending)),
    )

    mine, theirs = flow_scheduler(**variant).decide(now), flow_scheduler(**variant).decide(other)

    assert [replace(p, task=f"job of {p.task}", machine=machine_name(p.machine)) for p in mine.placements] == list(
        theirs.placements
    )
    assert mine.counts == theirs.counts


# --- one case each ----------------------------------------------------------------------------------------


def test_the_certificate_is_about_what_was_decided_where_a_relation_refused_the_plan() -> None:
    """A member of the gang was planned away from the one that it has to be near."""
    common: dict[str, Any] = {"scale": 0.5, "widths_milli": (1000,), "memory_mib": 1}
    near, gang = {"holds": ("near",)}, {"group": "gang"}
    now = snapshot(
        [
            task("a", **common, **gang),
            task("b", **common, **gang, joins=("near",)),
            task("c", **common, **near),
            task("d", **{**common, "memory_mib": 1000}, **gang, **near),
            task("e", **common, **near, joins=("near",)),
        ],
        [machine("m1", LARGE), machine("m2", LARGE)],
        now_s=1000.0,
        services=[service("cache-1", "m1"), service("cache-2", "m2")],
        relations=(Relation("near", RelationKind.TOGETHER, MACHINE),),
        task_groups=(TaskGroup("gang", 3, 10.0),),
    )
    decisions = flow_scheduler(slots=2, exact_limit=0).decide(now)
    assert decisions.certificate is not None
    assert decisions.certificate.bound <= decisions.certificate.primal < float("inf")


def test_tasks_of_one_count_go_to_machines_of_their_own_which_is_no_reason_to_wait() -> None:
    """Both would rather have the first machine."""
    ms = machines(3)
    wishes = (("m2", 1.0), ("m3", 2.0))
    for price, there in ((1e-9, {"m1"}), (5.0, {"m1", "m2"})):
        pending = [task(f"t{k}", cores=1, wishes=wishes, counted=((0, price),)) for k in range(2)]
        decided = flow_scheduler().decide(snapshot(pending, ms))
        assert {p.machine for p in decided.placements} == there
        assert decided.certificate is not None
        assert decided.certificate.bound <= decided.certificate.primal + 1e-9
    for counted in ((), ((0, 5.0),)):
        pending = [task(f"t{k}", cores=1, counted=counted) for k in range(3)]
        placed = flow_scheduler(slots=1).decide(snapshot(pending, ms[:1])).placements
        assert len(placed) == 3
        assert any(p.terms.get("spreading", 0.0) > 0.0 for p in placed) == bool(counted)


def test_wishes_choose_among_places_and_are_no_reason_to_wait() -> None:
    ms = machines(3)
    avoided = (("m1", 0.5), ("m3", 0.4))
    (placed,) = flow_scheduler().decide(snapshot([task("t", wishes=avoided)], ms)).placements
    assert (placed.machine, dict(placed.terms).get("preference")) == ("m2", None)
    (placed,) = flow_scheduler().decide(snapshot([task("t", wishes=(*avoided, ("m2", 100.0)))], ms)).placements
    assert (placed.machine, dict(placed.terms)["preference"]) == ("m3", 0.4)
    # A neighbour that costs more than the wish is worse.
    crowd = [running(task(f"r{k}", HUNGRY, cores=1), "m2", cores=(k,)) for k in range(2)]
    (placed,) = flow_scheduler().decide(snapshot([task("t", wishes=avoided)], ms, running=crowd)).placements
    assert placed.machine == "m3"


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
        model = begun(snapshot(jobs, machines(2)), Settings()).model
        return model.finish(recorded_plan(model, record["parts"][0]))[1]

    assert last_s([*jobs, giant]) <= 1.01 * last_s(jobs)


def test_where_tasks_come_one_after_the_other_a_small_gain_of_makespan_changes_nothing() -> None:
    jobs = [task(f"t{k}", SCALING, scale=1.0 + k / 5, submit_s=k, widths_milli=(2000,)) for k in range(7)]
    now = snapshot(jobs, machines(3), now_s=10.0)
    own, one = (where(flow_scheduler(objective=o).decide(now)) for o in ("completion", "makespan"))
    assert one == own
    # Five times as long as from one to the next on average nothing came: what is there is planned as what came together.
    later, together = replace(now, now_s=6.0 + 5.1), tuple(replace(t, submit_s=0.0) for t in now.pending)
    plans = [where(flow_scheduler(objective="makespan").decide(s)) for s in (later, replace(later, pending=together))]
    assert plans[0] == plans[1] != own


@settings(max_examples=60)
@given(rounds(max_machines=3, max_pending=6), st.booleans(), st.sampled_from((1, 3)))
def test_no_plan_ends_before_the_bound_of_a_makespan(now: Snapshot, shared: bool, slots: int) -> None:
    for objective in ("completion", "makespan"):
        chosen = Settings(objective=objective, slots=slots, share_service_cores=shared)
        round_ = begun(one_level(now), chosen)
        deciding, _ = make_plan(round_, make_solver("ortools"), chosen)
        left, end_s = deciding.model.finish(deciding.plan)
        assert left > 0 or end_s >= bound_s(round_.model) - 1e-6


def test_more_tasks_than_are_planned_for_a_makespan_start_by_order_of_work() -> None:
    jobs = [task(f"t{k}", SCALING, scale=1.0 + k / 50, widths_milli=(2000,)) for k in range(70)]
    decisions = flow_scheduler(objective="makespan").decide(snapshot(jobs, machines(3)))
    assert set(where(decisions)) == {f"t{k}" for k in range(64, 70)}
    assert not any(w.planned for w in decisions.postponements)


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

    decisions = flow_scheduler(slots=1, exact_limit=0).decide(now)

    assert set(where(decisions).values()) == {"m1", "m2"}
    assert decisions.certificate is not None
    assert decisions.certificate.bound <= decisions.certificate.primal + 1e-6


def test_the_bound_sees_that_a_machine_is_full() -> None:
    """Two equal tasks, room for one: without a price on the room the bound would have both of them start."""
    two = [task(f"t{k}", SINGLE, widths_milli=(1000,)) for k in (1, 2)]
    full = snapshot(two, [machine(cpu_milli=1000)], catalogue=catalogue((SINGLE,)))

    certificate = flow_scheduler(slots=1, exact_limit=0).decide(full).certificate

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
    network = record["parts"][0]["first_network"]
    assert network["terms"]
    total = np.sum(list(network["terms"].values()), axis=0)
    assert total == pytest.approx(network["unit_costs"] * network["units"] / network["cost_scale"], abs=1e-5)


@pytest.mark.parametrize("widths", [(1000,), (1000, 2000, 4000)])
def test_recorded_costs_are_those_of_the_recorded_goal(widths: tuple[int, ...]) -> None:
    kinds = [("serial", 2.0), ("scaling", 1.0), ("serial", 1.0), ("scaling", 3.0)]
    jobs = [task(f"j{k}", CATALOGUE.jobs[p], scale=s, widths_milli=widths) for k, (p, s) in enumerate(kinds)]
    cluster = snapshot(jobs, machines(2), running=[running(task("r"), "m1", progress=0.25)])
    record = flow_scheduler(objective="makespan", exact_limit=0).decide(cluster).record
    assert record is not None
    (part,) = record["parts"]
    model = begun(cluster, Settings()).model
    if part["goal_s"] is not None:
        model = replace(model, prices=model.prices.with_goal(part["goal_s"]))
    plan = recorded_plan(model, part)
    number = {m.name: i for i, m in enumerate(model.view.machines)}
    for name, cost in part["machine_costs"].items():
        assert model.cost(plan, number[name]) == pytest.approx(cost, abs=1e-9)
    assert model.total(plan) == pytest.approx(part["certificate"]["primal"], abs=1e-9)


def test_the_record_says_what_decided_each_planned_task() -> None:
    jobs = [task(f"t{k}", SCALING, scale=1.0 + k / 10) for k in range(12)]
    decisions = flow_scheduler().decide(snapshot(jobs, machines(10)))
    assert decisions.record is not None
    (part,) = decisions.record["parts"]

    planned = [p["task"] for p in part["plan"] if p["machine"] is not None]
    assert sorted(entry["task"] for entry in part["decided_by"]) == sorted(planned)
    for entry in part["decided_by"]:
        assert entry["stage"] in ("network", "move", "swap")
        if entry["stage"] == "network":
            assert entry["task"] in part["passes"][entry["pass"] - 1]["booked"]
    assert sum(p["drawn"] for p in part["passes"]) == 1
    assert part["counts"] == decisions.counts
    assert decisions.counts["decided_by_network"] > 0

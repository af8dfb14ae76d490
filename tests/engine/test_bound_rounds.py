"""Rounds whose tasks are related, grouped or ask for devices: what holds whatever the cluster looks like."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_parts import begun, nothing_planned

from builders import (
    HUNGRY,
    SCALING,
    SERIAL,
    SINGLE,
    Placed,
    bound_rounds,
    can_be_bound_in_some_order,
    catalogue,
    flow_scheduler,
    in_another_order,
    machine,
    machines,
    permits,
    running,
    service,
    snapshot,
    task,
)
from flowsched.cluster import compaction
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.decision import Decisions
from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.events import TaskBound
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Machine, Reservation, Snapshot, Task
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched.round.assignment import Assignment, PlacementOption
from flowsched.round.gang import Gangs, ordered_gangs
from flowsched.round.repair import repair
from flowsched.round.round_model import RoundModel

VARIANTS = st.fixed_dictionaries(
    {
        "objective": st.sampled_from(("completion", "makespan")),
        "slots": st.sampled_from((1, 3)),
        "due_age_s": st.sampled_from((10.0, 600.0)),
        "pricings": st.just(1000),
        "exact_limit": st.just(0),
    }
)


LONE = catalogue((SINGLE,))


def where(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.machine for p in decisions.placements}


def why(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.reason for p in decisions.postponements}


def zoned(zones: str, **changes: Any) -> list[Machine]:
    """One machine for each letter, m1, m2, ..., in the zone of that name; ``-`` has no zone."""
    return [
        machine(f"m{k}", labels=() if z == "-" else (("zone", z),), **changes) for k, z in enumerate(zones, start=1)
    ]


def related(count: int, name: str = "r", **changes: Any) -> list[Task]:
    """Tasks that hold and join a relation, and disturb no other."""
    bonds = {"holds": (name,), "joins": (name,)} | changes
    return [task(f"t{k}", SINGLE, **bonds) for k in range(1, count + 1)]


def grouped(count: int, group: str = "train", **changes: Any) -> list[Task]:
    """Tasks of a group, one core wide."""
    values: dict[str, Any] = {"widths_milli": (1000,), "group": group} | changes
    return [task(f"{group}-{k}", **values) for k in range(1, count + 1)]


# --- every round ------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(bound_rounds(), VARIANTS)
def test_bound_tasks_keep_every_relation_group_and_resource(now: Snapshot, variant: dict[str, Any]) -> None:
    decisions = flow_scheduler(**variant).decide(now)

    tasks = {t.name: t for t in now.pending}
    named = sorted([p.task for p in decisions.placements] + [p.task for p in decisions.postponements])
    assert named == sorted(tasks)
    assert all(p.reason for p in decisions.postponements)
    state = ClusterState.of(now)
    for p in decisions.placements:
        # raises if a machine were overcommitted in anything
        state.apply(TaskBound(p.task, p.machine, p.width_milli, p.threads, p.cores, now.now_s), now.now_s)
    placed = [(tasks[p.task], p.machine) for p in decisions.placements]
    there = [(r.task, r.machine) for r in now.running]
    assert can_be_bound_in_some_order(now.relations, there, placed, now.machines)
    runs = Counter(t.group for t, _ in there)
    starts = Counter(t.group for t, _ in placed)
    for group in now.task_groups:
        assert starts[group.name] == 0 or runs[group.name] + starts[group.name] >= group.minimum


@settings(max_examples=40)
@given(bound_rounds(), VARIANTS, st.data())
def test_order_carries_no_meaning(now: Snapshot, variant: dict[str, Any], data: st.DataObject) -> None:
    mixed = in_another_order(now, data.draw(st.randoms()))

    first, other = flow_scheduler(**variant).decide(now), flow_scheduler(**variant).decide(mixed)

    assert sorted(first.placements, key=lambda p: p.task) == sorted(other.placements, key=lambda p: p.task)
    assert sorted(first.postponements, key=lambda p: p.task) == sorted(other.postponements, key=lambda p: p.task)
    assert first.reservations == other.reservations


@settings(max_examples=60)
@given(bound_rounds(), st.sampled_from((1, 3)), st.sampled_from((0, 300)))
def test_the_certificate_bounds_what_was_decided(now: Snapshot, slots: int, exact_limit: int) -> None:
    certificate = flow_scheduler(slots=slots, exact_limit=exact_limit, pricings=1000).decide(now).certificate

    if certificate is None:
        return
    slack = 1e-6 * max(1.0, abs(certificate.primal))
    assert np.isfinite(certificate.primal)
    assert certificate.bound <= certificate.primal + slack


@settings(max_examples=100)
@given(bound_rounds(max_pending=8), st.data())
def test_domain_counts_refuse_what_the_definitions_refuse(now: Snapshot, data: st.DataObject) -> None:
    domain_counts = DomainCounts.of(now)
    there: list[Placed] = [(r.task, r.machine) for r in now.running]
    for t in now.pending:
        for m in now.machines:
            refused = {r.name for r in now.relations if not permits(r, t, m.name, there, now.machines)}
            answer = domain_counts.refusal(t, m.name)
            assert (answer is not None) == bool(refused)
            assert answer is None or answer.name in refused
        place = data.draw(st.sampled_from(now.machines)).name
        domain_counts.add(t, place)
        there.append((t, place))


# --- relations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "zones", "count", "placed"),
    [
        (Relation("r", RelationKind.LIMIT, "zone", most=1), "aab", 3, 2),
        (Relation("r", RelationKind.LIMIT, "zone", most=2), "aab", 5, 4),
        (Relation("r", RelationKind.LIMIT, MACHINE, most=1), "aab", 5, 3),
        (Relation("r", RelationKind.APART, "zone"), "aab", 3, 2),
        (Relation("r", RelationKind.APART, MACHINE), "aab", 5, 3),
        (Relation("r", RelationKind.SPREAD, "zone", min_domains=3), "aab", 5, 2),
        (Relation("r", RelationKind.TOGETHER, MACHINE), "aab", 5, 4),
    ],
    ids=lambda value: f"{value.kind} {value.key}" if isinstance(value, Relation) else str(value),
)
def test_each_relation_leaves_out_those_who_are_too_many(
    relation: Relation, zones: str, count: int, placed: int
) -> None:
    jobs = related(count, widths_milli=(1000,))

    for objective in ("completion", "makespan"):
        decisions = flow_scheduler(objective=objective, slots=1).decide(
            snapshot(jobs, zoned(zones), relations=(relation,), catalogue=LONE)
        )
        assert len(decisions.placements) == placed
        # The search knew: nothing had to be mended at the end.
        assert decisions.record is not None
        assert decisions.record["parts"][0]["repairs"] == []
        assert all("relation r" in p.reason or "core" in p.reason for p in decisions.postponements)


def test_the_optimum_knows_who_may_not_meet_on_a_machine() -> None:
    apart = Relation("r", RelationKind.APART, MACHINE)
    now = snapshot(related(3, widths_milli=(1000,)), machines(2), relations=(apart,), catalogue=LONE)

    certificate = flow_scheduler(slots=1).decide(now).certificate

    assert certificate is not None
    assert certificate.method == "exact"
    assert certificate.gap_absolute < 1e-4


def test_a_spread_fills_zones_evenly_though_one_is_better() -> None:
    fast = [machine(f"m{k}", labels=(("zone", "a"),)) for k in (1, 2, 3)]
    jobs = related(4, widths_milli=(1000,))
    one_each = Relation("r", RelationKind.SPREAD, "zone")
    cluster = [*fast, machine("m4", labels=(("zone", "b"),))]

    placed = where(flow_scheduler(slots=1).decide(snapshot(jobs, cluster, relations=(one_each,), catalogue=LONE)))

    assert Counter(m == "m4" for m in placed.values()) == {True: 2, False: 2}


def test_a_task_with_affinity_follows_in_the_same_round() -> None:
    near = Relation("near-cache", RelationKind.TOGETHER, "zone")
    cache = task("cache", SERIAL, joins=("near-cache",), machines=("m2",), widths_milli=(1000,))
    web = task("a-web", holds=("near-cache",), widths_milli=(1000,))

    decisions = flow_scheduler(slots=1).decide(snapshot([web, cache], zoned("ab"), relations=(near,)))

    assert where(decisions) == {"cache": "m2", "a-web": "m2"}


def test_no_task_follows_one_that_is_not_there() -> None:
    near = Relation("near-cache", RelationKind.TOGETHER, "zone")

    alone = snapshot(related(1, "near-cache", joins=()), zoned("ab"), relations=(near,), catalogue=LONE)
    decisions = flow_scheduler().decide(alone)

    assert where(decisions) == {}
    assert "needs a matching task in the same zone (affinity)" in why(decisions)["t1"]


def test_apart_binds_those_who_come_later_and_demand_nothing() -> None:
    shy = running(task("shy", holds=("r",), memory_mib=10), "m1")
    apart = Relation("r", RelationKind.APART, "zone")

    decisions = flow_scheduler().decide(
        snapshot([task("loud", joins=("r",))], zoned("aab"), running=[shy], relations=(apart,))
    )

    assert where(decisions) == {"loud": "m3"}


@pytest.mark.parametrize(("endless", "reserved"), [(True, "m2"), (False, "m1")])
def test_a_due_task_gets_no_machine_that_a_relation_closes_for_good(endless: bool, reserved: str) -> None:
    apart = Relation("r", RelationKind.APART, "zone")
    holder = task("shy", SINGLE, holds=("r",), scale=100.0, endless=endless, widths_milli=(2000,))
    shy = running(holder, "m1", (0,), width_milli=2000, threads=1)
    busy = running(task("busy", SINGLE, scale=500.0), "m2", (0,), width_milli=4000, threads=1)
    now = snapshot(
        [task("due", SINGLE, joins=("r",), widths_milli=(2000,))],
        zoned("ab"),
        running=[shy, busy],
        relations=(apart,),
        now_s=1000.0,
        catalogue=LONE,
    )

    (reservation,) = flow_scheduler().decide(now).reservations

    assert reservation.machine == reserved


# --- repairs ----------------------------------------------------------------------------------------------


def planned(now: Snapshot, **options: tuple[str, int]) -> tuple[RoundModel, Assignment]:
    """A round's model, and the plan with these tasks on these machines after so many completions."""
    model = begun(now, Settings()).model
    plan = nothing_planned(model)
    number = {m.name: i for i, m in enumerate(model.view.machines)}
    for t, wanted in enumerate(model.view.tasks):
        if wanted.name in options:
            place, start_after = options[wanted.name]
            plan.move(t, PlacementOption(number[place], start_after, 1000))
    return model, plan


def starts(model: RoundModel, plan: Assignment) -> dict[str, str]:
    return {
        model.view.tasks[t].name: model.view.machines[o.machine].name
        for t, o in enumerate(plan.options)
        if o is not None and o.start_after == 0
    }


def test_who_is_refused_at_last_moves_to_the_next_best_place() -> None:
    apart = Relation("r", RelationKind.APART, "zone")
    now = snapshot(related(2, widths_milli=(1000,)), zoned("aab"), relations=(apart,), catalogue=LONE)
    model, plan = planned(now, t1=("m1", 0), t2=("m2", 0))

    repaired = repair(model, plan, Gangs())

    assert starts(model, repaired.plan) == {"t1": "m1", "t2": "m3"}
    assert [(r.task, r.machine, r.relation, r.moved_to) for r in repaired.repairs] == [("t2", "m2", "r", "m3")]


def test_no_task_is_bound_beside_one_that_is_only_planned_for_later() -> None:
    near = Relation("near", RelationKind.TOGETHER, "zone")
    busy = running(task("busy", SINGLE), "m1", (0, 1, 2, 3), width_milli=3000, threads=1)
    jobs = [
        task("cache", SINGLE, joins=("near",), widths_milli=(1000,)),
        task("web", SINGLE, holds=("near",), widths_milli=(1000,)),
    ]
    now = snapshot(jobs, zoned("a"), running=[busy], relations=(near,), catalogue=LONE)
    model, plan = planned(now, cache=("m1", 1), web=("m1", 0))

    repaired = repair(model, plan, Gangs())

    assert starts(model, repaired.plan) == {}
    (reason,) = repaired.reasons.values()
    assert "relation near: needs a matching task in the same zone (affinity)" in reason


def test_a_group_that_loses_a_member_is_undone_with_those_who_followed_it() -> None:
    relations = (
        Relation("r", RelationKind.LIMIT, "zone", most=1),
        Relation("near", RelationKind.TOGETHER, "zone"),
    )
    gang = [replace(t, holds=("r",), joins=("r", "near"), profile="single", memory_mib=10) for t in grouped(2)]
    now = snapshot(
        [*gang, task("web", SINGLE, holds=("near",), widths_milli=(1000,))],
        zoned("aa"),
        relations=relations,
        task_groups=(TaskGroup("train", 2),),
        catalogue=LONE,
    )
    model, plan = planned(now, **{"train-1": ("m1", 0), "train-2": ("m2", 0), "web": ("m1", 0)})

    repaired = repair(model, plan, Gangs(ordered_gangs(model.view)))

    assert starts(model, repaired.plan) == {}
    assert any("1 of 2 could be placed" in reason for reason in repaired.reasons.values())


# --- task groups ------------------------------------------------------------------------------------------


def test_a_group_that_fits_starts_and_one_that_does_not_waits_whole() -> None:
    cluster = machines(2)
    train = TaskGroup("train", 4)
    for count, started in ((4, 4), (3, 0)):
        decisions = flow_scheduler().decide(
            snapshot(grouped(count, widths_milli=(2000,)), cluster, task_groups=(train,))
        )
        assert len(decisions.placements) == started
    assert set(why(decisions).values()) == {"group train: 3 of 4 are here"}
    wide = snapshot(grouped(4, widths_milli=(4000,)), cluster, task_groups=(train,))
    assert set(why(flow_scheduler().decide(wide)).values()) == {"group train: 2 of 4 could be placed"}


def test_others_take_the_room_of_a_group_that_waits() -> None:
    jobs = [*grouped(3, widths_milli=(4000,)), task("other", widths_milli=(4000,))]

    decisions = flow_scheduler().decide(snapshot(jobs, machines(2), task_groups=(TaskGroup("train", 3),)))

    assert set(where(decisions)) == {"other"}


def test_members_beyond_the_minimum_are_free_and_running_ones_count() -> None:
    jobs = grouped(3, widths_milli=(4000,))
    group = (TaskGroup("train", 2),)
    assert len(where(flow_scheduler().decide(snapshot(jobs, machines(2), task_groups=group)))) == 2
    there = running(replace(jobs[0], name="train-0"), "m1", (0, 1, 2, 3), width_milli=4000)
    decisions = flow_scheduler().decide(snapshot(jobs[:1], machines(2), running=[there], task_groups=group))
    assert where(decisions) == {"train-1": "m2"}


def test_two_groups_that_need_most_of_a_cluster_never_share_it_half() -> None:
    groups = (TaskGroup("one", 3), TaskGroup("two", 3))
    jobs = [t for k in range(3) for name in ("one", "two") for t in grouped(3, name, widths_milli=(4000,))[k : k + 1]]

    for objective in ("completion", "makespan"):
        decisions = flow_scheduler(objective=objective).decide(snapshot(jobs, machines(4), task_groups=groups))
        assert Counter(t.split("-")[0] for t in where(decisions)) == {"one": 3}


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from((1000, 2000, 4000))), min_size=2, max_size=4),
    st.integers(1, 4),
    st.sampled_from((None, "zone")),
)
def test_groups_that_compete_all_run_in_the_end(sizes: list[tuple[int, int]], count: int, home: str | None) -> None:
    """Rounds and the ends of all that runs in turn: every group that the idle cluster takes has run after a few."""
    cluster = zoned("ab" * count)
    relations = (Relation("home", RelationKind.TOGETHER, "zone"),) if home else ()
    bonds = {"holds": ("home",), "joins": ("home",)} if home and len(sizes) == 2 else {}
    room = 2 * count if not bonds else count
    groups = [TaskGroup(f"g{k}", n) for k, (n, _) in enumerate(sizes)]
    waiting = [t for k, (n, w) in enumerate(sizes) for t in grouped(n, f"g{k}", widths_milli=(w,), **bonds)]
    fitting = {f"g{k}" for k, (n, w) in enumerate(sizes) if n <= room * (4000 // w)}
    done: set[str] = set()
    for turn in range(len(sizes)):
        now = snapshot(waiting, cluster, task_groups=tuple(groups), relations=relations, now_s=float(turn))
        placed = where(flow_scheduler(slots=1, exact_limit=0).decide(now))
        started = Counter(t.group for t in waiting if t.name in placed)
        assert all(started[g.name] in (0, g.minimum) for g in groups)
        done |= {g for g in started if g is not None}
        waiting = [t for t in waiting if t.name not in placed]
    assert done == fitting


def test_a_due_group_gets_machines_of_its_own_until_its_deadline() -> None:
    jobs = [replace(t, profile="single") for t in grouped(2, widths_milli=(4000,))]
    busy = [
        running(task(f"r{k}", SINGLE, scale=10.0 * k), f"m{k}", (0,), width_milli=4000, threads=1) for k in (1, 2, 3)
    ]
    fill = task("fill", SINGLE, scale=100.0, widths_milli=(1000,), submit_s=999.0)
    now = snapshot(
        [*jobs, fill],
        machines(4),
        running=busy[:3],
        now_s=1000.0,
        catalogue=LONE,
        task_groups=(TaskGroup("train", 2),),
    )
    full = replace(now, machines=now.machines[:3])

    assert {r.task for r in flow_scheduler().decide(full).reservations} == {"train-1", "train-2"}
    held = flow_scheduler().decide(now)
    assert {r.machine for r in held.reservations} == {"m4", "m1"}
    assert where(held) == {}
    late = flow_scheduler().decide(replace(now, task_groups=(TaskGroup("train", 2, 900.0),)))
    assert late.reservations == ()
    assert where(late) == {"fill": "m4"}
    assert "deadline, 900 s, has passed" in why(late)["train-1"]


def test_the_record_names_groups_and_what_was_repaired() -> None:
    record = flow_scheduler().decide(snapshot(grouped(2), machines(1), task_groups=(TaskGroup("train", 3),))).record

    assert record is not None
    (part,) = record["parts"]
    assert part["task_groups"] == [
        {"name": "train", "minimum": 3, "running": 0, "members": ["train-1", "train-2"], "starts": False}
    ]
    assert part["repairs"] == []
    plain = flow_scheduler().decide(snapshot([task("a")])).record
    assert plain is not None
    assert {"task_groups", "repairs"}.isdisjoint(plain["parts"][0])


# --- what a single task may demand ------------------------------------------------------------------------


def test_devices_are_counted_now_and_for_later() -> None:
    cluster = [machine("m1"), machine("m2", resources=(("gpu", 2),))]
    jobs = [task(f"t{k}", SINGLE, resources=(("gpu", 1),), widths_milli=(1000,)) for k in range(3)]

    decisions = flow_scheduler().decide(snapshot(jobs, cluster, catalogue=LONE))

    assert list(where(decisions).values()) == ["m2", "m2"]
    (left,) = decisions.postponements
    assert left.planned is None or left.planned.machine == "m2"
    (never,) = flow_scheduler().decide(snapshot([task("t", resources=(("gpu", 3),))], cluster)).postponements
    assert "3 gpu on one machine; no machine is that large" in never.reason


@pytest.mark.parametrize(
    ("allowed", "profile", "started"), [((), SCALING, 4), ((1, 2), SCALING, 2), ((8,), SCALING, 8), ((3,), HUNGRY, 2)]
)
def test_threads_are_those_that_are_allowed_and_accepted(allowed: tuple[int, ...], profile: Any, started: int) -> None:
    (placement,) = flow_scheduler().decide(snapshot([task("t", profile, threads=allowed)])).placements

    assert placement.threads == started


def test_below_its_least_utility_a_task_waits_until_it_is_due() -> None:
    busy = running(task("busy", HUNGRY, scale=5.0), "m1", (0, 1, 2, 3), width_milli=1000)
    wants = task("wants", HUNGRY, goal_s=200.0, min_utility=0.6, widths_milli=(1000,))
    easy = replace(wants, min_utility=0.0)

    assert where(flow_scheduler(slots=1).decide(snapshot([easy], running=[busy]))) == {"wants": "m1"}
    early = flow_scheduler(slots=1).decide(snapshot([wants], running=[busy]))
    assert where(early) == {}
    assert "below the 0.6 that it demands" in why(early)["wants"]
    assert where(flow_scheduler(slots=1).decide(snapshot([wants], running=[busy], now_s=700.0))) == {"wants": "m1"}


def test_no_task_waits_for_the_end_of_a_long_running_one() -> None:
    forever = running(task("forever", SINGLE, endless=True), "m1", (0,), width_milli=3000, threads=1, progress=0.9)
    wide = task("wide", SINGLE, widths_milli=(2000,))
    here = LONE

    decisions = flow_scheduler().decide(snapshot([wide], running=[forever], catalogue=here))
    (left,) = decisions.postponements
    assert left.planned is None
    assert "beside its tasks that have no end" in left.reason
    due = flow_scheduler().decide(snapshot([wide], running=[forever], catalogue=here, now_s=1000.0))
    assert due.reservations == ()


def test_a_task_without_an_end_costs_its_slow_down_whatever_its_length() -> None:
    def cost(scale: float) -> float:
        forever = running(task("forever", HUNGRY, endless=True, scale=scale), "m1", (0, 1), width_milli=1000)
        record = flow_scheduler().decide(snapshot([task("t", HUNGRY, memory_mib=10)], running=[forever])).record
        assert record is not None
        (caused,) = record["parts"][0]["placements"]["terms"]["interference_caused"]
        return float(caused)

    assert cost(1.0) == pytest.approx(cost(1000.0), rel=1e-9)
    assert 0.01 < cost(1.0) < 1.0


def test_waiting_does_not_avoid_a_neighbour_that_never_ends() -> None:
    """On machines that all carry one, tasks start side by side rather than hope for a better day."""
    forever = [
        running(task(f"e{k}", HUNGRY, endless=True, memory_mib=10), f"m{k}", (0, 1, 2, 3), width_milli=500)
        for k in (1, 2, 3)
    ]
    jobs = [task(f"t{k}", HUNGRY, memory_mib=10, widths_milli=(1000,)) for k in (1, 2, 3)]

    assert set(where(flow_scheduler().decide(snapshot(jobs, machines(3), running=forever))).values()) == {
        "m1",
        "m2",
        "m3",
    }


@given(bound_rounds(max_machines=2, max_pending=2))
def test_tasks_without_an_end_are_placed_like_others_at_a_price(now: Snapshot) -> None:
    endless = replace(
        now, pending=tuple(replace(t, endless=True, group=None, min_utility=None) for t in now.pending), relations=()
    )
    endless = replace(endless, pending=tuple(replace(t, holds=(), joins=()) for t in endless.pending))

    decisions = flow_scheduler(pricings=500, exact_limit=0).decide(endless)

    assert all(np.isfinite(p.cost) and abs(p.cost) < 1e6 for p in (*decisions.placements, *decisions.postponements))


# --- large clusters ---------------------------------------------------------------------------------------


def test_machines_alike_beyond_the_number_of_tasks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [task(f"t{k}", p, scale=1.0 + k) for k, p in enumerate((SCALING, SERIAL, HUNGRY))]
    host = service("cache-1", "m9")
    limit = Relation("r", RelationKind.SPREAD, MACHINE)
    for extra in ({}, {"relations": (limit,)}):
        bonds = {"holds": ("r",), "joins": ("r",)} if extra else {}
        now = snapshot([replace(t, **bonds) for t in jobs], machines(40), services=[host], now_s=5.0, **extra)
        few = flow_scheduler().decide(now)
        monkeypatch.setattr(compaction, "LARGE_GROUP", 1000)
        all_of_them = flow_scheduler().decide(now)
        monkeypatch.undo()
        assert few.certificate is not None
        assert all_of_them.certificate is not None
        assert few.certificate.primal == pytest.approx(all_of_them.certificate.primal, rel=1e-9)
        assert few.record is not None
        costs = few.record["parts"][0]["machine_costs"]
        assert sorted(costs) == sorted(m.name for m in now.machines)
        assert sum(costs.values()) == pytest.approx(few.certificate.primal, rel=1e-9)


def test_a_large_group_keeps_the_machines_that_are_reserved_or_planned_for() -> None:
    busy = [
        running(task(f"r{k}", SINGLE, scale=500.0), f"m{k}", (0,), width_milli=3000, threads=1) for k in range(1, 51)
    ]
    now = snapshot(
        [task("wide", SINGLE, widths_milli=(4000,))],
        machines(50),
        running=busy,
        now_s=1000.0,
        catalogue=LONE,
        reservations=(Reservation("wide", "m50", 4000, 1500.0),),
    )

    (kept,) = flow_scheduler().decide(now).reservations

    assert kept == now.reservations[0]

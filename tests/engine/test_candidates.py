"""Rounds of clusters with more machines than a round looks at."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_parts import begun, deciding_on

from builders import (
    HUNGRY,
    LARGE,
    SCALING,
    bound_rounds,
    crowd,
    flow_scheduler,
    in_another_order,
    machine,
    rounds,
    running,
    service,
    snapshot,
    task,
)
from flowsched.cluster.compaction import compact, kind_of
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import PlannedStart, Reservation, Snapshot
from flowsched.relations.relation import Relation, RelationKind
from flowsched.round import candidates
from flowsched.round.assignment import Assignment
from flowsched.round.candidates import MANY_MACHINES, look
from flowsched.round.scheduler import begin_round, make_plan
from flowsched.solvers import make_solver
from flowsched_models.runtime import HostFactory

MANY = MANY_MACHINES + 88


def seen_by(now: Snapshot, name: str, **changes: object) -> frozenset[str]:
    """Names of the candidates of a task."""
    view = look(now, HostFactory(now.catalogue), replace(Settings(), **changes))  # type: ignore[arg-type]
    candidates = view.candidates
    assert candidates is not None
    rows = candidates.by_kind[kind_of(next(t for t in now.pending if t.name == name))]
    return frozenset([candidates.all_machines[row].name for row in rows.tolist()])


def test_a_round_looks_at_all_machines_unless_there_are_many() -> None:
    now = crowd(MANY_MACHINES, 3, 1)
    assert look(now, HostFactory(now.catalogue), Settings()).candidates is None
    more = crowd(MANY, 3, 1)
    view = look(more, HostFactory(more.catalogue), Settings())
    assert view.candidates is not None
    assert len(view.machines) < MANY // 2
    assert len(compact(more, HostFactory(more.catalogue)).machines) > len(view.machines)
    assert look(more, HostFactory(more.catalogue), Settings(candidates=0)).candidates is None


def test_what_is_drawn_follows_from_the_snapshot_alone() -> None:
    now = crowd(MANY, 12, 2)
    first = flow_scheduler().decide(now)
    assert flow_scheduler().decide(now).placements == first.placements
    by_name = {p.task: p for p in first.placements}
    mixed = in_another_order(now, random.Random(1))
    assert {p.task: p for p in flow_scheduler().decide(mixed).placements} == by_name


def test_another_round_draws_other_machines() -> None:
    # More machines than are ranked for a kind, all idle and alike: only the draw tells them apart.
    cluster = [machine(f"node-{i:04d}") for i in range(2400)]
    now = snapshot([task("a")], cluster)
    assert seen_by(now, "a") != seen_by(replace(now, round=1), "a")
    assert seen_by(now, "a") == seen_by(now, "a")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("waiting", [1, 6, 25])
def test_a_plan_costs_hardly_more_than_one_that_looks_at_all_machines(seed: int, waiting: int) -> None:
    now = crowd(MANY, waiting, seed)
    chosen = Settings(candidates=0, pricings=1 << 40)
    whole = begun(now, chosen)
    best, _ = make_plan(whole, make_solver("ortools"), chosen)
    model = whole.model
    hosts = HostFactory(now.catalogue)
    few = begin_round(look(now, hosts, Settings()), hosts, Settings())
    found, _ = make_plan(few, make_solver("ortools"), Settings())
    # The same plan on the view of all machines, where equal ones stand for each other.
    options = []
    free = {g: list(group.members) for g, group in enumerate(model.view.groups)}
    number = {m.name: i for i, m in enumerate(model.view.machines)}
    group = {name: g for g, one in enumerate(model.view.groups) for name in one.spares}
    group |= {m.name: model.view.group_of[i] for i, m in enumerate(model.view.machines)}
    stands: dict[str, int] = {}
    for t, wanted in enumerate(model.view.tasks):
        at = next(i for i, other in enumerate(few.model.view.tasks) if other.name == wanted.name)
        option = found.plan.options[at]
        if option is not None:
            name = few.model.view.machines[option.machine].name
            if name not in stands:
                members = free[group[name]]
                stands[name] = number[name] if number.get(name) in members else members[0]
                members.remove(stands[name])
            option = option._replace(machine=stands[name])
        options.append(option)
        assert t == model.view.tasks.index(wanted)
    plan = Assignment(options, model.view.class_of, len(model.view.machines))
    nothing = deciding_on(now, chosen).plan
    idle = model.total(nothing) - sum(model.waiting(t) for t in range(waiting))
    assert model.total(plan) - idle <= 1.03 * (model.total(best.plan) - idle) + 1e-9


def test_the_one_machine_where_a_task_fits_is_always_found() -> None:
    busy = [
        running(task(f"there-{i}", cores=4), f"node-{i:04d}", (0, 1, 2, 3), progress=0.1)
        for i in range(MANY)
        if i != 77
    ]
    cluster = [machine(f"node-{i:04d}") for i in range(MANY)]
    now = snapshot([task("a", cores=4, widths_milli=(4000,))], cluster, running=busy)
    (placed,) = flow_scheduler().decide(now).placements
    assert placed.machine == "node-0077"


def test_lists_resources_and_relations_narrow_the_draw() -> None:
    cluster = [
        machine(
            f"node-{i:04d}", labels=(("zone", "b" if i == 5 else "a"),), resources=(("gpu", 1),) if i in (6, 7) else ()
        )
        for i in range(MANY)
    ]
    apart = Relation("apart", RelationKind.APART, "zone")
    there = running(task("there", cores=1, joins=("apart",), holds=("apart",)), "node-0000")
    trainer = running(task("trainer", cores=1, resources=(("gpu", 1),)), "node-0007")
    now = snapshot(
        [
            task("listed", cores=1, machines=("node-0009", "node-0010")),
            task("resourceful", cores=1, resources=(("gpu", 1),)),
            task("lonely", cores=1, holds=("apart",), joins=("apart",)),
        ],
        cluster,
        running=[there, trainer],
        relations=(apart,),
    )
    places = {p.task: p.machine for p in flow_scheduler().decide(now).placements}
    assert places["listed"] in {"node-0009", "node-0010"}
    assert places["resourceful"] == "node-0006"
    assert places["lonely"] == "node-0005"


def test_replicas_spread_over_all_zones_in_one_round() -> None:
    # The emptiest machines are all in zone a, and b already has a replica more than the others.
    cluster = [machine(f"node-{i:04d}", labels=(("zone", "abc"[i % 3]),)) for i in range(MANY)]
    there = [running(task(f"there-{i}", cores=2, scale=9.0), f"node-{i:04d}", (0, 1)) for i in range(MANY) if i % 3 > 0]
    spread = Relation("spread", RelationKind.SPREAD, "zone", 1)
    first = running(task("first", cores=1, holds=("spread",), joins=("spread",)), "node-0001")
    replicas = [task(f"replica-{k}", cores=1, holds=("spread",), joins=("spread",)) for k in range(20)]
    now = snapshot(replicas, cluster, running=[*there, first], relations=[spread])
    placed = flow_scheduler().decide(now).placements
    counts = Counter("abc"[int(p.machine[5:]) % 3] for p in placed)
    assert sorted(counts.values()) == [6, 7, 7]


def test_a_machine_that_is_planned_for_a_task_stays_its_candidate() -> None:
    now = crowd(MANY, 4, 3)
    again = replace(now, plan=(PlannedStart("task-00", "node-0150", 1, 1000),))
    assert "node-0150" in seen_by(again, "task-00")
    others = [seen_by(again, t.name) for t in now.pending[1:]]
    assert others == [seen_by(now, t.name) for t in now.pending[1:]]


def test_a_reserved_machine_is_a_candidate_for_all() -> None:
    now = crowd(MANY, 4, 3)
    kept = replace(now, reservations=(Reservation("task-00", "node-0150", 4000, 60.0),))
    assert all("node-0150" in seen_by(kept, t.name) for t in kept.pending)


def test_an_overdue_task_gets_a_machine_for_itself() -> None:
    cluster = [machine(f"node-{i:04d}") for i in range(MANY)]
    there = [
        running(task(f"there-{i}-{k}", cores=1, scale=1.0 + 0.01 * i), f"node-{i:04d}", (k,), progress=0.2)
        for i in range(MANY)
        for k in range(3)
    ]
    waiting = task("wide", cores=4, widths_milli=(4000,), submit_s=-700.0)
    decided = flow_scheduler().decide(snapshot([waiting], cluster, running=there))
    assert not decided.placements
    (reserved,) = decided.reservations
    assert reserved.task == "wide"
    assert reserved.start_s < float("inf")


def test_victims_of_a_preemption_are_among_the_candidates() -> None:
    cluster = [machine(f"node-{i:04d}") for i in range(MANY)]
    there = [
        running(task(f"there-{i}", cores=4, priority=0 if i == 201 else 5, scale=9.0), f"node-{i:04d}", (0, 1, 2, 3))
        for i in range(MANY)
    ]
    urgent = task("urgent", cores=4, widths_milli=(4000,), priority=3)
    decided = flow_scheduler(preemption="lower-priority").decide(snapshot([urgent], cluster, running=there))
    assert [(p.task, p.machine) for p in decided.preemptions or ()] == [("there-201", "node-0201")]
    assert [(p.task, p.machine) for p in decided.placements] == [("urgent", "node-0201")]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12))
def test_nothing_is_overcommitted(seed: int, waiting: int, kinds: int) -> None:
    now = crowd(MANY, waiting, seed, kinds)
    decided = flow_scheduler().decide(now)
    names = {t.name for t in now.pending}
    assert {p.task for p in decided.placements} | {p.task for p in decided.postponements} == names
    assert len(decided.placements) + len(decided.postponements) == waiting
    free, memory = now.free_milli(), now.free_memory_mib()
    wanted = {t.name: t for t in now.pending}
    for p in decided.placements:
        free[p.machine] -= p.width_milli
        memory[p.machine] -= wanted[p.task].memory_mib
    assert min(free.values()) >= 0
    assert min(memory.values()) >= 0
    assert max(Counter(p.task for p in decided.placements).values(), default=1) == 1


def test_a_bound_says_that_it_is_over_the_machines_that_were_looked_at() -> None:
    now = crowd(MANY, 3, 5)
    found = flow_scheduler().decide(now).certificate
    assert found is not None
    assert found.machines is not None
    assert found.machines < MANY
    assert found.bound <= found.primal + 1e-9
    small = flow_scheduler().decide(crowd(20, 3, 5)).certificate
    assert small is not None
    assert small.machines is None


def test_machines_without_batch_cores_and_long_running_tasks_do_no_harm() -> None:
    cluster = [machine(f"node-{i:04d}", LARGE) for i in range(MANY)]
    there = [
        running(task(f"service-{i}", SCALING, cores=2, endless=True), f"node-{i:04d}", (0, 1))
        for i in range(0, MANY, 2)
    ]
    now = snapshot([task("a", cores=1), task("forever", cores=1, endless=True)], cluster, running=there)
    decided = flow_scheduler().decide(now)
    assert {p.task for p in decided.placements} == {"a", "forever"}


def test_long_running_tasks_make_way_and_machines_drain_as_where_all_are_looked_at() -> None:
    cluster = [machine(f"node-{i:04d}") for i in range(MANY)]
    there = [running(task(f"there-{i}", cores=4, endless=True), m.name, (0, 1, 2, 3)) for i, m in enumerate(cluster)]
    urgent = task("urgent", cores=4, widths_milli=(4000,), priority=3)
    decided = flow_scheduler(preemption="lower-priority").decide(snapshot([urgent], cluster, running=there))
    (gone,) = decided.preemptions or ()
    assert [(p.task, p.machine) for p in decided.placements] == [("urgent", gone.machine)]
    overdue = task("overdue", cores=4, widths_milli=(4000,), submit_s=-900.0)
    (kept,) = flow_scheduler(drain=True, due_runs=0.0).decide(snapshot([overdue], cluster, running=there)).reservations
    assert (kept.task, kept.start_s) == ("overdue", float("inf"))


def test_machines_whose_services_a_task_would_break_do_not_hide_the_others() -> None:
    # The idle machines look cheapest, and there are more of them than candidates; each has a service near its goal.
    cluster = [machine(f"node-{i:04d}") for i in range(MANY)]
    served = MANY // 2
    services = [service(f"cache-{i}", f"node-{i:04d}", qps=30_000.0 + 10 * i, slo_us=300.0) for i in range(served)]
    there = [running(task(f"there-{i}", scale=5.0), f"node-{i:04d}", (0, 1)) for i in range(served, MANY)]
    now = snapshot([task("hungry", HUNGRY, cores=1)], cluster, services=services, running=there)
    (all_looked_at,) = flow_scheduler(candidates=0).decide(now).placements
    (placed,) = flow_scheduler().decide(now).placements
    assert int(all_looked_at.machine[5:]) >= served
    assert int(placed.machine[5:]) >= served


@pytest.mark.parametrize(
    "changes",
    [
        {"cores": 64, "widths_milli": (64000,)},
        {"memory_mib": 10**6},
        {"resources": (("gpu", 2),)},
        {"machines": ("elsewhere",)},
        {"cores": 4, "widths_milli": (4000,)},
    ],
)
def test_a_reason_is_that_of_a_round_which_looks_at_all_machines(changes: dict[str, Any]) -> None:
    cluster = [machine(f"node-{i:04d}", resources=(("gpu", 1),) if i == 9 else ()) for i in range(MANY)]
    there = [
        running(task(f"there-{i}", cores=4 if i != 11 else 2, endless=True), m.name, (0, 1))
        for i, m in enumerate(cluster)
    ]
    now = snapshot([task("a", **{"cores": 1, **changes})], cluster, running=there)
    (few,) = flow_scheduler().decide(now).postponements
    (everything,) = flow_scheduler(candidates=0).decide(now).postponements
    assert few.reason == everything.reason


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(rounds(), bound_rounds()),
    st.sampled_from(
        [{}, {"preemption": "lower-priority"}, {"drain": True, "due_age_s": 10.0}, {"objective": "makespan"}]
    ),
)
def test_where_every_machine_is_a_candidate_the_decisions_are_those_of_a_round_without(
    monkeypatch: pytest.MonkeyPatch, now: Snapshot, chosen: dict[str, Any]
) -> None:
    now = replace(now, services=())  # The work that is left beside services is estimated.
    monkeypatch.setattr(candidates, "MANY_MACHINES", 0)
    few, everything = flow_scheduler(**chosen).decide(now), flow_scheduler(candidates=0, **chosen).decide(now)
    assert [(p.task, p.machine, p.width_milli, p.cores) for p in few.placements] == [
        (p.task, p.machine, p.width_milli, p.cores) for p in everything.placements
    ]
    assert [(p.task, p.reason) for p in few.postponements] == [(p.task, p.reason) for p in everything.postponements]
    assert few.reservations == everything.reservations
    assert few.preemptions == everything.preemptions

"""Tasks with a measured profile beside plain ones in whole runs: each makes room for the other, and they start together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Running, Snapshot
from flowsched.pricing.linear.policies.registry import COST_MODELS
from flowsched.round.scheduler import solve
from flowsched_simulator import EngineOptions, Run, make_scenario, simulate

POLICIES = ("flow", *COST_MODELS)
KINDS: dict[str, dict[str, Any]] = {"plain": {"runtime_s": 300}, "measured": {"profile": "blackscholes", "scale": 5}}
BOTH = pytest.mark.parametrize(("first", "other"), [("plain", "measured"), ("measured", "plain")])
MACHINE = {"name": "m", "type": "e2-standard-4"}


def run(policy: str, rules: Settings, jobs: list[dict[str, Any]], **more: Any) -> Run:
    return simulate(make_scenario(machines=[MACHINE], jobs=jobs, **more), policy, engine=EngineOptions(rules))


def start_s(found: Run) -> dict[str, float | None]:
    return {job.name: job.start_s for job in found.jobs}


@BOTH
@pytest.mark.parametrize("policy", POLICIES)
def test_a_task_of_one_kind_is_preempted_for_one_of_the_other(policy: str, first: str, other: str) -> None:
    low = {"name": "low", "request": 4, **KINDS[first]}
    high = {"name": "high", "request": 4, "submit_s": 30, "priority": 10, **KINDS[other]}
    found = start_s(run(policy, Settings(preemption="lower-priority"), [low, high]))
    assert found["high"] == 30.0 and (found["low"] or 0.0) > 30.0


@BOTH
@pytest.mark.parametrize("policy", POLICIES)
def test_the_room_goes_to_the_task_that_is_overdue_for_longest(policy: str, first: str, other: str) -> None:
    there = {"name": "there", "request": 4, "runtime_s": 200}
    jobs = [
        there,
        {"name": "first", "request": 4, "submit_s": 1, **KINDS[first]},
        {"name": "other", "request": 4, "submit_s": 2, **KINDS[other]},
    ]
    found = start_s(run(policy, Settings(due_age_s=60.0, due_runs=0.0), jobs))
    assert found["first"] == 200.0 and (found["other"] or 0.0) > 200.0


@pytest.mark.parametrize("overdue", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_of_both_starts_at_once(policy: str, overdue: bool) -> None:
    # The stream leaves two cores at times, and four only for a gang that has a reservation; without a stream there are two.
    narrow = {"request": 2, "runtime_s": 100}
    stream = [{"name": f"s{k}", "submit_s": 50 * k, **narrow} for k in range(20 if overdue else 2)]
    gang = [{"name": kind, "request": 2, "submit_s": 60, "group": "g", **KINDS[kind]} for kind in KINDS]
    rules = Settings(due_age_s=60.0, due_runs=0.0, exact_limit=0)
    found = start_s(run(policy, rules, [*stream, *gang], task_groups=[{"name": "g", "minimum": 2}]))
    assert found["plain"] is not None and found["plain"] == found["measured"]
    assert found["plain"] <= 60.0 + 60.0 + 6 * 101.0


@BOTH
@pytest.mark.parametrize("policy", POLICIES)
def test_solve_lets_a_task_of_one_kind_go_for_one_of_the_other(policy: str, first: str, other: str) -> None:
    jobs = [
        {"name": "low", "request": 4, **KINDS[first]},
        {"name": "high", "request": 4, "priority": 10, "submit_s": 10, **KINDS[other]},
    ]
    of = make_scenario(machines=[MACHINE], jobs=jobs)
    tasks = {t.name: t for t in of.tasks}
    low = tasks["low"]
    there = Running(low, "m", 4000, of.catalogue.jobs[low.profile].threads_for(4), (0, 1, 2, 3), 0.0, 0.0)
    now = Snapshot(now_s=10.0, catalogue=of.catalogue, machines=of.machines, running=(there,), pending=(tasks["high"],))
    decided = solve(now, policy=policy, settings=Settings(preemption="lower-priority"))
    assert [(p.task, p.machine, p.room_for) for p in decided.preemptions or ()] == [("low", "m", "high")]
    assert [p.task for p in decided.placements] == ["high"]


@BOTH
@pytest.mark.parametrize("policy", POLICIES)
def test_an_overdue_task_that_starts_before_higher_priorities_keeps_its_place(
    policy: str, first: str, other: str
) -> None:
    jobs = [
        {"name": "low", "request": 4, **KINDS[first]},
        {"name": "high", "request": 4, "priority": 10, "submit_s": 99, **KINDS[other]},
    ]
    of = make_scenario(machines=[MACHINE], jobs=jobs)
    now = Snapshot(now_s=100.0, catalogue=of.catalogue, machines=of.machines, pending=of.tasks)
    started = {}
    for crosses in (False, True):
        rules = Settings(preemption="lower-priority", due_age_s=60.0, due_runs=0.0, aging_crosses_priority=crosses)
        started[crosses] = [p.task for p in solve(now, policy=policy, settings=rules).placements]
    assert started == {False: ["high"], True: ["low"]}


@BOTH
@pytest.mark.parametrize("policy", POLICIES)
def test_an_overdue_task_that_starts_after_higher_priorities_gives_way_to_them(
    policy: str, first: str, other: str
) -> None:
    """Of the overdue the earliest comes before all; the next one is served with its own priority."""
    jobs = [
        *({"name": name, "request": 1, **KINDS[first]} for name in ("a", "b")),
        {"name": "high", "request": 3, "priority": 10, "submit_s": 99, **KINDS[other]},
    ]
    of = make_scenario(machines=[MACHINE], jobs=[*jobs, {"name": "low", "request": 2, **KINDS[first]}])
    waiting, low = of.tasks[:3], of.tasks[3]
    there = Running(low, "m", 2000, of.catalogue.jobs[low.profile].threads_for(4), (0, 1, 2, 3), 0.0, 0.0)
    now = Snapshot(now_s=100.0, catalogue=of.catalogue, machines=of.machines, running=(there,), pending=waiting)
    rules = Settings(preemption="lower-priority", due_age_s=60.0, due_runs=0.0, aging_crosses_priority=True)
    decided = solve(now, policy=policy, settings=rules)
    assert [p.task for p in decided.placements] == ["a", "high"]
    assert [p.task for p in decided.preemptions or ()] == ["low"]


TWO = [MACHINE, {**MACHINE, "name": "m2"}]
PAIRS = [
    {"name": f"{kind}-{i}", "request": 2, **how}
    for kind, how in {**KINDS, "measured": {"profile": "canneal", "scale": 5}}.items()
    for i in (1, 2)
]
TRADERS = pytest.mark.parametrize("policy", ["flow-network", "coco"])
FREE = Settings(migration_moves=2, migration_price=0.005, migration_pause_s=0.0)


@TRADERS
def test_solve_lets_a_plain_task_and_a_measured_one_take_each_others_places(policy: str) -> None:
    """At prices that say what co-located tasks do to each other; rounds of `flow` make single moves only."""
    of = make_scenario(machines=TWO, jobs=PAIRS)
    running = tuple(
        Running(
            task,
            "m" if task.name.startswith("plain") else "m2",
            2000,
            of.catalogue.jobs[task.profile].threads_for(4),
            (0, 1, 2, 3),
            0.0,
            0.0,
        )
        for task in of.tasks
    )
    now = Snapshot(now_s=10.0, catalogue=of.catalogue, machines=of.machines, running=running)
    moves = solve(now, policy=policy, settings=FREE).moves or ()
    assert sorted((m.task.split("-")[0], m.source, m.machine) for m in moves) == [
        ("measured", "m2", "m"),
        ("plain", "m", "m2"),
    ]
    assert sum(m.gain - m.price for m in moves) > 0.0
    to = {m.task: m.machine for m in moves}
    traded = replace(now, running=tuple(replace(r, machine=to.get(r.task.name, r.machine)) for r in running))
    assert min(traded.free_milli().values()) == 0
    assert not solve(traded, policy=policy, settings=FREE).moves, "it is not taken back"
    assert not solve(now, policy=policy, settings=replace(FREE, migration_moves=1)).moves, "neither has room alone"


@TRADERS
def test_they_trade_in_a_run_as_well(policy: str) -> None:
    # The measured ones start beside each other while another task has the other machine, which the plain ones take then.
    jobs: list[dict[str, Any]] = [
        {"name": "blocker", "request": 4, "runtime_s": 10, "machines": ["m"]},
        *({**job, "submit_s": 1 if str(job["name"]).startswith("measured") else 5} for job in PAIRS),
        {"name": "late", "request": 4, "runtime_s": 10, "submit_s": 20},
    ]
    of = make_scenario(machines=TWO, jobs=jobs)
    found = simulate(of, policy, engine=EngineOptions(FREE))
    moved = [(job.name.split("-")[0], stay.left_s) for job in found.jobs for stay in job.earlier if stay.moved]
    assert {"plain", "measured"} <= {kind for kind, _ in moved}
    assert len({left_s for kind, left_s in moved}) < len(moved), "two leave in the same round"

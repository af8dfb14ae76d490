"""Preemption and migration in simulated runs: strict priority, nothing overcommitted, an end to both, and what runs tell."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    CATALOGUE,
    HUNGRY,
    LARGE,
    SCALING,
    SMALL,
    any_of,
    few_idle_rounds,
    flow_scheduler,
    machine,
    profiles,
    running,
    service,
    snapshot,
    task,
)
from flowsched.cli import flowsched
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import apply_settings
from flowsched.cluster.snapshot import Machine, Running, Service, Snapshot, StartDelay, Task
from flowsched_models.document import InputError
from flowsched_models.profile import JobProfile
from flowsched_models.runtime import HostFactory
from flowsched_simulator.policies import EngineOptions, readers, schedulers
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Objective, Scenario
from flowsched_simulator.simulation import Options, Simulation

POLICIES = ("flow", "load-spreading", "coco", "quincy", "trivial", "shortest-job-first")
LOWER = {"preemption": "lower-priority"}
BUDGET: dict[str, Any] = {"pricings": 1500, "exact_limit": 0}

idle_rounds = few_idle_rounds(10)


def rigid(name: str, profile: JobProfile = SCALING, *, cores: float = 2, **changes: Any) -> Task:
    """A task that runs at the width that its user asked for, and at no other."""
    return task(name, profile, cores=cores, widths_milli=(round(1000 * cores),), **changes)


def scenario(
    tasks: list[Task], cluster: tuple[Machine, ...] = (), services: tuple[Service, ...] = (), **changes: Any
) -> Scenario:
    return Scenario("hand-made", "", CATALOGUE, cluster or (machine(),), services, tuple(tasks), **changes)


def scheduler(policy: str, of: Scenario, **changes: Any) -> Scheduler:
    engine = EngineOptions(Settings(**{**BUDGET, **changes}))
    ((_, found),) = schedulers(policy, of, 0, engine, HostFactory(of.catalogue))
    return found


def simulate(of: Scenario, policy: str = "flow", **changes: Any) -> Run:
    return Simulation(of, scheduler(policy, of, **changes)).run()


class Watched:
    """Another scheduler, each of whose rounds is looked at."""

    def __init__(self, inner: Scheduler, limit: int) -> None:
        self.inner, self.limit = inner, limit
        self.name = inner.name
        self.evicted: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()

    def decide(self, snapshot: Snapshot) -> Decisions:
        decisions = self.inner.decide(snapshot)
        check_round(snapshot, decisions, self.limit)
        self.evicted.update(p.task for p in decisions.preemptions or ())
        self.moved.update(m.task for m in decisions.moves or ())
        return decisions


def check_round(snapshot: Snapshot, decisions: Decisions, limit: int) -> None:
    """What every round with preemption holds to."""
    waiting = {t.name: t for t in snapshot.pending}
    running = {r.task.name: r for r in snapshot.running}
    assert sorted(waiting) == sorted(
        [*(p.task for p in decisions.placements), *(p.task for p in decisions.postponements)]
    ), "every pending task is placed or postponed, once"
    started = {p.task: p for p in decisions.placements}
    for preempted in decisions.preemptions or ():
        victim = running.pop(preempted.task)
        assert victim.machine == preempted.machine
        assert victim.task.priority < waiting[preempted.room_for].priority, "never for an equal or lower priority"
        assert started[preempted.room_for].machine == victim.machine
        assert victim.task.endless or victim.task.preemptions < limit
    after = dict(running)
    for p in decisions.placements:
        after[p.task] = Running(
            waiting[p.task], p.machine, p.width_milli, p.threads, p.cores, snapshot.now_s, snapshot.now_s
        )
    for move in decisions.moves or ():
        assert after[move.task].machine == move.source
        assert move.task in running, "what starts in this round does not move"
        after[move.task] = replace(after[move.task], machine=move.machine)
    state = replace(snapshot, running=tuple(after.values()), pending=())
    assert min([0, *state.free_milli().values()]) == 0
    assert min([0, *state.free_memory_mib().values()]) == 0
    assert min([0, *(n for free in state.free_resources().values() for n in free.values())]) == 0
    for p in decisions.postponements:
        if not overlooked(state, waiting[p.task], decisions, limit):
            continue
        raise AssertionError(f"{p.task} waits beside tasks of lower priority whose going would make room: {p.reason}")


def overlooked(state: Snapshot, task: Task, decisions: Decisions, limit: int) -> bool:
    """Whether a task without room could have had some."""
    if decisions.moves:
        return False  # rooms were looked at before they moved
    holders = {r.machine for r in decisions.reservations if r.task != task.name}
    started = {p.task for p in decisions.placements}
    machines = [m for m in state.machines if task.machines is None or m.name in task.machines]
    machines = [m for m in machines if m.name not in holders]
    if any(fits(state, task, m) for m in machines):
        return False
    for m in machines:
        victims = {
            r.task.name
            for r in state.running
            if r.machine == m.name
            and r.task.priority < task.priority
            and (r.task.endless or r.task.name in started or r.task.preemptions < limit)
        }
        without = replace(state, running=tuple(r for r in state.running if r.task.name not in victims))
        if fits(without, task, m):
            return True
    return False


def fits(state: Snapshot, task: Task, m: Machine) -> bool:
    free = state.free_resources()[m.name]
    return (
        state.free_milli()[m.name] >= task.widths_milli[0]
        and state.free_memory_mib()[m.name] >= task.memory_mib
        and all(free.get(name, 0) >= units for name, units in task.resources)
    )


@st.composite
def crowded(draw: st.DrawFn) -> Scenario:
    """More tasks of several priorities than a few machines hold, one after the other."""
    cluster = tuple(
        machine(f"m{i}", draw(any_of(SMALL, LARGE)), resources=(("disk", draw(st.integers(0, 3))),))
        for i in range(draw(st.integers(1, 3)))
    )
    tasks = []
    for i in range(draw(st.integers(2, 9))):
        widths = draw(any_of((1000,), (2000,), (4000,), (1000, 2000), (2000, 4000)))
        named = draw(st.none() | st.sets(st.sampled_from([m.name for m in cluster]), min_size=1))
        tasks.append(
            task(
                f"t{i}",
                draw(profiles()),
                widths_milli=widths,
                request_milli=widths[0],
                priority=draw(st.integers(0, 3)),
                submit_s=draw(any_of(0.0, 0.0, 5.0, 20.0, 60.0)),
                machines=None if named is None else tuple(sorted(named)),
                resources=(("disk", draw(st.integers(0, 2))),),
                scale=draw(any_of(0.2, 1.0)),
            )
        )
    objective = draw(st.sampled_from(list(Objective)))
    return scenario(tasks, cluster, objective=objective, start_delay=StartDelay(0.0, draw(any_of(0.0, 2.0))))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25)
@given(of=crowded(), limit=st.integers(0, 3), kept=st.booleans(), moves=st.sampled_from([0, 0, 2]))
def test_priority_is_strict_nothing_is_overcommitted_and_it_ends(
    policy: str, of: Scenario, limit: int, kept: bool, moves: int
) -> None:
    work = "kept" if kept else "lost"
    inner = scheduler(
        policy, of, preemption_limit=limit, preempted_work=work, migration_moves=moves, due_age_s=1e6, **LOWER
    )
    watched = Watched(inner, limit)
    run = Simulation(of, watched).run()  # the state raises for what is overcommitted, or split
    assert max(watched.evicted.values(), default=0) <= limit
    could = {t.name for t in of.tasks if any(fits(empty(of), t, m) for m in of.machines if allows(t, m))}
    assert {j.job for j in run.jobs if j.end_s is not None} == could, "what can run ends"
    for job in run.jobs:
        ended = Counter(stay.moved for stay in job.earlier)
        assert (ended[False], ended[True]) == (watched.evicted[job.job], watched.moved[job.job])


def empty(of: Scenario) -> Snapshot:
    return Snapshot(0.0, of.catalogue, of.machines, of.services)


def allows(t: Task, m: Machine) -> bool:
    return t.machines is None or m.name in t.machines


@pytest.mark.parametrize("policy", POLICIES)
def test_a_higher_priority_starts_at_once_and_the_victim_starts_anew(policy: str) -> None:
    tasks = [rigid("low", cores=4), rigid("high", cores=4, priority=1, submit_s=10.0)]
    without, run = simulate(scenario(tasks), policy), simulate(scenario(tasks), policy, **LOWER)
    low, high = run.jobs
    alone = without.jobs[0].end_s
    assert alone is not None
    assert (high.start_s, high.earlier) == (10.0, ())
    assert [(s.machine, s.start_s, s.left_s, s.moved) for s in low.earlier] == [("m1", 0.0, 10.0, False)]
    assert high.end_s == pytest.approx(10.0 + alone)
    assert (low.start_s, low.waiting_s) == (pytest.approx(high.end_s), 0.0)
    assert low.end_s == pytest.approx(10.0 + 2 * alone), "the ten seconds are lost"
    assert run.summary()["preemptions"] == 1
    assert "preemptions" not in without.summary()
    assert "moves" not in run.summary()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("limit", [0, 2])
def test_a_place_that_the_round_has_just_given_away_goes_to_a_higher_priority(policy: str, limit: int) -> None:
    """However often tasks with an end may be preempted: the one that loses the place has not started."""
    pending = [rigid("wide", cores=4, priority=3), replace(rigid("narrow", priority=1), preemptions=limit)]
    there = [running(rigid("service", endless=True), "m1", (0, 1, 2, 3))]
    one = scheduler(policy, scenario(pending), preemption_limit=limit, slots=1, **LOWER)
    decisions = one.decide(snapshot(pending, running=there))
    assert [p.task for p in decisions.placements] == ["wide"]
    assert [(p.task, p.room_for) for p in decisions.preemptions or ()] == [("service", "wide")]
    assert [p.task for p in decisions.postponements] == ["narrow"]


@pytest.mark.parametrize("policy", POLICIES)
def test_work_that_is_kept_need_not_be_done_again(policy: str) -> None:
    tasks = [rigid("low", cores=4), rigid("high", cores=4, priority=1, submit_s=10.0)]
    alone = simulate(scenario(tasks), policy).jobs[0].end_s
    assert alone is not None
    low, high = simulate(scenario(tasks), policy, preempted_work="kept", **LOWER).jobs
    assert high.end_s == pytest.approx(10.0 + alone)
    assert low.end_s == pytest.approx(2 * alone)


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_preempted_for_an_equal_priority_or_where_there_is_room(policy: str) -> None:
    equal = simulate(scenario([rigid("a", cores=4), rigid("b", cores=4, submit_s=1.0)]), policy, **LOWER)
    room = simulate(scenario([rigid("a"), rigid("b", priority=1, submit_s=1.0)]), policy, **LOWER)
    assert (equal.summary()["preemptions"], room.summary()["preemptions"]) == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_lowest_priority_goes_and_only_as_many_as_needed(policy: str) -> None:
    there = [
        running(rigid("low"), "m2", (0, 1, 2, 3)),
        running(rigid("low-2"), "m2", (0, 1, 2, 3)),
        running(rigid("middle", cores=4, priority=1), "m1", (0, 1, 2, 3)),
    ]
    high = rigid("high", priority=2, submit_s=50.0)
    of = snapshot([high], (machine("m1"), machine("m2")), running=there, now_s=50.0)
    decisions = scheduler(policy, scenario([]), **LOWER).decide(of)
    check_round(of, decisions, 2)
    assert [p.task in ("low", "low-2") for p in decisions.preemptions or ()] == [True]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_task_without_an_end_makes_room_again_and_again(policy: str) -> None:
    tasks = [rigid("service", cores=4, endless=True, scale=100.0)]
    tasks += [rigid(f"high-{i}", cores=4, priority=1, submit_s=10.0 + 100.0 * i, scale=0.1) for i in range(4)]
    run = simulate(scenario(tasks), policy, **LOWER)
    assert len(run.jobs[0].earlier) == 4
    assert all(j.start_s == 10.0 + 100.0 * i for i, j in enumerate(run.jobs[1:]))


def test_a_victim_waits_as_old_as_it_was_and_takes_other_room_at_once() -> None:
    narrow = machine("m2", cpu_milli=2000)
    tasks = [rigid("low", machines=None), rigid("high", cores=4, priority=1, submit_s=10.0)]
    run = simulate(scenario(tasks, (machine("m1"), narrow)), **LOWER, slots=1)
    low, high = run.jobs
    if low.earlier:  # it had been on the machine that the wide task needs
        assert (low.machine, low.bound_s) == ("m2", 10.0)
    assert (high.machine, high.start_s) == ("m1", 10.0)


def test_a_task_moves_where_the_forecast_gains_more_than_the_price() -> None:
    there = [running(rigid(name, HUNGRY), "m1", (0, 1, 2, 3)) for name in ("first", "second")]
    of = snapshot([], (machine("m1"), machine("m2")), running=there, now_s=10.0)
    (move,) = scheduler("flow", scenario([]), migration_moves=2).decide(of).moves or ()
    assert (move.source, move.machine, move.pause_s) == ("m1", "m2", 10.0)
    assert scheduler("flow", scenario([]), migration_moves=2, migration_price=move.gain * 1.01).decide(of).moves == ()
    long = scheduler("flow", scenario([]), migration_moves=2, migration_pause_s=1e4).decide(of)
    assert long.moves == (), "standing still for so long costs more than a neighbour"
    recent = [replace(r, moved_s=5.0) for r in there]
    price = move.gain * 0.6
    again = scheduler("flow", scenario([]), migration_moves=2, migration_price=price)
    assert len(again.decide(of).moves or ()) == 1
    assert again.decide(replace(of, running=tuple(recent))).moves == (), "it moved a short while ago"


def test_a_run_with_moves_is_shorter_and_says_where_tasks_were() -> None:
    tasks = [rigid(name, HUNGRY) for name in ("first", "second", "third")]
    tasks += [rigid("blocker", cores=4, machines=("m2",), scale=0.3)]
    cluster = (machine("m1", memory_mib=32_000), machine("m2"))
    changes: dict[str, Any] = {"slots": 1, "waiting_weight": 1e6}
    stays = simulate(scenario(tasks, cluster), **changes)
    moves = simulate(scenario(tasks, cluster), migration_moves=1, migration_pause_s=5.0, **changes)
    count = moves.summary()["moves"]
    assert count == sum(len(j.earlier) for j in moves.jobs) >= 1
    assert moves.summary()["mean_completion_s"] < stays.summary()["mean_completion_s"]
    for job in moves.jobs:
        for stay in job.earlier:
            assert stay.moved
            assert stay.machine != job.machine
            assert job.start_s == stay.left_s + 5.0, "it stands still for so long"


def test_a_task_that_loses_its_work_by_moving_moves_early_or_not_at_all() -> None:
    there = [running(rigid(name, HUNGRY), "m1", (0, 1, 2, 3)) for name in ("first", "second")]
    of = snapshot([], (machine("m1"), machine("m2")), running=there, now_s=10.0)
    late = replace(of, running=tuple(replace(r, progress=0.9) for r in there))
    kept, lost = (
        scheduler("flow", scenario([]), migration_moves=1, migration_price=0.0, migrated_work=work)
        for work in ("kept", "lost")
    )
    (move,) = lost.decide(of).moves or ()
    assert not move.keeps_work
    assert len(kept.decide(late).moves or ()) == 1
    assert lost.decide(late).moves == (), "a tenth of the work is left here, all of it elsewhere"


@pytest.mark.parametrize(("policy", "moves_at_a_loss"), [("flow", True), ("coco", True), ("load-spreading", False)])
def test_a_moved_task_that_loses_its_work_runs_for_its_whole_length_again(policy: str, moves_at_a_loss: bool) -> None:
    tasks = [rigid(name, HUNGRY) for name in ("first", "second", "third")]
    tasks += [rigid("blocker", cores=4, machines=("m2",), scale=0.3)]
    cluster = (machine("m1", memory_mib=32_000), machine("m2"))
    free: dict[str, Any] = {"slots": 1, "waiting_weight": 1e6, "migration_price": 0.0, "migration_pause_s": 0.0}

    def longest(work: str) -> float:
        run = simulate(scenario(tasks, cluster), policy, migration_moves=1, migrated_work=work, **free)
        return max((j.end_s - j.start_s for j in run.jobs if j.earlier and j.end_s and j.start_s), default=0.0)

    assert longest("kept") > 0.0
    assert longest("lost") > 1.5 * longest("kept") if moves_at_a_loss else longest("lost") == 0.0


def test_the_table_has_columns_for_changes_only_where_there_may_be_any() -> None:
    from flowsched_simulator.report.table import table_columns
    from flowsched_simulator.table import render_table

    tasks = [rigid("low", cores=4), rigid("high", cores=4, priority=1, submit_s=10.0)]
    off, on = simulate(scenario(tasks)).summary(), simulate(scenario(tasks), **LOWER, migration_moves=1).summary()
    assert "empted" not in render_table([off])
    assert "empted" in render_table([off, on])
    assert [c.heading for c in table_columns([off, on])][-2:] == ["preempted", "moved"]
    assert len(table_columns([off])) + 2 == len(table_columns([on]))


def test_a_service_keeps_its_goal_whatever_has_a_higher_priority() -> None:
    cache = service(cores=(0,))
    tasks = [rigid("low", cores=3), rigid("high", cores=3, priority=1, submit_s=10.0)]
    run = simulate(scenario(tasks, (machine(),), (cache,)), **LOWER)
    assert run.summary()["slo_violation_ratio"] == 0.0
    assert [j.job for j in run.jobs if j.earlier] == ["low"]


def test_a_run_is_the_same_each_time() -> None:
    tasks = [rigid(f"t{i}", cores=2, priority=i % 3, submit_s=3.0 * i) for i in range(8)]
    of = scenario(tasks, (machine("m1"), machine("m2")))
    runs = [simulate(of, **LOWER, migration_moves=2).to_json() for _ in range(2)]
    for run in runs:
        run.pop("timings")
    assert runs[0] == runs[1]


def test_the_time_that_a_round_takes_changes_nothing_that_ended_meanwhile() -> None:
    tasks = [rigid("low", cores=4, scale=0.1), rigid("high", cores=4, priority=1, submit_s=10.0)]
    of = scenario(tasks)
    options = Options(charge_scheduling_time=True)
    run = Simulation(of, flow_scheduler(**BUDGET, **LOWER), options).run()
    assert all(j.end_s is not None for j in run.jobs)


def test_a_plan_of_all_that_waits_leaves_running_tasks_alone() -> None:
    with pytest.raises(InputError, match="not read by flow\\+plan"):
        apply_settings(Settings(), ["preemption=lower-priority"], readers=readers(["flow+plan"], {}))
    both = apply_settings(Settings(), ["preemption=lower-priority"], readers=readers(["flow", "flow+plan"], {}))
    of = scenario([rigid("low", cores=4), rigid("high", cores=4, priority=1, submit_s=10.0)])
    ((_, planned),) = schedulers("flow+plan", of, 0, EngineOptions(both), HostFactory(of.catalogue))
    assert all(not j.earlier for j in Simulation(of, planned).run().jobs)


def test_simulate_takes_the_settings_and_counts_what_it_did(tmp_path: Path) -> None:
    on = ["--set", "preemption=lower-priority", "--set", "migration_moves=1", "--set", "exact_limit=0"]
    names = ["--policy", "flow", "--policy", "coco", "--policy", "fcfs"]
    done = CliRunner().invoke(flowsched, ["simulate", "parsec-poisson", *names, *on, "--json"])
    assert done.exit_code == 0, done.output
    rows = {row["policy"]: row for row in json.loads(done.stdout)["table"]}
    assert rows["flow"]["preemptions"] == rows["coco"]["preemptions"] == 0, "all have one priority"
    assert rows["coco"]["moves"] >= 0
    assert rows["fcfs"].keys().isdisjoint({"preemptions", "moves"})

"""The cluster's state: what events make of it, what is believed, what cannot be true."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    CATALOGUE,
    HUNGRY,
    LARGE,
    SERIAL,
    SMALL,
    any_of,
    bound_rounds,
    in_another_order,
    machine,
    machines,
    rounds,
    running,
    service,
    snapshot,
    task,
)
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.events import (
    Event,
    MachineAdded,
    MachineRemoved,
    RoundDecided,
    TaskBound,
    TaskFinished,
    TaskMove,
    TaskPreempted,
    TasksMoved,
    TaskSubmitted,
    TaskWithdrawn,
)
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.running_tasks import in_rows
from flowsched.cluster.snapshot import PlannedStart, RelationCount, Reservation, Snapshot
from flowsched.errors import EventError
from flowsched.relations.relation import TaskGroup
from flowsched_models.execution import Execution
from flowsched_models.runtime import HostFactory, Resident

ALL = (0, 1, 2, 3)


def cluster(*events: Event, at: float = 0.0) -> ClusterState:
    state = ClusterState(CATALOGUE)
    for event in (MachineAdded(machine()), *events):
        state.apply(event, at)
    return state


LEARNT = (
    LearntRunTimes()
    .with_end("night", SMALL.name, 1.7)
    .with_end("day", SMALL.name, 0.6)
    .with_end("night", LARGE.name, 0.9)
)


def bound(name: str, width: int = 1000, cores: tuple[int, ...] = ALL, start_s: float = 0.0) -> TaskBound:
    return TaskBound(name, "m1", width, len(cores), cores, start_s)


def names(items: Iterable[Any]) -> list[str]:
    return sorted(i.name for i in items)


@settings(max_examples=50)
@given(st.one_of(rounds(), bound_rounds()))
def test_events_make_the_snapshot_that_one_would_write_down(now: Snapshot) -> None:
    state = ClusterState(now.catalogue, now.start_delay, relations=now.relations, task_groups=now.task_groups)
    for m in now.machines:
        state.apply(MachineAdded(m, tuple(s for s in now.services if s.machine == m.name)), now.now_s)
    for r in now.running:
        state.apply(TaskSubmitted(r.task), now.now_s)
        state.apply(TaskBound(r.task.name, r.machine, r.width_milli, r.threads, r.cores, r.start_s), now.now_s)
    for t in now.pending:
        state.apply(TaskSubmitted(t), now.now_s)

    seen = state.snapshot(now.now_s)

    fresh = [replace(r, progress=0.0, bound_s=now.now_s) for r in now.running]
    assert (seen.now_s, seen.catalogue, seen.start_delay) == (now.now_s, now.catalogue, now.start_delay)
    assert set(seen.machines) == set(now.machines)
    assert set(seen.services) == set(now.services)
    assert set(seen.pending) == set(now.pending)
    assert set(seen.running) == set(fresh)
    assert seen.free_milli() == now.free_milli()
    assert seen.free_memory_mib() == now.free_memory_mib()
    assert seen.free_resources() == now.free_resources()
    assert (seen.relations, seen.task_groups) == (now.relations, now.task_groups)


@st.composite
def courses(draw: st.DrawFn) -> Snapshot:
    """A round in the middle of a run: with intentions of the last one, and all that only a file or another program says."""
    now = draw(st.one_of(rounds(), bound_rounds()))
    known = draw(any_of(None, RunTimeErrors(), RunTimeErrors.of(9, 2.0)))
    ahead = () if known is None else (1.0, 1.9)
    there = [
        replace(r, progress=draw(any_of(0.0, 0.3, 0.98, *ahead)), moved_s=draw(any_of(None, now.now_s)))
        for r in now.running
    ]
    waiting = [replace(t, rounds_waited=draw(st.integers(0, 7)), done=draw(any_of(0.0, 0.5))) for t in now.pending]
    place = st.sampled_from([m.name for m in now.machines])
    kept = now.pending[: draw(st.integers(0, 2))]
    return replace(
        now,
        round=7,
        running=tuple(there),
        pending=tuple(waiting),
        plan=tuple(PlannedStart(t.name, draw(place), draw(st.integers(0, 2)), t.widths_milli[0]) for t in now.pending),
        reservations=tuple(Reservation(t.name, draw(place), t.widths_milli[0], now.now_s + 3.0) for t in kept),
        relation_counts=tuple(RelationCount(draw(place), r.name, 1, 2) for r in now.relations),
        run_time_errors=known,
        learnt_run_times=draw(any_of(LearntRunTimes(), LEARNT, replace(LEARNT, applied=False))),
    )


@settings(max_examples=50)
@given(courses(), st.data())
def test_a_state_is_loaded_from_a_snapshot_in_any_order(now: Snapshot, data: st.DataObject) -> None:
    loaded = ClusterState.of(in_another_order(now, data.draw(st.randoms())))

    assert loaded.snapshot(now.now_s) == now.in_order()


@settings(max_examples=30)
@given(courses(), st.data())
def test_a_loaded_state_goes_on_like_the_one_that_was_kept(now: Snapshot, data: st.DataObject) -> None:
    kept, at_s = ClusterState.of(now), now.now_s
    for step in range(data.draw(st.integers(1, 4))):
        at_s += data.draw(any_of(0.0, 0.7, 12.0))
        again = ClusterState.of(in_another_order(kept.snapshot(at_s), data.draw(st.randoms())))
        events: list[Event] = [TaskFinished(r.task.name) for r in kept.snapshot(at_s).running[:1]]
        events += [TaskSubmitted(task(f"new-{step}")), RoundDecided(())]
        for event in events:
            for state in (kept, again):
                state.apply(event, at_s)
        seen, other = (state.snapshot(at_s).in_order() for state in (kept, again))
        assert other == seen


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (snapshot((), (machine(), machine())), "the snapshot has 2 machines named m1"),
        (snapshot([task("a"), task("a")]), "the snapshot has 2 tasks named a"),
        (snapshot([task("a", holds=("near",))]), "a names relation near, which is not there"),
        (snapshot([task("a", group="train")]), "a names task group train, which is not there"),
        (snapshot([replace(task("a"), profile="none")]), "a has job profile none, which is not in the catalogue"),
        (snapshot(running=[running(task("a"), "nowhere")]), "a runs on nowhere, which is not in the cluster"),
        (snapshot(services=[service(machine="nowhere")]), "runs on nowhere, which is not in the cluster"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(now: Snapshot, told: str) -> None:
    with pytest.raises(EventError, match=told):
        ClusterState.of(now)


def test_a_state_is_loaded_though_a_machine_gives_more_than_it_has() -> None:
    now = snapshot(running=[running(task("a", cores=4), "m1", (0, 1, 2, 3), width_milli=4000)])
    small = replace(now, machines=(replace(now.machines[0], cpu_milli=3000),))

    assert ClusterState.of(small).snapshot(small.now_s) == small


def test_a_life_from_submission_to_end() -> None:
    state = cluster(TaskSubmitted(task("a")), TaskSubmitted(task("b")))
    state.apply(bound("a"), 5.0)
    (running,) = state.snapshot(5.0).running
    assert (running.bound_s, running.width_milli, running.machine) == (5.0, 1000, "m1")
    state.apply(TaskFinished("a"), 9.0)
    state.apply(TaskWithdrawn("b"), 9.0)
    ran = RunTimeErrors().with_end(4.0 / 25.0)
    assert state.snapshot(9.0) == replace(snapshot(now_s=9.0), run_time_errors=ran)
    state.apply(TaskSubmitted(task("a")), 10.0)
    assert names(state.snapshot(10.0).pending) == ["a"]
    state.apply(bound("a"), 11.0)
    state.apply(MachineRemoved("m1"), 12.0)
    assert state.snapshot(12.0) == replace(snapshot((), (), now_s=12.0), run_time_errors=ran)


def test_plans_count_completions_and_end_with_their_task() -> None:
    state = cluster(*(TaskSubmitted(task(n)) for n in "abc"))
    state.apply(bound("a"), 0.0)
    plan = (PlannedStart("b", "m1", 2, 1000), PlannedStart("c", "m1", 1, 1000))
    held = (Reservation("b", "m1", 1000, 3.0),)
    state.apply(RoundDecided(plan, held), 0.0)
    assert state.snapshot(0.0).round == 1
    state.apply(TaskFinished("a"), 1.0)
    seen = state.snapshot(1.0)
    assert {p.task: p.slot for p in seen.plan} == {"b": 1, "c": 0}
    assert seen.reservations == held
    state.apply(bound("b"), 2.0)
    seen = state.snapshot(2.0)
    assert [p.task for p in seen.plan] == ["c"]
    assert seen.reservations == ()


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(TaskSubmitted(task("a")), id="the same task twice"),
        pytest.param(bound("z"), id="bound but never submitted"),
        pytest.param(TaskFinished("a"), id="finished but never bound"),
        pytest.param(bound("a", 4001), id="too many cores"),
        pytest.param(bound("large"), id="too much memory"),
        pytest.param(TaskBound("a", "nowhere", 1000, 1, (0,), 0.0), id="unknown machine"),
        pytest.param(TaskWithdrawn("z"), id="withdrawn but unknown"),
        pytest.param(MachineRemoved("nowhere"), id="unknown machine removed"),
    ],
)
def test_what_cannot_be_true_is_refused_and_changes_nothing(event: Event) -> None:
    state = cluster(TaskSubmitted(task("a")), TaskSubmitted(task("large", memory_mib=16_001)))
    before = state.snapshot(0.0)

    with pytest.raises(ValueError, match=r"."):
        state.apply(event, 0.0)

    assert state.snapshot(0.0) == before


def test_overcommitment_counts_services_and_all_tasks() -> None:
    state = ClusterState(CATALOGUE)
    state.apply(MachineAdded(machine(), (service(),)), 0.0)
    for name in "ab":
        state.apply(TaskSubmitted(task(name)), 0.0)
    state.apply(bound("a", 2000, (1, 2, 3)), 0.0)
    with pytest.raises(ValueError, match="overcommitted"):
        state.apply(bound("b", 1001, (1, 2, 3)), 0.0)


def test_no_task_starts_where_services_have_all_cores() -> None:
    state = ClusterState(CATALOGUE)
    state.apply(MachineAdded(machine(), (service(cores=ALL, width_milli=500),)), 0.0)
    state.apply(TaskSubmitted(task("a")), 0.0)
    # The number of milli-CPU that would be requested is below that of the machine.
    with pytest.raises(ValueError, match=r"^m1 would be overcommitted: its services have all of its cores$"):
        state.apply(bound("a"), 0.0)
    assert names(state.snapshot(0.0).pending) == ["a"]


def test_time_does_not_go_backwards() -> None:
    state = cluster(TaskSubmitted(task("a")), at=10.0)

    with pytest.raises(ValueError, match="comes after"):
        state.apply(bound("a"), 9.0)


@settings(max_examples=40)
@given(st.lists(st.floats(0.01, 60.0), min_size=1, max_size=12), st.sampled_from((0.0, 1000.0)))
def test_estimated_progress_grows_also_beyond_the_forecast(steps: list[float], begin: float) -> None:
    state = cluster(TaskSubmitted(task("a", SERIAL)), TaskSubmitted(task("b", HUNGRY, scale=0.3)), at=begin)
    state.apply(bound("a", start_s=begin), begin)
    state.apply(bound("b", start_s=begin + 3.0), begin)
    now, last = begin, {"a": 0.0, "b": 0.0}
    for step in steps:
        now += step
        progress = {r.task.name: r.progress for r in state.snapshot(now).running}
        for name, share in progress.items():
            assert share > last[name] or (name == "b" and now <= begin + 3.0)
        last = progress


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.sampled_from("bbel")), min_size=2, max_size=12))
def test_a_snapshot_shows_what_runs_whenever_it_is_asked(steps: list[tuple[float, str]]) -> None:
    """b: a task is bound, e: one ends, l: nothing happens but a look."""
    states = [cluster(MachineAdded(machine("m2"))) for _ in range(2)]
    asked, later, now_s, runs = [], [], 0.0, list[str]()
    for number, (step_s, what) in enumerate(steps):
        now_s += step_s
        name = f"t{number}"
        events: list[Event] = []
        if what == "b" and len(runs) < 4:
            place = f"m{1 + number % 2}"
            events = [TaskSubmitted(task(name, SERIAL)), TaskBound(name, place, 1000, 4, ALL, now_s + number % 3)]
            runs.append(name)
        elif what == "e" and runs:
            events = [TaskFinished(runs.pop(0))]
        for state in states:
            for event in events:
                state.apply(event, now_s)
        asked.append(tuple(states[0].snapshot(now_s).running))
        later.append(states[1].snapshot(now_s))

    for found, view in zip(asked, later, strict=True):
        assert view.running == found
        assert len(view.running) == len(found)
        assert sorted(in_rows(view).columns.progress) == sorted(r.progress for r in found)


def test_estimated_progress_follows_the_models_with_all_neighbours() -> None:
    state = cluster(TaskSubmitted(task("a")), TaskSubmitted(task("b", HUNGRY)))
    by_hand: Execution[str] = Execution(HostFactory(CATALOGUE).host("small"))
    state.apply(bound("a"), 0.0)
    by_hand.start("a", Resident("scaling", 1.0, 4, ALL, 1.0))
    by_hand.advance(4.0)
    state.apply(bound("b", start_s=6.0), 4.0)
    by_hand.start("b", Resident("hungry", 1.0, 4, ALL, 1.0, ready_s=6.0))
    by_hand.advance(6.0)
    by_hand.advance(10.0)
    state.apply(TaskFinished("a"), 10.0)
    lonely = by_hand.progress("b")
    (b,) = state.snapshot(10.0).running
    assert b.progress == pytest.approx(lonely)
    by_hand.stop("a")
    by_hand.advance(20.0)
    (b,) = state.snapshot(20.0).running
    assert b.progress == pytest.approx(by_hand.progress("b"))


def test_shared_hosts_change_nothing() -> None:
    hosts = HostFactory(CATALOGUE)
    states = [ClusterState(CATALOGUE, hosts=hosts), ClusterState(CATALOGUE, hosts=hosts), ClusterState(CATALOGUE)]
    for state in states:
        for m in machines(2):
            state.apply(MachineAdded(m), 0.0)
        state.apply(TaskSubmitted(task("a")), 0.0)
        state.apply(bound("a"), 0.0)
    assert len({state.snapshot(7.0).running for state in states}) == 1


def test_nothing_is_bound_beyond_the_devices_of_a_machine() -> None:
    needs = {"resources": (("gpu", 1),), "memory_mib": 1}
    state = ClusterState(CATALOGUE)
    state.apply(MachineAdded(machine(resources=(("gpu", 1),))), 0.0)
    for name in ("a", "b"):
        state.apply(TaskSubmitted(task(name, **needs)), 0.0)
    state.apply(bound("a"), 0.0)
    with pytest.raises(ValueError, match="m1 would be overcommitted: 1 gpu more than are free"):
        state.apply(bound("b"), 0.0)


def test_tasks_name_only_relations_and_groups_that_there_are() -> None:
    state = ClusterState(CATALOGUE, task_groups=(TaskGroup("train", 2),))
    with pytest.raises(ValueError, match="a names relation far, which is not there"):
        state.apply(TaskSubmitted(task("a", holds=("far",), group="train")), 0.0)
    with pytest.raises(ValueError, match="a names task group test, which is not there"):
        state.apply(TaskSubmitted(task("a", group="test")), 0.0)


def test_members_that_ended_are_not_waited_for() -> None:
    state = ClusterState(CATALOGUE, task_groups=(TaskGroup("train", 3),))
    state.apply(MachineAdded(machine()), 0.0)
    for name in ("a", "b", "c"):
        state.apply(TaskSubmitted(task(name, group="train", memory_mib=1)), 0.0)
    for name, left in (("a", 2), ("b", 1), ("c", 1)):
        state.apply(bound(name), 0.0)
        state.apply(TaskFinished(name), 0.0)
        assert state.snapshot(0.0).task_groups == (TaskGroup("train", left),)


def test_a_preempted_task_waits_as_old_as_it_was_with_or_without_its_work() -> None:
    for keeps, done in ((False, 0.0), (True, 0.4)):
        state = ClusterState.of(snapshot([task("t1", cores=4, widths_milli=(4000,))]))
        state.apply(TaskBound("t1", "m1", 4000, 4, (0, 1, 2, 3), 0.0), 0.0)
        state.apply(TaskPreempted("t1", keeps), 10.0)
        (waiting,) = state.snapshot(10.0).pending
        assert (waiting.submit_s, waiting.preemptions) == (0.0, 1)
        assert waiting.done == pytest.approx(done)
        assert state.snapshot(10.0).free_milli() == {"m1": 4000}
        state.apply(TaskBound("t1", "m1", 4000, 4, (0, 1, 2, 3), 12.0), 12.0)
        (again,) = state.snapshot(22.0).running
        assert again.progress == pytest.approx(done + 0.4)
        with pytest.raises(ValueError, match="was preempted but does not run"):
            state.apply(TaskPreempted("t2"), 22.0)


def test_two_tasks_may_take_each_others_place_and_nothing_is_overcommitted() -> None:
    state = ClusterState.of(snapshot([task("a", cores=4), task("b", cores=4), task("c")], machines(3)))
    for name, where in (("a", "m1"), ("b", "m2"), ("c", "m3")):
        state.apply(TaskBound(name, where, 4000, 4, (0, 1, 2, 3), 0.0), 0.0)
    swap = [TaskMove(n, m, 4000, 4, (0, 1, 2, 3), 15.0) for n, m in (("a", "m2"), ("b", "m1"))]
    state.apply(TasksMoved(tuple(swap)), 10.0)
    after = {r.task.name: r for r in state.snapshot(15.0).running}
    assert (after["a"].machine, after["b"].machine) == ("m2", "m1")
    assert after["a"].progress == pytest.approx(0.4), "it stands still until 15 s"
    assert after["a"].moved_s == 10.0
    assert {r.task.name: r.progress for r in state.snapshot(20.0).running}["a"] == pytest.approx(0.6)
    with pytest.raises(ValueError, match="m2 would be overcommitted"):
        state.apply(TasksMoved((TaskMove("c", "m2", 4000, 4, (0, 1, 2, 3), 20.0),)), 20.0)
    with pytest.raises(ValueError, match="does not run elsewhere"):
        state.apply(TasksMoved((TaskMove("b", "m1", 4000, 4, (0, 1, 2, 3), 20.0),)), 20.0)

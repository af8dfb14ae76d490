"""Tasks that run longer than forecast: what is learnt from ends, what is left of them, and that goals stay as they are."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    CATALOGUE,
    HUNGRY,
    LARGE,
    SCALING,
    SERIAL,
    SMALL,
    any_of,
    flow_scheduler,
    in_another_order,
    machine,
    machines,
    rounds,
    running,
    snapshot,
    task,
)
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.compaction import compact
from flowsched.cluster.events import MachineAdded, TaskBound, TaskFinished, TaskPreempted, TaskSubmitted
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.running_tasks import in_rows, lengths
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.cluster.snapshot_dump import dump_snapshot, read_plain_snapshot
from flowsched.cluster.still_running import run_length
from flowsched.pricing.forecast_cache import forecast_cache
from flowsched.pricing.goals import Goals
from flowsched_models.forecast import forecast
from flowsched_models.runtime import HostFactory

ALL = (0, 1, 2, 3)
ALONE_S = 25.0
"""Of a task of the profile ``scaling`` on the small machine."""


ENDS = st.tuples(any_of("night", "day"), any_of(SMALL.name, LARGE.name), any_of(0.4, 0.9, 1.6, 5.0))
"""Class, machine type, and run time over forecast."""


def state_with(tasks: Sequence[Task], start_s: float = 0.0) -> ClusterState:
    """Each task on a machine of its own, since 0."""
    state = ClusterState(CATALOGUE)
    for k, t in enumerate(tasks):
        here = replace(machines(1)[0], name=f"m{k}")
        state.apply(MachineAdded(here), 0.0)
        state.apply(TaskSubmitted(t), 0.0)
        state.apply(TaskBound(t.name, here.name, 1000, 4, ALL, start_s), 0.0)
    return state


def errors_of(state: ClusterState, now_s: float) -> RunTimeErrors:
    found = state.snapshot(now_s).run_time_errors
    assert found is not None
    return found


@settings(max_examples=30)
@given(st.permutations(range(5)), st.floats(1.0, 200.0))
def test_the_order_of_ends_in_one_instant_decides_nothing(order: list[int], end_s: float) -> None:
    tasks = [task(f"t{k}", SCALING, scale=0.37 * (k + 1)) for k in range(5)]
    found = []
    for names in (range(5), order):
        state = state_with(tasks)
        for k in names:
            state.apply(TaskFinished(f"t{k}"), end_s)
        found.append(errors_of(state, end_s))

    squares = sum(math.log(end_s / (ALONE_S * t.scale)) ** 2 for t in tasks)
    assert found[0] == found[1] and found[0].ends == 5
    assert found[0].log_squares == pytest.approx(squares, abs=5e-5)


def test_ends_of_what_has_no_forecast_teach_nothing() -> None:
    """What never began, what has no end, and what ends with others, whichever of them is told first."""
    kinds: list[dict[str, Any]] = [{"endless": True}, {"gpus_for": "main"}]
    state = state_with([task("main", SCALING), *(task(f"t{k}", SCALING, **more) for k, more in enumerate(kinds))])
    for name in ("main", "t0", "t1"):
        state.apply(TaskFinished(name), 70.0)
    late = state_with([task("late", SCALING)], start_s=9.0)
    late.apply(TaskFinished("late"), 5.0)

    assert errors_of(state, 70.0) == errors_of(late, 5.0) == RunTimeErrors()


def test_exact_ends_make_the_spread_vanish() -> None:
    tasks = [task(f"t{k}", SCALING, scale=1.0 + k) for k in range(40)]
    state = state_with(tasks)
    for k in range(40):
        state.apply(TaskFinished(f"t{k}"), ALONE_S * (1.0 + k))
    found = errors_of(state, 1000.0)

    assert found == RunTimeErrors(40, 0)
    assert found.length(0.95, 0.1) == pytest.approx(1.0, abs=0.01)


def test_what_is_kept_of_the_work_of_a_task_beyond_its_forecast_is_not_all() -> None:
    for end_s, done in ((10.0, 0.4), (60.0, 0.95)):
        state = state_with([task("t", SCALING)])
        state.apply(TaskPreempted("t", keeps_work=True), end_s)
        (waiting,) = state.snapshot(end_s).pending
        assert waiting.done == pytest.approx(done)


def one_running(progress: float, errors: RunTimeErrors | None, **changes: Any) -> Snapshot:
    here = running(task("r", SCALING, scale=2.0, **changes), "m1", ALL, progress=progress)
    return snapshot([task("w", HUNGRY)], running=[here], now_s=40.0, run_time_errors=errors)


@given(st.floats(0.0, 5.0), st.sampled_from((None, RunTimeErrors(), RunTimeErrors.of(9, 2.0))))
def test_forecasts_take_what_is_left_and_goals_what_was_forecast(progress: float, errors: RunTimeErrors | None) -> None:
    progress = min(progress, 1.0) if errors is None else progress
    now = one_running(progress, errors)
    forecasts = forecast_cache(compact(now, HostFactory(CATALOGUE)), Settings(), HostFactory(CATALOGUE))
    fresh = one_running(0.0, None)
    before = forecast_cache(compact(fresh, HostFactory(CATALOGUE)), Settings(), HostFactory(CATALOGUE))
    told = errors or RunTimeErrors()
    length = run_length(progress, SCALING.error, told.ends, told.log_squares) if errors else 1.0

    assert forecasts.residents_alone_s(0)[0] == pytest.approx(2.0 * ALONE_S * (length - progress), abs=1e-6)
    assert Goals(forecasts, Settings()).of_running(0) == Goals(before, Settings()).of_running(0)
    assert lengths(now, in_rows(now).columns, np.array([0]), ["small"]).tolist() == pytest.approx([length])


@given(
    st.lists(ENDS, max_size=6),
    st.none() | st.builds(RunTimeErrors, st.integers(0, 9), st.integers(0, 10**9)),
    st.lists(
        st.tuples(
            any_of("", "night", "day"), any_of(SMALL.name, LARGE.name), any_of(0.5, 1.0, 2.0), any_of(0.0, 0.4, 3.0)
        ),
        max_size=6,
    ),
)
def test_what_is_estimated_of_many_is_to_the_bit_what_is_estimated_of_each(
    ends: list[tuple[str, str, float]],
    errors: RunTimeErrors | None,
    of: list[tuple[str, str, float, float]],
) -> None:
    learnt = LearntRunTimes()
    for end in ends:
        learnt = learnt.with_end(*end)
    kinds = (SMALL, LARGE)
    many = [
        running(
            task(f"t{k}", SCALING, run_class=run_class, endless=k == 3), type_name, factor=factor, progress=progress
        )
        for k, (run_class, type_name, factor, progress) in enumerate(of)
    ]
    now = snapshot(
        [],
        [machine(kind.name, kind) for kind in kinds],
        running=tuple(many),
        run_time_errors=errors,
        learnt_run_times=learnt,
    )
    columns = in_rows(now).columns

    assert lengths(now, columns, columns.machine, [kind.name for kind in kinds]).tolist() == [
        now.length(r.task, r.progress, r.machine, r.factor) for r in many
    ]


def test_an_endless_task_has_no_forecast_to_be_beyond() -> None:
    now = one_running(30.0, RunTimeErrors(), endless=True)

    assert now.estimate(now.running[0].task, 30.0).scale == 2.0
    assert lengths(now, in_rows(now).columns, np.array([0]), ["small"]).tolist() == [1.0]


def test_kept_work_is_conditioned_while_it_waits_as_while_it_ran() -> None:
    errors = RunTimeErrors.of(9, 2.0)
    now = replace(one_running(0.0, errors), running=(), pending=(task("w", SCALING, scale=2.0, done=0.9),))
    hosts = HostFactory(CATALOGUE)
    left = errors.length(0.9, SCALING.error) - 0.9

    forecasts = forecast_cache(compact(now, hosts), Settings(), hosts)
    assert left > 0.2 and forecasts.best_left_s(0, 0) == pytest.approx(2.0 * ALONE_S * left)


def test_a_task_beyond_its_forecast_is_not_about_to_end_round_after_round() -> None:
    """A long one that is beyond its forecast has more left than a short one half way: what waits goes beside that."""
    errors = RunTimeErrors.of(30, 30 * 0.16)
    long, short = (task(name, SCALING, cores=4, scale=scale) for name, scale in (("long", 3.0), ("short", 1.0)))
    busy = [running(long, "m1", progress=1.2), running(short, "m2", progress=0.5)]
    for order in (busy, busy[::-1]):
        now = snapshot([task("w", SCALING, cores=4)], machines(2), running=order, now_s=100.0, run_time_errors=errors)
        (waiting,) = flow_scheduler().decide(now).postponements
        assert waiting.planned is not None and waiting.planned.machine == "m2"


@settings(max_examples=25)
@given(rounds(), st.sampled_from((RunTimeErrors(), RunTimeErrors.of(9, 2.0))), st.data())
def test_a_snapshot_written_and_read_back_in_another_order_decides_the_same(
    drawn: Snapshot, errors: RunTimeErrors, data: st.DataObject
) -> None:
    def of_class(t: Task) -> Task:
        return replace(t, run_class=data.draw(any_of("", "night", "day")))

    here = [replace(r, task=of_class(r.task), progress=data.draw(any_of(0.3, 0.98, 1.0, 1.9))) for r in drawn.running]
    learnt = LearntRunTimes(applied=data.draw(st.booleans()))
    for run_class, machine_type, done in data.draw(st.lists(ENDS, max_size=4)):
        learnt = learnt.with_end(run_class, machine_type, done)
    waiting = tuple(map(of_class, drawn.pending))
    now = replace(drawn, running=tuple(here), pending=waiting, run_time_errors=errors, learnt_run_times=learnt)
    read = read_plain_snapshot(json.loads(json.dumps(dump_snapshot(now))))
    assert (read.run_time_errors, read.learnt_run_times) == (errors, learnt)
    assert [t.run_class for t in read.in_order().pending] == [t.run_class for t in now.in_order().pending]

    first = flow_scheduler().decide(now)
    other = flow_scheduler().decide(in_another_order(read, data.draw(st.randoms())))
    assert {p.task: p for p in first.placements} == {p.task: p for p in other.placements}
    assert {p.task: (p.planned, p.reason) for p in first.postponements} == {
        p.task: (p.planned, p.reason) for p in other.postponements
    }


@given(st.integers(0, 10**6), st.integers(0, 10**12))
def test_what_stands_in_a_file_is_what_was_known(ends: int, nano: int) -> None:
    known = RunTimeErrors(ends, nano)

    assert RunTimeErrors.of(known.ends, known.log_squares) == known


def test_ends_of_a_class_teach_its_factor_on_the_type_of_their_machine() -> None:
    """For what ran there without a break: not what kept work, was killed, or has no class."""
    kinds: list[dict[str, Any]] = [
        {"run_class": "night"},
        {"run_class": "night", "done": 0.5},
        {"run_class": "night"},
        {},
    ]
    state = state_with([task(f"t{k}", SCALING, **more) for k, more in enumerate(kinds)])
    for k in range(4):
        state.apply(TaskFinished(f"t{k}", killed=k == 2), 2.0 * ALONE_S)
    found = state.snapshot(2.0 * ALONE_S).learnt_run_times

    assert found == LearntRunTimes().with_end("night", machines(1)[0].type, 2.0)


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("known", [None, 0.5])
def test_the_stages_of_a_task_are_no_part_of_what_is_learnt(factor: float, known: float | None) -> None:
    """It is believed to be in the second while it is in the first, or the other way round, and the first is on one core."""
    state = state_with([task("t", SERIAL, run_class="night")])
    alone_s = HostFactory(CATALOGUE).host(SMALL.name).alone_s(SERIAL.name, 4, ALL)
    now_s = factor * alone_s
    state.apply(TaskFinished("t"), now_s)
    if known is not None:  # another one starts with a forecast that is off by as much
        state.apply(TaskSubmitted(task("late", SERIAL, run_class="night")), now_s)
        state.apply(TaskBound("late", "m0", 1000, 4, ALL, now_s), now_s)
        (late,) = state.snapshot(now_s).running
        assert late.factor != 1.0 or factor == 1.0
        state.apply(TaskFinished("late"), factor * (1.0 + known) * alone_s)
    (entry,) = state.snapshot(10.0 * alone_s).learnt_run_times.classes

    expected = [factor] if known is None else [factor, factor * known]
    assert entry.log_sum == pytest.approx(sum(map(math.log, expected)), abs=1e-5)


def test_neighbours_are_no_part_of_what_is_learnt() -> None:
    """Two that disturb each other and run as forecast beside each other have a factor of 1."""
    state = ClusterState(CATALOGUE)
    state.apply(MachineAdded(machines(1)[0]), 0.0)
    for name in ("a", "b"):
        state.apply(TaskSubmitted(task(name, HUNGRY, run_class="night")), 0.0)
        state.apply(TaskBound(name, "m1", 1000, 4, ALL, 0.0), 0.0)
    now = state.snapshot(0.0)
    hosts = HostFactory(CATALOGUE)
    forecasts = forecast_cache(compact(now, hosts), Settings(), hosts)
    group = forecasts.view.groups[0]
    end_s = forecast(group.host, group.residents).residents_s[0]
    for name in ("a", "b"):
        state.apply(TaskFinished(name), end_s)

    (entry,) = state.snapshot(end_s).learnt_run_times.classes
    assert entry.runs == 2 and entry.log_sum == pytest.approx(0.0, abs=1e-5)
    assert end_s > 1.05 * forecasts.residents_alone_s(0)[0]


@given(st.floats(0.0, 3.0), st.integers(0, 400))
def test_before_completions_tell_services_are_guarded_against_late_ends(done: float, ends: int) -> None:
    """What runs counts for longer than what is estimated of it, by less with each completion that was as forecast."""
    sure = task(profile=replace(SCALING, error=0.0))

    def late(ends: int) -> float:
        known = snapshot([sure], run_time_errors=RunTimeErrors(ends))
        return known.late_length(sure, done, SMALL.name, 1.0)

    assert (
        late(ends)
        >= max(snapshot([sure], run_time_errors=RunTimeErrors(ends)).length(sure, done), late(ends + 1)) - 1e-9
    )
    if done <= 0.5:
        assert late(0) > 1.5 and late(10_000) < 1.05

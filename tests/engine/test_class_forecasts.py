"""Forecasts of tasks whose class has learnt run times: those of longer or shorter tasks, on the types where it learnt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    CATALOGUE,
    LARGE,
    SCALING,
    SMALL,
    any_of,
    bound_rounds,
    flow_scheduler,
    machine,
    machines,
    rounds,
    running,
    snapshot,
    task,
)
from flowsched.cluster.cluster_state import ClusterState
from flowsched.cluster.compaction import compact
from flowsched.cluster.learnt_run_times import LearntRunTimes
from flowsched.cluster.run_time_errors import RunTimeErrors
from flowsched.cluster.running_tasks import in_rows, lengths
from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.planner.problem import problem_of
from flowsched.planner.rules import PlanRules
from flowsched.pricing.forecast_cache import forecast_cache
from flowsched.pricing.goals import Goals
from flowsched.round.cluster_arrays import ClusterArrays
from flowsched_models.runtime import HostFactory

ALONE_S = 25.0
"""Of a task of the profile ``scaling`` on all cores of the small machine."""


def learnt(run_class: str, **factors: float) -> LearntRunTimes:
    """Many runs of a class on each machine type, nearly all alike, and of others that are as forecast."""
    known = LearntRunTimes()
    for machine_type, factor in factors.items():
        for k in range(30):
            known = known.with_end(run_class, machine_type, factor * (1.02, 1.0 / 1.02)[k % 2])
            known = known.with_end(f"other-{k}", machine_type, 1.0)
    return known


def factor_of(known: LearntRunTimes, machine_type: str | None = None) -> float:
    found = known.of("night", machine_type)
    assert found is not None
    return found.factor


@settings(max_examples=40)
@given(st.one_of(rounds(), bound_rounds()), any_of(0.05, 20.0))
def test_a_factor_of_all_types_is_a_longer_task(drawn: Snapshot, factor: float) -> None:
    """Until it has begun; then what is known of its spread counts too."""
    known = LearntRunTimes().with_end("night", "small", factor).with_end("night", "large", factor)
    applied = factor_of(known)  # at its bound, so that it is the same for all types
    assert {factor_of(known, kind) for kind in ("small", "large")} == {applied} and applied in (0.5, 2.0)
    begun = [replace(r, progress=0.0) for r in drawn.running]
    same = replace(
        drawn,
        running=tuple(replace(r, task=replace(r.task, run_class="night")) for r in begun),
        pending=tuple(replace(t, run_class="night") for t in drawn.pending),
        learnt_run_times=known,
    )

    def longer(t: Task) -> Task:
        return t if t.endless else replace(t, scale=t.scale * applied)

    scaled = replace(
        drawn,
        running=tuple(replace(r, task=longer(r.task)) for r in begun),
        pending=tuple(map(longer, drawn.pending)),
    )
    first, other = flow_scheduler().decide(same), flow_scheduler().decide(scaled)
    assert first.placements == other.placements
    assert tuple(first.postponements) == tuple(other.postponements)
    assert first.look_again_s == other.look_again_s

    rough, rough_other = (ClusterArrays(s, HostFactory(CATALOGUE), Settings()) for s in (same, scaled))
    assert np.allclose(rough.running, rough_other.running, rtol=1e-12)
    assert rough.work_s == pytest.approx(rough_other.work_s, rel=1e-12)
    for t, long in zip(same.pending, scaled.pending, strict=True):
        assert rough.best_alone_s(t) * t.scale == pytest.approx(rough_other.best_alone_s(long) * long.scale, rel=1e-12)


@given(any_of(0.0, 0.4, 1.1, 3.0), any_of(1.0, 1.6, 0.7), st.booleans())
def test_what_runs_is_conditioned_on_its_class_and_keeps_the_goal_of_that(
    progress: float, forecast: float, errors: bool
) -> None:
    """``forecast``: the factor that was known of its class when it started."""
    known = learnt("night", small=1.6)
    here = running(task("r", run_class="night"), "m1", (0, 1, 2, 3), progress=progress / forecast, factor=forecast)
    told = {"run_time_errors": RunTimeErrors.of(9, 2.0) if errors else None}
    now = replace(snapshot([task("w", run_class="night")], running=[here], learnt_run_times=known), **told)
    hosts = HostFactory(CATALOGUE)
    forecasts = forecast_cache(compact(now, hosts), Settings(), hosts)
    goals = Goals(forecasts, Settings())
    factor = factor_of(known, "small")
    expected = known.of("night", "small")
    assert expected is not None and expected.spread < 0.1
    length = expected.length(progress)

    assert forecasts.best_left_s(0, 0) == pytest.approx(ALONE_S * factor)
    assert forecasts.residents_alone_s(0)[0] == pytest.approx(ALONE_S * (length - progress), abs=1e-6)
    assert lengths(now, in_rows(now).columns, np.array([0]), ["small"]).tolist() == pytest.approx([length / forecast])
    rough = ClusterArrays(now, hosts, Settings())
    assert rough.running[0, 0] == pytest.approx(ALONE_S * (length - progress), abs=1e-6)
    assert length >= progress and (progress > 1.0 or length == pytest.approx(factor, rel=0.01))
    assert goals.running[0, 1:].tolist() == [goals.tau[0], goals.weight[0]]


def test_goals_of_what_runs_follow_what_is_learnt_while_nothing_comes_or_goes() -> None:
    """They are kept from round to round for what runs on a machine, and for all that is known of the classes there."""
    night = task("r", run_class="night")
    runs = [running(night, "m1", (0, 1, 2, 3)), running(task("e", run_class="night", endless=True), "m2", (0, 1))]
    cluster = (machine("m1", SMALL), machine("m2", LARGE))
    state = ClusterState.of(snapshot([task("w", run_class="night")], cluster, running=runs))
    hosts = HostFactory(CATALOGUE)

    def goals(known: LearntRunTimes, hosts: HostFactory) -> list[list[float]]:
        now = replace(state.snapshot(0.0), learnt_run_times=known)
        found: list[list[float]] = Goals(
            forecast_cache(compact(now, hosts), Settings(), hosts), Settings()
        ).running.tolist()
        return found

    slow, slower = learnt("night", small=1.6, large=1.6), learnt("night", small=3.0, large=3.0)
    series = [slow, slower, LearntRunTimes(), replace(slow, applied=False), slow]
    found = [goals(known, hosts) for known in series]
    assert found == [goals(known, HostFactory(CATALOGUE)) for known in series]
    (long, first), (same, second), (_, third), (_, observed), (_, last) = found
    assert third[1] < first[1] < second[1] and observed == third and last == first
    assert long == same, "a task without an end has no factor"


RUNS = st.tuples(
    st.sampled_from(["", "night", "day"]),
    st.sampled_from(["m1", "m2"]),
    any_of(0.0, 0.4, 1.1, 3.0),
    any_of(1.0, 1.6, 0.7),
    st.booleans(),
)


@given(st.lists(RUNS, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_lengths_of_all_that_runs_are_those_of_each(
    drawn: list[tuple[str, str, float, float, bool]], errors: bool, applied: bool
) -> None:
    """Also where classes and machine types are numbers of a table that a cluster's state keeps."""
    cluster = (machine("m1", SMALL), machine("m2", LARGE))
    known = replace(learnt("night", small=1.6, large=0.8), applied=applied)
    runs = [
        running(
            task(f"r{k}", run_class=run_class, endless=endless, cores=0.25),
            name,
            (0,),
            progress=done,
            factor=factor,
            width_milli=250,
        )
        for k, (run_class, name, done, factor, endless) in enumerate(drawn)
    ]
    now = snapshot([], cluster, running=runs, learnt_run_times=known)
    now = replace(now, run_time_errors=RunTimeErrors.of(9, 2.0) if errors else None)
    types = {"m1": "small", "m2": "large"}
    for seen in (now, ClusterState.of(now).snapshot(now.now_s)):
        columns = in_rows(seen).columns
        type_of = np.array([("small", "large").index(seen.machines[at].type) for at in columns.machine.tolist()])
        found = lengths(seen, columns, type_of, ("small", "large")).tolist()
        one_by_one = [seen.length(r.task, r.progress, types[r.machine], r.factor) for r in seen.running]
        assert found == pytest.approx(one_by_one, rel=1e-12)
        assert [in_rows(seen).class_names[k] for k in columns.run_class.tolist()] == [
            "" if r.task.endless else r.task.run_class for r in seen.running
        ]
        assert columns.factor.tolist() == [r.factor for r in seen.running]


def test_a_task_goes_where_its_class_was_quicker() -> None:
    """Otherwise it takes the faster type."""
    cluster = (machine("slow", SMALL), machine("quick", LARGE))
    waits = task("w", cores=4, widths_milli=(4000,), run_class="night")
    for known, name in ((LearntRunTimes(), "quick"), (learnt("night", small=0.6, large=2.0), "slow")):
        now = snapshot([waits], cluster, learnt_run_times=known)
        assert [p.machine for p in flow_scheduler().decide(now).placements] == [name]
        rough = ClusterArrays(now, HostFactory(CATALOGUE), Settings())
        best = int((rough.profiles.alone_s[rough.jobs[SCALING.name]] * rough.factors(waits)).argmin())
        assert rough.names[rough.shape.tolist().index(best)] == name


def test_estimates_that_are_not_applied_and_those_of_other_classes_change_nothing() -> None:
    waits = [task(f"w{k}", cores=4, scale=1.0 + k, run_class=("night", "day")[k % 2]) for k in range(4)]
    known = learnt("night", small=2.0)
    plain = flow_scheduler().decide(snapshot(waits, machines(1)))
    shown = flow_scheduler().decide(
        snapshot(waits, machines(1), learnt_run_times=replace(learnt("night", small=2.0), applied=False))
    )
    others = flow_scheduler().decide(
        snapshot([replace(t, run_class="day") for t in waits], machines(1), learnt_run_times=known)
    )
    assert shown.placements == plain.placements == others.placements
    assert tuple(shown.postponements) == tuple(plain.postponements) == tuple(others.postponements)


def test_a_plan_takes_the_factor_of_the_class() -> None:
    known = learnt("night", small=2.0)
    here = running(task("r", run_class="night"), "m1", (0, 1), progress=0.0)
    problem = problem_of(snapshot([task("w", run_class="night")], running=[here], learnt_run_times=known), PlanRules())

    assert [job.task.scale for job in problem.jobs] == [factor_of(known), factor_of(known, "small")]

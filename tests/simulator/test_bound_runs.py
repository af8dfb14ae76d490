"""Whole runs with relations, task groups and devices: every scheduler keeps them, round after round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    SERIAL,
    SINGLE,
    any_of,
    can_be_bound_in_some_order,
    catalogue,
    few_idle_rounds,
    flow_scheduler,
    machine,
    relations,
    snapshot,
    task,
)
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.snapshot import Snapshot, StartDelay
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import Simulation

QUICK: dict[str, Any] = {"exact_limit": 0, "goal_steps": 2, "improvement_forecasts": 100, "pricings": 500}

idle_rounds = few_idle_rounds(70)
"""Until tasks are due after the usual ten minutes, and some more."""


@dataclass
class Watched:
    """A scheduler whose every decision is held against the relations and groups of its snapshot."""

    inner: Scheduler
    name: str = "watched"
    rounds: list[tuple[Snapshot, Decisions]] = field(default_factory=list)

    def decide(self, now: Snapshot) -> Decisions:
        decisions = self.inner.decide(now)
        self.rounds.append((now, decisions))
        tasks = {t.name: t for t in now.pending}
        placed = [(tasks[p.task], p.machine) for p in decisions.placements]
        there = [(r.task, r.machine) for r in now.running]
        assert can_be_bound_in_some_order(now.relations, there, placed, now.machines)
        assert len(decisions.placements) + len(decisions.postponements) == len(now.pending)
        runs, starts = Counter(t.group for t, _ in there), Counter(t.group for t, _ in placed)
        for group in now.task_groups:
            assert starts[group.name] == 0 or runs[group.name] + starts[group.name] >= group.minimum
        return decisions


def schedulers() -> Iterator[Scheduler]:
    yield flow_scheduler(**QUICK)
    for name, kind in BASELINES.items():
        yield kind(Granting("declared", "own"), 0)
        if name == "fcfs":
            yield kind(Granting(1, "shared"), 0)


@st.composite
def bound_scenarios(draw: st.DrawFn) -> Scenario:
    """A few machines in zones, and jobs that come over time; every group is as large as its minimum or larger."""
    found = tuple(
        machine(
            f"m{k}",
            labels=() if (zone := draw(any_of("a", "b", None))) is None else (("zone", zone),),
            resources=draw(any_of((), (("device", 2),))),
        )
        for k in range(1, draw(st.integers(1, 4)) + 1)
    )
    known = tuple(draw(relations(f"relation-{k}")) for k in range(2))
    names = st.lists(st.sampled_from([r.name for r in known]), unique=True, max_size=2).map(tuple)
    jobs = []
    for k in range(draw(st.integers(1, 7))):
        profile = draw(st.sampled_from((SINGLE, SERIAL)))
        jobs.append(
            task(
                f"t{k}",
                profile,
                cores=draw(any_of(1, 2, 4)),
                widths_milli=(1000, 2000),
                submit_s=float(draw(any_of(0, 0, 5, 30))),
                holds=draw(names),
                joins=draw(names),
                resources=(("device", 1),) if draw(st.integers(0, 3)) == 0 else (),
                group=draw(any_of(None, "group-0", "group-1")),
            )
        )
    count = Counter(t.group for t in jobs)
    groups = tuple(
        TaskGroup(name, draw(st.integers(1, count[name])), draw(any_of(None, 20.0)))
        for name in ("group-0", "group-1")
        if count[name]
    )
    return Scenario(
        "bound",
        "",
        catalogue((SINGLE, SERIAL)),
        found,
        (),
        tuple(jobs),
        start_delay=StartDelay(1.0, 3.0),
        relations=known,
        task_groups=groups,
    )


@settings(max_examples=25)
@given(bound_scenarios())
def test_no_scheduler_breaks_a_relation_or_splits_a_group_in_a_whole_run(scenario: Scenario) -> None:
    for scheduler in schedulers():
        # A machine that were overcommitted, in anything, would stop the run with an error.
        run = Simulation(scenario, Watched(scheduler)).run()
        assert all(j.end_s is not None or j.reason for j in run.jobs)


def gangs(**changes: Any) -> Scenario:
    """Two groups of four, of which one at a time has room, beside a narrow job."""
    jobs = [
        task(f"{name}-{k}", SINGLE, cores=4, widths_milli=(4000,), group=name)
        for k in range(4)
        for name in ("one", "two")
    ]
    values: dict[str, Any] = {
        "machines": tuple(machine(f"m{k}", labels=(("zone", "ab"[k % 2]),)) for k in range(5)),
        "tasks": (*jobs, task("narrow", SINGLE, cores=1, widths_milli=(1000,))),
        "task_groups": (TaskGroup("one", 4), TaskGroup("two", 4)),
    }
    return Scenario("gangs", "", catalogue((SINGLE,)), services=(), **(values | changes))


@pytest.mark.parametrize("scheduler", list(schedulers()), ids=lambda s: s.name)
def test_groups_that_compete_run_one_after_the_other(scheduler: Scheduler) -> None:
    run = Simulation(gangs(), Watched(scheduler)).run()

    assert all(j.end_s is not None for j in run.jobs)
    for name in ("one", "two"):
        assert len({j.bound_s for j in run.jobs if j.job.startswith(name)}) == 1


@pytest.mark.parametrize("scheduler", list(schedulers()), ids=lambda s: s.name)
def test_members_that_come_once_others_have_ended_are_not_kept_waiting_for_them(scheduler: Scheduler) -> None:
    late = [
        task(f"t{k}", SINGLE, cores=4, widths_milli=(4000,), group="one", submit_s=500.0 * (k == 2)) for k in range(3)
    ]

    run = Simulation(gangs(tasks=tuple(late), task_groups=(TaskGroup("one", 2),)), Watched(scheduler)).run()

    assert [j.bound_s for j in run.jobs] == [0.0, 0.0, 500.0]


@pytest.mark.parametrize("scheduler", list(schedulers()), ids=lambda s: s.name)
def test_a_group_spreads_over_zones(scheduler: Scheduler) -> None:
    spread = Relation("even", RelationKind.SPREAD, "zone")
    jobs = [
        task(f"one-{k}", SINGLE, cores=1, widths_milli=(1000,), group="one", holds=("even",), joins=("even",))
        for k in range(4)
    ]

    run = Simulation(
        gangs(tasks=tuple(jobs), task_groups=(TaskGroup("one", 4),), relations=(spread,)), Watched(scheduler)
    ).run()

    assert {j.bound_s for j in run.jobs} == {0.0}
    assert Counter(int(str(j.machine)[1:]) % 2 for j in run.jobs) == {0: 2, 1: 2}


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_say_which_relation_or_device_is_missing(name: str) -> None:
    scheduler = BASELINES[name](Granting("declared", "shared"), 0)
    apart = Relation("r", RelationKind.APART, MACHINE)
    two = [task(f"t{k}", SINGLE, cores=1, holds=("r",), joins=("r",)) for k in (1, 2)]
    now = snapshot(two, relations=(apart,), catalogue=catalogue((SINGLE,)))
    (left,) = scheduler.decide(now).postponements
    assert "relation r: no matching task in the same machine (anti-affinity)" in left.reason
    needs = replace(two[0], resources=(("gpu", 1),), holds=(), joins=())
    (left,) = scheduler.decide(replace(now, pending=(needs,))).postponements
    assert left.reason == "needs 1 gpu on one machine; none of 1 offers that even when idle"
    has = replace(now, machines=(machine(resources=(("gpu", 1),)),))
    (left,) = scheduler.decide(replace(has, pending=(needs, replace(needs, name="t2")))).postponements
    assert "needs 1 gpu on one machine" in left.reason

"""Reservations: who may start before whom, and what was promised is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CATALOGUE, HUNGRY, lasting, machine, machines, running, snapshot, task
from flowsched.cluster.decision import Decisions
from flowsched.cluster.snapshot import Snapshot
from flowsched.relations.relation import MACHINE, Relation, RelationKind, TaskGroup
from flowsched_simulator.baselines import Granting
from flowsched_simulator.baselines.availability import Availability, Ends
from flowsched_simulator.baselines.expectation import left_s, told_s
from flowsched_simulator.baselines.registry import BASELINES
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.simulation import Simulation

OWN = Granting("declared", "own")


def decide(name: str, view: Snapshot) -> Decisions:
    return BASELINES[name](OWN, 0).decide(view)


def started(name: str, view: Snapshot) -> dict[str, str]:
    return {p.task: p.machine for p in decide(name, view).placements}


def why(name: str, view: Snapshot) -> dict[str, str]:
    return {p.task: p.reason for p in decide(name, view).postponements}


BUSY = running(lasting("busy", 2, 50.0))
"""Two of four cores until 50 s."""


@pytest.mark.parametrize("name", ["easy", "conservative"])
def test_what_ends_before_the_reservation_may_start(name: str) -> None:
    view = snapshot(
        [lasting("head", 4, 10.0), lasting("short", 1, 50.0, 1), lasting("long", 1, 51.0, 2)], running=[BUSY]
    )

    assert started(name, view) == {"short": "m1"}
    reasons = why(name, view)
    assert reasons["head"] == "needs 4 cores on one machine; m1 has 2 free; reserved on m1 at 50.0 s"
    assert reasons["long"].startswith(
        "would fit on 1 machine now, and delay a reservation there: first of all head (reserved on m1 at 50.0 s)"
    )


@pytest.mark.parametrize("name", ["easy", "conservative"])
def test_what_leaves_the_reserved_cores_free_may_run_longer(name: str) -> None:
    view = snapshot(
        [lasting("head", 3, 10.0), lasting("long", 1, 500.0, 1), lasting("more", 1, 500.0, 2)], running=[BUSY]
    )

    assert started(name, view) == {"long": "m1"}


def test_easy_may_delay_the_second_that_waits_and_conservative_does_not() -> None:
    # `second` could start at 60 s beside nothing; `filler` on the two free cores until 65 s delays it, but not `head`.
    waiting = [
        lasting("head", 2, 10.0, machines=("m2",)),
        lasting("second", 4, 10.0, 1, machines=("m1",)),
        lasting("filler", 2, 65.0, 2, machines=("m1",)),
    ]
    view = snapshot(waiting, machines(2), running=[BUSY, running(lasting("other", 4, 20.0), "m2")])

    assert started("easy", view) == {"filler": "m1"}
    assert started("conservative", view) == {}
    assert "reserved" not in why("easy", view)["second"]
    assert "reserved on m1 at 50.0 s" in why("conservative", view)["second"]


def test_a_reservation_is_where_the_head_starts_first() -> None:
    there = [
        running(lasting("a", 4, 90.0), "m1"),
        running(lasting("b", 4, 30.0), "m2"),
        running(lasting("c", 4, 60.0), "m3"),
    ]
    view = snapshot([lasting("head", 4, 10.0), lasting("next", 1, 1.0, 1)], machines(3), running=there)

    assert "reserved on m2 at 30.0 s" in why("easy", view)["head"]


@pytest.mark.parametrize("what", ["memory", "device"])
def test_memory_and_devices_are_reserved_too(what: str) -> None:
    memory = {"memory_mib": 9000} if what == "memory" else {"memory_mib": 10, "resources": (("gpu", 1),)}
    waiting = [lasting("head", 1, 10.0, **memory), lasting("long", 1, 500.0, 1, **memory), lasting("free", 1, 500.0, 2)]
    waiting[2] = replace(waiting[2], memory_mib=10)
    cluster = [machine(resources=(("gpu", 1),))]
    view = snapshot(waiting, cluster, running=[running(replace(lasting("busy", 1, 50.0), **memory))])

    assert started("easy", view) == {"free": "m1"}
    assert "reserved on m1 at 50.0 s" in why("easy", view)["head"]


def test_a_task_group_has_one_reservation_for_all_that_start_together() -> None:
    gang = [lasting(f"g{k}", 3, 10.0, group="gang") for k in range(2)]
    view = snapshot(
        [*gang, lasting("short", 1, 40.0, 1), lasting("long", 3, 200.0, 2)],
        machines(2),
        running=[running(lasting("a", 3, 50.0), "m1")],
        task_groups=(TaskGroup("gang", 2),),
    )

    # m2 has room for `long`, and is promised to the second member of the group.
    assert started("easy", view) == {"short": "m1"}


def test_a_task_that_a_relation_keeps_waiting_holds_no_machine() -> None:
    apart = Relation("apart", RelationKind.APART, MACHINE)
    head = lasting("head", 1, 10.0, holds=("apart",), joins=("apart",))
    there = running(replace(lasting("there", 1, 90.0), joins=("apart",)))
    view = snapshot([head, lasting("next", 3, 500.0, 1)], running=[there], relations=(apart,))

    assert started("easy", view) == {"next": "m1"}


def test_estimates_count_from_the_start_and_are_corrected_once_they_have_passed() -> None:
    late = running(lasting("late", 4, 100.0), progress=0.2, start_s=10.0)
    small = CATALOGUE.machine_types["small"]

    told = told_s(CATALOGUE, late.task, small, late.cores)
    assert left_s(told, late.start_s, 30.0) == pytest.approx(80.0)
    assert left_s(told, late.start_s, 110.0) == left_s(told, late.start_s, 500.0) == pytest.approx(5.0)
    endless = told_s(CATALOGUE, replace(late.task, endless=True), small, late.cores)
    assert left_s(endless, late.start_s, 30.0) == np.inf


@st.composite
def streams(draw: st.DrawFn) -> Scenario:
    """Jobs whose estimates are exact: they share nothing that could slow them down."""
    at, found = 0.0, []
    for k in range(draw(st.integers(2, 9))):
        at += draw(st.sampled_from((0.0, 0.0, 5.0, 30.0)))
        cores = draw(st.integers(1, 4))
        one = task(f"job-{k}", HUNGRY, cores=cores, scale=draw(st.sampled_from((0.1, 0.5, 1.0))), submit_s=at)
        found.append(replace(one, memory_mib=draw(st.sampled_from((10, 6000)))))
    calm = replace(HUNGRY, sensitivity=0.0, pressure=0.0)
    quiet = replace(CATALOGUE, jobs={**CATALOGUE.jobs, HUNGRY.name: calm})
    return Scenario("drawn", "", quiet, machines(draw(st.integers(1, 2))), (), tuple(found))


@settings(max_examples=60)
@given(streams())
def test_with_exact_estimates_nothing_starts_later_than_conservative_backfilling_first_promised(of: Scenario) -> None:
    promised: dict[str, float] = {}

    class Listening(BASELINES["conservative"]):  # type: ignore[misc]
        def decide(self, snapshot: Snapshot) -> Decisions:
            decisions = super().decide(snapshot)
            for p in decisions.postponements:
                at = p.reason.rpartition(" at ")[2].removesuffix(" s")
                promised.setdefault(p.task, float(at))
            return decisions

    run = Simulation(of, Listening(OWN)).run()
    assert all(j.start_s is not None and j.start_s <= promised.get(j.job, np.inf) + 0.06 for j in run.jobs)


@settings(max_examples=80)
@given(st.data())
def test_availability_never_promises_what_is_taken(data: st.DataObject) -> None:
    """Held against a count of every second."""
    count, horizon = data.draw(st.integers(1, 3)), 80
    free = np.array([[data.draw(st.integers(0, 4))] for _ in range(count)])
    units = st.tuples(st.integers(0, count - 1), st.integers(1, 3), st.integers(1, 12))
    ends = [(row, np.array([n]), float(at)) for row, n, at in data.draw(st.lists(units, max_size=5))]
    seconds = np.array([[free[m, 0] + sum(int(n[0]) for r, n, at in ends if r == m and at <= t) for m in range(count)]
                        for t in range(horizon)])  # fmt: skip
    known, now = Availability(0.0, free, Ends.of(ends, 1)), 0
    for need, run_s in data.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=6)):
        now += data.draw(st.sampled_from((0, 0, 1, 4)))
        known.advance(float(now))
        can = known.feasible(np.array([need]), np.full(count, float(run_s)))
        first = {m: min((t for t in range(now, horizon - 10) if (seconds[t : t + run_s, m] >= need).all()), default=None)
                 for m in range(count)}  # fmt: skip
        for m in range(count):
            found = known.began[can[:, m], m]
            assert (float(found[0]) if len(found) else None) == first[m]
        best = min(((at, m) for m, at in first.items() if at is not None), default=None)
        assert known.first(np.array([need]), np.full(count, float(run_s))) == best
        if best is not None:
            at, row = best
            known.take(row, np.array([need]), float(at), float(run_s))
            seconds[at : at + run_s, row] -= need

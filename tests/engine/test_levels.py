"""Priorities are levels: what a lower one has reserved is free to a higher one, and binds its own and those below."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import SINGLE, catalogue, flow_scheduler, machine, machines, running, snapshot, task
from flowsched.cluster.decision import Decisions, Scheduler
from flowsched.cluster.snapshot import Reservation, Snapshot, Task
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.pricing.linear.policies.registry import COST_MODELS
from flowsched.relations.relation import TaskGroup
from flowsched.round.linear.network_scheduler import NetworkScheduler
from flowsched.solvers import make_solver

CATALOGUE = catalogue((SINGLE,))
NOW_S = 1000.0


def wants(name: str, cores: int, submit_s: float = NOW_S, seconds: float = 50.0, **changes: Any) -> Task:
    width = (1000 * cores,)
    return task(name, SINGLE, widths_milli=width, submit_s=submit_s, scale=seconds / SINGLE.work_s, **changes)


def moment(pending: list[Task], busy: dict[str, tuple[int, float]], **changes: Any) -> Snapshot:
    """Small machines, each with a task of so many cores for so many seconds from now."""
    there = [
        running(wants(f"on-{name}", cores, 0.0, NOW_S + left_s, request_milli=1000 * cores), name)
        for name, (cores, left_s) in busy.items()
    ]
    names = [machine(name) for name in busy]
    return snapshot(pending, names, running=there, now_s=NOW_S, catalogue=CATALOGUE, **changes)


def starts(decisions: Decisions) -> dict[str, str]:
    return {p.task: p.machine for p in decisions.placements}


def held(decisions: Decisions) -> set[tuple[str, str]]:
    return {(r.task, r.machine) for r in decisions.reservations}


def test_a_reservation_binds_its_own_level_and_lower_ones() -> None:
    low = wants("low", 4, 0.0)
    for priority, comes in ((5, True), (0, False), (-5, False)):
        other = wants("other", 3, seconds=500.0, priority=priority)
        decisions = flow_scheduler().decide(moment([low, other], {"m1": (1, 300.0)}))
        assert starts(decisions) == ({"other": "m1"} if comes else {})
        assert held(decisions) == {("low", "m1")}


def test_what_a_higher_level_leaves_is_for_those_that_are_gone_in_time() -> None:
    pending = [wants("low", 4, 0.0), wants("high", 1, seconds=100.0, priority=5)]
    pending += [wants("short", 1, seconds=50.0), wants("long", 1, seconds=4000.0)]
    kept = (Reservation("low", "m1", 4000, NOW_S + 3000.0),)
    decisions = flow_scheduler().decide(moment(pending, {"m1": (1, 300.0)}, reservations=kept))
    assert decisions.reservations == kept
    assert starts(decisions).keys() == {"high", "short"}


def test_with_aging_that_crosses_priorities_it_binds_all() -> None:
    pending = [wants("low", 4, 0.0), wants("high", 3, seconds=500.0, priority=5)]
    decisions = flow_scheduler(aging_crosses_priority=True).decide(moment(pending, {"m1": (1, 300.0)}))
    assert starts(decisions) == {}
    assert held(decisions) == {("low", "m1")}


def test_every_level_has_reservations_of_its_own() -> None:
    pending = [wants("low", 4, 0.0), wants("high", 4, 100.0, priority=5)]
    busy = {"m1": (1, 300.0), "m2": (1, 500.0)}
    first = flow_scheduler().decide(moment(pending, busy))
    assert held(first) == {("high", "m1"), ("low", "m2")}
    # The lower one keeps its own, though it came to its turn before.
    before = flow_scheduler().decide(moment(pending[:1], busy)).reservations
    both = flow_scheduler().decide(moment(pending, busy, reservations=before))
    assert held(both) == {("high", "m1"), ("low", "m2")}


def test_an_overdue_gang_gives_way_to_a_higher_level() -> None:
    gang = [wants(f"g{i}", 4, 0.0, group="ring") for i in range(2)]
    high = wants("high", 4, priority=5)
    groups = (TaskGroup("ring", 2),)
    idle = snapshot([*gang, high], machines(2), now_s=NOW_S, catalogue=CATALOGUE, task_groups=groups)
    decisions = flow_scheduler().decide(idle)
    assert starts(decisions).keys() == {"high"}
    assert {task for task, _ in held(decisions)} == {"g0", "g1"}
    assert starts(flow_scheduler().decide(replace(idle, pending=tuple(gang)))).keys() == {"g0", "g1"}


@pytest.mark.parametrize("priorities", [(5, 1), (1, 5), (2, 1)])
def test_a_gang_is_served_with_the_highest_priority_of_its_members(priorities: tuple[int, int]) -> None:
    """Whichever prices decide its places: none of its members waits behind a task of lower priority."""
    gang = [wants(f"g{i}", 2, priority=p, group="ring") for i, p in enumerate(priorities)]
    between = wants("between", 4, priority=3)
    groups = (TaskGroup("ring", 2),)
    one = snapshot([between, *gang], machines(1), now_s=NOW_S, catalogue=CATALOGUE, task_groups=groups)
    first = {"g0", "g1"} if max(priorities) > 3 else {"between"}
    for scheduler in schedulers():
        assert starts(scheduler.decide(one)).keys() == first


def test_a_lower_level_is_not_ahead_of_a_higher_one() -> None:
    pending = [wants("low", 4, 0.0), wants("high", 4, priority=5)]
    decisions = flow_scheduler().decide(moment(pending, {"m1": (1, 300.0)}))
    assert decisions.record is not None
    recorded = RecordView(decisions.record)
    assert explain(recorded, "high").facts["bound"]["ahead"] == []
    assert explain(recorded, "low").facts["bound"]["ahead"] == ["high"]


@st.composite
def moments(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """A moment with tasks of two levels, of which the lower ones are overdue; and the same moment without these."""
    busy = {f"m{k}": (draw(st.integers(1, 4)), draw(st.sampled_from((20.0, 200.0, 900.0)))) for k in range(3)}
    some = {name: there for name, there in busy.items() if name == "m0" or draw(st.booleans())}
    sizes = st.lists(st.tuples(st.integers(1, 4), st.sampled_from((30.0, 300.0))), min_size=1, max_size=3)
    low = [wants(f"low{i}", cores, float(i), s) for i, (cores, s) in enumerate(draw(sizes))]
    gang = tuple(replace(t, group="ring") for t in low) if len(low) > 1 and draw(st.booleans()) else tuple(low)
    high = [
        wants(f"high{i}", cores, draw(st.sampled_from((100.0, NOW_S))), s, priority=5)
        for i, (cores, s) in enumerate(draw(sizes))
    ]
    groups = (TaskGroup("ring", len(low)),)
    alone = moment(list(gang), some, task_groups=groups)
    reserved = flow_scheduler(exact_limit=0).decide(alone).reservations
    whole = replace(alone, pending=(*gang, *high), reservations=reserved)
    return whole, moment(high, some)


def schedulers() -> list[Scheduler]:
    models = [NetworkScheduler(COST_MODELS[name](), make_solver("ortools")) for name in ("trivial", "quincy")]
    return [flow_scheduler(exact_limit=0), *models]


@settings(max_examples=15, deadline=None)
@given(moments())
def test_what_lower_levels_wait_for_changes_nothing_for_the_highest(both: tuple[Snapshot, Snapshot]) -> None:
    whole, high = both
    for scheduler, alone in zip(schedulers(), schedulers(), strict=True):
        found = starts(scheduler.decide(whole))
        assert {t: m for t, m in found.items() if t.startswith("high")} == starts(alone.decide(high))

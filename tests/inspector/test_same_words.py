"""What forecast prices and those of cost models say of the same facts: the same, in the same words and the same order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from builders import machine, running, snapshot, task
from flowsched.cluster.snapshot import Snapshot, Task
from flowsched.inspector.explanation import explain
from flowsched.inspector.record_view import RecordView
from flowsched.pricing.linear.policies import COST_MODELS
from flowsched.relations.relation import TaskGroup
from flowsched.round.linear.choice import chosen
from flowsched.round.linear.network_scheduler import solve_network_round
from flowsched.round.scheduler import solve
from flowsched_models.document import InputError

MODELS = [name for name in COST_MODELS if not COST_MODELS.package(name)]


def of_cores(name: str, cores: int, **more: Any) -> Task:
    return task(name, cores=cores, widths_milli=(1000 * cores,), **more)


def crowded() -> Snapshot:
    """Two small machines, one of them taken; what waits is too large, has waited for long, or is a gang."""
    pending = [
        of_cores("huge", 16, submit_s=690.0),
        of_cores("late", 4, submit_s=-700.0, rounds_waited=4),
        of_cores("later", 4, submit_s=600.0, rounds_waited=2),
        *(of_cores(f"g{k}", 3, submit_s=695.0, group="g") for k in (1, 2)),
    ]
    there = [
        running(of_cores(name, cores, submit_s=600.0), on, (0, 1, 2, 3), bound_s=640.0, start_s=640.0)
        for name, cores, on in (("r", 4, "m1"), ("q", 2, "m2"))
    ]
    return snapshot(
        pending, [machine("m1"), machine("m2")], running=there, now_s=700.0, task_groups=(TaskGroup("g", 2),)
    )


def recorded_by(policy: str) -> RecordView:
    found = crowded()
    solved = solve(found) if policy == "flow" else solve_network_round(found, chosen(policy))
    assert solved.record is not None
    return RecordView(solved.record, "round.npz")


@pytest.fixture(scope="module")
def by_flow() -> RecordView:
    return recorded_by("flow")


@pytest.mark.parametrize("policy", MODELS)
def test_a_task_that_waits(policy: str, by_flow: RecordView) -> None:
    recorded = recorded_by(policy)
    for name in ("huge", "late", "later", "g1"):
        theirs, ours = (explain(each, name).lines() for each in (by_flow, recorded))
        about = (
            "0/2 nodes",
            "  Insufficient",
            "What would help",
            "It has waited",
            "There is no bound",
            "It is overdue",
        )
        shared = [line for line in theirs if line.startswith(about)]
        assert len(shared) > 2
        found = [line for line in ours if line.startswith(about)]
        assert found == shared
        assert all(ours.index(a) < ours.index(b) for a, b in pairwise(found))
        if explain(by_flow, name).plain()["cause"] != "planned":  # plans are made at forecast prices alone
            assert ours[0] == theirs[0]
    facts = explain(recorded, "later").plain()
    assert (facts["rounds_waited"], facts["bound"]["ahead"]) == (3, ["late"])


@pytest.mark.parametrize("policy", MODELS)
def test_a_task_that_runs(policy: str, by_flow: RecordView) -> None:
    recorded = recorded_by(policy)
    theirs, ours = (explain(each, "r").lines() for each in (by_flow, recorded))
    assert theirs[0] == ours[0]
    assert ours[0].startswith("r runs on m1 (width 4 cores, ") and "on cores 0-3), bound 60 s ago. " in ours[0]
    assert ours[1:] == [f"More cannot be said: rounds of {policy} make no forecasts of what runs."]


@pytest.mark.parametrize("policy", MODELS)
@pytest.mark.parametrize("name", ["nothing", "m1"])
def test_what_is_no_task(policy: str, name: str, by_flow: RecordView) -> None:
    said = []
    for each in (by_flow, recorded_by(policy)):
        with pytest.raises(InputError) as error:
            explain(each, name)
        (problem,) = error.value.problems
        said.append((problem.message, sorted(problem.help.removeprefix("known: ").split(", "))))
    assert said[0] == said[1]

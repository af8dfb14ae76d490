"""Tasks with a measured profile beside plain ones in whole runs: each makes room for the other, and they start together."""

from __future__ import annotations

from typing import Any

import pytest

from flowsched.cluster.settings import Settings
from flowsched.pricing.linear.policies.registry import COST_MODELS
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

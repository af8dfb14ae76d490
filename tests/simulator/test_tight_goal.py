"""The bundled scenario in which one kind of job breaks memcached's goal: why its goal is what it is, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowsched.cluster.settings import Settings
from flowsched_models.runtime import HostFactory
from flowsched_simulator import EngineOptions, Scenario, load_scenario, simulate
from flowsched_simulator.arrivals import Arrivals
from flowsched_simulator.policies import POLICIES
from flowsched_simulator.run import Run


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario("memcached-tight-goal")


@pytest.fixture(scope="module")
def runs(scenario: Scenario) -> dict[str, Run]:
    hosts, engine = HostFactory(scenario.catalogue), EngineOptions(Settings(exact_limit=0))
    return {policy: simulate(scenario, policy, hosts=hosts, engine=engine) for policy in POLICIES}


@pytest.mark.parametrize("machine", ["node-b1-4core", "node-c2-8core"])
def test_the_goal_lies_between_radix_and_all_others(scenario: Scenario, machine: str) -> None:
    worst = {}
    for task in scenario.tasks:
        alone = replace(scenario, tasks=(replace(task, machines=(machine,)),), arrivals=Arrivals())
        worst[task.profile] = simulate(alone, "all-at-once").worst_p95_us or 0.0
    assert len(worst) == 7
    assert worst.pop("radix") > 550 > 520 > max(worst.values())


def test_flow_keeps_the_goal_and_is_faster_than_every_rule_that_keeps_it(runs: dict[str, Run]) -> None:
    mean_s = {policy: run.summary()["mean_completion_s"] for policy, run in runs.items()}
    broken = {policy for policy, run in runs.items() if run.slo_violation_ratio > 0.0}
    assert broken == {"all-at-once"}
    assert mean_s["flow"] == min(mean_s.values())
    assert min(mean_s[p] for p in runs if p not in {"flow", *broken}) > 1.3 * mean_s["flow"]

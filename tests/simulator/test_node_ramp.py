"""flow-node under a load that grows and falls evenly, as a day's or a crowd's does: a wave in steps of 100 ms."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from flowsched.node import Allocation, Reading
from flowsched.node.flow_node import FlowNode
from flowsched.node.load import LoadTracker
from flowsched_simulator.node.scenario import Load
from flowsched_simulator.node.scenario_file import load_node_scenario
from flowsched_simulator.node.simulation import NodeOptions, NodeSimulation

STEP_S = 0.1
KEYS = 20
"""Queries that a request counts as: counts scatter more than those of single queries, and slopes hide in that."""


def ramp(low: float = 5_000.0, high: float = 98_000.0, up_s: float = 9.5, stay_s: float = 3.0) -> tuple[float, ...]:
    """Up, a while, and down again; the highest load is one that the service serves alone within its goal."""
    up = np.linspace(low, high, round(up_s / STEP_S) + 1).tolist()
    stay = round(stay_s / STEP_S)
    there = [low] * stay + up + [high] * stay
    return tuple(there + there[::-1])


class Watched:
    """flow-node, reading a counter of requests that count as many queries; how often it was ready for too little."""

    def __init__(self, controller: FlowNode, wave: tuple[float, ...], seed: int) -> None:
        self.controller, self.wave = controller, wave
        self.period_s = controller.period_s
        self.short: list[bool] = []
        self._random = np.random.default_rng([seed, KEYS])
        self._seen = self._told = 0

    def decide(self, reading: Reading) -> Allocation | None:
        (service,) = reading.services
        assert service.queries is not None
        self._told += KEYS * int(self._random.poisson((service.queries - self._seen) / KEYS))
        self._seen = service.queries
        answer = self.controller.decide(replace(reading, services=(replace(service, queries=self._told),)))
        coming = self.wave[round(reading.t_s / STEP_S) % len(self.wave)]
        self.short.append(self.controller.qps(service.service.name) < 0.95 * coming)
        return answer


def run_on_ramp(seed: int) -> tuple[int, float]:
    """Points over the goal, and the share of ticks at which it was ready for less than 95 % of the load."""
    wave = ramp()
    base = load_node_scenario("node-4core-dynamic")
    scenario = replace(
        base,
        loads=(Load(wave),),
        tasks=tuple(replace(t, scale=0.12 * t.scale) for t in base.tasks),
        qps_interval_s=STEP_S,
    )
    controller = Watched(FlowNode(scenario.node), wave, seed)
    run = NodeSimulation(scenario, "flow-node", controller, NodeOptions(seed=seed, noise=0.0)).run()
    assert run.makespan_s is not None
    slo_us = dict(run.slo_us)
    return sum(w.p95_us > slo_us[w.service] for w in run.windows), float(np.mean(controller.short))


def test_a_goal_is_kept_on_ramps_where_it_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ramps the same run has two points over the goal, both where the load stays high after it grew."""
    over, short = run_on_ramp(seed=0)
    monkeypatch.setattr("flowsched.node.flow_node.LoadTracker", partial(LoadTracker, ramp_s=0.0))
    over_without, short_without = run_on_ramp(seed=0)

    assert over == 0
    assert over_without >= over
    assert short < 0.5 * short_without

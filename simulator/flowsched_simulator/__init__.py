"""The embedded simulator: scenarios, baselines, and one discrete-event engine for all of them."""

from __future__ import annotations

from flowsched_simulator.comparison import compare, simulate
from flowsched_simulator.policies import ON_REQUEST, POLICIES, EngineOptions
from flowsched_simulator.replay import replay
from flowsched_simulator.run import Run
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import bundled_scenarios, load_scenario
from flowsched_simulator.scenario_maker import make_scenario
from flowsched_simulator.schedule_file import bundled_schedules, load_schedule
from flowsched_simulator.simulation import Options

__all__ = [
    "ON_REQUEST",
    "POLICIES",
    "EngineOptions",
    "Options",
    "Run",
    "Scenario",
    "bundled_scenarios",
    "bundled_schedules",
    "compare",
    "load_scenario",
    "load_schedule",
    "make_scenario",
    "replay",
    "simulate",
]

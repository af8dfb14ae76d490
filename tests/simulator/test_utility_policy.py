"""The policy at the literal prices of Amaral's thesis, equations 11 to 13."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import SCALING, catalogue, machine, snapshot, task
from flowsched import solve
from flowsched.cluster.settings import Settings
from flowsched_models.runtime import HostFactory
from flowsched_simulator import EngineOptions, load_scenario
from flowsched_simulator.policies import LITERAL_PRICES, schedulers
from flowsched_simulator.simulation import Simulation

PAGE = Path(__file__).parents[2] / "docs" / "prices.md"
GOAL_S = 400.0


def decided(age_s: float, wish: float, **changes: Any) -> Any:
    """One job of known length on one empty machine that it would rather not have."""
    job = task("job", SCALING, goal_s=GOAL_S, submit_s=0.0, wishes=(("m1", wish),) if wish else ())
    now = replace(snapshot([job], [machine("m1")], now_s=age_s), catalogue=catalogue())
    return solve(now, settings=replace(Settings(), exact_limit=0, **{**LITERAL_PRICES, **changes}))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from((0.0, 100.0, 390.0, 1500.0)), st.sampled_from((0.0, 0.5, 2.0)))
def test_a_place_costs_1_less_the_utility_times_the_preference(age_s: float, wish: float) -> None:
    (placed,) = decided(age_s, 0.0).placements
    (wished,) = decided(age_s, wish).placements

    # z = 1: the same slope before and beyond the goal. 1 - U = phi / tau.
    late = placed.cost * GOAL_S - age_s
    assert late > 0.0
    assert late == pytest.approx(decided(0.0, 0.0).placements[0].cost * GOAL_S, abs=2.5)
    assert wished.cost == pytest.approx(placed.cost * (1.0 + wish), rel=1e-6)


def test_w_has_no_end() -> None:
    blocked = task("job", SCALING, goal_s=GOAL_S, submit_s=0.0, memory_mib=1 << 40)
    for age_s in (300.0, 600.0, 6000.0):
        now = snapshot([blocked], [machine("m1")], now_s=age_s)
        (waits,) = solve(now, settings=replace(Settings(), exact_limit=0, **LITERAL_PRICES)).postponements
        assert waits.terms["waiting"] == pytest.approx(age_s / 600.0)
        (bounded,) = solve(now, settings=Settings(exact_limit=0)).postponements
        assert bounded.terms["waiting"] == pytest.approx(min(1.0, age_s / 600.0))


def test_the_page_says_what_the_preset_costs_on_the_demo() -> None:
    scenario = load_scenario("parsec-memcached-2024")
    hosts = HostFactory(scenario.catalogue)
    ((_, scheduler),) = schedulers("utility", scenario, 0, EngineOptions(Settings(exact_limit=0)), hosts)
    run = Simulation(scenario, scheduler, hosts=hosts).run()

    told = re.search(r"`utility` takes ([\d.]+) s", PAGE.read_text(encoding="utf-8"))
    assert told is not None
    assert run.makespan_s == pytest.approx(float(told[1]), abs=0.05)
    for name, value in LITERAL_PRICES.items():
        assert f"`{name}={str(value).lower() if isinstance(value, bool) else value}`" in PAGE.read_text(
            encoding="utf-8"
        )

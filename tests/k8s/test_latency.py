"""What latency services leave for their neighbours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from builders import CATALOGUE
from flowsched.pricing.linear.headroom import headroom
from flowsched_k8s.services.latency import ServiceWish, choose_curve
from flowsched_models.machine import MachineType

WISH = ServiceWish("cache", 1000.0, 10_000.0, "plain", 1000)


@pytest.mark.parametrize("pressure", [0.0, 0.01])
def test_headroom_ends_where_the_model_says_on_that_machine(pressure: float) -> None:
    profile = replace(CATALOGUE.services["cache"], latency_factor={"slow": 1.5}, capacity_factor={"slow": 0.7})
    curve = choose_curve(profile, WISH)
    assert curve is not None
    caps = {}
    for name in ("slow", "other"):
        machine = MachineType(name, 4, 2, bandwidth=1.5)
        there = profile.p95_us(curve, WISH.qps, WISH.client, 1.5 * pressure, machine_type=name)
        at_load = partial(headroom, profile, curve, machine, qps=WISH.qps, client=WISH.client, weight=1.0, margin=1.0)
        assert at_load(slo_us=there).pressure_cap == pytest.approx(pressure)
        caps[name] = at_load(slo_us=WISH.slo_us).pressure_cap
    assert caps["slow"] < caps["other"]

"""Estimated starts of pods that wait, on a real API server: what is written, and what is learnt from what happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from plane import Plane, Space, wait_for
from running import Running, Site, running_scheduler, site_of

from flowsched_k8s import names

PODS = 16
"""So many that of their forecasts some are compared with what happens: one in four is, by chance."""
MEASURED = {names.PROFILE: "blackscholes", names.SCALE: "0.05"}


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = tmp_path_factory.mktemp("scheduler")
    with running_scheduler(plane, made, annotateEstimatedStarts=True, rounds={"maxPeriod": "1s"}) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def estimate(site: Site, name: str) -> dict[str, Any] | None:
    text = (site.space.pod(name)["metadata"].get("annotations") or {}).get(names.ESTIMATED_START)
    return None if text is None else json.loads(text)


def test_waiting_pods_bear_their_estimates_and_what_happens_is_counted(site: Site) -> None:
    """One node, on which one pod after the other runs for a second; each end lets rounds decide on all that wait."""
    scheduler = site.scheduler
    node = site.node(cpu="1")
    site.pod("first", cpu="1", annotations=MEASURED)
    assert site.bound("first") == node
    for i in range(PODS):
        site.pod(f"p{i}", cpu="1", annotations={**MEASURED, "flowsched.test/run-for": "1s"}, restartPolicy="Never")

    wait_for(lambda: scheduler.state()["queue"]["unschedulable"] == PODS, "all of them to wait for room")
    state = scheduler.state()
    planned = sum("starts_in_s" in waiting for waiting in state["waiting"])

    def estimates() -> dict[str, Any]:
        return {f"p{i}": e for i in range(PODS) if (e := estimate(site, f"p{i}"))}

    told = wait_for(lambda: found if len(found := estimates()) == planned else {}, "all estimates")
    # Each of these writes has come back by the watch, and no pod was tried again for it.
    assert planned >= 2
    assert scheduler.state()["rounds"] == state["rounds"]
    for moments in told.values():
        for of in ("start", "end"):
            earliest, expected, latest = (
                datetime.fromisoformat(moments[of][w]) for w in ("earliest", "expected", "latest")
            )
            assert earliest <= expected <= latest
        assert moments["start"]["expected"] <= moments["end"]["expected"]
    assert scheduler.metric("flowsched_estimated_pods") >= 1
    assert any("starts_in_s" in waiting for waiting in scheduler.state()["waiting"])

    site.space.delete_pod("first")
    site.all_bound(PODS)

    def judged(forecast: str) -> float:
        results = ("early", "held", "late")
        return sum(scheduler.metric("flowsched_forecast_intervals_total", forecast=forecast, result=r) for r in results)

    for forecast in ("start", "end"):
        wait_for(lambda of=forecast: judged(of), f"forecasts of the {forecast} to be compared with what happened")
        assert scheduler.metric("flowsched_forecast_error_seconds_count", forecast=forecast) > 0

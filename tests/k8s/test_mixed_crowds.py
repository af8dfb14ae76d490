"""Pods that forecasts price beside plain ones: gangs, overdue pods, preemption and moves that concern both at once."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer
from small_services import SAID

from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.configuration.configuration import Configuration, Features, RebalancingSettings
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.rebalancing.move_plan import Purpose

DUE_S = 60.0
MEASURED: dict[str, Any] = {"annotations": {names.PROFILE: "blackscholes"}, "restartPolicy": "Never"}
TIMED: dict[str, Any] = {"annotations": {names.RUN_TIME: "600"}, "restartPolicy": "Never"}
PLAIN: dict[str, Any] = {"owner": ("ReplicaSet", "rs")}
SERVICE: dict[str, Any] = {"annotations": {**SAID, names.SLO: "p95=5ms@1K"}}
FORECAST = pytest.mark.parametrize("forecast", [MEASURED, TIMED], ids=["measured", "with a run time"])


def scheduler(*things: Any, preemption: bool = False) -> ModelScheduler:
    server = ModelServer()
    for thing in things:
        server.put(thing)
    settings = Settings(due_age_s=DUE_S, due_runs=0.0)
    return ModelScheduler(server, Configuration(engine=settings, features=Features(preemption=preemption)))


def decide(running: ModelScheduler) -> None:
    """All pods that wait take part in a round."""
    running.state.queue.wake(Wake.ANY, running.now)
    running.round()
    running.answer_all()
    running.deliver()


def one_after_the_other(running: ModelScheduler, pods: dict[str, Any], first: str) -> None:
    """One of the pods comes 5 s before the others; then all wait until they are overdue."""
    running.create(pods.pop(first))
    decide(running)
    running.server.now += 5.0
    running.create(*pods.values())
    decide(running)
    running.server.now += DUE_S + 1.0
    decide(running)


def member(name: str, cpu: str | None = "2", **fields: Any) -> Any:
    return b.pod(name, cpu=cpu, labels={NAME_LABEL: "g", MINIMUM_LABEL: "2"}, **fields)


OTHERS = {"a latency service": ("2", SERVICE), "no CPU request": (None, {}), "plain": ("2", PLAIN)}


@FORECAST
@pytest.mark.parametrize("other", OTHERS)
def test_a_gang_of_both_starts_whole_or_not_at_all(forecast: dict[str, Any], other: str) -> None:
    cpu, fields = OTHERS[other]
    running = scheduler(b.node("n1", "4"), b.pod("there", cpu="3", node="n1", restartPolicy="Never"))
    running.create(member("m", **forecast), member("o", cpu, **fields))
    running.settle(within=5.0)
    assert set(running.where()) <= {"there"}
    running.server.finish(running.server.pods["default", "there"])
    running.settle(within=30.0)
    assert {running.where().get("m"), running.where().get("o")} == {"n1"}


@FORECAST
@pytest.mark.parametrize("first", ["plain", "forecast"])
def test_the_pod_that_is_overdue_for_longest_gets_the_room(forecast: dict[str, Any], first: str) -> None:
    running = scheduler(b.node("n1", "4"), b.pod("there", cpu="4", node="n1", restartPolicy="Never"))
    pods = {"plain": b.pod("plain", cpu="3", **PLAIN), "forecast": b.pod("forecast", cpu="3", **forecast)}
    one_after_the_other(running, pods, first)
    running.server.finish(running.server.pods["default", "there"])
    running.settle(within=30.0)
    assert running.where().keys() & {"plain", "forecast"} == {first}


@FORECAST
@pytest.mark.parametrize("first", ["plain", "forecast"])
def test_a_node_is_kept_for_the_pod_that_is_overdue_for_longest(forecast: dict[str, Any], first: str) -> None:
    # A stream of narrow pods, which end, would take what becomes free.
    jobs = [b.pod(f"j{i}", cpu="1", node="n1", **forecast) for i in range(4)]
    running = scheduler(b.node("n1", "4"), *jobs)
    pods = {"plain": b.pod("plain", cpu="4", **PLAIN), "forecast": b.pod("forecast", cpu="4", **forecast)}
    one_after_the_other(running, pods, first)
    held = running.state.node_holds.held
    assert held is not None
    assert [running.state.cache.pods[uid].key.name for uid, _ in held.places] == [first]


@FORECAST
@pytest.mark.parametrize("first", ["plain", "forecast"])
def test_the_pod_that_is_overdue_for_longest_gets_a_node_that_joins(forecast: dict[str, Any], first: str) -> None:
    running = scheduler(b.node("n1", "1"))
    pods = {"plain": b.pod("plain", cpu="3", **PLAIN), "forecast": b.pod("forecast", cpu="3", **forecast)}
    one_after_the_other(running, pods, first)
    running.server.put(b.node("n2", "4"))
    running.deliver()
    running.server.now += 30.0  # none of them is passed over for having been tried a moment ago
    decide(running)
    assert running.where() == {first: "n2"}


@FORECAST
@pytest.mark.parametrize("victim", ["plain", "forecast"])
def test_a_pod_of_one_kind_makes_room_for_one_of_the_other(forecast: dict[str, Any], victim: str) -> None:
    kinds = {"plain": PLAIN, "forecast": forecast}
    placed = {**kinds[victim]}
    placed["annotations"] = {**placed.get("annotations", {}), names.PLACEMENT: "by a test"}
    running = scheduler(b.node("n1", "4"), b.pod("victim", cpu="3", node="n1", **placed), preemption=True)
    (other,) = kinds.keys() - {victim}
    running.create(b.pod("critical", cpu="3", priority=10, **kinds[other]))
    running.round()
    assert [key.name for key in running.victims] == ["victim"]


@pytest.mark.parametrize("moved", ["plain", "measured"])
def test_a_pod_of_one_kind_moves_for_one_of_the_other(moved: str) -> None:
    measured = {names.PROFILE: "blackscholes", names.SCALE: "1000"}
    kinds: dict[str, dict[str, Any]] = {"plain": {}, "measured": {"annotations": measured}}
    server = ModelServer()
    settings = RebalancingSettings(cool_down_s=10.0, price=0.0)
    engine = Settings(due_age_s=0.1, due_runs=0.0)
    running = ModelScheduler(
        server, Configuration(engine=engine, features=Features(rebalancing=True), rebalancing=settings)
    )
    for i in (1, 2):
        server.put(b.node(f"n{i}", "4"))
        server.put(b.pod(f"small-{i}", cpu="2", node=f"n{i}", owner=("ReplicaSet", "rs"), **kinds[moved]))
    running.deliver()
    server.now += 11.0
    (other,) = kinds.keys() - {moved}
    running.create(b.pod("wide", cpu="4", **kinds[other]))
    running.round()
    server.now += 0.1  # a measured pod loses what it has done, which costs more than waiting can once that is much
    plan = running.look()
    assert plan is not None and plan.question.purpose is Purpose.ROOM
    assert [move.source for move in plan.moves] != [move.target for move in plan.moves]
    assert {key.name for key in running.moves} <= {"small-1", "small-2"} and len(running.moves) == 1

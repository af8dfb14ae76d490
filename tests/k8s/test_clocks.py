"""Waits pass by one even clock, from when a pod was first seen: whatever the machine's clock or the API server's does."""

from __future__ import annotations

import objects_builders as b
import pytest
from model_scheduler import CATALOGUE, ModelScheduler
from model_server import START_S, ModelServer, moment
from msgspec.structs import replace
from test_rebalancing import scheduler as rebalancing
from test_rebalancing import small

from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.steady_clock import steady

DUE_S = 600.0
AHEAD_S = 7200.0
OVERDUE = Configuration(engine=Settings(due_age_s=DUE_S))


def cluster() -> ModelServer:
    server = ModelServer()
    server.put(b.node("n1", "2"))
    server.put(b.pod("there", node="n1", cpu="1", restartPolicy="Never"))
    return server


def held(running: ModelScheduler) -> str:
    """The pod that a node drains for."""
    holds = running.state.node_holds.held
    return "" if holds is None else running.state.cache.pods[holds.places[0][0]].key.name


@pytest.mark.parametrize("profile", [{}, {names.PROFILE: "canneal"}], ids=["plain", "measured"])
@pytest.mark.parametrize("skew_s", [AHEAD_S, -AHEAD_S, 0.0], ids=["ahead", "behind", "right"])
def test_a_new_pod_is_overdue_after_the_due_age_and_not_before(skew_s: float, profile: dict[str, str]) -> None:
    """The clock was wrong when the scheduler started: every pod would seem to have been created two hours ago."""
    running = ModelScheduler(cluster(), OVERDUE)
    running.server.put(b.pod("large", cpu="2", annotations=profile))
    running.server.now += skew_s
    running.deliver()
    began = running.now
    running.round()
    assert held(running) == ""
    running.server.now = began + DUE_S + 1.0
    running.state.queue.wake(Wake.ANY, running.now)
    running.round()
    assert held(running) == "large"


def test_a_clock_that_is_wrong_for_ten_seconds_makes_no_pod_overdue() -> None:
    wall, passed = START_S, 0.0
    clock = steady(lambda: wall, lambda: passed)
    server = cluster()
    state = SchedulerState(OVERDUE, CATALOGUE)
    state.observe(server.everything(), clock())
    state.activate()

    def waited(name: str) -> float:
        return clock() - next(e.waits_since_s for e in state.cache.pods.values() if e.key.name == name)

    def create(name: str) -> None:
        server.now = START_S + passed
        server.put(b.pod(name, cpu="2"))
        state.observe(server.deliver("pods"), clock())

    create("before")
    wall, passed = START_S + AHEAD_S, 1.0
    create("meanwhile")
    wall, passed = START_S + 11.0, 11.0
    create("after")
    assert {name: waited(name) for name in ("before", "meanwhile", "after")} == {
        "before": 11.0,
        "meanwhile": 10.0,
        "after": 0.0,
    }


def test_a_pod_that_waited_before_the_scheduler_started_is_as_old_as_it_says() -> None:
    server = cluster()
    server.put(b.pod("large", cpu="2"))
    server.now += DUE_S + 1.0
    running = ModelScheduler(server, OVERDUE)
    running.round()
    assert held(running) == "large"


def test_a_standby_measures_waits_from_when_it_saw_a_pod() -> None:
    server = cluster()
    state = SchedulerState(OVERDUE, CATALOGUE)
    state.observe(server.everything(), server.now)
    state.cache.live = True
    server.put(b.pod("large", cpu="2"))
    state.observe(server.deliver("pods"), server.now + AHEAD_S)
    (entry,) = (e for e in state.cache.pods.values() if e.key.name == "large")
    assert entry.waits_since_s == entry.latency_since_s == server.now + AHEAD_S


def test_pods_of_before_and_after_the_start_stay_in_order() -> None:
    """With a clock that is behind, pods that come later would seem to be older than those that were there."""
    server = ModelServer()
    server.put(b.node("n1", "1"))
    server.put(b.pod("first", cpu="1"))
    server.now -= AHEAD_S
    running = ModelScheduler(server, OVERDUE)
    running.server.put(b.pod("second", cpu="1"))
    running.deliver()
    assert [bind.pod.name for bind in running.round()] == ["first"]


# Other waits


def test_a_pod_has_run_for_the_cool_down_by_our_clock() -> None:
    """Its kubelet's clock is two hours behind."""
    node = b.node("n1", "4")
    running = rebalancing(node, b.node("n2", "8"), small("there", "n2", cpu="5"), empty_node_gain=1.0)
    young = small("young", "n1")
    started = moment(running.now - AHEAD_S)
    running.server.put(replace(young, status=replace(young.status, start_time=started)))
    running.deliver()
    running.server.now += 1.0
    running.look()
    last = running.state.rebalancing.last
    assert last is not None
    assert last.stays["it has not run for the cool-down"] == 1


def test_a_mark_of_another_clock_is_taken_off_as_late_as_others() -> None:
    running = rebalancing(b.node("free"))
    now = running.now
    marked = b.node("free", taints=[b.taint(names.EMPTIED, str(int(now + AHEAD_S)), names.AVOIDED)])
    running.observe([Seen(marked)])
    running.look()
    assert running.marks == []
    running.server.now = now + 1801.0
    running.look()
    assert [mark.node for mark in running.marks] == ["free"]

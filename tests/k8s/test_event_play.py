"""Events recorded from the state machine and played give its rounds the same input, and the same decisions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import test_cost_models as cost_models
import test_rebalancing as rebalancing
from events_recorded import Inputs, Recorded, differences, played_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from objects_builders import node, pod
from test_snapshot_decisions import SITUATIONS, job, nodes, service
from test_state import scheduler

from flowsched.cluster.decision import Scheduler
from flowsched.cluster.settings import Settings
from flowsched_k8s import names
from flowsched_k8s.causes import Wake
from flowsched_k8s.configuration.configuration import CostModelChoice
from flowsched_k8s.configuration.cost_model import plain_cost_model
from flowsched_k8s.events.event_file import EventReader, numbered
from flowsched_k8s.events.event_player import play
from flowsched_k8s.events.live_events import Removed
from flowsched_k8s.objects import Node, Pod
from flowsched_models.profiles import load_catalogue
from flowsched_simulator.policies import EngineOptions, schedulers_with


def go_on(running: ModelScheduler, seconds: float) -> None:
    running.answer_all()
    running.deliver()
    running.server.now += seconds
    running.state.queue.wake(Wake.ANY, running.now)


def some_rounds(situation: str, path: Path) -> Recorded:
    """Measured and plain pods, of which one ends, and nodes that come and go; recorded."""
    things = SITUATIONS[situation]
    running = scheduler(*(t for t in things if isinstance(t, Node)))
    recorded = Recorded(running, path)
    running.create(
        *(t for t in things if not isinstance(t, Node)),
        *(pod(f"plain-{i}", cpu="250m", owner=("ReplicaSet", "web")) for i in range(4)),
    )
    running.round()
    go_on(running, 27.25)
    running.create(*(job(f"late-{i}", i, priority=i % 2) for i in range(4)))
    running.round()
    go_on(running, 31.5)
    ended = next(p for p in running.server.pods.values() if p.spec.node_name)
    running.server.finish(ended)
    running.put(node("another", "8"))
    running.create(*(pod(f"more-{i}", cpu="1") for i in range(4)))
    running.round()
    go_on(running, 12.0)
    running.server.remove(running.server.nodes["another"])
    running.deliver()
    running.round()
    recorded.done()
    return recorded


@pytest.mark.parametrize("situation", SITUATIONS)
def test_rounds_are_played_as_they_were(situation: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.gz"
    recorded = some_rounds(situation, path)
    assert not differences(played_inputs(path), recorded.inputs)
    played = play(path)
    assert played.same, played.verdict()
    assert played.rounds == len(recorded.inputs) >= 3
    assert played.placements > 3


def busy_day(folder: Path | None, most_bytes: int) -> tuple[list[tuple[str, str]], Recorded | None]:
    """Jobs that come, end, are deleted and replaced beside a service; what was bound where, and the recording."""
    running = scheduler(*nodes(3), *(node(f"l{i}", "8") for i in range(2)))
    recorded = None if folder is None else Recorded(running, folder / "events.jsonl.gz", most_bytes, keep=50)
    running.create(service("cache", "n1"), pod("theirs", cpu="1", node="n2", scheduler="other"))
    running.create(*(job(f"a{i}", 3, cpu="1", nodeSelector={names.HOSTNAME: "n3"}) for i in range(2)))
    for hour in range(6):
        running.create(
            *(job(f"j{hour}-{i}", hour + i, cpu="1", priority=i % 2) for i in range(5)), pod(f"p{hour}", cpu="500m")
        )
        running.round()
        go_on(running, 17.3)
        there = sorted((p for p in running.server.pods.values() if p.spec.node_name), key=lambda p: p.metadata.name)
        running.server.finish(there[1 if hour == 0 else hour + 4])
        running.server.remove(there[hour + 6])
        running.deliver()
        if hour == 2:
            running.server.cordon("n2")
            running.deliver()
        if hour == 4:
            # It comes back with what runs there, whose neighbours have come and gone.
            running.server.remove(running.server.nodes["n3"])
            running.deliver()
            running.put(node("n3", "4", zone="z1"))
        if hour == 3:
            running.state.use_catalogue(load_catalogue(), running.now)
        # A round without measured pods: what is estimated of running jobs stays where it was.
        running.create(pod(f"q{hour}", cpu="100m"))
        running.round()
        go_on(running, 3.1)
    return [(name, where) for name, where in sorted(running.where().items())], recorded


@functools.cache
def unrecorded_day() -> list[tuple[str, str]]:
    return busy_day(None, 0)[0]


@pytest.mark.parametrize("told", [True, False])
def test_what_is_seen_between_rounds_is_played(told: bool, tmp_path: Path) -> None:
    running = scheduler(*nodes(1))
    (name,) = running.state.cache.nodes
    recorded = Recorded(running, tmp_path / "events.jsonl.gz")
    occupied = running.state.inputs.occupied
    for number in range(3):
        running.create(job(f"j{number}", number, cpu="1"))
        running.round()
        go_on(running, 10.0)
        # The next round would see it on its node, beside those that are there.
        running.put(job(f"there-{number}", number, cpu="100m", node=name, status={"phase": "Running"}))
        occupied.look(running.now)
        if told:
            occupied.between_rounds(running.now)
        running.server.now += 5.0
    wrong = differences(played_inputs(recorded.done()), recorded.inputs)
    assert bool(wrong) != told, wrong[:1]
    assert len(recorded.inputs) == 3


def test_rebalancing_that_looks_at_no_running_job_is_told_by_no_event(tmp_path: Path) -> None:
    """The round before has seen changes, and the question is one of pods without forecasts."""
    small = (rebalancing.small(f"small-{name}", name) for name in ("n1", "n2"))
    running = rebalancing.scheduler(node("n1", "5"), node("n2", "5"), *small, price=0.1)
    recorded = Recorded(running, tmp_path / "events.jsonl.gz")
    running.create(pod("wide", cpu="4"), job("first", 1, cpu="250m"))
    running.round()
    go_on(running, 40.0)
    running.create(job("second", 1, cpu="250m"))
    running.round()
    running.answer_all()
    running.deliver()
    running.server.now += 20.0
    # The next round sees it on its node, beside those that are there.
    running.put(job("there", 2, cpu="100m", node="n1", status={"phase": "Running"}))
    assert running.look() is not None
    running.server.now += 5.0
    running.create(job("third", 3, cpu="100m"))
    running.round()
    wrong = differences(played_inputs(recorded.done()), recorded.inputs)
    assert not wrong, wrong[:1]
    assert len(recorded.inputs) == 3


@pytest.mark.parametrize("most_bytes", [1, 1 << 30])
def test_what_is_estimated_of_running_jobs_goes_on_in_another_file(most_bytes: int, tmp_path: Path) -> None:
    bound, recorded = busy_day(tmp_path, most_bytes)
    assert recorded is not None
    path = recorded.done()
    files = [path, *(f for number in range(1, 50) if (f := numbered(path, number)).exists())]
    assert len(files) == (len(recorded.inputs) if most_bytes == 1 else 1)
    found: Inputs = {}
    for file in files:
        found |= played_inputs(file)
        played = play(file)
        assert played.same, played.verdict()
    wrong = differences(found, recorded.inputs)
    assert not wrong, wrong[0]
    assert any(r.progress > 0 for i in found.values() for r in i["cluster"][2])
    # Recording changes no decision.
    assert unrecorded_day() == bound


def a_while(running: cost_models.ModelScheduler, folder: Path, late: Sequence[Pod]) -> Recorded:
    """Two rounds and more, between which a pod ends; recorded."""
    recorded = Recorded(running, folder / "events.jsonl.gz")
    running.round()
    go_on(running, 27.25)
    ended = next((p for p in running.server.pods.values() if p.spec.node_name), None)
    if ended is not None:
        running.server.finish(ended)
    running.create(*late)
    for _ in range(2):
        running.round()
        go_on(running, 400.5)
    return recorded


@pytest.mark.parametrize("model", cost_models.MODELS)
@pytest.mark.parametrize("situation", cost_models.MORE)
def test_rounds_of_a_cost_model_are_played_as_they_were(situation: str, model: str, tmp_path: Path) -> None:
    running = cost_models.scheduler(cost_models.MODELS[model], *cost_models.MORE[situation])
    late = [job("late", 1, priority=1), pod("nothing-more", cpu="0"), pod("far-too-large", cpu="64")]
    recorded = a_while(running, tmp_path, late)
    path = recorded.done()
    wrong = differences(played_inputs(path), recorded.inputs)
    assert not wrong, wrong[0]
    played = play(path)
    assert played.same, played.verdict()
    assert played.rounds == len(recorded.inputs) >= 2
    header = EventReader(path).header
    assert header.cost_model == CostModelChoice(**plain_cost_model(cost_models.MODELS[model]))
    # Other policies decide on the same state.
    asked = ("coco", "flow", "fcfs")

    def others(settings: Settings) -> dict[str, Scheduler]:
        return {n: s for n in asked for _, s in schedulers_with(n, settings, 0, EngineOptions(), None)}

    policies = play(path, others).policies
    assert [p.policy for p in policies] == list(asked)
    assert all(p.same + p.elsewhere + p.only_recorded == p.recorded == played.placements for p in policies)


@settings(max_examples=25)
@given(cost_models.clusters(), st.sampled_from(sorted(cost_models.MODELS)))
def test_whatever_pods_say_is_in_the_file(things: list[Any], model: str) -> None:
    running = cost_models.scheduler(cost_models.MODELS[model], *things, engine=Settings(due_age_s=300.0))
    with TemporaryDirectory() as folder:
        recorded = a_while(running, Path(folder), ())
        path = recorded.done()
        if not recorded.inputs:
            assert not path.exists()
            return
        wrong = differences(played_inputs(path), recorded.inputs)
        assert not wrong, wrong[0]
        assert play(path).same


def test_pods_that_make_room_are_told_as_they_go(tmp_path: Path) -> None:
    running = scheduler(node("n1", "2"), preemption=True)
    recorded = Recorded(running, tmp_path / "events.jsonl")
    running.create(*(pod(f"low-{i}", cpu="1") for i in range(2)))
    running.settle()
    running.create(pod("high", cpu="2", priority=10))
    running.round()
    while running.victims:
        running.evict()
    for victim in [p for p in running.server.pods.values() if p.metadata.deletion_timestamp is not None]:
        running.server.remove(victim)
    running.settle()
    assert running.where() == {"high": "n1"}
    path = recorded.done()
    wrong = differences(played_inputs(path), recorded.inputs)
    assert not wrong, wrong[0]
    assert any(i["nominated"] for i in recorded.inputs.values())
    assert play(path).same
    gone = [event.of for _, event in EventReader(path) if isinstance(event, Removed)]
    assert gone.count("TaskSubmitted") == gone.count("TaskBound") == 2

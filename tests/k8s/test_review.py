"""Ways to go wrong over days, at scale, or because an attacker wants it to: one test for each that was found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import objects_builders as b
import pytest
from model_scheduler import CATALOGUE, ModelScheduler
from model_server import ModelServer
from msgspec.structs import replace
from plane import Plane, Space, wait_for
from running import Site, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.api.writer import Result, WriteOutcome
from flowsched_k8s.bindings.sender import Sender
from flowsched_k8s.bindings.turns import Turns
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.dispatcher import PATCHERS, Dispatcher
from flowsched_k8s.instructions import Evict, PatchCondition, PodKey, Resize
from flowsched_k8s.queue import PodQueue
from flowsched_k8s.rounds import participants
from flowsched_k8s.rounds.planning import plan_round
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.steady_clock import steady
from flowsched_models import runtime
from flowsched_models.document import InputError
from flowsched_models.quantity import QuantityError, parse_cores


def scheduler(*nodes: Any, **features: Any) -> ModelScheduler:
    """A scheduler that knows these nodes."""
    server = ModelServer()
    for node in nodes:
        server.put(node)
    return ModelScheduler(server, Configuration(features=Features(**features)))


def evicted(running: ModelScheduler) -> list[str]:
    return [told.pod.name for told in running.told if isinstance(told, Evict)]


# Annotations that are meant to do harm


@pytest.mark.parametrize("threads", ["1" * 5000, "9" * 4000, "99999", "²", "-1", "0"])
def test_threads_that_no_machine_has_are_not_believed(threads: str) -> None:
    """Pods of others and edited ones are read, too: what they say must not end a round, or the process."""
    running = scheduler(b.node("n1", "8"))
    profile = {names.PROFILE: "blackscholes"}
    running.create(b.pod("theirs", cpu="1", labels=profile, annotations={names.THREADS: threads}, node="n1"))
    running.create(b.pod("ours", cpu="1", labels=profile))
    assert [bind.pod.name for bind in running.round()] == ["ours"]


@pytest.mark.parametrize("width", ["1" * 5000 + "m", "²m", "m", "2000"])
def test_widths_that_are_none_are_not_resized_to(width: str) -> None:
    running = scheduler(b.node("n1", "8"), resize=True)
    running.create(b.pod("p", cpu="1", annotations={names.WIDTHS: "1,2", names.WIDTH: width}, node="n1"))
    assert not [told for told in running.told if isinstance(told, Resize)]


def test_a_core_set_grows_with_the_machine_and_not_with_its_text() -> None:
    whole = ",".join(["0-4095"] * 30_000)
    with pytest.raises((QuantityError, InputError)):
        parse_cores(whole)


def test_requests_beyond_measure_do_not_make_a_full_node_look_empty() -> None:
    """Sums over pods are in 64 bits, and any user who may make pods may name a node for them."""
    running = scheduler(b.node("n1", "8"))
    running.create(*(b.pod(f"huge-{i}", memory="1Ei", cpu="1E", node="n1") for i in range(64)))
    running.create(b.pod("ours", cpu="1", memory="1Gi"))
    assert running.round() == []


# Leaders and standbys


def test_a_resize_that_a_standby_saw_is_asked_for_once_it_leads() -> None:
    server = ModelServer()
    server.put(b.node("n1", "8"))
    notes = {names.WIDTHS: "1,2", names.WIDTH: "2000m"}
    server.put(b.pod("wide", cpu="1", annotations=notes, node="n1"))
    state = SchedulerState(Configuration(features=Features(resize=True)), CATALOGUE)
    assert state.observe(server.everything(), server.now) == [], "a standby's instructions are not carried out"
    (entry,) = state.cache.pods.values()
    assert entry.width_milli == 1000, "and nothing is held for them"
    assert [told.cpu_milli for told in state.activate() if isinstance(told, Resize)] == [{"main": 2000}]


@pytest.mark.parametrize("before", [True, False])
def test_annotations_that_cannot_be_used_are_reported_by_the_leader(before: bool) -> None:
    server = ModelServer()
    server.put(b.node("n1"))
    good = server.put(b.pod("p", cpu="1", annotations={} if before else {names.GOAL: "soon"}))
    state = SchedulerState(Configuration(), CATALOGUE)
    assert state.observe(server.everything(), server.now) == []
    state.activate()
    if before:
        server.put(replace(good, metadata=replace(good.metadata, annotations={names.GOAL: "soon"})))
        told: list[Any] = list(state.observe(server.deliver("pods"), server.now))
    else:
        told = list(state.begin_round(server.now)[1])
    assert ["'soon' is not a duration" in event.note for event in told] == [True]


# Clocks


def test_the_clock_follows_no_step_of_the_machine_s() -> None:
    wall, monotonic = 1000.0, 5.0
    clock = steady(lambda: wall, lambda: monotonic)
    assert clock() == 1000.0
    wall, monotonic = 400.0, 7.0
    assert clock() == 1002.0, "a step backwards is not followed"
    wall, monotonic = 5000.0, 8.0
    assert clock() == 1003.0, "nor is one forwards: no pod has waited for that long"
    wall, monotonic = 1004.0, 9.0
    assert clock() == 1004.0


# What is written


def test_a_condition_that_could_not_be_written_is_written_later() -> None:
    running = scheduler(b.node("n1", "1"))
    running.create(b.pod("p", cpu="2"))
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    out = running.state.end_round(plan_round(given, _solver(), None), running.now)
    (patch,) = [told for told in out if isinstance(told, PatchCondition)]
    running.state.notices.failed(patch, running.now)
    assert running.state.notices.again(running.state.waiting.postponed, running.now) == []
    again = running.state.notices.again(running.state.waiting.postponed, running.now + 11.0)
    assert [told for told in again if isinstance(told, PatchCondition)] == [patch]


@pytest.mark.parametrize("outcome", [WriteOutcome.RETRY, WriteOutcome.LOST])
def test_a_refused_condition_comes_back_to_the_state(outcome: WriteOutcome) -> None:
    told: list[PatchCondition] = []
    key = PodKey("default", "p", "1")
    patch = PatchCondition(key, names.UNSCHEDULABLE, "no room")

    async def patch_condition(_: PatchCondition) -> Result:
        return Result(outcome, "429")

    dispatcher = _dispatcher(
        writer={"patch_condition": patch_condition},
        state={
            "cache": SimpleNamespace(pods={"1": SimpleNamespace(node="")}),
            "notices": SimpleNamespace(failed=lambda patch, now: told.append(patch)),
        },
    )

    async def once() -> None:
        dispatcher.dispatch([patch])
        await asyncio.sleep(0.05)

    asyncio.run(once())
    assert told == [patch]


def test_a_later_condition_does_not_swallow_a_nomination_that_is_not_sent_yet() -> None:
    key = PodKey("default", "p", "1")
    dispatcher = _dispatcher()

    async def both() -> None:
        dispatcher.dispatch([PatchCondition(key, names.UNSCHEDULABLE, "first", nominated_node="n1")])
        dispatcher.dispatch([PatchCondition(key, names.UNSCHEDULABLE, "second")])
        assert dispatcher._latest_patch[key] == PatchCondition(key, names.UNSCHEDULABLE, "second", nominated_node="n1")
        dispatcher.patches.stop()

    asyncio.run(both())


@pytest.mark.parametrize("kind", ["condition", "eviction"])
def test_writes_that_hang_for_one_namespace_stop_no_others(kind: str) -> None:
    """Beyond the slots, which are given back after a moment."""
    done: list[str] = []

    async def write(instruction: PatchCondition | Evict) -> Result:
        if instruction.pod.namespace == "bad":
            await asyncio.Event().wait()
        done.append(instruction.pod.name)
        return Result(WriteOutcome.DONE)

    pods = [PodKey("bad", f"b{i}", f"b{i}") for i in range(100)] + [PodKey("good", "g", "g")]
    dispatcher = _dispatcher(
        time.monotonic,
        writer={"patch_condition": write, "carry_out": write},
        state={"cache": SimpleNamespace(pods={p.uid: SimpleNamespace(node="") for p in pods})},
    )

    async def course() -> None:
        condition = [PatchCondition(key, names.UNSCHEDULABLE, "no room") for key in pods]
        dispatcher.dispatch(condition if kind == "condition" else [Evict(key, "for the test") for key in pods])
        sender: Sender[Any] = dispatcher.patches if kind == "condition" else dispatcher.others
        async with asyncio.timeout(10.0):
            while not done:
                await asyncio.sleep(0.02)
        assert len(sender.turns.apart("bad")) <= PATCHERS
        sender.stop()
        for task in sender.tasks:
            task.cancel()

    asyncio.run(course())
    assert done == ["g"]


def _dispatcher(clock: Callable[[], float] = lambda: 0.0, **parts: Any) -> Dispatcher:
    state = SimpleNamespace(bindings=SimpleNamespace(turns=Turns(1)), **parts.get("state", {}))
    writer = SimpleNamespace(**parts.get("writer", {}))
    return Dispatcher(state, writer, clock, asyncio.Event(), lambda: "")  # type: ignore[arg-type]


def _solver() -> Any:
    from model_scheduler import SOLVER

    return SOLVER


# Preemption


def test_a_nomination_that_came_to_nothing_is_taken_back() -> None:
    """Otherwise the room would be held from all pods of lower priority for good."""
    running = scheduler(b.node("n1", "2"), preemption=True)
    (low,) = running.create(b.pod("low", cpu="2", node="n1", priority=1, scheduler="other"))
    running.create(b.pod("high", cpu="2", priority=10))
    running.round()
    assert evicted(running) == ["low"]
    running.put(b.node("n1", "1"))
    running.server.remove(low)
    running.deliver()
    running.server.now += 20.0
    running.round()
    running.deliver()
    assert running.conditions("high")[-1].nominated_node == ""
    (high,) = [e for e in running.state.cache.pods.values() if e.key.name == "high"]
    assert not high.nominated and not running.state.cache.nominated
    running.create(b.pod("small", cpu="500m", priority=5))
    assert [bind.pod.name for bind in running.round()] == ["small"]


def test_a_nomination_that_is_taken_back_from_outside_holds_nothing() -> None:
    running = scheduler(b.node("n1", "2"))
    (pod,) = running.create(b.pod("theirs", cpu="2", priority=9, scheduler="other"))
    nominated = replace(pod, status=replace(pod.status, nominated_node_name="n1"))
    running.put(nominated)
    running.create(b.pod("ours", cpu="1"))
    assert running.round() == []
    running.put(replace(nominated, status=replace(pod.status, nominated_node_name="")))
    running.server.now += 400.0
    assert [bind.pod.name for bind in running.round()] == ["ours"]


def test_room_that_is_made_for_one_is_not_counted_for_another() -> None:
    running = scheduler(b.node("n1", "4"), preemption=True)
    for name in ("l1", "l2"):
        running.create(b.pod(name, cpu="2", node="n1", priority=1, scheduler="other"))
    running.create(b.pod("first", cpu="2", priority=10))
    running.round()
    (gone,) = evicted(running)
    leaving = next(p for p in running.server.pods.values() if p.metadata.name == gone)
    running.put(replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:10Z")))
    running.create(b.pod("second", cpu="2", memory="1Gi", priority=9))
    running.round()
    assert sorted(evicted(running)) == ["l1", "l2"], "what leaves is the first one's"


def test_two_that_need_room_in_one_round_evict_no_more_than_they_need() -> None:
    running = scheduler(b.node("n1", "6"), preemption=True)
    for name in ("l1", "l2", "l3"):
        running.create(b.pod(name, cpu="2", node="n1", priority=1, scheduler="other"))
    running.create(b.pod("first", cpu="2", priority=10), b.pod("second", cpu="2", memory="1Gi", priority=10))
    running.round()
    assert len(evicted(running)) == 2


def test_an_attempt_with_preemption_is_told_once() -> None:
    running = scheduler(b.node("n1", "2"), preemption=True)
    running.create(b.pod("low", cpu="2", node="n1", priority=1, scheduler="other"))
    running.create(b.pod("high", cpu="2", priority=10))
    running.round()
    (patch,) = running.conditions("high")
    assert patch.nominated_node == "n1"
    (event,) = running.events("high")
    assert event.note == patch.message


# Metrics


def test_time_behind_gates_is_no_latency() -> None:
    running = scheduler(b.node("n1"))
    (gated,) = running.create(b.pod("p", cpu="1", schedulingGates=[{"name": "example.com/hold"}]))
    running.server.now += 3600.0
    running.put(replace(gated, spec=replace(gated.spec, scheduling_gates=[])))
    running.server.now += 2.0
    running.round()
    running.send()
    running.reply()
    assert running.state.tallies.bound == [(2.0, 1)]


@pytest.mark.parametrize(
    ("created", "seen", "since"),
    [(0.7, 0.7, 0.7), (0.2, 0.9, 0.9), (0.99, 1.02, 1.0), (0.2, 5.0, 0.0), (0.2, -0.5, 0.0)],
)
def test_latency_begins_when_the_watch_first_showed_the_pod(created: float, seen: float, since: float) -> None:
    """The API server names whole seconds. A pod that was there long before is as old as it says."""
    running = scheduler(b.node("n1"))
    start = running.server.now
    running.server.now = start + created
    running.server.put(b.pod("p", cpu="1"))
    running.server.now = start + seen
    running.deliver()
    running.server.now = start + 6.0
    running.round()
    running.send()
    running.reply()
    ((waited, _),) = running.state.tallies.bound
    assert waited == pytest.approx(6.0 - since, abs=1e-6)


def test_pods_that_no_node_could_take_count_as_attempts() -> None:
    running = scheduler(b.node("n1"))
    running.create(b.pod("p", cpu="1", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]))
    running.round()
    assert [result for result, _, _ in running.state.tallies.attempts] == ["unschedulable"]


def test_the_solver_is_timed() -> None:
    running = scheduler(b.node("n1"))
    # A pod that is alone needs no solver.
    running.create(b.pod("p", cpu="1"), b.pod("q", cpu="1"))
    given, _ = running.state.begin_round(running.now)
    assert given is not None
    ticks = iter(range(10_000))
    assert plan_round(given, _solver(), None, clock=lambda: float(next(ticks))).solve_ms > 0.0


# Days of running


def test_nodes_and_namespaces_that_are_gone_leave_nothing() -> None:
    running = scheduler()
    cache = running.state.cache
    for i in range(5):
        name = f"n{i}"
        running.put(b.node(name))
        made = running.create(b.pod("p", namespace=f"space-{i}", cpu="1", node=name))
        gone = running.server.nodes[name]
        # Either may go first.
        for thing in (made[0], gone) if i % 2 else (gone, made[0]):
            running.server.remove(thing)
            running.deliver()
    assert not cache._on_missing_node and not cache._index._uids and not cache.pods


def test_what_hosts_remember_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured loads are never twice the same, and a host is made for each."""
    monkeypatch.setattr(runtime, "_MOST_HOSTS", 3)
    factory = runtime.HostFactory(CATALOGUE)
    kinds = sorted(CATALOGUE.machine_types)[:5]
    first = factory.host(kinds[0])
    for kind in kinds[1:]:
        factory.host(kind)
        assert factory.host(kinds[0]) is first, "what is in use stays"
    assert len(factory._hosts) == 3


def test_rates_that_a_host_remembers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_MOST_RATES", 4)
    host = runtime.HostFactory(CATALOGUE).host(next(iter(CATALOGUE.machine_types)))
    job = next(iter(CATALOGUE.jobs))
    wanted = [(runtime.Occupant(job, host.stage(job, 0.0), 1, (0,), 1.0 + i),) for i in range(20)]
    assert [host.rates(o).progress for o in wanted] == [host.rates(o).progress for o in wanted]
    assert len(host._memory) <= 5


def test_relations_that_are_not_named_any_more_leave_nothing() -> None:
    """With every rollout of a Deployment there is another one."""
    running = scheduler(b.node("n1"))
    for i in range(5):
        near = [b.pod_term("kubernetes.io/hostname", b.selector(version=str(i)))]
        namespace = f"space-{i}"
        (pod,) = running.create(b.pod(f"p{i}", namespace=namespace, affinity=b.affinity(apart=near), node="n1"))
        running.server.remove(pod)
        running.deliver()
    running.state.tidy()
    index = running.state.cache.relations
    assert not index._shelves and not index._counted


# Large clusters


def test_a_round_asks_filters_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking holds up the event loop, and with it the lease. No pod is passed over, and priorities stay in order."""
    monkeypatch.setattr(participants, "MOST_QUESTIONS", 12)
    running = scheduler(*(b.node(f"n{i}", "2", labels={"kubernetes.io/hostname": f"n{i}"}) for i in range(4)))
    for i in range(8):
        where = {"kubernetes.io/hostname": f"n{i % 4}"}
        extra = {"example.com/no": "1"} if i >= 4 else {}
        running.create(b.pod(f"p{i}", cpu="1", nodeSelector={**where, **extra}, priority=i))
    assert running.begin()
    assert running.given is not None
    assert [c.priority for c in running.given.classes] == [7, 6, 5]
    running.plan()
    running.end()
    assert running.state.next_round_s(running.now) is not None
    running.settle()
    assert running.where() == {f"p{i}": f"n{i}" for i in range(4)}
    assert {e.key.name for e in running.state.cache.pods.values() if e.message} == {"p4", "p5", "p6", "p7"}


def test_a_group_is_not_torn_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participants, "MOST_QUESTIONS", 2)
    running = scheduler(b.node("n1", labels={"a": "1"}), b.node("n2", labels={"a": "2"}))
    group = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    running.create(*(b.pod(f"g{i}", cpu="1", labels=group, nodeSelector={"a": str(i)}) for i in (1, 2)))
    assert not running.round(), "what the second one asks for is asked in the next"
    assert {bind.pod.name: bind.node for bind in running.round()} == {"g1": "n1", "g2": "n2"}


def test_a_pod_that_is_put_back_was_never_taken() -> None:
    queue = PodQueue()
    keys = [PodKey("default", name, name) for name in ("a", "b")]
    for key in keys:
        queue.add(key)
    before = dict(queue.incoming)
    assert queue.take(0.0) == keys
    queue.put_back(keys[1])
    assert queue.sizes()["active"] == 1 and queue.attempts(keys[1]) == 0 and queue.in_flight() == 1
    assert queue.incoming == before
    assert queue.take(0.0) == [keys[1]]


# On a real API server


@pytest.fixture
def site(plane: Plane, space: Space, tmp_path: Path) -> Iterator[Site]:
    with running_scheduler(plane, tmp_path) as started, site_of(started, space) as made:
        yield made


def test_a_kubelets_refusal_is_counted(site: Site) -> None:
    site.node(cpu="1")
    site.pod("refused", cpu="1")
    site.bound("refused")
    # Only then does no other program write its phase.
    wait_for(lambda: site.space.pod("refused")["status"]["phase"] == "Running", "it to run")
    refusal = {"status": {"phase": "Failed", "reason": "OutOfcpu"}}
    site.space.admin.patch(f"{site.space.pods_path}/refused/status", refusal)
    counted = {"reason": "OutOfcpu"}
    wait_for(lambda: site.scheduler.metric("flowsched_kubelet_rejections_total", **counted) == 1, "the refusal")
    site.pod("next", cpu="1")
    site.bound("next")

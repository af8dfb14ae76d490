"""A pod that leaves wakes those that it may help; tens of thousands without hope keep no other pod waiting."""

from __future__ import annotations

import numpy as np
import objects_builders as b
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import CATALOGUE, SOLVER, ModelScheduler
from model_server import ModelServer, key_of

from flowsched_k8s import state
from flowsched_k8s.causes import Cause, Wake
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.pods.filters import StaticFilter
from flowsched_k8s.preemption.node_room import NodeRoom
from flowsched_k8s.queue import AttemptOutcome, PodQueue
from flowsched_k8s.rounds.planning import plan_round
from flowsched_k8s.state import SchedulerState
from flowsched_k8s.waiting_kinds import WaitingKind, WaitingKinds

PREEMPTING = Configuration(features=Features(preemption=True))


# What a node has for those that wait

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 6), max_size=3)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(-1, 3), AMOUNTS), max_size=5),
    AMOUNTS,
    st.lists(st.tuples(AMOUNTS, st.integers(-1, 4), st.booleans(), st.booleans()), max_size=6),
    st.integers(0, 6),
)
def test_kinds_that_a_node_helps_are_found_at_once_as_one_by_one(
    there: list[tuple[int, dict[str, int]]],
    free: dict[str, int],
    waiting: list[tuple[dict[str, int], int, bool, bool]],
    kept: int,
) -> None:
    resources = ["memory", "cpu"]
    room = NodeRoom.of(resources, np.array([free.get(r, 0) - 2 for r in resources]), there)
    kinds, open_, shut = WaitingKinds(), StaticFilter(), StaticFilter(selector=(("zone", "b"),))
    for i, (needs, priority, preempts, passes) in enumerate(waiting):
        kinds.put(
            i, WaitingKind(needs, priority, preempts, open_ if passes else shut, frozenset({f"r{i}"}), frozenset())
        )
    kinds = kinds.only(range(kept))
    expected = {}
    for i, (needs, priority, preempts, passes) in enumerate(waiting[:kept]):
        gone = [frees for p, frees in there if preempts and p < priority]
        has = {r: free.get(r, 0) - 2 + sum(frees.get(r, 0) for frees in gone) for r in resources}
        many = min((max(0, has.get(r, 0)) // n for r, n in needs.items() if n), default=None)
        assert room.places(needs, priority if preempts else None) == (np.iinfo(np.int64).max if many is None else many)
        if passes and many != 0:
            expected[i] = np.iinfo(np.int64).max if many is None else many
    assert kinds.helped_by(room, lambda static: static is open_) == expected
    assert kinds.related_to(["r1", "r9"]) == ({1} if len(waiting[:kept]) > 1 else set())


# The queue


def keys(count: int) -> list[PodKey]:
    return [PodKey("n", f"p{i:03}", f"u{i}") for i in range(count)]


def stopped(count: int, *kinds: str) -> tuple[PodQueue, list[PodKey]]:
    """A queue of pods that found no room, of these kinds in turn."""
    queue, pods = PodQueue(), keys(count)
    for key in pods:
        queue.add(key)
    for i, key in enumerate(queue.take(0.0)):
        queue.requeue(key, 0.0, AttemptOutcome.UNSCHEDULABLE, causes={Cause.RESOURCES}, like=kinds[i % len(kinds)])
    return queue, pods


def test_only_so_many_are_woken_as_there_is_room_for() -> None:
    queue, pods = stopped(6, "small", "large")
    assert queue.wake(Wake.POD_GONE, 20.0, lambda key: 2 if key == pods[0] else False) == 2
    assert queue.take(20.0) == [pods[0], pods[2]]
    assert queue.wake(Wake.POD_GONE, 20.0, lambda _: True, among=["large", "unknown"]) == 3


def test_another_of_its_kind_takes_the_turn_of_one_that_is_deleted() -> None:
    queue, pods = stopped(3, "one")
    queue.wake(Wake.POD_GONE, 20.0, lambda _: 1)
    queue.remove(pods[0])
    assert queue.take(20.0) == [pods[1]]
    queue.remove(pods[1])
    assert queue.take(20.0) == [], "one that was placed took its turn"


def test_no_more_come_back_from_a_round_than_room_came_meanwhile() -> None:
    queue, _ = stopped(4, "one")
    queue.wake(Wake.NODE_ADDED, 20.0)
    for key in (taken := queue.take(20.0)):
        if key == taken[0]:
            queue.wake(Wake.POD_GONE, 20.0, lambda _: 1)
        queue.requeue(key, 20.0, AttemptOutcome.UNSCHEDULABLE, causes={Cause.RESOURCES}, like="one")
    assert queue.sizes()["backoff"] == 1


def test_those_without_hope_come_in_slices_and_the_others_at_once() -> None:
    queue, pods = stopped(10, "one", "two")
    queue.wake(Wake.ANY, 20.0)
    fresh = PodKey("n", "zzz", "z")
    queue.add(fresh, priority=-5)
    assert queue.prompt() == 1
    assert queue.take(20.0, later=3) == [*pods[:3], fresh]
    assert queue.take(20.0, kinds=1) == [pods[3]]
    assert queue.take(20.0, 2) == pods[4:6]
    assert queue.take(20.0) == pods[6:]


# The state machine


def test_a_departure_wakes_only_pods_that_could_fit_or_preempt_there() -> None:
    server = ModelServer()
    for name, size in (("n1", "4"), ("n2", "4")):
        server.put(b.node(name, size))
        for i in range(4):
            server.put(b.pod(f"{name}-{i}", node=name, cpu="1", priority=5 if i else 0))
    running = ModelScheduler(server, PREEMPTING)
    # The second could go to n1 if 3 CPUs left there, and elsewhere it may not.
    running.create(
        b.pod("larger", cpu="5", priority=9),
        b.pod("there", cpu="3", priority=3, nodeSelector={"kubernetes.io/hostname": "n1"}),
        b.pod("gentle", cpu="1", priority=3, preemptionPolicy="Never"),
        b.pod("plain", cpu="2", priority=0),
    )
    running.round()
    assert running.state.queue.sizes()["unschedulable"] == 4

    def woken(name: str) -> list[str]:
        running.server.now += 20.0
        running.server.remove(running.server.pods["default", name])
        running.deliver()
        active = running.state.queue.take(running.now)
        for key in active:
            running.state.queue.put_back(key)
        return sorted(key.name for key in active)

    assert woken("n2-1") == ["gentle"]
    assert [bind.pod.name for bind in running.round()] == ["gentle"]
    assert woken("n1-1") == []
    assert woken("n1-2") == ["plain", "there"]


def test_thousands_without_hope_are_not_woken_by_departures_and_hold_up_no_round() -> None:
    count = 3_000
    now = 1e9
    running = SchedulerState(PREEMPTING, CATALOGUE)
    running.observe([Seen(b.node(f"n{i}", "4")) for i in range(20)], now)
    there = [b.pod(f"r{i}-{j}", node=f"n{i}", cpu="1") for i in range(20) for j in range(4)]
    running.observe([Seen(pod) for pod in there], now)
    running.activate()

    def round_() -> tuple[int, set[str]]:
        given, _ = running.begin_round(now)
        assert given is not None
        result = plan_round(given, SOLVER, clock=lambda: 0.0)
        running.end_round(result, now)
        return sum(len(c.uids) for c in given.classes), {chosen.uid for chosen in result.chosen}

    hopeless = [b.pod(f"h{i}", cpu="5", priority=9) for i in range(count)]
    running.observe([Seen(pod) for pod in hopeless], now)
    while running.queue.sizes()["active"]:
        round_()
    assert running.queue.sizes()["unschedulable"] == count
    before = running.queue.incoming.copy()
    for pod in there[:20]:
        now += 1.0
        running.observe([Gone(pod)], now)
    assert running.queue.incoming == before
    # All are tried again: what comes meanwhile is decided in the next round.
    now += 400.0
    fresh = b.pod("fresh", cpu="1")
    running.observe([Seen(fresh)], now)
    taken, chosen = round_()
    assert taken == state.MOST_LATER + 1 and chosen == {key_of(fresh).uid}
    rounds = 1
    while running.queue.next_wake(now) == now:
        round_()
        rounds += 1
    assert rounds == count / state.MOST_LATER
    # As many that are like them come, and one that is not.
    running.observe([Seen(b.pod(f"more{i}", cpu="5", priority=9)) for i in range(count)], now)
    running.observe([Seen(b.pod("other", cpu="2"))], now)
    rounds = 0
    while running.queue.next_wake(now) == now:
        taken, chosen = round_()
        assert (taken, len(chosen)) == (state.MOST_LATER + (not rounds), not rounds)
        rounds += 1
    assert rounds == count / state.MOST_LATER
    assert running.queue.sizes()["unschedulable"] == 2 * count
    assert all(running.queue.attempts(key) == 1 for key in running.queue if key.name.startswith("more"))


def backed_off() -> tuple[ModelScheduler, str]:
    """A full node, and a pod that has just found no room there for the fourth time."""
    server = ModelServer()
    server.put(b.node("n1", "4"))
    server.put(b.pod("there", cpu="4", node="n1", status={"phase": "Running"}))
    running = ModelScheduler(server)
    (small,) = running.create(b.pod("small", cpu="2"))
    for _ in range(4):
        server.now += 20.0
        running.state.queue.touch(key_of(small), server.now)
        assert not running.round()
    return running, small.metadata.uid


def leaves_and_comes(running: ModelScheduler) -> list[str]:
    """A tenth of a second later the node is empty, and a pod has come that needs all of it; what a round binds then."""
    running.server.now += 0.1
    running.server.remove(running.server.pods["default", "there"])
    running.create(b.pod("new", cpu="4"))
    at = running.state.next_round_s(running.now)
    assert at is not None and at - running.now < 0.1
    return [bind.pod.name for bind in running.round()]


def test_a_pod_in_backoff_is_in_the_round_of_one_that_comes_for_the_room_that_it_waits_for() -> None:
    running, _ = backed_off()
    assert leaves_and_comes(running) == ["small"]


def test_a_pod_in_backoff_after_a_fault_is_in_no_round_of_others() -> None:
    running, uid = backed_off()
    entry = running.state.cache.pods[uid]
    running.state.queue.touch(entry.key, running.now)
    running.server.now += 20.0
    assert running.begin()
    assert running.given is not None
    running.state.round_failed(running.given, "for the test", running.now)
    assert leaves_and_comes(running) == ["new"]


def test_a_pod_in_backoff_that_room_comes_for_has_a_round_of_its_own_after_a_second() -> None:
    running, _ = backed_off()
    tried_s = running.now
    running.server.now += 0.1
    running.server.remove(running.server.pods["default", "there"])
    running.deliver()
    assert running.state.next_round_s(running.now) == tried_s + 1.0

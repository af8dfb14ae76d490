"""The queue of waiting pods: nothing is lost, nothing waits longer than it may, nothing is tried too often."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from flowsched_k8s import names
from flowsched_k8s.causes import HELPS, Cause, Wake, causes_of
from flowsched_k8s.instructions import PodKey
from flowsched_k8s.queue import (
    ATTEMPT_FAILED,
    BACKOFF_COMPLETE,
    GATES_GONE,
    JOINED,
    LONGEST,
    MOST_JOINING,
    POD_ADDED,
    TIMED_OUT,
    AttemptOutcome,
    Place,
    PodQueue,
)

RETRY_S = 300.0
QUEUES = ("active", "backoff", "unschedulable", "gated")


def key(name: str) -> PodKey:
    return PodKey("default", name, f"uid-{name}")


def stuck(*, causes: tuple[Cause, ...] = (Cause.RESOURCES,), at: float = 0.0, name: str = "a") -> PodQueue:
    """A queue with one pod that was found unschedulable."""
    queue = PodQueue()
    queue.add(key(name))
    assert queue.take(at) == [key(name)]
    queue.requeue(key(name), at, AttemptOutcome.UNSCHEDULABLE, causes=causes)
    return queue


@dataclass
class Waiting:
    """What the model knows about a pod."""

    rank: tuple[int, float, PodKey]
    gated: bool
    earliest: float
    latest: float
    """When it must have been taken, if pods are taken and its gates are open."""
    failures: int = 0
    tried: float = 0.0
    causes: frozenset[Cause] = frozenset()
    """What something must help for the pod to be tried before its time; none after an error."""
    like: str | None = None
    missed: set[Wake] = field(default_factory=set)
    """What has come for it in particular while it was in flight."""

    def help(self, now: float) -> None:
        """Something has come: it may be taken with others at once, and is after the first backoff."""
        self.earliest = min(self.earliest, now)
        self.latest = min(self.latest, max(now, self.tried + 1.0))


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of calls, on a clock that never goes back."""

    pods = Bundle("pods")
    flying = Bundle("flying")

    @initialize()
    def start(self) -> None:
        self.queue = PodQueue(postpone_s=2.0)
        self.now = 0.0
        self.count = 0
        self.waiting: dict[PodKey, Waiting] = {}
        self.in_flight: dict[PodKey, Waiting] = {}

    @rule(target=pods, priority=st.integers(-1, 2), created=st.integers(0, 3), gated=st.booleans())
    def add(self, priority: int, created: int, gated: bool) -> PodKey:
        pod = key(f"{(self.count * 7) % 10}-{self.count}")
        self.count += 1
        self.queue.add(pod, priority=priority, created_s=float(created), gated=gated)
        self.waiting[pod] = Waiting((-priority, float(created), pod), gated, self.now, self.now)
        return pod

    @rule(pod=pods)
    def add_again(self, pod: PodKey) -> None:
        """What a relist does."""
        waiting = self.waiting.get(pod) or self.in_flight.get(pod)
        if waiting is not None:
            self.queue.add(pod, gated=waiting.gated)

    @rule(pod=consumes(pods))
    def remove(self, pod: PodKey) -> None:
        known = pod in self.waiting or pod in self.in_flight
        self.passes_on(self.waiting.pop(pod, None))
        self.in_flight.pop(pod, None)
        assert self.queue.remove(pod) == known
        assert not self.queue.remove(pod)

    def passes_on(self, gone: Waiting | None) -> None:
        """One of its kind may be taken instead."""
        for other in self.waiting.values():
            if gone is not None and other.like == gone.like:
                other.earliest = min(other.earliest, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 11.0, 150.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=flying, limit=st.none() | st.integers(0, 3))
    def take(self, limit: int | None) -> object:
        taken = self.queue.take(self.now, limit)
        ranks = [self.waiting[pod].rank for pod in taken]
        assert all(one < other for one, other in pairwise(ranks)), "out of order"
        for pod in taken:
            waiting = self.waiting.pop(pod)
            assert not waiting.gated
            assert waiting.earliest <= self.now, "taken before its time"
            waiting.missed.clear()
            self.in_flight[pod] = waiting
        due = [w for w in self.waiting.values() if not w.gated and w.latest <= self.now]
        if limit is None or len(taken) < limit:
            assert not due, "due, and not taken"
            assert self.queue.next_wake(self.now) != self.now
        elif taken:
            assert all(w.rank > ranks[-1] for w in due), "passed over"
        return multiple(*taken)

    @rule(target=flying, pod=pods)
    def claim(self, pod: PodKey) -> object:
        """What the rest of a group does to a pod whose turn it is not."""
        waiting = self.waiting.get(pod)
        assert self.queue.claim(pod) == (waiting is not None and not waiting.gated)
        if waiting is None or waiting.gated:
            return multiple()
        self.in_flight[pod] = self.waiting.pop(pod)
        self.in_flight[pod].missed.clear()
        return pod

    @rule(
        pod=consumes(flying),
        outcome=st.sampled_from(
            [AttemptOutcome.ERROR, AttemptOutcome.RETRY, AttemptOutcome.UNSCHEDULABLE, AttemptOutcome.POSTPONED]
        ),
        causes=st.sets(st.sampled_from([Cause.RESOURCES, Cause.TAINTS, Cause.GROUP, Cause.UNSUPPORTED]), max_size=2),
        like=st.sampled_from([None, "small", "large"]),
    )
    def requeue(self, pod: PodKey, outcome: AttemptOutcome, causes: set[Cause], like: str | None) -> None:
        self.queue.requeue(pod, self.now, outcome, causes=causes, like=like)
        waiting = self.in_flight.pop(pod, None)
        if waiting is None:
            return
        self.waiting[pod] = waiting
        waiting.tried, waiting.like = self.now, like
        waiting.causes = frozenset(causes or {Cause.OTHER})
        if outcome is AttemptOutcome.POSTPONED:
            waiting.earliest = waiting.latest = self.now + 2.0
        else:
            waiting.failures += 1
            waiting.earliest = self.now + min(2.0 ** (waiting.failures - 1), 10.0)
            waiting.latest = self.now + RETRY_S if outcome is AttemptOutcome.UNSCHEDULABLE else waiting.earliest
        if outcome in (AttemptOutcome.ERROR, AttemptOutcome.RETRY):
            waiting.causes = frozenset()
        if any(event in HELPS[cause] for cause in waiting.causes for event in waiting.missed):
            waiting.help(self.now)

    @rule(pod=consumes(flying), restored=st.booleans(), failed=st.booleans())
    def done(self, pod: PodKey, restored: bool, failed: bool) -> None:
        waiting = self.in_flight.pop(pod, None)
        if waiting is None:
            return
        self.queue.remove(pod)
        if restored:
            attempts = failed * (1 + waiting.failures)
            priority, created = -waiting.rank[0], waiting.rank[1]
            for _ in range(2):
                self.queue.restore(pod, self.now, priority=priority, created_s=created, failures=attempts)
            until = self.now + (min(2.0 ** (attempts - 1), 10.0) if failed else 0.0)
            self.waiting[pod] = Waiting(waiting.rank, False, until, until, attempts)

    @rule(event=st.sampled_from(sorted(Wake)), match=st.sampled_from([None, True, False]))
    def wake(self, event: Wake, match: bool | None) -> None:
        before = self.queue.sizes()["unschedulable"]
        moved = self.queue.wake(event, self.now, None if match is None else lambda _: bool(match))
        assert self.queue.sizes()["unschedulable"] == before - moved
        assert match is not False or not moved
        for waiting in self.in_flight.values() if match else ():
            waiting.missed.add(event)
        for waiting in self.waiting.values() if match else ():
            if any(event in HELPS[cause] for cause in waiting.causes):
                waiting.help(self.now)

    @rule(pod=pods)
    def gate(self, pod: PodKey) -> None:
        self.passes_on(self.waiting.get(pod))
        self.queue.gate(pod)
        for waiting in (self.waiting.get(pod), self.in_flight.get(pod)):
            if waiting is not None:
                waiting.gated = True

    @rule(pod=pods)
    def ungate(self, pod: PodKey) -> None:
        self.queue.ungate(pod)
        waiting = self.waiting.get(pod)
        if waiting is not None and waiting.gated:
            waiting.earliest = waiting.latest = self.now
        for known in (waiting, self.in_flight.get(pod)):
            if known is not None:
                known.gated = False

    @rule(pod=pods)
    def touch(self, pod: PodKey) -> None:
        self.queue.touch(pod, self.now)

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        if not hasattr(self, "queue"):
            return
        sizes = self.queue.sizes()
        assert tuple(sizes) == QUEUES
        assert sum(sizes.values()) == len(self.waiting)
        assert self.queue.in_flight() == len(self.in_flight)
        assert len(self.queue) == len(self.waiting) + len(self.in_flight)
        assert sizes["gated"] == sum(w.gated for w in self.waiting.values())
        assert all(self.queue.place(pod) is Place.IN_FLIGHT for pod in self.in_flight)
        places = [self.queue.place(pod) for pod in self.waiting]
        assert all(sizes[queue] == places.count(Place(queue)) for queue in QUEUES)
        stopped = self.queue.unschedulable().values()
        assert max(stopped, default=0) <= sizes["unschedulable"] <= sum(stopped)

    @invariant()
    def the_next_look_is_announced(self) -> None:
        if not hasattr(self, "queue"):
            return
        wake = self.queue.next_wake(self.now)
        open_pods = [w for w in self.waiting.values() if not w.gated]
        assert (wake is None) == (not open_pods)
        assert wake is None or self.now <= wake <= max(self.now, min(w.latest for w in open_pods))


TestQueue = QueueMachine.TestCase


def test_priority_then_age_then_name() -> None:
    queue = PodQueue()
    for name, priority, created in (("d", 0, 2.0), ("c", 0, 1.0), ("b", 0, 1.0), ("a", -5, 0.0), ("e", 9, 3.0)):
        queue.add(key(name), priority=priority, created_s=created)

    assert queue.take(5.0, 2) == [key("e"), key("b")]
    assert queue.take(5.0) == [key("c"), key("d"), key("a")]
    assert queue.take(5.0) == []


def test_failures_wait_one_second_doubling_to_ten() -> None:
    queue = PodQueue()
    queue.add(key("a"))
    now = 0.0
    for wait in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert queue.take(now) == [key("a")]
        queue.requeue(key("a"), now, AttemptOutcome.ERROR)
        assert queue.next_wake(now) == now + wait
        assert queue.take(now + wait - 0.001) == []
        now += wait
    assert queue.attempts(key("a")) == 6


def test_a_pod_that_always_fails_overflows_nothing() -> None:
    queue = PodQueue()
    queue.add(key("a"))
    for attempt in range(3000):
        assert queue.take(attempt * 10.0)
        queue.requeue(key("a"), attempt * 10.0, AttemptOutcome.RETRY)
    assert queue.next_wake(29990.0) == 30000.0


def test_postponing_is_no_failure() -> None:
    queue = PodQueue(postpone_s=0.5)
    queue.add(key("a"))
    for attempt in range(5):
        assert queue.take(attempt * 0.5) == [key("a")]
        queue.requeue(key("a"), attempt * 0.5, AttemptOutcome.POSTPONED)
        assert queue.take(attempt * 0.5 + 0.4) == []
    assert queue.take(2.5) == [key("a")]
    queue.requeue(key("a"), 60.0, AttemptOutcome.ERROR)
    assert queue.next_wake(60.0) == 61.0


@pytest.mark.parametrize("cause", sorted(Cause))
@pytest.mark.parametrize("event", sorted(Wake))
def test_only_a_change_that_may_help_wakes(cause: Cause, event: Wake) -> None:
    queue = stuck(causes=(cause,))

    assert queue.wake(event, 5.0) == (event in HELPS[cause])
    assert queue.take(5.0) == ([key("a")] if event in HELPS[cause] else [])


@pytest.mark.parametrize("cause", sorted(Cause))
def test_whatever_stopped_it_is_looked_at_again_after_five_minutes(cause: Cause) -> None:
    queue = stuck(causes=(cause,))

    assert queue.next_wake(0.0) == RETRY_S
    assert queue.take(RETRY_S - 0.001) == []
    assert queue.take(RETRY_S) == [key("a")]
    assert queue.incoming["active", TIMED_OUT] == 1


def test_a_wake_does_not_shorten_the_backoff() -> None:
    queue = stuck(at=100.0)

    assert queue.wake(Wake.NODE_ADDED, 100.25) == 1
    assert queue.sizes() == {"active": 0, "backoff": 1, "unschedulable": 0, "gated": 0}
    assert queue.next_wake(100.25) == 101.0


def backed_off(outcome: AttemptOutcome, failures: int = 4) -> tuple[PodQueue, float]:
    """A queue with one pod of so many failed attempts, the last of which ended at the time that is given."""
    queue, now = PodQueue(postpone_s=5.0), 0.0
    queue.add(key("a"))
    for attempt in range(failures):
        now = 100.0 * attempt
        assert queue.take(now) == [key("a")]
        last = attempt == failures - 1
        queue.requeue(key("a"), now, outcome if last else AttemptOutcome.ERROR, causes={Cause.RESOURCES}, like="small")
    return queue, now


@pytest.mark.parametrize("outcome", [AttemptOutcome.UNSCHEDULABLE, AttemptOutcome.POSTPONED])
def test_a_pod_that_room_came_for_takes_part_in_a_round_of_others(outcome: AttemptOutcome) -> None:
    queue, now = backed_off(outcome)
    queue.wake(Wake.POD_GONE, now + 0.1, lambda _: 1)
    assert queue.take(now + 0.2) == [], "no round is held yet"
    queue.add(key("b"), created_s=now)
    assert queue.take(now + 0.2) == [key("a"), key("b")]
    assert queue.incoming["active", JOINED] == 1


def test_no_more_pods_in_backoff_join_a_round_than_may() -> None:
    queue, many = PodQueue(), 3 * MOST_JOINING
    for number in range(many):
        queue.add(key(f"old-{number:03}"), created_s=float(number))
    for name in queue.take(0.0):
        queue.requeue(name, 0.0, AttemptOutcome.UNSCHEDULABLE, causes={Cause.RESOURCES}, like="small")
    queue.wake(Wake.POD_GONE, 0.1, lambda _: many)
    queue.add(key("new"), created_s=0.1)
    first = queue.take(0.2)
    assert sorted(first) == sorted([*(key(f"old-{number:03}") for number in range(MOST_JOINING)), key("new")])
    assert len(queue.take(0.9)) == 0, "no round is held for them yet"
    assert len(queue.take(1.1)) == 2 * MOST_JOINING


@pytest.mark.parametrize("outcome", [AttemptOutcome.UNSCHEDULABLE, AttemptOutcome.POSTPONED])
def test_rounds_for_a_pod_that_room_comes_for_in_vain_are_a_second_apart(outcome: AttemptOutcome) -> None:
    queue, now = backed_off(outcome)
    times = []
    for step in range(1, 101):
        at = now + step / 10.0
        queue.wake(Wake.POD_GONE, at, lambda _: 1)
        for pod in queue.take(at):
            times.append(round(at - now, 1))
            queue.requeue(pod, at, outcome, causes={Cause.RESOURCES}, like="small")
    assert times == [float(second) for second in range(1, 11)]


@pytest.mark.parametrize("outcome", [AttemptOutcome.ERROR, AttemptOutcome.RETRY])
def test_room_does_not_shorten_the_backoff_of_an_error(outcome: AttemptOutcome) -> None:
    queue, now = backed_off(outcome)
    queue.wake(Wake.POD_GONE, now + 0.1, lambda _: 1)
    queue.wake(Wake.ANY, now + 0.1, lambda _: True)
    queue.add(key("b"), created_s=now)
    assert queue.take(now + 7.9) == [key("b")]
    assert queue.take(now + 8.0) == [key("a")]


def test_no_more_pods_in_a_backoff_take_part_than_room_came_for() -> None:
    queue = PodQueue()
    for number in range(5):
        queue.add(key(f"p{number}"), created_s=float(number))
    for pod in queue.take(0.0):
        queue.requeue(pod, 0.0, AttemptOutcome.POSTPONED, causes={Cause.RESOURCES}, like="small")
    queue.wake(Wake.POD_GONE, 0.1, lambda _: 2)
    queue.add(key("new"), created_s=9.0)
    assert queue.take(0.2) == [key("p0"), key("p1"), key("new")]


def test_room_goes_to_the_pod_whose_last_attempt_is_the_longest_ago_though_it_was_touched() -> None:
    queue = PodQueue()
    for at, name in ((0.0, "a"), (0.3, "b")):
        queue.add(key(name))
        queue.take(at)
        queue.requeue(key(name), at, AttemptOutcome.UNSCHEDULABLE, causes=[Cause.RESOURCES], like="small")
    queue.touch(key("a"), 0.5)
    queue.wake(Wake.POD_GONE, 0.6, lambda _: 1)
    queue.add(key("c"))
    assert sorted(queue.take(0.7)) == [key("a"), key("c")]


def test_a_pod_is_not_alone_that_others_join() -> None:
    queue = stuck()
    queue.wake(Wake.POD_GONE, 0.2, lambda _: True)
    queue.add(key("b"))
    assert queue.alone() is None
    assert sorted(queue.take(0.3)) == [key("a"), key("b")]


def test_a_pod_without_causes_is_woken_by_everything() -> None:
    for event in Wake:
        assert stuck(causes=()).wake(event, 5.0) == 1


@pytest.mark.parametrize("match", [None, True, False])
@pytest.mark.parametrize("event", [Wake.NODE_ADDED, Wake.CLAIM])
def test_a_change_while_a_pod_is_in_flight_is_not_missed(event: Wake, match: bool | None) -> None:
    queue = PodQueue()
    queue.add(key("a"))
    queue.take(0.0)
    queue.wake(event, 0.1, None if match is None else lambda _: bool(match))
    queue.requeue(key("a"), 0.2, AttemptOutcome.UNSCHEDULABLE, causes={Cause.RESOURCES})

    missed = event is Wake.NODE_ADDED and match is not False
    assert queue.place(key("a")) is (Place.BACKOFF if missed else Place.UNSCHEDULABLE)


def test_a_change_before_a_pod_was_taken_is_no_reason_to_try_again() -> None:
    queue = PodQueue()
    queue.add(key("a"), created_s=1.0)
    queue.add(key("b"), created_s=2.0)
    queue.take(0.0, 1)
    queue.wake(Wake.NODE_ADDED, 0.1)
    queue.wake(Wake.POD_GONE, 0.1, lambda _: True)
    queue.take(0.2)
    for name in ("a", "b"):
        queue.requeue(key(name), 0.3, AttemptOutcome.UNSCHEDULABLE, causes={Cause.RESOURCES})

    assert [queue.place(key(name)) for name in ("a", "b")] == [Place.BACKOFF, Place.UNSCHEDULABLE]


def test_many_conditional_changes_in_flight_are_bounded_and_none_is_missed() -> None:
    queue = PodQueue()
    queue.add(key("a"))
    queue.take(0.0)
    queue.wake(Wake.NODE_TAINTS, 0.0, lambda _: False)
    asked = 0

    def no(_: PodKey) -> bool:
        nonlocal asked
        asked += 1
        return False

    for _ in range(10 * PodQueue.QUESTIONS):
        queue.wake(Wake.POD_GONE, 0.1, no)
    queue.requeue(key("a"), 0.2, AttemptOutcome.UNSCHEDULABLE, causes={Cause.TAINTS})
    assert asked == 0
    # An old change counts as one without condition.
    assert queue.place(key("a")) is Place.BACKOFF


def test_a_pod_that_changed_itself_is_tried_again() -> None:
    queue = stuck(causes=(Cause.UNSUPPORTED,))
    queue.touch(key("a"), 5.0)
    assert queue.take(5.0) == [key("a")]
    queue.touch(key("a"), 5.1)
    queue.requeue(key("a"), 5.2, AttemptOutcome.UNSCHEDULABLE, causes={Cause.UNSUPPORTED})
    assert queue.place(key("a")) is Place.BACKOFF


def test_pods_that_are_alike_are_asked_for_once_and_others_not_at_all() -> None:
    queue = PodQueue()
    for number in range(3000):
        queue.add(key(f"p{number}"))
    for number, pod in enumerate(queue.take(0.0)):
        cause = Cause.RESOURCES if number % 3 else Cause.NODE_AFFINITY
        queue.requeue(pod, 0.0, AttemptOutcome.UNSCHEDULABLE, causes={cause, Cause.TAINTS}, like=number % 3)
    asked: list[PodKey] = []

    def no(pod: PodKey) -> bool:
        asked.append(pod)
        return False

    for _ in range(100):
        assert queue.wake(Wake.CLAIM, 20.0, no) == 0
    assert asked == []
    assert queue.wake(Wake.POD_GONE, 20.0, no) == 0
    assert len(asked) == 2
    assert queue.wake(Wake.NODE_ADDED, 20.0, no) == 0
    assert len(asked) == 5
    assert queue.wake(Wake.NODE_ADDED, 20.0) == 3000
    assert queue.wake(Wake.NODE_ADDED, 20.0) == 0


def test_gated_pods_wait_until_their_gates_are_gone() -> None:
    queue = PodQueue()
    queue.add(key("a"), gated=True)
    assert queue.take(1000.0) == []
    assert queue.next_wake(1000.0) is None
    queue.ungate(key("a"))
    assert queue.take(1000.0) == [key("a")]
    assert queue.incoming == {("gated", POD_ADDED): 1, ("active", GATES_GONE): 1}


def test_a_pod_deleted_in_flight_stays_deleted() -> None:
    queue = PodQueue()
    queue.add(key("a"))
    queue.take(0.0)
    queue.remove(key("a"))
    queue.requeue(key("a"), 0.1, AttemptOutcome.ERROR)
    queue.remove(key("a"))
    assert len(queue) == 0
    assert key("a") not in queue
    assert (queue.place(key("a")), queue.attempts(key("a"))) == (None, 0)


def test_entries_are_counted_by_queue_and_event() -> None:
    queue = stuck()
    queue.wake(Wake.NODE_ADDED, 0.5)
    queue.take(1.0)
    queue.requeue(key("a"), 1.0, AttemptOutcome.ERROR)

    assert queue.incoming == {
        ("active", POD_ADDED): 1,
        ("unschedulable", ATTEMPT_FAILED): 1,
        ("backoff", "NodeAdd"): 1,
        ("active", BACKOFF_COMPLETE): 1,
        ("backoff", ATTEMPT_FAILED): 1,
    }


def test_what_stopped_pods_is_counted_by_plugin() -> None:
    queue = stuck(causes=(Cause.RESOURCES, Cause.TAINTS))
    assert queue.unschedulable() == {"NodeResourcesFit": 1, "TaintToleration": 1}
    queue.remove(key("a"))
    assert queue.unschedulable() == {}


def test_memory_does_not_grow_while_pods_go_round() -> None:
    queue = PodQueue()
    for number in range(50):
        queue.add(key(f"p{number}"))
    for turn in range(400):
        for pod in queue.take(turn * 20.0):
            queue.requeue(pod, turn * 20.0, AttemptOutcome.UNSCHEDULABLE, causes={Cause.RESOURCES})
        queue.wake(Wake.NODE_ADDED, turn * 20.0 + 15.0)
    assert queue.attempts(key("p0")) == 400
    assert max(len(ordered._heap) for ordered in queue._ordered.values()) <= 2 * 50 + 33


def test_reason_texts_have_causes() -> None:
    assert causes_of([names.insufficient("cpu"), names.insufficient("nvidia.com/gpu"), names.insufficient("pods")]) == {
        Cause.RESOURCES
    }
    assert causes_of([names.TAINTS, names.SPREAD_NO_LABEL]) == {Cause.TAINTS, Cause.SPREAD}
    assert causes_of(["waiting for gang quorum 3/4"]) == {Cause.OTHER}
    assert causes_of([]) == frozenset()


def retried_at(seed: int | None, outcome: AttemptOutcome, count: int = 20) -> list[float]:
    """When pods that failed together at 0 s are tried again."""
    queue = PodQueue(initial_backoff_s=1.0, rng=None if seed is None else random.Random(seed))
    names = [f"pod-{i:02d}" for i in range(count)]
    for name in names:
        queue.add(key(name))
    for taken in queue.take(0.0):
        queue.requeue(taken, 0.0, outcome)
    queue.wake(Wake.ANY, 0.0)
    times: list[float] = []
    while len(times) < count:
        at = queue.next_wake(times[-1] if times else 0.0)
        assert at is not None
        times += [at] * len(queue.take(at))
    return times


@pytest.mark.parametrize("outcome", [AttemptOutcome.RETRY, AttemptOutcome.ERROR])
def test_pods_that_failed_together_do_not_all_come_back_at_once(outcome: AttemptOutcome) -> None:
    times = retried_at(7, outcome)
    assert len(set(times)) == len(times)
    assert min(times) >= 1.0 and max(times) <= LONGEST
    assert times == retried_at(7, outcome), "the same seed draws the same"
    assert set(retried_at(None, outcome)) == {1.0}


def test_pods_that_found_no_room_come_back_together() -> None:
    assert set(retried_at(7, AttemptOutcome.UNSCHEDULABLE)) == {1.0}


def test_a_lost_binding_is_tried_again_at_a_moment_of_its_own() -> None:
    queue = PodQueue(initial_backoff_s=1.0, rng=random.Random(7))
    for name in ("a", "b"):
        queue.restore(key(name), 0.0, priority=0, created_s=0.0, failures=1)
    first = queue.next_wake(0.0)
    assert first is not None and 1.0 <= first <= LONGEST
    assert len(queue.take(first)) == 1

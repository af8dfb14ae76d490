"""Bindings of one namespace have no outcome: those of others go on, rounds too, and the pods say why they wait."""

from __future__ import annotations

from collections.abc import Callable

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.instructions import PatchCondition

WEBHOOK = '500 InternalError: failed calling webhook "guard.example.com"'
STEP_S = 0.25


class Cluster:
    """A scheduler whose bindings are sent in turn; some namespaces get no outcome."""

    def __init__(self, nodes: int = 20) -> None:
        self.server = ModelServer()
        for number in range(nodes):
            self.server.put(b.node(f"n{number}", "64", pods="110"))
        self.running = ModelScheduler(self.server)
        self.bad: Callable[[str], bool] = lambda namespace: namespace.startswith("bad")
        self.error = WEBHOOK
        self.tried = 0

    @property
    def now(self) -> float:
        return self.server.now

    def step(self) -> None:
        """A quarter of a second: a round if one is due, bindings in their turn, every second the tick."""
        running, state = self.running, self.running.state
        self.server.now += STEP_S
        running.deliver()
        at = state.next_round_s(self.now)
        if at is not None and at <= self.now and state.bindings.turns.sendable(self.now) <= 64:
            running.round()
        self.send()
        if (self.now / STEP_S) % 4 == 0:
            running._carry_out(state.bindings.without_outcome(self.now))
            running._carry_out(state.notices.again(state.waiting.postponed, self.now, state.bindings.unsettled))
        running.deliver()

    def send(self) -> None:
        running, bindings = self.running, self.running.state.bindings
        turns = bindings.turns
        for bind in running.binds:
            turns.add(bind.pod.namespace, bind)
        running.binds.clear()
        turns.look(self.now)
        for turn in turns.apart():
            if not self.bad(turn.namespace):
                self.answered(turn)
        while (turn := turns.next(self.now)) is not None:
            if bindings.withheld(turn.item, self.now) is not None:
                turns.end(turn, self.now, answered=False)
            elif not self.bad(turn.namespace):
                self.answered(turn)
            else:
                self.tried += 1
                if self.error:
                    turns.set_apart(turn, self.now, self.error)

    def answered(self, turn: object) -> None:
        bindings, bind = self.running.state.bindings, turn.item  # type: ignore[attr-defined]
        outcome = self.server.bind(bind.pod, bind.node, bind.annotations)
        self.running._carry_out(list(bindings.done(bind.pod, outcome, "", self.now)))
        bindings.turns.end(turn, self.now)  # type: ignore[arg-type]

    def create(self, namespace: str, count: int, cpu: str = "10m") -> None:
        self.running.create(*(b.pod(f"p{i}", namespace, cpu=cpu) for i in range(count)))

    def bound(self, namespace: str) -> int:
        return sum(1 for p in self.server.pods.values() if p.metadata.namespace == namespace and p.spec.node_name)

    def said(self, namespace: str) -> list[str]:
        """What the conditions of the pods of a namespace say; empty for one that says nothing."""
        pods = [p for p in self.server.pods.values() if p.metadata.namespace == namespace]
        found = []
        for pod in pods:
            conditions = [c for c in pod.status.conditions or () if c.type == names.POD_SCHEDULED]
            found.append(conditions[0].message if conditions else "")
        return found

    def within(self, seconds: float, predicate: Callable[[], bool]) -> bool:
        until = self.now + seconds
        while self.now < until and not predicate():
            self.step()
        return predicate()


@pytest.mark.parametrize("error", [WEBHOOK, ""])
@pytest.mark.parametrize(("namespaces", "each"), [(1, 300), (50, 6)])
def test_pods_of_other_namespaces_are_bound_and_the_pods_say_why(namespaces: int, each: int, error: str) -> None:
    cluster = Cluster()
    cluster.error = error
    bad = [f"bad{n}" for n in range(namespaces)]
    for namespace in bad:
        cluster.create(namespace, each)
    cluster.step()
    cluster.create("good", 20)
    assert cluster.within(2.0, lambda: cluster.bound("good") == 20)
    assert cluster.within(8.0, lambda: all("binding to n" in m for n in bad for m in cluster.said(n)))
    for namespace in bad:
        assert all("failed" in m and "webhook" in m for m in cluster.said(namespace))
    # And so it stays; what cannot be sent is not decided again and again.
    tried, rounds = cluster.tried, cluster.running.state.rounds
    for number in range(40):
        cluster.create(f"good{number}", 1)
        assert cluster.within(2.0, lambda of=f"good{number}": cluster.bound(of) == 1)  # type: ignore[misc]
    assert cluster.tried - tried <= 2 * namespaces
    assert cluster.running.state.rounds - rounds <= 200
    assert cluster.running.state.queue.unschedulable()["DefaultBinder"] > 0  # type: ignore[index]
    # Nothing was given to those that are not bound but what may still arrive.
    held = [e for e in cluster.running.state.cache.pods.values() if e.assumed and not e.node]
    assert len(held) == len(cluster.running.state.bindings.turns.apart())
    # The webhook is there again.
    cluster.bad = lambda namespace: False
    assert cluster.within(5.0, lambda: all(cluster.bound(n) == each for n in bad))
    assert cluster.running.state.bindings.stuck == []


def test_a_pod_that_may_be_bound_at_any_moment_is_told_by_its_version_only() -> None:
    cluster = Cluster()
    cluster.create("bad", 1)
    assert cluster.within(4.0, lambda: bool(cluster.said("bad")[0]))
    (patch,) = cluster.running.conditions("p0")
    assert patch.version == str(int(cluster.server.pods["bad", "p0"].metadata.resource_version) - 1)
    assert patch.reason == names.SCHEDULER_ERROR


def test_a_namespace_whose_bindings_are_answered_now_and_then_is_decided_on() -> None:
    cluster = Cluster()
    cluster.bad = lambda namespace: int(cluster.now) % 2 == 0
    cluster.create("half", 200)
    assert cluster.within(20.0, lambda: cluster.bound("half") == 200)
    assert not [m for m in cluster.said("half") if "not sent" in m]


def test_what_ends_without_an_answer_is_read_and_decided_anew() -> None:
    """As after a minute in which nothing could be found out."""
    cluster = Cluster()
    cluster.create("bad", 5)
    assert cluster.within(4.0, lambda: cluster.running.state.bindings.stuck == ["bad"])
    bindings = cluster.running.state.bindings
    cluster.bad = lambda namespace: False
    for turn in bindings.turns.apart():
        cluster.running._carry_out(list(bindings.done(turn.item.pod, BindOutcome.LOST, "", cluster.now)))
        bindings.turns.end(turn, cluster.now, answered=False)
    while cluster.running.reads:
        cluster.running.read()
    assert cluster.within(5.0, lambda: cluster.bound("bad") == 5)


def test_a_pod_is_left_alone_for_as_long_as_the_api_server_asks() -> None:
    running = ModelScheduler(ModelServer())
    running.put(b.node("n1", "8"))
    running.create(b.pod("p", cpu="1"))
    (bind,) = running.round()
    assert running.state.bindings.withheld(bind, running.now) is None
    running._carry_out(
        list(running.state.bindings.done(bind.pod, BindOutcome.RETRY, "429", running.now, retry_after=20.0))
    )
    at = running.state.next_round_s(running.now)
    assert at is not None
    assert at - running.now == pytest.approx(20.0)


def test_conditions_tell_nothing_new_again_and_again() -> None:
    cluster = Cluster()
    cluster.create("bad", 50)
    for _ in range(240):
        cluster.step()
    patches = [told for told in cluster.running.told if isinstance(told, PatchCondition)]
    assert len(patches) <= 50 + 2 * len(cluster.running.state.bindings.turns.apart())

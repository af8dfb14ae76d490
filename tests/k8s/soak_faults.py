"""What disturbs the replicas of a soak: one thing after the other, each until it is over."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cluster_watch import AWAY, ClusterWatch
from fault_proxy import Asked, Does, FaultProxy, Rule, failing, webhook_fails
from naive_checker import Cluster, requests
from plane import Plane, Space
from soak_churn import Churn
from soak_findings import say
from soak_replicas import LEASE_S, Replicas

from flowsched_k8s.groups.pod_groups import NAME_LABEL
from flowsched_k8s.pods.quantity import amount

PAGE = Rule(
    lambda asked: asked.method == "GET",
    Does.ANSWER,
    200,
    b"<html><body>Please log in</body></html>",
    {"Content-Type": "text/html"},
)
BROKEN = failing(
    lambda asked: asked.method != "GET", 500, "Internal error occurred: etcd does not answer", "InternalError"
)
LARGEST_SHARE = 0.6
"""Of a short run one disturbance takes at most so much, so that there are others."""
STUCK = 40
"""Pods of the namespace whose bindings fail."""


class Probe(Protocol):
    """Measures how long it takes until a pod that is created now is bound."""

    def __call__(self, what: str, within_s: float) -> None: ...


@dataclass(frozen=True)
class Fault:
    """A way to disturb the replicas."""

    name: str
    act: Callable[[], None]
    """Returns when it is over."""
    takes_s: float
    """About how long that takes, and all to recover."""
    blind: bool | None = True
    """Whether replicas do not hear from the API server, or cannot write; None: they work as usual."""
    recovers_s: float = 30.0
    """By then a new pod must be bound, and none may wait although a node would do."""


class Faults:
    """All that a soak can do to the replicas, by the proxy, to the plane and to the replicas themselves."""

    def __init__(
        self,
        plane: Plane,
        proxy: FaultProxy,
        replicas: Replicas,
        churn: Churn,
        watch: ClusterWatch,
        other: Space,
        probe: Probe,
        hopeless: int,
        full: Path | None,
        seed: int,
        pace: float = 1.0,
    ) -> None:
        """``other`` is a namespace for pods that fail; ``full`` a file on the disk of the records, ``hopeless`` a number.

        ``pace``: faults of requests last so many times as long as usual.
        """
        self._plane, self._proxy, self._replicas, self._churn, self._watch = plane, proxy, replicas, churn, watch
        self._other, self._probe, self._hopeless, self._full = other, probe, hopeless, full
        self._draw, self._pace = random.Random(seed), pace
        self._numbers = 0

    def all(self) -> list[Fault]:
        """In an order that means nothing."""
        third = 1 / 3
        these = [
            Fault("a node is drained", self.drain, 5.0, blind=None),
            Fault("a node goes and another one comes", self.replace_node, 4.0, blind=None),
            Fault("another scheduler binds the same pods", self.second_writer, 8.0, blind=None),
            Fault(f"{self._hopeless:,} pods that fit nowhere", self.hopeless, 6.0 + self._hopeless / 200, blind=None),
            Fault("the leader is killed", self.kill_leader, 14.0, blind=False),
            Fault("the leader sleeps for longer than its lease", self.stop_leader, 18.0, blind=False),
            Fault("the API server stops for 3 s", lambda: self.restart("kube-apiserver", 3.0), 14.0),
            Fault("the API server stops for longer than the lease", self.outage, 35.0),
            Fault("the API server forgets what happened", self.forget, 16.0),
            Fault("etcd is stopped for 2 s", lambda: self.restart("etcd", 2.0), 14.0),
            Fault("connections are cut", self._proxy.cut, 3.0),
            self._rule("answers are lost", 3.0, Rule(_any, Does.DROP)),
            self._rule("every answer comes late", 5.0, Rule(_any, Does.LATE, seconds=0.3), cut=True),
            self._rule("a third of the answers comes 2 s late", 5.0, Rule(_brief, Does.LATE, seconds=2.0, share=third)),
            self._rule("a third of the answers is cut off", 4.0, Rule(_any, Does.HALF, share=third)),
            self._rule("a third of the answers to writes is lost", 5.0, Rule(_writes, Does.DROP, share=third)),
            self._rule("a third of the writes is answered 500", 6.0, replace(BROKEN, share=third)),
            self._rule("a third of the reads gets a page of a proxy", 5.0, replace(PAGE, share=third), cut=True),
            self._rule("bindings arrive twice", 4.0, Rule(_binds(), Does.DOUBLE)),
            self._rule("half of the bindings hang", 4.0, Rule(_binds(), Does.HANG, share=0.5)),
            self._stuck("the webhook of a namespace fails", webhook_fails(_binds(self._other.name))),
            self._stuck("the bindings of a namespace hang", Rule(_binds(self._other.name), Does.HANG)),
            Fault("lists are answered 503 with Retry-After: 300", self.retry_after, 45.0, recovers_s=45.0),
            Fault("replicas start while a list fails", self.failing_list, 45.0),
            self._rule("watches of pods are silent", 10.0, Rule(_watches("pods"), Does.SILENCE, under_way=True)),
            self._rule("watches of nodes are silent", 10.0, Rule(_watches("nodes"), Does.SILENCE, under_way=True)),
            Fault("watches of pods stay silent", self.stay_silent, 50.0),
        ]
        if self._full is not None:
            these.append(Fault("the disk of the records is full", self.fill, 8.0, blind=None))
        if self._replicas.fake_clock:
            these.append(Fault("the clock goes 10 min forward", lambda: self.step_clock(600), 5.0, blind=None))
            these.append(Fault("the clock goes back", lambda: self.step_clock(0), 5.0, blind=None))
        return these

    def _rule(self, name: str, seconds: float, rule: Rule, cut: bool = False) -> Fault:
        """A rule holds for a while; ``cut``: and every connection has to begin anew under it."""
        seconds *= self._pace

        def act() -> None:
            with self._proxy.faults(rule):
                if cut:
                    self._proxy.cut()
                time.sleep(seconds)

        return Fault(f"{name} for {seconds:g} s", act, seconds + 3.0)

    def _stuck(self, name: str, rule: Rule) -> Fault:
        """The bindings of one namespace meet a rule, and those of others do not."""
        seconds = 6.0 * self._pace

        def act() -> None:
            self._numbers += 1
            with self._proxy.faults(rule):
                for number in range(STUCK):
                    self._other.make_pod(f"s{self._numbers}-{number}", scheduler=self._churn.scheduler, cpu="10m")
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    self._meanwhile(name)
                    time.sleep(1.0)
            self._other.clear()

        return Fault(f"{name} for {seconds:g} s", act, seconds + 3.0)

    # Of the cluster

    def drain(self) -> None:
        """Cordon a node, delete what is there, and open it again."""
        node = self._draw.choice(sorted(self._watch.nodes()))
        path = f"/api/v1/nodes/{node}"
        self._plane.admin.patch(path, {"spec": {"unschedulable": True}})
        time.sleep(1.0)
        self._empty(node)
        time.sleep(2.0)
        self._plane.admin.patch(path, {"spec": {"unschedulable": None}})

    def replace_node(self) -> None:
        """A machine dies; another one takes its place."""
        node = self._draw.choice(sorted(self._watch.nodes()))
        self._plane.admin.delete(f"/api/v1/nodes/{node}")
        time.sleep(1.0)
        self._empty(node)
        self._churn.add_node()

    def _empty(self, node: str) -> None:
        for pod in self._watch.pods():
            if pod.spec.node_name == node:
                with contextlib.suppress(*AWAY):
                    self._plane.admin.delete(f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}")

    def second_writer(self) -> None:
        """Pods of another scheduler take room, and some that wait for this one are bound by other hands."""
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            self._numbers += 1
            pods, nodes = self._watch.pods(), self._watch.nodes()
            cluster = Cluster(nodes, [(p, p.spec.node_name) for p in pods if p.spec.node_name in nodes])
            free = [node for node in sorted(nodes) if _free_milli(cluster, node) >= 500]
            if not free:
                time.sleep(0.2)
                continue
            node = self._draw.choice(free)
            waiting = [p for p in pods if not p.spec.node_name and NAME_LABEL not in (p.metadata.labels or {})]
            fit = [p for p in waiting if cluster.refuses(p, node) is None]
            with contextlib.suppress(*AWAY):
                if fit and self._numbers % 2:
                    meta = fit[0].metadata
                    body = {
                        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
                        "target": {"kind": "Node", "name": node},
                    }
                    self._plane.admin.post(f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/binding", body)
                else:
                    name = f"foreign-{self._numbers}"
                    self._churn.space.make_pod(name, scheduler="another-scheduler", nodeName=node, cpu="250m")
            time.sleep(0.1)

    def hopeless(self) -> None:
        """Many pods that fit nowhere come and go while others have to be bound."""
        made = iter(range(self._hopeless))
        lock = threading.Lock()
        self._numbers += 1
        batch = self._numbers

        def make(_: int) -> None:
            while True:
                with lock:
                    number = next(made, None)
                if number is None:
                    return
                with contextlib.suppress(*AWAY):
                    self._other.make_pod(f"h{batch}-{number}", scheduler=self._churn.scheduler, cpu="64")

        with ThreadPoolExecutor(4) as several:
            making = [several.submit(make, worker) for worker in range(4)]
            while not all(one.done() for one in making):
                self._meanwhile(f"{self._hopeless:,} pods that fit nowhere")
                time.sleep(2.0)
        for _ in range(3):
            self._meanwhile(f"{self._hopeless:,} pods that fit nowhere")
            time.sleep(1.0)
        self._other.clear()

    # Of requests

    def stay_silent(self) -> None:
        """For longer than replicas believe that nothing happens; a new watch would be answered."""
        rule = Rule(_watches("pods"), Does.SILENCE, under_way=True)
        with self._proxy.faults(rule):
            self._meanwhile("watches of pods stay silent", 45.0)

    def retry_after(self) -> None:
        """All have to list again, and are asked to wait for five minutes."""
        lists = failing(lambda asked: asked.lists, 503, "the server is overloaded", Retry_After="300")
        expired = failing(lambda asked: asked.watches, 410, "too old resource version", "Expired")
        with self._proxy.faults(lists, expired):
            self._proxy.cut()
            time.sleep(6.0)

    def failing_list(self) -> None:
        """No pod uses a claim, and claims cannot be listed when both replicas start."""
        with self._proxy.faults(
            failing(lambda asked: asked.resource == "persistentvolumeclaims", 500, "etcd is corrupt")
        ):
            for replica in self._replicas.each:
                with contextlib.suppress(ProcessLookupError, AssertionError):
                    os.kill(replica.pid, signal.SIGKILL)
            self._meanwhile("replicas start while a list fails", 45.0)

    def _meanwhile(self, what: str, within_s: float = 10.0) -> None:
        self._probe(f"{what}, meanwhile", within_s)

    # Of the plane

    def outage(self) -> None:
        """Both replicas lose the lease, and wait."""
        self.restart("kube-apiserver", LEASE_S + 4.0)

    def restart(self, part: str, seconds: float) -> None:
        """Stop a part of the control plane for a while."""
        self._plane.stop(part)
        time.sleep(seconds)
        self._bring_up(part)

    def forget(self) -> None:
        """Compaction while the watches are cut: they have to list again."""
        with self._proxy.faults(Rule(_any, Does.CUT)):
            self._proxy.cut()
            time.sleep(1.0)
            self._plane.stop("kube-apiserver")
            self._plane.compact()
            self._bring_up("kube-apiserver")

    def _bring_up(self, part: str) -> None:
        """Start a part, again where it was too slow for a busy machine."""
        for left in (2, 1, 0):
            try:
                self._plane.start(part)
                return
            except subprocess.CalledProcessError as error:
                say(f"  {error.stderr.strip()}")
                if not left:
                    raise

    # Of replicas

    def kill_leader(self) -> None:
        """SIGKILL to the one that has the lease."""
        if (leader := self._replicas.leader()) is not None:
            os.kill(leader.pid, signal.SIGKILL)

    def stop_leader(self) -> None:
        """It stops in the middle of its work, and goes on when another one leads: it must not write any more."""
        if (leader := self._replicas.leader()) is not None:
            pid = leader.pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(LEASE_S + 4.0)
            os.kill(pid, signal.SIGCONT)

    def fill(self) -> None:
        """No byte is left for records."""
        assert self._full is not None
        with contextlib.suppress(OSError), self._full.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        time.sleep(5.0)
        self._full.unlink()

    def step_clock(self, ahead_s: int) -> None:
        """Replicas notice within a second."""
        self._replicas.set_clock(ahead_s)
        time.sleep(2.0)


def chosen(faults: Sequence[Fault], seed: int, seconds: float) -> Iterator[Fault]:
    """Several that take about so many seconds together, in an order that the seed decides."""
    most = LARGEST_SHARE * seconds
    for fault in random.Random(seed).sample(list(faults), len(faults)):
        if fault.takes_s <= min(most, seconds):
            seconds -= fault.takes_s
            yield fault


def disturbance(fault: Fault, disturbed: Callable[[bool], AbstractContextManager[Any]]) -> AbstractContextManager[Any]:
    """What is told to the checker while a fault lasts."""
    return contextlib.nullcontext() if fault.blind is None else disturbed(fault.blind)


def _watches(resource: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.watches and asked.resource == resource


def _any(asked: Asked) -> bool:
    return True


def _writes(asked: Asked) -> bool:
    return asked.method != "GET"


def _brief(asked: Asked) -> bool:
    return not asked.watches


def _binds(namespace: str = "") -> Callable[[Asked], bool]:
    return lambda asked: asked.sub == "binding" and namespace in ("", asked.namespace)


def _free_milli(cluster: Cluster, node: str) -> int:
    offered = amount("cpu", (cluster.nodes[node].status.allocatable or {}).get("cpu", "0"))
    return offered - sum(requests(pod).get("cpu", 0) for pod in cluster.on(node))

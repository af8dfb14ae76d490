"""Leaders die in the middle of their work, four times, by `make explore` twenty times, while pods keep arriving."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from plane import Object, Plane, Space, wait_for
from running import STANDARD, Running, rules_of

from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.requests import pod_requests

KILLS, KILLS_EXPLORING = 4, 20
AT_FIRST, AT_EACH = 120, 19
"""Pods that arrive before the first leader is killed, and while each of them is."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces"
SIZES = ("100m", "150m", "250m")


class BindingWatch:
    """Follows pods from the beginning and keeps every node that each of them was ever seen on."""

    def __init__(self, space: Space) -> None:
        self.places: dict[str, list[str]] = {}
        """Nodes by uid, in the order in which they were seen."""
        self.problem = ""
        self.changed = threading.Condition()
        version = space.admin.get(space.pods_path)["metadata"]["resourceVersion"]
        admin = space.admin
        self._connection = http.client.HTTPSConnection(admin.host, admin.port, context=admin._tls)
        query = f"watch=1&resourceVersion={version}&timeoutSeconds=3600"
        self._connection.request("GET", f"{space.pods_path}?{query}")
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while line := self._answer.readline():
                self._see(json.loads(line))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.problem = repr(error)

    def _see(self, event: Object) -> None:
        thing = event["object"]
        if event["type"] not in ("ADDED", "MODIFIED"):
            self.problem = f"{event['type']}: {thing}"
            return
        seen = self.places.setdefault(thing["metadata"]["uid"], [])
        node = thing["spec"].get("nodeName")
        if node and node not in seen:
            with self.changed:
                seen.append(node)
                self.changed.notify_all()

    def bound(self) -> int:
        """Pods that were seen on a node."""
        return sum(map(bool, list(self.places.values())))

    def wait_for_more_than(self, count: int, within: float = 180.0) -> None:
        """Return at once when one more pod is bound."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.bound() > count, within), "no process binds any more"


@contextmanager
def two_replicas(plane: Plane, home: Space, folder: Path) -> Iterator[list[Running]]:
    """Two processes with one configuration and one lease."""
    kubeconfig = home.service_account_kubeconfig(*rules_of(*STANDARD))
    lease: dict[str, Any] = {
        "resourceNamespace": home.name,
        "leaseDuration": "3s",
        "renewDeadline": "2s",
        "retryPeriod": "0.5s",
    }
    with ExitStack() as stack:
        replicas = []
        for name in ("one", "other"):
            place = folder / name
            place.mkdir()
            # So slow that a process killed at the first binding of a round has others still to send.
            slow = {"qps": 50, "burst": 10}
            replica = Running(plane, home, place, kubeconfig, {"leaderElection": lease, "clientConnection": slow})
            stack.callback(replica.end)
            replica.start(leading=False)
            replicas.append(replica)
        yield replicas


def lease_of(home: Space) -> Object:
    """What the lease says; nothing before the first replica has taken it."""
    lease = home.admin.find(f"{LEASES}/{home.name}/leases/flowsched")
    return dict(lease["spec"]) if lease else {}


def leader_of(home: Space, replicas: list[Running]) -> Running:
    """The replica that the lease names, by the process id in its identity."""

    def holder() -> Running | None:
        identity = lease_of(home).get("holderIdentity", "")
        return next((r for r in replicas if f"_{r.pid}_" in identity), None)

    found = wait_for(holder, "a replica to lead")
    assert found is not None
    return found


def test_leaders_are_killed_and_every_pod_is_bound_exactly_once(
    plane: Plane, space: Space, tmp_path: Path, exploring: bool
) -> None:
    kills = KILLS_EXPLORING if exploring else KILLS
    with plane.space("failover") as home, two_replicas(plane, home, tmp_path) as replicas:
        scheduler = replicas[0]
        space.make_nodes(26, labels=scheduler.pool, pods=25)
        watch = BindingWatch(space)
        made: list[str] = []

        def arrive(count: int) -> None:
            first = len(made)
            names = [f"pod-{number:03}" for number in range(first, first + count)]
            made.extend(names)
            with ThreadPoolExecutor(8) as several:
                list(several.map(make, names))

        def make(name: str) -> None:
            cpu = SIZES[int(name[-3:]) % len(SIZES)]
            space.make_pod(name, cpu=cpu, memory="256Mi", scheduler=scheduler.name)

        arrive(AT_FIRST)
        interrupted = 0
        for _ in range(kills):
            bound = watch.bound()
            with ThreadPoolExecutor(1) as meanwhile:
                arriving = meanwhile.submit(arrive, AT_EACH)
                watch.wait_for_more_than(bound)
                # What it has sent is on its way still; what it has not is for the next one.
                leader = leader_of(home, replicas)
                assert leader.stop(signal.SIGKILL) == -signal.SIGKILL
                interrupted += watch.bound() < len(made)
                arriving.result()
            leader.start(leading=False)
        wait_for(lambda: watch.bound() == len(made) or watch.problem, "all pods to be bound", 120.0)

        assert not watch.problem
        assert interrupted, "no leader was killed while there was work"
        assert set(map(len, watch.places.values())) == {1}, "a pod was seen on two nodes"
        pods = space.pods()
        assert {p["metadata"]["uid"]: [p["spec"]["nodeName"]] for p in pods} == watch.places
        assert sorted(p["metadata"]["name"] for p in pods) == sorted(made)
        check_room(space, pods)
        leader_of(home, replicas)
        # More, where a leader was too slow to keep its lease.
        assert lease_of(home)["leaseTransitions"] >= kills
        for replica in replicas:
            assert not replica.faults()


def check_room(space: Space, pods: list[Object]) -> None:
    """No node has more than it offers."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        here = used.setdefault(pod["spec"]["nodeName"], Counter())
        here.update(pod_requests(decode(pod)))
    for node, amounts in used.items():
        offered = space.admin.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
        assert amounts["cpu"] <= 1000 * int(offered["cpu"])
        assert amounts["memory"] <= 16 * 2**30
        assert amounts["pods"] <= int(offered["pods"])


def decode(pod: Object) -> Pod:
    """The pod with the fields that the scheduler reads."""
    return msgspec.json.decode(json.dumps(pod), type=Pod)

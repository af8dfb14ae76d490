"""A list that fails when a replica starts stops the pods that need it, and no others."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import objects_builders as b
import pytest
from fault_proxy import Asked, Does, FaultProxy, Rule, failing
from model_scheduler import ModelScheduler
from model_server import ModelServer
from plane import Plane, Space
from running import running_scheduler, site_of
from test_election import World
from test_reflector import as_stream_error, followed, page, pod, refusal

from flowsched_k8s.api.client import UnreachableError
from flowsched_k8s.api.election import Election, Times
from flowsched_k8s.api.reflector import State
from flowsched_k8s.changes import Seen
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.groups.pod_groups import (
    IN_TREE,
    KUEUE_LABEL,
    KUEUE_TOTAL,
    MINIMUM_LABEL,
    NAME_LABEL,
    PLUGINS_LABEL,
)
from flowsched_k8s.names import HOSTNAME
from flowsched_k8s.objects import Pod
from flowsched_k8s.watched import IN_TREE_VERSIONS, watched

# What a reflector says


@pytest.mark.parametrize("failure", [refusal(500), UnreachableError("nothing came", sent=True)], ids=["500", "silence"])
def test_a_list_that_fails_at_first_says_so_until_it_is_read(failure: Any) -> None:
    _, _, failing = followed(failure, failure)
    assert failing.state is State.FAILING
    assert failing.unreadable in ("500 R: m", "nothing came")
    _, follower, read = followed(failure, failure, page(7, pod("a", 1)))
    assert (read.state, read.unreadable, follower.names) == (State.SYNCED, "", ["a"])


def test_what_was_read_once_stays_known_when_it_fails_later() -> None:
    _, _, reflector = followed(page(7, pod("a", 1)), *[as_stream_error(refusal(500))] * 5, *[refusal(500)] * 3)
    assert (reflector.state, reflector.unreadable) == (State.SYNCED, "")


# What waits: every list that is followed beside nodes and pods

EVERYTHING = Configuration(
    features=Features(
        volumes=True,
        namespace_selector=True,
        preemption=True,
        pod_groups=("labels", "kueue.x-k8s.io", "scheduling.x-k8s.io", IN_TREE),
    )
)
LISTS = sorted({w.name for w in watched(EVERYTHING)} - {"nodes", "pods"})
WHY = "500 InternalError: etcd is away"


def pod_that_needs(name: str) -> Pod:
    """One that cannot be placed without a list."""
    if name == "namespaces":
        term = b.pod_term(HOSTNAME, b.selector(app="x"), namespace_selector=b.selector(team="a"))
        return b.pod("needs", cpu="1", affinity=b.affinity(apart=[term]))
    if name.endswith("succeeded"):
        labels = {
            "labels": {NAME_LABEL: "g", MINIMUM_LABEL: "2"},
            "kueue.x-k8s.io": {KUEUE_LABEL: "g"},
            "scheduling.x-k8s.io": {PLUGINS_LABEL: "g"},
        }.get(name.partition("/")[0])
        if labels is None:
            return b.pod("needs", cpu="1", schedulingGroup={"podGroupName": "g"})
        return b.pod("needs", cpu="1", labels=labels, annotations={KUEUE_TOTAL: "2"})
    if name == "podgroups":
        return b.pod("needs", cpu="1", labels={PLUGINS_LABEL: "g"})
    if name.startswith(IN_TREE):
        return b.pod("needs", cpu="1", schedulingGroup={"podGroupName": "g"})
    return b.pod("needs", cpu="1", volumes=[b.claim_volume("data")])


@pytest.mark.parametrize("name", [n for n in LISTS if n != "poddisruptionbudgets"])
def test_only_pods_that_need_a_list_wait_for_it_and_say_so(name: str) -> None:
    server = ModelServer()
    server.put(b.node("n1", "4"))
    if name == "scheduling.x-k8s.io/succeeded":
        server.put(b.plugins_group("g", minMember=2))
    if name == f"{IN_TREE}/flowsched/succeeded":
        server.put(b.in_tree_group("g", minimum=2))
    running = ModelScheduler(server, EVERYTHING)
    running.observe([Seen(b.claim("data", volume="v")), Seen(b.volume("v", claim=("default", "data")))])
    running.state.other_objects.lists_unreadable({}, {name: WHY}, running.now)
    running.create(b.pod("plain", cpu="1"), pod_that_needs(name))
    assert [bind.pod.name for bind in running.round()] == ["plain"]
    waits = next(e for e in running.state.cache.pods.values() if e.key.name == "needs")
    assert f"{name} cannot be listed: {WHY}" in waits.message
    running.state.other_objects.lists_unreadable({}, {}, running.now)
    running.server.now += 60.0
    running.round()
    waits = next(e for e in running.state.cache.pods.values() if e.key.name == "needs")
    assert waits.place or "cannot be listed" not in waits.message


def test_no_pod_is_evicted_while_a_list_that_could_forbid_it_fails() -> None:
    for name in ("poddisruptionbudgets", f"{IN_TREE}/{IN_TREE_VERSIONS[0]}"):
        server = ModelServer()
        server.put(b.node("n1", "1"))
        server.put(b.pod("there", node="n1", cpu="1", schedulingGroup={"podGroupName": "g"}))
        running = ModelScheduler(server, EVERYTHING)
        running.state.other_objects.lists_unreadable({}, {name: WHY}, running.now)
        running.create(b.pod("more", cpu="1", priority=10))
        running.round()
        assert not running.victims
        running.state.other_objects.lists_unreadable({}, {}, running.now)
        running.server.now += 400.0
        running.round()
        assert [victim.name for victim in running.victims] == ["there"]


# Who leads


def test_a_replica_that_lacks_a_list_leaves_the_lease_to_one_that_lacks_none() -> None:
    def leader_of(seed: int, *defers: float | None) -> list[tuple[str, float]]:
        world, led = World(random.Random(seed), 0.0), list[tuple[str, float]]()

        async def run() -> None:
            def candidate(number: int, seconds: float | None) -> Election:
                return Election(
                    world,  # type: ignore[arg-type]
                    namespace="n",
                    name="flowsched",
                    identity=str(number),
                    times=Times(15.0, 10.0, 2.0),
                    clock=lambda: world.now,
                    now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=world.now),
                    sleep=world.sleep,
                    rng=world.rng,
                    defers=lambda: seconds,
                )

            def started(number: int) -> None:
                led.append((str(number), world.now))

            tasks = [
                asyncio.create_task(candidate(i, s).run(lambda i=i: started(i), lambda: None))
                for i, s in enumerate(defers)
            ]
            await world.run(60.0, lambda: None)
            for task in tasks:
                assert not task.done()
                task.cancel()
            # What they say at their end needs time that does not pass.
            await asyncio.sleep(0)

        asyncio.run(run())
        return led

    for seed in range(20):
        assert leader_of(seed, None) == []
        ((first, _),) = leader_of(seed, 6.0, 0.0, None)
        assert first == "1"
        ((alone, at),) = leader_of(seed, 6.0, None)
        assert alone == "0" and 6.0 <= at <= 10.0


# On the real API server


def test_a_replica_that_starts_while_claims_cannot_be_listed_decides_all_else(
    plane: Plane, space: Space, tmp_path: Path
) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]

    def of(resource: str) -> Callable[[Asked], bool]:
        return lambda asked: asked.resource == resource and asked.method == "GET"

    lease: dict[str, Any] = {"leaseDuration": "6s", "renewDeadline": "5s", "retryPeriod": "0.5s"}
    with FaultProxy(plane.server, plane.folder / "pki" / "ca.crt") as proxy:
        proxy.rules = (
            failing(of("persistentvolumeclaims"), 500, "broken for a test", "InternalError"),
            Rule(of("csinodes"), Does.HANG),
        )
        with (
            running_scheduler(plane, tmp_path, server=proxy.address, leaderElection=lease) as scheduler,
            site_of(scheduler, space) as site,
        ):
            node = site.node()
            site.pod("stored", volumes=volumes)
            site.pod("plain")
            assert site.bound("plain") == node
            site.refused("stored", "persistentvolumeclaims cannot be listed: 500 InternalError: broken for a test")
            said = scheduler.answer("/readyz").decode()
            assert (
                said.startswith("ok\n") and "persistentvolumeclaims (500" in said and "csinodes (no answer yet)" in said
            )
            assert set(json.loads(scheduler.answer("/debug/state"))["not_listed"]) == {
                "persistentvolumeclaims",
                "csinodes",
            }
            assert scheduler.metric("leader_election_master_status") == 1

"""Pods of one tenant that say as much as an API server takes, and the next pod of another tenant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from plane import Plane, Space, wait_for
from running import Running, Site, running_scheduler, site_of
from test_live_failover import lease_of

from flowsched_k8s import names

CONTAINER = {"name": "main", "image": "test"}


def ports(count: int) -> Any:
    numbers = range(1, count + 1)
    return {"containers": [{**CONTAINER, "ports": [{"containerPort": n, "hostPort": n} for n in numbers]}]}


def terms(pod: int, count: int) -> Any:
    apart = [
        {"topologyKey": names.HOSTNAME, "labelSelector": {"matchLabels": {"app": f"{pod}-{i}"}}} for i in range(count)
    ]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}}


def resources(pod: int, count: int) -> Any:
    asked = {f"example.com/r{pod}-{i}": "1" for i in range(count)}
    return {"containers": [{**CONTAINER, "resources": {"requests": asked, "limits": asked}}]}


def disks(pod: int, count: int) -> Any:
    any_of = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": [f"{pod}-{i}"]}]} for i in range(count)]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": any_of}}}
    }


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_scheduler(
        plane, tmp_path_factory.mktemp("scheduler"), leaderElection={"leaderElect": True}
    ) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def test_pods_that_say_much_keep_no_other_tenant_waiting(plane: Plane, site: Site) -> None:
    site.nodes(4)
    holder = lease_of(site.scheduler.home)
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "5"}
    attacks: dict[str, list[Any]] = {
        "ports": [ports(1_500)],
        "terms": [terms(i, 8_000) for i in range(10)],
        "resources": [resources(i, 2_000) for i in range(20)],
        "group": [{"labels": grouped, **disks(i, 4_000)} for i in range(5)],
    }
    with plane.space("other-tenant") as other:
        for attack, pods in attacks.items():
            for i, spec in enumerate(pods):
                site.pod(f"{attack}-{i}", **({"cpu": "1m"} if "containers" not in spec else {}), **spec)
            name = f"after-{attack}"
            other.make_pod(name, scheduler=site.scheduler.home.name, cpu="10m")
            wait_for(lambda name=name: other.pod(name)["spec"].get("nodeName"), f"{name} to be bound")
        # What is refused for good says why; the others have a node.
        for i in range(5):
            site.refused(f"group-{i}", names.NODE_AFFINITY)
        site.refused("resources-19", names.insufficient("example.com/r19-"))
        for i in range(10):
            wait_for(lambda i=i: site.space.pod(f"terms-{i}")["spec"].get("nodeName"), f"terms-{i} to be bound")
        assert site.bound("ports-0")
    after = lease_of(site.scheduler.home)
    assert [after[k] for k in ("holderIdentity", "leaseTransitions")] == [
        holder[k] for k in ("holderIdentity", "leaseTransitions")
    ]

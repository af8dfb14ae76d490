"""Rebalancing on a real API server with real controllers: what is moved, what is not, and that budgets hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from plane import Object, Plane, Space, running_plane, wait_for
from running import STANDARD, Running, Site, running_scheduler, site_of

from flowsched_k8s import names
from flowsched_k8s.pod_groups import MINIMUM_LABEL, NAME_LABEL

REPLICA_SETS = "/apis/apps/v1/namespaces/{}/replicasets"
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """One with the controllers that make pods anew and count what budgets allow."""
    with running_plane("--parts", "kwok,kube-controller-manager") as started:
        yield started


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scheduler")
    settings = {"interval": "1s", "coolDown": "2s"}
    with running_scheduler(
        plane, folder, features=(*STANDARD, "rebalancing"), rebalancing=settings, engine={"dueAgeS": 5.0}
    ) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        try:
            yield made
        finally:
            # Else new pods would come for those that are cleared away.
            for found in made.space.admin.items(REPLICA_SETS.format(made.name)):
                made.space.admin.delete(f"{REPLICA_SETS.format(made.name)}/{found['metadata']['name']}")


def replicas(site: Site, name: str, count: int, **spec: object) -> None:
    """Pods that a controller keeps there."""
    container = {"name": "main", "image": "test", "resources": {"requests": {"cpu": spec.pop("cpu", "1")}}}
    labels, annotations = {"app": name}, spec.pop("annotations", {})
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"schedulerName": site.scheduler.name, "containers": [container], **spec},
    }
    site.space.admin.post(
        REPLICA_SETS.format(site.name),
        {
            "metadata": {"name": name},
            "spec": {"replicas": count, "selector": {"matchLabels": labels}, "template": template},
        },
    )


def of(site: Site, app: str) -> list[Object]:
    """Pods of a replica set that are not leaving."""
    return [
        p
        for p in site.space.pods()
        if p["metadata"].get("labels", {}).get("app") == app and "deletionTimestamp" not in p["metadata"]
    ]


def placed(site: Site, app: str, count: int) -> Counter[str]:
    """Pods of a replica set by node, once all of them have one."""

    def found() -> list[str]:
        nodes = [p["spec"].get("nodeName", "") for p in of(site, app)]
        return nodes if len(nodes) == count and all(nodes) else []

    return Counter(wait_for(found, f"{count} pods of {app} to have nodes"))


def last_look(site: Site) -> Object:
    found: Object = site.scheduler.state()["rebalancing"]
    return found


def told(site: Site, words: str) -> str:
    """What a look says that has these words."""
    return str(
        wait_for(
            lambda: next((t for t in last_look(site).get("told", ()) if words in t), None), f"a look that says {words}"
        )
    )


def moved(site: Site) -> list[Object]:
    return [e for e in site.space.events() if e["reason"] == names.REBALANCED]


def gang(site: Site, name: str, count: int, cpu: str) -> None:
    for i in range(count):
        site.pod(f"{name}-{i}", cpu=cpu, labels={NAME_LABEL: name, MINIMUM_LABEL: str(count)})


def test_fragmented_nodes_make_room_for_a_gang(site: Site) -> None:
    nodes = site.nodes(16, cpu="4")
    replicas(site, "small", 16, cpu="2")
    assert placed(site, "small", 16) == dict.fromkeys(nodes, 1)
    gang(site, "wide", 4, "4")
    homes = {site.bound(f"wide-{i}") for i in range(4)}
    assert len(homes) == 4
    there = placed(site, "small", 16)
    assert not homes & there.keys()
    assert max(there.values()) <= 2
    assert len(moved(site)) == 4, "no more pods than had to"
    event = moved(site)[0]
    assert f"room for pod group {site.name}/wide" in event["note"]
    record = event["note"].rpartition("record ")[2].rstrip(")")
    assert site.scheduler.record(record)["parts"], "the round that was asked can be explained"

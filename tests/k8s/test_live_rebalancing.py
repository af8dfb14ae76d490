"""Rebalancing on a real API server with real controllers: what is moved, what is not, and that budgets hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from plane import Object, Plane, Space, running_plane, wait_for
from running import STANDARD, Running, Site, running_scheduler, site_of

from flowsched.cli import flowsched
from flowsched_k8s import names
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.rebalancing.stays import BARE, LOCAL, NOT_MOVABLE

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
            delete_replica_sets(made)


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


def delete_replica_sets(site: Site) -> None:
    """Else new pods would come for those that are cleared away."""
    path = REPLICA_SETS.format(site.name)
    for found in site.space.admin.items(path):
        site.space.admin.delete(f"{path}/{found['metadata']['name']}")


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


def explain(site: Site, record: str, pod: str) -> str:
    """What ``flowsched explain`` says of a pod from a record that was fetched."""
    file = site.scheduler.folder / f"{record}.json"
    file.write_text(json.dumps(site.scheduler.record(record)))
    result = CliRunner().invoke(flowsched, ["explain", str(file), f"pod/{site.name}/{pod}"])
    assert result.exit_code == 0, result.output
    return result.output


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
    notes = [e["note"] for e in moved(site)]
    assert len(notes) == 4, ("no more pods than had to", notes)
    event = moved(site)[0]
    assert f"room for pod group {site.name}/wide" in event["note"]
    record = event["note"].rpartition("record ")[2].rstrip(")")
    explained = explain(site, record, event["regarding"]["name"])
    assert f"{event['regarding']['name']} is on " in explained or " starts on " in explained


CACHE = {
    names.PROFILE: "memcached",
    names.WORKLOAD_CLASS: "latency-sensitive",
    names.SLO: "p95=1ms@30000qps",
    names.CLIENT: "mcperf-sweep",
}


def test_a_service_near_its_goal_is_relieved(site: Site) -> None:
    crowded, other = site.nodes(2, cpu="4", labels={names.MACHINE_TYPE: "n2d-highmem-4"})
    close(site, other, True)
    site.pod("cache", cpu="1", annotations={**CACHE, names.LOAD: "10000"})
    assert site.bound("cache") == crowded
    # Long enough that what it has done by then is little.
    replicas(site, "job", 1, annotations={names.PROFILE: "radix", names.SCALE: "50"})
    assert placed(site, "job", 1) == {crowded: 1}
    close(site, other, False)
    look = last_look(site)["looks"]
    wait_for(lambda: last_look(site)["looks"] > look + 2, "two looks more")
    told(site, "no move gains more than its price")
    assert placed(site, "job", 1) == {crowded: 1}, "nothing pays, so nothing moves"
    site.space.admin.patch(f"{site.space.pods_path}/cache", {"metadata": {"annotations": {names.LOAD: "30000"}}})
    wait_for(lambda: placed(site, "job", 1) == {other: 1}, "the job to be elsewhere")
    (event,) = moved(site)
    assert event["note"].startswith("less interference: ")
    (move,) = (m for m in last_look(site)["moves"] if m["pod"].startswith(f"{site.name}/"))
    assert (move["from"], move["to"], move["dry_run"]) == (crowded, other, False)
    assert move["gain"] > move["price"] == 0.1
    record = site.scheduler.record(move["record"])
    (recorded,) = record["parts"][0]["moves"]
    assert (recorded["source"], recorded["machine"], recorded["keeps_work"]) == (crowded, other, False)
    name = event["regarding"]["name"]
    assert f"moves from {crowded} to {other}" in explain(site, move["record"], name)


def close(site: Site, node: str, closed: bool) -> None:
    site.space.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": closed or None}})


def test_no_budget_is_broken(site: Site) -> None:
    nodes = site.nodes(4, cpu="4")
    replicas(site, "small", 4, cpu="2")
    assert placed(site, "small", 4) == dict.fromkeys(nodes, 1)
    budgets = BUDGETS.format(site.name)
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "small"}}}
    site.space.admin.post(budgets, {"metadata": {"name": "keep"}, "spec": budget})
    wait_for(lambda: site.space.admin.get(f"{budgets}/keep")["status"]["disruptionsAllowed"] == 1, "the budget")
    gang(site, "wide", 2, "4")
    told(site, f"room for pod group {site.name}/wide: disruption budget {site.name}/keep does not allow it")
    assert not moved(site)
    assert placed(site, "small", 4) == dict.fromkeys(nodes, 1)
    # One at a time it does.
    site.space.delete_pod("wide-0")
    site.space.delete_pod("wide-1")
    site.pod("one", cpu="4")
    home = site.bound("one")
    assert home not in placed(site, "small", 4)
    assert len(moved(site)) == 1


KEPT: dict[str, tuple[dict[str, object], str]] = {
    "annotated": ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, NOT_MOVABLE),
    "with files": ({"volumes": [{"name": "scratch", "emptyDir": {}}]}, LOCAL),
}


@pytest.mark.parametrize("which", [*KEPT, "bare"])
def test_pods_that_may_not_be_moved_stay(site: Site, which: str) -> None:
    nodes = site.nodes(2, cpu="4")
    if which == "bare":
        reason = BARE
        for i in range(2):
            site.pod(f"bare-{i}", cpu="2")
        assert {site.bound(f"bare-{i}") for i in range(2)} == set(nodes)
    else:
        spec, reason = KEPT[which]
        replicas(site, "small", 2, cpu="2", **spec)
        assert placed(site, "small", 2) == dict.fromkeys(nodes, 1)
    site.pod("wide", cpu="4")
    told(site, f"room for {site.name}/wide: ")
    wait_for(lambda: last_look(site)["stays"].get(reason) == 2, "both to be known as such that stay")
    assert not moved(site)
    assert site.waits("wide")


def test_a_node_is_emptied_and_left_alone_until_a_pod_needs_it(plane: Plane, space: Space, tmp_path: Path) -> None:
    settings = {"interval": "1s", "coolDown": "2s", "emptyNodeGain": 1.0}
    with running_scheduler(plane, tmp_path, features=(*STANDARD, "rebalancing"), rebalancing=settings) as scheduler:
        site = Site(scheduler, space)
        other = {"key": "kept", "value": "yes", "effect": "PreferNoSchedule"}
        nodes = site.nodes(3, cpu="4", taints=[other])
        try:
            replicas(site, "small", 3, cpu="1")
            wait_for(lambda: len(placed(site, "small", 3)) == 2, "a node to be emptied")
            (empty,) = set(nodes) - placed(site, "small", 3).keys()
            kept, mark = site.space.admin.get(f"/api/v1/nodes/{empty}")["spec"]["taints"]
            assert kept == other
            assert (mark["key"], mark["effect"]) == (names.EMPTIED, "PreferNoSchedule")
            site.pod("another", cpu="1")
            assert site.bound("another") != empty
            site.pod("wide", cpu="4")
            assert site.bound("wide") == empty, "where it is needed it is used"
            wait_for(
                lambda: site.space.admin.get(f"/api/v1/nodes/{empty}")["spec"]["taints"] == [other], "the mark to go"
            )
            assert placed(site, "small", 3).keys() < set(nodes)
        finally:
            delete_replica_sets(site)
            space.clear()

"""Every hard constraint on a real API server, by a pod that fits and one that must not; preferences, by where pods go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from live_volumes import bind_claim, bound_claim, claim, limit, mounts, volume
from plane import Object, Plane, Space, wait_for
from running import Running, Site, running_scheduler, site_of

from flowsched_k8s import names

ZONE = names.ZONE
HOST = names.HOSTNAME


@pytest.fixture(scope="module")
def scheduler(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_scheduler(plane, tmp_path_factory.mktemp("scheduler")) as started:
        yield started


@pytest.fixture
def site(scheduler: Running, space: Space) -> Iterator[Site]:
    with site_of(scheduler, space) as made:
        yield made


def must_not_fit(site: Site, name: str, expected: str) -> None:
    """The pod waits; its condition and its one event say exactly this."""
    assert site.refused(name, expected) == expected
    event = site.event(name, names.FAILED_SCHEDULING)
    assert event["note"] == expected
    assert (event["type"], event["action"]) == ("Warning", "Scheduling")
    assert event["reportingController"] == site.scheduler.name
    pod, condition = site.space.pod(name), site.condition(name)
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert condition is not None and condition["observedGeneration"] == pod["metadata"]["generation"]


def containers(requests: Mapping[str, str], **more: Any) -> list[Object]:
    """Extended resources need a limit as well; for the others it does no harm."""
    limits = {r: n for r, n in requests.items() if "/" in r}
    resources = {"requests": dict(requests), "limits": limits}
    return [{"name": "main", "image": "test", "resources": resources, **more}]


def init(name: str, cpu: str, **more: str) -> Object:
    return {"name": name, "image": "test", "resources": {"requests": {"cpu": cpu}}, **more}


# Resources


@pytest.mark.parametrize(
    ("resource", "room", "fits", "more", "reason"),
    [
        ("cpu", "2", "1900m", "200m", "Insufficient cpu"),
        ("memory", "1Gi", "1000Mi", "25Mi", "Insufficient memory"),
        ("ephemeral-storage", "10Gi", "6Gi", "5Gi", "Insufficient ephemeral-storage"),
        ("example.com/device", "2", "1", "2", "Insufficient example.com/device"),
    ],
)
def test_resources(site: Site, resource: str, room: str, fits: str, more: str, reason: str) -> None:
    given = {resource: room} if resource in ("cpu", "memory") else {"resources": {resource: room}}
    node = site.node(**given)
    site.pod("fits", containers=containers({resource: fits}))
    assert site.bound("fits") == node
    site.pod("more", containers=containers({resource: more}))
    must_not_fit(site, "more", f"0/1 nodes are available: 1 {reason}.")
    site.space.delete_pod("fits")
    assert site.bound("more") == node


def test_gpus_of_a_node_that_loses_some(site: Site) -> None:
    gpu = "nvidia.com/gpu"
    node = site.node(resources={gpu: "2"}, labels={"nvidia.com/gpu.product": "A100"})

    def offer(count: str) -> None:
        site.space.admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": {gpu: count}}})

    site.pod("fits", containers=containers({gpu: "1"}))
    assert site.bound("fits") == node
    wait_for(lambda: site.scheduler.log("prepared for GPUs"), "the kernels of GPUs")
    offer("0")
    time.sleep(1.0)
    site.pod("more", containers=containers({gpu: "1"}), nodeSelector={"nvidia.com/gpu.product": "A100"})
    must_not_fit(site, "more", f"0/1 nodes are available: 1 Insufficient {gpu}.")
    offer("1")
    time.sleep(2.0)
    assert not site.space.pod("more")["spec"].get("nodeName")
    offer("2")
    assert site.bound("more") == node
    assert site.space.pod("fits")["spec"]["nodeName"] == node


def test_what_no_node_has(site: Site) -> None:
    site.node()
    site.pod("strange", containers=containers({"example.com/unheard-of": "1"}))
    must_not_fit(site, "strange", "0/1 nodes are available: 1 Insufficient example.com/unheard-of.")


def test_number_of_pods(site: Site) -> None:
    node = site.node(pods=1)
    site.pod("first", cpu="0", memory="0")
    assert site.bound("first") == node
    site.pod("second", cpu="0", memory="0")
    must_not_fit(site, "second", "0/1 nodes are available: 1 Too many pods.")


def test_every_lack_is_counted_and_sorted(site: Site) -> None:
    site.node("small", cpu="1", memory="1Gi")
    site.node("large", cpu="1", memory="16Gi")
    site.pod("huge", cpu="2", memory="8Gi")
    must_not_fit(site, "huge", "0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu.")


def test_init_containers_and_sidecars(site: Site) -> None:
    node = site.node(cpu="2")
    site.pod("step", initContainers=[init("step", "2")])
    assert site.bound("step") == node
    # Beside the first one's 2 cores at most, no second one fits: what it needs at most is what counts.
    site.pod("other", cpu="10m")
    must_not_fit(site, "other", "0/1 nodes are available: 1 Insufficient cpu.")
    site.space.delete_pod("step")
    site.bound("other")
    site.space.delete_pod("other")
    site.pod("too-large-a-step", initContainers=[init("step", "2001m")])
    must_not_fit(site, "too-large-a-step", "0/1 nodes are available: 1 Insufficient cpu.")
    site.pod("beside", cpu="1500m", initContainers=[init("side", "501m", restartPolicy="Always")])
    must_not_fit(site, "beside", "0/1 nodes are available: 1 Insufficient cpu.")
    site.pod("beside-fits", cpu="1500m", initContainers=[init("side", "500m", restartPolicy="Always")])
    assert site.bound("beside-fits") == node


def test_overhead(site: Site) -> None:
    made = {"metadata": {"name": site.name}, "handler": "test", "overhead": {"podFixed": {"cpu": "500m"}}}
    site.admin.post("/apis/node.k8s.io/v1/runtimeclasses", made)
    node = site.node(cpu="2")
    site.pod("over", cpu="1600m", runtimeClassName=site.name)
    must_not_fit(site, "over", "0/1 nodes are available: 1 Insufficient cpu.")
    site.pod("fits", cpu="1500m", runtimeClassName=site.name)
    assert site.bound("fits") == node


def test_resources_of_the_whole_pod(site: Site) -> None:
    node = site.node(cpu="2")
    site.pod("over", cpu="100m", resources={"requests": {"cpu": "3"}})
    must_not_fit(site, "over", "0/1 nodes are available: 1 Insufficient cpu.")
    site.pod("fits", cpu="100m", resources={"requests": {"cpu": "2"}})
    assert site.bound("fits") == node


# Nodes


def test_cordon(site: Site) -> None:
    small, cordoned = site.node("small", cpu="1"), site.node("cordoned", cpu="8")
    site.change_node(cordoned, {"spec": {"unschedulable": True}})
    site.pod("small")
    assert site.bound("small") == small
    site.pod("large", cpu="4")
    expected = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    must_not_fit(site, "large", expected)
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    site.pod("tolerant", cpu="2", tolerations=[toleration])
    assert site.bound("tolerant") == cordoned
    site.change_node(cordoned, {"spec": {"unschedulable": False}})
    assert site.bound("large") == cordoned


def affinity(*expressions: Object, fields: Sequence[Object] = ()) -> Object:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


MISMATCH = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."


def test_node_selector(site: Site) -> None:
    good = site.node("good", labels={"disk": "fast"})
    site.node("bad", labels={"disk": "slow"})
    site.pod("fits", nodeSelector={"disk": "fast"})
    assert site.bound("fits") == good
    site.pod("not", nodeSelector={"disk": "fast", "more": "x"})
    must_not_fit(site, "not", MISMATCH)
    site.change_node(good, {"metadata": {"labels": {"more": "x"}}})
    assert site.bound("not") == good


@pytest.mark.parametrize(
    ("operator", "values", "never"),
    [
        ("In", ["5", "7"], ["8"]),
        ("NotIn", ["3"], ["3", "5"]),
        ("Gt", ["4"], ["5"]),
        ("Lt", ["4"], ["3"]),
    ],
)
def test_node_affinity_by_value(site: Site, operator: str, values: list[str], never: list[str]) -> None:
    five, three = site.node("five", labels={"size": "5"}), site.node("three", labels={"size": "3"})
    site.pod("fits", affinity=affinity({"key": "size", "operator": operator, "values": values}))
    assert site.bound("fits") == (three if operator == "Lt" else five)
    site.pod("not", affinity=affinity({"key": "size", "operator": operator, "values": never}))
    must_not_fit(site, "not", MISMATCH)


def test_node_affinity_by_presence_and_field(site: Site) -> None:
    with_, without = site.node("with", labels={"size": "5"}), site.node("without")
    exists, missing = {"key": "size", "operator": "Exists"}, {"key": "size", "operator": "DoesNotExist"}
    site.pod("exists", affinity=affinity(exists))
    site.pod("missing", affinity=affinity(missing))
    assert (site.bound("exists"), site.bound("missing")) == (with_, without)
    site.pod("both", affinity=affinity(exists, missing))
    must_not_fit(site, "both", MISMATCH)
    site.pod("named", affinity=affinity(fields=[{"key": "metadata.name", "operator": "In", "values": [without]}]))
    assert site.bound("named") == without
    site.pod("nowhere", affinity=affinity(fields=[{"key": "metadata.name", "operator": "In", "values": ["none"]}]))
    must_not_fit(site, "nowhere", MISMATCH)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_taints(site: Site, effect: str) -> None:
    node = site.node(taints=[{"key": "for", "value": "x", "effect": effect}])
    site.pod("plain")
    must_not_fit(site, "plain", "0/1 nodes are available: 1 node(s) had untolerated taint(s).")
    site.pod("other", tolerations=[{"key": "for", "operator": "Equal", "value": "y", "effect": effect}])
    must_not_fit(site, "other", "0/1 nodes are available: 1 node(s) had untolerated taint(s).")
    for name, toleration in {
        "equal": {"key": "for", "operator": "Equal", "value": "x", "effect": effect},
        "exists": {"key": "for", "operator": "Exists"},
        "everything": {"operator": "Exists"},
    }.items():
        site.pod(name, tolerations=[toleration])
        assert site.bound(name) == node
    site.change_node(node, {"spec": {"taints": None}})
    assert site.bound("plain") == site.bound("other") == node


def test_host_ports(site: Site) -> None:
    def ports(number: int, **more: Any) -> list[Object]:
        port = {"containerPort": 80, "hostPort": number, **more}
        return containers({"cpu": "100m"}, ports=[port])

    node = site.node()
    site.pod("first", containers=ports(8080))
    assert site.bound("first") == node
    expected = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    site.pod("second", containers=ports(8080))
    must_not_fit(site, "second", expected)
    site.pod("address", containers=ports(8080, hostIP="10.0.0.1"))
    must_not_fit(site, "address", expected)
    site.pod("protocol", containers=ports(8080, protocol="UDP"))
    site.pod("number", containers=ports(8081, hostIP="10.0.0.1"))
    site.bound("number")
    site.pod("elsewhere", containers=ports(8081, hostIP="10.0.0.2"))
    assert site.bound("protocol") == site.bound("elsewhere") == node
    site.space.delete_pod("first")
    # One of the two that wait for the port gets it, never both.
    winner = wait_for(
        lambda: next((n for n in ("second", "address") if site.space.pod(n)["spec"].get("nodeName")), ""),
        "the port to be given to another pod",
    )
    loser = {"second": "address", "address": "second"}[winner]
    assert site.refused(loser) == expected


# Other pods


def pod_term(app: str, key: str = HOST) -> Object:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def with_pods(*terms: Object, anti: bool = False) -> Object:
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def test_pod_affinity(site: Site) -> None:
    here = site.node("here", labels={ZONE: "a"})
    near = site.node("near", labels={ZONE: "a"}, cpu="8")
    site.node("far", labels={ZONE: "b"}, cpu="8")
    site.pod("db", labels={"app": "db"}, nodeSelector={HOST: here}, cpu="4")
    site.bound("db")
    site.pod("fits", affinity=with_pods(pod_term("db", ZONE)))
    assert site.bound("fits") == near
    site.pod("not", affinity=with_pods(pod_term("db")))
    expected = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod affinity rules."
    must_not_fit(site, "not", expected)
    site.pod("lonely", affinity=with_pods(pod_term("other", ZONE)))
    must_not_fit(site, "lonely", "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.")
    site.pod("itself", labels={"app": "self"}, affinity=with_pods(pod_term("self", ZONE)))
    first = site.bound("itself")
    site.pod("follows", labels={"app": "self"}, affinity=with_pods(pod_term("self")))
    assert site.bound("follows") == first


def test_pod_anti_affinity_of_the_newcomer(site: Site) -> None:
    one, two = site.nodes(2)
    site.pod("db", labels={"app": "db"}, nodeSelector={HOST: one})
    site.bound("db")
    site.pod("fits", affinity=with_pods(pod_term("db"), anti=True))
    assert site.bound("fits") == two
    site.foreign("db-2", two, labels={"app": "db"})
    site.pod("not", affinity=with_pods(pod_term("db"), anti=True))
    must_not_fit(site, "not", "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.")
    site.space.delete_pod("db-2")
    assert site.bound("not") == two


def test_pod_anti_affinity_of_those_who_are_there(site: Site) -> None:
    one, two = site.nodes(2)
    shy = with_pods(pod_term("noisy"), anti=True)
    site.pod("shy", affinity=shy, nodeSelector={HOST: one})
    site.bound("shy")
    site.pod("noisy", labels={"app": "noisy"})
    assert site.bound("noisy") == two
    site.pod("noisy-2", labels={"app": "noisy"}, nodeSelector={HOST: one})
    must_not_fit(
        site,
        "noisy-2",
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) didn't satisfy existing pods anti-affinity rules.",
    )
    site.pod("quiet", nodeSelector={HOST: one})
    assert site.bound("quiet") == one


def test_anti_affinity_among_newcomers(site: Site) -> None:
    """All come in one round, and no two of them may be together."""
    nodes = site.nodes(3)
    for name in ("a", "b", "c", "d"):
        site.pod(name, labels={"app": "apart"}, affinity=with_pods(pod_term("apart"), anti=True))

    def places() -> dict[str, str]:
        found = {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in site.space.pods()}
        return found if sum(map(bool, found.values())) == 3 else {}

    placed = wait_for(places, "three of four to be bound")
    assert sorted(filter(None, placed.values())) == sorted(nodes)
    (left,) = (name for name, node in placed.items() if not node)
    assert site.refused(left) == "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."


def test_a_namespace_selector(site: Site) -> None:
    one, _ = site.nodes(2)
    site.admin.patch(f"/api/v1/namespaces/{site.name}", {"metadata": {"labels": {"team": site.name}}})
    site.pod("db", labels={"app": "db"}, nodeSelector={HOST: one})
    site.bound("db")
    term = {**pod_term("db"), "namespaceSelector": {"matchLabels": {"team": site.name}}}
    site.pod("fits", affinity=with_pods(term))
    assert site.bound("fits") == one
    site.pod("not", affinity=with_pods({**term, "namespaceSelector": {"matchLabels": {"team": "missing"}}}))
    must_not_fit(site, "not", "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.")


def spread(key: str = ZONE, when: str = "DoNotSchedule", **more: Any) -> list[Object]:
    selector = {"matchLabels": {"app": "spread"}}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **more}]


def test_topology_spread(site: Site) -> None:
    a, b = site.node("a", labels={ZONE: "a"}, cpu="4"), site.node("b", labels={ZONE: "b"}, cpu="1")
    site.node("nowhere")
    places = []
    for number in range(3):
        site.pod(f"s{number}", labels={"app": "spread"}, topologySpreadConstraints=spread(), cpu="600m")
        places.append(site.bound(f"s{number}"))
    assert sorted(places) == [a, a, b]
    site.pod("not", labels={"app": "spread"}, topologySpreadConstraints=spread(), cpu="600m")
    must_not_fit(
        site,
        "not",
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints, "
        "1 node(s) didn't match pod topology spread constraints (missing required label).",
    )


def test_topology_spread_among_newcomers(site: Site) -> None:
    zones = {site.node(zone, labels={ZONE: zone}): zone for zone in ("a", "b", "c")}
    for number in range(9):
        site.pod(f"s{number}", labels={"app": "spread"}, topologySpreadConstraints=spread(), cpu="50m")
    counts = [0, 0, 0]
    for node in site.all_bound(9).values():
        counts["abc".index(zones[node])] += 1
    assert counts == [3, 3, 3]


# Volumes


def storage_class(site: Site, name: str, mode: str, provisioner: str = "example.com/made", **more: Any) -> str:
    whole = f"{site.name}-{name}"
    made = {"metadata": {"name": whole}, "provisioner": provisioner, "volumeBindingMode": mode, **more}
    site.admin.post("/apis/storage.k8s.io/v1/storageclasses", made)
    return whole


def zones(site: Site) -> tuple[str, str]:
    return site.node("a", labels={ZONE: "a"}), site.node("b", labels={ZONE: "b"})


def test_a_volume_is_made_where_its_driver_has_room(site: Site) -> None:
    _, b = zones(site)
    driver = f"{site.name}.example.com"
    tells = {"metadata": {"name": driver}, "spec": {"storageCapacity": True, "attachRequired": False}}
    site.admin.post("/apis/storage.k8s.io/v1/csidrivers", tells)
    claim(site, "data", storageClassName=(name := storage_class(site, "told", "WaitForFirstConsumer", driver)))
    site.pod("user", volumes=mounts("data"))
    assert site.refused("user") == "0/2 nodes are available: 2 node(s) did not have enough free storage."
    path = f"/apis/storage.k8s.io/v1/namespaces/{site.name}/csistoragecapacities"
    for zone, room in (("a", "1Mi"), ("b", "100Gi")):
        topology = {"matchLabels": {ZONE: zone}}
        said = {"metadata": {"name": zone}, "storageClassName": name, "nodeTopology": topology, "capacity": room}
        site.admin.post(path, said)
    data = site.volumes_path("data")
    annotation = "volume.kubernetes.io/selected-node"
    chosen = wait_for(lambda: site.admin.get(data)["metadata"].get("annotations", {}).get(annotation), "a node")
    assert chosen == b


def test_a_bound_volume(site: Site) -> None:
    _, b = zones(site)
    for name, zone in (("near", "b"), ("far", "c")):
        volume(site, name, zone)
        claim(site, name, storageClassName="")
        bind_claim(site, name, f"{site.name}-{name}")
    site.pod("fits", volumes=mounts("near"))
    assert site.bound("fits") == b
    site.pod("not", volumes=mounts("far"))
    must_not_fit(site, "not", "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.")
    site.pod("both", volumes=mounts("near", "far"))
    must_not_fit(site, "both", "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.")


def test_a_volume_that_is_made_where_the_pod_goes(site: Site) -> None:
    _, b = zones(site)
    made_for = storage_class(site, "waits", "WaitForFirstConsumer")
    claim(site, "data", storageClassName=made_for)
    site.pod("fits", volumes=mounts("data"), nodeSelector={HOST: b})
    wanted = "volume.kubernetes.io/selected-node"

    def selected() -> str:
        found = site.admin.get(site.volumes_path("data"))["metadata"].get("annotations", {})
        return str(found.get(wanted, ""))

    assert wait_for(selected, "the claim to name a node") == b
    assert not site.space.pod("fits")["spec"].get("nodeName")
    # Its place is taken meanwhile.
    site.pod("other", nodeSelector={HOST: b}, cpu="4")
    must_not_fit(
        site,
        "other",
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.",
    )
    volume(site, "made", "b", storageClassName=made_for)
    bind_claim(site, "data", f"{site.name}-made")
    assert site.bound("fits") == b
    term = {"matchLabelExpressions": [{"key": ZONE, "values": ["c"]}]}
    elsewhere = storage_class(site, "elsewhere", "WaitForFirstConsumer", allowedTopologies=[term])
    claim(site, "far", storageClassName=elsewhere)
    site.pod("not", volumes=mounts("far"))
    expected = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    must_not_fit(site, "not", expected)


def test_a_pod_whose_room_others_take_while_its_volume_is_made(site: Site) -> None:
    """It was decided for a node, which a pod of another scheduler reaches before its binding is sent."""
    both = site.nodes(2)
    made_for = storage_class(site, "waits", "WaitForFirstConsumer")
    claim(site, "data", storageClassName=made_for)
    site.pod("slow", cpu="3", volumes=mounts("data"))

    def selected() -> str:
        found = site.admin.get(site.volumes_path("data"))["metadata"].get("annotations", {})
        return str(found.get("volume.kubernetes.io/selected-node", ""))

    chosen = wait_for(selected, "the claim to name a node")
    site.foreign("quick", chosen, cpu="2")
    before = site.scheduler.metric("flowsched_binds_total", result="withdrawn")
    volume(site, "made", storageClassName=made_for)
    bind_claim(site, "data", f"{site.name}-made")
    assert {chosen, site.bound("slow")} == set(both)
    site.scheduler.metric_becomes(before + 1, "flowsched_binds_total", result="withdrawn")


def test_a_local_volume(site: Site) -> None:
    """No provisioner makes these: the claim gets one that is there, and only where it is."""
    _, b = zones(site)
    local = storage_class(site, "local", "WaitForFirstConsumer", "kubernetes.io/no-provisioner")
    made = volume(site, "disk", "b", storageClassName=local)
    name = made["metadata"]["name"]
    site.admin.patch(f"/api/v1/persistentvolumes/{name}/status", {"status": {"phase": "Available"}})
    claim(site, "one", storageClassName=local)
    claim(site, "two", storageClassName=local)
    site.pod("first", volumes=mounts("one"))

    def chosen() -> str:
        return str(site.admin.get(site.volumes_path("one"))["spec"].get("volumeName", ""))

    assert wait_for(chosen, "the claim to name a volume") == name
    bind_claim(site, "one", name)
    assert site.bound("first") == b
    site.pod("second", volumes=mounts("two"))
    expected = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    must_not_fit(site, "second", expected)


def test_unbound_and_missing_claims(site: Site) -> None:
    node = site.node()
    claim(site, "immediate", storageClassName=storage_class(site, "now", "Immediate"))
    site.pod("unbound", volumes=mounts("immediate"))
    must_not_fit(site, "unbound", "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    site.pod("missing", volumes=mounts("nothing"))
    must_not_fit(site, "missing", '0/1 nodes are available: persistentvolumeclaim "nothing" not found.')
    volume(site, "any")
    bind_claim(site, "immediate", f"{site.name}-any")
    assert site.bound("unbound") == node


def test_a_claim_for_one_pod_at_a_time_when_two_come_together(site: Site) -> None:
    bound_claim(site, "data", "ReadWriteOncePod")
    for name in ("one", "two"):
        site.pod(name, volumes=mounts("data"), cpu="2")
    for name in ("one", "two"):
        site.refused(name, "0/0 nodes are available")
    # Both wait for a node, so the next round has both.
    node = site.node(cpu="8")
    wait_for(lambda: [p for p in site.space.pods() if p["spec"].get("nodeName")], "one of them to be bound")
    bound, waiting = sorted(site.space.pods(), key=lambda p: "nodeName" not in p["spec"])
    assert bound["spec"]["nodeName"] == node
    taken = f"0/1 nodes are available: 1 {names.CLAIM_IN_USE}."
    assert site.refused(waiting["metadata"]["name"], taken) == taken


def test_a_claim_for_one_pod_at_a_time_when_its_user_goes(site: Site) -> None:
    """A rollout: the old pod's node has no room for the new one."""
    bound_claim(site, "data", "ReadWriteOncePod")
    small, large = site.node("small", cpu="1"), site.node("large", cpu="2")
    site.pod("old", volumes=mounts("data"), cpu="1", nodeSelector={HOST: small})
    assert site.bound("old") == small
    site.pod("new", volumes=mounts("data"), cpu="2")
    must_not_fit(site, "new", f"0/2 nodes are available: 2 {names.CLAIM_IN_USE}.")
    site.space.delete_pod("old")
    assert site.bound("new") == large


@pytest.mark.parametrize("in_tree", [False, True], ids=["csi", "in-tree"])
def test_volumes_that_a_node_takes(site: Site, in_tree: bool) -> None:
    """In-tree volumes count against the limit of the CSI driver that attaches them."""
    node = site.node()
    driver = "ebs.csi.aws.com" if in_tree else f"{site.name}.example.com"
    limit(site, node, driver, 1)
    for name in ("one", "two"):
        csi = {"driver": driver, "volumeHandle": name}
        source = {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}} if in_tree else {"csi": csi}
        bound_claim(site, name, hostPath=None, **source)
    site.pod("first", volumes=mounts("one"))
    assert site.bound("first") == node
    site.pod("second", volumes=mounts("two"))
    must_not_fit(site, "second", "0/1 nodes are available: 1 node(s) exceed max volume count.")
    site.space.delete_pod("first")
    assert site.bound("second") == node
    site.admin.delete(f"/apis/storage.k8s.io/v1/csinodes/{node}")


# The pod itself


def test_scheduling_gates(site: Site) -> None:
    node = site.node()
    site.pod("gated", schedulingGates=[{"name": "example.com/one"}, {"name": "example.com/two"}])
    wait_for(lambda: site.waits("gated"), "the scheduler to see the pod")
    assert site.waits("gated")["queue"] == "gated"
    site.pod("other")
    site.bound("other")
    condition = site.condition("gated")
    assert condition is not None and condition["reason"] == "SchedulingGated"
    site.change_pod("gated", {"spec": {"schedulingGates": [{"name": "example.com/two"}]}}, "merge-patch")
    site.pod("another")
    site.bound("another")
    assert site.waits("gated")["queue"] == "gated"
    site.change_pod("gated", {"spec": {"schedulingGates": None}}, "merge-patch")
    assert site.bound("gated") == node
    site.event("gated", names.SCHEDULED)
    assert len(site.events("gated")) == 1


def test_what_is_not_supported_is_named(site: Site) -> None:
    site.node()
    counted = {"result": "unschedulable", "profile": site.scheduler.name}
    before = site.scheduler.metric("scheduler_schedule_attempts_total", **counted)
    site.pod("claims", resourceClaims=[{"name": "device", "resourceClaimName": "device"}])
    must_not_fit(site, "claims", "0/1 nodes are available: spec.resourceClaims is not supported by flowsched.")
    assert site.scheduler.metric("scheduler_schedule_attempts_total", **counted) == before + 1
    site.scheduler.metric_becomes(1, "scheduler_unschedulable_pods", plugin="UnsupportedField")


def test_higher_priority_goes_first(site: Site) -> None:
    for value in (10, 20):
        made = {"metadata": {"name": f"{site.name}-{value}"}, "value": value, "preemptionPolicy": "Never"}
        site.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", made)
    # A cordoned node first, so that both wait when there is room for one.
    node = site.node(cpu="1")
    site.change_node(node, {"spec": {"unschedulable": True}})
    for name, value in (("low", 10), ("high", 20)):
        site.pod(name, cpu="1", priorityClassName=f"{site.name}-{value}")
        site.refused(name)
    # Beyond their backoff, both are looked at in the same round.
    time.sleep(0.3)
    site.change_node(node, {"spec": {"unschedulable": False}})
    assert site.bound("high") == node
    expected = "0/1 nodes are available: 1 Insufficient cpu."
    wait_for(lambda: site.waits("low")["message"] == expected, "the other one to find no room")
    assert not site.space.pod("low")["spec"].get("nodeName")


def test_no_pod_is_evicted_unless_preemption_is_on(site: Site) -> None:
    made = {"metadata": {"name": f"{site.name}-high"}, "value": 100}
    site.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", made)
    site.node(cpu="1")
    site.pod("low", cpu="1")
    site.bound("low")
    site.pod("high", cpu="1", priorityClassName=f"{site.name}-high")
    must_not_fit(site, "high", "0/1 nodes are available: 1 Insufficient cpu.")
    site.pod("later", cpu="2")
    site.refused("later")
    assert "deletionTimestamp" not in site.space.pod("low")["metadata"]
    assert site.condition("low", names.DISRUPTION_TARGET) is None
    assert not site.space.pod("high")["status"].get("nominatedNodeName")


# Preferences


def prefers(kind: str, term: Object, weight: int = 100) -> Object:
    key = "preference" if kind == "nodeAffinity" else "podAffinityTerm"
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, key: term}]}}


@pytest.mark.parametrize("said", [{}, {names.PROFILE: "canneal"}], ids=["plain", "measured"])
def test_preferred_node_affinity(site: Site, said: dict[str, str]) -> None:
    for node in (nodes := site.nodes(3)):
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
        site.pod(node, cpu="500m", annotations=said, affinity=prefers("nodeAffinity", term))
        assert site.bound(node) == node
    # It is a wish: a full node is no obstacle.
    site.pod("full", cpu="3400m", nodeSelector={HOST: nodes[0]})
    site.bound("full")
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [nodes[0]]}]}
    site.pod("next", cpu="500m", annotations=said, affinity=prefers("nodeAffinity", term))
    assert site.bound("next") in nodes[1:]


def test_prefer_no_schedule(site: Site) -> None:
    site.node("avoided", cpu="8", taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    plain = site.node("plain", cpu="1")
    site.pod("first", cpu="1")
    assert site.bound("first") == plain
    site.pod("second", cpu="1")
    assert site.bound("second") != plain


def test_a_pod_goes_where_its_image_is(site: Site) -> None:
    site.node("without")
    having = site.node("zz-with", images={"test:latest": 2_000_000_000})
    site.pod("first")
    assert site.bound("first") == having


def test_a_disk_that_pods_name_is_for_one_of_them_on_a_node(site: Site) -> None:
    nodes = site.nodes(2)
    disk = [{"name": "d", "gcePersistentDisk": {"pdName": "data"}}]
    for name in ("one", "two"):
        site.pod(name, volumes=disk)
    assert sorted((site.bound("one"), site.bound("two"))) == nodes
    site.pod("three", volumes=disk)
    assert site.refused("three") == "0/2 nodes are available: 2 node(s) had no available disk."
    site.space.delete_pod("one")
    assert site.bound("three") in nodes


def test_preferred_pod_affinity(site: Site) -> None:
    one, two = site.nodes(2)
    site.pod("db", labels={"app": "db"}, nodeSelector={HOST: two})
    site.bound("db")
    for number in range(3):
        site.pod(f"near-{number}", affinity=prefers("podAffinity", pod_term("db")))
        site.pod(f"away-{number}", affinity=prefers("podAntiAffinity", pod_term("db")))
        assert (site.bound(f"near-{number}"), site.bound(f"away-{number}")) == (two, one)


def test_schedule_anyway(site: Site) -> None:
    a, b = site.node("a", labels={ZONE: "a"}, cpu="8"), site.node("b", labels={ZONE: "b"}, cpu="1")
    places = []
    for number in range(4):
        constraints = spread(when="ScheduleAnyway")
        site.pod(f"s{number}", labels={"app": "spread"}, topologySpreadConstraints=constraints, cpu="500m")
        places.append(site.bound(f"s{number}"))
    assert sorted(places) == [a, a, b, b]
    # Where the zone is full, the wish is broken.
    site.pod("more", labels={"app": "spread"}, topologySpreadConstraints=spread(when="ScheduleAnyway"), cpu="500m")
    assert site.bound("more") == a


def test_replicas_are_spread_over_zones_by_default(site: Site) -> None:
    """By load alone all six would go to the zone that is empty; kube-scheduler spreads them 3, 2, 1."""
    nodes = [site.node(zone, labels={ZONE: zone}, cpu="8") for zone in "abc"]
    for node in nodes[1:]:
        site.pod(f"busy-{node}", cpu="4", nodeSelector={HOST: node})
        site.bound(f"busy-{node}")
    for number in range(6):
        site.pod(f"web-{number}", cpu="500m", owner=("ReplicaSet", f"{site.name}-web"))
    places = [site.bound(f"web-{number}") for number in range(6)]
    assert sorted(places.count(node) for node in nodes) in ([1, 2, 3], [2, 2, 2])


def test_the_time_to_a_binding_is_no_longer_than_it_was(site: Site) -> None:
    """The API server tells the whole second of a pod's creation: that alone is half a second too early on average."""
    site.node(cpu="16")
    name = "scheduler_pod_scheduling_sli_duration_seconds"
    before = site.scheduler.metric(f"{name}_sum"), site.scheduler.metric(f"{name}_count")
    seen_s = 0.0
    for number in range(10):
        began = time.monotonic()
        site.pod(f"p{number}", cpu="100m")
        site.bound(f"p{number}")
        seen_s += time.monotonic() - began
        # So that they are created in all parts of a second.
        time.sleep(0.13)
    site.scheduler.metric_becomes(before[1] + 10, f"{name}_count")
    told_s = site.scheduler.metric(f"{name}_sum") - before[0]
    assert 0 < told_s < seen_s + 10 * 0.2

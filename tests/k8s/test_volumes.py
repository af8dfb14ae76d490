from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_builders import (
    claim,
    claim_volume,
    csi_driver,
    csi_node,
    node,
    node_terms,
    pod,
    requirement,
    selector,
    storage_capacity,
    storage_class,
    volume,
)

from flowsched_k8s import names
from flowsched_k8s.objects import Pod
from flowsched_k8s.volumes.attach_limits import UNLIMITED
from flowsched_k8s.volumes.storage_objects import Claim, PersistentVolume
from flowsched_k8s.volumes.volume_needs import NOTHING
from flowsched_k8s.volumes.volumes import NO_PROVISIONER, SELECTED_NODE, ClaimPatch, VolumeIndex, claim_keys

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def index(*things: Any, enabled: bool = True) -> VolumeIndex:
    """All that is known of volumes; the standard class provisions, the local one does not."""
    found = VolumeIndex(enabled)
    found.put_class(storage_class("standard"))
    found.put_class(storage_class("local", provisioner=NO_PROVISIONER))
    for thing in things:
        if isinstance(thing, Claim):
            found.put_claim(thing)
        elif isinstance(thing, PersistentVolume):
            found.put_volume(thing)
        else:
            found.put_class(thing)
    return found


def user(*claims: str, name: str = "p1") -> Pod:
    return pod(name, volumes=[claim_volume(c, f"v{i}") for i, c in enumerate(claims)])


def on(*hosts: str) -> Any:
    """A node selector of some hosts."""
    return node_terms([requirement("kubernetes.io/hostname", "In", *hosts)])


def local(name: str, host: str, size: str = "1Gi", **fields: Any) -> PersistentVolume:
    return volume(name, storage_class="local", size=size, nodes=on(host), **fields)


# Bound claims


def test_a_pod_without_claims_needs_nothing() -> None:
    assert index().needs(pod()) == NOTHING
    assert index().selected_node_patches(pod(), node()) == ()


def test_bound_volumes_are_where_they_are() -> None:
    known = index(claim(volume="pv1"), local("pv1", "n1", claim=("default", "data")))
    needs = known.needs(user("data"))
    assert needs.verdict(node("n1")) is None
    assert needs.verdict(node("n2")) == names.VOLUME_AFFINITY
    assert known.selected_node_patches(user("data"), node("n1")) == ()
    assert known.selected_node_patches(user("data"), node("n2")) == names.VOLUME_AFFINITY
    assert known.settled(user("data"))


@pytest.mark.parametrize("key", [ZONE, OLD_ZONE])
def test_zone_labels_of_old_volumes_count(key: str) -> None:
    needs = index(claim(volume="pv1"), volume("pv1", labels={key: "a__b"})).needs(user("data"))
    assert needs.verdict(node(zone="a")) is None
    assert needs.verdict(node(zone="b")) is None
    assert needs.verdict(node(zone="c")) == names.VOLUME_AFFINITY
    assert needs.verdict(node(labels={"topology.kubernetes.io/region": "r"})) == names.VOLUME_AFFINITY
    assert needs.verdict(node()) is None, "a node outside of all zones is in a cluster without zones"


def test_every_volume_must_reach_the_node() -> None:
    known = index(
        claim("a", volume="pva"),
        volume("pva", nodes=on("n1", "n2")),
        claim("b", volume="pvb"),
        volume("pvb", nodes=on("n2", "n3")),
    )
    needs = known.needs(user("a", "b"))
    assert [needs.verdict(node(f"n{i}")) for i in (1, 2, 3)] == [names.VOLUME_AFFINITY, None, names.VOLUME_AFFINITY]


# Claims that stop the pod everywhere


@pytest.mark.parametrize(
    ("things", "message"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim(storage_class="now"), storage_class("now", waits=False)], names.UNBOUND_CLAIMS),
        ([claim(storage_class=None)], names.UNBOUND_CLAIMS),
        ([claim(storage_class="")], names.UNBOUND_CLAIMS),
        ([claim(volume="pv1", bound=False)], names.UNBOUND_CLAIMS),
        ([claim(storage_class="gone")], 'storageclass "gone" of persistentvolumeclaim "data" not found'),
        ([claim(volume="pv1")], 'persistentvolumeclaim "data" is bound to "pv1", which is not there'),
        ([claim(deleting=True)], 'persistentvolumeclaim "data" is being deleted'),
        ([claim(volume="pv9", phase="Lost")], 'persistentvolumeclaim "data" has lost its persistentvolume "pv9"'),
    ],
)
def test_no_node_will_do(things: list[Any], message: str) -> None:
    known = index(*things)
    assert known.needs(user("data")).blocked == message
    assert known.selected_node_patches(user("data"), node()) == message


def test_claims_of_other_namespaces_are_other_claims() -> None:
    known = index(claim("data", "other", volume="pv1"), volume("pv1"))
    assert known.needs(user("data")).blocked == 'persistentvolumeclaim "data" not found'


def test_without_the_feature_claims_are_refused_by_field() -> None:
    blocked = index(claim(volume="pv1"), volume("pv1"), enabled=False).needs(user("data")).blocked
    assert blocked is not None and "spec.volumes[0].persistentVolumeClaim" in blocked and "'volumes'" in blocked


# Claims made for a pod


def test_an_ephemeral_claim_must_be_there_and_belong_to_the_pod() -> None:
    owner = pod("web", uid="u1", volumes=[{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}}])
    assert claim_keys(owner) == (("default", "web-tmp"),)
    known = index()
    message = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "web-tmp"'
    assert known.needs(owner).blocked == message
    known.put_claim(claim("web-tmp", owner=("Pod", "u2")))
    blocked = known.needs(owner).blocked
    assert blocked is not None and "was not made for this pod" in blocked
    known.put_claim(claim("web-tmp", owner=("Pod", "u1")))
    assert known.needs(owner).blocked is None


# Waiting for the first consumer: volumes to be made


def test_the_node_is_written_to_the_claim() -> None:
    known = index(claim())
    found = known.selected_node_patches(user("data"), node("n1"))
    assert found == (ClaimPatch("default", "data", "uid-default-data", "1", selected_node="n1"),)
    assert found[0].body() == {  # type: ignore[union-attr]
        "metadata": {"uid": "uid-default-data", "resourceVersion": "1", "annotations": {SELECTED_NODE: "n1"}}
    }
    assert not known.settled(user("data"))


def test_allowed_topologies_decide_where_a_volume_can_be_made() -> None:
    zonal = storage_class("zonal", topologies=[{ZONE: ["a"], "disk": ["ssd"]}, {ZONE: ["b"]}])
    needs = index(claim(storage_class="zonal"), zonal).needs(user("data"))
    assert needs.verdict(node(zone="a", labels={"disk": "ssd"})) is None
    assert needs.verdict(node(zone="b")) is None
    for here in (node(zone="a"), node(zone="c"), node()):
        assert needs.verdict(here) == names.NO_VOLUMES


def test_a_claim_that_was_given_a_node_stays_there() -> None:
    known = index(claim(annotations={SELECTED_NODE: "n1"}))
    needs = known.needs(user("data"))
    assert needs.verdict(node("n1")) is None
    assert needs.verdict(node("n2")) == names.NO_VOLUMES
    assert known.selected_node_patches(user("data"), node("n1")) == ()


# Waiting for the first consumer: volumes that are there


def test_local_volumes_are_taken_where_they_are() -> None:
    known = index(claim(storage_class="local"), local("pv1", "n1"), local("pv2", "n2"))
    needs = known.needs(user("data"))
    assert [needs.verdict(node(n)) for n in ("n1", "n2", "n3")] == [None, None, names.NO_VOLUMES]
    found = known.selected_node_patches(user("data"), node("n2"))
    assert [p.body()["spec"] for p in found if not isinstance(p, str)] == [{"volumeName": "pv2"}]


def test_the_smallest_volume_that_suffices_is_taken() -> None:
    sizes = {"small": "1Gi", "middle": "5Gi", "middle-b": "5Gi", "large": "50Gi"}
    known = index(claim(storage_class="local", size="2Gi"), *(local(n, "n1", s) for n, s in sizes.items()))
    assert known.needs(user("data")).settle(node("n1")) == ("middle",)


@pytest.mark.parametrize(
    "unfit",
    [
        local("pv1", "n1", "512Mi"),
        local("pv1", "n1", phase="Released"),
        local("pv1", "n1", claim=("default", "other")),
        local("pv1", "n1", deleting=True),
        local("pv1", "n1", modes=("ReadOnlyMany",)),
        local("pv1", "n1", volumeMode="Block"),
        local("pv1", "n1", labels={"tier": "slow"}),
        local("pv1", "n1", labels={"tier": "fast"}, volumeAttributesClassName="gold"),
        volume("pv1", storage_class="other", nodes=on("n1"), labels={"tier": "fast"}),
    ],
)
def test_volumes_that_do_not_fit(unfit: PersistentVolume) -> None:
    wanting = claim(storage_class="local", selector=selector(tier="fast"))
    assert index(wanting, unfit).needs(user("data")).verdict(node("n1")) == names.NO_VOLUMES
    fit = local("pv1", "n1", labels={"tier": "fast"})
    assert index(wanting, fit).needs(user("data")).verdict(node("n1")) is None


def test_claims_of_one_pod_do_not_share_a_volume() -> None:
    both = [claim("a", storage_class="local"), claim("b", storage_class="local", size="2Gi")]
    known = index(*both, local("pv1", "n1", "2Gi"), local("pv2", "n2", "2Gi"), local("pv3", "n2", "1Gi"))
    needs = known.needs(user("b", "a"))
    assert needs.verdict(node("n1")) == names.NO_VOLUMES
    assert needs.verdict(node("n2")) is None
    found = known.selected_node_patches(user("b", "a"), node("n2"))
    assert [(p.name, p.volume_name) for p in found if not isinstance(p, str)] == [("a", "pv3"), ("b", "pv2")]


def test_a_promised_volume_is_not_given_to_another_pod() -> None:
    known = index(claim("a", storage_class="local"), claim("b", storage_class="local"), local("pv1", "n1"))
    first = known.selected_node_patches(user("a"), node("n1"))
    assert not isinstance(first, str)
    known.assume(first)
    assert known.selected_node_patches(user("b"), node("n1")) == names.NO_VOLUMES
    assert known.selected_node_patches(user("a"), node("n1")) == first
    known.forget(first)
    assert known.needs(user("b")).verdict(node("n1")) is None


def test_a_promise_ends_when_the_claim_says_it_itself() -> None:
    known = index(claim("a", storage_class="local"), claim("b", storage_class="local"), local("pv1", "n1"))
    patches = known.selected_node_patches(user("a"), node("n1"))
    assert not isinstance(patches, str)
    known.assume(patches)
    known.put_claim(claim("a", storage_class="local", volume="pv1", bound=False))
    assert known.needs(user("b")).verdict(node("n1")) == names.NO_VOLUMES, "the claim asks for it now"
    known.remove_claim("default", "a")
    assert known.needs(user("b")).verdict(node("n1")) is None


def test_a_volume_reserved_for_the_claim_is_the_only_one() -> None:
    reserved = local("mine", "n2", claim=("default", "data"), phase="Available")
    known = index(claim(storage_class="local"), local("pv1", "n1"), reserved)
    needs = known.needs(user("data"))
    assert needs.verdict(node("n1")) == names.NO_VOLUMES
    assert needs.settle(node("n2")) == ("mine",)


TOPOLOGIES: list[Any] = [
    None,
    {},
    {"matchLabels": {ZONE: "a"}},
    {"matchLabels": {ZONE: "b"}},
    {"matchLabels": {ZONE: "a", "rack": "1"}},
    {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1", "2"]}]},
]
SIZES = (None, "1Gi", "5Gi")
LABELS = ({}, {ZONE: "a"}, {ZONE: "a", "rack": "1"}, {ZONE: "b", "rack": "2"}, {"rack": "3"})


@given(
    st.lists(st.tuples(st.sampled_from(TOPOLOGIES), st.sampled_from(SIZES), st.sampled_from(SIZES), st.booleans())),
    st.sampled_from(("1Gi", "2Gi", "9Gi")),
    st.booleans(),
)
def test_a_volume_is_made_where_its_driver_has_room(said: list[tuple[Any, ...]], size: str, tells: bool) -> None:
    """As VolumeBinding of kube-scheduler has it: the largest volume counts if it is told, else the room as a whole."""

    def reached(topology: Any, labels: dict[str, str]) -> bool:
        if topology is None:
            return False
        wanted = [(k, [v]) for k, v in topology.get("matchLabels", {}).items()]
        wanted += [(e["key"], e["values"]) for e in topology.get("matchExpressions", ())]
        return all(labels.get(key) in values for key, values in wanted)

    known = index(claim("data", size=size))
    known.capacities.put_driver(csi_driver(tells=tells))
    for k, (topology, capacity, most, ours) in enumerate(said):
        known.capacities.put(storage_capacity(f"c{k}", topology, capacity, most, "standard" if ours else "other"))
    needs = known.needs(user("data"))
    for labels in LABELS:
        there = not tells or any(
            ours and (most or capacity) and int((most or capacity)[0]) >= int(size[0]) and reached(topology, labels)
            for topology, capacity, most, ours in said
        )
        assert needs.verdict(node(labels=labels)) == (None if there else names.NO_STORAGE)


def test_room_comes_and_goes_with_what_the_driver_says() -> None:
    known, here = index(claim("data")), node(labels={ZONE: "a"})
    driver, room = csi_driver(), storage_capacity("c", {"matchLabels": {ZONE: "a"}}, "5Gi")
    known.capacities.put_driver(driver)
    assert known.needs(user("data")).verdict(here) == names.NO_STORAGE
    known.capacities.put(room)
    assert known.needs(user("data")).verdict(here) is None
    known.capacities.remove(room)
    assert known.needs(user("data")).verdict(here) == names.NO_STORAGE
    known.capacities.remove_driver(driver)
    assert known.needs(user("data")).verdict(here) is None


def test_a_node_that_no_volume_can_reach_is_not_one_without_room() -> None:
    zonal = storage_class("zonal", topologies=[{ZONE: ["a"]}])
    known = index(zonal, claim("data", storage_class="zonal"))
    known.capacities.put_driver(csi_driver())
    needs = known.needs(user("data"))
    assert needs.verdict(node(labels={ZONE: "a"})) == names.NO_STORAGE
    assert needs.verdict(node(labels={ZONE: "b"})) == names.NO_VOLUMES


def test_a_class_that_provisions_uses_what_is_there_first() -> None:
    known = index(claim(), volume("pv1", nodes=on("n1")))
    needs = known.needs(user("data"))
    assert needs.settle(node("n1")) == ("pv1",)
    assert needs.settle(node("n2")) == ("",)


# One pod at a time


def test_the_user_of_a_claim_for_one_pod_is_known() -> None:
    known = index(claim(volume="pv1", modes=("ReadWriteOncePod",)), volume("pv1"))
    first, second = user("data", name="p1"), user("data", name="p2")
    claims = known.exclusive(second)
    assert claims == known.exclusive(first) != frozenset()
    assert known.users(claims) == set()
    known.use(first, "n1")
    known.use(first, "n1")
    assert known.users(claims) == {first.metadata.uid}
    known.unuse(first)
    assert known.users(claims) == set()


def test_other_claims_may_be_shared() -> None:
    known = index(claim(volume="pv1"), volume("pv1"))
    assert known.exclusive(user("data", name="p1")) == frozenset()


# Limits


def test_volumes_of_a_driver_are_counted_like_a_resource() -> None:
    known = index(
        *(claim(c, volume=f"pv-{c}") for c in "abc"),
        *(volume(f"pv-{c}", driver="ebs.csi", handle="same" if c in "ab" else c) for c in "abc"),
        claim("new"),
    )
    assert known.pod_volume_needs(user("a", "b", "c")) == {}, "no node limits anything"
    known.limits.put(csi_node("n1", ebs_csi=25, nfs_csi=None))
    assert known.limits.drivers() == {"ebs.csi"}
    assert known.limits.of_node("n1") == {"attachable-volumes-csi-ebs.csi": 25}
    assert known.limits.of_node("n2") == {"attachable-volumes-csi-ebs.csi": UNLIMITED}
    assert known.pod_volume_needs(user("a", "b", "c")) == {"attachable-volumes-csi-ebs.csi": 2}
    assert known.pod_volume_needs(user("new")) == {}
    known.limits.put(csi_node("n2", csi_example_com=8))
    assert known.pod_volume_needs(user("new")) == {"attachable-volumes-csi-csi.example.com": 1}
    known.limits.remove("n1")
    known.limits.put(csi_node("n2"))
    assert known.limits.drivers() == frozenset()


IN_TREE = [
    ("awsElasticBlockStore", {"volumeID": "aws://eu-1a/{}"}, "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("azureDisk", {"diskName": "{}", "diskURI": "/disks/{}"}, "kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("azureFile", {"secretName": "s", "shareName": "{}"}, "kubernetes.io/azure-file", "file.csi.azure.com"),
    ("cinder", {"volumeID": "{}"}, "kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", {"pdName": "{}"}, "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("portworxVolume", {"volumeID": "{}"}, "kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("vsphereVolume", {"volumePath": "[store] {}"}, "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
]


@pytest.mark.parametrize(("field", "source", "plugin", "driver"), IN_TREE)
def test_in_tree_volumes_count_against_the_limit_of_their_driver(
    field: str, source: dict[str, str], plugin: str, driver: str
) -> None:
    def disk(name: str) -> dict[str, str]:
        return {key: text.format(name) for key, text in source.items()}

    known = index(
        *(claim(c, volume=f"pv-{c}") for c in "ab"),
        *(volume(f"pv-{c}", **{field: disk(c)}) for c in "ab"),
        storage_class("in-tree", provisioner=plugin),
        claim("new", storage_class="in-tree"),
    )
    counts = f"attachable-volumes-csi-{driver}"
    known.limits.put(csi_node("n1", migrated=f"kubernetes.io/other,{plugin}", **{driver.replace(".", "_"): 2}))
    assert known.pod_volume_needs(user("a", "b", "new")) == {counts: 3}
    inline = pod(volumes=[{"name": c, field: disk(c)} for c in "ab"])
    assert known.pod_volume_needs(inline) == {counts: 2}
    known.limits.put(csi_node("n1", **{driver.replace(".", "_"): 2}))
    always = plugin not in ("kubernetes.io/azure-file", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume")
    assert known.pod_volume_needs(user("a", "b", "new")) == ({counts: 3} if always else {})


def test_one_disk_by_its_old_and_its_new_name_is_one_volume() -> None:
    known = index(
        claim("old", volume="pv-old"),
        claim("new", volume="pv-new"),
        volume("pv-old", awsElasticBlockStore={"volumeID": "aws://eu-1a/vol-1"}),
        volume("pv-new", driver="ebs.csi.aws.com", handle="vol-1"),
    )
    known.limits.put(csi_node("n1", ebs_csi_aws_com=2))
    assert known.pod_volume_needs(user("old", "new")) == {"attachable-volumes-csi-ebs.csi.aws.com": 1}


def test_disks_of_one_name_in_two_zones_are_two_volumes() -> None:
    known = index(
        *(claim(z, volume=f"pv-{z}") for z in "ab"),
        *(volume(f"pv-{z}", labels={ZONE: z}, gcePersistentDisk={"pdName": "data"}) for z in "ab"),
    )
    known.limits.put(csi_node("n1", pd_csi_storage_gke_io=2))
    assert known.pod_volume_needs(user("a", "b")) == {"attachable-volumes-csi-pd.csi.storage.gke.io": 2}


def test_a_claim_that_is_mounted_twice_is_one_volume() -> None:
    known = index(claim(storage_class="local"), local("pv1", "n1"))
    assert known.needs(user("data", "data")).settle(node("n1")) == ("pv1",)


# In general


def test_what_never_was_can_be_removed() -> None:
    known = VolumeIndex()
    known.remove_claim("default", "x")
    known.remove_volume("x")
    known.remove_class("x")
    known.limits.remove("x")
    known.unuse(user("x"))
    known.forget([ClaimPatch("default", "x", "u", "1")])


sizes = st.integers(1, 4)
hosts = st.sampled_from(["n1", "n2"])


@given(st.lists(st.tuples(hosts, sizes), max_size=5), st.lists(sizes, min_size=1, max_size=3), st.randoms())
def test_a_pod_that_passes_gets_volumes_that_fit_and_none_is_shared(
    there: list[Any], wanted: list[int], random: Any
) -> None:
    volumes = {f"pv{i}": local(f"pv{i}", host, f"{size}Gi") for i, (host, size) in enumerate(there)}
    claims = {f"c{i}": claim(f"c{i}", storage_class="local", size=f"{size}Gi") for i, size in enumerate(wanted)}
    things = [*volumes.values(), *claims.values()]
    random.shuffle(things)
    known, consumer = index(*things), user(*claims)
    for host in ("n1", "n2"):
        found = known.selected_node_patches(consumer, node(host))
        here = sorted(size for h, size in there if h == host)[::-1]
        is_possible = len(here) >= len(wanted) and all(a >= b for a, b in zip(here, sorted(wanted)[::-1], strict=False))
        assert is_possible == (not isinstance(found, str))
        if not isinstance(found, str):
            assert len({p.volume_name for p in found}) == len(claims)
            for p in found:
                index_of = int(p.volume_name[2:])
                assert there[index_of][0] == host and there[index_of][1] >= wanted[int(p.name[1:])]

"""The state machine and volumes: claims that allow one pod at a time, and volumes that are given away once."""

from __future__ import annotations

import itertools
from typing import Any

import objects_builders as b
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer, key_of

from flowsched_k8s import names
from flowsched_k8s.bindings.bindings import BindOutcome
from flowsched_k8s.changes import Gone, Seen
from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.instructions import PatchClaim, PatchCondition

ONE_POD = ("ReadWriteOncePod",)
TAKEN = f"2 {names.CLAIM_IN_USE}"


def scheduler(*nodes: Any) -> ModelScheduler:
    """A scheduler that knows these nodes and, in two namespaces, a bound claim "data" for one pod at a time."""
    server = ModelServer()
    for node in nodes:
        server.put(node)
    running = ModelScheduler(server, Configuration())
    for namespace in ("default", "other"):
        bound = b.claim("data", namespace, volume=f"pv-{namespace}", modes=ONE_POD)
        tell(running, bound, b.volume(f"pv-{namespace}", claim=(namespace, "data"), modes=ONE_POD))
    return running


def tell(running: ModelScheduler, *things: Any) -> None:
    """What the model of the API server does not have."""
    running.observe([Seen(thing) for thing in things])


def user(name: str, *, cpu: str = "1", claim: str = "data", **fields: Any) -> Any:
    return b.pod(name, cpu=cpu, volumes=[b.claim_volume(claim)], **fields)


def test_one_of_two_pods_that_come_together_gets_the_claim() -> None:
    running = scheduler(b.node("n1"), b.node("n2"))
    running.create(user("first"), user("second"))
    assert [bind.pod.name for bind in running.round()] == ["first"]
    (told,) = running.conditions("second")
    assert (told.reason, told.message) == (names.UNSCHEDULABLE, f"0/2 nodes are available: {TAKEN}.")
    running.settle()
    assert running.where().keys() == {"first"}


def test_the_claim_goes_to_the_waiting_pod_when_its_user_is_gone() -> None:
    """Every rollout: the old pod is on a node that has no room for the new one."""
    running = scheduler(b.node("n1", "1"), b.node("n2", "2"))
    running.create(user("old", nodeSelector={names.HOSTNAME: "n1"}))
    running.settle()
    running.create(user("new", cpu="2"))
    running.settle()
    assert running.where() == {"old": "n1"}
    running.server.remove(running.server.pods["default", "old"])
    running.settle()
    assert running.where() == {"new": "n2"}


def test_the_claim_is_free_again_when_its_user_has_ended() -> None:
    running = scheduler(b.node("n1"))
    (job,) = running.create(user("job"))
    running.settle()
    running.create(user("next"))
    running.settle()
    running.server.finish(job)
    running.settle()
    assert running.where()["next"] == "n1"


def test_pods_of_another_namespace_do_not_stand_in_for_those_that_wait_for_the_claim() -> None:
    """They wait for a claim of the same name, with the same words."""
    running = scheduler(b.node("n1", "1"), b.node("n2", "1"), b.node("n3", "2"))
    for namespace, node in (("default", "n1"), ("other", "n2")):
        running.create(user("old", namespace=namespace, nodeSelector={names.HOSTNAME: node}))
    running.settle()
    running.create(user("new", namespace="default", cpu="2"), user("new", namespace="other", cpu="2"))
    running.settle()
    running.server.remove(running.server.pods["other", "old"])
    running.settle()
    assert running.server.pods["other", "new"].spec.node_name == "n3"


def test_a_failed_binding_gives_the_claim_back() -> None:
    running = scheduler(b.node("n1"))
    first, _ = running.create(user("first"), user("second"))
    running.round()
    running.server.remove(first)
    assert running.send() is BindOutcome.GONE
    running.reply()
    running.settle()
    assert running.where() == {"second": "n1"}


def test_a_gang_that_needs_one_claim_twice_is_told_and_takes_nothing() -> None:
    running = scheduler(b.node("n1"), b.node("n2"))
    labels = {NAME_LABEL: "g", MINIMUM_LABEL: "2"}
    members = running.create(user("m1", labels=labels), user("m2", labels=labels))
    assert running.round() == []
    assert {told.message for m in members for told in running.conditions(m.metadata.name)} == {
        f"0/2 nodes are available: {TAKEN}."
    }
    running.server.remove(members[0])
    running.server.remove(members[1])
    running.create(user("alone", cpu="4"))
    running.settle()
    assert running.where().keys() == {"alone"}, "room and claim are free"


def test_in_tree_volumes_count_against_the_limit_of_their_driver() -> None:
    running = scheduler(b.node("n1"))
    for name in ("a", "b", "c"):
        disk = {"volumeID": f"aws://eu-1a/vol-{name}"}
        tell(running, b.claim(name, volume=f"pv-{name}"))
        tell(running, b.volume(f"pv-{name}", claim=("default", name), awsElasticBlockStore=disk))
    tell(running, b.csi_node("n1", migrated="kubernetes.io/aws-ebs", ebs_csi_aws_com=2))
    running.create(*(user(f"p{name}", claim=name) for name in ("a", "b", "c")))
    running.settle()
    assert running.where() == {"pa": "n1", "pb": "n1"}
    assert running.conditions("pc")[-1].message == f"0/1 nodes are available: 1 {names.TOO_MANY_VOLUMES}."


@pytest.mark.parametrize("order", list(itertools.permutations(("pod", "claim", "volume", "limit"))))
def test_volumes_count_in_whatever_order_things_become_known(order: tuple[str, ...]) -> None:
    """After a restart the lists of different kinds come in any order."""
    running = scheduler(b.node("n1"))
    things = {
        "claim": b.claim("there", volume="pv-there"),
        "volume": b.volume("pv-there", claim=("default", "there"), driver="ebs.csi"),
        "limit": b.csi_node("n1", ebs_csi=1),
    }
    for name in order:
        if name == "pod":
            running.create(user("there", claim="there", node="n1"))
        else:
            tell(running, things[name])
    tell(running, b.claim("more", volume="pv-more"), b.volume("pv-more", claim=("default", "more"), driver="ebs.csi"))
    running.create(user("more", claim="more"))
    running.settle()
    assert running.where() == {"there": "n1"}


def test_volumes_of_bound_pods_count_once_a_node_has_migrated_their_plugin() -> None:
    running = scheduler(b.node("n1"))
    inline = [{"name": "data", "vsphereVolume": {"volumePath": "[store] one"}}]
    running.create(b.pod("there", cpu="1", node="n1", volumes=inline, scheduler="other"))
    tell(running, b.csi_node("n1", csi_vsphere_vmware_com=1))
    running.create(b.pod("more", cpu="1", volumes=[{"name": "data", "vsphereVolume": {"volumePath": "[store] two"}}]))
    tell(running, b.csi_node("n1", migrated="kubernetes.io/vsphere-volume", csi_vsphere_vmware_com=1))
    running.settle()
    assert running.where() == {"there": "n1"}


def test_a_volume_is_given_to_one_of_two_claims() -> None:
    running = scheduler(b.node("n1"))
    tell(running, b.storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    tell(running, b.volume("disk", storage_class="local"))
    tell(running, b.claim("a", storage_class="local"), b.claim("b", storage_class="local"))
    running.create(user("pa", claim="a"), user("pb", claim="b"))
    assert running.round() == []
    patched = [told.patch.name for told in running.told if isinstance(told, PatchClaim)]
    assert patched == ["a"]
    running.server.now += 2.0
    running.round()
    assert "didn't find available persistent volumes" in running.conditions("pb")[-1].message


def test_a_volume_that_a_failed_claim_gives_back_goes_to_the_next() -> None:
    running = scheduler(b.node("n1"))
    tell(running, b.storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    tell(running, b.volume("disk", storage_class="local"))
    tell(running, b.claim("a", storage_class="local"), b.claim("b", storage_class="local"))
    pa, _ = running.create(user("pa", claim="a"), user("pb", claim="b"))
    running.round()
    running.server.now += 2.0
    running.round()
    told = running.state.bindings.claim_failed(key_of(pa), "could not be prepared: for the test", running.now)
    assert [t.message for t in told if isinstance(t, PatchCondition)]
    running.server.remove(pa)
    running.told.clear()
    running.settle()
    assert [t.patch.name for t in running.told if isinstance(t, PatchClaim)] == ["b"]


def test_a_pod_whose_room_is_gone_once_its_volume_is_there_is_not_sent() -> None:
    """Volumes take seconds to minutes to be made, and others bind meanwhile."""
    running = scheduler(b.node("n1", "2"), b.node("n2", "2"))
    tell(running, b.storage_class("made"), b.claim("a", storage_class="made"))
    running.create(user("p", cpu="2", claim="a"))
    assert running.round() == []
    (node,) = {e.assumed for e in running.state.cache.pods.values()}
    running.create(b.pod("foreign", cpu="1", node=node, scheduler="other"))
    tell(running, b.claim("a", volume="disk"), b.volume("disk", claim=("default", "a")))
    (bind,) = running.state.bindings.claims_settled(running.now)
    assert "Insufficient cpu" in (running.state.bindings.withheld(bind, running.now) or "")
    running.settle()
    assert running.where() == {"foreign": node, "p": "n2" if node == "n1" else "n1"}


# Volumes that stay attached


DRIVER = "ebs.csi.aws.com"


def attached_scheduler(limit: int) -> ModelScheduler:
    """A node that takes so many volumes, and three bound claims with volumes of the driver."""
    running = scheduler(b.node("n1"))
    tell(running, b.csi_node("n1", ebs_csi_aws_com=limit))
    for number in range(3):
        name = f"v{number}"
        tell(
            running,
            b.claim(name, volume=name),
            b.volume(name, claim=("default", name), driver=DRIVER, handle=f"handle-{number}"),
        )
    return running


def test_volumes_that_stay_attached_count_until_they_are_detached() -> None:
    running = attached_scheduler(2)
    left = [b.volume_attachment(f"va{n}", driver=DRIVER, volume=f"v{n}") for n in (1, 2)]
    tell(running, *left)
    running.create(user("new", claim="v0"))
    running.settle()
    assert running.where() == {}
    (told,) = running.conditions("new")
    assert names.TOO_MANY_VOLUMES in told.message
    running.observe([Gone(left[0])])
    running.settle()
    assert running.where() == {"new": "n1"}


def test_an_attached_volume_with_a_user_counts_once() -> None:
    running = attached_scheduler(2)
    running.create(user("old", claim="v1"))
    running.settle()
    tell(running, b.volume_attachment("va1", driver=DRIVER, volume="v1"))
    running.create(user("new", claim="v0"))
    running.settle()
    assert running.where() == {"old": "n1", "new": "n1"}


def test_an_attachment_counts_from_when_its_volume_is_known() -> None:
    running = attached_scheduler(1)
    tell(running, b.volume_attachment("va9", driver=DRIVER, volume="v9"))
    tell(running, b.volume("v9", driver=DRIVER, handle="handle-9"))
    running.create(user("new", claim="v0"))
    running.settle()
    assert running.where() == {}


# Volumes that several pods use


def sharing(limits: dict[str, int], volumes: int, **configuration: Any) -> ModelScheduler:
    """Nodes that take so many volumes of a driver each, and claims v0, v1, ... with volumes of it."""
    server = ModelServer()
    for node in limits:
        server.put(b.node(node, "8"))
    running = ModelScheduler(server, Configuration(**configuration))
    tell(running, *(b.csi_node(node, ebs_csi_aws_com=count) for node, count in limits.items()))
    for number in range(volumes):
        name = f"v{number}"
        tell(running, b.claim(name, volume=name), b.volume(name, claim=("default", name), driver=DRIVER, handle=name))
    return running


def uses(name: str, *claims: str, **fields: Any) -> Any:
    volumes = [b.claim_volume(claim, claim) for claim in claims]
    return b.pod(name, cpu=fields.pop("cpu", "100m"), volumes=volumes, **fields)


def test_a_full_node_takes_pods_whose_volumes_it_has() -> None:
    running = sharing({"n1": 1}, 2)
    running.create(uses("first", "v0"))
    running.settle()
    running.create(uses("same", "v0"), uses("other", "v1"), uses("both", "v0", "v1"))
    running.settle()
    assert running.where().keys() == {"first", "same"}
    assert running.conditions("other")[-1].message == f"0/1 nodes are available: 1 {names.TOO_MANY_VOLUMES}."
    assert names.TOO_MANY_VOLUMES in running.conditions("both")[-1].message


def test_pods_that_come_together_share_the_last_place() -> None:
    running = sharing({"n1": 1}, 1)
    running.create(*(uses(f"p{n}", "v0") for n in range(4)))
    assert len(running.round()) == 4


def test_a_volume_counts_until_its_last_user_is_gone() -> None:
    running = sharing({"n1": 1}, 2)
    first, second = running.create(uses("first", "v0"), uses("second", "v0"))
    running.settle()
    running.create(uses("other", "v1"))
    for gone, there in ((first, {"second"}), (second, {"other"})):
        running.settle()
        assert "other" not in running.where()
        running.server.remove(gone)
        running.settle()
        assert running.where().keys() == there


def test_pods_whose_volumes_are_on_another_node_bring_each_of_them_once() -> None:
    running = sharing({"full": 4, "n1": 2}, 3)
    for n in range(3):
        running.create(uses(f"there{n}", f"v{n}", cpu="2650m", node="full", scheduler="other"))
    running.create(*(uses(f"p{k}{n}", f"v{n}") for n in range(3) for k in range(3)))
    running.settle()
    there = {name[-1] for name, node in running.where().items() if node == "n1"}
    assert len(there) == 2
    assert len(running.where()) == 3 + 2 * 3


def test_members_of_a_gang_do_not_starve_each_other() -> None:
    running = sharing({"full": 4, "n1": 1, "n2": 1}, 2)
    for n in range(2):
        running.create(uses(f"there{n}", f"v{n}", cpu="4", node="full", scheduler="other"))
    running.put(b.node("n2", "8", taints=[b.taint("worse", effect="PreferNoSchedule")]))
    gang = {NAME_LABEL: "gang", MINIMUM_LABEL: "2"}
    running.create(*(uses(f"p{n}", f"v{n}", labels=gang) for n in range(2)))
    for _ in range(6):
        running.settle()
        running.server.now += 20.0
    assert {"p0", "p1"} <= running.where().keys()


def test_a_victim_frees_no_volume_that_others_use_as_well() -> None:
    running = sharing({"n1": 1}, 2, features=Features(preemption=True))
    running.create(uses("low", "v0", priority=1), uses("high", "v0", priority=50))
    running.settle()
    running.create(uses("new", "v1", priority=10))
    running.settle()
    assert not running.victims
    running.server.remove(running.server.pods["default", "high"])
    running.settle()
    assert [key.name for key in running.victims] == ["low"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_volumes_of_a_node_are_never_more_than_its_limit_and_no_place_is_refused(data: st.DataObject) -> None:
    limits = {f"n{k}": data.draw(st.integers(1, 3)) for k in range(2)}
    running = sharing(limits, 5)
    claims = {}
    for number in range(data.draw(st.integers(2, 9))):
        name = f"p{number}"
        claims[name] = frozenset(
            data.draw(st.sets(st.sampled_from([f"v{k}" for k in range(5)]), min_size=1, max_size=2))
        )
        running.create(uses(name, *sorted(claims[name])))
        if data.draw(st.booleans()):
            running.settle()
        if data.draw(st.integers(0, 3)) == 0 and running.where():
            gone = data.draw(st.sampled_from(sorted(running.where())))
            running.server.remove(running.server.pods["default", gone])
            del claims[gone]
    for _ in range(3):
        running.server.now += 20.0
        running.settle()
    where = running.where()
    there = {node: frozenset().union(*(claims[p] for p, at in where.items() if at == node)) for node in limits}
    assert all(len(there[node]) <= limit for node, limit in limits.items())
    for name in claims.keys() - where.keys():
        assert all(len(there[node] | claims[name]) > limit for node, limit in limits.items()), name
    assert running.state.cache.machines.free[
        :, list(running.state.cache.machines.resources).index(f"{names.VOLUME_LIMIT_PREFIX}{DRIVER}")
    ].tolist()[: len(limits)] == [limits[node] - len(there[node]) for node in limits]

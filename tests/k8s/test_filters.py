from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_builders import (
    affinity,
    claim,
    claim_volume,
    label_sets,
    node,
    node_terms,
    pod,
    requirement,
    spread,
    storage_class,
    taint,
    toleration,
    volume,
)

from flowsched_k8s import names
from flowsched_k8s.pods.filters import StaticFilter, spread_nodes, static_filter
from flowsched_k8s.volumes.volumes import VolumeIndex

DEDICATED = taint("dedicated", "ml")
NODE_IN_A = node_terms([requirement("zone", "In", "a")])


def made(**spec: Any) -> StaticFilter:
    return static_filter(pod(**spec), VolumeIndex())


def test_a_plain_pod_may_run_on_a_plain_node() -> None:
    found = made()
    assert found.blocked is None
    assert found.verdict(node()) is None
    assert found.affine(node())
    assert found.preference(node()) == 0.0


# Cordon


def test_a_cordoned_node_takes_only_those_who_tolerate_it() -> None:
    assert made().verdict(node(cordoned=True)) == names.CORDONED
    brave = toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule")
    assert made(tolerations=[brave]).verdict(node(cordoned=True)) is None
    assert made(tolerations=[toleration(operator="Exists")]).verdict(node(cordoned=True)) is None
    later = toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoExecute")
    assert made(tolerations=[later]).verdict(node(cordoned=True)) == names.CORDONED


# Selector and affinity


def test_node_selector_and_required_affinity_must_both_match() -> None:
    found = made(nodeSelector={"disk": "ssd"}, affinity=affinity(nodes=NODE_IN_A))
    assert found.verdict(node(labels={"disk": "ssd", "zone": "a"})) is None
    for labels in ({"disk": "ssd"}, {"zone": "a"}, {"disk": "hdd", "zone": "a"}, {"disk": "ssd", "zone": "b"}):
        assert found.verdict(node(labels=labels)) == names.NODE_AFFINITY
        assert not found.affine(node(labels=labels))


def test_affinity_without_terms_matches_nothing() -> None:
    assert made(affinity=affinity(nodes=node_terms())).verdict(node()) == names.NODE_AFFINITY


# Taints


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
@pytest.mark.parametrize(
    ("tolerates", "is_enough"),
    [
        (toleration("dedicated", "Equal", "ml"), True),
        (toleration("dedicated", None, "ml"), True),
        (toleration("dedicated", "Exists"), True),
        (toleration(operator="Exists"), True),
        (toleration("dedicated", "Equal", "web"), False),
        (toleration("dedicated", "Equal"), False),
        (toleration("other", "Exists"), False),
        (toleration(operator="Equal", value="ml"), False),
        (toleration("dedicated", "Exists", effect="PreferNoSchedule"), False),
    ],
)
def test_tolerations(effect: str, tolerates: Any, is_enough: bool) -> None:
    tainted = node(taints=[taint("dedicated", "ml", effect)])
    assert made().verdict(tainted) == names.TAINTS
    assert (made(tolerations=[tolerates]).verdict(tainted) is None) == is_enough
    same_effect = {**tolerates, "effect": effect}
    assert (made(tolerations=[same_effect]).verdict(tainted) is None) == (is_enough or "effect" in tolerates)


def test_every_taint_must_be_tolerated() -> None:
    one = made(tolerations=[toleration("a", "Exists")])
    assert one.verdict(node(taints=[taint("a"), taint("b")])) == names.TAINTS


@pytest.mark.parametrize(
    ("operator", "own", "value", "tolerated"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "-5", "-6", True),
        ("Lt", "5", "6", False),
        ("Gt", "5", "many", False),
        ("Gt", "05", "6", False),
        ("Lt", "5", "", False),
        ("Gt", "5", "9" * 30, False),
    ],
)
def test_tolerations_that_compare_numbers(operator: str, own: str, value: str, tolerated: bool) -> None:
    toleration = {"key": "k", "operator": operator, "value": own, "effect": "NoSchedule"}
    found = static_filter(pod(tolerations=[toleration]), VolumeIndex())
    tainted = node(taints=[{"key": "k", "value": value, "effect": "NoSchedule"}])
    assert found.verdict(tainted) == (None if tolerated else names.TAINTS)


@pytest.mark.parametrize("operator", ["Sometimes"])
def test_toleration_operators_that_are_not_supported_are_named(operator: str) -> None:
    found = made(tolerations=[toleration("a", "Exists"), toleration("sla", operator, "9")])
    assert found.blocked == f"spec.tolerations[1].operator: {operator} is not supported by flowsched"


# Order


def test_the_first_reason_in_the_usual_order_is_told() -> None:
    volumes = VolumeIndex()
    volumes.put_claim(claim(volume="pv1"))
    volumes.put_volume(volume("pv1", nodes=node_terms([requirement("zone", "In", "b")])))
    found = static_filter(pod(nodeSelector={"disk": "ssd"}, volumes=[claim_volume("data")]), volumes)
    steps = [
        (node(cordoned=True, taints=[DEDICATED]), names.CORDONED),
        (node(taints=[DEDICATED]), names.NODE_AFFINITY),
        (node(labels={"disk": "ssd"}, taints=[DEDICATED]), names.TAINTS),
        (node(labels={"disk": "ssd"}), names.VOLUME_AFFINITY),
        (node(labels={"disk": "ssd", "zone": "b"}), None),
    ]
    assert [found.verdict(n) for n, _ in steps] == [reason for _, reason in steps]


# Wishes


def test_missed_preferences_cost_their_share_of_the_weights() -> None:
    light = made(affinity=affinity(prefers=[(20, [requirement("zone", "In", "a")])]))
    assert light.preference(node(labels={"zone": "a"})) == 0.0
    assert light.preference(node()) == pytest.approx(0.2)
    heavy = affinity(prefers=[(100, [requirement("zone", "In", "a")]), (100, [requirement("disk", "Exists")])])
    assert made(affinity=heavy).preference(node(labels={"disk": "ssd"})) == pytest.approx(0.5)
    assert made(affinity=heavy).preference(node()) == pytest.approx(1.0)


def test_wishes_that_no_node_can_meet_cost_nothing() -> None:
    assert made(affinity=affinity(prefers=[(50, []), (50, [requirement("x", "Nonsense")])])).preference(node()) == 0.0


def test_taints_to_be_avoided_cost_unless_they_are_tolerated() -> None:
    avoided = node(taints=[taint("slow", effect="PreferNoSchedule")])
    assert made().verdict(avoided) is None
    assert made().preference(avoided) == pytest.approx(0.5)
    assert made(tolerations=[toleration("slow", "Exists")]).preference(avoided) == 0.0
    many = node(taints=[taint(f"t{i}", effect="PreferNoSchedule") for i in range(9)])
    assert made().preference(avoided) < made().preference(many) < 1.0


@given(st.lists(st.tuples(st.integers(1, 100), st.sampled_from("abc")), max_size=5), label_sets(), st.integers(0, 4))
def test_all_wishes_together_stay_small(wishes: list[Any], labels: dict[str, str], taints: int) -> None:
    found = made(affinity=affinity(prefers=[(w, [requirement("app", "In", v)]) for w, v in wishes]))
    here = node(labels=labels, taints=[taint(f"t{i}", effect="PreferNoSchedule") for i in range(taints)])
    assert 0.0 <= found.preference(here) < 2.0


# Spreads


def test_a_node_counts_for_spreads_only_with_all_their_labels() -> None:
    found = made(topologySpreadConstraints=[spread("zone", {}), spread("rack", {}), spread("row", {}, hard=False)])
    assert found.affine(node(labels={"zone": "a", "rack": "1"}))
    assert not found.affine(node(labels={"zone": "a"}))
    assert found.verdict(node()) is None


def test_node_inclusion_policies() -> None:
    def counted(labels: Any = None, taints: Any = None, **policies: str) -> bool:
        found = made(nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[spread("zone", {}, **policies)])
        return found.affine(node(labels={"zone": "a", **(labels or {})}, taints=taints))

    assert counted({"disk": "ssd"}, [DEDICATED])
    assert not counted()
    assert counted(nodeAffinityPolicy="Ignore")
    assert not counted({"disk": "ssd"}, [DEDICATED], nodeTaintsPolicy="Honor")
    assert counted({"disk": "ssd"}, [taint("t", effect="PreferNoSchedule")], nodeTaintsPolicy="Honor")


def test_constraints_whose_policies_differ_compare_nodes_of_their_own() -> None:
    ignoring = spread("rack", {}, nodeAffinityPolicy="Ignore")
    constrained = pod(nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[spread("zone", {}), ignoring])
    found = static_filter(constrained, VolumeIndex())
    assert found.blocked is None
    assert found.affine(node())
    (_, by_zone), (_, by_rack) = spread_nodes(constrained)
    assert by_zone is not None and by_rack is not None
    here = {"zone": "a", "rack": "1"}
    assert not by_zone.affine(node(labels=here)) and by_rack.affine(node(labels=here))
    assert by_zone.affine(node(labels={**here, "disk": "ssd"}))
    # A node that lacks the label of any of them is in no domain of either.
    assert not by_rack.affine(node(labels={"rack": "1"}))


def test_wishes_have_no_part_in_which_nodes_are_compared() -> None:
    soft = spread("rack", {}, hard=False, nodeAffinityPolicy="Ignore")
    constrained = pod(topologySpreadConstraints=[spread("zone", {}), soft])
    assert [nodes for _, nodes in spread_nodes(constrained)] == [None]


# What is not supported


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, "spec.workloadRef"),
        (
            {"topologySpreadConstraints": [{**spread("z", {}), "whenUnsatisfiable": "Maybe"}]},
            "whenUnsatisfiable: Maybe",
        ),
    ],
)
def test_unsupported_fields_are_named(spec: Any, field: str) -> None:
    blocked = made(**spec).blocked
    assert blocked is not None and field in blocked and "not supported by flowsched" in blocked


def test_ordinary_volumes_need_no_check() -> None:
    assert made(volumes=[{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}]).blocked is None


# Keys


def test_the_order_in_which_demands_are_written_does_not_matter() -> None:
    tolerations = [toleration("a", "Exists"), toleration("b", "Equal", "1"), toleration("b", "Exists")]
    wishes = [(1, [requirement("zone", "In", "a", "b")]), (2, [requirement("disk", "Exists")])]
    terms = [[requirement("x", "In", "2", "1"), requirement("y", "Exists")], [requirement("z", "Gt", "3")]]
    one = made(
        tolerations=tolerations,
        nodeSelector={"a": "1", "b": "2"},
        affinity=affinity(nodes=node_terms(*terms), prefers=wishes),
    )
    two = made(
        tolerations=tolerations[::-1],
        nodeSelector={"b": "2", "a": "1"},
        affinity=affinity(nodes=node_terms(terms[1], terms[0][::-1]), prefers=wishes[::-1]),
    )
    assert one.key == two.key and hash(one.key) == hash(two.key)


def test_pods_that_differ_only_in_what_nodes_do_not_see_share_a_key() -> None:
    assert (
        static_filter(pod("a", cpu="1", labels={"app": "x"}), VolumeIndex()).key
        == static_filter(pod("b", cpu="2", labels={"app": "y"}), VolumeIndex()).key
    )


def test_claims_of_a_stateful_set_share_a_key_until_they_are_bound() -> None:
    volumes = VolumeIndex()
    volumes.put_class(storage_class())
    for i in range(2):
        volumes.put_claim(claim(f"data-{i}"))
    keys = [static_filter(pod(f"p{i}", volumes=[claim_volume(f"data-{i}")]), volumes).key for i in range(2)]
    assert keys[0] == keys[1]
    volumes.put_claim(claim("data-0", volume="pv"))
    volumes.put_volume(volume("pv", nodes=NODE_IN_A))
    assert static_filter(pod("p0", volumes=[claim_volume("data-0")]), volumes).key != keys[1]


taints = st.builds(
    taint,
    st.sampled_from("ab"),
    st.sampled_from(["1", "2", None]),
    st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
)
tolerations = st.one_of(
    st.builds(
        toleration, st.sampled_from(["a", "b", ""]), st.just("Exists"), st.none(), st.sampled_from(["NoSchedule", None])
    ),
    st.builds(toleration, st.sampled_from("ab"), st.sampled_from(["Equal", None]), st.sampled_from(["1", "2", None])),
)
pods = st.builds(
    lambda chosen, tolerated, terms: made(
        nodeSelector=chosen, tolerations=tolerated, affinity=affinity(nodes=node_terms(*terms)) if terms else None
    ),
    label_sets(),
    st.lists(tolerations, max_size=2),
    st.lists(
        st.lists(st.builds(requirement, st.sampled_from(["app", "tier"]), st.just("Exists")), max_size=1), max_size=2
    ),
)
nodes = st.builds(
    lambda labels, tainted, cordoned: node(labels=labels, taints=tainted, cordoned=cordoned),
    label_sets(),
    st.lists(taints, max_size=2),
    st.booleans(),
)


@given(pods, pods, st.lists(nodes, min_size=1, max_size=5))
def test_equal_keys_mean_equal_answers(one: StaticFilter, two: StaticFilter, here: list[Any]) -> None:
    if one.key == two.key:
        for n in here:
            assert (one.verdict(n), one.affine(n), one.preference(n)) == (
                two.verdict(n),
                two.affine(n),
                two.preference(n),
            )


@given(pods, nodes)
def test_a_node_that_is_not_affine_never_passes(one: StaticFilter, here: Any) -> None:
    if not one.affine(here):
        assert one.verdict(here) is not None
    assert one.preference(here) >= 0.0

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_builders import (
    affinity,
    container,
    decoded,
    host_port,
    label_selectors,
    label_sets,
    pod,
    pod_term,
    requirement,
    selector,
    spread,
)

from flowsched.relations.relation import MACHINE, Relation, RelationKind
from flowsched_k8s import names
from flowsched_k8s.objects import LabelSelector, Pod
from flowsched_k8s.pods.affinity import PodRelations, RelationIndex, reason_of
from flowsched_k8s.pods.exclusions import exclusions
from flowsched_k8s.pods.selector import matches

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WEB = selector(app="web")
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}, "third": {"team": "b"}}


def declared(
    owner: Pod, index: RelationIndex | None = None, namespaces: Mapping[str, Mapping[str, str]] = NAMESPACES
) -> PodRelations:
    index = index or RelationIndex()
    found = index.demands(owner)
    index.declare(found, namespaces)
    return found


def only(relations: PodRelations) -> Relation:
    (relation,) = relations.declared
    return relation


def web(name: str = "w1", namespace: str = "default", **fields: Any) -> Pod:
    return pod(name, namespace, labels={"app": "web"}, **fields)


def near(*terms: Any) -> Any:
    return affinity(near=terms)


def apart(*terms: Any) -> Any:
    return affinity(apart=terms)


# Required terms


def test_a_plain_pod_demands_nothing() -> None:
    assert declared(pod()) == PodRelations()
    assert declared(pod(affinity=affinity(nodes={"nodeSelectorTerms": []}))) == PodRelations()


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"affinity": near(pod_term(ZONE, WEB))}, RelationKind.TOGETHER),
        ({"affinity": apart(pod_term(ZONE, WEB))}, RelationKind.APART),
        ({"topologySpreadConstraints": [spread(ZONE, WEB)]}, RelationKind.SPREAD),
    ],
)
def test_a_demand_becomes_a_relation_over_the_label_it_names(spec: Any, kind: RelationKind) -> None:
    index = RelationIndex()
    found = declared(pod(**spec), index)
    assert (only(found).kind, only(found).key) == (kind, ZONE)
    assert found.holds == (only(found).name,)
    assert found.soft == ()
    assert index.joins(web()) == found.holds
    assert index.joins(pod()) == ()


def test_the_host_name_is_a_label_like_any_other() -> None:
    assert only(declared(pod(affinity=apart(pod_term(HOST, WEB))))).key == HOST != MACHINE


def test_equal_demands_of_different_pods_are_one_relation() -> None:
    index = RelationIndex()
    same = selector(requirement("app", "In", "web"))
    assert declared(pod("a", affinity=apart(pod_term(ZONE, WEB))), index) == declared(
        pod("b", labels={"x": "y"}, affinity=apart(pod_term(ZONE, same))), index
    )


@pytest.mark.parametrize(
    "other",
    [
        web(affinity=apart(pod_term(HOST, WEB))),
        web(affinity=near(pod_term(ZONE, WEB))),
        web(affinity=apart(pod_term(ZONE, selector(app="db")))),
        web(affinity=apart(pod_term(ZONE, None))),
        web(affinity=apart(pod_term(ZONE, {}))),
        web(affinity=apart(pod_term(ZONE, WEB, namespaces=["other"]))),
        web(affinity=apart(pod_term(ZONE, WEB, namespace_selector={}))),
        web("w", "other", affinity=apart(pod_term(ZONE, WEB))),
        web(topologySpreadConstraints=[spread(ZONE, WEB)]),
        web(topologySpreadConstraints=[spread(ZONE, WEB, skew=2)]),
        web(topologySpreadConstraints=[spread(ZONE, WEB, minDomains=3)]),
    ],
)
def test_different_demands_are_different_relations(other: Pod) -> None:
    assert only(declared(other)).name != only(declared(web(affinity=apart(pod_term(ZONE, WEB))))).name


def test_names_do_not_depend_on_what_was_declared_before() -> None:
    index = RelationIndex()
    owner = web(affinity=apart(pod_term(ZONE, WEB)), topologySpreadConstraints=[spread(HOST, WEB)])
    declared(web(topologySpreadConstraints=[spread(ZONE, WEB)]), index)
    assert declared(owner, index) == declared(owner)


def test_terms_without_a_selector_mean_no_pod() -> None:
    index = RelationIndex()
    assert declared(web(affinity=near(pod_term(ZONE, None))), index).holds
    assert index.joins(web()) == ()


def test_all_terms_of_an_affinity_must_mean_the_same_pod() -> None:
    index = RelationIndex()
    found = declared(pod(affinity=near(pod_term(ZONE, WEB), pod_term(HOST, selector(tier="1")))), index)
    assert sorted(r.key for r in found.declared) == sorted([ZONE, HOST])
    assert index.joins(web()) == ()
    assert index.joins(pod(labels={"tier": "1"})) == ()
    assert index.joins(pod(labels={"app": "web", "tier": "1"})) == found.holds


def test_terms_of_an_anti_affinity_stand_alone() -> None:
    index = RelationIndex()
    found = declared(pod(affinity=apart(pod_term(ZONE, WEB), pod_term(ZONE, selector(tier="1")))), index)
    assert len(found.holds) == 2
    assert len(index.joins(web())) == 1
    assert index.joins(pod(labels={"app": "web", "tier": "1"})) == found.holds


# Namespaces


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        ({}, {"default"}),
        ({"namespaces": ["other", "default"]}, {"other", "default"}),
        ({"namespaces": ["other"]}, {"other"}),
        ({"namespace_selector": {}}, {"default", "other", "third", "unknown"}),
        ({"namespace_selector": selector(team="b")}, {"other", "third"}),
        ({"namespace_selector": selector(team="b"), "namespaces": ["default"]}, {"default", "other", "third"}),
        ({"namespace_selector": selector(team="z")}, set()),
        ({"namespaces": []}, {"default"}),
    ],
)
def test_which_namespaces_a_term_means(where: Any, meant: set[str]) -> None:
    index = RelationIndex()
    (name,) = declared(pod(affinity=apart(pod_term(ZONE, WEB, **where))), index).holds
    for namespace in (*NAMESPACES, "unknown"):
        assert (index.joins(web("w", namespace)) == (name,)) == (namespace in meant)


def test_labels_of_namespaces_count_as_they_are_now() -> None:
    labels = {"other": {"team": "a"}}
    index = RelationIndex()
    declared(pod(affinity=apart(pod_term(ZONE, WEB, namespace_selector=selector(team="b")))), index, labels)
    assert not index.joins(web("w", "other"))
    labels["other"] = {"team": "b"}
    assert index.joins(web("w", "other"))


def test_without_the_feature_selectors_of_namespaces_are_refused_by_field() -> None:
    index = RelationIndex(namespace_selector=False)
    term = pod_term(ZONE, WEB, namespace_selector=selector(team="b"))
    found = declared(pod(affinity=affinity(near=[pod_term(ZONE, WEB), term])), index, {})
    assert found.unsupported is not None
    assert found.unsupported.startswith(
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].namespaceSelector is not supported"
    )
    assert found.holds == () and not index.joins(web())
    liked = declared(pod(affinity=affinity(dislikes=[(5, term)])), index, {})
    assert "podAntiAffinity.preferredDuring" in (liked.unsupported or "")
    everywhere = pod_term(ZONE, WEB, namespace_selector={})
    assert declared(pod(affinity=apart(everywhere)), index, {}).unsupported is None


# Labels of the pod itself


def test_match_label_keys_take_the_pods_own_values() -> None:
    index = RelationIndex()
    term = pod_term(ZONE, WEB, match=["version", "absent"], mismatch=["tenant"])
    owner = pod(labels={"app": "web", "version": "2", "tenant": "x"}, affinity=apart(term))
    declared(owner, index)
    assert not index.joins(owner)
    assert index.joins(pod(labels={"app": "web", "version": "2", "tenant": "y"}))
    assert index.joins(pod(labels={"app": "web", "version": "2"}))
    assert not index.joins(pod(labels={"app": "web", "version": "1", "tenant": "y"}))


def test_keys_that_the_api_server_has_merged_already_change_nothing() -> None:
    merged = selector(requirement("version", "In", "2"), app="web")
    one = pod(labels={"version": "2"}, topologySpreadConstraints=[spread(ZONE, WEB, matchLabelKeys=["version"])])
    two = pod(labels={"version": "2"}, topologySpreadConstraints=[spread(ZONE, merged, matchLabelKeys=["version"])])
    assert declared(one) == declared(two)


# Spread


def test_spread_demands() -> None:
    found = only(declared(pod(topologySpreadConstraints=[spread(ZONE, WEB, skew=3, minDomains=5)])))
    assert (found.skew, found.min_domains) == (3, 5)
    assert only(declared(pod(topologySpreadConstraints=[spread(ZONE, WEB)]))).min_domains == 1


def test_spread_counts_pods_of_its_namespace_that_stay() -> None:
    index = RelationIndex()
    hard = declared(pod(topologySpreadConstraints=[spread(ZONE, WEB), spread(HOST, WEB, hard=False)]), index)
    assert len(index.joins(web())) == len(hard.declared) == 2
    assert index.joins(web(deleting=True)) == ()
    assert index.joins(web("w", "other")) == ()
    (name,) = declared(pod(affinity=apart(pod_term(ZONE, WEB))), index).holds
    assert index.joins(web(deleting=True)) == (name,), "who is leaving is still there"


def test_a_spread_over_everything_counts_no_pod() -> None:
    index = RelationIndex()
    declared(web(topologySpreadConstraints=[spread(ZONE, {})]), index)
    assert index.joins(web()) == ()
    keyed = web(topologySpreadConstraints=[spread(ZONE, {}, matchLabelKeys=["app"])])
    holds = declared(keyed, index).holds
    assert index.joins(web()) == holds != ()


# Wishes


def test_wishes_become_counts_with_signed_weights() -> None:
    index = RelationIndex()
    wishes = affinity(likes=[(30, pod_term(ZONE, WEB))], dislikes=[(70, pod_term(HOST, WEB))])
    found = declared(pod(affinity=wishes), index)
    assert found.holds == ()
    assert {r.kind for r in found.declared} == {RelationKind.COUNT}
    key_of = {relation.name: relation.key for relation in found.declared}
    assert {(key_of[s.relation], s.weight) for s in found.soft} == {(ZONE, 30.0), (HOST, -70.0)}
    assert index.joins(web()) == tuple(sorted(s.relation for s in found.soft))


def test_a_soft_spread_says_how_much_skew_it_allows() -> None:
    (strict,) = declared(pod(topologySpreadConstraints=[spread(ZONE, WEB, hard=False)])).soft
    (lax,) = declared(pod(topologySpreadConstraints=[spread(ZONE, WEB, skew=4, hard=False)])).soft
    assert (strict.weight, strict.skew) == (-100.0, 1)
    assert (lax.weight, lax.skew) == (-100.0, 4)


def test_equal_wishes_add_up() -> None:
    (one,) = declared(pod(affinity=affinity(likes=[(30, pod_term(ZONE, WEB)), (20, pod_term(ZONE, WEB))]))).soft
    assert one.weight == 50.0


# Many relations


terms = st.builds(
    lambda key, selects, names, by_label: pod_term(key, selects, namespaces=names, namespace_selector=by_label),
    st.sampled_from([ZONE, HOST]),
    st.one_of(st.none(), label_selectors()),
    st.one_of(st.none(), st.lists(st.sampled_from(["default", "other"]), max_size=2)),
    st.one_of(st.none(), st.just({}), st.sampled_from([selector(team="a"), selector(team="b")])),
)


def meant(term: Any, owner: Pod, other: Pod) -> bool:
    """The API documentation's words on a term, without any index."""
    listed, by_label = term.get("namespaces") or [], term.get("namespaceSelector")
    here = other.metadata.namespace
    if by_label is None and not listed:
        listed = [owner.metadata.namespace]
    in_scope = here in listed or (
        by_label is not None and matches(decoded(LabelSelector, by_label), NAMESPACES.get(here, {}))
    )
    selects = term.get("labelSelector")
    return in_scope and selects is not None and matches(decoded(LabelSelector, selects), other.metadata.labels)


@given(
    st.lists(st.tuples(st.sampled_from(["default", "other"]), terms, st.booleans()), max_size=6),
    st.lists(st.tuples(st.sampled_from(["default", "other", "third"]), label_sets()), max_size=6),
)
def test_the_index_finds_exactly_the_pods_that_are_meant(demands: list[Any], others: list[Any]) -> None:
    index = RelationIndex()
    owned: dict[str, list[tuple[Any, Pod]]] = {}
    for number, (namespace, term, anti) in enumerate(demands):
        owner = pod(f"o{number}", namespace, affinity=apart(term) if anti else near(term))
        (name,) = declared(owner, index).holds
        owned.setdefault(name, []).append((term, owner))
    for number, (namespace, labels) in enumerate(others):
        other = pod(f"p{number}", namespace, labels=labels)
        found = index.joins(other)
        assert list(found) == sorted(set(found))
        for name, wanted in owned.items():
            for term, owner in wanted:
                assert (name in found) == meant(term, owner, other)


def test_what_is_not_needed_any_more_is_forgotten() -> None:
    index = RelationIndex()
    kept = declared(pod(affinity=apart(pod_term(ZONE, WEB))), index).holds
    gone = declared(pod(affinity=near(pod_term(ZONE, WEB, namespace_selector={}))), index).holds
    assert index.retain(kept) == gone
    assert index.joins(web()) == kept
    assert declared(pod(affinity=near(pod_term(ZONE, WEB, namespace_selector={}))), index).holds == gone
    assert index.joins(web()) == tuple(sorted((*kept, *gone)))
    assert set(index.retain(())) == {*kept, *gone}
    assert index.joins(web()) == ()


# Host ports


def ported(name: str, *ports: Any) -> Pod:
    return pod(name, containers=[container(ports=list(ports))])


def allows(together: Iterable[Pod]) -> bool:
    """Whether the relations let these pods share a machine, by what the kinds of relations mean."""
    found = [exclusions(p) for p in together]
    for relation in {r for _, _, all_declared in found for r in all_declared}:
        assert relation.key == MACHINE
        holders = [i for i, (holds, _, _) in enumerate(found) if relation.name in holds]
        members = [i for i, (_, joins, _) in enumerate(found) if relation.name in joins]
        if relation.kind == RelationKind.LIMIT and len(members) > relation.most:
            return False
        if relation.kind == RelationKind.APART and any(h != m for h in holders for m in members):
            return False
    return True


@pytest.mark.parametrize(
    ("one", "two", "fit"),
    [
        (host_port(80), host_port(80), False),
        (host_port(80), host_port(81), True),
        (host_port(80), host_port(80, protocol="UDP"), True),
        (host_port(80), host_port(80, protocol="TCP"), False),
        (host_port(80), host_port(80, "0.0.0.0"), False),
        (host_port(80), host_port(80, "127.0.0.1"), False),
        (host_port(80, "127.0.0.1"), host_port(80, "127.0.0.1"), False),
        (host_port(80, "127.0.0.1"), host_port(80, "10.0.0.1"), True),
        (host_port(80, "127.0.0.1"), host_port(80, "127.0.0.1", "SCTP"), True),
    ],
)
def test_two_pods_with_host_ports(one: Any, two: Any, fit: bool) -> None:
    assert allows([ported("a", one), ported("b", two)]) == fit
    assert allows([ported("b", two), ported("a", one)]) == fit


ports = st.builds(
    host_port,
    st.sampled_from([80, 443]),
    st.sampled_from([None, "0.0.0.0", "127.0.0.1", "10.0.0.1"]),
    st.sampled_from([None, "TCP", "UDP"]),
)


@given(st.lists(st.lists(ports, max_size=2), min_size=2, max_size=4))
def test_host_ports_conflict_exactly_as_in_kubernetes(wanted: list[list[Any]]) -> None:
    def conflict(a: Any, b: Any) -> bool:
        ips = {p.get("hostIP") or "0.0.0.0" for p in (a, b)}
        same = (a["hostPort"], a.get("protocol") or "TCP") == (b["hostPort"], b.get("protocol") or "TCP")
        return same and (len(ips) == 1 or "0.0.0.0" in ips)

    pods = [ported(f"p{i}", *own) for i, own in enumerate(wanted)]
    clash = any(conflict(a, b) for i, x in enumerate(wanted) for y in wanted[i + 1 :] for a in x for b in y)
    assert allows(pods) == (not clash)


def test_only_ports_of_the_host_for_as_long_as_the_pod_runs() -> None:
    assert exclusions(ported("a", {"containerPort": 80})) == ((), (), ())
    init = [container("i", ports=[host_port(80)]), container("s", ports=[host_port(81)], restartable=True)]
    holds, joins, _ = exclusions(pod(initContainers=init))
    assert holds == ("ports/tcp/81/0.0.0.0",)
    assert joins == ("ports/tcp/81/0.0.0.0", "ports/tcp/81/any")


# Disks


def gce(name: str = "d", read_only: bool = False) -> Any:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(volume: str, read_only: bool = False) -> Any:
    return {"awsElasticBlockStore": {"volumeID": volume, "readOnly": read_only}}


def iscsi(iqn: str, lun: int = 0, read_only: bool = False) -> Any:
    return {"iscsi": {"targetPortal": "10.0.0.1", "iqn": iqn, "lun": lun, "readOnly": read_only}}


def rbd(monitors: list[str], image: str = "i", read_only: bool = False, **pool: str) -> Any:
    return {"rbd": {"monitors": monitors, "image": image, "readOnly": read_only, **pool}}


@pytest.mark.parametrize(
    ("one", "two", "fit"),
    [
        (gce(), gce(), False),
        (gce(), gce("e"), True),
        (gce(read_only=True), gce(), False),
        (gce(read_only=True), gce(read_only=True), True),
        (ebs("v"), ebs("v"), False),
        (ebs("v"), ebs("w"), True),
        (ebs("v", read_only=True), ebs("v", read_only=True), False),
        (iscsi("q"), iscsi("q", lun=1), False),
        (iscsi("q"), iscsi("r"), True),
        (iscsi("q", read_only=True), iscsi("q", read_only=True), True),
        (rbd(["a", "b"]), rbd(["b", "c"]), False),
        (rbd(["a"]), rbd(["b"]), True),
        (rbd(["a"]), rbd(["a"], image="j"), True),
        (rbd(["a"]), rbd(["a"], pool="p"), True),
        (rbd(["a"]), rbd(["a"], pool="rbd"), False),
        (rbd(["a"], read_only=True), rbd(["a"], read_only=True), True),
        (gce("same"), ebs("same"), True),
        ({"azureDisk": {"diskURI": "u"}}, {"azureDisk": {"diskURI": "u"}}, True),
    ],
)
def test_two_pods_that_name_disks(one: Any, two: Any, fit: bool) -> None:
    """As VolumeRestrictions of kube-scheduler has it."""
    pods = [pod(name, volumes=[{"name": "v", **source}]) for name, source in (("a", one), ("b", two))]
    assert allows(pods) == fit
    assert allows(reversed(pods)) == fit


def test_a_disk_that_a_pod_names_twice_is_its_own() -> None:
    assert allows([pod(volumes=[{"name": "v", **gce()}, {"name": "w", **gce(read_only=True)}])])


# Reasons


def test_reasons_are_the_words_that_operators_know() -> None:
    together = only(declared(pod(affinity=near(pod_term(ZONE, WEB))))).name
    apart_name = only(declared(pod(affinity=apart(pod_term(ZONE, WEB))))).name
    spread_name = only(declared(pod(topologySpreadConstraints=[spread(ZONE, WEB)]))).name
    _, _, ports_declared = exclusions(ported("a", host_port(80)))
    assert reason_of(together, "holds") == names.POD_AFFINITY
    assert reason_of(together, "holds", missing_label=True) == names.POD_AFFINITY
    assert reason_of(apart_name, "holds") == names.POD_ANTI_AFFINITY
    assert reason_of(apart_name, "joins") == names.EXISTING_ANTI_AFFINITY
    assert reason_of(spread_name, "holds") == names.SPREAD
    assert reason_of(spread_name, "holds", missing_label=True) == names.SPREAD_NO_LABEL
    assert {reason_of(r.name, role) for r in ports_declared for role in ("holds", "joins")} == {names.PORTS}
    disks = exclusions(pod(volumes=[{"name": "v", **gce()}])).declared
    assert {reason_of(r.name, role) for r in disks for role in ("holds", "joins")} == {names.DISK_CONFLICT}

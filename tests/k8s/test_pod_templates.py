"""Pods of one template are looked at once, and what they ask for is what each of them would be found to ask for."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from consistency import check_cache
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import CATALOGUE

from flowsched_k8s import names
from flowsched_k8s.cache import Cache
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.objects import Meta, Pod


def cache_with(*pods: Pod) -> Cache:
    cache = Cache(Configuration(), CATALOGUE)
    for name in ("n1", "n2"):
        cache.put_node(b.node(name, "8"))
    for pod in pods:
        cache.put_pod(pod, 0.0)
    return cache


def token(name: str) -> dict[str, Any]:
    """The volume that the API server gives each pod for the token of its service account."""
    return {"name": f"kube-api-access-{name}", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def test_pods_of_one_template_share_what_they_ask_for() -> None:
    pods = [b.pod(name, cpu="1", volumes=[token(name)]) for name in "ab"]
    cache = cache_with(*pods)
    first, second = (cache.pods[pod.metadata.uid] for pod in pods)
    assert first.needs is second.needs and cache.wants(first) is cache.wants(second)


@pytest.mark.parametrize(
    "other",
    [
        b.pod("b", cpu="2"),
        b.pod("b", cpu="1", labels={"app": "x"}),
        b.pod("b", cpu="1", namespace="elsewhere"),
        b.pod("b", cpu="1", annotations={names.PROFILE: "blackscholes"}),
        b.pod("b", cpu="1", owner=("ReplicaSet", "r")),
        b.pod("b", cpu="1", volumes=[b.claim_volume("c")]),
    ],
)
def test_others_are_looked_at_themselves(other: Pod) -> None:
    cache = cache_with(b.pod("a", cpu="1"), other)
    first, second = cache.pods.values()
    assert cache.wants(first) is not cache.wants(second)
    check_cache(cache)


def test_only_volumes_that_bind_to_nothing_are_forgotten() -> None:
    assert b.pod(volumes=[token("a"), {"name": "c", "configMap": {"name": "c"}}]).spec.volumes is None
    for volume in (b.claim_volume("c"), {"name": "d", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}):
        # A message that names a volume by its number names the right one.
        kept = b.pod(volumes=[token("a"), volume]).spec.volumes
        assert kept is not None and [v.name for v in kept] == ["kube-api-access-a", volume["name"]]


def test_pods_that_differ_in_annotations_demand_the_same_of_nodes_and_of_other_pods() -> None:
    spread = [b.spread("zone", b.selector(app="x"))]
    like = {"cpu": "1", "labels": {"app": "x"}, "topologySpreadConstraints": spread}
    cache = cache_with(*(b.pod(f"p{n}", **like, annotations={names.SCALE: f"{n}.5", **MEASURED}) for n in range(3)))
    wants = [cache.wants(entry) for entry in cache.pods.values()]
    assert len({id(w.filter) for w in wants}) == 1 and len({w.class_key for w in wants}) == 3
    check_cache(cache)


MEASURED = {names.PROFILE: "blackscholes"}
APART = b.affinity(apart=[b.pod_term("kubernetes.io/hostname", b.selector(app="x"))])
TEMPLATES: tuple[dict[str, Any], ...] = (
    {"cpu": "1"},
    {"cpu": "1", "labels": {"app": "x"}},
    {"cpu": "1", "labels": {"app": "x"}, "owner": ("ReplicaSet", "r")},
    {"cpu": "1", "labels": {"app": "x"}, "affinity": APART},
    {"cpu": "1", "labels": {"app": "x"}, "affinity": APART, "annotations": MEASURED},
    {"cpu": "1", "labels": {"app": "x"}, "affinity": APART, "annotations": {**MEASURED, names.SCALE: "2"}},
    {"containers": [b.container(ports=[b.host_port(80)])], "labels": {"app": "x"}},
    {"cpu": "1", "labels": {"app": "y"}, "topologySpreadConstraints": [b.spread("zone", b.selector(app="x"))]},
)
STEPS = st.tuples(
    st.sampled_from(("add", "bind", "remove", "relabel", "forget", "profiles", "namespace")),
    st.integers(0, len(TEMPLATES) - 1),
    st.sampled_from("abcdefgh"),
)


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=200)
def test_whatever_happens_they_want_what_each_of_them_would_be_found_to_want(steps: list[tuple[str, int, str]]) -> None:
    cache = cache_with()
    for step, number, name in steps:
        uid = f"{name}-uid"
        known = cache.pods.get(uid)
        match step:
            case "add" if known is None:
                cache.put_pod(b.pod(name, uid=uid, **TEMPLATES[number]), 0.0)
            case "bind" if known is not None:
                again = {**TEMPLATES[number], "labels": known.pod.metadata.labels}
                cache.put_pod(b.pod(name, uid=uid, node="n1", **again), 0.0)
            case "relabel" if known is not None and not known.place:
                cache.put_pod(b.pod(name, uid=uid, **TEMPLATES[number]), 0.0)
            case "remove":
                cache.remove_pod(uid)
            case "forget":
                cache.forget_relations()
            case "profiles":
                cache.use_catalogue(CATALOGUE)
            case "namespace":
                cache.put_namespace(b.decoded(Meta, b.metadata("default", labels={"team": str(number)})))
        check_cache(cache)


def test_a_pod_that_says_no_longer_that_it_is_a_service_counts_as_granted_until_it_goes() -> None:
    service, status = {names.PROFILE: "memcached", names.SLO: "p95=1ms@30k"}, b.granted("n1", width_milli=2000)
    cache = cache_with(b.pod("a", cpu="2", node="n1", annotations=service, status=status))
    row = cache.machines.row("n1")
    assert row is not None and (cap := cache.machines.service("n1")[0]) < float("inf")
    cache.put_pod(b.pod("a", cpu="2", node="n1", status=status), 0.0)
    check_cache(cache)
    assert cache.machines.service("n1")[0] == cap and len(cache.nodes["n1"].services) == 1
    cache.remove_pod("uid-default-a")
    check_cache(cache)
    assert cache.machines.service("n1")[0] == float("inf") and not cache.nodes["n1"].services

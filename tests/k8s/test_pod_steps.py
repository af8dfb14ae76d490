"""What a pod says costs time that grows with its length: not with its square, and not with its length times all pods.

Time is counted in lines of flowsched that the interpreter runs, so that no machine is too slow for these tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import FrameType
from typing import Any, get_args, get_type_hints

import msgspec
import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched_k8s import inputs, names, objects

Field = tuple[str, str]
"""A type of the API, and a list or mapping of it."""
Said = dict[str, Any]
LENGTH, PODS = 60, 60
_OTHERWISE = 2_000
"""Lines by which pods may differ that say as much. One for each pair of entries would be more."""


def many(count: int) -> range:
    return range(count)


def labels(count: int) -> dict[str, str]:
    return {f"label-{i}": "x" for i in many(count)}


def terms(count: int) -> list[Any]:
    return [b.pod_term(names.HOSTNAME, b.selector(app=f"w{i}")) for i in many(count)]


def about(selects: Any, **more: Any) -> Said:
    return {"affinity": b.affinity(apart=[b.pod_term(names.HOSTNAME, selects, **more)])}


def on(required: Any) -> Said:
    return {"affinity": b.affinity(nodes=required)}


def requests(count: int) -> dict[str, str]:
    return {f"example.com/r{i}": "1" for i in many(count)}


def status(**fields: Any) -> Said:
    return {"status": {"phase": "Pending", **fields}}


def one_container(**fields: Any) -> Said:
    return {"containers": [{"name": "main", **fields}]}


def statuses(count: int) -> list[Any]:
    return [{"name": f"c{i}", "allocatedResources": {"cpu": "1m"}} for i in many(count)]


ROWS: dict[Field, list[Callable[[int], Said]]] = {
    ("Meta", "labels"): [lambda n: {"labels": labels(n)}],
    ("Meta", "annotations"): [lambda n: {"annotations": {f"flowsched.io/a{i}": "x" for i in many(n)}}],
    ("Meta", "owner_references"): [
        lambda n: {"owners": [{"kind": "ReplicaSet", "name": f"o{i}", "uid": f"o{i}"} for i in many(n)]}
    ],
    ("LabelSelector", "match_labels"): [lambda n: about(b.selector(**labels(n)))],
    ("LabelSelector", "match_expressions"): [
        lambda n: about(b.selector(*(b.requirement(f"l{i}", "Exists") for i in many(n)))),
        lambda n: about(b.selector(*(b.requirement(f"l{i}", "DoesNotExist") for i in many(n)))),
    ],
    ("Requirement", "values"): [
        lambda n: about(b.selector(b.requirement("app", "In", *(f"v{i}" for i in many(n))))),
        lambda n: about(b.selector(b.requirement("app", "NotIn", *(f"v{i}" for i in many(n))))),
        lambda n: on(b.node_terms([b.requirement("disk", "NotIn", *(f"v{i}" for i in many(n)))])),
    ],
    ("NodeSelectorTerm", "match_expressions"): [
        lambda n: on(b.node_terms([b.requirement(f"l{i}", "DoesNotExist") for i in many(n)]))
    ],
    ("NodeSelectorTerm", "match_fields"): [
        lambda n: on(
            {
                "nodeSelectorTerms": [
                    {"matchFields": [b.requirement("metadata.name", "NotIn", f"x{i}") for i in many(n)]}
                ]
            }
        )
    ],
    ("NodeSelector", "node_selector_terms"): [
        lambda n: on(b.node_terms(*([b.requirement("disk", "In", f"v{i}")] for i in many(n))))
    ],
    ("NodeAffinity", "preferred"): [
        lambda n: {"affinity": b.affinity(prefers=[(1, [b.requirement("disk", "In", f"v{i}")]) for i in many(n)])}
    ],
    ("PodAffinityTerm", "namespaces"): [lambda n: about(b.selector(app="x"), namespaces=[f"n{i}" for i in many(n)])],
    ("PodAffinityTerm", "match_label_keys"): [
        lambda n: {"labels": labels(n), **about(b.selector(app="x"), match=list(labels(n)))}
    ],
    ("PodAffinityTerm", "mismatch_label_keys"): [
        lambda n: {"labels": labels(n), **about(b.selector(app="x"), mismatch=list(labels(n)))}
    ],
    ("PodAffinity", "required"): [
        lambda n: {"affinity": b.affinity(apart=terms(n))},
        lambda n: {"affinity": b.affinity(near=terms(n))},
        # Each term means the pod itself.
        lambda n: {
            "labels": labels(n),
            "affinity": b.affinity(apart=[b.pod_term(names.HOSTNAME, b.selector(**{k: "x"})) for k in labels(n)]),
        },
    ],
    ("PodAffinity", "preferred"): [
        lambda n: {"affinity": b.affinity(likes=[(1, term) for term in terms(n)])},
        lambda n: {"affinity": b.affinity(dislikes=[(1, term) for term in terms(n)])},
    ],
    ("TopologySpreadConstraint", "match_label_keys"): [
        lambda n: {
            "labels": labels(n),
            "topologySpreadConstraints": [b.spread(names.ZONE, b.selector(app="x"), matchLabelKeys=list(labels(n)))],
        }
    ],
    ("PodSpec", "node_selector"): [lambda n: {"nodeSelector": labels(n)}],
    ("PodSpec", "tolerations"): [lambda n: {"tolerations": [b.toleration(f"t{i}", "Exists") for i in many(n)]}],
    ("PodSpec", "containers"): [lambda n: {"containers": [b.container(f"c{i}", "1m") for i in many(n)]}],
    ("PodSpec", "init_containers"): [lambda n: {"initContainers": [b.container(f"c{i}", "1m") for i in many(n)]}],
    ("PodSpec", "overhead"): [lambda n: {"overhead": requests(n)}],
    ("PodSpec", "scheduling_gates"): [lambda n: {"schedulingGates": [{"name": f"g{i}"} for i in many(n)]}],
    ("PodSpec", "topology_spread_constraints"): [
        lambda n: {
            "topologySpreadConstraints": [
                b.spread(f"key-{i}", b.selector(app="x"), hard=hard) for i in many(n // 4) for hard in (True, False)
            ]
        }
    ],
    ("PodSpec", "volumes"): [
        lambda n: {"volumes": [b.claim_volume(f"c{i}", f"v{i}") for i in many(n)]},
        lambda n: {"volumes": [{"name": f"v{i}", "gcePersistentDisk": {"pdName": f"d{i}"}} for i in many(n)]},
        lambda n: {"volumes": [{"name": f"v{i}", "image": {"reference": f"i{i}"}} for i in many(n)]},
    ],
    ("PodSpec", "resource_claims"): [lambda n: {"resourceClaims": [{"name": f"r{i}"} for i in many(n)]}],
    ("Container", "ports"): [lambda n: one_container(ports=[b.host_port(1 + i) for i in many(n)])],
    ("Resources", "requests"): [lambda n: one_container(resources={"requests": requests(n)})],
    ("Resources", "limits"): [lambda n: one_container(resources={"limits": requests(n)})],
    ("Resources", "claims"): [lambda n: one_container(resources={"claims": [{"name": f"r{i}"} for i in many(n)]})],
    ("DiskSource", "monitors"): [
        lambda n: {"volumes": [{"name": "v", "rbd": {"monitors": [f"m{i}" for i in many(n)], "image": "i"}}]}
    ],
    ("PodStatus", "conditions"): [lambda n: status(conditions=[{"type": f"c{i}"} for i in many(n)])],
    ("PodStatus", "container_statuses"): [
        lambda n: {
            "containers": [b.container(f"c{i}", "1m") for i in many(n)],
            **status(containerStatuses=statuses(n)),
        }
    ],
    ("PodStatus", "init_container_statuses"): [
        lambda n: {
            "initContainers": [b.container(f"c{i}", "1m", restartable=True) for i in many(n)],
            **status(initContainerStatuses=statuses(n)),
        }
    ],
    ("PodStatus", "allocated_resources"): [lambda n: status(allocatedResources=requests(n))],
    ("ContainerStatus", "allocated_resources"): [
        lambda n: status(containerStatuses=[{"name": "main", "allocatedResources": requests(n)}])
    ],
}
"""A pod that says much in each list or mapping that the scheduler decodes."""
_ALL_PAIRS = [(("LabelSelector", "match_expressions"), 1)]
"""What excludes labels is compared with all pods of a namespace: their number times the length of a pod, up to a bound."""
_CASES = [(field, i) for field, rows in ROWS.items() for i in range(len(rows))]


def lists_of(kind: Any, seen: set[Any]) -> Iterator[Field]:
    """Lists and mappings of a type of the API, and of the types that it is made of."""
    for inner in get_args(kind):
        yield from lists_of(inner, seen)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or kind in seen:
        return
    seen.add(kind)
    for name, type_ in get_type_hints(kind).items():
        if any(getattr(part, "__origin__", None) in (list, dict) for part in (type_, *get_args(type_))):
            yield kind.__name__, name
        yield from lists_of(type_, seen)


def test_every_list_of_a_pod_has_a_row() -> None:
    assert set(lists_of(objects.Pod, set())) == set(ROWS)


def lines(work: Callable[[], object]) -> int:
    """Lines of flowsched that are run for some work."""
    count = 0

    def in_ours(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return in_ours

    def on_call(frame: FrameType, _event: str, _argument: object) -> Any:
        return in_ours if str(frame.f_globals.get("__name__", "")).startswith("flowsched") else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def wordy(said: Said) -> objects.Pod:
    owners = said.pop("owners", None)
    found = b.pod("wordy", "tenant", **{"cpu": "1m", "memory": "1Mi", **said})
    if owners:
        references = b.decoded(list[objects.OwnerReference], owners)  # type: ignore[arg-type]
        meta = msgspec.structs.replace(found.metadata, owner_references=references)
        found = msgspec.structs.replace(found, metadata=meta)
    return found


def steps(said: Said, pods: int) -> int:
    """Lines for a pod that comes, is decided on with one that came before, and for one of another tenant after it."""
    server = ModelServer()
    for i in range(3):
        server.put(b.node(f"n{i}", "64", zone=f"z{i % 2}"))
    for i in range(pods):
        own = {"app": f"w{i % 7}", "tier": "web", "number": str(i)}
        server.put(b.pod(f"other-{i}", "tenant", node=f"n{i % 3}", labels=own, cpu="10m", memory="1Mi"))
    running = ModelScheduler(server)
    pod = wordy(said)

    def work() -> None:
        running.create(pod, b.pod("with-it", "tenant", labels={"app": "w1"}, cpu="1m"))
        running.settle(within=1.0)
        running.create(b.pod("after-it", "shop", labels={"app": "w1"}, cpu="1m"))
        running.settle(within=1.0)

    count = lines(work)
    assert {"with-it", "after-it"} <= running.where().keys()
    return count


@cache
def least(pods: int) -> int:
    """Lines for a pod that says little."""
    return steps({}, pods)


@pytest.fixture(autouse=True)
def rounds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that say much have no rounds of their own: one round more or less is no matter of length."""
    monkeypatch.setattr(inputs, "LONG", 0)


@pytest.mark.parametrize(("field", "row"), _CASES, ids=["-".join((*f, str(i))) for f, i in _CASES])
def test_steps_grow_with_the_length_of_a_pod(field: Field, row: int) -> None:
    said = ROWS[field][row]
    once, twice = (steps(said(n), PODS) for n in (LENGTH, 2 * LENGTH))
    among, both = (steps(said(n), 2 * PODS) for n in (LENGTH, 2 * LENGTH))
    at_most = 4 if (field, row) in _ALL_PAIRS else 3
    assert twice <= 2 * once and among <= 2 * once and both <= at_most * once
    # The same without what every pod costs, which is less for one that is not placed.
    once, among = max(0, once - least(PODS)), max(0, among - least(2 * PODS))
    twice, both = twice - least(PODS), both - least(2 * PODS)
    assert twice <= 2 * once + _OTHERWISE and among <= 2 * once + _OTHERWISE and both <= at_most * once + _OTHERWISE

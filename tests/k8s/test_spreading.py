"""Spreading that may be broken: how a class shares zones, and what a cluster's pods are like in the end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import objects_builders as b
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration
from flowsched_k8s.objects import Pod
from flowsched_k8s.pods.spreading import SpreadWish, counts_of, default_wishes, divided, per_pod, workload_of

WEB = {"app": "web"}
HOST = "kubernetes.io/hostname"
BY_ZONE = b.spread(names.ZONE, b.selector(**WEB), hard=False)


def cluster(*cpus: str, zones: str = "abc") -> ModelScheduler:
    """A node in each zone with so much CPU; without the label where the zone is a dash."""
    server = ModelServer()
    for k, (cpu, zone) in enumerate(zip(cpus, zones, strict=False)):
        server.put(b.node(f"n{k}", cpu, labels={} if zone == "-" else {names.ZONE: zone}))
    return ModelScheduler(server, Configuration())


def replicas(count: int, first: int = 0, kind: str = "ReplicaSet", uid: str = "rs", **fields: object) -> list[Pod]:
    fields = {"cpu": "1", "owner": (kind, uid), **fields}
    return [b.pod(f"{uid}-{k}", labels=WEB, **fields) for k in range(first, first + count)]


def nodes(running: ModelScheduler, prefix: str = "rs-") -> list[int]:
    """Pods on each node, in the order of the nodes' names."""
    there = Counter(node for name, node in running.where().items() if name.startswith(prefix))
    return [there[f"n{k}"] for k in range(max((int(n[1:]) for n in there), default=0) + 1)]


# Shares


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 8)), min_size=1, max_size=12),
    st.integers(1, 20),
)
def test_shares_are_as_even_as_the_room_allows(members: list[int], rows: list[tuple[int, int]], count: int) -> None:
    domain = np.array([min(d, len(members) - 1) for d, _ in rows])
    room = np.array([r for _, r in rows])
    wish = SpreadWish(domain, np.array(members), 0.5, nowhere=0.5)

    shares = wish.shares(room, count)

    assert sorted(k for which, _ in shares for k in which.tolist()) == list(range(count))
    places = [int(room[domain == d].sum()) for d in range(len(members))]
    if sum(p > 0 for p in places) < 2:
        assert len(shares) == 1
        return
    own = [
        next(d for d in range(len(members)) if places[d] and _is_share_of(wish, cost, d, shares)) for _, cost in shares
    ]
    got = dict(zip(own, (len(which) for which, _ in shares), strict=True))
    final = [m + got.get(d, 0) for d, m in enumerate(members)]
    if count <= sum(places):
        assert all(got[d] <= places[d] for d in got)
        # No pod gains by going where there is room left.
        assert all(final[d] - 1 <= final[e] for d in got for e in range(len(members)) if got.get(e, 0) < places[e])
    for _, cost in shares:
        assert cost.min() >= 0.0
        assert cost.max() <= 0.5


def _is_share_of(wish: SpreadWish, cost: np.ndarray, d: int, shares: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether a share pays one member less in domain d than all others do."""
    rows = wish.domain == d
    return all((cost[rows] < other[rows]).all() for _, other in shares if other is not cost)


def test_the_wish_that_can_divide_a_class_divides_it() -> None:
    zone, room = np.array([0, 0, 1]), np.array([4, 4, 4])
    by_zone = SpreadWish(zone, np.array([0, 0]), 0.2)
    by_host = SpreadWish(np.arange(3), np.array([2, 0, 0]), 1.0, own=False)
    (first, cost), (second, _) = divided([by_host, by_zone], room, 4)
    assert (first.tolist(), second.tolist()) == ([0, 2], [1, 3])
    assert cost == pytest.approx([1.0 + 0.1, 0.1, 0.2])


def test_as_many_on_one_node_as_the_default_allows_cost_nothing() -> None:
    zone, eligible = np.zeros(3, np.int64), np.array([True, True, False])
    assert len(default_wishes([0, 0, 1], zone, eligible, 1.0)) == 1
    _, by_host = default_wishes([0, 0, 0, 1, 2, 2, 2], zone, eligible, 1.0)
    assert by_host.cost() == pytest.approx([1 / 3, 0.0, 0.0])


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        (b.pod(owner=("ReplicaSet", "u")), "u"),
        (b.pod(owner=("StatefulSet", "u")), "u"),
        (b.pod(owner=("Job", "u")), None),
        (b.pod(), None),
        (
            b.pod(
                owner=("ReplicaSet", "u"),
                topologySpreadConstraints=[b.spread(names.ZONE, b.selector(**WEB), hard=False)],
            ),
            None,
        ),
    ],
)
def test_whose_pods_kubernetes_spreads(pod: Pod, workload: str | None) -> None:
    assert workload_of(pod) == workload


def test_more_domains_than_shares_are_shared_by_several() -> None:
    wish = SpreadWish(np.repeat(np.arange(50), 2), np.zeros(50, np.int64), 1.0)
    shares = wish.shares(np.full(100, 4), 50)
    assert len(shares) == 32
    assert sorted(k for which, _ in shares for k in which.tolist()) == list(range(50))
    # What one more costs where the share belongs, and elsewhere.
    assert all(set(cost.tolist()) == {0.0, 1.0} and (cost == 0.0).sum() == 2 * len(which) for which, cost in shares)


def test_counts_go_to_the_largest_kinds_first_and_to_none_with_one_pod() -> None:
    waiting = {"lone": 1, **{f"k{i}": 2 + i for i in range(10)}}
    counts = counts_of(waiting, 8)
    assert "lone" not in counts
    assert [counts[f"k{i}"] for i in range(9, 1, -1)] == list(range(8))
    assert (counts["k1"], counts["k0"]) == (7, 6)


def test_a_pod_of_the_round_costs_what_the_skew_and_the_weight_say() -> None:
    assert [per_pod(0.5, skew) for skew in (1, 2, 3)] == pytest.approx([0.375, 0.375, 1 / 3])
    assert [per_pod(0.5, skew, gentle=True) for skew in (1, 3)] == pytest.approx([0.375, 0.125])


def test_what_was_there_costs_as_much_as_what_the_round_puts_there() -> None:
    zone, eligible = np.zeros(3, np.int64), np.ones(3, np.bool_)
    _, by_host = default_wishes([0, 0, 0, 0, 1, 1], zone, eligible, 1.0, counted=True)
    assert by_host.cost() == pytest.approx([4 * per_pod(1.0, 3), 0.0, 0.0])


# Clusters


def test_replicas_share_zones_evenly_in_one_round() -> None:
    running = cluster("8", "8", "8")
    running.create(*replicas(6))
    running.settle()
    assert nodes(running) == [2, 2, 2]


def test_replicas_go_to_busy_zones_too() -> None:
    """By load alone all six would go to the zone that is empty."""
    running = cluster("16", "16", "16")
    running.create(*(b.pod(f"busy-{k}", cpu="8", nodeSelector={names.ZONE: zone}) for k, zone in enumerate("bc")))
    running.settle()
    running.create(*replicas(6))
    running.settle()
    assert nodes(running) == [2, 2, 2]


def test_pods_without_a_workload_beside_those_of_one_are_not_spread_for_it() -> None:
    running = cluster("16", "16")
    running.create(*(b.pod(f"lone-{k}", cpu="1", labels=WEB) for k in range(2)), *replicas(4))
    running.settle()
    assert nodes(running) == [2, 2]
    assert all(running.where().values())


def test_what_is_there_counts_and_other_workloads_do_not() -> None:
    running = cluster("16", "16")
    running.create(*replicas(4, nodeSelector={names.ZONE: "a"}), *replicas(6, uid="other"))
    running.settle()
    assert min(nodes(running, "other-")) >= 2
    running.create(*replicas(4, first=4))
    running.settle()
    assert nodes(running) == [4, 4]


def test_a_zone_without_room_is_no_obstacle() -> None:
    running = cluster("1", "2", "16")
    running.create(*replicas(9))
    running.settle()
    assert nodes(running) == [1, 2, 6]


def test_nodes_without_a_zone_are_one_together() -> None:
    """By load alone one each would go to those two."""
    running = cluster("16", "16", "16", zones="a--")
    running.create(b.pod("busy", cpu="2", nodeSelector={names.ZONE: "a"}))
    running.settle()
    running.create(*replicas(2))
    running.settle()
    assert nodes(running)[0] == 1


def test_pods_of_one_round_mind_their_own_constraint_that_may_be_broken() -> None:
    running = cluster("16", "4", "4")
    running.create(*replicas(6, topologySpreadConstraints=[BY_ZONE]))
    running.settle()
    assert nodes(running) == [2, 2, 2]


def test_a_node_without_the_label_comes_last_for_an_own_constraint() -> None:
    running = cluster("8", "8", "8", zones="ab-")
    running.create(*replicas(4, topologySpreadConstraints=[BY_ZONE]))
    running.settle()
    assert nodes(running) == [2, 2]


def test_a_workload_that_adopts_pods_counts_them() -> None:
    running = cluster("16", "16")
    made = [b.pod(f"orphan-{k}", cpu="1", node="n0", labels=WEB) for k in range(2)]
    running.create(*made)
    running.settle()
    for pod in made:
        running.server.put(b.pod(pod.metadata.name, cpu="1", node="n0", labels=WEB, owner=("ReplicaSet", "rs")))
    running.settle()
    running.create(*replicas(2))
    running.settle()
    assert nodes(running) == [0, 2]


# Single nodes


def mixed(times: int = 1) -> ModelScheduler:
    """Nodes of three sizes in three zones."""
    server = ModelServer()
    sizes = [("16", 30, {}), ("8", 6, {}), ("32", 4, {"nvidia.com/gpu": "4"})]
    kinds = [(cpu, gpus) for cpu, count, gpus in sizes for _ in range(count * times)]
    for k, (cpu, gpus) in enumerate(kinds):
        labels = {names.ZONE: "abc"[k % 3], HOST: f"n{k}"}
        server.put(b.node(f"n{k}", cpu, f"{4 * int(cpu)}Gi", labels=labels, resources=gpus or None))
    return ModelScheduler(server, Configuration())


def jobs(count: int, cpu: str) -> list[Pod]:
    return [b.pod(f"job-{k}", cpu=cpu, owner=("Job", "job")) for k in range(count)]


OWN = [b.spread(HOST, b.selector(**WEB), skew=2, hard=False)]
APART = b.affinity(dislikes=[(100, b.pod_term(HOST, b.selector(**WEB)))])


@pytest.mark.parametrize(
    ("count", "cpu", "most", "fields"),
    [
        (60, "500m", 2, {}),
        (60, "100m", 2, {}),
        (60, "100m", 2, {"kind": "StatefulSet"}),
        (60, "500m", 2, {"topologySpreadConstraints": OWN}),
        (36, "100m", 2, {"topologySpreadConstraints": OWN}),
        (36, "100m", 1, {"affinity": APART}),
    ],
)
def test_replicas_of_one_round_do_not_pile_up_on_a_node(
    count: int, cpu: str, most: int, fields: dict[str, Any]
) -> None:
    running = mixed()
    running.create(*jobs(80, "4"), *replicas(count, cpu=cpu, **fields))
    running.round()
    there = Counter(bind.node for bind in running.binds if bind.pod.name.startswith("rs-"))
    assert sum(there.values()) == count
    assert max(there.values()) <= most


def test_workloads_of_one_round_are_counted_apart_and_more_of_them_share_counts() -> None:
    running = mixed()
    sets = [replicas(20, uid=f"rs{i}", cpu="250m") for i in range(12)]
    running.create(*jobs(60, "4"), *(pod for pods in zip(*sets, strict=True) for pod in pods))
    running.round()
    there = Counter((bind.node, bind.pod.name.split("-")[0]) for bind in running.binds)
    assert sum(there.values()) == 300
    assert max(count for (_, name), count in there.items() if name != "job") <= 2


def test_one_or_two_pods_of_a_workload_need_no_count() -> None:
    running = mixed()
    running.create(*(pod for i in range(5) for pod in replicas(1 + i % 2, uid=f"rs{i}")))
    assert running.begin() and running.given is not None
    assert all(c.counted == () for c in running.given.classes)


def test_measured_replicas_of_one_round_do_not_pile_up_on_a_node() -> None:
    """On the two large nodes, which have nothing else, each of the twenty would run a little faster."""
    server = ModelServer()
    for k in range(10):
        server.put(b.node(f"n{k}", "64" if k < 2 else "16", "64Gi", labels={names.ZONE: "abc"[k % 3], HOST: f"n{k}"}))
    running = ModelScheduler(server, Configuration())
    running.create(*jobs(16, "4"), *replicas(20, cpu="500m", annotations={names.PROFILE: "blackscholes"}))
    running.round()
    there = Counter(bind.node for bind in running.binds if bind.pod.name.startswith("rs-"))
    assert sum(there.values()) == 20
    assert max(there.values()) <= 3


def test_replicas_find_room_where_others_can_leave_it() -> None:
    """Wide jobs choose first; those on small nodes go elsewhere, so that replicas need not share the large ones."""
    server = ModelServer()
    for k in range(12):
        labels = {names.ZONE: "abc"[k % 3], HOST: f"n{k}"}
        server.put(b.node(f"n{k}", ("4", "8", "16")[k // 4], "64Gi", labels=labels))
    running = ModelScheduler(server, Configuration())
    running.create(*replicas(10, cpu="4", uid="wide"), *jobs(60, "500m"), *replicas(60, cpu="100m"))
    running.round()
    there = Counter(bind.node for bind in running.binds if bind.pod.name.startswith("rs-"))
    assert sum(there.values()) == 60
    assert max(there.values()) <= 6


def test_replicas_stay_where_they_would_rather_be_than_on_nodes_of_their_own() -> None:
    running = mixed()
    few = [f"n{k}" for k in range(15)]
    wish = b.affinity(prefers=[(100, [{"key": HOST, "operator": "In", "values": few}])])
    running.create(*replicas(60, cpu="100m", affinity=wish))
    running.round()
    assert sum(bind.node in few for bind in running.binds) >= 50


HARD = [b.spread(HOST, b.selector(**WEB), skew=3)]


@pytest.mark.parametrize(("count", "cpu"), [(130, "4"), (140, "4"), (70, "8"), (110, "4")])
def test_wide_pods_leave_room_on_enough_nodes_for_a_spread_that_must_hold(count: int, cpu: str) -> None:
    running = mixed()
    running.create(*jobs(count, cpu), *replicas(60, cpu="500m", topologySpreadConstraints=HARD))
    running.round()
    there = Counter(bind.node for bind in running.binds if bind.pod.name.startswith("rs-"))
    assert sum(there.values()) == 60
    assert max(there.values()) - min(there[f"n{k}"] for k in range(40)) <= 3

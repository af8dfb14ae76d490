"""Replicas of one bulk round: no more on a node than if pods came one by one, plus one."""

from __future__ import annotations

import pytest

from benchmarks.engine_trees import HERE, Tree
from benchmarks.k8s_round_worker import one_round, read_node, read_pod
from benchmarks.k8s_spread import (
    WORKER,
    clusters_of_mixes,
    compare,
    make_nodes,
    measure,
    measure_pairs,
    mixes,
    most_of,
    of_mixes,
)


@pytest.mark.parametrize("seed", [4, 32])
def test_a_round_piles_up_no_more_than_pods_that_come_one_by_one(seed: int) -> None:
    found = compare(seed)
    assert found["workloads"] > 2
    assert not found["more"]


def test_no_mix_puts_more_than_four_replicas_on_a_node_and_a_hard_spread_is_placed() -> None:
    nodes = [read_node(plain) for plain in make_nodes(1)]
    for name, workloads in mixes(1).items():
        pods = [plain for workload in workloads for plain in workload.make()]
        placed, _ = one_round([*nodes, *map(read_pod, pods)])
        most = most_of(placed, pods)
        assert max(most.values()) <= (2 if "web" in name else 4)
        assert sum(task.startswith("web-") for task in placed) in (0, 60)


def test_rounds_of_two_trees_are_compared_in_pairs() -> None:
    cluster = clusters_of_mixes(1)[0]
    alone = measure(cluster, 1)
    with Tree(HERE, WORKER) as tree:
        row = measure_pairs(cluster, 3, (tree, tree))
    for found in (row, row["before"]):
        assert (found["placed"], found["most"]) == (alone["placed"], alone["most"])
    assert row["of_before"].keys() == {"begin", "plan", "both"}
    assert all(0.0 < ratio < 100.0 for ratio in row["of_before"].values())
    assert of_mixes([alone]).splitlines()[1] in of_mixes([alone | {k: row[k] for k in ("before", "of_before")}])

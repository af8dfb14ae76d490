"""Replicas of one bulk round: no more on a node than if pods came one by one, plus one."""

from __future__ import annotations

import pytest

from benchmarks.k8s_spread import compare, make_nodes, mixes, most_of, one_round, read_node, read_pod


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

"""Decisions of ``flow-node`` as files: networks that can be read and checked again."""

import json

import networkx as nx
import pytest
from click.testing import CliRunner

from flowsched.node import Node
from flowsched.node.decision_trace import VERSION, decision_trace, network_graph
from flowsched.node.flow_node import FlowNode
from flowsched_models.document import InputError
from flowsched_models.profiles import load_catalogue
from flowsched_simulator.commands.simulate import simulate

SHORT = """apiVersion: flowsched/v1
kind: NodeScenario
name: short
machine: {type: n2d-highmem-4-docker}
services:
  - name: memcached
    profile: memcached
    threads: 2
    cores: [0, 1]
    client: mcperf-dynamic
    slo_p95: 1ms
    load: {wave: [20K, 95K]}
qps_interval_s: 2
jobs:
  - {name: vips, profile: vips, threads: 4, scale: 0.1}
  - {name: canneal, profile: canneal, threads: 4, scale: 0.1}
"""


@pytest.fixture
def decisions(tmp_path):
    scenario = tmp_path / "short.yaml"
    scenario.write_text(SHORT, encoding="utf-8")
    command = [
        str(scenario),
        "--policy",
        "flow-node",
        "--records",
        str(tmp_path / "kept"),
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(simulate, command, catch_exceptions=False)
    assert result.exit_code == 0
    text = (tmp_path / "kept" / "flow-node.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_every_decision_says_what_it_knew(decisions):
    assert len(decisions) > 2
    assert {d["version"] for d in decisions} == {VERSION}
    assert [d["t_s"] for d in decisions] == sorted(d["t_s"] for d in decisions)
    for decision in decisions:
        assert {s["service"] for s in decision["services"]} == {"memcached"}
        assert all(0.0 <= s["violation_chance"] <= 1.0 for s in decision["services"])
        assert {t["task"] for t in decision["tasks"]} <= {"vips", "canneal"}


def test_the_flow_of_a_decision_is_the_cheapest_of_its_network(decisions):
    """Solved again by another solver, from the file alone."""
    for decision in decisions:
        network = decision["network"]
        graph = nx.MultiDiGraph()
        for k, supply in enumerate(network["supplies"]):
            graph.add_node(k, demand=-supply)
        for k, ends in enumerate(zip(network["tails"], network["heads"], strict=True)):
            graph.add_edge(*ends, key=k, capacity=network["capacities"][k], weight=network["unit_costs"][k])
        cheapest, _ = nx.network_simplex(graph)
        assert sum(c * f for c, f in zip(network["unit_costs"], network["flow"], strict=True)) == cheapest


def test_a_network_becomes_a_graph(decisions):
    graph = network_graph(decisions[0])
    assert graph.number_of_nodes() == len(decisions[0]["network"]["nodes"])
    assert graph.number_of_edges() == len(decisions[0]["network"]["tails"])
    for name, data in graph.nodes(data=True):
        out = sum(d["flow"] for _, _, d in graph.out_edges(name, data=True))
        into = sum(d["flow"] for _, _, d in graph.in_edges(name, data=True))
        assert out - into == data["supply"]


def test_there_is_nothing_to_tell_before_a_decision():
    with pytest.raises(ValueError, match="nothing was decided"):
        decision_trace(FlowNode(Node(load_catalogue(), "n2d-highmem-4", (0, 1))))


def test_records_are_of_flow_node_only(tmp_path):
    with pytest.raises(InputError, match="kept of flow-node only"):
        CliRunner().invoke(
            simulate,
            ["node-4core-dynamic", "--policy", "static-2", "--records", str(tmp_path / "kept")],
            catch_exceptions=False,
        )
    assert not (tmp_path / "kept").exists()

"""A tenant's pods that ask for much, or say much, keep no other tenant's pods waiting, and hear why they wait."""

from __future__ import annotations

from typing import Any

import objects_builders as b
import pytest
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched_k8s import names
from flowsched_k8s.configuration import Configuration, CostModelChoice, Features

HUGE = ("999999999", "9999999999Gi", "100000000000000000000")


def scheduler(*, configuration: Configuration | None = None, nodes: int = 3, **more: Any) -> ModelScheduler:
    server = ModelServer()
    for i in range(nodes):
        server.put(b.node(f"n{i}", "4", zone=f"z{i % 2}", **more))
    return ModelScheduler(server, configuration)


def said(running: ModelScheduler, name: str) -> str:
    return running.conditions(name)[-1].message


# Requests larger than any node


@pytest.mark.parametrize("cpu", HUGE)
@pytest.mark.parametrize("profile", [None, "canneal"])
@pytest.mark.parametrize("model", ["flow", "trivial"])
def test_a_request_larger_than_any_node_is_insufficient_cpu(cpu: str, profile: str | None, model: str) -> None:
    running = scheduler(configuration=Configuration(cost_model=CostModelChoice(model)))
    notes = {names.PROFILE: profile} if profile else {}
    grouped = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    running.create(
        b.pod("huge", cpu=cpu, annotations=notes),
        *(b.pod(f"in-group-{i}", cpu=cpu if i else "1", annotations=notes, labels=grouped) for i in range(2)),
        b.pod("usual", "shop", cpu="1"),
    )
    running.settle(within=5.0)
    assert running.where().keys() == {"usual"}
    assert said(running, "huge") == "0/3 nodes are available: 3 Insufficient cpu."


# Resources that no node has


def test_made_up_resources_keep_no_other_pod_waiting_and_five_are_named() -> None:
    running = scheduler(configuration=Configuration(features=Features(preemption=True)))
    wanted = [{f"example.com/r{i}x{k}": "1" for k in range(9)} for i in range(16)]
    running.create(
        *(b.pod(f"evil-{i}", containers=[b.container("c", "1m", **w)]) for i, w in enumerate(wanted)),
        b.pod("usual", "shop", cpu="1", priority=5),
    )
    running.settle(within=5.0)
    assert running.where().keys() == {"usual"}
    message = said(running, "evil-0")
    assert message.startswith("0/3 nodes are available: 3 Insufficient example.com/r0x") and len(message) < 1000
    running.put(b.node("n9", "4", resources=wanted[2]))
    running.settle(within=30.0)
    assert running.where().get("evil-2") == "n9"


def test_a_resource_that_comes_to_a_node_later_has_been_used_all_along() -> None:
    running = scheduler(nodes=1)
    bound = b.pod("bound", node="n0", containers=[b.container("c", "1m", **{"example.com__x": "2"})])
    running.create(bound)
    running.put(b.node("n0", "4", resources={"example.com/x": "3"}))
    running.create(b.pod("asks", containers=[b.container("c", "1m", **{"example.com__x": "2"})]))
    running.settle(within=5.0)
    assert "asks" not in running.where()
    fleet = running.state.cache.fleet
    assert fleet.free()[0, fleet.column("example.com/x")] == 1


def test_a_pod_that_is_overdue_for_what_no_node_has_had_waits_on() -> None:
    running = scheduler()
    running.create(b.pod("asks", containers=[b.container("c", "1m", **{"example.com/x": "1"})]))
    running.settle(within=5.0)
    running.server.now += 1000.0
    running.settle(within=5.0)
    assert said(running, "asks") == "0/3 nodes are available: 3 Insufficient example.com/x."

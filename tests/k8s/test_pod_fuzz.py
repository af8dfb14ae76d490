"""Whatever a tenant's pods say, nothing raises, and the next pod of another tenant is placed."""

from __future__ import annotations

import random
from typing import Any

import objects_builders as b
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler
from model_server import ModelServer
from wordy_pods import ROWS, wordy

from flowsched_k8s import names
from flowsched_k8s.configuration.configuration import Configuration, CostModelChoice, Features
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL

AMOUNTS = ("0", "1m", "100m", "1", "7", "999999999", "9999999999Gi", "1e30", "-1", "9E")
KEYS = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/x", "pods")
NOTES = (names.PROFILE, names.SLO, names.LOAD, names.WIDTHS, names.GOAL, names.MIN_UTILITY, names.RUN_TIME, names.SCALE)
VALUES = ("canneal", "memcached", "p95=1us@1e9qps", "1e400", "1,2,4", "-1", "", "x" * 300, "0.5", "10m", "\n\t")
CONFIGURATIONS = (
    Configuration(features=Features(preemption=True)),
    Configuration(features=Features(volumes=True), node_selector={"pool": "true"}),
    Configuration(cost_model=CostModelChoice("trivial")),
)


def strange(draw: random.Random) -> dict[str, Any]:
    """Some fields of a pod, by chance."""
    said: dict[str, Any] = {}
    rows = [row for rows in ROWS.values() for row in rows]
    for row in draw.sample(rows, draw.randint(0, 3)):
        said |= row(draw.choice((1, 2, 20, 80)))
    if draw.random() < 0.5:
        asked = {key: draw.choice(AMOUNTS) for key in draw.sample(KEYS, draw.randint(0, 3))}
        said["containers"] = [{"name": "main", "resources": {"requests": asked}}]
    if draw.random() < 0.5:
        said["annotations"] = {key: draw.choice(VALUES) for key in draw.sample(NOTES, draw.randint(1, 4))}
    if draw.random() < 0.3:
        said["labels"] = {"app": draw.choice(("w1", "w2")), NAME_LABEL: "g", MINIMUM_LABEL: "2"}
    said["priority"] = draw.choice((0, 0, 5, -(2**31), 2**31 - 1))
    return said


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), configuration=st.sampled_from(CONFIGURATIONS))
def test_a_canary_of_another_tenant_is_always_placed(seed: int, configuration: Configuration) -> None:
    draw = random.Random(seed)
    server = ModelServer()
    for i in range(3):
        server.put(b.node(f"n{i}", "8", zone=f"z{i % 2}", labels={"pool": "true"} if i else {}))
    server.put(b.node("canary", "1", labels={"pool": "true"}, taints=[b.taint("canary")]))
    running = ModelScheduler(server, configuration)
    for number in range(4):
        said = strange(draw)
        if draw.random() < 0.2:
            said["node"] = "n1"
        pod = wordy(said, f"wordy-{number}")
        running.create(pod)
        running.settle(within=2.0)
        canary = b.pod(
            f"canary-{number}",
            "shop",
            cpu="10m",
            annotations={names.PROFILE: "canneal"} if number == 3 else None,
            tolerations=[b.toleration("canary", "Exists")],
            nodeSelector={names.HOSTNAME: "canary"},
            priority=2**31 - 1,
        )
        running.create(canary)
        running.settle(within=2.0)
        assert running.where()[f"canary-{number}"] == "canary"
    server.now += 1000.0
    running.settle(within=2.0)
    running.state.tidy()

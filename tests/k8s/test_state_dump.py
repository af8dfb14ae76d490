"""What /debug/state tells: parts of it, in slices, and no sentence that is as long as what a pod may say."""

from __future__ import annotations

import asyncio
import json

import objects_builders as b
from model_scheduler import ModelScheduler
from model_server import ModelServer

from flowsched_k8s.configuration.configuration import Configuration, Features
from flowsched_k8s.groups.pod_groups import MINIMUM_LABEL, NAME_LABEL
from flowsched_k8s.names import GROUP_TOPOLOGY
from flowsched_k8s.notices.notices import LONGEST
from flowsched_k8s.records.state_dump import SLICE, dump, encoded, whole


def waiting(count: int) -> ModelScheduler:
    server = ModelServer()
    server.put(b.node("n1", "2"))
    running = ModelScheduler(server, Configuration(features=Features()))
    running.create(*(b.pod(f"p{number}", cpu="8") for number in range(count)))
    running.round()
    return running


def test_one_pod_and_so_many_entries() -> None:
    running = waiting(5)
    told = whole(dump(running.state, running.now, limit=2))
    assert len(told["waiting"]) == 2
    assert told["left_out"] == {"waiting": 3}
    told = whole(dump(running.state, running.now, "default/p3"))
    assert [entry["pod"] for entry in told["waiting"]] == ["default/p3"]
    assert (told["nodes"], told["left_out"]) == ({}, {})
    assert whole(dump(running.state, running.now))["left_out"] == {}


def test_the_loop_comes_round_between_slices() -> None:
    running = waiting(3 * SLICE)
    came_round = 0

    async def told() -> bytes:
        async def count() -> None:
            nonlocal came_round
            while True:
                came_round += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        try:
            return await encoded(dump(running.state, running.now), {"more": 1})
        finally:
            counting.cancel()

    parts = json.loads(asyncio.run(told()))
    assert parts == {**json.loads(json.dumps(whole(dump(running.state, running.now)), default=str)), "more": 1}
    # Pods are looked at twice, and those that wait are encoded.
    assert came_round >= 9


def test_what_pods_say_is_quoted_in_part() -> None:
    server = ModelServer()
    server.put(b.node("n1", "2"))
    running = ModelScheduler(server, Configuration(features=Features()))
    labels = {NAME_LABEL: "g", MINIMUM_LABEL: "20"}
    running.create(
        *(
            b.pod(f"g{number}", cpu="1", labels=labels, annotations={GROUP_TOPOLOGY: f"{number:04d}" + "x" * 200_000})
            for number in range(20)
        )
    )
    running.round()
    told = whole(dump(running.state, running.now))["waiting"]
    assert len(told) == 20
    for entry in told:
        assert "is not the same for all pods: '0000xxx" in entry["message"]
        assert "and 17 others" in entry["message"]
        assert len(entry["message"]) <= LONGEST

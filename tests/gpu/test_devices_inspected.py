"""The devices of machines that the inspector shows: those of the record, what comes and goes, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
from test_gpus_in_rounds import JOBS, cluster, decided, machine, scenario, scheduler, task

from flowsched.cluster.events import TaskSubmitted
from flowsched.cluster.snapshot_dump import read_plain_snapshot
from flowsched.gpu.devices import WHOLE_MILLI, TaskGpus
from flowsched.inspector.device_facts import LEAVING, MOVES_IN, MOVES_OUT, PREEMPTED, RUNS, STARTS, machine_devices
from flowsched.inspector.page.page_data import page_data
from flowsched.inspector.record_view import RecordView
from flowsched_simulator import Options, simulate
from flowsched_simulator.policies import EngineOptions


@pytest.mark.parametrize("policy", ["flow", "gpu-fgd"])
def test_devices_of_every_round_are_those_of_its_record(policy: str) -> None:
    """What is left before is the snapshot's own sum, the next round begins with what was left, and no lane is overfull."""
    run = simulate(
        scenario(JOBS),
        policy,
        options=Options(seed=1, keep_records=True),
        engine=EngineOptions(keep_records=True),
        variant="declared-shared",
    )
    assert run.records
    started: set[str] = set()
    for record in run.records:
        recorded = RecordView(record)
        (part,) = recorded.parts
        found = machine_devices(recorded, part)
        left = read_plain_snapshot(part.plain["snapshot"]).devices_left()
        assert {name: devices.left_before for name, devices in found.items()} == left
        for devices in found.values():
            for number, after in enumerate(devices.left_after):
                held = sum(h.share_milli for h in devices.holds if number in h.devices and h.does not in LEAVING)
                assert after == WHOLE_MILLI - held >= 0
            started |= {hold.task for hold in devices.holds if hold.does == STARTS}
        plain = page_data(recorded)["parts"][0]["machine_facts"]["gpus"]
        assert {name: tuple(gpus["after"]) for name, gpus in plain.items()} == {
            name: devices.left_after for name, devices in found.items()
        }
    assert started == {job.name for job in run.jobs if job.gpu_share_milli}


def test_a_preempted_task_leaves_its_device_to_the_one_that_it_makes_room_for() -> None:
    state = cluster(machine("a", 2))
    for n in range(4):
        state.apply(TaskSubmitted(task(f"low-{n}", TaskGpus(share_milli=500))), 0.0)
    decided(state)
    state.apply(TaskSubmitted(task("high", TaskGpus(1), priority=5)), 1.0)
    found = scheduler(preemption="lower-priority").decide(state.snapshot(1.0))
    recorded = RecordView(found.record)
    devices = machine_devices(recorded, recorded.parts[0])["a"]
    does: dict[str, list[Any]] = {}
    for hold in devices.holds:
        does.setdefault(hold.does, []).append(hold)
    assert (len(does[PREEMPTED]), len(does[RUNS])) == (2, 2)
    (high,) = does[STARTS]
    assert {hold.devices for hold in does[PREEMPTED]} == {high.devices}
    assert devices.left_before == devices.left_after == (0, 0)


def test_a_move_is_on_both_machines() -> None:
    state = cluster(machine("a", 1), machine("b", 1))
    state.apply(TaskSubmitted(task("t", TaskGpus(share_milli=300))), 0.0)
    (placed,) = decided(state).placements
    other = "b" if placed.machine == "a" else "a"
    record = dict(scheduler().decide(state.snapshot(1.0)).record or {})
    move = {"task": "t", "source": placed.machine, "machine": other, "devices": [0]}
    recorded = RecordView({**record, "parts": [{**record["parts"][0], "moves": [move]}]})
    found = machine_devices(recorded, recorded.parts[0])
    assert [hold.does for hold in found[placed.machine].holds] == [MOVES_OUT]
    assert [hold.does for hold in found[other].holds] == [MOVES_IN]
    assert (found[placed.machine].left_before, found[placed.machine].left_after) == ((700,), (1000,))
    assert (found[other].left_before, found[other].left_after) == ((1000,), (700,))


def test_without_gpus_a_page_says_nothing_of_them() -> None:
    state = cluster(machine("a", 0))
    state.apply(TaskSubmitted(task("t", None)), 0.0)
    recorded = RecordView(decided(state).record)
    assert machine_devices(recorded, recorded.parts[0]) == {}
    assert "gpus" not in page_data(recorded)["parts"][0]["machine_facts"]

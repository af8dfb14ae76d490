"""Machines that a scenario names by their cores and memory, without a profiles file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.snapshot_dump import dump_snapshot, read_plain_snapshot
from flowsched_models.document import InputError
from flowsched_models.machine import MachineType
from flowsched_simulator import make_scenario
from flowsched_simulator.comparison import simulate
from flowsched_simulator.experiment.copies import with_copies
from flowsched_simulator.scenario_file import load_scenario

BIG = {"name": "big", "cores": 16, "memory": "64Gi", "copies": 2}
JOBS = [{"name": "a", "request": 8, "runtime_s": 100, "copies": 8}]


def problems(machines: Sequence[Mapping[str, Any]], jobs: Sequence[Mapping[str, Any]], **keys: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        make_scenario(machines, jobs, **keys)
    return [str(p).removeprefix("make_scenario: ") for p in caught.value.problems]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "srpt", "all-at-once", "kube-default", "trivial", "quincy"])
def test_jobs_with_a_given_run_time_run_there_under_every_policy(policy: str) -> None:
    run = simulate(make_scenario([BIG], JOBS), policy)
    assert run.makespan_s == 200.0
    assert {job.machine for job in run.jobs} == {"big-1", "big-2"}


def test_it_has_plain_cores_of_the_usual_speed() -> None:
    scenario = make_scenario(
        [BIG, {"cores": 4, "memory": "8Gi", "cpu": 3.5, "gpus": {"model": "V100", "count": 2}}], JOBS
    )
    big, _, small = scenario.machines
    assert scenario.catalogue.machine_types[big.type] == MachineType(big.type, 16, 65536, 1.0, 1.0, smt=False)
    assert (big.vcpus, big.cpu_milli, big.memory_mib) == (16, 16000, 65536)
    assert (small.name, small.cpu_milli, small.memory_mib) == ("plain-4-8192Mi", 3500, 8192)
    assert small.gpus is not None and small.gpus.count == 2
    assert len({m.name for m in with_copies(scenario, machines=3).machines}) == 9


def test_a_snapshot_of_it_stands_alone() -> None:
    scenario = make_scenario([BIG], JOBS)
    snapshot = Snapshot(0.0, scenario.catalogue, scenario.machines, pending=scenario.tasks)
    again = read_plain_snapshot(dump_snapshot(snapshot))
    assert again.machines == snapshot.machines
    assert again.catalogue.machine_types == {
        t: scenario.catalogue.machine_types[t] for t in {m.type for m in snapshot.machines}
    }


def test_what_is_wrong_with_it_is_said_with_its_place() -> None:
    machines: list[dict[str, Any]] = [
        {"name": "both", "type": "e2-standard-8", "cores": 4},
        {"name": "neither"},
        {"name": "bare", "cores": 4},
        {"name": "none", "cores": 0, "memory": "1Gi"},
        {"name": "part", "cores": 2.5, "memory": "1Gi"},
        {"name": "many", "cores": 2, "memory": "1Gi", "cpu": 3},
    ]
    assert [text.partition("; ")[0] for text in problems(machines, [{"name": "j", "request": 1, "runtime_s": 9}])] == [
        "machines[3].cores: must be more than 0, but is 0",
        "machines[4].cores: must be a whole number, but is 2.5",
        "machines[0].cores: stands beside the type e2-standard-8, which has its own number of cores",
        "machines[1].type: is missing",
        "machines[2].memory: is missing beside cores",
        "machines[5].cpu: 3 cores are more than the 2 virtual CPUs of many",
    ]


def test_what_was_measured_elsewhere_is_refused_there() -> None:
    measured = {"name": "b", "profile": "vips", "request": 1}
    others = [
        {"name": "n", "profile": "neutral", "request": 1},
        {"name": "g", "profile": "vips", "request": 1, "runtime_s": 9},
    ]
    typed = {"name": "typed", "type": "e2-standard-8"}
    (text,) = problems([BIG, typed], [measured, *others])
    assert text == (
        "jobs[0].profile: was not measured on plain machines, and job 'b' may come to big-1; give the job runtime_s, give "
        "the machine a type, or keep them apart by machines or machine_labels"
    )
    scenario = make_scenario([BIG, typed], [{**measured, "machines": ["typed"]}, *others])
    assert simulate(scenario, "fcfs", variant="declared-own").jobs[0].machine == "typed"
    service = {
        "name": "cache", "profile": "memcached", "machine": "big-1", "cores": "0", "qps": "30K", "slo_p95": "1ms",
        "client": "mcperf-30k",
    }  # fmt: skip
    assert (
        "services[0].machine: big-1 is a plain machine, on which no service was measured; give the machine a type"
        in problems([BIG], JOBS, services=[service])
    )


def test_a_type_of_the_profiles_with_its_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "types.yaml").write_text(
        "apiVersion: flowsched/v1\nkind: Profiles\nmachine_types:\n"
        "  plain-4-1024Mi: {source: a test, vcpus: 2, memory: 1Gi}\n"
    )
    (tmp_path / "s.yaml").write_text(
        "apiVersion: flowsched/v1\nkind: Scenario\nname: s\nprofiles: [types.yaml]\nmachines: [{cores: 4, memory: 1Gi}]\n"
        "jobs: [{name: j, request: 1, runtime_s: 9}]\n"
    )
    with pytest.raises(InputError, match=r"the profiles have a type plain-4-1024Mi, .*; name it: type: plain-4-1024Mi"):
        load_scenario(tmp_path / "s.yaml")

"""What a kubelet does to groups while the agent steers them: starts containers in them, and gives pods other amounts."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from fake_machine import FakeMachine
from test_agent_pods import CATALOGUE, POD
from test_control_groups import file_of, group_of

from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched_agent.controls.cgroup_v1 import GroupV1
from flowsched_agent.controls.group import group_files
from flowsched_agent.kubernetes.pods import read_pod

JOB, OLD, NEW = "/batch/job", "/batch/job/old", "/batch/job/new"


def put(machine: FakeMachine, path: str, cpus: str) -> None:
    folder = machine.group("cpuset", path)
    (folder / "cpuset.cpus").write_text(cpus)


@pytest.mark.parametrize("anew", [False, True], ids=["the agent", "the next one"])
def test_a_container_that_came_meanwhile_gets_the_cpus_of_its_pod(tmp_path: Path, anew: bool) -> None:
    machine = FakeMachine(tmp_path, "v1")
    put(machine, OLD, "0-3")
    group = group_of(machine)
    group.set_cores((1,))
    # As runc makes them: with what the group above has at that moment.
    put(machine, NEW, "1")
    put(machine, f"{NEW}/inside", "1")
    if anew:
        files, _ = group_files(machine, group.saved())
        assert files is not None
        group = GroupV1(machine, files.folders, files)
    group.restore()
    assert {file_of(machine, "cpuset", "cpuset.cpus", path) for path in (JOB, OLD, NEW, f"{NEW}/inside")} == {"0-3"}


def test_cpus_that_somebody_else_gave_to_a_new_container_stay(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    group = group_of(machine)
    group.set_cores((0, 1))
    put(machine, NEW, "1")
    group.restore()
    assert file_of(machine, "cpuset", "cpuset.cpus", NEW) == "1"


def test_a_group_whose_cpus_were_left_alone_leaves_those_below_it_alone(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    group = group_of(machine)
    group.set_weight(LOWEST_WEIGHT)
    put(machine, NEW, "0-3")
    before = file_of(machine, "cpuset", "cpuset.cpus", NEW)
    group.restore()
    assert file_of(machine, "cpuset", "cpuset.cpus", NEW) == before


def test_what_the_agent_never_wrote_to_is_not_put_back(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    group = group_of(machine)
    group.set_cores((1,))
    cpu = machine.group("cpu,cpuacct", JOB)
    (cpu / "cpu.cfs_quota_us").write_text("30000")
    (cpu / "cpu.shares").write_text("307")
    group.restore()
    assert (file_of(machine, "cpu,cpuacct", "cpu.cfs_quota_us"), file_of(machine, "cpu,cpuacct", "cpu.shares")) == (
        "30000",
        "307",
    )
    assert file_of(machine, "cpuset", "cpuset.cpus") == "0-3"


def test_a_pod_is_left_to_kubelet_while_it_is_resized() -> None:
    pod = copy.deepcopy(POD)
    assert read_pod(pod, CATALOGUE, ["flowsched"]).workload is not None
    pod["status"]["conditions"] = [{"type": "PodResizeInProgress", "status": "True", "reason": "Error"}]
    found = read_pod(pod, CATALOGUE, ["flowsched"])
    assert (found.workload, found.problem) == (None, None)
    # What kubelet has not begun with may take for ever.
    pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert read_pod(pod, CATALOGUE, ["flowsched"]).workload is not None

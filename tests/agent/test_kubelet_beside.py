"""What a kubelet does to groups while the agent steers them: starts containers in them, and gives pods other amounts."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from agent_fakes import FakeControl, allocation, bench
from fake_machine import FakeMachine
from test_agent_pods import POD, looked_at
from test_agent_pods import pod as pod_of
from test_control_groups import file_of, group_of
from test_control_saved import container_on, written

from flowsched.node import TaskGrant
from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched_agent.controls.cgroup_v1 import GroupV1
from flowsched_agent.controls.group import group_files
from flowsched_agent.controls.saved import restore_saved
from flowsched_agent.kubernetes.pods import PodWorkload
from flowsched_agent.state_file import StateError, StateFile

QUOTA = "cpu.cfs_quota_us"
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


def test_cpus_that_another_program_gave_to_a_new_container_stay(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", ["v1", "hybrid", "v2"])
def test_the_state_file_says_which_files_were_written_before_they_are(tmp_path: Path, kind: str) -> None:
    """So the next agent, after a SIGKILL, leaves alone what kubelet changed as well."""
    machine = FakeMachine(tmp_path, kind)
    control = container_on(machine)
    known: list[set[str]] = [set()]
    control.before_first(lambda: known.append(set(written(control)["group"]["written"])))
    before = machine.snapshot()
    write = machine.write

    def watched(path: Path, text: str) -> None:
        assert any(key.rpartition(":")[2] == path.name for key in known[-1]), f"{path} was not announced"
        write(path, text)

    machine.write = watched  # type: ignore[method-assign]
    control.set_cores((1,))
    control.set_weight(LOWEST_WEIGHT)
    control.set_weight(1.0)
    control.set_weight(LOWEST_WEIGHT)
    announced = len(known)
    control.set_cores((2,))
    assert len(known) == announced, "said already"
    machine.write = write  # type: ignore[method-assign]

    saved = written(control)
    quota = machine.group("" if kind == "v2" else "cpu", "/docker/4f0c") / ("cpu.max" if kind == "v2" else QUOTA)
    quota.write_text("30000")
    assert restore_saved(saved, machine) == [f"web has its former settings again (group {saved['group']['where']})"]
    assert quota.read_text() == "30000"
    now = machine.snapshot()
    changed = {path for path in before if "effective" not in path and now[path].strip() != before[path].strip()}
    assert changed == {path for path in before if path.endswith(quota.name) and "4f0c" in path}
    # Before the state file said so, everything was put back.
    del saved["group"]["written"]
    restore_saved(saved, machine)
    assert quota.read_text() != "30000"


def test_what_cannot_be_announced_is_not_written(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    control = container_on(machine)
    before = machine.snapshot()
    said: list[str] = []

    def full() -> None:
        said.append("full")
        raise StateError("no room")

    control.before_first(full)
    for _ in range(2):
        with pytest.raises(StateError):
            control.set_weight(0.5)
    assert (machine.snapshot(), said, written(control)["group"]["written"]) == (before, ["full", "full"], [])


def test_the_agent_announces_in_its_state_file(tmp_path: Path) -> None:
    class Announcing(FakeControl):
        def _call(self, method: str, value: object = "") -> None:
            if method != "restore":
                self.first = method
                self.announce()
                assert json.loads(file.path.read_text())["saved"][self.name]["written"] == method
            super()._call(method, value)

        def saved(self) -> dict[str, object]:
            return {**super().saved(), "written": getattr(self, "first", "")}

    file = StateFile(tmp_path / "state.json")
    b = bench(*[allocation((0,), batch=TaskGrant(False))] * 2, state_file=file)
    for name in ("mc", "batch"):
        b.actuator.controls[name] = Announcing(name, b.actuator.log)
    assert b.ticks(1) == ["batch pause", "mc cores 0"]
    assert b.agent.status.errors == {}


def test_a_service_is_steered_while_it_is_resized() -> None:
    pod = copy.deepcopy(POD)
    before = looked_at(pod)
    assert isinstance(before, PodWorkload)
    pod["status"]["conditions"] = [{"type": "PodResizeInProgress", "status": "True"}]
    assert looked_at(pod) == before


def test_a_job_is_left_to_kubelet_while_it_is_resized() -> None:
    pod = pod_of(workload_class="batch", profile="canneal", slo=None)
    assert isinstance(looked_at(pod), PodWorkload)
    pod["status"]["conditions"] = [{"type": "PodResizeInProgress", "status": "True", "reason": "Error"}]
    assert looked_at(pod) is None
    # What kubelet has not begun with may never come.
    pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert isinstance(looked_at(pod), PodWorkload)

"""Containers by their groups: how runtimes name them, what is steered by the group and what by threads instead."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest
from fake_machine import OWN_PID, FakeMachine

from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched_agent.controls.choice import control_of_container
from flowsched_agent.controls.container import ContainerControl
from flowsched_agent.controls.detected import detect
from flowsched_agent.controls.hierarchies import find_hierarchies, groups_of_container
from flowsched_agent.controls.refusals import ControlError

ID = "4f0c8d2b91aa17e36b5d" + "0" * 44
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2e.slice"
LAYOUTS = {
    "runc": f"/{ID}",
    "ctr": f"/default/{ID}",
    "docker": f"/docker/{ID}",
    "docker under systemd": f"/system.slice/docker-{ID}.scope",
    "containerd under kubelet": f"/kubepods/burstable/pod1f2e/{ID}",
    "containerd under kubelet and systemd": f"{POD}/cri-containerd-{ID}.scope",
    "crio": f"{POD}/crio-{ID}.scope",
    "podman": f"/machine.slice/libpod-{ID}.scope",
}
KINDS = pytest.mark.parametrize("kind", ["v1", "hybrid", "v2"])


def machine_with(folder: Path, kind: str, path: str = f"/docker/{ID}", trees: tuple[str, ...] = ()) -> FakeMachine:
    """A container of two processes in a group of these trees, or of all."""
    machine = FakeMachine(folder, kind)
    at = dict.fromkeys(trees or machine.trees_made(), path)
    for tree in at:
        machine.group(tree, path)
    machine.spawn(100, (101,), at=at)
    machine.spawn(110, parent=100, at=at)
    machine.spawn(200)
    return machine


def control_on(machine: FakeMachine, container: str | int = ID) -> ContainerControl:
    return control_of_container("web", container, detect(machine, machine.subject), machine)


@KINDS
@pytest.mark.parametrize("path", LAYOUTS.values(), ids=LAYOUTS)
def test_runtimes_name_groups_in_many_ways(tmp_path: Path, kind: str, path: str) -> None:
    machine = machine_with(tmp_path, kind, path)
    hierarchies = find_hierarchies(machine)
    for asked in (ID, f"containerd://{ID}", ID[:12]):
        found = groups_of_container(machine, hierarchies, asked)
        assert found == dict.fromkeys(hierarchies.trees(), path)


def test_groups_inside_a_container_are_part_of_it(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "v2", f"/docker/{ID}")
    machine.group("", f"/docker/{ID}/{ID}")
    assert groups_of_container(machine, find_hierarchies(machine), ID) == {"": f"/docker/{ID}"}


@pytest.mark.parametrize("asked", ["", "../etc", "a/b", "docker://", "*"])
def test_what_is_no_id_is_refused(tmp_path: Path, asked: str) -> None:
    with pytest.raises(ControlError, match="no id of a container; write it as"):
        groups_of_container(FakeMachine(tmp_path, "v2"), find_hierarchies(FakeMachine(tmp_path / "b", "v2")), asked)


def test_an_ambiguous_id_is_refused(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "v2", f"/docker/{ID}")
    machine.group("", f"/docker/{ID[:14]}ffff")
    with pytest.raises(ControlError, match=r"2 groups have such a name.*write more of the id"):
        groups_of_container(machine, find_hierarchies(machine), ID[:12])


def test_a_container_that_is_gone(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    with pytest.raises(ControlError, match="it has ended, or the host's cgroup tree is not mounted here") as caught:
        control_on(machine)
    assert caught.value.gone


# All by the group


@KINDS
@pytest.mark.parametrize("by_pid", [True, False])
def test_everything_by_the_group_and_back(tmp_path: Path, kind: str, by_pid: bool) -> None:
    machine = machine_with(tmp_path, kind)
    before = machine.snapshot()
    control = control_on(machine, 100 if by_pid else ID)
    control.set_cores((1, 2))
    control.set_weight(LOWEST_WEIGHT)
    control.set_quota(1.5)
    control.pause()
    assert control.paused()
    assert control.alive()
    cpu, cpuset = ("", "") if kind == "v2" else ("cpu", "cpuset")
    assert (machine.cgroup / cpuset / f"docker/{ID}/cpuset.cpus").read_text() == "1-2"
    assert (machine.cgroup / cpu / f"docker/{ID}/cpu.idle").read_text() == "1"
    control.resume()
    assert not control.paused()
    assert machine.signals == []
    assert machine.affinities[100] == (0, 1, 2, 3)
    assert control.sentences() == []
    control.pause()
    control.restore()
    after = {file: text for file, text in machine.snapshot().items() if "effective" not in file}
    expected = {file: text for file, text in before.items() if "effective" not in file}
    if kind == "v2":
        # The kernel does not let it be empty again, which meant the same.
        expected[f"docker/{ID}/cpuset.cpus"] = "0-3"
    assert after == expected


@KINDS
def test_fewer_cores_than_asked_are_said(tmp_path: Path, kind: str) -> None:
    machine = machine_with(tmp_path, kind)
    file = "cpuset.cpus.effective" if kind == "v2" else "cpuset.effective_cpus"
    (machine.cgroup / ("" if kind == "v2" else "cpuset") / "docker" / file).write_text("0-1")
    control = control_on(machine)
    control.set_cores((1, 2))
    assert control.sentences() == ["web was to run on the CPUs 1-2 and runs on 1: the group above it has no more"]


def test_a_pause_that_takes_long_is_said(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "v1")
    machine.slow_freezer = True
    control = control_on(machine)
    control.pause()
    assert not control.paused()
    assert "does not stand still yet" in control.sentences()[0]


@KINDS
def test_a_container_that_ends_is_gone(tmp_path: Path, kind: str) -> None:
    machine = machine_with(tmp_path, kind)
    control = control_on(machine)
    for pid in (100, 110):
        machine.end(pid)
    assert not control.alive()
    for tree in machine.trees_made():
        machine.remove_folder(machine._folder(tree, f"/docker/{ID}"))
    assert not control.alive()
    for ask in (control.pause, lambda: control.set_cores((0,)), lambda: control.set_weight(1.0), control.cpu_s):
        with pytest.raises(ControlError) as caught:
            ask()
        assert caught.value.gone
    control.restore()


# What has no group of its own


def test_without_a_cpuset_threads_are_pinned(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "v1", trees=("cpu,cpuacct", "freezer"))
    control = control_on(machine, 100)
    control.set_cores((2,))
    assert {machine.affinities[tid] for tid in (100, 101, 110)} == {(2,)}
    assert machine.affinities[200] == (0, 1, 2, 3)
    assert control.sentences() == ["web has no cpuset group of its own; it is steered by the affinity of its threads"]
    control.set_cores((3,))
    assert control.sentences() == []


def test_without_a_freezer_signals_stop_it(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "v1", trees=("cpu,cpuacct", "cpuset"))
    control = control_on(machine, 100)
    control.pause()
    assert control.paused()
    control.resume()
    assert not control.paused()
    assert machine.signals[0] == (100, signal.SIGSTOP)


def test_without_a_cpu_group_nice_values_and_no_quota(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "v1", trees=("cpuset",))
    control = control_on(machine, 100)
    control.set_weight(0.5)
    assert machine.classes[110].nice == 3
    control.set_quota(None)
    with pytest.raises(ControlError, match="has no cpu controller; let its runtime"):
        control.set_quota(1.0)
    assert control.cpu_s() == pytest.approx((100 + 101 + 110) * 1000e-9)


@KINDS
def test_the_root_group_is_never_changed(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    machine.spawn(100)
    with pytest.raises(ControlError, match="root group, or in that of the agent; start it as a container"):
        control_on(machine, 100)


@KINDS
@pytest.mark.parametrize("own", ["/docker", f"/docker/{ID}", f"/docker/{ID}/inner"])
def test_the_agent_never_steers_a_group_that_it_is_in(tmp_path: Path, kind: str, own: str) -> None:
    machine = machine_with(tmp_path, kind)
    for tree in machine.trees_made():
        machine.group(tree, own)
        machine._join(OWN_PID, machine._folder(tree, own))
    if own == "/docker":
        control_on(machine).pause()
    else:
        with pytest.raises(ControlError, match="in that of the agent"):
            control_on(machine)


def test_groups_above_the_agents_namespace_are_not_seen(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v2")
    machine.spawn(100)
    (machine.proc / "100/cgroup").write_text("0::/../../docker/other\n")
    with pytest.raises(ControlError, match="root group"):
        control_on(machine, 100)


def test_a_group_that_may_not_be_read(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, "v2")
    detected = detect(machine, machine.subject)
    machine.refusals["read", "cgroup.procs"] = errno.EACCES
    with pytest.raises(ControlError, match="EACCES, permission is missing; run the agent"):
        control_of_container("web", ID, detected, machine)

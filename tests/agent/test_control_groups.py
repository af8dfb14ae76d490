"""Weights, quotas, cpusets and freezers of groups, on made-up trees of both versions."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched_agent.controls.cgroup_v1 import GroupV1
from flowsched_agent.controls.cgroup_v2 import GroupV2
from flowsched_agent.controls.core_list import cores_of
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.weights import kubelet_v2_of, nice_of, shares_of, v2_of, weight_of_nice
from flowsched_models.quantity import format_cores

BOTH = pytest.mark.parametrize("kind", ["v1", "v2"])


def group_of(machine: FakeMachine, path: str = "/batch/job") -> GroupV1 | GroupV2:
    if machine.kind_made == "v2":
        return GroupV2(machine, machine.group("", path))
    trees = {"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct", "cpuset": "cpuset", "freezer": "freezer"}
    return GroupV1(machine, {tree: machine.group(folder, path) for tree, folder in trees.items()})


def file_of(machine: FakeMachine, tree: str, file: str, path: str = "/batch/job") -> str:
    root = machine.cgroup if machine.kind_made == "v2" else machine.cgroup / tree
    return (root / path.strip("/") / file).read_text().strip()


# Scales


@pytest.mark.parametrize(
    ("shares", "weight"), [(0, 1), (2, 1), (1024, 39), (2048, 79), (262144, 10000), (10**9, 10000)]
)
def test_shares_become_the_weights_that_kubelet_gives(shares: int, weight: int) -> None:
    assert kubelet_v2_of(shares) == weight


@pytest.mark.parametrize(
    ("weight", "shares", "v2", "nice"),
    [
        (1.0, 1024, 100, 0),
        (LOWEST_WEIGHT, 2, 1, 19),
        (0.5, 512, 50, 3),
        (3.0, 3072, 300, -5),
        (1e6, 262144, 10000, -20),
    ],
)
def test_a_weight_in_each_unit(weight: float, shares: int, v2: int, nice: int) -> None:
    assert (shares_of(weight), v2_of(weight), nice_of(weight)) == (shares, v2, nice)


@pytest.mark.parametrize(("nice", "in_kernel"), [(-5, 3121), (0, 1024), (5, 335), (10, 110), (19, 15)])
def test_nice_steps_are_near_the_table_of_the_kernel(nice: int, in_kernel: int) -> None:
    assert weight_of_nice(nice) == pytest.approx(in_kernel / 1024, rel=0.04)


@pytest.mark.parametrize(
    ("text", "cores"), [("", ()), ("0\n", (0,)), ("0-2,4", (0, 1, 2, 4)), ("1,3-4,7-8\n", (1, 3, 4, 7, 8))]
)
def test_core_lists_are_read_and_written(text: str, cores: tuple[int, ...]) -> None:
    assert cores_of(text) == cores
    assert format_cores(cores) == text.strip()


# Weight and quota


def test_v1_shares(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    group_of(machine).set_weight(0.25)
    assert file_of(machine, "cpu", "cpu.shares") == "256"
    assert file_of(machine, "cpu", "cpu.idle") == "0"


def test_v2_weight(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v2")
    group_of(machine).set_weight(0.25)
    assert file_of(machine, "", "cpu.weight") == "25"


def test_below_kubepods_the_scale_is_kubelets(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v2")
    path = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-4f0c.scope"
    group_of(machine, path).set_weight(1.0)
    assert file_of(machine, "", "cpu.weight", path) == "39"


@BOTH
def test_the_lowest_weight_is_idle_and_comes_back(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group, file = group_of(machine), "cpu.shares" if kind == "v1" else "cpu.weight"
    for _ in range(2):
        group.set_weight(LOWEST_WEIGHT)
        assert file_of(machine, "cpu", "cpu.idle") == "1"
    group.set_weight(2.0)
    assert file_of(machine, "cpu", "cpu.idle") == "0"
    assert file_of(machine, "cpu", file) == ("2048" if kind == "v1" else "200")


@BOTH
def test_quota(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group = group_of(machine)
    file = "cpu.cfs_quota_us" if kind == "v1" else "cpu.max"
    read = []
    for cpus in (1.5, 0.0001, None):
        group.set_quota(cpus)
        read.append(file_of(machine, "cpu", file))
    expected = ["150000", "1000", "-1"] if kind == "v1" else ["150000 100000", "1000 100000", "max 100000"]
    assert read == expected


def test_v1_quota_with_another_period(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    folder = machine.group("cpu,cpuacct", "/batch/job")
    (folder / "cpu.cfs_period_us").write_text("10000")
    (folder / "cpu.cfs_quota_us").write_text("5000")
    group = group_of(machine)
    group.set_quota(0.5)
    assert file_of(machine, "cpu", "cpu.cfs_period_us") == "100000"
    assert file_of(machine, "cpu", "cpu.cfs_quota_us") == "50000"
    group.restore()
    assert file_of(machine, "cpu", "cpu.cfs_period_us") == "10000"
    assert file_of(machine, "cpu", "cpu.cfs_quota_us") == "5000"


# Cores


@BOTH
def test_cores_within_those_of_the_group_above(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group = group_of(machine)
    assert group.set_cores((1, 2)) == (1, 2)
    assert file_of(machine, "cpuset", "cpuset.cpus") == "1-2"
    above = machine.group("cpuset" if kind == "v1" else "", "/batch")
    (above / ("cpuset.effective_cpus" if kind == "v1" else "cpuset.cpus.effective")).write_text("0-1")
    assert group.set_cores((1, 2)) == (1,)
    assert file_of(machine, "cpuset", "cpuset.cpus") == "1"


@BOTH
def test_no_core_in_common_is_an_error_and_changes_nothing(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind, cores="0-1")
    group, before = group_of(machine), machine.snapshot()
    with pytest.raises(ControlError, match=r"was to run on the CPUs 2-3: the group above it has 0-1; give"):
        group.set_cores((2, 3))
    assert machine.snapshot() == before


def test_v1_groups_inside_follow_narrowing_and_widening(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    for inside in ("/batch/job/a", "/batch/job/a/b", "/batch/job/c"):
        machine.group("cpuset", inside)
    group = group_of(machine)
    before = machine.snapshot()
    for cores, text in (((0, 1), "0-1"), ((3,), "3"), ((0, 1, 2), "0-2")):
        group.set_cores(cores)
        for path in ("/batch/job", "/batch/job/a", "/batch/job/a/b", "/batch/job/c"):
            assert file_of(machine, "cpuset", "cpuset.cpus", path) == text
    group.restore()
    assert {key: text for key, text in machine.snapshot().items() if "effective" not in key} == {
        key: text for key, text in before.items() if "effective" not in key
    }


# Freezer


@BOTH
def test_freeze_and_thaw(tmp_path: Path, kind: str) -> None:
    group = group_of(FakeMachine(tmp_path, kind))
    assert not group.frozen()
    assert group.freeze()
    assert group.frozen()
    group.thaw()
    assert not group.frozen()


@BOTH
def test_the_wait_for_a_freeze_is_bounded(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    machine.slow_freezer = True
    group = group_of(machine)
    assert not group.freeze()
    assert 0.1 <= machine.clock_s < 0.2
    assert not group.frozen()


def test_a_hybrid_machine_freezes_in_the_tree_that_it_has(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "hybrid")
    unified = machine.group("", "/batch/job")
    group = GroupV1(machine, {"cpu": machine.group("cpu,cpuacct", "/batch/job"), "": unified})
    assert group.has_freezer
    assert group.freeze()
    assert (unified / "cgroup.freeze").read_text() == "1"
    group.restore()
    assert (unified / "cgroup.freeze").read_text() == "0"


# CPU time, processes


def test_cpu_seconds(tmp_path: Path) -> None:
    one, two = FakeMachine(tmp_path / "v1", "v1"), FakeMachine(tmp_path / "v2", "v2")
    first, second = group_of(one), group_of(two)
    (one.cgroup / "cpuacct/batch/job/cpuacct.usage").write_text("2500000000\n")
    (two.cgroup / "batch/job/cpu.stat").write_text("usage_usec 2500000\nuser_usec 7\n")
    assert first.cpu_s() == second.cpu_s() == 2.5


@BOTH
def test_processes_of_groups_below_count_too(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group = group_of(machine)
    tree = "cpu,cpuacct" if kind == "v1" else ""
    machine.group(tree, "/batch/job/inner")
    machine.spawn(100, at={tree: "/batch/job"})
    machine.spawn(101, at={tree: "/batch/job/inner"})
    machine.spawn(102)
    assert group.pids() == [100, 101]


# Back again


@BOTH
def test_restore_brings_every_file_back(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group_of(machine)
    before = machine.snapshot()
    group = group_of(machine)
    group.set_weight(LOWEST_WEIGHT)
    group.set_quota(0.5)
    group.set_cores((1,))
    group.freeze()
    assert machine.snapshot() != before
    group.restore()
    after = machine.snapshot()
    assert {key: text for key, text in after.items() if "effective" not in key} == {
        key: text for key, text in before.items() if "effective" not in key
    }


@pytest.mark.parametrize(("processes", "left"), [((), ""), ((100,), "0-3")])
def test_a_cpuset_of_v2_that_was_empty_gets_all_where_it_cannot_be_empty(
    tmp_path: Path, processes: tuple[int, ...], left: str
) -> None:
    """The kernel refuses to empty it while processes are in the group."""
    machine = FakeMachine(tmp_path, "v2")
    group = group_of(machine)
    for pid in processes:
        machine.spawn(pid, at={"": "/batch/job"})
    for _ in range(2):
        group.set_cores((1,))
        group.restore()
        assert (machine.cgroup / "batch/job/cpuset.cpus").read_text() == left


def test_a_cpuset_of_v2_that_had_cores_gets_these(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v2")
    group_of(machine)
    machine.spawn(100, at={"": "/batch/job"})
    (machine.cgroup / "batch/job/cpuset.cpus").write_text("2-3")
    group = group_of(machine)
    group.set_cores((1,))
    machine.refusals["write", "cpuset.cpus=2-3"] = errno.EBUSY
    with pytest.raises(ControlError, match=r"cpuset\.cpus of the group /batch/job was to be 2-3: EBUSY"):
        group.restore()
    machine.refusals.clear()
    group.restore()
    assert (machine.cgroup / "batch/job/cpuset.cpus").read_text() == "2-3"


def test_restore_does_what_it_can(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v2")
    group = group_of(machine)
    group.set_weight(3.0)
    group.freeze()
    machine.refusals["write", "cpu.weight"] = errno.EROFS
    with pytest.raises(ControlError, match=r"cpu\.weight of the group /batch/job was to be 100: EROFS, .* read-only"):
        group.restore()
    assert not group.frozen()


# Refusals

ASKED = {
    "cpuset.cpus": lambda group: group.set_cores((1,)),
    "cpu.shares": lambda group: group.set_weight(2.0),
    "cpu.weight": lambda group: group.set_weight(2.0),
    "cpu.cfs_quota_us": lambda group: group.set_quota(1.0),
    "cpu.max": lambda group: group.set_quota(1.0),
    "freezer.state": lambda group: group.freeze(),
    "cgroup.freeze": lambda group: group.freeze(),
}
FILES = {"v1": ("cpuset.cpus", "cpu.shares", "cpu.cfs_quota_us", "freezer.state")}
FILES["v2"] = ("cpuset.cpus", "cpu.weight", "cpu.max", "cgroup.freeze")


@pytest.mark.parametrize("code", ["EPERM", "EACCES", "EROFS", "EINVAL", "EBUSY", "ENOENT", "ENODEV", "ESRCH", "ENOSPC"])
@pytest.mark.parametrize(("kind", "file"), [(kind, file) for kind, files in FILES.items() for file in files])
def test_every_refusal_is_one_sentence_with_what_would_help(tmp_path: Path, kind: str, file: str, code: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group = group_of(machine)
    machine.refusals["write", file] = getattr(errno, code)
    with pytest.raises(ControlError) as caught:
        ASKED[file](group)
    said = str(caught.value)
    assert said.startswith(f"{file} of the group ")
    assert "was to be" in said
    assert f": {code}, " in said
    assert "\n" not in said
    assert ";" in said or "vanished" in said
    assert caught.value.gone == (code == "ESRCH")


@BOTH
def test_a_group_that_has_vanished_is_gone(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group = group_of(machine)
    for tree in ("cpu,cpuacct", "cpuset", "freezer") if kind == "v1" else ("",):
        machine.remove_folder(machine.group(tree, "/batch/job"))
    assert not group.there()
    for ask in (lambda: group.set_weight(1.0), lambda: group.set_quota(None), group.thaw, group.frozen, group.pids):
        with pytest.raises(ControlError) as caught:
            ask()
        assert caught.value.gone


@BOTH
def test_a_later_group_of_the_same_name_is_not_written(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    group = group_of(machine)
    for tree in ("cpu,cpuacct", "cpuset", "freezer") if kind == "v1" else ("",):
        folder = machine.group(tree, "/batch/job")
        machine.remove_folder(folder)
        machine.make_folder(folder)
    before = machine.snapshot()
    for ask in (lambda: group.set_quota(1.0), group.freeze, group.thaw):
        with pytest.raises(ControlError) as caught:
            ask()
        assert caught.value.gone
    assert machine.snapshot() == before

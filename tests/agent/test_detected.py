"""What is found out about a machine, and that trying it leaves nothing behind."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fake_machine import FakeMachine

from flowsched_agent.controls.detected import Detected, detect
from flowsched_agent.controls.scheduling import OneWay
from flowsched_agent.system import Policy, System

KINDS = pytest.mark.parametrize("kind", ["none", "v1", "hybrid", "v2"])


def found_on(machine: FakeMachine) -> Detected:
    return detect(machine, machine.subject)


@KINDS
def test_the_kind_of_cgroups(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    before = machine.snapshot()
    detected = found_on(machine)
    assert detected.cgroup == kind
    assert {ability.possible for ability in detected.controllers.values()} == {kind != "none"}
    assert set(detected.controllers) == {"cpu", "cpuset", "freezer", "cpuacct"}
    assert detected.own_groups == (kind != "none")
    assert machine.snapshot() == before
    assert 60 not in machine.classes
    said = detected.sentences()
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in said)
    assert any(
        {"none": "No cgroup", "v2": "version 2.", "v1": "version 1.", "hybrid": "hybrid"}[kind] in one for one in said
    )


@pytest.mark.parametrize("kind", ["v1", "v2"])
@pytest.mark.parametrize("code", ["EROFS", "EPERM", "EACCES"])
def test_a_tree_that_cannot_be_written(tmp_path: Path, kind: str, code: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    machine.refusals["make_folder", ""] = getattr(errno, code)
    detected = found_on(machine)
    assert not detected.own_groups
    assert all(code in ability.why for ability in detected.controllers.values())
    assert any("weighed by nice values and SCHED_IDLE, and have no quota" in one for one in detected.sentences())


def test_a_v1_machine_without_a_cpuset(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    for file in (machine.cgroup / "cpuset").iterdir():
        file.unlink()
    detected = found_on(machine)
    assert not detected.controllers["cpuset"].possible
    assert "not mounted" in detected.controllers["cpuset"].why
    assert detected.controllers["cpu"].possible


def test_a_v2_tree_without_a_controller(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v2", v2_given="")
    (machine.cgroup / "cgroup.controllers").write_text("cpu memory\n")
    detected = found_on(machine)
    assert "switched on" in detected.controllers["cpu"].why
    assert not detected.controllers["cpuset"].possible
    assert "not among the controllers" in detected.controllers["cpuset"].why


def test_a_v2_tree_that_hands_down_no_cpuset(tmp_path: Path) -> None:
    detected = found_on(FakeMachine(tmp_path, "v2", v2_given="cpu"))
    assert detected.controllers["cpu"].possible
    assert not detected.controllers["cpu"].why
    assert not detected.controllers["cpuset"].possible
    assert "threads are pinned instead" in detected.controllers["cpuset"].why


def test_the_unified_tree_freezes_where_v1_does_not(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "hybrid")
    for file in (machine.cgroup / "freezer").iterdir():
        file.unlink()
    freezer = found_on(machine).controllers["freezer"]
    assert freezer.possible
    assert "version 2 tree" in freezer.why


@pytest.mark.parametrize(
    ("policy", "ability", "code", "why"),
    [
        ("DEADLINE", "deadline", "EPERM", "cpuset or affinity leaves out a CPU"),
        ("DEADLINE", "deadline", "EBUSY", "other reservations"),
        ("FIFO", "fifo", "EPERM", "real-time run time"),
        ("IDLE", "idle", "EPERM", "permission is missing"),
        ("OTHER", "idle", "EPERM", "not taken back"),
        ("OTHER", "nice", "EPERM", "permission"),
    ],
)
def test_a_class_that_is_refused(tmp_path: Path, policy: str, ability: str, code: str, why: str) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.refusals["set_attributes", policy] = getattr(errno, code)
    found = getattr(found_on(machine), ability)
    assert not found.possible
    assert code in found.why
    assert why in found.why


def test_a_machine_on_which_weights_cannot_be_taken_back_says_what_is_done_instead(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    assert found_on(machine).one_way == OneWay()
    machine.refusals["set_attributes", "OTHER"] = errno.EPERM
    detected = found_on(machine)
    assert "not taken back" in (detected.one_way.idle or "") and detected.one_way.nice is not None
    assert any("kept off the cores of services instead, or paused" in one for one in detected.sentences())


def test_affinity_that_is_refused(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.refusals["set_affinity", ""] = errno.EPERM
    assert not found_on(machine).affinity.possible


@pytest.mark.parametrize(
    ("release", "runtime", "cpus"),
    [
        ("6.18.44", "950000", 4 * 0.90),
        ("6.12.0-rc1", "950000", 4 * 0.90),
        ("6.11.9", "950000", 4 * 0.95),
        ("5.15.0-91-generic", "950000", 4 * 0.95),
        ("6.1.0", "-1", 4.0),
        ("6.1.0", "500000", 2.0),
    ],
)
def test_what_can_be_reserved(tmp_path: Path, release: str, runtime: str, cpus: float) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.release = release
    (machine.proc / "sys/kernel/sched_rt_runtime_us").write_text(runtime)
    assert found_on(machine).reservable_cpus == pytest.approx(cpus)
    machine.refusals["set_attributes", "DEADLINE"] = errno.EPERM
    assert found_on(machine).reservable_cpus == 0.0


def test_sessions_that_are_weighed_are_said(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    (machine.proc / "sys/kernel/sched_autogroup_enabled").write_text("1\n")
    detected = found_on(machine)
    assert detected.autogroup
    assert any("only within a session" in sentence for sentence in detected.sentences())


# The real one


def cgroup_folders(system: System) -> set[str]:
    return {str(path) for path in system.cgroup.glob("**/") if path.name == f"flowsched.probe.{system.own_pid()}"}


def test_this_machine() -> None:
    system = System()
    before = system.attributes(0), system.affinity(0)
    detected = detect(system)
    assert (system.attributes(0), system.affinity(0)) == before
    assert cgroup_folders(system) == set()
    assert set(detected.cores) <= set(detected.online)
    assert detected.affinity.possible
    assert before[0].policy is not Policy.DEADLINE
    for sentence in detected.sentences():
        print(sentence)

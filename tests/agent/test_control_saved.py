"""Settings brought back by another process: all that was changed, and nothing that is another's."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeMachine

from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched.node.deadline import Deadline
from flowsched_agent.controls.choice import control_of_container, control_of_process
from flowsched_agent.controls.control import Control
from flowsched_agent.controls.detected import detect
from flowsched_agent.controls.saved import restore_saved
from flowsched_agent.system import Attributes

KINDS = pytest.mark.parametrize("kind", ["none", "v1", "hybrid", "v2"])
GROUPS = pytest.mark.parametrize("kind", ["v1", "hybrid", "v2"])


def process_on(machine: FakeMachine) -> Control:
    machine.spawn(100, (101,))
    machine.spawn(110, parent=100, group=100, session=100)
    return control_of_process("job", 100, detect(machine, machine.subject), machine)


def container_on(machine: FakeMachine) -> Control:
    at = dict.fromkeys(machine.trees_made(), "/docker/4f0c")
    for tree in at:
        folder = machine.group(tree, "/docker/4f0c")
        if machine.kind_made == "v2":
            (folder / "cpuset.cpus").write_text("0-3")
    machine.spawn(100, (101,), at=at)
    return control_of_container("web", "4f0c", detect(machine, machine.subject), machine)


def steer(control: Control) -> None:
    control.set_cores((1,))
    control.set_weight(LOWEST_WEIGHT)
    control.set_deadline(Deadline(1000, 10_000))
    control.pause()


def written(control: Control) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(control.saved()))
    return read


def settled(machine: FakeMachine) -> object:
    files = {file: text for file, text in machine.snapshot().items() if "effective" not in file}
    return files, dict(machine.classes), dict(machine.affinities)


@KINDS
def test_a_process_is_as_before(tmp_path: Path, kind: str) -> None:
    machine, plain = FakeMachine(tmp_path / "one", kind), FakeMachine(tmp_path / "two", kind)
    for pid, tids in ((100, (101,)), (110, ())):
        plain.spawn(pid, tids)
    control = process_on(machine)
    saved = written(control)
    steer(control)
    assert settled(machine) != settled(plain)
    assert restore_saved(saved, machine) == ["job has its former settings again (process 100)"]
    assert settled(machine) == settled(plain)
    assert not control.paused()
    assert restore_saved(saved, machine) == ["job has its former settings again (process 100)"]
    assert settled(machine) == settled(plain)


@GROUPS
def test_a_container_is_as_before(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    control = container_on(machine)
    before, saved = settled(machine), written(control)
    steer(control)
    assert restore_saved(saved, machine) == [f"web has its former settings again (group {saved['group']['where']})"]
    assert settled(machine) == before
    assert not control.paused()


@KINDS
def test_a_recycled_number_is_not_touched(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    control = process_on(machine)
    saved = written(control)
    steer(control)
    for pid in (100, 110):
        machine.end(pid)
    machine.spawn(100, (101,), start=99999)
    machine.affinities[100] = machine.affinities[101] = (2,)
    machine.state(100, "T")
    machine.signals.clear()
    assert restore_saved(saved, machine) == ["job has ended (process 100); nothing of it was left to restore"]
    assert machine.affinities[100] == (2,)
    assert machine.signals == []
    assert not list(machine.cgroup.glob("**/flowsched"))


def test_a_recycled_thread_gets_the_settings_of_the_first_and_not_its_own(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    machine.spawn(100, (101,))
    machine.affinities[101] = (3,)
    control = control_of_process("job", 100, detect(machine, machine.subject), machine)
    saved = written(control)
    control.set_cores((1,))
    stat = machine.proc / "100/task/101/stat"
    stat.write_text(stat.read_text().replace(" 1000 0 0", " 7777 0 0"))
    restore_saved(saved, machine)
    assert machine.affinities[101] == (0, 1, 2, 3)


def test_what_outlives_the_first_process_is_restored_too(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    control = process_on(machine)
    saved = written(control)
    steer(control)
    machine.end(100)
    assert restore_saved(saved, machine) == ["job has its former settings again (process 100)"]
    assert machine.affinities[110] == (0, 1, 2, 3)
    assert (110, signal.SIGCONT) in machine.signals
    assert not list(machine.cgroup.glob("**/flowsched"))


@GROUPS
def test_a_later_group_of_the_same_name_is_not_touched(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    control = container_on(machine)
    saved = written(control)
    steer(control)
    machine.end(100)
    for tree in machine.trees_made():
        folder = machine._folder(tree, "/docker/4f0c")
        machine.remove_folder(folder)
        machine.make_folder(folder)
    before = settled(machine)
    (said,) = restore_saved(saved, machine)
    assert "another of the same name has taken its place" in said
    assert settled(machine) == before


@GROUPS
def test_a_group_that_is_gone(tmp_path: Path, kind: str) -> None:
    machine = FakeMachine(tmp_path, kind)
    saved = written(container_on(machine))
    machine.end(100)
    for tree in machine.trees_made():
        machine.remove_folder(machine._folder(tree, "/docker/4f0c"))
    (said,) = restore_saved(saved, machine)
    assert "it is gone" in said


def test_nothing_is_touched_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "v1")
    control = process_on(machine)
    saved = written(control)
    steer(control)
    (machine.proc / "sys/kernel/random/boot_id").write_text("boot-two\n")
    before = settled(machine)
    (said,) = restore_saved(saved, machine)
    assert "started anew" in said
    assert settled(machine) == before


def test_refusals_are_said_and_the_rest_is_done(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, "none")
    control = process_on(machine)
    saved = written(control)
    control.set_cores((1,))
    control.set_weight(0.5)
    control.pause()
    machine.refusals["set_affinity", "101"] = errno.EINVAL
    said = restore_saved(saved, machine)
    assert len(said) == 1
    assert "thread 101): EINVAL, none of these CPUs" in said[0]
    assert machine.affinities[100] == machine.affinities[110] == (0, 1, 2, 3)
    assert machine.classes[100] == Attributes()
    assert not control.paused()


@pytest.mark.parametrize(
    "damage",
    [
        lambda saved: saved.clear(),
        lambda saved: saved.pop("boot"),
        lambda saved: saved.update(threads=7),
        lambda saved: saved.update(kind="vehicle"),
        lambda saved: saved["threads"][0].update(policy=99),
        lambda saved: saved.update(pid="many"),
    ],
)
def test_what_is_damaged_is_said(tmp_path: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    machine = FakeMachine(tmp_path, "none")
    saved = written(process_on(machine))
    damage(saved)
    (said,) = restore_saved(saved, machine)
    assert "was left alone" in said


@pytest.mark.parametrize("path", ["/etc/passwd.d", "{cgroup}/../elsewhere"])
def test_no_folder_outside_of_the_tree_is_written(tmp_path: Path, path: str) -> None:
    machine = FakeMachine(tmp_path, "v2")
    saved = written(container_on(machine))
    (tmp_path / "elsewhere").mkdir()
    saved["group"]["folders"][""]["path"] = path.format(cgroup=machine.cgroup)
    (said,) = restore_saved(saved, machine)
    assert "is not below" in said

"""Controls of cgroup version 2 on a kernel that has nothing else: what they set takes effect, and comes back.

Run inside the emulated machine by ``guest_start.py``, not by pytest itself. How CPU time is divided is measured, with wide
margins, between groups on one core of the guest: that does not depend on how fast it is emulated.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched_agent.configuration import TaskSpec
from flowsched_agent.controls.choice import control_of_container, control_of_process
from flowsched_agent.controls.container import ContainerControl
from flowsched_agent.controls.detected import Detected, detect
from flowsched_agent.controls.own_group import remove_empty_groups
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.saved import restore_saved
from flowsched_agent.kubernetes.pod_groups import control_of_pod
from flowsched_agent.kubernetes.pods import PodWorkload
from flowsched_agent.system import System
from requirements_on_machine import PLAIN_PYTHON, patience

SYSTEM = System()
ROOT = SYSTEM.cgroup
PATIENCE_S = 12.0 * patience()
"""Until a test gives up waiting; nothing is measured by it."""
MEASURED_S = 1.0
"""CPU time that must have been used before shares are compared, many times what the kernel lets one run on."""
SPIN = ("sh", "-c", "while :; do :; done")
STEADY = (*PLAIN_PYTHON, "import time\nwhile True: time.sleep(0.05)")
POD = "11111111-2222-3333-4444-555555555555"
CONTAINER = "4f0c" * 16


@pytest.fixture(scope="module")
def detected() -> Detected:
    return detect(SYSTEM)


def until(so: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    end = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


class Groups:
    """Groups as systemd, a kubelet and a runtime make them, with busy processes."""

    def __init__(self) -> None:
        self._made: list[Path] = []
        self._started: list[subprocess.Popen[bytes]] = []

    def make(self, path: str, controllers: str = "+cpu +cpuset") -> Path:
        """A group; the controllers are handed down to it."""
        folder = ROOT
        for part in Path(path).parts:
            if controllers:
                (folder / "cgroup.subtree_control").write_text(controllers)
            folder = folder / part
            if not folder.exists():
                folder.mkdir()
                self._made.append(folder)
        return folder

    def busy(self, folder: Path) -> int:
        """A process in a group that takes all CPU time it gets."""
        return self._start(SPIN, folder)

    def steady(self, folder: Path) -> int:
        """A process in a group that takes a little CPU time every 50 ms: most of the emulated CPUs is left to the agent."""
        return self._start(STEADY, folder)

    def _start(self, command: Sequence[str], folder: Path) -> int:
        process = subprocess.Popen(command, start_new_session=True)
        self._started.append(process)
        (folder / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def end(self) -> None:
        """Nothing of it is left."""
        for folder in self._made:
            (folder / "cgroup.freeze").write_text("0")
        for process in self._started:
            process.kill()
            process.wait()
        for folder in reversed(self._made):
            until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), f"{folder} to be empty")
            folder.rmdir()


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups()
    yield made
    made.end()
    assert not (ROOT / "flowsched").exists()


@pytest.fixture
def web(groups: Groups) -> Path:
    """A container with a busy process."""
    folder = groups.make(f"system.slice/docker-{CONTAINER}.scope")
    groups.busy(folder)
    return folder


@pytest.fixture
def control(web: Path, detected: Detected) -> ContainerControl:
    return control_of_container("web", f"docker://{CONTAINER}", detected, SYSTEM)


FILES = ("cpu.weight", "cpu.idle", "cpu.max", "cpuset.cpus", "cgroup.freeze")


def settings(folder: Path) -> dict[str, str]:
    """What of a group is steered."""
    return {file: (folder / file).read_text().strip() for file in FILES if (folder / file).exists()}


def same(now: dict[str, str], before: dict[str, str]) -> bool:
    """Whether a group is as before; a cpuset that was empty may have all CPUs, for Linux 6.1 lets none be empty again."""
    return now == before or (now | {"cpuset.cpus": ""} == before and now["cpuset.cpus"] == "0-1")


def used_us(folder: Path) -> int:
    """CPU time by the kernel's count."""
    return int((folder / "cpu.stat").read_text().split()[1])


def throttled(folder: Path) -> int:
    """Periods in which the quota was used up."""
    words = (folder / "cpu.stat").read_text().split()
    return int(words[words.index("nr_throttled") + 1])


def pids_in(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "cgroup.procs").read_text().split()]


def share(one: Path, other: Path) -> float:
    """Of the CPU time that both use together, what the first gets."""
    before = used_us(one), used_us(other)

    def used() -> tuple[int, int]:
        return used_us(one) - before[0], used_us(other) - before[1]

    until(lambda: sum(used()) > MEASURED_S * 1e6, "CPU time to be used")
    mine, others = used()
    return mine / (mine + others)


def until_share(one: Path, other: Path, least: float, most: float) -> None:
    """Wait for it. A kernel before 6.6 makes a group pay for what it ran with a lower weight: a second or two."""
    until(lambda: least <= share(one, other) <= most, f"a share from {least:g} to {most:g} of the CPU")


# Detection


def test_this_is_version_2_with_all_that_is_needed(detected: Detected) -> None:
    assert detected.cgroup == "v2"
    assert detected.hierarchies.v2 == ROOT
    assert {name: ability.possible for name, ability in detected.controllers.items()} == dict.fromkeys(
        ("cpu", "cpuset", "freezer", "cpuacct"), True
    )
    assert detected.own_groups
    assert "cgroups are of version 2." in detected.sentences()
    assert not list(ROOT.glob("flowsched*"))


# Each setting takes effect


def test_weights_divide_a_core(groups: Groups, web: Path, control: ContainerControl) -> None:
    beside = groups.make("system.slice/beside.service")
    groups.busy(beside)
    for folder in (web, beside):
        (folder / "cpuset.cpus").write_text("0")
    until_share(web, beside, 0.4, 0.6)
    control.set_weight(9.0)
    assert (web / "cpu.weight").read_text() == "900\n"
    until_share(web, beside, 0.8, 0.97)
    control.set_weight(LOWEST_WEIGHT)
    assert settings(web)["cpu.idle"] == "1"
    until_share(web, beside, 0.0, 0.1)
    control.set_weight(1.0)
    assert (settings(web)["cpu.idle"], settings(web)["cpu.weight"]) == ("0", "100")
    until_share(web, beside, 0.4, 0.6)


def test_a_group_that_stands_alone_is_not_slowed_by_the_lowest_weight(web: Path, control: ContainerControl) -> None:
    control.set_weight(LOWEST_WEIGHT)
    before = control.cpu_s()
    until(lambda: control.cpu_s() > before + 0.5, "CPU time of a group with the lowest weight")


def test_a_quota_throttles(web: Path, control: ContainerControl) -> None:
    assert throttled(web) == 0
    control.set_quota(0.2)
    assert (web / "cpu.max").read_text() == "20000 100000\n"
    until(lambda: throttled(web) >= 10, "the quota to be used up")
    begun, before = time.monotonic(), control.cpu_s()
    until(lambda: control.cpu_s() > before + 0.5, "CPU time within the quota")
    # What is used up in the last period is taken from the next.
    assert (control.cpu_s() - before) / (time.monotonic() - begun) < 0.4
    control.set_quota(None)
    assert (web / "cpu.max").read_text() == "max 100000\n"
    periods = throttled(web)
    before = control.cpu_s()
    until(lambda: control.cpu_s() > before + 0.5, "CPU time without quota")
    assert throttled(web) <= periods + 1


def test_a_cpuset_moves_what_runs(web: Path, control: ContainerControl) -> None:
    (pid,) = pids_in(web)
    for core in (1, 0, 1):
        control.set_cores((core,))
        assert (web / "cpuset.cpus.effective").read_text() == f"{core}\n"
        assert os.sched_getaffinity(pid) == {core}
        until(lambda core=core: running_on(pid) == core, f"the process to run on CPU {core}")
    assert control.sentences() == []


def running_on(pid: int) -> int:
    """The CPU that a process ran on last."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[36])


def test_a_frozen_group_stands_still_and_can_be_ended(groups: Groups, web: Path, control: ContainerControl) -> None:
    until(lambda: used_us(web) > 0, "CPU time")
    control.pause()
    until(control.paused, "the group to be frozen")

    def stands_still() -> bool:
        # It counts as frozen already while its last microseconds are being added up.
        used = used_us(web)
        time.sleep(0.5)
        return used_us(web) == used

    until(stands_still, "no CPU time to be used")
    # What is put into it stands still as well.
    groups.busy(web)
    until(control.paused, "it to be frozen again")
    until(stands_still, "no CPU time to be used")
    stopped = used_us(web)
    control.resume()
    assert not control.paused()
    until(lambda: used_us(web) > stopped, "more CPU time")
    control.pause()
    until(control.paused, "the group to be frozen again")
    for pid in pids_in(web):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not control.alive(), "frozen processes to end")


# Everything comes back


def change_everything(control: ContainerControl) -> None:
    control.set_cores((1,))
    control.set_weight(LOWEST_WEIGHT)
    control.set_quota(0.5)
    control.pause()
    until(control.paused, "the group to be frozen")


@pytest.mark.parametrize("by", ["the agent", "another process"])
def test_originals_come_back(by: str, web: Path, detected: Detected) -> None:
    (pid,) = pids_in(web)
    (web / "cpu.weight").write_text("250")
    (web / "cpu.max").write_text("150000 50000")
    os.sched_setaffinity(pid, {0})
    before = settings(web)
    control = control_of_container("web", pid, detected, SYSTEM)
    saved = json.loads(json.dumps(control.saved()))
    change_everything(control)
    assert all(value != before[file] for file, value in settings(web).items())
    if by == "the agent":
        control.restore()
    else:
        assert restore_saved(saved, SYSTEM) == [f"web has its former settings again (group {saved['group']['where']})"]
    assert same(settings(web), before)
    assert os.sched_getaffinity(pid) == {0}
    used = used_us(web)
    until(lambda: used_us(web) > used, "it to go on")
    # And nothing is changed by doing it again.
    assert restore_saved(saved, SYSTEM) == [f"web has its former settings again (group {saved['group']['where']})"]
    assert same(settings(web), before)


def test_a_group_that_was_idle_and_frozen_before_is_so_again(web: Path, detected: Detected) -> None:
    (web / "cpu.idle").write_text("1")
    (web / "cgroup.freeze").write_text("1")
    (web / "cpuset.cpus").write_text("0")
    before = settings(web)
    control = control_of_container("web", f"docker://{CONTAINER}", detected, SYSTEM)
    control.set_weight(3.0)
    control.set_cores((0, 1))
    control.resume()
    assert (settings(web)["cpu.idle"], settings(web)["cpu.weight"]) == ("0", "300")
    control.restore()
    assert settings(web) == before


def test_a_group_of_the_same_name_is_another(groups: Groups, web: Path, detected: Detected) -> None:
    control = control_of_container("web", f"docker://{CONTAINER}", detected, SYSTEM)
    saved = control.saved()
    control.set_weight(2.0)
    os.kill(pids_in(web)[0], signal.SIGKILL)
    until(lambda: not control.alive(), "the container to end")
    until(lambda: not (web / "cgroup.procs").read_text(), "its group to be empty")
    web.rmdir()
    web.mkdir()
    (web / "cpu.weight").write_text("700")
    (sentence,) = restore_saved(saved, SYSTEM)
    assert "another of the same name has taken its place" in sentence
    assert (web / "cpu.weight").read_text() == "700\n"
    with pytest.raises(ControlError) as caught:
        control.set_weight(1.0)
    assert caught.value.gone


# Groups without controllers, groups within groups


def test_without_the_cpuset_controller_threads_are_pinned(groups: Groups, detected: Detected) -> None:
    """As systemd has it for a service that asks for no CPUs: ``cpu`` is handed down and ``cpuset`` is not."""
    groups.make("plain.slice")
    folder = groups.make("plain.slice/job.service", controllers="")
    pid = groups.busy(folder)
    control = control_of_container("job", pid, detected, SYSTEM)
    assert sorted(settings(folder)) == ["cgroup.freeze"]
    control.set_cores((1,))
    control.set_weight(0.5)
    assert os.sched_getaffinity(pid) == {1}
    assert os.getpriority(os.PRIO_PROCESS, pid) == 3
    with pytest.raises(ControlError, match="has no cpu controller"):
        control.set_quota(0.5)
    control.pause()
    until(control.paused, "the group to be frozen")
    said = control.sentences()
    assert any("no cpuset group of its own" in sentence for sentence in said)
    assert any("no cpu group of its own" in sentence for sentence in said)
    control.restore()
    assert os.sched_getaffinity(pid) == {0, 1}
    assert os.getpriority(os.PRIO_PROCESS, pid) == 0
    assert settings(folder) == {"cgroup.freeze": "0"}


def test_no_more_cores_than_the_group_above_has(groups: Groups, detected: Detected) -> None:
    above = groups.make("narrow.slice")
    folder = groups.make("narrow.slice/job.service")
    pid = groups.busy(folder)
    (above / "cpuset.cpus").write_text("1")
    control = control_of_container("job", pid, detected, SYSTEM)
    control.set_cores((0, 1))
    assert (folder / "cpuset.cpus").read_text() == "1\n"
    assert "the group above it has no more" in control.sentences()[0]
    with pytest.raises(ControlError, match="the group above it has 1; give the agent cores from these"):
        control.set_cores((0,))
    control.restore()
    # Empty, or as good as that: it follows the group above it again.
    assert (folder / "cpuset.cpus").read_text() in ("\n", "0-1\n")
    assert (folder / "cpuset.cpus.effective").read_text() == "1\n"
    (above / "cpuset.cpus").write_text("0")
    assert (folder / "cpuset.cpus.effective").read_text() == "0\n"


@pytest.mark.parametrize("qos", ["Burstable", "Guaranteed"])
@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
def test_a_pod_is_steered_with_all_its_containers(driver: str, qos: str, groups: Groups, detected: Detected) -> None:
    unit, low = POD.replace("-", "_"), qos.lower()
    if driver == "systemd":
        class_, prefix = ("kubepods.slice", "kubepods")
        if qos != "Guaranteed":
            class_, prefix = f"kubepods.slice/kubepods-{low}.slice", f"kubepods-{low}"
        pod, scope = f"{class_}/{prefix}-pod{unit}.slice", f"cri-containerd-{CONTAINER}.scope"
    else:
        pod, scope = ("kubepods" if qos == "Guaranteed" else f"kubepods/{low}") + f"/pod{POD}", CONTAINER
    inside = groups.make(f"{pod}/{scope}")
    folder = ROOT / pod
    pid = groups.busy(inside)
    # What kubelet gives for a request of one CPU, and a cpuset of the container's own, as the runtime may give it.
    (folder / "cpu.weight").write_text("39")
    (inside / "cpuset.cpus").write_text("0-1")
    before = settings(folder), settings(inside)
    control = control_of_pod(SYSTEM, detected.hierarchies, pod_workload(qos))
    saved = json.loads(json.dumps(control.saved()))
    assert control.alive()
    control.set_cores((1,))
    assert (inside / "cpuset.cpus.effective").read_text() == "1\n"
    assert os.sched_getaffinity(pid) == {1}
    # In kubelet's scale 1024 shares are 39 and not 100.
    control.set_weight(0.5)
    assert (folder / "cpu.weight").read_text() == "20\n"
    control.set_weight(LOWEST_WEIGHT)
    assert settings(folder)["cpu.idle"] == "1"
    control.pause()
    until(control.paused, "the pod to be frozen")
    assert "frozen 1" in (inside / "cgroup.events").read_text()
    assert restore_saved(saved, SYSTEM)[0].startswith("shop/mc-0 has its former settings again")
    assert same(settings(folder), before[0])
    assert settings(inside) == before[1]
    assert os.sched_getaffinity(pid) == {0, 1}


def pod_workload(qos: str) -> PodWorkload:
    """A pod without containers in its status: found by its uid."""
    return PodWorkload(TaskSpec(name="shop/mc-0"), POD, namespace="shop", pod="mc-0", uid=POD, qos=qos)


# Plain processes, in groups of their own


def test_a_service_of_systemd_goes_into_its_own_group_and_back(groups: Groups, detected: Detected) -> None:
    home = groups.make("system.slice/batch.service")
    pid = groups.busy(home)
    control = control_of_process("batch", pid, detected, SYSTEM)
    own = ROOT / "flowsched" / f"batch.{pid}"
    try:
        assert control.sentences() == []
        assert pids_in(own) == [pid]
        # As much as one thread of the root on each core has.
        assert (own.parent / "cpu.weight").read_text() == "200\n"
        control.set_weight(0.5)
        control.set_quota(0.25)
        assert (own / "cpu.weight").read_text() == "50\n"
        until(lambda: throttled(own) >= 3, "the quota to be used up")
        child = Path(f"/proc/{pid}/cgroup").read_text()
        assert child == f"0::/flowsched/batch.{pid}\n"
    finally:
        control.restore()
    assert pids_in(home) == [pid]
    assert not own.parent.exists()


def test_own_groups_are_weighed_against_each_other(groups: Groups, detected: Detected) -> None:
    home = groups.make("system.slice/batch.service")
    pids = [groups.busy(home), groups.busy(home)]
    with contextlib.ExitStack() as stack:
        controls = []
        for pid in pids:
            controls.append(control_of_process("batch", pid, detected, SYSTEM))
            stack.callback(controls[-1].restore)
            controls[-1].set_cores((0,))
        one, other = (ROOT / "flowsched" / f"batch.{pid}" for pid in pids)
        controls[0].set_weight(4.0)
        until_share(one, other, 0.7, 0.9)
        controls[0].set_weight(LOWEST_WEIGHT)
        until_share(one, other, 0.0, 0.1)
    assert sorted(pids_in(home)) == sorted(pids)


def test_where_its_group_is_gone_or_takes_no_processes_it_goes_to_the_root(groups: Groups, detected: Detected) -> None:
    home = groups.make("system.slice/batch.service")
    pid = groups.busy(home)
    control = control_of_process("batch", pid, detected, SYSTEM)
    saved = json.loads(json.dumps(control.saved()))
    groups.make("system.slice/batch.service/inside", controllers="+memory")
    assert restore_saved(saved, SYSTEM) == [f"batch has its former settings again (process {pid})"]
    assert Path(f"/proc/{pid}/cgroup").read_text() == "0::/\n"
    assert not (ROOT / "flowsched").exists()


def test_groups_whose_processes_have_ended_are_removed(groups: Groups, detected: Detected) -> None:
    pid = groups.busy(groups.make("system.slice/batch.service"))
    control_of_process("batch", pid, detected, SYSTEM)
    own = ROOT / "flowsched" / f"batch.{pid}"
    assert remove_empty_groups(SYSTEM, detected.hierarchies) == []
    os.kill(pid, signal.SIGKILL)
    until(lambda: not (own / "cgroup.procs").read_text(), "the process to end")
    said = remove_empty_groups(SYSTEM, detected.hierarchies, within_s=PATIENCE_S)
    assert said == [f"the empty group {own} was removed: its process has ended"]
    assert not own.parent.exists()

"""Controls on this very machine: threads, signals, groups, reservations. What is refused here is skipped with its reason."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.isolation_bench.first import set_first
from flowsched.node.allocation import LOWEST_WEIGHT
from flowsched.node.deadline import Deadline
from flowsched_agent.controls.choice import control_of_container, control_of_process
from flowsched_agent.controls.detected import Ability, Detected, detect
from flowsched_agent.controls.process import ProcessControl
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.controls.saved import restore_saved
from flowsched_agent.controls.scheduling import reserve, set_affinity
from flowsched_agent.sensors.process import read_process, threads, tree
from flowsched_agent.system import RESET_ON_FORK, Attributes, Policy, System
from requirements_on_machine import PLAIN_PYTHON, cgroups, patience

PATIENCE_S = 30.0 * patience()
"""Until a test gives up waiting for the kernel to do what it was told. Nothing is measured by it."""
JOB = """
import subprocess, sys, threading
def spin():
    while True:
        sum(range(1000))
threading.Thread(target=spin, daemon=True).start()
child = subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
sys.stdin.read()
child.kill()
"""
SYSTEM = System()


def until(so: Callable[[], bool]) -> bool:
    """Wait until it is so."""
    end = time.monotonic() + PATIENCE_S
    while not so():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


STARTED: list[int] = []
"""Processes that these tests have started: groups that are named after them are ours."""


def our_groups() -> set[str]:
    """Groups that these tests have made, in whichever tree."""
    names = [f"flowsched-test-{os.getpid()}", f"flowsched.probe.{os.getpid()}", *(f"job.{pid}" for pid in STARTED)]
    return {str(path) for path in cgroups("*") if path.name in names}


@pytest.fixture(scope="module")
def detected() -> Detected:
    return detect(SYSTEM)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    assert until(lambda: not our_groups()), our_groups()


@pytest.fixture
def job() -> Iterator[int]:
    """Two threads, one of which works, and a child that sleeps."""
    process = subprocess.Popen(
        [*PLAIN_PYTHON, JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    STARTED.append(process.pid)
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    os.killpg(process.pid, signal.SIGCONT)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.close()


@pytest.fixture
def control(job: int, detected: Detected) -> Iterator[ProcessControl]:
    made = control_of_process("job", job, detected, SYSTEM)
    yield made
    made.restore()


def needs(ability: Ability, what: str) -> None:
    if not ability.possible:
        pytest.skip(f"{what} is refused here: {ability.why}")


def needs_cores(detected: Detected, count: int = 2) -> None:
    if len(detected.cores) < count:
        pytest.skip(f"this needs {count} CPUs; {len(detected.cores)} may be used here")


def tids(pid: int) -> list[int]:
    return [tid for process in tree(SYSTEM, pid) for tid in threads(SYSTEM, process.pid)]


# Threads and signals


def test_every_thread_is_pinned_and_comes_back(job: int, control: ProcessControl, detected: Detected) -> None:
    needs(detected.affinity, "affinity")
    needs_cores(detected)
    assert len(tids(job)) >= 3
    for core in detected.cores:
        control.set_cores((core,))
        assert {os.sched_getaffinity(tid) == {core} for tid in tids(job)} == {True}
    control.restore()
    assert {tuple(sorted(os.sched_getaffinity(tid))) for tid in tids(job)} == {detected.cores}


def test_cores_that_are_not_there(control: ProcessControl, detected: Detected) -> None:
    with pytest.raises(ControlError, match="EINVAL, none of these CPUs is in its cpuset and online"):
        control.set_cores((max(detected.online) + 1,))
    control.set_cores((detected.cores[0], max(detected.online) + 1))
    assert "its cpuset has no more" in control.sentences()[0]


def test_cpu_time_stands_still_while_paused(control: ProcessControl) -> None:
    before = control.cpu_s()
    assert until(lambda: control.cpu_s() > before)
    control.pause()
    assert until(control.paused)

    def stands_still() -> bool:
        # It counts as stopped already while its last microseconds are being added up.
        used = control.cpu_s()
        time.sleep(0.2)
        return control.cpu_s() == used

    assert until(stands_still)
    stopped = control.cpu_s()
    control.resume()
    assert until(lambda: not control.paused())
    assert until(lambda: control.cpu_s() > stopped)


def test_a_job_that_ends_is_no_longer_alive(job: int, control: ProcessControl) -> None:
    assert control.alive()
    os.killpg(job, signal.SIGKILL)
    assert until(lambda: not control.alive())
    with pytest.raises(ControlError) as caught:
        control.set_cores((0,))
    assert caught.value.gone


# Groups of their own


def test_weight_and_quota_of_an_own_group(job: int, control: ProcessControl, detected: Detected) -> None:
    needs(detected.controllers["cpu"], "the cpu controller")
    folder = SYSTEM.cgroup / ("flowsched" if detected.cgroup == "v2" else "cpu/flowsched") / f"job.{job}"
    weight, quota = ("cpu.weight", "cpu.max") if detected.cgroup == "v2" else ("cpu.shares", "cpu.cfs_quota_us")
    pids = {process.pid for process in tree(SYSTEM, job)}
    assert {int(line) for line in (folder / "cgroup.procs").read_text().split()} == pids
    control.set_weight(0.5)
    assert (folder / weight).read_text().strip() in ("512", "50")
    control.set_quota(0.5)
    assert (folder / quota).read_text().split()[0] == "50000"
    control.set_quota(None)
    control.set_weight(LOWEST_WEIGHT)
    if (folder / "cpu.idle").exists():
        assert (folder / "cpu.idle").read_text().strip() == "1"
    control.set_weight(2.0)
    assert (folder / weight).read_text().strip() in ("2048", "200")
    groups = Path(f"/proc/{job}/cgroup").read_text()
    assert "flowsched" in groups
    control.restore()
    assert "flowsched" not in Path(f"/proc/{job}/cgroup").read_text()
    assert not folder.exists()


def test_a_real_time_process_stays_where_it_is_on_v1(job: int, detected: Detected) -> None:
    needs(detected.fifo, "SCHED_FIFO")
    needs(detected.controllers["cpu"], "the cpu controller")
    # Its first thread, which only waits: the one that works would take a whole CPU from all others.
    set_first(SYSTEM, job, "job")
    made = control_of_process("job", job, detected, SYSTEM)
    try:
        said = made.sentences()
        if not said:
            pytest.skip("this kernel gives new groups real-time run time: the process was moved")
        assert "EINVAL, the process has real-time scheduling" in said[0]
        made.set_weight(0.5)
        assert SYSTEM.attributes(job).policy is Policy.FIFO
    finally:
        made.restore()


def test_nice_values_where_there_is_no_group(job: int, detected: Detected) -> None:
    needs(detected.idle, "SCHED_IDLE and back")
    needs(detected.nice, "nice values and back")
    made = ProcessControl(SYSTEM, "job", job, None, detected.autogroup)
    saved = json.loads(json.dumps(made.saved()))
    made.set_weight(0.5)
    assert {SYSTEM.attributes(tid).nice for tid in tids(job)} == {3}
    made.set_weight(LOWEST_WEIGHT)
    assert {SYSTEM.attributes(tid).policy for tid in tids(job)} == {Policy.IDLE}
    autogroup = Path(f"/proc/{job}/autogroup")
    if detected.autogroup and autogroup.exists():
        assert autogroup.read_text().endswith("nice 19\n")
    assert restore_saved(saved, SYSTEM) == [f"job has its former settings again (process {job})"]
    assert {SYSTEM.attributes(tid) for tid in tids(job)} == {Attributes()}
    if detected.autogroup and autogroup.exists():
        assert autogroup.read_text().endswith("nice 0\n")


# Containers: groups as a runtime would make them


@pytest.fixture
def container(job: int, detected: Detected) -> Iterator[str]:
    """Groups of v1 with the job in them."""
    if detected.cgroup not in ("v1", "hybrid"):
        pytest.skip(f"cgroups here are {detected.cgroup}; this is about version 1")
    for name, ability in detected.controllers.items():
        needs(ability, f"the {name} controller")
    name = f"flowsched-test-{os.getpid()}"
    folders = [detected.hierarchies.v1[tree] / name for tree in ("cpu", "cpuacct", "cpuset", "freezer")]
    made = []
    try:
        for folder in folders:
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
        cpuset = detected.hierarchies.v1["cpuset"]
        for file in ("cpuset.cpus", "cpuset.mems"):
            (cpuset / name / file).write_text((cpuset / file).read_text())
        for process in tree(SYSTEM, job):
            for folder in made:
                (folder / "cgroup.procs").write_text(str(process.pid))
        yield name
    finally:
        for folder in made:
            if (folder / "freezer.state").exists():
                (folder / "freezer.state").write_text("THAWED")
            for pid in (folder / "cgroup.procs").read_text().split():
                (folder.parent / "cgroup.procs").write_text(pid)
            folder.rmdir()


def test_a_group_of_v1(job: int, container: str, detected: Detected) -> None:
    needs_cores(detected)
    made = control_of_container("web", container, detected, SYSTEM)
    saved = json.loads(json.dumps(made.saved()))
    trees = detected.hierarchies.v1
    made.set_cores((detected.cores[1],))
    assert {tuple(os.sched_getaffinity(tid)) for tid in tids(job)} == {(detected.cores[1],)}
    made.set_weight(0.5)
    assert (trees["cpu"] / container / "cpu.shares").read_text().strip() == "512"
    made.set_weight(LOWEST_WEIGHT)
    made.set_quota(0.5)
    made.pause()
    assert until(made.paused)
    stopped = made.cpu_s()
    time.sleep(0.2)
    assert made.cpu_s() == stopped
    assert restore_saved(saved, SYSTEM) == [f"web has its former settings again (group {saved['group']['where']})"]
    assert not made.paused()
    assert until(lambda: made.cpu_s() > stopped)
    assert (trees["cpu"] / container / "cpu.shares").read_text().strip() == "1024"
    assert (trees["cpu"] / container / "cpu.cfs_quota_us").read_text().strip() == "-1"
    assert {tuple(sorted(os.sched_getaffinity(tid))) for tid in tids(job)} == {detected.cores}


def test_a_reservation_in_a_narrow_cpuset_is_refused(job: int, container: str, detected: Detected) -> None:
    needs(detected.deadline, "SCHED_DEADLINE")
    needs_cores(detected)
    made = control_of_container("web", container, detected, SYSTEM)
    made.set_cores((detected.cores[0],))
    with pytest.raises(ControlError, match=r"EPERM, .*cpuset or affinity leaves out a CPU"):
        made.set_deadline(Deadline(1000, 100_000))
    made.restore()


def test_the_unified_tree_freezes(job: int, detected: Detected) -> None:
    if detected.cgroup != "hybrid" or detected.hierarchies.v2 is None:
        pytest.skip(f"cgroups here are {detected.cgroup}; this is about a version 2 tree beside version 1")
    root = detected.hierarchies.v2
    folder = root / f"flowsched-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"a group in the unified tree is refused here: {error.strerror}")
    try:
        for process in tree(SYSTEM, job):
            (folder / "cgroup.procs").write_text(str(process.pid))
        made = control_of_container("web", job, detected, SYSTEM)
        made.pause()
        assert until(made.paused)
        # The state letter of a task that is frozen by version 2 does not say so.
        state = read_process(SYSTEM, job)
        assert state is not None
        assert not state.stopped
        made.restore()
        assert not made.paused()
    finally:
        (folder / "cgroup.freeze").write_text("0")
        for pid in (folder / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)
        folder.rmdir()


# Reservations


FORKS = """
import os, sys, time
for line in sys.stdin:
    child = os.fork()
    if not child:
        time.sleep(600)
    print(child, flush=True)
"""


@pytest.fixture
def forker() -> Iterator[subprocess.Popen[str]]:
    """A process of one thread that waits, and starts a child for each line."""
    process = subprocess.Popen(
        [*PLAIN_PYTHON, FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture
def sleeper(forker: subprocess.Popen[str]) -> int:
    return forker.pid


def test_real_time_scheduling_is_not_inherited(forker: subprocess.Popen[str], detected: Detected) -> None:
    needs(detected.deadline, "SCHED_DEADLINE")
    needs(detected.fifo, "SCHED_FIFO")
    assert forker.stdin is not None
    assert forker.stdout is not None
    for give in (
        lambda: reserve(SYSTEM, forker.pid, "task", Deadline(10_000, 100_000)),
        lambda: set_first(SYSTEM, forker.pid, "task"),
    ):
        give()
        forker.stdin.write("\n")
        forker.stdin.flush()
        child = int(forker.stdout.readline())
        assert SYSTEM.attributes(child) == Attributes()


def test_a_reservation_and_its_end(sleeper: int, detected: Detected) -> None:
    needs(detected.deadline, "SCHED_DEADLINE")
    made = ProcessControl(SYSTEM, "task", sleeper, None, False)
    made.set_cores(detected.cores[:1])
    made.set_deadline(Deadline(4400, 10_000))
    wanted = Attributes(Policy.DEADLINE, 0, 0, 4_400_000, 10_000_000, 10_000_000, RESET_ON_FORK)
    assert SYSTEM.attributes(sleeper) == wanted
    made.set_deadline(None)
    assert SYSTEM.attributes(sleeper) == Attributes()
    assert SYSTEM.affinity(sleeper) == detected.cores[:1]
    made.set_deadline(Deadline(2000, 10_000))
    made.restore()
    assert SYSTEM.attributes(sleeper) == Attributes()
    assert SYSTEM.affinity(sleeper) == detected.cores


def test_pinning_and_reservations_exclude_one_another(sleeper: int, detected: Detected) -> None:
    needs(detected.deadline, "SCHED_DEADLINE")
    needs_cores(detected)
    set_affinity(SYSTEM, sleeper, "task", detected.cores[:1])
    with pytest.raises(ControlError, match=r"EPERM, .*pinning"):
        reserve(SYSTEM, sleeper, "task", Deadline(1000, 100_000))
    set_affinity(SYSTEM, sleeper, "task", detected.cores)
    reserve(SYSTEM, sleeper, "task", Deadline(1000, 100_000))
    with pytest.raises(ControlError, match="EBUSY, it has a SCHED_DEADLINE reservation"):
        set_affinity(SYSTEM, sleeper, "task", detected.cores[:1])


@pytest.mark.parametrize(
    ("runtime_ns", "period_ns"), [(1000, 10**7), (10_000, 20_000), (10**6, 5 * 10**9), (2 * 10**7, 10**7)]
)
def test_the_kernels_own_limits(sleeper: int, detected: Detected, runtime_ns: int, period_ns: int) -> None:
    needs(detected.deadline, "SCHED_DEADLINE")
    with pytest.raises(OSError, match="nvalid") as caught:
        SYSTEM.set_attributes(sleeper, Attributes(Policy.DEADLINE, 0, 0, runtime_ns, period_ns, period_ns))
    assert caught.value.errno == errno.EINVAL


def test_more_than_the_kernel_admits(sleeper: int, detected: Detected) -> None:
    needs(detected.deadline, "SCHED_DEADLINE")
    if math.isinf(detected.room.quota):
        pytest.skip("this machine admits without limit (sched_rt_runtime_us is -1)")
    others = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in detected.online]
    try:
        with pytest.raises(ControlError, match="EBUSY, the sum of all reservations"):
            for pid in (sleeper, *(other.pid for other in others)):
                reserve(SYSTEM, pid, "task", Deadline(94_000, 100_000))
    finally:
        for other in others:
            other.kill()
            other.wait()


# Another process brings it back


def test_what_a_killed_agent_leaves_is_brought_back(job: int, detected: Detected) -> None:
    needs(detected.affinity, "affinity")
    agent = """
import json, sys, time
from flowsched_agent.controls.choice import control_of_process
from flowsched_agent.controls.detected import detect
control = control_of_process("job", int(sys.argv[1]), detect())
print(json.dumps(control.saved()), flush=True)
control.set_cores((min(detect().cores),))
control.set_weight(2 / 1024)
control.pause()
print("done", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", agent, str(job)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    saved = json.loads(process.stdout.readline())
    assert process.stdout.readline() == "done\n"
    process.kill()
    process.wait()
    process.stdout.close()
    # On a busy machine what has the lowest weight gets no CPU for a while, and stops only when it does.
    assert until(lambda: all(one.stopped for one in tree(SYSTEM, job)))
    assert restore_saved(saved) == [f"job has its former settings again (process {job})"]
    assert until(lambda: not any(one.stopped for one in tree(SYSTEM, job)))
    assert {tuple(sorted(os.sched_getaffinity(tid))) for tid in tids(job)} == {detected.cores}
    assert {SYSTEM.attributes(tid) for tid in tids(job)} == {Attributes()}
    assert "flowsched" not in Path(f"/proc/{job}/cgroup").read_text()


def test_a_signal_never_reaches_another_process(detected: Detected) -> None:
    """The descriptor of a process that has ended is of no use on a later one, whatever its number."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    held = SYSTEM.hold(process.pid)
    process.wait()
    if held is None:
        pytest.skip("this kernel has no descriptors of processes (pidfd_open)")
    try:
        with pytest.raises(ProcessLookupError):
            SYSTEM.signal_held(held, signal.SIGSTOP)
    finally:
        SYSTEM.let_go(held)


def test_an_agent_without_rights_finds_out() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can start something as another user")
    # Imported before the rights are given up: the other user may not read the folder of this interpreter, perhaps.
    script = """
import contextlib, os, signal, time
from flowsched_agent.controls.detected import detect
@contextlib.contextmanager
def subject():
    pid = os.fork() or time.sleep(600)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(*detect(subject=subject).sentences(), sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    for what in ("SCHED_FIFO", "SCHED_DEADLINE", "SCHED_IDLE"):
        (sentence,) = [line for line in done.stdout.splitlines() if line.startswith(what)]
        assert "cannot be used: " in sentence
        assert "EPERM" in sentence
    assert "SCHED_IDLE cannot be used: it can be set and not taken back" in done.stdout
    assert "The affinity of threads can be set." in done.stdout

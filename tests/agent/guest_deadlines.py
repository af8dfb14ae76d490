"""SCHED_DEADLINE on a machine of its own, without other reservations: the kernel admits exactly what our arithmetic says.

Run inside the emulated machine by ``guest_start.py``. Its kernel of Debian 12 (6.1) has no server for ordinary tasks, that
of Debian 13 (6.12) has one.
"""

from __future__ import annotations

import errno
import subprocess
import time
from collections.abc import Iterator

import pytest

from flowsched.node.deadline import Deadline
from flowsched_agent.controls.choice import control_of_container
from flowsched_agent.controls.detected import Detected, detect
from flowsched_agent.controls.process import ProcessControl
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.system import RESET_ON_FORK, Attributes, Policy, System
from flowsched_models.isolation.admission import FAIR_SERVER_SINCE, Bandwidth, admit, kernel_version
from requirements_on_machine import patience

SYSTEM = System()
PERIOD_NS = 100_000_000
PATIENCE_S = 12.0 * patience()
UNIT_NS = PERIOD_NS // 2**20 + 1
"""The least runtime that makes a difference to the kernel's sum."""
GROUP = SYSTEM.cgroup / "system.slice" / "narrow.service"


@pytest.fixture(scope="module")
def detected() -> Detected:
    return detect(SYSTEM)


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    """Processes of one thread that never run, so that no reservation is ever used."""
    started = [subprocess.Popen(["sleep", "3600"]) for _ in range(4)]
    yield [process.pid for process in started]
    for process in started:
        process.kill()
        process.wait()


def reserved(pid: int, runtime_ns: int) -> bool:
    """Whether the kernel takes it; it stays with what it had if not."""
    try:
        SYSTEM.set_attributes(pid, Attributes(Policy.DEADLINE, 0, 0, runtime_ns, PERIOD_NS, PERIOD_NS, RESET_ON_FORK))
    except OSError as error:
        assert error.errno == errno.EBUSY
        return False
    return True


def until_reserved(pid: int, runtime_ns: int) -> None:
    """Wait until the kernel takes it."""
    end = time.monotonic() + PATIENCE_S
    while not reserved(pid, runtime_ns):
        assert time.monotonic() < end, "waited in vain for a reservation"
        time.sleep(0.02)


def test_the_room_is_that_of_this_kernel(detected: Detected) -> None:
    assert detected.deadline.possible
    version = kernel_version(detected.kernel)
    assert version is not None
    share = 0.95 if version < FAIR_SERVER_SINCE else 0.9
    assert detected.reservable_cpus == pytest.approx(2 * share)
    assert any(f"{2 * share:.3g} CPUs can be reserved" in sentence for sentence in detected.sentences())


@pytest.mark.parametrize(
    "others", [(94_000_000, 2_000_000), (47_500_000, 47_500_000, 10_000_001), (84_000_000, 33_333_333)]
)
def test_the_kernel_admits_what_we_say_and_not_more(
    others: tuple[int, ...], sleepers: list[int], detected: Detected
) -> None:
    # What others had, who have ended, is given away again only after a period: all of it must be there.
    half = int(detected.room.cpus / 2 * PERIOD_NS) - UNIT_NS
    for pid in sleepers[:2]:
        until_reserved(pid, half)
    for pid in sleepers[:2]:
        assert reserved(pid, 2_000_000)
    for pid, runtime_ns in zip(sleepers, others, strict=False):
        assert reserved(pid, runtime_ns)
    most, too_much = 2_000_000, PERIOD_NS
    last = sleepers[len(others)]
    assert reserved(last, most)
    assert not reserved(last, too_much)
    # Between what was admitted and what was not; parameters of a reservation may be changed while it holds.
    while too_much - most > 1:
        middle = (most + too_much) // 2
        if reserved(last, middle):
            most = middle
        else:
            too_much = middle
    assert admitted((*others, most - UNIT_NS), detected)
    assert admitted((*others, most), detected)
    assert not admitted((*others, too_much), detected)


def test_what_was_reserved_is_given_away_again(sleepers: list[int], detected: Detected) -> None:
    """Linux 6.1 forgets that for a thread that sleeps, unless its reservation is made small before it is ended."""
    control = ProcessControl(SYSTEM, "task", sleepers[0], None, False)
    for _ in range(10):
        control.set_deadline(Deadline(50_000, 100_000))
        control.set_deadline(None)
    detect(SYSTEM)
    for pid in sleepers[1:3]:
        until_reserved(pid, int((detected.room.cpus / 2 - 0.0001) * PERIOD_NS))


def admitted(runtimes_ns: tuple[int, ...], detected: Detected) -> bool:
    """What we would say."""
    tasks = [Bandwidth(runtime_ns / 1000, PERIOD_NS / 1000) for runtime_ns in runtimes_ns]
    return admit(tasks, detected.room).admitted


def test_a_narrow_cpuset_admits_none(sleepers: list[int], detected: Detected) -> None:
    GROUP.mkdir()
    try:
        (GROUP / "cgroup.procs").write_text(str(sleepers[0]))
        control = control_of_container("task", sleepers[0], detected, SYSTEM)
        control.set_cores((1,))
        with pytest.raises(ControlError, match=r"EPERM, .*cpuset or affinity leaves out a CPU"):
            control.set_deadline(Deadline(1000, 100_000))
        control.set_cores((0, 1))
        control.set_deadline(Deadline(1000, 100_000))
        assert SYSTEM.attributes(sleepers[0]).policy is Policy.DEADLINE
        control.restore()
        assert SYSTEM.attributes(sleepers[0]) == Attributes()
        assert (GROUP / "cpuset.cpus").read_text() in ("\n", "0-1\n")
    finally:
        (SYSTEM.cgroup / "cgroup.procs").write_text(str(sleepers[0]))
        GROUP.rmdir()

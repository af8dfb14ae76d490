"""Every question to the kernel in one place: files of /proc and cgroups, system calls, signals, clocks.

Roots are given, so that a host's trees mounted elsewhere, or made-up ones, are read just the same. Methods raise
:class:`OSError` as the kernel says it; what that means is for the caller to say.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

RESET_ON_FORK = 0x01
"""Children start with the default class: without it real-time scheduling is inherited."""
_NUMBERS = {
    "x86_64": (314, 315),
    "aarch64": (274, 275),
    "riscv64": (274, 275),
    "ppc64le": (355, 356),
    "s390x": (345, 346),
}
"""sched_setattr and sched_getattr by machine; glibc wraps neither."""


class Policy(IntEnum):
    """Scheduling classes by their numbers in ``sched(7)``."""

    OTHER = 0
    FIFO = 1
    RR = 2
    BATCH = 3
    IDLE = 5
    DEADLINE = 6
    EXT = 7

    @property
    def real_time(self) -> bool:
        """Whether it goes before everything that has a weight."""
        return self in (Policy.FIFO, Policy.RR, Policy.DEADLINE)


@dataclass(frozen=True)
class Attributes:
    """How one thread is scheduled: ``struct sched_attr``. Times in nanoseconds."""

    policy: Policy = Policy.OTHER
    nice: int = 0
    priority: int = 0
    runtime_ns: int = 0
    deadline_ns: int = 0
    period_ns: int = 0
    flags: int = 0


class _SchedAttr(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


_PART = 1 << 16
"""Bytes that are read at a time."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class System:
    """The machine."""

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        """``proc`` must be of the process namespace that the agent is in: its numbers go into system calls."""
        self.proc = proc
        self.cgroup = cgroup

    # Files

    def read(self, path: Path) -> str:
        """The text of a file."""
        # Without the layers of a text file: all processes of a machine are read at a time.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(descriptor, _PART):
                parts.append(part)
        finally:
            os.close(descriptor)
        return b"".join(parts).decode("utf-8", "replace")

    def write(self, path: Path, text: str) -> None:
        """Write to a file that is there, in one system call: a kernel file takes each call as one order."""
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def names(self, path: Path) -> list[str]:
        """What is in a folder, in order."""
        return sorted(os.listdir(path))  # noqa: PTH208  (no Path is made for each of a thousand processes)

    def folders(self, path: Path) -> list[str]:
        """Folders in a folder, in order."""
        with os.scandir(path) as found:
            return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))

    def exists(self, path: Path) -> bool:
        """Whether there is such a file or folder."""
        return path.exists()

    def writable(self, path: Path) -> bool:
        """Whether it could be written, as far as permissions and mounts tell."""
        return os.access(path, os.W_OK)

    def inode(self, path: Path) -> int:
        """The number of a folder. In a cgroup tree it tells a folder from a later one of the same name."""
        return path.stat().st_ino

    def make_folder(self, path: Path) -> None:
        """Make a folder; a cgroup."""
        path.mkdir()

    def remove_folder(self, path: Path) -> None:
        """Remove a folder; a cgroup without processes."""
        path.rmdir()

    def link(self, path: Path) -> str:
        """Where a link points."""
        return os.readlink(path)  # noqa: PTH115  (sockets are no paths)

    # Threads

    def affinity(self, tid: int) -> tuple[int, ...]:
        """Virtual CPUs on which a thread may run."""
        return tuple(sorted(os.sched_getaffinity(tid)))

    def set_affinity(self, tid: int, cores: tuple[int, ...]) -> None:
        """Set them. Those outside its cpuset are dropped by the kernel; EINVAL if none is left."""
        os.sched_setaffinity(tid, cores)

    def attributes(self, tid: int) -> Attributes:
        """How a thread is scheduled."""
        found = _SchedAttr()
        self._call(1, tid, ctypes.byref(found), ctypes.sizeof(found), 0)
        try:
            policy = Policy(found.policy)
        except ValueError:
            raise OSError(errno.ENOSYS, f"scheduling policy {found.policy} is not known here") from None
        flags = found.flags & RESET_ON_FORK
        # The runtime of other classes reads as the slice that the kernel gives; written back it would be a fixed one.
        if policy is not Policy.DEADLINE:
            return Attributes(policy, found.nice, found.priority, flags=flags)
        return Attributes(
            policy, found.nice, found.priority, found.runtime_ns, found.deadline_ns, found.period_ns, flags
        )

    def set_attributes(self, tid: int, wanted: Attributes) -> None:
        """Set how it is scheduled."""
        given = _SchedAttr(size=ctypes.sizeof(_SchedAttr), **vars(wanted))
        self._call(0, tid, ctypes.byref(given), 0)

    def _call(self, which: int, *arguments: object) -> None:
        numbers = _NUMBERS.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, f"the scheduling calls of a {platform.machine()} machine are not known here")
        if _LIBC.syscall(numbers[which], *arguments) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    # Processes

    def own_pid(self) -> int:
        """Of the agent itself."""
        return os.getpid()

    def signal(self, pid: int, number: int) -> None:
        """Send a signal."""
        os.kill(pid, number)

    def hold(self, pid: int) -> int | None:
        """A descriptor that means this process and no later one of the same number; None: this kernel has none."""
        try:
            return os.pidfd_open(pid)
        except OSError as error:
            # Sandboxes answer EPERM to calls that they do not know.
            if error.errno in (errno.ENOSYS, errno.EPERM):
                return None
            raise

    def signal_held(self, held: int, number: int) -> None:
        """Send a signal to the process of :meth:`hold`."""
        signal.pidfd_send_signal(held, signal.Signals(number))

    def let_go(self, held: int) -> None:
        """Close a descriptor of :meth:`hold`."""
        os.close(held)

    def cpu_ns(self, pid: int) -> int:
        """CPU nanoseconds of all threads of a process, those that have ended too: its CPU clock. EINVAL: gone."""
        if self.proc != Path("/proc"):
            raise OSError(errno.ENOSYS, "the CPU clock of a process belongs to this machine's own /proc")
        # A process's clock is named by its number as glibc's clock_getcpuclockid does: CPUCLOCK_SCHED is 2.
        return time.clock_gettime_ns((~pid << 3) | 2)

    # Time

    def now_s(self) -> float:
        """Seconds on a clock that only moves forward."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def kernel(self) -> str:
        """The kernel's release."""
        return platform.release()

    def boot(self) -> str:
        """Different after every start of the machine: process and cgroup numbers begin anew with it."""
        return self.read(self.proc / "sys/kernel/random/boot_id").strip()

"""CPU time used: by processes in nanoseconds, by virtual CPUs in the kernel's clock ticks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from flowsched_agent.sensors.process import GONE, Process, read_process, threads
from flowsched_agent.system import System

_NS = 1e-9
_IDLE_FIELDS = (3, 4)
"""idle and iowait of a line of /proc/stat."""
_COUNTED = 8
"""user to steal; guest times are in user's already."""


def process_cpu_s(system: System, pid: int) -> float | None:
    """CPU seconds of a process over all its threads; None if it is gone. Raises :class:`OSError`.

    By its CPU clock, which counts threads that have ended; where that cannot be had, the sum of its threads'
    ``schedstat``, which does not. Both are in nanoseconds: ``stat`` would count in ticks of 10 ms.
    """
    try:
        return system.cpu_ns(pid) * _NS
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ESRCH):
            return None
    found = None
    for tid in threads(system, pid):
        try:
            text = system.read(system.proc / str(pid) / "task" / str(tid) / "schedstat")
        except OSError as error:
            if error.errno in GONE:
                continue
            raise
        found = (found or 0) + int(text.split()[0])
    return None if found is None else found * _NS


class UsedCpu:
    """CPU seconds of processes that come and go: what one had used when it was last seen stays counted."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._seen: dict[tuple[int, int], float] = {}

    def read(self, members: Iterable[Process]) -> float:
        """The sum so far; never less than before."""
        for process in members:
            used = process_cpu_s(self._system, process.pid)
            now = read_process(self._system, process.pid)
            # A process number that was reused meanwhile does not count.
            if used is not None and now is not None and now.start == process.start:
                key = (process.pid, process.start)
                self._seen[key] = max(used, self._seen.get(key, 0.0))
        return sum(self._seen.values())


class CoreTimes:
    """Busy seconds of each virtual CPU since the machine started."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._seen: list[float] = []

    def read(self) -> tuple[float, ...]:
        """By index; 0 for one that is offline and never was online. Never less than before. Raises :class:`OSError`."""
        for line in self._system.read(self._system.proc / "stat").splitlines():
            name, *fields = line.split()
            if not (name.startswith("cpu") and name[3:].isdigit()):
                continue
            core = int(name[3:])
            ticks = [int(field) for field in fields[:_COUNTED]]
            busy = sum(ticks) - sum(ticks[index] for index in _IDLE_FIELDS if index < len(ticks))
            self._seen += [0.0] * (core + 1 - len(self._seen))
            self._seen[core] = max(self._seen[core], busy / self._ticks_per_s)
        return tuple(self._seen)

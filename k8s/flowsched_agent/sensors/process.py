"""Processes and their threads as /proc shows them: who is who, whose child, and who listens on a port."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

from flowsched_agent.system import System

GONE = (errno.ENOENT, errno.ESRCH)
"""How a process that has ended answers."""
_LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp."""


@dataclass(frozen=True)
class Process:
    """One process, or one thread, at one moment."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start: int
    """When it started, in clock ticks since the machine did: with the number it tells it from any later one."""

    @property
    def ended(self) -> bool:
        """Whether only its entry is left."""
        return self.state in "ZXx"

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self.state in "Tt"


def read_process(system: System, pid: int, tid: int | None = None) -> Process | None:
    """A process, or a thread of it; None if it is gone. Raises :class:`OSError`."""
    path = system.proc / str(pid) / "stat" if tid is None else system.proc / str(pid) / "task" / str(tid) / "stat"
    try:
        text = system.read(path)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    # A name may hold anything, brackets and blanks too.
    before, _, after = text.rpartition(")")
    number, _, name = before.partition(" (")
    fields = after.split()
    if len(fields) < 20:
        return None
    return Process(int(number), name, fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def start_time(system: System, pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None if it has ended."""
    found = read_process(system, pid)
    return None if found is None or found.ended else found.start


def living(system: System, pids: Iterable[int]) -> list[Process]:
    """Those of these processes that have not ended. Raises :class:`OSError`."""
    found = (read_process(system, pid) for pid in pids)
    return [process for process in found if process is not None and not process.ended]


def processes(system: System) -> list[Process]:
    """All that have not ended."""
    return living(system, (int(name) for name in system.names(system.proc) if name.isdigit()))


def threads(system: System, pid: int) -> list[int]:
    """Numbers of a process's threads; none if it is gone. Raises :class:`OSError`."""
    try:
        return sorted(int(name) for name in system.names(system.proc / str(pid) / "task"))
    except OSError as error:
        if error.errno in GONE:
            return []
        raise


def tree(system: System, pid: int) -> list[Process]:
    """A process with all that belongs to it, itself first: descendants, and those of the group and session it leads.

    The latter are found even when the one that had started them is gone.
    """
    return tree_among(processes(system), pid)


def tree_among(there: Iterable[Process], pid: int) -> list[Process]:
    """The same of processes that were read already: a look at all of a machine takes milliseconds."""
    there = list(there)
    top = next((process for process in there if process.pid == pid), None)
    children: dict[int, list[Process]] = {}
    for process in there:
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    # Members of the group and session that it led outlive it, and keep its number taken for that long.
    ahead = [process for process in there if pid in (process.group, process.session) and process.pid != pid]
    if top is not None:
        ahead.insert(0, top)
    while ahead:
        process = ahead.pop(0)
        if process.pid not in found:
            found[process.pid] = process
            ahead += children.get(process.pid, [])
    return list(found.values())


def pid_of_port(system: System, port: int) -> int | None:
    """The process that listens on a TCP port of this machine's own network; the oldest where several share the socket.

    None if none does, or if its open files may not be read.
    """
    sockets = {f"socket:[{inode}]" for table in ("net/tcp", "net/tcp6") for inode in _listening(system, table, port)}
    if not sockets:
        return None
    owners = [process for process in processes(system) if _opens(system, process.pid, sockets)]
    return min(owners, key=lambda process: (process.start, process.pid)).pid if owners else None


def _listening(system: System, table: str, port: int) -> Iterable[str]:
    """Inodes of the sockets that listen on a port."""
    try:
        lines = system.read(system.proc / table).splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _opens(system: System, pid: int, sockets: set[str]) -> bool:
    """Whether a process has one of these sockets open."""
    folder = system.proc / str(pid) / "fd"
    try:
        for name in system.names(folder):
            if system.link(folder / name) in sockets:
                return True
    except OSError:
        return False
    return False

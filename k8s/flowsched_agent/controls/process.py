"""A plain process with all that it starts: affinity and class of every thread, signals to pause, a group for its weight."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from flowsched_agent.controls.control import Control, Saved, try_all
from flowsched_agent.controls.own_group import OwnGroup
from flowsched_agent.controls.refusals import ControlError, refusal
from flowsched_agent.controls.scheduling import OneWay
from flowsched_agent.controls.threads import Threads
from flowsched_agent.controls.weights import is_lowest, nice_of
from flowsched_agent.sensors.process import Process, living, read_process, start_time, tree
from flowsched_agent.system import System

LOOK_S = 1.0
"""How often all processes of the machine are searched for new ones of a tree that has no group."""
_AUTOGROUP_NICE = re.compile(r"nice (-?\d+)")


class ProcessControl(Control):
    """Steers one tree of processes by the number of its first."""

    def __init__(
        self,
        system: System,
        name: str,
        pid: int,
        own: OwnGroup | None,
        autogroup: bool,
        one_way: OneWay | None = None,
    ) -> None:
        """Notes all settings. Raises :class:`ControlError`.

        ``own``: its group, where it has one; ``autogroup``: whether the kernel gives each session a weight; ``one_way``:
        what of its threads could not be taken back.
        """
        super().__init__(system, name, Threads(system, name, self.members, one_way))
        self.pid: int = pid
        start = start_time(system, pid)
        if start is None:
            raise ControlError(f"{name} was to be steered", f"process {pid} is gone", gone=True)
        self.start = start
        self._own = own
        self._known: list[Process] = []
        self._looked_s = float("-inf")
        self.said = self._threads.said
        """What :meth:`sentences` will say."""
        self._threads.remember()
        self._used_before_s = self._used.read(self._known)
        self._autogroup = self._autogroup_nice() if autogroup and own is None else None

    def members(self) -> list[Process]:
        """All processes of the tree now, itself first; none once it is gone. Raises :class:`ControlError`."""
        first = self._first()
        if first is not None and first.start != self.start:
            return []
        if self._own is not None and self._own.group.there():
            found = living(self._system, self._own.group.pids())
            found.sort(key=lambda process: (process.pid != self.pid, process.start, process.pid))
        else:
            try:
                found = tree(self._system, self.pid)
            except OSError as error:
                raise refusal(f"the processes of {self.name} were asked for", error) from None
        self._known = found
        self._looked_s = self._system.now_s()
        return found

    def _first(self) -> Process | None:
        try:
            return read_process(self._system, self.pid)
        except OSError as error:
            raise refusal(f"process {self.pid} of {self.name} was asked for", error) from None

    def set_cores(self, cores: tuple[int, ...]) -> None:
        """Affinity of every thread."""
        super().set_cores(cores)
        self._threads.set_cores(cores)

    def set_weight(self, weight: float) -> None:
        """Of its group, or else nice values and SCHED_IDLE where these can be taken back."""
        super().set_weight(weight)
        if self._own is not None:
            self._own.group.set_weight(weight)
            return
        self._threads.set_weight(weight)
        if self._autogroup is not None:
            self._write_autogroup(19 if is_lowest(weight) else nice_of(weight))

    def set_quota(self, cpus: float | None) -> None:
        """Of its group; without one there is no quota."""
        super().set_quota(cpus)
        if self._own is not None:
            self._own.group.set_quota(cpus)
        elif cpus is not None:
            raise ControlError(
                f"{self.name} was to have {cpus:g} CPUs at most",
                "it has no cgroup of its own, and plain processes have no quota; make the cpu controller writable",
            )

    def pause(self) -> None:
        """SIGSTOP to all of its processes."""
        self._threads.stop()

    def resume(self) -> None:
        """SIGCONT to all of its processes."""
        self._threads.go_on()

    def paused(self) -> bool:
        """Whether all of them stand still."""
        first = self._first()
        if first is not None and not first.ended and not first.stopped:
            return False
        return self._threads.stopped()

    def _used_s(self) -> float:
        """By its group, or else the sum over its processes."""
        used = self._own.used_s if self._own is not None and self._own.group.there() else None
        if used is not None:
            return used + self._used_before_s
        if self._system.now_s() - self._looked_s >= LOOK_S:
            self.members()
        return self._used.read(self._known)

    def alive(self) -> bool:
        """Whether a process of it is there."""
        try:
            first = self._first()
            if first is not None and not first.ended:
                return first.start == self.start
            return bool(self.members())
        except ControlError:
            return False

    def saved(self) -> Saved:
        """Plain JSON."""
        return {
            "kind": "process",
            "name": self.name,
            "boot": self._system.boot(),
            "pid": self.pid,
            "start": self.start,
            "stopped": self._threads.was_stopped,
            "threads": self._threads.saved(),
            "group": None if self._own is None else self._own.saved(),
            "autogroup": self._autogroup,
        }

    def before_first(self, announce: Callable[[], None]) -> None:
        """All that it can change is saved, and all of that is put back: no other program sets any of it."""

    def restore(self) -> None:
        """Bring back classes, affinities and groups, and let it go on."""
        try_all((self._threads.restore, self._restore_autogroup, self._leave))

    def _restore_autogroup(self) -> None:
        if self._autogroup is not None and self.alive():
            self._write_autogroup(self._autogroup)

    def _leave(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.leave()

    def _autogroup_nice(self) -> int | None:
        """The weight of its session, where it leads that: no other session is touched."""
        first = self._first()
        if first is None or first.session != self.pid:
            self.said.append(
                f"{self.name} is weighed by nice values, which count only within its session: the kernel weighs sessions "
                "equally (sched_autogroup_enabled); start it in a session of its own, or make the cpu controller writable"
            )
            return None
        with contextlib.suppress(OSError):
            match = _AUTOGROUP_NICE.search(self._system.read(self._system.proc / str(self.pid) / "autogroup"))
            return int(match[1]) if match else None
        return None

    def _write_autogroup(self, nice: int) -> None:
        write_autogroup(self._system, self.name, self.pid, nice)


def write_autogroup(system: System, name: str, pid: int, nice: int) -> None:
    """Weigh the session of a process among the sessions. Raises :class:`ControlError`."""
    try:
        system.write(system.proc / str(pid) / "autogroup", str(nice))
    except OSError as error:
        raise refusal(f"the session of {name} was to have nice {nice} (process {pid})", error) from None

"""How the agent finds, reads and steers what runs on a machine."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from flowsched_agent.claims import Claims, Target, target_of
from flowsched_agent.configuration import Find, ServiceSpec
from flowsched_agent.controls.choice import control_of_container, control_of_process
from flowsched_agent.controls.container import control_at
from flowsched_agent.controls.control import Control, Saved
from flowsched_agent.controls.detected import Detected, detect
from flowsched_agent.controls.refusals import ControlError
from flowsched_agent.original_groups import origin_of
from flowsched_agent.sensors.cpu import CoreTimes
from flowsched_agent.sensors.memcached import MemcachedStats
from flowsched_agent.sensors.process import pid_of_port, processes, start_time, tree_among
from flowsched_agent.system import System

Announce = Callable[[Saved], None]


class LinuxActuator:
    """Everything that the loop does to the machine that the agent runs on."""

    def __init__(self, system: System | None = None, claims: Claims | None = None) -> None:
        """``claims``: None where nothing is changed."""
        self.system = system or System()
        self._claims = claims
        self.detected: Detected = detect(self.system)
        self._cores = CoreTimes(self.system)
        self._once: dict[str, int | None] = {}
        """Start time of the process that a stated pid meant first."""
        self._held: dict[str, tuple[int, int]] = {}
        """Number and start time of the process that each target was found as."""

    def find(self, name: str, find: Find, announce: Announce) -> Control | None:
        """What is to be steered; None if it is not there. Raises ``ControlError``.

        ``announce`` is given what undoes the taking itself, before anything is taken.
        """
        if find.container is not None:
            return self.claimed(name, control_of_container(name, find.container, self.detected, self.system))
        if find.cgroup is not None:
            return self.claimed(name, self._of_cgroup(name, find.cgroup))
        pid = self._pid(name, find)
        return None if pid is None else self.of_process(name, pid, announce)

    def of_process(self, name: str, pid: int, announce: Announce) -> Control:
        """A process that is known. Raises ``ControlError``."""
        self._refuse_shared(name, pid)
        if self._claims is not None and (started := start_time(self.system, pid)) is not None:
            # Before it is moved into a group of its own: that is a change already.
            self._claims.take(name, Target(pid, started))
        if self.detected.own_groups:
            announce(origin_of(self.system, self.detected.hierarchies, name, pid))
        return control_of_process(name, pid, self.detected, self.system)

    def claimed(self, name: str, control: Control) -> Control:
        """What is steered from now on, and no other agent may. Raises ``ControlError`` where another agent does."""
        if self._claims is not None and (target := target_of(control.saved())) is not None:
            self._claims.take(name, target)
        return control

    def let_go(self, name: str) -> None:
        """It is steered no longer, and put back. Never raises."""
        if self._claims is not None:
            self._claims.drop(name)

    def stats(self, spec: ServiceSpec, timeout_s: float) -> MemcachedStats:
        """What asks a service."""
        if spec.socket is not None:
            return MemcachedStats(socket_path=str(spec.socket), timeout_s=timeout_s)
        return MemcachedStats(spec.host, spec.port, timeout_s)

    def core_busy_s(self) -> tuple[float, ...]:
        """Busy seconds of each core so far; empty where they are not counted."""
        try:
            return self._cores.read()
        except (OSError, ValueError):
            return ()

    def _of_cgroup(self, name: str, path: str) -> Control:
        hierarchies = self.detected.hierarchies
        paths = {tree: f"/{path}" for tree, root in hierarchies.trees().items() if self.system.exists(root / path)}
        if not paths:
            raise ControlError(f"{name} was to be steered", f"there is no cgroup {path}", gone=True)
        return control_at(self.system, hierarchies, name, paths, self.detected.one_way)

    def _refuse_shared(self, name: str, pid: int) -> None:
        """Raise :class:`ControlError` for processes that another target steers: their settings could not be put back."""
        there = processes(self.system)
        mine = {(p.pid, p.start) for p in tree_among(there, pid)}
        starts = {p.pid: p.start for p in there}
        for other, (theirs, started) in self._held.items():
            if other == name or starts.get(theirs) != started:
                continue
            if shared := mine & {(p.pid, p.start) for p in tree_among(there, theirs)}:
                why = f"process {min(shared)[0]} belongs to {other} already; change what '{name}' is found by"
                raise ControlError(f"{name} was found as process {pid}", why)
        if pid in starts:
            self._held[name] = (pid, starts[pid])

    def _pid(self, name: str, find: Find) -> int | None:
        if find.pid is not None:
            # A number that is used again later means another process.
            started = start_time(self.system, find.pid)
            meant = self._once.setdefault(f"{name} {find.pid}", started)
            return find.pid if started is not None and started == meant else None
        if find.pid_file is not None:
            pid = _pid_in(find.pid_file)
            return pid if pid is not None and start_time(self.system, pid) is not None else None
        if find.port is not None:
            return pid_of_port(self.system, find.port)
        assert find.command_line is not None
        return self._pid_of_command_line(re.compile(find.command_line))

    def _pid_of_command_line(self, pattern: re.Pattern[str]) -> int | None:
        """The first started of the processes that match; its children come with it.

        Never the agent itself, nor who started it: everything would come with the first process of the machine.
        """
        there = processes(self.system)
        parents = {process.pid: process.parent for process in there}
        never, at = {1}, self.system.own_pid()
        while at and at not in never:
            never.add(at)
            at = parents.get(at, 0)
        matching = []
        for process in there:
            if process.pid in never:
                continue
            try:
                text = self.system.read(self.system.proc / str(process.pid) / "cmdline")
            except OSError:
                continue
            if pattern.search(" ".join(text.rstrip("\0").split("\0"))):
                matching.append((process.start, process.pid))
        return min(matching)[1] if matching else None


def _pid_in(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").split()
        return int(text[0]) if text and int(text[0]) > 0 else None
    except (OSError, ValueError):
        return None


class ReadOnly(System):
    """A machine that nothing is written to: for dry runs."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "a dry run changes nothing")

    write = make_folder = remove_folder = set_affinity = set_attributes = signal = signal_held = _refuse

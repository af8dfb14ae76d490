"""What of a machine can be steered: its cgroups, scheduling classes and CPUs, found out by trying; nothing stays behind."""

from __future__ import annotations

import contextlib
import errno
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flowsched_agent.controls.hierarchies import Hierarchies, Kind, find_hierarchies
from flowsched_agent.controls.own_group import PROBE
from flowsched_agent.controls.scheduling import OneWay, online, shrink_reservation
from flowsched_agent.system import RESET_ON_FORK, Attributes, Policy, System
from flowsched_models.isolation.admission import RT_PERIOD_US, RT_RUNTIME_US, UNLIMITED, Room, room_of
from flowsched_models.quantity import format_cores

_TINY = Attributes(Policy.DEADLINE, 0, 0, 100_000, 100_000_000, 100_000_000, RESET_ON_FORK)
"""A reservation of 0.1 % to try with."""
Subject = Callable[[], AbstractContextManager[int]]
"""Starts a process that sleeps, to try things on; ends it afterwards."""


@dataclass(frozen=True)
class Ability:
    """One thing that can be done or not."""

    possible: bool
    why: str = ""
    """Why not, or with what limit."""


@dataclass(frozen=True)
class Detected:
    """What there is."""

    hierarchies: Hierarchies
    controllers: dict[str, Ability]
    """cpu, cpuset, freezer, cpuacct: whether groups of this controller can be made and written."""
    affinity: Ability
    nice: Ability
    """Whether a thread can be made less urgent and more urgent again."""
    idle: Ability
    """The same by SCHED_IDLE."""
    fifo: Ability
    deadline: Ability
    kernel: str
    room: Room
    """What the kernel gives away to SCHED_DEADLINE where that is possible at all."""
    cores: tuple[int, ...]
    """Virtual CPUs on which the agent itself may run, and with it what it starts."""
    online: tuple[int, ...]
    autogroup: bool
    """Whether the kernel weighs sessions equally where no cpu group does: nice values then count within a session."""

    @property
    def cgroup(self) -> Kind:
        """The version."""
        return self.hierarchies.kind

    @property
    def own_groups(self) -> bool:
        """Whether plain processes get groups of their own for weight and quota."""
        return self.controllers["cpu"].possible

    @property
    def reservable_cpus(self) -> float:
        """CPUs that all reservations together may have, over all cores; 0 where there are none."""
        return min(self.reservable.cpus, float(len(self.online)))

    @property
    def reservable(self) -> Room:
        """The room for reservations of this agent: none where it may make none."""
        return self.room if self.deadline.possible else Room(len(self.online), quota=0.0)

    @property
    def one_way(self) -> OneWay:
        """What must not be set on threads, for it could not be taken back."""
        nice, idle = (None if ability.possible else ability.why for ability in (self.nice, self.idle))
        return OneWay(nice, idle)

    def sentences(self) -> list[str]:
        """All of it, one thing each."""
        return [
            f"Linux {self.kernel}; CPUs {format_cores(self.online)} are online, "
            f"the agent may use {format_cores(self.cores)}.",
            _KINDS[self.cgroup],
            *(_said(f"The {name} controller", "can be written", ability) for name, ability in self.controllers.items()),
            _said("The affinity of threads", "can be set", self.affinity),
            _said("Nice values", "can be set and taken back", self.nice),
            _said("SCHED_IDLE", "can be set and taken back", self.idle),
            _said("SCHED_FIFO", "can be set", self.fifo),
            _said("SCHED_DEADLINE", "can be set", self.deadline),
            self._of_reservations(),
            self._of_weights(),
        ]

    def _of_reservations(self) -> str:
        room = self.room
        limit = "without limit" if math.isinf(room.quota) else f"up to {100 * room.quota:g} % of each CPU"
        server = f", {100 * room.fair_server:g} % of which ordinary tasks keep" if room.fair_server else ""
        return (
            f"Real-time classes run {limit}{server}; {self.reservable_cpus:.3g} CPUs can be reserved, by tasks that are "
            "pinned nowhere."
        )

    def _of_weights(self) -> str:
        if self.own_groups:
            limits = " The limits of the groups that they leave do not hold meanwhile." if self.cgroup == "v2" else ""
            return (
                "Plain processes are moved into groups of their own, so that their weights count against each other."
                + limits
            )
        if not self.idle.possible:
            return (
                "Plain processes cannot be given the lowest weight, and have no quota: batch is kept off the cores of "
                "services instead, or paused."
            )
        session = (
            " They count only within a session: the kernel weighs sessions equally (sched_autogroup_enabled)."
            if self.autogroup
            else ""
        )
        return "Plain processes are weighed by nice values and SCHED_IDLE, and have no quota." + session


_KINDS: dict[Kind, str] = {
    "v2": "cgroups are of version 2.",
    "v1": "cgroups are of version 1.",
    "hybrid": "cgroups are of version 1, with a version 2 tree beside them (hybrid): groups are steered by version 1.",
    "none": "No cgroup tree is mounted: containers cannot be steered, and plain processes have neither quota nor groups.",
}


def _said(what: str, can: str, ability: Ability) -> str:
    if ability.possible:
        return f"{what} {can}{': ' + ability.why if ability.why else ''}."
    return f"{what} cannot be used: {ability.why}."


def detect(system: System | None = None, subject: Subject | None = None) -> Detected:
    """Try everything. Raises :class:`OSError` if not even /proc can be read.

    ``subject``: what to try scheduling on; by default a process that sleeps and is ended.
    """
    system = system or System()
    hierarchies = find_hierarchies(system)
    everywhere = online(system)
    kernel = system.kernel()
    with (subject or _sleeper)() as pid:
        return Detected(
            hierarchies,
            _controllers(system, hierarchies),
            _affinity(system, pid),
            _there_and_back(system, pid, Attributes(nice=1)),
            _there_and_back(system, pid, Attributes(Policy.IDLE)),
            _class(system, pid, Attributes(Policy.FIFO, 0, 1, flags=RESET_ON_FORK)),
            _class(system, pid, _TINY),
            kernel,
            _room(system, len(everywhere), kernel),
            system.affinity(0),
            everywhere,
            _is_on(system, "sys/kernel/sched_autogroup_enabled"),
        )


@contextmanager
def _sleeper() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    try:
        yield process.pid
    finally:
        # It ends with the agent, too: its input does.
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _controllers(system: System, hierarchies: Hierarchies) -> dict[str, Ability]:
    if hierarchies.kind == "v2":
        assert hierarchies.v2 is not None
        return _v2_controllers(system, hierarchies.v2)
    found = {}
    for name in ("cpu", "cpuset", "freezer", "cpuacct"):
        root = hierarchies.v1.get(name)
        if root is not None:
            found[name] = _can_make(system, root)
        elif name == "freezer" and hierarchies.v2 is not None:
            frozen = _can_make(system, hierarchies.v2)
            found[name] = Ability(frozen.possible, frozen.why or "by the version 2 tree, for it is in no other")
        else:
            found[name] = Ability(False, f"it is not mounted below {system.cgroup}; mount the host's cgroup tree there")
    return found


def _v2_controllers(system: System, root: Path) -> dict[str, Ability]:
    made = _can_make(system, root)
    try:
        there = system.read(root / "cgroup.controllers").split()
        given = system.read(root / "cgroup.subtree_control").split()
    except OSError as error:
        return dict.fromkeys(("cpu", "cpuset", "freezer", "cpuacct"), Ability(False, _code(error)))
    found = {}
    for name in ("cpu", "cpuset"):
        if name not in there:
            found[name] = Ability(False, f"it is not among the controllers of {root}; the host must hand it down")
        elif not made.possible or name in given:
            found[name] = made
        elif name == "cpuset":
            found[name] = Ability(False, f"it is off below {root}; threads are pinned instead")
        elif not system.writable(root / "cgroup.subtree_control"):
            found[name] = Ability(False, f"it is off below {root}, and cgroup.subtree_control cannot be written")
        else:
            found[name] = Ability(True, f"it is off below {root} and will be switched on there, for good")
    # Both belong to every group.
    return {**found, "freezer": made, "cpuacct": made}


def _can_make(system: System, root: Path) -> Ability:
    """Whether a group can be made below; it is removed again."""
    probe = root / f"{PROBE}.{system.own_pid()}"
    try:
        with contextlib.suppress(FileExistsError):
            system.make_folder(probe)
        system.remove_folder(probe)
    except OSError as error:
        return Ability(False, f"a group below {root} was refused, {_code(error)}")
    return Ability(True)


def _affinity(system: System, pid: int) -> Ability:
    try:
        before = system.affinity(pid)
        system.set_affinity(pid, before[:1])
        after = system.affinity(pid)
        system.set_affinity(pid, before)
    except OSError as error:
        return Ability(False, _code(error))
    return Ability(after == before[:1], "" if after == before[:1] else f"{format_cores(after)} was got for {before[0]}")


def _there_and_back(system: System, pid: int, wanted: Attributes) -> Ability:
    try:
        before = system.attributes(pid)
        system.set_attributes(pid, wanted)
    except OSError as error:
        return Ability(False, _code(error))
    try:
        system.set_attributes(pid, before)
    except OSError as error:
        return Ability(False, f"it can be set and not taken back, {_code(error)}")
    return Ability(True)


def _class(system: System, pid: int, wanted: Attributes) -> Ability:
    try:
        system.set_attributes(pid, wanted)
    except OSError as error:
        return Ability(False, _MEANINGS.get((wanted.policy, error.errno or 0)) or _code(error))
    with contextlib.suppress(OSError):
        shrink_reservation(system, pid)
        system.set_attributes(pid, Attributes())
    return Ability(True)


_MEANINGS = {
    (
        Policy.DEADLINE,
        errno.EPERM,
    ): "EPERM, permission is missing (CAP_SYS_NICE), or the agent's cpuset or affinity leaves "
    "out a CPU; run it on all CPUs",
    (Policy.DEADLINE, errno.EBUSY): "EBUSY, other reservations take all that the kernel admits",
    (
        Policy.FIFO,
        errno.EPERM,
    ): "EPERM, permission is missing (CAP_SYS_NICE), or the agent's v1 cpu group has no real-time "
    "run time (cpu.rt_runtime_us)",
}
_CODES = {
    errno.EPERM: "permission is missing; run the agent as root of the host or with CAP_SYS_NICE",
    errno.EACCES: "permission is missing; run the agent as root of the host",
    errno.EROFS: "it is mounted read-only; mount the host's cgroup tree for writing",
    errno.ENOSYS: "this machine has no such call",
}


def _code(error: OSError) -> str:
    code = errno.errorcode.get(error.errno or 0, str(error.errno))
    return f"{code}, {_CODES.get(error.errno or 0, error.strerror or str(error))}"


def _room(system: System, cores: int, kernel: str) -> Room:
    folder = system.proc / "sys/kernel"
    try:
        runtime_us, period_us = (int(system.read(folder / f"sched_rt_{what}_us")) for what in ("runtime", "period"))
        return room_of(cores, kernel, max(runtime_us, UNLIMITED), period_us)
    except (OSError, ValueError):
        return room_of(cores, kernel, RT_RUNTIME_US, RT_PERIOD_US)


def _is_on(system: System, file: str) -> bool:
    try:
        return system.read(system.proc / file).strip() == "1"
    except OSError:
        return False

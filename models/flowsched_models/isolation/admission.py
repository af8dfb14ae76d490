"""Whether the kernel admits tasks with ``SCHED_DEADLINE``: the sum of their bandwidths against what it gives away.

Source: the kernel's ``Documentation/scheduler/sched-deadline.rst``: the sum of runtime / period of all tasks must not exceed
cores x ``sched_rt_runtime_us`` / ``sched_rt_period_us``. From Linux 6.12 a deadline server keeps 50 ms of every second of
each core for ordinary tasks and is counted in that sum (commit d741f297bcea, "sched/fair: Fair server interface"): on 6.18
the largest admitted sum on two cores was found to be 1.798, which is 2 x (0.95 - 0.05).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

RT_RUNTIME_US = 950_000
RT_PERIOD_US = 1_000_000
"""What Linux sets at boot: 95 % of the time for real-time classes."""
UNLIMITED = -1
"""``sched_rt_runtime_us`` of a machine on which every sum is admitted."""

FAIR_SERVER_SINCE = (6, 12)
FAIR_SERVER_SHARE = 0.05
"""Its share of each core unless it was changed below ``/sys/kernel/debug/sched/fair_server``."""

LEAST_RUNTIME_US = 1.024
"""The kernel refuses less: 1024 ns."""
LEAST_PERIOD_US = 100.0
MOST_PERIOD_US = float(1 << 22)
"""4.19 s; both limits are ``sched_deadline_period_{min,max}_us``, as Linux sets them at boot."""
_UNIT = 2.0**-20
"""The kernel counts bandwidth in these units, rounded down."""


@dataclass(frozen=True)
class Bandwidth:
    """``runtime`` in every ``period``, to be had by its end: the deadline; both in microseconds."""

    runtime_us: float
    period_us: float

    @property
    def cpus(self) -> float:
        """CPUs: runtime / period."""
        return self.runtime_us / self.period_us


@dataclass(frozen=True)
class Room:
    """What the kernel of one machine gives away to tasks with deadlines."""

    cores: int
    quota: float = RT_RUNTIME_US / RT_PERIOD_US
    """Share of each core for real-time classes; infinite where nothing is limited."""
    fair_server: float = 0.0
    """Share of each core that ordinary tasks keep out of the quota."""

    @property
    def cpus(self) -> float:
        """The largest sum of bandwidths that is admitted."""
        return max(0.0, self.cores * (self.quota - self.fair_server))


@dataclass(frozen=True)
class Admission:
    """The answer for a set of tasks."""

    admitted: bool
    asked_cpus: float
    room_cpus: float
    reason: str
    """One sentence."""


def kernel_version(release: str) -> tuple[int, int] | None:
    """Major and minor number of what ``uname -r`` says; None where it says something else."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return None if found is None else (int(found[1]), int(found[2]))


def room_of(
    cores: int,
    release: str,
    rt_runtime_us: int = RT_RUNTIME_US,
    rt_period_us: int = RT_PERIOD_US,
    fair_server: float | None = None,
) -> Room:
    """What a machine gives away.

    Args:
        cores: those of the machine, or of the exclusive partition the tasks run in.
        release: of its kernel, as ``uname -r`` says it; an unknown one counts as new, which errs to the safe side.
        rt_runtime_us: ``/proc/sys/kernel/sched_rt_runtime_us``; ``UNLIMITED``: no limit.
        rt_period_us: ``/proc/sys/kernel/sched_rt_period_us``.
        fair_server: share of the deadline server of ordinary tasks where it is known; None: by the kernel's version.

    Raises ValueError on numbers that no kernel has.
    """
    if cores < 1 or rt_period_us <= 0 or rt_runtime_us < UNLIMITED or rt_runtime_us > rt_period_us:
        raise ValueError(f"no machine has {cores} cores with {rt_runtime_us} of {rt_period_us} us for real-time tasks")
    if rt_runtime_us == UNLIMITED:
        return Room(cores, math.inf)
    version = kernel_version(release)
    if fair_server is None:
        fair_server = FAIR_SERVER_SHARE if version is None or version >= FAIR_SERVER_SINCE else 0.0
    return Room(cores, rt_runtime_us / rt_period_us, fair_server)


def objection(bandwidth: Bandwidth) -> str | None:
    """Why the kernel refuses these parameters on any machine (EINVAL), in one sentence; None if it does not."""
    runtime, period = bandwidth.runtime_us, bandwidth.period_us
    if not all(math.isfinite(x) and x > 0.0 for x in (runtime, period)):
        return "runtime, deadline and period must be more than 0"
    if period < LEAST_PERIOD_US or period > MOST_PERIOD_US:
        return f"the period of {_time(period)} is not between {_time(LEAST_PERIOD_US)} and {_time(MOST_PERIOD_US)}"
    if runtime < LEAST_RUNTIME_US:
        return f"the runtime of {_time(runtime)} is less than {LEAST_RUNTIME_US:g} us"
    if runtime > period:
        return f"the runtime of {_time(runtime)} does not fit before the deadline of {_time(period)}"
    return None


def admit(tasks: Sequence[Bandwidth], room: Room) -> Admission:
    """Whether all of ``tasks`` can have their bandwidth at once.

    This is the kernel's test. It promises that on several cores no task is late by more than a bounded time, not that
    none is ever late; on one core it promises that.
    """
    for number, task in enumerate(tasks, start=1):
        if reason := objection(task):
            return Admission(False, 0.0, room.cpus, f"task {number}: {reason}")
    asked = total_cpus(tasks)
    sums = f"{asked:.3f} CPUs are asked for, {words(room)}"
    if fits(asked, room):
        return Admission(True, asked, room.cpus, sums)
    return Admission(False, asked, room.cpus, f"{sums}: {asked - room.cpus:.3f} too much")


def total_cpus(tasks: Sequence[Bandwidth]) -> float:
    """The sum as the kernel adds it up: each rounded down to a 2^20th of a CPU."""
    return sum(math.floor(task.cpus / _UNIT) for task in tasks) * _UNIT


def fits(cpus: float, room: Room) -> bool:
    """Whether a sum is admitted."""
    return cpus <= room.cpus + _UNIT / 2


def words(room: Room) -> str:
    """``3.600 are given away: 4 cores x (0.95 - 0.05 for ordinary tasks)``."""
    if math.isinf(room.quota):
        return "and nothing is limited"
    share = (
        f"{room.quota:g}" if room.fair_server == 0.0 else f"({room.quota:g} - {room.fair_server:g} for ordinary tasks)"
    )
    return f"{room.cpus:.3f} are given away: {room.cores} {'core' if room.cores == 1 else 'cores'} x {share}"


def _time(us: float) -> str:
    return f"{us / 1e6:.3g} s" if us >= 1e6 else f"{us / 1e3:g} ms" if us >= 1e3 else f"{us:g} us"

"""Scheduling classes of single threads, SCHED_DEADLINE above all: what is asked of the kernel and what its refusals mean.

Limits and answers were seen on Linux 6.18 and are those of sched(7) and Documentation/scheduler/sched-deadline.rst.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

from flowsched.node.deadline import Deadline
from flowsched_agent.controls.core_list import cores_of
from flowsched_agent.controls.refusals import ControlError, refusal
from flowsched_agent.controls.weights import is_lowest, nice_of
from flowsched_agent.system import RESET_ON_FORK, Attributes, Policy, System
from flowsched_models.isolation.admission import Bandwidth, objection
from flowsched_models.quantity import format_cores

INSTEAD = "the task keeps its weight, which is the next best thing"
_DEADLINE_MEANINGS = {
    errno.EPERM: "permission is missing (CAP_SYS_NICE), or the task's cpuset or affinity leaves out a CPU, as pinning does; "
    f"let it run on all CPUs, or make it an exclusive cpuset; until then {INSTEAD}",
    errno.EBUSY: "the sum of all reservations would be more than the kernel admits; "
    f"shorten this or another runtime, or end another reservation; until then {INSTEAD}",
    errno.EINVAL: "the kernel takes periods from 100 us to 4.19 s, and runtimes from 1024 ns to the period; "
    f"choose these within; until then {INSTEAD}",
}
_AFFINITY_MEANINGS = {
    errno.EINVAL: "none of these CPUs is in its cpuset and online; take cores from its cpuset, or widen that",
    errno.EPERM: "the process belongs to another user; run the agent as root or with CAP_SYS_NICE",
    errno.EBUSY: "it has a SCHED_DEADLINE reservation, which holds on all CPUs and excludes pinning; "
    "end the reservation first",
}
_CLASS_MEANINGS = {
    errno.EPERM: "permission is missing: without CAP_SYS_NICE a thread can be made less urgent, and not again more; "
    "run the agent as root or with CAP_SYS_NICE",
}
_LEAST = Attributes(Policy.DEADLINE, 0, 0, 1024, 4_000_000_000, 4_000_000_000, RESET_ON_FORK)
"""So little that the kernel counts it as nothing, in units of a 2^20th of a CPU."""


def attributes_of(deadline: Deadline) -> Attributes:
    """What the kernel is told; children start without the reservation, which it would refuse them with EAGAIN."""
    runtime, period = round(deadline.runtime_us * 1000), round(deadline.period_us * 1000)
    return Attributes(Policy.DEADLINE, 0, 0, runtime, period, period, RESET_ON_FORK)


def check_deadline(what: str, deadline: Deadline) -> None:
    """Raises :class:`ControlError` for what no kernel takes."""
    reason = objection(Bandwidth(deadline.runtime_us, deadline.period_us))
    if reason is not None:
        raise ControlError(what, f"no kernel takes that, for {reason}; choose others; {INSTEAD}")


def reserve(system: System, tid: int, name: str, deadline: Deadline) -> None:
    """Owe a thread run time in every period. It must be free to run on all CPUs. Raises :class:`ControlError`."""
    what = f"{name} was to have {deadline.runtime_us:g} us in every {deadline.period_us:g} us (thread {tid})"
    check_deadline(what, deadline)
    try:
        system.set_attributes(tid, attributes_of(deadline))
    except OSError as error:
        raise refusal(what, error, _DEADLINE_MEANINGS) from None


def shrink_reservation(system: System, tid: int) -> None:
    """Make a reservation as small as one can be, before it is ended. Nothing happens to a thread that has none.

    Linux 6.1 never gives away again what a thread had that was asleep when it left SCHED_DEADLINE; 6.18 does. Smaller
    parameters count at once in both. Raises :class:`OSError`.
    """
    if system.attributes(tid).policy is Policy.DEADLINE:
        system.set_attributes(tid, _LEAST)


def set_attributes(system: System, tid: int, name: str, wanted: Attributes) -> None:
    """Put a thread into a class. Raises :class:`ControlError`."""
    try:
        if wanted.policy is not Policy.DEADLINE:
            shrink_reservation(system, tid)
        system.set_attributes(tid, wanted)
    except OSError as error:
        how = f"SCHED_{wanted.policy.name}, nice {wanted.nice}"
        raise refusal(f"{name} was to be scheduled as {how} (thread {tid})", error, _CLASS_MEANINGS) from None


@dataclass(frozen=True)
class OneWay:
    """Why what is set could not be taken back, or not be set at all; None where it can be both."""

    nice: str | None = None
    idle: str | None = None

    def objection(self, kept: Attributes, wanted: Attributes) -> str | None:
        """Why a thread that is to be as ``kept`` in the end must not become as ``wanted``; None if it may."""
        if wanted.policy is Policy.IDLE and kept.policy is not Policy.IDLE and self.idle is not None:
            return f"SCHED_IDLE is needed, and {self.idle}"
        if wanted.nice > kept.nice and self.nice is not None:
            return f"a nice value of {wanted.nice} is needed, and {self.nice}"
        return None


def of_weight(weight: float, found: Attributes) -> Attributes:
    """The class for a weight: SCHED_IDLE for the lowest, otherwise a nice value. A batch class stays one."""
    if is_lowest(weight):
        return replace(found, policy=Policy.IDLE)
    policy = Policy.BATCH if found.policy is Policy.BATCH else Policy.OTHER
    return replace(found, policy=policy, nice=nice_of(weight))


def set_affinity(system: System, tid: int, name: str, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Pin a thread; answers the CPUs that it got, which its cpuset may make fewer. Raises :class:`ControlError`."""
    try:
        system.set_affinity(tid, cores)
        return system.affinity(tid)
    except OSError as error:
        what = f"{name} was to run on the CPUs {format_cores(cores) or 'of an empty list'} (thread {tid})"
        raise refusal(what, error, _AFFINITY_MEANINGS) from None


def online(system: System) -> tuple[int, ...]:
    """Virtual CPUs that are there, by the lines of /proc/stat. Raises :class:`OSError`."""
    lines = system.read(system.proc / "stat").splitlines()
    names = (line.split(" ", 1)[0] for line in lines if line.startswith("cpu"))
    return cores_of(",".join(name[3:] for name in names if name[3:].isdigit()))

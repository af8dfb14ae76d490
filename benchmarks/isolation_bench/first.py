"""SCHED_FIFO for one thread: what the agent never sets."""

from __future__ import annotations

import errno

from flowsched_agent.controls.refusals import refusal
from flowsched_agent.system import RESET_ON_FORK, Attributes, Policy, System

_FIFO_MEANINGS = {
    errno.EPERM: "permission is missing (CAP_SYS_NICE), or its v1 cpu group has no real-time run time; "
    "write cpu.rt_runtime_us there",
}


def set_first(system: System, tid: int, name: str, priority: int = 1) -> None:
    """Put a thread before all that has a weight (SCHED_FIFO); its children are not. Raises :class:`ControlError`."""
    try:
        system.set_attributes(tid, Attributes(Policy.FIFO, 0, priority, flags=RESET_ON_FORK))
    except OSError as error:
        raise refusal(f"{name} was to go first (SCHED_FIFO, thread {tid})", error, _FIFO_MEANINGS) from None

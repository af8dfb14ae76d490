"""What a node controller sees at one tick. All counters only grow, as those of memcached and Linux do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flowsched.node.node import NodeService, NodeTask


class TaskState(StrEnum):
    """Where a task stands."""

    QUEUED = "queued"
    """Submitted; its program was never started."""
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True)
class ServiceReading:
    """One service."""

    service: NodeService
    queries: int | None
    """Queries served since the service started; None: it did not answer in time. A smaller number than before means
    that it was started anew."""
    busy_s: float = 0.0
    """CPU seconds that its threads have used."""
    pid: int | None = None
    """Of its process, where there is one: another number means another process."""
    there: bool = True
    """Whether there is such a service at all: from one that is gone no task need keep off."""
    at_s: float | None = None
    """When it answered, on the clock of the readings, where that is known; otherwise with the whole reading."""


@dataclass(frozen=True)
class TaskReading:
    """One task that is not done yet."""

    task: NodeTask
    state: TaskState
    submitted_s: float
    """When it was submitted, on the clock of the readings."""
    cpu_s: float = 0.0
    """CPU seconds that it has used."""


@dataclass(frozen=True)
class Reading:
    """The whole machine."""

    t_s: float
    """Seconds on a clock that only moves forward."""
    services: tuple[ServiceReading, ...]
    tasks: tuple[TaskReading, ...]
    """In order of submission. Tasks that are done or gone are no longer here."""
    core_busy_s: tuple[float, ...] = ()
    """CPU seconds used on each virtual CPU of the machine, by index; empty where it is not counted."""
    ended: tuple[NodeTask, ...] = ()
    """Tasks that have completed since the last reading: without those that failed, or that are gone for another reason."""

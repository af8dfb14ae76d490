"""What may happen to a cluster, as values. The cluster state is made of nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from flowsched.cluster.snapshot import Machine, PlannedStart, Reservation, Service, Task


@dataclass(frozen=True, slots=True)
class MachineAdded:
    """A machine with its services joins the cluster."""

    machine: Machine
    services: tuple[Service, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineRemoved:
    """A machine leaves; tasks that ran on it are gone."""

    machine: str


@dataclass(frozen=True, slots=True)
class TaskSubmitted:
    """A task waits to be placed."""

    task: Task


@dataclass(frozen=True, slots=True)
class TaskBound:
    """A task was bound to a machine; its program runs from ``start_s``."""

    task: str
    machine: str
    width_milli: int
    threads: int
    cores: tuple[int, ...]
    start_s: float
    devices: tuple[int, ...] = ()
    """GPUs that it has, or has a share of."""
    remote: bool = False
    """Whether parts of its job, its GPUs or what uses them, are on other machines."""


@dataclass(frozen=True, slots=True)
class TaskPreempted:
    """A running task waits again, as old as it was."""

    task: str
    keeps_work: bool = False
    """Whether it goes on later where it stopped; otherwise it starts anew."""


@dataclass(frozen=True, slots=True)
class TaskMove:
    """Where a running task goes on; its program runs there from ``start_s``."""

    task: str
    machine: str
    width_milli: int
    threads: int
    cores: tuple[int, ...]
    start_s: float
    keeps_work: bool = True
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TasksMoved:
    """Running tasks go on on other machines, or start anew there: all leave, then all come."""

    moves: tuple[TaskMove, ...]


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A running task ended."""

    task: str
    killed: bool = False
    """Whether it was killed, so that its time says nothing about how long it would have run."""


@dataclass(frozen=True, slots=True)
class TaskWithdrawn:
    """A pending task is not wanted any more."""

    task: str


@dataclass(frozen=True, slots=True)
class RoundDecided:
    """A round ended with these intentions for tasks that it postponed."""

    plan: tuple[PlannedStart, ...]
    reservations: tuple[Reservation, ...] = ()
    by_choice: frozenset[str] = frozenset()
    """Tasks that could have started, and wait by choice."""


Event = (
    MachineAdded
    | MachineRemoved
    | TaskSubmitted
    | TaskBound
    | TaskPreempted
    | TasksMoved
    | TaskFinished
    | TaskWithdrawn
    | RoundDecided
)

"""What a node controller decides: who runs, on which virtual CPUs, with what weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched.node.deadline import Deadline

DEFAULT_WEIGHT = 1.0
LOWEST_WEIGHT = 2.0 / 1024.0
"""The lowest CPU weight of Linux relative to the default: 2 shares of 1024."""


@dataclass(frozen=True)
class ServiceGrant:
    """Virtual CPUs of a service."""

    cores: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True)
class TaskGrant:
    """What one task gets. A task that is paused, or not started yet, keeps ``cores`` for when it runs."""

    run: bool
    cores: tuple[int, ...] = ()
    weight: float = 1.0
    """CPU weight relative to the default of Linux; at most LOWEST_WEIGHT means: takes only what others leave."""
    quota: float | None = None
    """CPUs that it may use at most."""
    deadline: Deadline | None = None
    """Run time in every period that it is owed: an admitted critical task. Its cores are then all cores."""
    reason: str = ""
    """Why, in one sentence, where it waits or is paused."""


@dataclass(frozen=True)
class Allocation:
    """The decision of one tick. Services and tasks that are not named keep what they have."""

    services: Mapping[str, ServiceGrant] = field(default_factory=dict)
    tasks: Mapping[str, TaskGrant] = field(default_factory=dict)

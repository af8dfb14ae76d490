"""A scenario of tasks that share the cores of one machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flowsched_models.isolation.simulation import Background
from flowsched_models.isolation.workload import Loop, Task


class Reserved(StrEnum):
    """What the runtime of a reservation is made from."""

    INTERVAL = "interval"
    """The need of each interval, which is known when it begins, and the margin."""
    HISTORY = "history"
    """One runtime for the whole run: mean and deviation of an earlier run of the same tasks."""


@dataclass(frozen=True)
class IsolationScenario:
    """What is simulated."""

    name: str
    description: str
    source: str
    cores: int
    kernel: str
    """Release of the kernel: says what the admission test leaves for ordinary tasks."""
    tasks: tuple[Task, ...]
    loop: Loop
    duration_s: float
    window_s: float
    tick_s: float
    background: Background
    group_per_task: bool
    reserved: Reserved
    margin: float

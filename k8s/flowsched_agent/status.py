"""What the agent says of itself: for metrics, reports and health, taken from the loop after each tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowsched.cluster.learnt_run_times import LearntRunTime


@dataclass(frozen=True)
class ServiceStatus:
    """One service."""

    name: str
    answers: bool
    cores: tuple[int, ...]
    slo_us: float
    qps: float | None = None
    p95_us: float | None = None
    """Predicted from the load and its cores, without neighbours."""
    cpu_s: float = 0.0

    @property
    def headroom(self) -> float | None:
        """Share of the latency goal that is left: 1 - p95 / slo; negative when it is broken."""
        return None if self.p95_us is None else 1.0 - self.p95_us / self.slo_us


@dataclass(frozen=True)
class TaskStatus:
    """One task."""

    name: str
    state: str
    cores: tuple[int, ...]
    weight: float
    cpu_s: float
    pauses: int


@dataclass(frozen=True)
class Status:
    """The whole machine after a tick."""

    t_s: float
    services: Mapping[str, ServiceStatus] = field(default_factory=dict)
    tasks: Mapping[str, TaskStatus] = field(default_factory=dict)
    ticks: int = 0
    overruns: int = 0
    missed: int = 0
    """Ticks that were left out because an earlier one took too long."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """By what failed: ``control``, ``controller``, ``service``, ``start``, ``state``, ``record``, ``report``, ``tick``."""
    acts: Mapping[str, int] = field(default_factory=dict)
    pauses: int = 0
    last_tick_s: float = 0.0
    """Seconds that the last tick took."""
    learnt: Mapping[str, LearntRunTime] = field(default_factory=dict)
    """By class; of many those whose last completions are latest."""

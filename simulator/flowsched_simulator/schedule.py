"""A given schedule: placements, to be replayed instead of asking a policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScheduledService:
    """Where the schedule has a latency service."""

    name: str
    machine: str
    cores: tuple[int, ...]
    threads: int


@dataclass(frozen=True)
class ScheduledTask:
    """One job of a schedule. Exactly one of ``start_s`` and ``after`` is set."""

    job: str
    machine: str
    cores: tuple[int, ...]
    threads: int
    start_s: float | None = None
    after: str | None = None
    request_milli: int | None = None
    """CPU request, its weight where cores are shared; None: an equal split of every core it may use."""
    limit_milli: int | None = None
    """CPU limit, or None for no limit."""


@dataclass(frozen=True)
class Schedule:
    """Read from YAML by :func:`flowsched_simulator.schedule_file.load_schedule`."""

    name: str
    cluster: str
    """The scenario whose cluster, profiles and jobs it places."""
    services: tuple[ScheduledService, ...]
    tasks: tuple[ScheduledTask, ...]
    source: str = "<memory>"

"""A run under a controller: who had which cores when, beside a service whose load changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from flowsched_models.measurements.load_event import LoadEvent


@dataclass(frozen=True)
class RunningJob:
    """A job that runs during a stretch."""

    job: str
    cores: tuple[int, ...]
    threads: int
    weight: float
    """CPU weight relative to the service's."""


@dataclass(frozen=True)
class Stretch:
    """Time in which neither cores nor the load change."""

    t_s: float
    end_s: float
    service_cores: tuple[int, ...]
    qps: float
    jobs: tuple[RunningJob, ...]
    """Who runs, by name."""


@dataclass(frozen=True)
class ControlledRun:
    """What a controller logged of one run, and the load meanwhile. Seconds count from the first start of a job."""

    group: str
    year: str
    schedule: str
    interval_s: float
    """Seconds between changes of the load."""
    run: str
    machine_type: str
    service: str
    service_threads: int
    events: tuple[LoadEvent, ...]
    """Of the service and of jobs that have a start and an end, by time; each job starts and ends once."""
    loads: tuple[tuple[float, float, float], ...]
    """Start, end and queries per second of each interval of the load, by time."""
    executions: Mapping[str, tuple[float, float]]
    """Start and end of each job."""
    throttled: frozenset[str] = frozenset()
    """Jobs whose CPU time had a limit that the log does not tell: they say nothing of speeds."""

    @property
    def name(self) -> str:
        """``group/schedule/interval/run``."""
        return "/".join(part for part in (self.group, self.schedule, f"{self.interval_s:g}", self.run) if part)

    @property
    def makespan_s(self) -> float:
        """Seconds from the first start of a job to the last end."""
        return max(end for _, end in self.executions.values()) - min(start for start, _ in self.executions.values())

    @property
    def active_s(self) -> Mapping[str, float]:
        """Seconds that each job was running: pauses excluded, whatever its cores."""
        found = dict.fromkeys(self.executions, 0.0)
        for stretch in self.stretches:
            for job in stretch.jobs:
                found[job.job] += stretch.end_s - stretch.t_s
        return found

    def qps(self, t_s: float) -> float:
        """The load at a moment; before the first interval and after the last that of the next one."""
        best = min(self.loads, key=lambda i: max(i[0] - t_s, t_s - i[1], 0.0) if not i[0] <= t_s < i[1] else -1.0)
        return best[2]

    def service_cores(self) -> tuple[int, ...]:
        """The service's virtual CPUs before it was given others."""
        return next(e.cores for e in self.events if e.job == self.service and e.cores)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """The run from the first start to the last end, in parts in which nothing changes."""
        now = _Now(self.service_cores())
        times = sorted({e.t_s for e in self.events} | {t for start, end, _ in self.loads for t in (start, end)})
        first = min(start for start, _ in self.executions.values())
        last = max(end for _, end in self.executions.values())
        events = iter(self.events)
        event = next(events, None)
        found = []
        for t_s, end_s in pairwise(times):
            while event is not None and event.t_s <= t_s:
                now.apply(event, self.service)
                event = next(events, None)
            if end_s > first and t_s < last:
                jobs = tuple(
                    RunningJob(job, now.cores[job], now.threads[job], now.weights[job])
                    for job in sorted(now.started - now.waiting)
                )
                found.append(Stretch(t_s, end_s, now.service, self.qps(t_s), jobs))
        return tuple(found)


@dataclass
class _Now:
    """The cores of all jobs at one moment."""

    service: tuple[int, ...]
    cores: dict[str, tuple[int, ...]] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    def apply(self, event: LoadEvent, service: str) -> None:
        if event.job == service:
            self.service = event.cores or self.service
            return
        if event.cores:
            self.cores[event.job] = event.cores
        if event.kind == "start" and event.threads is not None:
            self.threads[event.job] = event.threads
            self.weights[event.job] = event.weight
            self.started.add(event.job)
        elif event.kind == "end":
            self.started.discard(event.job)
        elif event.kind == "pause":
            self.waiting.add(event.job)
        elif event.kind == "unpause":
            self.waiting.discard(event.job)

"""What was measured: times of jobs, runs of schedules, latencies of services; and what was wrong with it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flowsched_models.measurements.controlled_run import ControlledRun

REFERENCE = "none"
"""The kind of interference that is none."""


@dataclass(frozen=True)
class Where:
    """Where a value stands. ``row`` counts lines as an editor does: the header is row 1."""

    file: str
    """Relative to the folder that was read."""
    row: int
    column: str = ""

    def __str__(self) -> str:
        """``file:row:column``, as far as it is known."""
        return ":".join([self.file, *([str(self.row)] if self.row else []), *([self.column] if self.column else [])])


@dataclass(frozen=True)
class ThreadTime:
    """One job alone on a machine, on so many threads."""

    group: str
    machine_type: str
    job: str
    threads: int
    cores: int | None
    """How many cores it might use; None for all of the machine."""
    real_s: float
    where: Where
    max_rss_mib: float | None = None
    """The most memory that it used, where that was measured."""


@dataclass(frozen=True)
class InterferenceTime:
    """One job beside one source of interference (``none`` is the reference), on one thread."""

    group: str
    machine_type: str
    job: str
    interference: str
    real_s: float
    where: Where


@dataclass(frozen=True)
class Placed:
    """Where a latency service stood during a run."""

    profile: str
    node: str
    machine_type: str
    cores: tuple[int, ...]
    """Empty for all cores of the machine."""
    threads: int
    request: float | None
    """CPU request in cores."""
    qps: float | None
    """Its load during the run."""
    limit: float | None = None
    """CPU limit in cores."""


@dataclass(frozen=True)
class MeasuredExecution:
    """One job of a run. Times are in seconds from the first start of the run."""

    job: str
    node: str
    machine_type: str
    cores: tuple[int, ...]
    """Empty for all cores of the machine."""
    threads: int
    request: float | None
    """CPU request in cores."""
    limit: float | None
    """CPU limit in cores."""
    start_s: float
    end_s: float
    where: Where

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Run:
    """One execution of a whole schedule."""

    group: str
    schedule: str
    run: str
    year: str
    """Empty where no year is known."""
    executions: tuple[MeasuredExecution, ...]
    """By start, then job."""
    services: tuple[Placed, ...] = ()

    @property
    def name(self) -> str:
        """``group/schedule/run``."""
        return "/".join(part for part in (self.group, self.schedule, self.run) if part)

    @property
    def makespan_s(self) -> float:
        """Seconds from the first start to the last end."""
        return max(e.end_s for e in self.executions) - min(e.start_s for e in self.executions)


@dataclass(frozen=True)
class LatencyPoint:
    """p95 of a service alone, under one load."""

    group: str
    service: str
    machine_type: str
    threads: int
    cores: int
    qps: float
    """Achieved load where it was measured, else the load asked for."""
    p95_us: float
    cpu_percent: float | None
    """100 is one busy core. What is counted differs between groups."""
    where: Where
    target_qps: float | None = None
    """Load asked for."""


@dataclass(frozen=True)
class LatencyInterference:
    """p95 of a service beside one source of interference (``none`` is the reference), under one load."""

    group: str
    service: str
    machine_type: str
    interference: str
    qps: float
    p95_us: float
    where: Where
    target_qps: float | None = None
    """Load asked for."""


@dataclass(frozen=True)
class LatencyWindow:
    """p95 of a service in one window of a run, on the clock of the run's executions."""

    group: str
    schedule: str
    run: str
    t_start_s: float
    t_end_s: float
    qps: float
    p95_us: float
    where: Where
    service: str = ""


@dataclass(frozen=True)
class LoadRow:
    """p95 of a service in one interval of a changing load, as its client reported it."""

    machine_type: str
    service: str
    t_start_s: float
    t_end_s: float
    qps: float
    """Load asked for where that is known, else the achieved one."""
    p95_us: float
    where: Where
    p50_us: float | None = None
    p99_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class LoadInterval(LoadRow):
    """The same beside what the service and the jobs around it had meanwhile: its cores may have changed, too."""

    group: str
    run: str
    """Names the run within its group."""
    threads: int
    cores: int | None
    """How many it had; None where that changed within the interval."""
    background: float
    """Share of them, 0 to 1, on which jobs of the lowest CPU weight ran; mean over the interval."""
    shared: float
    """Share of the interval, 0 to 1, in which a job of another weight ran on one of them."""
    settled_s: float = math.inf
    """Seconds to the nearest change, before or after, of its cores or of who runs on them; 0 within, infinite if none.

    After as well: the clocks of the measuring and the moving program differ.
    """

    @property
    def length_s(self) -> float:
        """Seconds from start to end."""
        return self.t_end_s - self.t_start_s


Consequence = Literal["left out", "corrected", "kept", "refused"]
"""``corrected``: read as what it must mean. ``kept``: used, but to be taken with care."""


@dataclass(frozen=True)
class Finding:
    """Something suspicious in the measurements, and what was done about it."""

    where: Where
    text: str
    """One sentence."""
    consequence: Consequence
    group: str = ""

    def __str__(self) -> str:
        """One line: where, what, and what was done."""
        return f"{self.where}: {self.text} ({self.consequence})"


_PARTS = (
    "thread_times", "interference_times", "runs", "latency_points", "latency_interference", "latency_windows",
    "load_intervals", "elsewhere_points", "elsewhere_intervals", "controlled_runs",
)  # fmt: skip
"""What groups measured: of each row it is known which group."""


@dataclass(frozen=True)
class Measurements:
    """Everything that was read from a folder and can be used."""

    thread_times: tuple[ThreadTime, ...] = ()
    interference_times: tuple[InterferenceTime, ...] = ()
    runs: tuple[Run, ...] = ()
    latency_points: tuple[LatencyPoint, ...] = ()
    latency_interference: tuple[LatencyInterference, ...] = ()
    latency_windows: tuple[LatencyWindow, ...] = ()
    load_intervals: tuple[LoadInterval, ...] = ()
    elsewhere_points: tuple[LatencyPoint, ...] = ()
    """Latency sweeps of other years: they tell what other machines do to a service, and nothing of its curves."""
    elsewhere_intervals: tuple[LoadInterval, ...] = ()
    """The same, of runs under a changing load."""
    controlled_runs: tuple[ControlledRun, ...] = ()
    findings: tuple[Finding, ...] = ()
    years: Mapping[str, str] = field(default_factory=dict)
    """The year of every group that has one."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that measured something, sorted."""
        return tuple(sorted({item.group for name in _PARTS for item in getattr(self, name)}))

    @property
    def executions(self) -> tuple[MeasuredExecution, ...]:
        """Of all runs, in their order."""
        return tuple(execution for run in self.runs for execution in run.executions)

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs that were measured in any way, sorted."""
        names = {t.job for t in self.thread_times} | {t.job for t in self.interference_times}
        return tuple(sorted(names | {e.job for e in self.executions}))

    def only(self, *groups: str) -> Measurements:
        """Some groups only."""
        return self._of(groups)

    def of_years(self, *years: str) -> Measurements:
        """Groups of some years only. Years differ in machines and in what jobs do."""
        return self._of({group for group, year in self.years.items() if year in years})

    def with_sweeps_of(self, other: Measurements) -> Measurements:
        """The same with another reading's sweeps: what machines do with one job, and with one service, alone."""
        known = {(t.where.file, t.where.row) for t in self.thread_times}
        more = tuple(t for t in other.thread_times if (t.where.file, t.where.row) not in known)
        known = {(p.where.file, p.where.row) for p in self.latency_points}
        own = {i.group for i in self.load_intervals}
        elsewhere = tuple(p for p in other.latency_points if (p.where.file, p.where.row) not in known)
        return replace(
            self,
            thread_times=(*self.thread_times, *more),
            elsewhere_points=(*self.elsewhere_points, *elsewhere),
            elsewhere_intervals=(*self.elsewhere_intervals, *(i for i in other.load_intervals if i.group not in own)),
            years={**self.years, **other.years},
        )

    def _of(self, groups: Collection[str]) -> Measurements:
        parts: dict[str, Any] = {name: tuple(i for i in getattr(self, name) if i.group in groups) for name in _PARTS}
        findings = tuple(f for f in self.findings if f.group in groups)
        years = {group: year for group, year in self.years.items() if group in groups}
        return replace(self, **parts, findings=findings, years=years)

"""Runs under a changing load: p95 of a service, interval by interval, and who had which cores meanwhile."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from flowsched_models.measurements.group import Group, flag, measured
from flowsched_models.measurements.load_event import LoadEvent, LoadRunKey
from flowsched_models.measurements.measurements import LoadInterval, LoadRow, Where
from flowsched_models.measurements.table import MAX_THREADS, Row, Table

EVENTS = ("start", "end", "pause", "unpause", "update_cores")
LOWEST_WEIGHT = 2.0 / 1024.0
"""The lowest CPU weight of Linux relative to the default: 2 shares of 1024."""
_BEHIND = 0.01
"""Jobs of at most this weight take what others leave: 2 shares of 1024, or ``cpu.weight`` 1 of 100."""
_MOST_OF_IT = 0.97
"""Share of an interval in which a service must have had one number of cores: the clocks of no run agree better."""


@dataclass
class _Running:
    """Cores of all jobs at one moment."""

    service: tuple[int, ...] = ()
    jobs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Stretch:
    """Time in which no job's cores changed."""

    t_s: float
    end_s: float
    cores: int
    background: float
    """Share of the service's cores on which jobs of the lowest weight run."""
    shared: bool
    """Whether a job of another weight runs on one of them."""
    who: Mapping[str, Set[int]]
    """Cores of the service, and those of them that each job has; by name."""


@dataclass(frozen=True)
class _Course:
    """What a run consists of, looked up by time."""

    stretches: tuple[_Stretch, ...]
    """One after the other."""

    @cached_property
    def _starts_s(self) -> list[float]:
        return [s.t_s for s in self.stretches]

    @cached_property
    def _ends_s(self) -> list[float]:
        return [s.end_s for s in self.stretches]

    @cached_property
    def _changes_s(self) -> list[float]:
        return [after.t_s for before, after in pairwise(self.stretches) if after.who != before.who]

    def parts(self, row: LoadRow) -> list[tuple[float, _Stretch]]:
        """Seconds of each stretch in an interval."""
        first, last = bisect_right(self._ends_s, row.t_start_s), bisect_left(self._starts_s, row.t_end_s)
        return [(min(s.end_s, row.t_end_s) - max(s.t_s, row.t_start_s), s) for s in self.stretches[first:last]]

    def settled_s(self, row: LoadRow) -> float:
        """Seconds to the nearest change, as in :class:`LoadInterval`; the first stretch is no change."""
        after = bisect_left(self._changes_s, row.t_start_s)
        near = self._changes_s[max(0, after - 1) : after + 1]
        return min((max(0.0, t_s - row.t_end_s, row.t_start_s - t_s) for t_s in near), default=math.inf)


def load_run_key(row: Row) -> LoadRunKey:
    """Which run a row belongs to."""
    every_s = row.optional_number("qps_interval_s", 0.0)
    return row.text(row.first("schedule", "experiment")), "" if every_s is None else f"{every_s:g}", row.name("run")


def read_load_runs(table: Table, group: Group) -> None:
    """Read ``load_runs.csv``: run, t_start_s, t_end_s, qps or target_qps, p95_us [, schedule or experiment,
    qps_interval_s, in_window, service, p50_us, p99_us, machine_type, node].

    Intervals outside the run (``in_window`` 0) are passed over.
    """
    if not table.require(("run",), ("t_start_s",), ("t_end_s",), ("target_qps", "qps"), ("p95_us",)):
        return
    for row in table:
        if not flag(row, "in_window", True):
            continue
        key, machine_type = load_run_key(row), group.machines.of(row, "latency_sweep")
        start_s, end_s = row.number("t_start_s"), row.number("t_end_s")
        # The curves of services are fitted to the load that was asked for, too.
        qps, p95_us = row.load(row.first("target_qps", "qps")), measured(row, "p95_us", group)
        p50_us, p99_us = row.optional_number("p50_us", 0.0), row.optional_number("p99_us", 0.0)
        if start_s is not None and end_s is not None and end_s <= start_s:
            row.refuse("t_end_s", f"the interval ends at {end_s:g} s, but starts at {start_s:g} s")
        if not row.sound or start_s is None or end_s is None or qps is None or p95_us is None:
            continue
        service = row.text("service") or group.service
        found = LoadRow(machine_type, service, start_s, end_s, qps, p95_us, row.where("p95_us"), p50_us, p99_us)
        group.load_rows.setdefault(key, []).append(found)


def read_load_events(table: Table, group: Group) -> None:
    """Read ``load_events.csv``: run, t_s, event, job [, schedule or experiment, qps_interval_s, cores, threads, weight].

    ``event``: start, end, pause, unpause or update_cores. ``weight``: CPU weight relative to the service's.
    """
    if not table.require(("run",), ("t_s",), ("event",), ("job",)):
        return
    for row in table:
        key, t_s, kind, job = load_run_key(row), row.number("t_s"), row.name("event"), row.name("job")
        cores, weight = row.cores("cores"), row.optional_number("weight", 0.0)
        threads = row.count("threads", MAX_THREADS) if row.measured("threads") else None
        if kind and kind not in EVENTS:
            row.refuse("event", f"'{kind}' is not an event", f"events are {', '.join(EVENTS)}")
        if row.sound and t_s is not None:
            event = LoadEvent(t_s, kind, job, cores, threads, group.job_weight if weight is None else weight)
            group.load_events.setdefault(key, []).append(event)


def load_run_events(group: Group) -> Iterator[tuple[LoadRunKey, list[LoadRow], list[LoadEvent], int | None]]:
    """Of each run: its rows, its events in their order, and the service's threads.

    A run that does not tell the threads had those of the group's other runs, if they all had the same.
    """
    usual = {e.threads for events in group.load_events.values() for e in events if e.job == group.service and e.threads}
    for key, rows in group.load_rows.items():
        events = sorted(group.load_events.get(key, ()), key=lambda e: e.t_s)
        own = [e.threads for e in events if e.job == rows[0].service and e.threads]
        yield key, rows, events, next(iter(own or (usual if len(usual) == 1 else ())), None)


def has_cores(events: Sequence[LoadEvent], service: str) -> bool:
    """Whether anything tells the service's cores."""
    return any(e.cores for e in events if e.job == service)


def run_name(key: LoadRunKey) -> str:
    """A run as findings name it."""
    return "/".join(part for part in key if part)


def load_intervals(group: Group) -> Iterator[LoadInterval]:
    """The intervals of all runs of which it is known how many threads and which cores the service had."""
    refused: dict[str, list[tuple[str, Where]]] = {}
    for key, rows, events, threads in load_run_events(group):
        name, service = run_name(key), rows[0].service
        if key in group.refused_loads:
            refused.setdefault(group.refused_loads[key], []).append((name, rows[0].where))
        elif not has_cores(events, service):
            refused.setdefault(f"nothing tells the cores of {service}", []).append((name, rows[0].where))
        elif threads is None:
            refused.setdefault(f"nothing tells the threads of {service}", []).append((name, rows[0].where))
        else:
            course = _Course(tuple(_stretches(events, service)))
            yield from (_placed(row, group.name, name, threads, course) for row in rows)
    for reason, runs in refused.items():
        names = ", ".join(f"'{name}'" for name, _ in runs)
        group.leave_out(runs[0][1], f"load runs {names}: {reason}")


def _stretches(events: Sequence[LoadEvent], service: str) -> Iterator[_Stretch]:
    now = _Running()
    ends = [e.t_s for e in events[1:]] + [float("inf")]
    for event, end_s in zip(events, ends, strict=True):
        _apply(event, service, now)
        if end_s <= event.t_s or not now.service:
            continue
        own = set(now.service)
        near = {job: own & set(cores) for job, cores in now.jobs.items() if job not in now.waiting}
        who = {service: own, **{job: cores for job, cores in near.items() if cores}}
        behind = {c for job, cores in near.items() if now.weights[job] <= _BEHIND for c in cores}
        beside = any(cores for job, cores in near.items() if now.weights[job] > _BEHIND)
        yield _Stretch(event.t_s, end_s, len(own), len(behind) / len(own), beside, who)


def _apply(event: LoadEvent, service: str, now: _Running) -> None:
    if event.job == service:
        now.service = event.cores or now.service
        return
    if event.cores:
        now.jobs[event.job] = event.cores
        now.weights[event.job] = event.weight
    if event.kind == "end":
        now.jobs.pop(event.job, None)
    elif event.kind == "pause":
        now.waiting.add(event.job)
    elif event.kind in ("start", "unpause"):
        now.waiting.discard(event.job)


def _placed(row: LoadRow, group: str, run: str, threads: int, course: _Course) -> LoadInterval:
    length = row.t_end_s - row.t_start_s
    parts = [(overlap / length, s) for overlap, s in course.parts(row) if overlap > 0.0]
    by_count: dict[int, float] = {}
    for part, s in parts:
        by_count[s.cores] = by_count.get(s.cores, 0.0) + part
    return LoadInterval(
        **vars(row),
        group=group,
        run=run,
        threads=threads,
        cores=next((count for count, part in by_count.items() if part >= _MOST_OF_IT), None),
        background=min(1.0, sum(part * s.background for part, s in parts)),
        shared=min(1.0, sum(part for part, s in parts if s.shared)),
        settled_s=course.settled_s(row),
    )

"""A given plan of one machine run forward to its end, for one or many draws of the run-time factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowsched_models.cell import JOB_COLUMNS, MEMORY, PROGRESS, READY, Floats, Ints
from flowsched_models.kernel import RunResult, StartingJobs, StartLimits, run_draws
from flowsched_models.runtime import Host, Resident


@dataclass(frozen=True)
class Entry(Resident):
    """A job in a plan of one machine."""

    after: int = -1
    """Index of the job of the same machine after whose end it is bound; -1 for one that is there from the start."""


@dataclass(frozen=True)
class LookaheadResult:
    """What comes of it, for R draws; seconds from now."""

    ends_s: Floats
    """[R, entries] completions; infinity for one that waits for itself."""
    starts_s: Floats
    """[R, entries] when each is bound; its program runs ``start_delay_s`` later, or at its ``ready_s``."""
    peak_p95_us: Floats
    """[R, services] highest p95 of each service until the last completion."""
    fits: bool
    """Whether no request or memory was ever more than what was left."""


class Lookahead:
    """Runs plans of one machine. Equal machines with equal services may share it."""

    def __init__(self, host: Host, cpu: float, memory_mib: float, start_delay_s: float) -> None:
        """``cpu`` cores and ``memory_mib`` are what jobs may request in total, beside the services."""
        self.host = host
        # Of one type always: another one would be compiled once more.
        self._cpu = float(cpu)
        self._memory_mib = float(memory_mib)
        self._start_delay_s = float(start_delay_s)

    def run(self, entries: Sequence[Entry], factors: Floats | None = None) -> LookaheadResult:
        """Run a plan; ``factors`` [R, entries] multiply the work of each job in each draw, all 1 in one draw by default."""
        count = len(entries)
        cpu, memory = self._cpu, self._memory_mib
        for e in entries:
            if e.after < 0:
                cpu -= e.weight
                memory -= e.memory_mib
        fits = cpu >= -1e-9 and memory >= -1e-9
        after = np.array([e.after for e in entries], dtype=np.int64)
        draws = np.ones((1, count)) if factors is None else np.ascontiguousarray(factors, dtype=np.float64)
        found = play(self.host, entries, np.zeros(count, np.int64), after, draws, cpu, memory, self._start_delay_s)
        return replace(found, fits=fits and found.fits)


def play(
    host: Host,
    jobs: Sequence[Resident],
    slot: Ints,
    after: Ints,
    factors: Floats,
    cpu: float,
    memory_mib: float,
    start_delay_s: float,
) -> LookaheadResult:
    """Run jobs on a host; ``cpu`` and ``memory_mib``: what is left beside them."""
    rows = np.empty((len(jobs), JOB_COLUMNS))
    for row, job in zip(rows, jobs, strict=True):
        row[:] = host.row(host.occupant(job), job.scale)
        row[PROGRESS], row[READY], row[MEMORY] = job.progress, job.ready_s, job.memory_mib
    services, can = host.service_rows, host.may_use(tuple(job.cores for job in jobs))
    starting = StartingJobs(rows, np.zeros(len(jobs), np.int64), slot, after)
    limits = StartLimits(float(cpu), float(memory_mib), float(start_delay_s))
    results = RunResult(np.empty(factors.shape), np.empty(factors.shape), np.zeros((len(factors), len(services))))
    fits = run_draws(starting, factors, services, can, host.siblings(can.shape[1]), limits, results)
    return LookaheadResult(*results, fits)

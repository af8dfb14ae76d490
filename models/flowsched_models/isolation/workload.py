"""Periodic tasks as the study's workload has them: each works for a slice of CPU, sleeps, and does so again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

MOST_USAGE = 0.86
LEAST_USAGE = 0.0005
"""A thread asks for no more and no less of a core than this in any interval: with a margin of a tenth it still fits below
0.95 of a core."""


@dataclass(frozen=True)
class Task:
    """One task of the workload."""

    name: str
    critical: bool
    mean_cpus: float
    """CPU usage in core-seconds per second."""
    deviation_cpus: float = 0.0
    """Standard deviation of the usage from interval to interval."""
    duration_s: float = math.inf
    threads: int = 1
    """The usage is split evenly among them."""


@dataclass(frozen=True)
class Loop:
    """How every task spends its time. What no publication gives is assumed, and said in ``docs/isolation.md``."""

    period_s: float = 0.1
    """A CPU slice and a sleep slice together."""
    relative_sleep: bool = False
    """Sleep for the sleep slice after each CPU slice, so that lateness shifts all that comes after it; else each job is
    released at a multiple of the period, late or not."""
    interval_s: float = 300.0
    """The usage that a task asks for is constant so long."""
    wakeup_us: float = 25.0
    """Mean of the exponential time from the timer to the thread standing in a run queue."""
    work_deviation: float = 0.0015
    """Relative standard deviation of the CPU time of one job around what the interval asks for."""


@dataclass(frozen=True)
class Demand:
    """A workload drawn: the same for every policy. Arrays have one row per thread."""

    tasks: tuple[Task, ...]
    loop: Loop
    end_s: float
    task_of: npt.NDArray[np.int64]
    """[threads]: index of its task."""
    duration_s: npt.NDArray[np.float64]
    phase_s: npt.NDArray[np.float64]
    """[threads]: the first release."""
    usage_cpus: npt.NDArray[np.float64]
    """[threads, intervals]: what it asks for."""
    work_factor: npt.NDArray[np.float64] = field(repr=False)
    """[threads, jobs]"""
    wakeup_s: npt.NDArray[np.float64] = field(repr=False)
    """[threads, jobs]"""

    @property
    def critical(self) -> npt.NDArray[np.bool_]:
        """[threads]: belongs to a critical task."""
        return np.array([self.tasks[k].critical for k in self.task_of], dtype=np.bool_)


def draw(tasks: Sequence[Task], loop: Loop, seed: int, end_s: float = math.inf) -> Demand:
    """Draw a workload up to ``end_s``, or the end of its longest task.

    The usage of an interval is gamma distributed with the task's mean and deviation, and split among its threads; each is
    cut to ``LEAST_USAGE`` to ``MOST_USAGE`` of a core. The same seed gives the same demand, and a task's draws do not
    depend on the tasks behind it.
    """
    if not tasks or any(not t.mean_cpus > 0.0 or t.threads < 1 or t.deviation_cpus < 0.0 for t in tasks):
        raise ValueError("a workload has tasks, each of them with a usage and threads")
    end = min(end_s, max(task.duration_s for task in tasks))
    if not math.isfinite(end) or end <= 0.0:
        raise ValueError("a workload ends at some time")
    intervals = math.ceil(end / loop.interval_s)
    # Under relative sleep a period is never shorter than the loop's; one job more may be under way at the end.
    jobs = math.ceil(end / loop.period_s) + 2
    rows: list[tuple[int, float, float, np.ndarray, np.ndarray, np.ndarray]] = []
    for index, task in enumerate(tasks):
        usage = draw_usage(task, index, seed, intervals)
        for thread in range(task.threads):
            own = np.random.default_rng([seed, index, thread + 1])
            phase = float(own.uniform(0.0, loop.period_s))
            factor = np.maximum(0.5, 1.0 + loop.work_deviation * own.standard_normal(jobs))
            rows.append(
                (index, min(task.duration_s, end), phase, usage, factor, own.exponential(loop.wakeup_us * 1e-6, jobs))
            )
    return Demand(tuple(tasks), loop, end, *(np.array(column) for column in zip(*rows, strict=True)))


def draw_usage(task: Task, index: int, seed: int, intervals: int) -> npt.NDArray[np.float64]:
    """[intervals]: CPUs that each thread of the task at place ``index`` of a workload asks for."""
    usage = np.full(intervals, task.mean_cpus)
    if task.deviation_cpus > 0.0:
        shape = (task.mean_cpus / task.deviation_cpus) ** 2
        usage = np.random.default_rng([seed, index]).gamma(shape, task.mean_cpus / shape, intervals)
    return np.clip(usage / task.threads, LEAST_USAGE, MOST_USAGE)

"""A drawn workload under one way of isolating its critical tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from flowsched_models.isolation.admission import Admission, Bandwidth, Room, admit
from flowsched_models.isolation.board import NONE, new_board
from flowsched_models.isolation.estimate import MOST_CPUS
from flowsched_models.isolation.fair_share import NICE_0, FairRules, fair_rules, group_shares
from flowsched_models.isolation.motion import PULLS, SWITCHES, Log, Plan, run
from flowsched_models.isolation.workload import Demand


class Background(StrEnum):
    """Where the threads of background tasks stand."""

    ROOT = "root"
    """In the root group, each with its own weight: what a machine does with processes in no group of their own."""
    GROUP = "group"
    """All in one group of 1024."""


@dataclass(frozen=True)
class Shares:
    """Isolation by weight: the critical tasks stand in groups beside the background's."""

    share: float | None = 0.95
    """Of a core beside 1024; None: no groups at all, all threads weigh the same."""
    background: Background = Background.ROOT
    group_per_task: bool = False
    """A group for each critical task; else one for all of them."""


@dataclass(frozen=True)
class Reservations:
    """Isolation by deadlines: each critical thread has a constant bandwidth server."""

    runtime_cpus: npt.NDArray[np.float64]
    """[threads, intervals]: runtime / period; 0 for those in the fair class, who weigh the same."""
    period_s: float


@dataclass(frozen=True)
class Motion:
    """What came out. Arrays have one row per thread."""

    demand: Demand
    window_s: float
    used_s: npt.NDArray[np.float64]
    """[threads, windows]: CPU time."""
    release_s: npt.NDArray[np.float64] = field(repr=False)
    """[threads, jobs]: NaN where no job was released."""
    work_s: npt.NDArray[np.float64] = field(repr=False)
    end_s: npt.NDArray[np.float64] = field(repr=False)
    """[threads, jobs]: NaN where a job was not done in time."""
    switches: int
    pulls: int

    @property
    def delay_s(self) -> npt.NDArray[np.float64]:
        """[threads, jobs]: from the release to the end of each job, beyond the CPU time that it needs."""
        return self.end_s - self.release_s - self.work_s


def reserve(demand: Demand, margin: float, runtime_cpus: npt.ArrayLike | None = None) -> npt.NDArray[np.float64]:
    """[threads, intervals]: reservations of the critical threads, at most ``MOST_CPUS`` each.

    ``runtime_cpus`` [threads, 1 or intervals]: what is reserved before the margin; None: what the thread asks for in each
    interval.
    """
    base = demand.usage_cpus if runtime_cpus is None else np.broadcast_to(runtime_cpus, demand.usage_cpus.shape)
    return np.where(demand.critical[:, None], np.minimum(MOST_CPUS, base * (1.0 + margin)), 0.0)


def admission_of(reservations: Reservations, room: Room) -> Admission:
    """Whether the kernel admits the reservations of all threads in the dearest interval."""
    cpus = reservations.runtime_cpus
    dearest = cpus[:, int(np.argmax(cpus.sum(axis=0)))]
    period_us = reservations.period_s * 1e6
    return admit([Bandwidth(share * period_us, period_us) for share in dearest if share > 0.0], room)


def simulate(
    demand: Demand,
    cores: int,
    isolation: Shares | Reservations,
    window_s: float = 1.0,
    rules: FairRules | None = None,
) -> Motion:
    """Run a workload to its end. ``window_s``: over which CPU time is added up."""
    threads = len(demand.task_of)
    critical = demand.critical
    group = np.full(threads, NONE, dtype=np.int64)
    shares: list[float] = []
    reserved = np.zeros(threads, dtype=np.int64)
    runtime = np.zeros_like(demand.usage_cpus)
    period = np.full(threads, demand.loop.period_s)
    if isinstance(isolation, Reservations):
        if isolation.runtime_cpus.shape != demand.usage_cpus.shape:
            raise ValueError("reservations are [threads, intervals], as the usage of the demand is")
        reserved = (isolation.runtime_cpus.max(axis=1) > 0.0).astype(np.int64)
        runtime = isolation.runtime_cpus * isolation.period_s
        period = np.full(threads, isolation.period_s)
    elif isolation.share is not None:
        if isolation.group_per_task:
            tasks = sorted({int(k) for k in demand.task_of[critical]})
            group[critical] = [tasks.index(int(k)) for k in demand.task_of[critical]]
            shares = [group_shares(isolation.share)] * len(tasks)
        else:
            group[critical] = 0
            shares = [group_shares(isolation.share)]
        if isolation.background is Background.GROUP:
            group[~critical] = len(shares)
            shares.append(NICE_0)
    board = new_board(cores, group, shares, np.full(threads, NICE_0), reserved)
    loop = demand.loop
    plan = Plan(
        loop.period_s,
        loop.relative_sleep,
        loop.interval_s,
        window_s,
        demand.end_s,
        demand.duration_s,
        demand.phase_s,
        demand.usage_cpus,
        demand.work_factor,
        demand.wakeup_s,
        runtime,
        period,
    )
    jobs = demand.work_factor.shape
    log = Log(
        np.zeros((threads, math.ceil(demand.end_s / window_s - 1e-9))),
        np.full(jobs, np.nan),
        np.full(jobs, np.nan),
        np.full(jobs, np.nan),
        np.zeros(2, dtype=np.int64),
    )
    run(board, plan, rules or fair_rules(cores), log)
    switches, pulls = (int(log.counts[k]) for k in (SWITCHES, PULLS))
    return Motion(demand, window_s, log.used_s, log.release_s, log.work_s, log.end_s, switches, pulls)

"""What a given schedule will take: durations, p95 and the risk of missing a goal, each with an interval.

The schedule is replayed once as the models say, and once in every draw of the errors that the profiles state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from flowsched.cluster.snapshot import Service
from flowsched_models.cell import Floats
from flowsched_models.document import InputError
from flowsched_models.runtime import HostFactory
from flowsched_models.uncertainty import interval
from flowsched_simulator.latency_windows import median
from flowsched_simulator.replay import Played, placed_services, play, weights_of
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.schedule import Schedule, ScheduledTask
from flowsched_simulator.truth import Draws, true_world
from flowsched_simulator.workload import drawn_workload
from flowsched_simulator.world import World


@dataclass(frozen=True)
class Range:
    """A predicted value."""

    median: float
    """Half of the draws are below."""
    low: float
    """Between this and ``high`` lies the asked-for share of the draws."""
    high: float
    nominal: float
    """If every profile were exact: what ``simulate`` prints."""


@dataclass(frozen=True)
class PredictedJob:
    """One task of the schedule; times in seconds."""

    task: ScheduledTask
    request: float
    """Cores that it requests: its weight."""
    start_s: Range
    end_s: Range
    duration_s: Range


@dataclass(frozen=True)
class PredictedService:
    """One latency service during the schedule."""

    service: Service
    median_p95_us: Range
    """Of the windows of a run."""
    worst_p95_us: Range
    """The highest of the windows of a run."""
    risk: float
    """Share of the draws with any window above the goal."""
    windows_above: float
    """Share of windows above the goal, in the mean of the draws."""


@dataclass(frozen=True)
class Prediction:
    """What a schedule will take."""

    scenario: str
    schedule: str
    level: float
    """Share of the draws that lie in each interval."""
    draws: int
    seed: int
    jobs: tuple[PredictedJob, ...]
    makespan_s: Range
    """From time 0, the first submission, to the last end."""
    services: tuple[PredictedService, ...]
    overcommitted: tuple[tuple[str, int], ...]
    """Machines whose tasks request more than there is, at some moment of so many draws but not as the models say."""


def predict(
    scenario: Scenario,
    schedule: Schedule,
    *,
    draws: int = 400,
    seed: int = 0,
    level: float = 0.9,
    progress: Callable[[int], None] | None = None,
) -> Prediction:
    """Predict a schedule; ``progress`` is called with the number of draws done.

    Raises :class:`InputError` if requests exceed a machine at some moment as the models say.
    """
    placed = drawn_workload(replace(scenario, services=placed_services(scenario, schedule)), seed)
    tasks = {t.name: t for t in placed.tasks}
    first_s = min(tasks[t.job].submit_s for t in schedule.tasks)
    truth = Draws(placed, tuple(tasks.values()), seed, draws)
    rows: list[_ReplayFigures] = []
    overcommitted: Counter[str] = Counter()
    for r in range(-1, draws):
        nominal = r < 0
        world = true_world(placed, (), HostFactory(placed.catalogue), 0.0, seed) if nominal else truth.world(r)
        played = play(placed, schedule, tasks, world)
        if r < 0 and played.overcommitted:
            raise InputError(played.overcommitted.values())
        overcommitted.update(played.overcommitted.keys())
        rows.append(_row(placed, schedule, played, world, first_s))
        if progress is not None:
            progress(r + 1)
    times = np.array([row.times for row in rows])
    latency = np.array([row.latency for row in rows])
    weights = weights_of(schedule)

    def of(values: Floats) -> Range:
        return _range(values, level)

    jobs = tuple(
        PredictedJob(
            task,
            weights[task.job],
            of(times[:, 1 + 2 * i]),
            of(times[:, 2 + 2 * i]),
            of(times[:, 2 + 2 * i] - times[:, 1 + 2 * i]),
        )
        for i, task in enumerate(schedule.tasks)
    )
    services = tuple(
        PredictedService(
            service,
            of(latency[:, k, 0]),
            of(latency[:, k, 1]),
            float(np.mean(latency[1:, k, 2] > 0.0)),
            float(np.mean(latency[1:, k, 2])),
        )
        for k, service in enumerate(placed.services)
    )
    machines = tuple(sorted(overcommitted.items()))
    return Prediction(scenario.name, schedule.name, level, draws, seed, jobs, of(times[:, 0]), services, machines)


class _ReplayFigures(NamedTuple):
    """One replay in figures."""

    times: list[float]
    """The makespan, then start and end of each task."""
    latency: list[tuple[float, float, float]]
    """By service: median and highest p95 of its windows, and the share of windows above the goal."""


def _row(placed: Scenario, schedule: Schedule, played: Played, world: World, first_s: float) -> _ReplayFigures:
    times = [max(played.ended_s.values()) - first_s]
    for task in schedule.tasks:
        times += [played.begun_s[task.job], played.ended_s[task.job]]
    windows = world.latency(min(played.begun_s.values()), max(played.ended_s.values()))
    latency = []
    for service in placed.services:
        p95 = np.array([w.p95_us for w in windows if w.service == service.name])
        counts = np.array([w.windows for w in windows if w.service == service.name], dtype=np.int64)
        over = float(counts[p95 > service.slo_us].sum() / counts.sum())
        latency.append((median(p95, counts), float(p95.max()), over))
    return _ReplayFigures(times, latency)


def _range(values: Floats, level: float) -> Range:
    """Of the nominal value, followed by those of the draws."""
    low, high = interval(values[1:], level)
    return Range(float(np.median(values[1:])), low, high, float(values[0]))

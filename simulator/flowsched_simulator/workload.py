"""The tasks of a scenario with the times at which they are submitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowsched.cluster.snapshot import Task
from flowsched_simulator.scenario import Scenario


def workload(scenario: Scenario, seed: int) -> tuple[Task, ...]:
    """Tasks in the order of submission. A Poisson process keeps the listed order and draws the times from ``seed``."""
    tasks = scenario.tasks
    if scenario.arrivals.kind == "poisson":
        rng = np.random.default_rng([seed, 1])
        gaps = rng.exponential(60.0 / scenario.arrivals.rate_per_minute, size=len(tasks))
        times = np.cumsum(gaps)
        tasks = tuple(replace(t, submit_s=float(at)) for t, at in zip(tasks, times, strict=True))
    order = sorted(range(len(tasks)), key=lambda i: (tasks[i].submit_s, i))
    return tuple(tasks[i] for i in order)

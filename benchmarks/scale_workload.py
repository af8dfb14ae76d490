"""Clusters and tasks for rounds at linear prices, drawn with a seed: what the presets of `benchmarks.rounds` run on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.task_class import MachineKind, MachineSpec, TaskClass
from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.pricing.linear.policy import CostModel
from flowsched.round.linear.cluster_rows import ClusterRows

CORE = 1000
MEMORY_PER_CORE = 4096
WIDTHS = (1, 2, 4, 8)
SHARES = (0.90, 0.06, 0.03, 0.01)
PRESSURE_BUCKET = 1 / 8
KINDS = (("small", 8, 0.85), ("middle", 16, 1.0), ("large", 24, 1.2))
"""Type, cores and bandwidth factor; equal parts, so 16 cores on average."""


@dataclass
class Mix:
    """Classes and how often each turns up."""

    classes: tuple[TaskClass, ...]
    share: np.ndarray


def draw_mix(classes: int, seed: int, run_s: float = 300.0) -> Mix:
    """Classes of widths 1, 2, 4 and 8 for 90, 6, 3 and 1 % of the tasks, each with its own profile."""
    rng = np.random.default_rng([seed, classes])
    per_width = np.maximum(1, np.rint(np.array(SHARES) ** 0.5 / sum(s**0.5 for s in SHARES) * classes)).astype(int)
    per_width[0] += classes - per_width.sum()
    drawn, share = [], []
    for width, count, part in zip(WIDTHS, per_width.tolist(), SHARES, strict=True):
        weights = rng.dirichlet(np.full(count, 3.0))
        for i in range(count):
            slow = tuple((name, float(rng.uniform(0.0, 0.4))) for name, _, _ in KINDS)
            best = min(s for _, s in slow)
            drawn.append(
                TaskClass(
                    f"w{width}-{i}",
                    width * CORE,
                    (("memory", width * int(rng.integers(1, 5)) * 512),),
                    float(rng.uniform(0.2, 1.0)),
                    float(rng.uniform(0.01, 0.09)) * width,
                    run_s * float(rng.uniform(0.5, 2.0)),
                    slowness=tuple((name, round(s - best, 6)) for name, s in slow),
                )
            )
        share += (weights * part).tolist()
    return Mix(tuple(drawn), np.array(share) / sum(share))


def machines(count: int) -> list[MachineSpec]:
    """Machines of three types in equal parts."""
    return [
        MachineSpec(
            f"node-{i:06d}",
            MachineKind(KINDS[i % 3][0], (), KINDS[i % 3][2]),
            {"cpu": KINDS[i % 3][1] * CORE, "memory": KINDS[i % 3][1] * MEMORY_PER_CORE},
        )
        for i in range(count)
    ]


def policy() -> CostModel:
    """The flow policy with buckets of 1/8 of pressure; those of sensitivity are as wide in cost."""
    mean_pressure, mean_sensitivity = 0.05, 0.6
    return FlowCostModel(PRESSURE_BUCKET, PRESSURE_BUCKET * mean_sensitivity / mean_pressure, waiting=4.0, growth=4.0)


def filled(count: int, mix: Mix, use: float, seed: int) -> ClusterRows:
    """A cluster in which tasks of the mix take ``use`` of the cores, spread as they fell."""
    cluster = ClusterRows.of(policy())
    rows = cluster.add_machines(machines(count))
    numbers = np.array([cluster.intern(c) for c in mix.classes])
    rng = np.random.default_rng([seed, count, 1])
    cores = cluster.machines.free[rows, 0] // CORE
    target = int(cores.sum() * use)
    widths = np.array([c.width_milli // CORE for c in mix.classes])
    # A tenth more than it takes on average, so that the draw does not run short.
    drawn = rng.choice(len(numbers), size=int(1.1 * target / (widths @ mix.share)) + 100, p=mix.share)
    drawn = drawn[np.cumsum(widths[drawn]) <= target]
    drawn = drawn[np.argsort(-widths[drawn], kind="stable")]
    tasks = cluster.submit(numbers[drawn], np.zeros(len(drawn)))
    place = _scatter(cluster, rows, numbers[drawn], rng)
    cluster.bind(tasks[place >= 0], place[place >= 0])
    cluster.leave(tasks[place < 0])
    return cluster


def _scatter(cluster: ClusterRows, rows: np.ndarray, classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A machine for every task, at random among those with room; -1 where a few draws found none."""
    free = cluster.machines.free.copy()
    place = np.full(len(classes), -1, dtype=np.int64)
    for _ in range(200):
        open_ = np.flatnonzero(place < 0)
        if not len(open_):
            break
        there = rows[free[rows, 0] > 0]
        draw = rng.choice(there, size=len(open_), p=free[there, 0] / free[there, 0].sum())
        demand = cluster.classes.demands[classes[open_]]
        # One arrival per machine and turn, so that sums need no order.
        _, first = np.unique(draw, return_index=True)
        first.sort()
        fits = (free[draw[first]] >= demand[first]).all(axis=1)
        chosen = first[fits]
        free[draw[chosen]] -= demand[chosen]
        place[open_[chosen]] = draw[chosen]
    return place

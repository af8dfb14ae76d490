"""Small random clusters for rounds at linear prices, as strategies, and a naive trace of what is allowed in them.

The trace is plain Python over dictionaries, one task at a time: slow, obvious, and independent of the engine's arrays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from small_worlds import (
    DIVIDING,
    ODD,
    REAL_SIZES,
    WHOLE_SIZES,
    Draw,
    World,
    draw_world,
    varied,
)

from flowsched.pricing.linear.policies.flow import FlowCostModel
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundOutcome, Rounds, RoundSettings
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.network import ScaleNetwork, build_network
from flowsched.round.linear.waiting import Waiting, survey
from flowsched.solvers import make_solver

__all__ = [
    "DIVIDING",
    "ODD",
    "REAL_SIZES",
    "WHOLE_SIZES",
    "Draw",
    "Stand",
    "World",
    "breaches",
    "compacted",
    "decide",
    "draw_world",
    "draws",
    "varied",
    "worlds",
]

DUE_AGE_S = 600.0


@st.composite
def draws(draw: st.DrawFn, **fixed: object) -> Draw:
    """Kinds of clusters; what is in ``fixed`` stays as it is."""
    free = {
        "machines": st.integers(1, 7),
        "classes": st.integers(1, 5),
        "tasks": st.integers(1, 14),
        "use": st.sampled_from((0.0, 0.4, 0.9)),
        "widths": st.sampled_from((DIVIDING, ODD)),
        "sizes": st.sampled_from((WHOLE_SIZES, REAL_SIZES)),
        "labels": st.booleans(),
        "memory": st.booleans(),
        "gpus": st.booleans(),
        "services": st.booleans(),
        "bucket": st.sampled_from((0.0, 0.125, 0.5)),
        "growth": st.sampled_from((0.0, 4.0)),
    }
    return Draw(**{k: fixed[k] if k in fixed else draw(s) for k, s in free.items()}, **_rest(fixed, free))  # type: ignore[arg-type]


def worlds(**fixed: object) -> st.SearchStrategy[World]:
    """Worlds of the kinds that ``draws`` gives."""
    return st.builds(draw_world, st.integers(0, 2**31), draws(**fixed))


def _rest(fixed: dict[str, object], free: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in fixed.items() if k not in free}


@dataclass(frozen=True)
class Stand:
    """A state as a round's first network sees it."""

    cluster: ClusterRows
    compaction: Compaction
    waiting: Waiting
    built: ScaleNetwork


def compacted(cluster: ClusterRows, now_s: float, compaction: Compaction | None = None) -> Stand:
    """The network of all that waits, whatever its priority."""
    compaction = compaction or Compaction(cluster)
    pending = cluster.tasks.waiting()
    compaction.catch_up(np.flatnonzero(cluster.machines.alive), np.unique(cluster.tasks.task_class[pending]))
    waiting = survey(cluster, pending, now_s, DUE_AGE_S)
    return Stand(cluster, compaction, waiting, build_network(cluster, compaction, waiting))


def decide(
    world: World, settings: RoundSettings | None = None, solver: str = "ortools"
) -> tuple[ClusterRows, RoundOutcome]:
    """One round in a world."""
    cluster = world.cluster()
    rounds = Rounds(cluster, make_solver(solver), settings or RoundSettings())
    return cluster, rounds.decide(world.now_s, world.barred_rows(cluster))


def breaches(world: World, cluster: ClusterRows, outcome: RoundOutcome) -> list[str]:
    """Whatever a round did that is not allowed."""
    wrong: list[str] = []
    if len(set(outcome.tasks.tolist())) < len(outcome.tasks):
        wrong.append("a task has two places")
    if set(outcome.tasks.tolist()) & set(outcome.waits.tolist()):
        wrong.append("a task is placed and waits")
    if len(outcome.tasks) + len(outcome.waits) != len(world.waiting):
        wrong.append("a task got lost")
    machine_of = {spec.name: i for i, spec in enumerate(world.machines)}
    come: Counter[tuple[int, int]] = Counter()
    number = {c: i for i, c in enumerate(world.classes)}
    for task, row in zip(outcome.tasks.tolist(), outcome.machines.tolist(), strict=True):
        come[machine_of[cluster.machines.name(row)], number[cluster.classes[cluster.tasks.task_class[task]]]] += 1
    for i, spec in enumerate(world.machines):
        mine = {c: n for (m, c), n in come.items() if m == i}
        if mine and world.barred[i]:
            wrong.append(f"{spec.name} is barred")
        load: Counter[str] = Counter()
        pressure = spec.readings.get("pressure", 0.0)
        for c, m in world.running:
            if m == i:
                load.update(world.classes[c].demand())
                pressure += world.classes[c].pressure
        for c, n in mine.items():
            task_class = world.classes[c]
            if not set(task_class.selector) <= set(spec.kind.labels):
                wrong.append(f"{task_class.name} is on {spec.name} against its selector")
            for resource, amount in task_class.demand().items():
                load[resource] += n * amount
            pressure += n * task_class.pressure
        if mine:
            asked = {r for c in mine for r in world.classes[c].demand()}
            wrong += [
                f"{spec.name}: {load[r]} of {spec.allocatable.get(r, 0)} {r}"
                for r in asked
                if load[r] > spec.allocatable.get(r, 0)
            ]
            adds = any(world.classes[c].pressure > 0.0 for c in mine)
            if adds and pressure > spec.limits.get("pressure", np.inf) + 1e-6:
                wrong.append(f"{spec.name}: pressure {pressure} above its limit")
    return wrong


def flow_policy(bucket: float) -> FlowCostModel:
    """The policy of the worlds, with another bucket."""
    return FlowCostModel(bucket, bucket * 4.0, waiting=4.0, growth=4.0)

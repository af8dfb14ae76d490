"""Part `large` of `benchmarks.engine`: rounds of clusters where `flow` looks at candidates only.

Every row is one cluster with 60 % of its cores busy and tasks that wait, decided by `flow` as it is, by `flow` on all
machines without a budget of forecasts, and by two peers on the same snapshots: `flow-network`, the scale engine at linear
prices, and `kube-default`, a greedy. Each round has a number of its own, so it draws anew, and is a little later than that
before. The penalty of the first round's decisions is measured by `engine_penalty`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np

from benchmarks.engine_penalty import Yardstick
from benchmarks.engine_snapshots import pods
from benchmarks.engine_text import aligned, bar, bar_lines, number, spread
from benchmarks.engine_worker import settings_with
from flowsched import Decisions, FlowScheduler, Snapshot
from flowsched.cluster.cluster_state import ClusterState
from flowsched.round.linear.choice import chosen
from flowsched.round.linear.network_scheduler import NetworkScheduler
from flowsched.solvers import make_solver
from flowsched_models.runtime import HostFactory
from flowsched_simulator.baselines.kube_default import KubeDefault
from flowsched_simulator.baselines.registry import variants_of

WORLDS = ((1000, 20, 1), (5000, 20, 1), (12_500, 20, 1), (12_500, 150, 10))
"""Machines, kinds of task that wait, and equal tasks of each kind."""
BUSY = 0.6
ROUNDS = 8
UNLIMITED = {"candidates": 0, "pricings": 10**9}
EXACT_KINDS = 20
"""With more kinds a round that looks at all machines would take minutes."""
GREEDY_TASKS = 100
"""With more tasks the greedy, which is Python of the simulator, would take minutes."""
COST_LIMIT = 1.03


def measure(seeds: Sequence[int], quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each world and seed."""
    for seed in seeds:
        for machines, kinds, copies in ((600, 3, 2),) if quick else WORLDS:
            row = one_world(machines, kinds, copies, seed, 2 if quick else ROUNDS)
            click.echo(
                f"seed {seed}, {machines} machines, {kinds * copies} tasks: {row['cpu_p50_ms']:.0f} ms", err=True
            )
            yield row


def one_world(machines: int, kinds: int, copies: int, seed: int, rounds: int) -> dict[str, Any]:
    """CPU of rounds, and the penalty of the first one's decisions."""
    snapshot = pods(kinds, machines, seed, BUSY)
    pending = [replace(t, name=f"{t.name}-{k}", job=f"{t.job}-{k}") for t in snapshot.pending for k in range(copies)]
    snapshot = replace(snapshot, pending=tuple(pending))
    solver = make_solver("ortools")
    ours = FlowScheduler(solver, settings_with({}))
    linear = NetworkScheduler(chosen("flow-network"), solver)
    greedy = KubeDefault(variants_of("kube-default")[0])
    ms, first = timed(ours.decide, snapshot, rounds)
    state = ClusterState.of(snapshot)
    linear_ms, _ = timed(lambda now: linear.decide_on(state, now.now_s), snapshot, rounds)
    yardstick = Yardstick(snapshot, HostFactory(snapshot.catalogue))
    penalty = yardstick.total(first)
    row = {
        "seed": seed,
        "machines": machines,
        "kinds": kinds,
        "tasks": len(pending),
        "cpu_p50_ms": float(np.median(ms)),
        "cpu_p95_ms": float(np.quantile(ms, 0.95)),
        "linear_p50_ms": float(np.median(linear_ms)),
        "penalty": penalty,
        "forecasts": first.counts["forecasts"],
        "placed": len(first.placements),
    }
    if len(pending) <= GREEDY_TASKS:
        row["greedy_p50_ms"] = float(np.median(timed(greedy.decide, snapshot, max(1, rounds // 2))[0]))
    if kinds <= EXACT_KINDS:
        exact_ms, exact = timed(FlowScheduler(solver, settings_with(UNLIMITED)).decide, snapshot, 1)
        row |= {"exact_ms": exact_ms[0], "exact_penalty": yardstick.total(exact)}
    return row


def timed(decide: Any, snapshot: Snapshot, rounds: int) -> tuple[list[float], Decisions]:
    """Milliseconds of CPU of each round after the first, which compiles and remembers, or of the only one; its decisions."""
    spent, decisions = [], []
    for k in range(rounds):
        now = replace(snapshot, now_s=snapshot.now_s + 0.1 * k, round=k)
        began = time.process_time()
        decisions.append(decide(now))
        spent.append((time.process_time() - began) * 1e3)
    return spent[1:] or spent, decisions[0]


def bars(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is demanded of decisions; times have no bar, as the peers are other programs on other state."""
    penalties = [r["penalty"] / r["exact_penalty"] for r in rows if "exact_penalty" in r]
    return [bar("penalty over that of exact prices on all machines, worst", max(penalties, default=None), COST_LIMIT)]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each world, means over the seeds."""
    head = ["machines", "tasks", "kinds", "flow CPU ms p50", "p95", "all machines", "flow-network", "kube-default"]
    lines = [[*head, "forecasts", "placed", "penalty over exact"]]
    for machines, tasks in dict.fromkeys((r["machines"], r["tasks"]) for r in rows):
        here = [r for r in rows if (r["machines"], r["tasks"]) == (machines, tasks)]
        times = ("cpu_p50_ms", "cpu_p95_ms", "exact_ms", "linear_p50_ms", "greedy_p50_ms", "forecasts", "placed")
        figures = [spread([r.get(key) for r in here], 0) for key in times]
        over = [r["penalty"] / r["exact_penalty"] if "exact_penalty" in r else None for r in here]
        lines.append([str(machines), str(tasks), number(here[0]["kinds"], 0), *figures, spread(over, 4)])
    return "\n\n".join([aligned(lines), bar_lines(bars(rows))])

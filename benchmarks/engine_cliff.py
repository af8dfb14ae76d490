"""Part `cliff` of `benchmarks.engine`: what one more measured pod costs, round by round.

A round with n pods is decided twice: with default settings, and with a budget of forecasts that no round uses up. Both plans
are measured by `engine_penalty`, per pod. A *step* is how far the ratio of the two rises from n to n + 1; the penalties by
themselves also rise and fall because the pods differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import click
import numpy as np

from benchmarks.engine_penalty import Yardstick
from benchmarks.engine_snapshots import pods
from benchmarks.engine_text import aligned, bar, bar_lines, number
from benchmarks.engine_worker import settings_with
from flowsched import solve
from flowsched_models.runtime import HostFactory

MACHINES = 60
COUNTS = range(8, 61)
MANY, REPEATS = 500, 3
UNLIMITED = 10**9
RATIO_LIMIT, STEP_LIMIT, SECONDS_LIMIT = 1.03, 0.02, 1.0


def measure(seeds: Sequence[int], quick: bool) -> Iterator[dict[str, Any]]:
    """One row per cluster and number of pods, and one for the round with many of them."""
    machines, counts, many = (6, (8, 9), 12) if quick else (MACHINES, COUNTS, MANY)
    for seed in seeds:
        for count in counts:
            row = one_round(count, machines, seed)
            click.echo(f"seed {seed}, {count} pods: {row['ratio']:.4f}", err=True)
            yield row
        yield timed_round(many, machines, seed)


def one_round(count: int, machines: int, seed: int) -> dict[str, Any]:
    """Penalty per pod at the default budget and without one."""
    snapshot = pods(count, machines, seed)
    yardstick = Yardstick(snapshot, HostFactory(snapshot.catalogue))
    usual = solve(snapshot, settings=settings_with({}))
    unlimited = solve(snapshot, settings=settings_with({"pricings": UNLIMITED}))
    penalty, free = yardstick.total(usual) / count, yardstick.total(unlimited) / count
    return {
        "seed": seed,
        "pods": count,
        "machines": machines,
        "penalty": penalty,
        "unlimited": free,
        "ratio": penalty / free,
        "placed": len(usual.placements),
        "placed_unlimited": len(unlimited.placements),
        "planned": sum(p.planned is not None for p in usual.postponements),
    }


def timed_round(count: int, machines: int, seed: int) -> dict[str, Any]:
    """The least of some repetitions of one round, in seconds of the clock and of CPU."""
    snapshot = pods(count, machines, seed)
    settings, clock, cpu, placed = settings_with({}), [], [], 0
    for _ in range(REPEATS):
        began, began_cpu = time.perf_counter(), time.process_time()
        placed = len(solve(snapshot, settings=settings).placements)
        clock.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return {
        "seed": seed,
        "pods": count,
        "machines": machines,
        "seconds": min(clock),
        "cpu_s": min(cpu),
        "placed": placed,
    }


def steps(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int, float]]:
    """(seed, pods, rise of the ratio when the next pod comes)."""
    found = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        here = sorted((r["pods"], r["ratio"]) for r in rows if r["seed"] == seed and "ratio" in r)
        found += [(seed, n, b - a) for (n, a), (m, b) in pairwise(here) if m == n + 1]
    return found


def bars(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What rounds have to keep to, in the worst case over the seeds."""
    worst = max(r["ratio"] for r in rows if "ratio" in r)
    step = max((s for _, _, s in steps(rows)), default=None)
    many = [r for r in rows if "seconds" in r]
    return [
        bar("worst penalty per pod over that without a budget", worst, RATIO_LIMIT),
        bar("largest step of that ratio from n to n + 1", step, STEP_LIMIT),
        *(
            bar(
                f"{r['pods']} pods on {r['machines']} machines, seed {r['seed']}: CPU seconds",
                r["cpu_s"],
                SECONDS_LIMIT,
            )
            for r in many
        ),
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Numbers of pods over the seeds, then the bars."""
    lines = [["pods", "penalty per pod", "unlimited", "ratio", "worst", "placed", "unlimited"]]
    for count in dict.fromkeys(row["pods"] for row in rows if "ratio" in row):
        here = [row for row in rows if row["pods"] == count and "ratio" in row]
        means = [float(np.mean([r[k] for r in here])) for k in ("penalty", "unlimited", "ratio")]
        lines.append(
            [
                str(count),
                *(number(m, 4) for m in means),
                number(max(r["ratio"] for r in here), 4),
                *(number(float(np.mean([r[k] for r in here]))) for k in ("placed", "placed_unlimited")),
            ]
        )
    many = [
        f"{r['pods']} pods on {r['machines']} machines, seed {r['seed']}: {r['seconds']:.2f} s, {r['cpu_s']:.2f} s of CPU, "
        f"{r['placed']} placed"
        for r in rows
        if "seconds" in r
    ]
    return "\n\n".join([aligned(lines), "\n".join(many), bar_lines(bars(rows))])

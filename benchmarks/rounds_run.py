"""One run of a preset's rounds, timed from events to decisions, and one that only looks: certificates, sizes, peers."""

from __future__ import annotations

import gc
import resource
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rounds_course import Course
from benchmarks.rounds_presets import PERIOD_S, PRESETS, Preset
from flowsched.round.linear.linear_round import RoundOutcome, Rounds
from flowsched.solvers import make_solver

WARM_ROUNDS = 12
"""Rounds before the first that counts: the first one of all counts every machine, and idle clusters get their few tasks."""
QUANTILES = (50, 95, 99)
SOLVER = "relay"
"""Network simplex with a counted budget, then OR-tools: the fastest on networks of classes and groups."""
Look = Callable[[int, float, Course, Rounds, RoundOutcome], None]
"""Called before a round's decisions are carried out: its number, the cluster's clock, the cluster, who decides, and what was
decided."""


@dataclass
class Run:
    """What one run measured."""

    whole_ms: list[float] = field(default_factory=list)
    phases_ms: dict[str, list[float]] = field(default_factory=dict)
    digest: int = 0
    """Of all decisions: equal for equal courses."""
    tasks: int = 0
    """Tasks that are there once the first round that counts has begun."""
    churn: list[float] = field(default_factory=list)
    """Share of the running tasks that left, round by round."""
    came: list[int] = field(default_factory=list)

    def quantiles(self) -> dict[str, float]:
        """The latencies as figures of a row."""
        return {f"p{q}_ms": float(np.percentile(self.whole_ms, q)) for q in QUANTILES}


def run_rounds(preset: Preset, rounds: int, seed: int, look: Look | None = None) -> Run:
    """Warm up, then so many rounds: events, decide, bind.

    Python's garbage collector stays on; what is there after the set-up is frozen, as a server that has started can do.
    """
    course = Course(preset, seed)
    cluster = course.cluster
    decider = Rounds(cluster, make_solver(SOLVER))
    run = Run()
    frozen_before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        for k in range(-WARM_ROUNDS, rounds):
            now_s = (k + WARM_ROUNDS) * PERIOD_S
            events = course.draw()
            created = np.full(len(events.come), now_s)
            began = time.perf_counter()
            cluster.leave(events.leave)
            cluster.submit(events.come, created)
            told = time.perf_counter()
            outcome = decider.decide(now_s)
            decided = time.perf_counter()
            if k == 0:
                run.tasks = cluster.tasks.count
            if look is not None and k >= 0:
                look(k, now_s, course, decider, outcome)
            acting = time.perf_counter()
            cluster.bind(outcome.tasks, outcome.machines)
            bound = time.perf_counter()
            if k < 0:
                continue
            run.whole_ms.append((decided - began + bound - acting) * 1e3)
            phases = {"events": (told - began) * 1e3, **outcome.timings_ms, "bind": (bound - acting) * 1e3}
            for name, ms in phases.items():
                run.phases_ms.setdefault(name, []).append(ms)
            run.digest = zlib.crc32(outcome.machines.tobytes(), zlib.crc32(outcome.tasks.tobytes(), run.digest))
            run.churn.append(len(events.leave) / events.running if events.running else 1.0)
            run.came.append(len(events.come))
    finally:
        if not frozen_before:  # what others have frozen would be looked at again as well
            gc.unfreeze()
    return run


@dataclass
class Watch:
    """What is written down about rounds beside their times."""

    gap_every: int
    gaps: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    """What buckets can cost at most, in units of cost."""
    error_shares: list[float] = field(default_factory=list)
    """The same over the round's cost."""
    belief: list[float] = field(default_factory=list)
    sizes: dict[str, list[int]] = field(default_factory=dict)

    def __call__(self, k: int, now_s: float, course: Course, decider: Rounds, outcome: RoundOutcome) -> None:
        """Look at one round."""
        del now_s
        counts = {"placed": len(outcome.tasks), "left_waiting": len(outcome.waits), **outcome.counts}
        for name, count in counts.items():
            self.sizes.setdefault(name, []).append(count)
        if k % self.gap_every:
            return
        certificate = outcome.certificate
        if certificate is None:
            return
        self.gaps.append(certificate.gap_relative)
        tasks = np.zeros(len(course.cluster.classes), dtype=np.int64)
        for level in outcome.levels:
            tasks[level.waiting.classes] += level.waiting.counts
        # A round that is optimal for the middles of the buckets is at most twice their error above the optimum.
        error = 2.0 * decider.compaction.bucket_error(tasks)
        self.errors.append(error)
        if certificate.primal > 0.0:
            self.error_shares.append(error / certificate.primal)
        realised = float(outcome.cost.sum())
        if realised > 0.0:
            self.belief.append(abs(realised - float(outcome.estimate.sum())) / realised)

    def figures(self) -> dict[str, Any]:
        """The figures of a row; sizes are medians over the rounds."""
        sizes = {name: round(float(np.median(counts))) for name, counts in self.sizes.items()}
        return {
            "gap_p50": _quantile(self.gaps, 50),
            "gap_p95": _quantile(self.gaps, 95),
            **{name: sizes.pop(name, 0) for name in ("arcs", "classes", "groups")},
            "sizes": sizes,
            "bucket_error": {
                "bound_p50": _quantile(self.errors, 50),
                "of_cost_p50": _quantile(self.error_shares, 50),
            },
            "belief_p95": _quantile(self.belief, 95),
            "certificates": len(self.gaps),
        }


def compile_all() -> None:
    """Everything once on a small cluster, so that no compilation is timed."""
    small = replace(PRESETS["google"], machines=60)
    run_rounds(small, 2, 0, Watch(1))


def best_run(runs: list[Run]) -> Run:
    """The one with the least p95. Raises ``RuntimeError`` if runs of one seed decided differently."""
    if len({run.digest for run in runs}) > 1:
        raise RuntimeError("runs of the same rounds decided differently")
    return min(runs, key=lambda run: run.quantiles()["p95_ms"])


def peak_rss_mib() -> float:
    """The most memory that this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # The kernel's count for this program alone; getrusage also knows the process that started it.
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def _quantile(values: list[float], q: float) -> float | None:
    return float(np.percentile(values, q)) if values else None

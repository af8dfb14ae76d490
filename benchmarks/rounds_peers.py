"""Peers on the very rounds that were measured: a plain greedy, and other ways to the network's optimum.

The greedy takes the waiting tasks in the order in which they came and puts each where it costs least then, with the same
prices and constraints, or leaves it where every place costs more than waiting: a list scheduler at its best, with one row
of numbers for every class kept up to date. The network without compaction has its tasks and machines one by one; OR-tools,
LEMON and networkx solve it from scratch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.lemon import LemonError, solve_by_lemon
from benchmarks.rounds_course import Course
from benchmarks.uncompacted import build_uncompacted
from flowsched.cluster.machine_arrays import FIXED, UNLIMITED
from flowsched.network.network import Network
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.linear_round import RoundOutcome, Rounds
from flowsched.round.linear.waiting import Waiting
from flowsched.solvers import make_solver
from flowsched.support.arrays import FloatArray

MOST_ARCS, MANY_ARCS, FEW_ARCS = 16_000_000, 4_000_000, 60_000
"""Without compaction: most arcs that are tried, more than are tried twice, most that networkx is given."""
LIMIT_S = 120.0


@dataclass(frozen=True)
class Greedy:
    """What the plain greedy does with a round."""

    placed: int
    cost: float
    """Placements as they come one after the other, and waiting: what ours is measured by."""
    ms: float


def place_greedily(cluster: ClusterRows, waiting: Waiting) -> Greedy:
    """One task after the other, each on the machine where it costs least then; the cluster stays as it is."""
    leaving = dict(zip(waiting.tasks.tolist(), waiting.cost.tolist(), strict=True))
    tasks = waiting.tasks[np.argsort(cluster.tasks.sequence[waiting.tasks], kind="stable")]
    began = time.perf_counter()
    rows = np.flatnonzero(cluster.machines.alive)
    if (cluster.machines.limits[rows] < UNLIMITED).any():
        raise ValueError("the plain greedy knows no limits on readings")
    table = cluster.classes.table()
    kind = cluster.machines.kind[rows]
    free = cluster.machines.free[rows]
    scaled: FloatArray = cluster.classes.factors[kind] * cluster.machines.readings[rows] / FIXED
    price = table.base[:, kind] + table.coefficients @ scaled.T
    for c in range(len(cluster.classes)):
        price[c, (free < cluster.classes.demands[c]).any(axis=1)] = np.inf
    effects = cluster.classes.effects / FIXED
    placed, cost = 0, 0.0
    for task in tasks.tolist():
        c = cluster.tasks.task_class[task]
        m = int(price[c].argmin())
        here = float(price[c, m])
        if here == np.inf or here > leaving[task]:
            cost += leaving[task]
            continue
        placed += 1
        cost += here
        free[m] -= cluster.classes.demands[c]
        scaled[m] += cluster.classes.factors[kind[m]] * effects[c]
        price[:, m] = table.base[:, kind[m]] + table.coefficients @ scaled[m]
        price[(cluster.classes.demands > free[m]).any(axis=1), m] = np.inf
    return Greedy(placed, cost, (time.perf_counter() - began) * 1e3)


@dataclass
class Peers:
    """Looks at some rounds of a run and lets the peers decide them too."""

    rounds: frozenset[int]
    ms: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Who was not asked, or gave no answer, and why."""
    greedy_cost: list[float] = field(default_factory=list)
    our_cost: list[float] = field(default_factory=list)
    greedy_gap: list[float] = field(default_factory=list)
    greedy_placed: list[int] = field(default_factory=list)
    our_placed: list[int] = field(default_factory=list)
    arcs: list[int] = field(default_factory=list)

    def __call__(self, k: int, now_s: float, course: Course, decider: Rounds, outcome: RoundOutcome) -> None:
        """One round, if it is one of those."""
        del now_s
        if k not in self.rounds or not outcome.levels:
            return
        if len(outcome.levels) > 1:
            # Due tasks are a level of their own, and so is each priority.
            self.skipped["rounds of several levels"] = "the peers decide one level"
            return
        level = outcome.levels[0]
        greedy = place_greedily(course.cluster, level.waiting)
        self._note("greedy", greedy.ms)
        self.greedy_cost.append(greedy.cost)
        self.our_cost.append(level.primal)
        self.greedy_placed.append(greedy.placed)
        self.our_placed.append(len(outcome.tasks))
        certificate = outcome.certificate
        if certificate is not None and greedy.cost > certificate.unconstrained:
            self.greedy_gap.append((greedy.cost - certificate.bound) / (greedy.cost - certificate.unconstrained))
        if level.network is not None:
            self._note("ortools_compacted", _solve_ms("ortools", level.network.network)[0])
        self._uncompacted(course.cluster, level.waiting, decider)

    def figures(self) -> dict[str, Any]:
        """Medians over the rounds."""
        if not self.our_cost:
            return {"skipped": self.skipped}
        return {
            "rounds": len(self.our_cost),
            "ms": {name: float(np.median(ms)) for name, ms in self.ms.items()},
            "uncompacted_arcs": round(float(np.median(self.arcs))) if self.arcs else None,
            "greedy_cost": float(np.sum(self.greedy_cost)),
            "our_cost": float(np.sum(self.our_cost)),
            "greedy_gap_p50": float(np.median(self.greedy_gap)) if self.greedy_gap else None,
            "greedy_placed": int(np.sum(self.greedy_placed)),
            "our_placed": int(np.sum(self.our_placed)),
            "skipped": self.skipped,
        }

    def _uncompacted(self, cluster: ClusterRows, waiting: Waiting, decider: Rounds) -> None:
        rows = np.flatnonzero(cluster.machines.alive)
        least = cluster.classes.demands[waiting.classes].min(axis=0, initial=1 << 60)
        about = int((cluster.machines.free[rows] >= least).all(axis=1).sum()) * len(waiting.tasks)
        if about > MOST_ARCS:
            self.skipped["uncompacted"] = f"about {about:,} arcs from tasks to machines; up to {MOST_ARCS:,} are tried"
            return
        if self.arcs and about > MANY_ARCS:
            return  # one such round says enough
        began = time.perf_counter()
        network = build_uncompacted(cluster, decider.compaction, waiting).network
        self._note("uncompacted_build", (time.perf_counter() - began) * 1e3)
        self.arcs.append(network.arc_count)
        ms, cost = _solve_ms("ortools", network)
        self._note("uncompacted_ortools", ms)
        try:
            answer = solve_by_lemon(network, LIMIT_S)
            self._note("uncompacted_lemon", answer.solve_ms)
            _agree("LEMON", answer.cost, cost)
        except LemonError as error:
            self.skipped["uncompacted_lemon"] = str(error)
        if network.arc_count > FEW_ARCS:
            self.skipped["uncompacted_networkx"] = f"{network.arc_count:,} arcs; up to {FEW_ARCS:,} are tried"
            return
        ms, other = _solve_ms("networkx", network)
        self._note("uncompacted_networkx", ms)
        _agree("networkx", other, cost)

    def _note(self, name: str, ms: float) -> None:
        self.ms.setdefault(name, []).append(ms)


def _solve_ms(name: str, network: Network) -> tuple[float, int]:
    solver = make_solver(name)
    began = time.perf_counter()
    solution = solver.solve(network)
    return (time.perf_counter() - began) * 1e3, solution.cost


def _agree(name: str, cost: int, other: int) -> None:
    if cost != other:
        raise RuntimeError(f"solvers disagree on the optimal cost: {name} {cost}, OR-tools {other}")


def chosen_rounds(rounds: int, count: int) -> frozenset[int]:
    """So many rounds, evenly spread."""
    return frozenset(np.unique(np.linspace(0, rounds - 1, min(count, rounds)).round().astype(np.int64)).tolist())


def together(*looks: Any) -> Any:
    """Several looks at every round, one after the other."""

    def look(*what: Any) -> None:
        for one in looks:
            one(*what)

    return look

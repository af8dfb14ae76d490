"""One round at cluster scale: compact, price, build, solve, round to whole tasks, settle; certified once somebody asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.decision import Certificate
from flowsched.scale.certificate import Evidence, certify
from flowsched.scale.compaction import Compaction
from flowsched.scale.desk import Desk
from flowsched.scale.ledger import Ledger
from flowsched.scale.network import ScaleNetwork, build_network
from flowsched.scale.openings import Openings
from flowsched.scale.waiting import Waiting, survey, without
from flowsched.solvers import Solution, Solver, Status
from flowsched.stage_timer import StageTimer


@dataclass(frozen=True)
class RoundSettings:
    """What an operator may set about rounds at cluster scale."""

    due_age_s: float = 600.0
    """Waiting costs grow up to this age and not beyond."""
    resolves: int = 2
    """Further networks for what rounding left over."""
    worth_a_solve: float = 0.02
    """Share of tasks that must be left over for another network; fewer find their places one after the other."""
    settle_looks: int = 200_000
    """Passes in which classes are placed anew, beside all others, end when so many machines were looked at, or nothing
    moves."""


@dataclass(frozen=True, eq=False)
class Level:
    """The tasks of one priority in a round: what waited, what the first network said, and what came of it."""

    waiting: Waiting
    network: ScaleNetwork | None
    """None where no network was needed because nothing fits anywhere."""
    solution: Solution | None
    evidence: Evidence
    primal: float
    """Placements as they come one after the other, and waiting."""
    keys: Sequence[tuple[int, ...]] = ()
    """Kind and buckets of every group that the network may have, by the number that it has there."""


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """What a round decides; nothing is done yet. Arrays by placement are in the order of priority, class and arrival."""

    tasks: IntArray
    """Task rows that start now."""
    machines: IntArray
    """Where."""
    believed: FloatArray
    """What each was thought to cost when its place was chosen."""
    cost: FloatArray
    """What each costs beside all others at the end of the round."""
    waits: IntArray
    """Task rows that wait on, in the order in which they came."""
    levels: tuple[Level, ...]
    upkeep: Mapping[str, Mapping[str, int]]
    counts: Mapping[str, int]
    timings_ms: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def certificates(self) -> tuple[Certificate, ...]:
        """Those of the levels. Worked out when they are first asked for."""
        return tuple(certify(level.evidence, level.primal) for level in self.levels)

    @cached_property
    def certificate(self) -> Certificate | None:
        """How far from optimal it can be: priority by priority, summed. Worked out when it is first asked for."""
        found = self.certificates
        if not found:
            return None
        return Certificate(
            "lagrangian",
            sum(c.primal for c in found),
            sum(c.bound for c in found),
            sum(c.unconstrained for c in found),
            {name: price for c in found for name, price in c.prices.items()},
        )


class Rounds:
    """Decides rounds on one ledger, and remembers between them what did not change."""

    def __init__(
        self,
        ledger: Ledger,
        solver: Solver,
        settings: RoundSettings | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        canonical: bool = False,
    ) -> None:
        """``clock`` only times stages. ``canonical``: rounds depend on the ledger's state alone, not on how it came to be."""
        self.ledger = ledger
        self.compaction = Compaction(ledger, canonical=canonical)
        self.settings = settings or RoundSettings()
        self._solver = solver
        self._clock = clock
        self._again: IntArray = np.zeros(0, dtype=np.int64)

    def decide(self, now_s: float, barred: BoolArray | None = None) -> RoundOutcome:
        """One round; the ledger is not changed. ``barred``: machine rows that take nobody.

        Raises ``RuntimeError`` if the solver refuses a network.
        """
        timer = StageTimer(self._clock)
        timer.start("compact")
        ledger, settings = self.ledger, self.settings
        view = ledger.view()
        pending = view.pending
        task_class = ledger.task_class[pending]
        present = np.unique(task_class)
        self.compaction.upkeep.applied.clear()
        self.compaction.upkeep.rebuilt.clear()
        changed = np.unique(np.concatenate([view.changed, self._again]))
        self.compaction.catch_up(changed, present)
        self.compaction.renumber()
        desk = Desk(ledger, barred)
        counts: dict[str, int] = {"solves": 0, "moves": 0, "looks": 0}
        levels: list[Level] = []
        priority = ledger.table().priority[task_class]
        for level in sorted(set(priority.tolist()), reverse=True):
            timer.start("compact")
            waiting = survey(ledger, pending[priority == level], now_s, settings.due_age_s)
            if levels:
                self._see(desk)
            levels.append(self._place(waiting, desk, timer, counts, now_s))
        timer.start("decide")
        self._again = np.flatnonzero(desk.seen)
        tasks, machines, believed, cost = desk.result()
        waits = np.setdiff1d(pending, tasks, assume_unique=True)
        waits = waits[np.argsort(ledger.sequence[waits], kind="stable")]
        timer.start(None)
        return RoundOutcome(
            tasks,
            machines,
            believed,
            cost,
            waits,
            tuple(levels),
            self.compaction.upkeep.plain(),
            counts,
            timer.ms,
        )

    def _see(self, desk: Desk) -> None:
        """Let the compaction see a desk's state; the next round starts from the ledger's again."""
        rows = desk.newly_touched()
        desk.seen[rows] = True
        self.compaction.update(rows, desk.free, desk.readings)
        self.compaction.reprice()
        self.compaction.renumber()

    def _place(self, waiting: Waiting, desk: Desk, timer: StageTimer, counts: dict[str, int], now_s: float) -> Level:
        ledger, compaction, settings = self.ledger, self.compaction, self.settings
        evidence = Evidence.of(ledger, compaction, waiting, desk.free, desk.readings, desk.barred)
        open_ = Openings(compaction, desk.readings)
        start = desk.count
        left = waiting
        first: tuple[ScaleNetwork, Solution] | None = None
        keys = compaction.keys  # never changed in place but for new ones at its end
        for turn in range(1 + settings.resolves):
            timer.start("build")
            network = build_network(ledger, compaction, left)
            if not len(network.arc_class):
                break
            timer.start("solve")
            solution = self._solver.solve(network.network)
            counts["solves"] += 1
            if solution.status not in (Status.OPTIMAL, Status.FEASIBLE):
                raise RuntimeError(f"{self._solver.name} answers {solution.status} to a network: {solution.report}")
            if first is None:
                first = network, solution
                counts.update({k: counts.get(k, 0) + v for k, v in network.sizes().items()})
            timer.start("pack")
            wanted = network.whole_tasks(solution.flow, len(ledger.classes), compaction.groups)
            placed = desk.pack(wanted, left, open_)
            promised = int(wanted.sum())
            if (
                promised - placed <= max(1, settings.worth_a_solve * int(waiting.counts.sum()))
                or turn == settings.resolves
            ):
                break
            timer.start("compact")
            self._see(desk)
            left = without(waiting, ledger, desk.placed_of(start, waiting.classes), now_s, settings.due_age_s)
            open_ = Openings(compaction, desk.readings)
        if first is not None:
            network, solution = first
            evidence = replace(evidence, network=network, solution=solution)
        timer.start("sweep")
        desk.sweep(start, waiting, open_)
        timer.start("settle")
        looked = 0
        while looked < settings.settle_looks:
            moves, looks = desk.settle(start, waiting, open_)
            counts["moves"] += moves
            counts["looks"] += looks
            looked += looks
            if not moves:
                break
        desk.give_back(start, waiting)
        timer.start("decide")
        primal = desk.close(start, waiting, evidence)
        return Level(waiting, first[0] if first else None, first[1] if first else None, evidence, primal, keys)


def plain_counts(outcome: RoundOutcome) -> dict[str, Any]:
    """Counts of a round with its upkeep, as a record keeps them."""
    return {**outcome.counts, "upkeep": {k: dict(v) for k, v in outcome.upkeep.items()}}

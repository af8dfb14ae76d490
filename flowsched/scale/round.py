"""One round at cluster scale: compact, price, build, solve, round to whole tasks, settle; certified once somebody asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flowsched.arrays import BoolArray, FloatArray, IntArray
from flowsched.decision import Certificate
from flowsched.scale.certificate import Evidence, certify
from flowsched.scale.compaction import Compaction
from flowsched.scale.desk import Desk
from flowsched.scale.due import Dues, Unbounded
from flowsched.scale.gang import Gang, Gangs, all_or_none
from flowsched.scale.ledger import Ledger
from flowsched.scale.network import ScaleNetwork, build_network
from flowsched.scale.openings import Openings
from flowsched.scale.queue import Queue, by_priority, everybody
from flowsched.scale.reservation import Reservation
from flowsched.scale.small_round import improve, with_exact
from flowsched.scale.waiting import Waiting, survey, without
from flowsched.solvers import Solution, Solver, Status
from flowsched.stage_timer import StageTimer

if TYPE_CHECKING:
    from flowsched.scale.exact import ExactAnswer

_NOBODY: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class RoundSettings:
    """What an operator may set about rounds at cluster scale."""

    due_age_s: float = 600.0
    """Waiting costs grow up to this age and not beyond."""
    resolves: int = 2
    """Further networks for what rounding left over."""
    worth_a_solve: float = 0.02
    """Share of tasks that must be left over for another network; fewer find their places one after the other."""
    reservations: bool = True
    """Whether due tasks start first, or have machines held for them."""
    aging_crosses_priority: bool = False
    """Whether due tasks are served before those of higher priority that came later; to users, agingCrossesPriority."""
    settle_looks: int = 200_000
    """Passes in which classes are placed anew, beside all others, end when so many machines were looked at, or nothing
    moves."""
    exchange_tasks: int = 64
    """Rounds of at most so many tasks get exchanges too."""
    exchange_nodes: int = 20_000
    """Work that exchanges may take, in nodes of their search."""
    exact_tasks: int = 0
    """Rounds of at most so many tasks are decided, and certified, by CP-SAT; task groups apart. 0: none."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a number below 0, or none."""
        for setting in fields(self):
            value = getattr(self, setting.name)
            if not value >= 0:
                raise ValueError(f"{setting.name} is {value}; a number from 0 up is wanted")


@dataclass(frozen=True, eq=False)
class Level:
    """The tasks of one priority in a round: what waited, what the first network said, and what came of it."""

    waiting: Waiting
    network: ScaleNetwork | None
    """None where no network was needed: nothing fits anywhere, or the tasks are due and start before all others."""
    solution: Solution | None
    evidence: Evidence
    primal: float
    """Placements as they come one after the other, and waiting."""
    keys: Sequence[tuple[int, ...]] = ()
    """Kind and buckets of every group that the network may have, by the number that it has there."""
    incomplete: tuple[Gang, ...] = ()
    """Task groups without places for their minimum."""
    exact: ExactAnswer | None = None
    """What CP-SAT said about it, if it was asked."""


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """What a round decides; nothing is done yet. Arrays by placement go level by level, and by class within a level; of a
    class those that are dearest to leave come first.
    """

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
    reservations: tuple[Reservation, ...] = ()
    """Machines that are held for due tasks from this round on."""
    unbounded: tuple[Unbounded, ...] = ()
    """Due tasks that nothing can be promised, and why."""
    incomplete: tuple[Gang, ...] = ()
    """Task groups that wait whole: too few of them are here, or have a place."""

    def held(self, rows: int) -> BoolArray:
        """Machines of the first ``rows`` that are reserved: full rounds and preemption must leave them alone."""
        found = np.zeros(rows, dtype=np.bool_)
        found[[reservation.machine for reservation in self.reservations]] = True
        return found

    @cached_property
    def certificates(self) -> tuple[Certificate, ...]:
        """Those of the levels. Worked out when they are first asked for."""
        return tuple(with_exact(certify(level.evidence, level.primal), level.exact) for level in self.levels)

    @cached_property
    def certificate(self) -> Certificate | None:
        """How far from optimal it can be: priority by priority, summed. Worked out when it is first asked for."""
        found = self.certificates
        if not found:
            return None
        return Certificate(
            "exact" if all(c.method == "exact" for c in found) else "lagrangian",
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
        """``clock`` only times stages. ``canonical``: rounds depend on the ledger's state, not on how it came to be."""
        self.ledger = ledger
        self.compaction = Compaction(ledger, canonical=canonical)
        self.settings = settings or RoundSettings()
        self._solver = solver
        self._clock = clock
        self._again: IntArray = np.zeros(0, dtype=np.int64)
        self._dues = Dues(ledger, self.compaction, self.settings.due_age_s)
        self._gangs = Gangs(ledger)

    def resume(self, reservations: Sequence[Reservation]) -> None:
        """Hold these and no others, as if the last round had: for those who keep reservations elsewhere."""
        self._dues.resume(reservations)

    def decide(self, now_s: float, barred: BoolArray | None = None) -> RoundOutcome:
        """One round; the ledger is not changed. ``barred``: machine rows that take nobody.

        Raises ``RuntimeError`` if the solver refuses a network, ``ValueError`` if prices are too large for one; the next
        round starts where this one did.
        """
        if not np.isfinite(now_s):
            raise ValueError(f"a round at the time {now_s}; a finite number of seconds is wanted")
        timer = StageTimer(self._clock)
        timer.start("compact")
        ledger = self.ledger
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
        counts: dict[str, int] = {"solves": 0, "moves": 0, "trades": 0, "looks": 0}
        gangs = self._gangs.find(pending)
        reserved = self._dues.reservations
        try:
            self._dues.begin(view.changed)
            levels = self._levels(by_priority(ledger, pending, gangs), desk, timer, counts, now_s)
        except Exception:
            # As if it had not been: what changed is news to the next round, and what was held stays so.
            ledger.touch(view.changed)
            self._dues.resume(reserved)
            raise
        finally:
            self._again = np.flatnonzero(desk.seen)
        timer.start("decide")
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
            self._dues.reservations,
            self._dues.unbounded,
            (*(g for g in gangs if not g.complete), *(g for level in levels for g in level.incomplete)),
        )

    def _levels(
        self, queues: Sequence[Queue], desk: Desk, timer: StageTimer, counts: dict[str, int], now_s: float
    ) -> list[Level]:
        """Serve the queues one after the other."""
        levels: list[Level] = []
        crosses = self.settings.aging_crosses_priority
        timer.start("dues")
        started = self._settle_dues(everybody(self.ledger, queues), desk, levels, now_s) if crosses else _NOBODY
        for queue in queues:
            if not crosses:
                timer.start("dues")
                started = self._settle_dues(queue, desk, levels, now_s)
            timer.start("compact")
            rest = queue.without(started)
            if len(rest.tasks):
                if levels or len(desk.held):
                    self._see(desk)
                levels.append(self._place(rest, desk, timer, counts, now_s))
        return levels

    def _settle_dues(self, queue: Queue, desk: Desk, levels: list[Level], now_s: float) -> IntArray:
        """Who is first in a queue among due tasks starts, as a level of its own, or has a machine held; who started."""
        if not self.settings.reservations:
            return _NOBODY
        started = self._dues.settle(queue, desk, now_s)
        if started is None:
            return _NOBODY
        levels.append(Level(started.waiting, None, None, started.evidence, started.primal))
        return started.tasks

    def _see(self, desk: Desk) -> None:
        """Let the compaction see a desk's state; the next round starts from the ledger's again."""
        rows = desk.newly_touched()
        desk.seen[rows] = True
        self.compaction.update(rows, desk.visible_free(), desk.readings)
        self.compaction.reprice()
        self.compaction.renumber()

    def _reopen(self, desk: Desk, readings: IntArray) -> Openings:
        self._see(desk)
        return Openings(self.compaction, readings)

    def _place(self, queue: Queue, desk: Desk, timer: StageTimer, counts: dict[str, int], now_s: float) -> Level:
        ledger, compaction, settings = self.ledger, self.compaction, self.settings
        waiting = survey(ledger, queue.tasks, now_s, settings.due_age_s)
        evidence = Evidence.of(ledger, compaction, waiting, desk.free, desk.readings, desk.barred, desk.model)
        whole = open_ = Openings(compaction, evidence.readings)
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
            # Those who have a place may trade it later: what is full by then is still open to them.
            whole.cheap(waiting.classes, len(ledger.classes))
            self._see(desk)
            left = without(waiting, ledger, desk.placed_of(start, waiting.classes), now_s, settings.due_age_s)
            open_ = Openings(compaction, evidence.readings)
        if first is not None:
            network, solution = first
            evidence = replace(evidence, network=network, solution=solution)
        timer.start("sweep")
        open_ = whole
        desk.sweep(start, waiting, open_)
        timer.start("settle")
        looked = 0
        while looked < settings.settle_looks:
            moves, looks = desk.settle(start, waiting, open_)
            counts["moves"] += moves
            counts["looks"] += looks
            trades, more = desk.trade(start, settings.settle_looks - looked)
            counts["trades"] += trades
            looked += looks + more
            if not moves and not trades:
                break
        desk.give_back(start, waiting)
        answer = None
        if len(waiting.tasks) <= max(settings.exchange_tasks, settings.exact_tasks):
            timer.start("exchange")
            nodes = settings.exchange_nodes if len(waiting.tasks) <= settings.exchange_tasks else 0
            exact = len(waiting.tasks) <= settings.exact_tasks and not queue.gangs
            answer = improve(desk, start, evidence, open_, nodes, exact, counts)
        incomplete = all_or_none(queue.gangs, desk, start, waiting, lambda: self._reopen(desk, evidence.readings))
        timer.start("decide")
        primal = desk.close(start, waiting, evidence)
        return Level(
            waiting,
            first[0] if first else None,
            first[1] if first else None,
            evidence,
            primal,
            keys,
            incomplete,
            answer,
        )


def plain_counts(outcome: RoundOutcome) -> dict[str, Any]:
    """Counts of a round with its upkeep, as a record keeps them."""
    return {**outcome.counts, "upkeep": {k: dict(v) for k, v in outcome.upkeep.items()}}

"""One round at linear prices: compact, price, build, solve, round to whole tasks, settle; certified on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flowsched.cluster.decision import Certificate
from flowsched.cluster.settings import AUTO, PACK, SPREAD
from flowsched.relations.topology_counts import TopologyCounts
from flowsched.round.certificate import LevelBound, certify
from flowsched.round.linear.candidate_index import CandidateIndex
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.gang_queue import GangIndex, QueuedGang, all_or_none
from flowsched.round.linear.linear_bound import BOUND_STEPS, Evidence, level_bound
from flowsched.round.linear.machine_groups import Compaction
from flowsched.round.linear.machine_reservation import MachineReservation
from flowsched.round.linear.network import ScaleNetwork, build_network
from flowsched.round.linear.overdue import OverdueTasks, Unbounded
from flowsched.round.linear.queue import Queue, by_priority, merged
from flowsched.round.linear.restricted import restrict, signatures
from flowsched.round.linear.round_state import BulkRoundState, SavedRoundState
from flowsched.round.linear.small_round import improve
from flowsched.round.linear.waiting import Waiting, survey, without
from flowsched.solvers import Solution, Solver, Status
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched.support.stage_timer import StageTimer

if TYPE_CHECKING:
    from flowsched.round.linear.linear_optimum import ExactAnswer

_NO_TASKS: IntArray = np.zeros(0, dtype=np.int64)
SCORINGS = (AUTO, SPREAD, PACK)


@dataclass(frozen=True)
class RoundSettings:
    """What an operator may set about rounds at linear prices."""

    due_age_s: float = 600.0
    """Waiting costs grow up to this age and not beyond."""
    resolves: int = 2
    """Further networks for what rounding left over."""
    worth_a_solve: float = 0.02
    """Share of tasks that must be left over for another network; fewer find their places one after the other."""
    reservations: bool = True
    """Whether due tasks start first, or have machines held for them."""
    drain: bool = False
    """Whether a machine takes no new tasks for a due one where no end of what runs there is known."""
    aging_crosses_priority: bool = False
    """Whether due tasks are served before those of higher priority that came later; to users, agingCrossesPriority."""
    settle_looks: int = 200_000
    """Passes in which classes are placed anew, beside all others, end when so many machines were looked at, or nothing
    moves."""
    exchange_tasks: int = 64
    """Rounds of at most so many tasks get exchanges too."""
    exchange_nodes: int = 20_000
    """Work that exchanges may take, in nodes of their search."""
    scoring: str = AUTO
    """Which of equal machines a task takes: ``spread`` the emptiest, ``pack`` the one with least CPU left, ``auto`` that
    where all that wait in a level are plain: prices without forecasts do not see all that measured tasks do to others."""
    bound_steps: int = BOUND_STEPS
    """Steps in which the prices of the certificate's bound climb: more prove more, and take longer."""
    exact_tasks: int = 0
    """Rounds of at most so many tasks are decided, and certified, by CP-SAT; task groups apart. 0: none."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a number below 0, or none, and an unknown scoring."""
        if self.scoring not in SCORINGS:
            raise ValueError(f"scoring must be {', '.join(SCORINGS[:-1])} or {SCORINGS[-1]}, got {self.scoring!r}")
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name != "scoring" and not value >= 0:
                raise ValueError(f"{setting.name} must be >= 0, got {value}")

    def spreads(self, plain: Iterable[bool]) -> bool:
        """Whether ties of a level go to the emptiest machine; ``plain``: whether each of its classes is."""
        return self.scoring == SPREAD or (self.scoring == AUTO and not all(plain))


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
    incomplete: tuple[QueuedGang, ...] = ()
    """Task groups without places for their minimum."""
    exact: ExactAnswer | None = None
    """What CP-SAT said about it, if it was asked."""
    signature: IntArray = field(default_factory=lambda: _NO_TASKS)
    """By machine, what its group had in common beside kind and buckets."""
    paid: FloatArray | None = None
    """By class, the most that one of its tasks pays beside all others."""
    topology_counts: Mapping[str, TopologyCounts] = field(default_factory=dict)
    """Relations as they stood when the level began."""

    def bound(self, steps: int) -> LevelBound:
        """How little it can cost. ``steps``: how often the prices climb."""
        found = level_bound(self.evidence, self.primal, self.paid, steps)
        return found if self.exact is None else found.with_optimum(self.exact.bound, self.exact.proven)


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """What a round decides; nothing is done yet. Arrays by placement go level by level, and by class within a level; of a
    class those that are dearest to leave come first.
    """

    tasks: IntArray
    """Task rows that start now."""
    machines: IntArray
    """Where."""
    estimate: FloatArray
    """What each was thought to cost when its place was chosen."""
    cost: FloatArray
    """What each costs beside all others at the end of the round."""
    waits: IntArray
    """Task rows that wait on, in the order in which they came."""
    levels: tuple[Level, ...]
    upkeep: Mapping[str, Mapping[str, int]]
    counts: Mapping[str, int]
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    reservations: tuple[MachineReservation, ...] = ()
    """Machines that are held for due tasks from this round on."""
    unbounded: tuple[Unbounded, ...] = ()
    """Due tasks that nothing can be promised, and why."""
    incomplete: tuple[QueuedGang, ...] = ()
    """Task groups that wait whole: too few of them are here, or have a place."""
    bound_steps: int = RoundSettings.bound_steps
    must_start: IntArray = field(default_factory=lambda: _NO_TASKS)
    """Those of ``tasks`` that are overdue and started before the others of their queue, whatever their place costs."""

    def held(self, rows: int) -> BoolArray:
        """Machines of the first ``rows`` that are reserved: full rounds and preemption must leave them alone."""
        found = np.zeros(rows, dtype=np.bool_)
        found[[reservation.machine for reservation in self.reservations]] = True
        return found

    @cached_property
    def bounds(self) -> tuple[LevelBound, ...]:
        """How little each level can cost; prices are by class. Worked out when they are first asked for."""
        return tuple(level.bound(self.bound_steps) for level in self.levels)

    @property
    def certificate(self) -> Certificate | None:
        """How far from optimal it can be, without prices: classes have no names here. None if no task takes part."""
        return certify(self.bounds, {}) if self.levels else None


class Rounds:
    """Decides rounds on one cluster, and remembers between them what did not change."""

    def __init__(
        self,
        cluster: ClusterRows,
        solver: Solver,
        settings: RoundSettings | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``clock`` only times stages."""
        self.cluster = cluster
        self.compaction = Compaction(cluster)
        self.settings = settings or RoundSettings()
        self._solver = solver
        self._clock = clock
        self._again: IntArray = np.zeros(0, dtype=np.int64)
        self._read = 0
        self.reservations: tuple[MachineReservation, ...] = ()
        """What the last round held; to be set by those who keep it elsewhere."""
        self._gangs = GangIndex(cluster)

    def decide(self, now_s: float, barred: BoolArray | None = None) -> RoundOutcome:
        """One round; the cluster is not changed. ``barred``: machine rows that take no task.

        Raises ``RuntimeError`` if the solver refuses a network, ``ValueError`` if prices are too large for one; the next
        round starts where this one did.
        """
        if not np.isfinite(now_s):
            raise ValueError(f"now_s must be a finite number of seconds, got {now_s}")
        timer = StageTimer(self._clock)
        timer.start("compact")
        cluster = self.cluster
        pending, (changed, read) = cluster.tasks.waiting(), cluster.machines.changed_since(self._read)
        task_class = cluster.tasks.task_class[pending]
        present = np.unique(task_class)
        self.compaction.upkeep.clear()
        state = BulkRoundState(cluster, barred, present, self.spreads(present))
        signed = self.compaction.sign(signatures(cluster, present, state.relations, state.model))
        again = self._again[self._again < cluster.machines.rows]
        self.compaction.catch_up(np.unique(np.concatenate([changed, again, signed])), present)
        self.compaction.renumber()
        counts: dict[str, int] = {"solves": 0, "moves": 0, "trades": 0, "looks": 0}
        gangs = self._gangs.find(pending)
        due_age_s, drain = self.settings.due_age_s, self.settings.drain
        overdue = OverdueTasks(
            state, self.compaction, self.reservations, changed, now_s, due_age_s=due_age_s, drain=drain
        )
        try:
            levels = self._levels(by_priority(cluster, pending, gangs), state, overdue, timer, counts, now_s)
        finally:
            self._again = np.flatnonzero(state.seen)
        # Where it fails, what changed is news to the next round, and what was held stays so.
        self._read, self.reservations = read, overdue.reservations
        timer.start("decide")
        tasks, machines, estimate, cost = state.result()
        waits = np.setdiff1d(pending, tasks, assume_unique=True)
        waits = cluster.tasks.in_order(waits)
        timer.start(None)
        return RoundOutcome(
            tasks,
            machines,
            estimate,
            cost,
            waits,
            tuple(levels),
            self.compaction.upkeep.plain(),
            counts,
            timer.ms,
            overdue.reservations,
            overdue.unbounded,
            (*(g for g in gangs if not g.complete), *(g for level in levels for g in level.incomplete)),
            self.settings.bound_steps,
            overdue.started,
        )

    def _levels(
        self,
        queues: Sequence[Queue],
        state: BulkRoundState,
        overdue: OverdueTasks,
        timer: StageTimer,
        counts: dict[str, int],
        now_s: float,
    ) -> list[Level]:
        """Serve the queues one after the other."""
        levels: list[Level] = []
        crosses = self.settings.aging_crosses_priority
        timer.start("dues")
        started = self._settle(overdue, merged(self.cluster, queues), state, levels) if crosses else _NO_TASKS
        for queue in queues:
            if not crosses:
                timer.start("dues")
                started = self._settle(overdue, queue, state, levels)
            timer.start("compact")
            rest = queue.without(started)
            if len(rest.tasks):
                if levels or len(state.held):
                    self.see(state)
                levels.append(self._place(rest, state, timer, counts, now_s))
        return levels

    def _settle(self, overdue: OverdueTasks, queue: Queue, state: BulkRoundState, levels: list[Level]) -> IntArray:
        """Who is first in a queue among due tasks starts, as a level of its own, or has a machine held; who started."""
        if not self.settings.reservations:
            return _NO_TASKS
        before = state.relations.save()
        started = overdue.settle(queue)
        if started is None:
            return _NO_TASKS
        levels.append(
            Level(
                started.waiting,
                None,
                None,
                started.evidence,
                started.primal,
                signature=self.compaction.signature,
                topology_counts=before,
            )
        )
        return started.waiting.tasks

    def spreads(self, classes: IntArray) -> bool:
        """Whether ties of some classes, served together, go to the emptiest machine."""
        return self.settings.spreads(self.cluster.classes[c].is_plain for c in classes.tolist())

    def network(self, state: BulkRoundState, left: Waiting) -> ScaleNetwork:
        """The network of the tasks that are left, at the state that the compaction sees."""
        cluster, compaction, model = self.cluster, self.compaction, state.model
        state.relations.set_gates(model)
        restricted = restrict(cluster, compaction, left, state.relations, model, state.readings)
        return build_network(cluster, compaction, left, restricted, state.ties() if model.spread else None)

    def solve(self, network: ScaleNetwork) -> Solution:
        """Its flow. Raises ``RuntimeError`` if the solver refuses it."""
        solution = self._solver.solve(network.network)
        if solution.status not in (Status.OPTIMAL, Status.FEASIBLE):
            raise RuntimeError(f"{self._solver.name} answers {solution.status} to a network: {solution.report}")
        return solution

    def see(self, state: BulkRoundState) -> None:
        """Let the compaction see a round's state; the next round starts from the cluster's again."""
        rows = state.newly_touched()
        state.seen[rows] = True
        self.compaction.update(rows, state.visible_free(), state.readings)
        self.compaction.reprice()
        self.compaction.renumber()

    def _reopen(self, state: BulkRoundState, readings: IntArray) -> CandidateIndex:
        self.see(state)
        return CandidateIndex(self.compaction, readings)

    def _place(
        self, queue: Queue, state: BulkRoundState, timer: StageTimer, counts: dict[str, int], now_s: float
    ) -> Level:
        cluster, compaction, settings = self.cluster, self.compaction, self.settings
        state.relations.set_gates(state.model)
        waiting = survey(cluster, queue.tasks, now_s, settings.due_age_s)
        if state.model.spread != self.spreads(waiting.classes):
            state.rank(not state.model.spread)
        evidence = Evidence.of(cluster, compaction, waiting, state.free, state.readings, state.barred, state.model)
        whole = CandidateIndex(compaction, evidence.readings)
        fill = _Fill(self, state, waiting, evidence, whole, timer, counts, now_s)
        start = state.count
        saved = state.save() if state.relations or state.model.spread else None
        keys = compaction.keys  # never changed in place but for new ones at its end
        topology_counts = state.relations.save()
        active = np.ones(len(cluster.classes), dtype=np.bool_)
        fill.run(active)
        if saved is not None and state.model.spread and len(fill.missed(start)):
            self._again_for_limited(state, saved, start, fill, active)
        evidence = fill.evidence
        answer = None
        # Exchanges know neither relations nor what a class may pay at most.
        free = not state.relations and bool(np.isinf(state.model.ceiling[waiting.classes]).all())
        if free and len(waiting.tasks) <= max(settings.exchange_tasks, settings.exact_tasks):
            timer.start("exchange")
            nodes = settings.exchange_nodes if len(waiting.tasks) <= settings.exchange_tasks else 0
            exact = len(waiting.tasks) <= settings.exact_tasks and not queue.gangs
            answer = improve(state, start, evidence, whole, nodes, exact, counts)

        def refill(only: BoolArray) -> None:
            assert saved is not None
            state.restore(saved)
            fill.run(only)

        incomplete = all_or_none(
            queue.gangs, state, start, waiting, lambda: self._reopen(state, evidence.readings), refill
        )
        timer.start("decide")
        primal = state.close(start, waiting, evidence)
        paid = state.paid(start, waiting)
        return Level(
            waiting,
            fill.first[0] if fill.first else None,
            fill.first[1] if fill.first else None,
            evidence,
            primal,
            keys,
            incomplete,
            answer,
            compaction.signature,
            paid,
            topology_counts,
        )

    def _again_for_limited(
        self, state: BulkRoundState, saved: SavedRoundState, start: int, fill: _Fill, active: BoolArray
    ) -> None:
        """Place a level once more in other ways, until no task misses its place; the first plan that leaves least counts.

        With ties that pack, wide tasks leave whole machines to those whose places are only counted. If those that may have
        only so many on a machine choose first, wide ones fill what they leave, on many machines.
        """
        best, left = state.save(), state.left(start, fill.waiting, fill.evidence.most)
        usual = state.order
        tighter = any(state.relations.counts(c) for c in fill.missed(start).tolist())
        for tight in (True, False) if tighter else (False,):
            state.restore(saved)
            if not tight:
                state.serve_first(fill.limited())
            state.rank(spread=not tight)
            fill.run(active)
            state.rank(spread=True)
            state.order = usual
            now = state.left(start, fill.waiting, fill.evidence.most)
            if now < left:
                best, left = state.save(), now
            if not len(fill.short(start)):
                break
        state.restore(best)


@dataclass(eq=False)
class _Fill:
    """Places the tasks of a level: along the flow of a network, through further networks, anywhere; then settles them."""

    rounds: Rounds
    state: BulkRoundState
    waiting: Waiting
    evidence: Evidence
    whole: CandidateIndex
    """What is open as the level starts."""
    timer: StageTimer
    counts: dict[str, int]
    now_s: float
    first: tuple[ScaleNetwork, Solution] | None = None
    promised: IntArray = field(default_factory=lambda: _NO_TASKS)

    def missed(self, start: int) -> IntArray:
        """Of the classes that are :meth:`short`, those whose places are only counted, or that may have only so many tasks on
        a machine.
        """
        short, relations = self.short(start), self.state.relations
        return short[np.array([relations.counts(c) or relations.limited(c) for c in short.tolist()], dtype=np.bool_)]

    def short(self, start: int) -> IntArray:
        """Classes of which the last run's first network had places for tasks that found none."""
        if not len(self.promised):
            return _NO_TASKS
        classes = self.waiting.classes
        short: IntArray = classes[self.state.placed_of(start, classes) < self.promised[classes]]
        return short

    def limited(self) -> BoolArray:
        """By class, whether it waits and may have only so many tasks on a machine."""
        found = np.zeros(len(self.rounds.cluster.classes), dtype=np.bool_)
        found[self.waiting.classes] = [self.state.relations.limited(c) for c in self.waiting.classes.tolist()]
        return found

    def run(self, active: BoolArray) -> None:
        """Fill from the state as it stands. ``active``: by class, who takes part."""
        settings, state, timer, waiting = self.rounds.settings, self.state, self.timer, self.waiting
        start = state.count
        self._along(active, start)
        timer.start("sweep")
        state.sweep(start, waiting, self.whole, active)
        timer.start("settle")
        looked = 0
        trades = 1
        while looked < settings.settle_looks:
            moves, looks = state.settle(start, waiting, self.whole)
            self.counts["moves"] += moves
            self.counts["looks"] += looks
            looked += looks
            if moves or trades:  # else the last trades left none
                trades, more = state.trade(start, settings.settle_looks - looked)
                self.counts["trades"] += trades
                looked += more
            if not moves and not trades and looked < settings.settle_looks:
                trades, more = state.displace(start, self.whole, settings.settle_looks - looked)
                self.counts["trades"] += trades
                looked += more
            # One class that was placed anew beside all others has the best places there are.
            if (not moves and not trades) or len(waiting.classes) == 1:
                break
        state.give_back(start, waiting)

    def _along(self, active: BoolArray, start: int) -> None:
        rounds, state, timer = self.rounds, self.state, self.timer
        cluster, compaction, settings = rounds.cluster, rounds.compaction, rounds.settings
        waiting, candidates = self.waiting, self.whole
        left = waiting
        if not active.all():
            out = np.where(active[waiting.classes], 0, waiting.counts)
            left = without(waiting, cluster, out, self.now_s, settings.due_age_s)
            timer.start("compact")
            rounds.see(state)
        elif self.first is not None:
            rounds.see(state)
        for turn in range(1 + settings.resolves):
            timer.start("build")
            network = rounds.network(state, left)
            if not len(network.arc_class):
                break
            timer.start("solve")
            solution = rounds.solve(network)
            self.counts["solves"] += 1
            if self.first is None:
                self.first = network, solution
                self.counts.update({k: self.counts.get(k, 0) + v for k, v in network.sizes().items()})
                self.evidence = replace(self.evidence, network=network, solution=solution)
            timer.start("pack")
            wanted = network.whole_tasks(solution.flow, len(cluster.classes), compaction.groups)
            if not turn:
                self.promised = wanted.sum(axis=1)
            placed = state.pack(wanted, left, candidates)
            promised = int(wanted.sum())
            done = state.placed_of(start, waiting.classes)
            done = np.where(active[waiting.classes], done, waiting.counts)
            some = waiting.classes[done < waiting.counts]
            # The sweep finds the best places that there are for one class, as a network would.
            alone = len(some) == 1 and not state.relations.concerns(int(some[0]))
            if (
                promised - placed <= max(1, settings.worth_a_solve * int(waiting.counts.sum()))
                or turn == settings.resolves
                or alone
            ):
                break
            timer.start("compact")
            # Those who have a place may trade it later: what is full by then is still open to them.
            self.whole.cheap(waiting.classes, len(cluster.classes), state.model)
            rounds.see(state)
            left = without(waiting, cluster, done, self.now_s, settings.due_age_s)
            candidates = CandidateIndex(compaction, self.evidence.readings)

"""The full round: every task in the network, beside the fast loop, for better homes of running tasks.

It works on a copy of the ledger, so it may take as long as it likes in another thread or process (``propose`` is a plain
function of picklable values). What it proposes is looked at again, step by step, at the ledger's state of then.

    full = FullRounds(ledger, solver)
    moves = full.propose(now_s)               # or: snapshot here, propose(snapshot, ...) elsewhere
    moves = full.adopt(moves, ledger, now_s)  # those that still pay; counted as moved
    carry_out(moves, ledger)                  # or whatever moving a task takes

Steps: first moves along the optimal flow, best first; then any single move that pays, in turns with trades, in which tasks
of two classes take each other's machines; then room for tasks that wait and fit nowhere: others go elsewhere first if all
together is worth it. Each step is exact: whole tasks, machine by machine, at the prices of its turn. Where single moves
alone fill what a proposal may hold, the best of them are proposed and no network is solved: the flow says what is best if
all that pays is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from flowsched.scale import bound_kernels, kernels, move_kernels
from flowsched.scale.compaction import Compaction
from flowsched.scale.full_network import Quotas, build_full_network, gather, mean_readings
from flowsched.scale.ledger import PENDING, RUNNING, Ledger
from flowsched.scale.ledger_copy import copied
from flowsched.scale.migration import (
    Memory,
    Moves,
    MoveSettings,
    emptied_of,
    least_gains,
    no_moves,
    open_machines,
    still_paying,
    waiting_cost,
)
from flowsched.scale.room import RoomSearch, alone, in_turn
from flowsched.scale.waiting import survey
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched.support.stage_timer import StageTimer

_BATCH = 1 << 23
"""Classes times machines that are looked at together: bounds the memory of a proposal to some 300 MiB."""
_TURNS = 4
"""Most times that single moves and trades take turns."""
_TRIES = 8
"""Partners that are looked at for a trade where the best one is too large."""


@dataclass(frozen=True)
class FullSettings(MoveSettings):
    """What an operator may set about full rounds."""

    most_moves: int = 1000
    """Most steps of one proposal."""
    make_room: bool = True
    """Whether tasks that wait and fit nowhere are let in by moving others."""
    due_age_s: float = 600.0
    """That of the rounds."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that a proposal depends on; nobody changes it."""

    ledger: Ledger
    """A copy."""
    now_s: float
    open: BoolArray
    """Machines that may take somebody."""
    tasks: IntArray
    """Running tasks that may move, by class, machine and what a move must bring."""
    least_gain: FloatArray


@dataclass(frozen=True, eq=False)
class Proposal:
    """Moves, with an account of how they came about."""

    moves: Moves
    counts: Mapping[str, int]
    timings_ms: Mapping[str, float] = field(default_factory=dict)


class FullRounds:
    """Proposes moves on one ledger, and remembers who moved when."""

    def __init__(
        self,
        ledger: Ledger,
        solver: Solver,
        settings: FullSettings | None = None,
        fixed: IntArray | None = None,
    ) -> None:
        """Nobody has moved yet. ``fixed``: rows of tasks that stay, such as those that have just started."""
        self.ledger = ledger
        self._fixed: IntArray = np.zeros(0, dtype=np.int64) if fixed is None else fixed
        self.settings = settings or FullSettings()
        self._solver = solver
        self._memory = Memory()

    def remember(self, tasks: IntArray, moved_s: FloatArray) -> None:
        """Tasks moved last at these times; minus infinity: never."""
        self._memory.note(tasks, self.ledger.sequence[tasks], moved_s)

    def snapshot(self, now_s: float, barred: BoolArray | None = None) -> Snapshot:
        """The ledger as it is now. ``barred``: machine rows that take nobody, such as reserved ones."""
        ledger = copied(self.ledger)
        tasks = np.setdiff1d(np.flatnonzero(ledger.state == RUNNING), self._fixed, assume_unique=True)
        price = least_gains(ledger, tasks, now_s, self.settings, self._memory)
        tasks, price = tasks[np.isfinite(price)], price[np.isfinite(price)]
        order = np.lexsort((ledger.sequence[tasks], price, ledger.machine[tasks], ledger.task_class[tasks]))
        tasks, price = tasks[order], price[order]
        return Snapshot(ledger, now_s, open_machines(ledger, barred), tasks, price)

    def propose(self, now_s: float, barred: BoolArray | None = None) -> Moves:
        """Moves that pay at the ledger's state. Raises ``RuntimeError`` if the solver refuses the network."""
        return propose(self.snapshot(now_s, barred), self._solver, self.settings).moves

    def adopt(self, moves: Moves, ledger: Ledger, now_s: float, barred: BoolArray | None = None) -> Moves:
        """The steps that still pay, to be carried out in their order; counted as moved from here on."""
        settings = self.settings
        kept = still_paying(moves, ledger, now_s, settings, self._memory, settings.due_age_s, barred)
        moved = ~kept.starts
        self._memory.note(kept.tasks[moved], kept.sequence[moved], now_s)
        return kept


def propose(
    snapshot: Snapshot, solver: Solver, settings: FullSettings, clock: Callable[[], float] = time.perf_counter
) -> Proposal:
    """Moves for a state. ``clock`` only times stages. Raises ``RuntimeError`` if the solver refuses the network."""
    timer = StageTimer(clock)
    counts = dict.fromkeys(("along_the_flow", "single_moves", "trades", "let_in"), 0)
    counts["tasks"] = len(snapshot.tasks)
    if not len(snapshot.tasks):
        return Proposal(no_moves(), counts)
    timer.start("single")
    desk = _MoveDesk(snapshot, settings.most_moves)
    desk.follow()
    if 0 < desk.count < settings.most_moves:
        # There is time for all that pays, so what the optimum of all moves together says comes first.
        quotas, group_of = _flow(snapshot, solver, settings, timer, counts)
        timer.start("realise")
        desk = _MoveDesk(snapshot, settings.most_moves)
        desk.follow(quotas, group_of)
        counts["along_the_flow"] = desk.count
    else:
        counts["single_moves"] = desk.count
    timer.start("improve")
    for _ in range(_TURNS):
        before = desk.count
        desk.follow()
        counts["single_moves"] += desk.count - before
        traded = desk.trade()
        counts["trades"] += traded
        if not traded:
            break
    if settings.make_room:
        timer.start("make_room")
        counts["let_in"] = desk.make_room(settings.due_age_s)
    timer.start(None)
    return Proposal(desk.moves(), counts, timer.ms)


def _flow(
    snapshot: Snapshot, solver: Solver, settings: FullSettings, timer: StageTimer, counts: dict[str, int]
) -> tuple[Quotas, IntArray]:
    """How many tasks of each class the optimal flow moves out of and into each group; group of each machine."""
    timer.start("compact")
    ledger, tasks = snapshot.ledger, snapshot.tasks
    emptied = emptied_of(ledger, tasks)
    pending = np.flatnonzero(ledger.state == PENDING)
    pending = pending[np.argsort(ledger.sequence[pending], kind="stable")]
    waiting = survey(ledger, pending, snapshot.now_s, settings.due_age_s)
    compaction = Compaction(emptied)
    present = np.union1d(ledger.task_class[tasks], waiting.classes)
    compaction.catch_up(np.flatnonzero(ledger.alive), present)
    timer.start("build")
    machine, classes = ledger.machine[tasks], ledger.task_class[tasks]
    stay = np.empty(len(tasks))
    kernels.reprice(classes, machine, ledger.model(), ledger.readings, stay)
    group_of = compaction.group_of
    residents = gather(
        classes, group_of[machine], stay, snapshot.least_gain, np.full(len(tasks), np.inf), compaction.groups
    )
    network = build_full_network(emptied, compaction, residents, waiting, mean_readings(compaction, ledger.readings))
    counts["arcs"] = network.network.arc_count
    counts["nodes"] = len(network.network.supplies)
    counts["classes"] = len(present)
    counts["groups"] = int(np.count_nonzero(compaction.members))
    timer.start("solve")
    solution = solver.solve(network.network)
    if not solution.status.has_flow:
        raise RuntimeError(f"{solver.name} answers {solution.status} to the full network: {solution.report}")
    return network.quotas(solution.flow, len(ledger.classes), compaction.groups), group_of


class _MoveDesk:
    """The state that a proposal works on, and its steps so far."""

    def __init__(self, snapshot: Snapshot, most: int) -> None:
        """Nothing has moved. ``most``: steps at most."""
        self._snapshot = snapshot
        ledger = snapshot.ledger
        self._model = ledger.model()
        self.free, self.readings = ledger.free.copy(), ledger.readings.copy()
        self._class, self._machine = ledger.task_class[snapshot.tasks], ledger.machine[snapshot.tasks]
        self._gone = np.zeros(len(snapshot.tasks), dtype=np.bool_)
        most = min(most, 2 * len(ledger.state))
        self._who = np.empty(most, dtype=np.int64)
        self._target = np.empty(most, dtype=np.int64)
        self._gain = np.empty(most)
        self._plan = np.arange(most)
        self._task = np.empty(most, dtype=np.int64)
        self._source = np.full(most, -1, dtype=np.int64)
        self._least_gain = np.zeros(most)
        self.count = 0

    def follow(self, quotas: Quotas | None = None, group_of: IntArray | None = None) -> None:
        """Single moves, best first: those along a flow, or whatever pays."""
        if self.count == len(self._who):
            return
        classes = np.unique(self._class)
        rows = max(1, len(self.free))
        batch = max(1, _BATCH // rows)
        none = np.zeros((1, 0), dtype=np.int64)
        for start in range(0, len(classes), batch):
            some = classes[start : start + batch]
            before, plan = self.count, self._next_plan()
            self.count = move_kernels.best_moves(
                some,
                self._class,
                self._machine,
                self._snapshot.least_gain,
                self._gone,
                none[0] if group_of is None else group_of,
                none if quotas is None else quotas.leave[some],
                none if quotas is None else quotas.enter[some],
                self._snapshot.open,
                self._model,
                self.free,
                self.readings,
                len(self._who),
                self._who,
                self._target,
                self._gain,
                before,
            )
            self._plan[before : self.count] = plan + np.arange(self.count - before)
            self._sign(before, self._snapshot.tasks)

    def trade(self) -> int:
        """Tasks of two classes take each other's machines; how many do."""
        before = self.count
        if before + 1 >= len(self._who):
            return 0
        self.count = move_kernels.trades(
            np.unique(self._class),
            self._class,
            self._machine,
            self._snapshot.least_gain,
            self._gone,
            self._snapshot.open,
            self._model,
            self.free,
            self.readings,
            _TRIES,
            len(self._who),
            self._who,
            self._target,
            self._gain,
            self._plan,
            before,
            self._next_plan(),
        )
        self._sign(before, self._snapshot.tasks)
        return self.count - before

    def make_room(self, due_age_s: float) -> int:
        """Let tasks in that wait and fit nowhere, higher priorities and wider ones first; how many."""
        snapshot, ledger = self._snapshot, self._snapshot.ledger
        pending = alone(ledger, np.flatnonzero(ledger.state == PENDING))
        if not len(pending):
            return 0
        cost = waiting_cost(ledger, pending, snapshot.now_s, due_age_s)
        order = np.lexsort((ledger.sequence[pending], -cost))
        pending, cost = pending[order], cost[order]
        room = RoomSearch(self._model, self.free, self.readings, snapshot.open, self._class, self._machine, self._gone)
        let_in = 0
        for c in in_turn(ledger, np.unique(ledger.task_class[pending])):
            mine = ledger.task_class[pending] == c
            start = self.count
            steps = room.let_in(c, cost[mine], self._weights(), snapshot.least_gain, len(self._who) - start)
            self.count += len(steps.who)
            added = slice(start, self.count)
            self._plan[added] = (int(self._plan[start - 1]) + 1 if start else 0) + steps.plan
            self._who[added], self._target[added], self._gain[added] = steps.who, steps.target, steps.gain
            self._sign(start, snapshot.tasks, pending[mine])
            let_in += steps.count
        return let_in

    def moves(self) -> Moves:
        """The steps so far."""
        n = slice(0, self.count)
        tasks = self._task[n]
        return Moves(
            tasks,
            self._snapshot.ledger.sequence[tasks],
            self._source[n],
            self._target[n],
            self._gain[n],
            self._least_gain[n],
            self._plan[n],
        )

    def _next_plan(self) -> int:
        """A number above those of all steps so far."""
        return int(self._plan[self.count - 1]) + 1 if self.count else 0

    def _sign(self, start: int, running: IntArray, waiting: IntArray | None = None) -> None:
        """Say of the steps from ``start`` on whose they are."""
        steps = np.arange(start, self.count)
        who = self._who[steps]
        runs = steps[who >= 0]
        self._task[runs] = running[self._who[runs]]
        self._source[runs] = self._machine[self._who[runs]]
        self._least_gain[runs] = self._snapshot.least_gain[self._who[runs]]
        if waiting is not None:
            starts = steps[who < 0]
            self._task[starts] = waiting[-1 - self._who[starts]]

    def _weights(self) -> FloatArray:
        """What it takes to have each task elsewhere, at the cheapest place that there is for its class."""
        least = np.full(len(self._model.base), np.inf)
        present = np.bincount(self._class, minlength=len(least))
        rows = np.flatnonzero(self._snapshot.open)
        bound_kernels.best_alone(present, rows, self._model, self.free, self.readings, least)
        here = np.empty(len(self._class))
        kernels.reprice(self._class, self._machine, self._model, self.readings, here)
        with np.errstate(invalid="ignore"):
            weight = self._snapshot.least_gain + least[self._class] - here
        weights: FloatArray = np.maximum(0.0, np.where(np.isnan(weight), np.inf, weight))
        return weights

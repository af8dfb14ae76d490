"""The full round: every task in the network, after the round, for better homes of running tasks.

    moves = propose(cluster, solver, settings, now_s, moved_s)
    carry_out(moves, cluster)  # or whatever moving a task takes

Steps: first moves along the optimal flow, best first; then any single move that pays, in turns with trades, in which tasks
of two classes take each other's machines; then room for tasks that wait and fit nowhere: others go elsewhere first if all
together is worth it. Each step is exact: whole tasks, machine by machine, at the prices of its turn. Where single moves
alone fill what a proposal may hold, the best of them are proposed and no network is solved: the flow says what is best if
all that pays is done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.cluster.task_rows import PENDING, RUNNING
from flowsched.pricing.linear import kernels
from flowsched.round.linear import bound_kernels, move_kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.full_network import Quotas, solve_full_network
from flowsched.round.linear.moves import (
    Moves,
    least_gains,
    no_moves,
    open_machines,
    waiting_cost,
)
from flowsched.round.linear.room_search import RoomSearch, alone, in_turn
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_BATCH = 1 << 23
"""Classes times machines that are looked at together: bounds the memory of a proposal to some 300 MiB."""
_TURNS = 4
"""Most times that single moves and trades take turns."""


@dataclass(frozen=True, eq=False)
class _Movable:
    """All that a proposal depends on."""

    cluster: ClusterRows
    now_s: float
    due_age_s: float
    open: BoolArray
    """Machines that may take a task."""
    tasks: IntArray
    """Running tasks that may move, by class, machine and what a move must bring."""
    least_gain: FloatArray

    @classmethod
    def of(
        cls,
        cluster: ClusterRows,
        settings: Settings,
        now_s: float,
        moved_s: FloatArray,
        barred: BoolArray | None,
        fixed: IntArray,
    ) -> _Movable:
        """That of a cluster."""
        tasks = np.setdiff1d(np.flatnonzero(cluster.tasks.state == RUNNING), fixed, assume_unique=True)
        price = least_gains(cluster, tasks, now_s, settings, moved_s[tasks])
        tasks, price = tasks[np.isfinite(price)], price[np.isfinite(price)]
        order = np.lexsort(
            (cluster.tasks.sequence[tasks], price, cluster.tasks.machine[tasks], cluster.tasks.task_class[tasks])
        )
        open_ = open_machines(cluster, barred)
        return cls(cluster, now_s, settings.due_age_s, open_, tasks[order], price[order])


def propose(
    cluster: ClusterRows,
    solver: Solver,
    settings: Settings,
    now_s: float,
    moved_s: FloatArray,
    *,
    barred: BoolArray | None = None,
    fixed: IntArray | None = None,
) -> Moves:
    """Moves that pay at the cluster's state, at most ``settings.migration_moves`` steps; the cluster is not changed.

    ``moved_s``: by task row, when each was moved last; minus infinity: never. ``barred``: machine rows that take no task,
    such as reserved ones. ``fixed``: rows of tasks that stay, such as those that have just started. Raises ``RuntimeError``
    if the solver refuses the network.
    """
    none: IntArray = np.zeros(0, dtype=np.int64)
    movable = _Movable.of(cluster, settings, now_s, moved_s, barred, none if fixed is None else fixed)
    most = settings.migration_moves
    if not len(movable.tasks):
        return no_moves()
    state = _MoveState(movable, most)
    state.follow()
    if 0 < state.count < most:
        # There is time for all that pays, so what the optimum of all moves together says comes first.
        quotas, group_of = _flow(movable, solver)
        state = _MoveState(movable, most)
        state.follow(quotas, group_of)
    for _ in range(_TURNS):
        state.follow()
        if not state.trade():
            break
    state.make_room()
    return state.moves()


def _flow(movable: _Movable, solver: Solver) -> tuple[Quotas, IntArray]:
    """How many tasks of each class the optimal flow moves out of and into each group; group of each machine."""
    cluster, tasks = movable.cluster, movable.tasks
    pending = np.flatnonzero(cluster.tasks.state == PENDING)
    machine, classes = cluster.tasks.machine[tasks], cluster.tasks.task_class[tasks]
    stay = kernels.reprice(classes, machine, cluster.model(), cluster.readings)
    prices = (stay, movable.least_gain, np.full(len(tasks), np.inf))
    return solve_full_network(
        cluster, solver, tasks, pending, prices, movable.now_s, movable.due_age_s, "the full network"
    )


class _MoveState:
    """The state that a proposal works on, and its steps so far."""

    def __init__(self, movable: _Movable, most: int) -> None:
        """Nothing has moved. ``most``: steps at most."""
        self._movable = movable
        cluster = movable.cluster
        self._model = cluster.model()
        self.free, self.readings = cluster.free.copy(), cluster.readings.copy()
        self._class, self._machine = cluster.tasks.task_class[movable.tasks], cluster.tasks.machine[movable.tasks]
        self._gone = np.zeros(len(movable.tasks), dtype=np.bool_)
        self._load = kernels.MachineLoad(self.free, self.readings)
        self._tasks = move_kernels.MovableTasks(self._class, self._machine, movable.least_gain, self._gone)
        most = min(most, 2 * len(cluster.tasks.state))
        self._who = np.empty(most, dtype=np.int64)
        self._target = np.empty(most, dtype=np.int64)
        self._gain = np.empty(most)
        self._plan = np.arange(most)
        self._steps = move_kernels.StepArrays(self._who, self._target, self._gain, self._plan)
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
                self._tasks,
                move_kernels.MoveLimits(
                    none[0] if group_of is None else group_of,
                    none if quotas is None else quotas.leave[some],
                    none if quotas is None else quotas.enter[some],
                ),
                self._movable.open,
                self._model,
                self._load,
                self._steps,
                before,
            )
            self._plan[before : self.count] = plan + np.arange(self.count - before)
            self._sign(before, self._movable.tasks)

    def trade(self) -> int:
        """Tasks of two classes take each other's machines; how many do."""
        before = self.count
        if before + 1 >= len(self._who):
            return 0
        self.count = move_kernels.trades(
            np.unique(self._class),
            self._tasks,
            self._movable.open,
            self._model,
            self._load,
            self._steps,
            before,
            self._next_plan(),
        )
        self._sign(before, self._movable.tasks)
        return self.count - before

    def make_room(self) -> None:
        """Let tasks in that wait and fit nowhere, higher priorities and wider ones first."""
        movable, cluster = self._movable, self._movable.cluster
        pending = alone(cluster, np.flatnonzero(cluster.tasks.state == PENDING))
        if not len(pending):
            return
        cost = waiting_cost(cluster, pending, movable.now_s, movable.due_age_s)
        order = np.lexsort((cluster.tasks.sequence[pending], -cost))
        pending, cost = pending[order], cost[order]
        room = RoomSearch(self._model, self.free, self.readings, movable.open, self._class, self._machine, self._gone)
        for c in in_turn(cluster, np.unique(cluster.tasks.task_class[pending])):
            mine = cluster.tasks.task_class[pending] == c
            start = self.count
            steps = room.let_in(c, cost[mine], self._weights(), movable.least_gain, len(self._who) - start)
            self.count += len(steps.who)
            added = slice(start, self.count)
            self._plan[added] = (int(self._plan[start - 1]) + 1 if start else 0) + steps.plan
            self._who[added], self._target[added], self._gain[added] = steps.who, steps.target, steps.gain
            self._sign(start, movable.tasks, pending[mine])

    def moves(self) -> Moves:
        """The steps so far."""
        n = slice(0, self.count)
        return Moves(
            self._task[n],
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
        self._least_gain[runs] = self._movable.least_gain[self._who[runs]]
        if waiting is not None:
            starts = steps[who < 0]
            self._task[starts] = waiting[-1 - self._who[starts]]

    def _weights(self) -> FloatArray:
        """What it takes to have each task elsewhere, at the cheapest place that there is for its class."""
        least = np.full(len(self._model.base), np.inf)
        present = np.bincount(self._class, minlength=len(least))
        rows = np.flatnonzero(self._movable.open)
        bound_kernels.best_alone(present, rows, self._model, self.free, self.readings, least)
        here = kernels.reprice(self._class, self._machine, self._model, self.readings)
        with np.errstate(invalid="ignore"):
            weight = self._movable.least_gain + least[self._class] - here
        weights: FloatArray = np.maximum(0.0, np.where(np.isnan(weight), np.inf, weight))
        return weights

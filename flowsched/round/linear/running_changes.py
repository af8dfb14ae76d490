"""What a round at linear prices changes of what runs already: preemptions for tasks without room, then moves that pay.

Worked out on a cluster that is made from the round's snapshot or record alone, so that it does not matter how the rounds
before came to theirs. The rules are those of ``flow`` (:mod:`flowsched.round.preemption`), the prices those of the cost
model. Moves may also trade the places of two tasks, and make room for one that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowsched.cluster.settings import Settings
from flowsched.cluster.snapshot import Running
from flowsched.cluster.task_rows import RUNNING
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.full_round import propose
from flowsched.round.linear.machine_reservation import MachineReservation
from flowsched.round.linear.moves import Moves, no_moves
from flowsched.round.linear.moves import carry_out as carry_out_moves
from flowsched.round.linear.victims import PreemptionPlanner, Preemptions, carry_out, together
from flowsched.solvers import Solver
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

_NONE: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class History:
    """What happened to running tasks so far; arrays by task in ``tasks``."""

    tasks: IntArray
    """Rows."""
    preemptions: IntArray
    """How often each was preempted."""
    moved_s: FloatArray
    """When each was moved last; minus infinity: never."""
    stays: BoolArray
    """Those that may run on some machines only: where they run they are like all others, so they stay there."""

    @classmethod
    def of(cls, cluster: ClusterRows, running: Sequence[Running]) -> History:
        """That of a snapshot's running tasks."""
        return cls(
            np.array([cluster.tasks.row(r.task.name) for r in running], dtype=np.int64),
            np.array([r.task.preemptions for r in running], dtype=np.int64),
            np.array([-np.inf if r.moved_s is None else r.moved_s for r in running], dtype=np.float64),
            np.array([r.task.machines is not None for r in running], dtype=np.bool_),
        )


@dataclass(frozen=True, eq=False)
class RunningChanges:
    """What becomes of a round's decisions. Rows are those of ``cluster``."""

    cluster: ClusterRows
    """With all that runs once everything is carried out."""
    victims: IntArray = field(default_factory=lambda: _NONE)
    """Tasks that ran and wait again."""
    price: FloatArray = field(default_factory=lambda: np.zeros(0))
    room_for: IntArray = field(default_factory=lambda: _NONE)
    """The task that each makes room for."""
    machines: IntArray = field(default_factory=lambda: _NONE)
    """Where each victim ran."""
    taken_back: IntArray = field(default_factory=lambda: _NONE)
    """Tasks that the round was about to start, and whose place went to a higher priority."""
    taken_by: IntArray = field(default_factory=lambda: _NONE)
    let_in: IntArray = field(default_factory=lambda: _NONE)
    """Tasks that start in the place of others, or in room that moves made."""
    moves: Moves = field(default_factory=no_moves)
    """Of running tasks; ``source`` and ``target`` are machine rows."""


def change_running(
    cluster: ClusterRows,
    tasks: IntArray,
    machines: IntArray,
    waits: IntArray,
    reservations: Sequence[MachineReservation],
    history: History,
    solver: Solver,
    settings: Settings,
    now_s: float,
) -> RunningChanges:
    """Preemptions and moves after a round that starts ``tasks`` on ``machines`` and leaves ``waits``, as a plan.

    Raises ``RuntimeError`` if the solver refuses a network.
    """
    work = cluster.copy()
    work.bind(tasks, machines, work.predicted_end(tasks, machines, now_s))
    changes = RunningChanges(work)
    if settings.preempts and len(waits):
        changes = _preempt(work, tasks, waits, reservations, history, solver, settings, now_s)
    if settings.migration_moves <= 0:
        return changes
    work.leave(changes.victims)  # they wait for the next round: no move makes room for them
    started = np.unique(np.concatenate([tasks, changes.let_in, history.tasks[history.stays]]))
    moved_s = np.full(len(work.tasks.state), -np.inf)
    moved_s[history.tasks] = history.moved_s
    held, fixed = _held(work, reservations, None), started[work.tasks.state[started] == RUNNING]
    moves = propose(work, solver, settings, now_s, moved_s, barred=held, fixed=fixed)
    carry_out_moves(moves, work)
    let_in = np.concatenate([changes.let_in, moves.tasks[moves.starts]])
    waits_on = ~np.isin(changes.taken_back, let_in)
    return replace(
        changes,
        taken_back=changes.taken_back[waits_on],
        taken_by=changes.taken_by[waits_on],
        let_in=let_in,
        moves=moves.kept(~moves.starts),
    )


def _preempt(
    work: ClusterRows,
    placed: IntArray,
    waits: IntArray,
    reservations: Sequence[MachineReservation],
    history: History,
    solver: Solver,
    settings: Settings,
    now_s: float,
) -> RunningChanges:
    """Preemptions, carried out on ``work``: priority by priority, tasks with a reserved machine first."""
    times = np.zeros(len(work.tasks.state), dtype=np.int64)
    times[history.tasks] = history.preemptions
    preemption = PreemptionPlanner(work, solver, settings, times)
    found: list[tuple[Preemptions, IntArray]] = []
    priority = work.classes.table().priority
    left = waits
    while len(left):
        level = int(priority[work.tasks.task_class[left]].max())
        mine = left[priority[work.tasks.task_class[left]] == level]
        holders = np.isin(mine, [r.task for r in reservations])
        for some, own in ((mine[holders], True), (mine[~holders], False)):
            if not len(some):
                continue
            barred = _held(work, reservations, level, some if own else None)
            plan = preemption.plan(some, now_s, barred)
            at = work.tasks.machine[plan.victims]
            carry_out(plan, work, work.predicted_end(plan.tasks, plan.machines, now_s))
            found.append((plan, at))
            back = plan.victims[np.isin(plan.victims, placed)]
            left = np.concatenate([left, back])
        left = left[priority[work.tasks.task_class[left]] < level]
    return _trace(work, placed, found)


def _trace(work: ClusterRows, placed: IntArray, found: Sequence[tuple[Preemptions, IntArray]]) -> RunningChanges:
    """Plans one after the other as one; a task of the round that lost its place may have found another."""
    plan = together([one for one, _ in found])
    victims, price, room_for = plan.victims, plan.price, plan.tasks[plan.room_for]
    machines = np.concatenate([_NONE, *(at for _, at in found)])
    ran = ~np.isin(victims, placed)
    back = ~ran & (work.tasks.state[victims] != RUNNING)
    return RunningChanges(
        work,
        victims[ran],
        price[ran],
        room_for[ran],
        machines[ran],
        victims[back],
        room_for[back],
        plan.tasks,
    )


def _held(
    work: ClusterRows, reservations: Sequence[MachineReservation], level: int | None, own: IntArray | None = None
) -> BoolArray:
    """Machines that reservations keep from tasks of a priority (None: from all), those of ``own`` tasks left out."""
    held = np.zeros(work.machines.rows, dtype=np.bool_)
    for r in reservations:
        waits = work.tasks.state[r.task] != RUNNING
        rank = int(work.classes.table().priority[work.tasks.task_class[r.task]])
        if waits and (level is None or rank >= level) and (own is None or r.task not in own):
            held[r.machine] = True
    return held

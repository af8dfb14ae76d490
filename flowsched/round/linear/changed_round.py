"""A round at linear prices with what it changes of running tasks, as decisions and as its record has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from flowsched.cluster.decision import Move, Placement, Postponement, Preemption
from flowsched.cluster.settings import Settings
from flowsched.cluster.settings_form import CHANGE_SETTINGS
from flowsched.cluster.snapshot import Snapshot
from flowsched.cluster.task_rows import PENDING, RUNNING
from flowsched.records.record import plain_changes, plain_value
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.moves import waiting_cost
from flowsched.round.linear.reasons import Closing
from flowsched.round.linear.running_changes import RunningChanges
from flowsched.support.arrays import FloatArray, IntArray, rows_of


@dataclass(frozen=True)
class ChangedRound:
    """What is decided once preemptions and moves are in it."""

    placements: tuple[Placement, ...]
    """All of the round."""
    taken_back: tuple[tuple[Postponement, str, str], ...]
    """Of tasks that the round was about to start, and whose place went to a higher priority; with machine and the task that
    took it."""
    preemptions: tuple[Preemption, ...]
    moves: tuple[Move, ...]
    let_in: frozenset[str]
    """Tasks that start in the place of others."""
    settings: Settings
    history: Mapping[str, tuple[int, float | None, bool]]
    """By running task, in order of their names: times preempted, when it was moved last, whether it stays."""

    @cached_property
    def starting(self) -> frozenset[str]:
        """Tasks that start."""
        return frozenset(p.task for p in self.placements)

    def merged(self, left: Sequence[Postponement]) -> tuple[Postponement, ...]:
        """All that wait, given those that the round left."""
        return (*(p for p in left if p.task not in self.starting), *(p for p, _, _ in self.taken_back))

    def plain(self) -> dict[str, Any]:
        """What the record has beside its parts."""
        return {
            "changes": {
                "settings": {name: getattr(self.settings, name) for name in CHANGE_SETTINGS},
                "task": list(self.history),
                "preemptions": np.array([h[0] for h in self.history.values()], dtype=np.int64),
                "moved_s": np.array([np.inf if h[1] is None else h[1] for h in self.history.values()]),
                "stays": np.array([h[2] for h in self.history.values()], dtype=np.bool_),
            },
            **plain_changes(self.preemptions, self.moves, [(p.task, m, by) for p, m, by in self.taken_back]),
            "let_in": [plain_value(p) for p in self.placements if p.task in self.let_in],
        }


def started_of(changes: RunningChanges, cluster: ClusterRows) -> tuple[IntArray, Closing, FloatArray]:
    """Rows of the tasks that start, the state with all of them, and what each costs there; ``cluster``: before the round."""
    pending = np.flatnonzero(cluster.tasks.state == PENDING)
    pending = cluster.tasks.in_order(pending)
    starting = pending[changes.cluster.tasks.state[pending] == RUNNING]
    before = changes.cluster.copy()
    at = before.tasks.machine[starting].copy()
    before.unbind(starting)
    closing = Closing.of(before, starting, at)
    terms = closing.terms(before.tasks.task_class[starting], at)
    cost: FloatArray = np.sum([np.zeros(len(starting)), *terms.values()], axis=0)
    return starting, closing, cost


def changed_round(
    snapshot: Snapshot,
    cluster: ClusterRows,
    changes: RunningChanges,
    placements: tuple[Placement, ...],
    settings: Settings,
) -> ChangedRound:
    """The round of a snapshot; ``cluster`` has the names of the rows in ``changes``."""
    running = {r.task.name: r for r in snapshot.running}
    machines = {m.name: m for m in snapshot.machines}
    moves = []
    steps = changes.moves
    for row, target, gain, price in rows_of(steps.tasks, steps.target, steps.gain, steps.least_gain):
        r, to = running[cluster.tasks.name(row)], cluster.machines.name(target)
        cores = snapshot.batch_cores(machines[to])
        stands_s, keeps = settings.migration_pause_s, settings.keeps_migrated_work
        moves.append(Move(r.task.name, r.machine, to, r.width_milli, r.threads, cores, stands_s, gain, price, keeps))
    cost = waiting_cost(cluster, changes.taken_back, snapshot.now_s, settings.due_age_s)
    back = []
    for row, by, wait in rows_of(changes.taken_back, changes.taken_by, cost):
        where = cluster.machines.name(int(changes.cluster.tasks.machine[by]))
        name = cluster.tasks.name(by)
        reason = f"{name} has a higher priority and starts in its place on {where}"
        finite = wait if np.isfinite(wait) else 0.0
        waited = snapshot.now_s - float(cluster.tasks.created_s[row])
        back.append((Postponement(cluster.tasks.name(row), reason, waited, finite, {"waiting": finite}), where, name))
    return ChangedRound(
        placements,
        tuple(back),
        tuple(
            Preemption(
                cluster.tasks.name(v), cluster.machines.name(m), cluster.tasks.name(by), price, settings.keeps_work
            )
            for v, m, by, price in rows_of(changes.victims, changes.machines, changes.room_for, changes.price)
        ),
        tuple(moves),
        frozenset(cluster.tasks.name(row) for row in changes.let_in.tolist()),
        settings,
        {
            name: (r.task.preemptions, r.moved_s, r.task.machines is not None)
            for name, r in sorted(running.items(), key=itemgetter(0))
        },
    )

"""Moves of running tasks: what one must bring to be worth its price.

A move brings what the task costs where it is, beside the others, less what it costs at its target, as things stand when its
turn comes. With prices that count what a task does to others beside what it suffers, that is what the total falls by.

Its price is paid once, but what it brings lasts only as long as the task does. With e the part of its predicted run that is
over, a task moves if

    gain * (1 - e) > migration_price + what standing still for ``migration_pause_s`` costs

with ``LOST_RUN_PRICE * e`` on the right side too if its work is lost (``migrated_work``). Tasks without a predicted end
stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowsched.cluster.machine_arrays import UNLIMITED
from flowsched.cluster.settings import Settings
from flowsched.pricing.linear import kernels
from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.running_changes import moving_price
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

LOST_RUN_PRICE = 1.0
"""What it costs to lose the work of a whole run."""


@dataclass(frozen=True, eq=False)
class Moves:
    """Steps to take one plan after the other. Arrays by step; a plan is a run of steps of which all or none are taken.

    All tasks of a plan leave where they are, then one after the other comes to its target, those that wait last.
    """

    tasks: IntArray
    source: IntArray
    """Machine row that the task is taken off; -1 for one that waits and starts."""
    target: IntArray
    gain: FloatArray
    """What each step brings when its turn comes; of one that starts, what leaving it would cost less what it costs. Steps
    that only make room for a later one of their plan may bring less than nothing."""
    least_gain: FloatArray
    """What each must bring to be worth its price; 0 for one that starts."""
    plan: IntArray
    """Number of each step's plan, ascending."""

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.tasks)

    @property
    def starts(self) -> BoolArray:
        """Steps that start a task that waits."""
        started: BoolArray = self.source < 0
        return started

    def kept(self, which: BoolArray) -> Moves:
        """Some of the steps."""
        return Moves(*(values[which] for values in vars(self).values()))


def no_moves() -> Moves:
    """Nothing to do."""
    none: IntArray = np.zeros(0, dtype=np.int64)
    return Moves(none, none, none, np.zeros(0), np.zeros(0), none)


def elapsed(cluster: ClusterRows, tasks: IntArray, now_s: float) -> tuple[FloatArray, FloatArray]:
    """Parts of the predicted runs of running tasks that are over, and that are left, 0 to 1; 0 and 1 for the endless.

    Where a run's end is not known all of it counts as left, and its age as done.
    """
    lasting = cluster.classes.lasting_s()[
        cluster.tasks.task_class[tasks], cluster.machines.kind[cluster.tasks.machine[tasks]]
    ]
    length = np.where(np.isfinite(lasting) & (lasting > 0.0), lasting, 1.0)
    finite, ending = np.isfinite(lasting), np.isfinite(cluster.tasks.end_s[tasks])
    left = np.clip(np.round(np.where(ending, cluster.tasks.end_s[tasks], now_s) - now_s, 6) / length, 0.0, 1.0)
    age = np.clip(cluster.tasks.age_s(tasks, now_s) / length, 0.0, 1.0)
    done = np.where(finite, np.where(ending, 1.0 - left, age), 0.0)
    return done, np.where(finite & ending, left, 1.0)


def least_gains(
    cluster: ClusterRows, tasks: IntArray, now_s: float, settings: Settings, moved_s: FloatArray
) -> FloatArray:
    """What moving each of these running tasks must bring; infinite for those that do not move. ``moved_s``: when each was
    moved last; minus infinity: never.
    """
    done, left = elapsed(cluster, tasks, now_s)
    price = moving_price(moved_s, now_s, settings)
    if settings.migration_pause_s > 0.0:
        price = price + _standing_still(cluster, tasks, settings.migration_pause_s)
    if not settings.keeps_migrated_work:
        price = price + LOST_RUN_PRICE * done
    worth: FloatArray = np.where(left > 0.0, price / np.where(left > 0.0, left, 1.0), np.inf)
    movable = [c.movable and not (c.holds or c.joins) and np.isfinite(c.run_s) for c in cluster.classes]
    return np.where(np.array(movable, dtype=np.bool_)[cluster.tasks.task_class[tasks]], worth, np.inf)


def _standing_still(cluster: ClusterRows, tasks: IntArray, pause_s: float) -> FloatArray:
    """What a pause costs each running task, in the unit of the policy's costs."""
    classes, machine = cluster.tasks.task_class[tasks], cluster.tasks.machine[tasks]
    here = kernels.reprice(classes, machine, cluster.model(), cluster.readings)
    lasting = cluster.classes.lasting_s()[classes, cluster.machines.kind[machine]]
    share = np.where(np.isfinite(lasting) & (lasting > 0.0), pause_s / np.where(lasting > 0.0, lasting, 1.0), 0.0)
    cost: FloatArray = np.maximum(0.0, here) * share
    return cost


def carry_out(moves: Moves, cluster: ClusterRows, end_s: FloatArray | None = None) -> None:
    """Book steps on the cluster they are possible on; ``end_s``: when each task is predicted to end from then on."""
    runs = ~moves.starts
    cluster.move(moves.tasks[runs], moves.target[runs], None if end_s is None else end_s[runs])
    cluster.bind(moves.tasks[~runs], moves.target[~runs], None if end_s is None else end_s[~runs])


def waiting_cost(cluster: ClusterRows, tasks: IntArray, now_s: float, due_age_s: float) -> FloatArray:
    """What leaving each of these tasks for later costs, by its age."""
    table, classes = cluster.classes.table(), cluster.tasks.task_class[tasks]
    age = np.clip(cluster.tasks.age_s(tasks, now_s) / max(due_age_s, 1e-9), 0.0, 1.0)
    cost: FloatArray = table.waiting[classes] + table.growth[classes] * age
    return cost


def emptied_of(cluster: ClusterRows, tasks: IntArray) -> ClusterRows:
    """A copy in which there is as much room as if these running tasks were gone, at readings as they are."""
    emptied = cluster.machines.copy()
    machine, classes = cluster.tasks.machine[tasks], cluster.tasks.task_class[tasks]
    np.add.at(emptied.free, machine, cluster.classes.demands[classes])
    freed = np.zeros_like(emptied.limits)
    np.add.at(freed, machine, cluster.classes.effects[classes])
    emptied.limits = np.where(emptied.limits < UNLIMITED, emptied.limits + freed, UNLIMITED)
    return replace(cluster, machines=emptied)


def open_machines(cluster: ClusterRows, barred: BoolArray | None) -> BoolArray:
    """Machine rows that may take a task."""
    return cluster.machines.alive.copy() if barred is None else cluster.machines.alive & ~barred

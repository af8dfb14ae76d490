"""What waits in a round, by class: how many, in which order they are served, and what leaving each of them costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.support.arrays import BoolArray, FloatArray, IntArray

AGE_STEPS = 16
"""Ages up to the due age are told apart in so many steps in the network; primal and bound use them as they are."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """Tasks of the classes that take part, class by class, within a class the dearest to leave first."""

    classes: IntArray
    """Ascending."""
    counts: IntArray
    tasks: IntArray
    """Task rows, sorted by class and then by what leaving them costs."""
    first: IntArray
    """Position of each class's first task, with one more at the end."""
    cost: FloatArray
    """What leaving each of ``tasks`` costs; may be infinite."""
    dearest: FloatArray
    """By class, the largest of them or the class's ceiling, if that is less: no place that costs more is taken."""
    levels: tuple[IntArray, IntArray, FloatArray]
    """Steps of the arcs to the unscheduled nodes: position of the class, tasks, cost of a task."""

    def first_of(self, placed: IntArray) -> BoolArray:
        """[tasks] the first ``placed[i]`` tasks of each class."""
        rank = np.arange(len(self.tasks)) - np.repeat(self.first[:-1], self.counts)
        return rank < np.repeat(placed, self.counts)


def survey(cluster: ClusterRows, pending: IntArray, now_s: float, due_age_s: float) -> Waiting:
    """Sort the tasks ``pending``, which are in the order in which they came."""
    task_class = cluster.tasks.task_class[pending]
    classes, position = np.unique(task_class, return_inverse=True)
    table = cluster.classes.table()
    waiting, growth = table.waiting[classes], table.growth[classes]
    age = np.clip(cluster.tasks.age_s(pending, now_s) / max(due_age_s, 1e-9), 0.0, 1.0)
    cost = waiting[position] + growth[position] * age
    order = np.lexsort((np.arange(len(pending)), -cost, position))
    counts = np.bincount(position, minlength=len(classes))
    level = np.where(growth[position] > 0.0, np.floor(age * AGE_STEPS), 0.0).astype(np.int64)
    code, of_code, level_count = np.unique(position * (AGE_STEPS + 1) + level, return_inverse=True, return_counts=True)
    level_class = code // (AGE_STEPS + 1)
    # The mean of the tasks that share a step: what they cost where all are of one age.
    level_cost = np.bincount(of_code, weights=cost, minlength=len(code)) / np.maximum(1, level_count)
    first = np.concatenate([[0], np.cumsum(counts)])
    sorted_cost = cost[order]
    dearest = np.minimum(sorted_cost[first[:-1]], table.max_cost[classes]) if len(classes) else np.zeros(0)
    return Waiting(
        classes,
        counts,
        pending[order],
        first,
        sorted_cost,
        dearest,
        (level_class, level_count, level_cost),
    )


def without(waiting: Waiting, cluster: ClusterRows, placed: IntArray, now_s: float, due_age_s: float) -> Waiting:
    """The same with the first ``placed[i]`` tasks of each class gone."""
    left = waiting.tasks[~waiting.first_of(placed)]
    return survey(cluster, cluster.tasks.in_order(left), now_s, due_age_s)

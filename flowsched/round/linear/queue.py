"""Who waits in a round, priority by priority: queues are served one after the other, the highest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flowsched.round.linear.cluster_rows import ClusterRows
from flowsched.round.linear.gang_queue import QueuedGang
from flowsched.support.arrays import IntArray


@dataclass(frozen=True, eq=False)
class Queue:
    """Tasks that compete with each other."""

    priority: int
    tasks: IntArray
    """Rows, in the order in which they came."""
    gangs: tuple[QueuedGang, ...] = ()
    """Task groups of theirs that start all or none."""

    def without(self, started: IntArray) -> Queue:
        """The rest of it. A group of which enough have started is one no more."""
        if not len(started):
            return self
        gangs = tuple(g for g in self.gangs if not np.isin(g.members, started).any())
        return Queue(self.priority, self.tasks[~np.isin(self.tasks, started)], gangs)


def by_priority(cluster: ClusterRows, pending: IntArray, gangs: Sequence[QueuedGang]) -> list[Queue]:
    """The queues, highest priority first. Members of a group are together; those of one that lacks members are in none."""
    priority = cluster.classes.table().priority[cluster.tasks.task_class[pending]]
    if gangs:
        priority = priority.copy()
        for gang in gangs:
            priority[np.isin(pending, gang.members)] = gang.priority
        lacking = [g.members for g in gangs if not g.complete]
        here = ~np.isin(pending, np.concatenate(lacking)) if lacking else np.ones(len(pending), dtype=np.bool_)
        pending, priority = pending[here], priority[here]
    if not len(pending):
        return []
    highest = int(priority.max())
    if int(priority.min()) == highest:
        return [Queue(highest, pending, tuple(g for g in gangs if g.complete))]
    levels = np.unique(priority)[::-1].tolist()
    return [
        Queue(level, pending[priority == level], tuple(g for g in gangs if g.complete and g.priority == level))
        for level in levels
    ]


def merged(cluster: ClusterRows, queues: Sequence[Queue]) -> Queue:
    """All of them as one, for what does not go by priority."""
    tasks = np.concatenate([np.zeros(0, dtype=np.int64), *(q.tasks for q in queues)])
    tasks = cluster.tasks.in_order(tasks)
    return Queue(0, tasks, tuple(g for q in queues for g in q.gangs))

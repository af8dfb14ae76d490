"""All that waits as columns of numbers, in order of arrival."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from flowsched.cluster.pending_tasks import Wait
from flowsched.cluster.snapshot import Task
from flowsched.support.arrays import BoolArray, FloatArray, IntArray
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.waiting import Waiting

IMPOSSIBLE = -1
"""Number of the row of tasks that no machine could ever take."""


class WaitingColumns(Waiting):
    """What waits, by higher priority, then by arrival; tasks that no machine could ever take are there too.

    The rank is :func:`~flowsched_simulator.baselines.baseline.by_arrival`.
    """

    more = 0
    """Columns that a rule has of its own."""

    def _clear(self) -> None:
        super()._clear()
        self._places: list[tuple[tuple[int, tuple[float, int, str, str]], Wait]] = []
        self._columns: FloatArray = np.zeros((2 + self.more, 64))
        """[columns, tasks and more] row, priority, and what a rule has of its own."""

    @property
    def rows(self) -> IntArray:
        """[tasks] the number of what a task asks for."""
        return self._columns[0, : len(self._places)].astype(np.int64)

    @property
    def priority(self) -> IntArray:
        """[tasks]"""
        return self._columns[1, : len(self._places)].astype(np.int64)

    def may_start(self, this: Round) -> BoolArray:
        """[tasks] whether a machine may have room for a task; surely none has where this says no."""
        able = np.append(self._may_fit(this), False)  # the last one: impossible
        found: BoolArray = able[self.rows]
        return found

    def is_nowhere(self, row: int, this: Round) -> bool:
        """Whether no machine has room for the tasks of a row, whatever else the round starts."""
        return self._rows[row].demand in this.nowhere

    def task_at(self, place: int, number: int) -> Task:
        """A task as the round with this number sees it."""
        return self._places[place][1].in_round(number)

    def _more(self, task: Task, this: Round) -> Sequence[float]:  # noqa: ARG002
        """A task's numbers in the columns of the rule."""
        return ()

    def _add(self, wait: Wait, this: Round) -> None:
        super()._add(wait, this)
        known = self._turns.get(wait.task.name)
        row = IMPOSSIBLE if known is None else known[1].row
        key, count = (-wait.task.priority, wait.task.arrival), len(self._places)
        place = bisect_left(self._places, (key,))
        self._places.insert(place, (key, wait))
        if count == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._columns[:, place + 1 : count + 1] = self._columns[:, place:count]
        self._columns[:, place] = (row, wait.task.priority, *self._more(wait.task, this))

    def _drop(self, task: Task) -> None:
        super()._drop(task)
        place, count = bisect_left(self._places, ((-task.priority, task.arrival),)), len(self._places)
        del self._places[place]
        self._columns[:, place : count - 1] = self._columns[:, place + 1 : count]

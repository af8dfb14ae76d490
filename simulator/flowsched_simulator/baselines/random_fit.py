"""Chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, by_arrival
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room
from flowsched_simulator.baselines.waiting import Waiting, keeps_queue
from flowsched_simulator.baselines.waiting_columns import WaitingColumns


class RandomFit(Baseline):
    """Tasks in random order, each onto a random machine where it fits.

    The rule: the uniformly random choice that M. Mitzenmacher, "The Power of Two Choices in Randomized Load
    Balancing", IEEE Trans. Parallel and Distributed Systems 12(10), 2001, pp. 1094-1104, and many later papers
    start from; what a scheduler is worth shows against it. Machines where the task does not fit are not in
    the draw, and higher priorities still come first.

    The draw depends on the seed and the number of the round only: the same snapshot gets the same decisions.
    """

    name = "random"
    description = "Random order, random machine among those where the task fits"
    draws = True
    reads_progress = False

    def queue(self) -> Waiting:
        """By arrival, to be drawn from."""
        return _ToDraw(self.rank, self.width_milli, self.least_s)

    @keeps_queue
    def order(self, this: Round) -> Sequence[Task]:
        """Random within each priority."""
        tasks = sorted(this.snapshot.pending, key=by_arrival)
        drawn = [tasks[i] for i in this.rng.permutation(len(tasks))]
        return sorted(drawn, key=lambda t: -t.priority)

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """Any of the machines, each as likely as the others."""
        return rooms[int(this.rng.integers(len(rooms)))]


class _ToDraw(WaitingColumns):
    """What waits, of which each round draws the order."""

    def catch_up(self, this: Round) -> None:
        """Bring the queue to what waits in a round, and draw as :meth:`RandomFit.order` does."""
        super().catch_up(this)
        drawn = this.rng.permutation(len(self.rows))
        self._drawn = drawn[np.argsort(-self.priority[drawn], kind="stable")]

    def grouped(self, number: int) -> list[Task]:
        """Members of task groups in the order that was drawn."""
        if not self._grouped:
            return []
        turns = [self.task_at(place, number) for place in self._drawn.tolist()]
        return [task for task in turns if task.name in self._grouped]

    def in_turn(
        self,
        this: Round,
        passes: Callable[[], bool],  # noqa: ARG002
        most_s: Callable[[Task, int], float],  # noqa: ARG002
    ) -> Iterator[Task]:
        """The tasks that may start, in the order that was drawn of all."""
        left = self._drawn[self.may_start(this)[self._drawn]]
        while len(left):
            first, left = left[0], left[1:]
            row = self.rows[first]
            if not self.is_nowhere(row, this):
                yield self.task_at(first, this.snapshot.round)
            if self.is_nowhere(row, this):
                left = left[self.rows[left] != row]

"""Chance."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, by_arrival
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room


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

    def order(self, this: Round) -> Sequence[Task]:
        """Random within each priority."""
        tasks = sorted(this.snapshot.pending, key=by_arrival)
        drawn = [tasks[i] for i in this.rng.permutation(len(tasks))]
        return sorted(drawn, key=lambda t: -t.priority)

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """Any of the machines, each as likely as the others."""
        return rooms[int(this.rng.integers(len(rooms)))]

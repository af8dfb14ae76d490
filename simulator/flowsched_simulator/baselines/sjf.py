"""Shortest job first."""

from __future__ import annotations

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import MostFreeFirst, by_arrival
from flowsched_simulator.baselines.greedy_round import Round


class ShortestJobFirst(MostFreeFirst):
    """Short tasks first, each onto the machine with the most free cores; what runs is never stopped.

    The rule: W. E. Smith, "Various Optimizers for Single-Stage Production", Naval Research Logistics Quarterly 3, 1956, pp.
    59-66: on one machine the order of rising processing times has the least mean completion time; R. W. Conway, W. L.
    Maxwell, L. W. Miller, "Theory of Scheduling", Addison-Wesley, 1967, chapter 4, for several machines. A task that fits
    nowhere does not block those behind it.

    The run time is that on the fastest machine that could ever take the task, with the granted cores to itself.
    """

    name = "sjf"
    description = "Shortest job first: shortest estimated run first, onto the machine with most free cores"
    reads_progress = False
    told = (Knowledge.RUN_TIMES,)
    sign = 1.0
    """-1 for the longest first."""

    def rank(self, task: Task, this: Round) -> tuple[int, float, tuple[int, tuple[float, int, str, str]]]:
        """By priority, then by length."""
        return -task.priority, self.sign * this.fastest_s(task, self.width_milli(task, this)), by_arrival(task)

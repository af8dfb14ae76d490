"""Longest processing time first."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, by_arrival, most_free_first
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room


class LongestProcessingTimeFirst(Baseline):
    """Long tasks first, each onto the machine with the most free cores.

    The rule: R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Applied Mathematics 17(2),
    1969, pp. 416-429: list scheduling with the list sorted by falling processing time. Graham's machines run
    one task each; the next free machine is here the least loaded, the one with the most free cores,
    and of equals the one that would finish the task first. As in list scheduling, a task that fits nowhere
    does not block those behind it.

    The processing time is the run time alone, predicted by the models for the granted number of cores, on the
    fastest machine that could ever take the task.
    """

    name = "lpt"
    description = "Longest processing time first: longest predicted run first, onto the machine with most free cores"
    told = (Knowledge.RUN_TIMES,)

    def order(self, this: Round) -> Sequence[Task]:
        """By priority, then the longest first."""
        length = {t.name: this.fastest_s(t, self.width_milli(t, this)) for t in this.snapshot.pending}
        return sorted(this.snapshot.pending, key=lambda t: (-t.priority, -length[t.name], by_arrival(t)))

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """The machine with the most free cores; of equals, the fastest for this task."""
        return most_free_first(task, width_milli, rooms, this)

"""Shortest remaining processing time first."""

from __future__ import annotations

import math

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Running, Task
from flowsched_models.execution import INSTANT_S
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.preemptive import Preemptive
from flowsched_simulator.baselines.running_urgencies import Urgency
from flowsched_simulator.baselines.waiting import keeps_queue


class ShortestRemainingProcessingTime(Preemptive):
    """The tasks with the least left run; one that is stopped for a shorter one goes on later where it stopped.

    The rule: L. Schrage, "A Proof of the Optimality of the Shortest Remaining Processing Time Discipline", Operations
    Research 16(3), 1968, pp. 687-690; on several servers I. Grosof, Z. Scully, M. Harchol-Balter, "SRPT for Multiserver
    Systems", Performance Evaluation 127-128, 2018, pp. 154-175. What is left is the estimated run time less the time that
    the task has run, on the fastest machine that could ever take it, with the granted cores to itself.
    """

    name = "srpt"
    description = (
        "Shortest remaining processing time first: what runs is preempted for shorter tasks, and keeps its work"
    )
    told = (Knowledge.RUN_TIMES,)

    @keeps_queue
    def urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        """Seconds that are left on the fastest machine, in whole microseconds, so that rounding makes no two equals differ.

        One measure for what runs and what waits, wherever it runs: otherwise two tasks could stop each other in turn.
        """
        share = 1.0
        if running is not None:
            # Before its program starts nothing is done, and not less than nothing. Of nothing, nothing is left.
            started_s = this.started_s(running)
            share = min(1.0, this.left_s(running) / started_s) if started_s > 0.0 else 0.0
        return (round(share * this.fastest_s(task, self.width_milli(task, this)), 6),)

    def less_urgent_s(self, running: Running, this: Round) -> float:
        """The end of its estimate: less and less is left of it until then, and after it always the same."""
        end_s = running.start_s + this.started_s(running)
        return math.inf if end_s <= this.snapshot.now_s else end_s - 10 * INSTANT_S

"""Shortest remaining processing time first."""

from __future__ import annotations

import math

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Running, Task
from flowsched_models.execution import INSTANT_S
from flowsched_simulator.baselines.expectation import left_s
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import MOST_KNOWN, Round
from flowsched_simulator.baselines.preemptive import Preemptive
from flowsched_simulator.baselines.room import RoomLayout
from flowsched_simulator.baselines.running_urgencies import Urgency
from flowsched_simulator.baselines.waiting import keeps_queue

_Start = tuple[float, str, tuple[int, ...], float]
"""When, on which machine and which of its cores, and with how much done."""


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

    def __init__(self, granting: Granting, seed: int = 0) -> None:
        """Nothing runs."""
        super().__init__(granting, seed)
        self._layout: RoomLayout | None = None
        self._lengths: dict[str, tuple[_Start, float, float]] = {}
        """Of tasks that run, by name: their start, and how long they take as they run, and on the fastest machine."""

    @keeps_queue
    def urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        """Seconds that are left on the fastest machine, in whole microseconds, so that rounding makes no two equals differ.

        One measure for what runs and what waits, wherever it runs: otherwise two tasks could stop each other in turn.
        """
        if running is None:
            return (round(this.fastest_s(task, self.width_milli(task, this)), 6),)
        started_s, fastest_s = self._known(running, this)
        # Before its program starts nothing is done, and not less than nothing. Of nothing, nothing is left.
        share = 0.0
        if started_s > 0.0:
            share = min(1.0, left_s(started_s, running.start_s, this.snapshot.now_s) / started_s)
        return (round(share * fastest_s, 6),)

    def less_urgent_s(self, running: Running, this: Round) -> float:
        """The end of its estimate: less and less is left of it until then, and after it always the same."""
        end_s = running.start_s + self._known(running, this)[0]
        return math.inf if end_s <= this.snapshot.now_s else end_s - 10 * INSTANT_S

    def _known(self, running: Running, this: Round) -> tuple[float, float]:
        """How long a task takes as it runs, and on the fastest machine; the same from its start to its end."""
        if self._layout is not this.layout or len(self._lengths) > MOST_KNOWN:
            self._layout = this.layout
            self._lengths.clear()
        task, start = running.task, (running.start_s, running.machine, running.cores, running.task.done)
        known = self._lengths.get(task.name)
        if known is None or known[0] != start:
            fastest_s = this.fastest_s(task, self.width_milli(task, this))
            known = self._lengths[task.name] = start, this.started_s(running), fastest_s
        return known[1:]

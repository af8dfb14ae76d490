"""Least attained service first."""

from __future__ import annotations

from flowsched.cluster.snapshot import MILLI, Running, Task
from flowsched_models.execution import INSTANT_S
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.preemptive import Preemptive
from flowsched_simulator.baselines.running_urgencies import Urgency
from flowsched_simulator.baselines.waiting import keeps_queue

FIRST_QUEUE_CORE_S = 100.0
"""Core-seconds of service up to which a task is in the first queue."""
QUEUE_FACTOR = 10.0
"""By how much more each further queue holds."""


_Moment = tuple[float, int]
"""Time and number of a round."""


class LeastAttainedService(Preemptive):
    """The tasks that were served least run; run times need not be known.

    The rule: foreground-background, as surveyed by M. Nuyens, A. Wierman, "The Foreground-Background Queue: A Survey",
    Performance Evaluation 65(3-4), 2008, pp. 286-307. Service is requested cores times seconds, and comes in classes, as in
    J. Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019 (discretized two-dimensional
    LAS): tasks of a queue of less service stop those of a queue of more; in one queue, first come, first served, and what
    runs stays. The bounds of the queues rise by a factor, as in M. Chowdhury, I. Stoica, "Efficient Coflow Scheduling
    Without Prior Knowledge", SIGCOMM 2015. Queues are looked at whenever a task arrives or ends.
    """

    name = "las"
    description = (
        "Least attained service first, in queues: tasks that were served longer are preempted, and keep their work"
    )

    steady = True

    def __init__(self, granting: Granting, seed: int = 0) -> None:
        """Nothing has been served."""
        super().__init__(granting, seed)
        self._served: dict[str, dict[float, tuple[_Moment, float]]] = {}
        """Of tasks that were stopped, by task and start: the round that did, and core-seconds."""

    @keeps_queue
    def urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        """The number of its queue, of service in whole microseconds: what ends exactly at a bound is not rounded past it."""
        return (float(self._queue(task, running, this)[0]),)

    def less_urgent_s(self, running: Running, this: Round) -> float:
        """When it will have been served for what its queue holds, if it runs on; a microsecond of a core before, since
        service is rounded.
        """
        served, bound = self._queue(running.task, running, this)[1:]
        begins_s = max(this.snapshot.now_s, running.start_s)
        return begins_s + (bound - served - INSTANT_S) * MILLI / running.width_milli

    def _queue(self, task: Task, running: Running | None, this: Round) -> tuple[int, float, float]:
        """The number of a task's queue, its core-seconds of service, and how much of that the queue holds."""
        served = 0.0 if running is None else _service(running, this)
        if task.name in self._served:
            now = _moment(this)  # a round that is gone through again knows nothing of later ones
            earlier = self._served[task.name].values()
            served += sum(service for stopped, service in earlier if stopped < now)
        served = round(served, 6)
        queue, bound = 0, FIRST_QUEUE_CORE_S
        while served > bound:
            queue, bound = queue + 1, bound * QUEUE_FACTOR
        return queue, served, bound

    def stopped(self, resident: Running, this: Round) -> None:
        """Remember how long it was served, once for each of its starts."""
        self._served.setdefault(resident.task.name, {})[resident.start_s] = _moment(this), _service(resident, this)


def _service(running: Running, this: Round) -> float:
    """Core-seconds since its last start."""
    return max(0.0, this.snapshot.now_s - running.start_s) * running.width_milli / MILLI


def _moment(this: Round) -> _Moment:
    return this.snapshot.now_s, this.snapshot.round

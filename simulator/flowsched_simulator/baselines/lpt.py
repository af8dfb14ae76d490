"""Longest processing time first."""

from __future__ import annotations

from flowsched_simulator.baselines.sjf import ShortestJobFirst


class LongestProcessingTimeFirst(ShortestJobFirst):
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
    reads_progress = False
    sign = -1.0

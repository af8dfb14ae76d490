"""First come, first served."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room


class FirstComeFirstServed(Baseline):
    """Strict order of arrival: the head of the queue, as long as it fits nowhere, holds up all behind it.

    The rule: U. Schwiegelshohn, R. Yahyapour, "Analysis of First-Come-First-Serve Parallel Job Scheduling",
    Proc. 9th ACM-SIAM Symposium on Discrete Algorithms (SODA), 1998, pp. 629-638: each job starts as soon as
    enough resources are free and all jobs before it have started. No backfilling. Among machines that fit it
    takes the first, by name: first fit, as in D. S. Johnson et al., SIAM J. Computing 3(4), 1974, pp.
    299-325.

    Two additions: higher priorities come first, and a task that fits on no machine even when idle blocks no
    other.
    """

    name = "fcfs"
    description = "First come, first served: the head of the queue blocks the rest; first machine that fits"
    reads_progress = False
    head_blocks = True

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The first machine that fits."""
        return rooms[0]

"""Best-fit bin packing."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room


class BestFit(Baseline):
    """Each task onto the fullest machine that still takes it.

    Where: best fit of D. S. Johnson, A. Demers, J. D. Ullman, M. R. Garey, R. L. Graham, "Worst-Case
    Performance Bounds for Simple One-Dimensional Packing Algorithms", SIAM J. Computing 3(4), 1974, pp.
    299-325: into the bin that it leaves with the least unused capacity, in order of arrival. The packed
    dimension is CPU; memory must fit.

    When: list scheduling with resource constraints of M. R. Garey, R. L. Graham, "Bounds for Multiprocessor
    Scheduling with Resource Constraints", SIAM J. Computing 4(2), 1975, pp. 187-200: whenever something
    becomes free the list is scanned from its head, and each task that fits starts. One that does not is
    skipped and blocks no other.
    """

    name = "best-fit"
    description = "Best-fit bin packing in order of arrival: least free CPU left; what does not fit is skipped"
    reads_progress = False

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine with the least CPU left; of equals, the one with the least memory left."""
        return min(rooms, key=lambda r: (this.available_milli(r, task), r.free_memory_mib, r.name))

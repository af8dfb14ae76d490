"""Longest processing time first."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, Room, Round, by_arrival, cores_for
from flowsched_simulator.baselines.expectation import run_time_alone_s, spread


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

    def order(self, this: Round) -> Sequence[Task]:
        """By priority, then the longest first."""
        length = {t.name: self._processing_time_s(t, this) for t in this.snapshot.pending}
        return sorted(this.snapshot.pending, key=lambda t: (-t.priority, -length[t.name], by_arrival(t)))

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """The machine with the most free cores; of equals, the fastest for this task."""

        def preference(room: Room) -> tuple[int, float, str]:
            return -this.available_milli(room), _run_time_s(task, width_milli, room, this), room.name

        return min(rooms, key=preference)

    def _processing_time_s(self, task: Task, this: Round) -> float:
        width = self.width_milli(task, this)
        # One machine of each kind is enough; clusters have many alike.
        kinds = {(r.type.name, r.batch_cores): r for r in this.possible(task, width)}
        return min((_run_time_s(task, width, r, this) for r in kinds.values()), default=0.0)


def _run_time_s(task: Task, width_milli: int, room: Room, this: Round) -> float:
    cores = spread(room.type, room.batch_cores, cores_for(width_milli))
    return run_time_alone_s(this.snapshot.catalogue, task, room.type, cores)

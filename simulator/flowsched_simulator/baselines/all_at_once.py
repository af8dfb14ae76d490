"""Everything at once."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.knowledge import Knowledge
from flowsched.cluster.snapshot import Task
from flowsched_simulator.baselines.baseline import Baseline, by_arrival
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room

EQUAL_WIDTH_MILLI = 100
"""The request of every task: equal, so that all have the same weight, and small, so that it hardly ever binds."""


class AllAtOnce(Baseline):
    """Start everything on arrival, where the least work is; a machine's cores are shared equally.

    The rule: processor sharing in each machine (L. Kleinrock, "Queueing Systems, Volume 2: Computer
    Applications", Wiley, 1976, chapter 4) behind a dispatcher that sends each job to the server with the
    least work left (M. Harchol-Balter, "Performance Modeling and Design of Computer Systems", Cambridge
    University Press, 2013, chapter 24). Work is in seconds that the machine, with all its batch cores busy,
    needs for what is left there, the new task included: so larger and faster machines get more. Tasks of one
    round are taken in order of falling work, which balances best (R. L. Graham, SIAM J. Applied Mathematics
    17(2), 1969, pp. 416-429).

    It has a granting of its own, whatever is passed: shared cores and the same small request for all. A task
    waits only for memory, or where so many tasks are already that not even this request is free.
    """

    name = "all-at-once"
    description = "Start everything on arrival, where the least work per core is; cores are shared equally"
    told = (Knowledge.RUN_TIMES,)
    uses_granting = False

    def __init__(self, granting: Granting | None = None, seed: int = 0) -> None:
        """Any granting is accepted and none is used."""
        super().__init__(granting or Granting("declared", "shared"), seed)

    def has_own_cores(self) -> bool:
        """Never."""
        return False

    def request_milli(self, task: Task) -> int:  # noqa: ARG002
        """The same for all."""
        return EQUAL_WIDTH_MILLI

    def rank(self, task: Task, this: Round) -> tuple[int, float, tuple[int, tuple[float, int, str, str]]]:
        """By priority, then the most work first."""
        work_s = this.snapshot.catalogue.jobs[task.profile].work_s
        return -task.priority, -work_s * this.snapshot.expected_scale(task), by_arrival(task)

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:  # noqa: ARG002
        """The machine that would run empty first, with the task on it."""

        def after(room: Room) -> tuple[int, str]:
            # In whole nanoseconds: sums of the same tasks in another order are equal.
            return int(1e9 * (this.load_s(room) + this.added_s(task, room)) + 0.5), room.name

        return min(rooms, key=after)

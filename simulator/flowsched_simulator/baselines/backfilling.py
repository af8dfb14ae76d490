"""Backfilling: tasks behind those that must wait start where they delay none of the starts that were promised to these."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.cluster.snapshot import Snapshot, Task
from flowsched_simulator.baselines.backfilling_round import BackfillingRound
from flowsched_simulator.baselines.baseline import Baseline
from flowsched_simulator.baselines.granting import Granting
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.reserved_queue import ReservedQueue
from flowsched_simulator.baselines.room import Room
from flowsched_simulator.baselines.running_shares import RunningShares
from flowsched_simulator.baselines.waiting import Waiting


class Backfilling(Baseline):
    """Order of arrival, with reservations for the first tasks that must wait: ``depth`` of them.

    A task may start now where it fits and, by the estimates, ends before the reserved share of the machine is needed, or
    leaves it free. Reservations are made anew in each round, in the order of the queue, so that tasks that end early pull
    them forward. A task group has one reservation for as many of its members as have to start together. Estimates are of
    run times alone: see :func:`flowsched_simulator.baselines.expectation.left_s`.
    """

    reads_progress = False
    depth: int | None
    """How many tasks, or task groups, have a reservation; None for all."""

    def __init__(self, granting: Granting, seed: int = 0) -> None:
        """Nothing runs."""
        super().__init__(granting, seed)
        self._held = RunningShares()

    def round_of(self, snapshot: Snapshot) -> BackfillingRound:
        """A round without reservations."""
        if self.layout is None:
            self._held = RunningShares()
        return BackfillingRound(
            snapshot, own_cores=self.has_own_cores(), seed=self.seed, layout=self.layout, held=self._held
        )

    def queue(self) -> Waiting:
        """Where all have reservations, these are kept too."""
        own = ("round_of", "choose", "held_up", "order")
        kept = all(getattr(type(self), name) is getattr(Backfilling, name) for name in own)
        return (
            ReservedQueue(self.rank, self.width_milli, self.least_s) if kept and self.depth is None else super().queue()
        )

    def choose(self, task: Task, width_milli: int, rooms: Sequence[Room], this: Round) -> Room:
        """The machine that would end it first; of equals, the first by name."""
        return min(rooms, key=lambda r: (this.told_s(task, width_milli, r), r.name))

    def passes(self, this: Round) -> bool:
        """As soon as all reservations are made."""
        assert isinstance(this, BackfillingRound)
        kept = type(self).held_up is Backfilling.held_up
        return kept and self.depth is not None and this.reservations >= self.depth

    def least_s(self, task: Task, this: Round) -> float:
        """Its estimate on the machine where that is shortest."""
        return this.fastest_s(task, self.width_milli(task, this))

    def most_s(self, this: Round, task: Task, width_milli: int) -> float:
        """Until the last machine with room is needed for a reservation."""
        assert isinstance(this, BackfillingRound)
        return this.most_s(task, width_milli)

    def held_up(self, tasks: Sequence[Task], needed: int, group: str | None, this: Round) -> str:
        """Reserve the earliest start, unless enough others have one. Those behind wait for nothing else."""
        assert isinstance(this, BackfillingRound)
        widths = [self.width_milli(t, this) for t in tasks]
        if self.depth is None or this.reservations < self.depth:
            alone = self.depth is not None and group is None
            if not (alone and this.reserve_late(tasks[0], widths[0])):
                this.reserve(tasks, widths, needed)
        return ""

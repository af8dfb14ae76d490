"""Rules that stop running tasks for more urgent ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from flowsched.cluster.snapshot import Running, Snapshot, Task
from flowsched_simulator.baselines.baseline import MostFreeFirst, by_arrival
from flowsched_simulator.baselines.greedy_round import Round
from flowsched_simulator.baselines.room import Room

Urgency = tuple[float, ...]
"""What comes first is less."""


class Preemptive(MostFreeFirst):
    """The most urgent tasks run; what is stopped for them keeps its work and may go on on any machine.

    A task that fits nowhere starts on the machine where the least urgent tasks make room for it, all of them less urgent
    than itself: so nothing is stopped in favour of its equal, and rounds at one instant come to an end. Tasks that a
    relation counts or binds, members of task groups, and tasks without an end stop nothing and are
    not stopped.
    """

    @abstractmethod
    def urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        """How urgent a task is beside its priority, less for more. ``running``: None where it waits."""

    def round_of(self, snapshot: Snapshot) -> Round:
        """A round that may preempt."""
        return Round(snapshot, own_cores=self.has_own_cores(), seed=self.seed, preemptive=True, layout=self.layout)

    def order(self, this: Round) -> Sequence[Task]:
        """By priority, then urgency, then arrival."""
        urgency = {t.name: self._urgency(t, None, this) for t in this.snapshot.pending}
        return sorted(this.snapshot.pending, key=lambda t: (urgency[t.name], by_arrival(t)))

    def rooms_for(self, task: Task, width_milli: int, this: Round) -> list[Room]:
        """Machines where the task fits; if there is none, one where less urgent tasks were stopped for it."""
        found = this.candidates(task, width_milli)
        if found or not self._free_to_move(task, this):
            return found
        mine = self._urgency(task, None, this)
        best: tuple[Urgency, list[Running]] | None = None
        for room in this.possible(task, width_milli):
            ranked = [
                (self._urgency(r.task, r, this), r) for r in this.residents(room) if self._free_to_move(r.task, this)
            ]
            # The least urgent leave first; of equals, those that came last.
            ranked = sorted((pair for pair in ranked if pair[0] > mine), key=lambda p: (p[0], by_arrival(p[1].task)))
            leaving = _leaving(task, width_milli, room, [r for _, r in ranked[::-1]], this)
            if leaving:
                most_urgent = min(urgency for urgency, r in ranked if r in leaving)
                if best is None or most_urgent > best[0]:
                    best = most_urgent, leaving
        if best is None:
            return []
        for resident in best[1]:
            self.stopped(resident, this)
            this.preempt(resident, task)
        return this.candidates(task, width_milli)

    def stopped(self, resident: Running, this: Round) -> None:
        """Take note of a task that is preempted."""

    def _urgency(self, task: Task, running: Running | None, this: Round) -> Urgency:
        return (-task.priority, *self.urgency(task, running, this))

    def _free_to_move(self, task: Task, this: Round) -> bool:
        return not task.endless and task.group is None and not this.domain_counts.concerns(task)


def _leaving(task: Task, width_milli: int, room: Room, ranked: Sequence[Running], this: Round) -> list[Running]:
    """Who of these, taken in this order, must leave a machine so that the task fits; empty where that is not enough."""

    def fits_without(gone: Sequence[Running]) -> bool:
        return this.has_room(task, width_milli, this.left_by(room, gone))

    gone: list[Running] = []
    for resident in ranked:
        gone.append(resident)
        if fits_without(gone):
            break
    else:
        return []
    for resident in gone[::-1]:
        without = [r for r in gone if r is not resident]
        if without and fits_without(without):
            gone = without
    return gone

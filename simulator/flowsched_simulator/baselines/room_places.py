"""Machines of a working copy as places for the members of a gang."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence

from flowsched.cluster.domain_counts import DomainCounts
from flowsched.cluster.snapshot import Task
from flowsched.relations.gang_search import GangPlaces
from flowsched.relations.relation import Relation
from flowsched.support.arrays import IntArray
from flowsched_simulator.baselines.room import Room


class RoomPlaces(GangPlaces[Room]):
    """Where members may go beside those that the search has placed. Members are numbers of ``tasks``."""

    def __init__(
        self, tasks: Sequence[Task], needs: Sequence[Sequence[int] | IntArray], kinds: Sequence[Hashable]
    ) -> None:
        """``needs``: [members, R] what each takes of a machine."""
        super().__init__(tasks, needs, kinds)
        self.tasks = tasks

    @property
    @abstractmethod
    def domain_counts(self) -> DomainCounts:
        """Relations with the members that are placed."""

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those that are known, by name."""
        return self.domain_counts.relations

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains, with the members that are placed."""
        return self.domain_counts.members(relation)

    def domain(self, relation: Relation, place: Room) -> str | None:
        """The domain of a machine; None where it is in none."""
        return self.domain_counts.domain(relation, place.name)

    def machine(self, place: Room) -> str:
        """Its name."""
        return place.name

    def mark(self, place: Room) -> Hashable:
        """The machine and the GPUs that the last task got."""
        return place.name, place.devices


def alike(task: Task, now_s: float) -> Hashable:
    """Equal for tasks that fit at the same places for the same time, if they may start now or later."""
    # Content without the time of arrival: of that only matters whether the task has waited.
    return task.content[0], task.submit_s < now_s, *task.content[2:], task.run_s

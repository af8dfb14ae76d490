"""Places for the members of a gang on machines that drain: sets that could all start together, as early as can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flowsched.cluster.compaction import View
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.relations.gang_search import GangPlaces, GangSearch, steps_among
from flowsched.relations.relation import Relation
from flowsched.round.gang import RoundGang
from flowsched.round.hold import Hold
from flowsched.round.reserved_relations import ReservedRelations
from flowsched.support.arrays import IntArray

Draining = Callable[[int, int, Hold | None], tuple[float, Hold] | None]
"""Of a task of the view, a machine and what is held there already: when there is room for it too, in seconds from now, and
what is held then; None for never. Relations aside."""
_EARLIER = 16
"""So many times an earlier set of places is looked for."""


def soonest_together(
    view: View, relations: ReservedRelations, gang: RoundGang, draining: Draining
) -> tuple[float, list[tuple[int, int]]] | None:
    """When enough members of a gang could start together, in seconds from now, and tasks with their machines; None where
    no such places are found. Relations among members count, and those to tasks that stay.

    Relations that are open as things stand count as open, as well as those that will be; where such a set could not start
    at once after all, it is one that could once all has ended that ends.
    """
    for settled in (False, True):
        found: tuple[float, list[tuple[int, int]]] | None = None
        steps, before_s = steps_among(len(view.machines)), FORBIDDEN
        for _ in range(_EARLIER):
            places = _DrainedPlaces(view, relations, gang, draining, before_s, settled)
            if not GangSearch(places, gang.needed, steps, more=False).fit():
                break
            found = places.found()
            before_s = found[0]
            # An earlier set is worth following the rule, and no search through all assignments.
            steps = 0
            places.clear()
        if found is not None and (settled or relations.admit([(view.tasks[t], m) for t, m in found[1]])):
            return found
    return None


class _DrainedPlaces(GangPlaces[int]):
    """Machines, by their index in the view, that will have room for members; the one that has it first is taken."""

    def __init__(
        self,
        view: View,
        relations: ReservedRelations,
        gang: RoundGang,
        draining: Draining,
        before_s: float,
        settled: bool,
    ) -> None:
        """``before_s``: only those that have room before this time; ``settled``: relations count as they will be."""
        self._tasks = sorted(gang.members, key=lambda t: (-view.tasks[t].widths_milli[0], t))
        members = [view.tasks[t] for t in self._tasks]
        needs = [(task.widths_milli[0], task.memory_mib) for task in members]
        super().__init__(members, needs, [view.class_of[t] for t in self._tasks])
        self._view, self._counts, self._draining = view, relations, draining
        self._before_s, self._settled = before_s, settled
        self._placed: list[tuple[float, int, int, Hold | None]] = []
        """When, the member, the machine, and what was held there before."""
        self._holds: dict[int, Hold] = {}
        self._known: dict[tuple[int, int], tuple[float, Hold] | None] = {}
        self._free = np.array([_left_for_good(view, g) for g in view.group_of], np.int64).reshape(-1, 2)

    def found(self) -> tuple[float, list[tuple[int, int]]]:
        """When the last of the places is free, and tasks with their machines."""
        return max(at for at, *_ in self._placed), [(self._tasks[i], m) for _, i, m, _ in self._placed]

    def clear(self) -> None:
        """Undo all placements."""
        while self._placed:
            self.take_back()

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those of the snapshot."""
        return self._view.domain_counts.relations

    @property
    def places(self) -> Sequence[int]:
        """All machines."""
        return range(len(self._view.machines))

    @property
    def free(self) -> IntArray:
        """[machines, 2] CPU and memory beside what never ends."""
        return self._free

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains once all has ended that ends."""
        return self._counts.joined(relation)

    def domain(self, relation: Relation, place: int) -> str | None:
        """The domain of a machine."""
        return self._view.domain_counts.domain(relation, self._view.machines[place].name)

    def options(self, member: int) -> list[int]:
        """Machines where a member will have room, the first ones to have it first."""
        found = [(at[0], m) for m in self.places if (at := self._at(member, m)) is not None and at[0] < self._before_s]
        return [m for _, m in sorted(found)]

    def put(self, member: int, options: Sequence[int]) -> int:
        """Place a member on the first of the machines."""
        machine = options[0]
        at = self._at(member, machine)
        assert at is not None
        self._placed.append((at[0], member, machine, self._holds.get(machine)))
        self._holds[machine] = at[1]
        self._counts.add(self._view.tasks[self._tasks[member]], machine)
        return machine

    def take_back(self) -> None:
        """Undo the last placement."""
        _, member, machine, before = self._placed.pop()
        if before is None:
            del self._holds[machine]
        else:
            self._holds[machine] = before
        self._counts.add(self._view.tasks[self._tasks[member]], machine, -1)

    def _at(self, member: int, machine: int) -> tuple[float, Hold] | None:
        task = self._tasks[member]
        hold = self._holds.get(machine)
        key = self._view.class_of[task], machine
        if hold is not None:
            found = self._draining(task, machine, hold)
        elif key in self._known:
            found = self._known[key]
        else:
            found = self._known[key] = self._draining(task, machine, None)
        if found is None:
            return None
        open_s = self._counts.open_s(self._view.tasks[task], machine, self._settled)
        return None if open_s == FORBIDDEN else (max(open_s, found[0]), found[1])


def _left_for_good(view: View, group: int) -> tuple[int, int]:
    """CPU in thousandths and MiB that a machine of a group has beside what never ends."""
    here = view.groups[group]
    ends = [r for r in here.running if not r.task.endless]
    return (
        here.free_milli + sum(r.width_milli for r in ends),
        here.free_memory_mib + sum(r.task.memory_mib for r in ends),
    )

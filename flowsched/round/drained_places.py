"""Places for the members of a gang on machines that drain: sets that could all start together, as early as can be."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flowsched.cluster.compaction import View
from flowsched.pricing.flow_prices import FORBIDDEN
from flowsched.relations.gang_search import steps_among
from flowsched.relations.later_places import LaterPlaces, TimedPlace, earliest_set
from flowsched.relations.relation import MACHINE, Relation
from flowsched.round.gang import RoundGang
from flowsched.round.hold import Hold
from flowsched.round.reserved_relations import ReservedRelations
from flowsched.support.arrays import FloatArray, IntArray

Draining = Callable[[int, int, Hold | None], tuple[float, Hold] | None]
"""Of a task of the view, a machine and what is held there already: when there is room for it too, in seconds from now, and
what is held then; None for never. Relations aside."""
_FURTHER = 16
"""So many machines more than there are members are looked at for each, the first ones that have room."""


def soonest_together(
    view: View,
    relations: ReservedRelations,
    gang: RoundGang,
    draining: Draining,
    least_s: Callable[[int], FloatArray],
) -> tuple[float, list[tuple[int, int]]] | None:
    """When enough members of a gang could start together, in seconds from now, and tasks with their machines; None where
    no such places are found. Relations among members count, and those to tasks that stay.

    ``least_s``: of a task of the view, when each machine has room for it at the earliest, [machines].

    Relations that are open as things stand count as open, as well as those that will be; where such a set could not start
    at once after all, it is one that could once all has ended that ends.
    """
    steps = steps_among(len(view.machines))
    for settled in (False, True) if view.domain_counts.relations else (False,):
        places = _DrainedPlaces(view, relations, gang, draining, least_s, settled)
        found = earliest_set(places, gang.needed, steps)
        if found is not None:
            tasks = [(places.tasks[member], m) for member, m in found[1]]
            if settled or relations.admit([(view.tasks[t], m) for t, m in tasks]):
                return found[0], tasks
    return None


class _DrainedPlaces(LaterPlaces):
    """Machines by their index in the view."""

    def __init__(
        self,
        view: View,
        relations: ReservedRelations,
        gang: RoundGang,
        draining: Draining,
        least_s: Callable[[int], FloatArray],
        settled: bool,
    ) -> None:
        """``settled``: relations count as they will be only."""
        self.tasks = sorted(gang.members, key=lambda t: (-view.tasks[t].widths_milli[0], t))
        members = [view.tasks[t] for t in self.tasks]
        needs = [(task.widths_milli[0], task.memory_mib) for task in members]
        super().__init__(members, needs, [view.class_of[t] for t in self.tasks])
        self._view, self._counts, self._draining, self._least_s = view, relations, draining, least_s
        self._settled = settled
        self._most = len(members) + _FURTHER
        self._order: dict[int, list[TimedPlace]] = {}
        """By class, when machines have room at the earliest, in this order."""
        self._holds: dict[int, list[Hold]] = {}
        """What is held on a machine, with one member more each time."""
        self._known: dict[tuple[int, int], tuple[float, Hold] | None] = {}
        self._free = np.array([_left_for_good(view, g) for g in view.group_of], np.int64).reshape(-1, 2)

    @property
    def relations(self) -> Mapping[str, Relation]:
        """Those of the snapshot."""
        return self._view.domain_counts.relations

    @property
    def free(self) -> IntArray:
        """[machines, 2] CPU and memory beside what never ends."""
        return self._free

    def joined(self, relation: Relation) -> int:
        """Tasks that join a relation in all domains once all has ended that ends."""
        return self._counts.joined(relation)

    def domain(self, relation: Relation, place: TimedPlace) -> str | None:
        """The domain of a machine."""
        return self._view.domain_counts.domain(relation, self._view.machines[place[1]].name)

    def when(self, member: int) -> Sequence[TimedPlace]:
        """When and where there will be room for a member, the earliest first."""
        c = self._view.class_of[self.tasks[member]]
        if c not in self._order:
            least_s = self._least_s(self.tasks[member])
            machines = np.argsort(least_s, kind="stable")
            self._order[c] = list(zip(least_s[machines].tolist(), machines.tolist(), strict=True))
        # Of each domain there have to be some where a relation asks for one.
        most = len(self._order[c]) if self._is_divided(member) else self._most
        found: list[TimedPlace] = []
        for least, m in self._order[c]:
            if least == FORBIDDEN or (len(found) >= most and least > found[most - 1][0]):
                break
            at = self._at(member, m)
            if at is not None:
                insort(found, (at[0], m))
        return found

    def _is_divided(self, member: int) -> bool:
        names = {*self.members[member].holds, *self.members[member].joins}
        return any(self.relations[name].key != MACHINE for name in names if name in self.relations)

    def count(self, member: int, machine: int, sign: int) -> None:
        """Count a member where it has a place, for relations and for what is held there."""
        if sign > 0:
            at = self._at(member, machine)
            assert at is not None
            self._holds.setdefault(machine, []).append(at[1])
        else:
            self._holds[machine].pop()
        self._counts.add(self._view.tasks[self.tasks[member]], machine, sign)

    def _at(self, member: int, machine: int) -> tuple[float, Hold] | None:
        task = self.tasks[member]
        held = self._holds.get(machine)
        key = self._view.class_of[task], machine
        if held:
            found = self._draining(task, machine, held[-1])
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
